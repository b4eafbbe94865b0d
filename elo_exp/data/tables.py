"""Tables on file: JSON lines, a JSON array, CSV or parquet, each also compressed by gzip or Zstandard.

A file's shape is told from its content, whatever its name. DuckDB reads a large table by columns, as
`Coded`; what it does not read whole, or not as Python would, is read row by row.
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
    Generator,
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
from elo_exp.records import UserError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SHAPES = ("lines", "array", "csv", "parquet")  # of tables
_BATCH = 256  # rows of parquet, which may hold whole conversations
_BLOCK = 65_536  # rows whose codes are Python's integers at a time
_MAX_FIELD = 2**24  # characters of a CSV field, for the same reason
_MAX_OBJECT = 2**24  # bytes of a line of JSON that is read by columns
MEMORY = 1500  # megabytes that DuckDB may take
_HEAD = 4096  # bytes
_SIDES = ("model_a", "model_b")
OF_PROMPTS = (
    "question_id",
    "cluster",
    "question_text",
)  # which most rows have of their own
CONVERSATION = "conversation"  # how columns of messages begin
# of columns of answers only whether a cell is blank is read: "1" if it is, else None
BLANKS = ("blank_a", "blank_b")
_APART = (*_SIDES, *OF_PROMPTS)  # in no kind
# A quote is doubled inside a cell; a cell that begins so is another one to Python
_SPACED_QUOTE = re.compile(rb'[ \t](?<=[,\r\n].)[ \t]*"(?!"[^,\r\n])')
_OWN = (None, "model_a", "model_b")
_NONE = "\0none"  # a column that no table has
_ZONED = "TIMESTAMP WITH TIME ZONE"  # which Python has only with a library more
_PLAIN = frozenset({str, type(None)})

# Keys of a span of OpenTelemetry: as its exporters write it to a file (OTLP), or to the console
_TRACES = (
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


Source = Path | Frame


@dataclass(frozen=True, slots=True)
class Nested:
    """A list or an object, as JSON."""

    text: str


Cell = str | None | Nested


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coded:
    """n battles as codes: what is equal is held once, in the order in which it first appears.

    A code is a place in the list beside it. A kind has the cells of all fields but models and those of prompts;
    its winner is None where a row has its own model's name there, and then `own` is this model's field.
    """

    kinds: list[dict[str, Cell]]
    own: list[str | None]
    kind: Codes  # (n,)
    names: list[Cell]  # of models
    a: Codes  # (n,)
    b: Codes  # (n,)
    # by each field of OF_PROMPTS that is read
    prompts: dict[str, tuple[list[Cell], Codes]]

    def __len__(self) -> int:
        return len(self.kind)


def shape(path: Source) -> str:
    """Return a file's shape: lines, array, csv, parquet, object or zip.

    Text that begins with { is lines if its first line is a whole object. Raises UserError for a
    file that cannot be read.
    """
    if isinstance(path, Frame):
        return "array"
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


def keys(path: Source) -> set[str]:
    """Return the keys of the first row; of an object also inner ones as outer.inner.

    Of a zip file the first parts of the names in it. Raises UserError, also for a trace of OpenTelemetry.
    """
    found = _keys(path)
    refuse_trace(path, found)
    return found


def refuse_trace(place: object, keys: Set[Any]) -> None:
    """Raise UserError for the keys of a trace of OpenTelemetry."""
    if any(trace <= keys for trace in _TRACES):
        raise UserError(
            f"{place}: is a trace of OpenTelemetry, a convention in development. Write its messages as rows: "
            "docs/conversations.md."
        )


def _keys(path: Source) -> set[str]:
    if isinstance(path, Frame):
        return {*path.columns}
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
    path: Source, columns: Collection[Hashable] | None = None
) -> Iterator[tuple[str, Row]]:
    """Iterate over rows with their places ("file:line"). Raises UserError for a malformed one.

    columns  those that a parquet file is read for; None: all
    """
    if isinstance(path, Frame):
        return _frame_rows(path)
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


def _frame_rows(frame: Frame) -> Iterator[tuple[str, Row]]:
    names = list(frame.columns)
    for number, row in enumerate(zip(*frame.columns.values(), strict=True), start=1):
        yield f"{frame}: row {number}", dict(zip(names, row, strict=True))


def _objects(path: Path, found: Iterable[Any]) -> Iterator[tuple[str, Row]]:
    for number, row in enumerate(found, start=1):
        if not isinstance(row, dict):
            raise UserError(
                f"{path}: row {number}: found {row!r:.40}. Expected an object."
            )
        yield f"{path}: row {number}", row


def _csv_lines(path: Path) -> Generator[str]:
    """The lines with their ends, some of which are within a cell."""
    yield from (line for _, line in files.read_lines(path, newline=""))


def _csv_rows(path: Path) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(_MAX_FIELD)
    with closing(_csv_lines(path)) as lines:
        reader = csv.DictReader(lines, strict=True)
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
    import duckdb

    try:
        with _uncompressed(path) as plain, closing(database()) as connection:
            table = f"read_parquet({_literal(plain)})"
            types = _types(connection, table)
            chosen = [name for name in types if columns is None or name in columns]
            listed = ", ".join(
                f"{_quoted(name)}{'::varchar' * (types[name] == _ZONED)}"
                for name in chosen
            )
            connection.execute(f"select {listed or 'null'} from {table}")
            while batch := connection.fetchmany(_BATCH):
                for values in batch:
                    yield dict(zip(chosen, values, strict=bool(chosen)))
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path}: cannot be read as parquet ({reason}).") from None


@contextmanager
def _uncompressed(path: Path) -> Iterator[Path]:
    """The file, or where it is compressed a temporary copy that is not."""
    if not files.packing(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "table")
        with files.open_binary(path) as content, copy.open("wb") as file:
            shutil.copyfileobj(content, file)
        yield copy


def weight(path: Path) -> int:
    """Return about how many bytes a file has as text that is not compressed. Raises UserError."""
    packed = shape(path) == "parquet" or files.packing(path)
    return path.stat().st_size * (10 if packed else 1)


# By columns


def coded(path: Path, columns: Mapping[str, Hashable]) -> Coded | None:
    """Read a table of battles by columns; None where it has to be read row by row.

    columns  our field -> the file's column, which need not be there

    What is read is what the rows say. Only, of a line of JSON what nobody reads may be at fault (a key twice),
    and a line of JSON or CSV may have a comma too many at its end. Raises UserError for a file that takes too
    much memory.
    """
    import duckdb

    try:
        scan = _scan(path, list(map(str, dict.fromkeys(columns.values()))))
        if scan is None or not _is_sound(path):
            return None
        with closing(database()) as connection:
            return _coded(connection, scan, columns, shape(path) == "lines")
    except duckdb.OutOfMemoryException:
        raise UserError(
            f"{path}: needs more than {MEMORY:,} MB to be read. Count its battles first: "
            'docs/formats.md, "count".'
        ) from None
    except (duckdb.Error, ValueError, RecursionError):
        return None


def _is_sound(path: Path) -> bool:
    """Whether a file's bytes are as DuckDB takes them: it looks at no checksum, and drops spaces before a quote.

    Raises UserError for a damaged file.
    """
    is_csv = shape(path) == "csv"
    if not is_csv and not files.packing(path):
        return True
    before = b""
    with files.open_binary(path) as content:
        while block := content.read(_MAX_OBJECT):
            if is_csv and _SPACED_QUOTE.search(before + block):
                return False
            before = block[-_HEAD:]
    return True


def coded_rows(
    source: Frame | Iterable[tuple[str, Row]], columns: Mapping[str, Hashable]
) -> tuple[Coded, UserError | None]:
    """Read rows into the same columns, up to the one that cannot be read; return also that error."""
    fields = [name for name in columns if name not in (*_APART, "winner")]
    fields_of_prompts = [name for name in OF_PROMPTS if name in columns]
    read = (*_SIDES, *fields_of_prompts, "winner", *fields)
    names = [columns.get(name, _NONE) for name in read]
    kinds, models = Distinct(), Distinct()
    distinct = [Distinct() for _ in fields_of_prompts]
    k, text_at = len(distinct), None
    blanks_at = [n for n, name in enumerate(read) if name in BLANKS]
    if "question_text" in columns:
        text_at = 2 + fields_of_prompts.index("question_text")
    blocks, error = list[Codes](), None
    every: Iterator[tuple[Any, ...]]
    if isinstance(source, Frame):
        nothing = [None] * len(source)
        given = [source.columns.get(str(name), nothing) for name in names]
        every = zip(*given, strict=True)
    else:
        every = (tuple(map(row.get, names)) for _, row in source)
    while True:
        codes = list[tuple[int, ...]]()
        try:
            for row in itertools.islice(every, _BLOCK):
                values = row
                if text_at is not None:
                    words = words_of(row[text_at], str(columns["question_text"]))
                    values = (*row[:text_at], words, *row[text_at + 1 :])
                if blanks_at:
                    cells = [*values]
                    for n in blanks_at:
                        cells[n] = blank(cells[n])
                    values = tuple(cells)
                if not _PLAIN.issuperset(map(type, values)):
                    values = tuple(map(cell, values))
                a, b, *others = values
                of_prompt, (won, *kind) = others[:k], others[k:]
                own = 0 if won is None else 1 if won == a else 2 if won == b else 0
                key = (own, None if own else won, *kind)
                numbers = (d[x] for d, x in zip(distinct, of_prompt, strict=True))
                codes.append((kinds[key], models[a], models[b], *numbers))
        except UserError as found:
            error = found
        if codes:
            blocks.append(np.array(codes, dtype=np.int32))
        if len(codes) < _BLOCK:
            break
    every_code = np.concatenate(blocks or [np.empty((0, 3 + k), dtype=np.int32)])
    kind_codes, a_codes, b_codes, *prompt_codes = every_code.T.copy()
    keys = ["winner", *fields]
    coded = Coded(
        kinds=[dict(zip(keys, values, strict=True)) for _, *values in kinds],
        own=[_OWN[own] for own, *_ in kinds],
        names=list(models),
        kind=kind_codes,
        a=a_codes,
        b=b_codes,
        prompts={
            name: (list(values), codes)
            for name, values, codes in zip(
                fields_of_prompts, distinct, prompt_codes, strict=True
            )
        },
    )
    return coded, error


class Distinct(dict[Any, int]):
    """What is new has the next number."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


def cell(value: Any) -> Cell:
    """Return a value as text, or as JSON where it is a list or an object."""
    if isinstance(value, str | Nested):
        return value
    if isinstance(value, list | dict):
        return Nested(json.dumps(value, default=str))
    return text(value)


def blank(value: Any) -> str | None:
    """Return "1" for a cell without text, None for any other one."""
    return None if (text(value) or "").strip() else "1"


def by_appearance(values: Sequence[Any], codes: Codes) -> tuple[list[Any], Codes]:
    """Keep the values that codes (n,) name, in the order in which they first do; and their new codes."""
    first = np.full(len(values), len(codes))
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    order = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(codes))]
    number = np.empty(len(values), dtype=np.int32)
    number[order] = np.arange(len(order))
    return [values[i] for i in order.tolist()], number[codes]


def database() -> DuckDBPyConnection:
    """An empty database in memory that reaches no network and loads nothing."""
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 2,
        "memory_limit": f"{MEMORY}MB",
        "temp_directory": tempfile.gettempdir(),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }
    connection = duckdb.connect(config=settings)
    connection.execute("set enable_progress_bar = false")
    return connection


def _scan(path: Path, columns: Sequence[str]) -> str | None:
    """The file as a table of DuckDB's; None where rows may be something else to it than to Python."""
    kind, packed = shape(path), files.packing(path)
    how = f"compression='{packed or 'none'}'"
    if kind == "parquet" and not packed:
        return f"read_parquet({_literal(path)})"
    if kind == "lines" and not _has_mark(path):
        typed = ", ".join(f"{_quoted(name)}: 'JSON'" for name in columns)
        return (
            f"read_json({_literal(path)}, columns={{{typed}}}, {how}, "
            f"format='newline_delimited', maximum_object_size={_MAX_OBJECT})"
        )
    if kind == "csv" and (header := _header(path)):
        typed = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in header)
        return (
            f"read_csv({_literal(path)}, columns={{{typed}}}, {how}, auto_detect=false, "
            "header=true, delim=',', quote='\"', escape='\"', strict_mode=true, null_padding=false)"
        )
    return None


def _has_mark(path: Path) -> bool:
    with files.open_binary(path) as content:
        return content.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8


def _header(path: Path) -> list[str]:
    """The names of a CSV file's columns; none where two are one to SQL."""
    try:
        with closing(_csv_lines(path)) as lines:
            header = next(csv.reader(lines, strict=True), [])
    except csv.Error:
        return []
    is_plain = all(header) and len({*map(str.casefold, header)}) == len(header)
    return header if is_plain else []


def _literal(path: Path) -> str:
    """A path in SQL, where *, ? and [ would stand for other files."""
    exact = re.sub(r"[*?\[]", r"[\g<0>]", str(path.resolve()))
    return "'" + exact.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _types(connection: DuckDBPyConnection, table: str) -> dict[str, str]:
    """The columns with their types."""
    rows = connection.execute(f"describe select * from {table}").fetchall()
    return {name: kind for name, kind, *_ in rows}


def _coded(
    connection: DuckDBPyConnection,
    scan: str,
    columns: Mapping[str, Hashable],
    is_json: bool,
) -> Coded | None:
    """Scan once into a table, and join it with what is distinct in it."""
    types = _types(connection, scan)
    given = {name: str(column) for name, column in columns.items() if column in types}
    sides = {types.get(given.get(name, "")) for name in ("model_a", "model_b")}
    if len(sides) > 1 or None in sides:
        return None
    field = {
        name: _blank(column, is_json) if name in BLANKS else _quoted(column)
        for name, column in given.items()
    }
    a, b = field["model_a"], field["model_b"]
    winner = field.get("winner", "null")
    of_prompts = {
        name: _words(types[given[name]], given[name], is_json)
        if name == "question_text"
        else field[name]
        for name in OF_PROMPTS
        if name in field
    }
    is_named = types.get(given.get("winner", "")) in sides  # as its models are
    own = f"case {winner} when {a} then 1 when {b} then 2 else 0 end" if is_named else 0
    named = ["winner", *(name for name in field if name not in (*_APART, "winner"))]
    listed = [f"case when own = 0 then {winner} end", *map(field.get, named[1:])]
    picked = ", ".join(f"{column} as k{n}" for n, column in enumerate(listed))
    asked = "".join(f"{column} as q_{name}, " for name, column in of_prompts.items())
    connection.execute(
        f"create temp table t as select {a} as a, {b} as b, {asked}"
        f"({own})::tinyint as own, {picked} from {scan}"
    )
    counts = ", ".join(f"count(k{n})" for n in range(len(listed)))
    (filled,) = connection.execute(f"select {counts} from t").fetchall()
    keys = ["own", *(f"k{n}" for n, count in enumerate(filled) if count)]
    named = [name for name, count in zip(named, filled, strict=True) if count]
    alike = " and ".join(f"t.{key} is not distinct from kinds.{key}" for key in keys)
    number = "(row_number() over () - 1)::integer as code"
    connection.execute(f"""
        create temp table kinds as
        select *, {number} from (select distinct {", ".join(keys)} from t);
        create temp table names as select *, {number} from
        (select a as name from t where a is not null union select b from t where b is not null);
    """)
    for name in of_prompts:
        connection.execute(
            f"create temp table {name}s as select *, {number} from "
            f"(select distinct q_{name} as name from t where q_{name} is not null)"
        )
    rows = connection.execute(f"select {', '.join(keys)} from kinds order by code")
    kinds = rows.fetchall()
    names, *prompts = (
        connection.execute(f"select name from {table} order by code").fetchall()
        for table in ("names", *(f"{name}s" for name in of_prompts))
    )
    coded = "".join(
        f", coalesce({name}s.code, {len(found)}) as {name}"
        for name, found in zip(of_prompts, prompts, strict=True)
    )
    joined = " ".join(
        f"left join {name}s on t.q_{name} = {name}s.name" for name in of_prompts
    )
    codes = connection.execute(f"""
        select kinds.code as kind, coalesce(a.code, {len(names)}) as a,
        coalesce(b.code, {len(names)}) as b{coded}
        from t left join kinds on {alike} left join names as a on t.a = a.name
        left join names as b on t.b = b.name {joined}
        order by t.rowid
    """).fetchnumpy()
    cells = _json_cells if is_json else _cells
    values = iter(cells(value for _, *others in kinds for value in others))
    every = [
        (dict(zip(named, itertools.islice(values, len(named)), strict=True)), _OWN[own])
        for own, *_ in kinds
    ]
    distinct, kind = by_appearance(every, _codes(codes["kind"]))
    found_prompts = dict[str, tuple[list[Cell], Codes]]()
    for name, rows_of in zip(of_prompts, prompts, strict=True):
        values_of = (value for (value,) in rows_of)
        is_text = name == "question_text"
        every_cell = [*(_cells if is_text else cells)(values_of), None]
        found_prompts[name] = by_appearance(every_cell, _codes(codes[name]))
    return Coded(
        kinds=[kind for kind, _ in distinct],
        own=[side for _, side in distinct],
        kind=kind,
        names=[*cells(name for (name,) in names), None],
        a=_codes(codes["a"]),
        b=_codes(codes["b"]),
        prompts=found_prompts,
    )


def _blank(name: str, is_json: bool) -> str:
    """In SQL, whether a cell of a column is blank, as `blank` returns it."""
    column = _quoted(name)
    words = f"{column} ->> '$'" if is_json else f"{column}::varchar"
    return (
        f"case when regexp_matches(coalesce({words}, ''), '\\S') then null else '1' end"
    )


def _words(kind: str, name: str, is_json: bool) -> str:
    """In SQL, the text of a column of questions, as `words_of` returns it."""
    column = _quoted(name)
    first = ("$[0].content", "$[0]")
    of_list = ", ".join(f"json_extract_string({column}, '{path}')" for path in first)
    if is_json:
        plain = "null" if name.startswith(CONVERSATION) else f"{column} ->> '$'"
        return f"case json_type({column}) when 'ARRAY' then coalesce({of_list}) else {plain} end"
    if kind.endswith("[]"):
        inner = ".content" if kind.startswith("STRUCT") else ""
        return f"({column}[1]{inner})::varchar"
    if name.startswith(CONVERSATION):
        return f"case when json_valid({column}) then coalesce({of_list}) end"
    return f"({column})::varchar"


def words_of(value: Any, name: str) -> Any:
    """Return the text of a question: of messages or turns the first; None of a conversation that is no list.

    name  of its column
    """
    if isinstance(value, str) and name.startswith(CONVERSATION):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if isinstance(value, list | tuple):
        first = value[0] if value else None
        return first.get("content") if isinstance(first, Mapping) else first
    return None if name.startswith(CONVERSATION) else value


def _codes(column: NDArray[Any]) -> Codes:
    return np.asarray(column, dtype=np.int32)


def _cells(values: Iterable[Any]) -> list[Cell]:
    found = list(values)
    return found if _PLAIN.issuperset(map(type, found)) else list(map(cell, found))


def _json_cells(texts: Iterable[str | None]) -> list[Cell]:
    """Raises ValueError as the reader of rows does."""
    array = ",".join("null" if text is None else text for text in texts)
    return _cells(json.loads(f"[{array}]", object_pairs_hook=files.unique_keys))
