"""Standard errors from influence functions, clustered by prompt, with the error of the labels.

An estimate is a sum of calibrated scores f(s) and of residuals y - f(s),

    v = sum_r u_r f(s_r) + sum_r w_r (y_r - f(s_r)),

where f itself is an average of labels: v moves with label j by l_j = w_j + gradient_j. To first
order, with the pooled blocks of the isotonic fit kept, its error is

    sum_r u_r (f(s_r) - v) + sum_j l_j (y_j - f(s_j)).

The second sum is the error from a finite number of labels. Summed by prompt, the terms give the
clustered standard error (Liang and Zeger 1986). Residuals are of curves that were fitted without
the prompt, which is conservative.

Letters: r rows, m labelled rows that the calibration is fitted to, g prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elo_exp.arrays import Array, Mask
from elo_exp.oracle.calibration import Calibration
from elo_exp.oracle.data import Rows
from elo_exp.oracle.weights import effective_sample_size
from elo_exp.ratings.leaderboard import t_quantile

_MAX_EPSILON = 250.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its standard error over prompts and the influence (g,) of each prompt."""

    value: float
    std_error: float
    degrees_of_freedom: float
    n: int
    influence: Array
    influence_labels: Array  # (g,) the part of it that more labels shrink
    std_error_labels: float = 0.0
    n_labels: int = 0
    n_own: int = 0  # of them, labels of the policy's own draws
    # Of the labels whose residuals correct it, (sum w)^2 / sum w^2; None where none do.
    effective_labels: float | None = None
    ess: float | None = None

    @property
    def half_width(self) -> float:
        """Of the 95 % interval."""
        return self.half_width_at(0.95)

    def half_width_at(self, level: float) -> float:
        return float(t_quantile(self.degrees_of_freedom, level=level) * self.std_error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """sum_r on_score_r f(s_r) + on_residual_r (y_r - f(s_r)); no weight on a missing residual."""

    rows: Rows
    value: Array  # (r,) calibrated scores f(s)
    on_score: Array | float = 0.0  # (r,)
    on_residual: Array | float = 0.0  # (r,)

    @property
    def residual(self) -> Array:
        """(r,) label minus calibrated score, zero without a label."""
        return np.where(self.rows.labelled, self.rows.label - self.value, 0.0)

    @property
    def centred_residual(self) -> Array:
        """(r,) residuals minus their weighted mean, as for label weights that sum to a constant."""
        total = np.sum(self.on_residual)
        return self.residual - (
            np.sum(self.on_residual * self.residual) / total if total else 0.0
        )

    @property
    def total(self) -> float:
        return float(
            np.sum(self.on_score * self.value + self.on_residual * self.residual)
        )


def linear_estimate(
    terms: Sequence[Term],
    calibration: Calibration,
    *,
    n_prompts: int,
    extra_influence: Array | float = 0.0,
    centre: float | None = None,
    n_own: int = 0,
    n_probe: int = 0,
    ess: float | None = None,
) -> Estimate:
    """Return the sum of the terms with its standard error over prompts.

    calibration      that the values of the terms are read from
    extra_influence  (g,) of the prompts by other ways, such as estimated weights
    centre           subtracted from calibrated scores, by default the value: for weights scaled to
                     sum to one. Zero for weights that are not scaled
    n_own            labels of the policy's own draws that take part
    n_probe          of them, those that the calibration was not fitted to
    """
    value = sum(term.total for term in terms)
    labelled = calibration.rows
    by_score, by_label = np.zeros(n_prompts) + extra_influence, np.zeros(n_prompts)
    gradient = np.zeros(len(labelled))
    present = np.zeros(n_prompts, dtype=bool)
    present[labelled.prompt] = True
    for term in terms:
        deviation = term.on_score * (term.value - (value if centre is None else centre))
        by_score += np.bincount(term.rows.prompt, deviation, n_prompts)
        by_label += np.bincount(
            term.rows.prompt, term.on_residual * term.centred_residual, n_prompts
        )
        on_curve = term.on_score - term.on_residual + np.zeros(len(term.rows))
        gradient += calibration.gradient(term.rows, on_curve)
        present[term.rows.prompt] = True
    weights = np.concatenate(
        [np.broadcast_to(term.on_residual, len(term.rows)) for term in terms]
    )
    residual = labelled.label - calibration(labelled)
    by_label += np.bincount(labelled.prompt, gradient * residual, n_prompts)
    std_error, degrees_of_freedom = clustered_error(by_score + by_label, present)
    return Estimate(
        value=float(value),
        std_error=std_error,
        degrees_of_freedom=degrees_of_freedom,
        n=len(terms[0].rows),
        influence=by_score + by_label,
        influence_labels=by_label,
        std_error_labels=clustered_error(by_label, present)[0],
        n_labels=len(labelled) + n_probe,
        n_own=n_own,
        effective_labels=effective_sample_size(weights) if weights.any() else None,
        ess=ess,
    )


def clustered_error(influence: Array, present: Mask) -> tuple[float, float]:
    """Return the standard error of a sum over independent prompts and its degrees of freedom.

    influence  (g,) of each prompt
    present    (g,) which prompts take part
    Degrees of freedom are those of the variance estimate itself, 2 g / (kurtosis - 1): nearly g for
    normal influences, few where few prompts dominate. NaN for fewer than two prompts.
    """
    g = int(present.sum())
    if g < 2:
        return math.nan, 1.0
    deviation = influence[present] - influence[present].mean()
    largest = float(np.abs(deviation).max())
    if largest <= 0.0:
        return 0.0, g - 1.0
    squares = (deviation / largest) ** 2
    std_error = largest * math.sqrt(g / (g - 1) * float(squares.sum()))
    kurtosis = g * float((squares**2).sum() / squares.sum() ** 2)
    if kurtosis <= 1:
        return std_error, g - 1.0
    return std_error, float(np.clip(2 * g / (kurtosis - 1), 1.0, g - 1.0))


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
