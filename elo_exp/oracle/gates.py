"""Whether an estimate may be reported: diagnostics of a policy's data, and gates by them.

A status is report, caution or refuse. Thresholds are those of the causal judge evaluation paper
(arXiv:2512.11150). A bias is significant where its 99 % interval excludes 0; it is refused where it
exceeds half the estimate's half-width.

Letters: n logged rows of a policy, r rows in general.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from elo_exp.oracle import weights
from elo_exp.oracle.evidence import (
    CALIBRATED_WEIGHTS,
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Estimate,
    Evidence,
    NotEstimableError,
    Term,
)
from elo_exp.records import Record

STATUSES = REPORT, CAUTION, REFUSE = "report", "caution", "refuse"  # the better first
Finding = tuple[str, str]  # status, reason

_GOOD_AFFINITY = 0.85
_MIN_COVERAGE, _GOOD_COVERAGE = 0.30, 0.70
_NO_MEAN, _NO_VARIANCE = 1.0, 2.0  # tail indices
_MAX_NEAR_ZERO = 0.85
_MAX_TOP, _MAX_VARIATION = 0.30, 2.0
# Of raw weights: with fewer, intervals of calibrated ones undercover
_MIN_EFFECTIVE_ROWS = 30
_MAX_HALF_WIDTH, _GOOD_HALF_WIDTH = 0.25, 0.125  # of the scale
_ROUNDING = 1e-9  # of the scale: a bias below has none
_MIN_LABELS, _GOOD_LABELS = 15, 30  # that the correction comes to
# Labels of 0 and 1: with fewer, only draws that happen to vary little have a good half-width,
# 1.96 sd / sqrt(n) with an sd of at most 1/2, and their intervals undercover
_GOOD_BINARY_LABELS = 62
MIN_AUDIT = 20  # labels of a policy's own answers, to check or correct its calibration
MIN_LABELS = 30  # that raw weights must come to, to do the same
MIN_ESS = 0.30  # share of the rows: below, an estimate rests on few of them
MIN_AFFINITY = 0.50
Z_POWER = 2.927  # normal quantiles at .95 and, for 80 % power of both tests, at .90
MAX_OUT_OF_RANGE = 0.05
MAX_SATURATION = 0.20
# Of the range of calibrated scores: closer to an end than this is saturated
_EDGE = 0.05


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
    top_share: float  # of the largest 5 %
    coefficient_of_variation: float
    share_near_zero: float  # below 1e-10
    tail_index: float | None  # Hill; None where the tail is flat or unknown
    hellinger: float  # E sqrt(w): overlap of the two policies' responses
    target_coverage: (
        float | None
    )  # share of logged rows typical of the target; None without lengths
    ess_calibrated: float | None  # rows, of the weights calibrated on the judge's score


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOverlap(Record):
    """How the judge's scores of a policy compare with those of the labelled answers."""

    policy: str
    affinity: float  # A_B, sum over 20 bins of sqrt(p q): 1 for equal distributions
    source: str  # fresh: its own draws; weights: the logged scores, weighted
    out_of_range: float  # share of its scores outside those of the labelled rows
    saturation: (
        float  # share of its calibrated scores within 5 % of an end of their range
    )
    card: str  # ok, caution, refuse: the boundary card, from the two shares

    @property
    def refuses(self) -> bool:
        """Whether the scores are too far from the labelled ones to be calibrated."""
        return self.card == "refuse" or self.affinity < MIN_AFFINITY


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportAudit(Record):
    """Whether the calibration, fitted to labels of others too, holds on average for this policy."""

    policy: str
    source: str  # probe: labels of its own responses; weights: logged labels, weighted; none
    status: str  # holds, fails, shifted, unclear, not_checked: see transport_audit
    n: int = 0  # labels
    residual: float | None = None  # mean of label - calibrated score
    std_error: float | None = None
    half_width: float | None = None  # of its 95 % interval
    n_needed: int | None = None  # labels, to conclude that it holds where it does


@dataclass(frozen=True, kw_only=True)
class PolicyDiagnostics:
    """What the gates check, for one policy.

    max_residual  bias of the calibration that the transport audit tolerates
    """

    evidence: Evidence
    max_residual: float

    @cached_property
    def weights(self) -> WeightDiagnostics | None:
        """Describe the weights w = exp(target - logging log-probability); None without any."""
        evidence = self.evidence
        if not len(evidence.logged):
            return None
        log_ratio, hajek = evidence.log_ratio, evidence.hajek
        data, raw = evidence.data, weights.raw_weights(log_ratio)
        target = data.target_logprob[evidence.policy]
        length, coverage = evidence.logged.chars, None
        if not np.isnan(length).any():
            logging = data.logging_logprob[evidence.chosen]
            coverage = weights.target_coverage(logging, target[evidence.chosen], length)
        tail, ess_calibrated = weights.tail_index(hajek), None
        with suppress(NotEstimableError):
            ess_calibrated = weights.effective_sample_size(evidence.calibrated)
        size = np.abs(log_ratio)
        is_finite = log_ratio.max() < weights.MAX_LOG_RATIO
        return WeightDiagnostics(
            policy=evidence.policy,
            n=len(log_ratio),
            n_failed=len(data.logged) - len(log_ratio),
            n_zero_logprob=int((target == 0).sum()),
            n_exactly_one=int((log_ratio == 0).sum()),
            n_extreme=int((size > math.log(weights.EXTREME)).sum()),
            mean_weight=float(raw.mean()) if is_finite else None,
            max_abs_log_ratio=float(size.max()),
            ess=weights.effective_sample_size(hajek),
            max_share=float(hajek.max() / hajek.sum()),
            top_share=weights.top_share(hajek),
            coefficient_of_variation=float(hajek.std()),
            share_near_zero=float((raw < weights.NEAR_ZERO).mean()),
            tail_index=tail if tail is not None and math.isfinite(tail) else None,
            hellinger=weights.hellinger(hajek),
            target_coverage=coverage,
            ess_calibrated=ess_calibrated,
        )

    @cached_property
    def overlap(self) -> ScoreOverlap:
        """Compare a policy's scores (its draws', else the weighted logged ones) with the labelled.

        Bhattacharyya affinity and boundary card of causal judge evaluation (arXiv:2512.11150).
        """
        evidence, data = self.evidence, self.evidence.data
        rows, share, source = evidence.fresh, evidence.draw_weights, "fresh"
        if not len(rows):
            rows, source = evidence.logged, "weights"
            share = evidence.hajek / evidence.hajek.sum()
        labelled, curve = evidence.calibration.rows.score, evidence.calibration.full
        others = data.logged if data.logging_policy else data.pool
        outside = (rows.score < labelled.min()) | (rows.score > labelled.max())
        value, (low, high) = curve(curve.index(rows)), curve.levels[[0, -1]]
        margin = _EDGE * (high - low)
        saturated = (value <= low + margin) | (value >= high - margin)
        out_of_range, saturation = float(share @ outside), float(share @ saturated)
        card = CAUTION if saturation >= MAX_SATURATION else "ok"
        return ScoreOverlap(
            policy=evidence.policy,
            affinity=weights.score_affinity(others.score, rows.score, share),
            source=source,
            out_of_range=out_of_range,
            saturation=saturation,
            card=REFUSE if out_of_range >= MAX_OUT_OF_RANGE else card,
        )

    @cached_property
    def target_labels(self) -> tuple[str, Term | None]:
        """Source of labels that represent the policy's answers, and their mean residual.

        The probe's labels, else those of the fresh draws, else logged ones by their raw weights;
        None without any, and where these weights come to fewer than 30 labels or 30 % of the rows.
        """
        evidence, source = self.evidence, "probe"
        (at, weight), labelled = evidence.own, evidence.logged.labelled
        if not len(at.rows):
            if not labelled.any():
                return "none", None
            source, weight = "weights", evidence.cut[labelled]
            share = weights.effective_sample_size(evidence.hajek) / len(labelled)
            effective = weights.effective_sample_size(weight)
            if effective < MIN_LABELS or share < MIN_ESS:
                return "none", None
            at = evidence.calibration(evidence.logged[labelled])
        return source, Term(at=at, on_residual=weight / weight.sum())

    @cached_property
    def audit(self) -> TransportAudit:
        """Test whether the mean residual y - f(s) of labels of its answers is equivalent to 0.

        holds    its 90 % interval lies within +- max_residual: two one-sided tests (Schuirmann 1987)
        fails    its 95 % interval lies outside +- max_residual
        shifted  its 95 % interval excludes 0, neither of the above
        unclear  else
        not_checked  fewer than 20 labels
        """
        (source, labels), policy = self.target_labels, self.evidence.policy
        n = 0 if labels is None else len(labels.at.rows)
        if labels is None or n < MIN_AUDIT:
            return TransportAudit(
                policy=policy, source=source, status="not_checked", n=n
            )
        mean, margin = self.evidence.linear([labels], centre=0.0), self.max_residual
        size = abs(mean.value)
        if size + mean.half_width_at(0.90) < margin:
            status = "holds"
        elif size - mean.half_width > margin:
            status = "fails"
        else:
            status = "shifted" if size > mean.half_width else "unclear"
        # For 80 % power of the two one-sided tests where the mean residual is 0.
        deviation = mean.std_error * math.sqrt(n)
        return TransportAudit(
            policy=policy,
            source=source,
            status=status,
            n=n,
            residual=mean.value,
            std_error=mean.std_error,
            half_width=mean.half_width,
            n_needed=math.ceil((Z_POWER * deviation / margin) ** 2),
        )


def decide(
    checked: PolicyDiagnostics,
    estimate: Estimate,
    requires: Sequence[str],
    *,
    compat: bool = False,
) -> Finding:
    """Return the worst status of an estimate, and all reasons for it.

    compat  refuse nothing, and leave out what cje-eval 0.3 does not know: borrowed calibration,
            labels and scale
    """
    findings: list[Finding] = []
    if not estimate.n_own:
        findings += _support_findings(checked, estimate, requires)
    if not compat:
        findings += _precision_findings(checked, estimate, requires)
    worst = max((status for status, _ in findings), key=STATUSES.index, default=REPORT)
    reason = "; ".join(reason for status, reason in findings if status == worst)
    return (CAUTION if compat and worst == REFUSE else worst), reason


def _support_findings(
    checked: PolicyDiagnostics, estimate: Estimate, requires: Sequence[str]
) -> Iterator[Finding]:
    """Check overlap, transport and weights.

    Raw weights correct what is read from the curve.
    """
    evidence, overlap, raw = checked.evidence, checked.overlap, checked.weights
    by_raw, by_score = (kind in requires for kind in (RAW_WEIGHTS, CALIBRATED_WEIGHTS))
    if overlap.affinity < _GOOD_AFFINITY:
        others = "logged" if evidence.data.logging_policy else "labelled"
        yield (
            REFUSE if overlap.affinity < MIN_AFFINITY else CAUTION,
            f"scores overlap too little with the {others} ones (A_B {overlap.affinity:.2f})",
        )
    if overlap.card == REFUSE:
        outside = _percent(overlap.out_of_range)
        yield (
            REFUSE,
            f"{outside} of its scores are beyond those of the labelled answers",
        )
    if by_raw and raw is not None:
        yield from raw_weight_findings(raw)
    if overlap.card == CAUTION and not by_raw:
        at_end = _percent(overlap.saturation)
        yield CAUTION, f"{at_end} of its calibrated scores are at an end of their range"
    if checked.audit.n < MIN_AUDIT and not by_raw:
        yield REPORT, "transport not checked"
    elif not by_raw:
        reason = "labels of its answers are off the calibrated scores by"
        with suppress(NotEstimableError):
            yield from _bias(
                _uncorrected(checked, by_score), estimate, reason, evidence
            )
    if raw is None or FRESH_DRAWS in requires:
        return
    covered = raw.target_coverage
    if covered is not None and covered < _GOOD_COVERAGE:
        typical = f"only {_percent(covered)} of the logged answers are typical of it"
        yield REFUSE if covered < _MIN_COVERAGE else CAUTION, typical
    if by_score:
        calibrated = evidence.calibrated
        share = (estimate.ess or 0.0) / len(calibrated)
        variation = float(calibrated.std() / calibrated.mean())
        top = weights.top_share(calibrated)
        yield from _concentration(share, top, variation, raw.share_near_zero)
        if raw.ess < _MIN_EFFECTIVE_ROWS:
            needed = f"({_MIN_EFFECTIVE_ROWS} needed)"
            yield REFUSE, f"raw weights come to {raw.ess:.2g} rows {needed}"
        if raw.tail_index is not None and raw.tail_index < _NO_MEAN:
            index = f"(tail index {raw.tail_index:.2f})"
            yield CAUTION, f"raw weights without a mean {index}"
        if len(evidence.fresh):
            reason = "weights miss the scores of its fresh draws by"
            yield from _bias(_imbalance(evidence), estimate, reason, evidence)


def _uncorrected(checked: PolicyDiagnostics, by_weights: bool) -> Estimate:
    """Mean residual of a policy's labels minus the correction an estimate makes already.

    by_weights  the correction is that of doubly robust estimates, else that of the direct one
    """
    evidence, (_, labels) = checked.evidence, checked.target_labels
    assert labels is not None
    at, weight = evidence.calibration.at_labels, evidence.balancing_weights
    if by_weights:
        at = evidence.at_logged
        weight = evidence.residual_weights(evidence.calibrated)
    return evidence.linear([labels, Term(at=at, on_residual=-weight)], centre=0.0)


def _imbalance(evidence: Evidence) -> Estimate:
    """Mean calibrated score of the logged rows by calibrated weights, minus that of the draws.

    Zero on average where the weights are right as a function of the score.
    """
    logged, fresh, share = evidence.at_logged, evidence.at_fresh, evidence.draw_weights
    centre = float(share @ fresh.value)
    u = evidence.calibrated / evidence.calibrated.sum()
    return evidence.linear(
        [Term(at=logged, on_score=u), Term(at=fresh, on_score=-share)],
        centre=centre,
        extra_influence=evidence.weight_influence(logged.value - centre),
    )


def raw_weight_findings(raw: WeightDiagnostics) -> Iterator[Finding]:
    """Return what speaks against estimates by raw weights."""
    share, variation = raw.ess / raw.n, raw.coefficient_of_variation
    yield from _concentration(share, raw.top_share, variation, raw.share_near_zero)
    if raw.tail_index is not None and raw.tail_index < _NO_VARIANCE:
        has_mean = raw.tail_index >= _NO_MEAN
        lacks = "variance" if has_mean else "mean"
        reason = f"weights without a {lacks} (tail index {raw.tail_index:.2f})"
        yield CAUTION if has_mean else REFUSE, reason


def _concentration(
    effective_share: float, top: float, variation: float, near_zero: float
) -> Iterator[Finding]:
    if effective_share < MIN_ESS:
        found, needed = _percent(effective_share), _percent(MIN_ESS)
        yield REFUSE, f"effective sample {found} of the rows ({needed} needed)"
    if near_zero > _MAX_NEAR_ZERO:
        yield REFUSE, f"{_percent(near_zero)} of the raw weights are nearly zero"
    if top > _MAX_TOP and variation > _MAX_VARIATION:
        yield REFUSE, f"5 % of the rows hold {_percent(top)} of the weight"


def _precision_findings(
    checked: PolicyDiagnostics, estimate: Estimate, requires: Sequence[str]
) -> Iterator[Finding]:
    """Check value, interval and labels, and whether the calibration is borrowed.

    An estimate by the score alone takes a score to mean the same for every policy.
    """
    evidence, data = checked.evidence, checked.evidence.data
    scale, half_width = data.scale, estimate.half_width
    is_own = evidence.is_logging_policy or RAW_WEIGHTS in requires
    if not (is_own or estimate.n_own):
        transport = checked.audit.status.replace("_", " ")
        lenders = f"{', '.join(data.lenders)} (transport {transport})"
        yield CAUTION, f"borrows its calibration from {lenders}"
    if not scale.low <= estimate.value <= scale.high:
        yield REFUSE, "its value is off the scale"
    largest = _MAX_HALF_WIDTH * scale.width
    if not half_width <= largest:  # NaN included
        yield REFUSE, f"its interval is wider than ± {largest:g}"
    elif half_width > _GOOD_HALF_WIDTH * scale.width:
        yield CAUTION, f"its interval is wide (± {half_width:.{scale.decimals}f})"
    known = data.pool.label[data.pool.labelled]
    is_binary = np.isin(known, (scale.low, scale.high)).all()
    needed = _GOOD_BINARY_LABELS if is_binary else _GOOD_LABELS
    labels = estimate.effective_labels
    if not estimate.n_own and labels is not None and labels < needed:
        status = CAUTION if labels >= _MIN_LABELS else REFUSE
        yield status, f"its labels come to {labels:.0f} ({needed} needed)"


def _bias(
    bias: Estimate, estimate: Estimate, reason: str, evidence: Evidence
) -> Iterator[Finding]:
    scale = evidence.data.scale
    half_width, digits = bias.half_width_at(0.99), scale.decimals + 1
    if abs(bias.value) > max(half_width, _ROUNDING * scale.width):
        status = REFUSE if abs(bias.value) > estimate.half_width / 2 else CAUTION
        size = f"{bias.value:+.{digits}f} ± {half_width:.{digits}f} (99 %)"
        yield status, f"{reason} {size}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "all"
