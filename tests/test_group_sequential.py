"""Boundaries by alpha spending: published tables, and intervals after stopping."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.analysis.sequential_tests import boundaries, estimate_stagewise


def equal(n_looks: int) -> tuple[float, ...]:
    return tuple(k / n_looks for k in range(1, n_looks + 1))


# as gsDesign and rpact have them
TABLES = [
    (0.05, equal(1), "1.960"),
    (0.05, equal(2), "2.963 1.969"),
    (0.05, equal(5), "4.877 3.357 2.680 2.290 2.031"),
    (0.05, equal(8), "6.232 4.333 3.481 2.980 2.644 2.401 2.215 2.066"),
    (0.05 / 18, equal(5), "7.053 4.921 3.966 3.398 3.017"),
    (0.05, (0.1, 0.3, 0.6, 1.0), "6.991 3.929 2.670 1.981"),
]


@pytest.mark.parametrize("alpha, times, expected", TABLES)
def test_boundaries_are_those_of_the_tables(alpha, times, expected):
    assert " ".join(f"{c:.3f}" for c in boundaries(alpha, times)) == expected


def test_a_z_far_beyond_what_the_looks_before_let_expect_has_an_interval():
    """It did not stop at the first look, and is 60 errors off at the second."""
    middle, low, high = estimate_stagewise(
        equal(5)[:2], boundaries(0.05, equal(5))[:1], 60.0
    )
    assert 0 < low < middle < high < 60 / np.sqrt(0.4)


@pytest.mark.system
@given(st.floats(-4, 4), st.integers(1, 5))
def test_an_interval_holds_its_estimate_mirrors_and_is_plain_after_one_look(z, n_looks):
    times = equal(5)[:n_looks]
    bounds = boundaries(0.05, equal(5))[: n_looks - 1]
    middle, low, high = estimate_stagewise(times, bounds, z)
    assert low < middle < high
    assert estimate_stagewise(times, bounds, -z) == pytest.approx(
        (-middle, -high, -low), abs=1e-6
    )
    if n_looks == 1:
        plain = np.array([z, z - 1.96, z + 1.96]) / np.sqrt(0.2)
        assert (middle, low, high) == pytest.approx(plain, abs=1e-3)
