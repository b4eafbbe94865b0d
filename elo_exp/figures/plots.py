"""Figures, each drawn from rows that are kept beside it as CSV: who is better, and how often it wins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from elo_exp.analysis.standings import Standings
from elo_exp.analysis.win_rates import shares
from elo_exp.figures import canvas, certainty, fit_plots, judge_plots, order_plots
from elo_exp.figures.canvas import Panel, panel_width, row_span, ticks
from elo_exp.figures.lettering import length
from elo_exp.figures.sheets import Sheet
from elo_exp.figures.shown import (
    MAX_MODELS,
    best_first,
    entrant_colors,
    interval,
    labels,
    method,
    n_matches,
    of_best,
    rated,
    room,
    sample,
)
from elo_exp.report.findings import METHODS
from elo_exp.results import Z95, Plot
from elo_exp.statistics.student import half_width

Row = Mapping[str, Any]

_GREY = "#8A8A8A"
_FEW = 12  # models; with more, rows stand closer together and the cells of a heatmap carry no text
_MARKERS = "Dsv^"  # of the methods beside Elo
_BEYOND = 0.6  # of the span of all ratings: an interval that reaches further beyond them is cut off


def all_plots(standings: Standings) -> list[Plot]:
    """Every figure that these standings allow."""
    drawn = [
        ratings(standings),
        win_rates(standings),
        *certainty.certainty_plots(standings),
        *order_plots.order_plots(standings),
        *judge_plots.judge_plots(standings),
        *fit_plots.fit_plots(standings),
    ]
    return [plot for plot in drawn if plot is not None]


# Ratings


def ratings(standings: Standings) -> Plot | None:
    """Draw every method's ratings with their intervals, and Elo's ordering error: a panel for each dimension."""
    names = rated(standings)
    if not names:
        return None
    elo = standings.elo[names[0]][standings.k]
    fits = {fit: by[names[0]] for fit, by in standings.companions.items() if names[0] in by}
    rows = [row for dimension in names for row in _rating_rows(standings, dimension)]
    models = best_first(standings)[:MAX_MODELS]
    called = [labels(standings)[model] for model in models]
    is_dense = len(models) > _FEW
    sheet = Sheet(
        "Who is better, and how sure that is",
        names,
        width=panel_width(len(names)),
        height=(0.22 if is_dense else 0.38) * len(models) + 0.1,
        left=room(called),
        right=0.85 + max(length(_flagged(row), 7.5) for row in rows),
        shared_left=True,
        key=[
            (
                f"Elo at K = {standings.k:g}, {interval(elo)}",
                {"color": "#C4C4C4", "lw": 5, "marker": "o", "ms": 6, "mfc": "#555555", "mew": 0},
            ),
            (
                "ordering error (Monte Carlo), 95 %",
                {"lw": 0, "marker": "|", "ms": 10, "mec": canvas.PALE},
            ),
            *(
                (
                    f"{board.label}, {interval(board)}",
                    {"color": _GREY, "lw": 1.3, "marker": marker, "ms": 4.5, "mfc": "white"},
                )
                for board, marker in zip(fits.values(), itertools.cycle(_MARKERS))
            ),
        ],
    )
    low, high = _limits([row for row in rows if row["model"] in models], ["elo", *fits])
    for panel in sheet.panels:
        panel.heading(panel.name, n_matches(standings, panel.name))
        panel.scale((low, high), row_span(len(models)))
        panel.rows(called)
        panel.x_axis(ticks(low, high), "rating")
        by_model = {row["model"]: row for row in rows if row["dimension"] == panel.name}
        lines = {y: by_model[model] for y, model in enumerate(models) if model in by_model}
        _forest(panel, lines, entrant_colors(standings), list(fits), size=5 if is_dense else 6.5)
    sure = "; ".join(f"{board.label}: {interval(board)}" for board in (elo, *fits.values()))
    caption = (
        f"Who is better, by how much, the best mean Elo first. {sure}. The ordering error (grey ticks, 95 %) is that "
        f"of averaging over match orders, and says nothing of how sure a rating is.{sample(standings, names)}"
    )
    return sheet.finish("ratings", rows, caption + of_best(len(models), len(standings.models)))


def _forest(
    panel: Panel,
    lines: Mapping[int, Row],
    colors: Mapping[str, str],
    fits: Sequence[str],
    *,
    size: float,
) -> None:
    """Rows by their place from the top: Elo above, the fitted ratings below, Elo in figures on the right."""
    of_line = {y: colors[row["model"]] for y, row in lines.items()}
    down = {fit: 0.22 + 0.2 * i / max(1, len(fits) - 1) for i, fit in enumerate(fits)}
    thin = [(fit, -y, 1.3, 0.9) for fit, y in down.items()]
    for name, up, lw, alpha in (("elo", 0.12, 0.75 * size, 0.4), *thin):
        bars = {
            y: [(row[f"{name}_ci_{end}"], y - up) for end in ("low", "high")]
            for y, row in lines.items()
        }
        bars = {y: bar for y, bar in bars.items() if bar[0][0] is not None}
        panel.segments(list(bars.values()), [of_line[y] for y in bars], lw, alpha=alpha)
    for fit, marker in zip(fits, itertools.cycle(_MARKERS)):
        fitted = {y: row[fit] for y, row in lines.items() if row[fit] is not None}
        edges = [of_line[y] for y in fitted]
        heights = [y + down[fit] for y in fitted]
        panel.dots(list(fitted.values()), heights, edges, 0.7 * size, marker=marker, hollow=True)
    elo = {y: row["elo"] for y, row in lines.items()}
    errors = [
        (row["elo"] + sign * Z95 * row["ordering_error"], y)
        for y, row in lines.items()
        for sign in (-1, 1)
    ]
    panel.segments([((x, y - 0.36), (x, y + 0.12)) for x, y in errors], canvas.PALE, 0.8)
    panel.dots(list(elo.values()), [y - 0.12 for y in elo], list(of_line.values()), size)
    for y, row in lines.items():
        half = "" if row["elo_ci_low"] is None else f" ±{row['elo_ci_high'] - row['elo']:.0f}"
        said = f"{row['elo']:.0f}{half}{_flagged(row)}"
        panel.write(1, y, said, on="y", move=(7, 0), size=7.5, align=(0, 0.5))


def _flagged(row: Row) -> str:
    """Why the fit has no rating."""
    return f", {row['flag']}" if row["flag"] else ""


def _rating_rows(standings: Standings, dimension: str) -> Iterator[dict[str, Any]]:
    elo = standings.elo[dimension][standings.k]
    for rating in map(elo.rating, elo.models):
        row: dict[str, Any] = {
            "dimension": dimension,
            "model": rating.model,
            "elo": rating.rating,
            "elo_ci_low": rating.ci_low,
            "elo_ci_high": rating.ci_high,
            "ordering_error": rating.ordering_error,
        }
        flags = []
        for fit, boards in standings.companions.items():
            board = boards.get(dimension)
            fitted = board.rating(rating.model) if board else None
            row |= {
                fit: fitted and fitted.rating,
                f"{fit}_ci_low": fitted and fitted.ci_low,
                f"{fit}_ci_high": fitted and fitted.ci_high,
            }
            flags += [fitted.flag] if fitted and fitted.flag else []
        yield {**row, "flag": flags[0] if flags else None}


def _limits(rows: Sequence[Row], methods: Sequence[str]) -> tuple[float, float]:
    """Of the axis: all ratings, and of their intervals as much as leaves the ratings apart."""
    points = [row[name] for row in rows for name in methods if row[name] is not None]
    beyond = _BEYOND * max(max(points) - min(points), 20.0)
    ends = [x for row in rows for name, x in row.items() if "ci_" in name and x is not None]
    low = max(min([*points, *ends]), min(points) - beyond)
    high = min(max([*points, *ends]), max(points) + beyond)
    margin = 0.04 * (high - low) + 1.0
    return low - margin, high + margin


# Win rates


def win_rates(standings: Standings) -> Plot:
    """How often the row beats the column, ties half."""
    rows = _win_rate_rows(standings)
    models = best_first(standings)[:MAX_MODELS]
    called = [labels(standings)[model] for model in models]
    is_dense = len(models) > _FEW
    side, size = (0.2, 7.0) if is_dense else (0.68, 8.0)
    has_error, is_tested = (
        not is_dense and any(row[name] is not None for row in rows)
        for name in ("std_error", "significant")
    )
    scale = [
        (f"{share:.0%}", {"lw": 9, "color": canvas.shade("RdBu", share)})
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    sheet = Sheet(
        "How often the row beats the column",
        standings.dimensions,
        width=max(side * len(models), 1.4),
        height=max(side * len(models), 0.8),
        left=room(called, size),
        bottom=0.75 * room(called, size) + 0.15,
        shared_left=True,
        key=[
            *scale,
            *([("bold: their ratings differ (Holm, 5 %)", {"lw": 0})] if is_tested else []),
        ],
    )
    for panel in sheet.panels:
        panel.heading(panel.name, "ties half")
        cells = [row for row in rows if row["dimension"] == panel.name]
        _matrix(panel, cells, models, has_text=not is_dense)
        panel.labels(called, size=size)
        for x, label in enumerate(called):
            panel.write(x, 0, label, on="x", move=(2, -5), size=size, align=(1, 1), angle=45)
    fit = METHODS.get(method(standings), method(standings))
    caption = "How often the row beats the column, a tie counting half"
    caption += (
        f"{'' if is_dense else ', of n battles'}{'; ± 95 % over prompts' if has_error else ''}."
    )
    caption += f" Bold: the {fit} difference holds after Holm's correction." if is_tested else ""
    caption += sample(standings, standings.dimensions)
    return sheet.finish(
        "pairwise_winrates", rows, caption + of_best(len(models), len(standings.models))
    )


def _win_rate_rows(standings: Standings) -> list[dict[str, Any]]:
    holds = {
        (d.dimension, *sorted((d.higher, d.lower))): d.significant
        for d in standings.differences.get(method(standings), ())
    }
    found = {
        dimension: shares(battles, use="consistent", ties="half")
        for dimension, battles in standings.battles.items()
    }
    rows = []
    for rate in standings.win_rates:
        share = found[rate.dimension][rate.entrant_a, rate.entrant_b]
        rows.append(
            {
                **rate.to_dict(),
                "n": share.n_games,
                "n_prompts": share.n_prompts,
                "win_share_a": share.share,
                "std_error": share.std_error,
                "significant": holds.get((rate.dimension, rate.entrant_a, rate.entrant_b)),
            }
        )
    return rows


def _matrix(panel: Panel, cells: Sequence[Row], models: Sequence[str], *, has_text: bool) -> None:
    place = {model: i for i, model in enumerate(models)}
    panel.scale((-0.5, len(models) - 0.5), (len(models) - 0.5, -0.5))
    shares = np.full((len(models), len(models)), np.nan)
    for cell in cells:
        if cell["entrant_a"] not in place or cell["entrant_b"] not in place:
            continue
        a, b = place[cell["entrant_a"]], place[cell["entrant_b"]]
        shares[a, b], shares[b, a] = cell["win_share_a"], 1 - cell["win_share_a"]
        for (i, j), share in (
            (((a, b), cell["win_share_a"]), ((b, a), 1 - cell["win_share_a"])) if has_text else ()
        ):
            color = "white" if abs(share - 0.5) > 0.3 else canvas.INK
            half = (
                None
                if cell["std_error"] is None
                else half_width(cell["n_prompts"]) * cell["std_error"]
            )
            error = "" if half is None else f" ±{half:.2f}".replace("0.", ".")
            is_bold = bool(cell["significant"])
            panel.write(
                j, i, f"{share:.2f}{error}", move=(0, 4.5), size=7.5, color=color, bold=is_bold
            )
            panel.write(j, i, f"n={cell['n']:,}", move=(0, -5.5), size=7, color=color)
    panel.grid(shares, "RdBu")
