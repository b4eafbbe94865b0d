"""HTML made of strings: what is not Markup is text, and gets escaped. And numbers as a reader wants them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

NONE = "–"
_ON_ONE_PAGE = 25  # rows of a table that are not parted in print


class Markup(str):
    """HTML as it stands."""

    __slots__ = ()


def maybe(number: float | None) -> str:
    return NONE if number is None else f"{number:.0f}"


def between(low: float | None, high: float | None) -> str:
    return NONE if low is None or high is None else f"{low:.0f} to {high:.0f}".replace("-", "−")


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


def table(label: str, head: Sequence[str], rows: Sequence[Sequence[object]], *, wide: bool = False) -> Markup:
    """A heading's first character may say what its column is: ! the row's name, < text, | a chart, ~ of less weight.
    An underscore is a space at which it does not break."""
    kinds = [{"!": "name", "<": "text", "|": "chart", "~": "soft"}.get(h[0], "") for h in head]

    def line(cells: Sequence[object], scopes: Sequence[str]) -> Markup:
        columns = zip(cells, kinds, scopes, strict=True)
        return tag("tr", *(tag("th" if s else "td", cell, scope=s, class_=kind) for cell, kind, s in columns))

    top = line([h.lstrip("!<|~").replace("_", "\N{NO-BREAK SPACE}") for h in head], ["col"] * len(head))
    lines = [line(row, ["row" if kind == "name" else "" for kind in kinds]) for row in rows]
    table = tag("table", tag("thead", top), tag("tbody", *lines), class_="wide" if wide else "")
    short = " short" if len(rows) <= _ON_ONE_PAGE else ""
    return tag("div", table, class_=f"scroll{short}", role="region", aria_label=label, tabindex="0")


def listed(rows: Mapping[str, object]) -> Markup:
    """Terms and what is said of them, those of which nothing is said left out."""
    return tag("dl", *(join([tag("dt", term), tag("dd", said)]) for term, said in rows.items() if said))


def codes(texts: Iterable[str]) -> Markup:
    return join(tag("code", text) for text in texts)


def tag(name: str, *content: object, **attributes: str) -> Markup:
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value}
    opening = " ".join([name, *(f'{key}="{escape(value)}"' for key, value in given.items())])
    return Markup(f"<{opening}>{join(content)}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else escape(str(part)) for part in parts))
