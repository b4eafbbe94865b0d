"""Odd answers: repeated, boilerplate, short, refusing, cut off."""

from types import SimpleNamespace as Row

import pytest

from elo_exp.analysis.odd_answers import check_responses
from elo_exp.records import Response


def check(*texts: str, reason: str = "stop") -> Row:
    responses = {
        f"p{i}": Response(
            entrant_id="m", prompt_id=f"p{i}", response_text=text, finish_reason=reason
        )
        for i, text in enumerate(texts)
    }
    return Row(**check_responses("m", responses))


def own(n: int) -> list[str]:
    return [f"Take {dose} mg, and see a doctor about it." for dose in range(n)]


def echoing(n: int) -> list[str]:
    """A null model: repeats the question, and varies its end."""
    empty = "the answer that follows is right and complete in every way that matters"
    return [f"Asked about number {i} {i} {i}, {empty}, {i}" for i in range(n)]


def looping(n: int) -> list[str]:
    """Base models: each says a sentence of its own nine times."""
    return [f"Patient {i} takes one tablet with water each day. " * 9 for i in range(n)]


def test_answers_of_their_own_are_nothing_odd():
    found = check(*own(20))
    assert found.flags == []
    assert (found.n_responses, found.one_text, found.text) == (20, 1 / 20, None)
    assert check().flags == []


@pytest.mark.parametrize(
    ("texts", "flags"),
    [
        ([*own(97), "Yes it is.", "YES, it is", "Yes! It is."], ("one_text",)),
        ([*own(98), "Yes it is.", "Yes it is."], ()),  # two may be chance
        (own(47) * 2, ("repeated",)),
        ([*own(85), *echoing(15)], ("phrases",)),
        ([*own(89), "", " \n", *map(str, range(9))], ("short",)),
        ([*own(92), *map(str, range(8))], ()),
        ([*own(3), "", "Yes."], ()),  # of few answers, three at least
        ([*own(57), *looping(3)], ("loops",)),
        ([*own(58), *looping(2)], ()),  # of 60 answers three are 5%
        ([*own(61), *looping(3)], ()),
    ],
)
def test_a_check_is_flagged_from_its_limit_on(texts, flags):
    assert check(*texts).flags == [*flags]


def test_boilerplate_is_a_share_of_runs_of_eight_words():
    """Each answer of 20 words has 13 runs; the shared phrase of 13 words has 6 of them."""
    found = check(*echoing(20))
    assert found.phrases == pytest.approx(6 / 13)
    assert found.repeated == 0


@pytest.mark.parametrize(
    ("n_new", "n_again", "loops"),
    [(8, 8, 1.0), (9, 7, 0.0), (7, 8, 0.0)],  # runs; of fewer than 16 nothing is said
)
def test_an_answer_repeats_itself_if_half_of_its_runs_of_eight_words_occurred_before(
    n_new: int, n_again: int, loops: float
):
    """A circle of k words has k different runs, whatever the number of its rounds."""
    circle = [f"word{i}" for i in range(n_new)]
    answer = [circle[i % n_new] for i in range(n_new + n_again + 7)]
    assert check(" ".join(answer)).loops == loops


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I cannot provide medical advice.",
        "I apologize, but I am unable to answer this question.",
    ],
)
def test_a_refusal_is_known_by_its_beginning(text: str):
    texts = [f"{text} ({i})" for i in range(3)]
    found = check(*own(7), *texts)
    assert found.refused == 0.3
    assert "refused" in found.flags


@pytest.mark.parametrize(
    "text",
    ["I can't stress enough that you should call a doctor.", "Sorry to hear that."],
)
def test_what_only_sounds_like_a_refusal_is_none(text: str):
    assert check("Yes, twice a day.", text).refused == 0


def test_what_the_api_reports_is_counted():
    assert check("No.", reason="refusal").refused == 1
    assert check("It depends on", reason="length").n_cut_off == 1
