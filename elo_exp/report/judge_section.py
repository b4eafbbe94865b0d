"""Whether a judge can be trusted, as a section of a page: its checks, length, agreement with others and itself."""

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
    Finding,
    Findings,
    Fold,
    Folds,
    Paragraph,
    Styled,
    Table,
    Text,
    TextFragment,
    add_headings,
)
from elo_exp.report.sentences import check_sentences
from elo_exp.report.standings_view import StandingsView

JUDGE_HEADING = "Can this judge be trusted here?"
# In the order of the page: what a reader has to know first
STATE_LABELS = {
    FAILED: Styled("✕ Failed", "failed"),
    CANNOT_TELL: Styled("? Cannot tell", "cannot_tell"),
    PASSED: Styled("✓ Passed", "passed"),
    NOT_DONE: Styled("– Not done", "not_done"),
}
STATES_IN_ORDER = [*STATE_LABELS]
_MAX_EQUAL_LENGTH_ROWS = 30
_NOTABLE_LABEL = Styled("Note", "chip")
KAPPA_NOTE = (
    "Kappa is 1 if both always name the same winner, and 0 if they agree as often as chance would. Intervals are "
    "clustered by prompt."
)
_KAPPA_COLUMNS = ("Comparisons", "Same winner", "Kappa", "95% CI")


def list_judge_blocks(view: StandingsView, refusal: str | None = None) -> list[Block]:
    """Return what is known about a judge.

    refusal  why it cannot be used, if more than its checks says so
    """
    dimensions, blocks = view.dimensions, list[Block]()
    if any(d.checks for d in dimensions):
        verdict = check_sentences.verdict(
            {d.name: d.checks for d in dimensions}, refusal
        )
        if verdict:
            blocks.append(Paragraph(" ".join(verdict), "lede"))
        blocks.append(Findings(_list_findings(view)))
    folds = _list_folds(view)
    return [*blocks, Folds(folds)] if folds else blocks


def _list_findings(view: StandingsView) -> list[Finding]:
    """Return a line for each check that has a state or a note, the checks that did not pass first."""
    rows = []
    for definition, checks in _group_checks(view.dimensions):
        state = find_worst_state([*checks.values()])
        rank = _rank(definition, state)
        is_notable = any(check.is_notable for check in checks.values())
        if rank == len(STATES_IN_ORDER) and not is_notable:
            continue
        label = _NOTABLE_LABEL if rank == len(STATES_IN_ORDER) else STATE_LABELS[state]
        sentences: list[Text] = [*check_sentences.describe_findings(definition, checks)]
        if definition.name == "audit":
            sentences = _list_audits(view) or sentences
        rows.append((rank, Finding(label, definition.title, sentences)))
    return [finding for _, finding in sorted(rows, key=lambda row: row[0])]


def _list_audits(view: StandingsView) -> list[Text]:
    """Return what audits found, or how to see the price of an audit."""
    diagnoses = view.standings.diagnoses
    if any("date" in diagnosis.get("audit", ()) for diagnosis in diagnoses.values()):
        return [*check_sentences.describe_audits(diagnoses)]
    command = Styled(check_sentences.AUDIT_PRICE_COMMAND, "code")
    return [["Not done. See the price: ", command]]


def _group_checks(
    dimensions: Sequence[DimensionView],
) -> list[tuple[CheckDefinition, dict[str, Check]]]:
    """Return each check that has results, with these by rubric."""
    grouped = []
    for definition in list_definitions_by_row():
        checks = {
            d.name: check
            for d in dimensions
            for check in d.checks
            if check.name == definition.name
        }
        if checks:
            grouped.append((definition, checks))
    return grouped


def _list_folds(view: StandingsView) -> list[Fold]:
    """Return tables and figures about the checks, each on a line of its own until it is opened."""
    dimensions = view.dimensions
    controls = [d.diagnosis["length"] for d in dimensions if "length" in d.diagnosis]
    lengths = _build_length_table(controls)
    tables = _build_agreement_tables(dimensions, view.standings)
    agreement = (
        [*add_headings(tables), Paragraph(KAPPA_NOTE, "small")] if tables else []
    )
    n_rubrics = sum(bool(d.checks) for d in dimensions)
    checks = [_build_checks_table(dimensions)] if n_rubrics else []
    return [
        Fold(
            "checks",
            "Values of all checks",
            "with 95% intervals and counts",
            checks,
        ),
        Fold(
            "length",
            "Length",
            "win rate of the longer answer, and ratings at equal length",
            [FigureSlot("length_effect"), lengths],
        ),
        Fold(
            "fit",
            "Predicted and observed win rates",
            "whether one rating per entrant explains all pairs",
            [FigureSlot("predicted_and_observed")],
        ),
        Fold("agreement", "Agreement", _name_tables(tables), agreement),
    ]


def _name_tables(tables: Sequence[Table]) -> str:
    return ", ".join(table.label[:1].lower() + table.label[1:] for table in tables)


def _build_checks_table(dimensions: Sequence[DimensionView]) -> Table:
    """Return a row for each check and a column for each rubric."""
    names = [d.name for d in dimensions if d.checks]
    return Table(
        label="Checks of the judge",
        columns=["Check", *names],
        rows=[
            [
                Cell([definition.title, Styled(definition.accepted, "small")]),
                *(_make_cell(checks.get(name)) for name in names),
            ]
            for definition, checks in _group_checks(dimensions)
        ],
        words=names,
        style="checks",
    )


def find_worst_state(checks: Sequence[Check]) -> str:
    """Return the state of several checks that a reader has to know first."""
    return min((check.state for check in checks), key=STATES_IN_ORDER.index)


def _rank(definition: CheckDefinition, state: str) -> int:
    """Return the place of a check: a failed one comes first, one that blocks no claim last."""
    is_known_only = not definition.blocked_claims and state in (PASSED, NOT_DONE)
    return len(STATES_IN_ORDER) if is_known_only else STATES_IN_ORDER.index(state)


def _make_cell(check: Check | None) -> Cell:
    """Return the value of a check, with its state if it did not pass or if a note explains it."""
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
        columns=["Entrant", "Rubric", *columns],
        words=["Rubric"],
        rows=rows,
        note=(
            "Bradley-Terry ratings of the same comparisons, as they are and as they would be if all answers were equally "
            "long. If better entrants also write more, a preference for length cannot be told from a preference for "
            "quality."
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
                label="Repeated judge calls",
                columns=["Rubric", *_KAPPA_COLUMNS],
                rows=[[row["dimension"], *_make_kappa_cells(row)] for row in repeats],
            )
        )
    if pairs := [row for row in standings.agreement if row["n_comparisons"]]:
        tables.append(
            Table(
                label="Agreement between rubrics",
                columns=["Rubric", "Other rubric", *_KAPPA_COLUMNS],
                words=["Other rubric"],
                rows=[
                    [row["first"], row["second"], *_make_kappa_cells(row)]
                    for row in pairs
                ],
                note="Rubrics that always agree measure the same thing.",
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
        columns=["Judge", "Other judge", "Rubric", *_KAPPA_COLUMNS, "Rank correlation"],
        words=["Other judge", "Rubric"],
        rows=rows,
        note=(
            "The rank correlation (Spearman) compares the ratings on the comparisons that both have judged. Judges that "
            "disagree on many comparisons may still rank the entrants in the same order."
            + check_sentences.word_overlap(name for row in rows for name in row[:2])
        ),
    )
