"""Which models differ, which ranks are possible and who is first, from a leaderboard's covariance.

Ratings vary together, so overlapping intervals are no test of a difference: each difference has
an error of its own. Letters: i, j of m rated models, best first; p of their pairs; s of the draws
from the joint distribution of the ratings, Student's t.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from elo_exp.analysis.complete_separation import transitive_closure
from elo_exp.arrays import Array, Index, Mask, fill_nan, make_records
from elo_exp.ratings.leaderboard import Leaderboard, degrees_of_freedom, t_quantile
from elo_exp.records import Record

ALPHA = 0.05
# Effective ones: with fewer, no test of a lead is made
MIN_PROMPTS_FOR_LEAD = 20
# the 95% quantile of max-t is then known to .015, a probability to .004
N_RANK_DRAWS = 20_000
_N_DRAWS_WITH_MANY_MODELS = 5_000
_MAX_MODELS_WITH_ALL_DRAWS = 100
# So many fit in a processor's cache: three times as fast with 300 models
_DRAWS_PER_BLOCK = 500
# The variance of a difference is rounding if it is a smaller part of the two models' variances
_MIN_PART_OF_VARIANCES = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Record):
    """The difference of two models, in rating points.

    None where the prompts cannot show how uncertain it is. Where `higher` took every point from
    `lower`, the pair is one-sided: `ci_low` and the test are exact, difference, std_error and ci_high
    None.
    """

    dimension: str
    higher: str  # the model with the higher rating; of equal ones, the first by name
    lower: str
    difference: float | None  # 0 between models of equal rank
    std_error: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None  # two-sided, of this pair alone
    p_holm: float | None = None  # adjusted for all pairs and dimensions
    significant: bool | None = None  # p_holm <= ALPHA
    one_sided: bool = False
    # of a one-sided pair: on which the winner took every point, 0 where battles name none
    n_prompts: int | None = None


def differences(boards: Mapping[str, Leaderboard]) -> list[Difference]:
    """Test every pair of rated models and every one-sided pair in every dimension.

    Two-sided t tests, of which a lead has to pass the bounded-mean test as well (the p value is the larger of both),
    and exact tests of one-sided pairs; p values adjusted over all pairs and
    dimensions together [1]_.

    Parameters
    ----------
    boards : mapping of str to Leaderboard
        By dimension, all of one method.

    Returns
    -------
    list of Difference
        In the unit of the ratings, dimension by dimension, the pairs of the best first.

    References
    ----------
    .. [1] S. Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
       Statistics 6(2), 65-70.
    """
    tables = [_test_pairs(dimension, board) for dimension, board in boards.items()]
    if not tables:
        return []
    columns = {
        name: np.concatenate([table.pop(name) for table in tables])
        for name in list(tables[0])
    }
    p_holm = adjust_by_holm(columns["p_value"])
    significant = [None if math.isnan(p) else p <= ALPHA for p in p_holm.tolist()]
    return make_records(Difference, **columns, p_holm=p_holm, significant=significant)


def _test_pairs(dimension: str, board: Leaderboard) -> dict[str, NDArray[Any]]:
    models, pairs = rank_rated_models(board), board.one_sided
    i, j = np.triu_indices(len(models.names), k=1)
    is_level = models.rank[i] == models.rank[j]
    difference = np.where(is_level, 0.0, models.rating[i] - models.rating[j])
    std_error, df = models.std_error[i, j], models.df_of_differences()[i, j]
    half_width = t_quantile(df) * std_error
    ci_low, ci_high = difference - half_width, difference + half_width
    index = {model: n for n, model in enumerate(board.models)}
    higher = [*models.place[i].tolist(), *(index[pair.winner] for pair in pairs)]
    lower = [*models.place[j].tolist(), *(index[pair.loser] for pair in pairs)]
    names, no_values = np.array(board.models, dtype=object), np.full(len(pairs), np.nan)
    p_value = 2.0 * scipy.special.stdtr(df, -np.abs(difference / std_error))
    if (tests := board.bounded) is not None:
        cells = models.place[i], models.place[j]
        p_value = np.fmax(p_value, tests.p_value[cells])
        is_replaced = np.isfinite(tests.p_value[cells]) & ~np.isnan(tests.low[cells])
        ci_low = np.where(is_replaced, tests.low[cells], ci_low)
        ci_high = np.where(is_replaced, tests.high[cells], ci_high)
    columns: dict[str, NDArray[Any]] = {
        "dimension": np.full(len(higher), dimension, dtype=object),
        "higher": names[higher],
        "lower": names[lower],
        "difference": np.append(difference, no_values),
        "std_error": np.append(std_error, no_values),
        "ci_low": np.append(ci_low, _to_array(p.low for p in pairs)),
        "ci_high": np.append(ci_high, no_values),
        "p_value": np.append(p_value, _to_array(p.p_value for p in pairs)),
        "one_sided": np.arange(len(higher)) >= len(i),
        "n_prompts": np.append(np.full(len(i), None), [p.n_prompts for p in pairs]),
    }
    position = np.argsort([index[row.model] for row in board.ratings])
    order = np.lexsort((position[lower], position[higher]))
    return {name: column[order] for name, column in columns.items()}


def _to_array(values: Iterable[float | None]) -> Array:
    return np.array([math.nan if x is None else x for x in values], dtype=np.float64)


def adjust_by_holm(p_values: Array) -> Array:
    """Adjust p values for their number.

    The k-th smallest of n, k from 0, is multiplied by n - k, and none is smaller than one before it.
    Those up to alpha are then significant with family-wise error alpha [1]_.

    Parameters
    ----------
    p_values : Array, shape (n,)
        NaN is no test, and is not counted.

    Returns
    -------
    Array, shape (n,)
        At most 1; NaN where there is no test.

    References
    ----------
    .. [1] S. Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
       Statistics 6(2), 65-70.

    Examples
    --------
    >>> adjust_by_holm(np.array([0.04, 0.01, np.nan, 0.03])).tolist()
    [0.06, 0.03, nan, 0.06]
    """
    finite = np.flatnonzero(np.isfinite(p_values))
    order = finite[np.argsort(p_values[finite], kind="stable")]
    multiplied = np.minimum(1.0, p_values[order] * np.arange(len(order), 0, -1))
    adjusted = np.full(len(p_values), np.nan)
    adjusted[order] = np.maximum.accumulate(multiplied)
    return adjusted


# Ranks


def add_ranks(board: Leaderboard, rng: np.random.Generator) -> Leaderboard:
    """Add rank sets to a leaderboard.

    The sets contain all true ranks at once with 95% confidence: a rank counts the models that are
    better for certain. Of two rated models one is so by more than the quantile of the largest
    pairwise |t| [1]_, of a one-sided pair by its exact test. If S of P pairs are one-sided, each of
    these is tested at .05 / P, and all others together at .05 (P - S) / P. All tests hold at once: if A
    is better than B, and B better than C, A is better than C. Equal ratings share a set.

    Parameters
    ----------
    board : Leaderboard
        Of m models.
    rng : numpy.random.Generator
        Of the draws behind the quantile.

    Returns
    -------
    Leaderboard
        With `rank_low` and `rank_high` (m,); as it is without a covariance and one-sided tests.

    References
    ----------
    .. [1] M. Mogstad, J. P. Romano, A. M. Shaikh and D. Wilhelm (2024), "Inference for ranks with
       applications to mobility across neighbourhoods and academic achievement across countries",
       Review of Economic Studies 91(1), 476-518; online in 2023.
    """
    models, ranks = rank_rated_models(board), board.ranks()
    n_rated = int(np.isfinite(models.std_error).sum()) // 2
    tested_pairs = [pair for pair in board.one_sided if pair.p_value is not None]
    if not (n_rated or tested_pairs):
        return board
    n_pairs = n_rated + len(tested_pairs)
    better = np.zeros((len(ranks), len(ranks)), dtype=np.bool_)  # of i over j
    if n_rated:
        t = (models.rating[:, None] - models.rating) / models.std_error
        critical = _compute_critical_t(
            models, _draw_noise(models, rng), ALPHA * n_rated / n_pairs
        )
        is_better = t > critical  # False for NaN
        if board.bounded is not None:
            level = 2.0 * scipy.special.stdtr(models.df_of_differences(), -critical)
            tested_p = board.bounded.p_value[np.ix_(models.place, models.place)]
            is_better &= ~(tested_p > level)  # of a pair that was not tested, t decides
        better[np.ix_(models.place, models.place)] = is_better
    index = {model: i for i, model in enumerate(board.models)}
    for pair in tested_pairs:
        if (pair.p_value or 0.0) <= ALPHA / n_pairs:
            better[index[pair.winner], index[pair.loser]] = True
    is_ranked, is_rated = ranks > 0, np.isfinite(board.rating)
    better = transitive_closure(better)[np.ix_(is_ranked, is_ranked)]
    m = len(better)
    is_level = (ranks[:, None] == ranks) & is_rated & is_rated[:, None]
    is_level = is_level[np.ix_(is_ranked, is_ranked)] | np.eye(m, dtype=np.bool_)
    low = np.where(is_level, 1 + better.sum(axis=0), m).min(axis=1)
    high = np.where(is_level, m - better.sum(axis=1), 1).max(axis=1)
    return dataclasses.replace(
        board,
        rank_low=fill_nan(low, is_ranked, len(board.models)),
        rank_high=fill_nan(high, is_ranked, len(board.models)),
    )


def _draw_noise(models: RatedModels, rng: np.random.Generator) -> Array:
    """Draw (m, s) from t(0, covariance), which is singular: ratings have a fixed mean.

    0 for a model without a variance.
    """
    n_draws = (
        N_RANK_DRAWS
        if len(models.names) <= _MAX_MODELS_WITH_ALL_DRAWS
        else _N_DRAWS_WITH_MANY_MODELS
    )
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


def _compute_critical_t(models: RatedModels, noise: Array, alpha: float) -> Array:
    """Compute the 1 - alpha quantile of the largest |t| over all pairs, for each pair (m, m).

    By the draws; by Bonferroni if fewer than 2 m prompts estimate the covariance (with m prompts
    the draws exclude a true rank in 11% of runs of four equals). A pair with fewer degrees of
    freedom than all prompts have is tested at the same level by its own.
    """
    df, df_of_all = models.df_of_differences(), models.df_of_all
    if df_of_all < 2 * len(models.names):
        n_pairs = np.isfinite(models.std_error).sum() // 2
        return t_quantile(df, level=1.0 - alpha / n_pairs)
    by_draws = max_t_quantile(noise, models.std_error, alpha)
    level = 1.0 - 2.0 * scipy.special.stdtr(df_of_all, -by_draws)
    return np.where(df < df_of_all, t_quantile(df, level=level), by_draws)


def max_t_quantile(noise: Array, std_error: Array, alpha: float = ALPHA) -> float:
    """Return the 1 - alpha quantile of the largest |t| over all pairs of models.

    Parameters
    ----------
    noise : Array, shape (m, s)
        Draws of the ratings around their true values.
    std_error : Array, shape (m, m)
        Of the differences, in the same unit; a pair with NaN is left out.
    alpha : float, default ALPHA
        Family-wise level.

    Returns
    -------
    float
        In standard errors.
    """
    weight = np.nan_to_num(1.0 / std_error)
    largest = np.zeros(noise.shape[1])
    for start in range(0, noise.shape[1], _DRAWS_PER_BLOCK):
        block = noise[:, start : start + _DRAWS_PER_BLOCK].copy()
        top = largest[start : start + _DRAWS_PER_BLOCK]
        for i in range(len(block) - 1):
            t = np.abs(block[i + 1 :] - block[i]) * weight[i + 1 :, i, None]
            np.maximum(top, t.max(axis=0), out=top)
    return float(np.quantile(largest, 1.0 - alpha))


# The first of a leaderboard


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The first model of a leaderboard and the tests of it against each other model.

    Every other model is in exactly one of below, rivals and not_met.

    model    the first; of several that share its rank, by name
    second   the next one that the first was compared with, or the next one
    lead     the difference of both; None where they were not compared, and not significant (None) where
             no error is known. `one_sided`: the first took every point on its `n_prompts`
    level    models with the same rating as the first; they are rivals, too
    below    than which the first is significantly better, by its own test or by a chain of tests,
             all of which hold at once by Holm's family-wise error
    rivals   that may be as good: compared with the first or with one below it, and not below
    not_met  compared with none of these
    """

    model: str
    second: str
    lead: Difference | None
    level: tuple[str, ...]
    below: tuple[str, ...]
    rivals: tuple[str, ...]
    not_met: tuple[str, ...]


def find_leader(board: Leaderboard, pairs: Sequence[Difference]) -> Leader | None:
    """Sum up what is known of the first of a leaderboard.

    Parameters
    ----------
    board : Leaderboard
        With ranks.
    pairs : sequence of Difference
        The differences of this leaderboard and dimension; of planned looks, too.

    Returns
    -------
    Leader or None
        None where fewer than two models are ranked.
    """
    rows = board.ratings
    if len(rows) < 2 or rows[1].rank is None:
        return None
    best, other_models = rows[0], [row.model for row in rows[1:]]
    with_best = {
        d.lower if d.higher == best.model else d.higher: d
        for d in pairs
        if best.model in (d.higher, d.lower)
    }
    worse: dict[str, list[str]] = {}
    for d in pairs:
        if d.significant:
            worse.setdefault(d.higher, []).append(d.lower)
    below, frontier = set[str](), [best.model]
    while frontier:
        frontier = [
            model
            for better in frontier
            for model in worse.get(better, ())
            if model not in below
        ]
        below |= {*frontier}
    below -= {best.model}
    leading_models = {best.model, *below}
    met = {
        model
        for d in pairs
        if d.higher in leading_models or d.lower in leading_models
        for model in (d.higher, d.lower)
    }
    second = next((m for m in other_models if m in with_best), other_models[0])
    return Leader(
        model=best.model,
        second=second,
        lead=with_best.get(second),
        level=tuple(
            row.model
            for row in rows[1:]
            if row.rank == best.rank and None not in (row.rating, best.rating)
        ),
        below=tuple(m for m in other_models if m in below),
        rivals=tuple(m for m in other_models if m in met - below),
        not_met=tuple(m for m in other_models if m not in met | below),
    )


# The rated models


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatedModels:
    """The rated models of a leaderboard, best first, so that no result depends on their names."""

    names: NDArray[np.object_]
    # Positions of the models in the leaderboard
    place: Index
    rating: Array
    # Equal ratings share a rank
    rank: Index
    covariance: Array
    # Standard errors of the differences, (m, m); NaN if a difference has none
    std_error: Array
    # Degrees of freedom of each model, from the prompts on which it met others
    df: Array
    # Degrees of freedom from all prompts
    df_of_all: float

    def df_of_differences(self) -> Array:
        """(m, m): of the model that met others on fewer prompts."""
        return np.minimum(self.df[:, None], self.df[None, :])


def rank_rated_models(board: Leaderboard, chosen: Mask | None = None) -> RatedModels:
    """Return the rated models of a leaderboard, best first, with the errors of their differences.

    Parameters
    ----------
    board : Leaderboard
        Of n models.
    chosen : Mask, shape (n,), optional
        Models to take of the rated ones; None: all.

    Returns
    -------
    RatedModels
        Of m models; errors are NaN where there is no covariance, or where rounding alone is left of the
        variance of a difference.
    """
    ranks, m = board.ranks(), len(board.models)
    is_rated = np.isfinite(board.rating)
    index = np.flatnonzero(is_rated if chosen is None else is_rated & chosen)
    index = index[np.argsort(ranks[index], kind="stable")]
    covariance = (
        np.full((m, m), np.nan) if board.covariance is None else board.covariance
    )
    covariance = covariance[np.ix_(index, index)]
    variance = np.diag(covariance)
    variance_of_sum = variance[:, None] + variance[None, :]
    variance_of_difference = variance_of_sum - 2.0 * covariance
    n_of_all = board.n_effective_clusters or board.n_clusters or math.inf
    if board.n_annotators is not None and np.isfinite(board.n_annotators).any():
        n_of_all = min(n_of_all, float(np.nanmin(board.n_annotators)))
    n_independent = board.n_independent
    n_independent = np.full(m, n_of_all) if n_independent is None else n_independent
    return RatedModels(
        names=np.array(board.models, dtype=object)[index],
        place=index,
        rating=board.rating[index],
        rank=ranks[index],
        covariance=covariance,
        std_error=np.sqrt(
            np.where(
                variance_of_difference
                > _MIN_PART_OF_VARIANCES * np.abs(variance_of_sum),
                variance_of_difference,
                np.nan,
            )
        ),
        df=degrees_of_freedom(n_independent[index]),
        df_of_all=float(degrees_of_freedom(n_of_all)),
    )
