"""HTML made of strings: what is not Markup is text, and gets escaped. And numbers as a reader wants them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

NONE = "–"
_TEMPLATE = Path(__file__).with_name("report_template.html")
_ON_ONE_PAGE = 25  # rows of a table that are not parted in print
_KINDS = {
    "!": "name",
    "<": "text",
    ">": "words",
    "|": "chart",
    "~": "soft",
}  # of columns


class Markup(str):
    """HTML as it stands."""

    __slots__ = ()


def document(
    title: str, lede: str, sections: Mapping[str, Iterable[Markup]], *, note: str
) -> str:
    """A page that fetches nothing, by heading; a section of which nothing is said is left out. `note` ends it."""
    body = [tag("h1", title), tag("p", lede, class_="lede")]
    for heading, content in sections.items():
        if inside := list(content):
            body.append(tag("section", tag("h2", heading), *inside))
    body.append(tag("footer", tag("p", note, class_="note")))
    return shell(title, "\n".join(body))


def shell(title: str, body: str) -> str:
    """The page around a body: head and style sheet."""
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(title), body=body
    )


def maybe(number: float | None, digits: int = 0) -> str:
    return NONE if number is None else f"{number:z.{digits}f}".replace("-", "−")


def between(low: float | None, high: float | None, digits: int = 0) -> str:
    return (
        NONE
        if low is None or high is None
        else f"{maybe(low, digits)} to {maybe(high, digits)}"
    )


def p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.{3 if value < 0.1 else 2}f}"


def percent(share: float) -> str:
    """Certainty only for what is certain."""
    if 0.0 < share < 0.005:
        return "<\N{NO-BREAK SPACE}1\N{NO-BREAK SPACE}%"
    number = ">\N{NO-BREAK SPACE}99" if 0.995 <= share < 1.0 else f"{100 * share:.0f}"
    return f"{number}\N{NO-BREAK SPACE}%"


def share(n: int, of: int) -> str:
    return f"{percent(n / of)} ({n:,} of {of:,})" if of else NONE


def table(
    label: str,
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    wide: bool = False,
) -> Markup:
    """A heading's first character may say what its column is: ! the row's name, < text, > whole sentences, | a chart, ~
    of less weight. An underscore is a space at which it does not break. One that is Markup is shown as it stands."""
    kinds = ["" if isinstance(h, Markup) else _KINDS.get(h[0], "") for h in head]

    def line(cells: Sequence[object], scopes: Sequence[str]) -> Markup:
        columns = zip(cells, kinds, scopes, strict=True)
        return tag(
            "tr",
            *(
                tag("th" if s else "td", cell, scope=s, class_=kind)
                for cell, kind, s in columns
            ),
        )

    top = line([_heading(h) for h in head], ["col"] * len(head))
    lines = [
        line(row, ["row" if kind == "name" else "" for kind in kinds]) for row in rows
    ]
    table = tag(
        "table", tag("thead", top), tag("tbody", *lines), class_="wide" if wide else ""
    )
    short = " short" if len(rows) <= _ON_ONE_PAGE else ""
    return tag(
        "div",
        table,
        class_=f"scroll{short}",
        role="region",
        aria_label=label,
        tabindex="0",
    )


def _heading(head: str) -> str:
    return (
        head
        if isinstance(head, Markup)
        else head.lstrip("".join(_KINDS)).replace("_", "\N{NO-BREAK SPACE}")
    )


def listed(rows: Mapping[str, object]) -> Markup:
    """Terms and what is said of them, those of which nothing is said left out."""
    return tag(
        "dl",
        *(
            join([tag("dt", term), tag("dd", said)])
            for term, said in rows.items()
            if said
        ),
    )


def codes(texts: Iterable[str]) -> Markup:
    return join(tag("code", text) for text in texts)


def tag(name: str, *content: object, **attributes: str) -> Markup:
    given = {
        key.rstrip("_").replace("_", "-"): value
        for key, value in attributes.items()
        if value
    }
    opening = " ".join(
        [name, *(f'{key}="{escape(value)}"' for key, value in given.items())]
    )
    return Markup(f"<{opening}>{join(content)}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    return Markup(
        "".join(
            part if isinstance(part, Markup) else escape(str(part)) for part in parts
        )
    )
