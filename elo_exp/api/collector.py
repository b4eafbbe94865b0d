"""Batches that were, or may have been, submitted: find them, wait for them, take in every result once.

A submission whose answer was lost is looked for until it is found or can no longer arrive. What comes back is
committed row by row, a failure never among the answers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from elo_exp import progress
from elo_exp.api.counts import NOT_COUNTED, is_counted
from elo_exp.api.services import BatchTools, RemoteBatch, Row, UnreachableError
from elo_exp.records import JudgeReply, JudgeRequest, UserError
from elo_exp.store.ledger import CANCELLED, Batch, Query

logger = logging.getLogger(__name__)

_ROWS = 256  # results in one transaction
_HARVESTS = 5  # times that a results file which is cut short is read
_UNKNOWN_POLLS = 10  # times that a batch the server gave an id to may be unknown to it
_GRACE_SECONDS = 3600.0  # past its expiry, after which a batch that has not ended is given up on


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A query that has no answer. `outcome` says what came back in its place; None: it never reached the server."""

    key: str
    outcome: str | None
    detail: str = ""
    nonce: str = ""  # of the batch that it was in
    may_cost: bool = False


class Collector:
    """The batches under way of one process, which asks for what is `wanted`, by key."""

    def __init__(self, tools: BatchTools, wanted: Mapping[str, JudgeRequest]) -> None:
        self._tools = tools
        self._wanted = wanted
        self._is_silent = False  # the server, about what its answers cost
        self._not_ours: set[str | None] = set()
        self._unknown: Counter[str] = Counter()  # answers in a row that said nothing of a batch
        self._lost_at: dict[str, float] = {}
        self._watched_since: dict[str, float] = {}
        self.open: dict[str, Batch] = {}  # by nonce
        self.took: list[float] = []  # seconds from a batch's submission to its end

    def follow(self, batch: Batch) -> None:
        self.open[batch.nonce] = batch
        self._tools.budget.reserve(batch.nonce, batch.reserve)
        self.doubt(batch)

    def doubt(self, batch: Batch) -> None:
        """From now on it is looked for, if it has no id: this is when its quarantine begins."""
        self._lost_at[batch.nonce] = self._tools.clock.elapsed()

    def accepted(self, batch: Batch, batch_id: str) -> None:
        self._tools.ledger.submitted(batch, batch_id)
        self.open[batch.nonce] = replace(batch, state="submitted", batch_id=batch_id)

    def drop(self, batch: Batch, why: str) -> bool:
        """Give up what the server certainly does not have. False where another process has taken it over meanwhile."""
        self._close(batch)
        return self._tools.ledger.abandon(batch, why)

    def _close(self, batch: Batch) -> None:
        self.open.pop(batch.nonce)
        self._tools.budget.release(batch.nonce)

    def look(self) -> Iterator[JudgeReply | Unanswered]:
        """One look at every batch under way, and what has come of it."""
        for batch in list(self.open.values()):
            try:
                if batch.batch_id is None:
                    yield from self._recover(batch)
                elif remote := self._ended(batch, batch.batch_id):
                    yield from self._harvest(batch, remote)
            except UnreachableError as error:
                progress.note(
                    f"{self._tools.service.endpoint} cannot be reached ({error}); trying again"
                )

    # ---- a submission without an answer -----------------------------------------------------------------------------

    def _recover(self, batch: Batch) -> Iterator[Unanswered]:
        """Find it by its size, and prove it by the nonce in its results; or know that it can no longer arrive."""
        quarantined_until = self._lost_at[batch.nonce] + self._tools.settings.quarantine_seconds
        is_over = (
            self._tools.clock.elapsed() > quarantined_until
        )  # before the search: what arrives during it may be missed
        undecided = self._search(batch)
        if self.open[batch.nonce].batch_id is not None or undecided:
            return
        if is_over:
            if not self.drop(batch, "not accepted: it did not turn up within the quarantine"):
                return
            logger.info("a submission of %d requests did not arrive", batch.size)
            yield from (
                Unanswered(key=key, outcome=None, nonce=batch.nonce)
                for key in self._tools.ledger.queries(batch)
            )

    def _search(self, batch: Batch) -> bool:
        """Look through the server's batches; whether one is still running that may be it."""
        undecided = False
        known = {other.batch_id for other in self._tools.ledger.batches()} | self._not_ours
        for remote in self._tools.service.newest_first():
            if remote.batch_id == batch.high_water:
                break
            if remote.size != batch.size or remote.batch_id in known:
                continue
            if remote.archived:
                raise UserError(
                    f"batch {remote.batch_id} may be a submission of {batch.size} requests that got no answer, but "
                    f"its results are no longer kept by the server. {_pay_again(batch)}"
                )
            if not remote.ended:
                undecided = True
            elif not self._is_ours(batch, remote):
                self._not_ours.add(remote.batch_id)
            elif self.open[batch.nonce].batch_id is None:
                logger.info("found the batch whose submission got no answer: %s", remote.batch_id)
                self.accepted(batch, remote.batch_id)
            else:
                self._report_double(remote)
        return undecided

    def _is_ours(self, batch: Batch, remote: RemoteBatch) -> bool:
        """By the nonce in its results; only all of them can say that it is not."""
        foreign: set[str] = set()
        for row in self._tools.service.results(remote.batch_id):
            if row.custom_id.startswith(f"{batch.nonce}-"):
                return True
            foreign.add(row.custom_id)
        if len(foreign) >= remote.size:
            return False
        self._unknown[remote.batch_id] += 1
        problem = f"the results of batch {remote.batch_id} are cut short, and show not whose it is"
        if self._unknown[remote.batch_id] >= _UNKNOWN_POLLS:
            raise UserError(
                f"{problem}. Nothing is submitted again; the same command reads them again."
            )
        raise UnreachableError(problem)

    def _report_double(self, remote: RemoteBatch) -> None:
        """The server has taken one submission twice. The first is kept, and the loss is counted."""
        self._not_ours.add(remote.batch_id)
        rows = self._tools.service.results(remote.batch_id)
        replies = [
            self._tools.judge.reply(row.custom_id, {}, row.message)
            for row in rows
            if row.message is not None
        ]
        lost = sum(reply.dollars for reply in replies)
        self._tools.budget.spent += lost
        self._tools.ledger.usage.dollars += lost
        logger.warning(
            "warning: the server has taken a submission of ours twice: %s is the copy, and $%.4f are lost",
            remote.batch_id, lost,
        )  # fmt: skip

    # ---- a batch with an id -----------------------------------------------------------------------------------------

    def _ended(self, batch: Batch, batch_id: str) -> RemoteBatch | None:
        """The batch if it has ended. Raises UserError for one that cannot be had any more: whether to pay again is for
        the user to say."""
        remote = self._tools.service.retrieve(batch_id)
        if remote is None:
            self._unknown[batch_id] += 1
            if self._unknown[batch_id] >= _UNKNOWN_POLLS:
                raise UserError(
                    f"batch {batch_id} is unknown to {self._tools.service.endpoint}. Is the key of another workspace? "
                    f"{_pay_again(batch)}"
                )
            return None
        if remote.archived:
            raise UserError(
                f"batch {batch_id}: its results are no longer kept by the server. {_pay_again(batch)}"
            )
        if not remote.ended:
            self._check_overdue(remote)
        return remote if remote.ended else None

    def _check_overdue(self, remote: RemoteBatch) -> None:
        """Raise UserError for a batch that this process has watched for longer than it may live. The server's clock
        says when it expires, ours how long that is from now: the two are never compared."""
        now = self._tools.clock.elapsed()
        watched = now - self._watched_since.setdefault(remote.batch_id, now)
        if watched > remote.lifetime_seconds + _GRACE_SECONDS:
            raise UserError(
                f"batch {remote.batch_id} has not ended, though it should have expired more than an hour ago. Wait "
                "with the same command, or end it: experiment=store store.action=cancel"
            )

    def _harvest(self, batch: Batch, remote: RemoteBatch) -> Iterator[JudgeReply | Unanswered]:
        """Every result of a batch that has ended. A file that is cut short is read again, and never made up for."""
        queries = self._tools.ledger.queries(batch)
        seen: set[str] = set()
        problem = "the file ends early"
        for _ in range(_HARVESTS):
            try:
                yield from self._read(batch, remote.batch_id, queries, seen)
            except UnreachableError as error:
                problem = str(error)
            if len(seen) == remote.size:
                self._close(batch)
                self.took.append(self._tools.clock.wall() - batch.created_at)
                return
            self._tools.clock.sleep(self._tools.settings.poll_initial_seconds)
        missing = [_name(query) for key, query in queries.items() if key not in seen]
        raise UserError(
            f"batch {remote.batch_id}: {len(seen)} of {remote.size} results can be read ({problem}). Missing: "
            f"{', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}. Nothing is submitted again; the same "
            "command reads it again."
        )

    def _read(
        self, batch: Batch, batch_id: str, queries: Mapping[str, Query], seen: set[str]
    ) -> Iterator[JudgeReply | Unanswered]:
        """Commit and pass on the rows that are ours, each once; `seen` grows by their keys."""
        rows = self._tools.service.results(batch_id)
        while some := list(islice(rows, _ROWS)):
            ours: dict[str, Row] = {}
            for row in some:
                nonce, _, key = row.custom_id.partition("-")
                if (
                    nonce == batch.nonce
                    and key in queries
                    and key not in seen
                    and row.outcome is not None
                ):
                    ours.setdefault(key, row)
            replies = [
                self._tools.judge.reply(key, queries[key].names, row.message)
                for key, row in ours.items()
                if row.message is not None
            ]
            outcomes = {key: str(row.outcome) for key, row in ours.items()}
            new, answers = self._tools.ledger.record(
                batch, outcomes, replies, now=self._tools.clock.wall()
            )
            seen.update(ours)
            self._tools.budget.spent += sum(reply.dollars for reply in replies if reply.key in new)
            self._hold(batch, {key: row for key, row in ours.items() if key in new})
            yield from answers
            yield from (
                self._unanswered(batch, key, row)
                for key, row in ours.items()
                if row.message is None and key in new
            )

    def _hold(self, batch: Batch, rows: Mapping[str, Row]) -> None:
        """Keep in the budget what those may have cost at most that do not say what they cost."""
        for key, row in rows.items():
            if row.may_cost or (row.message is not None and not is_counted(row.message)):
                request = self._wanted.get(key)  # a batch that was taken over has others, too
                most = (
                    self._tools.judge.reserve(request, batch.ttl)
                    if request
                    else batch.reserve / batch.size
                )
                self._tools.budget.reserve(f"{batch.nonce} {key}", most)
                if not self._is_silent and not row.may_cost:
                    self._is_silent = True
                    logger.warning("warning: the judge's API %s", NOT_COUNTED)

    def _unanswered(self, batch: Batch, key: str, row: Row) -> Unanswered:
        cancelled = (
            row.outcome == "canceled" and self._tools.ledger.find(batch.nonce).note == CANCELLED
        )
        outcome = CANCELLED if cancelled else row.outcome
        return Unanswered(
            key=key, outcome=outcome, detail=row.detail, nonce=batch.nonce, may_cost=row.may_cost
        )


def _name(query: Query) -> str:
    return " ".join(
        filter(None, map(query.names.get, ("dimension", "prompt_id", "entrant_a", "entrant_b")))
    )


def _pay_again(batch: Batch) -> str:
    return f"To pay for its queries again: experiment=store store.action=repay store.batch={batch.nonce}"


def in_doubt(batches: Iterable[Batch]) -> str:
    """Which of these may or may not have arrived, and what to do about them; empty where it is known of all."""
    found = [
        f"{batch.nonce} ({batch.size:,} requests)" for batch in batches if batch.state == "intended"
    ]
    if not found:
        return ""
    return (
        f"nobody knows whether the server has {', '.join(found)}: the submission got no answer. store.action=wait "
        "looks for it, and knows after judge.quarantine_seconds; once it is found, store.action=cancel ends it."
    )
