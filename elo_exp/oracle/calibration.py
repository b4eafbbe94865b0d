"""From a judge's score to what the oracle would say: a rising curve through the labels, fitted with each fold left out.

Letters: m labelled rows, which the curves are fitted to; r rows that they are read for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from elo_exp.oracle import isotonic
from elo_exp.oracle.dataset import MIN_LABELS, Rows
from elo_exp.oracle.isotonic import Isotonic
from elo_exp.records import UserError
from elo_exp.statistics.likelihood import Array

_MAX_STEPS = 100
_CONVERGED = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What the oracle says at a place of the index, which is the judge's score, or one made of score and length."""

    index: Callable[[Rows], Array]
    levels: Isotonic

    def __call__(self, rows: Rows) -> Array:
        return self.levels(self.index(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """`without[k]` has seen no label of fold k, `full` all of them."""

    mode: str
    labelled: Rows
    full: Curve
    without: tuple[Curve, ...]

    def cross_fitted(self, rows: Rows) -> Array:
        """(r,) calibrated scores, each by the curve that has not seen the row's prompt."""
        values = np.empty(len(rows))
        for k, curve in enumerate(self.without):
            values[rows.fold == k] = curve(rows[rows.fold == k])
        return values

    def pull(self, rows: Rows, u: Array) -> Array:
        """(m,) by how much sum_r u_r times the calibrated score of row r moves with each label."""
        total = np.zeros(len(self.labelled))
        for k, curve in enumerate(self.without):
            there = rows.fold == k
            total[self.labelled.fold != k] += curve.levels.pull(curve.index(rows[there]), u[there])
        return total


def calibrate(logged: Rows, *, n_folds: int, mode: str, by_variance: bool = False) -> Calibration:
    """AutoCal-R: isotonic regression of the labels on the judge's score, with each fold left out in turn.

    mode         monotone: on the score. two_stage: on an index of score and length, a rising function of the score plus
                 a slope times log(1 + characters), so that it rises with the score among answers of one length
    by_variance  a row counts 1 / (s^2 + v), v the variance of its score and s^2 that of the labels about the curve
    Raises UserError where lengths or variances are needed and not known, and where nearly all labels are in one fold.
    """
    labelled = logged[logged.labelled]
    if mode == "two_stage" and np.isnan(logged.chars).any():
        raise UserError(
            "oracle.calibration: two_stage needs response_chars, or response, in every row."
        )
    if by_variance and np.isnan(labelled.variance).any():
        raise UserError("oracle.by_variance: needs judge_score_variance in every labelled row.")
    weight = np.ones(len(labelled))
    if by_variance:
        about_the_curve = np.var(labelled.label - _curve(labelled, weight, mode=mode)(labelled))
        weight = 1.0 / (about_the_curve + labelled.variance + _CONVERGED)
    return curves(labelled, weight, n_folds=n_folds, mode=mode)


def curves(labelled: Rows, weight: Array, *, n_folds: int, mode: str) -> Calibration:
    """The same from labelled rows that count `weight` (m,) each."""
    kept = [labelled.fold != k for k in range(n_folds)]
    if min(int(some.sum()) for some in kept) < MIN_LABELS // 2:
        raise UserError(
            "oracle.logged: nearly all labels are on prompts of one fold. Label more prompts."
        )
    return Calibration(
        mode=mode,
        labelled=labelled,
        full=_curve(labelled, weight, mode=mode),
        without=tuple(_curve(labelled[some], weight[some], mode=mode) for some in kept),
    )


def _curve(rows: Rows, weight: Array, *, mode: str) -> Curve:
    index = _score if mode == "monotone" else _length_index(rows, weight)
    return Curve(index=index, levels=isotonic.fit(index(rows), rows.label, weight))


def _score(rows: Rows) -> Array:
    return rows.score


def _length_index(rows: Rows, weight: Array) -> Callable[[Rows], Array]:
    """The best fit of the labels by a rising function of the score plus a slope times log length, by backfitting."""
    length = np.log1p(rows.chars)
    centre = np.average(length, weights=weight)
    spread = np.average((length - centre) ** 2, weights=weight)
    slope = 0.0
    for _ in range(_MAX_STEPS):
        rising = isotonic.fit(rows.score, rows.label - slope * (length - centre), weight)
        rest = rows.label - rising(rows.score)
        step = (
            np.average((length - centre) * rest, weights=weight) / spread - slope
            if spread > 0
            else 0.0
        )
        slope += step
        if abs(step) < _CONVERGED:
            break
    return lambda of: rising(of.score) + slope * (np.log1p(of.chars) - centre)
