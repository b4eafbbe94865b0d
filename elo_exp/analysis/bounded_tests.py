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
    POINTS_PER_LOG_ODDS,
    find_strongest_component,
    fit_abilities,
    information,
    maximize_by_newton,
    mean_zero_constraint,
    win_probability,
)
from elo_exp.ratings.games import Games, group_kinds, make_games
from elo_exp.ratings.leaderboard import BoundedTests, Leaderboard, degrees_of_freedom
from elo_exp.types import Orders

MAX_P_VALUE_BY_T = (
    0.05  # two-sided: a pair that t does not tell apart at it is not tested
)
_ALPHA_PER_TAIL = 0.025
_MAX_STEP_IN_LOG_ODDS = 30.0
_MIN_PROMPTS = 2
# Of more models or games not all pairs are tested, which would take minutes
_MAX_MODELS_FOR_ALL_PAIRS = 60
_MAX_PAIRS_TIMES_GAMES = 100_000_000
# The variance of a difference is rounding if it is a smaller part of the two models' variances
_MIN_PART_OF_VARIANCES = 1e-10
# A smaller error is rounding
_MIN_ERROR_IN_POINTS = 1e-4

# Nearer to the mean, in standard errors, the formula of the saddlepoint divides by zero, and its limit is used
_MIN_STANDARD_ERRORS = 1e-5
# A smaller part of the largest score is rounding
_MIN_PART_OF_LARGEST_SCORE = 1e-12


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
    multiplicity = np.ones(len(values)) if count is None else np.asarray(count, float)
    u = np.append(np.asarray(values, dtype=np.float64), least)
    multiplicity = np.append(multiplicity, 1.0)
    scale = float(np.abs(u).max(initial=0.0))
    if scale == 0.0:
        return 1.0
    u = np.where(np.abs(u) <= _MIN_PART_OF_LARGEST_SCORE * scale, 0.0, u / scale)
    u, inverse = np.unique(u, return_inverse=True)
    multiplicity = np.bincount(inverse, multiplicity)
    u, multiplicity = u[u != 0.0], multiplicity[u != 0.0]
    if not (u > 0).any():
        return 1.0
    if not (u < 0).any():
        return 0.0

    from scipy.optimize import brentq

    def slope(t: float) -> float:
        return float((multiplicity * u / (1.0 - t * u)).sum())

    low, high = 1.0 / u[0], 1.0 / u[-1]
    inside = 1.0 - 1e-12
    t = brentq(slope, low * inside, high * inside, xtol=1e-15, rtol=1e-14)
    factor = 1.0 - t * u
    log_product = -float((multiplicity * np.log(factor)).sum())
    second_derivative = float((multiplicity * (u / factor) ** 2).sum())
    w = math.copysign(math.sqrt(max(-2.0 * log_product, 0.0)), t)
    v = t * math.sqrt(second_derivative)
    if abs(w) < _MIN_STANDARD_ERRORS or v == 0.0:
        third_derivative = 2.0 * float((multiplicity * (u / factor) ** 3).sum())
        return 0.5 + third_derivative / float(
            6.0 * math.sqrt(2.0 * math.pi) * second_derivative**1.5
        )
    p = scipy.special.ndtr(w + math.log(v / w) / w)
    return min(max(float(p), 0.0), 1.0)


def score_prompts(played: Games, theta: Array, direction: Array) -> tuple[Array, float]:
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
    n_alike = (
        np.ones(len(p)) if played.games_per_prompt is None else played.games_per_prompt
    )
    n = played.n_rows
    terms = n_alike * weight * (played.score - p)
    scores = np.bincount(played.cluster, terms, n).astype(np.float64)
    worst = n_alike * np.minimum(-weight * p, weight * (1.0 - p))
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
    restricted_theta = fit_restricted(wins, theta, contrast, difference)
    n_games = wins + wins.T
    level = mean_zero_constraint(len(theta))
    curvature = information(restricted_theta, n_games) + level
    direction: Array = np.linalg.solve(curvature, contrast).astype(np.float64)
    scores, least = score_prompts(played, restricted_theta, direction)
    count = (
        None
        if played.prompts_per_cluster is None
        else played.prompts_per_cluster.astype(np.float64)
    )
    return chance_of_mean_below_zero(scores, least, count)


def fit_restricted(
    wins: Array, theta: Array, contrast: Array, difference: float
) -> Array:
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
    level = mean_zero_constraint(m)

    def evaluate(x: Array) -> tuple[float, Array, Array]:
        point = basis @ x + offset
        value = np.vdot(wins, scipy.special.log_expit(point[:, None] - point))
        gradient = (wins - n_games * win_probability(point)).sum(axis=1)
        curvature = information(point, n_games) + level
        return float(value), basis.T @ gradient, basis.T @ curvature @ basis

    x, _ = maximize_by_newton(basis.T @ (theta - offset), evaluate)
    point = basis @ x + offset
    return np.asarray(point - point.mean())


def interval(
    played: Games, wins: Array, theta: Array, contrast: Array
) -> tuple[float, float]:
    """Return the differences that neither one-sided test rejects at 2.5%.

    Parameters
    ----------
    played, wins, theta, contrast
        As of `p_value`.

    Returns
    -------
    low, high : float
        In log-odds; infinite beyond 30.
    """
    estimate = float(contrast @ theta)
    low = _find_lower_end(played, wins, theta, contrast, estimate)
    return low, -_find_lower_end(played, wins, theta, -contrast, -estimate)


def _find_lower_end(
    played: Games, wins: Array, theta: Array, contrast: Array, estimate: float
) -> float:
    """Find the smallest difference that is not rejected by the test that the contrast is no larger."""
    from scipy.optimize import brentq

    def excess(difference: float) -> float:
        return p_value(played, wins, theta, contrast, difference) - _ALPHA_PER_TAIL

    step = 0.25
    while excess(estimate - step) > 0.0:
        step *= 2.0
        if step > _MAX_STEP_IN_LOG_ODDS:
            return -math.inf
    return float(brentq(excess, estimate - step, estimate, xtol=1e-9))


def add_bounded_tests(
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
    rated_models = np.flatnonzero(np.isfinite(board.rating))
    if board.covariance is None or len(rated_models) < 2 or board.n_prompts is None:
        return board
    all_games = make_games(battles, orders=orders)
    played = all_games.restrict_to(np.isfinite(board.rating))
    if played.n_clusters < 2 or not find_strongest_component(played.wins()).all():
        return board
    wins, played = played.wins(), _merge_games_alike(played)
    theta, m = fit_abilities(wins), len(rated_models)
    tests = BoundedTests.empty(len(board.models))
    all_pairs = itertools.combinations(range(m), 2)
    for i, j in all_pairs if only else _list_tested_pairs(board, rated_models, played):
        a, b = rated_models[i], rated_models[j]
        if only and {board.models[a], board.models[b]} != {*only}:
            continue
        if min(board.n_prompts[a], board.n_prompts[b]) < _MIN_PROMPTS:
            continue
        p_t, excludes_zero = _test_by_t(board, a, b)
        if p_t is not None and p_t > MAX_P_VALUE_BY_T:
            continue
        contrast = np.zeros(m)
        contrast[i], contrast[j] = 1.0, -1.0
        p = 2.0 * min(
            p_value(played, wins, theta, contrast),
            p_value(played, wins, theta, -contrast),
        )
        tests.p_value[a, b] = tests.p_value[b, a] = min(p, 1.0)
        if p_t is None or (excludes_zero and p > MAX_P_VALUE_BY_T):
            low, high = interval(played, wins, theta, contrast)
            tests.low[a, b], tests.high[a, b] = (
                POINTS_PER_LOG_ODDS * low,
                POINTS_PER_LOG_ODDS * high,
            )
            tests.low[b, a], tests.high[b, a] = (
                -POINTS_PER_LOG_ODDS * high,
                -POINTS_PER_LOG_ODDS * low,
            )
    board = replace(board, bounded=tests)
    if only:
        return board
    return _replace_rating_intervals(board, played, wins, theta, rated_models, baseline)


def _merge_games_alike(played: Games) -> Games:
    """Put games that are alike into one row, if each game is on a prompt of its own."""
    if played.count is not None or played.n_clusters < len(played.score):
        return played
    first, second, score, kind = group_kinds(played)
    counts = np.bincount(kind)
    numbers = np.arange(len(counts))
    return replace(
        played,
        first=first,
        second=second,
        score=score,
        cluster=numbers,
        prompts=numbers,
        position=np.zeros(len(numbers)),
        battle=numbers,
        count=counts,
        prompts_per_cluster=counts,
    )


def _list_tested_pairs(
    board: Leaderboard, rated_models: Index, played: Games
) -> list[tuple[int, int]]:
    """List the pairs to test, by number among the rated models."""
    m = len(rated_models)
    n_pairs = m * (m - 1) // 2
    if (
        m <= _MAX_MODELS_FOR_ALL_PAIRS
        and n_pairs * len(played.score) <= _MAX_PAIRS_TIMES_GAMES
    ):
        return [(i, j) for i in range(m) for j in range(i + 1, m)]
    order = np.argsort(-board.rating[rated_models], kind="stable").tolist()
    leader_pairs = [(order[0], model) for model in order[1:]]
    return [*leader_pairs, *itertools.pairwise(order)]


def _test_by_t(board: Leaderboard, a: int, b: int) -> tuple[float | None, bool]:
    """Return the p value of Student's t, None without an error, and whether the interval excludes zero."""
    assert board.covariance is not None and board.n_prompts is not None
    variance_a, variance_b, covariance = (
        board.covariance[cell] for cell in ((a, a), (b, b), (a, b))
    )
    variance = variance_a + variance_b - 2.0 * covariance
    if not variance > _MIN_PART_OF_VARIANCES * abs(variance_a + variance_b):
        return None, False
    df = degrees_of_freedom(min(board.n_prompts[a], board.n_prompts[b]))
    t = abs(board.rating[a] - board.rating[b]) / math.sqrt(variance)
    p = 2.0 * float(scipy.special.stdtr(df, -t))
    return p, p <= MAX_P_VALUE_BY_T


def _replace_rating_intervals(
    board: Leaderboard,
    played: Games,
    wins: Array,
    theta: Array,
    rated_models: Index,
    baseline: str | None,
) -> Leaderboard:
    """Replace the intervals of ratings without an error, with one that is rounding alone, or without a pair left to t."""
    assert board.std_error is not None and board.n_prompts is not None
    assert board.ci_low is not None and board.ci_high is not None
    assert board.bounded is not None
    low, high = board.ci_low.copy(), board.ci_high.copy()
    n_replaced = np.isfinite(board.bounded.low).sum(axis=1)
    for i, a in enumerate(rated_models.tolist()):
        is_apart = (
            n_replaced[a] < len(rated_models) - 1
        )  # by t, from some other at least
        is_known = board.std_error[a] > _MIN_ERROR_IN_POINTS and is_apart
        is_fixed = board.models[a] == baseline
        if is_known or is_fixed or board.n_prompts[a] < _MIN_PROMPTS:
            continue
        contrast = np.full(len(rated_models), -1.0 / len(rated_models))
        if baseline in board.models:
            contrast[:] = 0.0
            contrast[
                rated_models.tolist().index(board.models.index(str(baseline)))
            ] = -1.0
        contrast[i] += 1.0
        ends = interval(played, wins, theta, contrast)
        middle = board.rating[a] - POINTS_PER_LOG_ODDS * float(contrast @ theta)
        low[a], high[a] = (middle + POINTS_PER_LOG_ODDS * end for end in ends)
    return replace(board, ci_low=low, ci_high=high)
