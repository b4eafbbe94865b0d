"""What all figures share: one style, colours and labels by name, panels, and the files of a figure."""

from __future__ import annotations

import io
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from elo_exp.records import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
Look = Mapping[str, Any]
Array = npt.NDArray[np.float64]
P = ParamSpec("P")
T = TypeVar("T")

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
DPI = 144  # pixels an inch of the PNG
MAX_COLORED = len(PALETTE)  # names that can have a colour of their own
_MAX_LABEL = 32  # characters
_REGULAR, _BOLD = 0.068, 0.084  # inches of a character: of a label, of a title
_LINE_HEIGHT = 0.065  # of a panel: labels closer than this would touch

STYLE: Any = {  # of Matplotlib
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "text.color": INK,
    "text.parse_math": False,  # a $ in a name is a $
    "figure.titlesize": 11,
    "figure.titleweight": "bold",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "elo_exp",  # the same figure has the same bytes
}


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Make a function draw in the shared style, without touching the caller's settings."""

    @wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> T:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return in_style


def colors(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each name, grey beyond `MAX_COLORED`: the same in every figure and page."""
    ordered = sorted(set(names))
    return dict(zip(ordered, [*PALETTE, *[SOFT] * len(ordered)], strict=False))


def labels(names: Iterable[str]) -> dict[str, str]:
    """Each name as it is drawn: on one line, both its ends where it is long, no two alike."""
    every = set(names)
    printable = {
        name: "".join(c if c.isprintable() else " " for c in name).strip() or "?"
        for name in every
    }
    short = {name: _shortened(text) for name, text in printable.items()}
    taken = Counter(short.values())
    return {
        name: label if taken[label] == 1 else printable[name]
        for name, label in short.items()
    }


def _shortened(text: str) -> str:
    half = _MAX_LABEL // 2
    return text if len(text) <= _MAX_LABEL else f"{text[: half - 1]}…{text[-half:]}"


def panels(
    titles: Sequence[str],
    *,
    heading: str,
    notes: Sequence[str] = (),
    key: Mapping[str, Look] | None = None,
    beside: Iterable[str] = (),
    width: float = 3.1,
    height: float = 2.3,
    n_columns: int = 3,
    sharex: bool = False,
    sharey: bool = True,
) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel for each title.

    notes           a line below each title
    key             what a line or mark stands for, with how it is drawn (properties of `Line2D`)
    beside          labels left of the panels, which need room
    width, height   inches of a panel
    sharex, sharey  whether the panels have the axis in common
    """
    from matplotlib.figure import Figure

    n_columns = min(n_columns, len(titles))
    n_rows = math.ceil(len(titles) / n_columns)
    names = [labels(titles)[title] if title else "" for title in titles]
    width = max(
        width, _BOLD * max(map(len, names)), _REGULAR * max(map(len, notes), default=0)
    )
    across = n_columns * width + _REGULAR * max(map(len, beside), default=0)
    across = max(across, 4.8, 1.15 * _BOLD * len(heading))
    n_marks = _marks_a_line(key or {}, across)
    head = 0.6 + 0.2 * math.ceil(len(key or {}) / n_marks)
    figure = Figure(
        figsize=(across, head + n_rows * (height + 0.6)), layout="constrained"
    )
    _head(figure, heading, key or {}, n_marks)
    grid = figure.subplots(
        n_rows, n_columns, squeeze=False, sharex=sharex, sharey=sharey
    )
    axes = grid.ravel().tolist()
    for ax in axes[len(titles) :]:
        ax.set_axis_off()
    for ax, name, note in zip(axes, names, notes or [""] * len(titles), strict=False):
        ax.set_title(name, pad=17 if note else 6)
        offset: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
        ax.annotate(note, (0, 1), xytext=(0, 5), color=SOFT, **offset)
    return figure, axes[: len(titles)]


def _marks_a_line(key: Mapping[str, Look], inches: float) -> int:
    """How many marks of a key stand side by side in so many inches."""
    lengths = [0.6 + _REGULAR * len(label) for label in key]
    return (
        max(1, len(key))
        if sum(lengths) < inches
        else max(1, int(inches / max(lengths)))
    )


def _head(figure: Figure, heading: str, key: Mapping[str, Look], n_marks: int) -> None:
    """Heading and key above the panels: the title of a legend, which the layout makes room for."""
    from matplotlib.lines import Line2D

    if not key:
        figure.suptitle(heading, x=0.01, ha="left")
        return
    figure.legend(
        [Line2D([], [], **look) for look in key.values()],
        list(key),
        loc="outside upper left",
        ncols=n_marks,
        title=heading,
        alignment="left",
        title_fontproperties={"size": STYLE["figure.titlesize"], "weight": "bold"},
    )


def saved(
    name: str, figure: Figure, rows: Sequence[Row], caption: str, **chart: Any
) -> Plot:
    """Return the figure as PNG and SVG, with the rows that it was drawn from."""
    png, svg = io.BytesIO(), io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Glyph .* missing from font"
        )  # the SVG has the text
        figure.savefig(png, format="png", dpi=DPI)
        figure.set_layout_engine("none")  # as the PNG has laid it out
        figure.savefig(svg, format="svg", metadata={"Date": None})
    return Plot(
        name=name,
        png=png.getvalue(),
        svg=svg.getvalue(),
        rows=rows,
        caption=caption,
        **chart,
    )


def set_ticks(axis: Axis, ticks: Sequence[float], form: str = "{x:,g}") -> None:
    """Mark these places of an axis and no others."""
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(StrMethodFormatter(form))
    axis.set_minor_locator(NullLocator())


def end_labels(ax: Axes, x: float, ends: Mapping[str, float]) -> None:
    """Name lines where they end, at `x` and these heights, moved apart where they are close."""
    ax.get_ylim()  # fits the axis to what is drawn
    to_panel = ax.transData + ax.transAxes.inverted()
    below = -math.inf
    for name, y in sorted(ends.items(), key=lambda end: end[1]):
        below = max(float(to_panel.transform((x, y))[1]), below + _LINE_HEIGHT)
        at: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        ax.annotate(
            name, (x, below), xytext=(5, 0), va="center", annotation_clip=False, **at
        )


def grouped(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Return the rows by their values of a column, or of several."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        values = tuple(row[name] for name in names)
        found.setdefault(values if values[1:] else values[0], []).append(row)
    return found


def column(rows: Iterable[Row], name: str) -> Array:
    """Return one column of the rows as numbers, NaN where there is none."""
    return np.array([row[name] for row in rows], dtype=float)


def only_best(n_shown: int, n: int, things: str = "entrants") -> str:
    """Name what is left out, for a caption."""
    return (
        f" Only the first {n_shown} of {n} {things} are shown." if n_shown < n else ""
    )
