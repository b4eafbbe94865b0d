"""Bounds of the mean of values that have a least and a greatest, however skewed or alike they are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from elo_exp.arrays import Array

_N_DRAWS = 20_000
# Fixed, so that the same values have the same bound
_DRAWS_SEED = 1
# Their weights take 10 MB
_VALUES_PER_BLOCK = 64
# Levels at which `BoundTable` knows its bounds; between them it interpolates
MIN_LEVEL = 0.5 / _N_DRAWS
_LEVELS = np.geomspace(MIN_LEVEL, 0.5, 200)


def lower_bound(values: ArrayLike, *, alpha: float, least: float = 0.0) -> float:
    """Return a one-sided lower bound of the mean of bounded values.

    Student's t takes the spread of a sample for that of the population, which fails where most values are
    alike and the rest lie far out: ties but for a few losses. Here one more value is taken to have come
    out as badly as a value can. The bound is the alpha quantile of the weighted mean of the n + 1 values
    under Dirichlet(1, ..., 1) weights. For values of 0 and 1 it is the bound of Clopper and Pearson.
    That it holds for all distributions is conjectured; no counterexample is known.

    Parameters
    ----------
    values : array_like, shape (n,)
        Independent values, in the unit of the mean; n may be 0, and then the bound is `least`.
    alpha : float
        Probability that the bound is above the true mean, in (0, 1).
    least : float, default 0.0
        The least that a value can be, in the same unit.

    Returns
    -------
    float
        The bound, from 20,000 draws of a fixed seed; the order of the values does not matter.

    Raises
    ------
    ValueError
        If a value is not finite, or alpha is no probability.

    See Also
    --------
    upper_bound : The same from above.

    References
    ----------
    .. [1] N. Gaffke (2005), "Three test statistics for a nonparametric one-sided hypothesis on the mean of
       a nonnegative variable", Mathematical Methods of Statistics 14(4), 451-467.
    .. [2] E. Learned-Miller and P. S. Thomas (2019), "A new confidence interval for the mean of a bounded
       random variable", arXiv:1905.06208.

    Examples
    --------
    >>> round(lower_bound([1.0] * 20, alpha=0.025), 2)  # .025 ** (1 / 20)
    0.83
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must be between 0 and 1; got {alpha}.")
    x = np.asarray(values, dtype=np.float64)
    if not np.isfinite(x).all():
        raise ValueError("values must be finite numbers.")
    return float(np.quantile(_weighted_means(np.append(x, least)), alpha))


def upper_bound(values: ArrayLike, *, alpha: float, most: float = 1.0) -> float:
    """Return a one-sided upper bound of the mean of bounded values: `lower_bound`, mirrored.

    Parameters
    ----------
    values : array_like, shape (n,)
        Independent values, in the unit of the mean; n may be 0, and then the bound is `most`.
    alpha : float
        Probability that the bound is below the true mean, in (0, 1).
    most : float, default 1.0
        The most that a value can be, in the same unit.

    Returns
    -------
    float
        The bound.

    Raises
    ------
    ValueError
        If a value is not finite, or alpha is no probability.

    Examples
    --------
    >>> round(upper_bound([0.0] * 20, alpha=0.025), 2)
    0.17
    """
    mirrored = -np.asarray(values, dtype=np.float64)
    return -lower_bound(mirrored, alpha=alpha, least=-most)


@dataclass(frozen=True, slots=True)
class BoundTable:
    """How far the true mean may be from the mean of bounded values, at every level.

    below, above  (200,) distances of `lower_bound` and `upper_bound` from the mean of the values, at
                  one-sided levels from 0.000025 to 0.5; at smaller levels that of the smallest
    """

    below: Array
    above: Array

    def reach(self, alpha: float) -> tuple[float, float]:
        """Return how far below and above the mean the true one may be, each side with error alpha."""
        log_level = np.log(np.clip(alpha, _LEVELS[0], _LEVELS[-1]))
        below, above = (
            float(np.interp(log_level, np.log(_LEVELS), side))
            for side in (self.below, self.above)
        )
        return max(below, 0.0), max(above, 0.0)


def bound_tables(
    values: ArrayLike, *, least: ArrayLike, most: ArrayLike
) -> list[BoundTable]:
    """Return the bounds of several means of the same observations: `lower_bound` and `upper_bound` of each.

    All columns share one set of weights, so that a hundred means take hardly longer than one.

    Parameters
    ----------
    values : array_like, shape (n, k)
        A row for each independent observation, a column for each mean.
    least, most : array_like, shape (k,)
        The least and the most that a value of each column can be.

    Returns
    -------
    list of BoundTable
        One for each column.

    Examples
    --------
    >>> (table,) = bound_tables([[1.0]] * 20, least=[0.0], most=[1.0])
    >>> round(1.0 - table.reach(0.025)[0], 2)  # .025 ** (1 / 20)
    0.83
    """
    x = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(_DRAWS_SEED)
    extra = rng.standard_exponential(_N_DRAWS)
    weighted, total = np.zeros((_N_DRAWS, x.shape[1])), extra.copy()
    for start in range(0, len(x), _VALUES_PER_BLOCK):
        block = x[start : start + _VALUES_PER_BLOCK]
        weight = rng.standard_exponential((_N_DRAWS, len(block)))
        weighted += weight @ block
        total += weight.sum(axis=1)
    ends = np.asarray(least, np.float64), np.asarray(most, np.float64)
    tables = []
    for column, mean, low, high in zip(weighted.T, x.mean(axis=0), *ends, strict=True):
        lower = np.sort((column + extra * low) / total)
        upper = np.sort((column + extra * high) / total)
        rank, position = np.arange(_N_DRAWS), _LEVELS * (_N_DRAWS - 1)
        below = mean - np.interp(position, rank, lower)
        above = np.interp(_N_DRAWS - 1 - position, rank, upper) - mean
        tables.append(BoundTable(below, above))
    return tables


def _weighted_means(x: Array) -> Array:
    """Draw means of x (n,) under Dirichlet(1, ..., 1) weights.

    The weights are exponentials divided by their sum; those of equal values add up to a gamma variable of
    their number, so that a thousand ties cost one draw.
    """
    rng = np.random.default_rng(_DRAWS_SEED)
    distinct, count = np.unique(x, return_counts=True)
    weighted, total = np.zeros((2, _N_DRAWS))
    for i in range(0, len(distinct), _VALUES_PER_BLOCK):
        block = slice(i, i + _VALUES_PER_BLOCK)
        shape = count[block].astype(np.float64)
        weight = rng.standard_gamma(shape, (_N_DRAWS, len(shape)))
        weighted += weight @ distinct[block]
        total += weight.sum(axis=1)
    return weighted / total
