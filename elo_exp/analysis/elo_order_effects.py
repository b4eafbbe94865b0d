"""What K and the number of random orders move: the numbers of permutation Elo by which jobs of a sweep compare.

The pair whose gap is measured is first and second by the rating that leads, so that it is the same in all jobs.
A number that is not defined is absent, and never 0.
"""

from collections.abc import Sequence
from itertools import combinations, groupby

import numpy as np

from elo_exp.analysis.standings import ELO, Standings
from elo_exp.arrays import Array
from elo_exp.ratings.leaderboard import Leaderboard

NUMBERS = (
    *("gap", "convergence", "slowest", "mc_error", "distance"),
    *("swaps", "one_order_wrong"),
)


def measure_order_effects(standings: Standings, dimension: str) -> dict[str, float]:
    """Measure what the order experiment gives at its K, over the entrants that have an Elo and a rank.

    `convergence` and `slowest` solve an equation of the matches and of K: they do not depend on how many
    orders were played.

    Parameters
    ----------
    standings : Standings
        With Elo.
    dimension : str
        Of its leaderboards.

    Returns
    -------
    dict of str to float
        Of NUMBERS those that are defined; none where fewer than two entrants have both.

        gap              Elo of the first less that of the second, rating points; negative where Elo swaps
                         them. Not where both share the first rank
        convergence      the share of its limit that the gap between first and last has reached
        slowest          the same of the entrant that has gone the smallest share of its way
        mc_error         root mean square over entrants of the Monte Carlo error of the mean, rating
                         points: what other orders would move it. Not of a single order
        distance         root mean square over entrants of Elo less its limit, rating points: the bias of a
                         small K and Monte Carlo error together
        swaps            pairs that Elo ranks otherwise than the rating that leads. Not where Elo leads
        one_order_wrong  the share of single orders that rank some pair otherwise [1]_

    References
    ----------
    .. [1] M. Boubdir, E. Kim, B. Ermis, S. Hooker and M. Fadaee (2023), "Elo Uncovered: Robustness and Best
       Practices in Language Model Evaluation", GEM workshop.
    """
    elo, board = standings.board(dimension, ELO), standings.board(dimension)
    if elo is None or board is None:
        return {}
    tiers = _tiers(elo, board)
    models = [model for tier in tiers for model in tier]
    if len(models) < 2:
        return {}
    index = {model: i for i, model in enumerate(elo.models)}
    mean = {model: float(elo.rating[index[model]]) for model in models}
    numbers = _measure_gap(board, mean)
    if board is not elo:
        numbers["swaps"] = sum(
            mean[better] < mean[worse]
            for higher, lower in combinations(tiers, 2)
            for better in higher
            for worse in lower
        )
    if elo.samples is not None and len(tiers) > 1:
        numbers["one_order_wrong"] = _share_wrong(
            [elo.samples[:, [index[model] for model in tier]] for tier in tiers]
        )
    if elo.ordering_error is not None and _n_orders(elo) > 1:
        numbers["mc_error"] = _rms(elo.ordering_error[[index[m] for m in models]])
    convergence = standings.convergence[dimension]
    if all(model in convergence.limit for model in models):
        numbers["distance"] = _rms(
            np.array([mean[model] - convergence.limit[model] for model in models])
        )
        if (at_k := convergence.by_k.get(standings.k)) is not None:
            numbers |= {"convergence": at_k.convergence, "slowest": at_k.slowest_share}
    return {name: float(numbers[name]) for name in NUMBERS if name in numbers}


def scatter_over_error(ratings: Array, errors: Array) -> float | None:
    """Compare how Elo scatters over seeds with the Monte Carlo error that single runs state.

    Parameters
    ----------
    ratings, errors : Array, shape (s, m)
        Mean Elo of m entrants with s seeds, and its Monte Carlo error, rating points.

    Returns
    -------
    float or None
        Their ratio, each a root mean square: 1 where the error is right. None without two seeds or an error.

    Examples
    --------
    >>> ratings = np.array([[1399.0, 1401.0], [1401.0, 1399.0]])
    >>> round(scatter_over_error(ratings, np.full((2, 2), 2.0)), 3)
    0.707
    """
    error = _rms(errors)
    if len(ratings) < 2 or not error > 0:
        return None
    return float(np.sqrt(ratings.var(axis=0, ddof=1).mean())) / error


def _tiers(elo: Leaderboard, board: Leaderboard) -> list[list[str]]:
    """Group the entrants that have an Elo and a rank by rank, best first."""
    has_played = {
        model for i, model in enumerate(elo.models) if elo.flags.get(i) != "no match"
    }
    ranked = [
        row for row in board.ratings if row.rank is not None and row.model in has_played
    ]
    return [
        [row.model for row in tier] for _, tier in groupby(ranked, lambda row: row.rank)
    ]


def _measure_gap(board: Leaderboard, mean: dict[str, float]) -> dict[str, float]:
    first, second = board.ratings[:2]
    if first.rank == second.rank or not {first.model, second.model} <= mean.keys():
        return {}
    return {"gap": mean[first.model] - mean[second.model]}


def _share_wrong(tiers: Sequence[Array]) -> float:
    """Return the share of orders (p,) in which an entrant is below one of a lower tier.

    tiers  ratings (p, m) of two or more, the best first
    """
    lowest = np.stack([tier.min(axis=1) for tier in tiers[:-1]])
    highest = np.stack([tier.max(axis=1) for tier in tiers[1:]])
    return float((lowest < highest).any(axis=0).mean())


def _n_orders(elo: Leaderboard) -> int:
    return 0 if elo.samples is None else len(elo.samples)


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
