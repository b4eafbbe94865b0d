"""Figures of runs side by side: the jobs of a sweep, and the runs of a comparison.

A row of a sweep is one of sweep_summary.csv, of a comparison one of compare.csv.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.figures import kinds
from elo_exp.figures.elo import k_lines, line_key
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
    panels,
    saved,
    styled,
)
from elo_exp.ratings.leaderboard import CONVERGED, Z95
from elo_exp.records import Plot

_MAX_SETTINGS = 5  # lines of panels, of as many numbers of permutations or settings
_MAX_ROWS = 30  # entrants, or shifts of a dimension
_MAX_JUDGES = 8
_SEED = "elo.seed="
_KEPT = (
    "run",
    "dimension",
    "model",
)  # columns of compare.csv, beside those of the shift


def plots(
    rows: Sequence[Row], judges: Sequence[Row], pair: Sequence[str] | None
) -> list[Plot]:
    """Draw what was swept.

    judges  the rows of sweep_judges.csv
    pair    the two models whose gap is drawn; None: the two best
    """
    rated = [row for row in rows if row["rating"] is not None]
    fitted = [row for row in rows if row["bradley_terry"] is not None]
    n_ks, n_perms, n_seeds = (
        len({row[name] for row in rated}) for name in ("k", "n_perms", "seed")
    )
    two = list(pair or best_models(rated)[:2])
    drawn = [k_by_n_perms(rated)] if n_ks > 1 else []
    drawn += (
        [pair_by_k_and_n_perms(rated, *two)]
        if n_ks > 1 < n_perms and len(two) == 2
        else []
    )
    drawn += [seeds(rated)] if n_seeds > 1 else []
    drawn += [judges_agreement(judges)] if judges else []
    drawn += (
        [ratings_by_mode(fitted)] if len({row["mode"] for row in fitted}) > 1 else []
    )
    return drawn


def best_models(rows: Sequence[Row]) -> list[str]:
    """Return the models by their mean Elo over jobs and dimensions."""
    mean = {
        model: column(some, "rating").mean()
        for model, some in grouped(rows, "model").items()
    }
    return sorted(mean, key=lambda model: (-mean[model], model))


# K, and the number of permutations


@styled
def k_by_n_perms(rows: Sequence[Row]) -> Plot:
    """Draw Elo by K: a column for each dimension, a line for each n_perms and other setting."""
    every = sorted({(row["n_perms"], row["setting"]) for row in rows})
    chosen = (
        np.linspace(0, len(every) - 1, min(_MAX_SETTINGS, len(every)))
        .round()
        .astype(int)
    )
    dimensions = list(grouped(rows, "dimension"))
    places = [(*every[i], dimension) for i in chosen for dimension in dimensions]
    models = best_models(rows)
    color = {
        model: colors(models[:MAX_COLORED])[model] for model in models[:MAX_COLORED]
    }
    figure, axes = panels(
        [dimension for *_, dimension in places],
        heading="Elo by K and number of permutations",
        notes=[f"{n_perms:,} permutations {setting}" for n_perms, setting, _ in places],
        key=line_key(color, labels(models)),
        height=1.9,
        n_columns=len(dimensions),
    )
    by = grouped(rows, "n_perms", "setting", "dimension")
    for ax, place in zip(axes, places, strict=True):
        k_lines(ax, by.get(place, []), color)
    for ax in axes[:: len(dimensions)]:
        ax.set_ylabel("mean Elo")
    lines = [
        {**row, "line": row["model"] if len(every) == 1 else _line_name(row)}
        for row in sorted(rows, key=lambda row: row["k"])
    ]
    caption = (
        "Mean Elo by K, a line of panels for each number of permutations and each other "
        "setting that was swept. Bars: 95 % Monte Carlo error of averaging permutations."
    )
    caption += only_best(len(chosen), len(every), "settings") + only_best(
        len(color), len(models)
    )
    return saved("k_by_n_perms", figure, lines, caption, x="k", y=("rating",))


def _line_name(row: Row) -> str:
    return f"{row['model']} {row['n_perms']:,} {row['setting']}".rstrip()


@styled
def pair_by_k_and_n_perms(rows: Sequence[Row], first: str, second: str) -> Plot:
    """Draw the gap between two models, zero in the middle of the colours.

    Boubdir et al. (2023), figures 3 and 4.
    """
    cells = _gaps(rows, first, second)
    called = labels([first, second])
    by = grouped(cells, "setting", "dimension")
    ks, n_perms = (sorted(grouped(cells, name)) for name in ("k", "n_perms"))
    widest = max(abs(cell["difference"]) for cell in cells) or 1.0
    figure, axes = panels(
        [dimension for _, dimension in by],
        heading=f"Elo of {called[first]} minus {called[second]}, points",
        notes=[setting for setting, _ in by],
        width=max(0.45 * len(ks), 2.0),
        height=max(0.35 * len(n_perms), 0.8),
        n_columns=len(grouped(cells, "dimension")),
    )
    for ax, here in zip(axes, by.values(), strict=True):
        values = np.full((len(n_perms), len(ks)), np.nan)
        near = np.zeros(values.shape, dtype=bool)
        for cell in here:
            at = n_perms.index(cell["n_perms"]), ks.index(cell["k"])
            values[at], near[at] = cell["difference"], cell["convergence"] >= CONVERGED
        across, down = [f"{k:g}" for k in ks], [f"{n:,}" for n in n_perms]
        kinds.matrix(
            ax, values, _signed, down, across, limits=(-widest, widest), bold=near
        )
        ax.set_xlabel("K")
    axes[0].set_ylabel("permutations")
    caption = (
        f"Mean Elo of {first} minus that of {second}. Blue: {first} leads. Bold: at least "
        f"{100 * CONVERGED:.0f} % of the limit. The intervals of the jobs say whether a gap is "
        "significant."
    )
    return saved("pair_by_k_and_n_perms", figure, cells, caption)


def _signed(points: float) -> str:
    return f"{points:+.0f}".replace("-", "−")


def _gaps(rows: Sequence[Row], first: str, second: str) -> list[Row]:
    by_job: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        by_job.setdefault((row["job"], row["dimension"]), {})[row["model"]] = row
    cells: list[Row] = []
    for sides in by_job.values():
        if first in sides and second in sides:
            row, gap = sides[first], sides[first]["rating"] - sides[second]["rating"]
            names = ("job", "setting", "dimension", "k", "n_perms", "convergence")
            leader = first if gap > 0 else second if gap < 0 else None
            found = {
                "first": first,
                "second": second,
                "difference": gap,
                "leader": leader,
            }
            cells.append({**{name: row[name] for name in names}, **found})
    return cells


# Seeds


@styled
def seeds(rows: Sequence[Row]) -> Plot:
    """Draw Elo by the seed of its permutations, beside the Monte Carlo error of each job."""
    drawn: list[Row] = []
    same = [row for row in rows if _but_seed(row) == _but_seed(rows[0])]
    for line in grouped(same, "dimension", "model").values():
        mean = statistics.fmean(row["rating"] for row in line)
        for row in line:
            deviation, error = row["rating"] - mean, row["ordering_error"]
            drawn.append(
                {
                    **{
                        name: row[name]
                        for name in ("job", "dimension", "model", "seed", "rating")
                    },
                    "ordering_error": error,
                    "deviation": deviation,
                    "ci_low": deviation - Z95 * error,
                    "ci_high": deviation + Z95 * error,
                }
            )
    n_seeds = len(grouped(drawn, "seed"))
    figure, names = _intervals(
        drawn, "Elo by the seed of its permutations", by="seed", value="deviation"
    )
    caption = (
        f"Mean Elo by {n_seeds} seeds of the permutations, minus the mean over seeds. Bars: 95 % "
        "Monte Carlo error as each job states it; the points should scatter no wider. Neither is "
        "uncertainty about the entrants."
    )
    caption += only_best(len(names), len(grouped(drawn, "model")))
    return saved("seeds", figure, drawn, caption)


def _but_seed(row: Row) -> tuple[Any, ...]:
    """What a job has in common with those that differ in nothing but the seed."""
    setting = [word for word in row["setting"].split() if not word.startswith(_SEED)]
    return row["k"], row["n_perms"], setting


def _intervals(
    rows: Sequence[Row], heading: str, *, by: str, value: str = "rating"
) -> tuple[Figure, dict[str, str]]:
    """Draw the best models with a mark for each value of a column; return them with their labels."""
    called = labels(row["model"] for row in rows)
    names = {model: called[model] for model in best_models(rows)[:_MAX_ROWS]}
    places = grouped((row for row in rows if row["model"] in names), "dimension")
    series = [str(value) for value in grouped(rows, by)]
    figure, axes = panels(
        list(places),
        heading=heading,
        key=kinds.series_key(series),
        beside=names.values(),
        height=(0.15 + 0.09 * len(series)) * len(names) + 0.2,
        sharex=True,
    )
    for ax, here in zip(axes, places.values(), strict=True):
        kinds.intervals(ax, here, names, lambda row: BLUE, by=by, value=value)
        ax.set_xlabel(f"{value}, points")
    return figure, names


# Judges, and modes


@styled
def judges_agreement(rows: Sequence[Row]) -> Plot:
    """Draw kappa above the diagonal and the rank correlation below it, for every two judges."""
    every = list(
        dict.fromkeys(row[name] for row in rows for name in ("first", "second"))
    )
    judges = every[:_MAX_JUDGES]
    called = [labels(every)[judge] for judge in judges]
    by = grouped(rows, "dimension")
    figure, axes = panels(
        list(by),
        heading="Agreement between judges",
        notes=["kappa above, rank correlation below"] * len(by),
        beside=called,
        width=max(0.7 * len(judges), 2.4),
        height=max(0.5 * len(judges), 1.0) + 0.05 * max(map(len, called)),
    )
    for ax, here in zip(axes, by.values(), strict=True):
        values = np.full((len(judges), len(judges)), np.nan)
        for row in here:
            if row["first"] in judges and row["second"] in judges:
                i, j = judges.index(row["first"]), judges.index(row["second"])
                values[i, j], values[j, i] = (
                    column([row], "kappa")[0],
                    column([row], "rho")[0],
                )
        kinds.matrix(ax, values, _hundredths, called, called, limits=(-1, 1))
        kinds.slanted(ax)
    caption = (
        "Above the diagonal Cohen's kappa of the comparisons that both judges made, below it "
        "Spearman's correlation of their Bradley-Terry ratings. Empty: not defined."
    )
    caption += only_best(len(judges), len(every), "judges")
    return saved("judges_agreement", figure, rows, caption)


def _hundredths(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


@styled
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
    figure, names = _intervals(drawn, "Bradley-Terry ratings by mode", by="mode")
    caption = (
        "Bradley-Terry ratings with 95 % intervals, prompt-clustered, by mode. Modes share "
        "prompts, so overlapping intervals do not say whether a rating moved: experiment=compare "
        "does."
    )
    caption += only_best(len(names), len(grouped(drawn, "model")))
    return saved("ratings_by_mode", figure, drawn, caption)


# Shifts


def compare_plots(rows: Sequence[Row], runs: Sequence[str], method: str) -> list[Plot]:
    """Draw how far ratings by `method` moved from the first of these runs."""
    moved = [
        row for row in rows if row["method"] == method and row["shift"] is not None
    ]
    return [rating_shifts(moved, runs)] if moved else []


@styled
def rating_shifts(rows: Sequence[Row], runs: Sequence[str]) -> Plot:
    """Draw each entrant's shift from its rating in the first run, with its 95 % interval."""
    called = labels(row["model"] for row in rows)
    by: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (runs.index(row["run"]), -row["shift"])):
        name = called[row["model"]]
        name += f", run {runs.index(row['run']) + 1}" if len(runs) > 2 else ""
        ends = {f"ci_{end}": row[f"shift_ci_{end}"] for end in ("low", "high")}
        by.setdefault(row["dimension"], []).append({**row, **ends, "name": name})
    most = max(map(len, by.values()))
    longest = max((row["name"] for some in by.values() for row in some), key=len)
    figure, axes = panels(
        list(by),
        heading="Shift of each rating from the first run",
        key={
            "significant (Holm, α = .05)": {"color": BLUE, "marker": "o"},
            "not significant": {"color": SOFT, "marker": "o"},
        },
        beside=[longest * min(len(by), 3)],
        width=2.3,
        height=0.24 * min(most, _MAX_ROWS) + 0.3,
        sharex=True,
        sharey=False,
    )
    for ax, some in zip(axes, by.values(), strict=True):
        shown = some[:_MAX_ROWS]
        names = {row["name"]: row["name"] for row in shown}
        kinds.intervals(ax, shown, names, _by_significance, of="name", value="shift")
        ax.axvline(0, color=SOFT, lw=0.8)
        ax.set_xlabel("shift, points")
    kept = [
        {name: row[name] for name in row if name in _KEPT or name.startswith("shift")}
        for row in rows
    ]
    caption = (
        "Shift of each entrant from its rating in the first run, relative to the mean of those "
        "rated in both. Bars: 95 % interval of the shift, prompt-clustered; a prompt of both runs "
        "is one observation. "
    )
    n_significant = sum(_by_significance(row) == BLUE for row in rows)
    caption += f"{n_significant} of {len(rows)} shifts are significant (Holm, α = .05)."
    caption += only_best(min(most, _MAX_ROWS), most, "shifts of a dimension")
    return saved("rating_shifts", figure, kept, caption)


def _by_significance(row: Row) -> str:
    return (
        BLUE
        if row["shift_p_holm"] is not None and row["shift_p_holm"] <= ALPHA
        else SOFT
    )
