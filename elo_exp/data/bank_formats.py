"""Banks of messages, told apart by the keys of a row: MT-Bench, conversations of an arena, OpenAI messages."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeGuard

from elo_exp.data import conversations, field_names, recorded_work
from elo_exp.data.table_files import Row
from elo_exp.errors import FileError, format_value
from elo_exp.records import Message, Prompt, canonical_json

_ID_FIELDS = (*field_names.ID, "custom_id")
BankFields = dict[
    str, Any
]  # the fields of a bank's row, prompt_id among them where there is one


def parse_row(row: Row, location: str, *, history: bool) -> BankFields | None:
    """Return the fields of a bank's row from one in a public form; None for one in another.

    history  of an arena's conversation, keep what model_a said, and ask the last turn
    Raises FileError for a row that is none of its form.
    """
    turns = row.get("turns")
    if {"question_id", "category"} <= row.keys() and _is_text_list(turns) and turns[1:]:
        return _parse_mt_bench(row, turns)
    if {"conversation_a", "conversation_b"} <= row.keys():
        return _parse_arena(
            row, _parse_list(row["conversation_a"]), location, history=history
        )
    prompt, answers = row.get("prompt"), _parse_list(row.get("response_a"))
    if _is_text_list(questions := _parse_list(prompt) if answers else prompt):
        turn_pairs = zip_longest(questions, (answers or [])[: len(questions)])
        turns = [
            {"role": role, "content": text}
            for pair in turn_pairs
            for role, text in zip(("user", "assistant"), pair, strict=True)
            if text is not None
        ]
        return _parse_arena(row, turns, location, history=history)
    if isinstance(prompt, list) and prompt:
        return _parse_messages(row, prompt, location)
    if isinstance(messages := _parse_list(row.get("messages")), list) and messages:
        is_text = isinstance(field_names.find_prompt(row), str)
        return None if is_text else _parse_messages(row, messages, location)
    return None


def _is_text_list(value: Any) -> TypeGuard[list[str]]:
    """Whether a value is a list of texts."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(x, str) for x in value)
    )


def _parse_mt_bench(row: Row, turns: Sequence[str]) -> BankFields:
    """github.com/lm-sys/FastChat, fastchat/llm_judge/data/mt_bench/question.jsonl.

    The id is that of the file, under which answers to first turns are stored, and FastChat's own answers stand.
    """
    reference = row.get("reference")
    return {
        "prompt_id": str(row["question_id"]),
        "source": "mt_bench",
        "subject": str(row["category"]),
        "messages": [{"role": "user", "content": text} for text in turns],
        **({"gold_answer": reference} if reference else {}),
    }


def _parse_arena(row: Row, turns: Any, location: str, *, history: bool) -> BankFields:
    """huggingface.co/datasets/lmarena-ai/arena-human-preference-140k and those before it.

    Later turns of a user answer another model's words, so the first alone is asked, but with `history`.
    """
    if not turns or not all(isinstance(message, Mapping) for message in turns):
        raise FileError(f"{location} has no conversation. It must be a list of messages with role and content.")  # fmt: skip
    user_indices = [
        i for i, message in enumerate(turns) if message.get("role") == "user"
    ]
    if not user_indices:
        raise FileError(f"{location} has no message of the user. Leave the row out.")
    question_index = user_indices[-1] if history else user_indices[0]
    question_messages = (
        turns[: question_index + 1]
        if history
        else turns[question_index : question_index + 1]
    )
    metadata = _read_metadata(row, question_messages)
    return {
        **metadata,
        "messages": question_messages,
        "tags": [f"turns:{len(user_indices)}"],
    }


def _parse_messages(row: Row, messages: Sequence[Any], location: str) -> BankFields:
    """Messages of OpenAI's Chat Completions; a last one of the assistant is the reference."""
    *question_messages, last = messages
    is_answered = isinstance(last, Mapping) and last.get("role") == "assistant"
    if not is_answered or last.get("tool_calls") or not question_messages:
        return {**_read_metadata(row, messages), "messages": messages}
    if field_names.first_value(row, field_names.REFERENCE) is not None:
        raise FileError.bad_file(
            location,
            "has a reference, and its messages end with an answer, which would be another",
            "Leave one of them out.",
        )
    bank_fields = {
        **_read_metadata(row, question_messages),
        "messages": question_messages,
    }
    return {**bank_fields, "gold_answer": last.get("content")}


def _read_metadata(row: Row, messages: Sequence[Any]) -> BankFields:
    """Return the fields of a row under the names in common use."""
    key = field_names.first_value(row, _ID_FIELDS)
    metadata = {
        "prompt_id": None if key is None else str(key),
        "source": field_names.first_value(row, field_names.SOURCE),
        "subject": row.get("subject"),
        "gold_answer": field_names.first_value(row, field_names.REFERENCE),
        "expected_behavior": row.get("expected_behavior"),
        "tags": row.get("tags"),
    }
    return {name: value for name, value in metadata.items() if value is not None}


def _parse_list(value: Any) -> list[Any] | None:
    """Return a list, which CSV holds as JSON; None for anything else."""
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) else None


# Messages of a row


def parse_conversation(row: Mapping[str, Any], location: str) -> Prompt:
    """Return the prompt of a row with `messages`.

    Raises FileError for messages that cannot be asked, and for references that are not one for each turn.
    """
    messages = recorded_work.parse_messages(row["messages"], location)
    fault = _find_fault(messages)
    gold = row.get("gold_answer")
    texts = gold if isinstance(gold, list) else [gold]
    turns = [text or "" for text in texts] if any(texts) else []
    n = len(conversations.question_indices(messages))
    if not fault and turns and len(turns) != n:
        s = "s" if turns[1:] else ""
        fault = f"gold_answer must have one text for each of the {n} turns; got {len(turns)} text{s}."
    if not fault and not all(isinstance(text, str) for text in turns):
        fault = f"gold_answer must be a text, or one for each turn; got {format_value(gold)}."
    if fault:
        raise FileError(f"{location}: {fault}")
    metadata = {name: row[name] for name in ("prompt_id", "source", "subject")}
    prompt = Prompt(
        **metadata,
        text=conversations.transcript(messages),
        gold_answer=turns[0] if len(turns) == 1 else None,
        gold_turns=tuple(turns) if len(turns) > 1 else (),
        expected_behavior=row.get("expected_behavior"),
        tags=tuple(row.get("tags") or ()),
        messages=messages,
    )
    return conversations.add_reference(prompt)


def hash_messages(messages: Sequence[Any]) -> str:
    """Return the id of messages that have none: 12 digits of their content."""
    return hashlib.sha256(canonical_json(messages).encode()).hexdigest()[:12]


def _find_fault(messages: Sequence[Message]) -> str:
    """Say what is wrong with messages; "" where they can be asked."""
    if any(message.role == "system" for message in messages[1:]):
        return "a system message is not the first."
    calls = {call.call_id for message in messages for call in message.tool_calls}
    for message in messages:
        if message.role == "tool" and message.tool_call_id not in calls:
            return f"a tool speaks, and no call has the id {message.tool_call_id!r}."
    if not messages or messages[-1].role != "user":
        end = (
            f"messages end with a {messages[-1].role}" if messages else "none is there"
        )
        return f"no user turn is open: {end.replace('a assistant', 'an assistant')}."
    for n, message in enumerate(messages, start=1):
        if message.role == "user" and not message.content.strip():
            return f"message {n} is empty."
    return ""
