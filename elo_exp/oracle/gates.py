"""Whether an estimate may be reported: report, caution or refuse, and why.

Thresholds are those of the causal judge evaluation paper (arXiv:2512.11150). A bias is significant
where its 99 % interval excludes 0; it is refused where it exceeds half the estimate's half-width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from elo_exp.oracle import diagnostics
from elo_exp.oracle.data import Scale
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
    Estimate,
    NotEstimableError,
)
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

    compat  refuse nothing, and leave out what cje-eval 0.3 does not know: borrowed calibration,
            labels and scale
    """
    findings: list[Finding] = []
    if not estimate.n_own:
        findings += _score_findings(checked, estimate, requires)
        if checked.weights is not None:
            findings += _weight_findings(checked, checked.weights, estimate, requires)
    if not compat:
        findings += _precision_findings(checked, estimate, requires)
    worst = max((status for status, _ in findings), key=STATUSES.index, default=REPORT)
    reason = "; ".join(reason for status, reason in findings if status == worst)
    return (CAUTION if compat and worst == REFUSE else worst), reason


def _score_findings(
    checked: PolicyDiagnostics, estimate: Estimate, requires: Sequence[str]
) -> Iterator[Finding]:
    """Check the overlap of scores, and what is read from the curve: raw weights correct that."""
    evidence, overlap = checked.evidence, checked.overlap
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
    if RAW_WEIGHTS in requires:
        return
    if overlap.card == CAUTION:
        at_end = _percent(overlap.saturation)
        yield CAUTION, f"{at_end} of its calibrated scores are at an end of their range"
    if checked.audit.n < MIN_AUDIT:
        yield REPORT, "transport not checked"
        return
    with suppress(NotEstimableError):
        by_weights = CALIBRATED_WEIGHTS in requires
        bias = diagnostics.uncorrected_residual(evidence, by_weights=by_weights)
        reason = "labels of its answers are off the calibrated scores by"
        yield from _bias(bias, estimate, reason, evidence.data.scale)


def _weight_findings(
    checked: PolicyDiagnostics,
    raw: WeightDiagnostics,
    estimate: Estimate,
    requires: Sequence[str],
) -> Iterator[Finding]:
    if RAW_WEIGHTS in requires:
        yield from raw_weight_findings(raw)
    if FRESH_DRAWS in requires:
        return
    covered = raw.target_coverage
    if covered is not None and covered < _GOOD_COVERAGE:
        typical = f"only {_percent(covered)} of the logged answers are typical of it"
        yield REFUSE if covered < _MIN_COVERAGE else CAUTION, typical
    if CALIBRATED_WEIGHTS in requires:
        evidence, calibrated = checked.evidence, checked.evidence.calibrated
        share = (estimate.ess or 0.0) / len(calibrated)
        variation = float(calibrated.std() / calibrated.mean())
        top, near_zero = top_share(calibrated), raw.share_near_zero
        yield from _concentration(share, top, variation, near_zero)
        if raw.ess < _MIN_EFFECTIVE_ROWS:
            needed = f"({_MIN_EFFECTIVE_ROWS} needed)"
            yield REFUSE, f"raw weights come to {raw.ess:.2g} rows {needed}"
        if raw.tail_index is not None and raw.tail_index < _NO_MEAN:
            index = f"(tail index {raw.tail_index:.2f})"
            yield CAUTION, f"raw weights without a mean {index}"
        if len(evidence.fresh):
            reason = "weights miss the scores of its fresh draws by"
            bias = diagnostics.imbalance(evidence)
            yield from _bias(bias, estimate, reason, evidence.data.scale)


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
    bias: Estimate, estimate: Estimate, reason: str, scale: Scale
) -> Iterator[Finding]:
    half_width, digits = bias.half_width_at(0.99), scale.decimals + 1
    if abs(bias.value) > max(half_width, _ROUNDING * scale.width):
        status = REFUSE if abs(bias.value) > estimate.half_width / 2 else CAUTION
        size = f"{bias.value:+.{digits}f} ± {half_width:.{digits}f} (99 %)"
        yield status, f"{reason} {size}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "all"
