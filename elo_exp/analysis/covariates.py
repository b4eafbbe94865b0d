"""Bradley-Terry with more columns: logit P(i beats j) = theta_i - theta_j + sum_k effect_k x_k, and prompt-clustered
errors. Letters: m models, g games, k columns, n clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elo_exp.arrays import Array, Index
from elo_exp.ratings.games import Games
from elo_exp.statistics.likelihood import bounded, mean_zero, strongest_component
from elo_exp.statistics.sandwich import clustered_scores

_MAX_STEPS = 100
_CONVERGED = 1e-9  # a Newton step so small leaves an error of its square
_NO_MAXIMUM = (
    25.0  # log-odds of one game: no game is as certain unless the maximum lies at infinity
)
_NOT_TOLD_APART = (
    1e-9  # of a column's sum of squares: what rounding leaves of one that the models explain
)
_NO_VARIATION = (
    1e-12  # of the variance of independent games: what rounding leaves of scores that are zero
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Abilities and effects at the maximum, in log-odds. NaN: a model without a finite ability, or an error of which
    the clusters do not tell."""

    theta: Array  # (m,), mean zero
    effects: Array  # (k,)
    covariance: Array  # (m + k, m + k)
    n_games: int  # among the models with an ability
    n_clusters: int

    @property
    def std_errors(self) -> Array:
        """(m + k,)"""
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))


def fit(games: Games, columns: Array) -> Fit | None:
    """Bradley-Terry with columns (g, k), each oriented towards the first of its game, by maximum likelihood.

    The abilities are those of the strongest component, as without columns. None where there is no finite maximum, or no
    single one: no games, a column that decides every game, one that the models explain or that the others do.
    """
    m, k = games.n_models, columns.shape[1]
    if not len(games.score):
        return None
    rated = strongest_component(games.wins())
    played = games.among(rated)
    x = columns[rated[games.first] & rated[games.second]]
    now = _maximum(played, x) if rated.any() and _are_told_apart(played, x) else None
    if now is None:
        return None
    theta = np.full(m, np.nan)
    theta[rated] = now[: played.n_models]
    covariance = np.full((m + k, m + k), np.nan)
    places = np.append(np.flatnonzero(rated), m + np.arange(k))
    covariance[np.ix_(places, places)] = _clustered_covariance(now, played, x)
    return Fit(
        theta=theta,
        effects=now[played.n_models :],
        covariance=covariance,
        n_games=len(played.score),
        n_clusters=played.n_clusters,
    )


def _maximum(games: Games, x: Array) -> Array | None:
    """Abilities, mean zero, then effects (m + k,): Newton's method with step halving."""
    m = games.n_models
    now = np.zeros(m + x.shape[1])
    gap = np.zeros(len(x))
    for _ in range(_MAX_STEPS):
        p = _sigmoid(gap)
        slope = _by_parameter(games, x, games.score - p)
        curvature = _information(games, x, p * (1.0 - p)) + mean_zero(m, len(now))
        step = bounded(np.linalg.solve(curvature, slope))
        value = _log_likelihood(gap, games.score)
        while _log_likelihood(
            moved := _gaps(now + step, games, x), games.score
        ) < value - 1e-9 * abs(value):
            step /= 2.0
        now, gap = now + step, moved
        if np.abs(gap).max() > _NO_MAXIMUM:
            return None
        if np.abs(step).max() < _CONVERGED:
            now[:m] -= now[:m].mean()
            return now
    return None


def _are_told_apart(games: Games, x: Array) -> bool:
    """Whether no combination of the columns is one of abilities, or zero."""
    m = games.n_models
    norm = np.sqrt((x**2).sum(axis=0))
    if not (norm > 0).all():
        return False
    gram = _information(games, x / norm, np.ones(len(x))) + mean_zero(m, m + x.shape[1])
    left = gram[m:, m:] - gram[m:, :m] @ np.linalg.solve(gram[:m, :m], gram[:m, m:])
    return bool(np.linalg.eigvalsh(left).min(initial=1.0) > _NOT_TOLD_APART)


def _clustered_covariance(now: Array, games: Games, x: Array) -> Array:
    """As `likelihood.sandwich`, but that abilities of which the clusters do not tell leave the effects their errors: a
    judge that never names the same entrant twice may still prefer a position more on one prompt than on another."""
    m, n, size = games.n_models, games.n_clusters, len(now)
    if n < 2:
        return np.full((size, size), np.nan)
    p = _sigmoid(_gaps(now, games, x))
    residual = games.score - p
    of_cluster = np.array(
        [np.bincount(games.cluster, weights=residual * column) for column in x.T]
    )  # (k, n)
    scores = np.empty((size, size))
    scores[:m, :m] = clustered_scores(games, residual)
    for k, of_column in enumerate(of_cluster, start=m):
        with_column = residual * of_column[games.cluster]
        scores[:m, k] = scores[k, :m] = _by_model(games, with_column)
    scores[m:, m:] = of_cluster @ of_cluster.T
    level = mean_zero(m, size)
    bread = np.linalg.inv(_information(games, x, p * (1.0 - p)) + level) - level
    found = n / (n - 1) * bread @ scores @ bread
    shown, expected = np.diag(found), _NO_VARIATION * np.diag(bread)
    untold = shown <= expected
    untold[:m] = shown[:m].sum() <= expected[:m].sum()
    found[untold, :] = np.nan
    found[:, untold] = np.nan
    return np.asarray(found)


def _gaps(parameters: Array, games: Games, x: Array) -> Array:
    return np.asarray(
        parameters[games.first] - parameters[games.second] + x @ parameters[games.n_models :]
    )


def _sigmoid(gap: Array) -> Array:
    return np.asarray((1.0 + np.tanh(gap / 2.0)) / 2.0)


def _log_likelihood(gap: Array, score: Array) -> float:
    return float((score * gap - np.logaddexp(0.0, gap)).sum())


def _by_model(games: Games, slope: Array) -> Array:
    """(m,): the sum over games of slope_g (e_first - e_second)."""
    gained, lost = (
        np.bincount(side, weights=slope, minlength=games.n_models)
        for side in (games.first, games.second)
    )
    return np.asarray(gained - lost)


def _by_parameter(games: Games, x: Array, slope: Array) -> Array:
    return np.concatenate([_by_model(games, slope), slope @ x])


def _information(games: Games, x: Array, weight: Array) -> Array:
    """sum_g weight_g d_g d_g' (m + k, m + k), d_g being the row of the game: +1, -1 and its columns."""
    m = games.n_models
    found = np.zeros((m + x.shape[1],) * 2)
    met = np.bincount(games.first * m + games.second, weights=weight, minlength=m * m).reshape(m, m)
    met = met + met.T
    found[:m, :m] = np.diag(met.sum(axis=1)) - met
    for k, column in enumerate(x.T, start=m):
        found[:m, k] = found[k, :m] = _by_model(games, weight * column)
    found[m:, m:] = x.T @ (weight[:, None] * x)
    return found


def mean_error(influence: Array, cluster: Index, weight: Array | None = None) -> float | None:
    """The clustered standard error of a mean of which each row moves the estimate by influence / rows.

    None where the clusters do not differ: there is one, or the influences of each add up to zero.
    """
    weight = np.ones(len(influence)) if weight is None else weight
    names, number = np.unique(cluster, return_inverse=True)
    of_cluster = np.bincount(number, weights=influence * weight)
    n = len(names)
    if n < 2 or (of_cluster**2).sum() <= _NO_VARIATION * weight.sum():
        return None
    return math.sqrt(n / (n - 1) * float((of_cluster**2).sum())) / float(weight.sum())
