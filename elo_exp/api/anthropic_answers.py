"""What the Anthropic API's answers say. They are read as they came: a status of 200 may be a login
page's, and the SDK holds an answer to no shape."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from elo_exp.api.batches import RemoteBatch, Row
from elo_exp.api.costs import n_tokens
from elo_exp.api.jobs import Completion
from elo_exp.api.transport import error_in


def json_of(response: Any) -> Any:
    """The JSON of a raw response; None for what is none."""
    try:
        return response.http_response.json()
    except (ValueError, RecursionError):
        return None


class OddAnswerError(ValueError):
    """What came back with status 200 is not what was asked for."""

    def __init__(self, answer: Any, wanted: str) -> None:
        super().__init__(
            f"it answered with something else than {wanted}{error_in(answer)}"
        )


def message_in(answer: Any) -> dict[str, Any]:
    """A message. Raises OddAnswerError for anything else, such as the error of a gateway."""
    match answer:
        case {"type": "message", "content": list(), "stop_reason": str()}:
            return dict(answer)
    raise OddAnswerError(answer, "a message")


def count_in(answer: Any) -> int:
    """How many tokens were counted. Raises OddAnswerError for what is no count."""
    match answer:
        case {"input_tokens": int(n)} if n >= 0:
            return n
    raise OddAnswerError(answer, "a count of tokens")


def check_model_in(answer: Any) -> None:
    """Raise OddAnswerError for what is not the description of a model."""
    match answer:
        case {"id": str()}:
            return
    raise OddAnswerError(answer, "a model")


def batch_in(answer: Any) -> RemoteBatch:
    """A batch. Raises OddAnswerError for what is none, and ValueError for one that expires at no
    time."""
    match answer:
        case {
            "id": str(batch_id),
            "processing_status": str(status),
            "created_at": str(created_at),
            "expires_at": str(expires_at),
            "request_counts": {
                "processing": int(processing),
                "succeeded": int(succeeded),
                "errored": int(errored),
                "canceled": int(canceled),
                "expired": int(expired),
            },
        }:
            size = processing + succeeded + errored + canceled + expired
            return RemoteBatch(
                batch_id=batch_id,
                size=size,
                n_rows=size,
                ended=status == "ended",
                archived=answer.get("archived_at") is not None,
                lifetime_seconds=_seconds_between(created_at, expires_at),
            )
    raise OddAnswerError(answer, "a batch")


def _seconds_between(start: str, end: str) -> float:
    return (
        datetime.fromisoformat(end).timestamp()
        - datetime.fromisoformat(start).timestamp()
    )


def page_in(answer: Any) -> tuple[list[RemoteBatch], str | None]:
    """Some batches, newest first; and after which one the next page begins, None where there is
    none. Raises OddAnswerError for what is no list of batches."""
    match answer:
        case {"data": list(rows)}:
            batches = [batch_in(row) for row in rows]
            return batches, batches[-1].batch_id if batches and answer.get(
                "has_more"
            ) else None
    raise OddAnswerError(answer, "a list of batches")


def row_in(line: Any) -> Row:
    """A line of a batch's results. What is no message did not succeed, whatever the line says."""
    row = line if isinstance(line, Mapping) else {}
    custom_id = str(row.get("custom_id"))
    match row.get("result"):
        case {"type": "succeeded", "message": answer}:
            try:
                return Row(
                    custom_id=custom_id, outcome="succeeded", message=message_in(answer)
                )
            except OddAnswerError as odd:
                outcome = _kind_of(answer) or "api_error"
                return Row(
                    custom_id=custom_id,
                    outcome=outcome,
                    detail=str(odd),
                    possibly_billed=True,
                )
        case {"type": "errored", "error": {"error": {"type": str(kind), **rest}}}:
            return Row(
                custom_id=custom_id, outcome=kind, detail=str(rest.get("message", ""))
            )
        case {"type": "expired" | "canceled" as outcome}:
            return Row(custom_id=custom_id, outcome=outcome)
    return Row(custom_id=custom_id, outcome=None)


def _kind_of(answer: Any) -> str | None:
    """The type of the error that an answer is; None for another answer."""
    match answer:
        case {"error": {"type": str(kind)}}:
            return kind
    return None


def parse_message(message: Mapping[str, Any]) -> Completion:
    """What a message says; of its model, the name that the server gives."""
    return Completion(
        text=text_of(message),
        stop_reason=str(message.get("stop_reason")),
        usage=usage_of(message),
        model=message.get("model"),
    )


def usage_of(message: Mapping[str, Any]) -> dict[str, int]:
    """The tokens of a message by class; the writes of a server that does not tell them apart are
    5-minute ones."""
    written = n_tokens(message, "usage", "cache_creation_input_tokens")
    one_hour = n_tokens(message, "usage", "cache_creation", "ephemeral_1h_input_tokens")
    five_minutes = n_tokens(
        message, "usage", "cache_creation", "ephemeral_5m_input_tokens"
    )
    return {  # in the order in which the store gives it back
        "cache_read_tokens": n_tokens(message, "usage", "cache_read_input_tokens"),
        "cache_write_1h_tokens": one_hour,
        "cache_write_5m_tokens": max(five_minutes, written - one_hour),
        "input_tokens": n_tokens(message, "usage", "input_tokens"),
        "output_tokens": n_tokens(message, "usage", "output_tokens"),
    }


def text_of(message: Mapping[str, Any]) -> str:
    """What a message says: its text blocks. Others, such as thinking, may come before them."""
    content = message.get("content")
    blocks = (
        [block for block in content if isinstance(block, Mapping)]
        if isinstance(content, list)
        else []
    )
    text = "".join(
        str(block.get("text") or "") for block in blocks if block.get("type") == "text"
    )
    return text.encode(
        errors="replace"
    ).decode()  # half a surrogate pair is no text; the message has it
