"""Conversations: which turns are asked, what an entrant is sent next, and how a judge is shown what was said.

A judge is shown an answer of several messages as blocks, <turn role="assistant">, that nothing in a text can open or
close. What has to be left out is said where it stood.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

from elo_exp.data.field_names import fold_spaces
from elo_exp.errors import format_value
from elo_exp.records import Comparison, Message, Prompt, Response
from elo_exp.types import Count

View = Literal["whole", "final"]
_RESERVED_TAG = re.compile(r"<(?=\s*+/?\s*+(?:turn|call|left_out)\b)", re.IGNORECASE)
_NON_NAME_CHARACTER = re.compile(r"[^A-Za-z0-9_.-]")
_ASSISTANT_TURN = re.compile(
    r'^<turn role="assistant">\n(.*?)\n?^</turn>$', re.DOTALL | re.M
)
_CALL_BLOCK = re.compile(r"^<call>.*?</call>$\n?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """How much of an answer a judge is shown; conf/judged.yaml describes the fields."""

    view: View
    turns: Count | None
    tool_chars: Count
    answer_chars: Count


@dataclass(frozen=True, kw_only=True)
class ViewOverrides:
    """What a rubric shows otherwise than judging.shown; None: as it says there."""

    view: View | None = None
    turns: Count | None = None
    tool_chars: Count | None = None
    answer_chars: Count | None = None

    def apply(self, settings: ViewSettings) -> ViewSettings:
        changes = {name: x for name, x in vars(self).items() if x is not None}
        return replace(settings, **changes)


# What is asked


def question_indices(messages: Sequence[Message]) -> list[int]:
    """Return the places of the turns that are asked: user messages that no assistant message follows."""
    next_messages = [*messages[1:], None]
    return [
        i
        for i, (message, next_message) in enumerate(
            zip(messages, next_messages, strict=True)
        )
        if message.role == "user"
        and (next_message is None or next_message.role == "user")
    ]


def n_turns(prompt: Prompt) -> int:
    """Return how many turns of a prompt are asked."""
    return len(question_indices(prompt.messages)) if prompt.messages else 1


def insert_answers(
    messages: Sequence[Message], answers: Sequence[Sequence[Message]]
) -> tuple[Message, ...]:
    """Return what an entrant is sent for its next turn: all up to it, its own answers so far put in."""
    places, sent_messages = question_indices(messages), list[Message]()
    for i, message in enumerate(messages[: places[len(answers)] + 1]):
        sent_messages.append(message)
        if i in places[: len(answers)]:
            sent_messages += answers[places.index(i)]
    return tuple(sent_messages)


def build_turn_prompt(prompt: Prompt, answers: Sequence[Response]) -> Prompt:
    """Return the next turn of a conversation as a prompt of its own, after the answers to those before it."""
    sent_messages = insert_answers(
        prompt.messages, [answer_messages(response) for response in answers]
    )
    gold = prompt.gold_answer
    if prompt.gold_turns:
        gold = prompt.gold_turns[len(answers)] or None
    return replace(
        prompt,
        text=transcript(sent_messages),
        messages=sent_messages,
        gold_answer=gold,
        gold_turns=(),
    )


def answer_messages(response: Response) -> tuple[Message, ...]:
    """Return what an entrant said, and what it was told meanwhile, as messages."""
    words = Message(role="assistant", content=response.response_text)
    return response.messages or (words,)


def join_turns(prompt: Prompt, answers: Sequence[Response]) -> Response:
    """Put the answers to all turns of a conversation together.

    The last one has the final answer. A turn that did not end by itself gives the reason; what is recorded of the turns
    stands in `turns` of the diagnostics, what they cost in `dollars`, where all say it.
    """
    if len(answers) == 1:
        return answers[0]
    places = pairwise(question_indices(prompt.messages))
    messages = list(answer_messages(answers[0]))
    for (previous, current), response in zip(places, answers[1:], strict=True):
        messages += [
            *prompt.messages[previous + 1 : current + 1],
            *answer_messages(response),
        ]
    reasons = [response.finish_reason for response in answers]
    unusual_reasons = [reason for reason in reasons if reason not in ("stop", None)]
    dollars = [response.diagnostics.get("dollars") for response in answers]
    known_dollars = [x for x in dollars if x is not None]
    return replace(
        answers[-1],
        messages=tuple(messages),
        finish_reason=unusual_reasons[0] if unusual_reasons else reasons[-1],
        diagnostics={
            "turns": [dict(response.diagnostics) for response in answers],
            **(
                {"dollars": sum(known_dollars)}
                if len(known_dollars) == len(answers)
                else {}
            ),
        },
    )


def trim_to_prompt(prompt: Prompt, response: Response) -> Response:
    """Return a response whose messages are those after the first question of a prompt.

    Raises ValueError for messages that answer other turns than the prompt asks.
    """
    turns = question_indices(prompt.messages)
    first_question = prompt.messages[: turns[0] + 1] if turns else ()
    texts = [m.content for m in first_question if m.role == "user"] or [prompt.text]
    later = [prompt.messages[i].content for i in turns[1:]]
    messages = answer_messages(response)
    repeated_texts = [] if messages[0].role == "assistant" else texts
    questions = [m.content for m in messages if m.role == "user"]
    expected_questions = [*repeated_texts, *later]
    if len(questions) != len(expected_questions):
        n = len(questions) - len(repeated_texts) + 1
        raise ValueError(
            f"has {n} turn{'s' * (n != 1)}, but the prompt asks {len(later) + 1}."
        )
    for n, pair in enumerate(zip(questions, expected_questions, strict=True), start=1):
        if fold_spaces(pair[0]) != fold_spaces(pair[1]):
            raise ValueError(
                f"has {format_value(pair[0])} as message {n} of the user, but the prompt has {format_value(pair[1])}."
            )
    users = [i for i, message in enumerate(messages) if message.role == "user"]
    start = users[len(repeated_texts) - 1] + 1 if repeated_texts else 0
    return replace(response, messages=messages[start:])


def final_answer(messages: Sequence[Message]) -> str:
    """Return the final answer: the words that the last turn ends with; empty where it ends otherwise."""
    last = messages[-1] if messages else None
    is_words = last is not None and last.role == "assistant" and not last.tool_calls
    return last.content if last is not None and is_words else ""


# What a judge is shown


@dataclass(frozen=True, kw_only=True)
class AnswerView:
    """An answer as a judge may be shown it.

    messages  what of it is shown, before anything is left out
    """

    messages: tuple[Message, ...]
    shown: ViewSettings

    @property
    def single_turn_text(self) -> str | None:
        """The words of one turn, where they are all."""
        match self.messages:
            case (Message(role="assistant", tool_calls=(), content=words),):
                return words
        return "" if not self.messages else None

    @cached_property
    def transcript(self) -> str:
        return "\n".join(self._blocks[0])

    @property
    def is_cut(self) -> bool:
        """Whether something of it is left out."""
        return self.single_turn_text is None and self._blocks[1]

    @cached_property
    def _blocks(self) -> tuple[list[str], bool]:
        """The text of each message, and whether any of it is left out.

        Whole steps, a call and what tools say to it, go first from the middle of all steps, then outwards. User turns
        and the words that a turn ends with stay.
        """
        limit = self.shown.tool_chars
        blocks = [_format_block(message, limit) for message in self.messages]
        is_cut = any(_is_long(message, limit) for message in self.messages)
        steps = list(_find_steps(self.messages))
        middle = (len(steps) - 1) / 2
        size, left_out = sum(map(len, blocks)), set[int]()
        for i in sorted(range(len(steps)), key=lambda i: (abs(i - middle), i)):
            if size <= self.shown.answer_chars:
                break
            left_out |= set(steps[i])
            size -= sum(len(blocks[index]) for index in steps[i])
        lines, n = list[str](), 0
        for i, block in [*enumerate(blocks), (len(blocks), "")]:
            if i in left_out:
                n += 1
                continue
            lines += [f'<left_out messages="{n}"/>'] * (n > 0) + [block] * bool(block)
            n = 0
        return lines, is_cut or bool(left_out)


def view_answer(response: Response, settings: ViewSettings) -> AnswerView:
    """Return an answer as a judge may be shown it."""
    messages = response.messages
    later = [i for i, message in enumerate(messages) if message.role == "user"]
    if settings.turns is not None and len(later) >= settings.turns:
        messages = messages[: later[settings.turns - 1]]
    if not response.messages:
        messages = answer_messages(response)
    elif settings.view == "final":
        messages = (Message(role="assistant", content=final_answer(messages)),)
    return AnswerView(messages=messages, shown=settings)


def is_question(prompt: Prompt) -> bool:
    """Whether a text is all that is given before the first answer."""
    return not prompt.messages or question_indices(prompt.messages)[0] == 0


def view_prompt(prompt: Prompt, settings: ViewSettings, *, in_turns: bool) -> Prompt:
    """Return a prompt whose texts are what a judge is shown of it: all up to the first turn that is asked.

    The reference has as many turns as the answers have.
    """
    text, gold = prompt.text, prompt.gold_answer
    if prompt.messages:
        question = prompt.messages[: question_indices(prompt.messages)[0] + 1]
        text = question[0].content if is_question(prompt) else transcript(question)
    if prompt.gold_turns:
        gold = reference_transcript(prompt, settings.turns)
    elif in_turns and gold is not None:
        gold = escape_tags(gold)
    if in_turns and is_question(prompt):
        text = escape_tags(text)
    return replace(prompt, text=text, gold_answer=gold, messages=(), gold_turns=())


def reference_transcript(prompt: Prompt, turns: int | None = None) -> str | None:
    """Return the references of the first turns, with the user's turns between; of the first turn alone its text.

    A turn without one is left out. None where none of them has one.
    """
    users = [prompt.messages[i] for i in question_indices(prompt.messages)]
    turn_references = [
        (i, text) for i, text in enumerate(prompt.gold_turns[:turns]) if text
    ]
    if [i for i, _ in turn_references] == [0]:
        return turn_references[0][1]
    messages = list[Message]()
    for i, text in turn_references:
        messages += [users[i]] * (i > 0) + [Message(role="assistant", content=text)]
    return transcript(messages) or None


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How many turns are asked, and how much of the answers a judge is shown.

    n_rounds   in which turns are answered
    n_answers  that are shown, once for each way of showing them
    n_cut      of which something is left out
    mean_chars  of what is shown
    """

    n_prompts: int
    n_turns: int
    n_rounds: int
    n_answers: int
    n_cut: int
    mean_chars: float


def count_extent(
    prompts: Sequence[Prompt],
    responses: Sequence[Response],
    all_settings: Sequence[ViewSettings],
) -> Extent | None:
    """Count conversations; None where there are none."""
    if not any(p.messages for p in prompts) and not any(r.messages for r in responses):
        return None
    turns = [n_turns(prompt) for prompt in prompts]
    answers = [
        view_answer(response, settings)
        for settings in all_settings
        for response in responses
    ]
    texts = [
        shown_answer.transcript
        if shown_answer.single_turn_text is None
        else shown_answer.single_turn_text
        for shown_answer in answers
    ]
    return Extent(
        n_prompts=len(prompts),
        n_turns=sum(turns),
        n_rounds=max(turns, default=0),
        n_answers=len(answers),
        n_cut=sum(shown_answer.is_cut for shown_answer in answers),
        mean_chars=sum(map(len, texts)) / len(texts) if texts else 0.0,
    )


def add_reference(prompt: Prompt) -> Prompt:
    """Return a prompt with the transcript of its references as gold_answer, where it has one for each turn."""
    if not prompt.gold_turns:
        return prompt
    return replace(prompt, gold_answer=reference_transcript(prompt))


def transcript(messages: Sequence[Message]) -> str:
    """Return messages as blocks, nothing left out."""
    return "\n".join(_format_block(message, None) for message in messages)


def own_words(comparison: Comparison, text: str) -> str:
    """Return what an entrant itself says in one of two responses that are shown: no calls, no tools, no user."""
    if not comparison.in_turns:
        return text
    words = (_CALL_BLOCK.sub("", block) for block in _ASSISTANT_TURN.findall(text))
    return "\n".join(words).replace("\\<", "<")


def change_own_words(
    comparison: Comparison, text: str, change: Callable[[str], str]
) -> str:
    """Return a response that is shown with other words of the entrant; calls, tools and the user stay as they are."""
    if not comparison.in_turns:
        return change(text)

    def change_turn(turn: re.Match[str]) -> str:
        calls = "".join(call[0] for call in _CALL_BLOCK.finditer(turn[1] + "\n"))
        words = change(_CALL_BLOCK.sub("", turn[1]).replace("\\<", "<").strip())
        lines = "".join(
            f"{line.rstrip()}\n" for line in (escape_tags(words), calls) if line
        )
        return f'<turn role="assistant">\n{lines}</turn>'

    return _ASSISTANT_TURN.sub(change_turn, text)


def escape_tags(text: str) -> str:
    """Put a backslash before every tag with which a text could open or close a turn or a call."""
    return _RESERVED_TAG.sub(r"\\<", text)


def elide_middle(text: str, limit: int | None) -> str:
    """Leave out the middle of a text that is longer than `limit`, and say how much it was."""
    if limit is None or len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    return f"{head}\n[... {len(text) - limit:,} characters left out ...]\n{tail}"


def _is_long(message: Message, limit: int) -> bool:
    texts = [call.arguments for call in message.tool_calls]
    texts += [message.content] if message.role == "tool" else []
    return any(len(text) > limit for text in texts)


def _format_block(message: Message, limit: int | None) -> str:
    words = message.content
    words = elide_middle(words, limit) if message.role == "tool" else words
    calls = (
        f"<call>{escape_tags(f'{call.name}({elide_middle(call.arguments, limit)})')}</call>"
        for call in message.tool_calls
    )
    name_attribute = (
        f' of="{_NON_NAME_CHARACTER.sub("_", message.name)}"' if message.name else ""
    )
    lines = "".join(f"{line}\n" for line in (escape_tags(words), *calls) if line)
    return f'<turn role="{message.role}"{name_attribute}>\n{lines}</turn>'


def _find_steps(messages: Sequence[Message]) -> Iterator[list[int]]:
    """Yield the indices of each step that may be left out: an assistant's message and what tools say to it.

    The words that a turn ends with are no step.
    """
    step = list[int]()
    for i, message in enumerate(messages):
        ends_turn = i + 1 == len(messages) or messages[i + 1].role == "user"
        is_last_word = (
            ends_turn and message.role == "assistant" and not message.tool_calls
        )
        if step and message.role != "tool":
            yield step
            step = []
        if message.role == "tool" or (message.role == "assistant" and not is_last_word):
            step.append(i)
    if step:
        yield step
