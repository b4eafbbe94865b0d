"""The rows that travel through the suite: frozen, flat, one JSON object each, and named by a fingerprint."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.ratings.leaderboard import Rating
from elo_exp.records import (
    Battle,
    JudgeReply,
    Judgment,
    Prompt,
    Record,
    Response,
    Verdict,
    canonical_json,
    fingerprint,
)
from tests.data import COMPARISON

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


def verdict(letter: str = "A", *, position_swap: bool = False) -> Verdict:
    return Verdict(
        cache_key="0f",
        rubric_version="v1",
        judge_model="lexical",
        position_swap=position_swap,
        verdict=letter,
    )


def judgment(winner: str | None) -> Judgment:
    return Judgment(
        prompt_id="p1",
        dimension="factuality",
        entrant_a="ann",
        entrant_b="bob",
        winner=winner,
        inconsistent=False,
        invalid=False,
        raw=(verdict("A"), verdict("B", position_swap=True)),
    )


RECORDS: list[Record] = [
    Prompt(
        prompt_id="p1", text="Why?", source="medqa", subject="renal", tags=("a", "b")
    ),
    Response(
        entrant_id="ann", prompt_id="p1", response_text="µg", diagnostics={"seed": 7}
    ),
    COMPARISON,
    JudgeReply(key="0f", text="VERDICT: A", mirrored=True, usage={"input_tokens": 12}),
    judgment("ann"),
    Battle(model_a="ann", model_b="bob", winner="tie (bothbad)", question_id="p1"),
    Rating(model="ann", rating=1400.25, ordering_error=0.5),
]


# The fingerprint


def test_the_fingerprint_of_a_known_value_never_changes():
    """Every stored answer is found by such a name: if this value changes, all that was ever paid for is lost."""
    value = {"judge": ["opus", 1, 0.5, None, True], "text": "µ = 3 × 10⁻⁶"}
    assert fingerprint(value) == "bd62757e8a850db04b201f9b7eb054c20260e0e9"


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", 1), (["ab", "c"], ["a", "bc"]), (None, ""), ({}, []), (0, False)],
)
def test_values_that_differ_have_different_names(one, other):
    assert fingerprint(one) != fingerprint(other)


@given(JSON_VALUES)
def test_a_value_keeps_its_name_through_a_file(value):
    assert fingerprint(json.loads(json.dumps(value))) == fingerprint(value)


@given(st.dictionaries(st.text(), JSON_VALUES, min_size=2))
def test_the_canonical_text_is_the_same_for_every_insertion_order(value):
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


def test_half_an_emoji_has_a_name_of_its_own():
    """A server's JSON may say half a surrogate pair, which UTF-8 cannot hold; that it is so is not its escape."""
    names = {fingerprint(text) for text in ("\ud83d", "\\ud83d", "\\\\ud83d", "?", "")}
    assert len(names) == 5


def test_not_a_number_has_no_name():
    with pytest.raises(ValueError, match="not JSON compliant"):
        fingerprint(float("nan"))


# Rows


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_a_record_is_read_back_from_its_own_json(record):
    assert type(record).from_dict(json.loads(json.dumps(record.to_dict()))) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_unknown_keys_are_ignored(record):
    """So that a file written by a later version, or by another program, still loads."""
    row = {name: getattr(record, name) for name in record.to_dict()}
    assert (
        type(record).from_dict({**row, "_provenance": {"id": 8}, "category": None})
        == record
    )


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_a_record_cannot_be_changed(record):
    field = dataclasses.fields(record)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, field, "other")


def test_optional_fields_may_be_absent():
    row = {"model_a": "ann", "model_b": "bob", "winner": "model_a"}
    assert Battle.from_dict(row) == Battle(
        model_a="ann", model_b="bob", winner="model_a", source="human"
    )


def test_the_first_required_field_that_is_absent_is_named():
    with pytest.raises(KeyError, match="response_text"):
        Response.from_dict({"entrant_id": "ann", "prompt_id": "p1"})


# What single records know


def test_swapping_a_comparison_exchanges_entrants_and_responses_and_nothing_else():
    swapped = COMPARISON.swapped()
    assert (swapped.entrant_a, swapped.response_a) == (
        COMPARISON.entrant_b,
        COMPARISON.response_b,
    )
    assert (swapped.entrant_b, swapped.response_b) == (
        COMPARISON.entrant_a,
        COMPARISON.response_a,
    )
    assert swapped.swapped() == COMPARISON


def test_a_judgment_cannot_be_won_by_a_third():
    with pytest.raises(ValueError, match="winner 'eve' is neither 'ann' nor 'bob'"):
        judgment("eve")


@pytest.mark.parametrize(
    ("winner", "is_tie"),
    [("model_a", False), ("model_b", False), ("tie", True), ("tie (bothbad)", True)],
)
def test_both_kinds_of_tie_are_ties(winner, is_tie):
    assert Battle(model_a="ann", model_b="bob", winner=winner).is_tie is is_tie


@pytest.mark.parametrize(
    ("ab", "ba", "inconsistent"),
    [
        ("model_a", "model_b", True),
        ("model_a", "tie", True),
        ("model_a", "model_a", False),
        ("model_a", None, False),  # one order was asked: it cannot disagree with itself
        (None, None, False),
    ],
)
def test_a_battle_is_inconsistent_where_both_orders_were_asked_and_disagree(
    ab, ba, inconsistent
):
    battle = Battle(
        model_a="ann", model_b="bob", winner="tie", verdict_ab=ab, verdict_ba=ba
    )
    assert battle.is_inconsistent is inconsistent
