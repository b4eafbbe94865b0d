"""The results of a batch that has ended: each row committed once, and what cannot be read never made up for."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, TypeVar

from elo_exp.api.batch_protocol import (
    BatchModel,
    RemoteBatch,
    ResultRow,
    UnreadablePart,
)
from elo_exp.api.costs import UNCOUNTED_COST_NOTE, has_token_counts
from elo_exp.api.jobs import Job, Recorder, max_cost
from elo_exp.api.open_batches import OpenBatch, OpenBatches, repay_hint
from elo_exp.api.transport import Clock, UnreachableError
from elo_exp.errors import ServerError
from elo_exp.records import Record, storable_json
from elo_exp.store.batch_rows import Batch
from elo_exp.store.ledger import CANCELLED_NOTE, Ledger

logger = logging.getLogger(__name__)

PARSE_ERRORS = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError),
    ValueError,
)
_ROWS_PER_TRANSACTION = 256
# Of a results file that is cut short
_MAX_RESULT_READS = 5
_MAX_NAMED_ROWS = 3
_EXPIRY_GRACE_SECONDS = 3600.0

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result(Generic[R]):
    """A row, and the record of its answer with what it has cost; None if it has no answer."""

    row: ResultRow
    answer: R | None = None
    dollars: float = 0.0


class BatchResults(Generic[R]):
    """Reads the results of batches. `hits` says, by key, whether an answer read its prefix from the prompt cache.

    record  makes the records to be stored and passed on
    """

    def __init__(
        self,
        model: BatchModel,
        ledger: Ledger,
        open_batches: OpenBatches,
        record: Recorder[R],
        jobs: Mapping[str, Job],
        clock: Clock,
    ) -> None:
        self._model, self._api = model, model.api
        self._ledger, self._open = ledger, open_batches
        self._record, self._jobs, self._clock = record, jobs, clock
        self._has_warned = False  # of answers that do not say what they cost
        self.hits: dict[str, bool] = {}

    def find_ended(self, opened: OpenBatch) -> RemoteBatch | None:
        """Return a batch if it has ended, else None. Raises ServerError for one that cannot be had any more: whether to pay
        again is for the user to say."""
        batch_id = str(opened.batch.batch_id)
        remote = self._api.check(batch_id)
        if remote is None:
            if self._open.count_vain_check(batch_id):
                raise ServerError(
                    f"Batch {batch_id} is unknown to {self._api.endpoint}. Perhaps the key is of another workspace.",
                    *repay_hint(opened.batch),
                )
            return None
        if remote.is_archived:
            raise ServerError(
                f"The results of batch {batch_id} are no longer kept by the server.",
                *repay_hint(opened.batch),
            )
        if remote.is_ended:
            return remote
        # Both ends of a batch's life are by the server's clock, both ends of our watch by ours: the
        # two clocks are never compared.
        seconds_watched = self._clock.elapsed() - opened.since
        if seconds_watched > remote.lifetime_seconds + _EXPIRY_GRACE_SECONDS:
            raise ServerError(
                f"Batch {batch_id} has not ended, though it should have expired more than an hour ago.",
                "  To wait longer, run the same command again. To end it, run:",
                "  python -m elo_exp experiment=store store.action=cancel",
            )
        return None

    def collect(
        self, opened: OpenBatch, remote: RemoteBatch
    ) -> Iterator[tuple[str, R | ResultRow]]:
        """Yield every result of a batch that has ended. A file that is cut short is read again, and never made up for."""
        read_keys: set[str] = set()
        for _ in range(_MAX_RESULT_READS):
            problem = ""
            unreadable: list[UnreadablePart] = []
            try:
                yield from self._read_results(opened, remote, read_keys, unreadable)
            except UnreachableError as error:
                problem = str(error)
            missing = [key for key in opened.names if key not in read_keys]
            problem = ", and ".join(
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
                self._open.close(opened)
                return
            self._clock.sleep(self._model.batch_settings.poll_initial_seconds)
        titles = [" ".join(map(str, opened.names[key].values())) for key in missing[:3]]
        raise ServerError(
            f"In batch {remote.batch_id}, only {len(read_keys)} of {len(opened.names)} results can be read. They are stored.",
            f"  The cause: {problem or 'the file ends early'}",
            f"  Missing: {', '.join(titles)}{', ...' * (len(missing) > 3)}",
            "  The same command reads the results again. It submits nothing again.",
            *repay_hint(opened.batch),
        )

    def _read_results(
        self,
        opened: OpenBatch,
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
        opened: OpenBatch,
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
                dollars = self._open.price_completion(opened.batch, completion)
                answer = self._record(
                    key, opened.names[key], completion, dollars, row.message
                )
                storable_json(answer.to_dict())
            except PARSE_ERRORS as error:
                why = f"cannot be parsed ({type(error).__name__}: {error})"
                unreadable.append(
                    UnreadablePart(location=f"the answer to {key}", reason=why)
                )
                continue
            self.hits[key] = completion.usage.get("cache_read_tokens", 0) > 0
            results[key] = _Result(row=row, answer=answer, dollars=dollars)
        return results

    def _commit_results(
        self, opened: OpenBatch, results: "Mapping[str, _Result[R]]"
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
            self._model.budget.spent += dollars.get(key, 0.0)
            if key in max_costs:
                self._model.budget.reserve(f"{batch.nonce} {key}", max_costs[key])
                self._ledger.store.usage.dollars_at_most += max_costs[key]
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
