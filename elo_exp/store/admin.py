"""The answers in a store: counted, exported, brought in, merged, purged."""

import functools
import json
import math
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from elo_exp.errors import FileError, SettingError
from elo_exp.files import read_jsonl, utc_now, write_jsonl
from elo_exp.records import ForcedLogprob, JudgeReply, Record, Response, storable_json
from elo_exp.store.answer_store import Store, count_answers
from elo_exp.store.claims import OPEN_STATES_SQL
from elo_exp.store.database import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    AnswerRow,
    Database,
)
from elo_exp.store.stored_records import build_damage_error

KINDS: Mapping[str, type[Record]] = {
    kind.__name__: kind for kind in (Response, JudgeReply, ForcedLogprob)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFilter:
    """Which answers are meant; None: all. An entrant's are its responses, and the verdicts on
    it."""

    judge: str | None = None
    entrant: str | None = None
    rubric: str | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in asdict(self).values())

    def where(self, db: Database) -> tuple[str, list[str]]:
        """The condition in SQL, and its values."""
        entrants = ", ".join(map(db.text_sql, ("entrant_id", "entrant_a", "entrant_b")))
        conditions = {
            f"{db.text_sql('judge_model')} = ?": self.judge,
            f"{db.text_sql('dimension')} = ?": self.rubric,
            f"? IN ({entrants})": self.entrant,
        }
        used = {sql: value for sql, value in conditions.items() if value is not None}
        return " AND ".join(["TRUE", *used]), list(used.values())


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """How many answers of one kind one entrant or judge gave on one dimension, and their cost. A
    judge's reply on a single response is of the kind Score."""

    kind: str
    source: str | None
    dimension: str | None
    n: int
    dollars: float


_ADD_INCOMING = (
    "INSERT INTO answers SELECT * FROM incoming WHERE TRUE ON CONFLICT DO NOTHING"
)
_make_adapter = functools.cache(TypeAdapter)


def count_answers_by_source(store: Store, chosen: AnswerFilter) -> list[StoreSummary]:
    return store.read_with(lambda db: _count_answers(db, chosen))


def _count_answers(db: Database, chosen: AnswerFilter) -> list[StoreSummary]:
    where, values = chosen.where(db)
    of = db.text_sql
    # of a verdict, and of a response
    paid = f"COALESCE({db.number_sql('dollars')}, {db.number_sql('diagnostics', 'dollars')})"
    rows = db.execute(
        f"SELECT CASE WHEN {of('entrant_a')} IS NOT NULL AND {of('entrant_b')} IS NULL THEN "
        "'Score' ELSE kind END, "
        f"COALESCE({of('judge_model')}, {of('entrant_id')}) AS source, "
        f"{of('dimension')} AS dimension, COUNT(*), COALESCE(SUM({paid}), 0.0) FROM answers "
        f"WHERE {where} GROUP BY 1, 2, 3 "
        "ORDER BY 1 DESC, 2 NULLS FIRST, 3 NULLS FIRST",
        values,
    ).fetchall()
    return [StoreSummary(*row) for row in rows]


def count_lost_calls(store: Store) -> tuple[Any, ...]:
    """How many single calls got no answer that may have been billed, and the most they cost."""
    query = (
        "SELECT COUNT(*), COALESCE(SUM(dollars), 0.0) FROM losses WHERE why IS NOT NULL"
    )
    return store.query(query)[0]


def check_export_name(path: Path) -> None:
    """Raise SettingError for a name that no file of exported answers has."""
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise SettingError.bad_value(
            "store.file", path, "be a name that ends in .jsonl or .jsonl.gz"
        )


def export_answers(store: Store, path: Path, chosen: AnswerFilter) -> int:
    """Write the answers as JSON lines; how many they are."""
    check_export_name(path)
    return store.read_with(lambda db: _write_answers(path, store.name, db, chosen))


def _write_answers(path: Path, name: str, db: Database, chosen: AnswerFilter) -> int:
    rows = _ExportRows(name, db, chosen)
    write_jsonl(path, rows, keeps_secrets=True)  # they may be brought in again
    return rows.n


class _ExportRows:
    """The rows of an export, one at a time, in the order in which the answers came; `n` counts those so far."""

    def __init__(self, name: str, db: Database, chosen: AnswerFilter) -> None:
        self.name, self.db, self.chosen, self.n = name, db, chosen, 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Raises FileError for an answer that is damaged."""
        where, values = self.chosen.where(self.db)
        columns = ("key", "kind", "created_at", "value")
        query = f"SELECT {', '.join(columns)} FROM answers WHERE {where} ORDER BY created_at, key"
        for row in self.db.iterate_rows(query, values):
            self.n += 1
            named = dict(zip(columns, row, strict=True))
            try:
                yield {**named, "value": json.loads(named["value"])}
            except (ValueError, TypeError, RecursionError) as error:
                raise build_damage_error(
                    self.name, named["kind"], named["key"], error
                ) from None


def check_exported(path: Path) -> None:
    """Read answers that `export` wrote. Raises FileError for a row that is none."""
    for location, row in read_jsonl(path):
        _parse_exported_row(location, row)


def import_answers(store: Store, path: Path) -> tuple[int, int]:
    """Bring in answers that `export` wrote; return how many there are, and how many were new.

    All are checked before any is brought in, and others may use the store meanwhile.
    """

    def rows() -> Iterator[AnswerRow]:
        return (
            _parse_exported_row(location, row) for location, row in read_jsonl(path)
        )

    return store.write(_add_incoming, incoming=rows)


def _add_incoming(db: Database) -> tuple[int, int]:
    """Add the incoming answers; return how many there are, and how many were new."""
    ((n,),) = db.execute("SELECT COUNT(*) FROM incoming").fetchall()
    n_new = db.execute(_ADD_INCOMING).rowcount
    count_answers(db, n_new)
    return n, n_new


def _parse_exported_row(
    location: str, row: dict[str, Any]
) -> tuple[str, str, str, str]:
    try:
        key, kind, value = row["key"], row["kind"], row["value"]
        record: Any = KINDS[kind]
        stored = storable_json(value)
        answer = _make_adapter(record).validate_json(stored, strict=True)
        match answer:
            case JudgeReply() if answer.key == key:
                dollars = answer.dollars
            case Response():
                dollars = answer.diagnostics.get("dollars", 0.0)
            case ForcedLogprob():
                dollars = 0.0
            case _:
                raise TypeError("its key is another's")
        if not (isinstance(key, str) and 0 <= float(dollars) < math.inf):
            raise ValueError("its key or its dollars are none")
        at = str(row.get("created_at") or utc_now())
        f"{key}{at}".encode()  # raises for what no store can hold
        if "\0" in f"{key}{at}":
            raise ValueError("a zero byte is in its key or its time")
        return key, kind, stored, at
    except ValidationError as error:
        first_error = error.errors()[0]
        why = (
            f"{'.'.join(map(str, first_error['loc'])) or 'value'}: {first_error['msg']}"
        )
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        why = str(error)
    raise FileError.bad_file(
        location,
        f"is not an exported answer ({why})",
        "Nothing was brought in.",
        f"  An answer has key, kind ({', '.join(KINDS)}) and value, as store.action=export writes them.",
    ) from None


def check_merge(store: Store, path: Path) -> None:
    """Raise UserError for a store that cannot be merged into this one; see `merge_store`."""
    with _open_other_store(store, path):
        pass


@contextmanager
def _open_other_store(
    store: Store, path: Path
) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Open the store at a path for reading, with its version, if it can be merged into this one."""
    if isinstance(store.place, Path) and path.resolve() == store.place.resolve():
        raise SettingError.bad_value(
            "store.file", path, "be another store than the one in use"
        )
    if not path.is_file():
        raise FileError.not_found(
            path, "store.file, the store.sqlite of another cache_dir"
        )
    # A reader that may not write would leave its journal behind
    uri = f"{path.resolve().as_uri()}?mode=rw"
    with _report_read_errors(path), closing(sqlite3.connect(uri, uri=True)) as source:
        yield source, _check_mergeable(source, path)


def merge_store(store: Store, path: Path) -> tuple[int, int]:
    """Bring in the answers of another store; return how many it has, and how many were new.

    Raises FileError if batches are still under way there, because whoever merged now would pay for them
    again; SettingError if it is this store.
    """
    with _open_other_store(store, path) as (source, version):
        source.execute("BEGIN")  # nothing comes between
        judges = (
            source.execute("SELECT * FROM judges").fetchall() if version > 2 else []
        )
        designs = (
            source.execute("SELECT * FROM designs").fetchall() if version > 4 else []
        )
        looks = source.execute("SELECT * FROM looks").fetchall() if version > 8 else []

        def add(db: Database) -> tuple[int, int]:
            for table, rows in (("judges", judges), ("designs", designs)):
                keep_first = (
                    f"INSERT INTO {table} VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
                )
                db.executemany(keep_first, rows)
            db.executemany(
                "INSERT INTO looks VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", looks
            )
            return _add_incoming(db)

        return store.write(add, incoming=lambda: _read_answers(source, path))


def _read_answers(db: sqlite3.Connection, path: Path) -> Iterator[AnswerRow]:
    with _report_read_errors(path):
        yield from db.execute("SELECT * FROM answers")


@contextmanager
def _report_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise FileError.bad_file(path, f"cannot be read as a store ({error})") from None


def _check_mergeable(db: sqlite3.Connection, path: Path) -> int:
    """Return the version of another store. Raises FileError or SettingError for one that cannot be merged."""
    pragmas = ("application_id", "user_version")
    owner, version = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
    if owner != APPLICATION_ID:
        raise FileError.bad_file(path, "is the database of another program")
    if version > SCHEMA_VERSION:
        raise FileError.bad_file(
            path, "was written by a newer elo_exp", "Upgrade elo_exp."
        )
    if version > 1:  # the first had no ledger
        count = f"SELECT COUNT(*) FROM batches WHERE state IN {OPEN_STATES_SQL}"
        (n_open,) = db.execute(count).fetchone()
        if n_open:
            raise SettingError(
                f"{n_open} batches of {path} are still under way. Collect them first:",
                f"  python -m elo_exp experiment=store store.action=wait cache_dir={path.parent}",
            )
    return int(version)


def count_open_batches(db: Database) -> int:
    """Return how many batches are under way."""
    count = f"SELECT COUNT(*) FROM batches WHERE state IN {OPEN_STATES_SQL}"
    return int(db.execute(count).fetchone()[0])


def purge_answers(store: Store, chosen: AnswerFilter) -> tuple[int, Path]:
    """Take answers out of the store, into a file beside it that can be brought in again; return how
    many, and the file.

    Queries of theirs that are under way stay: their answers come back when they are collected.
    """
    stamp = f"{utc_now().replace(':', '-')}_{secrets.token_hex(3)}"
    path = store.folder / f"purged_{stamp}.jsonl"

    def take_out(db: Database) -> int:
        where, values = chosen.where(db)
        _write_answers(path, store.name, db, chosen)
        return db.execute(f"DELETE FROM answers WHERE {where}", values).rowcount

    return store.write(take_out), path
