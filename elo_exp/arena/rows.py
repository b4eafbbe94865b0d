"""The rows of an arena, wherever they are: files of JSON lines, CSV or parquet, or a data set of the hub.

They are read twice and never held: once all of them, without texts where the format allows it, and once the texts of
those that are wanted.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from elo_exp import files
from elo_exp.arena.settings import ArenaColumns, ArenaSource
from elo_exp.data import battles
from elo_exp.records import UserError

if TYPE_CHECKING:
    import datasets
    import pyarrow

At = tuple[int, int]  # which file of the arena, and which row of it, from 0

_ROWS_AT_ONCE = 256  # of a table: whole conversations of so many battles are in memory at a time
_MAX_FIELD = 2**31 - 1  # characters of a CSV field


@dataclass(frozen=True, slots=True)
class Row:
    at: At
    place: str  # file and line, or file and row: for a message
    values: Mapping[str, Any]


class _Part(Protocol):
    """One file, or the data set."""

    def light(
        self, columns: ArenaColumns, wanted: Collection[str]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The place and values of every row; of conversations in tables, only who spoke."""

    def whole(
        self, columns: ArenaColumns, rows: Sequence[int]
    ) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
        """The number, place and values of some rows, given in order."""


def check(arena: ArenaSource) -> None:
    """Raise UserError where the settings name no source, no texts, or files that are not there."""
    if arena.path is None and arena.dataset is None:
        raise UserError(
            "arena.path: names no file. Set it with arena.path=FILE, or choose a data set: arena=NAME."
        )
    c = arena.columns
    if None in (c.conversation_a, c.conversation_b) and None in (
        c.prompt,
        c.response_a,
        c.response_b,
    ):
        raise UserError(
            "arena.columns: names no texts. Name conversation_a and conversation_b, or prompt, response_a and "
            "response_b."
        )
    paths(arena)


def paths(arena: ArenaSource) -> list[Path]:
    """The files of an arena, in order; none of a data set."""
    if arena.path is None:
        return []
    path = Path(arena.path)
    found = (
        sorted(p for p in path.iterdir() if not p.name.startswith(".")) if path.is_dir() else [path]
    )
    if not found or not all(file.is_file() for file in found):
        raise UserError(f"arena.path: found no file of battles at {path}. Check the path.")
    for file in found:
        battles.check_ending(file)
    return found


def light(arena: ArenaSource) -> Iterator[Row]:
    """Every row, with all that tells who met and who won."""
    c = arena.columns
    unread = {c.response_a, c.response_b, c.conversation_b}
    unread |= set() if arena.text_lists else {c.prompt}
    unread |= set() if c.turns is None else {c.conversation_a}
    wanted = [column for column in _named(c) if column not in unread]
    for number, part in enumerate(_parts(arena)):
        for i, (place, values) in enumerate(part.light(c, wanted)):
            yield Row((number, i), place, values)


def whole(arena: ArenaSource, at: Collection[At]) -> Iterator[Row]:
    """Some rows with all their columns, in the order of the source."""
    rows: defaultdict[int, list[int]] = defaultdict(list)
    for number, i in sorted(set(at)):
        rows[number].append(i)
    for number, part in enumerate(_parts(arena)):
        if number in rows:
            for i, place, values in part.whole(arena.columns, rows[number]):
                yield Row((number, i), place, values)


def _named(columns: ArenaColumns) -> list[str]:
    """The columns that the settings name, each once."""
    return list(dict.fromkeys(column for column in astuple(columns) if column is not None))


def _parts(arena: ArenaSource) -> list[_Part]:
    if arena.path is None:
        return [_Dataset(arena)]
    kinds: dict[str, type[_JsonLines | _Csv | _Parquet]] = {
        ".jsonl": _JsonLines,
        ".csv": _Csv,
        ".parquet": _Parquet,
    }
    return [kinds[battles.check_ending(path)](path) for path in paths(arena)]


def _check_columns(columns: ArenaColumns, found: Collection[str], place: str) -> None:
    """Raise UserError for the first named column that is not among those found."""
    for name in ArenaColumns.__dataclass_fields__:
        column = getattr(columns, name)
        if column is not None and column not in found:
            raise UserError(
                f"{place}: has no column {column!r} (found {', '.join(found)}). Name it with "
                f"arena.columns.{name}=COLUMN, or null where there is none."
            )


class _Lines:
    """A file that is read line by line, one row in memory at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        raise NotImplementedError

    def light(
        self, columns: ArenaColumns, wanted: Collection[str]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for i, (place, values) in enumerate(self._rows()):
            if i == 0:
                _check_columns(columns, values, place)
            yield place, values

    def whole(
        self, columns: ArenaColumns, rows: Sequence[int]
    ) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
        wanted = set(rows)
        for i, (place, values) in enumerate(self._rows()):
            if i in wanted:
                yield i, place, values
            if i == rows[-1]:
                return


class _JsonLines(_Lines):
    def _rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        return files.read_jsonl(self._path)


class _Csv(_Lines):
    def _rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        csv.field_size_limit(_MAX_FIELD)
        with files.open_text(self._path) as text:
            reader = csv.DictReader(text)
            try:
                yield from ((f"{self._path}:{reader.line_num}", row) for row in reader)
            except csv.Error as error:
                raise UserError(
                    f"{self._path}:{reader.line_num}: cannot be read as CSV ({error})."
                ) from None


class _Tables:
    """Rows that come as Arrow tables."""

    def __init__(self, name: str) -> None:
        self._name = name

    def light(
        self, columns: ArenaColumns, wanted: Collection[str]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        i = 0
        for table in self._tables(columns, wanted):
            for values in table.to_pylist():
                i += 1
                yield f"{self._name}: row {i}", values

    def _tables(self, columns: ArenaColumns, wanted: Collection[str]) -> Iterator[pyarrow.Table]:
        raise NotImplementedError


class _Parquet(_Tables):
    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def _tables(self, columns: ArenaColumns, wanted: Collection[str]) -> Iterator[pyarrow.Table]:
        with self._open() as file:
            _check_columns(columns, file.schema_arrow.names, self._name)
            leaves = [file.schema.column(i).path for i in range(len(file.schema))]
            spoken = [leaf for leaf in leaves if leaf in wanted or _is_role(leaf, wanted)]
            yield from file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=spoken)

    def whole(
        self, columns: ArenaColumns, rows: Sequence[int]
    ) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
        start = 0
        with self._open() as file:
            for table in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=_named(columns)):
                here = [i for i in rows if start <= i < start + len(table)]
                chosen = table.take([i - start for i in here]).to_pylist() if here else []
                for i, values in zip(here, chosen, strict=True):
                    yield i, f"{self._name}: row {i + 1}", values
                start += len(table)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        try:
            from pyarrow import parquet
        except ImportError:
            raise UserError(
                f"{self._path}: reading parquet needs pyarrow: pip install pyarrow"
            ) from None
        try:
            with self._bytes() as raw, parquet.ParquetFile(raw) as file:
                yield file
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise UserError(f"{self._path}: cannot be read as parquet ({error}).") from None

    @contextmanager
    def _bytes(self) -> Iterator[IO[bytes]]:
        """Parquet is not read from front to back, so a compressed file is unpacked whole."""
        with self._path.open("rb") as raw:
            yield io.BytesIO(gzip.decompress(raw.read())) if self._path.suffix == ".gz" else raw


def _is_role(leaf: str, wanted: Collection[str]) -> bool:
    """Whether a leaf of a nested column says who spoke: conversation_a.list.element.role."""
    column, _, inside = leaf.partition(".")
    return column in wanted and inside.endswith(".role")


class _Dataset(_Tables):
    """A data set of the hub, downloaded once and then read from the disk."""

    def __init__(self, arena: ArenaSource) -> None:
        super().__init__(str(arena.dataset))
        self._arena = arena

    def _tables(self, columns: ArenaColumns, wanted: Collection[str]) -> Iterator[pyarrow.Table]:
        data = self._load(columns).select_columns(list(wanted)).with_format("arrow")
        for start in range(0, len(data), _ROWS_AT_ONCE):
            yield _spoken(data[start : start + _ROWS_AT_ONCE])

    def whole(
        self, columns: ArenaColumns, rows: Sequence[int]
    ) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
        data = self._load(columns).select(rows)
        for i, values in zip(rows, data, strict=True):
            yield i, f"{self._name}: row {i + 1}", values

    def _load(self, columns: ArenaColumns) -> datasets.Dataset:
        try:
            import datasets
        except ImportError:
            raise UserError(
                f"arena.dataset: {self._name} needs the package datasets: pip install datasets"
            ) from None
        arena = self._arena
        try:
            data = datasets.load_dataset(
                arena.dataset,
                revision=arena.revision,
                data_files=arena.data_files,
                split=arena.split,
            )
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise UserError(
                f"arena.dataset: cannot load {arena.dataset} at {arena.revision or 'its newest commit'} "
                f"({type(error).__name__}: {error}). Check the network and, where the data set asks for it, the log-in "
                "(hf auth login); or take files of it with arena.path=FOLDER."
            ) from None
        _check_columns(columns, data.column_names, self._name)
        return data.select_columns(_named(columns))


def _spoken(table: pyarrow.Table) -> pyarrow.Table:
    """The table with nothing left of its conversations but the roles."""
    import pyarrow
    from pyarrow import compute

    for i, name in enumerate(table.column_names):
        kind = table.schema.field(i).type
        if not (pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)):
            continue
        column = table.column(i).combine_chunks()
        roles = pyarrow.StructArray.from_arrays(
            [compute.struct_field(column.values, "role")], ["role"]
        )
        table = table.set_column(i, name, type(column).from_arrays(column.offsets, roles))
    return table
