"""What is printed: plain text, and tables of it."""

import io
import logging
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence

from elo_exp.masking import mask_text

# Control characters but the tab and the line break; format characters, which reorder text or are not seen, but for
# those that number signs are; and joiners that join nothing
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f]|(?<![^\x00-\x7f])[\u200c\u200d]"
)

# The end of a message says what to do.
_MAX_LINE_CHARACTERS, _END_CHARACTERS = 2000, 500

MAX_COLUMNS = 110
# A label with the spaces behind it, or an indent
_LABEL = re.compile(r"(?=.{0,15}  \S) *\w+(?: \w+)*  +| +")

# A p value stays on one line
_P_VALUE, _NO_BREAK = re.compile(r"\bp [=<>] [.\d]+"), "\N{NO-BREAK SPACE}"
# Our own marks, for a terminal that lacks them
_ASCII_MARKS = str.maketrans(
    {
        "─": "-",
        "●": "o",
        "−": "-",
        "–": "-",
        "±": "+/-",
        "·": "-",
        "…": "...",
        "α": "alpha",
        "’": "'",
    }
)

# A URL with a password, up to its host
URL_PASSWORD_PATTERN = re.compile(
    r"(\b[a-zA-Z][a-zA-Z0-9+.-]{0,30}://[^/\s:@]*:)[^/\s@]+@"
)


def escape_unprintable(text: str) -> str:
    """Return text that is shown and not obeyed: control and format characters as their escapes."""
    return _UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], text)


def shorten_lines(text: str) -> str:
    """Return the lines of a message, of a very long one both ends."""
    return "\n".join(
        line
        if (n := len(line) - _MAX_LINE_CHARACTERS) <= 0
        else f"{line[: _MAX_LINE_CHARACTERS - _END_CHARACTERS]} … ({n:,} characters) … {line[-_END_CHARACTERS:]}"
        for line in text.split("\n")
    )


def print_lines(*lines: object, is_error: bool = False) -> None:
    """Print lines, which may hold names and messages of others, on stdout or stderr."""
    file = sys.stderr if is_error else sys.stdout
    text = escape_unprintable(mask_text("\n".join(map(str, lines))))
    print(
        text if _can_write(text, file.encoding) else text.translate(_ASCII_MARKS),
        file=file,
    )


def _can_write(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


class LineFormatter(logging.Formatter):
    """Log lines that hold names and messages of others."""

    def format(self, record: logging.LogRecord) -> str:
        return shorten_lines(escape_unprintable(mask_text(super().format(record))))


def count_columns() -> int:
    """Return how wide lines may be: as wide as the terminal, and at most `MAX_COLUMNS`."""
    return min(MAX_COLUMNS, shutil.get_terminal_size((MAX_COLUMNS, 0)).columns)


def wrap_lines(lines: Iterable[str]) -> list[str]:
    """Wrap lines that are too long; they go on below their text, behind the label if there is one."""
    columns = count_columns()
    wrapped = list[str]()
    for line in (line.rstrip() for line in lines):
        label = _LABEL.match(line)
        wrapper = textwrap.TextWrapper(
            columns,
            subsequent_indent=" " * len(label[0]) if label else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        if len(line) <= columns:
            wrapped.append(line)
            continue
        kept_together = _P_VALUE.sub(
            lambda match: match[0].replace(" ", _NO_BREAK), line
        )
        wrapped += (
            part.replace(_NO_BREAK, " ") for part in wrapper.wrap(kept_together)
        )
    return wrapped


def format_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text: Collection[str] = (),
    width: int = MAX_COLUMNS,
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
    console = Console(
        file=file, width=width, markup=False, color_system=None, force_jupyter=False
    )  # in a notebook's kernel, too
    console.print(table)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())
