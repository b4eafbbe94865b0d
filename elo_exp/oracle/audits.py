"""What can be checked before an estimate is believed: weights, overlap of scores, and the calibration, in numbers.

Letters: n logged rows of a policy, r fresh draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elo_exp.oracle import weights
from elo_exp.oracle.dataset import Dataset, Rows
from elo_exp.oracle.estimates import ScoreOverlap, TransportAudit, WeightDiagnostics
from elo_exp.oracle.evidence import Evidence, NotEstimableError
from elo_exp.oracle.influence import Estimate, Term, linear_estimate
from elo_exp.statistics.likelihood import Array

MIN_AUDIT = 20  # prompts with a label, for an audit that is graded
MIN_ESS = 0.30  # of the rows: below, weights leave the estimate to few of them
_EDGE = 0.05  # of the range of calibrated scores: closer to an end than this is saturated
MAX_OUT_OF_RANGE = 0.05
MAX_SATURATION = 0.20


def weight_diagnostics(data: Dataset, evidence: Evidence) -> WeightDiagnostics | None:
    """None for a policy without any log-probability."""
    target = data.target_logprob.get(evidence.policy)
    if target is None or not len(evidence.rows):
        return None
    ratio, hajek = evidence.log_ratio, evidence.hajek
    n, raw = len(ratio), weights.raw(ratio)
    top = np.sort(hajek)[::-1][: max(1, int(weights.TOP * n))]
    tail = weights.tail_index(hajek)
    complete = np.isfinite(target - data.logging_logprob)
    try:
        ess_calibrated = weights.effective_sample_size(evidence.calibrated)
    except NotEstimableError:
        ess_calibrated = None
    return WeightDiagnostics(
        policy=evidence.policy,
        n=n,
        n_failed=len(data.logged) - n,
        n_zero_logprob=int((target == 0).sum()),
        n_exactly_one=int((ratio == 0).sum()),
        n_extreme=int((np.abs(ratio) > math.log(weights.EXTREME)).sum()),
        mean_weight=float(raw.mean()) if ratio.max() < weights.LARGEST else None,
        max_abs_log_ratio=float(np.abs(ratio).max()),
        ess=weights.effective_sample_size(hajek),
        max_share=float(hajek.max() / hajek.sum()),
        top_share=float(top.sum() / hajek.sum()),
        coefficient_of_variation=float(hajek.std()),
        share_near_zero=float((raw < weights.NEAR_ZERO).mean()),
        tail_index=tail if tail is not None and math.isfinite(tail) else None,
        hellinger=weights.hellinger(hajek),
        target_coverage=_coverage(data, target, complete),
        ess_calibrated=ess_calibrated,
    )


def _coverage(data: Dataset, target: Array, complete: Array) -> float | None:
    length = data.logged.chars[complete]
    if np.isnan(length).any():
        return None
    return weights.target_coverage(data.logging_logprob[complete], target[complete], length)


def score_overlap(data: Dataset, evidence: Evidence) -> ScoreOverlap:
    """Whether the judge's scores of a policy are among those that the labels cover; the boundary card."""
    rows, of_row, source = _answers(evidence)
    labelled = data.logged.score[data.logged.labelled]
    outside = (rows.score < labelled.min()) | (rows.score > labelled.max())
    values, value = evidence.calibration.full.levels.levels, evidence.calibration.full(rows)
    margin = _EDGE * (values[-1] - values[0])
    saturated = (value <= values[0] + margin) | (value >= values[-1] - margin)
    out_of_range, saturation = float(of_row @ outside), float(of_row @ saturated)
    return ScoreOverlap(
        policy=evidence.policy,
        affinity=weights.score_affinity(data.logged.score, rows.score, of_row),
        source=source,
        out_of_range=out_of_range,
        saturation=saturation,
        card="refuse"
        if out_of_range >= MAX_OUT_OF_RANGE
        else "caution"
        if saturation >= MAX_SATURATION
        else "ok",
    )


def _answers(evidence: Evidence) -> tuple[Rows, Array, str]:
    """The policy's own answers and what each counts; without any, the logged ones by their weights."""
    if evidence.draws is not None:
        return evidence.draws, evidence.of_draw, "fresh"
    return evidence.rows, evidence.hajek / evidence.hajek.sum(), "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLabels:
    """Labels that tell what the oracle says of a policy's answers: r rows, what each counts, adding up to one."""

    rows: Rows
    of_row: Array
    source: str


def target_labels(data: Dataset, evidence: Evidence) -> TargetLabels | None:
    """Those of the probe, else those among the fresh draws, else logged ones by their weights, where enough count."""
    policy = evidence.policy
    fresh = data.fresh.get(policy)
    own = data.probe.get(policy, fresh[fresh.labelled] if fresh is not None else None)
    if own is not None and len(own):
        return TargetLabels(rows=own, of_row=np.full(len(own), 1.0 / len(own)), source="probe")
    if not len(evidence.rows):
        return None
    labelled = evidence.rows.labelled
    raw = evidence.hajek[labelled]
    if not labelled.any() or weights.effective_sample_size(raw) < MIN_ESS * len(raw):
        return None
    return TargetLabels(rows=evidence.rows[labelled], of_row=raw / raw.sum(), source="weights")


def transport_audit(
    evidence: Evidence, labels: TargetLabels | None, *, max_residual: float
) -> TransportAudit:
    """The mean residual of the calibration on a policy's labels."""
    if labels is None:
        return TransportAudit(policy=evidence.policy, source="none", status="not_checked")
    found = mean_residual(evidence, labels.rows, labels.of_row)
    low, high = found.value - found.half_width, found.value + found.half_width
    if found.n < MIN_AUDIT:
        status = "not_graded"
    elif low > -max_residual and high < max_residual:
        status = "pass"
    else:
        status = "fail" if low > 0 or high < 0 else "inconclusive"
    return TransportAudit(
        policy=evidence.policy,
        source=labels.source,
        status=status,
        n=found.n,
        residual=found.value,
        std_error=found.std_error,
        half_width=found.half_width,
    )


def mean_residual(evidence: Evidence, rows: Rows, of_row: Array) -> Estimate:
    """sum_r of_row_r (label - calibrated score) over labelled rows (r,)."""
    return _residuals(evidence, (rows, of_row))


def unweighted(evidence: Evidence, labels: TargetLabels) -> Estimate:
    """The mean residual of a policy's labels beyond what doubly robust estimates add."""
    rows, of_row = evidence.logged[evidence.labelled], evidence.of_residual[evidence.labelled]
    return _residuals(evidence, (labels.rows, labels.of_row), (rows, -of_row))


def unbalanced(evidence: Evidence, labels: TargetLabels) -> Estimate:
    """The mean residual of a policy's labels beyond what the direct estimate adds."""
    return _residuals(
        evidence,
        (labels.rows, labels.of_row),
        (evidence.calibration.labelled, -evidence.of_balance),
    )


def _residuals(evidence: Evidence, *sums: tuple[Rows, Array]) -> Estimate:
    terms = [
        Term(
            rows=rows,
            value=evidence.calibration.cross_fitted(rows),
            on_value=-of_row,
            on_label=of_row,
        )
        for rows, of_row in sums
    ]
    return linear_estimate(terms, evidence.calibration, n_prompts=len(evidence.prompts), centre=0.0)


def imbalance(evidence: Evidence) -> Estimate:
    """The mean calibrated score of the logged rows by their calibrated weights, minus that of the fresh draws.

    Zero on average where the weights are right as a function of the score.
    """
    logged, fresh = evidence.logged_value, evidence.fresh_value
    centre = float(evidence.of_draw @ fresh)
    u = evidence.calibrated / evidence.calibrated.sum()
    terms = [
        Term(rows=evidence.logged, value=logged, on_value=u, on_label=np.zeros(len(u))),
        Term(
            rows=evidence.fresh,
            value=fresh,
            on_value=-evidence.of_draw,
            on_label=np.zeros(len(fresh)),
        ),
    ]
    more = evidence.of_weights(logged - centre)
    return linear_estimate(
        terms, evidence.calibration, n_prompts=len(evidence.prompts), centre=centre, more=more
    )
