"""From a data set to estimates: every estimator on every policy, its checks and its status."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

from elo_exp.oracle import cje
from elo_exp.oracle.anchored import Anchored, anchored, decide_anchored
from elo_exp.oracle.calibration import Calibration, calibrate
from elo_exp.oracle.comparisons import PolicyComparison, compare
from elo_exp.oracle.data import Dataset, Scale
from elo_exp.oracle.diagnostics import PolicyDiagnostics, diagnose
from elo_exp.oracle.evidence import (
    Evidence,
    NotEstimableError,
)
from elo_exp.oracle.gates import CAUTION, REFUSE, REPORT, STATUSES, decide
from elo_exp.oracle.influence import Estimate, t_quantile
from elo_exp.records import Record

HEADLINE = "anchored"
_BUDGETED = ("direct", "dr_cpo")  # estimators whose label budget is reported


@runtime_checkable
class Estimator(Protocol):
    @property
    def requires(self) -> tuple[str, ...]:
        """What it uses and what must pass the checks: RAW_WEIGHTS, CALIBRATED_WEIGHTS, FRESH_DRAWS.

        `estimate` is called only with evidence that has them.
        """

    def estimate(self, evidence: Evidence) -> Estimate:
        """Raises NotEstimableError where the evidence is not enough."""


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
class LabelBudget(Record):
    """How many oracle labels a 95 % interval of a given half-width takes, all else being equal."""

    policy: str
    estimator: str
    n_labels: int
    half_width: float  # now
    half_width_at_best: float  # with infinitely many labels
    # By half-width; None: more than there are answers.
    labels_for: Mapping[str, int | None]


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

    @property
    def budgets(self) -> list[LabelBudget]:
        return [
            label_budget(
                estimate,
                policy=policy,
                estimator=name,
                half_widths=self.options.half_widths,
                max_labels=len(self.data.pool),
            )
            for (policy, name), estimate in self.unfiltered.items()
            if name in _BUDGETED
        ]


def analyse(
    data: Dataset, estimators: Mapping[str, Estimator], options: Options
) -> Analysis:
    """Apply every estimator to every policy; with `compat`, that library's formulas instead."""
    calibration = calibrate(
        data.logged if options.compat else data.pool,
        n_folds=data.n_folds,
        by_variance=options.by_variance,
    )
    checks: dict[str, PolicyDiagnostics] = {}
    estimates: list[PolicyEstimate] = []
    unfiltered: dict[tuple[str, str], Estimate] = {}
    headlines: dict[str, Anchored] = {}
    for policy in data.policies:
        evidence = Evidence(data=data, policy=policy, calibration=calibration)
        checks[policy] = diagnose(evidence, max_residual=options.max_residual)
        published = cje.published(data, policy, calibration) if options.compat else None
        rows = []
        for name, estimator in estimators.items():
            row = PolicyEstimate(policy=policy, estimator=name)
            requires = cje.requires(name) if published else estimator.requires
            try:
                evidence.check(requires)
                estimate = (
                    cje.estimate(name, published)
                    if published
                    else estimator.estimate(evidence)
                )
            except NotEstimableError as error:
                reason = str(error)
                row = dataclasses.replace(row, status=REFUSE, reason=reason)
            else:
                unfiltered[policy, name] = estimate
                is_compat = published is not None
                status, reason = decide(
                    checks[policy], estimate, requires, compat=is_compat
                )
                row = dataclasses.replace(row, status=status, reason=reason)
                row = _with_numbers(row, estimate, data.scale, compat=is_compat)
            rows.append(row)
        estimates += (
            rows
            if published
            else _with_headline(checks[policy], rows, headlines, unfiltered)
        )
    return Analysis(
        data=data,
        options=options,
        calibration=calibration,
        checks=checks,
        estimates=tuple(estimates),
        unfiltered=unfiltered,
        headlines=headlines,
    )


def _with_headline(
    checked: PolicyDiagnostics,
    rows: Sequence[PolicyEstimate],
    headlines: dict[str, Anchored],
    unfiltered: dict[tuple[str, str], Estimate],
) -> list[PolicyEstimate]:
    """Put the headline before the estimates, and doubt those that it contradicts.

    A policy without fresh draws has the estimate of the best status as its headline.

    headlines   gets this one, unless it is refused
    unfiltered  gets it in any case
    """
    if not len(checked.evidence.fresh):
        best = min(rows, key=lambda row: STATUSES.index(row.status))
        return [dataclasses.replace(row, headline=row is best) for row in rows]
    first = PolicyEstimate(
        policy=checked.evidence.policy, estimator=HEADLINE, headline=True
    )
    try:
        found = anchored(checked)
    except NotEstimableError as error:
        return [dataclasses.replace(first, status=REFUSE, reason=str(error)), *rows]
    status, reason = decide_anchored(checked, found.estimate, found.rests_on)
    if found.why and status != REFUSE:
        reason = f"{reason}: {found.why}"
    first = dataclasses.replace(
        first, status=status, reason=reason, rests_on=found.rests_on
    )
    scale = checked.evidence.data.scale
    first = _with_numbers(first, found.estimate, scale, compat=False)
    unfiltered[first.policy, HEADLINE] = found.estimate
    if status != REFUSE:
        headlines[first.policy] = found
    return [first, *(_compared(row, first, scale.decimals) for row in rows)]


def _compared(
    row: PolicyEstimate, headline: PolicyEstimate, decimals: int
) -> PolicyEstimate:
    """Call for caution where an estimate and the headline lie outside each other's intervals."""
    if row.value is None or headline.value is None:
        return row
    assert row.ci_low is not None and row.ci_high is not None
    assert headline.ci_low is not None and headline.ci_high is not None
    if (
        headline.ci_low <= row.value <= headline.ci_high
        and row.ci_low <= headline.value <= row.ci_high
    ):
        return row
    difference = row.value - headline.value
    reason = f"differs from the headline by {difference:+.{decimals}f}"
    reasons = [row.reason, reason] if row.status == CAUTION else [reason]
    return dataclasses.replace(row, status=CAUTION, reason="; ".join(reasons))


def _with_numbers(
    row: PolicyEstimate, estimate: Estimate, scale: Scale, *, compat: bool
) -> PolicyEstimate:
    """Add the numbers, unless they are refused; `compat` refuses none and clips no interval."""
    row = dataclasses.replace(
        row,
        n=estimate.n,
        ess=estimate.ess,
        n_labels=estimate.n_labels,
        effective_labels=estimate.effective_labels,
    )
    if row.status == REFUSE and not compat:
        return row
    low, high = (
        estimate.value - estimate.half_width,
        estimate.value + estimate.half_width,
    )
    df = estimate.degrees_of_freedom
    return dataclasses.replace(
        row,
        value=estimate.value,
        std_error=estimate.std_error,
        ci_low=low if compat else max(low, scale.low),
        ci_high=high if compat else min(high, scale.high),
        ci_clipped=not compat and (low < scale.low or high > scale.high),
        status=CAUTION if row.status == REFUSE else row.status,
        std_error_labels=estimate.std_error_labels,
        degrees_of_freedom=df if math.isfinite(df) else None,
    )


def label_budget(
    estimate: Estimate,
    *,
    policy: str,
    estimator: str,
    half_widths: Sequence[float],
    max_labels: int,
) -> LabelBudget:
    """Extrapolate the labels' part of the variance as 1 / n_labels; the rest stays as it is.

    half_widths  of the 95 % interval, in units of the label
    max_labels   None is returned for half-widths that take more
    """
    from_labels = estimate.std_error_labels**2
    rest = max(estimate.std_error**2 - from_labels, 0.0)
    z = t_quantile(math.inf)
    labels_for: dict[str, int | None] = {}
    for half_width in half_widths:
        allowed = (half_width / z) ** 2 - rest
        needed = estimate.n_labels * from_labels / allowed if allowed > 0 else math.inf
        labels_for[f"{half_width:g}"] = (
            math.ceil(needed) if needed <= max_labels else None
        )
    return LabelBudget(
        policy=policy,
        estimator=estimator,
        n_labels=estimate.n_labels,
        half_width=estimate.half_width,
        half_width_at_best=z * math.sqrt(rest),
        labels_for=labels_for,
    )
