"""A server on 127.0.0.1 that takes OpenAI's form of batches, fails as it is told to, and keeps the bill.

    with OpenAiBatchServer(verdicts=longer) as server:
        server.fault("POST", r"/batches$", AcceptThenReset(), nth=2)
        server.fates = {1: Fate(code="token_limit_exceeded")}
        ...                                              # a client of server.url, with the key "test-key"
        assert set(server.meter.billed.values()) == {1}  # each question is paid for once

Single chat completions and the list of models are served, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.anthropic_verdicts import (
    JSON,
    Canceled,
    Errored,
    Expired,
    Outcome,
    Reshaped,
    Says,
    StopReason,
    choose,
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
    Fate,
    NeverEnd,
    refused,
    spoiled,
)
from tests.http_server import Call, Due, RefusedError, Status

URL = "/v1/chat/completions"
KINDS = {  # of an error, by status
    400: "invalid_request_error",
    429: "rate_limit_exceeded",
    500: "server_error",
}
CODES = {kind: status for status, kind in KINDS.items()} | {
    "api_error": 500,
    "overloaded_error": 500,
    "rate_limit_error": 429,
}
# why the server fails a batch that it has accepted, and what it says then
FAILURES = {
    "token_limit_exceeded": "Enqueued token limit reached for large.",
    "invalid_json_line": "This line is not parseable as valid JSON.",
    "billing_hard_limit_reached": "Billing hard limit has been reached.",
}


@dataclass(frozen=True, slots=True)
class Zero:
    """The row of a request that got no status: nothing is billed."""


@dataclass(kw_only=True, eq=False)
class OpenAiBatchServer(BatchServer):
    """The service, while the `with` block lasts.

    models             those that it has
    repeats_metadata   whether list and retrieval have what a batch was created with
    lag_seconds        for which a new batch is not in the list
    takes_batches      False: it serves single completions alone
    reasoning_tokens   of each answer
    """

    models: Sequence[str] = ("gpt-6.2-sol", "gpt-6-luna", "large")
    repeats_metadata: bool = True
    lag_seconds: float = 0.0
    takes_batches: bool = True
    reasoning_tokens: int = 20

    kept = 30 * DAY

    def __post_init__(self) -> None:
        super().__post_init__()
        self.url += "/v1"
        self.files: dict[str, bytes] = {}  # those that were uploaded
        self._prefixes: set[str] = set()  # in the prompt cache

    def error(self, fault: Status) -> JSON:
        kind = fault.etype or KINDS.get(fault.code, "invalid_request_error")
        return {"error": {"message": fault.message, "type": kind, "code": fault.etype}}

    def serve(self, call: Call, due: Due) -> bytes:
        key = call.headers.get("authorization", "").removeprefix("Bearer ")
        self.let_in(key, "Incorrect API key provided.")
        with self.lock:
            self._catch_up()
            answer: Any = self._route(call)
            if due.get(DoubleAccept):
                self._route(call)
        if due.get(NeverEnd):
            self._batches[answer["id"]].never_ends = True
        if call.path.endswith("/content"):
            return b"".join(_line(row) for row in (spoiled(answer, due)))
        return json.dumps(answer).encode()

    def _route(self, call: Call) -> Any:
        _, *parts = call.path.strip("/").split("/")
        if parts[0] in {"files", "batches"} and not self.takes_batches:
            raise refused(404, "Not Found")
        answer: Any = None
        match call.method, *parts:
            case "POST", "files":
                answer = self._upload(call)
            case "GET", "files", name, "content":
                answer = self._content(name)
            case "POST", "batches":
                answer = self._view(self.accept(call.json(), at=self.clock.now()))
            case "GET", "batches":
                answer = self._list(call)
            case "GET", "batches", batch_id:
                answer = self._view(self._get(self._find(batch_id)))
            case "POST", "batches", batch_id, "cancel":
                answer = self._view(self._cancel(self._find(batch_id)))
            case "POST", "chat", "completions":
                answer = self._single(call.json())
            case "GET", "models":
                names = [{"id": name} for name in self.models]
                answer = {"object": "list", "data": names}
            case _:
                raise refused(404, f"Not found: {call.method} {call.path}")
        return answer

    # ---- files and batches

    def _upload(self, call: Call) -> JSON:
        if len(call.body) > self.max_bytes:
            raise refused(413, f"The file is larger than {self.max_bytes} bytes.")
        boundary = call.headers["content-type"].partition("boundary=")[2].encode()
        fields = {}
        for part in call.body.split(b"--" + boundary)[1:-1]:
            head, _, content = part.partition(b"\r\n\r\n")
            name = head.partition(b'name="')[2].partition(b'"')[0].decode()
            fields[name] = content.removesuffix(b"\r\n")
        if fields.get("purpose") != b"batch" or "file" not in fields:
            raise refused(400, "Expected a file whose purpose is batch.")
        name = f"file-{len(self.files)}"
        self.files[name] = fields["file"]
        return {"id": name, "object": "file", "bytes": len(fields["file"])}

    def requests_in(self, content: JSON) -> list[JSON]:
        data = self.files.get(content["input_file_id"])
        if data is None:
            raise refused(400, "No such File object.")
        if (content["endpoint"], content["completion_window"]) != (URL, "24h"):
            raise refused(400, "endpoint: not one that batches go to")
        lines = [json.loads(line) for line in data.splitlines()]
        assert all((line["method"], line["url"]) == ("POST", URL) for line in lines)
        return [{"custom_id": x["custom_id"], "params": x["body"]} for x in lines]

    def _list(self, call: Call) -> JSON:
        limit, young = (
            int(call.query.get("limit", "20")),
            self.now() - self.lag_seconds,
        )
        found = [b for b in reversed(self.seen.values()) if b.created_at <= young]
        if (after := call.query.get("after")) is not None:
            found = found[[batch.id for batch in found].index(after) + 1 :]
        page = [self._view(batch) for batch in found[:limit]]
        return {"object": "list", "data": page, "has_more": len(found) > limit}

    def _cancel(self, batch: Batch) -> Batch:
        if batch.ended_at is not None:
            raise refused(409, f"Cannot cancel a batch with status {_status(batch)}.")
        if batch.canceled_at is None:
            batch.canceled_at, batch.polls = self.clock.now(), 0
        return batch

    def _view(self, batch: Batch) -> JSON:
        """The batch object. A request that was not run is counted nowhere."""
        status, fate = _status(batch), batch.fate
        output, errors = _files(batch)
        is_seen = status != "validating" and not (fate and fate.code)
        has_files = batch.archived_at is None
        failure: list[JSON] = []
        if fate and fate.code:
            failure = [{"code": fate.code, "message": FAILURES[fate.code]}]
        n_failed = sum(row["response"] is not None for row in errors)
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": URL,
            "status": status,
            "input_file_id": batch.submission["input_file_id"],
            "output_file_id": f"output-{batch.id}" if output and has_files else None,
            "error_file_id": f"error-{batch.id}" if errors and has_files else None,
            "errors": {"object": "list", "data": failure} if failure else None,
            "created_at": int(batch.created_at),
            "expires_at": int(batch.created_at + self.life),
            "metadata": batch.submission["metadata"] if self.repeats_metadata else None,
            "request_counts": {
                "total": batch.n if is_seen else 0,
                "completed": len(output),
                "failed": n_failed,
            },
        }

    def _content(self, name: str) -> list[JSON]:
        kind, _, batch_id = name.partition("-")
        batch = self._batches.get(batch_id)
        if batch is None or batch.archived_at is not None:
            raise refused(404, f"No such File object: {name}")
        return _files(batch)[kind == "error"]

    def _row(self, custom_id: str, result: Any) -> JSON:
        row: JSON = {
            "id": f"req_{sha256(custom_id)[:8]}",
            "custom_id": custom_id,
            "response": None,
            "error": None,
        }
        match result:
            case Expired():
                row["error"] = {"code": "batch_expired", "message": "It was not run."}
            case Canceled():
                row["error"] = {"code": "batch_cancelled", "message": "It was not run."}
            case Zero():
                row["response"] = {"status_code": 0, "body": None}
            case Errored():
                error = {"message": result.message, "type": result.type}
                code = CODES.get(result.type, 400)
                kind = KINDS[code] if result.type in CODES else result.type
                body = {"error": {**error, "code": kind}}
                row["response"] = {"status_code": code, "body": body}
            case _:
                row["response"] = {"status_code": 200, "body": result}
        return row

    # ---- the model

    def _single(self, params: JSON) -> JSON:
        answer = self._run(params, tier="standard", now=self.clock.now())
        if isinstance(answer, Errored):
            code = CODES.get(answer.type, 400)
            raise RefusedError(Status(code, answer.type, answer.message))
        return answer  # type: ignore[no-any-return]

    def _run(
        self, params: JSON, *, tier: str, now: float, question: str | None = None
    ) -> Any:
        """A chat completion, which is billed; or what happened instead."""
        if params["model"] not in self.models:
            return Errored("model_not_found", f"No model {params['model']}.")
        body = sha256(params)
        self._runs[body] += 1
        outcome = self.outcomes(params, self._runs[body]) if self.outcomes else None
        if isinstance(outcome, Errored | Expired | Canceled | Zero):
            return outcome
        completion = self._completion(params, outcome)
        usage = completion["usage"]
        details = usage["prompt_tokens_details"]
        cached, written = details["cached_tokens"], details["cache_write_tokens"]
        billed = {
            "input_tokens": usage["prompt_tokens"] - cached - written,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written,
                "ephemeral_1h_input_tokens": 0,
            },
            "cache_read_input_tokens": cached,
            "output_tokens": usage["completion_tokens"],
            "service_tier": tier,
        }
        self.meter.bill(params["model"], billed, body=body, question=question)
        is_spoilt = isinstance(outcome, Reshaped)
        return outcome.change(completion) if is_spoilt else completion

    def _completion(self, params: JSON, outcome: Outcome | None) -> JSON:
        system, user = (plain_text(one["content"]) for one in params["messages"])
        if isinstance(outcome, Says):
            text = outcome.text
        else:
            verdict = choose(self.verdicts, system, user, turns=self._turns)
            text = reply_text(verdict, user=user, as_json="response_format" in params)
        reason, limit = "stop", params["max_completion_tokens"] - self.reasoning_tokens
        if isinstance(outcome, StopReason):
            reason, text = outcome.reason, text[: len(text) // 2]
        elif tokens(len(text)) > limit:
            reason, text = "length", text[: 4 * limit]
        prefix = tokens(len(system))
        is_cached = system in self._prefixes
        self._prefixes.add(system)
        message = {"role": "assistant", "content": text}
        return {
            "id": f"chatcmpl-{sha256(params)[:12]}",
            "object": "chat.completion",
            "model": params["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {
                "prompt_tokens": prefix + tokens(len(user)),
                "completion_tokens": self.reasoning_tokens + tokens(len(text)),
                "prompt_tokens_details": {
                    "cached_tokens": prefix * is_cached,
                    "cache_write_tokens": prefix * (not is_cached),
                },
                "completion_tokens_details": {
                    "reasoning_tokens": self.reasoning_tokens
                },
            },
        }


def _status(batch: Batch) -> str:
    if batch.ended_at is None:
        if batch.canceled_at is not None:
            return "cancelling"
        return "in_progress" if batch.polls else "validating"
    match batch.fate:
        case None:
            return "completed"
        case Fate(code=str()):
            return "failed"
        case Fate(unanswered=Expired()):
            return "expired"
    return "cancelled"


def _files(batch: Batch) -> tuple[list[JSON], list[JSON]]:
    """The rows of the output file, and those of the error file."""
    is_output = [(row["response"] or {}).get("status_code") in {0, 200} for row in batch.rows]  # fmt: skip
    output = [row for row, is_one in zip(batch.rows, is_output, strict=True) if is_one]
    errors = [row for row in batch.rows if row not in output]
    return output, errors


def _line(row: JSON) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
