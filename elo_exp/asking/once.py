"""Each query is paid for once, by one of the processes that want its answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from elo_exp.asking.batches import summary
from elo_exp.asking.claims import Claims
from elo_exp.asking.services import Clock
from elo_exp.progress import note
from elo_exp.records import JudgeReply, JudgeRequest
from elo_exp.store import Store

logger = logging.getLogger(__name__)

Pay = Callable[[Sequence[JudgeRequest], Claims, dict[str, str]], Iterator[JudgeReply]]


def answer_once(
    requests: Sequence[JudgeRequest],
    store: Store,
    *,
    pay: Pay,
    endpoint: str | None,
    clock: Clock,
    pause_seconds: float,
) -> Iterator[JudgeReply]:
    """Claim and pay for what nobody else is paying for; then wait for the others.

    pay       what answers the queries that are claimed, committing each answer; it notes, by key, why one has none
    endpoint  of the batches that may have been left under way; None for a judge without batches
    """
    waiting = {request.key: request for request in requests}
    failed: dict[str, str] = {}
    with Claims(store) as claims:
        while waiting:
            mine = [waiting[key] for key in claims.take(list(waiting), endpoint=endpoint)]
            for reply in pay(mine, claims, failed):
                waiting.pop(reply.key, None)
                yield reply
            for key in failed:
                waiting.pop(key, None)
            for key, reply in store.get(JudgeReply, list(waiting)).items():
                waiting.pop(key)
                yield reply
            if waiting:
                note(f"waiting for {len(waiting)} verdicts that others pay for: {claims.holders(list(waiting))}")
                clock.sleep(pause_seconds)
    if failed:
        logger.warning("warning: %s", summary(failed))
