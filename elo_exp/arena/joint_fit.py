"""Votes and verdicts in one fit: where placed models stand on the humans' scale.

A judge stretches distances (s) and has a taste for each model (tau) that no number of battles
averages out. With theta the abilities by the humans and phi those by the judge, in log-odds:

    vote of i over j     logit P = theta_i - theta_j, a tie half a win
    verdict, an order    logit P = phi_i - phi_j + b x, x = 1 where i is shown first, -1 where j is,
                         0 where nobody knows
    phi_i                ~ N(s theta_i, tau^2), also of placed models
    theta_i              ~ N(0, omega^2) of anchors, N(0, 10^2) of placed models

Letters: m models, the parameters (theta, phi, b) in one vector of 2 m + 1, z = (s, log tau,
log omega).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, sparse, special

from elo_exp.analysis.comparisons import N_DRAWS, max_t_quantile
from elo_exp.arrays import Array, Index, Mask
from elo_exp.data.battles import SCORES, Battles
from elo_exp.ratings.bradley_terry import POINTS, newton
from elo_exp.ratings.games import differences, numbered
from elo_exp.ratings.leaderboard import Leaderboard, t_quantile

_FLAT = 10.0  # log-odds: the prior's standard deviation of a placed model
_RIDGE = 0.05  # keeps the separate fits finite where a model won or lost everything
_RIDGE_OF_POSITION = 1e-3
_LEAST_DESIGN_EFFECT = 0.25
_START = (1.0, math.log(0.4), math.log(0.5))
_BOUNDS = (
    (-6.0, 10.0),
    (math.log(0.03), math.log(4.0)),
    (math.log(0.05), math.log(4.0)),
)
_STEPS = np.array([0.05, 0.1, 0.1])  # of second derivatives by z
_STEP = 0.02  # of first derivatives by z
_SEED = 20260425  # of the draws behind rank sets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointFit:
    """The posterior of the abilities (m,) by the humans, in log-odds from the mean of the anchors.

    covariance      (m, m), with the errors of s, tau and omega
    s, s_std_error  how many times as far apart the judge sees models as the humans do
    tau             standard deviation of the judge's taste, in log-odds of its verdicts
    omega           standard deviation of the anchors, in log-odds of votes
    position        b: log-odds that the judge adds to the answer shown first
    design_effects  variance over that of independent rows: of votes, of calibrating verdicts
                    and of each placed model's verdicts
    n_prompts       by the same names
    """

    models: tuple[str, ...]  # sorted
    is_anchor: Mask
    theta: Array
    covariance: Array
    s: float
    s_std_error: float
    tau: float
    omega: float
    position: float
    design_effects: Mapping[str, float]
    n_prompts: Mapping[str, int]

    @property
    def n_anchors(self) -> int:
        return int(self.is_anchor.sum())

    @property
    def t(self) -> float:
        """Errors on each side of an interval: the anchors are the sample here, not the battles."""
        return float(t_quantile(max(self.n_anchors - 2, 1)))

    @property
    def taste(self) -> float | None:
        """The judge's taste in rating points of the humans."""
        return POINTS * self.tau / self.s if self.s > 0.0 else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """Votes, or verdicts in one order: first and second are places among the parameters."""

    first: Index
    second: Index
    position: Array
    score: Array  # of the first
    cluster: Index  # 0 .. n_clusters - 1, none of them empty

    @classmethod
    def of(cls, battles: Battles, models: Sequence[str], offset: int) -> _Rows:
        """offset  of the first model among the parameters"""
        ab, ba = battles.verdict_ab, battles.verdict_ba
        in_order = (ab >= 0, ba >= 0, (ab < 0) & (ba < 0))
        row = np.concatenate([np.flatnonzero(chosen) for chosen in in_order])
        winners = (ab, ba, battles.winner)
        winner = [codes[k] for codes, k in zip(winners, in_order, strict=True)]
        place = np.array([offset + models.index(name) for name in battles.models])
        return cls(
            first=place[battles.model_a[row]],
            second=place[battles.model_b[row]],
            position=np.repeat([1.0, -1.0, 0.0], [codes.size for codes in winner]),
            score=SCORES[np.concatenate(winner)],
            cluster=numbered(battles.question)[1][row],
        )

    @property
    def n_clusters(self) -> int:
        return int(self.cluster.max()) + 1

    def design_effect(self, expected: Array, counted: Mask) -> float:
        """Divide the clustered variance of the scores of some models by the independent one.

        expected  (n,) scores of the first
        counted   (k,) parameters
        """
        n, k = self.n_clusters, len(counted)
        residual, variance = self.score - expected, expected * (1.0 - expected)
        by_cluster = differences(
            self.cluster, self.first, self.second, residual, shape=(n, k)
        )
        clustered = by_cluster.power(2).sum(axis=0) * n / max(n - 1, 1)
        independent = np.bincount(self.first, variance, k)
        independent += np.bincount(self.second, variance, k)
        found = clustered[counted].sum() / independent[counted].sum()
        return max(float(found), _LEAST_DESIGN_EFFECT)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Likelihood:
    """Of n battles in each row of a design (k, 2 m + 1), the first wins y."""

    design: sparse.csr_array
    n: Array  # (k,)
    y: Array  # (k,)

    def mode(self, precision: Array, start: Array) -> tuple[Array, Array, float]:
        """Maximise under a normal prior of mean 0.

        Returns the parameters, minus the second derivative there, and the log-likelihood with the
        prior's exponent.
        """

        def evaluate(x: Array) -> tuple[float, Array, Array]:
            log_odds = self.design @ x
            p = special.expit(log_odds)
            value = self.y @ special.log_expit(log_odds)
            value += (self.n - self.y) @ special.log_expit(-log_odds)
            gradient = self.design.T @ (self.y - self.n * p) - precision @ x
            weighted = self.design.multiply((self.n * p * (1.0 - p))[:, None])
            curvature = (self.design.T @ weighted).toarray() + precision
            return float(value - x @ precision @ x / 2.0), gradient, curvature

        found, curvature = newton(start, evaluate)
        return found, curvature, evaluate(found)[0]


def fit(
    votes: Battles, calibrating: Battles, judged: Battles, placed: Sequence[str]
) -> JointFit:
    """Fit the votes, the judge's verdicts on some of them, and those on placed models.

    judged  battles of placed models, each model_a of its own, with anchors

    Laplace's approximation of the marginal likelihood of s, tau and omega is maximised, with
    priors that keep tau off 0, which would deny taste. Rows of one prompt are dependent: their
    log-likelihoods are divided by the design effect of separate fits.
    """
    models = sorted({*votes.models, *calibrating.models, *judged.models})
    m, names = len(models), np.array(judged.models)
    is_anchor = ~np.isin(models, placed)
    rows = {
        "votes": _Rows.of(votes, models, 0),
        "calibration": _Rows.of(calibrating, models, m),
    }
    counted = dict.fromkeys(rows, np.ones(2 * m + 1, bool))
    for name in placed:
        own = judged.select(names[judged.model_a] == name)
        rows[name] = _Rows.of(own, models, m)
        counted[name] = np.arange(2 * m + 1) == m + models.index(name)

    columns = [(r.first, r.second, r.position) for r in rows.values()]
    kinds, kind = np.unique(np.hstack(columns), axis=1, return_inverse=True)
    first, second = kinds[:2].astype(np.intp)
    n_kinds = np.arange(len(first))
    shape = (len(first), 2 * m + 1)
    design = differences(n_kinds, first, second, np.ones(len(first)), shape=shape)
    design += sparse.csr_array((kinds[2], (n_kinds, np.full(len(first), 2 * m))), shape)
    score = np.concatenate([r.score for r in rows.values()])

    def likelihood(weight: Array) -> _Likelihood:
        n, y = (np.bincount(kind, terms) for terms in (weight, weight * score))
        return _Likelihood(design=design, n=np.asarray(n), y=np.asarray(y))

    flat = np.zeros(2 * m + 1)
    separate = likelihood(np.ones(len(score))).mode(_RIDGE * np.eye(2 * m + 1), flat)[0]
    sizes = [len(r.score) for r in rows.values()]
    expected = np.split(special.expit(design @ separate)[kind], np.cumsum(sizes)[:-1])
    effects = {
        name: rows[name].design_effect(some, counted[name])
        for name, some in zip(rows, expected, strict=True)
    }
    joint = likelihood(np.repeat([1.0 / d for d in effects.values()], sizes))

    def laplace(z: Array) -> tuple[Array, Array, float]:
        precision = _prior_precision(z, is_anchor)
        x, curvature, value = joint.mode(precision, separate)
        determinants = np.linalg.slogdet(np.stack([precision, curvature]))[1]
        tau, omega = np.exp(z[1:])
        value += determinants @ [0.5, -0.5] + z[1] - (tau**2 + omega**2) / 8.0
        return x, curvature, float(value)

    z = optimize.minimize(
        lambda z: -laplace(z)[2],
        _START,
        method="L-BFGS-B",
        bounds=_BOUNDS,
        jac="3-point",
        options={"ftol": 1e-12},
    ).x
    of_z = _covariance(lambda z: laplace(z)[2], z)
    x, curvature, _ = laplace(z)
    slopes = [laplace(z + step)[0] - laplace(z - step)[0] for step in _STEP * np.eye(3)]
    centre = np.eye(m) - is_anchor / is_anchor.sum()
    slope = centre @ np.stack(slopes, axis=1)[:m] / (2.0 * _STEP)
    given_z = np.linalg.inv(curvature)[:m, :m]
    return JointFit(
        models=tuple(models),
        is_anchor=is_anchor,
        theta=centre @ x[:m],
        covariance=centre @ given_z @ centre.T + slope @ of_z @ slope.T,
        s=float(z[0]),
        s_std_error=math.sqrt(of_z[0, 0]),
        tau=math.exp(z[1]),
        omega=math.exp(z[2]),
        position=float(x[-1]),
        design_effects=effects,
        n_prompts={name: r.n_clusters for name, r in rows.items()},
    )


def leaderboard(
    found: JointFit,
    n_battles: Index,
    *,
    level: float,
    baseline: str | None,
    unrated: Mapping[int, str],
) -> Leaderboard:
    """Turn the posterior into rating points, with rank sets and chances of being best by its draws.

    n_battles  (m,)
    level      rating of the baseline, or the mean rating of the anchors
    unrated    by place, why a model has no rating
    """
    m = len(found.models)
    fixed = np.array(found.models) == baseline
    change = POINTS * (np.eye(m) - fixed)  # of the anchors' mean for the baseline
    rating, covariance = (
        level + change @ found.theta,
        change @ found.covariance @ change.T,
    )
    variance = np.diag(covariance)
    std_error = np.sqrt(np.maximum(variance, 0.0))
    df = max(found.n_anchors - 2, 1)
    rng = np.random.default_rng(_SEED)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    noise = root @ rng.standard_normal((m, N_DRAWS))
    noise /= np.sqrt(rng.chisquare(df, N_DRAWS) / df)
    of_pairs = variance[:, None] + variance - 2.0 * covariance
    np.fill_diagonal(of_pairs, np.nan)
    errors = np.sqrt(of_pairs)
    better = (rating - rating[:, None]) / errors > max_t_quantile(noise, errors)
    best = (rating[:, None] + noise).argmax(axis=0)
    columns = {
        "rating": rating,
        "std_error": std_error,
        "ci_low": rating - found.t * std_error,
        "ci_high": rating + found.t * std_error,
        "rank_low": 1.0 + better.sum(axis=1),
        "rank_high": m - better.sum(axis=0, dtype=float),
        "p_best": np.bincount(best, minlength=m) / N_DRAWS,
    }
    for column in columns.values():
        column[list(unrated)] = np.nan
    return Leaderboard(
        label="Calibrated",
        interval="joint fit of votes and verdicts",
        models=found.models,
        covariance=covariance,
        n_battles=n_battles,
        flags=unrated,
        **columns,
    )


def _prior_precision(z: Array, is_anchor: Mask) -> Array:
    """The inverse covariance (2 m + 1, 2 m + 1) of the parameters by the prior."""
    s, tau, omega = z[0], *np.exp(z[1:])
    m = len(is_anchor)
    precision = np.zeros((2 * m + 1, 2 * m + 1))
    i = np.arange(m)
    precision[i, i] = np.where(is_anchor, omega, _FLAT) ** -2.0 + (s / tau) ** 2
    precision[i + m, i + m] = tau**-2.0
    precision[i, i + m] = precision[i + m, i] = -s / tau**2
    precision[-1, -1] = _RIDGE_OF_POSITION
    return precision


def _covariance(value: Callable[[Array], float], z: Array) -> Array:
    """Invert minus the second derivative (3, 3); its diagonal, where it is not definite."""
    steps = np.diag(_STEPS)
    curvature = np.empty((3, 3))
    for i, j in itertools.product(range(3), repeat=2):
        up, across = steps[i] + steps[j], steps[i] - steps[j]
        ends = value(z + up) - value(z + across) - value(z - across) + value(z - up)
        curvature[i, j] = -ends / (4.0 * _STEPS[i] * _STEPS[j])
    if np.linalg.eigvalsh(curvature)[0] <= 0.0:
        curvature = np.diag(np.maximum(np.diag(curvature), 1e-6))
    return np.asarray(np.linalg.inv(curvature))
