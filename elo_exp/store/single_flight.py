"""Each answer is made once, by one of the processes that want it; the others wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from elo_exp.progress import note
from elo_exp.records import Record
from elo_exp.store.claims import Claims
from elo_exp.store.store import Store

PAUSE_SECONDS = 1.0  # between two looks at what another process is making

R = TypeVar("R", bound=Record)
Wanted = TypeVar("Wanted")


def share(
    wanted: Mapping[str, Wanted],
    store: Store,
    *,
    record: type[R],
    key: Callable[[R], str],
    make: Callable[[Mapping[str, Wanted], Claims], Iterator[R]],
    failed: Collection[str],
    what: str,
    endpoint: str | None = None,
) -> Iterator[R]:
    """Claim and make what nobody else is making, then wait for the others. What a dead process has
    left is made here.

    wanted         by the key of its answer in the store
    make           the answers to what is claimed, each committed
    failed         the keys that `make` has found to have no answer
    what           plural noun for the answers
    endpoint       of the batches that may have been left under way; None for answers without
                   batches
    """
    if not wanted:
        return
    waiting = dict(wanted)
    with Claims(store) as claims:
        while waiting:
            mine = {
                name: waiting[name]
                for name in claims.take(list(waiting), endpoint=endpoint)
            }
            for answer in make(mine, claims):
                waiting.pop(key(answer), None)
                yield answer
            for name in failed:
                waiting.pop(name, None)
            for name, answer in store.get(record, list(waiting)).items():
                waiting.pop(name)
                yield answer
            if waiting:
                holders = claims.holders(list(waiting))
                note(f"waiting for {len(waiting)} {what} that others make: {holders}")
                time.sleep(PAUSE_SECONDS)


def get_or_create(
    wanted: Mapping[str, Wanted],
    store: Store,
    *,
    record: type[R],
    key: Callable[[R], str],
    make: Callable[[Sequence[Wanted]], Iterator[R]],
    what: str,
) -> Iterator[R]:
    """Share what takes hours and is not billed: each answer is committed as it is made, and what
    `make` leaves out has no answer."""
    failed: set[str] = set()

    def create(mine: Mapping[str, Wanted], claims: Claims) -> Iterator[R]:
        unanswered = set(mine)
        for answer in store.keep(make(list(mine.values())), key=key):
            unanswered.discard(key(answer))
            yield answer
        failed.update(unanswered)

    return share(
        wanted, store, record=record, key=key, make=create, failed=failed, what=what
    )
