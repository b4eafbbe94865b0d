"""A figure as pixels and as SVG, drawn once.

Matplotlib would go through all shapes for each of the two, and its own writer of SVG takes longer than the pixels.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.backend_bases import GraphicsContextBase, RendererBase
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Transform

_LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
_NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
_CAPS = {"butt": "butt", "round": "round", "projecting": "square"}


class Renderer(RendererBase):
    """Paints the shapes of a figure, and writes them as SVG whose unit is the point."""

    def __init__(self, figure: Figure) -> None:
        super().__init__()
        self.dpi = figure.dpi
        across, down = figure.get_size_inches()
        self.width, self.height = 72 * across, 72 * down  # points
        self._agg: Any = RendererAgg(round(self.dpi * across), round(self.dpi * down), self.dpi)  # type: ignore[no-untyped-call]
        self._turned = Affine2D().scale(
            72 / self.dpi, -72 / self.dpi
        )  # pixels counted upwards to points downwards
        self._on_sheet = Affine2D(self._turned.get_matrix()).translate(0, self.height)
        self._elements: list[str] = []
        self._defined: dict[
            str, str
        ] = {}  # by names that no other one has in a page of several figures

    def points_to_pixels(self, points: float) -> float:  # type: ignore[override]
        return points * self.dpi / 72

    def draw_path(
        self, gc: GraphicsContextBase, path: Path, transform: Transform, face: Any = None
    ) -> None:
        self._agg.draw_path(gc, path, transform, face)
        self.write(
            f'<path d="{_outline(path, transform + self._on_sheet)}"{self._look(gc, face)}/>'
        )

    def draw_markers(
        self,
        gc: GraphicsContextBase,
        marker: Path,
        marker_transform: Transform,
        path: Path,
        transform: Transform,
        face: Any = None,
    ) -> None:
        self._agg.draw_markers(gc, marker, marker_transform, path, transform, face)
        outline = _outline(marker, marker_transform + self._turned)
        places = (transform + self._on_sheet).transform(path.vertices)
        known = places[np.isfinite(places).all(axis=1)].tolist()
        name = f"mark_{zlib.crc32(outline.encode()):08x}"
        self._defined[name] = f'<path id="{name}" d="{outline}"/>'
        marks = "".join(f'<use xlink:href="#{name}" x="{x:.2f}" y="{y:.2f}"/>' for x, y in known)
        self.write(f"<g{self._look(gc, face)}>{marks}</g>")

    def paint(self, path: Path, color: str) -> None:
        """Fill an outline, in points from the lower left corner, only as pixels."""
        gc = self.new_gc()
        gc.set_linewidth(0)
        self._agg.draw_path(gc, path, Affine2D().scale(self.dpi / 72), to_rgba(color))

    def write(self, element: str) -> None:
        """Only as SVG."""
        self._elements.append(element)

    def pixels(self) -> npt.NDArray[np.uint8]:
        """(h, w, 4)"""
        return np.asarray(self._agg.buffer_rgba())

    def svg(self) -> str:
        size = f'width="{self.width:.2f}pt" height="{self.height:.2f}pt" viewBox="0 0 {self.width:.2f} {self.height:.2f}"'
        lines = [
            f'<svg {_NAMESPACES} {size} stroke-linejoin="round">',
            f"<defs>{''.join(self._defined.values())}</defs>",
            *self._elements,
            "</svg>\n",
        ]
        return "\n".join(lines)

    def _look(self, gc: GraphicsContextBase, face: Any) -> str:
        """Attributes of an element."""
        look = _color("fill", face)
        if gc.get_linewidth():
            cap, (offset, dashes) = _CAPS[gc.get_capstyle()], gc.get_dashes()
            look += _color("stroke", gc.get_rgb()) + f' stroke-width="{gc.get_linewidth():g}"'
            look += f' stroke-linecap="{cap}"' if cap != "butt" else ""
            if dashes is not None:
                lengths = " ".join(f"{x:g}" for x in np.asarray(dashes))
                look += f' stroke-dasharray="{lengths}" stroke-dashoffset="{offset:g}"'
        if (clip := gc.get_clip_rectangle()) is not None:
            x0, y0, x1, y1 = (
                f"{x:.2f}" for x in self._on_sheet.transform(clip.corners()[[0, 3]]).ravel()
            )
            name = f"within_{x0}_{y0}_{x1}_{y1}"
            self._defined[name] = (
                f'<clipPath id="{name}"><path d="M{x0} {y0}H{x1}V{y1}H{x0}Z"/></clipPath>'
            )
            look += f' clip-path="url(#{name})"'
        if not gc.get_antialiased():  # cells of a grid, which would show seams
            look += ' shape-rendering="crispEdges"'
        return look


def _color(name: str, color: Any) -> str:
    """As attributes; `name`: fill or stroke."""
    if color is None:
        return f' {name}="none"'
    *_, opacity = to_rgba(color)
    return f' {name}="{to_hex(color)}"' + (f' {name}-opacity="{opacity:g}"' if opacity != 1 else "")


def _outline(path: Path, transform: Transform) -> str:
    """Its commands in SVG."""
    clean: Any = path.cleaned(transform, remove_nans=True)
    words, last = [], None
    for code, (x, y) in zip(clean.codes.tolist(), clean.vertices.tolist(), strict=True):
        if code in _LETTERS:
            is_said = (
                code == last != Path.MOVETO
            )  # what follows a second point of one M would be a line to it
            words.append(f"{'' if is_said else _LETTERS[code]}{x:.2f} {y:.2f}")
        elif code == Path.CLOSEPOLY:
            words.append("Z")
        last = code
    return " ".join(words)
