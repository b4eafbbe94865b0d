"""The results of a batch, read line by line: a spoilt line costs nothing but itself."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from elo_exp.api.batch_protocol import ResultRow, UnreadablePart
from elo_exp.api.transport import call_with_deadline

_PARSE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
# Of a row of Gemini's
_ROW_START_PATTERN = re.compile(r'\{\s*"(?:metadata|response|error)"\s*:')


def download(
    seconds: float,
    open_chunks: Callable[[], AbstractContextManager[Iterator[bytes]]],
) -> tuple[bytes, Exception | None]:
    """Return as much of a body as came, and the error that ended it early, or None.

    seconds  after which the rest is given up
    """
    data = bytearray()

    def receive() -> None:
        with open_chunks() as chunks:
            for chunk in chunks:
                data.extend(chunk)

    try:
        call_with_deadline(seconds, receive)
    except Exception as error:
        return bytes(data), error
    return bytes(data), None


def parse_lines(
    data: bytes, parse: Callable[[Any], ResultRow]
) -> Iterator[ResultRow | UnreadablePart]:
    """Yield a row or an `UnreadablePart` for each line that is not blank.

    parse  makes a row of the JSON of a line
    """
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            try:
                content = json.loads(line)
            except (ValueError, RecursionError):
                content = None
            yield parse_row(f"line {number}", content, parse)


def parse_row(
    location: str, content: Any, parse: Callable[[Any], ResultRow]
) -> ResultRow | UnreadablePart:
    """Return the row that some JSON holds; None stands for what is no JSON."""
    if content is None:
        return UnreadablePart(location=location, reason="is no JSON")
    try:
        return parse(content)
    except _PARSE_ERRORS:
        return UnreadablePart(
            location=location, reason="is not the result of a request"
        )


def split_rows(data: bytes) -> tuple[list[Any], str]:
    """Return the rows of a spoilt JSON document that has all of them inside, and the text around them.

    A part that begins as a row does and cannot be read is a row of None.
    """
    text = data.decode(errors="surrogateescape")
    decoder = json.JSONDecoder()
    rows: list[Any] = []
    outside_texts: list[str] = []
    row_end = 0  # of the last row
    read_end = 0  # nothing that begins before is a row
    for row_start in _ROW_START_PATTERN.finditer(text):
        start = row_start.start()
        if start < row_end or row_start.end() <= read_end:
            continue
        try:
            row, row_stop = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            rows.append(None)
            read_end = error.pos
            continue
        except RecursionError:
            rows.append(None)
            read_end = start + sys.getrecursionlimit()
            continue
        outside_texts.append(text[row_end:start])
        rows.append(row if _is_utf8(text[start:row_stop]) else None)
        row_end = row_stop
    return rows, "".join([*outside_texts, text[row_end:]])


def _is_utf8(text: str) -> bool:
    """Whether a text was decoded from UTF-8. Half a pair of surrogates may be in it."""
    try:
        text.encode(errors="surrogateescape").decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return False
    return True
