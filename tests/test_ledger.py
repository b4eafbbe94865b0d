"""The batches that were, or may have been, submitted. tests/test_paid_once.py has the law of all of the money place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from elo_exp.errors import UserError
from elo_exp.records import JudgeReply
from elo_exp.store.answer_store import Store
from elo_exp.store.claims import Claims
from elo_exp.store.ledger import Ledger
from tests.stores import Place, place, rows, write

__all__ = ["place"]

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
    return ledger.record_intent(queries(keys), [2.5] * len(keys), **{**HOW, **how})


def summary(place: Place) -> tuple[str, str, str, str]:
    """The states of the batches, the outcomes of their queries, what is claimed and answered."""
    tables = (
        "SELECT state FROM batches ORDER BY created_at",
        "SELECT COALESCE(outcome, '-') FROM queries ORDER BY key",
        "SELECT key FROM claims ORDER BY key",
        "SELECT key FROM answers ORDER BY key",
    )
    found = [[str(value) for (value,) in rows(place, query)] for query in tables]
    return " ".join(found[0]), " ".join(found[1]), "".join(found[2]), "".join(found[3])


@contextmanager
def run(place: Place, keys: str = "") -> Iterator[tuple[Store, Claims, Ledger]]:
    """A process at work, which has claimed these keys."""
    with Store(place) as store, Claims(store) as claims:
        assert claims.take(keys) == list(keys)
        yield store, claims, Ledger(store, claims.owner)


def test_a_worked_example(place: Place):
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
    with run(place, "abc") as (store, _, ledger):
        assert summary(place) == ("", "", "abc", "")
        batch = intend(ledger, "abc")
        assert summary(place) == ("intended", "- - -", "abc", "")
        ledger.mark_submitted(batch, "msgbatch_1")
        with Store(place) as other:  # by whoever opens the store
            (read,) = Ledger(other).batches()
            assert (read.batch_id, read.reserve, read.high_water, read.ttl) == (
                "msgbatch_1",
                7.5,
                "msgbatch_0",
                "1h",
            )
            assert Ledger(other).read_request_names(read) == queries("abc")
        a, b, c = replies("a"), replies("b"), replies("c")
        assert ledger.record_results(batch, {"a": "succeeded"}, a, {}, now=200.0) == (
            {"a"},
            a,
        )
        assert summary(place) == ("submitted", "succeeded - -", "bc", "a")
        outcomes = {"b": "expired", "c": "succeeded"}
        assert ledger.record_results(batch, outcomes, c, {}, now=300.0) == (
            {"b", "c"},
            c,
        )
        assert summary(place) == ("settled", "succeeded expired succeeded", "b", "ac")
        assert (ledger.list_pending_keys(), ledger.list_own_open_batches()) == (
            set(),
            [],
        )
        again = intend(ledger, "b", now=400.0)
        assert ledger.list_pending_keys() == {"b"}
        ledger.record_results(again, {"b": "succeeded"}, b, {}, now=500.0)
        assert [batch.settled_at for batch in ledger.batches()] == [300.0, 500.0]
        assert summary(place)[2:] == ("", "abc")
        assert (store.usage.judge_calls, store.usage.dollars) == (3, 1.5)


def test_two_batches_whose_arrival_is_doubtful_differ_in_size(place: Place):
    """A lost submission is looked for by its size, at one endpoint; a size is free again once the answer is there.

    a b c d e: intended 2; again 2: one, since two is taken; again 2 at another endpoint: two
    """
    with run(place, "abcdefghi") as (_, _, ledger):
        first = intend(ledger, "ab")
        assert (first.size, first.reserve) == (2, 5.0)
        second = intend(ledger, "cd")
        assert (second.size, second.reserve) == (1, 2.5)
        assert ledger.read_request_names(second) == queries("c")
        assert intend(ledger, "de") is None  # neither two nor one
        assert ledger.list_pending_keys() == set("abc")
        assert intend(ledger, "de", endpoint="https://other").size == 2
        ledger.mark_submitted(first, "msgbatch_1")
        assert intend(ledger, "fg").size == 2
        ledger.abandon(second, "it did not turn up")
        assert intend(ledger, "h").size == 1


def test_what_is_in_a_batch_under_way_enters_no_other(place: Place):
    """Not even one of this process, which holds the claims; an outcome ends that."""
    with run(place, "ab") as (_, _, ledger):
        batch = intend(ledger, "ab")
        ledger.mark_submitted(batch, "msgbatch_1")
        with pytest.raises(UserError, match="Another process has taken over"):
            intend(ledger, "a")
        ledger.record_results(batch, {"a": "expired"}, {}, {}, now=200.0)
        with pytest.raises(UserError, match="Another process has taken over"):
            intend(ledger, "b")
        assert intend(ledger, "a").size == 1


def test_a_custom_id_is_proof_of_the_batch_and_fits_what_the_api_allows(place: Place):
    """No option of a command reads the nonce as a number, such as 12345e67."""
    with run(place, "abc") as (_, _, ledger):
        ids = {intend(ledger, keys).custom_id("0" * 40) for keys in ("a", "bc")}
    assert len(ids) == 2
    assert all(
        re.fullmatch(r"[abcdf][0-9a-f]{7}-0{40}", custom_id) for custom_id in ids
    )


def test_a_process_that_slept_neither_submits_nor_abandons_what_another_has_taken_over(
    place: Place,
):
    """Ann's machine sleeps past her lease; Bob, on another, finds her batch. What comes to her is still stored."""
    with run(place, "abc") as (_, ann_claims, ann):
        batch = intend(ann, "ab")
        write(place, "UPDATE owners SET started = 'before'")
        with run(place) as (_, bob_claims, bob):
            assert bob_claims.take("abc") == ["a", "b", "c"]
            assert not ann.abandon(batch, "it did not turn up")
            bob.mark_submitted(batch, "msgbatch_1")
            assert not ann.abandon(batch, "it did not turn up")
            with pytest.raises(UserError, match="Another process has taken over"):
                intend(ann, "c")
            assert ann_claims.take("abc") == []
            ann.record_results(batch, {"a": "succeeded"}, replies("a"), {}, now=1.0)
            outcomes, both = dict.fromkeys("ab", "succeeded"), replies("ab")
            assert bob.record_results(batch, outcomes, both, {}, now=2.0) == (
                {"b"},
                both,
            )
            assert summary(place) == ("settled", "succeeded succeeded", "c", "ab")
