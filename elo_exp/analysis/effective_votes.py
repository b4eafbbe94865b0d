"""How many independent votes several judges are worth, where answers are known: their errors go together.

Letters: J judges; n comparisons with a known answer, on K prompts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elo_exp.analysis.conclusions import Reason
from elo_exp.arrays import Array, Index, make_row
from elo_exp.ratings.leaderboard import t_quantile

MIN_COMPARISONS = 30
MIN_PROMPTS = 20
# And at least as many right verdicts
MIN_ERRORS_PER_JUDGE = 10
MIN_DIFFERING_PROMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveVotes:
    """What J judges are worth together.

    n, n_prompts  comparisons that all have judged, and their prompts
    errors        share of these on which each judge is wrong; an order that is wrong counts half
    rho           mean correlation of errors of every two judges, with the 95% interval `rho_low` to `rho_high`
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
    def claimed_numbers(self) -> dict[str, float]:
        """Return rho and votes where they are claimed, by name; {} else."""
        return {} if self.refusal else {"rho": self.rho, "votes": self.votes}

    def to_dict(self) -> dict[str, Any]:
        """Return it as files have it: None where there is no number."""
        numbers = ("rho", "rho_low", "rho_high", "votes", "low", "high")
        return make_row(
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
    >>> result = effective_votes({"a": alike, "b": other}, [f"p{i}" for i in range(40)])
    >>> round(result.rho, 3), round(result.votes, 3)
    (0.0, 2.0)
    """
    judges = tuple(errors)
    table = np.array([errors[name] for name in judges], dtype=np.float64).T
    is_known = np.isfinite(table).all(axis=1)
    table, prompt_ids = (
        table[is_known],
        np.array(prompts, dtype=object)[is_known].tolist(),
    )
    n, n_judges = table.shape
    names, prompt_number = np.unique(
        np.array(prompt_ids, dtype=str), return_inverse=True
    )
    counts = {
        "judges": judges,
        "n": n,
        "n_prompts": len(names),
        "errors": tuple(table.mean(axis=0).tolist()) if n else (math.nan,) * n_judges,
    }
    if refusal := _find_refusal(judges, table, prompt_number, len(names)):
        return EffectiveVotes(**counts, refusal=refusal)
    moments = _sum_moments(table, prompt_number, len(names))
    rho = float(_correlate(moments.sum(axis=0), n_judges))
    open_moments = np.vstack([moments, _pseudo_prompts(n_judges)])
    rho_low, rho_high = _compute_interval(open_moments, n_judges)
    votes = [_compute_votes(r, n_judges) for r in (rho, rho_high, rho_low)]
    refusal_by_width = None
    if votes[2] - votes[1] > (n_judges - 1) / 2.0:
        refusal_by_width = Reason(
            name="wide", about={"low": votes[1], "high": votes[2]}
        )
    return EffectiveVotes(
        **counts,
        rho=rho,
        rho_low=rho_low,
        rho_high=rho_high,
        votes=votes[0],
        low=votes[1],
        high=votes[2],
        refusal=refusal_by_width,
    )


def _find_refusal(
    judges: Sequence[str], table: Array, prompt_number: Index, n_prompts: int
) -> Reason | None:
    n = len(table)
    if n < MIN_COMPARISONS or n_prompts < MIN_PROMPTS:
        return Reason(name="few", about={"n": n, "n_prompts": n_prompts})
    for name, judge_errors in zip(judges, table.T, strict=True):
        wrong = float(judge_errors.sum())
        if min(wrong, n - wrong) < MIN_ERRORS_PER_JUDGE:
            about = {"judge": name, "wrong": wrong, "n": n}
            return Reason(name="errors", about=about)
    differ = np.ptp(table, axis=1) > 0.0
    if (n_differ := len(np.unique(prompt_number[differ]))) < MIN_DIFFERING_PROMPTS:
        return Reason(name="same", about={"n_prompts": n_differ})
    return None


def _compute_votes(rho: float, n_judges: int) -> float:
    return n_judges / (1.0 + (n_judges - 1) * max(rho, 0.0))


def _sum_moments(table: Array, prompt_number: Index, n_prompts: int) -> Array:
    """Sum over each prompt (K, .): ones, each judge's errors, and the products of every two judges' errors."""
    first, second = np.triu_indices(table.shape[1])
    ones = np.ones((len(table), 1))
    rows = np.hstack([ones, table, table[:, first] * table[:, second]])
    sums = np.zeros((n_prompts, rows.shape[1]))
    np.add.at(sums, prompt_number, rows)
    return sums


def _pseudo_prompts(n_judges: int) -> Array:
    """Return the moments (2, .) of a prompt on which one judge errs, whichever it is, and of one on which all err."""
    alone = np.eye(n_judges)
    one_errs = _sum_moments(alone, np.arange(n_judges), n_judges).mean(axis=0)
    all_err = _sum_moments(np.ones((1, n_judges)), np.zeros(1, dtype=np.intp), 1)[0]
    return np.vstack([one_errs, all_err])


def _correlate(sums: Array, n_judges: int) -> Array:
    """Return the mean correlation of errors from sums of moments (..., .)."""
    means = sums[..., 1:] / sums[..., :1]
    error_rates, products = means[..., :n_judges], means[..., n_judges:]
    first, second = np.triu_indices(n_judges)
    covariance = products - error_rates[..., first] * error_rates[..., second]
    variance = covariance[..., first == second]
    a, b = np.triu_indices(n_judges, k=1)
    correlation = covariance[..., first != second] / np.sqrt(
        variance[..., a] * variance[..., b]
    )
    return np.asarray(correlation.mean(axis=-1))


def _compute_interval(moments: Array, n_judges: int) -> tuple[float, float]:
    k, total = len(moments), moments.sum(axis=0)
    n_others = n_judges - 1

    def transform(rho: Array) -> Array:
        return np.asarray(np.log((1.0 + n_others * rho) / (1.0 - rho)))

    left_out = transform(_correlate(total - moments, n_judges))
    variance = (k - 1) / k * ((left_out - left_out.mean()) ** 2).sum()
    half_width = float(t_quantile(k - 1.0)) * math.sqrt(float(variance))
    center = float(transform(_correlate(total, n_judges)))
    low, high = (math.exp(center + side) for side in (-half_width, half_width))
    return (low - 1.0) / (low + n_others), (high - 1.0) / (high + n_others)
