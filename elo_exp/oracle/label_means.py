"""The mean residual of the labels that an estimate rests on, and bounds of the true mean by them.

Residuals are bounded, as labels are. So few labels that are all alike leave an error, although their spread is zero:
one more label, as low or as high as labels can be, is added. Letters: g prompts, r rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from elo_exp.analysis.bounded_means import bound_tables, lower_bound, upper_bound
from elo_exp.arrays import Array, Mask
from elo_exp.oracle.calibration import CurveValues
from elo_exp.oracle.data import Rows, Scale

# Residuals that agree in these decimals count as equal
_RESIDUAL_DECIMALS = 12
# The residuals of more labels are rounded, by a 500th of the scale, before their bounds
_MAX_EXACT_LABELS = 500
# A one-sided level, to how far below and above the truth may be
ReachFunction = Callable[[float], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMean:
    """A weighted mean of labels' residuals, and the largest changes by one more label.

    influence  (g,) of each prompt: its share of the weight times the distance from the mean
    labelled   (g,) which prompts have labels
    lowest, highest  influence of one more prompt whose labels are as low, or as high, as labels can be
    """

    influence: Array
    labelled: Mask
    lowest: float
    highest: float

    def __neg__(self) -> LabelMean:
        return LabelMean(
            influence=-self.influence,
            labelled=self.labelled,
            lowest=-self.highest,
            highest=-self.lowest,
        )

    def __add__(self, other: LabelMean) -> LabelMean:
        """Add another mean; one more prompt is the worst that it can be for both."""
        return LabelMean(
            influence=self.influence + other.influence,
            labelled=self.labelled | other.labelled,
            lowest=self.lowest + other.lowest,
            highest=self.highest + other.highest,
        )

    @staticmethod
    def bound_means(means: Sequence[LabelMean]) -> list[ReachFunction]:
        """Return how far the truth may be from each mean; of means of the same prompts at once."""
        reach_by_index: dict[int, ReachFunction] = {}
        groups: dict[bytes, list[int]] = {}
        for i, mean in enumerate(means):
            groups.setdefault(mean.labelled.tobytes(), []).append(i)
        for indices in groups.values():
            n = int(means[indices[0]].labelled.sum())
            tables = bound_tables(
                n
                * np.stack([means[i].influence[means[i].labelled] for i in indices]).T,
                least=[n * means[i].lowest for i in indices],
                most=[n * means[i].highest for i in indices],
            )
            reach_by_index |= {
                i: table.reach for i, table in zip(indices, tables, strict=True)
            }
        return [reach_by_index[i] for i in range(len(means))]


def average_residuals(
    reading: CurveValues,
    weight: Array,
    *,
    answers: Rows,
    n_prompts: int,
    scale: Scale,
) -> LabelMean:
    """Return the weighted mean residual of labels, a prompt being one observation.

    weight   (r,) of the rows of the reading, zero without a label
    answers  all answers of the set that the labels belong to
    """
    total = np.bincount(reading.rows.prompt, weight, n_prompts)
    prompt_sums = np.bincount(reading.rows.prompt, weight * reading.residual, n_prompts)
    mean = float(prompt_sums.sum() / total.sum())
    level = float(np.average(reading.value, weights=weight))
    largest = float(total.max() / total.sum())
    if answers.has_chances:
        largest *= answers.label_weights.max() / reading.rows.label_weights.max()
    return LabelMean(
        influence=(prompt_sums - mean * total) / total.sum(),
        labelled=total > 0,
        lowest=largest * (scale.low - level - mean),
        highest=largest * (scale.high - level - mean),
    )


def assume_equal_labels(
    n: float, *, n_prompts: int, lowest: float, highest: float
) -> LabelMean:
    """Return the mean of n labels that are all alike, on as many prompts.

    lowest, highest  distance from the mean of a label that is as low, or as high, as labels can be
    """
    labelled = np.zeros(n_prompts, dtype=bool)
    labelled[: math.ceil(n)] = True
    return LabelMean(
        influence=np.zeros(n_prompts),
        labelled=labelled,
        lowest=lowest / n,
        highest=highest / n,
    )


def compute_exact_reach(labels: LabelMean, scale: Scale) -> tuple[float, float]:
    """Return how far below and above the mean residual of labels the true one may lie, with 95%.

    Ends of a mean of bounded values, one label at each end of the scale being added at the mean
    calibrated score: labels that are nearly all alike tell less than their spread says.
    """
    n = int(labels.labelled.sum())
    # Equal residuals are equal values, whatever their weights have been scaled by
    values = np.round(n * labels.influence[labels.labelled], _RESIDUAL_DECIMALS)
    step = 0.0 if n <= _MAX_EXACT_LABELS else scale.width / _MAX_EXACT_LABELS
    low, high = n * labels.lowest, n * labels.highest
    below = lower_bound(_round_down(values, step), alpha=0.025, least=low)
    above = upper_bound(-_round_down(-values, step), alpha=0.025, most=high)
    return values.mean() - below, above - values.mean()


def _round_down(values: Array, step: float) -> Array:
    """Round down to multiples of a step, so that many values are few different ones."""
    return np.floor(values / step) * step if step else values
