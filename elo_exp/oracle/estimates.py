"""From a data set to estimates: the headline of each policy and every estimator, their status.

And from headlines to which policies differ, and what to label next.

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
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, stdtr

from elo_exp.analysis.comparisons import holm, max_t_quantile
from elo_exp.arrays import rows
from elo_exp.oracle import cje, weights
from elo_exp.oracle.calibration import Calibration, calibrate
from elo_exp.oracle.data import Dataset, Scale
from elo_exp.oracle.evidence import (
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Estimate,
    Estimator,
    NotEstimableError,
)
from elo_exp.oracle.gates import (
    MIN_AUDIT,
    MIN_LABELS,
    REFUSE,
    REPORT,
    STATUSES,
    Checked,
    decide,
    raw_weight_gates,
)
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.records import Record

HEADLINE = "anchored"
_N_DRAWS = 5_000  # of the largest |t| of all pairs
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep(Record):
    """Whether the best policy is known, or what would tell."""

    decision_ready: bool
    possible_best: tuple[str, ...]
    advice: str
    policies: tuple[str, ...] = ()  # to label answers of
    n_labels: int | None = None  # of each, on the same prompts


class PolicyComparison(NamedTuple):
    """Rows of differences.json, and of ranking.json, the best first; docs/oracle.md has the fields."""

    differences: list[dict[str, Any]]
    ranking: list[dict[str, Any]]
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
    differences = rows(
        a=policy[i],
        b=policy[j],
        value=value,
        std_error=std_error,
        half_width=t_quantile(df) * std_error,
        p_value=p_value,
        p_holm=holm(p_value),
        low=value - reach,  # of all at once
        high=value + reach,
        rests_on=[
            BORROWED if BORROWED in pair else ", ".join(dict.fromkeys(pair))
            for pair in combinations([one.rests_on for one in ranked.values()], 2)
        ],
    )
    is_above = value > reach  # certainly, of the first over the second
    rank_low = 1 + np.bincount(j[is_above], minlength=n)
    ranking = rows(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEstimate(Record):
    """One estimate of one policy's mean oracle label; no numbers where it is refused."""

    policy: str
    estimator: str
    value: float | None = None
    std_error: float | None = None  # over prompts, including the error of the labels
    ci_low: float | None = None  # 95 %, within the scale
    ci_high: float | None = None
    n: int = 0  # rows: logged ones, or fresh draws for `direct`
    ess: float | None = None  # rows, of the weights; None without weights
    status: str = REPORT  # one of gates.STATUSES
    reason: str = ""  # why not to report it
    # The part of std_error that more labels would shrink.
    std_error_labels: float | None = None
    n_labels: int = 0
    degrees_of_freedom: float | None = None  # None for a normal interval
    ci_clipped: bool = False  # the interval reached beyond the scale
    headline: bool = False  # the one estimate to quote of the policy
    rests_on: str = (
        ""  # of an anchored one: own labels, raw weights, borrowed calibration
    )
    effective_labels: float | None = None  # that its correction comes to


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of an analysis; conf/config.yaml describes them."""

    by_variance: bool
    max_residual: float
    half_widths: tuple[float, ...]
    compat: str | None


@dataclass(kw_only=True)
class Analysis:
    """All results, the dictionaries by policy."""

    data: Dataset
    options: Options
    calibration: Calibration
    checks: dict[str, Checked] = field(default_factory=dict)
    estimates: list[PolicyEstimate] = field(default_factory=list)
    # By policy and estimator, whatever the status.
    unfiltered: dict[tuple[str, str], Estimate] = field(default_factory=dict)
    # Of those that are not refused
    headlines: dict[str, Anchored] = field(default_factory=dict)

    def of(self, policy: str) -> list[PolicyEstimate]:
        return [estimate for estimate in self.estimates if estimate.policy == policy]

    @cached_property
    def comparison(self) -> PolicyComparison:
        refused = [name for name in self.data.policies if name not in self.headlines]
        return compare(self.headlines, refused)


def analyse(
    data: Dataset, estimators: Mapping[str, Estimator], options: Options
) -> Analysis:
    """Apply every estimator to every policy; with `compat`, that library's formulas instead."""
    compat, scale = options.compat is not None, data.scale
    labels = data.logged if compat else data.pool
    calibration = calibrate(labels, by_variance=options.by_variance)
    if compat:
        estimators = {name: cje.Formula(name=name) for name in estimators}
        scale = Scale(-math.inf, math.inf)
    found = Analysis(data=data, options=options, calibration=calibration)
    for policy in data.policies:
        checked = found.checks[policy] = Checked(
            data=data,
            policy=policy,
            calibration=calibration,
            max_residual=options.max_residual,
        )
        of_policy, has_headline = [], not compat and len(checked.fresh) > 0
        for name in [HEADLINE] * has_headline + list(estimators):
            row = PolicyEstimate(policy=policy, estimator=name, status=REFUSE)
            try:
                if name == HEADLINE:
                    lead = anchored(checked)
                    estimate, requires = lead.estimate, REQUIRES[lead.rests_on]
                    row = replace(row, rests_on=lead.rests_on)
                else:
                    estimate = checked.estimate(estimators[name])
                    requires = estimators[name].requires
            except NotEstimableError as error:
                of_policy.append(replace(row, reason=str(error)))
                continue
            found.unfiltered[policy, name] = estimate
            headline = lead.estimate if policy in found.headlines else None
            status, reason = decide(
                checked, estimate, requires, headline, compat=compat
            )
            if status != REFUSE and name == HEADLINE:
                found.headlines[policy] = lead
                reason += f": {lead.why}" if lead.why else ""
            numbers: dict[str, Any] = {
                "n": estimate.n,
                "ess": estimate.ess,
                "n_labels": estimate.n_labels,
                "effective_labels": estimate.effective_labels,
            }
            if status != REFUSE:
                half, df = estimate.half_width, estimate.degrees_of_freedom
                low, high = estimate.value - half, estimate.value + half
                numbers |= {
                    "value": estimate.value,
                    "std_error": estimate.std_error,
                    "ci_low": max(low, scale.low),
                    "ci_high": min(high, scale.high),
                    "ci_clipped": low < scale.low or high > scale.high,
                    "std_error_labels": estimate.std_error_labels,
                    "degrees_of_freedom": df if math.isfinite(df) else None,
                }
            of_policy.append(replace(row, status=status, reason=reason, **numbers))
        if not compat:
            best = min(of_policy, key=lambda row: STATUSES.index(row.status))
            first = of_policy[0] if has_headline else best
            of_policy = [replace(row, headline=row is first) for row in of_policy]
        found.estimates += of_policy
    return found


def label_budget(
    estimate: Estimate, half_widths: Sequence[float], *, max_labels: int
) -> dict[str, Any]:
    """Count the labels that 95 % intervals of these half-widths take, all else being equal.

    Returns the half-width now, that with infinitely many labels, and `labels_for` each half-width,
    None for more than max_labels.
    """
    needed = {f"{h:g}": estimate.labels_needed(h) for h in half_widths}
    at_best = float(t_quantile(math.inf)) * math.sqrt(estimate.variance_of_prompts)
    return {
        "n_labels": estimate.n_labels,
        "half_width": estimate.half_width,
        "half_width_at_best": at_best,
        "labels_for": {
            half_width: math.ceil(n) if n <= max_labels else None
            for half_width, n in needed.items()
        },
    }
