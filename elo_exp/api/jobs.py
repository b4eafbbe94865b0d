"""What is to be asked of a model behind an API, what it answers, and what the model itself has to
know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from elo_exp.api.costs import Budget, Prices
from elo_exp.records import Record

Message = Mapping[str, Any]  # an API's answer, as JSON
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request: the key of its answer, what it asks about in the words of the answer's record,
    and what it asks.

    Jobs with the same prefix share a part of their prompt, which the server may cache.
    """

    key: str
    names: Mapping[str, Any]
    request: Any
    prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a message says."""

    text: str
    stop_reason: str  # end_turn, max_tokens, refusal, ..., as in a JudgeReply
    usage: Mapping[str, int]  # tokens by class; empty where the API does not say
    model: str | None = None  # what the API calls the model that answered


class Api(Protocol):
    """A server of single messages."""

    endpoint: str

    def send(self, params: Mapping[str, Any]) -> Message:
        """One message at once. Raises RefusedError or DoubtfulError."""


class Model(Protocol):
    """What a judge or an entrant knows of its requests, and nothing of how they travel."""

    @property
    def model(self) -> str: ...

    @property
    def server(self) -> str:
        """Name of the server, for messages."""

    @property
    def max_tokens(self) -> int:
        """Where an answer is cut off."""

    @property
    def budget(self) -> Budget:
        """What a whole run may spend on this model."""

    @property
    def budget_setting(self) -> str:
        """The setting that holds the cap, for messages."""

    def prices_of(self, model: str) -> Prices | None:
        """Prices of a model, which may be another's: a batch that was taken over may have asked it.
        None: unknown."""

    def params(self, request: Any, ttl: str | None) -> dict[str, Any]:
        """The body of a request; `ttl` is the time to live that it asks of the prompt cache, if
        any."""

    def parse(self, message: Message) -> Completion: ...


# Makes the record of an answer from its key, its names, what it says, what it cost (None: unknown)
# and the message.
Recorder = Callable[[str, Mapping[str, Any], Completion, float | None, Message], R]


def worst_dollars(
    model: Model, params: Mapping[str, Any], ttl: str | None, *, batched: bool
) -> float:
    """The most that one request may cost; 0 where its prices are not known."""
    prices = model.prices_of(model.model)
    return (
        prices.worst(params, model.max_tokens, ttl, batched=batched) if prices else 0.0
    )
