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

import numpy as np
from scipy.special import ndtr, stdtr

from elo_exp.analysis.comparisons import holm, max_t_quantile
from elo_exp.arrays import Array, records
from elo_exp.oracle import weights
from elo_exp.oracle.evidence import (
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Estimate,
    clustered_error,
)
from elo_exp.oracle.gates import (
    MIN_AUDIT,
    MIN_LABELS,
    REFUSE,
    STATUSES,
    PolicyDiagnostics,
    decide,
    raw_weight_findings,
)
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.records import Record

OWN, WEIGHTS, BORROWED = "own labels", "raw weights", "borrowed calibration"
REQUIRES = {  # what a headline that rests on this requires, as an estimator does
    OWN: (FRESH_DRAWS,),
    WEIGHTS: (RAW_WEIGHTS, FRESH_DRAWS),
    BORROWED: (FRESH_DRAWS,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchored:
    """The headline's estimate.

    anchor    what it rests on alone, for differences between policies
    rests_on  own labels, raw weights or borrowed calibration
    why       what would have been needed, where the calibration is borrowed
    """

    estimate: Estimate
    anchor: Estimate
    rests_on: str
    why: str = ""


def anchored(checked: PolicyDiagnostics) -> Anchored:
    """Move the borrowed estimate d towards the anchor a: d + share (a - d).

    The share is D^2 / (D^2 + s^2) for D = a - d of paired standard error s. The squared half-width
    mixes those of d and a, with the part kappa of d: 1 - share for raw weights, half of that for
    own labels. Where the policy's scores are not among those of the labelled answers, own labels
    stand alone, and so they do without logged answers, where the curve is through them, too. Raises
    NotEstimableError without fresh draws or labels at their scores.
    """
    evidence = checked.evidence
    found, why = _anchors(checked)
    is_alone = checked.overlap.refuses or evidence.data.logging_policy is None
    if is_alone and OWN in found:
        return Anchored(estimate=found[OWN], anchor=found[OWN], rests_on=OWN)
    base = evidence.borrowed
    if evidence.is_logging_policy:
        return Anchored(estimate=base, anchor=base, rests_on=OWN)
    if not found:
        return Anchored(estimate=base, anchor=base, rests_on=BORROWED, why=why)

    def preference(name: str) -> tuple[int, float]:
        status, _ = decide(checked, found[name], REQUIRES[name])
        return STATUSES.index(status), found[name].std_error

    rests_on = min(found, key=preference)
    anchor = found[rests_on]
    paired, _ = _paired_error(np.stack([anchor.influence, base.influence]))
    distance = anchor.value - base.value
    share = distance**2 / (distance**2 + paired**2) if distance else 0.0
    kappa = (1 - share) / (2 if rests_on == OWN else 1)
    squared = kappa * base.half_width**2 + (1 - kappa) * anchor.half_width**2
    std_error = squared**0.5 / float(t_quantile(anchor.degrees_of_freedom))
    from_labels = anchor.std_error_labels * std_error / anchor.std_error
    estimate = replace(
        anchor,
        value=base.value + share * distance,
        std_error=std_error,
        std_error_labels=from_labels,
    )
    return Anchored(estimate=estimate, anchor=anchor, rests_on=rests_on)


def _anchors(checked: PolicyDiagnostics) -> tuple[dict[str, Estimate], str]:
    """The estimates that do not borrow, by what they rest on, and why others are missing."""
    evidence, found = checked.evidence, {}
    (own, weight), labelled = evidence.own, evidence.logged.labelled
    if (n_own := len(own.rows)) >= MIN_AUDIT:
        found[OWN] = evidence.corrected_mean(own, weight, n_own=n_own)
    why = f"{n_own} of its own answers are labelled ({MIN_AUDIT} needed)"
    if checked.weights is None or not labelled.any():
        return found, f"{why}, and there are no weights"
    raw = evidence.cut[labelled]
    effective = weights.effective_sample_size(raw)
    refused = [
        reason
        for status, reason in raw_weight_findings(checked.weights)
        if status == REFUSE
    ]
    if effective >= MIN_LABELS and not refused:
        at = evidence.calibration(evidence.logged[labelled])
        found[WEIGHTS] = evidence.corrected_mean(at, raw)
    elif refused:
        why += f", and the logs tell too little ({refused[0]})"
    else:
        why += (
            f", and the logs tell too little (weights come to {effective:.0f} of "
            f"{len(raw)} labels, {MIN_LABELS} needed)"
        )
    return found, why


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
    ranked = dict(sorted(headlines.items(), key=lambda item: -item[1].anchor.value))
    if not ranked:
        advice = (
            f"No policy can be compared: label {MIN_AUDIT} or more answers of each."
        )
        step = NextStep(decision_ready=False, possible_best=(), advice=advice)
        return PolicyComparison(differences=(), ranking=(), next_step=step)
    policy, n = np.array(list(ranked), dtype=object), len(ranked)
    value = np.array([one.anchor.value for one in ranked.values()])
    rests_on = np.array([one.rests_on for one in ranked.values()])
    influence = np.stack([one.anchor.influence for one in ranked.values()])
    i, j = np.triu_indices(n, k=1)
    errors = [_paired_error(influence[pair]) for pair in np.column_stack([i, j])]
    std_error, df = np.reshape(errors, (-1, 2)).T
    std_error = np.where(std_error > 0, std_error, np.nan)
    difference = value[i] - value[j]
    p_value = 2 * stdtr(df, -np.abs(difference) / std_error)
    between = np.full((n, n), np.nan)
    between[i, j] = between[j, i] = std_error
    rng = np.random.default_rng(0)
    noise = influence @ rng.standard_normal((influence.shape[1], _N_DRAWS))
    level = 1.0 - 2.0 * float(ndtr(-max_t_quantile(noise, between)))
    reach = np.nan_to_num(t_quantile(df, level=level) * std_error, nan=math.inf)
    differences = records(
        PolicyDifference,
        a=policy[i],
        b=policy[j],
        value=difference,
        std_error=std_error,
        half_width=t_quantile(df) * std_error,
        p_value=p_value,
        p_holm=holm(p_value),
        low=difference - reach,
        high=difference + reach,
        rests_on=[
            BORROWED if BORROWED in pair else ", ".join(dict.fromkeys(pair))
            for pair in rests_on[np.column_stack([i, j])]
        ],
    )
    is_above = difference > reach  # certainly, of the first over the second
    rank_low = 1 + np.bincount(j[is_above], minlength=n)
    ranking = records(
        PolicyRank,
        policy=policy,
        value=value,
        rank_low=rank_low,
        rank_high=n - np.bincount(i[is_above], minlength=n),
        possible_best=rank_low == 1,
    )
    best = tuple(policy[rank_low == 1])
    return PolicyComparison(
        differences=tuple(differences),
        ranking=tuple(ranking),
        next_step=_next_step(ranked, best, refused),
    )


def _paired_error(influence: Array) -> tuple[float, float]:
    """Standard error and degrees of freedom of a difference, from both influences (2, g)."""
    first, second = influence
    return clustered_error(first - second, (influence != 0).any(axis=0))


def _next_step(
    ranked: Mapping[str, Anchored], best: tuple[str, ...], refused: Sequence[str]
) -> NextStep:
    """Advise labels of the leader and its closest rival, on the same prompts.

    The variance of their difference is that of prompts, which labels do not change, and that of
    labels, which shrinks with their number.
    """
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
        return NextStep(decision_ready=True, possible_best=best, advice=advice)
    pair = best[:2]
    first, second = (ranked[name].anchor for name in pair)
    influence = np.stack([first.influence, second.influence])
    present = (influence != 0).any(axis=0)
    whole, _ = _paired_error(influence)
    by_label = first.influence_labels - second.influence_labels
    labels = clustered_error(by_label, present)[0] ** 2
    gap, both = first.value - second.value, " and ".join(pair)
    allowed = (gap / float(t_quantile(math.inf))) ** 2 - max(whole**2 - labels, 0.0)
    n_now = min(first.n_own, second.n_own) or min(first.n_labels, second.n_labels)
    needed = n_now * labels / allowed if allowed > 0 else math.inf
    if needed > present.sum():
        advice = (
            f"A difference of {gap:.2g} between {both} takes more than these "
            f"{present.sum():,} prompts, even with every answer labelled."
        )
        return step(policies=pair, advice=advice)
    advice = (
        f"Label about {math.ceil(needed):,} answers each of {both} to the same prompts "
        f"({n_now:,} now), to tell a difference of {gap:.2g}."
    )
    return step(policies=pair, n_labels=math.ceil(needed), advice=advice)
