"""What a server of batches must offer, what a judge must say of its queries, and the ways in which a call fails."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from elo_exp.api.costs import Budget
from elo_exp.records import JudgeReply, JudgeRequest
from elo_exp.store.ledger import Ledger

NO_CONNECTION = 0  # the status of a request for which there was no connection
_PATIENCE_SECONDS = 900.0  # a server that asks to wait for longer than this has no answers today


class RefusedError(Exception):
    """The server has certainly not accepted the request."""

    def __init__(self, message: str, *, status: int, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class DoubtfulError(Exception):
    """The server may or may not have accepted the request."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class UnreachableError(Exception):
    """A question to the server, which costs nothing, got no answer now; it may later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBatch:
    """A batch as the server describes it. Its size is the only fact of ours that shows before it ends."""

    batch_id: str
    size: int
    ended: bool
    archived: bool
    lifetime_seconds: float  # from its creation to its expiry, both by the server's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One result. `outcome`: succeeded, expired, canceled, the type of an error, or None for what is not understood.
    `may_cost`: it was to be a success, and is no message."""

    custom_id: str
    outcome: str | None
    detail: str = ""
    message: Mapping[str, Any] | None = None
    may_cost: bool = False


class BatchService(Protocol):
    """A server of batches. Where not said otherwise a method may raise UnreachableError, or UserError for a refusal."""

    endpoint: str

    def newest(self) -> str | None: ...

    def create(self, requests: Sequence[Mapping[str, Any]]) -> RemoteBatch:
        """Raises RefusedError or DoubtfulError. Never submits a second time by itself."""

    def retrieve(self, batch_id: str) -> RemoteBatch | None:
        """None where the server knows of no such batch."""

    def newest_first(self) -> Iterator[RemoteBatch]: ...

    def results(self, batch_id: str) -> Iterator[Row]:
        """In any order, perhaps cut short."""


class Queries(Protocol):
    """What a judge knows of its queries."""

    model: str
    budget_setting: str  # which holds the cap

    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]: ...

    def reserve(self, request: JudgeRequest, ttl: str | None) -> float:
        """The most dollars that it may cost."""

    def reply(
        self, key: str, names: Mapping[str, str], message: Mapping[str, Any]
    ) -> JudgeReply: ...

    def best_ttl(self, hit_rate: float) -> str | None: ...


class Clock:
    """`elapsed` for every wait and deadline, in seconds: no step of a clock moves it. `wall`, in seconds since 1970,
    is for stamps that people read."""

    elapsed = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    sleep = staticmethod(time.sleep)


@dataclass(kw_only=True)
class BatchSettings:
    chunk_size: int
    poll_initial_seconds: float
    poll_max_seconds: float
    quarantine_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTools:
    """What one process's work on batches is done with."""

    service: BatchService
    judge: Queries
    ledger: Ledger
    budget: Budget
    settings: BatchSettings
    clock: Clock


def has_run_dry(kind: str | None, words: str) -> bool:
    """Whether an error says that the account has no money left: no later request will fare better."""
    return kind == "billing_error" or any(
        sign in words.lower() for sign in ("credit balance", "insufficient_quota")
    )


def no_hope(server: str, error: RefusedError | DoubtfulError) -> str:
    """Why nothing more is to be had from a server today, as a sentence; empty where more may be."""
    if has_run_dry(None, str(error)):
        return f"{server} says that the account has run dry ({error})."
    asked = error.retry_after if isinstance(error, RefusedError) else None
    if asked is not None and asked > _PATIENCE_SECONDS:
        return f"{server} asks to wait for {asked / 60:.0f} minutes ({error})."
    return ""
