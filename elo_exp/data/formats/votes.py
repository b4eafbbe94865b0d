"""Votes of arenas: LMArena's of 2023 and 2024, and compar:IA's, as conf/arena describes them."""

import json
from collections.abc import Mapping
from typing import Any

from elo_exp.data import battle_texts, table_files
from elo_exp.data.formats import Format, MalformedError
from elo_exp.data.table_files import Row
from elo_exp.errors import format_value

# A missing cell is "none"
_TRUE_FLAGS, _FALSE_FLAGS = ("1", "1.0", "true"), ("0", "0.0", "false", "none")
_WINNER_COLUMNS = {
    "model_a": "winner_model_a",
    "model_b": "winner_model_b",
    "tie": "winner_tie",
}


def read_flags(row: Row, columns: Mapping[str, str | None]) -> str | None:
    """Return the winner whose column is true. Raises MalformedError where two are."""
    winners = {}
    for name, column in columns.items():
        flag = str(table_files.to_text(row.get(column))).lower()
        if flag in _TRUE_FLAGS:
            winners[name] = str(column)
        elif flag not in _FALSE_FLAGS:
            raise MalformedError(
                f"{column} must be true or false, 1 or 0; got {format_value(row[column])}."
            )
    if len(winners) > 1:
        names = " and ".join(winners.values())
        raise MalformedError(
            f"{names} are true, and only one of them can be. Correct or remove the row."
        )
    return next(iter(winners), None)


def lmarena(row: Row) -> Mapping[str, Any]:
    if (winner := read_flags(row, _WINNER_COLUMNS)) is None:
        raise MalformedError(
            f"one of {', '.join(_WINNER_COLUMNS.values())} must be 1; got none."
        )
    return {"winner": winner}


def lmarena_answers(row: Row) -> tuple[str, str] | None:
    """Return the answers, whose columns hold a list of the turns."""
    answers = battle_texts.find_answers(row)
    return answers and (_join_turns(answers[0]), _join_turns(answers[1]))


def _join_turns(cell: str) -> str:
    try:
        turns = json.loads(cell)
    except (ValueError, RecursionError):
        return cell
    is_list = isinstance(turns, list)
    return "\n\n".join(str(turn) for turn in turns if turn) if is_list else cell


def comparia(row: Row) -> Mapping[str, Any]:
    chosen_model = table_files.to_text(row["chosen_model_name"])
    tie = read_flags(row, {"tie": "both_equal"})
    if chosen_model and tie:
        raise MalformedError(
            "chosen_model_name must be empty if both_equal is true; got both."
        )
    return {"winner": tie or chosen_model}


FORMATS = (
    Format(
        name="lmarena_votes",
        required=("model_a", "model_b", *_WINNER_COLUMNS.values()),
        columns={"question_id": "id"},
        fields=lmarena,
        answers=lmarena_answers,
        is_votes=True,
    ),
    Format(
        name="comparia",
        required=("model_a_name", "model_b_name", "chosen_model_name", "both_equal"),
        columns={
            "model_a": "model_a_name",
            "model_b": "model_b_name",
            "question_id": "id",
        },
        fields=comparia,
        is_votes=True,
        assumption="conversations of several turns count as one battle",
    ),
)
