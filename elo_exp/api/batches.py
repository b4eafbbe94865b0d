"""Requests answered in batches: submit, wait, retry; nothing is paid twice, nothing past the cap.

The Batcher owns ledger, budget, clock and polling. A provider gives it three hooks (create, check,
results) and a list of recent batches; a model gives it params and parse. Before a batch leaves, the
ledger knows of it. Where the server's answer is lost, the batch is looked for, and none of its
requests is submitted again until it is found or can no longer arrive.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Generic, Self, TypeVar

from elo_exp import interrupts, progress
from elo_exp.api.batch_protocol import BatchModel, ResultRow
from elo_exp.api.batch_results import BatchResults
from elo_exp.api.jobs import Job, Recorder, check_failures
from elo_exp.api.lost_batches import LostBatches
from elo_exp.api.open_batches import OpenBatch, OpenBatches
from elo_exp.api.outages import MIN_UNANSWERED_FOR_OUTAGE
from elo_exp.api.server_patience import ServerPatience
from elo_exp.api.submission_queue import SubmissionQueue
from elo_exp.api.submission_search import SubmissionSearch
from elo_exp.api.transport import (
    BUSY_STATUSES,
    Clock,
    UnreachableError,
    format_out_of_credit,
    out_of_credit,
)
from elo_exp.errors import RESUME_HINT, ServerError, UserError
from elo_exp.records import Record
from elo_exp.store.batch_accounts import find_account
from elo_exp.store.ledger import CANCELLED_NOTE, Ledger

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
_MAX_CONSECUTIVE_LOST_SUBMISSIONS = 5

R = TypeVar("R", bound=Record)


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
        self._model, self._api, self._budget = model, model.api, model.budget
        self._settings = model.batch_settings
        self._ledger, self._jobs, self._check_answers = ledger, jobs, check
        clock = self._clock = Clock()
        patience = self._patience = ServerPatience(model, clock)
        self._open = OpenBatches(model, ledger, clock, patience)
        self._queue = SubmissionQueue(model, ledger, self._open, patience, jobs, clock)
        self._search = SubmissionSearch(model, ledger, self._open, jobs, clock)
        self._lost = LostBatches(model, ledger, self._open, jobs, clock)
        self._results = BatchResults(model, ledger, self._open, record, jobs, clock)
        self._n_attempts: Counter[str] = Counter()  # by key
        self._answered_keys: set[str] = set()
        self._poll_seconds = self._settings.poll_initial_seconds
        self._started_at = clock.elapsed()
        self.failed: dict[str, str] = {}
        for batch in ledger.list_own_open_batches():  # taken over from dead processes
            if batch.endpoint == self._api.endpoint:
                self._open.track(batch)

    @property
    def hits(self) -> Mapping[str, bool]:
        return self._results.hits

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
        if self._open:
            logger.warning(
                "warning: batches still under way on the server: %d. Run the same command again to collect "
                "them, or end them with experiment=store store.action=cancel",
                len(self._open),
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
        done |= self._queue.keys
        self._queue.jobs.extend(job for job in jobs if job.key not in done)
        wanted = {job.key for job in jobs}
        while not wanted.isdisjoint(self._list_unfinished_keys()):
            is_checked = not self._queue.jobs or self._check_server_batches()
            while (
                is_checked and not interrupts.is_requested() and self._queue.submit(ttl)
            ):
                self._poll_seconds = self._settings.poll_initial_seconds
            yield from self._poll()

    def drain(self) -> Generator[R]:
        """Wait for the batches under way; submit nothing. Raises ServerError, when all else is done, for submissions of
        which nobody knows whether they have arrived."""
        self._search.is_draining = True
        while self._open:
            yield from self._poll()
        if self._search.unknown_submissions:
            raise self._search.unknown_submissions[0]

    def recover(self, *, is_asked: bool = False) -> int:
        """Take over batches that the store does not know any more; see `LostBatches.take_over`."""
        return self._lost.take_over(self._poll_seconds, is_asked=is_asked)

    def _check_server_batches(self) -> bool:
        """Look at the server's batches before a run submits anything, which costs nothing: a submission of an earlier run
        may not have arrived, and the store may have lost one that has. False if the server gives no answer.

        Raises ServerError if nobody can know what has become of a submission of these jobs.
        """
        if self._api.endpoint in self._ledger.store.checked_endpoints:
            return True
        try:
            for opened in list(self._open.by_nonce.values()):
                account = find_account(self._ledger.store, opened.batch)
                is_lost = opened.batch.batch_id is None
                if is_lost and self._search.explain_account_problem(account):
                    for _ in self._search.recover(opened):
                        pass  # such a batch is never abandoned
            self.recover()
        except UnreachableError as error:
            self._patience.note_unreachable(error)
            return False
        self._patience.note_answer()
        self._ledger.store.checked_endpoints.add(self._api.endpoint)
        self._queue.drop(self._open.keys)
        return True

    def _list_unfinished_keys(self) -> set[str]:
        return self._queue.keys | self._open.keys

    def _poll(self) -> Iterator[R]:
        """Check every open batch once and pass on the answers; wait where nothing has changed."""
        open_before = set(self._open.by_nonce)
        stop_errors: list[UserError] = []  # raised when every batch has been looked at
        credit_error = yield from self._poll_open_batches(stop_errors)
        if stop_errors:
            raise stop_errors[0]
        if credit_error:  # only now, when every result has been stored
            why = format_out_of_credit(self._model.server, credit_error)
            raise ServerError(f"{why} {RESUME_HINT}")
        if self._open.n_lost >= _MAX_CONSECUTIVE_LOST_SUBMISSIONS:
            raise ServerError(
                f"{self._open.n_lost} submissions in a row to {self._api.endpoint} got no answer and did not arrive.",
                f"  The last error: {self._open.last_doubt}. Perhaps a login page or a proxy is in between.",
                f"  {RESUME_HINT}",
            )
        check_failures(self.failed, len(self._jobs))
        try:
            self._check_answers()
        except UserError:
            self._warn_about_open_batches()
            raise
        if set(self._open.by_nonce) == open_before and (
            open_before or self._queue.jobs
        ):
            n_requests = sum(
                opened.batch.size for opened in self._open.by_nonce.values()
            )
            minutes = (self._clock.elapsed() - self._started_at) / 60
            progress.show_note(
                f"{n_requests:,} requests under way in {len(self._open)} "
                f"batch{'es' * (len(self._open) != 1)}, {len(self._queue.jobs):,} to submit; "
                f"{minutes:.0f} min, {self._budget.spent_of_cap} spent"
            )
            jitter = random.uniform(0.8, 1.2)  # clients out of step
            seconds = self._patience.limit_wait(self._poll_seconds * jitter)
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
        for opened in list(self._open.by_nonce.values()):
            interrupts.check_interrupt()
            is_known = opened.batch.batch_id is not None
            results = (
                self._collect(opened) if is_known else self._search.recover(opened)
            )
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
                self._patience.note_answer()
                n_silent = 0
            except UnreachableError as error:
                n_silent = (
                    MIN_UNANSWERED_FOR_OUTAGE
                    if error.status in BUSY_STATUSES
                    else n_silent + 1
                )
                # the next look begins with another, lest this one keeps it from being asked
                self._open.move_to_end(opened)
                try:
                    self._patience.note_unreachable(error)
                except UserError as stop_error:
                    stop_errors.append(stop_error)
                    break
                if n_silent >= MIN_UNANSWERED_FOR_OUTAGE:
                    break
            except UserError as error:
                stop_errors.append(error)
        return credit_error

    def _collect(self, opened: OpenBatch) -> Iterator[tuple[str, R | ResultRow]]:
        """Yield every result of a batch, if it has ended."""
        remote = self._results.find_ended(opened)
        if remote is None:
            return
        if remote.refusal is not None:
            self._queue.requeue_refused(opened, remote.refusal)
            return
        yield from self._results.collect(opened, remote)
        self._queue.note_room()

    def _retry_or_fail(self, opened: OpenBatch, key: str, row: ResultRow) -> str:
        """Queue a request again, or count it as failed. Return the error where it says that the
        account has no money left."""
        if (job := self._jobs.get(key)) is None:
            return ""
        is_from_other_process = not opened.is_own and row.outcome != CANCELLED_NOTE
        if row.outcome is None or is_from_other_process:  # not tried yet in this run
            self._queue.jobs.append(job)
            return ""
        cause = f"{row.outcome}: {row.detail}" if row.detail else row.outcome
        if row.possibly_billed:
            self._queue.last_error = cause
        self._n_attempts[key] += 1
        if (
            row.outcome in _TRANSIENT_OUTCOMES
            and self._n_attempts[key] <= MAX_RETRIES_PER_REQUEST
        ):
            self._queue.jobs.append(job)
        else:
            self.failed[key] = cause
        return cause if out_of_credit(row.outcome, row.detail) else ""
