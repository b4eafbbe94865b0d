"""A server on 127.0.0.1 that speaks OpenAI's chat completions, fails as it is told to, and keeps the bill.

    python -m tests.openai_server

prints its address and a command that judges with it. In a test:

    with OpenAiServer() as server:
        server.fault(Status(429, headers={"retry-after": "1"}), nth=2)
        ...                                                       # a client of server.url
        assert set(server.billed.values()) == {1}                 # each question is paid for once
"""

from __future__ import annotations

import argparse
import json
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from elo_exp.api import calls
from elo_exp.store import claims
from tests.anthropic_verdicts import (
    JSON,
    Rule,
    Shown,
    longer,
    plain_text,
    reply_text,
    sha256,
    tokens,
)
from tests.http_server import (
    Call,
    Due,
    Fault,
    HttpServer,
    RefusedError,
    Stage,
    Status,
)

if TYPE_CHECKING:
    from tests.tiny_engine import TinyEngine  # which imports torch

CONTEXT = 512  # of the engine, in tokens


def alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A machine on which nobody has set up anything, in an empty folder; back-offs are short."""
    monkeypatch.chdir(folder)
    for name in [
        name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_"))
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(calls, "_FIRST_BACK_OFF_SECONDS", 0.01)
    monkeypatch.setattr(claims, "CLAIM_POLL_SECONDS", 0.05)


@dataclass(frozen=True, slots=True)
class Says:
    """A completion of this text, which ends for this reason; `beside` stands with it, such as a refusal or a thought."""

    text: str | None
    finish_reason: str | None = "stop"
    beside: JSON = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Body:
    """Status 200 and exactly these bytes: paid for, and not a completion."""

    content: bytes


@dataclass(kw_only=True, eq=False)
class OpenAiServer(HttpServer):
    """The service, while the `with` block lasts.

    verdicts     what it says where it is shown two responses
    answer       what a model says to any other text
    outcomes     what becomes of the request that is served for the n-th time (n = 1, 2, ...); None: the usual
    key          that a request must carry; None: any, or none
    listing      what is sent in place of the list of models: an error, or another body
    first        of a request that asks for log-probabilities, the tokens that may come first, with their chances
    cached       tokens of a request that the prompt cache has
    engine       a tiny model that draws and scores tokens, as vLLM's server does; None: it does neither
    on_call      is told of completions only
    """

    verdicts: Rule = longer
    answer: Callable[[str, str], str] = staticmethod(  # noqa: RUF009
        lambda model, text: f"About {text[:40]}: yes."
    )
    outcomes: Callable[[JSON, int], Says | Body | None] | None = None
    key: str | None = None
    models: Sequence[str] = ("small", "large")
    listing: Status | Body | None = None
    first: Callable[[JSON], Mapping[str, float]] | None = None
    cached: int = 0
    engine: TinyEngine | None = None
    on_call: Callable[[Stage, Call], None] | None = None

    billed: Counter[str] = field(
        default_factory=Counter, init=False
    )  # how often each body was answered
    usage: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.url += "/v1"

    @property
    def asked(self) -> list[JSON]:
        """The parameters of every completion that was asked for."""
        return [call.json() for call in self.calls if call.method == "POST"]

    def fault(self, fault: Fault, *, nth: int | None = 1) -> None:
        """From now on, of the nth completion that is asked for; None: of all."""
        self.add_fault("POST", "", fault, nth)

    def error(self, fault: Status) -> JSON:
        kind = "invalid_request_error"
        error = {"message": fault.message, "type": kind, "code": fault.etype}
        return {"error": {**error, "param": None}}

    def tell(self, stage: Stage, call: Call) -> None:
        if call.method == "POST":
            super().tell(stage, call)

    def serve(self, call: Call, due: Due) -> bytes:
        tokens = {"/tokenize": self._tokenize, "/v1/completions": self._score}
        paths = {"/v1/models", "/v1/chat/completions", *(tokens if self.engine else ())}
        if call.path not in paths:
            raise RefusedError(Status(404, message="Not Found"))
        if refusal := self.refusal(call):
            raise RefusedError(refusal)
        if call.path in tokens:
            with self.lock:
                return json.dumps(tokens[call.path](call.json())).encode()
        if call.method == "POST":
            return self.complete(call.json())
        if isinstance(self.listing, Body):
            return self.listing.content
        names = [{"id": name} for name in self.models]
        return json.dumps({"object": "list", "data": names}).encode()

    def refusal(self, call: Call) -> Status | None:
        """Why the call is not served."""
        params, sent = call.json(), call.headers.get("authorization")
        if self.key is not None and sent != f"Bearer {self.key}":
            return Status(401, message=f"Incorrect API key provided: {sent}.")
        if call.method == "GET":
            return self.listing if isinstance(self.listing, Status) else None
        if params.get("model") not in self.models:
            return Status(
                404, message=f"The model `{params.get('model')}` does not exist."
            )
        return None

    def complete(self, params: JSON) -> bytes:
        """The answer, which is billed."""
        with self.lock:
            self.billed[sha256(params)] += 1
            n = self.billed[sha256(params)]
            outcome = (self.outcomes(params, n) if self.outcomes else None) or Says(
                self._text(params)
            )
        if isinstance(outcome, Body):
            return outcome.content
        text, finish_reason = outcome.text, outcome.finish_reason
        if text is not None and len(text) > 4 * self._limit(params):
            text, finish_reason = text[: 4 * self._limit(params)], "length"
        is_weighed = self.first and params.get("logprobs") and not outcome.beside
        usage = {
            "prompt_tokens": self._n_input(params),
            "completion_tokens": 1 if is_weighed else tokens(len(text or "")),
        }
        with self.lock:
            self.usage.update(usage)
        message = {"role": "assistant", "content": text, **outcome.beside}
        choice = {"index": 0, "message": message, "finish_reason": finish_reason}
        if is_weighed:
            choice |= self._weighed(params)
        if self.engine and params.get("logprobs"):
            choice |= self._draw(params)
        completion = {
            "id": f"chatcmpl-{sha256([params, n])[:12]}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": f"{params['model']}-2026-11",
            "choices": [choice],
            "usage": {**usage, "prompt_tokens_details": {"cached_tokens": self.cached}},
        }
        return json.dumps(completion).encode()

    def _text(self, params: JSON) -> str:
        *system, user = (
            plain_text(message["content"]) for message in params["messages"]
        )
        if "<response_a id=" not in user:
            return self.answer(params["model"], user)
        verdict = self.verdicts(Shown.of("".join(system), user))
        return reply_text(verdict, user=user, as_json="response_format" in params)

    def _tokenize(self, params: JSON) -> JSON:
        tokenizer = self.engine.tokenizer
        if "prompt" in params:
            ids = tokenizer(params["prompt"])["input_ids"]
        else:
            ids = tokenizer.apply_chat_template(
                params["messages"],
                add_generation_prompt=True,
                return_dict=True,
                **(params.get("chat_template_kwargs") or {}),
            )["input_ids"]
        return {"tokens": ids, "count": len(ids), "max_model_len": CONTEXT}

    def _draw(self, params: JSON) -> JSON:
        """Of a choice: what is drawn in place of the text, with its tokens."""
        tokens, logprobs, finish_reason = self.engine.draw(
            self._tokenize({"messages": params["messages"]})["tokens"],
            params["temperature"],
            params["seed"],
            self._limit(params),
        )
        text = self.engine.tokenizer.decode(tokens, skip_special_tokens=True)
        return {
            "message": {"role": "assistant", "content": text},
            "finish_reason": finish_reason,
            "token_ids": tokens if params.get("return_token_ids") else None,
            "logprobs": {"content": [{"logprob": p} for p in logprobs]},
        }

    def _weighed(self, params: JSON) -> JSON:
        """Of a choice: its one token, the likeliest, with the others that it could have been."""
        assert (self._limit(params), params["temperature"]) == (1, 1)
        chances = sorted(self.first(params).items(), key=lambda one: -one[1])
        rows = [{"token": t, "logprob": math.log(p)} for t, p in chances if p]
        content = {**rows[0], "top_logprobs": rows[: params["top_logprobs"]]}
        return {
            "message": {"role": "assistant", "content": rows[0]["token"]},
            "finish_reason": "length",
            "logprobs": {"content": [content]},
        }

    def _score(self, params: JSON) -> JSON:
        assert (params["max_tokens"], params["prompt_logprobs"]) == (1, 0)
        places = [
            p and {str(i): {"logprob": x} for i, x in p.items()}
            for p in self.engine.score(params["prompt"])
        ]
        return {"choices": [{"index": 0, "text": "", "prompt_logprobs": places}]}

    def _limit(self, params: JSON) -> int:
        return int(params.get("max_tokens") or params.get("max_completion_tokens") or 0)

    def _n_input(self, params: JSON) -> int:
        return sum(
            tokens(len(plain_text(message["content"])))
            for message in params.get("messages", ())
        )


def main(arguments: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(
        prog="python -m tests.openai_server",
        description=(__doc__ or "").splitlines()[0],
    ).parse_args(arguments)
    with OpenAiServer() as server:
        print(server.url)
        print(
            f"NO_PROXY=127.0.0.1 python -m elo_exp judge=openai_compatible judge.base_url={server.url} "
            f"judge.model={server.models[0]}",
            flush=True,
        )
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    print(f"{server.billed.total()} completions, {dict(server.usage)} tokens")


if __name__ == "__main__":
    main()
