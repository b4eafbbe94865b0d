"""What pages and consoles show of standings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elo_exp.analysis.conclusions import Conclusion
from elo_exp.analysis.standings import Standings
from elo_exp.report import page, viewer
from elo_exp.report.dimension_view import DimensionView, build_dimension_view
from elo_exp.report.viewer import Comparisons, Judgments, Texts

# Figures of which the leaderboard and the matrix of a page are the better form
FIGURES_SHOWN_AS_TABLES = ("ratings", "leaderboard", "pairwise_winrates")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingsView:
    """Standings as they are shown.

    colors  the number of each entrant's colour
    texts   all verdicts with their texts; None where the page is to have none
    """

    standings: Standings
    dimensions: Sequence[DimensionView]
    colors: Mapping[str, int]
    texts: Texts | None

    @property
    def is_of_scores(self) -> bool:
        """Whether items were scored, and nothing was compared."""
        return self.standings.is_scored

    @property
    def conclusions(self) -> list[Conclusion]:
        return [*self.standings.conclusions.values()]

    @property
    def has_looks(self) -> bool:
        return any(dimension.looks for dimension in self.dimensions)

    @property
    def has_battles(self) -> bool:
        return any(len(dimension.battles) for dimension in self.dimensions)


def build_view(
    standings: Standings,
    comparisons: Comparisons | None = None,
    judgments: Judgments | None = None,
) -> StandingsView:
    """Return standings as they are shown.

    comparisons, judgments  with all texts; None where the page is to have none
    """
    return StandingsView(
        standings=standings,
        dimensions=[
            build_dimension_view(standings, name) for name in standings.dimensions
        ],
        colors=page.number_colors(standings.models),
        texts=viewer.collect_texts(
            comparisons or {}, judgments or {}, _list_primary_ratings(standings)
        ),
    )


def _list_primary_ratings(standings: Standings) -> dict[str, dict[str, float]]:
    """Return the ratings of the primary method by dimension and model."""
    boards = standings.boards.get(standings.primary_method or "", {})
    return {
        name: {r.model: r.rating for r in board.ratings if r.rating is not None}
        for name, board in boards.items()
    }
