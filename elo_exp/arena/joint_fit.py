"""One fit of votes and verdicts, which rates placed models on the humans' scale.

A judge stretches distances (s) and has a preference for each model (standard deviation tau), which no number of
battles averages out. With theta the abilities by the humans and phi those by the judge, in log-odds:

    vote of i over j     logit P = theta_i - theta_j, a tie is half a win
    verdict, an order    logit P = phi_i - phi_j + b x, x = 1 if i is shown first, -1 if j is shown
                         first, 0 if unknown
    phi_i                ~ N(s theta_i + beta k_i, tau^2), also of placed models
    theta_i              ~ N(0, omega^2) of anchors, N(0, 10^2) of placed models
    beta                 ~ N(0, kin_sd^2): the judge's preference for its own family (self-preference),
                         k_i = 1 if i is of the family; without such a model there is no beta

Letters: m models, the parameters (theta, phi, b, beta) in one vector of 2 m + 2, z = (s, log tau,
log omega).
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from elo_exp.analysis.comparisons import N_RANK_DRAWS, add_ranks
from elo_exp.analysis.conclusions import Reason
from elo_exp.arrays import Array, Index, Mask
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battles import Battles
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, fit_logistic
from elo_exp.ratings.games import make_games
from elo_exp.ratings.leaderboard import Z95, Leaderboard, add_intervals, t_quantile
from elo_exp.records import FIXED_SEED

_PLACED_PRIOR_SD_LOG_ODDS = 10.0
# Keeps the separate fits finite if a model won or lost everything
_RIDGE = 0.05
_POSITION_RIDGE = 1e-3
_MIN_DESIGN_EFFECT = 0.25
_START_Z = (1.0, math.log(0.4), math.log(0.5))
_MIN_Z = (-6.0, math.log(0.03), math.log(0.05))
_MAX_Z = (10.0, math.log(4.0), math.log(4.0))
_DERIVATIVE_STEPS = np.array([0.05, 0.1, 0.1])
MIN_ANCHORS_TO_CALIBRATE = 4
MIN_PROMPTS_FOR_COVERAGE = (
    20  # from here on intervals cover the truth as often as they should
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointFit:
    """The posterior of the abilities (m,) by the humans, in log-odds from the mean of the anchors.

    covariance      (m, m), with the errors of s, tau and omega
    s, s_std_error  factor by which the judge multiplies the humans' distances between models
    tau             standard deviation of the judge's preferences for models, in log-odds of its verdicts
    omega           standard deviation of the anchors, in log-odds of votes
    correlation     of the anchors' abilities by the humans and by the judge
    position        b: log-odds that the judge adds to the answer shown first
    is_kin          (m,) whether a model is of the judge's family
    kin             beta: log-odds that the judge adds to its family; None if no model is of the family
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
    is_kin: Mask
    kin: float | None

    @property
    def df(self) -> int:
        """Degrees of freedom: the anchors are the sample here, not the battles; beta takes one degree."""
        return max(self.n_anchors - 2 - (self.n_kin_anchors > 0), 1)

    @property
    def n_anchors(self) -> int:
        return int(self.is_anchor.sum())

    @property
    def n_kin_anchors(self) -> int:
        return int((self.is_anchor & self.is_kin).sum())

    @property
    def t_quantile(self) -> float:
        """Standard errors on each side of an interval."""
        return float(t_quantile(self.df))

    @property
    def taste(self) -> float | None:
        """Standard deviation of the judge's preferences for models, in the humans' rating points."""
        return POINTS_PER_LOG_ODDS * self.tau / self.s if self.s > 0.0 else None

    @property
    def refusal(self) -> Reason | None:
        """The reason why this judge cannot place models; None if it can.

        If it cannot, Fieller's interval of phi / s is unbounded. A judge at chance passes in 2.5% of cases.
        """
        if self.n_anchors < MIN_ANCHORS_TO_CALIBRATE:
            about: dict[str, float] = {"needed": MIN_ANCHORS_TO_CALIBRATE}
            return Reason(name="few_anchors", value=self.n_anchors, about=about)
        z = self.s / self.s_std_error
        # If a judge always prefers the same models, s is at its bounds and its error is not usable
        min_correlation = self.t_quantile / math.sqrt(self.df + self.t_quantile**2)
        if z <= self.t_quantile:
            about = {
                "s": self.s,
                "s_std_error": self.s_std_error,
                "needed": self.t_quantile,
            }
            return Reason(name="distances", value=z, about=about)
        if self.correlation <= min_correlation:
            about = {"needed": min_correlation}
            return Reason(name="correlation", value=self.correlation, about=about)
        return None

    def list_cautions(self, model: str) -> list[Reason]:
        """Return why the rating of a placed model needs care."""
        index, anchors = self.models.index(model), self.theta[self.is_anchor]
        half_width = self.t_quantile * self.covariance[index, index] ** 0.5
        n_prompts = min(self.n_prompts["calibration"], self.n_prompts[model])
        is_within = anchors.min() <= self.theta[index] <= anchors.max()
        is_kin = bool(self.is_kin[index])
        checks = {
            "no_kin_anchor": (is_kin and not self.n_kin_anchors, 0),
            "wide": (half_width >= 1.96 * self.omega, POINTS_PER_LOG_ODDS * half_width),
            "beyond": (not is_within, POINTS_PER_LOG_ODDS * self.theta[index]),
            "few_prompts": (n_prompts < MIN_PROMPTS_FOR_COVERAGE, n_prompts),
        }
        return [
            Reason(name=name, value=float(value))
            for name, (holds, value) in checks.items()
            if holds
        ]


def fit_jointly(
    votes: Battles,
    calibrating: Battles,
    judged: Battles,
    placed: Sequence[str],
    kin: Collection[str] = (),
    *,
    kin_sd: float = 1.0,
) -> JointFit:
    """Fit the votes, the judge's verdicts on some of these battles, and its verdicts on placed models.

    judged  battles of placed models with anchors; the placed model is model_a
    kin     models of the judge's family
    kin_sd  the prior's standard deviation of beta, in log-odds of verdicts

    Laplace's approximation of the marginal likelihood of s, tau and omega is maximised, with
    priors that keep tau away from 0, which would exclude preferences. Rows of one prompt are dependent, so their
    log-likelihoods are divided by the design effect of separate fits.
    """
    all_battles = concatenate_battles(concatenate_battles(votes, calibrating), judged)
    models, m = np.array(all_battles.models), len(all_battles.models)
    is_anchor, is_kin = ~np.isin(models, placed), np.isin(models, list(kin))
    n_parameters = 2 * m + 1 + bool(is_kin.any())
    kind = np.repeat([0, 1, 2], [len(votes), len(calibrating), len(judged)])
    for number, name in enumerate(placed, start=2):
        kind[(kind >= 2) & (models[all_battles.model_a] == name)] = number
    played = make_games(all_battles, orders="both")
    kind = kind[played.battle]

    # A row is 1 at theta, or phi, of the first, -1 at that of the second, and x at b.
    shift = np.where(kind > 0, m, 0)
    columns = [played.first + shift, played.second + shift, played.position]
    unique, row = np.unique(columns, axis=1, return_inverse=True)
    ones = np.ones(unique.shape[1])
    indices = np.column_stack([*unique[:2], 2 * m * ones]).astype(np.intp)
    entry = np.column_stack([ones, -ones, unique[2]])

    def mode(
        weight: Array, precision: Array, start: Array
    ) -> tuple[Array, Array, float]:
        count = np.bincount(row, weight).astype(np.float64)
        wins = np.bincount(row, weight * played.score).astype(np.float64)
        return fit_logistic(indices, entry, count, wins, precision, start)

    separate, _, _ = mode(
        np.ones(len(row)), _RIDGE * np.eye(n_parameters), np.zeros(n_parameters)
    )
    p = scipy.special.expit((entry * separate[indices]).sum(axis=1))[row]
    effects, n_prompts = dict[str, float](), dict[str, int]()
    for number, name in enumerate(("votes", "calibration", *placed)):
        in_kind, is_target = (
            kind == number,
            models == name if number > 1 else models != "",
        )
        n = n_prompts[name] = len(np.unique(played.cluster[in_kind]))
        scores = played.sum_by_cluster(in_kind * (played.score - p))
        clustered = scores.power(2).sum(axis=0)[is_target].sum() * n / max(n - 1, 1)
        variance = played.sum_by_pair(in_kind * p * (1.0 - p))
        independent = (variance + variance.T).sum(axis=0)[is_target].sum()
        effects[name] = max(float(clustered / independent), _MIN_DESIGN_EFFECT)
    weight = 1.0 / np.array([*effects.values()])[kind]

    def laplace(z: Array) -> tuple[Array, Array, float]:
        s, tau, omega = z[0], *np.exp(z[1:])
        taste_precision = np.outer([-s, 1.0], [-s, 1.0]) / tau**2
        precision = scipy.linalg.block_diag(
            np.kron(taste_precision, np.eye(m)), _POSITION_RIDGE
        )
        precision[:m, :m] += np.diag(
            np.where(is_anchor, omega, _PLACED_PRIOR_SD_LOG_ODDS) ** -2.0
        )
        if is_kin.any():
            precision = scipy.linalg.block_diag(
                precision, is_kin.sum() / tau**2 + kin_sd**-2.0
            )
            kin_precision = np.kron([s, -1.0], is_kin) / tau**2
            precision[-1, : 2 * m] = precision[: 2 * m, -1] = kin_precision
        x, curvature, value = mode(weight, precision, separate)
        determinants = np.linalg.slogdet(np.stack([precision, curvature]))[1]
        value += determinants @ [0.5, -0.5] + z[1] - (tau**2 + omega**2) / 8.0
        return x, curvature, float(value)

    z = scipy.optimize.minimize(
        lambda z: -laplace(z)[2],
        _START_Z,
        method="L-BFGS-B",
        bounds=scipy.optimize.Bounds(_MIN_Z, _MAX_Z),
        jac="3-point",
        options={"ftol": 1e-12},
    ).x
    z_covariance = _estimate_covariance(lambda z: laplace(z)[2], z)
    # The law of total variance, over the six points of a cubature of the normal posterior of z.
    root = math.sqrt(3.0) * np.linalg.cholesky(z_covariance).T
    points = [laplace(np.clip(z + d, _MIN_Z, _MAX_Z)) for d in (*root, *-root)]
    mean_covariance = np.mean(
        [np.linalg.inv(point[1])[:m, :m] for point in points], axis=0
    )
    covariance_of_means = np.cov(
        [point[0][:m] for point in points], rowvar=False, bias=True
    )
    x, centre = laplace(z)[0], np.eye(m) - is_anchor / is_anchor.sum()
    return JointFit(
        models=all_battles.models,
        is_anchor=is_anchor,
        theta=centre @ x[:m],
        correlation=float(np.corrcoef(x[:m][is_anchor], x[m : 2 * m][is_anchor])[0, 1]),
        covariance=centre @ (mean_covariance + covariance_of_means) @ centre.T,
        s=float(z[0]),
        s_std_error=math.sqrt(z_covariance[0, 0]),
        tau=math.exp(z[1]),
        omega=math.exp(z[2]),
        position=float(x[2 * m]),
        design_effects=effects,
        n_prompts=n_prompts,
        is_kin=is_kin,
        kin=float(x[-1]) if is_kin.any() else None,
    )


def make_leaderboard(
    joint_fit: JointFit,
    n_battles: Index,
    *,
    level: float,
    baseline: str | None,
    unrated: Mapping[int, str],
) -> Leaderboard:
    """Turn the posterior into rating points, with rank sets and chances of being best by its draws.

    n_battles  (m,)
    level      rating of the baseline, or the mean rating of the anchors
    unrated    by index, why a model has no rating
    """
    m = len(joint_fit.models)
    change = POINTS_PER_LOG_ODDS * (
        np.eye(m) - (np.array(joint_fit.models) == baseline)
    )
    rating = level + change @ joint_fit.theta
    covariance = change @ joint_fit.covariance @ change.T
    scaled = (
        covariance * (joint_fit.t_quantile / Z95) ** 2
    )  # draws are as wide as the intervals
    rating[list(unrated)] = -np.inf
    rng = np.random.default_rng(FIXED_SEED)
    values, vectors = np.linalg.eigh(scaled)
    root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T  # has no sign
    draws = rating + rng.standard_normal((N_RANK_DRAWS, m)) @ root
    p_best = np.bincount(draws.argmax(axis=1), minlength=m) / N_RANK_DRAWS
    rating[list(unrated)] = p_best[list(unrated)] = np.nan
    board = Leaderboard(
        label="Calibrated",
        interval="joint fit of votes and verdicts",
        models=joint_fit.models,
        rating=rating,
        covariance=scaled,
        n_battles=n_battles,
        flags=unrated,
        p_best=p_best,
    )
    std_error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    board = add_intervals(board, std_error, np.full(m, joint_fit.df + 1.0))
    return add_ranks(board, rng)


def _estimate_covariance(value: Callable[[Array], float], z: Array) -> Array:
    """Invert minus the second derivative (3, 3), or only its diagonal if it is not positive definite."""
    steps = np.diag(_DERIVATIVE_STEPS)
    differences = [
        [
            value(z + a + b) - value(z + a - b) - value(z - a + b) + value(z - a - b)
            for b in steps
        ]
        for a in steps
    ]
    curvature = np.array(differences) / (
        -4.0 * np.outer(_DERIVATIVE_STEPS, _DERIVATIVE_STEPS)
    )
    if np.linalg.eigvalsh(curvature)[0] <= 0.0:
        curvature = np.diag(np.maximum(np.diag(curvature), 1e-6))
    return np.asarray(np.linalg.inv(curvature))
