"""How a test of whether ratings differ between strata of the prompts is said."""

from collections.abc import Mapping

from elo_exp.analysis.conclusions import Effect
from elo_exp.analysis.diagnosis import StrataDiagnosis
from elo_exp.analysis.stratum_reversals import RivalAhead
from elo_exp.formatting import format_number, format_p_equation, join_names
from elo_exp.report.sentences.tournament_sentences import format_difference


def summarize(strata: Mapping[str, StrataDiagnosis]) -> str:
    """Return in half a line in which dimensions ratings differ between strata.

    strata  by dimension
    """
    differing = [name for name, test in strata.items() if test.is_significant]
    if differing:
        return f"ratings differ between sources on {join_names(differing)}"
    return "no difference between sources is shown"


def sentence(strata: StrataDiagnosis, noun: str = "strata") -> str:
    """Return the test of a dimension, the gap that varies most if ratings differ, and who is ahead of the leader where.

    noun  what the strata are called
    """
    if strata.p_value is None:
        return f"Too few prompts to test whether ratings differ between {noun}."
    begin = (
        "Ratings differ" if strata.is_significant else "No evidence that ratings differ"
    )
    text = (
        f"{begin} between {noun} (χ² = {format_number(strata.chi_square)}, {strata.df} df, "
        f"{format_p_equation(strata.p_value)})."
    )
    widest, reversal = strata.most_varied_gap, _describe_reversals(strata, noun)
    if not strata.is_significant or not widest:
        return text + reversal
    gaps = {row["stratum"]: row["gap"] for row in widest.gaps}
    gap_list = ", ".join(
        f"{format_number(gap, sign=True)} points on {name}"
        for name, gap in gaps.items()
    )
    text += f" The gap {widest.model_a} − {widest.model_b} varies most: {gap_list}."
    return text + reversal


def _describe_reversals(strata: StrataDiagnosis, noun: str) -> str:
    """Say who is ahead of the leader on which stratum, with that stratum's own interval.

    A reversal is claimed only if the test of the stratum shows it.
    """
    reversals = [
        _describe_reversal(rival, strata.leader)
        for rival in strata.ahead
        if rival.reverses
    ]
    if reversals:
        return f" {' '.join(reversals)} The order reverses: report {noun} separately."
    if not strata.ahead:
        return ""
    widest = strata.ahead[0]
    is_tested = widest.p_holm is not None
    why = "no evidence of a reversal" if is_tested else "too few prompts for a test"
    return f" {_describe_reversal(widest, strata.leader).removesuffix('.')}: {why}."


def _describe_reversal(rival: RivalAhead, leader: str | None) -> str:
    lead = Effect(
        value=rival.lead,
        low=rival.ci_low,
        high=rival.ci_high,
        p_value=rival.p_holm,
        one_sided=rival.lead is None,
        n_prompts=rival.n_prompts,
    )
    return f"On {rival.stratum} {rival.rival} is ahead of {leader} by {format_difference(lead)}."
