"""Which models differ, which ranks are possible and who is best, from a leaderboard's covariance.

Ratings vary together, so overlapping intervals are no test of a difference: each difference has
an error of its own. Letters: i, j of m rated models, best first; p of their pairs; s of the draws
from the joint distribution of the ratings, Student's t.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from elo_exp.arrays import Array, Index, records, spread
from elo_exp.ratings.leaderboard import Leaderboard, degrees_of_freedom, t_quantile
from elo_exp.records import Record

ALPHA = 0.05
# the 95 % quantile of max-t is then known to .015, a probability to .004
N_DRAWS = 20_000
_N_DRAWS_OF_MANY = 5_000
_MANY_MODELS = 100
_DRAWS_A_BLOCK = 500  # fit in a processor's cache: three times as fast with 300 models
_ROUNDING = (
    1e-10  # of two variances: what rounding leaves of the zero variance of a difference
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Record):
    """The difference of two rated models, in rating points.

    None where the prompts cannot show how uncertain it is.
    """

    dimension: str
    higher: str  # the model with the higher rating; of equal ones, the first by name
    lower: str
    difference: float  # 0 between models of equal rank
    std_error: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None  # two-sided, of this pair alone
    p_holm: float | None = None  # adjusted for all pairs and dimensions
    significant: bool | None = None  # p_holm <= ALPHA


def differences(boards: Mapping[str, Leaderboard]) -> list[Difference]:
    """Test every pair of rated models in every dimension, best first.

    Two-sided t tests; p values adjusted over all pairs and dimensions together (Holm 1979).
    """
    tables = [
        _pair_tests(dimension, rated(board)) for dimension, board in boards.items()
    ]
    if not tables:
        return []
    columns = {
        name: np.concatenate([table[name] for table in tables]) for name in tables[0]
    }
    p_holm = holm(columns["p_value"])
    significant = [None if math.isnan(p) else p <= ALPHA for p in p_holm.tolist()]
    return records(Difference, **columns, p_holm=p_holm, significant=significant)


def _pair_tests(dimension: str, models: Rated) -> dict[str, NDArray[Any]]:
    i, j = np.triu_indices(len(models.names), k=1)
    is_level = models.rank[i] == models.rank[j]
    difference = np.where(is_level, 0.0, models.rating[i] - models.rating[j])
    std_error, df = models.std_error[i, j], models.df_of_differences()[i, j]
    half_width = t_quantile(df) * std_error
    return {
        "dimension": np.full(len(i), dimension, dtype=object),
        "higher": models.names[i],
        "lower": models.names[j],
        "difference": difference,
        "std_error": std_error,
        "ci_low": difference - half_width,
        "ci_high": difference + half_width,
        "p_value": 2.0 * special.stdtr(df, -np.abs(difference / std_error)),
    }


def holm(p_values: Array) -> Array:
    """Adjust p values for their number; NaN is no test.

    Those up to alpha are significant with family-wise error alpha: the k-th smallest of n, k from
    0, is multiplied by n - k, and none is smaller than one before it. Holm (1979).
    """
    tested = np.flatnonzero(np.isfinite(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    multiplied = np.minimum(1.0, p_values[order] * np.arange(len(order), 0, -1))
    adjusted = np.full(len(p_values), np.nan)
    adjusted[order] = np.maximum.accumulate(multiplied)
    return adjusted


# Ranks


def with_ranks(board: Leaderboard, rng: np.random.Generator) -> Leaderboard:
    """Add rank sets to a leaderboard.

    The sets contain all true ranks at once with 95 % confidence: a rank counts the models that are
    better by more than the 95 % quantile of the largest pairwise |t| (Mogstad et al. 2023). Equal
    ratings share a set. Without a covariance the leaderboard is returned as it is.
    """
    models = rated(board)
    if not np.isfinite(models.std_error).any():
        return board
    noise = _noise(models, rng)
    m = len(models.names)
    t = (
        models.rating[None, :] - models.rating[:, None]
    ) / models.std_error  # of j over i
    better = t > _critical_t(models, noise)  # False for NaN
    is_level = models.rank[:, None] == models.rank[None, :]
    low = np.where(is_level, 1 + better.sum(axis=1), m).min(axis=1)
    high = np.where(is_level, m - better.sum(axis=0), 1).max(axis=1)
    return dataclasses.replace(
        board,
        rank_low=spread(low, models.place, len(board.models)),
        rank_high=spread(high, models.place, len(board.models)),
    )


def _noise(models: Rated, rng: np.random.Generator) -> Array:
    """Draw (m, s) from t(0, covariance), which is singular: ratings have a fixed mean.

    0 for a model without a variance.
    """
    n_draws = N_DRAWS if len(models.names) <= _MANY_MODELS else _N_DRAWS_OF_MANY
    has_variance = np.isfinite(np.diag(models.covariance))
    covariance = models.covariance[np.ix_(has_variance, has_variance)]
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T  # has no sign
    draws = root @ rng.standard_normal((len(values), n_draws))
    if math.isfinite(models.df_of_all):
        draws /= np.sqrt(rng.chisquare(models.df_of_all, n_draws) / models.df_of_all)
    noise = np.zeros((len(models.names), n_draws))
    noise[has_variance] = draws
    return noise


def _critical_t(models: Rated, noise: Array) -> Array:
    """The 95 % quantile of the largest |t| over all pairs, for each pair (m, m).

    By the draws; by Bonferroni where fewer than 2 m prompts estimate the covariance (with m prompts
    the draws exclude a true rank in 11 % of runs of four equals). A pair with fewer degrees of
    freedom than all prompts have is tested at the same level by its own.
    """
    df, df_of_all = models.df_of_differences(), models.df_of_all
    if df_of_all < 2 * len(models.names):
        n_pairs = np.isfinite(models.std_error).sum() // 2
        return t_quantile(df, level=1.0 - ALPHA / n_pairs)
    by_draws = max_t_quantile(noise, models.std_error)
    level = 1.0 - 2.0 * special.stdtr(df_of_all, -by_draws)
    return np.where(df < df_of_all, t_quantile(df, level=level), by_draws)


def max_t_quantile(noise: Array, std_error: Array) -> float:
    """The 95 % quantile of the largest |t| over all pairs of models.

    noise      (m, s): ratings around their true values
    std_error  (m, m): of the differences; a pair with NaN is left out
    """
    weight = np.nan_to_num(1.0 / std_error)
    largest = np.zeros(noise.shape[1])
    for start in range(0, noise.shape[1], _DRAWS_A_BLOCK):
        block = noise[:, start : start + _DRAWS_A_BLOCK].copy()
        top = largest[start : start + _DRAWS_A_BLOCK]
        for i in range(len(block) - 1):
            t = np.abs(block[i + 1 :] - block[i]) * weight[i + 1 :, i, None]
            np.maximum(top, t.max(axis=0), out=top)
    return float(np.quantile(largest, 1.0 - ALPHA))


# The rated models


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rated:
    """The rated models of a leaderboard, best first, so that no result depends on their names."""

    names: NDArray[np.object_]  # (m,)
    place: Index  # (m,) among the leaderboard's models
    rating: Array  # (m,)
    rank: Index  # (m,), shared by equal ratings
    covariance: Array  # (m, m)
    std_error: Array  # (m, m), of the differences; NaN where there is none
    df: Array  # (m,) degrees of freedom, of the prompts on which each model met others
    df_of_all: float  # of all prompts

    def df_of_differences(self) -> Array:
        """(m, m): of the model that met others on fewer prompts."""
        return np.minimum(self.df[:, None], self.df[None, :])


def rated(board: Leaderboard) -> Rated:
    ranks, m = board.ranks(), len(board.models)
    place = np.flatnonzero(ranks)
    place = place[np.argsort(ranks[place], kind="stable")]
    covariance = (
        np.full((m, m), np.nan) if board.covariance is None else board.covariance
    )
    covariance = covariance[np.ix_(place, place)]
    variance = np.diag(covariance)
    of_sum = variance[:, None] + variance[None, :]
    of_difference = of_sum - 2.0 * covariance
    n_of_all = math.inf if board.n_clusters is None else board.n_clusters
    own = np.full(m, n_of_all) if board.n_prompts is None else board.n_prompts
    return Rated(
        names=np.array(board.models, dtype=object)[place],
        place=place,
        rating=board.rating[place],
        rank=ranks[place],
        covariance=covariance,
        std_error=np.sqrt(
            np.where(of_difference > _ROUNDING * of_sum, of_difference, np.nan)
        ),
        df=degrees_of_freedom(own[place]),
        df_of_all=float(degrees_of_freedom(n_of_all)),
    )
