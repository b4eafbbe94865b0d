"""The texts of a row of battles: the question and both answers, under the names that are in use for them."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from elo_exp.data import table_files
from elo_exp.data.table_files import CONVERSATION_PREFIX, Row

# Columns of the answers of model_a and model_b
ANSWER_COLUMNS = (
    *(("response_a", "response_b"), ("answer_a", "answer_b"), ("output_a", "output_b")),
    *(("output_1", "output_2"), ("completion_A", "completion_B"), ("text_a", "text_b")),
    ("conversation_a", "conversation_b"),
)
# Columns that hold the text of a question, or a conversation that begins with it
QUESTION_TEXT_COLUMNS = (
    "prompt",
    "question",
    "instruction",
    "conversation_a",
    "conversation",
)
_WHOLE_CONVERSATION_COLUMN = "full_conversation"
_REASON_COLUMNS = ("reasoning", "reason", "explanation", "rationale", "raw_answer")
_ROLE_OF_ANSWERS = "assistant"
_CATEGORY_COLUMNS = ("category", "prompt_category")
# LMArena's: an object of objects, whose names end in a version
_CATEGORY_TAGS_COLUMN = "category_tag"


def find_answer_columns(keys: Collection[str]) -> tuple[str, str] | None:
    """Return the columns of both answers, or None if no two columns have usual names."""
    return next((pair for pair in ANSWER_COLUMNS if {*pair} <= {*keys}), None)


def find_answers(row: Row) -> tuple[str, str] | None:
    """Return both answers of a row; of conversations what the models said. None if it has no columns of answers."""
    columns = find_answer_columns(row.keys())
    if columns is None:
        return None
    if columns[0].startswith(CONVERSATION_PREFIX):
        a, b = (_join_answers(_parse_list(row[column])) for column in columns)
    else:
        a, b = (table_files.to_text(row[column]) or "" for column in columns)
    return a, b


def find_conversations(row: Row) -> tuple[str, str] | None:
    """Return the same, if need be from the whole conversation with both models."""
    turns = _parse_list(row.get(_WHOLE_CONVERSATION_COLUMN))
    if find_answer_columns(row.keys()) is not None or not turns:
        return find_answers(row)
    sides = (
        [turn.get(f"model_side_{side}") for turn in turns if isinstance(turn, Mapping)]
        for side in ("a", "b")
    )
    a, b = (_join_answers(messages) for messages in sides)
    return a, b


def find_question(row: Row) -> str | None:
    """Return the text of the question, or None if the row has no question."""
    for column in QUESTION_TEXT_COLUMNS:
        question = table_files.question_text(row.get(column), column)
        content = _join_parts(question) if isinstance(question, list) else question
        if text := table_files.to_text(content):
            return text
    return None


def find_category(row: Row) -> str | None:
    """Return the category of the question. If it has several tags, return the tags that are true."""
    for column in _CATEGORY_COLUMNS:
        if isinstance(row.get(column), str) and row[column]:
            return str(row[column])
    tags = _parse_json(row.get(_CATEGORY_TAGS_COLUMN))
    names = [
        name
        for tag, values in (tags.items() if isinstance(tags, Mapping) else ())
        for name in [str(tag).rpartition("_v")[0]]
        if isinstance(values, Mapping) and values.get(name) is True
    ]
    return ", ".join(names) or None


def find_reason(row: Row) -> str:
    """Return why the judge gave its verdict, if the row says so."""
    cells = (row.get(name) for name in _REASON_COLUMNS)
    return next((cell for cell in cells if isinstance(cell, str) and cell), "")


def _parse_json(value: Any) -> Any:
    """Parse a list or an object, which CSV holds as JSON. Return None for any other text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _parse_list(value: Any) -> list[Any]:
    """Return a list; an empty one for anything else."""
    parsed_value = _parse_json(value)
    return parsed_value if isinstance(parsed_value, list) else []


def _join_answers(messages: Sequence[Any]) -> str:
    """Return the texts of the assistant's messages."""
    contents = [
        message.get("content")
        for message in messages
        if isinstance(message, Mapping)
        and message.get("role", _ROLE_OF_ANSWERS) == _ROLE_OF_ANSWERS
    ]
    texts = [
        _join_parts(content) if isinstance(content, list) else content
        for content in contents
    ]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def _join_parts(parts: Sequence[Any]) -> str:
    """Return the texts among the parts of a message."""
    texts = (block.get("text") for block in parts if isinstance(block, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str) and text)
