"""A Weights & Biases server on this machine: it knows one user, keeps workspaces, and refuses runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "0" * 40
_USER = {
    "id": "u",
    "entity": "me",
    "username": "me",
    "email": "me@example.org",
    "flags": "{}",
    "teams": {"edges": []},
}


class WandbServer(ThreadingHTTPServer):
    """`views` has the saved workspaces. With `refusal`, a status, nothing is accepted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.views: list[dict[str, Any]] = []
        self.refusal: int | None = None
        url = f"http://127.0.0.1:{self.server_port}"
        # The environment of a command that has a key
        self.variables = {"WANDB_BASE_URL": url, "WANDB_API_KEY": KEY}


class _Handler(BaseHTTPRequestHandler):
    server: WandbServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        content: dict[str, Any] = {"data": {"viewer": _USER}}
        if self.server.refusal is not None:
            content = {"errors": [{"message": "permission denied"}]}
        elif b"upsertView" in body:
            variables = json.loads(body)["variables"]
            self.server.views.append(variables)
            view = {"id": "V1", "name": variables["name"]}
            content = {"data": {"upsertView": {"view": view, "inserted": True}}}
        data = json.dumps(content).encode()
        self.send_response(self.server.refusal or 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[WandbServer]:
    with WandbServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
