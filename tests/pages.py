"""A page as its reader has it: every element closed in its turn, the text, and what stands in each table row."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "input"}


def flowed(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split())


class Reader(HTMLParser):
    """`said` is the text, `cells` the rows of all tables, `tags` every element with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = text
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said = ""
        self.cells: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []
        self.said = re.sub(r"\s+", " ", self.said)
        self.cells = [[" ".join(cell.split()) for cell in row] for row in self.cells]

    @property
    def links(self) -> list[str]:
        """Every link that leaves the page."""
        inside = ("#", "data:image/png;base64,")
        return [link for link in self.given("href") if not link.startswith(inside)]

    @property
    def headings(self) -> list[str]:
        return re.findall(r"<h2 [^>]*>(.*?)</h2>", self.text)

    @property
    def folds(self) -> list[str]:
        """The names of what is folded away."""
        return re.findall(r"<summary><b>(.*?)</b>", self.text)

    def given(self, attribute: str) -> list[str]:
        """Every value of an attribute."""
        return [
            value for _, attributes in self.tags if (value := attributes.get(attribute))
        ]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"style", "script"} & set(self.open):
            return
        self.said += data
        if {"td", "th"} & set(self.open):
            small = " / " if self.open[-1] == "small" else ""
            self.cells[-1][-1] += small + data
