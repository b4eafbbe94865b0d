"""The direct estimate: calibrated scores of the policy's own fresh draws, corrected by labels on them if there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elo_exp.oracle.dataset import MIN_LABELS
from elo_exp.oracle.evidence import FRESH_DRAWS, Evidence
from elo_exp.oracle.influence import Estimate, Term, linear_estimate


@dataclass(kw_only=True)
class Direct:
    """mean f(s') + mean(y' - f(s')) over the draws that are labelled; the first mean alone below 10 labels.

    With every draw labelled it is the mean label. Angelopoulos et al. (2023), prediction-powered inference.
    """

    rests_on: ClassVar = (FRESH_DRAWS,)

    def estimate(self, evidence: Evidence) -> Estimate:
        of_draw, own = evidence.of_draw, evidence.fresh.labelled
        n_own = int(own.sum()) if own.sum() >= MIN_LABELS else 0
        on_label = np.where(own, of_draw, 0.0)
        on_label *= bool(n_own) / max(on_label.sum(), 1e-300)
        draws = Term(rows=evidence.fresh, value=evidence.fresh_value, on_value=of_draw - on_label, on_label=on_label)
        return linear_estimate([draws], evidence.calibration, n_prompts=len(evidence.prompts), n_own=n_own)
