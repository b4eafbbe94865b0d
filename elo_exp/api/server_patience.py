"""How long a run waits for a server of batches that gives no answer, or refuses every batch."""

from elo_exp import progress
from elo_exp.api.batch_protocol import BatchModel
from elo_exp.api.outages import make_outage_error
from elo_exp.api.transport import (
    RATE_LIMIT_STATUS,
    CallError,
    Clock,
    RefusedError,
    fatal_reason,
)
from elo_exp.errors import RESUME_HINT, ServerError


class ServerPatience:
    """Since when a server gives no answer, or refuses every batch, and when that is too long.

    wait_seconds  that the server asks to wait before the next look
    """

    def __init__(self, model: BatchModel, clock: Clock) -> None:
        self._model, self._clock = model, clock
        self._silent_since: float | None = None
        self._refused_since: float | None = None
        self.wait_seconds = 0.0

    def note_unreachable(self, error: CallError) -> None:
        """Raise ServerError once the server has given no answer for too long, or where it will give none."""
        if why := fatal_reason(self._model.server, error):
            raise ServerError(f"{why} {RESUME_HINT}")
        now = self._clock.elapsed()
        since = self._silent_since = (
            now if self._silent_since is None else self._silent_since
        )
        self._stop_after_waiting(since, error)
        self.wait_seconds = max(self.wait_seconds, error.retry_after or 0.0)
        progress.show_note(
            f"{self._model.api.endpoint} cannot be reached ({error}); trying again"
        )

    def note_answer(self) -> None:
        self._silent_since, self.wait_seconds = None, 0.0

    def note_refused(self, refusal: RefusedError, *, is_alone: bool) -> None:
        """Raise ServerError once the server has refused every submission for too long.

        is_alone  whether no batch of ours is under way, whose end makes room
        """
        if refusal.status != RATE_LIMIT_STATUS or not is_alone:
            self._refused_since = None
            return
        now = self._clock.elapsed()
        since = self._refused_since = (
            now if self._refused_since is None else self._refused_since
        )
        self._stop_after_waiting(since, refusal)

    def note_accepted(self) -> None:
        self._refused_since = None

    def limit_wait(self, seconds: float) -> float:
        """Return how long to wait before the next look: not beyond the end of a silence that stops the run."""
        seconds = max(seconds, self.wait_seconds)
        if self._silent_since is None:
            return seconds
        end = self._silent_since + 60.0 * self._model.wait_minutes
        return max(0.0, min(seconds, end - self._clock.elapsed()))

    def _stop_after_waiting(self, since: float, error: CallError) -> None:
        limit = 60.0 * self._model.wait_minutes
        seconds_left = since + limit - self._clock.elapsed()
        if seconds_left <= 0.0 or (error.retry_after or 0.0) > seconds_left:
            raise make_outage_error(
                self._model.api.endpoint, error, limit, seconds_left
            )
