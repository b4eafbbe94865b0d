"""What experiments with a judge share: their settings, conf/judged.yaml, and the stages of those that judge pairs."""

import logging
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from elo_exp import pipeline
from elo_exp.analysis import audit_decisions, families
from elo_exp.analysis.answer_effort import average_effort
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.families import JudgeFamily
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.data import (
    answer_joins,
    bank,
    conversations,
    field_names,
    identical_answers,
    pairing,
)
from elo_exp.data.conversations import Extent, ViewSettings
from elo_exp.data.field_names import CLUSTER_FIELD
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.data.pairing import Responses
from elo_exp.data.rubrics import Rubric, check_dimensions
from elo_exp.entrants import (
    ApiEntrant,
    Entrant,
    draws_of,
)
from elo_exp.errors import EvidenceError, FileError, SettingError, UserError
from elo_exp.experiments import Context, Experiment, HasInputFiles, Report
from elo_exp.judges import (
    ApiJudge,
    Judge,
    NoJudge,
    roles_by_dimension,
)
from elo_exp.paths import CONF
from elo_exp.pipeline import JudgingSettings, Plan
from elo_exp.records import Comparison, Judgment, MissingBattle, Prompt
from elo_exp.report.sentences import opening_line
from elo_exp.report.sentences.check_sentences import conversations as say_conversations
from elo_exp.report.sentences.check_sentences import (
    cut_answers,
    describe_equal_answers_plan,
    describe_same_family_plan,
    foreign_bank,
    list_judge_choices,
    references_unused,
    refuse_equal_answers,
)
from elo_exp.report.sentences.check_sentences import equal_answers as say_equal_answers
from elo_exp.report.viewer import Comparisons, Judgments
from elo_exp.runs import documents
from elo_exp.store.answer_store import Store
from elo_exp.types import Count, Dollars, Families, Natural, Orders, Share

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class BankSettings:
    bank_path: str


@dataclass(kw_only=True)
class Study:
    """Which bank, header, rubrics and strata belong together: conf/study/. Header and rubrics stand in the group rubric.

    stratum    column of the bank by whose values ratings are compared; None: none
    bank_path  the bank that header and rubrics are written for; None: any
    """

    name: str
    stratum: str | None
    bank_path: str | None


@dataclass(kw_only=True)
class EntrantServerSettings:
    """The server of entrants that a word of the command has named, api:NAME; they take its settings themselves."""

    base_url: str | None
    key_variable: str | None


@dataclass(kw_only=True)
class AskedPrompts:
    bank_path: str | None  # None: the prompts that the answers are to
    n: Count | None  # so many, drawn; None: all
    # column of the bank that names prompts that are one observation; None: none does
    cluster: str | None
    history: (
        bool  # of conversations of an arena: keep model_a's words, ask the last turn
    )

    @property
    def path(self) -> Path:
        """The bank. Raises UserError for none."""
        if self.bank_path is None:
            raise SettingError(_describe_missing_prompts("none are given"))
        return Path(self.bank_path)


@dataclass(kw_only=True)
class Judging:
    limit_pairs: Count | None  # the first so many pairs of each dimension
    stored_only: bool  # use cached answers and verdicts only
    repeats: Count  # times that each query is judged; the first counts
    budget_usd: Dollars  # never spend more
    canary: (
        Natural  # first new replies or answers that are read before others are paid for
    )
    max_invalid: Share  # of a judge's replies, beyond which it is asked no more
    orders: Orders
    flip_share: Share  # of orders=one, comparisons judged in both orders all the same
    families: Families  # of models, by a part of their names
    self_judging: Literal["warn", "exclude", "allow"]
    allow_equal: bool  # have a paid judge compare entrants whose answers are all equal
    shown: ViewSettings

    def __post_init__(self) -> None:
        if self.flip_share and self.orders != "one":
            raise SettingError(
                f"judging.flip_share: found {self.flip_share} with judging.orders={self.orders}, "
                "which asks every comparison in both orders. Add judging.orders=one, or set 0."
            )

    @property
    def both_orders(self) -> float:
        """The share of comparisons judged in both orders."""
        return self.flip_share if self.orders == "one" else 1.0


@dataclass(kw_only=True)
class Mode:
    name: str
    strata: dict[str, Count]  # prompts by source; empty: the whole bank
    pilot_seed: Natural
    # what a judge with a prompt cache does about it: measured, 1h, 5m, none
    prompt_cache: str


@dataclass(kw_only=True)
class JudgedExperiment(Experiment):
    plan: bool  # show what judging would cost, and pay nothing
    shard: str | None  # i/n: make what belongs to this share of the prompts, and stop
    allow_missing: bool
    recorded_dir: str | None
    answers: str | list[Any] | dict[str, Any] | None  # files; see joining.given
    prompts: AskedPrompts
    draws: Count  # answers of each entrant to each prompt
    judging: Judging
    mode: Mode
    entrant: dict[str, Entrant]
    api: EntrantServerSettings
    study: Study | None  # None: the experiment has none

    def __post_init__(self) -> None:
        if self.shard is not None:
            parse_shard(self.shard)
        for name, entrant in self.entrant.items():
            if entrant.entrant_id != name:
                raise SettingError(
                    f"entrant.{name}.entrant_id: found {entrant.entrant_id!r}. Expected {name!r}: an "
                    "entrant has one name, in the configuration and in every file."
                )

    @property
    def asking(self) -> JudgingSettings:
        """How the settings have a judge asked."""
        return JudgingSettings(
            both_orders=self.judging.both_orders,
            repeats=self.judging.repeats,
            stored_only=self.judging.stored_only,
            allow_missing=self.allow_missing,
            canary=self.judging.canary,
            max_invalid=self.judging.max_invalid,
        )

    def refuse_drawing(self, setting: str) -> None:
        """Raise UserError for prompts.n in an experiment that draws by a setting of its own."""
        if self.prompts.n is not None:
            raise SettingError(
                f"prompts.n: found {self.prompts.n}. This experiment draws by {setting}."
            )

    def refuse_draws(self, experiment: str, hint: str) -> None:
        """Raise UserError for several draws in an experiment of one.

        hint  why, or what to do
        """
        if self.draws != 1:
            raise SettingError(
                f"draws: found {self.draws} with experiment={experiment}. Expected 1: {hint}"
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
                    "warning: %s: found no %s. Going on without it.",
                    name,
                    absent_paths[0],
                )
                del self.entrant[name]

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """With answers, entrants that read them from these files, in place of those that no word names.

        With recorded_dir, entrants that read their answers from it in place of those chosen.
        """
        folder = config.get("recorded_dir")
        files = answer_joins.parse_answers_setting(config.get("answers"))
        for name, node in config["entrant"].items():
            if "base_url" in node and node["base_url"] is None:
                raise SettingError(
                    f"api.base_url: names no server for entrant {name}. Set api.base_url=URL, such as "
                    "http://localhost:8000/v1, and api.key_variable=NAME where it asks for a key."
                )
        if files and folder is not None:
            raise SettingError(
                f"recorded_dir: found {folder}, and answers besides. Leave one of them out."
            )
        if files:
            chosen_entrants = config["entrant"] if _chooses_entrants(overrides) else {}
            answers_by_name = answer_joins.read_answer_sets(files)
            if duplicates := answers_by_name.keys() & chosen_entrants.keys():
                name = min(duplicates)
                raise SettingError(
                    f"answers: {answers_by_name[name].path} is of {name!r}, and so is entrant={name}. Call it "
                    "otherwise: 'answers={NAME:FILE,...}'."
                )
            nodes = {
                name: describe_recorded_entrant(name, answers)
                for name, answers in answers_by_name.items()
            }
            config["entrant"] = {**nodes, **chosen_entrants}
        elif folder is not None:
            target = "elo_exp.entrants.recorded.RecordedEntrant"
            config["entrant"] = {
                name: {"_target_": target, "entrant_id": name, "path": folder}
                for name in config["entrant"]
            }
        if not files and not config.get("gate"):
            refuse_no_prompts(config)
        return config


@dataclass(kw_only=True)
class PairwiseExperiment(JudgedExperiment):
    judge: Judge
    rubric: dict[str, Rubric]
    _counts_absent: ClassVar[bool] = True  # of files of answers: no reason to stop

    @property
    def input_files(self) -> Mapping[str, Path]:
        path = self.prompts.bank_path
        return {} if path is None else {"bank": Path(path)}

    @property
    def opening(self) -> str:
        """The first line of the console: what is judged, by whom, as what, and what it may cost."""
        if self._scope.is_baseline:
            return opening_line.BASELINE_LINE
        return describe_opening(self.judge, self._rubrics, self.study)

    @property
    def _scope(self) -> Scope:
        """Whose verdicts those of this run are. Words counted in answers of unknown quality are a baseline: only probes,
        whose order is known, show what counting words is worth."""
        scope = self.judge.make_scope()
        is_known = all(entrant.is_probe for entrant in self.entrant.values())
        return replace(scope, is_baseline=scope.kind == "words" and not is_known)

    def kin(self) -> JudgeFamily:
        """Return which entrants are of the judge's family."""
        names_by_entrant = {
            name: families.list_family_hints(entrant)
            for name, entrant in self.entrant.items()
        }
        return families.find_judge_family(
            self.judging.families, self.judge.model, names_by_entrant
        )

    def dry_run(self, context: Context) -> str | None:
        """With plan=true, what judging would cost."""
        self._check_entrant_count()
        self._log_answers()
        self._log_draws()
        self._check(context.store)
        bank_path = self.prompts.bank_path
        warn_of_foreign_bank(self.study, bank_path, self.judge, self._rubrics, context)
        self._offer_references()
        if not self.plan:
            return None
        return "\n".join(
            [
                self._plan_judging(context.store),
                *self._plan_conversations(context.store),
                *self._plan_equal_answers(context.store),
            ]
        )

    def _offer_references(self) -> None:
        """Say of prompts of any kind that they have references, where no rubric shows them."""
        is_open = self.study is not None and self.study.bank_path is None
        is_shown = any(rubric.needs_reference for rubric in self._rubrics)
        if not is_open or is_shown or not self.judge.receives_instructions:
            return
        prompts = self._select_prompts()
        if n := sum(prompt.gold_answer is not None for prompt in prompts):
            logger.info("%s", references_unused(n, len(prompts), list(self.rubric)))

    def _plan_judging(self, store: Store) -> str:
        """Describe what judging would cost."""
        return self._format_plan(self._make_plan(store))

    def _format_plan(self, plan: Plan) -> str:
        return "\n".join([pipeline.plan_table(plan), *self._plan_kin(self.kin())])

    @property
    def allows_kin(self) -> bool:
        """Whether a judge of the family of an entrant is no reason against what it says."""
        return self.judging.self_judging == "allow"

    def _plan_kin(self, kin: JudgeFamily) -> list[str]:
        """Describe, before money is spent, that the judge is of the family of some entrants."""
        warns = self.judging.self_judging == "warn" and kin.is_unequal
        kin_entrants = [name for name in kin.models if name in self.entrant]
        return (
            [describe_same_family_plan(kin_entrants, kin.family)]
            if warns and kin_entrants and kin.family
            else []
        )

    def _refuse_excluded(self, kin: JudgeFamily) -> None:
        """Raise UserError where no verdict could link the judge's kin and the others."""
        if self.judging.self_judging == "exclude" and kin.is_unequal:
            raise SettingError(
                f"judging.self_judging: found exclude, which leaves out all pairs of {kin.family}, "
                f"the judge's family ({_format_names(kin.models)}), and others ({_format_names(kin.others)}): "
                "nothing would link them. Choose a judge of another family, or warn."
            )

    def run(self, context: Context) -> Report:
        prompts = self._repeat_prompts()
        responses = pipeline.generate(
            prompts,
            self.entrant,
            context.store,
            allow_missing=self.allow_missing,
            canary=self.judging.canary,
            counts_absent=self._counts_absent,
        )
        comparisons = self._pair_answers(prompts, responses)
        extent = self._measure_extent(prompts, responses)
        if extent and (caution := cut_answers(vars(extent))):
            logger.warning("warning: %s", caution)
        pairs = identical_answers.count_equal_in_comparisons(
            [c for s in comparisons.values() for c in s]
        )
        self._refuse_equal(pairs, comparisons, context.store)
        for line in say_equal_answers(pairs):
            logger.warning("warning: %s", line)
        if self.shard is not None:
            return self._judge_share(comparisons, context.store, self.shard)
        return self._conclude(context, responses, comparisons)

    def _judge_share(
        self, comparisons: Comparisons, store: Store, shard: str
    ) -> Report:
        """Judge the comparisons of a share of the prompts, and report how many verdicts were made."""
        share = self._select_share(self._select_comparisons(comparisons))
        self.judge_pairs(share, store)
        n_made, n_stored = store.usage.judge_calls, store.usage.verdicts_stored
        stored_note = f", {n_stored:,} were there" if n_stored else ""
        text = f"shard {shard}: {n_made:,} verdicts made{stored_note}; run without shard= to rate"
        return Report(headline=math.nan, text=text)

    def _select_share(self, comparisons: Comparisons) -> Comparisons:
        """Return the comparisons in this shard; all queries on a prompt belong to one shard."""
        if self.shard is None:
            return comparisons
        ids = {
            prompt.prompt_id
            for prompt in select_shard(self._select_prompts(), self.shard)
        }
        return {
            dimension: [c for c in pairs if c.prompt_id in ids]
            for dimension, pairs in comparisons.items()
        }

    def _check_share(self, prompts: Sequence[Prompt], store: Store) -> None:
        """Raise UserError for a share of verdicts on answers that models have still to make: each share would make all."""
        model_entrants = {n: e for n, e in self.entrant.items() if not e.is_instant}
        incomplete = [
            name
            for name, entrant in model_entrants.items()
            if not pipeline.has_all_responses(prompts, {name: entrant}, store)
        ]
        if incomplete and not self.allow_missing:
            raise SettingError(
                f"shard: found {self.shard}, a share of the verdicts, and {', '.join(incomplete)} has not "
                "answered all prompts. Have the answers made first, in shares, too: "
                f"experiment=answer shard={self.shard}."
            )

    def _plan_conversations(self, store: Store) -> list[str]:
        """Describe, before money is spent, how many turns are asked if prompts or answers are conversations."""
        prompts = self._select_prompts()
        is_assumed = any(prompt.messages for prompt in prompts)
        get_responses = (
            self._assume_responses if is_assumed else self._find_known_responses
        )
        extent = self._measure_extent(prompts, get_responses(prompts, store))
        return [f"conversations  {say_conversations(vars(extent))}"] if extent else []

    def _find_known_responses(
        self, prompts: Sequence[Prompt], store: Store
    ) -> Responses:
        return pipeline.find_known_responses(prompts, self.entrant, store)

    def _measure_extent(
        self, prompts: Sequence[Prompt], responses: Responses
    ) -> Extent | None:
        """Count the turns that are asked, and measure how much of the answers the judge is shown."""
        answers = [
            response for by_slot in responses.values() for response in by_slot.values()
        ]
        showings = [
            rubric.merge_settings(self.judging.shown) for rubric in self._rubrics
        ]
        return conversations.count_extent(prompts, answers, showings)

    def _plan_equal_answers(self, store: Store) -> list[str]:
        """Describe, before money is spent, which entrants gave the same answers, as far as they are known."""
        prompts = self._repeat_prompts()
        known_responses = pipeline.find_known_responses(prompts, self.entrant, store)
        stops_run = self._find_known_waste(prompts, known_responses, store) is not None
        return describe_equal_answers_plan(
            identical_answers.count_equal_in_responses(known_responses), stops=stops_run
        )

    def _refuse_equal(
        self, pairs: Sequence[EqualAnswers], comparisons: Comparisons, store: Store
    ) -> None:
        """Raise UserError before a judge is paid for two entrants that gave the same answers."""
        for pair in pairs:
            if self._pays_for_equal_answers(pair, comparisons, store):
                raise EvidenceError(refuse_equal_answers(pair))

    def _pays_for_equal_answers(
        self, pair: EqualAnswers, comparisons: Comparisons, store: Store
    ) -> bool:
        """Whether a judge would be paid for two entrants that gave the same answers."""
        is_allowed = self.judging.allow_equal or self.judging.stored_only
        if is_allowed or not (pair.is_all and isinstance(self.judge, ApiJudge)):
            return False
        pair_names = {pair.first, pair.second}
        pair_comparisons = {
            dimension: [c for c in pairs if {*c.entrants} == pair_names]
            for dimension, pairs in comparisons.items()
        }
        n_new = pipeline.count_new_queries(
            pair_comparisons, self._rubrics, self.judge, store, self.asking
        )
        return n_new > 0

    def _conclude(
        self, context: Context, responses: Responses, comparisons: Comparisons
    ) -> Report:
        """Judge the comparisons, and report what follows."""
        raise NotImplementedError

    @property
    def _rubrics(self) -> list[Rubric]:
        return list(self.rubric.values())

    def _check_entrant_count(self) -> None:
        """Raise UserError for too few entrants."""
        if len(self.entrant) < 2:
            if self._files:
                raise SettingError(
                    f"answers: one entrant ({', '.join(self.entrant)}). Give a second file, or "
                    "answers of several models in one file."
                )
            raise SettingError(
                f"entrant: found {len(self.entrant)} ({', '.join(self.entrant) or 'none'}). A "
                "tournament needs at least two: 'entrant=[first,second]', or files of answers."
            )

    def _check(self, store: Store) -> None:
        if not self.rubric:
            raise SettingError(
                "rubric: none is chosen. Choose at least one: 'rubric=[factuality]'."
            )
        check_dimensions(self._rubrics)
        prompts = self._select_prompts()
        for rubric in self._rubrics:
            if not any(map(rubric.applies_to, prompts)):
                logger.warning(
                    "warning: rubric %s: no prompt has a gold_answer, so it judges nothing. Leave "
                    "it out: rubric=[...]",
                    rubric.dimension,
                )
        self._check_judge(store)

    def _check_judge(self, store: Store) -> None:
        """Raise UserError for a judge that cannot be asked, or not about these entrants."""
        self._refuse_excluded(self.kin())
        require_judge(self.judge, partial(self._make_plans, store=store))
        if not self.plan:
            prompts = self._repeat_prompts()
            if self.shard is not None:
                self._check_share(prompts, store)
            self._check_access(prompts, store)

    def _check_access(self, prompts: Sequence[Prompt], store: Store) -> None:
        """Raise UserError for models that are missing, and for what would stop the first paid call."""
        if not isinstance(self.judge, NoJudge):  # by whose key it looks for the models
            load_stored_audits(self.judge, self._rubrics, store)
        stored_only = self.judging.stored_only
        judge = None if stored_only else self.judge
        preflight(prompts, self.entrant, judge, store, stored_only=stored_only)
        is_paid = isinstance(judge, ApiJudge)
        if is_paid and pipeline.needs_paid_answers(prompts, self.entrant, store):
            pipeline.check_before_answers(
                self._make_plan(store), self._make_plan(store, at_least=True), store
            )
        if is_paid:
            known_responses = pipeline.find_known_responses(
                prompts, self.entrant, store
            )
            if pair := self._find_known_waste(prompts, known_responses, store):
                raise EvidenceError(refuse_equal_answers(pair))
            self._preflight_judge(prompts, known_responses, store)

    def _preflight_judge(
        self, prompts: Sequence[Prompt], responses: Responses, store: Store
    ) -> None:
        """Look for the judge's key, before the run has a folder, if known answers still lack a verdict."""
        comparisons = self._select_share(
            self._select_comparisons(self._pair_answers(prompts, responses))
        )
        if isinstance(self.judge, ApiJudge) and not pipeline.has_all_replies(
            comparisons, self._rubrics, self.judge, store, self.asking
        ):
            self.judge.preflight()

    def _find_known_waste(
        self, prompts: Sequence[Prompt], responses: Responses, store: Store
    ) -> EqualAnswers | None:
        """Return a pair with equal answers that a judge would be paid for, if all its answers are known before the run."""
        n_prompts = len({prompt.prompt_id for prompt in prompts})
        for pair in identical_answers.count_equal_in_responses(responses):
            pair_responses = {
                name: responses[name] for name in (pair.first, pair.second)
            }
            is_whole = all(
                len(answers) == n_prompts * draws_of(self.entrant[name], self._n_draws)
                for name, answers in pair_responses.items()
            )
            if is_whole and self._pays_for_equal_answers(
                pair, self._pair_answers(prompts, pair_responses), store
            ):
                return pair
        return None

    def plans(self, store: Store) -> list[Plan]:
        """Return what the judge would be asked, and cost."""
        return [self._make_plan(store)]

    def _make_plan(self, store: Store, *, at_least: bool = False) -> Plan:
        (plan,) = self._make_plans([self.judge], store, at_least=at_least)
        return plan

    def _make_plans(
        self, judges: Sequence[Judge], store: Store, *, at_least: bool = False
    ) -> list[Plan]:
        """Plan what each judge would be asked, and what that costs."""
        prompts = self._repeat_prompts()
        responses = self._assume_responses(prompts, store, at_least=at_least)
        comparisons = self._select_share(
            self._select_comparisons(self._pair_answers(prompts, responses))
        )
        return [
            pipeline.plan_pairs(comparisons, self._rubrics, judge, store, self.asking)
            for judge in judges
        ]

    def _assume_responses(
        self, prompts: Sequence[Prompt], store: Store, *, at_least: bool = False
    ) -> Responses:
        return pipeline.assume_responses(
            prompts,
            self.entrant,
            store,
            allow_missing=self.allow_missing,
            at_least=at_least,
            counts_absent=self._counts_absent,
        )

    @property
    def _files(self) -> list[answer_joins.NamedFile]:
        """The files of answers that are joined."""
        return answer_joins.parse_answers_setting(self.answers)

    @cached_property
    def _joined_answers(self) -> answer_joins.JoinedAnswers:
        path = self.prompts.bank_path
        files = answer_joins.read_answer_sets(self._files)
        bank_path = None if path is None else Path(path)
        return answer_joins.join(files, bank_path, draws=self._n_draws)

    def _log_answers(self) -> None:
        """Log what was read from files of answers. Raises UserError if they cannot be compared."""
        warn_of_look_alikes(self.entrant, "entrants")
        for line in self._describe_answers() if self._files else ():
            is_warning = line.startswith("warning: ")
            logger.log(logging.WARNING if is_warning else logging.INFO, "%s", line)

    def _describe_answers(self) -> list[str]:
        return self._joined_answers.describe()

    def _load_bank(self) -> list[Prompt]:
        """Load all prompts: those of the bank, and those to which some file of answers has a row."""
        return (
            list(self._joined_answers.planned_prompts)
            if self._files
            else bank.load_bank(self.prompts.path, history=self.prompts.history)
        )

    def _select_prompts(self) -> list[Prompt]:
        """Select the prompts that this mode uses from the bank."""
        prompts = bank.sample_strata(
            self._load_bank(), self.mode.strata, seed=self.mode.pilot_seed
        )
        return bank.sample_prompts(prompts, self.prompts.n)

    @cached_property
    def _n_draws(self) -> int:
        """How many answers to a prompt are compared: no more than recorded ones there are of those that vary."""
        recorded_counts = [
            draws_of(entrant, self.draws)
            for entrant in self.entrant.values()
            if entrant.n_draws is not None
        ]
        return min([self.draws, *(n for n in recorded_counts if n > 1)])

    def _repeat_prompts(self) -> list[Prompt]:
        """Repeat each prompt as often as entrants that vary answer it."""
        return pipeline.repeat_prompts(self._select_prompts(), self._n_draws)

    def _log_draws(self) -> None:
        """Log which entrants have one draw although several are wanted, and which have fewer than wanted."""
        if self.draws == 1:
            return
        draws_by_entrant = {
            name: draws_of(entrant, self.draws)
            for name, entrant in self.entrant.items()
        }
        for line in opening_line.draws(self.draws, self._n_draws, draws_by_entrant):
            logger.info("%s", line)

    def _read_strata(self, column: str) -> dict[str, str]:
        """Read each prompt's value in a column of the bank. Raises UserError for a column that is not there."""
        if column == "source":  # which a bank may leave out
            return {prompt.prompt_id: prompt.source for prompt in self._load_bank()}
        if self.prompts.bank_path is not None:
            return bank.read_column(self.prompts.path, column)
        raise SettingError(
            f"stratum: found {column!r}. Of the prompts of answers only the source is known: "
            "stratum=source, or stratum=null."
        )

    @cached_property
    def _cluster_of(self) -> dict[str, str]:
        """The cluster of each prompt that belongs with others, as the bank or files of answers say.

        Raises UserError for a column that is not there, and for a prompt in two clusters.
        """
        column, has_bank = self.prompts.cluster, self.prompts.bank_path is not None
        if column is None:
            return bank.merge_clusters(self._load_bank(), {})
        in_files = self._joined_answers.clusters(column) if self._files else None
        cluster_by_prompt = in_files or {}
        if has_bank and (
            in_files is None or bank.has_column(self.prompts.path, column)
        ):
            bank_clusters = bank.read_column(
                self.prompts.path, column, setting="prompts.cluster"
            )
            for name in sorted(bank_clusters.keys() & cluster_by_prompt.keys()):
                if bank_clusters[name] != cluster_by_prompt[name]:
                    raise FileError(
                        f"prompts.cluster: prompt {name!r} is in {bank_clusters[name]!r} in {self.prompts.path}, and in "
                        f"{cluster_by_prompt[name]!r} in a file of answers. Expected one cluster of each prompt."
                    )
            cluster_by_prompt = cluster_by_prompt | bank_clusters
        elif in_files is None and column != CLUSTER_FIELD:
            columns = ", ".join(self._joined_answers.columns) if self._files else ""
            columns_note = f" Files of answers have {columns}." if columns else ""
            raise SettingError(
                f"prompts.cluster: found {column!r}, which is no column of files of answers, and there is no bank."
                f"{columns_note} Name one of theirs, add prompts=FILE, or leave it out."
            )
        return bank.merge_clusters(self._load_bank(), cluster_by_prompt)

    @property
    def _n_opponents(self) -> int | None:
        """The number of opponents that each entrant meets on a prompt; None: all of them."""
        return None

    def _pair_answers(
        self, prompts: Sequence[Prompt], responses: Responses
    ) -> dict[str, list[Comparison]]:
        return {
            rubric.dimension: pairing.pair_up(
                prompts,
                responses,
                rubric,
                settings=self.judging.shown,
                limit=self.judging.limit_pairs,
                opponents=self._n_opponents,
            )
            for rubric in self._rubrics
        }

    def _find_unanswered(
        self, responses: Responses, comparisons: Comparisons
    ) -> dict[str, list[MissingBattle]]:
        """Return the planned comparisons without a usable answer, by dimension."""
        prompts = self._repeat_prompts()
        failed = self._find_failed_prompts(prompts, responses)
        return {
            rubric.dimension: pairing.list_unanswered(
                prompts,
                responses,
                rubric,
                failed=failed,
                compared=comparisons[rubric.dimension],
                limit=self.judging.limit_pairs,
                opponents=self._n_opponents,
            )
            for rubric in self._rubrics
        }

    def _find_failed_prompts(
        self, prompts: Sequence[Prompt], responses: Responses
    ) -> dict[str, Collection[str]]:
        """Find the prompts on which each entrant failed on record: a model that was asked, or as its file says."""
        failed_by_entrant: dict[str, Collection[str]] = {}
        for name, entrant in self.entrant.items():
            if not entrant.is_instant:
                answered_ids = {prompt_id for prompt_id, _ in responses.get(name, {})}
                failed_by_entrant[name] = {p.prompt_id for p in prompts} - answered_ids
            elif self._files and name in self._joined_answers.answer_sets:
                failed_by_entrant[name] = {*self._joined_answers.failed_ids[name]}
        return failed_by_entrant

    def _select_comparisons(self, comparisons: Comparisons) -> Comparisons:
        """Return the comparisons that the judge is asked about."""
        return comparisons

    def judge_pairs(
        self, comparisons: Comparisons, store: Store
    ) -> dict[str, list[Judgment]]:
        """Have comparisons judged as the settings say."""
        return pipeline.judge_pairs(
            comparisons,
            self._rubrics,
            self.judge,
            store,
            self.asking,
            name=self._judge_name,
        )

    @property
    def _judge_name(self) -> str:
        """Of the judge, in verdicts and battles."""
        return self.judge.model

    def _collect_facts(
        self,
        responses: Responses,
        judgments: Judgments,
        quality: Sequence[JudgeQuality],
    ) -> dict[str, Any]:
        """Collect what the manifest says about prompts, answers and judge."""
        prompt_ids = {
            judgment.prompt_id for group in judgments.values() for judgment in group
        }
        has_conversations = any(
            response.messages
            for group in responses.values()
            for response in group.values()
        )
        extent = (
            self._measure_extent(self._select_prompts(), responses)
            if has_conversations
            else None
        )
        return {
            "judge_model": self.judge.model,
            "entrants": list(self.entrant),
            "rubric_versions": {
                rubric.dimension: rubric.version for rubric in self._rubrics
            },
            "bank_size": len(
                self._joined_answers.prompts if self._files else self._load_bank()
            ),
            "selected_prompt_count": len(prompt_ids),
            "truncated_responses": {
                name: sum(
                    response.finish_reason == "length" for response in answers.values()
                )
                for name, answers in responses.items()
            },
            "judge_quality": [row.to_dict() for row in quality],
            **(
                {"effort": effort_rows}
                if (effort_rows := _measure_effort(responses))
                else {}
            ),
            **({"conversations": vars(extent)} if extent else {}),
            **({"answers": self._answer_facts} if self._files else {}),
        }

    @property
    def _answer_facts(self) -> list[dict[str, Any]]:
        return [
            answers.facts()
            for answers in answer_joins.read_answer_sets(self._files).values()
        ]


def _measure_effort(responses: Responses) -> list[dict[str, Any]]:
    return average_effort(
        {name: answers.values() for name, answers in responses.items()}
    )


def warn_of_look_alikes(names: Iterable[str], noun: str) -> None:
    """Warn of different names that look alike."""
    for line in field_names.describe_alike(names, noun):
        logger.warning("warning: %s", line)


def _chooses_entrants(overrides: Sequence[str]) -> bool:
    """Whether words of the command choose entrants."""
    return any(re.match(r"\+?entrant(@[^=]+)?=(?!\[\]$)", word) for word in overrides)


def describe_recorded_entrant(
    name: str, answers: answer_joins.AnswerSet
) -> dict[str, Any]:
    """Describe an entrant that answers from a file."""
    return {
        "_target_": "elo_exp.entrants.recorded.AnswersEntrant",
        "entrant_id": name,
        "path": str(answers.path),
        "inside": answers.inner_name,
    }


def refuse_no_prompts(config: Mapping[str, Any]) -> None:
    """Raise UserError where a study brings no bank, and none is given."""
    if config["prompts"]["bank_path"] is None:
        study = (config.get("study") or {}).get("name")
        raise SettingError(
            _describe_missing_prompts(f"study {study} has no prompts of its own")
        )


def _describe_missing_prompts(reason: str) -> str:
    return (
        f"prompts.bank_path: {reason}. Give a bank, prompts.bank_path=FILE (docs/formats.md), files of "
        "answers that hold their prompts, or study=medical for the bank that ships."
    )


def warn_of_foreign_bank(
    study: Study | None,
    bank_path: str | None,
    judge: Judge,
    rubrics: Sequence[Rubric],
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


def describe_opening(
    judge: Judge, rubrics: Sequence[Rubric], study: Study | None
) -> str:
    """Say what is judged, by whom, as what, and what it may cost."""
    cap = None
    if isinstance(judge, ApiJudge):
        prices = judge.prices_of(judge.model)
        is_free = prices is not None and not (prices.input or prices.output)
        cap = None if is_free else judge.budget.cap
    return opening_line.describe_judging(
        [rubric.dimension for rubric in rubrics],
        judge.model,
        roles_by_dimension(judge, rubrics).values(),
        study=study.name if study else None,
        cap=cap,
    )


def require_judge(
    judge: Judge, plans: Callable[[Sequence[Judge]], Sequence[Plan]]
) -> None:
    """Raise UserError where no judge is chosen, with what each that is offered would cost.

    plans  of the judges that are offered
    """
    if not isinstance(judge, NoJudge):
        return
    priced = dict(zip(judge.offers, plans([*judge.offers.values()]), strict=True))
    rows = next((plan.rows for plan in priced.values()), ())
    raise SettingError(
        *list_judge_choices(
            sum(row.queries for row in rows),
            list(dict.fromkeys(row.dimension for row in rows)),
            {name: plan.dollars for name, plan in priced.items()},
            {
                name: str(getattr(offered_judge, "key_variable", None) or "")
                for name, offered_judge in judge.offers.items()
            },
        )
    )


def answer_shard(
    experiment: JudgedExperiment, prompts: Sequence[Prompt], store: Store, shard: str
) -> Report:
    """Answer a share of the prompts, and report how many answers were made."""
    pipeline.generate(
        select_shard(prompts, shard),
        experiment.entrant,
        store,
        allow_missing=experiment.allow_missing,
        canary=experiment.judging.canary,
    )
    usage = store.usage
    stored_note = (
        f", {usage.responses_stored} were there" if usage.responses_stored else ""
    )
    text = (
        f"shard {shard}: {usage.responses_generated} responses made{stored_note}; run without shard= to "
        "judge"
    )
    return Report(headline=0.0, text=text)


def preflight(
    prompts: Sequence[Prompt],
    entrants: Mapping[str, Entrant],
    judge: Judge | None,
    store: Store,
    *,
    stored_only: bool,
) -> None:
    """Raise UserError for what would stop the first paid call, before models work for hours.

    judge        None: none is asked
    stored_only  refuse an entrant behind an API that lacks stored answers
    """
    for name, entrant in entrants.items():
        if not isinstance(entrant, ApiEntrant):
            continue
        if pipeline.has_all_responses(prompts, {name: entrant}, store):
            continue
        if stored_only:
            raise SettingError(
                f"judging.stored_only: entrant {name} has prompts without a stored answer, and "
                "none is paid for. Leave the entrant out, or set judging.stored_only=false."
            )
        entrant.preflight()
    if isinstance(judge, ApiJudge) and not pipeline.has_all_responses(
        prompts, entrants, store
    ):
        judge.preflight()


def load_stored_audits(
    judge: Judge, rubrics: Sequence[Rubric], store: Store
) -> dict[str, dict[str, Any]]:
    """Return the diagnosis `audit` of each dimension: the last of this judge and rubric, or {}.

    Raises UserError for a file that no audit wrote.
    """
    key, diagnoses = pipeline.identify(judge).key, {}
    for rubric in rubrics:
        path = audit_decisions.audit_path(store.folder, key, rubric.key)
        diagnoses[rubric.dimension] = {
            "audit": _read_audit(path) if path.exists() else {}
        }
    return diagnoses


def _read_audit(path: Path) -> dict[str, Any]:
    try:
        audit: dict[str, Any] = documents.read_document(documents.StoredAudit, path)
    except UserError as error:
        raise FileError(
            f"{error} Audit the judge again, or remove the file: then it counts as not audited."
        ) from None
    return audit


def suggest_audit_command(
    judge: Judge, rubrics: Mapping[str, Rubric], context: Context
) -> str | None:
    """Return the command that plans the audit of a paid judge on the rubrics that it has not been audited on.

    rubrics  by the name in the group rubric. None where nothing is left to audit, or words of the command
             do not say which judge it is
    """
    stored_audits = load_stored_audits(judge, [*rubrics.values()], context.store)
    names = [
        name
        for name, rubric in rubrics.items()
        if not stored_audits[rubric.dimension]["audit"]
    ]
    judge_words = [word for word in context.overrides if re.match(r"judge[=.]", word)]
    judge_words = [
        word for word in judge_words if not word.startswith("judge.budget_usd=")
    ]
    if not any(word.startswith("judge=") for word in judge_words):  # a mode's
        models = (
            f"judge={path.stem}"
            for path in sorted((CONF / "judge").glob("*.yaml"))
            if f"\nmodel: {judge.model}\n" in path.read_text(encoding="utf-8")
        )
        judge_words = [*filter(None, [next(models, None)]), *judge_words]
    if not (isinstance(judge, ApiJudge) and names and judge_words):
        return None
    rubric_words = [word for word in context.overrides if word.startswith("rubric.")]
    words = [
        "experiment=audit",
        *judge_words,
        f"rubric=[{','.join(names)}]",
        *rubric_words,
    ]
    return (
        f"elo-exp {shlex.join([*words, 'plan=true'])}     how far this judge can be trusted: what asking it "
        "costs; free, needs no key"
    )


def _format_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def select_shard(prompts: Sequence[Prompt], shard: str | None) -> Sequence[Prompt]:
    """Return every n-th prompt for the share i/n; all of them for None."""
    if shard is None:
        return prompts
    i, n = parse_shard(shard)
    return prompts[i::n]


def parse_shard(shard: str) -> tuple[int, int]:
    """Return the number of a share, from 0, and of how many.

    Raises UserError for anything but i/n with i below n.
    """
    match = re.fullmatch("([0-9]+)/([0-9]+)", shard)
    if not match or int(match[1]) >= int(match[2]):
        raise SettingError(
            f"shard: found {shard!r}. Expected i/n, counted from 0: the first of four is 0/4, the "
            "last 3/4."
        )
    return int(match[1]), int(match[2])
