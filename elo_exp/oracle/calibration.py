"""Calibration of judge scores to oracle labels: isotonic regression, cross-fitted over prompts.

Letters: m observations that curves are fitted to, at k distinct places; r rows that curves are
evaluated at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from elo_exp.arrays import Array, Index
from elo_exp.errors import EvidenceError, SettingError
from elo_exp.oracle.data import MIN_CALIBRATION_LABELS, N_PROMPT_FOLDS, Rows

_MAX_BACKFIT_STEPS = 100
_TOLERANCE = 1e-9
_RELATIVE_ROUNDING = 1e-15
_MAX_EPSILON = 250.0


def get_score(rows: Rows) -> Array:
    return rows.score


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A monotone fit: linear between its knots, constant outside them."""

    knots: Array  # (k,) distinct places, ascending
    levels: Array  # (k,) fitted values
    knot_block: Index  # (k,) pooled block of each knot
    block: Index  # (m,) pooled block of each observation
    share: Array  # (m,) weight of each observation in its block
    predictor: Callable[[Rows], Array] = get_score  # the place of a row

    def __call__(self, x: Array) -> Array:
        return np.interp(x, self.knots, self.levels)


def fit_isotonic(
    x: Array, y: Array, weight: Array | None = None, *, increasing: bool = True
) -> Curve:
    """Fit the monotone function of x that is closest to y in weighted least squares.

    Observations at the same x, up to rounding, count as one, their weighted mean.
    """
    from scipy.optimize import isotonic_regression

    weight = np.ones(len(x)) if weight is None else weight
    knots, knot = np.unique(x, return_inverse=True)
    # Calibrated scores of two folds' curves may be equal but for the last digit
    is_new = np.append(
        True, np.diff(knots) >= _RELATIVE_ROUNDING * np.abs(knots).max(initial=0)
    )
    knots, knot = knots[is_new], (np.cumsum(is_new) - 1)[knot]
    total = np.bincount(knot, weight)
    mean = np.bincount(knot, weight * y) / total
    pooled = isotonic_regression(mean, weights=total, increasing=increasing)
    knot_block = np.repeat(np.arange(len(pooled.weights)), np.diff(pooled.blocks))
    block = knot_block[knot]
    return Curve(
        knots=knots,
        levels=pooled.x,
        knot_block=knot_block,
        block=block,
        share=weight / pooled.weights[block],
    )


@dataclass(frozen=True, kw_only=True)
class CrossFit:
    """Curves with their folds: each curve is fitted to the observations outside its fold."""

    rows: Rows  # (m,) that the curves were fitted to
    curves: tuple[tuple[int, Curve], ...]

    def __call__(self, rows: Rows) -> CurveValues:
        """Evaluate each row by the curves that were fitted without its prompt."""
        start, parts = 0, []
        for fold, curve in self.curves:
            row_index, n_knots = np.flatnonzero(rows.fold == fold), len(curve.knots)
            x = curve.predictor(rows)[row_index]
            position = np.interp(x, curve.knots, np.arange(n_knots))
            left = position.astype(np.intp)
            parts.append((row_index, start + left, position - left))
            start += n_knots
        row_index, left, right = map(np.concatenate, zip(*parts, strict=True))
        levels = np.append(self.joined_curves[0], 0.0)
        # Where the curve is flat exactly its level: scores of one block stay ties in what is fitted to them
        value = levels[left] + right * (levels[left + 1] - levels[left])
        value = np.bincount(row_index, value, len(rows)).astype(float)
        value[rows.fold < 0] = np.nan
        return CurveValues(
            rows=rows,
            fit=self,
            value=value,
            row_index=row_index,
            left_knot=left,
            right_share=right,
        )

    @cached_property
    def label_reading(self) -> CurveValues:
        """Evaluate the rows that the curves were fitted to."""
        return self(self.rows)

    @cached_property
    def joined_curves(self) -> tuple[Array, Index, Index, Array, Index]:
        """Join all curves: level and block by knot; block, share and place in `rows` by observation."""
        start, parts = 0, []
        for fold, curve in self.curves:
            blocks = start + curve.knot_block, start + curve.block
            outside = np.flatnonzero(self.rows.fold != fold)
            parts.append((curve.levels, *blocks, curve.share, outside))
            start += len(curve.knots)
        levels, knot_block, block, share, outside = map(
            np.concatenate, zip(*parts, strict=True)
        )
        return levels, knot_block, block, share, outside


@dataclass(frozen=True, kw_only=True)
class CurveValues:
    """The values of cross-fitted curves at some rows, each between two knots of `fit.joined`."""

    rows: Rows
    fit: CrossFit
    value: Array  # (r,) NaN for rows of no fold
    row_index: Index  # in rows: once for each curve of the row's fold
    left_knot: Index  # knot
    right_share: Array  # share of the next knot in the value

    @cached_property
    def residual(self) -> Array:
        """(r,) label minus value, zero without a label."""
        return np.where(self.rows.is_labelled, self.rows.label - self.value, 0.0)

    def gradient(self, u: Array) -> Array:
        """(m,) gradient of u . values with respect to the observations y, for u (r,).

        It is what an error in each of them does to an estimate: values are linear in y while the
        pooled blocks stay as they are, and u . values = gradient . y.
        """
        _, knot_block, block, share, row_index = self.fit.joined_curves
        n, to_right = len(knot_block), u[self.row_index] * self.right_share
        knot_gradient = np.bincount(self.left_knot, u[self.row_index] - to_right, n + 1)
        knot_gradient += np.bincount(self.left_knot + 1, to_right, n + 1)
        block_gradient = np.bincount(knot_block, knot_gradient[:n], n)
        total = np.bincount(
            row_index, block_gradient[block] * share, len(self.fit.rows)
        )
        return total.astype(float)


@dataclass(frozen=True, kw_only=True)
class Calibration(CrossFit):
    """Calibrated scores: cross-fitted when called, `full` is fitted to all labels."""

    full_curve: Curve


def calibrate(logged: Rows, *, by_variance: bool = False) -> Calibration:
    """Fit AutoCal-R (arXiv:2512.11150): isotonic regression of the labels on the judge's score.

    Rows with covariates: on monotone(score) + slopes . covariates, which rises with the score among
    answers of equal covariates.

    by_variance  weight rows by 1 / (s^2 + v), v being the variance of the score and s^2 that of
                 the labels about the curve
    Raises SettingError if variances are missing, and EvidenceError if the labels are in one fold.
    """
    labelled = logged[logged.is_labelled]
    weight = labelled.label_weights
    if by_variance:
        if np.isnan(labelled.variance).any():
            raise SettingError(
                "oracle.by_variance=true needs judge_score_variance in each labelled row, and some rows have none."
            )
        curve = _fit_curve(labelled, weight)
        residual = labelled.label - curve(curve.predictor(labelled))
        weight = weight / (np.var(residual) + labelled.variance + _TOLERANCE)
    return fit_calibration(labelled, weight)


def fit_calibration(labelled: Rows, weight: Array) -> Calibration:
    """Fit to labelled rows of the given weights (m,), without each fold in turn."""
    outside = [labelled.fold != k for k in range(N_PROMPT_FOLDS)]
    if min(int(rows.sum()) for rows in outside) < MIN_CALIBRATION_LABELS // 2:
        raise EvidenceError(
            "Nearly all labelled answers are in one fold of the prompts. Label answers to more prompts."
        )
    curves = [_fit_curve(labelled[rows], weight[rows]) for rows in outside]
    return Calibration(
        rows=labelled,
        full_curve=_fit_curve(labelled, weight),
        curves=tuple(enumerate(curves)),
    )


def _fit_curve(rows: Rows, weight: Array) -> Curve:
    """Fit the labels by the score, or backfit label = monotone(score) + slopes . covariates."""
    if not rows.covariates.size:
        return fit_isotonic(rows.score, rows.label, weight)
    centre = np.average(rows.covariates, axis=0, weights=weight)
    centred, root = rows.covariates - centre, np.sqrt(weight)
    effect = np.zeros(len(rows))
    for _ in range(_MAX_BACKFIT_STEPS):
        monotone = fit_isotonic(rows.score, rows.label - effect, weight)
        residual = rows.label - monotone(rows.score)
        slopes = np.linalg.lstsq(centred * root[:, None], residual * root)[0]
        previous_effect, effect = effect, centred @ slopes
        if np.abs(effect - previous_effect).max() < _TOLERANCE:
            break

    def index(rows: Rows) -> Array:
        return monotone(rows.score) + (rows.covariates - centre) @ slopes

    return replace(fit_isotonic(index(rows), rows.label, weight), predictor=index)


def fit_epsilon(value: Array, label: Array, weight: Array, *, edge: float) -> float:
    """Solve sum weight (label - tmle_update(value, epsilon weight)) = 0 by Brent's method.

    Without a solution (labels that are all 0 or all 1) epsilon is at a limit, - or + 250.
    """
    from scipy.optimize import brentq

    def score(epsilon: float) -> float:
        return float(weight @ (label - tmle_update(value, epsilon * weight, edge=edge)))

    if score(-_MAX_EPSILON) <= 0:
        return -_MAX_EPSILON
    if score(_MAX_EPSILON) >= 0:
        return _MAX_EPSILON
    return float(brentq(score, -_MAX_EPSILON, _MAX_EPSILON))


def tmle_update(value: Array, shift: Array, *, edge: float) -> Array:
    """Shift the logits of probabilities, first clipped to [edge, 1 - edge].

    Targeted maximum likelihood: van der Laan and Rubin (2006).
    """
    from scipy.special import expit, logit

    return np.asarray(expit(logit(np.clip(value, edge, 1.0 - edge)) + shift))
