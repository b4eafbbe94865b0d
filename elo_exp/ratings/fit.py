"""What models of battles share: a fit, its maximum, its errors clustered by prompt, its leaderboard.

P(i beats j) = 1 / (1 + exp(theta_j - theta_i)); a tie counts half a win, a fraction that much of
one. Ratings are initial_rating + 400 / ln 10 theta. Letters: i, j of m models, r of them rated; g
games; q of n clusters (prompts); p of the pairs that met; b resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy

from elo_exp.arrays import Array, Index, Mask, fill_nan
from elo_exp.data.battles import Battles
from elo_exp.ratings.games import Balance, Games
from elo_exp.ratings.leaderboard import Leaderboard, add_intervals

POINTS_PER_LOG_ODDS = 400.0 / math.log(10.0)
_INTERVAL_WITHOUT_PROMPTS = {
    "prompt-clustered": "independent battles",
    "prompt bootstrap": "battle bootstrap",
}
_MAX_STEPS = 200
# In log-odds: beyond it, the curvature does not describe the likelihood.
_MAX_STEP_LOG_ODDS = 3.0
# Of the variance of independent games: rounding leaves less of zero.
_MAX_ROUNDING_SHARE = 1e-12
# From here on intervals cover the truth as often as they should.
_MIN_CLUSTERS = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """One dimension: r of the m models have finite abilities together."""

    wins: Array  # (m, m)
    is_rated: Mask  # (m,)
    games: Games  # among the r rated models
    theta: Array  # (r,) log-odds, mean zero
    covariance: Array  # (r, r)
    n_prompts: Index  # (r,) the clusters in which each plays
    balance: Balance  # of the games over the clusters
    samples: Array | None = None  # (b, r)
    parameters: Mapping[str, float | None] = field(default_factory=dict)
    # (rows, r) how far each cluster moves the abilities; squared, they sum to (n - 1) / n covariance
    influence_by_cluster: Array | None = None

    @classmethod
    def from_games(cls, all_games: Games) -> Fit:
        wins = all_games.wins()
        rated = find_strongest_component(wins)
        played = all_games.restrict_to(rated)
        theta = fit_abilities(wins[np.ix_(rated, rated)])
        by_cluster = played.sum_by_cluster(residuals(theta, played))
        return cls(
            wins=wins,
            is_rated=rated,
            games=played,
            theta=theta,
            covariance=sandwich(
                inverse_information(theta, played),
                by_cluster,
                len(theta),
                n=played.n_clusters,
            ),
            n_prompts=played.count_prompts(by_cluster),
            balance=played.balance(by_cluster),
        )


def find_strongest_component(wins: Array) -> Mask:
    """Find the models that have finite ratings together.

    They are the largest set in which a chain of wins or ties leads from everyone to everyone [1]_. Of
    equally large sets, the one that wins most often against the others, then the one with the most wins.

    Parameters
    ----------
    wins : Array, shape (m, m)
        How often i beat j, a tie as half a win for each.

    Returns
    -------
    Mask, shape (m,)
        Nobody where no two are linked.

    References
    ----------
    .. [1] L. R. Ford (1957), "Solution of a ranking problem from binary comparisons", American
       Mathematical Monthly 64(8), 28-33.
    """
    links = scipy.sparse.csr_array(wins > 0)
    _, component = scipy.sparse.csgraph.connected_components(links, connection="strong")
    size = np.bincount(component)[component]
    if size.max(initial=0) < 2:
        return np.zeros(len(wins), dtype=np.bool_)
    net_wins = np.bincount(component, wins.sum(axis=1) - wins.sum(axis=0))[component]
    n_wins = np.bincount(component, wins.sum(axis=1))[component]
    best = max(range(len(wins)), key=lambda i: (size[i], net_wins[i], n_wins[i]))
    return np.asarray(component == component[best])


def fit_abilities(wins: Array) -> Array:
    """Fit Bradley-Terry by maximum likelihood: the abilities at which expected wins equal wins.

    The likelihood is concave, and its maximum finite where every model reaches every other by wins or
    ties [1]_, as those of `find_strongest_component` do.

    Parameters
    ----------
    wins : Array, shape (m, m)
        How often i beat j, a tie as half a win for each.

    Returns
    -------
    Array, shape (m,)
        In log-odds, mean zero; times `POINTS_PER_LOG_ODDS`, in rating points.

    References
    ----------
    .. [1] D. R. Hunter (2004), "MM algorithms for generalized Bradley-Terry models", Annals of
       Statistics 32(1), 384-406.

    Examples
    --------
    Three wins to one are odds of three: a gap of log 3, or 191 points.

    >>> theta = fit_abilities(np.array([[0.0, 3.0], [1.0, 0.0]]))
    >>> round(float(theta[0] - theta[1]), 4), round(float(POINTS_PER_LOG_ODDS * (theta[0] - theta[1])))
    (1.0986, 191)
    """
    m, n_games = len(wins), wins + wins.T

    def evaluate(theta: Array) -> tuple[float, Array, Array]:
        value = np.vdot(wins, scipy.special.log_expit(theta[:, None] - theta))
        gradient = (wins - n_games * win_probability(theta)).sum(axis=1)
        return (
            float(value),
            gradient,
            information(theta, n_games) + mean_zero_constraint(m),
        )

    theta, _ = maximize_by_newton(np.zeros(m), evaluate)
    return np.asarray(theta - theta.mean()) if m else theta


def maximize_by_newton(
    start: Array, evaluate: Callable[[Array], tuple[float, Array, Array]]
) -> tuple[Array, Array]:
    """Maximise a concave log-likelihood by Newton's method with step halving.

    Parameters
    ----------
    start : Array, shape (k,)
        Parameters at which the log-likelihood is finite.
    evaluate : callable
        From parameters (k,) to the log-likelihood, -inf outside their range, its gradient (k,), and
        minus its second derivative (k, k), which must be invertible.

    Returns
    -------
    parameters : Array, shape (k,)
        Where the last step was below 1e-9, or after 200 steps.
    curvature : Array, shape (k, k)
        Minus the second derivative there.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where the second derivative is singular.
    """
    estimate, (value, gradient, curvature) = start, evaluate(start)
    for _ in range(_MAX_STEPS):
        step = np.linalg.solve(curvature, gradient)
        step *= _MAX_STEP_LOG_ODDS / np.abs(step).max(initial=_MAX_STEP_LOG_ODDS)
        min_value = value - 1e-9 * abs(value)
        value, gradient, curvature = evaluate(estimate + step)
        while value < min_value:
            step /= 2.0
            value, gradient, curvature = evaluate(estimate + step)
        estimate = estimate + step
        if np.abs(step).max(initial=0.0) < 1e-9:  # leaves an error of its square
            break
    return estimate, curvature


def fit_logistic(
    parameter_index: Index,
    design: Array,
    count: Array,
    wins: Array,
    precision: Array,
    start: Array,
    *,
    max_gap: float = math.inf,
) -> tuple[Array, Array, float]:
    """Maximise a logistic log-likelihood under a normal prior of mean zero.

    Parameters
    ----------
    parameter_index, design : array, shape (k, c)
        The parameters of each row, by number, and what each of them is multiplied by.
    count, wins : Array, shape (k,)
        The weight of each row, and of its wins.
    precision : Array, shape (p, p)
        Of the prior; zero for a parameter that has none.
    start : Array, shape (p,)
        Where to begin.
    max_gap : float, default inf
        Log-odds of a row beyond which no parameters are admitted.

    Returns
    -------
    parameters : Array, shape (p,)
    curvature : Array, shape (p, p)
        Minus the second derivative there.
    value : float
        Of the log-likelihood and the prior's exponent there.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where rows and prior leave a parameter open.
    """
    n = len(start)
    pairs = (n * parameter_index[:, :, None] + parameter_index[:, None]).ravel()
    products = design[:, :, None] * design[:, None]

    def evaluate(x: Array) -> tuple[float, Array, Array]:
        gap = (design * x[parameter_index]).sum(axis=1)
        if np.abs(gap).max(initial=0.0) > max_gap:
            return -np.inf, x, precision
        p = scipy.special.expit(gap)
        value = wins @ gap - count @ np.logaddexp(0.0, gap) - x @ precision @ x / 2
        slope = design * (wins - count * p)[:, None]
        row_curvature = products * (count * p * (1.0 - p))[:, None, None]
        gradient = (
            np.bincount(parameter_index.ravel(), slope.ravel(), n) - precision @ x
        )
        information = np.bincount(pairs, row_curvature.ravel(), n * n).reshape(n, n)
        return float(value), gradient, information + precision

    estimate, curvature = maximize_by_newton(start, evaluate)
    return estimate, curvature, evaluate(estimate)[0]


def win_probability(theta: Array) -> Array:
    """Return the probability that i beats j, 1 / (1 + exp(theta_j - theta_i)).

    Parameters
    ----------
    theta : Array, shape (..., m)
        Abilities in log-odds.

    Returns
    -------
    Array, shape (..., m, m)

    Examples
    --------
    >>> float(win_probability(np.log([3.0, 1.0]))[0, 1])
    0.75
    """
    return np.asarray(scipy.special.expit(theta[..., :, None] - theta[..., None, :]))


def information(theta: Array, n_games: Array) -> Array:
    """Return the negative second derivative of the log-likelihood by the abilities.

    Parameters
    ----------
    theta : Array, shape (m,)
        Abilities in log-odds.
    n_games : Array, shape (m, m)
        Of each pair, symmetric; the diagonal is ignored.

    Returns
    -------
    Array, shape (m, m)
        Of rank m - 1 at most: its rows add up to zero.
    """
    p = win_probability(theta)
    weight = n_games * p * (1.0 - p)
    np.fill_diagonal(weight, 0.0)
    return np.diag(weight.sum(axis=1)) - weight


def mean_zero_constraint(n_models: int, n_parameters: int | None = None) -> Array:
    """Return what to add to a curvature so that it fixes the mean of the abilities, which it leaves open.

    Parameters
    ----------
    n_models : int
        m, the abilities, which come first.
    n_parameters : int, optional
        k, all parameters; None: the abilities alone.

    Returns
    -------
    Array, shape (k, k)
        1 / m among the abilities, zero elsewhere. The inverse of the sum, less this, is the inverse of
        the curvature on abilities of mean zero.
    """
    level = np.zeros((n_parameters or n_models,) * 2)
    level[:n_models, :n_models] = 1.0 / max(n_models, 1)
    return level


# Errors


def residuals(theta: Array, played: Games) -> Array:
    """Return the scores less their expected values.

    Parameters
    ----------
    theta : Array, shape (m,)
        Abilities in log-odds.
    played : Games
        Of these m models.

    Returns
    -------
    Array, shape (g,)
        Of the first of each game, in [-1, 1].
    """
    return played.score - win_probability(theta)[played.first, played.second]


def inverse_information(theta: Array, played: Games) -> Array:
    """Invert the information of games on abilities of mean zero.

    Parameters
    ----------
    theta : Array, shape (m,)
        Abilities in log-odds.
    played : Games
        Of these m models, all of them linked.

    Returns
    -------
    Array, shape (m, m)
        In squared log-odds: the covariance of the abilities if the games were independent.
    """
    n_games, level = played.sum_by_pair(), mean_zero_constraint(len(theta))
    return np.asarray(
        np.linalg.inv(information(theta, n_games + n_games.T) + level) - level
    )


def sandwich(
    bread: Array, by_cluster: scipy.sparse.csr_array, n_models: int, *, n: int
) -> Array:
    """Return the covariance clustered by prompt, B (n/(n-1) sum_q s_q s_q') B.

    Parameters
    ----------
    bread : Array, shape (k, k)
        B, the inverse information of the abilities, mean zero, and of any parameters after them.
    by_cluster : sparse array, shape (rows, k)
        s, each cluster's first derivative of the log-likelihood at the maximum, as `Games.by_cluster`
        returns it.
    n_models : int
        How many of the k parameters are abilities; they come first.
    n : int
        Clusters.

    Returns
    -------
    Array, shape (k, k)
        NaN where clusters do not differ: there is one, or their derivatives by a parameter, or by all
        abilities, are zero.

    References
    ----------
    .. [1] K.-Y. Liang and S. L. Zeger (1986), "Longitudinal data analysis using generalized linear models",
       Biometrika 73(1), 13-22.
    .. [2] E. Miller (2024), "Adding error bars to evals: a statistical approach to language model
       evaluations", arXiv:2411.00640. It has prompts as clusters.
    """
    meat = (by_cluster.T @ by_cluster).toarray()
    covariance = n / max(n - 1, 1) * bread @ meat @ bread
    is_known = (np.diag(covariance) > _MAX_ROUNDING_SHARE * np.diag(bread)) & (n > 1)
    is_known[:n_models] = is_known[:n_models].any()
    covariance[~is_known] = covariance[:, ~is_known] = np.nan
    return np.asarray(covariance)


def correct_for_unequal_prompts(fit: Fit) -> Array:
    """Correct the covariance of a fit for models that met others on some of the prompts.

    At the maximum a model's scores add up to zero over the k prompts that it was on. The factor of these
    scores is therefore k / (k - 1) and not n / (n - 1). It is larger if a few of the k prompts have most
    of the model's games (`Balance.hidden`). With one prompt the error is unknown: NaN. A few prompts may
    be alike by chance: under 20 prompts the error is at least that of independent games.

    Parameters
    ----------
    fit : Fit
        Of r rated models on n prompts.

    Returns
    -------
    Array, shape (r, r)
        In squared log-odds.
    """
    n, m, covariance = fit.games.n_clusters, len(fit.theta), fit.covariance
    n_prompts = fit.n_prompts
    is_partial, hidden = n_prompts < n, fit.balance.variance_factor
    if not (is_partial.any() or (hidden > 1.0).any()):
        return covariance
    k = np.where(n_prompts > 1, n_prompts, np.nan)
    factor = np.where(is_partial, np.sqrt(k / (k - 1) * (n - 1) / n), 1.0)
    factor *= np.sqrt(hidden)
    corrected = factor[:, None] * covariance * factor
    independent = np.diag(inverse_information(fit.theta, fit.games))
    missing_variance = np.where(
        n_prompts < min(_MIN_CLUSTERS, n / 2), independent - np.diag(corrected), 0.0
    )
    # Of the distance to each of the others
    added_variance = np.fmax(missing_variance, 0.0) / (1 - 1 / m) ** 2
    return np.asarray(corrected + np.diag(added_variance))


def add_annotator_variance(fit: Fit, covariance: Array) -> tuple[Array, Array | None]:
    """Add what people leave uncertain to a covariance over prompts: two-way clustering by prompt and annotator.

    V_prompt + V_annotator - V_both [1]_, of which the part beyond prompts is not below zero in any direction. The
    covariance by annotators is corrected as that by prompts.

    Parameters
    ----------
    fit : Fit
        Of r rated models.
    covariance : Array, shape (r, r)
        Over prompts, as `correct_for_unequal_prompts` returns it.

    Returns
    -------
    covariance : Array, shape (r, r)
        As it was if fewer than three annotators are named.
    n_effective : Array, shape (r,) or None
        The annotators of equal shares that would tell as much about each model; None if fewer than three are named.

    References
    ----------
    .. [1] A. C. Cameron, J. B. Gelbach and D. L. Miller (2011), "Robust inference with multiway clustering",
       Journal of Business & Economic Statistics 29(2), 238-249.
    """
    annotator_games = fit.games.cluster_by_annotator()
    if annotator_games is None or not np.isfinite(covariance).any():
        return covariance, None
    by_person, by_both = annotator_games
    m, residual = len(fit.theta), residuals(fit.theta, fit.games)
    inverse = inverse_information(fit.theta, fit.games)
    people = by_person.sum_by_cluster(residual)
    balance = by_person.balance(people)
    person_covariance = sandwich(inverse, people, m, n=by_person.n_clusters)
    both_by_cluster = by_both.sum_by_cluster(residual)
    factor = np.sqrt(balance.variance_factor)
    excess = factor[:, None] * person_covariance * factor
    excess = (
        excess - inverse @ (both_by_cluster.T @ both_by_cluster).toarray() @ inverse
    )
    if np.isfinite(excess).all():
        values, vectors = np.linalg.eigh((excess + excess.T) / 2.0)
        covariance = covariance + vectors * np.maximum(values, 0.0) @ vectors.T
    return np.asarray(covariance), balance.n_effective


# The leaderboard


def make_leaderboard(
    fit: Fit,
    battles: Battles,
    *,
    label: str,
    interval: str,
    initial_rating: float,
    flags: Mapping[int, str] | None = None,
) -> Leaderboard:
    """Turn abilities and their covariance into rating points; models of ties use it, too.

    Parameters
    ----------
    fit : Fit
        Of r of the m models.
    battles : Battles
        Of the m models, all that were given.
    label, interval : str
        The method's name for readers, and the kind of its intervals where battles name prompts.
    initial_rating : float
        Rating points of the mean of the rated models.
    flags : mapping of int to str, optional
        Why models have no rating, by number; None: as `unrated_reasons` says.

    Returns
    -------
    Leaderboard
        Of all m models, with 95% intervals by Student's t; NaN for those that are not rated.
    """
    m = len(battles.models)
    covariance = np.full((m, m), np.nan)
    fit_covariance, n_people = add_annotator_variance(
        fit, correct_for_unequal_prompts(fit)
    )
    covariance[np.ix_(fit.is_rated, fit.is_rated)] = (
        POINTS_PER_LOG_ODDS**2 * fit_covariance
    )
    samples = None
    if fit.samples is not None:
        samples = (
            initial_rating
            + POINTS_PER_LOG_ODDS * fill_nan(fit.samples.T, fit.is_rated, m).T
        )
    board = Leaderboard(
        label=label,
        interval=interval
        if battles.names_prompts()
        else _INTERVAL_WITHOUT_PROMPTS[interval],
        models=battles.models,
        rating=initial_rating
        + POINTS_PER_LOG_ODDS * fill_nan(fit.theta, fit.is_rated, m),
        covariance=covariance,
        samples=samples,
        n_battles=battles.n_battles(),
        n_prompts=fill_nan(fit.n_prompts, fit.is_rated, m),
        n_effective=fill_nan(fit.balance.n_effective, fit.is_rated, m),
        n_clusters=fit.games.n_clusters,
        n_effective_clusters=fit.balance.n_effective_clusters,
        n_annotators=None if n_people is None else fill_nan(n_people, fit.is_rated, m),
        n_matches=round(fit.wins.sum()),
        flags=unrated_reasons(fit.wins, fit.is_rated) if flags is None else flags,
        parameters=fit.parameters,
    )
    return add_intervals(board, np.sqrt(np.maximum(np.diag(covariance), 0.0)))


def unrated_reasons(wins: Array, rated: Mask) -> dict[int, str]:
    """Say why models have no rating.

    Parameters
    ----------
    wins : Array, shape (m, m)
        How often i beat j, a tie as half a win for each.
    rated : Mask, shape (m,)
        The models that are rated.

    Returns
    -------
    dict of int to str
        Of the others, by number: "unbeaten", "winless" or "disconnected", which is said where no chain
        of wins or ties leads to the rated models and back.
    """
    has_won, has_lost = wins.sum(axis=1) > 0, wins.sum(axis=0) > 0
    return {
        i: "unbeaten"
        if not has_lost[i]
        else "winless"
        if not has_won[i]
        else "disconnected"
        for i in np.flatnonzero(~rated).tolist()
    }
