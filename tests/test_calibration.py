"""Calibration: isotonic regression of labels on scores, cross-fitted over prompts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.errors import UserError
from elo_exp.oracle.calibration import CrossFit, calibrate, fit_isotonic
from elo_exp.oracle.data import Rows
from tests.oracle_simulation import answers, draw


def test_a_worked_example_of_isotonic_regression():
    """
    x     1   2   3    4
    y     1   3   2    4     2 follows 3: both become 2.5
    fit   1  2.5 2.5   4     linear between knots, constant outside
    """
    x = np.array([1.0, 2.0, 3.0, 4.0])
    curve = fit_isotonic(x, np.array([1.0, 3.0, 2.0, 4.0]))
    places = np.array([-5.0, 1.0, 1.5, 2.0, 3.0, 9.0])
    assert curve(places).tolist() == [1, 1, 1.75, 2.5, 2.5, 4]


def test_places_that_are_equal_but_for_the_last_digit_are_ties():
    """As calibrated scores of two folds are: 1/3 summed in two orders. Curves fitted to them would differ."""
    third = 1 / 3
    x = np.array([third, np.nextafter(third, 1), 1.0])
    curve = fit_isotonic(x, np.array([1.0, 3.0, 5.0]))
    assert (curve.knots.tolist(), curve.levels.tolist()) == ([third, 1.0], [2.0, 5.0])


def test_scores_of_one_block_are_calibrated_to_exactly_one_value():
    """Between knots of one level, whatever the place: no digit tells them apart."""
    curve = fit_isotonic(np.array([0.0, 0.3, 1.0]), np.array([0.7, 0.1, 0.1]))
    assert set(curve.levels) == {0.9 / 3}
    places = rows(np.arange(101) / 100, np.zeros(101))
    observed = dataclasses.replace(
        rows(np.array([0.0, 0.3, 1.0]), np.zeros(3)), fold=np.full(3, -1)
    )
    at = CrossFit(rows=observed, curves=tuple((k, curve) for k in range(5)))(places)
    assert set(at.value) == set(curve.levels)


@given(st.integers(0, 10_000))
def test_the_fit_is_monotone_closest_and_linear_in_the_observations(seed: int):
    """No mixture of it with another monotone function is closer; u . f(x) = gradient . y."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    x, y, weight = np.round(rng.random(n), 1), rng.random(n), rng.random(n) + 0.01
    curve, falling = (
        fit_isotonic(x, y, weight, increasing=rising) for rising in (True, False)
    )
    fit = curve(x)
    assert (np.diff(fit[np.argsort(x, kind="stable")]) >= 0).all()
    assert falling(x) == pytest.approx(-fit_isotonic(x, -y, weight)(x))
    slopes, share = rng.uniform(0, 2, (1000, 1)), rng.random((1000, 1))
    others = (1 - share) * fit + share * (rng.uniform(-1, 1, (1000, 1)) + slopes * x)
    loss = (weight * (others - y) ** 2).sum(axis=1)
    assert (loss >= (weight * (fit - y) ** 2).sum() - 1e-9).all()
    places, u = rows(rng.uniform(-0.2, 1.2, 15), np.zeros(15)), rng.standard_normal(15)
    observed = dataclasses.replace(rows(x, y), fold=np.full(n, -1))
    at = CrossFit(rows=observed, curves=tuple((k, curve) for k in range(5)))(places)
    assert at.value == pytest.approx(curve(places.score))
    assert at.gradient(u) @ y == pytest.approx(u @ at.value)


def rows(score: np.ndarray, label: np.ndarray, *covariates: np.ndarray) -> Rows:
    return answers(score, label, np.arange(len(score)) % 5, *covariates)


def test_a_prompt_is_calibrated_by_the_labels_of_other_folds_alone():
    logged = draw(labelled=0.3).logged_rows
    calibration, in_fold = calibrate(logged), logged.fold == 2
    fold = logged[in_fold]
    score = np.where(logged.is_labelled, logged.score, 0.0)
    unread = calibrate(dataclasses.replace(logged, score=score))
    assert (unread(logged).value == calibration(logged).value).all()
    label = np.where(in_fold & logged.is_labelled, 0.0, logged.label)
    changed = calibrate(dataclasses.replace(logged, label=label))
    assert (changed(fold).value == calibration(fold).value).all()
    assert (changed.full_curve(fold.score) != calibration.full_curve(fold.score)).any()


def test_calibrated_scores_are_linear_in_the_labels():
    logged = draw(labelled=0.3).logged_rows
    calibration = calibrate(logged)
    u = np.random.default_rng(0).standard_normal(len(logged))
    at = calibration(logged)
    assert at.gradient(u) @ calibration.rows.label == pytest.approx(u @ at.value)


def test_by_variance_uncertain_scores_weigh_less():
    """Of two pooled labels, the one with a nearly certain score is closer to their level."""
    logged = rows(np.repeat([0.4, 0.5], 10), np.repeat([0.9, 0.1], 10))
    known = dataclasses.replace(logged, variance=np.repeat([0.0, 1.0], 10))
    assert calibrate(logged).full_curve(logged.score)[0] == pytest.approx(0.5)
    assert calibrate(known, by_variance=True).full_curve(known.score)[0] > 0.75
    with pytest.raises(
        UserError, match="oracle.by_variance=true needs judge_score_variance"
    ):
        calibrate(logged, by_variance=True)


def test_covariates_correct_what_the_judge_prefers_and_what_it_overlooks():
    """Long answers score too high, and hard prompts are labelled lower; difficulty has any unit."""
    rng = np.random.default_rng(4)
    length, hard = rng.uniform(4.0, 8.0, 3000), rng.uniform(0.0, 1e6, 3000)
    quality = rng.uniform(0.2, 0.8, 3000)
    score = np.clip(quality + 0.1 * (length - 6.0), 0.0, 1.0)
    label = quality - 2e-7 * hard
    errors = [
        np.std(calibrate(known)(known).value - label)
        for known in (
            rows(score, label),
            rows(score, label, length, np.ones(3000)),
            rows(score, label, length, hard),
        )
    ]
    assert errors[2] < 0.5 * errors[1] < 0.4 * errors[0]
    one = calibrate(rows(score, label, length, hard))
    grid = rows(np.linspace(0, 1, 50), np.full(50, np.nan), np.full(50, 6.0), hard[:50])
    same = dataclasses.replace(grid, covariates=np.tile([6.0, 5e5], (50, 1)))
    assert (np.diff(one.full_curve(one.full_curve.predictor(same))) >= 0).all()


def test_labels_that_are_all_in_one_fold_are_refused():
    logged = rows(np.linspace(0, 1, 20), np.linspace(0, 1, 20))
    with pytest.raises(UserError, match="Nearly all labelled answers are in one fold"):
        calibrate(dataclasses.replace(logged, fold=np.zeros(20, dtype=np.intp)))
