"""Figures of the oracle experiment: estimates, the calibration and the scores it is used on, weights, label budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elo_exp.figures import canvas
from elo_exp.figures.canvas import Panel, panel_width, percents, row_span, span, ticks
from elo_exp.figures.lettering import length
from elo_exp.figures.names import labels
from elo_exp.figures.sheets import Sheet
from elo_exp.oracle.data import Rows, Truth
from elo_exp.oracle.estimates import Analysis, LabelBudget, PolicyEstimate
from elo_exp.oracle.gates import CAUTION, REFUSE, REPORT
from elo_exp.results import Z95, Plot
from elo_exp.statistics.likelihood import Array

PlotRows = list[dict[str, Any]]

_BLUE, _ORANGE, _GREEN = canvas.PALETTE[:3]
_COLORS = {REPORT: _BLUE, CAUTION: _ORANGE, REFUSE: canvas.GREY}
_BINS = 20  # of scores
_POINTS = 200  # of a curve of weights
_LABELS = np.geomspace(20, 20_000, 80)


def all_plots(analysis: Analysis, truth: Mapping[str, Truth]) -> list[Plot]:
    drawn = [
        estimates(analysis, truth),
        calibration(analysis),
        weights(analysis),
        label_budget(analysis),
    ]
    return [plot for plot in drawn if plot is not None]


# Estimates


def estimates(analysis: Analysis, truth: Mapping[str, Truth]) -> Plot:
    """Every estimate with its interval, and the truth where it is known; a refused one is a word."""
    rows = [
        {**e.to_dict(), "truth": truth[e.policy].mean if e.policy in truth else None}
        for e in analysis.estimates
    ]
    names = list(dict.fromkeys(e.estimator for e in analysis.estimates))
    sheet = Sheet(
        "What the oracle would say, on average",
        analysis.data.policies,
        width=panel_width(len(analysis.data.policies)),
        height=0.3 * len(names) + 0.1,
        left=max(length(name, 8) for name in names) + 0.12,
        shared_left=True,
        key=[
            ("report, 95 % over prompts", {"color": _BLUE, "lw": 2, "marker": "o", "ms": 5}),
            ("caution", {"color": _ORANGE, "lw": 2, "marker": "o", "ms": 5}),
            *([("truth, 95 %", {"color": _GREEN, "lw": 6, "alpha": 0.35})] if truth else []),
        ],
    )
    ends = [x for e in analysis.estimates for x in (e.ci_low, e.ci_high) if x is not None]
    low, high = span(
        [*ends, *(t.mean for p, t in truth.items() if p in analysis.data.policies)] or [0.0, 1.0]
    )
    low, high = max(low, -0.2), min(high, 1.2)
    for panel in sheet.panels:
        panel.heading(labels(analysis.data.policies)[panel.name], _used(analysis.of(panel.name)))
        panel.scale((low, high), row_span(len(names)))
        panel.rows(names)
        panel.x_axis(ticks(low, high), "mean oracle label")
        if panel.name in truth:
            _truth(panel, truth[panel.name], len(names))
        for e in analysis.of(panel.name):
            _estimate(panel, e, names.index(e.estimator))
    caption = (
        "Estimates of each policy's mean oracle label with 95 % over prompts, what the number of labels adds being "
        "among it. Refused: the data do not tell; the table says why."
    )
    return sheet.finish("estimates", rows, caption)


def _used(of_policy: Sequence[PolicyEstimate]) -> str:
    n_refused = sum(e.status == REFUSE for e in of_policy)
    return f"{n_refused} of {len(of_policy)} refused" if n_refused else ""


def _truth(panel: Panel, truth: Truth, n: int) -> None:
    error = Z95 * (truth.std_error or 0.0)
    around = [truth.mean - error, truth.mean + error]
    panel.shapes(
        [
            np.array(
                [[x, y] for x, y in zip([*around, *around[::-1]], [-0.6, -0.6, n, n], strict=True)]
            )
        ],
        _GREEN,
        alpha=0.25,
    )
    panel.segments([((truth.mean, 0), (truth.mean, 1))], _GREEN, 1.2, on="x")


def _estimate(panel: Panel, e: PolicyEstimate, y: int) -> None:
    if e.value is None or e.ci_low is None or e.ci_high is None:
        panel.write(0.5, y, "refused", on="y", size=7.5, color=canvas.PALE)
        return
    panel.segments([((e.ci_low, y), (e.ci_high, y))], _COLORS[e.status], 2)
    panel.dots([e.value], [y], _COLORS[e.status], 5)


# Calibration


def calibration(analysis: Analysis) -> Plot:
    """The curve from score to label with the mean labels, over the scores of the logged answers and of each policy."""
    data = analysis.data
    rows: PlotRows = []
    sheet = Sheet(
        "Whether the labels cover the scores that they are used on",
        data.policies,
        width=panel_width(len(data.policies)),
        height=2.3,
        left=0.55,
        shared_left=True,
        key=[
            ("calibration", {"color": canvas.INK, "lw": 1.6}),
            (
                "mean label of logged answers",
                {"lw": 0, "marker": "o", "ms": 5, "mfc": canvas.INK, "mew": 0},
            ),
            ("scores: logged", {"color": canvas.GREY, "lw": 7}),
            ("of the policy", {"color": _BLUE, "lw": 2}),
            ("ends of the labelled", {"color": _ORANGE, "lw": 1.4, "ls": ":"}),
        ],
    )
    labelled = data.logged[data.logged.labelled]
    for panel in sheet.panels:
        overlap = analysis.checks[panel.name].overlap
        of_policy = analysis.checks[panel.name].evidence
        has_draws = len(of_policy.fresh) > 0
        scores = of_policy.fresh.score if has_draws else of_policy.logged.score
        counts = of_policy.draw_weights if has_draws else of_policy.hajek
        found = list(_score_rows(panel.name, labelled, data.logged, scores, counts))
        rows += found
        panel.heading(
            labels(data.policies)[panel.name], f"overlap of scores {overlap.affinity:.2f}"
        )
        panel.scale((-0.03, 1.03), (-0.02, 1.05))
        panel.x_axis(ticks(0, 1), "judge score")
        panel.y_axis(ticks(0, 1), "oracle label; share of scores")
        _scores(panel, found)
        curve = analysis.calibration.full.fit
        if analysis.options.calibration == "monotone":
            panel.line(curve.knots, curve.levels, canvas.INK, lw=1.6)
        known = [row for row in found if row["mean_label"] is not None]
        sizes = [3 + 4 * math.sqrt(row["n_labels"] / len(labelled)) for row in known]
        for row, size in zip(known, sizes, strict=True):
            panel.dots([row["score"]], [row["mean_label"]], canvas.INK, size)
    caption = (
        f"The calibration from the judge's score to the oracle's label, from {len(labelled):,} labels, and where the "
        "scores are that it is used on. Below 0.5 an overlap is refused, below 0.85 it calls for caution."
    )
    return sheet.finish("calibration", rows, caption)


def _score_rows(policy: str, labelled: Rows, logged: Rows, scores: Array, counts: Array) -> Any:
    """By bins of the score: shares of the answers, and the labels."""
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    share_logged = np.histogram(logged.score, edges)[0] / len(logged)
    share_policy = np.histogram(scores, edges, weights=counts)[0] / counts.sum()
    of_bin = np.clip(np.searchsorted(edges, labelled.score, side="right") - 1, 0, _BINS - 1)
    n_labels = np.bincount(of_bin, minlength=_BINS)
    for i in range(_BINS):
        here = of_bin == i
        yield {
            "policy": policy,
            "score": float(labelled.score[here].mean())
            if here.any()
            else float(edges[i : i + 2].mean()),
            "low": float(edges[i]),
            "high": float(edges[i + 1]),
            "share_logged": float(share_logged[i]),
            "share_policy": float(share_policy[i]),
            "n_labels": int(n_labels[i]),
            "mean_label": float(labelled.label[here].mean()) if here.any() else None,
        }


def _scores(panel: Panel, rows: PlotRows) -> None:
    bars = [
        np.array(
            [
                [r["low"], 0],
                [r["high"], 0],
                [r["high"], r["share_logged"]],
                [r["low"], r["share_logged"]],
            ]
        )
        for r in rows
    ]
    panel.shapes(bars, canvas.GREY, alpha=0.5)
    steps = [(x, r["share_policy"]) for r in rows for x in (r["low"], r["high"])]
    panel.line([x for x, _ in steps], [y for _, y in steps], _BLUE, lw=1.6)
    ends = [r["score"] for r in rows if r["n_labels"]]
    panel.segments([((x, 0), (x, 1)) for x in (min(ends), max(ends))], _ORANGE, 1.2, on="x", ls=":")


# Weights


def weights(analysis: Analysis) -> Plot | None:
    """What share of all weight the largest weights hold, raw and calibrated."""
    data = analysis.data
    checked = [checks.weights for checks in analysis.checks.values()]
    known = [w for w in checked if w is not None and w.ess_calibrated is not None]
    names = [w.policy for w in known]
    if not names:
        return None
    rows: PlotRows = []
    sheet = Sheet(
        "How few logged answers the weights rest on",
        names,
        width=panel_width(len(names)),
        height=2.1,
        left=0.55,
        shared_left=True,
        key=[
            ("raw weights", {"color": _ORANGE, "lw": 1.8}),
            ("calibrated on the score", {"color": _BLUE, "lw": 1.8}),
            ("equal weights", {"color": canvas.PALE, "lw": 1, "ls": "--"}),
        ],
    )
    for panel, found in zip(sheet.panels, known, strict=True):
        of_policy = analysis.checks[panel.name].evidence
        panel.heading(
            labels(data.policies)[panel.name],
            f"ESS {_share(found.ess, found.n)}, calibrated {_share(found.ess_calibrated, found.n)}",
        )
        panel.scale((0, 1), (0, 1))
        panel.x_axis(percents(0, 1), "logged answers, the heaviest first")
        panel.y_axis(percents(0, 1), "of all weight")
        panel.line([0, 1], [0, 1], canvas.PALE, lw=1, ls="--")
        for kind, values, color in (
            ("raw", of_policy.hajek, _ORANGE),
            ("calibrated", of_policy.calibrated, _BLUE),
        ):
            held = np.concatenate([[0.0], np.cumsum(np.sort(values)[::-1])]) / values.sum()
            at = np.unique(np.linspace(0, len(values), _POINTS).round().astype(int))
            panel.line(at / len(values), held[at], color, lw=1.8)
            rows += [
                {
                    "policy": panel.name,
                    "weights": kind,
                    "share_of_rows": float(i / len(values)),
                    "share_of_weight": float(held[i]),
                }
                for i in at
            ]
    caption = (
        "What share of all importance weight the heaviest logged answers hold. The closer to the dashed line, the more "
        "of the rows count. ESS: the effective sample, of the rows; raw weights with less than 30 % are refused."
    )
    return sheet.finish("weights", rows, caption)


def _share(ess: float | None, n: int) -> str:
    return "-" if ess is None else f"{100 * ess / n:.3g}%"


# Labels


def label_budget(analysis: Analysis) -> Plot | None:
    """How narrow more labels make the interval of the direct estimate."""
    refused = {(e.policy, e.estimator) for e in analysis.estimates if e.status == REFUSE}
    shown = [
        b
        for b in analysis.budgets
        if b.estimator == "direct" and (b.policy, b.estimator) not in refused
    ]
    shown = [b for b in shown if b.half_width > b.half_width_at_best > 0]
    if not shown:
        return None
    rows = [row for budget in shown for row in _budget_rows(budget)]
    low, high = min(row["half_width"] for row in rows), max(row["half_width"] for row in rows)
    sheet = Sheet(
        "What more labels would tell",
        [b.policy for b in shown],
        width=panel_width(len(shown)),
        height=2.1,
        left=0.65,
        shared_left=True,
        key=[("this run", {"lw": 0, "marker": "o", "ms": 7, "mfc": _ORANGE, "mew": 0})],
    )
    for panel, budget in zip(sheet.panels, shown, strict=True):
        line = [row for row in rows if row["policy"] == panel.name]
        called = labels(analysis.data.policies)[panel.name]
        panel.heading(called, f"±{budget.half_width:.3f} with {budget.n_labels:,} labels")
        panel.scale((_LABELS[0], _LABELS[-1]), (low / 1.1, high * 1.1), log_x=True, log_y=True)
        panel.x_axis({x: f"{x:,}" for x in (50, 200, 1000, 5000)}, "oracle labels")
        panel.y_axis(
            {
                x: f"±{x:g}"
                for x in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
                if low / 1.1 <= x <= high * 1.1
            },
            "95 %",
        )
        panel.line(
            [row["n_labels"] for row in line], [row["half_width"] for row in line], _BLUE, lw=1.8
        )
        panel.dots([budget.n_labels], [budget.half_width], _ORANGE, 7)
    caption = (
        "How narrow the 95 % interval of the direct estimate becomes with more labels of logged answers, everything "
        "else staying as it is: at best as narrow as the number of prompts allows."
    )
    return sheet.finish("label_budget", rows, caption)


def _budget_rows(budget: LabelBudget) -> PlotRows:
    of_labels = (budget.half_width**2 - budget.half_width_at_best**2) * budget.n_labels
    return [
        {
            "policy": budget.policy,
            "n_labels": int(n),
            "half_width": math.sqrt(budget.half_width_at_best**2 + of_labels / n),
        }
        for n in sorted({*_LABELS.round().astype(int).tolist(), budget.n_labels})
    ]
