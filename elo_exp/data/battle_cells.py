"""Cells of a row of battles as values: names, counts, shares, draws and styles.

Functions raise MalformedError for a cell that does not hold such a value.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from elo_exp.data import formats, table_files
from elo_exp.data.formats import MalformedError
from elo_exp.data.table_files import Cell, Nested, Row
from elo_exp.data.writing_style import FEATURES
from elo_exp.errors import format_value

MAX_NAME_CHARS = 200
CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")
COUNT_RULE = "must be a whole number of battles, 1 or more"
NO_COUNT_HINT = "If the column holds no counts, set battles_columns.count=null."
_POSITIVE_INTEGER = re.compile(r"0*([1-9]\d*)(\.0*)?", re.ASCII)
_MAX_BATTLES_PER_ROW = 2**31 - 1


def cell_to_text(value: Any) -> str | None:
    """Return a value of a file, or a cell of it, as text; a list or an object as JSON."""
    if isinstance(value, str):
        return value or None
    value = table_files.to_cell(value)
    return value.text if isinstance(value, Nested) else table_files.to_text(value)


def to_model_name(value: Cell) -> str | None:
    """Return the name of a model; None if the cell holds no name."""
    text = None if isinstance(value, Nested) else table_files.to_text(value)
    return text if text is not None and is_name(text) else None


def is_name(text: str) -> bool:
    return len(text) <= MAX_NAME_CHARS and not CONTROL_CHARACTER.search(text)


def parse_score(text: str, winner: str, reconciled: str | None) -> float:
    """Return the share of model_a. Two orders that disagree, or are ties, may still lean to one side."""
    with suppress(ValueError):
        score = float(text)
        is_tie = reconciled is not None and winner == "tie"
        if 0.0 <= score <= 1.0 and (is_tie or formats.winner_of(score) in winner):
            return score
    raise MalformedError(
        f"score must be the share of model_a, between 0 and 1, and above 0.5 if it wins; got {format_value(text)} for "
        f"winner={winner}."
    )


def count_battles(row: Row) -> int:
    """Return how many battles a row stands for."""
    match = _POSITIVE_INTEGER.fullmatch(cell_to_text(row.get("count")) or "")
    return int(match[1]) if match else 1


def parse_count(column: str, text: str) -> int:
    match = _POSITIVE_INTEGER.fullmatch(text)
    if match is None:
        raise MalformedError(
            f"{column} {COUNT_RULE}; got {format_value(text)}. {NO_COUNT_HINT}"
        )
    if (count := int(match[1])) > _MAX_BATTLES_PER_ROW:
        raise MalformedError(
            f"{column} must be at most {_MAX_BATTLES_PER_ROW:,} battles in a row; got {format_value(text)}."
        )
    return count


def parse_draw(column: str, row: Row) -> int:
    """Return which answer of a model was compared; the first if the row does not name it."""
    text = cell_to_text(row.get(column)) or "0"
    if not re.fullmatch(r"[0-9]{1,6}(\.0*)?", text):
        raise MalformedError(
            f"{column} must be a whole number of 0 or more; got {format_value(text)}."
        )
    return int(text.partition(".")[0])


def parse_style(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    with suppress(TypeError, ValueError):
        counts = tuple(map(int, json.loads(text)))
        if len(counts) == len(FEATURES):
            return counts
    raise MalformedError(
        f"style must be a list of counts ({', '.join(FEATURES)}); got {format_value(text)}."
    )


def quote_names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
