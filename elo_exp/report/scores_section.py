"""Scores of single answers: each criterion by entrant, and next to ratings of pairs their order and what each costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from elo_exp.analysis.order_agreement import OrderAgreement
from elo_exp.api.costs import format_dollars
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_interval,
    format_number,
    join_names,
)
from elo_exp.pipeline import Plan
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.report.document import Block, Paragraph, Table, add_headings
from elo_exp.report.leaderboard_section import list_leaderboard_blocks
from elo_exp.report.standings_view import StandingsView

_CRITERIA_NOTE = (
    "Mean of each criterion over the prompts on which all entrants have it, with its 95% interval. The intervals are not "
    "adjusted for the number of criteria, and no entrant is declared better on a single criterion."
)
_COST_NOTE = (
    "What all judge calls of this run cost if nothing is cached, estimated from the length of the texts at the prices of "
    "this run."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleScores:
    """The scores of single answers, as pages and consoles show them.

    criteria  the mean of each criterion: by dimension, then by criterion
    view      the mean scores; None if the page shows them as its own result
    orders    how each rubric of pairs and each scoring agree on the order of entrants
    plan      the judge calls of both, as if nothing were stored; None without pairs
    """

    criteria: Mapping[str, Mapping[str, Leaderboard]]
    view: StandingsView | None = None
    orders: Sequence[OrderAgreement] = ()
    plan: Plan | None = field(default=None)


def describe_order(agreement: OrderAgreement) -> str:
    """Say whether a rubric of pairs and a scoring rank the entrants alike."""
    rubric, scoring, n = agreement.rubric, agreement.scoring, agreement.n_pairs
    if not n:
        return f"{rubric} and {scoring} rank no two entrants in common."
    if agreement.is_same:
        return f"{rubric} and {scoring} rank the entrants in the same order."
    ties = ""
    if n_tied := agreement.n_tied:
        ties = f", and {n_tied:,} {'is' if n_tied == 1 else 'are'} equal by one of them"
    text = f"{rubric} and {scoring} agree on {agreement.n_same:,} of {n:,} pairs of entrants{ties}."
    if not agreement.contradicted:
        return f"{text} They contradict each other significantly on none."
    pairs = [f"{winner} over {loser}" for winner, loser in agreement.contradicted]
    return (
        f"{text} Both are significant and opposite on {len(pairs):,}: {rubric} prefers {join_names(pairs)}, and "
        f"{scoring} the reverse."
    )


def list_comparison_blocks(scores: SingleScores) -> list[Block]:
    """Return the mean scores of a page whose ratings are of pairs, whether both agree, and what each costs."""
    if scores.view is None:
        return []
    return [
        *(Paragraph(describe_order(agreement)) for agreement in scores.orders),
        *list_leaderboard_blocks(scores.view),
        *add_headings([table for table in [_build_cost_table(scores.plan)] if table]),
    ]


def _build_cost_table(plan: Plan | None) -> Table | None:
    if plan is None:
        return None
    columns, rows = list_cost_rows(plan)
    return Table(
        label="Cost of each",
        columns=columns,
        rows=rows,
        words=("What is judged",),
        note=_COST_NOTE if plan.is_paid else "",
    )


def list_cost_rows(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """Return the heads of columns, and for each rubric its judge calls, tokens and dollars."""
    columns = ["Rubric", "What is judged", "Judge calls", "Tokens in", "Tokens out"]
    rows = [
        [
            row.dimension,
            f"{format_count(row.pairs)} {'answers' if row.is_scored else 'pairs'}",
            format_count(row.queries),
            *(
                format_count(n) if plan.is_paid else NO_VALUE
                for n in (row.input_tokens, row.output_tokens)
            ),
            format_dollars(round(row.dollars, 4)) if plan.is_paid else "free",
        ]
        for row in plan.rows
    ]
    return [*columns, "Cost"], rows


def list_criteria_tables(scores: SingleScores) -> list[Block]:
    """Return a table for each dimension with criteria."""
    tables = [
        Table(
            label=f"Criteria of {name}",
            columns=["Criterion", *list_entrants(boards)],
            rows=list_criteria_rows(boards),
            note=_CRITERIA_NOTE,
        )
        for name, boards in scores.criteria.items()
    ]
    return [*tables] if len(tables) == 1 else add_headings(tables)


def list_entrants(boards: Mapping[str, Leaderboard]) -> list[str]:
    """Return the entrants of all criteria."""
    return list(dict.fromkeys(model for b in boards.values() for model in b.models))


def list_criteria_rows(boards: Mapping[str, Leaderboard]) -> list[list[str]]:
    """Return a row for each criterion: its name, and the mean of each entrant with its interval."""
    models = list_entrants(boards)
    return [
        [criterion, *_list_means(board, models)] for criterion, board in boards.items()
    ]


def _list_means(board: Leaderboard, models: Sequence[str]) -> Iterator[str]:
    for model in models:
        yield _format_mean(board.row(model)) if model in board.models else NO_VALUE


def _format_mean(row: Rating) -> str:
    interval = format_interval(row.ci_low, row.ci_high, 2)
    return f"{format_number(row.rating, 2)} ({interval})"
