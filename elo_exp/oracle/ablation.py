"""What calibration is worth: estimates with and without it, against the truth where it is known."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elo_exp.estimators import Estimator
from elo_exp.oracle.data import Dataset, Rows, Truth
from elo_exp.oracle.estimates import Analysis, Options, analyse
from elo_exp.records import Record

SCORES = ("judge", "calibrated", "calibrated_by_variance")


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow(Record):
    """One estimate, also where it is refused."""

    scores: str  # one of SCORES
    estimator: str
    policy: str
    status: str
    value: float
    std_error: float
    ci_low: float  # 95 %
    ci_high: float
    truth: float | None = None
    error: float | None = None
    covers: bool | None = None  # the truth, allowing for its own standard error


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationSummary(Record):
    """Over the policies whose truth is known."""

    scores: str
    estimator: str
    n_policies: int
    bias: float
    rmse: float
    n_covered: int


def ablate(
    data: Dataset, estimators: Mapping[str, Estimator], options: Options, truth: Mapping[str, Truth]
) -> list[AblationRow]:
    """Estimate from uncalibrated scores, calibrated ones, and, with variances, weighted ones.

    Uncalibrated: the judge's scores take the place of the labels.
    """
    plain = dataclasses.replace(options, by_variance=False)
    analyses = {
        "judge": analyse(_with_scores_as_labels(data), estimators, plain),
        "calibrated": analyse(data, estimators, plain),
    }
    if not np.isnan(data.logged.variance).any():
        weighted = dataclasses.replace(options, by_variance=True)
        analyses["calibrated_by_variance"] = analyse(data, estimators, weighted)
    return [row for scores, analysis in analyses.items() for row in _rows(scores, analysis, truth)]


def _with_scores_as_labels(data: Dataset) -> Dataset:
    def relabelled(rows: Rows) -> Rows:
        return dataclasses.replace(rows, label=rows.score)

    fresh = {policy: relabelled(rows) for policy, rows in data.fresh.items()}
    return dataclasses.replace(data, logged=relabelled(data.logged), fresh=fresh)


def _rows(scores: str, analysis: Analysis, truth: Mapping[str, Truth]) -> list[AblationRow]:
    rows = []
    for reported in analysis.estimates:
        key = reported.policy, reported.estimator
        if key not in analysis.unfiltered:
            continue
        estimate = analysis.unfiltered[key]
        row = AblationRow(
            scores=scores,
            estimator=reported.estimator,
            policy=reported.policy,
            status=reported.status,
            value=estimate.value,
            std_error=estimate.std_error,
            ci_low=estimate.value - estimate.half_width,
            ci_high=estimate.value + estimate.half_width,
        )
        known = truth.get(reported.policy)
        if known is not None:
            error = estimate.value - known.mean
            both = math.hypot(estimate.std_error, known.std_error or 0.0)
            allowed = estimate.half_width * both / max(estimate.std_error, 1e-300)
            row = dataclasses.replace(
                row, truth=known.mean, error=error, covers=abs(error) <= allowed
            )
        rows.append(row)
    return rows


def summaries(rows: Sequence[AblationRow]) -> list[AblationSummary]:
    """Summarise errors by scores and estimator; empty without a truth."""
    groups: dict[tuple[str, str], list[AblationRow]] = {}
    for row in rows:
        if row.error is not None:
            groups.setdefault((row.scores, row.estimator), []).append(row)
    found = []
    for scores, estimator in sorted(groups, key=lambda key: (SCORES.index(key[0]), key[1])):
        group = groups[scores, estimator]
        errors = np.array([row.error for row in group])
        found.append(
            AblationSummary(
                scores=scores,
                estimator=estimator,
                n_policies=len(group),
                bias=float(errors.mean()),
                rmse=float(np.sqrt((errors**2).mean())),
                n_covered=sum(bool(row.covers) for row in group),
            )
        )
    return found
