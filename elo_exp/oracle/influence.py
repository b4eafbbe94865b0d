"""How sure one may be of an estimate: the part of every prompt in it, and what the finite number of labels adds.

An estimate is a sum over rows and labels, v = sum_r u_r f(s_r) + sum_j v_j y_j, where the calibrated scores f(s) are
themselves averages of labels: v moves with label j by l_j = v_j + pull_j. Its deviation from the truth is, to first
order and with the blocks of the isotonic fit where they are,

    sum_r (u_r + v_r) (f(s_r) - v) + sum_j l_j (y_j - f(s_j)),

the second sum being what a finite number of labels adds. Summed by prompt, both give the clustered standard error. The
residuals are those of curves that have not seen the prompt, which errs on the safe side.

Letters: r rows, m labelled logged rows, g prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elo_exp.oracle.calibration import Calibration
from elo_exp.oracle.dataset import Rows
from elo_exp.statistics.likelihood import Array, Mask
from elo_exp.statistics.student import t_quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value, its error over prompts, and the parts (g,) of the prompts in its deviation from the truth."""

    value: float
    std_error: float
    degrees_of_freedom: float
    n: int
    influence: Array
    std_error_labels: float = 0.0
    n_labels: int = 0
    n_own: int = 0  # of them, those of the policy's own draws
    ess: float | None = None

    @property
    def half_width(self) -> float:
        """Of the 95 % interval."""
        return t_quantile(self.degrees_of_freedom) * self.std_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """sum_r on_value_r value_r + on_label_r label_r, over some rows; rows without a label have none on it."""

    rows: Rows
    value: Array  # (r,) calibrated scores
    on_value: Array  # (r,)
    on_label: Array  # (r,)

    @property
    def residual(self) -> Array:
        """(r,) label minus calibrated score, zero without a label."""
        return np.where(self.rows.labelled, self.rows.label - self.value, 0.0)

    @property
    def spread(self) -> Array:
        """(r,) residuals about their weighted mean: what errs where the weights of the labels add up to one."""
        total = self.on_label.sum()
        return self.residual - (self.on_label @ self.residual / total if total else 0.0)

    @property
    def weight(self) -> Array:
        return self.on_value + self.on_label

    @property
    def total(self) -> float:
        return float(self.weight @ self.value + self.on_label @ self.residual)


def linear_estimate(
    terms: Sequence[Term],
    curves: Calibration,
    *,
    n_prompts: int,
    more: Array | float = 0.0,
    centre: float | None = None,
    n_own: int = 0,
    ess: float | None = None,
) -> Estimate:
    """The sum of the terms, with its standard error over prompts.

    curves    which the calibrated scores are read from
    more      (g,) parts of the prompts by other ways, such as estimated weights
    centre    what calibrated scores are taken from, by default the value: right for weights that were made to add up
              to one. Zero for weights that add up to what they do
    n_own     labels of the policy's own draws that take part
    """
    value = sum(term.total for term in terms)
    by_score, by_label = np.zeros(n_prompts) + more, np.zeros(n_prompts)
    pull = np.zeros(len(curves.labelled))
    present = np.zeros(n_prompts, dtype=bool)
    for term in terms:
        off = term.value - (value if centre is None else centre)
        by_score += np.bincount(term.rows.prompt, term.weight * off, n_prompts)
        by_label += np.bincount(term.rows.prompt, term.on_label * term.spread, n_prompts)
        pull += curves.pull(term.rows, term.on_value)
        present[term.rows.prompt] = True
    residual = curves.labelled.label - curves.cross_fitted(curves.labelled)
    by_label += np.bincount(curves.labelled.prompt, pull * residual, n_prompts)
    present[curves.labelled.prompt] = True
    std_error, df = clustered(by_score + by_label, present)
    return Estimate(
        value=float(value),
        std_error=std_error,
        degrees_of_freedom=df,
        n=len(terms[0].rows),
        influence=by_score + by_label,
        std_error_labels=clustered(by_label, present)[0],
        n_labels=len(curves.labelled) + n_own,
        n_own=n_own,
        ess=ess,
    )


def clustered(parts: Array, present: Mask) -> tuple[float, float]:
    """Standard error of a sum over independent prompts, and the degrees of freedom of that error.

    parts    (g,) of each prompt
    present  (g,) which prompts take part
    The variance of a variance tells its degrees of freedom, 2 g / (kurtosis - 1): nearly all prompts where their parts
    are normal, few where few prompts make most of the error. NaN for fewer than two prompts.
    """
    g = int(present.sum())
    if g < 2:
        return math.nan, 1.0
    there = parts[present] - parts[present].mean()
    largest = float(np.abs(there).max())
    if largest <= 0.0:
        return 0.0, g - 1.0
    squares = (there / largest) ** 2
    kurtosis = g * float((squares**2).sum() / squares.sum() ** 2)
    df = 2 * g / (kurtosis - 1) if kurtosis > 1 else g - 1.0
    return largest * math.sqrt(g / (g - 1) * float(squares.sum())), min(max(df, 1.0), g - 1.0)
