"""The batches that were, or may have been, submitted. tests/test_paid_once.py has the law of all of the money path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from elo_exp.records import JudgeReply, UserError
from elo_exp.store.claims import Claims
from elo_exp.store.ledger import Ledger
from elo_exp.store.store import Store
from tests.stores import failing, go_on, process, rows, said, write

HOW: dict[str, Any] = {
    "endpoint": "https://api",
    "judge_model": "opus",
    "ttl": "1h",
    "high_water": "msgbatch_0",
    "now": 100.0,
}


def queries(keys: Iterable[str]) -> dict[str, dict[str, str]]:
    return {key: {"prompt_id": f"prompt of {key}"} for key in keys}


def replies(keys: Iterable[str]) -> dict[str, JudgeReply]:
    return {key: JudgeReply(key=key, text="VERDICT: A", dollars=0.5) for key in keys}


def intend(ledger: Ledger, keys: Sequence[str], **how: Any) -> Any:
    """A batch of the first of these, of which each may cost $2.50."""
    return ledger.intend(queries(keys), [2.5] * len(keys), **{**HOW, **how})


def summary(path: Path) -> tuple[str, str, str, str]:
    """The states of the batches, the outcomes of their queries, what is claimed and answered."""
    tables = (
        "SELECT state FROM batches ORDER BY created_at",
        "SELECT COALESCE(outcome, '-') FROM queries ORDER BY key",
        "SELECT key FROM claims ORDER BY key",
        "SELECT key FROM answers ORDER BY key",
    )
    found = [[str(value) for (value,) in rows(path, query)] for query in tables]
    return " ".join(found[0]), " ".join(found[1]), "".join(found[2]), "".join(found[3])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "store.sqlite"


@contextmanager
def run(path: Path, keys: str = "") -> Iterator[tuple[Store, Claims, Ledger]]:
    """A process at work, which has claimed these keys."""
    with Store(path) as store, Claims(store) as claims:
        assert claims.take(keys) == list(keys)
        yield store, claims, Ledger(store, claims.owner)


def test_a_worked_example(path: Path):
    """Three queries, a, b and c; b fails, is asked again, and answered.

    step             batches             outcomes              claimed  answered
    take                                                       abc
    intend a b c     intended            - - -                 abc
    submitted        submitted           - - -                 abc
    record a         submitted           succeeded - -         bc       a
    record b c       settled             succeeded expired ... b        ac
    intend b again   settled intended    ... -                 b        ac
    record b         settled settled     ...                            abc
    """
    with run(path, "abc") as (store, _, ledger):
        assert summary(path) == ("", "", "abc", "")
        batch = intend(ledger, "abc")
        assert summary(path) == ("intended", "- - -", "abc", "")
        ledger.submitted(batch, "msgbatch_1")
        with Store(path) as other:  # by whoever opens the store
            (read,) = Ledger(other).batches()
            assert (read.batch_id, read.reserve, read.high_water, read.ttl) == (
                "msgbatch_1",
                7.5,
                "msgbatch_0",
                "1h",
            )
            assert Ledger(other).names(read) == queries("abc")
        a, b, c = replies("a"), replies("b"), replies("c")
        assert ledger.record(batch, {"a": "succeeded"}, a, now=200.0) == ({"a"}, a)
        assert summary(path) == ("submitted", "succeeded - -", "bc", "a")
        outcomes = {"b": "expired", "c": "succeeded"}
        assert ledger.record(batch, outcomes, c, now=300.0) == ({"b", "c"}, c)
        assert summary(path) == ("settled", "succeeded expired succeeded", "b", "ac")
        assert (ledger.pending(), ledger.under_way()) == (set(), [])
        again = intend(ledger, "b", now=400.0)
        assert ledger.pending() == {"b"}
        ledger.record(again, {"b": "succeeded"}, b, now=500.0)
        assert [batch.settled_at for batch in ledger.batches()] == [300.0, 500.0]
        assert summary(path)[2:] == ("", "abc")
        assert (store.usage.judge_calls, store.usage.dollars) == (3, 1.5)


def test_a_custom_id_is_proof_of_the_batch_and_fits_what_the_api_allows(path: Path):
    """No option of a command reads the nonce as a number, such as 12345e67."""
    with run(path, "abc") as (_, _, ledger):
        ids = {intend(ledger, keys).custom_id("0" * 40) for keys in ("a", "bc")}
    assert len(ids) == 2
    assert all(
        re.fullmatch(r"[abcdf][0-9a-f]{7}-0{40}", custom_id) for custom_id in ids
    )


def test_a_process_that_slept_neither_submits_nor_abandons_what_another_has_taken_over(
    path: Path,
):
    """Ann's machine sleeps past her lease; Bob, on another, finds her batch. What comes to her is still stored."""
    with run(path, "abc") as (_, ann_claims, ann):
        batch = intend(ann, "ab")
        write(path, "UPDATE owners SET started = 'before'")
        with run(path) as (_, bob_claims, bob):
            assert bob_claims.take("abc") == ["a", "b", "c"]
            assert not ann.abandon(batch, "it did not turn up")
            bob.submitted(batch, "msgbatch_1")
            assert not ann.abandon(batch, "it did not turn up")
            with pytest.raises(UserError, match="another process has taken over"):
                intend(ann, "c")
            assert ann_claims.take("abc") == []
            ann.record(batch, {"a": "succeeded"}, replies("a"), now=1.0)
            outcomes, both = dict.fromkeys("ab", "succeeded"), replies("ab")
            assert bob.record(batch, outcomes, both, now=2.0) == ({"b"}, both)
            assert summary(path) == ("settled", "succeeded succeeded", "c", "ab")


@pytest.mark.parametrize(
    "when",
    [
        "INSERT ON batches",
        "INSERT ON queries WHEN NEW.key = 'c'",
        "UPDATE ON batches WHEN NEW.state = 'submitted'",
        "UPDATE ON queries WHEN NEW.key = 'c'",
        "INSERT ON answers WHEN NEW.key = 'c'",
        "DELETE ON claims WHEN OLD.key = 'c'",
        "UPDATE ON batches WHEN NEW.state = 'settled'",
    ],
)
def test_a_call_that_fails_half_way_has_done_nothing_and_can_be_made_again(
    path: Path, when: str
):
    states = ["", "intended", "submitted"]
    with run(path, "abc") as (store, _, ledger):

        def work() -> None:
            state = summary(path)[0]
            batch = ledger.batches()[0] if state else intend(ledger, "abc")
            if state != "submitted":
                ledger.submitted(batch, "msgbatch_1")
            outcomes = {"a": "succeeded", "b": "errored", "c": "succeeded"}
            ledger.record(batch, outcomes, replies("ac"), now=1.0)

        with failing(path, when), pytest.raises(UserError, match="the disk gave up"):
            work()
        state, outcomes, claimed, answered = summary(path)
        assert state in states
        assert (outcomes, claimed, answered) == ("- - -" if state else "", "abc", "")
        assert store.usage.judge_calls == 0
        work()
        assert summary(path) == ("settled", "succeeded errored succeeded", "b", "ac")
        assert (store.usage.judge_calls, store.usage.dollars) == (2, 1.0)


INTENDER = """
import sys
from pathlib import Path
from elo_exp.store.claims import Claims
from elo_exp.store.ledger import Ledger
from elo_exp.store.store import Store

with Store(Path(sys.argv[1])) as store, Claims(store) as claims:
    ledger = Ledger(store, claims.owner)
    keys = iter(claims.take([f"{sys.argv[2]}{n}" for n in range(30 * 31 // 2)]))
    print("ready", flush=True)
    sys.stdin.readline()
    for size in range(1, 31):
        queries = {next(keys): {} for _ in range(size)}
        ledger.intend(queries, [1.0] * size, endpoint="e", judge_model="m", ttl=None, high_water=None, now=1.0)
    print("done", flush=True)
    sys.stdin.readline()
"""


def test_two_processes_that_intend_at_once_never_have_two_of_a_size(path: Path):
    """Each tries sizes 1 to 30; whoever is first has the size, and the other a smaller one that is free."""
    with ExitStack() as stack:
        names = ("ann", "bob")
        workers = [stack.enter_context(process(INTENDER, path, name)) for name in names]
        for words in ("ready", "done"):
            assert [said(worker) for worker in workers] == [[words], [words]]
            for worker in workers:
                go_on(worker)
    sizes = rows(path, "SELECT size, COUNT(*) FROM batches GROUP BY size")
    assert sizes == [(size, 1) for size in range(1, 31)]
