"""Whether an estimate may be reported: report, caution or refuse, and why.

Thresholds are those of the causal judge evaluation paper (arXiv:2512.11150). A bias is significant
where its 99 % interval excludes 0; it is refused where it exceeds half the estimate's half-width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from elo_exp.oracle import diagnostics
from elo_exp.oracle.data import Dataset, Scale
from elo_exp.oracle.diagnostics import (
    MIN_AFFINITY,
    MIN_AUDIT,
    MIN_ESS,
    PolicyDiagnostics,
    WeightDiagnostics,
)
from elo_exp.oracle.evidence import (
    CALIBRATED_WEIGHTS,
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Evidence,
    NotEstimableError,
)
from elo_exp.oracle.influence import Estimate
from elo_exp.oracle.weights import top_share

STATUSES = REPORT, CAUTION, REFUSE = "report", "caution", "refuse"  # the better first
Finding = tuple[str, str]  # status, reason

_GOOD_AFFINITY = 0.85
_MIN_COVERAGE, _GOOD_COVERAGE = 0.30, 0.70
_NO_MEAN, _NO_VARIANCE = 1.0, 2.0  # tail indices
_MAX_NEAR_ZERO = 0.85
_MAX_TOP, _MAX_VARIATION = 0.30, 2.0
_MIN_EFFECTIVE_ROWS = (
    30  # of raw weights: with fewer, intervals of calibrated ones undercover
)
_MAX_HALF_WIDTH, _GOOD_HALF_WIDTH = 0.25, 0.125  # of the scale
_ROUNDING = 1e-9  # of the scale: a bias below has none
_MIN_LABELS, _GOOD_LABELS = 15, 30  # that the correction comes to
# Labels of 0 and 1: with fewer, only draws that happen to vary little have a good half-width,
# 1.96 sd / sqrt(n) with an sd of at most 1/2, and their intervals undercover
_GOOD_BINARY_LABELS = 62


def decide(
    checked: PolicyDiagnostics,
    estimate: Estimate,
    requires: Sequence[str],
    *,
    compat: bool = False,
) -> Finding:
    """Return the worst status of an estimate, and all reasons for it.

    compat  leave out what cje-eval 0.3 does not know: borrowed calibration, labels and scale
    """
    findings = list(_findings(checked, estimate, requires))
    if not compat:
        findings += _borrowing(checked, estimate, requires)
        findings += _precision(estimate, checked.evidence.data)
    worst = max((status for status, _ in findings), key=STATUSES.index, default=REPORT)
    return worst, "; ".join(reason for status, reason in findings if status == worst)


def _findings(
    checked: PolicyDiagnostics, estimate: Estimate, requires: Sequence[str]
) -> Iterator[Finding]:
    if estimate.n_own:
        return
    yield from _scores(checked, by_score=RAW_WEIGHTS not in requires)
    raw = checked.weights
    if RAW_WEIGHTS in requires:
        if raw is not None:
            yield from raw_weight_findings(raw)
    else:
        yield from _transport(
            checked, estimate, by_weights=CALIBRATED_WEIGHTS in requires
        )
    if FRESH_DRAWS not in requires and raw is not None:
        yield from _coverage(raw)
        if CALIBRATED_WEIGHTS in requires:
            yield from _calibrated_weights(checked.evidence, raw, estimate)


def _scores(checked: PolicyDiagnostics, *, by_score: bool) -> Iterator[Finding]:
    """Scores at an end concern what is read from the curve, not what raw weights correct."""
    overlap = checked.overlap
    others = "logged" if checked.evidence.data.logging_policy else "labelled"
    if overlap.affinity < _GOOD_AFFINITY:
        status = REFUSE if overlap.affinity < MIN_AFFINITY else CAUTION
        yield (
            status,
            f"scores overlap too little with the {others} ones (A_B {overlap.affinity:.2f})",
        )
    if overlap.card == REFUSE:
        outside = _percent(overlap.out_of_range)
        yield (
            REFUSE,
            f"{outside} of its scores are beyond those of the labelled answers",
        )
    elif overlap.card == CAUTION and by_score:
        at_end = _percent(overlap.saturation)
        yield CAUTION, f"{at_end} of its calibrated scores are at an end of their range"


def _borrowing(
    checked: PolicyDiagnostics, estimate: Estimate, requires: Sequence[str]
) -> Iterator[Finding]:
    """An estimate by the score alone takes a score to mean the same for every policy."""
    evidence = checked.evidence
    if estimate.n_own or evidence.is_logging_policy or RAW_WEIGHTS in requires:
        return
    transport = checked.audit.status.replace("_", " ")
    lenders = ", ".join(evidence.data.lenders)
    yield CAUTION, f"borrows its calibration from {lenders} (transport {transport})"


def _precision(estimate: Estimate, data: Dataset) -> Iterator[Finding]:
    scale = data.scale
    if not scale.low <= estimate.value <= scale.high:
        yield REFUSE, "its value is off the scale"
    largest = _MAX_HALF_WIDTH * scale.width
    if not estimate.half_width <= largest:  # NaN included
        yield REFUSE, f"its interval is wider than ± {largest:g}"
    elif estimate.half_width > _GOOD_HALF_WIDTH * scale.width:
        found = f"{estimate.half_width:.{scale.decimals}f}"
        yield CAUTION, f"its interval is wide (± {found})"
    labels = estimate.effective_labels
    known = data.pool.label[data.pool.labelled]
    is_binary = np.isin(known, (scale.low, scale.high)).all()
    needed = _GOOD_BINARY_LABELS if is_binary else _GOOD_LABELS
    if not estimate.n_own and labels is not None and labels < needed:
        status = CAUTION if labels >= _MIN_LABELS else REFUSE
        yield status, f"its labels come to {labels:.0f} ({needed} needed)"


def raw_weight_findings(raw: WeightDiagnostics) -> Iterator[Finding]:
    """Return what speaks against estimates by raw weights."""
    yield from _concentration(
        raw.ess / raw.n,
        raw.top_share,
        raw.coefficient_of_variation,
        raw.share_near_zero,
    )
    if raw.tail_index is not None and raw.tail_index < _NO_VARIANCE:
        status, lacks = (
            (REFUSE, "mean") if raw.tail_index < _NO_MEAN else (CAUTION, "variance")
        )
        yield status, f"weights without a {lacks} (tail index {raw.tail_index:.2f})"


def _calibrated_weights(
    evidence: Evidence, raw: WeightDiagnostics, estimate: Estimate
) -> Iterator[Finding]:
    calibrated = evidence.calibrated
    variation = float(calibrated.std() / calibrated.mean())
    share = (estimate.ess or 0.0) / len(calibrated)
    yield from _concentration(
        share, top_share(calibrated), variation, raw.share_near_zero
    )
    if raw.ess < _MIN_EFFECTIVE_ROWS:
        yield (
            REFUSE,
            f"raw weights come to {raw.ess:.2g} rows ({_MIN_EFFECTIVE_ROWS} needed)",
        )
    if raw.tail_index is not None and raw.tail_index < _NO_MEAN:
        yield CAUTION, f"raw weights without a mean (tail index {raw.tail_index:.2f})"
    if len(evidence.fresh):
        reason = "weights miss the scores of its fresh draws by"
        bias = diagnostics.imbalance(evidence)
        yield from _bias(bias, estimate, reason, evidence.data.scale)


def _coverage(raw: WeightDiagnostics) -> Iterator[Finding]:
    covered = raw.target_coverage
    if covered is not None and covered < _GOOD_COVERAGE:
        status = REFUSE if covered < _MIN_COVERAGE else CAUTION
        yield (
            status,
            f"only {_percent(covered)} of the logged answers are typical of it",
        )


def _transport(
    checked: PolicyDiagnostics, estimate: Estimate, *, by_weights: bool
) -> Iterator[Finding]:
    """Check the residuals of labels of the policy's answers, beyond what is corrected."""
    if checked.audit.n < MIN_AUDIT:
        yield REPORT, "transport not checked"
        return
    with suppress(NotEstimableError):
        bias = diagnostics.uncorrected_residual(checked.evidence, by_weights=by_weights)
        reason = "labels of its answers are off the calibrated scores by"
        yield from _bias(bias, estimate, reason, checked.evidence.data.scale)


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


def _bias(
    bias: Estimate, estimate: Estimate, reason: str, scale: Scale
) -> Iterator[Finding]:
    half_width, digits = bias.half_width_at(0.99), scale.decimals + 1
    if abs(bias.value) > max(half_width, _ROUNDING * scale.width):
        status = REFUSE if abs(bias.value) > estimate.half_width / 2 else CAUTION
        yield (
            status,
            f"{reason} {bias.value:+.{digits}f} ± {half_width:.{digits}f} (99 %)",
        )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "all"
