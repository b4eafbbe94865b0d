"""Which model is probably the best, among those that may be: ratings shrunk by empirical Bayes.

The first-placed was probably also lucky, so its maximum-likelihood rating is too high on average
(the winner's curse). The ratings of the models that may be best, those whose rank set has 1, are taken as
draws from one normal distribution whose spread is estimated; the less certain a rating, the closer it
moves to the mean. The others have no part in it: one outlier among them would make the spread, and
every small lead with it, look real. Differences are tested and said without shrinkage, in
comparisons.py. Letters: m models that may be best, s draws.
"""

import dataclasses
import math

import numpy as np
import scipy

from elo_exp.analysis.comparisons import RatedModels, rank_rated_models
from elo_exp.arrays import Array
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import FIXED_SEED

PRIOR_SCALE_IN_POINTS = (
    50.0  # rating points: of the half-Cauchy prior on the models' spread
)
_SPREADS_IN_POINTS = np.geomspace(1.0, 1000.0, 60)
_N_DRAWS = 20_000
_N_DRAWS_WITH_MANY_MODELS = 5_000
# The difference of closer ratings needs no error
_MIN_DISTANCE_IN_POINTS = 1e-3


def add_p_best(board: Leaderboard) -> Leaderboard:
    """Add each model's probability of being best. It is 0 if the model's rank set excludes rank 1.

    Draws the models' spread from its marginal likelihood times a half-Cauchy prior, then the
    ratings from their normal posterior, widened by Student's t.

    Parameters
    ----------
    board : Leaderboard
        Of n models, in rating points, with rank sets.

    Returns
    -------
    Leaderboard
        With `p_best` (n,), which adds up to 1. As it is without rank sets, with fewer than two ranked
        models, or where the errors of those that may be best cannot be estimated; where one of several
        has no rating, their chances are left open: NaN.
    """
    n_ranked = np.count_nonzero(board.ranks())
    if board.rank_low is None or n_ranked < 2:
        return board
    may_be_best = board.rank_low == 1
    p_best = np.where(np.isfinite(board.rank_low), 0.0, np.nan)
    if may_be_best.sum() == 1:
        p_best[may_be_best] = 1.0
    elif not np.isfinite(board.rating[may_be_best]).all():
        p_best[may_be_best] = np.nan
    else:
        models = rank_rated_models(board, may_be_best)
        if (chances := _estimate_chances(models)) is None:
            return board
        p_best[models.place] = chances
    return dataclasses.replace(board, p_best=p_best)


def _estimate_chances(models: RatedModels) -> Array | None:
    """Estimate each model's probability (m,) of being best; None if errors are not known."""
    m = len(models.names)
    n_draws = _N_DRAWS if m <= 100 else _N_DRAWS_WITH_MANY_MODELS
    # Of two models that differ without an error, a draw would be certain.
    is_apart = np.abs(models.rating[:, None] - models.rating) > _MIN_DISTANCE_IN_POINTS
    is_known = np.isfinite(models.std_error[is_apart]).all()
    if not (is_known and np.isfinite(models.covariance).all()):
        return None
    n = models.df_of_all + 1.0  # prompts
    contrasts = scipy.linalg.helmert(m).T  # (m, m - 1) of sum zero
    variance, axes = np.linalg.eigh(
        contrasts.T @ shrink_covariance(models.covariance, n) @ contrasts
    )
    variance = np.maximum(variance, 0.0)
    to_ratings = contrasts @ axes
    estimate = to_ratings.T @ models.rating
    rng = np.random.default_rng(FIXED_SEED)
    total = variance + _SPREADS_IN_POINTS[:, None] ** 2
    log_weight = -0.5 * (np.log(total) + estimate**2 / total).sum(axis=1)
    # on a logarithmic grid
    prior = _SPREADS_IN_POINTS / (
        1.0 + (_SPREADS_IN_POINTS / PRIOR_SCALE_IN_POINTS) ** 2
    )
    weight = prior * np.exp(log_weight - log_weight.max())
    scale = rng.choice(_SPREADS_IN_POINTS, size=n_draws, p=weight / weight.sum())[
        :, None
    ]
    shrinkage = scale**2 / (scale**2 + variance)
    # By the symmetric root, which depends neither on signs nor on the order of the axes.
    noise = rng.standard_normal((n_draws, m)) @ to_ratings
    if math.isfinite(models.df_of_all):
        chi_square = rng.chisquare(models.df_of_all, (n_draws, 1))
        noise *= np.sqrt(models.df_of_all / chi_square)
    contrast = shrinkage * estimate + np.sqrt(shrinkage * variance) * noise
    draws = contrast @ to_ratings.T  # (s, m), around their mean
    return np.asarray(np.bincount(draws.argmax(axis=1), minlength=m) / n_draws)


def shrink_covariance(covariance: Array, n_prompts: float) -> Array:
    """Mix a covariance with that of equally uncertain, exchangeable ratings.

    A covariance estimated from few prompts has eigenvalues that are much too small. The share of the
    other is (m - 1) / (n_prompts + m - 2).

    Parameters
    ----------
    covariance : Array, shape (m, m)
        Of ratings, m of 2 or more.
    n_prompts : float
        That estimate it; infinite: it is known, and returned as it is.

    Returns
    -------
    Array, shape (m, m)
        In the same unit.
    """
    m = len(covariance)
    if math.isinf(n_prompts):
        return covariance
    share = (m - 1) / (n_prompts + m - 2)
    centering = np.eye(m) - 1.0 / m
    level = float(np.trace(centering @ covariance)) / (m - 1)
    return (1.0 - share) * covariance + share * level * centering
