"""One connection to PostgreSQL: how it is made, how a transaction that writes begins, and what an error says of it."""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from elo_exp.store.database import APPLICATION_ID, DatabaseError

# What libpq is told where the URL does not say otherwise: a server that is gone is noticed within a minute.
_CONNECTION_DEFAULTS: Mapping[str, Any] = {
    "application_name": "elo_exp",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "target_session_attrs": "read-write",  # of several hosts the one that is written to
}
# The server, too, notices that a machine is gone; what it has committed is on its disk.
_SESSION_SETTINGS = """
SELECT set_config('tcp_keepalives_idle', '30', false),
    set_config('tcp_keepalives_interval', '10', false),
    set_config('tcp_keepalives_count', '3', false);
SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'
"""
# The server then ends the transaction of a silent process.
_MAX_IDLE_SECONDS = 30
_CONNECTION_ENDED_STATES = ("57P01", "57P02", "57P05", "25P03", "25P04")
# A transaction took too long, or met another one.
_RETRYABLE_STATES = ("57014", "55P03", "40001", "40P01", "57P03")
_ERRNO_BY_STATE = {"53100": errno.ENOSPC, "42501": errno.EACCES, "25006": errno.EROFS}
# Of the states that say that disk, memory or connections are short
_LACKS_RESOURCES_CLASS = "53"

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(url: str) -> Connection:
    """Connect to a database. Raises psycopg's error if it cannot be reached."""
    settings = {**_CONNECTION_DEFAULTS, **conninfo_to_dict(url)}
    db = psycopg.connect(**settings, client_encoding="utf8", autocommit=True)
    db.execute(_SESSION_SETTINGS.encode())
    return db


def run_statements(db: Connection, statements: str) -> None:
    """Run statements of ours, without values, in one message to the server."""
    db.execute(statements.encode(), prepare=False)


def begin_writing(
    db: Connection, busy_seconds: float, first_statement: str = ""
) -> None:
    """Begin a transaction with the lock of the writers, and a first statement, in one message to the server.

    busy_seconds  how long to wait for the lock
    """
    run_statements(
        db,
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
        f"SET LOCAL lock_timeout = '{1000 * busy_seconds:.0f}ms'; "
        f"SET LOCAL idle_in_transaction_session_timeout = '{_MAX_IDLE_SECONDS}s'; "
        f"SELECT pg_advisory_xact_lock({APPLICATION_ID}); {first_statement}",
    )


def roll_back(db: Connection) -> None:
    """Undo the transaction under way."""
    with suppress(psycopg.Error):  # a connection that is lost has done so
        run_statements(db, "ROLLBACK")


def is_connection_lost(db: Connection, error: psycopg.Error) -> bool:
    """Return whether the connection is lost, and close it if the server says that it has ended it."""
    if error.sqlstate in _CONNECTION_ENDED_STATES:
        db.close()
    return db.closed


def is_retryable(error: psycopg.Error) -> bool:
    """Return whether the same statement may succeed later: it took too long, or met another transaction."""
    return error.sqlstate in _RETRYABLE_STATES


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise psycopg's errors as DatabaseError."""
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ""
        raise DatabaseError(
            describe_error(error),
            errno=_ERRNO_BY_STATE.get(state),
            is_transient=state.startswith(_LACKS_RESOURCES_CLASS),
        ) from error


def describe_error(error: psycopg.Error) -> str:
    """Return what the server or psycopg says, in one line."""
    return " ".join((error.diag.message_primary or str(error)).split())
