"""SQLite as the engine of the store: one file, for the processes of one machine."""

import errno
import logging
import os
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from elo_exp.errors import FileError, UserError
from elo_exp.store.database import (
    APPLICATION_ID,
    MAX_LOCK_WAIT_SECONDS,
    SCHEMA_VERSION,
    TABLES,
    AnswerRow,
    DatabaseError,
    insert_identity_sql,
)

# For another program's transaction
_MAX_SILENT_WAIT_SECONDS = 2.0
_PROBE_BYTES = 65_536
_MAX_GROWTH_PER_TRANSACTION_BYTES = 2**20
# The oldest builds of SQLite that are in use allow 999 variables.
_KEYS_PER_QUERY = 500

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Sqlite:
    """A connection to the file at `path`. Raises UserError for a file that is damaged, newer than this program, or not a
    store."""

    advice = (
        "Restore it from a copy; another folder (cache_dir=DIR) would have none of its "
        "answers."
    )
    has_locks = False

    def __init__(
        self,
        path: Path,
        *,
        busy_seconds: float = MAX_LOCK_WAIT_SECONDS,
        uri: str | None = None,
    ) -> None:
        """Connect to the file at `path`, or to what `uri` names in its place."""
        self._path, self._busy_seconds = path, busy_seconds
        with _translate_errors(self._path):
            self._db = sqlite3.connect(
                uri or path, timeout=busy_seconds, isolation_level=None, uri=bool(uri)
            )

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a store, made where there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with _translate_errors(path):
            _create_file(path)
        _refuse_empty(path)
        store = cls(path)
        try:
            if store._read_version() < SCHEMA_VERSION:
                store.write(lambda db: _upgrade(db._db))
            # Readers and a writer side by side
            store._fetch_rows("PRAGMA journal_mode=WAL")
            store._fetch_rows("PRAGMA synchronous=FULL")
        except (UserError, DatabaseError):
            store.close()
            raise
        return store

    @classmethod
    def open_for_reading(cls, path: Path) -> Self:
        """Open a store that is not written: nothing is made or upgraded, and one that is absent reads as empty."""
        if not path.exists():
            _refuse_lone_journal(path)
            return cls.open_in_memory(path)
        _refuse_empty(path)
        location = path.resolve().as_uri()
        store = cls(path, uri=f"{location}?mode=rw")
        try:
            try:
                version = store._read_version()
            except DatabaseError as error:
                if error.errno not in (errno.EROFS, errno.EACCES):
                    raise
                # No other program can write there, either
                store.close()
                store = cls(path, uri=f"{location}?immutable=1")
                version = store._read_version()
            if version < SCHEMA_VERSION:
                copy = cls.open_in_memory(path, tables=store)
                store.close()
                return copy
        except (UserError, DatabaseError):
            store.close()
            raise
        return store

    @classmethod
    def open_in_memory(cls, path: Path, tables: Self | None = None) -> Self:
        """Open a store that lies in memory alone: an empty one, or an upgraded copy of another."""
        store = cls(path, uri="file::memory:")
        with _translate_errors(path):
            if tables is None:
                _make_tables(store._db)
            else:
                tables._db.backup(store._db)
                _upgrade(store._db)
        return store

    def _read_version(self) -> int:
        """Return the version of the schema. Raises DatabaseError for a file that is not ours, FileError for a newer one."""
        with _translate_errors(self._path):
            self._execute_when_free("PRAGMA user_version")
        pragmas = ("application_id", "user_version")
        owner, version = (self._fetch_rows(f"PRAGMA {name}")[0][0] for name in pragmas)
        if owner != APPLICATION_ID:
            raise DatabaseError("it is the database of another program")
        if version > SCHEMA_VERSION:
            raise FileError.bad_file(
                self._path,
                f"was written by a newer elo_exp (store version {version}, this program knows {SCHEMA_VERSION})",
                "",
                "  Upgrade elo_exp, or choose another folder with cache_dir=DIR.",
            )
        return int(version)

    def _fetch_rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with _translate_errors(self._path):
            return self._db.execute(query, values).fetchall()

    def write(
        self,
        body: Callable[[Self], T],
        *,
        incoming: Callable[[], Iterable[AnswerRow]] | None = None,
    ) -> T:
        with _translate_errors(self._path):
            if incoming is None:
                return self._run_transaction(body)
            self._copy_incoming(incoming())
            try:
                return self._run_transaction(body)
            finally:
                self._db.execute("DROP TABLE incoming")

    def _run_transaction(self, body: Callable[[Self], T]) -> T:
        with self._transaction("BEGIN IMMEDIATE"):
            return body(self)

    def _copy_incoming(self, rows: Iterable[AnswerRow]) -> None:
        with self._transaction("BEGIN"):
            self._db.execute("CREATE TEMP TABLE incoming (key, kind, value, at)")
            self._db.executemany("INSERT INTO incoming VALUES (?, ?, ?, ?)", rows)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        try:
            self._execute_when_free(begin)
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # some failures end it by themselves
                self._db.execute("ROLLBACK")
            raise

    def _execute_when_free(self, statement: str) -> None:
        """Run a statement that another program may hold up, and say so if that takes long."""
        give_up = time.monotonic() + self._busy_seconds
        is_warned = self._busy_seconds <= _MAX_SILENT_WAIT_SECONDS
        try:
            self._set_busy_seconds(min(_MAX_SILENT_WAIT_SECONDS, self._busy_seconds))
            while True:
                try:
                    self._db.execute(statement).fetchall()
                    return
                except sqlite3.OperationalError as error:
                    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                    left = give_up - time.monotonic()
                    if code != sqlite3.SQLITE_BUSY or left <= 0:
                        raise
                if not is_warned:
                    is_warned = True
                    logger.warning(
                        "warning: %s is held by another program. Waiting up to %.0f s for it",
                        self._path,
                        self._busy_seconds,
                    )
        finally:
            self._set_busy_seconds(self._busy_seconds)

    def _set_busy_seconds(self, seconds: float) -> None:
        self._db.execute(f"PRAGMA busy_timeout = {1000 * seconds:.0f}")

    def checkpoint(self) -> None:
        """Until then a commit is in the journal alone, which a copy of the file lacks."""
        self._fetch_rows("PRAGMA wal_checkpoint(PASSIVE)")

    def read(self, body: Callable[[Self], T]) -> T:
        with _translate_errors(self._path):
            return body(self)

    def iterate_rows(
        self, query: str, values: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, ...]]:
        with _translate_errors(self._path):
            yield from self._db.execute(query, values)

    def read_answers(
        self, keys: Sequence[str], *, with_messages: bool
    ) -> Iterator[tuple[str, str]]:
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            chunk = keys[start : start + _KEYS_PER_QUERY]
            marks = ",".join("?" * len(chunk))
            column = "value" if with_messages else "json_remove(value, '$.message')"
            query = f"SELECT key, {{}} FROM answers WHERE key IN ({marks})"
            try:
                rows = self._fetch_rows(query.format(column), chunk)
            except DatabaseError:  # an answer that is not JSON, which its reader names
                rows = self._fetch_rows(query.format("value"), chunk)
            yield from rows

    def n_bytes(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def open_second(self, *, busy_seconds: float) -> "Sqlite":
        return Sqlite(self._path, busy_seconds=busy_seconds)

    def hold_lock(self, name: str) -> None:
        raise NotImplementedError("a file does not know who has it open")

    def list_held_locks(self) -> frozenset[str]:
        raise NotImplementedError("a file does not know who has it open")

    def close(self) -> None:
        self._db.close()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._db.execute(statement, values)

    def executemany(
        self, statement: str, rows: Iterable[Sequence[Any]]
    ) -> sqlite3.Cursor:
        return self._db.executemany(statement, rows)

    def fill_key_table(self, table: str, keys: Iterable[str]) -> None:
        self.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY)")
        self.execute(f"DELETE FROM {table}")
        insert = f"INSERT OR IGNORE INTO {table} VALUES (?)"
        self.executemany(insert, ((key,) for key in keys))

    def text_sql(self, *path: str) -> str:
        return f"json_extract(value, '$.{'.'.join(path)}')"

    number_sql = text_sql

    def members_sql(self, column: str) -> str:
        return f"json_each({column})"


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        errno, is_transient = _find_cause(error, path)
        raise DatabaseError(
            str(error), errno=errno, is_transient=is_transient
        ) from error


def _find_cause(error: sqlite3.Error, path: Path) -> tuple[int | None, bool]:
    """Return the number that the system has for an error, and whether the error may pass."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what details it
    if code == sqlite3.SQLITE_FULL or "disk is full" in str(error):
        return errno.ENOSPC, True
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return errno.EBUSY, True
    if code in (sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return errno.EACCES, False
    if code in (
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_NOMEM,
    ):
        number = _probe_errno(path)
        if number is None and code == sqlite3.SQLITE_IOERR:
            number = errno.EIO
        return number, code != sqlite3.SQLITE_READONLY
    return None, False


def _probe_errno(path: Path) -> int | None:
    """Return what the system says if somebody writes beside a file, and opens it; None: nothing."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(_PROBE_BYTES))
        if path.exists():
            path.open("r+b").close()
    except OSError as error:
        return error.errno
    limit = None
    with suppress(ImportError, OSError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        files = [path, path.with_name(f"{path.name}-wal")]
        largest = max((f.stat().st_size for f in files if f.exists()), default=0)
        if 0 <= limit < largest + _MAX_GROWTH_PER_TRANSACTION_BYTES:
            return errno.EFBIG
    return None


def _refuse_empty(path: Path) -> None:
    """Raise FileError for an empty file, which `_create_file` never leaves."""
    if path.stat().st_size == 0:
        raise FileError.bad_file(
            path,
            "is empty (0 bytes), and a store never is",
            "Restore it from a copy, or choose another folder with cache_dir=DIR.",
            "  If all that it held may be paid for again, delete it.",
        )


def _refuse_lone_journal(path: Path) -> None:
    """Raise FileError for the journal of a store that is gone: it would be read into a new one."""
    journal = path.with_name(f"{path.name}-wal")
    if journal.exists() and not path.exists():
        raise FileError.bad_file(
            path,
            f"is gone, and its journal {journal.name} is still there",
            "Restore the store from a copy.",
            "  If all that it held may be paid for again, delete the journal.",
        )


def _create_file(path: Path) -> None:
    """Make the store whole or not at all, so that an empty file is never a store that is being
    made."""
    if path.exists():
        return
    _refuse_lone_journal(path)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # With a journal that is rolled back, the file is whole by itself, also on a disk that is nearly full
        with closing(sqlite3.connect(draft, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=DELETE")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("BEGIN IMMEDIATE")
            _make_tables(db)
            db.execute("COMMIT")
            (integrity,) = db.execute("PRAGMA integrity_check").fetchone()
        if integrity != "ok":
            raise DatabaseError(f"a new one is not whole: {integrity}")
        with suppress(FileExistsError):  # another process was first
            os.link(draft, path)
        _sync_folder(path.parent)
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder outlive a crash of the machine, where the system can do so."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _upgrade(db: sqlite3.Connection) -> None:
    """Add the tables that an older version does not have. Up to version 5 no two servers could give one id."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if (
        not 1 < version < 6
    ):  # another process may have been first; the first had no batches
        _make_tables(db)
        return
    db.execute("ALTER TABLE batches RENAME TO batches_before")
    _make_tables(db)
    db.execute("INSERT INTO batches SELECT * FROM batches_before ORDER BY rowid")
    db.execute("DROP TABLE batches_before")


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in filter(None, map(str.strip, TABLES.split(";"))):
        db.execute(statement)
    db.execute(insert_identity_sql())
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
