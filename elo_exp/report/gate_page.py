"""What a gate shows: gate.md, which is the console's text, too, and the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elo_exp.analysis.checks import Check
from elo_exp.analysis.conclusions import Conclusion, Gold
from elo_exp.analysis.noninferiority import PointShare, WorstPrompt
from elo_exp.analysis.repeated_gates import EarlierGates
from elo_exp.formatting import NO_VALUE, format_count, format_number, shorten
from elo_exp.judges import role_suffix
from elo_exp.report.sentences import gate_sentences as words
from elo_exp.report.sentences.check_sentences import describe_audits
from elo_exp.report.sentences.taste_line import describe_run_scope

_CHIP_BY_STATE = {
    "same answers": "open",
    "pass": "supported",
    "fail": "caution",
    "cannot tell": "open",
}
_SHARE_COLUMNS = (
    "share of points",
    "lower bound",
    "upper bound",
    "prompts",
    "invalid",
    "prompts needed",
)


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """What a gate found, and what may be said of it.

    quality  rows of judge_quality of manifest.json
    checks   of the judge and the candidate's answers, by dimension; {}: no judge was asked
    audits   the last audit of the judge, by dimension
    earlier  results that were shown before prompts were added, by dimension; {}: nobody counts them
    roles    what the judge is told that it is
    """

    conclusion: Conclusion
    shares: Sequence[PointShare]
    worst: Sequence[WorstPrompt]
    quality: Sequence[Mapping[str, Any]]
    checks: Mapping[str, Sequence[Check]]
    audits: Mapping[str, Mapping[str, Any]]
    orders: str
    margin: float
    margin_elo: float | None
    alpha: float
    dollars: float
    roles: Sequence[str] = ()
    earlier: Mapping[str, EarlierGates] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table: the name of a dimension, and what stands in each further column."""

    name: str
    cells: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class WorstRow:
    """A prompt on which the candidate lost; points by dimension, a dash where there are none."""

    prompt_id: str
    question: str
    points: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class CheckRow:
    """A check of a dimension: what it is called, its state, what it found and what it accepts."""

    dimension: str
    cells: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class GatePage:
    """What gate.md and the page of a gate hold, in words."""

    conclusion: Conclusion
    chip: str
    verdict: str
    whose: str
    terms: Sequence[str]
    rules: Sequence[str]
    shares: Sequence[Row]
    worst: Sequence[WorstRow]
    worst_head: Sequence[str]
    checks: Sequence[CheckRow]


def gate_page(gate: GateResult) -> GatePage:
    """Put into words what a gate found."""
    n_invalid = sum(share.n_invalid for share in gate.shares)
    n_lost = max(share.n_lost for share in gate.shares)
    is_same = gate.conclusion.state == "same answers"
    role = role_suffix(gate.roles)
    judge_line = f"Judge {gate.conclusion.scope.judge}{role}, orders: {gate.orders}."
    judge_lines = [] if is_same else [judge_line]
    return GatePage(
        conclusion=gate.conclusion,
        chip="open"
        if gate.conclusion.scope.is_baseline
        else _CHIP_BY_STATE[gate.conclusion.state],
        verdict=words.verdict(gate.conclusion),
        whose="No judge was asked: the answers are the same."
        if is_same
        else describe_run_scope(
            gate.conclusion.scope,
            {
                name: Gold.of(last_audit["audit"])
                for name, last_audit in gate.audits.items()
            },
        ),
        terms=[
            *judge_lines,
            words.margin(gate.margin, gate.margin_elo, gate.alpha),
            *words.looks(gate.earlier, gate.alpha),
            f"Cost ${gate.dollars:.2f}.",
            *([] if is_same else describe_audits(gate.audits)),
            *words.groups(gate.shares),
            *([words.describe_invalid(n_invalid)] if n_invalid else []),
            *([words.describe_lost_answers(n_lost)] if n_lost else []),
            *words.control(
                [
                    check
                    for checks in gate.checks.values()
                    for check in checks
                    if check.name == "control"
                ]
            ),
        ],
        rules=words.rules(gate.margin),
        shares=[_make_share_row(share) for share in gate.shares],
        worst=[_make_worst_row(prompt) for prompt in gate.worst],
        worst_head=("Prompt", *(share.dimension for share in gate.shares), "Question"),
        checks=[
            CheckRow(dimension=name, cells=words.check_row(check))
            for name, checks in gate.checks.items()
            for check in checks
        ],
    )


def format_markdown(gate: GatePage) -> str:
    """Return gate.md: what a pull request and the console show."""
    parts = [
        [f"## Gate: {gate.conclusion.state}"],
        [gate.verdict],
        [
            _format_table_row("dimension", *_SHARE_COLUMNS),
            "|---|---:|---:|---:|---:|---:|---:|",
            *(
                _format_table_row(_escape_cell(row.name), *row.cells)
                for row in gate.shares
            ),
        ],
        [*gate.terms, *gate.rules],
    ]
    if gate.worst:
        parts.append(["Worst prompts:"])
        parts.append(
            [
                _format_table_row("prompt", "points", "question"),
                "|---|---|---|",
                *(
                    _format_table_row(
                        _escape_cell(row.prompt_id),
                        _format_points(row),
                        _escape_cell(row.question),
                    )
                    for row in gate.worst
                ),
            ]
        )
    parts.append([gate.whose])
    text = "\n\n".join("\n".join(lines) for lines in parts)
    return text.replace("\N{NO-BREAK SPACE}", " ")


def _make_share_row(share: PointShare) -> Row:
    numbers = [
        format_number(value, 3) for value in (share.share, share.low, share.high)
    ]
    return Row(
        name=share.dimension,
        cells=(
            *numbers,
            *map(format_count, (share.n_prompts, share.n_invalid, share.n_needed)),
        ),
    )


def _make_worst_row(prompt: WorstPrompt) -> WorstRow:
    return WorstRow(
        prompt_id=prompt.prompt_id,
        question=shorten(prompt.question),
        points={name: format_number(value, 2) for name, value in prompt.points.items()},
    )


def _format_table_row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_cell(text: str) -> str:
    return shorten(text.replace("|", "\\|").replace("\n", " "))


def _format_points(row: WorstRow) -> str:
    """Return the points of a prompt on each dimension that has points."""
    parts = [
        f"{_escape_cell(name)} {points}"
        for name, points in row.points.items()
        if points != NO_VALUE
    ]
    return ", ".join(parts)
