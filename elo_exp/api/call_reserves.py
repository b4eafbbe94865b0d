"""What single calls may cost while they are under way, and what those cost whose answers were lost."""

import logging
from collections import Counter

from elo_exp.api.costs import UNCOUNTED_COST_NOTE
from elo_exp.api.jobs import Model
from elo_exp.api.transport import UnknownOutcomeError
from elo_exp.store.claims import Claims

logger = logging.getLogger(__name__)

# Overloaded. A batch may have been accepted all the same: it outlives the call.
_UNBILLED_STATUSES = {529}


class CallReserves:
    """The most that each call may cost, by the key of its answer: in the store, the budget and the usage of the run.

    last_error  the last that lost an answer which may have been billed
    """

    def __init__(self, model: Model, claims: Claims) -> None:
        self._claims, self._usage = claims, claims.store.usage
        self._server, self._budget = model.server, model.budget
        self._dollars: dict[str, float] = {}
        self._n_lost: Counter[str] = Counter()
        self._has_warned = False  # of answers that do not say what they cost
        self.last_error = ""

    def reserve(self, key: str, dollars: float) -> bool:
        """Commit what a call may cost before it leaves; return False if it must not leave: this process slept, and
        another took over. Raises OverCapError if a cap of the store has no room for it."""
        if not self._claims.record_call(key, dollars):
            return False
        self._dollars[key] = dollars
        self._budget.reserve(key, dollars)
        return True

    def settle(self, key: str, dollars: float, *, is_counted: bool) -> None:
        """Put what an answer has cost in the place of its reserve.

        is_counted  whether the server says how many tokens it has counted; else the reserve stays
        """
        self._budget.spent += dollars
        if is_counted:
            self._budget.release(key)
        elif self._dollars[key]:
            self._usage.dollars_at_most += self._dollars[key]
            if not self._has_warned:
                self._has_warned = True
                logger.warning("warning: %s %s", self._server, UNCOUNTED_COST_NOTE)

    def keep(self, key: str, why: str) -> None:
        """Keep the reserve of an answer that cannot be read."""
        self._claims.end_call(key, lost=why)
        self._usage.add_lost_calls(self._dollars[key])

    def release(self, key: str, error: BaseException | None = None) -> None:
        """End a call that has come to nothing. If it may have been billed, its cost stays counted."""
        is_lost = (
            isinstance(error, UnknownOutcomeError)
            and error.status not in _UNBILLED_STATUSES
        )
        if is_lost:
            self.last_error = str(error).rstrip(".")
            self._n_lost[key] += 1
            self._budget.reserve(f"{key} lost {self._n_lost[key]}", self._dollars[key])
            self._usage.add_lost_calls(self._dollars[key])
        self._budget.release(key)
        self._claims.end_call(key, lost=self.last_error if is_lost else None)
