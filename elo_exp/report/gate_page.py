"""What a gate shows: its page, and gate.md, which is the console's text, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elo_exp.analysis.checks import CANNOT_TELL, FAILED, Check
from elo_exp.analysis.conclusions import Conclusion, Gold
from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.analysis.gate_checks import gate_check_definitions
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.noninferiority import PointShare, WorstPrompt
from elo_exp.analysis.repeated_gates import EarlierGates
from elo_exp.formatting import NO_VALUE, format_count, format_number, shorten
from elo_exp.judges import role_suffix
from elo_exp.report.document import (
    Card,
    Cell,
    Document,
    Paragraph,
    Section,
    Styled,
    Table,
    TextFragment,
    format_markdown_table,
)
from elo_exp.report.judge_section import (
    JUDGE_HEADING,
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

_PROMPTS_NEEDED_NOTE = "Prompts needed: for 80% power to pass an equal candidate."
_GLOSSARY = (
    (
        "share of points",
        "Of the candidate against the baseline: 1 for a win, 1/2 for a tie, the mean over prompts with valid verdicts.",
    ),
    ("margin", "The loss of the share of points that is tolerated."),
    (
        "lower, upper bound",
        "One-sided bounds of the share, over prompts like these. An invalid verdict counts as lost in the lower one and "
        "as won in the upper one. Orders that disagree count no more than a candidate at the margin has.",
    ),
    (
        "prompts needed",
        "For 80% power to pass a candidate equal to the baseline, with as many invalid verdicts.",
    ),
    (
        "verdict",
        "The judge’s decision on two answers in one order: A, B, tie or invalid.",
    ),
    (
        "control",
        "Degraded copies of the baseline’s answers, a quarter of their words and no order, that the judge compares with "
        "these answers.",
    ),
    (
        "flip",
        "The two orders of a comparison name different winners: a sign of position bias or noise.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """What a gate found, and what may be said of it.

    quality  of the judgments of each dimension
    checks   of the judge and the candidate's answers, by dimension; {}: no judge was asked
    audits   the last audit of the judge, by dimension
    earlier  results that were shown before prompts were added, by dimension; {}: nobody counts them
    roles    what the judge is told that it is
    """

    conclusion: Conclusion
    shares: Sequence[PointShare]
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
    def scope_sentence(self) -> str:
        """Whose verdicts these are, and what they do not cover."""
        if self.conclusion.state == "same answers":
            return "No judge was asked: the answers are the same."
        golds = {name: Gold.of(last["audit"]) for name, last in self.audits.items()}
        return describe_run_scope(self.conclusion.scope, golds)

    @property
    def terms(self) -> list[str]:
        """By whom the gate was judged and by which settings, what it cost, and what to know of judge and answers."""
        is_judged = self.conclusion.state != "same answers"
        judge = f"{self.conclusion.scope.judge}{role_suffix(self.roles)}"
        n_invalid = sum(share.n_invalid for share in self.shares)
        n_lost = max(share.n_lost for share in self.shares)
        return [
            *([f"Judge {judge}, orders: {self.orders}."] if is_judged else []),
            words.margin(self.margin, self.margin_elo, self.alpha),
            *words.looks(self.earlier, self.alpha),
            f"Cost ${self.dollars:.2f}.",
            *(describe_audits(self.audits) if is_judged else []),
            *words.groups(self.shares),
            *([words.describe_invalid(n_invalid)] if n_invalid else []),
            *([words.describe_lost_answers(n_lost)] if n_lost else []),
            *words.describe_check_results(self.checks),
        ]


def build_document(
    gate: GateResult,
    manifest: Mapping[str, Any],
    *,
    texts: Texts | None,
    colors: Mapping[str, int],
) -> Document:
    """Return the page of a gate."""
    state, baseline = gate.conclusion.state, str(gate.conclusion.rival)
    subject = str(gate.conclusion.subject)
    card = Card(
        title=subject,
        chip=state,
        tone="open"
        if gate.conclusion.scope.is_baseline
        else words.STATE_ROWS[state].tone,
        blocks=[Paragraph(gate.sentence)],
    )
    facts = [f"{subject} against the recorded answers of {baseline}.", *gate.terms]
    rules = [*words.rules(gate.margin), _PROMPTS_NEEDED_NOTE]
    return Document(
        kicker=format_kicker("gate", manifest),
        headline=words.title(gate.conclusion),
        lede=[
            Paragraph(gate.scope_sentence, "whose"),
            Paragraph(" ".join(facts), "facts"),
        ],
        sections=[
            Section(
                "result",
                "Result",
                [
                    card,
                    _build_shares_table(gate.shares),
                    Paragraph(" ".join(rules), "small"),
                ],
            ),
            Section("worst", "Worst prompts", [_build_worst_table(gate)]),
            Section(
                "verdicts",
                "Verdicts",
                list_verdict_blocks(texts, manifest, colors=colors),
            ),
            Section("judge", JUDGE_HEADING, [build_checks_table(gate.checks)]),
            build_details_section(
                list_run_bill(manifest),
                made=list_made_blocks(manifest, [("Baseline", baseline)]),
                terms=_GLOSSARY,
            ),
        ],
        verdict_data=texts.island if texts else None,
    )


def format_markdown(gate: GateResult) -> str:
    """Return gate.md: what a pull request and the console show."""
    parts = [
        f"## Gate: {gate.conclusion.state}",
        gate.sentence,
        format_markdown_table(_build_shares_table(gate.shares)),
        "\n".join([*gate.terms, *words.rules(gate.margin)]),
    ]
    if gate.worst:
        table = Table(
            label="Worst prompts",
            columns=["Prompt", "Points", "Question"],
            rows=[
                [
                    shorten(prompt.prompt_id),
                    _format_points(prompt),
                    shorten(prompt.question),
                ]
                for prompt in gate.worst
            ],
            words=["Points", "Question"],
        )
        parts += [f"{table.label}:", format_markdown_table(table)]
    return "\n\n".join([*parts, gate.scope_sentence])


def _build_shares_table(shares: Sequence[PointShare]) -> Table:
    return Table(
        label="Shares of points",
        columns=[
            "Dimension",
            "Share of points",
            "Lower bound",
            "Upper bound",
            "Prompts",
            "Invalid",
            "Prompts needed",
        ],
        rows=[
            [
                share.dimension,
                *(format_number(n, 3) for n in (share.share, share.low, share.high)),
                *map(format_count, (share.n_prompts, share.n_invalid, share.n_needed)),
            ]
            for share in shares
        ],
    )


def _build_worst_table(gate: GateResult) -> Table:
    return Table(
        label="Worst prompts",
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
    )


def _format_points(prompt: WorstPrompt) -> str:
    """Return the points of a prompt on each dimension that has points."""
    numbers = {name: format_number(n, 2) for name, n in prompt.points.items()}
    return ", ".join(f"{name} {n}" for name, n in numbers.items() if n != NO_VALUE)


def build_checks_table(checks_by_dimension: Mapping[str, Sequence[Check]]) -> Table:
    """Return a row for each check, those that failed first, and a column for each dimension."""
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
        accepted = Styled(definition.accepted, "small")
        title = Cell([STATE_LABELS[state], " ", definition.title, accepted])
        rows.append((STATES_IN_ORDER.index(state), [title, *map(_make_cell, checks)]))
    rows.sort(key=lambda row: row[0])
    return Table(
        label="Checks of the gate",
        columns=["Check", *checks_by_dimension],
        rows=[row for _, row in rows],
        words=list(checks_by_dimension),
        style="checks",
    )


def _make_cell(check: Check | None) -> Cell:
    """Return what a check found, with its state if it did not pass."""
    if check is None:
        return Cell(NO_VALUE)
    finding = gate_check_definitions()[check.name].format_finding(check)
    text: list[TextFragment] = [Styled(finding, "bold")]
    if check.state in (FAILED, CANNOT_TELL):
        text += [" ", Styled(check.state, "badge")]
    return Cell(text, "caution" if check.state == FAILED else "plain")
