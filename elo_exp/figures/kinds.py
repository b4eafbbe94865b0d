"""The kinds of figures that several files draw, each on a panel of its own: intervals, a matrix, a scatter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from elo_exp.figures.style import INK, LINE, SOFT, Array, Look, Row, column

MARKERS = "osD^v"  # of the marks in one row
MAX_BARS = 60  # points of a scatter; with more, intervals would hide the points


def intervals(
    ax: Axes,
    rows: Sequence[Row],
    names: Mapping[str, str],
    color: Callable[[Row], str],
    *,
    of: str = "model",
    by: str | None = None,
    value: str = "rating",
    size: float = 5.0,
) -> None:
    """Draw values with their intervals, ci_low to ci_high, in rows with names, the first on top.

    A row without a value shows its flag in place of the mark.

    names  the label of each row, by the value of the column `of`
    by     the column that tells the marks of a row apart; the first of its values is filled
    """
    series = list(dict.fromkeys(row[by] for row in rows)) if by else []
    above = np.linspace(-0.25, 0.25, len(series)) if series[1:] else [0.0]
    for row in rows:
        i = series.index(row[by]) if by else 0
        y, look = list(names).index(row[of]) + above[i], color(row)
        ends = column([row], "ci_low"), column([row], "ci_high")
        ax.plot(ends, [y, y], color=look, lw=size / 3, alpha=0.8, solid_capstyle="butt")
        face, width = ("white", 0.7 * size) if i else (look, size)
        marker = MARKERS[i % len(MARKERS)]
        ax.plot(column([row], value), [y], marker, ms=width, mec=look, mfc=face)
        if row[value] is None and row["flag"]:
            where = ("axes fraction", "data")
            ax.annotate(row["flag"], (0.01, y), xycoords=where, va="center", color=SOFT)
    ax.set_yticks(range(len(names)), list(names.values()))
    ax.tick_params(axis="y", labelcolor=INK)
    ax.set_ylim(len(names) - 0.5, -0.5)


def series_key(names: Iterable[str]) -> dict[str, Look]:
    """Return the key of the marks of a row."""
    return {
        name: {
            "color": SOFT,
            "marker": MARKERS[i % len(MARKERS)],
            "mfc": "white" if i else SOFT,
        }
        for i, name in enumerate(names)
    }


def matrix(
    ax: Axes,
    values: Array,
    text: Callable[[float], str] | None,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    limits: tuple[float, float],
    bold: npt.NDArray[np.bool_] | None = None,
) -> None:
    """Draw cells coloured by their value, from brown over white to blue; NaN is grey.

    values, bold   (rows, columns)
    text           of a value; None: cells have none
    rows, columns  their names
    limits         the values of full brown and full blue
    """
    ax.imshow(values, cmap="RdBu", vmin=limits[0], vmax=limits[1], aspect="auto")
    ax.set_facecolor(LINE)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_xticks(range(len(columns)), columns)
    ax.tick_params(labelcolor=INK)
    middle, reach = sum(limits) / 2, (limits[1] - limits[0]) / 2
    for (i, j), value in np.ndenumerate(values):
        if text and not np.isnan(value):
            color = "white" if abs(value - middle) > 0.6 * reach else INK
            weight = "bold" if bold is not None and bold[i, j] else "normal"
            ax.text(
                j, i, text(value), ha="center", va="center", color=color, weight=weight
            )


def slanted(ax: Axes) -> None:
    """Turn the names of columns, so that long ones fit."""
    ax.tick_params(axis="x", rotation=40)
    for label in ax.get_xticklabels():
        label.set(ha="right", rotation_mode="anchor")


def scatter(
    ax: Axes, rows: Sequence[Row], x: str, y: str, color: str, *, hollow: bool = False
) -> None:
    """Draw shares against shares with the intervals `y`_ci_low to `y`_ci_high, where they are few."""
    at, observed = column(rows, x), column(rows, y)
    if len(rows) <= MAX_BARS:
        low, high = column(rows, f"{y}_ci_low"), column(rows, f"{y}_ci_high")
        ax.vlines(at, low, high, color=color, lw=1.2, alpha=0.6)
    face = "white" if hollow else color
    size = 5 if len(rows) <= MAX_BARS else 3
    ax.plot(at, observed, "o", ms=size, mec=color, mfc=face)


def diagonal(axes: Sequence[Axes], *, x: str, y: str) -> None:
    """Finish panels of shares against shares, which have their axes in common."""
    for ax in axes:
        ax.axline((0.5, 0.5), slope=1, color=SOFT, lw=0.8, ls=(0, (3, 3)), zorder=0)
        ax.set_xlabel(x)
    axes[0].set_ylabel(y)
    for axis in (axes[0].xaxis, axes[0].yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
