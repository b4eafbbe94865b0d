"""Maximum-likelihood Bradley-Terry from counts, and how sure one may be of it.

Letters: i, j of m models; p of the pairs i < j that met; g games; q of n clusters; wins_ij how often i beat j, a tie
counting half for each. Abilities are natural-log odds; one unit is 400 / ln 10 = 173.7 rating points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elo_exp.arrays import Array, Index, Mask
from elo_exp.data.battles import Battles
from elo_exp.ratings.games import Games
from elo_exp.ratings.games import games as games_of
from elo_exp.records import Battle

POINTS = 400.0 / math.log(10.0)  # rating points in one unit of log-odds
_MAX_STEPS = 200
_CONVERGED = 1e-9  # a Newton step so small, in log-odds, leaves an error of its square
_LONGEST_STEP = (
    3.0  # log-odds: a longer one ends on a plateau, where the curvature says nothing any more
)
_LARGEST_GAP = 700.0  # log-odds whose exponential is still a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The pairs that met, and what each game says of its pair: `code` is 3 p + 0, 1 or 2 where the first of pair p
    lost, tied or won."""

    first: Index  # (p,)
    second: Index  # (p,), the larger number
    code: Index  # (g,)
    counts: Array  # (p, 3): how often the first lost, tied and won


def games(battles: Sequence[Battle], models: Sequence[str] | None = None, *, use: str) -> Games:
    """The games of battles, whose models are numbered as sorted."""
    return games_of(Battles.from_rows(battles), use=use)


def models(battles: Sequence[Battle]) -> tuple[str, ...]:
    return tuple(sorted({b.model_a for b in battles} | {b.model_b for b in battles}))


def results(battle: Battle, *, use: str) -> tuple[str, ...]:
    """The results of a battle that count as games: both orders where both were asked, else the winner."""
    if use == "both" and battle.verdict_ab is not None and battle.verdict_ba is not None:
        return battle.verdict_ab, battle.verdict_ba
    return (battle.winner,)


def pairs(games: Games) -> Pairs:
    m = games.n_models
    in_order = games.first < games.second
    key = np.where(in_order, games.first * m + games.second, games.second * m + games.first)
    met = np.flatnonzero(np.bincount(key, minlength=m * m))
    place = np.zeros(m * m, dtype=np.intp)
    place[met] = np.arange(len(met))
    score = np.where(in_order, games.score, 1.0 - games.score)
    code = 3 * place[key] + (2.0 * score).astype(np.intp)
    counts = np.bincount(code, minlength=3 * len(met)).reshape(-1, 3).astype(np.float64)
    return Pairs(first=met // m, second=met % m, code=code, counts=counts)


def abilities(wins: Array) -> Array:
    """Abilities (m,) in log-odds, mean zero; NaN for a model that has no finite one with the others."""
    rated = strongest_component(wins)
    found = np.full(len(wins), np.nan)
    if rated.any():
        found[rated] = bradley_terry_mle(wins[np.ix_(rated, rated)])
    return found


def strongest_component(wins: Array) -> Mask:
    """Which models (m,) have finite ratings together: the largest set in which a chain of wins or ties leads from
    everyone to everyone (Ford 1957). Of equally large sets, the one from which chains lead to the most models, that is
    the better one, then the one with the most games; of none of two, nobody."""
    reach = ((wins > 0) | np.eye(len(wins), dtype=bool)).astype(np.float32)
    while not reach.all():
        further = (reach @ reach > 0).astype(np.float32)
        if (further == reach).all():
            break
        reach = further
    together = (reach > 0) & (reach.T > 0)
    n_games = wins.sum(axis=1) + wins.sum(axis=0)
    size, size_in_games = together.sum(axis=1).tolist(), (together @ n_games).tolist()
    n_below = reach.sum(axis=1).tolist()
    best = max(range(len(wins)), key=lambda i: (size[i], n_below[i], size_in_games[i]))
    return np.asarray(together[best] & (size[best] > 1))


def bradley_terry_mle(wins: Array) -> Array:
    """Abilities (m,) in log-odds, mean zero, at which every model's expected wins equal its wins.

    wins  (m, m), every model reaching every other by wins or ties; else the maximum lies at infinity.
    Newton's method with step halving; Bradley and Terry (1952), Hunter (2004) for the likelihood's concavity.
    """
    m = len(wins)
    n_games = wins + wins.T
    theta = np.zeros(m)
    p = win_probability(theta)
    value = _log_likelihood(p, wins)
    for _ in range(_MAX_STEPS):
        gradient = (wins - n_games * p).sum(axis=1)
        step = bounded(np.linalg.solve(information(p, n_games) + mean_zero(m, m), gradient))
        while (
            moved := _log_likelihood(p := win_probability(theta + step), wins)
        ) < value - 1e-9 * abs(value):
            step /= 2.0
        theta, value = theta + step, moved
        if np.abs(step).max(initial=0.0) < _CONVERGED:
            break
    return np.asarray(theta - theta.mean())


def bounded(step: npt.NDArray[np.floating[Any]]) -> Array:
    """A Newton step no longer than its curvature can be trusted."""
    return np.asarray(step * (_LONGEST_STEP / np.abs(step).max(initial=_LONGEST_STEP)))


def win_probability(theta: Array) -> Array:
    """p_ij (m, m): that i beats j."""
    return np.asarray(
        1.0 / (1.0 + np.exp(np.minimum(theta[None, :] - theta[:, None], _LARGEST_GAP)))
    )


def information(p: Array, n_games: Array) -> Array:
    """The negative second derivative (m, m) of the log-likelihood; `n_games` (m, m) of each pair."""
    curvature = -n_games * p * (1.0 - p)
    np.fill_diagonal(curvature, 0.0)
    np.fill_diagonal(curvature, -curvature.sum(axis=1))
    return curvature


def _log_likelihood(p: Array, wins: Array) -> float:
    return float(np.vdot(wins, np.log(p)))


def mean_zero(n_models: int, n_parameters: int) -> Array:
    """What makes a curvature invertible, which does not say where the abilities' mean is: it is put at zero."""
    level = np.zeros((n_parameters, n_parameters))
    level[:n_models, :n_models] = 1.0 / max(n_models, 1)
    return level


def sums(place: Index, terms: Array | None, m: int) -> Array:
    """(m, m): the sum of the terms with place i m + j; None: how many there are."""
    return np.asarray(
        np.bincount(place, weights=terms, minlength=m * m).reshape(m, m), dtype=np.float64
    )
