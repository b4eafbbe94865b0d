"""Importance sampling: the logged labels, each counting as much as the target makes its answer likelier.

Labels that are missing are filled in by the calibrated score, and those that are there correct it: a row counts as

    f(s) + (y - f(s)) / share of the rows that are labelled,

which is right on average whatever f is, as long as the labelled rows are a random slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elo_exp.oracle import weights
from elo_exp.oracle.evidence import CALIBRATED_WEIGHTS, RAW_WEIGHTS, Evidence
from elo_exp.oracle.influence import Estimate, Term, linear_estimate
from elo_exp.records import UserError
from elo_exp.statistics.likelihood import Array


@dataclass(kw_only=True)
class Ips:
    """Plain importance sampling, the mean of weight times outcome: unbiased, and often of no use."""

    rests_on: ClassVar = (RAW_WEIGHTS,)

    def estimate(self, evidence: Evidence) -> Estimate:
        raw = weights.raw(evidence.log_ratio)
        return weighted_mean(evidence, raw / len(raw), centre=0.0)


@dataclass(kw_only=True)
class Snips:
    """The same over the sum of the weights, the largest being cut; Swaminathan and Joachims (2015).

    clip_weight  of weights whose mean is one
    """

    clip_weight: float
    rests_on: ClassVar = (RAW_WEIGHTS,)

    def __post_init__(self) -> None:
        if not self.clip_weight > 1:
            raise UserError(
                f"clip_weight: found {self.clip_weight:g}. Expected more than 1, the mean of the weights."
            )

    def estimate(self, evidence: Evidence) -> Estimate:
        cut = weights.clipped(evidence.hajek, self.clip_weight)
        return weighted_mean(evidence, cut / cut.sum())


@dataclass(kw_only=True)
class CalibratedIps:
    """The same with weights that are a monotone function of the judge's score (SIMCal)."""

    rests_on: ClassVar = (CALIBRATED_WEIGHTS,)

    def estimate(self, evidence: Evidence) -> Estimate:
        calibrated = evidence.calibrated
        u = calibrated / calibrated.sum()
        value = weighted_mean(evidence, u).value
        residual = np.where(evidence.labelled, evidence.logged.label - evidence.logged_value, 0.0)
        outcome = evidence.logged_value + residual / evidence.labelled.mean()
        return weighted_mean(evidence, u, more=evidence.of_weights(outcome - value))


def weighted_mean(
    evidence: Evidence, u: Array, *, more: Array | float = 0.0, centre: float | None = None
) -> Estimate:
    """sum_i u_i (f(s_i) + residual_i / share labelled); u (n,)"""
    on_label = np.where(evidence.labelled, u / evidence.labelled.mean(), 0.0)
    rows = Term(
        rows=evidence.logged, value=evidence.logged_value, on_value=u - on_label, on_label=on_label
    )
    return linear_estimate(
        [rows],
        evidence.calibration,
        n_prompts=len(evidence.prompts),
        more=more,
        centre=centre,
        ess=weights.effective_sample_size(u),
    )
