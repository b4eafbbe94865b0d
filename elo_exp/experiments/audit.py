"""Judge audits: questions with known right answers. python -m elo_exp experiment=audit judge=haiku"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from elo_exp import pipeline
from elo_exp.analysis.agreement import gold_errors, pairwise_kappa
from elo_exp.analysis.conclusions.audit_conclusion import conclude_judges
from elo_exp.analysis.effective_votes import EffectiveVotes, effective_votes
from elo_exp.data import column_roles, labelled_pairs
from elo_exp.data.rubrics import Rubric, check_dimensions
from elo_exp.entrants.probe import ProbeEntrant
from elo_exp.errors import SettingError, UserError
from elo_exp.experiments import Context, Experiment, Report, link_to_judge_page
from elo_exp.experiments.audit_questions import (
    AuditPrompts,
    AuditQuestions,
    AuditSettings,
)
from elo_exp.experiments.audit_run import (
    COLUMN_BY_METRIC,
    AuditJudgingOptions,
    AuditOutcome,
    AuditRun,
)
from elo_exp.experiments.comparison_experiment import (
    refuse_no_prompts,
    warn_of_foreign_bank,
)
from elo_exp.experiments.entrant_answers import look_for
from elo_exp.experiments.judge_choice import (
    collect_judges,
    describe_opening,
    require_distinct_judges,
    require_judge,
)
from elo_exp.experiments.settings import BankSettings, Study
from elo_exp.files import write_json
from elo_exp.judges import ApiJudge, Judge
from elo_exp.pipeline import Plan
from elo_exp.probes import Probe
from elo_exp.report import audits_page, page
from elo_exp.report.audits_page import JudgeAudits
from elo_exp.report.sentences import audit_sentences as words
from elo_exp.store.answer_store import Store

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Audit(Experiment):
    """An audit of one judge, or of several judges separately, which share one budget.

    levels  entrants with answers of known quality, best first
    judge   one judge, as the word judge=NAME chooses it
    judges  one judge or several, by name
    """

    study: Study
    columns: dict[str, str | list[str]]
    prompts: BankSettings
    judging: AuditJudgingOptions
    levels: dict[str, ProbeEntrant]
    judge: InitVar[Judge | None] = None
    judges: dict[str, Judge] = field(default_factory=dict)
    rubric: dict[str, Rubric]
    probe: dict[str, Probe]
    audit: AuditSettings

    def __post_init__(self, judge: Judge | None) -> None:
        self.judges = collect_judges(judge, self.judges, self.judging.budget_usd)

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """Return the configuration with the columns that the command names, after a check that it has prompts.

        Raises SettingError for columns without effect.
        """
        columns = column_roles.parse_columns_setting(config["columns"])
        column_roles.refuse_unused_roles(columns, labelled_pairs.COLUMNS, "audit")
        if columns and not config["audit"]["gold"]:
            raise SettingError(
                f"columns.{next(iter(columns))} names a column of labelled pairs, and no file of them is given. Add:",
                "  audit.gold=FILE",
            )
        refuse_no_prompts(config)
        return {**config, "columns": columns}

    @property
    def opening(self) -> str:
        """The first line of the console: the rubrics, the judge, its role and the budget."""
        rubrics, cap = [*self.rubric.values()], self.judging.budget_usd
        return describe_opening(self.judges, rubrics, self.study, cap)

    @property
    def is_single(self) -> bool:
        """Whether there is one judge, whose files are in the run folder itself."""
        return len(self.judges) == 1

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        columns = COLUMN_BY_METRIC if self.is_single else ("rho", "votes")
        return {"audit": ("biased", *columns), "usage": ()}

    @property
    def input_files(self) -> Mapping[str, Path]:
        paths = {"bank": self.prompts.bank_path, "gold": self.audit.gold}
        return {name: Path(path) for name, path in paths.items() if path}

    @cached_property
    def audit_prompts(self) -> AuditPrompts:
        """The prompts and graded answers of the questions."""
        return AuditPrompts(
            settings=self.audit,
            bank_path=self.prompts.bank_path,
            levels=self.levels,
            columns=self.columns,
        )

    @cached_property
    def audit_runs(self) -> dict[str, AuditRun]:
        """The audit of each judge, by the judge's name."""
        return {name: self._make_run(judge) for name, judge in self.judges.items()}

    def _make_run(self, judge: Judge) -> AuditRun:
        questions = AuditQuestions(
            prompts=self.audit_prompts,
            rubric={name: judge.instruct(r) for name, r in self.rubric.items()},
            probe=self.probe,
            judge=judge,
        )
        return AuditRun(judge=judge, questions=questions, options=self.judging)

    def dry_run(self, context: Context) -> str | None:
        self._check(context)
        return None

    def describe_plan(self, context: Context, plans: Sequence[Plan]) -> str:
        """Return the cost, and the effects that the tests would detect."""
        table = (
            pipeline.plan_table(plans[0])
            if self.is_single
            else pipeline.plan_of_judges(dict(zip(self.judges, plans, strict=True)))
        )
        audit, *_ = self.audit_runs.values()
        return f"{table}\n{audit.describe_reach()}"

    def _check(self, context: Context) -> None:
        """Raise SettingError for settings that give no question."""
        rubrics = [*self.rubric.values()]
        check_dimensions(rubrics)
        if turns_note := words.describe_left_out_turns(*self.audit_prompts.turn_counts):
            logger.info("audit: %s", turns_note)
        judge, *_ = self.judges.values()
        require_judge(judge, partial(self._make_plans, store=context.store))
        audit, *_ = self.audit_runs.values()
        if not audit.questions.queries:
            raise SettingError(
                "The audit has no questions: no chosen rubric applies to the prompts, or no test is chosen. For example:",
                "  'rubric=[factuality]' 'probe=[ladder,formatting]'",
            )
        bank_path = self.prompts.bank_path
        warn_of_foreign_bank(self.study, bank_path, judge, rubrics, context)
        if context.is_plan or not self.is_single:
            self._check_judges(context)

    def _check_judges(self, context: Context) -> None:
        """Raise UserError for equal judges, for judges that cannot be called, and for a cost above the cap."""
        plans = self.plans(context.store)
        for judge, plan in zip(self.judges.values(), plans, strict=True):
            if isinstance(judge, ApiJudge) and plan.new:
                look_for(judge, context.needs)
        if not context.is_plan:
            Plan.of_all(plans).check(context.store)

    def plans(self, store: Store) -> list[Plan]:
        """Return the planned calls of each judge and their cost."""
        plans = [audit.make_plan(store) for audit in self.audit_runs.values()]
        return plans if self.is_single else require_distinct_judges(self.judges, plans)

    def _make_plans(self, judges: Sequence[Judge], *, store: Store) -> list[Plan]:
        """Plan the calls of each judge and their cost."""
        return [self._make_run(judge).make_plan(store) for judge in judges]

    def run(self, context: Context) -> Report:
        if self.is_single:
            (audit,) = self.audit_runs.values()
            return audit.write_report(context, audit.run(context.store))
        outcomes, reports = dict[str, AuditOutcome](), dict[str, Report]()
        errors = dict[str, UserError]()
        for name, audit in self.audit_runs.items():
            logger.info("judge %s: %s", name, audit.judge.model)
            try:
                outcomes[name] = audit.run(context.store)
            except UserError as error:
                logger.warning("warning: judge %s was not audited: %s", name, error)
                errors[name] = error
                continue
            reports[name] = audit.write_report(context.of_judge(name), outcomes[name])
        if not outcomes:
            raise next(iter(errors.values()))
        comparisons = [
            self._compare_judges(rubric.dimension, outcomes, errors)
            for rubric in self.rubric.values()
        ]
        pages = {name: link_to_judge_page(name) for name in outcomes}
        n_biased = float(sum(outcome.n_biased for outcome in outcomes.values()))
        return Report(
            headline=n_biased,
            headline_is="audit/biased",
            text=audits_page.format_console(comparisons),
            facts={
                "judge_model": ", ".join(self.judges),
                "judges": {name: judge.model for name, judge in self.judges.items()},
            },
            artifacts=[
                write_json(
                    context.run_dir / "judges.json",
                    {
                        comparison.dimension: audits_page.as_json(comparison)
                        for comparison in comparisons
                    },
                )
            ],
            metrics={"audit/biased": n_biased} | audits_page.list_metrics(comparisons),
            page=page.make_page_renderer(
                partial(audits_page.build_document, comparisons, pages)
            ),
            exit_code=2 if errors else 0,
            of_judges=reports,
        )

    def _compare_judges(
        self,
        dimension: str,
        outcomes: Mapping[str, AuditOutcome],
        errors: Mapping[str, UserError],
    ) -> JudgeAudits:
        audit_by_judge = {
            name: dimension_audit
            for name, outcome in outcomes.items()
            for dimension_audit in outcome.audited
            if dimension_audit.audit["dimension"] == dimension
        }
        return JudgeAudits(
            dimension=dimension,
            conclusion=conclude_judges(
                {
                    name: dimension_audit.conclusion
                    for name, dimension_audit in audit_by_judge.items()
                },
                [*errors],
            ),
            own=audit_by_judge,
            failed={
                name: " ".join(str(error).split()) for name, error in errors.items()
            },
            kappas=pairwise_kappa(
                {
                    name: outcome.battles(dimension)
                    for name, outcome in outcomes.items()
                },
                dimension=dimension,
            ),
            votes=self._estimate_votes(dimension, outcomes),
        )

    def _estimate_votes(
        self, dimension: str, outcomes: Mapping[str, AuditOutcome]
    ) -> EffectiveVotes | None:
        """Estimate the number of independent votes, by labelled pairs; None without pairs, or for one judge."""
        judgments = {
            name: [judgment for _, judgment in outcome.judged[dimension]]
            for name, outcome in outcomes.items()
        }
        errors, prompts = gold_errors(self.audit_prompts.gold, judgments)
        if not prompts or len(errors) < 2:
            return None
        return effective_votes(errors, prompts)
