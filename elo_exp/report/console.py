"""Tables of plain text for the console."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence


def text_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, text: Collection[str] = ()
) -> str:
    """Format rows as a table, at most 120 columns wide.

    head  names of the columns: the first holds names, the others numbers, aligned right
    text  names of columns that hold text instead, aligned left, the last of them wrapped
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, collapse_padding=True)
    for i, name in enumerate(head):
        is_text = i == 0 or name in text
        is_wrapped = name in text and i == len(head) - 1
        table.add_column(
            name, justify="left" if is_text else "right", no_wrap=not is_wrapped
        )
    for row in rows:
        table.add_row(*row)
    file = io.StringIO()
    Console(file=file, width=120, markup=False).print(table)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())
