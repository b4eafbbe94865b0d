"""The batches that were, or may have been, submitted: a crash at any moment pays for nothing twice.

    intended   written before the request leaves; whether the server has it is not known yet
    submitted  the server has given it an id
    settled    every result is in, each answer in the store
    abandoned  certainly not accepted, or given up by the user: its queries may be submitted again

A batch is never submitted anew on a doubt. One that stays without an id is looked for among the
server's batches (api/batches.py): by its size, which is unlike that of every other unresolved
batch, and by the nonce in its custom ids. Only the list of the account that it went to can say that it never arrived.
"""

import dataclasses
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from elo_exp.errors import UserError
from elo_exp.masking import mask_text
from elo_exp.records import Record, storable_json
from elo_exp.store import caps
from elo_exp.store.answer_store import Store
from elo_exp.store.claims import OPEN_STATES_SQL, PENDING_KEYS_SQL
from elo_exp.store.database import Database, escape_unstorable

CANCELLED_NOTE = "cancelled by the user"
CONFIRMED_ACCOUNT = (
    "confirmed by the user"  # in place of an account: it is that of any key
)

R = TypeVar("R", bound=Record)


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


class Ledger:
    """The batches of all processes, and what the one that calls itself `owner` may do about
    them."""

    def __init__(self, store: Store, owner: str = "") -> None:
        self.store = store
        self._owner = owner

    def record_intent(
        self,
        names: Mapping[str, Mapping[str, Any]],
        reserves: Sequence[float],
        *,
        endpoint: str,
        judge_model: str,
        ttl: str | None,
        high_water: str | None,
        now: float,
        account: str | None = None,
    ) -> Batch | None:
        """Write down what is about to be submitted: the first of these requests, as many as no
        unresolved batch has.

        names     what each request asks about, by the key of its answer
        reserves  the most that each may cost, in dollars
        account   whose batch it is, by `Store.account_hash`

        None, and nothing written, where there is no such number. Raises UserError where a claim has
        been lost: this process slept, and another took over; OverCapError where a cap of the store has
        no room for them.
        """

        mark = self.store.nonce_suffix

        def write_intent(db: Database) -> Batch | None:
            query = "SELECT size FROM batches WHERE state = 'intended' AND endpoint = ?"
            unresolved_sizes = {
                size for (size,) in db.execute(query, (endpoint,)).fetchall()
            }
            free_sizes = [
                n for n in range(1, len(names) + 1) if n not in unresolved_sizes
            ]
            if not free_sizes:
                return None
            size = free_sizes[-1]
            chosen = dict(islice(names.items(), size))
            claimed_query = (
                f"SELECT key FROM claims WHERE owner = ? EXCEPT {PENDING_KEYS_SQL}"
            )
            claimed = {
                key for (key,) in db.execute(claimed_query, (self._owner,)).fetchall()
            }
            if not chosen.keys() <= claimed:
                raise UserError(
                    "another process has taken over some of this run's queries, as if this one had "
                    "died. Nothing more is submitted; the same command goes on."
                )
            nonce = _new_nonce(db, mark)
            batch = Batch(
                nonce=nonce,
                owner=self._owner,
                endpoint=endpoint,
                judge_model=judge_model,
                state="intended",
                size=size,
                reserve=sum(reserves[:size]),
                ttl=ttl,
                high_water=high_water,
                batch_id=None,
                created_at=now,
            )
            db.execute(_INSERT_BATCH, [*dataclasses.asdict(batch).values()])
            caps.reserve_charge(db, self.store.account, nonce, batch.reserve)
            _insert_queries(db, nonce, chosen)
            if account is not None:
                row = (nonce, account)
                db.execute("INSERT INTO accounts VALUES (?, ?)", row)
            return batch

        return self.store.write(write_intent, is_paid=True)

    def adopt(
        self,
        names: Mapping[str, Mapping[str, Any]],
        *,
        nonce: str,
        batch_id: str,
        endpoint: str,
        judge_model: str,
        cost: float,
        now: float,
    ) -> Batch | None:
        """Write down a batch of this store's that the server has, and that the store does not know, or has given up because
        nobody knew. None, and nothing written, if it was known meanwhile.

        cost  of its results, in dollars: it was paid, whatever the caps are now
        """
        batch = Batch(
            nonce=nonce,
            owner=self._owner,
            endpoint=endpoint,
            judge_model=judge_model,
            state="submitted",
            size=len(names),
            reserve=cost,
            ttl=None,
            high_water=None,
            batch_id=escape_unstorable(batch_id),
            created_at=now,
        )

        def write_adoption(db: Database) -> Batch | None:
            values = [*dataclasses.asdict(batch).values()]
            given_up_sql = "state = 'abandoned' AND batch_id IS NULL"
            for table in ("queries", "batches"):
                db.execute(
                    f"DELETE FROM {table} WHERE nonce = ? AND nonce IN "
                    f"(SELECT nonce FROM batches WHERE {given_up_sql})",
                    (nonce,),
                )
            if not db.execute(
                f"{_INSERT_BATCH} ON CONFLICT DO NOTHING", values
            ).rowcount:
                return None
            caps.charge_past_caps(db, self.store.account, nonce, cost)
            _insert_queries(db, nonce, names)
            return batch

        return self.store.write(write_adoption, is_paid=True)

    def find_account(self, batch: Batch) -> str | None:
        """Return whose batch it is, as `intend` was told; CONFIRMED if a user says that every key is of that account; None
        if it was not noted."""
        query = "SELECT account FROM accounts WHERE nonce = ?"
        rows = self.store.query(query, (batch.nonce,))
        return str(rows[0][0]) if rows else None

    def confirm_account(self, batch: Batch) -> None:
        """Note that the keys used from now on are of the account that a batch was submitted to: the user says so."""
        self.store.write(
            lambda db: db.execute(
                "INSERT INTO accounts VALUES (?, ?) "
                "ON CONFLICT (nonce) DO UPDATE SET account = excluded.account",
                (batch.nonce, CONFIRMED_ACCOUNT),
            )
        )

    def mark_submitted(self, batch: Batch, batch_id: str) -> None:
        """The server has it. Also where it was given up meanwhile: what is paid for is
        collected."""

        def mark_submitted(db: Database) -> None:
            not_known_sql = "state IN ('intended', 'abandoned')"
            if _update_batch(
                db, batch, not_known_sql, state="submitted", batch_id=batch_id
            ):
                caps.charge_past_caps(
                    db, self.store.account, batch.nonce, batch.reserve
                )

        self.store.write(mark_submitted, is_paid=True)

    def abandon(self, batch: Batch, why: str) -> bool:
        """Let its queries be submitted again. False, and nothing changed, where the batch is no
        longer this process's to give up: another has taken it over, and may have found it."""
        ours_sql = "state = 'intended' AND owner = ?"

        def mark_abandoned(db: Database) -> bool:
            new = {"state": "abandoned", "note": why}
            is_ours = _update_batch(db, batch, ours_sql, self._owner, **new)
            if is_ours:
                caps.settle(db, batch.nonce, 0.0)
            return is_ours

        return self.store.write(mark_abandoned)

    def give_up(self, batch: Batch, why: str) -> None:
        """Let its queries be submitted again, whatever has become of it: the user says so. It stays charged."""
        open_sql = f"state IN {OPEN_STATES_SQL}"
        self.store.write(
            lambda db: _update_batch(db, batch, open_sql, state="abandoned", note=why)
        )

    def mark_refused(self, batch: Batch, why: str) -> None:
        """Let its queries be submitted again: the server, which had accepted it, has begun none of it. Not charged."""

        def mark_refused(db: Database) -> None:
            if _update_batch(
                db, batch, f"state IN {OPEN_STATES_SQL}", state="abandoned", note=why
            ):
                caps.settle(db, batch.nonce, 0.0)

        self.store.write(mark_refused)

    def add_note(self, batch: Batch, note: str) -> None:
        self.store.write(
            lambda db: _update_batch(
                db, batch, f"state IN {OPEN_STATES_SQL}", note=note
            )
        )

    def record_results(
        self,
        batch: Batch,
        outcomes: Mapping[str, str],
        answers: Mapping[str, R],
        cost: Mapping[str, float],
        *,
        now: float,
    ) -> tuple[set[str], dict[str, R]]:
        """Commit some of a batch's results in one transaction, and with the last of them the
        batch's settlement.

        outcomes  'succeeded', or why not, by key
        answers   by key; they are then no longer claimed
        cost      in dollars, by key, or the most that it may be

        Returns the keys whose outcome was not known before; and the answers, which are earlier ones
        where there were any.
        """
        open_keys_query = (
            "SELECT key FROM queries JOIN wanted USING (key) "
            "WHERE nonce = ? AND outcome IS NULL"
        )
        set_outcome = "UPDATE queries SET outcome = ? WHERE nonce = ? AND key = ?"

        def record_results(db: Database) -> tuple[set[str], dict[str, R]]:
            db.fill_key_table("wanted", outcomes)
            rows = db.execute(open_keys_query, (batch.nonce,)).fetchall()
            new = {key for (key,) in rows}
            outcome_rows = [
                (escape_unstorable(mask_text(outcomes[key])), batch.nonce, key)
                for key in new
            ]
            db.executemany(set_outcome, outcome_rows)
            stored = self.store.put(db, answers)
            caps.pay(db, batch.nonce, sum(cost.get(key, 0.0) for key in new))
            settled = db.execute(
                "UPDATE batches SET state = 'settled', settled_at = ? "
                f"WHERE nonce = ? AND state IN {OPEN_STATES_SQL} AND NOT EXISTS "
                "(SELECT 1 FROM queries WHERE nonce = batches.nonce AND outcome IS NULL)",
                (now, batch.nonce),
            )
            if settled.rowcount:
                caps.settle(db, batch.nonce, 0.0)
            return new, stored

        # What is not committed is read again from the server
        new, stored = self.store.save(record_results, {})
        for key, answer in answers.items():
            if key in new:
                self.store.usage.add_answer(answer)
        return new, stored

    def pay(self, batch: Batch, dollars: float) -> None:
        """Charge what was paid for beside the results of a batch."""
        self.store.write(lambda db: caps.pay(db, batch.nonce, dollars))

    def list_own_open_batches(self) -> list[Batch]:
        """This process's batches whose results are still to come, oldest first."""
        return [b for b in self.batches() if b.owner == self._owner and b.is_open]

    def batches(self) -> list[Batch]:
        """Every batch, oldest first."""
        query = f"SELECT {', '.join(_COLUMNS)} FROM batches ORDER BY created_at, rowid"
        rows = self.store.query(query)
        return [Batch(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]

    def find(self, nonce: str) -> Batch:
        return next(batch for batch in self.batches() if batch.nonce == nonce)

    def read_request_names(self, batch: Batch) -> dict[str, Mapping[str, Any]]:
        """What each request of a batch asks about, by the key of its answer."""
        query = "SELECT key, names FROM queries WHERE nonce = ?"
        rows = self.store.query(query, (batch.nonce,))
        return {key: json.loads(names) for key, names in rows}

    def list_pending_keys(self, endpoint: str | None = None) -> set[str]:
        """The keys in batches, of whichever process, whose results are still to come; of one
        endpoint, or all."""
        condition, values = (" AND endpoint = ?", [endpoint]) if endpoint else ("", [])
        return {
            key for (key,) in self.store.query(f"{PENDING_KEYS_SQL}{condition}", values)
        }

    def command(self, batch: Batch) -> str | None:
        """Return the command that goes on with the run which has paid for a batch; None where it is not known."""
        return self.store.find_command(batch.nonce)

    def count_pending(self, batch: Batch) -> int:
        """Count the queries of a batch whose results are still to come."""
        query = "SELECT COUNT(*) FROM queries WHERE nonce = ? AND outcome IS NULL"
        return int(self.store.query(query, (batch.nonce,))[0][0])


def _new_nonce(db: Database, mark: str) -> str:
    """A name for a batch, unlike all others in the store, that no option of a command reads as a number."""
    while True:
        nonce = secrets.choice("abcdf") + secrets.token_hex(2) + mark
        if not db.execute("SELECT 1 FROM batches WHERE nonce = ?", (nonce,)).fetchone():
            return nonce


def same_account(account: str, other_account: str) -> bool:
    """Return whether two accounts are one: they have the same key, and no two organizations."""
    key, _, organization = account.partition("/")
    other_key, _, other_organization = other_account.partition("/")
    organizations = {organization, other_organization} - {""}
    return key == other_key and len(organizations) < 2


def _insert_queries(
    db: Database, nonce: str, names: Mapping[str, Mapping[str, Any]]
) -> None:
    db.executemany(
        "INSERT INTO queries (nonce, key, names) VALUES (?, ?, ?)",
        [(nonce, key, storable_json(about)) for key, about in names.items()],
    )


def _update_batch(
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


def describe_unresolved(batches: Iterable[Batch]) -> str:
    """Which of these may or may not have arrived, and what to do about them; empty where it is
    known of all."""
    doubtful = [
        f"{batch.nonce} ({batch.size:,} requests)"
        for batch in batches
        if batch.state == "intended"
    ]
    if not doubtful:
        return ""
    return (
        f"nobody knows whether the server has {', '.join(doubtful)}: the submission got no answer. "
        "store.action=wait looks for it, and knows after judge.quarantine_seconds; once it is "
        "found, store.action=cancel ends it."
    )
