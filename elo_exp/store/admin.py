"""What a store holds: counted, exported, brought in, merged, purged."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elo_exp.files import read_jsonl, utc_now, write_jsonl
from elo_exp.records import (
    ForcedLogprob,
    JudgeReply,
    Record,
    Response,
    UserError,
    storable_json,
)
from elo_exp.store.claims import OPEN
from elo_exp.store.store import APPLICATION_ID, SCHEMA_VERSION, Store

KINDS: Mapping[str, type[Record]] = {
    kind.__name__: kind for kind in (Response, JudgeReply, ForcedLogprob)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which answers are meant; None: whichever. An entrant's are its responses, and the verdicts it
    takes part in."""

    judge: str | None = None
    entrant: str | None = None
    rubric: str | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in asdict(self).values())

    def where(self) -> tuple[str, list[str]]:
        """The condition in SQL, and its values."""
        parts, values = ["1"], []
        if self.judge is not None:
            parts.append(f"{_of('judge_model')} = ?")
            values.append(self.judge)
        if self.rubric is not None:
            parts.append(f"{_of('dimension')} = ?")
            values.append(self.rubric)
        if self.entrant is not None:
            parts.append(
                f"? IN ({_of('entrant_id')}, {_of('entrant_a')}, {_of('entrant_b')})"
            )
            values.append(self.entrant)
        return " AND ".join(parts), values


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSummary:
    """So many answers of one kind, by one entrant or one judge on one dimension; of a judge's,
    those on one response by itself are of the kind Score."""

    kind: str
    source: str | None
    dimension: str | None
    n: int
    dollars: float


def _of(field: str) -> str:
    """A field of an answer, in SQL."""
    return f"json_extract(value, '$.{field}')"


_PAID = f"COALESCE({_of('dollars')}, {_of('diagnostics.dollars')})"  # of a verdict, and of a response


def count(store: Store, chosen: Filter) -> list[StoreSummary]:
    where, values = chosen.where()
    rows = store.read(
        f"SELECT CASE WHEN {_of('entrant_a')} IS NOT NULL AND {_of('entrant_b')} IS NULL THEN "
        "'Score' ELSE kind END, "
        f"COALESCE({_of('judge_model')}, {_of('entrant_id')}) AS source, "
        f"{_of('dimension')} AS dimension, COUNT(*), COALESCE(SUM({_PAID}), 0.0) FROM answers "
        f"WHERE {where} GROUP BY 1, 2, 3 ORDER BY 1 DESC, 2, 3",
        values,
    )
    return [
        StoreSummary(
            kind=kind, source=source, dimension=dimension, n=n, dollars=dollars
        )
        for kind, source, dimension, n, dollars in rows
    ]


def losses(store: Store) -> tuple[int, float]:
    """How many single calls got no answer that may have been billed, and the most they cost."""
    query = (
        "SELECT COUNT(*), COALESCE(SUM(dollars), 0.0) FROM losses WHERE why IS NOT NULL"
    )
    ((n, dollars),) = store.read(query)
    return int(n), float(dollars)


def export(store: Store, path: Path, chosen: Filter) -> int:
    """Write the answers as JSON lines; how many they are. Raises UserError for a name that no such
    file has."""
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise UserError(
            f"store.file: found {path}. Expected a name that ends in .jsonl or .jsonl.gz."
        )
    where, values = chosen.where()
    (n,) = store.read(f"SELECT COUNT(*) FROM answers WHERE {where}", values)[0]
    write_jsonl(path, _rows(store, where, values))
    return int(n)


def _rows(store: Store, where: str, values: list[str]) -> Iterator[dict[str, Any]]:
    for key, kind, value, created_at in store.read(
        f"SELECT key, kind, value, created_at FROM answers WHERE {where} ORDER BY created_at, key",
        values,
    ):
        yield {
            "key": key,
            "kind": kind,
            "created_at": created_at,
            "value": json.loads(value),
        }


def load(store: Store, path: Path) -> tuple[int, int]:
    """Bring in exported answers; what is there already stays. How many rows there were, and how
    many were new.

    Raises UserError for the first row that is not an exported answer, and then brings in nothing.
    """
    rows = [_checked(place, row) for place, row in read_jsonl(path)]
    with store.transaction() as db:
        n_new = db.executemany(
            "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", rows
        ).rowcount
    return len(rows), n_new


def _checked(place: str, row: dict[str, Any]) -> tuple[str, str, str, str]:
    try:
        key, kind, value = row["key"], row["kind"], row["value"]
        answer = KINDS[kind].from_dict(value)
        if not isinstance(key, str) or (
            isinstance(answer, JudgeReply) and answer.key != key
        ):
            raise KeyError("key")
        _check_answer(answer)
        if (
            not 0
            <= float(
                value.get("dollars", (value.get("diagnostics") or {}).get("dollars", 0))
            )
            < math.inf
        ):
            raise ValueError("its dollars are none")
        return key, kind, storable_json(value), str(row.get("created_at") or utc_now())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{place}: not an exported answer ({error}). Expected key, kind ({', '.join(KINDS)}) "
            "and value, as "
            "store.action=export writes them. Nothing was brought in."
        ) from None


def _check_answer(answer: Record) -> None:
    """Raise TypeError where what it says is not of the type that it should be."""
    match answer:
        case JudgeReply(text=str()) | Response(response_text=str()):
            return
        case ForcedLogprob(total_logprob=float() | None):
            return
    raise TypeError("what it says is of another type")


def merge(store: Store, path: Path) -> tuple[int, int]:
    """Bring in the answers of another store; how many it has, and how many were new.

    Raises UserError where batches are still under way there: whoever merged now would pay for them
    again.
    """
    if path.resolve() == store.path.resolve():
        raise UserError(
            f"store.file: {path} is this store itself. Expected another one."
        )
    if not path.is_file():
        raise UserError(
            f"store.file: found no file {path}. Expected the store.sqlite of another cache_dir."
        )
    try:
        other = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            rows, judges = _answers_of(other, path), _judges_of(other)
        finally:
            other.close()
    except sqlite3.Error as error:
        raise UserError(
            f"store.file: {path} cannot be read as a store ({error})."
        ) from None
    with store.transaction() as db:
        n_new = db.executemany(
            "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", rows
        ).rowcount
        db.executemany("INSERT OR IGNORE INTO judges VALUES (?, ?, ?)", judges)
    return len(rows), n_new


def _judges_of(db: sqlite3.Connection) -> list[tuple[str, str, str]]:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return (
        db.execute("SELECT key, judge_model, reads FROM judges").fetchall()
        if version > 2
        else []
    )


def _answers_of(db: sqlite3.Connection, path: Path) -> list[tuple[str, str, str, str]]:
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise UserError(f"store.file: {path} is the database of another program.")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise UserError(
            f"store.file: {path} was written by a newer elo_exp. Upgrade elo_exp."
        )
    if version > 1:
        (n_open,) = db.execute(
            f"SELECT COUNT(*) FROM batches WHERE state IN {OPEN}"
        ).fetchone()
        if n_open:
            raise UserError(
                f"store.file: {n_open} batches of {path} are still under way. Collect them first: "
                f"experiment=store store.action=wait cache_dir={path.parent}"
            )
    return db.execute("SELECT key, kind, value, created_at FROM answers").fetchall()


def purge(store: Store, chosen: Filter) -> tuple[int, Path]:
    """Take answers out of the store, into a file beside it that can be brought in again; how many,
    and the file.

    Queries of theirs that are under way stay: their answers come back when they are collected.
    """
    where, values = chosen.where()
    stamp = utc_now().replace(":", "-")
    path = store.path.with_name(f"purged_{stamp}.jsonl")
    number = 1
    while path.exists():
        number += 1
        path = store.path.with_name(f"purged_{stamp}_{number}.jsonl")
    with store.transaction() as db:
        write_jsonl(path, _rows(store, where, values))
        n = db.execute(f"DELETE FROM answers WHERE {where}", values).rowcount
    return n, path
