"""Who is making or paying for which answer: so that two processes that want the same one do not
both do it.

A claim is a lease on a key, held by a process for as long as it lives: its host, boot and process
id say so on one machine; on others its heartbeat, which our own clock watches and is never compared
with. What a dead process has claimed, and the batches that it has left under way, go to the next
that wants one of their answers; nothing is submitted again on the mere ground that somebody died.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from elo_exp.files import utc_now
from elo_exp.records import Record
from elo_exp.store.processes import is_alive, this_process
from elo_exp.store.store import Store
from elo_exp.store.usage import Usage

logger = logging.getLogger(__name__)

BEAT_SECONDS = 20.0
LEASE_SECONDS = (
    300.0  # a process on another host whose heartbeat stands still for so long is dead
)
OPEN = (
    "('intended', 'submitted')"  # the states of a batch whose results are still to come
)
PENDING = f"SELECT key FROM queries JOIN batches USING (nonce) WHERE state IN {OPEN} AND outcome IS NULL"


R = TypeVar("R", bound=Record)


class Claims:
    """The claims of this process, from `with` to its end. Opened once for each piece of work,
    closed with it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.owner = secrets.token_hex(8)
        self._me = (self.owner, *this_process())
        self._beats: dict[
            str, tuple[float, float]
        ] = {}  # of others: the last, and since when
        self._stop = threading.Event()
        self._beat = threading.Thread(
            target=self._keep_alive, name="claims", daemon=True
        )

    def __enter__(self) -> Self:
        with self._store.transaction() as db:
            self._sign(db)
        self._beat.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Let go of everything, and forget the dead; batches under way are left to whoever asks
        next."""
        self._stop.set()
        self._beat.join()
        with self._store.transaction() as db:
            _let(db, [owner for owner in self._living(db) if owner != self.owner])
            for table in ("claims", "owners"):
                db.execute(
                    f"DELETE FROM {table} WHERE owner NOT IN (SELECT owner FROM living)"
                )

    def take(self, keys: Sequence[str], *, endpoint: str | None = None) -> list[str]:
        """Claim those that are neither answered nor in the hands of a living process, with the
        dead's batches that any of them is in; and those to `endpoint` of which nobody knows whether
        they arrived. Those that are now this process's, in the order given."""
        with self._store.transaction() as db:
            living = self._living(db)
            _wanted(db, keys)
            _let(db, living)
            adopted = db.execute(
                f"UPDATE batches SET owner = ? WHERE state IN {OPEN} AND owner NOT IN (SELECT "
                "owner FROM living) AND "
                "((state = 'intended' AND endpoint = ?) OR "
                "nonce IN (SELECT nonce FROM queries WHERE key IN (SELECT key FROM wanted)))",
                (self.owner, endpoint),
            ).rowcount
            self._count_losses(db)
            db.execute(
                "DELETE FROM claims WHERE owner = ? AND key IN (SELECT key FROM answers)",
                (self.owner,),
            )
            db.execute(
                "INSERT OR REPLACE INTO claims SELECT key, ? FROM wanted WHERE key NOT IN (SELECT "
                "key FROM answers) "
                "AND key NOT IN (SELECT key FROM claims WHERE owner IN (SELECT owner FROM living))",
                (self.owner,),
            )
            mine = {
                key
                for (key,) in db.execute(
                    "SELECT key FROM claims WHERE owner = ?", (self.owner,)
                )
            }
        if adopted:
            what = "a batch" if adopted == 1 else f"{adopted} batches"
            logger.info("took over %s that an earlier run has left under way", what)
        return [key for key in keys if key in mine]

    @property
    def usage(self) -> Usage:
        return self._store.usage

    def _count_losses(self, db: sqlite3.Connection) -> None:
        """The answers that dead processes were waiting for are lost. Those that are wanted here are
        paid again."""
        lost = db.execute(
            "UPDATE losses SET why = 'its process died' WHERE why IS NULL AND owner NOT IN (SELECT "
            "owner FROM living) "
            "AND key IN (SELECT key FROM wanted) RETURNING dollars"
        ).fetchall()
        if lost:
            most = sum(dollars for (dollars,) in lost)
            self._store.usage.lose(most, len(lost))
            logger.warning(
                "warning: %d calls of an earlier run got no answer before it ended; they may have "
                "cost $%.4f",
                len(lost), most,
            )  # fmt: skip

    def send(self, key: str, dollars: float) -> bool:
        """Commit, before a single call leaves, that it is under way and the most it may cost. False
        where it must not leave: the claim has been lost, or the answer is to come from a batch."""
        with self._store.transaction() as db:
            sent = db.execute(
                "INSERT INTO losses SELECT key, owner, ?, ?, NULL FROM claims WHERE key = ? AND "
                "owner = ? AND "
                f"key NOT IN ({PENDING})",
                (dollars, utc_now(), key, self.owner),
            )
        return sent.rowcount == 1

    def unsend(self, key: str, *, lost: str | None = None) -> None:
        """The call has come to nothing. `lost`: why, if the server may have accepted it; then it
        stays in the books."""
        which = (key, self.owner)
        with self._store.transaction() as db:
            if lost is None:
                db.execute(
                    "DELETE FROM losses WHERE key = ? AND owner = ? AND why IS NULL",
                    which,
                )
            else:
                db.execute(
                    "UPDATE losses SET why = ? WHERE key = ? AND owner = ? AND why IS NULL",
                    (lost, *which),
                )

    def keep(self, key: str, answer: R) -> R:
        """Commit an answer and let its key go, in one transaction; the answer, or an earlier one if
        there was any."""
        with self._store.transaction():
            n_added = self._store.put({key: answer})
        self._store.usage.count(answer)
        return self._store.first({key: answer}, n_added)[key]

    def holders(self, keys: Sequence[str]) -> str:
        """Who has the others claimed, or in a batch under way, in words."""
        with self._store.transaction() as db:
            _wanted(db, keys)
            rows = db.execute(
                "SELECT host, pid, COUNT(DISTINCT key) FROM "
                "(SELECT key, owner FROM wanted JOIN claims USING (key) UNION "
                "SELECT key, owner FROM wanted JOIN queries USING (key) JOIN batches USING (nonce) "
                "WHERE "
                f"state IN {OPEN} AND outcome IS NULL) JOIN owners USING (owner) WHERE owner != ? "
                "GROUP BY owner",
                (self.owner,),
            ).fetchall()
        return ", ".join(f"process {pid} on {host} ({n})" for host, pid, n in rows)

    def _living(self, db: sqlite3.Connection) -> list[str]:
        return [
            owner
            for owner, *facts in _owners(db)
            if owner == self.owner or self._is_alive(owner, *facts)
        ]

    def _is_alive(
        self, owner: str, host: str, boot: str, pid: int, started: str, heartbeat: float
    ) -> bool:
        """By its process id where that can be seen from here, else by a heartbeat that goes on."""
        if (alive := is_alive(host, boot, pid, started)) is not None:
            return alive
        now = time.monotonic()
        last, since = self._beats.get(owner, (None, now))
        if heartbeat != last:
            self._beats[owner] = (heartbeat, now)
            return True
        return now - since < LEASE_SECONDS

    def _sign(self, db: sqlite3.Connection) -> None:
        """Also where the row has gone: others have taken a process that slept for dead, and it goes
        on."""
        db.execute(
            "INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, ?)",
            (*self._me, time.time()),
        )

    def _keep_alive(self) -> None:
        db = sqlite3.connect(
            self._store.path, timeout=BEAT_SECONDS, isolation_level=None
        )
        try:
            while not self._stop.wait(BEAT_SECONDS):
                try:
                    self._sign(db)
                except sqlite3.Error as error:
                    logger.warning(
                        "warning: %s: the claims' heartbeat was not written (%s)",
                        self._store.path,
                        error,
                    )
        finally:
            db.close()


def _owners(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return db.execute(
        "SELECT owner, host, boot, pid, started, heartbeat FROM owners"
    ).fetchall()


def _wanted(db: sqlite3.Connection, keys: Iterable[str]) -> None:
    db.execute("CREATE TEMP TABLE IF NOT EXISTS wanted (key TEXT PRIMARY KEY)")
    db.execute("DELETE FROM wanted")
    db.executemany("INSERT OR IGNORE INTO wanted VALUES (?)", ((key,) for key in keys))


def _let(db: sqlite3.Connection, living: Iterable[str]) -> None:
    db.execute("CREATE TEMP TABLE IF NOT EXISTS living (owner TEXT PRIMARY KEY)")
    db.execute("DELETE FROM living")
    db.executemany("INSERT INTO living VALUES (?)", ((owner,) for owner in living))
