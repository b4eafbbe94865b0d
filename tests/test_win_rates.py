"""How often each model beats each other one, with errors clustered by prompt."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.analysis.win_rates import (
    PairShare,
    WinRate,
    clustered_interval,
    pair_shares,
    wilson_interval,
    win_rates,
)
from elo_exp.data.battles import Battles
from elo_exp.records import Battle
from tests.data import battle

TURNED = {"model_a": "model_b", "model_b": "model_a"}
NAMES = st.sampled_from(["ann", "bob", "zoe"])
ROWS = st.lists(
    st.builds(
        Battle,
        model_a=NAMES,
        model_b=NAMES,
        winner=st.sampled_from(["model_a", "model_b", "tie", "tie (bothbad)"]),
        question_id=st.sampled_from(["p", "q", None]),
    ).filter(lambda b: b.model_a != b.model_b)
)


def count(rows: list[Battle]) -> list[WinRate]:
    return win_rates(Battles.from_rows(rows), dimension="x")


def found_shares(rows: list[Battle]) -> dict[tuple[str, str], PairShare]:
    return pair_shares(Battles.from_rows(rows))


def test_a_worked_example():
    """Who     beat whom                                       ann v bob         ann v zoe

    ann v bob   ann                                        1 - 0
    bob v ann   bob                                        1 - 1
    bob v ann   ann (model_b)                              2 - 1
    ann v bob   tie, both orders agree                     2 - 1, 1 tie
    ann v bob   tie, the orders disagree                   2 - 1, 2 ties, 1 inconsistent
    ann v bob   tie (bothbad), one order asked             2 - 1, 3 ties, 1 inconsistent
    zoe v ann   zoe                                                          0 - 1
    """
    rows = [
        battle("zoe", "ann", "model_a"),
        battle("ann", "bob", verdict_ab="model_a", verdict_ba="model_a"),
        battle("bob", "ann", "model_a"),
        battle("bob", "ann", "model_b"),
        battle("ann", "bob", "tie", verdict_ab="tie", verdict_ba="tie"),
        battle("ann", "bob", "tie", verdict_ab="model_a", verdict_ba="model_b"),
        battle("ann", "bob", "tie (bothbad)", verdict_ab="tie"),
    ]
    ann_bob, ann_zoe = count(rows)
    assert ann_bob == WinRate(
        dimension="x",
        entrant_a="ann",
        entrant_b="bob",
        a_wins=2,
        b_wins=1,
        ties=3,
        inconsistent=1,
    )
    assert ann_zoe == WinRate(
        dimension="x",
        entrant_a="ann",
        entrant_b="zoe",
        a_wins=0,
        b_wins=1,
        ties=0,
        inconsistent=0,
    )
    assert count([]) == []


@given(rows=ROWS)
def test_law_every_battle_counts_once_and_listing_it_the_other_way_round_changes_nothing(
    rows: list[Battle],
):
    rates = count(rows)
    assert sum(r.a_wins + r.b_wins + r.ties for r in rates) == len(rows)
    turned = [
        battle(b.model_b, b.model_a, TURNED.get(b.winner, b.winner)) for b in rows
    ]
    assert count(turned) == rates
    half = {(r.entrant_a, r.entrant_b): r.a_wins + r.ties / 2 for r in rates}
    won = {
        pair: share.share * share.n_games for pair, share in found_shares(rows).items()
    }
    assert won == pytest.approx(half)


def test_the_verdicts_on_one_prompt_are_one_observation():
    """ann beats bob twice on q0 and loses twice on q1: the mean of two independent numbers, 1 and
    0, of standard deviation 1 / root 2; of four numbers it would be half as uncertain."""
    rows = [
        battle("ann", "bob", w, question_id=q, verdict_ab=w, verdict_ba=w)
        for q, w in (("q0", "model_a"), ("q1", "model_b"))
    ]
    (share,) = found_shares(rows).values()
    assert share == PairShare(
        n_prompts=2, n_games=4, share=0.5, std_error=pytest.approx(0.5)
    )


def test_ties_are_half_a_win_and_prompts_that_agree_tell_no_error():
    rows = [
        battle("bob", "ann", winner)
        for winner in ("model_a", "model_a", "tie", "model_b")
    ]
    assert found_shares(rows)["ann", "bob"].share == (1 + 0.5) / 4
    always = PairShare(n_prompts=2, n_games=2, share=0.0, std_error=None)
    assert found_shares(rows[:2]) == {("ann", "bob"): always}


@pytest.mark.parametrize("n", [1, 10, 400])
def test_wilsons_interval_of_a_share(n: int):
    """It holds the p with |share - p| <= 1.96 sqrt(p (1 - p) / n): of 1 those from n / (n + 1.96^2)
    on."""
    least = n / (n + 1.96**2)
    assert wilson_interval(1.0, n) == pytest.approx((least, 1.0))
    assert wilson_interval(0.0, n) == pytest.approx((0.0, 1.0 - least))
    for share in (0.05, 0.5, 0.75):
        ends = wilson_interval(share, n)
        errors = [1.96 * math.sqrt(p * (1 - p) / n) for p in ends]
        assert [abs(share - p) for p in ends] == pytest.approx(errors)


def test_a_clustered_interval_is_wilsons_of_as_many_battles_as_have_the_error():
    """A share of .9 with an error of .03 is as uncertain as one of .9 .1 / .03^2 = 100 battles; ten
    prompts tell the error: 2.262 errors to each side."""
    wilson = wilson_interval(0.9, 100, half_width=2.262157)
    assert clustered_interval(0.9, 0.03, 10) == pytest.approx(wilson, rel=1e-6)
    assert clustered_interval(1.0, None, 10) is None
    assert clustered_interval(1.0, 1e-9, 10) is None


@given(st.floats(0.001, 0.999), st.floats(1e-4, 1.0), st.integers(2, 200))
def test_law_an_interval_stays_within_what_a_share_can_be(
    share: float, error: float, n: int
):
    ends = clustered_interval(share, error, n)
    assert ends is not None and 0 <= ends[0] < share < ends[1] <= 1
