"""Bradley-Terry with one more parameter that all games share: of ties, of position, of length.

Letters: g games; k of their kinds; m models. The likelihood depends on the gap theta_i - theta_j of
a game's models and on the parameter, and is concave in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from elo_exp.arrays import Array
from elo_exp.ratings.bradley_terry import mean_zero, newton, sandwich
from elo_exp.ratings.games import Games, Kinds, differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The log-likelihood (k,) of one game of each kind, and its derivatives."""

    value: Array
    by_gap: Array
    by_other: Array
    by_gap_twice: Array
    by_both: Array
    by_other_twice: Array


def fit_extended(
    played: Games,
    kinds: Kinds,
    curves: Callable[[Array, float], Curves | None],
    start: Array,
) -> tuple[Array, Array]:
    """Fit abilities, mean zero, and the other parameter (m + 1,), with their covariance.

    kinds   of the games
    curves  at gaps (k,) and the other parameter; None outside its range
    start   (m + 1,)
    Returns the maximum of the likelihood and the covariance (m + 1, m + 1), clustered by prompt.
    """
    m, count = played.n_models, np.bincount(kinds.order)
    level, ones = mean_zero(m, m + 1), np.ones(len(count))
    design = differences(
        np.arange(len(count)), kinds.first, kinds.second, ones, shape=(len(count), m)
    )

    def evaluate(parameters: Array) -> tuple[float, Array, Array]:
        there = curves(design @ parameters[:m], float(parameters[m]))
        if there is None:
            return -np.inf, parameters, level
        value = float(count @ there.value)
        gradient = np.append(design.T @ (count * there.by_gap), count @ there.by_other)
        bend = np.zeros((m + 1, m + 1))
        weight = sparse.diags_array(count * there.by_gap_twice)
        bend[:m, :m] = (design.T @ weight @ design).toarray()
        bend[:m, m] = bend[m, :m] = design.T @ (count * there.by_both)
        bend[m, m] = count @ there.by_other_twice
        return value, gradient, level - bend

    found, information = newton(start, evaluate)
    found[:m] -= found[:m].mean()
    there = curves(design @ found[:m], float(found[m]))
    assert there is not None
    first, second = kinds.first[kinds.order], kinds.second[kinds.order]
    by_cluster = replace(played, first=first, second=second).by_cluster(
        there.by_gap[kinds.order], there.by_other[kinds.order]
    )
    bread = np.linalg.inv(information) - level
    return found, sandwich(bread, by_cluster, m)
