"""report.html: one page that fetches nothing, from a template of report/templates.

The template `NAME.html.j2` extends report.html.j2. Numbers and names go in as plain values; sentences
are the template's, and autoescape makes text of every name. A Content-Security-Policy allows the one
script by its hash, and no request.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elo_exp.figures import style
from elo_exp.ratings.leaderboard import Rating
from elo_exp.records import Plot
from elo_exp.report import formats
from elo_exp.store.usage import added_up, paid

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES = Path(__file__).with_name("templates")
_VARIABLES = {  # of the style sheet, by colour of a figure
    style.INK: "--ink",
    style.SOFT: "--soft",
    style.LINE: "--line",
    "#ffffff": "--card",
    **{color: f"--e{i}" for i, color in enumerate(style.PALETTE)},
}
_OUTSIDE_HTML = re.compile(
    r'<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>| (xmlns(:\w+)?|id)="[^"]*[:_][^"]*"',
    re.DOTALL,
)
_NEEDLESS = re.compile(  # a page has its own font
    r"<g/>\n?| font-family: [^;]*;| transform=\"rotate\(-?0 [^\"]*\""
)
_COORDINATE = re.compile(r"\d{2,}\.\d{2,}")  # in points; opacities are smaller


def template(name: str, digits: int = 0) -> Template:
    """Return a template of report/templates; names in HTML become text.

    digits  of numbers for which the template gives none: ratings
    """
    from jinja2 import ChainableUndefined, Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=lambda name: name is None or name.endswith(".html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=ChainableUndefined,
    )

    def number(value: float | None, digits: int = digits, sign: bool = False) -> str:
        return formats.number(value, digits, sign=sign)

    def between(low: float | None, high: float | None, digits: int = digits) -> str:
        return formats.between(low, high, digits)

    filters = (
        "count",
        "p_equals",
        "p_value",
        "percent",
        "percent_reached",
        "names",
        "when",
    )
    environment.filters |= {name: getattr(formats, name) for name in filters}
    environment.filters |= {"number": number, "inline": inline_svg}
    environment.tests["startswith"] = str.startswith
    environment.globals |= {
        "between": between,
        "percent_between": formats.percent_between,
    }
    return environment.get_template(name)


def render(
    name: str, plots: Sequence[Plot] = (), *, digits: int = 0, **context: Any
) -> str:
    """Return the page of a template, with these figures at its disposal."""
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return template(f"{name}.html.j2", digits).render(
        plots={plot.name: plot for plot in plots},
        shown=[],
        contents=[],
        css=(_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=f"sha256-{digest}",
        **context,
    )


def inline_svg(plot: Plot) -> str:
    """Return the SVG of a figure as an element of a page, in the colours of the style sheet."""
    element = _OUTSIDE_HTML.sub("", plot.svg[plot.svg.find("<svg") :])
    element = element.replace("xlink:href", "href")
    element = re.sub(r"\n\s*", "\n", _NEEDLESS.sub("", element))
    element = _COORDINATE.sub(lambda number: f"{float(number.group()):.1f}", element)
    element = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{plot.name}-", element)
    return re.sub(
        r"(?<=: )#[0-9a-f]{6}", lambda color: _variable(color.group()), element
    )


def _variable(color: str) -> str:
    return f"var({_VARIABLES[color]})" if color in _VARIABLES else color


def cost(
    usage: Mapping[str, Any] | None, before: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what the block on cost shows. `usage` and `before` are as manifest.json has them."""
    bill = added_up([usage, before])
    return {
        "usage": usage or {},
        "bill": bill,
        "dollars": paid(bill),
        "dollars_before": paid(before or {}),
    }


def colors(models: Iterable[str]) -> dict[str, int]:
    """Return the number of each name's colour, as in the figures; one for all of many."""
    ordered = sorted(set(models))
    has_own = len(ordered) <= style.MAX_COLORED
    return {
        model: i if has_own else style.MAX_COLORED for i, model in enumerate(ordered)
    }


def scale(ratings: Iterable[Rating], digits: int = 0) -> dict[str, Any]:
    """Return the ends and the ticks of an axis that holds all ratings and their intervals.

    digits  decimals of a rating
    """
    ends = [
        value
        for rating in ratings
        for value in (rating.rating, rating.ci_low, rating.ci_high)
        if value is not None
    ]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    margin = 0.04 * (high - low) + 0.1**digits
    low, high = low - margin, high + margin
    steps = (10.0**-digits * step for step in (50, 100, 200, 500, 1000))
    step = next((step for step in steps if high - low < 8 * step), 5000 * 0.1**digits)
    return {
        "low": low,
        "high": high,
        "step": step,
        "ticks": step * np.arange(math.ceil(low / step), math.floor(high / step) + 1),
    }
