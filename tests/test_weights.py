"""Importance weights, their diagnostics, and their calibration on the judge's score."""

from __future__ import annotations

import math

import numpy as np
import pytest

from elo_exp.oracle import cje, weights
from elo_exp.oracle.weights import calibrate_weights, find_minimum_variance_mixture
from tests.oracle_sample import sample
from tests.oracle_simulation import World, checks_of, draw


def test_weights_are_scaled_to_mean_one_however_large_their_logarithms():
    found = weights.hajek_weights(np.array([1000.0, 1000.0 + math.log(3.0)]))
    assert found == pytest.approx([0.5, 1.5])
    assert np.isfinite(weights.raw_weights(np.array([1e5]))).all()
    found = weights.clip_weights(np.array([0.5, 0.5, 0.5, 2.5]), 1.5)
    assert found == pytest.approx(np.array([0.5, 0.5, 0.5, 1.5]) / 0.75)
    # (3 + 1)^2 / (9 + 1)
    for size in (1.0, 1e-190):
        found = weights.effective_sample_size(size * np.array([3.0, 1.0]))
        assert found == pytest.approx(1.6)


@pytest.mark.parametrize("index", [0.8, 1.5, 3.0])
def test_the_tail_index_of_a_pareto_distribution_is_found(index: float):
    """From the largest 5% of 20,000 weights: 1,000 of them, an error of index / sqrt(1000)."""
    found = weights.tail_index(np.random.default_rng(1).pareto(index, 20_000) + 1.0)
    assert found == pytest.approx(index, abs=3 * index / math.sqrt(1000))


def test_a_flat_tail_and_one_of_zeros_have_no_index():
    assert weights.tail_index(np.ones(100)) is None
    assert weights.tail_index(np.array([1.0] * 5 + [0.0] * 95)) is None
    assert weights.tail_index(np.ones(9)) is None


def test_the_affinity_of_scores_is_the_share_of_bins_in_common():
    """Half of each distribution in a bin of its own: sqrt(1/2 * 1/2) from the common one."""
    low, high = np.array([0.0, 0.5]), np.array([0.5, 1.0])
    even, one_end = np.ones(2), np.array([1.0, 0.0])
    assert weights.score_affinity(low, high, even) == pytest.approx(0.5)
    assert weights.score_affinity(low, low, even) == pytest.approx(1.0)
    assert weights.score_affinity(low[:1], low[:1], even[:1]) == 1.0
    found = weights.score_affinity(low, low, one_end)
    assert found == pytest.approx(math.sqrt(0.5))


def test_nine_in_ten_of_its_own_answers_are_typical_of_a_policy():
    logprob = -np.random.default_rng(2).gamma(20.0, 2.0, 4000)
    found = weights.target_coverage(logprob, np.full(4000, 30.0), np.ones(4000))
    assert found == pytest.approx(0.9, abs=1e-3)


def test_diagnostics_of_the_sample_are_the_published_ones():
    data = sample()
    found = {p: checks_of(data, p).weight_diagnostics for p in data.policies}
    assert [f.ess for f in found.values()] == pytest.approx([215, 3.4, 7.8], abs=0.5)
    affinities = [f.hellinger for f in found.values()]
    assert affinities == pytest.approx([0.928, 0.199, 0.116], abs=5e-4)
    clone = found["clone"]  # recorded with errors: no exact clone
    counts = (clone.n, clone.n_failed, clone.n_exactly_one, clone.n_zero_logprob)
    assert counts == (1000, 0, 898, 1)
    assert clone.max_abs_log_ratio == pytest.approx(4.0, abs=0.01)
    assert clone.tail_index == pytest.approx(0.76, abs=0.005)


# Calibrated weights


@pytest.mark.parametrize("shift", [0.8, -0.8])
def test_the_calibrated_weight_of_a_score_is_its_mean_weight(shift: float):
    """The weight rises or falls with the score; a style that the judge does not see adds noise."""
    e = checks_of(draw(shift=shift, style=0.5, n=20_000))
    for score in (0.3, 0.5, 0.7):
        there = e.logged.score == score
        mean, error = (
            e.weights.hajek[there].mean(),
            e.weights.hajek[there].std() / math.sqrt(there.sum()),
        )
        assert e.weights.calibrated[there].mean() == pytest.approx(mean, abs=4 * error)


def test_calibrated_weights_are_cross_fitted_and_linear_in_the_raw_ones():
    e = checks_of(draw(shift=0.8))
    in_fold = e.logged.fold == 1
    raw = np.where(in_fold, 5.0, e.weights.hajek)
    changed = calibrate_weights(raw, e.logged)(e.logged).value
    assert (changed[in_fold] == e.weights.calibrated[in_fold]).all()
    u = np.random.default_rng(1).standard_normal(len(e.logged))
    by_weight = e.weights.reading.gradient(u) @ e.weights.hajek
    assert by_weight == pytest.approx(u @ e.weights.calibrated)


def test_the_mixture_of_minimum_variance_is_biased_towards_the_logging_policy():
    """Why the published SIMCal is not the default: it moves the value by less than half enough."""
    world, base = World(shift=0.8, style=0.5, n=5000), World(shift=0.0).truth
    data = world.draw(np.random.default_rng(2))
    e = checks_of(data)
    ours = np.average(e.logged_reading.value, weights=e.weights.calibrated)
    theirs = cje.Formula(name="calibrated_ips").estimate(e).value
    assert ours == pytest.approx(world.truth, abs=0.02)
    assert theirs - base < (world.truth - base) / 2


@pytest.mark.parametrize(
    ("covariance", "mixture"),
    [
        ([[1.0, 1.0], [1.0, 1.0]], [0.5, 0.5]),  # equal candidates share
        ([[1.0, 2.0], [2.0, 9.0]], [1.0, 0.0]),
        ([[1.0, 0.0], [0.0, 3.0]], [0.75, 0.25]),  # inverse variances
    ],
)
def test_mixtures_of_minimum_variance(covariance: object, mixture: list[float]):
    found = find_minimum_variance_mixture(np.array(covariance), ridge=1e-9)
    assert found == pytest.approx(mixture)
