"""How many pairs of entrants of known quality come out in the right order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from elo_exp.analysis.comparisons import Difference
from elo_exp.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOrder(Record):
    dimension: str
    models: tuple[str, ...]  # best first
    n_pairs: int
    n_recovered: int
    n_significant: int  # of those recovered


def known_order(
    models: Sequence[str], differences: Iterable[Difference], *, dimension: str
) -> KnownOrder:
    """Compare the pairs of `models`, which are given best first, with their ratings' differences."""
    pairs = set(combinations(models, 2))
    found = [
        d
        for d in differences
        if d.dimension == dimension
        and d.difference > 0
        and (d.higher, d.lower) in pairs
    ]
    return KnownOrder(
        dimension=dimension,
        models=tuple(models),
        n_pairs=len(pairs),
        n_recovered=len(found),
        n_significant=sum(bool(d.significant) for d in found),
    )
