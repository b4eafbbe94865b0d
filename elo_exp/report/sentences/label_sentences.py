"""The sentences about people's labels of a judged run, and about label pages."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp.analysis.conclusions import Conclusion
from elo_exp.analysis.human_agreement import PEOPLE, labelling_minutes
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_number,
    format_percent,
    join_names,
)
from elo_exp.report.sentences.check_sentences import word_overlap
from elo_exp.report.sentences.state_rows import WordedState, index_by_state
from elo_exp.report.sentences.tournament_sentences import format_difference

# Half-widths of a 95% interval at which a 5% test has 80% power
_HALF_WIDTHS_AT_80_PERCENT_POWER = (1.96 + 0.84) / 1.96


def describe_pages(
    n_of_each: Sequence[int],
    *,
    n_shown: int,
    n_there: int,
    n_prompts: int,
    dimension: str,
    half_width: float | None,
    is_short: bool,
    pages: Sequence[Path],
    folder: str,
) -> str:
    """Return the lines about new label pages: their files, the time that they take, and the next command.

    n_of_each   comparisons on each page
    half_width  in rating points, if it decided their number; None if the number was given
    is_short    whether the run has fewer comparisons than the half-width needs
    """
    reason = ""
    if half_width is not None:
        reason = f". These are all comparisons, too few to know differences to ± {half_width:g} points"
        if not is_short:
            reason = (
                f". They give differences to ± {half_width:g} points (label.half_width)"
            )
    lines = [
        f"label: {format_count(n_shown)} of {format_count(n_there)} comparisons on {dimension}, "
        f"{format_count(n_prompts)} prompts{reason}"
    ]
    for n, path in zip(n_of_each, pages, strict=True):
        lines.append(
            f"{'page':<14}{path.resolve().as_uri()}  {format_count(n)} labels, about "
            f"{format_count(labelling_minutes(n))} minutes"
        )
    export = (
        "labels=[anna.jsonl]" if len(pages) == 1 else "labels=[anna.jsonl,ben.jsonl]"
    )
    command = shlex.join(
        ["python", "-m", "elo_exp", "experiment=label", f"run={folder}", export]
    )
    return "\n".join(
        [
            *lines,
            f"{'':<14}Open it in a browser or send it to an annotator. It holds no names, verdicts or scores.",
            f"{'key':<14}{pages[0].with_name('key.json')}  This file says whose answers were shown. Do not send it.",
            f"{'next':<14}Export the labels from the page, name the file after the annotator (anna.jsonl), and run:",
            f"{'':<14}{command}",
        ]
    )


def agreement(row: Mapping[str, Any]) -> str:
    """Return a row of kappa in words: "sonnet agrees with people on 62% of 180 comparisons, kappa 0.38 [0.27, 0.49]"."""
    first_name, second_name = row["first"], row["second"]
    subject = (
        "people agree with each other"
        if first_name == second_name == PEOPLE
        else f"{first_name} agrees with {second_name}"
    )
    if not row["n_comparisons"]:
        return f"{subject}: not known, because no comparison has two labels"
    share = format_percent(row["agreement"])
    n, words = (
        format_count(row["n_comparisons"]),
        word_overlap([first_name, second_name]),
    )
    return f"{subject} on {share} of {n} comparisons, kappa {kappa(row)}{words}"


def kappa(row: Mapping[str, Any]) -> str:
    """Return a kappa with its interval."""
    value = format_number(row["kappa"], 2)
    if row["ci_low"] is None:
        return value
    return f"{value} [{format_number(row['ci_low'], 2)}, {format_number(row['ci_high'], 2)}]"


def more_of_both(row: Mapping[str, Any]) -> str:
    """Say how many shared comparisons show with 80% power that a kappa is above 0, if the estimate is right."""
    value, low = row["kappa"], row["ci_low"]
    if low is None or value <= 0:
        return ""
    n = math.ceil(
        row["n_comparisons"]
        * (_HALF_WIDTHS_AT_80_PERCENT_POWER * (value - low) / value) ** 2
    )
    return (
        f"If the estimate is right, about {_round_up(n):,} comparisons with labels of both are enough. Raise "
        "label.overlap."
    )


def state(lead: Conclusion, half_width: float) -> str:
    """Return the state of a lead by people's labels: "open: needs about 120 more labels".

    half_width  target half-width of a difference, in rating points
    """
    row = STATE_ROWS[lead.state]
    return row.explain(lead, half_width) if row.explain else row.state


def _explain_open(lead: Conclusion, half_width: float) -> str:
    """Say why people's labels do not decide."""
    if lead.effect is None:
        return "open: no labels connect the two"
    reason = lead.reasons[0]
    n = reason.value
    if reason.name == "annotators":
        annotators = "one annotator" if n == 1 else f"{n:.0f} annotators"
        return f"open: labelled by {annotators}, who may differ from others"
    if reason.name == "skipped":
        skipped_text = (
            "one skipped comparison" if n == 1 else f"{n:.0f} skipped comparisons"
        )
        return f"open: the {skipped_text} may explain the difference"
    if n is None:
        return "open"
    if not n:
        return f"open: the labels show a difference below {half_width:g} points"
    return f"open: needs about {_round_up(int(n)):,} more labels"


@dataclass(frozen=True, kw_only=True)
class LeadStateRow(WordedState):
    """The words of a lead's state by people's labels.

    explain  returns the reason from the half-width; None: the name of the state is enough
    """

    explain: Callable[[Conclusion, float], str] | None = None


STATE_ROWS = index_by_state(
    [
        LeadStateRow(state="confirmed"),
        LeadStateRow(state="contradicted"),
        LeadStateRow(state="open", explain=_explain_open),
    ]
)


def _round_up(n: int) -> int:
    """Round up to two digits."""
    step: int = 10 ** max(len(str(n)) - 2, 0)
    return -(-n // step) * step


def describe_difference(lead: Conclusion) -> str:
    """Return the difference by people between the judge's first and second entrant."""
    return NO_VALUE if lead.effect is None else format_difference(lead.effect)


def count_lead_states(leads: Sequence[Conclusion]) -> str:
    """Say how many leads of a judge are confirmed, contradicted and open."""
    states = [lead.state for lead in leads]
    if not states:
        return "none"
    count_by_state = {name: states.count(name) for name in STATE_ROWS}
    return ", ".join(f"{n} {name}" for name, n in count_by_state.items() if n)


def describe_labels(
    n_labels: int, n_comparisons: int, n_prompts: int, annotators: Sequence[str]
) -> str:
    """Count the labels, and name the annotators."""
    n_repeated = n_labels - n_comparisons
    repeat_text = (
        f" ({format_count(n_repeated)} of them second opinions)" if n_repeated else ""
    )
    return f"{format_count(n_labels)} labels{repeat_text} on {format_count(n_prompts)} prompts by {join_names(annotators)}"


def first_shown(statistics: Mapping[str, Any]) -> str:
    """Say how often people preferred the answer shown as 1."""
    if statistics["share"] is None:
        return "all labels are ties"
    ends = f"[{format_number(100 * statistics['low'])}, {format_number(100 * statistics['high'])}]"
    return (
        f"the first answer wins {format_percent(statistics['share'])} {ends} of {format_count(statistics['n'])} labels "
        "without a tie"
    )
