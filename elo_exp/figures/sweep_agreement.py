"""Figures of a sweep over seeds, judges or modes: how far its jobs agree.

A row is one of sweep_summary.csv: a job, a dimension and a model.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from elo_exp.figures import canvas, compare_plots, names
from elo_exp.figures.canvas import Panel, panel_width, row_span, span, ticks
from elo_exp.figures.sheets import Sheet
from elo_exp.figures.shown import MAX_MODELS, of_best, room
from elo_exp.results import Z95, Plot
from elo_exp.statistics.student import half_width

Row = Mapping[str, Any]

_MAX_JUDGES = 8
_SEED = "elo.seed="


def best_models(rows: Sequence[Row]) -> list[str]:
    """Models by their mean Elo over the jobs and dimensions."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["model"], []).append(row["rating"])
    return sorted(found, key=lambda model: (-statistics.fmean(found[model]), model))


# Seeds


def seeds_apart(rows: Sequence[Row]) -> Plot:
    """How far Elo moves with other random orders of the same matches, beside the ordering error that each job gives."""
    some = _one_group(rows)
    models = best_models(some)[:MAX_MODELS]
    labels = names.labels(row["model"] for row in rows)
    called = [labels[model] for model in models]
    drawn = [row for model in models for row in _seed_rows(some, model)]
    dimensions = list(dict.fromkeys(row["dimension"] for row in drawn))
    n_seeds = len({row["seed"] for row in drawn})
    sheet = Sheet(
        "Elo with other random orders of the same matches",
        dimensions,
        width=panel_width(len(dimensions)),
        height=max(0.16 * n_seeds, 0.4) * len(models),
        left=room(called),
        right=0.9,
        shared_left=True,
        key=[
            (
                "the Elo of one seed, with its ordering error, 95 %",
                {"color": canvas.PALE, "lw": 1.2, "marker": "o"},
            )
        ],
    )
    low, high = span(
        row["deviation"] + sign * Z95 * row["ordering_error"] for row in drawn for sign in (-1, 1)
    )
    colors = canvas.colors(models)
    for panel in sheet.panels:
        panel.heading(panel.name, "right: spread over seeds / ordering error")
        panel.scale((low, high), row_span(len(models)))
        panel.rows(called)
        panel.x_axis(ticks(low, high), "Elo less its mean over seeds")
        for y, model in enumerate(models):
            line = [row for row in drawn if (row["dimension"], row["model"]) == (panel.name, model)]
            if line:
                _of_seeds(panel, line, y, colors[model])
    caption = (
        f"The mean Elo of each entrant by {n_seeds} seeds of the random orders, less its mean over them. The standard "
        "deviation over seeds should be the ordering error that every single job gives; neither says how sure a rating "
        "is over prompts."
    )
    return sheet.finish("seeds", drawn, caption)


def _one_group(rows: Sequence[Row]) -> list[Row]:
    """The jobs that differ in nothing but the seed from the first."""

    def others(row: Row) -> tuple[Any, ...]:
        return (
            row["k"],
            row["n_perms"],
            [word for word in row["setting"].split() if not word.startswith(_SEED)],
        )

    return [row for row in rows if others(row) == others(rows[0])]


def _seed_rows(rows: Sequence[Row], model: str) -> Iterator[dict[str, Any]]:
    for dimension in dict.fromkeys(row["dimension"] for row in rows):
        line = [row for row in rows if (row["model"], row["dimension"]) == (model, dimension)]
        mean = statistics.fmean(row["rating"] for row in line)
        for row in line:
            names = ("job", "dimension", "model", "seed", "rating", "ordering_error")
            yield {name: row[name] for name in names} | {"deviation": row["rating"] - mean}


def _of_seeds(panel: Panel, line: Sequence[Row], y: int, color: str) -> None:
    places = np.linspace(-0.3, 0.3, len(line)) if len(line) > 1 else np.zeros(1)
    bars = [
        [(row["deviation"] + sign * Z95 * row["ordering_error"], y + up) for sign in (-1, 1)]
        for row, up in zip(line, places, strict=True)
    ]
    panel.segments(bars, color, 1.2)
    panel.dots([row["deviation"] for row in line], (y + places).tolist(), color, 3.5)
    spread = statistics.stdev(row["rating"] for row in line) if len(line) > 1 else 0.0
    said = statistics.fmean(row["ordering_error"] for row in line)
    panel.write(1, y, f"{spread:.2f} / {said:.2f}", on="y", move=(7, 0), size=7.5, align=(0, 0.5))


# Judges, and modes


def judges_grid(rows: Sequence[Row]) -> Plot:
    """Every two judges: above the diagonal kappa, below it the rank correlation; a panel for each dimension."""
    every = list(dict.fromkeys(name for row in rows for name in (row["first"], row["second"])))
    judges = every[:_MAX_JUDGES]
    dimensions = list(dict.fromkeys(row["dimension"] for row in rows))
    labels = names.labels(every)
    called = [labels[judge] for judge in judges]
    left = room(called)
    sheet = Sheet(
        "How far the judges agree",
        dimensions,
        width=max(0.8 * len(judges), 1.6),
        height=max(0.55 * len(judges), 1.0),
        left=left,
        bottom=0.75 * left + 0.15,
        shared_left=True,
        key=[
            (
                f"{share:g}".replace("-", "−"),
                {"lw": 9, "color": canvas.shade("RdBu", 0.5 + share / 2)},
            )
            for share in (-1, -0.5, 0, 0.5, 1)
        ],
    )
    for panel in sheet.panels:
        panel.heading(panel.name, "kappa above, rank correlation below")
        panel.scale((-0.5, len(judges) - 0.5), (len(judges) - 0.5, -0.5))
        grid = np.full((len(judges), len(judges)), np.nan)
        for row in rows:
            if row["dimension"] == panel.name and {row["first"], row["second"]} <= set(judges):
                _judge_cells(
                    panel, row, judges.index(row["first"]), judges.index(row["second"]), grid
                )
        panel.grid(grid, "RdBu")
        panel.labels(called)
        for x, label in enumerate(called):
            panel.write(x, 0, label, on="x", move=(2, -5), align=(1, 1), angle=45)
    caption = (
        "Above the diagonal Cohen's kappa on the n comparisons that both judges made, ± 95 % over prompts; below it "
        "Spearman's correlation of their Bradley-Terry ratings. No number: there is no kappa where a judge always says "
        "the same, and no rank correlation of fewer than three entrants."
    )
    return sheet.finish(
        "judges_agreement", rows, caption + of_best(len(judges), len(every), "judges")
    )


def _judge_cells(panel: Panel, row: Row, i: int, j: int, grid: Any) -> None:
    """`grid` (judges, judges) gets the colours."""
    if row["kappa"] is not None:
        grid[i, j] = 0.5 + row["kappa"] / 2
        color = "white" if abs(row["kappa"]) > 0.6 else canvas.INK
        half = None if row["std_error"] is None else half_width(row["n_prompts"]) * row["std_error"]
        error = "" if half is None else f" ±{half:.2f}".replace("0.", ".")
        panel.write(
            j,
            i,
            f"{row['kappa']:.2f}{error}".replace("-", "−"),
            move=(0, 4.5),
            size=7.5,
            color=color,
        )
        panel.write(j, i, f"n={row['n_comparisons']:,}", move=(0, -5.5), size=7, color=color)
    if row["rho"] is not None:
        grid[j, i] = 0.5 + row["rho"] / 2
        color = "white" if abs(row["rho"]) > 0.6 else canvas.INK
        panel.write(i, j, f"{row['rho']:.2f}".replace("-", "−"), size=7.5, color=color)


def modes_apart(rows: Sequence[Row], modes: Sequence[str]) -> Plot:
    """Bradley-Terry ratings from mode to mode, each by the first job in it."""
    first = {row["mode"]: row["job"] for row in reversed(rows)}
    ends = {
        "rating": "bradley_terry",
        "ci_low": "bradley_terry_ci_low",
        "ci_high": "bradley_terry_ci_high",
    }
    drawn = [
        {"run": row["mode"], "dimension": row["dimension"], "model": row["model"]}
        | {n: row[end] for n, end in ends.items()}
        for row in rows
        if row["job"] == first[row["mode"]]
    ]
    return compare_plots.slopes(drawn, modes, "bradley_terry")
