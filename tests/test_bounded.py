"""Bounds of bounded means: laws, Clopper and Pearson's as a special case, and how often they hold."""

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import stdtrit
from scipy.stats import beta

from elo_exp.analysis.bounded_means import lower_bound, upper_bound

N_TRIALS = 1_500  # a world; Monte Carlo error at .05: .011


@pytest.mark.parametrize("alpha", [0.05, 0.025])
@pytest.mark.parametrize(
    ("n_ones", "n"), [(0, 20), (5, 20), (19, 20), (20, 20), (60, 93), (140, 143)]
)
def test_zeros_and_ones_have_the_bounds_of_clopper_and_pearson(
    n_ones: int, n: int, alpha: float
) -> None:
    x = np.arange(n) < n_ones
    low = beta.ppf(alpha, n_ones, n - n_ones + 1) if n_ones else 0.0
    high = beta.ppf(1 - alpha, n_ones + 1, n - n_ones) if n_ones < n else 1.0
    # the error of a quantile of 20,000 draws: 1.96 sqrt(alpha (1 - alpha) / 20,000) of probability
    assert lower_bound(x, alpha=alpha) == pytest.approx(low, abs=0.004)
    assert upper_bound(x, alpha=alpha) == pytest.approx(high, abs=0.004)


def test_bounds_are_on_the_scale_of_the_values_and_ignore_their_order() -> None:
    x = np.random.default_rng(3).beta(0.5, 2.0, 60)
    low, high = lower_bound(x, alpha=0.05), upper_bound(x, alpha=0.05)
    assert 0 < low < x.mean() < high < 1
    assert lower_bound(x[::-1], alpha=0.05) == low
    assert lower_bound(20 * x - 3, alpha=0.05, least=-3.0) == pytest.approx(
        20 * low - 3
    )
    assert upper_bound(20 * x - 3, alpha=0.05, most=17.0) == pytest.approx(
        20 * high - 3
    )
    assert upper_bound(1 - x, alpha=0.05) == pytest.approx(1 - low)
    assert lower_bound(x, alpha=0.01) < low and upper_bound(x, alpha=0.01) > high


def test_without_values_nothing_is_known() -> None:
    assert (lower_bound([], alpha=0.05), upper_bound([], alpha=0.05, most=5.0)) == (
        0.0,
        5.0,
    )


@pytest.mark.parametrize(
    ("values", "alpha", "told"),
    [([np.nan, 1.0], 0.05, "values"), ([1.0], 1.0, "alpha")],
)
def test_no_bound_of_what_is_no_number(
    values: list[float], alpha: float, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        lower_bound(values, alpha=alpha)


@pytest.mark.system
def test_many_values_take_little_memory() -> None:
    tracemalloc.start()
    try:
        lower_bound(np.random.default_rng(4).random(5_000), alpha=0.05)
        assert (
            tracemalloc.get_traced_memory()[1] < 50e6
        )  # their weights at once: 800 MB
    finally:
        tracemalloc.stop()


def _mostly_ties(
    rng: np.random.Generator, n: int, lost: float, won: float
) -> NDArray[np.float64]:
    u = rng.random((N_TRIALS, n))
    return np.where(u < lost, 0.0, np.where(u < lost + won, 1.0, 0.5))


def _is_above(x: NDArray[np.float64], mean: float) -> tuple[float, float]:
    """How often the 5% bound is above the mean: this one, and Student's t."""
    ours = np.mean([lower_bound(row, alpha=0.05) > mean for row in x])
    n = x.shape[1]
    t = x.mean(1) - stdtrit(n - 1, 0.95) * x.std(1, ddof=1) / np.sqrt(n)
    return float(ours), float(np.mean(t > mean + 1e-12))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "margin", "least_of_t"),
    [
        (29, 0.05, 0.15),
        (50, 0.05, 0.09),
        (93, 0.05, 0.06),
        (143, 0.05, 0.055),
        (360, 0.05, 0.05),
        (20, 0.10, 0.04),
        (50, 0.10, 0.07),
        (93, 0.10, 0.06),
        (143, 0.10, 0.055),
    ],
)
def test_the_bound_holds_where_all_but_a_few_are_ties(
    n: int, margin: float, least_of_t: float
) -> None:
    x = _mostly_ties(np.random.default_rng(5), n, 2 * margin, 0.0)
    ours, t = _is_above(x, 0.5 - margin)
    assert ours <= 0.05 + 0.011
    assert t > least_of_t  # which is why it is not used


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 80])
@pytest.mark.parametrize(("a", "b"), [(0.05, 0.6), (0.3, 0.1), (2.0, 5.0)])
def test_the_bounds_hold_in_skewed_worlds_that_nothing_was_tuned_on(
    n: int, a: float, b: float
) -> None:
    x, mean = (
        np.random.default_rng(6).beta(a, b, (400, n)),
        a / (a + b),
    )  # Monte Carlo error .021
    low = np.mean([lower_bound(row, alpha=0.05) > mean for row in x])
    high = np.mean([upper_bound(row, alpha=0.05) < mean for row in x])
    assert max(low, high) <= 0.05 + 0.021


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "margin", "decisive", "power", "of_t"),  # of a mean of one half
    [
        (93, 0.10, 0.5, 0.827, 0.848),
        (143, 0.10, 0.5, 0.952, 0.960),
        (360, 0.05, 0.5, 0.835, 0.849),
        (50, 0.10, 0.2, 0.893, 0.927),
        (143, 0.05, 0.2, 0.788, 0.835),
    ],
)
def test_the_bound_costs_little_power(
    n: int, margin: float, decisive: float, power: float, of_t: float
) -> None:
    x = _mostly_ties(np.random.default_rng(7), n, decisive / 2, decisive / 2)
    ours, t = _is_above(x, 0.5 - margin)
    assert ours == pytest.approx(power, abs=0.03) and t == pytest.approx(of_t, abs=0.03)
