"""Tables on file: .jsonl, .csv and .parquet, each also .gz, row by row or as blocks of columns."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elo_exp import files
from elo_exp.records import UserError

ABSENT = object()  # the value of a row that lacks the column
KINDS = (".jsonl", ".csv", ".parquet")
_BLOCK = 1000  # rows; with more objects, garbage collection takes as long as parsing
_LARGE_BLOCK = 256  # rows that may hold whole conversations
_MAX_FIELD = 2**31 - 1  # characters of a CSV field, for the same reason

Row = Mapping[str, Any]
Block = Sequence[Sequence[Any]]


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


def rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield each row with its place ("file:line"). Raises UserError for a malformed one."""
    kind = check_ending(path)
    if kind == ".jsonl":
        yield from files.read_jsonl(path)
    elif kind == ".csv":
        lines = _csv_lines(path)
        _, header = next(lines, (0, []))
        for number, line in lines:
            yield f"{path}:{number}", dict(zip(header, line, strict=True))
    else:
        batches = (batch.to_pylist() for batch in parquet_batches(path))
        for number, row in enumerate(itertools.chain.from_iterable(batches), start=1):
            yield f"{path}: row {number}", row


def blocks(path: Path, columns: Sequence[str | None]) -> Iterator[Block]:
    """Yield the values of these columns for some rows at a time, ABSENT where a row has none.

    A column None is absent everywhere.
    """
    kind = check_ending(path)
    if kind == ".jsonl":
        yield from _jsonl_blocks(path, columns)
    elif kind == ".csv":
        yield from _csv_blocks(path, columns)
    else:
        for batch in parquet_batches(path, columns, size=_BLOCK):
            found = dict(zip(batch.schema.names, batch.columns, strict=True))
            nothing = [ABSENT] * len(batch)
            yield [found[c].to_pylist() if c in found else nothing for c in columns]


# JSON lines


def _jsonl_blocks(path: Path, columns: Sequence[str | None]) -> Iterator[Block]:
    lines = files.read_lines(path)
    first = 1
    while block := list(itertools.islice(lines, _BLOCK)):
        found = _parsed(path, block, first, columns)
        keys = set().union(*found)
        nothing = [ABSENT] * len(found)
        yield [
            [row.get(c, ABSENT) for row in found] if c in keys else nothing
            for c in columns
        ]
        first += len(block)


def _parsed(
    path: Path, lines: Sequence[str], first: int, columns: Sequence[str | None]
) -> list[dict[str, Any]]:
    """Parse a block of lines at once, in half the time of one by one.

    They are one array with a 0 between every two, so that no object can go over two lines. Where
    anything is wrong, or a key may stand twice in a row, they are parsed one by one.
    """
    joined = ",0,".join(lines)
    try:
        values: list[Any] = json.loads(f"[{joined}]")
    except (ValueError, RecursionError):
        values = []
    found = values[::2]
    if values[1::2] == [0] * (len(lines) - 1) and set(map(type, found)) == {dict}:
        # More keys than the rows have stand in other objects or texts, or twice in one row.
        is_suspect = joined.count('":') > sum(map(len, found))
        if not is_suspect or all(
            joined.count(f'"{c}":') <= sum(c in row for row in found) for c in columns
        ):
            return found
    return [
        files.json_object(f"{path}:{number}", line, object_pairs_hook=_unique_keys)
        for number, line in enumerate(lines, start=first)
        if line.strip()
    ]


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return row


# CSV


def _csv_blocks(path: Path, columns: Sequence[str | None]) -> Iterator[Block]:
    lines = (line for _, line in _csv_lines(path))
    place = {column: i for i, column in enumerate(next(lines, []))}
    while block := list(itertools.islice(lines, _BLOCK)):
        values = list(zip(*block, strict=True))
        nothing = [ABSENT] * len(block)
        yield [values[place[c]] if c in place else nothing for c in columns]


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
                    _check_header(f"{path}:{reader.line_num}", header)
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


def _check_header(place: str, header: Sequence[str]) -> None:
    for name in header:
        if header.count(name) > 1:
            raise UserError(
                f"{place}: has the column {name!r} twice. Expected each name once."
            )


# Parquet


def parquet_batches(
    path: Path, columns: Sequence[str | None] | None = None, *, size: int = _LARGE_BLOCK
) -> Iterator[Any]:
    """Yield record batches of at most `size` rows with those of the columns that are there."""
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
            yield from file.iter_batches(batch_size=size, columns=chosen)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{path}: cannot be read as parquet ({error}).") from None
