"""Votes of arenas: LMArena's of 2023 and 2024, and compar:IA's, as conf/arena describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elo_exp.data import tables
from elo_exp.data.formats import INVALID, BattlesFormat, MalformedError
from elo_exp.data.tables import Row

_TRUE = ("1", "1.0", "true", "True")
_WON = {"winner_model_a": "model_a", "winner_model_b": "model_b", "winner_tie": "tie"}


def lmarena(given: Row) -> Mapping[str, Any]:
    won = [word for column, word in _WON.items() if str(given[column]) in _TRUE]
    if len(won) != 1:
        raise MalformedError(
            f"{len(won)} of {', '.join(_WON)} are 1. Expected exactly one of them."
        )
    return {"winner": won[0]}


def comparia(given: Row) -> Mapping[str, Any]:
    chosen = tables.text(given["chosen_model_name"])
    is_tie = str(given["both_equal"]) in _TRUE
    if chosen and is_tie:
        raise MalformedError("names a chosen model, and both_equal is true.")
    return {"winner": "tie" if is_tie else chosen or INVALID}


FORMATS = (
    BattlesFormat(
        name="lmarena_votes",
        required=("model_a", "model_b", *_WON),
        forbidden=("winner",),
        columns={"question_id": "id"},
        row=lmarena,
    ),
    BattlesFormat(
        name="comparia",
        required=("model_a_name", "model_b_name", "chosen_model_name", "both_equal"),
        columns={
            "model_a": "model_a_name",
            "model_b": "model_b_name",
            "question_id": "id",
        },
        row=comparia,
        assumes="conversations of several turns count as one battle",
    ),
)
