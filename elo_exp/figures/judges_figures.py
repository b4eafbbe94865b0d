"""The figure of several judges: the ratings by each judge, and the combined ratings behind them."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import matplotlib

from elo_exp.analysis.conclusions.judges_conclusion import JudgesResult
from elo_exp.figures import figure_kinds, style
from elo_exp.figures.ratings import MAX_DRAWN_ENTRANTS
from elo_exp.figures.style import (
    describe_cut,
    format_label,
    grouped,
    make_panels,
    render_plot,
    sort_models,
)
from elo_exp.records import Plot

_JOINT_BOARD = "all, jointly"


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def plots(opinions: Sequence[JudgesResult]) -> list[Plot]:
    """Draw the ratings by each judge, a panel for each dimension."""
    rows = _list_rating_rows(opinions)
    judge_rows = [row for row in rows if row["judge"] != _JOINT_BOARD]
    if not any(row["rating"] is not None for row in judge_rows):
        return []
    joint = [row for row in rows if row["judge"] == _JOINT_BOARD]
    models = sort_models(joint or judge_rows)
    names = {model: format_label(model) for model in models[:MAX_DRAWN_ENTRANTS]}
    judges = [*grouped(judge_rows, "judge")]
    size = figure_kinds.panel_size(len(names) * math.ceil(len(judges) / 2))
    figure, axes = make_panels(grouped(rows, "dimension"), "rating", size=size)
    for ax, panel_rows in axes:
        rows_by_judge = grouped(panel_rows, "judge")
        for row in rows_by_judge.pop(_JOINT_BOARD, []):
            if row["model"] in names:
                line_index = list(names).index(row["model"])
                ax.fill_betweenx(
                    (line_index - 0.42, line_index + 0.42),
                    row["ci_low"],
                    row["ci_high"],
                    color=style.LINE,
                    lw=0,
                    label="" if line_index else "all judges, combined",
                )
                ax.vlines(
                    row["rating"],
                    line_index - 0.42,
                    line_index + 0.42,
                    color=style.SOFT,
                    lw=0.8,
                )
        figure_kinds.draw_intervals(
            ax, [*chain(*rows_by_judge.values())], names, "judge", judges
        )
    caption = "Ratings of each entrant by each judge. Each judge has its own 95% intervals, which cover other prompts."
    if joint:
        caption += (
            " All judges, combined: the mean of the judges with the 95% interval of the combined leaderboard, which also "
            "covers other judges of this kind."
        )
    heading = "Ratings by each judge"
    return [
        render_plot(
            "judges", figure, rows, heading, caption + describe_cut(names, models)
        )
    ]


def _list_rating_rows(opinions: Sequence[JudgesResult]) -> list[dict[str, Any]]:
    return [
        {"dimension": opinion.dimension, "judge": judge, **rating.to_dict()}
        for opinion in opinions
        for judge, board in [*opinion.boards.items(), (_JOINT_BOARD, opinion.board)]
        if board is not None
        for rating in board.ratings
    ]
