"""A server on 127.0.0.1 that takes Gemini's batches, fails as it is told to, and keeps the bill.

    with GeminiServer(verdicts=longer) as server:
        server.fault("POST", r":batchGenerateContent$", AcceptThenReset(), nth=2)
        server.fates = {1: Fate(code=8)}                 # accepted, and then there is no room
        ...                                              # a client of server.url, with the key "test-key"
        assert set(server.meter.billed.values()) == {1}  # each question is paid for once

Single answers and single models are served, too.
"""

from __future__ import annotations

import json
import random
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
    reply_text,
    sha256,
    tokens,
)
from tests.batch_server import (
    DAY,
    AlienRow,
    Batch,
    BatchServer,
    DoubleAccept,
    DropRows,
    DupRow,
    Fate,
    NeverEnd,
    UnknownType,
    refused,
)
from tests.http_server import Call, Due, RefusedError, Status

CODES = {  # of an error of a row, by the words of Anthropic's
    "timeout_error": 4,
    "rate_limit_error": 8,
    "api_error": 13,
    "overloaded_error": 14,
}


@dataclass(kw_only=True, eq=False)
class GeminiServer(BatchServer):
    """The service, while the `with` block lasts. Of a batch with outcomes that failed the state is partially succeeded.

    models           those that it has
    counts_tokens    whether an answer says what it took
    has_stats        whether a batch says how many requests it has
    page_size        of the list of batches, whatever is asked for
    thinking_tokens  of each answer, which stand beside its own
    """

    models: Sequence[str] = ("gemini-4-hydrogen", "gemini-4-neon")
    counts_tokens: bool = True
    has_stats: bool = True
    page_size: int = 3
    thinking_tokens: int = 20

    prefix = "batches/b"
    life, kept = 2 * DAY, 2 * DAY + 60

    def __post_init__(self) -> None:
        super().__post_init__()
        self._prefixes: set[str] = set()  # in the prompt cache

    def error(self, fault: Status) -> JSON:
        error = {"code": fault.code, "message": fault.message, "status": fault.etype}
        return {"error": error}

    def serve(self, call: Call, due: Due) -> bytes:
        self.let_in(call.headers.get("x-goog-api-key", ""), "API key not valid.")
        with self.lock:
            self._catch_up()
            answer: Any = self._route(call, due)
            if due.get(DoubleAccept):
                self._route(call, due)
        if due.get(NeverEnd):
            self._batches[answer["name"]].never_ends = True
        return json.dumps(answer).encode()

    def _route(self, call: Call, due: Due) -> Any:
        answer: Any = None
        version, *parts = call.path.strip("/").split("/")
        assert version == "v1beta"
        match call.method, *parts:
            case "POST", "models", name if name.endswith(":batchGenerateContent"):
                batch = self.accept(call.json()["batch"], at=self.clock.now())
                answer = self._view(batch)
            case "POST", "models", name if name.endswith(":generateContent"):
                params = {"model": name.partition(":")[0], **call.json()}
                answer = self._single(params)
            case "GET", "models", name:
                if name not in self.models:
                    raise refused(404, f"models/{name} is not found")
                answer = {"name": f"models/{name}"}
            case "GET", "batches":
                answer = self._list(call)
            case "POST", "batches", name if name.endswith(":cancel"):
                self._cancel(self._find(f"batches/{name.removesuffix(':cancel')}"))
                answer = {}
            case "GET", "batches", name:
                batch = self._get(self._find(f"batches/{name}"))
                answer = self._view(batch, due)
            case _:
                raise refused(404, f"Not found: {call.method} {call.path}")
        return answer

    # ---- batches

    def requests_in(self, content: JSON) -> list[JSON]:
        content = content.get("batch", content)
        if not content.get("displayName"):
            raise refused(400, "batch.display_name: is required")
        rows = content["inputConfig"]["requests"]["requests"]
        named = [(row["metadata"]["key"], row["request"]) for row in rows]
        return [{"custom_id": key, "params": request} for key, request in named]

    def _list(self, call: Call) -> JSON:
        """Shuffled pages, in an order that stays while the list does."""
        found = list(self.seen.values())
        random.Random(len(found)).shuffle(found)
        start = int(call.query.get("pageToken", "0"))
        page = [self._view(one) for one in found[start : start + self.page_size]]
        for one in page:
            one.pop("response", None)
            one["metadata"].pop("output", None)
        end = start + self.page_size
        more = {"nextPageToken": str(end)} if end < len(found) else {}
        return {**({"operations": page} if page else {}), **more}

    def _cancel(self, batch: Batch) -> None:
        if batch.ended_at is not None:
            raise refused(400, "The batch has ended.")
        if batch.canceled_at is None:
            batch.canceled_at, batch.polls = self.clock.now(), 0

    def _view(self, batch: Batch, due: Due | None = None) -> JSON:
        content = batch.submission.get("batch", batch.submission)
        state, fate = _state(batch), batch.fate
        metadata: JSON = {
            "displayName": content["displayName"],
            "state": f"BATCH_STATE_{state}",
        }
        if self.has_stats:
            metadata["batchStats"] = {"requestCount": str(batch.n)}
        view: JSON = {"name": batch.id, "metadata": metadata}
        if batch.ended_at is not None:
            view["done"] = True
        if fate and fate.code:
            view["error"] = {"code": int(fate.code), "message": "By the test."}
        elif batch.ended_at is not None and batch.rows:
            rows = _spoiled(batch.rows, due) if due else batch.rows
            metadata["output"] = {"inlinedResponses": {"inlinedResponses": rows}}
        return view

    def _row(self, custom_id: str, result: Any) -> JSON:
        row: JSON = {"metadata": {"key": custom_id}}
        match result:
            case Expired() | Canceled():
                row["error"] = {"code": 1, "message": "It was not run."}
            case Errored():
                code = CODES.get(result.type, 3)
                row["error"] = {"code": code, "message": result.message}
            case _:
                row["response"] = result
        return row

    def _end(self, batch: Batch, *, at: float, unanswered: Any = None) -> None:
        super()._end(batch, at=at, unanswered=unanswered)
        # those that were not run have no row here
        batch.rows = [
            row for row in batch.rows if row.get("error", {}).get("code") != 1
        ]

    # ---- the model

    def _single(self, params: JSON) -> JSON:
        answer = self._run(params, tier="standard", now=self.clock.now())
        if isinstance(answer, Errored):
            raise RefusedError(Status(429 if "rate" in answer.type else 500))
        return answer  # type: ignore[no-any-return]

    def _run(
        self, params: JSON, *, tier: str, now: float, question: str | None = None
    ) -> Any:
        """An answer, which is billed; or what happened instead."""
        asked = {name: params[name] for name in ("contents", "systemInstruction")}
        body = sha256([asked, params["generationConfig"].get("maxOutputTokens")])
        self._runs[body] += 1
        outcome = self.outcomes(params, self._runs[body]) if self.outcomes else None
        if isinstance(outcome, Errored | Expired | Canceled):
            return outcome
        answer = self._answer(params, outcome)
        usage = answer["usageMetadata"]
        billed = {
            "input_tokens": usage["promptTokenCount"]
            - usage["cachedContentTokenCount"],
            "cache_creation": {
                "ephemeral_5m_input_tokens": 0,
                "ephemeral_1h_input_tokens": 0,
            },
            "cache_read_input_tokens": usage["cachedContentTokenCount"],
            "output_tokens": usage.get("candidatesTokenCount", 0)
            + usage["thoughtsTokenCount"],
            "service_tier": tier,
        }
        self.meter.bill(self.models[0], billed, body=body, question=question)
        if not self.counts_tokens:
            del answer["usageMetadata"]
        is_spoilt = isinstance(outcome, Reshaped)
        return outcome.change(answer) if is_spoilt else answer

    def _answer(self, params: JSON, outcome: Outcome | None) -> JSON:
        system, user = said(params["systemInstruction"]), said(params["contents"][-1])
        if isinstance(outcome, Says):
            text = outcome.text
        else:
            as_json = "responseMimeType" in params["generationConfig"]
            verdict = choose(self.verdicts, system, user, turns=self._turns)
            text = reply_text(verdict, user=user, as_json=as_json)
        reason = "STOP"
        if isinstance(outcome, StopReason):
            reason, text = outcome.reason, text[: len(text) // 2]
        prefix, is_cached = tokens(len(system)), system in self._prefixes
        self._prefixes.add(system)
        thought = {"text": "Let me think.", "thought": True}
        usage = {
            "promptTokenCount": prefix + tokens(len(user)),
            "cachedContentTokenCount": prefix * is_cached,
            "candidatesTokenCount": tokens(len(text)),
            "thoughtsTokenCount": self.thinking_tokens,
        }
        if reason == "SAFETY":
            feedback = {"promptFeedback": {"blockReason": "SAFETY"}}
            return {**feedback, "usageMetadata": usage}
        content = {"role": "model", "parts": [thought, {"text": text}]}
        return {
            "candidates": [{"content": content, "finishReason": reason}],
            "modelVersion": f"{self.models[0]}-001",
            "usageMetadata": usage,
        }


def said(content: JSON) -> str:
    return "".join(part["text"] for part in content["parts"])


def _state(batch: Batch) -> str:
    if batch.ended_at is None:
        return "RUNNING" if batch.polls else "PENDING"
    match batch.fate:
        case None if any("error" in row for row in batch.rows):
            return "PARTIALLY_SUCCEEDED"
        case None:
            return "SUCCEEDED"
        case Fate(code=str()):
            return "FAILED"
        case Fate(unanswered=Expired()):
            return "EXPIRED"
    return "CANCELLED"


def _spoiled(rows: Sequence[JSON], due: Due) -> list[JSON]:
    """The rows of a batch, as these faults leave them."""
    spoilt = list(rows)
    if due.get(UnknownType):
        spoilt[0] = {"metadata": rows[0]["metadata"], "paused": {}}
    if drop := due.get(DropRows):
        spoilt = spoilt[: max(0, len(spoilt) - drop.k)]
    if due.get(DupRow):
        spoilt += spoilt[:1]
    if due.get(AlienRow):
        spoilt.insert(0, {**rows[0], "metadata": {"key": "alien"}})
    return spoilt
