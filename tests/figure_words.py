"""The words of a figure, and where they stand."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from xml.etree import ElementTree

from elo_exp.figures.lettering import length
from elo_exp.results import Plot

_CAPITAL = 0.73  # the height of a capital, in sizes of the font
_SHARES = {"start": 0.0, "middle": 0.5, "end": 1.0}


@dataclass(frozen=True)
class Box:
    """A rectangle in points, from the upper left corner of the figure; `text`: what is written in it."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float

    def meets(self, other: Box) -> bool:
        return min(self.x1, other.x1) > max(self.x0, other.x0) and min(self.y1, other.y1) > max(
            self.y0, other.y0
        )

    def holds(self, other: Box) -> bool:
        return (
            self.x0 <= other.x0
            and other.x1 <= self.x1
            and self.y0 <= other.y0
            and other.y1 <= self.y1
        )


def written(plot: Plot) -> list[str]:
    """The words of a figure."""
    return ["".join(text.itertext()) for text in _elements(plot, "text")]


def words(plot: Plot) -> list[Box]:
    """Those that are level or upright, as high as capitals."""
    found = []
    for text in _elements(plot, "text"):
        x, y, angle = map(float, re.findall(r"-?[\d.]+", str(text.get("transform"))))
        said, size = "".join(text.itertext()), float(str(text.get("font-size")))
        long = 72 * length(said, size, bold=text.get("font-weight") == "bold")
        left, down = -_SHARES[str(text.get("text-anchor"))] * long, float(str(text.get("y")))
        corners = [(left, down), (left + long, down - _CAPITAL * size)]
        if said and angle % 90 == 0:
            turn = math.radians(angle)
            turned = [
                (
                    x + a * math.cos(turn) - b * math.sin(turn),
                    y + a * math.sin(turn) + b * math.cos(turn),
                )
                for a, b in corners
            ]
            (x0, x1), (y0, y1) = (sorted(ends) for ends in zip(*turned, strict=True))
            found.append(Box(said, x0, y0, x1, y1))
    return found


def panels(plot: Plot) -> list[Box]:
    """What figures of lines clip their lines to."""
    ends = [
        re.findall(r"-?[\d.]+", str(path.get("d")))
        for clip in _elements(plot, "clipPath")
        for path in clip
    ]
    return [
        Box("", x0, y1, x1, y0)
        for x0, y0, x1, y1 in (map(float, of_panel[:4]) for of_panel in ends)
    ]


def overlaps(plot: Plot) -> list[tuple[str, str]]:
    return [
        (one.text, other.text)
        for one, other in itertools.combinations(words(plot), 2)
        if one.meets(other)
    ]


def _elements(plot: Plot, name: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(plot.svg).iter(f"{{http://www.w3.org/2000/svg}}{name}"))
