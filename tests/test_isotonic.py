"""Isotonic regression: the closest monotone function, and what each observation does to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from elo_exp.oracle.isotonic import fit

SEEDS = st.integers(0, 10_000)


def some(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x with ties, y, weights."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    return np.round(rng.random(n), 1), rng.random(n), rng.random(n) + 0.01


def test_neighbours_that_fall_share_their_mean():
    """
    x     1   2   3    4
    y     1   3   2    4     2 follows 3: both become 2.5
    fit   1  2.5 2.5   4
    """
    curve = fit(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0]))
    assert curve(np.array([1.0, 2.0, 3.0, 4.0])).tolist() == [1.0, 2.5, 2.5, 4.0]


def test_it_is_straight_between_its_knots_and_flat_beyond_them():
    curve = fit(np.array([0.0, 1.0]), np.array([0.0, 10.0]))
    assert curve(np.array([-5.0, 0.25, 2.0])).tolist() == [0.0, 2.5, 10.0]


def test_observations_at_one_place_count_as_one():
    curve = fit(np.array([1.0, 1.0, 2.0]), np.array([0.0, 1.0, 3.0]), np.array([3.0, 1.0, 1.0]))
    assert curve(np.array([1.0, 2.0])).tolist() == [0.25, 3.0]


@given(SEEDS)
def test_it_is_the_fit_of_an_independent_solver(seed: int):
    x, y, weight = some(seed)
    knots, knot = np.unique(x, return_inverse=True)
    total = np.bincount(knot, weight)
    expected = isotonic_regression(np.bincount(knot, weight * y) / total, weights=total).x
    assert fit(x, y, weight)(knots) == pytest.approx(expected)


@given(SEEDS)
def test_a_falling_fit_is_the_rising_fit_turned_over(seed: int):
    x, y, weight = some(seed)
    assert fit(x, y, weight, increasing=False)(x) == pytest.approx(-fit(x, -y, weight)(x))


@given(SEEDS)
def test_what_is_read_off_is_a_sum_over_the_observations(seed: int):
    """u . f(x) = pull(x, u) . y, everywhere on the line."""
    x, y, weight = some(seed)
    rng = np.random.default_rng(seed)
    places, u = rng.uniform(-0.2, 1.2, 15), rng.standard_normal(15)
    curve = fit(x, y, weight)
    assert curve.pull(places, u) @ y == pytest.approx(u @ curve(places))


def test_the_pull_is_the_slope_while_the_blocks_stay():
    x, y = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])
    places, u = np.array([1.5, 3.0]), np.array([1.0, 2.0])
    moved = y + np.array([0.0, 1e-3, 0.0, 0.0])
    by = (u @ fit(x, moved)(places) - u @ fit(x, y)(places)) / 1e-3
    assert fit(x, y).pull(places, u)[1] == pytest.approx(by)
