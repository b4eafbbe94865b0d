"""Who is paying for which answer: so that two processes that want the same one do not both buy it.

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
from typing import Self

from elo_exp.records import JudgeReply
from elo_exp.store import Store

logger = logging.getLogger(__name__)

BEAT_SECONDS = 20.0
LEASE_SECONDS = 300.0  # a process on another host that has not been heard of for so long is taken for dead
OPEN = "('intended', 'submitted')"  # the states of a batch whose results are still to come


class Claims:
    """The claims of this process, from `with` to its end. Opened once for each piece of work, closed with it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.owner = secrets.token_hex(8)
        self._stop = threading.Event()
        self._beat = threading.Thread(target=self._keep_alive, name="claims", daemon=True)

    def __enter__(self) -> Self:
        me = (self.owner, socket.gethostname(), _boot(), os.getpid(), _started(os.getpid()), time.time())
        with self._store.transaction() as db:
            db.execute("INSERT INTO owners VALUES (?, ?, ?, ?, ?, ?)", me)
        self._beat.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Let go of everything; batches under way are left to whoever asks next."""
        self._stop.set()
        self._beat.join()
        with self._store.transaction() as db:
            db.execute("DELETE FROM claims WHERE owner = ?", (self.owner,))
            db.execute("DELETE FROM owners WHERE owner = ?", (self.owner,))

    def take(self, keys: Sequence[str]) -> list[str]:
        """Claim those that are neither answered nor in the hands of a living process, with the dead's batches that
        any of them is in; those that are now this process's, in the order given."""
        with self._store.transaction() as db:
            living = self._living(db)
            _wanted(db, keys)
            _let(db, living)
            adopted = db.execute(
                f"UPDATE batches SET owner = ? WHERE state IN {OPEN} AND owner NOT IN (SELECT owner FROM living) AND "
                "nonce IN (SELECT nonce FROM queries WHERE key IN (SELECT key FROM wanted))",
                (self.owner,),
            ).rowcount
            free = "key NOT IN (SELECT key FROM claims WHERE owner IN (SELECT owner FROM living))"
            db.execute(
                "INSERT OR REPLACE INTO claims SELECT key, ? FROM queries JOIN batches USING (nonce) WHERE "
                f"batches.owner = ? AND state IN {OPEN} AND outcome IS NULL AND {free}",
                (self.owner, self.owner),
            )
            db.execute(
                f"INSERT OR REPLACE INTO claims SELECT key, ? FROM wanted WHERE {free} AND "
                "key NOT IN (SELECT key FROM answers)",
                (self.owner,),
            )
            mine = {key for (key,) in db.execute("SELECT key FROM claims WHERE owner = ?", (self.owner,))}
        if adopted:
            logger.info("took over %d batches that an earlier run has left under way", adopted)
        return [key for key in keys if key in mine]

    def keep(self, reply: JudgeReply) -> None:
        """Commit an answer and let its key go, in one transaction."""
        with self._store.transaction() as db:
            self._store.put([reply], key=lambda reply: reply.key)
            db.execute("DELETE FROM claims WHERE key = ?", (reply.key,))
        self._store.usage.count(reply)

    def holders(self, keys: Sequence[str]) -> str:
        """Who has the others, in words."""
        with self._store.transaction() as db:
            _wanted(db, keys)
            rows = db.execute(
                "SELECT host, pid, COUNT(*) FROM wanted JOIN claims USING (key) JOIN owners USING (owner) "
                "WHERE owners.owner != ? GROUP BY owners.owner",
                (self.owner,),
            ).fetchall()
        return ", ".join(f"process {pid} on {host} ({n})" for host, pid, n in rows)

    def _living(self, db: sqlite3.Connection) -> list[str]:
        rows = db.execute("SELECT owner, host, boot, pid, started, heartbeat FROM owners").fetchall()
        return [row[0] for row in rows if row[0] == self.owner or _is_alive(*row[1:])]

    def _keep_alive(self) -> None:
        db = sqlite3.connect(self._store.path, timeout=BEAT_SECONDS, isolation_level=None)
        try:
            while not self._stop.wait(BEAT_SECONDS):
                try:
                    db.execute("UPDATE owners SET heartbeat = ? WHERE owner = ?", (time.time(), self.owner))
                except sqlite3.Error as error:
                    logger.warning("warning: %s: the claims' heartbeat was not written (%s)", self._store.path, error)
        finally:
            db.close()


def _wanted(db: sqlite3.Connection, keys: Iterable[str]) -> None:
    db.execute("CREATE TEMP TABLE IF NOT EXISTS wanted (key TEXT PRIMARY KEY)")
    db.execute("DELETE FROM wanted")
    db.executemany("INSERT OR IGNORE INTO wanted VALUES (?)", ((key,) for key in keys))


def _let(db: sqlite3.Connection, living: Iterable[str]) -> None:
    db.execute("CREATE TEMP TABLE IF NOT EXISTS living (owner TEXT PRIMARY KEY)")
    db.execute("DELETE FROM living")
    db.executemany("INSERT INTO living VALUES (?)", ((owner,) for owner in living))


def _is_alive(host: str, boot: str, pid: int, started: str, heartbeat: float) -> bool:
    if (host, boot) == (socket.gethostname(), _boot()):
        return _started(pid) == started
    return time.time() - heartbeat < LEASE_SECONDS


def _boot() -> str:
    """What tells one boot of this machine from the next; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process began, so that a process id that is given out again is not taken for it; empty if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except FileNotFoundError:
        return "" if Path("/proc/self").exists() else _answers_signals(pid)
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _answers_signals(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "running"
