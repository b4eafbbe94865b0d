"""The rows that travel through the suite: frozen, flat, one JSON object each, and named by a fingerprint."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

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
    make_fingerprint,
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


def judgment(winner: str | None) -> Judgment:
    verdict = Verdict(
        cache_key="0f",
        rubric_version="v1",
        judge_model="lexical",
        position_swap=False,
        verdict="A",
    )
    swapped = dataclasses.replace(verdict, verdict="B", position_swap=True)
    return Judgment(
        prompt_id="p1",
        dimension="factuality",
        entrant_a="ann",
        entrant_b="bob",
        winner=winner,
        inconsistent=False,
        invalid=False,
        raw=(verdict, swapped),
    )


RECORDS: list[Record] = [
    Prompt(
        prompt_id="p1", text="Why?", source="medqa", subject="renal", tags=("a", "b")
    ),
    Response(
        entrant_id="ann", prompt_id="p1", response_text="µg", diagnostics={"n": 7}
    ),
    COMPARISON,
    JudgeReply(key="0f", text="VERDICT: A", mirrored=True, usage={"input_tokens": 12}),
    judgment("ann"),
    Battle(model_a="ann", model_b="bob", winner="tie (bothbad)", question_id="p1"),
    Rating(model="ann", rating=1400.25, ordering_error=0.5),
]


# The fingerprint


def test_the_fingerprint_of_a_known_value_never_changes():
    """Every stored answer is found by such a name: if it changes, all that was paid for is lost."""
    value = {"judge": ["opus", 1, 0.5, None, True], "text": "µ = 3 × 10⁻⁶"}
    assert make_fingerprint(value) == "bd62757e8a850db04b201f9b7eb054c20260e0e9"


ALIKE = (
    "1",
    1,
    ["ab", "c"],
    ["a", "bc"],
    None,
    "",
    {},
    [],
    0,
    False,
    "\ud83d",
    "\\ud83d",
)


def test_values_that_differ_have_different_names():
    """Half a surrogate pair, which a server's JSON may hold, is not its escape."""
    assert len({make_fingerprint(value) for value in ALIKE}) == len(ALIKE)
    with pytest.raises(ValueError, match="not JSON compliant"):
        make_fingerprint(float("nan"))


@pytest.mark.system
@given(st.dictionaries(st.text(), JSON_VALUES))
def test_law_a_value_keeps_its_name_through_a_file_and_in_any_order(
    value: dict[str, Any],
):
    read = json.loads(json.dumps(dict(reversed(value.items()))))
    assert make_fingerprint(read) == make_fingerprint(value)
    assert canonical_json(read) == canonical_json(value)


# Rows


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_a_record_is_read_back_with_unknown_keys_ignored_and_cannot_be_changed(
    record: Record,
):
    """A file written by a later version, or by another program, still loads."""
    row = json.loads(json.dumps(record.to_dict())) | {"_provenance": {"id": 8}}
    assert type(record).from_dict(row) == record
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, next(iter(row)), "other")


def test_optional_fields_may_be_absent_and_required_ones_are_named():
    row = {"model_a": "ann", "model_b": "bob", "winner": "model_a"}
    assert Battle.from_dict(row).source == "human"
    with pytest.raises(KeyError, match="response_text"):
        Response.from_dict({"entrant_id": "ann", "prompt_id": "p1"})


def test_swapping_a_comparison_exchanges_entrants_and_responses_and_nothing_else():
    swapped, c = COMPARISON.swapped(), COMPARISON
    assert (swapped.entrant_a, swapped.response_a) == (c.entrant_b, c.response_b)
    assert swapped.swapped() == c


def test_a_judgment_cannot_be_won_by_a_third():
    with pytest.raises(ValueError, match="winner 'eve' is neither 'ann' nor 'bob'"):
        judgment("eve")
