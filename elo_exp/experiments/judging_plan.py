"""What judging would ask, cost and refuse: known before anything is paid."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from elo_exp import pipeline
from elo_exp.data import identical_answers
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.data.pairing import Responses
from elo_exp.entrants import draws_of
from elo_exp.errors import EvidenceError
from elo_exp.experiments import Context
from elo_exp.experiments.comparison_design import ComparisonDesign
from elo_exp.experiments.entrant_answers import preflight
from elo_exp.experiments.judge_choice import require_distinct_judges, require_judge
from elo_exp.experiments.judge_run import JudgeRun
from elo_exp.judges import Judge
from elo_exp.pipeline import Plan
from elo_exp.records import Prompt
from elo_exp.report.sentences.check_sentences import (
    describe_equal_answers_plan,
    refuse_equal_answers,
)
from elo_exp.report.viewer import Comparisons
from elo_exp.store.answer_store import Store


@dataclass(frozen=True, kw_only=True)
class JudgingPlan:
    """The judges of an experiment, by name, and the comparisons that each of them is asked about."""

    design: ComparisonDesign
    judge_runs: Mapping[str, JudgeRun]

    @property
    def is_single(self) -> bool:
        """Whether there is one judge, which pays from its own budget."""
        return len(self.judge_runs) == 1

    def make_plans(self, store: Store, *, at_least: bool = False) -> list[Plan]:
        """Plan what each judge would be asked, and cost. Raises SettingError for two that are one."""
        subjects = self.design.assume(store, at_least=at_least)
        is_upper_bound = not at_least and self.design.counts_at_limit(store)
        plans = [
            replace(run.make_plan(subjects, store), is_upper_bound=is_upper_bound)
            for run in self.judge_runs.values()
        ]
        if self.is_single:
            return plans
        judges = {name: run.judge for name, run in self.judge_runs.items()}
        return require_distinct_judges(judges, plans)

    def make_whole_plan(self, store: Store, *, at_least: bool = False) -> Plan:
        """Plan what all judges would be asked together."""
        plans = self.make_plans(store, at_least=at_least)
        return plans[0] if self.is_single else Plan.of_all(plans)

    def describe_kin(self) -> list[str]:
        """Describe, before money is spent, which judges are of the family of some entrants."""
        return [
            line
            for run in self.judge_runs.values()
            for line in run.describe_kin_plan(run.kin)
        ]

    def check(self, prompts: Sequence[Prompt], context: Context) -> None:
        """Raise UserError for a judge that cannot be asked, or not about these entrants, and for answers that files lack.

        A plan needs neither keys nor models, and is not stopped by a cap.
        """
        store, shard = context.store, self.design.shard
        self.design.answers.refuse_absent(prompts, store)
        for judge_run in self.judge_runs.values():
            judge_run.refuse_excluded()
            require_judge(
                judge_run.judge, partial(self._price_offers, judge_run, store=store)
            )
            if shard is not None:
                with context.needs.collect():
                    self.design.answers.refuse_unanswered(prompts, store, shard)
            self._check_access(judge_run, prompts, context)
        pays = any(not run.settings.stored_only for run in self.judge_runs.values())
        if self.is_single or context.is_plan or not pays:
            return
        if pipeline.needs_paid_answers(prompts, self.design.answers.entrants, store):
            self.make_whole_plan(store, at_least=True).check(store)

    def _price_offers(
        self, judge_run: JudgeRun, judges: Sequence[Judge], *, store: Store
    ) -> list[Plan]:
        """Plan what each judge that is offered in the place of another would cost."""
        subjects = self.design.assume(store)
        return [
            pipeline.plan_judging(
                subjects, judge_run.instructions, judge, store, judge_run.settings
            )
            for judge in judges
        ]

    def _check_access(
        self, judge_run: JudgeRun, prompts: Sequence[Prompt], context: Context
    ) -> None:
        """Raise EvidenceError or another UserError for missing models, and for what would stop the first paid call."""
        store = context.store
        with context.needs.collect():
            judge_run.check_audits(store)
        entrants, stored_only = (
            self.design.answers.entrants,
            judge_run.settings.stored_only,
        )
        judge = None if stored_only else judge_run.judge
        preflight(
            prompts,
            entrants,
            judge,
            store,
            stored_only=stored_only,
            needs=context.needs,
        )
        if judge_run.paid_judge is None and not judge_run.judge.is_recorded:
            return
        known_responses = self.design.answers.find_known(prompts, store)
        known_subjects = self.design.list_subjects(prompts, known_responses)
        judge_run.refuse_missing_replies(known_subjects, store)
        if judge_run.paid_judge is None:
            return
        if not context.is_plan and pipeline.needs_paid_answers(
            prompts, entrants, store
        ):
            self.design.answers.log_missing(prompts, store)
            pipeline.check_before_answers(
                judge_run.make_plan(self.design.assume(store), store),
                judge_run.make_plan(self.design.assume(store, at_least=True), store),
                store,
            )
        if pair := self._find_known_waste([judge_run], prompts, known_responses, store):
            raise EvidenceError(*refuse_equal_answers(pair))
        judge_run.preflight(known_subjects, context)

    def describe_equal_answers(self, store: Store) -> list[str]:
        """Describe, before money is spent, which entrants gave the same answers, as far as they are known."""
        prompts = self.design.prompt_source.repeat()
        known_responses = self.design.answers.find_known(prompts, store)
        return describe_equal_answers_plan(
            identical_answers.count_equal_in_responses(known_responses)
        )

    def refuse_equal_answers(
        self, pairs: Sequence[EqualAnswers], comparisons: Comparisons, store: Store
    ) -> None:
        """Raise EvidenceError before a judge is paid for two entrants that gave the same answers."""
        for pair in pairs:
            if _pay_for_equal_answers(
                self.judge_runs.values(), pair, comparisons, store
            ):
                raise EvidenceError(*refuse_equal_answers(pair))

    def _find_known_waste(
        self,
        judge_runs: Collection[JudgeRun],
        prompts: Sequence[Prompt],
        responses: Responses,
        store: Store,
    ) -> EqualAnswers | None:
        """Return a pair with equal answers that a judge would be paid for, if all its answers are known before the run."""
        n_prompts = len({prompt.prompt_id for prompt in prompts})
        entrants, n_draws = (
            self.design.answers.entrants,
            self.design.prompt_source.n_draws,
        )
        for pair in identical_answers.count_equal_in_responses(responses):
            pair_responses = {
                name: responses[name] for name in (pair.first, pair.second)
            }
            is_complete = all(
                len(answers) == n_prompts * draws_of(entrants[name], n_draws)
                for name, answers in pair_responses.items()
            )
            if is_complete and _pay_for_equal_answers(
                judge_runs, pair, self.design.pair(prompts, pair_responses), store
            ):
                return pair
        return None


def _pay_for_equal_answers(
    judge_runs: Collection[JudgeRun],
    pair: EqualAnswers,
    comparisons: Comparisons,
    store: Store,
) -> bool:
    """Return whether some judge would be paid for two entrants that gave the same answers."""
    return any(
        run.pays_for_equal_answers(pair, comparisons, store) for run in judge_runs
    )
