"""Figures of how sure one may be: differences, chances of a rank, and what more prompts would find."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from elo_exp import canvas
from elo_exp.planning import detectable
from elo_exp.results import Difference, Leaderboard, Plot, Precision, Standings

Rows = list[dict[str, Any]]

METHOD = "bradley_terry"  # whose covariance these figures are drawn from
_MAX_PAIRS = 40  # of a dimension, on one panel; all are in ratings.json
_MAX_MODELS = 15  # on one heatmap
_SIZES = (50, 143, 500, 1000)  # prompts; the first two are a pilot and the whole bank


def certainty_plots(standings: Standings) -> list[Plot]:
    """The figures that these standings allow: none without intervals."""
    drawn = [differences(standings), rank_chances(standings), detectable_differences(standings)]
    return [plot for plot in drawn if plot is not None]


def differences(standings: Standings) -> Plot | None:
    """Every pair's difference with its 95 % interval; filled where it holds after Holm's correction."""
    known = [d for d in standings.differences.get(METHOD, ()) if d.ci_low is not None]
    if not known:
        return None
    names = [name for name in standings.dimensions if any(d.dimension == name for d in known)]
    longest = max(min(_MAX_PAIRS, sum(d.dimension == name for d in known)) for name in names)
    figure, panels = canvas.panels(names, height=1.2 + 0.27 * longest, width=4.6, sharex=True)
    for dimension, axes in panels:
        pairs = sorted((d for d in known if d.dimension == dimension), key=lambda d: -d.difference)[:_MAX_PAIRS]
        for y, pair in enumerate(pairs):
            assert pair.ci_low is not None and pair.ci_high is not None
            color = canvas.PALETTE[0] if pair.significant else "#8A8A8A"
            axes.hlines(y, pair.ci_low, pair.ci_high, color=color, lw=3, alpha=0.55)
            axes.plot(pair.difference, y, "o", color=color, mfc=color if pair.significant else "white", ms=6)
            place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "ha": "left", "va": "center"}
            axes.annotate(_p(pair), (1.02, y), fontsize=7.5, color="#555555", **place)
        axes.axvline(0, color="#333333", lw=1)
        axes.set_yticks(range(len(pairs)), [f"{d.higher} over {d.lower}" for d in pairs], fontsize=7.5)
        axes.set_ylim(len(pairs) - 0.4, -0.6)
        axes.set_title(dimension, fontsize=10)
        axes.set_xlabel("Bradley-Terry difference, points")
    marks = [("o", canvas.PALETTE[0], "holds (Holm, 5 %)"), ("o", "white", "may be chance; bar: 95 % over prompts")]
    canvas.marker_key(figure, marks)
    caption = "Which differences hold. Bar: 95 % over prompts, of the pair alone."
    return canvas.finish("differences", figure, [d.to_dict() for d in known], caption)


def _p(pair: Difference) -> str:
    if pair.p_holm is None:
        return ""
    return "p < .001" if pair.p_holm < 0.001 else f"p = {pair.p_holm:.3f}".replace("0.", ".")


def rank_chances(standings: Standings) -> Plot | None:
    """The chance that each entrant has each rank; framed, the ranks that the prompts leave possible."""
    boards = {d: b for d, b in standings.companions.get(METHOD, {}).items() if _rank_rows(d, b)}
    if not boards:
        return None
    rows = [row for dimension, board in boards.items() for row in _rank_rows(dimension, board)]
    size = max(min(_MAX_MODELS, sum(r.rating is not None for r in b.ratings)) for b in boards.values())
    figure, panels = canvas.panels(list(boards), height=0.45 * size + 1.4, width=0.45 * size + 2.4)
    for dimension, axes in panels:
        rated = [r for r in boards[dimension].ratings if r.rating is not None][:_MAX_MODELS]
        shares = np.array([[_share(rows, dimension, r.model, rank + 1) for rank in range(len(rated))] for r in rated])
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (i, j), share in np.ndenumerate(shares):
            if share >= 0.005:
                axes.text(
                    j, i, f"{share:.0%}", ha="center", va="center", fontsize=8, color="white" if share > 0.6 else "k"
                )
        for i, rating in enumerate(rated):
            if rating.rank_low is not None and rating.rank_high is not None:
                high = min(rating.rank_high, len(rated))
                frame = [
                    rating.rank_low - 1.46,
                    high - 0.54,
                    high - 0.54,
                    rating.rank_low - 1.46,
                    rating.rank_low - 1.46,
                ]
                axes.plot(frame, [i - 0.42, i - 0.42, i + 0.42, i + 0.42, i - 0.42], color=canvas.PALETTE[1], lw=1.6)
        axes.set_xticks(range(len(rated)), [str(rank + 1) for rank in range(len(rated))])
        axes.set_yticks(range(len(rated)), [r.model for r in rated])
        axes.grid(visible=False)
        axes.set_title(dimension, fontsize=10)
        axes.set_xlabel("rank (frame: possible with 95 %)")
    caption = "How likely each rank is. Frame: the ranks that are possible for all entrants at once with 95 %."
    return canvas.finish("rank_chances", figure, rows, caption)


def _rank_rows(dimension: str, board: Leaderboard) -> Rows:
    chances = board.rank_chances
    if chances is None:
        return []
    return [
        {"dimension": dimension, "model": model, "rank": rank + 1, "chance": float(chance)}
        for model, row in zip(board.models, chances, strict=True)
        for rank, chance in enumerate(row)
        if not math.isnan(chance)
    ]


def _share(rows: Rows, dimension: str, model: str, rank: int) -> float:
    return next((r["chance"] for r in rows if (r["dimension"], r["model"], r["rank"]) == (dimension, model, rank)), 0.0)


def detectable_differences(standings: Standings) -> Plot | None:
    """The smallest difference that so many prompts find four times in five, by this run's own variance."""
    known = [p for p in standings.precision.get(METHOD, ()) if p.sigma is not None and p.n_prompts]
    if not known:
        return None
    rows = [row for p in known for row in _curve(p)]
    figure, panels = canvas.panels([p.dimension for p in known], height=3.0, sharey=True)
    for (dimension, axes), precision in zip(panels, known, strict=True):
        line = [r for r in rows if r["dimension"] == dimension]
        n = [r["n_prompts"] for r in line]
        axes.plot(n, [r["detectable"] for r in line], color=canvas.PALETTE[0], lw=1.8, label="one pair")
        corrected = f"any of {precision.n_tests} pairs (Bonferroni)"
        axes.plot(n, [r["corrected"] for r in line], color=canvas.PALETTE[0], lw=1.2, ls="--", label=corrected)
        _mark(axes, precision)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(_SIZES, [str(size) for size in _SIZES])
        axes.minorticks_off()
        axes.set_yticks([20, 40, 60, 100, 200], ["20", "40", "60", "100", "200"])
        axes.set_title(dimension, fontsize=10)
        axes.set_xlabel("prompts")
        axes.legend(frameon=False, fontsize=8)
    panels[0][1].set_ylabel("difference found, rating points")
    caption = "The smallest difference that so many prompts find four times in five."
    return canvas.finish("detectable_differences", figure, rows, caption)


def _mark(axes: Any, precision: Precision) -> None:
    """This run, on its curve."""
    axes.plot(precision.n_prompts, precision.detectable, "o", color=canvas.PALETTE[1], ms=7, zorder=3)
    axes.annotate(
        f"this run: {precision.detectable:.0f}",
        (precision.n_prompts, precision.detectable),
        (-7, -4),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=8,
    )


def _curve(precision: Precision) -> Iterator[dict[str, Any]]:
    assert precision.sigma is not None and precision.n_prompts is not None
    sizes: Sequence[int] = sorted({*np.geomspace(20, 2000, 60).astype(int).tolist(), precision.n_prompts})
    for n in sizes:
        yield {
            "dimension": precision.dimension,
            "n_prompts": n,
            "detectable": detectable(precision.sigma, n),
            "corrected": detectable(precision.sigma, n, n_tests=precision.n_tests),
            "this_run": n == precision.n_prompts,
        }
