"""What a rating method returns: ratings as columns, the kind of their intervals, and rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from elo_exp.arrays import Array, Index, make_records
from elo_exp.errors import SettingError, format_value
from elo_exp.records import Record

# ordering errors on each side of what elo_results.json calls a 95% interval
Z95 = 1.96
# Rating points: a solver does not know ratings better, so closer ones are equal
EQUAL_RATING_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating(Record):
    """One line of a leaderboard, in rating points; None where the method gives no value."""

    model: str
    rating: float | None
    std_error: float | None = None
    ci_low: float | None = None  # of a 95% interval
    ci_high: float | None = None
    # Monte-Carlo error over orders, no error of the rating
    ordering_error: float | None = None
    rank: int | None = None
    rank_low: int | None = None
    rank_high: int | None = None
    # probability that no other model is better, among those whose rank set has 1; 0 of the others
    p_best: float | None = None
    n_battles: int = 0
    n_prompts: int | None = None  # on which it met others: its error comes from so many
    # unbeaten, winless, disconnected, separated or no match: why the model has no rating; of Elo,
    # which always has one, why it means little
    flag: str | None = None
    # of a ranked model without a rating: the next model below it over which it took every point, or, if
    # there is none, the next model above it that took every point from it
    neighbour: str | None = None
    neighbour_is_below: bool | None = None
    # the lower end of the exact 95% interval of the upper model's lead over the lower one
    lead_bound: float | None = None
    n_separating: int | None = None  # prompts on which the two met


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSidedPair(Record):
    """Two models of which one took every point from the other, so that no difference is finite.

    n_prompts  on which they met and which have a name; battles without one may all be on one prompt
    low        lower end of a 95% interval for the winner over the loser, rating points; None without
               such a prompt
    p_value    two-sided, against equality; None without such a prompt
    """

    winner: str
    loser: str
    n_prompts: int
    low: float | None = None
    p_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundedTests:
    """Bounded-mean tests of pairs of m models, in the unit of the ratings; NaN for a pair that was not tested.

    p_value    two-sided, of the hypothesis that both are equal
    low, high  ends of the 95% interval of i less j, where it takes the place of that of Student's t
    """

    p_value: Array  # (m, m)
    low: Array  # (m, m)
    high: Array  # (m, m)

    @classmethod
    def empty(cls, n_models: int) -> "BoundedTests":
        nan = np.full((3, n_models, n_models), np.nan)
        return cls(p_value=nan[0], low=nan[1], high=nan[2])


@dataclass(frozen=True, kw_only=True, eq=False)
class Leaderboard:
    """Ratings of m models by one method in one dimension.

    The first four fields are required. In columns (m,) NaN stands for a value that the method does not give.

    A model that took every point (unbeaten), or none (winless), has no rating. With one-sided pairs it
    has a rank and one end of its interval all the same: `ci_low`, the rating of the strongest model
    that it met plus the bound between them, or `ci_high`, the mirror image.
    """

    label: str  # the method's name for readers: "Bradley-Terry"
    # kind of the 95% intervals: "prompt-clustered"; None: it has none
    interval: str | None
    models: tuple[str, ...]  # sorted
    rating: Array  # (m,)
    unit: str = "points"  # of ratings, errors and, squared, the covariance; else score
    std_error: Array | None = None  # (m,)
    ci_low: Array | None = None  # (m,)
    ci_high: Array | None = None  # (m,)
    ordering_error: Array | None = None  # (m,)
    # (m, m); differences and ranks come from it
    covariance: Array | None = None
    samples: Array | None = None  # (s, m) ratings in permutations or resamples
    n_battles: Index | None = None  # (m,)
    n_prompts: Array | None = None  # (m,)
    n_clusters: int | None = None  # independent observations behind the errors: prompts
    # (m,) how many prompts of equal size would tell as much: these give the degrees of freedom
    n_effective: Array | None = None
    n_effective_clusters: float | None = None  # and about all models together
    # (m,) annotators of equal shares that would tell as much, where errors are also over people
    n_annotators: Array | None = None
    n_matches: int = 0  # games that the method was given
    # by the model's place in `models`
    flags: Mapping[int, str] = field(default_factory=dict)
    # what else is estimated
    parameters: Mapping[str, float | None] = field(default_factory=dict)
    rank_low: Array | None = None  # (m,)
    rank_high: Array | None = None  # (m,)
    p_best: Array | None = None  # (m,)
    # where some took every point from others: those pairs, and ranks (m,) by them and by ratings
    one_sided: tuple[OneSidedPair, ...] = ()
    rank: Index | None = None
    # beside Student's t: a lead is one if both tests say so
    bounded: BoundedTests | None = None

    @property
    def n_independent(self) -> Array | None:
        """Return the observations behind the error of each model (m,), which give its degrees of freedom.

        Effective prompts or, if they are fewer, annotators; None if neither is known.
        """
        n = self.n_prompts if self.n_effective is None else self.n_effective
        if n is None or self.n_annotators is None:
            return n
        return np.minimum(n, self.n_annotators)

    def ranks(self) -> Index:
        """Rank the models (m,) from 1; 0 where nothing orders one among those that have a rating.

        Without one-sided pairs by ratings alone. Those within LEVEL share a rank.
        """
        if self.rank is not None:
            return self.rank
        ranks = np.zeros(len(self.models), dtype=np.intp)
        order = np.argsort(-self.rating, kind="stable")[
            : int(np.isfinite(self.rating).sum())
        ]
        if len(order):
            is_lower = np.append(
                True, -np.diff(self.rating[order]) > EQUAL_RATING_TOLERANCE
            )
            ranks[order] = (1 + np.flatnonzero(is_lower))[np.cumsum(is_lower) - 1]
        return ranks

    @cached_property
    def ratings(self) -> tuple[Rating, ...]:
        """The rows, best first; models without a rank come last. Equal ones go by name."""
        m = len(self.models)
        numbers = ("std_error", "ci_low", "ci_high", "ordering_error", "p_best")
        counts = ("rank_low", "rank_high", "n_prompts")
        columns: dict[str, Any] = {}
        for name in (*numbers, *counts):
            column = getattr(self, name)
            columns[name] = np.full(m, np.nan) if column is None else column
        for name in counts:
            counts_or_nan = columns[name].tolist()
            columns[name] = [None if math.isnan(n) else int(n) for n in counts_or_nan]
        steps = self._find_next_models()
        names = ("neighbour", "neighbour_is_below", "lead_bound", "n_separating")
        for i, name in enumerate(names):
            columns[name] = [step[i] for step in steps]
        rows = make_records(
            Rating,
            model=self.models,
            rating=self.rating,
            rank=[rank or None for rank in self.ranks().tolist()],
            n_battles=np.zeros(m, int) if self.n_battles is None else self.n_battles,
            flag=[self.flags.get(i) for i in range(m)],
            **columns,
        )
        return tuple(sorted(rows, key=lambda row: (row.rank or m + 1, row.model)))

    def _find_next_models(
        self,
    ) -> list[tuple[str | None, bool | None, float | None, int | None]]:
        """Find for each ranked model without a rating the next model and the exact bound between the two."""
        m, ranks = len(self.models), self.ranks().tolist()
        rank = dict(zip(self.models, ranks, strict=True))
        steps: list[tuple[str | None, bool | None, float | None, int | None]] = []
        for model, rating in zip(self.models, self.rating.tolist(), strict=True):
            is_open = rank[model] > 0 and math.isnan(rating)
            won = [p for p in self.one_sided if is_open and p.winner == model]
            lost = [p for p in self.one_sided if is_open and p.loser == model]
            step = None
            if won:
                step = min(won, key=lambda pair: rank[pair.loser] or m + 1)
            elif lost:
                step = max(lost, key=lambda pair: rank[pair.winner])
            if step is None or step.low is None:
                steps.append((None, None, None, None))
            else:
                neighbour = step.loser if won else step.winner
                steps.append((neighbour, bool(won), step.low, step.n_prompts))
        return steps

    def row(self, model: str) -> Rating:
        return next(row for row in self.ratings if row.model == model)


def t_quantile(df: float | Array, *, level: float = 0.95) -> Array:
    """Return the standard errors on each side of an interval, by Student's t.

    Parameters
    ----------
    df : float or Array
        Degrees of freedom: of an error estimated from n prompts, n - 1.
    level : float, default 0.95
        Of the interval.

    Returns
    -------
    Array
        Of the shape of `df`.

    References
    ----------
    .. [1] A. C. Cameron and D. L. Miller (2015), "A practitioner's guide to cluster-robust inference",
       Journal of Human Resources 50(2), 317-372.

    Examples
    --------
    >>> [round(float(t_quantile(n - 1.0)), 2) for n in (4, 143)]
    [3.18, 1.98]
    """
    return np.asarray(scipy.special.stdtrit(df, (1 + level) / 2))


def degrees_of_freedom(n_prompts: float | Array) -> Array:
    """Return the degrees of freedom of an error that prompts estimate: one less than these.

    Parameters
    ----------
    n_prompts : float or Array
        Independent observations.

    Returns
    -------
    Array
        Of the same shape, at least 1: two prompts are needed to estimate an error.
    """
    return np.maximum(np.asarray(n_prompts) - 1.0, 1.0)


def add_intervals(
    board: Leaderboard, std_error: Array, n_prompts: Array | None = None
) -> Leaderboard:
    """Add standard errors and their 95% intervals to a leaderboard.

    Parameters
    ----------
    board : Leaderboard
        Of m models.
    std_error : Array, shape (m,)
        In the unit of the ratings; NaN for none.
    n_prompts : Array, shape (m,), optional
        Behind each error; None: the board's own, effective ones where it has them; without any, normal
        quantiles are taken.

    Returns
    -------
    Leaderboard
        Models without a rating have neither error nor interval.
    """
    n = board.n_independent if n_prompts is None else n_prompts
    n = np.full(len(board.models), np.inf) if n is None else n
    std_error = np.where(np.isfinite(board.rating), std_error, np.nan)
    half_width = t_quantile(degrees_of_freedom(n)) * std_error
    return replace(
        board,
        std_error=std_error,
        ci_low=board.rating - half_width,
        ci_high=board.rating + half_width,
    )


def pin_rating(board: Leaderboard, model: str, at: float) -> Leaderboard:
    """Move the scale to where one model has a given rating; errors are of the distance to it.

    Parameters
    ----------
    board : Leaderboard
        With a covariance.
    model : str
        That fixes the scale.
    at : float
        Its rating, in the board's unit.

    Returns
    -------
    Leaderboard
        The model itself has an error of zero, and prompts of others are no more than its own.

    Raises
    ------
    SettingError
        Where the model is not rated.
    """
    baseline = board.models.index(model) if model in board.models else -1
    if baseline < 0 or math.isnan(board.rating[baseline]):
        rated = ", ".join(r.model for r in board.ratings[:5] if r.rating is not None)
        raise SettingError(
            f"baseline_model must be a rated model, such as {rated}; got {format_value(model)}."
        )
    pinned_board = replace(board, rating=board.rating - board.rating[baseline] + at)
    if board.samples is not None:
        pinned_board = replace(
            pinned_board, samples=board.samples - board.samples[:, [baseline]] + at
        )
    assert board.covariance is not None and board.n_prompts is not None
    column = board.covariance[:, [baseline]]
    distances = (
        board.covariance - column - column.T + board.covariance[baseline, baseline]
    )
    # without a variance of its own, other pairs are known as before
    if math.isfinite(board.covariance[baseline, baseline]):
        pinned_board = replace(pinned_board, covariance=distances)
    n_independent = board.n_independent
    assert n_independent is not None
    n_prompts = np.minimum(n_independent, n_independent[baseline])
    return add_intervals(
        pinned_board, np.sqrt(np.maximum(np.diag(distances), 0.0)), n_prompts
    )


def compute_running_means(
    samples: Array, *, n_points: int = 120
) -> tuple[Index, Array, Array]:
    """Return how the mean over permutations settles, at log-spaced numbers of them.

    Parameters
    ----------
    samples : Array, shape (p, m)
        Of a leaderboard by permutations.
    n_points : int, default 120
        How many numbers of permutations at most.

    Returns
    -------
    counts : Index, shape (n,)
        Numbers of permutations, from 1 to p.
    means, errors : Array, shape (n, m)
        The means over the first so many, and their Monte Carlo standard errors, zero of one
        permutation.
    """
    counts = np.unique(np.geomspace(1, len(samples), n_points).round().astype(np.intp))
    n = counts[:, None]
    means = np.cumsum(samples, axis=0)[counts - 1] / n
    shifted = samples - samples[0]  # small numbers: their squares lose no digits
    squares = np.cumsum(shifted**2, axis=0)[counts - 1] - n * (means - samples[0]) ** 2
    errors = np.sqrt(np.maximum(squares, 0.0) / np.maximum(n - 1, 1) / n)
    return counts, means, errors
