"""What test servers of batches share: the clock, the bill, the batches, and what can go wrong with them."""

from __future__ import annotations

import math
import random
import re
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.anthropic_verdicts import JSON, Canceled, Expired, Outcome, Rule
from tests.http_server import Call, Due, Fault, HttpServer, RefusedError, Stage, Status

DAY = 86400


class Clock:
    """Epoch seconds: real time, from another start if need be, and advanced by hand."""

    def __init__(self, start: float | None = None) -> None:
        self._ahead = 0.0 if start is None else start - time.time()

    def now(self) -> float:
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


# What can go wrong here beside the faults of any server


@dataclass(frozen=True)
class LateAccept(Fault):
    """The connection is reset; the batch arrives so many seconds later all the same."""

    seconds: float


class DoubleAccept(Fault):
    """The batch is accepted twice; the client is told of the first."""


class NeverEnd(Fault):
    """The batch that this call creates does not end before it expires or is canceled."""


@dataclass(frozen=True)
class DropRows(Fault):
    """The last k rows of the results are missing."""

    k: int = 1


class DupRow(Fault):
    """The first row of the results comes again at the end."""


class AlienRow(Fault):
    """The results begin with a row that nobody asked for."""


class UnknownType(Fault):
    """The first row of the results is of a type that no client knows yet."""


def spoiled(rows: Sequence[JSON], due: Due) -> list[JSON]:
    """The rows of a results file, as these faults leave them."""
    first, spoilt = rows[0], list(rows)
    if due.get(UnknownType):
        spoilt[0] = {"custom_id": first["custom_id"], "result": {"type": "paused"}}
    if drop := due.get(DropRows):
        spoilt = spoilt[: max(0, len(spoilt) - drop.k)]
    if due.get(DupRow):
        spoilt += spoilt[:1]
    if due.get(AlienRow):
        spoilt.insert(0, {**first, "custom_id": "alien"})
    return spoilt


# The bill


class Meter:
    """What was called and what was billed.

    billed           how often each question was: the part of a custom_id after its first '-'
    billed_bodies    the same by a hash of all that reaches the model, in batches and outside
    tokens_by_model  (model, "batch" | "standard") -> tokens by class: input_tokens,
                     cache_creation_5m, cache_creation_1h, cache_read_input_tokens, output_tokens
    """

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        self.billed: Counter[str] = Counter()
        self.billed_bodies: Counter[str] = Counter()
        self.tokens_by_model: defaultdict[tuple[str, str], Counter[str]]
        self.tokens_by_model = defaultdict(Counter)

    @property
    def tokens(self) -> dict[str, Counter[str]]:
        """Tokens by class, of "batch" and of "standard"."""
        tiers: dict[str, Counter[str]] = {"batch": Counter(), "standard": Counter()}
        for (_, tier), spent in self.tokens_by_model.copy().items():
            tiers[tier].update(spent)
        return tiers

    @property
    def paid_twice(self) -> set[str]:
        """The questions that were billed more than once."""
        return {key for key, times in self.billed.items() if times > 1}

    def count(self, method: str, path: str = "") -> int:
        """How many calls of this method went to a path in which the regular expression is."""
        return sum(
            c.method == method and bool(re.search(path, c.path)) for c in self.calls
        )

    def posts(self, path: str = "") -> int:
        return self.count("POST", path)

    def bill(self, model: str, usage: JSON, *, body: str, question: str | None) -> None:
        self.billed_bodies[body] += 1
        if question is not None:
            self.billed[question] += 1
        written = usage["cache_creation"]
        self.tokens_by_model[model, usage["service_tier"]].update(
            input_tokens=usage["input_tokens"],
            cache_creation_5m=written["ephemeral_5m_input_tokens"],
            cache_creation_1h=written["ephemeral_1h_input_tokens"],
            cache_read_input_tokens=usage["cache_read_input_tokens"],
            output_tokens=usage["output_tokens"],
        )


@dataclass(frozen=True, kw_only=True)
class Fate:
    """How a batch ends by itself, early.

    unanswered  what becomes of the requests that are not run
    code        why none is run, although it was accepted: it has failed
    n_run       how many are run before
    is_silent   the results have no row of those that were not run
    """

    unanswered: Expired | Canceled = field(default_factory=Expired)
    code: str | None = None
    n_run: int = 0
    is_silent: bool = False


@dataclass(kw_only=True)
class Batch:
    """A batch that was accepted."""

    id: str
    created_at: float
    requests: list[JSON]
    submission: JSON = field(default_factory=dict, repr=False)
    polls: int = 0
    never_ends: bool = False
    canceled_at: float | None = None
    ended_at: float | None = None
    archived_at: float | None = None
    rows: list[JSON] = field(default_factory=list, repr=False)
    workspace: str = ""
    fate: Fate | None = None  # once it has ended early

    @property
    def n(self) -> int:
        return len(self.requests)

    @property
    def status(self) -> str:
        if self.ended_at is not None:
            return "ended"
        return "in_progress" if self.canceled_at is None else "canceling"


def refused(code: int, message: str) -> RefusedError:
    return RefusedError(Status(code, message=message))


@dataclass(kw_only=True, eq=False)
class BatchServer(HttpServer):
    """The service, while the `with` block lasts.

    verdicts        a list, taken in turn by first sight; or a rule
    polls_to_end    how often a batch must be retrieved until it has ended; 0: unobserved
    seconds_to_end  ... and how long it takes at least
    order           of the rows of the results
    counts_ids      whether ids of batches are counted from 0, as of a simulator or a gateway
    outcomes        what becomes of the request that is run for the n-th time (n = 1, 2, ...);
                    None: it is answered
    key             that is let in, besides those of `workspaces`: names of workspaces by key. Each sees its own batches;
                    `key` has one that is called ""
    organization    that the headers of answers name
    fates           how the n-th batch (n = 1, 2, ...) ends early; None: it does not

    Of a canceled batch half is answered nevertheless. All settings may be changed while it runs.
    """

    verdicts: Sequence[str] | Rule = ("A",)
    clock: Clock = field(default_factory=Clock)
    polls_to_end: int = 1
    seconds_to_end: float = 0.0
    key: str = "test-key"
    workspaces: dict[str, str] = field(default_factory=dict)
    organization: str | None = None
    max_bytes: int = 2**28
    seed: int = 0
    order: Literal["given", "reversed", "shuffled"] = "shuffled"
    counts_ids: bool = False
    outcomes: Callable[[JSON, int], Outcome | None] | None = None
    fates: Mapping[int, Fate] = field(default_factory=dict)
    on_call: Callable[[Stage, Call], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.meter = Meter(self.calls)
        self.late: list[tuple[float, JSON]] = []
        self._batches: dict[str, Batch] = {}
        self._here = threading.local()
        self._runs: Counter[str] = Counter()
        self._turns: dict[str, int] = {}

    def now(self) -> float:
        return self.clock.now()

    fault = HttpServer.add_fault

    # ---- what a provider adds

    prefix = "batch"  # of an id
    life, kept = DAY, 29 * DAY  # seconds until a batch expires, and its results go

    def requests_in(self, content: JSON) -> list[JSON]:
        """The requests that a submission brings: each a custom_id and params."""
        raise NotImplementedError

    def _row(self, custom_id: str, result: Any) -> JSON:
        raise NotImplementedError

    def _run(
        self, params: JSON, *, tier: str, now: float, question: str | None = None
    ) -> Any:
        """What has become of a request, which is billed where it is answered."""
        raise NotImplementedError

    def submitted(self, call: Call) -> list[JSON]:
        """The requests of a submission that came."""
        return self.requests_in(call.json())

    def headers(self) -> Mapping[str, str]:
        names = ("anthropic-organization-id", "openai-organization")
        return dict.fromkeys(names, self.organization) if self.organization else {}

    def let_in(self, key: str, words: str) -> None:
        """Raise RefusedError for a key that is not known; from then on this call is one of its workspace's."""
        if key != self.key and key not in self.workspaces:
            raise refused(401, words)
        self._here.workspace = self.workspaces.get(key, "")

    @property
    def seen(self) -> dict[str, Batch]:
        """The batches that this call may see, by id."""
        here = getattr(self._here, "workspace", "")
        return {
            batch.id: batch
            for batch in self._batches.values()
            if batch.workspace == here
        }

    # ---- batches

    def is_lost(self, call: Call, due: Due) -> bool:
        if late := due.get(LateAccept):
            self.late.append((self.now() + late.seconds, call.json()))
        return late is not None or super().is_lost(call, due)

    @property
    def batches(self) -> list[Batch]:
        """The accepted batches, newest last, as they stand now."""
        with self.lock:
            self._catch_up()
            return list(self._batches.values())

    def accept(self, content: JSON, *, at: float) -> Batch:
        requests = self.requests_in(content)
        ids = [request["custom_id"] for request in requests]
        if not requests or len(set(ids)) < len(ids):
            raise refused(400, "requests: expected some, with ids of their own")
        if bad := [i for i in ids if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", i)]:
            raise refused(400, f"custom_id: {bad[0]}")
        which = f"{len(self._batches)}" if self.counts_ids else uuid.uuid4().hex[:24]
        batch_id = f"{self.prefix}_{which}"
        batch = Batch(
            id=batch_id,
            created_at=at,
            requests=requests,
            submission=content,
            workspace=getattr(self._here, "workspace", ""),
        )
        self._batches[batch.id] = batch
        return batch

    def _find(self, batch_id: str) -> Batch:
        if batch_id not in self.seen:
            raise refused(404, f"There is no message batch {batch_id}")
        return self._batches[batch_id]

    def _get(self, batch: Batch) -> Batch:
        batch.polls += 1
        self._advance(batch, self.clock.now())
        return batch

    def _catch_up(self) -> None:
        """What the clock has brought: late batches arrive, others end, or are archived."""
        now = self.clock.now()
        for arrival in [late for late in self.late if late[0] <= now]:
            self.late.remove(arrival)
            self.accept(arrival[1], at=arrival[0])
        for batch in self._batches.values():
            self._advance(batch, now)

    def _advance(self, batch: Batch, now: float) -> None:
        polls, due = self.polls_to_end, batch.created_at + self.seconds_to_end
        expiry, archival = batch.created_at + self.life, batch.created_at + self.kept
        if batch.canceled_at is not None:
            polls, due = min(polls, 1), batch.canceled_at
        elif batch.never_ends:
            due = math.inf
        if batch.ended_at is None:
            if batch.polls >= polls and due <= min(now, expiry):
                self._end(batch, at=min(now, expiry))
            elif now > expiry:
                self._end(batch, at=expiry, unanswered=Expired())
        if batch.archived_at is None and now > archival:
            batch.archived_at, batch.rows = archival, []

    def _end(
        self, batch: Batch, *, at: float, unanswered: Canceled | Expired | None = None
    ) -> None:
        """Run the requests in their order, and put the results into another."""
        number = list(self._batches).index(batch.id) + 1
        fate = self.fates.get(number)
        if batch.canceled_at is not None:
            fate = Fate(unanswered=Canceled(), n_run=batch.n // 2)
        if unanswered is not None:
            fate = Fate(unanswered=unanswered)
        batch.fate = fate
        for n, request in enumerate(batch.requests):
            custom_id, result = request["custom_id"], fate and fate.unanswered
            if fate and n >= fate.n_run and (fate.code or fate.is_silent):
                continue
            if fate is None or n < fate.n_run:
                question = custom_id.partition("-")[2] or custom_id
                result = self._run(
                    request["params"], tier="batch", now=at, question=question
                )
            batch.rows.append(self._row(custom_id, result))
        if self.order == "shuffled":
            random.Random(batch.requests[0]["custom_id"]).shuffle(batch.rows)
        elif self.order == "reversed":
            batch.rows.reverse()
        batch.ended_at = at
