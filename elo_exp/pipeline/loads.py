"""One load for all who answer with the same weights."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from elo_exp.entrants import Entrant, LoadedEntrant

E = TypeVar("E", bound=Entrant)
R = TypeVar("R")


def by_load(entrants: Mapping[str, E], work: Callable[[str], R]) -> dict[str, R]:
    """What `work` makes of each entrant, by name, in the entrants' order.

    Those with equal weights come one after the other, the loads by the order in which they are
    first wanted, and the weights go when the last of them is done.
    """
    groups: dict[Hashable, list[str]] = {}
    for name, entrant in entrants.items():
        weights = entrant.weights if isinstance(entrant, LoadedEntrant) else None
        groups.setdefault(weights, []).append(name)
    made: dict[str, R] = {}
    for names in groups.values():
        try:
            made.update((name, work(name)) for name in names)
        finally:
            if isinstance(last := entrants[names[-1]], LoadedEntrant):
                last.release()
    return {name: made[name] for name in entrants}
