"""Entrants: whoever answers the prompts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from elo_exp.api.costs import Budget, Prices
from elo_exp.api.jobs import Api, Completion, Message
from elo_exp.records import ForcedLogprob, Prompt, Response


class Entrant(Protocol):
    """Whoever answers prompts: an OfflineEntrant or a HostedEntrant."""

    @property
    def entrant_id(self) -> str: ...

    def cache_key(self, prompt: Prompt) -> Mapping[str, Any]:
        """Everything that can change the answer to this prompt, as JSON: its fingerprint names the stored answer."""


@runtime_checkable
class OfflineEntrant(Entrant, Protocol):
    """An entrant that answers by itself."""

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        """An answer to each prompt, in any order, as they are made; none for a prompt it has no answer to."""


@runtime_checkable
class ModelEntrant(Entrant, Protocol):
    """An entrant whose answers take hours or money: a plan makes none of them."""

    @property
    def max_answer_tokens(self) -> int:
        """Where an answer is cut off."""


@runtime_checkable
class LoadedEntrant(OfflineEntrant, ModelEntrant, Protocol):
    """An entrant that answers with weights in memory."""

    @property
    def weights(self) -> Hashable:
        """What has to be loaded: entrants with equal weights answer one after the other, from one load."""

    def release(self) -> None:
        """Let go of the weights: the last of these entrants has answered."""


@runtime_checkable
class Policy(LoadedEntrant, Protocol):
    """An entrant that says how likely it is to give an answer, its own or another policy's."""

    @property
    def logprobs(self) -> bool:
        """Whether each of its answers records `token_ids`, their `total_logprob` in nats as they were drawn, and whose
        `token_ids` these are (`tokenizer`) in its diagnostics. A policy of which this is false is none."""

    def logprob_key(self, prompt: Prompt) -> Mapping[str, Any]:
        """Everything that can change how likely tokens are after this prompt, as JSON; of two policies for which it is
        the same, one is a clone of the other."""

    def teacher_force(
        self, prompts: Mapping[str, Prompt], responses: Sequence[Response]
    ) -> Iterator[ForcedLogprob]:
        """How likely the recorded tokens of each response are, after its prompt as this policy is told it.

        prompts  by prompt_id
        Raises UserError for a response without recorded tokens, and for one of another tokenizer.
        """


@runtime_checkable
class HostedEntrant(ModelEntrant, Protocol):
    """An entrant behind an API: it knows its requests and its prices, and nothing of how they travel."""

    api: Api
    concurrency: int  # requests at a time
    max_tokens: int
    budget: Budget
    budget_setting: str  # the setting that holds the cap, for messages
    server: str  # its name, for messages

    @property
    def model(self) -> str: ...

    @property
    def may_bill(self) -> bool:
        """Whether its answers may have to be paid for."""

    def preflight(self) -> None:
        """Raise UserError for what would stop the first request, such as a missing key."""

    def prices_of(self, model: str) -> Prices | None:
        """None: not known, so that no dollars are counted."""

    def params(self, request: Prompt, ttl: str | None) -> dict[str, Any]:
        """The body of a request."""

    def parse(self, message: Message) -> Completion: ...
