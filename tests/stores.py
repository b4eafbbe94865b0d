"""What the tests of a store share: its tables as other programs see them, faults in it, other processes on it.

A test with the fixture `place` runs twice, on a file of SQLite and on a schema of a real PostgreSQL.
"""

from __future__ import annotations

import functools
import itertools
import os
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from elo_exp.paths import HOME

Place = Path | str  # of a store
_numbers = itertools.count()


def postgres() -> str:
    """The URL of a PostgreSQL that runs until this process ends; skips where there is none."""
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    with warnings.catch_warnings(action="ignore"):  # of a folder that it takes instead
        pytest.importorskip("pgserver", reason="no wheel of pgserver for this Python")
    started = _started()
    if isinstance(started, Exception):
        pytest.skip(f"no PostgreSQL can be started here: {started!r:.300}")
    return started


@functools.cache
def _started() -> str | Exception:
    """The URL of a server, or why this machine starts none: it may have no user for it, or no shared memory."""
    import pgserver

    folder = tempfile.mkdtemp(prefix="elo_exp_postgres_")
    try:
        url = str(pgserver.get_server(folder, cleanup_mode="delete").get_uri())
    except Exception as error:
        return error
    for statement in ("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"):
        write(url, statement)
    return url


def empty_schema() -> str:
    """The URL of a schema of its own."""
    name = f"test_{next(_numbers)}"
    write(postgres(), f"CREATE SCHEMA {name}")
    return f"{postgres()}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where no store is yet."""
    if request.param == "postgres":
        return empty_schema()
    return tmp_path / "cache" / "store.sqlite"


def place_of(word: str) -> Place:
    """As a process is told it."""
    return word if "://" in word else Path(word)


def rows(place: Place, statement: str) -> list[tuple[Any, ...]]:
    """What is in the store, as any other program would read it."""
    if isinstance(place, str):
        import psycopg

        with psycopg.connect(place) as connection:
            return connection.execute(statement.encode()).fetchall()
    with closing(sqlite3.connect(place)) as db:
        return db.execute(statement).fetchall()


def write(place: Place, statement: str, *values: object) -> None:
    if isinstance(place, str):
        import psycopg

        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(statement.replace("?", "%s").encode(), values)
        return
    with closing(sqlite3.connect(place)) as db, db:
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
