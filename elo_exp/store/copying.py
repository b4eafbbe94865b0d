"""A whole store copied into an empty one, whichever engine keeps either."""

from collections.abc import Iterator, Mapping
from itertools import islice, zip_longest
from typing import Any

from elo_exp.errors import SettingError, UserError
from elo_exp.store.admin import count_open_batches
from elo_exp.store.answer_store import Store, count_answers
from elo_exp.store.claims import Claims
from elo_exp.store.database import Database

# What is copied beside the answers: columns, and the order in which the rows came, where it counts. Claims and the
# processes that hold them are not: nobody is at work.
_COPIED_TABLES: Mapping[str, tuple[str, str]] = {
    "judges": ("key, judge_model, reads", "rowid"),
    "designs": ("key, queries, n_seen", "key"),
    "looks": ("key, verdicts, leader, shown_at", "shown_at, key"),
    "batches": (
        "nonce, owner, endpoint, judge_model, state, size, reserve, ttl, high_water, batch_id, created_at, settled_at, "
        "note",
        "rowid",
    ),
    "queries": ("nonce, key, names, outcome", "nonce, key"),
    "losses": ("key, owner, dollars, at, why", "at, key"),
    "charges": ("name, scopes, dollars", "name"),
    "spending": ("scope, dollars", "scope"),
    "commands": ("folder, command", "folder"),
}
_ROWS_PER_INSERT = 5000


def copy_store(source: Store, target: Store) -> dict[str, int]:
    """Copy all that a store holds, in one transaction; return how many rows each table has.

    Raises SettingError, and copies nothing, where the other store holds something, and where somebody is at work in this one
    or has left batches under way: an answer that came later would be in this one alone, and be paid for again.
    """
    if source.name == target.name:
        raise SettingError.bad_value(
            "store.to", target.name, "be another store than the one in use"
        )
    _check_idle(source)
    _check_empty(target)
    answers = "SELECT key, kind, value, created_at FROM answers"
    return source.read_with(
        lambda ours: target.write(
            lambda theirs: _copy_rows(ours, theirs),
            incoming=lambda: ours.iterate_rows(answers),
        )
    )


def _check_idle(store: Store) -> None:
    with Claims(store):
        pass  # at its end it forgets the dead
    if owners := store.query("SELECT host, pid FROM owners ORDER BY host, pid"):
        processes = ", ".join(f"process {pid} on {host}" for host, pid in owners)
        raise UserError(
            f"{store.name} cannot be copied while a run uses it: {processes} does, or did minutes ago."
        )
    if n := store.read_with(count_open_batches):
        raise UserError(
            f"{n} batches of {store.name} are still under way. Collect them first:",
            "  python -m elo_exp experiment=store store.action=wait",
        )


def _check_empty(store: Store) -> None:
    ((n,),) = store.query("SELECT COUNT(*) FROM answers")
    tables = [
        table
        for table in _COPIED_TABLES
        if store.query(f"SELECT 1 FROM {table} LIMIT 1")
    ]
    if n or tables:
        raise SettingError(
            f"store.to must be an empty store, in a new database or schema; {store.name} holds {n:,} "
            f"answers{' and more' * bool(tables)}.",
            "  To bring answers into a store that is in use, run:",
            "  python -m elo_exp experiment=store store.action=merge store.file=FILE store=URL",
        )


def _copy_rows(ours: Database, theirs: Database) -> dict[str, int]:
    added = theirs.execute("INSERT INTO answers SELECT * FROM incoming")
    count_answers(theirs, added.rowcount)
    for table, (columns, order) in _COPIED_TABLES.items():
        marks = ", ".join("?" * (columns.count(",") + 1))
        insert = f"INSERT INTO {table} ({columns}) VALUES ({marks})"
        rows = ours.iterate_rows(f"SELECT {columns} FROM {table} ORDER BY {order}")
        while chunk := list(islice(rows, _ROWS_PER_INSERT)):
            theirs.executemany(insert, chunk)
    counts = [
        {
            table: int(db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])
            for table in ("answers", *_COPIED_TABLES)
        }
        for db in (ours, theirs)
    ]
    if counts[0] != counts[1] or any(
        our_key != their_key
        for our_key, their_key in zip_longest(
            _iterate_keys(ours), _iterate_keys(theirs)
        )
    ):
        raise UserError(
            "The store was changed while it was copied, so nothing was copied. Copy it when no run uses it."
        )
    return counts[1]


def _iterate_keys(db: Database) -> Iterator[tuple[Any, ...]]:
    return db.iterate_rows("SELECT key FROM answers ORDER BY key")
