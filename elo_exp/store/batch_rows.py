"""Rows of the ledger of batches: statements within a transaction."""

import dataclasses
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elo_exp.masking import mask_text
from elo_exp.records import storable_json
from elo_exp.store.claims import PENDING_KEYS_SQL
from elo_exp.store.database import Database, escape_unstorable


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A row of the ledger.

    nonce       starts every custom id of the batch: the proof that it is ours
    reserve     the most that it may cost, in dollars
    ttl         of the prompt cache
    high_water  the newest batch on the server when it was intended
    batch_id    the server's own: another server may give the same
    created_at  seconds since 1970, by this machine's clock
    """

    nonce: str
    owner: str
    endpoint: str
    judge_model: str
    state: str
    size: int
    reserve: float
    ttl: str | None
    high_water: str | None
    batch_id: str | None
    created_at: float
    settled_at: float | None = None
    note: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether results are still to come."""
        return self.state in ("intended", "submitted")

    def custom_id(self, key: str) -> str:
        return f"{self.nonce}-{key}"


_COLUMNS = [field.name for field in dataclasses.fields(Batch)]
_INSERT_BATCH = (
    f"INSERT INTO batches ({', '.join(_COLUMNS)}) "
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)


def list_batches(db: Database) -> list[Batch]:
    """Return every batch, oldest first."""
    query = f"SELECT {', '.join(_COLUMNS)} FROM batches ORDER BY created_at, rowid"
    rows = db.execute(query).fetchall()
    return [Batch(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def insert_batch(db: Database, batch: Batch, *, skip_known: bool = False) -> bool:
    """Add a batch and return True.

    skip_known  whether to return False if it is there already; else that is an error of the database
    """
    values = [*dataclasses.asdict(batch).values()]
    on_conflict = " ON CONFLICT DO NOTHING" * skip_known
    return db.execute(f"{_INSERT_BATCH}{on_conflict}", values).rowcount == 1


def insert_queries(
    db: Database, nonce: str, names: Mapping[str, Mapping[str, Any]]
) -> None:
    """Add the requests of a batch: what each asks about, by the key of its answer."""
    db.executemany(
        "INSERT INTO queries (nonce, key, names) VALUES (?, ?, ?)",
        [(nonce, key, storable_json(about)) for key, about in names.items()],
    )


def update_batch(
    db: Database, batch: Batch, condition: str, *condition_values: str, **values: str
) -> bool:
    """Update columns of a batch if a condition in SQL holds; `condition_values` are its parameters."""
    if "note" in values:  # what a server has said
        values["note"] = mask_text(values["note"])
    new = ", ".join(f"{name} = ?" for name in values)
    result = db.execute(
        f"UPDATE batches SET {new} WHERE nonce = ? AND {condition}",
        [*map(escape_unstorable, values.values()), batch.nonce, *condition_values],
    )
    return result.rowcount == 1


def delete_given_up(db: Database, nonce: str) -> None:
    """Delete a batch that was given up because nobody knew of it, with its queries."""
    given_up_sql = "state = 'abandoned' AND batch_id IS NULL"
    for table in ("queries", "batches"):
        db.execute(
            f"DELETE FROM {table} WHERE nonce = ? AND nonce IN "
            f"(SELECT nonce FROM batches WHERE {given_up_sql})",
            (nonce,),
        )


def find_free_size(db: Database, endpoint: str, n_requests: int) -> int | None:
    """Return the largest size, up to all requests, that no unresolved batch has; None if there is none."""
    query = "SELECT size FROM batches WHERE state = 'intended' AND endpoint = ?"
    unresolved_sizes = {size for (size,) in db.execute(query, (endpoint,)).fetchall()}
    free_sizes = [n for n in range(1, n_requests + 1) if n not in unresolved_sizes]
    return max(free_sizes, default=None)


def read_claimed_keys(db: Database, owner: str) -> set[str]:
    """Return the keys that a process has claimed, and that are in no batch under way."""
    query = f"SELECT key FROM claims WHERE owner = ? EXCEPT {PENDING_KEYS_SQL}"
    return {key for (key,) in db.execute(query, (owner,)).fetchall()}


def make_nonce(db: Database, mark: str) -> str:
    """Return a name for a batch, unlike all others in the store, that no option of a command reads as a number."""
    while True:
        nonce = secrets.choice("abcdf") + secrets.token_hex(2) + mark
        if not db.execute("SELECT 1 FROM batches WHERE nonce = ?", (nonce,)).fetchone():
            return nonce
