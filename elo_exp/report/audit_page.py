"""The page and the console text of a judge audit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from elo_exp.analysis.audit_decisions import AnsweredQuestion, Measure
from elo_exp.analysis.conclusions import Conclusion
from elo_exp.console import format_table, wrap_lines
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
  detects    the smallest effect that 80% of audits find, for a judge that never ties on equal answers
             (if the judge ties, audits find smaller effects; for ladder, constant, refusal and retest: how far
             beyond the accepted range)
  can be ok  whether 80% of judges without a fault are called ok, or the number of prompts from which they are"""
STYLE_BY_VERDICT: dict[str, Style] = {"biased": "no", "ok": "yes"}
_RESULT_NOTE = (
    "The figure shows the biases. The tests ladder, constant, refusal and retest have other scales. Ok: the 90% interval "
    "lies within the accepted range. Biased: the effect is significant (Holm over all tests, 5% error), and the estimate "
    "is at the limit or beyond. Cannot tell: neither, with so few prompts. Elo: the rating difference that this "
    "preference makes between two entrants of equal quality. Compare it with the gaps in your tournament."
)
_FORMS_NOTE = (
    "Mean of a bias: the share of verdicts for the form (a tie counts half), minus a half or minus the share for its "
    "control. Mean of ladder: the share of verdicts for the better answer. Mean of constant and refusal: the share of "
    "pairs that the form wins in both orders. Mean of twin: the share of ties."
)
_GLOSSARY = (
    (
        "test",
        "Questions with a known right answer: which of two answers is better, x or y?",
    ),
    (
        "bias",
        "The share of verdicts for x, minus a half or minus the share without the added text. The right value is 0.",
    ),
    (
        "ladder",
        "Graded answers: three answers of known order. The result is the share of verdicts for the better of two neighbours.",
    ),
    ("retest", "The share of equal verdicts if a judge call is repeated."),
    (
        "ok, biased, cannot tell",
        "The effect is within the accepted range, beyond it, or there are too few prompts to know.",
    ),
)
_FOOTER = "All numbers are in audit.json, and all questions with their verdicts are in verdicts.jsonl, next to this page."


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """The result of an audit on one dimension.

    audit     as in audit.json
    measures  each with its questions and verdicts
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
        """The numbers of questions and invalid verdicts, and the cost."""
        counts = ("n_prompts", "n_questions", "n_invalid", "dollars")
        return words.counts(*(self.audit[name] for name in counts))


@dataclass(frozen=True, kw_only=True)
class ReachRow:
    """The power of a test: the smallest effect it detects, and the prompts to call a judge without a fault ok."""

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
    lede = [Paragraph(f"The judge is asked{role}.", "facts")] if role else []
    verdicts = [row["verdict"] for result in audited for row in result.audit["results"]]
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
        headline=words.headline(str(manifest["judge_model"]), verdicts),
        lede=lede,
        sections=[
            Section(
                "result", "Result", [*result_blocks, Paragraph(_RESULT_NOTE, "small")]
            ),
            Section("examples", "Clearest examples", examples),
            Section(
                "forms", "By form", [*form_blocks, Paragraph(_FORMS_NOTE, "small")]
            ),
            Section("orders", "Order, repeats and paraphrases", orders),
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
    """Return the result of an audit for the console."""
    return "\n\n".join("\n".join(_format_lines(result, probes)) for result in audited)


def format_plan(rows: Sequence[ReachRow]) -> str:
    """Return the power of each test, for a plan."""
    table = format_table(
        ("rubric", "test", "prompts", "detects", "can be ok"),
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
        text=["test"],
    )
    return f"{table}\n{_PLAN_LEGEND}"


def _format_lines(result: AuditResult, probes: Mapping[str, Probe]) -> Iterator[str]:
    yield from wrap_lines(
        [f"{words.describe_conclusion(result.conclusion)}.", f"{result.counts}."]
    )
    yield format_table(
        (
            *("test", "estimate", "90% interval", "accepted"),
            *("prompts", "Elo", "needed", "result"),
        ),
        [
            (
                row["probe"],
                *_make_result_cells(row),
                format_count(row["need"]) if row["need"] else "",
                row["verdict"],
            )
            for row in result.audit["results"]
        ],
        text=["result"],
    )
    for row in result.audit["gold"]:
        yield from wrap_lines([f"{words.describe_gold(row['subset'], row)}."])
    for name, why in _list_unsuitable_probes(result, probes):
        yield f"left out: {name} ({why})"


def _build_results_table(result: AuditResult) -> Table:
    return Table(
        label=f"Results on {result.dimension}",
        columns=[
            "Test",
            "Result",
            "Estimate",
            "90% interval",
            "Accepted",
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
        words=["Result"],
    )


def _make_result_cells(row: Mapping[str, Any]) -> list[str]:
    """Return the estimate of a test, its interval, the accepted range, the number of prompts and Elo points."""
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
    """Return the prompts and tests that are left out, with the reasons."""
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
    """Return the tests that do not fit a dimension, with the reasons."""
    return [
        (name, probe.not_for[result.dimension])
        for name, probe in probes.items()
        if result.dimension in probe.not_for
    ]


def _select_examples(result: AuditResult) -> Iterator[Details]:
    """Yield an example of the first biased measure of each test."""
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
    """Return the question with the strongest bias; among equals, the shortest one."""
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
        columns=["Form", "Test", "Source", "Questions", "Mean"],
        rows=[
            row
            for measure in result.measures
            if measure.name in probes
            for row in _list_form_rows(measure)
        ],
        words=["Test", "Source"],
    )


def _list_form_rows(measure: Measure) -> Iterator[list[str]]:
    """Yield the mean of each form of a test; for a floor also by source of the prompts."""

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
            "Order changes verdict",
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
