"""The difference a run can find: by hand, against statsmodels, and in simulated tournaments."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.power import TTestPower

from elo_exp.analysis.comparisons import differences
from elo_exp.analysis.power import (
    Precision,
    assumed_sigma,
    detectable_difference,
    estimate_precision,
    prompts_needed,
)
from elo_exp.data.pairing import choose_pairs
from elo_exp.ratings.leaderboard import Leaderboard
from tests.simulation import BRADLEY_TERRY, Tournament, in_one_order

RATINGS = np.array([1505.0, 1445.0, 1400.0])


def board(
    covariance: object, n_clusters: int | None, ratings: np.ndarray = RATINGS
) -> Leaderboard:
    return Leaderboard(
        label="some method",
        interval=None,
        models=tuple("abc"[: len(ratings)]),
        rating=ratings,
        covariance=np.array(covariance, dtype=float),
        n_clusters=n_clusters,
    )


EQUALLY_SURE = 450 * (np.eye(3) - 1 / 3)  # every difference has an error of 30 points


def test_a_worked_example():
    """100 prompts leave an error of 30 points: one prompt has 300. A difference is found with 80%
    power at 1.98 + 0.85 = 2.83 errors, of 99 degrees of freedom; of three tests at 2.44 + 0.85."""
    (found,) = estimate_precision({"factuality": board(EQUALLY_SURE, 100)})
    assert found == Precision(
        dimension="factuality",
        n_prompts=100,
        n_tests=3,
        sigma=pytest.approx(300),
        detectable=pytest.approx(2.83 * 30, rel=2e-3),
        detectable_corrected=pytest.approx(3.28 * 30, rel=2e-3),
        prompts_needed={"20": 1768, "40": 444, "60": 199},
        prompts_needed_corrected={"20": 2359, "40": 592, "60": 265},
    )


def test_the_average_pair_is_a_root_mean_square_and_all_dimensions_count_as_tests():
    two = board(225 * (2 * np.eye(2) - 1), 50, RATINGS[:2])
    first, second = estimate_precision(
        {"one": board(np.diag([100, 300, 500]), 100), "two": two}
    )
    assert first.sigma == pytest.approx(math.sqrt(600 * 100))  # pairs: 400, 600 and 800
    assert (first.n_tests, second.n_tests, second.n_prompts) == (4, 4, 50)
    expected = detectable_difference(30 * math.sqrt(50), 50, alpha=0.05 / 4)
    assert second.detectable_corrected == pytest.approx(expected)


@pytest.mark.parametrize(
    ("covariance", "n_prompts"), [(np.full((3, 3), np.nan), 1), (np.zeros((3, 3)), 20)]
)
def test_prompts_that_tell_no_error_find_nothing(covariance: object, n_prompts: int):
    (found,) = estimate_precision({"d": board(covariance, n_prompts)})
    assert found == Precision(dimension="d", n_prompts=n_prompts, n_tests=0)
    assert estimate_precision({}) == []


@pytest.mark.parametrize("n_tests", [1, 6, 45])
@pytest.mark.parametrize("n_prompts", [10, 143, 2000])
def test_statsmodels_finds_the_same_power(n_prompts: int, n_tests: int):
    effect = TTestPower().solve_power(nobs=n_prompts, alpha=0.05 / n_tests, power=0.8)
    found = detectable_difference(250.0, n_prompts, alpha=0.05 / n_tests)
    assert found == pytest.approx(
        250.0 * effect, rel=0.7 / n_prompts
    )  # two quantiles, nearly


@given(n=st.integers(2, 3000), n_tests=st.integers(1, 100))
def test_law_prompts_needed_and_the_detectable_difference_are_inverse(
    n: int, n_tests: int
):
    alpha = 0.05 / n_tests
    found = detectable_difference(264.0, n, alpha=alpha)
    assert prompts_needed(264.0, found * (1 + 1e-9), alpha=alpha) == n
    assert detectable_difference(264.0, 4 * n, alpha=alpha) <= found / 2 * (1 + 1e-9)
    assert detectable_difference(264.0, n, alpha=0.05 / (n_tests + 1)) > found


@pytest.mark.parametrize(
    ("n_prompts", "n_entrants"), [(0, 4), (1, 4), (143, 1), (0, 0)]
)
def test_without_prompts_or_opponents_nothing_is_found(n_prompts: int, n_entrants: int):
    assert detectable_difference(assumed_sigma(n_entrants), n_prompts) == math.inf


# Standard errors relative to all pairs in both orders, by simulation
WIDTHS = [
        *[(4, None, 0.0, 1.16), (8, None, 0.0, 1.11), (16, None, 0.0, 1.07)],
        *[(8, 4, 0.0, 1.30), (8, 2, 0.0, 1.66), (8, 1, 0.0, 2.23)],
        *[(16, 4, 0.0, 1.46), (16, 2, 0.0, 1.87), (16, 1, 0.0, 2.50)],
        (4, None, 0.2, 1.14),
]  # fmt: skip


@pytest.mark.parametrize(("m", "opponents", "both_orders", "width"), WIDTHS)
def test_a_plan_is_as_much_wider_as_the_design_was_in_simulations(
    m: int, opponents: int | None, both_orders: float, width: float
):
    found = assumed_sigma(m, both_orders=both_orders, opponents=opponents)
    assert found / assumed_sigma(m) == pytest.approx(width, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "m", "opponents", "both_orders", "expected"),
    [
        *[({}, *row) for row in WIDTHS],
        ({"quality": 2.5}, 4, None, 0.0, 1.05),
        ({"quality": 2.5}, 4, None, 0.2, 1.07),
        ({"first_shown": 0.8}, 4, None, 0.0, 1.18),
        ({"first_shown": 0.8}, 4, None, 0.2, 1.13),
        ({"first_shown": 0.9}, 4, None, 0.0, 1.21),
        ({"first_shown": 0.9}, 4, None, 0.2, 1.16),
    ],
)
def test_simulated_widths_of_fewer_pairs_and_orders(
    changes: dict[str, float],
    m: int,
    opponents: int | None,
    both_orders: float,
    expected: float,
):
    """Of the gaps measured, which one order stretches; those of few opponents are too noisy to divide by."""
    rng = np.random.default_rng(5)
    truth = np.linspace(-75.0, 75.0, m)
    every = Tournament(ratings=tuple(truth), **changes).columns(24_000 // m, rng)  # type: ignore[arg-type]
    chosen: list[bool] = []
    for question in every.questions:
        met = set(choose_pairs(every.models, question, opponents))
        chosen += [pair in met for pair in itertools.combinations(every.models, 2)]
    some = in_one_order(every.select(np.array(chosen)), rng, both_orders=both_orders)
    boards = BRADLEY_TERRY.rate({"every": every, "some": some})
    before, after = (found.sigma or 0.0 for found in estimate_precision(boards))
    stretch = (boards["some"].rating @ truth) / (boards["every"].rating @ truth)
    found = after / before / (1.0 if opponents else stretch)
    assert found == pytest.approx(expected, rel=0.05)


def power(gap: int, n_prompts: int, n: int) -> float:
    """Simulated power, of two entrants against two that are `gap` better, over n tournaments."""
    rng, tournament = np.random.default_rng(gap), Tournament(ratings=(0, 0, gap, gap))
    found = []
    for _ in range(n):
        boards = BRADLEY_TERRY.rate({"d": tournament.columns(n_prompts, rng)})
        p = {
            (pair.higher, pair.lower): pair.p_value or 1.0
            for pair in differences(boards)
        }
        found += [p.get(pair, 1.0) < 0.05 for pair in itertools.product("cd", "ab")]
    return float(np.mean(found))


@pytest.mark.system
@pytest.mark.parametrize(("gap", "n_prompts"), [(40, 345), (60, 155), (100, 57)])
def test_the_planned_number_of_prompts_has_the_planned_power(gap: int, n_prompts: int):
    assert prompts_needed(assumed_sigma(4), gap) == n_prompts
    assert 0.74 < power(gap, n_prompts, n=300) < 0.86
