"""A model that met the others on few of the prompts: how sure one may be of it is told by those few alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from elo_exp.analysis.comparisons import Difference, differences, with_ranks
from elo_exp.analysis.power import precision
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import (
    POINTS,
    BradleyTerry,
    abilities,
    clustered_covariance,
)
from elo_exp.ratings.games import games
from elo_exp.ratings.leaderboard import Leaderboard, t_quantile
from elo_exp.ratings.ties import Davidson
from elo_exp.records import Battle
from elo_exp.report.findings import unrated
from tests.data import by_dimension
from tests.simulation import Tournament

N_PROMPTS = 100
EQUALS = Tournament(ratings=(0.0,) * 4)


def battles(seed: int, n_prompts: int, tournament: Tournament = EQUALS) -> list[Battle]:
    """Four models on 100 prompts, of which d is on so many."""
    some = tournament.battles(N_PROMPTS, np.random.default_rng(seed))
    few = {f"q{q}" for q in range(n_prompts)}
    return [
        b for b in some if "d" not in (b.model_a, b.model_b) or b.question_id in few
    ]


def bradley_terry(**changes: Any) -> BradleyTerry:
    settings = {
        "initial_rating": 1400,
        "use": "both",
        "interval": "sandwich",
        "n_bootstraps": 100,
        "seed": 0,
    }
    return BradleyTerry(**{**settings, **changes})


def board(some: Sequence[Battle], **changes: Any) -> Leaderboard:
    return bradley_terry(**changes).rate(by_dimension({"x": some}))["x"]


def gaps_of_d(one: Leaderboard) -> list[Difference]:
    return [
        pair for pair in differences({"x": one}) if "d" in (pair.higher, pair.lower)
    ]


@pytest.mark.parametrize(
    ("n_prompts", "at_least"), [(2, 0.95), (3, 0.95), (5, 0.95), (10, 0.92), (40, 0.91)]
)
def test_intervals_hold_the_truth_however_few_the_prompts(
    n_prompts: int, at_least: float
):
    """Of 100 tournaments, whose own error is 2 %. With an error from all 100 prompts it is 70 % of them on two."""
    boards = [board(battles(seed, n_prompts)) for seed in range(100)]
    pairs = [
        pair for one in boards for pair in gaps_of_d(one) if pair.ci_low is not None
    ]
    assert len(pairs) >= 290
    assert (
        np.mean([pair.ci_low <= 0 <= (pair.ci_high or 0.0) for pair in pairs])
        >= at_least
    )


def test_of_one_prompt_there_is_no_error_and_nobody_is_called_best():
    one = with_ranks(board(battles(3, 1)), np.random.default_rng(0))
    d = one.row("d")
    assert (d.n_prompts, d.std_error, d.ci_low, d.ci_high, d.rank_low, d.rank_high) == (
        1,
        None,
        None,
        None,
        1,
        4,
    )
    assert {pair.p_value for pair in gaps_of_d(one)} == {None}
    assert {r.p_best for r in one.ratings} == {None}
    assert all(
        r.std_error and r.n_prompts == N_PROMPTS for r in one.ratings if r.model != "d"
    )
    assert unrated(one) == ["Rated on one prompt alone, which gives no interval: d."]


def test_what_a_run_could_find_is_that_of_its_design_and_not_of_a_stray_model():
    with_d, without = (precision({"x": board(battles(3, n))})[0] for n in (3, 0))
    assert with_d.detectable == pytest.approx(without.detectable, rel=0.1)
    assert (with_d.n_tests, without.n_tests) == (6, 3)


def test_the_others_are_as_sure_as_before():
    with_d, without = (
        with_ranks(board(some), np.random.default_rng(0))
        for some in (battles(3, 1), battles(3, 0))
    )
    for model in "abc":
        assert with_d.row(model).std_error == pytest.approx(
            without.row(model).std_error, rel=0.05
        )


def test_prompts_that_happen_to_agree_make_no_interval_of_no_width():
    """Three prompts of one and the same balance, on which d wins two of three."""
    few = [
        Battle(model_a="d", model_b="a", winner=f"model_{w}", question_id=f"q{q}")
        for q in range(3)
        for w in "aab"
    ]
    (gap,) = [
        pair
        for pair in gaps_of_d(board([*battles(5, 0), *few]))
        if "a" in (pair.higher, pair.lower)
    ]
    alone = POINTS / np.sqrt(9 * 2 / 9)  # nine independent games, won by two of three
    assert gap.std_error is not None and gap.std_error > 0.99 * alone
    assert (gap.ci_high or 0.0) - (gap.ci_low or 0.0) == pytest.approx(
        2 * t_quantile(2) * gap.std_error
    )


def test_from_twenty_prompts_on_the_error_is_that_of_its_own_prompts():
    """k / (k - 1) in place of n / (n - 1), exactly."""
    played = games(Battles.from_rows(some := battles(1, 25)), use="both")
    theta = abilities(played.wins())
    whole = clustered_covariance(theta, played)
    d = board(some).row("d")
    assert d.std_error == pytest.approx(
        POINTS * np.sqrt(whole[3, 3] * 25 / 24 * 99 / 100)
    )


def test_where_all_are_on_all_prompts_nothing_changes():
    played = games(Battles.from_rows(some := battles(1, N_PROMPTS)), use="both")
    theta = abilities(played.wins())
    plain = POINTS * np.sqrt(np.diag(clustered_covariance(theta, played)))
    assert [board(some).row(model).std_error for model in "abcd"] == pytest.approx(
        plain.tolist(), rel=1e-12
    )


def test_a_distance_to_a_model_of_few_prompts_is_as_unsure_as_it():
    some = battles(2, 4)
    pinned = board(some, baseline_model="d")
    (gap,) = [
        pair for pair in gaps_of_d(board(some)) if "a" in (pair.higher, pair.lower)
    ]
    a = pinned.row("a")
    assert a.std_error == pytest.approx(gap.std_error)
    assert (a.ci_high or 0.0) - (a.ci_low or 0.0) == pytest.approx(
        (gap.ci_high or 0.0) - (gap.ci_low or 0.0)
    )
    alone = board(battles(3, 1), baseline_model="d")
    assert {(r.std_error, r.ci_low) for r in alone.ratings if r.model != "d"} == {
        (None, None)
    }
    errors = [
        {(p.higher, p.lower): p.std_error for p in differences({"x": one})}
        for one in (alone, board(battles(3, 1)))
    ]
    assert errors[0] == pytest.approx(
        errors[1], nan_ok=True
    )  # a difference knows no baseline


def test_a_bootstrap_says_no_more_than_the_prompts():
    """The draws of six prompts scatter by less than new prompts would, and may be alike by chance."""
    some = battles(4, 6)
    found, plain = (
        board(some, interval=name, n_bootstraps=300).row("d")
        for name in ("bootstrap", "sandwich")
    )
    assert found.std_error is not None and plain.std_error is not None
    assert found.std_error == pytest.approx(plain.std_error, rel=0.3)


def test_ties_as_an_outcome_are_no_surer():
    found = (
        Davidson(initial_rating=1400, use="both")
        .rate(by_dimension({"x": battles(3, 1)}))["x"]
        .row("d")
    )
    assert found.rating is not None
    assert (found.std_error, found.n_prompts) == (None, 1)


# All models on few prompts

N_RUNS = 200


@dataclass(frozen=True)
class Held:
    """Shares of the runs of equal models, or of their intervals."""

    intervals: float  # that hold the truth
    differences: float  # in which one holds, by Holm
    ranks: float  # in which a rank is excluded


@pytest.fixture(scope="module", params=[3, 10])
def held(request: pytest.FixtureRequest) -> Held:
    equals, rng = Tournament(ratings=(0.0,) * 4), np.random.default_rng(request.param)
    method = BradleyTerry(
        initial_rating=0, use="both", interval="sandwich", n_bootstraps=2, seed=0
    )
    boards = [
        method.rate(by_dimension({"d": equals.battles(request.param, rng)}))["d"]
        for _ in range(N_RUNS)
    ]
    boards = [
        board for board in boards if all(r.ci_low is not None for r in board.ratings)
    ]
    assert len(boards) > 0.9 * N_RUNS
    inside = [
        (r.ci_low or 0) <= 0 <= (r.ci_high or 0)
        for board in boards
        for r in board.ratings
    ]
    found = [
        any(pair.significant for pair in differences({"d": board})) for board in boards
    ]
    ranks = [
        any(r.rank_low != 1 or r.rank_high != 4 for r in with_ranks(board, rng).ratings)
        for board in boards
    ]
    return Held(*(float(np.mean(some)) for some in (inside, found, ranks)))


def test_of_few_prompts_95_percent_of_the_intervals_hold_the_truth(held: Held):
    """With 1.96 errors to each side it is 84 % of those of three prompts."""
    assert 0.92 < held.intervals < 0.98


def test_of_few_prompts_a_difference_between_equals_is_found_in_5_percent_of_the_runs(
    held: Held,
):
    """By normal p values it is 44 % of those of three prompts, and 47 % exclude a rank."""
    assert held.differences < 0.09
    assert held.ranks < 0.1
