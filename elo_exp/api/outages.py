"""A server that refuses everybody, fails or goes away while requests are sent to it is waited for.

Meanwhile one request at a time asks whether it answers again, each time another one, so that a request which the server
cannot take delays no other. The rest is not sent, and none of it is given up. All who ask one server wait together.
"""

import enum
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from elo_exp.api.jobs import Message, Model
from elo_exp.api.transport import (
    BUSY_STATUSES,
    NO_CONNECTION_STATUS,
    CallError,
    RefusedError,
    UnknownOutcomeError,
    format_duration,
)
from elo_exp.errors import RESUME_HINT, ServerError, UserError

logger = logging.getLogger(__name__)

# Between two requests to a server that does not answer
MAX_PROBE_PAUSE_SECONDS = 30.0
MIN_UNANSWERED_FOR_OUTAGE = (
    3  # requests in a row without an answer, by which a server has failed
)
_BAD_GATEWAY, _UNAVAILABLE = 502, 503
# More requests at a time are not limited.
_MAX_REQUESTS_LIMIT = 64


class _ServerAwayError(UnknownOutcomeError):
    """A request was lost, and the server does not answer what is free either."""


class RetryDecision(enum.Enum):
    """What is to be done with a request that got no answer."""

    AGAIN = "the server is waited for"
    COUNTED = "it is sent again, a number of times"
    GIVEN_UP = "it is the only one that gets no answer"


@dataclass(kw_only=True)
class _Outage:
    """A time in which the server does not answer.

    since       by our clock, in seconds
    pause       seconds before the next request
    not_before  when it may leave
    asking      the request that is under way to see whether the outage is over
    asked       the last of them
    failed      requests that came to nothing meanwhile, by key
    """

    since: float
    pause: float
    not_before: float = 0.0
    asking: str | None = None
    asked: str | None = None
    failed: set[str] = field(default_factory=set)
    is_logged: bool = False


@dataclass(kw_only=True)
class _Server:
    """What is known of one server by all who ask it.

    silent    requests without an answer, since the last answer
    limit     requests at a time after an outage, which grows by each answer; None: no limit
    n_sent    requests that were sent
    answered  which of them, by number, was sent last among those that were answered
    """

    n_users: int = 0
    outage: _Outage | None = None
    silent: set[str] = field(default_factory=set)
    limit: int | None = None
    n_sent: int = 0
    answered: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)


class ServerWatch:
    """Whether the server of a model answers. To be closed.

    pause  seconds between the first two requests to a server that does not, which double
    """

    _servers: ClassVar[dict[str, _Server]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, model: Model, pause: float) -> None:
        self._model = model
        self._pause = pause
        self._max_seconds = 60.0 * model.wait_minutes
        # Of the requests under way
        self._number_by_key: dict[str, int] = {}
        self._n_when_failed: dict[str, int] = {}  # requests sent before it first failed
        with self._lock:
            endpoint = model.api.endpoint
            self._server = self._servers.setdefault(endpoint, _Server())
            self._server.n_users += 1

    def close(self) -> None:
        with self._server.lock:
            outage = self._server.outage
            if outage is not None and outage.asking in self._number_by_key:
                outage.asking = None  # another's request asks
        with self._lock:
            self._server.n_users -= 1
            if not self._server.n_users:
                self._servers.pop(self._model.api.endpoint, None)

    @property
    def last_probe_key(self) -> str | None:
        """The request that was last sent to see whether an outage is over; None where there is no outage."""
        outage = self._server.outage
        return outage.asked if outage else None

    @property
    def is_server_out(self) -> bool:
        return self._server.outage is not None

    def may_send(self, n_running: int) -> bool:
        """Return whether another request may be sent now, beside so many of the caller that are under way."""
        with self._server.lock:
            outage, limit = self._server.outage, self._server.limit
            if outage is None:
                return limit is None or n_running < limit
            return outage.asking is None and time.monotonic() >= outage.not_before

    def seconds_left(self) -> float:
        """Return the seconds until another request may ask whether an outage is over."""
        outage = self._server.outage
        return max(0.0, outage.not_before - time.monotonic()) if outage else 0.0

    def note_sent(self, key: str) -> None:
        with self._server.lock:
            self._server.n_sent += 1
            self._number_by_key[key] = self._server.n_sent
            if outage := self._server.outage:
                outage.asking = outage.asked = key

    def send(self, body: Mapping[str, Any]) -> Message:
        """Return the answer to a request. Raises RefusedError or DoubtfulError; in a thread of its own."""
        try:
            return self._model.api.send(body)
        except UnknownOutcomeError as error:
            # by the server that goes, or by this request alone
            is_open = error.is_cut or error.status == _BAD_GATEWAY
            if self._max_seconds and is_open and not self._is_reachable():
                raise _ServerAwayError(str(error), status=error.status) from None
            raise

    def _is_reachable(self) -> bool:
        """Return whether the server answers a question that is free."""
        try:
            self._model.api.check_model(self._model.model)
        except UserError:
            return False
        return True

    def note_answer(self, key: str) -> None:
        """Note that the server has answered a request, which ends no outage if it was sent before."""
        server = self._server
        with server.lock:
            server.silent.clear()
            server.answered = max(server.answered, self._number_by_key.pop(key, 0))
            if (outage := server.outage) is None:
                if server.limit is not None:
                    server.limit += 1
                    server.limit = (
                        None if server.limit > _MAX_REQUESTS_LIMIT else server.limit
                    )
            elif outage.asking == key:
                server.outage, server.limit = None, 2
                if outage.is_logged:
                    time_away = format_duration(time.monotonic() - outage.since)
                    message_format = "%s is back after %s: going on"
                    logger.info(message_format, self._model.api.endpoint, time_away)

    def note_failure(
        self,
        key: str,
        error: RefusedError | UnknownOutcomeError,
        *,
        is_alone: bool,
        is_single: bool = False,
    ) -> RetryDecision:
        """Note that a request got no answer; return what is to be done with it.

        The first refusal for all (429, 529), the first sign that nobody is there, and the third request in a row without an
        answer begin an outage. In one an attempt is counted for the first failure of a request where the server may have
        had it: it may be what takes the server down. One is also counted for a request that was sent by itself, if the
        server has answered another that was sent after this one had failed before.

        is_alone   no other request is left
        is_single  no other is under way
        Raises ServerError once the server has not answered for too long, or says that it will not.
        """
        status = error.status
        has_no_connection = (
            isinstance(error, RefusedError) and status == NO_CONNECTION_STATUS
        )
        is_busy = status in BUSY_STATUSES
        is_away = (
            has_no_connection
            or status == _UNAVAILABLE
            or isinstance(error, _ServerAwayError)
        )
        if isinstance(error, RefusedError) and not (is_busy or has_no_connection):
            self.note_answer(key)
            return RetryDecision.COUNTED
        server = self._server
        with server.lock:
            self._number_by_key.pop(key, None)
            n_when_failed = self._n_when_failed.setdefault(key, server.n_sent)
            server.silent.add(key)
            is_isolated = (
                not (is_busy or is_away)
                and len(server.silent) < MIN_UNANSWERED_FOR_OUTAGE
            )
            if server.outage is None and is_isolated:
                return RetryDecision.COUNTED
            now = time.monotonic()
            if server.outage is None:
                pause = min(self._pause, self._max_seconds)
                server.outage = _Outage(since=now, pause=pause)
            outage = server.outage
            left = outage.since + self._max_seconds - now
            has_asked = outage.asking == key
            if has_asked:
                outage.asking = None
                outage.pause = min(
                    2.0 * outage.pause, MAX_PROBE_PAUSE_SECONDS, max(left, 0)
                )
                self._log_outage(outage, error)
            has_failed_before = key in outage.failed
            outage.failed.add(key)
            wait = error.retry_after
            pause = outage.pause if has_asked or wait is None else 0.0
            not_before = now + max(wait or 0.0, pause)
            outage.not_before = max(outage.not_before, not_before)
        if left <= 0 or (wait or 0.0) > left:
            if left <= 0 and is_alone and self._is_reachable():
                return RetryDecision.GIVEN_UP
            endpoint = self._model.api.endpoint
            raise make_outage_error(endpoint, error, self._max_seconds, left)
        is_sole_request = has_asked or is_single
        is_overtaken = is_sole_request and server.answered > n_when_failed
        if is_busy:
            return RetryDecision.COUNTED if is_overtaken else RetryDecision.AGAIN
        is_first = not has_no_connection and not has_failed_before
        is_counted = is_first or (is_overtaken and not is_away)
        return RetryDecision.COUNTED if is_counted else RetryDecision.AGAIN

    def _log_outage(
        self, outage: _Outage, error: RefusedError | UnknownOutcomeError
    ) -> None:
        if not outage.is_logged:
            outage.is_logged = True
            logger.info(
                "%s does not answer (%s): waiting up to %s",
                self._model.api.endpoint,
                _describe_error(error),
                format_duration(self._max_seconds),
            )


def make_outage_error(
    endpoint: str, error: CallError, seconds: float, left: float
) -> UserError:
    """The error of a server that has given no answer for `seconds`, or asks to wait for longer than the `left` of them."""
    limit = format_duration(seconds)
    # Waits are shown in whole seconds
    if left < 1:
        why = f", and the run has waited for {limit}" * bool(seconds)
    else:
        wait = format_duration(error.retry_after or 0.0)
        why = f", and asks to wait for {wait}, while wait_minutes allows {limit}"
    advice = " Try again later, or with a lower concurrency."
    return ServerError(
        f"{endpoint} does not answer ({_describe_error(error)}){why}.{advice * (error.status in BUSY_STATUSES)} {RESUME_HINT}"
    )


def _describe_error(error: CallError) -> str:
    status = f"{error.status}: " if error.status in BUSY_STATUSES else ""
    return status + str(error).rstrip(".")
