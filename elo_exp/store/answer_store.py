"""One database that holds every answer ever made or paid for, keyed by the fingerprint of all that could change it: a
file of SQLite for one machine, or PostgreSQL for many.

Several processes may use one store. An answer is committed before anyone sees it, is never
overwritten, and is found again by its key alone: ratings, sweeps and restarts read it and pay
nothing. The same database holds the claims (claims.py), the calls under way or lost (losses), and the
batch ledger (ledger.py), so that an answer, the claim on it and its place in the ledger change in
one transaction.
"""

import json
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from elo_exp import interrupts
from elo_exp.errors import FileError, ServerError, UserError
from elo_exp.files import errno_advice, utc_now
from elo_exp.records import (
    JudgeIdentity,
    JudgeReply,
    Record,
    Response,
    make_fingerprint,
    storable_json,
)
from elo_exp.store.caps import (
    Account,
    Spending,
    find_command,
    list_earlier_spending,
    list_spending,
    settle,
)
from elo_exp.store.database import AnswerRow, Database, DatabaseError
from elo_exp.store.field_types import check_types
from elo_exp.store.sqlite import Sqlite
from elo_exp.store.unsaved import Charge, UnsavedAnswer, UnsavedAnswers
from elo_exp.store.usage import Usage

if TYPE_CHECKING:
    from elo_exp.store.postgres import Postgres

logger = logging.getLogger(__name__)

_PARSE_ERRORS = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
_MIN_COMMIT_PAUSE_SECONDS, _MAX_COMMIT_PAUSE_SECONDS = 0.5, 15.0
# Enough to tell a verdict from all others
_LOOK_KEY_CHARACTERS = 16

T = TypeVar("T")
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResult:
    """The result of two entrants that a run shows: the keys of its verdicts, and who is significantly ahead."""

    verdicts: Sequence[str]
    leader: str | None


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


class Store:
    """Answers by key, the usage of this run, and the account that its calls are charged to.

    place         a file, or the URL of a database of PostgreSQL
    folder        for what is kept beside the answers, such as audits; None: the folder of the file, for a database the
                  working directory
    wait_minutes  how long to wait for a server whose connection was lost, and for a disk that is full

    Raises UserError for a file that is damaged, a server that cannot be reached, and what is newer than this program or
    no store.
    """

    def __init__(
        self,
        place: Path | str,
        *,
        folder: Path | None = None,
        wait_minutes: float = 0.0,
    ) -> None:
        self.place, self.name = place, str(place)
        self.folder = folder or (place.parent if isinstance(place, Path) else Path())
        self.usage = Usage()
        self.account = Account()
        self.has_lost_answers = False  # it had more answers than it has now
        # servers whose batches this run has looked at before it submitted any
        self.checked_endpoints: set[str] = set()
        if isinstance(place, Path):
            self._advice = Sqlite.advice
            self._error_class: type[UserError] = FileError
            with self._raise_user_errors():
                self._db: Database = Sqlite.open(place)
        else:
            engine = _import_postgres()
            self._advice = engine.advice
            self._error_class = ServerError
            with self._raise_user_errors():
                self._db = engine.open(place, wait_minutes=wait_minutes)
        self._wait_minutes, self._has_waited = wait_minutes, False
        self._unsaved = UnsavedAnswers(place, self.folder)
        try:
            self.import_unsaved()
        except BaseException:
            self._db.close()
            raise

    @property
    def has_locks(self) -> bool:
        """Whether it knows which processes hold a connection to it."""
        return self._db.has_locks

    def open_second(self, *, busy_seconds: float) -> Database:
        """Return another connection, for another thread."""
        return self._db.open_second(busy_seconds=busy_seconds)

    @contextmanager
    def _raise_user_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, DatabaseError) as error:
            advice = errno_advice(error.errno) or self._advice
            raise self._error_class(
                f"{self.name}: cannot be used as the store ({error}). {advice}"
            ) from error

    def write(
        self,
        body: Callable[[Database], T],
        *,
        incoming: Callable[[], Iterable[AnswerRow]] | None = None,
        is_paid: bool = False,
    ) -> T:
        """Run a body in one transaction and return what it returns: all or nothing, with the right to write from the
        start.

        It may run twice, so it does nothing but its statements; see `Database.write`.

        is_paid  money hangs on it: it is in the store's file itself as soon as it is committed
        """
        with self._raise_user_errors():
            result = self._db.write(body, incoming=incoming)
            if is_paid:
                with suppress(DatabaseError):  # on a full disk: it is committed
                    self._db.checkpoint()
            return result

    @cached_property
    def identity(self) -> str:
        """The random id that it got when it was made; a copy of its file has it too."""
        ((identity,),) = self.query("SELECT id FROM identity")
        return str(identity)

    @property
    def nonce_suffix(self) -> str:
        """What ends the nonce of each batch of it: 3 hexadecimal digits."""
        return self.identity[:3]

    def n_answers_ever(self) -> int:
        """Return how many answers were ever put into it, those that were purged included."""
        return int(self.query("SELECT n_answers FROM identity")[0][0])

    def account_hash(self, key: str, organization: str | None) -> str:
        """Return what tells an account at an API from others, and shows nobody its key."""
        parts = [key, *([organization] if organization else [])]
        return "/".join(make_fingerprint([self.identity, part])[:16] for part in parts)

    def save(
        self,
        body: Callable[[Database], T],
        answers: Mapping[str, Record],
        charge: Charge | None = None,
        *,
        is_paid: bool = True,
    ) -> T:
        """Run a body that commits answers, as `write` does, again for `wait_minutes` while the store cannot take them.

        answers  by key: what the store does not take is written to a file, which the next command takes in. Empty for
                 answers that their server has, too.
        charge   of the call that was paid for
        is_paid  as in `write`
        """
        since, pause = time.monotonic(), _MIN_COMMIT_PAUSE_SECONDS
        while True:
            try:
                result = self.write(body, is_paid=is_paid)
            except UserError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError | DatabaseError):
                    raise
                left = since + 60.0 * self._wait_minutes - time.monotonic()
                is_over = self._has_waited or left <= 0 or interrupts.is_requested()
                if not is_over and getattr(cause, "is_transient", True):
                    if pause == _MIN_COMMIT_PAUSE_SECONDS:
                        logger.warning(
                            "warning: %s Trying again for up to %g minutes",
                            error.line,
                            self._wait_minutes,
                        )
                    interrupts.pause(min(pause, left))
                    pause = min(2.0 * pause, _MAX_COMMIT_PAUSE_SECONDS)
                    continue
                self._has_waited = True  # no later answer is waited for as long
                set_aside_note = self._set_aside(answers, charge)
                raise error.reword(f"{error.line}{set_aside_note}") from cause
            except KeyboardInterrupt:
                self._set_aside(answers, charge)
                raise
            self._has_waited = False
            return result

    def _set_aside(self, answers: Mapping[str, Record], charge: Charge | None) -> str:
        """Write answers to a file, and say where it is."""
        if not answers:
            return ""
        n = f"{len(answers):,} answer{'s' * (len(answers) != 1)}"
        try:
            path = self._unsaved.write(answers, charge)
        except OSError as error:
            return f" {n} could be written nowhere else, either ({error.strerror})."
        return f" {n} in hand: kept in {path}, and the next command with this store takes it in."

    def import_unsaved(self) -> None:
        """Take in the answers that an earlier command could not commit."""
        for path in self._unsaved.files():
            try:
                answers = [*self._unsaved.read(path)]
            except FileNotFoundError:  # another process has taken it in
                continue
            keys = [(answer.row[0],) for answer in answers]
            rows = [answer.row for answer in answers]

            def take_in(
                db: Database,
                keys: list[tuple[str]] = keys,
                rows: list[AnswerRow] = rows,
                answers: list[UnsavedAnswer] = answers,
            ) -> None:
                _end_calls(db, keys)
                _insert_answers(db, rows)
                for answer in answers:
                    if answer.charge is not None:
                        settle(db, answer.charge.name, answer.charge.dollars)

            self.write(take_in)
            self._unsaved.remove(path)
            logger.info("took in %d answers of %s", len(answers), path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def find_tightest_cap(self) -> Spending | None:
        """Return the cap with the least room; None where there is no cap."""
        return next(iter(self.list_spending()), None)

    def n_bytes(self) -> int:
        """Return how large it is."""
        return self.read_with(lambda db: db.n_bytes())

    def list_spending(self) -> list[Spending]:
        """Return what was paid, of this month, sweep and run folder, where there is a cap; the least room first."""
        return self.read_with(lambda db: list_spending(db, self.account))

    def list_earlier_spending(self, kind: str) -> list[tuple[Spending, str | None]]:
        """Return what was paid by each sweep, or in each run folder, with its command where that is known; empty where the
        account has no such cap.

        kind  sweep or folder
        """
        return self.read_with(lambda db: list_earlier_spending(db, self.account, kind))

    def find_command(self, name: str) -> str | None:
        """Return the command of the run that a call under way is charged to; None where that is not known."""
        return self.read_with(lambda db: find_command(db, name))

    def read_with(self, body: Callable[[Database], T]) -> T:
        """Run a body that only reads, and return what it returns. It may run twice."""
        with self._raise_user_errors():
            return self._db.read(body)

    def query(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.read_with(lambda db: db.execute(query, values).fetchall())

    def get(
        self, record: type[R], keys: Sequence[str], *, with_messages: bool = False
    ) -> dict[str, R]:
        """Return the stored answers by key; the raw messages that some were read from are left out, unless wanted."""
        return self.read_with(
            lambda db: self._read_records(db, record, keys, with_messages=with_messages)
        )

    def _read_records(
        self,
        db: Database,
        record: type[R],
        keys: Sequence[str],
        *,
        with_messages: bool = False,
    ) -> dict[str, R]:
        records: dict[str, R] = {}
        for key, value in db.read_answers(keys, with_messages=with_messages):
            try:
                fields = json.loads(value)
                if not with_messages:
                    fields.pop("message", None)
                check_types(record, fields)
                records[key] = record.from_dict(fields)
            except _PARSE_ERRORS as error:
                raise FileError(
                    f"{self.name}: holds a {record.__name__} that cannot be read ({error}; its key is {key!r:.80}). "
                    "Restore the store from a copy, or choose another (cache_dir=DIR, store=URL)."
                ) from None
        return records

    def lacks_any(self, keys: Sequence[str]) -> bool:
        """Return whether an answer to one of these keys is not there."""
        stored_keys = self.read_with(
            lambda db: {key for key, _ in db.read_answers(keys, with_messages=False)}
        )
        return not stored_keys.issuperset(keys)

    def list_judges(self) -> list[JudgeIdentity]:
        """Return whose replies may be here, the first to be asked first."""
        rows = self.query("SELECT key, judge_model, reads FROM judges ORDER BY rowid")
        return [
            JudgeIdentity(
                key=key, judge_model=model, key_fields=tuple(json.loads(names))
            )
            for key, model, names in rows
        ]

    def add_judge(self, judge: JudgeIdentity) -> None:
        if not self.query("SELECT 1 FROM judges WHERE key = ?", [judge.key]):
            row = (judge.key, judge.judge_model, json.dumps(judge.key_fields))
            add = "INSERT INTO judges VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            self.write(lambda db: db.execute(add, row))

    def count_queries_seen_before(
        self, queries: Sequence[str], design: str | None
    ) -> int:
        """Count the queries that had been looked at under another design.

        A design of planned looks is stored before its first query: those that were answered then.
        None, one look at the end: those of stored designs of which none had been answered.
        """
        if design is None:
            rows = self.query("SELECT queries FROM designs WHERE n_seen = 0")
            looked_at = {query for (text,) in rows for query in json.loads(text)}
            return len(looked_at.intersection(queries))

        def register(db: Database) -> int:
            n_seen = len(self._read_records(db, JudgeReply, queries))
            db.execute(
                "INSERT INTO designs VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (design, json.dumps(queries), n_seen),
            )
            query = "SELECT n_seen FROM designs WHERE key = ?"
            return int(db.execute(query, [design]).fetchone()[0])

        return self.write(register)

    def record_looks(
        self, results: Sequence[PairResult]
    ) -> list[EarlierInterimAnalyses]:
        """Store that the results of pairs are shown; return the looks that came before verdicts were added to them.

        A look is a result that was shown before. One with the same verdicts, or with more, is none: nothing was
        added since. Looks are of this store, whichever run folders are still there.
        """
        shown_at = time.time()

        def register(db: Database) -> list[EarlierInterimAnalyses]:
            rows = db.execute(  # the key of a subject's result has a space
                "SELECT verdicts, leader, shown_at, key FROM looks "
                "WHERE key NOT LIKE '% %' ORDER BY shown_at"
            )
            earlier = [
                (frozenset(json.loads(text)), leader, at, key)
                for text, leader, at, key in rows.fetchall()
            ]
            times = {key: at for *_, at, key in earlier}
            looks, new = [], []
            for result in results:
                verdict_ids = frozenset(
                    name[:_LOOK_KEY_CHARACTERS] for name in result.verdicts
                )
                key = make_fingerprint([*sorted(verdict_ids)])
                until = times.get(key, shown_at)
                earlier_leaders, seen_verdicts = [], frozenset[str]()
                for earlier_verdicts, leader, at, _ in earlier:
                    seen_verdicts |= earlier_verdicts & verdict_ids
                    if (
                        at < until
                        and earlier_verdicts & verdict_ids
                        and verdict_ids - seen_verdicts
                    ):
                        earlier_leaders.append(leader)
                first_leader = earlier_leaders[0] if earlier_leaders else None
                looks.append(
                    EarlierInterimAnalyses(
                        n_looks=len(earlier_leaders), first_leader=first_leader
                    )
                )
                if verdict_ids and key not in times:
                    new.append(
                        (key, json.dumps(sorted(verdict_ids)), result.leader, shown_at)
                    )
            db.executemany(
                "INSERT INTO looks VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", new
            )
            return looks

        return self.write(register) if results else []

    def list_earlier_results(self, subject: str, name: str) -> list[StoredResult]:
        """Return the results of a subject that were shown before the one of this name was, the oldest first."""
        rows = self.query(
            "SELECT key, verdicts, leader FROM looks WHERE key LIKE ? ORDER BY shown_at, key",
            [f"{make_fingerprint([subject])} %"],
        )
        names = [key.partition(" ")[2] for key, _, _ in rows]
        until = names.index(name) if name in names else len(names)
        return [
            StoredResult(name=earlier_name, evidence=json.loads(text), claim=claim)
            for earlier_name, (_, text, claim) in zip(names[:until], rows, strict=False)
        ]

    def record_result(self, subject: str, result: StoredResult) -> None:
        """Store that a result of a subject is shown. One that was shown before stays as it was."""
        key = f"{make_fingerprint([subject])} {result.name}"
        row = (key, json.dumps(result.evidence), result.claim, time.time())
        add = "INSERT INTO looks VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
        self.write(lambda db: db.execute(add, row))

    def keep(
        self, records: Iterable[R], *, key: Callable[[R], str], chunk: int = 1
    ) -> Generator[R]:
        """Pass the records on as they come, each committed first.

        `chunk` records share one transaction: more than 1 is for answers that cost nothing to make
        again.
        """
        iterator = iter(records)
        while records_by_key := {
            key(record): record for record in islice(iterator, chunk)
        }:
            yield from self.commit(records_by_key).values()

    def commit(self, answers: Mapping[str, R]) -> dict[str, R]:
        """Store answers, by key, that this process has made; return what `put` returns."""
        is_paid = any(map(_has_cost, answers.values()))
        stored = self.save(lambda db: self.put(db, answers), answers, is_paid=is_paid)
        for answer in answers.values():
            self.usage.add_answer(answer)
        return stored

    def put(self, db: Database, answers: Mapping[str, R]) -> dict[str, R]:
        """Add, in a transaction, the answers that are not there yet, by key, and end every claim on them and every call
        that was to bring them. Return what every run shall see: the answers of whoever was first."""
        if not answers:
            return {}
        now = utc_now()
        _end_calls(db, [(key,) for key in answers])
        rows = [
            (key, type(answer).__name__, storable_json(answer.to_dict()), now)
            for key, answer in answers.items()
        ]
        if _insert_answers(db, rows) == len(answers):
            return dict(answers)
        stored = self._read_records(
            db, type(next(iter(answers.values()))), list(answers)
        )
        return {key: stored[key] for key in answers}


def _end_calls(db: Database, keys: list[tuple[str]]) -> None:
    """End the claims on answers, and the calls that were to bring them."""
    db.executemany("DELETE FROM claims WHERE key = ?", keys)
    db.executemany("DELETE FROM losses WHERE key = ? AND why IS NULL", keys)


def _insert_answers(db: Database, rows: Sequence[AnswerRow]) -> int:
    """Add answers that are not there yet; return how many they are."""
    n = db.executemany(
        "INSERT INTO answers VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", rows
    ).rowcount
    count_answers(db, n)
    return n


def count_answers(db: Database, n: int) -> None:
    """Count answers that were put into the store."""
    if n:
        db.execute("UPDATE identity SET n_answers = n_answers + ?", (n,))


def _has_cost(answer: Record) -> bool:
    """Whether an answer was paid for."""
    match answer:
        case JudgeReply():
            return bool(answer.dollars)
        case Response():
            return bool(answer.diagnostics.get("dollars"))
    return False


def _import_postgres() -> "type[Postgres]":
    try:
        from elo_exp.store.postgres import Postgres
    except ImportError as error:
        raise UserError(
            f"store: PostgreSQL needs psycopg, which cannot be imported ({error}). Install it: "
            "pip install 'elo-exp[postgres]'."
        ) from None
    return Postgres
