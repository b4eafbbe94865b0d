"""Single requests, some at a time: retried, never past a cap, every answer that arrives kept.

The APIs know no idempotency: an answer that is lost on its way, or while this process is killed,
may be paid for and gone, and its request is sent again. Each call is in the store before it leaves,
so that every loss is counted at the most that it may have cost, which also stays reserved in the
budget.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Generic, Self, TypeVar

from elo_exp import interrupts, progress
from elo_exp.api.costs import UNCOUNTED_COST_NOTE, has_token_counts
from elo_exp.api.jobs import (
    RESUME_HINT,
    Job,
    Message,
    Model,
    Recorder,
    check_failures,
    describe_spending,
    make_budget_error,
    make_cap_error,
    max_cost,
)
from elo_exp.api.outages import RetryDecision, ServerWatch
from elo_exp.api.transport import (
    BUSY_STATUSES,
    NO_CONNECTION_STATUS,
    RefusedError,
    UnknownOutcomeError,
    fatal_reason,
)
from elo_exp.errors import ServerError, UserError
from elo_exp.records import Record
from elo_exp.store.caps import OverCapError
from elo_exp.store.claims import CLAIM_POLL_SECONDS, Claims
from elo_exp.store.processes import check_lifeline

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 6
# A cap that has been full for so long stays full.
_MAX_FULL_CAP_SECONDS = 60.0
_FIRST_BACK_OFF_SECONDS = 1.0
_INTERRUPT_CHECK_SECONDS = 0.2
# Overloaded. A batch may have been accepted all the same: it outlives the call.
_UNBILLED_STATUSES = {529}
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
        self._usage = claims.store.usage
        self._record = record
        self._budget = model.budget
        # with the moment, by our clock, before which it does not leave
        self._waiting: deque[tuple[Job, float]] = deque()
        # Of later calls of `run`
        self._expected_jobs: deque[Job] = deque()
        self._taken_keys: set[str] = set()
        self._running: dict[Future[Message], Job] = {}
        self._n_sent: Counter[str] = Counter()  # in vain
        self._n_attempts: Counter[str] = Counter()  # of these, the ones that count
        self._outages = ServerWatch(model, _FIRST_BACK_OFF_SECONDS)
        self._n_calls_since_answer = 0
        self._reserves: dict[str, float] = {}
        self._stop = threading.Event()
        # The dollars that filled a cap of the store, and since when
        self._full_cap = (0.0, time.monotonic())
        self._has_warned = False  # of answers that do not say what they cost
        self._last_error = ""  # that lost an answer which may have been billed
        self._n_wanted = 0
        self.failed: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._outages.close()

    def expect(self, jobs: Sequence[Job]) -> None:
        """Name the jobs of later calls of `run`: while the server does not answer, one of them may ask whether it is back,
        lest the only request at hand is what it cannot take."""
        self._expected_jobs.extend(jobs)

    def run(self, jobs: Sequence[Job], ttl: str | None) -> Generator[R]:
        """Yield the answers as they come, each committed; none of a job that has been taken from those expected.

        When the work is broken off, what has been sent is paid for: its answers are waited for,
        kept and passed on before the error is raised.
        """
        for job in jobs:
            self._enqueue(job)
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
        while self._running or (self._waiting and not interrupts.is_requested()):
            if interrupts.is_requested():
                self._stop.set()
            else:
                self._send_waiting(pool, ttl)
            if self._running:
                futures, seconds = self._running, self._seconds_to_next()
                done_futures = wait(futures, seconds, FIRST_COMPLETED).done
            else:
                done_futures = set()
                if self._waiting and (seconds := self._seconds_to_next()):
                    self._stop.wait(seconds)
            for future in done_futures:
                answers = self._finish(future)
                yield from answers
                if answers and 0 < self._budget.cap < float("inf"):
                    progress.show_note(f"{self._budget.spent_of_cap} spent")

    def _enqueue(self, job: Job, *, is_first: bool = False) -> None:
        if job.key in self._taken_keys:
            return
        self._taken_keys.add(job.key)
        self._n_wanted += 1
        if is_first:
            self._waiting.appendleft((job, 0.0))
        else:
            self._waiting.append((job, 0.0))

    def _has_expected_jobs(self) -> bool:
        while self._expected_jobs and self._expected_jobs[0].key in self._taken_keys:
            self._expected_jobs.popleft()
        return bool(self._expected_jobs)

    def _send_waiting(self, pool: ThreadPoolExecutor, ttl: str | None) -> None:
        """Send the waiting requests for which there are free workers and money."""
        while (index := self._next_index()) is not None:
            job, _ = self._waiting[index]
            body = self._model.params(job.request, ttl)
            reserve = max_cost(self._model, body, ttl, batched=False)
            if not self._budget.count_affordable([reserve]):
                if self._running:
                    return  # what is under way makes room when it is answered
                raise make_budget_error(self._model, reserve, self._last_error)
            try:
                # else this process slept, and another took over
                is_sent = self._claims.record_call(job.key, reserve)
            except OverCapError as error:
                if self._running:
                    return
                self._wait_for_room(error)
                return
            del self._waiting[index]
            if is_sent:
                self._reserves[job.key] = reserve
                self._budget.reserve(job.key, reserve)
                self._outages.note_sent(job.key)
                self._running[pool.submit(self._send, body)] = job

    def _next_index(self) -> int | None:
        """Return the index of the waiting job that may be sent now; None if none may."""
        n = len(self._running)
        if n >= self._model.concurrency or not self._outages.may_send(n):
            return None
        if self._outages.is_server_out:
            return self._next_probe_index()
        now = time.monotonic()
        return next((i for i, (_, at) in enumerate(self._waiting) if at <= now), None)

    def _next_probe_index(self) -> int | None:
        """Return the index of the job that asks whether an outage is over: another than before, unless there is none."""
        asked = self._outages.last_probe_key
        while self._expected_jobs and all(job.key == asked for job, _ in self._waiting):
            self._enqueue(self._expected_jobs.popleft(), is_first=True)
        other_indices = (
            i for i, (job, _) in enumerate(self._waiting) if job.key != asked
        )
        return next(other_indices, 0 if self._waiting else None)

    def _seconds_to_next(self) -> float:
        """The seconds to wait before the next look."""
        now = time.monotonic()
        if self._outages.is_server_out:
            left = self._outages.seconds_left()
        else:
            left = min(
                (at - now for _, at in self._waiting), default=_INTERRUPT_CHECK_SECONDS
            )
        # what could leave now waits for an answer, and not for a moment
        n_running = len(self._running)
        if n_running and (n_running >= self._model.concurrency or left <= 0.0):
            return _INTERRUPT_CHECK_SECONDS
        return min(max(left, 0.0), _INTERRUPT_CHECK_SECONDS)

    def _wait_for_room(self, error: OverCapError) -> None:
        """Other processes hold the rest of a cap of the store; raises BudgetError once none of them gives any of it
        back."""
        fullest_cap, now = error.spent, time.monotonic()
        last_dollars, since = self._full_cap
        if fullest_cap.dollars != last_dollars:
            self._full_cap = fullest_cap.dollars, now
        elif now - since > _MAX_FULL_CAP_SECONDS:
            raise make_cap_error(fullest_cap, error.dollars)
        if fullest_cap.reserved < 1e-9:
            raise make_cap_error(fullest_cap, error.dollars)
        progress.show_note(
            f"{fullest_cap.setting}: {describe_spending(fullest_cap)}; waiting for room"
        )
        self._stop.wait(CLAIM_POLL_SECONDS)

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
        check_failures(self.failed, self._n_wanted)
        return answers

    def _finish_all(self) -> list[R]:
        """Return the answers to requests that cannot be called back. One that cannot be kept takes no other along."""
        answers: list[R] = []
        for future, job in self._running.items():
            try:
                if future.cancel():
                    self._release_call(job)
                elif error := future.exception():
                    self._release_call(job, error)
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
            self._claims.end_call(key, lost=self.failed[key])
            self._usage.add_lost_calls(self._reserves[key])
            return []
        # None: no price is known, or no tokens were counted
        answer = self._claims.commit_answer(
            key, answer, dollars if has_token_counts(message) else None
        )
        self._n_calls_since_answer = 0
        self._budget.spent += dollars or 0.0
        if has_token_counts(message):
            self._budget.release(key)
        elif self._reserves[key]:
            self._usage.dollars_at_most += self._reserves[key]
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "warning: %s %s", self._model.server, UNCOUNTED_COST_NOTE
                )
        return [answer]

    def _retry_or_fail(self, job: Job, error: BaseException) -> None:
        """Have a request sent again later, or count it as failed. Raises ServerError where no other
        request will fare better."""
        self._n_sent[job.key] += 1
        server = self._model.server
        self._n_calls_since_answer += 1
        self._release_call(job, error)
        if isinstance(error, _NotSentError):
            self._waiting.append((job, 0.0))
            return
        if not isinstance(error, RefusedError | UnknownOutcomeError):
            raise error
        if isinstance(error, RefusedError) and error.status in _FATAL_STATUSES:
            raise ServerError(
                f"{server} refuses ({error.status}): {error}. {RESUME_HINT}"
            )
        if why := fatal_reason(server, error):
            raise ServerError(f"{why} {RESUME_HINT}")
        is_alone = not (self._waiting or self._running or self._has_expected_jobs())
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
        self._waiting.append((job, time.monotonic() + seconds))
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

    def _release_call(self, job: Job, error: BaseException | None = None) -> None:
        """End a call that has come to nothing. If it may have been billed, its cost stays counted."""
        is_lost = (
            isinstance(error, UnknownOutcomeError)
            and error.status not in _UNBILLED_STATUSES
        )
        if is_lost:
            self._last_error = str(error).rstrip(".")
            reserve = self._reserves[job.key]
            name = f"{job.key} lost {self._n_sent[job.key]}"
            self._budget.reserve(name, reserve)
            self._usage.add_lost_calls(reserve)
        self._budget.release(job.key)
        self._claims.end_call(job.key, lost=self._last_error if is_lost else None)
