"""Figures of what else than quality moves a judge: the length of a response."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from elo_exp.analysis.standings import Standings
from elo_exp.figures.ratings import share_interval
from elo_exp.figures.style import (
    BLUE,
    ORANGE,
    SOFT,
    Array,
    Row,
    column,
    grouped,
    panels,
    saved,
    styled,
)
from elo_exp.records import Plot


def plots(standings: Standings) -> list[Plot]:
    """Draw what these standings allow: lengths are known only where the responses are."""
    drawn = length_effect(standings)
    return [] if drawn is None else [drawn]


@styled
def length_effect(standings: Standings) -> Plot | None:
    """Draw how often the longer response wins by how much longer it is, and the fitted curve."""
    found = {
        name: diagnosis["length"]
        for name, diagnosis in standings.diagnoses.items()
        if "length" in diagnosis and diagnosis["length"]["terciles"]
    }
    rows: list[Row] = [
        {
            **tercile,
            **dict(
                zip(
                    ("win_rate_ci_low", "win_rate_ci_high"), _ends(tercile), strict=True
                )
            ),
            **{
                name: length["effect"][name]
                for name in ("scale", "effect", "ci_low", "ci_high")
            },
        }
        for length in found.values()
        for tercile in length["terciles"]
    ]
    if not rows:
        return None
    effects = [length["effect"] for length in found.values()]
    figure, axes = panels(
        list(found),
        heading="Win rate of the longer response",
        notes=[
            f"{e['n_prompts']:,} prompts, {e['n_games']:,} verdicts" for e in effects
        ],
        key={
            "all verdicts, in three parts by length": {"color": BLUE, "marker": "o"},
            "between equally rated entrants (fit)": {"color": ORANGE},
        },
    )
    for ax, here in zip(axes, grouped(rows, "dimension").values(), strict=True):
        _by_length(ax, here)
    axes[0].set(ylabel="longer response wins", ylim=(-0.03, 1.03))
    axes[0].yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    caption = (
        "Win rate of the longer response, a tie counting half, by how much longer it is. Points: "
        "all verdicts in three parts, 95 % Wilson intervals, prompt-clustered. Curve: logistic fit "
        "between equally rated entrants, 95 % band, prompt-clustered."
    )
    return saved("length_effect", figure, rows, caption)


def _ends(tercile: Row) -> tuple[float | None, float | None]:
    return share_interval(
        tercile["win_rate"], tercile["std_error"], tercile["n_prompts"]
    )


def _by_length(ax: Axes, rows: Sequence[Row]) -> None:
    fit = rows[0]
    x = np.linspace(0, max(row["longest"] for row in rows), 60)
    if fit["effect"] is not None:
        strength = np.tanh(x / fit["scale"])
        ax.plot(x, _longer_wins(fit["effect"] * strength), color=ORANGE)
        if fit["ci_low"] is not None:
            low, high = (
                _longer_wins(fit[end] * strength) for end in ("ci_low", "ci_high")
            )
            ax.fill_between(x, low, high, color=ORANGE, alpha=0.2, lw=0)
    shortest, longest = column(rows, "shortest"), column(rows, "longest")
    wins, middle = column(rows, "win_rate"), (shortest + longest) / 2
    ax.hlines(wins, shortest, longest, color=BLUE, lw=0.8, alpha=0.6)
    ax.vlines(
        middle,
        column(rows, "win_rate_ci_low"),
        column(rows, "win_rate_ci_high"),
        color=BLUE,
    )
    ax.plot(middle, wins, "o", color=BLUE)
    ax.axhline(0.5, color=SOFT, lw=0.8, ls=(0, (3, 3)))
    ax.set(xlabel="difference in length, characters", xlim=(0, None))


def _longer_wins(log_odds: Array) -> Array:
    return np.asarray((1 + np.tanh(log_odds / 2)) / 2)
