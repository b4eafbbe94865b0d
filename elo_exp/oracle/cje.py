"""The estimates of cje-eval 0.3, to five decimals: `compat=cje-0.3`.

For comparison with numbers published from that library; docs/oracle.md has the differences of its
formulas from ours. Calibrated scores stand in for labels, unless every row has one; the clusters
are the five folds; a row that lacks one policy's log-probability is dropped for all; nothing is
refused. No code of the library is used.

Letters: n logged rows of one policy, r fresh draws, k folds, c candidate curves.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from elo_exp.arrays import Array, Index, Mask
from elo_exp.oracle import weights
from elo_exp.oracle.calibration import (
    Curve,
    fit_calibration,
    fit_epsilon,
    tmle_update,
)
from elo_exp.oracle.data import N_FOLDS, Rows, fold
from elo_exp.oracle.evidence import (
    CALIBRATED_WEIGHTS,
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Estimate,
    Evidence,
    NotEstimableError,
)

SEED = 42
_OUTER_SEED = 1042  # of the folds that calibrate the weights of calibrated-ips
_MAX_WEIGHT = 100.0
_MAX_VARIANCE = 1.0  # of calibrated weights of mean one
_MIN_WEIGHT = 1e-9
_MIN_OMEGA = 1e-8
_EDGE = 1e-7  # probabilities are clipped to [edge, 1 - edge] before their logit
_STACKING_RIDGE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Published(Evidence):
    """One policy as the library sees it."""

    @cached_property
    def known(self) -> Mask:
        """(p, N) which logged rows have the log-probability of each policy."""
        return np.isfinite([self.data.log_ratio(p) for p in self.data.target_logprob])

    @cached_property
    def chosen(self) -> Mask:
        """Which logged rows have the log-probability of every policy."""
        return np.asarray(self.known.all(axis=0))

    @property
    def is_complete(self) -> bool:
        """Whether every logged row has a label."""
        return bool(self.data.logged.labelled.all())

    def reward(self, rows: Rows) -> Array:
        """Calibrated scores by the curve that was fitted to all labels."""
        return rows.label if self.is_complete else self.calibration.full(rows.score)

    @cached_property
    def rewards(self) -> Array:
        """(n,)"""
        return self.reward(self.logged)

    @cached_property
    def held_out(self) -> Array:
        """(k, n) calibrated scores by the curves fitted without each fold."""
        return np.stack([f(self.logged.score) for _, f in self.calibration.curves])

    def by_prompt(self, value: Array) -> Array:
        """(n,) mean of a value (r,) over the fresh draws on the prompt of each logged row."""
        prompt, fresh, g = self.logged.prompt, self.fresh.prompt, self.n_prompts
        n_draws = np.bincount(fresh, minlength=g)[prompt]
        if not n_draws.all():
            raise NotEstimableError(
                f"{(n_draws == 0).sum()} logged prompts have no fresh draw"
            )
        return np.asarray(np.bincount(fresh, value, g)[prompt] / n_draws)

    def held_out_means(self) -> Array:
        """(k,) mean calibrated score of the fresh draws by the curves fitted without each fold."""
        curves, score = self.calibration.curves, self.fresh.score
        return np.array([self.by_prompt(curve(score)).mean() for _, curve in curves])

    @cached_property
    def dr_weights(self) -> Array:
        """(n,) calibrated weights of the doubly robust estimators."""
        return self.calibrated_weights(self.logged.fold)

    def calibrated_weights(self, outer: Index) -> Array:
        """(n,) SIMCal weights of mean one, each row's by curves fitted without its outer fold."""
        hajek, index, inner = self.hajek, self.at_logged.value, self.logged.fold
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
            variance = float(np.var(mixture @ candidates))
            if variance > _MAX_VARIANCE:  # shrink the weights towards one
                size = math.sqrt(_MAX_VARIANCE / variance)
                mixed = np.maximum(1.0 + size * (mixed - 1.0), _MIN_WEIGHT)
                mixed /= mixed.mean()
            found[test] = mixed
        return np.asarray(found / found.mean())


def _candidates(curves: tuple[Curve, ...], index: Array) -> Array:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """An estimate before its error.

    clusters  (n,) in which influences are summed; None for independent rows and a normal interval
    held_out  (k,) the value by the calibration without each fold's labels
    used      (n,) weights
    """

    value: float
    influence: Array  # (n,)
    clusters: Index | None = None
    held_out: Array = field(default_factory=lambda: np.zeros(1))
    used: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Formula:
    """One of the library's estimators."""

    name: str

    @property
    def requires(self) -> tuple[str, ...]:
        """The doubly robust ones use weights by the score, and draws."""
        return _REQUIRES.get(self.name, (CALIBRATED_WEIGHTS, FRESH_DRAWS))

    def estimate(self, evidence: Evidence) -> Estimate:
        """Apply the formula; its error is CRV1 over clusters and the jackknife over folds."""
        p = Published(
            data=evidence.data,
            policy=evidence.policy,
            calibration=evidence.calibration,
        )
        parts = FORMULAS[self.name](p)
        n = len(parts.influence)
        clusters = np.arange(n) if parts.clusters is None else parts.clusters
        _, cluster = np.unique(clusters, return_inverse=True)
        total = np.bincount(cluster, parts.influence - parts.influence.mean())
        g = len(total)
        variance = g / (g - 1) * float(np.var(total)) * g / n**2
        from_labels, degrees_of_freedom = 0.0, g - 1.0
        if parts.clusters is None:
            degrees_of_freedom = math.inf
        elif not p.is_complete:
            from_labels = (N_FOLDS - 1) * float(np.var(parts.held_out))
            degrees_of_freedom = min(g, N_FOLDS) - 1.0
        return Estimate(
            value=parts.value,
            std_error=math.sqrt(variance + from_labels),
            degrees_of_freedom=degrees_of_freedom,
            n=n,
            influence=parts.influence,
            influence_labels=np.zeros(n),
            std_error_labels=math.sqrt(from_labels),
            n_labels=len(p.calibration.rows),
            ess=None
            if parts.used is None
            else weights.effective_sample_size(parts.used),
        )


def ips(p: Published) -> _Parts:
    """Plain importance sampling of the rewards, which version 0.3 no longer offers."""
    product = weights.raw_weights(p.log_ratio) * p.rewards
    return _Parts(value=float(product.mean()), influence=product, used=p.hajek)


def snips(p: Published) -> _Parts:
    """raw-ips: self-normalised, with clipped weights."""
    cut = weights.clipped(p.hajek, _MAX_WEIGHT)
    value = float(cut @ p.rewards / cut.sum())
    return _Parts(value=value, influence=cut * (p.rewards - value), used=cut)


def calibrated_ips(p: Published) -> _Parts:
    """calibrated-ips; its influences use the value by raw weights and their mean."""
    prompts = [p.data.prompts[i] for i in p.logged.prompt]
    outer = np.array([fold(prompt, seed=_OUTER_SEED) for prompt in prompts])
    calibrated, index = p.calibrated_weights(outer), p.at_logged.value
    outcome = p.rewards if p.is_complete else index
    influence = np.zeros(len(calibrated))
    for k in np.unique(outer):
        test, train = outer == k, outer != k
        raw = p.hajek[train]
        value = raw @ index[train] / raw.sum()
        influence[test] = calibrated[test] * (outcome[test] - value) / raw.mean()
    return _Parts(
        value=float(calibrated @ p.rewards / calibrated.sum()),
        influence=influence,
        clusters=outer,
        held_out=p.held_out @ calibrated / len(calibrated),
        used=calibrated,
    )


def dr_cpo(p: Published) -> _Parts:
    """dr-cpo: the outcome model is the cross-fitted calibration."""
    return _corrected(p, p.at_logged.value, p.at_fresh.value)


def mrdr(p: Published) -> _Parts:
    """mrdr with rows weighted by (w - 1)^2, as the library's factory sets it."""
    parts = _mrdr(p, (p.dr_weights - 1.0) ** 2)
    return dataclasses.replace(parts, clusters=_shuffled_folds(len(p.logged)))


def tmle(p: Published) -> _Parts:
    """tmle: the weight of a score is its mean in the fold, linear between scores."""
    rows, fresh_rows = p.logged, p.fresh
    any_known = p.data.logged[np.asarray(p.known.any(axis=0))]
    logged, fresh = _outcome_model(
        p, any_known, np.ones(len(any_known)), any_known.fold
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


def stacked_dr(p: Published) -> _Parts:
    """stacked-dr: the mixture of the three with the smallest variance; its mrdr weights by w."""
    three = [dr_cpo(p), tmle(p), _mrdr(p, p.dr_weights)]
    influences = np.stack([parts.influence for parts in three])
    mixture = weights.minimum_variance_mixture(
        np.cov(influences), ridge=_STACKING_RIDGE
    )
    return dataclasses.replace(
        three[0],
        value=float(mixture @ [parts.value for parts in three]),
        influence=mixture @ influences,
        held_out=mixture @ [parts.held_out for parts in three],
    )


def direct(p: Published) -> _Parts:
    """direct: the mean calibrated score of the fresh draws, with its cluster_robust error."""
    value = p.by_prompt(p.calibration.full(p.fresh.score))
    return _Parts(
        value=float(value.mean()),
        influence=value - value.mean(),
        clusters=p.logged.prompt,
        held_out=p.held_out_means(),
    )


_REQUIRES = {
    "ips": (RAW_WEIGHTS,),
    "snips": (RAW_WEIGHTS,),
    "calibrated_ips": (CALIBRATED_WEIGHTS,),
    "direct": (FRESH_DRAWS,),
}


FORMULAS: Mapping[str, Callable[[Published], _Parts]] = {
    formula.__name__: formula
    for formula in (ips, snips, calibrated_ips, dr_cpo, mrdr, tmle, stacked_dr, direct)
}


def _mrdr(p: Published, omega: Array) -> _Parts:
    folds = _shuffled_folds(len(p.logged))
    return _corrected(
        p, *_outcome_model(p, p.logged, np.maximum(omega, _MIN_OMEGA), folds)
    )


def _shuffled_folds(n: int) -> Index:
    """(n,) folds of rows in a random order, as scikit-learn's KFold draws them."""
    folds = np.empty(n, dtype=np.intp)
    folds[np.random.RandomState(SEED).permutation(n)] = np.sort(np.arange(n) % N_FOLDS)
    return folds


def _outcome_model(
    p: Published, rows: Rows, omega: Array, folds: Index
) -> tuple[Array, Array]:
    """Fit isotonic regression of the rewards on the score, cross-fitted over the folds of `rows`.

    Returns its values (n,) and (r,) at the logged rows and the fresh draws, NaN for prompts without
    a fold.
    """
    fold_of_prompt = np.full(p.n_prompts, -1)
    fold_of_prompt[rows.prompt] = folds
    rewarded = dataclasses.replace(rows, fold=folds, label=p.reward(rows))
    model = fit_calibration(rewarded, omega)

    def values(there: Rows) -> Array:
        return model(
            dataclasses.replace(there, fold=fold_of_prompt[there.prompt])
        ).value

    return values(p.logged), values(p.fresh)


def _corrected(
    p: Published, logged: Array, fresh: Array, *, initial: Array | None = None
) -> _Parts:
    """Mean over fresh draws plus weighted residual of the rewards; `initial`: before targeting."""
    total = p.by_prompt(fresh) + p.dr_weights * (p.rewards - logged)
    off = p.held_out - (logged if initial is None else initial)
    return _Parts(
        value=float(total.mean()),
        influence=total - total.mean(),
        clusters=p.logged.fold,
        held_out=p.held_out_means() + off @ p.dr_weights / len(logged),
        used=p.dr_weights,
    )
