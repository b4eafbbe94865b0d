"""Whether pairs and single answers rank entrants alike: two leaderboards of one judge, compared pair by pair."""

from collections.abc import Sequence
from dataclasses import dataclass

from elo_exp.analysis.comparisons import Difference
from elo_exp.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAgreement(Record):
    """How far two rubrics agree on the order of entrants.

    rubric       of pairs
    scoring      of single answers
    n_pairs      of entrants that both rank
    n_same       of these, ranked in the same order
    n_tied       of these, equal by one of the two
    contradicted the pairs in which both differences are significant and opposite, the winner by pairs first
    """

    rubric: str
    scoring: str
    n_pairs: int
    n_same: int
    n_tied: int
    contradicted: tuple[tuple[str, str], ...]

    @property
    def is_same(self) -> bool:
        """Whether no pair is ranked otherwise."""
        return self.n_pairs > 0 and self.n_same == self.n_pairs


def compare_orders(
    rubric: str,
    differences: Sequence[Difference],
    scoring: str,
    score_differences: Sequence[Difference],
) -> OrderAgreement:
    """Compare the order of entrants by a rubric of pairs and by a scoring.

    Parameters
    ----------
    rubric : str
        The name of the rubric.
    differences : sequence of Difference
        Of the ratings of pairs, one for each two entrants.
    scoring : str
        The name of the scoring.
    score_differences : sequence of Difference
        Of the mean scores, one for each two entrants.

    Returns
    -------
    OrderAgreement
    """
    by_names = {frozenset((d.higher, d.lower)): d for d in score_differences}
    matches = [
        (d, by_names[names])
        for d in differences
        if (names := frozenset((d.higher, d.lower))) in by_names
    ]
    tied = [0.0 in (a.difference, b.difference) for a, b in matches]
    same_winner = [a.higher == b.higher for a, b in matches]
    return OrderAgreement(
        rubric=rubric,
        scoring=scoring,
        n_pairs=len(matches),
        n_same=sum(
            agrees and not is_tie
            for agrees, is_tie in zip(same_winner, tied, strict=True)
        ),
        n_tied=sum(tied),
        contradicted=tuple(
            (a.higher, a.lower)
            for (a, b), agrees in zip(matches, same_winner, strict=True)
            if a.significant and b.significant and not agrees
        ),
    )
