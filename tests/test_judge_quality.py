"""How far the judge may be trusted: flips between the two orders, a taste for a position, invalid replies."""

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
    ab: str, ba: str, *repeats: str, mirrored: bool = False, comparison: Comparison = COMPARISON
) -> Judgment:
    """From the judge's letters, ann shown first, then bob, then ann again, and so on."""
    verdicts = [
        Verdict(
            cache_key="0f",
            rubric_version="v1",
            judge_model="opus",
            position_swap=bool(i % 2),
            verdict=letter,
            mirrored=mirrored and bool(i % 2),
            repeat=i // 2,
        )
        for i, letter in enumerate([ab, ba, *repeats])
    ]
    return reconcile(comparison, verdicts[0], verdicts[1], verdicts[2:])


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
    A   B turned   ann            1
    A   A          tie: equal     1
    ------------------------------------------------------------------
    9 judgments    1 invalid      6              3      9          5
    """
    judged = quality(
        judgment("A", "B"),
        judgment("B", "A"),
        judgment("A", "A"),
        judgment("B", "B"),
        judgment("TIE", "A"),
        judgment("TIE", "TIE"),
        judgment("A", "INVALID"),
        judgment("A", "B", mirrored=True),
        judgment("A", "A", comparison=EQUAL),
    )
    assert judged == JudgeQuality(
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
    assert (judged.flip_rate, judged.first_shown_rate, judged.invalid_rate) == (3 / 6, 5 / 9, 1 / 9)


def test_a_judge_that_always_takes_the_first_shown_flips_every_time():
    judged = quality(*[judgment("A", "A")] * 5)
    assert (judged.flip_rate, judged.first_shown_rate) == (1.0, 1.0)


@pytest.mark.parametrize(("ab", "ba"), [("A", "B"), ("B", "A")])
def test_a_judge_without_a_taste_for_a_position_takes_the_first_shown_half_the_time(ab, ba):
    judged = quality(*[judgment(ab, ba)] * 5)
    assert (judged.flip_rate, judged.first_shown_rate) == (0.0, 0.5)


def test_answers_that_were_turned_round_say_nothing_of_order():
    judged = quality(judgment("A", "B", mirrored=True), judgment("TIE", "TIE", mirrored=True))
    assert (judged.flip_rate, judged.first_shown_rate) == (None, None)
    assert (judged.n_judgments, judged.n_ties) == (2, 1)


def test_of_no_judgments_nothing_is_known():
    judged = quality()
    assert (judged.n_judgments, judged.flip_rate, judged.invalid_rate) == (0, None, None)


def test_a_repeat_is_compared_with_the_first_answer_to_the_same_order():
    """ann first: A, then A again. bob first: B, then TIE. Then ann first: B, bob first: B."""
    judged = quality(judgment("A", "B", "A", "TIE"), judgment("A", "B", "B", "B"))
    assert (judged.n_repeated, judged.n_repeats_agree) == (4, 2)


def test_a_judge_that_repeats_its_flip_agrees_with_itself():
    judged = quality(judgment("A", "A", "A", "A"))
    assert (judged.n_flips, judged.n_repeated, judged.n_repeats_agree) == (1, 2, 2)


@pytest.mark.parametrize(
    ("again", "n_repeated"),
    [
        (judgment("A", "B", "A", "B", mirrored=True), 1),
        (judgment("A", "A", "B", "B", comparison=EQUAL), 1),
        (judgment("A", "INVALID", "A", "B"), 1),
        (judgment("A", "B", "INVALID", "TIE"), 1),
    ],
    ids=["turned round", "equal answers", "no first answer", "no second answer"],
)
def test_a_repeat_is_counted_once_and_as_often_as_its_agreement_is_taken_from(again, n_repeated):
    assert quality(again).n_repeated == n_repeated
    assert repeat_agreement([again], dimension="factuality").n_comparisons == n_repeated


def test_repeats_change_no_other_number():
    with_repeats, without = quality(judgment("A", "A", "B", "INVALID")), quality(judgment("A", "A"))
    assert dataclasses.replace(with_repeats, n_repeated=0, n_repeats_agree=0) == without


@pytest.mark.parametrize(("ab", "ba"), list(product(("A", "B", "TIE", "INVALID"), repeat=2)))
def test_listing_the_pair_the_other_way_round_changes_nothing(ab, ba):
    """The statistics are about positions, and who is called a is no position."""
    assert quality(judgment(ab, ba)) == quality(judgment(ba, ab))


def stopped(*stop_reasons: str) -> Judgment:
    """A judgment whose replies ended so, ann shown first, then bob, then ann again; only a full reply is read."""
    verdicts = [
        Verdict(
            cache_key="0f",
            rubric_version="v1",
            judge_model="opus",
            position_swap=bool(i % 2),
            verdict=("B" if i % 2 else "A") if stop_reason == "end_turn" else "INVALID",
            stop_reason=stop_reason,
            repeat=i // 2,
        )
        for i, stop_reason in enumerate(stop_reasons)
    ]
    return reconcile(COMPARISON, verdicts[0], verdicts[1], verdicts[2:])


def test_a_worked_example_of_replies_that_are_invalid():
    """Seven judgments, by how the replies to the two orders ended.

    ann first    bob first                       invalid  refused  cut off
    end_turn     end_turn
    refusal      end_turn                        yes      yes
    refusal      refusal                         yes      yes
    max_tokens   end_turn                        yes               yes
    end_turn     model_context_window_exceeded   yes               yes
    refusal      max_tokens                      yes      yes      yes
    unreadable   end_turn                        yes
    ------------------------------------------------------------------
    7                                            6        3        3
    """
    judged = quality(
        stopped("end_turn", "end_turn"),
        stopped("refusal", "end_turn"),
        stopped("refusal", "refusal"),
        stopped("max_tokens", "end_turn"),
        stopped("end_turn", "model_context_window_exceeded"),
        stopped("refusal", "max_tokens"),
        judgment("INVALID", "B"),
    )
    assert (judged.n_judgments, judged.n_invalid, judged.n_refused, judged.n_cut_off) == (
        7,
        6,
        3,
        3,
    )


@pytest.mark.parametrize("stop_reason", ["refusal", "max_tokens"])
def test_a_repeat_that_has_no_verdict_makes_no_judgment_invalid(stop_reason):
    judged = quality(stopped("end_turn", "end_turn", stop_reason, "end_turn"))
    assert (judged.n_invalid, judged.n_refused, judged.n_cut_off) == (0, 0, 0)
    assert (judged.n_repeated, judged.n_repeats_agree) == (1, 1)


@pytest.mark.parametrize("stop_reason", ["refusal", "max_tokens"])
def test_a_repeat_that_has_no_verdict_is_not_why_a_judgment_is_invalid(stop_reason):
    judged = quality(stopped("pause_turn", "end_turn", stop_reason, stop_reason))
    assert (judged.n_invalid, judged.n_refused, judged.n_cut_off) == (1, 0, 0)


@pytest.mark.parametrize(
    "stop_reason", ["stop_sequence", "pause_turn", "tool_use", "something new"]
)
def test_another_end_is_invalid_for_no_reason_that_is_counted(stop_reason):
    judged = quality(stopped(stop_reason, "end_turn"))
    assert (judged.n_invalid, judged.n_refused, judged.n_cut_off) == (1, 0, 0)


ENDS = ("end_turn", "refusal", "max_tokens", "model_context_window_exceeded", "pause_turn")


@pytest.mark.parametrize(("first", "second"), list(product(ENDS, repeat=2)))
def test_law_a_judgment_counts_once_of_each_kind_and_in_either_order(first, second):
    judged = quality(stopped(first, second))
    assert (judged.n_refused, judged.n_cut_off) == (
        int("refusal" in (first, second)),
        int(any("max" in end or "window" in end for end in (first, second))),
    )
    assert max(judged.n_refused, judged.n_cut_off) <= judged.n_invalid <= 1
    assert quality(stopped(second, first)) == judged
