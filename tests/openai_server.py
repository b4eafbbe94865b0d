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
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self

import pytest

from elo_exp.api import requests
from tests.anthropic_server import (
    AcceptThenHang,
    AcceptThenReset,
    AcceptThenStatus,
    Fault,
    ResetBefore,
    Status,
)
from tests.anthropic_verdicts import (
    JSON,
    Rule,
    choose,
    longer,
    plain_text,
    reply_text,
    sha256,
    tokens,
)

Stage = Literal["asked", "answered"]


def alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A machine on which nobody has set up anything, in an empty folder; back-offs are short."""
    monkeypatch.chdir(folder)
    for name in [
        name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_"))
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(requests, "_BACK_OFF_SECONDS", 0.01)


@dataclass(frozen=True, slots=True)
class Says:
    """A completion of this text, which ends for this reason; `refusal` stands beside it, as in structured outputs."""

    text: str | None
    finish_reason: str | None = "stop"
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """Status 200 and exactly these bytes: paid for, and not a completion."""

    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request as it was read; the names in `headers` are lower case."""

    time: float
    method: str
    path: str
    headers: Mapping[str, str]
    params: JSON


@dataclass(kw_only=True, eq=False)
class OpenAiServer:
    """The service on a port of 127.0.0.1, while the `with` block lasts.

    verdicts     what it says where it is shown two responses
    answer       what a model says to any other text
    outcomes     what becomes of the request that is served for the n-th time (n = 1, 2, ...); None: the usual
    key          that a request must carry; None: any, or none
    listing      what is sent in place of the list of models: an error, or another body
    context      tokens that a request and its answer may have together
    cached       tokens of a request that the prompt cache has
    refuses      parameters that it does not take
    on_call      is told of each completion before anything is done, and after it has been billed
    """

    verdicts: Sequence[str] | Rule = longer
    answer: Callable[[str, str], str] = staticmethod(  # noqa: RUF009
        lambda model, text: f"About {text[:40]}: yes."
    )
    outcomes: Callable[[JSON, int], Says | Body | None] | None = None
    key: str | None = None
    models: Sequence[str] = ("small", "large")
    listing: Status | Body | None = None
    context: int = 100_000
    cached: int = 0
    refuses: Sequence[str] = ()
    on_call: Callable[[Stage, Call], None] | None = None

    calls: list[Call] = field(default_factory=list, init=False)
    billed: Counter[str] = field(
        default_factory=Counter, init=False
    )  # how often each body was answered
    usage: Counter[str] = field(default_factory=Counter, init=False)
    bugs: list[Exception] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.closing = threading.Event()
        self.lock = threading.RLock()
        self._faults: list[tuple[Fault, int | None]] = []
        self._n_posts = 0
        self._turns: dict[str, int] = {}
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.api = self
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.01,), daemon=True
        )
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        if self.bugs and kind is None:
            raise self.bugs[0]

    @property
    def asked(self) -> list[JSON]:
        """The parameters of every completion that was asked for."""
        return [call.params for call in self.calls if call.method == "POST"]

    def fault(self, fault: Fault, *, nth: int | None = 1) -> None:
        """From now on, of the nth completion that is asked for; None: of all."""
        self._faults.append((fault, nth and nth + self._n_posts))

    def due(self) -> list[Fault]:
        with self.lock:
            self._n_posts += 1
            return [
                fault for fault, nth in self._faults if nth in (None, self._n_posts)
            ]

    def refusal(self, call: Call) -> Status | None:
        """Why the call is not served."""
        params, sent = call.params, call.headers.get("authorization")
        if self.key is not None and sent != f"Bearer {self.key}":
            return Status(401, message=f"Incorrect API key provided: {sent}.")
        if call.method == "GET":
            return self.listing if isinstance(self.listing, Status) else None
        if params.get("model") not in self.models:
            return Status(
                404, message=f"The model `{params.get('model')}` does not exist."
            )
        if found := [name for name in self.refuses if name in params]:
            return Status(
                400,
                message=f"Unsupported parameter: '{found[0]}' is not supported with this model.",
            )
        if self._n_input(params) + self._limit(params) > self.context:
            return Status(
                400,
                "context_length_exceeded",
                f"This model's context is {self.context} tokens.",
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
        usage = {
            "prompt_tokens": self._n_input(params),
            "completion_tokens": tokens(len(text or "")),
        }
        with self.lock:
            self.usage.update(usage)
        message = {"role": "assistant", "content": text, "refusal": outcome.refusal}
        completion = {
            "id": f"chatcmpl-{sha256([params, n])[:12]}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": f"{params['model']}-2026-11",
            "choices": [
                {"index": 0, "message": message, "finish_reason": finish_reason}
            ],
            "usage": {**usage, "prompt_tokens_details": {"cached_tokens": self.cached}},
        }
        return json.dumps(completion).encode()

    def _text(self, params: JSON) -> str:
        *system, user = (
            plain_text(message["content"]) for message in params["messages"]
        )
        if "<response_a id=" not in user:
            return self.answer(params["model"], user)
        verdict = choose(self.verdicts, "".join(system), user, turns=self._turns)
        return reply_text(verdict, user=user, as_json="response_format" in params)

    def _limit(self, params: JSON) -> int:
        return int(params.get("max_tokens") or params.get("max_completion_tokens") or 0)

    def _n_input(self, params: JSON) -> int:
        return sum(
            tokens(len(plain_text(message["content"])))
            for message in params["messages"]
        )


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    api: OpenAiServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client has gone


class _Handler(BaseHTTPRequestHandler):
    """One request for each connection."""

    server: _Http

    def _serve(self) -> None:
        api = self.server.api
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        params = json.loads(body) if body else {}
        call = Call(
            time=time.time(),
            method=self.command,
            path=self.path,
            headers=headers,
            params=params,
        )
        with api.lock:
            api.calls.append(call)
        try:
            self._play(call)
        except ConnectionError:
            return
        except Exception as bug:
            api.bugs.append(bug)

    do_GET = do_POST = _serve  # noqa: N815

    def _play(self, call: Call) -> None:
        api = self.server.api
        if call.path not in ("/v1/models", "/v1/chat/completions"):
            self._send(404, b'{"detail": "Not Found"}')
            return
        faults = api.due() if call.method == "POST" else []
        first = faults[0] if faults else None
        if isinstance(first, ResetBefore):
            self._reset()
            return
        if refusal := first if isinstance(first, Status) else api.refusal(call):
            self._refuse(refusal)
            return
        if call.method == "GET":
            names = json.dumps(
                {"object": "list", "data": [{"id": name} for name in api.models]}
            ).encode()
            self._send(
                200, api.listing.content if isinstance(api.listing, Body) else names
            )
            return
        self._tell("asked", call)
        content = api.complete(call.params)
        self._tell("answered", call)
        if isinstance(first, AcceptThenHang):
            api.closing.wait(first.seconds)
        if isinstance(first, AcceptThenReset):
            self._reset()
        elif isinstance(first, AcceptThenStatus):
            self._refuse(Status(first.code, message="Failed after it was done."))
        else:
            self._send(200, content)

    def _tell(self, stage: Stage, call: Call) -> None:
        if self.server.api.on_call:
            self.server.api.on_call(stage, call)

    def _refuse(self, refusal: Status) -> None:
        error = {
            "message": refusal.message,
            "type": "invalid_request_error",
            "param": None,
            "code": refusal.etype,
        }
        soon = {} if "retry-after" in refusal.headers else {"retry-after-ms": "1"}
        headers = {**soon, **refusal.headers}  # an SDK that asks again does so at once
        self._send(refusal.code, json.dumps({"error": error}).encode(), headers)

    def _send(
        self, code: int, content: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(code)
        self.send_header(
            "content-type",
            "text/html" if content.startswith(b"<") else "application/json",
        )
        self.send_header("content-length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _reset(self) -> None:
        """RST, not FIN."""
        self.connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.rfile.close()
        self.connection.close()

    def log_message(self, *_: object) -> None:
        pass


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
