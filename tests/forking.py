"""A `python` that has made its imports already: a process that forks itself for every command it is given.

    python tests/forking.py serve SOCKET torch peft      # imports these, and waits
    python tests/forking.py ask SOCKET -m elo_exp plan=true

`ask` is that command: it has the arguments, folder, environment, files and exit code of a `python -m elo_exp plan=true`
that begins at once. Some twenty of them take as long as one that imports torch. An interrupt is passed on to it, and
it does not outlive who asked. Its hashes of strings are those of the server, and so is what Python looks up when it
begins, PYTHONUTF8 for example.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

_MAX_FILES = 253  # that a message may bring
_FREE = 128  # from here on, file descriptors that no command has
_PYTHON = "ELO_EXP_PYTHON"  # the socket of a server that stands in for the `python` of the PATH
_END, _INTERRUPT = b"\n", b"i"  # of what is told; what is told later


def begin(
    path: str,
    imports: Sequence[str],
    *,
    folder: Path,
    variables: Mapping[str, str],
    strict: bool = False,
) -> subprocess.Popen[str]:
    """A server at work, until its `with` ends, or whoever began it. `strict`: for commands with -W error."""
    program = (
        sys.executable,
        *(("-W", "error") if strict else ()),
        __file__,
        "serve",
        path,
        *imports,
    )
    server = subprocess.Popen(
        program,
        cwd=folder,
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "serving\n"
    return server


def asking(path: str) -> list[str]:
    """The words that stand for `python` in a command that the server runs."""
    return [sys.executable, "-IS", __file__, "ask", path]


def ask(path: str, arguments: Sequence[str]) -> int:
    """The exit code of the command, which a fork of the server runs in place of this process, with its open files."""
    files = [int(name) for name in os.listdir("/dev/fd") if _is_open(int(name))]  # noqa: PTH208
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        told = {
            "arguments": arguments,
            "folder": os.getcwd(),  # noqa: PTH109
            "variables": dict(os.environ),
            "files": files,
        }
        socket.send_fds(connection, [json.dumps(told).encode() + _END], files)
        signal.signal(signal.SIGINT, lambda *_: connection.send(_INTERRUPT))
        return int(connection.recv(16) or 1)


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:  # that of the list itself
        return False
    return True


def serve(path: str) -> dict[str, Any]:
    """Waits for commands, and returns in the fork of each what it is told; in this process, it ends with its input."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    print("serving", flush=True)
    while True:
        if sys.stdin in select.select([listening, sys.stdin], [], [])[0]:
            os._exit(0)
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            return _begin(connection)
        connection.close()


def _begin(connection: socket.socket) -> dict[str, Any]:
    """Forks once more: one runs the command, the other tells its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, received, *_ = socket.recv_fds(connection, 2**20, _MAX_FILES)
    while not message.endswith(_END):
        if not (piece := connection.recv(2**20)):  # it was killed, who asked
            os._exit(1)
        message += piece
    ended, wakes = socket.socketpair()
    ended.setblocking(False)
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, _noted)
    signal.set_wakeup_fd(wakes.fileno())
    if worker := os.fork():
        for file in received:
            os.close(file)
        code = _end(worker, connection, ended)
        with suppress(BrokenPipeError):  # it was killed, who asked
            connection.sendall(str(code).encode())
        os._exit(0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for end in (ended, wakes, connection):
        end.close()
    told: dict[str, Any] = json.loads(message)
    apart = [fcntl.fcntl(file, fcntl.F_DUPFD, _FREE) for file in received]
    for file in received:
        os.close(file)
    for file, place in zip(apart, told["files"], strict=True):
        os.dup2(file, place)
        os.close(file)
    return told


def _noted(*_: object) -> None:
    """A child has ended: select() is told by the wakeup file."""


def _end(worker: int, connection: socket.socket, ended: socket.socket) -> int:
    """The exit code of the worker. It is interrupted when who asked is, and killed when who asked is gone."""
    told = [connection, ended]
    while True:
        for each in select.select(told, [], [])[0]:
            heard = each.recv(64)
            if each is ended:
                pid, status = os.waitpid(worker, os.WNOHANG)
                if pid:
                    return os.waitstatus_to_exitcode(status)
            elif heard:
                os.kill(worker, signal.SIGINT)
            else:
                os.kill(worker, signal.SIGKILL)
                told = [ended]


def run(told: dict[str, Any]) -> None:
    """As `python ARGUMENTS` does: -m MODULE, -c TEXT or a file, with the -W of the server."""
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["variables"])
    if _PYTHON in os.environ:  # what the command starts begins at once, too
        sys.executable = shutil.which("python") or sys.executable
    first, *rest = told["arguments"]
    while first in ("-B", "-u", "-W"):  # what this Python is told is told to those that it starts
        assert first != "-W" or [rest[0]] == sys.warnoptions
        first, *rest = rest[1:] if first == "-W" else rest
    if first == "-m":
        sys.path.insert(0, told["folder"])
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *rest[1:]]
        exec(rest[0], {"__name__": "__main__"})
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))  # noqa: PTH100, PTH120
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def end(told: dict[str, Any]) -> NoReturn:
    """Runs the command, and ends as Python does, but does not take apart what the server has imported."""
    code: object = None
    try:
        run(told)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:  # a worker of joblib closes them
            stream.flush()
    os._exit(code or 0)


def leave(code: int) -> None:
    """Ends this process as the command has ended: a negative code is the signal that it died of."""
    if code < 0:
        with suppress(OSError):  # SIGKILL is always that
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    role, where, *words = sys.argv[1:]
    if role == "ask":
        leave(ask(where, words))
    del sys.path[0]  # the folder of this file
    for module in words:
        importlib.import_module(module)
    gc.freeze()  # else each fork goes through all of it when it ends
    end(serve(where))
