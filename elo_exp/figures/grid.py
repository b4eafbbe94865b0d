"""Figures of a grid of estimators: errors, intervals, refusals and rankings by the share of labels.

A row is one of grid.csv.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib

from elo_exp.figures import kinds, style
from elo_exp.figures.style import (
    INK,
    PALETTE,
    SOFT,
    Row,
    columns,
    grouped,
    panels,
    plot,
)
from elo_exp.oracle.estimates import HEADLINE
from elo_exp.records import Plot

_OVER = "Over all policies and draws that are not refused; dashed: weights calibrated on the score."
_FIGURES = {  # by column: heading, label of the axis, caption
    "rmse": (
        "Error by labels and sample size",
        "RMSE",
        f"Root mean square error of each estimator. {_OVER}",
    ),
    "coverage": (
        "Coverage of the 95 % intervals",
        "coverage",
        "Share of the 95 % intervals that hold the truth, and for the headline the binomial 95 % "
        "band of as many draws; samples of up to half of the file, whose draws share its answers. "
        f"{_OVER}",
    ),
    "interval_score": (
        "Interval score",
        "interval score",
        "Width of the 95 % intervals plus 40 times how far they miss the truth: lower is better. "
        f"{_OVER}",
    ),
    "refused": (
        "Refusals",
        "share refused",
        "Share of the estimates that are refused, over all policies and draws.",
    ),
    "pairwise_accuracy": (
        "Pairs of policies in the true order",
        "pairs in order",
        "Share of the pairs of policies that an estimator puts in the true order, of those in "
        "which neither is refused.",
    ),
}


@matplotlib.rc_context(style.STYLE)
def plots(rows: Sequence[Row]) -> list[Plot]:
    """Draw these rows, those over all policies of what is given, by one calibration."""
    rows = [{**row, "refused": 1.0 - row["share"]} for row in rows]
    return [_lines(rows, column) for column in _FIGURES if _known(rows, column)]


def _known(rows: Sequence[Row], column: str) -> list[Row]:
    return [row for row in rows if row[column] is not None]


def _lines(rows: Sequence[Row], column: str) -> Plot:
    shown = _known(rows, column)
    heading, ylabel, caption = _FIGURES[column]
    by = {f"{size:,} prompts": some for size, some in grouped(shown, "size").items()}
    names = [name for name in grouped(rows, "estimator") if name != HEADLINE]
    color = {HEADLINE: INK, **dict(zip(names, PALETTE * 2, strict=False))}
    figure, axes = panels(by, "share of logged answers labelled", ylabel)
    for ax, some in axes:
        if column == "coverage":
            ax.axhline(0.95, color=SOFT, lw=0.8, ls="--")
        for (name, weights), line in grouped(some, "estimator", "weights").items():
            x, y, low, high = columns(
                line, "label_share", column, "coverage_low", "coverage_high"
            )
            look = {"color": color[name], "lw": 2 if name == HEADLINE else 1}
            look["ls"] = "--" if weights == "simcal" else "-"
            ax.plot(x, y, marker="o", ms=3, label=f"{name} {weights}".rstrip(), **look)
            if column == "coverage" and name == HEADLINE:
                ax.fill_between(x, low, high, color=INK, alpha=0.12, lw=0)
        ax.set_xscale("log")
        kinds.plain_ticks(ax.xaxis)
        ax.xaxis.set_major_formatter(kinds.SHARES)
        if column in ("rmse", "interval_score"):
            ax.set_yscale("log")
            kinds.plain_ticks(ax.yaxis)
        else:
            ax.yaxis.set_major_formatter(kinds.SHARES)
    return plot(f"grid_{column}", figure, shown, heading, caption)
