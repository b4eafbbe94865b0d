"""Calibration of judge scores to oracle labels: isotonic regression, cross-fitted over prompts.

Letters: m observations that a curve is fitted to, at k distinct places; r rows that it is evaluated
at; g folds; c fits of a mixture. The *gradient* of u . f(x) with respect to the fitted observations y is what an error
in each of them does to an estimate: f is linear in y while the pooled blocks stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from elo_exp.arrays import Array, Index
from elo_exp.oracle.data import MIN_LABELS, N_FOLDS, Rows
from elo_exp.records import UserError

_MAX_STEPS = 100
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class IsotonicFit:
    """A monotone fit: linear between its knots, constant outside them."""

    knots: Array  # (k,) distinct x, ascending
    levels: Array  # (k,) fitted values
    knot_block: Index  # (k,) pooled block of each knot
    block: Index  # (m,) pooled block of each observation
    share: Array  # (m,) weight of each observation in its block

    def __call__(self, x: Array) -> Array:
        return np.interp(x, self.knots, self.levels)

    def gradient(self, x: Array, u: Array) -> Array:
        """(m,) gradient of u . f(x) with respect to y, for x and u (r,): u . f(x) = gradient . y"""
        k = len(self.knots)
        position = np.interp(x, self.knots, np.arange(k))
        left = position.astype(np.intp)
        weight_right = u * (position - left)
        by_knot = np.bincount(left, u - weight_right, k)
        by_knot += np.bincount(np.minimum(left + 1, k - 1), weight_right, k)
        return np.bincount(self.knot_block, by_knot)[self.block] * self.share


def fit_isotonic(
    x: Array, y: Array, weight: Array | None = None, *, increasing: bool = True
) -> IsotonicFit:
    """Fit the monotone function of x that is closest to y in weighted least squares.

    Observations at the same x count as one, their weighted mean.
    """
    from scipy.optimize import isotonic_regression

    weight = np.ones(len(x)) if weight is None else weight
    knots, knot = np.unique(x, return_inverse=True)
    total = np.bincount(knot, weight)
    mean = np.bincount(knot, weight * y) / total
    pooled = isotonic_regression(mean, weights=total, increasing=increasing)
    knot_block = np.repeat(np.arange(len(pooled.weights)), np.diff(pooled.blocks))
    block = knot_block[knot]
    return IsotonicFit(
        knots=knots,
        levels=pooled.x,
        knot_block=knot_block,
        block=block,
        share=weight / pooled.weights[block],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A mixture of isotonic fits to an index: the judge's score, or score and covariates."""

    fits: tuple[IsotonicFit, ...]
    mixture: Array  # (c,) sums to one
    index: Callable[[Rows], Array]

    def __call__(self, rows: Rows) -> Array:
        """(r,) its values."""
        x = self.index(rows)
        return np.asarray(self.mixture @ [fit(x) for fit in self.fits])

    def gradient(self, rows: Rows, u: Array) -> Array:
        """(m,) gradient of u . f(rows) with respect to the observations."""
        x = self.index(rows)
        return np.asarray(self.mixture @ [fit.gradient(x, u) for fit in self.fits])


def by_score(rows: Rows) -> Array:
    return rows.score


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossFit:
    """A curve per fold, fitted to the observations outside that fold."""

    rows: Rows  # (m,) that the curves were fitted to
    curves: tuple[Curve, ...]

    def __call__(self, rows: Rows) -> Array:
        """(r,) values, each by the curve fitted without the row's prompt; NaN for no fold."""
        values = np.full(len(rows), np.nan)
        for (place, some), curve in zip(rows.by_fold, self.curves, strict=False):
            values[place] = curve(some)
        return values

    def gradient(self, rows: Rows, u: Array) -> Array:
        """(m,) gradient of sum_r u_r f(row r) with respect to the observations."""
        total = np.zeros(len(self.rows))
        folds = zip(rows.by_fold, self.curves, strict=False)
        for k, ((place, some), curve) in enumerate(folds):
            total[self.rows.fold != k] += curve.gradient(some, u[place])
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(CrossFit):
    """Calibrated scores: cross-fitted when called, `full` is fitted to all labels."""

    full: Curve


def calibrate(logged: Rows, *, by_variance: bool = False) -> Calibration:
    """Fit AutoCal-R (arXiv:2512.11150): isotonic regression of the labels on the judge's score.

    Rows with covariates: on monotone(score) + slopes . covariates, which rises with the score among
    answers of equal covariates.

    by_variance  weight rows by 1 / (s^2 + v), v being the variance of the score and s^2 that of
                 the labels about the curve
    Raises UserError where variances are missing, and where the labels are in one fold.
    """
    labelled = logged[logged.labelled]
    weight = np.ones(len(labelled))
    if by_variance:
        if np.isnan(labelled.variance).any():
            raise UserError(
                "oracle.by_variance: needs judge_score_variance in every labelled row."
            )
        residual = labelled.label - _fit_curve(labelled, weight)(labelled)
        weight = 1.0 / (np.var(residual) + labelled.variance + _TOLERANCE)
    return fit_calibration(labelled, weight)


def fit_calibration(labelled: Rows, weight: Array) -> Calibration:
    """Fit to labelled rows of the given weights (m,), without each fold in turn."""
    outside = [labelled.fold != k for k in range(N_FOLDS)]
    if min(int(rows.sum()) for rows in outside) < MIN_LABELS // 2:
        raise UserError(
            "oracle.logged: nearly all labels are on prompts of one fold. Label more prompts."
        )
    return Calibration(
        rows=labelled,
        full=_fit_curve(labelled, weight),
        curves=tuple(_fit_curve(labelled[rows], weight[rows]) for rows in outside),
    )


def _fit_curve(rows: Rows, weight: Array) -> Curve:
    index = _fit_index(rows, weight) if rows.covariates.size else by_score
    fit = fit_isotonic(index(rows), rows.label, weight)
    return Curve(fits=(fit,), mixture=np.ones(1), index=index)


def _fit_index(rows: Rows, weight: Array) -> Callable[[Rows], Array]:
    """Fit label = monotone(score) + slopes . covariates by backfitting."""
    centre = np.average(rows.covariates, axis=0, weights=weight)
    centred, root = rows.covariates - centre, np.sqrt(weight)
    effect = np.zeros(len(rows))
    for _ in range(_MAX_STEPS):
        monotone = fit_isotonic(rows.score, rows.label - effect, weight)
        residual = rows.label - monotone(rows.score)
        slopes = np.linalg.lstsq(centred * root[:, None], residual * root)[0]
        before, effect = effect, centred @ slopes
        if np.abs(effect - before).max() < _TOLERANCE:
            break
    return lambda rows: monotone(rows.score) + (rows.covariates - centre) @ slopes
