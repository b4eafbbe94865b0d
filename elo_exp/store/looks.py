"""What a store knows of results that were shown: designs of planned looks, and the looks themselves.

Looks are of the store, whichever run folders are still there.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.records import JudgeReply, make_fingerprint
from elo_exp.store.answer_store import Store
from elo_exp.store.database import Database
from elo_exp.store.stored_records import read_records

# Enough to tell a verdict from all others
_VERDICT_ID_CHARACTERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResult:
    """The result of two entrants that a run shows: the keys of its verdicts, and who is significantly ahead."""

    verdicts: Sequence[str]
    leader: str | None

    def verdict_ids(self) -> frozenset[str]:
        return frozenset(key[:_VERDICT_ID_CHARACTERS] for key in self.verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierInterimAnalyses:
    """Results of a pair that were shown before verdicts were added to it.

    first_leader  who was significantly ahead at the first look: a lead that was claimed then needs no new test
    """

    n_looks: int
    first_leader: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """A result that a run shows, of a subject such as a gate's dimension.

    name      that tells it from other results of the subject
    evidence  on which it rests, as can be written as JSON
    claim     what it claims; None: nothing
    """

    name: str
    evidence: Mapping[str, Any]
    claim: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The result of a pair that was shown.

    key       the fingerprint of its verdicts
    shown_at  seconds since 1970
    """

    key: str
    verdict_ids: frozenset[str]
    leader: str | None
    shown_at: float


def count_queries_seen_before(
    store: Store, queries: Sequence[str], design: str | None
) -> int:
    """Count the queries that had been looked at under another design.

    A design of planned looks is stored before its first query: those that were answered then.
    None, one look at the end: those of stored designs of which none had been answered.
    """
    if design is None:
        rows = store.query("SELECT queries FROM designs WHERE n_seen = 0")
        looked_at = {query for (text,) in rows for query in json.loads(text)}
        return len(looked_at.intersection(queries))

    def register(db: Database) -> int:
        n_seen = len(read_records(db, JudgeReply, queries, store_name=store.name))
        db.execute(
            "INSERT INTO designs VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (design, json.dumps(queries), n_seen),
        )
        query = "SELECT n_seen FROM designs WHERE key = ?"
        return int(db.execute(query, [design]).fetchone()[0])

    return store.write(register)


def record_looks(
    store: Store, results: Sequence[PairResult]
) -> list[EarlierInterimAnalyses]:
    """Store that the results of pairs are shown; return the looks that came before verdicts were added to them.

    A look is a result that was shown before. One with the same verdicts, or with more, is none: nothing was
    added since.
    """
    shown_at = time.time()

    def register(db: Database) -> list[EarlierInterimAnalyses]:
        earlier = _list_looks(db)
        times = {look.key: look.shown_at for look in earlier}
        analyses, new_rows = [], []
        for result in results:
            verdict_ids = result.verdict_ids()
            key = make_fingerprint([*sorted(verdict_ids)])
            until = times.get(key, shown_at)
            analyses.append(_find_earlier_analyses(verdict_ids, earlier, until))
            if verdict_ids and key not in times:
                new_rows.append(
                    (key, json.dumps(sorted(verdict_ids)), result.leader, shown_at)
                )
        db.executemany(
            "INSERT INTO looks VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", new_rows
        )
        return analyses

    return store.write(register) if results else []


def _list_looks(db: Database) -> list[_Look]:
    """Return the results of pairs that were shown, the oldest first."""
    rows = db.execute(  # the key of a subject's result has a space
        "SELECT verdicts, leader, shown_at, key FROM looks "
        "WHERE key NOT LIKE '% %' ORDER BY shown_at"
    )
    return [
        _Look(
            key=key,
            verdict_ids=frozenset(json.loads(text)),
            leader=leader,
            shown_at=shown_at,
        )
        for text, leader, shown_at, key in rows.fetchall()
    ]


def _find_earlier_analyses(
    verdict_ids: frozenset[str], looks: Sequence[_Look], until: float
) -> EarlierInterimAnalyses:
    """Return the looks at some of these verdicts before a moment, after which others of them were added."""
    leaders, seen_ids = [], frozenset[str]()
    for look in looks:
        common_ids = look.verdict_ids & verdict_ids
        seen_ids |= common_ids
        if look.shown_at < until and common_ids and verdict_ids - seen_ids:
            leaders.append(look.leader)
    return EarlierInterimAnalyses(
        n_looks=len(leaders), first_leader=leaders[0] if leaders else None
    )


def list_earlier_results(store: Store, subject: str, name: str) -> list[StoredResult]:
    """Return the results of a subject that were shown before the one of this name was, the oldest first."""
    rows = store.query(
        "SELECT key, verdicts, leader FROM looks WHERE key LIKE ? ORDER BY shown_at, key",
        [f"{make_fingerprint([subject])}%"],
    )
    names = [key.partition(" ")[2] for key, _, _ in rows]
    until = names.index(name) if name in names else len(names)
    return [
        StoredResult(name=earlier_name, evidence=json.loads(text), claim=claim)
        for earlier_name, (_, text, claim) in zip(names[:until], rows, strict=False)
    ]


def record_result(store: Store, subject: str, result: StoredResult) -> None:
    """Store that a result of a subject is shown. One that was shown before stays as it was."""
    key = f"{make_fingerprint([subject])} {result.name}"
    row = (key, json.dumps(result.evidence), result.claim, time.time())
    add = "INSERT INTO looks VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    store.write(lambda db: db.execute(add, row))
