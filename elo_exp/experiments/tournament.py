"""Who wins among our entrants: everyone answers, a judge compares the answers pair by pair, the battles are rated."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from elo_exp import pipeline
from elo_exp.analysis import standings, variance
from elo_exp.analysis.comparisons import differences, find_leader
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.judge_quality import JudgeQuality, judge_quality
from elo_exp.analysis.odd_answers import check_responses
from elo_exp.analysis.sequential_tests import Wave, family_wise_alpha, prompt_order
from elo_exp.analysis.standings import Standings
from elo_exp.data import battles, pairing
from elo_exp.data.battles import Battles
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.data.pairing import Responses
from elo_exp.entrants import draws_of
from elo_exp.errors import SettingError
from elo_exp.experiments import Context, Report, several
from elo_exp.experiments.judged import (
    Judging,
    PairwiseExperiment,
    load_stored_audits,
    suggest_audit_command,
)
from elo_exp.experiments.rated import (
    list_metric_names,
    report_judges,
    report_standings,
    supports_joint_board,
)
from elo_exp.judges import ApiJudge, Judge, NoJudge
from elo_exp.ratings import EloMethod, RatingMethod, needs_style
from elo_exp.records import Judgment, MissingBattle, make_fingerprint
from elo_exp.report import artifacts, judges_page
from elo_exp.report.sentences import variance_sentences as variance_words
from elo_exp.report.viewer import Comparisons, Judgments
from elo_exp.store.answer_store import PairResult, Store
from elo_exp.types import Count

logger = logging.getLogger(__name__)

# The same for all judges of a run
_SHARED_FACTS = (
    *("entrants", "rubric_versions", "bank_size", "selected_prompt_count"),
    *("truncated_responses", "effort", "conversations", "answers"),
)
_DEMO_FOLLOW_UP = (
    "elo-exp FILE FILE judge=sonnet plan=true     what judging your own answers costs"
)


@dataclass(kw_only=True)
class TournamentJudging(Judging):
    opponents: Count | None  # that each entrant meets on a prompt; None: all others
    looks: Count
    drop: Literal["resolved", "none"]


@dataclass(frozen=True, kw_only=True)
class _JudgedTournament:
    """A tournament as one judge has judged it, with its ratings.

    comparisons  that it was asked about, by dimension
    n_seen       queries that had been looked at under another design
    """

    standings: Standings
    comparisons: Comparisons
    judgments: Judgments
    quality: Sequence[JudgeQuality]
    n_seen: int


@dataclass(kw_only=True)
class Tournament(PairwiseExperiment):
    judging: TournamentJudging
    elo: EloMethod
    rating: dict[str, RatingMethod]
    stratum: str | None  # column of the bank; None: no strata
    sweep_pair: list[str] | None  # whose difference a sweep draws; None: the two best

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """With several judges, a tournament of these."""
        config = PairwiseExperiment.prepare(config, overrides)
        if "judge" in config and (
            judges := several.list_recorded_judges(config["judge"])
        ):
            config = {**config, "judges": judges}
            del config["judge"]
        if config.get("judges"):
            config["_target_"] = "elo_exp.experiments.tournament.MultiJudgeTournament"
        return config

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return list_metric_names(self.rating)

    def _check(self, store: Store) -> None:
        if self.sweep_pair is not None and len(set(self.sweep_pair)) != 2:
            raise SettingError(
                f"sweep_pair: found {self.sweep_pair}. Expected two entrants: "
                "'sweep_pair=[one,other]'."
            )
        _ = self._cluster_of
        if self.stratum is not None:
            self._read_strata(self.stratum)
        k, m = self.judging.opponents, len(self.entrant)
        is_one = self.judging.orders == "one"
        if k is not None and not (is_one and 6 <= m > k and k * m % 2 == 0):
            raise SettingError(
                f"judging.opponents: found {k} with {m} entrants and judging.orders="
                f"{self.judging.orders}. Expected judging.orders=one, fewer opponents than entrants, "
                "of at least six, and an even number where that of entrants is odd."
            )
        looks = self.judging.looks
        if looks > 1 and (k is not None or not self.rating):
            raise SettingError(
                f"judging.looks: found {looks}, which needs all opponents (judging.opponents=null) "
                "and a rating with errors (rating=[bradley_terry]). Set these, or judging.looks=1."
            )
        if looks > 1 and self.shard is not None:
            raise SettingError(
                f"shard: found {self.shard} with judging.looks={looks}, where verdicts decide what is "
                "judged next. Leave one of them out."
            )
        super()._check(store)

    @property
    def _n_opponents(self) -> int | None:
        return self.judging.opponents

    def _format_plan(self, plan: pipeline.Plan) -> str:
        text, looks = super()._format_plan(plan), self.judging.looks
        if looks > 1:
            text += f"\n{pipeline.looks_table(plan, looks, drop=self._drops_resolved)}"
        return text

    def dry_run(self, context: Context) -> str | None:
        """With plan=true, what judging would cost and, where the store has a pilot of two draws, what is worth it."""
        text = super().dry_run(context)
        if text is None:
            return None
        return "\n".join([text, *self._plan_variance(context.store)])

    def _plan_variance(self, store: Store) -> list[str]:
        """Describe a pilot's variance components and what doubling the spend would buy."""
        varies = any(draws_of(entrant, 2) > 1 for entrant in self.entrant.values())
        if not varies or isinstance(self.judge, NoJudge):
            return []
        prompts = pipeline.repeat_prompts(self._select_prompts(), max(2, self._n_draws))
        comparisons = self._pair_answers(
            prompts, self._find_known_responses(prompts, store)
        )
        judgments = pipeline.read_stored_judgments(
            comparisons, self._rubrics, self.judge, store, self.asking
        )
        n_bank, lines = len(self._load_bank()), list[str]()
        for name, dimension_battles in self._make_battles(
            judgments, comparisons
        ).items():
            components, half_width = (
                variance.estimate_variance(dimension_battles),
                self._measure_half_width(name, dimension_battles),
            )
            if components is None or components.prompts is None or half_width is None:
                continue
            prompt_ids = {judgment.prompt_id for judgment in judgments[name]}
            pilot_comparisons = {
                name: [c for c in comparisons[name] if c.prompt_id in prompt_ids]
            }
            rubrics = [rubric for rubric in self._rubrics if rubric.dimension == name]
            dollars = pipeline.estimate_price(
                pilot_comparisons, rubrics, self.judge, self.asking
            )[name]
            is_paid = isinstance(self.judge, ApiJudge)
            lines += [f"{name}:"] if len(self.rubric) > 1 else []
            lines += variance_words.plan(
                components,
                half_width,
                dollars=dollars if is_paid else None,
                n_more=max(n_bank - len(prompt_ids), 0),
            )
        return lines

    def _measure_half_width(self, dimension: str, battles: Battles) -> float | None:
        """Return half the width of the lead's interval, in rating points; None if it has no interval."""
        board = self._primary_method.rate({dimension: battles}).get(dimension)
        leader = board and find_leader(board, differences({dimension: board}))
        lead = leader.lead if leader else None
        if lead is None or lead.ci_low is None or lead.ci_high is None:
            return None
        return (lead.ci_high - lead.ci_low) / 2.0

    def _conclude(
        self, context: Context, responses: Responses, comparisons: Comparisons
    ) -> Report:
        outcome = self._judge_and_rate(context.store, responses, comparisons)
        return self._write_report(context, responses, outcome)

    def _judge_and_rate(
        self, store: Store, responses: Responses, comparisons: Comparisons
    ) -> _JudgedTournament:
        """Have the comparisons judged, and rate them."""
        method, planned_comparisons = self._primary_method, comparisons
        wave, matches = None, None
        if self.judging.looks == 1:
            judgments = self.judge_pairs(comparisons, store)
            verdicts = [v for group in judgments.values() for j in group for v in j.raw]
            n_seen = store.count_queries_seen_before(
                [verdict.cache_key for verdict in verdicts], None
            )
        else:
            wave, judgments, n_seen = self._judge_in_waves(comparisons, store)
            # Permutation Elo needs both orders, and prompts on which every pair was judged.
            matches = self._make_battles(
                {
                    name: pairing.keep_complete_prompts(
                        dimension_judgments if self.judging.orders != "one" else [],
                        comparisons[name],
                    )
                    for name, dimension_judgments in judgments.items()
                },
                comparisons,
            )
            comparisons = wave.asked
        if n_seen:
            logger.warning(
                "warning: exploratory: %d queries had been looked at under another design, so "
                "differences that are not there are found more often than stated.",
                n_seen,
            )
        rated_standings = standings.rate(
            self._make_battles(judgments, comparisons),
            elo=self.elo,
            ratings=self.rating,
            models=list(self.entrant),
            matches=matches,
        )
        earlier_looks = {}
        if wave:
            rated_standings = standings.apply_looks(rated_standings, wave)
        elif self._scope.kind == "model":
            earlier_looks = _record_shown_pairs(store, rated_standings, judgments)
        missing = self._find_missing_battles(
            responses, planned_comparisons, comparisons, judgments
        )
        rated_standings = standings.add_missing(rated_standings, missing, method)
        strata = {}
        if self.stratum is not None:
            stratum_by_prompt = self._read_strata(self.stratum)
            strata = standings.rate_strata(
                rated_standings.fitted,
                stratum_by_prompt,
                method.rate,
                standings.leaders(rated_standings),
            )
        rated_standings = standings.add_diagnoses(
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
            load_stored_audits(self.judge, self._rubrics, store),
            self._diagnose_kin(),
            responses=[
                check_responses(name, answers) for name, answers in responses.items()
            ],
        )
        judgments_by_judge = pipeline.read_other_judgments(
            comparisons, self._rubrics, self.judge, store, self.asking
        )
        by_judge = {
            j: self._make_battles(judge_judgments, comparisons)
            for j, judge_judgments in judgments_by_judge.items()
        }
        rated_standings = standings.add_judge_agreement(
            rated_standings, self.judge.model, by_judge, method.rate
        )
        quality = [
            judge_quality(dimension_judgments, dimension=d)
            for d, dimension_judgments in judgments.items()
        ]
        return _JudgedTournament(
            standings=rated_standings,
            comparisons=comparisons,
            judgments=judgments,
            quality=quality,
            n_seen=n_seen,
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
        unanswered = self._find_unanswered(responses, planned_comparisons)
        if self.judging.looks > 1:
            order = prompt_order(
                {p.prompt_id: p.source for p in self._select_prompts()}
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
        cluster_of = self._cluster_of
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

    def _write_report(
        self, context: Context, responses: Responses, outcome: _JudgedTournament
    ) -> Report:
        facts = self._collect_facts(responses, outcome.judgments, outcome.quality)
        return report_standings(
            outcome.standings,
            context,
            scope=self._scope,
            n_seen=outcome.n_seen,
            facts={**facts, "n_seen": outcome.n_seen},
            quality=outcome.quality,
            follow_up=self._suggest_follow_up(context),
            written=artifacts.write_judging(
                context.run_dir,
                responses=responses,
                comparisons=outcome.comparisons,
                judgments=outcome.judgments,
            ),
            comparisons=outcome.comparisons,
            judgments=outcome.judgments,
        )

    def _judge_in_waves(
        self, comparisons: Comparisons, store: Store
    ) -> tuple[Wave, dict[str, list[Judgment]], int]:
        """Store the design, if the cap holds the worst case, and judge up to each look.

        Returns the last wave, the judgments, and how many queries had been seen before.
        """
        judging, plan = self.judging, self._make_plan(store)
        plan.check(store)
        sources = [c.source for group in comparisons.values() for c in group]
        alpha = family_wise_alpha(drop=self._drops_resolved)
        design = [judging.looks, judging.drop, alpha, sources, plan.keys]
        n_seen = store.count_queries_seen_before(plan.keys, make_fingerprint(design))
        wave, judgments = pipeline.judge_in_waves(
            comparisons,
            lambda pairs: self.judge_pairs(pairs, store),
            method=self._primary_method,
            looks=judging.looks,
            drop=self._drops_resolved,
        )
        return wave, judgments, n_seen

    def _suggest_follow_up(self, context: Context) -> str | None:
        """Suggest the next command: your own answers after the demo, an audit after a paid judge."""
        is_shipped = self.study is not None and self.study.name == "medical"
        if self.mode.name == "demo" and self.judge.make_scope().kind == "words":
            return _DEMO_FOLLOW_UP if is_shipped else None
        return suggest_audit_command(self.judge, self.rubric, context)

    def _diagnose_kin(self) -> dict[str, dict[str, Any]]:
        """Return the diagnosis `kin` of each dimension: which entrants are of the judge's family."""
        if not (kin := self.kin()).models:
            return {}
        diagnosis = {"kin": kin.to_dict() | {"is_allowed": self.allows_kin}}
        return {rubric.dimension: diagnosis for rubric in self._rubrics}

    def _list_known_ranks(self) -> dict[str, dict[str, int]]:
        """List the ranks of entrants of known quality, by dimension."""
        return {
            dimension: {
                name: rank
                for name, entrant in self.entrant.items()
                if (rank := entrant.known_rank(dimension)) is not None
            }
            for dimension in (rubric.dimension for rubric in self._rubrics)
        }

    def _make_battles(
        self, judgments: Judgments, comparisons: Comparisons
    ) -> dict[str, Battles]:
        with_style = needs_style(self.rating)
        rows = [
            battle
            for name, dimension_judgments in judgments.items()
            for battle in battles.battles_from_judgments(
                dimension_judgments, comparisons[name] if with_style else ()
            )
        ]
        all_battles = Battles.from_rows(rows).set_clusters(self._cluster_of)
        return all_battles.split_by_dimension(judgments)

    @property
    def _drops_resolved(self) -> bool:
        return self.judging.drop == "resolved"

    @property
    def _primary_method(self) -> RatingMethod:
        method = standings.primary_method(self.rating)
        return self.rating[method] if method else self.elo


@dataclass(kw_only=True)
class _SingleJudgeTournament(Tournament):
    """The tournament of one of several judges; `called` is the judge's name in verdicts and battles."""

    called: str

    @property
    def _judge_name(self) -> str:
        return self.called


@dataclass(kw_only=True)
class MultiJudgeTournament(Tournament):
    """A tournament with several judges: each judges all of it by itself, and all pay from one budget.

    judges  by name: judge=[one,other]
    judge   the first of them, for what is the same of all
    """

    judges: dict[str, Judge]
    judge: Judge = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.judge = next(iter(self.judges.values()))
        several.share_budget(self.judges, self.judging.budget_usd)

    @cached_property
    def _tournament_by_judge(self) -> dict[str, Tournament]:
        """The tournament of each judge."""
        names = several.list_unique_judge_names(self.judges)
        return {
            name: several.make_single_judge_experiment(
                _SingleJudgeTournament, self, judge, called=names[name]
            )
            for name, judge in self.judges.items()
        }

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return {"judges": judges_page.JUDGE_METRIC_NAMES}

    @property
    def opening(self) -> str:
        tournaments = self._tournament_by_judge.values()
        if all(tournament._scope.is_baseline for tournament in tournaments):
            return next(tournament.opening for tournament in tournaments)
        return several.describe_opening(
            self.judges, self._rubrics, self.study, self.judging.budget_usd
        )

    def _check(self, store: Store) -> None:
        if self.judging.looks > 1:
            raise SettingError(
                f"judging.looks: found {self.judging.looks}. Planned looks are at the verdicts of one judge: set "
                "judging.looks=1, or name one judge."
            )
        if self.shard is not None:
            raise SettingError(
                f"shard: found {self.shard} with several judges. Have each judge its shares by itself, judge=NAME; "
                "all of them, without shard=, find their verdicts."
            )
        if not supports_joint_board(self.rating):
            raise SettingError(
                "rating: several judges have a joint board by Bradley-Terry without style and baseline_model. Choose "
                "'rating=[bradley_terry]' as it ships."
            )
        super()._check(store)

    def dry_run(self, context: Context) -> str | None:
        """Verdicts on file may be of several judges, of which a sweep has one in each job."""
        if context.in_sweep:
            raise SettingError(
                f"judge: found verdicts of {', '.join(self.judges)} in a sweep, whose jobs have one judge each. Name it: "
                "judge.judge_model=NAME."
            )
        return super().dry_run(context)

    def _check_judge(self, store: Store) -> None:
        for tournament in self._tournament_by_judge.values():
            tournament._check_judge(store)
        if not (self.plan or self.judging.stored_only) and (
            pipeline.needs_paid_answers(self._repeat_prompts(), self.entrant, store)
        ):
            self._make_whole_plan(store, at_least=True).check(store)

    def _plan_variance(self, store: Store) -> list[str]:
        """Variance components are reported only for a single judge."""
        return []

    def _pays_for_equal_answers(
        self, pair: EqualAnswers, comparisons: Comparisons, store: Store
    ) -> bool:
        return any(
            tournament._pays_for_equal_answers(pair, comparisons, store)
            for tournament in self._tournament_by_judge.values()
        )

    def plans(self, store: Store) -> list[pipeline.Plan]:
        return self._plan_judges(store)

    def _plan_judges(
        self, store: Store, *, at_least: bool = False
    ) -> list[pipeline.Plan]:
        plans = self._make_plans([*self.judges.values()], store, at_least=at_least)
        return several.require_distinct_judges(self.judges, plans)

    def _make_whole_plan(
        self, store: Store, *, at_least: bool = False
    ) -> pipeline.Plan:
        return pipeline.Plan.of_all(self._plan_judges(store, at_least=at_least))

    def _plan_judging(self, store: Store) -> str:
        lines = [
            pipeline.plan_of_judges(
                dict(zip(self.judges, self.plans(store), strict=True))
            )
        ]
        for tournament in self._tournament_by_judge.values():
            lines += tournament._plan_kin(tournament.kin())
        return "\n".join(lines)

    def _conclude(
        self, context: Context, responses: Responses, comparisons: Comparisons
    ) -> Report:
        self._make_whole_plan(context.store).check(context.store)
        by_judge, reports = dict[str, Standings](), dict[str, Report]()
        for name, tournament in self._tournament_by_judge.items():
            logger.info("judge %s: %s", name, tournament.judge.model)
            outcome = tournament._judge_and_rate(context.store, responses, comparisons)
            by_judge[name] = add_conclusions(
                outcome.standings,
                tournament._scope,
                quality=outcome.quality,
                n_seen=outcome.n_seen,
            )
            judge_context = context.of_judge(name)
            reports[name] = tournament._write_report(judge_context, responses, outcome)
        first_report = next(iter(reports.values()))
        return report_judges(
            by_judge,
            reports,
            context,
            orders=self.judging.orders,
            initial_rating=self.elo.initial_rating,
            facts={
                **{
                    key: first_report.facts[key]
                    for key in _SHARED_FACTS
                    if key in first_report.facts
                },
                "judges": {
                    name: tournament.judge.model
                    for name, tournament in self._tournament_by_judge.items()
                },
            },
        )


def _record_shown_pairs(
    store: Store,
    rated_standings: Standings,
    judgments: Mapping[str, Sequence[Judgment]],
) -> dict[str, dict[str, Any]]:
    """Store that the results of all pairs are shown; return, by dimension, results shown before verdicts were added."""
    verdicts: dict[tuple[str, frozenset[str]], list[str]] = {}
    for dimension, dimension_judgments in judgments.items():
        for judgment in dimension_judgments:
            pair = frozenset((judgment.entrant_a, judgment.entrant_b))
            keys = [verdict.cache_key for verdict in judgment.raw]
            verdicts.setdefault((dimension, pair), []).extend(keys)
    leaders = {
        (dimension, frozenset((d.higher, d.lower))): d.higher
        for dimension in rated_standings.dimensions
        for d in rated_standings.pairs(dimension)
        if d.significant
    }
    shown_pairs = [
        PairResult(verdicts=keys, leader=leaders.get(pair))
        for pair, keys in verdicts.items()
    ]
    rows: dict[str, list[dict[str, Any]]] = {}
    for (dimension, pair), looks in zip(
        verdicts, store.record_looks(shown_pairs), strict=True
    ):
        if looks.n_looks:
            first, second = sorted(pair)
            rows.setdefault(dimension, []).append(
                {
                    "first": first,
                    "second": second,
                    "n_looks": looks.n_looks,
                    "first_leader": looks.first_leader,
                }
            )
    return {name: {"earlier_looks": looks} for name, looks in rows.items()}
