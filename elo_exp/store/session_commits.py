"""The transactions of one session that wrote: which of them a server of PostgreSQL has, and how it gets those that it lost.

Each transaction writes its number into the table `commits`. The number tells, after a lost connection, whether the last
transaction was committed, and whether a server that took over has all that was acknowledged.
"""

import logging
import os
import pickle
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg

from elo_exp.store.postgres_connection import (
    Connection,
    begin_writing,
    describe_error,
    is_connection_lost,
    roll_back,
    run_statements,
)

logger = logging.getLogger(__name__)

# Beyond these, statements are kept in a file.
_MAX_LOG_BYTES_IN_MEMORY = 2**26


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A call of a function of postgres_statements.py, to be made again if the server loses it."""

    function: Callable[[Connection, str, Any], object]
    text: str
    values: Sequence[Any]

    def run(self, db: Connection) -> None:
        self.function(db, self.text, self.values)


class SessionCommits:
    """The transactions of one session, numbered from 1.

    n_begun  how many transactions the session has begun
    """

    def __init__(self, url: str, *, busy_seconds: float, keeps_log: bool) -> None:
        self._url, self._busy_seconds = url, busy_seconds
        self._session = secrets.token_hex(8)
        self.n_begun = 0
        self._n_acknowledged = 0  # the last transaction that the server said it has
        self._log = _StatementLog() if keeps_log else None
        self._statements: list[LoggedStatement] = []  # of the transaction under way

    def begin(self, db: Connection) -> None:
        """Begin the next transaction, which writes its number down."""
        self._statements = []
        self.n_begun += 1
        begin_writing(db, self._busy_seconds, self._write_number_sql(self.n_begun))

    def log_statement(self, statement: LoggedStatement) -> None:
        """Keep a statement of the transaction under way."""
        self._statements.append(statement)

    def acknowledge(self) -> None:
        """Note that the server has committed the last transaction."""
        self._n_acknowledged = self.n_begun
        if self._log is not None:
            self._log.add(self.n_begun, self._statements)
        self._statements = []

    def is_last_committed(self, db: Connection) -> bool:
        """Return whether the last transaction was committed, which has ended once the lock is free."""
        try:
            begin_writing(db, self._busy_seconds)
            number = self._read_number(db)
        finally:
            roll_back(db)
        return number == self.n_begun

    def rewrite_lost(self, db: Connection) -> None:
        """Run the statements of acknowledged transactions that the server does not have."""
        if not self._n_acknowledged:
            return
        n_lost = n_failed = 0
        try:
            # when it has the lock, a transaction in doubt has ended
            begin_writing(db, self._busy_seconds)
            number = self._read_number(db)
            if number < self._n_acknowledged:
                log = self._log.after(number) if self._log is not None else ()
                for statements in log:
                    n_lost += 1
                    n_failed += not self._rerun_transaction(db, statements)
                run_statements(db, self._write_number_sql(self._n_acknowledged))
            run_statements(db, "COMMIT")
        except BaseException:
            roll_back(db)
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

    def _rerun_transaction(
        self, db: Connection, statements: Sequence[LoggedStatement]
    ) -> bool:
        """Run the statements of one transaction; False, and nothing done, if the server refuses them now."""
        run_statements(db, "SAVEPOINT lost")
        try:
            for statement in statements:
                statement.run(db)
        except psycopg.Error as error:
            if is_connection_lost(db, error):
                raise
            run_statements(db, "ROLLBACK TO SAVEPOINT lost")
            logger.warning("warning: %s: %s", self._url, describe_error(error))
            return False
        run_statements(db, "RELEASE SAVEPOINT lost")
        return True

    def _read_number(self, db: Connection) -> int:
        """Return the number of the last transaction of this session that the server has; 0 if it has none."""
        query = "SELECT number FROM commits WHERE session = %s"
        (number,) = db.execute(query, (self._session,)).fetchone() or (0,)
        return int(number)

    def _write_number_sql(self, number: int) -> str:
        return (
            f"INSERT INTO commits VALUES ('{self._session}', {number}, now()) "
            "ON CONFLICT (session) DO UPDATE SET number = excluded.number, at = excluded.at"
        )

    def forget(self, db: Connection) -> None:
        """Delete the number of this session, and old ones, which sessions that were killed have left."""
        run_statements(
            db,
            "BEGIN; SET LOCAL lock_timeout = '1s'; "
            f"DELETE FROM commits WHERE session = '{self._session}' "
            "OR at < now() - interval '30 days'; COMMIT",
        )

    def warn_about_last_answers(self, why: str) -> None:
        """Warn that nobody knows whether the server still has the last answers."""
        if self._log is not None:
            logger.warning(
                "warning: %s: it is unknown whether the server still has the last answers of this run (%s)",
                self._url,
                " ".join(why.split()),
            )

    def close(self) -> None:
        """Delete the statements that were kept."""
        if self._log is not None:
            self._log.close()


class _StatementLog:
    """The statements of the transactions that were acknowledged, in memory, and in a temporary file if they are many.

    is_broken  some could not be kept
    """

    def __init__(self) -> None:
        self._file: tempfile.SpooledTemporaryFile[bytes] | None = None
        self.is_broken = False

    def add(self, number: int, statements: list[LoggedStatement]) -> None:
        if not statements or self.is_broken:
            return
        try:
            if self._file is None:
                self._file = tempfile.SpooledTemporaryFile(_MAX_LOG_BYTES_IN_MEMORY)  # noqa: SIM115, closed with the connection
            self._file.seek(0, os.SEEK_END)
            pickle.dump((number, statements), self._file)
        except OSError:  # the disk is full
            self.is_broken = True

    def after(self, number: int) -> Iterator[list[LoggedStatement]]:
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
