"""The estimates of cje-eval 0.3, to its digits: `compat=cje-0.3`.

For comparison with numbers that were published from that library. Where its formulas differ from those of this suite
theirs are worse; docs/oracle.md says how. Calibrated scores stand in for labels, also where there is one, unless every
row has one; the clusters are the five folds; a row that lacks one policy's log-probability is left out for all; nothing
is refused. No code of the library is used.

Letters: n logged rows of one policy, k folds, c candidate curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from elo_exp.oracle import isotonic, weights
from elo_exp.oracle.calibration import Calibration
from elo_exp.oracle.dataset import Dataset, Rows, fold
from elo_exp.oracle.evidence import Evidence, NotEstimableError, evidence
from elo_exp.oracle.influence import Estimate
from elo_exp.oracle.simcal import DIRECTIONS, RIDGE, least_variance
from elo_exp.oracle.targeting import fluctuation, moved
from elo_exp.statistics.likelihood import Array, Index

N_FOLDS = 5
SEED = 42
_OUTER_SEED = 1042  # of the folds over which the weights of calibrated-ips are calibrated
_MAX_WEIGHT = 100.0
_MAX_VARIANCE = 1.0  # of calibrated weights, whose mean is one
_FLOOR = 1e-9  # of a weight
_OMEGA_FLOOR = 1e-8
_EDGE = 1e-7  # of a probability whose logit is taken
_STACKING_RIDGE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Published:
    """One policy as the library sees it."""

    evidence: Evidence  # of the rows with every policy's log-probability
    every_row: Rows  # those with any policy's
    is_complete: bool  # every logged row has a label

    @cached_property
    def rewards(self) -> Array:
        """(n,)"""
        return self.reward(self.evidence.logged)

    def reward(self, rows: Rows) -> Array:
        """Calibrated scores by the curve that has seen all labels."""
        return rows.label if self.is_complete else self.evidence.calibration.full(rows)

    @cached_property
    def fold(self) -> Index:
        return self.evidence.logged.fold

    @cached_property
    def without(self) -> Array:
        """(k, n) calibrated scores by the curves that have not seen a fold."""
        return np.stack(
            [curve(self.evidence.logged) for curve in self.evidence.calibration.without]
        )

    def by_prompt(self, value: Array) -> Array:
        """(n,) the mean of a value (r,) over the fresh draws of the prompt of each logged row."""
        fresh, g = self.evidence.fresh, len(self.evidence.prompts)
        n_draws = np.bincount(fresh.prompt, minlength=g)[self.evidence.logged.prompt]
        if not n_draws.all():
            raise NotEstimableError(f"{(n_draws == 0).sum()} logged prompts have no fresh draw")
        return np.asarray(
            np.bincount(fresh.prompt, value, g)[self.evidence.logged.prompt] / n_draws
        )

    def weights(self, outer: Index) -> Array:
        return calibrated_weights(
            self.evidence.hajek, self.evidence.logged_value, inner=self.fold, outer=outer
        )

    @cached_property
    def dr_weights(self) -> Array:
        return self.weights(self.fold)


def published(data: Dataset, policy: str, calibration: Calibration) -> Published:
    with_base = np.isfinite(data.logging_logprob)
    known = [np.isfinite(logprob) & with_base for logprob in data.target_logprob.values()]
    return Published(
        evidence=evidence(data, policy, calibration, complete=np.logical_and.reduce(known)),
        every_row=data.logged[np.logical_or.reduce(known)],
        is_complete=data.n_labels == len(data.logged),
    )


def calibrated_weights(hajek: Array, index: Array, *, inner: Index, outer: Index) -> Array:
    """(n,) of mean one, each row's by curves that have not seen its outer fold.

    hajek  raw weights of mean one
    index  cross-fitted calibrated scores, which the curves run over
    """
    found = np.empty(len(hajek))
    for k in np.unique(outer):
        test, train = outer == k, outer != k
        raw = hajek[train] / hajek[train].mean()
        curves = [isotonic.fit(index[train], raw, increasing=up) for up in DIRECTIONS]
        candidates = _candidates(curves, index[train])
        covariance = np.cov(_influences(candidates, index[train], inner[train]).T)
        mixture = least_variance(
            covariance, ridge=RIDGE * float(np.trace(covariance)) / len(curves)
        )
        found[test] = _capped(
            _candidates(curves, index[test]) @ mixture, variance=float(np.var(candidates @ mixture))
        )
    return np.asarray(found / found.mean())


def _candidates(curves: list[isotonic.Isotonic], index: Array) -> Array:
    """(n, c), each of mean one on these rows."""
    columns = [np.maximum(curve(index), _FLOOR) for curve in curves]
    return np.stack([column / column.mean() for column in columns], axis=1)


def _influences(candidates: Array, rewards: Array, inner: Index) -> Array:
    """(n, c) w (r - v) - v (w - mean w) with the value v of the other folds: the denominator counts twice."""
    found = np.zeros(candidates.shape)
    for k in np.unique(inner):
        test, train = inner == k, inner != k
        mean = candidates[train].mean(axis=0)
        value = rewards[train] @ candidates[train] / candidates[train].sum(axis=0)
        found[test] = (
            candidates[test] * (rewards[test, None] - value) - value * (candidates[test] - mean)
        ) / mean
    return found


def _capped(mixed: Array, *, variance: float) -> Array:
    """Drawn to 1 as far as brings `variance`, that of the rows the curves were fitted to, down to the cap."""
    if variance <= _MAX_VARIANCE:
        return mixed
    drawn = np.maximum(1.0 + math.sqrt(_MAX_VARIANCE / variance) * (mixed - 1.0), _FLOOR)
    return np.asarray(drawn / drawn.mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """An estimate before its error. `left_out` (k,): its value by the calibration without a fold's labels."""

    value: float
    influence: Array
    left_out: Array


def ips(p: Published) -> Estimate:
    """Plain importance sampling, which version 0.3 no longer offers, of its rewards."""
    product = weights.raw(p.evidence.log_ratio) * p.rewards
    return _independent(p, float(product.mean()), product, p.evidence.hajek)


def snips(p: Published) -> Estimate:
    """raw-ips: over the sum of the weights, the largest being cut."""
    cut = weights.clipped(p.evidence.hajek, _MAX_WEIGHT)
    value = float(cut @ p.rewards / cut.sum())
    return _independent(p, value, cut * (p.rewards - value), cut)


def calibrated_ips(p: Published) -> Estimate:
    """calibrated-ips. Its influences are by the value of the raw weights and over their mean."""
    prompts = [p.evidence.prompts[i] for i in p.evidence.logged.prompt]
    outer = np.array(
        [fold(prompt, n_folds=N_FOLDS, seed=_OUTER_SEED) for prompt in prompts], dtype=np.intp
    )
    calibrated, index = p.weights(outer), p.evidence.logged_value
    influence = np.zeros(len(calibrated))
    for k in np.unique(outer):
        test, raw = outer == k, p.evidence.hajek[outer != k]
        value = raw @ index[outer != k] / raw.sum()
        seen = p.rewards if p.is_complete else index
        influence[test] = calibrated[test] * (seen[test] - value) / raw.mean()
    parts = _Parts(
        value=float(calibrated @ p.rewards / calibrated.sum()),
        influence=influence,
        left_out=p.without @ calibrated / len(calibrated),
    )
    return _clustered(p, parts, outer, calibrated)


def dr_cpo(p: Published) -> Estimate:
    return _clustered(p, _dr_cpo(p), p.fold, p.dr_weights)


def mrdr(p: Published) -> Estimate:
    """mrdr, its rows counting (w - 1)^2, as the library's factory sets it; its clusters are folds of rows."""
    return _clustered(
        p, _mrdr(p, (p.dr_weights - 1.0) ** 2), _shuffled_folds(len(p.fold)), p.dr_weights
    )


def tmle(p: Published) -> Estimate:
    return _clustered(p, _tmle(p), p.fold, p.dr_weights)


def stacked_dr(p: Published) -> Estimate:
    """stacked-dr: the mixture of the three that varies least; in its mrdr rows count w."""
    three = [_dr_cpo(p), _tmle(p), _mrdr(p, p.dr_weights)]
    influences = np.stack([parts.influence for parts in three], axis=1)
    mixture = least_variance(np.cov(influences.T), ridge=_STACKING_RIDGE)
    stacked = _Parts(
        value=float(mixture @ [parts.value for parts in three]),
        influence=influences @ mixture,
        left_out=mixture @ [parts.left_out for parts in three],
    )
    return _clustered(p, stacked, p.fold, p.dr_weights)


def direct(p: Published) -> Estimate:
    """direct: the mean calibrated score of the fresh draws; its error as by the cluster_robust option."""
    calibration, fresh = p.evidence.calibration, p.evidence.fresh
    value = p.by_prompt(calibration.full(fresh))
    left_out = np.array([p.by_prompt(curve(fresh)).mean() for curve in calibration.without])
    parts = _Parts(value=float(value.mean()), influence=value - value.mean(), left_out=left_out)
    return _clustered(p, parts, p.evidence.logged.prompt, None)


FORMULAS: Mapping[str, Callable[[Published], Estimate]] = {
    formula.__name__: formula
    for formula in (ips, snips, calibrated_ips, dr_cpo, mrdr, tmle, stacked_dr, direct)
}


def _dr_cpo(p: Published) -> _Parts:
    """The outcome model is the cross-fitted calibration."""
    logged, fresh = p.evidence.logged_value, p.by_prompt(p.evidence.fresh_value)
    return _corrected(p, logged, fresh, initial=logged)


def _mrdr(p: Published, omega: Array) -> _Parts:
    rows = p.evidence.logged
    logged, fresh = _outcome_model(
        p, rows, np.maximum(omega, _OMEGA_FLOOR), _shuffled_folds(len(rows))
    )
    return _corrected(p, logged, p.by_prompt(fresh), initial=logged)


def _tmle(p: Published) -> _Parts:
    """The weight of a score is read off its fold's mean weights, along straight lines between scores."""
    rows, fresh_rows = p.evidence.logged, p.evidence.fresh
    logged, fresh = _outcome_model(p, p.every_row, np.ones(len(p.every_row)), p.every_row.fold)
    at_logged, at_fresh = np.empty(len(logged)), np.empty(len(fresh))
    for k in np.unique(p.fold):
        of_logged, of_fresh = p.fold == k, fresh_rows.fold == k
        score, row = np.unique(rows.score[of_logged], return_inverse=True)
        mean = np.bincount(row, p.dr_weights[of_logged]) / np.bincount(row)
        at_logged[of_logged] = np.interp(rows.score[of_logged], score, mean)
        at_fresh[of_fresh] = np.interp(fresh_rows.score[of_fresh], score, mean)
    epsilon = fluctuation(logged, p.rewards, at_logged, edge=_EDGE)
    targeted = moved(logged, epsilon * at_logged, edge=_EDGE)
    return _corrected(
        p, targeted, p.by_prompt(moved(fresh, epsilon * at_fresh, edge=_EDGE)), initial=logged
    )


def _shuffled_folds(n: int) -> Index:
    """(n,) folds of rows in a random order, as scikit-learn's KFold draws them."""
    order = np.random.RandomState(SEED).permutation(n)
    folds = np.empty(n, dtype=np.intp)
    for k, part in enumerate(np.array_split(order, N_FOLDS)):
        folds[part] = k
    return folds


def _outcome_model(p: Published, rows: Rows, omega: Array, folds: Index) -> tuple[Array, Array]:
    """Isotonic regression of the rewards on the score, cross-fitted; read at the logged rows and the fresh draws.

    rows, folds  those that it is fitted to, and their folds; prompts without any are left out
    """
    of_prompt = np.full(len(p.evidence.prompts), -1)
    of_prompt[rows.prompt] = folds
    there = [p.evidence.logged, p.evidence.fresh]
    values = [np.full(len(some), np.nan) for some in there]
    for k in range(N_FOLDS):
        curve = isotonic.fit(rows.score[folds != k], p.reward(rows)[folds != k], omega[folds != k])
        for some, value in zip(there, values, strict=True):
            chosen = of_prompt[some.prompt] == k
            value[chosen] = curve(some.score[chosen])
    return values[0], values[1]


def _corrected(p: Published, logged: Array, fresh: Array, *, initial: Array) -> _Parts:
    """The mean over fresh draws and the weighted residual of the rewards; `initial`: before any targeting."""
    residual = p.dr_weights * (p.rewards - logged)
    curves = p.evidence.calibration.without
    of_draws = np.array([p.by_prompt(curve(p.evidence.fresh)).mean() for curve in curves])
    return _Parts(
        value=float(fresh.mean() + residual.mean()),
        influence=fresh + residual - fresh.mean() - residual.mean(),
        left_out=of_draws + (p.without - initial) @ p.dr_weights / len(initial),
    )


def _clustered(p: Published, parts: _Parts, clusters: Index, used: Array | None) -> Estimate:
    """With the CRV1 error over clusters, and the delete-one-fold jackknife of the labels in quadrature."""
    _, cluster = np.unique(clusters, return_inverse=True)
    total = np.bincount(cluster, parts.influence - parts.influence.mean())
    g, n = len(total), len(parts.influence)
    variance = g / (g - 1) * float(np.var(total)) * g / n**2
    of_labels = 0.0 if p.is_complete else (N_FOLDS - 1) * float(np.var(parts.left_out))
    return Estimate(
        value=parts.value,
        std_error=math.sqrt(variance + of_labels),
        degrees_of_freedom=g - 1 if p.is_complete else min(g, N_FOLDS) - 1,
        n=n,
        influence=parts.influence,
        std_error_labels=math.sqrt(of_labels),
        n_labels=len(p.evidence.calibration.labelled),
        ess=None if used is None else weights.effective_sample_size(used),
    )


def _independent(p: Published, value: float, influence: Array, used: Array) -> Estimate:
    """With the error of a mean over rows, as if neither the weights nor the calibration had been estimated."""
    return Estimate(
        value=value,
        std_error=float(np.std(influence, ddof=1)) / math.sqrt(len(influence)),
        degrees_of_freedom=math.inf,
        n=len(influence),
        influence=influence,
        n_labels=len(p.evidence.calibration.labelled),
        ess=weights.effective_sample_size(used),
    )
