"""Figures of the order experiment: Elo by K, and over permutations of the same battles.

None of them shows how certain a rating is: the outcomes are the same in every order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from elo_exp.analysis.standings import Standings
from elo_exp.figures.ratings import best_first, sample
from elo_exp.figures.style import (
    MAX_COLORED,
    SOFT,
    Look,
    Row,
    colors,
    column,
    grouped,
    labels,
    only_best,
    panels,
    saved,
    set_ticks,
    styled,
)
from elo_exp.ratings.leaderboard import Z95
from elo_exp.records import Plot
from elo_exp.report.artifacts import trace_rows

_BINS = 60  # of a histogram, over all entrants of a dimension
_DOTTED = (0, (2, 2))


def plots(standings: Standings) -> list[Plot]:
    """Draw what these standings allow: nothing without Elo, less where there is one order."""
    if not _rated(standings):
        return []
    drawn = [
        k_sensitivity(standings),
        permutation_traces(standings),
        order_effect(standings),
    ]
    return [plot for plot in drawn if plot is not None]


def _rated(standings: Standings) -> list[str]:
    return [dimension for dimension in standings.dimensions if standings.elo[dimension]]


def shown(standings: Standings) -> dict[str, str]:
    """Return the models whose lines are drawn, the best first, with their colours."""
    models = best_first(standings)[:MAX_COLORED]
    return {model: colors(models)[model] for model in models}


def line_key(color: Mapping[str, str], called: Mapping[str, str]) -> dict[str, Look]:
    """Return a key of lines in these colours."""
    return {called[model]: {"color": color[model], "lw": 2.5} for model in color}


def _panels(
    standings: Standings, heading: str, **more: Any
) -> tuple[Figure, dict[str, Axes]]:
    """A panel for each dimension that is rated."""
    names = _rated(standings)
    figure, axes = panels(
        names,
        heading=heading,
        notes=[sample(standings, name) for name in names],
        key=line_key(shown(standings), labels(standings.models)),
        **more,
    )
    return figure, dict(zip(names, axes, strict=True))


# By K


@styled
def k_sensitivity(standings: Standings) -> Plot:
    """Draw mean Elo against K, with the limit that it converges to as K grows."""
    rows: list[Row] = [
        {
            "dimension": dimension,
            "k": k,
            "model": rating.model,
            "rating": rating.rating,
            "ordering_error": rating.ordering_error,
            "convergence": board.parameters["convergence"],
            "elo_limit": standings.elo_limit[dimension].get(rating.model),
        }
        for dimension, boards in standings.elo.items()
        for k, board in boards.items()
        for rating in board.ratings
    ]
    figure, axes = _panels(standings, "Elo by K")
    by = grouped(rows, "dimension")
    for name, ax in axes.items():
        k_lines(ax, by[name], shown(standings))
        ax.axvline(standings.k, color=SOFT, lw=0.8, ls=_DOTTED)
    next(iter(axes.values())).set_ylabel("mean Elo")
    endless = [name for name in axes if not standings.elo_limit[name]]
    caption = (
        f"Mean Elo by K; dotted: K = {standings.k:g}, which this run uses. Diamonds: the limit that "
        "Elo converges to as K grows. A small K understates gaps."
    )
    if endless:
        caption += (
            f" No limit in {', '.join(endless)}: an entrant only wins or only loses."
        )
    caption += only_best(len(shown(standings)), len(standings.models))
    return saved("k_sensitivity", figure, rows, caption, x="k", y=("rating",))


def k_lines(ax: Axes, rows: Sequence[Row], color: Mapping[str, str]) -> None:
    """Draw ratings by K with their Monte Carlo errors, and the limits of those that have one."""
    ks = sorted({row["k"] for row in rows})
    if not ks:
        return
    limit = ks[-1] * (ks[-1] / ks[0]) ** 0.2
    ticks: dict[float, str] = {}
    for k in ks:
        has_room = not ticks or math.log(k / max(ticks)) > 0.1 * math.log(
            ks[-1] / ks[0]
        )
        ticks |= {k: f"{k:g}"} if has_room else {}
    by = grouped(sorted(rows, key=lambda row: row["k"]), "model")
    for model in color:
        line = by.get(model, [])
        x, y = column(line, "k"), column(line, "rating")
        ax.errorbar(
            x,
            y,
            Z95 * column(line, "ordering_error"),
            fmt="o-",
            ms=3,
            color=color[model],
        )
        end = line[-1].get("elo_limit") if line else None
        if end is not None:
            ticks[limit] = "limit"
            ax.plot(
                [ks[-1], limit], [y[-1], end], color=color[model], lw=0.9, ls=_DOTTED
            )
            ax.plot([limit], [end], "D", ms=4, color=color[model])
    ax.set(xscale="log", xlabel="K")
    set_ticks(ax.xaxis, list(ticks))
    ax.set_xticks(list(ticks), list(ticks.values()))


# By the number of permutations


@styled
def permutation_traces(standings: Standings) -> Plot | None:
    """Draw the running mean of Elo, minus its final value, as permutations are added."""
    rows = trace_rows(standings)
    n_perms = max((row["n_perms"] for row in rows), default=0)
    if n_perms < 2:
        return None
    figure, axes = _panels(standings, "Running mean of Elo over permutations")
    worst = max(row["ordering_error"] for row in rows if row["n_perms"] == n_perms)
    n = np.geomspace(1, n_perms, 60)
    by = grouped(rows, "dimension", "model")
    funnel = Z95 * worst * np.sqrt(n_perms / n)
    for name, ax in axes.items():
        ax.fill_between(n, -funnel, funnel, color=SOFT, alpha=0.15, lw=0)
        for model, color in shown(standings).items():
            line = by.get((name, model), [])
            means = column(line, "running_mean")
            ax.plot(column(line, "n_perms"), means - means[-1:], color=color, lw=1.2)
        ax.set(xscale="log", xlabel="permutations", xlim=(1, n_perms))
        set_ticks(ax.xaxis, [10**power for power in range(7)])
    first = next(iter(axes.values()))
    first.set_ylabel("running − final mean, points")
    reach = 1.1 * float(funnel[np.searchsorted(n, min(10, n_perms))]) + 1.0
    first.set_ylim(-reach, reach)
    caption = (
        f"Running mean of Elo (K = {standings.k:g}) as permutations are added, minus its final "
        "value. Shaded: ± 1.96 Monte Carlo errors of the rating that moves most. After "
        f"{n_perms:,} permutations that error is {worst:.2f} points."
    )
    caption += only_best(len(shown(standings)), len(standings.models))
    return saved("permutation_traces", figure, rows, caption, curves=True)


# After one permutation


@styled
def order_effect(standings: Standings) -> Plot | None:
    """Draw a histogram of each entrant's Elo after every single permutation."""
    rows: list[Row] = []
    for name in _rated(standings):
        board = standings.elo[name][standings.k]
        if board.samples is not None and len(board.samples) > 1:
            edges = np.histogram_bin_edges(board.samples, _BINS)
            for m, model in enumerate(board.models):
                counts = np.histogram(board.samples[:, m], edges)[0]
                rows += [
                    {
                        "dimension": name,
                        "model": model,
                        "low": low,
                        "high": high,
                        "n_perms": n,
                    }
                    for low, high, n in zip(
                        edges[:-1], edges[1:], counts.tolist(), strict=True
                    )
                    if n
                ]
    if not rows:
        return None
    by = grouped(rows, "dimension", "model")
    figure, axes = _panels(
        standings, "Elo after one permutation", sharex=True, sharey=False
    )
    for name, ax in axes.items():
        for model, color in shown(standings).items():
            bars = by.get((name, model), [])
            low = column(bars, "low")
            width = column(bars, "high") - low
            ax.bar(
                low,
                column(bars, "n_perms"),
                width,
                align="edge",
                color=color,
                alpha=0.75,
            )
        ax.grid(visible=False, axis="x")
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.set_xlabel("Elo after one permutation")
    next(iter(axes.values())).set_ylabel("permutations")
    caption = (
        f"Elo after each single permutation of the same outcomes at K = {standings.k:g}. The "
        "spread is what one arbitrary order would have added; it is no uncertainty about the "
        "entrants."
    )
    caption += only_best(len(shown(standings)), len(standings.models))
    return saved("order_effect", figure, rows, caption, curves=True)
