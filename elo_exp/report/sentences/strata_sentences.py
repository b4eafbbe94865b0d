"""How a test of whether ratings differ between strata of the prompts is said."""

from collections.abc import Mapping
from typing import Any

from elo_exp.analysis.checks.transitivity_check import ALPHA_OF_TRANSITIVITY
from elo_exp.analysis.conclusions import Effect
from elo_exp.formatting import format_number, format_p_equation
from elo_exp.report.sentences.tournament_sentences import format_difference


def ratings_differ(test: Mapping[str, Any]) -> bool:
    """Return whether ratings differ significantly between strata."""
    return test["p_value"] is not None and test["p_value"] < ALPHA_OF_TRANSITIVITY


def sentence(test: Mapping[str, Any], noun: str = "strata") -> str:
    """Return the test of a dimension, the gap that varies most if ratings differ, and who is ahead of the leader where.

    test  as in Standings.diagnoses
    noun  what the strata are called
    """
    if test["p_value"] is None:
        return f"Too few prompts to test whether ratings differ between {noun}."
    begin = (
        "Ratings differ" if ratings_differ(test) else "No evidence that ratings differ"
    )
    text = (
        f"{begin} between {noun} (χ² = {format_number(test['chi_square'])}, {test['df']} df, "
        f"{format_p_equation(test['p_value'])})."
    )
    widest, reversal = test.get("most_varied_gap"), _describe_reversals(test, noun)
    if not ratings_differ(test) or not widest:
        return text + reversal
    gaps = {row["stratum"]: row["gap"] for row in widest["gaps"]}
    gap_list = ", ".join(
        f"{format_number(gap, sign=True)} points on {name}"
        for name, gap in gaps.items()
    )
    text += (
        f" The gap {widest['model_a']} − {widest['model_b']} varies most: {gap_list}."
    )
    return text + reversal


def _describe_reversals(test: Mapping[str, Any], noun: str) -> str:
    """Say who is ahead of the leader on which stratum, with that stratum's own interval.

    A reversal is claimed only if the test of the stratum shows it.
    """
    rows = test.get("ahead") or ()
    reversals = [
        _describe_reversal(row, test["leader"]) for row in rows if row["reverses"]
    ]
    if reversals:
        return f" {' '.join(reversals)} The order reverses: report {noun} separately."
    if not rows:
        return ""
    is_tested = rows[0]["p_holm"] is not None
    why = "no evidence of a reversal" if is_tested else "too few prompts for a test"
    return f" {_describe_reversal(rows[0], test['leader']).removesuffix('.')}: {why}."


def _describe_reversal(row: Mapping[str, Any], leader: str) -> str:
    is_one_sided = row["lead"] is None
    lead = Effect(
        value=row["lead"],
        low=row["ci_low"],
        high=row["ci_high"],
        p_value=row["p_holm"],
        one_sided=is_one_sided,
        n_prompts=row["n_prompts"],
    )
    return f"On {row['stratum']} {row['rival']} is ahead of {leader} by {format_difference(lead)}."
