"""How sure one may be of abilities when games depend on one another: covariances by clusters, such as prompts.

Letters: i, j of m models; g games; q of n clusters.
"""

from __future__ import annotations

import numpy as np

from elo_exp.arrays import Array, Index
from elo_exp.ratings.games import Games
from elo_exp.statistics.likelihood import information, mean_zero, sums, win_probability

_CLUSTERS_A_BLOCK = (
    4096  # whose scores are held at a time, so that memory stays linear in the games
)
_SHARE_OF_A_ROW = (
    20  # a cluster of up to m / 20 games is cheaper pair by pair of its games than as m scores
)
_NO_VARIATION = (
    1e-12  # of the variance of independent games: what rounding leaves of scores that are zero
)


def clustered_covariance(theta: Array, games: Games) -> Array:
    """Covariance (m, m) of abilities in log-odds when clusters, not games, are independent; see `sandwich`."""
    p = win_probability(theta)
    place = _place(games)
    played = sums(place, None, len(theta))
    scores = clustered_scores(games, games.score - p.ravel()[place])
    return sandwich(
        information(p, played + played.T), scores, n_models=len(theta), n_clusters=games.n_clusters
    )


def sandwich(curvature: Array, scores: Array, *, n_models: int, n_clusters: int) -> Array:
    """H^-1 (n/(n-1) sum_q s_q s_q') H^-1 on the abilities of mean zero, and on any parameters after them.

    curvature  H, minus the second derivative of the log-likelihood by the abilities and the other parameters
    scores     sum_q s_q s_q', s_q being the first derivative of the part of cluster q
    NaN where the clusters do not differ, because there is one or because the abilities' scores of all are zero: such
    data do not tell how sure one may be. Liang and Zeger (1986); Miller (2024) for prompts as clusters.
    """
    shown, expected = (np.trace(matrix[:n_models, :n_models]) for matrix in (scores, curvature))
    if n_clusters < 2 or shown <= _NO_VARIATION * expected:
        return np.full(scores.shape, np.nan)
    level = mean_zero(n_models, len(curvature))
    bread = np.linalg.inv(curvature + level) - level
    return np.asarray(n_clusters / (n_clusters - 1) * bread @ scores @ bread)


def _place(games: Games) -> Index:
    return games.first * games.n_models + games.second


def clustered_scores(games: Games, slope: Array) -> Array:
    """sum_q s_q s_q' (m, m), the score of a cluster s_q being the sum over its games of slope_g (e_first - e_second).

    Large clusters are summed as rows of m scores, small ones over the pairs of their games: linear in the games.
    """
    if games.n_clusters == len(slope):
        return _own_products(_place(games), slope, games.n_models)
    size = np.bincount(games.cluster)
    large = size > games.n_models // _SHARE_OF_A_ROW
    row = np.where(large, np.cumsum(large) - 1, -1)[games.cluster]
    total = _scores_by_rows(games, slope, row, n_rows=int(large.sum()))
    if not large.all():
        total += _scores_by_games(
            games, slope, np.flatnonzero(row < 0), largest=int(size[~large].max())
        )
    return total


def _scores_by_rows(games: Games, slope: Array, row: Index, *, n_rows: int) -> Array:
    """Of the games that have a row (g,) 0 .. n_rows - 1; those with -1 are left out."""
    m = games.n_models
    order = np.argsort(row, kind="stable")
    ordered = row[order]
    total = np.zeros((m, m))
    for lo in range(0, n_rows, _CLUSTERS_A_BLOCK):
        n = min(_CLUSTERS_A_BLOCK, n_rows - lo)
        block = order[slice(*np.searchsorted(ordered, [lo, lo + n]))]
        at = (row[block] - lo) * m
        gained = np.bincount(at + games.first[block], weights=slope[block], minlength=n * m)
        lost = np.bincount(at + games.second[block], weights=slope[block], minlength=n * m)
        scores = (gained - lost).reshape(n, m)
        total += scores.T @ scores
    return total


def _scores_by_games(games: Games, slope: Array, chosen: Index, *, largest: int) -> Array:
    """Of the chosen games, whole clusters of up to `largest` of them: every game with itself, then with the next of its
    cluster, and so on."""
    m = games.n_models
    if largest > 1:
        chosen = chosen[np.argsort(games.cluster[chosen], kind="stable")]
    first, second, cluster = (
        column[chosen] for column in (games.first, games.second, games.cluster)
    )
    slope = slope[chosen]
    total = _own_products(first * m + second, slope, m)
    t = np.arange(len(chosen))
    for apart in range(1, largest):
        t = t[t + apart < len(chosen)]
        t = t[cluster[t] == cluster[t + apart]]
        u = t + apart
        product = slope[t] * slope[u]
        terms = sums(first[t] * m + first[u], product, m) + sums(
            second[t] * m + second[u], product, m
        )
        terms -= sums(first[t] * m + second[u], product, m) + sums(
            second[t] * m + first[u], product, m
        )
        total += terms + terms.T
    return total


def _own_products(place: Index, slope: Array, m: int) -> Array:
    """Of every game with itself alone."""
    squares = sums(place, slope**2, m)
    squares += squares.T
    return np.asarray(np.diag(squares.sum(axis=0)) - squares)
