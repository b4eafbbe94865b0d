"""The batches that were, or may have been, submitted: a crash at any moment pays for nothing twice.

    intended   written before the request leaves; whether the server has it is not known yet
    submitted  the server has given it an id
    settled    every result is in, each answer in the store
    abandoned  certainly not accepted, or given up by the user: its queries may be submitted again

A batch is never submitted anew on a doubt. One that stays without an id is looked for among the
server's batches (api/batches.py): by its size, which is unlike that of every other unresolved
batch, and by the nonce in its custom ids. Only the list of the account that it went to can say that it never arrived.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from elo_exp.errors import RESUME_HINT, UserError
from elo_exp.masking import mask_text
from elo_exp.records import Record
from elo_exp.store import caps
from elo_exp.store.answer_store import Store
from elo_exp.store.batch_accounts import insert_account
from elo_exp.store.batch_rows import (
    Batch,
    delete_given_up,
    find_free_size,
    insert_batch,
    insert_queries,
    list_batches,
    make_nonce,
    read_claimed_keys,
    update_batch,
)
from elo_exp.store.claims import OPEN_STATES_SQL, PENDING_KEYS_SQL
from elo_exp.store.database import Database, escape_unstorable

CANCELLED_NOTE = "cancelled by the user"
R = TypeVar("R", bound=Record)


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
        account   whose batch it is, by `batch_accounts.hash_account`

        None, and nothing written, where there is no such number. Raises UserError where a claim has
        been lost: this process slept, and another took over; OverCapError where a cap of the store has
        no room for them.
        """

        mark = self.store.nonce_suffix

        def write_intent(db: Database) -> Batch | None:
            size = find_free_size(db, endpoint, len(names))
            if size is None:
                return None
            chosen = dict(islice(names.items(), size))
            if not chosen.keys() <= read_claimed_keys(db, self._owner):
                raise UserError(
                    "Another process has taken over some of this run's queries, as if this one had died. Nothing more is "
                    "submitted.",
                    f"  {RESUME_HINT}",
                )
            nonce = make_nonce(db, mark)
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
            insert_batch(db, batch)
            caps.reserve_charge(db, self.store.account, nonce, batch.reserve)
            insert_queries(db, nonce, chosen)
            if account is not None:
                insert_account(db, nonce, account)
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
            delete_given_up(db, nonce)
            if not insert_batch(db, batch, skip_known=True):
                return None
            caps.charge_past_caps(db, self.store.account, nonce, cost)
            insert_queries(db, nonce, names)
            return batch

        return self.store.write(write_adoption, is_paid=True)

    def mark_submitted(self, batch: Batch, batch_id: str) -> None:
        """The server has it. Also where it was given up meanwhile: what is paid for is
        collected."""

        def mark_submitted(db: Database) -> None:
            not_known_sql = "state IN ('intended', 'abandoned')"
            if update_batch(
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
            is_ours = update_batch(db, batch, ours_sql, self._owner, **new)
            if is_ours:
                caps.settle(db, batch.nonce, 0.0)
            return is_ours

        return self.store.write(mark_abandoned)

    def give_up(self, batch: Batch, why: str) -> None:
        """Let its queries be submitted again, whatever has become of it: the user says so. It stays charged."""
        open_sql = f"state IN {OPEN_STATES_SQL}"
        self.store.write(
            lambda db: update_batch(db, batch, open_sql, state="abandoned", note=why)
        )

    def mark_refused(self, batch: Batch, why: str) -> None:
        """Let its queries be submitted again: the server, which had accepted it, has begun none of it. Not charged."""

        def mark_refused(db: Database) -> None:
            if update_batch(
                db, batch, f"state IN {OPEN_STATES_SQL}", state="abandoned", note=why
            ):
                caps.settle(db, batch.nonce, 0.0)

        self.store.write(mark_refused)

    def add_note(self, batch: Batch, note: str) -> None:
        self.store.write(
            lambda db: update_batch(db, batch, f"state IN {OPEN_STATES_SQL}", note=note)
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
        return self.store.read_with(list_batches)

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

    def count_pending(self, batch: Batch) -> int:
        """Count the queries of a batch whose results are still to come."""
        query = "SELECT COUNT(*) FROM queries WHERE nonce = ? AND outcome IS NULL"
        return int(self.store.query(query, (batch.nonce,))[0][0])


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
        f"It is not known whether the server has {', '.join(doubtful)}: the submission got no answer. "
        "store.action=wait looks for it until judge.quarantine_seconds have passed. When it is found, store.action=cancel "
        "ends it."
    )
