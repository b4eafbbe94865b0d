"""Estimate the mean oracle label of policies from cheap judge scores, calibrated on some labels.

python -m elo_exp experiment=oracle 'entrant=[a,b]'    # collect, then analyse
python -m elo_exp experiment=oracle oracle.fresh_dir=FILE    # scored answers, some of them labelled
python -m elo_exp experiment=oracle oracle.logged=FILE oracle.fresh_dir=DIR    # also log-probabilities
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from elo_exp.arena import sources as arenas
from elo_exp.arena.sources import ArenaSource
from elo_exp.data import column_roles
from elo_exp.data.bank import load_bank
from elo_exp.data.scoring import PointwiseRubric
from elo_exp.errors import SettingError
from elo_exp.estimators import Estimator
from elo_exp.experiments import Context, Report, refuse_absent
from elo_exp.experiments.collection import (
    Collection,
    Scorer,
    check_collection,
    draw_prompts,
    format_plans,
)
from elo_exp.experiments.comparison_experiment import EntrantExperiment
from elo_exp.experiments.oracle_analysis import (
    SOURCE_SETTINGS,
    OracleAnalysis,
    OracleSettings,
    list_files,
)
from elo_exp.experiments.oracle_checks import (
    COLLECTION_SETTINGS,
    check_columns,
    check_compat,
    check_inputs,
    check_truth,
    list_overridden,
    refuse_recorded_settings,
    refuse_settings,
    refuse_unused,
    refuse_weak_oracle,
)
from elo_exp.experiments.oracle_sources import OracleSources
from elo_exp.files import check_choice
from elo_exp.judges import ApiJudge, Judge
from elo_exp.oracle import simulated_policies
from elo_exp.oracle.grid import GridSettings
from elo_exp.pipeline import AnswerPlan, Plan
from elo_exp.report import oracle_files
from elo_exp.store.answer_store import Store

_FREE_NOTE = "No call is made and nothing is charged."


@dataclass(kw_only=True)
class Oracle(EntrantExperiment):
    """Judges and rubrics are None if recorded answers are analysed."""

    judge: Judge | None
    oracle_judge: Judge | None
    scoring: PointwiseRubric | None
    oracle_scoring: PointwiseRubric | None
    estimator: dict[str, Estimator]
    arena: ArenaSource
    oracle: OracleSettings
    grid: GridSettings
    status: bool
    compat: Literal["cje-0.3"] | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.oracle_judge, ApiJudge):
            self.oracle_judge.name_settings("oracle_judge", "oracle.budget_usd")

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """Drop the parts that recorded answers do not need, and give the oracle its own budget.

        Of recorded answers, all prompts and labels are used unless the command says otherwise.
        """
        config = EntrantExperiment.prepare(config, overrides)
        settings, oracle_judge = config["oracle"], config["oracle_judge"]
        config["columns"] = column_roles.parse_columns_setting(config["columns"])
        check_columns(config["columns"], settings)
        if settings["logged"] or settings["fresh_dir"]:
            unused = ("judge", "oracle_judge", "scoring", "oracle_scoring")
            config |= {**dict.fromkeys(unused), "entrant": {}}
            for name, default in {"n_prompts": None, "label_fraction": 1.0}.items():
                if not list_overridden([f"oracle.{name}"], overrides):
                    settings[name] = default
        elif "budget_usd" in oracle_judge:
            words = "the budget of the oracle is oracle.budget_usd"
            refuse_settings(["oracle_judge.budget_usd"], overrides, words)
            oracle_judge["budget_usd"] = settings["budget_usd"]
        return config

    @property
    def input_files(self) -> Mapping[str, Path]:
        settings = self.oracle
        truth = None if settings.truth == "labels" else settings.truth
        sources = {"logged": settings.logged, "truth": truth, "labels": settings.labels}
        sources |= {"fresh": settings.fresh_dir, "probe": settings.probe_dir}
        paths = list_files(sources)
        if self.is_recorded:
            return paths
        if settings.prompts == "arena":
            return {**arenas.list_input_paths(self.arena), **paths}
        return {"bank": self.prompts.path, **paths}

    @property
    def opening(self) -> str | None:
        """The analysed data, in words; None if answers are collected first."""
        if self.is_recorded:
            return "recorded answers"
        return "simulated policies" if self.is_simulated else None

    def plans(self, store: Store) -> list[Plan]:
        """Return the planned calls of judge and oracle and their cost; none for recorded answers."""
        return [] if self.opening else self.collection(store).plans()

    def dry_run(self, context: Context) -> str | None:
        """Raise UserError for settings and files that the run would refuse; with status=true, return the progress."""
        self.check(context.overrides)
        if self.opening is not None:
            refuse_absent(self.input_files)
            if self.is_recorded:
                self.analysis.check(*self.sources.recorded)
            else:
                load_bank(self.prompts.path)
            return self.describe_plan(context, ()) if self.status else None
        collection = self.collection(context.store)
        if self.status:
            return collection.status()
        check_collection(collection, context)
        return None

    def describe_plan(self, context: Context, plans: Sequence[Plan]) -> str:
        text = f"oracle: analyses {self.opening}. {_FREE_NOTE}"
        return text if self.opening else format_plans(plans)

    def answer_plans(self, store: Store) -> list[AnswerPlan]:
        return [] if self.opening else self.collection(store).plan_answers()

    @cached_property
    def sources(self) -> OracleSources:
        return OracleSources(
            settings=self.oracle,
            needs_labels=self.needs_labels,
            with_clusters=self.compat is None,
            columns=self.columns,
        )

    def run(self, context: Context) -> Report:
        """Read, simulate or collect the data, read the truth, estimate, and report."""
        settings, run_dir = self.oracle, context.run_dir
        facts: dict[str, Any] = {"is_simulated": self.is_simulated}
        sources: dict[str, Any] = {
            name: getattr(settings, name) for name in SOURCE_SETTINGS
        }
        if self.is_simulated:
            sources = simulated_policies.write_demo(
                run_dir,
                str(self.prompts.path),
                seed=settings.seed,
                all_labelled=settings.grid,
            )
        elif not self.is_recorded:
            collection = self.collection(context.store)
            if self.shard is not None:
                text = collection.answer_shard(self.shard)
                return Report(headline=0.0, text=text)
            logged_data = collection.build()
            sources, facts["collection"] = logged_data.write(run_dir), logged_data.info
        folders = () if self.is_recorded else (".", "fresh", "probe")
        written_paths = [
            p for name in folders for p in (run_dir / name).glob("*.json*")
        ]
        data, truth = (
            self.sources.recorded
            if self.is_recorded
            else self.sources.read_all(sources)
        )
        if settings.grid:
            result = self.analysis.run_grid(data, truth, sources, context)
        else:
            collected = facts.get("collection")
            result = self.analysis.estimate(data, truth, run_dir, collected)
        artifacts = [*written_paths, *result.artifacts]
        return dataclasses.replace(
            result, artifacts=artifacts, facts={**result.facts, **facts}
        )

    @property
    def analysis(self) -> OracleAnalysis:
        """The settings of the analysis."""
        return OracleAnalysis(
            settings=self.oracle,
            estimator=self.estimator,
            grid=self.grid,
            compat=self.compat,
            oracle_name=self._oracle_name,
        )

    @property
    def _oracle_name(self) -> str:
        """The name of the oracle that gave the labels; "the oracle" for recorded and simulated labels."""
        if self.oracle_judge is None or self.is_simulated:
            return "the oracle"
        return self.oracle_judge.model

    @property
    def numbers(self) -> Mapping[str, Sequence[str]]:
        kinds = {"grid": ()} if self.oracle.grid else oracle_files.METRIC_KINDS
        return {**kinds, "usage": ()}

    @property
    def is_recorded(self) -> bool:
        return bool(self.oracle.logged or self.oracle.fresh_dir)

    @property
    def is_simulated(self) -> bool:
        """Whether policies of known value replace entrants and recorded answers."""
        return not self.is_recorded and not self.entrant

    @property
    def needs_labels(self) -> bool:
        """Whether the truth is made from labels of all answers."""
        return self.oracle.grid or self.oracle.truth == "labels"

    def collection(self, store: Store) -> Collection:
        """Sample prompts, and the answers to label. Raises UserError for too few."""
        assert self.judge and self.oracle_judge and self.scoring and self.oracle_scoring
        prompts = draw_prompts(
            self.oracle,
            [self.scoring, self.oracle_scoring],
            arena=self.arena,
            bank_path=self.prompts.path,
            mode=self.mode,
        )
        return Collection(
            self.oracle,
            store,
            prompts=prompts,
            entrants=self.entrant,
            judge=Scorer(self.judge, self.judge.instruct(self.scoring)),
            oracle=Scorer(
                self.oracle_judge, self.oracle_judge.instruct(self.oracle_scoring)
            ),
            asking=self.judging_settings,
        )

    def check(self, overrides: Sequence[str]) -> None:
        """Raise SettingError or FileError for mistakes in the settings, before any call."""
        self.refuse_drawing("oracle.n_prompts")
        self.refuse_draws(
            "oracle",
            "Give several answers to a prompt in oracle.fresh_dir, numbered by draw_idx.",
        )
        check_inputs(self.answers, self.estimator)
        settings = self.oracle
        has_logs = (
            settings.logged if self.is_recorded else settings.weighted(self.entrant)
        )
        if (
            not has_logs
            and not self.is_simulated
            and (self.compat or self.needs_labels)
        ):
            raise SettingError(
                "compat=cje-0.3, oracle.grid=true and oracle.truth=labels need log-probabilities, and there are none. "
                "Choose one:",
                "  oracle.logged=FILE",
                "  two entrants with logprobs=true",
            )
        check_compat(self.compat, settings, self.estimator)
        check_truth(
            settings,
            self.grid,
            overrides,
            has_entrants=bool(self.entrant),
            needs_labels=self.needs_labels,
        )
        if self.is_recorded:
            unused = () if settings.logged else ("oracle.label_fraction",)
            words = (
                "it applies to answers that the run generates, and these are recorded"
            )
            refuse_settings((*COLLECTION_SETTINGS, *unused), overrides, words)
            return
        refuse_recorded_settings(settings)
        if not self.is_simulated:
            for policy in settings.policies or ():
                check_choice("oracle.policies", policy, self.entrant)
            if settings.prompts == "arena":
                arenas.check_source(self.arena)
        judge, oracle = self.judge, self.oracle_judge
        assert judge and oracle
        if self.is_simulated:
            refuse_unused(overrides, (judge, oracle))
            return
        assert self.scoring and self.oracle_scoring
        oracle_rubric = oracle.instruct(self.oracle_scoring)
        is_same_rubric = judge.instruct(self.scoring) == oracle_rubric
        refuse_weak_oracle(judge, oracle, is_same_rubric=is_same_rubric)
