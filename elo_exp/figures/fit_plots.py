"""Figures of whether one rating for each entrant is enough to say who beats whom."""

from __future__ import annotations

from typing import Any

from elo_exp.analysis import transitivity
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.win_rates import shares
from elo_exp.figures import canvas
from elo_exp.figures.canvas import Panel, percents, row_span, span, ticks
from elo_exp.figures.sheets import Sheet
from elo_exp.figures.shown import labels, room, said_p, share_ends
from elo_exp.results import Plot

Rows = list[dict[str, Any]]

_MAX_PAIRS = 30  # of a dimension, those that stand furthest apart
_MAX_BARS = 60  # pairs of a dimension; with more, the error bars would hide the points
_MAX_CIRCLE_MODELS = 7  # 35 triples
_MAX_TRIPLES = 20  # of a dimension, those with the most circles
_APART = 2.0  # standard errors: by chance one pair in twenty is further away
_BLUE, _ORANGE = canvas.PALETTE[:2]
_GREY = "#8A8A8A"


def fit_plots(standings: Standings) -> list[Plot | None]:
    """The figures that these standings allow."""
    return [calibration(standings), pair_residuals(standings), circles(standings)]


# Predicted and observed


def calibration(standings: Standings) -> Plot | None:
    """Observed against predicted win rates of every pair, seen from the favourite; none where they must be equal."""
    rows = [
        row for dimension in standings.dimensions for row in _calibration_rows(standings, dimension)
    ]
    if not rows:
        return None
    names = list(dict.fromkeys(row["dimension"] for row in rows))
    with_bars = [
        name for name in names if sum(row["dimension"] == name for row in rows) <= _MAX_BARS
    ]
    seen = [row[name] for row in rows for name in ("expected", "observed", "observed_decisive")]
    bars = [row for row in rows if row["dimension"] in with_bars]
    seen += [
        row[f"observed{of}_ci_{end}"]
        for row in bars
        for of in ("", "_decisive")
        for end in ("low", "high")
    ]
    low, high = span(share for share in seen if share is not None)
    sheet = Sheet(
        "Do the ratings predict who wins?",
        names,
        width=2.6,
        height=2.6,
        left=0.65,
        shared_left=True,
        key=[
            (
                "ties half a win",
                {"color": _BLUE, "lw": 1.5 if bars else 0, "marker": "o", "ms": 6, "mew": 0},
            ),
            (
                "decisive games only",
                {"color": _ORANGE, "lw": 1 if bars else 0, "marker": "o", "ms": 5, "mfc": "white"},
            ),
            ("as predicted", {"color": canvas.INK, "lw": 0.8}),
        ],
    )
    for panel in sheet.panels:
        here = [row for row in rows if row["dimension"] == panel.name]
        panel.heading(
            panel.name, f"{len(here):,} pairs, {sum(row['n_games'] for row in here):,} games"
        )
        panel.scale((low, high), (low, high))
        panel.x_axis(percents(low, high), "favourite wins, by Bradley-Terry")
        panel.y_axis(percents(low, high), "favourite wins, observed")
        panel.segments([((low, low), (high, high))], canvas.INK, 0.8)
        _observed(panel, here, "observed_decisive", _ORANGE, hollow=True)
        _observed(panel, here, "observed", _BLUE)
    of_bars = _of_bars(bars, are_some=len(bars) < len(rows))
    caption = (
        f"How often the favourite of each pair wins beside what its rating predicts{of_bars}. The "
        "ratings count a tie as half a win, so decisive games alone lie further from one half. n: "
        f"{'; '.join(_of_games(rows, name) for name in names)}."
    )
    return sheet.finish("calibration", rows, caption)


def _calibration_rows(standings: Standings, dimension: str) -> Rows:
    found, battles = standings.diagnoses.get(dimension), standings.battles[dimension]
    if not found or not found["transitivity"]["df"]:  # every pair has its own rating difference
        return []
    half, decisive = (shares(battles, use="both", ties=ties) for ties in ("half", "drop"))
    rows: Rows = []
    for pair in found["pair_residuals"]:
        names = pair["model_a"], pair["model_b"]
        is_favourite = pair["expected"] >= 0.5
        every, won = half[names], decisive.get(names)
        rows.append(
            {
                "dimension": dimension,
                "favourite": names[not is_favourite],
                "other": names[is_favourite],
                "expected": max(pair["expected"], 1 - pair["expected"]),
                "n_prompts": every.n_prompts,
                "n_games": every.n_games,
                "observed": every.share if is_favourite else 1 - every.share,
                "std_error": every.std_error,
                "n_prompts_decisive": won.n_prompts if won else 0,
                "n_decisive": won.n_games if won else 0,
                "observed_decisive": won and (won.share if is_favourite else 1 - won.share),
                "std_error_decisive": won and won.std_error,
            }
        )
    for row in rows:
        for of in ("", "_decisive"):
            row.update(
                share_ends(
                    f"observed{of}",
                    row[f"observed{of}"],
                    row[f"std_error{of}"],
                    row[f"n_prompts{of}"],
                )
            )
    return rows


def _observed(panel: Panel, rows: Rows, name: str, color: str, *, hollow: bool = False) -> None:
    known = [row for row in rows if row[name] is not None]
    if len(rows) <= _MAX_BARS:
        bars = [
            [(row["expected"], row[f"{name}_ci_{end}"]) for end in ("low", "high")] for row in known
        ]
        panel.segments([bar for bar in bars if bar[0][1] is not None], color, 1.3, alpha=0.7)
    at = [row["expected"] for row in known], [row[name] for row in known]
    panel.dots(*at, color, 5.5 if len(rows) <= _MAX_BARS else 3, hollow=hollow)


def _of_bars(rows: Rows, *, are_some: bool) -> str:
    """What the bars of these pairs are; `are_some`: not all have one."""
    if all(row["std_error"] is None for row in rows):
        return ""
    where = f" (where there are {_MAX_BARS} pairs at most)" if are_some else ""
    return f"; bar{where}: 95 %, Wilson's with the prompt-clustered error"


def _of_games(rows: Rows, name: str) -> str:
    here = [row for row in rows if row["dimension"] == name]
    return f"{name} {sum(r['n_decisive'] for r in here):,} of {sum(r['n_games'] for r in here):,} games decisive"


# Pairs that no rating explains


def pair_residuals(standings: Standings) -> Plot | None:
    """How far each pair's win rate is from what Bradley-Terry expects, in its own standard errors."""
    rows = [
        row
        for found in standings.diagnoses.values()
        for row in found["pair_residuals"]
        if row["z"] is not None
    ]
    if not rows:
        return None
    names = list(dict.fromkeys(row["dimension"] for row in rows))
    drawn = {name: _furthest([row for row in rows if row["dimension"] == name]) for name in names}
    called = labels(standings)
    said = {
        n: [f"{called[r['model_a']]} v {called[r['model_b']]}" for r in some]
        for n, some in drawn.items()
    }
    reach = 1.1 * max(3.0, *(abs(row["z"]) for row in rows))
    sheet = Sheet(
        "Which pairs stand apart from their ratings?",
        names,
        width=2.3,
        height=0.24 * max(map(len, drawn.values())) + 0.15,
        left=room([label for some in said.values() for label in some]),
        key=[
            ("further than two standard errors", {"color": _ORANGE, "lw": 8}),
            ("within, as nineteen of twenty are by chance", {"color": _GREY, "lw": 8}),
        ],
    )
    for panel in sheet.panels:
        test = standings.diagnoses[panel.name]["transitivity"]
        panel.heading(panel.name, _explained(test["p_value"]))
        panel.scale((-reach, reach), row_span(len(said[panel.name])))
        panel.rows(said[panel.name])
        panel.x_axis(ticks(-reach, reach), "first wins more than expected, standard errors")
        band = [((x, 0), (x, 1)) for x in (-_APART, _APART)]
        panel.segments(band, canvas.INK, 0.8, on="x", ls=":")
        panel.segments([((0, 0), (0, 1))], canvas.INK, 1, on="x")
        z = [row["z"] for row in drawn[panel.name]]
        colors = [_ORANGE if abs(x) > _APART else _GREY for x in z]
        panel.segments([((0, y), (x, y)) for y, x in enumerate(z)], colors, 7)
    caption = (
        "Win rates less what Bradley-Terry expects, in prompt-clustered standard errors, a tie counting half. n: "
        f"{'; '.join(_of_test(standings, name) for name in names)}."
    )
    if any(
        len(some) < sum(row["dimension"] == name for row in rows) for name, some in drawn.items()
    ):
        caption += (
            f" Only the {_MAX_PAIRS} pairs of a dimension that stand furthest apart are shown."
        )
    return sheet.finish("pair_residuals", rows, caption)


def _furthest(rows: Rows) -> Rows:
    return sorted(
        sorted(rows, key=lambda row: -abs(row["z"]))[:_MAX_PAIRS], key=lambda row: -row["z"]
    )


def _explained(p: float | None) -> str:
    return "" if p is None else f"one rating each explains all: {said_p(p)}"


def _of_test(standings: Standings, dimension: str) -> str:
    test = standings.diagnoses[dimension]["transitivity"]
    return f"{dimension} {test['n_prompts']:,} prompts, {test['n_pairs']:,} pairs"


# Circles


def circles(standings: Standings) -> Plot | None:
    """Of every three entrants, on how many prompts they beat one another in a circle; nothing where they never do."""
    if len(standings.models) > _MAX_CIRCLE_MODELS:
        return None
    rows: Rows = [
        {
            "dimension": dimension,
            **{f"model_{name}": model for name, model in zip("abc", triple.models, strict=True)},
            "n_prompts": triple.n_prompts,
            "n_cyclic_prompts": triple.n_cyclic_prompts,
            "share": triple.share,
        }
        for dimension, battles in standings.battles.items()
        for triple in transitivity.cycles_by_triple(battles, dimension=dimension)
    ]
    if not any(row["n_cyclic_prompts"] for row in rows):
        return None
    names = list(dict.fromkeys(row["dimension"] for row in rows))
    drawn = {
        n: sorted((r for r in rows if r["dimension"] == n), key=lambda r: -r["share"])[
            :_MAX_TRIPLES
        ]
        for n in names
    }
    called = labels(standings)
    said = {
        n: [", ".join(called[r[f"model_{x}"]] for x in "abc") for r in some]
        for n, some in drawn.items()
    }
    high = 1.15 * max(0.05, *(row["share"] for row in rows))
    sheet = Sheet(
        "Where do three entrants beat one another in a circle?",
        names,
        width=2.0,
        height=0.26 * max(map(len, drawn.values())) + 0.15,
        left=room([label for some in said.values() for label in some]),
        right=0.8,
    )
    for panel in sheet.panels:
        every = standings.diagnoses[panel.name]["cycles"]
        panel.heading(
            panel.name,
            f"any circle on {every['n_cyclic_prompts']:,} of {every['n_prompts']:,} prompts",
        )
        panel.scale((0, high), row_span(len(said[panel.name])))
        panel.rows(said[panel.name])
        panel.x_axis(percents(0, high), "prompts with a circle")
        panel.segments(
            [((0, y), (row["share"], y)) for y, row in enumerate(drawn[panel.name])], _BLUE, 7
        )
        for y, row in enumerate(drawn[panel.name]):
            share = f"{row['n_cyclic_prompts']:,} of {row['n_prompts']:,}"
            panel.write(
                1, y, share, on="y", move=(6, 0), size=7.5, color=canvas.PALE, align=(0, 0.5)
            )
    caption = (
        "Of every three entrants, the share of prompts on which a beats b, b beats c, and c beats a; a tie breaks a "
        "circle. On the right: of so many prompts on which all three met."
    )
    return sheet.finish("circles", rows, caption)
