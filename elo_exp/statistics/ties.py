"""Paired comparisons in which a tie is a third outcome: one likelihood for every such model.

Letters: i, j of m models; p of the pairs i < j that met; g games; o the outcome of a game for i: lost, tied, won. A
model of ties says how likely each outcome is, given the gap theta_i - theta_j in log-odds and one tie parameter that
all pairs share. That parameter is held as a logarithm, which is what makes the likelihoods concave.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from elo_exp.data.battles import models
from elo_exp.records import Battle
from elo_exp.results import Leaderboard
from elo_exp.statistics.boards import leaderboard, why_unrated
from elo_exp.statistics.likelihood import (
    Array,
    Games,
    Pairs,
    bounded,
    bradley_terry_mle,
    games,
    mean_zero,
    pairs,
    strongest_component,
)
from elo_exp.statistics.sandwich import clustered_covariance, clustered_scores, sandwich

_MAX_STEPS = 200
_CONVERGED = 1e-9  # a Newton step so small leaves an error of its square


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The log-probability of each outcome, and its derivatives by the gap and by the log tie parameter: each (p, o)."""

    value: Array
    by_gap: Array
    by_tie: Array
    by_gap_twice: Array
    by_gap_and_tie: Array
    by_tie_twice: Array


class TieModel(Protocol):
    symbol: str  # of the tie parameter
    never: float  # its logarithm where nobody ties: the lower end of its range

    def start(self, tie_share: float) -> float:
        """The log tie parameter at which equals tie this often, above 0 and below 1."""

    def curves(self, gap: Array, tie: float) -> Curves:
        """At gaps (p,) and a log tie parameter above `never`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """Of models that have finite abilities together: abilities in log-odds, mean zero, and the log tie parameter."""

    theta: Array  # (m,)
    tie: float
    covariance: Array  # (m + 1, m + 1), prompt-clustered, the tie parameter last; NaN where the prompts do not say


def rate(
    battles: Mapping[str, Sequence[Battle]],
    model: TieModel,
    *,
    method: str,
    label: str,
    initial_rating: float,
    use: str,
) -> dict[str, Leaderboard]:
    """A leaderboard by dimension, its intervals by the prompt-clustered sandwich.

    Its parameters are the tie parameter (`nu`, say), its standard error (`nu_std_error`) and the share of games that
    two equals tie (`p_tie_equal`). Without a tie the parameter is at the end of its range and has no error. Where every
    game is a tie it has no finite estimate and is left out; the ratings are equal, and how sure that is cannot be told.

    A model without a finite rating is flagged as in Bradley-Terry. Where results never contradict one another, as when
    of two models one has won and tied but never lost, the likelihood grows for ever as gaps and ties grow together.
    Then nobody has a rating: unbeaten is who never lost, winless who never won, and the others are `separated`.
    """
    return {
        dimension: _leaderboard(
            some, model, method=method, label=label, initial_rating=initial_rating, use=use
        )
        for dimension, some in battles.items()
        if some
    }


def _leaderboard(
    battles: Sequence[Battle],
    model: TieModel,
    *,
    method: str,
    label: str,
    initial_rating: float,
    use: str,
) -> Leaderboard:
    every = games(battles, models(battles), use=use)
    wins, ties = every.wins(), every.ties()
    rated = strongest_component(wins)
    flags = why_unrated(wins)
    among = np.ix_(rated, rated)
    if rated.any() and is_separated(wins[among] - ties[among] / 2.0, ties[among]):
        flags |= {i: _why_separated(wins - ties / 2.0, i) for i in np.flatnonzero(rated).tolist()}
        rated = np.zeros_like(rated)
    played = every.among(rated)
    fit = _fit(played, model) if rated.any() else None
    n_rated = int(rated.sum())
    return leaderboard(
        battles,
        fit.theta if fit else np.zeros(0),
        fit.covariance[:n_rated, :n_rated] if fit else np.zeros((0, 0)),
        method=method,
        label=label,
        initial_rating=initial_rating,
        flags=flags,
        played=played,
        rated=rated,
        n_matches=len(every.score),
        parameters=_parameters(fit, model) if fit else {},
    )


def _why_separated(won: Array, i: int) -> str:
    return "unbeaten" if not won[:, i].any() else "winless" if not won[i].any() else "separated"


def _parameters(fit: _Fit, model: TieModel) -> dict[str, float]:
    if fit.tie == math.inf:
        return {}
    value = math.exp(fit.tie)
    error = value * float(np.sqrt(np.maximum(fit.covariance[-1, -1], 0.0)))  # the delta method
    p_tie_equal = (
        math.exp(model.curves(np.zeros(1), fit.tie).value[0, 1]) if fit.tie > model.never else 0.0
    )
    known = {model.symbol: value, f"{model.symbol}_std_error": error, "p_tie_equal": p_tie_equal}
    return {name: number for name, number in known.items() if math.isfinite(number)}


def is_separated(won: Array, ties: Array) -> bool:
    """Whether the maximum lies at infinity although a chain of wins or ties leads from everyone to everyone.

    won, ties  (m, m) how often i beat j, and how often they tied
    Abilities a_i and the tie parameter can then grow together, a_i - a_j >= 1 wherever i beat j and |a_i - a_j| <= 1
    wherever they tied, and no outcome that was seen gets less likely. There are such a_i unless some cycle of results,
    from winner to loser or along a tie, has more wins than ties: a negative cycle of difference constraints (Bellman
    1958). Without ties there is always such a cycle, and without wins no ability is at stake.
    """
    if not ties.any() or not won.any() or (won.astype(bool) & won.T.astype(bool)).any():
        return False
    cost = np.where(won > 0, -1.0, np.where(ties > 0, 1.0, np.inf))
    lowest = np.zeros(len(won))
    for _ in range(len(won)):
        lower = np.minimum(lowest, (lowest[:, None] + cost).min(axis=0))
        if (lower == lowest).all():
            return True
        lowest = lower
    return False


def _fit(games: Games, model: TieModel) -> _Fit:
    wins, ties = games.wins(), games.ties()
    m = games.n_models
    covariance = np.full((m + 1, m + 1), np.nan)
    if (
        not ties.any()
    ):  # the tie parameter is at the end of its range, and what is left is Bradley-Terry
        theta = bradley_terry_mle(wins)
        covariance[:m, :m] = clustered_covariance(theta, games)
        return _Fit(theta=theta, tie=model.never, covariance=covariance)
    if (ties / 2.0 == wins).all():
        return _Fit(theta=np.zeros(m), tie=math.inf, covariance=covariance)
    met = pairs(games)
    theta, tie = _maximum(met, model, bradley_terry_mle(wins))
    return _Fit(
        theta=theta, tie=tie, covariance=_clustered_covariance(games, met, model, theta, tie)
    )


def _maximum(met: Pairs, model: TieModel, theta: Array) -> tuple[Array, float]:
    """Abilities, mean zero, and the log tie parameter: Newton's method with step halving, starting at `theta`."""
    m = len(theta)
    now = np.append(theta, model.start(float(met.counts[:, 1].sum() / met.counts.sum())))
    curves = _curves_at(now, met, model)
    for _ in range(_MAX_STEPS):
        curvature = _information(met, curves, m) + mean_zero(m, m + 1)
        step = bounded(np.linalg.solve(curvature, _gradient(met, curves, m)))
        while now[m] + step[m] <= model.never:
            step /= 2.0
        value = _log_likelihood(met, curves)
        while _log_likelihood(
            met, curves := _curves_at(now + step, met, model)
        ) < value - 1e-9 * abs(value):
            step /= 2.0
        now = now + step
        if np.abs(step).max() < _CONVERGED:
            break
    return now[:m] - now[:m].mean(), float(now[m])


def _curves_at(parameters: Array, met: Pairs, model: TieModel) -> Curves:
    return model.curves(parameters[met.first] - parameters[met.second], float(parameters[-1]))


def _clustered_covariance(
    games: Games, met: Pairs, model: TieModel, theta: Array, tie: float
) -> Array:
    """The sandwich (m + 1, m + 1) of abilities and log tie parameter; see `likelihood.sandwich`."""
    m = len(theta)
    curves = _curves_at(np.append(theta, tie), met, model)
    towards_first = np.where(games.first < games.second, 1.0, -1.0)
    by_gap = towards_first * curves.by_gap.ravel()[met.code]
    by_tie = curves.by_tie.ravel()[met.code]
    tie_score = np.bincount(games.cluster, weights=by_tie)
    with_tie = by_gap * tie_score[games.cluster]
    meat = np.empty((m + 1, m + 1))
    meat[:m, :m] = clustered_scores(games, by_gap)
    meat[:m, m] = np.bincount(games.first, weights=with_tie, minlength=m)
    meat[:m, m] -= np.bincount(games.second, weights=with_tie, minlength=m)
    meat[m, :m] = meat[:m, m]
    meat[m, m] = tie_score @ tie_score
    return sandwich(_information(met, curves, m), meat, n_models=m, n_clusters=games.n_clusters)


def _log_likelihood(met: Pairs, curves: Curves) -> float:
    return float(np.vdot(met.counts, curves.value))


def _gradient(met: Pairs, curves: Curves, m: int) -> Array:
    """By the abilities and the log tie parameter (m + 1,)."""
    by_gap = (met.counts * curves.by_gap).sum(axis=1)
    gradient = np.bincount(met.first, weights=by_gap, minlength=m + 1)
    gradient -= np.bincount(met.second, weights=by_gap, minlength=m + 1)
    gradient[m] = np.vdot(met.counts, curves.by_tie)
    return np.asarray(gradient, dtype=np.float64)


def _information(met: Pairs, curves: Curves, m: int) -> Array:
    """The negative second derivative (m + 1, m + 1) of the log-likelihood."""
    found = np.zeros((m + 1, m + 1))
    of_pair = (met.counts * curves.by_gap_twice).sum(axis=1)
    found[met.first, met.second] = of_pair
    found[met.second, met.first] = of_pair
    np.fill_diagonal(found, -found.sum(axis=1))
    with_tie = (met.counts * curves.by_gap_and_tie).sum(axis=1)
    found[:m, m] = np.bincount(met.second, weights=with_tie, minlength=m)
    found[:m, m] -= np.bincount(met.first, weights=with_tie, minlength=m)
    found[m, :m] = found[:m, m]
    found[m, m] = -np.vdot(met.counts, curves.by_tie_twice)
    return found
