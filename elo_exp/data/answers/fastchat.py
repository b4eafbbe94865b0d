"""FastChat, as of MT-bench: the answers of one model, model_answer/MODEL.jsonl, without their prompts.

github.com/lm-sys/FastChat, fastchat/llm_judge/gen_model_answer.py and common.py
"""

from collections.abc import Mapping
from typing import Any

from elo_exp.data.answers import Format, parse_name, require_list, require_text
from elo_exp.data.table_files import Row

# API_ERROR_OUTPUT, in place of an answer
_FAILED_ANSWER = "$ERROR$"


def answer(row: Row) -> Mapping[str, Any]:
    choice, *others = require_list(row["choices"], "choices")
    turn, *later = require_list(choice["turns"], "turns")

    def read_turn(value: Any, label: str) -> str | None:
        return None if value in (None, _FAILED_ANSWER) else require_text(value, label)

    return {
        "id": parse_name(row["question_id"], "question_id"),
        "text": read_turn(turn, "the first turn"),
        "entrant": parse_name(row["model_id"], "model_id"),
        "later_turns": tuple(read_turn(value, "a later turn") for value in later),
        "notes": ("first choice",) if others else (),
    }


FORMATS = (
    Format(
        name="FastChat's answers",
        required=("question_id", "model_id", "choices"),
        answer=answer,
    ),
)
