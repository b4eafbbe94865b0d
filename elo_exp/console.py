"""What is printed: plain text, and tables of it."""

import io
import logging
import re
import sys
from collections.abc import Collection, Iterable, Sequence

# Control characters but the tab and the line break, and those that reorder text
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return text that a terminal shows and does not obey: control characters as their escapes."""
    return _UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], text)


def show(*lines: object, is_error: bool = False) -> None:
    """Print lines, which may hold names and messages of others, on stdout or stderr."""
    text = "\n".join(map(str, lines))
    print(printable(text), file=sys.stderr if is_error else sys.stdout)


class LineFormatter(logging.Formatter):
    """Log lines that hold names and messages of others."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def text_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text: Collection[str] = (),
    width: int = 120,
) -> str:
    """Format rows as a table, at most `width` columns wide.

    head  names of the columns: the first holds names, the others numbers, aligned right
    text  names of columns that hold text instead, aligned left and wrapped where need be
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, collapse_padding=True)
    for i, name in enumerate(head):
        is_text = i == 0 or name in text
        table.add_column(
            name,
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    file = io.StringIO()
    Console(file=file, width=width, markup=False).print(table)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())
