"""Figures of the order experiment: Elo by K, and over permutations of the same battles.

None of them shows how certain a rating is: the outcomes are the same in every order.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np

from elo_exp import arrays
from elo_exp.analysis.standings import Standings, trace_rows
from elo_exp.figures import kinds, style
from elo_exp.figures.ratings import best, elo_boards
from elo_exp.figures.style import (
    SOFT,
    Row,
    colors,
    columns,
    grouped,
    label,
    only_best,
    panels,
    plot,
)
from elo_exp.ratings.leaderboard import Z95
from elo_exp.records import Plot

_BINS = 60  # of a histogram, over all entrants of a dimension


@matplotlib.rc_context(style.STYLE)
def plots(standings: Standings) -> list[Plot]:
    """Draw what these standings allow: nothing without Elo, less where there is one order."""
    rows = trace_rows(standings)
    drawn = [k_sensitivity(standings)] if any(standings.elo.values()) else []
    if any(row["n_perms"] > 1 for row in rows):
        drawn += [permutation_traces(standings, rows), order_effect(standings)]
    return drawn


def k_sensitivity(standings: Standings) -> Plot:
    """Draw mean Elo against K, with the limit that it converges to as K grows."""
    rows = [
        {
            "dimension": dimension,
            "k": k,
            **rating.to_dict(),
            "elo_limit": standings.convergence[dimension].limit.get(rating.model),
        }
        for dimension, boards in standings.elo.items()
        for k, board in boards.items()
        for rating in board.ratings
    ]
    models = best(standings)
    color = colors(models)
    figure, shown = panels(grouped(rows, "dimension"), "K", "mean Elo")
    for ax, some in shown:
        kinds.elo_by_k(ax, some, color)
    return plot(
        "k_sensitivity",
        figure,
        rows,
        "Elo by K",
        f"Mean Elo by K; this run uses K = {standings.k:g}. Dotted: the limit that Elo converges "
        "to as K grows; there is none where an entrant only wins or only loses. A small K "
        "understates gaps." + only_best(color, models),
    )


def permutation_traces(standings: Standings, rows: Sequence[Row]) -> Plot:
    """Draw the running mean of Elo, minus its final value, as permutations are added."""
    n_perms = max(row["n_perms"] for row in rows)
    worst = max(row["ordering_error"] for row in rows if row["n_perms"] == n_perms)
    n = np.geomspace(1, n_perms)
    funnel = Z95 * worst * np.sqrt(n_perms / n)
    reach = 1.1 * np.interp(10, n, funnel) + 1.0
    models, by = best(standings), grouped(rows, "dimension")
    color = colors(models)
    figure, shown = panels(by, "permutations", "running − final mean, points")
    for ax, some in shown:
        ax.fill_between(n, -funnel, funnel, color=SOFT, alpha=0.15, lw=0)
        traces = grouped(some, "model")
        for model, look in color.items():
            trace = traces.get(model, [])
            counts, means = columns(trace, "n_perms", "running_mean")
            ax.semilogx(counts, means - means[-1:], color=look, label=label(model))
        ax.set(xlim=(1, n_perms), ylim=(-reach, reach))
        kinds.plain_ticks(ax.xaxis)
    return plot(
        "permutation_traces",
        figure,
        rows,
        "Running mean of Elo over permutations",
        f"Running mean of Elo (K = {standings.k:g}) as permutations are added, minus its final "
        "value. Shaded: ± 1.96 Monte Carlo errors of the rating that moves most. After "
        f"{n_perms:,} permutations that error is {worst:.2f} points."
        + only_best(color, models),
    )


def order_effect(standings: Standings) -> Plot:
    """Draw a histogram of each entrant's Elo after every single permutation."""
    rows: list[Row] = []
    models = best(standings)
    color, words = colors(models), "Elo after one permutation"
    boards = elo_boards(standings)
    figure, shown = panels(boards, words, "permutations")
    for (ax, board), dimension in zip(shown, boards, strict=True):
        samples = np.asarray(board.samples)
        edges = np.histogram_bin_edges(samples, _BINS)
        for model in sorted(board.models, key=models.index):
            n = np.histogram(samples[:, board.models.index(model)], edges)[0]
            first, last = np.flatnonzero(n)[[0, -1]]
            n, ends = n[first : last + 1], edges[first : last + 2]
            of_bins = {"low": ends[:-1], "high": ends[1:], "n_perms": n}
            rows += arrays.rows(dimension=dimension, model=model, **of_bins)
            if model in color:
                look: Any = {"color": color[model], "label": label(model)}
                ax.stairs(n, ends, fill=True, alpha=0.75, **look)
        ax.locator_params(axis="y", integer=True)
    return plot(
        "order_effect",
        figure,
        rows,
        words,
        f"Elo after each single permutation of the same outcomes at K = {standings.k:g}. The "
        "spread is what one arbitrary order would have added; it is no uncertainty about the "
        "entrants." + only_best(color, models),
    )
