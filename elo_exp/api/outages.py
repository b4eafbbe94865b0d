"""A server that goes away while requests are sent to it is waited for.

A model of one's own is restarted, or loads for minutes. Then one request at a time asks whether it is back, the others
are not sent, and none of them is given up.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elo_exp.api.jobs import GO_ON, Message, Model
from elo_exp.api.transport import NO_CONNECTION, DoubtfulError, RefusedError
from elo_exp.records import UserError

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 30.0
_BAD_GATEWAY, _UNAVAILABLE = 502, 503


class _AwayError(DoubtfulError):
    """A request was lost, and the server does not answer what is free either."""


@dataclass(kw_only=True)
class _Outage:
    """A time in which the server does not answer.

    since   by our clock, in seconds
    pause   seconds before the next request
    failed  requests that came to nothing meanwhile, by key
    asked   those that were sent meanwhile: they alone show that it is back
    """

    since: float
    pause: float
    failed: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    is_said: bool = False


class Outages:
    """Whether the server of a model answers.

    pause  seconds between the first two requests to a server that is away, which double
    """

    def __init__(self, model: Model, pause: float) -> None:
        self._model = model
        self._pause = pause
        self._seconds = 60.0 * model.wait_minutes
        self._outage: _Outage | None = None

    def may_ask(self, running: Iterable[str]) -> bool:
        """Return whether another request may be sent beside those that are under way."""
        return self._outage is None or self._outage.asked.isdisjoint(running)

    def ask(self, key: str, delay: float) -> float:
        """Note that a request is sent; return the seconds after which it may leave."""
        if self._outage is None:
            return delay
        self._outage.asked.add(key)
        return self._outage.pause

    def send(self, body: Mapping[str, Any]) -> Message:
        """Return the answer to a request. Raises RefusedError or DoubtfulError; in a thread of its own."""
        try:
            return self._model.api.send(body)
        except DoubtfulError as error:
            # by the server that goes, or by this request alone
            is_open = error.is_cut or error.status == _BAD_GATEWAY
            if self._seconds and is_open and not self._is_there():
                raise _AwayError(str(error), status=error.status) from None
            raise

    def _is_there(self) -> bool:
        """Whether the server answers what is free."""
        try:
            self._model.api.check_model(self._model.model)
        except UserError:
            return False
        return True

    def wait_for(
        self, key: str, error: RefusedError | DoubtfulError, *, is_alone: bool
    ) -> bool:
        """Return whether a request has failed because the server is away, and is to be sent again without an attempt
        being counted.

        An attempt is counted for the first failure in an outage where the server may have had the request: it may be what
        takes the server down.

        is_alone  no other request is left
        Raises UserError once the server has been away for too long.
        """
        is_refused = isinstance(error, RefusedError) and error.status == NO_CONNECTION
        is_unavailable = error.status == _UNAVAILABLE
        if not (is_refused or is_unavailable or isinstance(error, _AwayError)):
            self.end(key)
            return False
        now = time.monotonic()
        if self._outage is None:
            pause = min(self._pause, self._seconds)
            self._outage = _Outage(since=now, pause=pause)
        outage, left = self._outage, self._outage.since + self._seconds - now
        if left <= 0:
            if is_alone and is_unavailable and self._is_there():
                return False
            self._end_run(error)
        if key in outage.asked:
            self._say(error)
            outage.pause = min(2.0 * outage.pause, _LONGEST_PAUSE_SECONDS, left)
        is_again = key in outage.failed
        outage.failed.add(key)
        return is_refused or is_again

    def end(self, key: str) -> None:
        """Note that the server has answered a request, which shows nothing if it was sent before the server went."""
        if (outage := self._outage) and key in outage.asked:
            self._outage = None
            if outage.is_said:
                away = _minutes(time.monotonic() - outage.since)
                text = "%s is back after %s: going on"
                logger.info(text, self._model.api.endpoint, away)

    def _say(self, error: RefusedError | DoubtfulError) -> None:
        if self._outage and not self._outage.is_said:
            self._outage.is_said = True
            logger.info(
                "%s does not answer (%s): waiting up to %s",
                self._model.api.endpoint,
                error,
                _minutes(self._seconds),
            )

    def _end_run(self, error: RefusedError | DoubtfulError) -> None:
        waited = f" and was waited for {_minutes(self._seconds)}" * bool(self._seconds)
        raise UserError(
            f"{self._model.api.endpoint} does not answer ({error}){waited}. {GO_ON}"
        )


def _minutes(seconds: float) -> str:
    unit, n = ("minute", 60.0) if seconds >= 60.0 else ("second", 1.0)
    number = round(seconds / n)
    return f"{number} {unit}{'s' * (number != 1)}"
