"""Which policies differ, which may be best, and what to label next.

A difference has an error of its own: both policies answered the same prompts, and labels that both
use through one curve cancel. So it is taken from their influences by prompt, paired, and never from
two intervals side by side. Letters: p policies that are not refused, g prompts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
from scipy.special import ndtr, stdtr

from elo_exp.analysis.comparisons import holm, max_t_quantile
from elo_exp.arrays import Array
from elo_exp.oracle.anchored import BORROWED, Anchored
from elo_exp.oracle.diagnostics import MIN_AUDIT
from elo_exp.oracle.influence import clustered_error, t_quantile
from elo_exp.records import Record

_N_DRAWS = 5_000  # of the largest |t| of all pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDifference(Record):
    """The value of policy a minus that of b, in units of the label.

    low, high  of the intervals that hold all differences at once with 95 %
    """

    a: str  # of the higher value
    b: str
    value: float
    std_error: float
    half_width: float  # of the 95 % interval of this difference alone
    p_value: float
    p_holm: float
    low: float
    high: float
    rests_on: str  # borrowed calibration, where it does for one of the two


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRank(Record):
    """The ranks that a policy may have, all policies at once with 95 %."""

    policy: str
    value: float
    rank_low: int  # 1 is best
    rank_high: int
    possible_best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep(Record):
    """Whether the best policy is known, or what would tell."""

    decision_ready: bool
    possible_best: tuple[str, ...]
    advice: str
    policies: tuple[str, ...] = ()  # to label answers of
    n_labels: int | None = None  # of each, on the same prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyComparison:
    differences: tuple[PolicyDifference, ...]
    ranking: tuple[PolicyRank, ...]  # best first
    next_step: NextStep


def compare(
    headlines: Mapping[str, Anchored], refused: Sequence[str] = ()
) -> PolicyComparison:
    """Compare policies by the estimates that their headlines rest on.

    refused  policies without a headline, one of which may be the best
    Holm (1979) adjusts p values for all pairs; simultaneous intervals are by the largest |t| under
    normal multipliers of the influences.
    """
    names = sorted(headlines, key=lambda name: -headlines[name].anchor.value)
    if not names:
        step = NextStep(
            decision_ready=False,
            possible_best=(),
            advice=f"No policy can be compared: label {MIN_AUDIT} or more answers of each.",
        )
        return PolicyComparison(differences=(), ranking=(), next_step=step)
    found = [headlines[name] for name in names]
    value = np.array([one.anchor.value for one in found])
    influence = np.stack([one.anchor.influence for one in found])
    std_error, df = _pair_errors(influence)
    i, j = np.triu_indices(len(names), k=1)
    p_values = 2 * stdtr(df[i, j], -np.abs(value[i] - value[j]) / std_error[i, j])
    reach = _simultaneous(influence, std_error, df)
    differences = tuple(
        PolicyDifference(
            a=names[a],
            b=names[b],
            value=float(value[a] - value[b]),
            std_error=float(std_error[a, b]),
            half_width=t_quantile(df[a, b]) * float(std_error[a, b]),
            p_value=float(p_value),
            p_holm=float(adjusted),
            low=float(value[a] - value[b] - reach[a, b]),
            high=float(value[a] - value[b] + reach[a, b]),
            rests_on=_weaker(found[a].rests_on, found[b].rests_on),
        )
        for a, b, p_value, adjusted in zip(
            i.tolist(), j.tolist(), p_values, holm(p_values), strict=True
        )
    )
    above = (
        value[:, None] - value[None, :] > reach
    )  # certainly, of the row over the column
    ranking = tuple(
        PolicyRank(
            policy=name,
            value=float(value[k]),
            rank_low=1 + int(above[:, k].sum()),
            rank_high=len(names) - int(above[k].sum()),
            possible_best=not above[:, k].any(),
        )
        for k, name in enumerate(names)
    )
    best = tuple(row.policy for row in ranking if row.possible_best)
    return PolicyComparison(
        differences=differences,
        ranking=ranking,
        next_step=_next_step(headlines, names, best, refused),
    )


def _pair_errors(influence: Array) -> tuple[Array, Array]:
    """(p, p) standard errors and degrees of freedom of the differences; NaN where there is none."""
    shape = (len(influence), len(influence))
    std_error, df = np.full(shape, np.nan), np.ones(shape)
    for a, b in combinations(range(len(influence)), 2):
        present = (influence[a] != 0) | (influence[b] != 0)
        error, freedom = clustered_error(influence[a] - influence[b], present)
        std_error[a, b] = std_error[b, a] = error or np.nan
        df[a, b] = df[b, a] = freedom
    return std_error, df


def _simultaneous(influence: Array, std_error: Array, df: Array) -> Array:
    """(p, p) half-widths of intervals that hold all differences at once."""
    rng = np.random.default_rng(0)
    noise = influence @ rng.standard_normal((influence.shape[1], _N_DRAWS))
    largest = max_t_quantile(noise, std_error)
    level = 1.0 - 2.0 * float(ndtr(-largest))
    quantile = np.vectorize(lambda freedom: t_quantile(freedom, level=level))
    return np.asarray(np.nan_to_num(quantile(df) * std_error, nan=math.inf))


def _weaker(first: str, second: str) -> str:
    if BORROWED in (first, second):
        return BORROWED
    return first if first == second else f"{first}, {second}"


def _next_step(
    headlines: Mapping[str, Anchored],
    names: Sequence[str],
    best: tuple[str, ...],
    refused: Sequence[str],
) -> NextStep:
    """Advise labels of the leader and its closest rival, on the same prompts.

    The variance of their difference is that of prompts, which labels do not change, and that of
    labels, which shrinks with their number.
    """
    step = partial(NextStep, decision_ready=False, possible_best=best)
    borrowed = [name for name in names if headlines[name].rests_on == BORROWED]
    if unknown := (*borrowed, *refused):
        return step(
            policies=unknown,
            n_labels=MIN_AUDIT,
            advice=f"Label {MIN_AUDIT} or more answers of {', '.join(unknown)}: without labels of "
            "their own nothing can be decided about them.",
        )
    if len(best) == 1:
        advice = f"{best[0]} is best; no more labels are needed to say so."
        return NextStep(decision_ready=True, possible_best=best, advice=advice)
    pair = tuple(best[:2])
    first, second = (headlines[name].anchor for name in pair)
    present = (first.influence != 0) | (second.influence != 0)
    whole, _ = clustered_error(first.influence - second.influence, present)
    by_label = first.influence_labels - second.influence_labels
    labels = clustered_error(by_label, present)[0] ** 2
    prompts = max(whole**2 - labels, 0.0)
    allowed = ((first.value - second.value) / t_quantile(math.inf)) ** 2
    n_now = min(first.n_own, second.n_own) or min(first.n_labels, second.n_labels)
    lead = f"a difference of {first.value - second.value:.2g}"
    n_labels = (
        math.ceil(n_now * labels / (allowed - prompts)) if allowed > prompts else None
    )
    advice = (
        f"Label about {n_labels or 0:,} answers each of {' and '.join(pair)} to the same "
        f"prompts ({n_now:,} now), to tell {lead}."
    )
    if n_labels is None or n_labels > present.sum():
        n_labels = None
        advice = (
            f"{lead[0].upper()}{lead[1:]} between {' and '.join(pair)} takes more than "
            f"these {present.sum():,} prompts, even with every answer labelled."
        )
    return step(policies=pair, n_labels=n_labels, advice=advice)
