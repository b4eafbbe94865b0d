"""What an audit says of a judge, on the console and on its page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions import Conclusion
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_number,
    format_percent,
    join_names,
)
from elo_exp.records import Verdict
from elo_exp.report.sentences.check_sentences import effect_to_points, word_overlap
from elo_exp.report.sentences.state_rows import WordedState, index_by_state

_VERDICT_NAMES = {"A": "the first", "B": "the second", "TIE": "a tie"}
_BOUND_SIGNS = {"bias": "± ", "share": "< ", "floor": "> "}


def describe_conclusion(audit_conclusion: Conclusion) -> str:
    """Say how many probes were ok, which found a bias, and how many could not tell."""
    biased_probes = [
        r.name for r in audit_conclusion.reasons if r.about["verdict"] == "biased"
    ]
    probe_list = f" ({join_names(biased_probes)})" if biased_probes else ""
    n_undecided = len(audit_conclusion.reasons) - len(biased_probes)
    return (
        f"{audit_conclusion.subject} on {audit_conclusion.scope.dimension}: "
        f"{len(audit_conclusion.others)} ok, {len(biased_probes)} biased{probe_list}, "
        f"{n_undecided} undecided{word_overlap([str(audit_conclusion.subject)])}"
    )


def describe_judges(audit_conclusion: Conclusion) -> str:
    """Say of several judges which are ok, which are biased, and of which nobody can tell."""
    scope_text = f"on {audit_conclusion.scope.dimension}"
    if not audit_conclusion.reasons:
        n = len(audit_conclusion.others)
        quantifier = "both" if n == 2 else f"all {n}"
        return f"{scope_text} {quantifier} judges are ok{word_overlap(audit_conclusion.others)}"
    parts = []
    for state, row in STATE_ROWS.items():
        judges = [r.about["judge"] for r in audit_conclusion.reasons if r.name == state]
        judges = [*audit_conclusion.others] if state == "ok" else judges
        if judges:
            parts.append(
                row.phrase.format(
                    judges=join_names(judges), verb="is" if len(judges) == 1 else "are"
                )
            )
    all_judges = [
        *audit_conclusion.others,
        *(str(r.about["judge"]) for r in audit_conclusion.reasons),
    ]
    return f"{scope_text} {'; '.join(parts)}{word_overlap(all_judges)}"


@dataclass(frozen=True, kw_only=True)
class AuditStateRow(WordedState):
    """How a state of an audit is worded.

    phrase  about the judges in that state, with places for `judges` and `verb`
    """

    phrase: str


STATE_ROWS = index_by_state(
    [
        AuditStateRow(state="biased", phrase="{judges} {verb} biased"),
        AuditStateRow(
            state="cannot tell",
            phrase="of {judges} nobody can tell with so few prompts",
        ),
        AuditStateRow(state="not audited", phrase="{judges} {verb} not audited"),
        AuditStateRow(state="ok", phrase="{judges} {verb} ok"),
    ]
)


def counts(n_prompts: int, n_questions: int, n_invalid: int, dollars: float) -> str:
    """Say what was asked, and what it cost."""
    paid = f"${dollars:.2f}" if dollars else "nothing paid"
    return (
        f"{format_count(n_prompts)} prompts, {format_count(n_questions)} questions, "
        f"{format_count(n_invalid)} without a valid "
        f"verdict; {paid}"
    )


def describe_left_out_turns(n: int, n_bank: int) -> str:
    """Say how many prompts an audit leaves out, as they are of several turns; empty where none is."""
    if not n:
        return ""
    verb = "is" if n == 1 else "are"
    return f"{n:,} of {n_bank:,} prompts {verb} left out: an answer to several turns has no ladder."


def format_bound(kind: str, bound: float) -> str:
    """Say what is ok: ± the margin of a bias, below a share, above a floor."""
    return (
        f"{_BOUND_SIGNS[kind]}{format_number(bound, 2)}"
        if kind in _BOUND_SIGNS
        else NO_VALUE
    )


def verdict(row: Mapping[str, Any]) -> str:
    """Say what was decided on a probe, and how many prompts would decide."""
    need = row["need"]
    return (
        f"{row['verdict']}: {format_count(need)} prompts would"
        if need
        else row["verdict"]
    )


def elo(row: Mapping[str, Any]) -> str:
    """Return the rating points that a bias is worth between two equals."""
    if row["kind"] != "bias" or not row["n"]:
        return NO_VALUE
    return effect_to_points(row["estimate"], sign=True)


def describe_gold(subject: str, row: Mapping[str, Any]) -> str:
    """Say how often a judge names the better of labelled pairs. `subject` names the pairs, or the judge."""
    accuracy, low, high, strict, kappa = (
        format_number(row[key], 3)
        for key in ("accuracy", "low", "high", "strict", "kappa")
    )
    invalid = f", {row['n_invalid']} invalid" * bool(row["n_invalid"])
    return (
        f"gold {subject}: accuracy {accuracy} [{low}, {high}], {strict} in both orders, kappa {kappa}, "
        f"{row['n']} pairs{invalid}"
    )


def describe_verdict(raw_verdict: Verdict) -> str:
    """Say what a verdict on x and y was, and which of them had been shown first."""
    again = ", asked again" if raw_verdict.repeat else ""
    better = "" if raw_verdict.verdict == "TIE" else " is better"
    letter = "y" if raw_verdict.position_swap else "x"
    return (
        f"{letter} shown first{again}: {_VERDICT_NAMES[raw_verdict.verdict]}{better}."
    )


def orders(
    dimension: str, n_pairs: int, n_flips: int, results: Sequence[Mapping[str, Any]]
) -> str:
    """Say how often the orders of a pair disagree, and a judge with itself; empty where nothing was asked twice."""
    parts = []
    if n_pairs:
        parts.append(
            f" the two orders of a pair disagree in {format_percent(n_flips / n_pairs)} of pairs"
        )
    for row in results:
        if row["estimate"] is None:
            continue
        if row["probe"] == "retest":
            parts.append(
                f" a repeated query has the same verdict in {format_percent(row['estimate'])}"
            )
        elif row["probe"] == "twin":
            parts.append(
                f" an answer ties with itself in {format_percent(row['estimate'])}"
            )
        elif row["probe"].startswith("rubric: "):
            parts.append(
                f" under the {row['probe']} kappa with the verdicts is {format_number(row['estimate'], 2, sign=True)} "
                "beside that of a repeat"
            )
    return f"{dimension}:{';'.join(parts)}." if parts else ""
