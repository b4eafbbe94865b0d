"""OpenAI's batches: the output and the error file of one, rows in any order, without their prompts.

platform.openai.com/docs/api-reference/batch/request-output
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

_OK_STATUS = 200


def answer(row: Row) -> Mapping[str, Any]:
    response = row["response"] or {}
    body = response.get("body") or {}
    key = parse_name(row["custom_id"], "custom_id")
    if key is None:
        raise MalformedError("custom_id must be a name; got null.")
    entrant = parse_name(body.get("model"), "body.model")
    if row["error"] or response.get("status_code") != _OK_STATUS:
        return {"id": key, "text": None, "entrant": entrant, "is_failed": True}
    answer_fields = _parse_responses(body) if "output" in body else _parse_chat(body)
    return {"id": key, "entrant": entrant, **answer_fields}


def _parse_chat(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parse a body of /v1/chat/completions. A refusal is an answer."""
    choice, *others = require_list(body["choices"], "choices")
    message = choice["message"]
    content = message["content"]
    reply = message.get("refusal") if content is None else content
    return {
        "text": message_text(reply or "", "content"),
        "is_cut": choice["finish_reason"] == "length",
        "notes": ("first choice",) if others else (),
    }


def _parse_responses(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parse a body of /v1/responses: the texts of its messages."""
    messages = [part["content"] for part in body["output"] if part["type"] == "message"]
    parts = [part for content in messages for part in content]
    texts = [
        {"type": "text", "text": part["refusal"]} if "refusal" in part else part
        for part in parts
    ]
    reason = (body.get("incomplete_details") or {}).get("reason")
    return {
        "text": message_text(texts, "output"),
        "is_cut": reason == "max_output_tokens",
    }


FORMATS = (
    Format(
        name="OpenAI batch output",
        required=("custom_id", "response", "error"),
        answer=answer,
    ),
)
