"""Figures of who is better, and of how far that holds: ratings, win rates, fit, power, length."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from scipy.special import expit

from elo_exp.analysis.power import Precision, detectable
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.win_rates import Share, clustered_interval, shares
from elo_exp.figures import kinds
from elo_exp.figures.style import (
    BLUE,
    MAX_COLORED,
    ORANGE,
    SOFT,
    Panel,
    Row,
    colors,
    column,
    grouped,
    labels,
    only_best,
    plot,
)
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Plot

MAX_ROWS = 40  # entrants of a figure; all are in its rows
_NO_SHARE = Share(n_prompts=0, n_games=0, share=0.0, std_error=None)


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


def leaderboards(standings: Standings) -> dict[str, list[Leaderboard]]:
    """Return the leaderboards of every method by dimension, that of the primary method first."""
    first = standings.primary_method
    methods = sorted(standings.companions, key=lambda method: method != first)
    found = {
        dimension: [standings.companions[method].get(dimension) for method in methods]
        + [standings.primary(dimension)]
        for dimension in standings.dimensions
    }
    known = {dimension: [b for b in boards if b] for dimension, boards in found.items()}
    return {dimension: boards for dimension, boards in known.items() if boards}


def best_first(standings: Standings) -> list[str]:
    """Return the models by their mean rating of the primary method; those without one last."""
    found: dict[str, list[float]] = {model: [] for model in standings.models}
    for primary, *_ in leaderboards(standings).values():
        for rating in primary.ratings:
            found[rating.model] += [] if rating.rating is None else [rating.rating]

    def place(model: str) -> tuple[float, str]:
        return -statistics.fmean(found[model]) if found[model] else math.inf, model

    return sorted(standings.models, key=place)


def panels(standings: Standings, data: Mapping[str, Any]) -> list[Panel]:
    """Return a panel for each dimension that has data, which names how many battles it has."""
    found = []
    for dimension, some in data.items():
        battles = standings.battles[dimension]
        n_prompts = battles.n_prompts() if battles.names_prompts() else 0
        prompts = f"{n_prompts:,} prompts, " if n_prompts else ""
        found.append((dimension, f"{prompts}{len(battles):,} battles", some))
    return found


def interval(board: Leaderboard) -> str:
    """Name the kind of interval of these ratings, for a caption."""
    is_known = any(rating.ci_low is not None for rating in board.ratings)
    return f"95 %, {board.interval}" if is_known else "no interval"


# Ratings


def ratings(standings: Standings) -> Plot | None:
    """Draw the ratings of every method with their intervals, a panel for each dimension."""
    boards = leaderboards(standings)
    columns = ("model", "rating", "ci_low", "ci_high", "ordering_error", "rank", "flag")
    rows: list[Row] = [
        {
            "dimension": dimension,
            "method": board.label,
            **{name: getattr(rating, name) for name in columns},
        }
        for dimension, some in boards.items()
        for board in some
        for rating in board.ratings
    ]
    if not any(row["rating"] is not None for row in rows):
        return None
    models = best_first(standings)[:MAX_ROWS]
    shown = [row for row in rows if row["model"] in models]
    color = colors(models if len(models) <= MAX_COLORED else ())
    methods = {board.label: board for some in boards.values() for board in some}
    named = "; ".join(f"{label}: {interval(board)}" for label, board in methods.items())
    return kinds.intervals(
        "ratings",
        rows,
        panels(standings, grouped(shown, "dimension")),
        {model: labels(standings.models)[model] for model in models},
        by="method",
        color=lambda row: color.get(row["model"], BLUE),
        heading="Ratings and their 95 % intervals",
        xlabel="rating",
        caption=f"Ratings, best first. {named}.{_significant(standings)}"
        + only_best(len(models), len(standings.models)),
    )


def _significant(standings: Standings) -> str:
    pairs = standings.differences.get(standings.primary_method or "", ())
    known = [pair.significant for pair in pairs if pair.significant is not None]
    if not known:
        return ""
    return (
        f" {sum(known):,} of {len(known):,} pairwise differences are significant "
        "(Holm, α = .05)."
    )


# Win rates


def win_rates(standings: Standings) -> Plot | None:
    """Draw how often the row beats the column, ties counting half."""
    rows = _win_rate_rows(standings)
    if not rows:
        return None
    models = best_first(standings)[:MAX_ROWS]
    called = labels(standings.models)
    names = [called[model] for model in models]
    cells: dict[str, list[kinds.Cell]] = {}
    for row in rows:
        a, b = called[row["entrant_a"]], called[row["entrant_b"]]
        share, is_bold = row["share"], bool(row["significant"])
        both = [(a, b, share, is_bold), (b, a, 1 - share, is_bold)]
        cells.setdefault(row["dimension"], []).extend(both)
    return kinds.matrices(
        "pairwise_winrates",
        rows,
        panels(standings, cells),
        names,
        names,
        limits=(0, 1),
        text="{:.0%}".format,
        heading="Win rate of the row over the column",
        caption="How often the row beats the column, a tie counting half. Bold: the ratings "
        "differ significantly (Holm, α = .05)."
        + only_best(len(models), len(standings.models)),
    )


def _win_rate_rows(standings: Standings) -> list[Row]:
    pairs = standings.differences.get(standings.primary_method or "", ())
    significant = {
        (d.dimension, *sorted((d.higher, d.lower))): d.significant for d in pairs
    }
    return [
        {
            "dimension": dimension,
            "entrant_a": a,
            "entrant_b": b,
            **dataclasses.asdict(share),
            "significant": significant.get((dimension, a, b)),
        }
        for dimension, battles in standings.battles.items()
        for (a, b), share in shares(battles, use="consistent", ties="half").items()
    ]


# Fit: win rates as predicted by the ratings, and as observed


def predicted_and_observed(standings: Standings) -> Plot | None:
    """Draw each pair's win rate against what its ratings predict; none where they must be equal."""
    rows = [row for d in standings.dimensions for row in _fit_rows(standings, d)]
    if not rows:
        return None

    def draw(ax: Axes, some: Sequence[Row]) -> None:
        observed = "observed_decisive"
        kinds.scatter(ax, some, "expected", observed, ORANGE, hollow=True)
        kinds.scatter(ax, some, "expected", "observed", BLUE)

    return plot(
        "predicted_and_observed",
        rows,
        panels(standings, grouped(rows, "dimension")),
        draw,
        heading="Do the ratings predict who wins?",
        key={
            "ties count half": {"color": BLUE, "marker": "o", "lw": 0},
            "ties left out": {"color": ORANGE, "marker": "o", "mfc": "white", "lw": 0},
        },
        xlabel="favourite wins, predicted",
        ylabel="favourite wins, observed",
        caption="Observed win rate of the favourite of each pair against the rate that "
        "Bradley-Terry predicts. The ratings count a tie as half a win, so decisive verdicts "
        f"alone lie further from one half. Bars, where {kinds.MAX_BARS} pairs or fewer: 95 % "
        "Wilson intervals, prompt-clustered.",
        sharex=True,
    )


def _fit_rows(standings: Standings, dimension: str) -> list[Row]:
    found, battles = standings.diagnoses.get(dimension), standings.battles[dimension]
    if not found or not found["transitivity"]["df"]:
        return []  # each pair has a rating difference of its own
    kinds_of_ties = {
        "observed": shares(battles, use="both", ties="half"),
        "observed_decisive": shares(battles, use="both", ties="drop"),
    }
    rows: list[Row] = []
    for pair in found["pair_residuals"]:
        names = pair["model_a"], pair["model_b"]
        is_first = pair["expected"] >= 0.5
        row: dict[str, Any] = {
            "dimension": dimension,
            "favourite": names[not is_first],
            "other": names[is_first],
            "expected": max(pair["expected"], 1 - pair["expected"]),
        }
        for name, by_pair in kinds_of_ties.items():
            share = by_pair.get(names, _NO_SHARE)
            observed = share.share if is_first else 1 - share.share
            low, high = share_interval(observed, share.std_error, share.n_prompts)
            row |= {
                name: observed if share.n_games else None,
                f"{name}_ci_low": low,
                f"{name}_ci_high": high,
                f"{name}_std_error": share.std_error,
                f"{name}_n_games": share.n_games,
            }
        rows.append(row)
    return rows


def share_interval(
    share: float, std_error: float | None, n_prompts: int
) -> tuple[float | None, float | None]:
    """Return the ends of a share's 95 % interval, prompt-clustered and within [0, 1], if known."""
    return clustered_interval(share, std_error, n_prompts) or (None, None)


# Power


def power(standings: Standings) -> Plot | None:
    """Draw the gap that a number of prompts has 80 % power to detect, from this run's variance."""
    drawn = ("detectable", "corrected")
    precisions = standings.precision.get(standings.primary_method or "", ())
    found = [
        (p.dimension, f"this run: {p.n_prompts:,} prompts", _power_rows(p))
        for p in precisions
        if p.sigma is not None and p.n_prompts
    ]
    if not found:
        return None
    n_tests = max(p.n_tests for p in precisions)
    return plot(
        "power",
        None,
        found,
        lambda ax, some: kinds.curves(ax, some, "n_prompts", drawn),
        heading="Rating gap that is detected with 80 % power",
        key={
            "one pair": {"color": BLUE},
            f"any of {n_tests:,} (Holm)": {"color": BLUE, "ls": "--"},
            "this run": kinds.THIS_RUN,
        },
        xlabel="prompts",
        ylabel="rating gap, points",
        caption="Rating gap between two entrants that a two-sided test at 5 % detects with 80 % "
        "power, from this run's variance between prompts.",
        sharex=True,
        x="n_prompts",
        y=drawn,
        curves=True,
    )


def _power_rows(precision: Precision) -> list[Row]:
    n_prompts, sigma = precision.n_prompts or 0, precision.sigma or 0.0
    sizes = np.geomspace(min(20, n_prompts), max(2000, 3 * n_prompts), 30)
    return [
        {
            "dimension": precision.dimension,
            "n_prompts": n,
            "detectable": detectable(sigma, n),
            "corrected": detectable(sigma, n, n_tests=precision.n_tests),
            "this_run": n == n_prompts,
        }
        for n in sorted({n_prompts, *sizes.round().astype(int).tolist()})
    ]


# Length


def length_effect(standings: Standings) -> Plot | None:
    """Draw how often the longer response wins by how much longer it is, and the fitted curve."""
    found: list[Panel] = []
    for dimension, diagnosis in standings.diagnoses.items():
        length = diagnosis.get("length")
        if length and length["terciles"]:
            effect = length["effect"]
            note = f"{effect['n_prompts']:,} prompts, {effect['n_games']:,} verdicts"
            some = [_length_row(tercile, effect) for tercile in length["terciles"]]
            found.append((dimension, note, some))
    if not found:
        return None
    return plot(
        "length_effect",
        None,
        found,
        _by_length,
        heading="Win rate of the longer response",
        key={
            "all verdicts, in three parts by length": {"color": BLUE, "marker": "o"},
            "between equally rated entrants (fit)": {"color": ORANGE},
        },
        xlabel="difference in length, characters",
        ylabel="longer response wins",
        caption="Win rate of the longer response, a tie counting half, by how much longer it is. "
        "Points: all verdicts in three parts, 95 % Wilson intervals, prompt-clustered. Curve: "
        "logistic fit between equally rated entrants, 95 % band, prompt-clustered.",
    )


def _length_row(tercile: Row, effect: Row) -> Row:
    share = tercile["win_rate"], tercile["std_error"], tercile["n_prompts"]
    low, high = share_interval(*share)
    fit = {name: effect[name] for name in ("scale", "effect", "ci_low", "ci_high")}
    return {**tercile, "win_rate_ci_low": low, "win_rate_ci_high": high, **fit}


def _by_length(ax: Axes, rows: Sequence[Row]) -> None:
    fit = rows[0]
    x = np.linspace(0, max(row["longest"] for row in rows), 60)
    if fit["effect"] is not None:
        strength = np.tanh(x / fit["scale"])
        ax.plot(x, expit(fit["effect"] * strength), color=ORANGE)
        if fit["ci_low"] is not None:
            low, high = (expit(fit[end] * strength) for end in ("ci_low", "ci_high"))
            ax.fill_between(x, low, high, color=ORANGE, alpha=0.2, lw=0)
    wins, low, high, shortest, longest = (
        column(rows, name)
        for name in (
            "win_rate",
            "win_rate_ci_low",
            "win_rate_ci_high",
            "shortest",
            "longest",
        )
    )
    middle, half = (shortest + longest) / 2, (longest - shortest) / 2
    ax.errorbar(middle, wins, (wins - low, high - wins), half, fmt="o", color=BLUE)
    ax.axhline(0.5, color=SOFT, lw=0.8, ls=kinds.DASHED)
    ax.set(xlim=(0, None), ylim=(-0.03, 1.03))
    ax.yaxis.set_major_formatter(kinds.SHARES)
