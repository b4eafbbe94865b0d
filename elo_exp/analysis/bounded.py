"""Bounds of the mean of values that have a least and a greatest, however skewed or alike they are."""

import numpy as np
from numpy.typing import ArrayLike

from elo_exp.arrays import Array

_N_DRAWS = 20_000
_SEED = 1  # of the draws: the same values have the same bound
_BLOCK = 64  # distinct values whose weights are held at a time, 10 MB


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
        raise ValueError(f"alpha: found {alpha}. Expected a probability, in (0, 1).")
    x = np.asarray(values, dtype=np.float64)
    if not np.isfinite(x).all():
        raise ValueError("values: found one that is not finite. Expected numbers.")
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


def _weighted_means(x: Array) -> Array:
    """Draws of the mean of x (n,) under Dirichlet(1, ..., 1) weights.

    The weights are exponentials divided by their sum; those of equal values add up to a gamma variable of
    their number, so that a thousand ties cost one draw.
    """
    rng = np.random.default_rng(_SEED)
    distinct, count = np.unique(x, return_counts=True)
    weighted, total = np.zeros((2, _N_DRAWS))
    for i in range(0, len(distinct), _BLOCK):
        block = slice(i, i + _BLOCK)
        shape = count[block].astype(np.float64)
        weight = rng.standard_gamma(shape, (_N_DRAWS, len(shape)))
        weighted += weight @ distinct[block]
        total += weight.sum(axis=1)
    return weighted / total
