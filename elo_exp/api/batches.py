"""Requests answered in batches: submit, wait, retry; nothing is paid twice, and nothing past the
budget.

The Batcher owns ledger, budget, clock and polling. A provider gives it three hooks (create, check,
results) and a list of recent batches; a model gives it params and parse. Before a batch leaves, the
ledger knows of it. Where the server's answer is lost, the batch is looked for, and none of its
requests is submitted again until it is found or can no longer arrive.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from elo_exp import progress
from elo_exp.api.costs import NOT_COUNTED, is_counted, money
from elo_exp.api.jobs import Completion, Job, Message, Model, Recorder, worst_dollars
from elo_exp.api.transport import (
    NO_CONNECTION,
    Clock,
    DoubtfulError,
    RefusedError,
    UnreachableError,
    fatal_reason,
    out_of_credit,
)
from elo_exp.records import Record, UserError
from elo_exp.store.ledger import CANCELLED, Batch, Ledger
from elo_exp.store.processes import check_lifeline

logger = logging.getLogger(__name__)

MAX_RETRIES = 3  # of a request that failed in a way that may pass
_TRANSIENT = frozenset(
    {
        "expired",
        "canceled",
        "api_error",
        "overloaded_error",
        "rate_limit_error",
        "timeout_error",
    }
)
_FAILED_SHARE, _FAILED_COUNT = (
    0.05,
    20,
)  # more than this, and at least so many: the run stops
_ROWS = 256  # results in one transaction
_READINGS = 5  # of a results file that is cut short
_UNKNOWN_CHECKS = 10  # after which a batch that the server gave an id to, and does not know, is given up on
_GRACE_SECONDS = (
    3600.0  # past its expiry, after which a batch that has not ended is given up on
)

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBatch:
    """A batch as the server describes it.

    size   None while the server does not say
    nonce  where the server repeats it before the end
    rest   the outcome of the requests that have no row in the results: expired, canceled, ...
    """

    batch_id: str
    size: int | None
    ended: bool
    n_rows: int  # that the results must have
    rest: str | None = None
    nonce: str | None = None
    archived: bool = False  # its results are no longer kept
    lifetime_seconds: float = (
        86_400.0  # from its creation to its expiry, both by the server's clock
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One result. `outcome`: succeeded, expired, canceled, the type of an error, or None for what
    is not understood."""

    custom_id: str
    outcome: str | None
    detail: str = ""
    message: Message | None = None
    possibly_billed: bool = False  # it was to be a success, and is no message


class BatchApi(Protocol):
    """A server of batches. A question may raise UnreachableError, or UserError where it is
    refused."""

    endpoint: str

    def create(self, nonce: str, requests: Mapping[str, Mapping[str, Any]]) -> str:
        """Submit requests by their custom ids; the batch's id. Raises RefusedError or
        DoubtfulError, and never submits a second time by itself."""

    def check(self, batch_id: str) -> RemoteBatch | None:
        """The batch as it stands; None where the server knows of no such batch."""

    def results(self, batch: RemoteBatch) -> Iterator[Row]:
        """Its rows in any order, perhaps cut short."""

    def recent(self) -> Iterator[RemoteBatch]:
        """All batches, newest first."""

    def cancel(self, batch_id: str) -> bool:
        """Ask for its end; False for a batch that had ended, or that the server does not know."""


@dataclass(kw_only=True)
class BatchSettings:
    chunk_size: int
    poll_initial_seconds: float
    poll_max_seconds: float
    quarantine_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed:
    """A request that has no answer. `outcome` says what came in its place; None: it never reached
    the server."""

    key: str
    outcome: str | None
    detail: str = ""
    possibly_billed: bool = False


class Batcher(Generic[R]):
    """One process's batches. `failed` says, by key, why a job has no answer.

    jobs    by key: all that this process has claimed
    record  makes the records to be stored and passed on
    """

    def __init__(
        self,
        api: BatchApi,
        model: Model,
        ledger: Ledger,
        settings: BatchSettings,
        record: Recorder[R],
        jobs: Mapping[str, Job],
    ) -> None:
        self._api = api
        self._model = model
        self._ledger = ledger
        self._budget = model.budget
        self._settings = settings
        self._record = record
        self._jobs = jobs
        self._clock = Clock()
        self._queue: deque[Job] = deque()
        self._open: dict[str, Batch] = {}  # by nonce
        self._names: dict[
            str, Mapping[str, Mapping[str, Any]]
        ] = {}  # of each open batch, by key
        self._own: set[str] = (
            set()
        )  # nonces of the batches that this process has submitted
        self._lost_at: dict[str, float] = {}
        self._watched_since: dict[str, float] = {}
        self._not_ours: set[str | None] = set()  # batches at the server
        self._unknown: Counter[str] = (
            Counter()
        )  # checks in a row that said nothing of a batch
        self._attempts: Counter[str] = Counter()
        self._answered: set[str] = set()
        self._chunk_size = settings.chunk_size
        self._interval = settings.poll_initial_seconds
        self._not_before = 0.0  # the server has asked to wait until then
        self._started = self._clock.elapsed()
        self._took: list[float] = []  # seconds from a batch's submission to its end
        self._last_error = ""  # that left a cost open
        self._is_silent = False  # the server, about what its answers cost
        self.failed: dict[str, str] = {}
        for (
            batch
        ) in ledger.under_way():  # what the dead have left is this process's to collect
            if batch.endpoint == api.endpoint:
                self._follow(batch)

    def run(self, jobs: Sequence[Job], ttl: str | None) -> Iterator[R]:
        """The answers to these jobs as they come, each committed, with those of batches that were
        taken over. When it ends, no job is queued or in a batch of this process; a job may be in
        another's.

        ttl  of the prompt cache; None: no breakpoint
        """
        done = self._ledger.pending() | self._answered | self.failed.keys()
        done.update(job.key for job in self._queue)
        self._queue.extend(job for job in jobs if job.key not in done)
        wanted = {job.key for job in jobs}
        while not wanted.isdisjoint(self._in_flight()):
            self._submit_what_fits(ttl)
            yield from self._poll()

    def drain(self) -> Iterator[R]:
        """Wait for the batches under way; submit nothing."""
        while self._open:
            yield from self._poll()

    def warn_of_open(self) -> None:
        if self._open:
            logger.warning(
                "warning: %d batches stay under way on the server. The same command collects them; "
                "to end them: "
                "experiment=store store.action=cancel", len(self._open),
            )  # fmt: skip

    def _in_flight(self) -> set[str]:
        return {job.key for job in self._queue}.union(*self._names.values())

    # ---- submitting ------------------------------------------------------------------------------

    def _submit_what_fits(self, ttl: str | None) -> None:
        while self._queue and self._clock.elapsed() >= self._not_before:
            check_lifeline()
            jobs = list(islice(self._queue, self._chunk_size))
            bodies = [self._model.params(job.request, ttl) for job in jobs]
            worst = [
                worst_dollars(self._model, body, ttl, batched=True) for body in bodies
            ]
            n = self._budget.fits(worst)
            if n < len(jobs) and self._open:
                return  # what is under way makes room when it is settled
            if not n:
                raise UserError(self._over_budget(worst[0]))
            if not self._submit(jobs[:n], bodies[:n], worst[:n], ttl):
                return

    def _over_budget(self, dollars: float) -> str:
        return (
            f"{self._model.budget_setting}: {self._budget.state(self._last_error)}, the next "
            "request may cost "
            f"${dollars:.4f}, and {len(self._queue)} are left. Every answer so far is stored; the "
            "same command with a "
            "higher cap goes on."
        )

    def _submit(
        self,
        jobs: Sequence[Job],
        bodies: Sequence[Mapping[str, Any]],
        worst: Sequence[float],
        ttl: str | None,
    ) -> bool:
        """Whether the server was asked, and did not refuse."""
        try:
            newest = next(self._api.recent(), None)
        except UnreachableError as error:
            self._note_unreachable(error)
            return False
        batch = self._intend(
            jobs, worst, ttl, high_water=newest.batch_id if newest else None
        )
        if batch is None:
            return False
        sent = [self._queue.popleft() for _ in range(batch.size)]
        self._follow(batch)
        self._own.add(batch.nonce)
        requests = {
            batch.custom_id(job.key): body
            for job, body in zip(sent, bodies, strict=False)
        }
        try:
            batch_id = self._api.create(batch.nonce, requests)
        except RefusedError as refusal:
            self._abandon(batch, str(refusal))
            self._queue.extendleft(reversed(sent))
            self._react_to(refusal, len(sent))
            return False
        except DoubtfulError as doubt:
            logger.warning(
                "warning: no answer to a submission of %d requests (%s): looking for it",
                batch.size,
                doubt,
            )
            self._lost_at[batch.nonce] = self._clock.elapsed()  # not when it was begun
        else:
            self._accept(batch, batch_id)
        self._interval = self._settings.poll_initial_seconds
        return True

    def _intend(
        self,
        jobs: Sequence[Job],
        worst: Sequence[float],
        ttl: str | None,
        *,
        high_water: str | None,
    ) -> Batch | None:
        """Commit the intent, of one request fewer for as long as an unresolved batch has the same
        size."""
        for size in range(len(jobs), 0, -1):
            batch = self._ledger.intend(
                {job.key: job.names for job in jobs[:size]},
                endpoint=self._api.endpoint,
                judge_model=self._model.model,
                reserve=sum(worst[:size]),
                ttl=ttl,
                high_water=high_water,
                now=self._clock.wall(),
            )
            if batch is not None:
                return batch
        return None

    def _react_to(self, refusal: RefusedError, size: int) -> None:
        """Go on with smaller batches or later, or raise UserError."""
        if why := fatal_reason(self._model.server, refusal):
            raise UserError(f"{why} {self._advice()}")
        if refusal.status == 413 and size > 1:
            self._chunk_size = size // 2
            logger.info(
                "the server takes no batch of %d requests; going on with %d",
                size,
                self._chunk_size,
            )
        elif refusal.status == NO_CONNECTION:
            self._note_unreachable(refusal)
        elif refusal.status == 429:
            wait = refusal.retry_after or self._settings.poll_initial_seconds
            self._not_before = self._clock.elapsed() + wait
            logger.info("the server asks to wait %.0f s before the next batch", wait)
        else:
            raise UserError(
                f"{self._model.server} refuses the batch ({refusal.status}): {refusal}. "
                f"{self._advice()}"
            )

    def _advice(self) -> str:
        budget = self._budget
        spent = (
            f"{money(budget.spent, beside=budget.cap)} spent so far"
            if budget.spent
            else "Nothing was spent"
        )
        return f"{spent}; every answer is stored, and the same command goes on."

    def _note_unreachable(self, error: Exception) -> None:
        progress.note(f"{self._api.endpoint} cannot be reached ({error}); trying again")

    def _follow(self, batch: Batch) -> None:
        self._open[batch.nonce] = batch
        self._names[batch.nonce] = self._ledger.names(batch)
        self._budget.reserve(batch.nonce, batch.reserve)
        self._lost_at[batch.nonce] = self._clock.elapsed()

    def _accept(self, batch: Batch, batch_id: str) -> None:
        self._ledger.submitted(batch, batch_id)
        self._open[batch.nonce] = replace(batch, state="submitted", batch_id=batch_id)

    def _abandon(self, batch: Batch, why: str) -> bool:
        """Give up what the server certainly does not have. False where another process has taken it
        over meanwhile."""
        self._close(batch)
        return self._ledger.abandon(batch, why)

    def _close(self, batch: Batch) -> None:
        self._open.pop(batch.nonce)
        self._names.pop(batch.nonce)
        self._budget.release(batch.nonce)

    # ---- waiting ---------------------------------------------------------------------------------

    def _poll(self) -> Iterator[R]:
        """Check every open batch once, and pass on the answers; wait where nothing has changed."""
        before, no_credit = set(self._open), ""
        for batch in list(self._open.values()):
            try:
                for key, found in (
                    self._collect(batch) if batch.batch_id else self._recover(batch)
                ):
                    if isinstance(found, _Failed):
                        no_credit = self._retry_or_fail(batch, found) or no_credit
                    else:
                        self._answered.add(key)
                        if (
                            key in self._jobs
                        ):  # a batch that was taken over may hold others
                            yield found
            except UnreachableError as error:
                self._note_unreachable(error)
        # only now, when every result has been taken in, or the next run would stumble over the rest
        if no_credit:
            raise UserError(
                f"the account at {self._model.server} has run dry ({no_credit}). {self._advice()}"
            )
        stop_if_many(self.failed, len(self._jobs), self._advice())
        if set(self._open) == before and (before or self._queue):
            progress.note(self._state())
            self._clock.sleep(
                self._interval * random.uniform(0.8, 1.2)
            )  # clients out of step
            self._interval = min(self._interval * 1.5, self._settings.poll_max_seconds)

    def _retry_or_fail(self, batch: Batch, failed: _Failed) -> str:
        """Queue it again, or count it among the failed. The words of the error where it says that
        there is no money."""
        if (job := self._jobs.get(failed.key)) is None:
            return ""
        was_before = batch.nonce not in self._own and failed.outcome != CANCELLED
        if failed.outcome is None or was_before:  # it gets its chance in this run
            self._queue.append(job)
            return ""
        cause = (
            f"{failed.outcome}: {failed.detail}" if failed.detail else failed.outcome
        )
        if failed.possibly_billed:
            self._last_error = cause
        self._attempts[job.key] += 1
        if failed.outcome in _TRANSIENT and self._attempts[job.key] <= MAX_RETRIES:
            self._queue.append(job)
        else:
            self.failed[job.key] = cause
        return cause if out_of_credit(failed.outcome, failed.detail) else ""

    # ---- a submission without an answer ----------------------------------------------------------

    def _recover(self, batch: Batch) -> Iterator[tuple[str, _Failed]]:
        """Find it by its size and prove it by its nonce; or know that it can no longer arrive."""
        quarantined_until = (
            self._lost_at[batch.nonce] + self._settings.quarantine_seconds
        )
        is_over = (
            self._clock.elapsed() > quarantined_until
        )  # before the search, which takes time
        is_undecided = self._search(batch)
        if self._open[batch.nonce].batch_id is not None or is_undecided or not is_over:
            return
        keys = list(self._names[batch.nonce])
        if self._abandon(
            batch, "not accepted: it did not turn up within the quarantine"
        ):
            logger.info("a submission of %d requests did not arrive", batch.size)
            yield from ((key, _Failed(key=key, outcome=None)) for key in keys)

    def _search(self, batch: Batch) -> bool:
        """Look through the server's batches; whether one is still running that may be it."""
        is_undecided = False
        known = {other.batch_id for other in self._ledger.batches()} | self._not_ours
        for remote in self._api.recent():
            if remote.batch_id == batch.high_water:
                break
            if remote.size not in (None, batch.size) or remote.batch_id in known:
                continue
            if remote.archived:
                raise UserError(
                    f"batch {remote.batch_id} may be a submission of {batch.size} requests that "
                    "got no answer, but "
                    f"its results are no longer kept by the server. {_pay_again(batch)}"
                )
            if remote.nonce is None and not remote.ended:
                is_undecided = True
            elif not self._is_ours(batch, remote):
                self._not_ours.add(remote.batch_id)
            elif self._open[batch.nonce].batch_id is None:
                logger.info(
                    "found the batch whose submission got no answer: %s",
                    remote.batch_id,
                )
                self._accept(batch, remote.batch_id)
            else:
                self._report_double(batch, remote)
        return is_undecided

    def _is_ours(self, batch: Batch, remote: RemoteBatch) -> bool:
        """By the nonce, which the server or the results repeat; only all results can deny it."""
        if remote.nonce is not None:
            return remote.nonce == batch.nonce
        foreign: set[str] = set()
        for row in self._api.results(remote):
            if row.custom_id.startswith(batch.custom_id("")):
                return True
            foreign.add(row.custom_id)
        if len(foreign) >= remote.n_rows:
            return False
        problem = f"the results of batch {remote.batch_id} are cut short, and show not whose it is"
        self._unknown[remote.batch_id] += 1
        if self._unknown[remote.batch_id] >= _UNKNOWN_CHECKS:
            raise UserError(
                f"{problem}. Nothing is submitted again; the same command reads them again."
            )
        raise UnreachableError(problem)

    def _report_double(self, batch: Batch, remote: RemoteBatch) -> None:
        """The server has taken one submission twice. The first is kept, and the loss is counted."""
        self._not_ours.add(remote.batch_id)
        messages = [
            row.message for row in self._api.results(remote) if row.message is not None
        ]
        lost = sum(
            self._dollars(batch, self._model.parse(message)) for message in messages
        )
        self._budget.spent += lost
        self._ledger.usage.pay(lost)
        logger.warning(
            "warning: the server has taken a submission of ours twice: %s is the copy, and $%.4f "
            "are lost",
            remote.batch_id, lost,
        )  # fmt: skip

    def _dollars(self, batch: Batch, completion: Completion) -> float:
        prices = self._model.prices_of(batch.judge_model)
        return prices.dollars(completion.usage, batched=True) if prices else 0.0

    # ---- a batch with an id ----------------------------------------------------------------------

    def _collect(self, batch: Batch) -> Iterator[tuple[str, R | _Failed]]:
        """Every result of a batch, if it has ended. A file that is cut short is read again, and
        never made up for."""
        remote = self._check(batch, str(batch.batch_id))
        if remote is None:
            return
        seen: set[str] = set()
        problem = "the file ends early"
        for _ in range(_READINGS):
            try:
                yield from self._read(batch, remote, seen)
            except UnreachableError as error:
                problem = str(error)
            if len(seen) == remote.n_rows:
                yield from self._settle_rest(batch, remote, seen)
                self._close(batch)
                self._took.append(self._clock.wall() - batch.created_at)
                return
            self._clock.sleep(self._settings.poll_initial_seconds)
        missing = [
            _title(names)
            for key, names in self._names[batch.nonce].items()
            if key not in seen
        ]
        raise UserError(
            f"batch {remote.batch_id}: {len(seen)} of {remote.n_rows} results can be read "
            f"({problem}). Missing: "
            f"{', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}. Nothing is submitted "
            "again; the same "
            "command reads it again."
        )

    def _check(self, batch: Batch, batch_id: str) -> RemoteBatch | None:
        """The batch if it has ended. Raises UserError for one that cannot be had any more: whether
        to pay again is for the user to say."""
        remote = self._api.check(batch_id)
        if remote is None:
            self._unknown[batch_id] += 1
            if self._unknown[batch_id] >= _UNKNOWN_CHECKS:
                raise UserError(
                    f"batch {batch_id} is unknown to {self._api.endpoint}. Is the key of another "
                    "workspace? "
                    f"{_pay_again(batch)}"
                )
            return None
        if remote.archived:
            raise UserError(
                f"batch {batch_id}: its results are no longer kept by the server. "
                f"{_pay_again(batch)}"
            )
        if not remote.ended:
            self._check_overdue(remote)
            return None
        return remote

    def _check_overdue(self, remote: RemoteBatch) -> None:
        """Raise UserError for a batch that this process has watched for longer than it may live.
        Both ends of its life are by the server's clock, both ends of the watch by ours: the two
        clocks are never compared."""
        now = self._clock.elapsed()
        watched = now - self._watched_since.setdefault(remote.batch_id, now)
        if watched > remote.lifetime_seconds + _GRACE_SECONDS:
            raise UserError(
                f"batch {remote.batch_id} has not ended, though it should have expired more than "
                "an hour ago. Wait "
                "with the same command, or end it: experiment=store store.action=cancel"
            )

    def _read(
        self, batch: Batch, remote: RemoteBatch, seen: set[str]
    ) -> Iterator[tuple[str, R | _Failed]]:
        """Commit and pass on the rows that are ours, each once; `seen` grows by their keys."""
        rows = self._api.results(remote)
        while some := list(islice(rows, _ROWS)):
            ours: dict[str, Row] = {}
            for row in some:
                nonce, _, key = row.custom_id.partition("-")
                is_ours = (
                    nonce == batch.nonce
                    and key in self._names[nonce]
                    and key not in seen
                )
                if is_ours and row.outcome is not None:
                    ours.setdefault(key, row)
            yield from self._take_in(batch, ours)
            seen.update(ours)

    def _take_in(
        self, batch: Batch, rows: Mapping[str, Row]
    ) -> Iterator[tuple[str, R | _Failed]]:
        answers: dict[str, R] = {}
        dollars: dict[str, float] = {}
        for key, row in rows.items():
            if row.message is not None:
                names = self._names[batch.nonce][key]
                completion = self._model.parse(row.message)
                dollars[key] = self._dollars(batch, completion)
                answers[key] = self._record(
                    key, names, completion, dollars[key], row.message
                )
        outcomes = {key: str(row.outcome) for key, row in rows.items()}
        new, stored = self._ledger.record(
            batch, outcomes, answers, now=self._clock.wall()
        )
        self._budget.spent += sum(cost for key, cost in dollars.items() if key in new)
        for key in new:
            self._reserve_unknown(batch, key, rows[key])
        yield from stored.items()
        failed = {
            key: row for key, row in rows.items() if row.message is None and key in new
        }
        yield from (
            (key, self._failure(batch, key, row)) for key, row in failed.items()
        )

    def _reserve_unknown(self, batch: Batch, key: str, row: Row) -> None:
        """Keep in the budget the most that a row may have cost that does not say what it cost."""
        if not row.possibly_billed and (row.message is None or is_counted(row.message)):
            return
        most = batch.reserve / batch.size
        if job := self._jobs.get(key):
            body = self._model.params(job.request, batch.ttl)
            most = worst_dollars(self._model, body, batch.ttl, batched=True)
        self._budget.reserve(f"{batch.nonce} {key}", most)
        self._ledger.usage.dollars_at_most += most
        if not self._is_silent and not row.possibly_billed:
            self._is_silent = True
            logger.warning("warning: %s %s", self._model.server, NOT_COUNTED)

    def _failure(self, batch: Batch, key: str, row: Row) -> _Failed:
        is_users = (
            row.outcome == "canceled"
            and self._ledger.find(batch.nonce).note == CANCELLED
        )
        return _Failed(
            key=key,
            outcome=CANCELLED if is_users else row.outcome,
            detail=row.detail,
            possibly_billed=row.possibly_billed,
        )

    def _settle_rest(
        self, batch: Batch, remote: RemoteBatch, seen: set[str]
    ) -> Iterator[tuple[str, _Failed]]:
        """The requests that have no row, where the server says what has become of them."""
        rest = [key for key in self._names[batch.nonce] if key not in seen]
        if rest and remote.rest is not None:
            rows = {
                key: Row(custom_id=batch.custom_id(key), outcome=remote.rest)
                for key in rest
            }
            outcomes = dict.fromkeys(rest, remote.rest)
            new, _ = self._ledger.record(batch, outcomes, {}, now=self._clock.wall())
            yield from ((key, self._failure(batch, key, rows[key])) for key in new)

    # ---- progress --------------------------------------------------------------------------------

    def _state(self) -> str:
        batches, now = self._open.values(), self._clock.wall()
        minutes = (self._clock.elapsed() - self._started) / 60
        wait = self._not_before - self._clock.elapsed()
        end = "expected within the hour"
        if self._took:
            oldest = min((batch.created_at for batch in batches), default=now)
            mean = sum(self._took) / len(self._took)
            end = f"expected at {_time_of_day(max(now, oldest + mean))}"
        elif not batches and wait > 0:
            end = f"the server asks to wait until {_time_of_day(now + wait)}"
        n = len(batches)
        return (
            f"{sum(batch.size for batch in batches):,} requests under way in {n} "
            f"batch{'es' if n != 1 else ''}, "
            f"{len(self._queue):,} to submit; {minutes:.0f} min, {self._budget.spent_of_cap} "
            f"spent; {end}"
        )


def _time_of_day(seconds: float) -> str:
    return time.strftime("%H:%M", time.localtime(seconds))


def _title(names: Mapping[str, Any]) -> str:
    parts = (
        names.get(name) for name in ("dimension", "prompt_id", "entrant_a", "entrant_b")
    )
    return " ".join(part for part in parts if part)


def _pay_again(batch: Batch) -> str:
    return (
        "To pay for its queries again: experiment=store store.action=repay "
        f"store.batch={batch.nonce}"
    )


def stop_if_many(failed: Mapping[str, str], n_wanted: int, advice: str) -> None:
    """Raise UserError where so many requests have failed for good that something is wrong with all
    of them."""
    if len(failed) >= _FAILED_COUNT and len(failed) > _FAILED_SHARE * n_wanted:
        raise UserError(f"{summary(failed)}. {advice}")


def summary(failed: Mapping[str, str]) -> str:
    """How many requests have no answer, and the most common cause."""
    (cause, count), *_ = Counter(failed.values()).most_common(1)
    return f"{len(failed)} queries have failed for good; {count} of them: {cause}"


def unresolved(batches: Iterable[Batch]) -> str:
    """Which of these may or may not have arrived, and what to do about them; empty where it is
    known of all."""
    found = [
        f"{batch.nonce} ({batch.size:,} requests)"
        for batch in batches
        if batch.state == "intended"
    ]
    if not found:
        return ""
    return (
        f"nobody knows whether the server has {', '.join(found)}: the submission got no answer. "
        "store.action=wait "
        "looks for it, and knows after judge.quarantine_seconds; once it is found, "
        "store.action=cancel ends it."
    )
