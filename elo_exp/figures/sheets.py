"""A sheet of panels with its title and key, and the PNG and SVG that come out.

Every panel gets its place in inches, for the words around it have a known length.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from elo_exp.figures import lettering
from elo_exp.figures.canvas import DPI, INK, Look, Panel
from elo_exp.figures.lettering import Word, length
from elo_exp.results import Plot

_MARGIN = 0.15  # inches round the sheet
_TITLE, _KEY_LINE = 0.32, 0.23  # inches: the sheet's title, a line of its key
_HEADING = {0: 0.1, 1: 0.3, 2: 0.46}  # inches above a panel, by the lines of its heading
_SIGN = 0.22  # inches: the line of a key
_MIN_ACROSS, _MAX_ACROSS = 5.0, 16.0  # inches, unless one panel takes more


class Sheet:
    """A figure of panels of one size, read in lines. Sizes in inches: of what is drawn in a panel, and of the room for
    words beside and below it.

    title    what the figure is about
    left     with `shared_left` only before the first panel of a line
    heading  lines above a panel
    key      labels, each with how the sign before it is drawn
    """

    def __init__(
        self,
        title: str,
        names: Sequence[str],
        *,
        width: float,
        height: float,
        left: float,
        right: float = 0.2,
        bottom: float = 0.5,
        shared_left: bool = False,
        heading: int = 2,
        n_columns: int = 3,
        key: Sequence[tuple[str, Look]] = (),
    ) -> None:
        from matplotlib.figure import Figure
        from matplotlib.transforms import Bbox, TransformedBbox

        self._words: list[Word] = []
        between = right + (0.1 if shared_left else left)
        n_columns = max(
            1, min(len(names), n_columns, int((_MAX_ACROSS - left + between) / (width + between)))
        )
        n_lines = math.ceil(len(names) / n_columns)
        panels = left + n_columns * width + (n_columns - 1) * between + right
        across = 2 * _MARGIN + max(panels, length(title, 11.5, bold=True), _MIN_ACROSS)
        signs = _signs(key, across)
        top = _MARGIN + _TITLE + _KEY_LINE * (1 + max((line for *_, line in signs), default=-1))
        step = _HEADING[heading] + height + bottom
        down = top + n_lines * step
        self._figure = Figure(figsize=(across, down), dpi=DPI)
        self._write_head(title, signs, down)
        self.panels: list[Panel] = []
        for i, name in enumerate(names):
            line, column = divmod(i, n_columns)
            x, y = (
                _MARGIN + left + column * (width + between),
                down - top - line * step - _HEADING[heading] - height,
            )
            box = TransformedBbox(
                Bbox.from_bounds(x, y, width, height), self._figure.dpi_scale_trans
            )
            has_left = not shared_left or column == 0
            room = width + 0.9 * right
            self.panels.append(
                Panel(name, self._figure, box, self._words, room=room, has_left=has_left)
            )

    def finish(
        self, name: str, rows: Sequence[Mapping[str, Any]], caption: str, **more: Any
    ) -> Plot:
        """The figure as PNG and as SVG, with its rows, and what it shows in words."""
        from elo_exp.figures.renderer import Renderer

        renderer = Renderer(self._figure)
        self._figure.draw(renderer)
        lettering.draw(self._words, renderer)
        pixels = renderer.pixels()[:, :, :3]
        packer = ThreadPoolExecutor(
            1
        )  # one for each figure: a thread that stayed would be missing in a forked process
        packing = packer.submit(_png, pixels)
        packer.shutdown(wait=False)
        return Plot(
            name=name, packing=packing, svg=renderer.svg(), rows=rows, caption=caption, **more
        )

    def _write_head(
        self, title: str, signs: Sequence[tuple[str, Look, float, int]], down: float
    ) -> None:
        from matplotlib.lines import Line2D

        inches = self._figure.dpi_scale_trans
        style: dict[str, Any] = {"transform": inches, "move": (0, 0), "color": INK, "angle": 0}
        head = Word(
            **style, x=_MARGIN, y=down - _MARGIN, text=title, size=11.5, align=(0, 1), bold=True
        )
        self._words.append(head)
        for label, look, x, line in signs:
            y = down - _MARGIN - _TITLE - (line + 0.3) * _KEY_LINE
            sign = [x, x + _SIGN / 2, x + _SIGN]
            drawn = {"markevery": [1], "solid_capstyle": "butt", "transform": inches, **look}
            self._figure.add_artist(Line2D(sign, [y] * 3, **drawn))
            self._words.append(
                Word(
                    **style,
                    x=x + _SIGN + 0.08,
                    y=y,
                    text=label,
                    size=8.5,
                    align=(0, 0.5),
                    bold=False,
                )
            )


def _signs(key: Sequence[tuple[str, Look]], across: float) -> list[tuple[str, Look, float, int]]:
    """Each label of a key with its look, its x in inches and its line."""
    placed = []
    x, line = _MARGIN, 0
    for label, look in key:
        end = x + _SIGN + 0.08 + length(label, 8.5)
        if x > _MARGIN and end > across - _MARGIN:
            x, line, end = _MARGIN, line + 1, _MARGIN + end - x
        placed.append((label, look, x, line))
        x = end + 0.28
    return placed


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """A PNG of (h, w, 3) without row filters: of flat colours it is smaller so, and made in half the time."""
    h, w, _ = pixels.shape
    rows = np.zeros((h, 1 + 3 * w), dtype=np.uint8)
    for color in range(3):  # three copies are faster than one across the fourth of each pixel
        rows[:, 1 + color :: 3] = pixels[:, :, color]
    per_metre = round(DPI / 0.0254)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0),
        b"pHYs": struct.pack(">IIB", per_metre, per_metre, 1),
        b"IDAT": zlib.compress(rows.data, 2),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )
