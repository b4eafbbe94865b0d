"""How many oracle labels an interval of a given width takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from elo_exp.oracle.estimates import LabelBudget
from elo_exp.oracle.influence import Estimate
from elo_exp.statistics.student import t_quantile


def label_budget(
    estimate: Estimate,
    *,
    policy: str,
    estimator: str,
    half_widths: Sequence[float],
    n_labels_at_most: int,
) -> LabelBudget:
    """From the labels' part of the variance, which shrinks as one over their number; the rest stays.

    half_widths  of the 95 % interval, in units of the label
    """
    of_labels = estimate.std_error_labels**2
    rest = max(estimate.std_error**2 - of_labels, 0.0)
    z = t_quantile(math.inf)

    def needed(half_width: float) -> int | None:
        allowed = (half_width / z) ** 2 - rest
        n = (
            math.ceil(estimate.n_labels * of_labels / allowed)
            if allowed > 0
            else n_labels_at_most + 1
        )
        return n if n <= n_labels_at_most else None

    return LabelBudget(
        policy=policy,
        estimator=estimator,
        n_labels=estimate.n_labels,
        half_width=estimate.half_width,
        half_width_at_best=z * math.sqrt(rest),
        labels_for={f"{half_width:g}": needed(half_width) for half_width in half_widths},
    )
