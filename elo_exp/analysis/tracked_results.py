"""What a run comes to in each dimension, as the numbers by which jobs of a sweep compare.

They describe the rating that leads; of its first and second there is one lead, that of the conclusion. A number
that is not defined is absent, and never 0.
"""

from collections.abc import Mapping
from statistics import fmean

from elo_exp.analysis.comparisons import Leader, find_leader
from elo_exp.analysis.standings import Standings
from elo_exp.ratings.leaderboard import Leaderboard

NUMBERS = (
    *("gap", "gap_se", "gap_low", "gap_high", "p_holm", "separated", "p_best"),
    *("prompts", "battles", "ties"),
)
# Numbers whose mean over dimensions makes sense
AVERAGED_NUMBERS = ("gap", "gap_se", "separated")


def sum_up_dimension(standings: Standings, dimension: str) -> dict[str, float]:
    """Sum up a dimension: the lead, how many pairs are told apart, and by how many battles.

    Parameters
    ----------
    standings : Standings
        With differences.
    dimension : str
        Of its leaderboards.

    Returns
    -------
    dict of str to float
        Of NUMBERS those that are defined.

        gap, gap_se        rating of the first less that of the second, and its standard error, in the
                           unit of the ratings; not where a rating is not finite
        gap_low, gap_high  its 95% interval; the near end alone where the first took every point
        p_holm             of first against second, adjusted for all pairs and dimensions
        separated          pairs that this adjustment tells apart; not where none could be tested
        p_best             probability that no other is better than the first
        prompts            not where the battles name none
        battles, ties      not of scored items
    """
    board, pairs = standings.board(dimension), standings.pairs(dimension)
    numbers: dict[str, float | None] = {"prompts": standings.n_prompts(dimension)}
    battles = standings.battles[dimension]
    if len(battles):
        n_ties = battles.count_at(battles.is_tie())
        numbers |= {"battles": battles.n_total(), "ties": n_ties}
    decisions = [pair.significant for pair in pairs if pair.significant is not None]
    if decisions:
        numbers["separated"] = sum(decisions)
    if board is not None and (leader := find_leader(board, pairs)) is not None:
        numbers |= _measure_lead(board, leader)
    values = {name: numbers.get(name) for name in NUMBERS}
    return {name: float(value) for name, value in values.items() if value is not None}


def _measure_lead(board: Leaderboard, leader: Leader) -> dict[str, float | None]:
    best, second, lead = board.row(leader.model), board.row(leader.second), leader.lead
    if lead is None:
        ratings = best.rating, second.rating
        gap = None if None in ratings else (best.rating or 0.0) - (second.rating or 0.0)
        return {"gap": gap, "p_best": best.p_best}
    return {
        "gap": lead.difference,
        "gap_se": lead.std_error,
        "gap_low": lead.ci_low,
        "gap_high": lead.ci_high,
        "p_holm": lead.p_holm,
        "p_best": best.p_best,
    }


def average_dimensions(numbers: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Average each number over the dimensions that have it.

    Parameters
    ----------
    numbers : mapping of str to mapping of str to float
        By dimension and name.

    Returns
    -------
    dict of str to float
        By name, in the order in which they first occur.

    Examples
    --------
    >>> average_dimensions({"tone": {"gap": 10.0, "swaps": 1.0}, "facts": {"gap": 30.0}})
    {'gap': 20.0, 'swaps': 1.0}
    """
    names = dict.fromkeys(
        name for dimension_numbers in numbers.values() for name in dimension_numbers
    )
    return {
        name: fmean(
            dimension_numbers[name]
            for dimension_numbers in numbers.values()
            if name in dimension_numbers
        )
        for name in names
    }
