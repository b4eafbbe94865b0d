"""Tables on file: JSON lines, a JSON array, CSV or parquet, each also gzipped.

A file's shape is told from its content, whatever its name.
"""

import codecs
import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from elo_exp import files
from elo_exp.records import UserError

SHAPES = ("lines", "array", "csv", "parquet")  # of tables
_BATCH = 256  # rows of parquet, which may hold whole conversations
_MAX_FIELD = 2**31 - 1  # characters of a CSV field, for the same reason
_HEAD = 4096  # bytes

Row = Mapping[Any, Any]


def shape(path: Path) -> str:
    """Return a file's shape: lines, array, csv, parquet, object or zip.

    Text that begins with { is lines if its first line is a whole object. Raises UserError for a
    file that cannot be read.
    """
    with files.open_binary(path) as content:
        head = content.read(_HEAD)
    if head.startswith((b"PK\3\4", b"PAR1")):
        return "zip" if head.startswith(b"PK") else "parquet"
    first = head.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if first != b"{":
        return "array" if first == b"[" else "csv"
    line = next(line for _, line in files.read_lines(path) if line.strip())
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return "object"
    return "lines"


def keys(path: Path) -> set[str]:
    """Return the keys of the first row; of an object also inner ones as outer.inner.

    Of a zip file the first parts of the names in it. Raises UserError.
    """
    kind = shape(path)
    if kind == "zip":
        try:
            with ZipFile(path) as archive:
                return {name.partition("/")[0] for name in archive.namelist()}
        except (BadZipFile, NotImplementedError, OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read as zip ({error}).") from None
    if kind != "object":
        return set(next(rows(path), ("", {}))[1])
    row = files.read_json(path)
    outer = {name: value for name, value in row.items() if isinstance(value, dict)}
    return {*row, *(f"{name}.{key}" for name in outer for key in outer[name])}


def text(value: Any) -> str | None:
    """Return a value as text: 1 and "1" are one name. None where it is missing, or NaN."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return None if value in (None, "") or is_nan else str(value)


def rows(
    path: Path, columns: Collection[Hashable] | None = None
) -> Iterator[tuple[str, Row]]:
    """Iterate over rows with their places ("file:line"). Raises UserError for a malformed one.

    columns  those that a parquet file is read for; None: all
    """
    kind = shape(path)
    if kind == "lines":
        return files.read_jsonl(path)
    if kind == "csv":
        return _csv_rows(path)
    if kind not in SHAPES:
        raise UserError(f"{path}: found {kind}. Expected a table: {', '.join(SHAPES)}.")
    is_array = kind == "array"
    return _objects(
        path, files.read_json(path) if is_array else _parquet_rows(path, columns)
    )


def _objects(path: Path, found: Iterable[Any]) -> Iterator[tuple[str, Row]]:
    for number, row in enumerate(found, start=1):
        if not isinstance(row, dict):
            raise UserError(
                f"{path}: row {number}: found {row!r:.40}. Expected an object."
            )
        yield f"{path}: row {number}", row


def _csv_rows(path: Path) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(_MAX_FIELD)
    with files.open_text(path, newline="") as file:  # those within a cell
        reader = csv.DictReader(file, strict=True)
        try:
            header = list(reader.fieldnames or ())
            twice = [name for name in header if header.count(name) > 1]
            if twice:
                raise UserError(
                    f"{path}:1: has the column {twice[0]!r} twice. Expected each name once."
                )
            for row in reader:
                place = f"{path}:{reader.line_num}"
                if None in row or None in row.values():  # more or fewer fields
                    raise UserError(
                        f"{place}: has not the {len(header)} fields of the header. A quote or a "
                        "comma may be missing."
                    )
                yield place, row
        except csv.Error as error:
            raise UserError(
                f"{path}:{reader.reader.line_num}: cannot be read as CSV ({error}). "
                "A quote may be missing."
            ) from None


def _parquet_rows(path: Path, columns: Collection[Hashable] | None) -> Iterator[Row]:
    """Yield rows with those of the columns that are there; None: all."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise UserError(
            f"{path}: reading parquet needs pyarrow. Install it with: pip install pyarrow"
        ) from None
    try:
        with files.open_binary(path) as content:  # not read from front to back
            is_gzip = isinstance(content, gzip.GzipFile)
            file = parquet.ParquetFile(
                io.BytesIO(content.read()) if is_gzip else content
            )
            names = file.schema_arrow.names
            chosen = None if columns is None else [c for c in names if c in columns]
            for batch in file.iter_batches(batch_size=_BATCH, columns=chosen):
                yield from batch.to_pylist()
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{path}: cannot be read as parquet ({error}).") from None
