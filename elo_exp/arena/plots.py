"""Figures of a placement: the leaderboard with the placed models, and how well their ratings foretell their games."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from elo_exp.analysis.win_rates import share_interval
from elo_exp.arena.placement import Opponent, Placement
from elo_exp.figures import canvas, names
from elo_exp.figures.canvas import Panel, percents, row_span, span, ticks
from elo_exp.figures.lettering import length
from elo_exp.figures.sheets import Sheet
from elo_exp.figures.shown import interval
from elo_exp.results import Plot, Rating

_ROWS_A_COLUMN = 45  # of the leaderboard
_INCHES_A_ROW = 0.165
_BINS = 8  # of opponents, by the share of wins that is predicted
_HUMAN = "#8A8A8A"
_FEW = 25  # opponents, so few that each is drawn with its own error


def all_plots(placement: Placement) -> list[Plot]:
    """Without the leaderboard where nobody has a rating."""
    rated = [r for r in placement.board.ratings if r.rating is not None]
    return [*([leaderboard(placement)] if rated else []), predicted_and_observed(placement)]


def leaderboard(placement: Placement) -> Plot:
    """Every rated model with its interval, best first, in as many columns as it takes; the placed ones in colour."""
    rated = [r for r in placement.board.ratings if r.rating is not None]
    n_rows = math.ceil(len(rated) / math.ceil(len(rated) / _ROWS_A_COLUMN))
    columns = [rated[i : i + n_rows] for i in range(0, len(rated), n_rows)]
    colors = canvas.colors(placement.placed)
    called = _called(placement)
    places = {r.model: f"{called[r.model]}  {r.rank}" for r in rated}
    low, high = span(x for r in rated for x in (r.rating, r.ci_low, r.ci_high) if x is not None)
    placed = ", ".join(called[model] for model in placement.placed)
    sheet = Sheet(
        f"{placement.arena}, with {placed} by {names.short(placement.judge_model)}",
        [""] * len(columns),
        width=2.4,
        height=_INCHES_A_ROW * n_rows,
        left=max(length(place, 7, bold=True) for place in places.values()) + 0.15,
        heading=0,
        n_columns=len(columns),
    )
    for panel, some in zip(sheet.panels, columns, strict=True):
        panel.scale((low, high), row_span(n_rows))
        panel.x_axis(ticks(low, high), "rating")
        for y, rating in enumerate(some):
            color, place = colors.get(rating.model, canvas.INK), places[rating.model]
            is_placed = rating.model in colors
            panel.write(
                0,
                y,
                place,
                on="y",
                move=(-6, 0),
                align=(1, 0.5),
                size=7,
                color=color,
                bold=is_placed,
            )
        for color in dict.fromkeys((_HUMAN, *colors.values())):
            _draw(
                panel,
                {y: r for y, r in enumerate(some) if colors.get(r.model, _HUMAN) == color},
                color,
            )
    rows = [{**r.to_dict(), "source": source(placement, r.model)} for r in placement.board.ratings]
    caption = (
        f"Who stands where. Bar: {interval(placement.board)}. In colour, the models that were "
        "placed; behind a name its rank."
    )
    return sheet.finish("leaderboard", rows, caption)


def source(placement: Placement, model: str) -> str:
    return "evaluated" if model in placement.placed else "human"


def _called(placement: Placement) -> Mapping[str, str]:
    """The labels of all models, the same in both figures."""
    return names.labels([*(r.model for r in placement.board.ratings), *placement.placed])


def _draw(panel: Panel, ratings: Mapping[int, Rating], color: str) -> None:
    """Ratings and intervals, by the row that each stands in."""
    is_placed = color != _HUMAN
    sure = [((r.ci_low, y), (r.ci_high, y)) for y, r in ratings.items() if r.ci_low is not None]
    panel.segments(sure, color, 3 if is_placed else 1.6, alpha=0.6)
    panel.dots(
        [r.rating or 0.0 for r in ratings.values()], list(ratings), color, 5.5 if is_placed else 3
    )


def predicted_and_observed(placement: Placement) -> Plot:
    """The share of games that a placed model won against each opponent, by the share that the ratings predict."""
    sheet = Sheet(
        "Does one rating explain the games of a placed model?",
        placement.placed,
        width=2.9,
        height=2.9,
        left=0.65,
        shared_left=True,
    )
    colors = canvas.colors(placement.placed)
    for panel in sheet.panels:
        known = [
            o for o in placement.opponents if o.model == panel.name and o.predicted is not None
        ]
        panel.heading(_called(placement)[panel.name], f"{len(known)} opponents")
        panel.scale((0, 1), (-0.03, 1.03))
        panel.x_axis(percents(0, 1), "wins by the ratings")
        panel.y_axis(percents(0, 1), "wins by the judge, a tie half")
        panel.segments([((0, 0), (1, 1))], canvas.INK, 1, ls=(0, (4, 3)))
        if len(known) > _FEW:
            for opponent in known:
                size = math.sqrt(6 + 4 * opponent.n_battles)
                panel.dots([opponent.predicted or 0.0], [opponent.observed], canvas.GREY, size)
        for group in _bins(known) if len(known) > _FEW else ([o] for o in known):
            _shares(panel, group, colors[panel.name])
    caption = (
        "Whether one rating explains the games of a placed model. Grey: opponents, the larger the more battles. In "
        "colour: opponents, or groups of them with as many games each, with 95 %, a battle being one observation."
    )
    return sheet.finish(
        "predicted_and_observed", [o.to_dict() for o in placement.opponents], caption
    )


def _shares(panel: Panel, group: Sequence[Opponent], color: str) -> None:
    weight = np.array([o.n_games for o in group], dtype=np.float64)
    predicted, observed = (
        float(np.average([getattr(o, name) for o in group], weights=weight))
        for name in ("predicted", "observed")
    )
    low, high = share_interval(observed, sum(o.n_battles for o in group))
    panel.segments([((predicted, low), (predicted, high))], color, 1.2)
    panel.dots([predicted], [observed], color, 5)


def _bins(known: Sequence[Opponent]) -> list[list[Opponent]]:
    """Groups of opponents with some equal number of games, those with the least predicted share first."""
    ordered = sorted(known, key=lambda o: o.predicted or 0.0)
    total = sum(o.n_games for o in ordered)
    groups: list[list[Opponent]] = [[] for _ in range(_BINS)]
    before = 0
    for opponent in ordered:
        groups[min(_BINS - 1, _BINS * before // total)].append(opponent)
        before += opponent.n_games
    return [group for group in groups if group]
