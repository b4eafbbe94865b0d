"""Importance weights from log-probabilities, and what can be told from them alone.

Letters: n logged rows.
"""

from __future__ import annotations

import math

import numpy as np

from elo_exp.statistics.likelihood import Array

LARGEST = 300.0  # nats: a log ratio whose exponential, squared, is still a number
TOP = 0.05  # share of the rows whose weights are called the largest
NEAR_ZERO = 1e-10
EXTREME = 5.0  # a weight beyond this, or below its inverse
BINS = 20


def raw(log_ratio: Array) -> Array:
    """(n,) exp(log ratio), unscaled."""
    return np.asarray(np.exp(np.minimum(log_ratio, LARGEST)))


def hajek(log_ratio: Array) -> Array:
    """(n,) the same scaled to mean one, which no log ratio is too large for."""
    weights = np.exp(log_ratio - log_ratio.max())
    return np.asarray(weights / weights.mean())


def clipped(weights: Array, most: float) -> Array:
    """Weights of mean one, those above `most` cut, and of mean one again."""
    cut = np.minimum(weights, most)
    return np.asarray(cut / cut.mean())


def effective_sample_size(weights: Array) -> float:
    """(sum w)^2 / sum w^2, in rows; Kish (1965)."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def tail_index(weights: Array) -> float | None:
    """Hill's (1975) estimate of how fast the largest weights thin out: below 2 they have no variance, below 1 no mean.

    From the largest 5 %, at least 10 of them and at most 10 %. Infinite for a flat tail, None where too few weights are
    above zero to tell.
    """
    n = len(weights)
    k = min(max(10, int(0.05 * n)), int(0.1 * n))
    top = np.sort(weights)[::-1][: k + 1]
    if k < 1 or n < 10 or top[k] <= 0:
        return None
    total = float(np.sum(np.log(top[:k]) - np.log(top[k])))
    return math.inf if total < 1e-10 else k / total


def hellinger(weights: Array) -> float:
    """E sqrt(w) for weights of mean one, 1 for equal policies: what two policies' responses have in common."""
    return float(np.mean(np.sqrt(weights / weights.mean())))


def score_affinity(logged: Array, target: Array, weights: Array | None = None) -> float:
    """A_B, the sum of sqrt(p q) over bins of the judge's scores; 1 for equal distributions.

    weights  of `target`, by default equal
    """
    low, high = min(logged.min(), target.min()), max(logged.max(), target.max())
    if high <= low:
        return 1.0
    edges = np.linspace(low, high, BINS + 1)
    p = np.histogram(logged, edges)[0]
    q = np.histogram(target, edges, weights=weights)[0]
    return float(np.sum(np.sqrt(p / p.sum() * q / q.sum())))


def target_coverage(logging_logprob: Array, target_logprob: Array, length: Array) -> float:
    """The share of logged rows that are as typical for the target as nine in ten of its own responses.

    length  of each response, in characters or tokens; typical is one of few nats a unit of it, and how many the target
            is used to is told by the weighted rows
    """
    surprisal = -target_logprob / np.maximum(length, 1.0)
    order = np.argsort(surprisal, kind="stable")
    mass = np.cumsum(hajek(target_logprob - logging_logprob)[order])
    limit = surprisal[order][min(np.searchsorted(mass, 0.9 * mass[-1]), len(order) - 1)]
    return float(np.mean(surprisal <= limit))
