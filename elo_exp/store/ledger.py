"""The batches that were, or may have been, submitted: so that a crash at any moment pays for
nothing twice.

    intended   written before the request leaves; whether the server has it is not known yet
    submitted  the server has given it an id
    settled    every result is in, each answer in the store
    abandoned  certainly not accepted, or given up by the user: its queries may be submitted again

A batch is never submitted anew on a doubt. One that stays without an id is looked for among the
server's batches (api/batches.py): by its size, which is unlike that of every other unresolved
batch, and by the nonce in its custom ids.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from elo_exp.records import Record, UserError, storable_json
from elo_exp.store.claims import OPEN, PENDING
from elo_exp.store.store import Store
from elo_exp.store.usage import Usage

CANCELLED = "cancelled by the user"


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


R = TypeVar("R", bound=Record)


_FIELDS = tuple(field.name for field in dataclasses.fields(Batch))


class Ledger:
    """The batches of all processes, and what the one that calls itself `owner` may do about
    them."""

    def __init__(self, store: Store, owner: str = "") -> None:
        self._store = store
        self._owner = owner

    @property
    def usage(self) -> Usage:
        return self._store.usage

    def intend(
        self,
        names: Mapping[str, Mapping[str, Any]],
        *,
        endpoint: str,
        judge_model: str,
        reserve: float,
        ttl: str | None,
        high_water: str | None,
        now: float,
    ) -> Batch | None:
        """Write down what is about to be submitted: what each request asks about, by the key of its
        answer.

        None, and nothing written, where an unresolved batch has the same size. Raises UserError
        where a claim has been lost: this process slept, and another took over.
        """
        batch = Batch(
            nonce=secrets.choice("abcdf")
            + secrets.token_hex(4)[1:],  # no option of a command reads it as a number
            owner=self._owner,
            endpoint=endpoint,
            judge_model=judge_model,
            state="intended",
            size=len(names),
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
            ours = f"SELECT key FROM claims WHERE owner = ? EXCEPT {PENDING}"
            claimed = {key for (key,) in db.execute(ours, (self._owner,))}
            if not names.keys() <= claimed:
                raise UserError(
                    "another process has taken over some of this run's queries, as if this one had "
                    "died. Nothing more "
                    "is submitted; the same command goes on."
                )
            marks = ", ".join("?" * len(_FIELDS))
            values = [getattr(batch, name) for name in _FIELDS]
            db.execute(
                f"INSERT INTO batches ({', '.join(_FIELDS)}) VALUES ({marks})", values
            )
            rows = (
                (batch.nonce, key, storable_json(about)) for key, about in names.items()
            )
            db.executemany(
                "INSERT INTO queries (nonce, key, names) VALUES (?, ?, ?)", rows
            )
        return batch

    def submitted(self, batch: Batch, batch_id: str) -> None:
        """The server has it. Also where it was given up meanwhile: what is paid for is
        collected."""
        self._change(
            batch,
            "state = 'submitted', batch_id = ?",
            "state IN ('intended', 'abandoned')",
            batch_id,
        )

    def abandon(self, batch: Batch, why: str) -> bool:
        """Let its queries be submitted again. False, and nothing changed, where the batch is no
        longer this process's to give up: another has taken it over, and may have found it."""
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
        answers: Mapping[str, R],
        *,
        now: float,
    ) -> tuple[set[str], dict[str, R]]:
        """Commit some of a batch's results in one transaction: the outcome of each key
        ('succeeded', or why not), and the answers by key, which are then no longer claimed. With
        the last outcome the batch is settled.

        The keys whose outcome was not known before; and the answers, which are earlier ones where
        there were any.
        """
        mark = "UPDATE queries SET outcome = ? WHERE nonce = ? AND key = ? AND outcome IS NULL"
        with self._store.transaction() as db:
            new = {
                key
                for key, outcome in outcomes.items()
                if db.execute(mark, (outcome, batch.nonce, key)).rowcount == 1
            }
            n_added = self._store.put(answers)
            db.execute(
                "UPDATE batches SET state = 'settled', settled_at = ? WHERE nonce = ? AND state "
                f"IN {OPEN} AND "
                "NOT EXISTS (SELECT 1 FROM queries WHERE queries.nonce = batches.nonce AND outcome "
                "IS NULL)",
                (now, batch.nonce),
            )
        for key, answer in answers.items():
            if key in new:
                self._store.usage.count(answer)
        return new, self._store.first(answers, n_added)

    def under_way(self) -> list[Batch]:
        """This process's batches whose results are still to come, oldest first."""
        return [
            b
            for b in self.batches()
            if b.owner == self._owner and b.state in ("intended", "submitted")
        ]

    def batches(self) -> list[Batch]:
        rows = self._store.read(
            f"SELECT {', '.join(_FIELDS)} FROM batches ORDER BY created_at, rowid"
        )
        return [Batch(**dict(zip(_FIELDS, row, strict=True))) for row in rows]

    def find(self, nonce: str) -> Batch:
        return next(batch for batch in self.batches() if batch.nonce == nonce)

    def names(self, batch: Batch) -> dict[str, Mapping[str, Any]]:
        """What each request of a batch asks about, by the key of its answer."""
        rows = self._store.read(
            "SELECT key, names FROM queries WHERE nonce = ?", (batch.nonce,)
        )
        return {key: json.loads(names) for key, names in rows}

    def pending(self, endpoint: str | None = None) -> set[str]:
        """The keys in batches, of whichever process, whose results are still to come; of one
        endpoint, or all."""
        if endpoint is None:
            return {key for (key,) in self._store.read(PENDING)}
        return {
            key
            for (key,) in self._store.read(f"{PENDING} AND endpoint = ?", (endpoint,))
        }

    def outcomes(self, batch: Batch) -> dict[str, int]:
        """How many queries of a batch ended how; those without a result are 'pending'."""
        rows = self._store.read(
            "SELECT COALESCE(outcome, 'pending'), COUNT(*) FROM queries WHERE nonce = ? GROUP BY 1",
            (batch.nonce,),
        )
        return dict(rows)
