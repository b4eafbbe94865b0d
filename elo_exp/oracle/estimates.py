"""From a data set to estimates: every estimator on every policy, its checks and its status."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from elo_exp.oracle import cje
from elo_exp.oracle.calibration import Calibration, calibrate
from elo_exp.oracle.data import Dataset, Scale
from elo_exp.oracle.evidence import (
    Estimate,
    Estimator,
    NotEstimableError,
)
from elo_exp.oracle.gates import (
    REFUSE,
    REPORT,
    STATUSES,
    Checked,
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


@dataclass(kw_only=True)
class Analysis:
    """All results, the dictionaries by policy."""

    data: Dataset
    options: Options
    calibration: Calibration
    checks: dict[str, Checked] = field(default_factory=dict)
    estimates: list[PolicyEstimate] = field(default_factory=list)
    # By policy and estimator, whatever the status.
    unfiltered: dict[tuple[str, str], Estimate] = field(default_factory=dict)
    # Of those that are not refused
    headlines: dict[str, Anchored] = field(default_factory=dict)

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
    compat, scale = options.compat is not None, data.scale
    labels = data.logged if compat else data.pool
    calibration = calibrate(labels, by_variance=options.by_variance)
    if compat:
        estimators = {name: cje.Formula(name=name) for name in estimators}
        scale = Scale(-math.inf, math.inf)
    found = Analysis(data=data, options=options, calibration=calibration)
    for policy in data.policies:
        checked = found.checks[policy] = Checked(
            data=data,
            policy=policy,
            calibration=calibration,
            max_residual=options.max_residual,
        )
        rows, has_headline = [], not compat and len(checked.fresh) > 0
        for name in [HEADLINE] * has_headline + list(estimators):
            row = PolicyEstimate(policy=policy, estimator=name, status=REFUSE)
            try:
                if name == HEADLINE:
                    lead = anchored(checked)
                    estimate, requires = lead.estimate, REQUIRES[lead.rests_on]
                    row = replace(row, rests_on=lead.rests_on)
                else:
                    estimate = checked.estimate(estimators[name])
                    requires = estimators[name].requires
            except NotEstimableError as error:
                rows.append(replace(row, reason=str(error)))
                continue
            found.unfiltered[policy, name] = estimate
            headline = lead.estimate if policy in found.headlines else None
            status, reason = decide(
                checked, estimate, requires, headline, compat=compat
            )
            if status != REFUSE and name == HEADLINE:
                found.headlines[policy] = lead
                reason += f": {lead.why}" if lead.why else ""
            numbers: dict[str, Any] = {
                "n": estimate.n,
                "ess": estimate.ess,
                "n_labels": estimate.n_labels,
                "effective_labels": estimate.effective_labels,
            }
            if status != REFUSE:
                half, df = estimate.half_width, estimate.degrees_of_freedom
                low, high = estimate.value - half, estimate.value + half
                numbers |= {
                    "value": estimate.value,
                    "std_error": estimate.std_error,
                    "ci_low": max(low, scale.low),
                    "ci_high": min(high, scale.high),
                    "ci_clipped": low < scale.low or high > scale.high,
                    "std_error_labels": estimate.std_error_labels,
                    "degrees_of_freedom": df if math.isfinite(df) else None,
                }
            rows.append(replace(row, status=status, reason=reason, **numbers))
        if not compat:
            best = min(rows, key=lambda row: STATUSES.index(row.status))
            first = rows[0] if has_headline else best
            rows = [replace(row, headline=row is first) for row in rows]
        found.estimates += rows
    return found


def label_budget(
    estimate: Estimate, half_widths: Sequence[float], *, max_labels: int
) -> dict[str, Any]:
    """Count the labels that 95 % intervals of these half-widths take, all else being equal.

    Returns the half-width now, that with infinitely many labels, and `labels_for` each half-width,
    None for more than max_labels.
    """
    labels_for: dict[str, int | None] = {}
    for half_width in half_widths:
        needed = estimate.labels_needed(half_width)
        is_possible = needed <= max_labels
        labels_for[f"{half_width:g}"] = math.ceil(needed) if is_possible else None
    at_best = float(t_quantile(math.inf)) * math.sqrt(estimate.variance_of_prompts)
    return {
        "n_labels": estimate.n_labels,
        "half_width": estimate.half_width,
        "half_width_at_best": at_best,
        "labels_for": labels_for,
    }
