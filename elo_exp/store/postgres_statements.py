"""Statements with values, in the SQL that both engines read, as PostgreSQL runs them.

Each function takes a connection, a text and values, so that its call can be written down and made again.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import psycopg

from elo_exp.store.database import AnswerRow
from elo_exp.store.postgres_connection import (
    Connection,
    roll_back,
    run_statements,
)

_ROWS_PER_FETCH = 100

Cursor = psycopg.Cursor[tuple[Any, ...]]


def execute(db: Connection, statement: str, values: Sequence[Any]) -> Cursor:
    """Run a statement; each ? in it stands for a value."""
    return db.execute(_use_psycopg_marks(statement), values)


def execute_for_rows(
    db: Connection, statement: str, rows: Sequence[Sequence[Any]]
) -> Cursor:
    """Run a statement for each row of values."""
    if len(rows) == 1:
        return execute(db, statement, rows[0])
    cursor = db.cursor()
    cursor.executemany(_use_psycopg_marks(statement), rows)
    # After a pipeline a server does not watch for silence until it is told something else.
    run_statements(db, "SELECT 1")
    return cursor


def fill_key_table(db: Connection, table: str, keys: Sequence[str]) -> None:
    """Make a table of keys, each once, that only the transaction under way sees."""
    columns = 'key TEXT COLLATE "C" PRIMARY KEY'
    run_statements(
        db,
        f"CREATE TEMP TABLE IF NOT EXISTS {table} ({columns}) ON COMMIT DELETE ROWS; "
        f"DELETE FROM {table}",
    )
    execute(db, f"INSERT INTO {table} SELECT DISTINCT unnest(?::text[])", (keys,))


def fetch_in_portions(
    db: Connection, query: str, values: Sequence[Any]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query within a transaction, and hold few of them at a time."""
    with db.cursor(name="rows") as cursor:
        cursor.itersize = _ROWS_PER_FETCH
        yield from cursor.execute(_use_psycopg_marks(query), values)


def copy_incoming(db: Connection, rows: Iterable[AnswerRow]) -> None:
    """Copy rows into a table `incoming` that only this connection sees."""
    run_statements(db, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
    try:
        columns = "key TEXT, kind TEXT, value TEXT, at TEXT"
        run_statements(
            db, f"DROP TABLE IF EXISTS incoming; CREATE TEMP TABLE incoming ({columns})"
        )
        with (
            db.cursor() as cursor,
            cursor.copy("COPY incoming FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)
        run_statements(db, "COMMIT")
    except BaseException:
        roll_back(db)
        raise


@functools.cache
def _use_psycopg_marks(statement: str) -> bytes:
    """Write each ? of a statement as psycopg's mark for a value."""
    return statement.replace("%", "%%").replace("?", "%s").encode()
