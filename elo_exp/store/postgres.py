"""PostgreSQL as the engine of the store: for processes of many machines.

A transaction that writes holds one lock of the database from its beginning to its end, so that writers come one after
the other, as in SQLite, and none is ever repeated because of another. With it it writes down its own number. A
connection that was lost while the transaction was being committed is told by that, once there is another, what has
become of it: the lock is free when it has ended, and the number is there when it was committed. So nothing is
written twice.

A server that takes over from another may lack the last commits of that one. So each connection that follows a lost one
compares the number with the last that was acknowledged. If the server has gone back, the statements of the transactions
that it lacks are run again: the answers, and the batches that were submitted. They are kept until the run ends.
"""

import errno
import functools
import logging
import os
import pickle
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from elo_exp.errors import ServerError, UserError
from elo_exp.store.database import (
    APPLICATION_ID,
    MAX_LOCK_WAIT_SECONDS,
    SCHEMA_VERSION,
    TABLES,
    AnswerRow,
    DatabaseError,
    insert_identity_sql,
)

logger = logging.getLogger(__name__)

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
_RECONNECT_PAUSES_SECONDS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
_CONNECTION_ENDED_STATES = ("57P01", "57P02", "57P05", "25P03", "25P04")
# A transaction took too long, or met another one.
_RETRYABLE_STATES = ("57014", "55P03", "40001", "40P01", "57P03")
_ERRNO_BY_STATE = {"53100": errno.ENOSPC, "42501": errno.EACCES, "25006": errno.EROFS}
# Of the states that say that disk, memory or connections are short
_LACKS_RESOURCES_CLASS = "53"
# Beyond these, statements are kept in a file.
_MAX_LOG_BYTES_IN_MEMORY = 2**26
_KEYS_PER_QUERY = 5000
_ROWS_PER_FETCH = 100
_MARKER_TABLE = "elo_exp_store"
_POSTGRES_TYPES = {
    "TEXT": 'TEXT COLLATE "C"',
    "REAL": "DOUBLE PRECISION",
    "WITHOUT ROWID": "",
}
_STORE_TABLES = re.sub(
    "|".join(_POSTGRES_TYPES), lambda match: _POSTGRES_TYPES[match[0]], TABLES
)
_TABLES = (
    _STORE_TABLES
    + f"""
ALTER TABLE batches ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY;
ALTER TABLE judges ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY;
CREATE TABLE commits (session TEXT PRIMARY KEY, number BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL);
CREATE TABLE {_MARKER_TABLE} (application_id BIGINT NOT NULL, version INTEGER NOT NULL);
INSERT INTO {_MARKER_TABLE} VALUES ({APPLICATION_ID}, {SCHEMA_VERSION});
"""
)
# A value, parsed. Its functions refuse escapes of what is no character; those are looked at by nobody who asks here.
_VALUE_AS_JSON = r"regexp_replace(value, '\\u(0000|[dD][89abAB][0-9a-fA-F]{2})', '\\u0020', 'g')::json"

T = TypeVar("T")


class Postgres:
    """A connection to the database at a URL. Raises UserError for one that cannot be reached, or is not ours.

    wait_minutes  how long to wait for a connection that was lost
    """

    advice = "Every answer so far is in it: once it can be used again, the same command goes on."
    has_locks = True

    def __init__(
        self,
        url: str,
        *,
        wait_minutes: float,
        busy_seconds: float = MAX_LOCK_WAIT_SECONDS,
        keeps_log: bool = True,
    ) -> None:
        self._url, self._wait_minutes, self._busy_seconds = (
            url,
            wait_minutes,
            busy_seconds,
        )
        self._session = secrets.token_hex(8)
        self._n_writes = 0
        self._n_acknowledged = 0  # the last transaction that the server said it has
        self._has_given_up = False
        self._log = _StatementLog() if keeps_log else None
        self._statements: list[_Statement] = []  # of the transaction under way
        self._is_in_transaction = False  # a transaction
        self._db = self._connect()

    @classmethod
    def open(cls, url: str, *, wait_minutes: float) -> Self:
        """Open a store; make its tables where the schema of the URL is empty."""
        try:
            store = cls(url, wait_minutes=wait_minutes)
        except psycopg.Error as error:
            raise ServerError(
                f"store: cannot reach {url} ({_error_line(error)}). Expected "
                "postgresql://user@host/database of a server that runs and lets you in; a password "
                "is read from PGPASSWORD or ~/.pgpass."
            ) from None
        try:
            with _translate_errors():
                store._prepare()
        except (UserError, DatabaseError):
            store.close()
            raise
        return store

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        settings = {**_CONNECTION_DEFAULTS, **conninfo_to_dict(self._url)}
        db = psycopg.connect(**settings, client_encoding="utf8", autocommit=True)
        db.execute(_SESSION_SETTINGS.encode())
        return db

    def _prepare(self) -> None:
        """Make the tables where there are none, all or none; leave what is not ours as it is."""
        encoding = self._db.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise ServerError(
                f"store: the database of {self._url} has the encoding {encoding}. Expected UTF8, "
                "which holds every answer: createdb --encoding=UTF8 --template=template0 NAME"
            )
        if not self._is_ours():
            self._begin()
            if not self._is_ours():  # another process may have been first
                self._run(f"{_TABLES}; {insert_identity_sql()}")
            self._run("COMMIT")
        if self._read_version() < SCHEMA_VERSION:
            self._begin()
            # Another process may have been first
            if self._read_version() < SCHEMA_VERSION:
                # those that an older version does not have
                self._run(f"{_STORE_TABLES}; {insert_identity_sql()}")
                self._run(f"UPDATE {_MARKER_TABLE} SET version = {SCHEMA_VERSION}")
            self._run("COMMIT")

    def _read_version(self) -> int:
        query = f"SELECT version FROM {_MARKER_TABLE}"
        (version,) = self._db.execute(query.encode()).fetchone() or (0,)
        return int(version)

    def _is_ours(self) -> bool:
        """Whether the tables are there; False where there are none. Raises UserError for those of others."""
        (schema,) = self._db.execute("SELECT current_schema()").fetchone() or (None,)
        if schema is None:
            raise ServerError(
                f"store: no schema of {self._url} is there. Create the one that it names."
            )
        query = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = %s"
        tables = [name for (name,) in self._db.execute(query, (schema,))]
        if _MARKER_TABLE not in tables:
            if not tables:
                return False
            raise ServerError(
                f"store: the schema {schema} of {self._url} holds tables of another program "
                f"({', '.join(sorted(tables)[:3])}). Expected one that is empty, or a store: "
                "createdb NAME makes a database, and ?options=-csearch_path%3DNAME names a schema."
            )
        query = f"SELECT application_id, version FROM {_MARKER_TABLE}"
        owner, version = self._db.execute(query.encode()).fetchone() or (0, 0)
        if owner != APPLICATION_ID:
            raise DatabaseError("it is the database of another program")
        if version > SCHEMA_VERSION:
            raise ServerError(
                f"store: {self._url} was written by a newer elo_exp (store version {version}, this "
                f"program knows {SCHEMA_VERSION}). Upgrade elo_exp, or choose another database."
            )
        return True

    # Transactions

    def write(
        self,
        body: Callable[[Self], T],
        *,
        incoming: Callable[[], Iterable[AnswerRow]] | None = None,
    ) -> T:
        if self._is_in_transaction:
            raise DatabaseError("cannot start a transaction within a transaction")
        wait = _ReconnectWait(self._url, self._wait_minutes)
        results: list[T] = []  # the result of a transaction of which nobody knows
        with _translate_errors():
            while True:
                try:
                    if results and self._is_committed():
                        self._acknowledge()
                        return results[0]
                    results, self._statements = [], []
                    if incoming is not None:
                        self._copy_incoming(incoming())
                    self._n_writes += 1
                    with self._transaction():
                        results = [body(self)]
                        if incoming is not None:
                            self._run("DROP TABLE incoming")
                    self._acknowledge()
                    return results[0]
                except psycopg.Error as error:
                    self._wait_after(error, wait)

    def _acknowledge(self) -> None:
        self._n_acknowledged = self._n_writes
        if self._log is not None:
            self._log.add(self._n_writes, self._statements)
        self._statements = []

    def _rewrite_lost_transactions(self) -> None:
        """Run the statements of acknowledged transactions that the server does not have."""
        if not self._n_acknowledged:
            return
        query = "SELECT number FROM commits WHERE session = %s"
        n_lost = n_failed = 0
        try:
            self._begin()  # when it has the lock, a transaction in doubt has ended
            (number,) = self._db.execute(query, (self._session,)).fetchone() or (0,)
            if number < self._n_acknowledged:
                log = self._log.after(number) if self._log is not None else ()
                for statements in log:
                    n_lost += 1
                    n_failed += not self._rerun_transaction(statements)
                self._run(
                    f"INSERT INTO commits VALUES ('{self._session}', {self._n_acknowledged}, now()) "
                    "ON CONFLICT (session) DO UPDATE SET number = excluded.number, at = excluded.at"
                )
            self._run("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        if number < self._n_acknowledged and self._log is not None:
            logger.warning(
                "warning: %s: the server lacks the last %d transactions of this run, which it or the server before it "
                "had acknowledged. %s",
                self._url,
                self._n_acknowledged - number,
                "They are written again"
                if not n_failed and not self._log.is_broken
                else f"{n_lost - n_failed} of them are written again; the others may be paid for again",
            )

    def _rerun_transaction(self, statements: Sequence["_Statement"]) -> bool:
        """Run the statements of one transaction; False, and nothing done, if the server refuses them now."""
        self._run("SAVEPOINT lost")
        try:
            for name, statement, values in statements:
                getattr(self, name)(statement, values)
        except psycopg.Error as error:
            if self._is_lost(error):
                raise
            self._run("ROLLBACK TO SAVEPOINT lost")
            logger.warning("warning: %s: %s", self._url, _error_line(error))
            return False
        self._run("RELEASE SAVEPOINT lost")
        return True

    def _begin(self, first_statement: str = "") -> None:
        """Begin a transaction with the lock of the writers, and a first statement, in one message to the server."""
        self._run(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
            f"SET LOCAL lock_timeout = '{1000 * self._busy_seconds:.0f}ms'; "
            f"SET LOCAL idle_in_transaction_session_timeout = '{_MAX_IDLE_SECONDS}s'; "
            f"SELECT pg_advisory_xact_lock({APPLICATION_ID}); {first_statement}"
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._begin(
                f"INSERT INTO commits VALUES ('{self._session}', {self._n_writes}, now()) "
                "ON CONFLICT (session) DO UPDATE SET number = excluded.number, at = excluded.at"
            )
            self._is_in_transaction = True
            yield
            self._run("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._is_in_transaction = False

    def _roll_back(self) -> None:
        with suppress(psycopg.Error):  # a connection that is lost has done so
            self._run("ROLLBACK")

    def _is_committed(self) -> bool:
        """Whether the last transaction was, which has ended once the lock is free."""
        query = "SELECT number FROM commits WHERE session = %s"
        try:
            self._begin()
            row = self._db.execute(query, (self._session,)).fetchone()
        finally:
            self._roll_back()
        return row == (self._n_writes,)

    def _copy_incoming(self, rows: Iterable[AnswerRow]) -> None:
        self._run("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        try:
            columns = "key TEXT, kind TEXT, value TEXT, at TEXT"
            self._run(
                f"DROP TABLE IF EXISTS incoming; CREATE TEMP TABLE incoming ({columns})"
            )
            with (
                self._db.cursor() as cursor,
                cursor.copy("COPY incoming FROM STDIN") as copy,
            ):
                for row in rows:
                    copy.write_row(row)
            self._run("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    # A lost connection

    def _is_lost(self, error: psycopg.Error) -> bool:
        if error.sqlstate in _CONNECTION_ENDED_STATES:
            self._db.close()
        return self._db.closed

    def _wait_after(self, error: psycopg.Error, wait: "_ReconnectWait") -> None:
        """Wait until what has failed can be tried again, with a connection. Raises an error that will not pass, and
        DatabaseError when it has been waited for long enough."""
        if not self._is_lost(error):
            if error.sqlstate not in _RETRYABLE_STATES or not self._wait_minutes:
                raise error
            wait.pause(error, is_lost=False)
            return
        self._reconnect(error, wait)

    def _reconnect(self, error: psycopg.Error, wait: "_ReconnectWait") -> None:
        """Connect anew, and see that the server has all that was acknowledged."""
        self._has_given_up = True  # unless it comes back
        while True:
            try:
                while self._db.closed:
                    wait.pause(error)
                    self._db = self._connect()
                self._rewrite_lost_transactions()
                break
            except psycopg.Error as new_error:
                is_timeout = new_error.sqlstate in _RETRYABLE_STATES
                if not (self._is_lost(new_error) or is_timeout):
                    raise
                if not self._db.closed:
                    wait.pause(new_error, is_lost=False)
                error = new_error
        self._has_given_up = False
        wait.end()

    def _retry(self, action: Callable[[], T]) -> T:
        """Do something that changes nothing; do it again if the connection is lost."""
        wait = _ReconnectWait(self._url, self._wait_minutes)
        while True:
            try:
                return action()
            except psycopg.Error as error:
                self._wait_after(error, wait)

    def checkpoint(self) -> None:
        pass

    # Reading

    def read(self, body: Callable[[Self], T]) -> T:
        with _translate_errors():
            return (
                body(self)
                if self._is_in_transaction
                else self._retry(lambda: body(self))
            )

    def iterate_rows(
        self, query: str, values: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, ...]]:
        with _translate_errors():
            if self._is_in_transaction:
                yield from self._fetch_in_portions(query, values)
                return
            begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
            self._retry(lambda: self._run(begin))
            self._is_in_transaction = True
            try:
                yield from self._fetch_in_portions(query, values)
            finally:
                self._is_in_transaction = False
                self._roll_back()

    def _fetch_in_portions(
        self, query: str, values: Sequence[Any]
    ) -> Iterator[tuple[Any, ...]]:
        with self._db.cursor(name="rows") as cursor:
            cursor.itersize = _ROWS_PER_FETCH
            yield from cursor.execute(_use_psycopg_marks(query), values)

    def read_answers(
        self, keys: Sequence[str], *, with_messages: bool
    ) -> Iterator[tuple[str, str]]:
        """The messages come, too: taking them out costs the server more than sending them."""
        query = "SELECT key, value FROM answers WHERE key = ANY(?)"
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            chunk = list(keys[start : start + _KEYS_PER_QUERY])
            yield from self.read(
                functools.partial(_fetch_rows, query=query, values=(chunk,))
            )

    def n_bytes(self) -> int:
        size = (
            "pg_total_relation_size(format('%I.%I', schemaname, tablename)::regclass)"
        )
        ours = "FROM pg_catalog.pg_tables WHERE schemaname = current_schema()"
        (n,) = self.execute(f"SELECT SUM({size}) {ours}").fetchone() or (0,)
        return int(n)

    def open_second(self, *, busy_seconds: float) -> "Postgres":
        try:
            return Postgres(
                self._url,
                wait_minutes=0.0,
                busy_seconds=busy_seconds,
                keeps_log=False,
            )
        except psycopg.Error as error:
            raise DatabaseError(_error_line(error)) from None

    def hold_lock(self, name: str) -> None:
        high, low = (
            int.from_bytes(bytes.fromhex(half), signed=True)
            for half in (name[:8], name[8:])
        )
        query = "SELECT pg_try_advisory_lock(?, ?)"
        self.read(lambda db: db.execute(query, (high, low)))

    def list_held_locks(self) -> set[str]:
        query = (
            "SELECT classid, objid FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND database = "
            "(SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())"
        )
        return {f"{high:08x}{low:08x}" for high, low in self.execute(query).fetchall()}

    def close(self) -> None:
        """Close the connection. What those that were killed have left in `commits` goes when it is old.

        A server that has gone away is waited for, since the one in its place may lack what was acknowledged.
        """
        if self._n_writes and not self._has_given_up:
            try:
                self._forget_session()
            except psycopg.Error as error:
                self._reconnect_at_close(error)
        elif self._has_given_up:
            self._warn_about_last_answers("it did not come back")
        self._db.close()
        if self._log is not None:
            self._log.close()

    def _reconnect_at_close(self, error: psycopg.Error) -> None:
        """Have a server that has gone away take what it lacks, before the run ends."""
        if not self._is_lost(
            error
        ):  # somebody holds the lock: the row goes when it is old
            self._roll_back()
            return
        try:
            self._reconnect(error, _ReconnectWait(self._url, self._wait_minutes))
        except (psycopg.Error, DatabaseError) as new_error:
            self._warn_about_last_answers(str(new_error))

    def _warn_about_last_answers(self, why: str) -> None:
        if self._log is not None:
            logger.warning(
                "warning: %s: nobody knows whether the server still has the last answers of this run (%s)",
                self._url,
                " ".join(why.split()),
            )

    def _forget_session(self) -> None:
        self._run(
            "BEGIN; SET LOCAL lock_timeout = '1s'; "
            f"DELETE FROM commits WHERE session = '{self._session}' "
            "OR at < now() - interval '30 days'; COMMIT"
        )

    # Statements

    def _run(self, statements: str) -> None:
        """Run statements of ours, without values, in one message to the server."""
        self._db.execute(statements.encode(), prepare=False)

    def execute(
        self, statement: str, values: Sequence[Any] = ()
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        self._log_statement("execute", statement, values)
        return self._db.execute(_use_psycopg_marks(statement), values)

    def _log_statement(
        self, method: str, statement: str, values: Sequence[Any]
    ) -> None:
        """Keep a statement of a transaction that changes something, to be run again if the server loses it."""
        if self._is_in_transaction and not statement.startswith("SELECT"):
            self._statements.append((method, statement, [*values]))

    def executemany(
        self, statement: str, rows: Iterable[Sequence[Any]]
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """After a pipeline a server does not watch for silence until it is told something else."""
        all_rows = list(rows)
        if len(all_rows) == 1:
            return self.execute(statement, all_rows[0])
        self._log_statement("executemany", statement, all_rows)
        cursor = self._db.cursor()
        cursor.executemany(_use_psycopg_marks(statement), all_rows)
        self._run("SELECT 1")
        return cursor

    def fill_key_table(self, table: str, keys: Iterable[str]) -> None:
        columns = 'key TEXT COLLATE "C" PRIMARY KEY'
        self._run(
            f"CREATE TEMP TABLE IF NOT EXISTS {table} ({columns}) ON COMMIT DELETE ROWS; "
            f"DELETE FROM {table}"
        )
        all_keys = list(keys)
        self._log_statement("fill", table, all_keys)
        insert = f"INSERT INTO {table} SELECT DISTINCT unnest(?::text[])"
        self._db.execute(_use_psycopg_marks(insert), (all_keys,))

    def text_sql(self, *path: str) -> str:
        return f"""({_VALUE_AS_JSON} #>> '{{{",".join(path)}}}') COLLATE "C\""""

    def number_sql(self, *path: str) -> str:
        return f"({_VALUE_AS_JSON} #>> '{{{','.join(path)}}}')::float8"

    def members_sql(self, column: str) -> str:
        return f"json_array_elements_text({column}::json)"


def _fetch_rows(db: Postgres, query: str, values: Sequence[Any]) -> list[Any]:
    return db.execute(query, values).fetchall()


class _ReconnectWait:
    """A wait for a connection that was lost: how long, and its log messages."""

    def __init__(self, url: str, minutes: float) -> None:
        self._url, self._minutes = url, minutes
        self._since = 0.0
        self._n = 0  # attempts to connect

    def pause(self, error: psycopg.Error, *, is_lost: bool = True) -> None:
        """Wait until the next attempt. Raises DatabaseError when there is to be none.

        is_lost  the connection, and not only the time that a statement may take
        """
        problem = "the connection is lost" if is_lost else "a statement took too long"
        now = time.monotonic()
        if self._n == 0:
            self._since = now
        elif now - self._since >= 60 * self._minutes:
            suffix = f", and {self._minutes:g} minutes later "
            suffix += "there is none" if is_lost else "it still does"
            failure = (
                "the connection was lost" if is_lost else "a statement takes too long"
            )
            raise DatabaseError(
                f"{failure}{suffix if self._minutes else ''}: {_error_line(error)}"
            )
        elif self._n == 1:
            logger.warning(
                "warning: %s: %s (%s). Waiting up to %g minutes for it",
                self._url,
                problem,
                _error_line(error),
                self._minutes,
            )
        time.sleep(
            _RECONNECT_PAUSES_SECONDS[min(self._n, len(_RECONNECT_PAUSES_SECONDS) - 1)]
        )
        self._n += 1

    def end(self) -> None:
        if self._minutes:
            logger.warning("%s: the connection was lost, and is there again", self._url)


_Statement = tuple[str, str, list[Any]]  # method, statement, values


class _StatementLog:
    """The statements of the transactions that were acknowledged, in memory, and in a temporary file if they are many.

    is_broken  some could not be kept
    """

    def __init__(self) -> None:
        self._file: tempfile.SpooledTemporaryFile[bytes] | None = None
        self.is_broken = False

    def add(self, number: int, statements: list[_Statement]) -> None:
        if not statements or self.is_broken:
            return
        try:
            if self._file is None:
                self._file = tempfile.SpooledTemporaryFile(_MAX_LOG_BYTES_IN_MEMORY)  # noqa: SIM115, closed with the connection
            self._file.seek(0, os.SEEK_END)
            pickle.dump((number, statements), self._file)
        except OSError:  # the disk is full
            self.is_broken = True

    def after(self, number: int) -> Iterator[list[_Statement]]:
        """Yield the statements of each transaction with a higher number."""
        if self._file is None:
            return
        self._file.seek(0)
        while True:
            try:
                logged_number, statements = pickle.load(self._file)
            except (EOFError, OSError, pickle.UnpicklingError):
                return
            if logged_number > number:
                yield statements

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


@functools.cache
def _use_psycopg_marks(statement: str) -> bytes:
    """Write each ? of a statement as psycopg's mark for a value."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ""
        raise DatabaseError(
            _error_line(error),
            errno=_ERRNO_BY_STATE.get(state),
            is_transient=state.startswith(_LACKS_RESOURCES_CLASS),
        ) from error


def _error_line(error: psycopg.Error) -> str:
    return " ".join((error.diag.message_primary or str(error)).split())
