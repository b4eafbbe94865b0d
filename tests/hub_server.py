"""A hub of models and data sets on this machine: folders under names, with one commit."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_PATH = re.compile(
    r"(?P<api>/api)?(?:/models|/datasets)?/(?P<name>\w+/\w+)/(?:resolve|tree)/(?P<revision>[^/?]+)/?"
    r"(?P<file>[^?]*)"
)


@dataclass
class Hub:
    """What is served, which may change between requests, and what was asked for."""

    folders: dict[str, Path]
    commit: str = "a" * 40
    gated: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body."""
        found = _PATH.match(path)
        folder = self.folders.get(found["name"]) if found else None
        if not found or folder is None:
            return 401, {"X-Error-Code": "RepoNotFound"}, b""
        if found["name"] in self.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        if found["revision"] not in ("main", self.commit):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        headers = {"X-Repo-Commit": self.commit}
        if found["api"] and path.endswith("expand=false"):  # of a data set
            files = [
                {
                    "type": "file",
                    "path": str(file.relative_to(folder)),
                    "size": 1,
                    "oid": "",
                }
                for file in folder.rglob("*.*")
            ]
            return 200, headers, json.dumps(files).encode()
        if not (folder / found["file"]).is_file():
            return 404, headers | {"X-Error-Code": "EntryNotFound"}, b""
        content = (folder / found["file"]).read_bytes()
        return (
            200,
            headers | {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'},
            content,
        )


@contextmanager
def serving(**folders: Path) -> Iterator[Hub]:
    """The folders, each as the model tiny/NAME of a hub."""
    hub = Hub({f"tiny/{name}": folder for name, folder in folders.items()})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = hub.answer(self.path)
            hub.asked.append(f"{self.command} {self.path}")
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield hub
        finally:
            server.shutdown()
