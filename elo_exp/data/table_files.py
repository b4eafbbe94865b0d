"""Tables on file: JSON lines, a JSON array, CSV, Parquet or a spreadsheet, each also compressed by gzip or Zstandard.

A file's shape is told from its content, whatever its name. DuckDB reads a large table by columns, as
`CodedBattles`; what it does not read whole, or not as Python would, is read row by row.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import json
import math
import re
import shutil
import tempfile
from collections.abc import (
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from elo_exp import files
from elo_exp.data import csv_dialects, spreadsheets
from elo_exp.errors import FileError, UserError, format_value

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TABLE_SHAPES = ("lines", "array", "csv", "parquet", "spreadsheet")
# Few, because a row may hold whole conversations
_PARQUET_BATCH_ROWS = 256
# The codes of one block are Python integers until the block is full
_BLOCK_ROWS = 65_536
# Large, because a field may hold a whole conversation
_MAX_CSV_FIELD_CHARS = 2**24
_MAX_JSON_LINE_BYTES = 2**24
DUCKDB_MEMORY_MB = 1500
_HEAD_BYTES = 4096
_MODEL_FIELDS = ("model_a", "model_b")
# Most rows have their own
PROMPT_FIELDS = (
    "question_id",
    "cluster",
    "question_text",
)
CONVERSATION_PREFIX = "conversation"
# of columns of answers only whether a cell is blank is read: "1" if it is, else None
BLANK_FIELDS = ("blank_a", "blank_b")
_FIELDS_OUTSIDE_KINDS = (*_MODEL_FIELDS, *PROMPT_FIELDS)
# A quote is doubled inside a cell; a cell that begins so is another one to Python
_SPACED_QUOTE = re.compile(rb'[ \t](?<=[,\r\n].)[ \t]*"(?!"[^,\r\n])')
_DELIMITER_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_WINNER_SIDES = (None, "model_a", "model_b")
_ABSENT_COLUMN = "\0none"
# DuckDB needs one more library to return this type to Python
_ZONED_TIME_TYPE = "TIMESTAMP WITH TIME ZONE"
_PLAIN_CELL_TYPES = frozenset({str, type(None)})

# Keys of a span of OpenTelemetry: as its exporters write it to a file (OTLP), or to the console
_TRACE_KEYS = (
    {"resourceSpans"},
    {"traceId", "spanId", "attributes"},
    {"trace_id", "span_id", "attributes"},
    {"context", "start_time", "attributes"},
)

Row = Mapping[Any, Any]
Codes = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A table in memory, by column; it is called by its name."""

    name: str
    columns: Mapping[str, Sequence[Any]]

    def __str__(self) -> str:
        return self.name

    def __len__(self) -> int:
        return max(map(len, self.columns.values()), default=0)


@dataclass(frozen=True, slots=True)
class Melted:
    """The columns of a wide table of which each is an entrant.

    header  our name of the entrant, whose value is the name of the column
    cell    our name of the values
    """

    header: str
    cell: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    """A file whose columns have other names than ours; it is called as its file.

    names   pairs of our name and the file's column
    hidden  columns of the file that are left out under their own names
    melted  None: each row of the file is one row
    """

    path: Path
    names: tuple[tuple[str, str], ...]
    hidden: frozenset[str]
    melted: Melted | None = None

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The file's name, without its folders."""
        return self.path.name

    def rename(self, row: Row) -> list[dict[str, Any]]:
        """Return a row of the file as rows under our names."""
        melted_columns = self.melted.columns if self.melted else ()
        other_cells = {
            str(name): value
            for name, value in row.items()
            if name not in self.hidden and name not in melted_columns
        }
        renamed = {ours: row[name] for ours, name in self.names if name in row}
        cells = {**renamed, **other_cells}
        if self.melted is None:
            return [cells]
        header, cell = self.melted.header, self.melted.cell
        return [
            {**cells, header: column, cell: None if value == "" else value}
            for column in melted_columns
            for value in [row.get(column)]
        ]


Source = Path | Frame | NamedTable


@dataclass(frozen=True, slots=True)
class Nested:
    """A list or an object, as JSON."""

    text: str


Cell = str | None | Nested


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodedBattles:
    """n battles as codes: what is equal is held once, in the order in which it first appears.

    A code is a place in the list beside it. A kind has the cells of all fields but models and those of prompts;
    its winner is None where a row has its own model's name there, and then `own` is this model's field.
    """

    kinds: list[dict[str, Cell]]
    winner_sides: list[str | None]
    kind_codes: Codes  # (n,)
    models: list[Cell]  # of models
    a: Codes  # (n,)
    b: Codes  # (n,)
    # by each field of OF_PROMPTS that is read
    prompts: dict[str, tuple[list[Cell], Codes]]

    def __len__(self) -> int:
        return len(self.kind_codes)


def detect_shape(path: Source) -> str:
    """Return a file's shape: lines, array, csv, parquet, spreadsheet, object or zip.

    Text that begins with { is lines if its first line is a whole object. Raises FileError for a
    file that cannot be read.
    """
    if isinstance(path, Frame):
        return "array"
    if isinstance(path, NamedTable):
        return detect_shape(path.path)
    with files.open_binary(path) as content:
        head = content.read(_HEAD_BYTES)
    if shape := _detect_binary_shape(path, head):
        return shape
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        head = head.decode("utf-16", errors="ignore").encode()
    first_byte = head.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if first_byte != b"{":
        return "array" if first_byte == b"[" else "csv"
    line = next(line for _, line in files.read_lines(path) if line.strip())
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return "object"
    return "lines"


def _detect_binary_shape(path: Path, head: bytes) -> str | None:
    if head.startswith(b"PAR1"):
        return "parquet"
    if spreadsheets.is_spreadsheet(path, head):
        return "spreadsheet"
    return "zip" if head.startswith(b"PK\3\4") else None


def read_keys(path: Source) -> set[str]:
    """Return the keys of the first row; of an object also inner ones as outer.inner.

    Of a zip file the first parts of the names in it. Raises FileError, also for a trace of OpenTelemetry.
    """
    row_keys = _read_keys(path)
    refuse_trace(path, row_keys)
    return row_keys


def refuse_empty(path: Source) -> None:
    """Raise FileError for a file without content."""
    if isinstance(path, Path) and not path.stat().st_size:
        raise FileError.bad_file(path, "is empty (0 bytes)")


def refuse_trace(location: object, keys: Set[Any]) -> None:
    """Raise FileError for the keys of a trace of OpenTelemetry."""
    if any(trace <= keys for trace in _TRACE_KEYS):
        raise FileError.bad_file(
            location,
            "is a trace of OpenTelemetry",
            "Write its messages as rows (docs/conversations.md).",
        )


def _read_keys(path: Source) -> set[str]:
    if isinstance(path, Frame):
        return {*path.columns}
    if isinstance(path, NamedTable):
        return set(next(read_rows(path), ("", {}))[1])
    kind = detect_shape(path)
    if kind == "zip":
        try:
            with ZipFile(path) as archive:
                return {name.partition("/")[0] for name in archive.namelist()}
        except (BadZipFile, NotImplementedError, OSError, ValueError) as error:
            raise FileError.bad_file(path, f"cannot be read as zip ({error})") from None
    if kind != "object":
        return set(next(read_rows(path), ("", {}))[1])
    row = files.read_json(path)
    outer = {name: value for name, value in row.items() if isinstance(value, dict)}
    return {*row, *(f"{name}.{key}" for name in outer for key in outer[name])}


def describe_row_error(error: Exception) -> str:
    """Say what is wrong with a row of another program, from the error of reading it."""
    if isinstance(error, KeyError):
        return f"it lacks {error.args[0]}"
    return "a value has another form"


def to_text(value: Any) -> str | None:
    """Return a value as text: 1 and "1" are one name. None where it is missing, or NaN."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return None if value in (None, "") or is_nan else str(value)


def read_rows(
    path: Source, columns: Collection[Hashable] | None = None
) -> Iterator[tuple[str, Row]]:
    """Iterate over rows with their places ("file:line"). Raises FileError for a malformed one.

    columns  those that a parquet file is read for; None: all
    """
    if isinstance(path, Frame):
        return _iterate_frame(path)
    if isinstance(path, NamedTable):
        return _iterate_named(path)
    kind = detect_shape(path)
    if kind == "lines":
        return files.read_jsonl(path)
    if kind == "csv":
        return _read_csv_rows(path)
    if kind == "spreadsheet":
        return spreadsheets.read_rows(path)
    if kind not in TABLE_SHAPES:
        raise FileError.bad_file(
            path,
            f"is not a table but {kind}",
            "Write it as JSON Lines, a JSON array, CSV, Parquet or a spreadsheet.",
        )
    is_array = kind == "array"
    return _iterate_objects(
        path, files.read_json(path) if is_array else _read_parquet_rows(path, columns)
    )


def _iterate_frame(frame: Frame) -> Iterator[tuple[str, Row]]:
    names = list(frame.columns)
    for number, row in enumerate(zip(*frame.columns.values(), strict=True), start=1):
        yield f"{frame}: row {number}", dict(zip(names, row, strict=True))


def _iterate_named(table: NamedTable) -> Iterator[tuple[str, Row]]:
    for location, row in read_rows(table.path):
        for renamed_row in table.rename(row):
            yield location, renamed_row


def _iterate_objects(path: Path, objects: Iterable[Any]) -> Iterator[tuple[str, Row]]:
    for number, row in enumerate(objects, start=1):
        if not isinstance(row, dict):
            raise FileError(
                f"{path}: row {number} must be an object; got {format_value(row)}."
            )
        yield f"{path}: row {number}", row


def _read_csv_rows(path: Path) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(_MAX_CSV_FIELD_CHARS)
    delimiter = csv_dialects.detect_delimiter(path)
    with closing(csv_dialects.read_csv_text(path)) as lines:
        reader = csv.DictReader(lines, delimiter=delimiter, strict=True)
        try:
            header = list(reader.fieldnames or ())
            duplicates = [name for name in header if header.count(name) > 1]
            if duplicates:
                raise FileError.bad_file(
                    f"{path}:1",
                    f"has the column {duplicates[0]} twice",
                    "Each name must stand once.",
                )
            for row in reader:
                location = f"{path}:{reader.line_num}"
                if None in row or None in row.values():  # more or fewer fields
                    raise FileError.bad_file(
                        location,
                        f"does not have the {len(header)} fields of the header",
                        f"A quote or a {_DELIMITER_NAMES[delimiter]} may be missing.",
                    )
                yield location, row
        except csv.Error as error:
            raise FileError.bad_file(
                f"{path}:{reader.reader.line_num}",
                f"cannot be read as CSV ({error})",
                "A quote may be missing.",
            ) from None


def _read_parquet_rows(
    path: Path, columns: Collection[Hashable] | None
) -> Iterator[Row]:
    """Yield rows with the requested columns that the file has; None: all columns."""
    import duckdb

    try:
        with _decompress(path) as uncompressed, closing(open_database()) as connection:
            table = f"read_parquet({_quote_path(uncompressed)})"
            types = _read_column_types(connection, table)
            selected = [name for name in types if columns is None or name in columns]
            select_list = ", ".join(
                f"{_quote_identifier(name)}{'::varchar' * (types[name] == _ZONED_TIME_TYPE)}"
                for name in selected
            )
            connection.execute(f"select {select_list or 'null'} from {table}")
            while batch := connection.fetchmany(_PARQUET_BATCH_ROWS):
                for values in batch:
                    yield dict(zip(selected, values, strict=bool(selected)))
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        raise FileError.bad_file(
            path, f"cannot be read as Parquet ({reason})"
        ) from None


@contextmanager
def _decompress(path: Path) -> Iterator[Path]:
    """Return the file, or a temporary uncompressed copy of a compressed one."""
    if not files.detect_compression(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "table")
        with files.open_binary(path) as content, copy.open("wb") as file:
            shutil.copyfileobj(content, file)
        yield copy


def estimate_text_bytes(path: Path | NamedTable) -> int:
    """Return about how many bytes a file has as text that is not compressed. Raises FileError."""
    path = path.path if isinstance(path, NamedTable) else path
    is_packed = detect_shape(path) in ("parquet", "spreadsheet")
    is_packed = is_packed or bool(files.detect_compression(path))
    return path.stat().st_size * (10 if is_packed else 1)


# By columns


def read_by_columns(path: Path, columns: Mapping[str, Hashable]) -> CodedBattles | None:
    """Read a table of battles by columns; None where it has to be read row by row.

    columns  our field -> the file's column, which need not be there

    What is read is what the rows say. Only, of a line of JSON what nobody reads may be at fault (a key twice),
    and a line of JSON or CSV may have a comma too many at its end. Raises FileError for a file that takes too
    much memory.
    """
    import duckdb

    try:
        scan = _build_scan(path, list(map(str, dict.fromkeys(columns.values()))))
        if scan is None or not _is_safe_for_duckdb(path):
            return None
        with closing(open_database()) as connection:
            return _read_coded(connection, scan, columns, detect_shape(path) == "lines")
    except duckdb.OutOfMemoryException:
        raise FileError.bad_file(
            path,
            f"needs more than {DUCKDB_MEMORY_MB:,} MB of memory to be read",
            "Count its battles first (docs/counts.md).",
        ) from None
    except (duckdb.Error, ValueError, RecursionError):
        return None


def _is_safe_for_duckdb(path: Path) -> bool:
    """Whether DuckDB reads a file as Python does: it checks no checksum, and drops spaces before a quote.

    Raises FileError for a damaged file.
    """
    is_csv = detect_shape(path) == "csv"
    if not is_csv and not files.detect_compression(path):
        return True
    previous_end = b""
    with files.open_binary(path) as content:
        while block := content.read(_MAX_JSON_LINE_BYTES):
            if is_csv and _SPACED_QUOTE.search(previous_end + block):
                return False
            previous_end = block[-_HEAD_BYTES:]
    return True


def encode_rows(
    source: Frame | Iterable[tuple[str, Row]], columns: Mapping[str, Hashable]
) -> tuple[CodedBattles, UserError | None]:
    """Read rows into the same columns, up to the one that cannot be read; return also that error."""
    fields = [
        name for name in columns if name not in (*_FIELDS_OUTSIDE_KINDS, "winner")
    ]
    prompt_fields = [name for name in PROMPT_FIELDS if name in columns]
    read_fields = (*_MODEL_FIELDS, *prompt_fields, "winner", *fields)
    names = [columns.get(name, _ABSENT_COLUMN) for name in read_fields]
    kinds, models = CodeTable(), CodeTable()
    distinct_prompts = [CodeTable() for _ in prompt_fields]
    n_prompt_fields, question_index = len(distinct_prompts), None
    blank_indices = [n for n, name in enumerate(read_fields) if name in BLANK_FIELDS]
    if "question_text" in columns:
        question_index = 2 + prompt_fields.index("question_text")
    blocks, error = list[Codes](), None
    all_rows: Iterator[tuple[Any, ...]]
    if isinstance(source, Frame):
        empty_column = [None] * len(source)
        read_columns = [source.columns.get(str(name), empty_column) for name in names]
        all_rows = zip(*read_columns, strict=True)
    else:
        all_rows = (tuple(map(row.get, names)) for _, row in source)
    while True:
        codes = list[tuple[int, ...]]()
        try:
            for row in itertools.islice(all_rows, _BLOCK_ROWS):
                values = row
                if question_index is not None:
                    question = question_text(
                        row[question_index], str(columns["question_text"])
                    )
                    values = (
                        *row[:question_index],
                        question,
                        *row[question_index + 1 :],
                    )
                if blank_indices:
                    cells = [*values]
                    for n in blank_indices:
                        cells[n] = mark_blank(cells[n])
                    values = tuple(cells)
                if not _PLAIN_CELL_TYPES.issuperset(map(type, values)):
                    values = tuple(map(to_cell, values))
                a, b, *other_values = values
                prompt_values, (winner, *kind) = (
                    other_values[:n_prompt_fields],
                    other_values[n_prompt_fields:],
                )
                winner_side = (
                    0
                    if winner is None
                    else 1
                    if winner == a
                    else 2
                    if winner == b
                    else 0
                )
                key = (winner_side, None if winner_side else winner, *kind)
                numbers_of_prompts = (
                    d[x] for d, x in zip(distinct_prompts, prompt_values, strict=True)
                )
                codes.append((kinds[key], models[a], models[b], *numbers_of_prompts))
        except UserError as row_error:
            error = row_error
        if codes:
            blocks.append(np.array(codes, dtype=np.int32))
        if len(codes) < _BLOCK_ROWS:
            break
    all_codes = np.concatenate(
        blocks or [np.empty((0, 3 + n_prompt_fields), dtype=np.int32)]
    )
    kind_codes, a_codes, b_codes, *prompt_codes = all_codes.T.copy()
    keys = ["winner", *fields]
    battles = CodedBattles(
        kinds=[dict(zip(keys, values, strict=True)) for _, *values in kinds],
        winner_sides=[_WINNER_SIDES[winner_side] for winner_side, *_ in kinds],
        models=list(models),
        kind_codes=kind_codes,
        a=a_codes,
        b=b_codes,
        prompts={
            name: (list(values), codes)
            for name, values, codes in zip(
                prompt_fields, distinct_prompts, prompt_codes, strict=True
            )
        },
    )
    return battles, error


class CodeTable(dict[Any, int]):
    """What is new has the next number."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


def to_cell(value: Any) -> Cell:
    """Return a value as text, or as JSON where it is a list or an object."""
    if isinstance(value, str | Nested):
        return value
    if isinstance(value, list | dict):
        return Nested(json.dumps(value, default=str))
    return to_text(value)


def mark_blank(value: Any) -> str | None:
    """Return "1" for a cell without text, None for any other one."""
    return None if (to_text(value) or "").strip() else "1"


def renumber_by_appearance(
    values: Sequence[Any], codes: Codes
) -> tuple[list[Any], Codes]:
    """Keep the values that codes (n,) name, in the order in which they first do; and their new codes."""
    first_index = np.full(len(values), len(codes))
    first_index[codes[::-1]] = np.arange(len(codes))[::-1]
    order = np.argsort(first_index, kind="stable")[
        : np.count_nonzero(first_index < len(codes))
    ]
    new_code = np.empty(len(values), dtype=np.int32)
    new_code[order] = np.arange(len(order))
    return [values[i] for i in order.tolist()], new_code[codes]


def open_database() -> DuckDBPyConnection:
    """An empty database in memory that reaches no network and loads nothing."""
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 2,
        "memory_limit": f"{DUCKDB_MEMORY_MB}MB",
        "temp_directory": tempfile.gettempdir(),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }
    connection = duckdb.connect(config=settings)
    connection.execute("set enable_progress_bar = false")
    return connection


def _build_scan(path: Path, columns: Sequence[str]) -> str | None:
    """Return the file as a table function in SQL; None if DuckDB may read its rows otherwise than Python."""
    kind, packing = detect_shape(path), files.detect_compression(path)
    if kind in ("lines", "csv") and files.is_utf16(path):
        return None
    compression = f"compression='{packing or 'none'}'"
    if kind == "parquet" and not packing:
        return f"read_parquet({_quote_path(path)})"
    if kind == "lines" and not _has_byte_order_mark(path):
        column_types = ", ".join(
            f"{_quote_identifier(name)}: 'JSON'" for name in columns
        )
        return (
            f"read_json({_quote_path(path)}, columns={{{column_types}}}, {compression}, "
            f"format='newline_delimited', maximum_object_size={_MAX_JSON_LINE_BYTES})"
        )
    if kind == "csv" and (header := _read_csv_header(path)):
        column_types = ", ".join(
            f"{_quote_identifier(name)}: 'VARCHAR'" for name in header
        )
        return (
            f"read_csv({_quote_path(path)}, columns={{{column_types}}}, {compression}, auto_detect=false, "
            "header=true, delim=',', quote='\"', escape='\"', strict_mode=true, null_padding=false)"
        )
    return None


def _has_byte_order_mark(path: Path) -> bool:
    with files.open_binary(path) as content:
        return content.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8


def _read_csv_header(path: Path) -> list[str]:
    """Return the column names of a CSV file with commas; [] for another one, or if two of them are equal to SQL."""
    if csv_dialects.detect_delimiter(path) != ",":
        return []
    try:
        with closing(csv_dialects.read_csv_text(path)) as lines:
            header = next(csv.reader(lines, strict=True), [])
    except csv.Error:
        return []
    is_plain = all(header) and len({*map(str.casefold, header)}) == len(header)
    return header if is_plain else []


def _quote_path(path: Path) -> str:
    """Return a path as an SQL literal; *, ? and [ would match other files."""
    exact = re.sub(r"[*?\[]", r"[\g<0>]", str(path.resolve()))
    return "'" + exact.replace("'", "''") + "'"


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _read_column_types(connection: DuckDBPyConnection, table: str) -> dict[str, str]:
    """Return the types of the columns by name."""
    rows = connection.execute(f"describe select * from {table}").fetchall()
    return {name: kind for name, kind, *_ in rows}


def _read_coded(
    connection: DuckDBPyConnection,
    scan: str,
    columns: Mapping[str, Hashable],
    is_json: bool,
) -> CodedBattles | None:
    """Scan the file once into a table, and join it with its distinct values."""
    types = _read_column_types(connection, scan)
    file_columns = {
        name: str(column) for name, column in columns.items() if column in types
    }
    side_types = {
        types.get(file_columns.get(name, "")) for name in ("model_a", "model_b")
    }
    if len(side_types) > 1 or None in side_types:
        return None
    expressions = {
        name: _build_blank_sql(column, is_json)
        if name in BLANK_FIELDS
        else _quote_identifier(column)
        for name, column in file_columns.items()
    }
    a, b = expressions["model_a"], expressions["model_b"]
    winner = expressions.get("winner", "null")
    prompt_expressions = {
        name: _build_question_sql(
            types[file_columns[name]], file_columns[name], is_json
        )
        if name == "question_text"
        else expressions[name]
        for name in PROMPT_FIELDS
        if name in expressions
    }
    winner_has_model_type = types.get(file_columns.get("winner", "")) in side_types
    winner_side_sql = (
        f"case {winner} when {a} then 1 when {b} then 2 else 0 end"
        if winner_has_model_type
        else 0
    )
    kind_fields = [
        "winner",
        *(
            name
            for name in expressions
            if name not in (*_FIELDS_OUTSIDE_KINDS, "winner")
        ),
    ]
    kind_expressions = [
        f"case when own = 0 then {winner} end",
        *map(expressions.get, kind_fields[1:]),
    ]
    kind_select = ", ".join(
        f"{column} as k{n}" for n, column in enumerate(kind_expressions)
    )
    prompt_select = "".join(
        f"{column} as q_{name}, " for name, column in prompt_expressions.items()
    )
    connection.execute(
        f"create temp table t as select {a} as a, {b} as b, {prompt_select}"
        f"({winner_side_sql})::tinyint as own, {kind_select} from {scan}"
    )
    counts = ", ".join(f"count(k{n})" for n in range(len(kind_expressions)))
    (non_null_counts,) = connection.execute(f"select {counts} from t").fetchall()
    key_columns = [
        "own",
        *(f"k{n}" for n, count in enumerate(non_null_counts) if count),
    ]
    kind_fields = [
        name for name, count in zip(kind_fields, non_null_counts, strict=True) if count
    ]
    is_same_kind = " and ".join(
        f"t.{key} is not distinct from kinds.{key}" for key in key_columns
    )
    row_number = "(row_number() over () - 1)::integer as code"
    connection.execute(f"""
        create temp table kinds as
        select *, {row_number} from (select distinct {", ".join(key_columns)} from t);
        create temp table names as select *, {row_number} from
        (select a as name from t where a is not null union select b from t where b is not null);
    """)
    for name in prompt_expressions:
        connection.execute(
            f"create temp table {name}s as select *, {row_number} from "
            f"(select distinct q_{name} as name from t where q_{name} is not null)"
        )
    cursor = connection.execute(
        f"select {', '.join(key_columns)} from kinds order by code"
    )
    kinds = cursor.fetchall()
    names, *prompt_rows = (
        connection.execute(f"select name from {table} order by code").fetchall()
        for table in ("names", *(f"{name}s" for name in prompt_expressions))
    )
    prompt_codes = "".join(
        f", coalesce({name}s.code, {len(distinct_rows)}) as {name}"
        for name, distinct_rows in zip(prompt_expressions, prompt_rows, strict=True)
    )
    prompt_joins = " ".join(
        f"left join {name}s on t.q_{name} = {name}s.name" for name in prompt_expressions
    )
    codes = connection.execute(f"""
        select kinds.code as kind, coalesce(a.code, {len(names)}) as a,
        coalesce(b.code, {len(names)}) as b{prompt_codes}
        from t left join kinds on {is_same_kind} left join names as a on t.a = a.name
        left join names as b on t.b = b.name {prompt_joins}
        order by t.rowid
    """).fetchnumpy()
    cells = _parse_json_cells if is_json else _to_cells
    values = iter(
        cells(value for _, *cells_of_kind in kinds for value in cells_of_kind)
    )
    all_kinds = [
        (
            dict(
                zip(
                    kind_fields, itertools.islice(values, len(kind_fields)), strict=True
                )
            ),
            _WINNER_SIDES[winner_side],
        )
        for winner_side, *_ in kinds
    ]
    distinct, kind = renumber_by_appearance(all_kinds, _to_codes(codes["kind"]))
    prompts = dict[str, tuple[list[Cell], Codes]]()
    for name, distinct_rows in zip(prompt_expressions, prompt_rows, strict=True):
        values_of_prompt = (value for (value,) in distinct_rows)
        is_text = name == "question_text"
        prompt_cells = [*(_to_cells if is_text else cells)(values_of_prompt), None]
        prompts[name] = renumber_by_appearance(prompt_cells, _to_codes(codes[name]))
    return CodedBattles(
        kinds=[kind for kind, _ in distinct],
        winner_sides=[side for _, side in distinct],
        kind_codes=kind,
        models=[*cells(name for (name,) in names), None],
        a=_to_codes(codes["a"]),
        b=_to_codes(codes["b"]),
        prompts=prompts,
    )


def _build_blank_sql(name: str, is_json: bool) -> str:
    """Return the SQL of `blank` for a column."""
    column = _quote_identifier(name)
    cell_text = f"{column} ->> '$'" if is_json else f"{column}::varchar"
    return f"case when regexp_matches(coalesce({cell_text}, ''), '\\S') then null else '1' end"


def _build_question_sql(kind: str, name: str, is_json: bool) -> str:
    """Return the SQL of `question_text` for a column of questions."""
    column = _quote_identifier(name)
    first_message_paths = ("$[0].content", "$[0]")
    first_message = ", ".join(
        f"json_extract_string({column}, '{path}')" for path in first_message_paths
    )
    if is_json:
        plain_text = (
            "null" if name.startswith(CONVERSATION_PREFIX) else f"{column} ->> '$'"
        )
        return f"case json_type({column}) when 'ARRAY' then coalesce({first_message}) else {plain_text} end"
    if kind.endswith("[]"):
        inner = ".content" if kind.startswith("STRUCT") else ""
        return f"({column}[1]{inner})::varchar"
    if name.startswith(CONVERSATION_PREFIX):
        return f"case when json_valid({column}) then coalesce({first_message}) end"
    return f"({column})::varchar"


def question_text(value: Any, name: str) -> Any:
    """Return the text of a question: of messages or turns the first; None of a conversation that is no list.

    name  of its column
    """
    if isinstance(value, str) and name.startswith(CONVERSATION_PREFIX):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if isinstance(value, list | tuple):
        first_turn = value[0] if value else None
        return (
            first_turn.get("content") if isinstance(first_turn, Mapping) else first_turn
        )
    return None if name.startswith(CONVERSATION_PREFIX) else value


def _to_codes(column: NDArray[Any]) -> Codes:
    return np.asarray(column, dtype=np.int32)


def _to_cells(values: Iterable[Any]) -> list[Cell]:
    all_values = list(values)
    return (
        all_values
        if _PLAIN_CELL_TYPES.issuperset(map(type, all_values))
        else list(map(to_cell, all_values))
    )


def _parse_json_cells(texts: Iterable[str | None]) -> list[Cell]:
    """Raises ValueError as the reader of rows does."""
    array = ",".join("null" if text is None else text for text in texts)
    return _to_cells(
        json.loads(f"[{array}]", object_pairs_hook=files.make_unique_object)
    )
