"""What an audit shows on the console and on its page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from elo_exp.analysis.audit_decisions import AnsweredQuestion, Measure
from elo_exp.analysis.conclusions import Conclusion
from elo_exp.console import format_table
from elo_exp.formatting import format_count, format_interval, format_number
from elo_exp.probes import Probe
from elo_exp.report.document import (
    Answer,
    Answers,
    Block,
    Cell,
    Details,
    Document,
    FigureSlot,
    Heading,
    OtherFigures,
    Paragraph,
    Section,
    Style,
    Styled,
    Table,
)
from elo_exp.report.provenance import (
    build_details_section,
    describe_judge_roles,
    format_kicker,
    list_made_blocks,
    list_run_bill,
)
from elo_exp.report.sentences import audit_sentences as words

_PLAN_LEGEND = """\
  finds: the effect found in 80% of audits of a judge that never ties on equal answers; of a judge that does, less is
  found. Of ladder, constant, refusal, retest: how far beyond what is ok. All but the first also in parts.
  ok in reach: 80% of judges without any fault are called ok, or would be from so many prompts."""
STYLE_BY_VERDICT: dict[str, Style] = {"biased": "no", "ok": "yes"}
_RESULT_NOTE = (
    "The figure has the biases; ladder, constant, refusal and retest have scales of their own. Ok: the "
    "90% interval lies within the margin. Biased: significant (Holm over all probes, α = .05) and at "
    "the margin or beyond. Else nobody can tell with so few prompts. Elo: the points that such a preference is worth "
    "between two entrants of equal quality that differ in nothing else; compare it with the gaps of your tournament."
)
_FORMS_NOTE = (
    "How often the form is preferred, a tie counting half, less a half or less what its control is; of the ladder, how "
    "often the better answer is; of constant and refusal, how often the form wins in both orders; of twin, how often it "
    "ties."
)
_GLOSSARY = (
    (
        "probe",
        "Questions whose right answer is known: which of two answers is better, x or y?",
    ),
    (
        "bias",
        "How often x is preferred less a half, or less what it is without the payload: 0 is right.",
    ),
    (
        "ladder",
        "Three answers of known order: how often the better of two neighbours is preferred.",
    ),
    ("retest", "The same query once more: the share of equal verdicts."),
    (
        "ok, biased, cannot tell",
        "Within the margin, beyond it, or too few prompts to say.",
    ),
)
_FOOTER = "Every number is in audit.json, every question with its verdicts in verdicts.jsonl beside this page."


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """What was found on one dimension.

    audit     as in audit.json
    measures  with the questions of each and their answers
    """

    conclusion: Conclusion
    audit: Mapping[str, Any]
    measures: Sequence[Measure]

    @property
    def dimension(self) -> str:
        return str(self.audit["dimension"])

    @property
    def measure_by_name(self) -> dict[str, Measure]:
        return {measure.name: measure for measure in self.measures}

    @property
    def counts(self) -> str:
        """What the judge was asked, and what that cost."""
        counts = ("n_prompts", "n_questions", "n_invalid", "dollars")
        return words.counts(*(self.audit[name] for name in counts))


@dataclass(frozen=True, kw_only=True)
class ReachRow:
    """What a probe would find: the smallest effect, and the prompts for a judge without a fault to be called ok."""

    dimension: str
    probe: str
    n_prompts: int
    effect: float
    n_needed: int


def build_document(
    audited: Sequence[AuditResult],
    probes: Mapping[str, Probe],
    manifest: Mapping[str, Any],
) -> Document:
    """Return the page of an audit.

    audited  by dimension
    """
    role = describe_judge_roles(manifest)
    lede = [Paragraph(f"Asked{role}.", "facts")] if role else []
    for result in audited:
        margin = format_number(result.audit["settings"]["delta"], 2)
        conclusion = words.describe_conclusion(result.conclusion)
        lede.append(Paragraph(f"{conclusion}.", "lede"))
        lede.append(Paragraph(f"{result.counts}. Margin {margin}.", "facts"))
    result_blocks: list[Block] = [FigureSlot("audit")]
    form_blocks: list[Block] = []
    for result in audited:
        result_blocks += [Heading(result.dimension), _build_results_table(result)]
        form_blocks += [Heading(result.dimension), _build_forms_table(result, probes)]
    orders = [Paragraph(text) for text in map(_describe_orders, audited) if text]
    examples = [example for result in audited for example in _select_examples(result)]
    command = f"python -m elo_exp {' '.join(manifest['overrides'])}"
    return Document(
        kicker=format_kicker("audit", manifest),
        headline=f"How far can {manifest['judge_model']} be trusted?",
        lede=lede,
        sections=[
            Section(
                "result", "Result", [*result_blocks, Paragraph(_RESULT_NOTE, "small")]
            ),
            Section("examples", "The clearest examples", examples),
            Section(
                "forms", "By form", [*form_blocks, Paragraph(_FORMS_NOTE, "small")]
            ),
            Section("orders", "Orders, repeats, paraphrases", orders),
            Section("gold", "Labelled pairs", [*map(_build_gold_table, audited)]),
            Section("left-out", "Left out", _list_left_out(audited, probes)),
            Section("figures", "Further figures", [OtherFigures()]),
            build_details_section(
                list_run_bill(manifest),
                made=[
                    Paragraph([Styled(command, "code")]),
                    *list_made_blocks(manifest),
                ],
                terms=_GLOSSARY,
            ),
        ],
        footer=_FOOTER,
    )


def format_console(audited: Sequence[AuditResult], probes: Mapping[str, Probe]) -> str:
    """Return the console's lines."""
    return "\n\n".join("\n".join(_format_lines(result, probes)) for result in audited)


def format_plan(rows: Sequence[ReachRow]) -> str:
    """Return what a plan says beside calls and dollars: what each probe would find, and call ok."""
    table = format_table(
        ("dimension", "probe", "prompts", "finds", "ok in reach"),
        [
            (
                row.dimension,
                row.probe,
                format_count(row.n_prompts),
                format_number(row.effect, 2),
                "yes"
                if row.n_needed <= row.n_prompts
                else f"from {format_count(row.n_needed)}",
            )
            for row in rows
        ],
        text=["probe"],
    )
    return f"{table}\n{_PLAN_LEGEND}"


def _format_lines(result: AuditResult, probes: Mapping[str, Probe]) -> Iterator[str]:
    yield words.describe_conclusion(result.conclusion)
    yield result.counts
    yield format_table(
        ("probe", "estimate", "90% interval", "ok", "prompts", "Elo", "verdict"),
        [
            (row["probe"], *_make_result_cells(row), words.verdict(row))
            for row in result.audit["results"]
        ],
        text=["verdict"],
    )
    for row in result.audit["gold"]:
        yield words.describe_gold(row["subset"], row)
    for name, why in _list_unsuitable_probes(result, probes):
        yield f"left out: {name}, since {why}"


def _build_results_table(result: AuditResult) -> Table:
    return Table(
        label=f"Results on {result.dimension}",
        columns=[
            "Probe",
            "Verdict",
            "Estimate",
            "90% interval",
            "Ok",
            "Prompts",
            "Elo",
        ],
        rows=[
            [
                row["probe"],
                Cell(words.verdict(row), STYLE_BY_VERDICT.get(row["verdict"], "")),
                *_make_result_cells(row),
            ]
            for row in result.audit["results"]
        ],
        words=["Verdict"],
    )


def _make_result_cells(row: Mapping[str, Any]) -> list[str]:
    """Return the estimate of a probe, its interval, what is ok, the number of prompts and Elo points."""
    return [
        format_number(row["estimate"], 2, sign=row["kind"] == "bias"),
        format_interval(row["low"], row["high"], 2),
        words.format_bound(row["kind"], row["bound"]),
        format_count(row["n"]),
        words.elo(row),
    ]


def _describe_orders(result: AuditResult) -> str:
    position = result.measure_by_name.get("position")
    judgments = [judgment for _, judgment, _ in position.answered] if position else []
    n_flips = sum(bool(judgment.inconsistent) for judgment in judgments)
    return words.orders(
        result.dimension, len(judgments), n_flips, result.audit["results"]
    )


def _list_left_out(
    audited: Sequence[AuditResult], probes: Mapping[str, Probe]
) -> list[Block]:
    """Return which prompts and which probes are left out, and why."""
    audit = audited[0].audit
    of_turns = words.describe_left_out_turns(audit["n_of_turns"], audit["n_bank"])
    sentences = [of_turns] if of_turns else []
    sentences += [
        f"{name} on {result.dimension}: {why}."
        for result in audited
        for name, why in _list_unsuitable_probes(result, probes)
    ]
    return [Paragraph(sentence) for sentence in sentences]


def _list_unsuitable_probes(
    result: AuditResult, probes: Mapping[str, Probe]
) -> list[tuple[str, str]]:
    """Return the probes that do not suit a dimension, and why."""
    return [
        (name, probe.not_for[result.dimension])
        for name, probe in probes.items()
        if result.dimension in probe.not_for
    ]


def _select_examples(result: AuditResult) -> Iterator[Details]:
    """Yield an example of the first biased measure of each probe."""
    shown_families: set[str] = set()
    for row in result.audit["results"]:
        family = row["probe"].split(":")[0]
        if row["verdict"] == "biased" and family not in shown_families:
            answered = result.measure_by_name[row["probe"]].answered
            yield _make_example(row, answered, is_open=not shown_families)
            shown_families.add(family)


def _make_example(
    row: Mapping[str, Any], answered: Sequence[AnsweredQuestion], *, is_open: bool
) -> Details:
    """Return the question with the strongest bias; among equals, the shortest."""
    prefers_x = row["kind"] != "floor" and row["estimate"] > 0
    asked_question, judgment, _ = min(
        answered,
        key=lambda answer: (
            -answer[2] if prefers_x else answer[2],
            answer[0].queries[0].n_chars,
        ),
    )
    comparison = asked_question.comparison
    form = asked_question.question.form
    sides = (
        (f"x: {form}", comparison.entrant_a, comparison.response_a),
        ("y", comparison.entrant_b, comparison.response_b),
    )
    prompt = _label_text(comparison.prompt_id, comparison.prompt_text)
    answers = [
        Answer(title, response, is_winner=entrant == judgment.winner)
        for title, entrant, response in sides
    ]
    verdicts = [
        _label_text(words.describe_verdict(verdict), verdict.reasoning)
        for verdict in judgment.raw
    ]
    return Details(
        [Styled(row["probe"], "chip"), f" {comparison.dimension}: {form}"],
        [prompt, Answers(answers), *verdicts],
        style="notable",
        is_open=is_open,
    )


def _label_text(label: str, text: str) -> Paragraph:
    return Paragraph([Styled(label, "bold"), f" {text}"], "text")


def _build_forms_table(result: AuditResult, probes: Mapping[str, Probe]) -> Table:
    return Table(
        label=f"By form on {result.dimension}",
        columns=["Form", "Probe", "Source", "Questions", "Mean"],
        rows=[
            row
            for measure in result.measures
            if measure.name in probes
            for row in _list_form_rows(measure)
        ],
        words=["Probe", "Source"],
    )


def _list_form_rows(measure: Measure) -> Iterator[list[str]]:
    """Yield the mean of each form of a probe; of a floor, by source of the prompts."""

    def group(answer: AnsweredQuestion) -> tuple[str, str]:
        asked_question = answer[0]
        source = asked_question.comparison.source if measure.kind == "floor" else ""
        return asked_question.question.form, source

    ordered = sorted(
        measure.answered, key=lambda answer: [name.lower() for name in group(answer)]
    )
    for (form, source), answers in groupby(ordered, key=group):
        values = [value for _, _, value in answers]
        mean = format_number(fmean(values), 2, sign=measure.kind == "bias")
        yield [form, measure.name, source, format_count(len(values)), mean]


def _build_gold_table(result: AuditResult) -> Table:
    return Table(
        label=f"Labelled pairs on {result.dimension}",
        columns=[
            "Subset",
            "Pairs",
            "Invalid",
            "Flips",
            "Accuracy",
            "95% CI",
            "Both orders",
            "Kappa",
            "95% CI of kappa",
        ],
        rows=[
            [
                row["subset"],
                *map(format_count, (row["n"], row["n_invalid"], row["n_flips"])),
                format_number(row["accuracy"], 3),
                format_interval(row["low"], row["high"], 3),
                format_number(row["strict"], 3),
                format_number(row["kappa"], 3),
                format_interval(row["kappa_low"], row["kappa_high"], 3),
            ]
            for row in result.audit["gold"]
        ],
    )
