"""Judges: requests in, replies out. Rubrics, order swapping, parsing and reconciling are not their business."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from elo_exp.api.planning import Estimate
from elo_exp.records import JudgeReply, JudgeRequest
from elo_exp.store.store import Store


class Judge(Protocol):
    @property
    def model(self) -> str: ...

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The fields of the comparison, beyond the rendered text, that can change the reply; part of the key."""

    def cache_key(self) -> Mapping[str, Any]:
        """Everything of the judge, beyond the request, that can change its reply, as JSON; part of every key."""

    def answer(self, requests: Sequence[JudgeRequest], store: Store) -> Iterator[JudgeReply]:
        """A reply to each request, in any order, as they arrive, each committed to the store before it is passed on;
        none where the judge has no answer."""


@runtime_checkable
class PaidJudge(Judge, Protocol):
    """A judge whose answers cost money."""

    @property
    def budget_usd(self) -> float:
        """The cap that it submits nothing past, over a whole run."""

    @property
    def budget_setting(self) -> str:
        """The name of the setting that holds the cap, for the words of an error."""

    def preflight(self) -> None:
        """Raise UserError for what would stop the first paid call, such as a missing key."""

    def estimate(self, requests: Sequence[JudgeRequest]) -> Estimate: ...
