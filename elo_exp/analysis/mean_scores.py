"""Mean scores of entrants on the same items, with the covariance by which they are compared."""

from __future__ import annotations

import numpy as np
from scipy import sparse, special

from elo_exp.arrays import Array
from elo_exp.data.scores import Scores
from elo_exp.ratings.bradley_terry import sandwich
from elo_exp.ratings.games import numbered
from elo_exp.ratings.leaderboard import Leaderboard, with_intervals
from elo_exp.records import UserError


def mean_scores(
    scores: Scores, *, dimension: str, allow_missing: bool = False
) -> Leaderboard:
    """Return mean scores over the items that all entrants have, with item-clustered intervals.

    theta = mean of x_i, V = n/(n-1) sum over clusters of psi psi', psi = (x_i - theta) / items:
    the standard error of a difference is that of the paired differences (Miller 2024). Two entrants
    whose scores are 0 or 1 on independent items are also compared by McNemar's test.
    Raises UserError where fewer than half of the items are in common, unless `allow_missing`.
    """
    is_common = np.isfinite(scores.value).all(axis=1)
    n_items, m = scores.value.shape
    n = int(is_common.sum())
    if not n or (2 * n < n_items and not allow_missing):
        hint = "allow_missing=true compares them on these." if n else "Check the files."
        raise UserError(
            f"{dimension}: found {n:,} of {n_items:,} items with a score of each of the "
            f"{m} entrants. Expected at least half. {hint}"
        )
    value = scores.value[is_common]
    rating = value.mean(axis=0)
    clusters, cluster = numbered(scores.cluster[is_common])
    n_clusters = len(clusters)
    member = sparse.csr_array((np.ones(n), (cluster, np.arange(n))))
    by_cluster = sparse.csr_array(member @ (value - rating))
    covariance = sandwich(np.eye(m) / n, by_cluster, m)
    board = Leaderboard(
        label="Mean score",
        interval="paired over items" + (", clustered" if n_clusters < n else ""),
        unit="score",
        models=scores.entrants,
        rating=rating,
        covariance=covariance,
        n_battles=np.isfinite(scores.value).sum(axis=0),
        n_prompts=np.full(m, float(n_clusters)),
        n_clusters=n_clusters,
        parameters={
            "n_items": n_items,
            "n_common": n,
            "n_clusters": n_clusters,
            "n_missing": scores.n_missing,
            **(mcnemar(value) if m == 2 and n_clusters == n else {}),
        },
    )
    return with_intervals(board, np.sqrt(np.diag(covariance)))


def mcnemar(value: Array) -> dict[str, float]:
    """Test scores (n, 2) by McNemar's mid-p value, two-sided; none unless all are 0 or 1.

    Half of the items that only one entrant got right, b and c, are its own by chance; the observed
    split counts half (Fagerland, Lydersen and Laake 2013).
    """
    if not np.isin(value, (0.0, 1.0)).all():
        return {}
    b = int((value[:, 0] > value[:, 1]).sum())
    c = int((value[:, 0] < value[:, 1]).sum())
    fewer = min(b, c)
    below = special.bdtr(fewer - 1, b + c, 0.5) if fewer else 0.0
    p = float(below + special.bdtr(fewer, b + c, 0.5)) if b + c else 1.0
    return {"n_only_first": b, "n_only_second": c, "mcnemar_mid_p": p}
