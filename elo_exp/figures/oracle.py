"""Figures of the oracle experiment: estimates, calibration, weights and label budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from elo_exp.figures import kinds
from elo_exp.figures.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    SOFT,
    Array,
    Panel,
    Row,
    column,
    grouped,
    plot,
)
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import Analysis, LabelBudget
from elo_exp.oracle.gates import CAUTION, REFUSE, REPORT
from elo_exp.ratings.leaderboard import Z95
from elo_exp.records import Plot

_COLORS = {REPORT: BLUE, CAUTION: ORANGE, "truth": GREEN}
_BINS = 20  # of scores
_POINTS = 200  # of a curve of weights
_LABELS = np.geomspace(20, 20_000, 80)


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


def estimates(analysis: Analysis, truth: Mapping[str, Truth]) -> Plot:
    """Draw every estimate with its interval, and the truth where it is known."""
    policies = analysis.data.policies
    rows = [
        {**e.to_dict(), "truth": truth[e.policy].mean if e.policy in truth else None}
        for e in analysis.estimates
    ]
    known = [
        _truth_row(policy, truth[policy]) for policy in policies if policy in truth
    ]
    shown = grouped([*known, *({**row, "flag": "refused"} for row in rows)], "policy")
    first = ["truth"] if known else []
    return kinds.intervals(
        "estimates",
        rows,
        [(policy, "", some) for policy, some in shown.items()],
        {name: name for name in [*first, *(e.estimator for e in analysis.estimates)]},
        of="estimator",
        value="value",
        color=lambda row: _COLORS.get(row["status"], SOFT),
        key={
            name: {"color": _COLORS[status], "marker": "o"}
            for name, status in (("report", REPORT), ("caution", CAUTION))
        },
        heading="Mean oracle label of each policy",
        xlabel="mean oracle label",
        caption="Estimates of each policy's mean oracle label with 95 % intervals over prompts, "
        "the uncertainty of the calibration included. Refused: the data cannot support a number.",
    )


def _truth_row(policy: str, truth: Truth) -> Row:
    error = Z95 * (truth.std_error or 0.0)
    return {
        "policy": policy,
        "estimator": "truth",
        "status": "truth",
        "value": truth.mean,
        "ci_low": truth.mean - error,
        "ci_high": truth.mean + error,
    }


# Calibration


def calibration(analysis: Analysis) -> Plot:
    """Draw the curve from score to label, and where the scores are that it is used on."""
    panels = [
        (
            policy,
            f"overlap of scores {checks.overlap.affinity:.2f}",
            _score_rows(policy, analysis),
        )
        for policy, checks in analysis.checks.items()
    ]
    n_labels = int(analysis.data.logged.labelled.sum())
    return plot(
        "calibration",
        None,
        panels,
        _scores,
        heading="Calibration of the judge's score, and the scores it is used on",
        key={
            "calibration": {"color": ORANGE},
            "mean label": {"color": INK, "marker": "o", "lw": 0},
            "scores, logged": {"color": SOFT, "lw": 7, "alpha": 0.4},
            "scores of the policy": {"color": BLUE},
        },
        xlabel="judge score",
        ylabel="oracle label; share of scores",
        caption=f"Calibration from the judge's score to the oracle's label, from {n_labels:,} "
        "labels, and the scores that it is used on. An overlap below 0.5 is refused, below 0.85 "
        "it calls for caution.",
        sharex=True,
    )


def _score_rows(policy: str, analysis: Analysis) -> list[Row]:
    """By bins of the score: shares of the answers, labels, and what they are calibrated to."""
    found, logged = analysis.checks[policy].evidence, analysis.data.logged
    if len(found.fresh):
        scores, counts = found.fresh.score, found.draw_weights
    else:
        scores, counts = found.logged.score, found.hajek
    labelled = logged[logged.labelled]
    fitted = analysis.calibration.full(labelled)
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    share_logged = np.histogram(logged.score, edges)[0] / len(logged)
    share_policy = np.histogram(scores, edges, weights=counts)[0] / counts.sum()
    of_bin = np.digitize(labelled.score, edges[1:-1])
    rows: list[Row] = []
    for i, low in enumerate(edges[:-1]):
        some = of_bin == i
        rows.append(
            {
                "policy": policy,
                "low": float(low),
                "high": float(edges[i + 1]),
                "share_logged": float(share_logged[i]),
                "share_policy": float(share_policy[i]),
                "n_labels": int(some.sum()),
                "score": _mean(labelled.score[some]),
                "mean_label": _mean(labelled.label[some]),
                "calibrated": _mean(fitted[some]),
            }
        )
    return rows


def _mean(values: Array) -> float | None:
    return float(values.mean()) if len(values) else None


def _scores(ax: Axes, rows: Sequence[Row]) -> None:
    edges = np.append(column(rows, "low"), 1.0)
    ax.stairs(column(rows, "share_logged"), edges, fill=True, color=SOFT, alpha=0.4)
    ax.stairs(column(rows, "share_policy"), edges, color=BLUE, lw=1.6)
    known = [row for row in rows if row["n_labels"]]
    score, label = column(known, "score"), column(known, "mean_label")
    ax.plot(score, column(known, "calibrated"), color=ORANGE)
    ax.scatter(score, label, 5 + np.sqrt(column(known, "n_labels")), INK, zorder=3)


# Weights


def weights(analysis: Analysis) -> Plot | None:
    """Draw the share of all weight that the largest weights hold, raw and calibrated."""
    panels: list[Panel] = []
    colors = ORANGE, BLUE
    for policy, checks in analysis.checks.items():
        found, evidence = checks.weights, checks.evidence
        if found is not None and found.ess_calibrated is not None:
            rows = _weight_rows(policy, "raw", evidence.hajek)
            rows += _weight_rows(policy, "calibrated", evidence.calibrated)
            sizes = (
                _percent(found.ess, found.n),
                _percent(found.ess_calibrated, found.n),
            )
            note = "effective sample {}, calibrated {}".format(*sizes)
            panels.append((policy, note, rows))
    if not panels:
        return None

    def draw(ax: Axes, some: Sequence[Row]) -> None:
        for line, color in zip(grouped(some, "weights").values(), colors, strict=True):
            x, y = column(line, "share_of_rows"), column(line, "share_of_weight")
            ax.plot(x, y, color=color)
        ax.plot([0, 1], [0, 1], "--", color=SOFT, lw=0.8)
        ax.xaxis.set_major_formatter(kinds.SHARES)
        ax.yaxis.set_major_formatter(kinds.SHARES)

    return plot(
        "weights",
        None,
        panels,
        draw,
        heading="Concentration of the importance weights",
        key={
            "raw": {"color": colors[0]},
            "calibrated on the score": {"color": colors[1]},
            "equal weights": {"color": SOFT, "lw": 0.8, "ls": "--"},
        },
        xlabel="logged answers, largest weight first",
        ylabel="share of all weight",
        caption="Share of all importance weight that the largest weights hold; the dashed line "
        "is that of equal weights. Effective samples are in percent of the rows; below 30 % raw "
        "weights are refused.",
        sharex=True,
    )


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


def label_budget(analysis: Analysis) -> Plot | None:
    """Draw the half width of the direct estimate's interval against the number of labels."""
    refused = {
        e.policy
        for e in analysis.estimates
        if (e.estimator, e.status) == ("direct", REFUSE)
    }
    panels = [
        (b.policy, f"±{b.half_width:.3f} with {b.n_labels:,} labels", _budget_rows(b))
        for b in analysis.budgets
        if b.estimator == "direct"
        and b.policy not in refused
        and b.half_width > b.half_width_at_best > 0
    ]
    if not panels:
        return None
    return plot(
        "label_budget",
        None,
        panels,
        lambda ax, some: kinds.curves(ax, some, "n_labels", ["half_width"]),
        heading="95 % interval of the direct estimate by oracle labels",
        key={"this run": kinds.THIS_RUN},
        xlabel="oracle labels",
        ylabel="half width",
        caption="Half width of the 95 % interval of the direct estimate by the number of oracle "
        "labels of logged answers, everything else staying as it is. The number of prompts sets "
        "its limit.",
        sharex=True,
    )


def _budget_rows(budget: LabelBudget) -> list[Row]:
    of_labels = (budget.half_width**2 - budget.half_width_at_best**2) * budget.n_labels
    return [
        {
            "policy": budget.policy,
            "n_labels": int(n),
            "half_width": math.sqrt(budget.half_width_at_best**2 + of_labels / n),
            "this_run": int(n) == budget.n_labels,
        }
        for n in sorted({*_LABELS.round().astype(int).tolist(), budget.n_labels})
    ]
