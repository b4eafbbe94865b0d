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
from elo_exp.report.sentences import audit_sentences as words

_PLAN_LEGEND = """\
  finds: the effect found in 80 % of audits of a judge that never ties on equal answers; of a judge that does, less is
  found. Of ladder, constant, refusal, retest: how far beyond what is ok. All but the first also in parts.
  ok in reach: 80 % of judges without any fault are called ok, or would be from so many prompts."""
CSS_CLASS_BY_VERDICT = {"biased": "no", "ok": "yes"}


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """What was found on one dimension.

    audit     as in audit.json
    measures  with the questions of each and their answers
    """

    conclusion: Conclusion
    audit: Mapping[str, Any]
    measures: Sequence[Measure]


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """A probe: what was decided, and then estimate, interval, what is ok, prompts and Elo points."""

    probe: str
    verdict: str
    css: str | None
    cells: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Answer:
    title: str
    text: str
    is_winner: bool


@dataclass(frozen=True, kw_only=True)
class Example:
    """The question on which a bias is clearest."""

    probe: str
    dimension: str
    form: str
    prompt_id: str
    prompt_text: str
    is_open: bool
    answers: Sequence[Answer]
    verdicts: Sequence[tuple[str, str]]  # what was said, and why


@dataclass(frozen=True, kw_only=True)
class FormRow:
    form: str
    probe: str
    source: str
    cells: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class GoldRow:
    """Labelled pairs of a subset; `line` is the console's."""

    subset: str
    cells: Sequence[str]
    line: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """What console and page show of one dimension."""

    dimension: str
    conclusion: str
    counts: str
    margin: str
    results: Sequence[ResultRow]
    examples: Sequence[Example]
    forms: Sequence[FormRow]
    orders: str
    gold: Sequence[GoldRow]
    left_out: Sequence[tuple[str, str]]  # probes, and why
    of_turns: str  # prompts that are left out, and why; empty where none is


@dataclass(frozen=True, kw_only=True)
class ReachRow:
    """What a probe would find: the smallest effect, and the prompts for a judge without a fault to be called ok."""

    dimension: str
    probe: str
    n_prompts: int
    effect: float
    n_needed: int


def build_section(audited: AuditResult, probes: Mapping[str, Probe]) -> Section:
    """Put into words what an audit found on one dimension."""
    audit = audited.audit
    by_name = {measure.name: measure for measure in audited.measures}
    dimension, results = audit["dimension"], audit["results"]
    both_orders = by_name["position"].answered if "position" in by_name else ()
    pairs = [judgment for _, judgment, _ in both_orders]
    return Section(
        dimension=dimension,
        conclusion=words.describe_conclusion(audited.conclusion),
        counts=words.counts(
            audit["n_prompts"],
            audit["n_questions"],
            audit["n_invalid"],
            audit["dollars"],
        ),
        margin=format_number(audit["settings"]["delta"], 2),
        results=[_make_result_row(row) for row in results],
        examples=list(_select_examples(results, by_name)),
        forms=[
            row
            for measure in audited.measures
            if measure.name in probes
            for row in _list_form_rows(measure)
        ],
        orders=words.orders(
            dimension, len(pairs), sum(bool(j.inconsistent) for j in pairs), results
        ),
        gold=[_make_gold_row(row) for row in audit["gold"]],
        left_out=[
            (name, probe.not_for[dimension])
            for name, probe in probes.items()
            if dimension in probe.not_for
        ],
        of_turns=words.describe_left_out_turns(audit["n_of_turns"], audit["n_bank"]),
    )


def format_console(sections: Sequence[Section]) -> str:
    """Return the console's lines."""
    return "\n\n".join("\n".join(_format_lines(section)) for section in sections)


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


def _format_lines(section: Section) -> Iterator[str]:
    yield section.conclusion
    yield section.counts
    yield format_table(
        ("probe", "estimate", "90 % interval", "ok", "prompts", "Elo", "verdict"),
        [(row.probe, *row.cells, row.verdict) for row in section.results],
        text=["verdict"],
    )
    yield from (row.line for row in section.gold)
    for probe, why in section.left_out:
        yield f"left out: {probe}, since {why}"


def _make_result_row(row: Mapping[str, Any]) -> ResultRow:
    return ResultRow(
        probe=row["probe"],
        verdict=words.verdict(row),
        css=CSS_CLASS_BY_VERDICT.get(row["verdict"]),
        cells=(
            format_number(row["estimate"], 2, sign=row["kind"] == "bias"),
            format_interval(row["low"], row["high"], 2),
            words.format_bound(row["kind"], row["bound"]),
            format_count(row["n"]),
            words.elo(row),
        ),
    )


def _select_examples(
    results: Sequence[Mapping[str, Any]], measures: Mapping[str, Measure]
) -> Iterator[Example]:
    """Yield an example of the first biased measure of each probe."""
    shown_families: set[str] = set()
    for row in results:
        family = row["probe"].split(":")[0]
        if row["verdict"] == "biased" and family not in shown_families:
            yield _make_example(
                row, measures[row["probe"]].answered, is_open=not shown_families
            )
            shown_families.add(family)


def _make_example(
    row: Mapping[str, Any], answered: Sequence[AnsweredQuestion], *, is_open: bool
) -> Example:
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
    sides = (
        (
            f"x: {asked_question.question.form}",
            comparison.entrant_a,
            comparison.response_a,
        ),
        ("y", comparison.entrant_b, comparison.response_b),
    )
    return Example(
        probe=row["probe"],
        dimension=comparison.dimension,
        form=asked_question.question.form,
        prompt_id=comparison.prompt_id,
        prompt_text=comparison.prompt_text,
        is_open=is_open,
        answers=[
            Answer(title=title, text=response, is_winner=entrant == judgment.winner)
            for title, entrant, response in sides
        ],
        verdicts=[
            (words.describe_verdict(verdict), verdict.reasoning)
            for verdict in judgment.raw
        ],
    )


def _list_form_rows(measure: Measure) -> Iterator[FormRow]:
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
        cells = (format_count(len(values)), mean)
        yield FormRow(form=form, probe=measure.name, source=source, cells=cells)


def _make_gold_row(row: Mapping[str, Any]) -> GoldRow:
    accuracy, strict, kappa = (
        format_number(row[key], 3) for key in ("accuracy", "strict", "kappa")
    )
    return GoldRow(
        subset=row["subset"],
        cells=(
            *map(format_count, (row["n"], row["n_invalid"], row["n_flips"])),
            accuracy,
            format_interval(row["low"], row["high"], 3),
            strict,
            kappa,
            format_interval(row["kappa_low"], row["kappa_high"], 3),
        ),
        line=words.describe_gold(row["subset"], row),
    )
