"""The end of a tournament, and of rated battles, on the console: at most 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.ratings.leaderboard import Rating
from elo_exp.report.checks import Check
from elo_exp.report.formats import number, percent
from elo_exp.report.page import template
from elo_exp.report.tournament_page import describe

_COLUMNS = 100
_NAME = 18, 34  # characters of a name, at least and at most
_PLOT = 34  # characters of the scale of intervals
_MEASURED = {
    "flips": "flips",
    "first_shown": "first shown wins",
    "length": "longer wins",
    "invalid": "invalid",
}


def text(standings: Standings, quality: Sequence[JudgeQuality] = ()) -> str:
    """Return the leaderboards, the judge's quality and the order experiment."""
    dimensions = describe(standings, quality)
    boards = [d.board for d in dimensions if d.board]
    rows = [r for d in dimensions for some in d.groups for r in some]
    rows = [row for row in rows if row.rating is not None]
    ends = [
        end
        for row in rows
        for end in (row.rating, row.ci_low, row.ci_high)
        if end is not None
    ]
    width = max([_NAME[0], *(min(_NAME[1], len(row.model) + 1) for row in rows)])
    checks = [(d.name, check) for d in dimensions for check in d.checks]
    measured = {
        word: _by_dimension([check for _, check in checks if check.name == name])
        for name, word in _MEASURED.items()
    }
    digits = 3 if standings.is_of_scores else 0
    elo = [d.elo[standings.k] for d in dimensions if standings.k in d.elo]
    filled = template("tournament.txt.j2").render(
        standings=standings,
        scored=standings.is_of_scores,
        dimensions=dimensions,
        label=boards[0].label if boards else None,
        interval=boards[0].interval if boards else None,
        width=width,
        row=lambda rating: _row(rating, width, min(ends), max(ends), digits),
        checks=checks,
        measured={word: value for word, value in measured.items() if value},
        k=standings.k,
        n_perms=len(elo[0].samples) if elo and elo[0].samples is not None else len(elo),
    )
    wrapped = [part for line in filled.splitlines() for part in _wrapped(line)]
    return "\n".join(wrapped).replace("\N{NO-BREAK SPACE}", " ")


def _wrapped(line: str) -> list[str]:
    if len(line) <= _COLUMNS:
        return [line.rstrip()]
    return textwrap.wrap(
        line, _COLUMNS, subsequent_indent=" " * 14, replace_whitespace=False
    )


def _row(rating: Rating, width: int, low: float, high: float, digits: int) -> str:
    """A line of the leaderboard: the rating as a dot on its interval, from low to high."""

    def place(value: float | None) -> int:
        assert value is not None
        return round((value - low) / max(high - low, 1e-9) * (_PLOT - 1))

    rank, interval = str(rating.rank_low or rating.rank), ""
    if rating.rank_high not in (None, rating.rank_low):
        rank = f"{rating.rank_low}-{rating.rank_high}"
    cells = [" "] * _PLOT
    if rating.ci_low is not None and rating.ci_high is not None:
        interval = (
            f"[{number(rating.ci_low, digits)}, {number(rating.ci_high, digits)}]"
        )
        for cell in range(place(rating.ci_low), place(rating.ci_high) + 1):
            cells[cell] = "─"
    cells[place(rating.rating)] = "●"
    name = rating.model
    if len(name) >= width:
        name = f"{name[: width // 2]}…{name[len(name) - width // 2 + 3 :]}"
    return (
        f"{rank:>6}  {name:<{width}}{number(rating.rating, digits):>6}  {interval:>14}  "
        f"{''.join(cells)}"
    )


def _by_dimension(checks: Sequence[Check]) -> str:
    """One figure where all agree, else each: "91/25/64 %"."""
    values = [check.value for check in checks if check.value is not None]
    if not values and any(check.state == "caution" for check in checks):
        return "not measured: one order"
    if len({percent(value) for value in values}) <= 1:
        return percent(values[0]) if values else ""
    return f"{'/'.join(number(100 * value) for value in values)} %"
