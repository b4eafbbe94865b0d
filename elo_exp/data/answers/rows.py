"""Plain rows: any table with an answer, and a prompt or an id, under names that are in use for them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elo_exp.data import column_roles, field_names, table_files
from elo_exp.data.answers import (
    WIDE_TABLE,
    Answer,
    Format,
    MalformedError,
    convert_row_errors,
    parse_name,
    parse_reference,
    short_cells,
)
from elo_exp.data.table_files import Row, Source
from elo_exp.errors import format_value

_CUT_FINISH_REASON = "length"
_FAILURE_COLUMNS = ("error", "finish_reason")
_DRAW_COLUMNS = column_roles.NAMES_BY_ROLE["draw"]
# A table with a column of one of these roles has another form
_ROLES_OF_OTHER_TABLES = (
    *("entrant", "answer", "score", "model_a", "model_b", "verdict", "answer_a"),
    *("answer_b", "judge_score", "human_label"),
)


def answers(path: Source) -> Iterator[Answer]:
    """Yield each answer. The column of the answers is the same in every row.

    Rows of one entrant and one prompt are draws if a column numbers them, in the order of the file.
    """
    column = None
    draws_by_prompt = defaultdict[tuple[str | None, str | None], list[Any]](list)
    for location, raw_row in table_files.read_rows(path):
        with convert_row_errors(location, "plain rows"):
            row = _normalise_names(raw_row)
            answer_column = next(
                (key for key in field_names.ANSWER if key in row), None
            )
            column = column or answer_column
            if answer_column is None or answer_column != column:
                raise MalformedError(
                    f"the answer is in the column {answer_column}, and rows before it have it in {column}."
                    if answer_column
                    else f"the row has no column {column}, which other rows have."
                )
            answer = _read_answer(row, column, location)
            draws = draws_by_prompt[answer.entrant, answer.prompt or answer.id]
            draw = field_names.first_value(row, _DRAW_COLUMNS)
            if draw not in draws:
                draws.append(draw)
            yield replace(answer, draw_idx=draws.index(draw))


def _read_answer(row: Row, column: str, location: str) -> Answer:
    other_columns = [key for key in field_names.ANSWER if key in row and key != column]
    prompt = field_names.find_prompt({k: v for k, v in row.items() if k != column})
    answer_text = _to_text(row[column], column)
    if not answer_text and row.get("error"):
        answer_text = None  # a table has an empty cell for it
    return Answer(
        location=location,
        text=answer_text,
        prompt=None if prompt is None else _to_text(prompt, "the prompt"),
        id=parse_name(field_names.first_value(row, field_names.ID), "the id"),
        entrant=parse_name(
            field_names.first_value(row, field_names.ENTRANT), "the model"
        ),
        reference=parse_reference(field_names.first_value(row, field_names.REFERENCE)),
        source=parse_name(
            field_names.first_value(row, field_names.SOURCE), "the source"
        ),
        is_cut=row.get("finish_reason") == _CUT_FINISH_REASON,
        is_failed=answer_text is None
        and any(row.get(name) for name in _FAILURE_COLUMNS),
        notes=[f"answer by {column!r}, not {key!r}" for key in other_columns],
        columns=short_cells(row),
    )


def _to_text(value: Any, label: str) -> str | None:
    """Return a text or a number as text; None for null and NaN."""
    if value == "":
        return ""
    if isinstance(value, list | dict | bool):
        raise MalformedError(f"{label} must be text; got {format_value(value)}.")
    return table_files.to_text(value)


def _normalise_names(row: Row) -> Row:
    """Return a row by names in small letters, without spaces around them."""
    plain_row = {column_roles.simplify_name(key): row[key] for key in row}
    if len(plain_row) < len(row):
        raise MalformedError("two column names differ only in spaces or capitals.")
    return plain_row


def _find_lack(keys: set[str]) -> str:
    plain_keys = _normalise_names(dict.fromkeys(keys))
    if not any(key in plain_keys for key in field_names.ANSWER):
        return _describe_lack("answer", field_names.ANSWER)
    if not any(key in plain_keys for key in (*field_names.PROMPT, *field_names.ID)):
        return _describe_lack(
            "prompt and no id", (*field_names.PROMPT, *field_names.ID)
        )
    return ""


def _describe_lack(noun: str, names: Sequence[str]) -> str:
    return f"has no {noun} column ({', '.join(names[:-1])} or {names[-1]})"


# A column of texts for each entrant


def find_wide_columns(path: Source) -> list[str]:
    """Return the columns that may be the answers of an entrant each; none if the table is of another kind.

    Such a column has a name that says nothing else, and texts that mostly differ from row to row.
    """
    plain_names = set(map(column_roles.simplify_name, table_files.read_keys(path)))
    names_of_other_tables = {
        name
        for role in _ROLES_OF_OTHER_TABLES
        for name in column_roles.NAMES_BY_ROLE[role]
    }
    if plain_names & names_of_other_tables:
        return []
    return [
        name
        for name, texts in column_roles.find_text_columns(path).items()
        if len(set(texts)) > len(texts) / 2
    ]


def wide_answers(path: Path) -> Iterator[Answer]:
    """Yield the answer of each entrant in each row."""
    columns = {"answer": find_wide_columns(path)}
    return answers(
        column_roles.name_columns(path, columns, column_roles.ANSWER_COLUMNS)
    )


def _find_lack_of_wide(keys: set[str]) -> str:
    plain_keys = _normalise_names(dict.fromkeys(keys))
    if plain_keys.keys().isdisjoint(field_names.PROMPT):
        return "has no prompt column"
    return ""


def _find_fault_of_wide(path: Source) -> str:
    n_columns = len(find_wide_columns(path)) if isinstance(path, Path) else 0
    return "" if n_columns > 1 else "has no two columns of answers"


FORMATS = (
    Format(name="plain rows", answers=answers, find_lack=_find_lack),
    Format(
        name=WIDE_TABLE,
        answers=wide_answers,
        find_lack=_find_lack_of_wide,
        find_fault_of_rows=_find_fault_of_wide,
    ),
)
