"""Figures of who is better, and of how far that holds: ratings, win rates, fit, power, length."""

from typing import Any

import matplotlib
import numpy as np

from elo_exp import arrays
from elo_exp.analysis.comparisons import ALPHA
from elo_exp.analysis.power import detectable
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.win_rates import clustered_interval, shares
from elo_exp.figures import kinds, style
from elo_exp.figures.style import (
    BLUE,
    SOFT,
    best_first,
    columns,
    grouped,
    label,
    only_best,
    panels,
    plot,
)
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Plot

MAX_ROWS = 40  # entrants of a figure; all are in its rows
MAX_FITTED = 12  # entrants whose pairs are drawn


@matplotlib.rc_context(style.STYLE)
def plots(standings: Standings) -> list[Plot]:
    """Draw what these standings allow."""
    drawn = [
        ratings(standings),
        win_rates(standings),
        power(standings),
        predicted_and_observed(standings),
        length_effect(standings),
    ]
    return [plot for plot in drawn if plot is not None]


def best(standings: Standings) -> list[str]:
    """Return the models by their mean rating of the primary method; those without one last."""
    rows = _rating_rows(standings)
    return best_first(row for row in rows if row["method"] == rows[0]["method"])


def elo_boards(standings: Standings) -> dict[str, Leaderboard]:
    """Return the leaderboards of this run's K, of the dimensions with a match."""
    return {name: by_k[standings.k] for name, by_k in standings.elo.items() if by_k}


# Ratings


def ratings(standings: Standings) -> Plot | None:
    """Draw the ratings of every method with their intervals, a panel for each dimension."""
    rows = _rating_rows(standings)
    if not any(row["rating"] is not None for row in rows):
        return None
    models = best(standings)
    names = {model: label(model) for model in models[:MAX_ROWS]}
    methods = {row["method"]: row["interval"] or "none" for row in rows}
    size = kinds.lines(len(names))
    figure, shown = panels(grouped(rows, "dimension"), "rating", size=size)
    for ax, some in shown:
        kinds.intervals(ax, some, names, "method", methods)
    words = "; ".join(f"{name}: {interval}" for name, interval in methods.items())
    return plot(
        "ratings",
        figure,
        rows,
        "Ratings and their 95 % intervals",
        f"Ratings, best first. 95 % intervals: {words}." + only_best(names, models),
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
