"""What several figures draw in a panel: intervals, a matrix, Elo by K, shares, curves."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

from elo_exp.figures.style import (
    BLUE,
    INK,
    LINE,
    PALETTE,
    SOFT,
    Row,
    format_label,
    grouped,
    read_columns,
)
from elo_exp.ratings.leaderboard import Z95

PERCENT_FORMATTER = PercentFormatter(1, decimals=0, symbol="%")
# With more names, lines are closer, and the cells of a matrix have no text
_MAX_SPACIOUS_NAMES = 12


def draw_intervals(
    ax: Axes,
    rows: Sequence[Row],
    names: Mapping[str, str],
    series_column: str,
    series: Collection[str],
    *,
    line_column: str = "model",
    numbers: Sequence[str] = ("rating", "ci_low", "ci_high"),
) -> None:
    """Draw values with their intervals, a line for each name, the first on top.

    A row without a value shows the end of its interval that is known as an arrow, or its flag.

    names    the label of each line, by the value of the column `line_column`
    series   the values of the column `series_column`, each with a mark of its own
    numbers  the columns of the value and of the ends of its interval
    """
    lines = list(names)
    named_rows = [row for row in rows if row[line_column] in names]
    for i, name in enumerate(series):
        series_rows = [row for row in named_rows if row[series_column] == name]
        value, low, high = read_columns(series_rows, *numbers)
        y = np.array([lines.index(row[line_column]) for row in series_rows])
        if len(named_rows) > len(lines):  # side by side
            y = y + ((i + 0.5) / len(series) - 0.5) * 0.6
        color = PALETTE[i % len(PALETTE)]
        ax.hlines(y, low, high, color=color)
        ax.plot(value, y, "osD^v"[i % 5], color=color, label=format_label(name))
        for j in np.flatnonzero(np.isnan(value)):
            if np.isfinite([low[j], high[j]]).any():
                end, marker = (high[j], "<") if np.isnan(low[j]) else (low[j], ">")
                ax.plot(end, y[j], marker, color=color)
                continue
            position: Any = {
                "xycoords": ("axes fraction", "data"),
                "va": "center",
                "bbox": {"color": "white", "pad": 1},
            }
            ax.annotate(
                _describe_missing_value(series_rows[j]),
                (0.01, y[j]),
                color=SOFT,
                **position,
            )
    ax.set_yticks(range(len(lines)), names.values())
    ax.set_ylim(len(lines) - 0.5, -0.5)
    ax.tick_params(axis="y", labelcolor=INK)


def _describe_missing_value(row: Row) -> str:
    """Return the exact bound to the next entrant, or the flag that explains the missing rating."""
    bound = row.get("lead_bound")
    if bound is None or bound <= 0.0:
        return str(row["flag"])
    side = "above" if row["neighbour_is_below"] else "below"
    return f"at least {bound:.0f} {side} {format_label(row['neighbour'])}"


def panel_size(n_names: int) -> tuple[float, float]:
    """Return the size of a panel of so many lines of intervals, in inches."""
    return 3.1, 0.3 + n_names * (0.28 if n_names <= _MAX_SPACIOUS_NAMES else 0.18)


def draw_matrix(
    ax: Axes,
    cells: Mapping[tuple[Any, Any], float],
    down: Mapping[Any, str],
    across: Mapping[Any, str],
    limits: tuple[float, float],
    text: str,
) -> None:
    """Draw cells coloured from red over white to blue; those unknown are grey.

    down, across  the labels of rows and of columns
    limits        the values of full red and full blue
    text          the format of a value
    """
    low, high = limits
    values = np.array([[cells.get((i, j), np.nan) for j in across] for i in down])
    ax.imshow(values, cmap="RdBu", vmin=low, vmax=high, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        if len(down) <= _MAX_SPACIOUS_NAMES and not np.isnan(value):
            is_dark = abs(value - (low + high) / 2) > 0.3 * (high - low)
            color = "#fdfdfd" if is_dark else "black"  # on any page
            ax.text(j, i, text.format(value), ha="center", va="center", color=color)
    ax.set_facecolor(LINE)
    ax.grid(visible=False)
    ax.set_yticks(range(len(down)), down.values())
    ax.set_xticks(range(len(across)), across.values())
    ax.tick_params(labelcolor=INK)


def draw_elo_by_k(ax: Axes, rows: Sequence[Row], color: Mapping[str, str]) -> None:
    """Draw the Elo of models by K, with its Monte Carlo error; dotted its limit."""
    rows_by_model = grouped(rows, "model")
    for model, line_color in color.items():
        model_rows = rows_by_model.get(model, [])
        if model_rows:
            k, elo, error = read_columns(model_rows, "k", "rating", "ordering_error")
            model_label = format_label(model)
            ax.errorbar(
                k, elo, Z95 * error, fmt="o-", ms=3, color=line_color, label=model_label
            )
            if model_rows[0].get("elo_limit") is not None:
                ax.axhline(model_rows[0]["elo_limit"], color=line_color, ls=":")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")


def draw_observed_shares(ax: Axes, rows: Sequence[Row]) -> None:
    """Draw observed shares with their intervals by those predicted."""
    predicted, *ends = read_columns(rows, "predicted", "ci_low", "ci_high")
    ax.vlines(predicted, *ends, color=BLUE, alpha=0.4)
    ax.plot(*read_columns(rows, "predicted", "observed"), "o")
    ax.axline((0.5, 0.5), slope=1, color=SOFT, lw=0.8, ls="--")
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    ax.xaxis.set_major_formatter(PERCENT_FORMATTER)
    ax.yaxis.set_major_formatter(PERCENT_FORMATTER)


def set_plain_ticks(axis: Axis) -> None:
    """Mark 1, 3, 10, 30, ... of a logarithmic axis, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_locator(NullLocator())
