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
import threading
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.anthropic_verdicts import (
    JSON,
    Canceled,
    Errored,
    Expired,
    NoisyBradleyTerry,
    Outcome,
    Reshaped,
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
from tests.batch_server import (
    DAY,
    Batch,
    BatchServer,
    DoubleAccept,
    NeverEnd,
    refused,
    spoiled,
)
from tests.http_server import Call, Due, RefusedError, Status

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


# The protocol


def rfc3339(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


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


def view(batch: Batch, host: str) -> JSON:
    """The MessageBatch object."""
    counts = Counter(row["result"]["type"] for row in batch.rows)
    kinds = ("succeeded", "errored", "canceled", "expired")
    url = f"http://{host}/v1/messages/batches/{batch.id}/results"
    is_readable = batch.status == "ended" and batch.archived_at is None
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": batch.status,
        "request_counts": {
            "processing": batch.n - len(batch.rows),
            **{kind: counts[kind] for kind in kinds},
        },
        "created_at": rfc3339(batch.created_at),
        "expires_at": rfc3339(batch.created_at + DAY),
        "cancel_initiated_at": rfc3339(batch.canceled_at),
        "ended_at": rfc3339(batch.ended_at),
        "archived_at": rfc3339(batch.archived_at),
        "results_url": url if is_readable else None,
    }


@dataclass(kw_only=True, eq=False)
class AnthropicServer(BatchServer):
    """The service, while the `with` block lasts.

    miss_rate  the share of prompt-cache reads that miss
    """

    miss_rate: float = 0.0
    thinking_tokens: int = 20

    prefix = "msgbatch"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._cached_until: dict[str, float] = {}

    def error(self, fault: Status) -> JSON:
        kind = TYPES.get(fault.code, TYPES[400 if fault.code < 500 else 500])
        error = {"type": fault.etype or kind, "message": fault.message}
        return {"type": "error", "error": error}

    def serve(self, call: Call, due: Due) -> bytes:
        answer: Any = self.answer(call)
        if due.get(DoubleAccept):
            self.answer(call)
        if due.get(NeverEnd):
            self._batches[answer["id"]].never_ends = True
        if call.path.endswith("/results"):
            return b"".join(map(_line, spoiled(answer, due)))
        return json.dumps(answer).encode()

    def answer(self, call: Call) -> JSON | list[JSON]:
        """The answer, all of whose effects have taken place: an object, or a file's rows."""
        bearer = call.headers.get("authorization", "").removeprefix("Bearer ")
        self.let_in(call.headers.get("x-api-key") or bearer, "invalid x-api-key")
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
                batch = self.accept(content, at=self.clock.now())
                answer = view(batch, host)
            case "GET", "messages", "batches":
                answer = self._list_batches(call.query, host)
            case "GET", "messages", "batches", batch_id:
                answer = view(self._get(self._find(batch_id)), host)
            case "GET", "messages", "batches", batch_id, "results":
                answer = self._results(self._find(batch_id))
            case "POST", "messages", "batches", batch_id, "cancel":
                answer = view(self._cancel(self._find(batch_id)), host)
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

    def requests_in(self, content: JSON) -> list[JSON]:
        requests: list[JSON] = content["requests"]
        return requests

    def _row(self, custom_id: str, result: Any) -> JSON:
        return {"custom_id": custom_id, "result": _as_json(result)}

    def _list_batches(self, query: Mapping[str, str], host: str) -> JSON:
        limit = int(query.get("limit", "20"))
        found = list(reversed(self.seen.values()))
        if (after := query.get("after_id")) is not None:
            found = found[[batch.id for batch in found].index(after) + 1 :]
        page = [view(batch, host) for batch in found[:limit]]
        return {"data": page, "has_more": len(found) > limit}

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
