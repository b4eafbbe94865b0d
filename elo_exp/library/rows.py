"""Tables as lists of dictionaries, which a console and a notebook show as tables."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.console import format_table

_MAX_SHOWN_ROWS = 60
_MAX_CELL_CHARS = 80
# Wider than any table, so that a table is as wide as its cells
_TABLE_WIDTH_CHARS = 1000


class Rows(list[dict[str, Any]]):
    """A table as a list of dictionaries.

    `pandas.DataFrame(rows)` makes a data frame of it, and so does `polars.DataFrame(rows, infer_schema_length=None)`.
    """

    def __repr__(self) -> str:
        if not self:
            return "no rows"
        names = _list_columns(self)
        rows = self[:_MAX_SHOWN_ROWS]
        lines = [[_format_cell(row.get(name)) for name in names] for row in rows]
        text = [n for n in names if any(isinstance(row.get(n), str) for row in rows)]
        more = [f"... of {len(self):,} rows"] if len(self) > _MAX_SHOWN_ROWS else []
        return "\n".join(
            [format_table(names, lines, text=text, width=_TABLE_WIDTH_CHARS), *more]
        )

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no rows</p>"
        names = _list_columns(self)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>"
            + "".join(map(_format_html_cell, (row.get(name) for name in names)))
            + "</tr>"
            for row in self[:_MAX_SHOWN_ROWS]
        )
        more = (
            f"<p>... of {len(self):,} rows</p>" if len(self) > _MAX_SHOWN_ROWS else ""
        )
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
        )


def _list_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows[:_MAX_SHOWN_ROWS] for name in row))


def _format_html_cell(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    style = ' style="text-align: right"' if is_number else ""
    return f"<td{style}>{html.escape(_format_cell(value))}</td>"


def _format_cell(value: Any) -> str:
    """Return a value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    text = " ".join(str(value).split())
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[: _MAX_CELL_CHARS - 1]}…"
