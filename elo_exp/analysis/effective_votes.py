"""How many independent votes several judges are worth, where answers are known: their errors go together.

Letters: J judges; n comparisons with a known answer, on K prompts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elo_exp.analysis.conclusions import Reason
from elo_exp.arrays import Array, Index, one_row
from elo_exp.ratings.leaderboard import t_quantile

MIN_COMPARISONS = 30
MIN_PROMPTS = 20
MIN_ERRORS = 10  # of each judge, and as many that are right
MIN_DIFFERING = 5  # prompts on which one judge errs more than another


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveVotes:
    """What J judges are worth together.

    n, n_prompts  comparisons that all have judged, and their prompts
    errors        share of these on which each judge is wrong; an order that is wrong counts half
    rho           mean correlation of errors of every two judges, with the 95 % interval `rho_low` to `rho_high`
    votes         J / (1 + (J - 1) rho), at most J, with its interval `low` to `high`
    refusal       why nothing is claimed: `few`, `errors` of a judge, `same`, or `wide`, which has the interval
    """

    judges: tuple[str, ...]
    n: int
    n_prompts: int
    errors: tuple[float, ...]
    rho: float = math.nan
    rho_low: float = math.nan
    rho_high: float = math.nan
    votes: float = math.nan
    low: float = math.nan
    high: float = math.nan
    refusal: Reason | None = None

    @property
    def claimed(self) -> dict[str, float]:
        """Return rho and votes where they are claimed, by name; {} else."""
        return {} if self.refusal else {"rho": self.rho, "votes": self.votes}

    def to_dict(self) -> dict[str, Any]:
        """Return it as files have it: None where there is no number."""
        numbers = ("rho", "rho_low", "rho_high", "votes", "low", "high")
        return one_row(
            judges=[*self.judges],
            n=self.n,
            n_prompts=self.n_prompts,
            errors=dict(zip(self.judges, self.errors, strict=True)),
            no_claim=self.refusal.name if self.refusal else None,
            **{name: getattr(self, name) for name in numbers},
        )


def effective_votes(
    errors: Mapping[str, Array], prompts: Sequence[str]
) -> EffectiveVotes:
    """Compute how many independent judges would err as little together as these do.

    The mean of J judges whose errors correlate by rho has the variance of J / (1 + (J - 1) rho) independent ones:
    the design effect of Kish [1]_, which Kohli [2]_ gives for panels of judges. The interval is Student's, by leaving
    out one prompt after the other, on the scale log((1 + (J - 1) rho) / (1 - rho)), with two pseudo-prompts that keep it
    open: on one a judge errs alone, on the other all err.

    Parameters
    ----------
    errors : mapping of str to Array, shape (n,)
        By judge, of 0 (right) to 1 (wrong); NaN where it has no valid verdict.
    prompts : sequence of str
        (n,) whose comparisons are one observation together.

    Returns
    -------
    EffectiveVotes
        With a refusal where too little is known: fewer than 30 comparisons or 20 prompts, a judge that errs, or is right,
        on fewer than 10, fewer than 5 prompts on which errors differ, or an interval of votes that is wider than half of
        1 to J.

    References
    ----------
    .. [1] L. Kish (1965), Survey Sampling, Wiley.
    .. [2] Kohli (2026), arXiv 2605.29800: nine judges are worth two votes.

    Examples
    --------
    >>> alike, other = np.repeat([0.0, 1.0], 20), np.tile([0.0, 1.0], 20)
    >>> found = effective_votes({"a": alike, "b": other}, [f"p{i}" for i in range(40)])
    >>> round(found.rho, 3), round(found.votes, 3)
    (0.0, 2.0)
    """
    judges = tuple(errors)
    table = np.array([errors[name] for name in judges], dtype=np.float64).T
    is_known = np.isfinite(table).all(axis=1)
    table, of = table[is_known], np.array(prompts, dtype=object)[is_known].tolist()
    n, n_judges = table.shape
    names, at = np.unique(np.array(of, dtype=str), return_inverse=True)
    some = {
        "judges": judges,
        "n": n,
        "n_prompts": len(names),
        "errors": tuple(table.mean(axis=0).tolist()) if n else (math.nan,) * n_judges,
    }
    if refusal := _refusal(judges, table, at, len(names)):
        return EffectiveVotes(**some, refusal=refusal)
    moments = _moments(table, at, len(names))
    rho = float(_rho(moments.sum(axis=0), n_judges))
    open_ = np.vstack([moments, _pseudo_prompts(n_judges)])
    rho_low, rho_high = _interval(open_, n_judges)
    votes = [_votes(r, n_judges) for r in (rho, rho_high, rho_low)]
    wide = None
    if votes[2] - votes[1] > (n_judges - 1) / 2.0:
        wide = Reason(name="wide", about={"low": votes[1], "high": votes[2]})
    return EffectiveVotes(
        **some,
        rho=rho,
        rho_low=rho_low,
        rho_high=rho_high,
        votes=votes[0],
        low=votes[1],
        high=votes[2],
        refusal=wide,
    )


def _refusal(
    judges: Sequence[str], table: Array, at: Index, n_prompts: int
) -> Reason | None:
    n = len(table)
    if n < MIN_COMPARISONS or n_prompts < MIN_PROMPTS:
        return Reason(name="few", about={"n": n, "n_prompts": n_prompts})
    for name, own in zip(judges, table.T, strict=True):
        wrong = float(own.sum())
        if min(wrong, n - wrong) < MIN_ERRORS:
            what = {"judge": name, "wrong": wrong, "n": n}
            return Reason(name="errors", about=what)
    differ = np.ptp(table, axis=1) > 0.0
    if (n_differ := len(np.unique(at[differ]))) < MIN_DIFFERING:
        return Reason(name="same", about={"n_prompts": n_differ})
    return None


def _votes(rho: float, n_judges: int) -> float:
    return n_judges / (1.0 + (n_judges - 1) * max(rho, 0.0))


def _moments(table: Array, at: Index, n_prompts: int) -> Array:
    """Sums over each prompt (K, .): of ones, of each judge's errors, and of the products of every two."""
    first, second = np.triu_indices(table.shape[1])
    ones = np.ones((len(table), 1))
    rows = np.hstack([ones, table, table[:, first] * table[:, second]])
    sums = np.zeros((n_prompts, rows.shape[1]))
    np.add.at(sums, at, rows)
    return sums


def _pseudo_prompts(n_judges: int) -> Array:
    """Moments (2, .) of a prompt on which one judge errs, whichever it is, and of one on which all do."""
    alone = np.eye(n_judges)
    each = _moments(alone, np.arange(n_judges), n_judges).mean(axis=0)
    every = _moments(np.ones((1, n_judges)), np.zeros(1, dtype=np.intp), 1)[0]
    return np.vstack([each, every])


def _rho(sums: Array, n_judges: int) -> Array:
    """Mean correlation of errors, of sums of moments (..., .)."""
    means = sums[..., 1:] / sums[..., :1]
    own, products = means[..., :n_judges], means[..., n_judges:]
    first, second = np.triu_indices(n_judges)
    covariance = products - own[..., first] * own[..., second]
    variance = covariance[..., first == second]
    a, b = np.triu_indices(n_judges, k=1)
    correlation = covariance[..., first != second] / np.sqrt(
        variance[..., a] * variance[..., b]
    )
    return np.asarray(correlation.mean(axis=-1))


def _interval(moments: Array, n_judges: int) -> tuple[float, float]:
    k, total = len(moments), moments.sum(axis=0)
    others = n_judges - 1

    def scaled(rho: Array) -> Array:
        return np.asarray(np.log((1.0 + others * rho) / (1.0 - rho)))

    left_out = scaled(_rho(total - moments, n_judges))
    variance = (k - 1) / k * ((left_out - left_out.mean()) ** 2).sum()
    half = float(t_quantile(k - 1.0)) * math.sqrt(float(variance))
    center = float(scaled(_rho(total, n_judges)))
    low, high = (math.exp(center + side) for side in (-half, half))
    return (low - 1.0) / (low + others), (high - 1.0) / (high + others)
