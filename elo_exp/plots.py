"""Figures, each drawn from rows that are kept beside it as CSV."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from elo_exp import canvas, certainty
from elo_exp.results import CONVERGED, Z95, Leaderboard, Plot, Standings, WinRate
from elo_exp.winrates import win_share

Rows = list[dict[str, Any]]

_TRACE_POINTS = 120  # of a permutation trace, evenly spaced on the log axis
_MAX_CELL_MODELS = 12  # with more, the win-rate cells carry no text


def _rated(standings: Standings) -> list[str]:
    """The dimensions that have Elo ratings; one without a decisive match has none."""
    return [dimension for dimension in standings.dimensions if standings.elo[dimension]]


def all_plots(standings: Standings) -> list[Plot]:
    """Every figure that these standings allow."""
    if not any(standings.elo.values()):
        return [win_rates(standings)]
    order_of_matches = [k_sensitivity(standings), permutation_traces(standings)]
    return [ratings(standings), *certainty.certainty_plots(standings), *order_of_matches, win_rates(standings)]


def ratings(standings: Standings) -> Plot:
    """Elo with its ordering error and Bradley-Terry, a panel for each dimension on one shared scale."""
    rows = list(_rating_rows(standings))
    order = _best_first(standings)
    colors = _colors(standings)
    figure, panels = canvas.panels(
        _rated(standings),
        height=1.1 + (0.36 if len(order) <= _MAX_CELL_MODELS else 0.25) * len(order),
        sharex=True,
        sharey=True,
    )
    for dimension, axes in panels:
        for row in (r for r in rows if r["dimension"] == dimension):
            y = order.index(row["model"])
            if row["bradley_terry"] is not None:
                if row["ci_low"] is not None:
                    axes.hlines(y, row["ci_low"], row["ci_high"], color="#A8A8A8", lw=4, zorder=1.5)
                axes.plot(row["bradley_terry"], y, "D", mfc="white", mec="#333333", ms=6, zorder=2)
            if row["elo"] is not None:
                error = Z95 * row["ordering_error"]
                axes.errorbar(row["elo"], y, xerr=error, fmt="o", ms=7, color=colors[row["model"]], ecolor="#333333")
                axes.annotate(
                    f"{row['elo']:.0f}", (row["elo"], y), (0, 7), textcoords="offset points", ha="center", fontsize=8
                )
        axes.set_yticks(range(len(order)), order)
        axes.set_ylim(len(order) - 0.4, -0.6)
        axes.set_title(f"{dimension}\n{_n_matches(standings, dimension)}", fontsize=10)
        axes.set_xlabel("rating")
    elo_label = f"Elo, K = {standings.k:g}; bar: ordering error (Monte Carlo), 95 %"
    canvas.marker_key(figure, [("o", "#777777", elo_label), ("D", "white", "Bradley-Terry, 95 % over prompts")])
    caption = (
        "Who is better, by how much. Diamond and wide bar: Bradley-Terry with 95 % over prompts. Dot: Elo; "
        "its thin bar is the ordering error (Monte Carlo) and says nothing of how sure the rating is."
    )
    return canvas.finish("ratings", figure, rows, caption)


def k_sensitivity(standings: Standings) -> Plot:
    """Rating against K, with the scatter over match orders; dashed, where each line would end if Elo had converged."""
    rows: Rows = [
        {
            "dimension": dimension,
            "k": k,
            "model": rating.model,
            "rating": rating.rating,
            "ordering_error": rating.ordering_error,
            "order_sd": (rating.ordering_error or 0.0) * math.sqrt(0 if board.samples is None else len(board.samples)),
            "convergence": board.parameters["convergence"],
            "elo_limit": standings.elo_limit[dimension].get(rating.model),
        }
        for dimension, boards in standings.elo.items()
        for k, board in boards.items()
        for rating in board.ratings
    ]
    figure, panels = canvas.panels(_rated(standings), height=3.2, sharey=True)
    for dimension, axes in panels:
        for model, color in _lines(standings):
            line = [r for r in rows if r["dimension"] == dimension and r["model"] == model]
            if not line:
                continue
            k, mean, sd = (np.array([r[name] for r in line]) for name in ("k", "rating", "order_sd"))
            axes.plot(k, mean, color=color, **canvas.stroke(color))
            if color != canvas.GREY:
                axes.fill_between(k, mean - sd, mean + sd, color=color, alpha=0.12, lw=0)
            if line[0]["elo_limit"] is not None and color != canvas.GREY:
                axes.axhline(line[0]["elo_limit"], ls=(0, (4, 3)), lw=1, color=color, alpha=0.7)
        ks = sorted({r["k"] for r in rows})
        axes.set_xscale("log", base=2)
        short = [r["k"] for r in rows if r["dimension"] == dimension and r["convergence"] < CONVERGED]
        if short:
            edge = math.sqrt(max(short) * min([k for k in ks if k > max(short)], default=2 * max(short)))
            axes.axvspan(min(ks) / 2, edge, fill=False, hatch="///", ec=canvas.GREY, alpha=0.3, lw=0, zorder=0)
            axes.set_xlim(min(ks) / 2**0.5, max(ks) * 2**0.5)
        axes.set_xticks(ks, [f"{k:g}" for k in ks])
        axes.minorticks_off()
        axes.set_title(f"{dimension}\n{_n_matches(standings, dimension)}", fontsize=10)
        axes.set_xlabel(
            "K (dashed: Bradley-Terry of the same matches;\nband: scatter over orders; hatched: not converged)"
        )
    panels[0][1].set_ylabel("mean Elo rating")
    canvas.color_key(figure, _colors(standings))
    caption = "How Elo depends on K. Dashed: where each line would end if Elo had converged."
    return canvas.finish("k_sensitivity", figure, rows, caption)


def permutation_traces(standings: Standings) -> Plot:
    """The running mean rating as permutations are added, with the funnel of its ordering error."""
    rows = trace_rows(standings)
    figure, panels = canvas.panels(_rated(standings), height=3.2, sharey=True)
    for dimension, axes in panels:
        for model, color in _lines(standings):
            line = [r for r in rows if r["dimension"] == dimension and r["model"] == model]
            x = [r["n_perms"] for r in line]
            mean = np.array([r["running_mean"] for r in line])
            error = Z95 * np.array([r["ordering_error"] for r in line])
            axes.plot(x, mean, color=color, lw=canvas.stroke(color)["lw"])
            if color == canvas.GREY:
                continue
            axes.fill_between(x, mean - error, mean + error, color=color, alpha=0.15, lw=0)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_title(dimension, fontsize=10)
        axes.set_xlabel("permutations (band: ordering error, 95 %)")
    panels[0][1].set_ylabel(f"running mean Elo, K = {standings.k:g}")
    canvas.color_key(figure, _colors(standings))
    caption = "Whether there were enough match orders: the running mean Elo as they are added, with its ordering error."
    return canvas.finish("permutation_traces", figure, rows, caption)


def trace_rows(standings: Standings) -> Rows:
    """Running mean and ordering error after so many permutations, at log-spaced numbers of them."""
    rows: Rows = []
    for dimension in standings.dimensions:
        board = standings.primary(dimension)
        if board is None or board.samples is None:
            continue
        n = len(board.samples)
        points = np.unique(np.geomspace(1, n, _TRACE_POINTS).round().astype(int))
        counts = np.arange(1, n + 1)[:, None]
        means = np.cumsum(board.samples, axis=0) / counts
        # Deviations from the first row keep the sums of squares small: no cancellation.
        shifted = board.samples - board.samples[0]
        square = np.cumsum(shifted**2, axis=0) - counts * (np.cumsum(shifted, axis=0) / counts) ** 2
        errors = np.sqrt(np.maximum(square, 0.0) / np.maximum(counts - 1, 1) / counts)
        rows += [
            {
                "dimension": dimension,
                "n_perms": int(p),
                "model": model,
                "running_mean": float(means[p - 1, m]),
                "ordering_error": float(errors[p - 1, m]),
            }
            for p in points
            for m, model in enumerate(board.models)
        ]
    return rows


def win_rates(standings: Standings) -> Plot:
    """How often the row beats the column, ties half."""
    order = _best_first(standings)
    rows: Rows = [rate.to_dict() | {"win_share_a": win_share(rate)} for rate in standings.win_rates]
    side = max(2.6, 0.62 * len(order)) if len(order) <= _MAX_CELL_MODELS else 0.17 * len(order)
    figure, panels = canvas.panels(
        standings.dimensions, height=side + 1.2, width=side + 0.9, layout="compressed", sharey=True
    )
    image = None
    for dimension, axes in panels:
        shares, counts = _share_matrix([r for r in standings.win_rates if r.dimension == dimension], order)
        image = axes.imshow(shares, cmap="RdBu", vmin=0, vmax=1)
        if len(order) <= _MAX_CELL_MODELS:
            for (i, j), share in np.ndenumerate(shares):
                if not math.isnan(share):
                    color = "white" if abs(share - 0.5) > 0.3 else "black"
                    text = f"{share:.0%}\nn={counts[i, j]}"
                    axes.text(j, i, text, ha="center", va="center", fontsize=7.5, color=color)
        size = 9 if len(order) <= _MAX_CELL_MODELS else 5
        axes.set_xticks(range(len(order)), order, rotation=45, ha="right", rotation_mode="anchor", fontsize=size)
        axes.set_yticks(range(len(order)), order, fontsize=size)
        axes.set_facecolor("#EEEEEE")
        axes.grid(visible=False)
        axes.set_title(dimension, fontsize=10)
    if image is not None:
        bar = figure.colorbar(image, ax=[axes for _, axes in panels], shrink=0.7, pad=0.02)
        bar.set_label("row beats column (ties half)", fontsize=9)
    caption = "How often the row beats the column, ties counting half."
    return canvas.finish("pairwise_winrates", figure, rows, caption)


def sweep_lines(rows: Sequence[Mapping[str, Any]]) -> Plot:
    """Rating against K over the jobs of a sweep: a panel for each dimension, a row of them for each n_perms and for
    whatever else was swept."""
    from matplotlib.figure import Figure

    dimensions = list(dict.fromkeys(r["dimension"] for r in rows))
    settings = sorted({(r["n_perms"], r["setting"]) for r in rows})
    names = list(dict.fromkeys(r["model"] for r in rows))
    colors = canvas.colors(names)
    size = (3.6 * len(dimensions) + 0.6, 2.5 * len(settings) + 0.8)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(settings), len(dimensions), squeeze=False, sharex=True, sharey=True)
    for (i, setting), (j, dimension) in itertools.product(enumerate(settings), enumerate(dimensions)):
        axes = canvas.style(grid[i][j])
        for model, color in colors.items():
            wanted = (*setting, dimension, model)
            line = [r for r in rows if (r["n_perms"], r["setting"], r["dimension"], r["model"]) == wanted]
            line.sort(key=lambda r: r["k"])
            error = [Z95 * r["ordering_error"] for r in line]
            axes.errorbar([r["k"] for r in line], [r["rating"] for r in line], error, fmt="o-", ms=4, color=color)
        ks = sorted({r["k"] for r in rows})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ks, [f"{k:g}" for k in ks])
        axes.minorticks_off()
        if i == 0:
            axes.set_title(dimension, fontsize=10)
        if i == len(settings) - 1:
            axes.set_xlabel("K (bar: ordering error, 95 %)")
        if j == 0:
            axes.set_ylabel("\n".join([f"mean Elo, {setting[0]} permutations", *setting[1].split()]), fontsize=9)
    canvas.color_key(figure, colors)
    return canvas.finish("k_by_n_perms", figure, rows)


def _rating_rows(standings: Standings) -> Iterator[dict[str, Any]]:
    for dimension in standings.dimensions:
        elo = standings.primary(dimension)
        companion = standings.companions.get("bradley_terry", {}).get(dimension)
        for model in elo.models if elo else ():
            rating = elo.rating(model) if elo else None
            fitted = companion.rating(model) if companion else None
            yield {
                "dimension": dimension,
                "model": model,
                "elo": rating and rating.rating,
                "ordering_error": rating and rating.ordering_error,
                "bradley_terry": fitted and fitted.rating,
                "ci_low": fitted and fitted.ci_low,
                "ci_high": fitted and fitted.ci_high,
            }


def _best_first(standings: Standings) -> list[str]:
    """Models by their mean Elo over the dimensions, best first."""
    boards = [b for d in standings.dimensions if (b := standings.primary(d))]

    def mean(model: str) -> float:
        found = [r.rating for b in boards if model in b.models if (r := b.rating(model)).rating is not None]
        return sum(found) / len(found) if found else -math.inf

    return sorted(standings.models, key=lambda model: (-mean(model), model))


def _colors(standings: Standings) -> dict[str, str]:
    names = standings.models if len(standings.models) <= len(canvas.PALETTE) else _best_first(standings)
    return canvas.colors(names)


def _lines(standings: Standings) -> list[tuple[str, str]]:
    """Models with their colours, the grey ones first so that they lie behind."""
    return sorted(_colors(standings).items(), key=lambda item: item[1] != canvas.GREY)


def _n_matches(standings: Standings, dimension: str) -> str:
    board: Leaderboard | None = standings.primary(dimension)
    return f"{board.n_matches if board else 0} matches"


def _share_matrix(rates: Sequence[WinRate], order: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    shares = np.full((len(order), len(order)), np.nan)
    counts = np.zeros((len(order), len(order)), dtype=int)
    for rate in rates:
        share = win_share(rate)
        i, j = order.index(rate.entrant_a), order.index(rate.entrant_b)
        shares[i, j], shares[j, i] = share, None if share is None else 1 - share
        counts[i, j] = counts[j, i] = rate.a_wins + rate.b_wins + rate.ties
    return shares, counts
