"""Pixels and SVG come from one drawing: each is read back, and they must show the same at the same place."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from elo_exp.figures.canvas import PALETTE, Panel
from elo_exp.figures.sheets import Sheet
from elo_exp.results import Plot

SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"
RED, BLUE = "#d00000", "#0000d0"


def drawn(draw: Callable[[Panel], None]) -> tuple[ElementTree.Element, np.ndarray]:
    """The SVG and the pixels of one panel from 0 to 1 both ways, without words."""
    sheet = Sheet("", ["panel"], width=2, height=1, left=0.3)
    sheet.panels[0].scale((0, 1), (0, 1))
    draw(sheet.panels[0])
    plot = sheet.finish("one", [], "")
    return ElementTree.fromstring(plot.svg), seen(plot)


def seen(plot: Plot) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(plot.png)).convert("RGB"))


def of_color(root: ElementTree.Element, name: str, color: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if element.get(name) == color]


def points(outline: str) -> np.ndarray:
    """(n, 2)"""
    return np.array([float(x) for x in re.findall(r"-?\d+\.\d+", outline)]).reshape(-1, 2)


def color_at(pixels: np.ndarray, x: float, y: float) -> str:
    """Of a point of the SVG; 144 pixels an inch are two a point."""
    return "#{:02x}{:02x}{:02x}".format(*pixels[round(2 * y), round(2 * x)])


def is_color(pixels: np.ndarray, color: str) -> np.ndarray:
    return (pixels == [int(color[i : i + 2], 16) for i in (1, 3, 5)]).all(axis=2)


def test_marks_are_at_the_same_places():
    root, pixels = drawn(
        lambda panel: panel.dots([0.1, 0.5, 0.9], [0.2, 0.8, 0.4], [RED, BLUE, RED], 6)
    )
    for color, n in ((RED, 2), (BLUE, 1)):
        (group,) = of_color(root, "fill", color)
        places = [(float(str(mark.get("x"))), float(str(mark.get("y")))) for mark in group]
        assert [color_at(pixels, *place) for place in places] == [color] * n
        (shape,) = (
            path for path in root.iter(f"{SVG}path") if f"#{path.get('id')}" == group[0].get(HREF)
        )
        at = points(str(shape.get("d")))
        assert np.ptp(at, axis=0) == pytest.approx([6, 6], abs=0.5)  # points across
        inside = np.column_stack(np.nonzero(is_color(pixels, color))).mean(axis=0)[::-1] / 2
        assert inside == pytest.approx(np.mean(places, axis=0), abs=0.5)


def test_lines_are_at_the_same_places_and_as_thick():
    root, pixels = drawn(lambda panel: panel.line([0.0, 1.0], [0.5, 0.5], RED, lw=4))
    (line,) = of_color(root, "stroke", RED)
    (x0, y0), (x1, _) = points(str(line.get("d")))
    rows, columns = np.nonzero(is_color(pixels, RED))
    assert (columns.min() / 2, columns.max() / 2) == pytest.approx((x0, x1), abs=1)
    assert (rows.min() / 2, (rows.max() + 1) / 2) == pytest.approx((y0 - 2, y0 + 2), abs=0.6)
    assert line.get("stroke-width") == "4"


def test_what_is_dashed_is_dashed_in_both():
    root, pixels = drawn(
        lambda panel: panel.segments([((0, 0.5), (1, 0.5))], RED, 2, ls=(0, (4, 3)))
    )
    (line,) = of_color(root, "stroke", RED)
    on, off = map(float, str(line.get("stroke-dasharray")).split())
    row = is_color(pixels, RED).any(axis=0)
    starts = np.flatnonzero(np.diff(row.astype(int)) == 1)
    assert np.diff(starts) == pytest.approx(2 * (on + off), abs=2)


@pytest.mark.parametrize("color", [RED, PALETTE[0]])
def test_what_shines_through_is_as_strong_in_both(color: str):
    square = np.array([[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8]])
    root, pixels = drawn(lambda panel: panel.shapes([square], color, alpha=0.25))
    (shape,) = of_color(root, "fill", color.lower())
    opacity = float(str(shape.get("fill-opacity")))
    full = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)])
    x, y = points(str(shape.get("d"))).mean(axis=0)
    assert pixels[round(2 * y), round(2 * x)] == pytest.approx(
        255 + opacity * (full - 255.0), abs=2
    )
    assert opacity == 0.25


def test_a_value_that_is_missing_breaks_a_line():
    root, _ = drawn(
        lambda panel: panel.line([0.0, 0.2, 0.4, 0.6, 0.8], [0.5, 0.5, np.nan, 0.5, 0.5], RED)
    )
    (line,) = of_color(root, "stroke", RED)
    assert str(line.get("d")).count("M") == 2


def test_what_stands_alone_between_missing_values_is_joined_to_nothing():
    root, _ = drawn(
        lambda panel: panel.line([0.1, 0.4, 0.5, 0.6, 0.9], [0.5, np.nan, 0.5, np.nan, 0.5], RED)
    )
    (line,) = of_color(root, "stroke", RED)
    assert "L" not in str(line.get("d"))
    assert str(line.get("d")).count("M") == 3


def test_a_mark_of_a_missing_value_is_in_neither():
    root, pixels = drawn(
        lambda panel: panel.line([0.2, 0.5, 0.8], [0.5, np.nan, 0.5], RED, ls="", marker="o", mew=0)
    )
    (group,) = of_color(root, "fill", RED)
    assert len(group) == 2
    starts = np.diff(is_color(pixels, RED).any(axis=0).astype(int)) == 1
    assert starts.sum() == 2


def test_cells_of_a_grid_have_their_colors_in_both():
    shares = np.array([[0.0, 0.25], [0.75, np.nan]])

    def draw(panel: Panel) -> None:
        panel.scale((-0.5, 1.5), (1.5, -0.5))
        panel.grid(shares, "Blues")

    root, pixels = drawn(draw)
    cells = of_color(root, "stroke", "#ffffff")
    assert len({cell.get("fill") for cell in cells}) == 4
    assert {cell.get("shape-rendering") for cell in cells} == {
        "crispEdges"
    }  # others show seams between them
    for cell in cells:
        assert color_at(pixels, *points(str(cell.get("d")))[:4].mean(axis=0)) == cell.get("fill")


def test_what_lies_beyond_the_panel_is_cut_off_in_both():
    root, pixels = drawn(lambda panel: panel.line([-5.0, 5.0], [0.5, 0.5], RED, lw=4))
    (line,) = of_color(root, "stroke", RED)
    name = str(line.get("clip-path")).removeprefix("url(#").removesuffix(")")
    (clip,) = (each for each in root.iter(f"{SVG}clipPath") if each.get("id") == name)
    outline = str(clip[0].get("d"))
    left, right = (
        float(outline[1:].split(maxsplit=1)[0]),
        float(re.findall(r"H(\d+\.\d+)", outline)[0]),
    )
    columns = np.nonzero(is_color(pixels, RED))[1]
    assert (columns.min() / 2, columns.max() / 2) == pytest.approx((left, right), abs=1)


def test_what_is_hatched_stays_between_its_ends():
    root, pixels = drawn(lambda panel: panel.hatch(0.25, 0.75))
    hatched = np.nonzero(~is_color(pixels, "#ffffff"))[1] / 2
    (lines,) = (path for path in root.iter(f"{SVG}path") if path.get("stroke-opacity"))
    assert str(lines.get("d")).count("M") > 5
    assert np.ptp(hatched) == pytest.approx(72, abs=2)  # half of two inches
