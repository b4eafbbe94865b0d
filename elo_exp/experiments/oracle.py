"""Estimate the mean oracle label of policies from cheap judge scores, calibrated on some labels.

python -m elo_exp experiment=oracle 'entrant=[a,b]'    # collect, then analyse
python -m elo_exp experiment=oracle oracle.fresh_dir=FILE    # scored answers, some of them labelled
python -m elo_exp experiment=oracle oracle.logged=FILE oracle.fresh_dir=DIR    # also log-probabilities
"""

import dataclasses
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from elo_exp import pipeline
from elo_exp.arena import sources as arenas
from elo_exp.arena.sources import ArenaSource
from elo_exp.data.scoring import ScoreRubric
from elo_exp.errors import EvidenceError, SettingError
from elo_exp.estimators import Estimator
from elo_exp.experiments import Context, Report
from elo_exp.experiments.collection import (
    Collection,
    CollectionSettings,
    Scorer,
    draw_prompts,
)
from elo_exp.experiments.judged import JudgedExperiment, preflight, warn_of_look_alikes
from elo_exp.files import check_choice, sha256, write_csv, write_json
from elo_exp.judges import ApiJudge, Judge
from elo_exp.oracle import cje, simulated_policies
from elo_exp.oracle.data import (
    LENGTH_COVARIATE,
    Dataset,
    Scale,
    Truth,
    read_dataset,
    read_truth,
    sample_prompts,
    split_truth_from_labels,
)
from elo_exp.oracle.estimates import Analysis, Options, analyse
from elo_exp.oracle.grid import ALL, GIVEN, Grid, GridSettings, score_grid
from elo_exp.pipeline import Plan
from elo_exp.records import make_fingerprint
from elo_exp.report import grid_page, oracle_files, oracle_page, page
from elo_exp.store.answer_store import Store
from elo_exp.types import (
    Dollars,
    NonNegative,
    Number,
    Positive,
)
from elo_exp.version import __version__

logger = logging.getLogger(__name__)

_SOURCE_SETTINGS = ("logged", "fresh_dir", "probe_dir", "policies", "truth")
# These have no meaning for recorded answers
_COLLECTION_SETTINGS = (
    "oracle.prompts",
    "oracle.logging_policy",
    "oracle.validation_fraction",
    "oracle.budget_usd",
    "oracle.check_nats",
    "oracle.check_answers",
)
# These apply to answers to collect and to recorded answers
_SAMPLING_SETTINGS = ("oracle.n_prompts", "oracle.label_fraction")


@dataclass(kw_only=True)
class OracleSettings(CollectionSettings):
    budget_usd: Dollars
    logged: str | None
    fresh_dir: str | None
    probe_dir: str | None
    truth: str | None
    scale: Annotated[list[Number], Field(min_length=2, max_length=2)]
    covariates: list[str]
    by_variance: bool
    max_residual: Positive | None
    half_widths: list[Positive] | None
    tolerance: NonNegative | None
    grid: bool

    def __post_init__(self) -> None:
        if not self.scale[0] < self.scale[1]:
            raise SettingError(
                f"oracle.scale: found {self.scale}. Expected a low below a high: [0, 10]."
            )


@dataclass(kw_only=True)
class Oracle(JudgedExperiment):
    """Judges and rubrics are None where recorded answers are analysed."""

    judge: Judge | None
    oracle_judge: Judge | None
    scoring: ScoreRubric | None
    oracle_scoring: ScoreRubric | None
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
        config = JudgedExperiment.prepare(config, overrides)
        settings, oracle_judge = config["oracle"], config["oracle_judge"]
        if settings["logged"] or settings["fresh_dir"]:
            unused = ("judge", "oracle_judge", "scoring", "oracle_scoring")
            config |= {**dict.fromkeys(unused), "entrant": {}}
            for name, default in {"n_prompts": None, "label_fraction": 1.0}.items():
                if not _list_overridden([f"oracle.{name}"], overrides):
                    settings[name] = default
        elif "budget_usd" in oracle_judge:
            words = "the oracle's cap is oracle.budget_usd"
            _refuse_settings(["oracle_judge.budget_usd"], overrides, words)
            oracle_judge["budget_usd"] = settings["budget_usd"]
        return config

    @property
    def input_files(self) -> Mapping[str, Path]:
        settings = self.oracle
        truth = None if settings.truth == "labels" else settings.truth
        sources = {"logged": settings.logged, "truth": truth}
        sources |= {"fresh": settings.fresh_dir, "probe": settings.probe_dir}
        paths = _list_files(sources)
        if self.is_recorded:
            return paths
        if settings.prompts == "arena":
            return {**arenas.list_input_paths(self.arena), **paths}
        return {"bank": self.prompts.path, **paths}

    @property
    def opening(self) -> str | None:
        """What is analysed; None where answers are collected first."""
        if self.is_recorded:
            return "recorded answers"
        return "simulated policies" if self.is_simulated else None

    def plans(self, store: Store) -> list[Plan]:
        """Return what judge and oracle would be asked, and cost; nothing of files that are read."""
        return [] if self.opening is not None else self.collection(store).plans()

    def dry_run(self, context: Context) -> str | None:
        """With status=true, what is done; with plan=true, what judge and oracle would cost."""
        self.check(context.overrides)
        if self.opening is not None:
            text = f"oracle: {self.opening} are analysed; no call is made and nothing is paid"
            return text if self.plan or self.status else None
        store = context.store
        collection = self.collection(store)
        if self.plan or self.status:
            return collection.status() if self.status else collection.plan()
        prompts, entrants = collection.prompts, collection.entrants
        stored_only = self.judging.stored_only
        preflight(prompts, entrants, None, store, stored_only=stored_only)
        pipeline.has_all_responses(prompts, entrants, store)
        return None  # every model was found

    def run(self, context: Context) -> Report:
        """Read, simulate or collect the data; take the truth; estimate, and report."""
        settings, run_dir, scale = (
            self.oracle,
            context.run_dir,
            Scale(*self.oracle.scale),
        )
        facts: dict[str, Any] = {"is_simulated": self.is_simulated}
        sources: dict[str, Any] = {
            name: getattr(settings, name) for name in _SOURCE_SETTINGS
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
        truth_path = sources.pop("truth", settings.truth)
        data = read_dataset(
            **sources,
            scale=scale,
            covariates=settings.covariates,
            seed=settings.seed,
            with_clusters=self.compat is None,
        )
        warn_of_look_alikes(data.policies, "policies")
        truth: Mapping[str, Truth] = {}
        if self.needs_labels:
            data, truth = split_truth_from_labels(data)
        elif truth_path is not None:
            truth = read_truth(Path(truth_path), scale)
        if settings.grid:
            result = self._run_grid(data, truth, sources, context)
        else:
            if self.is_recorded:
                rng = np.random.default_rng(settings.seed)
                data = sample_prompts(
                    data, settings.n_prompts, settings.label_fraction, rng
                )
            logger.info(
                "analysing %d logged answers and %d draws with %d labels",
                len(data.logged_rows),
                sum(map(len, data.fresh_draws.values())),
                data.pooled_rows.is_labelled.sum(),
            )
            analysis = analyse(data, self.estimator, self._options)
            result = report(analysis, truth, run_dir, facts.get("collection"))
        artifacts = [*written_paths, *result.artifacts]
        return dataclasses.replace(
            result, artifacts=artifacts, facts={**result.facts, **facts}
        )

    @property
    def _options(self) -> Options:
        settings, width = self.oracle, Scale(*self.oracle.scale).width
        half_widths = [share * width for share in (0.05, 0.03, 0.02, 0.01)]
        return Options(
            by_variance=settings.by_variance,
            max_residual=settings.max_residual or 0.05 * width,
            tolerance=0.05 * width
            if settings.tolerance is None
            else settings.tolerance,
            half_widths=tuple(settings.half_widths or half_widths),
            compat=self.compat,
            oracle=self._oracle_name,
        )

    @property
    def _oracle_name(self) -> str:
        """The name of the oracle that gave the labels; unknown for recorded and simulated labels."""
        if self.oracle_judge is None or self.is_simulated:
            return "the oracle"
        return self.oracle_judge.model

    def _run_grid(
        self,
        data: Dataset,
        truth: Mapping[str, Truth],
        sources: Mapping[str, Any],
        context: Context,
    ) -> Report:
        """Estimate all cells, whose files are in the cache, and report what they show."""
        if n_unlabelled := int((~data.logged_rows.is_labelled).sum()):
            raise EvidenceError(
                f"oracle.grid: {n_unlabelled:,} of {len(data.logged_rows):,} logged answers have no "
                "oracle_label. Expected all labelled: collect with oracle.label_fraction=1 "
                "oracle.validation_fraction=1."
            )
        estimators = self.grid.expand_estimators(self.estimator)
        settings = {
            "version": __version__,
            "files": {
                role: sha256(path)
                for role, path in _list_files({**sources, "policies": None}).items()
                if path.is_file()
            },
            "oracle": {
                name: value
                for name, value in vars(self.oracle).items()
                if name not in (*_SOURCE_SETTINGS, "half_widths")
            },
            "estimators": {
                name: {"kind": type(estimator).__qualname__, **vars(estimator)}
                for name, estimator in estimators.items()
            },
            "calibrations": self.grid.calibrations,
        }
        grid = Grid(
            data=data,
            truth=truth,
            estimators=estimators,
            calibrations=self.grid.calibrations,
            options=self._options,
            cells=self.grid.make_cells(len(data.prompts)),
            folder=context.store.folder / "grid" / make_fingerprint(settings)[:16],
        )
        grid.run()
        rows = score_grid(grid)
        result = grid_page.grid_result(rows)
        summary = {
            **settings,
            "grid": vars(self.grid),
            "truth": {
                policy: policy_truth.to_dict() for policy, policy_truth in truth.items()
            },
            "folder": str(grid.folder),
        }
        return Report(
            headline=[*result.headline.values()][-1][GIVEN]["rmse"] or math.nan,
            text=grid_page.format_console(result),
            facts={"policies": list(data.policies)},
            artifacts=[
                write_csv(context.run_dir / "grid.csv", rows),
                write_json(context.run_dir / "grid.json", summary),
            ],
            metrics=grid_page.metrics(result),
            tables={"grid": [row for row in rows if row["policy"] == ALL]},
            figures=lambda: _import_figures().grid_plots(rows, result.calibration),
            page=page.make_page_renderer(
                partial(grid_page.build_document, result, truth)
            ),
        )

    @property
    def numbers(self) -> Mapping[str, Sequence[str]]:
        kinds = {"grid": ()} if self.oracle.grid else oracle_files.METRIC_KINDS
        return {**kinds, "usage": ()}

    @property
    def is_recorded(self) -> bool:
        return bool(self.oracle.logged or self.oracle.fresh_dir)

    @property
    def is_simulated(self) -> bool:
        """Whether policies of known value take the place of entrants and recorded answers."""
        return not self.is_recorded and not self.entrant

    @property
    def needs_labels(self) -> bool:
        """Whether the truth is made from labels of all answers."""
        return self.oracle.grid or self.oracle.truth == "labels"

    def collection(self, store: Store) -> Collection:
        """Draw prompts, and the slices that are labelled. Raises UserError where these are too few."""
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
            judge=Scorer(self.judge, self.scoring),
            oracle=Scorer(self.oracle_judge, self.oracle_scoring),
            asking=self.asking,
        )

    def check(self, overrides: Sequence[str]) -> None:
        """Raise UserError for mistakes that can be known before anything is asked."""
        self.refuse_drawing("oracle.n_prompts")
        self.refuse_draws(
            "oracle",
            "give several answers to a prompt in oracle.fresh_dir, numbered by draw_idx.",
        )
        if self.answers:
            raise SettingError(
                "answers: experiment=oracle does not read them. Give what policies have answered as "
                "oracle.logged=FILE or oracle.fresh_dir=FILE (docs/oracle.md)."
            )
        if not self.estimator:
            raise SettingError(
                "estimator: none is chosen. Choose at least one: 'estimator=[direct]'."
            )
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
                "oracle.logged: found no log-probabilities, which compat=cje-0.3, oracle.grid=true "
                "and oracle.truth=labels require. Name a file, or two entrants with logprobs=true."
            )
        self._check_compat()
        self._check_truth(overrides)
        if self.is_recorded:
            unused = () if settings.logged else ("oracle.label_fraction",)
            words = "is about answers to be collected, and these are recorded"
            _refuse_settings((*_COLLECTION_SETTINGS, *unused), overrides, words)
            return
        for name, is_set in {
            "probe_dir": settings.probe_dir,
            "scale": settings.scale != [0, 1],
            "covariates": {*settings.covariates} - {LENGTH_COVARIATE},
        }.items():
            if is_set:
                raise SettingError(
                    f"oracle.{name}: is about recorded answers; collected ones have scores in "
                    f"[0, 1] and {LENGTH_COVARIATE}. Leave it out, or name a file: oracle.fresh_dir=FILE."
                )
        if not self.is_simulated:
            for policy in settings.policies or ():
                check_choice("oracle.policies", policy, self.entrant)
            if settings.prompts == "arena":
                arenas.check_source(self.arena)
        self._check_judges(overrides)

    def _check_compat(self) -> None:
        if self.compat is None:
            return
        for name in self.estimator:
            check_choice("compat: estimator", name, cje.FORMULAS)
        required: dict[str, Any] = {"seed": cje.FOLDS_SEED}
        required |= {"scale": [0, 1], "covariates": [], "by_variance": False}
        for name, value in required.items():
            if (current := getattr(self.oracle, name)) != value:
                raise SettingError(
                    f"oracle.{name}: found {current}. compat=cje-0.3 requires {value}, as in that "
                    "library."
                )
        if self.oracle.grid:
            raise SettingError(
                "compat: refuses nothing, so that it has no grid. Leave it out."
            )

    def _check_truth(self, overrides: Sequence[str]) -> None:
        """Check what a truth made from labels needs, and that the grid has its own settings."""
        settings = self.oracle
        share = min(settings.label_fraction, settings.validation_fraction)
        if self.needs_labels and self.entrant and share < 1:
            raise SettingError(
                "oracle.label_fraction: found less than all answers labelled, from which no "
                "truth can be made. Set oracle.label_fraction=1 oracle.validation_fraction=1."
            )
        if not settings.grid:
            words = "is about a grid, which oracle.grid=true makes"
            _refuse_settings(["grid."], overrides, words)
            return
        if "two_stage" in self.grid.calibrations and not settings.covariates:
            raise SettingError(
                "grid.calibrations: two_stage needs a column beside the score. Set "
                "oracle.covariates=[response_length]."
            )
        words = "the grid draws prompts and labels itself, by grid.sizes and grid.label_shares"
        _refuse_settings(
            ("oracle.truth", *(() if self.entrant else _SAMPLING_SETTINGS)),
            overrides,
            words,
        )

    def _check_judges(self, overrides: Sequence[str]) -> None:
        """Check that the oracle is better than the judge; the simulation has no use for either."""
        judge, oracle = self.judge, self.oracle_judge
        assert judge and oracle
        if self.is_simulated:
            other_settings = (
                "oracle.truth",
                "judge",
                "oracle_judge",
                "scoring",
                "shard",
            )
            unused = _list_overridden(
                (*_COLLECTION_SETTINGS, *_SAMPLING_SETTINGS, *other_settings), overrides
            )
            unused += [
                rater.model for rater in (judge, oracle) if isinstance(rater, ApiJudge)
            ]
            if unused:
                raise SettingError(
                    f"entrant: none is chosen, and simulated policies have no use for {unused[0]}. "
                    "Name your policies: 'entrant=[base,other]'. To try it on models of random "
                    "weights: 'entrant=[tiny_base,tiny_clone]'."
                )
            return
        keys = [(rater.model, rater.cache_key()) for rater in (judge, oracle)]
        if keys[0] == keys[1] and self.scoring == self.oracle_scoring:
            raise SettingError(
                "judge@oracle_judge: is the judge itself, and every label would be its score. "
                "Choose another, or show it more: scoring@oracle_scoring=reference."
            )
        if isinstance(judge, ApiJudge) and oracle.model == "lexical":
            raise SettingError(
                f"judge@oracle_judge: found lexical, which only compares words, as the oracle for "
                f"{judge.model}. Choose a better judge than that: judge@oracle_judge=opus."
            )


def _list_overridden(names: Iterable[str], overrides: Sequence[str]) -> list[str]:
    """List the settings of a command that begin with one of these names."""
    keys = [word.lstrip("+").partition("=")[0] for word in overrides]
    return [key for key in keys if key.startswith(tuple(names))]


def _refuse_settings(
    names: Iterable[str], overrides: Sequence[str], reason: str
) -> None:
    """Raise UserError if a command sets something that has no meaning here."""
    for key in _list_overridden(names, overrides):
        raise SettingError(f"{key}: {reason}. Leave it out.")


def _list_files(sources: Mapping[str, str | Path | None]) -> dict[str, Path]:
    """List files by their role, and the files of a folder by role and name."""
    paths = {role: Path(path) for role, path in sources.items() if path is not None}
    for role, path in list(paths.items()):
        paths |= {f"{role}/{file.name}": file for file in sorted(path.glob("*.jsonl*"))}
    return paths


def report(
    analysis: Analysis,
    truth: Mapping[str, Truth],
    run_dir: Path,
    collection: Mapping[str, Any] | None = None,
) -> Report:
    """Write the artifacts of an analysis, and report it.

    collection  what the run itself has made
    """
    data, documents = analysis.data, oracle_files.build_json_files(analysis)
    metrics = oracle_files.metrics(analysis, truth)
    budgets = documents["label_budget.json"]
    written_paths = [
        write_json(run_dir / name, document) for name, document in documents.items()
    ]
    extreme = oracle_files.extreme_weights(analysis)
    headline_is, headline = oracle_files.choose_objective(metrics)
    return Report(
        headline=headline,
        headline_is=headline_is,
        text=oracle_page.format_console(analysis, truth, collection),
        facts={
            "logging_policy": data.logging_policy,
            "policies": list(data.policies),
            "n_logged": len(data.logged_rows),
            "n_labels": len(analysis.calibration.rows),
            "n_draws": {
                policy: len(draws) for policy, draws in data.fresh_draws.items()
            },
            "n_probe": {
                policy: len(draws) for policy, draws in data.probe_draws.items()
            },
            **oracle_files.conclusions(analysis),
        },
        artifacts=[*written_paths, write_csv(run_dir / "extreme_weights.csv", extreme)],
        metrics=metrics,
        tables={
            "estimates": documents["estimates.json"],
            "differences": documents.get("differences.json", []),
        },
        figures=lambda: _import_figures().plots(analysis, truth),
        page=page.make_page_renderer(
            partial(oracle_page.build_document, analysis, truth, budgets, collection)
        ),
    )


def _import_figures() -> ModuleType:
    """Import the figures, and with them Matplotlib, only if they are wanted."""
    from elo_exp.figures import oracle_figures

    return oracle_figures
