"""What people's labels say of a judge, and how long labels take, in sentences."""

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

# Of a 95% interval, for a test at 5% that succeeds four times in five
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
    """Say what pages were made, how long they take, and what to do with them.

    n_of_each   comparisons on each page
    half_width  rating points by which their number was chosen; None where it was given
    is_short    whether there are not as many as that takes
    """
    reason = ""
    if half_width is not None:
        reason = (
            f": all there are, too few to know differences to ± {half_width:g} points"
        )
        if not is_short:
            reason = f", for differences to ± {half_width:g} points (label.half_width)"
    lines = [
        f"label: {format_count(n_shown)} of {format_count(n_there)} comparisons in {dimension}, on "
        f"{format_count(n_prompts)} prompts{reason}"
    ]
    for n, path in zip(n_of_each, pages, strict=True):
        lines.append(
            f"{'page':<14}{path.resolve().as_uri()}  {format_count(n)} labels, some "
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
            f"{'':<14}open it in any browser, or send it: it has no names, verdicts or scores in it, and no network",
            f"{'key':<14}{pages[0].with_name('key.json')}  says whose answers were shown: send it to nobody",
            f"{'next':<14}{command}",
        ]
    )


def agreement(row: Mapping[str, Any]) -> str:
    """Say a row of kappa: "sonnet agrees with people on 62% of 180 comparisons, kappa 0.38 [0.27, 0.49]"."""
    first_name, second_name = row["first"], row["second"]
    subject = (
        "people agree with each other"
        if first_name == second_name == PEOPLE
        else f"{first_name} agrees with {second_name}"
    )
    if not row["n_comparisons"]:
        return f"{subject}: not known, as no comparison was labelled by two"
    share = format_percent(row["agreement"])
    n, words = (
        format_count(row["n_comparisons"]),
        word_overlap([first_name, second_name]),
    )
    return f"{subject} on {share} of {n} comparisons, kappa {kappa(row)}{words}"


def kappa(row: Mapping[str, Any]) -> str:
    """Say a kappa with its interval."""
    value = format_number(row["kappa"], 2)
    if row["ci_low"] is None:
        return value
    return f"{value} [{format_number(row['ci_low'], 2)}, {format_number(row['ci_high'], 2)}]"


def more_of_both(row: Mapping[str, Any]) -> str:
    """Say how many shared comparisons would tell a kappa from 0 in four of five cases, if it is as it seems."""
    value, low = row["kappa"], row["ci_low"]
    if low is None or value <= 0:
        return ""
    n = math.ceil(
        row["n_comparisons"]
        * (_HALF_WIDTHS_AT_80_PERCENT_POWER * (value - low) / value) ** 2
    )
    return f"About {_round_up(n):,} comparisons that both label would settle it, if the estimate holds. Raise label.overlap."


def state(lead: Conclusion, half_width: float) -> str:
    """Say what people make of a lead: "open, some 120 labels more".

    half_width  rating points to which a difference is to be known
    """
    row = STATE_ROWS[lead.state]
    return row.explain(lead, half_width) if row.explain else row.state


def _explain_open(lead: Conclusion, half_width: float) -> str:
    """Say why people's labels decide nothing."""
    if lead.effect is None:
        return "open: no label links them"
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
        return f"open: people see less than {half_width:g} points"
    return f"open, some {_round_up(int(n)):,} labels more"


@dataclass(frozen=True, kw_only=True)
class LeadStateRow(WordedState):
    """How it is worded what people make of a lead.

    explain  says why it is in that state, from half_width; None: the name of the state says all
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
    """Say people's difference of the judge's first over its second."""
    return NO_VALUE if lead.effect is None else format_difference(lead.effect)


def count_lead_states(leads: Sequence[Conclusion]) -> str:
    """Say how many leads of a judge are confirmed, contradicted and open."""
    states = [lead.state for lead in leads]
    if not states:
        return "it has none"
    count_by_state = {name: states.count(name) for name in STATE_ROWS}
    return ", ".join(f"{n} {name}" for name, n in count_by_state.items() if n)


def describe_labels(
    n_labels: int, n_comparisons: int, n_prompts: int, annotators: Sequence[str]
) -> str:
    """Say how much was labelled, by whom."""
    n_repeated = n_labels - n_comparisons
    repeat_text = (
        f", {format_count(n_repeated)} of them second opinions," if n_repeated else ""
    )
    return f"{format_count(n_labels)} labels{repeat_text} on {format_count(n_prompts)} prompts by {join_names(annotators)}"


def first_shown(statistics: Mapping[str, Any]) -> str:
    """Say how often the answer shown as 1 was preferred."""
    if statistics["share"] is None:
        return "no label prefers an answer"
    ends = f"[{format_number(100 * statistics['low'])}, {format_number(100 * statistics['high'])}]"
    return (
        f"answer 1 is preferred in {format_percent(statistics['share'])} {ends} of "
        f"{format_count(statistics['n'])} labels"
    )
