"""Scores of items, such as of a benchmark's questions, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from elo_exp.arrays import Array, Index
from elo_exp.records import UserError


class Score(NamedTuple):
    """One score of one entrant; several of the same item, such as epochs, are draws."""

    dimension: str  # the scorer or metric
    entrant: str
    item: str
    cluster: (
        str  # items of one cluster are dependent; the item itself where there are none
    )
    value: float | None  # None: missing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """Scores of n items by m entrants in one dimension, the mean of each item's draws."""

    entrants: tuple[str, ...]  # (m,) sorted
    value: Array  # (n, m); NaN where every draw is missing
    cluster: Index  # (n,)
    n_missing: int  # draws


def by_dimension(rows: Sequence[Score]) -> dict[str, Scores]:
    """Average the draws of each item. Raises UserError for an item in two clusters."""
    return {
        name: _columns(name, [row for row in rows if row.dimension == name])
        for name in dict.fromkeys(row.dimension for row in rows)
    }


def _columns(dimension: str, rows: Sequence[Score]) -> Scores:
    _, names, every_item, clusters, values = zip(*rows, strict=True)
    entrants, entrant = np.unique(names, return_inverse=True)
    items, item = np.unique(every_item, return_inverse=True)
    _, code = np.unique(clusters, return_inverse=True)
    cluster = np.zeros(len(items), dtype=np.intp)
    cluster[item] = code
    if (differs := cluster[item] != code).any():
        name = items[item[differs.argmax()]]
        raise UserError(
            f"{dimension}: found item {str(name)!r} in two clusters. Expected one for all entrants."
        )
    value = np.array(values, dtype=np.float64)
    is_known, n_cells = ~np.isnan(value), len(items) * len(entrants)
    cell = (item * len(entrants) + entrant)[is_known]
    n_draws = np.bincount(cell, minlength=n_cells)
    total = np.bincount(cell, value[is_known], n_cells)
    mean = np.where(n_draws, total / np.maximum(n_draws, 1), np.nan)
    return Scores(
        entrants=tuple(entrants.tolist()),
        value=mean.reshape(len(items), len(entrants)),
        cluster=cluster,
        n_missing=int((~is_known).sum()),
    )
