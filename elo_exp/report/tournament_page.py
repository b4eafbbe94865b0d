"""What page and console show of a tournament, and of rated battles: who leads, how certain that is, and
whether the judge can be trusted."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.checks import Check
from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.conclusions import Conclusion
from elo_exp.analysis.standings import Standings
from elo_exp.data.battles import Battles
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.report import page as pages
from elo_exp.report import viewer
from elo_exp.report.viewer import Comparisons, Judgments
from elo_exp.report.words import judge
from elo_exp.report.words import tournament as words

_COLUMNS = 100  # of the console
# Figures of which the leaderboard and the matrix of the page are the better form
_SAID_BY_TABLES = ("ratings", "leaderboard", "pairwise_winrates")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """What one dimension contributes to the page; `board` is of the primary method."""

    name: str
    battles: Battles
    n_prompts: int | None
    board: Leaderboard | None
    # The rows of `board`, then those of each group of entrants that nothing links to it.
    groups: Sequence[Sequence[Rating]]
    others: Sequence[Leaderboard]  # of the other methods but Elo
    conclusion: Conclusion | None  # None of an arena, whose placements have their own
    checks: Sequence[Check]
    pairs: Sequence[Difference]
    # By row and column of a matrix: how often the row beats the column, ties counting half, in how
    # many battles, and whether their ratings differ significantly
    cells: Mapping[tuple[str, str], tuple[float, int, bool]]
    win_rate: Mapping[str, float]  # mean over opponents
    elo: Mapping[float, Leaderboard]  # by K
    diagnosis: Mapping[str, Any]


def context(
    standings: Standings,
    comparisons: Comparisons | None = None,
    judgments: Judgments | None = None,
) -> dict[str, Any]:
    """Return what page and console show.

    comparisons, judgments  with all texts; None where the page is to have none
    """
    dimensions = [dimension(standings, name) for name in standings.dimensions]
    conclusions = [*standings.conclusions.values()]
    boards = [d.board for d in dimensions if d.board]
    return {
        "standings": standings,
        "headline": words.headline(conclusions),
        "points": words.points(conclusions) if conclusions else None,
        "judge_line": judge.line(
            standings.checks, conclusions[0].scope.kind if conclusions else "model"
        ),
        "without": _SAID_BY_TABLES,
        "scored": standings.is_of_scores,
        "dimensions": dimensions,
        "color": pages.colors(standings.models),
        "scale": pages.scale(r for d in dimensions for rows in d.groups for r in rows),
        "label": boards[0].label if boards else None,
        "interval": next((b.interval for b in boards if b.interval), None),
        "texts": viewer.texts(comparisons or {}, judgments or {}, points(standings)),
        "limits": {"rows": 100, "matrix": 20, "pairs": 45},
        "k": standings.k,
        "ks": sorted({k for d in dimensions for k in d.elo}),
        "elo": [d.elo[standings.k] for d in dimensions if standings.k in d.elo],
    }


def points(standings: Standings) -> dict[str, dict[str, float]]:
    """Return the ratings of the primary method by dimension and model."""
    boards = standings.companions.get(standings.primary_method or "", {})
    return {
        name: {r.model: r.rating for r in board.ratings if r.rating is not None}
        for name, board in boards.items()
    }


def dimension(standings: Standings, name: str) -> Dimension:
    board, pairs = standings.board(name), standings.pairs(name)
    companions = {key: by.get(name) for key, by in standings.companions.items()}
    companions.pop(standings.primary_method or "", None)
    groups = _groups(board, standings.groups.get(name, ())) if board else []
    significant = {(d.higher, d.lower) for d in pairs if d.significant}
    cells, against = {}, dict[str, list[float]]()
    for rate in standings.win_rates:
        if rate.dimension == name:
            first, second = rate.entrant_a, rate.entrant_b
            is_significant = bool({(first, second), (second, first)} & significant)
            n = rate.a_wins + rate.b_wins + rate.ties
            share = (rate.a_wins + 0.5 * rate.ties) / n
            for pair, own in (((first, second), share), ((second, first), 1 - share)):
                cells[pair] = own, n, is_significant
                against.setdefault(pair[0], []).append(own)
    return Dimension(
        name=name,
        battles=standings.battles[name],
        n_prompts=standings.n_prompts(name),
        board=board,
        groups=groups,
        others=[other for other in companions.values() if other],
        conclusion=standings.conclusions.get(name),
        checks=standings.checks.get(name, ()),
        pairs=pairs,
        cells=cells,
        win_rate={model: sum(own) / len(own) for model, own in against.items()},
        elo=standings.elo.get(name, {}),
        diagnosis=standings.diagnoses.get(name, {}),
    )


def _groups(board: Leaderboard, others: Sequence[Leaderboard]) -> list[list[Rating]]:
    separate = [[r for r in b.ratings if r.rating is not None] for b in others]
    models = {row.model for rows in separate for row in rows}
    return [[row for row in board.ratings if row.model not in models], *separate]


# The console


def text(shown: Mapping[str, Any]) -> str:
    """Return the leaderboards, the judge's quality and the order experiment, 100 columns wide.

    shown  the `context` of the page
    """
    wrapper = textwrap.TextWrapper(
        _COLUMNS, subsequent_indent=" " * 14, replace_whitespace=False
    )
    return "\n".join(
        line if len(line) <= _COLUMNS else wrapper.fill(line)
        for line in pages.text("tournament", **shown).splitlines()
    )
