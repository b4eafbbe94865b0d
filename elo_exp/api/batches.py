"""Queries answered in batches: submit, wait, retry; nothing is paid twice, and nothing past the budget.

Before a batch leaves, the ledger knows of it. Where the server's answer is lost, none of its queries is submitted
again until it is certain that the batch did not arrive; collector.py looks for it.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from elo_exp import progress
from elo_exp.api.collector import Collector, Unanswered
from elo_exp.api.costs import money
from elo_exp.api.services import (
    NO_CONNECTION,
    BatchTools,
    DoubtfulError,
    RefusedError,
    UnreachableError,
    has_run_dry,
    no_hope,
)
from elo_exp.records import JudgeReply, JudgeRequest, UserError
from elo_exp.store.ledger import CANCELLED, Batch, Query
from elo_exp.store.processes import check_lifeline

logger = logging.getLogger(__name__)

MAX_RETRIES = 3  # of a request that failed in a way that may pass
_PASSING = frozenset(
    {"expired", "canceled", "api_error", "overloaded_error", "rate_limit_error", "timeout_error"}
)
_FAILED_SHARE, _FAILED_COUNT = 0.05, 20  # more than this, and at least so many: the run stops


class BatchRun:
    """One process's work on the queries that it has claimed. `failed` says why a query has no answer."""

    def __init__(self, tools: BatchTools) -> None:
        self._tools = tools
        self._wanted: dict[str, JudgeRequest] = {}
        self._collector = Collector(tools, self._wanted)
        self._queue: deque[JudgeRequest] = deque()
        self._attempts: Counter[str] = Counter()
        self._submitted: set[str] = set()  # nonces of this run's own batches
        self._chunk_size = tools.settings.chunk_size
        self._interval = tools.settings.poll_initial_seconds
        self._not_before = 0.0  # the server has asked to wait until then
        self._started = tools.clock.elapsed()
        self._lost = ""  # why the last result came without an answer, and may have been billed
        self.ttl: str | None = None  # of the prompt cache; None: no breakpoint
        self.failed: dict[str, str] = {}

    def answer(
        self, requests: Sequence[JudgeRequest], *, measure_cache: bool = False
    ) -> Iterator[JudgeReply]:
        """The answers as they come, each committed. A request without one is in `failed`."""
        self._wanted.update({request.key: request for request in requests})
        pending = self._tools.ledger.pending()
        self._queue = deque(request for request in requests if request.key not in pending)
        for batch in self._tools.ledger.under_way():
            if batch.endpoint == self._tools.service.endpoint:
                self._collector.follow(batch)
        try:
            if measure_cache:
                yield from self._warm_and_measure()
            while self._queue or self._collector.open:
                self._fill()
                yield from self._look()
        except KeyboardInterrupt:
            if self._collector.open:
                logger.warning(
                    "warning: %d batches stay under way on the server. The same command collects them; to end them: "
                    "experiment=store store.action=cancel", len(self._collector.open),
                )  # fmt: skip
            raise

    # ---- the prompt cache -------------------------------------------------------------------------------------------

    def _warm_and_measure(self) -> Iterator[JudgeReply]:
        """The first query of each prefix alone, so that its prefix is in the cache before the many; then a first chunk,
        whose share of hits decides how the rest asks for the cache."""
        firsts = firsts_of(self._queue)
        if len(self._queue) <= 2 * len(firsts):
            self.ttl = None
            self._tools.ledger.usage.cache = "none: too few requests for a cache to pay"
            return
        for request in firsts:
            self._queue.remove(request)
            yield from self._alone([request])
        measured = [
            self._queue.popleft() for _ in range(min(self._chunk_size // 2, len(self._queue)))
        ]
        keys = {request.key for request in measured}
        hits: list[bool] = []
        for reply in self._alone(measured):
            if reply.key in keys:
                hits.append(reply.usage.get("cache_read_tokens", 0) > 0)
            yield reply
        if hits:
            self._decide(sum(hits) / len(hits), len(hits))

    def _alone(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        """These before everything that waits in the queue, until they are settled."""
        rest, self._queue = self._queue, deque(requests)
        earlier = set(self._collector.open)
        while self._queue or set(self._collector.open) - earlier:
            self._fill()
            yield from self._look()
        self._queue = rest

    def _decide(self, hit_rate: float, n: int) -> None:
        asked, self.ttl = self.ttl, self._tools.judge.best_ttl(hit_rate)
        wording = {
            None: "no cache from here on",
            "5m": "the 5-minute cache",
            "1h": "the 1-hour cache",
        }
        decision = (
            f"{wording[self.ttl]}: {hit_rate:.0%} of {n} requests found the prefix in the cache"
        )
        self._tools.ledger.usage.cache = decision
        if self.ttl == asked:
            logger.info("prompt cache: %s", decision)
        else:
            logger.warning(
                "warning: prompt cache: %s. Fewer than the %s cache pays for.", decision, asked
            )

    # ---- submitting -------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Submit what the budget has room for."""
        while self._queue and self._tools.clock.elapsed() >= self._not_before:
            check_lifeline()
            some = list(islice(self._queue, self._chunk_size))
            fitting = self._tools.budget.fits(
                [self._tools.judge.reserve(request, self.ttl) for request in some]
            )
            if fitting < len(some) and self._collector.open:
                return  # what is under way makes room when it is settled
            if not fitting:
                raise UserError(self._over_budget(some[0]))
            if not self._submit(some[:fitting]):
                return

    def _over_budget(self, request: JudgeRequest) -> str:
        dearest = self._tools.judge.reserve(request, self.ttl)
        return (
            f"{self._tools.judge.budget_setting}: {self._tools.budget.state(self._lost)}, the next request may cost "
            f"${dearest:.4f}, and {len(self._queue)} are left. Every answer so far is stored; the same command with a "
            "higher cap goes on."
        )

    def _submit(self, requests: list[JudgeRequest]) -> bool:
        """Whether the server was asked, and did not refuse."""
        try:
            high_water = self._tools.service.newest()
        except UnreachableError as error:
            progress.note(
                f"{self._tools.service.endpoint} cannot be reached ({error}); trying again"
            )
            return False
        batch = self._intend(requests, high_water)
        if batch is None:
            return False
        some = [self._queue.popleft() for _ in range(batch.size)]
        self._collector.follow(batch)
        self._submitted.add(batch.nonce)
        body = [
            {"custom_id": batch.custom_id(r.key), "params": self._tools.judge.params(r, self.ttl)}
            for r in some
        ]
        try:
            remote = self._tools.service.create(body)
        except RefusedError as refusal:
            self._collector.drop(batch, str(refusal))
            self._queue.extendleft(reversed(some))
            self._refused(refusal, len(some))
            return False
        except DoubtfulError as doubt:
            logger.warning(
                "warning: no answer to a submission of %d requests (%s): looking for it",
                batch.size,
                doubt,
            )
            self._collector.doubt(batch)
        else:
            self._collector.accepted(batch, remote.batch_id)
        self._interval = self._tools.settings.poll_initial_seconds
        return True

    def _intend(self, requests: list[JudgeRequest], high_water: str | None) -> Batch | None:
        """The intent in the ledger, of one request fewer for as long as an unresolved batch has the same size."""
        for size in range(len(requests), 0, -1):
            batch = self._tools.ledger.intend(
                [self._query(request) for request in requests[:size]],
                endpoint=self._tools.service.endpoint,
                judge_model=self._tools.judge.model,
                reserve=sum(
                    self._tools.judge.reserve(request, self.ttl) for request in requests[:size]
                ),
                ttl=self.ttl,
                high_water=high_water,
                now=self._tools.clock.wall(),
            )
            if batch is not None:
                return batch
        return None

    def _query(self, request: JudgeRequest) -> Query:
        return Query(
            key=request.key, names={**request.names, "judge_model": self._tools.judge.model}
        )

    def _refused(self, refusal: RefusedError, size: int) -> None:
        if why := no_hope("the judge's API", refusal):
            raise UserError(f"{why} {self._left()}")
        if refusal.status == 413 and size > 1:
            self._chunk_size = size // 2
            logger.info(
                "the server takes no batch of %d requests; going on with %d", size, self._chunk_size
            )
        elif refusal.status == NO_CONNECTION:
            progress.note(
                f"{self._tools.service.endpoint} cannot be reached ({refusal}); trying again"
            )
        elif refusal.status == 429:
            wait = refusal.retry_after or self._tools.settings.poll_initial_seconds
            self._not_before = self._tools.clock.elapsed() + wait
            logger.info("the server asks to wait %.0f s before the next batch", wait)
        else:
            raise UserError(
                f"the judge's API refuses the batch ({refusal.status}): {refusal}. {self._left()}"
            )

    def _left(self) -> str:
        budget = self._tools.budget
        spent = (
            f"{money(budget.spent, beside=budget.cap)} spent so far"
            if budget.spent
            else "Nothing was spent"
        )
        return f"{spent}; every answer is stored, and the same command goes on."

    # ---- waiting ----------------------------------------------------------------------------------------------------

    def _look(self) -> Iterator[JudgeReply]:
        """What has come of the batches under way; a wait where nothing has."""
        before = set(self._collector.open)
        dry = ""
        for found in self._collector.look():
            if isinstance(found, Unanswered):
                dry = self._retry_or_fail(found) or dry
            elif (
                found.key in self._wanted
            ):  # a batch that was taken over may hold what this run did not ask for
                yield found
        if dry:  # and not before every result has been taken in, or the next run would stumble over the rest
            raise UserError(f"the judge's account has run dry ({dry}). {self._left()}")
        stop_if_many(self.failed, len(self._wanted), self._left())
        if set(self._collector.open) == before and (before or self._queue):
            progress.note(self._state())
            self._tools.clock.sleep(
                self._interval * random.uniform(0.8, 1.2)
            )  # many clients should not ask in step
            self._interval = min(self._interval * 1.5, self._tools.settings.poll_max_seconds)

    def _retry_or_fail(self, query: Unanswered) -> str | None:
        """Queue it again, or count it among the failed. The words of the error where it says that there is no money."""
        if (request := self._wanted.get(query.key)) is None:
            return None
        if query.outcome is None or (
            query.nonce not in self._submitted and query.outcome != CANCELLED
        ):
            self._queue.append(
                request
            )  # what failed in an earlier run's batch gets its chance in this one
            return None
        cause = f"{query.outcome}: {query.detail}" if query.detail else query.outcome
        self._lost = cause if query.may_cost else self._lost
        self._attempts[query.key] += 1
        if query.outcome in _PASSING and self._attempts[query.key] <= MAX_RETRIES:
            self._queue.append(request)
        else:
            self.failed[query.key] = cause
        return cause if has_run_dry(query.outcome, query.detail) else None

    def _state(self) -> str:
        clock, batches, took = (
            self._tools.clock,
            self._collector.open.values(),
            self._collector.took,
        )
        now = clock.wall()
        minutes = (clock.elapsed() - self._started) / 60
        wait = self._not_before - clock.elapsed()
        end = "expected within the hour"
        if took:
            oldest = min((batch.created_at for batch in batches), default=now)
            end = f"expected at {_time_of_day(max(now, oldest + sum(took) / len(took)))}"
        elif not batches and wait > 0:
            end = f"the server asks to wait until {_time_of_day(now + wait)}"
        n = len(batches)
        return (
            f"{sum(batch.size for batch in batches):,} requests under way in {n} batch{'es' if n != 1 else ''}, "
            f"{len(self._queue):,} to submit; {minutes:.0f} min, {self._tools.budget.spent_of_cap} spent; {end}"
        )


def _time_of_day(seconds: float) -> str:
    return time.strftime("%H:%M", time.localtime(seconds))


def stop_if_many(failed: Mapping[str, str], n_wanted: int, advice: str) -> None:
    """Raise UserError where so many queries have failed for good that something is wrong with all of them."""
    if len(failed) >= _FAILED_COUNT and len(failed) > _FAILED_SHARE * n_wanted:
        raise UserError(f"{summary(failed)}. {advice}")


def summary(failed: Mapping[str, str]) -> str:
    """How many queries have no answer, and what most of them died of."""
    (cause, count), *_ = Counter(failed.values()).most_common(1)
    return f"{len(failed)} queries have failed for good; {count} of them: {cause}"


def firsts_of(requests: Iterable[JudgeRequest]) -> list[JudgeRequest]:
    """The first request of each prefix."""
    return list({request.system: request for request in reversed(list(requests))}.values())[::-1]
