"""One database that holds every answer ever made or paid for, keyed by the fingerprint of all that could change it: a
file of SQLite for one machine, or PostgreSQL for many.

Several processes may use one store. An answer is committed before anyone sees it, is never
overwritten, and is found again by its key alone: ratings, sweeps and restarts read it and pay
nothing. The same database holds the claims (claims.py), the calls under way or lost (losses), and the
batch ledger (ledger.py), so that an answer, the claim on it and its place in the ledger change in
one transaction.
"""

import functools
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from elo_exp.errors import FileError, ServerError, UserError
from elo_exp.files import errno_advice, may_write, utc_now
from elo_exp.records import (
    JudgeReply,
    Record,
    Response,
    storable_json,
)
from elo_exp.store.caps import (
    Account,
    Spending,
    list_spending,
    settle,
)
from elo_exp.store.database import AnswerRow, Database, DatabaseError
from elo_exp.store.save_wait import SaveWait
from elo_exp.store.sqlite import Sqlite
from elo_exp.store.stored_records import read_records
from elo_exp.store.unsaved import Charge, UnsavedAnswer, UnsavedAnswers
from elo_exp.store.usage import Usage

if TYPE_CHECKING:
    from elo_exp.store.postgres import Postgres

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R", bound=Record)


class Store:
    """Answers by key, the usage of this run, and the account that its calls are charged to.

    place         a file, or the URL of a database of PostgreSQL
    folder        for what is kept beside the answers, such as audits; None: the folder of the file, for a database the
                  working directory
    wait_minutes  how long to wait for a server whose connection was lost, and for a disk that is full
    reads_first   whether it is only read until the first write, or `begin_writing`, which makes a store that is absent

    Raises UserError for a file that is damaged, a server that cannot be reached, and what is newer than this program or
    no store.
    """

    def __init__(
        self,
        place: Path | str,
        *,
        folder: Path | None = None,
        wait_minutes: float = 0.0,
        reads_first: bool = False,
    ) -> None:
        self.place, self.name = place, str(place)
        self.folder = folder or (place.parent if isinstance(place, Path) else Path())
        self.usage = Usage()
        self.account = Account()
        self.has_lost_answers = False  # it had more answers than it has now
        # servers whose batches this run has looked at before it submitted any
        self.checked_endpoints: set[str] = set()
        is_file = isinstance(place, Path)
        self._advice = (Sqlite if is_file else _import_postgres()).advice
        self._error_class: type[UserError] = FileError if is_file else ServerError
        self._wait_minutes, self._has_waited_in_vain = wait_minutes, False
        self._unsaved = UnsavedAnswers(place, self.folder)
        self._is_only_read = reads_first
        self._db = self._connect()
        if not reads_first:
            self._import_or_close()

    def _connect(self) -> Database:
        with self._raise_user_errors():
            return _open_database(
                self.place,
                is_only_read=self._is_only_read,
                wait_minutes=self._wait_minutes,
            )

    def begin_writing(self) -> None:
        """Make the store if it is absent, and let it be written from here on."""
        if not self._is_only_read:
            return
        assert may_write(), self.name
        self._db.close()
        self._is_only_read = False
        self._db = self._connect()
        self.__dict__.pop("identity", None)  # an absent store has none yet
        self._import_or_close()

    def _import_or_close(self) -> None:
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
        self.begin_writing()
        return self._db.open_second(busy_seconds=busy_seconds)

    @contextmanager
    def _raise_user_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, DatabaseError) as error:
            advice = errno_advice(error.errno) or self._advice
            raise self._error_class(
                f"{self.name} cannot be used as the store ({error}).",
                f"  {advice}",
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
        self.begin_writing()
        with self._raise_user_errors():
            result = self._db.write(body, incoming=incoming)
            if is_paid:
                with suppress(DatabaseError):  # on a full disk: it is committed
                    self._db.checkpoint()
            return result

    @functools.cached_property
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
        # after a wait in vain no later answer is waited for as long
        wait = SaveWait(0.0 if self._has_waited_in_vain else self._wait_minutes)
        while True:
            try:
                result = self.write(body, is_paid=is_paid)
            except UserError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError | DatabaseError):
                    raise
                is_transient = getattr(cause, "is_transient", True)
                if is_transient and wait.pause(
                    " ".join(map(str.strip, [error.line, *error.below]))
                ):
                    continue
                self._has_waited_in_vain = True
                notes = self._unsaved.set_aside(answers, charge)
                raise error.reword(error.line, *error.below, *notes) from cause
            except KeyboardInterrupt:
                self._unsaved.set_aside(answers, charge)
                raise
            self._has_waited_in_vain = False
            return result

    def import_unsaved(self) -> None:
        """Take in the answers that an earlier command could not commit."""
        for path in self._unsaved.files():
            try:
                answers = [*self._unsaved.read(path)]
            except FileNotFoundError:  # another process has taken it in
                continue
            self.write(functools.partial(_insert_unsaved, answers=answers))
            self._unsaved.remove(path)
            logger.info("took in %d answers of %s", len(answers), path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def find_tightest_cap(self) -> Spending | None:
        """Return the cap with the least room; None where there is no cap."""
        return next(iter(self.list_spending()), None)

    def list_spending(self) -> list[Spending]:
        """Return what was paid, of this month, sweep and run folder, where there is a cap; the least room first."""
        return self.read_with(lambda db: list_spending(db, self.account))

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
            lambda db: read_records(
                db, record, keys, store_name=self.name, with_messages=with_messages
            )
        )

    def lacks_any(self, keys: Sequence[str]) -> bool:
        """Return whether an answer to one of these keys is not there."""
        stored_keys = self.read_with(
            lambda db: {key for key, _ in db.read_answers(keys, with_messages=False)}
        )
        return not stored_keys.issuperset(keys)

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
        record = type(next(iter(answers.values())))
        stored = read_records(db, record, list(answers), store_name=self.name)
        return {key: stored[key] for key in answers}


def _open_database(
    location: Path | str, *, is_only_read: bool, wait_minutes: float
) -> Database:
    if isinstance(location, Path):
        return (
            Sqlite.open_for_reading(location) if is_only_read else Sqlite.open(location)
        )
    engine = _import_postgres()
    if is_only_read:
        return engine.open_for_reading(location, wait_minutes=wait_minutes)
    return engine.open(location, wait_minutes=wait_minutes)


def _end_calls(db: Database, keys: list[tuple[str]]) -> None:
    """End the claims on answers, and the calls that were to bring them."""
    db.executemany("DELETE FROM claims WHERE key = ?", keys)
    db.executemany("DELETE FROM losses WHERE key = ? AND why IS NULL", keys)


def _insert_unsaved(db: Database, answers: Sequence[UnsavedAnswer]) -> None:
    """Add answers that an earlier command could not commit, and settle their charges."""
    _end_calls(db, [(answer.row[0],) for answer in answers])
    _insert_answers(db, [answer.row for answer in answers])
    for answer in answers:
        if answer.charge is not None:
            settle(db, answer.charge.name, answer.charge.dollars)


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
            f"A store in PostgreSQL needs the Python package psycopg, which cannot be imported ({error}). Install it:",
            "  pip install 'elo-exp[postgres]'",
        ) from None
    return Postgres
