"""The replies to a judge's requests: from the store where it has them, else asked, and paid for
once.

The way of a verdict to the wire: `ask`, then api/batches or api/requests, then the provider's
module in api.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Any

from elo_exp.api import planning
from elo_exp.api.batches import Batcher
from elo_exp.api.jobs import Completion, Job, Message, summary
from elo_exp.api.planning import Estimate, Plan
from elo_exp.api.requests import RequestPool
from elo_exp.api.transport import UnreachableError
from elo_exp.files import utc_now
from elo_exp.judges import BatchJudge, Judge, OfflineJudge, PaidJudge
from elo_exp.pipeline import bill
from elo_exp.progress import track
from elo_exp.records import JudgeReply, JudgeRequest, UserError
from elo_exp.store.claims import Claims
from elo_exp.store.ledger import CANCELLED, Ledger, unresolved
from elo_exp.store.single_flight import share
from elo_exp.store.store import Store
from elo_exp.store.usage import Usage

logger = logging.getLogger(__name__)

_ABOUT = ("dimension", "prompt_id", "entrant_a", "entrant_b")
_CACHE_WORDS = {
    "1h": "the 1-hour cache (1h), not measured",
    "5m": "the 5-minute cache (5m), not measured",
}
_DECISIONS = {
    None: "no cache from here on",
    "5m": "the 5-minute cache",
    "1h": "the 1-hour cache",
}


def ask(
    requests: Sequence[JudgeRequest],
    judge: Judge,
    store: Store,
    *,
    stored_only: bool = False,
    what: str = "verdicts",
    spent_usd: float = 0.0,
) -> dict[str, JudgeReply]:
    """The replies by key; equal requests are asked once. Before a judge that costs money is asked,
    the plan is shown. Raises UserError where its budget does not reach.

    what       plural noun for what the replies hold
    spent_usd  of the judge's cap, by the run so far
    """
    unique = {request.key: request for request in requests}
    replies = store.get(JudgeReply, list(unique))
    wanted = (
        []
        if stored_only
        else [request for key, request in unique.items() if key not in replies]
    )
    usage = store.usage
    n_before, n_stored = usage.judge_calls, len(replies)
    usage.verdicts_wanted += len(requests)
    usage.verdicts_distinct += len(unique)
    usage.verdicts_stored += n_stored
    if isinstance(judge, PaidJudge):
        if wanted:
            _check_before_paying(requests, replies, judge, store, spent_usd=spent_usd)
        new = _pay_once(wanted, judge, store)
    else:
        assert isinstance(judge, OfflineJudge)
        new = judge.answer(wanted, store)
    for reply in track(new, label=f"judging: {judge.model}", total=len(wanted)):
        replies[reply.key] = dataclasses.replace(
            reply, message=None
        )  # which the store has
    logger.info(
        "%s: %d wanted, %d of them distinct; %d asked of %s, %d from the store",
        what, len(requests), len(unique), usage.judge_calls - n_before, judge.model, n_stored,
    )  # fmt: skip
    if usage.dollars_at_most:
        logger.info("%s", bill.spend(usage))
    return replies


def plan(
    requests: Sequence[JudgeRequest],
    judge: Judge,
    store: Store,
    *,
    stored_only: bool = False,
    spent_usd: float = 0.0,
) -> Plan:
    """What `ask` would ask and pay."""
    stored = store.get(JudgeReply, list({request.key for request in requests}))
    under_way = Ledger(store).pending()
    return _plan(
        requests, stored, under_way, judge, stored_only=stored_only, spent_usd=spent_usd
    )


def _plan(
    requests: Sequence[JudgeRequest],
    stored: Collection[str],
    under_way: Collection[str],
    judge: Judge,
    *,
    stored_only: bool = False,
    spent_usd: float = 0.0,
) -> Plan:
    paid = judge if isinstance(judge, PaidJudge) else None
    return planning.plan(
        requests,
        stored,
        under_way,
        judge_model=judge.model,
        estimate=lambda some: planning.estimate(some, paid) if paid else Estimate(),
        budget_usd=paid.budget.cap if paid else None,
        budget_setting=paid.budget_setting if paid else planning.BUDGET_SETTING,
        stored_only=stored_only,
        spent_usd=spent_usd,
    )


def _check_before_paying(
    requests: Sequence[JudgeRequest],
    stored: Collection[str],
    judge: PaidJudge,
    store: Store,
    *,
    spent_usd: float,
) -> None:
    """Show the plan. Raises UserError for whatever would stop the run once it has begun to pay."""
    under_way = Ledger(store).pending()
    if any(
        request.key not in stored and request.key not in under_way
        for request in requests
    ):
        judge.preflight()
    found = _plan(requests, stored, under_way, judge, spent_usd=spent_usd)
    logger.info("%s", bill.plan_table(found))
    found.check(store.usage)


# ---- paying --------------------------------------------------------------------------------------


def _pay_once(
    requests: Sequence[JudgeRequest], judge: PaidJudge, store: Store
) -> Iterator[JudgeReply]:
    failed: dict[str, str] = {}

    def pay(mine: Mapping[str, Job], claims: Claims) -> Iterator[JudgeReply]:
        rest = dict(mine)
        if isinstance(judge, BatchJudge):
            ledger = Ledger(store, claims.owner)
            batcher = Batcher(
                judge.api, judge, ledger, judge.batch_settings, _reply, mine
            )
            try:
                for reply in _in_batches(mine, batcher, judge, ledger):
                    rest.pop(reply.key, None)
                    yield reply
            except KeyboardInterrupt:
                batcher.warn_of_open()
                raise
            failed.update(batcher.failed)
            elsewhere = ledger.pending() | failed.keys()
            rest = {key: job for key, job in rest.items() if key not in elsewhere}
        if judge.transport == "messages":
            yield from _singly(list(rest.values()), judge, claims, failed)

    jobs = {
        request.key: Job(
            key=request.key,
            names={**request.names, "judge_model": judge.model},
            request=request,
            prefix=request.system,
        )
        for request in requests
    }
    is_batched = isinstance(judge, BatchJudge)
    assert is_batched or judge.transport == "messages"
    yield from share(
        jobs,
        store,
        record=JudgeReply,
        key=lambda reply: reply.key,
        make=pay,
        failed=failed,
        what="answers",
        endpoint=judge.api.endpoint if is_batched else None,
        pause_seconds=judge.pause_seconds,
    )
    if failed:
        logger.warning("warning: %s", summary(failed))


def _reply(
    key: str,
    names: Mapping[str, Any],
    completion: Completion,
    dollars: float | None,
    message: Message,
) -> JudgeReply:
    return JudgeReply(
        key=key,
        text=completion.text,
        stop_reason=completion.stop_reason,
        usage=completion.usage,
        dollars=dollars or 0.0,
        timestamp=utc_now(),
        judge_model=names["judge_model"],
        message=json.dumps(message),
        **{name: names.get(name) for name in _ABOUT},  # type: ignore[arg-type]
    )


def _singly(
    jobs: Sequence[Job], judge: PaidJudge, claims: Claims, failed: dict[str, str]
) -> Iterator[JudgeReply]:
    """The first job of each prefix, which write the prompt cache, before the many that read it."""
    if not jobs:
        return
    ttl = _first_ttl(jobs, judge, claims.store.usage)
    pool = RequestPool(
        judge.api.send, judge, claims, _reply, concurrency=judge.concurrency
    )
    firsts = _firsts(jobs)
    try:
        yield from pool.run(firsts, ttl)
        yield from pool.run([job for job in jobs if job not in firsts], ttl)
    finally:
        failed.update(pool.failed)


def _in_batches(
    jobs: Mapping[str, Job],
    batcher: Batcher[JudgeReply],
    judge: BatchJudge,
    ledger: Ledger,
) -> Iterator[JudgeReply]:
    """The answers by batches, new ones and those that an earlier run has left under way."""
    if judge.transport == "batches":
        under_way = ledger.pending()
        new = [job for key, job in jobs.items() if key not in under_way]
        ttl = _first_ttl(new, judge, ledger.store.usage) if new else None
        if ttl is not None and judge.cache == "measured":
            ttl = yield from _warm_and_measure(new, batcher, judge, ttl, ledger)
        yield from batcher.run(list(jobs.values()), ttl)
    yield from batcher.drain()


def _warm_and_measure(
    jobs: Sequence[Job],
    batcher: Batcher[JudgeReply],
    judge: BatchJudge,
    ttl: str,
    ledger: Ledger,
) -> Generator[JudgeReply, None, str | None]:
    """Run the first job of each prefix alone, so that the prefix is cached, then a chunk, whose
    share of hits decides the time to live that the rest asks for."""
    usage = ledger.store.usage
    firsts = _firsts(jobs)
    if len(jobs) <= 2 * len(firsts):
        usage.cache = "none: too few requests for a cache to pay"
        return None
    for job in firsts:
        yield from batcher.run([job], ttl)
    rest = [job for job in jobs if job not in firsts]
    measured = rest[: judge.batch_settings.chunk_size // 2]
    keys = {job.key for job in measured}
    hits: list[bool] = []
    for reply in batcher.run(measured, ttl):
        if reply.key in keys:  # a batch that was taken over may bring others
            hits.append(reply.usage.get("cache_read_tokens", 0) > 0)
        yield reply
    if not hits:
        return ttl
    hit_rate = sum(hits) / len(hits)
    prices = judge.prices_of(judge.model)
    decided = prices.best_ttl(hit_rate) if prices else None
    usage.cache = (
        f"{_DECISIONS[decided]}: {hit_rate:.0%} of {len(hits)} requests found the "
        "prefix "
        "in the cache"
    )
    if decided == ttl:
        logger.info("prompt cache: %s", usage.cache)
    else:
        logger.warning(
            "warning: prompt cache: %s. Fewer than the %s cache pays for.",
            usage.cache,
            ttl,
        )
    return decided


def _firsts(jobs: Sequence[Job]) -> list[Job]:
    """The first job of each prefix."""
    return list({job.prefix: job for job in reversed(jobs)}.values())[::-1]


def _first_ttl(jobs: Sequence[Job], judge: PaidJudge, usage: Usage) -> str | None:
    """The time to live to begin with; the report says why."""
    if judge.cache is None:
        return None
    ttl = planning.first_ttl([job.request for job in jobs], judge)
    prices = judge.prices_of(judge.model)
    if judge.cache == "none":
        why = "so it was chosen"
    else:
        n = prices.min_cacheable_tokens if prices else 0
        why = f"{judge.model} caches no prefix of fewer than {n} tokens"
    usage.cache = _CACHE_WORDS[ttl] if ttl else f"none: {why}"
    return ttl


# ---- batches that an earlier run has left under way ----------------------------------------------


def collect(judge: BatchJudge, store: Store) -> None:
    """Wait for what is under way, and take it in; submit nothing."""
    with Claims(store) as claims:
        ledger = Ledger(store, claims.owner)
        endpoint = judge.api.endpoint
        claims.take(sorted(ledger.pending(endpoint)), endpoint=endpoint)
        batcher = Batcher(
            judge.api, judge, ledger, judge.batch_settings, _reply, jobs={}
        )
        try:
            for _ in batcher.drain():
                pass
        except KeyboardInterrupt:
            batcher.warn_of_open()
            raise


def cancel(judge: BatchJudge, store: Store) -> int:
    """Ask the server to end what is under way there; how many batches that was. What may not have
    arrived has no id to end it by: it is warned of, and a UserError where there is nothing else."""
    ledger = Ledger(store)
    ours = [batch for batch in ledger.batches() if batch.endpoint == judge.api.endpoint]
    n_ended = 0
    for batch in (batch for batch in ours if batch.state == "submitted"):
        try:
            if judge.api.cancel(str(batch.batch_id)):
                ledger.note(batch, CANCELLED)
                n_ended += 1
        except UnreachableError as error:
            raise UserError(
                f"{judge.api.endpoint} cannot be reached ({error}). {n_ended} batches were ended."
            ) from None
    if (left := unresolved(ours)) and not n_ended:
        raise UserError(left)
    if left:
        logger.warning("warning: %s", left)
    return n_ended
