"""Entrants: whoever answers the prompts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from elo_exp.records import Prompt, Response


class Entrant(Protocol):
    @property
    def entrant_id(self) -> str: ...

    def inputs(self, prompt: Prompt) -> Mapping[str, Any]:
        """Everything that can change the answer to this prompt, as JSON: its fingerprint names the stored answer."""

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        """An answer to each prompt, in any order, as they are made; none for a prompt it has no answer to."""


@runtime_checkable
class ModelEntrant(Entrant, Protocol):
    """An entrant whose answers take hours or money: a plan makes none of them."""

    @property
    def max_answer_tokens(self) -> int:
        """Where an answer is cut off."""


@runtime_checkable
class LoadedEntrant(ModelEntrant, Protocol):
    """An entrant that answers with weights in memory."""

    @property
    def weights(self) -> Hashable:
        """What has to be loaded: entrants with equal weights answer one after the other, from one load."""

    def release(self) -> None:
        """Let go of the weights: the last of these entrants has answered."""


@runtime_checkable
class HostedEntrant(ModelEntrant, Protocol):
    """An entrant that answers through an API."""

    def preflight(self) -> None:
        """Raise UserError for what would stop the first request, such as a missing key."""
