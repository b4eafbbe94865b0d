"""The rows of an arena: files of JSON lines, CSV or parquet, or a data set of the Hugging Face hub.

They are read twice and never held in memory: once all of them for who met and who won, and once
the texts of chosen rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from elo_exp.arena.settings import ArenaSource
from elo_exp.arena.simulated import Simulated
from elo_exp.data import tables
from elo_exp.models import checkpoints
from elo_exp.records import UserError

if TYPE_CHECKING:
    import datasets

Source: TypeAlias = "Path | Simulated | datasets.Dataset"
At = tuple[int, int]  # number of the file, and of the row in it, from 0

HARD = "hard"  # of arena.where: a prompt that meets most of the criteria below
CRITERIA = "category_tag.criteria_v0.1"
_TAGS = CRITERIA.partition(".")[0]
_BATCH = 256  # rows of a data set in memory at a time, with whole conversations


@dataclass(frozen=True, slots=True)
class Row:
    at: At
    place: str  # file and line, or file and row: for messages
    values: Mapping[str, Any]
    arena: ArenaSource  # one of a union

    def get(self, column: str | None) -> Any:
        """Return the value of a column; None where there is none."""
        return None if column is None else self.values.get(column)

    def find(self, path: str) -> Any:
        """Return the value at a dotted path, such as category_tag.math_v0.1.math."""
        return _find(self.values, path)


def _find(value: Any, path: str) -> Any:
    """The value in nested objects, whose names may have dots, too; None where there is none."""
    if isinstance(value, str) and path:  # as CSV has objects
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not path or not isinstance(value, Mapping):
        return None if path else value
    names = (name for name in value if f"{path}.".startswith(f"{name}."))
    name = next(names, None)
    return None if name is None else _find(value[name], path[len(name) + 1 :])


def members(arena: ArenaSource, where: str = "arena") -> dict[str, ArenaSource]:
    """Return the arenas of a union, by the setting that describes each."""
    found = {where: arena}
    for name, other in arena.union.items():
        found |= members(other, f"{where}.union.{name}")
    return found


def check(arena: ArenaSource) -> None:
    """Raise UserError where the settings name no source, no texts, or missing files."""
    every = members(arena)
    if len({one.name for one in every.values()}) < len(every):
        raise UserError(
            f"arena: found {arena.title}. Expected each once, with a name of its own."
        )
    for where, one in every.items():
        has_source = one.path is not None or one.dataset is not None
        if one.simulated and (has_source or len(every) > 1):
            raise UserError(
                "arena: found simulated, which reads no battles. Choose arena=file beside arena.path."
            )
        if not has_source and not one.simulated:
            raise UserError(
                f"{where}.path: names no file. Set it with {where}.path=FILE, or choose a data "
                "set: arena=NAME."
            )
        c = one.columns
        texts = (c.prompt, c.response_a, c.response_b)
        if None in (c.conversation_a, c.conversation_b) and None in texts:
            raise UserError(
                f"{where}.columns: names no texts. Name conversation_a and conversation_b, or "
                "prompt, response_a and response_b."
            )
        paths(one)


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
    return found


def read(arena: ArenaSource, at: Collection[At] | None = None) -> Iterator[Row]:
    """Yield the rows of an arena, or of all in a union, in the order of the sources.

    at  those to read; None: all
    Raises UserError for a column that is not there.
    """
    sources = [
        (where, one, source)
        for where, one in members(arena).items()
        for source in _sources(one)
    ]
    for number, (where, one, source) in enumerate(sources):
        chosen = None if at is None else {i for n, i in at if n == number}
        if chosen != set():
            columns = _columns(where, one, source)
            for i, (place, values) in _rows(one, source, columns, chosen):
                yield Row((number, i), place, values, one)


def _sources(arena: ArenaSource) -> Sequence[Source]:
    return paths(arena) or [arena.simulated or _load(arena)]


def _columns(where: str, arena: ArenaSource, source: Source) -> list[str]:
    """Return the columns that the settings name. Raises UserError for one that is not there."""
    names = asdict(arena.columns).items()
    named = {f"columns.{name}": column for name, column in names if column is not None}
    for path, value in arena.where.items():
        if value is not None:
            column = _TAGS if path == HARD else path.partition(".")[0]
            named[f"where.{path}"] = column
    if isinstance(source, Path):
        place, found = next(tables.rows(source), ("", {}))
    elif isinstance(source, Simulated):
        place, found = "simulated", {}
    else:
        place, found = str(arena.dataset), dict.fromkeys(source.column_names)
    for name, column in named.items():
        if found and column not in found:
            raise UserError(
                f"{place}: has no column {column!r} (found {', '.join(found)}). Name it with "
                f"{where}.{name}, or set that to null where there is none."
            )
    return list(dict.fromkeys(named.values()))


def _rows(
    arena: ArenaSource,
    source: Source,
    columns: Sequence[str],
    chosen: Collection[int] | None,
) -> Iterator[tuple[int, tuple[str, Mapping[str, Any]]]]:
    """Yield the rows of one source, or those chosen, by their numbers and places."""
    if isinstance(source, Path) and tables.shape(source) == "parquet":
        name, batches = str(source), tables.parquet_batches(source, columns)
    elif isinstance(source, Path | Simulated):
        votes = (
            tables.rows(source)
            if isinstance(source, Path)
            else (("simulated", vote) for vote in source.votes)
        )
        yield from (
            row for row in enumerate(votes) if chosen is None or row[0] in chosen
        )
        return
    else:
        data = source.select_columns(list(columns)).with_format("arrow")
        name, batches = str(arena.dataset), data.iter(_BATCH)
    first = 0
    for batch in batches:
        here = range(first, first + len(batch))
        numbers = [i for i in here if chosen is None or i in chosen]
        kept = batch if chosen is None else batch.take([i - first for i in numbers])
        for i, values in zip(numbers, kept.to_pylist(), strict=True):
            yield i, (f"{name}: row {i + 1}", values)
        first = here.stop


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
