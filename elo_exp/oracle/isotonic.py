"""Isotonic regression, and how its fitted values depend on what they were fitted to.

Letters: n observations at k distinct places, in blocks of one fitted value each; r places where the fit is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elo_exp.statistics.likelihood import Array, Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Isotonic:
    """A monotone fit: straight lines between its knots, flat outside them."""

    knots: Array  # (k,) distinct x, ascending
    levels: Array  # (k,) fitted values
    block: Index  # (k,) of equal level, from 0
    knot: Index  # (n,) of each observation
    share: Array  # (n,) its weight over that of its block

    def __call__(self, x: Array) -> Array:
        return np.interp(x, self.knots, self.levels)

    def pull(self, x: Array, u: Array) -> Array:
        """(n,) by how much sum_r u_r f(x_r) moves with each y, the blocks staying as they are.

        Exact: f is an average of the y of one block, or of two between their knots, so that u . f(x) = pull(x, u) . y.
        """
        k = len(self.knots)
        right = (
            np.clip(np.searchsorted(self.knots, x), 1, max(k - 1, 1))
            if k > 1
            else np.zeros(len(x), dtype=np.intp)
        )
        left = np.maximum(right - 1, 0)
        gap = self.knots[right] - self.knots[left]
        way = np.clip(
            np.divide(x - self.knots[left], gap, out=np.zeros(len(x)), where=gap > 0), 0.0, 1.0
        )
        at_knot = np.bincount(left, u * (1 - way), k) + np.bincount(right, u * way, k)
        return np.bincount(self.block, at_knot)[self.block[self.knot]] * self.share


def fit(x: Array, y: Array, weight: Array | None = None, *, increasing: bool = True) -> Isotonic:
    """The monotone function of x that is closest to y in weighted least squares; observations at one x count as one.

    Pool adjacent violators: Barlow et al. (1972). Linear but for the sorting.
    """
    weight = np.ones(len(x)) if weight is None else weight
    knots, knot = np.unique(x, return_inverse=True)
    total = np.bincount(knot, weight, len(knots)).astype(float)
    mean = np.bincount(knot, weight * y, len(knots)) / total
    sizes, levels = _pool(mean if increasing else -mean, total)
    block = np.repeat(np.arange(len(sizes)), sizes)
    level = levels[block] if increasing else -levels[block]
    share = weight / np.bincount(block, total)[block[knot]]
    return Isotonic(knots=knots, levels=level, block=block, knot=knot, share=share)


def _pool(mean: Array, weight: Array) -> tuple[Index, Array]:
    """How many neighbours share a level, and the levels, ascending."""
    levels: list[float] = []
    weights: list[float] = []
    sizes: list[int] = []
    for value, w in zip(mean.tolist(), weight.tolist(), strict=True):
        level, total, size = value, w, 1
        while levels and levels[-1] >= level:
            before = weights.pop()
            level = (levels.pop() * before + level * total) / (before + total)
            total += before
            size += sizes.pop()
        levels.append(level)
        weights.append(total)
        sizes.append(size)
    return np.array(sizes, dtype=np.intp), np.array(levels)
