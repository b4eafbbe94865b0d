"""On which strata of the prompts a rival is ahead of the leader, each by the stratum's own test."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from elo_exp.analysis.checks import MIN_PROMPTS_FOR_LEAD
from elo_exp.analysis.comparisons import ALPHA, Difference, adjust_by_holm, differences
from elo_exp.analysis.complete_separation import rank_unbeaten
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.leaderboard import Leaderboard, degrees_of_freedom


def rivals_ahead(
    battles: Mapping[str, Battles], boards: Mapping[str, Leaderboard], leader: str
) -> list[dict[str, Any]]:
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
    list of dict
        `judge.DIMENSION.strata.ahead` of ratings.json: a row for each stratum and model that is ahead of
        the leader there, in any amount: `stratum`, `rival`, `n_prompts`, `n_effective` (worth so
        many equal prompts), `df`, `lead` of the rival in
        the unit of the ratings with `ci_low` and `ci_high`, `p_value`, `p_holm`, `reverses`. The
        widest lead comes first.
    """
    rows = []
    for stratum, board in boards.items():
        complete_board = rank_unbeaten(board, battles[stratum], orders="both")
        counts = (
            _count_prompts(complete_board, complete_board.n_prompts),
            _count_prompts(complete_board, complete_board.n_effective),
        )
        for pair in differences({stratum: complete_board}):
            if leader in (pair.higher, pair.lower):
                rows.append(_make_row(pair, stratum, leader, counts))
    p_values = np.array(
        [
            math.nan
            if row["p_value"] is None or row["n_effective"] < MIN_PROMPTS_FOR_LEAD
            else row["p_value"]
            for row in rows
        ]
    )
    for row, p_holm in zip(rows, adjust_by_holm(p_values).tolist(), strict=True):
        row["p_holm"] = None if math.isnan(p_holm) else p_holm
        row["reverses"] = row["is_ahead"] and p_holm <= ALPHA
        row["n_prompts"] = int(row["n_prompts"])
    rows_ahead = [row for row in rows if row.pop("is_ahead")]
    return sorted(rows_ahead, key=lambda row: -(row["lead"] or row["ci_low"] or 0.0))


def _count_prompts(board: Leaderboard, model_counts: Array | None) -> dict[str, float]:
    """Return the number of prompts of each model; of all models if a model's own number is not known."""
    column = (
        np.full(len(board.models), np.nan) if model_counts is None else model_counts
    )
    n_of_all = float(board.n_clusters or 0)
    counts = np.where(np.isfinite(column), column, n_of_all)
    return dict(zip(board.models, counts.tolist(), strict=True))


def _make_row(
    pair: Difference,
    stratum: str,
    leader: str,
    counts: tuple[Mapping[str, float], Mapping[str, float]],
) -> dict[str, Any]:
    is_ahead = pair.higher != leader and (pair.one_sided or bool(pair.difference))
    n_prompts, n_effective = (
        min(n_by_model[pair.higher], n_by_model[pair.lower]) for n_by_model in counts
    )
    if pair.one_sided:
        n_prompts = n_effective = pair.n_prompts or 0
    return {
        "stratum": stratum,
        "rival": pair.lower if pair.higher == leader else pair.higher,
        "n_prompts": n_prompts,
        "n_effective": n_effective,
        "df": None if pair.one_sided else float(degrees_of_freedom(n_effective)),
        "lead": pair.difference,
        "ci_low": pair.ci_low,
        "ci_high": pair.ci_high,
        "p_value": pair.p_value,
        "is_ahead": is_ahead,
    }
