"""A server on 127.0.0.1 that speaks Anthropic's Message Batches API, loses what it is told to lose, and keeps the bill.

    python -m tests.anthropic_server --polls-to-end 2 --seconds-to-end 5 --verdicts noisy

prints its address and the command that judges with it; Ctrl-C prints the bill. In a test:

    with AnthropicServer(verdicts=["A", "TIE"]) as server:
        server.fault("POST", r"/batches$", AcceptThenReset(), nth=2)
        ...                                                 # a client of server.url, with the key "test-key"
        assert set(server.meter.billed.values()) == {1}     # each question is paid for once

Single messages, count_tokens and /v1/models/ID are served too.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import socket
import struct
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from tests.anthropic_verdicts import (
    JSON,
    MODELS,
    Canceled,
    Errored,
    Expired,
    Model,
    NoisyBradleyTerry,
    Outcome,
    PromptCache,
    Reshaped,
    Rule,
    Says,
    body_key,
    choose,
    draw,
    longer,
    message,
    n_input_tokens,
    objection,
    plain_text,
    reply_text,
    sha256,
)

VERSIONS = ("2023-06-01", "2026-10-21")
DAY = 86400
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
CODES = {etype: code for code, etype in TYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a batch may be, and how long it and its results live, in seconds."""

    max_requests: int = 100_000
    max_bytes: int = 256 * 2**20
    expires_after: float = DAY
    archived_after: float = 29 * DAY


class Clock:
    """Epoch seconds: real time, from another start if need be, plus what it has been advanced by."""

    def __init__(self, start: float | None = None) -> None:
        self._advanced = 0.0 if start is None else start - time.time()

    def now(self) -> float:
        return time.time() + self._advanced

    def advance(self, seconds: float) -> None:
        self._advanced += seconds


# What can go wrong with a call. Several faults of the same call add up where that makes sense.


class Fault:
    """What `AnthropicServer.fault` takes."""


@dataclass(frozen=True)
class ResetBefore(Fault):
    """The connection is reset; nothing has been done."""


@dataclass(frozen=True)
class Status(Fault):
    """The call is refused with this HTTP status; nothing has been done."""

    code: int
    etype: str | None = None  # None: what goes with the code
    message: str = "Refused by the test."
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Instead(Fault):
    """Nothing has been done, and this comes back with status 200: from a login page, or a gateway."""

    content: bytes


@dataclass(frozen=True)
class AcceptThenReset(Fault):
    """It is done; then the connection is reset instead of an answer."""


@dataclass(frozen=True)
class AcceptThenStatus(Fault):
    """It is done; the answer says that it failed."""

    code: int = 500


@dataclass(frozen=True)
class AcceptThenHang(Fault):
    """It is done; the answer comes so many real seconds later."""

    seconds: float


@dataclass(frozen=True)
class LateAccept(Fault):
    """The connection is reset; the batch is accepted all the same, so many seconds later by the server's clock."""

    seconds: float


@dataclass(frozen=True)
class DoubleAccept(Fault):
    """The batch is accepted twice; the client is told of the first."""


@dataclass(frozen=True)
class NeverEnd(Fault):
    """The batch that this call creates does not end before it expires or is canceled."""


@dataclass(frozen=True)
class Truncate(Fault):
    """The body is cut after so many bytes, or after so many whole rows.

    rst    the connection is reset there
    eof    the connection is closed there, though more was announced
    clean  the shorter body is ended properly, as a proxy does that has lost its upstream
    """

    at_byte: int = 0
    how: Literal["rst", "eof", "clean"] = "rst"
    after_rows: int | None = None

    def length(self, body: bytes) -> int:
        if self.after_rows is None:
            return min(self.at_byte, len(body))
        return sum(map(len, body.splitlines(keepends=True)[: self.after_rows]))


@dataclass(frozen=True)
class SlowBody(Fault):
    """The body comes in pieces of so many bytes, with a pause, in real seconds, after each."""

    pause: float = 0.01
    piece: int = 1024


@dataclass(frozen=True)
class DropRows(Fault):
    """The last k rows of the results are missing."""

    k: int = 1


@dataclass(frozen=True)
class DupRow(Fault):
    """The first row of the results comes again at the end."""


@dataclass(frozen=True)
class AlienRow(Fault):
    """The results begin with a row that nobody asked for."""


@dataclass(frozen=True)
class UnknownType(Fault):
    """The first row of the results is of a type that no client knows yet."""


F = TypeVar("F", bound=Fault)


class Due(tuple[Fault, ...]):
    """The faults of one call."""

    def get(self, kind: type[F]) -> F | None:
        return next((fault for fault in self if isinstance(fault, kind)), None)

    def spoil(self, rows: Sequence[bytes]) -> list[bytes]:
        """The rows of a results file, as these faults leave them."""
        first, spoilt = json.loads(rows[0]), list(rows)
        if self.get(UnknownType):
            spoilt[0] = line({**first, "result": {"type": "paused"}})
        if drop := self.get(DropRows):
            spoilt = spoilt[: max(0, len(spoilt) - drop.k)]
        if self.get(DupRow):
            spoilt += spoilt[:1]
        if self.get(AlienRow):
            spoilt.insert(0, line({**first, "custom_id": "alien"}))
        return spoilt


# The bill


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request as it was read. The names in `headers` are lower case; `body` is kept with `keep_bodies` only."""

    time: float
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    size: int
    body: bytes | None = field(default=None, repr=False)

    def json(self) -> Any:
        if self.body is None:
            raise ValueError(
                f"{self.path}: its body was not kept. Use AnthropicServer(keep_bodies=True)."
            )
        return json.loads(self.body)


class Meter:
    """What was called and what was billed.

    billed           how often each question was billed: the part of a batch's custom_id after its first '-'
    billed_bodies    the same by a hash of all that reaches the model, in batches and outside, whatever the ids are
    tokens_by_model  (model, "batch" | "standard") -> tokens by class: input_tokens, cache_creation_5m,
                     cache_creation_1h, cache_read_input_tokens, output_tokens
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.billed: Counter[str] = Counter()
        self.billed_bodies: Counter[str] = Counter()
        self.tokens_by_model: defaultdict[tuple[str, str], Counter[str]] = defaultdict(
            Counter
        )

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
        """How many calls of this method went to a path in which the regular expression is found."""
        return sum(
            call.method == method and bool(re.search(path, call.path))
            for call in self.calls
        )

    def posts(self, path: str = "") -> int:
        return self.count("POST", path)

    def gets(self, path: str = "") -> int:
        return self.count("GET", path)

    def bill(self, model: str, usage: JSON, *, body: str, question: str | None) -> None:
        self.billed_bodies[body] += 1
        if question is not None:
            self.billed[question] += 1
        self.tokens_by_model[model, usage["service_tier"]].update(
            input_tokens=usage["input_tokens"],
            cache_creation_5m=usage["cache_creation"]["ephemeral_5m_input_tokens"],
            cache_creation_1h=usage["cache_creation"]["ephemeral_1h_input_tokens"],
            cache_read_input_tokens=usage["cache_read_input_tokens"],
            output_tokens=usage["output_tokens"],
        )

    def summary(self) -> JSON:
        return {
            "calls": Counter(call.method for call in self.calls),
            "bytes": sum(call.size for call in self.calls),
            "questions": len(self.billed),
            "paid_twice": len(self.paid_twice),
            "bodies": len(self.billed_bodies),
            "bodies_paid_twice": sum(
                times > 1 for times in self.billed_bodies.values()
            ),
            "tokens": {
                " ".join(key): spent
                for key, spent in self.tokens_by_model.copy().items()
            },
        }


# The protocol, without its wires


def line(row: JSON) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def rfc3339(seconds: float | None) -> str | None:
    return (
        None
        if seconds is None
        else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    )


@dataclass(kw_only=True)
class Batch:
    """A batch that was accepted. `requests` is emptied when it ends, unless bodies are kept."""

    id: str
    created_at: float
    expires_at: float
    custom_ids: list[str]
    requests: list[JSON]
    polls: int = 0
    never_ends: bool = False
    cancel_initiated_at: float | None = None
    ended_at: float | None = None
    archived_at: float | None = None
    rows: list[bytes] = field(default_factory=list, repr=False)
    counts: Counter[str] = field(default_factory=Counter)  # of the rows, by type

    @property
    def n(self) -> int:
        return len(self.custom_ids)

    @property
    def status(self) -> str:
        if self.ended_at is not None:
            return "ended"
        return "in_progress" if self.cancel_initiated_at is None else "canceling"

    def view(self, host: str) -> JSON:
        """The MessageBatch object."""
        url = f"http://{host}/v1/messages/batches/{self.id}/results"
        counts = {
            kind: self.counts[kind]
            for kind in ("succeeded", "errored", "canceled", "expired")
        }
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": self.status,
            "request_counts": {"processing": self.n - sum(counts.values()), **counts},
            "created_at": rfc3339(self.created_at),
            "expires_at": rfc3339(self.expires_at),
            "cancel_initiated_at": rfc3339(self.cancel_initiated_at),
            "ended_at": rfc3339(self.ended_at),
            "archived_at": rfc3339(self.archived_at),
            "results_url": url
            if self.status == "ended" and self.archived_at is None
            else None,
        }


@dataclass(frozen=True, slots=True)
class Paid:
    """What was billed: a message, or what has become of one."""

    message: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back: JSON, mostly an object; or the rows of a results file; or exactly these bytes."""

    content: Any
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[bytes] | None = None
    raw: bytes | None = None


class RefusedError(Exception):
    """The call is answered with an error, whose type follows from the code if it is not given."""

    def __init__(
        self,
        code: int,
        etype: str | None,
        text: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        etype = etype or TYPES.get(code) or TYPES[400 if code < 500 else 500]
        content = {
            "type": "error",
            "error": {"type": etype, "message": text},
            "request_id": _new_id("req"),
        }
        self.answer = Answer(content, code, headers or {})


def _invalid(text: str) -> RefusedError:
    return RefusedError(400, "invalid_request_error", text)


def _new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex[:24]}"


@dataclass(kw_only=True, eq=False)
class Api:
    """The state of the service, and what each call does to it. All settings may be changed while it runs.

    verdicts               a list, taken in turn by first sight; or a rule (tests/anthropic_verdicts.py)
    polls_to_end           how often a batch must be retrieved until it has ended; 0: it ends unobserved
    seconds_to_end         ... and how long it takes at least
    miss_rate              the share of prompt-cache reads that miss
    order                  of the rows of the results
    outcomes               what becomes of the request `params` that is run for the n-th time (n = 1, 2, ...);
                           None: it is answered
    started_when_canceled  the share of the requests of a canceled batch that are answered nevertheless
    """

    verdicts: Sequence[str] | Rule = ("A",)
    clock: Clock = field(default_factory=Clock)
    polls_to_end: int = 1
    seconds_to_end: float = 0.0
    key: str = "test-key"
    models: Mapping[str, Model] = field(default_factory=lambda: MODELS)
    limits: Limits = Limits()
    miss_rate: float = 0.0
    seed: int = 0
    order: Literal["given", "reversed", "shuffled"] = "shuffled"
    outcomes: Callable[[JSON, int], Outcome | None] | None = None
    started_when_canceled: float = 0.5
    thinking_tokens: int = 20
    keep_bodies: bool = False

    def __post_init__(self) -> None:
        self.meter = Meter()
        self._lock = threading.RLock()
        self._batches: dict[str, Batch] = {}
        self._late: list[tuple[float, JSON]] = []
        self._cache = PromptCache()
        self._runs: Counter[str] = Counter()
        self._turns: dict[str, int] = {}

    @property
    def batches(self) -> list[Batch]:
        """The accepted batches, newest last, as they stand now; deleted ones included."""
        with self._lock:
            self._catch_up()
            return list(self._batches.values())

    def answer(self, call: Call, body: bytes) -> Answer:
        """The answer to a call, all of whose effects have taken place."""
        try:
            self._admit(call)
            content = self._parse(body) if call.method == "POST" else {}
            for method, path, action in ROUTES:
                if method == call.method and (match := path.fullmatch(call.path)):
                    with self._lock:
                        self._catch_up()
                        return action(self, call, content, *match.groups())
            raise RefusedError(
                404, "not_found_error", f"Not found: {call.method} {call.path}"
            )
        except RefusedError as refusal:
            return refusal.answer

    def _admit(self, call: Call) -> None:
        bearer = call.headers.get("authorization", "").removeprefix("Bearer ")
        version = call.headers.get("anthropic-version")
        if self.key not in (bearer, call.headers.get("x-api-key")):
            raise RefusedError(401, "authentication_error", "invalid x-api-key")
        if version not in VERSIONS:
            raise _invalid(f"anthropic-version: {version!r} is not a valid version")
        if call.size > self.limits.max_bytes:
            raise RefusedError(
                413,
                "request_too_large",
                f"Request exceeds {self.limits.max_bytes} bytes",
            )

    def _parse(self, body: bytes) -> JSON:
        try:
            content = json.loads(body) if body else {}
        except ValueError as problem:
            raise _invalid(f"The request body is not valid JSON: {problem}") from None
        if not isinstance(content, dict):
            raise _invalid("The request body should be a JSON object")
        return content

    def _catch_up(self) -> None:
        """What the clock has brought meanwhile: late batches arrive, running ones end, old ones are archived."""
        now = self.clock.now()
        for arrival in [late for late in self._late if late[0] <= now]:
            self._late.remove(arrival)
            with suppress(RefusedError):  # nobody is there to be told
                self._accept(arrival[1], at=arrival[0])
        for batch in self._batches.values():
            self._advance(batch, now)

    # Batches

    def accept_later(self, body: bytes, seconds: float) -> None:
        with self._lock:
            self._late.append((self.clock.now() + seconds, self._parse(body)))

    def never_end(self, batch_id: str) -> None:
        self._batches[batch_id].never_ends = True

    def _create_batch(self, call: Call, content: JSON) -> Answer:
        return Answer(
            self._accept(content, at=self.clock.now()).view(call.headers["host"])
        )

    def _accept(self, content: JSON, *, at: float) -> Batch:
        requests = content.get("requests")
        if not isinstance(requests, list) or not requests:
            raise _invalid("requests: List should have at least 1 item")
        if len(requests) > self.limits.max_requests:
            raise _invalid(
                f"requests: List should have at most {self.limits.max_requests} items"
            )
        if complaint := next(_batch_complaints(requests), None):
            raise _invalid(complaint)
        previous: JSON = {}
        for request in (
            requests
        ):  # what requests have in common, the rubric above all, is held once
            params = request["params"]
            params.update(
                {
                    name: held
                    for name, held in previous.items()
                    if name in params and params[name] == held
                }
            )
            previous = params
        batch = Batch(
            id=_new_id("msgbatch"),
            created_at=at,
            expires_at=at + self.limits.expires_after,
            custom_ids=[request["custom_id"] for request in requests],
            requests=requests,
        )
        self._batches[batch.id] = batch
        return batch

    def _list_batches(self, call: Call, _: JSON) -> Answer:
        asked = call.query.get("limit", "20")
        limit = int(asked) if asked.isdecimal() else 0
        if not 1 <= limit <= 1000:
            raise _invalid(f"limit: found {asked!r}. Input should be from 1 to 1000")
        found = list(reversed(self._batches.values()))
        ids = [batch.id for batch in found]
        after = call.query.get("after_id")
        if after is not None and after not in ids:
            raise _invalid(f"after_id: there is no batch {after}")
        rest = found if after is None else found[ids.index(after) + 1 :]
        page = rest[:limit]
        return Answer(
            {
                "data": [batch.view(call.headers["host"]) for batch in page],
                "has_more": len(rest) > len(page),
                "first_id": page[0].id if page else None,
                "last_id": page[-1].id if page else None,
            }
        )

    def _find(self, batch_id: str) -> Batch:
        batch = self._batches.get(batch_id)
        if batch is None:
            raise RefusedError(
                404, "not_found_error", f"There is no message batch {batch_id}"
            )
        return batch

    def _get_batch(self, call: Call, _: JSON, batch_id: str) -> Answer:
        batch = self._find(batch_id)
        batch.polls += 1
        self._advance(batch, self.clock.now())
        return Answer(batch.view(call.headers["host"]))

    def _get_results(self, _call: Call, _: JSON, batch_id: str) -> Answer:
        batch = self._find(batch_id)
        if batch.ended_at is None:
            raise _invalid(f"Message batch {batch_id} has not ended")
        if batch.archived_at is not None:
            raise RefusedError(
                404,
                "not_found_error",
                f"The results of message batch {batch_id} are archived",
            )
        return Answer({}, rows=batch.rows)

    def _cancel_batch(self, call: Call, _: JSON, batch_id: str) -> Answer:
        batch = self._find(batch_id)
        if batch.ended_at is not None:
            raise _invalid(f"Message batch {batch_id} has ended and cannot be canceled")
        if batch.cancel_initiated_at is None:
            batch.cancel_initiated_at, batch.polls = self.clock.now(), 0
        return Answer(batch.view(call.headers["host"]))

    def _advance(self, batch: Batch, now: float) -> None:
        """End the batch if it is time, expire it if it is too late, and archive it when it is old."""
        polls, due = self.polls_to_end, batch.created_at + self.seconds_to_end
        if batch.cancel_initiated_at is not None:
            polls, due = min(polls, 1), batch.cancel_initiated_at
        elif batch.never_ends:
            due = math.inf
        if (
            batch.ended_at is None
            and batch.polls >= polls
            and due <= min(now, batch.expires_at)
        ):
            self._end(batch, at=min(now, batch.expires_at))
        elif batch.ended_at is None and now > batch.expires_at:
            self._end(batch, at=batch.expires_at, unanswered=Expired())
        if (
            batch.archived_at is None
            and now > batch.created_at + self.limits.archived_after
        ):
            batch.archived_at, batch.rows = (
                batch.created_at + self.limits.archived_after,
                [],
            )

    def _end(
        self, batch: Batch, *, at: float, unanswered: Canceled | Expired | None = None
    ) -> None:
        """Run the requests in the order in which they came, and write the results in another."""
        started = batch.n if unanswered is None else 0
        if batch.cancel_initiated_at is not None and unanswered is None:
            started, unanswered = int(batch.n * self.started_when_canceled), Canceled()
        for n, request in enumerate(batch.requests):
            custom_id = request["custom_id"]
            question = custom_id.partition("-")[2] or custom_id
            ran = (
                self._run(request["params"], tier="batch", now=at, question=question)
                if n < started
                else unanswered
            )
            result = _result(ran)
            batch.counts[result["type"]] += 1
            batch.rows.append(line({"custom_id": custom_id, "result": result}))
        if self.order == "shuffled":
            random.Random(f"{self.seed} {batch.custom_ids[0]}").shuffle(batch.rows)
        elif self.order == "reversed":
            batch.rows.reverse()
        if not self.keep_bodies:
            batch.requests = []
        batch.ended_at = at

    # Single requests

    def _run(
        self, params: JSON, *, tier: str, now: float, question: str | None = None
    ) -> Paid | Outcome:
        """The message, which is billed; or what happened instead, which is not."""
        if problem := objection(params, self.models):
            return problem
        body = body_key(params)
        self._runs[body] += 1
        run = self._runs[body]
        outcome = self.outcomes(params, run) if self.outcomes else None
        if isinstance(outcome, Errored | Expired | Canceled):
            return outcome
        usage = self._cache.usage(
            params,
            tier=tier,
            min_cacheable=self.models[params["model"]].min_cacheable,
            now=now,
            missed=draw("miss", self.seed, body, run) < self.miss_rate,
        )
        answered = message(
            params,
            outcome.text if isinstance(outcome, Says) else self._reply_text(params),
            outcome=outcome,
            usage=usage,
            thinking_tokens=self.thinking_tokens,
            message_id=f"msg_{sha256([self.seed, body, run])[:24]}",
        )
        self.meter.bill(
            params["model"], answered["usage"], body=body, question=question
        )
        return Paid(
            outcome.change(answered) if isinstance(outcome, Reshaped) else answered
        )

    def _reply_text(self, params: JSON) -> str:
        system, user = (
            plain_text(params.get("system")),
            plain_text(params["messages"][-1]["content"]),
        )
        as_json = bool((params.get("output_config") or {}).get("format"))
        verdict = choose(self.verdicts, system, user, turns=self._turns)
        return reply_text(verdict, user=user, as_json=as_json)

    def _create_message(self, _call: Call, params: JSON) -> Answer:
        ran = self._run(params, tier="standard", now=self.clock.now())
        if isinstance(ran, Errored):
            raise RefusedError(CODES[ran.type], ran.type, ran.message)
        if not isinstance(ran, Paid):
            raise TypeError(
                f"outcomes: found {ran} for a single message. Expected it in a batch only."
            )
        return Answer(ran.message)

    def _count_tokens(self, _call: Call, params: JSON) -> Answer:
        if problem := objection(params, self.models, counting=True):
            raise RefusedError(CODES[problem.type], problem.type, problem.message)
        return Answer({"input_tokens": n_input_tokens(params)})

    def _get_model(self, _call: Call, _: JSON, name: str) -> Answer:
        if name not in self.models:
            raise RefusedError(404, "not_found_error", f"model: {name}")
        return Answer(
            {
                "id": name,
                "type": "model",
                "display_name": name.replace("-", " ").title(),
                "created_at": rfc3339(0),
                "lifecycle": self.models[name].lifecycle,
            }
        )


def _batch_complaints(requests: Sequence[Any]) -> Iterator[str]:
    """What is checked when a batch is submitted: the ids, and not the params."""
    seen = set()
    for n, request in enumerate(requests):
        custom_id = request.get("custom_id") if isinstance(request, dict) else None
        if not isinstance(custom_id, str):
            yield f"requests.{n}.custom_id: Field required"
        elif not isinstance(request.get("params"), dict):
            yield f"requests.{n}.params: Field required"
        elif len(custom_id) > 64:
            yield f"requests.{n}.custom_id: String should have at most 64 characters"
        elif not re.fullmatch(r"[a-zA-Z0-9_-]+", custom_id):
            yield f"requests.{n}.custom_id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
        elif custom_id in seen:
            yield f"requests.{n}.custom_id: {custom_id!r} is not unique in the batch"
        seen.add(custom_id)


def _result(ran: Paid | Outcome | None) -> JSON:
    """The `result` of a row."""
    if isinstance(ran, Paid):
        return {"type": "succeeded", "message": ran.message}
    if isinstance(ran, Errored):
        return {
            "type": "errored",
            "error": RefusedError(400, ran.type, ran.message).answer.content,
        }
    return {"type": "expired" if isinstance(ran, Expired) else "canceled"}


_BATCHES = "/v1/messages/batches"
ROUTES: list[tuple[str, re.Pattern[str], Callable[..., Answer]]] = [
    (method, re.compile(path), action)
    for method, path, action in (
        ("POST", _BATCHES, Api._create_batch),
        ("GET", _BATCHES, Api._list_batches),
        ("GET", f"{_BATCHES}/([^/]+)", Api._get_batch),
        ("GET", f"{_BATCHES}/([^/]+)/results", Api._get_results),
        ("POST", f"{_BATCHES}/([^/]+)/cancel", Api._cancel_batch),
        ("POST", "/v1/messages/count_tokens", Api._count_tokens),
        ("POST", "/v1/messages", Api._create_message),
        ("GET", "/v1/models/([^/]+)", Api._get_model),
    )
]


# The wires

Stage = Literal["before", "accepted", "halfway", "answered"]


@dataclass
class _Planned:
    method: str
    path: str
    fault: Fault
    nth: int | None
    seen: int = 0


@dataclass(kw_only=True, eq=False)
class AnthropicServer(Api):
    """The service on a port of 127.0.0.1, while the `with` block lasts. The settings are those of `Api`.

    on_call  is told of each call: "before" (read, nothing done), "accepted" (done, not yet answered), "halfway" (half
             of a results file is sent) and "answered" (all is sent). The call goes on when it returns, whatever has
             become of the client
    An exception in the server, in a rule or in `on_call` is raised again where the `with` block ends.
    """

    port: int = 0  # any that is free
    on_call: Callable[[Stage, Call], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bugs: list[Exception] = []
        self.closing = threading.Event()
        self._faults: list[_Planned] = []
        self._http = _Http(self.port, self)
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.01,), daemon=True
        )
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def fault(
        self, method: str, path: str, fault: Fault, *, nth: int | None = 1
    ) -> None:
        """From now on, the nth call of this method to a path in which the regular expression is found; None: all."""
        self._faults.append(_Planned(method, path, fault, nth))

    def due(self, call: Call) -> Due:
        matching = [
            each
            for each in self._faults
            if each.method == call.method and re.search(each.path, call.path)
        ]
        with self._lock:
            for each in matching:
                each.seen += 1
            return Due(each.fault for each in matching if each.nth in (None, each.seen))

    def tell(self, stage: Stage, call: Call) -> None:
        if self.on_call:
            self.on_call(stage, call)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.closing.set()
        self._http.stop()
        self._thread.join()
        if self.bugs and kind is None:
            raise self.bugs[0]


class _Http(ThreadingHTTPServer):
    """Knows its open connections, to end with them."""

    daemon_threads = False  # so that server_close waits for them
    request_queue_size = 128

    def __init__(self, port: int, api: AnthropicServer) -> None:
        self.api = api
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self._open.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        problem = sys.exception()
        if isinstance(problem, Exception) and not isinstance(problem, ConnectionError):
            self.api.bugs.append(problem)

    def stop(self) -> None:
        self.shutdown()
        for connection in list(self._open):
            with suppress(OSError):  # closed meanwhile
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        api, url = self.server.api, urlsplit(self.path)
        body = self.rfile.read(size := int(self.headers.get("content-length", 0)))
        if len(body) < size:  # the client died while it sent
            self.close_connection = True
            return
        call = Call(
            time=api.clock.now(),
            method=self.command,
            path=url.path,
            query=dict(parse_qsl(url.query)),
            headers={name.lower(): value for name, value in self.headers.items()},
            size=size,
            body=body if api.keep_bodies else None,
        )
        api.meter.calls.append(call)
        due = api.due(call)
        try:
            self._play(call, body, due)
        except ConnectionError:  # the client has gone
            self.close_connection = True
        except Exception as bug:
            api.bugs.append(bug)
            self.close_connection = True
            with suppress(OSError):
                self._send(
                    RefusedError(
                        500, "api_error", f"the test server failed: {bug!r}"
                    ).answer,
                    Due(),
                )

    do_GET = do_POST = _serve  # noqa: N815

    def _play(self, call: Call, body: bytes, due: Due) -> None:
        """The call with what is to go wrong with it."""
        api = self.server.api
        api.tell("before", call)
        if late := due.get(LateAccept):
            api.accept_later(body, late.seconds)
        if late or due.get(ResetBefore):
            self._reset()
            return
        if status := due.get(Status):
            answer = RefusedError(
                status.code, status.etype, status.message, status.headers
            ).answer
        elif instead := due.get(Instead):
            answer = Answer(None, raw=instead.content)
        else:
            answer = api.answer(call, body)
            if answer.code == 200:
                answer = self._done(call, body, answer, due)
        if due.get(AcceptThenReset):
            self._reset()
        elif self._send(answer, due, halfway=lambda: api.tell("halfway", call)):
            api.tell("answered", call)

    def _done(self, call: Call, body: bytes, answer: Answer, due: Due) -> Answer:
        """What is answered to a call that has been served."""
        api = self.server.api
        if due.get(DoubleAccept):
            api.answer(call, body)
        if due.get(NeverEnd):
            api.never_end(answer.content["id"])
        api.tell("accepted", call)
        if hang := due.get(AcceptThenHang):
            api.closing.wait(hang.seconds)
        if failure := due.get(AcceptThenStatus):
            return RefusedError(failure.code, None, "Failed after it was done.").answer
        return (
            answer
            if answer.rows is None
            else replace(answer, rows=due.spoil(answer.rows))
        )

    def _reset(self) -> None:
        """RST, not FIN: linger for 0 seconds, and close before anybody shuts the connection down in good order."""
        self.close_connection = True
        self.connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.rfile.close()
        self.connection.close()

    def _send(
        self, answer: Answer, due: Due, *, halfway: Callable[[], None] = lambda: None
    ) -> bool:
        """True when the whole answer has been sent."""
        chunked = answer.rows is not None
        body = (
            json.dumps(answer.content).encode()
            if answer.rows is None
            else b"".join(answer.rows)
        )
        body = body if answer.raw is None else answer.raw
        cut, slow = due.get(Truncate), due.get(SlowBody)
        length = cut.length(body) if cut else len(body)
        announced = length if cut and cut.how == "clean" else len(body)
        self.send_response(answer.code)
        is_page = body.startswith(b"<")
        self.send_header(
            "content-type",
            "text/html"
            if is_page
            else f"application/{'x-jsonl' if chunked else 'json'}",
        )
        said = (
            answer.content.get("request_id")
            if isinstance(answer.content, dict)
            else None
        )
        self.send_header("request-id", said or _new_id("req"))
        self.send_header(
            *(
                ("transfer-encoding", "chunked")
                if chunked
                else ("content-length", str(announced))
            )
        )
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        step = slow.piece if slow else max(1, math.ceil(len(body) / 2))
        for start in range(0, length, step):
            piece = body[start : min(start + step, length)]
            self.wfile.write(
                b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
            )
            if chunked and start < len(body) / 2 <= start + step:
                halfway()
            if slow:
                self.server.api.closing.wait(slow.pause)
        if cut and cut.how == "rst":
            self._reset()
        elif cut and cut.how == "eof":
            self.close_connection = True
        elif chunked:
            self.wfile.write(b"0\r\n\r\n")
        return cut is None or cut.how == "clean"

    def log_message(self, *_: object) -> None:
        pass


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.anthropic_server",
        description=(__doc__ or "").splitlines()[0],
    )
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument(
        "--polls-to-end",
        type=int,
        default=2,
        metavar="N",
        help="a batch ends at the Nth look at it",
    )
    parser.add_argument(
        "--seconds-to-end",
        type=float,
        default=5.0,
        metavar="S",
        help="... and after S seconds",
    )
    parser.add_argument(
        "--verdicts",
        choices=("length", "noisy"),
        default="noisy",
        help="the longer wins, or tends to",
    )
    chosen = parser.parse_args(arguments)
    noisy = NoisyBradleyTerry(
        strengths=lambda text: math.log1p(len(text)),
        position_bias=0.3,
        tie_rate=0.1,
        seed=0,
    )
    with AnthropicServer(
        port=chosen.port,
        verdicts=longer if chosen.verdicts == "length" else noisy,
        polls_to_end=chosen.polls_to_end,
        seconds_to_end=chosen.seconds_to_end,
    ) as server:
        print(server.url)
        print(
            f"ANTHROPIC_API_KEY={server.key} NO_PROXY=127.0.0.1 "
            f"python -m elo_exp mode=headline judge=opus judge.base_url={server.url}",
            flush=True,
        )
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    print(json.dumps(server.meter.summary(), indent=2))


if __name__ == "__main__":
    main()
