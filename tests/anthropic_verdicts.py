"""The model behind the test server: what it refuses, what it says, and what that costs. One request at a time.

Its verdicts come from a list, from a rule, or from a noisy judge whose strengths and biases are known.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

JSON = dict[str, Any]

TTLS = {"5m": 300, "1h": 3600}
EFFORTS = ("low", "medium", "high", "xhigh", "max")
SAMPLING = ("temperature", "top_p", "top_k")
# Any other name in a request is a misspelling.
PARAMS = {
    *(
        "model",
        "max_tokens",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "speed",
    ),
    *(
        "stop_sequences",
        "stream",
        "service_tier",
        "cache_control",
        "container",
        "diagnostics",
        "inference_geo",
        "speed",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What is known of a model. A prefix of fewer than `min_cacheable` tokens is never cached."""

    min_cacheable: int = 1024
    refused_thinking: frozenset[str] = frozenset()
    takes_forced_tools: bool = True
    lifecycle: Literal["active", "deprecated", "retired"] = "active"


_ALWAYS_THINKS = frozenset({"disabled", "enabled"})
_NO_BUDGETS = frozenset({"enabled"})
MODELS: Mapping[str, Model] = {
    "claude-opus-5-5": Model(
        min_cacheable=512, refused_thinking=_ALWAYS_THINKS, takes_forced_tools=False
    ),
    "claude-sonnet-5-5": Model(refused_thinking=_NO_BUDGETS, takes_forced_tools=False),
    "claude-haiku-5-5": Model(min_cacheable=512, refused_thinking=_NO_BUDGETS),
    "claude-fable-5-2": Model(
        refused_thinking=_ALWAYS_THINKS, takes_forced_tools=False
    ),
    "claude-fable-5-1": Model(
        refused_thinking=_ALWAYS_THINKS, takes_forced_tools=False
    ),
    "claude-opus-5": Model(min_cacheable=512),
    "claude-opus-4-8": Model(),
    "claude-opus-4-7": Model(),
    "claude-opus-4-6": Model(),
    "claude-sonnet-5": Model(),
    "claude-sonnet-4-6": Model(min_cacheable=2048),
    "claude-haiku-4-5": Model(min_cacheable=4096),
    "claude-sonnet-4-5": Model(lifecycle="deprecated"),
    "claude-opus-4-1": Model(lifecycle="retired"),
}


# What it says

_QUESTION = re.compile(r"<question>\n(.*?)\n</question>", re.DOTALL)
_RESPONSES = {  # the id, which no response can know, says which closing tag is the real one
    name: re.compile(
        rf'<response_{name} id="([^"]*)">\n(.*?)\n</response_{name} id="\1">', re.DOTALL
    )
    for name in "ab"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a judge is shown, taken apart; `user` is the whole message."""

    question: str
    response_a: str
    response_b: str
    system: str
    user: str

    @classmethod
    def of(cls, system: str, user: str) -> Shown:
        question, a, b = (
            pattern.search(user)
            for pattern in (_QUESTION, _RESPONSES["a"], _RESPONSES["b"])
        )
        if question is None or a is None or b is None:
            raise ValueError(
                f"the user message {user[:80]!r} lacks a <question>, <response_a id=...> or <response_b id=...> block. "
                f"A rule needs all three; a list of verdicts needs none."
            )
        return cls(
            question=question[1],
            response_a=a[2],
            response_b=b[2],
            system=system,
            user=user,
        )


Rule = Callable[[Shown], str]


def draw(*key: object) -> float:
    """A number in [0, 1) that depends on the key alone: the same in every process and in every order of calls."""
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def longer(shown: Shown) -> str:
    """The longer response wins; equal lengths tie."""
    difference = len(shown.response_a) - len(shown.response_b)
    return "A" if difference > 0 else "B" if difference < 0 else "TIE"


@dataclass(frozen=True, kw_only=True)
class NoisyBradleyTerry:
    """A judge that draws its verdicts from Davidson's model (1970), with a known bias towards the response shown first.

    With d = strength(A) - strength(B) + position_bias, in logits,

        P(A) = exp(d/2) / Z,   P(B) = exp(-d/2) / Z,   P(TIE) = nu / Z,   Z = exp(d/2) + exp(-d/2) + nu

    so that P(A)/P(B) = exp(d). `tie_rate` is P(TIE) at d = 0: nu = 2 tie_rate / (1 - tie_rate).

    strengths  logits by marker: a response has the strength of the first marker that occurs in it, so that the empty
               marker, put last, is everybody else's; or a function of the response
    The draw depends on the seed and on what is shown, system text included, and on nothing else.
    """

    strengths: Mapping[str, float] | Callable[[str], float]
    position_bias: float = 0.0
    tie_rate: float = 0.0
    seed: int = 0

    def strength(self, response: str) -> float:
        if callable(self.strengths):
            return self.strengths(response)
        for marker, strength in self.strengths.items():
            if marker in response:
                return strength
        raise ValueError(
            f"the response {response[:60]!r} holds none of the markers {', '.join(self.strengths)}."
        )

    def chances(self, shown: Shown) -> dict[str, float]:
        """The probability of each verdict."""
        d = (
            self.strength(shown.response_a)
            - self.strength(shown.response_b)
            + self.position_bias
        )
        nu = 2 * self.tie_rate / (1 - self.tie_rate)
        weights = {"A": math.exp(d / 2), "B": math.exp(-d / 2), "TIE": nu}
        return {
            verdict: weight / sum(weights.values())
            for verdict, weight in weights.items()
        }

    def __call__(self, shown: Shown) -> str:
        chances = self.chances(shown)
        u = draw("verdict", self.seed, shown.system, shown.user)
        return (
            "A"
            if u < chances["A"]
            else "B"
            if u < chances["A"] + chances["B"]
            else "TIE"
        )


def choose(
    verdicts: Sequence[str] | Rule, system: str, user: str, *, turns: dict[str, int]
) -> str:
    """What a rule says; of a list the next one for a text seen for the first time, which is noted in `turns`."""
    if callable(verdicts):
        return verdicts(Shown.of(system, user))
    return verdicts[
        turns.setdefault(sha256([system, user]), len(turns)) % len(verdicts)
    ]


def reply_text(verdict: str, *, user: str, as_json: bool) -> str:
    """The judge's reply: the JSON object of the verdict schema, or prose whose last line is the verdict."""
    a, b = (
        match[2][:40] if (match := pattern.search(user)) else ""
        for pattern in _RESPONSES.values()
    )
    if as_json:
        return json.dumps(
            {"evidence_a": a, "evidence_b": b, "verdict": verdict}, ensure_ascii=False
        )
    return f"A says {a!r}, B says {b!r}.\nVERDICT: {verdict}"


def plain_text(content: Any) -> str:
    """The text of a system prompt or of a message's content: a string, or blocks of which some hold text."""
    return (
        content
        if isinstance(content, str)
        else "".join(block.get("text", "") for block in content or ())
    )


# What may happen instead of an answer, or to it


@dataclass(frozen=True, slots=True)
class Errored:
    """The row `errored`, or an HTTP error outside a batch; not billed."""

    type: str = "api_error"
    message: str = "Internal server error"


@dataclass(frozen=True, slots=True)
class Expired:
    """The row `expired`; not billed."""


@dataclass(frozen=True, slots=True)
class Canceled:
    """The row `canceled`; not billed."""


@dataclass(frozen=True, slots=True)
class StopReason:
    """A paid answer that stopped for another reason than its end: `refusal` has no text, any other half of it."""

    reason: str
    category: str | None = None  # of a refusal


@dataclass(frozen=True, slots=True)
class Says:
    """A paid answer of exactly this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Reshaped:
    """A paid answer, of which this is made on its way."""

    change: Callable[[JSON], Any]


Outcome = Errored | Expired | Canceled | StopReason | Says | Reshaped
LOW_BALANCE = Errored(
    "invalid_request_error",
    "Your credit balance is too low to access the Anthropic API.",
)


def message(
    params: JSON,
    text: str,
    *,
    outcome: Outcome | None,
    usage: JSON,
    thinking_tokens: int,
    message_id: str,
) -> JSON:
    """The Message object. Thinking counts in max_tokens; a text for which they leave no room is cut."""
    thinks = (params.get("thinking") or {}).get("type") != "disabled"
    n_thinking = min(thinking_tokens, params["max_tokens"]) if thinks else 0
    room = 4 * (params["max_tokens"] - n_thinking)
    stop_reason, details = "end_turn", None
    if isinstance(outcome, StopReason):
        stop_reason = outcome.reason
        text = "" if stop_reason == "refusal" else text[: len(text) // 2]
    elif len(text) > room:
        stop_reason, text = "max_tokens", text[:room]
    if stop_reason == "refusal" and isinstance(outcome, StopReason):
        details = {"type": "refusal", "category": outcome.category, "explanation": None}
    thought = {"type": "thinking", "thinking": "", "signature": message_id[::-1]}
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": params["model"],
        "content": [thought] * thinks
        + [{"type": "text", "text": text, "citations": None}] * bool(text),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "stop_details": details,
        "usage": {
            **usage,
            "output_tokens": n_thinking + tokens(len(text)),
            "output_tokens_details": {"thinking_tokens": n_thinking},
        },
    }


# What it costs


def tokens(n_chars: int) -> int:
    """Four characters are a token."""
    return math.ceil(n_chars / 4)


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha256(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def _unmarked(value: Any) -> Any:
    """The same without `cache_control`, at any depth."""
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if isinstance(value, dict):
        return {
            name: _unmarked(item)
            for name, item in value.items()
            if name != "cache_control"
        }
    return value


def body_key(params: JSON) -> str:
    """The identity of what reaches the model: two requests that have it in common are the same question."""
    said = {name: params.get(name) for name in ("model", "output_config", "max_tokens")}
    return sha256(
        {
            **said,
            "system": plain_text(params.get("system")),
            "messages": _unmarked(params["messages"]),
        }
    )


def _head(params: JSON) -> list[tuple[str, JSON | None]]:
    """The texts before the messages, in the order in which they are rendered, each with its breakpoint if any."""
    system = params.get("system") or []
    blocks = [{"text": system}] if isinstance(system, str) else system
    tools = [
        (canonical(_unmarked(tool)), tool.get("cache_control"))
        for tool in params.get("tools") or ()
    ]
    return [
        *tools,
        *((block.get("text", ""), block.get("cache_control")) for block in blocks),
    ]


def n_input_tokens(params: JSON) -> int:
    head = sum(len(text) for text, _ in _head(params))
    return tokens(
        head + sum(len(plain_text(one["content"])) for one in params["messages"])
    )


class PromptCache:
    """The prefixes that are remembered, and until when. Of the breakpoints in tools and system the last one counts.

    Batches and single messages do not see each other's entries: so it was measured at the real API.
    """

    def __init__(self) -> None:
        self._alive_until: dict[tuple[str, str], float] = {}

    def usage(
        self, params: JSON, *, tier: str, min_cacheable: int, now: float, missed: bool
    ) -> JSON:
        """The input side of `usage`. A request that `missed` its prefix writes it again."""
        head = _head(params)
        marked = [(n, mark) for n, (_, mark) in enumerate(head) if mark]
        written, read = Counter[str](), 0
        if marked:
            last, mark = marked[-1]
            texts = [text for text, _ in head[: last + 1]]
            prefix, ttl = tokens(sum(map(len, texts))), mark.get("ttl", "5m")
            key = (tier, sha256([params["model"], texts, params.get("output_config")]))
            if prefix >= min_cacheable:
                if now < self._alive_until.get(key, -math.inf) and not missed:
                    read = prefix
                else:
                    written[ttl] = prefix
                self._alive_until[key] = now + TTLS[ttl]
        return {
            "input_tokens": n_input_tokens(params) - read - written.total(),
            "cache_creation_input_tokens": written.total(),
            "cache_read_input_tokens": read,
            "cache_creation": {
                f"ephemeral_{ttl}_input_tokens": written[ttl] for ttl in TTLS
            },
            "service_tier": tier,
            "inference_geo": "global",
        }


# What it refuses


def objection(
    params: JSON, models: Mapping[str, Model], *, counting: bool = False
) -> Errored | None:
    """Why the request is not answered; None if it is. In a batch this shows only when the request is run."""
    name = params.get("model")
    if not isinstance(name, str):
        return Errored("invalid_request_error", "model: Field required")
    if name not in models or models[name].lifecycle == "retired":
        return Errored("not_found_error", f"model: {name}")
    complaint = next(_complaints(params, models[name], counting), None)
    return Errored("invalid_request_error", complaint) if complaint else None


def _complaints(params: JSON, model: Model, counting: bool) -> Iterator[str]:
    """In this order: each may rely on what the ones before it have ruled out."""
    for name in SAMPLING:
        if name in params:
            yield f"{name}: not supported by this version of the API. Remove it, whatever its value."
    for name in sorted(params.keys() - PARAMS):
        yield f"{name}: Extra inputs are not permitted"
    yield from _length_complaints(params, counting)
    yield from _message_complaints(params.get("messages"))
    yield from _cache_complaints(params)
    yield from _answer_complaints(params, model)


def _length_complaints(params: JSON, counting: bool) -> Iterator[str]:
    max_tokens = params.get("max_tokens")
    if counting:
        if "max_tokens" in params:
            yield "max_tokens: Extra inputs are not permitted"
    elif not isinstance(max_tokens, int):
        yield (
            "max_tokens: Field required"
            if max_tokens is None
            else "max_tokens: Input should be a valid integer"
        )
    elif max_tokens < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    if params.get("stream"):
        yield "stream: not supported here"


def _message_complaints(messages: Any) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    for n, one in enumerate(messages):
        if not isinstance(one, dict) or one.get("role") not in (
            "user",
            "assistant",
            "system",
        ):
            yield f"messages.{n}.role: Input should be 'user' or 'assistant'"
        elif not isinstance(one.get("content"), (str, list)) or not plain_text(
            one["content"]
        ):
            yield f"messages.{n}.content: text content must be non-empty"
    if messages[-1]["role"] == "assistant":
        yield "messages: the conversation must end with a user message; prefill is not supported"


def _cache_complaints(params: JSON) -> Iterator[str]:
    contents = [
        params.get("tools"),
        params.get("system"),
        *(one["content"] for one in params["messages"]),
    ]
    blocks = [
        params,
        *(
            block
            for content in contents
            if isinstance(content, list)
            for block in content
        ),
    ]
    marks = [block["cache_control"] for block in blocks if block.get("cache_control")]
    if len(marks) > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}."
    for mark in marks:
        if mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in TTLS:
            yield f"cache_control: found {canonical(mark)}. Input should be ephemeral, with a ttl of 5m or 1h"


def _answer_complaints(params: JSON, model: Model) -> Iterator[str]:
    output = params.get("output_config") or {}
    if output.get("effort", "high") not in EFFORTS:
        yield f"output_config.effort: Input should be one of {', '.join(EFFORTS)}"
    form = output.get("format")
    if form is not None and (
        form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict)
    ):
        yield "output_config.format: Input should be of type json_schema, with a schema"
    thinking = (params.get("thinking") or {}).get("type", "adaptive")
    if thinking not in ("adaptive", "between_tools", "enabled", "disabled"):
        yield f"thinking: Input tag {thinking!r} is unknown"
    if thinking in model.refused_thinking:
        yield f'"thinking.type.{thinking}" is not supported for this model'
    choice = (params.get("tool_choice") or {}).get("type", "auto")
    if choice in ("any", "tool") and not model.takes_forced_tools:
        yield f'tool_choice: "{choice}" is not supported for this model'
