"""The store: every answer ever made or paid for, found again by its key, whatever happens to the process."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from elo_exp.records import JudgeReply, UserError
from elo_exp.store.store import SCHEMA_VERSION, Store
from tests.data import full_disk


def reply(key: str, text: str = "VERDICT: A") -> JudgeReply:
    return JudgeReply(key=key, text=text)


def keep(store: Store, *replies: JudgeReply, chunk: int = 1) -> Iterator[JudgeReply]:
    return store.keep(replies, key=lambda r: r.key, chunk=chunk)


def texts(path: Path, *keys: str) -> dict[str, str]:
    """What a process that opens the store now finds under these keys."""
    with Store(path) as store:
        return {key: found.text for key, found in store.get(JudgeReply, keys).items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "store.sqlite"


# Keeping and finding


def test_an_answer_is_found_by_its_key_by_whoever_opens_the_store_later(path):
    with Store(path) as store:
        (kept,) = keep(
            store,
            JudgeReply(key="k", text="µ", usage={"input_tokens": 3}, mirrored=True),
        )
    with Store(path) as store:
        assert store.get(JudgeReply, ["k", "unknown"]) == {"k": kept}


def test_an_answer_is_committed_before_it_is_passed_on(path):
    with Store(path) as store:
        for n, answer in enumerate(
            keep(store, reply("a"), reply("b"), reply("c")), start=1
        ):
            assert answer.key in texts(path, answer.key)
            assert (
                len(texts(path, "a", "b", "c")) == n
            )  # and no later one has been asked for


def test_answers_that_are_free_to_repeat_share_a_transaction_and_are_still_committed_first(
    path,
):
    with Store(path) as store:
        answers = keep(store, *(reply(k) for k in "abcde"), chunk=2)
        seen = [len(texts(path, *"abcde")) for _ in answers]
    assert seen == [2, 2, 4, 4, 5]


def test_the_first_answer_wins(path):
    with Store(path) as store:
        list(keep(store, reply("k", "first")))
        list(keep(store, reply("k", "second")))
    assert texts(path, "k") == {"k": "first"}


def test_what_was_answered_before_a_failure_is_kept(path):
    def answers() -> Iterator[JudgeReply]:
        yield reply("a")
        yield reply("b")
        raise ConnectionError("the judge is gone")

    with (
        Store(path) as store,
        pytest.raises(ConnectionError, match="the judge is gone"),
    ):
        list(store.keep(answers(), key=lambda r: r.key))
    assert texts(path, "a", "b") == {"a": "VERDICT: A", "b": "VERDICT: A"}


def test_more_keys_than_one_query_takes_are_found(path):
    keys = [f"k{n}" for n in range(1200)]
    with Store(path) as store:
        list(keep(store, *map(reply, keys), chunk=5000))
        assert store.get(JudgeReply, keys).keys() == set(keys)
        assert store.get(JudgeReply, []) == {}


def test_half_an_emoji_is_kept_as_it_came(path):
    """JSON can say half a surrogate pair, and no file can hold it; a backslash before it is no escape of ours."""
    text = '\ud83d and \\ud83d and "\\\\\ud83d'
    with Store(path) as store:
        assert [answer.text for answer in keep(store, reply("k", text))] == [text]
    assert texts(path, "k") == {"k": text}


def test_an_answer_that_lacks_a_field_is_one_line(path):
    """Another program has written it."""
    with Store(path) as store:
        list(keep(store, reply("k")))
        with store.transaction() as db:
            db.execute("UPDATE answers SET value = json_remove(value, '$.text')")
        with pytest.raises(
            UserError,
            match=r"store\.sqlite: holds a JudgeReply that cannot be read \('text'\)\. Restore",
        ):
            store.get(JudgeReply, ["k"])


# Several processes

WRITER = """
import sys
from pathlib import Path
from elo_exp.records import JudgeReply
from elo_exp.store.store import Store

path, name = Path(sys.argv[1]), sys.argv[2]
keys = [f"k{n:03}" for n in range(200)]
mine = keys if name == "upwards" else keys[::-1]
with Store(path) as store:
    print("open", flush=True)
    sys.stdin.readline()
    for _ in store.keep((JudgeReply(key=key, text=name) for key in mine), key=lambda r: r.key):
        pass
    print([found.text for _, found in sorted(store.get(JudgeReply, keys).items())])
"""


def test_two_processes_that_write_the_same_keys_at_once_end_with_the_same_answers(path):
    with Store(path):
        pass
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, path, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("upwards", "downwards")
    ]
    for writer in writers:
        assert writer.stdout.readline() == "open\n"
    for writer in writers:  # both are ready: let them go
        writer.stdin.write("\n")
        writer.stdin.flush()
    first, second = (writer.communicate(timeout=60)[0] for writer in writers)
    assert first == second
    assert first.count("wards") == 200
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("SELECT COUNT(*) FROM answers").fetchone() == (200,)
    db.close()


def test_processes_that_make_a_store_at_once_make_one(path):
    """Neither may fail because the other was first by a millisecond, or lose what the other writes."""
    path.parent.mkdir()
    writers = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                WRITER.replace(
                    "with Store", "print('open', flush=True); input()\nwith Store"
                ),
                path,
                name,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("upwards", "downwards")
    ]
    for _ in range(2):
        for writer in writers:
            assert writer.stdout.readline() == "open\n"
        for writer in writers:
            writer.stdin.write("\n")
            writer.stdin.flush()
    first, second = (writer.communicate(timeout=60)[0] for writer in writers)
    assert first == second
    assert first.count("wards") == 200
    assert {file.name for file in path.parent.iterdir()} == {path.name}


# Transactions


def n_answers(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT COUNT(*) FROM answers").fetchone()[0]


def put(store: Store, *replies: JudgeReply) -> int:
    return store.put({r.key: r for r in replies})


@pytest.mark.parametrize(
    "error",
    [
        UserError("stop"),
        ValueError("no"),
        KeyError("no"),
        KeyboardInterrupt(),
        GeneratorExit(),
    ],
)
def test_a_transaction_that_is_broken_off_has_done_nothing_and_its_error_is_passed_on(
    path, error
):
    def work(store: Store) -> None:
        with store.transaction():
            put(store, reply("a"))
            raise error

    with Store(path) as store:
        with pytest.raises(type(error)) as raised:
            work(store)
        assert raised.value is error
        assert n_answers(path) == 0
        list(keep(store, reply("b")))  # and the next one begins afresh
    assert texts(path, "a", "b") == {"b": "VERDICT: A"}


def test_an_error_of_the_database_is_one_clear_line(path):
    with Store(path) as store:
        with pytest.raises(UserError) as error, store.transaction() as db:
            put(store, reply("a"))
            db.execute("INSERT INTO nowhere VALUES (1)")
        assert str(error.value).startswith(
            f"{path}: cannot be used as the store (no such table: nowhere). Restore it"
        )
        with pytest.raises(
            UserError, match=r"cannot be used as the store \(no such table: nowhere\)"
        ):
            store.read("SELECT * FROM nowhere")
    assert n_answers(path) == 0


def test_nobody_can_write_between_the_start_of_a_transaction_and_its_end(path):
    """What it reads at its start is still so when it writes."""
    with (
        Store(path) as store,
        closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other,
    ):
        with store.transaction() as db:
            assert db.execute("SELECT COUNT(*) FROM claims").fetchone() == (0,)
            with pytest.raises(sqlite3.OperationalError, match="database is locked"):
                other.execute("INSERT INTO claims VALUES ('k', 'other')")
            assert other.execute("SELECT COUNT(*) FROM claims").fetchone() == (
                0,
            )  # but everybody can read
            db.execute("INSERT INTO claims VALUES ('k', 'mine')")
        assert store.read("SELECT key, owner FROM claims") == [("k", "mine")]


def test_a_transaction_within_another_is_refused_and_undoes_both(path):
    with Store(path) as store:
        with (
            pytest.raises(
                UserError, match="cannot start a transaction within a transaction"
            ),
            store.transaction(),
        ):
            put(store, reply("a"))
            list(keep(store, reply("b")))
        list(keep(store, reply("c")))
    assert texts(path, "a", "b", "c").keys() == {"c"}


def test_what_a_transaction_found_no_room_for_leaves_nothing_of_it(path):
    with Store(path) as store:
        with (
            full_disk(50_000),
            pytest.raises(UserError, match="disk I/O error"),
            store.transaction() as db,
        ):
            db.execute("INSERT INTO claims VALUES ('k', 'mine')")
            put(store, reply("a", "x" * 5_000_000))
        assert store.read("SELECT * FROM claims") == []
        with store.transaction():
            put(store, reply("a"))
    assert texts(path, "a") == {"a": "VERDICT: A"}


def test_what_this_process_has_made_is_counted_and_what_it_has_found_is_not(path):
    with Store(path) as store:
        list(keep(store, reply("a"), reply("b"), chunk=2))
        list(keep(store, reply("a", "made again")))
        assert store.usage.judge_calls == 3
    with Store(path) as store:
        assert store.get(JudgeReply, ["a", "b"])
        assert store.usage.judge_calls == 0


# A store of version 1, which held answers only

VERSION_1 = """
PRAGMA journal_mode = WAL;
CREATE TABLE answers (key TEXT PRIMARY KEY, kind TEXT NOT NULL, value TEXT NOT NULL, created_at TEXT NOT NULL);
PRAGMA application_id = 0x656C6F78;
PRAGMA user_version = 1;
"""
TABLES = {"judges", "losses", "answers", "owners", "claims", "batches", "queries"}


@pytest.fixture
def version_1(path) -> Path:
    """With a thousand answers, as the program of that time wrote them."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(VERSION_1)
        value = '{"key":"k%d","mirrored":false,"stop_reason":"end_turn","text":"answer %d","usage":{}}'
        rows = [
            (f"k{n}", "JudgeReply", value % (n, n), "2026-04-25T00:00:00Z")
            for n in range(1000)
        ]
        db.executemany("INSERT INTO answers VALUES (?, ?, ?, ?)", rows)
    return path


def made_of(path: Path) -> tuple[set[str], int, int, str]:
    """Its tables, its version, how many answers it has, and whether it is sound."""
    with closing(sqlite3.connect(path)) as db:
        tables = {
            name
            for (name,) in db.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
        }
        (version,), (sound,) = (
            db.execute(f"PRAGMA {what}").fetchone()
            for what in ("user_version", "integrity_check")
        )
    return tables, version, n_answers(path), sound


def test_a_store_of_version_1_gets_its_new_tables_and_keeps_its_answers(version_1):
    with closing(sqlite3.connect(version_1)) as db:
        before = db.execute("SELECT * FROM answers").fetchall()
    assert made_of(version_1) == ({"answers"}, 1, 1000, "ok")
    for _ in range(2):  # once is enough
        keys = [f"k{n}" for n in range(1000)]
        assert texts(version_1, *keys) == {f"k{n}": f"answer {n}" for n in range(1000)}
        assert made_of(version_1) == (TABLES, SCHEMA_VERSION, 1000, "ok")
    with closing(sqlite3.connect(version_1)) as db:
        assert db.execute("SELECT * FROM answers").fetchall() == before


def test_a_store_that_was_brought_up_to_date_is_like_one_that_was_made_anew(
    version_1, tmp_path
):
    def schema(path: Path) -> list[tuple[str, ...]]:
        with Store(path) as store:
            return store.read(
                "SELECT type, name, tbl_name FROM sqlite_master ORDER BY name"
            )

    assert schema(version_1) == schema(tmp_path / "new.sqlite")


def test_a_disk_without_room_for_the_new_tables_leaves_the_old_store(version_1):
    with full_disk(100), pytest.raises(UserError, match="cannot be used as the store"):
        Store(version_1)
    assert made_of(version_1) == ({"answers"}, 1, 1000, "ok")
    assert texts(version_1, "k7") == {"k7": "answer 7"}


OPENER = """
import sys
from pathlib import Path
from elo_exp.records import JudgeReply
from elo_exp.store.store import Store

print("ready", flush=True)
sys.stdin.readline()
with Store(Path(sys.argv[1])) as store:
    print(len(store.get(JudgeReply, [f"k{n}" for n in range(1000)])))
"""


def test_processes_that_bring_a_store_up_to_date_at_once_do_so_once(version_1):
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, version_1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for opener in openers:
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        opener.stdin.write("\n")
        opener.stdin.flush()
    assert [opener.communicate(timeout=60)[0] for opener in openers] == ["1000\n"] * 3
    assert made_of(version_1) == (TABLES, SCHEMA_VERSION, 1000, "ok")


# Files that cannot be a store


def refused(path: Path) -> str:
    """The one error with which a store is refused, when it is opened or when it is first read."""
    with pytest.raises(UserError) as error, Store(path) as store:
        store.get(JudgeReply, [f"k{n}" for n in range(200)])
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert "cache_dir=DIR" in message
    return message


def test_a_file_that_is_no_database_is_refused(path):
    path.parent.mkdir()
    path.write_text("What is this? " * 100)
    assert (
        "cannot be used as the store (file is not a database). Restore it from a copy"
        in refused(path)
    )


def test_a_store_with_damaged_pages_is_refused(path):
    with Store(path) as store:
        list(keep(store, *(reply(f"k{n}", "x" * 500) for n in range(200)), chunk=200))
    content = path.read_bytes()
    path.write_bytes(content[:4096] + bytes(len(content) - 8192) + content[-4096:])
    assert "cannot be used as the store (database disk image is malformed)" in refused(
        path
    )


def test_a_store_of_a_newer_version_is_refused_and_left_alone(path):
    with Store(path):
        pass
    with sqlite3.connect(path, isolation_level=None) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    assert (
        f"written by a newer elo_exp (store version {SCHEMA_VERSION + 1}, this program knows"
        in refused(path)
    )
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 1,)
    db.close()


@pytest.mark.parametrize("table", ["accounts", "answers"])
def test_the_database_of_another_program_is_refused_and_left_alone(path, table):
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute(f"CREATE TABLE {table} (name TEXT)")
    db.close()
    before = path.read_bytes()
    assert "cannot be used as the store" in refused(path)
    assert path.read_bytes() == before


def test_a_full_disk_is_reported_and_not_waited_for(path):
    """To wait is for another process's transaction, which ends."""
    start = time.monotonic()
    with full_disk(100):
        message = refused(path)
    assert "cannot be used as the store (disk I/O error)" in message
    assert time.monotonic() - start < 10


def test_a_disk_that_is_full_later_costs_the_answer_that_found_no_room_and_no_other(
    path,
):
    with Store(path) as store:
        list(keep(store, reply("a")))
        with (
            full_disk(50_000),
            pytest.raises(
                UserError, match=r"cannot be used as the store \(disk I/O error\)"
            ),
        ):
            list(keep(store, reply("b", "x" * 5_000_000)))
        list(keep(store, reply("c")))
    assert texts(path, "a", "b", "c").keys() == {"a", "c"}


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "cache").write_text("a file, not a folder")
    assert "cannot be used as the store" in refused(tmp_path / "cache" / "store.sqlite")


def test_an_empty_file_is_no_store(path):
    """A store is never made empty, so something has cut it: a new one in its place would pay again."""
    path.parent.mkdir()
    path.touch()
    assert "is empty, and a store never is" in refused(path)
    assert path.stat().st_size == 0


def test_a_journal_whose_store_is_gone_is_not_read_into_a_new_one(path):
    with Store(path) as store:
        list(keep(store, reply("k")))
        left = path.with_name("left-wal")
        left.write_bytes(path.with_name(f"{path.name}-wal").read_bytes())
    path.unlink()
    left.rename(path.with_name(f"{path.name}-wal"))
    with pytest.raises(
        UserError, match=r"is gone, and its journal store\.sqlite-wal is still there"
    ):
        Store(path)
