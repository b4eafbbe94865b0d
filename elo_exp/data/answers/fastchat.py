"""FastChat, as of MT-bench: the answers of one model, model_answer/MODEL.jsonl, without their prompts.

github.com/lm-sys/FastChat, fastchat/llm_judge/gen_model_answer.py and common.py
"""

from collections.abc import Mapping
from typing import Any

from elo_exp.data.answers import Format, listed, name, text
from elo_exp.data.tables import Row

_FAILED = "$ERROR$"  # API_ERROR_OUTPUT, in place of an answer


def answer(row: Row) -> Mapping[str, Any]:
    first, *others = listed(row["choices"], "choices")
    turn, *later = listed(first["turns"], "turns")

    def said(one: Any, what: str) -> str | None:
        return None if one in (None, _FAILED) else text(one, what)

    return {
        "id": name(row["question_id"], "question_id"),
        "text": said(turn, "the first turn"),
        "entrant": name(row["model_id"], "model_id"),
        "later": tuple(said(one, "a later turn") for one in later),
        "notes": ("first choice",) if others else (),
    }


FORMATS = (
    Format(
        name="FastChat's answers",
        required=("question_id", "model_id", "choices"),
        answer=answer,
    ),
)
