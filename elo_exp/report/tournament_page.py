"""What page and console show of a tournament, and of rated battles: who leads, how certain that is, and
whether the judge can be trusted."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.checks import Check, checks, finding
from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.standings import Standings
from elo_exp.data.battles import Battles
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.report import page as pages
from elo_exp.report import viewer
from elo_exp.report.viewer import Comparisons, Judgments
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
    finding: Mapping[str, Any]
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
    quality: Sequence[Mapping[str, Any]] = (),
    comparisons: Comparisons | None = None,
    judgments: Judgments | None = None,
) -> dict[str, Any]:
    """Return what page and console show.

    comparisons, judgments  with all texts; None where the page is to have none
    """
    by_dimension = {row["dimension"]: row for row in quality}
    dimensions = [
        dimension(standings, name, by_dimension.get(name))
        for name in standings.dimensions
    ]
    boards = [d.board for d in dimensions if d.board]
    return {
        "standings": standings,
        "headline": words.headline({d.name: d.finding for d in dimensions}),
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


def dimension(
    standings: Standings, name: str, quality: Mapping[str, Any] | None
) -> Dimension:
    method, battles = standings.primary_method, standings.battles[name]
    boards = {key: by.get(name) for key, by in standings.companions.items()}
    board = boards.pop(method) if method else standings.primary(name)
    groups = _groups(board, standings.groups.get(name, ())) if board else []
    pairs = [
        d for d in standings.differences.get(method or "", ()) if d.dimension == name
    ]
    rated = [r.model for r in board.ratings if r.rating is not None] if board else []
    diagnosis = standings.diagnoses.get(name, {})
    significant = {(d.higher, d.lower) for d in pairs if d.significant}
    leaders = rated[:2] if tuple(rated[:2]) in significant else []
    found = checks(battles, diagnosis, quality, leaders, standings.responses)
    n_prompts = battles.n_prompts() if battles.names_prompts() else None
    if standings.is_of_scores and board:
        n_prompts = board.n_clusters
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
        battles=battles,
        n_prompts=n_prompts,
        board=board,
        groups=groups,
        others=[other for other in boards.values() if other],
        finding=finding(board, pairs, found, n_prompts=n_prompts),
        checks=found,
        pairs=pairs,
        cells=cells,
        win_rate={model: sum(own) / len(own) for model, own in against.items()},
        elo=standings.elo.get(name, {}),
        diagnosis=diagnosis,
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
