"""A `python` that has made its imports already: a process that forks itself for every command it is given.

    python tests/forking.py serve SOCKET torch peft      # imports these, and waits
    python tests/forking.py ask SOCKET -m elo_exp plan=true

`ask` is that command: it has the arguments, folder, environment, files and exit code of a `python -m elo_exp plan=true`
that begins at once. Some twenty of them take as long as one that imports torch.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import runpy
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_MAX_FILES = 253  # that a message may bring
_FREE = 128  # from here on, file descriptors that no command has


def ask(path: str, arguments: Sequence[str]) -> int:
    """The exit code of the command, which a fork of the server runs in place of this process, with its open files."""
    files = [int(name) for name in os.listdir("/dev/fd") if _is_open(int(name))]  # noqa: PTH208
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        told = {"arguments": arguments, "folder": os.getcwd(), "variables": dict(os.environ), "files": files}  # noqa: PTH109
        socket.send_fds(connection, [json.dumps(told).encode()], files)
        connection.shutdown(socket.SHUT_WR)
        return int(connection.recv(16) or 1)


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:  # that of the list itself
        return False
    return True


def serve(path: str) -> dict[str, Any]:
    """Waits for commands, and returns in the fork of each what it is told; never in the process that was called."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    print("serving", flush=True)
    while True:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            return _begin(connection)
        connection.close()


def _begin(connection: socket.socket) -> dict[str, Any]:
    """Forks once more: one runs the command, the other tells its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, received, *_ = socket.recv_fds(connection, 2**20, _MAX_FILES)
    while piece := connection.recv(2**20):
        message += piece
    if worker := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        with suppress(BrokenPipeError):  # it was killed, who asked
            connection.sendall(str(code if code >= 0 else 128 - code).encode())
        os._exit(0)
    connection.close()
    told: dict[str, Any] = json.loads(message)
    apart = [fcntl.fcntl(file, fcntl.F_DUPFD, _FREE) for file in received]
    for file in received:
        os.close(file)
    for file, place in zip(apart, told["files"], strict=True):
        os.dup2(file, place)
        os.close(file)
    return told


def run(told: dict[str, Any]) -> None:
    """As `python ARGUMENTS` does: -m MODULE, -c TEXT or a file."""
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["variables"])
    sys.executable = shutil.which("python") or sys.executable  # what the command starts begins at once, too
    first, *rest = told["arguments"]
    while first in ("-B", "-u"):  # what this Python is told is told to those that it starts
        first, *rest = rest
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


if __name__ == "__main__":
    role, where, *words = sys.argv[1:]
    if role == "ask":
        sys.exit(ask(where, words))
    del sys.path[0]  # the folder of this file
    for module in words:
        importlib.import_module(module)
    gc.freeze()  # else each fork goes through all of it when it ends
    run(serve(where))
