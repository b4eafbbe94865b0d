"""People's labels of a judged run: their own standings, and a human-agreement report for each dimension."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elo_exp.analysis import human_agreement, standings
from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.analysis.conclusions.labels_conclusion import conclude_judge, conclude_lead
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.standings import Standings
from elo_exp.arena import joint_fit
from elo_exp.data.battles import Battles
from elo_exp.experiments.label_evidence import LabelEvidence
from elo_exp.formatting import join_names as listed
from elo_exp.judges import guess_judge_kind
from elo_exp.ratings import EloMethod, RatingMethod
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.report.people_page import Certificate
from elo_exp.report.sentences import arena_sentences as arena_words

# The rating by which people's differences are tested
LABELS_ONLY_METHOD = "bradley_terry"
_JOINT_BOARD = "joint"


@dataclass(frozen=True, kw_only=True)
class Certification:
    """Labels and the methods by which they are rated.

    half_width  target half-width of people's intervals, in points
    """

    evidence: LabelEvidence
    elo: EloMethod
    rating: Mapping[str, RatingMethod]
    half_width: float

    @functools.cached_property
    def results(self) -> tuple[Standings, Standings, list[Certificate]]:
        """The standings by labels alone, the shown leaderboard, and a report for each dimension."""
        agreement, files = self.evidence.agreement, listed([*self.evidence.labels])
        all_votes = Battles.from_rows(
            [
                vote
                for by_annotator in self.evidence.votes.values()
                for votes in by_annotator.values()
                for vote in votes
            ]
        )
        scope = Scope(kind="people", source=files)
        rated_standings = standings.rate(
            all_votes.split_by_dimension(self.evidence.votes),
            elo=self.elo,
            ratings=self.rating,
            models=all_votes.models,
        )
        method = self.rating[LABELS_ONLY_METHOD]
        labels_only = add_conclusions(
            standings.add_missing(
                rated_standings, self.evidence.skipped_battles, method
            ),
            scope,
        )
        boards = {name: self._fit_jointly(name) for name in labels_only.battles}
        certificates = [
            self._certify(
                dimension,
                labels_only,
                agreement[dimension],
                scope,
                boards[dimension][1],
            )
            for dimension in self.evidence.votes
        ]
        joint = {name: board for name, (board, _) in boards.items() if board}
        people_board = standings.drop_elo(labels_only)
        if len(joint) == len(boards):
            people_board = dataclasses.replace(
                people_board,
                boards={_JOINT_BOARD: joint},
                differences={},
                unlinked_groups={},
            )
            labels_only = dataclasses.replace(
                labels_only, boards={**labels_only.boards, _JOINT_BOARD: joint}
            )
        return labels_only, people_board, certificates

    def _fit_jointly(self, dimension: str) -> tuple[Leaderboard | None, str | None]:
        """Fit labels and verdicts jointly; return the leaderboard, or the reason why there is none."""
        judge_battles = self.evidence.judge_battles[dimension]
        if len(judge_battles.models) < human_agreement.MIN_ENTRANTS_FOR_JOINT_FIT:
            return None, None
        votes = self.evidence.make_label_battles(dimension)
        fit = joint_fit.fit_jointly(
            votes, judge_battles, judge_battles.select(judge_battles.winner < 0), ()
        )
        if fit.refusal:
            conclusion = Conclusion(state="refused", reasons=(fit.refusal,))
            explanation = arena_words.explain_reason(fit.refusal, conclusion)
            return None, f"labels alone, because {explanation}"
        counts = dict(zip(votes.models, votes.n_battles().tolist(), strict=True))
        return joint_fit.make_leaderboard(
            fit,
            np.array([counts.get(model, 0) for model in fit.models]),
            level=self.elo.initial_rating,
            baseline=None,
            unrated={},
        ), None

    def _certify(
        self,
        dimension: str,
        labels_only: Standings,
        agreement: Sequence[Mapping[str, Any]],
        scope: Scope,
        refusal: str | None,
    ) -> Certificate:
        by_annotator = self.evidence.votes[dimension]
        votes = Battles.from_rows(
            [v for annotator_votes in by_annotator.values() for v in annotator_votes]
        )
        leads = [*self._conclude_leads(dimension, labels_only, scope)]
        row = self.evidence.run.finished_run.conclusions.get(dimension)
        skipped = self.evidence.skipped_battles[dimension]
        may_hide = row is not None and human_agreement.may_hide_disagreement(
            votes,
            skipped,
            self.evidence.judge_battles[dimension],
            [lead for lead, _ in leads if lead.higher == row.get("first")],
            self.rating[LABELS_ONLY_METHOD],
        )
        return Certificate(
            dimension=dimension,
            judge=self.evidence.run.judge_name,
            n_labels={
                name: len(annotator_votes)
                for name, annotator_votes in by_annotator.items()
            },
            n_comparisons=len(self.evidence.make_label_battles(dimension)),
            n_prompts=votes.n_prompts(),
            n_skipped=len(skipped),
            said=row["sentence"] if row else "no conclusion",
            corrected=conclude_judge(
                row,
                [lead for _, lead in leads],
                kind=guess_judge_kind([self.evidence.run.judge_name]),
                agreement=agreement[0] if agreement else None,
                n_hiding=len(skipped) if may_hide else 0,
            )
            if row
            else None,
            leads=leads,
            agreement=agreement,
            first_shown=human_agreement.first_shown_share(votes),
            half_width=self.half_width,
            refusal=refusal,
            votes=self.evidence.estimate_votes(dimension, votes),
        )

    def _conclude_leads(
        self, dimension: str, labels_only: Standings, scope: Scope
    ) -> Iterator[tuple[Difference, Conclusion]]:
        method = self.rating[LABELS_ONLY_METHOD]
        differences = labels_only.differences[LABELS_ONLY_METHOD]
        cautious_differences = human_agreement.count_skipped(
            differences, labels_only.battles, self.evidence.skipped_battles, method
        )
        lost_pairs = [
            {difference.higher, difference.lower}
            for difference, cautious in zip(
                differences, cautious_differences, strict=True
            )
            if difference.dimension == dimension
            and difference.significant
            and not cautious.significant
        ]
        rows = self.evidence.run.finished_run.differences.get(
            self.evidence.run.finished_run.primary_method(dimension), ()
        )
        n_labels = len(labels_only.battles[dimension])
        for lead, people_difference in human_agreement.pair_leads(
            [*map(Difference.from_dict, rows)],
            cautious_differences,
            dimension=dimension,
        ):
            n_more = human_agreement.labels_to_decide(
                people_difference,
                n_labels=n_labels,
                n_tests=len(cautious_differences),
                half_width=self.half_width,
            )
            yield (
                lead,
                conclude_lead(
                    lead,
                    people_difference,
                    n_more=n_more,
                    scope=scope,
                    n_annotators=len(self.evidence.votes[dimension]),
                    n_skipped=len(self.evidence.skipped_battles[dimension])
                    if {lead.higher, lead.lower} in lost_pairs
                    else 0,
                ),
            )
