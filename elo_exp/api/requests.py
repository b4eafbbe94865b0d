"""Single requests, some at a time: retried, never past a cap, every answer that arrives kept.

The APIs know no idempotency: an answer that is lost on its way, or while this process is killed,
may be paid for and gone, and its question is asked again. Each call is in the store before it
leaves, so that every loss is counted at the most that it may have cost, which also stays reserved
in the budget.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Generic, Self, TypeVar

from elo_exp import progress
from elo_exp.api.batches import stop_if_many
from elo_exp.api.costs import NOT_COUNTED, is_counted
from elo_exp.api.jobs import Job, Message, Model, Recorder, worst_dollars
from elo_exp.api.transport import (
    NO_CONNECTION,
    DoubtfulError,
    RefusedError,
    fatal_reason,
)
from elo_exp.records import Record, UserError
from elo_exp.store.claims import Claims
from elo_exp.store.processes import check_lifeline

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 6
_BACK_OFF_SECONDS = 1.0  # doubled at every attempt
_TRANSIENT = frozenset({429, NO_CONNECTION})
_NOT_BILLED = frozenset(
    {529}
)  # overloaded: doubtful for a batch, which outlives the call
_FATAL = frozenset({401, 402, 403, 404})  # no other request will fare better
_STORED = "Every answer so far is stored"
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

R = TypeVar("R", bound=Record)
Send = Callable[[Mapping[str, Any]], Message]  # raises RefusedError or DoubtfulError


class _Interrupt:
    """Ctrl-C while answers are on their way: it waits until they have been handed over. A second
    one does not wait."""

    def __enter__(self) -> Self:
        self.wanted = False
        self._before = signal.getsignal(signal.SIGINT)
        in_main = threading.current_thread() is threading.main_thread()
        self._takes_it = (
            in_main and self._before is not None
        )  # None: somebody's who is not Python
        if self._takes_it:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._takes_it:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: object) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
        logger.info(
            "interrupted: waiting for the answers on their way; Ctrl-C again gives them up"
        )


class RequestPool(Generic[R]):
    """One process's single requests. `failed` says, by key, why a job has no answer.

    send    turns the body of a request into the API's answer
    record  makes the records to be stored and passed on
    """

    def __init__(
        self,
        send: Send,
        model: Model,
        claims: Claims,
        record: Recorder[R],
        *,
        concurrency: int,
    ) -> None:
        self._send = send
        self._model = model
        self._claims = claims
        self._record = record
        self._budget = model.budget
        self._concurrency = concurrency
        self._attempts: Counter[str] = Counter()
        self._reserves: dict[str, float] = {}
        self._stop = threading.Event()
        self._is_silent = False  # the server, about what its answers cost
        self._last_error = ""  # that lost an answer which may have been billed
        self._n_wanted = 0
        self.failed: dict[str, str] = {}

    def run(self, jobs: Sequence[Job], ttl: str | None) -> Iterator[R]:
        """The answers as they come, each committed.

        When the work is broken off, what has been sent is paid for: its answers are waited for,
        kept and passed on before the error is raised.
        """
        self._n_wanted += len(jobs)
        waiting = deque((job, 0.0) for job in jobs)
        running: dict[Future[Message], Job] = {}
        with (
            _Interrupt() as interrupt,
            ThreadPoolExecutor(max_workers=self._concurrency) as pool,
        ):
            try:
                while running or (waiting and not interrupt.wanted):
                    if interrupt.wanted:
                        self._stop.set()
                    else:
                        self._fill(pool, waiting, running, ttl)
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield from self._finish(future, running, waiting)
                    self._note_spending()
                if interrupt.wanted:
                    raise KeyboardInterrupt
            except BaseException as error:
                self._stop.set()
                last = self._finish_all(running)
                if not isinstance(error, GeneratorExit):
                    yield from last
                raise

    def _fill(
        self,
        pool: ThreadPoolExecutor,
        waiting: deque[tuple[Job, float]],
        running: dict[Future[Message], Job],
        ttl: str | None,
    ) -> None:
        """Send what there are free workers and money for."""
        while waiting and len(running) < self._concurrency:
            job, delay = waiting[0]
            body = self._model.params(job.request, ttl)
            reserve = worst_dollars(self._model, body, ttl, batched=False)
            if not self._budget.fits([reserve]):
                if running:
                    return  # what is under way makes room when it is answered
                raise UserError(self._over_budget(reserve))
            waiting.popleft()
            if self._claims.send(
                job.key, reserve
            ):  # else this process slept, and another took over
                self._reserves[job.key] = reserve
                self._budget.reserve(job.key, reserve)
                running[pool.submit(self._ask, body, delay)] = job

    def _over_budget(self, reserve: float) -> str:
        return (
            f"{self._model.budget_setting}: {self._budget.state(self._last_error)}, and the next "
            "request may cost "
            f"${reserve:.4f}. {_STORED}; the same command with a higher cap goes on."
        )

    def _ask(self, body: Mapping[str, Any], delay: float) -> Message:
        """In a thread of its own, with no access to the store."""
        if self._stop.wait(delay) if delay else self._stop.is_set():
            raise RefusedError("interrupted before it was sent", status=429)
        check_lifeline()
        return self._send(body)

    def _finish(
        self,
        future: Future[Message],
        running: dict[Future[Message], Job],
        waiting: deque[tuple[Job, float]],
    ) -> list[R]:
        job = running[future]
        answers: list[R] = []
        if (error := future.exception()) is None:
            answers = self._keep(job, future.result())
            del running[future]
        else:
            del running[future]
            if (delay := self._retry(job, error)) is not None:
                waiting.append((job, delay))
        stop_if_many(
            self.failed, self._n_wanted, f"{_STORED}; the same command goes on."
        )
        return answers

    def _finish_all(self, running: Mapping[Future[Message], Job]) -> list[R]:
        """The answers to what cannot be called back. One that cannot be kept takes no other
        along."""
        answers: list[R] = []
        for future, job in running.items():
            try:
                if not future.cancel() and (error := future.exception()) is None:
                    answers += self._keep(job, future.result())
                elif future.cancelled():
                    self._release(job, None)
                else:
                    self._release(job, error)
            except UserError as error:
                logger.warning(
                    "warning: the answer to %s is not kept: %s", job.key, error
                )
        return answers

    def _keep(self, job: Job, message: Message) -> list[R]:
        """The answer; none where it cannot be read, and may have cost the most that was reserved
        for it."""
        prices = self._model.prices_of(self._model.model)
        try:
            completion = self._model.parse(message)
            dollars = (
                prices.dollars(completion.usage)
                if prices and completion.usage
                else None
            )
            answer = self._record(job.key, job.names, completion, dollars, message)
        except _UNREADABLE as error:
            self.failed[job.key] = (
                f"{self._model.server} answered with what cannot be read ({type(error).__name__}: "
                f"{error})"
            )
            self._claims.unsend(job.key, lost=self.failed[job.key])
            self._claims.usage.lose(self._reserves[job.key])
            return []
        answer = self._claims.keep(job.key, answer)
        if is_counted(message):
            self._budget.release(job.key)
        elif self._reserves[job.key]:
            self._claims.usage.dollars_at_most += self._reserves[job.key]
            if not self._is_silent:
                self._is_silent = True
                logger.warning("warning: %s %s", self._model.server, NOT_COUNTED)
        self._budget.spent += dollars or 0.0
        return [answer]

    def _retry(self, job: Job, error: BaseException) -> float | None:
        """After how many seconds it is asked again; None: not at all. Raises UserError where no
        other will fare better."""
        self._attempts[job.key] += 1
        n_attempts = self._attempts[job.key]
        self._release(job, error)
        if not isinstance(error, RefusedError | DoubtfulError):
            raise error
        if why := self._is_fatal(error, n_attempts):
            raise UserError(f"{why} {_STORED}.")
        is_transient = isinstance(error, DoubtfulError) or error.status in _TRANSIENT
        if not is_transient or n_attempts >= MAX_ATTEMPTS:
            self.failed[job.key] = str(error)
            return None
        asked = error.retry_after if isinstance(error, RefusedError) else None
        return (
            asked if asked is not None else _BACK_OFF_SECONDS * 2.0 ** (n_attempts - 1)
        )

    def _release(self, job: Job, error: BaseException | None) -> None:
        """The call has come to nothing; what it may have cost all the same stays in the books."""
        is_lost = isinstance(error, DoubtfulError) and error.status not in _NOT_BILLED
        if is_lost:
            self._last_error = str(error).rstrip(".")
            n = self._attempts[job.key]
            self._budget.reserve(f"{job.key} lost {n}", self._reserves[job.key])
            self._claims.usage.lose(self._reserves[job.key])
        self._budget.release(job.key)
        self._claims.unsend(job.key, lost=self._last_error if is_lost else None)

    def _is_fatal(self, error: RefusedError | DoubtfulError, n_attempts: int) -> str:
        """Why nothing more is to be had from this server; empty where more may be."""
        server = self._model.server
        status = error.status if isinstance(error, RefusedError) else None
        if status in _FATAL:
            return f"{server} refuses ({status}): {error}."
        if why := fatal_reason(server, error):
            return why
        if status == NO_CONNECTION and n_attempts >= MAX_ATTEMPTS:
            return f"{server} cannot be reached ({error})."
        return ""

    def _note_spending(self) -> None:
        if 0 < self._budget.cap < float("inf"):
            progress.note(f"{self._budget.spent_of_cap} spent")
