"""Figures of the order experiment: Elo by K, and over permutations of the same battles.

None of them shows how certain a rating is: the outcomes are the same in every order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from elo_exp.analysis.standings import Standings, trace_rows
from elo_exp.figures import kinds
from elo_exp.figures.ratings import best_first, panels
from elo_exp.figures.style import (
    MAX_COLORED,
    SOFT,
    Row,
    colors,
    column,
    grouped,
    only_best,
    plot,
)
from elo_exp.ratings.leaderboard import Z95
from elo_exp.records import Plot

_BINS = 60  # of a histogram, over all entrants of a dimension


def plots(standings: Standings) -> list[Plot]:
    """Draw what these standings allow: nothing without Elo, less where there is one order."""
    drawn = [
        k_sensitivity(standings),
        permutation_traces(standings),
        order_effect(standings),
    ]
    return [plot for plot in drawn if plot is not None]


def shown(standings: Standings) -> dict[str, str]:
    """Return the models whose lines are drawn, the best first, with their colours."""
    models = best_first(standings)[:MAX_COLORED]
    return {model: colors(models)[model] for model in models}


def _only_best(standings: Standings) -> str:
    return only_best(len(shown(standings)), len(standings.models))


def k_sensitivity(standings: Standings) -> Plot | None:
    """Draw mean Elo against K, with the limit that it converges to as K grows."""
    rows: list[Row] = [
        {
            "dimension": dimension,
            "k": k,
            "model": rating.model,
            "rating": rating.rating,
            "ordering_error": rating.ordering_error,
            "convergence": progress.convergence if progress else None,
            "elo_limit": limit.get(rating.model),
        }
        for dimension, boards in standings.elo.items()
        for limit in [standings.convergence[dimension].limit]
        for k, board in boards.items()
        for progress in [standings.convergence[dimension].by_k.get(k)]
        for rating in board.ratings
    ]
    if not rows:
        return None
    color, by = shown(standings), grouped(rows, "dimension")
    endless = [
        dimension for dimension in by if not standings.convergence[dimension].limit
    ]
    caption = (
        f"Mean Elo by K; this run uses K = {standings.k:g}. Diamonds: the limit that Elo "
        "converges to as K grows. A small K understates gaps."
    )
    if endless:
        caption += (
            f" No limit in {', '.join(endless)}: an entrant only wins or only loses."
        )
    return plot(
        "k_sensitivity",
        rows,
        panels(standings, by),
        lambda ax, some: kinds.k_lines(ax, some, color),
        heading="Elo by K",
        key=kinds.line_key(color),
        xlabel="K",
        ylabel="mean Elo",
        caption=caption + _only_best(standings),
        x="k",
        y=("rating",),
    )


def permutation_traces(standings: Standings) -> Plot | None:
    """Draw the running mean of Elo, minus its final value, as permutations are added."""
    rows = trace_rows(standings)
    n_perms = max((row["n_perms"] for row in rows), default=0)
    if n_perms < 2:
        return None
    worst = max(row["ordering_error"] for row in rows if row["n_perms"] == n_perms)
    n = np.geomspace(1, n_perms, 60)
    funnel = Z95 * worst * np.sqrt(n_perms / n)
    reach = 1.1 * float(np.interp(10, n, funnel)) + 1.0
    color = shown(standings)

    def draw(ax: Axes, some: Sequence[Row]) -> None:
        ax.fill_between(n, -funnel, funnel, color=SOFT, alpha=0.15, lw=0)
        by = grouped(some, "model")
        for model, own in by.items():
            if model in color:
                means = column(own, "running_mean")
                x = column(own, "n_perms")
                ax.plot(x, means - means[-1], color=color[model], lw=1.2)
        ax.set(xscale="log", xlim=(1, n_perms), ylim=(-reach, reach))
        kinds.log_ticks(ax.xaxis)

    return plot(
        "permutation_traces",
        rows,
        panels(standings, grouped(rows, "dimension")),
        draw,
        heading="Running mean of Elo over permutations",
        key=kinds.line_key(color),
        xlabel="permutations",
        ylabel="running − final mean, points",
        caption=f"Running mean of Elo (K = {standings.k:g}) as permutations are added, minus its "
        "final value. Shaded: ± 1.96 Monte Carlo errors of the rating that moves most. After "
        f"{n_perms:,} permutations that error is {worst:.2f} points."
        + _only_best(standings),
        curves=True,
    )


def order_effect(standings: Standings) -> Plot | None:
    """Draw a histogram of each entrant's Elo after every single permutation."""
    rows = [row for name in standings.dimensions for row in _bins(standings, name)]
    if not rows:
        return None
    color = shown(standings)

    def draw(ax: Axes, some: Sequence[Row]) -> None:
        by = grouped(some, "model")
        for model in [model for model in by if model in color]:
            low, n_perms = column(by[model], "low"), column(by[model], "n_perms")
            width = column(by[model], "high") - low
            ax.bar(low, n_perms, width, align="edge", color=color[model], alpha=0.75)
        ax.grid(visible=False, axis="x")
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))

    return plot(
        "order_effect",
        rows,
        panels(standings, grouped(rows, "dimension")),
        draw,
        heading="Elo after one permutation",
        key=kinds.line_key(color),
        xlabel="Elo after one permutation",
        ylabel="permutations",
        caption=f"Elo after each single permutation of the same outcomes at K = {standings.k:g}. "
        "The spread is what one arbitrary order would have added; it is no uncertainty about "
        "the entrants." + _only_best(standings),
        sharex=True,
        sharey=False,
        curves=True,
    )


def _bins(standings: Standings, dimension: str) -> list[Row]:
    board = standings.primary(dimension)
    if board is None or board.samples is None or len(board.samples) < 2:
        return []
    edges = np.histogram_bin_edges(board.samples, _BINS)
    return [
        {"dimension": dimension, "model": model, "low": low, "high": high, "n_perms": n}
        for model, samples in zip(board.models, board.samples.T, strict=True)
        for low, high, n in zip(
            edges[:-1].tolist(),
            edges[1:].tolist(),
            np.histogram(samples, edges)[0].tolist(),
            strict=True,
        )
        if n
    ]
