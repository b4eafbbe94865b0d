"""The sentences of a judge audit, for the console and the page."""

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

_VERDICT_NAMES = {
    "A": "the first answer is better",
    "B": "the second answer is better",
    "TIE": "tie",
}
_BOUND_SIGNS = {"bias": "± ", "share": "< ", "floor": "> "}


def describe_conclusion(audit_conclusion: Conclusion) -> str:
    """Say how many tests are ok, which show a bias, and how many cannot tell."""
    biased_probes = [
        r.name for r in audit_conclusion.reasons if r.about["verdict"] == "biased"
    ]
    probe_list = f" ({join_names(biased_probes)})" if biased_probes else ""
    n_ok = len(audit_conclusion.others)
    n_undecided = len(audit_conclusion.reasons) - len(biased_probes)
    return (
        f"{audit_conclusion.subject} on {audit_conclusion.scope.dimension}: "
        f"{n_ok} of {n_ok + len(audit_conclusion.reasons)} tests ok, {len(biased_probes)} biased{probe_list}, "
        f"{n_undecided} cannot tell{word_overlap([str(audit_conclusion.subject)])}"
    )


def describe_judges(audit_conclusion: Conclusion) -> str:
    """Say which of several judges are ok, which are biased, and which need more prompts."""
    scope_text = f"on {audit_conclusion.scope.dimension}"
    if not audit_conclusion.reasons:
        n = len(audit_conclusion.others)
        quantifier = "both" if n == 2 else f"all {n}"
        return f"{scope_text}: {quantifier} judges are ok{word_overlap(audit_conclusion.others)}"
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
    return f"{scope_text}: {', '.join(parts)}{word_overlap(all_judges)}"


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
            phrase="{judges} {verb} undecided with so few prompts",
        ),
        AuditStateRow(state="not audited", phrase="{judges} {verb} not audited"),
        AuditStateRow(state="ok", phrase="{judges} {verb} ok"),
    ]
)


def counts(n_prompts: int, n_questions: int, n_invalid: int, dollars: float) -> str:
    """Count prompts, questions and invalid verdicts, and say what they cost."""
    paid = f"paid ${dollars:.2f}" if dollars else "nothing paid"
    return (
        f"{format_count(n_prompts)} prompts, {format_count(n_questions)} questions "
        f"({format_count(n_invalid)} without a valid verdict), {paid}"
    )


def describe_left_out_turns(n: int, n_bank: int) -> str:
    """Say how many prompts an audit leaves out because they have several turns; empty for none."""
    if not n:
        return ""
    verb = "is" if n == 1 else "are"
    return f"{n:,} of {n_bank:,} prompts {verb} left out, because a conversation of several turns has no graded answers."


def format_bound(kind: str, bound: float) -> str:
    """Return the accepted range: ± the margin of a bias, below a share, above a floor."""
    return (
        f"{_BOUND_SIGNS[kind]}{format_number(bound, 2)}"
        if kind in _BOUND_SIGNS
        else NO_VALUE
    )


def verdict(row: Mapping[str, Any]) -> str:
    """Return the result of a test, with the number of prompts that would be enough."""
    need = row["need"]
    return (
        f"{row['verdict']}: needs {format_count(need)} prompts"
        if need
        else row["verdict"]
    )


def elo(row: Mapping[str, Any]) -> str:
    """Return the rating points that a bias is worth between two equals."""
    if row["kind"] != "bias" or not row["n"]:
        return NO_VALUE
    return effect_to_points(row["estimate"], sign=True)


def describe_gold(subject: str, row: Mapping[str, Any]) -> str:
    """Say how often a judge chooses the better answer of labelled pairs; `subject` names the pairs, or the judge."""
    accuracy, low, high, strict, kappa = (
        format_number(row[key], 3)
        for key in ("accuracy", "low", "high", "strict", "kappa")
    )
    invalid = f", {row['n_invalid']} invalid" * bool(row["n_invalid"])
    return (
        f"gold labels ({subject}): accuracy {accuracy} [{low}, {high}], {strict} in both orders, kappa {kappa}, "
        f"{row['n']} pairs{invalid}"
    )


def describe_verdict(raw_verdict: Verdict) -> str:
    """Return a verdict on x and y, and say which of them was shown first."""
    again = ", asked again" if raw_verdict.repeat else ""
    letter = "y" if raw_verdict.position_swap else "x"
    return f"{letter} shown first{again}: {_VERDICT_NAMES[raw_verdict.verdict]}."


def orders(
    dimension: str, n_pairs: int, n_flips: int, results: Sequence[Mapping[str, Any]]
) -> str:
    """Say how often a judge disagrees with itself; empty if no question was asked twice."""
    parts = []
    if n_pairs:
        parts.append(
            f"Order changes the verdict in {format_percent(n_flips / n_pairs)} of pairs"
        )
    for row in results:
        if row["estimate"] is None:
            continue
        if row["probe"] == "retest":
            parts.append(
                f"A repeated judge call gives the same verdict in {format_percent(row['estimate'])}"
            )
        elif row["probe"] == "twin":
            parts.append(
                f"An answer ties with itself in {format_percent(row['estimate'])}"
            )
        elif row["probe"].startswith("rubric: "):
            parts.append(
                f"Under the {row['probe']}, kappa with the first verdicts differs by "
                f"{format_number(row['estimate'], 2, sign=True)} from the kappa of a repeat"
            )
    return f"{dimension}: {'. '.join(parts)}." if parts else ""


def headline(judge: str, verdicts: Sequence[str]) -> str:
    """Return the title of an audit.

    verdicts  of all deciding tests, over all rubrics
    """
    n_biased, n_open = verdicts.count("biased"), verdicts.count("cannot tell")
    n = n_biased + n_open + verdicts.count("ok")
    if n_biased:
        return f"{judge} is biased in {n_biased} of {n} tests"
    if n_open:
        return f"No bias shown for {judge}, but {n_open} of {n} tests cannot tell"
    return f"No bias shown for {judge} in {n} tests"
