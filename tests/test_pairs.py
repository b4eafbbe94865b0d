"""Pairs: who is compared with whom, and how two verdicts become one judgment."""

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from elo_exp.data.pairing import (
    choose_orders,
    choose_pairs,
    keep_complete_prompts,
    list_unanswered,
    list_unjudged,
    pair_up,
    reconcile,
)
from elo_exp.records import Comparison, Judgment, Response, Slot, Verdict
from tests.data import COMPARISON, prompt, responses, shipped

UTILITY = shipped("rubric", "clinical_utility")
FACTUALITY = shipped("rubric", "factuality")
ONE = prompt(text="One?", gold_answer="Y")
PROMPTS = [ONE, prompt(2, "One?")]


def answered(*entrants: str) -> dict[str, dict[Slot, Response]]:
    return responses(**{n: [f"{n} on p1", f"{n} on p2"] for n in entrants})


def verdict(letter: str, *, position_swap: bool, repeat: int = 0) -> Verdict:
    return Verdict(
        cache_key="0f",
        rubric_version="v1",
        judge_model="lexical",
        position_swap=position_swap,
        verdict=letter,
        repeat=repeat,
    )


def judged(ab: str, ba: str, comparison: Comparison = COMPARISON) -> Judgment:
    """The judgment of two verdicts, each in the positions that the judge saw."""
    straight = verdict(ab, position_swap=False)
    return reconcile(comparison, [straight, verdict(ba, position_swap=True)])


# Pairing up


def test_every_pair_meets_on_every_prompt_in_the_order_of_the_entrants():
    answers = answered("zoe", "ann", "bob")
    pairs = pair_up(PROMPTS, answers, UTILITY)
    order = [("zoe", "ann"), ("zoe", "bob"), ("ann", "bob")]
    met = [(c.prompt_id, c.entrant_a, c.entrant_b) for c in pairs]
    assert met == [(p, *pair) for p in ("p1", "p2") for pair in order]
    for limit in (0, 1, 4, 7):
        assert pair_up(PROMPTS, answers, UTILITY, limit=limit) == pairs[:limit]


def test_a_worked_example_of_opponents():
    """Of six on a ring, with four opponents each misses the one across; with one meets just that."""
    names = list("abcdef")
    four, one = (set(choose_pairs(names, ("p1", 0), k)) for k in (4, 1))
    assert four | one == set(combinations(names, 2)) and not four & one
    assert len(one) == 3


@given(
    n=st.integers(2, 9),
    k=st.integers(1, 8),
    slot=st.tuples(st.text(max_size=3), st.integers(0, 2)),
)
def test_law_everyone_meets_as_many_opponents_on_a_prompt(n, k, slot):
    """Whatever the order of the entrants; all of them without a number, or with one less than all."""
    assume(k < n and k * n % 2 == 0)
    names = [f"e{i}" for i in range(n)]
    met = set(choose_pairs(names, slot, k))
    assert Counter(one for pair in met for one in pair) == dict.fromkeys(names, k)
    again = {tuple(sorted(pair)) for pair in choose_pairs(names[::-1], slot, k)}
    assert again == met
    assert k < n - 1 or met == set(choose_pairs(names, slot, None))


def test_a_pair_carries_both_responses_and_what_the_rubric_shows():
    """A prompt to which the rubric does not apply is left out."""
    (pair,) = pair_up(PROMPTS, answered("ann", "bob"), FACTUALITY)
    assert (pair.response_a, pair.response_b) == ("ann on p1", "bob on p1")
    assert (pair.prompt_text, pair.dimension) == ("One?", "factuality")
    assert pair.gold_answer == "Y"
    assert pair_up([ONE], answered("ann", "bob"), UTILITY)[0].gold_answer is None


def test_an_entrant_that_lacks_an_answer_takes_no_comparison_from_the_others():
    """The comparisons of the others stay; those that are missing are listed, with who lacks an answer."""
    answers = answered("ann", "bob", "zoe")
    comparisons = pair_up(PROMPTS, answers, UTILITY)
    judgments = [judged("A", "B", comparison) for comparison in comparisons]
    assert keep_complete_prompts(judgments, comparisons) == judgments
    assert keep_complete_prompts(judgments[1:], comparisons) == judgments[3:]
    invalid = [judged("INVALID", "B", comparisons[0]), *judgments[1:]]
    assert keep_complete_prompts(invalid, comparisons) == invalid  # not missing
    for name in answers:
        fewer = {**answers, name: {("p2", 0): answers[name]["p2", 0]}}
        found = pair_up(PROMPTS, fewer, UTILITY)
        lost = [c for c in comparisons[:3] if name in c.entrants]
        assert found == [c for c in comparisons if c not in lost]
        missing = list_unanswered(PROMPTS, fewer, UTILITY, failed={}, compared=found)
        assert [(m.question_id, *m.models) for m in missing] == [
            (c.prompt_id, *c.entrants) for c in lost
        ]
        assert {(m.lacking, m.failed, m.is_judged) for m in missing} == {
            ((name,), (), False)
        }


def test_a_missing_answer_is_a_recorded_failure_or_nobody_knows_and_an_empty_one_is_judged():
    answers = answered("ann", "bob")
    empty = replace(answers["bob"]["p1", 0], response_text=" ", finish_reason="stop")
    some = {
        "ann": {("p1", 0): answers["ann"]["p1", 0]},
        "bob": {**answers["bob"], ("p1", 0): empty},
    }
    found = pair_up(PROMPTS, some, UTILITY)
    assert [c.prompt_id for c in found] == ["p1"]
    on_empty, absent = list_unanswered(
        PROMPTS, some, UTILITY, failed={"ann": ["p2"]}, compared=found
    )
    assert (on_empty.question_id, on_empty.lacking, on_empty.failed) == ("p1", ("bob",), ("bob",))  # fmt: skip
    assert on_empty.is_judged and not absent.is_judged
    assert (absent.question_id, absent.lacking, absent.failed) == ("p2", ("ann",), ("ann",))  # fmt: skip


def test_prompts_after_a_limit_were_not_planned_and_an_unknown_verdict_is_missing():
    answers = answered("ann", "bob", "zoe")
    first = {("p1", 0): answers["zoe"]["p1", 0]}
    some = {**answers, "zoe": first}
    compared = pair_up(PROMPTS, some, UTILITY, limit=3)
    how = {"failed": {}, "compared": compared}
    assert list_unanswered(PROMPTS, some, UTILITY, limit=3, **how) == []
    assert len(list_unanswered(PROMPTS, some, UTILITY, **how)) == 2
    judgments = [judged("A", "B", compared[0]), judged("INVALID", "B", compared[1])]
    assert [m.models for m in list_unjudged(compared, judgments)] == [
        c.entrants for c in compared[1:]
    ]


# Verdicts

LETTERS = ("A", "B", "TIE", "INVALID")
TABLE = {  # the judge sees ann as A in the first query and as B in the second
    # ann first \\ bob first: A, B, TIE, INVALID
    "A": ("inconsistent", "ann", "inconsistent", "invalid"),
    "B": ("bob", "inconsistent", "inconsistent", "invalid"),
    "TIE": ("inconsistent", "inconsistent", "tie", "invalid"),
    "INVALID": ("invalid", "invalid", "invalid", "invalid"),
}


def said(judgment: Judgment) -> str:
    if judgment.invalid or judgment.inconsistent:
        assert judgment.winner is None
        assert judgment.invalid != judgment.inconsistent
        return "invalid" if judgment.invalid else "inconsistent"
    return judgment.winner or "tie"


@pytest.mark.parametrize("ab", LETTERS)
@pytest.mark.parametrize("ba", LETTERS)
def test_two_verdicts_make_one_judgment(ab, ba):
    """Inconsistent counts as a tie; invalid counts as nothing at all. Naming the pair the other way
    round changes nothing, exchanging the letters exchanges the winner, repeats decide nothing."""
    judgment = judged(ab, ba)
    assert said(judgment) == TABLE[ab][LETTERS.index(ba)]
    assert [v.verdict for v in judgment.raw] == [ab, ba]
    assert (judgment.prompt_id, judgment.dimension) == ("p1", "factuality")
    assert (judgment.entrant_a, judgment.entrant_b) == ("ann", "bob")
    assert said(judged(ba, ab, COMPARISON.swapped())) == said(judgment)
    other = {"A": "B", "B": "A", "ann": "bob", "bob": "ann"}
    exchanged = judged(other.get(ab, ab), other.get(ba, ba))
    assert said(exchanged) == other.get(said(judgment), said(judgment))
    again = tuple(
        verdict(letter, position_swap=swap, repeat=1)
        for letter, swap in (("B", False), ("INVALID", True))
    )
    repeated = reconcile(COMPARISON, [*judgment.raw, *again])
    assert (said(repeated), repeated.raw[2:]) == (said(judgment), again)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("letter", LETTERS)
def test_a_verdict_in_one_order_decides_alone(letter, swap):
    found = reconcile(COMPARISON, [verdict(letter, position_swap=swap)])
    sides = ("bob", "ann") if swap else ("ann", "bob")
    assert found.winner == dict(zip("AB", sides, strict=True)).get(letter)
    assert found.invalid == (letter == "INVALID")
    assert (found.inconsistent, len(found.orders)) == (None, 1)


def test_law_who_is_shown_first_in_one_order_depends_on_the_prompt_and_the_two_alone():
    """Each is first on half of the prompts; naming the two the other way round, other answers and
    another dimension change nothing. One query on equal answers serves both orders."""
    n_swapped = 0
    for number in range(2000):
        one = replace(COMPARISON, prompt_id=f"p{number}")
        (swap,) = choose_orders(one, 0.0)
        assert choose_orders(one.swapped(), 0.0) == (not swap,)
        assert choose_orders(replace(one, dimension="tone", response_a="?"), 0.0) == (
            swap,
        )
        n_swapped += swap
    assert abs(n_swapped - 1000) < 4 * math.sqrt(500)
    assert choose_orders(COMPARISON, 1.0) == (False, True)
    equal = replace(COMPARISON, response_b=COMPARISON.response_a)
    assert choose_orders(equal, 0.0) == (False, True)


def test_law_a_larger_share_adds_comparisons_in_both_orders_and_changes_no_other():
    asked = [replace(COMPARISON, prompt_id=f"p{number}") for number in range(2000)]
    few, more = ([choose_orders(one, share) for one in asked] for share in (0.2, 0.5))
    for before, after in zip(few, more, strict=True):
        assert set(before) <= set(after)
        assert before == after or len(before) == 1
    assert abs(sum(map(len, few)) - 2400) < 4 * math.sqrt(2000 * 0.2 * 0.8)


@pytest.mark.parametrize("letter", ["A", "B", "TIE"])
def test_equal_answers_are_a_tie_whatever_the_judge_says_of_them(letter):
    """One query stands for both orders, so that its answer comes back in the same letter."""
    equal = replace(COMPARISON, response_b=COMPARISON.response_a)
    keys = {
        FACTUALITY.request(equal, judge="x", position_swap=swap).key
        for swap in (False, True)
    }
    assert len(keys) == 1
    tie = judged(letter, letter, equal)
    assert (said(tie), tie.equal_answers) == ("tie", True)
    assert judged("INVALID", "INVALID", equal).invalid
