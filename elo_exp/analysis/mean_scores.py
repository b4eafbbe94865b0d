"""Mean scores of entrants on the same items, and how often k draws of one succeed, with the covariance by which they
are compared."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from elo_exp.analysis.bounded_scores import Scale, bounded_tests
from elo_exp.arrays import Array, Index
from elo_exp.data.scores import Score
from elo_exp.errors import EvidenceError, FileError, SettingError
from elo_exp.ratings.fit import sandwich
from elo_exp.ratings.leaderboard import Leaderboard, add_intervals


def mean_scores(
    dimension: str,
    rows: Sequence[Score],
    allow_missing: bool,
    *,
    scale: Scale | None = None,
) -> Leaderboard:
    """Return mean scores over the items that all entrants have, with item-clustered intervals.

    x_i is the mean of an item's draws, theta the mean of x_i, V = n/(n-1) sum over clusters of
    psi psi' with psi = (x_i - theta) / items: the standard error of a difference is that of the
    paired differences [1]_. Two entrants whose scores are 0 or 1 on independent items are also
    compared by McNemar's mid-p test: half of the items that only one of them got right are its own by
    chance, and the observed split counts half [2]_. If all scores are 0, 1/2 or 1, intervals end at 0
    and 1, because no mean lies beyond. An entrant that is right on all n clusters of items has the
    interval of n successes in n, [.025^(1/n), 1] [3]_. An entrant that never is has its mirror image.

    Parameters
    ----------
    dimension : str
        What messages call it: the task and its metric.
    rows : sequence of Score
        Of that dimension, at least one; a value of None is missing. Items of one cluster are dependent.
    allow_missing : bool
        Whether fewer than half of the items may be in common.
    scale : (float, float), optional
        The least and the greatest score, as `bounded_scores.find_scale` finds it; None: nobody knows, and pairs have no
        bounded-mean test.

    Returns
    -------
    Leaderboard
        In the unit of the scores, entrants by name, with their covariance (m, m). Its parameters are
        `n_items`, `n_common` and `n_missing`, the ends of the scale, `scale_low` and `scale_high`, and, of
        McNemar's test, `n_only_first`, `n_only_second` and `mcnemar_mid_p`.

    Raises
    ------
    FileError
        For a score that stands twice.
    EvidenceError
        If fewer than half of the items are in common, unless `allow_missing`; if none is.

    References
    ----------
    .. [1] E. Miller (2024), "Adding error bars to evals: a statistical approach to language model
       evaluations", arXiv:2411.00640.
    .. [2] M. W. Fagerland, S. Lydersen and P. Laake (2013), "The McNemar test for binary matched-pairs
       data: mid-p and asymptotic are better than exact conditional", BMC Medical Research Methodology
       13, 91.
    .. [3] C. J. Clopper and E. S. Pearson (1934), "The use of confidence or fiducial limits illustrated
       in the case of the binomial", Biometrika 26(4), 404-413.
    """
    items = _find_common_items(dimension, rows, allow_missing)
    x, n_clusters = items.total / items.n_draws, int(items.cluster.max()) + 1
    parameters = dict(items.counts)
    if len(items.entrants) == 2 and n_clusters == len(x) and np.isin(x, (0, 1)).all():
        from scipy.stats import binom  # a third of a second

        won, lost = (x > x[:, ::-1]).sum(axis=0).tolist()
        p = binom.cdf(min(won, lost) - np.arange(2), won + lost, 0.5).sum()
        parameters |= {"n_only_first": won, "n_only_second": lost, "mcnemar_mid_p": p}
    values = [row.value for row in rows if row.value is not None]
    is_bounded = bool(np.isin(values, (0.0, 0.5, 1.0)).all())
    return _rate_items(
        "Mean score", items, x, parameters, is_bounded=is_bounded, scale=scale
    )


def pass_rates(
    dimension: str,
    rows: Sequence[Score],
    allow_missing: bool,
    *,
    at: Sequence[int] = (),
    hat: Sequence[int] = (),
) -> dict[str, Leaderboard]:
    """Return how often one of k draws of an item is right, pass@k, and how often all of them are, pass^k.

    Of an item with c right among n draws, 1 - C(n - c, k) / C(n, k) is without bias the chance that one
    of k draws at least is right [1]_, and C(c, k) / C(n, k) the chance that all k are [2]_: those of k
    taken from the n without replacement. Their means over the items are compared as mean scores are,
    clustered alike, with intervals of those of 0 and 1.

    Parameters
    ----------
    dimension : str
        What messages call it: the task and its metric.
    rows : sequence of Score
        Of that dimension, at least one, all 0 or 1; a value of None is missing.
    allow_missing : bool
        Whether fewer than half of the items may be in common.
    at, hat : sequence of int
        Each k of pass@k, and of pass^k.

    Returns
    -------
    dict of str to Leaderboard
        By "pass@k" and "pass^k", in the order given; parameters as of `mean_scores`, without McNemar's.

    Raises
    ------
    FileError
        For another score than 0 and 1, and for a score that stands twice.
    SettingError
        If an item in common has fewer than k draws.
    EvidenceError
        As `mean_scores`.

    References
    ----------
    .. [1] M. Chen et al. (2021), "Evaluating large language models trained on code", arXiv:2107.03374.
    .. [2] S. Yao, N. Shinn, P. Razavi and K. Narasimhan (2024), "tau-bench: a benchmark for
       tool-agent-user interaction in real-world domains", arXiv:2406.12045.

    Examples
    --------
    Two of four draws are right. Of the six pairs of them five have one that is, one has two:

    >>> draws = [Score(dimension="quiz", entrant="a", item="1", value=v, draw=str(i))
    ...          for i, v in enumerate([1.0, 0.0, 1.0, 0.0])]
    >>> boards = pass_rates("quiz", draws, False, at=[2], hat=[2])
    >>> {name: round(float(board.rating[0]), 3) for name, board in boards.items()}
    {'pass@2': 0.833, 'pass^2': 0.167}
    """
    if not (at or hat):
        return {}
    kind = "pass.at" if at else "pass.hat"
    for row in rows:
        if row.value not in (None, 0.0, 1.0):
            raise FileError(
                f"{kind} needs scores of 0 and 1, and {dimension} has the score {row.value:g}.",
                "  To read another metric, set battles_metric=NAME.",
            )
    items = _find_common_items(dimension, rows, allow_missing)
    boards = {}
    for mark, kind, sizes in (("@", "pass.at", at), ("^", "pass.hat", hat)):
        for k in dict.fromkeys(sizes):
            _refuse_few_draws(kind, k, items)
            wrong = items.n_draws - items.total
            x = 1.0 - _chance_that_all_are_right(wrong, items.n_draws, k)
            if mark == "^":
                x = _chance_that_all_are_right(items.total, items.n_draws, k)
            label = f"pass{mark}{k}"
            boards[label] = _rate_items(
                label, items, x, items.counts, is_bounded=True, scale=(0.0, 1.0)
            )
    return boards


def _chance_that_all_are_right(n_right: Array, n: Array, k: int) -> Array:
    """Return the chance that k of n draws, taken without replacement, are all right: C(n_right, k) / C(n, k)."""
    j = np.arange(k)
    numerator, denominator = np.maximum(n_right[..., None] - j, 0.0), n[..., None] - j
    return np.asarray((numerator / denominator).prod(axis=-1))


@dataclass(frozen=True, kw_only=True)
class _CommonItems:
    """The scores of n items that all m entrants have.

    total     (n, m) sum over the known draws
    n_draws   (n, m) how many these are
    cluster   (n,) from 0
    n_scored  (m,) items on which an entrant has a score
    counts    items of any entrant, those in common, and missing scores
    """

    entrants: Sequence[str]
    names: Sequence[str]
    total: Array
    n_draws: Array
    cluster: Index
    n_scored: Index
    counts: Mapping[str, float | None]


def _find_common_items(
    dimension: str, rows: Sequence[Score], allow_missing: bool
) -> _CommonItems:
    key, n = Counter((r.entrant, r.item, r.draw) for r in rows).most_common(1)[0]
    if n > 1:
        model, name, draw = key
        repeat = f", repeat {draw}," if draw else ""
        raise FileError(
            f"{model} has {n} scores of item {name}{repeat} on {dimension}. If they are repeats, number them in a column "
            "named epoch."
        )
    entrants, entrant = np.unique([row.entrant for row in rows], return_inverse=True)
    items, first_row, item = np.unique(
        [row.item for row in rows], return_index=True, return_inverse=True
    )
    value = np.array([row.value for row in rows], dtype=np.float64)
    is_known, m = np.isfinite(value), len(entrants)
    total, n_draws = np.zeros((2, len(items), m))
    np.add.at(total, (item, entrant), np.where(is_known, value, 0.0))
    np.add.at(n_draws, (item, entrant), is_known)
    is_common = n_draws.all(axis=1)
    n, n_items = int(is_common.sum()), len(items)
    if not n or (2 * n < n_items and not allow_missing):
        raise EvidenceError(
            f"On {dimension}, only {n:,} of {n_items:,} items have a score of each of the {m} entrants, fewer than half.",
            *(
                ["  To compare them on these items anyway, add allow_missing=true."]
                if n
                else []
            ),
        )
    clusters = [rows[i].cluster or rows[i].item for i in first_row[is_common]]
    return _CommonItems(
        entrants=entrants.tolist(),
        names=items[is_common].tolist(),
        total=total[is_common],
        n_draws=n_draws[is_common],
        cluster=np.unique(clusters, return_inverse=True)[1],
        n_scored=(n_draws > 0).sum(axis=0),
        counts={
            "n_items": n_items,
            "n_common": n,
            "n_missing": int((~is_known).sum()),
        },
    )


def _refuse_few_draws(kind: str, k: int, items: _CommonItems) -> None:
    """Raise SettingError where an item has fewer than k draws, naming one with the fewest."""
    i, j = divmod(int(items.n_draws.argmin()), len(items.entrants))
    n = int(items.n_draws[i, j])
    if n < k:
        draws = "1 draw" if n == 1 else f"{n} draws"
        raise SettingError(
            f"{kind} must be at most {n}, as item {items.names[i]} of {items.entrants[j]} has {draws}; got {k}."
        )


def _rate_items(
    label: str,
    items: _CommonItems,
    x: Array,
    parameters: Mapping[str, float | None],
    *,
    is_bounded: bool,
    scale: Scale | None,
) -> Leaderboard:
    """Average the values x (n, m) of the items; `is_bounded`: to [0, 1], and all at 0, 1/2 or 1."""
    (n, m), n_clusters = x.shape, int(items.cluster.max()) + 1
    by_cluster = np.zeros((n_clusters, m))
    np.add.at(by_cluster, items.cluster, x - x.mean(axis=0))
    sizes, n_effective = np.bincount(items.cluster), float(n_clusters)
    if n_clusters > 1 and (sizes != sizes[0]).any():
        # as `ratings.games.Balance` has it: a large cluster hides a part of what it varies
        by_cluster *= ((1.0 - 1.0 / n_clusters) / (1.0 - sizes / n))[:, None]
        n_effective = float(n**2 / (sizes**2).sum())
    covariance = sandwich(
        np.eye(m) / n, scipy.sparse.csr_array(by_cluster), m, n=n_clusters
    )
    board = Leaderboard(
        label=label,
        interval="paired over items",
        unit="score",
        models=tuple(items.entrants),
        rating=x.mean(axis=0),
        covariance=covariance,
        n_battles=items.n_scored,
        n_clusters=n_clusters,
        n_effective_clusters=n_effective,
        parameters={
            **parameters,
            "scale_low": scale[0] if scale else None,
            "scale_high": scale[1] if scale else None,
        },
    )
    if scale is not None:
        tests = bounded_tests(x, items.cluster, board, scale)
        board = replace(board, bounded=tests)
    n_prompts = np.full(m, n_effective)
    std_error = np.sqrt(np.diag(covariance))
    board = add_intervals(board, std_error, n_prompts)
    # Equal scores on all clusters do not tell how far others would differ, unless they are at an end
    is_at_end = is_bounded & np.isin(board.rating, (0.0, 1.0))
    is_known = (std_error > 0.0) | is_at_end
    ends = np.where(is_known, np.array([board.ci_low, board.ci_high]), np.nan)
    if not is_bounded:
        return replace(board, ci_low=ends[0], ci_high=ends[1])
    low, high = np.clip(ends, 0.0, 1.0)
    # were the mean mu, a cluster would be all 1 with probability mu at most, and all n with mu^n
    end = 0.025 ** (1 / n_clusters)
    low = np.where(board.rating == 1.0, end, low)
    high = np.where(board.rating == 0.0, 1.0 - end, high)
    return replace(board, ci_low=low, ci_high=high)
