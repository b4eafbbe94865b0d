"""The rows that travel through the suite, and the fingerprint that names them.

Every record is frozen, can be written as one JSON object and read back; readers ignore unknown keys, so a file written
before a field was added still loads. A field that came later is written only where it says something: keys and files
of rows without it stay what they were.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from elo_exp.errors import SettingError, format_value

VERDICTS = ("A", "B", "TIE", "INVALID")
# Seeds draws that no setting seeds, so that the same input gives the same run
FIXED_SEED = 20260425
WINNERS = ("model_a", "model_b", "tie", "tie (bothbad)")
ROLES = ("system", "user", "assistant", "tool")
# Nats: rounding may leave a certain answer slightly above zero
MAX_LOGPROB_NATS = 1e-7


Rows = Sequence[Mapping[str, Any]]  # of a table: values by column, JSON
Slot = tuple[str, int]  # a prompt and the number of an entrant's answer to it


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, NaN refused."""
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )


def storable_json(value: Any) -> str:
    """The same; lone surrogates are written as escapes, as no file can hold them."""
    return canonical_json(value).encode(errors="backslashreplace").decode()


def make_fingerprint(value: Any) -> str:
    """A 40-digit SHA-256 of everything that can change an answer; equal values give equal names on every machine."""
    return hashlib.sha256(storable_json(value).encode()).hexdigest()[:40]


class Record:
    """A frozen dataclass that is one JSON object.

    later  fields that are written only where they differ from their default
    parts  fields that hold records, and of which kind
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    later: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[Mapping[str, type[Record]]] = {}

    def to_dict(self) -> dict[str, Any]:
        row = {}
        is_flat = True
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.name not in self.later or value != f.default:
                row[f.name] = value
                is_flat &= value is None or isinstance(value, str | int | float)
        return (
            row if is_flat else {name: _to_plain(value) for name, value in row.items()}
        )

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """Read a row, ignoring unknown keys. Raises KeyError naming the first required field that is absent."""
        values: dict[str, Any] = {}
        for f in dataclasses.fields(cls):
            if f.name in row:
                value = row[f.name]
                values[f.name] = tuple(value) if isinstance(value, list) else value
            elif (
                f.default is dataclasses.MISSING
                and f.default_factory is dataclasses.MISSING
            ):
                raise KeyError(f.name)
        for name, kind in cls.parts.items():
            values[name] = tuple(
                item if isinstance(item, kind) else kind.from_dict(item)
                for item in values.get(name, ())
            )
        return cls(**values)


def _to_plain(value: Any) -> Any:
    """Return a field's value as JSON has it; containers are copied."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_to_plain, value))
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(Record):
    """A call to a tool, which nobody here runs.

    arguments  JSON, as the model wrote it
    """

    call_id: str
    name: str
    arguments: str

    def to_dict(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.call_id, "type": "function", "function": function}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """Read OpenAI's form, or Inspect's: the tool's name as `function`, arguments as an object."""
        function = row["function"]
        tool = function if isinstance(function, Mapping) else {**row, "name": function}
        arguments = tool.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments or {}, ensure_ascii=False)
        call_id = str(row.get("id") or "")
        return cls(call_id=call_id, name=str(tool["name"]), arguments=arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Record):
    """One message of a conversation, in JSON as OpenAI's Chat Completions has it.

    role          one of ROLES
    tool_call_id  of a tool's words: the call that they answer
    name          of the tool that speaks
    """

    role: str
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    later = ("tool_calls", "tool_call_id", "name")
    parts: ClassVar[Mapping[str, type[Record]]] = {"tool_calls": ToolCall}

    @property
    def is_words(self) -> bool:
        """Whether role and content are all."""
        return not (self.tool_calls or self.tool_call_id or self.name)

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """Read OpenAI's form, or Inspect's. Raises ValueError for a role or a content that nobody compares."""
        role = row["role"]
        if role not in ROLES:
            raise ValueError(
                f"has the role {format_value(role)}, which is none of {', '.join(ROLES)}."
            )
        fields = {
            "role": role,
            "content": _content_text(row.get("content")),
            "tool_calls": row.get("tool_calls") or [],
        }
        if role == "tool":
            fields["tool_call_id"] = row.get("tool_call_id")
            fields["name"] = row.get("name") or row.get("function")
        return super(Message, cls).from_dict(fields)


def _content_text(content: Any) -> str:
    """Return the text of a message's content, without thoughts. Raises ValueError for parts that are no text."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for block in content:
        kind = block.get("type")
        if kind not in ("text", "reasoning"):
            raise ValueError(
                f"has a part of type {format_value(kind)}. Only text can be compared: leave the row out."
            )
        texts += [block["text"]] if kind == "text" else []
    return "\n".join(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(Record):
    """What entrants are asked: a text or, where one user message is not all, a conversation.

    text        of a conversation the transcript of what is given, for a reader
    gold_turns  a reference for each turn that is asked, where there are several; gold_answer is then
                their transcript
    messages    (): the text is all. Each user message that no assistant message follows is asked, in order
    draw_idx    which answer of an entrant is asked for
    """

    prompt_id: str
    text: str
    source: str  # the stratum: medmcqa_open, medqa, curated, ...
    subject: str
    gold_answer: str | None = None
    expected_behavior: str | None = None  # answer, hedge or abstain
    tags: tuple[str, ...] = ()
    gold_turns: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()
    draw_idx: int = 0
    later = ("gold_turns", "messages", "draw_idx")
    parts: ClassVar[Mapping[str, type[Record]]] = {"messages": Message}

    def __post_init__(self) -> None:
        """One user message alone is the text: equal content has equal keys."""
        if [(m.role, m.is_words) for m in self.messages] == [("user", True)]:
            object.__setattr__(self, "text", self.messages[0].content)
            object.__setattr__(self, "messages", ())

    @property
    def content(self) -> dict[str, Any]:
        """What is asked, for cache keys: `text` or `messages`."""
        if not self.messages:
            return {"text": self.text}
        return {"messages": [message.to_dict() for message in self.messages]}

    def sent(self, system_prompt: str | None) -> list[dict[str, Any]]:
        """Return the messages that a model is sent, in JSON.

        system_prompt  of the entrant: it stands before the prompt's own, a blank line between
        """
        if not self.messages:
            messages = [{"role": "user", "content": self.text}]
        else:
            messages = [message.to_dict() for message in self.messages]
        if system_prompt is None:
            return messages
        system = {"role": "system", "content": system_prompt}
        if messages[0]["role"] != "system":
            return [system, *messages]
        system["content"] += f"\n\n{messages[0]['content']}"
        return [system, *messages[1:]]

    @property
    def slot(self) -> Slot:
        return self.prompt_id, self.draw_idx


@dataclass(frozen=True, slots=True, kw_only=True)
class Response(Record):
    """What an entrant says to a prompt.

    response_text  the final answer: the last words of the last turn, empty where it ends in a call
    messages       what followed the first question that was asked: words, calls, what tools said, later
                   user turns; (): the text is all
    draw_idx       which answer of the entrant this is
    """

    entrant_id: str
    prompt_id: str
    response_text: str
    p_correct: float | None = None
    finish_reason: str | None = None  # stop, length or tool_calls
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    timestamp: str | None = None  # ISO 8601, UTC
    messages: tuple[Message, ...] = ()
    draw_idx: int = 0
    later = ("messages", "draw_idx")
    parts: ClassVar[Mapping[str, type[Record]]] = {"messages": Message}

    def __post_init__(self) -> None:
        """One message of words alone is the text."""
        if [(m.role, m.is_words) for m in self.messages] == [("assistant", True)]:
            object.__setattr__(self, "response_text", self.messages[0].content)
            object.__setattr__(self, "messages", ())

    @property
    def slot(self) -> Slot:
        return self.prompt_id, self.draw_idx


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedLogprob(Record):
    """Log-probability under a policy of the tokens that another policy has drawn.

    entrant_id     the first of the policies with equal keys, which share one
    total_logprob  in nats; None where prompt and answer exceed the model's context
    """

    entrant_id: str
    prompt_id: str
    total_logprob: float | None
    n_tokens: int
    timestamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Record):
    """The unordered question: which of these two responses is better on this dimension?

    Prompt and responses are the texts that the judge is shown. `gold_answer` and `expected_behavior` are present only
    where the rubric shows them.
    """

    prompt_id: str
    dimension: str
    source: str
    prompt_text: str
    entrant_a: str
    entrant_b: str
    response_a: str
    response_b: str
    gold_answer: str | None = None
    expected_behavior: str | None = None
    draw_a: int = 0  # which answer of entrant_a
    draw_b: int = 0
    in_turns: bool = False  # the responses are blocks of data.conversations
    # response_a is a degraded copy of response_b: data.degrading
    is_control: bool = False
    later = ("draw_a", "draw_b", "in_turns", "is_control")

    def swapped(self) -> Comparison:
        return dataclasses.replace(
            self,
            entrant_a=self.entrant_b,
            entrant_b=self.entrant_a,
            response_a=self.response_b,
            response_b=self.response_a,
            draw_a=self.draw_b,
            draw_b=self.draw_a,
        )

    @property
    def entrants(self) -> tuple[str, ...]:
        return (self.entrant_a, self.entrant_b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Record):
    """One response put to a judge by itself: how good is it on this dimension?

    `gold_answer` and `expected_behavior` are present only where the rubric shows them to the judge. `draw_idx` tells
    apart several responses of one entrant to one prompt.
    """

    prompt_id: str
    dimension: str
    source: str
    prompt_text: str
    entrant_id: str
    response_text: str
    draw_idx: int = 0
    gold_answer: str | None = None
    expected_behavior: str | None = None

    @property
    def entrants(self) -> tuple[str, ...]:
        return (self.entrant_id,)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply(Record):
    """A judge's answer, unparsed, so that a better parser costs no second call.

    text      of the answer; `message` is the whole of an API's as JSON
    mirrored  the other order's answer, turned round: one observation, not two

    The names are those of the first query; equal texts share one reply.
    """

    key: str
    text: str
    stop_reason: str = "end_turn"
    mirrored: bool = False
    usage: Mapping[str, int] = field(default_factory=dict)  # tokens by class
    dollars: float = 0.0  # what it cost, by the prices of the day
    timestamp: str | None = None
    judge_model: str | None = None
    dimension: str | None = None
    prompt_id: str | None = None
    entrant_a: str | None = None
    entrant_b: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeIdentity(Record):
    """A judge as the keys of its replies know it: enough to find them without the judge."""

    key: str
    judge_model: str
    key_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """The rendered text that a judge sees, and the record it is rendered from, in the order shown.

    The text is rendered when it is read, since few requests need theirs at a time.
    """

    key: str
    system: str
    render: Callable[[Any], str]  # of the subject
    n_chars: int  # of the system text and the rendered one
    schema: str
    subject: Comparison | Item
    position_swap: bool = False
    # the lowest and the highest score; None where a verdict is asked for
    scale: tuple[float, float] | None = None
    repeat: int = 0

    @property
    def user(self) -> str:
        return self.render(self.subject)

    @property
    def messages(self) -> list[dict[str, str]]:
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": self.user},
        ]

    @property
    def names(self) -> dict[str, Any]:
        """The fields of a JudgeReply that name the query."""
        entrant_a, entrant_b, *_ = (*self.subject.entrants, None)
        about = {
            "dimension": self.subject.dimension,
            "prompt_id": self.subject.prompt_id,
        }
        return {**about, "entrant_a": entrant_a, "entrant_b": entrant_b}

    def reply(
        self,
        verdict: str | None = None,
        *,
        score: float | None = None,
        interval: tuple[float, float] | None = None,
        reason: str = "",
    ) -> JudgeReply:
        """Return a reply to this request, for a judge that is written in Python.

        verdict   "A", "B" or "TIE", if two responses are compared: A is the response that is shown first,
                  `subject.response_a`
        score     number on `scale`, if a single response is scored
        interval  lowest and highest score that are plausible, if the rubric asks for them
        reason    why, for the page
        """
        answer: dict[str, Any] = {"reason": reason}
        if self.scale is None:
            if score is not None or verdict not in VERDICTS[:3]:
                reply = (
                    f"score={score!r}" if score is not None else f"verdict={verdict!r}"
                )
                raise SettingError(
                    f'request.reply must get verdict="A", "B" or "TIE", where A is subject.response_a; got {reply}.'
                )
            answer["verdict"] = verdict
        else:
            answer |= self._check_score(verdict, score, interval)
        return JudgeReply(key=self.key, text=json.dumps(answer), **self.names)

    def _check_score(
        self,
        verdict: str | None,
        score: float | None,
        interval: tuple[float, float] | None,
    ) -> dict[str, float]:
        assert self.scale is not None
        low, high = self.scale
        if verdict is not None or score is None or not low <= score <= high:
            reply = (
                f"verdict={verdict!r}" if verdict is not None else f"score={score!r}"
            )
            raise SettingError(
                f"request.reply must get score=NUMBER from {low:g} to {high:g}; got {reply}."
            )
        if interval is None:
            if '"high"' in self.schema:
                raise SettingError(
                    "request.reply must get interval=(LOW, HIGH) around the score, as this rubric asks for one; got none."
                )
            return {"score": score}
        return {"score": score, "low": interval[0], "high": interval[1]}


# The order of a verdict from a file that does not say which answer was shown first
UNKNOWN_ORDER = "unknown_order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Record):
    """One query's answer, in the positions that the judge saw."""

    cache_key: str
    rubric_version: str
    judge_model: str
    position_swap: bool
    verdict: str  # A, B, TIE or INVALID
    # of A and B, from 0 to 10; None where the rubric or the judge gives none
    scores: tuple[float, float] | None = None
    reasoning: str = ""
    mirrored: bool = False
    repeat: int = 0
    # or why there is no verdict: refusal, max_tokens, ...; or UNKNOWN_ORDER
    stop_reason: str = "end_turn"
    timestamp: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    # of A, from 0 to 1, by the probabilities of A, B and TIE; None where labels alone are read
    share: float | None = None
    # price of the reply in US dollars; None if it was free, or if the price is not known
    dollars: float | None = None
    later = ("share", "dollars")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Record):
    """A judge's score of one response by itself.

    judge_score  None, never a number, where the reply cannot be read
    policy       the entrant
    criteria     the score of each criterion by its name; None if the rubric has no criteria
    """

    prompt_id: str
    policy: str
    draw_idx: int
    judge_model: str
    judge_score: float | None  # in [0, 1]
    judge_score_variance: float | None  # of the same, squared; None without an interval
    cache_key: str
    stop_reason: str = "end_turn"  # or why there is no score: refusal, max_tokens, unreadable, missing, ...
    reasoning: str = ""
    criteria: Mapping[str, float | None] | None = None
    later = ("criteria",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment(Record):
    """Both orders of one comparison, reconciled, or the one that was judged.

    winner         None with neither flag is a tie
    inconsistent   the two orders disagree; None where one was judged
    equal_answers  both answers are the same text, so that one query serves both orders
    """

    prompt_id: str
    dimension: str
    entrant_a: str
    entrant_b: str
    winner: str | None
    inconsistent: bool | None
    invalid: bool
    equal_answers: bool = False
    raw: tuple[Verdict, ...]  # order ab, order ba, then any repeats
    draw_a: int = 0  # which answer of entrant_a
    draw_b: int = 0
    later = ("draw_a", "draw_b")
    parts: ClassVar[Mapping[str, type[Record]]] = {"raw": Verdict}

    @property
    def orders(self) -> tuple[Verdict, ...]:
        """The first verdict in each order that was judged."""
        return tuple(verdict for verdict in self.raw if not verdict.repeat)

    def __post_init__(self) -> None:
        if self.winner not in (None, self.entrant_a, self.entrant_b):
            raise ValueError(
                f"winner {self.winner!r} is neither {self.entrant_a!r} nor {self.entrant_b!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Battle(Record):
    """One row of battles.jsonl. `verdict_ab` (model_a shown first) and `verdict_ba` name the winning
    *model*; where the answers are equal, both are one query's."""

    model_a: str
    model_b: str
    winner: str  # one of WINNERS
    source: str = "human"  # or llm-judge
    question_id: str | None = None
    judge_model: str | None = None
    dimension: str | None = None
    verdict_ab: str | None = None
    verdict_ba: str | None = None
    score: float | None = None  # model_a's share in [0, 1]; None: what the winner says
    equal_answers: bool = False
    style_a: tuple[int, ...] | None = None  # data.writing_style.counts of the answers
    style_b: tuple[int, ...] | None = None
    # how many battles the row stands for, each on a prompt of its own where it names none; None: one
    count: int | None = None
    draw_a: int = 0  # which answer of model_a
    draw_b: int = 0
    # what the prompt has in common with others: battles of one cluster are one observation; None: its prompt alone
    cluster: str | None = None
    later = ("count", "draw_a", "draw_b", "cluster")

    @property
    def models(self) -> tuple[str, str]:
        return self.model_a, self.model_b


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingBattle(Record):
    """A planned comparison without a result, or with one on an empty answer.

    lacking    the entrants without a usable answer; () both answered, and the verdict is unknown
    failed     those of them that are on record as having failed: an error, a refusal, an empty reply. Nobody
               knows why the others have no answer
    is_judged  the judge gave a verdict on an empty answer all the same
    count      how many comparisons it stands for, as that of a battle; None: one
    cluster    what its prompt has in common with others, as that of a battle; None: that of the battles on its prompt
    """

    model_a: str
    model_b: str
    question_id: str | None = None
    dimension: str | None = None
    judge_model: str | None = None
    lacking: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    is_judged: bool = False
    draw_a: int = 0
    draw_b: int = 0
    count: int | None = None
    cluster: str | None = None

    @property
    def models(self) -> tuple[str, str]:
        return self.model_a, self.model_b


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure as PNG and SVG, and the rows that it was drawn from."""

    name: str
    png: bytes
    svg: str
    rows: Sequence[Mapping[str, Any]]
    caption: str
