"""The kinds of figures that several modules draw: intervals, matrices, shares, lines, curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import (
    LogLocator,
    NullLocator,
    PercentFormatter,
    StrMethodFormatter,
)

from elo_exp.figures.style import (
    BLUE,
    INK,
    LETTER,
    LINE,
    ORANGE,
    SOFT,
    Look,
    Panel,
    Row,
    column,
    grouped,
    labels,
    plot,
)
from elo_exp.ratings.leaderboard import Z95
from elo_exp.records import Plot

DASHED = (0, (3, 3))
SHARES = PercentFormatter(1, decimals=0, symbol=" %")
MAX_BARS = 60  # points of a panel; with more, their intervals would hide them
_FEW = 12  # names; with more, rows are closer and the cells of a matrix carry no text
_MARKERS = "osD^v"  # of the marks in one row
_BEYOND = 0.6  # of the span of all values: an interval that reaches further is cut off
_MAX_TICKS = 8  # values of K that are named


# Intervals


def intervals(
    name: str,
    rows: Sequence[Row],
    panels: Sequence[Panel],
    names: Mapping[str, str],
    *,
    of: str = "model",
    by: str | None = None,
    value: str = "rating",
    color: Callable[[Row], str] = lambda row: BLUE,
    key: Mapping[str, Look] | None = None,
    **frame: Any,
) -> Plot:
    """Draw values with their intervals, ci_low to ci_high, a line for each name, the first on top.

    The data of a panel are rows. One without a value shows its flag in place of the mark.

    names  the label of each line, by the value of the column `of`
    by     the column that tells the marks of a line apart; the first of its values is filled
    """
    shown = [row for *_, some in panels for row in some]
    series = list(dict.fromkeys(str(row[by]) for row in shown)) if by else [""]
    above = np.linspace(-0.25, 0.25, len(series)) if series[1:] else [0.0]
    size, limits = 5.5 if len(names) <= _FEW else 3.5, _limits(shown, value)

    def draw(ax: Axes, some: Sequence[Row]) -> None:
        for row in some:
            i = series.index(str(row[by])) if by else 0
            y, look = list(names).index(row[of]) + above[i], color(row)
            if row[value] is None:
                where = ("axes fraction", "data")
                ax.annotate(
                    row["flag"] or "",
                    (0.01, y),
                    xycoords=where,
                    va="center",
                    color=SOFT,
                )
                continue
            low, high = column([row], "ci_low"), column([row], "ci_high")
            ax.plot([low, high], [y, y], color=look, lw=size / 3)
            ax.plot(
                row[value],
                y,
                _MARKERS[i % 5],
                ms=size - bool(i),
                mec=look,
                mfc="white" if i else look,
            )
        ax.set_yticks(range(len(names)), list(names.values()))
        ax.tick_params(axis="y", labelcolor=INK)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_xlim(limits)

    marks = {
        label: {"color": SOFT, "marker": _MARKERS[i % 5], "mfc": "white" if i else SOFT}
        for i, label in enumerate(series)
    }
    each = 0.17 if len(names) > _FEW else 0.15 + 0.09 * len(series)
    return plot(
        name,
        rows,
        panels,
        draw,
        key=key or (marks if series[1:] else None),
        height=each * len(names) + 0.2,
        margin=room(names.values()),
        sharex=True,
        **frame,
    )


def _limits(rows: Sequence[Row], value: str) -> tuple[float, float]:
    """The ends of an axis: all values, and of their intervals as much as leaves them apart."""
    values = column(rows, value)
    if np.isnan(values).all():
        return 0.0, 1.0
    low, high = np.nanmin(values), np.nanmax(values)
    beyond = _BEYOND * (high - low) or math.inf
    low = max(low - beyond, np.nanmin([values, column(rows, "ci_low")]))
    high = min(high + beyond, np.nanmax([values, column(rows, "ci_high")]))
    margin = 0.04 * (high - low) or 1.0
    return float(low - margin), float(high + margin)


def room(names: Iterable[str]) -> float:
    """Return the inches that names take beside the panels."""
    return LETTER * max(map(len, names))


# Matrices

Cell = tuple[str, str, float | None, bool]  # row, column, value, whether it is bold


def matrices(
    name: str,
    rows: Sequence[Row],
    panels: Sequence[Panel],
    down: Sequence[str],
    across: Sequence[str],
    *,
    limits: tuple[float, float],
    text: Callable[[float], str],
    **frame: Any,
) -> Plot:
    """Draw cells coloured by their value, from brown over white to blue; those unknown are grey.

    The data of a panel are cells; where there are few, each has its value as text.

    down, across  names of rows and of columns
    limits        the values of full brown and full blue
    """
    middle, reach = sum(limits) / 2, (limits[1] - limits[0]) / 2
    side = 0.55 if len(down) <= _FEW else 0.19

    def draw(ax: Axes, cells: Sequence[Cell]) -> None:
        values = np.full((len(down), len(across)), np.nan)
        for row, over, value, is_bold in cells:
            if value is None or row not in down or over not in across:
                continue
            i, j = down.index(row), across.index(over)
            values[i, j] = value
            if len(down) <= _FEW:
                color = "white" if abs(value - middle) > 0.6 * reach else INK
                weight = "bold" if is_bold else "normal"
                written = text(value).replace("-", "−")
                look: Any = {"color": color, "weight": weight}
                ax.text(j, i, written, ha="center", va="center", **look)
        low, high = limits
        ax.imshow(values, cmap="RdBu", vmin=low, vmax=high, aspect="auto")
        ax.set_facecolor(LINE)
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        ax.set_yticks(range(len(down)), down)
        ax.set_xticks(range(len(across)), across)
        ax.tick_params(labelcolor=INK)
        if room(across) > side:
            for label in ax.get_xticklabels():
                label.set(rotation=40, ha="right", rotation_mode="anchor")

    return plot(
        name,
        rows,
        panels,
        draw,
        width=max(side * len(across), 1.6),
        height=max(0.75 * side * len(down), 0.7) + 0.8 * room(across),
        margin=room(down),
        **frame,
    )


# Predicted and observed


def scatter(
    ax: Axes, rows: Sequence[Row], x: str, y: str, color: str, *, hollow: bool = False
) -> None:
    """Draw shares against shares; where they are few, with intervals `y`_ci_low to `y`_ci_high."""
    observed, ends = column(rows, y), None
    if len(rows) <= MAX_BARS:
        low, high = column(rows, f"{y}_ci_low"), column(rows, f"{y}_ci_high")
        ends = observed - low, high - observed
    look: Any = {"mfc": "white"} if hollow else {}
    size = 5 if ends else 3
    at = column(rows, x)
    ax.errorbar(at, observed, ends, fmt="o", ms=size, lw=1.2, color=color, **look)
    ax.axline((0.5, 0.5), slope=1, color=SOFT, lw=0.8, ls=DASHED, zorder=0)
    ax.xaxis.set_major_formatter(SHARES)
    ax.yaxis.set_major_formatter(SHARES)


# Lines


def k_lines(ax: Axes, rows: Sequence[Row], color: Mapping[str, str]) -> None:
    """Draw ratings by K with their Monte Carlo errors, and the limits of those that have one.

    The values of K are as far apart as there are others between them.
    """
    ks = sorted({row["k"] for row in rows})
    step = math.ceil(len(ks) / _MAX_TICKS)
    ticks = {i: f"{ks[i]:g}" for i in range(0, len(ks), step)}
    for model, line in grouped(rows, "model").items():
        if model not in color:
            continue
        x = [ks.index(row["k"]) for row in line]
        error = Z95 * column(line, "ordering_error")
        y, look = column(line, "rating"), color[model]
        ax.errorbar(x, y, error, fmt="o-", ms=3, color=look)
        if (end := line[-1].get("elo_limit")) is not None:
            ticks[len(ks)] = "limit"
            ax.plot([x[-1], len(ks)], [y[-1], end], color=look, lw=0.9, ls=DASHED)
            ax.plot(len(ks), end, "D", ms=4, color=look)
    ax.set_xticks(list(ticks), list(ticks.values()))


def line_key(color: Mapping[str, str]) -> dict[str, Look]:
    """Return a key of lines in these colours, by model."""
    called = labels(color)
    return {called[model]: {"color": look, "lw": 2.5} for model, look in color.items()}


def curves(ax: Axes, rows: Sequence[Row], x: str, y: Sequence[str]) -> None:
    """Draw curves on logarithmic axes, with a mark in the row of this run."""
    here = [row for row in rows if row["this_run"]]
    for name, style in zip(y, ("-", "--"), strict=False):
        ax.plot(column(rows, x), column(rows, name), style, color=BLUE)
        ax.plot(column(here, x), column(here, name), "o", color=ORANGE)
    ax.set(xscale="log", yscale="log")
    log_ticks(ax.xaxis)
    log_ticks(ax.yaxis)


THIS_RUN: Look = {"color": ORANGE, "marker": "o", "lw": 0}


def log_ticks(axis: Axis) -> None:
    """Mark 1, 3, 10, 30, ... of a logarithmic axis, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.set_minor_locator(NullLocator())
