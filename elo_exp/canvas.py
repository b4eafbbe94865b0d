"""What every figure shares: panels, colours, legends, and the PNG that comes out.

One colour for each entrant in every figure, from the Okabe-Ito palette, which colour-blind readers can tell apart.
With more entrants than colours the first keep theirs and the others are grey.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from elo_exp.results import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LayoutEngine = Literal["constrained", "compressed"]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
GREY = "#C8C8C8"
_DPI = 144
_MAX_COLUMNS = 3


def colors(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, grey once the palette is used up."""
    return dict(zip(names, [*PALETTE, *[GREY] * len(names)], strict=False))


def stroke(color: str) -> dict[str, Any]:
    """How a line of this colour is drawn: grey ones thin, so that they stay in the background."""
    return {"lw": 0.7} if color == GREY else {"lw": 1.5, "marker": "o", "ms": 4}


def panels(
    names: Sequence[str], *, height: float, width: float = 3.6, layout: LayoutEngine = "constrained", **shared: bool
) -> tuple[Figure, list[tuple[str, Axes]]]:
    """A figure with a panel for each name; height and width of a panel in inches."""
    from matplotlib.figure import Figure

    n = len(names)
    columns = min(n, _MAX_COLUMNS)
    lines = math.ceil(n / columns)
    figure = Figure(figsize=(max(width * columns + 0.9, 7.2), height * lines + 0.5), layout=layout)
    grid = figure.subplots(lines, columns, squeeze=False, **shared).ravel()  # type: ignore[call-overload]
    for spare in grid[n:]:
        spare.set_axis_off()
    return figure, [(d, style(axes)) for d, axes in zip(names, grid, strict=False)]


def style(axes: Axes) -> Axes:
    """The same axes, with a light grid and no frame."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#E5E5E5", lw=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)
    return axes


def color_key(figure: Figure, colors: Mapping[str, str]) -> None:
    """A legend above the panels for the names that have a colour of their own."""
    from matplotlib.lines import Line2D

    colored = [(model, color) for model, color in colors.items() if color != GREY]
    handles = [Line2D([], [], color=color, lw=2.5, label=model) for model, color in colored]
    longest = max((len(model) for model, _ in colored), default=0)
    columns = max(1, int(figure.get_figwidth() / (0.6 + 0.085 * longest)))  # inches a label of this font size takes
    figure.legend(
        handles=handles, loc="outside upper center", ncols=min(columns, len(handles)), frameon=False, fontsize=9
    )


def marker_key(figure: Figure, marks: Sequence[tuple[str, str, str]]) -> None:
    """A legend above the panels of (marker, fill, label)."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], ls="", marker=marker, mfc=face, mec="#333333", label=label) for marker, face, label in marks
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(marks), frameon=False, fontsize=9)


def finish(name: str, figure: Figure, rows: Sequence[Mapping[str, Any]], caption: str = "") -> Plot:
    """The figure as PNG, with its rows, and what it shows in words."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=_DPI, metadata={"Software": None})
    return Plot(name=name, png=data.getvalue(), rows=rows, caption=caption)
