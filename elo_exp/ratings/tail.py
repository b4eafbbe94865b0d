"""The end of a long order of matches, which alone decides where Elo ends.

Two runs of one order from different ratings approach each other: a match of i and j at K takes
2 K / POINTS p (1 - p) off the gap between the runs' differences of i and j, p being between the
probabilities of both runs. Over random orders the squared distance of the runs so falls by
exp(-2 K / POINTS lambda) a match, lambda being the second smallest eigenvalue of Bradley-Terry's
information per match: a contraction, whose start is forgotten [1]_. One order falls behind the mean by
chance, since the matches that hold a design together are few: 4 standard deviations are put on, and what
is lost to the steps' length.

.. [1] P. Diaconis and D. Freedman (1999), "Iterated random functions", SIAM Review 41(1), 45-76.

Letters: T matches at the end of n; m models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from elo_exp.arrays import Array, Index, Mask
from elo_exp.ratings.convergence import MAX_K
from elo_exp.ratings.fit import (
    POINTS_PER_LOG_ODDS,
    find_strongest_component,
    fit_abilities,
    information,
)
from elo_exp.ratings.games import Games, group_kinds

# Of fewer, all are played
MIN_MATCHES_FOR_TAIL = 100_000
# Rating points by which the runs may differ before and after
_MAX_INITIAL_GAP_POINTS = 400.0
_MAX_FINAL_GAP_POINTS = 1e-6
# Standard deviations by which an order may fall behind the mean
_MAX_LAG_SD = 4.0
# numpy draws no more without replacement.
_MAX_SAMPLING_POPULATION = 10**9
# Drawing a kind's count costs as much as drawing four matches, and drawing a match as passing over a hundred.
_MATCHES_PER_KIND_COST = 4
_SKIPS_PER_MATCH_COST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """How many matches at the end of an order are played, and from where.

    start    (m,) log-odds, the limit of Elo
    lengths  T by K; of a K that is not in it all matches are played, from zero
    """

    start: Array
    lengths: Mapping[float, int] = field(default_factory=dict)


def find_tail(wins: Array, ks: Sequence[float]) -> Tail:
    """Find how many matches at the end of any order decide where it ends, to 1e-6 rating points.

    Parameters
    ----------
    wins : Array, shape (m, m)
        How often i scored against j, a tie as half.
    ks : sequence of float
        Values of K, in rating points.

    Returns
    -------
    Tail
        With the values of K up to 64 whose ends are less than half of the matches; none where these are
        fewer than `MIN_MATCHES_FOR_TAIL`, or where a model that played has no finite limit.
    """
    n_games = wins + wins.T
    has_played = n_games.sum(axis=0) > 0
    start = np.zeros(len(wins))
    wins_among = wins[np.ix_(has_played, has_played)]
    if (
        n_games.sum() / 2 < MIN_MATCHES_FOR_TAIL
        or not find_strongest_component(wins_among).all()
    ):
        return Tail(start=start)
    start[has_played] = fit_abilities(wins_among)
    eligible_ks = [k for k in ks if k <= MAX_K]
    return Tail(
        start=start,
        lengths=_count_final_matches(start, n_games, has_played, eligible_ks),
    )


def find_resample_tail(
    end: Tail, k: float, played: Games, times: NDArray[np.integer[Any]]
) -> Tail:
    """Find the same for orders of drawn prompts.

    Parameters
    ----------
    end : Tail
        Of all prompts.
    k : float
        K, in rating points.
    played : Games
        Matches of m models on q prompts.
    times : NDArray of int, shape (b, q)
        How often each prompt is drawn, in each resample b.

    Returns
    -------
    Tail
        As long as the slowest resample needs it; whole orders where it is not half of each of them.
    """
    (first, second, _, kind), m = group_kinds(played), played.n_models
    full_orders, max_length, min_matches = Tail(start=end.start), 0, math.inf
    if k not in end.lengths:
        return full_orders
    by_prompt, n_games = count_kinds_by_prompt(played, kind), played.sum_by_pair()
    has_played = (n_games + n_games.T).sum(axis=0) > 0
    for prompt_times in times:
        counts_by_pair = np.bincount(
            first * m + second, prompt_times @ by_prompt, m * m
        )
        n_games = counts_by_pair.reshape(m, m).astype(np.float64)
        length = _count_final_matches(
            end.start, n_games + n_games.T, has_played, [k]
        ).get(k, 0)
        max_length, min_matches = (
            max(max_length, length),
            min(min_matches, n_games.sum()),
        )
        if not length or 2 * max_length > min_matches:
            return full_orders
    return Tail(start=end.start, lengths={k: max_length})


def _count_final_matches(
    start: Array, n_games: Array, has_played: Mask, ks: Sequence[float]
) -> dict[float, int]:
    """Count the matches at the end that decide, by K, where they are less than half of all."""
    n = n_games.sum() / 2
    information_per_match = (
        information(start[has_played], n_games[np.ix_(has_played, has_played)]) / n
    )
    min_eigenvalue = np.linalg.eigvalsh(information_per_match)[1]
    lengths, ratio = {}, math.log(_MAX_INITIAL_GAP_POINTS / _MAX_FINAL_GAP_POINTS)
    for k in ks:
        step = k / POINTS_PER_LOG_ODDS
        lag_factor = 1.0 + _MAX_LAG_SD * math.sqrt(step / 4.0 / ratio) + step / 4.0
        if ratio * lag_factor < n / 2 * step * min_eigenvalue:
            lengths[k] = math.ceil(ratio * lag_factor / (step * min_eigenvalue))
    return lengths


def count_kinds_by_prompt(played: Games, kind: Index) -> scipy.sparse.csr_array:
    """Count the matches of each kind on each prompt, or on each of those alike.

    Parameters
    ----------
    played : Games
        Matches on q prompts.
    kind : Index, shape (g,)
        The kind of each row of the games, by number.

    Returns
    -------
    sparse array, shape (q, kinds)
    """
    games_per_prompt = (
        np.ones(len(kind))
        if played.games_per_prompt is None
        else played.games_per_prompt
    )
    return scipy.sparse.csr_array((games_per_prompt, (played.cluster, kind)))


def draw_ends(
    counts: NDArray[Any], length: int, *, n_lanes: int, rng: np.random.Generator
) -> NDArray[np.integer[Any]]:
    """Draw the ends of random orders of matches.

    Parameters
    ----------
    counts : NDArray, shape (kinds,)
        How many matches there are of each kind.
    length : int
        T, at most half of them.
    n_lanes : int
        l, how many orders.
    rng : numpy.random.Generator
        Of the draws.

    Returns
    -------
    NDArray of int, shape (l, T)
        Kinds, in as few bytes as they need.
    """
    counts, n = counts.astype(np.int64), int(counts.sum())
    kinds = np.arange(len(counts)).astype(np.min_scalar_type(len(counts)))
    lanes: NDArray[np.integer[Any]] = np.empty((n_lanes, length), dtype=kinds.dtype)
    is_match_cheaper = (
        length + n / _SKIPS_PER_MATCH_COST < _MATCHES_PER_KIND_COST * len(counts)
    )
    for lane in lanes:
        if n < _MAX_SAMPLING_POPULATION:
            way: Literal["count", "marginals"] = (
                "count" if is_match_cheaper else "marginals"
            )
            times = rng.multivariate_hypergeometric(counts, length, method=way)
        else:  # of so many hardly one is drawn twice
            times = rng.multinomial(length, counts / n)
        lane[:] = np.repeat(kinds, times)
        rng.shuffle(lane)
    return lanes
