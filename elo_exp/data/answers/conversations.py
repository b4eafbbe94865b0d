"""Rows of whole conversations, in the messages of OpenAI's Chat Completions, with the calls of tools."""

from collections.abc import Mapping
from typing import Any

from elo_exp.data import conversations, field_names, recorded_work
from elo_exp.data.answers import (
    Format,
    MalformedError,
    parse_name,
    parse_reference,
    require_list,
)
from elo_exp.data.table_files import Row
from elo_exp.errors import UserError, format_value

_ID_FIELDS = (*field_names.ID, "custom_id")


def answer(row: Row) -> Mapping[str, Any]:
    """The answer begins with the first message of the assistant."""
    try:
        messages = recorded_work.parse_messages(
            require_list(row["messages"], "messages"), "row"
        )
    except UserError as error:
        raise MalformedError(str(error).removeprefix("row: ")) from None
    question, reply = recorded_work.split_question(messages)
    if not question or not (reply or row.get("error")):
        raise MalformedError(
            "messages must be a user's message and an answer. If the file holds prompts only, write prompts=FILE."
        )
    draw_idx = row.get("draw_idx") or 0
    if not isinstance(draw_idx, int) or draw_idx < 0:
        raise MalformedError(
            f"draw_idx must be a whole number of 0 or more; got {format_value(draw_idx)}."
        )
    is_text, is_words = len(question) == 1, recorded_work.is_words(reply)
    reason = row.get("finish_reason")
    recorded: dict[str, Any] = {
        "diagnostics": _read_effort(row, () if is_words else reply)
    }
    if reason or not is_words:
        recorded["finish_reason"] = reason or recorded_work.finish_reason(reply)
    return {
        "id": parse_name(field_names.first_value(row, _ID_FIELDS), "the id"),
        "draw_idx": draw_idx,
        "prompt": question[0].content
        if is_text
        else conversations.transcript(question),
        "question_messages": () if is_text else question,
        "text": None if row.get("error") else conversations.final_answer(reply),
        "messages": () if is_words else reply,
        "entrant": parse_name(
            field_names.first_value(row, field_names.ENTRANT), "the model"
        ),
        "reference": parse_reference(
            field_names.first_value(row, field_names.REFERENCE)
        ),
        "source": parse_name(
            field_names.first_value(row, field_names.SOURCE), "the source"
        ),
        "is_cut": reason == "length",
        "is_failed": bool(row.get("error")),
        "recorded": {key: value for key, value in recorded.items() if value},
    }


def _read_effort(row: Row, reply: recorded_work.Messages) -> dict[str, Any]:
    """Return the effort of an answer of more than words, and the tokens and seconds that the row records."""
    effort: dict[str, Any] = {**recorded_work.count_effort(reply)} if reply else {}
    usage = row.get("usage")
    n = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    for key, value in {"tokens": n, "seconds": row.get("seconds")}.items():
        if value is not None and not recorded_work.is_number(value):
            raise MalformedError(f"{key} must be a number; got {format_value(value)}.")
        effort |= {} if value is None else {key: value}
    return effort


FORMATS = (Format(name="conversations", required=("messages",), answer=answer),)
