"""Tests of differences whose points are bounded and may be skewed: a little better nearly everywhere, lost outright on
few prompts.

Student's t takes the spread of a sample for that of the population, which fails if the prompts that would show it are
too few to be drawn. Here one more prompt is taken to have come out as badly as a prompt can (`analysis.bounded`). What a
prompt says of a difference is its part of the efficient score under the hypothesis, which is linear in the points of its
games, so that its ends are known; for two entrants it is the share of points less one half. The test that the
difference is no larger than d has the p value P(sum_q E_q u_q <= 0) for independent exponential E_q [1]_, found by
the saddlepoint method [2]_, without draws. Letters: m models; q of n prompts; u their scores.

.. [1] N. Gaffke (2005), "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
   variable", Mathematical Methods of Statistics 14(4), 451-467.
.. [2] R. Lugannani and S. Rice (1980), "Saddle point approximation for the distribution of the sum of independent random
   variables", Advances in Applied Probability 12(2), 475-490.
"""

import itertools
import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import scipy

from elo_exp.arrays import Array, Index
from elo_exp.data.battles import Battles
from elo_exp.ratings.fit import (
    POINTS,
    abilities,
    information,
    mean_zero,
    newton,
    strongest_component,
    win_probability,
)
from elo_exp.ratings.games import Games, games, kinds
from elo_exp.ratings.leaderboard import BoundedTests, Leaderboard, degrees_of_freedom
from elo_exp.types import Orders

ALPHA = 0.05  # two-sided: a pair that t does not tell apart at it is not tested
_TAIL = 0.025  # beyond each end of an interval
_FARTHEST = 30.0  # log-odds
_MIN_PROMPTS = 2
_MOST_MODELS = 60  # all of whose pairs are tested
_MOST_WORK = 100_000_000  # pairs times games
_ROUNDING = 1e-10  # of two variances: what is left of the zero variance of a difference
_LEAST_ERROR = 1e-4  # rating points: an error below it is rounding

_SMALL = 1e-5  # standard errors from the mean, within which the saddlepoint has a limit
_ZERO = 1e-12  # of the largest score: what rounding leaves of zero


def chance_of_mean_below_zero(
    values: Array, least: float, count: Array | None = None
) -> float:
    """Return the p value of the hypothesis that bounded values have a mean of zero or less.

    Parameters
    ----------
    values : Array, shape (n,)
        Independent values.
    least : float
        The least that a value can be, below zero.
    count : Array, shape (n,), optional
        How many values each stands for; None: one.

    Returns
    -------
    float
        In [0, 1], one-sided; 1 if no value is above zero.

    Examples
    --------
    Of 20 values all are at their greatest: exactly 2 ** -20.

    >>> round(chance_of_mean_below_zero(np.full(20, 0.5), -0.5) * 2**20, 1)
    1.0
    """
    number = np.ones(len(values)) if count is None else np.asarray(count, float)
    u = np.append(np.asarray(values, dtype=np.float64), least)
    number = np.append(number, 1.0)
    scale = float(np.abs(u).max(initial=0.0))
    if scale == 0.0:
        return 1.0
    u = np.where(np.abs(u) <= _ZERO * scale, 0.0, u / scale)
    u, place = np.unique(u, return_inverse=True)
    number = np.bincount(place, number)
    u, number = u[u != 0.0], number[u != 0.0]
    if not (u > 0).any():
        return 1.0
    if not (u < 0).any():
        return 0.0

    from scipy.optimize import brentq

    def slope(t: float) -> float:
        return float((number * u / (1.0 - t * u)).sum())

    low, high = 1.0 / u[0], 1.0 / u[-1]
    inside = 1.0 - 1e-12
    t = brentq(slope, low * inside, high * inside, xtol=1e-15, rtol=1e-14)
    left = 1.0 - t * u
    value = -float((number * np.log(left)).sum())
    second = float((number * (u / left) ** 2).sum())
    w = math.copysign(math.sqrt(max(-2.0 * value, 0.0)), t)
    v = t * math.sqrt(second)
    if abs(w) < _SMALL or v == 0.0:
        third = 2.0 * float((number * (u / left) ** 3).sum())
        return 0.5 + third / float(6.0 * math.sqrt(2.0 * math.pi) * second**1.5)
    found = scipy.special.ndtr(w + math.log(v / w) / w)
    return min(max(float(found), 0.0), 1.0)


def scores_of_prompts(
    played: Games, theta: Array, direction: Array
) -> tuple[Array, float]:
    """Return what each prompt says in a direction of the abilities, and the least that one could.

    Parameters
    ----------
    played : Games
        Of m models.
    theta : Array, shape (m,)
        Abilities in log-odds.
    direction : Array, shape (m,)
        By which the scores of the models are weighted.

    Returns
    -------
    scores : Array, shape (rows,)
        Of each prompt, or of each of those alike.
    least : float
        What a prompt would say whose games all went against the direction.
    """
    weight = direction[played.first] - direction[played.second]
    p = win_probability(theta)[played.first, played.second]
    each = np.ones(len(p)) if played.on_each is None else played.on_each
    n = played.n_rows
    terms = each * weight * (played.score - p)
    scores = np.bincount(played.cluster, terms, n).astype(np.float64)
    worst = each * np.minimum(-weight * p, weight * (1.0 - p))
    return scores, float(np.bincount(played.cluster, worst, n).min(initial=0.0))


def p_value(
    played: Games, wins: Array, theta: Array, contrast: Array, difference: float = 0.0
) -> float:
    """Return the one-sided p value of the hypothesis that a contrast of abilities is no larger than a difference.

    Parameters
    ----------
    played : Games
        Of m models that have finite abilities together.
    wins : Array, shape (m, m)
        Of these games, a tie as half.
    theta : Array, shape (m,)
        The abilities, in log-odds.
    contrast : Array, shape (m,)
        Whose sum is zero.
    difference : float, default 0
        In log-odds.

    Returns
    -------
    float
        In [0, 1].
    """
    at = restricted(wins, theta, contrast, difference)
    n_games = wins + wins.T
    level = mean_zero(len(theta))
    bend = information(at, n_games) + level
    direction: Array = np.linalg.solve(bend, contrast).astype(np.float64)
    scores, least = scores_of_prompts(played, at, direction)
    count = None if played.alike is None else played.alike.astype(np.float64)
    return chance_of_mean_below_zero(scores, least, count)


def restricted(wins: Array, theta: Array, contrast: Array, difference: float) -> Array:
    """Fit abilities of which a contrast has a given value.

    Parameters
    ----------
    wins : Array, shape (m, m)
        A tie as half a win for each.
    theta : Array, shape (m,)
        The abilities without the restriction, in log-odds, where the search begins.
    contrast : Array, shape (m,)
        Whose sum is zero.
    difference : float
        Its value.

    Returns
    -------
    Array, shape (m,)
        In log-odds, mean zero.
    """
    m, n_games = len(theta), wins + wins.T
    offset = contrast * (difference / (contrast @ contrast))
    basis = np.linalg.qr(np.column_stack([contrast, np.eye(m)]))[0][:, 1:]
    level = mean_zero(m)

    def evaluate(x: Array) -> tuple[float, Array, Array]:
        at = basis @ x + offset
        value = np.vdot(wins, scipy.special.log_expit(at[:, None] - at))
        gradient = (wins - n_games * win_probability(at)).sum(axis=1)
        bend = information(at, n_games) + level
        return float(value), basis.T @ gradient, basis.T @ bend @ basis

    x, _ = newton(basis.T @ (theta - offset), evaluate)
    at = basis @ x + offset
    return np.asarray(at - at.mean())


def interval(
    played: Games, wins: Array, theta: Array, contrast: Array
) -> tuple[float, float]:
    """Return the differences that neither one-sided test rejects at 2.5 %.

    Parameters
    ----------
    played, wins, theta, contrast
        As of `p_value`.

    Returns
    -------
    low, high : float
        In log-odds; infinite beyond 30.
    """
    found = float(contrast @ theta)
    low = _end(played, wins, theta, contrast, found)
    return low, -_end(played, wins, theta, -contrast, -found)


def _end(
    played: Games, wins: Array, theta: Array, contrast: Array, found: float
) -> float:
    """The least difference that the test of no larger one does not reject."""
    from scipy.optimize import brentq

    def excess(difference: float) -> float:
        return p_value(played, wins, theta, contrast, difference) - _TAIL

    step = 0.25
    while excess(found - step) > 0.0:
        step *= 2.0
        if step > _FARTHEST:
            return -math.inf
    return float(brentq(excess, found - step, found, xtol=1e-9))


def with_bounded_tests(
    board: Leaderboard,
    battles: Battles,
    *,
    orders: Orders,
    baseline: str | None = None,
    only: Collection[str] = (),
) -> Leaderboard:
    """Add the bounded-mean tests of the pairs that Student's t tells apart, or for which it has no error.

    Parameters
    ----------
    board : Leaderboard
        Of these battles, with a covariance.
    battles : Battles
        That it rates.
    orders : {"both", "one", "reconciled"}
        Their games, as in its method.
    baseline : str, optional
        The model whose rating is fixed; None: the mean is.
    only : collection of str
        Two models, whose pair alone is tested; then no interval of a rating is replaced. Empty: all.

    Returns
    -------
    Leaderboard
        With `bounded`, and with intervals of ratings that are no longer of width zero. Of more than 60 models, or of so
        many games that all pairs would take minutes, the first is tested against all, and neighbours in rank are
        tested.
    """
    rated = np.flatnonzero(np.isfinite(board.rating))
    if board.covariance is None or len(rated) < 2 or board.n_prompts is None:
        return board
    all_games = games(battles, orders=orders)
    played = all_games.among(np.isfinite(board.rating))
    if played.n_clusters < 2 or not strongest_component(played.wins()).all():
        return board
    wins, played = played.wins(), _condensed(played)
    theta, m = abilities(wins), len(rated)
    tests = BoundedTests.nothing(len(board.models))
    every = itertools.combinations(range(m), 2)
    for i, j in every if only else _pairs(board, rated, played):
        a, b = rated[i], rated[j]
        if only and {board.models[a], board.models[b]} != {*only}:
            continue
        if min(board.n_prompts[a], board.n_prompts[b]) < _MIN_PROMPTS:
            continue
        p_t, excludes_zero = _by_t(board, a, b)
        if p_t is not None and p_t > ALPHA:
            continue
        contrast = np.zeros(m)
        contrast[i], contrast[j] = 1.0, -1.0
        p = 2.0 * min(
            p_value(played, wins, theta, contrast),
            p_value(played, wins, theta, -contrast),
        )
        tests.p_value[a, b] = tests.p_value[b, a] = min(p, 1.0)
        if p_t is None or (excludes_zero and p > ALPHA):
            low, high = interval(played, wins, theta, contrast)
            tests.low[a, b], tests.high[a, b] = POINTS * low, POINTS * high
            tests.low[b, a], tests.high[b, a] = -POINTS * high, -POINTS * low
    board = replace(board, bounded=tests)
    if only:
        return board
    return _with_ends_of_ratings(board, played, wins, theta, rated, baseline)


def _condensed(played: Games) -> Games:
    """The same games, those alike as one row if each is on a prompt of its own."""
    if played.count is not None or played.n_clusters < len(played.score):
        return played
    first, second, score, kind = kinds(played)
    number = np.bincount(kind)
    n = np.arange(len(number))
    return replace(
        played,
        first=first,
        second=second,
        score=score,
        cluster=n,
        prompts=n,
        shown=np.zeros(len(n)),
        battle=n,
        count=number,
        alike=number,
    )


def _pairs(board: Leaderboard, rated: Index, played: Games) -> list[tuple[int, int]]:
    """The pairs that are tested, by number among the rated models."""
    m = len(rated)
    n_pairs = m * (m - 1) // 2
    if m <= _MOST_MODELS and n_pairs * len(played.score) <= _MOST_WORK:
        return [(i, j) for i in range(m) for j in range(i + 1, m)]
    order = np.argsort(-board.rating[rated], kind="stable").tolist()
    found = [(order[0], other) for other in order[1:]]
    return [*found, *itertools.pairwise(order)]


def _by_t(board: Leaderboard, a: int, b: int) -> tuple[float | None, bool]:
    """The p value of Student's t, None without an error, and whether the interval leaves out zero."""
    assert board.covariance is not None and board.n_prompts is not None
    own, other, shared = (board.covariance[place] for place in ((a, a), (b, b), (a, b)))
    variance = own + other - 2.0 * shared
    if not variance > _ROUNDING * abs(own + other):
        return None, False
    df = degrees_of_freedom(min(board.n_prompts[a], board.n_prompts[b]))
    t = abs(board.rating[a] - board.rating[b]) / math.sqrt(variance)
    p = 2.0 * float(scipy.special.stdtr(df, -t))
    return p, p <= ALPHA


def _with_ends_of_ratings(
    board: Leaderboard,
    played: Games,
    wins: Array,
    theta: Array,
    rated: Index,
    baseline: str | None,
) -> Leaderboard:
    """Replace the intervals of ratings without an error, with one that is rounding alone, or without a pair left to t."""
    assert board.std_error is not None and board.n_prompts is not None
    assert board.ci_low is not None and board.ci_high is not None
    assert board.bounded is not None
    low, high = board.ci_low.copy(), board.ci_high.copy()
    n_replaced = np.isfinite(board.bounded.low).sum(axis=1)
    for i, a in enumerate(rated.tolist()):
        is_apart = n_replaced[a] < len(rated) - 1  # by t, from some other at least
        is_known = board.std_error[a] > _LEAST_ERROR and is_apart
        is_fixed = board.models[a] == baseline
        if is_known or is_fixed or board.n_prompts[a] < _MIN_PROMPTS:
            continue
        contrast = np.full(len(rated), -1.0 / len(rated))
        if baseline in board.models:
            contrast[:] = 0.0
            contrast[rated.tolist().index(board.models.index(str(baseline)))] = -1.0
        contrast[i] += 1.0
        ends = interval(played, wins, theta, contrast)
        middle = board.rating[a] - POINTS * float(contrast @ theta)
        low[a], high[a] = (middle + POINTS * end for end in ends)
    return replace(board, ci_low=low, ci_high=high)
