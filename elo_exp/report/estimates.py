"""The results of an oracle experiment as files, as metrics and as tables on the console."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.console import text_table
from elo_exp.files import write_csv, write_json
from elo_exp.oracle.collection import PolicySummary
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import Analysis, PolicyEstimate
from elo_exp.oracle.gates import REFUSE, STATUSES
from elo_exp.oracle.weights import EXTREME
from elo_exp.records import Plot
from elo_exp.report.page import render

_MAX_EXTREME = 50  # extreme weights listed for each policy
_LEGEND = (
    "± SE: over prompts, including the error of the labels. report: may be published as it is; "
    "caution: only with\nthe reason given; refuse: the data cannot tell. ESS: effective sample size "
    "of the weights, in rows."
)
_SAID = {"report": "reported", "caution": "with caution", "refuse": "refused"}
_COMPAT = (
    "compat=cje-0.3: estimates and errors of that library, which refuses nothing. See "
    "docs/oracle.md."
)


def write(run_dir: Path, analysis: Analysis) -> list[Path]:
    """Write the files that docs/oracle.md describes."""
    documents: dict[str, Any] = {
        "estimates.json": [estimate.to_dict() for estimate in analysis.estimates],
        "weight_diagnostics.json": diagnostics(analysis),
        "label_budget.json": [budget.to_dict() for budget in analysis.budgets],
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
    labelled, curve = calibration.rows, calibration.full.fit
    residual = labelled.label - calibration(labelled)
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


def table(analysis: Analysis, truth: Mapping[str, Truth]) -> str:
    """The policies by their headlines, then the estimates of each, those refused by reason."""
    head = ["estimator", "value", "± SE", "95 %", "n", "ESS", "use", "why"]
    parts = [] if analysis.options.compat else _ranking(analysis)
    for policy in analysis.data.policies:
        rows = [
            _cells(e, analysis.data.scale.decimals + 1)
            for e in analysis.of(policy)
            if e.value is not None
        ]
        refused: dict[str, list[str]] = {}
        for e in analysis.of(policy):
            if e.value is None:
                refused.setdefault(e.reason.split("; ")[0], []).append(e.estimator)
        parts.append(_title(analysis, policy, truth.get(policy)))
        parts += [text_table(head, rows, text=("use", "why"))] if rows else [""]
        parts += [f"  refused: {', '.join(n)}: {why}" for why, n in refused.items()]
        parts += [""] if refused else []
    parts.append(_COMPAT if analysis.options.compat else _LEGEND)
    return "\n".join([*parts, *against_truth(analysis, truth)])


def against_truth(analysis: Analysis, truth: Mapping[str, Truth]) -> list[str]:
    """How near headlines came to a known truth, by status; empty without one."""
    digits = analysis.data.scale.decimals + 1
    chosen = [e for e in analysis.estimates if e.headline and e.policy in truth]
    counts = []
    for status in STATUSES:
        some = [e for e in chosen if e.status == status]
        given = [
            (
                abs(e.value - truth[e.policy].mean),
                e.ci_low,
                e.ci_high,
                truth[e.policy].mean,
            )
            for e in some
            if e.value is not None and e.ci_low is not None and e.ci_high is not None
        ]
        near = ""
        if given:
            held = sum(low <= true <= high for _, low, high, true in given)
            off = f"{max(given)[0]:.{digits}f}"
            near = f", at most {off} off it, {held} of their intervals hold it"
        if some:
            counts.append(f"{len(some)} {_SAID[status]}{near}")
    return ["", f"Truth known: {'; '.join(counts)}."] if counts else []


def _ranking(analysis: Analysis) -> list[str]:
    """The policies by their headlines, with the ranks they may have, and what to do next."""
    headline = {e.policy: e for e in analysis.estimates if e.headline}
    digits, rows = analysis.data.scale.decimals + 1, []
    for rank in analysis.comparison.ranking:
        e = headline[rank.policy]
        low, high = rank.rank_low, rank.rank_high
        rows.append(
            [
                f"{low}-{high}" if high > low else f"{low}",
                rank.policy,
                f"{e.value:.{digits}f}",
                f"{e.ci_low:.{digits}f} .. {e.ci_high:.{digits}f}",
                e.rests_on,
                e.status,
            ]
        )
    head = ["rank", "policy", "value", "95 %", "rests on", "use"]
    table = text_table(head, rows, text=("policy", "rests on", "use"))
    return [*([table] if rows else []), analysis.comparison.next_step.advice, ""]


def _title(analysis: Analysis, policy: str, truth: Truth | None) -> str:
    checks = analysis.checks[policy]
    counts, diagnoses = [], [f"overlap of judge scores {checks.overlap.affinity:.2f}"]
    if (weights := checks.weights) is not None:
        counts.append(f"{weights.n:,} logged answers")
        if weights.n_failed:
            counts.append(f"{weights.n_failed:,} without log-probability")
        diagnoses.append(f"raw ESS {100 * weights.ess / weights.n:.3g} %")
    if policy in analysis.data.fresh:
        counts.append(f"{len(checks.evidence.fresh):,} fresh draws")
    counts.append(f"{len(analysis.calibration.rows):,} labels")
    decimals = analysis.data.scale.decimals
    said = checks.audit.describe(analysis.options.max_residual, decimals)
    diagnoses.append(f"transport {said}")
    if truth is not None:
        diagnoses.append(f"truth {truth.mean:.{decimals + 2}f}")
    return f"{policy}: {', '.join(counts)}\n{', '.join(diagnoses)}"


def _cells(e: PolicyEstimate, digits: int) -> list[str]:
    clipped = "*" if e.ci_clipped else ""
    interval = f"{e.ci_low:.{digits}f} .. {e.ci_high:.{digits}f}{clipped}"
    numbers = [f"{x:.{digits + 1}f}" for x in (e.value, e.std_error)]
    numbers.append(interval)
    ess = "-" if e.ess is None else f"{e.ess:,.0f}"
    return [e.estimator, *numbers, f"{e.n:,}", ess, e.status, e.reason]


def page(
    analysis: Analysis,
    truth: Mapping[str, Truth],
    plots: Sequence[Plot],
    *,
    title: str,
    manifest: Mapping[str, Any],
    collected: Sequence[PolicySummary] = (),
) -> str:
    """Return the whole report as one HTML file.

    manifest   the contents of manifest.json
    collected  what the run itself has made of each policy
    """
    refused = {
        (e.policy, e.estimator) for e in analysis.estimates if e.status == REFUSE
    }
    return render(
        "oracle",
        plots,
        title=title,
        manifest=manifest,
        analysis=analysis,
        data=analysis.data,
        truth=truth,
        leading=[_leading(p, analysis.of(p)) for p in analysis.data.policies],
        budgets=[b for b in analysis.budgets if (b.policy, b.estimator) not in refused],
        against_truth=" ".join(against_truth(analysis, truth)).strip(),
        collected=collected,
    )


def _leading(
    policy: str, rows: Sequence[PolicyEstimate]
) -> tuple[str, PolicyEstimate, list[Any]]:
    """The headline, with `compat` the first of the best status, and the values beside it."""
    best = min(rows, key=lambda e: (not e.headline, STATUSES.index(e.status)))
    return policy, best, [e.value for e in rows if e.value is not None]
