"""Queries answered one by one, some at a time: for small runs, where a batch's wait is not worth its half price.

An answer is committed as it arrives. The API knows no idempotency: an answer that is lost on its way, or while this
process is killed, is paid for and gone, and its query is asked again. That is at most `concurrency` answers a crash;
what a lost answer may have cost stays reserved in the budget.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from elo_exp import progress
from elo_exp.batches import firsts_of, stop_if_many
from elo_exp.claims import Claims
from elo_exp.pricing import Budget
from elo_exp.records import JudgeReply, JudgeRequest, UserError
from elo_exp.services import NO_CONNECTION, DoubtfulError, Queries, RefusedError, has_run_dry

MAX_ATTEMPTS = 6
_BACK_OFF_SECONDS = 1.0  # doubled at every attempt
_PASSING = frozenset({429, NO_CONNECTION})
_NOT_BILLED = frozenset({529})  # overloaded: doubtful for a batch, which outlives the call, but not for a message
_FATAL = frozenset({401, 402, 403})  # no other request will fare better


class MessagesRun:
    """One process's work on the queries that it has claimed. `failed` says why a query has no answer.

    `send` turns the parameters of a message into the message, and raises RefusedError or DoubtfulError.
    """

    def __init__(
        self,
        *,
        send: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        judge: Queries,
        claims: Claims,
        budget: Budget,
        concurrency: int,
        ttl: str | None,
    ) -> None:
        self._send = send
        self._judge = judge
        self._claims = claims
        self._budget = budget
        self._concurrency = concurrency
        self._ttl = ttl  # of the prompt cache
        self._attempts: Counter[str] = Counter()
        self._stop = threading.Event()
        self._n_wanted = 0
        self.failed: dict[str, str] = {}

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        """The answers as they come, each committed. A request without one is in `failed`."""
        self._n_wanted = len(requests)
        firsts = firsts_of(requests)  # they write the prompt cache that the others read
        rest = [request for request in requests if all(request is not first for first in firsts)]
        with ThreadPoolExecutor(max_workers=self._concurrency) as pool:
            yield from self._together(pool, firsts)
            yield from self._together(pool, rest)

    def _together(self, pool: ThreadPoolExecutor, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        waiting = deque((request, 0.0) for request in requests)
        running: dict[Future[Mapping[str, Any]], JudgeRequest] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._concurrency and self._has_room(waiting[0][0], len(running)):
                    request, delay = waiting.popleft()
                    if not self._claims.holds(request.key):  # this process slept, and another has taken it over
                        continue
                    self._budget.reserve(request.key, self._judge.reserve(request, self._ttl))
                    running[pool.submit(self._ask, self._judge.params(request, self._ttl), delay)] = request
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    request = running.pop(future)
                    if (reply := self._reply(request, future)) is not None:
                        yield reply
                    elif request.key not in self.failed:
                        waiting.append((request, self._delay(request, future)))
                progress.note(f"${self._budget.spent:.2f} of ${self._budget.cap:,.2f} spent")
        finally:
            self._stop.set()
            self._keep_the_last(running)
            self._stop.clear()

    def _has_room(self, request: JudgeRequest, n_running: int) -> bool:
        if self._budget.fits([self._judge.reserve(request, self._ttl)]):
            return True
        if n_running:
            return False
        raise UserError(
            f"judging.budget_usd: ${self._budget.spent:.2f} of ${self._budget.cap:.2f} are spent, and the next request "
            f"may cost ${self._judge.reserve(request, self._ttl):.4f}. Every answer so far is stored; the same command "
            "with a higher cap goes on."
        )

    def _ask(self, params: Mapping[str, Any], delay: float) -> Mapping[str, Any]:
        """In a thread of its own, with no access to the store."""
        if self._stop.wait(delay) if delay else self._stop.is_set():
            raise RefusedError("interrupted before it was sent", status=429)
        return self._send(params)

    def _reply(self, request: JudgeRequest, future: Future[Mapping[str, Any]]) -> JudgeReply | None:
        """The answer, committed. None where there is none, for good if the key is then in `failed`."""
        error = future.exception()
        key = request.key
        if error is None:
            reply = self._judge.reply(key, request.names, future.result())
            self._budget.release(key)
            self._budget.spent += reply.dollars
            return self._claims.keep(reply)
        self._attempts[key] += 1
        if isinstance(error, DoubtfulError) and error.status not in _NOT_BILLED:
            self._budget.reserve(f"{key} lost {self._attempts[key]}", self._judge.reserve(request, self._ttl))
        self._budget.release(key)
        if not isinstance(error, RefusedError | DoubtfulError):
            raise error
        if isinstance(error, RefusedError) and error.status in _FATAL:
            raise UserError(f"the judge's API refuses ({error.status}): {error}. Every answer so far is stored.")
        if has_run_dry(None, str(error)):
            raise UserError(f"the judge's account has run dry ({error}). Every answer so far is stored.")
        if isinstance(error, RefusedError) and error.status == NO_CONNECTION and self._attempts[key] >= MAX_ATTEMPTS:
            raise UserError(f"the judge's API cannot be reached ({error}). Every answer so far is stored.")
        if (isinstance(error, RefusedError) and error.status not in _PASSING) or self._attempts[key] >= MAX_ATTEMPTS:
            self.failed[key] = str(error)
            stop_if_many(self.failed, self._n_wanted, "Every answer so far is stored; the same command goes on.")
        return None

    def _delay(self, request: JudgeRequest, future: Future[Mapping[str, Any]]) -> float:
        error = future.exception()
        asked = error.retry_after if isinstance(error, RefusedError) else None
        return asked if asked is not None else _BACK_OFF_SECONDS * 2.0 ** (self._attempts[request.key] - 1)

    def _keep_the_last(self, running: dict[Future[Mapping[str, Any]], JudgeRequest]) -> None:
        """When the work is broken off: what has been sent is paid for, so its answer is waited for and kept."""
        for future, request in running.items():
            if not future.cancel() and future.exception() is None:
                self._claims.keep(self._judge.reply(request.key, request.names, future.result()))
