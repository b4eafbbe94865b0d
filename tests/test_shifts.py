"""How far ratings moved from one run to another, when some prompts, or all, are in both.

A pilot on 40 of 120 prompts is half of what is tested here: its errors and those of the whole run
come in part from the same prompts, so the variance of the difference is neither their sum nor zero.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elo_exp.analysis.rating_changes import (
    PromptInfluence,
    RatedRun,
    Shift,
    compute_shifts,
    count_verdicts,
    may_be_nested,
    retest_with_missing,
    split_fit_by_prompt,
)
from elo_exp.data.battle_clusters import UNNAMED_CLUSTER
from elo_exp.data.battles import Battles
from tests.simulation import BRADLEY_TERRY, Tournament, in_one_order
from tests.test_missing_answers import battle
from tests.test_missing_answers import missing as missing_battle


def fit(battles: Battles, orders: str = "both") -> PromptInfluence:
    found = split_fit_by_prompt(battles, orders=orders)
    assert found is not None
    return found


def moved(*fits: PromptInfluence) -> list[Shift]:
    before, after = (dict(zip(f.models, f.ratings.tolist(), strict=True)) for f in fits)
    return compute_shifts(before, after, fits)


def errors(before: PromptInfluence, after: PromptInfluence) -> list[float]:
    return [shift.std_error or 0.0 for shift in moved(before, after)]


def played(n_prompts: int, seed: int = 1) -> Battles:
    return Tournament().columns(n_prompts, np.random.default_rng(seed))


def of_prompts(battles: Battles, n: int) -> Battles:
    return battles.select(battles.question < n)


def renamed(battles: Battles) -> Battles:
    """On prompts that no other run has."""
    questions = tuple(f"other {question}" for question in battles.questions)
    return dataclasses.replace(battles, questions=questions)


def test_a_shift_is_against_the_mean_of_those_rated_in_both():
    """a gains 30 on b; c, who is in one run only, and the level of a run do not count."""
    found = compute_shifts(
        {"a": 1500.0, "b": 1400.0, "c": 1300.0}, {"a": 1030.0, "b": 900.0}
    )
    assert {shift.model: shift.shift for shift in found} == {"a": 15.0, "b": -15.0}
    assert compute_shifts({"a": 1500.0, "b": 1400.0}, {"a": 1500.0, "c": 1400.0}) == []


@pytest.mark.parametrize("orders", ["both", "reconciled", "one"])
def test_the_parts_of_prompts_add_up_to_the_clustered_covariance(orders: str):
    battles = played(60)
    if orders == "one":
        battles = in_one_order(battles, np.random.default_rng(1))
    board = dataclasses.replace(BRADLEY_TERRY, orders=orders).rate({"d": battles})["d"]
    found = fit(battles, orders)
    assert found.models == board.models
    np.testing.assert_allclose(
        found.parts.T @ found.parts, board.covariance, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        found.ratings, board.rating - board.rating.mean(), atol=1e-6
    )


def test_runs_that_share_no_prompt_are_independent_and_the_same_battles_have_no_error():
    one, two = fit(played(60)), fit(renamed(played(90, seed=2)))
    variance = sum(np.diag(run.parts.T @ run.parts) for run in (one, two))
    assert errors(one, two) == pytest.approx(np.sqrt(variance))
    assert all(
        (s.shift, s.std_error, s.p_value) == (0.0, None, None) for s in moved(one, one)
    )


@pytest.mark.system
def test_a_pilot_and_its_whole_differ_as_much_as_the_error_says():
    """Over simulated tournaments; a shift between runs of one truth is chance alone."""
    found = []
    for seed in range(150):
        whole = played(90, seed)
        found += moved(fit(of_prompts(whole, 45)), fit(whole))
    scatter = np.std([shift.shift for shift in found])
    error = np.sqrt(np.mean([(shift.std_error or 0.0) ** 2 for shift in found]))
    assert error / scatter == pytest.approx(1.0, abs=0.1)


@pytest.mark.system
def test_the_error_is_that_of_a_bootstrap_of_all_prompts():
    """Prompts of a pilot and its whole are drawn with replacement, and both are fitted anew."""
    whole, method = played(120), BRADLEY_TERRY
    prompts = [np.flatnonzero(whole.question == q) for q in range(120)]
    rng, found = np.random.default_rng(3), []
    for _ in range(300):
        drawn = rng.integers(120, size=120)
        runs = [
            whole.select(np.concatenate([prompts[q] for q in some]))
            for some in (drawn, drawn[drawn < 40])
        ]
        boards = method.rate(dict(enumerate(runs)))
        found.append(boards[0].rating - boards[1].rating)
    bootstrap = np.std(found, axis=0)
    assert errors(fit(of_prompts(whole, 40)), fit(whole)) == pytest.approx(
        bootstrap, rel=0.15
    )


def test_battles_that_do_not_tell_prompts_apart_give_no_error():
    some = played(20)
    one_prompt = dataclasses.replace(some, question=np.zeros_like(some.question))
    assert split_fit_by_prompt(one_prompt, orders="both") is None
    nameless = dataclasses.replace(some, questions=some.questions[:-1])
    assert split_fit_by_prompt(nameless, orders="both") is None


def test_verdicts_with_other_shares_are_other_verdicts():
    """The winner is the same; how much it won by is what the ratings come from."""
    battles = played(20)
    shared = [
        dataclasses.replace(battles, score=np.where(battles.winner == 0, share, np.nan))
        for share in (1.0, 0.9, 0.9)
    ]
    certain, likely, again = map(count_verdicts, shared)
    assert likely == again
    assert certain != likely
    assert not certain <= likely


# Blank cells


def won(n_won: int, n: int, missing: int = 0, start: int = 0) -> RatedRun:
    """new won so many of the first prompts of n, old the others but for the last, whose verdicts are unknown."""
    rows = [battle(1.0 if q < n_won else 0.0, start + q) for q in range(n - missing)]
    return RatedRun(
        battles=Battles.from_rows(rows),
        missing=[missing_battle(start + q) for q in range(n - missing, n)],
        orders="both",
    )


def both(before: RatedRun, after: RatedRun) -> list[tuple[float, float]]:
    """The p value of each shift, of what is there and with what is missing."""
    tested = moved(fit(before.battles), fit(after.battles))
    again = retest_with_missing(tested, before, after)
    pairs = zip(tested, again, strict=True)
    return [(one.p_value or 1.0, same.p_value or 1.0) for one, same in pairs]


def test_missing_results_count_against_a_shift_whichever_run_lacks_them():
    """With 16 of its losses hidden, an entrant that won 24 of 48 twice seems to have gained."""
    even, better = won(24, 48), won(24, 48, missing=16, start=100)
    for pair in ((even, better), (better, even)):
        assert all(plain < 0.05 and p > 0.5 for plain, p in both(*pair))


def test_a_shift_that_holds_if_results_are_missing_has_the_larger_p_value():
    few, many = won(15, 60), won(35, 60, missing=5, start=100)
    assert all(plain < p < 0.05 for plain, p in both(few, many))


def test_blank_cells_of_the_same_verdicts_are_no_other_verdicts():
    rows = [battle(1.0 if q % 3 else 0.0, q) for q in range(9)]
    less = [dataclasses.replace(row, verdict_ba=None) for row in rows[:4]] + rows[4:]
    unnamed = [dataclasses.replace(rows[0], question_id=None), *rows[1:]]
    full = count_verdicts(Battles.from_rows(rows))
    for some in (less, unnamed):
        assert may_be_nested(full, count_verdicts(Battles.from_rows(some)))
    turned = [dataclasses.replace(less[0], winner="model_a"), *less[1:]]
    assert not may_be_nested(full, count_verdicts(Battles.from_rows(turned)))


def test_battles_that_name_no_question_are_never_paired_for_the_better():
    """Verdicts that go the other way in the second run are the less certain, the more of them are paired."""
    before = [battle(q % 2, q) for q in range(40)]
    after = [battle(1 - q % 2, q) for q in range(39)] + [battle(0.0, 39)]
    lacks = [
        dataclasses.replace(row, question_id=None, cluster=UNNAMED_CLUSTER)
        if q < 20
        else row
        for q, row in enumerate(after)
    ]
    of_all, of_some = (
        errors(fit(Battles.from_rows(before)), fit(Battles.from_rows(rows)))
        for rows in (after, lacks)
    )
    assert all(a <= b for a, b in zip(of_all, of_some, strict=True))
