"""Who is better than whom, and how sure one may be: differences, rank sets, and what the run could have found.

Letters: i, j of m rated models, best first; s of the draws from the joint distribution of their ratings, Student's t.
All of it rests on the covariance of a leaderboard, that is on how its prompts differ. Bars that overlap say nothing of
a difference: ratings vary together, so a difference has an error of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from elo_exp.analysis.power import detectable, prompts_needed
from elo_exp.arrays import Array, Index
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Record
from elo_exp.statistics.student import degrees_of_freedom, p_values, t_quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Record):
    """One pair of rated models in one dimension, in rating points; None where the prompts do not say how sure."""

    dimension: str
    higher: str  # the model with the higher rating; of equal ones, the first by name
    lower: str
    difference: float  # 0 between equal ones
    std_error: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None  # two-sided, of this pair alone
    p_holm: float | None = None  # adjusted for all pairs and dimensions that were compared
    significant: bool | None = None  # p_holm is 5 % at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision(Record):
    """What a run could find in one dimension, by its own clustered variance: differences of an average pair, in rating
    points, that a two-sided test at 5 % finds with 80 % power. `corrected`: by Bonferroni over `n_tests`, which is
    Holm's first step."""

    dimension: str
    n_prompts: int | None  # how many independent observations there are
    n_tests: int  # pairs x dimensions that were compared
    sigma: float | None = (
        None  # standard deviation of one prompt's part in a difference, root mean square over pairs
    )
    detectable: float | None = None
    detectable_corrected: float | None = None
    prompts_needed: Mapping[str, int] = field(
        default_factory=dict
    )  # by the difference that is to be found
    prompts_needed_corrected: Mapping[str, int] = field(default_factory=dict)


ALPHA = 0.05
EFFECTS = (20, 40, 60)  # differences, in rating points, for which the prompts are counted
N_DRAWS = (
    20_000  # the 95 % quantile of max-t is then known to within .015, a probability to within .004
)
_DRAWS_A_BLOCK = 500  # so many fit in a processor's cache: three times as fast with 300 models
_NO_ERROR = 1e-3  # a standard error below this, in rating points, is rounding: no run has the 10^10 prompts it takes
_TIE_BREAK = (
    1e-4  # rating points: models that never differ, such as copies, are drawn in an arbitrary order
)


def differences(boards: Mapping[str, Leaderboard]) -> list[Difference]:
    """Every pair of rated models in every dimension, best first; p values by t tests, adjusted together."""
    found = [
        pair for dimension, board in boards.items() for pair in _pairs(dimension, _rated(board))
    ]
    adjusted = iter(holm([pair.p_value for pair in found if pair.p_value is not None]))
    return [pair if pair.p_value is None else _judged(pair, next(adjusted)) for pair in found]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order given: those up to alpha are significant with family-wise error alpha.

    The k-th smallest of n, k from 0, is multiplied by n - k; none is smaller than one before it. Holm (1979).
    """
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for k, t in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        adjusted[t] = least = max(least, min(1.0, (len(p_values) - k) * p_values[t]))
    return adjusted


def with_ranks(board: Leaderboard, rng: np.random.Generator) -> Leaderboard:
    """The leaderboard with rank sets and probabilities of being best; None where the covariance does not say.

    The sets hold all true ranks at once with 95 % confidence: a rank counts the models that are certainly better, that
    is by more than the 95 % quantile of the largest pairwise |t| (Mogstad et al. 2023). Equal ratings share a set.
    """
    rated = _rated(board)
    if not rated.is_known:
        return board
    noise = rated.noise(rng)
    m = len(rated.models)
    t = (
        rated.ratings[None, :] - rated.ratings[:, None]
    ) / rated.std_errors  # t_ij: j over i; NaN is never certain
    above = t > _largest_by_chance(rated, noise)
    equal = rated.ranks[:, None] == rated.ranks[None, :]
    low = np.where(equal, 1 + above.sum(axis=1), m).min(axis=1)
    high = np.where(equal, m - above.sum(axis=0), 1).max(axis=1)
    best = _rank_shares(rated.drawn(noise))[:, 0] if rated.is_random else None
    place = [board.models.index(model) for model in rated.models]
    rank_low, rank_high, p_best = np.full((3, len(board.models)), np.nan)
    rank_low[place], rank_high[place] = low, high
    p_best[place] = np.nan if best is None else best
    return dataclasses.replace(board, rank_low=rank_low, rank_high=rank_high, p_best=p_best)


def _largest_by_chance(rated: _Rated, noise: Array) -> Array:
    """The 95 % quantile of the largest |t|, for each pair (m, m): by the draws, or by Bonferroni where too few prompts
    tell how ratings vary together; with as many as models, the draws exclude a true rank in 11 % of runs of four
    equals. A pair that met others on fewer than all prompts is held to the same level by its own degrees of freedom."""
    if rated.df < 2 * len(rated.models):
        n_pairs = int(np.isfinite(rated.std_errors).sum()) // 2
        return _t_quantiles(rated.df_of_gaps, level=1 - ALPHA / n_pairs)
    by_draws = max_t_quantile(noise, rated.std_errors)
    by_pair = _t_quantiles(rated.df_of_gaps, level=1 - float(p_values(by_draws, rated.df)))
    return np.where(rated.df_of_gaps < rated.df, by_pair, by_draws)


def _t_quantiles(df: Array, *, level: float = 0.95) -> Array:
    """Of each number of degrees of freedom; there are few different ones."""
    different, place = np.unique(df, return_inverse=True)
    return np.array([t_quantile(one, level=level) for one in different.tolist()])[place].reshape(
        df.shape
    )


def max_t_quantile(noise: Array, std_errors: Array) -> float:
    """The 95 % quantile of the largest |t| over all pairs of models.

    noise       (m, s): ratings around their true values
    std_errors  (m, m): of the differences; a pair with NaN is left out
    """
    weight = np.nan_to_num(1.0 / std_errors)
    largest = np.zeros(noise.shape[1])
    for lo in range(0, noise.shape[1], _DRAWS_A_BLOCK):
        block, top = noise[:, lo : lo + _DRAWS_A_BLOCK].copy(), largest[lo : lo + _DRAWS_A_BLOCK]
        space = np.empty_like(block)
        for i in range(len(block) - 1):
            t = np.subtract(block[i + 1 :], block[i], out=space[i + 1 :])
            np.abs(t, out=t)
            t *= weight[i + 1 :, i, None]
            np.maximum(top, t.max(axis=0), out=top)
    return float(np.quantile(largest, 1 - ALPHA))


def rank_probabilities(board: Leaderboard, rng: np.random.Generator) -> Array | None:
    """P(the model has the rank), (m, m): rows as `models`, NaN for one without a rating; columns are ranks, from 1.

    None where the covariance does not say. A generator in the same state gives `with_ranks` the same draws.
    """
    rated = _rated(board)
    if not (rated.is_known and rated.is_random):
        return None
    shares = _rank_shares(rated.drawn(rated.noise(rng)))
    m = len(board.models)
    found = np.full((m, m), np.nan)
    rows = [board.models.index(model) for model in rated.models]
    found[rows] = np.pad(shares, ((0, 0), (0, m - len(rows))))
    return found


def precision(boards: Mapping[str, Leaderboard]) -> list[Precision]:
    """What each dimension's prompts could find, by its own variance, and how many prompts smaller differences take."""
    rated = {dimension: _rated(board) for dimension, board in boards.items()}
    n_tests = sum(len(_pair_errors(one)) for one in rated.values())
    return [
        _precision(dimension, board.n_clusters, _well_known(rated[dimension]), n_tests=n_tests)
        for dimension, board in boards.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rated:
    """The rated models of a leaderboard, best first, so that results do not depend on their names."""

    models: list[str]
    ratings: Array  # (m,)
    ranks: Index  # (m,), which equal ratings share
    covariance: Array  # (m, m)
    std_errors: (
        Array  # (m, m): of the differences; NaN where there is none, as between a model and itself
    )
    df: float  # degrees of freedom of an error that all prompts tell
    own_df: Array  # (m,): of what the prompts tell that a model was on

    @property
    def df_of_gaps(self) -> Array:
        """(m, m): of the errors of the differences."""
        return np.minimum(self.own_df[:, None], self.own_df[None, :])

    @property
    def is_known(self) -> bool:
        """Whether the covariance says of any two models how sure their difference is."""
        return bool(np.isfinite(self.std_errors).any())

    @property
    def is_random(self) -> bool:
        """Whether no two models differ without an error: of those a draw would be certain without a reason."""
        apart = np.abs(self.ratings[:, None] - self.ratings[None, :]) > _NO_ERROR
        return bool(np.isfinite(self.std_errors[apart]).all())

    def noise(self, rng: np.random.Generator) -> Array:
        """Draws (m, s) from t(0, covariance), which is singular: ratings have a fixed mean. 0 for a model without a
        variance."""
        known = np.isfinite(np.diag(self.covariance))
        values, vectors = np.linalg.eigh(self.covariance[np.ix_(known, known)])
        scale = np.sqrt(np.maximum(values, 0.0) + _TIE_BREAK**2)
        draws = (vectors * scale) @ rng.standard_normal((len(values), N_DRAWS))
        if math.isfinite(self.df):
            draws /= np.sqrt(rng.chisquare(self.df, N_DRAWS) / self.df)
        whole = np.zeros((len(known), N_DRAWS))
        whole[known] = draws
        return whole

    def drawn(self, noise: Array) -> Array:
        """Ratings (m, s) with this noise, that of a model on few prompts being as much wider as its interval."""
        stretch = _t_quantiles(self.own_df) / t_quantile(self.df)
        return np.asarray(self.ratings[:, None] + stretch[:, None] * noise)


def _rated(board: Leaderboard) -> _Rated:
    rated = [r for r in board.ratings if r.rating is not None]
    placed = [r.model for r in rated]
    rows = [board.models.index(model) for model in placed]
    whole = (
        np.full((len(board.models),) * 2, np.nan) if board.covariance is None else board.covariance
    )
    covariance = whole[np.ix_(rows, rows)]
    variance = np.diag(covariance)
    of_gap = variance[:, None] + variance[None, :] - 2.0 * covariance
    return _Rated(
        models=placed,
        ratings=np.array([r.rating for r in rated], dtype=np.float64),
        ranks=np.array([r.rank for r in rated], dtype=np.intp),
        covariance=covariance,
        std_errors=np.sqrt(np.where(of_gap > _NO_ERROR**2, of_gap, np.nan)),
        df=degrees_of_freedom(board.n_clusters),
        own_df=np.array(
            [
                degrees_of_freedom(board.row(model).n_prompts or board.n_clusters)
                for model in placed
            ],
            dtype=np.float64,
        ),
    )


def _pairs(dimension: str, rated: _Rated) -> list[Difference]:
    first, second = np.triu_indices(len(rated.models), k=1)
    gaps, errors = rated.ratings[first] - rated.ratings[second], rated.std_errors[first, second]
    gaps[rated.ranks[first] == rated.ranks[second]] = 0.0
    df = rated.df_of_gaps[first, second]
    p = _p_values(np.nan_to_num(gaps / errors), df)
    widths = (_t_quantiles(df) * errors).tolist()
    columns = (first.tolist(), second.tolist(), gaps.tolist(), errors.tolist(), widths, p.tolist())
    return [
        Difference(
            dimension=dimension,
            higher=rated.models[i],
            lower=rated.models[j],
            difference=gap,
            std_error=error if (known := math.isfinite(error)) else None,
            ci_low=gap - width if known else None,
            ci_high=gap + width if known else None,
            p_value=p_value if known else None,
        )
        for i, j, gap, error, width, p_value in zip(*columns, strict=True)
    ]


def _p_values(t: Array, df: Array) -> Array:
    found = np.empty_like(t)
    for one in np.unique(df).tolist():
        found[df == one] = p_values(t[df == one], one)
    return found


def _judged(pair: Difference, p_holm: float) -> Difference:
    return dataclasses.replace(pair, p_holm=p_holm, significant=p_holm <= ALPHA)


def _rank_shares(draws: Array) -> Array:
    """The share (m, m) of draws (m, s) in which model i has rank r, the highest being the first."""
    m, n = draws.shape
    order = np.argsort(-draws, axis=0)  # order_rs: who has rank r in draw s
    return np.stack([np.bincount(at_rank, minlength=m) for at_rank in order], axis=1) / float(n)


def _pair_errors(rated: _Rated) -> Array:
    pairs = np.triu_indices(len(rated.models), k=1)
    errors = rated.std_errors[pairs]
    return np.asarray(errors[np.isfinite(errors)])


def _well_known(rated: _Rated) -> Array:
    """The errors of pairs that met others on half as many prompts, or more, as the pair that did so on the most: what a
    stray model leaves open says nothing of the run's design."""
    pairs = np.triu_indices(len(rated.models), k=1)
    errors, df = rated.std_errors[pairs], rated.df_of_gaps[pairs]
    known = np.isfinite(errors)
    return np.asarray(errors[known & (df >= df[known].max(initial=0.0) / 2)])


def _precision(dimension: str, n_prompts: int | None, errors: Array, *, n_tests: int) -> Precision:
    nothing = Precision(dimension=dimension, n_prompts=n_prompts, n_tests=n_tests)
    if not n_prompts or not len(errors):
        return nothing
    sigma = math.sqrt(n_prompts * float((errors**2).mean()))
    return dataclasses.replace(
        nothing,
        sigma=sigma,
        detectable=detectable(sigma, n_prompts),
        detectable_corrected=detectable(sigma, n_prompts, n_tests=n_tests),
        prompts_needed={str(effect): prompts_needed(sigma, effect) for effect in EFFECTS},
        prompts_needed_corrected={
            str(effect): prompts_needed(sigma, effect, n_tests=n_tests) for effect in EFFECTS
        },
    )
