"""What the store asks of a database, whichever engine keeps it: SQLite a file (sqlite.py), PostgreSQL for many machines
(postgres.py).

The statements themselves stand in the store, its claims and its ledger, in the SQL that both engines read; a
`Database` has what they say differently.
"""

import secrets
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from elo_exp.errors import SettingError

# "elox": the database is ours
APPLICATION_ID = 0x656C6F78
SCHEMA_VERSION = 10
# Columns of the type REAL hold 64 bits.
TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, value TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS owners (
    owner TEXT PRIMARY KEY, host TEXT NOT NULL, boot TEXT NOT NULL, pid INTEGER NOT NULL,
    started TEXT NOT NULL, heartbeat REAL NOT NULL);
CREATE TABLE IF NOT EXISTS slurm_jobs (
    owner TEXT PRIMARY KEY, job TEXT NOT NULL, restarts INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS batches (
    nonce TEXT PRIMARY KEY, owner TEXT NOT NULL, endpoint TEXT NOT NULL, judge_model TEXT NOT NULL,
    state TEXT NOT NULL, size INTEGER NOT NULL, reserve REAL NOT NULL, ttl TEXT, high_water TEXT,
    batch_id TEXT, created_at REAL NOT NULL, settled_at REAL, note TEXT,
    UNIQUE (endpoint, batch_id));
CREATE TABLE IF NOT EXISTS queries (
    nonce TEXT NOT NULL, key TEXT NOT NULL, names TEXT NOT NULL, outcome TEXT,
    PRIMARY KEY (nonce, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS queries_by_key ON queries (key);
CREATE TABLE IF NOT EXISTS losses (
    key TEXT NOT NULL, owner TEXT NOT NULL, dollars REAL NOT NULL, at TEXT NOT NULL, why TEXT);
CREATE TABLE IF NOT EXISTS judges (
    key TEXT PRIMARY KEY, judge_model TEXT NOT NULL, reads TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS designs (
    key TEXT PRIMARY KEY, queries TEXT NOT NULL, n_seen INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS looks (
    key TEXT PRIMARY KEY, verdicts TEXT NOT NULL, leader TEXT, shown_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS charges (
    name TEXT PRIMARY KEY, scopes TEXT NOT NULL, dollars REAL NOT NULL);
CREATE TABLE IF NOT EXISTS spending (scope TEXT PRIMARY KEY, dollars REAL NOT NULL);
CREATE TABLE IF NOT EXISTS commands (folder TEXT PRIMARY KEY, command TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS accounts (nonce TEXT PRIMARY KEY, account TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS identity (id TEXT NOT NULL, n_answers INTEGER NOT NULL);
"""
# For another process's transaction
MAX_LOCK_WAIT_SECONDS = 60.0

AnswerRow = tuple[str, str, str, str]  # key, kind, value, created_at
T = TypeVar("T")


def insert_identity_sql() -> str:
    """Return the statement that gives a store its identity if it has none: a random id, and how many answers were ever
    put into it."""
    return (
        f"INSERT INTO identity SELECT '{secrets.token_hex(16)}', (SELECT COUNT(*) FROM answers) "
        "WHERE NOT EXISTS (SELECT 1 FROM identity)"
    )


def check_url(url: str) -> None:
    """Raise SettingError for what is no URL of PostgreSQL, and for one that holds a secret: settings are written to files,
    and sent to trackers."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    user = parts.netloc.rpartition("@")[0]
    names = [name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    if user.partition(":")[2] or any(
        secret in name for name in names for secret in ("password", "secret")
    ):
        raise SettingError(
            "store holds a URL with a password, and settings are written to files and trackers. Leave the password out.",
            "  The password is read from PGPASSWORD, ~/.pgpass or a service file.",
        )
    if parts.scheme not in ("postgresql", "postgres") or not url.startswith(
        f"{parts.scheme}://"
    ):
        raise SettingError.bad_value(
            "store",
            url,
            "be postgresql://user@host/database, or null for a file in cache_dir",
        )


def escape_unstorable(text: str) -> str:
    """Return a text as every engine can hold it, such as what a server has said: lone surrogates and zero bytes are
    written as escapes."""
    return text.replace("\0", r"\x00").encode(errors="backslashreplace").decode()


class DatabaseError(Exception):
    """What an engine says has gone wrong, in one line.

    errno        the number that the system has for such an error; None: it has none
    is_transient the same transaction may succeed later, as when space is freed
    """

    def __init__(
        self, text: str, *, errno: int | None = None, is_transient: bool = False
    ) -> None:
        super().__init__(text)
        self.errno, self.is_transient = errno, is_transient


class Result(Protocol):
    """Of a statement. rowcount: the rows that it has changed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Database(Protocol):
    """One connection, of one thread.

    What goes wrong is a DatabaseError, from `read`, `iterate_rows`, `read_answers` and `write`.

    advice     what to do where the database cannot be used
    has_locks  whether it knows which processes hold a connection: `hold_lock` and `list_held_locks`
    """

    advice: str
    has_locks: bool

    def write(
        self,
        body: Callable[[Self], T],
        *,
        incoming: Callable[[], Iterable[AnswerRow]] | None = None,
    ) -> T:
        """Run a body in one transaction, all or nothing, and return what it returns.

        It has the right to write from the start, so that no other writer can come between. Where the connection is
        lost the body runs again, unless the transaction had been committed: what it does beside its statements is to be
        done after `write`.

        incoming  rows that the body finds in a table `incoming` of this connection. They come one at a time, and nobody
                  waits for the database meanwhile.
        """

    def checkpoint(self) -> None:
        """Have all that is committed in the file itself, as far as nobody reads it now; nothing to do for a server."""

    def read(self, body: Callable[[Self], T]) -> T:
        """Run a body that changes nothing, outside a transaction or in one, and return what it returns."""

    def iterate_rows(
        self, query: str, values: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, one at a time, as they are at one moment; in a transaction or outside."""

    def read_answers(
        self, keys: Sequence[str], *, with_messages: bool
    ) -> Iterator[tuple[str, str]]:
        """Yield key and value of the answers to these keys that are there; in a transaction or outside.

        with_messages  a value may lack its `message` otherwise
        """

    def n_bytes(self) -> int:
        """Return how large the database is."""

    def open_second(self, *, busy_seconds: float) -> "Database":
        """Return another connection to the same database, for another thread. One that is lost is not waited for."""

    def hold_lock(self, name: str) -> None:
        """Have others see `name`, 16 hexadecimal digits, among those that are held, until this connection ends.

        It is taken again with each call, as the connection may be another than before.
        """

    def close(self) -> None: ...

    # In a transaction

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Result:
        """Run a statement; each ? in it stands for a value."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> Result: ...

    def list_held_locks(self) -> Container[str]:
        """Return the names that are held now, by whichever connection."""

    def fill_key_table(self, table: str, keys: Iterable[str]) -> None:
        """Make a table of keys, each once, that only this transaction sees; an empty one where it was filled before."""

    # In SQL

    def text_sql(self, *path: str) -> str:
        """A field of the value of an answer: a text or NULL."""

    def number_sql(self, *path: str) -> str:
        """The same of a number."""

    def members_sql(self, column: str) -> str:
        """The texts in a column that holds a JSON list, as rows of one column `value`, to be joined."""
