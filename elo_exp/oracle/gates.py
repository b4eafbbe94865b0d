"""The status of an estimate: diagnostics of a policy's data, and the gates that use them.

A status is report, caution or refuse. Thresholds come from the causal judge evaluation paper
(arXiv:2512.11150). A bias is significant if its 99% interval excludes 0; it is refused if it
exceeds half the estimate's half-width.

Letters: n logged rows of a policy, r rows in general.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from elo_exp.oracle import weights
from elo_exp.oracle.data import NotEstimableError, Scale
from elo_exp.oracle.evidence import (
    CALIBRATED_WEIGHTS,
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Estimate,
    EstimateTerm,
    PolicyEvidence,
)
from elo_exp.oracle.label_means import LabelMean
from elo_exp.oracle.label_sampling import (
    CANNOT_TELL,
    FAILED,
    NOT_DONE,
    PASSED,
    LabelSample,
    check_label_samples,
)
from elo_exp.records import Record

# The best first
STATUSES_BEST_FIRST = REPORT, CAUTION, REFUSE = (
    "report",
    "caution",
    "refuse",
)
# Its name, whether it calls for caution, and for refusal, and the reason in words
GateResult = tuple[str, bool, bool, str]

MIN_OWN_LABELS = (
    20  # labels of a policy's own answers, to check or correct its calibration
)
# Raw weights must come to this many labels, to count the same
MIN_EFFECTIVE_LABELS = 30
MIN_EFFECTIVE_SAMPLE_SHARE = (
    0.30  # share of the rows: below, an estimate rests on few of them
)
MIN_SCORE_AFFINITY = 0.50
EQUIVALENCE_TEST_Z_SUM = (
    2.927  # normal quantiles at .95 and, for 80% power of both tests, at .90
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightDiagnostics(Record):
    """The importance weights of one policy, exp(target - logging log-probability)."""

    policy: str
    n: int  # rows with both log-probabilities
    n_failed: int  # rows without one
    n_zero_logprob: int  # rows whose target log-probability is exactly 0
    n_exactly_one: int
    n_extreme: int  # outside [1/5, 5]
    mean_weight: float | None  # about 1 if all is well; None where it overflows
    max_abs_log_ratio: float  # nats
    ess: float  # rows: (sum w)^2 / sum w^2
    max_share: float  # of the largest weight in the total
    top_share: float  # of the largest 5%
    coefficient_of_variation: float
    share_near_zero: float  # below 1e-10
    tail_index: float | None  # Hill; None where the tail is flat or unknown
    hellinger: float  # E sqrt(w): overlap of the two policies' responses
    # Share of logged rows typical of the target; None without lengths
    target_coverage: float | None
    ess_calibrated: float | None  # rows, of the weights calibrated on the judge's score


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOverlap(Record):
    """The overlap between the judge's scores of a policy and those of the labelled answers."""

    policy: str
    affinity: float  # A_B, sum over 20 bins of sqrt(p q): 1 for equal distributions
    source: str  # fresh: its own draws; weights: the logged scores, weighted
    out_of_range: float  # share of its scores outside those of the labelled rows
    # Share of its calibrated scores within 5% of an end of their range
    saturation: float
    card: str  # ok, caution, refuse: the boundary card, from the two shares

    @property
    def refuses(self) -> bool:
        """Whether the scores are too far from the labelled ones to be calibrated."""
        return self.card == REFUSE or self.affinity < MIN_SCORE_AFFINITY


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportAudit(Record):
    """Test of calibration transfer: whether the calibration holds on average for this policy."""

    policy: str
    source: str  # probe: labels of its own responses; weights: logged labels, weighted; none
    status: str  # passed, failed, cannot tell, not done: see Checked.audit
    n: int = 0  # labels
    residual: float | None = None  # mean of label - calibrated score
    std_error: float | None = None
    half_width: float | None = None  # half the length of its 95% interval
    ci_low: float | None = None
    ci_high: float | None = None
    n_needed: int | None = None  # labels to show that it holds, if it does

    @property
    def is_off(self) -> bool:
        """Whether the 95% interval excludes 0."""
        low, high = self.ci_low, self.ci_high
        return low is not None and high is not None and not low <= 0.0 <= high


@dataclass(frozen=True, kw_only=True)
class GatedEvidence(PolicyEvidence):
    """One policy's part of the data, and its diagnostics for the gates.

    max_residual  bias of the calibration that the transport audit tolerates
    """

    max_residual: float

    @cached_property
    def label_samples(self) -> list[LabelSample]:
        """Whether the labels of each set of answers are a random sample of it."""
        return check_label_samples(self.data)

    def find_selected_labels(self, *, is_own: bool) -> LabelSample | None:
        """Return the first set of labels behind an estimate that is not a random sample.

        is_own  whether the estimate rests on target-policy labels, not on all labels of the calibration
        """
        for sample in self.label_samples:
            is_used = sample.source != "probe"
            if is_own:
                is_used = sample.policy == self.policy and sample.source != "logged"
            if is_used and sample.status == FAILED:
                return sample
        return None

    @cached_property
    def weight_diagnostics(self) -> WeightDiagnostics | None:
        """Describe the weights w = exp(target - logging log-probability); None without any."""
        if not len(self.logged):
            return None
        hajek, target = self.weights.hajek, self.data.target_logprob[self.policy]
        length, size = self.logged.chars, np.abs(self.weights.log_ratio)
        raw = weights.raw_weights(self.weights.log_ratio)
        is_finite = self.weights.log_ratio.max() < weights.MAX_LOG_RATIO_NATS
        coverage, ess_calibrated = None, None
        if not np.isnan(length).any():
            coverage = weights.target_coverage(target[self.has_logprobs], length, hajek)
        with suppress(NotEstimableError):
            ess_calibrated = weights.effective_sample_size(self.weights.calibrated)
        return WeightDiagnostics(
            policy=self.policy,
            n=len(hajek),
            n_failed=len(self.has_logprobs) - len(hajek),
            n_zero_logprob=int((target == 0).sum()),
            n_exactly_one=int((size == 0).sum()),
            n_extreme=int((size > math.log(weights.EXTREME_WEIGHT)).sum()),
            mean_weight=float(raw.mean()) if is_finite else None,
            max_abs_log_ratio=float(size.max()),
            ess=weights.effective_sample_size(hajek),
            max_share=float(hajek.max() / hajek.sum()),
            top_share=weights.top_share(hajek),
            coefficient_of_variation=float(hajek.std()),
            share_near_zero=float((raw < 1e-10).mean()),
            tail_index=weights.tail_index(hajek),
            hellinger=float(np.sqrt(hajek).mean()),
            target_coverage=coverage,
            ess_calibrated=ess_calibrated,
        )

    @cached_property
    def overlap(self) -> ScoreOverlap:
        """Compare the scores of a policy with the labelled ones.

        Bhattacharyya affinity and boundary card of causal judge evaluation (arXiv:2512.11150).
        """
        rows, share, source = self.fresh, self.draw_weights, "fresh"
        if not len(rows):
            rows, source = self.logged, "weights"
            share = self.weights.hajek / self.weights.hajek.sum()
        labelled, curve = self.calibration.rows.score, self.calibration.full_curve
        reference = (
            self.data.logged_rows if self.data.logging_policy else self.data.pooled_rows
        )
        is_outside = (rows.score < labelled.min()) | (rows.score > labelled.max())
        value, (low, high) = curve(curve.predictor(rows)), curve.levels[[0, -1]]
        margin = 0.05 * (high - low)
        is_saturated = (value <= low + margin) | (value >= high - margin)
        out_of_range, saturation = (
            float(share @ is_outside),
            float(share @ is_saturated),
        )
        card = CAUTION if saturation >= 0.20 else "ok"
        return ScoreOverlap(
            policy=self.policy,
            affinity=weights.score_affinity(reference.score, rows.score, share),
            source=source,
            out_of_range=out_of_range,
            saturation=saturation,
            card=REFUSE if out_of_range >= 0.05 else card,
        )

    @cached_property
    def target_labels(self) -> tuple[str, EstimateTerm | None]:
        """Source of labels that represent the policy's answers, and their mean residual.

        The labels of the probe file, otherwise those of its samples, otherwise logged labels with raw weights. None
        without labels, and if the weights are worth fewer than 30 labels or 30% of the rows.
        """
        (reading, weight), labelled = self.own_labels, self.logged.is_labelled
        if len(reading.rows):
            return "probe", (reading, 0.0, weight / weight.sum())
        if labelled.any():
            weight = (self.weights.clipped * self.logged.label_weights)[labelled]
            share = weights.effective_sample_size(self.weights.hajek) / len(labelled)
            if (
                weights.effective_sample_size(weight) >= MIN_EFFECTIVE_LABELS
                and share >= MIN_EFFECTIVE_SAMPLE_SHARE
            ):
                reading = self.calibration(self.logged[labelled])
                return "weights", (reading, 0.0, weight / weight.sum())
        return "none", None

    @cached_property
    def transport_audit(self) -> TransportAudit:
        """Test whether the mean residual y - f(s) of labels of its answers is equivalent to 0.

        passed  its 90% interval lies within +- max_residual: two one-sided tests (Schuirmann 1987)
        failed  its 95% interval lies outside +- max_residual
        cannot tell  otherwise
        not done  fewer than 20 labels

        The intervals are those of a bounded mean, as for the policy's value, so that labels that are all alike do not
        give an interval of zero width.
        """
        (source, labels), margin = self.target_labels, self.max_residual
        n = len(labels[0].rows) if labels else 0
        audit = TransportAudit(policy=self.policy, source=source, status=NOT_DONE, n=n)
        if labels is None or len(np.unique(labels[0].rows.prompt)) < MIN_OWN_LABELS:
            return audit
        mean = self.estimate_mean_residual(labels)
        (reach,) = LabelMean.bound_means([mean.labels]) if mean.labels else (None,)
        below, above = mean.reach_at(reach, 0.05)
        wide_below, wide_above = mean.reach_at(reach, 0.025)
        low, high = mean.value - wide_below, mean.value + wide_above
        status = CANNOT_TELL
        if mean.value - below > -margin and mean.value + above < margin:
            status = PASSED
        elif low > margin or high < -margin:
            status = FAILED
        extra_reach = max(below, above) - mean.half_width_at(0.90)
        # For 80% power of the two one-sided tests if the mean residual is 0
        labels_only = replace(mean, std_error_labels=mean.std_error, n_labels=n)
        n_needed = labels_only.count_labels_for_reach(
            margin, EQUIVALENCE_TEST_Z_SUM, max(extra_reach, 0.0)
        )
        return replace(
            audit,
            status=status,
            residual=mean.value,
            std_error=mean.std_error,
            half_width=(high - low) / 2,
            ci_low=low,
            ci_high=high,
            n_needed=math.ceil(n_needed) if math.isfinite(n_needed) else None,
        )

    def estimate_mean_residual(
        self, labels: EstimateTerm, *corrections: EstimateTerm
    ) -> Estimate:
        """Return the mean residual of a policy's labels plus corrections, with bounds of its labels' mean."""
        mean = self.estimate_sum(labels, *corrections, centre=0.0)
        reading, _, weight = labels
        if reading is self.own_labels[0]:
            return replace(
                mean, labels=self.compute_label_mean(reading, np.asarray(weight))
            )
        return self.add_ends(mean, float(np.average(reading.value, weights=weight)))

    @staticmethod
    def compute_interval(mean: Estimate, alpha: float) -> tuple[float, float]:
        """Return the ends of an interval by t and by bounds of its labels' mean, each with error alpha."""
        (reach,) = LabelMean.bound_means([mean.labels]) if mean.labels else (None,)
        below, above = mean.reach_at(reach, alpha)
        return mean.value - below, mean.value + above


def decide_status(
    checked: GatedEvidence,
    estimate: Estimate,
    requires: Sequence[str],
    headline: Estimate | None = None,
    *,
    compat: bool = False,
) -> tuple[str, list[tuple[str, str]]]:
    """Return the worst status of an estimate, and all gates that call for it, by name and in words.

    headline  reported estimate of the policy unless it is refused; each of the two estimates must lie within the
              interval of the other
    compat    refuse nothing, and skip the gates that cje-eval 0.3 does not have: borrowed calibration, labels and scale
    """
    gates = [] if estimate.n_own else _check_support(checked, estimate, requires)
    if not compat:
        gates += _check_sample(checked, estimate)
        gates += _check_precision(checked, estimate, requires)
    if headline:
        shift, decimals = estimate.value - headline.value, checked.data.scale.decimals
        pairs = ((estimate, headline), (headline, estimate))
        is_apart = any(not a.interval[0] <= b.value <= a.interval[1] for a, b in pairs)
        words = f"it differs from the reported estimate by {shift:+.{decimals}f}"
        gates.append(("headline", is_apart, False, words))
    if refusals := [(name, words) for name, _, refuses, words in gates if refuses]:
        return CAUTION if compat else REFUSE, refusals
    if cautions := [
        (name, words) for name, is_caution, _, words in gates if is_caution
    ]:
        return CAUTION, cautions
    is_checked = estimate.n_own or RAW_WEIGHTS in requires
    is_checked = is_checked or checked.transport_audit.status != NOT_DONE
    return REPORT, [] if is_checked else [
        ("transport", "calibration transfer: not done")
    ]


def _check_support(
    checked: GatedEvidence, estimate: Estimate, requires: Sequence[str]
) -> list[GateResult]:
    """Check overlap, calibration transfer and weights.

    Raw weights correct the calibrated scores.
    """
    overlap, raw, scale = (
        checked.overlap,
        checked.weight_diagnostics,
        checked.data.scale,
    )
    uses_raw, uses_calibrated = (
        kind in requires for kind in (RAW_WEIGHTS, CALIBRATED_WEIGHTS)
    )
    affinity, outside = overlap.affinity, _format_percent(overlap.out_of_range)
    reference = "logged" if checked.data.logging_policy else "labelled"
    at_end = _format_percent(overlap.saturation)
    gates = [
        (
            "overlap",
            affinity < 0.85,
            affinity < MIN_SCORE_AFFINITY,
            f"judge scores overlap too little with those of the {reference} answers (A_B {affinity:.2f})",
        ),
        (
            "range",
            False,
            overlap.card == REFUSE,
            f"{outside} of its scores are outside the range of the labelled answers",
        ),
        (
            "saturation",
            overlap.card == CAUTION and not uses_raw,
            False,
            f"{at_end} of its calibrated scores are at an end of the calibrated range",
        ),
    ]
    if uses_raw and raw:
        gates += check_raw_weights(raw)
    elif checked.transport_audit.status != NOT_DONE:
        words = "labels of its answers differ from the calibrated scores by"
        with suppress(NotEstimableError):
            bias = _measure_uncorrected_bias(checked, uses_calibrated)
            gates.append(_check_bias("bias", bias, estimate, words, scale))
    if raw is None or FRESH_DRAWS in requires:
        return gates
    if (coverage := raw.target_coverage) is not None:
        coverage_reason = f"only {_format_percent(coverage)} of the logged answers are typical of this policy"
        gates.append(("typical", coverage < 0.70, coverage < 0.30, coverage_reason))
    if uses_calibrated:
        calibrated = checked.weights.calibrated
        gates += _check_concentration(
            (estimate.ess or 0.0) / len(calibrated),
            weights.top_share(calibrated),
            float(calibrated.std() / calibrated.mean()),
            raw.share_near_zero,
        )
        # With fewer rows, intervals of calibrated weights undercover
        weight_reason = f"the raw weights are worth {raw.ess:.2g} rows (30 needed)"
        gates.append(("weights", False, raw.ess < 30, weight_reason))
        if (tail := raw.tail_index) is not None:
            tail_reason = f"the raw weights have no finite mean (tail index {tail:.2f})"
            gates.append(("tail", tail < 1, False, tail_reason))
        if len(checked.fresh):
            words = "weighted scores differ from the scores of its samples by"
            bias = _measure_imbalance(checked)
            gates.append(_check_bias("balance", bias, estimate, words, scale))
    return gates


def _measure_uncorrected_bias(checked: GatedEvidence, by_weights: bool) -> Estimate:
    """Return the mean residual of a policy's labels minus the correction an estimate makes already.

    by_weights  the correction is that of doubly robust estimates, else that of the direct one
    """
    _, labels = checked.target_labels
    assert labels is not None
    if by_weights:
        reading, weight = (
            checked.logged_reading,
            checked.compute_residual_weights(checked.weights.calibrated),
        )
    else:
        reading, weight = checked.calibration.label_reading, checked.balancing_weights
    return checked.estimate_mean_residual(labels, (reading, 0.0, -weight))


def _measure_imbalance(evidence: PolicyEvidence) -> Estimate:
    """Return the mean calibrated score of the logged rows, by calibrated weights, minus the draws' mean.

    Zero on average if the weights are right as a function of the score.
    """
    logged, fresh, share = (
        evidence.logged_reading,
        evidence.fresh_reading,
        evidence.draw_weights,
    )
    centre = float(share @ fresh.value)
    u = evidence.weights.calibrated / evidence.weights.calibrated.sum()
    return evidence.estimate_sum(
        (logged, u, 0.0),
        (fresh, -share, 0.0),
        centre=centre,
        extra_influence=evidence.weights.compute_influence(logged.value - centre),
    )


def check_raw_weights(raw: WeightDiagnostics) -> list[GateResult]:
    """Return the gates of estimates by raw weights."""
    share, variation = raw.ess / raw.n, raw.coefficient_of_variation
    gates = _check_concentration(share, raw.top_share, variation, raw.share_near_zero)
    if (tail := raw.tail_index) is not None:
        lacks = "variance" if tail >= 1 else "mean"
        words = f"the weights have no finite {lacks} (tail index {tail:.2f})"
        gates.append(("tail", tail < 2, tail < 1, words))
    return gates


def _check_concentration(
    effective_share: float, top: float, variation: float, near_zero: float
) -> list[GateResult]:
    effective, needed_share = (
        _format_percent(effective_share),
        _format_percent(MIN_EFFECTIVE_SAMPLE_SHARE),
    )
    size_reason = (
        f"the effective sample size is {effective} of the rows ({needed_share} needed)"
    )
    zero_reason = f"{_format_percent(near_zero)} of the raw weights are nearly zero"
    top_reason = f"5% of the rows hold {_format_percent(top)} of the weight"
    return [
        ("weights", False, effective_share < MIN_EFFECTIVE_SAMPLE_SHARE, size_reason),
        ("weights", False, near_zero > 0.85, zero_reason),
        ("weights", False, top > 0.30 and variation > 2, top_reason),
    ]


def _check_precision(
    checked: GatedEvidence, estimate: Estimate, requires: Sequence[str]
) -> list[GateResult]:
    """Check value, interval and labels, and whether the calibration is borrowed.

    An estimate from scores alone assumes that a score means the same for every policy. With fewer than 62 labels of 0
    and 1, only samples that happen to vary little have a small half-width, 1.96 sd / sqrt(n) with an sd of at most 1/2,
    and their intervals undercover.
    """
    data = checked.data
    scale, max_half_width = data.scale, 0.25 * data.scale.width
    low, high = estimate.interval
    half_width = (high - low) / 2
    is_own = checked.is_logging_policy or RAW_WEIGHTS in requires
    label_values = data.pooled_rows.label[data.pooled_rows.is_labelled]
    n_needed = 62 if np.isin(label_values, (scale.low, scale.high)).all() else 30
    labels = (not estimate.n_own and estimate.effective_labels) or math.inf
    return [
        (
            "borrowed",
            not (is_own or estimate.n_own),
            False,
            f"it borrows its calibration from {', '.join(data.label_sources)} "
            f"(calibration transfer: {checked.transport_audit.status})",
        ),
        (
            "scale",
            False,
            not (low <= scale.high and high >= scale.low)
            if estimate.n_own
            else not scale.low <= estimate.value <= scale.high,
            "its value is outside the scale",
        ),
        (
            "width",
            False,
            not half_width <= max_half_width,  # or NaN
            f"its interval is wider than ± {max_half_width:g}",
        ),
        (
            "width",
            half_width > max_half_width / 2,
            False,
            f"its interval is wide (± {half_width:.{scale.decimals}f})",
        ),
        (
            "labels",
            labels < n_needed,
            labels < 15,
            f"its labels are worth {labels:.0f} ({n_needed} needed)",
        ),
    ]


def _check_sample(checked: GatedEvidence, estimate: Estimate) -> list[GateResult]:
    """Check whether the labels behind an estimate are a random sample."""
    if (sample := checked.find_selected_labels(is_own=estimate.n_own > 0)) is None:
        return []
    n_others = sample.n - sample.n_labelled
    labels = "the labels" + ", weighted by 1 / label_chance," * sample.is_weighted
    words = (
        f"{labels} are not a random sample: the judge's scores of the {sample.n_labelled:,} labelled answers and the "
        f"{n_others:,} other answers of {sample.policy} differ (p < .001)"
    )
    return [("sample", False, True, words)]


def _check_bias(
    name: str, bias: Estimate, estimate: Estimate, words: str, scale: Scale
) -> GateResult:
    """Check whether a bias is significant, and more than half of the half-width."""
    size, digits = abs(bias.value), scale.decimals + 1
    half_width = bias.half_width_at(0.99)
    if half_width <= 1e-9 * scale.width:  # of labels that are all alike
        low, high = GatedEvidence.compute_interval(bias, 0.005)
        half_width = (high - low) / 2
    # a bias below a billionth of the scale is zero
    is_significant = size > max(half_width, 1e-9 * scale.width)
    words += f" {bias.value:+.{digits}f} ± {half_width:.{digits}f} (99%)"
    refuses = is_significant and size > estimate.interval_half_length / 2
    return name, is_significant, refuses, words


def _format_percent(share: float) -> str:
    return f"{100 * share:.2g}%" if share < 0.995 else "all"
