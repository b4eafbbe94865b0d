"""A table of text, which a template loops over."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a page. The first column holds names, those named in `words` text, the others numbers.

    note  what a reader has to know about it, below it
    """

    label: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Collection[str] = ()
    note: str = ""

    @property
    def lines(self) -> list[tuple[str, list[tuple[str, bool]]]]:
        """Each row: its name, and its other cells, each with whether it is text."""
        is_text = [column in self.words for column in self.columns[1:]]
        return [
            (name, list(zip(cells, is_text, strict=True))) for name, *cells in self.rows
        ]
