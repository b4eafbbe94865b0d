"""What the tests of a store share: its tables as other programs see them, faults in it, other processes on it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from elo_exp import HOME


def rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """What is in the file, as any other program would read it."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement).fetchall()


def write(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


@contextmanager
def process(
    script: str, *args: object, python: Sequence[str] = (sys.executable,)
) -> Iterator[subprocess.Popen[str]]:
    """Another process, killed at the end if it is still there."""
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    command = [*python, "-c", script, *map(str, args)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as other:  # type: ignore[call-overload]
        try:
            yield other
        finally:
            other.kill()


def said(other: subprocess.Popen[str]) -> list[str]:
    """The words of the next line that it prints."""
    assert other.stdout is not None
    return other.stdout.readline().split()


def go_on(other: subprocess.Popen[str]) -> None:
    assert other.stdin is not None
    other.stdin.write("\n")
    other.stdin.flush()
