"""Importance sampling: the logged labels, weighted by the ratio of the policies' probabilities.

Missing labels are imputed by the calibrated score, and observed labels correct it: the outcome
of a row is

    o = f(s) + (y - f(s)) / share of the rows that are labelled,

which is unbiased for any f, as long as the labelled rows are a random slice. If the chances of being
labelled are known, 1 / chance stands in place of 1 / share, scaled to mean one.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from elo_exp.arrays import Array
from elo_exp.oracle import weights
from elo_exp.oracle.evidence import (
    CALIBRATED_WEIGHTS,
    RAW_WEIGHTS,
    Estimate,
    PolicyEvidence,
)


@dataclass(kw_only=True)
class Ips:
    """Plain importance sampling, mean w_i o_i: unbiased but noisy; Horvitz and Thompson (1952).

    o is counted from the low end of the scale: if the mean weight is not one, the zero matters.
    """

    requires: ClassVar = (RAW_WEIGHTS,)

    def estimate(self, evidence: PolicyEvidence) -> Estimate:
        raw = weights.raw_weights(evidence.weights.log_ratio)
        u, low = raw / len(raw), evidence.data.scale.low
        centred_estimate = estimate_weighted_mean(evidence, u, centre=low)
        return replace(
            centred_estimate,
            value=centred_estimate.value + low * (1.0 - float(u.sum())),
        )


@dataclass(kw_only=True)
class Snips:
    """Self-normalised importance sampling, sum w_i o_i / sum w_i; Swaminathan and Joachims (2015).

    clip_weight  largest weight, relative to their mean
    """

    clip_weight: Annotated[float, Field(strict=True, gt=1)]
    requires: ClassVar = (RAW_WEIGHTS,)

    def estimate(self, evidence: PolicyEvidence) -> Estimate:
        clipped_weights = weights.clip_weights(evidence.weights.hajek, self.clip_weight)
        return estimate_weighted_mean(evidence, clipped_weights / clipped_weights.sum())


@dataclass(kw_only=True)
class CalibratedIps:
    """sum w(s_i) o_i / sum w(s_i), the weights being a function of the judge's score (SIMCal)."""

    requires: ClassVar = (CALIBRATED_WEIGHTS,)

    def estimate(self, evidence: PolicyEvidence) -> Estimate:
        u = evidence.weights.calibrated / evidence.weights.calibrated.sum()
        reading = evidence.logged_reading
        outcome = reading.value + reading.residual * evidence.rows_per_label
        influence = evidence.weights.compute_influence(outcome - float(u @ outcome))
        return estimate_weighted_mean(evidence, u, extra_influence=influence)


def estimate_weighted_mean(
    evidence: PolicyEvidence, u: Array, **options: Any
) -> Estimate:
    """Estimate sum_i u_i (f(s_i) + residual_i per_label_i) for weights u (n,).

    options  of PolicyEvidence.estimate_sum
    """
    residual_weights = np.where(evidence.labelled, u * evidence.rows_per_label, 0.0)
    ess = weights.effective_sample_size(u)
    return evidence.estimate_sum(
        (evidence.logged_reading, u, residual_weights), ess=ess, **options
    )
