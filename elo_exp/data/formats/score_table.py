"""Tables of scores: a row for each score (long), or a column for each entrant (wide)."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elo_exp.data import field_names, table_files
from elo_exp.data.column_roles import NAMES_BY_ROLE
from elo_exp.data.formats import VALUE_BY_WORD, Format
from elo_exp.data.scores import Score
from elo_exp.data.table_files import NamedTable, Source
from elo_exp.errors import FileError, format_value

# What a column holds -> the names of such columns, the likeliest first
_NAMES_BY_ROLE: Mapping[str, Sequence[str]] = {
    "item": (*NAMES_BY_ROLE["item"], "question", "prompt", "input", "user_input"),
    **{role: NAMES_BY_ROLE[role] for role in ("entrant", "score", "draw")},
    "dimension": ("dimension", "rubric", "metric", "criterion", "scorer", "task"),
}
# Columns of numbers that are no scores of an entrant: by a word in their name, or by their whole name
_WORDS_OF_OTHER_NUMBERS = (
    *("cost", "price", "usd", "seconds", "latency", "duration", "tokens"),
)
_NAMES_OF_OTHER_NUMBERS = ("step", "seed", "index", "turn", "length", "row", "n")
_N_ROWS_LOOKED_AT = 50
_MIN_WIDE_ENTRANTS = 2


def find_columns(keys: set[str]) -> dict[str, str]:
    """Return the column of each role that one of the keys fills."""
    key_by_name = {str(key).strip().casefold(): key for key in keys}
    columns = dict[str, str]()
    for role, names in _NAMES_BY_ROLE.items():
        for name in names:
            if name in key_by_name and key_by_name[name] not in columns.values():
                columns[role] = key_by_name[name]
                break
    return columns


def find_faults_of_long(path: Source, keys: set[str]) -> list[str]:
    """Return what a file lacks to be a table with a row for each score."""
    columns = find_columns(keys)
    faults = [
        f"lacks a column for the {role}"
        for role in ("item", "entrant", "score")
        if role not in columns and not (role == "entrant" and _is_of_one_entrant(path))
    ]
    if not faults and _holds_answers(keys):
        faults = ["holds answers beside the scores"] * (
            not _are_numbers(path, columns["score"])
        )
    return faults


def _is_of_one_entrant(path: Source) -> bool:
    """Whether a table is all of one entrant if no column names any: one whose score the command names."""
    return isinstance(path, NamedTable) and "score" in dict(path.names)


def _holds_answers(keys: set[str]) -> bool:
    return not {str(key).strip().casefold() for key in keys}.isdisjoint(
        field_names.ANSWER
    )


def _are_numbers(path: Source, column: str) -> bool:
    rows = itertools.islice(table_files.read_rows(path), _N_ROWS_LOOKED_AT)
    return all(_is_number(row.get(column)) for _, row in rows)


def scores_of_long(path: Source, metric: str | None) -> Iterator[Score]:
    """Yield the score of each row; of another column if a metric names it."""
    columns = find_columns(table_files.read_keys(path))
    dimension_column = columns.get("dimension")
    entrant = (
        field_names.entrant_stem(path.path)
        if isinstance(path, NamedTable)
        else str(path)
    )
    score_column = metric or columns["score"]
    for location, row in table_files.read_rows(path):
        dimension = row.get(dimension_column) if dimension_column else None
        yield Score(
            dimension=str(dimension or score_column),
            entrant=row[columns["entrant"]] if "entrant" in columns else entrant,
            item=row[columns["item"]],
            draw=_read_draw(row, columns),
            value=_read_score(row.get(score_column), location),
            columns=row,
        )


def find_faults_of_wide(path: Source, keys: set[str]) -> list[str]:
    """Return what a file lacks to be a table with a column of scores for each entrant."""
    columns = find_columns(keys)
    if "item" not in columns:
        return ["lacks a column for the item"]
    rows = [
        row
        for _, row in itertools.islice(table_files.read_rows(path), _N_ROWS_LOOKED_AT)
    ]
    entrants = _find_entrants(rows, columns)
    if len(entrants) < _MIN_WIDE_ENTRANTS or not rows:
        return ["lacks two columns of numbers, one for each entrant"]
    other_columns = {*map(str, keys)} - {*entrants, *columns.values(), "cluster"}
    if texts := sorted(name for name in other_columns if not _is_other_number(name)):
        return [f"has the column {texts[0]}, which holds no numbers"]
    return []


def _find_entrants(
    rows: Sequence[Mapping[Any, Any]], columns: Mapping[str, str]
) -> list[str]:
    """Return the columns that hold a number, or nothing, in all of these rows."""
    names = [
        str(name)
        for name in (rows[0] if rows else ())
        if name not in (columns["item"], columns.get("draw"), "cluster")
        and not _is_other_number(str(name))
    ]
    return [
        name
        for name in names
        if all(_is_number(row.get(name)) for row in rows)
        and any(_read_value(row.get(name)) is not None for row in rows)
    ]


def _is_other_number(name: str) -> bool:
    plain_name = name.strip().casefold().replace("-", "_")
    return plain_name in _NAMES_OF_OTHER_NUMBERS or any(
        word in _WORDS_OF_OTHER_NUMBERS for word in plain_name.split("_")
    )


def scores_of_wide(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield the score of each entrant in each row."""
    columns = find_columns(table_files.read_keys(path))
    entrants = list[str]()
    for n, (location, row) in enumerate(table_files.read_rows(path)):
        if n == 0:
            looked_at = itertools.islice(table_files.read_rows(path), _N_ROWS_LOOKED_AT)
            entrants = _find_entrants([row for _, row in looked_at], columns)
        for entrant in entrants:
            yield Score(
                dimension=metric or "score",
                entrant=entrant,
                item=row[columns["item"]],
                draw=_read_draw(row, columns),
                value=_read_score(row.get(entrant), location),
                columns=row,
            )


def _read_draw(row: Mapping[Any, Any], columns: Mapping[str, str]) -> str:
    return table_files.to_text(row.get(columns.get("draw"))) or ""


def _read_score(value: Any, location: str) -> float | None:
    try:
        return _read_value(value)
    except (TypeError, ValueError, OverflowError):
        raise FileError.bad_file(
            location,
            f"has the score {format_value(value)}, which is no number",
            "Leave the cell empty if the score is missing.",
        ) from None


def _is_number(value: Any) -> bool:
    try:
        _ = _read_value(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _read_value(value: Any) -> float | None:
    """Return a score as a number, None where it is missing. Raises ValueError for a word that is no score."""
    if table_files.to_text(value) is None:
        return None
    if isinstance(value, str):
        word = value.strip().casefold()
        return VALUE_BY_WORD[word] if word in VALUE_BY_WORD else float(word)
    return float(value)


FORMATS = (
    Format(
        name="a table of scores",
        required=(),
        find_faults=find_faults_of_long,
        scores=scores_of_long,
        has_answers=True,
        assumption="one row is one score",
    ),
    Format(
        name="a wide table of scores",
        required=(),
        find_faults=find_faults_of_wide,
        scores=scores_of_wide,
        assumption="each column of numbers is an entrant",
    ),
)
