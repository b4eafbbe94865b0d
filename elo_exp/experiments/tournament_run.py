"""A tournament as one judge has judged it: its verdicts, in waves or at once, and the ratings made of them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from elo_exp import pipeline
from elo_exp.analysis import standings
from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.analysis.judge_quality import JudgeQuality, judge_quality
from elo_exp.analysis.odd_answers import check_responses
from elo_exp.analysis.sequential_tests import Wave, family_wise_alpha, prompt_order
from elo_exp.analysis.standings import Standings
from elo_exp.data import battles, pairing
from elo_exp.data.battle_clusters import set_clusters
from elo_exp.data.battles import Battles
from elo_exp.data.pairing import Responses
from elo_exp.experiments.comparison_design import ComparisonDesign
from elo_exp.experiments.judge_run import JudgeRun
from elo_exp.experiments.settings import JudgingOptions
from elo_exp.experiments.shown_pairs import KeysByPair, record_shown_pairs
from elo_exp.ratings import EloMethod, RatingMethod, needs_style
from elo_exp.records import Judgment, MissingBattle, make_fingerprint
from elo_exp.report.viewer import Comparisons, Judgments
from elo_exp.store.answer_store import Store
from elo_exp.store.looks import count_queries_seen_before
from elo_exp.types import Count

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TournamentJudgingOptions(JudgingOptions):
    """How the judges of a tournament are asked.

    opponents  that each entrant meets on a prompt; None: all others
    looks      times that differences are tested
    """

    opponents: Count | None
    looks: Count
    drop: Literal["resolved", "none"]

    @property
    def drops_resolved(self) -> bool:
        """Whether a resolved pair is judged no further."""
        return self.drop == "resolved"


@dataclass(frozen=True, kw_only=True)
class TournamentResult:
    """A tournament as one judge has judged it, with its ratings.

    comparisons  that it was asked about, by dimension
    n_seen       queries that had been looked at under another design
    """

    standings: Standings
    comparisons: Comparisons
    judgments: Judgments
    quality: Sequence[JudgeQuality]
    n_seen: int


@dataclass(frozen=True, kw_only=True)
class TournamentRun:
    """A judge of a tournament, and the methods by which its battles are rated.

    stratum  column of the bank by whose values ratings are compared; None: none
    """

    judge_run: JudgeRun
    design: ComparisonDesign
    options: TournamentJudgingOptions
    elo: EloMethod
    rating: Mapping[str, RatingMethod]
    stratum: str | None

    @property
    def primary_method(self) -> RatingMethod:
        """The method whose leaderboard conclusions rest on."""
        method = standings.primary_method(self.rating)
        return self.rating[method] if method else self.elo

    def make_battles(
        self, judgments: Judgments, comparisons: Comparisons
    ) -> dict[str, Battles]:
        """Make battles of verdicts, by dimension, with the style of answers where the rating needs it."""
        with_style = needs_style(self.rating)
        rows = [
            battle
            for name, dimension_judgments in judgments.items()
            for battle in battles.battles_from_judgments(
                dimension_judgments, comparisons[name] if with_style else ()
            )
        ]
        clusters = self.design.prompt_source.clusters
        return set_clusters(Battles.from_rows(rows), clusters).split_by_dimension(
            judgments
        )

    def judge_and_rate(
        self, store: Store, responses: Responses, comparisons: Comparisons
    ) -> TournamentResult:
        """Have the comparisons judged, and rate them."""
        planned_comparisons, judge_run = comparisons, self.judge_run
        wave, matches = None, None
        if self.options.looks == 1:
            judgments = judge_run.judge_pairs(comparisons, store)
            verdicts = [v for group in judgments.values() for j in group for v in j.raw]
            n_seen = count_queries_seen_before(
                store, [verdict.cache_key for verdict in verdicts], None
            )
        else:
            wave, judgments, n_seen = self._judge_in_waves(comparisons, store)
            matches = self._select_complete_matches(judgments, comparisons)
            comparisons = wave.judged
        if n_seen:
            logger.warning(
                "warning: exploratory: %d verdicts had been seen under another design, so false differences are found "
                "more often than stated.",
                n_seen,
            )
        rated_standings = standings.rate(
            self.make_battles(judgments, comparisons),
            elo=self.elo,
            ratings=self.rating,
            models=list(self.design.answers.entrants),
            matches=matches,
        )
        earlier_looks = {}
        if wave:
            rated_standings = standings.apply_looks(rated_standings, wave)
        elif judge_run.scope.kind == "model":
            earlier_looks = record_shown_pairs(
                store, rated_standings, _list_verdict_keys(judgments)
            )
        missing = self._find_missing_battles(
            responses, planned_comparisons, comparisons, judgments
        )
        rated_standings = standings.add_missing(
            rated_standings, missing, self.primary_method
        )
        rated_standings = self._diagnose(
            rated_standings, responses, comparisons, judgments, earlier_looks, store
        )
        quality = [
            judge_quality(dimension_judgments, dimension=d)
            for d, dimension_judgments in judgments.items()
        ]
        return TournamentResult(
            standings=self._compare_judges(rated_standings, comparisons, store),
            comparisons=comparisons,
            judgments=judgments,
            quality=quality,
            n_seen=n_seen,
        )

    def _judge_in_waves(
        self, comparisons: Comparisons, store: Store
    ) -> tuple[Wave, dict[str, list[Judgment]], int]:
        """Store the design, if the cap holds the worst case, and judge up to each look.

        Returns the last wave, the judgments, and how many queries had been seen before.
        """
        options, judge_run = self.options, self.judge_run
        plan = judge_run.make_plan(self.design.assume(store), store)
        plan.check(store)
        sources = [c.source for group in comparisons.values() for c in group]
        alpha = family_wise_alpha(drop=options.drops_resolved)
        design = [options.looks, options.drop, alpha, sources, plan.keys]
        n_seen = count_queries_seen_before(store, plan.keys, make_fingerprint(design))
        wave, judgments = pipeline.judge_in_waves(
            comparisons,
            lambda pairs: judge_run.judge_pairs(pairs, store, is_part=True),
            method=self.primary_method,
            looks=options.looks,
            drop=options.drops_resolved,
        )
        return wave, judgments, n_seen

    def _select_complete_matches(
        self, judgments: Judgments, comparisons: Comparisons
    ) -> dict[str, Battles]:
        """Select the matches of permutation Elo, which needs both orders, and prompts on which every pair was judged."""
        return self.make_battles(
            {
                name: pairing.keep_complete_prompts(
                    dimension_judgments if self.options.orders != "one" else [],
                    comparisons[name],
                )
                for name, dimension_judgments in judgments.items()
            },
            comparisons,
        )

    def _diagnose(
        self,
        rated_standings: Standings,
        responses: Responses,
        comparisons: Comparisons,
        judgments: Judgments,
        earlier_looks: Mapping[str, Diagnosis],
        store: Store,
    ) -> Standings:
        """Add what speaks for and against the ratings: strata, texts, earlier looks, audits, the judge's family."""
        method, strata = self.primary_method, {}
        if self.stratum is not None:
            strata = standings.rate_strata(
                rated_standings.fits,
                self.design.prompt_source.read_strata(self.stratum),
                method.rate,
                standings.leaders(rated_standings),
            )
        return standings.add_diagnoses(
            rated_standings,
            standings.diagnose_texts(
                rated_standings,
                comparisons,
                judgments,
                method.rate,
                initial_rating=self.elo.initial_rating,
            ),
            strata,
            earlier_looks,
            standings.count_recovered_pairs(
                rated_standings.differences.get(
                    rated_standings.primary_method or "", ()
                ),
                self._list_known_ranks(),
            ),
            self.judge_run.load_audits(store),
            self.judge_run.diagnose_kin(),
            responses=[
                check_responses(name, answers) for name, answers in responses.items()
            ],
        )

    def _compare_judges(
        self, rated_standings: Standings, comparisons: Comparisons, store: Store
    ) -> Standings:
        """Add how far other judges agree whose verdicts on these comparisons are stored."""
        judge_run = self.judge_run
        judgments_by_judge = pipeline.read_other_judgments(
            comparisons, judge_run.rubrics, judge_run.judge, store, judge_run.settings
        )
        by_judge = {
            name: self.make_battles(judge_judgments, comparisons)
            for name, judge_judgments in judgments_by_judge.items()
        }
        return standings.add_judge_agreement(
            rated_standings,
            judge_run.judge.model,
            by_judge,
            self.primary_method.rate,
        )

    def _find_missing_battles(
        self,
        responses: Responses,
        planned_comparisons: Comparisons,
        asked_comparisons: Comparisons,
        judgments: Judgments,
    ) -> dict[str, list[MissingBattle]]:
        """Return the planned comparisons without a usable answer or a valid verdict, by dimension.

        A tournament that stopped at a look was not to ask about the prompts after it.
        """
        unanswered = self.design.list_unanswered(responses, planned_comparisons)
        if self.options.looks > 1:
            order = prompt_order(
                {p.prompt_id: p.source for p in self.design.prompt_source.select()}
            )
            rank_by_prompt = {prompt_id: n for n, prompt_id in enumerate(order)}
            for name, dimension_missing in unanswered.items():
                last_rank = max(
                    (rank_by_prompt[c.prompt_id] for c in asked_comparisons[name]),
                    default=-1,
                )
                unanswered[name] = [
                    battle
                    for battle in dimension_missing
                    if rank_by_prompt[battle.question_id or ""] <= last_rank
                ]
        cluster_of = self.design.prompt_source.clusters
        return {
            name: [
                replace(battle, cluster=cluster_of.get(battle.question_id or ""))
                for battle in (
                    *unanswered[name],
                    *pairing.list_unjudged(dimension_comparisons, judgments[name]),
                )
            ]
            for name, dimension_comparisons in asked_comparisons.items()
        }

    def _list_known_ranks(self) -> dict[str, dict[str, int]]:
        """List the ranks of entrants of known quality, by dimension."""
        return {
            rubric.dimension: {
                name: rank
                for name, entrant in self.design.answers.entrants.items()
                if (rank := entrant.known_rank(rubric.dimension)) is not None
            }
            for rubric in self.design.rubrics
        }


def _list_verdict_keys(
    judgments: Mapping[str, Sequence[Judgment]],
) -> KeysByPair:
    keys: dict[tuple[str, frozenset[str]], list[str]] = {}
    for dimension, dimension_judgments in judgments.items():
        for judgment in dimension_judgments:
            pair = frozenset((judgment.entrant_a, judgment.entrant_b))
            pair_keys = keys.setdefault((dimension, pair), [])
            pair_keys.extend(verdict.cache_key for verdict in judgment.raw)
    return keys
