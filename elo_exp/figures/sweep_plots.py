"""Figures of a sweep: which there are, and how ratings depend on K and on the number of match orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from elo_exp.figures import canvas, names
from elo_exp.figures.canvas import Panel, span, ticks
from elo_exp.figures.lettering import length
from elo_exp.figures.sheets import Sheet
from elo_exp.figures.shown import in_color, model_key
from elo_exp.figures.sweep_agreement import Row, best_models, judges_grid, modes_apart, seeds_apart
from elo_exp.results import CONVERGED, Z95, Plot

_MAX_LINES = 5  # lines of panels, of as many numbers of match orders or settings


def all_plots(rows: Sequence[Row], judges: Sequence[Row], pair: Sequence[str] | None) -> list[Plot]:
    """Those for which something was swept; `judges`: the rows of sweep_judges.csv. `pair`: None for the two best."""
    rated = [row for row in rows if row["rating"] is not None]
    ks, n_perms, seeds, modes = (
        list(dict.fromkeys(row[name] for row in rated)) for name in ("k", "n_perms", "seed", "mode")
    )
    found = [k_lines(rated)] if len(ks) > 1 else []
    two = list(pair or best_models(rated)[:2])
    found += [pair_grid(rated, *two)] if len(ks) > 1 and len(n_perms) > 1 and len(two) == 2 else []
    found += [seeds_apart(rated)] if len(seeds) > 1 else []
    found += [judges_grid(judges)] if judges else []
    fitted_rows = [row for row in rows if row["bradley_terry"] is not None]
    found += [modes_apart(fitted_rows, modes)] if len(modes) > 1 and fitted_rows else []
    return found


# K, and the number of match orders


def k_lines(rows: Sequence[Row]) -> Plot:
    """Rating against K: a panel for each dimension, a line of them for each n_perms and for whatever else was swept."""
    dimensions = list(dict.fromkeys(row["dimension"] for row in rows))
    every = sorted({(row["n_perms"], row["setting"]) for row in rows})
    settings = [
        every[i]
        for i in dict.fromkeys(np.linspace(0, len(every) - 1, _MAX_LINES).round().astype(int))
    ]
    places = [(setting, dimension) for setting in settings for dimension in dimensions]
    colors = canvas.colors(best_models(rows))
    colored = {model: color for model, color in colors.items() if color != canvas.GREY}
    ks = sorted({row["k"] for row in rows})
    shown = [row for row in rows if (row["n_perms"], row["setting"]) in settings]
    low, high = span(
        row["rating"] + sign * Z95 * row["ordering_error"] for row in shown for sign in (-1, 1)
    )
    sheet = Sheet(
        "How Elo depends on K and on the number of match orders",
        [dimension for _, dimension in places],
        width=2.9,
        height=2.0,
        left=0.75,
        shared_left=True,
        n_columns=len(dimensions),
        key=model_key(colored, _called(rows)),
    )
    for panel, ((n_perms, setting), dimension) in zip(sheet.panels, places, strict=True):
        panel.heading(dimension, f"{n_perms:,} match orders {setting}")
        panel.scale((ks[0] / 1.3, ks[-1] * 1.3), (low, high), log_x=True)
        panel.x_axis({k: f"{k:g}" for k in _spread(ks)}, "K")
        panel.y_axis(ticks(low, high), "mean Elo")
        here = (n_perms, setting, dimension)
        _lines(
            panel,
            [r for r in shown if (r["n_perms"], r["setting"], r["dimension"]) == here],
            colors,
        )
    caption = (
        "Elo by K, a line of panels for each number of match orders and for whatever else was swept. "
        "Bar: ordering error (Monte Carlo), 95 %."
    )
    left_out = (
        ""
        if len(settings) == len(every)
        else f" {len(settings)} of {len(every)} such lines are shown."
    )
    left_out += in_color(len(colored), len(colors))
    by_k = [
        {**row, "line": _line_name(row, every)} for row in sorted(rows, key=lambda row: row["k"])
    ]
    return sheet.finish("k_by_n_perms", by_k, caption + left_out, x="k", y=("rating",))


def _called(rows: Sequence[Row]) -> Mapping[str, str]:
    """The models' labels."""
    return names.labels(row["model"] for row in rows)


def _line_name(row: Row, settings: Sequence[tuple[int, str]]) -> str:
    """The model, and of several settings the one in which it is."""
    return (
        row["model"]
        if len(settings) == 1
        else f"{row['model']} {row['n_perms']:,} {row['setting']}".rstrip()
    )


def _lines(panel: Panel, rows: Sequence[Row], colors: Mapping[str, str]) -> None:
    for model, color in colors.items():
        line = sorted((row for row in rows if row["model"] == model), key=lambda row: row["k"])
        at, mean, error = (
            [row[name] for row in line] for name in ("k", "rating", "ordering_error")
        )
        panel.line(at, mean, color, marker="o", ms=3.5)
        bars = [
            ((k, m - Z95 * e), (k, m + Z95 * e)) for k, m, e in zip(at, mean, error, strict=True)
        ]
        panel.segments(bars, color, 1.2)


def _spread(ks: Sequence[float]) -> list[float]:
    """Those of many that have room on a logarithmic axis."""
    shown: list[float] = []
    for k in ks:
        if not shown or np.log(k / shown[-1]) > 0.08 * np.log(ks[-1] / ks[0]):
            shown.append(k)
    return shown


def pair_grid(rows: Sequence[Row], first: str, second: str) -> Plot:
    """How far two models are apart, by K and the number of match orders, zero in the middle of the colours
    (Boubdir et al. 2023, figures 3 and 4). A panel for each dimension and for whatever else was swept."""
    cells = list(_pair_rows(rows, first, second))
    called = _called(rows)
    places = list(dict.fromkeys((cell["setting"], cell["dimension"]) for cell in cells))
    ks, n_perms = (sorted({cell[name] for cell in cells}) for name in ("k", "n_perms"))
    widest = max(abs(cell["difference"]) for cell in cells) or 1.0
    has_words = len(ks) <= 6
    width = max(length(called[name], 6.5) for name in (first, second)) + 0.12 if has_words else 0.45
    sheet = Sheet(
        f"{called[first]} less {called[second]}, in Elo points",
        [dimension for _, dimension in places],
        width=width * len(ks),
        height=max(0.42 * len(n_perms), 0.8),
        left=0.75,
        shared_left=True,
        n_columns=len({cell["dimension"] for cell in cells}),
        key=[
            (f"{called[first]} leads", {"lw": 9, "color": canvas.shade("RdBu", 0.85)}),
            (f"{called[second]} leads", {"lw": 9, "color": canvas.shade("RdBu", 0.15)}),
            (f"* below {CONVERGED:.0%} converged", {"lw": 0}),
            ("lines: match orders", {"lw": 0}),
        ],
    )
    for panel, (setting, dimension) in zip(sheet.panels, places, strict=True):
        panel.heading(dimension, setting)
        panel.scale((-0.5, len(ks) - 0.5), (len(n_perms) - 0.5, -0.5))
        grid = np.full((len(n_perms), len(ks)), np.nan)
        for cell in (c for c in cells if (c["setting"], c["dimension"]) == (setting, dimension)):
            at = n_perms.index(cell["n_perms"]), ks.index(cell["k"])
            grid[at] = 0.5 + 0.5 * cell["difference"] / widest
            _pair_cell(
                panel,
                cell,
                *at,
                grid[at],
                leads=called.get(cell["leader"], "equal") if has_words else "",
            )
        panel.grid(grid, "RdBu")
        panel.labels([f"{n:,}" for n in n_perms])
        for i, k in enumerate(ks):
            panel.write(i, 0, f"{k:g}", on="x", move=(0, -5), align=(0.5, 1))
        panel.write(0.5, 0, "K", on="panel", move=(0, -19), size=8.5, align=(0.5, 1))
    caption = (
        f"The mean Elo of {first} less that of {second}, by K and the number of match orders. Whether a difference is "
        "more than chance the intervals over prompts say."
    )
    return sheet.finish("pair_by_k_and_n_perms", cells, caption)


def _pair_rows(rows: Sequence[Row], first: str, second: str) -> Iterator[dict[str, Any]]:
    by_job: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        by_job.setdefault((row["job"], row["dimension"]), {})[row["model"]] = row
    for sides in by_job.values():
        if first not in sides or second not in sides:
            continue
        row, difference = sides[first], sides[first]["rating"] - sides[second]["rating"]
        names = ("job", "setting", "dimension", "k", "n_perms")
        leader = first if difference > 0 else second if difference < 0 else None
        yield {name: row[name] for name in names} | {
            "first": first,
            "second": second,
            "difference": difference,
            "leader": leader,
            "convergence": row["convergence"],
        }


def _pair_cell(panel: Panel, cell: Row, y: int, x: int, share: float, *, leads: str) -> None:
    """The difference and, where there is room, who leads."""
    color = "white" if abs(share - 0.5) > 0.3 else canvas.INK
    star = "*" if cell["convergence"] < CONVERGED else ""
    said = f"{cell['difference']:+.0f}{star}".replace("-", "−")
    panel.write(x, y, said, move=(0, 5 if leads else 0), size=7.5, color=color)
    if leads:
        panel.write(x, y, leads, move=(0, -5), size=6.5, color=color)
