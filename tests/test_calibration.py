"""Calibration: isotonic regression of labels on scores, cross-fitted over prompts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.oracle.calibration import Calibration, calibrate, fit_isotonic
from elo_exp.oracle.data import Rows
from elo_exp.records import UserError
from tests.oracle_simulation import draw

SEEDS = st.integers(0, 10_000)


def some(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x with ties, y, weights."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    return np.round(rng.random(n), 1), rng.random(n), rng.random(n) + 0.01


def test_a_worked_example_of_isotonic_regression():
    """
    x     1   2   3    4
    y     1   3   2    4     2 follows 3: both become 2.5
    fit   1  2.5 2.5   4     linear between knots, constant outside
    """
    x = np.array([1.0, 2.0, 3.0, 4.0])
    curve = fit_isotonic(x, np.array([1.0, 3.0, 2.0, 4.0]))
    assert curve(np.array([-5.0, 1.0, 1.5, 2.0, 3.0, 9.0])).tolist() == [
        1,
        1,
        1.75,
        2.5,
        2.5,
        4,
    ]
    assert curve.gradient(np.array([1.5]), np.array([4.0])).tolist() == [2, 1, 1, 0]


def test_observations_at_the_same_place_count_as_one():
    x, y, weight = (
        np.array([1.0, 1.0, 2.0]),
        np.array([0.0, 1.0, 3.0]),
        np.array([3.0, 1.0, 1.0]),
    )
    assert fit_isotonic(x, y, weight)(np.array([1.0, 2.0])).tolist() == [0.25, 3.0]


@given(SEEDS)
def test_no_monotone_function_is_closer(seed: int):
    """The fit is monotone and the best of a thousand mixtures of itself and other such functions."""
    x, y, weight = some(seed)
    fit = fit_isotonic(x, y, weight)(x)
    assert (np.diff(fit[np.argsort(x, kind="stable")]) >= 0).all()
    rng = np.random.default_rng(seed)
    slopes, share = rng.uniform(0, 2, (1000, 1)), rng.random((1000, 1))
    others = (1 - share) * fit + share * (rng.uniform(-1, 1, (1000, 1)) + slopes * x)
    loss = (weight * (others - y) ** 2).sum(axis=1)
    assert (loss >= (weight * (fit - y) ** 2).sum() - 1e-9).all()


@given(SEEDS)
def test_a_falling_fit_mirrors_the_rising_one(seed: int):
    x, y, weight = some(seed)
    falling = fit_isotonic(x, y, weight, increasing=False)
    assert falling(x) == pytest.approx(-fit_isotonic(x, -y, weight)(x))
    u = np.linspace(-1, 1, len(x))
    assert falling.gradient(x, u) @ y == pytest.approx(u @ falling(x))


@given(SEEDS)
def test_the_fit_is_linear_in_the_observations(seed: int):
    """u . f(x) = gradient . y, at, between and beyond the knots."""
    x, y, weight = some(seed)
    rng = np.random.default_rng(seed)
    places, u = rng.uniform(-0.2, 1.2, 15), rng.standard_normal(15)
    curve = fit_isotonic(x, y, weight)
    assert curve.gradient(places, u) @ y == pytest.approx(u @ curve(places))


def rows(
    score: np.ndarray, label: np.ndarray, chars: float | np.ndarray = 100.0
) -> Rows:
    n = len(score)
    return Rows(
        prompt=np.arange(n),
        fold=np.arange(n) % 5,
        score=score,
        variance=np.full(n, np.nan),
        label=label,
        chars=np.broadcast_to(chars, n),
    )


def fitted(
    logged: Rows, *, mode: str = "monotone", by_variance: bool = False
) -> Calibration:
    return calibrate(logged, n_folds=5, mode=mode, by_variance=by_variance)


def test_only_labelled_rows_are_fitted_to():
    logged = draw(labelled=0.2).logged
    other = dataclasses.replace(
        logged, score=np.where(logged.labelled, logged.score, 0.0)
    )
    assert (fitted(logged).full(logged) == fitted(other).full(logged)).all()


def test_a_prompt_is_calibrated_by_the_labels_of_other_folds():
    logged = draw(labelled=1.0).logged
    changed = dataclasses.replace(
        logged, label=np.where(logged.fold == 2, 0.0, logged.label)
    )
    fold = logged[logged.fold == 2]
    assert (fitted(changed)(fold) == fitted(logged)(fold)).all()
    assert (fitted(changed).full(fold) != fitted(logged).full(fold)).any()


def test_calibrated_scores_are_linear_in_the_labels():
    logged = draw(labelled=0.3).logged
    calibration = fitted(logged)
    u = np.random.default_rng(0).standard_normal(len(logged))
    by_label = calibration.gradient(logged, u) @ calibration.rows.label
    assert by_label == pytest.approx(u @ calibration(logged))


def test_by_variance_uncertain_scores_weigh_less():
    """Of two pooled labels, the one with a nearly certain score is closer to their level."""
    score = np.repeat([0.4, 0.5], 10)
    logged = rows(score, np.repeat([0.9, 0.1], 10))
    known = dataclasses.replace(logged, variance=np.repeat([0.0, 1.0], 10))
    assert fitted(logged).full(logged)[0] == pytest.approx(0.5)
    assert fitted(known, by_variance=True).full(known)[0] > 0.75
    with pytest.raises(
        UserError, match="oracle.by_variance: needs judge_score_variance in every"
    ):
        fitted(logged, by_variance=True)


def test_two_stages_correct_a_preference_for_length():
    rng = np.random.default_rng(4)
    chars = np.exp(rng.uniform(4.0, 8.0, 3000))
    quality = rng.uniform(0.2, 0.8, 3000)
    score = np.clip(quality + 0.1 * (np.log(chars) - 6.0), 0.0, 1.0)
    logged = rows(score, quality, chars)
    one, two = (
        np.std(fitted(logged, mode=m)(logged) - quality)
        for m in ("monotone", "two_stage")
    )
    assert two < 0.25 * one
    grid = rows(np.linspace(0, 1, 50), np.full(50, np.nan), 400.0)
    assert (np.diff(fitted(logged, mode="two_stage").full(grid)) >= 0).all()
    with pytest.raises(
        UserError, match="oracle.calibration: two_stage needs response_chars"
    ):
        fitted(rows(score, quality, np.nan), mode="two_stage")


def test_labels_that_are_all_in_one_fold_are_refused():
    logged = rows(np.linspace(0, 1, 20), np.linspace(0, 1, 20))
    with pytest.raises(UserError, match="nearly all labels are on prompts of one fold"):
        fitted(dataclasses.replace(logged, fold=np.zeros(20, dtype=np.intp)))
