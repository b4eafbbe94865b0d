"""What all figures share: one style, colours and labels by name, and the frame around panels."""

from __future__ import annotations

import io
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from elo_exp.records import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
Look = Mapping[str, Any]
Panel = tuple[str, str, Any]  # title, a note below it, and the data that are drawn
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
DPI = 144  # pixels an inch of the PNG
MAX_COLORED = len(PALETTE)  # names that can have a colour of their own
LETTER = 0.07  # inches, a character of a label on average
_MAX_LABEL = 32  # characters

STYLE: Any = {  # of Matplotlib
    "font.size": 8.5,
    "text.color": INK,
    "text.parse_math": False,  # a $ in a name is a $
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
    "savefig.bbox": "tight",  # no label is cut off
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "elo_exp",  # the same figure has the same bytes
}


def colors(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each name, grey beyond `MAX_COLORED`; figures and pages share them."""
    ordered = sorted(set(names))
    return dict(zip(ordered, [*PALETTE, *[SOFT] * len(ordered)], strict=False))


def labels(names: Iterable[str]) -> dict[str, str]:
    """Each name as it is drawn: on one line, both its ends where it is long, no two alike."""
    printable = {
        name: "".join(c if c.isprintable() else " " for c in name).strip() or "?"
        for name in set(names)
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


def plot(
    name: str,
    rows: Sequence[Row] | None,
    panels: Sequence[Panel],
    draw: Callable[[Axes, Any], object],
    *,
    heading: str,
    caption: str,
    key: Mapping[str, Look] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    width: float = 3.1,
    height: float = 2.3,
    margin: float = 0.0,
    n_columns: int = 3,
    sharex: bool = False,
    sharey: bool = True,
    **chart: Any,
) -> Plot:
    """Draw a figure of panels in the shared style, without touching the caller's settings.

    rows            the numbers of the figure, for its CSV; None: the data of the panels
    draw            draws the data of one panel on its axes
    key             what a line or mark stands for, with how it is drawn (properties of `Line2D`)
    width, height   inches of a panel
    margin          inches left of the panels, for long labels
    sharex, sharey  whether the panels have the axis in common
    chart           `x`, `y` and `curves` of `Plot`
    """
    import matplotlib
    from matplotlib.figure import Figure

    n_columns = min(n_columns, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    across = max(n_columns * width + margin, 4.8)
    called = labels(title for title, *_ in panels)
    with matplotlib.rc_context(STYLE):
        size = (across, n_rows * (height + 0.6) + 0.8)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(
            n_rows, n_columns, squeeze=False, sharex=sharex, sharey=sharey
        )
        for ax in grid.flat[len(panels) :]:
            ax.set_axis_off()
        for ax, (title, note, data) in zip(grid.flat, panels, strict=False):
            ax.set_title(called[title] if title else "", pad=17 if note else 6)
            ax.annotate(
                note,
                (0, 1),
                (0, 5),
                "axes fraction",
                textcoords="offset points",
                color=SOFT,
            )
            draw(ax, data)
            ax.set_xlabel(xlabel)
        for ax in grid[:, 0]:
            ax.set_ylabel(ylabel)
        _head(figure, heading, key or {}, across)
        png, svg = _pictures(figure)
    if rows is None:
        rows = [row for *_, some in panels for row in some]
    return Plot(name=name, png=png, svg=svg, rows=rows, caption=caption, **chart)


def _head(figure: Figure, heading: str, key: Mapping[str, Look], inches: float) -> None:
    """Heading and key above the panels, as one legend, which the layout makes room for."""
    from matplotlib.lines import Line2D

    longest = max(map(len, key), default=0)
    figure.legend(
        [Line2D([], [], **look) for look in key.values()],
        list(key),
        loc="outside upper left",
        ncols=max(1, int(inches / (0.6 + LETTER * longest))),
        title=heading,
        alignment="left",
        title_fontproperties={"size": 11, "weight": "bold"},
    )


def _pictures(figure: Figure) -> tuple[bytes, str]:
    png, svg = io.BytesIO(), io.StringIO()
    with warnings.catch_warnings():  # the SVG has the text
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(png, format="png", dpi=DPI)
        figure.set_layout_engine("none")  # as the PNG has laid it out
        figure.savefig(svg, format="svg", metadata={"Date": None})
    return png.getvalue(), svg.getvalue()


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
