"""Who is making or paying for which answer: so that two processes that want the same one do not both do it.

A claim is a lease on a key, held by a process for as long as it lives: its host, boot and process id say so on one
machine, its heartbeat on others. What a dead process has claimed, and the batches that it has left under way, go to
the next that wants one of their answers; nothing is submitted again on the mere ground that somebody died.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from elo_exp.records import JudgeReply
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

BEAT_SECONDS = 20.0
LEASE_SECONDS = (
    300.0  # a process on another host that has not been heard of for so long is taken for dead
)
FORGET_SECONDS = 86_400.0  # and after so long what it held is forgotten, even if nobody wants it
UNSEEN = "unseen"
OPEN = "('intended', 'submitted')"  # the states of a batch whose results are still to come


class Claims:
    """The claims of this process, from `with` to its end. Opened once for each piece of work, closed with it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.owner = secrets.token_hex(8)
        self._me = (self.owner, socket.gethostname(), _boot(), os.getpid(), _started(os.getpid()))
        self._stop = threading.Event()
        self._beat = threading.Thread(target=self._keep_alive, name="claims", daemon=True)

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
        """Let go of everything, and forget the dead; batches under way are left to whoever asks next."""
        self._stop.set()
        self._beat.join()
        with self._store.transaction() as db:
            dead = [
                (owner,)
                for owner, *facts in _owners(db)
                if not _is_alive(*facts, lease=FORGET_SECONDS)
            ]
            for table in ("claims", "owners"):
                db.executemany(f"DELETE FROM {table} WHERE owner = ?", [(self.owner,), *dead])

    def take(self, keys: Sequence[str], *, endpoint: str | None = None) -> list[str]:
        """Claim those that are neither answered nor in the hands of a living process, with the dead's batches that
        any of them is in; and those to `endpoint` of which nobody knows whether they arrived. Those that are now this
        process's, in the order given."""
        with self._store.transaction() as db:
            living = self._living(db)
            _wanted(db, keys)
            _let(db, living)
            adopted = db.execute(
                f"UPDATE batches SET owner = ? WHERE state IN {OPEN} AND owner NOT IN (SELECT owner FROM living) AND "
                "((state = 'intended' AND endpoint = ?) OR "
                "nonce IN (SELECT nonce FROM queries WHERE key IN (SELECT key FROM wanted)))",
                (self.owner, endpoint),
            ).rowcount
            db.execute(
                "DELETE FROM claims WHERE owner = ? AND key IN (SELECT key FROM answers)",
                (self.owner,),
            )
            db.execute(
                "INSERT OR REPLACE INTO claims SELECT key, ? FROM wanted WHERE key NOT IN (SELECT key FROM answers) "
                "AND key NOT IN (SELECT key FROM claims WHERE owner IN (SELECT owner FROM living))",
                (self.owner,),
            )
            mine = {
                key
                for (key,) in db.execute("SELECT key FROM claims WHERE owner = ?", (self.owner,))
            }
        if adopted:
            what = "a batch" if adopted == 1 else f"{adopted} batches"
            logger.info("took over %s that an earlier run has left under way", what)
        return [key for key in keys if key in mine]

    def holds(self, key: str) -> bool:
        return bool(
            self._store.read("SELECT 1 FROM claims WHERE key = ? AND owner = ?", (key, self.owner))
        )

    def keep(self, reply: JudgeReply) -> JudgeReply:
        """Commit an answer and let its key go, in one transaction; the answer, or an earlier one if there was any."""
        with self._store.transaction():
            n_added = self._store.put([reply], key=lambda reply: reply.key)
        self._store.usage.count(reply)
        return reply if n_added else self._store.get(JudgeReply, [reply.key])[reply.key]

    def holders(self, keys: Sequence[str]) -> str:
        """Who has the others claimed, or in a batch under way, in words."""
        with self._store.transaction() as db:
            _wanted(db, keys)
            rows = db.execute(
                "SELECT host, pid, COUNT(DISTINCT key) FROM "
                "(SELECT key, owner FROM wanted JOIN claims USING (key) UNION "
                "SELECT key, owner FROM wanted JOIN queries USING (key) JOIN batches USING (nonce) WHERE "
                f"state IN {OPEN} AND outcome IS NULL) JOIN owners USING (owner) WHERE owner != ? GROUP BY owner",
                (self.owner,),
            ).fetchall()
        return ", ".join(f"process {pid} on {host} ({n})" for host, pid, n in rows)

    def _living(self, db: sqlite3.Connection) -> list[str]:
        return [
            owner
            for owner, *facts in _owners(db)
            if owner == self.owner or _is_alive(*facts, lease=LEASE_SECONDS)
        ]

    def _sign(self, db: sqlite3.Connection) -> None:
        """Also where the row has gone: others have taken a process that slept for dead, and it goes on."""
        db.execute(
            "INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, ?)", (*self._me, time.time())
        )

    def _keep_alive(self) -> None:
        db = sqlite3.connect(self._store.path, timeout=BEAT_SECONDS, isolation_level=None)
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
    return db.execute("SELECT owner, host, boot, pid, started, heartbeat FROM owners").fetchall()


def _wanted(db: sqlite3.Connection, keys: Iterable[str]) -> None:
    db.execute("CREATE TEMP TABLE IF NOT EXISTS wanted (key TEXT PRIMARY KEY)")
    db.execute("DELETE FROM wanted")
    db.executemany("INSERT OR IGNORE INTO wanted VALUES (?)", ((key,) for key in keys))


def _let(db: sqlite3.Connection, living: Iterable[str]) -> None:
    db.execute("CREATE TEMP TABLE IF NOT EXISTS living (owner TEXT PRIMARY KEY)")
    db.execute("DELETE FROM living")
    db.executemany("INSERT INTO living VALUES (?)", ((owner,) for owner in living))


def _is_alive(
    host: str, boot: str, pid: int, started: str, heartbeat: float, *, lease: float
) -> bool:
    """By its process id where it can be seen from here, else by a heartbeat within `lease` seconds."""
    if boot and (host, boot) == (socket.gethostname(), _boot()):
        found = _started(pid)
        if found != UNSEEN:
            return found == started
    return abs(time.time() - heartbeat) < lease


def _boot() -> str:
    """What tells one boot of this machine, and one container's view of its processes, from the next; empty where the
    system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process began, so that a process id that is given out again is not taken for it; empty if it is gone,
    UNSEEN if it is there and hidden from us."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return UNSEEN if _takes_signals(pid) else ""
    return "" if fields[0] in "ZX" else fields[19]


def _takes_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
