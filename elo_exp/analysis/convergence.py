"""How far permutation Elo has come to the ratings that it converges to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import integrate

from elo_exp.arrays import Array
from elo_exp.ratings.bradley_terry import (
    POINTS,
    abilities,
    strongest_component,
    win_probability,
)
from elo_exp.ratings.leaderboard import CONVERGED
from elo_exp.records import Record

LARGEST_K = 64.0  # beyond it a single match moves a rating too far
_FAR = 20.0  # rating points from the mean: a share of a shorter way says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence(Record):
    """Shares of the limit that the mean Elo over permutations reaches at K."""

    dimension: str
    k: float
    spread: float  # of the gap between first and last
    slowest: str  # the model that has gone the smallest share of its way
    slowest_share: float
    sufficient_k: float | None  # at which all have gone 95 %; None: none up to 64


def convergence(
    wins: Array, models: tuple[str, ...], *, k: float, dimension: str
) -> Convergence | None:
    """Compare Elo at K with its limit, the Bradley-Terry ratings of the same matches.

    The mean over permutations follows dr_i / dK = sum_j (w_ij - n_ij p_ij(r)) from r = 0, one
    equation for every K. None without matches, or where a model's limit is not finite.

    wins  (m, m): how often i scored against j in the matches that Elo plays
    """
    m = len(models)
    if m < 2 or not strongest_component(wins).all():
        return None
    limit = POINTS * abilities(wins)
    first, last = int(limit.argmax()), int(limit.argmin())
    if limit[first] - limit[last] < _FAR:
        return None
    n_matches = wins + wins.T

    def slope(_: float, rating: Array) -> Array:
        expected = n_matches * win_probability(rating / POINTS)
        return np.asarray((wins - expected).sum(axis=1))

    grid = np.unique(np.append(np.geomspace(0.5, LARGEST_K, 200), k))
    path = integrate.solve_ivp(
        slope, (0.0, grid[-1]), np.zeros(m), method="LSODA", t_eval=grid, rtol=1e-6
    ).y.T
    far = np.abs(limit) > _FAR if (np.abs(limit) > _FAR).any() else limit == limit.max()
    shares = np.where(far, path / np.where(far, limit, 1.0), np.inf)
    at = int(np.searchsorted(grid, k))
    slowest = int(shares[at].argmin())
    enough = np.flatnonzero((shares.min(axis=1) >= CONVERGED) & (grid <= LARGEST_K))
    return Convergence(
        dimension=dimension,
        k=k,
        spread=float((path[at, first] - path[at, last]) / (limit[first] - limit[last])),
        slowest=models[slowest],
        slowest_share=float(shares[at, slowest]),
        sufficient_k=float(grid[enough[0]]) if len(enough) else None,
    )
