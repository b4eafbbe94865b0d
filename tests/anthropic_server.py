"""A server on 127.0.0.1 that speaks Anthropic's Message Batches API and keeps the bill.

    python -m tests.anthropic_server --verdicts noisy

prints its address and the command that judges with it; Ctrl-C prints the bill. In a test:

    with AnthropicServer(verdicts=["A", "TIE"]) as server:
        server.fault("POST", r"/batches$", AcceptThenReset(), nth=2)
        ...                                             # a client, with the key "test-key"
        assert set(server.meter.billed.values()) == {1}  # each question is paid for once

Single messages, count_tokens and /v1/models/ID are served too.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from tests.anthropic_verdicts import (
    JSON,
    Canceled,
    Errored,
    Expired,
    NoisyBradleyTerry,
    Outcome,
    Reshaped,
    Rule,
    Says,
    StopReason,
    choose,
    draw,
    longer,
    plain_text,
    reply_text,
    sha256,
    tokens,
)
from tests.http_server import Call, Due, Fault, HttpServer, RefusedError, Stage, Status

DAY = 86400
VERSIONS = ("2023-06-01", "2026-10-21")
PARAMS = {"model", "max_tokens", "system", "messages", "output_config"}
EFFORTS = ("low", "medium", "high", "xhigh", "max")
TTLS = {"5m": 300, "1h": 3600}
CODES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
TYPES = {code: kind for kind, code in CODES.items()}
# the models it knows, and the tokens from which each caches a prefix
MIN_CACHEABLE = {
    "claude-opus-5-5": 512,
    "claude-sonnet-5-5": 1024,
    "claude-haiku-5-5": 512,
    "claude-opus-5": 512,
    "claude-opus-4-8": 1024,
    "claude-opus-4-7": 1024,
    "claude-opus-4-6": 1024,
    "claude-sonnet-5": 1024,
    "claude-sonnet-4-6": 2048,
    "claude-haiku-4-5": 4096,
}


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
        spoilt[0] = {**first, "result": {"type": "paused"}}
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


# The protocol


def rfc3339(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@dataclass(kw_only=True)
class Batch:
    """A batch that was accepted."""

    id: str
    created_at: float
    requests: list[JSON]
    polls: int = 0
    never_ends: bool = False
    canceled_at: float | None = None
    ended_at: float | None = None
    archived_at: float | None = None
    rows: list[JSON] = field(default_factory=list, repr=False)

    @property
    def n(self) -> int:
        return len(self.requests)

    @property
    def status(self) -> str:
        if self.ended_at is not None:
            return "ended"
        return "in_progress" if self.canceled_at is None else "canceling"

    def view(self, host: str) -> JSON:
        """The MessageBatch object."""
        counts = Counter(row["result"]["type"] for row in self.rows)
        kinds = ("succeeded", "errored", "canceled", "expired")
        url = f"http://{host}/v1/messages/batches/{self.id}/results"
        is_readable = self.status == "ended" and self.archived_at is None
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": self.status,
            "request_counts": {
                "processing": self.n - len(self.rows),
                **{kind: counts[kind] for kind in kinds},
            },
            "created_at": rfc3339(self.created_at),
            "expires_at": rfc3339(self.created_at + DAY),
            "cancel_initiated_at": rfc3339(self.canceled_at),
            "ended_at": rfc3339(self.ended_at),
            "archived_at": rfc3339(self.archived_at),
            "results_url": url if is_readable else None,
        }


def refused(code: int, message: str) -> RefusedError:
    return RefusedError(Status(code, message=message))


def n_input_tokens(params: JSON) -> int:
    texts = [params.get("system"), *(one["content"] for one in params["messages"])]
    return tokens(sum(len(plain_text(text)) for text in texts))


def objection(params: JSON, *, counting: bool = False) -> Errored | None:
    """Why the request is not answered. In a batch this shows only when the request is run."""
    if params["model"] not in MIN_CACHEABLE:
        return Errored("not_found_error", f"model: {params['model']}")
    expected = PARAMS - {"max_tokens"} if counting else PARAMS
    complaint = None
    if extra := sorted(params.keys() - expected):
        complaint = f"{extra[0]}: Extra inputs are not permitted"
    elif not counting and not isinstance(params.get("max_tokens"), int):
        complaint = "max_tokens: Field required"
    elif [one["role"] for one in params["messages"]] != ["user"]:
        complaint = "messages: expected one message of the user's"
    elif not plain_text(params["messages"][0]["content"]):
        complaint = "messages.0.content: text content must be non-empty"
    elif (params.get("output_config") or {}).get("effort", "low") not in EFFORTS:
        complaint = f"output_config.effort: Input should be one of {EFFORTS}"
    return Errored("invalid_request_error", complaint) if complaint else None


@dataclass(kw_only=True, eq=False)
class AnthropicServer(HttpServer):
    """The service, while the `with` block lasts.

    verdicts        a list, taken in turn by first sight; or a rule
    polls_to_end    how often a batch must be retrieved until it has ended; 0: unobserved
    seconds_to_end  ... and how long it takes at least
    miss_rate       the share of prompt-cache reads that miss
    order           of the rows of the results
    counts_ids      whether ids of batches are counted from 0, as of a simulator or a gateway
    outcomes        what becomes of the request that is run for the n-th time (n = 1, 2, ...);
                    None: it is answered

    Of a canceled batch half is answered nevertheless. All settings may be changed while it runs.
    """

    verdicts: Sequence[str] | Rule = ("A",)
    clock: Clock = field(default_factory=Clock)
    polls_to_end: int = 1
    seconds_to_end: float = 0.0
    key: str = "test-key"
    max_bytes: int = 2**28
    miss_rate: float = 0.0
    seed: int = 0
    order: Literal["given", "reversed", "shuffled"] = "shuffled"
    counts_ids: bool = False
    outcomes: Callable[[JSON, int], Outcome | None] | None = None
    thinking_tokens: int = 20
    on_call: Callable[[Stage, Call], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.meter = Meter(self.calls)
        self.late: list[tuple[float, JSON]] = []
        self._batches: dict[str, Batch] = {}
        self._cached_until: dict[str, float] = {}
        self._runs: Counter[str] = Counter()
        self._turns: dict[str, int] = {}

    def now(self) -> float:
        return self.clock.now()

    fault = HttpServer.add_fault

    def error(self, fault: Status) -> JSON:
        kind = TYPES.get(fault.code, TYPES[400 if fault.code < 500 else 500])
        error = {"type": fault.etype or kind, "message": fault.message}
        return {"type": "error", "error": error}

    def is_lost(self, call: Call, due: Due) -> bool:
        if late := due.get(LateAccept):
            self.late.append((self.now() + late.seconds, call.json()))
        return late is not None or super().is_lost(call, due)

    def serve(self, call: Call, due: Due) -> bytes:
        answer: Any = self.answer(call)
        if due.get(DoubleAccept):
            self.answer(call)
        if due.get(NeverEnd):
            self._batches[answer["id"]].never_ends = True
        if call.path.endswith("/results"):
            return b"".join(map(_line, spoiled(answer, due)))
        return json.dumps(answer).encode()

    @property
    def batches(self) -> list[Batch]:
        """The accepted batches, newest last, as they stand now."""
        with self.lock:
            self._catch_up()
            return list(self._batches.values())

    def answer(self, call: Call) -> JSON | list[JSON]:
        """The answer, all of whose effects have taken place: an object, or a file's rows."""
        if self.key not in (
            call.headers.get("authorization", "").removeprefix("Bearer "),
            call.headers.get("x-api-key"),
        ):
            raise refused(401, "invalid x-api-key")
        if call.headers.get("anthropic-version") not in VERSIONS:
            raise refused(400, "anthropic-version: is not a valid version")
        if len(call.body) > self.max_bytes:
            raise refused(413, f"Request exceeds {self.max_bytes} bytes")
        with self.lock:
            self._catch_up()
            return self._route(call, call.json())

    def _route(self, call: Call, content: JSON) -> JSON | list[JSON]:
        host = call.headers["host"]
        answer: Any = None
        match call.method, *call.path.strip("/").split("/")[1:]:
            case "POST", "messages", "batches":
                batch = self.accept(content["requests"], at=self.clock.now())
                answer = batch.view(host)
            case "GET", "messages", "batches":
                answer = self._list_batches(call.query, host)
            case "GET", "messages", "batches", batch_id:
                answer = self._get(self._find(batch_id)).view(host)
            case "GET", "messages", "batches", batch_id, "results":
                answer = self._results(self._find(batch_id))
            case "POST", "messages", "batches", batch_id, "cancel":
                answer = self._cancel(self._find(batch_id)).view(host)
            case "POST", "messages", "count_tokens":
                if problem := objection(content, counting=True):
                    raise refused(CODES[problem.type], problem.message)
                answer = {"input_tokens": n_input_tokens(content)}
            case "POST", "messages":
                answer = self._run(content, tier="standard", now=self.clock.now())
                if isinstance(answer, Errored):
                    code = CODES[answer.type]
                    raise RefusedError(Status(code, answer.type, answer.message))
                answer = answer["message"]
            case "GET", "models", name:
                if name not in MIN_CACHEABLE:
                    raise refused(404, f"model: {name}")
                answer = {"id": name, "type": "model", "created_at": rfc3339(0)}
            case _:
                raise refused(404, f"Not found: {call.method} {call.path}")
        return answer  # type: ignore[no-any-return]

    # ---- batches

    def accept(self, requests: list[JSON], *, at: float) -> Batch:
        ids = [request["custom_id"] for request in requests]
        if not requests or len(set(ids)) < len(ids):
            raise refused(400, "requests: expected some, with ids of their own")
        if bad := [i for i in ids if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", i)]:
            raise refused(400, f"custom_id: {bad[0]}")
        which = f"{len(self._batches)}" if self.counts_ids else uuid.uuid4().hex[:24]
        batch_id = f"msgbatch_{which}"
        batch = Batch(id=batch_id, created_at=at, requests=requests)
        self._batches[batch.id] = batch
        return batch

    def _list_batches(self, query: Mapping[str, str], host: str) -> JSON:
        limit = int(query.get("limit", "20"))
        found = list(reversed(self._batches.values()))
        if (after := query.get("after_id")) is not None:
            found = found[[batch.id for batch in found].index(after) + 1 :]
        page = [batch.view(host) for batch in found[:limit]]
        return {"data": page, "has_more": len(found) > limit}

    def _find(self, batch_id: str) -> Batch:
        if batch_id not in self._batches:
            raise refused(404, f"There is no message batch {batch_id}")
        return self._batches[batch_id]

    def _get(self, batch: Batch) -> Batch:
        batch.polls += 1
        self._advance(batch, self.clock.now())
        return batch

    def _results(self, batch: Batch) -> list[JSON]:
        if batch.ended_at is None or batch.archived_at is not None:
            raise refused(404, f"There are no results of {batch.id}")
        return batch.rows

    def _cancel(self, batch: Batch) -> Batch:
        if batch.ended_at is not None:
            raise refused(400, f"Message batch {batch.id} has ended")
        if batch.canceled_at is None:
            batch.canceled_at, batch.polls = self.clock.now(), 0
        return batch

    def _catch_up(self) -> None:
        """What the clock has brought: late batches arrive, others end, or are archived."""
        now = self.clock.now()
        for arrival in [late for late in self.late if late[0] <= now]:
            self.late.remove(arrival)
            self.accept(arrival[1]["requests"], at=arrival[0])
        for batch in self._batches.values():
            self._advance(batch, now)

    def _advance(self, batch: Batch, now: float) -> None:
        polls, due = self.polls_to_end, batch.created_at + self.seconds_to_end
        expiry, archival = batch.created_at + DAY, batch.created_at + 29 * DAY
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
        n_run = batch.n if unanswered is None else 0
        if batch.canceled_at is not None and unanswered is None:
            n_run, unanswered = batch.n // 2, Canceled()
        for n, request in enumerate(batch.requests):
            custom_id, result = request["custom_id"], unanswered
            if n < n_run:
                question = custom_id.partition("-")[2] or custom_id
                result = self._run(
                    request["params"], tier="batch", now=at, question=question
                )
            batch.rows.append({"custom_id": custom_id, "result": _as_json(result)})
        if self.order == "shuffled":
            random.Random(batch.requests[0]["custom_id"]).shuffle(batch.rows)
        elif self.order == "reversed":
            batch.rows.reverse()
        batch.ended_at = at

    # ---- the model

    def _run(
        self, params: JSON, *, tier: str, now: float, question: str | None = None
    ) -> Any:
        """A row's result that succeeded, which is billed; or what happened instead."""
        if problem := objection(params):
            return problem
        asked = {
            name: params.get(name) for name in ("model", "output_config", "max_tokens")
        }
        user = plain_text(params["messages"][-1]["content"])
        body = sha256([asked, plain_text(params.get("system")), user])
        self._runs[body] += 1
        outcome = self.outcomes(params, self._runs[body]) if self.outcomes else None
        if isinstance(outcome, Errored | Expired | Canceled):
            return outcome
        message = self._message(params, user, outcome)
        missed = draw("miss", self.seed, body, self._runs[body]) < self.miss_rate
        message["usage"] |= self._input_usage(params, tier, now, missed=missed)
        self.meter.bill(params["model"], message["usage"], body=body, question=question)
        is_spoilt = isinstance(outcome, Reshaped)
        return {
            "type": "succeeded",
            "message": outcome.change(message) if is_spoilt else message,
        }

    def _message(self, params: JSON, user: str, outcome: Outcome | None) -> JSON:
        """The Message object. Thinking counts in max_tokens; a text without room is cut."""
        text, stop_reason = self._text(params, user, outcome), "end_turn"
        n_thinking = min(self.thinking_tokens, params["max_tokens"])
        room = 4 * (params["max_tokens"] - n_thinking)
        if isinstance(outcome, StopReason):
            stop_reason = outcome.reason
            text = "" if stop_reason == "refusal" else text[: len(text) // 2]
        elif len(text) > room:
            stop_reason, text = "max_tokens", text[:room]
        thought = {"type": "thinking", "thinking": "", "signature": "x"}
        blocks = [{"type": "text", "text": text}] if text else []
        return {
            "id": f"msg_{uuid.uuid4().hex[:24]}",
            "type": "message",
            "role": "assistant",
            "model": params["model"],
            "content": [thought, *blocks],
            "stop_reason": stop_reason,
            "usage": {"output_tokens": n_thinking + tokens(len(text))},
        }

    def _text(self, params: JSON, user: str, outcome: Outcome | None) -> str:
        if isinstance(outcome, Says):
            return outcome.text
        system = plain_text(params.get("system"))
        as_json = bool((params.get("output_config") or {}).get("format"))
        verdict = choose(self.verdicts, system, user, turns=self._turns)
        return reply_text(verdict, user=user, as_json=as_json)

    def _input_usage(
        self, params: JSON, tier: str, now: float, *, missed: bool
    ) -> JSON:
        """What the prompt cache makes of a request; one that `missed` writes it again."""
        system = params.get("system") or ""
        mark = None if isinstance(system, str) else system[-1].get("cache_control")
        prefix = tokens(len(plain_text(system)))
        written, read = Counter[str](), 0
        if mark and prefix >= MIN_CACHEABLE[params["model"]]:
            output, ttl = params.get("output_config"), mark["ttl"]
            key = sha256([tier, params["model"], plain_text(system), output])
            if now < self._cached_until.get(key, -math.inf) and not missed:
                read = prefix
            else:
                written[ttl] = prefix
            self._cached_until[key] = now + TTLS[ttl]
        return {
            "input_tokens": n_input_tokens(params) - read - written.total(),
            "cache_creation_input_tokens": written.total(),
            "cache_read_input_tokens": read,
            "cache_creation": {
                f"ephemeral_{ttl}_input_tokens": written[ttl] for ttl in TTLS
            },
            "service_tier": tier,
        }


def _as_json(result: Any) -> JSON:
    """The `result` of a row."""
    if isinstance(result, Errored):
        error = {"type": result.type, "message": result.message}
        return {"type": "errored", "error": {"type": "error", "error": error}}
    if isinstance(result, Expired | Canceled):
        return {"type": type(result).__name__.lower()}
    return result  # type: ignore[no-any-return]


def _line(row: JSON) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.anthropic_server",
        description=(__doc__ or "").splitlines()[0],
    )
    parser.add_argument("--verdicts", choices=("length", "noisy"), default="noisy")
    parser.add_argument("--seconds-to-end", type=float, default=5.0, help="of a batch")
    chosen = parser.parse_args()
    verdicts: Any = longer
    if chosen.verdicts == "noisy":
        verdicts = NoisyBradleyTerry(
            strengths=lambda text: math.log1p(len(text)),
            position_bias=0.3,
            tie_rate=0.1,
        )
    with AnthropicServer(
        verdicts=verdicts, polls_to_end=2, seconds_to_end=chosen.seconds_to_end
    ) as server:
        print(server.url)
        print(
            f"ANTHROPIC_API_KEY={server.key} NO_PROXY=127.0.0.1 python -m elo_exp "
            f"mode=headline judge=opus judge.base_url={server.url}",
            flush=True,
        )
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    billed = server.meter.billed_bodies
    spent = {name: dict(some) for name, some in server.meter.tokens.items()}
    print(
        f"{len(billed)} questions, {len(server.meter.paid_twice)} paid twice: {spent}"
    )


if __name__ == "__main__":
    main()
