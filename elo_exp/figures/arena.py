"""Figures of a placement: the leaderboard with the placed models, and how well it fits them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from elo_exp.analysis.win_rates import share_interval
from elo_exp.arena.placement import Opponent, Placement
from elo_exp.figures import kinds
from elo_exp.figures.ratings import interval
from elo_exp.figures.style import (
    SOFT,
    Row,
    colors,
    column,
    labels,
    panels,
    saved,
    styled,
)
from elo_exp.records import Plot

_ROWS_A_COLUMN = 45  # of the leaderboard
_BINS = 8  # of opponents, by the share of wins that is predicted
_FEW = 25  # opponents, so few that each is drawn with its own interval


def plots(placement: Placement) -> list[Plot]:
    """Draw the leaderboard, if somebody has a rating, and the fit."""
    is_rated = any(rating.rating is not None for rating in placement.board.ratings)
    leaderboards = [leaderboard(placement)] if is_rated else []
    return [*leaderboards, predicted_and_observed(placement)]


@styled
def leaderboard(placement: Placement) -> Plot:
    """Draw every rated model with its interval, in columns; the placed ones in colour."""
    rows = [
        {**rating.to_dict(), "source": placement.source(rating.model)}
        for rating in placement.board.ratings
    ]
    rated = [row for row in rows if row["rating"] is not None]
    n_columns = math.ceil(len(rated) / _ROWS_A_COLUMN)
    n_rows = math.ceil(len(rated) / n_columns)
    called = labels([*(row["model"] for row in rows), *placement.placed])
    names = {row["model"]: f"{called[row['model']]}  {row['rank']}" for row in rated}
    placed = ", ".join(called[model] for model in placement.placed)
    color = colors(placement.placed)
    figure, axes = panels(
        [""] * n_columns,
        heading=f"{placement.arena} with {placed}, judged by {placement.judge_model}",
        beside=[max(names.values(), key=len) * n_columns],
        width=2.4,
        height=0.17 * n_rows,
        n_columns=n_columns,
        sharex=True,
        sharey=False,
    )
    for i, ax in enumerate(axes):
        here = rated[i * n_rows : (i + 1) * n_rows]
        shown = {row["model"]: names[row["model"]] for row in here}
        kinds.intervals(
            ax, here, shown, lambda row: color.get(row["model"], SOFT), size=4
        )
        ax.tick_params(axis="y", labelsize=7)
        ax.set(xlabel="rating", ylim=(n_rows - 0.5, -0.5))
        for model, label in zip(shown, ax.get_yticklabels(), strict=True):
            if model in color:
                label.set(color=color[model], weight="bold")
    caption = (
        f"{placement.board.label} ratings ({interval(placement.board)}), best first; behind each "
        "name its rank. In colour: the placed models."
    )
    return saved("leaderboard", figure, rows, caption)


@styled
def predicted_and_observed(placement: Placement) -> Plot:
    """Draw a placed model's share of wins against each opponent, by the share that is predicted."""
    rows = [opponent.to_dict() for opponent in placement.opponents]
    by = {
        model: [
            o
            for o in placement.opponents
            if o.model == model and o.predicted is not None
        ]
        for model in placement.placed
    }
    figure, axes = panels(
        placement.placed,
        heading="Does one rating predict the battles of a placed model?",
        notes=[f"{len(known):,} opponents" for known in by.values()],
        width=2.9,
        height=2.6,
        sharex=True,
    )
    for ax, (model, known) in zip(axes, by.items(), strict=True):
        groups = [[opponent] for opponent in known]
        if len(known) > _FEW:
            size = [2 + 4 * opponent.n_battles for opponent in known]
            each = [opponent.to_dict() for opponent in known]
            ax.scatter(
                column(each, "predicted"),
                column(each, "observed"),
                size,
                SOFT,
                alpha=0.4,
            )
            groups = _bins(known)
        shares = [_share(group) for group in groups]
        kinds.scatter(
            ax, shares, "predicted", "observed", colors(placement.placed)[model]
        )
    kinds.diagonal(axes, x="wins, predicted", y="wins, observed")
    axes[0].set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    caption = (
        "Share of wins against each opponent, a tie counting half, by the share that the ratings "
        "predict. In colour: opponents, or groups of them with equally many verdicts, with 95 % "
        "Wilson intervals over battles. Grey: single opponents."
    )
    return saved("predicted_and_observed", figure, rows, caption)


def _share(group: Sequence[Opponent]) -> Row:
    """The predicted and the observed share of a group, weighted by verdicts."""
    weight = [opponent.n_games for opponent in group]
    predicted = float(np.average([o.predicted or 0.0 for o in group], weights=weight))
    observed = float(np.average([o.observed for o in group], weights=weight))
    low, high = share_interval(observed, sum(o.n_battles for o in group))
    ends = {"observed_ci_low": low, "observed_ci_high": high}
    return {"predicted": predicted, "observed": observed, **ends}


def _bins(known: Sequence[Opponent]) -> list[list[Opponent]]:
    """Groups of opponents with equally many verdicts, the least predicted share first."""
    ordered = sorted(known, key=lambda o: o.predicted or 0.0)
    before = np.cumsum([0, *(o.n_games for o in ordered)])
    place = np.minimum(_BINS * before[:-1] // before[-1], _BINS - 1)
    groups = (
        [o for o, at in zip(ordered, place, strict=True) if at == i]
        for i in range(_BINS)
    )
    return [group for group in groups if group]
