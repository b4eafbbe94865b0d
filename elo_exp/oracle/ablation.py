"""What calibration is worth: every estimator with it and without, against the truth where that is known."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elo_exp.estimators import Estimator
from elo_exp.oracle.analysis import Analysis, Options, analyse
from elo_exp.oracle.dataset import Dataset, Rows
from elo_exp.oracle.logged import Truth
from elo_exp.records import Record

SCORES = ("judge", "calibrated", "calibrated_by_variance")


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow(Record):
    """One estimate, whether it would be reported or not."""

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
    """judge: its scores are taken for labels; calibrated; calibrated_by_variance, where every score has a variance."""
    plain = dataclasses.replace(options, by_variance=False)
    runs = {
        "judge": analyse(_with_scores_for_labels(data), estimators, plain),
        "calibrated": analyse(data, estimators, plain),
    }
    if not np.isnan(data.logged.variance).any():
        weighted = dataclasses.replace(options, by_variance=True)
        runs["calibrated_by_variance"] = analyse(data, estimators, weighted)
    return [row for scores, run in runs.items() for row in _rows(scores, run, truth)]


def _with_scores_for_labels(data: Dataset) -> Dataset:
    def scored(rows: Rows) -> Rows:
        return dataclasses.replace(rows, label=rows.score)

    return dataclasses.replace(
        data,
        logged=scored(data.logged),
        fresh={name: scored(rows) for name, rows in data.fresh.items()},
    )


def _rows(scores: str, run: Analysis, truth: Mapping[str, Truth]) -> list[AblationRow]:
    status = {(e.policy, e.estimator): e.status for e in run.estimates}
    rows = []
    for (policy, estimator), found in run.found.items():
        row = AblationRow(
            scores=scores,
            estimator=estimator,
            policy=policy,
            status=status[policy, estimator],
            value=found.value,
            std_error=found.std_error,
            ci_low=found.value - found.half_width,
            ci_high=found.value + found.half_width,
        )
        if policy in truth:
            error, own = (
                found.value - truth[policy].mean,
                found.half_width / max(found.std_error, 1e-300),
            )
            allowed = own * math.hypot(found.std_error, truth[policy].std_error or 0.0)
            row = dataclasses.replace(
                row, truth=truth[policy].mean, error=error, covers=abs(error) <= allowed
            )
        rows.append(row)
    return rows


def summaries(rows: Sequence[AblationRow]) -> list[AblationSummary]:
    """By scores and estimator; none without a truth."""
    known = [row for row in rows if row.error is not None]
    groups = itertools.groupby(
        sorted(known, key=lambda row: (SCORES.index(row.scores), row.estimator)),
        key=lambda row: (row.scores, row.estimator),
    )
    found = []
    for (scores, estimator), some in groups:
        of_group = list(some)
        errors = np.array([row.error for row in of_group])
        found.append(
            AblationSummary(
                scores=scores,
                estimator=estimator,
                n_policies=len(of_group),
                bias=float(errors.mean()),
                rmse=float(np.sqrt((errors**2).mean())),
                n_covered=sum(bool(row.covers) for row in of_group),
            )
        )
    return found
