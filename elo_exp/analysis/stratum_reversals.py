"""On which strata of the prompts a rival is ahead of the leader, each by the stratum's own test."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from elo_exp.analysis.comparisons import (
    ALPHA,
    MIN_PROMPTS_FOR_LEAD,
    Difference,
    adjust_by_holm,
    differences,
)
from elo_exp.analysis.complete_separation import rank_unbeaten
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.leaderboard import Leaderboard, degrees_of_freedom
from elo_exp.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalAhead(Record):
    """An entrant that is ahead of the leader on a stratum, in any amount.

    n_prompts    on which the two met there; `n_effective`: worth so many equal prompts
    df           of the test; None if one of the two took every point
    lead         in the unit of the ratings, with its 95% interval; None if the rival took every point
    p_holm       adjusted over all strata and entrants; None on fewer than 20 effective prompts
    reverses     whether the test shows the lead
    """

    stratum: str
    rival: str
    n_prompts: int
    n_effective: float
    df: float | None
    lead: float | None
    ci_low: float | None
    ci_high: float | None
    p_value: float | None
    p_holm: float | None
    reverses: bool


def rivals_ahead(
    battles: Mapping[str, Battles], boards: Mapping[str, Leaderboard], leader: str
) -> list[RivalAhead]:
    """Test on each stratum whether another model is ahead of the leader.

    Each stratum is rated alone, and each difference is tested by Student's t with the prompts of the
    stratum, or exactly if one of the two took every point. The p values are adjusted over all strata and
    all other models (Holm), because any of these could be reported as a reversal. A stratum on which
    the two met on fewer than 20 effective prompts is shown and not tested.

    Parameters
    ----------
    battles : mapping of str to Battles
        By stratum.
    boards : mapping of str to Leaderboard
        By stratum: the ratings of these battles.
    leader : str
        Of all prompts.

    Returns
    -------
    list of RivalAhead
        The widest lead first.
    """
    tests = list[tuple[RivalAhead, bool]]()
    for stratum, board in boards.items():
        complete_board = rank_unbeaten(board, battles[stratum], orders="both")
        counts = (
            _count_prompts(complete_board, complete_board.n_prompts),
            _count_prompts(complete_board, complete_board.n_effective),
        )
        for pair in differences({stratum: complete_board}):
            if leader in (pair.higher, pair.lower):
                is_ahead = pair.higher != leader and (
                    pair.one_sided or bool(pair.difference)
                )
                tests.append((_compare(pair, stratum, leader, counts), is_ahead))
    p_values = np.array(
        [
            math.nan
            if rival.p_value is None or rival.n_effective < MIN_PROMPTS_FOR_LEAD
            else rival.p_value
            for rival, _ in tests
        ]
    )
    rivals = [
        replace(
            rival,
            p_holm=None if math.isnan(p_holm) else p_holm,
            reverses=p_holm <= ALPHA,
        )
        for (rival, is_ahead), p_holm in zip(
            tests, adjust_by_holm(p_values).tolist(), strict=True
        )
        if is_ahead
    ]
    return sorted(rivals, key=lambda rival: -(rival.lead or rival.ci_low or 0.0))


def _count_prompts(board: Leaderboard, model_counts: Array | None) -> dict[str, float]:
    """Return the number of prompts of each model; of all models if a model's own number is not known."""
    column = (
        np.full(len(board.models), np.nan) if model_counts is None else model_counts
    )
    n_of_all = float(board.n_clusters or 0)
    counts = np.where(np.isfinite(column), column, n_of_all)
    return dict(zip(board.models, counts.tolist(), strict=True))


def _compare(
    pair: Difference,
    stratum: str,
    leader: str,
    counts: tuple[Mapping[str, float], Mapping[str, float]],
) -> RivalAhead:
    """Return the rival of the leader in a pair, before its test is adjusted."""
    n_prompts, n_effective = (
        min(n_by_model[pair.higher], n_by_model[pair.lower]) for n_by_model in counts
    )
    if pair.one_sided:
        n_prompts = n_effective = pair.n_prompts or 0
    return RivalAhead(
        stratum=stratum,
        rival=pair.lower if pair.higher == leader else pair.higher,
        n_prompts=int(n_prompts),
        n_effective=n_effective,
        df=None if pair.one_sided else float(degrees_of_freedom(n_effective)),
        lead=pair.difference,
        ci_low=pair.ci_low,
        ci_high=pair.ci_high,
        p_value=pair.p_value,
        p_holm=None,
        reverses=False,
    )
