"""Sentences about a test of whether ratings differ between sources of the prompts."""

from collections.abc import Mapping

from elo_exp.analysis.conclusions import Effect
from elo_exp.analysis.diagnosis import StrataDiagnosis
from elo_exp.analysis.stratum_reversals import RivalAhead
from elo_exp.formatting import format_number, format_p_equation, join_names
from elo_exp.report.sentences.tournament_sentences import format_difference


def summarize(strata: Mapping[str, StrataDiagnosis]) -> str:
    """Return in half a line on which rubrics ratings differ between sources.

    strata  by rubric
    """
    differing = [name for name, test in strata.items() if test.is_significant]
    if differing:
        return f"ratings differ between sources on {join_names(differing)}"
    return "no difference between sources is shown"


def sentence(strata: StrataDiagnosis, noun: str = "sources") -> str:
    """Return the test on a rubric, the gap that varies most if ratings differ, and entrants ahead of the leader.

    noun  the word for the sources
    """
    if strata.p_value is None:
        return (
            f"There are too few prompts to test whether ratings differ between {noun}."
        )
    begin = (
        "Ratings differ"
        if strata.is_significant
        else "There is no evidence that ratings differ"
    )
    text = (
        f"{begin} between {noun} ({format_p_equation(strata.p_value)}, "
        f"χ² = {format_number(strata.chi_square)}, {strata.df} df)."
    )
    widest, reversal = strata.most_varied_gap, _describe_reversals(strata, noun)
    if not strata.is_significant or not widest:
        return text + reversal
    gaps = {row["stratum"]: row["gap"] for row in widest.gaps}
    gap_list = join_names(
        [f"{format_number(gap, sign=True)} on {name}" for name, gap in gaps.items()],
        len(gaps),
    )
    text += f" The lead of {widest.model_a} over {widest.model_b} varies most, in points: {gap_list}."
    return text + reversal


def _describe_reversals(strata: StrataDiagnosis, noun: str) -> str:
    """Name the entrants ahead of the leader on a source, with the interval on that source.

    A reversal is claimed only if the test on the source shows it.
    """
    reversals = [
        _describe_reversal(rival, strata.leader)
        for rival in strata.ahead
        if rival.reverses
    ]
    if reversals:
        return f" {' '.join(reversals)} The ranking reverses, so report the {noun} separately."
    if not strata.ahead:
        return ""
    widest = strata.ahead[0]
    is_tested = widest.p_holm is not None
    why = (
        "That is no evidence of a reversal."
        if is_tested
        else "The prompts are too few for a test."
    )
    return f" {_describe_reversal(widest, strata.leader)} {why}"


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
