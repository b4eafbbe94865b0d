"""Win rates: how often each entrant beats each other one."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.analysis.win_rates import (
    Share,
    WinRate,
    clustered_interval,
    count,
    share_interval,
    shares,
)
from elo_exp.records import Battle
from elo_exp.statistics.student import half_width

NAMES = st.sampled_from(["ann", "bob", "zoe"])
RESULTS = st.sampled_from(["model_a", "model_b", "tie", "tie (bothbad)"])
BATTLES = st.lists(
    st.builds(Battle, model_a=NAMES, model_b=NAMES, winner=RESULTS).filter(
        lambda b: b.model_a != b.model_b
    )
)


def battle(a: str, b: str, winner: str, ab: str | None = None, ba: str | None = None) -> Battle:
    return Battle(model_a=a, model_b=b, winner=winner, verdict_ab=ab, verdict_ba=ba)


def test_a_worked_example():
    """Who     beat whom                                       ann v bob         ann v zoe

    ann v bob   ann                                        1 - 0
    bob v ann   bob                                        1 - 1
    bob v ann   ann (model_b)                              2 - 1
    ann v bob   tie, both orders agree                     2 - 1, 1 tie
    ann v bob   tie, the orders disagree                   2 - 1, 2 ties of which 1 inconsistent
    zoe v ann   zoe                                                          0 - 1
    """
    battles = [
        battle("zoe", "ann", "model_a"),
        battle("ann", "bob", "model_a", "model_a", "model_a"),
        battle("bob", "ann", "model_a"),
        battle("bob", "ann", "model_b"),
        battle("ann", "bob", "tie", "tie", "tie"),
        battle("ann", "bob", "tie", "model_a", "model_b"),
    ]
    assert count(battles, dimension="factuality") == [
        WinRate(
            dimension="factuality",
            entrant_a="ann",
            entrant_b="bob",
            a_wins=2,
            b_wins=1,
            ties=2,
            inconsistent=1,
        ),
        WinRate(
            dimension="factuality",
            entrant_a="ann",
            entrant_b="zoe",
            a_wins=0,
            b_wins=1,
            ties=0,
            inconsistent=0,
        ),
    ]


def test_a_tie_of_both_kinds_counts_and_one_order_alone_is_never_inconsistent():
    battles = [battle("ann", "bob", "tie (bothbad)"), battle("ann", "bob", "tie", "tie", None)]
    (rate,) = count(battles, dimension="x")
    assert (rate.ties, rate.inconsistent) == (2, 0)


def test_no_battles_no_pairs():
    assert count([], dimension="x") == []


@given(BATTLES)
def test_every_battle_is_counted_once(battles):
    rates = count(battles, dimension="x")
    assert sum(r.a_wins + r.b_wins + r.ties for r in rates) == len(battles)
    assert [(r.entrant_a, r.entrant_b) for r in rates] == sorted(
        {tuple(sorted((b.model_a, b.model_b))) for b in battles}
    )


@given(BATTLES)
def test_naming_a_battle_the_other_way_round_changes_nothing(battles):
    other = {"model_a": "model_b", "model_b": "model_a"}
    turned = [
        dataclasses.replace(
            b, model_a=b.model_b, model_b=b.model_a, winner=other.get(b.winner, b.winner)
        )
        for b in battles
    ]
    assert count(turned, dimension="x") == count(battles, dimension="x")


# Shares with their errors


def test_the_verdicts_on_one_prompt_are_one_observation():
    """ann beats bob twice on q0, and both times loses on q1: the mean of two independent numbers, 1 and 0, of standard
    deviation 1 / root 2; of four numbers it would be half as uncertain."""
    both = [
        Battle(model_a="ann", model_b="bob", winner=w, question_id=q, verdict_ab=w, verdict_ba=w)
        for q, w in (("q0", "model_a"), ("q1", "model_b"))
    ]
    found = shares(both, use="both", ties="half")[("ann", "bob")]
    assert (found.n_games, found.share) == (4, 0.5)
    assert found.std_error == pytest.approx(0.5)


def test_ties_are_half_a_win_or_left_out():
    battles = [battle("bob", "ann", winner) for winner in ("model_a", "model_a", "tie", "model_b")]
    assert shares(battles, use="consistent", ties="half")["ann", "bob"].share == (1 + 0.5) / 4
    assert shares(battles, use="consistent", ties="drop")["ann", "bob"].share == 1 / 3
    assert shares(battles[2:3], use="consistent", ties="drop") == {}


def test_prompts_that_do_not_differ_say_nothing_of_an_error():
    battles = [battle("ann", "bob", "model_a")] * 3
    assert shares(battles, use="both", ties="half") == {
        ("ann", "bob"): Share(n_prompts=3, n_games=3, share=1.0, std_error=None)
    }


@given(BATTLES)
def test_the_shares_are_those_of_the_counts(battles: list[Battle]):
    found = shares(battles, use="consistent", ties="half")
    counted = {
        (r.entrant_a, r.entrant_b): (r.a_wins + r.ties / 2) / (r.a_wins + r.b_wins + r.ties)
        for r in count(battles, dimension="factuality")
    }
    assert {pair: share.share for pair, share in found.items()} == pytest.approx(counted)


# Intervals


@pytest.mark.parametrize("n", [1, 10, 400])
def test_a_share_of_none_or_all_has_an_interval(n: int) -> None:
    """Wilson's holds the p with |share - p| <= 1.96 sqrt(p (1 - p) / n): of 1 those from n / (n + 1.96^2) on."""
    least = n / (n + 1.96**2)
    assert share_interval(1.0, n) == pytest.approx((least, 1.0))
    assert share_interval(0.0, n) == pytest.approx((0.0, 1.0 - least))
    for share in (0.05, 0.5, 0.75):
        assert [abs(share - p) for p in share_interval(share, n)] == pytest.approx(
            [1.96 * math.sqrt(p * (1 - p) / n) for p in share_interval(share, n)]
        )


def test_an_interval_of_prompts_is_wilsons_of_as_many_battles_as_have_the_error():
    """A share of .9 with an error of .03 is as sure as one of .9 .1 / .03^2 = 100 battles; ten prompts tell the error,
    so that 2.26 of them take the place of 1.96."""
    assert clustered_interval(0.9, 0.03, 10) == pytest.approx(
        share_interval(0.9, 100, half_width=half_width(10))
    )
    assert clustered_interval(0.5, 0.001, 10) == pytest.approx(
        (0.5 - 0.00226, 0.5 + 0.00226), abs=1e-5
    )
    assert clustered_interval(1.0, None, 10) is None
    assert clustered_interval(1.0, 1e-9, 10) is None


@given(st.floats(0.001, 0.999), st.floats(1e-4, 1.0), st.integers(2, 200))
def test_law_no_interval_leaves_what_a_share_can_be(share: float, std_error: float, n_prompts: int):
    found = clustered_interval(share, std_error, n_prompts)
    assert found is not None
    assert 0 <= found[0] < share < found[1] <= 1
