"""How far ratings moved from one run to another, when some prompts, or all, are in both.

A pilot on 40 of 120 prompts is half of what is tested here: its errors and those of the whole run come in part from
the same prompts, so the variance of the difference is neither their sum nor zero.
"""

import numpy as np
import pytest

from elo_exp.analysis.shifts import (
    Influence,
    Shift,
    adjusted,
    influence,
    shifts,
    with_errors,
)
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.records import Battle
from elo_exp.statistics.likelihood import POINTS, abilities, games
from tests.data import by_dimension
from tests.simulation import Tournament

TOURNAMENT = Tournament()


def fit(battles: list[Battle], use: str = "both") -> Influence:
    found = influence(battles, use=use)
    assert found is not None
    return found


def moved(before: Influence, after: Influence) -> dict[str, Shift]:
    ratings = [dict(zip(fit.models, fit.ratings.tolist(), strict=True)) for fit in (before, after)]
    return with_errors(shifts(*ratings), before, after)


def played(n_prompts: int, seed: int = 1) -> list[Battle]:
    return TOURNAMENT.battles(n_prompts, np.random.default_rng(seed))


def renamed(battles: list[Battle]) -> list[Battle]:
    """On prompts that no other run has."""
    return [
        Battle.from_dict({**battle.to_dict(), "question_id": f"other {battle.question_id}"})
        for battle in battles
    ]


def of_prompts(battles: list[Battle], n: int) -> list[Battle]:
    return [battle for battle in battles if int(str(battle.question_id)[1:]) < n]


# What moved


def test_a_shift_is_against_the_mean_of_those_rated_in_both():
    """a gains 30 on b; c, who is in one run only, and the level of a run do not count: +15 and -15."""
    found = shifts({"a": 1500.0, "b": 1400.0, "c": 1300.0}, {"a": 1030.0, "b": 900.0})
    assert {model: shift.shift for model, shift in found.items()} == {"a": 15.0, "b": -15.0}


def test_one_shared_entrant_has_nothing_to_move_against():
    assert shifts({"a": 1500.0, "b": 1400.0}, {"a": 1500.0, "c": 1400.0}) == {}


# How sure that is


@pytest.mark.parametrize("use", ["both", "consistent"])
def test_the_parts_of_prompts_add_up_to_the_clustered_covariance(use: str):
    battles = played(60)
    bradley_terry = BradleyTerry(
        initial_rating=1400.0, use=use, interval="sandwich", n_bootstraps=2, seed=0
    )
    board = bradley_terry.rate(by_dimension({"d": battles}))["d"]
    found = fit(battles, use)
    assert found.models == board.models
    assert board.covariance is not None
    np.testing.assert_allclose(found.parts.T @ found.parts, board.covariance, rtol=1e-9, atol=1e-9)
    ratings = np.array([board.row(model).rating for model in board.models])
    np.testing.assert_allclose(found.ratings, ratings - ratings.mean(), atol=1e-6)


def test_runs_that_share_no_prompt_are_independent():
    one, two = fit(played(60)), fit(renamed(played(90, seed=2)))
    found = moved(one, two)
    variance = sum(np.diag(run.parts.T @ run.parts) for run in (one, two))
    assert [shift.std_error for shift in found.values()] == pytest.approx(np.sqrt(variance))


def test_the_same_battles_have_no_shift_and_no_interval():
    one = fit(played(60))
    assert all((shift.shift, shift.std_error) == (0.0, None) for shift in moved(one, one).values())


def test_the_error_is_that_of_a_bootstrap_of_all_prompts():
    """Second opinion: prompts of a pilot and its whole are drawn with replacement, and both fitted anew."""
    whole = played(120)
    one, two = fit(of_prompts(whole, 40)), fit(whole)
    errors = [shift.std_error for shift in moved(one, two).values()]
    every = games(whole, use="both")
    in_pilot = np.arange(120) < 40  # prompts are numbered as they come
    wins = np.zeros((120, 4, 4))
    np.add.at(wins, (every.cluster, every.first, every.second), every.score)
    np.add.at(wins, (every.cluster, every.second, every.first), 1 - every.score)
    rng = np.random.default_rng(3)
    drawn = [rng.integers(120, size=120) for _ in range(400)]
    again = [
        abilities(wins[q].sum(axis=0)) - abilities(wins[q[in_pilot[q]]].sum(axis=0)) for q in drawn
    ]
    assert errors == pytest.approx(POINTS * np.std(again, axis=0), rel=0.15)


def test_a_pilot_and_its_whole_differ_as_much_as_the_error_says():
    """Over simulated tournaments; a shift between runs of one truth is chance alone."""
    found = []
    for seed in range(150):
        whole = played(90, seed)
        found.append(list(moved(fit(of_prompts(whole, 45)), fit(whole)).values()))
    scatter = np.std([[shift.shift for shift in some] for some in found])
    error = np.sqrt(
        np.mean([[shift.std_error**2 for shift in some if shift.std_error] for some in found])
    )
    assert error / scatter == pytest.approx(1.0, abs=0.1)


def test_shared_prompts_make_a_shift_surer_than_two_intervals_would():
    whole = played(120)
    one, two = fit(of_prompts(whole, 90)), fit(whole)
    apart = moved(one, fit(renamed(whole)))
    for model, shift in moved(one, two).items():
        assert shift.std_error is not None
        assert shift.std_error < 0.5 * (apart[model].std_error or 0.0)


@pytest.mark.parametrize("prompts", [None, "the same"])
def test_battles_that_do_not_tell_prompts_apart_give_no_error(prompts: str | None):
    battles = [
        Battle.from_dict({**battle.to_dict(), "question_id": prompts}) for battle in played(20)
    ]
    assert influence(battles, use="both") is None


def test_p_values_are_adjusted_together_and_those_without_one_left_alone():
    """Holm: .01 and .04 of two tests become .02 and .04."""
    found = [
        Shift(model="a", shift=3.0, p_value=0.01),
        Shift(model="b", shift=0.0),
        Shift(model="c", shift=2.0, p_value=0.04),
    ]
    assert [shift.p_holm for shift in adjusted(found)] == [0.02, None, 0.04]
