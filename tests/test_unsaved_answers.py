"""A store that cannot take an answer: it is tried again, then kept in a file, and never paid for twice."""

from __future__ import annotations

import errno
import logging
import os
import resource
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from elo_exp.errors import UserError
from elo_exp.files import errno_advice
from elo_exp.records import JudgeReply, Response
from elo_exp.store.answer_store import Store
from elo_exp.store.caps import Account, Caps
from elo_exp.store.claims import Claims
from elo_exp.store.database import DatabaseError
from elo_exp.store.unsaved import Charge, UnsavedAnswers
from tests.data import full_disk
from tests.stores import Place, place, rows, write

__all__ = ["place"]

WHOLE = "PRAGMA integrity_check"


def reply(key: str, text: str = "VERDICT: A") -> JudgeReply:
    return JudgeReply(key=key, text=text, dollars=0.25)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("n_bytes", [*range(0, 70_000, 8192), 131_072])
def test_a_store_that_was_begun_on_a_full_disk_works_when_there_is_room(
    tmp_path: Path, n_bytes: int
):
    """However much of it could be written, no half of a store and no draft stays."""
    path = tmp_path / "cache" / "store.sqlite"
    try:
        with full_disk(n_bytes), Store(path):
            pass
    except UserError as error:
        assert "cannot be used as the store" in str(error)
        assert "raise the limit" in str(error)
    assert {file.name for file in path.parent.iterdir()} <= {path.name}
    with Store(path) as store:
        store.commit({"k": reply("k")})
    assert rows(path, WHOLE) == [("ok",)]


def test_an_answer_waits_for_room(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with Store(tmp_path / "store.sqlite", wait_minutes=1) as store:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        freed = threading.Timer(
            0.3, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        )
        with full_disk(100_000):
            freed.start()
            store.commit({"a": reply("a", "x" * 300_000)})
        freed.join()
        assert store.get(JudgeReply, ["a"])["a"].dollars == 0.25
    assert any("Trying again for up to 1 minutes" in text for text in caplog.messages)
    assert not [*tmp_path.glob("unsaved_*")]


def broken(
    monkeypatch: pytest.MonkeyPatch, store: Store, error: Exception | BaseException
) -> None:
    """From now on the database takes nothing."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(store._db, "write", fail)


ENDS: dict[str, Callable[[], BaseException]] = {
    "full": lambda: DatabaseError("full", errno=errno.ENOSPC, is_transient=True),
    "damaged": lambda: DatabaseError("malformed"),
    "interrupted": KeyboardInterrupt,
}


@pytest.mark.parametrize("end", ENDS)
def test_an_answer_that_cannot_be_kept_is_taken_in_by_the_next_command(
    place: Place,
    end: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """It is not asked for again, is charged at what it cost, and no call counts as lost."""
    caplog.set_level(logging.INFO, "elo_exp")
    account, folder = Account(caps=Caps(month_usd=9.0)), tmp_path / "beside"
    with Store(place, folder=folder) as store, monkeypatch.context() as patch:
        store.account = account
        claims = Claims(store)
        claims.__enter__()
        claims.take(["a", "b"])
        claims.record_call("a", 1.5)
        broken(patch, store, ENDS[end]())
        with pytest.raises((UserError, KeyboardInterrupt)) as error:
            claims.commit_answer("a", reply("a"), 0.25)
        if end != "interrupted":
            assert "1 answer in hand: kept in " in str(error.value)
            assert str(error.value).endswith(
                "\n  The next command with this store reads this file."
            )
        patch.undo()
        claims.__exit__()
    (path,) = folder.glob("unsaved_*.jsonl")
    with Store(place, folder=folder) as store, Claims(store) as claims:
        store.account = account
        assert claims.take(["a", "b"]) == ["b"]
        assert store.get(JudgeReply, ["a"])["a"] == reply("a")
        (spent,) = store.list_spending()
        assert (spent.dollars, spent.reserved) == (0.25, 0.0)
        assert store.usage.calls_lost == 0
    assert not path.exists()
    assert any(text.startswith("took in 1 answers") for text in caplog.messages)


def test_a_process_that_waits_takes_in_what_another_one_could_not_keep(
    place: Place, tmp_path: Path
):
    """Before it takes over the claims of the dead, which would pay again."""
    folder = tmp_path / "beside"
    with Store(place, folder=folder) as store, Claims(store) as claims:
        UnsavedAnswers(place, folder).write({"a": reply("a")}, None)
        assert claims.take(["a"]) == []


def test_without_room_in_its_folder_an_answer_goes_to_a_private_one(
    tmp_path: Path, temporary: Path
):
    place, folder = tmp_path / "store.sqlite", tmp_path / "a file"
    folder.touch()
    files = UnsavedAnswers(place, folder)
    path = files.write({"a": reply("a")}, Charge(name="call", dollars=0.25))
    assert path.is_relative_to(temporary)
    assert path.parent.stat().st_mode & 0o077 == 0
    assert files.files() == [path]
    (found,) = files.read(path)
    assert found.charge == Charge(name="call", dollars=0.25)
    assert UnsavedAnswers(tmp_path / "other.sqlite", folder).files() == []
    files.remove(path)
    assert [*temporary.iterdir()] == []


def test_a_store_that_another_program_holds_is_reported_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("elo_exp.store.sqlite._MAX_SILENT_WAIT_SECONDS", 0.05)
    path = tmp_path / "store.sqlite"
    with (
        Store(path) as store,
        closing(sqlite3.connect(path, check_same_thread=False)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        freed = threading.Timer(0.3, other.rollback)
        freed.start()
        store.commit({"a": reply("a")})
        freed.join()
    said = [text for text in caplog.messages if "is held by another program" in text]
    assert len(said) == 1
    assert said[0].endswith("Waiting up to 60 s for it")
    assert len(rows(path, "SELECT * FROM answers")) == 1


# What is stored is read by its type


BAD: dict[str, str] = {
    "number": "7",
    "list": "[1]",
    "text of a number": '{"key":"k","text":7}',
    "tokens": '{"key":"k","text":"t","usage":{"input_tokens":"7"}}',
    "usage": '{"key":"k","text":"t","usage":[1]}',
    "dollars": '{"key":"k","text":"t","dollars":"free"}',
    "endless": '{"key":"k","text":"t","dollars":NaN}',
    "mirrored": '{"key":"k","text":"t","mirrored":1}',
    "another kind": '{"entrant_id":"e","prompt_id":"p","response_text":"t"}',
    "deep": "[" * 100_000,
    "cut": '{"key":"k","te',
    "none": "null",
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_a_stored_answer_of_another_type_is_one_line_with_its_key(
    place: Place, value: str
):
    with Store(place) as store:
        store.commit({"k": reply("k")})
        write(place, "UPDATE answers SET value = ?", value)
        with pytest.raises(UserError) as error:
            store.get(JudgeReply, ["k"])
    line, *below = str(error.value).splitlines()
    assert line.startswith(f"{place} holds a JudgeReply that cannot be read (")
    assert below[0] == "  Its key is 'k'."
    assert below[1].startswith("  Restore the store from a copy")
    assert len(below) == 2


def test_an_answer_of_every_type_that_is_written_is_read(place: Place):
    answers = {
        "a": Response(entrant_id="e", prompt_id="p", response_text="t", p_correct=1),
        "b": Response(
            entrant_id="e", prompt_id="p", response_text="t", diagnostics={"a": [None]}
        ),
    }
    with Store(place) as store:
        store.commit(answers)
        assert store.get(Response, ["a", "b"]) == answers


# Advice


def outcomes() -> Iterator[tuple[int, str]]:
    yield errno.ENOSPC, "Free some space"
    yield errno.EDQUOT, "Free some space"
    yield errno.EFBIG, "ulimit -f"
    yield errno.EROFS, "read-only"
    yield errno.EACCES, "Check who may"
    yield errno.EIO, "The disk reports an error"
    yield errno.EMFILE, "ulimit -n"
    yield errno.EBUSY, "Another program holds it"


@pytest.mark.parametrize(("number", "words"), [*outcomes()])
def test_advice_goes_by_the_number_of_the_error(
    number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    said = errno_advice(number)
    assert said is not None and words in said
    assert ("Free some space" in said) == (number in (errno.ENOSPC, errno.EDQUOT))
    with Store(tmp_path / "store.sqlite") as store:
        broken(monkeypatch, store, OSError(number, os.strerror(number)))
        with pytest.raises(UserError, match=words):
            store.commit({"a": reply("a")})


def test_a_folder_that_may_not_be_written_is_told_from_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """SQLite says "unable to open database file" of both, and of too many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with pytest.raises(OSError, match="Too many"):
            while True:
                files.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(UserError, match="ulimit -n"):
            Store(tmp_path / "store.sqlite")
    finally:
        for number in files:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with Store(tmp_path / "store.sqlite"):
        pass
