"""report.html: one page that fetches nothing, from a template of report/templates.

The templates lay out a document that Python made: they compute nothing, and a name that is not there is
an error. Autoescape makes text of every name. A Content-Security-Policy allows the one script by its hash,
and no request.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from elo_exp.console import escape_unprintable
from elo_exp.figures import style
from elo_exp.records import Plot
from elo_exp.report.document import Document

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markdown_it import MarkdownIt

_TEMPLATES = Path(__file__).with_name("templates")


class _Options(TypedDict):
    autoescape: bool
    trim_blocks: bool
    lstrip_blocks: bool


_OPTIONS: _Options = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
_CSS_VARIABLE_BY_COLOR = {
    style.INK: "--ink",
    style.SOFT: "--soft",
    style.LINE: "--line",
    "#ffffff": "--card",
    **{color: f"--e{i}" for i, color in enumerate(style.PALETTE)},
}
_SVG_NOT_FOR_HTML = re.compile(
    r"<metadata>(?:(?!<metadata>).)*?</metadata>|<defs>\s*<style(?:(?!<defs>).)*?</defs>|"
    r' (xmlns(:\w+)?|id)="[^"]*[:_][^"]*"',
    re.DOTALL,
)
# A page has its own font
_REDUNDANT_SVG = re.compile(
    r"<g/>\n?| font-family: [^;]*;| transform=\"rotate\(-?0 [^\"]*\""
)
_MAX_SECTIONS_WITHOUT_LINKS = 4
# Of an answer that is shown on a page; the viewer has the rest
_MAX_RENDERED_CHARACTERS = 20_000
# In points; opacities are smaller
_COORDINATE = re.compile(r"(?<!\d)\d{2,}\.\d{2,}")


def load_template(name: str) -> Template:
    """Return a template of report/templates; names become text, and one that is not there is an error."""
    return _load_environment().get_template(name)


@cache
def _load_environment() -> Environment:
    """Return the Jinja environment, which compiles each template once."""
    from elo_exp.report.template_cache import user_folder

    return build_environment(user_folder())


def build_environment(folder: Path | None) -> Environment:
    """Return what makes pages of templates; `folder` has those that are compiled, None: none are kept."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from elo_exp.report.template_cache import TemplateCache

    jinja_environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        bytecode_cache=TemplateCache(folder, (_OPTIONS, _make_printable.__name__)),
        finalize=_make_printable,
        **_OPTIONS,
    )
    jinja_environment.filters["inline"] = inline_svg
    jinja_environment.filters["markdown"] = render_markdown
    return jinja_environment


def _make_printable(value: object) -> object:
    """As a page shows it: of names and texts of others no character reorders what is beside it, or is not seen."""
    return escape_unprintable(value) if type(value) is str else value


class Figures:
    """The figures of a page: each is shown once, and those of `without` not at all."""

    def __init__(self, plots: Sequence[Plot], without: Collection[str]) -> None:
        self._remaining = {
            plot.name: plot for plot in plots if plot.name not in without
        }

    def take(self, name: str) -> Plot | None:
        """Return a figure for the place that shows it; None where it was not drawn, or is shown above."""
        return self._remaining.pop(name, None)

    def rest(self) -> list[str]:
        return list(self._remaining)


class Contents:
    """The sections of a page, id and heading, in the order in which they were filled."""

    def __init__(self) -> None:
        self.sections: list[tuple[str, str]] = []

    @property
    def beginning(self) -> str:
        """The anchor of the first section; empty without sections."""
        return self.sections[0][0] if self.sections else ""

    @property
    def has_many(self) -> bool:
        """Whether a reader needs links to the sections."""
        return len(self.sections) > _MAX_SECTIONS_WITHOUT_LINKS

    def listed(self, anchor: str, heading: str) -> str:
        """Return the heading of a section that has something to show, which the contents name then."""
        self.sections.append((anchor, heading))
        return heading


def render_document(title: str, document: Document, plots: Sequence[Plot] = ()) -> str:
    """Return a document as a page.

    plots  figures at its disposal
    """
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return load_template("document.html.j2").render(
        title=title,
        document=document,
        figures=Figures(plots, document.figures_left_out),
        contents=Contents(),
        css=(_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=f"sha256-{digest}",
    )


def make_page_renderer(
    build: Callable[[Mapping[str, Any]], Document],
) -> Callable[..., str]:
    """Return a function that makes the page of a run from its title, its manifest and its figures.

    build  returns the document of a manifest
    """

    def render_run(
        title: str, manifest: Mapping[str, Any], plots: Sequence[Plot]
    ) -> str:
        return render_document(title, build(manifest), plots)

    return render_run


def render_markdown(text: str) -> str:
    """Return an answer as HTML: its Markdown, without raw HTML, images and links, which stay as they are written.

    Of a very long answer the beginning is returned.
    """
    beginning = escape_unprintable(text[:_MAX_RENDERED_CHARACTERS])
    html: str = _make_markdown_parser().render(beginning)
    return html


@cache
def _make_markdown_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt(
        "commonmark", {"html": False, "breaks": True, "xhtmlOut": False}
    )
    return parser.enable("table").disable(
        ["image", "link", "autolink", "html_block", "html_inline", "entity"]
    )


def inline_svg(plot: Plot) -> str:
    """Return the SVG of a figure as an element of a page, in the colours of the style sheet."""
    element = _SVG_NOT_FOR_HTML.sub("", plot.svg[plot.svg.find("<svg") :])
    element = element.replace("xlink:href", "href")
    element = re.sub(r"\n\s*", "\n", _REDUNDANT_SVG.sub("", element))
    element = _COORDINATE.sub(lambda number: f"{float(number.group()):.1f}", element)
    element = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{plot.name}-", element)
    for color, variable in _CSS_VARIABLE_BY_COLOR.items():
        element = element.replace(f": {color}", f": var({variable})")
    return element


def number_colors(models: Iterable[str]) -> dict[str, int]:
    """Return the number of each name's colour, as in the figures; one for all of many."""
    ordered = sorted(set(models))
    has_own_colors = len(ordered) <= style.MAX_COLORED_NAMES
    return {
        model: i if has_own_colors else style.MAX_COLORED_NAMES
        for i, model in enumerate(ordered)
    }
