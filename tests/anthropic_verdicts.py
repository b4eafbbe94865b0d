"""What the models behind the test servers say, and what may happen instead.

Verdicts come from a list, from a rule, or from a noisy judge of known strengths and biases.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

JSON = dict[str, Any]
# the id, which no response can know, says which closing tag is the real one
_RESPONSE = r'<response_{0} id="([^"]*)">\n(.*?)\n</response_{0} id="\1">'


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
        question = re.search(r"<question>\n(.*?)\n</question>", user, re.DOTALL)
        a, b = (re.search(_RESPONSE.format(name), user, re.DOTALL) for name in "ab")
        assert question, f"no question in {user[:80]!r}"
        assert a and b, f"no two responses in {user[:80]!r}"
        return cls(
            question=question[1],
            response_a=a[2],
            response_b=b[2],
            system=system,
            user=user,
        )


Rule = Callable[[Shown], str]


def draw(*key: object) -> float:
    """A number in [0, 1) that depends on the key alone: the same in every process."""
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def longer(shown: Shown) -> str:
    """The longer response wins; equal lengths tie."""
    difference = len(shown.response_a) - len(shown.response_b)
    return "A" if difference > 0 else "B" if difference < 0 else "TIE"


@dataclass(frozen=True, kw_only=True)
class NoisyBradleyTerry:
    """A judge that draws its verdicts from Davidson's model (1970), with a position bias.

    With d = strength(A) - strength(B) + position_bias, in logits,

        P(A) = exp(d/2) / Z,  P(B) = exp(-d/2) / Z,  P(TIE) = nu / Z

    so that P(A)/P(B) = exp(d). `tie_rate` is P(TIE) at d = 0: nu = 2 tie_rate / (1 - tie_rate).

    strengths  logits by marker: a response has the strength of the first marker in it, so that
               the empty marker, put last, is everybody else's; or a function of the response
    The draw depends on the seed and on what is shown, and on nothing else.
    """

    strengths: Mapping[str, float] | Callable[[str], float]
    position_bias: float = 0.0
    tie_rate: float = 0.0
    seed: int = 0

    def strength(self, response: str) -> float:
        if callable(self.strengths):
            return self.strengths(response)
        return next(s for marker, s in self.strengths.items() if marker in response)

    def __call__(self, shown: Shown) -> str:
        a, b = self.strength(shown.response_a), self.strength(shown.response_b)
        d = a - b + self.position_bias
        nu = 2 * self.tie_rate / (1 - self.tie_rate)
        weights = {"A": math.exp(d / 2), "B": math.exp(-d / 2), "TIE": nu}
        chance_a, chance_b, _ = (w / sum(weights.values()) for w in weights.values())
        u = draw("verdict", self.seed, shown.system, shown.user)
        if u < chance_a:
            return "A"
        return "B" if u < chance_a + chance_b else "TIE"


def choose(
    verdicts: Sequence[str] | Rule, system: str, user: str, *, turns: dict[str, int]
) -> str:
    """What a rule says; of a list the next one for a text that is new, noted in `turns`."""
    if callable(verdicts):
        return verdicts(Shown.of(system, user))
    turn = turns.setdefault(sha256([system, user]), len(turns))
    return verdicts[turn % len(verdicts)]


def reply_text(verdict: str, *, user: str, as_json: bool) -> str:
    """The JSON object of the verdict schema, or prose whose last line is the verdict."""
    found = [re.search(_RESPONSE.format(name), user, re.DOTALL) for name in "ab"]
    a, b = (match[2][:40] if match else "" for match in found)
    if as_json:
        reply = {"evidence_a": a, "evidence_b": b, "verdict": verdict}
        return json.dumps(reply, ensure_ascii=False)
    return f"A says {a!r}, B says {b!r}.\nVERDICT: {verdict}"


def plain_text(content: Any) -> str:
    """The text of a system prompt or a message: a string, or blocks that may hold some."""
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content or ())


def tokens(n_chars: int) -> int:
    """Four characters are a token."""
    return math.ceil(n_chars / 4)


def sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


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
    """A paid answer that stopped early: `refusal` has no text, any other half of it."""

    reason: str


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
