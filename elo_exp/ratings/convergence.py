"""How far the mean Elo over permutations has come on its way to the ratings it converges to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from elo_exp.arrays import Array
from elo_exp.ratings.fit import (
    POINTS_PER_LOG_ODDS,
    find_strongest_component,
    fit_abilities,
    win_probability,
)
from elo_exp.records import Record

# Each model must have covered this share of the distance to its limit
MIN_CONVERGED_SHARE = 0.95
# With a larger K, a single match moves a rating too far
MAX_K = 64.0
# From the mean; a share of a shorter way is noise.
_MIN_DISTANCE_POINTS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Record):
    """Shares of the limit that the mean Elo reaches at one K."""

    convergence: float  # of the gap between first and last
    slowest: str  # the model that has gone the smallest share of its way
    slowest_share: float

    @property
    def is_converged(self) -> bool:
        return self.slowest_share >= MIN_CONVERGED_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """Where Elo leads with small K and many passes, and how far it has come at each K.

    limit         ratings by model; empty where one is not finite: it takes the mean along for ever
    by_k          empty without a limit, or where its first and last are within 20 points
    sufficient_k  at which every model has gone 95% of its way; None: none up to 64
    """

    limit: Mapping[str, float]
    by_k: Mapping[float, Progress] = field(default_factory=dict)
    sufficient_k: float | None = None


def measure_convergence(
    wins: Array, models: Sequence[str], *, ks: Sequence[float], initial_rating: float
) -> Convergence:
    """Compare Elo at every K with its limit, the Bradley-Terry ratings of the same matches.

    The mean over permutations follows dr_i / dK = sum_j (w_ij - n_ij p_ij(r)) from r = 0, one
    equation for all K.

    Parameters
    ----------
    wins : Array, shape (m, m)
        How often i scored against j in the matches that Elo plays, a tie as half.
    models : sequence of str
        m names.
    ks : sequence of float
        Values of K to report, in rating points.
    initial_rating : float
        Rating points of the mean.

    Returns
    -------
    Convergence
        Without a limit where one is not finite.
    """
    from scipy import integrate  # a tenth of a second

    m = len(models)
    if not m or not find_strongest_component(wins).all():
        return Convergence(limit={})
    limit = POINTS_PER_LOG_ODDS * fit_abilities(wins)
    by_model = dict(zip(models, (initial_rating + limit).tolist(), strict=True))
    best, worst = int(limit.argmax()), int(limit.argmin())
    if limit[best] - limit[worst] < _MIN_DISTANCE_POINTS:
        return Convergence(limit=by_model)
    n_matches = wins + wins.T

    def slope(_: float, rating: Array) -> Array:
        expected = n_matches * win_probability(rating / POINTS_PER_LOG_ODDS)
        return np.asarray((wins - expected).sum(axis=1))

    grid = np.unique(np.append(np.geomspace(0.5, MAX_K, 200), ks))
    path = integrate.solve_ivp(
        slope, (0.0, grid[-1]), np.zeros(m), method="LSODA", t_eval=grid, rtol=1e-6
    ).y.T
    is_far = np.abs(limit) >= min(_MIN_DISTANCE_POINTS, np.abs(limit).max())
    shares = np.where(is_far, path / np.where(is_far, limit, 1.0), np.inf)
    spread = (path[:, best] - path[:, worst]) / (limit[best] - limit[worst])
    slowest = shares.argmin(axis=1)
    by_k = {
        k: Progress(
            convergence=float(spread[i]),
            slowest=models[slowest[i]],
            slowest_share=float(shares[i, slowest[i]]),
        )
        for k, i in zip(ks, np.searchsorted(grid, ks), strict=True)
    }
    sufficient = np.flatnonzero(
        (shares.min(axis=1) >= MIN_CONVERGED_SHARE) & (grid <= MAX_K)
    )
    sufficient_k = float(grid[sufficient[0]]) if len(sufficient) else None
    return Convergence(limit=by_model, by_k=by_k, sufficient_k=sufficient_k)
