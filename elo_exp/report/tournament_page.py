"""report.html of a tournament, and of rated battles: who leads, how certain that is, and whether the judge
can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.comparisons import ALPHA, Difference
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.power import Precision
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.win_rates import WinRate
from elo_exp.ratings.convergence import Convergence
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.records import Plot
from elo_exp.report import viewer
from elo_exp.report.checks import Check, checks
from elo_exp.report.findings import Finding, finding
from elo_exp.report.page import colors, cost, render, scale
from elo_exp.report.viewer import Comparisons, Judgments

MAX_ROWS = 100  # entrants of a leaderboard; all are in ratings.json
MAX_MATRIX = 20  # entrants of a matrix of win rates
MAX_PAIRS = (
    45  # differences of a dimension: all of ten entrants, of more those with the best
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """How often the row of a matrix beats its column, ties counting half."""

    share: float
    n_battles: int
    is_significant: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """What one dimension contributes to the page; `board` is of the primary method."""

    name: str
    n_battles: int
    n_decisive: int
    n_prompts: int | None
    board: Leaderboard | None
    # The rows of `board`, then those of each group of entrants that nothing links to it.
    groups: Sequence[Sequence[Rating]]
    others: Sequence[Leaderboard]  # of the other methods but Elo
    finding: Finding
    checks: Sequence[Check]
    pairs: Sequence[Difference]
    cells: Mapping[tuple[str, str], Cell]  # by row and column of a matrix
    win_rate: Mapping[str, float]  # mean over opponents
    precision: Precision | None
    elo: Mapping[float, Leaderboard]  # by K
    convergence: Convergence  # of Elo
    diagnosis: Mapping[str, Any]

    @property
    def n_significant(self) -> int:
        return sum(bool(pair.significant) for pair in self.pairs)

    @property
    def strata_differ(self) -> bool:
        p = self.diagnosis.get("strata", {}).get("p_value")
        return p is not None and p < ALPHA

    @property
    def has_tests(self) -> bool:
        return any(pair.significant is not None for pair in self.pairs)

    @property
    def shown_pairs(self) -> Sequence[Difference]:
        """All pairs of few entrants, and of many those with the best."""
        if len(self.pairs) <= MAX_PAIRS:
            return self.pairs
        best = self.pairs[0].higher
        return [pair for pair in self.pairs if pair.higher == best][:MAX_ROWS]


def describe(
    standings: Standings, quality: Sequence[JudgeQuality] = ()
) -> list[Dimension]:
    """Return what page and console show of each dimension."""
    by_dimension = {q.dimension: q for q in quality}
    return [
        dimension(standings, name, by_dimension.get(name))
        for name in standings.dimensions
    ]


def page(
    standings: Standings,
    plots: Sequence[Plot],
    *,
    title: str,
    manifest: Mapping[str, Any],
    quality: Sequence[JudgeQuality] = (),
    comparisons: Comparisons | None = None,
    judgments: Judgments | None = None,
    template: str = "tournament",
    max_rows: int = MAX_ROWS,
    **context: Any,
) -> str:
    """Return the whole report as one HTML file.

    manifest     the contents of manifest.json
    comparisons  with all texts, and their judgments; None where they are not known
    max_rows     of a leaderboard
    context      what another template than that of tournaments shows besides
    """
    dimensions = describe(standings, quality)
    boards = [d.board for d in dimensions if d.board]
    elo = [d.elo[standings.k] for d in dimensions if standings.k in d.elo]
    ks = sorted({k for d in dimensions for k in d.elo})
    return render(
        template,
        plots,
        title=title,
        manifest=manifest,
        standings=standings,
        scored=standings.is_of_scores,
        dimensions=dimensions,
        color=colors(standings.models),
        scale=scale(r for d in dimensions for rows in d.groups for r in rows),
        label=boards[0].label if boards else None,
        interval=next((b.interval for b in boards if b.interval), None),
        texts=viewer.texts(comparisons or {}, judgments or {}, points(standings)),
        limits={"rows": max_rows, "matrix": MAX_MATRIX},
        k=standings.k,
        ks=ks,
        elo=elo,
        **cost(manifest.get("usage"), manifest.get("paid_before")),
        **context,
    )


def points(standings: Standings) -> dict[str, dict[str, float]]:
    """Return the ratings of the primary method by dimension and model."""
    boards = standings.companions.get(standings.primary_method or "", {})
    return {
        name: {r.model: r.rating for r in board.ratings if r.rating is not None}
        for name, board in boards.items()
    }


def dimension(
    standings: Standings, name: str, quality: JudgeQuality | None
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
    cells = _cells((r for r in standings.win_rates if r.dimension == name), pairs)
    precisions = standings.precision.get(method or "", ())
    return Dimension(
        name=name,
        n_battles=len(battles),
        n_decisive=int((~battles.is_tie()).sum()),
        n_prompts=n_prompts,
        board=board,
        groups=groups,
        others=[other for other in boards.values() if other],
        finding=finding(
            board,
            pairs,
            found,
            n_prompts=n_prompts,
        ),
        checks=found,
        pairs=pairs,
        cells=cells,
        win_rate=_win_rates(cells),
        precision=next((p for p in precisions if p.dimension == name), None),
        elo=standings.elo.get(name, {}),
        convergence=standings.convergence.get(name, Convergence(limit={})),
        diagnosis=diagnosis,
    )


def _groups(board: Leaderboard, others: Sequence[Leaderboard]) -> list[list[Rating]]:
    separate = [[r for r in b.ratings if r.rating is not None] for b in others]
    models = {row.model for rows in separate for row in rows}
    return [[row for row in board.ratings if row.model not in models], *separate]


def _cells(
    rates: Iterable[WinRate], pairs: Iterable[Difference]
) -> dict[tuple[str, str], Cell]:
    """Both directions of every pair that met."""
    significant = {frozenset((d.higher, d.lower)) for d in pairs if d.significant}
    cells = {}
    for rate in rates:
        names = rate.entrant_a, rate.entrant_b
        n = rate.a_wins + rate.b_wins + rate.ties
        is_significant = frozenset(names) in significant
        share = (rate.a_wins + 0.5 * rate.ties) / n
        for pair, own in ((names, share), (names[::-1], 1.0 - share)):
            cells[pair] = Cell(share=own, n_battles=n, is_significant=is_significant)
    return cells


def _win_rates(cells: Mapping[tuple[str, str], Cell]) -> dict[str, float]:
    """The mean over opponents."""
    against: dict[str, list[float]] = {}
    for (model, _), cell in cells.items():
        against.setdefault(model, []).append(cell.share)
    return {model: sum(some) / len(some) for model, some in against.items()}
