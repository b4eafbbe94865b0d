"""What calibration is worth: estimates with and without it, against the truth where it is known."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elo_exp.oracle.data import Dataset, Rows, Truth
from elo_exp.oracle.estimates import Analysis, Estimator, Options, analyse

Row = dict[str, Any]  # of a table


def ablate(
    data: Dataset,
    estimators: Mapping[str, Estimator],
    options: Options,
    truth: Mapping[str, Truth],
) -> list[Row]:
    """Estimate from uncalibrated scores, calibrated ones, and, with variances, weighted ones.

    Uncalibrated ("judge"): the judge's scores take the place of the labels. The rows are those of
    docs/oracle.md, also of estimates that are refused.
    """
    plain = dataclasses.replace(options, by_variance=False)
    analyses = {
        "judge": analyse(_with_scores_as_labels(data), estimators, plain),
        "calibrated": analyse(data, estimators, plain),
    }
    if not np.isnan(data.logged.variance).any():
        weighted = dataclasses.replace(options, by_variance=True)
        analyses["calibrated_by_variance"] = analyse(data, estimators, weighted)
    return [
        row
        for scores, analysis in analyses.items()
        for row in _rows(scores, analysis, truth)
    ]


def _with_scores_as_labels(data: Dataset) -> Dataset:
    def relabelled(rows: Rows) -> Rows:
        return dataclasses.replace(rows, label=rows.score)

    fresh = {policy: relabelled(rows) for policy, rows in data.fresh.items()}
    return dataclasses.replace(data, logged=relabelled(data.logged), fresh=fresh)


def _rows(scores: str, analysis: Analysis, truth: Mapping[str, Truth]) -> list[Row]:
    status = {(e.policy, e.estimator): e.status for e in analysis.estimates}
    rows = []
    for (policy, estimator), estimate in analysis.unfiltered.items():
        value, half_width = estimate.value, estimate.half_width
        row: Row = {
            "scores": scores,
            "estimator": estimator,
            "policy": policy,
            "status": status[policy, estimator],
            "value": value,
            "std_error": estimate.std_error,
            "ci_low": value - half_width,
            "ci_high": value + half_width,
            "truth": None,
            "error": None,
            "covers": None,  # the truth, allowing for its own standard error
        }
        if known := truth.get(policy):
            both = math.hypot(estimate.std_error, known.std_error or 0.0)
            allowed = half_width * both / max(estimate.std_error, 1e-300)
            row["truth"], row["error"] = known.mean, value - known.mean
            row["covers"] = abs(row["error"]) <= allowed
        rows.append(row)
    return rows


def summaries(rows: Sequence[Row]) -> list[Row]:
    """Bias and RMSE by scores and estimator, over policies whose truth is known."""
    order = list(dict.fromkeys(row["scores"] for row in rows))
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda r: (order.index(r["scores"]), r["estimator"])):
        if row["error"] is not None:
            groups.setdefault((row["scores"], row["estimator"]), []).append(row)
    return [
        {
            "scores": scores,
            "estimator": estimator,
            "n_policies": len(group),
            "bias": statistics.fmean(row["error"] for row in group),
            "rmse": math.sqrt(statistics.fmean(row["error"] ** 2 for row in group)),
            "n_covered": sum(row["covers"] for row in group),
        }
        for (scores, estimator), group in groups.items()
    ]
