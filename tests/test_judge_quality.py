"""How far a judge can be trusted: flips between the two orders, position, invalid replies."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest

from elo_exp.analysis.agreement import repeat_agreement
from elo_exp.analysis.judge_quality import JudgeQuality, judge_quality
from elo_exp.data.pairing import reconcile
from elo_exp.records import Comparison, Judgment, Verdict
from tests.data import COMPARISON

EQUAL = dataclasses.replace(COMPARISON, response_b=COMPARISON.response_a)


def judgment(
    *letters: str,
    ends: tuple[str, ...] = (),
    mirrored: bool = False,
    of: Comparison = COMPARISON,
) -> Judgment:
    """From the judge's letters, ann shown first, then bob, then ann again, and so on.

    ends  how the replies ended: one that did not end by itself has no verdict
    """
    letters = letters or tuple(
        "AB"[i % 2] if e == "end_turn" else "INVALID" for i, e in enumerate(ends)
    )
    verdicts = [
        Verdict(
            cache_key="0f",
            rubric_version="v1",
            judge_model="opus",
            position_swap=bool(i % 2),
            verdict=letter,
            mirrored=mirrored and bool(i % 2),
            stop_reason=ends[i] if ends else "end_turn",
            repeat=i // 2,
        )
        for i, letter in enumerate(letters)
    ]
    return reconcile(of, verdicts)


def quality(*judgments: Judgment) -> JudgeQuality:
    return judge_quality(judgments, dimension="factuality")


def test_a_worked_example():
    """Nine judgments of ann against bob, ann shown first and then bob.

    letters        judgment       orders asked   flip   decisive   for the first shown
    A   B          ann            2                     2          1
    B   A          bob            2                     2          1
    A   A          inconsistent   2              yes    2          2
    B   B          inconsistent   2              yes    2          0
    TIE A          inconsistent   2              yes    1          1
    TIE TIE        tie            2                     0          0
    A   INVALID    invalid
    A   B mirrored ann            1
    A   A          tie: equal     1
    ------------------------------------------------------------------
    9 judgments    1 invalid      6              3      9          5
    """
    found = quality(
        judgment("A", "B"),
        judgment("B", "A"),
        judgment("A", "A"),
        judgment("B", "B"),
        judgment("TIE", "A"),
        judgment("TIE", "TIE"),
        judgment("A", "INVALID"),
        judgment("A", "B", mirrored=True),
        judgment("A", "A", of=EQUAL),
    )
    assert found == JudgeQuality(
        dimension="factuality",
        n_judgments=9,
        n_invalid=1,
        n_two_order=6,
        n_flips=3,
        n_decisive_verdicts=9,
        n_first_shown_wins=5,
        n_ties=2,
        n_equal_answers=1,
    )
    assert (found.flip_rate, found.first_shown_rate, found.invalid_rate) == (
        3 / 6,
        5 / 9,
        1 / 9,
    )
    assert found.tie_rate == 1 - 9 / 12


def test_in_one_order_there_is_no_flip_rate_but_ties_and_the_first_shown_are_counted():
    letters = ("A", "A", "B", "TIE", "INVALID")
    found = quality(*(judgment(letter) for letter in letters))
    assert (found.flip_rate, found.n_two_order, found.n_one_order) == (None, 0, 4)
    rates = (found.first_shown_rate, found.tie_rate, found.invalid_rate)
    assert rates == (2 / 3, 1 / 4, 1 / 5)


def test_where_nothing_was_observed_there_is_no_rate():
    mirrored = quality(
        judgment("A", "B", mirrored=True), judgment("TIE", "TIE", mirrored=True)
    )
    assert (mirrored.flip_rate, mirrored.first_shown_rate, mirrored.tie_rate) == (
        None,
    ) * 3
    assert (mirrored.n_judgments, mirrored.n_ties) == (2, 1)
    assert quality().invalid_rate is None


@pytest.mark.parametrize(
    "again",
    [
        judgment("A", "B", "A", "B", mirrored=True),
        judgment("A", "A", "B", "B", of=EQUAL),
        judgment("A", "INVALID", "A", "B"),
        judgment("A", "B", "INVALID", "TIE"),
    ],
    ids=["mirrored", "equal answers", "no first answer", "no second answer"],
)
def test_a_repeat_is_counted_as_often_as_its_agreement_is_taken_from(again: Judgment):
    assert quality(again).n_repeated == 1
    assert repeat_agreement([again], dimension="factuality").n_comparisons == 1


@pytest.mark.parametrize(
    ("ab", "ba"), list(product(("A", "B", "TIE", "INVALID"), repeat=2))
)
def test_law_listing_the_pair_the_other_way_round_changes_nothing(ab: str, ba: str):
    """The statistics are about positions, and who is called a is no position."""
    assert quality(judgment(ab, ba)) == quality(judgment(ba, ab))


@pytest.mark.parametrize(
    ("first", "refused", "cut_off"),
    [
        ("end_turn", 0, 0),
        ("refusal", 1, 0),
        ("max_tokens", 0, 1),
        ("model_context_window_exceeded", 0, 1),
        ("pause_turn", 0, 0),
    ],
)
def test_an_invalid_judgment_counts_once_in_either_order(
    first: str, refused: int, cut_off: int
):
    found = quality(judgment(ends=(first, "end_turn")))
    assert (found.n_refused, found.n_cut_off) == (refused, cut_off)
    assert found.n_invalid == (first != "end_turn")
    for same in (("end_turn", first), (first, "end_turn", "refusal", "max_tokens")):
        repeats = quality(judgment(ends=same))
        assert dataclasses.replace(repeats, n_repeated=0, n_repeats_agree=0) == found
