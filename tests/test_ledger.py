"""The batches that were, or may have been, submitted: whatever happens, nothing is paid for twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elo_exp.records import JudgeReply, UserError
from elo_exp.store.claims import Claims
from elo_exp.store.ledger import Batch, Ledger
from elo_exp.store.store import Store
from tests.stores import failing, go_on, process, rows, said, write

HOW: dict[str, Any] = {
    "endpoint": "https://api",
    "judge_model": "opus",
    "reserve": 2.5,
    "ttl": "1h",
    "high_water": "msgbatch_0",
    "now": 100.0,
}


def queries(keys: Iterable[str]) -> dict[str, dict[str, str]]:
    return {
        key: {"dimension": "factuality", "prompt_id": f"prompt of {key}"}
        for key in keys
    }


def record(
    ledger: Ledger,
    batch: Batch,
    outcomes: dict[str, str],
    replies: list[JudgeReply],
    *,
    now: float,
) -> tuple[set[str], list[JudgeReply]]:
    new, answers = ledger.record(batch, outcomes, {r.key: r for r in replies}, now=now)
    assert list(answers) == [answer.key for answer in answers.values()]
    return new, list(answers.values())


def reply(key: str, text: str = "VERDICT: A", dollars: float = 0.5) -> JudgeReply:
    return JudgeReply(key=key, text=text, dollars=dollars, dimension="factuality")


def intend(ledger: Ledger, keys: Iterable[str], **how: Any) -> Batch:
    batch = ledger.intend(queries(keys), **{**HOW, **how})
    assert batch is not None
    return batch


def everything(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    tables = ("answers", "owners", "claims", "batches", "queries")
    return {
        table: rows(path, f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables
    }


def summary(path: Path) -> tuple[str, str, str, str]:
    """The state of each batch, how its queries ended, what is claimed and what is answered, a letter or word each."""
    outcomes = "SELECT COALESCE(outcome, '-') FROM queries ORDER BY key"
    return (
        " ".join(
            state
            for (state,) in rows(path, "SELECT state FROM batches ORDER BY created_at")
        ),
        " ".join(outcome for (outcome,) in rows(path, outcomes)),
        "".join(key for (key,) in rows(path, "SELECT key FROM claims ORDER BY key")),
        "".join(key for (key,) in rows(path, "SELECT key FROM answers ORDER BY key")),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "store.sqlite"


@contextmanager
def run(path: Path, keys: str = "") -> Iterator[tuple[Store, Claims, Ledger]]:
    """A process at work, which has claimed these keys."""
    with Store(path) as store, Claims(store) as claims:
        assert claims.take(keys) == list(keys)
        yield store, claims, Ledger(store, claims.owner)


# The life of a batch


def test_a_worked_example(path: Path) -> None:
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
        assert summary(path) == ("submitted", "- - -", "abc", "")
        assert record(ledger, batch, {"a": "succeeded"}, [reply("a")], now=200.0) == (
            {"a"},
            [reply("a")],
        )
        assert summary(path) == ("submitted", "succeeded - -", "bc", "a")
        assert ledger.pending() == {"b", "c"}
        outcomes = {"b": "expired", "c": "succeeded"}
        assert record(ledger, batch, outcomes, [reply("c")], now=300.0) == (
            {"b", "c"},
            [reply("c")],
        )
        assert summary(path) == ("settled", "succeeded expired succeeded", "b", "ac")
        assert (ledger.pending(), ledger.under_way()) == (set(), [])
        again = intend(ledger, "b", now=400.0)
        assert (ledger.pending(), [b.nonce for b in ledger.under_way()]) == (
            {"b"},
            [again.nonce],
        )
        assert record(ledger, again, {"b": "succeeded"}, [reply("b")], now=500.0) == (
            {"b"},
            [reply("b")],
        )
        assert summary(path)[0] == "settled settled"
        assert summary(path)[2:] == ("", "abc")
        assert [b.settled_at for b in ledger.batches()] == [300.0, 500.0]
        assert (store.usage.judge_calls, store.usage.dollars) == (3, 1.5)


def test_what_was_written_is_read_by_another_process_and_says_all_that_recovery_needs(
    path: Path,
) -> None:
    with run(path, "ab") as (_, claims, ledger):
        batch = intend(ledger, "ba")
        assert (batch.owner, batch.state, batch.size, batch.batch_id) == (
            claims.owner,
            "intended",
            2,
            None,
        )
        assert (batch.reserve, batch.ttl, batch.high_water, batch.created_at) == (
            2.5,
            "1h",
            "msgbatch_0",
            100.0,
        )
        with Store(path) as other:
            reader = Ledger(other, owner="")
            assert reader.batches() == [batch]
            assert reader.find(batch.nonce) == batch
            assert reader.names(batch) == queries("ab")
            assert reader.pending() == {"a", "b"}
            assert (reader.under_way(), ledger.under_way()) == ([], [batch])


def test_a_custom_id_is_proof_of_the_batch_and_fits_what_the_api_allows(
    path: Path,
) -> None:
    with run(path, "abcdefghij") as (_, _, ledger):
        batches = [intend(ledger, keys) for keys in ("a", "bc", "def", "ghij")]
    ids = {batch.custom_id("0123456789" * 4) for batch in batches}
    assert len(ids) == 4
    assert all(
        re.fullmatch(r"[a-f][0-9a-f]{7}-[0-9]{40}", i) and len(i) == 49 for i in ids
    )  # no number: 12345678-...


def test_batches_come_oldest_first(path: Path) -> None:
    """As a machine does whose clock was set back between two of them; equal times stay as they were written."""
    with run(path, "abcdefghij") as (_, _, ledger):
        for keys, now in [("a", 300.0), ("bc", 200.0), ("def", 200.0), ("ghij", 100.0)]:
            intend(ledger, keys, now=now)
        assert [batch.size for batch in ledger.batches()] == [4, 2, 3, 1]


def test_a_process_that_slept_cannot_abandon_what_another_has_taken_over(
    path: Path,
) -> None:
    """Bob has found Ann's batch at the server: if it were abandoned now, it would be paid for again."""
    with run(path, "a") as (_, _, ann):
        batch = intend(ann, "a")
        write(path, "UPDATE owners SET started = 'before'")
        with run(path, "a") as (_, _, bob):
            assert not ann.abandon(
                batch, "it did not turn up"
            )  # nor before it is found
            bob.submitted(batch, "msgbatch_1")
            assert not ann.abandon(batch, "it did not turn up")
        with run(path, "a") as (_, _, heir):
            assert (heir.pending(), [b.batch_id for b in heir.under_way()]) == (
                {"a"},
                ["msgbatch_1"],
            )
            assert heir.find(batch.nonce).note is None


def test_what_was_given_up_and_accepted_all_the_same_is_collected(path: Path) -> None:
    """The user gave it up while the server's answer was on its way."""
    with run(path, "a") as (_, _, ledger):
        batch = intend(ledger, "a")
        ledger.give_up(batch, "given up by the user")
        ledger.submitted(batch, "msgbatch_1")
        assert [b.batch_id for b in ledger.under_way()] == ["msgbatch_1"]


def test_what_is_done_to_one_batch_is_done_to_no_other(path: Path) -> None:
    """The same key in two batches, the first of which was given up: only the second one's outcome is noted."""
    with run(path, "ab") as (_, _, ledger):
        first = intend(ledger, "ab")
        ledger.give_up(first, "given up by the user")
        second = intend(ledger, "ab")
        ledger.submitted(second, "msgbatch_2")
        record(ledger, second, {"a": "succeeded"}, [reply("a")], now=1.0)
        assert ledger.outcomes(first) == {"pending": 2}
        assert ledger.outcomes(second) == {"pending": 1, "succeeded": 1}
        assert [(b.state, b.batch_id) for b in ledger.batches()] == [
            ("abandoned", None),
            ("submitted", "msgbatch_2"),
        ]
        record(ledger, second, {"b": "succeeded"}, [reply("b")], now=2.0)
        assert [b.state for b in ledger.batches()] == ["abandoned", "settled"]


def test_one_id_belongs_to_one_batch(path: Path) -> None:
    with run(path, "abc") as (_, _, ledger):
        first, second = intend(ledger, "a"), intend(ledger, "bc")
        ledger.submitted(first, "msgbatch_1")
        with pytest.raises(
            UserError, match="UNIQUE constraint failed: batches.batch_id"
        ):
            ledger.submitted(second, "msgbatch_1")
        assert [b.state for b in ledger.batches()] == ["submitted", "intended"]


# What is not submitted


def test_no_two_batches_of_unknown_fate_have_one_size(path: Path) -> None:
    """Size is all that shows of a batch at the server before it ends."""
    with run(path, "abcde") as (_, _, ledger):
        first = intend(ledger, "ab")
        before = everything(path)
        assert ledger.intend(queries("cd"), **HOW) is None
        assert everything(path) == before
        intend(ledger, "e")
        ledger.submitted(first, "msgbatch_1")  # its fate is known
        intend(ledger, "cd")


def test_they_may_at_different_servers(path: Path) -> None:
    with run(path, "ab") as (_, _, ledger):
        first = intend(ledger, "a")
        second = intend(ledger, "b", endpoint="https://another")
        assert [(b.nonce, b.size) for b in ledger.under_way()] == [
            (first.nonce, 1),
            (second.nonce, 1),
        ]


@pytest.mark.parametrize(
    "keys", ["x", "ax", "ab"], ids=["never claimed", "one of two", "let go"]
)
def test_nothing_is_submitted_without_a_claim_on_it(path: Path, keys: str) -> None:
    with run(path, "ab") as (_, claims, ledger):
        claims.keep("b", reply("b"))
        before = everything(path)
        with pytest.raises(UserError) as error:
            ledger.intend(queries(keys), **HOW)
        assert everything(path) == before
    assert str(error.value) == (
        "another process has taken over some of this run's queries, as if this one had died. Nothing more is "
        "submitted; the same command goes on."
    )


def test_a_process_that_slept_and_was_taken_for_dead_submits_nothing_more(
    path: Path,
) -> None:
    """Ann's machine sleeps past her lease; Bob, on another, takes over. What she had submitted is still taken in."""
    with run(path, "abc") as (_, ann_claims, ann):
        batch = intend(ann, "ab")
        ann.submitted(batch, "msgbatch_1")
        write(path, "UPDATE owners SET started = 'before'")
        with run(path) as (_, bob_claims, bob):
            assert bob_claims.take("abc") == ["a", "b", "c"]
            assert ([b.nonce for b in bob.under_way()], ann.under_way()) == (
                [batch.nonce],
                [],
            )
            with pytest.raises(UserError, match="another process has taken over"):
                ann.intend(queries("c"), **HOW)
            assert ann_claims.take("abc") == []
            record(ann, batch, {"a": "succeeded"}, [reply("a")], now=1.0)
            both = [reply("a"), reply("b")]
            assert record(
                bob, batch, dict.fromkeys("ab", "succeeded"), both, now=2.0
            ) == (
                {"b"},
                both,
            )
            assert summary(path) == ("settled", "succeeded succeeded", "c", "ab")


def test_a_result_counts_once_however_often_it_comes(path: Path) -> None:
    with run(path, "ab") as (store, _, ledger):
        batch = intend(ledger, "ab")
        outcomes, replies = {"a": "succeeded", "b": "errored"}, [reply("a")]
        assert record(ledger, batch, outcomes, replies, now=1.0) == (
            {"a", "b"},
            replies,
        )
        before = everything(path)
        for later in (2.0, 3.0):
            assert record(ledger, batch, outcomes, replies, now=later) == (
                set(),
                replies,
            )
        assert everything(path) == before
        assert (store.usage.judge_calls, store.usage.dollars) == (1, 0.5)
        assert store.usage.dollars_by_dimension == {"factuality": 0.5}


def test_the_first_answer_stays_and_the_second_is_paid_for_all_the_same(
    path: Path,
) -> None:
    with run(path, "a") as (store, _, ledger):
        batch = intend(ledger, "a")
        first = reply("a", "first", dollars=0.25)
        list(store.keep([first], key=lambda r: r.key))
        found = record(
            ledger, batch, {"a": "succeeded"}, [reply("a", "second")], now=1.0
        )
        assert found == ({"a"}, [first])  # every run shall see the same
        assert store.get(JudgeReply, "a")["a"] == first
        assert (summary(path)[2], store.usage.dollars) == ("", 0.75)


RESULTS = dict(
    zip("abcdefgh", ["succeeded"] * 5 + ["errored", "expired", "canceled"], strict=True)
)
PARTS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=6)


@given(parts=PARTS)
@settings(max_examples=10, deadline=None)
def test_law_order_parts_and_repeats_of_the_results_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[str]]
) -> None:
    """Against all of them at once. Until the last outcome is known the batch is not settled."""
    found = []
    for rest, how in ([[], "at once"], [parts, "in parts"]):
        path = tmp_path_factory.mktemp("law") / "store.sqlite"
        with run(path, "abcdefgh") as (store, _, ledger):
            batch = intend(ledger, "abcdefgh")
            ledger.submitted(batch, "msgbatch_1")
            known: set[str] = set()
            for part in [*rest, list("abcdefgh")]:
                answers = [reply(key) for key in part if RESULTS[key] == "succeeded"]
                new, seen = record(
                    ledger, batch, {key: RESULTS[key] for key in part}, answers, now=1.0
                )
                assert (new, seen) == (set(part) - known, answers), how
                known |= new
                assert ledger.pending() == set("abcdefgh") - known
                assert ledger.find(batch.nonce).state == (
                    "settled" if len(known) == 8 else "submitted"
                )
            found.append((summary(path), store.usage.judge_calls, store.usage.dollars))
    assert found[0] == found[1]
    assert found[0][0][2:] == ("fgh", "abcde")


@dataclass
class Expected:
    """What should be known of a batch."""

    batch: Batch
    keys: set[str]  # still to come
    state: str = "intended"

    @property
    def open(self) -> bool:
        return self.state in ("intended", "submitted")


CALLS = st.sampled_from(["intend", "submitted", "abandon", "give up", "record"])
SOME = st.lists(st.sampled_from("abcdef"), min_size=1, unique=True)


@given(steps=st.lists(st.tuples(CALLS, st.integers(0, 5), SOME), max_size=15))
@settings(max_examples=20, deadline=None)
def test_law_the_ledger_says_what_a_list_of_batches_in_memory_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, list[str]]]
) -> None:
    """Any calls in any order: nothing is submitted that is answered or under way, and no call undoes what is known."""
    path = tmp_path_factory.mktemp("law") / "store.sqlite"
    expected: list[Expected] = []
    answered: set[str] = set()
    with run(path, "abcdef") as (_, _, ledger):
        for n, (call, which, some) in enumerate(steps):
            pending = {key for e in expected if e.open for key in e.keys}
            known = expected[which % len(expected)] if expected else None
            if call == "intend":
                about, how = queries(some), {**HOW, "now": float(n)}
                if any(
                    e.batch.size == len(some) for e in expected if e.state == "intended"
                ):
                    assert ledger.intend(about, **how) is None
                elif pending.union(answered) & set(some):
                    with pytest.raises(UserError, match="Nothing more is submitted"):
                        ledger.intend(about, **how)
                else:
                    expected.append(
                        Expected(intend(ledger, some, now=float(n)), set(some))
                    )
            elif known and call == "submitted":
                ledger.submitted(known.batch, f"msgbatch_{n}")
                known.state = (
                    "submitted"
                    if known.state in ("intended", "abandoned")
                    else known.state
                )
            elif known and call == "abandon":
                assert ledger.abandon(known.batch, "not accepted") == (
                    known.state == "intended"
                )
                known.state = "abandoned" if known.state == "intended" else known.state
            elif known and call == "give up":
                ledger.give_up(known.batch, "given up by the user")
                known.state = "abandoned" if known.open else known.state
            elif known and call == "record":
                answers = [reply(key) for key in some if key in known.keys]
                new, seen = record(
                    ledger,
                    known.batch,
                    dict.fromkeys(some, "succeeded"),
                    answers,
                    now=float(n),
                )
                assert (new, seen) == (known.keys & set(some), answers)
                known.keys -= new
                answered |= new
                known.state = (
                    "settled" if known.open and not known.keys else known.state
                )
            assert ledger.pending() == {
                key for e in expected if e.open for key in e.keys
            }
            assert [batch.state for batch in ledger.batches()] == [
                e.state for e in expected
            ]
            assert [b.nonce for b in ledger.under_way()] == [
                e.batch.nonce for e in expected if e.open
            ]


# Failures


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
) -> None:
    with run(path, "abc") as (store, _, ledger):
        done: list[str] = []

        def work() -> None:
            if "intend" not in done:
                intend(ledger, "abc")
                done.append("intend")
            (batch,) = ledger.batches()
            if "submitted" not in done:
                ledger.submitted(batch, "msgbatch_1")
                done.append("submitted")
            outcomes = {"a": "succeeded", "b": "errored", "c": "succeeded"}
            new, _ = record(ledger, batch, outcomes, [reply("a"), reply("c")], now=1.0)
            assert new == {"a", "b", "c"}

        with (
            failing(path, when),
            pytest.raises(
                UserError, match=r"cannot be used as the store \(the disk gave up\)"
            ),
        ):
            work()
        states = {0: "", 1: "intended", 2: "submitted"}[len(done)]
        assert summary(path) == (states, "- - -" if done else "", "abc", "")
        assert store.usage.judge_calls == 0
        work()
        assert summary(path) == ("settled", "succeeded errored succeeded", "b", "ac")
        assert (store.usage.judge_calls, store.usage.dollars) == (2, 1.0)


def test_names_that_are_no_json_are_refused_before_anything_is_written(
    path: Path,
) -> None:
    with run(path, "ab") as (_, _, ledger):
        with pytest.raises(ValueError, match="not JSON compliant"):
            ledger.intend({**queries("a"), "b": {"dimension": float("nan")}}, **HOW)
        assert ledger.batches() == []
        intend(ledger, "ab")


# What the next process finds: the batches that become its own, which keys are still to come in them, what is answered.


def test_two_processes_that_intend_at_once_never_have_two_of_a_size(path: Path) -> None:
    """Each tries sizes 1 to 30; whoever is first has the size."""
    script = """
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
        ledger.intend(queries, endpoint="e", judge_model="m", reserve=1.0, ttl=None, high_water=None, now=1.0)
    print("done", flush=True)
    sys.stdin.readline()
"""
    with ExitStack() as stack:
        workers = [
            stack.enter_context(process(script, path, name)) for name in ("ann", "bob")
        ]
        for words in ("ready", "done"):
            assert [said(worker) for worker in workers] == [[words], [words]]
            for worker in workers:
                go_on(worker)
    assert rows(path, "SELECT size, COUNT(*) FROM batches GROUP BY size") == [
        (size, 1) for size in range(1, 31)
    ]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
