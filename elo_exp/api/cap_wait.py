"""How long a run waits for room in a cap of the store that other processes hold."""

import threading
import time

from elo_exp import progress
from elo_exp.api.jobs import describe_spending, make_cap_error
from elo_exp.store.caps import OverCapError
from elo_exp.store.claims import CLAIM_POLL_SECONDS

# A cap that has been full for so long stays full.
_MAX_FULL_CAP_SECONDS = 60.0


class CapWait:
    """A wait for a cap that is full: by how many dollars, and since when."""

    def __init__(self) -> None:
        self._dollars, self._since = 0.0, time.monotonic()

    def pause(self, error: OverCapError, stop: threading.Event) -> None:
        """Wait a moment, or until the run is stopped. Raises BudgetError once no other process gives any of the cap back."""
        cap, now = error.spent, time.monotonic()
        if cap.dollars != self._dollars:
            self._dollars, self._since = cap.dollars, now
        elif now - self._since > _MAX_FULL_CAP_SECONDS:
            raise make_cap_error(cap, error.dollars)
        if cap.reserved < 1e-9:
            raise make_cap_error(cap, error.dollars)
        progress.show_note(f"{cap.setting}: {describe_spending(cap)}; waiting for room")
        stop.wait(CLAIM_POLL_SECONDS)
