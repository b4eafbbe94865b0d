"""The headline of each policy, which policies differ, and what to label next.

The direct estimate takes the logging policy's calibration as its own, and is biased where a score
means something else for the policy. Two estimates do not borrow: one corrected by labels of the
policy's own answers, one by logged labels under the raw importance weights. They are noisier, so
the headline moves towards them by what their distance shows beyond noise.

A difference has an error of its own: both policies answered the same prompts, and labels that both
use through one curve cancel. So it is taken from their influences by prompt, paired, and never from
two intervals side by side. Letters: p policies that are not refused, g prompts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, stdtr

from elo_exp.analysis.comparisons import holm, max_t_quantile
from elo_exp.arrays import records
from elo_exp.oracle import weights
from elo_exp.oracle.evidence import (
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Estimate,
)
from elo_exp.oracle.gates import (
    MIN_AUDIT,
    MIN_LABELS,
    STATUSES,
    Checked,
    decide,
    raw_weight_gates,
)
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.records import Record

OWN, WEIGHTS, BORROWED = "own labels", "raw weights", "borrowed calibration"
REQUIRES = {  # what a headline that rests on this requires, as an estimator does
    OWN: (FRESH_DRAWS,),
    WEIGHTS: (RAW_WEIGHTS, FRESH_DRAWS),
    BORROWED: (FRESH_DRAWS,),
}


class Anchored(NamedTuple):
    """The headline's estimate.

    anchor    what it rests on alone, for differences between policies
    rests_on  own labels, raw weights or borrowed calibration
    why       what would have been needed, where the calibration is borrowed
    """

    estimate: Estimate
    anchor: Estimate
    rests_on: str
    why: str = ""


def anchored(checked: Checked) -> Anchored:
    """Move the borrowed estimate d towards the anchor a: d + share (a - d).

    The share is D^2 / (D^2 + s^2) for D = a - d of paired standard error s. The squared half-width
    mixes those of d and a, with the part kappa of d: 1 - share for raw weights, half of that for
    own labels. Where the policy's scores are not among those of the labelled answers, own labels
    stand alone, and so they do without logged answers, where the curve is through them, too. Raises
    NotEstimableError without fresh draws or labels at their scores.
    """
    (own, weight), labelled = checked.own, checked.logged.labelled
    n_own, anchors = len(own.rows), {}
    if n_own >= MIN_AUDIT:
        anchors[OWN] = checked.corrected_mean(own, weight, n_own=n_own)
    why = "there are no weights"
    if checked.weights and labelled.any():
        raw, at = checked.cut[labelled], checked.calibration(checked.logged[labelled])
        n_effective = weights.effective_sample_size(raw)
        few = f"weights come to {n_effective:.0f} of {len(raw)} labels, {MIN_LABELS} needed"
        gates = [
            *raw_weight_gates(checked.weights),
            (False, n_effective < MIN_LABELS, few),
        ]
        if refused := [reason for _, is_refused, reason in gates if is_refused]:
            why = f"the logs tell too little ({refused[0]})"
        else:
            anchors[WEIGHTS] = checked.corrected_mean(at, raw)
    is_alone = checked.overlap.refuses or checked.data.logging_policy is None
    if is_alone and OWN in anchors:
        return Anchored(anchors[OWN], anchors[OWN], OWN)
    base = checked.borrowed
    if checked.is_logging_policy:
        return Anchored(base, base, OWN)
    if not anchors:
        why = f"{n_own} of its own answers are labelled ({MIN_AUDIT} needed), and {why}"
        return Anchored(base, base, BORROWED, why)

    def preference(name: str) -> tuple[int, float]:
        status, _ = decide(checked, anchors[name], REQUIRES[name])
        return STATUSES.index(status), anchors[name].std_error

    rests_on = min(anchors, key=preference)
    anchor = anchors[rests_on]
    off = difference(anchor, base)
    share = off.value**2 / (off.value**2 + off.std_error**2) if off.value else 0.0
    kappa = (1 - share) / (2 if rests_on == OWN else 1)
    squared = kappa * base.half_width**2 + (1 - kappa) * anchor.half_width**2
    std_error = squared**0.5 / float(t_quantile(anchor.degrees_of_freedom))
    estimate = replace(
        anchor,
        value=base.value + share * off.value,
        std_error=std_error,
        std_error_labels=anchor.std_error_labels * std_error / anchor.std_error,
    )
    return Anchored(estimate, anchor, rests_on)


def difference(a: Estimate, b: Estimate) -> Estimate:
    """Subtract one estimate from another, paired by prompt."""
    present = (a.influence != 0) | (b.influence != 0)
    return Estimate.by_prompt(
        a.value - b.value,
        a.influence - b.influence,
        a.influence_labels - b.influence_labels,
        present,
        n=int(present.sum()),
        n_labels=min(a.n_own, b.n_own) or min(a.n_labels, b.n_labels),
    )


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


class PolicyComparison(NamedTuple):
    differences: list[PolicyDifference]
    ranking: list[PolicyRank]  # best first
    next_step: NextStep


def compare(
    headlines: Mapping[str, Anchored], refused: Sequence[str] = ()
) -> PolicyComparison:
    """Compare policies by the estimates that their headlines rest on.

    refused  policies without a headline, one of which may be the best
    Holm (1979) adjusts p values for all pairs; simultaneous intervals are by the largest |t| under
    normal multipliers of the influences.
    """
    ranked = dict(sorted(headlines.items(), key=lambda item: -item[1].anchor.value))
    if not ranked:
        return PolicyComparison([], [], _next_step(ranked, (), refused))
    policy, n = np.array(list(ranked), dtype=object), len(ranked)
    anchors = [one.anchor for one in ranked.values()]
    i, j = np.triu_indices(n, k=1)
    found = [difference(a, b) for a, b in combinations(anchors, 2)]
    numbers = [(d.value, d.std_error, d.degrees_of_freedom) for d in found]
    value, std_error, df = np.reshape(numbers, (-1, 3)).T
    std_error = np.where(std_error > 0, std_error, np.nan)
    p_value = 2 * stdtr(df, -np.abs(value) / std_error)
    between = np.full((n, n), np.nan)
    between[i, j] = between[j, i] = std_error
    influence = np.stack([anchor.influence for anchor in anchors])
    rng = np.random.default_rng(0)
    noise = influence @ rng.standard_normal((influence.shape[1], _N_DRAWS))
    level = 1.0 - 2.0 * float(ndtr(-max_t_quantile(noise, between)))
    reach = np.nan_to_num(t_quantile(df, level=level) * std_error, nan=math.inf)
    differences = records(
        PolicyDifference,
        a=policy[i],
        b=policy[j],
        value=value,
        std_error=std_error,
        half_width=t_quantile(df) * std_error,
        p_value=p_value,
        p_holm=holm(p_value),
        low=value - reach,
        high=value + reach,
        rests_on=[
            BORROWED if BORROWED in pair else ", ".join(dict.fromkeys(pair))
            for pair in combinations([one.rests_on for one in ranked.values()], 2)
        ],
    )
    is_above = value > reach  # certainly, of the first over the second
    rank_low = 1 + np.bincount(j[is_above], minlength=n)
    ranking = records(
        PolicyRank,
        policy=policy,
        value=np.array([anchor.value for anchor in anchors]),
        rank_low=rank_low,
        rank_high=n - np.bincount(i[is_above], minlength=n),
        possible_best=rank_low == 1,
    )
    best = tuple(policy[rank_low == 1])
    return PolicyComparison(differences, ranking, _next_step(ranked, best, refused))


def _next_step(
    ranked: Mapping[str, Anchored], best: tuple[str, ...], refused: Sequence[str]
) -> NextStep:
    """Advise labels of the leader and its closest rival, on the same prompts."""
    step = partial(NextStep, decision_ready=False, possible_best=best)
    borrowed = [name for name, one in ranked.items() if one.rests_on == BORROWED]
    if unknown := (*borrowed, *refused):
        advice = (
            f"Label {MIN_AUDIT} or more answers of {', '.join(unknown)}: without labels of "
            "their own nothing can be decided about them."
        )
        return step(policies=unknown, n_labels=MIN_AUDIT, advice=advice)
    if len(best) == 1:
        advice = f"{best[0]} is best; no more labels are needed to say so."
        return step(decision_ready=True, advice=advice)
    pair, both = best[:2], " and ".join(best[:2])
    gap = difference(*(ranked[name].anchor for name in pair))
    needed = gap.labels_needed(gap.value)
    if needed > gap.n:
        advice = (
            f"A difference of {gap.value:.2g} between {both} takes more than these "
            f"{gap.n:,} prompts, even with every answer labelled."
        )
        return step(policies=pair, advice=advice)
    advice = (
        f"Label about {math.ceil(needed):,} answers each of {both} to the same prompts "
        f"({gap.n_labels:,} now), to tell a difference of {gap.value:.2g}."
    )
    return step(policies=pair, n_labels=math.ceil(needed), advice=advice)
