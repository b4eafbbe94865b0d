"""Diagnostics of a policy's data: importance weights, overlap of scores, and transport.

Letters: n logged rows of a policy, r rows in general.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elo_exp.arrays import Array
from elo_exp.oracle import weights
from elo_exp.oracle.calibration import Reading
from elo_exp.oracle.evidence import Estimate, Evidence, NotEstimableError, Term
from elo_exp.records import Record

MIN_AUDIT = 20  # labels of a policy's own answers, to check or correct its calibration
MIN_LABELS = 30  # that raw weights must come to, to do the same
MIN_ESS = 0.30  # share of the rows: below, an estimate rests on few of them
MIN_AFFINITY = 0.50
Z_POWER = 2.927  # normal quantiles at .95 and, for 80 % power of both tests, at .90
MAX_OUT_OF_RANGE = 0.05
MAX_SATURATION = 0.20
_EDGE = (
    0.05  # of the range of calibrated scores: closer to an end than this is saturated
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
    """What the gates check, for one policy."""

    evidence: Evidence
    weights: WeightDiagnostics | None  # None without log-probabilities
    overlap: ScoreOverlap
    audit: TransportAudit


def diagnose(evidence: Evidence, *, max_residual: float) -> PolicyDiagnostics:
    """Compute all diagnostics of one policy.

    max_residual  bias of the calibration that the transport audit tolerates
    """
    return PolicyDiagnostics(
        evidence=evidence,
        weights=weight_diagnostics(evidence),
        overlap=score_overlap(evidence),
        audit=transport_audit(evidence, max_residual=max_residual),
    )


def weight_diagnostics(evidence: Evidence) -> WeightDiagnostics | None:
    """Describe the weights w = exp(target - logging log-probability); None without any."""
    if not len(evidence.logged):
        return None
    log_ratio, hajek = evidence.log_ratio, evidence.hajek
    data, raw = evidence.data, weights.raw_weights(log_ratio)
    target = data.target_logprob[evidence.policy]
    length, coverage = evidence.logged.chars, None
    if not np.isnan(length).any():
        logging = data.logging_logprob[evidence.chosen]
        coverage = weights.target_coverage(logging, target[evidence.chosen], length)
    tail = weights.tail_index(hajek)
    try:
        ess_calibrated = weights.effective_sample_size(evidence.calibrated)
    except NotEstimableError:
        ess_calibrated = None
    return WeightDiagnostics(
        policy=evidence.policy,
        n=len(log_ratio),
        n_failed=len(data.logged) - len(log_ratio),
        n_zero_logprob=int((target == 0).sum()),
        n_exactly_one=int((log_ratio == 0).sum()),
        n_extreme=int((np.abs(log_ratio) > math.log(weights.EXTREME)).sum()),
        mean_weight=float(raw.mean())
        if log_ratio.max() < weights.MAX_LOG_RATIO
        else None,
        max_abs_log_ratio=float(np.abs(log_ratio).max()),
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


def score_overlap(evidence: Evidence) -> ScoreOverlap:
    """Compare a policy's scores (its draws', else the weighted logged ones) with the labelled.

    Bhattacharyya affinity and boundary card of causal judge evaluation (arXiv:2512.11150).
    """
    if len(evidence.fresh):
        rows, share, source = evidence.fresh, evidence.draw_weights, "fresh"
    else:
        rows, source = evidence.logged, "weights"
        share = evidence.hajek / evidence.hajek.sum()
    labelled, data = evidence.calibration.rows.score, evidence.data
    others = data.logged if data.logging_policy else data.pool
    outside = (rows.score < labelled.min()) | (rows.score > labelled.max())
    curve = evidence.calibration.full
    value = curve(curve.index(rows))
    low, high = curve.levels[[0, -1]]
    margin = _EDGE * (high - low)
    saturated = (value <= low + margin) | (value >= high - margin)
    out_of_range, saturation = float(share @ outside), float(share @ saturated)
    card = "caution" if saturation >= MAX_SATURATION else "ok"
    return ScoreOverlap(
        policy=evidence.policy,
        affinity=weights.score_affinity(others.score, rows.score, share),
        source=source,
        out_of_range=out_of_range,
        saturation=saturation,
        card="refuse" if out_of_range >= MAX_OUT_OF_RANGE else card,
    )


def target_labels(evidence: Evidence) -> tuple[str, Term | None]:
    """Return the source of labels that represent a policy's answers, and their mean residual.

    The probe's labels, else those of the fresh draws, else logged ones by their raw weights; None
    without any, and where these weights come to fewer than 30 labels or 30 % of the rows.
    """
    (own, weight), labelled = evidence.own, evidence.logged.labelled
    if len(own.rows):
        return "probe", _mean_residual(own, weight)
    if labelled.any():
        raw, n = evidence.cut[labelled], len(labelled)
        share = weights.effective_sample_size(evidence.hajek) / n
        if weights.effective_sample_size(raw) >= MIN_LABELS and share >= MIN_ESS:
            at = evidence.calibration(evidence.logged[labelled])
            return "weights", _mean_residual(at, raw)
    return "none", None


def transport_audit(evidence: Evidence, *, max_residual: float) -> TransportAudit:
    """Test whether the mean residual y - f(s) of labels of a policy's answers is equivalent to 0.

    holds    its 90 % interval lies within +- max_residual: two one-sided tests (Schuirmann 1987)
    fails    its 95 % interval lies outside +- max_residual
    shifted  its 95 % interval excludes 0, neither of the above
    unclear  else
    not_checked  fewer than 20 labels
    """
    source, labels = target_labels(evidence)
    n = 0 if labels is None else len(labels.at.rows)
    if labels is None or n < MIN_AUDIT:
        return TransportAudit(
            policy=evidence.policy, source=source, status="not_checked", n=n
        )
    mean = evidence.linear([labels], centre=0.0)
    size = abs(mean.value)
    if size + mean.half_width_at(0.90) < max_residual:
        status = "holds"
    elif size - mean.half_width > max_residual:
        status = "fails"
    else:
        status = "shifted" if size > mean.half_width else "unclear"
    # For 80 % power of the two one-sided tests where the mean residual is 0.
    deviation = mean.std_error * math.sqrt(n)
    return TransportAudit(
        policy=evidence.policy,
        source=source,
        status=status,
        n=n,
        residual=mean.value,
        std_error=mean.std_error,
        half_width=mean.half_width,
        n_needed=math.ceil((Z_POWER * deviation / max_residual) ** 2),
    )


def uncorrected_residual(evidence: Evidence, *, by_weights: bool) -> Estimate:
    """Mean residual of a policy's labels minus the correction an estimate makes already.

    by_weights  the correction is that of doubly robust estimates, else that of the direct one
    """
    _, labels = target_labels(evidence)
    assert labels is not None
    at, weight = evidence.calibration.at_labels, evidence.balancing_weights
    if by_weights:
        at = evidence.at_logged
        weight = evidence.residual_weights(evidence.calibrated)
    return evidence.linear([labels, Term(at=at, on_residual=-weight)], centre=0.0)


def imbalance(evidence: Evidence) -> Estimate:
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


def _mean_residual(at: Reading, weight: Array) -> Term:
    return Term(at=at, on_residual=weight / weight.sum())
