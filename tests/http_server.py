"""HTTP on 127.0.0.1 for the test servers: the calls that came, and what can go wrong with them."""

from __future__ import annotations

import json
import math
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit


class Fault:
    """What can go wrong with a call. Several faults of the same call add up where that makes sense."""


class ResetBefore(Fault):
    """The connection is reset; nothing has been done."""


@dataclass(frozen=True)
class Status(Fault):
    """The call is refused with this HTTP status; nothing has been done."""

    code: int
    etype: str | None = None  # None: what goes with the code
    message: str = "Refused by the test."
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Instead(Fault):
    """Nothing has been done, and this comes with status 200, as from a login page, or with another."""

    content: bytes
    code: int = 200


@dataclass(frozen=True)
class Rewrite(Fault):
    """The answer comes with status 200 and has been changed on its way."""

    change: Callable[[bytes], bytes]


class AcceptThenReset(Fault):
    """It is done; then the connection is reset instead of an answer."""


@dataclass(frozen=True)
class AcceptThenStatus(Fault):
    """It is done; the answer says that it failed."""

    code: int = 500


@dataclass(frozen=True)
class AcceptThenHang(Fault):
    """It is done; the answer comes so many real seconds later."""

    seconds: float


@dataclass(frozen=True)
class Truncate(Fault):
    """The body is cut after so many bytes, or after so many whole rows.

    rst    the connection is reset there
    eof    the connection is closed there, though more was announced
    clean  the shorter body is ended properly, as by a proxy that has lost its upstream
    """

    at_byte: int = 0
    how: Literal["rst", "eof", "clean"] = "rst"
    after_rows: int | None = None

    def length(self, body: bytes) -> int:
        if self.after_rows is None:
            return min(self.at_byte, len(body))
        return sum(map(len, body.splitlines(keepends=True)[: self.after_rows]))


@dataclass(frozen=True)
class SlowBody(Fault):
    """The body comes in pieces of so many bytes, with a pause in seconds after each."""

    pause: float = 0.01
    piece: int = 1024


F = TypeVar("F", bound=Fault)
Stage = Literal["before", "accepted", "halfway", "answered"]


class Due(tuple[Fault, ...]):
    """The faults of one call."""

    def get(self, kind: type[F]) -> F | None:
        return next((fault for fault in self if isinstance(fault, kind)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request as it was read; the names in `headers` are lower case."""

    time: float
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def json(self) -> Any:
        return json.loads(self.body or b"{}")


class RefusedError(Exception):
    """The call is answered with an error."""

    def __init__(self, fault: Status) -> None:
        super().__init__(fault.message)
        self.fault = fault


class HttpServer:
    """A service on a port of 127.0.0.1, while the `with` block lasts.

    `on_call` is told of each call: "before" (read, nothing done), "accepted" (done, not yet
    answered), "halfway" (half of a file is sent) and "answered". The call goes on when it returns,
    whatever has become of the client. An exception in the service or in `on_call` is raised again where the block ends.
    """

    on_call: Callable[[Stage, Call], None] | None
    port = 0  # any that is free

    def __post_init__(self) -> None:
        self.calls: list[Call] = []
        self.faults: list[tuple[str, str, Fault, list[int | None]]] = []
        self.bugs: list[Exception] = []
        self.closing = threading.Event()
        self.lock = threading.RLock()
        self._http = _Http(("127.0.0.1", self.port), Wire)
        self._http.api = self
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.01,), daemon=True
        )
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.closing.set()
        self._http.stop()
        self._thread.join()
        if self.bugs and kind is None:
            raise self.bugs[0]

    def now(self) -> float:
        return time.time()

    def add_fault(
        self, method: str, path: str, fault: Fault, nth: int | None = 1
    ) -> None:
        """From now on, the nth call of this method to such a path; None: all of them."""
        self.faults.append((method, path, fault, [nth]))

    def place(self, call: Call) -> str:
        """What the path of a fault is searched for in."""
        return call.path

    def due(self, call: Call) -> Due:
        due = []
        with self.lock:
            for method, path, fault, countdown in self.faults:
                if method == call.method and re.search(path, self.place(call)):
                    if countdown[0] is not None:
                        countdown[0] -= 1
                    if not countdown[0]:
                        due.append(fault)
        return Due(due)

    def tell(self, stage: Stage, call: Call) -> None:
        if self.on_call:
            self.on_call(stage, call)

    def play(self, call: Call, wire: Wire, due: Due) -> None:
        """Answer a call, with what is to go wrong with it."""
        self.tell("before", call)
        if self.is_lost(call, due):
            wire.reset()
            return
        body = self._done(call, due)
        if due.get(AcceptThenReset):
            wire.reset()
            return
        is_file = call.path.endswith(("/results", "/content"))
        halfway = (lambda: self.tell("halfway", call)) if is_file else None
        instead = due.get(Instead)
        code = instead.code if instead else 200
        if wire.send(code, body, due, headers=self.headers(), halfway=halfway):
            self.tell("answered", call)

    def headers(self) -> Mapping[str, str]:
        """More headers of the answer to a call that has been served."""
        return {}

    def is_lost(self, call: Call, due: Due) -> bool:
        return due.get(ResetBefore) is not None

    def _done(self, call: Call, due: Due) -> bytes:
        """What is answered to a call that has been served."""
        if status := due.get(Status):
            raise RefusedError(status)
        if instead := due.get(Instead):
            return instead.content
        content = self.serve(call, due)
        if rewrite := due.get(Rewrite):
            content = rewrite.change(content)
        self.tell("accepted", call)
        if hang := due.get(AcceptThenHang):
            self.closing.wait(hang.seconds)
        if failure := due.get(AcceptThenStatus):
            raise RefusedError(
                Status(failure.code, message="Failed after it was done.")
            )
        return content

    def serve(self, call: Call, due: Due) -> bytes:
        """The answer to a call, all of whose effects have taken place."""
        raise NotImplementedError

    def error(self, fault: Status) -> Any:
        """The body of an error, as this service words it."""
        raise NotImplementedError


class _Http(ThreadingHTTPServer):
    """Knows its open connections, to end with them."""

    daemon_threads = False  # so that server_close waits for them
    request_queue_size = 128
    api: HttpServer

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def server_activate(self) -> None:
        self._connections: set[socket.socket] = set()
        super().server_activate()

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self._connections.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        problem = sys.exception()
        if isinstance(problem, Exception) and not isinstance(problem, ConnectionError):
            self.api.bugs.append(problem)

    def stop(self) -> None:
        self.shutdown()
        for connection in list(self._connections):
            with suppress(OSError):  # closed meanwhile
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


class Wire(BaseHTTPRequestHandler):
    """The connection on which a call came."""

    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        api, url = self.server.api, urlsplit(self.path)
        size = int(self.headers.get("content-length", 0))
        body = self.rfile.read(size)
        if len(body) < size:  # the client died while it sent
            self.close_connection = True
            return
        call = Call(
            time=api.now(),
            method=self.command,
            path=url.path,
            query=dict(parse_qsl(url.query)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
        )
        api.calls.append(call)
        due = api.due(call)
        try:
            api.play(call, self, due)
        except RefusedError as refusal:
            # an SDK that asks again does so at once
            given = refusal.fault.headers
            soon = {} if "retry-after" in given else {"retry-after-ms": "1"}
            content = json.dumps(api.error(refusal.fault)).encode()
            self.send(refusal.fault.code, content, due, headers=soon | dict(given))
        except ConnectionError:  # the client has gone
            self.close_connection = True
        except Exception as bug:
            api.bugs.append(bug)
            self.reset()

    do_GET = do_POST = do_PUT = _serve  # noqa: N815

    def reset(self) -> None:
        """RST, not FIN: linger for 0 seconds, and close at once."""
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.rfile.close()
        self.connection.close()

    def send(
        self,
        code: int,
        body: bytes,
        due: Due,
        *,
        headers: Mapping[str, str] | None = None,
        halfway: Callable[[], None] | None = None,
    ) -> bool:
        """Whether the whole answer has been sent; one that is told of halfway goes in chunks."""
        cut, slow = due.get(Truncate), due.get(SlowBody)
        length = cut.length(body) if cut else len(body)
        announced = length if cut and cut.how == "clean" else len(body)
        is_page = body.startswith(b"<")
        self.send_response(code)
        self.send_header("content-type", "text/html" if is_page else "application/json")
        if halfway:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(announced))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        step = slow.piece if slow else max(1, math.ceil(len(body) / 2))
        for start in range(0, length, step):
            piece = body[start : min(start + step, length)]
            chunk = b"%x\r\n%b\r\n" % (len(piece), piece)
            self.wfile.write(chunk if halfway else piece)
            if halfway and start < len(body) / 2 <= start + step:
                halfway()
            if slow:
                self.server.api.closing.wait(slow.pause)
        if cut and cut.how == "rst":
            self.reset()
        elif cut and cut.how == "eof":
            self.close_connection = True
        elif halfway:
            self.wfile.write(b"0\r\n\r\n")
        return cut is None or cut.how == "clean"

    def log_message(self, *_: object) -> None:
        pass
