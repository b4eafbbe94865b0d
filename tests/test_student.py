"""Student's t: an error that few prompts tell is itself uncertain, and intervals, p values and rank sets say so."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from elo_exp.analysis.comparisons import differences, with_ranks
from elo_exp.analysis.power import detectable, prompts_needed
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.elo import PermutationElo
from elo_exp.statistics.student import f_survival, half_width, p_values, t_quantile
from tests.data import by_dimension
from tests.simulation import Tournament

LEVELS = (0.6, 0.95, 0.99, 1 - 0.05 / 18)


@pytest.mark.parametrize("df", [1.0, 1.3, 2.5, 4.0, 30.0, 142.0, 1e3, 9e3])
def test_the_quantile_is_that_of_scipy(df: float):
    for level in LEVELS:
        assert t_quantile(df, level=level) == pytest.approx(
            stats.t.ppf((1 + level) / 2, df), rel=1e-6
        )


@pytest.mark.parametrize("df", [1, 2, 3, 9, 142, 5000])
def test_p_values_are_those_of_scipy_far_out_too(df: int):
    t = np.array([0.0, 1e-6, 0.1, 1.0, -1.96, 3.0, -10.0, 30.0])
    assert p_values(t, df) == pytest.approx(2 * stats.t.sf(np.abs(t), df), rel=1e-7)


def test_with_endless_prompts_it_is_normal():
    assert t_quantile(math.inf) == half_width(None) == pytest.approx(stats.norm.ppf(0.975))
    t = np.array([0.5, -8.0])
    assert p_values(t, math.inf) == pytest.approx(2 * stats.norm.sf(np.abs(t)), rel=1e-12)


@pytest.mark.parametrize("df", [1, 2, 3, 10, 36, 300])
@pytest.mark.parametrize("df_error", [1, 7, 47, 140, 100_000])
def test_f_is_that_of_scipy(df: int, df_error: int):
    for f in (0.0, 0.01, 0.5, 1.0, 1.7, 4.0, 30.0):
        assert f_survival(f, df, df_error) == pytest.approx(
            stats.f.sf(f, df, df_error), rel=1e-9, abs=1e-15
        )


def test_what_a_test_with_few_prompts_finds_is_what_a_simulation_finds():
    """Of eight prompts, by the distribution of t that is not central."""
    n, sigma = 8, 100.0
    found = detectable(sigma, n)
    power = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, found / sigma * math.sqrt(n))
    assert power == pytest.approx(0.8, abs=0.01)
    assert prompts_needed(sigma, found) == n
    assert prompts_needed(sigma, found - 1e-6) == n + 1


# Few prompts

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
    method = BradleyTerry(initial_rating=0, use="both", interval="sandwich", n_bootstraps=2, seed=0)
    boards = [
        method.rate(by_dimension({"d": equals.battles(request.param, rng)}))["d"]
        for _ in range(N_RUNS)
    ]
    boards = [board for board in boards if all(r.ci_low is not None for r in board.ratings)]
    assert len(boards) > 0.9 * N_RUNS
    inside = [(r.ci_low or 0) <= 0 <= (r.ci_high or 0) for board in boards for r in board.ratings]
    found = [any(pair.significant for pair in differences({"d": board})) for board in boards]
    ranks = [
        any(r.rank_low != 1 or r.rank_high != 4 for r in with_ranks(board, rng).ratings)
        for board in boards
    ]
    return Held(*(float(np.mean(some)) for some in (inside, found, ranks)))


def test_of_few_prompts_95_percent_of_the_intervals_hold_the_truth(held: Held):
    """With 1.96 errors to each side it is 84 % of those of three prompts."""
    assert 0.92 < held.intervals < 0.98


def test_of_few_prompts_a_difference_between_equals_is_found_in_5_percent_of_the_runs(held: Held):
    """By normal p values it is 44 % of those of three prompts, and 47 % exclude a rank."""
    assert held.differences < 0.09
    assert held.ranks < 0.1


def test_of_four_prompts_elo_s_intervals_nearly_do():
    """By the plain standard deviation of resamples it is 91 %; whoever only won or lost has none."""
    equals, rng = Tournament(ratings=(0.0,) * 4), np.random.default_rng(4)
    elo = PermutationElo(k=16, k_sweep=[], n_perms=50, n_bootstraps=100, perms_per_bootstrap=10, initial_rating=0,
                         seed=1, ties="drop", shuffle=True)  # fmt: skip
    boards = [
        board
        for _ in range(400)
        for board in elo.rate(by_dimension({"d": equals.battles(4, rng)})).values()
    ]
    inside = [
        r.ci_low <= 0 <= (r.ci_high or 0)
        for board in boards
        for r in board.ratings
        if r.ci_low is not None
    ]
    assert 0.94 < np.mean(inside) < 0.995
