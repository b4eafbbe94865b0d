"""Odd answers: empty, refusing, cut off, repeated."""

import pytest

from elo_exp.analysis.responses import ResponseCheck, check_responses
from elo_exp.records import Response


def check(*texts: str, reason: str = "stop") -> ResponseCheck:
    responses = {
        f"p{i}": Response(
            entrant_id="m", prompt_id=f"p{i}", response_text=text, finish_reason=reason
        )
        for i, text in enumerate(texts)
    }
    return check_responses("m", responses)


def test_answers_of_their_own_are_nothing_odd():
    found = check(*(f"Take {dose} mg, and see a doctor." for dose in range(20)))
    assert not found.is_odd
    assert (found.n_responses, found.n_repeated, found.repeated_text) == (20, 0, None)


def test_one_answer_to_more_than_a_tenth_of_the_prompts_is_repeated():
    own = [f"Answer {i}." for i in range(18)]
    assert not check(*own, "Yes.", "Yes.").is_odd
    found = check(*own[:17], "Yes.", " Yes. ", "Yes.\n")
    assert found.is_repeated
    assert (found.n_repeated, found.repeated_text) == (3, "Yes.")


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I cannot provide medical advice.",
        "I apologize, but I am unable to answer this question.",
    ],
)
def test_a_refusal_is_counted_by_its_beginning(text: str):
    assert check("Yes, twice a day.", text).n_refused == 1


@pytest.mark.parametrize(
    "text",
    ["I can't stress enough that you should call a doctor.", "Sorry to hear that."],
)
def test_what_only_sounds_like_a_refusal_is_none(text: str):
    assert check("Yes, twice a day.", text).n_refused == 0


def test_empty_refused_and_cut_off_answers_are_counted():
    assert check("", " \n", "Yes.").n_empty == 2
    assert check("No.", reason="refusal").n_refused == 1
    assert check("It depends on", reason="length").n_cut_off == 1
    assert not check().is_odd
