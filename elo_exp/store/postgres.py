"""PostgreSQL as the engine of the store: for processes of many machines.

A transaction that writes holds one lock of the database from its beginning to its end. So writers take turns, as in
SQLite, and no transaction is repeated because of another. The transaction also stores its own number. If the
connection is lost during a commit, the next connection waits until the lock is free. It then looks for the number,
which is there only if the commit succeeded. So nothing is written twice.

A server that takes over from another may lack the last commits of that one. So each connection that follows a lost one
compares the number with the last that was acknowledged. If the server has gone back, the statements of the transactions
that it lacks are run again: the answers, and the batches that were submitted. They are kept until the run ends.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import psycopg

from elo_exp.errors import ServerError, UserError
from elo_exp.store.database import MAX_LOCK_WAIT_SECONDS, AnswerRow, DatabaseError
from elo_exp.store.postgres_connection import (
    Connection,
    describe_error,
    roll_back,
    run_statements,
    translate_errors,
)
from elo_exp.store.postgres_schema import is_store, prepare_schema
from elo_exp.store.postgres_statements import (
    Cursor,
    copy_incoming,
    execute,
    execute_for_rows,
    fetch_in_portions,
    fill_key_table,
)
from elo_exp.store.server_link import ServerLink
from elo_exp.store.session_commits import LoggedStatement, SessionCommits
from elo_exp.store.sqlite import Sqlite

_KEYS_PER_QUERY = 5000
# A value, parsed. Its functions refuse escapes of what is no character; those are looked at by nobody who asks here.
_VALUE_AS_JSON = r"regexp_replace(value, '\\u(0000|[dD][89abAB][0-9a-fA-F]{2})', '\\u0020', 'g')::json"

T = TypeVar("T")


class Postgres:
    """A connection to the database at a URL. Raises UserError for one that cannot be reached, or is not ours.

    wait_minutes  how long to wait for a connection that was lost
    busy_seconds  how long to wait for the transaction of another process
    keeps_log     whether transactions are kept, to be written again if a server loses them
    """

    advice = "Every answer so far is in it. Once it can be used again, run the same command again."
    has_locks = True

    def __init__(
        self, url: str, *, wait_minutes: float, busy_seconds: float, keeps_log: bool
    ) -> None:
        self._url = url
        self._is_in_transaction = False
        self._commits = SessionCommits(
            url, busy_seconds=busy_seconds, keeps_log=keeps_log
        )
        self._link = ServerLink(url, self._commits, wait_minutes=wait_minutes)

    @classmethod
    def open(cls, url: str, *, wait_minutes: float) -> Self:
        """Open a store; make its tables where the schema of the URL is empty."""
        store = cls._reach(url, wait_minutes=wait_minutes)
        with store._close_on_errors():
            prepare_schema(store._link.db, url, MAX_LOCK_WAIT_SECONDS)
        return store

    @classmethod
    def open_for_reading(cls, url: str, *, wait_minutes: float) -> "Self | Sqlite":
        """Open a store that is not written: where the schema of the URL is empty, the store reads as empty.

        A schema of an older version is upgraded, because its tables cannot be read otherwise.
        """
        store = cls._reach(url, wait_minutes=wait_minutes)
        with store._close_on_errors():
            has_tables = is_store(store._link.db, url)
            if has_tables:
                prepare_schema(store._link.db, url, MAX_LOCK_WAIT_SECONDS)
        if not has_tables:
            store.close()
            return Sqlite.open_in_memory(Path(url))
        return store

    @classmethod
    def _reach(cls, url: str, *, wait_minutes: float) -> Self:
        """Connect to the database at a URL."""
        try:
            return cls(
                url,
                wait_minutes=wait_minutes,
                busy_seconds=MAX_LOCK_WAIT_SECONDS,
                keeps_log=True,
            )
        except psycopg.Error as error:
            raise ServerError(
                f"The store {url} cannot be reached ({describe_error(error)}).",
                "  Check that the server runs, and the host, port, user and database of the URL.",
                "  A password is read from PGPASSWORD or ~/.pgpass.",
            ) from None

    @contextmanager
    def _close_on_errors(self) -> Iterator[None]:
        try:
            with translate_errors():
                yield
        except (UserError, DatabaseError):
            self.close()
            raise

    def open_second(self, *, busy_seconds: float) -> "Postgres":
        try:
            return Postgres(
                self._url,
                wait_minutes=0.0,
                busy_seconds=busy_seconds,
                keeps_log=False,
            )
        except psycopg.Error as error:
            raise DatabaseError(describe_error(error)) from None

    def close(self) -> None:
        self._link.close()

    # Transactions

    def write(
        self,
        body: Callable[[Self], T],
        *,
        incoming: Callable[[], Iterable[AnswerRow]] | None = None,
    ) -> T:
        if self._is_in_transaction:
            raise DatabaseError("cannot start a transaction within a transaction")
        wait = self._link.make_wait()
        results: list[T] = []  # the result of a transaction of which nobody knows
        with translate_errors():
            while True:
                try:
                    if not (results and self._commits.is_last_committed(self._link.db)):
                        results = []
                        if incoming is not None:
                            copy_incoming(self._link.db, incoming())
                        with self._transaction():
                            results = [body(self)]
                            if incoming is not None:
                                run_statements(self._link.db, "DROP TABLE incoming")
                    self._commits.acknowledge()
                    return results[0]
                except psycopg.Error as error:
                    self._link.wait_after(error, wait)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._commits.begin(self._link.db)
            self._is_in_transaction = True
            yield
            run_statements(self._link.db, "COMMIT")
        except BaseException:
            roll_back(self._link.db)
            raise
        finally:
            self._is_in_transaction = False

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        return self._run_logged(execute, statement, [*values])

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> Cursor:
        return self._run_logged(execute_for_rows, statement, [*rows])

    def fill_key_table(self, table: str, keys: Iterable[str]) -> None:
        self._run_logged(fill_key_table, table, [*keys])

    def _run_logged(
        self,
        function: Callable[[Connection, str, Any], T],
        text: str,
        values: list[Any],
    ) -> T:
        """Run a statement. If it changes something in a transaction, it is kept, to be run again if the server loses it."""
        if self._is_in_transaction and not text.startswith("SELECT"):
            self._commits.log_statement(LoggedStatement(function, text, values))
        return function(self._link.db, text, values)

    def checkpoint(self) -> None:
        pass

    # Reading

    def read(self, body: Callable[[Self], T]) -> T:
        with translate_errors():
            return (
                body(self)
                if self._is_in_transaction
                else self._link.retry(lambda: body(self))
            )

    def iterate_rows(
        self, query: str, values: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, ...]]:
        with translate_errors():
            if self._is_in_transaction:
                yield from fetch_in_portions(self._link.db, query, values)
                return
            begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
            self._link.retry(lambda: run_statements(self._link.db, begin))
            self._is_in_transaction = True
            try:
                yield from fetch_in_portions(self._link.db, query, values)
            finally:
                self._is_in_transaction = False
                roll_back(self._link.db)

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

    # Locks of processes

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

    # In SQL

    def text_sql(self, *path: str) -> str:
        return f"""({_VALUE_AS_JSON} #>> '{{{",".join(path)}}}') COLLATE "C\""""

    def number_sql(self, *path: str) -> str:
        return f"({_VALUE_AS_JSON} #>> '{{{','.join(path)}}}')::float8"

    def members_sql(self, column: str) -> str:
        return f"json_array_elements_text({column}::json)"


def _fetch_rows(db: Postgres, query: str, values: Sequence[Any]) -> list[Any]:
    return db.execute(query, values).fetchall()
