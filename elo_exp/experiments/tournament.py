"""Who wins among our entrants: everyone answers, judges compare the answers pair by pair, the battles are rated."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from elo_exp import pipeline
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.standings import Standings
from elo_exp.data.pairing import Responses
from elo_exp.data.scoring import PointwiseRubric
from elo_exp.errors import SettingError
from elo_exp.experiments import Context, Report
from elo_exp.experiments.comparison_design import ComparisonDesign
from elo_exp.experiments.comparison_experiment import PairwiseExperiment
from elo_exp.experiments.judge_choice import list_recorded_judges
from elo_exp.experiments.pilot_variance import describe_pilot
from elo_exp.experiments.rated import (
    list_metric_names,
    report_judges,
    report_standings,
    supports_joint_board,
)
from elo_exp.experiments.scoring_run import ScoringResult, ScoringRun, check_scoring
from elo_exp.experiments.stored_audits import suggest_audit_command
from elo_exp.experiments.tournament_run import (
    TournamentJudgingOptions,
    TournamentResult,
    TournamentRun,
)
from elo_exp.pipeline import Plan
from elo_exp.ratings import EloMethod, RatingMethod
from elo_exp.report import artifacts, judges_page
from elo_exp.report.viewer import Comparisons

logger = logging.getLogger(__name__)

# The same for all judges of a run
_SHARED_FACTS = (
    *("entrants", "rubric_versions", "bank_size", "selected_prompt_count"),
    *("truncated_responses", "effort", "conversations", "answers"),
)
_DEMO_FOLLOW_UP = (
    "Compare your own answers. This command shows the price and is free:\n"
    "elo-exp FILE FILE judge=sonnet plan=true"
)


@dataclass(kw_only=True)
class Tournament(PairwiseExperiment):
    """A tournament with one judge, or with several: each judges all of it by itself.

    scoring     rubrics that score each answer by itself; if rubric={}, no pairs are compared
    stratum     column of the bank by whose values ratings are compared; None: none
    sweep_pair  whose difference a sweep draws; None: the two best
    """

    judging: TournamentJudgingOptions
    scoring: dict[str, PointwiseRubric]
    elo: EloMethod
    rating: dict[str, RatingMethod]
    stratum: str | None
    sweep_pair: list[str] | None
    takes_several_judges: ClassVar[bool] = True

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """Take all judges whose verdicts a file holds, if these are several."""
        config = PairwiseExperiment.prepare(config, overrides)
        if "judge" in config and (judges := list_recorded_judges(config["judge"])):
            config = {**config, "judges": judges}
            del config["judge"]
        return config

    @property
    def is_single(self) -> bool:
        """Whether one judge judges, whose files are in the run folder itself."""
        return len(self.judges) == 1

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        if self.is_single:
            methods = [*self.rating, *(["mean_score"] if self.scoring else [])]
            return list_metric_names(methods)
        return {"judges": judges_page.JUDGE_METRIC_NAMES}

    @property
    def scorings(self) -> Sequence[PointwiseRubric]:
        return list(self.scoring.values())

    @cached_property
    def design(self) -> ComparisonDesign:
        """Which answers are compared: those of each entrant with those of its opponents."""
        return replace(super().design, n_opponents=self.judging.opponents)

    @cached_property
    def tournament_runs(self) -> dict[str, TournamentRun]:
        """The tournament of each judge, by the judge's name."""
        return {
            name: TournamentRun(
                judge_run=judge_run,
                design=self.design,
                options=self.judging,
                elo=self.elo,
                rating=self.rating,
                stratum=self.stratum,
            )
            for name, judge_run in self.judge_runs.items()
        }

    @property
    def scoring_runs(self) -> dict[str, ScoringRun]:
        """The judges that score answers one by one, by name; none without scorings."""
        return {
            name: ScoringRun(
                judge_run=judge_run,
                design=self.design,
                allow_missing=self.allow_missing,
            )
            for name, judge_run in self.judge_runs.items()
            if self.scoring
        }

    def check_settings(self, context: Context) -> None:
        if self.scoring:
            check_scoring(
                self.judge_runs,
                shard=self.shard,
                looks=self.judging.looks,
            )
        if not self.is_single:
            _refuse_several_judges(
                self.judging,
                self.shard,
                is_joint=not self.rubric or supports_joint_board(self.rating),
            )
        if self.sweep_pair is not None and len(set(self.sweep_pair)) != 2:
            raise SettingError(
                f"sweep_pair must be two entrants; got {', '.join(self.sweep_pair)}. For example:",
                "  'sweep_pair=[NAME1,NAME2]'",
            )
        _ = self.prompt_source.clusters
        if self.stratum is not None:
            self.prompt_source.read_strata(self.stratum)
        k, m = self.judging.opponents, len(self.entrant)
        is_one = self.judging.orders == "one"
        if k is not None and not (is_one and 6 <= m > k and k * m % 2 == 0):
            raise SettingError(
                f"judging.opponents={k} does not fit {m} entrants and judging.orders={self.judging.orders}. It needs "
                f"all of these:",
                "  judging.orders=one",
                "  at least 6 entrants, and more entrants than opponents",
                "  an even number of opponents if the number of entrants is odd",
            )
        looks = self.judging.looks
        if looks > 1 and (k is not None or not self.rating):
            raise SettingError(
                f"judging.looks={looks} needs all opponents and a rating with standard errors. Set judging.looks=1, or:",
                "  judging.opponents=null 'rating=[bradley_terry]'",
            )
        if looks > 1 and self.shard is not None:
            raise SettingError(
                f"shard={self.shard} cannot be combined with judging.looks={looks}, where verdicts decide what is "
                f"judged next. "
                "Leave one of them out."
            )

    def format_plan(self, plans: Sequence[Plan]) -> str:
        text, looks = super().format_plan(plans), self.judging.looks
        if looks > 1:
            (plan,) = plans
            drops = self.judging.drops_resolved
            text += f"\n{pipeline.looks_table(plan, looks, drop=drops)}"
        return text

    def dry_run(self, context: Context) -> str | None:
        """Raise SettingError or another UserError for settings and files that the run would refuse.

        Verdicts on file may be of several judges, of which a sweep has one in each job.
        """
        if context.in_sweep and not self.is_single:
            raise SettingError(
                f"Each job of a sweep has one judge, and the file has verdicts of {', '.join(self.judges)}. Choose one:",
                "  judge.judge_model=NAME",
            )
        return super().dry_run(context)

    def describe_plan(self, context: Context, plans: Sequence[Plan]) -> str:
        text = super().describe_plan(context, plans)
        if not self.is_single or not self.rubric:
            return text
        (run,) = self.tournament_runs.values()
        return "\n".join([text, *describe_pilot(run, context.store)])

    def conclude(
        self, context: Context, responses: Responses, comparisons: Comparisons
    ) -> Report:
        store = context.store
        if not self.is_single or self.scoring:
            self.judging_plan.make_whole_plan(store).check(store)
        by_judge, reports = dict[str, Standings](), dict[str, Report]()
        for name, judge_run in self.judge_runs.items():
            judge_context = context
            if not self.is_single:
                logger.info("judge %s: %s", name, judge_run.judge.model)
                judge_context = context.of_judge(name)
            scored, scoring_run = None, self.scoring_runs.get(name)
            if scoring_run is not None:
                scored = scoring_run.score_and_rate(store, responses)
                if not self.rubric:
                    by_judge[name] = scored.standings
                    report = scoring_run.report(judge_context, responses, scored)
                    reports[name] = report
                    continue
            run = self.tournament_runs[name]
            result = run.judge_and_rate(store, responses, comparisons)
            if not self.is_single:
                by_judge[name] = add_conclusions(
                    result.standings,
                    judge_run.scope,
                    quality=result.quality,
                    n_seen=result.n_seen,
                )
            reports[name] = self._report_judge(
                judge_context, run, responses, result, scored, scoring_run
            )
        if self.is_single:
            (report,) = reports.values()
            return report
        return self._report_all(context, by_judge, reports)

    def _report_judge(
        self,
        context: Context,
        run: TournamentRun,
        responses: Responses,
        result: TournamentResult,
        scored: ScoringResult | None,
        scoring_run: ScoringRun | None,
    ) -> Report:
        """Write what one judge's tournament leaves, and report it."""
        judge = run.judge_run.judge
        facts = self.design.collect_facts(
            judge.model, responses, result.judgments, result.quality
        )
        is_shipped = self.study is not None and self.study.name == "medical"
        if self.mode.name == "demo" and judge.make_scope().kind == "words":
            follow_up = _DEMO_FOLLOW_UP if is_shipped else None
        else:
            follow_up = suggest_audit_command(judge, self.rubric, context)
        return report_standings(
            result.standings,
            context,
            scope=run.judge_run.scope,
            n_seen=result.n_seen,
            facts={**facts, "n_seen": result.n_seen},
            quality=result.quality,
            follow_up=follow_up,
            written=[
                *artifacts.write_judging(
                    context.run_dir,
                    responses=responses,
                    comparisons=result.comparisons,
                    judgments=result.judgments,
                ),
                *(scored.write_scores(context.run_dir) if scored else ()),
            ],
            comparisons=result.comparisons,
            judgments=result.judgments,
            scored=scoring_run.compare_with_pairs(scored, result.standings, responses)
            if scored and scoring_run
            else None,
        )

    def _report_all(
        self,
        context: Context,
        by_judge: Mapping[str, Standings],
        reports: Mapping[str, Report],
    ) -> Report:
        """Report what several judges say together."""
        first_report = next(iter(reports.values()))
        return report_judges(
            by_judge,
            reports,
            context,
            orders=self.judging.orders,
            initial_rating=self.elo.initial_rating,
            jointly=bool(self.rubric),
            facts={
                **{
                    key: first_report.facts[key]
                    for key in _SHARED_FACTS
                    if key in first_report.facts
                },
                "judges": {name: judge.model for name, judge in self.judges.items()},
            },
        )


def _refuse_several_judges(
    judging: TournamentJudgingOptions, shard: str | None, *, is_joint: bool
) -> None:
    """Raise SettingError for settings that are about one judge."""
    if judging.looks > 1:
        raise SettingError(
            f"judging.looks must be 1 with several judges; got {judging.looks}. Set judging.looks=1, or "
            f"choose one judge."
        )
    if shard is not None:
        raise SettingError(
            f"shard={shard} cannot be combined with several judges. Run the shards of each judge with judge=NAME, "
            "then all judges without shard."
        )
    if not is_joint:
        raise SettingError(
            "Several judges need Bradley-Terry ratings without style and baseline_model for a combined leaderboard. Set:",
            "  'rating=[bradley_terry]'",
        )
