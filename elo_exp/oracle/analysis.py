"""From a data set to what may be said of each policy: every estimator, the checks, the verdicts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from elo_exp.estimators import Estimator
from elo_exp.oracle import audits, cje
from elo_exp.oracle.audits import transport_audit
from elo_exp.oracle.calibration import Calibration, calibrate
from elo_exp.oracle.dataset import Dataset
from elo_exp.oracle.estimates import (
    LabelBudget,
    PolicyEstimate,
    ScoreOverlap,
    TransportAudit,
    WeightDiagnostics,
)
from elo_exp.oracle.evidence import Evidence, NotEstimableError, evidence
from elo_exp.oracle.gates import CAUTION, REFUSE, Gates, Verdict
from elo_exp.oracle.influence import Estimate
from elo_exp.oracle.label_budget import label_budget

_BUDGETED = ("direct", "dr_cpo")  # of the estimators, those whose label budget is worth knowing


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to analyse; conf/config.yaml describes the settings of these names."""

    calibration: str
    by_variance: bool
    max_residual: float
    half_widths: tuple[float, ...]
    compat: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What was found, by policy and estimator."""

    data: Dataset
    options: Options
    calibration: Calibration
    estimates: tuple[PolicyEstimate, ...]
    weights: tuple[WeightDiagnostics, ...]
    overlaps: tuple[ScoreOverlap, ...]
    audits: tuple[TransportAudit, ...]
    budgets: tuple[LabelBudget, ...]
    found: Mapping[
        tuple[str, str], Estimate
    ]  # policy, estimator: what it says, whatever the verdict

    def of(self, policy: str) -> list[PolicyEstimate]:
        return [estimate for estimate in self.estimates if estimate.policy == policy]


def analyse(data: Dataset, estimators: Mapping[str, Estimator], options: Options) -> Analysis:
    """Every estimator on every policy. With `compat` the library's formulas take the place of the estimators'."""
    calibration = calibrate(
        data.logged, n_folds=data.n_folds, mode=options.calibration, by_variance=options.by_variance
    )
    checks = [gates_of(data, evidence(data, policy, calibration)) for policy in data.policies]
    estimates: list[PolicyEstimate] = []
    every: dict[tuple[str, str], Estimate] = {}
    for gates in checks:
        policy = gates.evidence.policy
        published = cje.published(data, policy, calibration) if options.compat else None
        for name, estimator in estimators.items():
            try:
                found = (
                    cje.FORMULAS[name](published)
                    if published
                    else estimator.estimate(gates.evidence)
                )
            except NotEstimableError as error:
                estimates.append(
                    PolicyEstimate(policy=policy, estimator=name, status=REFUSE, reason=str(error))
                )
                continue
            every[policy, name] = found
            verdict = gates.decide(found, estimator.rests_on)
            estimates.append(_row(policy, name, found, verdict, refuses=published is None))
    return Analysis(
        data=data,
        options=options,
        calibration=calibration,
        estimates=tuple(estimates),
        weights=tuple(gates.weights for gates in checks if gates.weights is not None),
        overlaps=tuple(gates.overlap for gates in checks),
        audits=tuple(
            transport_audit(g.evidence, g.labels, max_residual=options.max_residual) for g in checks
        ),
        budgets=tuple(_budgets(data, every, options)),
        found=every,
    )


def _budgets(
    data: Dataset, found: Mapping[tuple[str, str], Estimate], options: Options
) -> Iterator[LabelBudget]:
    for (policy, name), estimate in found.items():
        if name in _BUDGETED:
            widths, n = options.half_widths, len(data.logged)
            yield label_budget(
                estimate, policy=policy, estimator=name, half_widths=widths, n_labels_at_most=n
            )


def gates_of(data: Dataset, of_policy: Evidence) -> Gates:
    """What one policy's estimates have to pass."""
    return Gates(
        evidence=of_policy,
        weights=audits.weight_diagnostics(data, of_policy),
        overlap=audits.score_overlap(data, of_policy),
        labels=audits.target_labels(data, of_policy),
    )


def _row(
    policy: str, name: str, found: Estimate, verdict: Verdict, *, refuses: bool
) -> PolicyEstimate:
    """As it is written; what is refused has no numbers."""
    status, reason = verdict
    row = PolicyEstimate(
        policy=policy, estimator=name, n=found.n, ess=found.ess, n_labels=found.n_labels
    )
    if status == REFUSE and refuses:
        return dataclasses.replace(row, status=status, reason=reason)
    low, high = found.value - found.half_width, found.value + found.half_width
    return dataclasses.replace(
        row,
        value=found.value,
        std_error=found.std_error,
        ci_low=max(low, 0.0) if refuses else low,
        ci_high=min(high, 1.0) if refuses else high,
        ci_clipped=refuses and (low < 0.0 or high > 1.0),
        status=CAUTION if status == REFUSE else status,
        reason=reason,
        std_error_labels=found.std_error_labels,
        degrees_of_freedom=found.degrees_of_freedom
        if math.isfinite(found.degrees_of_freedom)
        else None,
    )
