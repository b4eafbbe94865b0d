"""Degraded copies of a baseline's answers, by which a gate checks its judge."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.data.conversations import change_own_words, own_words
from elo_exp.data.degraded_copies import CONTROL_PROMPTS, control_comparisons, degrade
from elo_exp.data.pairing import choose_orders
from elo_exp.records import Comparison

ANSWER = "It rains because warm air rises, cools and lets go of its water."
TURNS = (
    '<turn role="assistant">\nWarm air rises and cools.\n<call>look(x)</call>\n</turn>\n'
    '<turn role="user">\nAnd then?\n</turn>\n'
    '<turn role="assistant">\nThen it rains on the hills.\n</turn>'
)


def compared(number: int, answer: str = ANSWER, **fields: object) -> Comparison:
    comparison = Comparison(
        prompt_id=f"q{number}",
        dimension="d",
        source="s",
        prompt_text="Why?",
        entrant_a="new",
        entrant_b="baseline",
        response_a="So it is.",
        response_b=answer,
    )
    return replace(comparison, **fields)


@given(st.text())
def test_a_copy_has_other_words_in_the_length_of_its_answer(text: str):
    copy = degrade(text)
    assert copy == degrade(text)
    words, own = copy.split(), text.split()
    if len(own) >= 4:
        assert len(words) == len(own) and set(words) <= set(own)
        assert len(set(words)) <= len(own) // 4
    elif len(text.strip()) < 8:
        assert copy == ""


def test_copies_stay_what_they_were():
    """Their text is in the key of a stored verdict."""
    assert degrade(ANSWER) == (
        "water. and warm water. and warm water. and warm water. and warm water."
    )
    assert degrade("水在一百度时沸腾了吧") == "腾一腾一腾一腾一腾一"
    drawn = [c.prompt_id for c in control_comparisons(map(compared, range(30)))]
    assert drawn == ["q27", "q8", "q17", "q7", "q28", "q29", "q11", "q21", "q15", "q9"]


def test_ten_prompts_whose_answers_have_words_are_drawn_whatever_the_candidate_says():
    answers = [ANSWER, "Yes.", "", "   "]
    some = [compared(i, answers[i % 4]) for i in range(80)]
    controls = control_comparisons(some)
    assert len(controls) == CONTROL_PROMPTS
    assert {c.response_b for c in controls} == {ANSWER}
    assert all(c.is_control and c.response_a != c.response_b for c in controls)
    others = [replace(c, response_a="Another.") for c in reversed(some)]
    assert control_comparisons(others) == controls
    short = control_comparisons(compared(i, "Yes.") for i in range(10))
    assert {c.response_a for c in short} == {""}
    assert control_comparisons(compared(i, answers[i % 4]) for i in range(16)) == []


def test_a_control_is_judged_in_both_orders_once():
    (control, *_) = control_comparisons(map(compared, range(10)))
    assert choose_orders(control, 0.0) == (False, True)
    assert len(choose_orders(compared(1), 0.0)) == 1


@pytest.mark.parametrize("in_turns", [False, True])
def test_of_a_conversation_only_the_assistants_words_change(in_turns: bool):
    shown = compared(1, TURNS if in_turns else ANSWER, in_turns=in_turns)
    changed = change_own_words(shown, shown.response_b, str.upper)
    assert own_words(shown, changed) == own_words(shown, shown.response_b).upper()
    if in_turns:
        assert "And then?" in changed and "<call>look(x)</call>" in changed
        assert change_own_words(shown, TURNS, lambda words: words) == TURNS
