"""Targeted learning: an outcome model, moved until its weighted residuals vanish; van der Laan and Rubin (2006)."""

from __future__ import annotations

import numpy as np

from elo_exp.statistics.likelihood import Array

_LONGEST_STEP = 5.0
_MAX_STEPS = 50
_CONVERGED = 1e-8  # of the score over its standard error


def fluctuation(value: Array, label: Array, weight: Array, *, edge: float) -> float:
    """The epsilon for which sum weight (label - expit(logit value + epsilon weight)) is zero, by Newton's method."""
    epsilon = 0.0
    for _ in range(_MAX_STEPS):
        there = moved(value, epsilon * weight, edge=edge)
        score = float(weight @ (label - there))
        information = float(weight**2 @ (there * (1 - there)))
        if information <= 0 or abs(score) <= _CONVERGED * np.sqrt(information):
            break
        epsilon += float(np.clip(score / information, -_LONGEST_STEP, _LONGEST_STEP))
    return epsilon


def moved(value: Array, by: Array, *, edge: float) -> Array:
    """Probabilities after their logits have been moved; `edge`: how close to 0 and 1 they may begin."""
    inside = np.clip(value, edge, 1.0 - edge)
    return np.asarray(np.exp(-np.logaddexp(0.0, np.log1p(-inside) - np.log(inside) - by)))
