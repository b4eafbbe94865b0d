"""Requests answered in batches: submit, wait, retry; nothing is paid twice, nothing past the cap.

The Batcher owns ledger, budget, clock and polling. A provider gives it three hooks (create, check,
results) and a list of recent batches; a model gives it params and parse. Before a batch leaves, the
ledger knows of it. Where the server's answer is lost, the batch is looked for, and none of its
requests is submitted again until it is found or can no longer arrive.
"""

import logging
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeVar
from urllib.parse import urlsplit

from elo_exp import interrupts, progress
from elo_exp.api.costs import UNCOUNTED_COST_NOTE, count_fitting, has_token_counts
from elo_exp.api.jobs import (
    RESUME_HINT,
    Api,
    Completion,
    Job,
    Message,
    Model,
    Recorder,
    check_failures,
    make_budget_error,
    make_cap_error,
    max_cost,
)
from elo_exp.api.outages import MIN_UNANSWERED_FOR_OUTAGE, make_outage_error
from elo_exp.api.transport import (
    BUSY_STATUSES,
    NO_CONNECTION_STATUS,
    CallError,
    Clock,
    RefusedError,
    UnknownOutcomeError,
    UnreachableError,
    fatal_reason,
    out_of_credit,
)
from elo_exp.errors import ServerError, SettingError, UserError
from elo_exp.records import Record, storable_json
from elo_exp.store.caps import OverCapError
from elo_exp.store.ledger import (
    CANCELLED_NOTE,
    CONFIRMED_ACCOUNT,
    Batch,
    Ledger,
    same_account,
)
from elo_exp.store.processes import check_lifeline

logger = logging.getLogger(__name__)

MAX_RETRIES_PER_REQUEST = 3
# Failures that may pass
_TRANSIENT_OUTCOMES = {
    "expired",
    "canceled",
    "api_error",
    "overloaded_error",
    "rate_limit_error",
    "timeout_error",
}
_ROWS_PER_TRANSACTION = 256
# Of a results file that is cut short
_MAX_RESULT_READS = 5
_MAX_VAIN_CHECKS = 10
# A single request waits this often for room at the server.
_MAX_CAPACITY_RETRIES = 9
_RATE_LIMIT, _TOO_LARGE = 429, 413
_MAX_CONSECUTIVE_LOST_SUBMISSIONS = 5
# Until the server has noticed that a submission has passed its deadline
_SUBMISSION_SLACK_SECONDS = 60.0
_EXPIRY_GRACE_SECONDS = 3600.0
_PARSE_ERRORS = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError),
    ValueError,
)
# Older batches than so many that the store knows are not lost any more.
_MAX_KNOWN_BATCHES_LISTED = 20
# To see whose they are, before a run
_MAX_UNKNOWN_BATCHES_READ = 20
_NONCE_PATTERN = re.compile(r"[abcdf][0-9a-f]{7}")
_MAX_NAMED_ROWS = 3

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBatch:
    """A batch as the server describes it.

    size              None while the server does not say
    n_rows            how many rows the results must have
    rest              the outcome of the requests without a row: expired, canceled, ...; None: each has one
    refusal           why the server, which had accepted the batch, has begun none of it
    nonce             where the server repeats it before the end
    archived          its results are no longer kept
    results_url       where they are, once it has ended, where the server says so
    lifetime_seconds  from its creation to its expiry, both by the server's clock
    """

    batch_id: str
    size: int | None
    is_ended: bool
    n_rows: int
    missing_outcome: str | None = None
    refusal: RefusedError | None = None
    nonce: str | None = None
    is_archived: bool = False
    results_url: str | None = None
    lifetime_seconds: float = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """The result of one request.

    outcome          succeeded, expired, canceled, the type of an error, or None: not understood
    possibly_billed  it should have been a success, and holds no message
    """

    custom_id: str
    outcome: str | None
    detail: str = ""
    message: Message | None = None
    possibly_billed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadablePart:
    """A part of the results that is no result of a request.

    place  such as "line 17"
    why    continues a sentence about it
    """

    location: str
    reason: str


@dataclass(frozen=True, slots=True)
class Login:
    """Who asks a server.

    organization  that its answers have named so far; None if they named none
    """

    key: str
    organization: str | None


class BatchApi(Api, Protocol):
    """A server of batches. Every question may raise UnreachableError, or UserError where the server
    refuses it.

    is_ordered       whether it lists its batches by their age
    timeout_seconds  after which a submission without an answer is given up
    """

    is_ordered: bool
    timeout_seconds: float

    def create(self, nonce: str, requests: Mapping[str, Mapping[str, Any]]) -> str:
        """Submit requests by their custom ids; return the batch's id. Raises RefusedError or
        DoubtfulError, and never submits a second time by itself."""

    def check(self, batch_id: str) -> RemoteBatch | None:
        """Return the batch as it stands; None where the server knows of no such batch."""

    def results(self, batch: RemoteBatch) -> Iterator[ResultRow | UnreadablePart]:
        """Yield the results in any order, and what stands among them that is none. Raises UnreachableError behind those
        that came if some that the server has are missing."""

    def first_id(self, batch: RemoteBatch) -> str | None:
        """Return the custom id of one of the results of a batch that has ended; None if there is none. It reads no more
        of them than it has to."""

    def recent(self) -> Iterator[RemoteBatch]:
        """Yield all batches, newest first where `is_ordered`."""

    def login(self) -> Login:
        """Return who asks."""

    def cancel(self, batch_id: str) -> bool:
        """Request a batch's end; False where it had ended, or is unknown."""


@dataclass(kw_only=True)
class BatchSettings:
    chunk_size: int
    poll_initial_seconds: float
    poll_max_seconds: float
    quarantine_seconds: float


def check_quarantine(seconds: float, api: BatchApi) -> None:
    """Raise UserError where a submission could still be accepted after it was given up; a test
    server is excepted."""
    min_seconds = api.timeout_seconds + _SUBMISSION_SLACK_SECONDS
    is_local = urlsplit(api.endpoint).hostname in ("127.0.0.1", "localhost")
    if seconds < min_seconds and not is_local:
        raise SettingError(
            f"quarantine_seconds: found {seconds:g}. Expected {min_seconds:g} or more: until then the "
            "server may accept what would then be paid again."
        )


class BatchModel(Model, Protocol):
    api: BatchApi
    batch_settings: BatchSettings


@dataclass(kw_only=True)
class _OpenBatch:
    """A batch of this process whose results are still to come.

    names   of its requests, by key
    is_own  submitted by this process, and not taken over
    since   when the answer to its submission was lost, or when it was taken over, by our clock
    doubt   why the answer to its submission was lost
    """

    batch: Batch
    names: Mapping[str, Mapping[str, Any]]
    is_own: bool
    since: float
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result(Generic[R]):
    """A row, and the record of its answer with what it has cost; None if it has no answer."""

    row: ResultRow
    answer: R | None = None
    dollars: float = 0.0


class Batcher(Generic[R]):
    """One process's batches. `failed` says, by key, why a job has no answer; `hits`, whether an
    answer read its prefix from the prompt cache.

    record  makes the records to be stored and passed on
    jobs    by key: all that this process has claimed
    check   raises UserError where no more is to be paid for; asked after each poll, when every result
            that could be read is stored
    """

    def __init__(
        self,
        model: BatchModel,
        ledger: Ledger,
        record: Recorder[R],
        jobs: Mapping[str, Job],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._api = model.api
        self._settings = model.batch_settings
        self._budget = model.budget
        self._model = model
        self._ledger = ledger
        self._usage = ledger.store.usage
        self._record = record
        self._jobs = jobs
        self._check_answers = check
        self._clock = Clock()
        self._queue: deque[Job] = deque()
        # By nonce
        self._open_batches: dict[str, _OpenBatch] = {}
        # batches at the server, behind the nonce of the submission that they are not
        self._foreign_batches: set[tuple[str, str]] = set()
        # nonces of batches at the server, by its id, as their results have them
        self._nonces: dict[str, str] = {}
        self._n_vain_checks: Counter[str] = Counter()  # by the server's id
        self._n_attempts: Counter[str] = Counter()  # by key
        # submissions in a row that did not arrive
        self._n_lost, self._last_doubt = 0, ""
        self._answered_keys: set[str] = set()
        self._chunk_size = self._settings.chunk_size
        # If there is no room at the server, one batch is sent at a time until one has ended.
        self._is_server_full = False
        self._n_capacity_retries = 0
        self._poll_seconds = self._settings.poll_initial_seconds
        self._not_before = 0.0  # the server has asked to wait until then
        self._started_at = self._clock.elapsed()
        # since when the server has given no answer, and since when it has refused every submission, by our clock
        self._silent_since: float | None = None
        self._refused_since: float | None = None
        self._wait_seconds = 0.0  # that the server asks to wait before the next look
        self._last_error = ""  # that left a cost open
        self._has_warned = False  # of answers that do not say what they cost
        # Found while draining
        self._unknown_submissions: list[UserError] = []
        self._is_draining = False
        self.failed: dict[str, str] = {}
        self.hits: dict[str, bool] = {}
        for batch in ledger.list_own_open_batches():  # taken over from dead processes
            if batch.endpoint == self._api.endpoint:
                self._track(batch)

    def __enter__(self) -> Self:
        """Until the end of the context, a request to end the run waits until a submission is answered and the rows that
        came are stored."""
        self._interrupt_section = ExitStack()
        self._interrupt_section.enter_context(interrupts.finish_first())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._warn_about_open_batches()
        self._interrupt_section.close()

    def _warn_about_open_batches(self) -> None:
        if self._open_batches:
            logger.warning(
                "warning: %d batches stay under way on the server. The same command collects "
                "them; to end them: experiment=store store.action=cancel",
                len(self._open_batches),
            )

    def run(self, jobs: Sequence[Job], ttl: str | None) -> Generator[R]:
        """Yield the answers to these jobs as they come, each committed, and those of batches that
        were taken over. When it ends, no job is queued or in a batch of this process; a job may be
        in another's.

        ttl  of the prompt cache; None: no breakpoint
        """
        done = (
            self._ledger.list_pending_keys() | self._answered_keys | self.failed.keys()
        )
        done.update(job.key for job in self._queue)
        self._queue.extend(job for job in jobs if job.key not in done)
        wanted = {job.key for job in jobs}
        while not wanted.isdisjoint(self._list_unfinished_keys()):
            is_checked = not self._queue or self._check_server_batches()
            while is_checked and not interrupts.is_requested() and self._submit(ttl):
                self._poll_seconds = self._settings.poll_initial_seconds
            yield from self._poll()

    def drain(self) -> Generator[R]:
        """Wait for the batches under way; submit nothing. Raises UserError, when all else is done, for submissions of
        which nobody knows whether they have arrived."""
        self._is_draining = True
        while self._open_batches:
            yield from self._poll()
        if self._unknown_submissions:
            raise self._unknown_submissions[0]

    def _check_server_batches(self) -> bool:
        """Look at the server's batches before a run submits anything, which costs nothing: a submission of an earlier run
        may not have arrived, and the store may have lost one that has. False if the server gives no answer.

        Raises UserError if nobody can know what has become of a submission of these jobs.
        """
        if self._api.endpoint in self._ledger.store.checked_endpoints:
            return True
        try:
            for opened in list(self._open_batches.values()):
                account = self._ledger.find_account(opened.batch)
                is_lost = opened.batch.batch_id is None
                if is_lost and self._account_problem(account):
                    for _ in self._recover(opened):
                        pass  # such a batch is never abandoned
            self.recover()
        except UnreachableError as error:
            self._note_unreachable(error)
            return False
        self._note_answer()
        self._ledger.store.checked_endpoints.add(self._api.endpoint)
        open_keys = {
            key for opened in self._open_batches.values() for key in opened.names
        }
        self._queue = deque(job for job in self._queue if job.key not in open_keys)
        return True

    def _list_unfinished_keys(self) -> set[str]:
        queued = {job.key for job in self._queue}
        return queued.union(*(opened.names for opened in self._open_batches.values()))

    # ---- submitting

    def _submit(self, ttl: str | None) -> bool:
        """Submit the first jobs of the queue; False where none of them has left."""
        has_to_wait = self._is_server_full and bool(self._open_batches)
        if self._clock.elapsed() < self._not_before or has_to_wait or not self._queue:
            return False
        check_lifeline()
        jobs = list(islice(self._queue, self._chunk_size))
        bodies = [self._model.params(job.request, ttl) for job in jobs]
        max_costs = [max_cost(self._model, body, ttl, batched=True) for body in bodies]
        n = self._n_affordable(max_costs)
        if n < len(jobs) and self._open_batches:
            return False  # what is under way makes room when it is settled
        try:
            newest = next(self._api.recent(), None) if self._api.is_ordered else None
        except UnreachableError as error:
            self._note_unreachable(error)
            return False
        self._note_answer()
        try:
            batch = self._ledger.record_intent(
                {job.key: job.names for job in jobs[:n]},
                max_costs,
                endpoint=self._api.endpoint,
                judge_model=self._model.model,
                ttl=ttl,
                high_water=newest.batch_id if newest else None,
                now=self._clock.wall(),
                account=self._account_hash(),
            )
        except OverCapError:  # another process has come between
            batch = None
        if batch is None:
            return False
        sent_jobs = [self._queue.popleft() for _ in range(batch.size)]
        opened = self._track(batch, is_own=True)
        ids = [batch.custom_id(job.key) for job in sent_jobs]
        try:
            batch_id = self._api.create(
                batch.nonce, dict(zip(ids, bodies, strict=False))
            )
        except RefusedError as refusal:
            self._abandon(opened, str(refusal))
            self._queue.extendleft(reversed(sent_jobs))
            self._adapt_to_refusal(refusal, batch.size)
            self._note_refused(refusal)
            return False
        except UnknownOutcomeError as doubt:
            if doubt.is_page:
                raise ServerError(f"{doubt}. {RESUME_HINT}") from None
            logger.warning(
                "warning: no answer to a submission of %d requests (%s): looking for it",
                batch.size,
                doubt,
            )
            opened.since, opened.doubt = self._clock.elapsed(), str(doubt)
        else:
            self._mark_submitted(opened, batch_id)
        return True

    def _account_hash(self) -> str:
        login = self._api.login()
        return self._ledger.store.account_hash(login.key, login.organization)

    def _n_affordable(self, max_costs: Sequence[float]) -> int:
        """Return how many of these requests, from the first, the caps have room for. Raises UserError if there is room for
        none, and nothing that is under way here will make room."""
        n, fullest_cap = (
            self._budget.count_affordable(max_costs),
            self._ledger.store.find_tightest_cap(),
        )
        n_within_caps = (
            len(max_costs)
            if fullest_cap is None
            else count_fitting(max_costs, fullest_cap.remaining)
        )
        if self._open_batches or min(n, n_within_caps):
            return min(n, n_within_caps)
        if fullest_cap is not None and n:
            raise make_cap_error(fullest_cap, max_costs[0])
        raise make_budget_error(self._model, max_costs[0], self._last_error)

    def _requeue_refused(self, opened: _OpenBatch, refusal: RefusedError) -> None:
        """Queue the requests of a batch again that the server has accepted and then not begun, or raise UserError.

        If there was no room for it, it waits until another of ours has ended; if there is no other, it is halved.
        """
        size = opened.batch.size
        self._ledger.mark_refused(opened.batch, str(refusal))
        self._close(opened)
        own_jobs = [self._jobs[key] for key in opened.names if key in self._jobs]
        self._queue.extendleft(reversed(own_jobs))
        self._is_server_full = refusal.status == _RATE_LIMIT
        if not self._is_server_full:
            self._adapt_to_refusal(refusal, size)
        elif self._open_batches:
            logger.info(
                "the server has no room for %d requests yet (%s)", size, refusal
            )
        elif size > 1:
            size_refusal = RefusedError(str(refusal), status=_TOO_LARGE)
            self._adapt_to_refusal(size_refusal, size)
        elif self._n_capacity_retries < _MAX_CAPACITY_RETRIES:
            self._n_capacity_retries += 1
            wait = self._settings.poll_max_seconds
            retry_refusal = RefusedError(
                str(refusal), status=_RATE_LIMIT, retry_after=wait
            )
            self._adapt_to_refusal(retry_refusal, size)
        else:
            raise ServerError(
                f"{self._model.server} has no room for a single request: {refusal}. {RESUME_HINT}"
            )

    def _adapt_to_refusal(self, refusal: RefusedError, size: int) -> None:
        """Go on with smaller batches or later, or raise UserError."""
        if why := fatal_reason(self._model.server, refusal):
            raise ServerError(f"{why} {RESUME_HINT}")
        if refusal.status == _TOO_LARGE and size > 1:
            self._chunk_size = size // 2
            text = "the server takes no batch of %d requests; going on with %d"
            logger.info(text, size, self._chunk_size)
        elif refusal.status == NO_CONNECTION_STATUS:
            self._note_unreachable(refusal)
        elif refusal.status == _RATE_LIMIT:
            wait = refusal.retry_after or self._settings.poll_initial_seconds
            self._not_before = self._clock.elapsed() + wait
            logger.info("the server asks to wait %.0f s before the next batch", wait)
        else:
            raise ServerError(
                f"{self._model.server} refuses the batch ({refusal.status}): {refusal}. {RESUME_HINT}"
            )

    def _note_unreachable(self, error: CallError) -> None:
        """Raise UserError once the server has given no answer for too long, or where it will give none."""
        if why := fatal_reason(self._model.server, error):
            raise ServerError(f"{why} {RESUME_HINT}")
        now = self._clock.elapsed()
        since = self._silent_since = (
            now if self._silent_since is None else self._silent_since
        )
        self._stop_after_waiting(since, error)
        self._wait_seconds = max(self._wait_seconds, error.retry_after or 0.0)
        progress.show_note(
            f"{self._api.endpoint} cannot be reached ({error}); trying again"
        )

    def _note_answer(self) -> None:
        self._silent_since, self._wait_seconds = None, 0.0

    def _note_refused(self, refusal: RefusedError) -> None:
        """Raise UserError once the server has refused every submission for too long, while no batch of ours makes room."""
        if refusal.status != _RATE_LIMIT or self._open_batches:
            self._refused_since = None
            return
        now = self._clock.elapsed()
        since = self._refused_since = (
            now if self._refused_since is None else self._refused_since
        )
        self._stop_after_waiting(since, refusal)

    def _stop_after_waiting(self, since: float, error: CallError) -> None:
        limit = 60.0 * self._model.wait_minutes
        seconds_left = since + limit - self._clock.elapsed()
        if seconds_left <= 0.0 or (error.retry_after or 0.0) > seconds_left:
            raise make_outage_error(self._api.endpoint, error, limit, seconds_left)

    def _track(self, batch: Batch, *, is_own: bool = False) -> _OpenBatch:
        opened = self._open_batches[batch.nonce] = _OpenBatch(
            batch=batch,
            names=self._ledger.read_request_names(batch),
            is_own=is_own,
            since=self._clock.elapsed(),
        )
        self._budget.reserve(batch.nonce, batch.reserve)
        return opened

    def _mark_submitted(self, opened: _OpenBatch, batch_id: str) -> None:
        self._ledger.mark_submitted(opened.batch, batch_id)
        opened.batch = replace(opened.batch, state="submitted", batch_id=batch_id)
        opened.since = self._clock.elapsed()
        self._n_lost = 0
        self._refused_since = None

    def _abandon(self, opened: _OpenBatch, why: str) -> bool:
        """Give up what the server certainly does not have. False where another process has taken it
        over meanwhile."""
        self._close(opened)
        return self._ledger.abandon(opened.batch, why)

    def _close(self, opened: _OpenBatch) -> None:
        self._open_batches.pop(opened.batch.nonce)
        self._budget.release(opened.batch.nonce)

    # ---- waiting

    def _poll(self) -> Iterator[R]:
        """Check every open batch once and pass on the answers; wait where nothing has changed."""
        open_before = set(self._open_batches)
        stop_errors: list[UserError] = []  # raised when every batch has been looked at
        credit_error = yield from self._poll_open_batches(stop_errors)
        if stop_errors:
            raise stop_errors[0]
        if credit_error:  # only now, when every result has been stored
            server = self._model.server
            raise ServerError(
                f"the account at {server} has run dry ({credit_error}). {RESUME_HINT}"
            )
        if self._n_lost >= _MAX_CONSECUTIVE_LOST_SUBMISSIONS:
            raise ServerError(
                f"{self._n_lost} submissions in a row to {self._api.endpoint} got no answer and "
                f"did not arrive; the last error: {self._last_doubt}. Is a login page or a proxy "
                f"in between? {RESUME_HINT}"
            )
        check_failures(self.failed, len(self._jobs))
        try:
            self._check_answers()
        except UserError:
            self._warn_about_open_batches()
            raise
        if set(self._open_batches) == open_before and (open_before or self._queue):
            n_requests = sum(
                opened.batch.size for opened in self._open_batches.values()
            )
            minutes = (self._clock.elapsed() - self._started_at) / 60
            progress.show_note(
                f"{n_requests:,} requests under way in {len(self._open_batches)} "
                f"batch{'es' * (len(self._open_batches) != 1)}, {len(self._queue):,} to submit; "
                f"{minutes:.0f} min, {self._budget.spent_of_cap} spent"
            )
            jitter = random.uniform(0.8, 1.2)  # clients out of step
            seconds = max(self._poll_seconds * jitter, self._wait_seconds)
            if self._silent_since is not None:
                end = self._silent_since + 60.0 * self._model.wait_minutes
                seconds = max(0.0, min(seconds, end - self._clock.elapsed()))
            self._clock.sleep(seconds)
            interrupts.check_interrupt()
            self._poll_seconds = min(
                self._poll_seconds * 1.5, self._settings.poll_max_seconds
            )

    def _poll_open_batches(
        self, stop_errors: list[UserError]
    ) -> Generator[R, None, str]:
        """Yield the answers of the batches that have ended; return the error that says that the account is empty.

        A server that refuses everybody, or says nothing of three batches in a row, is not asked about the rest now.

        stop_errors  grows by the errors that end the run
        """
        credit_error, n_silent = "", 0
        for opened in list(self._open_batches.values()):
            interrupts.check_interrupt()
            is_known = opened.batch.batch_id is not None
            results = self._collect(opened) if is_known else self._recover(opened)
            try:
                for key, result in results:
                    if isinstance(result, ResultRow):
                        credit_error = (
                            self._retry_or_fail(opened, key, result) or credit_error
                        )
                        continue
                    self._answered_keys.add(key)
                    if key in self._jobs:  # a batch that was taken over may hold others
                        yield result
                self._note_answer()
                n_silent = 0
            except UnreachableError as error:
                n_silent = (
                    MIN_UNANSWERED_FOR_OUTAGE
                    if error.status in BUSY_STATUSES
                    else n_silent + 1
                )
                if (nonce := opened.batch.nonce) in self._open_batches:
                    # the next look begins with another, lest this one keeps it from being asked
                    self._open_batches[nonce] = self._open_batches.pop(nonce)
                try:
                    self._note_unreachable(error)
                except UserError as stop_error:
                    stop_errors.append(stop_error)
                    break
                if n_silent >= MIN_UNANSWERED_FOR_OUTAGE:
                    break
            except UserError as error:
                stop_errors.append(error)
        return credit_error

    def _retry_or_fail(self, opened: _OpenBatch, key: str, row: ResultRow) -> str:
        """Queue a request again, or count it as failed. Return the error where it says that the
        account has no money left."""
        if (job := self._jobs.get(key)) is None:
            return ""
        is_from_other_process = not opened.is_own and row.outcome != CANCELLED_NOTE
        if row.outcome is None or is_from_other_process:  # not tried yet in this run
            self._queue.append(job)
            return ""
        cause = f"{row.outcome}: {row.detail}" if row.detail else row.outcome
        if row.possibly_billed:
            self._last_error = cause
        self._n_attempts[key] += 1
        if (
            row.outcome in _TRANSIENT_OUTCOMES
            and self._n_attempts[key] <= MAX_RETRIES_PER_REQUEST
        ):
            self._queue.append(job)
        else:
            self.failed[key] = cause
        return cause if out_of_credit(row.outcome, row.detail) else ""

    # ---- a submission without an answer

    def _recover(self, opened: _OpenBatch) -> Iterator[tuple[str, ResultRow]]:
        """Find it by its size and prove it by its nonce; or know that it can no longer arrive."""
        # before the search, which takes time
        seconds_waited = self._clock.elapsed() - opened.since
        is_undecided, is_reached = self._search(opened)
        is_quarantine_over = seconds_waited > self._settings.quarantine_seconds
        if opened.batch.batch_id is not None or is_undecided:
            return
        if why := self._account_problem(self._ledger.find_account(opened.batch)):
            self._stop_at_unknown_submission(opened, why, can_confirm=True)
            return
        if not is_quarantine_over:
            return
        if not is_reached:
            why = "the server's list no longer has the batch that was the newest before it"
            self._stop_at_unknown_submission(opened, why, can_confirm=False)
            return
        why = "not accepted: it did not turn up within the quarantine"
        if self._abandon(opened, why):
            logger.info("a submission of %d requests did not arrive", opened.batch.size)
            if opened.is_own:
                self._n_lost, self._last_doubt = self._n_lost + 1, opened.doubt
            for key in opened.names:
                yield key, ResultRow(custom_id=key, outcome=None)

    def _account_problem(self, account: str | None) -> str:
        """Why the list of batches that this key sees cannot deny a submission; empty if it can."""
        if account is None:
            return (
                "it was noted by an older version, without the account that it went to"
            )
        if account == CONFIRMED_ACCOUNT or same_account(account, self._account_hash()):
            return ""
        return "it was submitted with another key, whose batches this key may not see"

    def _stop_at_unknown_submission(
        self, opened: _OpenBatch, why: str, *, can_confirm: bool
    ) -> None:
        """Go no further where nobody knows whether the server has a submission: raise UserError if its requests are wanted,
        or all batches are waited for; else leave it to whoever wants them."""
        batch = opened.batch
        confirm = (
            "If the key now used is of the same account (of the same workspace or project): experiment=store "
            f"store.action=confirm store.batch={batch.nonce} . "
        )
        problem = ServerError(
            f"nobody knows whether {batch.endpoint} has {batch.nonce}, a submission of {batch.size:,} requests that got no "
            f"answer: {why}. It is not submitted again, and the same command with the earlier key finds it. "
            f"{confirm * can_confirm}{_repay_hint(batch)}"
        )
        self._close(opened)
        if self._is_draining and not self._jobs:
            self._unknown_submissions.append(problem)
        elif self._jobs.keys().isdisjoint(opened.names):
            logger.warning("warning: %s", problem)
        else:
            raise problem

    def _search(self, opened: _OpenBatch) -> tuple[bool, bool]:
        """Look through the server's batches. Return whether one is still running that may be it, and whether the list
        reaches back to when it was submitted."""
        batch, is_undecided = opened.batch, False
        is_reached = batch.high_water is None
        known_ids = {
            other_batch.batch_id
            for other_batch in self._ledger.batches()
            if other_batch.endpoint == batch.endpoint
        }
        known_ids.update(
            id_ for nonce, id_ in self._foreign_batches if nonce == batch.nonce
        )
        for remote in self._api.recent():
            if remote.batch_id == batch.high_water:
                is_reached = True
                break
            if remote.size not in (None, batch.size) or remote.batch_id in known_ids:
                continue
            if remote.is_archived:
                raise ServerError(
                    f"batch {remote.batch_id} may be a submission of {batch.size} requests that "
                    "got no answer, but its results are no longer kept by the server. "
                    f"{_repay_hint(batch)}"
                )
            if remote.nonce is None and not remote.is_ended:
                is_undecided = True
            elif not self._is_ours(batch, remote):
                self._foreign_batches.add((batch.nonce, remote.batch_id))
            elif opened.batch.batch_id is None:
                logger.info(
                    "found the batch whose submission got no answer: %s",
                    remote.batch_id,
                )
                self._mark_submitted(opened, remote.batch_id)
            else:
                self._report_duplicate(batch, remote)
        return is_undecided, is_reached

    def _is_ours(self, batch: Batch, remote: RemoteBatch) -> bool:
        """Return whether a batch is the one submitted, by its nonce, which the server or the results repeat. Only all
        results can deny it."""
        if remote.nonce is not None:
            return remote.nonce == batch.nonce
        foreign_ids: set[str] = set()
        n_unreadable = 0
        for row in self._api.results(remote):
            if isinstance(row, UnreadablePart):
                n_unreadable += 1
                continue
            if row.custom_id.startswith(batch.custom_id("")):
                return True
            foreign_ids.add(row.custom_id)
        is_whole = len(foreign_ids) + n_unreadable >= remote.n_rows
        if is_whole and n_unreadable <= len(foreign_ids):
            return False
        problem = f"the results of batch {remote.batch_id} are cut short, and show not whose it is"
        if self._count_vain_check(remote.batch_id):
            raise ServerError(
                f"{problem}. Nothing is submitted again; the same command reads them again. {_repay_hint(batch)}"
            )
        raise UnreachableError(problem)

    def _count_vain_check(self, batch_id: str) -> bool:
        """Count a check of a batch that showed nothing; return whether it was the last."""
        self._n_vain_checks[batch_id] += 1
        return self._n_vain_checks[batch_id] >= _MAX_VAIN_CHECKS

    def _report_duplicate(self, batch: Batch, remote: RemoteBatch) -> None:
        """Report a submission that the server has accepted twice: keep the first, and count the loss."""
        self._foreign_batches.add((batch.nonce, remote.batch_id))
        rows = [row for row in self._api.results(remote) if isinstance(row, ResultRow)]
        messages = [row.message for row in rows if row.message is not None]
        lost_dollars = sum(
            self._price_completion(batch, self._model.parse(message))
            for message in messages
        )
        self._budget.spent += lost_dollars
        self._usage.add_payment(lost_dollars)
        self._ledger.pay(batch, lost_dollars)
        logger.warning(
            "warning: the server has taken a submission of ours twice: %s is the copy, and $%.4f "
            "are lost",
            remote.batch_id,
            lost_dollars,
        )

    def _price_completion(self, batch: Batch, completion: Completion) -> float:
        prices = self._model.prices_of(batch.judge_model)
        return prices.dollars(completion.usage, batched=True) if prices else 0.0

    # ---- a batch that the store has lost

    def recover(self, *, is_asked: bool = False) -> int:
        """Take over the batches that this store has submitted and does not know any more: its last commits were lost, or it
        was brought back from a copy. Return how many.

        is_asked  those of other stores of this account are taken, too, however far back, and batches are waited for of
                  which their end alone shows whose they are
        """
        n, has_gone_back = 0, self._ledger.store.has_lost_answers
        while True:
            ended_batches, running = self._find_lost(is_asked=is_asked)
            for nonce, remote in ended_batches.items():
                n += self._adopt(nonce, remote)
            is_certain = any(remote.nonce for remote in running)
            if not running or not (is_asked or is_certain or has_gone_back):
                break
            progress.show_note(
                f"{len(running)} batches are under way at {self._api.endpoint} that may be ours, and that this store does "
                "not know: waiting until they have ended"
            )
            self._clock.sleep(self._poll_seconds)
            interrupts.check_interrupt()
        if running:
            logger.warning(
                "warning: %s has %d batches under way that this store does not know. If it was brought back from a copy, "
                "they may be its own: experiment=store store.action=recover waits for them, and pays nothing",
                self._api.endpoint,
                len(running),
            )
        return n

    def _find_lost(
        self, *, is_asked: bool
    ) -> tuple[dict[str, RemoteBatch], list[RemoteBatch]]:
        """The batches of ours that have ended and are not known, by nonce; and those that run and may be ours."""
        own_batches = [
            b for b in self._ledger.batches() if b.endpoint == self._api.endpoint
        ]
        ids = {batch.batch_id for batch in own_batches}
        nonces = {batch.nonce: batch for batch in own_batches}
        ended_batches: dict[str, RemoteBatch] = {}
        running: list[RemoteBatch] = []
        n_known = n_read = 0
        for listed_batch in self._api.recent():
            is_far_enough = (
                n_known >= _MAX_KNOWN_BATCHES_LISTED
                or n_read >= _MAX_UNKNOWN_BATCHES_READ
            )
            if is_far_enough and self._api.is_ordered and not is_asked:
                break
            if listed_batch.batch_id in ids or listed_batch.is_archived:
                n_known += listed_batch.batch_id in ids
                continue
            remote, nonce = listed_batch, listed_batch.nonce
            if not remote.is_ended and nonce not in nonces:
                remote = self._api.check(remote.batch_id) or remote
            if nonce is None:
                n_read += 1
                nonce = self._read_nonce(remote) if remote.is_ended else None
            if nonce in nonces and not _is_given_up(nonces[nonce]):
                continue
            is_foreign = nonce not in nonces and not self._is_of_store(nonce, is_asked)
            if nonce is not None and is_foreign:
                continue
            if not remote.is_ended:
                running.append(remote)
            elif nonce is not None and remote.refusal is None:
                ended_batches[nonce] = remote
        return ended_batches, running

    def _read_nonce(self, remote: RemoteBatch) -> str | None:
        """Return the nonce in the results of a batch; None if they show none."""
        if remote.batch_id not in self._nonces:
            try:
                name = self._api.first_id(remote)
            except UserError:  # nobody else's batch stops a run
                name = None
            except UnreachableError:
                if not self._count_vain_check(remote.batch_id):
                    raise
                name = None
            self._nonces[remote.batch_id] = name.partition("-")[0] if name else ""
        return self._nonces[remote.batch_id]

    def _is_of_store(self, nonce: str | None, is_asked: bool) -> bool:
        """Whether a nonce is one of this store's; if asked for, of any store's."""
        if not nonce or not _NONCE_PATTERN.fullmatch(nonce):
            return False
        return is_asked or nonce.endswith(self._ledger.store.nonce_suffix)

    def _adopt(self, nonce: str, remote: RemoteBatch) -> bool:
        """Write down a batch that has ended, whose results are then read as those of any other. False if there is nothing
        in it that the store does not have."""
        keys: dict[str, Message | None] = {}
        try:
            for row in self._api.results(remote):
                if isinstance(row, ResultRow) and row.custom_id.startswith(f"{nonce}-"):
                    key = row.custom_id.partition("-")[2]
                    keys[key] = keys.get(key) or row.message
        except UnreachableError:
            if not self._count_vain_check(remote.batch_id):
                raise
        if not self._ledger.store.lacks_any(list(keys)):
            return False
        completions = []
        for message in filter(None, keys.values()):
            with suppress(*_PARSE_ERRORS):
                completions.append(self._model.parse(message))
        model = self._find_priced_model(completions)
        prices = self._model.prices_of(model)
        usages = [completion.usage for completion in completions]
        batch = self._ledger.adopt(
            {
                key: self._jobs[key].names
                if key in self._jobs
                else {"judge_model": model}
                for key in keys
            },
            nonce=nonce,
            batch_id=remote.batch_id,
            endpoint=self._api.endpoint,
            judge_model=model,
            cost=sum(prices.dollars(u, batched=True) for u in usages) if prices else 0,
            now=self._clock.wall(),
        )
        if batch is None:
            return False
        logger.info(
            "found a batch of %d requests that was submitted and is not in the store: %s",
            len(keys),
            remote.batch_id,
        )
        self._track(batch)
        return True

    def _find_priced_model(self, completions: Sequence[Completion]) -> str:
        """Return the model by whose prices answers are paid for: the one that they name, if it has prices."""
        names = Counter(completion.model for completion in completions)
        for name, _ in names.most_common():
            with suppress(UserError):
                if name and self._model.prices_of(name) is not None:
                    return name
        return self._model.model

    # ---- a batch with an id

    def _collect(self, opened: _OpenBatch) -> Iterator[tuple[str, R | ResultRow]]:
        """Every result of a batch, if it has ended. A file that is cut short is read again, and
        never made up for."""
        remote = self._check_batch(opened)
        if remote is None:
            return
        if remote.refusal is not None:
            self._requeue_refused(opened, remote.refusal)
            return
        read_keys: set[str] = set()
        for _ in range(_MAX_RESULT_READS):
            problem = ""
            unreadable: list[UnreadablePart] = []
            try:
                yield from self._read_results(opened, remote, read_keys, unreadable)
            except UnreachableError as error:
                problem = str(error)
            missing = [key for key in opened.names if key not in read_keys]
            problem = "; ".join(
                filter(None, [problem, _summarize_unreadable(unreadable)])
            )
            is_whole = not problem and len(read_keys) >= remote.n_rows
            if not missing or (is_whole and remote.missing_outcome is not None):
                if missing:
                    row = ResultRow(custom_id="", outcome=remote.missing_outcome)
                    missing_result: _Result[R] = _Result(row=row)
                    yield from self._commit_results(
                        opened, dict.fromkeys(missing, missing_result)
                    )
                self._close(opened)
                self._is_server_full, self._n_capacity_retries = False, 0
                return
            self._clock.sleep(self._settings.poll_initial_seconds)
        titles = [" ".join(map(str, opened.names[key].values())) for key in missing[:3]]
        raise ServerError(
            f"batch {remote.batch_id}: {len(read_keys)} of {len(opened.names)} results can be read "
            f"({problem or 'the file ends early'}), and they are stored. Missing: {', '.join(titles)}"
            f"{', ...' * (len(missing) > 3)}. Nothing is submitted again; the same command reads it again. "
            f"{_repay_hint(opened.batch)}"
        )

    def _check_batch(self, opened: _OpenBatch) -> RemoteBatch | None:
        """Return a batch if it has ended, else None. Raises UserError for one that cannot be had any more: whether to pay
        again is for the user to say."""
        batch_id = str(opened.batch.batch_id)
        remote = self._api.check(batch_id)
        if remote is None:
            if self._count_vain_check(batch_id):
                raise ServerError(
                    f"batch {batch_id} is unknown to {self._api.endpoint}. Is the key of another "
                    f"workspace? {_repay_hint(opened.batch)}"
                )
            return None
        if remote.is_archived:
            raise ServerError(
                f"batch {batch_id}: its results are no longer kept by the server. "
                f"{_repay_hint(opened.batch)}"
            )
        if remote.is_ended:
            return remote
        # Both ends of a batch's life are by the server's clock, both ends of our watch by ours: the
        # two clocks are never compared.
        seconds_watched = self._clock.elapsed() - opened.since
        if seconds_watched > remote.lifetime_seconds + _EXPIRY_GRACE_SECONDS:
            raise ServerError(
                f"batch {batch_id} has not ended, though it should have expired more than an hour "
                "ago. Wait with the same command, or end it: experiment=store store.action=cancel"
            )
        return None

    def _read_results(
        self,
        opened: _OpenBatch,
        remote: RemoteBatch,
        read_keys: set[str],
        unreadable: list[UnreadablePart],
    ) -> Iterator[tuple[str, R | ResultRow]]:
        """Commit and pass on the rows that are ours, each once. `read_keys` grows by their keys, and `unreadable` by the
        rows that cannot be read.

        Raises UnreachableError when all that came is committed.
        """
        rows, problem = self._api.results(remote), None
        row_hashes: dict[str, int] = {}
        # Rows that say something else than an earlier row of their request
        n_contradictions = 0
        is_at_end = False
        while not is_at_end:
            own_rows: dict[str, ResultRow] = {}
            n_rows = 0
            try:
                for row in islice(rows, _ROWS_PER_TRANSACTION):
                    n_rows += 1
                    if isinstance(row, UnreadablePart):
                        unreadable.append(row)
                        continue
                    nonce, _, key = row.custom_id.partition("-")
                    is_ours = nonce == opened.batch.nonce and key in opened.names
                    if not is_ours or row.outcome is None:
                        why = "is of no known kind" if is_ours else "is of no request"
                        location = f"the row of {row.custom_id!r:.60}"
                        unreadable.append(UnreadablePart(location=location, reason=why))
                        continue
                    row_hash = hash(repr(row))
                    n_contradictions += row_hashes.setdefault(key, row_hash) != row_hash
                    if key not in read_keys:
                        own_rows.setdefault(key, row)
            except UnreachableError as error:
                problem = error
            is_at_end = n_rows < _ROWS_PER_TRANSACTION or problem is not None
            results = self._parse(opened, own_rows, unreadable)
            if results:
                yield from self._commit_results(opened, results)
            read_keys.update(results)
        if n_contradictions:
            logger.warning(
                "warning: batch %s has %d rows that contradict an earlier row of their request: the first is taken",
                remote.batch_id,
                n_contradictions,
            )
        if problem is not None:
            raise problem

    def _parse(
        self,
        opened: _OpenBatch,
        rows: Mapping[str, ResultRow],
        unreadable: list[UnreadablePart],
    ) -> "dict[str, _Result[R]]":
        """The results by key; `unreadable` grows by the rows whose answers cannot be parsed or stored."""
        results: dict[str, _Result[R]] = {}
        for key, row in rows.items():
            if row.message is None:
                results[key] = _Result(row=row)
                continue
            try:
                completion = self._model.parse(row.message)
                dollars = self._price_completion(opened.batch, completion)
                answer = self._record(
                    key, opened.names[key], completion, dollars, row.message
                )
                storable_json(answer.to_dict())
            except _PARSE_ERRORS as error:
                why = f"cannot be parsed ({type(error).__name__}: {error})"
                unreadable.append(
                    UnreadablePart(location=f"the answer to {key}", reason=why)
                )
                continue
            self.hits[key] = completion.usage.get("cache_read_tokens", 0) > 0
            results[key] = _Result(row=row, answer=answer, dollars=dollars)
        return results

    def _commit_results(
        self, opened: _OpenBatch, results: "Mapping[str, _Result[R]]"
    ) -> Iterator[tuple[str, R | ResultRow]]:
        """Commit results by key; yield the answers, and the rows that hold none."""
        batch = opened.batch
        rows = {key: result.row for key, result in results.items()}
        answers = {
            key: result.answer
            for key, result in results.items()
            if result.answer is not None
        }
        dollars = {key: results[key].dollars for key in answers}
        outcomes = {key: str(row.outcome) for key, row in rows.items()}
        uncounted_keys = {
            key
            for key, row in rows.items()
            if row.message is not None and not has_token_counts(row.message)
        }
        max_costs = {  # what the rows that do not say it may have cost
            key: self._max_cost(batch, key)
            for key, row in rows.items()
            if key in uncounted_keys or row.possibly_billed
        }
        new_keys, stored = self._ledger.record_results(
            batch, outcomes, answers, dollars | max_costs, now=self._clock.wall()
        )
        for key in new_keys:
            self._budget.spent += dollars.get(key, 0.0)
            if key in max_costs:
                self._budget.reserve(f"{batch.nonce} {key}", max_costs[key])
                self._usage.dollars_at_most += max_costs[key]
        if uncounted_keys & new_keys and not self._has_warned:
            self._has_warned = True
            logger.warning("warning: %s %s", self._model.server, UNCOUNTED_COST_NOTE)
        yield from stored.items()
        is_cancelled_by_user = self._ledger.find(batch.nonce).note == CANCELLED_NOTE
        for key, row in rows.items():
            if key in new_keys and row.message is None:
                is_cancelled = is_cancelled_by_user and row.outcome == "canceled"
                yield key, replace(row, outcome=CANCELLED_NOTE) if is_cancelled else row

    def _max_cost(self, batch: Batch, key: str) -> float:
        """Return the most that a row may have cost."""
        if job := self._jobs.get(key):
            body = self._model.params(job.request, batch.ttl)
            return max_cost(self._model, body, batch.ttl, batched=True)
        return batch.reserve / batch.size


def _is_given_up(batch: Batch) -> bool:
    """Whether a batch was given up without anybody knowing whether the server has it."""
    return batch.state == "abandoned" and batch.batch_id is None


def _summarize_unreadable(unreadable: Sequence[UnreadablePart]) -> str:
    """Describe which parts of a results file cannot be read; empty if all can."""
    if not unreadable:
        return ""
    named_rows = "; ".join(
        f"{row.location} {row.reason}" for row in unreadable[:_MAX_NAMED_ROWS]
    )
    n, is_more = len(unreadable), len(unreadable) > _MAX_NAMED_ROWS
    subject = "line is" if n == 1 else "lines are"
    return f"{n} {subject} spoilt: {named_rows}{'; ...' * is_more}"


def _repay_hint(batch: Batch) -> str:
    return (
        "To pay for its queries again: experiment=store store.action=repay "
        f"store.batch={batch.nonce}"
    )
