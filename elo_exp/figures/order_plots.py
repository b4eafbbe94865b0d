"""Figures of what the order of the matches does to Elo: with K, with the number of orders, and with one order alone.

None of it says how sure a rating is: the outcomes are the same in every order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from elo_exp.analysis.standings import Standings
from elo_exp.figures import canvas
from elo_exp.figures.canvas import Look, Panel, panel_width, span, ticks
from elo_exp.figures.sheets import Sheet
from elo_exp.figures.shown import (
    colored,
    in_color,
    labels,
    model_key,
    n_matches,
    of_best,
    rated,
    sample,
)
from elo_exp.results import CONVERGED, Z95, Plot
from elo_exp.statistics.likelihood import Array

Rows = list[dict[str, Any]]

_TRACE_POINTS = 120  # of a permutation trace, evenly spaced on the log axis
_FUNNEL_FROM = (
    10  # permutations: the scale of the traces is that of the ordering error after so many
)
_OUTLINE_POINTS = 25  # of a distribution over orders
_MAX_ORDERS = 500  # of them, evenly spaced from the lowest to the highest rating, behind an outline
_WIDEST = 0.8  # of the room between two values of K
_DASHED = (0, (4, 3))
_LIMIT = {"color": canvas.PALE, "lw": 1.2, "ls": _DASHED}


def order_plots(standings: Standings) -> list[Plot | None]:
    """The figures that these standings allow: none without Elo, and fewer where the matches have one order."""
    if not rated(standings):
        return []
    return [k_sensitivity(standings), permutation_traces(standings), order_effect(standings)]


# By K


def k_sensitivity(standings: Standings) -> Plot:
    """Rating against K, with the scatter over match orders; dashed, where each line would end if Elo had converged."""
    rows: Rows = [
        {
            "dimension": dimension,
            "k": k,
            "model": rating.model,
            "rating": rating.rating,
            "ordering_error": rating.ordering_error,
            "order_sd": (rating.ordering_error or 0.0)
            * math.sqrt(0 if board.samples is None else len(board.samples)),
            "convergence": board.parameters["convergence"],
            "elo_limit": standings.elo_limit[dimension].get(rating.model),
        }
        for dimension, boards in standings.elo.items()
        for k, board in boards.items()
        for rating in board.ratings
    ]
    colors = colored(standings)
    sheet = Sheet(
        "How Elo depends on K",
        rated(standings),
        width=panel_width(len(rated(standings))),
        height=2.5,
        left=0.7,
        shared_left=True,
        key=[
            *model_key(colors, labels(standings)),
            (
                "scatter over match orders (one standard deviation)",
                {"color": canvas.GREY, "lw": 8, "alpha": 0.35},
            ),
            *_limit_key(standings, _LIMIT),
        ],
    )
    ends = [
        row["rating"] + sign * row["order_sd"]
        for row in rows
        for sign in (-1, 1)
        if row["model"] in colors
    ]
    low, high = span([*ends, *(row["rating"] for row in rows)])
    for panel in sheet.panels:
        panel.heading(panel.name, n_matches(standings, panel.name))
        ks = list(standings.elo[panel.name])
        panel.scale((ks[0] / 1.3, ks[-1] * 1.3), (low, high), log_x=True)
        panel.x_axis({k: f"{k:g}" for k in ks}, "K")
        panel.y_axis(ticks(low, high), "mean Elo")
        _by_k(panel, [row for row in rows if row["dimension"] == panel.name], colors)
    grey = in_color(len(colors), len(standings.models))
    caption = (
        f"How Elo depends on K. Dashed: where each {'line in colour' if grey else 'line'} would end if Elo had "
        f"converged. Hatched: K is so small that less than {CONVERGED:.0%} of the way is gone."
        f"{_endless(standings)}{sample(standings, rated(standings))}{grey}"
    )
    return sheet.finish("k_sensitivity", rows, caption, x="k", y=("rating",))


def _by_k(panel: Panel, rows: Rows, colors: Mapping[str, str]) -> None:
    lines: dict[str, Rows] = {}
    for row in rows:
        lines.setdefault(row["model"], []).append(row)
    others = [
        [(row["k"], row["rating"]) for row in line]
        for model, line in lines.items()
        if model not in colors
    ]
    panel.segments(others, canvas.GREY, 0.6)
    for model, color in colors.items():
        if model not in lines:
            continue
        k, mean, sd = (
            np.array([row[name] for row in lines[model]]) for name in ("k", "rating", "order_sd")
        )
        panel.band(k, mean - sd, mean + sd, color, alpha=0.13)
        panel.line(k, mean, color, marker="o", ms=3.5)
        if (limit := lines[model][0]["elo_limit"]) is not None:
            panel.segments([((0, limit), (1, limit))], color, 1, on="y", ls=_DASHED, alpha=0.8)
    if short := [row["k"] for row in rows if row["convergence"] < CONVERGED]:
        longer = min([row["k"] for row in rows if row["k"] > max(short)], default=2 * max(short))
        panel.hatch(max(short) / 100, math.sqrt(max(short) * longer))
        panel.write(0, 0, "not converged", on="panel", move=(5, 6), color=canvas.PALE, align=(0, 0))


def _limit_key(standings: Standings, look: Look) -> list[tuple[str, Look]]:
    return (
        [("Bradley-Terry of the same matches", look)] if any(standings.elo_limit.values()) else []
    )


def _endless(standings: Standings) -> str:
    """Where no line has an end, for a caption."""
    names = [name for name in rated(standings) if not standings.elo_limit[name]]
    return (
        f" No end in {', '.join(names)}: not everybody has both won and lost against the others."
        if names
        else ""
    )


# By the number of orders


def permutation_traces(standings: Standings) -> Plot | None:
    """How far the running mean rating is from the last one, as permutations are added."""
    rows = trace_rows(standings)
    n_perms = max((row["n_perms"] for row in rows), default=0)
    if n_perms < 2:
        return None
    colors = colored(standings)
    scatter = max(row["ordering_error"] for row in rows if row["n_perms"] == n_perms) * math.sqrt(
        n_perms
    )
    reach = max(Z95 * scatter / math.sqrt(min(_FUNNEL_FROM, n_perms)), 2.5)
    sheet = Sheet(
        "Were there enough match orders?",
        rated(standings),
        width=panel_width(len(rated(standings))),
        height=2.3,
        left=0.6,
        shared_left=True,
        key=[
            *model_key(colors, labels(standings)),
            (
                "± 1.96 ordering errors (Monte Carlo)",
                {"color": canvas.GREY, "lw": 8, "alpha": 0.45},
            ),
            ("± 1 point", {"color": canvas.INK, "lw": 0.8, "ls": ":"}),
            *_limit_key(standings, _LIMIT),
        ],
    )
    for panel in sheet.panels:
        board = standings.elo[panel.name][standings.k]
        errors = [
            rating.ordering_error for rating in board.ratings if rating.ordering_error is not None
        ]
        panel.heading(panel.name, f"ordering error after {n_perms:,}: {max(errors):.2f}")
        panel.scale((1, n_perms), (-1.05 * reach, 1.05 * reach), log_x=True)
        panel.x_axis(
            {10**i: f"{10**i:,}" for i in range(int(math.log10(n_perms)) + 1)}, "match orders"
        )
        panel.y_axis(ticks(-reach, reach), f"running mean Elo − its end, K = {standings.k:g}")
        n = np.geomspace(1, n_perms, 60)
        panel.band(
            n, -Z95 * scatter / np.sqrt(n), Z95 * scatter / np.sqrt(n), canvas.GREY, alpha=0.35
        )
        panel.segments([((0, y), (1, y)) for y in (-1, 1)], canvas.INK, 0.8, on="y", ls=":")
        _traces(panel, [row for row in rows if row["dimension"] == panel.name], colors, standings)
    caption = (
        f"Whether there were enough match orders: how far the running mean Elo (K = {standings.k:g}) is from its end "
        "as they are added. Funnel: the ordering error (Monte Carlo), 95 %, of the rating that moves most. Dashed: "
        "where Elo would end if it had converged, less where it ended."
    )
    return sheet.finish("permutation_traces", rows, caption + _with_color(standings), curves=True)


def _traces(panel: Panel, rows: Rows, colors: Mapping[str, str], standings: Standings) -> None:
    for model, color in colors.items():
        line = [row for row in rows if row["model"] == model]
        if not line:
            continue
        end = line[-1]["running_mean"]
        panel.line(
            [row["n_perms"] for row in line],
            [row["running_mean"] - end for row in line],
            color,
            lw=1.2,
        )
        if (limit := standings.elo_limit[panel.name].get(model)) is not None:
            panel.segments([((0, limit - end), (1, limit - end))], color, 1, on="y", ls=_DASHED)


def trace_rows(standings: Standings) -> Rows:
    """Running mean and ordering error after so many permutations, at log-spaced numbers of them."""
    rows: Rows = []
    for dimension in standings.dimensions:
        board = standings.primary(dimension)
        if board is None or board.samples is None:
            continue
        n = len(board.samples)
        points = np.unique(np.geomspace(1, n, _TRACE_POINTS).round().astype(int))
        counts = np.arange(1, n + 1)[:, None]
        means = np.cumsum(board.samples, axis=0) / counts
        # Deviations from the first row keep the sums of squares small: no cancellation.
        shifted = board.samples - board.samples[0]
        square = np.cumsum(shifted**2, axis=0) - counts * (np.cumsum(shifted, axis=0) / counts) ** 2
        errors = np.sqrt(np.maximum(square, 0.0) / np.maximum(counts - 1, 1) / counts)
        rows += [
            {
                "dimension": dimension,
                "n_perms": int(p),
                "model": model,
                "running_mean": float(means[p - 1, m]),
                "ordering_error": float(errors[p - 1, m]),
            }
            for p in points
            for m, model in enumerate(board.models)
        ]
    return rows


# One order


def order_effect(standings: Standings) -> Plot | None:
    """Where single match orders put each entrant, by K: the rating without averaging."""
    colors = colored(standings)
    rows: Rows = [
        {"dimension": dimension, "k": k, "model": model, "rating": rating, "density": density}
        for dimension, boards in standings.elo.items()
        for k, board in boards.items()
        for m, model in enumerate(board.models)
        if model in colors and board.samples is not None
        for rating, density in _outline(board.samples[:, m])
    ]
    if not rows:
        return None
    names = list(dict.fromkeys(row["dimension"] for row in rows))
    low, high = min(row["rating"] for row in rows), max(row["rating"] for row in rows)
    sheet = Sheet(
        "Order effect only: where one order of the same matches puts an entrant",
        names,
        width=panel_width(len(names)),
        height=2.7,
        left=0.7,
        shared_left=True,
        key=[
            *model_key(colors, labels(standings)),
            ("mean over orders", {"lw": 0, "marker": "o", "ms": 4, "mfc": canvas.INK, "mew": 0}),
            *_limit_key(standings, {"color": canvas.INK, "lw": 1.6}),
        ],
    )
    for panel in sheet.panels:
        panel.heading(panel.name, n_matches(standings, panel.name))
        boards = standings.elo[panel.name]
        panel.scale((-0.35, len(boards) - 0.1), (low, high))
        panel.x_axis({x: f"{k:g}" for x, k in enumerate(boards)}, "K")
        panel.y_axis(ticks(low, high), "Elo after one order")
        _violins(panel, [row for row in rows if row["dimension"] == panel.name], colors, standings)
    caption = (
        "Where single orders of the same matches put each entrant, by K. The order effect only: the outcomes never "
        "change, so the width says nothing of how sure a rating is."
    )
    return sheet.finish("order_effect", rows, caption + _with_color(standings), curves=True)


def _outline(ratings: Array) -> list[tuple[float, float]]:
    """The density of ratings at evenly spaced points, by Gaussian kernels of Silverman's width; none of no scatter."""
    chosen = np.sort(ratings)[:: math.ceil(len(ratings) / _MAX_ORDERS)]
    width = 1.06 * float(chosen.std()) * len(chosen) ** -0.2
    if width < 1e-6:
        return []
    points = np.linspace(chosen[0] - 2 * width, chosen[-1] + 2 * width, _OUTLINE_POINTS)
    density = np.exp(-(((points[:, None] - chosen) / width) ** 2) / 2).mean(axis=1) / (
        width * math.sqrt(2 * math.pi)
    )
    return list(zip(points.tolist(), density.tolist(), strict=True))


def _violins(panel: Panel, rows: Rows, colors: Mapping[str, str], standings: Standings) -> None:
    outlines: dict[tuple[float, str], list[tuple[float, float]]] = {}
    for row in rows:
        outlines.setdefault((row["k"], row["model"]), []).append((row["rating"], row["density"]))
    boards = standings.elo[panel.name]
    place = {k: x for x, k in enumerate(boards)}
    shapes = []
    for (k, _), outline in outlines.items():
        rating, density = np.array(outline).T
        half = place[k] + _WIDEST * density / density.max()
        shapes.append(
            np.column_stack([[place[k], *half, place[k]], [rating[0], *rating, rating[-1]]])
        )
    faces = [colors[model] for _, model in outlines]
    panel.shapes(shapes, faces, alpha=0.4, lw=0.6)
    limits = {(k, model): standings.elo_limit[panel.name].get(model) for k, model in outlines}
    known = {(place[k], model): limit for (k, model), limit in limits.items() if limit is not None}
    marks = [((x - 0.22, limit), (x - 0.06, limit)) for (x, _), limit in known.items()]
    panel.segments(marks, [colors[model] for _, model in known], 1.6)
    means = [boards[k].rating(model).rating or 0.0 for k, model in outlines]
    panel.dots([place[k] for k, _ in outlines], means, faces, 4.5)


def _with_color(standings: Standings) -> str:
    return of_best(len(colored(standings)), len(standings.models))
