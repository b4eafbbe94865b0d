"""Importance weights calibrated on the judge's score (SIMCal): monotone curves of the weights over the score, mixed.

The two curves, one rising with the score and one falling, are mixed so that they come closest to the raw weights.
Choosing the mixture that varies least instead, as the published SIMCal does, takes the flatter curve whatever the
truth, and with it the value of the logging policy: docs/oracle.md has the numbers.

Letters: n logged rows of one policy; c candidate curves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elo_exp.oracle import isotonic
from elo_exp.oracle.dataset import Rows
from elo_exp.oracle.isotonic import Isotonic
from elo_exp.statistics.likelihood import Array

DIRECTIONS = (True, False)  # curves that rise with the score, and that fall
RIDGE = 1e-8  # of the diagonal of a matrix whose candidates may be equal


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightCurve:
    """Weights as a function of the score."""

    curves: tuple[Isotonic, ...]
    mixture: Array  # (c,) adds up to 1

    def __call__(self, score: Array) -> Array:
        return sum_of([curve(score) for curve in self.curves], self.mixture)

    def pull(self, score: Array, u: Array) -> Array:
        """By how much sum_r u_r w(score_r) moves with each of the weights that the curves were fitted to."""
        return sum_of([curve.pull(score, u) for curve in self.curves], self.mixture)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedWeights:
    """`without[k]` has seen no row of fold k."""

    rows: Rows
    without: tuple[WeightCurve, ...]

    def __call__(self, rows: Rows) -> Array:
        """The weight of each row's score, by the curve that has not seen its prompt; about one on average."""
        weights = np.empty(len(rows))
        for k, curve in enumerate(self.without):
            weights[rows.fold == k] = curve(rows.score[rows.fold == k])
        return weights

    def pull(self, u: Array) -> Array:
        """(n,) by how much sum_i u_i w_i moves with each raw weight."""
        total = np.zeros(len(self.rows))
        for k, curve in enumerate(self.without):
            there = self.rows.fold == k
            total[~there] += curve.pull(self.rows.score[there], u[there])
        return total


def calibrated_weights(hajek: Array, rows: Rows, *, n_folds: int) -> CalibratedWeights:
    """Curves through raw weights (n,) of mean one, with each fold left out in turn."""
    return CalibratedWeights(
        rows=rows,
        without=tuple(
            _curve(rows.score[rows.fold != k], hajek[rows.fold != k]) for k in range(n_folds)
        ),
    )


def _curve(score: Array, hajek: Array) -> WeightCurve:
    curves = tuple(isotonic.fit(score, hajek, increasing=up) for up in DIRECTIONS)
    off = np.stack([curve(score) - hajek for curve in curves], axis=1)
    squares = off.T @ off / len(score)
    return WeightCurve(
        curves=curves,
        mixture=least_variance(squares, ridge=RIDGE * float(np.trace(squares)) + RIDGE),
    )


def least_variance(covariance: npt.NDArray[np.floating[Any]], *, ridge: float) -> Array:
    """The mixture p (c,) without negative parts for which p' covariance p is least; by active sets.

    ridge  is added to the diagonal, so that nearly equal candidates share
    """
    matrix = covariance + ridge * np.eye(len(covariance))
    kept = list(range(len(matrix)))
    while True:
        part = np.linalg.solve(matrix[np.ix_(kept, kept)], np.ones(len(kept)))
        part /= part.sum()
        if (part >= -1e-12).all():
            break
        kept.pop(int(np.argmin(part)))
    mixture = np.zeros(len(matrix))
    mixture[kept] = np.maximum(part, 0.0)
    return np.asarray(mixture / mixture.sum())


def sum_of(parts: list[Array], mixture: Array) -> Array:
    return np.asarray(np.stack(parts, axis=1) @ mixture)
