"""What all figures share: one style, colours and names, panels, and their pictures."""

from __future__ import annotations

import io
import math
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence, Sized
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from elo_exp.records import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Data = TypeVar("Data")
Row = Mapping[str, Any]
Array = npt.NDArray[np.float64]

PALETTE = (
    "#0072b2",  # blue
    "#d55e00",  # vermilion
    "#009e73",  # green
    "#b0578d",  # purple
    "#5b9bd5",  # light blue
    "#a6761d",  # brown
    "#7f7f7f",  # grey
    "#8c8b00",  # olive
)
INK, SOFT, LINE = "#1c1b19", "#6a665f", "#e4e0d8"
BLUE, ORANGE, GREEN = PALETTE[:3]
MAX_COLORED_NAMES = len(PALETTE)
_MAX_LABEL_CHARACTERS, _KEPT_END_CHARACTERS = 60, 29

MATPLOTLIB_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": LINE,
    "axes.grid": True,
    "axes.labelcolor": SOFT,
    "axes.prop_cycle": f"cycler('color', {list(PALETTE)})",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "figure.labelsize": 8.5,
    "font.size": 8.5,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.markersize": 4,
    "savefig.bbox": "tight",  # no label is cut off
    "savefig.dpi": 144,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "elo_exp",  # the same figure has the same bytes
    "text.color": INK,
    "text.parse_math": False,  # a $ in a name is a $
    "xtick.color": SOFT,
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.color": SOFT,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}


def assign_colors(models: Sequence[str]) -> dict[str, str]:
    """Return the models whose lines are drawn, the first of `models`, each with its colour.

    By name, as on the page.
    """
    colored_models = models[:MAX_COLORED_NAMES]
    return {
        model: PALETTE[sorted(colored_models).index(model)] for model in colored_models
    }


def format_label(name: str) -> str:
    """Return a name as it is drawn: on one line, of a long one both ends."""
    text = "".join(c if c.isprintable() else " " for c in name)
    if len(text) > _MAX_LABEL_CHARACTERS:
        text = f"{text[:_KEPT_END_CHARACTERS]}…{text[-_KEPT_END_CHARACTERS:]}"
    return f" {text}" if text.startswith("_") else text  # else no legend has it


def make_panels(
    data: Mapping[str, Data],
    xlabel: str,
    ylabel: str = "",
    size: tuple[float, float] = (3.1, 2.4),
) -> tuple[Figure, list[tuple[Axes, Data]]]:
    """Return a figure of panels that share their axes: each panel with the data it shows.

    data  by the title of the panel
    size  of a panel, in inches
    """
    from matplotlib.figure import Figure

    n_columns = min(3, len(data))
    n_rows = math.ceil(len(data) / n_columns)
    figure_width, figure_height = (
        max(n_columns * size[0], 6.4),
        n_rows * (size[1] + 0.4) + 0.8,
    )
    figure = Figure(figsize=(figure_width, figure_height), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    for ax in axes[:, 0]:
        ax.set_ylabel(ylabel)
    for ax in axes.flat[len(data) :]:
        ax.set_axis_off()
    for ax, title in zip(axes.flat, data, strict=False):
        ax.set_title("\n".join(map(format_label, title.splitlines())))
        ax.tick_params(labelbottom=True)
    figure.supxlabel(xlabel)
    return figure, list(zip(axes.flat, data.values(), strict=False))


def render_plot(
    name: str,
    figure: Figure,
    rows: Sequence[Row],
    heading: str,
    caption: str,
) -> Plot:
    """Return a figure as PNG and SVG, with its heading and what the marks stand for above it.

    rows   the numbers of the figure, for its CSV
    chart  `x`, `y` and `curves` of `Plot`
    """
    legends = [ax.get_legend_handles_labels() for ax in figure.axes]
    handles, labels = max(legends, key=lambda legend: len(legend[1]))
    # A character is at most .065 inches wide; the panels keep their height.
    longest = max(map(len, labels), default=0)
    n_columns = max(1, int(figure.get_figwidth() / (0.6 + 0.065 * longest)))
    height = 0.17 * math.ceil(len(labels) / n_columns)
    figure.set_figheight(figure.get_figheight() + height)
    figure.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=n_columns,
        title=heading,
        title_fontproperties={"size": 11, "weight": "bold"},
        alignment="left",
    )
    png, svg = io.BytesIO(), io.StringIO()
    with warnings.catch_warnings():  # the SVG has the text
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.set_layout_engine("none")  # it is laid out
        figure.savefig(png, format="png")
    return Plot(
        name=name,
        png=png.getvalue(),
        svg=svg.getvalue(),
        rows=rows,
        caption=caption,
    )


def grouped(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Return the rows by their values of a column, or of several."""
    rows_by_value: dict[Any, list[Row]] = {}
    for row in rows:
        rows_by_value.setdefault(itemgetter(*names)(row), []).append(row)
    return rows_by_value


def read_columns(rows: Sequence[Row], *names: str) -> Array:
    """Return columns of the rows as numbers, NaN where there is none."""
    return np.array([[row[name] for row in rows] for name in names], dtype=float)


def sort_models(rows: Iterable[Row], value: str = "rating") -> list[str]:
    """Return the models by the mean of their values; those without one come last."""
    mean = {}
    for model, model_rows in grouped(rows, "model").items():
        values = [row[value] for row in model_rows if row[value] is not None]
        mean[model] = statistics.fmean(values) if values else -math.inf
    return sorted(mean, key=lambda model: (-mean[model], model))


def describe_cut(shown_items: Sized, all_items: Sized, noun: str = "entrants") -> str:
    """Say for a caption that some are left out."""
    n, total = len(shown_items), len(all_items)
    return f" Only the first {n} of {total} {noun} are shown." if n < total else ""
