"""How long a run waits for a store that cannot take answers, such as one on a full disk."""

import logging
import time

from elo_exp import interrupts

logger = logging.getLogger(__name__)

_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 15.0


class SaveWait:
    """A wait of so many minutes, with pauses between attempts that double."""

    def __init__(self, minutes: float) -> None:
        self._minutes = minutes
        self._since, self._pause = time.monotonic(), _MIN_PAUSE_SECONDS

    def pause(self, problem: str) -> bool:
        """Wait until the next attempt; return False at once if the time is over, or the run is asked to end.

        problem  why the last attempt has failed, which is logged once
        """
        seconds_left = self._since + 60.0 * self._minutes - time.monotonic()
        if seconds_left <= 0 or interrupts.is_requested():
            return False
        if self._pause == _MIN_PAUSE_SECONDS:
            logger.warning(
                "warning: %s Trying again for up to %g minutes", problem, self._minutes
            )
        interrupts.pause(min(self._pause, seconds_left))
        self._pause = min(2.0 * self._pause, _MAX_PAUSE_SECONDS)
        return True
