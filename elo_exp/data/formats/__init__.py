"""The formats of result files, told apart by their keys: one module a format.

A module of this folder has FORMATS, a tuple of Format. The format with the most required keys that
a file has is the file's. Sources of the field maps are named in the modules.
"""

from __future__ import annotations

import functools
import importlib
import logging
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elo_exp.data import tables
from elo_exp.data.tables import Row
from elo_exp.records import UserError, one_of

logger = logging.getLogger(__name__)

Rows = Iterable[tuple[str, Row]]  # each with its place
TABLES = tables.SHAPES
INVALID = object()  # the winner of a row whose judge gave no verdict
_MAX_KEYS = 20  # that a message names


class MalformedError(Exception):
    """Says what is wrong with a row."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of file that is recognised by its keys.

    name       also the value of battles_format
    shapes     of tables.shape
    required   keys of every row; of an object also inner ones (outer.inner), of a zip file the
               first parts of the names in it
    forbidden  keys that no row has
    """

    name: str
    shapes: Sequence[str]
    required: Sequence[str]
    forbidden: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class BattlesFormat(Format):
    """A format whose rows are battles.

    optional  other keys that are read
    columns   our field -> the column that holds it, where it has another name
    row       makes a row of battles.jsonl of one of the file, with the winner INVALID where the
              judge gave no verdict, and counts in words what is remarkable. Raises MalformedError
    join      makes one row of all that are one battle
    unique    a comparison stands in a file once
    assumes   what is taken for granted, in words
    """

    optional: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    row: Callable[[Row, Counter[str]], Mapping[str, Any]] | None = None
    join: Callable[[Rows], Rows] | None = None
    unique: bool = False
    assumes: str = ""


@dataclass(frozen=True, kw_only=True)
class ScoresFormat(Format):
    """A format whose rows are scores of items.

    read     yields each data.scores.Score of a file, of one metric where it is chosen
    assumes  what is taken for granted, in words
    """

    read: Callable[[Path, str | None], Iterable[Any]]
    assumes: str = ""


@dataclass(frozen=True, kw_only=True)
class UnreadFormat(Format):
    """A format that is known and not read; `lead` says which file to give instead."""

    lead: str


@functools.cache
def formats() -> tuple[Format, ...]:
    """Return every format, those with most required keys first."""
    modules = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
    ]
    every = [one for module in modules for one in module.FORMATS]
    return tuple(sorted(every, key=lambda one: -len(one.required)))


def recognise(path: Path, name: str | None = None) -> Format:
    """Return the format of a file, or the one of this name if the file has its keys.

    Raises UserError for a file of no format, naming the two nearest and what it lacks for each, and
    for one of a format that is not read.
    """
    every = [one for one in formats() if name in (None, one.name)]
    if name is not None and not every:
        one_of("battles_format", name, [one.name for one in formats()])
    shape, keys = tables.shape(path), tables.keys(path)
    wrong = {one.name: _mismatch(one, shape, keys) for one in every}
    fits = next((one for one in every if not wrong[one.name]), None)
    if isinstance(fits, UnreadFormat):
        raise UserError(f"{path}: is recognised as {fits.name}. {fits.lead}")
    if fits is not None:
        return fits
    shared = {one.name: keys & set(one.required) for one in every}
    every.sort(key=lambda one: len(shared[one.name]) / len(one.required))
    near = [one.name for one in every if shared[one.name]][:-3:-1]
    nearest = "".join(f" Not {name}: it {wrong[name]}." for name in near)
    found = ", ".join(sorted(map(repr, keys))[:_MAX_KEYS]) or "nothing"
    raise UserError(
        f"{path}: is none of the formats that are read.{nearest} The file ({shape}) has "
        f"{found}. Name its columns with battles_columns.model_a=COLUMN and so on, or see "
        "docs/formats.md."
    )


def winner_of(score: float) -> str:
    """Return who wins by model_a's share."""
    return "tie" if score == 0.5 else "model_a" if score > 0.5 else "model_b"


def _mismatch(one: Format, shape: str, keys: set[str]) -> str:
    """Say why a file is not of a format; nothing where it is."""
    has_shape = shape in one.shapes or (shape == "lines" and "object" in one.shapes)
    return ", ".join(
        [
            *(f"lacks {key!r}" for key in one.required if key not in keys),
            *(f"has {key!r}" for key in one.forbidden if key in keys),
            *([] if has_shape else [f"is {' or '.join(one.shapes)}"]),
        ]
    )


def rows_of_battles(
    path: Path, one: BattlesFormat, columns: Sequence[str], remarks: Counter[str]
) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a file with the fields of battles.jsonl beside their own.

    The value of MalformedError is what is wrong with a row. Raises UserError for a row without a
    required key.
    """
    rows: Rows = tables.rows(path, [*one.required, *one.optional, *columns])
    if one.row is None:
        yield from rows
        return
    rows = _checked(rows, one)
    for place, row in one.join(rows) if one.join else rows:
        try:
            fields: Mapping[Any, Any] = one.row(row, remarks)
        except MalformedError as error:
            fields = {MalformedError: str(error)}
        yield place, {**row, **fields}


def _checked(rows: Rows, one: Format) -> Iterator[tuple[str, Row]]:
    for place, row in rows:
        if not row.keys() >= set(one.required):
            lacking = next(key for key in one.required if key not in row)
            raise UserError(
                f"{place}: lacks {lacking!r}, which every row of {one.name} has."
            )
        yield place, row
