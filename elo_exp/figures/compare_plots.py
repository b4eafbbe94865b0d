"""Figures of runs side by side, drawn from the rows of compare.csv."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.figures import canvas, names
from elo_exp.figures.canvas import Look, Panel, panel_width, row_span, span, ticks
from elo_exp.figures.lettering import length
from elo_exp.figures.sheets import Sheet
from elo_exp.figures.shown import in_color, model_key, of_best, said_p
from elo_exp.report.findings import METHODS
from elo_exp.results import Plot

Row = Mapping[str, Any]

_MAX_SHIFTS = 24  # of a dimension
_DODGE = 0.012  # of the distance between two runs: bars of neighbours stand side by side
_BLUE, _GREY = canvas.PALETTE[0], "#8A8A8A"


def all_plots(rows: Sequence[Row], runs: Sequence[str], method: str) -> list[Plot]:
    """The figures that these rows allow; `runs` in the order in which they are compared."""
    rated = [row for row in rows if row["method"] == method and row["rating"] is not None]
    if not rated:
        return []
    known = [row for row in rated if row["shift_std_error"] is not None]
    called = _called(rated)
    return [slopes(rated, runs, method), *([shifts(known, runs, called)] if known else [])]


def _called(rows: Iterable[Row]) -> Mapping[str, str]:
    """The models' labels."""
    return names.labels(row["model"] for row in rows)


def slopes(rows: Sequence[Row], runs: Sequence[str], method: str) -> Plot:
    """Ratings from run to run with their intervals, a line for each model; a panel for each dimension."""
    models = _best_first(rows)
    colors = canvas.colors(models)
    colored = {model: color for model, color in colors.items() if color != canvas.GREY}
    dimensions = list(dict.fromkeys(row["dimension"] for row in rows))
    drawn = [row for dimension in dimensions for row in _levelled(rows, dimension)]
    sheet = Sheet(
        f"{METHODS.get(method, method)} ratings from run to run",
        dimensions,
        width=panel_width(len(dimensions)),
        height=2.6,
        left=0.7,
        shared_left=True,
        heading=1,
        key=[*model_key(colored, _called(rows)), *_run_key(runs)],
    )
    drawn_at = {
        name: [row[f"drawn_{name}"] for row in drawn] for name in ("rating", "ci_low", "ci_high")
    }
    low, high = span(at for ends in drawn_at.values() for at in ends if at is not None)
    for panel in sheet.panels:
        panel.heading(panel.name)
        panel.scale((-0.3, len(runs) - 0.7), (low, high))
        panel.x_axis({i: str(i + 1) for i in range(len(runs))}, "run")
        panel.y_axis(ticks(low, high), "rating")
        _lines(panel, [row for row in drawn if row["dimension"] == panel.name], runs, colors)
    is_levelled = any(abs(row["drawn_rating"] - row["rating"]) > 0.5 for row in drawn)
    level = (
        " All runs are drawn at one level, the mean of the entrants that they share."
        if is_levelled
        else ""
    )
    caption = (
        f"How ratings differ from run to run. Bar: 95 %, of that run alone.{level} Runs that share "
        "prompts vary together, so the bars do not tell whether a rating moved."
    )
    return sheet.finish("rating_slopes", drawn, caption + in_color(len(colored), len(models)))


def _best_first(rows: Sequence[Row]) -> list[str]:
    """Models by their mean rating over runs and dimensions."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["model"], []).append(row["rating"])
    return sorted(found, key=lambda model: (-sum(found[model]) / len(found[model]), model))


def _levelled(rows: Sequence[Row], dimension: str) -> Iterator[Row]:
    """The rows of a dimension with the places at which they are drawn: every run has the first one's mean of the models
    that are in all of them, for a rating alone says nothing without those that it is measured against."""
    by_run: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["dimension"] == dimension:
            by_run.setdefault(row["run"], {})[row["model"]] = row
    shared = set.intersection(*(set(some) for some in by_run.values()))
    means = {
        run: sum(some[m]["rating"] for m in shared) / max(len(shared), 1)
        for run, some in by_run.items()
    }
    level = next(iter(means.values()))
    for run, some in by_run.items():
        for row in some.values():
            ends = {name: row[name] for name in ("rating", "ci_low", "ci_high")}
            places = {
                f"drawn_{name}": None if at is None else at - means[run] + level
                for name, at in ends.items()
            }
            yield {"run": run, "dimension": dimension, "model": row["model"], **ends, **places}


def _lines(
    panel: Panel, rows: Sequence[Row], runs: Sequence[str], colors: Mapping[str, str]
) -> None:
    here = {(row["model"], runs.index(row["run"])): row for row in rows}
    models = [model for model in colors if any(model == name for name, _ in here)]
    for i, model in enumerate(models):
        in_color = colors[model] != canvas.GREY
        dodge = _DODGE * len(runs) * (i - (len(models) - 1) / 2) if in_color else 0.0
        points = {run: here[model, run] for run in range(len(runs)) if (model, run) in here}
        x = [run + dodge for run in points]
        y = [row["drawn_rating"] for row in points.values()]
        panel.line(x, y, colors[model], **({"marker": "o", "ms": 4} if in_color else {"lw": 0.6}))
        ends = [
            (at, row["drawn_ci_low"], row["drawn_ci_high"])
            for at, row in zip(x, points.values(), strict=True)
        ]
        bars = [((at, low), (at, high)) for at, low, high in ends if in_color and low is not None]
        panel.segments(bars, colors[model], 2.5, alpha=0.45)


def shifts(rows: Sequence[Row], runs: Sequence[str], called: Mapping[str, str]) -> Plot:
    """How far each entrant moved from the first run, with the interval over prompts; a panel for each dimension.
    `called`: the models' labels."""
    of_panel: dict[str, list[Row]] = {}
    for row in rows:
        of_panel.setdefault(row["dimension"], []).append(row)
    by_run = {
        d: sorted(some, key=lambda row: (runs.index(row["run"]), -row["shift"]))
        for d, some in of_panel.items()
    }
    shown = {dimension: some[:_MAX_SHIFTS] for dimension, some in by_run.items()}
    labels = {
        name: [_label(called[row["model"]], row, runs) for row in some]
        for name, some in shown.items()
    }
    sheet = Sheet(
        "How far ratings moved from the first run",
        list(shown),
        width=2.3,
        height=0.26 * max(map(len, shown.values())) + 0.15,
        left=max(length(label, 8) for some in labels.values() for label in some) + 0.12,
        right=0.8,
        key=[
            ("moved (Holm, 5 %)", {"color": _BLUE, "lw": 2, "marker": "o", "ms": 4}),
            ("may be chance", {"color": _GREY, "lw": 2, "marker": "o", "ms": 4}),
            *_run_key(runs),
        ],
    )
    low, high = span([0.0, *(row[end] for some in shown.values() for row in some for end in _ENDS)])
    for panel in sheet.panels:
        some = shown[panel.name]
        panel.heading(panel.name, "Holm p on the right")
        panel.scale((low, high), row_span(len(some)))
        panel.rows(labels[panel.name])
        panel.x_axis(ticks(low, high), "Bradley-Terry points")
        colors = [_BLUE if row["shift_p_holm"] <= ALPHA else _GREY for row in some]
        panel.segments([((0, 0), (0, 1))], canvas.INK, 1, on="x")
        panel.segments(
            [((row[_ENDS[0]], y), (row[_ENDS[1]], y)) for y, row in enumerate(some)], colors, 2
        )
        panel.dots([row["shift"] for row in some], list(range(len(some))), colors, 5)
        for y, row in enumerate(some):
            panel.write(
                1,
                y,
                said_p(row["shift_p_holm"]),
                on="y",
                move=(8, 0),
                color=canvas.PALE,
                align=(0, 0.5),
            )
    caption = (
        "How far each entrant moved from its rating in the first run, against the mean of those rated in both. Bar: "
        "95 % of this shift alone over prompts, a prompt of both runs being one observation; p by Holm over all shifts."
    )
    most = max(map(len, of_panel.values()))
    kept = [
        {name: row[name] for name in row if name in _KEPT or name.startswith("shift")}
        for row in rows
    ]
    return sheet.finish(
        "rating_shifts",
        kept,
        caption + of_best(min(most, _MAX_SHIFTS), most, "shifts of a dimension"),
    )


_ENDS = ("shift_ci_low", "shift_ci_high")
_KEPT = ("run", "dimension", "model")


def _label(name: str, row: Row, runs: Sequence[str]) -> str:
    return name if len(runs) == 2 else f"{name}, run {runs.index(row['run']) + 1}"


def _run_key(runs: Sequence[str]) -> list[tuple[str, Look]]:
    """What the numbers of the runs stand for, where they are few."""
    called = names.labels(runs)
    return (
        [(f"run {n}: {called[run]}", {"lw": 0}) for n, run in enumerate(runs, start=1)]
        if len(runs) <= 8
        else []
    )
