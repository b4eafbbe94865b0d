"""Mean scores of entrants on the same items, with the covariance by which they are compared."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy

from elo_exp.data.scores import Score
from elo_exp.ratings.fit import sandwich
from elo_exp.ratings.leaderboard import Leaderboard, with_intervals
from elo_exp.records import UserError


def mean_scores(
    dimension: str, rows: Sequence[Score], allow_missing: bool
) -> Leaderboard:
    """Return mean scores over the items that all entrants have, with item-clustered intervals.

    x_i is the mean of an item's draws, theta the mean of x_i, V = n/(n-1) sum over clusters of
    psi psi' with psi = (x_i - theta) / items: the standard error of a difference is that of the
    paired differences [1]_. Two entrants whose scores are 0 or 1 on independent items are also
    compared by McNemar's mid-p test: half of the items that only one of them got right are its own by
    chance, and the observed split counts half [2]_. Intervals of scores that are all 0, 1/2 or 1 end
    at 0 and 1, beyond which no mean can be.

    Parameters
    ----------
    dimension : str
        What messages call it: the task and its metric.
    rows : sequence of Score
        Of that dimension, at least one; a value of None is missing. Items of one cluster are dependent.
    allow_missing : bool
        Whether fewer than half of the items may be in common.

    Returns
    -------
    Leaderboard
        In the unit of the scores, entrants by name, with their covariance (m, m). Its parameters are
        `n_items`, `n_common` and `n_missing` and, of McNemar's test, `n_only_first`, `n_only_second`
        and `mcnemar_mid_p`.

    Raises
    ------
    UserError
        For a score that stands twice; where fewer than half of the items are in common, unless
        `allow_missing`; where none is.

    References
    ----------
    .. [1] E. Miller (2024), "Adding error bars to evals: a statistical approach to language model
       evaluations", arXiv:2411.00640.
    .. [2] M. W. Fagerland, S. Lydersen and P. Laake (2013), "The McNemar test for binary matched-pairs
       data: mid-p and asymptotic are better than exact conditional", BMC Medical Research Methodology
       13, 91.
    """
    twice, n = Counter((r.entrant, r.item, r.draw) for r in rows).most_common(1)[0]
    if n > 1:
        raise UserError(f"{dimension}: found {n} scores of {twice}. Expected one.")
    entrants, entrant = np.unique([row.entrant for row in rows], return_inverse=True)
    items, first, item = np.unique(
        [row.item for row in rows], return_index=True, return_inverse=True
    )
    value = np.array([row.value for row in rows], dtype=np.float64)
    is_known, m = np.isfinite(value), len(entrants)
    total, n_draws = np.zeros((2, len(items), m))
    np.add.at(total, (item, entrant), np.where(is_known, value, 0.0))
    np.add.at(n_draws, (item, entrant), is_known)
    is_common = n_draws.all(axis=1)
    x = total[is_common] / n_draws[is_common]
    n, n_items = len(x), len(items)
    if not n or (2 * n < n_items and not allow_missing):
        raise UserError(
            f"{dimension}: found {n:,} of {n_items:,} items with a score of each of the {m} "
            "entrants. Expected at least half; allow_missing=true compares them on fewer."
        )
    names = [rows[i].cluster or rows[i].item for i in first[is_common]]
    clusters, cluster = np.unique(names, return_inverse=True)
    by_cluster = np.zeros((len(clusters), m))
    np.add.at(by_cluster, cluster, x - x.mean(axis=0))
    covariance = sandwich(
        np.eye(m) / n, scipy.sparse.csr_array(by_cluster), m, n=len(clusters)
    )
    n_clusters = len(clusters)
    found: dict[str, float | None]
    found = {"n_items": n_items, "n_common": n, "n_missing": int((~is_known).sum())}
    if m == 2 and n_clusters == n and np.isin(x, (0, 1)).all():
        from scipy.stats import binom  # a third of a second

        won, lost = (x > x[:, ::-1]).sum(axis=0).tolist()
        p = binom.cdf(min(won, lost) - np.arange(2), won + lost, 0.5).sum()
        found |= {"n_only_first": won, "n_only_second": lost, "mcnemar_mid_p": p}
    board = Leaderboard(
        label="Mean score",
        interval="paired over items",
        unit="score",
        models=tuple(entrants.tolist()),
        rating=x.mean(axis=0),
        covariance=covariance,
        n_battles=(n_draws > 0).sum(axis=0),
        n_clusters=n_clusters,
        parameters=found,
    )
    n_prompts = np.full(m, float(n_clusters))
    board = with_intervals(board, np.sqrt(np.diag(covariance)), n_prompts)
    if not np.isin(value[is_known], (0.0, 0.5, 1.0)).all():
        return board
    low, high = np.clip(np.array([board.ci_low, board.ci_high]), 0.0, 1.0)
    return replace(board, ci_low=low, ci_high=high)
