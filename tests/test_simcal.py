"""Weights calibrated on the score: a function of the score that is as close to the raw weights as can be."""

from __future__ import annotations

import numpy as np
import pytest

from elo_exp.oracle import cje
from elo_exp.oracle.calibration import calibrate
from elo_exp.oracle.evidence import Evidence, evidence
from elo_exp.oracle.simcal import calibrated_weights, least_variance
from tests.oracle_simulation import World


def drawn(world: World, seed: int = 0) -> Evidence:
    data = world.draw(np.random.default_rng(seed))
    return evidence(data, "target", calibrate(data.logged, n_folds=5, mode="monotone"))


@pytest.mark.parametrize("shift", [0.8, -0.8])
def test_the_weight_of_a_score_is_the_mean_weight_at_that_score(shift: float):
    """In the simulation the weight rises or falls with the score; a style that the judge does not see adds noise."""
    e = drawn(World(shift=shift, style=0.5, n=20_000))
    for score in (0.3, 0.5, 0.7):
        there = e.logged.score == score
        error = e.hajek[there].std() / np.sqrt(there.sum())
        assert e.calibrated[there].mean() == pytest.approx(e.hajek[there].mean(), abs=4 * error)
    assert np.sign(np.corrcoef(e.calibrated, e.logged.score)[0, 1]) == np.sign(shift)


def test_no_row_sees_its_own_weight():
    e = drawn(World())
    changed = e.hajek.copy()
    changed[e.logged.fold == 1] = 5.0
    of_fold = e.logged.fold == 1
    again = calibrated_weights(changed, e.logged, n_folds=5)(e.logged)
    assert again[of_fold].tolist() == e.calibrated[of_fold].tolist()


def test_sums_over_calibrated_weights_are_sums_over_raw_ones():
    e = drawn(World(shift=0.8))
    u = np.random.default_rng(1).standard_normal(len(e.logged))
    assert e.weight_curves.pull(u) @ e.hajek == pytest.approx(u @ e.calibrated)


def test_the_mixture_that_varies_least_is_the_flatter_curve_and_the_wrong_one():
    """Why SIMCal's published choice is not ours: with good overlap it moves the value by less than half of what it
    should, from that of the logging policy to that of the target."""
    world = World(shift=0.8, style=0.5, n=5000)
    data = world.draw(np.random.default_rng(2))
    calibration = calibrate(data.logged, n_folds=5, mode="monotone")
    e, base = evidence(data, "target", calibration), World(shift=0.0).truth
    ours = np.average(e.logged_value, weights=e.calibrated)
    theirs = cje.FORMULAS["calibrated_ips"](cje.published(data, "target", calibration)).value
    assert ours == pytest.approx(world.truth, abs=0.02)
    assert theirs - base < (world.truth - base) / 2


def test_equal_candidates_share_and_a_better_one_takes_all():
    assert least_variance(np.ones((2, 2)), ridge=1e-8) == pytest.approx([0.5, 0.5])
    assert least_variance(np.array([[1.0, 2.0], [2.0, 9.0]]), ridge=0.0) == pytest.approx(
        [1.0, 0.0]
    )
    assert least_variance(np.diag([1.0, 3.0]), ridge=0.0) == pytest.approx(
        [0.75, 0.25]
    )  # inverse variances
