"""A judge's replies: from the store where it has them, else from the judge, paid for once.

From `ask` to the wire a reader passes api/batches or api/requests, then the provider's module.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Any

from elo_exp.api.batches import Batcher
from elo_exp.api.jobs import Completion, Job, Message, summary
from elo_exp.api.requests import RequestPool
from elo_exp.api.transport import UnreachableError
from elo_exp.files import utc_now
from elo_exp.judges import BatchJudge, Judge, OfflineJudge, PaidJudge
from elo_exp.pipeline.generating import report_missing
from elo_exp.pipeline.planning import Plan, first_ttl, plan, plan_table, spend
from elo_exp.progress import track
from elo_exp.records import Comparison, Item, JudgeReply, JudgeRequest, UserError
from elo_exp.store.claims import Claims
from elo_exp.store.ledger import CANCELLED, Ledger, unresolved
from elo_exp.store.single_flight import share
from elo_exp.store.store import Store
from elo_exp.store.usage import Usage

logger = logging.getLogger(__name__)

_CACHES = {
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
    allow_missing: bool = False,
    what: str = "verdicts",
) -> dict[str, JudgeReply]:
    """Return the replies by key; equal requests are made once.

    The plan is shown before a paid judge is asked. Raises UserError where its budget is too small,
    and where replies are missing, unless that is allowed or only the store is to be read.

    what  plural noun for what the replies hold
    """
    unique = {request.key: request for request in requests}
    replies = store.get(JudgeReply, list(unique))
    usage, n_stored = store.usage, len(replies)
    n_before = usage.judge_calls
    usage.verdicts_wanted += len(requests)
    usage.verdicts_distinct += len(unique)
    usage.verdicts_stored += n_stored
    wanted = [request for key, request in unique.items() if key not in replies]
    if stored_only:
        wanted = []
    if isinstance(judge, PaidJudge):
        if wanted:
            _check_before_paying(requests, wanted, replies, judge, store)
        new = _pay_once(wanted, judge, store)
    else:
        assert isinstance(judge, OfflineJudge)
        new = judge.answer(wanted, store)
    for reply in track(new, label=f"judging: {judge.model}", total=len(wanted)):
        # The store has the whole message.
        replies[reply.key] = dataclasses.replace(reply, message=None)
    logger.info(
        "%s: %s queries (%s distinct): %s new from %s, %s stored",
        what, f"{len(requests):,}", f"{len(unique):,}", f"{usage.judge_calls - n_before:,}",
        judge.model, f"{n_stored:,}",
    )  # fmt: skip
    if usage.dollars_at_most:
        logger.info("%s", spend(usage))
    if missing := [_name(r.subject) for r in requests if r.key not in replies]:
        usage.verdicts_missing += len(missing)
        again = "Ask again with the same command"
        report_missing(
            what,
            missing,
            len(requests),
            allow_missing or stored_only,
            hint=again if isinstance(judge, PaidJudge) else "Supply them",
        )
    return replies


def _name(subject: Comparison | Item) -> str:
    if isinstance(subject, Item):
        return f"{subject.entrant_id} on {subject.prompt_id}"
    return f"{subject.dimension} {subject.prompt_id} {' v '.join(subject.entrants)}"


def plan_replies(
    requests: Sequence[JudgeRequest],
    judge: Judge,
    store: Store,
    *,
    stored_only: bool = False,
) -> Plan:
    """Plan what `ask` would ask and pay."""
    stored = store.get(JudgeReply, list({request.key for request in requests}))
    under_way = Ledger(store).pending()
    return plan(requests, judge, stored, under_way, stored_only=stored_only)


def _check_before_paying(
    requests: Sequence[JudgeRequest],
    wanted: Sequence[JudgeRequest],
    stored: Collection[str],
    judge: PaidJudge,
    store: Store,
) -> None:
    """Show the plan. Raises UserError for what would stop the run after its first payment."""
    under_way = Ledger(store).pending()
    if any(request.key not in under_way for request in wanted):
        judge.preflight()
    found = plan(requests, judge, stored, under_way)
    logger.info("%s", plan_table(found))
    found.check(store.usage)


# Paying


def _pay_once(
    requests: Sequence[JudgeRequest], judge: PaidJudge, store: Store
) -> Iterator[JudgeReply]:
    is_batched = isinstance(judge, BatchJudge)
    assert is_batched or judge.transport == "messages"
    failed: dict[str, str] = {}

    def pay(mine: Mapping[str, Job], claims: Claims) -> Iterator[JudgeReply]:
        rest = dict(mine)
        if isinstance(judge, BatchJudge):
            ledger = Ledger(store, claims.owner)
            for reply in _in_batches(mine, judge, ledger, failed):
                rest.pop(reply.key, None)
                yield reply
            for key in ledger.pending() | failed.keys():
                rest.pop(key, None)
        if judge.transport == "messages" and rest:
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
    answer = {
        "key": key,
        "text": completion.text,
        "stop_reason": completion.stop_reason,
        "usage": completion.usage,
        "dollars": dollars or 0.0,
        "timestamp": utc_now(),
        "message": json.dumps(message),
    }
    return JudgeReply.from_dict({**names, **answer})


def _singly(
    jobs: Sequence[Job], judge: PaidJudge, claims: Claims, failed: dict[str, str]
) -> Iterator[JudgeReply]:
    """Send the first job of each prefix, which writes the prompt cache, before the others."""
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
    judge: BatchJudge,
    ledger: Ledger,
    failed: dict[str, str],
) -> Iterator[JudgeReply]:
    """Yield the replies of new batches, and of those that an earlier run has submitted."""
    batcher = _batcher(judge, ledger, jobs)
    try:
        if judge.transport == "batches":
            under_way = ledger.pending()
            new = [job for key, job in jobs.items() if key not in under_way]
            ttl = _first_ttl(new, judge, ledger.store.usage) if new else None
            if ttl is not None and judge.cache == "measured":
                ttl = yield from _warm_and_measure(
                    new, batcher, judge, ttl, ledger.store.usage
                )
            yield from batcher.run(list(jobs.values()), ttl)
        yield from batcher.drain()
    except KeyboardInterrupt:
        batcher.warn_of_open()
        raise
    failed.update(batcher.failed)


def _batcher(
    judge: BatchJudge, ledger: Ledger, jobs: Mapping[str, Job]
) -> Batcher[JudgeReply]:
    return Batcher(judge.api, judge, ledger, judge.batch_settings, _reply, jobs)


def _warm_and_measure(
    jobs: Sequence[Job],
    batcher: Batcher[JudgeReply],
    judge: BatchJudge,
    ttl: str,
    usage: Usage,
) -> Generator[JudgeReply, None, str | None]:
    """Run the first job of each prefix alone, so that the prefix is cached, then half a chunk.

    Its hit rate decides the time to live for the rest, which is returned.
    """
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
        if reply.key in keys:  # a batch of another process may bring others
            hits.append(reply.usage.get("cache_read_tokens", 0) > 0)
        yield reply
    if not hits:
        return ttl
    hit_rate = sum(hits) / len(hits)
    prices = judge.prices_of(judge.model)
    decided = prices.best_ttl(hit_rate) if prices else None
    share_of_hits = (
        f"{hit_rate:.0%} of {len(hits)} requests found the prefix in the cache"
    )
    usage.cache = f"{_CACHES[decided]}: {share_of_hits}"
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
    """The time to live to begin with; `usage` gets the reason for the report."""
    if judge.cache is None:
        return None
    ttl = first_ttl([job.request for job in jobs], judge)
    prices = judge.prices_of(judge.model)
    if ttl:
        usage.cache = f"{_CACHES[ttl]} ({ttl}), not measured"
    elif judge.cache == "none":
        usage.cache = "none: so it was chosen"
    else:
        n = prices.min_cacheable_tokens if prices else 0
        usage.cache = f"none: {judge.model} caches no prefix of fewer than {n} tokens"
    return ttl


# Batches that an earlier run has submitted


def collect(judge: BatchJudge, store: Store) -> None:
    """Wait for the batches under way and store their answers; submit nothing."""
    with Claims(store) as claims:
        ledger = Ledger(store, claims.owner)
        endpoint = judge.api.endpoint
        claims.take(sorted(ledger.pending(endpoint)), endpoint=endpoint)
        batcher = _batcher(judge, ledger, {})
        try:
            for _ in batcher.drain():
                pass
        except KeyboardInterrupt:
            batcher.warn_of_open()
            raise


def cancel(judge: BatchJudge, store: Store) -> int:
    """Ask the server to end the batches under way; return how many it has ended.

    A batch that may not have arrived has no id, and is only warned of. Raises UserError where there
    is no other.
    """
    ledger = Ledger(store)
    ours = [batch for batch in ledger.batches() if batch.endpoint == judge.api.endpoint]
    n_ended = 0
    for batch in ours:
        if batch.state != "submitted":
            continue
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
