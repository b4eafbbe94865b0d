"""How often each model beats each other one, with errors clustered by prompt.

Letters: g games; p of the pairs i < j that met; n clusters, which are prompts.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elo_exp.arrays import Array, Index, count_codes, make_records
from elo_exp.data.battles import Battles
from elo_exp.ratings.games import make_games, number_codes
from elo_exp.ratings.leaderboard import degrees_of_freedom, t_quantile
from elo_exp.records import Record

# A smaller sum of squares for each game is zero but for rounding
_MIN_SQUARES_PER_GAME = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRate(Record):
    """Counts of one pair, sorted by name; `ties` includes the inconsistent ones."""

    dimension: str
    entrant_a: str
    entrant_b: str
    a_wins: int
    b_wins: int
    ties: int
    # both orders were judged, and disagree; None where one order was judged
    inconsistent: int | None


def sort_sides_by_name(battles: Battles) -> Battles:
    """Turn battles round so that model_a is the first of the two by name.

    Parameters
    ----------
    battles : Battles
        In any order of sides; `models` is sorted.

    Returns
    -------
    Battles
        The same battles: winners, verdicts of both orders and shares are turned with the sides.
    """
    is_turned = battles.model_a > battles.model_b
    if not is_turned.any():
        return battles
    # by the code of a winner; the last is -1
    turned_code = np.array([1, 0, 2, 3, -1], dtype=np.int8)
    ab, ba = battles.verdict_ab, battles.verdict_ba
    draws: dict[str, Any] = {}
    if battles.draw_a is not None and battles.draw_b is not None:
        draws["draw_a"] = np.where(is_turned, battles.draw_b, battles.draw_a)
        draws["draw_b"] = np.where(is_turned, battles.draw_a, battles.draw_b)
    return replace(
        battles,
        **draws,
        model_a=np.minimum(battles.model_a, battles.model_b),
        model_b=np.maximum(battles.model_a, battles.model_b),
        winner=np.where(is_turned, turned_code[battles.winner], battles.winner),
        verdict_ab=np.where(is_turned, turned_code[ba], ab),
        verdict_ba=np.where(is_turned, turned_code[ab], ba),
        score=np.where(is_turned, 1.0 - battles.score, battles.score),
    )


def win_rates(battles: Battles, *, dimension: str) -> list[WinRate]:
    """Count wins, ties and inconsistent verdicts of every pair that met.

    Parameters
    ----------
    battles : Battles
        Of one dimension.
    dimension : str
        Of the rows.

    Returns
    -------
    list of WinRate
        Of p pairs, sorted by name.
    """
    battles = sort_sides_by_name(battles)
    first, second, pair = pairs_that_met(battles.model_a, battles.model_b)
    result = np.minimum(battles.winner, 2)
    n, count = len(first), battles.count
    counts = count_codes(3 * pair + result, count, 3 * n).reshape(-1, 3)
    is_inconsistent = battles.is_tie() & battles.is_inconsistent()
    n_inconsistent = None if count is None else count[is_inconsistent]
    inconsistent_counts = count_codes(pair[is_inconsistent], n_inconsistent, n)
    inconsistent: NDArray[Any] = inconsistent_counts.astype(object)
    inconsistent[pair[battles.has_single_order()]] = None
    names = np.array(battles.models, dtype=object)
    return make_records(
        WinRate,
        dimension=dimension,
        entrant_a=names[first],
        entrant_b=names[second],
        a_wins=counts[:, 0],
        b_wins=counts[:, 1],
        ties=counts[:, 2],
        inconsistent=inconsistent,
    )


def pairs_that_met(
    first: NDArray[Any], second: NDArray[Any]
) -> tuple[Index, Index, Index]:
    """Number the pairs of two columns.

    Parameters
    ----------
    first, second : NDArray, shape (g,)
        The numbers of the two models, first < second.

    Returns
    -------
    first, second : Index, shape (p,)
        The models of each pair that met, ascending.
    pair : Index, shape (g,)
        The number of each row's pair.
    """
    m = int(second.max(initial=0)) + 1
    pair_codes, pair = number_codes(first.astype(np.intp) * m + second)
    return pair_codes // m, pair_codes % m, pair


@dataclass(frozen=True, slots=True, kw_only=True)
class PairShare:
    """How often the first of a pair, by name, wins."""

    n_prompts: int
    n_games: int
    share: float
    std_error: float | None  # clustered by prompt; None where the prompts do not differ


def pair_shares(battles: Battles) -> dict[tuple[str, str], PairShare]:
    """Return the share of wins of every pair that met; a tie is half a win.

    Both orders count, where both were judged.

    Parameters
    ----------
    battles : Battles
        Of one dimension.

    Returns
    -------
    dict of (str, str) to Share
        By the names of the pair, sorted.
    """
    played = make_games(sort_sides_by_name(battles), orders="both")
    score, cluster = played.score, played.cluster
    first, second, pair = pairs_that_met(played.first, played.second)
    n_games = count_codes(pair, played.count)
    share = np.bincount(pair, played.weight_by_count(score)) / n_games
    codes, code = np.unique(pair * played.n_rows + cluster, return_inverse=True)
    # of each pair on each prompt
    residual = np.bincount(code, played.weight_for_squares(score - share[pair]))
    pair_of_code, prompt = np.divmod(codes, max(played.n_rows, 1))
    alike = (
        None
        if played.prompts_per_cluster is None
        else played.prompts_per_cluster[prompt]
    )
    n_prompts = count_codes(pair_of_code, alike, len(n_games))
    squares = np.bincount(pair_of_code, residual**2, len(n_games))
    return {
        (battles.models[first[p]], battles.models[second[p]]): PairShare(
            n_prompts=int(n_prompts[p]),
            n_games=int(n_games[p]),
            share=float(share[p]),
            std_error=_clustered_error(
                float(squares[p]), int(n_prompts[p]), int(n_games[p])
            ),
        )
        for p in range(len(first))
    }


def clustered_error_of_mean(residual: Array, cluster: Index) -> float | None:
    """Return the clustered standard error of a mean.

    Parameters
    ----------
    residual : Array, shape (g,)
        By how much each row moves the mean, times the number of rows.
    cluster : Index, shape (g,)
        The cluster of each row, by any numbers.

    Returns
    -------
    float or None
        In the unit of the residuals; None where the clusters do not differ: there is one, or the
        residuals of each add up to zero.

    References
    ----------
    .. [1] K.-Y. Liang and S. L. Zeger (1986), "Longitudinal data analysis using generalized linear models",
       Biometrika 73(1), 13-22.

    Examples
    --------
    >>> clustered_error_of_mean(np.array([0.5, 0.5, -0.5, -0.5]), np.array([0, 0, 1, 1]))  # sqrt(2 (1 + 1)) / 4
    0.5
    """
    clusters, number = np.unique(cluster, return_inverse=True)
    squares = float((np.bincount(number, residual) ** 2).sum())
    return _clustered_error(squares, len(clusters), len(residual))


def clustered_error_and_n_effective(
    residual: Array, cluster: Index
) -> tuple[float | None, float]:
    """Return the clustered standard error of a mean, and how many clusters of equal size would tell as much.

    If clusters differ in size, each cluster's part is taken as if the mean had left it out, as `Games.balance` takes
    the parts of prompts: a cluster with a third of the rows pulls the mean towards itself. Clusters of equal size have
    the error of `clustered_error_of_mean`.

    Parameters
    ----------
    residual : Array, shape (g,)
        By how much each row moves the mean, times the number of rows.
    cluster : Index, shape (g,)
        The cluster of each row, by any numbers.

    Returns
    -------
    std_error : float or None
        As of `clustered_error_of_mean`.
    n_effective : float
        (sum c)^2 / sum c^2 of the sizes c; of equal sizes exactly their number.

    Examples
    --------
    >>> error, worth = clustered_error_and_n_effective(np.array([1.0, 1, -1, -1]), np.array([0, 0, 0, 1]))
    >>> round(error, 3), round(worth, 3)
    (0.745, 1.6)
    """
    _, number, sizes = np.unique(cluster, return_inverse=True, return_counts=True)
    n, k = len(residual), len(sizes)
    if k < 2 or (sizes == sizes[0]).all():
        return clustered_error_of_mean(residual, cluster), float(k)
    cluster_sums = np.bincount(number, residual)
    if float((cluster_sums**2).sum()) <= _MIN_SQUARES_PER_GAME * n:
        return None, float(n**2 / (sizes**2).sum())
    scaled_sums = cluster_sums * ((1.0 - 1.0 / k) / (1.0 - sizes / n))
    error = _clustered_error(float((scaled_sums**2).sum()), k, n)
    return error, float(n**2 / (sizes**2).sum())


def _clustered_error(squares: float, n_clusters: int, n_rows: int) -> float | None:
    """Compute the error of a mean from the squared sums of each cluster's residuals; Liang and Zeger (1986)."""
    if n_clusters < 2 or squares <= _MIN_SQUARES_PER_GAME * n_rows:
        return None
    return math.sqrt(n_clusters / (n_clusters - 1) * squares) / n_rows


# Intervals


def wilson_interval(
    share: float, n: float, *, half_width: float = 1.96
) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share.

    Parameters
    ----------
    share : float
        In [0, 1].
    n : float
        Independent battles behind it, above zero; not a whole number if it is an effective one.
    half_width : float, default 1.96
        Standard errors that a plain interval has on each side.

    Returns
    -------
    low, high : float
        Within [0, 1].

    References
    ----------
    .. [1] E. B. Wilson (1927), "Probable inference, the law of succession, and statistical inference",
       Journal of the American Statistical Association 22, 209-212.

    Examples
    --------
    >>> low, high = wilson_interval(0.5, 100)
    >>> round(low, 3), round(high, 3)
    (0.404, 0.596)
    """
    weight = half_width**2 / n
    center = (share + weight / 2) / (1 + weight)
    half_interval = math.sqrt(weight * share * (1 - share) + weight**2 / 4) / (
        1 + weight
    )
    return max(center - half_interval, 0.0), min(center + half_interval, 1.0)


def interval_by_prompt(values: Array, cluster: Index) -> tuple[float, float]:
    """Return the 95% interval of a mean of values in [0, 1], of which some are on one prompt.

    Wilson's, of as many independent values as have the mean's clustered error, each prompt taken as if it had been left
    out, with Student's t by the effective number of prompts: at most the values that there are, and of equal values as
    many as prompts of equal size would tell. One value on each prompt: Wilson's with 1.96.

    Parameters
    ----------
    values : Array, shape (n,)
        One or more.
    cluster : Index, shape (n,)
        The prompt of each, by any numbers.

    Returns
    -------
    low, high : float
        Within [0, 1].

    References
    ----------
    .. [1] C. Franco, R. J. A. Little, T. A. Louis and E. V. Slud (2019), "Comparative study of confidence
       intervals for proportions in complex sample surveys", Journal of Survey Statistics and
       Methodology 7(3), 334-364.

    Examples
    --------
    Of three pairs on each of two prompts, whose accuracy differs by chance, less is known than of six prompts.

    >>> low, high = interval_by_prompt(np.array([1.0, 1, 1, 1, 0, 0]), np.array([0, 0, 0, 1, 1, 1]))
    >>> low < wilson_interval(4 / 6, 6)[0]
    True
    """
    n, share = len(values), float(values.mean())
    _, number, sizes = np.unique(cluster, return_inverse=True, return_counts=True)
    k = len(sizes)
    if k == n:
        return wilson_interval(share, n)
    if k == 1:
        return 0.0, 1.0
    n_effective = float(n**2 / (sizes**2).sum())
    scaled_sums = np.bincount(number, values - share) * (1 - 1 / k) / (1 - sizes / n)
    squares = float((scaled_sums**2).sum())
    n_independent = n_effective
    if squares > _MIN_SQUARES_PER_GAME * n:
        variance = k / (k - 1) * squares / n**2
        n_independent = min(share * (1 - share) / variance, n)
    half_width = float(t_quantile(degrees_of_freedom(n_effective)))
    return wilson_interval(share, n_independent, half_width=half_width)


def clustered_interval(
    share: float, std_error: float | None, n_prompts: int
) -> tuple[float, float] | None:
    """Return the 95% interval of a share with a clustered error.

    Wilson's, of as many independent battles as have this error, with Student's t in place of 1.96.

    Parameters
    ----------
    share : float
        In [0, 1].
    std_error : float or None
        Of the share, clustered by prompt.
    n_prompts : int
        Prompts behind it, which give the degrees of freedom.

    Returns
    -------
    (low, high) or None
        Within [0, 1]. None without an error, as of nothing but wins or losses.

    References
    ----------
    .. [1] C. Franco, R. J. A. Little, T. A. Louis and E. V. Slud (2019), "Comparative study of confidence
       intervals for proportions in complex sample surveys", Journal of Survey Statistics and
       Methodology 7(3), 334-364.
    """
    if std_error is None or not 0.0 < share < 1.0:
        return None
    n = share * (1 - share) / std_error**2
    half_width = float(t_quantile(degrees_of_freedom(n_prompts)))
    return wilson_interval(share, n, half_width=half_width)
