"""What was recorded of a conversation or of an agent's work: the question, what followed, and what it took."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from elo_exp.data import table_files, thoughts
from elo_exp.data.field_names import fold_spaces
from elo_exp.errors import FileError
from elo_exp.records import Message, Prompt

Messages = tuple[Message, ...]


def parse_messages(rows: Iterable[Any], location: str) -> Messages:
    """Read messages as OpenAI or Inspect write them. Raises FileError for the first that is of another make."""
    message_list = []
    for number, row in enumerate(rows, start=1):
        try:
            message = Message.from_dict(row)
        except ValueError as error:
            raise FileError(f"{location}: message {number} {error}") from None
        except (LookupError, TypeError, AttributeError) as error:
            raise FileError(
                f"{location}: message {number} must have role and content; {table_files.describe_row_error(error)}."
            ) from None
        message_list.append(_drop_thought(message))
    return tuple(message_list)


def _drop_thought(message: Message) -> Message:
    """Leave out the thought that an assistant's message begins with, as it is of an entrant's answers."""
    if message.role != "assistant" or not thoughts.OPEN_AT_START.match(message.content):
        return message
    return replace(message, content=thoughts.split_thought(message.content)[0])


def split_question(
    conversation: Sequence[Message], known_question: Sequence[Message] = ()
) -> tuple[Messages, Messages]:
    """Return what was asked and what followed, which begins with the first message of the assistant.

    Whatever system message an agent puts before is no part of the question.

    known_question  the question if it is known: an assistant's messages in it are not yet the answer
    """
    question_messages = drop_system(known_question)
    indices = [i for i, message in enumerate(conversation) if message.role != "system"]
    opening = [conversation[i] for i in indices[: len(question_messages)]]
    start = (
        indices[len(question_messages) - 1] + 1
        if question_messages and opening == list(question_messages)
        else 0
    )
    answer_start = next(
        (
            i
            for i in range(start, len(conversation))
            if conversation[i].role == "assistant"
        ),
        len(conversation),
    )
    return question_messages or drop_system(conversation[:answer_start]), tuple(
        conversation[answer_start:]
    )


def drop_system(conversation: Sequence[Message]) -> Messages:
    """Return what a user asks, without what the system is told."""
    return tuple(message for message in conversation if message.role != "system")


def matches_prompt(
    question_messages: Sequence[Message],
    text: str | None,
    answer: Sequence[Message],
    prompt: Prompt,
) -> bool:
    """Whether the user of a recorded conversation begins with the turns of a prompt, whatever the white space.

    question_messages, text  the question, as messages or, where these are none, as text
    """
    prompt_turns = _turns(prompt.messages) or [fold_spaces(prompt.text)]
    recorded_turns = (_turns(question_messages) or [fold_spaces(text or "")]) + _turns(
        answer
    )
    return recorded_turns[: len(prompt_turns)] == prompt_turns


def _turns(messages: Sequence[Message]) -> list[str]:
    return [
        fold_spaces(message.content) for message in messages if message.role == "user"
    ]


def is_words(answer: Sequence[Message]) -> bool:
    """Whether an answer is the words of one message, or nothing."""
    return not answer or (len(answer) == 1 and answer[0].is_words)


def count_effort(answer: Sequence[Message]) -> Mapping[str, int]:
    """Count the steps of an answer, messages of the assistant, and the calls of tools in them."""
    steps = [message for message in answer if message.role == "assistant"]
    return {
        "steps": len(steps),
        "calls": sum(len(message.tool_calls) for message in steps),
    }


def finish_reason(answer: Sequence[Message]) -> str:
    """Return why an answer ended: stop, or tool_calls where nobody has run the last call."""
    return "tool_calls" if answer and answer[-1].tool_calls else "stop"


def is_number(value: object) -> bool:
    """Whether a value is a number that can be averaged."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )
