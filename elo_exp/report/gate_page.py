"""The page of a gate, its text on the console, and gate.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elo_exp.analysis.checks import CANNOT_TELL, FAILED, Check
from elo_exp.analysis.conclusions import Conclusion, Gold
from elo_exp.analysis.conclusions.gate_conclusion import RubricResult
from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.analysis.gate_checks import gate_check_definitions
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.noninferiority import PointShare, WorstPrompt
from elo_exp.analysis.repeated_gates import EarlierGates
from elo_exp.console import format_table, wrap_lines
from elo_exp.formatting import NO_VALUE, format_count, format_number, shorten
from elo_exp.judges import role_suffix
from elo_exp.report.document import (
    Block,
    Cell,
    Document,
    Facts,
    FigureSlot,
    Heading,
    Paragraph,
    Section,
    Style,
    Styled,
    Table,
    TextFragment,
    format_markdown_table,
)
from elo_exp.report.judge_section import (
    STATE_LABELS,
    STATES_IN_ORDER,
    find_worst_state,
)
from elo_exp.report.provenance import (
    build_details_section,
    format_kicker,
    list_made_blocks,
    list_run_bill,
)
from elo_exp.report.sentences import gate_sentences as words
from elo_exp.report.sentences.check_sentences import describe_audits
from elo_exp.report.sentences.scope_line import describe_run_scope
from elo_exp.report.viewer import Texts, list_verdict_blocks

_MAX_QUESTION_CHARACTERS = 80
_WORST_LABEL = "Prompts with the largest losses"
_ORDER_NAMES = {"one": "one order", "both": "both orders", "reconciled": "both orders"}
_RESULT_STYLES: Mapping[str, tuple[Style, str]] = {
    "pass": ("passed", "✓"),
    "same answers": ("not_done", "–"),
    "fail": ("failed", "✕"),
    "cannot tell": ("cannot_tell", "?"),
}
_GLOSSARY = (
    (
        "win rate",
        "How often the candidate beats the baseline: 1 for a win, 1/2 for a tie, averaged over the prompts with valid "
        "verdicts. The files call it the share of points.",
    ),
    ("margin", "The loss in win rate that the gate tolerates."),
    (
        "one-sided bounds",
        "The lowest and the highest win rate that prompts like these support. An invalid verdict counts as lost in the "
        "lower bound and as won in the upper bound. Verdicts that change when the answers swap places count no more "
        "than those of a candidate at the margin.",
    ),
    (
        "prompts needed",
        "With this number, a candidate equal to the baseline passes with 80% probability, if the same share of "
        "verdicts is invalid.",
    ),
    (
        "verdict",
        "The judge’s decision on two answers in one order: A, B, tie or invalid.",
    ),
    (
        "control",
        "Degraded copies of the baseline’s answers, with a quarter of their words in random order. The judge compares "
        "them with the originals and must reject them.",
    ),
    (
        "order inconsistency",
        "The two orders of a comparison name different winners, because of position bias or noise.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The result of a gate, and its conclusion.

    results  result by dimension
    quality  quality of the judgments of each dimension
    checks   checks of the judge and of the candidate's answers, by dimension; {} if no judge was called
    audits   the last audit of the judge, by dimension
    earlier  results that were shown before prompts were added, by dimension; {} if they are not counted
    roles    roles that the judge's prompts give it
    """

    conclusion: Conclusion
    shares: Sequence[PointShare]
    results: Mapping[str, RubricResult]
    worst: Sequence[WorstPrompt]
    quality: Sequence[JudgeQuality]
    checks: Mapping[str, Sequence[Check]]
    audits: Mapping[str, Diagnosis]
    orders: str
    margin: float
    margin_elo: float | None
    alpha: float
    dollars: float
    roles: Sequence[str] = ()
    earlier: Mapping[str, EarlierGates] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        return words.verdict(self.conclusion)

    @property
    def title(self) -> str:
        names = [
            name
            for name, result in self.results.items()
            if result.state == "cannot tell"
        ]
        return words.title(
            self.conclusion, names if len(names) < len(self.results) else ()
        )

    @property
    def scope_sentence(self) -> str:
        """Whose verdicts these are, and what they do not cover."""
        if self.conclusion.state == "same answers":
            return "No judge was called, because the answers are the same."
        golds = {name: Gold.of(last["audit"]) for name, last in self.audits.items()}
        return describe_run_scope(self.conclusion.scope, golds)

    @property
    def terms(self) -> list[tuple[str, str]]:
        """What the result rests on: the judge, the settings, the cost, and warnings about judge and answers."""
        is_judged = self.conclusion.state != "same answers"
        judge = f"{self.conclusion.scope.judge}{role_suffix(self.roles)}"
        n_invalid = sum(share.n_invalid for share in self.shares)
        n_lost = max(share.n_lost for share in self.shares)
        lines_by_label = {
            "judge": [f"{judge}, {_ORDER_NAMES.get(self.orders, self.orders)}."]
            if is_judged
            else [],
            "margin": [words.margin(self.margin, self.margin_elo, self.alpha)],
            "win rate": words.rules(self.margin),
            "alpha": words.looks(self.earlier, self.alpha),
            "cost": [f"${self.dollars:.2f}."],
            "audit": describe_audits(self.audits) if is_judged else [],
            "prompts": words.groups(self.shares),
            "invalid": [words.describe_invalid(n_invalid)] if n_invalid else [],
            "missing": [words.describe_lost_answers(n_lost)] if n_lost else [],
            "checks": words.describe_check_results(self.checks),
        }
        return [(label, " ".join(x)) for label, x in lines_by_label.items() if x]


def build_document(
    gate: GateResult,
    manifest: Mapping[str, Any],
    *,
    texts: Texts | None,
    losses: Sequence[Block] = (),
    colors: Mapping[str, int],
) -> Document:
    """Return the page of a gate.

    losses  comparisons that the candidate lost
    """
    baseline, subject = str(gate.conclusion.rival), str(gate.conclusion.subject)
    basis = [("baseline", baseline), *gate.terms]
    basis = [(label, text) for label, text in basis if label != "cost"]
    return Document(
        kicker=format_kicker("gate", manifest),
        headline=gate.title,
        lede=[
            Paragraph(gate.sentence, "lede"),
            Paragraph(gate.scope_sentence, "whose"),
        ],
        sections=[
            Section(
                "result",
                "Result",
                [
                    _build_shares_table(gate, is_page=True),
                    FigureSlot("gate"),
                    Heading("What the result rests on"),
                    Facts([(label.capitalize(), text) for label, text in basis]),
                ],
            ),
            Section(
                "judge",
                "Could this judge have seen a worse answer?",
                [build_checks_table(gate.checks)],
            ),
            Section(
                "worst", f"Where {subject} lost", [_build_worst_table(gate), *losses]
            ),
            Section(
                "verdicts",
                "Verdicts",
                list_verdict_blocks(texts, manifest, colors=colors),
            ),
            build_details_section(
                list_run_bill(manifest),
                made=list_made_blocks(manifest, [("Baseline", baseline)]),
                terms=_GLOSSARY,
            ),
        ],
        verdict_data=texts.island if texts else None,
    )


def format_markdown(gate: GateResult) -> str:
    """Return gate.md, the summary for a pull request."""
    parts = [
        f"## {gate.title}",
        gate.sentence,
        format_markdown_table(_build_shares_table(gate)),
        "\n".join(f"- **{label}**: {text}" for label, text in gate.terms),
    ]
    if gate.worst:
        table = _build_short_worst_table(gate)
        parts += [f"{_WORST_LABEL}:", format_markdown_table(table)]
    return "\n\n".join([*parts, gate.scope_sentence])


def format_console(gate: GateResult) -> str:
    """Return the text of a gate for the console."""
    lines = [
        *(f"{label:<14}{text}" for label, text in gate.terms),
        f"{'scope':<14}{gate.scope_sentence}",
    ]
    parts = [
        "\n".join(wrap_lines([gate.title])),
        _format_plain_table(_build_shares_table(gate)),
        "\n".join(wrap_lines([gate.sentence])),
        "\n".join(wrap_lines(lines)),
    ]
    if gate.worst:
        lines = [
            f"  {shorten(prompt.prompt_id, 40)}  {shorten(prompt.question, _MAX_QUESTION_CHARACTERS)}"
            for prompt in gate.worst
        ]
        parts.append("\n".join([f"{_WORST_LABEL}:", *lines]))
    return "\n\n".join(parts)


def _format_plain_table(table: Table) -> str:
    text = format_table(
        [column.lower() for column in table.columns],
        table.plain_rows,
        text=[word.lower() for word in table.words],
    )
    return text.strip("\n")


def _build_shares_table(gate: GateResult, *, is_page: bool = False) -> Table:
    needed = f"above {format_number(0.5 - gate.margin, 3)}"
    columns = ["Rubric", "Result", "Win rate", "One-sided bounds", "To pass", "Prompts"]
    has_invalid = any(share.n_invalid for share in gate.shares)
    rows: list[list[str | Cell]] = []
    for share in gate.shares:
        result = gate.results[share.dimension]
        text = words.describe_result(result)
        style, sign = _RESULT_STYLES[result.state]
        rows.append([
            share.dimension,
            Cell([Styled(f"{sign} {text}", style)], "words") if is_page else text,
            format_number(share.share, 3),
            _format_bounds(share),
            needed,
            format_count(share.n_prompts),
            *([format_count(share.n_invalid)] if has_invalid else []),
            format_count(share.n_needed),
        ])  # fmt: skip
    return Table(
        label="Win rate by rubric",
        columns=[*columns, *(["Invalid"] if has_invalid else []), "Prompts needed"],
        rows=rows,
        words=["Result"],
    )


def _format_bounds(share: PointShare) -> str:
    if share.low is None and share.high is None:
        return NO_VALUE
    return f"{format_number(share.low, 3)} to {format_number(share.high, 3)}"


def _build_worst_table(gate: GateResult) -> Table:
    return Table(
        label=_WORST_LABEL,
        columns=["Prompt", *(share.dimension for share in gate.shares), "Question"],
        rows=[
            [
                prompt.prompt_id,
                *(format_number(points, 2) for points in prompt.points.values()),
                shorten(prompt.question),
            ]
            for prompt in gate.worst
        ],
        words=["Question"],
        note="Win rate on each prompt: 0 means that the candidate lost every verdict.",
    )


def _build_short_worst_table(gate: GateResult) -> Table:
    return Table(
        label=_WORST_LABEL,
        columns=["Prompt", "Win rate", "Question"],
        rows=[
            [
                shorten(prompt.prompt_id),
                _format_points(prompt),
                shorten(prompt.question),
            ]
            for prompt in gate.worst
        ],
        words=["Win rate", "Question"],
    )


def _format_points(prompt: WorstPrompt) -> str:
    """Return the win rate on a prompt, for each rubric that has one."""
    numbers = {name: format_number(n, 2) for name, n in prompt.points.items()}
    return ", ".join(f"{name} {n}" for name, n in numbers.items() if n != NO_VALUE)


def build_checks_table(checks_by_dimension: Mapping[str, Sequence[Check]]) -> Table:
    """Return a row for each check, failed checks first, and a column for each dimension."""
    rows_by_name = {
        dimension: {check.name: check for check in checks}
        for dimension, checks in checks_by_dimension.items()
    }
    names = dict.fromkeys(
        check.name for checks in checks_by_dimension.values() for check in checks
    )
    rows: list[tuple[int, list[Cell]]] = []
    for name in names:
        checks = [row.get(name) for row in rows_by_name.values()]
        state = find_worst_state([check for check in checks if check])
        definition = gate_check_definitions()[name]
        title: list[TextFragment] = [
            definition.title,
            Styled(definition.accepted, "small"),
        ]
        rank = len(STATES_IN_ORDER)
        if not definition.is_measured_only:
            title = [STATE_LABELS[state], " ", *title]
            rank = STATES_IN_ORDER.index(state)
        rows.append((rank, [Cell(title), *map(_make_cell, checks)]))
    rows.sort(key=lambda row: row[0])
    return Table(
        label="Checks of the gate",
        columns=["Check", *checks_by_dimension],
        rows=[row for _, row in rows],
        words=list(checks_by_dimension),
        style="checks",
    )


def _make_cell(check: Check | None) -> Cell:
    """Return the value of a check, with its state if it did not pass."""
    if check is None:
        return Cell(NO_VALUE)
    finding = gate_check_definitions()[check.name].format_finding(check)
    text: list[TextFragment] = [Styled(finding, "bold")]
    if check.state in (FAILED, CANNOT_TELL):
        text += [" ", Styled(check.state, "badge")]
    return Cell(text, "caution" if check.state == FAILED else "plain")
