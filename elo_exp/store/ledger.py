"""The batches that were, or may have been, submitted: so that a crash at any moment pays for nothing twice.

    intended   written before the request leaves; whether the server has it is not known yet
    submitted  the server has given it an id
    settled    every result is in, each answer in the store
    abandoned  certainly not accepted, or given up by the user: its queries may be submitted again

A batch is never submitted anew on a doubt. One that stays without an id is looked for among the server's batches
(batches.py): by its size, which is unlike that of every other unresolved batch, and by the nonce in its custom ids.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elo_exp.records import JudgeReply, UserError, storable_json
from elo_exp.results import Usage
from elo_exp.store.claims import OPEN
from elo_exp.store.store import Store

CANCELLED = "cancelled by the user"
_PENDING = (
    f"SELECT key FROM queries JOIN batches USING (nonce) WHERE state IN {OPEN} AND outcome IS NULL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    nonce: str  # starts every custom id of the batch: the proof that it is ours
    owner: str
    endpoint: str
    judge_model: str
    state: str
    size: int
    reserve: float  # the most that it may cost, in dollars
    ttl: str | None  # of the prompt cache
    high_water: str | None  # the newest batch on the server when it was intended
    batch_id: str | None
    created_at: float  # seconds since 1970, by this machine's clock
    settled_at: float | None = None
    note: str | None = None

    def custom_id(self, key: str) -> str:
        return f"{self.nonce}-{key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One request of a batch: its key, and what it asks about in the words of a JudgeReply."""

    key: str
    names: Mapping[str, str]


class Ledger:
    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner

    @property
    def usage(self) -> Usage:
        return self._store.usage

    def intend(
        self,
        queries: Sequence[Query],
        *,
        endpoint: str,
        judge_model: str,
        reserve: float,
        ttl: str | None,
        high_water: str | None,
        now: float,
    ) -> Batch | None:
        """Write down what is about to be submitted. None, and nothing written, where an unresolved batch has the same
        size. Raises UserError where a claim has been lost: this process slept, and another took over."""
        batch = Batch(
            nonce=secrets.choice("abcdf")
            + secrets.token_hex(4)[1:],  # no option of a command reads it as a number
            owner=self._owner,
            endpoint=endpoint,
            judge_model=judge_model,
            state="intended",
            size=len(queries),
            reserve=reserve,
            ttl=ttl,
            high_water=high_water,
            batch_id=None,
            created_at=now,
        )
        with self._store.transaction() as db:
            alike = "SELECT 1 FROM batches WHERE state = 'intended' AND size = ? AND endpoint = ?"
            if db.execute(alike, (batch.size, endpoint)).fetchone():
                return None
            ours = f"SELECT key FROM claims WHERE owner = ? EXCEPT {_PENDING}"
            claimed = {key for (key,) in db.execute(ours, (self._owner,))}
            if not all(query.key in claimed for query in queries):
                raise UserError(
                    "another process has taken over some of this run's queries, as if this one had died. Nothing more "
                    "is submitted; the same command goes on."
                )
            fields = ", ".join(Batch.__slots__)
            marks = ", ".join("?" * len(Batch.__slots__))
            values = [getattr(batch, name) for name in Batch.__slots__]
            db.execute(f"INSERT INTO batches ({fields}) VALUES ({marks})", values)
            rows = ((batch.nonce, query.key, storable_json(query.names)) for query in queries)
            db.executemany("INSERT INTO queries (nonce, key, names) VALUES (?, ?, ?)", rows)
        return batch

    def submitted(self, batch: Batch, batch_id: str) -> None:
        """The server has it. Also where it was given up meanwhile: what is paid for is collected."""
        self._change(
            batch,
            "state = 'submitted', batch_id = ?",
            "state IN ('intended', 'abandoned')",
            batch_id,
        )

    def abandon(self, batch: Batch, why: str) -> bool:
        """Let its queries be submitted again. False, and nothing changed, where the batch is no longer this process's
        to give up: another has taken it over, and may have found it."""
        return self._change(
            batch,
            "state = 'abandoned', note = ?",
            "state = 'intended' AND owner = ?",
            why,
            self._owner,
        )

    def give_up(self, batch: Batch, why: str) -> None:
        """Let its queries be submitted again, whatever has become of it: the user says so."""
        self._change(batch, "state = 'abandoned', note = ?", f"state IN {OPEN}", why)

    def note(self, batch: Batch, note: str) -> None:
        self._change(batch, "note = ?", f"state IN {OPEN}", note)

    def _change(self, batch: Batch, what: str, provided: str, *values: object) -> bool:
        given = what.count("?")
        with self._store.transaction() as db:
            changed = db.execute(
                f"UPDATE batches SET {what} WHERE nonce = ? AND {provided}",
                (*values[:given], batch.nonce, *values[given:]),
            )
            return changed.rowcount == 1

    def record(
        self,
        batch: Batch,
        outcomes: Mapping[str, str],
        replies: Sequence[JudgeReply],
        *,
        now: float,
    ) -> tuple[set[str], list[JudgeReply]]:
        """Commit some of a batch's results in one transaction: the outcome of each key ('succeeded', or why not), and
        the answers, which are then no longer claimed. With the last outcome the batch is settled.

        The keys whose outcome was not known before; and the answers, which are earlier ones where there were any.
        """
        with self._store.transaction() as db:
            new = {key for key, outcome in outcomes.items() if _mark(db, batch.nonce, key, outcome)}
            n_added = self._store.put(replies, key=lambda reply: reply.key)
            db.execute(
                f"UPDATE batches SET state = 'settled', settled_at = ? WHERE nonce = ? AND state IN {OPEN} AND "
                "NOT EXISTS (SELECT 1 FROM queries WHERE queries.nonce = batches.nonce AND outcome IS NULL)",
                (now, batch.nonce),
            )
        for reply in replies:
            if reply.key in new:
                self._store.usage.count(reply)
        if n_added < len(replies):
            stored = self._store.get(JudgeReply, [reply.key for reply in replies])
            return new, [stored[reply.key] for reply in replies]
        return new, list(replies)

    def under_way(self) -> list[Batch]:
        """This process's batches whose results are still to come, oldest first."""
        return [
            b
            for b in self.batches()
            if b.owner == self._owner and b.state in ("intended", "submitted")
        ]

    def batches(self) -> list[Batch]:
        rows = self._store.read(
            f"SELECT {', '.join(Batch.__slots__)} FROM batches ORDER BY created_at, rowid"
        )
        return [Batch(**dict(zip(Batch.__slots__, row, strict=True))) for row in rows]

    def find(self, nonce: str) -> Batch:
        return next(batch for batch in self.batches() if batch.nonce == nonce)

    def queries(self, batch: Batch) -> dict[str, Query]:
        """The queries of a batch by key."""
        rows = self._store.read("SELECT key, names FROM queries WHERE nonce = ?", (batch.nonce,))
        return {key: Query(key=key, names=json.loads(names)) for key, names in rows}

    def pending(self, endpoint: str | None = None) -> set[str]:
        """The keys in batches, of whichever process, whose results are still to come; of one endpoint, or all."""
        if endpoint is None:
            return {key for (key,) in self._store.read(_PENDING)}
        return {key for (key,) in self._store.read(f"{_PENDING} AND endpoint = ?", (endpoint,))}

    def outcomes(self, batch: Batch) -> dict[str, int]:
        """How many queries of a batch ended how; those without a result are 'pending'."""
        rows = self._store.read(
            "SELECT COALESCE(outcome, 'pending'), COUNT(*) FROM queries WHERE nonce = ? GROUP BY 1",
            (batch.nonce,),
        )
        return dict(rows)


def _mark(db: sqlite3.Connection, nonce: str, key: str, outcome: str) -> bool:
    """Note how a query ended; False if that was known."""
    changed = db.execute(
        "UPDATE queries SET outcome = ? WHERE nonce = ? AND key = ? AND outcome IS NULL",
        (outcome, nonce, key),
    )
    return changed.rowcount == 1
