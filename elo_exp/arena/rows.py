"""The rows of an arena: files of JSON lines, CSV or parquet, or a data set of the Hugging Face hub.

They are read twice and never held in memory: once all of them, without texts where the format
allows it, and once the texts of chosen rows.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elo_exp import files
from elo_exp.arena.settings import ArenaColumns, ArenaSource
from elo_exp.data import tables
from elo_exp.records import UserError

if TYPE_CHECKING:
    import datasets
    import pyarrow

At = tuple[int, int]  # number of the file, and of the row in it, from 0
Numbered = tuple[
    int, str, Mapping[str, Any]
]  # number, place (for messages) and values of a row

_BATCH = 256  # rows of a table in memory at a time, with whole conversations
_MAX_FIELD = 2**31 - 1  # characters of a CSV field


@dataclass(frozen=True, slots=True)
class Row:
    at: At
    place: str  # file and line, or file and row: for messages
    values: Mapping[str, Any]


def check(arena: ArenaSource) -> None:
    """Raise UserError where the settings name no source, no texts, or missing files."""
    if arena.path is None and arena.dataset is None:
        raise UserError(
            "arena.path: names no file. Set it with arena.path=FILE, or choose a data set: "
            "arena=NAME."
        )
    c = arena.columns
    conversations, texts = (
        (c.conversation_a, c.conversation_b),
        (c.prompt, c.response_a, c.response_b),
    )
    if None in conversations and None in texts:
        raise UserError(
            "arena.columns: names no texts. Name conversation_a and conversation_b, or prompt, "
            "response_a and response_b."
        )
    paths(arena)


def paths(arena: ArenaSource) -> list[Path]:
    """The files of an arena, in order; none of a data set."""
    if arena.path is None:
        return []
    path = Path(arena.path)
    found = [path]
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if not file.name.startswith("."))
    if not found or not all(file.is_file() for file in found):
        raise UserError(
            f"arena.path: found no file of battles at {path}. Check the path."
        )
    for file in found:
        tables.check_ending(file)
    return found


def light(arena: ArenaSource) -> Iterator[Row]:
    """All rows, without texts where the format allows it."""
    c = arena.columns
    texts = {c.response_a, c.response_b, c.conversation_b}
    if not arena.text_lists:
        texts.add(c.prompt)
    if c.turns is not None:
        texts.add(c.conversation_a)
    return _rows(arena, [column for column in _named(c) if column not in texts], None)


def whole(arena: ArenaSource, at: Collection[At]) -> Iterator[Row]:
    """Chosen rows with all their columns, in the order of the source."""
    chosen: defaultdict[int, set[int]] = defaultdict(set)
    for number, i in at:
        chosen[number].add(i)
    return _rows(arena, _named(arena.columns), chosen)


def _rows(
    arena: ArenaSource, wanted: Collection[str], chosen: Mapping[int, set[int]] | None
) -> Iterator[Row]:
    """`chosen`: row numbers by file; None for all rows, and roles alone of conversations."""
    sources: list[Path | None] = [*paths(arena)] or [None]
    for number, path in enumerate(sources):
        if chosen is not None and number not in chosen:
            continue
        some = None if chosen is None else chosen[number]
        if path is None:
            found = _dataset_rows(arena, wanted, some)
        elif tables.check_ending(path) == ".parquet":
            found = _parquet_rows(path, arena.columns, wanted, some)
        else:
            found = _line_rows(path, arena.columns, some)
        for i, place, values in found:
            yield Row((number, i), place, values)


def _named(columns: ArenaColumns) -> list[str]:
    """The columns that the settings name, each once."""
    return list(
        dict.fromkeys(column for column in astuple(columns) if column is not None)
    )


def _check_columns(columns: ArenaColumns, found: Collection[str], place: str) -> None:
    for name in ArenaColumns.__dataclass_fields__:
        column = getattr(columns, name)
        if column is not None and column not in found:
            raise UserError(
                f"{place}: has no column {column!r} (found {', '.join(found)}). Name it with "
                f"arena.columns.{name}=COLUMN, or null where there is none."
            )


def _line_rows(
    path: Path, columns: ArenaColumns, chosen: set[int] | None
) -> Iterator[Numbered]:
    read = files.read_jsonl if tables.check_ending(path) == ".jsonl" else _csv_rows
    last = None if chosen is None else max(chosen)
    for i, (place, values) in enumerate(read(path)):
        if i == 0:
            _check_columns(columns, values, place)
        if chosen is None or i in chosen:
            yield i, place, values
        if i == last:
            return


def _csv_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    csv.field_size_limit(_MAX_FIELD)
    with files.open_text(path) as text:
        reader = csv.DictReader(text, strict=True)
        try:
            for row in reader:
                yield f"{path}:{reader.line_num}", row
        except csv.Error as error:
            raise UserError(
                f"{path}:{reader.line_num}: cannot be read as CSV ({error})."
            ) from None


def _parquet_rows(
    path: Path, columns: ArenaColumns, wanted: Collection[str], chosen: set[int] | None
) -> Iterator[Numbered]:
    with _open_parquet(path) as file:
        _check_columns(columns, file.schema_arrow.names, str(path))
        leaves = [file.schema.column(i).path for i in range(len(file.schema))]
        if chosen is None:
            leaves = [
                leaf for leaf in leaves if leaf in wanted or _is_role(leaf, wanted)
            ]
        else:
            leaves = [leaf for leaf in leaves if leaf.partition(".")[0] in wanted]
        start = 0
        for batch in file.iter_batches(batch_size=_BATCH, columns=leaves):
            here = [
                i for i in range(len(batch)) if chosen is None or start + i in chosen
            ]
            for i, values in zip(
                here, batch.take(here).to_pylist() if here else [], strict=True
            ):
                yield start + i, f"{path}: row {start + i + 1}", values
            start += len(batch)


def _is_role(leaf: str, wanted: Collection[str]) -> bool:
    """Whether a leaf of a nested column is a speaker's role: conversation_a.list.element.role."""
    column, _, inside = leaf.partition(".")
    return column in wanted and inside.endswith(".role")


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    """Parquet is not read from front to back, so a compressed file is unpacked whole."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise UserError(
            f"{path}: reading parquet needs pyarrow: pip install pyarrow"
        ) from None
    try:
        with path.open("rb") as raw:
            unpacked = (
                io.BytesIO(gzip.decompress(raw.read())) if path.suffix == ".gz" else raw
            )
            with parquet.ParquetFile(unpacked) as file:
                yield file
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{path}: cannot be read as parquet ({error}).") from None


def _dataset_rows(
    arena: ArenaSource, wanted: Collection[str], chosen: set[int] | None
) -> Iterator[Numbered]:
    """Rows of a data set of the hub, downloaded once and then read from the disk."""
    data = _load(arena).select_columns(list(wanted))
    numbers = range(len(data)) if chosen is None else sorted(chosen)
    rows = _without_texts(data) if chosen is None else data.select(numbers)
    for i, row in zip(numbers, rows, strict=True):
        yield i, f"{arena.dataset}: row {i + 1}", row


def _without_texts(data: datasets.Dataset) -> Iterator[Mapping[str, Any]]:
    tables = data.with_format("arrow")
    for start in range(0, len(data), _BATCH):
        yield from _with_roles_alone(tables[start : start + _BATCH]).to_pylist()


def _load(arena: ArenaSource) -> datasets.Dataset:
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"arena.dataset: {arena.dataset} needs the package datasets: pip install datasets"
        ) from None
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
            f"({type(error).__name__}: {error}). Check the network and, where the data set asks "
            "for it, the log-in (hf auth login); or take files of it with arena.path=FOLDER."
        ) from None
    _check_columns(arena.columns, data.column_names, str(arena.dataset))
    return data


def _with_roles_alone(table: pyarrow.Table) -> pyarrow.Table:
    """Drop all of the conversations but the speakers' roles."""
    import pyarrow
    from pyarrow import compute

    for i, name in enumerate(table.column_names):
        kind = table.schema.field(i).type
        if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
            column = table.column(i).combine_chunks()
            role = compute.struct_field(column.values, "role")
            roles = pyarrow.StructArray.from_arrays([role], ["role"])
            table = table.set_column(
                i, name, type(column).from_arrays(column.offsets, roles)
            )
    return table
