"""The direct estimate: calibrated scores of the policy's own fresh draws, corrected by labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elo_exp.oracle.dataset import MIN_LABELS
from elo_exp.oracle.evidence import FRESH_DRAWS, Evidence
from elo_exp.oracle.influence import Estimate, Term, linear_estimate


@dataclass(kw_only=True)
class Direct:
    """mean f(s') + sum_j w_j (y_j - f(s_j)), j being the draws that have a label, each counting the same.

    With every draw labelled it is the mean label. Angelopoulos et al. (2023), prediction-powered inference. Below 10
    labels of its own draws, j are the logged labels, w_j giving their scores the distribution that the draws' scores
    have: a curve that does not fit is then made up for, as long as a score means the same for both policies.
    """

    rests_on: ClassVar = (FRESH_DRAWS,)

    def estimate(self, evidence: Evidence) -> Estimate:
        of_draw, own = evidence.of_draw, evidence.fresh.labelled
        n_own = int(own.sum()) if own.sum() >= MIN_LABELS else 0
        on_label = np.where(own, of_draw, 0.0) * bool(n_own)
        on_label /= on_label.sum() or 1.0
        terms = [
            Term(
                rows=evidence.fresh,
                value=evidence.fresh_value,
                on_value=of_draw - on_label,
                on_label=on_label,
            )
        ]
        if not n_own:
            logged, w = evidence.calibration.labelled, evidence.of_balance
            terms.append(
                Term(
                    rows=logged,
                    value=evidence.calibration.cross_fitted(logged),
                    on_value=-w,
                    on_label=w,
                )
            )
        return linear_estimate(
            terms, evidence.calibration, n_prompts=len(evidence.prompts), n_own=n_own
        )
