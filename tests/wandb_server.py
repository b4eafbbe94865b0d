"""A Weights & Biases server on this machine, as far as a workspace needs one: it knows a user and keeps views."""

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
    """`views`: what has been saved. It refuses every key where `is_closed`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.views: list[dict[str, Any]] = []
        self.is_closed = False

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a command that has a key for it."""
        return {
            "WANDB_BASE_URL": f"http://127.0.0.1:{self.server_port}",
            "WANDB_API_KEY": KEY,
        }


class _Handler(BaseHTTPRequestHandler):
    server: WandbServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/graphql":  # telemetry
            return self._answer(200, {})
        if self.server.is_closed:
            return self._answer(401, {"errors": [{"message": "permission denied"}]})
        asked = json.loads(body)
        if "upsertView" not in asked["query"]:
            return self._answer(200, {"data": {"viewer": _USER}})
        self.server.views.append(asked["variables"])
        view = {"id": "V1", "name": asked["variables"]["name"]}
        return self._answer(
            200, {"data": {"upsertView": {"view": view, "inserted": True}}}
        )

    def _answer(self, code: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(code)
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
