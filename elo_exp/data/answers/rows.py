"""Plain rows: any table with an answer, and a prompt or an id, under names that are in use for them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elo_exp.data import fields, tables
from elo_exp.data.answers import (
    Answer,
    Format,
    MalformedError,
    malformed,
    name,
    reference_of,
    short_cells,
)
from elo_exp.data.tables import Row

_LENGTH = "length"  # of finish_reason: cut off
_RECORDS = ("error", "finish_reason")  # columns that say why there is no answer


def answers(path: Path) -> Iterator[Answer]:
    """Yield each answer. The column of the answers is the same in every row."""
    column = None
    for place, given in tables.rows(path):
        with malformed(place, "plain rows"):
            row = _plain(given)
            chosen = next((key for key in fields.ANSWER if key in row), None)
            column = column or chosen
            if chosen is None or chosen != column:
                raise MalformedError(
                    f"has its answer under {chosen!r}, and rows before it under {column!r}."
                    if chosen
                    else f"has no {column!r}, which other rows have."
                )
            others = [key for key in fields.ANSWER if key in row and key != column]
            prompt = fields.prompt_of({k: v for k, v in row.items() if k != column})
            said = _text(row[column], column)
            if not said and row.get("error"):
                said = None  # a table has an empty cell for it
            yield Answer(
                place=place,
                text=said,
                prompt=None if prompt is None else _text(prompt, "the prompt"),
                id=name(fields.first(row, fields.ID), "the id"),
                entrant=name(fields.first(row, fields.ENTRANT), "the model"),
                reference=reference_of(fields.first(row, fields.REFERENCE)),
                source=name(fields.first(row, fields.SOURCE), "the source"),
                is_cut=row.get("finish_reason") == _LENGTH,
                is_failed=said is None and any(row.get(name) for name in _RECORDS),
                notes=[f"answer by {column!r}, not {key!r}" for key in others],
                columns=short_cells(row),
            )


def _text(value: Any, what: str) -> str | None:
    """Return a text or a number as text; None for null and NaN."""
    if value == "":
        return ""
    if isinstance(value, list | dict | bool):
        raise MalformedError(f"{what} is {value!r:.80}. Expected a text.")
    return tables.text(value)


def _plain(row: Row) -> Row:
    """Return a row by names in small letters, without spaces around them."""
    found = {str(key).strip().casefold().replace(" ", "_"): row[key] for key in row}
    if len(found) < len(row):
        raise MalformedError(
            "has two columns whose names differ in spaces or capitals."
        )
    return found


def _lacks(keys: set[str]) -> str:
    found = _plain(dict.fromkeys(keys))
    if not any(key in found for key in fields.ANSWER):
        return _none_of("answer", fields.ANSWER)
    if not any(key in found for key in (*fields.PROMPT, *fields.ID)):
        return _none_of("prompt and no id", (*fields.PROMPT, *fields.ID))
    return ""


def _none_of(what: str, names: Sequence[str]) -> str:
    return f"no {what}: none of {', '.join(names)}."


FORMATS = (Format(name="plain rows", answers=answers, lacks=_lacks),)
