"""From a data set to estimates: every estimator on every policy, its checks and its status."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from elo_exp.oracle import cje
from elo_exp.oracle.calibration import Calibration, calibrate
from elo_exp.oracle.data import Dataset, Scale
from elo_exp.oracle.evidence import (
    Estimate,
    Estimator,
    Evidence,
    NotEstimableError,
)
from elo_exp.oracle.gates import (
    CAUTION,
    REFUSE,
    REPORT,
    STATUSES,
    Finding,
    PolicyDiagnostics,
    decide,
)
from elo_exp.oracle.headlines import (
    REQUIRES,
    Anchored,
    PolicyComparison,
    anchored,
    compare,
)
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.records import Record

HEADLINE = "anchored"


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


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """All results."""

    data: Dataset
    options: Options
    calibration: Calibration
    checks: Mapping[str, PolicyDiagnostics]  # by policy
    estimates: tuple[PolicyEstimate, ...]
    # By policy and estimator, whatever the status.
    unfiltered: Mapping[tuple[str, str], Estimate]
    headlines: Mapping[str, Anchored]  # by policy, of those that are not refused

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
    compat = options.compat is not None
    calibration = calibrate(
        data.logged if compat else data.pool,
        by_variance=options.by_variance,
    )
    scale = Scale(-math.inf, math.inf) if compat else data.scale
    used = (
        {name: cje.Formula(name=name) for name in estimators} if compat else estimators
    )
    checks: dict[str, PolicyDiagnostics] = {}
    estimates: list[PolicyEstimate] = []
    unfiltered: dict[tuple[str, str], Estimate] = {}
    headlines: dict[str, Anchored] = {}
    for policy in data.policies:
        evidence = Evidence(data=data, policy=policy, calibration=calibration)
        checked = checks[policy] = PolicyDiagnostics(
            evidence=evidence, max_residual=options.max_residual
        )
        rows, has_headline = [], not compat and len(evidence.fresh) > 0
        for name in [HEADLINE] * has_headline + list(used):
            row = PolicyEstimate(policy=policy, estimator=name, status=REFUSE)
            try:
                if name == HEADLINE:
                    lead = anchored(checked)
                    estimate, requires = lead.estimate, REQUIRES[lead.rests_on]
                    row = replace(row, rests_on=lead.rests_on)
                else:
                    estimate = evidence.estimate(used[name])
                    requires = used[name].requires
            except NotEstimableError as error:
                rows.append(replace(row, reason=str(error)))
                continue
            unfiltered[policy, name] = estimate
            status, reason = decide(checked, estimate, requires, compat=compat)
            if status != REFUSE and name == HEADLINE:
                headlines[policy] = lead
                reason += f": {lead.why}" if lead.why else ""
            elif status != REFUSE and policy in headlines:
                status, reason = _agreement(
                    estimate, lead.estimate, (status, reason), scale
                )
            row = replace(row, status=status, reason=reason)
            rows.append(_with_numbers(row, estimate, scale))
        if not compat:
            best = min(rows, key=lambda row: STATUSES.index(row.status))
            first = rows[0] if has_headline else best
            rows = [replace(row, headline=row is first) for row in rows]
        estimates += rows
    return Analysis(
        data=data,
        options=options,
        calibration=calibration,
        checks=checks,
        estimates=tuple(estimates),
        unfiltered=unfiltered,
        headlines=headlines,
    )


def _with_numbers(
    row: PolicyEstimate, estimate: Estimate, scale: Scale
) -> PolicyEstimate:
    """Add the numbers of an estimate, with its interval in the scale, unless it is refused."""
    row = replace(
        row,
        n=estimate.n,
        ess=estimate.ess,
        n_labels=estimate.n_labels,
        effective_labels=estimate.effective_labels,
    )
    if row.status == REFUSE:
        return row
    low = estimate.value - estimate.half_width
    high = estimate.value + estimate.half_width
    df = estimate.degrees_of_freedom
    return replace(
        row,
        value=estimate.value,
        std_error=estimate.std_error,
        ci_low=max(low, scale.low),
        ci_high=min(high, scale.high),
        ci_clipped=low < scale.low or high > scale.high,
        std_error_labels=estimate.std_error_labels,
        degrees_of_freedom=df if math.isfinite(df) else None,
    )


def _agreement(
    estimate: Estimate, headline: Estimate, finding: Finding, scale: Scale
) -> Finding:
    """Call for caution where an estimate and the headline lie outside each other's intervals."""
    distance = estimate.value - headline.value
    if abs(distance) <= min(estimate.half_width, headline.half_width):
        return finding
    differs = f"differs from the headline by {distance:+.{scale.decimals}f}"
    status, reason = finding
    return CAUTION, f"{reason}; {differs}" if status == CAUTION else differs


def label_budget(
    estimate: Estimate, half_widths: Sequence[float], *, max_labels: int
) -> dict[str, Any]:
    """Count the labels that 95 % intervals of these half-widths take, all else being equal.

    The labels' part of the variance is extrapolated as 1 / n_labels; the rest stays as it is.
    Returns the half-width now, that with infinitely many labels, and `labels_for` each half-width,
    None for more than max_labels.
    """
    from_labels = estimate.std_error_labels**2
    rest = max(estimate.std_error**2 - from_labels, 0.0)
    z = float(t_quantile(math.inf))
    labels_for: dict[str, int | None] = {}
    for half_width in half_widths:
        allowed = (half_width / z) ** 2 - rest
        needed = estimate.n_labels * from_labels / allowed if allowed > 0 else math.inf
        is_possible = needed <= max_labels
        labels_for[f"{half_width:g}"] = math.ceil(needed) if is_possible else None
    return {
        "n_labels": estimate.n_labels,
        "half_width": estimate.half_width,
        "half_width_at_best": z * math.sqrt(rest),
        "labels_for": labels_for,
    }
