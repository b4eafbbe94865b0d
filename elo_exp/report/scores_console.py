"""The console output of scores of single answers, below that of a tournament."""

from collections.abc import Iterator, Mapping

from elo_exp.console import format_table, wrap_lines
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.report import tournament_console
from elo_exp.report.scores_section import (
    SingleScores,
    describe_order,
    list_cost_rows,
    list_criteria_rows,
    list_entrants,
)


def format_scores(scores: SingleScores) -> str:
    """Return the lines about single answers; empty if the console has shown all of them."""
    lines = []
    if scores.view:
        lines += [
            "SCORES OF SINGLE ANSWERS",
            *tournament_console.format_leaderboards(
                scores.view.dimensions, scored=True
            ),
        ]
    lines += [describe_order(agreement) for agreement in scores.orders]
    blocks = ["\n".join(wrap_lines(lines))] if lines else []
    if scores.plan:
        columns, rows = list_cost_rows(scores.plan)
        heads = [column.lower() for column in columns]
        blocks.append(format_table(heads, rows).strip("\n"))
    blocks += _format_criteria(scores.criteria)
    return "\n\n".join(blocks)


def _format_criteria(
    criteria: Mapping[str, Mapping[str, Leaderboard]],
) -> Iterator[str]:
    for name, boards in criteria.items():
        table = format_table(
            ["criterion", *list_entrants(boards)], list_criteria_rows(boards)
        ).strip("\n")
        yield f"CRITERIA of {name}: means with 95% intervals\n\n{table}"
