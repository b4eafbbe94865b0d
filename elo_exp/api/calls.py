"""Single requests, some at a time: retried, never past a cap, every answer that arrives kept.

The APIs know no idempotency: an answer that is lost on its way, or while this process is killed,
may be paid for and gone, and its request is sent again. Each call is in the store before it leaves,
so that every loss is counted at the most that it may have cost, which also stays reserved in the
budget.
"""

import logging
import threading
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Generic, Self, TypeVar

from elo_exp import interrupts, progress
from elo_exp.api.call_reserves import CallReserves
from elo_exp.api.cap_wait import CapWait
from elo_exp.api.costs import has_token_counts
from elo_exp.api.job_queue import JobQueue
from elo_exp.api.jobs import (
    Job,
    Message,
    Model,
    Recorder,
    check_failures,
    make_budget_error,
    max_cost,
)
from elo_exp.api.outages import RetryDecision, ServerWatch
from elo_exp.api.transport import (
    BUSY_STATUSES,
    NO_CONNECTION_STATUS,
    RefusedError,
    UnknownOutcomeError,
    as_subject,
    fatal_reason,
)
from elo_exp.errors import RESUME_HINT, ServerError, UserError
from elo_exp.records import Record
from elo_exp.store.caps import OverCapError
from elo_exp.store.claims import Claims
from elo_exp.store.processes import check_lifeline

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 6
_FIRST_BACK_OFF_SECONDS = 1.0
_INTERRUPT_CHECK_SECONDS = 0.2
# No other request will fare better.
_FATAL_STATUSES = {401, 402, 403, 404}
_PARSE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

R = TypeVar("R", bound=Record)


class _NotSentError(Exception):
    """The run was broken off before a request had left."""


class RequestPool(Generic[R]):
    """One process's single requests. `failed` says, by key, why a job has no answer.

    record  makes the records to be stored and passed on
    """

    def __init__(self, model: Model, claims: Claims, record: Recorder[R]) -> None:
        self._model = model
        self._claims = claims
        self._record = record
        self._budget = model.budget
        self._queue = JobQueue()
        self._running: dict[Future[Message], Job] = {}
        self._n_attempts: Counter[str] = Counter()  # in vain, as far as they count
        self._outages = ServerWatch(model, _FIRST_BACK_OFF_SECONDS)
        self._n_calls_since_answer = 0
        self._reserves = CallReserves(model, claims)
        self._cap_wait = CapWait()
        self._stop = threading.Event()
        self.failed: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._outages.close()

    def expect(self, jobs: Sequence[Job]) -> None:
        """Name the jobs of later calls of `run`: while the server does not answer, one of them may ask whether it is back,
        lest the only request at hand is what it cannot take."""
        self._queue.expect(jobs)

    def run(self, jobs: Sequence[Job], ttl: str | None) -> Generator[R]:
        """Yield the answers as they come, each committed; none of a job that has been taken from those expected.

        When the work is broken off, what has been sent is paid for: its answers are waited for,
        kept and passed on before the error is raised.
        """
        for job in jobs:
            self._queue.add(job)
        pool = ThreadPoolExecutor(max_workers=self._model.concurrency)
        with interrupts.finish_first():
            try:
                yield from self._yield_answers(pool, ttl)
                interrupts.check_interrupt()
            except BaseException as error:
                self._stop.set()
                last_answers = [] if interrupts.has_given_up() else self._finish_all()
                if not isinstance(error, GeneratorExit):
                    yield from last_answers
                raise
            finally:
                is_waited_for = not interrupts.has_given_up()
                pool.shutdown(wait=is_waited_for, cancel_futures=True)

    def _yield_answers(self, pool: ThreadPoolExecutor, ttl: str | None) -> Generator[R]:
        """Yield the answers until none is left to come, or until the run is asked to end: then those on their way."""
        while self._running or (self._queue and not interrupts.is_requested()):
            if interrupts.is_requested():
                self._stop.set()
            else:
                self._send_waiting(pool, ttl)
            if self._running:
                futures, seconds = self._running, self._seconds_to_next()
                done_futures = wait(futures, seconds, FIRST_COMPLETED).done
            else:
                done_futures = set()
                if self._queue and (seconds := self._seconds_to_next()):
                    self._stop.wait(seconds)
            for future in done_futures:
                answers = self._finish(future)
                yield from answers
                if answers and 0 < self._budget.cap < float("inf"):
                    progress.show_note(f"{self._budget.spent_of_cap} spent")

    def _send_waiting(self, pool: ThreadPoolExecutor, ttl: str | None) -> None:
        """Send the waiting requests for which there are free workers and money."""
        while (job := self._next_job()) is not None:
            body = self._model.params(job.request, ttl)
            reserve = max_cost(self._model, body, ttl, batched=False)
            if not self._budget.count_affordable([reserve]):
                if self._running:
                    return  # what is under way makes room when it is answered
                raise make_budget_error(self._model, reserve, self._reserves.last_error)
            try:
                is_sent = self._reserves.reserve(job.key, reserve)
            except OverCapError as error:
                if not self._running:
                    self._cap_wait.pause(error, self._stop)
                return
            self._queue.remove(job)
            if is_sent:
                self._outages.note_sent(job.key)
                self._running[pool.submit(self._send, body)] = job

    def _next_job(self) -> Job | None:
        """Return the waiting job that may be sent now; None if none may."""
        n = len(self._running)
        if n >= self._model.concurrency or not self._outages.may_send(n):
            return None
        if self._outages.is_server_out:
            return self._queue.find_probe(self._outages.last_probe_key)
        return self._queue.find_ready()

    def _seconds_to_next(self) -> float:
        """The seconds to wait before the next look."""
        if self._outages.is_server_out:
            left = self._outages.seconds_left()
        else:
            left = self._queue.seconds_to_next(_INTERRUPT_CHECK_SECONDS)
        # what could leave now waits for an answer, and not for a moment
        n_running = len(self._running)
        if n_running and (n_running >= self._model.concurrency or left <= 0.0):
            return _INTERRUPT_CHECK_SECONDS
        return min(max(left, 0.0), _INTERRUPT_CHECK_SECONDS)

    def _send(self, body: Mapping[str, Any]) -> Message:
        """In a thread of its own, with no access to the store."""
        if self._stop.is_set():
            raise _NotSentError("interrupted before it was sent")
        check_lifeline()
        return self._outages.send(body)

    def _finish(self, future: Future[Message]) -> list[R]:
        """Keep an answer, or have the request sent again."""
        job, error = self._running[future], future.exception()
        answers = self._keep_answer(job, future.result()) if error is None else []
        del self._running[future]  # not before it is kept
        if error is not None:
            self._retry_or_fail(job, error)
        check_failures(self.failed, self._queue.n_added)
        return answers

    def _finish_all(self) -> list[R]:
        """Return the answers to requests that cannot be called back. One that cannot be kept takes no other along."""
        answers: list[R] = []
        for future, job in self._running.items():
            try:
                if future.cancel():
                    self._reserves.release(job.key)
                elif error := future.exception():
                    self._reserves.release(job.key, error)
                else:
                    answers += self._keep_answer(job, future.result())
            except UserError as error:
                message_format = "warning: the answer to %s is not kept: %s"
                logger.warning(message_format, job.key, error)
        return answers

    def _keep_answer(self, job: Job, message: Message) -> list[R]:
        """Keep an answer and return it; return none if it cannot be read, and may have cost all that was reserved."""
        key, prices = job.key, self._model.prices_of(self._model.model)
        self._outages.note_answer(key)
        try:
            completion = self._model.parse(message)
            is_priced = prices is not None and completion.usage
            dollars = prices.dollars(completion.usage) if prices and is_priced else None
            answer = self._record(key, job.names, completion, dollars, message)
        except _PARSE_ERRORS as error:
            self.failed[key] = (
                f"{self._model.server} answered with what cannot be read ({type(error).__name__}: "
                f"{error})"
            )
            self._reserves.keep(key, self.failed[key])
            return []
        is_counted = has_token_counts(message)
        # None: no price is known, or no tokens were counted
        answer = self._claims.commit_answer(
            key, answer, dollars if is_counted else None
        )
        self._n_calls_since_answer = 0
        self._reserves.settle(key, dollars or 0.0, is_counted=is_counted)
        return [answer]

    def _retry_or_fail(self, job: Job, error: BaseException) -> None:
        """Have a request sent again later, or count it as failed. Raises ServerError where no other
        request will fare better."""
        server = self._model.server
        self._n_calls_since_answer += 1
        self._reserves.release(job.key, error)
        if isinstance(error, _NotSentError):
            self._queue.put_back(job)
            return
        if not isinstance(error, RefusedError | UnknownOutcomeError):
            raise error
        is_fatal = isinstance(error, RefusedError) and error.status in _FATAL_STATUSES
        if is_fatal and not error.is_page:
            raise ServerError(
                f"{as_subject(server)} refuses ({error.status}): {error}. {RESUME_HINT}"
            )
        if why := fatal_reason(server, error):
            raise ServerError(f"{why} {RESUME_HINT}")
        is_alone = not (self._queue or self._running or self._queue.has_expected_jobs())
        next_step = self._outages.note_failure(
            job.key, error, is_alone=is_alone, is_single=not self._running
        )
        self._n_attempts[job.key] += next_step is RetryDecision.COUNTED
        n_attempts = self._n_attempts[job.key]
        is_transient = isinstance(error, UnknownOutcomeError) or error.status in {
            NO_CONNECTION_STATUS,
            *BUSY_STATUSES,
        }
        is_given_up = next_step is RetryDecision.GIVEN_UP or n_attempts >= MAX_ATTEMPTS
        if is_given_up or not is_transient:
            self.failed[job.key] = str(error)
            return
        seconds = self._outages.seconds_left()
        if not self._outages.is_server_out:
            back_off_seconds = _FIRST_BACK_OFF_SECONDS * 2.0 ** (n_attempts - 1)
            seconds = (
                back_off_seconds if error.retry_after is None else error.retry_after
            )
        self._queue.put_back(job, seconds)
        next_attempt = (
            "one request asks again" if self._outages.is_server_out else "again"
        )
        progress.show_note(
            f"{self._no_answer_message(error)}; {next_attempt} in {seconds:.0f} s"
        )

    def _no_answer_message(self, error: RefusedError | UnknownOutcomeError) -> str:
        times = (
            "once"
            if self._n_calls_since_answer == 1
            else f"{self._n_calls_since_answer} times in a row"
        )
        status = f"{error.status}: " if error.status else ""
        reason = str(error).rstrip(".")
        return f"{self._model.server} gave no answer {times} ({status}{reason})"
