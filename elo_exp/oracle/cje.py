"""The estimates of cje-eval 0.3, to five decimals: `compat=cje-0.3`.

For comparison with numbers published from that library; docs/oracle_cje.md has the differences of its
formulas from ours. Calibrated scores stand in for labels, unless every row has one; the clusters
are the five folds; a row that lacks one policy's log-probability is dropped for all; nothing is
refused. No code of the library is used.

Letters: n logged rows of one policy, r fresh draws, k folds, c candidate curves.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from elo_exp.arrays import Array, Index, Mask
from elo_exp.oracle import weights
from elo_exp.oracle.calibration import (
    Curve,
    fit_calibration,
    fit_epsilon,
    tmle_update,
)
from elo_exp.oracle.data import N_PROMPT_FOLDS, NotEstimableError, Rows, assign_fold
from elo_exp.oracle.evidence import (
    CALIBRATED_WEIGHTS,
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Estimate,
    PolicyEvidence,
)

FOLDS_SEED = 42
_WEIGHT_FOLDS_SEED = 1042
# Largest standard deviation of calibrated weights, whose mean is one
_MAX_WEIGHT_SD = 1.0
_MIN_WEIGHT = 1e-9
_MIN_OMEGA = 1e-8
# Probabilities are clipped to [minimum, 1 - minimum] before their logit
_MIN_PROBABILITY = 1e-7
_STACKING_RIDGE = 1e-4


@dataclass(frozen=True, kw_only=True)
class PublishedEvidence(PolicyEvidence):
    """One policy as the library sees it."""

    @cached_property
    def has_logprob_by_policy(self) -> Mask:
        """(p, N) which logged rows have the log-probability of each policy."""
        return np.isfinite([self.data.log_ratio(p) for p in self.data.target_logprob])

    @cached_property
    def has_logprobs(self) -> Mask:
        """Which logged rows have the log-probability of every policy."""
        return np.asarray(self.has_logprob_by_policy.all(axis=0))

    @property
    def is_complete(self) -> bool:
        """Whether every logged row has a label."""
        return bool(self.data.logged_rows.is_labelled.all())

    def compute_reward(self, rows: Rows) -> Array:
        """Calibrated scores by the curve that was fitted to all labels."""
        return (
            rows.label if self.is_complete else self.calibration.full_curve(rows.score)
        )

    @cached_property
    def rewards(self) -> Array:
        """(n,)"""
        return self.compute_reward(self.logged)

    def evaluate_held_out(self, rows: Rows) -> Array:
        """(k, r) calibrated scores by the curves fitted without each fold."""
        return np.stack([curve(rows.score) for _, curve in self.calibration.curves])

    def average_by_prompt(self, value: Array) -> Array:
        """(n,) mean of a value (r,) over the fresh draws on the prompt of each logged row."""
        prompt, fresh, g = self.logged.prompt, self.fresh.prompt, self.n_prompts
        n_draws = np.bincount(fresh, minlength=g)[prompt]
        if not n_draws.all():
            raise NotEstimableError(
                f"{(n_draws == 0).sum()} logged prompts have no sample of the policy"
            )
        return np.asarray(np.bincount(fresh, value, g)[prompt] / n_draws)

    def held_out_means(self) -> Array:
        """(k,) mean calibrated score of the fresh draws by the curves fitted without each fold."""
        curve_values = self.evaluate_held_out(self.fresh)
        return np.array(
            [self.average_by_prompt(value).mean() for value in curve_values]
        )

    @cached_property
    def dr_weights(self) -> Array:
        """(n,) calibrated weights of the doubly robust estimators."""
        return self.simcal_weights(self.logged.fold)

    def simcal_weights(self, outer: Index) -> Array:
        """(n,) SIMCal weights of mean one, each row's by curves fitted without its outer fold."""
        hajek, index, inner = (
            self.weights.hajek,
            self.logged_reading.value,
            self.logged.fold,
        )
        row_weights = np.empty(len(hajek))
        for k in np.unique(outer):
            test, train = outer == k, outer != k
            raw = hajek[train] / hajek[train].mean()
            curves = weights.fit_rising_and_falling(index[train], raw)
            candidates = _evaluate_candidates(curves, index[train])
            covariance = np.cov(
                _compute_influences(candidates, index[train], inner[train])
            )
            ridge = weights.RELATIVE_RIDGE * float(np.trace(covariance)) / len(curves)
            mixture = weights.find_minimum_variance_mixture(covariance, ridge=ridge)
            mixed_weights = mixture @ _evaluate_candidates(curves, index[test]) - 1.0
            mixed_weights *= _MAX_WEIGHT_SD / max(
                _MAX_WEIGHT_SD, float(np.std(mixture @ candidates))
            )
            mixed_weights = np.maximum(1.0 + mixed_weights, _MIN_WEIGHT)
            row_weights[test] = mixed_weights / mixed_weights.mean()
        return np.asarray(row_weights / row_weights.mean())


def _evaluate_candidates(curves: tuple[Curve, ...], index: Array) -> Array:
    """Evaluate the curves (c, n), each scaled to mean one on these rows."""
    values = np.stack([np.maximum(curve(index), _MIN_WEIGHT) for curve in curves])
    return np.asarray(values / values.mean(axis=1, keepdims=True))


def _compute_influences(candidates: Array, rewards: Array, inner: Index) -> Array:
    """Return w (r - v) - v (w - mean w), (c, n), with v the value of the other folds."""
    folds, fold_of = np.unique(inner, return_inverse=True)
    outside = fold_of[:, None] != np.arange(len(folds))

    def mean_outside(value: Array) -> Array:
        return np.asarray((value @ outside / outside.sum(axis=0))[:, fold_of])

    mean = mean_outside(candidates)
    value = mean_outside(candidates * rewards) / mean
    return (candidates * (rewards - value) - value * (candidates - mean)) / mean


class _Parts(NamedTuple):
    """An estimate before its error.

    influence  (n,)
    clusters   (n,) in which influences are summed; None for independent rows and a normal interval
    held_out   (k,) the values by curves fitted without each fold
    weights    (n,) for the effective sample size
    """

    value: float
    influence: Array
    weights: Array | None
    clusters: Index | None = None
    held_out: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Formula:
    """One of the library's estimators."""

    name: str

    @property
    def requires(self) -> tuple[str, ...]:
        return FORMULAS[self.name][1:]

    def estimate(self, evidence: PolicyEvidence) -> Estimate:
        """Apply the formula; its error is CRV1 over clusters and the jackknife over folds."""
        p = PublishedEvidence(
            data=evidence.data,
            policy=evidence.policy,
            calibration=evidence.calibration,
        )
        value, influence, row_weights, clusters, held_out = FORMULAS[self.name][0](p)
        n = len(influence)
        _, cluster = np.unique(
            np.arange(n) if clusters is None else clusters, return_inverse=True
        )
        total = np.bincount(cluster, influence - influence.mean())
        g, from_labels = len(total), 0.0
        degrees_of_freedom = math.inf if clusters is None else g - 1.0
        if held_out is not None and not p.is_complete:
            from_labels = (N_PROMPT_FOLDS - 1) * float(np.var(held_out))
            degrees_of_freedom = min(g, N_PROMPT_FOLDS) - 1.0
        variance = g / (g - 1) * float(np.var(total)) * g / n**2
        return Estimate(
            value=value,
            std_error=math.sqrt(variance + from_labels),
            degrees_of_freedom=degrees_of_freedom,
            n=n,
            influence=influence,
            influence_labels=np.zeros(n),
            std_error_labels=math.sqrt(from_labels),
            n_labels=len(p.calibration.rows),
            ess=None
            if row_weights is None
            else weights.effective_sample_size(row_weights),
        )


def ips(p: PublishedEvidence) -> _Parts:
    """Plain importance sampling of the rewards, which version 0.3 no longer offers."""
    product = weights.raw_weights(p.weights.log_ratio) * p.rewards
    return _Parts(float(product.mean()), product, p.weights.hajek)


def snips(p: PublishedEvidence) -> _Parts:
    """raw-ips: self-normalised, with clipped weights."""
    value = float(p.weights.clipped @ p.rewards / p.weights.clipped.sum())
    return _Parts(value, p.weights.clipped * (p.rewards - value), p.weights.clipped)


def calibrated_ips(p: PublishedEvidence) -> _Parts:
    """calibrated-ips; its influences use the value by raw weights and their mean."""
    prompts = [p.data.prompts[i] for i in p.logged.prompt]
    outer = np.array(
        [assign_fold(prompt, seed=_WEIGHT_FOLDS_SEED) for prompt in prompts]
    )
    row_weights, index = p.simcal_weights(outer), p.logged_reading.value
    outcome = p.rewards if p.is_complete else index
    influence = np.zeros(len(row_weights))
    for k in np.unique(outer):
        test, train = outer == k, outer != k
        raw = p.weights.hajek[train]
        value = raw @ index[train] / raw.sum()
        influence[test] = row_weights[test] * (outcome[test] - value) / raw.mean()
    value = float(row_weights @ p.rewards / row_weights.sum())
    held_out = p.evaluate_held_out(p.logged) @ row_weights / len(row_weights)
    return _Parts(value, influence, row_weights, outer, held_out)


def dr_cpo(p: PublishedEvidence) -> _Parts:
    """dr-cpo: the outcome model is the cross-fitted calibration."""
    return _correct_mean(p, p.logged_reading.value, p.fresh_reading.value)


def mrdr(p: PublishedEvidence) -> _Parts:
    """mrdr with rows weighted by (w - 1)^2, as the library's factory sets it."""
    return _estimate_mrdr(p, (p.dr_weights - 1.0) ** 2)


def tmle(p: PublishedEvidence) -> _Parts:
    """tmle: the weight of a score is its mean in the fold, linear between scores."""
    rows_with_logprob, row_sets = (
        p.data.logged_rows[np.any(p.has_logprob_by_policy, axis=0)],
        (p.logged, p.fresh),
    )
    model = _fit_outcome_model(
        p, rows_with_logprob, np.ones(len(rows_with_logprob)), rows_with_logprob.fold
    )
    weights_by_set = [np.empty(len(rows)) for rows in row_sets]
    for k in np.unique(p.logged.fold):
        in_fold = p.logged.fold == k
        score, row = np.unique(p.logged.score[in_fold], return_inverse=True)
        mean = np.bincount(row, p.dr_weights[in_fold]) / np.bincount(row)
        for weight, rows in zip(weights_by_set, row_sets, strict=True):
            weight[rows.fold == k] = np.interp(rows.score[rows.fold == k], score, mean)
    epsilon = fit_epsilon(model[0], p.rewards, weights_by_set[0], edge=_MIN_PROBABILITY)
    logged, fresh = (
        tmle_update(value, epsilon * weight, edge=_MIN_PROBABILITY)
        for value, weight in zip(model, weights_by_set, strict=True)
    )
    return _correct_mean(p, logged, fresh, initial=model[0])


def stacked_dr(p: PublishedEvidence) -> _Parts:
    """stacked-dr: the mixture of the three with the smallest variance; its mrdr weights by w."""
    estimates = [dr_cpo(p), tmle(p), _estimate_mrdr(p, p.dr_weights)]
    values, influences, _, _, held_out = zip(*estimates, strict=True)
    mixture = weights.find_minimum_variance_mixture(
        np.cov(influences), ridge=_STACKING_RIDGE
    )
    return estimates[0]._replace(
        value=float(mixture @ values),
        influence=mixture @ influences,
        held_out=mixture @ held_out,
    )


def direct(p: PublishedEvidence) -> _Parts:
    """direct: the mean calibrated score of the fresh draws, with its cluster_robust error."""
    row_rewards = p.average_by_prompt(p.calibration.full_curve(p.fresh.score))
    value = float(row_rewards.mean())
    return _Parts(value, row_rewards - value, None, p.logged.prompt, p.held_out_means())


# And what each requires; the doubly robust ones use weights by the score
FORMULAS: Mapping[str, tuple[Any, ...]] = {
    "ips": (ips, RAW_WEIGHTS),
    "snips": (snips, RAW_WEIGHTS),
    "calibrated_ips": (calibrated_ips, CALIBRATED_WEIGHTS),
    "dr_cpo": (dr_cpo, CALIBRATED_WEIGHTS, FRESH_DRAWS),
    "mrdr": (mrdr, CALIBRATED_WEIGHTS, FRESH_DRAWS),
    "tmle": (tmle, CALIBRATED_WEIGHTS, FRESH_DRAWS),
    "stacked_dr": (stacked_dr, CALIBRATED_WEIGHTS, FRESH_DRAWS),
    "direct": (direct, FRESH_DRAWS),
}


def _estimate_mrdr(p: PublishedEvidence, omega: Array) -> _Parts:
    folds = np.empty(len(omega), dtype=np.intp)  # as scikit-learn's KFold draws them
    order = np.random.RandomState(FOLDS_SEED).permutation(len(omega))
    folds[order] = np.sort(np.arange(len(omega)) % N_PROMPT_FOLDS)
    model = _fit_outcome_model(p, p.logged, np.maximum(omega, _MIN_OMEGA), folds)
    return _correct_mean(p, *model)._replace(clusters=folds)


def _fit_outcome_model(
    p: PublishedEvidence, rows: Rows, omega: Array, folds: Index
) -> tuple[Array, Array]:
    """Fit isotonic regression of the rewards on the score, cross-fitted over the folds of `rows`.

    Returns its values (n,) and (r,) at the logged rows and the fresh draws, NaN for prompts without
    a fold.
    """
    fold_of_prompt = np.full(p.n_prompts, -1)
    fold_of_prompt[rows.prompt] = folds
    model = fit_calibration(
        replace(rows, fold=folds, label=p.compute_reward(rows)), omega
    )
    logged, fresh = (
        model(replace(row_set, fold=fold_of_prompt[row_set.prompt])).value
        for row_set in (p.logged, p.fresh)
    )
    return logged, fresh


def _correct_mean(
    p: PublishedEvidence, logged: Array, fresh: Array, *, initial: Array | None = None
) -> _Parts:
    """Add the weighted residual of the rewards to the mean over fresh draws; `initial`: before targeting."""
    total = p.average_by_prompt(fresh) + p.dr_weights * (p.rewards - logged)
    shift = p.evaluate_held_out(p.logged) - (logged if initial is None else initial)
    held_out = p.held_out_means() + shift @ p.dr_weights / len(logged)
    value = float(total.mean())
    return _Parts(value, total - value, p.dr_weights, p.logged.fold, held_out)
