"""Figures of runs side by side: the jobs of a sweep, and the runs of a comparison.

A row of a sweep is one of sweep_summary.csv, of a comparison one of compare.csv.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.figures import kinds, style
from elo_exp.figures.style import (
    Row,
    best_first,
    colors,
    grouped,
    label,
    only_best,
    panels,
    plot,
)
from elo_exp.records import Plot

_MAX_PANELS = 15
_MAX_ROWS = 30  # entrants


@matplotlib.rc_context(style.STYLE)
def plots(rows: Sequence[Row], pair: Sequence[str] | None) -> list[Plot]:
    """Draw what was swept: Elo by K, and by K and number of permutations.

    pair  the two models whose gap is drawn; None: the two best
    """
    rated = [row for row in rows if row["rating"] is not None]
    drawn = []
    if len(grouped(rated, "k")) > 1:
        drawn.append(k_by_n_perms(rated))
        first_two = pair or best_first(rated)[:2]
        if len(grouped(rated, "n_perms")) > 1 and len(first_two) == 2:
            drawn.append(pair_by_k_and_n_perms(rated, *first_two))
    return drawn


def k_by_n_perms(rows: Sequence[Row]) -> Plot:
    """Draw Elo by K, a panel for each n_perms, other setting and dimension."""
    rows = sorted(rows, key=lambda row: row["k"])
    by = {
        f"{dimension}\n{n:,} permutations {setting}": some
        for (n, setting, dimension), some in sorted(
            grouped(rows, "n_perms", "setting", "dimension").items(),
            key=lambda item: item[0][:2],
        )
    }
    some_of = dict(list(by.items())[:_MAX_PANELS])
    models = best_first(rows)
    color = colors(models)
    figure, shown = panels(some_of, "K", "mean Elo")
    for ax, some in shown:
        kinds.elo_by_k(ax, some, color)
    name = "{model} {n_perms:,} {setting}"
    return plot(
        "k_by_n_perms",
        figure,
        [{**row, "line": name.format(**row).rstrip()} for row in rows],
        "Elo by K and number of permutations",
        "Mean Elo by K, for each number of permutations and each other setting that was swept. "
        "Bars: 95 % Monte Carlo error of averaging permutations. Dotted: the limit that Elo "
        "converges to." + only_best(some_of, by, "panels") + only_best(color, models),
    )


def pair_by_k_and_n_perms(rows: Sequence[Row], first: str, second: str) -> Plot:
    """Draw the gap between two models, zero in the middle of the colours.

    Boubdir et al. (2023), figures 3 and 4.
    """
    axes = "dimension", "setting", "k", "n_perms"
    gaps: list[dict[str, Any]] = []
    for at, some in grouped(rows, *axes).items():
        rating = {row["model"]: row["rating"] for row in some}
        if {first, second} <= rating.keys():
            gap = dict(zip(axes, at, strict=True)) | {"first": first, "second": second}
            gaps.append(gap | {"difference": rating[first] - rating[second]})
    widest = max(abs(gap["difference"]) for gap in gaps) or 1.0
    ks, n_perms = (
        {value: f"{value:g}" for value in sorted(grouped(gaps, name))}
        for name in ("k", "n_perms")
    )
    by = {
        f"{d}\n{s}": some
        for (d, s), some in grouped(gaps, "dimension", "setting").items()
    }
    size = 0.8 + 0.5 * len(ks), 0.3 + 0.4 * len(n_perms)
    figure, shown = panels(by, "K", "permutations", size)
    for ax, some in shown:
        cells = {(gap["n_perms"], gap["k"]): gap["difference"] for gap in some}
        kinds.matrix(ax, cells, n_perms, ks, (-widest, widest), "{:+.0f}")
    return plot(
        "pair_by_k_and_n_perms",
        figure,
        gaps,
        f"Elo of {label(first)}\nminus {label(second)}, points",
        f"Mean Elo of {first} minus that of {second}. Blue: {first} leads. The intervals of the "
        "jobs say whether a gap is significant.",
    )


@matplotlib.rc_context(style.STYLE)
def estimates(rows: Sequence[Row], runs: Sequence[str]) -> Plot:
    """Draw the headline of each policy in each of these oracle runs."""
    rows = [{**row, "flag": "refused"} for row in rows]
    names = {row["policy"]: label(row["policy"]) for row in rows}
    size = kinds.lines(len(names) * len(runs))
    figure, shown = panels({"": rows}, "mean oracle label", size=size)
    numbers = "value", "ci_low", "ci_high"
    for ax, some in shown:
        kinds.intervals(ax, some, names, "run", runs, of="policy", numbers=numbers)
    caption = "Headline of each policy in each run, with 95 % intervals over prompts."
    return plot("estimates", figure, rows, "Mean oracle label of each policy", caption)


@matplotlib.rc_context(style.STYLE)
def compare_plots(rows: Sequence[Row], runs: Sequence[str], method: str) -> list[Plot]:
    """Draw each entrant's shift, by `method`, from its rating in the first of these runs."""
    moved = [
        row for row in rows if row["method"] == method and row["shift"] is not None
    ]
    if not moved:
        return []
    models = best_first(moved, "shift")
    names = {model: label(model) for model in models[:_MAX_ROWS]}
    by, size = grouped(moved, "dimension"), kinds.lines(len(names))
    figure, shown = panels(by, "shift, points", size=size)
    for ax, some in shown:
        ax.axvline(0, color=style.SOFT, lw=0.8)
        numbers = "shift", "shift_ci_low", "shift_ci_high"
        kinds.intervals(ax, some, names, "run", runs[1:], numbers=numbers)
    p_values = [row["shift_p_holm"] for row in moved]
    n_significant = sum(p is not None and p <= ALPHA for p in p_values)
    caption = (
        "Shift of each entrant from its rating in the first run, relative to the mean of those "
        "rated in both. Bars: 95 % interval of the shift, prompt-clustered; a prompt of both runs "
        f"is one observation. {n_significant} of {len(moved)} shifts are significant (Holm, "
        "α = .05)." + only_best(names, models)
    )
    heading = "Shift of each rating from the first run"
    return [plot("rating_shifts", figure, moved, heading, caption)]
