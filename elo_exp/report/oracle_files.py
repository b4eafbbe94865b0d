"""The results of an oracle experiment as files and metrics."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from elo_exp import arrays
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import Analysis, plan_label_budget
from elo_exp.oracle.evidence import Estimate
from elo_exp.oracle.gates import REFUSE, REPORT
from elo_exp.oracle.weights import EXTREME_WEIGHT
from elo_exp.report.sentences import oracle_sentences as words
from elo_exp.report.sentences import scope_line

_MAX_EXTREME_WEIGHTS_PER_POLICY = 50
# Fields of a conclusion in the tracker
_TRACKED_FIELDS = (
    "state",
    "sentence",
    "value",
    "ci_low",
    "ci_high",
    "policy",
    "most_lost",
)
_BUDGETED_ESTIMATORS = ("direct", "dr_cpo")


def build_json_files(analysis: Analysis) -> dict[str, Any]:
    """Return the JSON files that docs/oracle_files.md describes, by name."""
    data, widths = analysis.data, analysis.options.half_widths
    files: dict[str, Any] = {
        "estimates.json": [estimate.to_dict() for estimate in analysis.estimates],
        "weight_diagnostics.json": diagnostics(analysis),
        "label_budget.json": [
            {"policy": policy, "estimator": name}
            | plan_label_budget(estimate, widths, max_labels=len(data.pooled_rows))
            for (policy, name), estimate in analysis.estimates_by_policy.items()
            if name in _BUDGETED_ESTIMATORS
        ],
    }
    if analysis.options.compat:
        return files
    comparison = analysis.comparison
    return files | {
        "influences.json": {
            policy: {
                "value": lead.anchor.value,
                "influence": {
                    data.prompts[i]: float(lead.anchor.influence[i])
                    for i in np.flatnonzero(lead.anchor.influence)
                },
                "labels": _make_label_mean(data.prompts, lead.anchor),
            }
            for policy, lead in analysis.headlines.items()
        },
        "differences.json": comparison.differences,
        "ranking.json": comparison.ranking,
        "next.json": comparison.next_step.to_dict()
        | {"advice": words.advice(comparison, data.scale.decimals + 1)},
    }


def _make_label_mean(prompts: Sequence[str], anchor: Estimate) -> dict[str, Any] | None:
    """Return the parts of the bounds of the mean label by prompt, and the influence next to the labels."""
    labels, influence_beside = anchor.labels, anchor.influence_beside_labels
    if labels is None:
        return None
    return {
        "beside": {
            prompts[i]: float(influence_beside[i])
            for i in np.flatnonzero(influence_beside).tolist()
        },
        "influence": {
            prompts[i]: float(labels.influence[i])
            for i in np.flatnonzero(labels.labelled).tolist()
        },
        "lowest": labels.lowest,
        "highest": labels.highest,
    }


def conclusions(analysis: Analysis) -> dict[str, Any]:
    """Return the conclusions on each policy and on the choice, for manifest.json; empty with compat."""
    if analysis.options.compat:
        return {}
    digits, comparison = analysis.data.scale.decimals + 1, analysis.comparison
    choice, step = comparison.choice, comparison.next_step
    return {
        "conclusions": {
            policy: words.as_row(conclusion, digits)
            for policy, conclusion in analysis.conclusions.items()
        },
        "choice": {
            "state": choice.state,
            "sentence": words.advice(comparison, digits),
            "policy": step.choice,
            "most_lost": step.most_lost,
            "judge": choice.scope.judge,
            "whose": scope_line.describe_oracle_scope(analysis.options.oracle),
        },
    }


def diagnostics(analysis: Analysis) -> dict[str, Any]:
    """Return all diagnostics that decide the statuses."""
    labelled, curve = analysis.calibration.rows, analysis.calibration.full_curve
    residual = analysis.calibration.label_reading.residual
    return {
        "policies": {
            policy: {
                "weights": checks.weight_diagnostics
                and checks.weight_diagnostics.to_dict(),
                "score_overlap": checks.overlap.to_dict(),
                "transport": checks.transport_audit.to_dict(),
                "label_samples": [sample.to_dict() for sample in checks.label_samples],
            }
            for policy, checks in analysis.evidence_by_policy.items()
        },
        "calibration": arrays.make_row(
            mode="two_stage" if analysis.data.covariates else "monotone",
            n_labels=len(labelled),
            label_share=len(labelled) / len(analysis.data.pooled_rows),
            rmse_cross_fitted=np.sqrt((residual**2).mean()),
            lowest_score=labelled.score.min(),
            highest_score=labelled.score.max(),
            curve=arrays.make_rows(index=curve.knots, value=curve.levels),
        ),
    }


def extreme_weights(analysis: Analysis) -> list[dict[str, Any]]:
    """Return logged answers with weights above 5 or below 1/5, the most extreme first."""
    data, rows = analysis.data, []
    for policy in data.policies:
        ratio = data.log_ratio(policy)
        size = np.nan_to_num(np.abs(ratio))
        indices = np.argsort(-size, kind="stable")[:_MAX_EXTREME_WEIGHTS_PER_POLICY]
        indices = indices[size[indices] > math.log(EXTREME_WEIGHT)]
        rows += arrays.make_rows(
            policy=policy,
            prompt_id=[data.prompts[i] for i in data.logged_rows.prompt[indices]],
            log_ratio=ratio[indices],
            logging_logprob=data.logging_logprob[indices],
            target_logprob=data.target_logprob.get(policy, ratio)[indices],
            judge_score=data.logged_rows.score[indices],
        )
    return rows


# Kinds of numbers for trackers, as in experiments.NamesNumbers
METRIC_KINDS: Mapping[str, Sequence[str]] = {
    "oracle_mean": ("error", "std_error", "reported"),
    **dict.fromkeys(("estimate", "std_error", "refused", "error"), ()),
    **dict.fromkeys(("overlap", "ess", "ess_calibrated"), ()),
}


def metrics(analysis: Analysis, truth: Mapping[str, Truth]) -> dict[str, float | str]:
    """Return final values named estimate/<policy>/<estimator>, ess/<policy>, overlap/<policy>, ...

    oracle_mean/error (root mean square), /std_error and /reported (share) are over the reported estimates.
    conclusion/<policy>/<field> and choice/<field> are the conclusions and their sentences.
    """
    values: dict[str, float | None] = {}
    for e in analysis.estimates:
        name = f"{e.policy}/{e.estimator}"
        values[f"estimate/{name}"] = e.value
        values[f"std_error/{name}"] = e.std_error
        values[f"refused/{name}"] = e.status == REFUSE
        if e.value is not None and e.policy in truth:
            values[f"error/{name}"] = e.value - truth[e.policy].mean
    for policy, checks in analysis.evidence_by_policy.items():
        values[f"overlap/{policy}"] = checks.overlap.affinity
        if checks.weight_diagnostics is not None:
            values[f"ess/{policy}"] = checks.weight_diagnostics.ess
            values[f"ess_calibrated/{policy}"] = (
                checks.weight_diagnostics.ess_calibrated
            )
    final_values: dict[str, float | str] = {
        name: float(value) for name, value in values.items() if value is not None
    }
    final_values |= _average_headlines(analysis, final_values)
    conclusion_rows = conclusions(analysis)
    rows = {
        f"conclusion/{n}": row
        for n, row in conclusion_rows.get("conclusions", {}).items()
    }
    if conclusion_rows:
        rows["choice"] = conclusion_rows["choice"]
    for prefix, row in rows.items():
        fields = {name: row.get(name) for name in _TRACKED_FIELDS}
        final_values |= {
            f"{prefix}/{n}": value for n, value in fields.items() if value is not None
        }
    return final_values


def choose_objective(metric_values: Mapping[str, Any]) -> tuple[str, float]:
    """Return the error over the policies if a truth is known, else their mean standard error, and its name.

    NaN if every estimate is refused.

    metric_values  the metrics
    """
    for name in ("oracle_mean/error", "oracle_mean/std_error"):
        if name in metric_values:
            return name, metric_values[name]
    return "oracle_mean/std_error", math.nan


def _average_headlines(
    analysis: Analysis, metric_values: Mapping[str, Any]
) -> dict[str, float]:
    """Average the reported estimates that are not refused; with `compat`, all estimates.

    metric_values  the metrics of each
    """
    estimates = [e for e in analysis.estimates if e.headline] or analysis.estimates
    names = [f"{e.policy}/{e.estimator}" for e in estimates if e.value is not None]
    errors = [
        metric_values[f"error/{name}"]
        for name in names
        if f"error/{name}" in metric_values
    ]
    sizes = [metric_values[f"std_error/{name}"] for name in names]
    means = {}
    if errors:
        means["error"] = math.hypot(*errors) / math.sqrt(len(errors))
    if sizes:
        means["std_error"] = float(np.mean(sizes))
    if estimates:
        means["reported"] = fmean(e.status == REPORT for e in estimates)
    return {f"oracle_mean/{name}": mean for name, mean in means.items()}
