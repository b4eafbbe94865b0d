"""Figures of who is better, and of how far that holds: ratings, win rates, fit, power, length; and of the
order experiment: Elo by K, and over permutations of the same battles."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np

from elo_exp import arrays
from elo_exp.analysis.comparisons import ALPHA
from elo_exp.analysis.power import detectable
from elo_exp.analysis.standings import Standings, trace_rows
from elo_exp.analysis.win_rates import clustered_interval, shares
from elo_exp.figures import kinds, style
from elo_exp.figures.style import (
    BLUE,
    SOFT,
    Row,
    best_first,
    colors,
    columns,
    grouped,
    label,
    only_best,
    panels,
    plot,
)
from elo_exp.ratings.leaderboard import Z95, Leaderboard
from elo_exp.records import Plot

_BINS = 60  # of a histogram, over all entrants of a dimension
_ENDS = ("ci_low", "ci_high")
MAX_ROWS = 40  # entrants of a figure; all are in its rows
MAX_FITTED = 12  # entrants whose pairs are drawn


@matplotlib.rc_context(style.STYLE)
def plots(standings: Standings) -> list[Plot]:
    """Draw what these standings allow: of the order experiment nothing without Elo, less where there
    is one order."""
    drawn = [
        ratings(standings),
        win_rates(standings),
        power(standings),
        predicted_and_observed(standings),
        length_effect(standings),
    ]
    if any(standings.elo.values()):
        drawn.append(k_sensitivity(standings))
    rows = trace_rows(standings)
    if any(row["n_perms"] > 1 for row in rows):
        drawn += [permutation_traces(standings, rows), order_effect(standings)]
    return [plot for plot in drawn if plot is not None]


def best(standings: Standings) -> list[str]:
    """Return the models by their mean rating of the primary method, or the end of it that is known;
    those without one last."""
    rows = _rating_rows(standings)
    first = [row for row in rows if row["method"] == rows[0]["method"]]
    ends = ("rating", *_ENDS)
    known = [
        {**row, "at": next((row[e] for e in ends if row[e] is not None), None)}
        for row in first
    ]
    if all(row["at"] is None for row in known):  # a total order has ranks alone
        known = [{**row, "at": row["rank"] and -row["rank"]} for row in known]
    return best_first(known, "at")


def elo_boards(standings: Standings) -> dict[str, Leaderboard]:
    """Return the leaderboards of this run's K, of the dimensions with a match."""
    return {name: by_k[standings.k] for name, by_k in standings.elo.items() if by_k}


# Ratings


def ratings(standings: Standings) -> Plot | None:
    """Draw the ratings of every method with their intervals, a panel for each dimension."""
    rows = _rating_rows(standings)
    if not any((row["rating"], row["lead_bound"]) != (None, None) for row in rows):
        return None
    models = best(standings)
    names = {model: label(model) for model in models[:MAX_ROWS]}
    methods = {row["method"]: row["interval"] or "none" for row in rows}
    size = kinds.lines(len(names))
    figure, shown = panels(grouped(rows, "dimension"), "rating", size=size)
    for ax, some in shown:
        kinds.intervals(ax, some, names, "method", methods)
        if all(row[end] is None for row in some for end in ("rating", *_ENDS)):
            ax.set_xticks([])
    words = "; ".join(f"{name}: {interval}" for name, interval in methods.items())
    is_open = any(r["rating"] is None and (r["ci_low"] or r["ci_high"]) for r in rows)
    arrows = (
        " An arrow: the rating is not finite, and is beyond this." if is_open else ""
    )
    return plot(
        "ratings",
        figure,
        rows,
        "Ratings and their 95 % intervals",
        f"Ratings, best first. 95 % intervals: {words}.{arrows}"
        + only_best(names, models),
    )


def _rating_rows(standings: Standings) -> list[dict[str, Any]]:
    """The leaderboards of every method as rows, those of the primary method first."""
    first = standings.primary_method
    by_method = sorted(standings.companions.items(), key=lambda item: item[0] != first)
    boards = [item for _, some in by_method for item in some.items()]
    return [
        {
            "dimension": dimension,
            "method": board.label,
            "interval": board.interval,
            **rating.to_dict(),
        }
        for dimension, board in [*boards, *elo_boards(standings).items()]
        for rating in board.ratings
    ]


# Win rates


def win_rates(standings: Standings) -> Plot | None:
    """Draw how often the row beats the column, ties counting half."""
    rows = []
    for found in standings.win_rates:
        n = found.a_wins + found.b_wins + found.ties
        rows.append({**found.to_dict(), "share": (found.a_wins + found.ties / 2) / n})
    if not rows:
        return None
    models = best(standings)
    across = {model: str(n) for n, model in enumerate(models[:MAX_ROWS], start=1)}
    down = {model: f"{label(model)}  {n}" for model, n in across.items()}
    side = len(down) * (0.45 if len(down) <= 12 else 0.25)
    size = 1.5 + side, 0.3 + 0.75 * side
    by = grouped(rows, "dimension")
    figure, shown = panels(by, "entrant, by its number", size=size)
    for ax, some in shown:
        cells = {(row["entrant_a"], row["entrant_b"]): row["share"] for row in some}
        cells |= {(b, a): 1 - share for (a, b), share in cells.items()}
        kinds.matrix(ax, cells, down, across, (0, 1), "{:.0%}")
    return plot(
        "pairwise_winrates",
        figure,
        rows,
        "Win rate of the row over the column",
        "How often the row beats the column, a tie counting half."
        + only_best(down, models),
    )


# Fit: win rates as predicted by the ratings, and as observed


def predicted_and_observed(standings: Standings) -> Plot | None:
    """Draw each pair's win rate against what its ratings predict; none where they must be equal."""
    rows = []
    for dimension, found in standings.diagnoses.items():
        if not found["transitivity"]["df"]:
            continue
        won = shares(standings.battles[dimension])
        for pair in found["pair_residuals"]:
            share = won[pair["model_a"], pair["model_b"]]
            of_share = share.share, share.std_error, share.n_prompts
            low, high = clustered_interval(*of_share) or (None, None)
            ends = {"predicted": pair["expected"], "ci_low": low, "ci_high": high}
            rows.append({**pair, **ends})
    if not rows:
        return None
    models = best(standings)
    few = models[:MAX_FITTED]
    by = grouped(rows, "dimension")
    figure, shown = panels(by, "win rate, predicted", "win rate, observed")
    for ax, some in shown:
        pairs = [row for row in some if {row["model_a"], row["model_b"]} <= {*few}]
        kinds.observed(ax, pairs)
    return plot(
        "predicted_and_observed",
        figure,
        rows,
        "Do the ratings predict who wins?",
        "Observed win rate of each pair, a tie counting half, against the rate that Bradley-Terry "
        "predicts. Bars: 95 % Wilson intervals, prompt-clustered."
        + only_best(few, models),
    )


# Power


def power(standings: Standings) -> Plot | None:
    """Draw the gap that a number of prompts has 80 % power to detect, from this run's variance."""
    rows: list[dict[str, Any]] = []
    n_tests = 1
    for found in standings.precision.get(standings.primary_method or "", ()):
        n_prompts, n_tests = found.n_prompts, found.n_tests
        if found.sigma is not None and n_prompts:
            sizes = np.geomspace(min(20, n_prompts), max(2000, 3 * n_prompts), 30)
            n = np.unique(np.append(sizes.round().astype(int), n_prompts))
            rows += arrays.rows(
                dimension=found.dimension,
                n_prompts=n,
                detectable=[detectable(found.sigma, i) for i in n],
                corrected=[
                    detectable(found.sigma, i, alpha=ALPHA / n_tests) for i in n
                ],
                this_run=n == n_prompts,
            )
    if not rows:
        return None
    names = {"detectable": "one pair", "corrected": f"any of {n_tests:,} (Holm)"}
    figure, shown = panels(grouped(rows, "dimension"), "prompts", "rating gap, points")
    for ax, some in shown:
        for name, words in names.items():
            ax.loglog(*columns(some, "n_prompts", name), label=words)
        this_run = [row["n_prompts"] for row in some if row["this_run"]]
        ax.axvline(this_run[0], color=SOFT, ls="--", label="this run")
        kinds.plain_ticks(ax.xaxis)
        kinds.plain_ticks(ax.yaxis)
    return plot(
        "power",
        figure,
        rows,
        "Rating gap that is detected with 80 % power",
        "Rating gap between two entrants that a two-sided test at 5 % detects with 80 % power, "
        "from this run's variance between prompts.",
    )


# Length


def length_effect(standings: Standings) -> Plot | None:
    """Draw how often the longer response wins by how much longer it is."""
    rows = []
    for diagnosis in standings.diagnoses.values():
        for part in diagnosis.get("length", {}).get("terciles", ()):
            share = part["win_rate"], part["std_error"], part["n_prompts"]
            low, high = clustered_interval(*share) or (None, None)
            rows.append({**part, "ci_low": low, "ci_high": high})
    if not rows:
        return None
    xlabel, by = "difference in length, characters", grouped(rows, "dimension")
    figure, shown = panels(by, xlabel, "longer response wins")
    for ax, parts in shown:
        shortest, longest = columns(parts, "shortest", "longest")
        won, low, high = columns(parts, "win_rate", "ci_low", "ci_high")
        middle = (shortest + longest) / 2
        ax.vlines(middle, low, high, color=BLUE)
        ax.plot(middle, won, "o")
        ax.axhline(0.5, color=SOFT, lw=0.8, ls="--")
        ax.set(xlim=(0, None), ylim=(-0.03, 1.03))
        ax.yaxis.set_major_formatter(kinds.SHARES)
    return plot(
        "length_effect",
        figure,
        rows,
        "Win rate of the longer response",
        "Win rate of the longer response, a tie counting half, by how much longer it is: all "
        "verdicts in three parts, with 95 % Wilson intervals, prompt-clustered. A longer response "
        "may also be a better one.",
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
        for dimension, boards in standings.elo.items()
        for k, board in boards.items()
        for rating in board.ratings
    ]
    models = best(standings)
    color = colors(models)
    figure, shown = panels(grouped(rows, "dimension"), "K", "mean Elo")
    for ax, some in shown:
        kinds.elo_by_k(ax, some, color)
    return plot(
        "k_sensitivity",
        figure,
        rows,
        "Elo by K",
        f"Mean Elo by K; this run uses K = {standings.k:g}. Dotted: the limit that Elo converges "
        "to as K grows; there is none where an entrant only wins or only loses. A small K "
        "understates gaps." + only_best(color, models),
    )


def permutation_traces(standings: Standings, rows: Sequence[Row]) -> Plot:
    """Draw the running mean of Elo, minus its final value, as permutations are added."""
    n_perms = max(row["n_perms"] for row in rows)
    worst = max(row["ordering_error"] for row in rows if row["n_perms"] == n_perms)
    n = np.geomspace(1, n_perms)
    funnel = Z95 * worst * np.sqrt(n_perms / n)
    reach = 1.1 * np.interp(10, n, funnel) + 1.0
    models, by = best(standings), grouped(rows, "dimension")
    color = colors(models)
    figure, shown = panels(by, "permutations", "running − final mean, points")
    for ax, some in shown:
        ax.fill_between(n, -funnel, funnel, color=SOFT, alpha=0.15, lw=0)
        traces = grouped(some, "model")
        for model, look in color.items():
            trace = traces.get(model, [])
            counts, means = columns(trace, "n_perms", "running_mean")
            ax.semilogx(counts, means - means[-1:], color=look, label=label(model))
        ax.set(xlim=(1, n_perms), ylim=(-reach, reach))
        kinds.plain_ticks(ax.xaxis)
    return plot(
        "permutation_traces",
        figure,
        rows,
        "Running mean of Elo over permutations",
        f"Running mean of Elo (K = {standings.k:g}) as permutations are added, minus its final "
        "value. Shaded: ± 1.96 Monte Carlo errors of the rating that moves most. After "
        f"{n_perms:,} permutations that error is {worst:.2f} points."
        + only_best(color, models),
    )


def order_effect(standings: Standings) -> Plot:
    """Draw a histogram of each entrant's Elo after every single permutation."""
    rows: list[Row] = []
    models = best(standings)
    color, words = colors(models), "Elo after one permutation"
    boards = elo_boards(standings)
    figure, shown = panels(boards, words, "permutations")
    for (ax, board), dimension in zip(shown, boards, strict=True):
        samples = np.asarray(board.samples)
        edges = np.histogram_bin_edges(samples, _BINS)
        for model in sorted(board.models, key=models.index):
            n = np.histogram(samples[:, board.models.index(model)], edges)[0]
            first, last = np.flatnonzero(n)[[0, -1]]
            n, ends = n[first : last + 1], edges[first : last + 2]
            of_bins = {"low": ends[:-1], "high": ends[1:], "n_perms": n}
            rows += arrays.rows(dimension=dimension, model=model, **of_bins)
            if model in color:
                look: Any = {"color": color[model], "label": label(model)}
                ax.stairs(n, ends, fill=True, alpha=0.75, **look)
        ax.locator_params(axis="y", integer=True)
    return plot(
        "order_effect",
        figure,
        rows,
        words,
        f"Elo after each single permutation of the same outcomes at K = {standings.k:g}. The "
        "spread is what one arbitrary order would have added; it is no uncertainty about the "
        "entrants." + only_best(color, models),
    )
