"""Figures of ratings, win rates, fit, power and length, and of the order experiment: Elo by K and by match
order."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np

from elo_exp import arrays
from elo_exp.analysis.comparisons import ALPHA
from elo_exp.analysis.power import detectable_difference
from elo_exp.analysis.standings import ELO, Standings, trace_rows
from elo_exp.analysis.win_rates import clustered_interval, pair_shares
from elo_exp.figures import figure_kinds, style
from elo_exp.figures.style import (
    BLUE,
    SOFT,
    Row,
    assign_colors,
    describe_cut,
    format_label,
    grouped,
    make_panels,
    read_columns,
    render_plot,
    sort_models,
)
from elo_exp.ratings.leaderboard import Z95, Leaderboard
from elo_exp.records import Plot

_N_HISTOGRAM_BINS = 60
_INTERVAL_ENDS = ("ci_low", "ci_high")
# The rows of the figure have all entrants
MAX_DRAWN_ENTRANTS = 40
MAX_ENTRANTS_WITH_PAIRS = 12


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def plots(standings: Standings) -> list[Plot]:
    """Draw all figures that these standings allow: no order experiment without Elo, a part of it with one
    order."""
    figures = [
        ratings(standings),
        win_rates(standings),
        power(standings),
        predicted_and_observed(standings),
        length_effect(standings),
    ]
    if any(standings.elo_by_k.values()):
        figures.append(k_sensitivity(standings))
    rows = trace_rows(standings)
    if any(row["n_perms"] > 1 for row in rows):
        figures += [permutation_traces(standings, rows), order_effect(standings)]
    return [plot for plot in figures if plot is not None]


def rank_models(standings: Standings) -> list[str]:
    """Return the models by their mean rating of the primary method, or the end of it that is known;
    those without one last."""
    rows = _list_rating_rows(standings)
    primary_rows = [row for row in rows if row["method"] == rows[0]["method"]]
    ends = ("rating", *_INTERVAL_ENDS)
    located_rows = [
        {**row, "at": next((row[e] for e in ends if row[e] is not None), None)}
        for row in primary_rows
    ]
    if all(row["at"] is None for row in located_rows):  # a total order has ranks alone
        located_rows = [
            {**row, "at": row["rank"] and -row["rank"]} for row in located_rows
        ]
    return sort_models(located_rows, "at")


def elo_boards(standings: Standings) -> dict[str, Leaderboard]:
    """Return the leaderboards of this run's K, of the dimensions with a match."""
    return dict(standings.boards.get(ELO, {}))


# Ratings


def ratings(standings: Standings) -> Plot | None:
    """Draw the ratings of every method with their intervals, a panel for each dimension."""
    rows = _list_rating_rows(standings)
    if not any((row["rating"], row["lead_bound"]) != (None, None) for row in rows):
        return None
    models = rank_models(standings)
    names = {model: format_label(model) for model in models[:MAX_DRAWN_ENTRANTS]}
    methods = {row["method"]: row["interval"] or "none" for row in rows}
    size = figure_kinds.panel_size(len(names))
    figure, axes = make_panels(grouped(rows, "dimension"), "rating", size=size)
    for ax, panel_rows in axes:
        figure_kinds.draw_intervals(ax, panel_rows, names, "method", methods)
        if all(
            row[end] is None
            for row in panel_rows
            for end in ("rating", *_INTERVAL_ENDS)
        ):
            ax.set_xticks([])
    method_intervals = "; ".join(
        f"{name}: {interval}" for name, interval in methods.items()
    )
    is_open = any(r["rating"] is None and (r["ci_low"] or r["ci_high"]) for r in rows)
    arrows = (
        " An arrow means that the rating is not finite and lies beyond it."
        if is_open
        else ""
    )
    return render_plot(
        "ratings",
        figure,
        rows,
        "Ratings and their 95% intervals",
        f"Ratings, best entrant first. 95% intervals: {method_intervals}.{arrows}"
        + describe_cut(names, models),
    )


def _list_rating_rows(standings: Standings) -> list[dict[str, Any]]:
    """Return the leaderboards of every method as rows, the primary method first."""
    primary_method = standings.primary_method
    by_method = sorted(
        standings.boards.items(),
        key=lambda item: (item[0] == ELO, item[0] != primary_method),
    )
    boards = [item for _, method_boards in by_method for item in method_boards.items()]
    return [
        {
            "dimension": dimension,
            "method": board.label,
            "interval": board.interval,
            **rating.to_dict(),
        }
        for dimension, board in boards
        for rating in board.ratings
    ]


# Win rates


def win_rates(standings: Standings) -> Plot | None:
    """Draw how often the entrant in the row beats the entrant in the column, ties count half."""
    rows = []
    for win_rate in standings.win_rates:
        n = win_rate.a_wins + win_rate.b_wins + win_rate.ties
        rows.append(
            {**win_rate.to_dict(), "share": (win_rate.a_wins + win_rate.ties / 2) / n}
        )
    if not rows:
        return None
    models = rank_models(standings)
    across = {
        model: str(n) for n, model in enumerate(models[:MAX_DRAWN_ENTRANTS], start=1)
    }
    down = {model: f"{format_label(model)}  {n}" for model, n in across.items()}
    side = len(down) * (0.45 if len(down) <= 12 else 0.25)
    size = 1.5 + side, 0.3 + 0.75 * side
    by_dimension = grouped(rows, "dimension")
    figure, axes = make_panels(by_dimension, "entrant, by its number", size=size)
    for ax, panel_rows in axes:
        cells = {
            (row["entrant_a"], row["entrant_b"]): row["share"] for row in panel_rows
        }
        cells |= {(b, a): 1 - share for (a, b), share in cells.items()}
        figure_kinds.draw_matrix(ax, cells, down, across, (0, 1), "{:.0%}")
    return render_plot(
        "pairwise_winrates",
        figure,
        rows,
        "Win rate of the row over the column",
        "How often the entrant in the row beats the entrant in the column. A tie counts half."
        + describe_cut(down, models),
    )


# Fit: win rates as predicted by the ratings, and as observed


def predicted_and_observed(standings: Standings) -> Plot | None:
    """Draw each pair's win rate against what its ratings predict; none where they must be equal."""
    rows = []
    for dimension, diagnosis in standings.diagnoses.items():
        test = diagnosis.get("transitivity")  # of scores there is none
        if test is None or not test.df:
            continue
        win_shares = pair_shares(standings.battles[dimension])
        for pair in diagnosis["pair_residuals"]:
            share = win_shares[pair["model_a"], pair["model_b"]]
            share_statistics = share.share, share.std_error, share.n_prompts
            low, high = clustered_interval(*share_statistics) or (None, None)
            ends = {"predicted": pair["expected"], "ci_low": low, "ci_high": high}
            rows.append({**pair, **ends})
    if not rows:
        return None
    models = rank_models(standings)
    best_models = models[:MAX_ENTRANTS_WITH_PAIRS]
    by_dimension = grouped(rows, "dimension")
    figure, axes = make_panels(
        by_dimension, "win rate, predicted", "win rate, observed"
    )
    for ax, panel_rows in axes:
        pairs = [
            row
            for row in panel_rows
            if {row["model_a"], row["model_b"]} <= {*best_models}
        ]
        figure_kinds.draw_observed_shares(ax, pairs)
    return render_plot(
        "predicted_and_observed",
        figure,
        rows,
        "Do the ratings predict who wins?",
        "Each dot is a pair: its observed win rate against the rate that its Bradley-Terry ratings predict. Ties count "
        "half. Bars: 95% Wilson intervals, clustered by prompt. On the diagonal both agree."
        + describe_cut(best_models, models),
    )


# Power


def power(standings: Standings) -> Plot | None:
    """Draw the gap that a number of prompts has 80% power to detect, from this run's variance."""
    rows: list[dict[str, Any]] = []
    n_tests = 1
    for precision in standings.precision.get(standings.primary_method or "", ()):
        n_prompts, n_tests = precision.n_prompts, precision.n_tests
        if precision.sigma is not None and n_prompts:
            sizes = np.geomspace(min(20, n_prompts), max(2000, 3 * n_prompts), 30)
            n = np.unique(np.append(sizes.round().astype(int), n_prompts))
            rows += arrays.make_rows(
                dimension=precision.dimension,
                n_prompts=n,
                detectable=[detectable_difference(precision.sigma, i) for i in n],
                corrected=[
                    detectable_difference(precision.sigma, i, alpha=ALPHA / n_tests)
                    for i in n
                ],
                this_run=n == n_prompts,
            )
    if not rows:
        return None
    names = {
        "detectable": "one planned pair",
        "corrected": f"all {n_tests:,} pairs (Holm)",
    }
    figure, axes = make_panels(
        grouped(rows, "dimension"), "prompts", "rating gap, points"
    )
    for ax, panel_rows in axes:
        for name, series_label in names.items():
            ax.loglog(*read_columns(panel_rows, "n_prompts", name), label=series_label)
        this_run = [row["n_prompts"] for row in panel_rows if row["this_run"]]
        ax.axvline(this_run[0], color=SOFT, ls="--", label="this run")
        figure_kinds.set_plain_ticks(ax.xaxis)
        figure_kinds.set_plain_ticks(ax.yaxis)
    return render_plot(
        "power",
        figure,
        rows,
        "Smallest rating gap that a run can find",
        "The smallest true gap between two entrants that 4 of 5 runs find (80% power, two-sided test at 5%), from the "
        "variance between the prompts of this run.",
    )


# Length


def length_effect(standings: Standings) -> Plot | None:
    """Draw how often the longer answer wins, by the difference in length."""
    rows = []
    for diagnosis in standings.diagnoses.values():
        if "length" not in diagnosis:
            continue
        for tercile in diagnosis["length"].terciles:
            low, high = clustered_interval(
                tercile.win_rate, tercile.std_error, tercile.n_prompts
            ) or (None, None)
            rows.append({**tercile.to_dict(), "ci_low": low, "ci_high": high})
    if not rows:
        return None
    xlabel, by_dimension = (
        "difference in length, characters",
        grouped(rows, "dimension"),
    )
    figure, axes = make_panels(by_dimension, xlabel, "longer answer wins")
    for ax, terciles in axes:
        shortest, longest = read_columns(terciles, "shortest", "longest")
        win_rate, low, high = read_columns(terciles, "win_rate", "ci_low", "ci_high")
        middle = (shortest + longest) / 2
        ax.vlines(middle, low, high, color=BLUE)
        ax.plot(middle, win_rate, "o")
        ax.axhline(0.5, color=SOFT, lw=0.8, ls="--")
        ax.set(xlim=(0, None), ylim=(-0.03, 1.03))
        ax.yaxis.set_major_formatter(figure_kinds.PERCENT_FORMATTER)
    return render_plot(
        "length_effect",
        figure,
        rows,
        "Win rate of the longer answer",
        "Win rate of the longer answer by the difference in length, in thirds of all verdicts. Ties count half. Bars: 95% "
        "Wilson intervals, clustered by prompt. A longer answer may also be a better one.",
    )


# The order experiment. No figure of it shows how certain a rating is: the outcomes are the same in every
# order.


def k_sensitivity(standings: Standings) -> Plot:
    """Draw mean Elo against K, with the limit that it converges to as K grows."""
    rows = [
        {
            "dimension": dimension,
            "k": k,
            **rating.to_dict(),
            "elo_limit": standings.convergence[dimension].limit.get(rating.model),
        }
        for dimension, boards in standings.elo_by_k.items()
        for k, board in boards.items()
        for rating in board.ratings
    ]
    models = rank_models(standings)
    color = assign_colors(models)
    figure, axes = make_panels(grouped(rows, "dimension"), "K", "mean Elo")
    for ax, panel_rows in axes:
        figure_kinds.draw_elo_by_k(ax, panel_rows, color)
    return render_plot(
        "k_sensitivity",
        figure,
        rows,
        "Elo by K",
        f"Mean Elo by K. This run uses K = {standings.k:g}. Dotted: the limit that Elo approaches as K grows. There is no "
        "limit if an entrant won or lost every comparison. A small K understates gaps."
        + describe_cut(color, models),
    )


def permutation_traces(standings: Standings, rows: Sequence[Row]) -> Plot:
    """Draw the running mean of Elo over match orders, minus its final value."""
    n_perms = max(row["n_perms"] for row in rows)
    worst = max(row["ordering_error"] for row in rows if row["n_perms"] == n_perms)
    n = np.geomspace(1, n_perms)
    funnel = Z95 * worst * np.sqrt(n_perms / n)
    reach = 1.1 * np.interp(10, n, funnel) + 1.0
    models, by_dimension = rank_models(standings), grouped(rows, "dimension")
    color = assign_colors(models)
    figure, axes = make_panels(
        by_dimension, "match orders", "running − final mean, points"
    )
    for ax, panel_rows in axes:
        ax.fill_between(n, -funnel, funnel, color=SOFT, alpha=0.15, lw=0)
        traces = grouped(panel_rows, "model")
        for model, line_color in color.items():
            trace = traces.get(model, [])
            counts, means = read_columns(trace, "n_perms", "running_mean")
            ax.semilogx(
                counts, means - means[-1:], color=line_color, label=format_label(model)
            )
        ax.set(xlim=(1, n_perms), ylim=(-reach, reach))
        figure_kinds.set_plain_ticks(ax.xaxis)
    return render_plot(
        "permutation_traces",
        figure,
        rows,
        "Running mean of Elo over match orders",
        f"Running mean of Elo (K = {standings.k:g}) as match orders are added, minus its final "
        "value. Shaded: ± 1.96 random errors of the rating that moves most. After "
        f"{n_perms:,} match orders that error is {worst:.2f} points."
        + describe_cut(color, models),
    )


def order_effect(standings: Standings) -> Plot:
    """Draw a histogram of each entrant's Elo after every single match order."""
    rows: list[Row] = []
    models = rank_models(standings)
    color, xlabel = assign_colors(models), "Elo after one match order"
    boards = elo_boards(standings)
    figure, axes = make_panels(boards, xlabel, "match orders")
    for (ax, board), dimension in zip(axes, boards, strict=True):
        samples = np.asarray(board.samples)
        edges = np.histogram_bin_edges(samples, _N_HISTOGRAM_BINS)
        for model in sorted(board.models, key=models.index):
            n = np.histogram(samples[:, board.models.index(model)], edges)[0]
            first_bin, last_bin = np.flatnonzero(n)[[0, -1]]
            n, ends = n[first_bin : last_bin + 1], edges[first_bin : last_bin + 2]
            bin_columns = {"low": ends[:-1], "high": ends[1:], "n_perms": n}
            rows += arrays.make_rows(dimension=dimension, model=model, **bin_columns)
            if model in color:
                bar_style: Any = {"color": color[model], "label": format_label(model)}
                ax.stairs(n, ends, fill=True, alpha=0.75, **bar_style)
        ax.locator_params(axis="y", integer=True)
    return render_plot(
        "order_effect",
        figure,
        rows,
        xlabel,
        f"Elo after each single match order of the same outcomes at K = {standings.k:g}. The spread shows how much one "
        "arbitrary order would have moved the ratings. It says nothing about the entrants."
        + describe_cut(color, models),
    )
