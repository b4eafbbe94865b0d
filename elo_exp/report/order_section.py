"""The order experiment as a section of a page: random orders of the same matches, replayed through Elo."""

from collections.abc import Sequence

from elo_exp.formatting import NO_VALUE, format_interval, format_number
from elo_exp.ratings.convergence import Convergence
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.report.dimension_view import DimensionView
from elo_exp.report.document import (
    Block,
    Bullets,
    Details,
    FigureSlot,
    Paragraph,
    Styled,
    Table,
)
from elo_exp.report.sentences import order_sentences
from elo_exp.report.standings_view import StandingsView

_MAX_ENTRANTS_PER_DIMENSION = 100
_AFTER_LOOKS_NOTE = (
    "Not computed. After interim analyses, Elo needs verdicts in both orders (",
    Styled("judging.orders", "code"),
    ") on prompts on which every pair was judged.",
)
# Rounding leaves so much of the Monte Carlo error of a single order
_MAX_ROUNDING_ERROR_POINTS = 1e-9


def list_order_blocks(view: StandingsView) -> list[Block]:
    """Return Elo averaged over match orders; empty if Elo has rated no rubric."""
    standings, dimensions, k = view.standings, view.dimensions, view.standings.k
    rated_dimensions = {d.name: d for d in dimensions if k in d.elo}
    if not rated_dimensions:
        return [Paragraph(_AFTER_LOOKS_NOTE)] if view.has_looks else []
    boards = [d.elo[k] for d in rated_dimensions.values()]
    ks = sorted({other_k for d in dimensions for other_k in d.elo})
    convergences = {name: standings.convergence[name] for name in rated_dimensions}
    sentences = [
        f"{name}: {order_sentences.convergence(convergence, k, ks)}"
        for name, convergence in convergences.items()
    ]
    table = _build_table(list(rated_dimensions.values()), convergences, k, ks)
    return [
        Paragraph(order_sentences.lede(boards, k), "lede"),
        Bullets(sentences),
        FigureSlot("k_sensitivity"),
        FigureSlot("permutation_traces"),
        FigureSlot("order_effect"),
        Details("Elo by rubric and K", [table]),
    ]


def _build_table(
    dimensions: Sequence[DimensionView],
    convergences: dict[str, Convergence],
    k: float,
    ks: Sequence[float],
) -> Table:
    columns = ["Entrant", "Rubric", "Mean Elo", "95% CI", "Random error"]
    return Table(
        label="Elo",
        columns=[*columns, *(f"K = {other_k:g}" for other_k in ks), "Limit"],
        words=["Rubric"],
        rows=[
            [
                *_make_mean_cells(d.name, row),
                *(_format_mean(d.elo.get(other_k), row.model) for other_k in ks),
                format_number(convergences[d.name].limit.get(row.model)),
            ]
            for d in dimensions
            for row in d.elo[k].ratings[:_MAX_ENTRANTS_PER_DIMENSION]
        ],
        note=(
            f"95% CI: {dimensions[0].elo[k].interval or 'none'}. Random error: the standard error of the mean over match "
            "orders. More orders make it smaller, and it says nothing about the entrants. Limit: the value that Elo "
            "approaches as K grows."
        ),
    )


def _make_mean_cells(dimension: str, row: Rating) -> list[str]:
    error = row.ordering_error
    return [
        row.model,
        dimension,
        format_number(row.rating, 1),
        format_interval(row.ci_low, row.ci_high),
        NO_VALUE
        if error is None or error <= _MAX_ROUNDING_ERROR_POINTS
        else format_number(error, 2),
    ]


def _format_mean(board: Leaderboard | None, model: str) -> str:
    return NO_VALUE if board is None else format_number(board.row(model).rating)
