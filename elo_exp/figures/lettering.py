"""Words of a figure: their length is known before they are drawn.

As pixels they are outlines, all of one colour drawn at once; in SVG they stay text. A name is drawn as it is written:
no sign starts a formula, and one that the font lacks is a box.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np

from elo_exp.statistics.likelihood import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.patches import PathPatch
    from matplotlib.transforms import Transform

_MAX_NAME = 28  # characters; of a longer name both ends are shown
_EM = 100  # points: the size at which outlines are taken
_CAPITAL = 0.73  # the height of a capital, in sizes of the font
_ANCHOR = {0: "start", 0.5: "middle", 1: "end"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A line of text at `x`, `y` of a transform."""

    transform: Transform
    x: float
    y: float
    text: str
    move: tuple[float, float]  # points, to the right and up
    size: float  # points
    color: str
    align: tuple[float, float]  # the shares of its length (0, 0.5, 1) left of x, and of a capital's height below y
    angle: float  # degrees
    bold: bool

    def place(self, dpi: float) -> Array:
        """(2,) points from the lower left corner of the figure."""
        return np.asarray(self.transform.transform((self.x, self.y)) * 72 / dpi + self.move)


def length(text: str, size: float, *, bold: bool = False) -> float:
    """Of a line of text, in inches."""
    return float(_outline(text, bold)[0][:, 0].max(initial=0.0)) * size / 72


def fitted(text: str, size: float, room: float, *, bold: bool = False) -> str:
    """As much of it as `room` inches hold."""
    cut = text
    while len(cut) > 1 and length(cut, size, bold=bold) > room:
        cut = f"{cut.removesuffix('…')[:-1]}…"
    return cut


def short(name: str) -> str:
    """A name that fits beside a panel."""
    kept = (_MAX_NAME - 1) // 2
    return name if len(name) <= _MAX_NAME else f"{name[:kept]}…{name[-kept:]}"


def as_patches(words: Sequence[Word], figure: Figure) -> list[PathPatch]:
    """One for each colour."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D

    found = []
    for color in dict.fromkeys(word.color for word in words):
        vertices, codes = [], []
        for word in (word for word in words if word.color == color):
            outline, moves = _outline(word.text, word.bold)
            at = np.array([word.align[0] * outline[:, 0].max(initial=0.0), word.align[1] * _CAPITAL])
            turn = math.radians(word.angle)
            turned = (outline - at) @ [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
            vertices.append(word.size * turned + word.place(figure.dpi))
            codes += moves
        if codes:
            points = Affine2D().scale(figure.dpi / 72)
            path = Path(np.concatenate(vertices), codes)
            found.append(PathPatch(path, transform=points, facecolor=color, lw=0, zorder=5))
    return found


def as_svg(words: Sequence[Word], figure: Figure) -> str:
    """The elements of an SVG whose unit is the point."""
    lines = []
    for word in words:
        text, (x, y) = " ".join(word.text.split()), word.place(figure.dpi)
        drop = word.align[1] * _CAPITAL * word.size
        lines.append(
            f'<text transform="translate({x:.2f} {72 * figure.get_figheight() - y:.2f}) rotate({-word.angle:g})" '
            f'y="{drop:.2f}" text-anchor="{_ANCHOR[word.align[0]]}" fill="{word.color}" font-size="{word.size}" '
            f'font-weight="{"bold" if word.bold else "normal"}">{escape(text)}</text>'
        )
    return '<g font-family="DejaVu Sans, Verdana, sans-serif">\n' + "\n".join(lines) + "\n</g>\n"


@functools.lru_cache(maxsize=4096)
def _outline(text: str, bold: bool) -> tuple[Array, list[int]]:
    """Vertices (v, 2) in sizes of the font, from the start of the base line, and their codes of a Matplotlib path."""
    at, vertices, codes = 0.0, [np.empty((0, 2))], []
    for sign in " ".join(text.split()):
        outline, moves, advance = _glyph(sign, bold)
        vertices.append(np.add(outline, (at, 0.0)))
        codes += moves
        at += advance
    return np.concatenate(vertices), codes


@functools.lru_cache(maxsize=4096)
def _glyph(sign: str, bold: bool) -> tuple[Array, list[int], float]:
    """The outline of one sign, as above, and how far the next one is. Sign by sign a text takes a fifteenth of what
    Matplotlib's own layout of it takes, which would also draw AV a little closer."""
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.ft2font import LoadFlags

    font = get_font(findfont(FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")))
    font.set_size(_EM, 72)
    glyph = font.load_glyph(font.get_char_index(ord(sign)), flags=LoadFlags.NO_HINTING)  # 0, a box, if it lacks one
    vertices, codes = font.get_path()
    return np.array(vertices).reshape(-1, 2) / _EM, [int(code) for code in codes], glyph.linearHoriAdvance / 65536 / _EM
