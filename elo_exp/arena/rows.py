"""The rows of an arena: files of JSON lines, CSV or parquet, or a data set of the Hugging Face hub.

They are read twice and never held in memory: once all of them, conversations in parquet and data
sets without their texts, and once the texts of chosen rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elo_exp.arena.settings import ArenaSource
from elo_exp.data import tables
from elo_exp.models import checkpoints
from elo_exp.records import UserError

if TYPE_CHECKING:
    import datasets
    import pyarrow

At = tuple[int, int]  # number of the file, and of the row in it, from 0

_BATCH = 256  # rows of a data set in memory at a time, with whole conversations


@dataclass(frozen=True, slots=True)
class Row:
    at: At
    place: str  # file and line, or file and row: for messages
    values: Mapping[str, Any]

    def get(self, column: str | None) -> Any:
        """Return the value of a column; None where there is none."""
        return None if column is None else self.values.get(column)


def check(arena: ArenaSource) -> None:
    """Raise UserError where the settings name no source, no texts, or missing files."""
    if arena.path is None and arena.dataset is None:
        raise UserError(
            "arena.path: names no file. Set it with arena.path=FILE, or choose a data set: "
            "arena=NAME."
        )
    c = arena.columns
    texts = (c.prompt, c.response_a, c.response_b)
    if None in (c.conversation_a, c.conversation_b) and None in texts:
        raise UserError(
            "arena.columns: names no texts. Name conversation_a and conversation_b, or prompt, "
            "response_a and response_b."
        )
    paths(arena)


def paths(arena: ArenaSource) -> list[Path]:
    """Return the files of an arena, in order; none of a data set."""
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
    """Yield all rows, without texts where the format allows it."""
    c = arena.columns
    texts = {c.response_a, c.response_b, c.conversation_b}
    if not arena.text_lists:
        texts.add(c.prompt)
    if c.turns is not None:
        texts.add(c.conversation_a)
    wanted = [column for column in _named(arena).values() if column not in texts]
    for number, source in enumerate(_sources(arena)):
        _check_columns(arena, source)
        yield from _rows(arena, number, source, wanted, None)


def whole(arena: ArenaSource, at: Collection[At]) -> Iterator[Row]:
    """Yield chosen rows with all their columns, in the order of the source."""
    wanted = list(_named(arena).values())
    for number, source in enumerate(_sources(arena)):
        chosen = {i for n, i in at if n == number}
        if chosen:
            yield from _rows(arena, number, source, wanted, chosen)


def _sources(arena: ArenaSource) -> Sequence[Path | datasets.Dataset]:
    return paths(arena) or [_load(arena)]


def _named(arena: ArenaSource) -> dict[str, str]:
    """The columns that the settings name, by our names."""
    return {name: c for name, c in asdict(arena.columns).items() if c is not None}


def _check_columns(arena: ArenaSource, source: Path | datasets.Dataset) -> None:
    if isinstance(source, Path):
        place, found = next(tables.rows(source), ("", {}))
    else:
        place, found = str(arena.dataset), dict.fromkeys(source.column_names)
    for name, column in _named(arena).items():
        if found and column not in found:
            raise UserError(
                f"{place}: has no column {column!r} (found {', '.join(found)}). Name it with "
                f"arena.columns.{name}=COLUMN, or null where there is none."
            )


def _rows(
    arena: ArenaSource,
    number: int,
    source: Path | datasets.Dataset,
    columns: Sequence[str],
    chosen: Collection[int] | None,
) -> Iterator[Row]:
    """Rows of one source by their numbers; None: all, of conversations the roles alone."""
    if isinstance(source, Path) and tables.check_ending(source) != ".parquet":
        last = None if chosen is None else max(chosen)
        for i, (place, values) in enumerate(tables.rows(source)):
            if chosen is None or i in chosen:
                yield Row((number, i), place, values)
            if i == last:
                return
        return
    if isinstance(source, Path):
        name, batches = str(source), tables.parquet_batches(source, columns)
    else:
        data = source.select_columns(list(columns)).with_format("arrow")
        name, batches = str(arena.dataset), data.iter(_BATCH)
    first = 0
    for batch in batches:
        here = range(first, first + len(batch))
        numbers = [i for i in here if chosen is None or i in chosen]
        kept = (
            _roles_alone(batch)
            if chosen is None
            else batch.take([i - first for i in numbers])
        )
        for i, values in zip(numbers, kept.to_pylist(), strict=True):
            yield Row((number, i), f"{name}: row {i + 1}", values)
        first += len(batch)


def _roles_alone(batch: pyarrow.Table | pyarrow.RecordBatch) -> pyarrow.Table:
    """Drop all of the conversations but the speakers' roles."""
    import pyarrow
    from pyarrow import compute

    table = pyarrow.table(batch.columns, names=batch.schema.names)
    for i, field in enumerate(table.schema):
        is_list = pyarrow.types.is_list(field.type) or pyarrow.types.is_large_list(
            field.type
        )
        if is_list and pyarrow.types.is_struct(field.type.value_type):
            column = table.column(i).combine_chunks()
            role = compute.struct_field(column.values, "role")
            roles = pyarrow.StructArray.from_arrays([role], ["role"])
            lists = type(column).from_arrays(column.offsets, roles)
            table = table.set_column(i, field.name, lists)
    return table


def _load(arena: ArenaSource) -> datasets.Dataset:
    """A data set of the hub, downloaded once and then read from the disk."""
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"arena.dataset: {arena.dataset} needs the package datasets: pip install datasets"
        ) from None
    from huggingface_hub.constants import HF_HUB_OFFLINE

    is_local = HF_HUB_OFFLINE or Path(str(arena.dataset)).exists()
    if not is_local and not checkpoints.reaches_hub():
        raise UserError(
            f"arena.dataset: the hub of {arena.dataset} cannot be reached. Check the network, set "
            "HF_HUB_OFFLINE=1 to read a copy in its cache, or name files with arena.path=FOLDER."
        )
    try:
        return datasets.load_dataset(
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
