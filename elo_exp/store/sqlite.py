"""SQLite as the engine of the store: one file, for the processes of one machine."""

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from elo_exp.records import UserError
from elo_exp.store.database import (
    APPLICATION_ID,
    BUSY_SECONDS,
    SCHEMA_VERSION,
    TABLES,
    AnswerRow,
    DatabaseError,
)

_KEYS_A_QUERY = 500  # SQLite allows 999 variables in the oldest builds still in use

T = TypeVar("T")


class Sqlite:
    """A connection to the file at `path`. Raises UserError for a file that is damaged, newer than this program, or not a
    store."""

    advice = (
        "Free some space, or restore it from a copy; another folder (cache_dir=DIR) would have "
        "none of its answers."
    )
    has_locks = False

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self._path = path
        with _told():
            self._db = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)

    @classmethod
    def opened(cls, path: Path) -> Self:
        """Open a store, made where there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with _told():
            _create(path)
        if path.stat().st_size == 0:  # `_create` never leaves it so
            raise UserError(
                f"{path}: is empty, and a store never is. Restore it from a copy; or, if all "
                "that it held may be paid for again, delete it; or choose another folder with "
                "cache_dir=DIR."
            )
        made = cls(path)
        try:
            made._prepare()
        except (UserError, DatabaseError):
            made.close()
            raise
        return made

    def _prepare(self) -> None:
        """Add the tables that an older version does not have; leave what is not ours as it is."""
        pragmas = ("application_id", "user_version")
        owner, version = (self._rows(f"PRAGMA {name}")[0][0] for name in pragmas)
        if owner != APPLICATION_ID:
            raise DatabaseError("it is the database of another program")
        if version > SCHEMA_VERSION:
            raise UserError(
                f"{self._path}: written by a newer elo_exp (store version {version}, this program "
                f"knows {SCHEMA_VERSION}). Upgrade elo_exp, or choose another folder with "
                "cache_dir=DIR."
            )
        if version < SCHEMA_VERSION:
            self.write(lambda db: _upgrade(db._db))
        self._rows("PRAGMA journal_mode=WAL")  # readers and a writer side by side
        self._rows("PRAGMA synchronous=FULL")

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with _told():
            return self._db.execute(query, values).fetchall()

    def write(
        self,
        body: Callable[[Self], T],
        *,
        incoming: Callable[[], Iterable[AnswerRow]] | None = None,
    ) -> T:
        with _told():
            if incoming is None:
                return self._write(body)
            self._put_aside(incoming())
            try:
                return self._write(body)
            finally:
                self._db.execute("DROP TABLE incoming")

    def _write(self, body: Callable[[Self], T]) -> T:
        with self._transaction("BEGIN IMMEDIATE"):
            return body(self)

    def _put_aside(self, rows: Iterable[AnswerRow]) -> None:
        with self._transaction("BEGIN"):
            self._db.execute("CREATE TEMP TABLE incoming (key, kind, value, at)")
            self._db.executemany("INSERT INTO incoming VALUES (?, ?, ?, ?)", rows)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        try:
            self._db.execute(begin)
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # some failures end it by themselves
                self._db.execute("ROLLBACK")
            raise

    def read(self, body: Callable[[Self], T]) -> T:
        with _told():
            return body(self)

    def each(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        with _told():
            yield from self._db.execute(query, values)

    def values(
        self, keys: Sequence[str], *, with_messages: bool
    ) -> Iterator[tuple[str, str]]:
        for start in range(0, len(keys), _KEYS_A_QUERY):
            some = keys[start : start + _KEYS_A_QUERY]
            marks = ",".join("?" * len(some))
            column = "value" if with_messages else "json_remove(value, '$.message')"
            query = f"SELECT key, {column} FROM answers WHERE key IN ({marks})"
            yield from self._rows(query, some)

    def n_bytes(self) -> int:
        return self._path.stat().st_size

    def beside(self, *, busy_seconds: float) -> "Sqlite":
        return Sqlite(self._path, busy_seconds=busy_seconds)

    def hold(self, name: str) -> None:
        raise NotImplementedError("a file does not know who has it open")

    def held(self) -> frozenset[str]:
        raise NotImplementedError("a file does not know who has it open")

    def close(self) -> None:
        self._db.close()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._db.execute(statement, values)

    def executemany(
        self, statement: str, rows: Iterable[Sequence[Any]]
    ) -> sqlite3.Cursor:
        return self._db.executemany(statement, rows)

    def fill(self, table: str, keys: Iterable[str]) -> None:
        self.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY)")
        self.execute(f"DELETE FROM {table}")
        insert = f"INSERT OR IGNORE INTO {table} VALUES (?)"
        self.executemany(insert, ((key,) for key in keys))

    def text(self, *path: str) -> str:
        return f"json_extract(value, '$.{'.'.join(path)}')"

    number = text

    def members(self, column: str) -> str:
        return f"json_each({column})"


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise DatabaseError(str(error)) from error


def _create(path: Path) -> None:
    """Make the store whole or not at all, so that an empty file is never a store that is being
    made."""
    journal = path.with_name(f"{path.name}-wal")
    is_left = journal.exists()
    if path.exists():
        return
    if is_left:  # it was there before the store, which it would be read into
        raise UserError(
            f"{path}: is gone, and its journal {journal.name} is still there. Restore the store "
            "from a copy; or, if all that it held may be paid for again, delete the journal."
        )
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with closing(sqlite3.connect(draft, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("BEGIN IMMEDIATE")
        _make_tables(db)
        db.execute("COMMIT")
    with suppress(FileExistsError):  # another process was first
        os.link(draft, path)
    draft.unlink()


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
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
