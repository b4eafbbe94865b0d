"""What every figure shares: colours, ticks, and a panel to draw on.

Matplotlib's shapes are drawn without its axes, texts and layout, which take nine tenths of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from elo_exp.figures.lettering import Word, fitted, length
from elo_exp.statistics.likelihood import Array

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure
    from matplotlib.path import Path
    from matplotlib.transforms import BboxBase, Transform

# Okabe and Ito's, which colour-blind readers can tell apart, with grey in place of black and without yellow.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
GREY = "#B4B4B4"
INK = "#222222"
PALE = "#6A6A6A"  # of what is read second
DPI = 144

_RULE = "#E4E4E4"
_TICKS = 5
_MAX_EDGED = 20  # columns of a grid with white lines between its cells

Spot = Literal[
    "data", "x", "y", "panel"
]  # what x and y are: data, or shares of the panel's width and height
Span = tuple[float, float]
Ticks = Mapping[float, str]
Look = Mapping[str, Any]  # properties of a Line2D


def colors(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, grey once the palette is used up."""
    return dict(zip(names, [*PALETTE, *[GREY] * len(names)], strict=False))


def shade(colormap: str, share: float) -> str:
    """The colour of a share in `Panel.grid`."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return to_hex(colormaps[colormap](share))


def span(values: Iterable[float]) -> Span:
    """The ends of an axis on which all of them are seen."""
    seen = list(values)
    margin = 0.05 * (max(seen) - min(seen)) + 1e-9
    return min(seen) - margin, max(seen) + margin


def panel_width(n_panels: int) -> float:
    """Inches; a panel that is alone has more room."""
    return 2.9 if n_panels > 1 else 4.6


def row_span(n: int) -> Span:
    """The ends of an upright axis with rows at 0, 1, ... from the top."""
    return n - 0.4, -0.6


def ticks(low: float, high: float) -> dict[float, str]:
    """Round numbers between the two, as they are written."""
    from matplotlib.ticker import MaxNLocator

    found = MaxNLocator(_TICKS, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    thousands = "," if max(abs(low), abs(high)) >= 1e4 else ""
    return {float(x): f"{x:{thousands}g}".replace("-", "−") for x in found if low <= x <= high}


def log_ticks(low: float, high: float, *, most: int) -> dict[float, str]:
    """The same for a logarithmic axis, and so many unless there are more powers of ten."""
    powers = [10.0**n for n in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [step * power for power in powers for step in steps if low <= step * power <= high]
        if len(found) <= most:
            break
    return {x: f"{x:,.12g}" for x in found}


def percents(low: float, high: float) -> dict[float, str]:
    """The same of shares."""
    return {x: f"{100 * x:.4g}%" for x in ticks(low, high)}


class Panel:
    """A rectangle of a figure with a scale, and the words in and around it. `name`: what it is about."""

    def __init__(
        self,
        name: str,
        figure: Figure,
        box: BboxBase,
        words: list[Word],
        *,
        room: float,
        has_left: bool,
    ) -> None:
        from matplotlib.transforms import BboxTransformTo

        self.name = name
        self._figure = figure
        self._box = box
        self._words = words
        self._room = room  # inches from its left to the next one
        self._has_left = has_left
        self._inside: Transform = BboxTransformTo(box)
        self._data: Transform = self._inside

    def scale(self, x: Span, y: Span, *, log_x: bool = False, log_y: bool = False) -> None:
        """Which data stand at the panel's ends; to be said before anything is drawn."""
        from matplotlib.scale import LogTransform
        from matplotlib.transforms import (
            Bbox,
            BboxTransformFrom,
            IdentityTransform,
            blended_transform_factory,
        )

        ends = np.array([np.log10(x) if log_x else x, np.log10(y) if log_y else y])
        self._data = BboxTransformFrom(Bbox(ends.T)) + self._inside
        if log_x or log_y:
            logs = [LogTransform(10) if log else IdentityTransform() for log in (log_x, log_y)]
            self._data = blended_transform_factory(*logs) + self._data

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        on: Spot = "data",
        move: tuple[float, float] = (0, 0),
        size: float = 8,
        color: str = INK,
        align: tuple[float, float] = (0.5, 0.5),
        angle: float = 0,
        bold: bool = False,
    ) -> None:
        """`move`: points to the right and up. `align`: the shares of the text that lie left of x and below y."""
        style: dict[str, Any] = {
            "move": move,
            "size": size,
            "color": color,
            "align": align,
            "angle": angle,
        }
        self._words.append(
            Word(transform=self._transform(on), x=x, y=y, text=text, bold=bold, **style)
        )

    def heading(self, title: str, note: str = "") -> None:
        title, note = fitted(title, 9.5, self._room, bold=True), fitted(note, 8, self._room)
        self.write(
            0, 1, title, on="panel", move=(0, 19 if note else 7), size=9.5, align=(0, 0), bold=True
        )
        self.write(0, 1, note, on="panel", move=(0, 7), color=PALE, align=(0, 0))

    def x_axis(self, marks: Ticks, label: str = "") -> None:
        """Upright rules with what is written below them."""
        self.segments([((x, 0), (x, 1)) for x in marks], _RULE, 0.7, on="x", zorder=0.4)
        for x, text in marks.items():
            self.write(x, 0, text, on="x", move=(0, -5), align=(0.5, 1))
        self.write(0.5, 0, label, on="panel", move=(0, -19), size=8.5, align=(0.5, 1))

    def y_axis(self, marks: Ticks, label: str = "") -> None:
        """Level rules, with what is written on their left where there is room for it."""
        self.segments([((0, y), (1, y)) for y in marks], _RULE, 0.7, on="y", zorder=0.4)
        if not self._has_left:
            return
        for y, text in marks.items():
            self.write(0, y, text, on="y", move=(-5, 0), align=(1, 0.5))
        room = 72 * max((length(text, 8) for text in marks.values()), default=0.0)
        self.write(
            0, 0.5, label, on="panel", move=(-room - 10, 0), size=8.5, align=(0.5, 0), angle=90
        )

    def rows(self, labels: Sequence[str]) -> None:
        """A level rule for each label, at 0, 1, ... from the top."""
        self.segments(
            [((0, y), (1, y)) for y in range(len(labels))], _RULE, 0.7, on="y", zorder=0.4
        )
        self.labels(labels)

    def labels(self, labels: Sequence[str], *, size: float = 8) -> None:
        """Words on the left at 0, 1, ... where there is room for them."""
        for y, text in enumerate(labels if self._has_left else ()):
            self.write(0, y, text, on="y", move=(-6, 0), align=(1, 0.5), size=size)

    def line(
        self, x: Sequence[float] | Array, y: Sequence[float] | Array, color: str, **more: Any
    ) -> None:
        from matplotlib.lines import Line2D

        self._draw(Line2D(x, y, color=color, transform=self._data, **{"lw": 1.5, **more}))

    def segments(
        self, lines: Sequence[Any], color: Any, lw: float, *, on: Spot = "data", **more: Any
    ) -> None:
        """Lines through points (x, y); `color`: one for all, or one for each."""
        from matplotlib.patches import PathPatch

        look = {
            "fill": False,
            "lw": lw,
            "capstyle": "butt",
            "transform": self._transform(on),
            "zorder": 2,
            **more,
        }
        for one, chosen in _by_color(color, len(lines)).items():
            self._draw(PathPatch(_through([lines[i] for i in chosen]), edgecolor=one, **look))

    def shapes(self, outlines: Sequence[Array], color: Any, *, lw: float = 0, **more: Any) -> None:
        """Filled polygons (n, 2) that do not overlap; `color`: one for all, or one for each."""
        from matplotlib.patches import PathPatch

        for one, chosen in _by_color(color, len(outlines)).items():
            path = _through([np.vstack([outlines[i], outlines[i][:1]]) for i in chosen])
            self._draw(PathPatch(path, color=one, lw=lw, transform=self._data, **more))

    def band(self, x: Array, low: Array, high: Array, color: str, *, alpha: float) -> None:
        around = np.column_stack([np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])])
        self.shapes([around], color, alpha=alpha)

    def hatch(self, start: float, end: float) -> None:
        """Slanted lines over what lies between two x."""
        from matplotlib.patches import PathPatch
        from matplotlib.transforms import Bbox, IdentityTransform

        region = Bbox.intersection(
            Bbox(self._transform("x").transform([(start, 0), (end, 1)])), self._box
        )
        if region is None:
            return
        starts = np.arange(region.x0 - region.height, region.x1, DPI / 9)
        lines = [((x, region.y0), (x + region.height, region.y1)) for x in starts]
        look: dict[str, Any] = {"fill": False, "ec": GREY, "alpha": 0.45, "lw": 1, "zorder": 0.2}
        self._draw(PathPatch(_through(lines), transform=IdentityTransform(), **look), region)

    def dots(
        self,
        x: Sequence[float],
        y: Sequence[float],
        color: Any,
        size: float,
        *,
        marker: str = "o",
        hollow: bool = False,
    ) -> None:
        """Marks of `size` points across, whole also at the panel's edge; `color`: one for all, or one for each."""
        from matplotlib.lines import Line2D

        for one, chosen in _by_color(color, len(x)).items():
            look: dict[str, Any] = (
                {"mec": one, "mfc": "white", "mew": 1.2} if hollow else {"mfc": one, "mew": 0}
            )
            at = [x[i] for i in chosen], [y[i] for i in chosen]
            dots = Line2D(
                *at, ls="", marker=marker, ms=size, transform=self._data, zorder=3, **look
            )
            self._figure.add_artist(dots)

    def grid(self, shares: Array, colormap: str) -> None:
        """Cells at 0, 1, ... from the left and the top, of shares (rows, columns); NaN is grey."""
        from matplotlib import colormaps
        from matplotlib.collections import QuadMesh

        corners = np.stack(
            np.meshgrid(*(np.arange(n + 1) - 0.5 for n in shares.shape[::-1])), axis=-1
        )
        faces = colormaps[colormap].with_extremes(bad="#EEEEEE")(shares).reshape(-1, 4)
        look: dict[str, Any] = (
            {"edgecolors": "white", "lw": 0.8} if shares.shape[1] <= _MAX_EDGED else {}
        )
        self._draw(
            QuadMesh(corners, facecolors=faces, antialiased=False, transform=self._data, **look)
        )

    def _transform(self, on: Spot) -> Transform:
        from matplotlib.transforms import blended_transform_factory

        if on in ("data", "panel"):
            return self._data if on == "data" else self._inside
        both = (self._data, self._inside) if on == "x" else (self._inside, self._data)
        return blended_transform_factory(*both)

    def _draw(self, artist: Artist, within: BboxBase | None = None) -> None:
        artist.set_clip_box(within or self._box)
        self._figure.add_artist(artist)


def _through(lines: Sequence[Any]) -> Path:
    """One path of lines, each through points (x, y)."""
    from matplotlib.path import Path

    codes = np.full(sum(map(len, lines)), Path.LINETO)
    codes[np.cumsum([0, *map(len, lines[:-1])])] = Path.MOVETO
    return Path(np.concatenate(lines), codes)


def _by_color(color: str | Sequence[str], n: int) -> dict[str, list[int]]:
    """Which of n things have which colour: one for all, or one for each."""
    found: dict[str, list[int]] = {}
    for i, one in enumerate([color] * n if isinstance(color, str) else color):
        found.setdefault(one, []).append(i)
    return found
