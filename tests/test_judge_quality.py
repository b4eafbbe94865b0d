"""How far a judge can be trusted: flips between the two orders, position, invalid replies."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest

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
    letters = ["AB", "BA", "AA", "BB", "TA", "TT", "A-"]
    names = {"A": "A", "B": "B", "T": "TIE", "-": "INVALID"}
    found = quality(
        *(judgment(*(names[letter] for letter in pair)) for pair in letters),
        judgment("A", "B", mirrored=True),
        judgment("A", "A", of=EQUAL),
    )
    counts = found.n_judgments, found.n_invalid, found.n_two_order, found.n_flips
    assert (*counts, found.n_equal_answers) == (9, 1, 6, 3, 1)
    assert (found.n_decisive_verdicts, found.n_first_shown_wins) == (9, 5)
    rates = found.flip_rate, found.first_shown_rate, found.invalid_rate, found.tie_rate
    assert rates == (3 / 6, 5 / 9, 1 / 9, 3 / 12)


def test_in_one_order_there_is_no_flip_rate_but_ties_and_the_first_shown_are_counted():
    letters = ("A", "A", "B", "TIE", "INVALID")
    found = quality(*(judgment(letter) for letter in letters))
    assert (found.flip_rate, found.n_two_order, found.n_one_order) == (None, 0, 4)
    rates = (found.first_shown_rate, found.tie_rate, found.invalid_rate)
    assert rates == (2 / 3, 1 / 4, 1 / 5)


def test_where_nothing_was_observed_there_is_no_rate():
    found = quality(judgment("A", "B", mirrored=True))
    assert (found.flip_rate, found.first_shown_rate, found.tie_rate) == (None,) * 3
    assert quality().invalid_rate is None


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
        assert quality(judgment(ends=same)) == found
