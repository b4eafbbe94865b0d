"""Figures of the oracle experiment: estimates, calibration, weights and label budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from elo_exp.figures import kinds
from elo_exp.figures.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    SOFT,
    Array,
    Row,
    column,
    grouped,
    panels,
    saved,
    set_ticks,
    styled,
)
from elo_exp.oracle.data import Rows, Truth
from elo_exp.oracle.estimates import Analysis, LabelBudget
from elo_exp.oracle.gates import CAUTION, REFUSE, REPORT
from elo_exp.ratings.leaderboard import Z95
from elo_exp.records import Plot

_COLORS = {REPORT: BLUE, CAUTION: ORANGE}
_BINS = 20  # of scores
_POINTS = 200  # of a curve of weights
_LABELS = np.geomspace(20, 20_000, 80)
_SHARES = PercentFormatter(1, decimals=0, symbol=" %")


def plots(analysis: Analysis, truth: Mapping[str, Truth]) -> list[Plot]:
    """Draw what this analysis allows."""
    drawn = [
        estimates(analysis, truth),
        calibration(analysis),
        weights(analysis),
        label_budget(analysis),
    ]
    return [plot for plot in drawn if plot is not None]


# Estimates


@styled
def estimates(analysis: Analysis, truth: Mapping[str, Truth]) -> Plot:
    """Draw every estimate with its interval, and the truth where it is known."""
    policies = analysis.data.policies
    rows = [
        {**e.to_dict(), "truth": truth[e.policy].mean if e.policy in truth else None}
        for e in analysis.estimates
    ]
    estimators = {e.estimator: e.estimator for e in analysis.estimates}
    key = {
        name: {"color": color, "marker": "o", "lw": 1.8}
        for name, color in zip(("report", "caution"), _COLORS.values(), strict=True)
    }
    key |= {"truth, 95 %": {"color": GREEN, "lw": 6, "alpha": 0.35}} if truth else {}
    figure, axes = panels(
        policies,
        heading="Mean oracle label of each policy",
        key=key,
        beside=estimators,
        height=0.28 * len(estimators) + 0.2,
        sharex=True,
    )
    shown = [
        {**row, "flag": "refused" if row["value"] is None else None} for row in rows
    ]
    for ax, (policy, here) in zip(axes, grouped(shown, "policy").items(), strict=True):
        if policy in truth:
            error = Z95 * (truth[policy].std_error or 0.0)
            mean = truth[policy].mean
            ax.axvspan(mean - error, mean + error, color=GREEN, alpha=0.25, lw=0)
            ax.axvline(mean, color=GREEN, lw=1.2)
        kinds.intervals(ax, here, estimators, _color, of="estimator", value="value")
        ax.set_xlabel("mean oracle label")
    low, high = axes[0].get_xlim()
    axes[0].set_xlim(max(low, -0.2), min(high, 1.2))
    caption = (
        "Estimates of each policy's mean oracle label with 95 % intervals over prompts, the "
        "uncertainty of the calibration included. Refused: the data cannot support a number."
    )
    return saved("estimates", figure, rows, caption)


def _color(estimate: Row) -> str:
    return _COLORS.get(estimate["status"], SOFT)


# Calibration


@styled
def calibration(analysis: Analysis) -> Plot:
    """Draw the curve from score to label, and where the scores are that it is used on."""
    data = analysis.data
    labelled = data.logged[data.logged.labelled]
    figure, axes = panels(
        data.policies,
        heading="Calibration of the judge's score, and the scores it is used on",
        notes=[
            f"overlap of scores {c.overlap.affinity:.2f}"
            for c in analysis.checks.values()
        ],
        key={
            "calibration": {"color": INK},
            "mean label": {"color": INK, "marker": "o", "lw": 0},
            "scores, logged": {"color": SOFT, "lw": 7, "alpha": 0.4},
            "scores of the policy": {"color": BLUE},
            "range of the labels": {"color": ORANGE, "ls": ":"},
        },
        sharex=True,
    )
    rows: list[Row] = []
    for ax, policy in zip(axes, data.policies, strict=True):
        found = analysis.checks[policy].evidence
        if len(found.fresh):
            scores, counts = found.fresh.score, found.draw_weights
        else:
            scores, counts = found.logged.score, found.hajek
        here = list(_score_rows(policy, labelled, data.logged, scores, counts))
        rows += here
        _scores(ax, here)
        if analysis.options.calibration == "monotone":
            order = np.argsort(labelled.score)
            fitted = analysis.calibration.full(labelled)
            ax.plot(
                labelled.score[order], fitted[order], color=INK, drawstyle="steps-mid"
            )
    axes[0].set(
        ylabel="oracle label; share of scores", xlim=(-0.03, 1.03), ylim=(-0.02, 1.05)
    )
    caption = (
        f"Calibration from the judge's score to the oracle's label, from {len(labelled):,} "
        "labels, and the scores that it is used on. An overlap below 0.5 is refused, below "
        "0.85 it calls for caution."
    )
    return saved("calibration", figure, rows, caption)


def _score_rows(
    policy: str, labelled: Rows, logged: Rows, scores: Array, counts: Array
) -> Iterator[Row]:
    """By bins of the score: shares of the answers, and the labels."""
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    share_logged = np.histogram(logged.score, edges)[0] / len(logged)
    share_policy = np.histogram(scores, edges, weights=counts)[0] / counts.sum()
    of_bin = np.clip(
        np.searchsorted(edges, labelled.score, side="right") - 1, 0, _BINS - 1
    )
    for i in range(_BINS):
        score, label = labelled.score[of_bin == i], labelled.label[of_bin == i]
        yield {
            "policy": policy,
            "score": float(score.mean() if len(score) else edges[i : i + 2].mean()),
            "low": float(edges[i]),
            "high": float(edges[i + 1]),
            "share_logged": float(share_logged[i]),
            "share_policy": float(share_policy[i]),
            "n_labels": len(label),
            "mean_label": float(label.mean()) if len(label) else None,
        }


def _scores(ax: Axes, rows: Sequence[Row]) -> None:
    edges = np.append(column(rows, "low"), rows[-1]["high"])
    ax.stairs(
        column(rows, "share_logged"), edges, fill=True, color=SOFT, alpha=0.4, lw=0
    )
    ax.stairs(column(rows, "share_policy"), edges, color=BLUE, lw=1.6)
    known = [row for row in rows if row["n_labels"]]
    n_labels = column(known, "n_labels")
    scores = column(known, "score")
    ax.scatter(
        scores, column(known, "mean_label"), 8 + 60 * n_labels / n_labels.sum(), INK
    )
    for end in (scores.min(), scores.max()):
        ax.axvline(end, color=ORANGE, lw=1.2, ls=":")
    ax.set_xlabel("judge score")


# Weights


@styled
def weights(analysis: Analysis) -> Plot | None:
    """Draw the share of all weight that the largest weights hold, raw and calibrated."""
    checked = [checks.weights for checks in analysis.checks.values()]
    known = [w for w in checked if w is not None and w.ess_calibrated is not None]
    if not known:
        return None
    rows: list[Row] = []
    for found in known:
        policy = analysis.checks[found.policy].evidence
        rows += _weight_rows(found.policy, "raw", policy.hajek)
        rows += _weight_rows(found.policy, "calibrated", policy.calibrated)
    figure, axes = panels(
        [found.policy for found in known],
        heading="Concentration of the importance weights",
        notes=[
            f"effective sample {_percent(w.ess, w.n)}, calibrated {_percent(w.ess_calibrated, w.n)}"
            for w in known
        ],
        key={
            "raw": {"color": ORANGE},
            "calibrated on the score": {"color": BLUE},
            "equal weights": {"color": SOFT, "lw": 0.8, "ls": "--"},
        },
        sharex=True,
    )
    for ax, here in zip(axes, grouped(rows, "policy").values(), strict=True):
        ax.plot([0, 1], [0, 1], "--", color=SOFT, lw=0.8)
        for color, line in zip(
            (ORANGE, BLUE), grouped(here, "weights").values(), strict=True
        ):
            ax.plot(
                column(line, "share_of_rows"),
                column(line, "share_of_weight"),
                color=color,
            )
        ax.set_xlabel("logged answers, largest weight first")
    axes[0].set_ylabel("share of all weight")
    for axis in (axes[0].xaxis, axes[0].yaxis):
        axis.set_major_formatter(_SHARES)
    caption = (
        "Share of all importance weight that the largest weights hold; the dashed line is "
        "that of equal weights. Effective samples are in percent of the rows; below 30 % "
        "raw weights are refused."
    )
    return saved("weights", figure, rows, caption)


def _weight_rows(policy: str, kind: str, values: Array) -> list[Row]:
    held = np.concatenate([[0.0], np.cumsum(np.sort(values)[::-1])]) / values.sum()
    at = np.unique(np.linspace(0, len(values), _POINTS).round().astype(int))
    return [
        {
            "policy": policy,
            "weights": kind,
            "share_of_rows": float(i / len(values)),
            "share_of_weight": float(held[i]),
        }
        for i in at
    ]


def _percent(ess: float | None, n: int) -> str:
    return "–" if ess is None else f"{100 * ess / n:.3g} %"


# Labels


@styled
def label_budget(analysis: Analysis) -> Plot | None:
    """Draw the half width of the direct estimate's interval against the number of labels."""
    refused = {
        e.policy
        for e in analysis.estimates
        if (e.estimator, e.status) == ("direct", REFUSE)
    }
    shown = [
        budget
        for budget in analysis.budgets
        if budget.estimator == "direct"
        and budget.policy not in refused
        and budget.half_width > budget.half_width_at_best > 0
    ]
    if not shown:
        return None
    rows = [row for budget in shown for row in _budget_rows(budget)]
    figure, axes = panels(
        [budget.policy for budget in shown],
        heading="95 % interval of the direct estimate by oracle labels",
        notes=[f"±{b.half_width:.3f} with {b.n_labels:,} labels" for b in shown],
        key={"this run": {"color": ORANGE, "marker": "o", "lw": 0, "ms": 6}},
        sharex=True,
    )
    lines = grouped(rows, "policy").values()
    for ax, budget, line in zip(axes, shown, lines, strict=True):
        ax.plot(column(line, "n_labels"), column(line, "half_width"), color=BLUE)
        ax.plot([budget.n_labels], [budget.half_width], "o", ms=6, color=ORANGE)
        ax.set(xscale="log", yscale="log", xlabel="oracle labels")
    set_ticks(axes[0].xaxis, (50, 200, 1000, 5000))
    set_ticks(axes[0].yaxis, (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5), "±{x:g}")
    axes[0].set_ylabel("half width")
    caption = (
        "Half width of the 95 % interval of the direct estimate by the number of oracle "
        "labels of logged answers, everything else staying as it is. The number of prompts "
        "sets its limit."
    )
    return saved("label_budget", figure, rows, caption)


def _budget_rows(budget: LabelBudget) -> list[Row]:
    of_labels = (budget.half_width**2 - budget.half_width_at_best**2) * budget.n_labels
    return [
        {
            "policy": budget.policy,
            "n_labels": int(n),
            "half_width": math.sqrt(budget.half_width_at_best**2 + of_labels / n),
        }
        for n in sorted({*_LABELS.round().astype(int).tolist(), budget.n_labels})
    ]
