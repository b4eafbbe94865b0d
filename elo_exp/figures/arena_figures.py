"""Figures of a placement: the leaderboard, and predicted against observed win rates."""

from collections.abc import Sequence

import matplotlib
import numpy as np

from elo_exp.analysis.win_rates import wilson_interval
from elo_exp.arena.placement import Placement, compare_with_opponents
from elo_exp.figures import figure_kinds, style
from elo_exp.figures.style import (
    Row,
    describe_cut,
    format_label,
    grouped,
    make_panels,
    read_columns,
    render_plot,
)
from elo_exp.records import Plot

# Besides the placed models
MAX_LEADERBOARD_MODELS = 60
_MAX_OPPONENT_GROUPS = 8


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def plots(placement: Placement) -> list[Plot]:
    """Draw the leaderboard if a model has a rating, and the fit of the placed models that have one."""
    figures = []
    if np.isfinite(placement.board.rating).any():
        figures.append(leaderboard(placement))
    board = placement.judge_board or placement.board
    if rows := compare_with_opponents(
        placement.judged_battles, placement.placed_models, board
    ):
        figures.append(predicted_and_observed(rows))
    return figures


def leaderboard(placement: Placement) -> Plot:
    """Draw the top models with their intervals, and the placed models in colour."""
    rows = [
        {**rating.to_dict(), "source": placement.source(rating.model)}
        for rating in placement.board.ratings
    ]
    rated = [row for row in rows if row["rating"] is not None]
    best = rated[:MAX_LEADERBOARD_MODELS]
    names = {
        row["model"]: f"{format_label(row['model'])}  {row['rank']}"
        for row in rated
        if row in best or row["model"] in placement.placed_models
    }
    figure, [(ax, _)] = make_panels(
        {"": rated}, "rating", size=figure_kinds.panel_size(len(names))
    )
    figure_kinds.draw_intervals(ax, rated, names, "source", ("human", "evaluated"))
    kind = placement.board.interval or "none"
    return render_plot(
        "leaderboard",
        figure,
        rows,
        f"{format_label(placement.arena)}, judged by {format_label(placement.judge_model)}",
        f"{placement.board.label} ratings in points, best first, with the rank next to each name. 95% intervals: "
        f"{kind}. Evaluated: the placed models." + describe_cut(best, rated, "models"),
    )


def predicted_and_observed(rows: Sequence[Row]) -> Plot:
    """Draw the observed win rates of a placed model over the predicted ones."""
    figure, axes = make_panels(
        grouped(rows, "model"), "predicted win rate", "observed win rate"
    )
    names = ("predicted", "observed", "ci_low", "ci_high")
    for ax, panel_rows in axes:
        data = read_columns(panel_rows, *names[:2], "n_games", "n_battles")
        data, points = data[:, data[0].argsort(kind="stable")], []
        for group in np.array_split(
            data, min(len(panel_rows), _MAX_OPPONENT_GROUPS), axis=1
        ):
            mean = np.average(group[:2], axis=1, weights=group[2]).tolist()
            values = *mean, *wilson_interval(mean[1], group[3].sum())
            points.append(dict(zip(names, values, strict=True)))
        figure_kinds.draw_observed_shares(ax, points)
    return render_plot(
        "predicted_and_observed",
        figure,
        rows,
        "Does one rating predict the battles of a placed model?",
        f"Win rates against opponents in at most {_MAX_OPPONENT_GROUPS} groups, formed by the win rate that the ratings "
        "on the judge's own scale predict. A tie counts half. Bars: 95% Wilson intervals over battles.",
    )
