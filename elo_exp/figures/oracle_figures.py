"""Figures of the oracle experiment: estimates, calibration and weights; errors on a grid."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np

from elo_exp import arrays
from elo_exp.figures import figure_kinds, style
from elo_exp.figures.style import (
    INK,
    PALETTE,
    SOFT,
    Row,
    grouped,
    make_panels,
    read_columns,
    render_plot,
)
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import HEADLINE_ESTIMATOR, Analysis
from elo_exp.oracle.gates import STATUSES_BEST_FIRST, GatedEvidence
from elo_exp.oracle.grid import ALL, GIVEN
from elo_exp.records import Plot

_N_SCORE_BINS = 20
_N_WEIGHT_CURVE_POINTS = 200


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def plots(analysis: Analysis, truth: Mapping[str, Truth]) -> list[Plot]:
    """Draw the figures that this analysis allows."""
    figures = [estimates(analysis, truth), calibration(analysis)]
    weighted = [
        checked
        for checked in analysis.evidence_by_policy.values()
        if checked.weight_diagnostics is not None
        and checked.weight_diagnostics.ess_calibrated is not None
    ]
    return [*figures, weights(weighted)] if weighted else figures


def estimates(analysis: Analysis, truth: Mapping[str, Truth]) -> Plot:
    """Draw every estimate with its interval, and the truth if it is known."""
    mean_by_policy = {policy: value.mean for policy, value in truth.items()}
    rows = [
        {**row.to_dict(), "truth": mean_by_policy.get(row.policy), "flag": "refused"}
        for row in analysis.estimates
    ]
    names = {row["estimator"]: row["estimator"] for row in rows}
    by_policy, size = grouped(rows, "policy"), figure_kinds.panel_size(len(names))
    figure, axes = make_panels(by_policy, "mean oracle label", size=size)
    for ax, panel_rows in axes:
        numbers = "value", "ci_low", "ci_high"
        figure_kinds.draw_intervals(
            ax,
            panel_rows,
            names,
            "status",
            STATUSES_BEST_FIRST,
            line_column="estimator",
            numbers=numbers,
        )
        if panel_rows[0]["truth"] is not None:
            ax.axvline(panel_rows[0]["truth"], color=INK, lw=1, label="truth")
    return render_plot(
        "estimates",
        figure,
        rows,
        "Mean oracle label of each policy",
        "Estimates of each policy's mean oracle label. The 95% intervals are over prompts and include the "
        "uncertainty of the calibration. Refused: the data do not support an estimate.",
    )


def calibration(analysis: Analysis) -> Plot:
    """Draw the curve from score to label, and the distribution of the scores that it is used on."""
    data, labelled = analysis.data, analysis.calibration.rows
    scale, curve = data.scale, analysis.calibration.full_curve
    edges = np.linspace(scale.low, scale.high, _N_SCORE_BINS + 1)
    n_labels, *sums = (
        np.histogram(labelled.score, edges, weights=values)[0]
        for values in (
            None,
            labelled.score,
            labelled.label,
            curve(curve.predictor(labelled)),
        )
    )
    has_labels = n_labels > 0
    score, mean_label, calibrated = sums / np.where(has_labels, n_labels, np.nan)
    share_logged = np.histogram(data.pooled_rows.score, edges)[0] / len(
        data.pooled_rows
    )
    rows: list[Row] = []
    ylabel = "oracle label, or share of scores"
    figure, axes = make_panels(analysis.evidence_by_policy, "judge score", ylabel)
    for ax, checked in axes:
        scores, counts = checked.fresh.score, checked.draw_weights
        if not len(scores):
            scores, counts = checked.logged.score, checked.weights.hajek
        share = np.histogram(scores, edges, weights=counts)[0] / counts.sum()
        height_logged, height = scale.low + scale.width * np.stack(
            [share_logged, share]
        )
        ax.stairs(
            height_logged,
            edges,
            baseline=scale.low,
            fill=True,
            color=SOFT,
            alpha=0.4,
            label=f"scores of {', '.join(data.label_sources)}",
        )
        ax.stairs(height, edges, baseline=scale.low, label="scores of the policy")
        ax.plot(score[has_labels], calibrated[has_labels], label="calibration")
        ax.plot(score, mean_label, "o", ms=3, color=INK, label="mean label")
        rows += arrays.make_rows(
            policy=checked.policy,
            low=edges[:-1],
            high=edges[1:],
            share_logged=share_logged,
            share_policy=share,
            n_labels=n_labels,
            score=score,
            mean_label=mean_label,
            calibrated=calibrated,
        )
    return render_plot(
        "calibration",
        figure,
        rows,
        "Calibration of the judge's score, and the scores that it is used on",
        f"The curve from the judge's score to the oracle's label, fitted to {len(labelled):,} labels, and the scores "
        "that it is used on. A score overlap below 0.5 is refused, and an overlap below 0.85 is a caution.",
    )


def weights(checks: Sequence[GatedEvidence]) -> Plot:
    """Draw the share of the total weight in the largest weights, raw and calibrated."""
    rows: list[Row] = []
    for checked in checks:
        lines = {
            "raw": checked.weights.hajek,
            "calibrated on the score": checked.weights.calibrated,
        }
        for kind, values in lines.items():
            weight_shares = (
                np.append(0.0, np.cumsum(np.sort(values)[::-1])) / values.sum()
            )
            row_counts = np.linspace(0, len(values), _N_WEIGHT_CURVE_POINTS).astype(int)
            share = {
                "share_of_rows": row_counts / len(values),
                "share_of_weight": weight_shares[row_counts],
            }
            rows += arrays.make_rows(policy=checked.policy, weights=kind, **share)
    by_policy, xlabel = (
        grouped(rows, "policy"),
        "logged answers, largest weight first",
    )
    figure, axes = make_panels(by_policy, xlabel, "share of the total weight")
    for ax, panel_rows in axes:
        for kind, line in grouped(panel_rows, "weights").items():
            ax.plot(*read_columns(line, "share_of_rows", "share_of_weight"), label=kind)
        ax.axline((0, 0), slope=1, color=SOFT, lw=0.8, ls="--", label="equal weights")
        ax.xaxis.set_major_formatter(figure_kinds.PERCENT_FORMATTER)
        ax.yaxis.set_major_formatter(figure_kinds.PERCENT_FORMATTER)
    return render_plot(
        "weights",
        figure,
        rows,
        "Concentration of the importance weights",
        "Share of the total importance weight in the largest weights. The closer the curve is to the dashed line, the "
        "larger is the effective sample size. Raw weights are refused if it is below 30% of the answers.",
    )


# The grid

_GRID_SCOPE = "Over all policies and samples that are not refused. Dashed: weights calibrated on the score."
# By column: heading, label of the axis, caption
_GRID_TEXTS = {
    "rmse": (
        "Error by labels and sample size",
        "RMSE",
        f"Root mean square error of each estimator. {_GRID_SCOPE}",
    ),
    "coverage": (
        "Coverage of the 95% intervals",
        "coverage",
        "Share of the 95% intervals that contain the truth, with a binomial 95% band for the reported estimate. Samples "
        "hold up to half of the file, so they share answers. "
        f"{_GRID_SCOPE}",
    ),
    "interval_score": (
        "Interval score",
        "interval score",
        "Width of the 95% intervals plus 40 times the distance by which they miss the truth. Lower is better. "
        f"{_GRID_SCOPE}",
    ),
    "refused": (
        "Refusals",
        "share refused",
        "Share of the estimates that are refused, over all policies and samples.",
    ),
    "pairwise_accuracy": (
        "Pairs of policies in the true order",
        "pairs in order",
        "Share of the pairs of policies that an estimator puts in the true order, among pairs without a refused "
        "policy.",
    ),
}


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def grid_plots(rows: Sequence[Row], calibration: str) -> list[Plot]:
    """Draw the rows of grid.csv over all policies, for one calibration."""
    overall = {"calibration": calibration, "policy": ALL, "status": GIVEN}
    rows = [
        {**row, "refused": 1.0 - row["share"]}
        for row in rows
        if overall.items() <= row.items()
    ]
    names = [name for name in grouped(rows, "estimator") if name != HEADLINE_ESTIMATOR]
    color = {HEADLINE_ESTIMATOR: INK, **dict(zip(names, PALETTE * 2, strict=False))}
    rows_by_column = {
        column: [row for row in rows if row[column] is not None]
        for column in _GRID_TEXTS
    }
    return [
        _plot_column(column_rows, column, color)
        for column, column_rows in rows_by_column.items()
        if column_rows
    ]


def _plot_column(rows: Sequence[Row], column: str, color: Mapping[str, str]) -> Plot:
    heading, ylabel, caption = _GRID_TEXTS[column]
    by_title = {
        f"{size:,} prompts": size_rows
        for size, size_rows in grouped(rows, "size").items()
    }
    figure, axes = make_panels(by_title, "share of logged answers labelled", ylabel)
    for ax, panel_rows in axes:
        if column == "coverage":
            ax.axhline(0.95, color=SOFT, lw=0.8, ls="--")
        for (name, weights), line in grouped(
            panel_rows, "estimator", "weights"
        ).items():
            x, y, low, high = read_columns(
                line, "label_share", column, "coverage_low", "coverage_high"
            )
            ax.plot(
                x,
                y,
                marker="o",
                ms=3,
                color=color[name],
                lw=2 if name == HEADLINE_ESTIMATOR else 1,
                ls="--" if weights == "simcal" else "-",
                label=f"{name} {weights}".rstrip(),
            )
            if column == "coverage" and name == HEADLINE_ESTIMATOR:
                ax.fill_between(x, low, high, color=INK, alpha=0.12, lw=0)
        ax.set_xscale("log")
        figure_kinds.set_plain_ticks(ax.xaxis)
        ax.xaxis.set_major_formatter(figure_kinds.PERCENT_FORMATTER)
        if column in ("rmse", "interval_score"):
            ax.set_yscale("log")
            figure_kinds.set_plain_ticks(ax.yaxis)
        else:
            ax.yaxis.set_major_formatter(figure_kinds.PERCENT_FORMATTER)
    return render_plot(f"grid_{column}", figure, rows, heading, caption)
