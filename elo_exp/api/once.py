"""Each answer is made and paid for once, by one of the processes that want it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from elo_exp.api.batches import summary
from elo_exp.api.services import Clock
from elo_exp.progress import note
from elo_exp.records import JudgeReply, JudgeRequest, Record
from elo_exp.store.claims import Claims
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0  # between two looks at what another process is making
Pay = Callable[[Sequence[JudgeRequest], Claims, dict[str, str]], Iterator[JudgeReply]]
R = TypeVar("R", bound=Record)
Wanted = TypeVar("Wanted")


def made_once(
    wanted: Mapping[str, Wanted],
    store: Store,
    *,
    record: type[R],
    key: Callable[[R], str],
    make: Callable[[Mapping[str, Wanted], Claims], Iterator[R]],
    failed: Collection[str],
    what: str,
    endpoint: str | None,
    clock: Clock,
    pause_seconds: float,
) -> Iterator[R]:
    """Claim and make what nobody else is making; then wait for the others. What a dead process has left is made here.

    wanted    by the key of its answer in the store
    make      the answers to what is claimed, each committed
    failed    the keys that `make` has found to have no answer
    what      the answers are, in words
    endpoint  of the batches that may have been left under way; None for answers without batches
    """
    if not wanted:
        return
    waiting = dict(wanted)
    with Claims(store) as claims:
        while waiting:
            mine = {name: waiting[name] for name in claims.take(list(waiting), endpoint=endpoint)}
            for answer in make(mine, claims):
                waiting.pop(key(answer), None)
                yield answer
            for name in failed:
                waiting.pop(name, None)
            for name, answer in store.get(record, list(waiting)).items():
                waiting.pop(name)
                yield answer
            if waiting:
                note(
                    f"waiting for {len(waiting)} {what} that others make: {claims.holders(list(waiting))}"
                )
                clock.sleep(pause_seconds)


def kept_once(
    wanted: Mapping[str, Wanted],
    store: Store,
    *,
    record: type[R],
    key: Callable[[R], str],
    make: Callable[[Sequence[Wanted]], Iterator[R]],
    what: str,
) -> Iterator[R]:
    """What takes hours or money and no batches: each answer is committed as it is made. What `make` leaves out has no
    answer."""
    failed: set[str] = set()

    def keep(mine: Mapping[str, Wanted], claims: Claims) -> Iterator[R]:
        unanswered = set(mine)
        for answer in store.keep(make(list(mine.values())), key=key):
            unanswered.discard(key(answer))
            yield answer
        failed.update(unanswered)

    return made_once(
        wanted,
        store,
        record=record,
        key=key,
        make=keep,
        failed=failed,
        what=what,
        endpoint=None,
        clock=Clock(),
        pause_seconds=_PAUSE_SECONDS,
    )


def answer_once(
    requests: Sequence[JudgeRequest],
    store: Store,
    *,
    pay: Pay,
    endpoint: str | None,
    clock: Clock,
    pause_seconds: float,
) -> Iterator[JudgeReply]:
    """A judge's replies, each paid for once.

    pay       what answers the queries that are claimed, committing each answer; it notes, by key, why one has none
    endpoint  of the batches that may have been left under way; None for a judge without batches
    """
    failed: dict[str, str] = {}
    yield from made_once(
        {request.key: request for request in requests},
        store,
        record=JudgeReply,
        key=lambda reply: reply.key,
        make=lambda mine, claims: pay(list(mine.values()), claims, failed),
        failed=failed,
        what="answers",
        endpoint=endpoint,
        clock=clock,
        pause_seconds=pause_seconds,
    )
    if failed:
        logger.warning("warning: %s", summary(failed))
