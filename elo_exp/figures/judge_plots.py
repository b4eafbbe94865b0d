"""Figures of what else moves a judge than who is better: the place in which a response is shown, and its length."""

from __future__ import annotations

from typing import Any

import numpy as np

from elo_exp.analysis.standings import Standings
from elo_exp.figures import canvas, names
from elo_exp.figures.canvas import Panel, panel_width, percents, row_span, span, ticks
from elo_exp.figures.lettering import length
from elo_exp.figures.sheets import Sheet
from elo_exp.figures.shown import colored, labels, model_key, of_best, share_ends
from elo_exp.results import Plot
from elo_exp.statistics.likelihood import Array

Rows = list[dict[str, Any]]

_BLUE, _ORANGE = canvas.PALETTE[:2]
_FLIPS = "flips when the order is swapped"


def judge_plots(standings: Standings) -> list[Plot | None]:
    """The figures that these standings allow; lengths are known only where the responses are."""
    return [position_effect(standings), length_effect(standings), length_ratings(standings)]


def _diagnoses(standings: Standings, kind: str) -> dict[str, Any]:
    """By dimension, where there are any."""
    return {
        dimension: found[kind] for dimension, found in standings.diagnoses.items() if kind in found
    }


# Place


def position_effect(standings: Standings) -> Plot | None:
    """How often the first shown wins, of equals, with the flips beside it."""
    rows = [
        {
            "dimension": dimension,
            "judge": ", ".join(
                sorted({b.judge_model for b in standings.battles[dimension] if b.judge_model})
            ),
            **{
                name: found[name]
                for name in ("n_prompts", "n_decisive", "p_first", "ci_low", "ci_high")
            },
            "n_two_order": found["n_verdicts"] // 2,
            "n_flips": sum(b.is_inconsistent for b in standings.battles[dimension]),
        }
        for dimension, found in _diagnoses(standings, "position").items()
        if found["p_first"] is not None
    ]
    if not rows:
        return None
    judges = names.labels(row["judge"] for row in rows)
    said = [
        f"{row['dimension']} ({judges[row['judge']]})" if row["judge"] else row["dimension"]
        for row in rows
    ]
    sure = [
        x for row in rows for x in (row["p_first"], row["ci_low"], row["ci_high"]) if x is not None
    ]
    reach = max(0.08, *(abs(x - 0.5) for x in sure))
    low, high = span([0.5 - reach, 0.5 + reach])
    sheet = Sheet(
        "Does the judge prefer what it is shown first?",
        [""],
        width=3.6,
        height=0.4 * len(rows) + 0.1,
        left=max(length(label, 8) for label in said) + 0.15,
        right=length(_FLIPS, 8) + 0.2,
        heading=1,
        bottom=0.65,
    )
    (panel,) = sheet.panels
    panel.scale((low, high), row_span(len(rows)))
    panel.rows(said)
    panel.x_axis(percents(low, high), "first shown wins, of equals, where one does")
    panel.write(
        0, 0, "← prefers the second", on="panel", move=(0, -34), color=canvas.PALE, align=(0, 1)
    )
    panel.write(
        1, 0, "prefers the first →", on="panel", move=(0, -34), color=canvas.PALE, align=(1, 1)
    )
    panel.write(1, 1, _FLIPS, on="panel", move=(8, 6), color=canvas.PALE, align=(0, 0))
    panel.segments([((0.5, 0), (0.5, 1))], canvas.INK, 1, on="x")
    for y, row in enumerate(rows):
        _place(panel, y, row)
    caption = (
        "How often the first shown would win if both were equally good, ties left out; 95 % by the prompt-clustered "
        f"sandwich. {'; '.join(_of_place(row) for row in rows)}."
    )
    return sheet.finish("position_effect", rows, caption)


def _place(panel: Panel, y: int, row: dict[str, Any]) -> None:
    is_known = row["ci_low"] is not None
    color = _ORANGE if is_known and not row["ci_low"] <= 0.5 <= row["ci_high"] else _BLUE
    panel.segments([((0.5, y), (row["p_first"], y))], color, 9, alpha=0.45)
    panel.segments([((row["ci_low"], y), (row["ci_high"], y))] if is_known else [], color, 2)
    panel.dots([row["p_first"]], [y], color, 6)
    flips = (
        f"{row['n_flips']:,} of {row['n_two_order']:,} ({row['n_flips'] / row['n_two_order']:.0%})"
    )
    panel.write(1, y, flips, on="y", move=(8, 0), align=(0, 0.5))


def _of_place(row: dict[str, Any]) -> str:
    return (
        f"{row['dimension']} {row['n_prompts']:,} prompts, {row['n_decisive']:,} decisive verdicts"
    )


# Length


def length_effect(standings: Standings) -> Plot | None:
    """How often the longer response wins, by how much longer it is, with the fit between equals."""
    found = {
        name: control
        for name, control in _diagnoses(standings, "length").items()
        if control["terciles"]
    }
    rows = [
        {
            **tercile,
            **share_ends(
                "win_rate", tercile["win_rate"], tercile["std_error"], tercile["n_prompts"]
            ),
            **{name: control["effect"][name] for name in ("scale", "effect", "ci_low", "ci_high")},
        }
        for control in found.values()
        for tercile in control["terciles"]
    ]
    if not rows:
        return None
    drawn = ("win_rate", "win_rate_ci_low", "win_rate_ci_high")
    low, high = span(
        [0.4, 0.6, *(row[name] for row in rows for name in drawn if row[name] is not None)]
    )
    sheet = Sheet(
        "Does the judge prefer what is longer?",
        list(found),
        width=panel_width(len(found)),
        height=2.3,
        left=0.65,
        shared_left=True,
        key=[
            (
                "all games with so large a difference, 95 % over prompts",
                {"color": _BLUE, "lw": 2, "marker": "o", "ms": 5},
            ),
            ("between equals (logistic fit, 95 %)", {"color": _ORANGE, "lw": 1.6}),
        ],
    )
    for panel in sheet.panels:
        effect = found[panel.name]["effect"]
        panel.heading(panel.name, f"{effect['n_games']:,} games on {effect['n_prompts']:,} prompts")
        longest = max(tercile["longest"] for tercile in found[panel.name]["terciles"])
        panel.scale((0, longest), (low, high))
        panel.x_axis(ticks(0, longest), "longer by so many characters")
        panel.y_axis(percents(low, high), "longer wins, ties half")
        panel.segments([((0, 0.5), (1, 0.5))], canvas.INK, 1, on="y")
        _terciles(panel, [row for row in rows if row["dimension"] == panel.name])
    caption = (
        "How often the longer response wins, a tie counting half: games in three parts by how much longer it is, and "
        "the logistic fit between equally good entrants. Bar: 95 %, Wilson's with the prompt-clustered error; band: "
        "95 % by the prompt-clustered sandwich."
    )
    return sheet.finish("length_effect", rows, caption)


def _terciles(panel: Panel, rows: Rows) -> None:
    longest = max(row["longest"] for row in rows)
    fit = rows[0]
    if fit["effect"] is not None:
        x = np.linspace(0, longest, 60)
        column = np.tanh(x / fit["scale"])
        panel.line(x, _longer_wins(fit["effect"] * column), _ORANGE, lw=1.6)
        if fit["ci_low"] is not None:
            ends = _longer_wins(fit["ci_low"] * column), _longer_wins(fit["ci_high"] * column)
            panel.band(x, *ends, color=_ORANGE, alpha=0.2)
    for row in rows:
        x = (row["shortest"] + row["longest"]) / 2
        panel.segments(
            [((row["shortest"], row["win_rate"]), (row["longest"], row["win_rate"]))],
            _BLUE,
            0.8,
            alpha=0.6,
        )
        if row["win_rate_ci_low"] is not None:
            panel.segments([((x, row["win_rate_ci_low"]), (x, row["win_rate_ci_high"]))], _BLUE, 2)
        panel.dots([x], [row["win_rate"]], _BLUE, 5.5)


def _longer_wins(log_odds: Array) -> Array:
    return np.asarray((1 + np.tanh(log_odds / 2)) / 2)


def length_ratings(standings: Standings) -> Plot | None:
    """Ratings as they are and between responses of equal length."""
    colors = colored(standings)
    rows = [
        row
        for control in _diagnoses(standings, "length").values()
        for row in control["ratings"]
        if row["rating"] is not None and row["rating_at_equal_length"] is not None
    ]
    drawn = [row for row in rows if row["model"] in colors]
    if not drawn:
        return None
    low, high = span(row[name] for row in drawn for name in ("rating", "rating_at_equal_length"))
    sheet = Sheet(
        "What length does to the ratings",
        list(dict.fromkeys(row["dimension"] for row in drawn)),
        width=2.0,
        height=2.6,
        left=0.7,
        right=0.4,
        shared_left=True,
        key=model_key(colors, labels(standings)),
    )
    for panel in sheet.panels:
        panel.heading(panel.name, "Bradley-Terry, ties half")
        panel.scale((-0.15, 1.15), (low, high))
        panel.x_axis({0: "as it is", 1: "at equal length"})
        panel.y_axis(ticks(low, high), "rating")
        for row in (row for row in drawn if row["dimension"] == panel.name):
            ends, color = [row["rating"], row["rating_at_equal_length"]], colors[row["model"]]
            panel.line([0, 1], ends, color, lw=1.6)
            panel.dots([0, 1], ends, color, 5)
    caption = "Bradley-Terry ratings of the same games as they are, and as they would be if all responses were equally long."
    return sheet.finish(
        "length_ratings", rows, caption + of_best(len(colors), len(standings.models))
    )
