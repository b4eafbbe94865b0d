"""Estimates of a data set with their status: the reported estimate of each policy and every estimator.

The module also tests which policies differ, and plans the next labels.

The direct estimate uses the logging policy's calibration, and is biased if a score means something different for the
policy. Two estimates do not borrow this calibration: one is corrected by target-policy labels, one by logged labels
with raw importance weights. They are noisier, so the reported estimate moves towards them only as far as their distance
exceeds the noise.

A difference has an error of its own: both policies answered the same prompts, and errors of labels that both use
through one curve cancel. It is therefore computed from paired influences by prompt, never from two intervals.

Letters: p policies that are not refused, g prompts.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from elo_exp.analysis.comparisons import ALPHA, adjust_by_holm, max_t_quantile
from elo_exp.analysis.conclusions import Conclusion, Effect, Scope
from elo_exp.analysis.conclusions.oracle_conclusion import DECIDED, conclude_choice
from elo_exp.analysis.conclusions.oracle_conclusion import conclude_policy as conclude
from elo_exp.arrays import Array, make_rows
from elo_exp.oracle import cje, weights
from elo_exp.oracle.calibration import Calibration, calibrate
from elo_exp.oracle.data import Dataset, NotEstimableError, Scale
from elo_exp.oracle.evidence import FRESH_DRAWS, RAW_WEIGHTS, Estimate, Estimator
from elo_exp.oracle.gates import (
    MIN_EFFECTIVE_LABELS,
    MIN_OWN_LABELS,
    REFUSE,
    REPORT,
    STATUSES_BEST_FIRST,
    GatedEvidence,
    check_raw_weights,
    decide_status,
)
from elo_exp.oracle.label_means import LabelMean, assume_equal_labels
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.records import Record

HEADLINE_ESTIMATOR = "anchored"
_N_MAX_T_DRAWS = 5_000
# Power with which a round of labels ends the search
_LABELLING_ROUND_POWER = 0.8
# So that rounds of labelling come to an end
_MIN_LABEL_GROWTH = 1.25
OWN, WEIGHTS, BORROWED = "own labels", "raw weights", "borrowed calibration"
# What the headline estimate requires, as an estimator's `requires` does
REQUIREMENTS_BY_BASIS = {
    OWN: (FRESH_DRAWS,),
    WEIGHTS: (RAW_WEIGHTS, FRESH_DRAWS),
    BORROWED: (FRESH_DRAWS,),
}


class HeadlineEstimate(NamedTuple):
    """The reported estimate of a policy.

    anchor     the estimate that it rests on, for differences between policies
    rests_on   own labels, raw weights or borrowed calibration
    reason     the missing evidence, if the calibration is borrowed
    """

    estimate: Estimate
    anchor: Estimate
    rests_on: str
    reason: str = ""


def estimate_headline(checked: GatedEvidence) -> HeadlineEstimate:
    """Move the borrowed estimate d towards the anchor a: d + share (a - d).

    The share is D^2 / (D^2 + s^2) for D = a - d of paired standard error s. The squared half-width
    mixes those of d and a, with the part kappa of d: 1 - share for raw weights, half of that for
    own labels. Where the policy's scores are not among those of the labelled answers, own labels
    stand alone, and so they do without logged answers, where the curve is through them, too. Raises
    NotEstimableError without fresh draws or labels at their scores.
    """
    (own_reading, weight), labelled = checked.own_labels, checked.logged.is_labelled
    n_own, anchors = len(own_reading.rows), {}
    if checked.n_own_prompts >= MIN_OWN_LABELS:
        anchors[OWN] = checked.estimate_corrected_mean(own_reading, weight, n_own=n_own)
    why = "there are no importance weights"
    if checked.weight_diagnostics and labelled.any():
        raw = (checked.weights.clipped * checked.logged.label_weights)[labelled]
        reading = checked.calibration(checked.logged[labelled])
        n_effective = weights.effective_sample_size(raw)
        reason = f"the weights are worth {n_effective:.0f} of {len(raw)} labels, {MIN_EFFECTIVE_LABELS} needed"
        gates = [
            *check_raw_weights(checked.weight_diagnostics),
            ("labels", False, n_effective < MIN_EFFECTIVE_LABELS, reason),
        ]
        if refusals := [words for _, _, is_refused, words in gates if is_refused]:
            why = f"the logged answers are not enough ({refusals[0]})"
        else:
            anchors[WEIGHTS] = checked.estimate_corrected_mean(reading, raw)
    is_alone = checked.overlap.refuses or checked.data.logging_policy is None
    is_alone = is_alone or checked.find_selected_labels(is_own=False) is not None
    if is_alone and OWN in anchors:
        return HeadlineEstimate(anchors[OWN], anchors[OWN], OWN)
    base = checked.borrowed_estimate
    if checked.is_logging_policy:
        return HeadlineEstimate(base, base, OWN)
    if not anchors:
        n = checked.n_own_prompts
        labels = f"{n_own} of its own answers are labelled"
        if n < n_own:
            labels = (
                f"its own answers are labelled on {n} prompts or clusters of prompts"
            )
        why = f"{labels} ({MIN_OWN_LABELS} needed), and {why}"
        return HeadlineEstimate(base, base, BORROWED, why)

    def preference(name: str) -> tuple[int, float]:
        status, _ = decide_status(checked, anchors[name], REQUIREMENTS_BY_BASIS[name])
        return STATUSES_BEST_FIRST.index(status), anchors[name].std_error

    rests_on = min(anchors, key=preference)
    anchor = anchors[rests_on]
    gap = subtract_estimates(anchor, base)
    share = gap.value**2 / (gap.value**2 + gap.std_error**2) if gap.value else 0.0
    kappa = (1 - share) / (2 if rests_on == OWN else 1)
    squared_half_width = (
        kappa * base.interval_half_length**2 + (1 - kappa) * anchor.half_width**2
    )
    std_error = squared_half_width**0.5 / float(t_quantile(anchor.degrees_of_freedom))
    from_labels = std_error
    if anchor.std_error > 0:
        from_labels *= anchor.std_error_labels / anchor.std_error
    estimate = replace(
        anchor,
        value=base.value + share * gap.value,
        std_error=std_error,
        std_error_labels=from_labels,
    )
    if anchor.bounded_interval:
        low, high = anchor.bounded_interval
        ends = min(low, estimate.value), max(high, estimate.value)
        estimate = replace(estimate, bounded_interval=ends)
    return HeadlineEstimate(estimate, anchor, rests_on)


def subtract_estimates(a: Estimate, b: Estimate) -> Estimate:
    """Subtract one estimate from another, paired by prompt."""
    present = (a.influence != 0) | (b.influence != 0)
    labels = a.labels
    if b.labels is not None:
        labels = a.labels + -b.labels if a.labels else -b.labels
    return Estimate.from_influences(
        a.value - b.value,
        a.influence - b.influence,
        a.influence_labels - b.influence_labels,
        present,
        n=int(present.sum()),
        n_labels=min(a.n_own, b.n_own) or min(a.n_labels, b.n_labels),
        labels=labels,
        influence_outside_bounds=a.influence_beside_labels - b.influence_beside_labels,
    )


class LabelCount(NamedTuple):
    """The numbers of labelled answers and of all answers of a policy."""

    n_labelled: int
    n_answers: int

    @property
    def is_whole(self) -> bool:
        return self.n_labelled >= self.n_answers


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep(Record):
    """The policy to choose, or the answers to label next."""

    decision_ready: bool
    choice: str | None  # the chosen policy, if a decision is ready
    # Upper 95% bound of the distance of the top policy to the best; None without a top policy
    most_lost: float | None
    tolerance: float  # a loss that does not matter
    possible_best: tuple[str, ...]
    policies: tuple[str, ...] = ()  # to label answers of
    # of each policy, on the same prompts, present labels included
    n_labels: int | None = None


class PolicyComparison(NamedTuple):
    """Rows of differences.json, and of ranking.json, the best first; docs/oracle_files.md has the fields.

    choice        the conclusion about the policy to choose
    n_labels_now  present labels of each policy in next_step.policies
    """

    differences: list[dict[str, Any]]
    ranking: list[dict[str, Any]]
    choice: Conclusion
    next_step: NextStep
    n_labels_now: int


class PairDifferences(NamedTuple):
    """Differences of n ranked policies, of each from all below it; (p,) for p = n (n - 1) / 2 pairs.

    gaps   the first minus the second
    times  standard errors on each side of intervals that hold all differences at once
    below, above  how far these reach from the differences
    alone  (p, 2) the same of the 95% intervals of each difference by itself
    """

    gaps: list[Estimate]
    value: Array
    std_error: Array
    df: Array
    t_multiplier: Array
    below: Array
    above: Array
    single_reach: Array
    p_value: Array


class Rival(NamedTuple):
    """A lead over another policy, with its times of Pairs and how much farther its interval reaches."""

    lead: Estimate
    t_multiplier: float
    extra_reach: float


def compare_policies(
    headlines: Mapping[str, HeadlineEstimate],
    labelled: Mapping[str, LabelCount],
    *,
    scale: Scale,
    selected: Sequence[str],
    tolerance: float,
    scope: Scope,
) -> PolicyComparison:
    """Compare policies by the estimates that their reported estimates rest on.

    labelled   counts for all policies, because a policy without an estimate may also be the best
    selected   policies whose labels are not a random sample
    tolerance  a loss that does not matter
    """
    ranked_headlines = dict(
        sorted(headlines.items(), key=lambda item: -item[1].anchor.value)
    )
    policy, n = np.array(list(ranked_headlines), dtype=object), len(ranked_headlines)
    pairs = _compare_pairs(
        [headline.anchor for headline in ranked_headlines.values()], scale.width
    )
    i, j = np.triu_indices(n, k=1)
    is_above = pairs.value > pairs.below  # certainly, of the first over the second
    rank_low = 1 + np.bincount(j[is_above], minlength=n)
    ranking = make_rows(
        policy=policy,
        value=np.array(
            scale.clip(
                *(headline.anchor.value for headline in ranked_headlines.values())
            )
        ),
        rank_low=rank_low,
        rank_high=n - np.bincount(i[is_above], minlength=n),
        possible_best=rank_low == 1,
        rests_on=[headline.rests_on for headline in ranked_headlines.values()],
    )
    best = tuple(policy[rank_low == 1])
    borrowers = {
        name
        for name, headline in ranked_headlines.items()
        if headline.rests_on == BORROWED
    }
    unsure_policies = [
        name for name in labelled if name not in ranked_headlines or name in borrowers
    ]
    most_lost = None
    if n > 1:
        max_loss = float((pairs.below - pairs.value)[: n - 1].max())
        most_lost = min(max(max_loss, 0.0), scale.width)
    conclusion = conclude_choice(
        list(ranked_headlines),
        possible_best=best,
        unknown=[name for name in unsure_policies if not labelled[name].is_whole],
        untold=[name for name in unsure_policies if labelled[name].is_whole],
        selected=selected,
        most_lost=most_lost,
        tolerance=tolerance,
        is_labelled=all(labelled[name].is_whole for name in best),
        scope=scope,
    )
    t_half_width = pairs.t_multiplier * np.nan_to_num(pairs.std_error)
    # Otherwise neither bounds it
    is_bounded = np.isfinite(t_half_width) | np.isfinite(pairs.below)
    extra_reach = np.subtract(
        pairs.below, t_half_width, out=np.zeros_like(t_half_width), where=is_bounded
    )
    columns = (policy[1:], pairs.gaps, pairs.t_multiplier, np.maximum(extra_reach, 0.0))
    rivals = [
        Rival(gap, float(times), float(farther))
        for name, gap, times, farther in zip(*columns, strict=False)
        if name in best
    ]
    step, n_labels_now = _plan_next_step(conclusion, best, rivals, labelled, tolerance)
    differences = _make_difference_rows(policy, pairs, ranked_headlines.values())
    return PolicyComparison(differences, ranking, conclusion, step, n_labels_now)


def _compare_pairs(anchors: Sequence[Estimate], width: float) -> PairDifferences:
    """Subtract anchors pair by pair; simultaneous intervals are by the largest |t| under normal
    multipliers of the influences, and by Bonferroni where a difference has no spread.

    width  of the scale
    """
    n = len(anchors)
    gaps = [_subtract_bounded(*pair, width=width) for pair in combinations(anchors, 2)]
    numbers = [(gap.value, gap.std_error, gap.degrees_of_freedom) for gap in gaps]
    value, std_error, df = np.reshape(numbers, (-1, 3)).T
    std_error = np.where(std_error > 0, std_error, np.nan)
    if not gaps:
        empty = np.empty(0)
        empty_reach = np.empty((0, 2))
        return PairDifferences(
            gaps, empty, empty, empty, empty, empty, empty, empty_reach, empty
        )
    between = np.full((n, n), np.nan)
    i, j = np.triu_indices(n, k=1)
    between[i, j] = between[j, i] = std_error
    influence = np.stack([anchor.influence for anchor in anchors])
    rng = np.random.default_rng(0)
    noise = influence @ rng.standard_normal((influence.shape[1], _N_MAX_T_DRAWS))
    level = 1.0 - 2.0 * float(scipy.special.ndtr(-max_t_quantile(noise, between)))
    # At one pair and more; the largest |t| is simulated
    level = max(level, 1.0 - ALPHA / (len(gaps) if np.isnan(std_error).any() else 1))
    reaches = LabelMean.bound_means([gap.labels for gap in gaps if gap.labels])
    bounds = iter(reaches)
    label_reaches = [next(bounds) if gap.labels else None for gap in gaps]
    gaps_with_reaches = list(zip(gaps, label_reaches, strict=True))
    simultaneous = [
        gap.reach_at(labels, (1.0 - level) / 2) for gap, labels in gaps_with_reaches
    ]
    below, above = np.array(simultaneous).T
    return PairDifferences(
        gaps=gaps,
        value=value,
        std_error=std_error,
        df=df,
        t_multiplier=t_quantile(df, level=level),
        below=below,
        above=above,
        single_reach=np.array(
            [gap.reach_at(labels, ALPHA / 2) for gap, labels in gaps_with_reaches]
        ),
        p_value=np.array(
            [gap.compute_p_value(labels) for gap, labels in gaps_with_reaches]
        ),
    )


def _subtract_bounded(a: Estimate, b: Estimate, *, width: float) -> Estimate:
    """Subtract, and if that leaves no error at all, give the labels the error of a bounded mean."""
    gap = subtract_estimates(a, b)
    n = min(a.effective_labels or a.n_labels, b.effective_labels or b.n_labels)
    if gap.std_error > 0 or gap.labels or not n:
        return gap
    labels = assume_equal_labels(
        n, n_prompts=len(gap.influence), lowest=-width, highest=width
    )
    return replace(gap, labels=labels)


def _make_difference_rows(
    policy: NDArray[np.object_],
    pairs: PairDifferences,
    headlines: Iterable[HeadlineEstimate],
) -> list[dict[str, Any]]:
    """Return the rows of differences.json; Holm (1979) adjusts p values for all pairs."""
    i, j = np.triu_indices(len(policy), k=1)
    value, (below, above) = pairs.value, pairs.single_reach.T
    return make_rows(
        a=policy[i],
        b=policy[j],
        value=value,
        std_error=pairs.std_error,
        half_width=_mask_infinite((below + above) / 2),
        ci_low=_mask_infinite(value - below),
        ci_high=_mask_infinite(value + above),
        p_value=pairs.p_value,
        p_holm=adjust_by_holm(pairs.p_value),
        low=_mask_infinite(value - pairs.below),  # of all at once
        high=_mask_infinite(value + pairs.above),
        rests_on=[
            BORROWED if BORROWED in pair else ", ".join(dict.fromkeys(pair))
            for pair in combinations([headline.rests_on for headline in headlines], 2)
        ],
    )


def _mask_infinite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, np.nan)


def _plan_next_step(
    conclusion: Conclusion,
    best: tuple[str, ...],
    rivals: Sequence[Rival],
    labelled: Mapping[str, LabelCount],
    tolerance: float,
) -> tuple[NextStep, int]:
    """Return the policy to take or the labels to buy, and how many labels each policy has now.

    rivals  of the first, among those that may be best
    """
    is_ready = conclusion.state in DECIDED
    step = NextStep(
        decision_ready=is_ready,
        choice=conclusion.subject if is_ready else None,
        most_lost=conclusion.effect.value if conclusion.effect else None,
        tolerance=tolerance,
        possible_best=best,
    )
    if conclusion.state not in ("unknown", "labels"):
        return step, 0
    policies = best if conclusion.state == "labels" else conclusion.others
    open_counts = [labelled[name] for name in policies if not labelled[name].is_whole]
    n_now = min(answers.n_labelled for answers in open_counts)
    if conclusion.state == "unknown":
        n_labels = 2 * n_now if n_now >= MIN_OWN_LABELS else MIN_OWN_LABELS
    else:
        n_needed = count_labels_for_choice(rivals, tolerance)
        min_labels = max(MIN_OWN_LABELS, _MIN_LABEL_GROWTH * n_now)
        n_labels = math.ceil(
            min(max(n_needed, min_labels), max(a.n_answers for a in open_counts))
        )
    return replace(step, policies=policies, n_labels=n_labels), n_now


def count_labels_for_choice(rivals: Sequence[Rival], tolerance: float) -> float:
    """Count the labels of each policy at which the first is told from all that may be as good.

    Or is shown to be within the tolerance of them, with power .8 over all of them together: where
    (q + z) e + b / n = lead + tolerance for every rival, for n labels with an error e, q times which
    the interval reaches, and b / n farther by the bounds of a bounded mean. z is the normal quantile at
    1 - .2 / rivals.
    """
    z = float(scipy.special.ndtri(1.0 - (1.0 - _LABELLING_ROUND_POWER) / len(rivals)))
    return max(
        rival.lead.count_labels_for_reach(
            max(rival.lead.value, 0.0) + tolerance,
            rival.t_multiplier + z,
            rival.extra_reach,
        )
        for rival in rivals
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEstimate(Record):
    """One estimate of one policy's mean oracle label; without numbers if it is refused."""

    policy: str
    estimator: str
    value: float | None = None
    std_error: float | None = None  # over prompts, including the error of the labels
    ci_low: float | None = None  # 95%, within the scale
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
    # of an anchored one: own labels, raw weights, borrowed calibration
    rests_on: str = ""
    effective_labels: float | None = None  # that its correction comes to


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of an analysis; conf/experiment/oracle.yaml describes them.

    oracle  who gave the labels, for readers
    """

    by_variance: bool
    max_residual: float
    tolerance: float
    half_widths: tuple[float, ...]
    compat: str | None
    oracle: str = "the oracle"


@dataclass(kw_only=True)
class Analysis:
    """All results, the dictionaries by policy."""

    data: Dataset
    options: Options
    calibration: Calibration
    evidence_by_policy: dict[str, GatedEvidence] = field(default_factory=dict)
    estimates: list[PolicyEstimate] = field(default_factory=list)
    # By policy and estimator, whatever the status.
    estimates_by_policy: dict[tuple[str, str], Estimate] = field(default_factory=dict)
    # Of those that are not refused
    headlines: dict[str, HeadlineEstimate] = field(default_factory=dict)
    # What may be said of each policy; none with compat
    conclusions: dict[str, Conclusion] = field(default_factory=dict)

    def list_estimates(self, policy: str) -> list[PolicyEstimate]:
        return [estimate for estimate in self.estimates if estimate.policy == policy]

    @cached_property
    def comparison(self) -> PolicyComparison:
        return compare_policies(
            self.headlines,
            {
                policy: count_labels(checked)
                for policy, checked in self.evidence_by_policy.items()
            },
            scale=self.data.scale,
            selected=[
                policy
                for policy, conclusion in self.conclusions.items()
                if any(reason.name == "sample" for reason in conclusion.reasons)
            ],
            tolerance=self.options.tolerance,
            scope=self.scope,
        )

    @property
    def scope(self) -> Scope:
        return Scope(
            judge=self.options.oracle, kind="scores", n_prompts=len(self.data.prompts)
        )


def count_labels(checked: GatedEvidence) -> LabelCount:
    """Count labels and answers of a policy; for the logging policy also the logged answers."""
    n, n_answers = len(checked.own_labels[0].rows), len(checked.fresh)
    if checked.is_logging_policy:
        logged = checked.data.logged_rows
        n, n_answers = n + int(logged.is_labelled.sum()), n_answers + len(logged)
    return LabelCount(n, n_answers)


def calibrate_data(data: Dataset, options: Options) -> Calibration:
    """Fit the labels on the scores. Raises UserError for labels that do not suffice."""
    labels = data.pooled_rows if options.compat is None else data.logged_rows
    return calibrate(labels, by_variance=options.by_variance)


def analyse(
    data: Dataset, estimators: Mapping[str, Estimator], options: Options
) -> Analysis:
    """Apply every estimator to every policy; with `compat`, that library's formulas instead."""
    compat, scale = options.compat is not None, data.scale
    calibration = calibrate_data(data, options)
    if compat:
        estimators = {name: cje.Formula(name=name) for name in estimators}
        scale = Scale(-math.inf, math.inf)
    analysis = Analysis(data=data, options=options, calibration=calibration)
    for policy in data.policies:
        checked = analysis.evidence_by_policy[policy] = GatedEvidence(
            data=data,
            policy=policy,
            calibration=calibration,
            max_residual=options.max_residual,
        )
        policy_rows, has_headline = [], not compat and len(checked.fresh) > 0
        gates = dict[str, list[tuple[str, str]]]()
        for name in [HEADLINE_ESTIMATOR] * has_headline + list(estimators):
            row = PolicyEstimate(policy=policy, estimator=name, status=REFUSE)
            try:
                if name == HEADLINE_ESTIMATOR:
                    headline = estimate_headline(checked)
                    estimate, requires = (
                        headline.estimate,
                        REQUIREMENTS_BY_BASIS[headline.rests_on],
                    )
                    row = replace(row, rests_on=headline.rests_on)
                else:
                    estimate = checked.estimate(estimators[name])
                    requires = estimators[name].requires
            except NotEstimableError as error:
                gates[name] = [("data", str(error))]
                policy_rows.append(replace(row, reason=str(error)))
                continue
            analysis.estimates_by_policy[policy, name] = estimate
            headline_estimate = (
                headline.estimate if policy in analysis.headlines else None
            )
            status, gates[name] = decide_status(
                checked, estimate, requires, headline_estimate, compat=compat
            )
            if status != REFUSE and name == HEADLINE_ESTIMATOR:
                analysis.headlines[policy] = headline
                if headline.reason:
                    gate, words = gates[name][-1]
                    gates[name][-1] = gate, f"{words}: {headline.reason}"
            reason = "; ".join(words for _, words in gates[name])
            numbers: dict[str, Any] = {
                "n": estimate.n,
                "ess": estimate.ess,
                "n_labels": estimate.n_labels,
                "effective_labels": estimate.effective_labels,
            }
            if status != REFUSE:
                df, (low, high) = estimate.degrees_of_freedom, estimate.interval
                (value,) = (
                    scale.clip(estimate.value) if estimate.n_own else (estimate.value,)
                )
                ci_low, ci_high = scale.clip(low, high)
                numbers |= {
                    "value": value,
                    "std_error": estimate.std_error,
                    "ci_low": ci_low,
                    "ci_high": ci_high,
                    "ci_clipped": low < scale.low or high > scale.high,
                    "std_error_labels": estimate.std_error_labels,
                    "degrees_of_freedom": df if math.isfinite(df) else None,
                }
            policy_rows.append(replace(row, status=status, reason=reason, **numbers))
        if not compat:
            best_row = min(
                policy_rows, key=lambda row: STATUSES_BEST_FIRST.index(row.status)
            )
            headline_row = policy_rows[0] if has_headline else best_row
            policy_rows = [
                replace(row, headline=row is headline_row) for row in policy_rows
            ]
            effect = Effect(
                value=headline_row.value,
                low=headline_row.ci_low,
                high=headline_row.ci_high,
                unit="score",
            )
            analysis.conclusions[policy] = conclude(
                policy,
                headline_row.status,
                effect,
                gates[headline_row.estimator],
                analysis.scope,
            )
        analysis.estimates += policy_rows
    return analysis


def plan_label_budget(
    estimate: Estimate, half_widths: Sequence[float], *, max_labels: int
) -> dict[str, Any]:
    """Count the labels for 95% intervals of these half-widths, if everything else stays equal.

    Returns the present half-width, the half-width with unlimited labels, and `labels_for` each half-width, None for
    more than max_labels.
    """
    labels_by_half_width = {
        f"{h:g}": estimate.count_labels_for_half_width(h) for h in half_widths
    }
    min_half_width = float(t_quantile(math.inf)) * math.sqrt(
        estimate.variance_of_prompts
    )
    return {
        "n_labels": estimate.n_labels,
        "half_width": estimate.interval_half_length,
        "half_width_at_best": min_half_width,
        "labels_for": {
            half_width: math.ceil(n) if n <= max_labels else None
            for half_width, n in labels_by_half_width.items()
        },
    }
