"""A tracked run in a process of its own: nothing that an SDK waits for holds the job up, and it can be ended.

Calls go to that process as they are made, and it works them off behind the job's back. Only its beginning and its end
are waited for.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from elo_exp.console import URL_PASSWORD_PATTERN
from elo_exp.errors import UserError
from elo_exp.masking import mask_text
from elo_exp.records import Plot
from elo_exp.trackers import Lines, TrackedRun, Value

_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from elo_exp.trackers.subprocess_run import serve; serve()"
)
_EXIT_TIMEOUT_S = 10.0
# Long, because the import of an SDK may be slow; it needs no server
_LOAD_TIMEOUT_S = 300.0

logger = logging.getLogger(__name__)


class TrackerError(Exception):
    """Why a run is not tracked any more, in plain words."""


class SubprocessRun:
    """A run whose calls another process makes.

    open_run  opens it there; both it and what is logged are pickled
    sdk       the module that it imports first
    limit_s   seconds after which its beginning, or its end, is given up
    """

    def __init__(
        self, open_run: Callable[[], TrackedRun], *, sdk: str, limit_s: float
    ) -> None:
        self._limit = limit_s
        self._output = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            start_new_session=True,  # an interrupt is the job's, which then closes the run
        )
        self._calls: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._failure: str | None = None
        threading.Thread(target=self._send, daemon=True).start()
        threading.Thread(target=self._receive, daemon=True).start()
        try:
            words = [
                URL_PASSWORD_PATTERN.sub(r"\1***@", mask_text(word))
                for word in sys.argv
            ]
            self._queue_call((words, sdk, open_run))  # an SDK may send them
            self._await_reply("loaded", _LOAD_TIMEOUT_S)
            self.where: str | None = self._await_reply("opened", self._limit)
        except BaseException:
            self.end()
            raise

    @property
    def failure(self) -> str | None:
        """Why the calls so far have not all been made; None where they have, or are still being made."""
        return self._failure

    def call(self, method: str, **arguments: Any) -> None:
        """Have a method of the run called."""
        if "metrics" in arguments:
            metrics = arguments["metrics"].items()
            arguments["metrics"] = {
                name: _make_picklable(value) for name, value in metrics
            }
        self._queue_call((method, arguments))

    def close(self, **arguments: Any) -> str:
        """Close the run, and return what its SDK has printed.

        Raises TrackerError where not all could be logged, or not within the time.
        """
        try:
            self._queue_call(("close", arguments))
            self.where = self._await_reply("closed", self._limit)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_EXIT_TIMEOUT_S)
            return self._read_output()
        finally:
            self.end()

    def end(self) -> None:
        """End the process, whatever it does."""
        self._calls.put(None)
        self._process.kill()
        self._process.wait()
        if self._failure:
            logger.debug("what the SDK has printed:\n%s", self._read_output())
        self._output.close()

    def _read_output(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def _queue_call(self, message: Any) -> None:
        self._calls.put(pickle.dumps(message))

    def _send(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(OSError):  # it has ended; the other thread hears of that
            while (message := self._calls.get()) is not None:
                stdin.write(message)
                stdin.flush()
        with suppress(OSError):
            stdin.close()

    def _receive(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        with stdout:
            while True:
                try:
                    kind, value = pickle.load(stdout)
                except (EOFError, OSError, pickle.UnpicklingError):
                    kind, value = "failed", "its process has ended"
                if kind == "warning":
                    logger.warning("%s", value)
                    continue
                if kind == "failed":
                    self._failure = self._failure or value
                self._replies.put((kind, value))
                if kind in ("failed", "refused", "closed"):
                    return

    def _await_reply(self, expected: str, limit: float) -> Any:
        try:
            kind, value = self._replies.get(timeout=limit)
        except queue.Empty:
            self._failure = f"not done within {limit:.0f} s"
            raise TrackerError(self._failure) from None
        if kind == "refused":
            raise value
        if kind != expected:
            raise TrackerError(value)
        return value


def _make_picklable(value: Value) -> Value:
    """Return a value that can be pickled, with no more than is logged."""
    if isinstance(value, Plot):  # its file is in the run folder
        return dataclasses.replace(value, png=b"", svg="", rows=())
    if isinstance(value, Lines):
        return dataclasses.replace(value, lines=dict(value.lines))
    if isinstance(value, list | tuple):
        return [dict(row) for row in value]
    return value


# In the other process


def serve() -> None:
    """Open a run and make the calls that come, until it is closed, fails, or whoever logs is gone."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # where an SDK prints
    code = 1
    try:
        _serve(sys.stdin.buffer, lambda *reply: _write(replies, reply))
        code = 0
    except UserError as error:
        _write(replies, ("refused", error))
    except TrackerError as error:
        _write(replies, ("failed", str(error)))
    except EOFError:  # the job has been killed
        pass
    except Exception as error:
        logging.getLogger().exception("it fails")
        lines = str(error).splitlines() or [""]
        _write(replies, ("failed", f"{type(error).__name__}: {lines[0]}".rstrip(": ")))
    if code:
        os._exit(code)  # an SDK may wait when Python exits


def _serve(calls: IO[bytes], reply: Callable[[str, Any], None]) -> None:
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("elo_exp").addHandler(_ForwardingHandler(reply))
    sys.argv[:], sdk, open_run = pickle.load(calls)
    importlib.import_module(sdk)
    reply("loaded", None)
    run = open_run()
    reply("opened", run.where)
    name = ""
    while name != "close":
        name, arguments = pickle.load(calls)
        getattr(run, name)(**arguments)
    reply("closed", run.where)


def _write(replies: IO[bytes], reply: tuple[Any, ...]) -> None:
    pickle.dump(reply, replies)
    replies.flush()


class _ForwardingHandler(logging.Handler):
    """Sends warnings to the job, which shows them."""

    def __init__(self, reply: Callable[[str, Any], None]) -> None:
        super().__init__(logging.WARNING)
        self._reply = reply

    def emit(self, record: logging.LogRecord) -> None:
        self._reply("warning", record.getMessage())
