"""Rows of whole conversations, in the messages of OpenAI's Chat Completions, with the calls of tools."""

from collections.abc import Mapping
from typing import Any

from elo_exp.data import conversations, fields, trajectories
from elo_exp.data.answers import Format, MalformedError, listed, name, reference_of
from elo_exp.data.tables import Row
from elo_exp.records import UserError

_ID = (*fields.ID, "custom_id")


def answer(row: Row) -> Mapping[str, Any]:
    """The answer begins with the first message of the assistant."""
    try:
        messages = trajectories.messages(listed(row["messages"], "messages"), "row")
    except UserError as error:
        raise MalformedError(str(error).removeprefix("row: ")) from None
    asked, said = trajectories.parted(messages)
    if not asked or not (said or row.get("error")):
        raise MalformedError(
            "messages are no question and an answer. Expected a user's message, and what followed; a file of "
            "questions is prompts=FILE."
        )
    number = row.get("draw_idx") or 0
    if not isinstance(number, int) or number < 0:
        raise MalformedError(f"draw_idx is {number!r:.80}. Expected a number from 0.")
    is_text, is_words = len(asked) == 1, trajectories.is_words(said)
    reason = row.get("finish_reason")
    recorded: dict[str, Any] = {"diagnostics": _effort(row, () if is_words else said)}
    if reason or not is_words:
        recorded["finish_reason"] = reason or trajectories.reason(said)
    return {
        "id": name(fields.first(row, _ID), "the id"),
        "draw_idx": number,
        "prompt": asked[0].content if is_text else conversations.transcript(asked),
        "asked": () if is_text else asked,
        "text": None if row.get("error") else conversations.final(said),
        "messages": () if is_words else said,
        "entrant": name(fields.first(row, fields.ENTRANT), "the model"),
        "reference": reference_of(fields.first(row, fields.REFERENCE)),
        "source": name(fields.first(row, fields.SOURCE), "the source"),
        "is_cut": reason == "length",
        "is_failed": bool(row.get("error")),
        "recorded": {key: value for key, value in recorded.items() if value},
    }


def _effort(row: Row, said: trajectories.Messages) -> dict[str, Any]:
    """What an answer of more than words took, and of any answer what the row says of it."""
    found: dict[str, Any] = {**trajectories.effort(said)} if said else {}
    used = row.get("usage")
    n = used.get("total_tokens") if isinstance(used, Mapping) else None
    for key, value in {"tokens": n, "seconds": row.get("seconds")}.items():
        if value is not None and not trajectories.is_number(value):
            raise MalformedError(f"{key}: found {value!r:.80}. Expected a number.")
        found |= {} if value is None else {key: value}
    return found


FORMATS = (Format(name="conversations", required=("messages",), answer=answer),)
