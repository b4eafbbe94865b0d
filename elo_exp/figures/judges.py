"""The figure of several judges: what each says of every entrant, before what holds whichever of them is asked."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import matplotlib

from elo_exp.analysis.conclusions.judges import Opinion
from elo_exp.figures import kinds, style
from elo_exp.figures.ratings import MAX_ROWS
from elo_exp.figures.style import best_first, grouped, label, only_best, panels, plot
from elo_exp.records import Plot

_JOINT_BOARD = "all, jointly"


@matplotlib.rc_context(style.STYLE)
def plots(opinions: Sequence[Opinion]) -> list[Plot]:
    """Draw the ratings by each judge, a panel for each dimension."""
    rows = _list_rating_rows(opinions)
    judge_rows = [row for row in rows if row["judge"] != _JOINT_BOARD]
    if not any(row["rating"] is not None for row in judge_rows):
        return []
    joint = [row for row in rows if row["judge"] == _JOINT_BOARD]
    models = best_first(joint or judge_rows)
    names = {model: label(model) for model in models[:MAX_ROWS]}
    judges = [*grouped(judge_rows, "judge")]
    size = kinds.lines(len(names) * math.ceil(len(judges) / 2))
    figure, axes = panels(grouped(rows, "dimension"), "rating", size=size)
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
                    label="" if line_index else _JOINT_BOARD,
                )
                ax.vlines(
                    row["rating"],
                    line_index - 0.42,
                    line_index + 0.42,
                    color=style.SOFT,
                    lw=0.8,
                )
        kinds.intervals(ax, [*chain(*rows_by_judge.values())], names, "judge", judges)
    caption = "Ratings of each entrant by each judge, with the 95 % intervals of that judge alone, which cover other prompts."
    if joint:
        caption += (
            " All, jointly: the mean of the judges with the 95 % interval of the joint leaderboard, which covers other "
            "judges of their kind, too."
        )
    heading = "Ratings by each judge"
    return [plot("judges", figure, rows, heading, caption + only_best(names, models))]


def _list_rating_rows(opinions: Sequence[Opinion]) -> list[dict[str, Any]]:
    return [
        {"dimension": opinion.dimension, "judge": judge, **rating.to_dict()}
        for opinion in opinions
        for judge, board in [*opinion.boards.items(), (_JOINT_BOARD, opinion.board)]
        if board is not None
        for rating in board.ratings
    ]
