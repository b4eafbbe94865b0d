"""A Weights & Biases server on this machine: it knows one user, keeps workspaces, and refuses runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.http_server import Call, Due, HttpServer, RefusedError, Status

KEY = "0" * 40
_USER = {
    "id": "u",
    "entity": "me",
    "username": "me",
    "email": "me@example.org",
    "flags": "{}",
    "teams": {"edges": []},
}


@dataclass
class WandbServer(HttpServer):
    """`views` has the saved workspaces. With `refusal`, a status, nothing is accepted."""

    refusal: int | None = None
    on_call = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.views: list[dict[str, Any]] = []
        # The environment of a command that has a key
        self.variables = {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": KEY}

    def error(self, fault: Status) -> Any:
        return {"errors": [{"message": fault.message}]}

    def serve(self, call: Call, due: Due) -> bytes:
        if self.refusal is not None:
            raise RefusedError(Status(self.refusal, message="permission denied"))
        content: dict[str, Any] = {"viewer": _USER}
        if b"upsertView" in call.body:
            self.views.append(call.json()["variables"])
            view = {"id": "V1", "name": self.views[-1]["name"]}
            content = {"upsertView": {"view": view, "inserted": True}}
        return json.dumps({"data": content}).encode()
