"""Maximum-likelihood Bradley-Terry from counts, and how sure one may be of it.

Letters: i, j of m models; p of the pairs i < j that met; g games; q of n clusters; wins_ij how often i beat j, a tie
counting half for each. Abilities are natural-log odds; one unit is 400 / ln 10 = 173.7 rating points.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from elo_exp.records import WINNERS, Battle, UserError

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
POINTS = 400.0 / math.log(10.0)  # rating points in one unit of log-odds
_MAX_STEPS = 200
_CONVERGED = 1e-9  # a Newton step so small, in log-odds, leaves an error of its square
_LONGEST_STEP = (
    3.0  # log-odds: a longer one ends on a plateau, where the curvature says nothing any more
)
_LARGEST_GAP = 700.0  # log-odds whose exponential is still a number
# The score of model_a; None where there is no verdict.
_SCORE: dict[str | None, float]
_SCORE = {"model_a": 1.0, "model_b": 0.0, "tie": 0.5, "tie (bothbad)": 0.5, None: math.nan}


@dataclass(frozen=True, slots=True, kw_only=True)
class Games:
    """Games as columns: `first` scored `score` against `second`. Games of one cluster depend on one another."""

    n_models: int
    first: Index  # (g,)
    second: Index  # (g,)
    score: Array  # (g,): 1, 1/2 or 0
    cluster: Index  # (g,): 0 .. n_clusters - 1, none of them empty
    questions: tuple[
        str | None, ...
    ] = ()  # (n,) what each cluster is about; (): no cluster has a name
    models: tuple[str, ...] = ()  # (m,) what they are called; (): they have no names

    @property
    def n_clusters(self) -> int:
        return int(self.cluster.max(initial=-1)) + 1

    def clusters_met(self) -> Index:
        """(m,): in how many clusters each model plays."""
        m, n = self.n_models, self.n_clusters
        if n == len(self.score):
            return np.bincount(self.first, minlength=m) + np.bincount(self.second, minlength=m)
        keys = np.unique(
            np.concatenate([self.cluster * m + self.first, self.cluster * m + self.second])
        )
        return np.bincount(keys % m, minlength=m)

    @property
    def place(self) -> Index:
        """(g,): i m + j, where a game of i, the first, against j stands in a matrix (m, m)."""
        return self.first * self.n_models + self.second

    def wins(self) -> Array:
        """wins_ij (m, m): how often i beat j, a tie counting half for each."""
        place = self.place
        won, played = (sums(place, terms, self.n_models) for terms in (self.score, None))
        return won + (played - won).T

    def ties(self) -> Array:
        """ties_ij = ties_ji (m, m): how often i and j tied."""
        tied = sums(self.place, (self.score == 0.5).astype(np.float64), self.n_models)
        return tied + tied.T

    def among(self, chosen: Mask) -> Games:
        """The games among the chosen models (m,); these and the clusters that are left are numbered anew."""
        if chosen.all():
            return self
        kept = chosen[self.first] & chosen[self.second]
        number = np.cumsum(chosen) - 1
        left = np.bincount(self.cluster[kept], minlength=self.n_clusters) > 0
        return Games(
            n_models=int(chosen.sum()),
            first=number[self.first[kept]],
            second=number[self.second[kept]],
            score=self.score[kept],
            cluster=(np.cumsum(left) - 1)[self.cluster[kept]],
            questions=tuple(q for q, stays in zip(self.questions, left, strict=True) if stays)
            if self.questions
            else (),
            models=tuple(itertools.compress(self.models, chosen)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The pairs that met, and what each game says of its pair: `code` is 3 p + 0, 1 or 2 where the first of pair p
    lost, tied or won."""

    first: Index  # (p,)
    second: Index  # (p,), the larger number
    code: Index  # (g,)
    counts: Array  # (p, 3): how often the first lost, tied and won


def games(battles: Sequence[Battle], models: Sequence[str] | None = None, *, use: str) -> Games:
    """The games of battles. `use` both: two games where both orders were asked; consistent: the reconciled winner.

    models  which number each has; by default all that take part are numbered as sorted
    The battles on one question are one cluster; a battle without a question is one by itself. Raises UserError for a
    winner that is none and for a model that meets itself.
    """
    once = games_of_columns(
        *(
            list(map(attrgetter(name), battles))
            for name in ("model_a", "model_b", "winner", "question_id")
        ),
        models=models,
    )
    if use != "both":
        return once
    ab, ba = (
        _scores(name, map(attrgetter(name), battles), len(battles))
        for name in ("verdict_ab", "verdict_ba")
    )
    twice = np.isfinite(ab) & np.isfinite(ba)
    battle = np.repeat(np.arange(len(battles)), 1 + twice)
    score = np.where(twice, ab, once.score)[battle]
    second_game = np.flatnonzero(battle[1:] == battle[:-1]) + 1
    score[second_game] = ba[battle[second_game]]
    return Games(
        n_models=once.n_models,
        first=once.first[battle],
        second=once.second[battle],
        score=score,
        cluster=once.cluster[battle],
        questions=once.questions,
        models=once.models,
    )


def games_of_columns(
    model_a: Sequence[str],
    model_b: Sequence[str],
    winner: Sequence[str],
    question: Sequence[str | None] | None = None,
    *,
    models: Sequence[str] | None = None,
) -> Games:
    """One game for each row, from columns of names; the models and the clusters are as in `games`."""
    n = len(winner)
    number = _new_numbers() if models is None else {name: i for i, name in enumerate(models)}
    first, second = _numbers(model_a, number), _numbers(model_b, number)
    if models is None:
        models = sorted(number)
        place = np.argsort(_numbers(models, number))
        first, second = place[first], place[second]
    score = _scores("winner", winner, n)
    if np.isnan(score).any():
        raise UserError(f"winner: found none. Expected one of {', '.join(WINNERS)}.")
    if (first == second).any():
        raise UserError(
            f"{model_a[int(np.argmax(first == second))]!r} battles itself. Expected two different models."
        )
    cluster, questions = _clusters(question, n)
    return Games(
        n_models=len(models),
        first=first,
        second=second,
        score=score,
        cluster=cluster,
        questions=questions,
        models=tuple(models),
    )


def results(battle: Battle, *, use: str) -> tuple[str, ...]:
    """The results of a battle that count as games: both orders where both were asked, else the winner."""
    if use == "both" and battle.verdict_ab is not None and battle.verdict_ba is not None:
        return battle.verdict_ab, battle.verdict_ba
    return (battle.winner,)


def _scores(name: str, winners: Iterable[str | None], n: int) -> Array:
    """Of model_a, NaN for None. Raises UserError for anything that is no winner's name: it is never a silent tie."""
    try:
        return np.fromiter(map(_SCORE.__getitem__, winners), np.float64, n)
    except KeyError as error:
        raise UserError(
            f"{name}: found {error.args[0]!r}. Expected one of {', '.join(WINNERS)}."
        ) from None


def _clusters(
    question: Sequence[str | None] | None, n: int
) -> tuple[Index, tuple[str | None, ...]]:
    """Numbers in the order of first appearance (n,), and the question of each."""
    if question is None:
        return np.arange(n), ()
    number = _new_numbers()
    cluster = _numbers(question, number)
    if None not in number:
        return cluster, tuple(number)
    if len(number) == 1:
        return np.arange(n), ()
    number = _new_numbers()
    cluster = _numbers([t if q is None else q for t, q in enumerate(question)], number)
    return cluster, tuple(key if isinstance(key, str) else None for key in number)


def _new_numbers() -> dict[Any, int]:
    """Gives 0, 1, 2 ... to the keys that it is asked for, in this order."""
    return defaultdict(itertools.count().__next__)


def _numbers(keys: Sequence[Any], number: Mapping[Any, int]) -> Index:
    return np.fromiter(map(number.__getitem__, keys), np.intp, len(keys))


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
