"""The formats of result files, told apart by their keys: one module a format.

A module of this folder has FORMATS, a tuple of Format. The format with the most required keys that
a file has is the file's; of equal ones that of the first module. Sources of the field maps are named
in the modules.
"""

import functools
import importlib
import logging
import math
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from elo_exp.data import battle_texts, column_roles, table_files
from elo_exp.data.table_files import Row, Source
from elo_exp.errors import FileError
from elo_exp.files import check_choice
from elo_exp.records import WINNERS

logger = logging.getLogger(__name__)

Rows = Iterable[tuple[str, Row]]  # each with its place
WINNER_WORDS = {word: word for word in WINNERS} | {"both_bad": "tie (bothbad)"}
VALUE_BY_WORD = {
    **dict.fromkeys(("true", "yes", "pass", "passed", "correct"), 1.0),
    **dict.fromkeys(("false", "no", "fail", "failed", "incorrect"), 0.0),
}
_MAX_KEYS_IN_MESSAGE = 20
# The roles of battles and of scores, and the roles that tell which of the two a table holds
_ROLES_BY_KIND = (
    (("model_a", "model_b", "verdict"), ("model_a", "model_b")),
    (("item", "entrant", "score"), ("entrant", "score")),
)


class MalformedError(Exception):
    """Says what is wrong with a row."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of file that is recognised by its keys.

    name       also the value of battles_format
    required   keys of every row; of an object also inner ones (outer.inner), of a zip file the
               first parts of the names in it
    shapes     of table_files.shape
    assumes    what is taken for granted, in words
    instead    of a file that is not read: which one to give

    Of one whose rows are battles:

    columns    our field -> the column that holds it, where it has another name
    fields     gives the fields of battles.jsonl that are no column of the file; without a winner
               that is by model_a's `score`, or by the verdicts of both orders: None where the judge
               gave none. Raises MalformedError, or as Python does for what is not there
    join       makes one row of all that are one battle, or a row of each battle in a row
    list_notes what is to be said of all rows, as warnings
    answers    gives the answers of model_a and model_b; None if columns of usual names hold them
    is_judged  by a language model, each comparison once
    is_votes   by people

    Of one whose rows are scores of items:

    scores     yields each data.scores.Score of a file, of one metric where it is chosen
    scale      the least and the greatest score that the program gives
    has_answers  the file holds the answers, too, that were scored

    Of one that is told by more than fixed keys:

    find_faults   returns what a file with these keys lacks; nothing for a file of this format
    """

    name: str
    required: Sequence[str]
    shapes: Sequence[str] = table_files.TABLE_SHAPES
    assumption: str = ""
    remedy: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    fields: Callable[[Row], Mapping[str, Any]] | None = None
    join: Callable[[Rows], Rows] | None = None
    list_notes: Callable[[Rows], Sequence[str]] | None = None
    answers: Callable[[Row], tuple[str, str] | None] | None = None
    is_judged: bool = False
    is_votes: bool = False
    scores: Callable[[Any, str | None], Iterable[Any]] | None = None
    scale: tuple[float, float] | None = None
    has_answers: bool = False
    find_faults: Callable[[Source, set[str]], list[str]] | None = None

    def list_faults(self, path: Source, shape: str, keys: set[str]) -> list[str]:
        """Return why a file is not of this format; nothing if it is."""
        faults = [f"lacks {key}" for key in self.required if key not in keys]
        # An object of one line has the shape of lines
        is_object = shape == "lines" and "object" in self.shapes
        if not is_object and shape not in self.shapes:
            faults.append(f"is not {' or '.join(self.shapes)}")
        elif self.find_faults is not None and not faults:
            faults += self.find_faults(path, keys)
        return faults

    @property
    def is_plain(self) -> bool:
        """Whether its rows are battles as they stand."""
        return not (self.fields or self.join or self.scores)

    def find_answers(self, row: Row) -> tuple[str, str] | None:
        """Return the answers of model_a and model_b; None if the row holds none."""
        if self.scores is not None:
            return None
        return self.answers(row) if self.answers else battle_texts.find_answers(row)

    def complete(self, row: Row) -> Row:
        """Add to a row what `fields` gives. Raises MalformedError."""
        assert self.fields is not None
        source = {"source": "llm-judge"} if self.is_judged else {}
        try:
            return {**row, "winner": None, **source, **self.fields(row)}
        except (LookupError, TypeError, ValueError) as error:
            raise MalformedError(
                f"the row is not a row of {self.name}: {table_files.describe_row_error(error)}."
            ) from None


@functools.cache
def formats() -> tuple[Format, ...]:
    """Return every format, those with most required keys first."""
    modules = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
    ]
    all_formats = [file_format for module in modules for file_format in module.FORMATS]
    return tuple(
        sorted(all_formats, key=lambda file_format: -len(file_format.required))
    )


def recognise(path: Source, name: str | None = None) -> Format:
    """Return the format of a file, or the one of this name if the file has its keys.

    Raises FileError for a file of no format, with its columns and the settings that name them.
    """
    if name is not None:
        check_choice(
            "battles_format", name, [file_format.name for file_format in formats()]
        )
    shape, keys = table_files.detect_shape(path), table_files.read_keys(path)
    mismatches = dict[str, tuple[float, str]]()
    for file_format in formats():
        if name not in (None, file_format.name):
            continue
        faults = file_format.list_faults(path, shape, keys)
        if not faults:
            return file_format
        n_missing = sum(key not in keys for key in file_format.required)
        own_keys = [*filter(column_roles.is_own_key, file_format.required)]
        if name is None and keys.isdisjoint(own_keys):
            continue  # a file without a key of a program is not compared with it
        mismatches.setdefault(
            str(file_format.required),
            (
                1 - n_missing / max(1, len(file_format.required)),
                f"  It is not {file_format.name}: it {', '.join(faults)}.",
            ),
        )
    nearest = [line for _, line in sorted(mismatches.values())[:-3:-1]]
    if isinstance(path, Path):
        table_files.refuse_empty(path)
    raise _build_no_format_error(path, shape, keys, nearest)


def _build_no_format_error(
    path: Source, shape: str, keys: set[str], programs: Sequence[str]
) -> FileError:
    """Return the error for a file of no format: the columns that lack, and the settings that name them."""
    if shape not in table_files.TABLE_SHAPES or not keys:
        key_list = ", ".join(sorted(keys)[:_MAX_KEYS_IN_MESSAGE]) or "no columns"
        return FileError.bad_file(
            path,
            "has no format that can be read",
            "docs/formats.md lists what can be read.",
            f"  The file ({shape}) has {key_list}.",
            *programs,
        )
    for roles, telling_roles in _ROLES_BY_KIND:
        lacking = [
            role for role in roles if column_roles.BATTLE_COLUMNS.get(role) not in keys
        ]
        likely_columns = {
            role: column_roles.find_likely_column(path, role) for role in roles
        }
        if any(likely_columns[role] for role in telling_roles):
            if "model_a" not in roles:
                lacking = [role for role in roles if likely_columns[role] is None]
            return column_roles.build_no_roles_error(
                path, lacking or roles, *_suggest_shares(keys), *programs
            )
    settings = [
        column_roles.format_settings(dict.fromkeys(roles, "COLUMN"))[0]
        for roles, _ in _ROLES_BY_KIND
    ]
    return FileError.bad_file(
        path,
        "has no columns of battles or scores",
        "Name them, or see docs/formats.md:",
        f"{settings[0]}     if a row is a battle",
        f"{settings[1]}     if a row is a score",
        column_roles.describe_columns(path),
        *programs,
    )


def _suggest_shares(keys: set[str]) -> list[str]:
    """Return the setting for battles without a winner whose shares a column may hold."""
    if not {"model_a", "model_b"} <= keys or "winner" in keys:
        return []
    columns = [name for name in column_roles.NAMES_BY_ROLE["share"] if name in keys]
    return [
        f"  columns.share={name}     if {name} is the share of model_a, from 0 to 1"
        for name in columns[:1]
    ]


def log_facts(
    path: Source,
    file_format: Format,
    rows: Mapping[str, int],
    hint: str = "",
    notes: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Say what a file was read as, with counts of rows; return the manifest's row of it.

    hint   what else the file could be read as
    notes  what else is to be said of it, by name
    """
    row_counts = ", ".join(f"{n} {word}" for word, n in rows.items())
    assumption = (
        f"; assumed: {file_format.assumption}" if file_format.assumption else ""
    )
    extras = "".join(f"; {name}: {note}" for name, note in notes.items())
    extras += f"; {hint}" if hint else ""
    logger.info(
        "%s: read as %s: %s%s%s", path, file_format.name, row_counts, assumption, extras
    )
    return {
        "file": str(path),
        "format": file_format.name,
        "rows": dict(rows),
        "assumed": file_format.assumption,
        **notes,
    }


def join_orders(
    rows: Rows, columns: Sequence[str], sides: tuple[str, str]
) -> Collection[tuple[str, Row]]:
    """Make one row of the two orders of each comparison; its `orders` are the rows in the order of the file.

    columns  those that are equal in both orders
    sides    those of the models, which are exchanged
    """
    rows_by_comparison = dict[str, tuple[str, dict[str, Any]]]()
    for location, row in rows:
        models = sorted(str(row.get(name)).strip() for name in sides)
        key = str([*(row.get(name) for name in columns), models])
        _, comparison = rows_by_comparison.setdefault(
            key, (location, {**row, "orders": []})
        )
        comparison["orders"].append(row)
    return rows_by_comparison.values()


def check_orders(row: Row, first_side: str) -> Sequence[Row]:
    """Return the orders of a joined row. Raises MalformedError if one of them was judged twice."""
    orders: Sequence[Row] = row["orders"]
    if len({order[first_side] for order in orders}) < len(orders):
        raise MalformedError(
            "the row is judged twice in one order. Remove the second judgment."
        )
    return orders


def parse_number(value: Any) -> float | None:
    """Return a cell as a number; None if it is missing, or NaN. Words such as true and fail are 1 and 0.

    Raises TypeError and ValueError for anything else.
    """
    word = value.strip().casefold() if isinstance(value, str) else ""
    if word in VALUE_BY_WORD:
        return VALUE_BY_WORD[word]
    number = math.nan if table_files.to_text(value) is None else float(value)
    return None if math.isnan(number) else number


def winner_of(score: float) -> str:
    """Return who wins by model_a's share."""
    return "tie" if score == 0.5 else "model_a" if score > 0.5 else "model_b"
