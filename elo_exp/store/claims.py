"""Who is making or paying for which answer: so that two processes that want the same one do not
both do it.

A claim is a lease on a key, held by a process for as long as it lives: its host, boot and process
id say so on one machine; on others its heartbeat, which our own clock watches and is never compared
with. PostgreSQL knows more: a process holds a lock there for as long as it has a connection, and is
dead when that lock has been free for half a minute. A job of Slurm that begins anew knows that its
earlier processes are dead. The claims and unfinished batches of a dead process go to the next process
that wants one of their answers. A death alone is no reason to submit anything again.
"""

import logging
import secrets
import threading
import time
from collections.abc import (
    Callable,
    Collection,
    Container,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Self, TypeVar

from elo_exp import interrupts
from elo_exp.files import utc_now
from elo_exp.masking import mask_text
from elo_exp.progress import show_note
from elo_exp.records import Record
from elo_exp.store import caps
from elo_exp.store.answer_store import Store
from elo_exp.store.database import Database, DatabaseError, escape_unstorable
from elo_exp.store.processes import find_slurm_job, identify_this_process, is_alive
from elo_exp.store.unsaved import Charge

logger = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_SECONDS = 20.0
# Between two reads of what another process is making
CLAIM_POLL_SECONDS = 1.0
MAX_HEARTBEAT_AGE_SECONDS = (
    300.0  # after which a process elsewhere without a new heartbeat is dead
)
# between two looks at the connection that shows that a process lives
LOCK_CHECK_SECONDS = 5.0
# After which a process without such a connection is dead
MAX_LOCK_FREE_SECONDS = 30.0
# Between two looks at a server. After more, nobody knows whether it was there for others meanwhile.
_MAX_GAP_SECONDS = 10.0
OPEN_STATES_SQL = (
    "('intended', 'submitted')"  # states of a batch whose results are still to come
)
PENDING_KEYS_SQL = (
    "SELECT key FROM queries JOIN batches USING (nonce) "
    f"WHERE state IN {OPEN_STATES_SQL} AND outcome IS NULL"
)
_IS_PENDING = f"EXISTS ({PENDING_KEYS_SQL} AND queries.key = claims.key)"
_IS_OWNER_ALIVE = "owner IN (SELECT key FROM living)"


R = TypeVar("R", bound=Record)
Wanted = TypeVar("Wanted")


class Claims:
    """The claims of this process, from `with` to its end. Opened once for each piece of work."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.owner = secrets.token_hex(8)
        self._owner_row = (self.owner, *identify_this_process())
        self._job = find_slurm_job()
        # By owner: the last heartbeat (None: a free lock), and when it was seen first and last, by our clock
        self._seen_heartbeats: dict[str, tuple[float | None, float, float]] = {}
        self._stop = threading.Event()
        self._heartbeat_thread = threading.Thread(target=self._keep_alive, daemon=True)

    def __enter__(self) -> Self:
        self.store.write(self._write_heartbeat)
        self._heartbeat_thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End all claims, and forget the dead; batches under way are left to whoever asks next."""
        self._stop.set()
        self._heartbeat_thread.join()

        def end(db: Database) -> None:
            living = [
                owner for owner in self._find_living_owners(db) if owner != self.owner
            ]
            db.fill_key_table("living", living)
            for table in ("claims", "owners", "slurm_jobs"):
                db.execute(f"DELETE FROM {table} WHERE NOT {_IS_OWNER_ALIVE}")

        self.store.write(end)

    def take(self, keys: Sequence[str], *, endpoint: str | None = None) -> list[str]:
        """Claim the keys that are neither answered nor in the hands of a living process.

        The batches that dead processes have left under way are taken over where they hold one of
        the keys, and where nobody knows whether they have arrived at `endpoint`. Returns the keys
        that are now this process's, in the order given.
        """
        self.store.import_unsaved()
        adopted, lost, claimed = self.store.write(
            lambda db: self._claim_keys(db, keys, endpoint)
        )
        if adopted:
            batches = "a batch" if adopted == 1 else f"{adopted} batches"
            logger.info("took over %s that an earlier run left under way", batches)
        if lost:
            self.store.usage.add_lost_calls(sum(lost), len(lost))
            logger.warning(
                "warning: %d calls of an earlier run got no answer before it ended; they may have "
                "cost $%.4f",
                len(lost),
                sum(lost),
            )
        return [key for key in keys if key in claimed]

    def _claim_keys(
        self, db: Database, keys: Sequence[str], endpoint: str | None
    ) -> tuple[int, list[float], set[str]]:
        """Return how many batches were taken over, what each lost call may have cost, and the keys claimed."""
        mine = (self.owner,)
        db.fill_key_table("living", self._find_living_owners(db))
        db.fill_key_table("wanted", keys)
        adopted = db.execute(
            f"UPDATE batches SET owner = ? WHERE state IN {OPEN_STATES_SQL} AND NOT {_IS_OWNER_ALIVE} AND "
            "((state = 'intended' AND endpoint = ?) OR "
            "nonce IN (SELECT nonce FROM queries JOIN wanted USING (key)))",
            (self.owner, endpoint),
        ).rowcount
        lost = self._count_losses(db)
        db.execute(
            "DELETE FROM claims WHERE owner = ? AND key IN (SELECT key FROM answers)",
            mine,
        )
        db.execute(
            "INSERT INTO claims SELECT key, ? FROM wanted WHERE "
            "NOT EXISTS (SELECT 1 FROM answers WHERE answers.key = wanted.key) "
            f"AND key NOT IN (SELECT key FROM claims WHERE {_IS_OWNER_ALIVE}) "
            "ON CONFLICT (key) DO UPDATE SET owner = excluded.owner",
            mine,
        )
        rows = db.execute("SELECT key FROM claims WHERE owner = ?", mine).fetchall()
        return adopted, lost, {key for (key,) in rows}

    def _count_losses(self, db: Database) -> list[float]:
        """Count the answers that dead processes were waiting for, and that are wanted again: what each may have cost."""
        lost = db.execute(
            "UPDATE losses SET why = 'its process died' WHERE why IS NULL "
            f"AND NOT {_IS_OWNER_ALIVE} AND key IN (SELECT key FROM wanted) RETURNING dollars, owner, key"
        ).fetchall()
        for _, owner, key in lost:
            caps.settle(db, _charge_name(owner, key), None)
        return [dollars for dollars, *_ in lost]

    def record_call(self, key: str, dollars: float) -> bool:
        """Commit, before a single call leaves, that it is under way and the most it may cost. False
        where it must not leave: the claim has been lost, or the answer is to come from a batch.

        Raises OverCapError where a cap of the store has no room for it.
        """

        def mark_sent(db: Database) -> bool:
            inserted = db.execute(
                "INSERT INTO losses SELECT key, owner, ?, ?, NULL FROM claims "
                f"WHERE key = ? AND owner = ? AND NOT {_IS_PENDING}",
                (dollars, utc_now(), key, self.owner),
            )
            if inserted.rowcount:
                caps.reserve_charge(
                    db, self.store.account, _charge_name(self.owner, key), dollars
                )
            return inserted.rowcount == 1

        return self.store.write(mark_sent)

    def commit_answer(self, key: str, answer: R, dollars: float | None) -> R:
        """Commit the answer to a single call, and what it has cost; None: as much as it may have cost. Return what
        every run shall see: the answer of whoever was first."""

        def put(db: Database) -> R:
            stored = self.store.put(db, {key: answer})[key]
            caps.settle(db, _charge_name(self.owner, key), dollars)
            return stored

        charge = Charge(name=_charge_name(self.owner, key), dollars=dollars)
        stored = self.store.save(put, {key: answer}, charge)
        self.store.usage.add_answer(answer)
        return stored

    def end_call(self, key: str, *, lost: str | None = None) -> None:
        """Commit that a call has come to nothing.

        lost  why, if the server may have accepted it; then it stays counted
        """
        its = "key = ? AND owner = ? AND why IS NULL"
        why = None if lost is None else escape_unstorable(mask_text(lost))

        def end(db: Database) -> None:
            db.execute(f"UPDATE losses SET why = ? WHERE {its}", (why, key, self.owner))
            db.execute(f"DELETE FROM losses WHERE {its}", (key, self.owner))
            caps.settle(db, _charge_name(self.owner, key), None if lost else 0.0)

        self.store.write(end)

    def describe_holders(self, keys: Sequence[str]) -> str:
        """Describe who else has claimed keys, or has them in a batch under way."""

        def find_holders(db: Database) -> list[tuple[str, int, int]]:
            db.fill_key_table("wanted", keys)
            return db.execute(
                "SELECT host, pid, COUNT(DISTINCT key) FROM "
                "(SELECT key, owner FROM wanted JOIN claims USING (key) UNION "
                "SELECT key, owner FROM wanted JOIN queries USING (key) "
                f"JOIN batches USING (nonce) WHERE state IN {OPEN_STATES_SQL} AND outcome IS NULL) AS held "
                "JOIN owners USING (owner) WHERE owner != ? GROUP BY owners.owner",
                (self.owner,),
            ).fetchall()

        rows = self.store.write(find_holders)
        return ", ".join(f"process {pid} on {host} ({n})" for host, pid, n in rows)

    def _find_living_owners(self, db: Database) -> list[str]:
        rows = db.execute(
            "SELECT owner, job, restarts, heartbeat, host, boot, pid, started "
            "FROM owners LEFT JOIN slurm_jobs USING (owner)"
        ).fetchall()
        held_locks = db.list_held_locks() if db.has_locks else None
        return [
            owner
            for owner, job, restarts, heartbeat, *process in rows
            if owner == self.owner
            or not (
                self._is_restart_of(job, restarts)
                or self._is_dead(owner, held_locks, heartbeat, *process)
            )
        ]

    def _is_restart_of(self, job: str | None, restarts: int) -> bool:
        """Whether this process is of a later run of a job of Slurm, which has killed those of the earlier one."""
        return self._job is not None and job == self._job[0] and restarts < self._job[1]

    def _is_dead(
        self,
        owner: str,
        held_locks: Container[str] | None,
        heartbeat: float,
        *process: Any,
    ) -> bool:
        """Return whether a process is dead.

        Its process id tells, if it can be seen from here; else a heartbeat that has stopped, or a lock that stays free.
        A process that lives loses its lock for a while when its connection is lost or the server restarts.
        """
        if (alive := is_alive(*process)) is not None:
            return not alive
        is_free = held_locks is not None and owner not in held_locks
        sign, now = None if is_free else heartbeat, time.monotonic()
        last_sign, since, last_look = self._seen_heartbeats.get(owner, (sign, now, now))
        has_gap = held_locks is not None and now - last_look > _MAX_GAP_SECONDS
        since = now if sign != last_sign or has_gap else since
        self._seen_heartbeats[owner] = (sign, since, now)
        return now - since >= (
            MAX_LOCK_FREE_SECONDS if is_free else MAX_HEARTBEAT_AGE_SECONDS
        )

    def _write_heartbeat(self, db: Database) -> None:
        """Write the heartbeat, and the row if it has gone: a process that slept was taken for dead, and goes on."""
        row = (*self._owner_row, time.time())
        db.execute(
            "INSERT INTO owners VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (owner) DO UPDATE SET heartbeat = excluded.heartbeat",
            row,
        )
        if self._job is not None:
            job = (self.owner, *self._job)
            add = "INSERT INTO slurm_jobs VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            db.execute(add, job)

    def _keep_alive(self) -> None:
        db: Database | None = None
        is_warned = False  # once until a beat is written again
        has_locks = self.store.has_locks
        pause = (
            min(LOCK_CHECK_SECONDS, HEARTBEAT_INTERVAL_SECONDS)
            if has_locks
            else HEARTBEAT_INTERVAL_SECONDS
        )
        n, n_a_beat = 0, round(HEARTBEAT_INTERVAL_SECONDS / pause)
        while not self._stop.wait(pause if n or not has_locks else 0.0):
            n += 1
            try:
                db = db or self.store.open_second(
                    busy_seconds=HEARTBEAT_INTERVAL_SECONDS
                )
                if has_locks:
                    db.hold_lock(self.owner)
                if n % n_a_beat == 0:
                    db.write(self._write_heartbeat)
                is_warned = False
            except DatabaseError as error:
                if not is_warned:
                    logger.warning(
                        "warning: %s: this run could not renew its claims on calls under way (%s)",
                        self.store.name,
                        error,
                    )
                is_warned = True
        if db is not None:
            db.close()


def _charge_name(owner: str, key: str) -> str:
    """Return the name under which a single call is charged."""
    return f"{owner} {key}"


def make_once(
    wanted: Mapping[str, Wanted],
    store: Store,
    *,
    record: type[R],
    key: Callable[[R], str],
    make: Callable[[Mapping[str, Wanted], Claims], Iterator[R]],
    failed: Collection[str],
    noun: str,
    endpoint: str | None = None,
) -> Generator[R]:
    """Claim and make what nobody else is making, then wait for the others. What a dead process has
    left is made here.

    wanted         by the key of its answer in the store
    make           the answers to what is claimed, each committed
    failed         the keys that `make` has found to have no answer
    noun           plural noun for the answers
    endpoint       of the batches that may have been left under way; None for answers without
                   batches
    """
    if not wanted:
        return
    waiting = dict(wanted)
    with Claims(store) as claims:
        while waiting:
            mine = {
                name: waiting[name]
                for name in claims.take(list(waiting), endpoint=endpoint)
            }
            for answer in make(mine, claims):
                waiting.pop(key(answer), None)
                yield answer
            for name in failed:
                waiting.pop(name, None)
            for name, answer in store.get(record, list(waiting)).items():
                waiting.pop(name)
                yield answer
            if waiting:
                holders = claims.describe_holders(list(waiting))
                show_note(
                    f"waiting for {len(waiting)} {noun} that others make: {holders}"
                )
                interrupts.pause(CLAIM_POLL_SECONDS)
                interrupts.check_unless_finishing()


def get_or_create(
    wanted: Mapping[str, Wanted],
    store: Store,
    *,
    record: type[R],
    key: Callable[[R], str],
    make: Callable[[Sequence[Wanted]], Iterator[R]],
    noun: str,
) -> Generator[R]:
    """Share what takes hours and is not billed: each answer is committed as it is made, and what
    `make` leaves out has no answer."""
    failed: set[str] = set()

    def create(mine: Mapping[str, Wanted], claims: Claims) -> Iterator[R]:
        unanswered = set(mine)
        for answer in store.keep(make(list(mine.values())), key=key):
            unanswered.discard(key(answer))
            yield answer
        failed.update(unanswered)

    return make_once(
        wanted, store, record=record, key=key, make=create, failed=failed, noun=noun
    )
