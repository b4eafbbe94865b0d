"""The results of an oracle experiment as files, as metrics and as tables on the console."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elo_exp import arrays
from elo_exp.analysis.win_rates import share_interval
from elo_exp.figures.style import columns, grouped
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import HEADLINE, Analysis, label_budget
from elo_exp.oracle.gates import REFUSE, REPORT
from elo_exp.oracle.grid import ALL, GIVEN, JUDGE
from elo_exp.oracle.weights import EXTREME

_MAX_EXTREME = 50  # extreme weights listed for each policy
_BUDGETED = ("direct", "dr_cpo")  # estimators whose label budget is reported


def documents(analysis: Analysis) -> dict[str, Any]:
    """Return the JSON files that docs/oracle.md describes, by name."""
    data, widths = analysis.data, analysis.options.half_widths
    found: dict[str, Any] = {
        "estimates.json": [estimate.to_dict() for estimate in analysis.estimates],
        "weight_diagnostics.json": diagnostics(analysis),
        "label_budget.json": [
            {"policy": policy, "estimator": name}
            | label_budget(estimate, widths, max_labels=len(data.pool))
            for (policy, name), estimate in analysis.unfiltered.items()
            if name in _BUDGETED
        ],
    }
    if analysis.options.compat:
        return found
    compared = analysis.comparison
    return found | {
        "influences.json": {
            policy: {
                "value": lead.anchor.value,
                "influence": {
                    data.prompts[i]: float(lead.anchor.influence[i])
                    for i in np.flatnonzero(lead.anchor.influence)
                },
            }
            for policy, lead in analysis.headlines.items()
        },
        "differences.json": compared.differences,
        "ranking.json": compared.ranking,
        "next.json": compared.next_step.to_dict(),
    }


def diagnostics(analysis: Analysis) -> dict[str, Any]:
    """All diagnostics that the statuses were decided by."""
    labelled, curve = analysis.calibration.rows, analysis.calibration.full
    residual = analysis.calibration.at_labels.residual
    return {
        "policies": {
            policy: {
                "weights": checks.weights and checks.weights.to_dict(),
                "score_overlap": checks.overlap.to_dict(),
                "transport": checks.audit.to_dict(),
            }
            for policy, checks in analysis.checks.items()
        },
        "calibration": arrays.one_row(
            mode="two_stage" if analysis.data.covariates else "monotone",
            n_labels=len(labelled),
            label_share=len(labelled) / len(analysis.data.pool),
            rmse_cross_fitted=np.sqrt((residual**2).mean()),
            lowest_score=labelled.score.min(),
            highest_score=labelled.score.max(),
            curve=arrays.rows(index=curve.knots, value=curve.levels),
        ),
    }


def extreme_weights(analysis: Analysis) -> list[dict[str, Any]]:
    """Logged answers with weights above 5 or below 1/5, the most extreme first."""
    data, found = analysis.data, []
    for policy in data.policies:
        ratio = data.log_ratio(policy)
        size = np.nan_to_num(np.abs(ratio))
        at = np.argsort(-size, kind="stable")[:_MAX_EXTREME]
        at = at[size[at] > math.log(EXTREME)]
        found += arrays.rows(
            policy=policy,
            prompt_id=[data.prompts[i] for i in data.logged.prompt[at]],
            log_ratio=ratio[at],
            logging_logprob=data.logging_logprob[at],
            target_logprob=data.target_logprob.get(policy, ratio)[at],
            judge_score=data.logged.score[at],
        )
    return found


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


def headline(analysis: Analysis, found: Mapping[str, float]) -> float:
    """RMSE of the policies' headlines if a truth is known, else their mean standard error.

    Of those that are not refused; with `compat`, of all estimates.

    found  the metrics
    """
    chosen = [e for e in analysis.estimates if e.headline] or analysis.estimates
    names = [f"{e.policy}/{e.estimator}" for e in chosen if e.value is not None]
    errors = [found[f"error/{name}"] for name in names if f"error/{name}" in found]
    if errors:
        return math.hypot(*errors) / math.sqrt(len(errors))
    return float(np.mean([found[f"std_error/{name}"] for name in names] or 0.0))


# The grid

Row = Mapping[str, Any]  # of grid.csv


def grid_summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return what page and console show: the largest samples with scored intervals, one calibration.

    headline    by label share, and by status, over all policies
    estimators  by name, what each gives, a row for each label share
    policies    the headline's rows of each label share and status
    reported    of the headlines, by label share
    coverage    of all reported intervals, with its interval over draws
    """
    scored = [row for row in rows if row["coverage"] is not None] or rows
    size = max(row["size"] for row in scored)
    calibrations = [row["calibration"] for row in rows if row["calibration"] != JUDGE]
    at = {"size": size, "calibration": [*calibrations, JUDGE][0]}
    rows = [
        {**row, "name": f"{row['estimator']} {row['weights']}".rstrip()}
        for row in rows
        if at.items() <= row.items()
    ]
    leading = grouped((row for row in rows if row["name"] == HEADLINE), "policy")
    headline = {
        label_share: {row["status"]: row for row in some}
        for label_share, some in grouped(leading.pop(ALL), "label_share").items()
    }
    reported = [found[REPORT] for found in headline.values() if REPORT in found]
    covered, coverage = [row for row in reported if row["coverage"] is not None], None
    if covered:
        shares, n, n_draws = columns(covered, "coverage", "n", "n_draws")
        share = float(np.average(shares, weights=n))
        coverage = (share, *share_interval(share, int(n_draws.sum())))
    given = (row for row in rows if (row["policy"], row["status"]) == (ALL, GIVEN))
    return {
        **at,
        "headline": headline,
        "estimators": grouped(given, "name"),
        "policies": leading,
        "reported": reported,
        "coverage": coverage,
    }


def grid_metrics(found: Mapping[str, Any]) -> dict[str, float]:
    """Return grid/<number>/<estimator>, at the largest label share."""
    numbers = ("rmse", "coverage", "interval_score", "pairwise_accuracy", "share")
    return {
        f"grid/{column}/{name}": rows[-1][column]
        for name, rows in found["estimators"].items()
        for column in numbers
        if rows[-1][column] is not None
    }
