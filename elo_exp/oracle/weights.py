"""Importance weights: raw, clipped and calibrated on the judge's score, and their diagnostics.

Letters: n logged rows; c candidate curves.
"""

from dataclasses import replace

import numpy as np

from elo_exp.arrays import Array
from elo_exp.oracle.calibration import CrossFit, Curve, fit_isotonic
from elo_exp.oracle.data import N_PROMPT_FOLDS, Rows

# For raw weights of mean 1 that correct an estimate
MAX_RAW_WEIGHT = 100.0
# The square of a larger weight is not finite
MAX_LOG_RATIO_NATS = 300.0
# The share of the rows that count as having the largest weights
TOP_WEIGHT_SHARE = 0.05
# A weight is extreme above this, or below its inverse
EXTREME_WEIGHT = 5.0
# Relative to the trace, because candidate curves may be equal
RELATIVE_RIDGE = 1e-8
_N_SCORE_BINS = 20
_MAX_BALANCED_BINS, _MIN_LABELS_PER_BIN = 20, 5


def raw_weights(log_ratio: Array) -> Array:
    """(n,) exp(log ratio), not scaled."""
    return np.asarray(np.exp(np.minimum(log_ratio, MAX_LOG_RATIO_NATS)))


def hajek_weights(log_ratio: Array) -> Array:
    """(n,) importance weights scaled to mean one, for log ratios of any size."""
    weights = np.exp(log_ratio - log_ratio.max())
    return np.asarray(weights / weights.mean())


def clip_weights(weights: Array, largest: float) -> Array:
    """Clip weights of mean one, and scale them to mean one again."""
    clipped_weights = np.minimum(weights, largest)
    return np.asarray(clipped_weights / clipped_weights.mean())


def effective_sample_size(weights: Array) -> float:
    """(sum w)^2 / sum w^2, in rows; Kish (1965)."""
    scaled = weights / np.abs(weights).max()  # squares of tiny ones would vanish
    return float(scaled.sum() ** 2 / (scaled**2).sum())


def top_share(weights: Array) -> float:
    """Share of the total weight in the largest 5% of the weights."""
    largest = np.sort(weights)[::-1][: max(1, int(TOP_WEIGHT_SHARE * len(weights)))]
    return float(largest.sum() / weights.sum())


def tail_index(weights: Array) -> float | None:
    """Hill's (1975) estimate of the tail index: below 2 there is no variance, below 1 no mean.

    From the largest 5% of the weights, at least 10 of them and at most 10%. None for a flat tail,
    and where too few weights are above zero.
    """
    n = len(weights)
    k = min(max(10, int(0.05 * n)), int(0.1 * n))
    top = np.sort(weights)[::-1][: k + 1]
    if k < 1 or top[k] <= 0:
        return None
    total = float(np.sum(np.log(top[:k] / top[k])))
    return k / total if total > 1e-10 else None


def score_affinity(logged: Array, target: Array, weights: Array) -> float:
    """Bhattacharyya (1943) affinity A_B: sum of sqrt(p q) over 20 bins of the judge's scores.

    1 for equal distributions, 0 for disjoint ones. weights  of `target`
    """
    all_scores = np.concatenate([logged, target])
    edges = np.linspace(all_scores.min(), all_scores.max(), _N_SCORE_BINS + 1)
    if edges[0] == edges[-1]:
        return 1.0
    p = np.histogram(logged, edges)[0]
    q = np.histogram(target, edges, weights=weights)[0]
    return float(np.sum(np.sqrt(p / p.sum() * q / q.sum())))


def target_coverage(logprob: Array, length: Array, weights: Array) -> float:
    """Share of logged rows that are as typical of the target as 90% of its own responses.

    Typical: few nats per unit of length (characters or tokens); the limit is the weighted .9
    quantile over the logged rows. logprob  of the target
    """
    surprisal = -logprob / np.maximum(length, 1.0)
    order = np.argsort(surprisal, kind="stable")
    mass = np.cumsum(weights[order])
    limit = surprisal[order][min(np.searchsorted(mass, 0.9 * mass[-1]), len(order) - 1)]
    return float(np.mean(surprisal <= limit))


def calibrate_weights(hajek: Array, rows: Rows) -> CrossFit:
    """Fit weights (n,) of mean one as functions of the score, without each fold in turn (SIMCal).

    A rising and a falling isotonic curve are mixed to come closest to the raw weights. The
    published SIMCal minimises the variance instead, which selects the flatter curve whatever the
    truth, and biases estimates towards the logging policy: docs/evidence.md has the numbers.
    """
    curves = []
    for fold in range(N_PROMPT_FOLDS):
        outside = rows.fold != fold
        score, raw = rows.score[outside], hajek[outside]
        fits = fit_rising_and_falling(score, raw)
        residuals = np.stack([fit(score) - raw for fit in fits])
        squares = residuals @ residuals.T / len(score)
        ridge = RELATIVE_RIDGE * float(np.trace(squares)) + RELATIVE_RIDGE
        for fit, p in zip(
            fits, find_minimum_variance_mixture(squares, ridge=ridge), strict=True
        ):
            mixed_fit = replace(fit, levels=p * fit.levels, share=p * fit.share)
            curves.append((fold, mixed_fit))
    return CrossFit(rows=rows, curves=tuple(curves))


def fit_rising_and_falling(x: Array, y: Array) -> tuple[Curve, Curve]:
    return fit_isotonic(x, y), fit_isotonic(x, y, increasing=False)


def find_minimum_variance_mixture(covariance: Array, *, ridge: float) -> Array:
    """Minimise p' covariance p over mixtures p (c,), p >= 0 and sum p = 1.

    ridge  added to the diagonal, so that nearly equal candidates share
    With covariance = L L', the least squares solution p >= 0 of L' p = 0 and sum p = 1 together is
    a multiple of the minimum.
    """
    from scipy.optimize import nnls

    root = np.linalg.cholesky(covariance + ridge * np.eye(len(covariance)))
    root /= np.abs(root).max()
    mixture, _ = nnls(
        np.vstack([root.T, np.ones(len(root))]), [*np.zeros(len(root)), 1.0]
    )
    return np.asarray(mixture / mixture.sum())


def balance_scores(labelled: Rows, fresh: Rows) -> Array:
    """(m,) weights of labelled rows that give their scores the distribution of the fresh draws'.

    In bins of equally many labels, at most 20 and of at least 5 labels each.
    """
    score = labelled.score
    n_bins = max(1, min(_MAX_BALANCED_BINS, len(score) // _MIN_LABELS_PER_BIN))
    edges = np.unique(np.quantile(score, np.arange(1, n_bins) / n_bins))
    bins = np.searchsorted(edges, score, side="right")
    draw_bins = np.searchsorted(edges, fresh.score, side="right")
    share = np.bincount(draw_bins, fresh.prompt_weights, len(edges) + 1)
    per_label = labelled.label_weights
    bin_weight = np.bincount(bins, per_label, len(edges) + 1)
    bin_weight[bin_weight == 0.0] = 1.0
    return np.asarray((share / bin_weight)[bins] * per_label)
