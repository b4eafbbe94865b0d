"""Base classes of experiments with entrants: their settings (conf/judged.yaml), the parts made of these, and the stages
of experiments whose judges compare pairs of answers."""

import logging
import math
import shlex
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from elo_exp import pipeline
from elo_exp.analysis.gate_checks import refuse_broken_checks
from elo_exp.data import answer_joins, column_roles, identical_answers
from elo_exp.data.bank import PromptBank
from elo_exp.data.pairing import Responses
from elo_exp.data.rubrics import Instructions, Rubric, check_dimensions
from elo_exp.data.scoring import PointwiseRubric
from elo_exp.entrants import Entrant
from elo_exp.errors import SettingError
from elo_exp.experiments import Context, Experiment, HasInputFiles, Report
from elo_exp.experiments.answer_files import (
    AnswerFiles,
    configure_entrants,
    log_lines,
    prepare_columns,
    warn_of_look_alikes,
)
from elo_exp.experiments.comparison_design import ComparisonDesign
from elo_exp.experiments.entrant_answers import EntrantAnswers, count_draws, log_draws
from elo_exp.experiments.judge_choice import (
    collect_judges,
    describe_opening,
    list_unique_judge_names,
)
from elo_exp.experiments.judge_run import JudgeRun
from elo_exp.experiments.judging_plan import JudgingPlan
from elo_exp.experiments.prompt_source import PromptSource
from elo_exp.experiments.settings import (
    EntrantServerSettings,
    JudgingOptions,
    ModeSettings,
    PromptSettings,
    Study,
    build_no_prompts_error,
)
from elo_exp.experiments.shards import parse_shard
from elo_exp.formatting import join_names
from elo_exp.judges import Judge, roles_by_dimension
from elo_exp.pipeline import AnswerPlan, JudgingSettings, Plan
from elo_exp.report.sentences import opening_line
from elo_exp.report.sentences.check_sentences import (
    cut_answers,
    foreign_bank,
    references_unused,
)
from elo_exp.report.sentences.check_sentences import equal_answers as say_equal_answers
from elo_exp.report.viewer import Comparisons
from elo_exp.store.answer_store import Store
from elo_exp.types import Count

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class EntrantExperiment(Experiment):
    """An experiment whose entrants answer prompts.

    shard    i/n: make what belongs to this share of the prompts, and stop
    answers  files of answers
    columns  the column of each role, in files of answers and of prompts
    draws    answers of each entrant to each prompt
    study    None: the experiment has none
    """

    shard: str | None
    allow_missing: bool
    recorded_dir: str | None
    answers: str | list[Any] | dict[str, Any] | None
    columns: dict[str, str | list[str]]
    prompts: PromptSettings
    draws: Count
    judging: JudgingOptions
    mode: ModeSettings
    entrant: dict[str, Entrant]
    api: EntrantServerSettings
    study: Study | None

    def __post_init__(self) -> None:
        if self.shard is not None:
            parse_shard(self.shard)
        for name, entrant in self.entrant.items():
            if entrant.entrant_id != name:
                raise SettingError.bad_value(
                    f"entrant.{name}.entrant_id",
                    entrant.entrant_id,
                    f"be {name}, as the entrant is called in the configuration",
                )

    @property
    def judging_settings(self) -> JudgingSettings:
        """How a judge is asked."""
        return JudgingSettings(
            both_orders=self.judging.both_orders,
            repeats=self.judging.repeats,
            stored_only=self.judging.stored_only,
            allow_missing=self.allow_missing,
            canary=self.judging.canary,
            max_invalid=self.judging.max_invalid,
        )

    def refuse_drawing(self, setting: str) -> None:
        """Raise SettingError for prompts.n in an experiment that draws by a setting of its own."""
        if self.prompts.n is not None:
            raise SettingError.bad_value(
                "prompts.n",
                self.prompts.n,
                f"be null in this experiment, which samples prompts by {setting}",
            )

    def refuse_draws(self, experiment: str, hint: str) -> None:
        """Raise SettingError for several draws in an experiment of one.

        hint  a sentence that says why, or what to do
        """
        if self.draws != 1:
            raise SettingError(
                f"draws must be 1 with experiment={experiment}; got {self.draws}. {hint}"
            )

    def check_files(self) -> None:
        """With allow_missing, go on without the entrants whose files are absent."""
        if not self.allow_missing:
            return
        for name, entrant in list(self.entrant.items()):
            files = entrant.input_files if isinstance(entrant, HasInputFiles) else {}
            absent_paths = [path for path in files.values() if not path.exists()]
            if absent_paths:
                logger.warning(
                    "warning: %s: found no %s. The run goes on without it.",
                    name,
                    absent_paths[0],
                )
                del self.entrant[name]

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """Take entrants that read from files where a command gives these. Raises UserError for no prompts."""
        files = answer_joins.parse_answers_setting(config.get("answers"))
        if "oracle" not in config:
            config = prepare_columns(config, overrides)
        config["entrant"] = configure_entrants(config, overrides)
        if not files and not config.get("gate"):
            refuse_no_prompts(config)
        return config


@dataclass(kw_only=True)
class ComparisonExperiment(EntrantExperiment):
    """An experiment in which answers are compared by judges.

    judge   one judge, as the word judge=NAME chooses it
    judges  the judges by name: several, or the only one
    """

    judge: InitVar[Judge | None] = None
    judges: dict[str, Judge] = field(default_factory=dict)
    rubric: dict[str, Rubric]
    takes_several_judges: ClassVar[bool] = False

    def __post_init__(self, judge: Judge | None) -> None:
        super().__post_init__()
        if len(self.judges) > 1 and not self.takes_several_judges:
            raise SettingError(
                f"judge must be one judge in this experiment; got {', '.join(self.judges)}. Set judge=NAME."
            )
        cap = self.judging.budget_usd
        self.judges = collect_judges(judge, self.judges, cap)

    @property
    def input_files(self) -> Mapping[str, Path]:
        return self.prompt_source.input_files

    @property
    def opening(self) -> str:
        """The first line of the console: what is judged, by whom, as what, and what it may cost."""
        runs = self.judging_plan.judge_runs.values()
        if all(run.scope.is_baseline for run in runs):
            return opening_line.BASELINE_LINE
        cap = self.judging.budget_usd
        return describe_opening(self.judges, self.instructions, self.study, cap)

    @property
    def rubrics(self) -> list[Rubric]:
        """The rubrics of pairs in the order of the command."""
        return list(self.rubric.values())

    @property
    def scorings(self) -> Sequence[PointwiseRubric]:
        """The rubrics by which single answers are scored; none by default."""
        return ()

    @property
    def instructions(self) -> list[Instructions]:
        """All rubrics, those of pairs first."""
        return [*self.rubrics, *self.scorings]

    @cached_property
    def n_draws(self) -> int:
        """The number of answers to a prompt that are compared."""
        return count_draws(self.entrant, self.draws)

    @cached_property
    def answer_files(self) -> AnswerFiles:
        """The files of answers that the command gives."""
        path = self.prompts.bank_path
        return AnswerFiles(
            files=answer_joins.parse_answers_setting(self.answers),
            bank=None
            if path is None
            else PromptBank(path=Path(path), columns=self.columns),
            columns=self.columns,
            n_draws=self.n_draws,
        )

    @cached_property
    def prompt_source(self) -> PromptSource:
        """The prompts."""
        return PromptSource(
            settings=self.prompts,
            mode=self.mode,
            answer_files=self.answer_files,
            n_draws=self.n_draws,
        )

    @cached_property
    def entrant_answers(self) -> EntrantAnswers:
        """The answers of the entrants."""
        return EntrantAnswers(
            entrants=self.entrant,
            allow_missing=self.allow_missing,
            canary=self.judging.canary,
        )

    @cached_property
    def design(self) -> ComparisonDesign:
        """Which answers are compared."""
        return ComparisonDesign(
            prompt_source=self.prompt_source,
            answers=self.entrant_answers,
            rubrics=self.rubrics,
            shown=self.judging.shown,
            limit_pairs=self.judging.limit_pairs,
            shard=self.shard,
            scorings=self.scorings,
        )

    @cached_property
    def judge_runs(self) -> dict[str, JudgeRun]:
        """The judges with everything that they are asked by, by name."""
        names = list_unique_judge_names(self.judges)
        return {
            name: JudgeRun(
                judge=judge,
                called=names[name],
                rubrics=[*map(judge.instruct, self.rubrics)],
                scorings=[*map(judge.instruct, self.scorings)],
                options=self.judging,
                settings=self.judging_settings,
                entrants=self.entrant,
                compares_equal=self.judging.allow_equal,
            )
            for name, judge in self.judges.items()
        }

    @property
    def judge_run(self) -> JudgeRun:
        """The only judge, in an experiment that has one."""
        (judge_run,) = self.judge_runs.values()
        return judge_run

    @property
    def judging_plan(self) -> JudgingPlan:
        """What the judges would be asked."""
        return JudgingPlan(design=self.design, judge_runs=self.judge_runs)


@dataclass(kw_only=True)
class PairwiseExperiment(ComparisonExperiment):
    """An experiment in which all entrants answer, and judges compare the answers pair by pair."""

    def check_entrants(self) -> None:
        """Raise SettingError for too few entrants."""
        if len(self.entrant) < 2:
            if paths := [path for _, path in self.answer_files.files if path]:
                path = paths[0]
                raise SettingError(
                    f"A comparison needs at least two sets of answers; {path} holds one. Add a second file:",
                    f"  python -m elo_exp {shlex.quote(str(path))} FILE",
                )
            raise SettingError(
                f"A tournament needs at least two entrants; got {', '.join(self.entrant) or 'none'}. For example:",
                "  python -m elo_exp old.csv new.csv",
                "  python -m elo_exp prompts=FILE 'entrant=[hf:ORG/MODEL,claude:NAME]'",
            )

    def _refuse_guessed_entrants(self) -> None:
        """Raise SettingError for a model as judge of entrants that are guessed: a column of notes would be paid for."""
        is_asked = any(judge.receives_instructions for judge in self.judges.values())
        if not (is_asked and self.answer_files):
            return
        answer_sets = self.answer_files.joined.answer_sets.values()
        for path, columns in answer_joins.find_guessed_columns(answer_sets).items():
            raise SettingError(
                f"{path} has no column for the answer. Nothing was sent or charged. If {join_names(columns)} are entrants, "
                "add:",
                *column_roles.format_settings({"answer": columns}),
                column_roles.describe_columns(path),
            )

    def check_settings(self, context: Context) -> None:
        """Raise UserError for settings that do not fit together; by default all do."""
        return

    def format_plan(self, plans: Sequence[Plan]) -> str:
        """Describe what judging would cost, by the plan of each judge."""
        judging_plan = self.judging_plan
        table = (
            pipeline.plan_table(plans[0])
            if judging_plan.is_single
            else pipeline.plan_of_judges(dict(zip(self.judges, plans, strict=True)))
        )
        return "\n".join([table, *judging_plan.describe_kin()])

    @abstractmethod
    def conclude(
        self, context: Context, responses: Responses, comparisons: Comparisons
    ) -> Report:
        """Judge the comparisons, and report what follows."""

    def dry_run(self, context: Context) -> str | None:
        """Raise UserError for settings and files that the run would refuse."""
        refuse_broken_checks()
        self.check_entrants()
        self._refuse_guessed_entrants()
        warn_of_look_alikes(self.entrant, "entrants")
        log_lines(self.answer_files.describe_joined())
        log_draws(self.entrant, self.draws, self.n_draws)
        self.check_settings(context)
        self._check_rubrics()
        self.judging_plan.check(self.prompt_source.repeat(), context)
        judge, *_ = self.judges.values()
        bank_path = self.prompts.bank_path
        warn_of_foreign_bank(self.study, bank_path, judge, self.instructions, context)
        self._offer_references(judge)
        return None

    def describe_plan(self, context: Context, plans: Sequence[Plan]) -> str:
        store = context.store
        return "\n".join(
            [
                self.format_plan(plans),
                *self.design.describe_conversations(store),
                *self.judging_plan.describe_equal_answers(store),
            ]
        )

    def plans(self, store: Store) -> list[Plan]:
        """Return what each judge would be asked, and cost."""
        return self.judging_plan.make_plans(store)

    def answer_plans(self, store: Store) -> list[AnswerPlan]:
        """Return the answers that each entrant has still to make, and what they cost."""
        return self.entrant_answers.make_plans(self.prompt_source.repeat(), store)

    def run(self, context: Context) -> Report:
        store, prompts = context.store, self.prompt_source.repeat()
        responses = self.entrant_answers.generate(prompts, store)
        comparisons = self.design.pair(prompts, responses)
        extent = self.design.measure_extent(prompts, responses)
        if extent and (caution := cut_answers(vars(extent))):
            logger.warning("warning: %s", caution)
        pairs = identical_answers.count_equal_in_comparisons(
            [c for s in comparisons.values() for c in s]
        )
        self.judging_plan.refuse_equal_answers(pairs, comparisons, store)
        for line in say_equal_answers(pairs):
            logger.warning("warning: %s", line)
        if self.shard is not None:
            return self._judge_share(comparisons, store, self.shard)
        return self.conclude(context, responses, comparisons)

    def _check_rubrics(self) -> None:
        """Raise SettingError for no rubrics, and for two of one dimension; warn of rubrics that judge nothing."""
        if not self.instructions:
            raise SettingError.no_value(
                "rubric",
                needed_for="The judge",
                value="at least one rubric",
                example="'rubric=[preference]'",
            )
        check_dimensions(self.instructions)
        prompts = self.prompt_source.select()
        for rubric in self.instructions:
            if not any(map(rubric.applies_to, prompts)):
                logger.warning(
                    "warning: rubric %s: no prompt has a gold_answer, so it judges nothing. Leave "
                    "it out: rubric=[...]",
                    rubric.dimension,
                )

    def _offer_references(self, judge: Judge) -> None:
        """Say of prompts of any kind that they have references, where no rubric shows them."""
        is_open = self.study is not None and self.study.bank_path is None
        is_shown = any(rubric.needs_reference for rubric in self.instructions)
        if (
            not (is_open and self.rubrics)
            or is_shown
            or not judge.receives_instructions
        ):
            return
        prompts = self.prompt_source.select()
        if n := sum(prompt.gold_answer is not None for prompt in prompts):
            logger.info("%s", references_unused(n, len(prompts), list(self.rubric)))

    def _judge_share(
        self, comparisons: Comparisons, store: Store, shard: str
    ) -> Report:
        """Judge the comparisons of a shard of the prompts, and report the number of verdicts."""
        share = self.design.select(self.design.add_control(comparisons))
        self.judge_run.judge_pairs(share, store)
        n_made, n_stored = store.usage.judge_calls, store.usage.verdicts_stored
        stored_note = f", {n_stored:,} from cache" if n_stored else ""
        text = f"shard {shard}: {n_made:,} new verdicts{stored_note}. To rate all verdicts, leave out shard."
        return Report(headline=math.nan, text=text)


def refuse_no_prompts(config: Mapping[str, Any]) -> None:
    """Raise SettingError where a study brings no bank, and none is given."""
    if config["prompts"]["bank_path"] is None:
        study = (config.get("study") or {}).get("name")
        raise build_no_prompts_error(f"study={study} has no prompts of its own.")


def warn_of_foreign_bank(
    study: Study | None,
    bank_path: str | None,
    judge: Judge,
    rubrics: Sequence[Instructions],
    context: Context,
) -> None:
    """Warn of prompts that the study's header was not written for, unless the command names the study."""
    if study is None or study.bank_path is None:
        return
    is_named = any(word.startswith("study=") for word in context.overrides)
    study_path, path = Path(study.bank_path).resolve(), Path(bank_path or "").resolve()
    judge_roles = roles_by_dimension(judge, rubrics).values()
    if judge_roles and not is_named and study_path != path:
        source = bank_path or "the prompts of these answers"
        logger.warning("warning: %s", foreign_bank(study.name, judge_roles, source))
