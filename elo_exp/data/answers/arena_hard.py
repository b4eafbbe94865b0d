"""Arena-Hard-Auto: the answers of one model, model_answer/MODEL.jsonl.

github.com/lmarena/arena-hard-auto, gen_answer.py and utils/completion.py
"""

from collections.abc import Mapping
from typing import Any

from elo_exp.data.answers import (
    Format,
    MalformedError,
    message_text,
    parse_name,
    require_list,
)
from elo_exp.data.table_files import Row

# API_ERROR_OUTPUT, in place of an answer
_FAILED_ANSWER = "$ERROR$"


def answer(row: Row) -> Mapping[str, Any]:
    """Turns of user and assistant, perhaps after a system's; the first two are taken."""
    messages = require_list(row["messages"], "messages")
    if messages and messages[0]["role"] == "system":
        messages = messages[1:]
    roles = [message["role"] for message in messages]
    if not roles or roles != ["user", "assistant"] * (len(roles) // 2):
        raise MalformedError(
            f"messages must be of user and assistant in turn; got {', '.join(map(str, roles)):.80}."
        )
    question, reply = messages[0]["content"], messages[1]["content"]
    reply_text = reply["answer"] if isinstance(reply, dict) else reply
    return {
        "id": parse_name(row["uid"], "uid"),
        "prompt": message_text(question, "the user's message"),
        "text": None
        if reply_text in (None, _FAILED_ANSWER)
        else message_text(reply_text, "the answer"),
        "entrant": parse_name(row["model"], "model"),
        "notes": ("first turn",) if len(roles) > 2 else (),
    }


FORMATS = (
    Format(
        name="arena_hard's answers",
        required=("uid", "model", "messages"),
        answer=answer,
    ),
)
