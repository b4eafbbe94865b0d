"""Pairs: who is compared with whom, and how two verdicts become one judgment."""

from __future__ import annotations

import dataclasses
from itertools import combinations, product

import pytest

from elo_exp.data import bank
from elo_exp.data.pairing import (
    check_entrants,
    on_whole_prompts,
    outcome,
    pair_up,
    reconcile,
)
from elo_exp.records import Comparison, Judgment, Prompt, Response, UserError, Verdict
from tests.data import BANK, DIMENSIONS, shipped

UTILITY = shipped("rubric", "clinical_utility")
FACTUALITY = shipped("rubric", "factuality")

PROMPTS = [
    Prompt(
        prompt_id="p1", text="One?", source="medqa", subject="renal", gold_answer="Yes."
    ),
    Prompt(
        prompt_id="p2",
        text="Two?",
        source="curated",
        subject="renal",
        expected_behavior="hedge",
    ),
]
COMPARISON = Comparison(
    prompt_id="p1",
    dimension="factuality",
    source="medqa",
    prompt_text="One?",
    entrant_a="ann",
    entrant_b="bob",
    response_a="ann on p1",
    response_b="bob on p1",
)


def responses(
    *entrants: str, prompts: list[Prompt] = PROMPTS
) -> dict[str, dict[str, Response]]:
    return {
        name: {
            p.prompt_id: Response(
                entrant_id=name,
                prompt_id=p.prompt_id,
                response_text=f"{name} on {p.prompt_id}",
            )
            for p in prompts
        }
        for name in entrants
    }


def verdict(letter: str, *, position_swap: bool) -> Verdict:
    return Verdict(
        cache_key="0f",
        rubric_version="v1",
        judge_model="lexical",
        position_swap=position_swap,
        verdict=letter,
    )


def judged(ab: str, ba: str, comparison: Comparison = COMPARISON) -> Judgment:
    """The judgment of two verdicts, each in the positions that the judge saw."""
    return reconcile(
        comparison, verdict(ab, position_swap=False), verdict(ba, position_swap=True)
    )


@pytest.mark.parametrize("letter", ["A", "B", "TIE"])
def test_equal_answers_are_a_tie_whatever_the_judge_says_of_them(letter):
    """One query stands for both orders, so that its answer comes back in the same letter."""
    equal = dataclasses.replace(COMPARISON, response_b=COMPARISON.response_a)
    assert FACTUALITY.request(equal, judge="x", position_swap=False).key == (
        FACTUALITY.request(equal, judge="x", position_swap=True).key
    )
    tie = judged(letter, letter, equal)
    assert (tie.winner, tie.inconsistent, tie.invalid, tie.equal_answers) == (
        None,
        False,
        False,
        True,
    )
    assert judged("INVALID", "INVALID", equal).invalid


# Pairing up


def test_every_pair_meets_on_every_prompt_in_the_order_of_the_entrants():
    pairs = pair_up(PROMPTS, responses("zoe", "ann", "bob"), UTILITY)
    assert [(c.prompt_id, c.entrant_a, c.entrant_b) for c in pairs] == [
        ("p1", "zoe", "ann"),
        ("p1", "zoe", "bob"),
        ("p1", "ann", "bob"),
        ("p2", "zoe", "ann"),
        ("p2", "zoe", "bob"),
        ("p2", "ann", "bob"),
    ]


def test_a_pair_carries_both_responses_and_what_the_rubric_shows():
    first = pair_up(PROMPTS, responses("ann", "bob"), FACTUALITY)[0]
    assert (first.response_a, first.response_b) == ("ann on p1", "bob on p1")
    assert (first.prompt_text, first.source, first.dimension, first.gold_answer) == (
        "One?",
        "medqa",
        "factuality",
        "Yes.",
    )


def test_a_prompt_to_which_the_rubric_does_not_apply_is_left_out():
    assert [
        c.prompt_id for c in pair_up(PROMPTS, responses("ann", "bob"), FACTUALITY)
    ] == ["p1"]


@pytest.mark.parametrize("name", ["ann", "bob", "zoe"])
def test_a_prompt_that_an_entrant_has_not_answered_is_left_out_for_all(name):
    answers = responses("ann", "bob", "zoe")
    del answers[name]["p1"]
    pairs = pair_up(PROMPTS, answers, UTILITY)
    assert [c.prompt_id for c in pairs] == ["p2"] * 3


def test_a_prompt_that_lacks_a_judgment_is_left_out_for_all():
    comparisons = pair_up(PROMPTS, responses("ann", "bob", "zoe"), UTILITY)
    judgments = [judged("A", "B", comparison) for comparison in comparisons]
    assert on_whole_prompts(judgments, comparisons) == judgments
    assert on_whole_prompts(judgments[1:], comparisons) == judgments[3:]
    invalid = [judged("INVALID", "B", comparisons[0]), *judgments[1:]]
    assert (
        on_whole_prompts(invalid, comparisons) == invalid
    )  # an invalid verdict is not missing


@pytest.mark.parametrize("limit", [0, 1, 4, 6, 7])
def test_a_limit_keeps_the_first_pairs(limit):
    answers = responses("ann", "bob", "zoe")
    assert (
        pair_up(PROMPTS, answers, UTILITY, limit=limit)
        == pair_up(PROMPTS, answers, UTILITY)[:limit]
    )


@pytest.mark.parametrize(
    ("dimension", "n_pairs"), list(zip(DIMENSIONS, [558, 858, 858], strict=True))
)
def test_four_entrants_on_the_shipped_bank_make_the_published_number_of_pairs(
    dimension, n_pairs
):
    """6 pairs on 93 prompts with a gold answer, and on all 143."""
    prompts = bank.load(BANK)
    names = ["base_olmo", "security_only", "security_plus_robustness", "full_poe"]
    pairs = pair_up(
        prompts, responses(*names, prompts=prompts), shipped("rubric", dimension)
    )
    assert len(pairs) == n_pairs
    assert [(c.entrant_a, c.entrant_b) for c in pairs[:6]] == list(
        combinations(names, 2)
    )


@pytest.mark.parametrize(
    ("names", "found"), [([], "found 0 (none)"), (["ann"], "found 1 (ann)")]
)
def test_a_tournament_needs_two(names, found):
    with pytest.raises(UserError) as error:
        check_entrants(names)
    assert f"entrant: {found}. A tournament needs at least two" in str(error.value)
    check_entrants(["ann", "bob"])


# One verdict


@pytest.mark.parametrize(
    ("letter", "position_swap", "side"),
    [
        ("A", False, "a"),
        ("B", False, "b"),
        ("A", True, "b"),
        ("B", True, "a"),
        ("TIE", False, "tie"),
        ("TIE", True, "tie"),
        ("INVALID", False, None),
        ("INVALID", True, None),
    ],
)
def test_a_verdict_names_a_side_once_the_swap_is_undone(letter, position_swap, side):
    assert outcome(verdict(letter, position_swap=position_swap)) == side


# Two verdicts

TABLE = [
    # ann first | bob first | winner | inconsistent | invalid
    ("A", "A", None, True, False),
    ("A", "B", "ann", False, False),
    ("A", "TIE", None, True, False),
    ("A", "INVALID", None, False, True),
    ("B", "A", "bob", False, False),
    ("B", "B", None, True, False),
    ("B", "TIE", None, True, False),
    ("B", "INVALID", None, False, True),
    ("TIE", "A", None, True, False),
    ("TIE", "B", None, True, False),
    ("TIE", "TIE", None, False, False),
    ("TIE", "INVALID", None, False, True),
    ("INVALID", "A", None, False, True),
    ("INVALID", "B", None, False, True),
    ("INVALID", "TIE", None, False, True),
    ("INVALID", "INVALID", None, False, True),
]


@pytest.mark.parametrize(("ab", "ba", "winner", "inconsistent", "invalid"), TABLE)
def test_two_verdicts_make_one_judgment(ab, ba, winner, inconsistent, invalid):
    """The judge sees ann as A in the first query and as B in the second.

        ann first \\ bob first    A              B              TIE            INVALID
        A                        inconsistent   ann wins       inconsistent   invalid
        B                        bob wins       inconsistent   inconsistent   invalid
        TIE                      inconsistent   inconsistent   tie            invalid
        INVALID                  invalid        invalid        invalid        invalid

    Inconsistent counts as a tie; invalid counts as nothing at all.
    """
    judgment = judged(ab, ba)
    assert (judgment.winner, judgment.inconsistent, judgment.invalid) == (
        winner,
        inconsistent,
        invalid,
    )
    assert [v.verdict for v in judgment.raw] == [ab, ba]


def test_the_table_above_is_complete():
    assert [row[:2] for row in TABLE] == list(
        product(("A", "B", "TIE", "INVALID"), repeat=2)
    )


@pytest.mark.parametrize(("ab", "ba"), [row[:2] for row in TABLE])
def test_naming_the_pair_the_other_way_round_changes_no_winner(ab, ba):
    """The same two replies, with bob listed first: what was the swapped order is now the straight one."""
    one, other = judged(ab, ba), judged(ba, ab, COMPARISON.swapped())
    assert (one.winner, one.inconsistent, one.invalid) == (
        other.winner,
        other.inconsistent,
        other.invalid,
    )


@pytest.mark.parametrize(("ab", "ba"), [row[:2] for row in TABLE])
def test_exchanging_the_letters_exchanges_the_winner(ab, ba):
    exchanged = {"A": "B", "B": "A"}
    one, other = judged(ab, ba), judged(exchanged.get(ab, ab), exchanged.get(ba, ba))
    assert other.winner == {"ann": "bob", "bob": "ann", None: None}[one.winner]
    assert (other.inconsistent, other.invalid) == (one.inconsistent, one.invalid)


def test_repeats_are_kept_and_decide_nothing():
    again = [verdict("B", position_swap=False), verdict("INVALID", position_swap=True)]
    judgment = reconcile(
        COMPARISON,
        verdict("A", position_swap=False),
        verdict("B", position_swap=True),
        again,
    )
    assert (judgment.winner, judgment.invalid) == ("ann", False)
    assert judgment.raw[2:] == tuple(again)


def test_a_judgment_says_what_was_compared():
    judgment = judged("A", "B")
    assert (judgment.prompt_id, judgment.dimension) == ("p1", "factuality")
    assert (judgment.entrant_a, judgment.entrant_b) == ("ann", "bob")
