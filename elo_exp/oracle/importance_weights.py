"""Importance weights of the logged rows of one policy: raw, clipped, and calibrated on the judge's score."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from elo_exp.arrays import Array
from elo_exp.oracle.calibration import CurveValues
from elo_exp.oracle.data import MIN_CALIBRATION_LABELS, NotEstimableError, Rows
from elo_exp.oracle.weights import (
    MAX_RAW_WEIGHT,
    calibrate_weights,
    clip_weights,
    hajek_weights,
)


@dataclass(frozen=True, kw_only=True)
class ImportanceWeights:
    """How much more likely one policy gives each of n logged answers than the logging policy.

    rows       (n,) with both log-probabilities
    log_ratio  (n,) nats, target minus logging log-probability
    n_prompts  of the data set, g
    """

    rows: Rows
    log_ratio: Array
    n_prompts: int

    @cached_property
    def hajek(self) -> Array:
        """(n,) raw importance weights, scaled to mean one."""
        return hajek_weights(self.log_ratio)

    @cached_property
    def clipped(self) -> Array:
        """(n,) raw weights of mean one, clipped at 100."""
        return clip_weights(self.hajek, MAX_RAW_WEIGHT)

    @cached_property
    def reading(self) -> CurveValues:
        """Weights of the logged rows by the judge's score. Raises NotEstimableError for too few."""
        largest_fold = int(np.bincount(self.rows.fold, minlength=1).max())
        if len(self.rows) - largest_fold < MIN_CALIBRATION_LABELS // 2:
            raise NotEstimableError(
                f"only {len(self.rows)} rows have log-probabilities, too few to calibrate the weights"
            )
        return calibrate_weights(self.hajek, self.rows)(self.rows)

    @property
    def calibrated(self) -> Array:
        """(n,) weights calibrated on the judge's score, about one on average."""
        return self.reading.value

    def compute_influence(self, u: Array) -> Array:
        """(g,) influence of each prompt on sum_i u_i w_i / sum_i w_i by the curves; u (n,)"""
        gradient = self.reading.gradient(u / self.calibrated.sum())
        influence = gradient * (self.hajek - self.calibrated)
        return np.asarray(np.bincount(self.rows.prompt, influence, self.n_prompts))
