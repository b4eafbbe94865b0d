"""The part of one rubric in the page and the console of standings."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elo_exp.analysis.checks import Check
from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.conclusions import Conclusion
from elo_exp.analysis.diagnosis import Diagnosis, StrataDiagnosis
from elo_exp.analysis.sequential_tests import Look, Resolution
from elo_exp.analysis.standings import ELO, Standings
from elo_exp.analysis.variance import Variance
from elo_exp.data.battles import Battles
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.ratings.leaderboard import Leaderboard, Rating


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionView:
    """The part of one rubric in a page; `board` is of the primary method."""

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
    variance: Variance | None  # None without several draws
    diagnosis: Diagnosis

    @property
    def looks(self) -> Sequence[Look]:
        """The planned interim analyses; empty without them."""
        return self.diagnosis.get("looks") or ()

    @property
    def strata(self) -> StrataDiagnosis | None:
        """Whether ratings differ between sources of the prompts; None without sources."""
        return self.diagnosis.get("strata")

    @property
    def odd_answers(self) -> Mapping[str, Mapping[str, float]]:
        """The shares of unusual answers, by model and kind; models without are left out."""
        about = next((c.about for c in self.checks if c.name == "responses"), None)
        return about["flagged"] if about else {}

    @property
    def equal_answers(self) -> list[EqualAnswers]:
        """The pairs of entrants with the same answers to half of the prompts or more."""
        return [*self.diagnosis.get("equal_answers", ())]

    @property
    def prompts_of_pairs(self) -> tuple[int, int]:
        """The fewest and the most prompts on which a pair was judged up to its last analysis."""
        n = [pair.n_prompts for pair in self.pairs if isinstance(pair, Resolution)]
        return min(n, default=0), max(n, default=0)


def build_dimension_view(standings: Standings, name: str) -> DimensionView:
    board, pairs = standings.board(name), standings.pairs(name)
    other_boards = [
        by_dimension[name]
        for method, by_dimension in standings.boards.items()
        if method not in (ELO, standings.primary_method) and name in by_dimension
    ]
    groups = (
        _list_groups(board, standings.unlinked_groups.get(name, ())) if board else []
    )
    significant_wins = defaultdict[str, set[str]](set)  # losers by winner
    for difference in pairs:
        if difference.significant:
            significant_wins[difference.higher].add(difference.lower)
    cells, shares_by_model = {}, dict[str, list[float]]()
    for rate in standings.win_rates:
        if rate.dimension == name:
            model_a, model_b = rate.entrant_a, rate.entrant_b
            is_significant = (
                model_b in significant_wins[model_a]
                or model_a in significant_wins[model_b]
            )
            n = rate.a_wins + rate.b_wins + rate.ties
            share = (rate.a_wins + 0.5 * rate.ties) / n
            for pair, pair_share in (
                ((model_a, model_b), share),
                ((model_b, model_a), 1 - share),
            ):
                cells[pair] = pair_share, n, is_significant
                shares_by_model.setdefault(pair[0], []).append(pair_share)
    return DimensionView(
        name=name,
        battles=standings.battles[name],
        n_prompts=standings.n_prompts(name),
        board=board,
        groups=groups,
        others=other_boards,
        conclusion=standings.conclusions.get(name),
        checks=standings.checks.get(name, ()),
        pairs=pairs,
        cells=cells,
        win_rate={
            model: sum(shares) / len(shares)
            for model, shares in shares_by_model.items()
        },
        elo=standings.elo_by_k.get(name, {}),
        variance=standings.variance.get(name),
        diagnosis=standings.diagnoses.get(name, {}),
    )


def _list_groups(
    board: Leaderboard, other_boards: Sequence[Leaderboard]
) -> list[list[Rating]]:
    other_groups = [
        [r for r in b.ratings if r.rating is not None] for b in other_boards
    ]
    models = {row.model for rows in other_groups for row in rows}
    main_group = [
        r for r in board.ratings if r.rank is not None or r.model not in models
    ]
    return [main_group, *other_groups]
