"""Judges answer requests with replies; rubrics, orders, parsing and reconciling are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from elo_exp.api.batches import BatchApi, BatchSettings
from elo_exp.api.costs import Budget, Prices
from elo_exp.api.jobs import Api, Completion, Message
from elo_exp.api.token_estimator import TokenEstimator
from elo_exp.records import JudgeReply, JudgeRequest
from elo_exp.store.store import Store


class BatchingApi(Api, BatchApi, Protocol):
    """An API that takes both."""


@runtime_checkable
class Judge(Protocol):
    """An OfflineJudge or a PaidJudge.

    Building one reads no file, network or environment: that is for `check` and `cache_key`.
    """

    @property
    def model(self) -> str: ...

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Fields of the comparison, beyond the rendered text, that can change the reply."""

    def cache_key(self) -> Mapping[str, Any]:
        """Return everything of the judge that can change a reply, as JSON; part of every key.

        Raises UserError for a model or a file that is absent.
        """


@runtime_checkable
class OfflineJudge(Judge, Protocol):
    """A judge that answers by itself, at no cost."""

    def answer(
        self, requests: Sequence[JudgeRequest], store: Store
    ) -> Iterator[JudgeReply]:
        """Reply to requests, in any order, each reply committed to the store before it is yielded;
        skip those it has no answer to."""


@runtime_checkable
class PaidJudge(Judge, Protocol):
    """A judge behind an API: it knows its requests and its prices, and nothing of how they
    travel."""

    api: Api
    transport: str  # batches or messages
    concurrency: int  # requests at a time, of messages
    pause_seconds: float  # between looks at what other processes pay for
    cache: (
        str | None
    )  # of prompts: measured, 1h, 5m or none; None: that is the server's business
    max_tokens: int
    budget: Budget
    budget_setting: str  # the setting that holds the cap, for messages
    estimator: TokenEstimator
    expected_output_tokens: int
    expected_hit_rate: float

    @property
    def server(self) -> str:
        """Name of the server, for messages."""

    def preflight(self) -> None:
        """Raise UserError for what would stop the first paid call, such as a missing key."""

    def prices_of(self, model: str) -> Prices | None: ...

    def token_counter(self) -> Callable[[Mapping[str, Any]], int] | None:
        """What counts the tokens of a request free of charge; None where nothing does."""

    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]:
        """The body of a request; `ttl` is the time to live that it asks of the prompt cache, if
        any."""

    def parse(self, message: Message) -> Completion: ...


@runtime_checkable
class BatchJudge(PaidJudge, Protocol):
    """A judge whose API takes batches, chosen for this run or for an earlier one."""

    api: BatchingApi
    batch_settings: BatchSettings
