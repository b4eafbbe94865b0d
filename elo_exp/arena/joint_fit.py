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
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, sparse, special

from elo_exp.analysis.comparisons import N_DRAWS, with_ranks
from elo_exp.arrays import Array, Index, Mask
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import POINTS, newton
from elo_exp.ratings.games import Games, games
from elo_exp.ratings.leaderboard import Z95, Leaderboard, t_quantile, with_intervals

_FLAT = 10.0  # log-odds: the prior's standard deviation of a placed model
_RIDGE = 0.05  # keeps the separate fits finite where a model won or lost everything
_RIDGE_OF_POSITION = 1e-3
_LEAST_DESIGN_EFFECT = 0.25
_START = (1.0, math.log(0.4), math.log(0.5))
_LOWEST = (-6.0, math.log(0.03), math.log(0.05))
_HIGHEST = (10.0, math.log(4.0), math.log(4.0))
_STEPS = np.array([0.05, 0.1, 0.1])  # of second derivatives by z
_SEED = 20260425  # of the draws behind rank sets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointFit:
    """The posterior of the abilities (m,) by the humans, in log-odds from the mean of the anchors.

    covariance      (m, m), with the errors of s, tau and omega
    s, s_std_error  how many times as far apart the judge sees models as the humans do
    tau             standard deviation of the judge's taste, in log-odds of its verdicts
    omega           standard deviation of the anchors, in log-odds of votes
    correlation     of the anchors' abilities by the humans and by the judge
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
    correlation: float
    position: float
    design_effects: Mapping[str, float]
    n_prompts: Mapping[str, int]

    @property
    def n_anchors(self) -> int:
        return int(self.is_anchor.sum())

    @property
    def df(self) -> int:
        """Degrees of freedom: the anchors are the sample here, not the battles."""
        return max(self.n_anchors - 2, 1)

    @property
    def t(self) -> float:
        """Standard errors on each side of an interval."""
        return float(t_quantile(self.df))

    @property
    def taste(self) -> float | None:
        """The judge's taste in rating points of the humans."""
        return POINTS * self.tau / self.s if self.s > 0.0 else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Design:
    """Games as rows: 1 at the parameter of the first, -1 at that of the second, x at b.

    rows     (k, n): equal ones are one
    squares  (n * n, k): the products of each row's entries, whose weighted sum is the information
    at       (g,) the row of each game
    score    (g,) of its first
    """

    rows: sparse.csr_array
    squares: sparse.csr_array
    at: Index
    score: Array

    @classmethod
    def of(cls, played: Sequence[Games], positions: Sequence[Array]) -> _Design:
        """played  of votes, then of verdicts"""
        m = played[0].n_models
        shifts = [0] + [m] * (len(played) - 1)
        columns = [
            (some.first + shift, some.second + shift, x)
            for some, shift, x in zip(played, shifts, positions, strict=True)
        ]
        unique, at = np.unique(np.hstack(columns), axis=1, return_inverse=True)
        k, n = unique.shape[1], 2 * m + 1
        place = np.vstack([unique[:2], np.full(k, 2 * m)]).astype(np.intp)
        entry = np.vstack([np.ones(k), -np.ones(k), unique[2]])
        row, rows = np.tile(np.arange(k), 3), np.tile(np.arange(k), 9)
        products = (entry[:, None] * entry).ravel()
        places = (n * place[:, None] + place).ravel()
        return cls(
            rows=sparse.csr_array((entry.ravel(), (row, place.ravel())), (k, n)),
            squares=sparse.csr_array((products, (places, rows)), (n * n, k)),
            at=at,
            score=np.concatenate([some.score for some in played]),
        )

    def mode(
        self, weight: Array, precision: Array, start: Array
    ) -> tuple[Array, Array, float]:
        """Maximise the weighted likelihood under a normal prior of mean 0.

        Returns the parameters, minus the second derivative there, and the value.
        """
        count, wins = (
            np.bincount(self.at, terms) for terms in (weight, weight * self.score)
        )

        def evaluate(x: Array) -> tuple[float, Array, Array]:
            gap = self.rows @ x
            p = special.expit(gap)
            value = wins @ gap - count @ np.logaddexp(0.0, gap) - x @ precision @ x / 2
            information = self.squares @ (count * p * (1.0 - p))
            gradient = self.rows.T @ (wins - count * p) - precision @ x
            return (
                float(value),
                gradient,
                information.reshape(precision.shape) + precision,
            )

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
    models = sorted({*votes.models, *judged.models})
    m, names = len(models), np.array(judged.models)
    is_anchor = ~np.isin(models, placed)
    parts = {"votes": votes, "calibration": calibrating} | {
        name: judged.select(names[judged.model_a] == name) for name in placed
    }
    played = {kind: _games(some, models) for kind, some in parts.items()}

    positions = [_position(some) for some in parts.values()]
    design = _Design.of(list(played.values()), positions)
    n = 2 * m + 1
    ones = np.ones(len(design.at))
    separate, _, _ = design.mode(ones, _RIDGE * np.eye(n), np.zeros(n))
    sizes = [len(some.score) for some in played.values()]
    every = special.expit(design.rows @ separate)[design.at]
    expected = np.split(every, np.cumsum(sizes)[:-1])
    effects = {
        kind: _design_effect(some, p, models.index(kind) if kind in placed else None)
        for (kind, some), p in zip(played.items(), expected, strict=True)
    }
    weight = np.repeat([1.0 / effect for effect in effects.values()], sizes)

    def laplace(z: Array) -> tuple[Array, Array, float]:
        precision = _prior_precision(z, is_anchor)
        x, curvature, value = design.mode(weight, precision, separate)
        determinants = np.linalg.slogdet(np.stack([precision, curvature]))[1]
        tau, omega = np.exp(z[1:])
        value += determinants @ [0.5, -0.5] + z[1] - (tau**2 + omega**2) / 8.0
        return x, curvature, float(value)

    z = optimize.minimize(
        lambda z: -laplace(z)[2],
        _START,
        method="L-BFGS-B",
        bounds=optimize.Bounds(_LOWEST, _HIGHEST),
        jac="3-point",
        options={"ftol": 1e-12},
    ).x
    of_z = _covariance(lambda z: laplace(z)[2], z)
    # The law of total variance, over the six points of a cubature of the normal posterior of z.
    root = math.sqrt(3.0) * np.linalg.cholesky(of_z).T
    points = [laplace(np.clip(z + d, _LOWEST, _HIGHEST)) for d in (*root, *-root)]
    given_z = np.mean([np.linalg.inv(point[1])[:m, :m] for point in points], axis=0)
    across_z = np.cov([point[0][:m] for point in points], rowvar=False, bias=True)
    x, centre = laplace(z)[0], np.eye(m) - is_anchor / is_anchor.sum()
    return JointFit(
        models=tuple(models),
        is_anchor=is_anchor,
        theta=centre @ x[:m],
        correlation=float(np.corrcoef(x[:m][is_anchor], x[m:-1][is_anchor])[0, 1]),
        covariance=centre @ (given_z + across_z) @ centre.T,
        s=float(z[0]),
        s_std_error=math.sqrt(of_z[0, 0]),
        tau=math.exp(z[1]),
        omega=math.exp(z[2]),
        position=float(x[-1]),
        design_effects=effects,
        n_prompts={kind: some.n_clusters for kind, some in played.items()},
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
    change = POINTS * (np.eye(m) - (np.array(found.models) == baseline))
    rating = level + change @ found.theta
    covariance = change @ found.covariance @ change.T
    scaled = covariance * (found.t / Z95) ** 2  # draws are as wide as the intervals
    rating[list(unrated)] = -np.inf
    rng = np.random.default_rng(_SEED)
    draws = rng.multivariate_normal(rating, scaled, N_DRAWS, method="eigh")
    p_best = np.bincount(draws.argmax(axis=1), minlength=m) / N_DRAWS
    rating[list(unrated)] = p_best[list(unrated)] = np.nan
    board = Leaderboard(
        label="Calibrated",
        interval="joint fit of votes and verdicts",
        models=found.models,
        rating=rating,
        covariance=scaled,
        n_battles=n_battles,
        flags=unrated,
        p_best=p_best,
    )
    std_error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    board = with_intervals(board, std_error, np.full(m, found.df + 1.0))
    return with_ranks(board, rng)


def _games(battles: Battles, models: Sequence[str]) -> Games:
    """The games of battles among these models."""
    played = games(battles, orders="both")
    place = np.array([models.index(name) for name in battles.models])
    first, second = place[played.first], place[played.second]
    return replace(played, n_models=len(models), first=first, second=second)


def _position(battles: Battles) -> Array:
    """1 where the first of a game was shown first, -1 where second, 0 where nobody knows."""
    ab, ba = battles.verdict_ab >= 0, battles.verdict_ba >= 0
    return np.append(ab.astype(float) - (ba & ~ab), -np.ones((ab & ba).sum()))


def _design_effect(played: Games, expected: Array, model: int | None) -> float:
    """Divide the clustered variance of the scores of a model, or of all, by that of independent ones.

    expected  (g,) scores
    """
    n, of = played.n_clusters, slice(None) if model is None else model
    clustered = played.by_cluster(played.score - expected).power(2).sum(axis=0)
    variance = played.sums(expected * (1.0 - expected))
    independent = variance.sum(axis=0) + variance.sum(axis=1)
    found = clustered[of].sum() / independent[of].sum() * n / max(n - 1, 1)
    return max(float(found), _LEAST_DESIGN_EFFECT)


def _prior_precision(z: Array, is_anchor: Mask) -> Array:
    """The inverse covariance (2 m + 1, 2 m + 1) of the parameters by the prior."""
    s, tau, omega = z[0], *np.exp(z[1:])
    m = len(is_anchor)
    root = np.diag(
        np.repeat([1.0, 1.0 / tau, math.sqrt(_RIDGE_OF_POSITION)], [m, m, 1])
    )
    root[:m, :m] = np.diag(np.where(is_anchor, 1.0 / omega, 1.0 / _FLAT))
    root[m : 2 * m, :m] = -s / tau * np.eye(m)
    return np.asarray(root.T @ root)


def _covariance(value: Callable[[Array], float], z: Array) -> Array:
    """Invert minus the second derivative (3, 3); its diagonal, where it is not definite."""
    curvature = np.empty((3, 3))
    for i, j in itertools.combinations_with_replacement(range(3), 2):
        a, b = np.diag(_STEPS)[[i, j]]
        ends = value(z + a + b) - value(z + a - b) - value(z - a + b) + value(z - a - b)
        curvature[i, j] = curvature[j, i] = -ends / (4.0 * _STEPS[i] * _STEPS[j])
    if np.linalg.eigvalsh(curvature)[0] <= 0.0:
        curvature = np.diag(np.maximum(np.diag(curvature), 1e-6))
    return np.asarray(np.linalg.inv(curvature))
