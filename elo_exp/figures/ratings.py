"""Figures of who is better: ratings, win rates, fit and power."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from elo_exp.analysis import win_rates as shares_of
from elo_exp.analysis.power import detectable
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.win_rates import clustered_interval
from elo_exp.figures import kinds
from elo_exp.figures.style import (
    BLUE,
    INK,
    MAX_COLORED,
    ORANGE,
    Row,
    colors,
    column,
    end_labels,
    grouped,
    labels,
    only_best,
    panels,
    saved,
    set_ticks,
    styled,
)
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Plot
from elo_exp.report.findings import companion

MAX_ROWS = 40  # entrants of a figure; all are in its rows
_FEW = (
    12  # entrants; with more, marks are smaller and the cells of a matrix carry no text
)
_BEYOND = 0.6  # of the span of all ratings: an interval that reaches further is cut off
_TICKS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


def plots(standings: Standings) -> list[Plot]:
    """Draw what these standings allow."""
    drawn = [
        ratings(standings),
        win_rates(standings),
        power(standings),
        predicted_and_observed(standings),
    ]
    return [plot for plot in drawn if plot is not None]


def leaderboards(standings: Standings) -> dict[str, list[Leaderboard]]:
    """Return the leaderboards of every method by dimension, that of the primary method first."""
    first = companion(standings)
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


def sample(standings: Standings, dimension: str) -> str:
    """Name how much data a panel rests on."""
    battles = standings.battles[dimension]
    prompts = battles.n_prompts() if battles.names_prompts() else 0
    known = [f"{prompts:,} prompts"] if prompts else []
    return ", ".join([*known, f"{len(battles):,} battles"])


def interval(board: Leaderboard) -> str:
    """Name the kind of interval of these ratings, for a caption."""
    is_known = any(rating.ci_low is not None for rating in board.ratings)
    return f"95 %, {board.interval}" if is_known else "no interval"


# Ratings


@styled
def ratings(standings: Standings) -> Plot | None:
    """Draw the ratings of every method with their intervals, a panel for each dimension."""
    boards = leaderboards(standings)
    rows: list[Row] = [
        {
            "dimension": dimension,
            "model": r.model,
            "method": board.label,
            **{name: getattr(r, name) for name in ("rating", "ci_low", "ci_high")},
            **{name: getattr(r, name) for name in ("ordering_error", "rank", "flag")},
        }
        for dimension in standings.dimensions
        for board in boards.get(dimension, ())
        for r in board.ratings
    ]
    if not any(row["rating"] is not None for row in rows):
        return None
    models = best_first(standings)[:MAX_ROWS]
    shown = [row for row in rows if row["model"] in models]
    called = labels(standings.models)
    names = {model: called[model] for model in models}
    color = (
        colors(models) if len(models) <= MAX_COLORED else dict.fromkeys(models, BLUE)
    )
    methods = {board.label: board for some in boards.values() for board in some}
    is_dense = len(models) > _FEW
    figure, axes = panels(
        list(boards),
        heading="Ratings and their 95 % intervals",
        notes=[sample(standings, dimension) for dimension in boards],
        key=kinds.series_key(methods),
        beside=names.values(),
        height=(0.19 if is_dense else 0.2 + 0.09 * len(methods)) * len(models) + 0.2,
        sharex=True,
    )
    size = 3.5 if is_dense else 5.5
    for ax, here in zip(axes, grouped(shown, "dimension").values(), strict=True):
        kinds.intervals(
            ax, here, names, lambda r: color[r["model"]], by="method", size=size
        )
        ax.set_xlabel("rating")
    axes[0].set_xlim(*_limits(shown))
    caption = f"Ratings, best first. {'; '.join(f'{n}: {interval(b)}' for n, b in methods.items())}."
    caption += _significant(standings) + only_best(len(models), len(standings.models))
    return saved("ratings", figure, rows, caption)


def _limits(rows: Sequence[Row]) -> tuple[float, float]:
    """The ends of the axis: all ratings, and of their intervals as much as leaves them apart."""
    points = column((row for row in rows if row["rating"] is not None), "rating")
    beyond = _BEYOND * max(float(np.ptp(points)), 20.0)
    low = max(np.nanmin([*points, *column(rows, "ci_low")]), points.min() - beyond)
    high = min(np.nanmax([*points, *column(rows, "ci_high")]), points.max() + beyond)
    margin = 0.04 * (high - low) + 1.0
    return float(low - margin), float(high + margin)


def _significant(standings: Standings) -> str:
    pairs = standings.differences.get(companion(standings) or "", ())
    known = [pair for pair in pairs if pair.significant is not None]
    n = sum(bool(pair.significant) for pair in known)
    if not known:
        return ""
    return f" {n:,} of {len(known):,} pairwise differences are significant (Holm, α = .05)."


# Win rates


@styled
def win_rates(standings: Standings) -> Plot | None:
    """Draw how often the row beats the column, ties counting half."""
    rows = _win_rate_rows(standings)
    if not rows:
        return None
    models = best_first(standings)[:MAX_ROWS]
    called = [labels(standings.models)[model] for model in models]
    has_text = len(models) <= _FEW
    side = 0.55 if has_text else 0.19
    figure, axes = panels(
        standings.dimensions,
        heading="Win rate of the row over the column, %",
        notes=[sample(standings, dimension) for dimension in standings.dimensions],
        beside=called,
        width=max(side * len(models), 1.6),
        height=max(0.75 * side * len(models), 0.7) + 0.05 * max(map(len, called)),
    )
    for ax, dimension in zip(axes, standings.dimensions, strict=True):
        values = np.full((len(models), len(models)), np.nan)
        bold = np.zeros(values.shape, dtype=bool)
        for row in rows:
            pair = row["entrant_a"], row["entrant_b"]
            if row["dimension"] == dimension and {*pair} <= {*models}:
                a, b = map(models.index, pair)
                values[a, b], values[b, a] = row["win_share_a"], 1 - row["win_share_a"]
                bold[a, b] = bold[b, a] = bool(row["significant"])
        text = (lambda share: f"{100 * share:.0f}") if has_text else None
        kinds.matrix(ax, values, text, called, called, limits=(0, 1), bold=bold)
        kinds.slanted(ax)
    caption = "How often the row beats the column, a tie counting half."
    if has_text and any(row["significant"] for row in rows):
        caption += " Bold: the ratings differ significantly (Holm, α = .05)."
    caption += only_best(len(models), len(standings.models))
    return saved("pairwise_winrates", figure, rows, caption)


def _win_rate_rows(standings: Standings) -> list[Row]:
    pairs = standings.differences.get(companion(standings) or "", ())
    significant = {
        (d.dimension, *sorted((d.higher, d.lower))): d.significant for d in pairs
    }
    share = {
        (dimension, *pair): found
        for dimension, battles in standings.battles.items()
        for pair, found in shares_of.shares(
            battles, use="consistent", ties="half"
        ).items()
    }
    rows: list[Row] = []
    for rate in standings.win_rates:
        pair = rate.dimension, rate.entrant_a, rate.entrant_b
        rows.append(
            {
                **rate.to_dict(),
                "n": share[pair].n_games,
                "n_prompts": share[pair].n_prompts,
                "win_share_a": share[pair].share,
                "std_error": share[pair].std_error,
                "significant": significant.get(pair),
            }
        )
    return rows


# Fit: win rates as predicted by the ratings, and as observed


@styled
def predicted_and_observed(standings: Standings) -> Plot | None:
    """Draw each pair's win rate against what its ratings predict; none where they must be equal."""
    rows = [row for d in standings.dimensions for row in _fit_rows(standings, d)]
    if not rows:
        return None
    by = grouped(rows, "dimension")
    figure, axes = panels(
        list(by),
        heading="Do the ratings predict who wins?",
        notes=[
            f"{len(some):,} pairs, {sum(row['n_games'] for row in some):,} verdicts"
            for some in by.values()
        ],
        key={
            "ties count half": {"color": BLUE, "marker": "o", "lw": 0},
            "ties left out": {"color": ORANGE, "marker": "o", "mfc": "white", "lw": 0},
        },
        width=2.7,
        sharex=True,
    )
    for ax, some in zip(axes, by.values(), strict=True):
        decisive = [row for row in some if row["observed_decisive"] is not None]
        kinds.scatter(
            ax, decisive, "expected", "observed_decisive", ORANGE, hollow=True
        )
        kinds.scatter(ax, some, "expected", "observed", BLUE)
    kinds.diagonal(axes, x="favourite wins, predicted", y="favourite wins, observed")
    has_bars = any(len(some) <= kinds.MAX_BARS for some in by.values())
    caption = (
        "Observed win rate of the favourite of each pair against the rate that Bradley-Terry "
        "predicts. The ratings count a tie as half a win, so decisive verdicts alone lie further "
        "from one half."
    )
    caption += " Bars: 95 % Wilson intervals, prompt-clustered." if has_bars else ""
    return saved("predicted_and_observed", figure, rows, caption)


def _fit_rows(standings: Standings, dimension: str) -> list[Row]:
    found, battles = standings.diagnoses.get(dimension), standings.battles[dimension]
    if (
        not found or not found["transitivity"]["df"]
    ):  # each pair has a rating difference of its own
        return []
    every = shares_of.shares(battles, use="both", ties="half")
    decisive = shares_of.shares(battles, use="both", ties="drop")
    rows: list[Row] = []
    for pair in found["pair_residuals"]:
        names = pair["model_a"], pair["model_b"]
        is_favourite = pair["expected"] >= 0.5
        rows.append(
            {
                "dimension": dimension,
                "favourite": names[not is_favourite],
                "other": names[is_favourite],
                "expected": max(pair["expected"], 1 - pair["expected"]),
                **_observed("", every[names], is_favourite=is_favourite),
                **_observed(
                    "_decisive", decisive.get(names), is_favourite=is_favourite
                ),
            }
        )
    return rows


def _observed(suffix: str, share: shares_of.Share | None, *, is_favourite: bool) -> Row:
    """One pair's observed share, seen from the favourite."""
    observed = (
        None if share is None else share.share if is_favourite else 1 - share.share
    )
    error, n_prompts = (share.std_error, share.n_prompts) if share else (None, 0)
    low, high = share_interval(observed, error, n_prompts)
    return {
        f"observed{suffix}": observed,
        f"std_error{suffix}": error,
        f"observed{suffix}_ci_low": low,
        f"observed{suffix}_ci_high": high,
        f"n_games{suffix}": share.n_games if share else 0,
        f"n_prompts{suffix}": n_prompts,
    }


def share_interval(
    share: float | None, std_error: float | None, n_prompts: int
) -> tuple[float | None, float | None]:
    """Return the ends of a share's 95 % interval, prompt-clustered and within [0, 1], if known."""
    found = None if share is None else clustered_interval(share, std_error, n_prompts)
    return found or (None, None)


# Power


@styled
def power(standings: Standings) -> Plot | None:
    """Draw the gap that a number of prompts has 80 % power to detect, from this run's variance."""
    precisions = standings.precision.get(companion(standings) or "", ())
    known = {p.dimension: p for p in precisions if p.sigma is not None and p.n_prompts}
    if not known:
        return None
    n_prompts = [p.n_prompts or 0 for p in known.values()]
    sizes = np.geomspace(min(20, *n_prompts), max(2000, 3 * max(n_prompts)), 30).round()
    rows: list[Row] = [
        {
            "dimension": dimension,
            "n_prompts": n,
            "detectable": detectable(p.sigma or 0.0, n),
            "corrected": detectable(p.sigma or 0.0, n, n_tests=p.n_tests),
            "this_run": n == p.n_prompts,
        }
        for dimension, p in known.items()
        for n in sorted({*sizes.astype(int).tolist(), p.n_prompts or 0})
    ]
    n_tests = max(p.n_tests for p in known.values())
    called = labels(known)
    figure, (ax,) = panels(
        [""],
        heading="Rating gap that is detected with 80 % power",
        key={
            "one pair": {"color": INK},
            f"any of {n_tests:,} (Holm)": {"color": INK, "ls": "--"},
            "this run": {"color": ORANGE, "marker": "o", "lw": 0},
        },
        beside=called.values(),
        width=4.0,
    )
    lines = grouped(rows, "dimension")
    here = [row for row in rows if row["this_run"]]
    for name, style in (("detectable", "-"), ("corrected", "--")):
        for line in lines.values():
            ax.plot(column(line, "n_prompts"), column(line, name), style, color=INK)
        ax.plot(column(here, "n_prompts"), column(here, name), "o", color=ORANGE)
    ax.set(xscale="log", yscale="log", xlabel="prompts", ylabel="rating gap, points")
    set_ticks(ax.xaxis, _TICKS)
    set_ticks(ax.yaxis, _TICKS)
    ends = {
        called[dimension]: line[-1]["detectable"] for dimension, line in lines.items()
    }
    end_labels(ax, float(sizes[-1]), ends)
    run = "; ".join(
        f"{row['dimension']} {row['detectable']:.0f} points with {row['n_prompts']:,} prompts"
        for row in here
    )
    caption = (
        "Rating gap between two entrants that a two-sided test at 5 % detects with 80 % power, "
        f"from this run's variance between prompts. This run: {run}."
    )
    drawn = ("detectable", "corrected")
    return saved("power", figure, rows, caption, x="n_prompts", y=drawn, curves=True)
