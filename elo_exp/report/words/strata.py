"""How a test of whether ratings differ between strata of the prompts is said."""

from collections.abc import Mapping
from typing import Any

from elo_exp.analysis.checks import ALPHA
from elo_exp.report.formats import number, p_equals


def differ(test: Mapping[str, Any]) -> bool:
    """Return whether ratings differ significantly between strata."""
    return test["p_value"] is not None and test["p_value"] < ALPHA


def sentence(test: Mapping[str, Any], noun: str = "strata") -> str:
    """Return the test of a dimension, and of ratings that differ the gap that varies most.

    test  as in Standings.diagnoses
    noun  what the strata are called
    """
    if test["p_value"] is None:
        return f"Too few prompts to test whether ratings differ between {noun}."
    begin = "Ratings differ" if differ(test) else "No evidence that ratings differ"
    text = (
        f"{begin} between {noun} (χ² = {number(test['chi_square'])}, {test['df']} df, "
        f"{p_equals(test['p_value'])})."
    )
    widest = test.get("most_varied_gap")
    if not differ(test) or not widest:
        return text
    gaps = {row["stratum"]: row["gap"] for row in widest["gaps"]}
    listed = ", ".join(
        f"{number(gap, sign=True)} points on {name}" for name, gap in gaps.items()
    )
    text += f" The gap {widest['model_a']} − {widest['model_b']} varies most: {listed}."
    if min(gaps.values()) < 0.0 < max(gaps.values()):
        text += f" The order reverses: report {noun} separately."
    return text
