"""The store: every answer ever made or paid for, found again by its key, whatever happens to the process."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import IntegrityError, connect
from typing import Any

import pytest

from elo_exp.errors import UserError
from elo_exp.records import JudgeReply
from elo_exp.store.answer_store import Store
from elo_exp.store.batch_accounts import find_account
from elo_exp.store.claims import Claims
from elo_exp.store.database import SCHEMA_VERSION, Database
from elo_exp.store.ledger import Ledger
from tests.data import full_disk
from tests.stores import Place, go_on, place, process, rows, said, write

__all__ = ["place"]


def reply(key: str, text: str = "VERDICT: A") -> JudgeReply:
    return JudgeReply(key=key, text=text)


def keep(store: Store, *replies: JudgeReply, chunk: int = 1) -> Iterator[JudgeReply]:
    return store.keep(replies, key=lambda r: r.key, chunk=chunk)


def texts(place: Place, *keys: str) -> dict[str, str]:
    """What a process that opens the store now finds under these keys."""
    with Store(place) as store:
        return {key: found.text for key, found in store.get(JudgeReply, keys).items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a file: what is true of SQLite alone."""
    return tmp_path / "cache" / "store.sqlite"


# Keeping and finding


@pytest.mark.parametrize(
    ("chunk", "seen"), [(1, [1, 2, 3, 4, 5]), (2, [2, 2, 4, 4, 5])]
)
def test_an_answer_is_committed_before_it_is_passed_on(place, chunk, seen):
    """Those that are free to repeat share a transaction; no later one has been asked for."""
    with Store(place) as store:
        answers = keep(store, *map(reply, "abcde"), chunk=chunk)
        assert [len(texts(place, *"abcde")) for _ in answers] == seen


def test_the_first_answer_wins_and_every_one_that_was_made_is_counted(place):
    with Store(place) as store:
        list(keep(store, reply("a", "first"), reply("b"), chunk=2))
        (found,) = keep(store, reply("a", "made again"))
        assert (found.text, store.usage.judge_calls) == ("first", 3)
    with Store(place) as store:
        assert store.get(JudgeReply, ["a", "unknown"])["a"].text == "first"
        assert store.usage.judge_calls == 0


def test_half_an_emoji_is_kept_as_it_came(place):
    """JSON can hold a lone surrogate, and no file can; a backslash before it is no escape of ours."""
    text = '\ud83d and \\ud83d and "\\\\\ud83d'
    with Store(place) as store:
        assert [answer.text for answer in keep(store, reply("k", text))] == [text]
    assert texts(place, "k") == {"k": text}


def test_an_answer_that_lacks_a_field_is_one_line(place):
    """Another program has written it."""
    with Store(place) as store:
        list(keep(store, reply("k")))
        write(place, """UPDATE answers SET value = '{"key": "k"}'""")
        with pytest.raises(UserError) as error:
            store.get(JudgeReply, ["k"])
    words = f"{place} holds a JudgeReply that cannot be read ('text').\n  Its key is 'k'.\n  R"
    assert str(error.value).startswith(words)


# Several processes

WRITER = """
import sys
from elo_exp.records import JudgeReply
from elo_exp.store.answer_store import Store
from tests.stores import place_of

place, name = place_of(sys.argv[1]), sys.argv[2]
keys = [f"k{n:03}" for n in range(200)]
mine = keys if name == "upwards" else keys[::-1]
print("ready", flush=True)
sys.stdin.readline()
with Store(place) as store:
    print("open", flush=True)
    sys.stdin.readline()
    for _ in store.keep((JudgeReply(key=key, text=name) for key in mine), key=lambda r: r.key):
        pass
    print(*(found.text for _, found in sorted(store.get(JudgeReply, keys).items())), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.system
def test_processes_that_make_and_fill_a_store_at_once_end_with_the_same_answers(place):
    """Neither may fail because the other was first by a millisecond, or lose what the other writes."""
    with (
        process(WRITER, place, "upwards") as one,
        process(WRITER, place, "downwards") as two,
    ):
        for word in ("ready", "open"):
            assert (said(one), said(two)) == ([word], [word])
            go_on(one)
            go_on(two)
        first, second = said(one), said(two)
        for other in (one, two):
            go_on(other)
            other.wait()
    assert first == second
    assert len(first) == 200
    assert rows(place, "SELECT COUNT(*) FROM answers") == [(200,)]
    if isinstance(place, Path):
        assert rows(place, "PRAGMA integrity_check") == [("ok",)]
        assert {file.name for file in place.parent.iterdir()} == {place.name}


# Transactions


def test_a_writer_waits_for_the_one_before_it(place):
    """From the beginning of a transaction on, whatever it reads first."""
    order, is_open = list[str](), threading.Event()

    def wait() -> None:
        with Store(place) as two:
            is_open.set()
            two.write(lambda db: order.append("two"))

    thread = threading.Thread(target=wait)

    def hold(_: Database) -> None:
        thread.start()
        is_open.wait()
        time.sleep(0.2)
        order.append("one")

    with Store(place) as one:
        one.write(hold)
        thread.join()
    assert order == ["one", "two"]


def test_a_transaction_that_is_broken_off_has_done_nothing(place):
    with Store(place) as store:

        def broken_off(db: Database) -> None:
            store.put(db, {"a": reply("a")})
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.write(broken_off)
        list(keep(store, reply("b")))  # and the next one begins afresh
    assert texts(place, "a", "b").keys() == {"b"}


def test_an_error_of_the_database_is_one_clear_line_and_undoes_the_transaction(place):
    absent = (
        "no such table: nowhere"
        if isinstance(place, Path)
        else 'relation "nowhere" does not exist'
    )
    with Store(place) as store:

        def wrong(db: Database) -> None:
            store.put(db, {"a": reply("a")})
            db.execute("INSERT INTO nowhere VALUES (1)")

        def nested(db: Database) -> None:
            store.put(db, {"a": reply("a")})
            store.write(lambda db: None)

        for body, problem in (
            (wrong, absent),
            (nested, "cannot start a transaction within a transaction"),
        ):
            with pytest.raises(UserError) as error:
                store.write(body)
            words = f"{place} cannot be used as the store ({problem}).\n  "
            assert str(error.value).startswith(words)
    assert texts(place, "a") == {}


# A store of version 1, which held answers only

ANSWERS = "CREATE TABLE answers (key TEXT PRIMARY KEY, kind TEXT NOT NULL, value TEXT NOT NULL, created_at TEXT NOT NULL)"


@pytest.fixture
def version_1(path: Path) -> Path:
    """With a thousand answers, as the program of that time wrote them."""
    path.parent.mkdir()
    value = '{"key":"k%d","mirrored":false,"stop_reason":"end_turn","text":"answer %d","usage":{}}'
    old = [(f"k{n}", "JudgeReply", value % (n, n), "2026-04-25") for n in range(1000)]
    with closing(connect(path)) as db, db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(ANSWERS)
        db.executemany("INSERT INTO answers VALUES (?, ?, ?, ?)", old)
        db.execute(f"PRAGMA application_id = {0x656C6F78}")
        db.execute("PRAGMA user_version = 1")
    return path


def schema(path: Path) -> list[tuple[Any, ...]]:
    query = "SELECT type, name, tbl_name FROM sqlite_master ORDER BY name"
    return [*rows(path, query), *rows(path, "PRAGMA user_version")]


OPENER = """
import sys
from pathlib import Path
from elo_exp.records import JudgeReply
from elo_exp.store.answer_store import Store

print("ready", flush=True)
sys.stdin.readline()
with Store(Path(sys.argv[1])) as store:
    print(len(store.get(JudgeReply, [f"k{n}" for n in range(1000)])), flush=True)
"""


def test_a_store_of_version_1_is_brought_up_to_date_once_and_keeps_its_answers(
    version_1, tmp_path
):
    """By several processes at once; then it is like one that was made anew."""
    before = rows(version_1, "SELECT * FROM answers")
    with process(OPENER, version_1) as one, process(OPENER, version_1) as two:
        assert (said(one), said(two)) == (["ready"], ["ready"])
        go_on(one)
        go_on(two)
        assert (said(one), said(two)) == (["1000"], ["1000"])
    with Store(tmp_path / "new.sqlite"):
        pass
    assert schema(version_1) == schema(tmp_path / "new.sqlite")
    assert rows(version_1, "SELECT * FROM answers") == before
    assert rows(version_1, "PRAGMA integrity_check") == [("ok",)]


BATCHES = """CREATE TABLE batches (
    nonce TEXT PRIMARY KEY, owner TEXT NOT NULL, endpoint TEXT NOT NULL, judge_model TEXT NOT NULL,
    state TEXT NOT NULL, size INTEGER NOT NULL, reserve REAL NOT NULL, ttl TEXT, high_water TEXT,
    batch_id TEXT UNIQUE, created_at REAL NOT NULL, settled_at REAL, note TEXT)"""
QUERIES = """CREATE TABLE queries (
    nonce TEXT NOT NULL, key TEXT NOT NULL, names TEXT NOT NULL, outcome TEXT,
    PRIMARY KEY (nonce, key)) WITHOUT ROWID"""


@pytest.mark.parametrize("version", [6, 7])
def test_a_store_of_before_gets_the_commands_of_its_runs_and_jobs_of_slurm(
    path, version
):
    """The last versions without them; nothing else changes."""
    with Store(path):
        pass
    new = schema(path)
    write(path, "DROP TABLE slurm_jobs")
    if version == 6:
        write(path, "DROP TABLE commands")
    write(path, f"PRAGMA user_version = {version}")
    write(path, "INSERT INTO spending VALUES ('month 2026-11', 1.5)")
    with Store(path):
        pass
    assert schema(path) == new
    assert rows(path, "SELECT * FROM spending") == [("month 2026-11", 1.5)]


def test_a_store_of_version_9_gets_an_identity_and_keeps_its_batches(place):
    """Of its submissions nobody knows the account."""
    queries = {"k8": {"prompt_id": "p"}}
    facts = {"endpoint": "https://api", "judge_model": "opus", "ttl": None, "now": 1.0}
    with Store(place) as store, Claims(store) as claims:
        store.commit({"k7": JudgeReply(key="k7", text="VERDICT: A")})
        claims.take(["k8"])
        ledger = Ledger(store, claims.owner)
        batch = ledger.record_intent(
            queries, [1.0], high_water=None, account="a", **facts
        )
        assert batch is not None and find_account(store, batch) == "a"
    for table in ("accounts", "identity"):
        write(place, f"DROP TABLE {table}")
    if isinstance(place, str):
        write(place, "UPDATE elo_exp_store SET version = 9")
    else:
        write(place, "PRAGMA user_version = 9")
    for _ in range(2):
        with Store(place) as store:
            assert Ledger(store).batches() == [batch]
            assert find_account(store, batch) is None
            assert store.n_answers_ever() == 1
            assert texts(place, "k7") == {"k7": "VERDICT: A"}
    (identity,) = rows(place, "SELECT id FROM identity")
    assert re.fullmatch("[0-9a-f]{32}", identity[0])


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_a_store_whose_batches_had_ids_of_their_own_over_all_servers_is_upgraded(
    version_1, version
):
    """Versions 2 to 5: the batches stay, in their order, and another server may give the same id."""
    for statement in (BATCHES, QUERIES, f"PRAGMA user_version = {version}"):
        write(version_1, statement)
    row = "'run', 'https://api', 'opus', 'submitted', 1, 2.5, '1h', NULL"
    for nonce, batch_id in (
        ("b", "'msgbatch_1'"),
        ("a", "'msgbatch_2'"),
        ("c", "NULL"),
    ):
        write(
            version_1,
            f"INSERT INTO batches VALUES ('{nonce}', {row}, {batch_id}, 7.0, NULL, 'n')",
        )
    write(version_1, "INSERT INTO queries VALUES ('a', 'k', '{}', NULL)")
    before = rows(version_1, "SELECT rowid, * FROM batches")
    with Store(version_1) as store:
        assert [one.nonce for one in Ledger(store).batches()] == ["b", "a", "c"]
        assert Ledger(store).list_pending_keys() == {"k"}
    assert rows(version_1, "SELECT rowid, * FROM batches") == before
    with Store(version_1.with_name("new.sqlite")) as new:
        names = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        assert {*rows(version_1, names)} == {*rows(new.place, names)}
    other = row.replace("https://api", "https://other")
    columns = "'msgbatch_1', 7.0, NULL, NULL"
    write(version_1, f"INSERT INTO batches VALUES ('d', {other}, {columns})")
    with pytest.raises(IntegrityError):
        write(version_1, f"INSERT INTO batches VALUES ('e', {row}, {columns})")
    assert rows(version_1, "PRAGMA integrity_check") == [("ok",)]


def test_a_disk_without_room_for_the_new_tables_leaves_the_old_store(version_1):
    before = schema(version_1)
    with full_disk(100), pytest.raises(UserError, match="cannot be used as the store"):
        Store(version_1)
    assert schema(version_1) == before
    assert texts(version_1, "k7") == {"k7": "answer 7"}


# Files that cannot be a store


def empty(path: Path) -> None:
    """A store is never made empty, so something has cut it: a new one in its place would pay again."""
    path.touch()


def anothers(path: Path) -> None:
    write(path, "CREATE TABLE answers (name TEXT)")


def newer(path: Path) -> None:
    with Store(path):
        pass
    write(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")


def damaged(path: Path) -> None:
    with Store(path) as store:
        list(keep(store, *(reply(f"k{n}", "x" * 500) for n in range(200)), chunk=200))
    content = path.read_bytes()
    path.write_bytes(content[:4096] + bytes(len(content) - 8192) + content[-4096:])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (empty, "is empty (0 bytes), and a store never is"),
        (
            anothers,
            "cannot be used as the store (it is the database of another program",
        ),
        (
            newer,
            f"was written by a newer elo_exp (store version {SCHEMA_VERSION + 1}, this ",
        ),
        (damaged, "cannot be used as the store (database disk image is malformed)"),
    ],
)
def test_what_is_no_store_is_refused_in_one_line_and_left_alone(
    path: Path, make: Callable[[Path], None], words: str
):
    path.parent.mkdir()
    make(path)
    before = path.read_bytes()
    with pytest.raises(UserError) as error, Store(path) as store:
        store.get(JudgeReply, [f"k{n}" for n in range(200)])
    assert str(error.value).startswith(f"{path} {words}")
    assert str(error.value).count("\n") == 1
    assert "cache_dir=DIR" in str(error.value)
    assert path.read_bytes() == before


def test_a_store_that_cannot_be_made_is_refused(tmp_path, path):
    (tmp_path / "file").write_text("a file, not a folder")
    with pytest.raises(UserError, match="cannot be used as the store"):
        Store(tmp_path / "file" / "store.sqlite")
    words = r"cannot be used as the store \(disk I/O error\)"
    with full_disk(100), pytest.raises(UserError, match=words):
        Store(path)


def test_a_journal_whose_store_is_gone_is_not_read_into_a_new_one(path):
    journal = path.with_name(f"{path.name}-wal")
    with Store(path) as store:
        list(keep(store, reply("k")))
        left = journal.read_bytes()
    path.unlink()
    journal.write_bytes(left)
    words = r"is gone, and its journal store\.sqlite-wal is still there"
    with pytest.raises(UserError, match=words):
        Store(path)
