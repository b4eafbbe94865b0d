"""Mean scores of items between known ends: tests that hold however skewed scores are, and leads with missing scores counted.

A score lies between the ends of its scale, so that a difference of two scores has known ends, too. Items of one cluster
are one value, their sum. Letters: n items; q of the clusters; m entrants.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from elo_exp.analysis.bounded_tests import MAX_P_VALUE_BY_T, chance_of_mean_below_zero
from elo_exp.analysis.missing_answers import WorstCase
from elo_exp.arrays import Array, Index
from elo_exp.data.scores import Score
from elo_exp.ratings.leaderboard import BoundedTests, Leaderboard, degrees_of_freedom

Scale = tuple[float, float]
_ALPHA_PER_TAIL = 0.025
# A smaller variance is nothing but rounding
_MIN_VARIANCE = 1e-12


def find_scale(
    rows: Sequence[Score], declared: Sequence[float] | None = None
) -> Scale | None:
    """Return the ends between which scores lie: those declared, or 0 and 1 if no score lies outside them.

    Parameters
    ----------
    rows : sequence of Score
        Of one dimension.
    declared : sequence of float, optional
        The least and the greatest score.

    Returns
    -------
    (float, float) or None
        None if nobody knows.
    """
    if declared is not None:
        low, high = declared
        return float(low), float(high)
    values = [row.value for row in rows if row.value is not None]
    return (0.0, 1.0) if all(0.0 <= value <= 1.0 for value in values) else None


def bounded_tests(
    x: Array, cluster: Index, board: Leaderboard, scale: Scale
) -> BoundedTests:
    """Test every pair of entrants that Student's t tells apart, or for which it has no error.

    Parameters
    ----------
    x : Array, shape (n, m)
        Scores.
    cluster : Index, shape (n,)
        The cluster of each item, from 0.
    board : Leaderboard
        Of these scores, with a covariance.
    scale : (float, float)
        The least and the greatest score.

    Returns
    -------
    BoundedTests
    """
    m = x.shape[1]
    tests, size = BoundedTests.empty(m), np.bincount(cluster)
    if len(size) < 2 or board.covariance is None:
        return tests
    for a in range(m):
        for b in range(a + 1, m):
            sums = np.bincount(cluster, x[:, a] - x[:, b]).astype(np.float64)
            v = board.covariance
            p_t = _test_by_t(sums.sum() / len(x), v[a, a] + v[b, b] - 2 * v[a, b], size)
            if p_t is not None and p_t > MAX_P_VALUE_BY_T:
                continue
            p = two_sided_p_value(sums, size, scale)
            tests.p_value[a, b] = tests.p_value[b, a] = p
            if p_t is None or p > MAX_P_VALUE_BY_T:
                low, high = interval(sums, size, scale)
                tests.low[a, b], tests.high[a, b] = low, high
                tests.low[b, a], tests.high[b, a] = -high, -low
    return tests


def _test_by_t(mean: float, variance: float, size: Index) -> float | None:
    """Return the two-sided p value of Student's t; None without an error."""
    if not variance > _MIN_VARIANCE:
        return None
    df = degrees_of_freedom(len(size))
    return 2.0 * float(scipy.special.stdtr(df, -abs(mean) / math.sqrt(variance)))


def two_sided_p_value(sums: Array, size: Index, scale: Scale) -> float:
    """Return the p value of the hypothesis that a mean difference is zero.

    Parameters
    ----------
    sums : Array, shape (q,)
        Of each cluster's differences.
    size : Index, shape (q,)
        How many items each cluster has.
    scale : (float, float)
        Of a score.

    Returns
    -------
    float

    Examples
    --------
    Better by 0.02 on all of 20 items, on a scale from 0 to 1, is nothing that one lost item would not undo:

    >>> two_sided_p_value(np.full(20, 0.02), np.ones(20, int), (0.0, 1.0))
    1.0
    """
    return min(
        1.0,
        2.0
        * min(_test_one_sided(sums, size, scale), _test_one_sided(-sums, size, scale)),
    )


def _test_one_sided(
    sums: Array, size: Index, scale: Scale, difference: float = 0.0
) -> float:
    """Return the p value of the hypothesis that the mean is no larger than a difference."""
    width = scale[1] - scale[0]
    least = -(width + difference) * float(size.max())
    return chance_of_mean_below_zero(sums - difference * size, least)


def interval(sums: Array, size: Index, scale: Scale) -> tuple[float, float]:
    """Return the mean differences that neither one-sided test rejects at 2.5%.

    Parameters
    ----------
    sums, size, scale
        As of `two_sided_p_value`.

    Returns
    -------
    low, high : float
    """
    return _find_lower_end(sums, size, scale), -_find_lower_end(-sums, size, scale)


def _find_lower_end(sums: Array, size: Index, scale: Scale) -> float:
    from scipy.optimize import brentq

    width = scale[1] - scale[0]
    mean, least = float(sums.sum() / size.sum()), -width * (1.0 - 1e-9)

    def excess(difference: float) -> float:
        return _test_one_sided(sums, size, scale, difference) - _ALPHA_PER_TAIL

    if mean <= least or excess(least) > 0.0:
        return -width
    return float(brentq(excess, least, mean, xtol=1e-12 * width))


# Missing scores


@dataclass(frozen=True, kw_only=True)
class _ItemScores:
    """The scores of one entrant by item: the sum of the known draws, how many these are, and how many are missing."""

    total: Array  # (n,)
    n_known: Array  # (n,)
    n_missing: Array  # (n,) at least 1 of an item without a row

    def means(self, missing: float) -> Array:
        """Return the mean of each item (n,) if each missing draw had this score."""
        n = self.n_known + self.n_missing
        return np.asarray((self.total + missing * self.n_missing) / n)


def worst_case(
    rows: Sequence[Score], leader: str, rival: str, scale: Scale | None
) -> WorstCase:
    """Compare two entrants on all items, the leader's missing scores at the low end and the rival's at the high end.

    Parameters
    ----------
    rows : sequence of Score
        Of one dimension and all entrants: an item that any of them has was planned for all.
    leader, rival : str
        The claim is that the mean of the first is higher.
    scale : (float, float) or None
        Of a score; None: nobody knows, and no lead survives a missing score.

    Returns
    -------
    WorstCase
        In the unit of the scores, with the larger of both tests' p values.
    """
    items = {item: n for n, item in enumerate(dict.fromkeys(row.item for row in rows))}
    clusters = {row.item: row.cluster or row.item for row in rows}
    cluster = np.unique([clusters[item] for item in items], return_inverse=True)[1]
    scores_of = {name: _sum_scores(name, rows, items) for name in (leader, rival)}
    lacks = {name: scores.n_missing > 0 for name, scores in scores_of.items()}
    is_incomplete = lacks[leader] | lacks[rival]
    counts = {
        "leader": leader,
        "rival": rival,
        "n_prompts": len(items),
        "n_answered": int((~is_incomplete).sum()),
        "n_lacks_leader": int(lacks[leader].sum()),
        "n_lacks_rival": int((lacks[rival] & ~lacks[leader]).sum()),
        "n_failed_rival": 0,
        "n_unjudged": 0,
    }
    if scale is None and is_incomplete.any():
        return WorstCase(**counts, p_value=1.0)  # type: ignore[arg-type]
    low, high = scale or (0.0, 0.0)
    d = scores_of[leader].means(low) - scores_of[rival].means(high)
    size = np.bincount(cluster)
    sums = np.bincount(cluster, d).astype(np.float64)
    mean, n = float(d.mean()), len(size)
    residual = sums - mean * size
    variance = n / max(n - 1, 1) * float((residual**2).sum()) / len(d) ** 2
    p_values = [] if scale is None else [two_sided_p_value(sums, size, scale)]
    ends: Mapping[str, float] = {}
    if (p_t := _test_by_t(mean, variance, size)) is not None:
        p_values.append(p_t)
        half_width = float(scipy.special.stdtrit(max(n - 1, 1), 0.975)) * math.sqrt(
            variance
        )
        ends = {"ci_low": mean - half_width, "ci_high": mean + half_width}
    if scale is not None and (
        not ends or p_values[0] > MAX_P_VALUE_BY_T >= p_values[-1]
    ):
        ends = dict(
            zip(("ci_low", "ci_high"), interval(sums, size, scale), strict=True)
        )
    p = max(p_values, default=1.0) if mean > 0.0 else 1.0
    return WorstCase(**counts, difference=mean, p_value=p, **ends)  # type: ignore[arg-type]


def _sum_scores(
    name: str, rows: Sequence[Score], items: Mapping[str, int]
) -> _ItemScores:
    total, n_known, n_missing = np.zeros((3, len(items)))
    for row in rows:
        if row.entrant != name:
            continue
        number = items[row.item]
        if row.value is None or not math.isfinite(row.value):
            n_missing[number] += 1
        else:
            total[number] += row.value
            n_known[number] += 1
    n_missing[(n_known == 0) & (n_missing == 0)] = 1
    return _ItemScores(total=total, n_known=n_known, n_missing=n_missing)
