"""A figure of a finished run as PDF: its SVG drawn again, with the fonts inside.

The SVG files of a run have a small part of SVG: paths, marks, text, clipped by rectangles, and images. Such a file may
come from elsewhere, so an element of another kind is refused.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from elo_exp.errors import FileError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.path import Path as Outline
    from matplotlib.transforms import Transform

_POINTS_PER_INCH = 72
# A TrueType font in a PDF can be searched and edited; the sizes of lines are those of the SVG
_PDF_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "lines.scale_dashes": False,
    "pdf.fonttype": 42,
    "savefig.bbox": None,
    "text.parse_math": False,
}
_ALIGNMENT_BY_ANCHOR = {"start": "left", "middle": "center", "end": "right"}
_TRANSFORM = re.compile(r"(rotate|translate|scale)\(([^)]*)\)")
_PATH_STEP = re.compile(r"([MLCz])([^MLCz]*)")
_ELEMENTS_WITHOUT_MARKS = {"defs", "metadata", "style", "title"}


def convert_svg(path: Path) -> bytes:
    """Return the SVG file of a figure as PDF, with the same bytes for the same file.

    Raises FileError for a file that another program has drawn.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    try:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        with rc_context(_PDF_STYLE):
            size = (width / _POINTS_PER_INCH, height / _POINTS_PER_INCH)
            figure = Figure(figsize=size, dpi=_POINTS_PER_INCH)
            _Drawing(figure, root, height).draw(root, clip=None)
            pdf = io.BytesIO()
            figure.savefig(pdf, format="pdf", metadata={"CreationDate": None})
    except (ElementTree.ParseError, ValueError, KeyError, IndexError) as error:
        raise FileError.bad_file(
            path,
            "is not a figure that a run has drawn",
            "Draw the figures again: repeat the command of the run.",
        ) from error
    return pdf.getvalue()


class _Drawing:
    """The marks of an SVG on a figure that has its size, where y grows downwards."""

    def __init__(self, figure: Figure, root: Element, height: float) -> None:
        from matplotlib.transforms import Affine2D

        self._figure, self._height = figure, height
        self._to_figure: Transform = Affine2D().scale(1, -1).translate(0, height)
        self._element_by_id = {
            element.attrib["id"]: element
            for element in root.iter()
            if "id" in element.attrib
        }

    def draw(self, element: Element, clip: str | None) -> None:
        """Draw an element with all that is inside.

        clip  the reference to the rectangle outside which nothing is drawn
        """
        clip = element.get("clip-path", clip)
        kind = _name_kind(element)
        if kind in _ELEMENTS_WITHOUT_MARKS:
            return
        if kind in ("svg", "g"):
            for child in element:
                self.draw(child, clip)
        elif kind == "path":
            self._draw_path(element, {}, (0.0, 0.0), clip)
        elif kind == "use":
            mark = self._element_by_id[_reference(element).removeprefix("#")]
            position = float(element.get("x", 0)), float(element.get("y", 0))
            self._draw_path(mark, _read_style(element), position, clip)
        elif kind == "text":
            self._draw_text(element)
        elif kind == "image":
            self._draw_image(element, clip)
        else:
            raise ValueError(f"unknown element {kind}")

    def _draw_path(
        self,
        element: Element,
        style_of_use: Mapping[str, str],
        position: tuple[float, float],
        clip: str | None,
    ) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.transforms import Affine2D

        outline = _read_outline(element.get("d", ""))
        if outline is None:
            return
        style = {**style_of_use, **_read_style(element)}
        opacity = float(style.get("opacity", 1))
        patch = PathPatch(
            outline,
            transform=Affine2D().translate(*position) + self._to_figure,
            facecolor=_read_color(style, "fill", "#000000", opacity),
            edgecolor=_read_color(style, "stroke", "none", opacity),
            linewidth=float(style.get("stroke-width", 1)),
            capstyle=style.get("stroke-linecap", "butt").replace(
                "square", "projecting"
            ),
            joinstyle=style.get("stroke-linejoin", "round"),
        )
        if dashes := style.get("stroke-dasharray"):
            lengths = [float(length) for length in re.split(r"[ ,]+", dashes)]
            patch.set_linestyle((float(style.get("stroke-dashoffset", 0)), lengths))
        self._add(patch, clip)

    def _draw_text(self, element: Element) -> None:
        from matplotlib.text import Text

        style = _read_style(element)
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        angle = 0.0
        for kind, numbers in _read_transforms(element):
            if kind == "translate":
                x, y = x + numbers[0], y + numbers[1]
            elif kind == "rotate":
                angle = -numbers[0]
        text = Text(
            x,
            y,
            element.text or "",
            transform=self._to_figure,
            fontsize=float(style["font-size"].removesuffix("px")),
            fontweight=style.get("font-weight", "normal"),
            color=style.get("fill", "#000000"),
            alpha=float(style.get("opacity", 1)),
            ha=_ALIGNMENT_BY_ANCHOR[style.get("text-anchor", "start")],
            va="baseline",
            rotation=angle,
            rotation_mode="anchor",
        )
        self._add(text, clip=None)

    def _draw_image(self, element: Element, clip: str | None) -> None:
        import matplotlib.image
        from matplotlib.transforms import Bbox

        sizes = [float(element.get(name, 0)) for name in ("x", "y", "width", "height")]
        x, y, width, height = sizes
        for kind, numbers in _read_transforms(element)[::-1]:
            if kind == "translate":
                x, y = x + numbers[0], y + numbers[1]
            elif kind == "scale":
                x, width = x * numbers[0], width * numbers[0]
                y, height = y * numbers[1], height * numbers[1]
        top = self._height - y
        box = Bbox([[x, top - max(height, 0.0)], [x + width, top - min(height, 0.0)]])
        image = matplotlib.image.BboxImage(box, interpolation="nearest")
        header, _, content = _reference(element).partition(",")
        if header != "data:image/png;base64":
            raise ValueError("an image that is not inside the file")
        pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(content)), "png")
        image.set_data(pixels[::-1] if height < 0 else pixels)
        self._add(image, clip)

    def _add(self, artist: Any, clip: str | None) -> None:
        from matplotlib.transforms import Bbox

        artist.set_zorder(len(self._figure.artists))  # in the order of the file
        self._figure.add_artist(artist)
        if clip is None:
            return
        (rectangle,) = self._element_by_id[clip.removeprefix("url(#").removesuffix(")")]
        names = ("x", "y", "width", "height")
        x, y, width, height = (float(rectangle.attrib[name]) for name in names)
        bottom = self._height - y - height
        artist.set_clip_box(Bbox.from_bounds(x, bottom, width, height))


def _name_kind(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _reference(element: Element) -> str:
    return element.get("href") or element.attrib["{http://www.w3.org/1999/xlink}href"]


def _read_style(element: Element) -> dict[str, str]:
    pairs = (rule.partition(":") for rule in element.get("style", "").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if value}


def _read_color(
    style: Mapping[str, str], name: str, default: str, opacity: float
) -> Any:
    from matplotlib.colors import to_rgba

    color = style.get(name, default)
    if color == "none":
        return "none"
    return to_rgba(color, opacity * float(style.get(f"{name}-opacity", 1)))


def _read_transforms(element: Element) -> list[tuple[str, list[float]]]:
    return [
        (kind, [float(number) for number in re.split(r"[ ,]+", numbers.strip())])
        for kind, numbers in _TRANSFORM.findall(element.get("transform", ""))
    ]


def _read_outline(text: str) -> Outline | None:
    """Return the outline of a path; None if it is empty."""
    from matplotlib.path import Path as Outline

    vertices, codes = [], []
    for (x, y), code in _iterate_vertices(text):
        if not (math.isfinite(x) and math.isfinite(y)):
            raise ValueError("a point that is not a number")
        vertices.append((x, y))
        codes.append(code)
    return Outline(vertices, codes) if vertices else None


def _iterate_vertices(text: str) -> Iterator[tuple[tuple[float, float], int]]:
    """Yield each point of a path with Matplotlib's code."""
    from matplotlib.path import Path as Outline

    code_by_step = {"M": Outline.MOVETO, "L": Outline.LINETO, "C": Outline.CURVE4}
    for step, words in _PATH_STEP.findall(text):
        if step == "z":
            yield (0.0, 0.0), int(Outline.CLOSEPOLY)
            continue
        numbers = [float(word) for word in words.split()]
        for point in zip(numbers[::2], numbers[1::2], strict=True):
            yield point, int(code_by_step[step])
