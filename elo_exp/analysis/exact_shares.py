"""Exact intervals of shares, by clusters: they hold also where every row is alike, as no normal interval does."""

import numpy as np
import scipy

from elo_exp.analysis.win_rates import clustered_error_and_n_effective
from elo_exp.arrays import Array, Index
from elo_exp.ratings.leaderboard import Z95, degrees_of_freedom, t_quantile


def exact_interval(
    share: float, n: float, *, level: float = 0.95
) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson [1]_.

    Parameters
    ----------
    share : float
        Observed, in [0, 1].
    n : float
        Number of independent observations; an effective number need not be whole.
    level : float, default 0.95
        Probability that the interval holds the true share, at least.

    Returns
    -------
    low, high : float
        From 0 to 1 if n is 0.

    References
    ----------
    .. [1] C. J. Clopper and E. S. Pearson (1934), "The use of confidence or fiducial limits illustrated in the
       case of the binomial", Biometrika 26(4), 404-413.

    Examples
    --------
    >>> [round(end, 3) for end in exact_interval(1.0, 60)]  # .025 ** (1 / 60)
    [0.94, 1.0]
    """
    hits, misses, tail = share * n, (1.0 - share) * n, (1.0 - level) / 2.0
    quantile = scipy.special.betaincinv
    low = float(quantile(hits, misses + 1.0, tail)) if hits > 0.0 else 0.0
    high = float(quantile(hits + 1.0, misses, 1.0 - tail)) if misses > 0.0 else 1.0
    return low, high


def effective_number(is_hit: Array, cluster: Index) -> float:
    """Count the independent rows that would know a share as well as clustered ones do.

    Parameters
    ----------
    is_hit : Array, shape (n,)
        Values in [0, 1] whose mean is the share.
    cluster : Index, shape (n,)
        The cluster of each row, by any numbers.

    Returns
    -------
    float
        n if each row is a cluster of its own. The number of clusters if their error is zero or unknown:
        rows that are all alike say nothing of how much they vary. If clusters differ in size, their effective number
        takes the place of their number, and less is known by as much as Student's t has heavier tails.

    Examples
    --------
    >>> effective_number(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0, 0, 1, 1]))  # 2 prompts
    2.0
    """
    n = len(is_hit)
    if not n:
        return 0.0
    share = float(is_hit.mean())
    error, n_effective = clustered_error_and_n_effective(is_hit - share, cluster)
    if not error:
        return n_effective
    n_clusters, tails = len(np.unique(cluster)), 1.0
    if n_effective < n_clusters:
        tails = float(t_quantile(degrees_of_freedom(n_effective))) / Z95
    variance = float(((is_hit - share) ** 2).mean()) * n_clusters / (n_clusters - 1)
    return float(np.clip(variance / (tails * error) ** 2, 1.0, n))
