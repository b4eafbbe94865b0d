"""How far a judge can be trusted, as a section of a page: its checks, length, agreement with others and itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.analysis.checks import (
    CANNOT_TELL,
    FAILED,
    NOT_DONE,
    PASSED,
    Check,
    CheckDefinition,
    list_definitions_by_row,
)
from elo_exp.analysis.judge_bias import LengthControl
from elo_exp.analysis.standings import Standings
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_interval,
    format_number,
    format_percent,
)
from elo_exp.records import Rows
from elo_exp.report.dimension_view import DimensionView
from elo_exp.report.document import (
    Block,
    Cell,
    FigureSlot,
    Fold,
    Folds,
    Paragraph,
    Styled,
    Table,
    TextFragment,
    add_headings,
)
from elo_exp.report.sentences import check_sentences
from elo_exp.report.standings_view import StandingsView

JUDGE_HEADING = "Can this judge be trusted here?"
# In the order of the table: what a reader has to know first
STATE_LABELS = {
    FAILED: Styled("✕ Failed", "failed"),
    CANNOT_TELL: Styled("? Cannot tell", "cannot_tell"),
    PASSED: Styled("✓ Passed", "passed"),
    NOT_DONE: Styled("– Not done", "not_done"),
}
STATES_IN_ORDER = [*STATE_LABELS]
_MAX_EQUAL_LENGTH_ROWS = 30
_CHECKS_NOTE = (
    "A judge that looks only at the answers never flips, and lets the first shown win as often as the second. Length "
    "goes with quality where better entrants also write more, so it fails only where the lead does not survive equal "
    "length. Where the model does not fit, win rates describe a pair better than ratings."
)
KAPPA_NOTE = (
    "Kappa is 1 where both always name the same winner and 0 where they agree as often as chance would; intervals are "
    "clustered by prompt."
)
_KAPPA_COLUMNS = ("Comparisons", "Same winner", "Kappa", "95% CI")


def list_judge_blocks(view: StandingsView, refusal: str | None = None) -> list[Block]:
    """Return what is known of a judge.

    refusal  why it cannot be used, where more than its checks says so
    """
    dimensions, blocks = view.dimensions, list[Block]()
    if any(d.checks for d in dimensions):
        verdict = check_sentences.verdict(
            {d.name: d.checks for d in dimensions}, refusal
        )
        audits = check_sentences.describe_audits(view.standings.diagnoses)
        blocks += [
            Paragraph(" ".join([*verdict, *audits]), "lede"),
            _build_checks_table(dimensions),
        ]
    folds = _list_folds(view)
    return [*blocks, Folds(folds)] if folds else blocks


def _list_folds(view: StandingsView) -> list[Fold]:
    """Return what stands behind the checks, each on a line of its own until it is opened."""
    dimensions = view.dimensions
    controls = [d.diagnosis["length"] for d in dimensions if "length" in d.diagnosis]
    lengths = _build_length_table(controls)
    tables = _build_agreement_tables(dimensions, view.standings)
    agreement = (
        [*add_headings(tables), Paragraph(KAPPA_NOTE, "small")] if tables else []
    )
    return [
        Fold(
            "length",
            "Length",
            "win rates by length, and ratings at equal length",
            [FigureSlot("length_effect"), lengths],
        ),
        Fold(
            "fit",
            "Predicted and observed",
            "whether one rating for each entrant explains all pairs",
            [FigureSlot("predicted_and_observed")],
        ),
        Fold("agreement", "Agreement", _name_tables(tables), agreement),
    ]


def _name_tables(tables: Sequence[Table]) -> str:
    return ", ".join(table.label[:1].lower() + table.label[1:] for table in tables)


def _build_checks_table(dimensions: Sequence[DimensionView]) -> Table:
    """Return a row for each check, those that failed first, and a column for each dimension."""
    checks_by_dimension = {
        d.name: {c.name: c for c in d.checks} for d in dimensions if d.checks
    }
    rows = []
    for definition in list_definitions_by_row():
        checks = [row.get(definition.name) for row in checks_by_dimension.values()]
        if measured := [check for check in checks if check is not None]:
            worst = find_worst_state(measured)
            rows.append(
                (_rank(definition, worst), _make_row(definition, worst, checks))
            )
    rows.sort(key=lambda row: row[0])
    return Table(
        label="Checks of the judge",
        columns=["Check", *checks_by_dimension],
        rows=[row for _, row in rows],
        words=list(checks_by_dimension),
        note=_CHECKS_NOTE,
        style="checks",
    )


def find_worst_state(checks: Sequence[Check]) -> str:
    """Return the state of several checks that a reader has to know first."""
    return min((check.state for check in checks), key=STATES_IN_ORDER.index)


def _rank(definition: CheckDefinition, state: str) -> int:
    """Return where a check stands: what failed first, what is only to be known last."""
    is_known_only = not definition.blocked_claims and state in (PASSED, NOT_DONE)
    return len(STATES_IN_ORDER) if is_known_only else STATES_IN_ORDER.index(state)


def _make_row(
    definition: CheckDefinition, state: str, checks: Sequence[Check | None]
) -> list[Cell]:
    title: list[TextFragment] = [definition.title, Styled(definition.accepted, "small")]
    if _rank(definition, state) < len(STATES_IN_ORDER):
        title = [STATE_LABELS[state], " ", *title]
    return [Cell(title), *map(_make_cell, checks)]


def _make_cell(check: Check | None) -> Cell:
    """Return what a check found, with its state if it did not pass, or if the reader is to notice it."""
    if check is None:
        return Cell(NO_VALUE)
    text: list[TextFragment] = [Styled(check.definition.format_value(check), "bold")]
    if chip := check_sentences.chip(check):
        text += [" ", Styled(chip, "badge")]
    text.append(Styled(check.definition.describe_counts(check), "small"))
    return Cell(text, "caution" if check.state == FAILED else "plain")


def _build_length_table(controls: Sequence[LengthControl]) -> Table:
    rows = [
        [
            row.model,
            row.dimension,
            format_number(row.mean_length),
            format_number(row.rating),
            format_number(row.rating_at_equal_length),
            format_number(row.rating_at_equal_length - row.rating, sign=True),
        ]
        for control in controls
        for row in control.ratings[:_MAX_EQUAL_LENGTH_ROWS]
        if row.rating is not None and row.rating_at_equal_length is not None
    ]
    columns = ["Characters", "Rating", "At equal length", "Change"]
    return Table(
        label="Ratings at equal length",
        columns=["Entrant", "Dimension", *columns],
        words=["Dimension"],
        rows=rows,
        note=(
            "Bradley-Terry of the same battles, as it is and as it would be if all answers were equally "
            "long. Where better entrants also write more, a preference for length cannot be told from "
            "one for quality."
        ),
    )


def _build_agreement_tables(
    dimensions: Sequence[DimensionView], standings: Standings
) -> list[Table]:
    """Return a table of Cohen's kappas for each kind of pair that judged the same comparisons."""
    tables = []
    repeats = [d.diagnosis.get("repeats") or {} for d in dimensions]
    if repeats := [row for row in repeats if row.get("n_comparisons")]:
        tables.append(
            Table(
                label="Repeated queries",
                columns=["Dimension", *_KAPPA_COLUMNS],
                rows=[[row["dimension"], *_make_kappa_cells(row)] for row in repeats],
            )
        )
    if pairs := [row for row in standings.agreement if row["n_comparisons"]]:
        tables.append(
            Table(
                label="Agreement between dimensions",
                columns=["Dimension", "and", *_KAPPA_COLUMNS],
                words=["and"],
                rows=[
                    [row["first"], row["second"], *_make_kappa_cells(row)]
                    for row in pairs
                ],
                note="Dimensions that always agree measure the same thing.",
            )
        )
    if standings.judges_agreement:
        tables.append(
            _build_judges_table(standings.judges_agreement, standings.judges_ranks)
        )
    return tables


def _make_kappa_cells(row: Mapping[str, Any]) -> list[str]:
    return [
        format_count(row["n_comparisons"]),
        format_percent(row["agreement"]),
        format_number(row["kappa"], 2),
        format_interval(row["ci_low"], row["ci_high"], 2),
    ]


def _build_judges_table(agreement: Rows, ranks: Rows) -> Table:
    key_columns = ("first", "second", "dimension")
    ranks_by_pair = {tuple(row[name] for name in key_columns): row for row in ranks}
    rows = []
    for row in agreement:
        pair_ranks = ranks_by_pair.get(tuple(row[name] for name in key_columns))
        correlation = NO_VALUE
        if pair_ranks and pair_ranks["rho"] is not None:
            correlation = f"{format_number(pair_ranks['rho'], 2)} ({pair_ranks['n_models']} entrants)"
        names = [row["first"], row["second"], row["dimension"] or NO_VALUE]
        rows.append([*names, *_make_kappa_cells(row), correlation])
    return Table(
        label="Agreement between judges",
        columns=["Judge", "and", "Dimension", *_KAPPA_COLUMNS, "Rank correlation"],
        words=["and", "Dimension"],
        rows=rows,
        note=(
            "The rank correlation (Spearman) is of the ratings by what both have judged: judges who "
            "differ on many a pair may still put the entrants in the same order."
            + check_sentences.word_overlap(name for row in rows for name in row[:2])
        ),
    )
