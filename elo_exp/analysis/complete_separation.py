"""Entrants that took every point from others: bounds by prompts, and the ranks that follow.

No rating of such an entrant is finite, and every other rating is what it is without the entrant, which is
the limit of the joint maximum likelihood. What can be said is exact and needs no model: let the winner's
points on a prompt, all its games with the loser there taken together, have the mean mu over prompts.
Points lie in [0, 1], so that it takes all of them on n independent prompts with probability mu^n at most.
Letters: g games; m models.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import scipy

from elo_exp.analysis.bounded_tests import add_bounded_tests
from elo_exp.arrays import Array, Index, Mask
from elo_exp.data.battles import Battles
from elo_exp.ratings import RatingMethod
from elo_exp.ratings.games import make_games
from elo_exp.ratings.leaderboard import Leaderboard, OneSidedPair
from elo_exp.types import Orders

_ALPHA_PER_TAIL = 0.025
_POINTS_PER_LOG_ODDS = 400.0 / math.log(10.0)


def find_one_sided_pairs(
    battles: Battles, *, orders: Orders
) -> tuple[OneSidedPair, ...]:
    """Return every pair of models that met and of which nothing links the loser to the winner.

    A chain of wins and ties leads from one to the other and none leads back: they are in different
    strong components, between which all points go one way. A single tie, or a point lost in one of
    the two orders, links both ways, and so does a cycle through others: such pairs have ratings.

    Parameters
    ----------
    battles
        Of one dimension.
    orders
        The games of a battle, as in the rating method that leaves these models without a rating.

    Returns
    -------
    tuple of OneSidedPair
        By name. Its prompts are those on which the two met, each counted once, whatever its games;
        battles that name no prompt are not counted, since they may all be on one.

    Examples
    --------
    On 60 prompts 400 log10(s / (1 - s)) is 479 points with s = .025^(1/60).
    """
    played = make_games(battles, orders=orders)
    m, wins = played.n_models, played.wins()
    _, component = scipy.sparse.csgraph.connected_components(
        scipy.sparse.csr_array(wins > 0), connection="strong"
    )
    is_one_way = component[played.first] != component[played.second]
    is_won = played.score[is_one_way] > 0.5
    first_model, second_model = played.first[is_one_way], played.second[is_one_way]
    pair = np.where(
        is_won, first_model * m + second_model, second_model * m + first_model
    )
    # each prompt once
    pair_prompts = np.unique(np.stack([pair, played.cluster[is_one_way]]), axis=1)
    pairs, pair_number = np.unique(pair_prompts[0], return_inverse=True)
    is_known = battles.is_alone | (
        played.prompts[pair_prompts[1]] < battles.n_named_units
    )
    n_prompts_each = (
        is_known
        if played.prompts_per_cluster is None
        else is_known * played.prompts_per_cluster[pair_prompts[1]]
    )
    n_prompts = np.bincount(pair_number, n_prompts_each, len(pairs))
    return tuple(
        OneSidedPair(
            winner=battles.models[code // m],
            loser=battles.models[code % m],
            n_prompts=n,
            low=unbeaten_lower_bound(n) if n else None,
            p_value=2.0 ** (1 - n) if n else None,
        )
        for code, n in zip(pairs.tolist(), n_prompts.astype(int).tolist(), strict=True)
    )


def unbeaten_lower_bound(n_prompts: int) -> float:
    """Return the lower 95% end for a model that took every point on n prompts.

    The mean mu at which all n are won with probability .025 is s = .025^(1/n) [1]_; as a difference of
    ratings it is 400 log10(s / (1 - s)).

    Parameters
    ----------
    n_prompts : int
        n, one or more.

    Returns
    -------
    float
        In rating points.

    References
    ----------
    .. [1] C. J. Clopper and E. S. Pearson (1934), "The use of confidence or fiducial limits illustrated in
       the case of the binomial", Biometrika 26(4), 404-413. Here n of n.

    Examples
    --------
    >>> round(unbeaten_lower_bound(60))
    479
    """
    log_s = math.log(_ALPHA_PER_TAIL) / n_prompts
    return _POINTS_PER_LOG_ODDS * (log_s - math.log(-math.expm1(log_s)))


def transitive_closure(links: Mask) -> Mask:
    """Return where a chain of links leads.

    Parameters
    ----------
    links : Mask, shape (m, m)
        From i to j.

    Returns
    -------
    Mask, shape (m, m)
        With the links themselves.
    """
    is_reached = links
    while True:
        is_reached_further = is_reached | (
            is_reached.astype(np.float32) @ is_reached > 0
        )
        if (is_reached_further == is_reached).all():
            return is_reached
        is_reached = is_reached_further


def rate_with_unbeaten(
    method: RatingMethod, battles: Mapping[str, Battles], *, only: Collection[str] = ()
) -> dict[str, Leaderboard]:
    """Rate the battles of each dimension, and rank models that took every point, or none, too.

    Parameters
    ----------
    method : RatingMethod
        One without `orders` counts both.
    battles : mapping of str to Battles
        By dimension.
    only : collection of str
        Two models, whose pair alone has a bounded-mean test; empty: all pairs.

    Returns
    -------
    dict of str to Leaderboard
        Of the dimensions that the method rates, each as `rank_unbeaten` returns it, with bounded-mean tests.
    """
    orders: Orders = getattr(method, "orders", "both")
    is_plain = not getattr(method, "style", ())
    baseline: str | None = getattr(method, "baseline_model", None)
    boards = {}
    for dimension, board in method.rate(battles).items():
        dimension_battles = battles[dimension]
        tested_board = board
        if is_plain:
            tested_board = add_bounded_tests(
                board, dimension_battles, orders=orders, baseline=baseline, only=only
            )
        boards[dimension] = rank_unbeaten(
            tested_board, dimension_battles, orders=orders
        )
    return boards


def rank_unbeaten(
    board: Leaderboard, battles: Battles, *, orders: Orders
) -> Leaderboard:
    """Rank the models that took every point, or none, among those that have a rating.

    Models are ranked by components wherever a chain of one-sided pairs leads to the rated ones, or from
    them; where nobody is rated, to the model that is so linked with most others. Two between which
    no chain leads share a rank. Ratings, errors and covariance are not touched.

    Parameters
    ----------
    board : Leaderboard
        Of these battles.
    battles : Battles
        That it rates.
    orders : {"both", "one", "reconciled"}
        Their games, as in its method.

    Returns
    -------
    Leaderboard
        With one-sided pairs, ranks (m,) and one end of the intervals of those models. Ranked models that
        both won and lost, but are in no component with those rated, are flagged separated. As it is without
        one-sided pairs, and where wins and ties link models of which its method rates none (ties that
        never contradict wins).
    """
    pairs = find_one_sided_pairs(battles, orders=orders)
    if not pairs:
        return board
    is_rated = np.isfinite(board.rating)
    is_reached = transitive_closure(make_games(battles, orders=orders).wins() > 0)
    if not is_rated.any() and (is_reached & is_reached.T).any():
        return board
    is_above = is_reached & ~is_reached.T
    is_linked = is_above | is_above.T
    if is_rated.any():
        is_ranked = is_rated | is_linked[:, is_rated].any(axis=1)
    else:
        centre = int(is_linked.sum(axis=1).argmax())
        is_ranked = is_linked[centre].copy()
        is_ranked[centre] = True
    rank = np.where(is_ranked, 1 + is_above[is_ranked].sum(axis=0), 0)
    rank[is_rated] += board.ranks()[is_rated] - 1
    index = {model: i for i, model in enumerate(board.models)}
    links = [
        (index[pair.winner], index[pair.loser], pair.low)
        for pair in pairs
        if is_ranked[index[pair.winner]] and pair.low is not None
    ]
    low = _find_lower_ends(board.rating, rank, links)
    high = -_find_lower_ends(-board.rating, -rank, [(i, u, gap) for u, i, gap in links])
    nothing = np.full(len(board.models), np.nan)
    flags = {
        i: "separated" if flag == "disconnected" and is_ranked[i] else flag
        for i, flag in board.flags.items()
    }
    return dataclasses.replace(
        board,
        flags=flags,
        one_sided=pairs,
        rank=rank,
        ci_low=np.fmax(nothing if board.ci_low is None else board.ci_low, low),
        ci_high=np.fmin(nothing if board.ci_high is None else board.ci_high, high),
    )


def _find_lower_ends(
    rating: Array, rank: Index, links: Sequence[tuple[int, int, float]]
) -> Array:
    """Find the lower ends (m,) of models that are above the rated ones; NaN for all others.

    From the strongest of those that a model beat: its rating, or its own lower end, and the bound.

    links  winner, loser and bound of one-sided pairs
    """
    ends, values = np.full(len(rating), np.nan), rating.copy()
    for i in np.argsort(-rank, kind="stable").tolist():  # from the rated ones upwards
        bounds = [(rank[j], values[j] + gap) for u, j, gap in links if u == i]
        known_bounds = [
            rank_bound for rank_bound in bounds if np.isfinite(rank_bound[1])
        ]
        if known_bounds and np.isnan(rating[i]):
            ends[i] = values[i] = min(known_bounds)[1]
    return ends
