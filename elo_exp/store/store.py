"""One SQLite file that holds every answer ever made or paid for, keyed by the fingerprint of all
that could change it.

Several processes may use one store. An answer is committed before anyone sees it, is never
overwritten, and is found again by its key alone: ratings, sweeps and restarts read it and pay
nothing. The same file holds the claims (claims.py), the calls under way or lost (losses), and the
batch ledger (ledger.py), so that an answer, the claim on it and its place in the ledger change in
one transaction.
"""

import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar

from elo_exp.files import utc_now
from elo_exp.records import JudgeIdentity, JudgeReply, Record, UserError, storable_json
from elo_exp.store.caps import Account, Spent, command_of, spent, spent_before
from elo_exp.store.usage import Usage

SCHEMA_VERSION = 8
_TABLES = """
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
CREATE TABLE IF NOT EXISTS charges (
    name TEXT PRIMARY KEY, scopes TEXT NOT NULL, dollars REAL NOT NULL);
CREATE TABLE IF NOT EXISTS spending (scope TEXT PRIMARY KEY, dollars REAL NOT NULL);
CREATE TABLE IF NOT EXISTS commands (folder TEXT PRIMARY KEY, command TEXT NOT NULL);
"""
APPLICATION_ID = 0x656C6F78  # "elox" in the file's header: the database is ours
_KEYS_A_QUERY = 500  # SQLite allows 999 variables in the oldest builds still in use
_BUSY_SECONDS = 60.0  # how long to wait for another process's transaction

R = TypeVar("R", bound=Record)


class Store:
    """Answers by key, the usage of this run, and the account that its calls are charged to. Raises UserError for a
    file that is damaged, newer than this program, or not a store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.usage = Usage()
        self.account = Account()
        with self._usable():
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path)
            if path.stat().st_size == 0:  # `_create` never leaves it so
                raise UserError(
                    f"{path}: is empty, and a store never is. Restore it from a copy; or, if all "
                    "that it held may be paid for again, delete it; or choose another folder with "
                    "cache_dir=DIR."
                )
            self._db = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None
            )
        try:
            self._prepare()
        except UserError:
            self._db.close()
            raise

    def _prepare(self) -> None:
        """Add the tables that an older version does not have; leave what is not ours as it is."""
        pragmas = ("application_id", "user_version")
        owner, version = (self.read(f"PRAGMA {name}")[0][0] for name in pragmas)
        with self._usable():
            if owner != APPLICATION_ID:
                raise sqlite3.DatabaseError("it is the database of another program")
        if version > SCHEMA_VERSION:
            raise UserError(
                f"{self.path}: written by a newer elo_exp (store version {version}, this program "
                f"knows {SCHEMA_VERSION}). Upgrade elo_exp, or choose another folder with "
                "cache_dir=DIR."
            )
        if version < SCHEMA_VERSION:
            with self.transaction() as db:
                _upgrade(db)
        self.read("PRAGMA journal_mode=WAL")  # readers and a writer side by side
        self.read("PRAGMA synchronous=FULL")

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise UserError(
                f"{self.path}: cannot be used as the store ({error}). Free some space, or restore it "
                "from a copy; another folder (cache_dir=DIR) would have none of its answers."
            ) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, with the right to write from the start, so that no other writer can come
        between."""
        with self._usable():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # some failures end it by themselves
                    self._db.execute("ROLLBACK")
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def least_room(self) -> Spent | None:
        """Return the cap with the least room; None where there is no cap."""
        return next(iter(self.spent()), None)

    def spent(self) -> list[Spent]:
        """Return what was paid, of this month, sweep and run folder, where there is a cap; the least room first."""
        with self._usable():
            return spent(self._db, self.account)

    def spent_before(self, kind: str) -> list[tuple[Spent, str | None]]:
        """Return what was paid by each sweep, or in each run folder, with its command where that is known; empty where the
        account has no such cap.

        kind  sweep or folder
        """
        with self._usable():
            return spent_before(self._db, self.account, kind)

    def command_of(self, name: str) -> str | None:
        """Return the command of the run that a call under way is charged to; None where that is not known."""
        with self._usable():
            return command_of(self._db, name)

    def read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._usable():
            return self._db.execute(query, values).fetchall()

    def each(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that `read` returns, one at a time."""
        with self._usable():
            yield from self._db.execute(query, values)

    @contextmanager
    def aside(self, answers: Iterable[tuple[str, str, str, str]]) -> Iterator[int]:
        """Hold rows of answers in a table of this process, `incoming`, to be added to the others; yield how many.

        They come one at a time, and nobody waits for the store meanwhile.
        """
        with self._usable():
            self._db.execute("BEGIN")
            try:
                self._db.execute("CREATE TEMP TABLE incoming (key, kind, value, at)")
                add = "INSERT INTO incoming VALUES (?, ?, ?, ?)"
                n = self._db.executemany(add, answers).rowcount
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        try:
            yield max(n, 0)
        finally:
            self._db.execute("DROP TABLE incoming")

    def get(
        self, record: type[R], keys: Sequence[str], *, with_messages: bool = False
    ) -> dict[str, R]:
        """Return the stored answers by key; the raw messages that some were read from are left out, unless wanted."""
        records: dict[str, R] = {}
        for start in range(0, len(keys), _KEYS_A_QUERY):
            some = keys[start : start + _KEYS_A_QUERY]
            marks = ",".join("?" * len(some))
            column = "value" if with_messages else "json_remove(value, '$.message')"
            query = f"SELECT key, {column} FROM answers WHERE key IN ({marks})"
            for key, value in self.read(query, some):
                try:
                    records[key] = record.from_dict(json.loads(value))
                except (KeyError, TypeError, ValueError) as error:
                    raise UserError(
                        f"{self.path}: holds a {record.__name__} that cannot be read ({error}). "
                        "Restore the store from a copy, or choose another folder with "
                        "cache_dir=DIR."
                    ) from None
        return records

    def judges(self) -> list[JudgeIdentity]:
        """Return whose replies may be here, the first to be asked first."""
        rows = self.read("SELECT key, judge_model, reads FROM judges ORDER BY rowid")
        return [
            JudgeIdentity(
                key=key, judge_model=model, key_fields=tuple(json.loads(names))
            )
            for key, model, names in rows
        ]

    def remember(self, judge: JudgeIdentity) -> None:
        if not self.read("SELECT 1 FROM judges WHERE key = ?", [judge.key]):
            with self.transaction() as db:
                row = (judge.key, judge.judge_model, json.dumps(judge.key_fields))
                db.execute("INSERT OR IGNORE INTO judges VALUES (?, ?, ?)", row)

    def n_seen(self, queries: Sequence[str], design: str | None) -> int:
        """Count the queries that had been looked at under another design.

        A design of planned looks is stored before its first query: those that were answered then.
        None, one look at the end: those of stored designs of which none had been answered.
        """
        if design is None:
            rows = self.read("SELECT queries FROM designs WHERE n_seen = 0")
            looked_at = {query for (text,) in rows for query in json.loads(text)}
            return len(looked_at.intersection(queries))
        with self.transaction() as db:
            n_seen = len(self.get(JudgeReply, queries))
            db.execute(
                "INSERT OR IGNORE INTO designs VALUES (?, ?, ?)",
                (design, json.dumps(queries), n_seen),
            )
        query = "SELECT n_seen FROM designs WHERE key = ?"
        return int(self.read(query, [design])[0][0])

    def keep(
        self, records: Iterable[R], *, key: Callable[[R], str], chunk: int = 1
    ) -> Iterator[R]:
        """Pass the records on as they come, each committed first.

        `chunk` records share one transaction: more than 1 is for answers that cost nothing to make
        again.
        """
        iterator = iter(records)
        while some := {key(record): record for record in islice(iterator, chunk)}:
            yield from self.commit(some).values()

    def commit(self, answers: Mapping[str, R]) -> dict[str, R]:
        """Store answers, by key, that this process has made; return what `put` returns."""
        with self.transaction():
            stored = self.put(answers)
        for answer in answers.values():
            self.usage.count(answer)
        return stored

    def put(self, answers: Mapping[str, R]) -> dict[str, R]:
        """Inside a transaction: add the answers that are not there yet, by key, and end every claim
        on them and every call that was to bring them. Return what every run shall see: the answers
        of whoever was first."""
        now = utc_now()
        keys = [(key,) for key in answers]
        self._db.executemany("DELETE FROM claims WHERE key = ?", keys)
        self._db.executemany("DELETE FROM losses WHERE key = ? AND why IS NULL", keys)
        rows = [
            (key, type(answer).__name__, storable_json(answer.to_dict()), now)
            for key, answer in answers.items()
        ]
        added = self._db.executemany(
            "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", rows
        )
        if added.rowcount == len(answers):
            return dict(answers)
        stored = self.get(type(next(iter(answers.values()))), list(answers))
        return {key: stored[key] for key in answers}


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
    for statement in filter(None, map(str.strip, _TABLES.split(";"))):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
