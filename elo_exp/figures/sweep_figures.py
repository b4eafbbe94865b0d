"""Figures of the jobs of a sweep, and of the runs of a comparison.

A row of a sweep is one of sweep_summary.csv, of a comparison one of compare.csv.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.figures import figure_kinds, style
from elo_exp.figures.style import (
    Row,
    assign_colors,
    describe_cut,
    format_label,
    grouped,
    make_panels,
    render_plot,
    sort_models,
)
from elo_exp.records import Plot

_MAX_PANELS = 15
_MAX_ENTRANTS = 30


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def plots(rows: Sequence[Row], pair: Sequence[str] | None) -> list[Plot]:
    """Draw Elo by K, and by K and number of match orders.

    pair  two models whose gap is drawn; None for the two best
    """
    rated = [row for row in rows if row["rating"] is not None]
    figures = []
    if len(grouped(rated, "k")) > 1:
        figures.append(k_by_n_perms(rated))
        models = pair or sort_models(rated)[:2]
        if len(grouped(rated, "n_perms")) > 1 and len(models) == 2:
            figures.append(pair_by_k_and_n_perms(rated, *models))
    return figures


def k_by_n_perms(rows: Sequence[Row]) -> Plot:
    """Draw Elo by K, a panel for each n_perms, other setting and dimension."""
    rows = sorted(rows, key=lambda row: row["k"])
    by_title = {
        f"{dimension}\n{n:,} match orders {setting}": panel_rows
        for (n, setting, dimension), panel_rows in sorted(
            grouped(rows, "n_perms", "setting", "dimension").items(),
            key=lambda item: item[0][:2],
        )
    }
    shown_by_title = dict(list(by_title.items())[:_MAX_PANELS])
    models = sort_models(rows)
    color = assign_colors(models)
    figure, axes = make_panels(shown_by_title, "K", "mean Elo")
    for ax, panel_rows in axes:
        figure_kinds.draw_elo_by_k(ax, panel_rows, color)
    name = "{model} {n_perms:,} {setting}"
    return render_plot(
        "k_by_n_perms",
        figure,
        [{**row, "line": name.format(**row).rstrip()} for row in rows],
        "Elo by K and number of match orders",
        "Mean Elo by K, for each number of match orders and each other swept setting. Bars: 95% random error of the mean "
        "over match orders. Dotted: the value that Elo approaches with endlessly many matches."
        + describe_cut(shown_by_title, by_title, "panels")
        + describe_cut(color, models),
    )


def pair_by_k_and_n_perms(
    rows: Sequence[Row], first_model: str, second_model: str
) -> Plot:
    """Draw the gap between two models, zero in the middle of the colours.

    Boubdir et al. (2023), figures 3 and 4.
    """
    column_names = "dimension", "setting", "k", "n_perms"
    gaps: list[dict[str, Any]] = []
    for values, group in grouped(rows, *column_names).items():
        rating = {row["model"]: row["rating"] for row in group}
        if {first_model, second_model} <= rating.keys():
            gap = dict(zip(column_names, values, strict=True)) | {
                "first": first_model,
                "second": second_model,
            }
            gaps.append(
                gap | {"difference": rating[first_model] - rating[second_model]}
            )
    widest = max(abs(gap["difference"]) for gap in gaps) or 1.0
    ks, n_perms = (
        {value: f"{value:g}" for value in sorted(grouped(gaps, name))}
        for name in ("k", "n_perms")
    )
    gaps_by_title = {
        f"{d}\n{s}": panel_gaps
        for (d, s), panel_gaps in grouped(gaps, "dimension", "setting").items()
    }
    size = 0.8 + 0.5 * len(ks), 0.3 + 0.4 * len(n_perms)
    figure, axes = make_panels(gaps_by_title, "K", "match orders", size)
    for ax, panel_gaps in axes:
        cells = {(gap["n_perms"], gap["k"]): gap["difference"] for gap in panel_gaps}
        figure_kinds.draw_matrix(ax, cells, n_perms, ks, (-widest, widest), "{:+.0f}")
    return render_plot(
        "pair_by_k_and_n_perms",
        figure,
        gaps,
        f"Elo of {format_label(first_model)}\nminus {format_label(second_model)}, points",
        f"Mean Elo of {first_model} minus mean Elo of {second_model}. Blue: {first_model} is ahead. See the intervals of "
        "the jobs for significance.",
    )


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def estimates(rows: Sequence[Row], runs: Sequence[str]) -> Plot:
    """Draw the reported estimate of each policy in each oracle run."""
    rows = [{**row, "flag": "refused"} for row in rows]
    names = {row["policy"]: format_label(row["policy"]) for row in rows}
    size = figure_kinds.panel_size(len(names) * len(runs))
    figure, axes = make_panels({"": rows}, "mean oracle label", size=size)
    numbers = "value", "ci_low", "ci_high"
    for ax, panel_rows in axes:
        figure_kinds.draw_intervals(
            ax, panel_rows, names, "run", runs, line_column="policy", numbers=numbers
        )
    caption = (
        "Reported estimate of each policy in each run, with 95% intervals over prompts."
    )
    return render_plot(
        "estimates", figure, rows, "Mean oracle label of each policy", caption
    )


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def compare_plots(rows: Sequence[Row], runs: Sequence[str], method: str) -> list[Plot]:
    """Draw each entrant's shift, by `method`, from its rating in the first of these runs."""
    shifted_rows = [
        row for row in rows if row["method"] == method and row["shift"] is not None
    ]
    if not shifted_rows:
        return []
    models = sort_models(shifted_rows, "shift")
    names = {model: format_label(model) for model in models[:_MAX_ENTRANTS]}
    by_dimension, size = (
        grouped(shifted_rows, "dimension"),
        figure_kinds.panel_size(len(names)),
    )
    figure, axes = make_panels(by_dimension, "shift, points", size=size)
    for ax, panel_rows in axes:
        ax.axvline(0, color=style.SOFT, lw=0.8)
        numbers = "shift", "shift_ci_low", "shift_ci_high"
        figure_kinds.draw_intervals(
            ax, panel_rows, names, "run", runs[1:], numbers=numbers
        )
    p_values = [row["shift_p_holm"] for row in shifted_rows]
    n_significant = sum(p is not None and p <= ALPHA for p in p_values)
    caption = (
        "Shift of each rating from run 1, relative to the mean shift of the entrants that both runs rate. Bars: 95% "
        "interval, clustered by prompt. "
        f"{n_significant} of {len(shifted_rows)} shifts are significant (Holm, α = 0.05)."
        + describe_cut(names, models)
    )
    heading = "Shift of each rating from run 1"
    return [render_plot("rating_shifts", figure, shifted_rows, heading, caption)]
