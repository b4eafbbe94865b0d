"""Whether an estimate may be reported: report, caution or refuse, and why.

The thresholds are those of the causal judge evaluation paper (arXiv:2512.11150). Those on residuals are relative to the
estimate's own interval: a bias is too large when it is beyond chance and more than half as wide as that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from elo_exp.oracle import audits
from elo_exp.oracle.audits import MIN_AUDIT, MIN_ESS, TargetLabels
from elo_exp.oracle.estimates import STATUSES, ScoreOverlap, WeightDiagnostics
from elo_exp.oracle.evidence import (
    CALIBRATED_WEIGHTS,
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Evidence,
    NotEstimableError,
)
from elo_exp.oracle.influence import Estimate
from elo_exp.statistics.student import t_quantile

REPORT, CAUTION, REFUSE = STATUSES
Verdict = tuple[str, str]  # status, reason

_MIN_AFFINITY, _GOOD_AFFINITY = 0.50, 0.85
_MIN_COVERAGE, _GOOD_COVERAGE = 0.30, 0.70
_NO_MEAN, _NO_VARIANCE = 1.0, 2.0  # tail indices
_MAX_NEAR_ZERO = 0.85
_MAX_TOP, _MAX_VARIATION = 0.30, 2.0
_MIN_EFFECTIVE_ROWS = (
    30  # of raw weights: with fewer, intervals of calibrated ones cover too little
)


@dataclass(frozen=True, kw_only=True)
class Gates:
    """What the gates look at, of one policy; `weights` None where it has no log-probabilities."""

    evidence: Evidence
    weights: WeightDiagnostics | None
    overlap: ScoreOverlap
    labels: TargetLabels | None  # of the policy's answers

    def decide(self, estimate: Estimate, rests_on: tuple[str, ...]) -> Verdict:
        """The worst that is found, and all that is as bad."""
        found = list(self._findings(estimate, rests_on))
        worst = max((STATUSES.index(status) for status, _ in found), default=0)
        return STATUSES[worst], "; ".join(
            reason for status, reason in found if status == STATUSES[worst]
        )

    def _findings(self, estimate: Estimate, rests_on: tuple[str, ...]) -> Iterator[Verdict]:
        if estimate.n_own:
            if estimate.n_own < MIN_AUDIT:
                yield CAUTION, f"corrected by only {estimate.n_own} labels of its own answers"
            return
        yield from self._scores()
        if RAW_WEIGHTS in rests_on:
            yield from self._raw_weights()
        else:
            yield from self._transport(estimate, rests_on)
        if FRESH_DRAWS not in rests_on:
            yield from self._coverage()
        if rests_on == (CALIBRATED_WEIGHTS,):
            yield from self._calibrated_weights(estimate)

    def _scores(self) -> Iterator[Verdict]:
        affinity, outside = self.overlap.affinity, self.overlap.out_of_range
        if affinity < _GOOD_AFFINITY:
            status = REFUSE if affinity < _MIN_AFFINITY else CAUTION
            yield status, f"scores overlap too little with the logged ones (A_B {affinity:.2f})"
        if self.overlap.card == REFUSE:
            yield (
                REFUSE,
                f"{_percent(outside)} of its scores are beyond those of the labelled answers",
            )
        elif self.overlap.card == CAUTION:
            yield (
                CAUTION,
                f"{_percent(self.overlap.saturation)} of its calibrated scores are at an end of their range",
            )

    def _raw_weights(self) -> Iterator[Verdict]:
        w = self.weights
        if w is None or w.ess is None:
            return
        yield from _concentration(
            w.ess, w.n, w.top_share, w.coefficient_of_variation, w.share_near_zero
        )
        if w.tail_index is not None and w.tail_index < _NO_VARIANCE:
            status, lacks = (REFUSE, "mean") if w.tail_index < _NO_MEAN else (CAUTION, "variance")
            yield status, f"weights without a {lacks} (tail index {w.tail_index:.2f})"

    def _calibrated_weights(self, estimate: Estimate) -> Iterator[Verdict]:
        calibrated = self.evidence.calibrated
        n, mean = len(calibrated), float(calibrated.mean())
        top = sorted(calibrated, reverse=True)[: max(1, int(0.05 * n))]
        near_zero = None if self.weights is None else self.weights.share_near_zero
        variation = float(calibrated.std()) / mean
        yield from _concentration(
            estimate.ess or 0.0, n, sum(top) / (n * mean), variation, near_zero
        )
        if self.weights and self.weights.ess is not None and self.weights.ess < _MIN_EFFECTIVE_ROWS:
            yield (
                REFUSE,
                f"raw weights come to {self.weights.ess:.2g} rows ({_MIN_EFFECTIVE_ROWS} needed)",
            )
        if (
            self.weights
            and self.weights.tail_index is not None
            and self.weights.tail_index < _NO_MEAN
        ):
            yield CAUTION, f"raw weights without a mean (tail index {self.weights.tail_index:.2f})"
        if self.evidence.draws is not None:
            off = audits.imbalance(self.evidence)
            yield from _bias(off, estimate, "weights miss the scores of its fresh draws by")

    def _coverage(self) -> Iterator[Verdict]:
        covered = self.weights.target_coverage if self.weights else None
        if covered is not None and covered < _GOOD_COVERAGE:
            status = REFUSE if covered < _MIN_COVERAGE else CAUTION
            yield status, f"only {_percent(covered)} of the logged answers are typical of it"

    def _transport(self, estimate: Estimate, rests_on: tuple[str, ...]) -> Iterator[Verdict]:
        """Whether labels of the policy's answers agree, as far as they are not allowed for."""
        if self.labels is None or len(self.labels.rows) < MIN_AUDIT:
            yield REPORT, "transport not checked"
            return
        with suppress(NotEstimableError):
            by_weight = CALIBRATED_WEIGHTS in rests_on
            off = (audits.unweighted if by_weight else audits.unbalanced)(
                self.evidence, self.labels
            )
            yield from _bias(
                off, estimate, "labels of its answers are off the calibrated scores by"
            )


def _concentration(
    ess: float, n: int, top: float | None, variation: float | None, near_zero: float | None
) -> Iterator[Verdict]:
    if ess < MIN_ESS * n:
        yield (
            REFUSE,
            f"effective sample {_percent(ess / n)} of the rows ({_percent(MIN_ESS)} needed)",
        )
    if near_zero is not None and near_zero > _MAX_NEAR_ZERO:
        yield REFUSE, f"{_percent(near_zero)} of the raw weights are nearly zero"
    if top is not None and variation is not None and top > _MAX_TOP and variation > _MAX_VARIATION:
        yield REFUSE, f"5 % of the rows hold {_percent(top)} of the weight"


def _bias(off: Estimate, estimate: Estimate, said: str) -> Iterator[Verdict]:
    """A deviation beyond its own 99 % interval: refused where it is more than half as wide as the estimate's."""
    beyond = t_quantile(off.degrees_of_freedom, level=0.99) * off.std_error
    if abs(off.value) > beyond:
        status = REFUSE if abs(off.value) > estimate.half_width / 2 else CAUTION
        yield status, f"{said} {off.value:+.3f} ± {beyond:.3f} (99 %)"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "all"
