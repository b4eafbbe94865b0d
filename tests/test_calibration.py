"""Calibration: a rising curve through the labels, which no prompt sees of itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elo_exp.oracle.calibration import Calibration, calibrate
from elo_exp.oracle.dataset import Rows
from elo_exp.records import UserError
from tests.oracle_simulation import World


def rows(score: np.ndarray, label: np.ndarray, *, chars: np.ndarray | None = None) -> Rows:
    n = len(score)
    return Rows(
        prompt=np.arange(n),
        fold=np.arange(n) % 5,
        score=score,
        variance=np.full(n, np.nan),
        label=label,
        chars=np.full(n, 100.0) if chars is None else chars,
    )


def drawn(**world: float) -> Rows:
    return World(**world).draw(np.random.default_rng(3)).logged


def fitted(logged: Rows, **settings: bool) -> Calibration:
    return calibrate(logged, n_folds=5, **{"mode": "monotone", **settings})  # type: ignore[arg-type]


def test_the_curve_is_the_mean_label_where_labels_rise_with_the_score():
    score = np.repeat([0.2, 0.6, 0.9], 10)
    label = np.repeat([0.1, 0.5, 0.8], 10) + np.tile([-0.1, 0.1], 15)
    assert fitted(rows(score, label)).full(
        rows(np.array([0.2, 0.4, 0.9]), np.full(3, np.nan))
    ) == pytest.approx([0.1, 0.3, 0.8])


def test_only_labelled_rows_are_fitted_to():
    logged = drawn(labelled=0.2)
    other = dataclasses.replace(logged, score=np.where(logged.labelled, logged.score, 0.0))
    assert fitted(logged).full.levels.levels.tolist() == fitted(other).full.levels.levels.tolist()


def test_a_prompt_is_calibrated_by_the_labels_of_other_folds():
    logged = drawn(labelled=1.0)
    changed = dataclasses.replace(logged, label=np.where(logged.fold == 2, 0.0, logged.label))
    of_fold = logged[logged.fold == 2]
    assert (
        fitted(changed).cross_fitted(of_fold).tolist()
        == fitted(logged).cross_fitted(of_fold).tolist()
    )
    assert fitted(changed).full(of_fold).tolist() != fitted(logged).full(of_fold).tolist()


def test_what_the_curves_give_is_a_sum_over_the_labels():
    logged = drawn(labelled=0.3)
    calibration = fitted(logged)
    u = np.random.default_rng(0).standard_normal(len(logged))
    expected = u @ calibration.cross_fitted(logged)
    assert calibration.pull(logged, u) @ calibration.labelled.label == pytest.approx(expected)


def test_by_variance_uncertain_scores_count_less():
    """Of two labels that fall, the one whose score is nearly certain draws the common level to itself."""
    score = np.repeat([0.4, 0.5], 10)
    logged = rows(score, np.repeat([0.9, 0.1], 10))
    known = dataclasses.replace(logged, variance=np.repeat([0.0, 1.0], 10))
    level = fitted(known, by_variance=True).full(known)[0]
    assert fitted(logged).full(logged)[0] == pytest.approx(0.5)
    assert level > 0.75
    with pytest.raises(
        UserError, match="oracle.by_variance: needs judge_score_variance in every labelled row"
    ):
        fitted(logged, by_variance=True)


def test_two_stages_see_that_the_judge_likes_length_and_still_rise_with_the_score():
    rng = np.random.default_rng(4)
    chars = np.exp(rng.uniform(4.0, 8.0, 3000))
    quality = rng.uniform(0.2, 0.8, 3000)
    score = np.clip(quality + 0.1 * (np.log(chars) - 6.0), 0.0, 1.0)
    logged = rows(score, quality, chars=chars)
    one, two = (calibrate(logged, n_folds=5, mode=mode) for mode in ("monotone", "two_stage"))
    assert np.std(two.cross_fitted(logged) - quality) < 0.25 * np.std(
        one.cross_fitted(logged) - quality
    )
    for length in (60.0, 400.0, 2900.0):
        grid = rows(np.linspace(0, 1, 50), np.full(50, np.nan), chars=np.full(50, length))
        assert (np.diff(two.full(grid)) >= 0).all()
    with pytest.raises(UserError, match="oracle.calibration: two_stage needs response_chars"):
        calibrate(
            dataclasses.replace(logged, chars=np.full(3000, np.nan)), n_folds=5, mode="two_stage"
        )


def test_labels_that_are_all_in_one_fold_are_refused():
    logged = rows(np.linspace(0, 1, 20), np.linspace(0, 1, 20))
    with pytest.raises(UserError, match="nearly all labels are on prompts of one fold"):
        fitted(dataclasses.replace(logged, fold=np.zeros(20, dtype=np.intp)))
