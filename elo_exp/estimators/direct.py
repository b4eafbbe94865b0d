"""The direct estimate: calibrated scores of the policy's own fresh draws, corrected by labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elo_exp.oracle.data import MIN_LABELS
from elo_exp.oracle.evidence import FRESH_DRAWS, Evidence
from elo_exp.oracle.influence import Estimate, Term, linear_estimate


@dataclass(kw_only=True)
class Direct:
    """mean f(s') + sum_j w_j (y_j - f(s_j)) over the labelled draws j, w being equal by prompt.

    With every draw labelled this is the mean label: prediction-powered inference, Angelopoulos et
    al. (2023). With fewer than 10 labels of its own draws, j are the logged labels, weighted so
    that their scores are distributed as the draws' scores: this corrects a curve that does not fit,
    as long as a score means the same for both policies (transport).
    """

    requires: ClassVar = (FRESH_DRAWS,)

    def estimate(self, evidence: Evidence) -> Estimate:
        fresh, calibration = evidence.fresh, evidence.calibration
        draws = Term(
            rows=fresh, value=evidence.fresh_value, on_score=evidence.draw_weights
        )
        n_own = int(fresh.labelled.sum())
        if n_own < MIN_LABELS:
            n_own, rows, weights = 0, calibration.rows, evidence.balancing_weights
        else:
            rows, weights = fresh, np.where(fresh.labelled, evidence.draw_weights, 0.0)
        correction = Term(
            rows=rows, value=calibration(rows), on_residual=weights / weights.sum()
        )
        return linear_estimate(
            [draws, correction],
            calibration,
            n_prompts=evidence.n_prompts,
            n_own=n_own,
        )
