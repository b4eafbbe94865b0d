"""The sentences of a comparison of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions import Effect
from elo_exp.analysis.conclusions.compare_conclusion import CompareConclusion
from elo_exp.formatting import (
    format_count,
    format_number,
    format_p_equation,
    format_percent,
    join_names,
)
from elo_exp.report.sentences.state_rows import StateRow, index_by_state
from elo_exp.report.sentences.tournament_sentences import describe_control

Row = Mapping[str, Any]

_MAX_CHANGES_IN_SENTENCE = 4


@dataclass(frozen=True, kw_only=True)
class _Unmoved:
    """The words for ratings and for estimates if no change is significant."""

    of_ratings: str
    of_estimates: str = "no difference between runs can be tested"


# The weightiest first: it stands for several dimensions together
_UNMOVED_BY_STATE = {
    "unmoved": _Unmoved(
        of_ratings="no rating changed significantly",
        of_estimates="no estimate differs significantly between runs",
    ),
    "untested": _Unmoved(
        of_ratings="the ratings are listed, but no change can be tested"
    ),
    "nested": _Unmoved(
        of_ratings="one run contains the verdicts of another, so no change is tested"
    ),
    "refitted": _Unmoved(
        of_ratings="the verdicts are the same and only the fit differs, so no change is tested"
    ),
    "same": _Unmoved(of_ratings="the verdicts are the same, and no rating changed"),
    "none": _Unmoved(of_ratings="no entrant is rated in two runs"),
}
LEADER_STATE_ROWS = index_by_state(
    [
        StateRow(state="none", chip="Not rated", tone="caution"),
        StateRow(state="differs", chip="Different top entrants", tone="caution"),
        StateRow(state="some", chip="Some runs", tone="caution"),
        StateRow(state="ahead", chip="Same top entrant", tone="caution"),
        StateRow(state="leads", chip="Same leader", tone="supported"),
    ]
)
PAIRS_NOTE = (
    "Difference: change of the reported estimate from run 1. Pairs: prompts of both runs, each counted as one "
    "observation. A difference is unpaired if no prompt is shared or influences.json is missing."
)


def headline(conclusions: Sequence[CompareConclusion]) -> str:
    """Say whether ratings or estimates changed between runs."""
    text, condition = _describe_changes(conclusions), _describe_controls(conclusions)
    if not condition:
        return text
    start = (
        text
        if any(conclusion.changes for conclusion in conclusions)
        else text[0].lower() + text[1:]
    )
    return f"{condition[0].upper()}{condition[1:]}{start}"


def _describe_changes(conclusions: Sequence[CompareConclusion]) -> str:
    changed_conclusions = [
        conclusion for conclusion in conclusions if conclusion.changes
    ]
    if changed_conclusions:
        changed_names = [
            c.name for conclusion in changed_conclusions for c in conclusion.changes
        ]
        dimensions = [conclusion.scope.dimension for conclusion in changed_conclusions]
        changed_names = list(dict.fromkeys(changed_names))
        subject = join_names(changed_names)
        if dimensions == [None]:
            verb = "differs" if len(changed_names) == 1 else "differ"
            return f"{subject} {verb} significantly between runs"
        if len(conclusions) == 1:
            return f"{subject} changed significantly"
        if len(changed_conclusions) > 1:
            subject = "Ratings"  # not each entrant on each rubric
        return f"{subject} changed significantly on {join_names([d or '' for d in dimensions])}"
    states = {conclusion.state for conclusion in conclusions}
    state = next((state for state in _UNMOVED_BY_STATE if state in states), "none")
    is_of_estimates = any(c.scope.dimension is None for c in conclusions)
    unmoved = _UNMOVED_BY_STATE[state]
    text = unmoved.of_estimates if is_of_estimates else unmoved.of_ratings
    return text[0].upper() + text[1:]


def sentence(conclusion: CompareConclusion, numbers: Mapping[str, int]) -> str:
    """Say what changed from run 1.

    numbers  number of each run
    """
    is_of_estimates = conclusion.scope.dimension is None
    if not conclusion.changes:
        unmoved = _UNMOVED_BY_STATE[conclusion.state]
        return unmoved.of_estimates if is_of_estimates else unmoved.of_ratings
    verb = "differs" if is_of_estimates else "changed"
    changes = conclusion.changes[:_MAX_CHANGES_IN_SENTENCE]
    parts = [
        f"{change.name} {verb} by {_format_effect(change.effect)}, in run {numbers[change.run]}"
        for change in changes
    ]
    n_more = len(conclusion.changes) - len(changes)
    condition = _describe_controls([conclusion])
    more = [f"{n_more} more are in compare.json"] if n_more else []
    return ". ".join([*(f"{condition}{text}" for text in parts), *more])


def _describe_controls(conclusions: Sequence[CompareConclusion]) -> str:
    """Return the style control of the runs' ratings, as the start of a sentence; empty without one."""
    controls = {
        features
        for conclusion in conclusions
        if conclusion.firsts
        for features in conclusion.firsts.adjusted
    }
    conditions = sorted(
        {describe_control(features.split("+")) for features in controls if features}
    )
    if not conditions:
        return ""
    is_of_all = len(controls) == 1
    return f"{join_names(conditions)}{'' if is_of_all else ' in some runs'}, "


def _format_effect(effect: Effect) -> str:
    """ "−32 [−42, −24], p < .001" """
    digits = 0 if effect.unit == "points" else 3
    low, high = format_number(effect.low, digits), format_number(effect.high, digits)
    value = format_number(effect.value, digits, sign=True)
    return f"{value} [{low}, {high}], {format_p_equation(effect.p_value)}"


def chip(conclusion: CompareConclusion) -> str:
    """Say in two words whether the runs agree."""
    if conclusion.changes:
        return "Changed"
    state = conclusion.firsts.state if conclusion.firsts else "none"
    return LEADER_STATE_ROWS[state].chip


def facts(comparison: Mapping[str, Any]) -> str:
    """Say which runs and ratings are compared."""
    text = f"{len(comparison['runs'])} runs, each compared with run 1."
    if not comparison["ratings"]:
        return text
    interval = comparison["interval"]
    kind = f"95% intervals: {interval}" if interval else "without intervals"
    return f"{text} Ratings: {comparison['label']}, {kind}."


def overlap(row: Row, runs: Sequence[int]) -> str:
    """Say which verdicts and prompts runs share with run 1.

    runs  numbers of the runs that share the same
    """
    are_many = len(runs) > 1
    if row["verdicts"] == "same":
        verb = "have" if are_many else "has"
        return f"{name_runs(runs)} {verb} the same verdicts as run 1, so only their fit can differ."
    text = (
        f"{name_runs(runs)} {'share' if are_many else 'shares'} "
        f"{format_count(row['n_shared_prompts'])} of {'their' if are_many else 'its'} "
        f"{format_count(row['n_prompts'])} prompts with the {format_count(row['n_prompts_before'])} of run 1"
    )
    agreement = row["agreement"]
    if agreement["agreement"] is not None:
        text += (
            f". The winner is the same in {format_percent(agreement['agreement'])} of "
            f"{format_count(agreement['n_comparisons'])} shared comparisons (kappa "
            f"{format_number(agreement['kappa'], 2)})"
        )
    if row["no_interval"]:
        text += f". Changes are not tested because {row['no_interval']}"
    return f"{text}."


def describe_run_conclusion(text: str, runs: Sequence[int]) -> str:
    """Quote the conclusion of runs."""
    return f"{name_runs(runs)}: {text}."


def name_runs(runs: Sequence[int]) -> str:
    return f"Run{'s' if len(runs) > 1 else ''} {', '.join(map(str, runs))}"


def run_line(row: Row, run: int) -> str:
    """Say which experiment and judge a run had, and what it cost."""
    usage = row["usage"] or {}
    judge = f", judge {row['judge_model']}" if row["judge_model"] else ""
    counts = [
        (row["n_prompts"], "prompts"),
        (usage.get("judge_calls"), "new verdicts"),
        (usage.get("verdicts_stored"), "cached"),
    ]
    parts = "".join(f", {format_count(n)} {noun}" for n, noun in counts if n)
    if row["dollars"] is not None:  # which an artifact does not say
        parts += f", ${row['dollars']:,.2f}"
    return f"run {run}  {row['run']}: {row['experiment']}{judge}{parts}"


def answers(run: int, changed: Sequence[str]) -> str:
    """Say which entrants gave other answers than in run 1."""
    if changed:
        return f"Run {run}: {join_names(changed)} gave other answers than in run 1 to some prompts."
    return f"Run {run}: all answers to shared prompts are the same as in run 1."
