"""Tables on file: .jsonl, .csv and .parquet, each also .gz, row by row or as blocks of columns."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from elo_exp import files
from elo_exp.records import UserError

ABSENT = object()  # the value of a row that lacks the column
KINDS = (".jsonl", ".csv", ".parquet")
_BLOCK = 1000  # rows; with more objects, garbage collection takes as long as parsing
_LARGE_BLOCK = 256  # rows that may hold whole conversations
_MAX_FIELD = 2**31 - 1  # characters of a CSV field, for the same reason

Row = Mapping[str, Any]
Block = Sequence[Sequence[Any]]
T = TypeVar("T")


def check_ending(path: Path) -> str:
    """Return a table's kind by its name. Raises UserError for one that cannot be read."""
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if kind not in KINDS:
        raise UserError(
            f"{path}: has the ending {path.suffix!r}. "
            "Expected .jsonl, .csv or .parquet, each also .gz."
        )
    return kind


def text(value: Any) -> str | None:
    """Return a value as text: 1 and "1" are one name. None where it is missing, or NaN."""
    is_nan = isinstance(value, float) and math.isnan(value)
    is_missing = value is None or value is ABSENT or value == "" or is_nan
    return None if is_missing else str(value)


def rows(
    path: Path, columns: Sequence[str | None] | None = None
) -> Iterator[tuple[str, Row]]:
    """Yield each row with its place ("file:line"). Raises UserError for a malformed one.

    columns  those that a parquet file is read for; None: all
    """
    kind = check_ending(path)
    if kind == ".jsonl":
        yield from files.read_jsonl(path)
    elif kind == ".csv":
        lines = _csv_lines(path)
        _, header = next(lines, (0, []))
        for number, line in lines:
            yield f"{path}:{number}", dict(zip(header, line, strict=True))
    else:
        batches = (batch.to_pylist() for batch in parquet_batches(path, columns))
        for number, row in enumerate(itertools.chain.from_iterable(batches), start=1):
            yield f"{path}: row {number}", row


def blocks(path: Path, columns: Sequence[str | None]) -> Iterator[Block]:
    """Yield the values of these columns for some rows at a time, ABSENT where a row has none.

    A column None is absent everywhere.
    """
    is_jsonl = check_ending(path) == ".jsonl"
    every = (row for _, row in rows(path, columns))
    for block in _jsonl_blocks(path) if is_jsonl else _in_blocks(every):
        keys = set().union(*block)
        nothing = [ABSENT] * len(block)
        yield [
            [row.get(c, ABSENT) for row in block] if c in keys else nothing
            for c in columns
        ]


def _in_blocks(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while block := list(itertools.islice(rest, _BLOCK)):
        yield block


def _jsonl_blocks(path: Path) -> Iterator[list[Row]]:
    """Parse blocks of lines at once, in half the time of one by one.

    They are one array with a 0 between every two, so that no object can go over two lines. Where
    anything is wrong, or the text has more keys than the rows, of which one may be
    doubled, they are parsed one by one.
    """
    first = 1
    for lines in _in_blocks(files.read_lines(path)):
        joined = ",0,".join(lines)
        try:
            values: list[Any] = json.loads(f"[{joined}]")
        except (ValueError, RecursionError):
            values = []
        found = values[::2]
        is_plain = values[1::2] == [0] * (len(lines) - 1)
        is_plain = is_plain and set(map(type, found)) == {dict}
        if not is_plain or joined.count('":') > sum(map(len, found)):
            found = [
                files.json_object(f"{path}:{number}", line)
                for number, line in enumerate(lines, start=first)
                if line.strip()
            ]
        yield found
        first += len(lines)


def _csv_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of the header and of each row; blank lines are skipped."""
    csv.field_size_limit(_MAX_FIELD)
    with files.open_text(path) as file:
        reader = csv.reader(file, strict=True)
        header: list[str] = []
        try:
            for line in filter(None, reader):
                if not header:
                    header = line
                    if len(set(header)) < len(header):
                        twice = next(name for name in header if header.count(name) > 1)
                        raise UserError(
                            f"{path}:{reader.line_num}: has the column {twice!r} twice. Expected "
                            "each name once."
                        )
                if len(line) != len(header):
                    raise UserError(
                        f"{path}:{reader.line_num}: has {len(line)} fields. Expected "
                        f"{len(header)}, as in the header. A quote or a comma may be missing."
                    )
                yield reader.line_num, line
        except csv.Error as error:
            raise UserError(
                f"{path}:{reader.line_num}: cannot be read as CSV ({error}). "
                "A quote may be missing."
            ) from None


def parquet_batches(
    path: Path, columns: Sequence[str | None] | None = None
) -> Iterator[Any]:
    """Yield record batches with those of the columns that are there; None: all."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise UserError(
            f"{path}: reading parquet needs pyarrow. Install it with: pip install pyarrow"
        ) from None
    try:
        with path.open("rb") as raw:  # not read from front to back, so unpacked whole
            content = (
                io.BytesIO(gzip.decompress(raw.read())) if path.suffix == ".gz" else raw
            )
            file = parquet.ParquetFile(content)
            names = file.schema_arrow.names
            chosen = None if columns is None else [c for c in names if c in columns]
            yield from file.iter_batches(batch_size=_LARGE_BLOCK, columns=chosen)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{path}: cannot be read as parquet ({error}).") from None
