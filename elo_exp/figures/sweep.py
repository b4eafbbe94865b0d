"""Figures of runs side by side: the jobs of a sweep, and the runs of a comparison.

A row of a sweep is one of sweep_summary.csv, of a comparison one of compare.csv.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.figures import kinds
from elo_exp.figures.style import (
    BLUE,
    MAX_COLORED,
    SOFT,
    Row,
    colors,
    column,
    grouped,
    labels,
    only_best,
    plot,
)
from elo_exp.ratings.leaderboard import Z95
from elo_exp.records import Plot

_MAX_SETTINGS = 5  # lines of panels, of as many numbers of permutations or settings
_MAX_ROWS = 30  # entrants
_MAX_JUDGES = 8
_SEED = "elo.seed="


def plots(
    rows: Sequence[Row], judges: Sequence[Row], pair: Sequence[str] | None
) -> list[Plot]:
    """Draw what was swept.

    judges  the rows of sweep_judges.csv
    pair    the two models whose gap is drawn; None: the two best
    """
    rated = [row for row in rows if row["rating"] is not None]
    fitted = [row for row in rows if row["bradley_terry"] is not None]
    two = list(pair or best_models(rated)[:2])
    drawn = []
    if _differ(rated, "k"):
        drawn.append(k_by_n_perms(rated))
    if _differ(rated, "k") and _differ(rated, "n_perms") and len(two) == 2:
        drawn.append(pair_by_k_and_n_perms(rated, *two))
    if _differ(rated, "seed"):
        drawn.append(seeds(rated))
    if judges:
        drawn.append(judges_agreement(judges))
    if _differ(fitted, "mode"):
        drawn.append(ratings_by_mode(fitted))
    return drawn


def _differ(rows: Sequence[Row], name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def best_models(rows: Sequence[Row], value: str = "rating") -> list[str]:
    """Return the models by their mean Elo over jobs and dimensions."""
    mean = {
        model: column(some, value).mean()
        for model, some in grouped(rows, "model").items()
    }
    return sorted(mean, key=lambda model: (-mean[model], model))


# K, and the number of permutations


def k_by_n_perms(rows: Sequence[Row]) -> Plot:
    """Draw Elo by K: a column for each dimension, a line for each n_perms and other setting."""
    rows = sorted(rows, key=lambda row: row["k"])
    every = sorted({(row["n_perms"], row["setting"]) for row in rows})
    at = np.linspace(0, len(every) - 1, min(_MAX_SETTINGS, len(every))).round()
    dimensions = list(grouped(rows, "dimension"))
    by = grouped(rows, "n_perms", "setting", "dimension")
    models = best_models(rows)
    best = models[:MAX_COLORED]
    color = {model: colors(best)[model] for model in best}
    return plot(
        "k_by_n_perms",
        [{**row, "line": _line_name(row)} for row in rows],
        [
            (
                dimension,
                f"{n_perms:,} permutations {setting}",
                by.get((n_perms, setting, dimension), []),
            )
            for n_perms, setting in (every[int(i)] for i in at)
            for dimension in dimensions
        ],
        lambda ax, some: kinds.k_lines(ax, some, color),
        heading="Elo by K and number of permutations",
        key=kinds.line_key(color),
        xlabel="K",
        ylabel="mean Elo",
        n_columns=len(dimensions),
        caption="Mean Elo by K, a line of panels for each number of permutations and each other "
        "setting that was swept. Bars: 95 % Monte Carlo error of averaging permutations."
        + only_best(len(at), len(every), "settings")
        + only_best(len(best), len(models)),
        x="k",
        y=("rating",),
    )


def _line_name(row: Row) -> str:
    return f"{row['model']} {row['n_perms']:,} {row['setting']}".rstrip()


def pair_by_k_and_n_perms(rows: Sequence[Row], first: str, second: str) -> Plot:
    """Draw the gap between two models, zero in the middle of the colours.

    Boubdir et al. (2023), figures 3 and 4.
    """
    gaps = _gaps(rows, first, second)
    by = grouped(gaps, "setting", "dimension")
    ks, n_perms = (
        [f"{value:g}" for value in sorted(grouped(gaps, name))]
        for name in ("k", "n_perms")
    )
    widest = max(abs(gap["difference"]) for gap in gaps) or 1.0
    called = labels([first, second])
    return kinds.matrices(
        "pair_by_k_and_n_perms",
        gaps,
        [
            (dimension, setting, [_gap_cell(gap) for gap in some])
            for (setting, dimension), some in by.items()
        ],
        n_perms,
        ks,
        limits=(-widest, widest),
        text="{:+.0f}".format,
        heading=f"Elo of {called[first]} minus {called[second]}, points",
        xlabel="K",
        ylabel="permutations",
        n_columns=len(grouped(gaps, "dimension")),
        caption=f"Mean Elo of {first} minus that of {second}. Blue: {first} leads. Bold: every "
        "entrant has gone 95 % of its way to the limit. The intervals of the jobs say whether a gap is "
        "significant.",
    )


def _gap_cell(gap: Row) -> kinds.Cell:
    is_bold = gap["converged"] is True
    return f"{gap['n_perms']:g}", f"{gap['k']:g}", gap["difference"], is_bold


def _gaps(rows: Sequence[Row], first: str, second: str) -> list[Row]:
    names = ("job", "setting", "dimension", "k", "n_perms", "converged")
    gaps: list[Row] = []
    for some in grouped(rows, "job", "dimension").values():
        of = {row["model"]: row for row in some}
        if first in of and second in of:
            gap = of[first]["rating"] - of[second]["rating"]
            leader = first if gap > 0 else second if gap < 0 else None
            found = {"first": first, "second": second, "difference": gap}
            job = {name: of[first][name] for name in names}
            gaps.append({**job, **found, "leader": leader})
    return gaps


# Intervals by seed and by mode


def seeds(rows: Sequence[Row]) -> Plot:
    """Draw Elo by the seed of its permutations, beside the Monte Carlo error of each job."""
    columns = ("job", "dimension", "model", "seed", "rating", "ordering_error")
    same = [row for row in rows if _but_seed(row) == _but_seed(rows[0])]
    drawn: list[Row] = []
    for line in grouped(same, "dimension", "model").values():
        mean = statistics.fmean(row["rating"] for row in line)
        for row in line:
            deviation, error = row["rating"] - mean, Z95 * row["ordering_error"]
            drawn.append(
                {
                    **{name: row[name] for name in columns},
                    "deviation": deviation,
                    "ci_low": deviation - error,
                    "ci_high": deviation + error,
                }
            )
    n_seeds = len(grouped(drawn, "seed"))
    return _intervals(
        "seeds",
        drawn,
        by="seed",
        value="deviation",
        heading="Elo by the seed of its permutations",
        caption=f"Mean Elo by {n_seeds} seeds of the permutations, minus the mean over seeds. "
        "Bars: 95 % Monte Carlo error as each job states it; the points should scatter no wider. "
        "Neither is uncertainty about the entrants.",
    )


def _but_seed(row: Row) -> tuple[Any, ...]:
    """What a job has in common with those that differ in nothing but the seed."""
    setting = [word for word in row["setting"].split() if not word.startswith(_SEED)]
    return row["k"], row["n_perms"], setting


def ratings_by_mode(rows: Sequence[Row]) -> Plot:
    """Draw Bradley-Terry ratings with their intervals by mode, each by the first job in it."""
    first = {row["mode"]: row["job"] for row in reversed(rows)}
    drawn: list[Row] = [
        {
            "mode": row["mode"],
            "dimension": row["dimension"],
            "model": row["model"],
            "rating": row["bradley_terry"],
            "ci_low": row["bradley_terry_ci_low"],
            "ci_high": row["bradley_terry_ci_high"],
        }
        for row in rows
        if row["job"] == first[row["mode"]]
    ]
    return _intervals(
        "ratings_by_mode",
        drawn,
        by="mode",
        heading="Bradley-Terry ratings by mode",
        caption="Bradley-Terry ratings with 95 % intervals, prompt-clustered, by mode. Modes share "
        "prompts, so overlapping intervals do not say whether a rating moved: experiment=compare "
        "does.",
    )


def _intervals(
    name: str, rows: Sequence[Row], *, caption: str, value: str = "rating", **frame: Any
) -> Plot:
    """Draw the best models of these rows, a panel for each dimension."""
    models = best_models(rows, value if value == "shift" else "rating")
    names = {model: labels(models)[model] for model in models[:_MAX_ROWS]}
    by = grouped((row for row in rows if row["model"] in names), "dimension")
    return kinds.intervals(
        name,
        rows,
        [(dimension, "", some) for dimension, some in by.items()],
        names,
        value=value,
        xlabel=f"{value}, points",
        caption=caption + only_best(len(names), len(models)),
        **frame,
    )


# Judges


def judges_agreement(rows: Sequence[Row]) -> Plot:
    """Draw kappa above the diagonal and the rank correlation below it, for every two judges."""
    every = list(
        dict.fromkeys(row[name] for row in rows for name in ("first", "second"))
    )
    called = labels(every)
    names = [called[judge] for judge in every[:_MAX_JUDGES]]
    cells: dict[str, list[kinds.Cell]] = {}
    for row in rows:
        first, second = called[row["first"]], called[row["second"]]
        both = [
            (first, second, row["kappa"], False),
            (second, first, row["rho"], False),
        ]
        cells.setdefault(row["dimension"], []).extend(both)
    note = "kappa above, rank correlation below"
    return kinds.matrices(
        "judges_agreement",
        rows,
        [(dimension, note, some) for dimension, some in cells.items()],
        names,
        names,
        limits=(-1, 1),
        text="{:.2f}".format,
        heading="Agreement between judges",
        caption="Above the diagonal Cohen's kappa of the comparisons that both judges made, below "
        "it Spearman's correlation of their Bradley-Terry ratings. Empty: not defined."
        + only_best(len(names), len(every), "judges"),
    )


# Shifts


def compare_plots(rows: Sequence[Row], runs: Sequence[str], method: str) -> list[Plot]:
    """Draw how far ratings by `method` moved from the first of these runs."""
    moved = [
        row for row in rows if row["method"] == method and row["shift"] is not None
    ]
    return [rating_shifts(moved, runs)] if moved else []


def rating_shifts(rows: Sequence[Row], runs: Sequence[str]) -> Plot:
    """Draw each entrant's shift from its rating in the first run, with its 95 % interval."""
    drawn = []
    for row in rows:
        kept = {name: row[name] for name in row if name.startswith("shift")}
        drawn.append(
            {name: row[name] for name in ("run", "dimension", "model")}
            | kept
            | {"ci_low": row["shift_ci_low"], "ci_high": row["shift_ci_high"]}
        )
    n_significant = sum(map(_is_significant, rows))
    return _intervals(
        "rating_shifts",
        drawn,
        value="shift",
        by="run",
        color=lambda row: BLUE if _is_significant(row) else SOFT,
        heading="Shift of each rating from the first run",
        caption="Shift of each entrant from its rating in the first run, relative to the mean of "
        "those rated in both. Bars: 95 % interval of the shift, prompt-clustered; a prompt of "
        f"both runs is one observation. {n_significant} of {len(rows)} shifts are significant "
        "(Holm, α = .05; blue).",
    )


def _is_significant(row: Mapping[str, Any]) -> bool:
    return row["shift_p_holm"] is not None and row["shift_p_holm"] <= ALPHA
