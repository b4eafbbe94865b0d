"""The results of an oracle experiment as files, as metrics and as tables on the console."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.analysis.win_rates import share_interval
from elo_exp.files import write_csv, write_json
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import HEADLINE, Analysis, label_budget
from elo_exp.oracle.gates import REFUSE, REPORT
from elo_exp.oracle.grid import ALL, GIVEN, JUDGE
from elo_exp.oracle.weights import EXTREME

_MAX_EXTREME = 50  # extreme weights listed for each policy
_BUDGETED = ("direct", "dr_cpo")  # estimators whose label budget is reported


def write(run_dir: Path, analysis: Analysis) -> list[Path]:
    """Write the files that docs/oracle.md describes."""
    documents: dict[str, Any] = {
        "estimates.json": [estimate.to_dict() for estimate in analysis.estimates],
        "weight_diagnostics.json": diagnostics(analysis),
        "label_budget.json": budgets(analysis),
    }
    if not analysis.options.compat:
        found = analysis.comparison
        documents["influences.json"] = influences(analysis)
        documents["differences.json"] = [d.to_dict() for d in found.differences]
        documents["ranking.json"] = [rank.to_dict() for rank in found.ranking]
        documents["next.json"] = found.next_step.to_dict()
    return [
        *(write_json(run_dir / name, document) for name, document in documents.items()),
        write_csv(run_dir / "extreme_weights.csv", list(extreme_weights(analysis))),
    ]


def budgets(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the labels that intervals of the chosen half-widths take."""
    return [
        {
            "policy": policy,
            "estimator": name,
            **label_budget(
                estimate,
                analysis.options.half_widths,
                max_labels=len(analysis.data.pool),
            ),
        }
        for (policy, name), estimate in analysis.unfiltered.items()
        if name in _BUDGETED
    ]


def influences(analysis: Analysis) -> dict[str, Any]:
    """By policy, the value that differences are of, and the influence of each prompt on it."""
    return {
        policy: {
            "value": found.anchor.value,
            "influence": {
                analysis.data.prompts[i]: float(found.anchor.influence[i])
                for i in np.flatnonzero(found.anchor.influence)
            },
        }
        for policy, found in analysis.headlines.items()
    }


def diagnostics(analysis: Analysis) -> dict[str, Any]:
    """All diagnostics that the statuses were decided by."""
    calibration = analysis.calibration
    labelled, curve = calibration.rows, calibration.full
    residual = calibration.at_labels.residual
    return {
        "policies": {
            policy: {
                "weights": None if checks.weights is None else checks.weights.to_dict(),
                "score_overlap": checks.overlap.to_dict(),
                "transport": checks.audit.to_dict(),
            }
            for policy, checks in analysis.checks.items()
        },
        "calibration": {
            "mode": "two_stage" if analysis.data.covariates else "monotone",
            "n_labels": len(labelled),
            "label_share": len(labelled) / len(analysis.data.pool),
            "rmse_cross_fitted": float(np.sqrt((residual**2).mean())),
            "lowest_score": float(labelled.score.min()),
            "highest_score": float(labelled.score.max()),
            "curve": [
                {"index": float(index), "value": float(value)}
                for index, value in zip(curve.knots, curve.levels, strict=True)
            ],
        },
    }


def extreme_weights(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Logged answers with weights above 5 or below 1/5, the most extreme first."""
    data = analysis.data
    for policy in data.policies:
        ratio = data.log_ratio(policy)
        size = np.where(np.isfinite(ratio), np.abs(ratio), 0.0)
        for i in np.argsort(-size, kind="stable")[:_MAX_EXTREME]:
            if size[i] > math.log(EXTREME):
                yield {
                    "policy": policy,
                    "prompt_id": data.prompts[data.logged.prompt[i]],
                    "log_ratio": float(ratio[i]),
                    "logging_logprob": float(data.logging_logprob[i]),
                    "target_logprob": float(data.target_logprob[policy][i]),
                    "judge_score": float(data.logged.score[i]),
                }


def metrics(analysis: Analysis, truth: Mapping[str, Truth]) -> dict[str, float]:
    """Final values named estimate/<policy>/<estimator>, ess/<policy>, overlap/<policy>, ..."""
    values: dict[str, float | None] = {}
    for e in analysis.estimates:
        name = f"{e.policy}/{e.estimator}"
        values[f"estimate/{name}"] = e.value
        values[f"std_error/{name}"] = e.std_error
        values[f"refused/{name}"] = e.status == REFUSE
        if e.value is not None and e.policy in truth:
            values[f"error/{name}"] = e.value - truth[e.policy].mean
    for policy, checks in analysis.checks.items():
        values[f"overlap/{policy}"] = checks.overlap.affinity
        if checks.weights is not None:
            values[f"ess/{policy}"] = checks.weights.ess
            values[f"ess_calibrated/{policy}"] = checks.weights.ess_calibrated
    return {name: float(value) for name, value in values.items() if value is not None}


def headline(analysis: Analysis, truth: Mapping[str, Truth]) -> float:
    """RMSE of the policies' headlines if a truth is known, else their mean standard error.

    Of those that are not refused; with `compat`, of all estimates.
    """
    chosen = [e for e in analysis.estimates if e.headline] or analysis.estimates
    errors = [
        e.value - truth[e.policy].mean
        for e in chosen
        if e.value is not None and e.policy in truth
    ]
    if errors:
        return math.sqrt(statistics.fmean(error**2 for error in errors))
    std_errors = [e.std_error for e in chosen if e.std_error is not None]
    return statistics.fmean(std_errors) if std_errors else 0.0


# The grid

Row = Mapping[str, Any]  # of grid.csv


def grid_summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return what page and console show: the largest size whose intervals are scored.

    size, calibration  the first calibration that uses labels
    headline           its rows over all policies, by label share and status
    estimators         rows of what is given, over all policies, by name and label share
    policies           the headline's rows of each
    coverage           of reported headlines at all label shares, with its interval over draws
    """
    scored = [row["size"] for row in rows if row["coverage"] is not None]
    size = max(scored or [row["size"] for row in rows])
    calibrations = dict.fromkeys(row["calibration"] for row in rows)
    calibration = next((name for name in calibrations if name != JUDGE), JUDGE)
    at = {"size": size, "calibration": calibration}
    headline: dict[float, dict[str, Row]] = {}
    estimators: dict[str, list[Row]] = {}
    policies: dict[str, list[Row]] = {}
    for row in rows:
        if not at.items() <= row.items():
            continue
        if (row["policy"], row["status"]) == (ALL, GIVEN):
            name = f"{row['estimator']} {row['weights']}".rstrip()
            estimators.setdefault(name, []).append(row)
        if row["estimator"] == HEADLINE and row["policy"] == ALL:
            headline.setdefault(row["label_share"], {})[row["status"]] = row
        elif row["estimator"] == HEADLINE and row["status"] != GIVEN:
            policies.setdefault(row["policy"], []).append(row)
    reported = [found[REPORT] for found in headline.values() if REPORT in found]
    covered = [row for row in reported if row["coverage"] is not None]
    coverage = None
    if n := sum(row["n"] for row in covered):
        share = sum(row["n"] * row["coverage"] for row in covered) / n
        n_draws = sum(row["n_draws"] for row in covered)
        coverage = (share, *share_interval(share, n_draws))
    return {
        **at,
        "headline": headline,
        "estimators": estimators,
        "policies": policies,
        "reported": reported,
        "coverage": coverage,
    }


def grid_metrics(found: Mapping[str, Any]) -> dict[str, float]:
    """Return grid/<number>/<estimator>, at the largest label share."""
    columns = ("rmse", "coverage", "interval_score", "pairwise_accuracy", "share")
    return {
        f"grid/{column}/{name}": rows[-1][column]
        for name, rows in found["estimators"].items()
        for column in columns
        if rows[-1][column] is not None
    }
