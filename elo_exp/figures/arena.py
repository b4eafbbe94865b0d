"""Figures of a placement: the leaderboard with the placed models, and how well it fits them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from elo_exp.analysis.win_rates import share_interval
from elo_exp.arena.placement import Opponent, Placement
from elo_exp.figures import kinds
from elo_exp.figures.ratings import interval
from elo_exp.figures.style import BLUE, SOFT, Row, colors, labels, only_best, plot
from elo_exp.records import Plot

MAX_ROWS = 60  # of the leaderboard, beside the placed models
_BINS = 8  # of opponents, by the share of wins that is predicted
_FEW = 25  # opponents, so few that each is drawn with its own interval


def plots(placement: Placement) -> list[Plot]:
    """Draw the leaderboard, if somebody has a rating, and the fit."""
    is_rated = any(rating.rating is not None for rating in placement.board.ratings)
    leaderboards = [leaderboard(placement)] if is_rated else []
    return [*leaderboards, predicted_and_observed(placement)]


def leaderboard(placement: Placement) -> Plot:
    """Draw the best models with their intervals, and the placed ones in colour."""
    rows = [
        {**rating.to_dict(), "source": placement.source(rating.model)}
        for rating in placement.board.ratings
    ]
    rated = [row for row in rows if row["rating"] is not None]
    best = rated[:MAX_ROWS]
    shown = best + [row for row in rated[MAX_ROWS:] if row["model"] in placement.placed]
    called = labels([*(row["model"] for row in rows), *placement.placed])
    placed = ", ".join(called[model] for model in placement.placed)
    color = colors(placement.placed)
    return kinds.intervals(
        "leaderboard",
        rows,
        [("", "", shown)],
        {row["model"]: f"{called[row['model']]}  {row['rank']}" for row in shown},
        color=lambda row: color.get(row["model"], SOFT),
        heading=f"{placement.arena} with {placed}, judged by {placement.judge_model}",
        xlabel="rating",
        width=4.0,
        caption=f"{placement.board.label} ratings ({interval(placement.board)}), best first; "
        "behind each name its rank. In colour: the placed models."
        + only_best(len(best), len(rated), "models"),
    )


def predicted_and_observed(placement: Placement) -> Plot:
    """Draw a placed model's share of wins against each opponent, by the share that is predicted."""
    panels = []
    for model in placement.placed:
        known = [
            opponent
            for opponent in placement.opponents
            if opponent.model == model and opponent.predicted is not None
        ]
        panels.append((model, f"{len(known):,} opponents", known))

    def draw(ax: Axes, known: Sequence[Opponent]) -> None:
        ordered = sorted(known, key=lambda opponent: opponent.predicted or 0.0)
        n_groups = len(known) if len(known) <= _FEW else _BINS
        parts = np.array_split(range(len(known)), n_groups or 1)
        shares = [_share([ordered[i] for i in part]) for part in parts if len(part)]
        kinds.scatter(ax, shares, "predicted", "observed", BLUE)
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))

    return plot(
        "predicted_and_observed",
        [opponent.to_dict() for opponent in placement.opponents],
        panels,
        draw,
        heading="Does one rating predict the battles of a placed model?",
        xlabel="wins, predicted",
        ylabel="wins, observed",
        caption="Share of wins against each opponent, a tie counting half, by the share that the "
        f"ratings predict, with 95 % Wilson intervals over battles. More than {_FEW} opponents are "
        f"drawn as {_BINS} groups of like predictions.",
        sharex=True,
    )


def _share(group: Sequence[Opponent]) -> Row:
    """The predicted and the observed share of a group, weighted by verdicts."""
    weight = [opponent.n_games for opponent in group]
    predicted = float(np.average([o.predicted or 0.0 for o in group], weights=weight))
    observed = float(np.average([o.observed for o in group], weights=weight))
    low, high = share_interval(observed, sum(o.n_battles for o in group))
    ends = {"observed_ci_low": low, "observed_ci_high": high}
    return {"predicted": predicted, "observed": observed, **ends}
