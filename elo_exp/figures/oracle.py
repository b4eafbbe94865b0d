"""Figures of the oracle experiment: estimates, calibration and weights."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib
import numpy as np

from elo_exp import arrays
from elo_exp.figures import kinds, style
from elo_exp.figures.style import INK, SOFT, Row, columns, grouped, panels, plot
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import Analysis
from elo_exp.oracle.gates import STATUSES
from elo_exp.records import Plot

_BINS = 20  # of scores
_POINTS = 200  # of a curve of weights


@matplotlib.rc_context(style.STYLE)
def plots(analysis: Analysis, truth: Mapping[str, Truth]) -> list[Plot]:
    """Draw what this analysis allows."""
    drawn = [
        estimates(analysis, truth),
        calibration(analysis),
        weights(analysis),
    ]
    return [plot for plot in drawn if plot is not None]


def estimates(analysis: Analysis, truth: Mapping[str, Truth]) -> Plot:
    """Draw every estimate with its interval, and the truth where it is known."""
    rows = [
        {
            **estimate.to_dict(),
            "truth": truth[estimate.policy].mean if estimate.policy in truth else None,
            "flag": "refused",
        }
        for estimate in analysis.estimates
    ]
    names = {row["estimator"]: row["estimator"] for row in rows}
    by, size = grouped(rows, "policy"), kinds.lines(len(names))
    figure, shown = panels(by, "mean oracle label", size=size)
    for ax, some in shown:
        numbers = "value", "ci_low", "ci_high"
        kinds.intervals(
            ax, some, names, "status", STATUSES, of="estimator", numbers=numbers
        )
        if some[0]["truth"] is not None:
            ax.axvline(some[0]["truth"], color=INK, lw=1, label="truth")
    return plot(
        "estimates",
        figure,
        rows,
        "Mean oracle label of each policy",
        "Estimates of each policy's mean oracle label with 95 % intervals over prompts, the "
        "uncertainty of the calibration included. Refused: the data cannot support a number.",
    )


def calibration(analysis: Analysis) -> Plot:
    """Draw the curve from score to label, and where the scores are that it is used on."""
    logged, labelled = analysis.data.pool, analysis.calibration.rows
    scale = analysis.data.scale
    edges = np.linspace(scale.low, scale.high, _BINS + 1)
    n_labels = np.histogram(labelled.score, edges)[0]
    known = n_labels > 0
    fitted = analysis.calibration.full(labelled)
    score, mean_label, calibrated = (
        np.histogram(labelled.score, edges, weights=values)[0]
        / np.where(known, n_labels, np.nan)
        for values in (labelled.score, labelled.label, fitted)
    )
    share_logged = np.histogram(logged.score, edges)[0] / len(logged)
    rows: list[Row] = []
    ylabel = "oracle label; share of scores"
    figure, shown = panels(analysis.checks, "judge score", ylabel)
    for ax, checks in shown:
        found = checks.evidence
        scores, counts = found.fresh.score, found.draw_weights
        if not len(scores):
            scores, counts = found.logged.score, found.hajek
        share = np.histogram(scores, edges, weights=counts)[0] / counts.sum()
        ax.stairs(
            scale.low + scale.width * share_logged,
            edges,
            baseline=scale.low,
            fill=True,
            color=SOFT,
            alpha=0.4,
            label=f"scores of {', '.join(analysis.data.lenders)}",
        )
        height = scale.low + scale.width * share
        ax.stairs(height, edges, baseline=scale.low, label="scores of the policy")
        ax.plot(score[known], calibrated[known], label="calibration")
        ax.plot(score, mean_label, "o", ms=3, color=INK, label="mean label")
        rows += arrays.rows(
            policy=found.policy,
            low=edges[:-1],
            high=edges[1:],
            share_logged=share_logged,
            share_policy=share,
            n_labels=n_labels,
            score=score,
            mean_label=mean_label,
            calibrated=calibrated,
        )
    return plot(
        "calibration",
        figure,
        rows,
        "Calibration of the judge's score, and the scores it is used on",
        f"Calibration from the judge's score to the oracle's label, from {len(labelled):,} "
        "labels, and the scores that it is used on. An overlap below 0.5 is refused, below 0.85 "
        "it calls for caution.",
    )


def weights(analysis: Analysis) -> Plot | None:
    """Draw the share of all weight that the largest weights hold, raw and calibrated."""
    rows: list[Row] = []
    for policy, checks in analysis.checks.items():
        if checks.weights is None or checks.weights.ess_calibrated is None:
            continue
        found = checks.evidence
        lines = {"raw": found.hajek, "calibrated on the score": found.calibrated}
        for kind, values in lines.items():
            held = np.append(0.0, np.cumsum(np.sort(values)[::-1])) / values.sum()
            at = np.linspace(0, len(values), _POINTS).astype(int)
            share = {"share_of_rows": at / len(values), "share_of_weight": held[at]}
            rows += arrays.rows(policy=policy, weights=kind, **share)
    if not rows:
        return None
    by, xlabel = grouped(rows, "policy"), "logged answers, largest weight first"
    figure, shown = panels(by, xlabel, "share of all weight")
    for ax, some in shown:
        for kind, line in grouped(some, "weights").items():
            ax.plot(*columns(line, "share_of_rows", "share_of_weight"), label=kind)
        ax.axline((0, 0), slope=1, color=SOFT, lw=0.8, ls="--", label="equal weights")
        ax.xaxis.set_major_formatter(kinds.SHARES)
        ax.yaxis.set_major_formatter(kinds.SHARES)
    return plot(
        "weights",
        figure,
        rows,
        "Concentration of the importance weights",
        "Share of all importance weight that the largest weights hold. The closer to the dashed "
        "line, the larger the effective sample; with less than 30 % of the rows, raw weights are "
        "refused.",
    )
