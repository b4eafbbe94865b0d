"""The direct estimate: calibrated scores of the policy's own samples, corrected by labels."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elo_exp.oracle.evidence import FRESH_DRAWS, Estimate, PolicyEvidence
from elo_exp.oracle.gates import MIN_OWN_LABELS


@dataclass(kw_only=True)
class Direct:
    """mean f(s') + sum_j w_j (y_j - f(s_j)) over the labelled draws j, w being equal by prompt.

    With every draw labelled this is the mean label: prediction-powered inference, Angelopoulos et
    al. (2023). With fewer than 20 labels of its own draws, j are the labels of all, weighted so
    that their scores are distributed as the draws' scores: this corrects a curve that does not fit,
    as long as a score means the same for both policies (transport).
    """

    requires: ClassVar = (FRESH_DRAWS,)

    def estimate(self, evidence: PolicyEvidence) -> Estimate:
        fresh = evidence.fresh
        n_own = int(fresh.is_labelled.sum())
        if len(np.unique(fresh.prompt[fresh.is_labelled])) < MIN_OWN_LABELS:
            return evidence.borrowed_estimate
        weight = evidence.draw_weights * fresh.label_weights
        weight = np.where(fresh.is_labelled, weight, 0.0)
        return evidence.estimate_corrected_mean(
            evidence.fresh_reading, weight, n_own=n_own
        )
