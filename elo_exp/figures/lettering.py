"""Words of a figure: their length is known before they are drawn.

As pixels they are outlines, all of one colour drawn at once; in SVG they stay text. A name is drawn as it is written:
no sign starts a formula, and one that the font lacks is a box.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np

from elo_exp.statistics.likelihood import Array

if TYPE_CHECKING:
    from matplotlib.transforms import Transform

    from elo_exp.figures.renderer import Renderer

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
    align: tuple[
        float, float
    ]  # the shares of its length (0, 0.5, 1) left of x, and of a capital's height below y
    angle: float  # degrees
    bold: bool

    def outline(self, x: float, y: float) -> tuple[Array, list[int]]:
        """Vertices (v, 2) and their codes, in points like the place where it stands."""
        vertices, codes = _outline(self.text, self.bold)
        at = self.align[0] * vertices[:, 0].max(initial=0.0), self.align[1] * _CAPITAL
        turn = math.radians(self.angle)
        turned = (vertices - at) @ [
            [math.cos(turn), math.sin(turn)],
            [-math.sin(turn), math.cos(turn)],
        ]
        return self.size * turned + (x, y), codes

    def element(self, x: float, y: float) -> str:
        """Of SVG, whose y runs downwards."""
        return (
            f'<text transform="translate({x:.2f} {y:.2f}) rotate({-self.angle:g})" '
            f'y="{self.align[1] * _CAPITAL * self.size:.2f}" text-anchor="{_ANCHOR[self.align[0]]}" '
            f'fill="{self.color}" font-size="{self.size}" font-weight="{"bold" if self.bold else "normal"}">'
            f"{escape(' '.join(self.text.split()))}</text>"
        )


def length(text: str, size: float, *, bold: bool = False) -> float:
    """Of a line of text, in inches."""
    return float(_outline(text, bold)[0][:, 0].max(initial=0.0)) * size / 72


def fitted(text: str, size: float, room: float, *, bold: bool = False) -> str:
    """As much of it as `room` inches hold."""
    cut = text
    while len(cut) > 1 and length(cut, size, bold=bold) > room:
        cut = f"{cut.removesuffix('…')[:-1]}…"
    return cut


def draw(words: Sequence[Word], renderer: Renderer) -> None:
    """Above all that is drawn so far; as pixels those of one colour at once."""
    from matplotlib.path import Path

    outlines: dict[str, list[tuple[Array, list[int]]]] = {}
    renderer.write('<g font-family="DejaVu Sans, Verdana, sans-serif">')
    for word in words:
        x, y = word.transform.transform((word.x, word.y)) * 72 / renderer.dpi + word.move
        renderer.write(word.element(x, renderer.height - y))
        outlines.setdefault(word.color, []).append(word.outline(x, y))
    renderer.write("</g>")
    for color, some in outlines.items():
        vertices, codes = zip(*some, strict=True)
        renderer.paint(Path(np.concatenate(vertices), list(itertools.chain(*codes))), color)


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

    font = get_font(
        findfont(FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal"))
    )
    font.set_size(_EM, 72)
    glyph = font.load_glyph(
        font.get_char_index(ord(sign)), flags=LoadFlags.NO_HINTING
    )  # 0, a box, if it lacks one
    vertices, codes = font.get_path()
    return (
        np.array(vertices).reshape(-1, 2) / _EM,
        [int(code) for code in codes],
        glyph.linearHoriAdvance / 65536 / _EM,
    )
