"""The kinds of figures that several files draw, each on a panel of its own: intervals, a matrix, a scatter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from elo_exp.figures.style import INK, LINE, SOFT, Array, Row, column

MAX_BARS = 60  # points of a scatter; with more, intervals would hide the points


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Name the rows of a panel, the first on top."""
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", labelcolor=INK)
    ax.set_ylim(len(names) - 0.5, -0.5)


def note_row(ax: Axes, y: float, text: str) -> None:
    """Write why a row has no mark."""
    where = ("axes fraction", "data")
    ax.annotate(text, (0.01, y), xycoords=where, va="center", color=SOFT, size=7.5)


def intervals(
    ax: Axes,
    rows: Sequence[Row],
    at: Iterable[float],
    colors: Sequence[str],
    *,
    value: str = "rating",
    size: float = 5.0,
    marker: str = "o",
    hollow: bool = False,
) -> None:
    """Draw `value` of each row at its height, with the interval from its ci_low to its ci_high if it has one."""
    ends = np.array([column(rows, "ci_low"), column(rows, "ci_high")])
    for x, y, end, color in zip(column(rows, value), at, ends.T, colors, strict=True):
        ax.plot(end, [y, y], color=color, lw=size / 3, alpha=0.8, solid_capstyle="butt")
        face = "white" if hollow else color
        ax.plot([x], [y], marker, ms=size, mec=color, mfc=face, mew=1.0)


def matrix(
    ax: Axes,
    values: Array,
    texts: Sequence[Sequence[str]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    limits: tuple[float, float],
    bold: Array | None = None,
) -> None:
    """Draw cells coloured by their value, from brown over white to blue, with their text; NaN is grey.

    values, bold  (rows, columns)
    limits        the values of full brown and full blue
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
        if texts and texts[i][j]:
            is_dark = abs(value - middle) > 0.6 * reach
            weight = "bold" if bold is not None and bold[i, j] else "normal"
            color = "white" if is_dark else INK
            ax.text(j, i, texts[i][j], ha="center", va="center", color=color, weight=weight)


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
