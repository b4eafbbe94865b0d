"""Figures of how sure one may be: differences, chances of a rank, and what more prompts would find."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from elo_exp.analysis.comparisons import Difference, Precision
from elo_exp.analysis.power import detectable
from elo_exp.analysis.standings import Standings
from elo_exp.figures import canvas
from elo_exp.figures.canvas import Look, Panel, Span, log_ticks, panel_width, row_span, span, ticks
from elo_exp.figures.lettering import length
from elo_exp.figures.sheets import Sheet
from elo_exp.figures.shown import interval, labels, left_out, method, of_best, room, said_p, sample
from elo_exp.report.findings import METHODS
from elo_exp.results import Leaderboard, Plot

Rows = list[dict[str, Any]]

_MAX_PAIR_MODELS = 8  # whose differences are drawn: 28 pairs; all are in the rows
_MAX_RANK_MODELS = 20
_SIZES = (50, 143)  # prompts of the shipped bank: of a pilot, and all of it
_NEARLY_ALL = 0.9  # of a size: some prompts may have no battle that counts
_FEWEST, _MOST = 20, 2000  # prompts, at least, between the ends of the curve
_HEIGHT = 2.3  # inches of its panels
_LINES = ("detectable", "corrected")
_GREY = "#8A8A8A"
_BLUE, _ORANGE = canvas.PALETTE[:2]


def certainty_plots(standings: Standings) -> list[Plot | None]:
    """The figures that these standings allow: none without intervals."""
    return [differences(standings), rank_chances(standings), detectable_differences(standings)]


# Differences


def differences(standings: Standings) -> Plot | None:
    """Every pair's difference with its 95 % interval; coloured where it holds after Holm's correction."""
    fit = method(standings)
    known = [d for d in standings.differences.get(fit, ()) if d.ci_low is not None]
    if not known:
        return None
    boards = standings.companions[fit]
    best = {
        name: [r.model for r in board.ratings[:_MAX_PAIR_MODELS]] for name, board in boards.items()
    }
    drawn = [d for d in known if {d.higher, d.lower} <= set(best[d.dimension])]
    names = [name for name in standings.dimensions if any(d.dimension == name for d in drawn)]
    of_panel = {
        n: sorted((d for d in drawn if d.dimension == n), key=lambda d: -d.difference)
        for n in names
    }
    called = labels(standings)
    said = {
        name: [f"{called[d.higher]} over {called[d.lower]}" for d in pairs]
        for name, pairs in of_panel.items()
    }
    sheet = Sheet(
        "Which differences hold",
        names,
        width=2.3,
        height=0.3 * max(map(len, of_panel.values())) + 0.15,
        left=room([label for some in said.values() for label in some]),
        right=0.8,
        key=[
            ("holds (Holm, 5 %)", {"color": _BLUE, "lw": 8, "alpha": 0.45}),
            ("may be chance", {"color": _GREY, "lw": 8, "alpha": 0.45}),
            (
                f"{interval(boards[names[0]])}, of the pair alone",
                {"color": canvas.INK, "lw": 2, "marker": "o", "ms": 4},
            ),
        ],
    )
    low, high = span(x for d in drawn for x in (0.0, d.ci_low, d.ci_high) if x is not None)
    for panel in sheet.panels:
        panel.heading(panel.name, "Holm p on the right")
        panel.scale((low, high), row_span(len(said[panel.name])))
        panel.rows(said[panel.name])
        panel.x_axis(ticks(low, high), f"difference, {METHODS.get(fit, fit)} points")
        _ridges(panel, of_panel[panel.name])
    caption = (
        "Which differences hold. Curve: how the difference scatters over prompts; bar: "
        f"{interval(boards[names[0]])}, of the pair alone; p by Holm over all pairs and "
        f"dimensions.{sample(standings, names)}"
    )
    caption += left_out(standings, {name: boards[name] for name in names})
    most = max(len(board.ratings) for board in boards.values())
    caption += (
        of_best(_MAX_PAIR_MODELS, most, "entrants of each dimension")
        if most > _MAX_PAIR_MODELS
        else ""
    )
    return sheet.finish("differences", [d.to_dict() for d in known], caption)


def _ridges(panel: Panel, pairs: Sequence[Difference]) -> None:
    """A normal curve for each pair with its interval on its base line."""
    z = np.linspace(-3, 3, 31)
    colors = [_BLUE if pair.significant else _GREY for pair in pairs]
    hills, bars = [], []
    for y, pair in enumerate(pairs):
        assert pair.std_error is not None
        hills.append(
            np.column_stack(
                [pair.difference + z * pair.std_error, y + 0.2 - 0.75 * np.exp(-(z**2) / 2)]
            )
        )
        bars.append(((pair.ci_low, y + 0.2), (pair.ci_high, y + 0.2)))
        panel.write(
            1, y, said_p(pair.p_holm), on="y", move=(8, 0), color=canvas.PALE, align=(0, 0.5)
        )
    panel.shapes(hills, colors, alpha=0.35)
    panel.segments([((0, 0), (0, 1))], canvas.INK, 1, on="x")
    panel.segments(bars, colors, 2)
    panel.dots(
        [pair.difference for pair in pairs], [y + 0.2 for y in range(len(pairs))], colors, 4.5
    )


# Ranks


def rank_chances(standings: Standings) -> Plot | None:
    """The chance that each entrant has each rank; framed, the ranks that the prompts leave possible."""
    boards = {
        d: b
        for d, b in standings.companions.get(method(standings), {}).items()
        if b.rank_chances is not None
    }
    if not boards:
        return None
    rows = [row for dimension, board in boards.items() for row in _rank_rows(dimension, board)]
    best = {
        d: [r.model for r in b.ratings if r.rating is not None][:_MAX_RANK_MODELS]
        for d, b in boards.items()
    }
    size = max(map(len, best.values()))
    called = labels(standings)
    sheet = Sheet(
        "Which ranks are possible",
        list(boards),
        width=0.45 * size,
        height=0.34 * size,
        left=room([called[model] for some in best.values() for model in some]),
        key=[
            ("chance of the rank", {"color": canvas.shade("Blues", 0.7), "lw": 9}),
            ("possible for all at once, 95 %", {"color": _ORANGE, "lw": 2}),
        ],
    )
    for panel in sheet.panels:
        panel.heading(panel.name, f"over {boards[panel.name].n_clusters:,} prompts")
        _ranks(panel, boards[panel.name], best[panel.name])
        panel.labels([called[model] for model in best[panel.name]])
    caption = (
        "How likely each rank is. Frame: the ranks that are possible for all entrants at once with 95 % (max-t, "
        f"{interval(next(iter(boards.values())))}).{sample(standings, list(boards))}"
    )
    caption += left_out(standings, boards)
    most = max(sum(r.rating is not None for r in board.ratings) for board in boards.values())
    return sheet.finish("rank_chances", rows, caption + of_best(size, most))


def _ranks(panel: Panel, board: Leaderboard, models: Sequence[str]) -> None:
    assert board.rank_chances is not None
    m = len(models)
    shares = board.rank_chances[[board.models.index(model) for model in models], :m]
    panel.scale((-0.5, m - 0.5), (m - 0.5, -0.5))
    panel.grid(shares, "Blues")
    for (y, x), share in np.ndenumerate(shares):
        if share >= 0.005:
            panel.write(x, y, f"{share:.0%}", color="white" if share > 0.6 else canvas.INK)
    for rank in range(m):
        panel.write(rank, 0, str(rank + 1), on="x", move=(0, -5), align=(0.5, 1))
    panel.write(0.5, 0, "rank", on="panel", move=(0, -19), size=8.5, align=(0.5, 1))
    frames = []
    for y, rating in enumerate(map(board.rating, models)):
        if rating.rank_low is not None and rating.rank_high is not None and rating.rank_low <= m:
            left, right = rating.rank_low - 1.45, min(rating.rank_high, m) - 0.55
            frames.append(
                [
                    (left, y - 0.43),
                    (right, y - 0.43),
                    (right, y + 0.43),
                    (left, y + 0.43),
                    (left, y - 0.43),
                ]
            )
    panel.segments(frames, _ORANGE, 1.8)


def _rank_rows(dimension: str, board: Leaderboard) -> Rows:
    assert board.rank_chances is not None
    return [
        {"dimension": dimension, "model": model, "rank": rank + 1, "chance": float(chance)}
        for model, row in zip(board.models, board.rank_chances, strict=True)
        for rank, chance in enumerate(row)
        if not math.isnan(chance)
    ]


# Power


def detectable_differences(standings: Standings) -> Plot | None:
    """The smallest difference that so many prompts find four times in five, by this run's own variance; of a run of the
    shipped bank also what its pilot and the whole of it find."""
    known = [
        p
        for p in standings.precision.get(method(standings), ())
        if p.sigma is not None and p.n_prompts
    ]
    if not known:
        return None
    n_prompts = [p.n_prompts for p in known if p.n_prompts]
    sizes = (
        _SIZES if any(_NEARLY_ALL * size <= n <= size for n in n_prompts for size in _SIZES) else ()
    )
    ends = min(_FEWEST, *n_prompts), max(_MOST, 3 * max(n_prompts))
    curves = [list(_curve(p, sizes, ends)) for p in known]
    wide = panel_width(len(known))
    x, y = _scales(curves, ends, wide)
    marked = [_marked(rows, sizes, x, y, wide) for rows in curves]
    key: list[tuple[str, Look]] = [("one pair", {"color": _BLUE, "lw": 1.8})]
    if known[0].n_tests > 1:
        key.append(
            (
                f"any of {known[0].n_tests:,} differences (Holm)",
                {"color": _BLUE, "lw": 1.2, "ls": "--"},
            )
        )
    key.append(("this run", {"lw": 0, "marker": "o", "ms": 7, "mfc": _ORANGE, "mew": 0}))
    if others := sorted(
        {row["n_prompts"] for rows in marked for row in rows if not row["this_run"]}
    ):
        said = f"{' and '.join(map(str, others))} prompts"
        key.append((said, {"lw": 0, "marker": "o", "ms": 4.5, "mfc": _BLUE, "mew": 0}))
    names = [p.dimension for p in known]
    sheet = Sheet(
        "What more prompts would find",
        names,
        width=wide,
        height=_HEIGHT,
        left=0.65,
        shared_left=True,
        key=key,
    )
    for panel, precision, rows, marks in zip(sheet.panels, known, curves, marked, strict=True):
        panel.heading(panel.name, f"{precision.n_prompts:,} prompts")
        panel.scale(x, y, log_x=True, log_y=True)
        panel.x_axis(_of_prompts(ends, sizes, wide), "prompts")
        panel.y_axis(log_ticks(*y, most=10), "points")
        _power(panel, rows, marks, is_one=precision.n_tests == 1)
    caption = (
        "The smallest difference that so many prompts find four times in five, two-sided at 5 %, by this run's own "
        f"scatter between prompts: {', '.join(f'{p.dimension} {p.n_prompts:,} prompts' for p in known)}. Holm: its "
        "first step, which is Bonferroni."
    )
    every = [row for rows in curves for row in rows]
    return sheet.finish(
        "detectable_differences", every, caption, x="n_prompts", y=_LINES, curves=True
    )


def _of_prompts(ends: tuple[int, int], sizes: Sequence[int], wide: float) -> dict[float, str]:
    """The ticks of an axis `wide` inches long: the sizes, and what has room beside them."""
    if not sizes:
        return log_ticks(*ends, most=round(2.1 * wide))
    beside = (500, 1000) if ends[1] < 200 * ends[0] else (10, 1000)
    return {n: f"{n:,}" for n in sorted((*sizes, *beside)) if ends[0] <= n <= ends[1]}


def _scales(curves: Sequence[Rows], ends: tuple[int, int], wide: float) -> tuple[Span, Span]:
    """Of both axes of panels `wide` inches across, in which there is room for the numbers beside the lines' ends."""
    left, right = math.log10(ends[0]), math.log10(ends[1])
    for run in map(_this_run, curves):
        room = (_length(run["detectable"]) + 8 / 72) / wide
        left = min(left, (math.log10(run["n_prompts"]) - room * right) / (1 - room))
    low = math.log10(min(row["detectable"] for rows in curves for row in rows))
    high = math.log10(max(row["corrected"] for rows in curves for row in rows))
    point = (high - low) / (72 * _HEIGHT - 20)
    return (10**left, 10**right), (10 ** (low - 5 * point), 10 ** (high + 15 * point))


def _marked(rows: Rows, sizes: Sequence[int], x: Span, y: Span, wide: float) -> Rows:
    """This run, and those sizes whose numbers stand clear of this run's."""
    run = _this_run(rows)

    def is_clear(row: dict[str, Any]) -> bool:
        across = wide * _share(row["n_prompts"], run["n_prompts"], x)
        return all(
            across > max(_length(row[name]), _length(run[name])) + 3 / 72
            or _HEIGHT * _share(row[name], run[name], y) > 9 / 72
            for name in _LINES
        )

    return [
        run,
        *(row for row in rows if row["n_prompts"] in sizes and row is not run and is_clear(row)),
    ]


def _share(one: float, other: float, ends: Span) -> float:
    """Of a logarithmic axis, between the two."""
    return abs(math.log(one / other)) / math.log(ends[1] / ends[0])


def _length(points: float) -> float:
    """Of a number beside a line, in inches."""
    return length(f"{points:,.0f}", 8, bold=True)


def _this_run(rows: Rows) -> dict[str, Any]:
    return next(row for row in rows if row["this_run"])


def _power(panel: Panel, rows: Rows, marked: Rows, *, is_one: bool) -> None:
    """`is_one`: there is one pair, and nothing to correct for."""
    looks = ((1.8, "-", (-6, -10), (1, 0.5)), (1.2, "--", (6, 4), (0, 0)))
    for name, (lw, ls, move, align) in list(zip(_LINES, looks, strict=True))[: 1 if is_one else 2]:
        panel.line(
            [row["n_prompts"] for row in rows], [row[name] for row in rows], _BLUE, lw=lw, ls=ls
        )
        for row in marked:
            color, size = (_ORANGE, 7) if row["this_run"] else (_BLUE, 4.5)
            panel.dots([row["n_prompts"]], [row[name]], color, size)
            look: Any = {"move": move, "align": align, "bold": row["this_run"]}
            panel.write(row["n_prompts"], row[name], f"{row[name]:,.0f}", **look)


def _curve(
    precision: Precision, sizes: Sequence[int], ends: tuple[int, int]
) -> Iterator[dict[str, Any]]:
    assert precision.sigma is not None and precision.n_prompts is not None
    for n in sorted(
        {*np.geomspace(*ends, 30).round().astype(int).tolist(), *sizes, precision.n_prompts}
    ):
        yield {
            "dimension": precision.dimension,
            "n_prompts": n,
            "detectable": detectable(precision.sigma, n),
            "corrected": detectable(precision.sigma, n, n_tests=precision.n_tests),
            "this_run": n == precision.n_prompts,
        }
