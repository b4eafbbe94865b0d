"""The estimates of cje-eval 0.3, to five decimals: `compat=cje-0.3`.

For comparison with numbers published from that library; docs/oracle.md says how its formulas differ
from ours. Calibrated scores stand in for labels, unless every row has one; the clusters are the five
folds; a row that lacks one policy's log-probability is dropped for all; nothing is refused. No code
of the library is used.

Letters: n logged rows of one policy, r fresh draws, k folds, c candidate curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from elo_exp.arrays import Array, Index
from elo_exp.oracle import weights
from elo_exp.oracle.calibration import Calibration, IsotonicFit, fit_isotonic
from elo_exp.oracle.data import Dataset, Rows, fold
from elo_exp.oracle.evidence import Evidence, NotEstimableError, gather_evidence
from elo_exp.oracle.influence import Estimate, fit_epsilon, tmle_update

N_FOLDS = 5
SEED = 42
_OUTER_SEED = (
    1042  # of the folds over which the weights of calibrated-ips are calibrated
)
_MAX_WEIGHT = 100.0
_MAX_VARIANCE = 1.0  # of calibrated weights of mean one
_MIN_WEIGHT = 1e-9
_MIN_OMEGA = 1e-8
_EDGE = 1e-7  # probabilities are clipped to [edge, 1 - edge] before their logit
_STACKING_RIDGE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Published:
    """One policy as the library sees it."""

    evidence: Evidence  # of the rows with every policy's log-probability
    every_row: Rows  # rows with any policy's log-probability
    is_complete: bool  # every logged row has a label

    @cached_property
    def logged(self) -> Rows:
        return self.evidence.logged

    @cached_property
    def rewards(self) -> Array:
        """(n,)"""
        return self.reward(self.logged)

    def reward(self, rows: Rows) -> Array:
        """Calibrated scores by the curve that was fitted to all labels."""
        return rows.label if self.is_complete else self.evidence.calibration.full(rows)

    @cached_property
    def held_out(self) -> Array:
        """(k, n) calibrated scores by the curves fitted without each fold."""
        return np.stack(
            [curve(self.logged) for curve in self.evidence.calibration.curves]
        )

    def by_prompt(self, value: Array) -> Array:
        """(n,) mean of a value (r,) over the fresh draws on the prompt of each logged row."""
        prompt, fresh = self.logged.prompt, self.evidence.fresh.prompt
        g = len(self.evidence.prompts)
        n_draws = np.bincount(fresh, minlength=g)[prompt]
        if not n_draws.all():
            raise NotEstimableError(
                f"{(n_draws == 0).sum()} logged prompts have no fresh draw"
            )
        return np.asarray(np.bincount(fresh, value, g)[prompt] / n_draws)

    def held_out_means(self) -> Array:
        """(k,) mean calibrated score of the fresh draws by the curves fitted without each fold."""
        curves, fresh = self.evidence.calibration.curves, self.evidence.fresh
        return np.array([self.by_prompt(curve(fresh)).mean() for curve in curves])

    @cached_property
    def dr_weights(self) -> Array:
        """(n,) calibrated weights of the doubly robust estimators."""
        return self.calibrated_weights(self.logged.fold)

    def calibrated_weights(self, outer: Index) -> Array:
        """(n,) SIMCal weights of mean one, each row's by curves fitted without its outer fold."""
        hajek, index, inner = (
            self.evidence.hajek,
            self.evidence.logged_value,
            self.logged.fold,
        )
        found = np.empty(len(hajek))
        for k in np.unique(outer):
            test, train = outer == k, outer != k
            raw = hajek[train] / hajek[train].mean()
            curves = weights.rising_and_falling(index[train], raw)
            candidates = _candidates(curves, index[train])
            covariance = np.cov(_influences(candidates, index[train], inner[train]))
            ridge = weights.RIDGE * float(np.trace(covariance)) / len(curves)
            mixture = weights.minimum_variance_mixture(covariance, ridge=ridge)
            mixed = mixture @ _candidates(curves, index[test])
            found[test] = _capped(mixed, variance=float(np.var(mixture @ candidates)))
        return np.asarray(found / found.mean())


def published(data: Dataset, policy: str, calibration: Calibration) -> Published:
    known = [np.isfinite(data.log_ratio(name)) for name in data.target_logprob]
    complete = np.logical_and.reduce(known)
    return Published(
        evidence=gather_evidence(data, policy, calibration, complete=complete),
        every_row=data.logged[np.logical_or.reduce(known)],
        is_complete=data.n_labels == len(data.logged),
    )


def _candidates(curves: tuple[IsotonicFit, ...], index: Array) -> Array:
    """(c, n), each of mean one on these rows."""
    values = np.stack([np.maximum(curve(index), _MIN_WEIGHT) for curve in curves])
    return np.asarray(values / values.mean(axis=1, keepdims=True))


def _influences(candidates: Array, rewards: Array, inner: Index) -> Array:
    """(c, n) w (r - v) - v (w - mean w), v being the value of the other folds."""
    found = np.zeros(candidates.shape)
    for k in np.unique(inner):
        test, train = inner == k, inner != k
        mean = candidates[:, train].mean(axis=1, keepdims=True)
        value = (candidates[:, train] @ rewards[train])[:, None] / train.sum() / mean
        w = candidates[:, test]
        found[:, test] = (w * (rewards[test] - value) - value * (w - mean)) / mean
    return found


def _capped(mixed: Array, *, variance: float) -> Array:
    """Shrink weights towards one until the variance on the training rows is at the cap."""
    if variance <= _MAX_VARIANCE:
        return mixed
    shrunk = 1.0 + math.sqrt(_MAX_VARIANCE / variance) * (mixed - 1.0)
    shrunk = np.maximum(shrunk, _MIN_WEIGHT)
    return np.asarray(shrunk / shrunk.mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """An estimate before its error."""

    value: float
    influence: Array  # (n,)
    held_out: Array  # (k,) the value by the calibration without each fold's labels


def ips(p: Published) -> Estimate:
    """Plain importance sampling of the rewards, which version 0.3 no longer offers."""
    product = weights.raw_weights(p.evidence.log_ratio) * p.rewards
    return _independent(p, float(product.mean()), product, p.evidence.hajek)


def snips(p: Published) -> Estimate:
    """raw-ips: self-normalised, with clipped weights."""
    cut = weights.clipped(p.evidence.hajek, _MAX_WEIGHT)
    value = float(cut @ p.rewards / cut.sum())
    return _independent(p, value, cut * (p.rewards - value), cut)


def calibrated_ips(p: Published) -> Estimate:
    """calibrated-ips; its influences use the value by raw weights and their mean."""
    prompts = [p.evidence.prompts[i] for i in p.logged.prompt]
    outer = np.array(
        [fold(prompt, n_folds=N_FOLDS, seed=_OUTER_SEED) for prompt in prompts]
    )
    calibrated, index = p.calibrated_weights(outer), p.evidence.logged_value
    outcome = p.rewards if p.is_complete else index
    influence = np.zeros(len(calibrated))
    for k in np.unique(outer):
        test, train = outer == k, outer != k
        raw = p.evidence.hajek[train]
        value = raw @ index[train] / raw.sum()
        influence[test] = calibrated[test] * (outcome[test] - value) / raw.mean()
    parts = _Parts(
        value=float(calibrated @ p.rewards / calibrated.sum()),
        influence=influence,
        held_out=p.held_out @ calibrated / len(calibrated),
    )
    return _clustered(p, parts, outer, calibrated)


def dr_cpo(p: Published) -> Estimate:
    return _clustered(p, _dr_cpo(p), p.logged.fold, p.dr_weights)


def mrdr(p: Published) -> Estimate:
    """mrdr with rows weighted by (w - 1)^2, as the library's factory sets it."""
    parts = _mrdr(p, (p.dr_weights - 1.0) ** 2)
    return _clustered(p, parts, _shuffled_folds(len(p.logged)), p.dr_weights)


def tmle(p: Published) -> Estimate:
    return _clustered(p, _tmle(p), p.logged.fold, p.dr_weights)


def stacked_dr(p: Published) -> Estimate:
    """stacked-dr: the mixture of the three with the smallest variance; its mrdr weights by w."""
    three = [_dr_cpo(p), _tmle(p), _mrdr(p, p.dr_weights)]
    influences = np.stack([parts.influence for parts in three])
    mixture = weights.minimum_variance_mixture(
        np.cov(influences), ridge=_STACKING_RIDGE
    )
    parts = _Parts(
        value=float(mixture @ [parts.value for parts in three]),
        influence=mixture @ influences,
        held_out=mixture @ [parts.held_out for parts in three],
    )
    return _clustered(p, parts, p.logged.fold, p.dr_weights)


def direct(p: Published) -> Estimate:
    """direct: the mean calibrated score of the fresh draws, with its cluster_robust error."""
    value = p.by_prompt(p.evidence.calibration.full(p.evidence.fresh))
    parts = _Parts(
        value=float(value.mean()),
        influence=value - value.mean(),
        held_out=p.held_out_means(),
    )
    return _clustered(p, parts, p.logged.prompt, None)


FORMULAS: Mapping[str, Callable[[Published], Estimate]] = {
    formula.__name__: formula
    for formula in (ips, snips, calibrated_ips, dr_cpo, mrdr, tmle, stacked_dr, direct)
}


def _dr_cpo(p: Published) -> _Parts:
    """The outcome model is the cross-fitted calibration."""
    logged = p.evidence.logged_value
    return _corrected(p, logged, p.evidence.fresh_value, initial=logged)


def _mrdr(p: Published, omega: Array) -> _Parts:
    folds = _shuffled_folds(len(p.logged))
    logged, fresh = _outcome_model(p, p.logged, np.maximum(omega, _MIN_OMEGA), folds)
    return _corrected(p, logged, fresh, initial=logged)


def _tmle(p: Published) -> _Parts:
    """The weight of a score is its mean in the fold, linear between scores."""
    rows, fresh_rows = p.logged, p.evidence.fresh
    logged, fresh = _outcome_model(
        p, p.every_row, np.ones(len(p.every_row)), p.every_row.fold
    )
    at_logged, at_fresh = np.empty(len(logged)), np.empty(len(fresh))
    for k in np.unique(rows.fold):
        of_logged, of_fresh = rows.fold == k, fresh_rows.fold == k
        score, row = np.unique(rows.score[of_logged], return_inverse=True)
        mean = np.bincount(row, p.dr_weights[of_logged]) / np.bincount(row)
        at_logged[of_logged] = np.interp(rows.score[of_logged], score, mean)
        at_fresh[of_fresh] = np.interp(fresh_rows.score[of_fresh], score, mean)
    epsilon = fit_epsilon(logged, p.rewards, at_logged, edge=_EDGE)
    return _corrected(
        p,
        tmle_update(logged, epsilon * at_logged, edge=_EDGE),
        tmle_update(fresh, epsilon * at_fresh, edge=_EDGE),
        initial=logged,
    )


def _shuffled_folds(n: int) -> Index:
    """(n,) folds of rows in a random order, as scikit-learn's KFold draws them."""
    order = np.random.RandomState(SEED).permutation(n)
    folds = np.empty(n, dtype=np.intp)
    for k, part in enumerate(np.array_split(order, N_FOLDS)):
        folds[part] = k
    return folds


def _outcome_model(
    p: Published, rows: Rows, omega: Array, folds: Index
) -> tuple[Array, Array]:
    """Fit isotonic regression of the rewards on the score, cross-fitted over the folds of `rows`.

    Returns its values (n,) and (r,) at the logged rows and the fresh draws, NaN for prompts without
    a fold.
    """
    fold_of_prompt = np.full(len(p.evidence.prompts), -1)
    fold_of_prompt[rows.prompt] = folds
    logged, fresh = (
        np.full(len(p.logged), np.nan),
        np.full(len(p.evidence.fresh), np.nan),
    )
    for k in range(N_FOLDS):
        train = folds != k
        curve = fit_isotonic(rows.score[train], p.reward(rows)[train], omega[train])
        for there, values in ((p.logged, logged), (p.evidence.fresh, fresh)):
            chosen = fold_of_prompt[there.prompt] == k
            values[chosen] = curve(there.score[chosen])
    return logged, fresh


def _corrected(p: Published, logged: Array, fresh: Array, *, initial: Array) -> _Parts:
    """Mean over fresh draws plus weighted residual of the rewards; `initial`: before targeting."""
    residual = p.dr_weights * (p.rewards - logged)
    total = p.by_prompt(fresh) + residual
    correction = (p.held_out - initial) @ p.dr_weights / len(initial)
    return _Parts(
        value=float(total.mean()),
        influence=total - total.mean(),
        held_out=p.held_out_means() + correction,
    )


def _clustered(
    p: Published, parts: _Parts, clusters: Index, used: Array | None
) -> Estimate:
    """Add the CRV1 error over clusters and the jackknife over the folds of the labels."""
    _, cluster = np.unique(clusters, return_inverse=True)
    total = np.bincount(cluster, parts.influence - parts.influence.mean())
    g, n = len(total), len(parts.influence)
    variance = g / (g - 1) * float(np.var(total)) * g / n**2
    from_labels = (
        0.0 if p.is_complete else (N_FOLDS - 1) * float(np.var(parts.held_out))
    )
    return Estimate(
        value=parts.value,
        std_error=math.sqrt(variance + from_labels),
        degrees_of_freedom=g - 1 if p.is_complete else min(g, N_FOLDS) - 1,
        n=n,
        influence=parts.influence,
        std_error_labels=math.sqrt(from_labels),
        n_labels=len(p.evidence.calibration.rows),
        ess=None if used is None else weights.effective_sample_size(used),
    )


def _independent(p: Published, value: float, influence: Array, used: Array) -> Estimate:
    """Add the error of a mean over rows, as if weights and calibration were known."""
    return Estimate(
        value=value,
        std_error=float(np.std(influence, ddof=1)) / math.sqrt(len(influence)),
        degrees_of_freedom=math.inf,
        n=len(influence),
        influence=influence,
        n_labels=len(p.evidence.calibration.rows),
        ess=weights.effective_sample_size(used),
    )
