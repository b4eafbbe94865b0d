"""Estimate the mean oracle label of policies from cheap judge scores, calibrated on some labels.

python -m elo_exp experiment=oracle 'entrant=[a,b]'    # collect, then analyse
python -m elo_exp experiment=oracle oracle.fresh_dir=FILE    # scored answers, some of them labelled
python -m elo_exp experiment=oracle oracle.logged=FILE oracle.fresh_dir=DIR    # also log-probabilities
"""

import dataclasses
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from elo_exp import __version__, pipeline
from elo_exp.arena import sources as arenas
from elo_exp.arena.sources import ArenaSource
from elo_exp.data import bank
from elo_exp.data.scoring import ScoreRubric
from elo_exp.entrants import Policy
from elo_exp.estimators import Estimator
from elo_exp.experiments import Context, Report
from elo_exp.experiments.collection import (
    LoggedData,
    LoggedDataBuilder,
    Rater,
    sample_arena,
    sample_bank,
    shuffled,
    usable,
)
from elo_exp.experiments.judged import Judged, parse_shard, preflight
from elo_exp.files import one_of, sha256, write_csv, write_json
from elo_exp.judges import ApiJudge, Judge, PaidJudge
from elo_exp.oracle import cje, simulated
from elo_exp.oracle.data import (
    LENGTH,
    MIN_LABELS,
    Dataset,
    Scale,
    Truth,
    read_dataset,
    read_truth,
    sample,
    take_truth,
)
from elo_exp.oracle.estimates import Analysis, Options, analyse
from elo_exp.oracle.grid import ALL, GIVEN, Grid, GridSettings, score
from elo_exp.records import Prompt, UserError, fingerprint
from elo_exp.report import oracle as oracle_report
from elo_exp.report.page import render
from elo_exp.store.store import Store
from elo_exp.types import (
    Count,
    Dollars,
    Natural,
    NonNegative,
    Number,
    Positive,
    Share,
)

logger = logging.getLogger(__name__)

_SOURCES = ("logged", "fresh_dir", "probe_dir", "policies")
# Of the scale: the margin of transport, and half-widths whose labels are counted
_MARGIN, _HALF_WIDTHS = 0.05, (0.05, 0.03, 0.02, 0.01)
_COLLECTING = (  # settings without a meaning for recorded answers
    *("oracle.prompts", "oracle.logging_policy", "oracle.validation_fraction"),
    *("oracle.budget_usd", "oracle.check_nats", "oracle.check_answers"),
)
_TRUTH, _LABEL_SHARE = "oracle.truth", "oracle.label_fraction"
_SAMPLING = (
    "oracle.n_prompts",
    _LABEL_SHARE,
)  # of answers to collect, or recorded ones
_LABELS = "labels"  # of oracle.truth: made from them


@dataclass(kw_only=True)
class OracleSettings:
    prompts: Literal["bank", "arena"]
    n_prompts: Count | None
    logging_policy: str | None
    label_fraction: Annotated[float, Field(strict=True, gt=0, le=1)]
    validation_fraction: Share
    budget_usd: Dollars
    check_nats: NonNegative | None
    check_answers: Count
    logged: str | None
    fresh_dir: str | None
    probe_dir: str | None
    truth: str | None
    policies: list[str] | None
    scale: Annotated[list[Number], Field(min_length=2, max_length=2)]
    covariates: list[str]
    by_variance: bool
    seed: Natural
    max_residual: Positive | None
    half_widths: list[Positive] | None
    grid: bool

    def __post_init__(self) -> None:
        if not self.scale[0] < self.scale[1]:
            raise UserError(
                f"oracle.scale: found {self.scale}. Expected a low below a high: [0, 10]."
            )


@dataclass(kw_only=True)
class Oracle(Judged):
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
        config = Judged.prepare(config, overrides)
        chosen = config["oracle"]
        if chosen["logged"] or chosen["fresh_dir"]:
            unused = ("judge", "oracle_judge", "scoring", "oracle_scoring")
            whole = {"n_prompts": None, "label_fraction": 1.0}
            given = [key.removeprefix("oracle.") for key in _keys(overrides)]
            whole = {name: v for name, v in whole.items() if name not in given}
            config |= {**dict.fromkeys(unused), "oracle": {**chosen, **whole}}
            config["entrant"] = {}
        elif "budget_usd" in config["oracle_judge"]:
            words = "the oracle's cap is oracle.budget_usd"
            _refuse(["oracle_judge.budget_usd"], overrides, words)
            config["oracle_judge"]["budget_usd"] = chosen["budget_usd"]
        return config

    @property
    def input_files(self) -> Mapping[str, Path]:
        chosen = self.oracle
        truth = None if chosen.truth == _LABELS else chosen.truth
        given = {"logged": chosen.logged, "truth": truth}
        given |= {"fresh": chosen.fresh_dir, "probe": chosen.probe_dir}
        paths = _files(given)
        if self.is_recorded:
            return paths
        if chosen.prompts == "arena":
            return {**arenas.input_paths(self.arena), **paths}
        return {"bank": Path(self.prompts.bank_path), **paths}

    def dry_run(self, context: Context) -> str | None:
        """With status=true, what is done; with plan=true, what judge and oracle would cost."""
        self.check(context.overrides)
        if self.is_recorded or self.is_simulated:
            source = "recorded answers" if self.is_recorded else "simulated policies"
            text = f"oracle: {source} are analysed; no call is made and nothing is paid"
            return text if self.plan or self.status else None
        builder, store = self.builder(context.store), context.store
        if self.plan or self.status:
            return builder.status() if self.status else builder.plan()
        prompts, entrants = builder.prompts, builder.entrants
        stored_only = self.judging.stored_only
        preflight(prompts, entrants, None, store, stored_only=stored_only)
        pipeline.all_generated(prompts, entrants, store)
        return None  # every model was found

    def run(self, context: Context) -> Report:
        if self.shard is not None and not self.is_recorded:
            text = self.builder(context.store).answer_shard(*parse_shard(self.shard))
            return Report(headline=0.0, text=text)
        chosen, run_dir, scale = self.oracle, context.run_dir, self.scale
        truth_path, collected = chosen.truth, None
        if self.is_recorded:
            sources = {name: getattr(chosen, name) for name in _SOURCES}
        elif self.is_simulated:
            bank_path, every = Path(self.prompts.bank_path), chosen.grid
            sources = simulated.write(
                run_dir, bank_path, seed=chosen.seed, all_labelled=every
            )
            truth_path = sources.pop("truth")
        else:
            collected = self.builder(context.store).build()
            sources = collected.write(run_dir)
        folders = () if self.is_recorded else (".", "fresh", "probe")
        written = [p for name in folders for p in (run_dir / name).glob("*.json*")]
        data = read_dataset(
            **sources,
            scale=scale,
            covariates=chosen.covariates,
            seed=chosen.seed,
        )
        truth: Mapping[str, Truth] = {}
        if chosen.grid or chosen.truth == _LABELS:
            data, truth = take_truth(data)
        elif truth_path is not None:
            truth = read_truth(Path(truth_path), scale)
        if chosen.grid:
            found = self._grid(data, truth, sources, context)
        else:
            if self.is_recorded:
                rng = np.random.default_rng(chosen.seed)
                data = sample(data, chosen.n_prompts, chosen.label_fraction, rng)
            logger.info(
                "analysing %d logged answers and %d draws with %d labels",
                len(data.logged),
                sum(map(len, data.fresh.values())),
                data.pool.labelled.sum(),
            )
            analysis = analyse(data, self.estimator, self._options)
            found = report(analysis, truth, run_dir, collected=collected)
        return dataclasses.replace(
            found,
            artifacts=[*written, *found.artifacts],
            facts={**found.facts, "is_simulated": self.is_simulated},
        )

    @property
    def scale(self) -> Scale:
        return Scale(*self.oracle.scale)

    @property
    def _options(self) -> Options:
        chosen, width = self.oracle, self.scale.width
        half_widths = chosen.half_widths or [share * width for share in _HALF_WIDTHS]
        return Options(
            by_variance=chosen.by_variance,
            max_residual=chosen.max_residual or _MARGIN * width,
            half_widths=tuple(half_widths),
            compat=self.compat,
        )

    def _grid(
        self,
        data: Dataset,
        truth: Mapping[str, Truth],
        sources: Mapping[str, Any],
        context: Context,
    ) -> Report:
        """Estimate all cells, whose files are in the cache, and report what they show."""
        if n_unlabelled := int((~data.logged.labelled).sum()):
            raise UserError(
                f"oracle.grid: {n_unlabelled:,} of {len(data.logged):,} logged answers have no "
                "oracle_label. Expected all labelled: collect with oracle.label_fraction=1 "
                "oracle.validation_fraction=1."
            )
        estimators = self.grid.estimators(self.estimator)
        settings = {
            "version": __version__,
            "files": {
                role: sha256(path)
                for role, path in _files({**sources, "policies": None}).items()
                if path.is_file()
            },
            "oracle": {
                name: value
                for name, value in vars(self.oracle).items()
                if name not in (*_SOURCES, "half_widths")
            },
            "estimators": {
                name: {"kind": type(part).__qualname__, **vars(part)}
                for name, part in estimators.items()
            },
            "calibrations": self.grid.calibrations,
        }
        grid = Grid(
            data=data,
            truth=truth,
            estimators=estimators,
            calibrations=self.grid.calibrations,
            options=self._options,
            cells=self.grid.cells(len(data.prompts)),
            folder=context.store.path.parent / "grid" / fingerprint(settings)[:16],
        )
        grid.run()
        rows = score(grid)
        found = oracle_report.grid_summary(rows)
        summary = {
            **settings,
            "grid": vars(self.grid),
            "truth": {policy: known.to_dict() for policy, known in truth.items()},
            "folder": str(grid.folder),
        }
        return Report(
            headline=[*found["headline"].values()][-1][GIVEN]["rmse"] or math.nan,
            text=oracle_report.grid_text(found),
            facts={"policies": list(data.policies), "is_simulated": self.is_simulated},
            artifacts=[
                write_csv(context.run_dir / "grid.csv", rows),
                write_json(context.run_dir / "grid.json", summary),
            ],
            metrics=oracle_report.grid_metrics(found),
            tables={"grid": [row for row in rows if row["policy"] == ALL]},
            figures=lambda: _figures().grid_plots(rows, found["calibration"]),
            page=lambda title, manifest, plots: render(
                "grid", plots, title=title, manifest=manifest, truth=truth, found=found
            ),
        )

    @property
    def is_recorded(self) -> bool:
        return bool(self.oracle.logged or self.oracle.fresh_dir)

    @property
    def is_simulated(self) -> bool:
        """Whether policies of known value take the place of entrants and recorded answers."""
        return not self.is_recorded and not self.entrant

    @property
    def policies(self) -> dict[str, Policy]:
        """Entrants that record log-probabilities, the logging policy first; none without a target.

        Raises UserError for a logging policy that records none.
        """
        every = [
            name
            for name, entrant in self.entrant.items()
            if isinstance(entrant, Policy) and entrant.logprobs
        ]
        first = self.oracle.logging_policy or next(iter(every), None)
        targets = set(self.oracle.policies or every).intersection(every) - {first}
        if first is None or (first in every and not targets):
            return {}
        one_of("oracle.logging_policy", first, self.entrant)
        chosen = [first, *(name for name in every if name in targets)]
        return pipeline.as_policies({name: self.entrant[name] for name in chosen})

    def builder(self, store: Store) -> LoggedDataBuilder:
        """Draw prompts and slices. Raises UserError where they would give too few labels."""
        assert self.judge and self.oracle_judge and self.scoring and self.oracle_scoring
        chosen, policies = self.oracle, self.policies
        first = next(iter(policies), None)
        prompts = self._prompts([self.scoring, self.oracle_scoring])
        ids = [prompt.prompt_id for prompt in prompts]
        names = dict.fromkeys([first or "", *(chosen.policies or self.entrant)])
        names.pop("", None)
        labelled: dict[str, list[str]] = {}
        for name in names:
            is_target = first is not None and name != first
            share = chosen.validation_fraction if is_target else chosen.label_fraction
            purpose = f"labels of {name if first else 'all'}"
            order = shuffled(ids, seed=chosen.seed, purpose=purpose)
            labelled[name] = order[: round(share * len(ids))]
        if (n := len(next(iter(labelled.values())))) < MIN_LABELS:
            raise UserError(
                f"oracle.label_fraction: {chosen.label_fraction:g} of {len(ids)} answers are {n} "
                f"labels. Expected {MIN_LABELS} or more: raise it, or oracle.n_prompts."
            )
        every = dict.fromkeys(names, ids)
        return LoggedDataBuilder(
            prompts=prompts,
            entrants={name: self.entrant[name] for name in names},
            policies={name: policies[name] for name in names if name in policies},
            raters=(
                Rater(judge=self.judge, rubric=self.scoring, prompt_ids=every),
                Rater(
                    judge=self.oracle_judge,
                    rubric=self.oracle_scoring,
                    prompt_ids=labelled,
                ),
            ),
            store=store,
            stored_only=self.judging.stored_only,
            allow_missing=self.allow_missing,
            check_nats=chosen.check_nats,
            check_answers=chosen.check_answers,
        )

    def _prompts(self, rubrics: Sequence[ScoreRubric]) -> list[Prompt]:
        n, seed = self.oracle.n_prompts, self.oracle.seed
        if self.oracle.prompts == "arena":
            return usable(sample_arena(self.arena, n, seed=seed), rubrics)
        whole = bank.load(Path(self.prompts.bank_path))
        some = bank.select(whole, self.mode.strata, seed=self.mode.pilot_seed)
        return sample_bank(usable(some, rubrics), n, seed=seed)

    def check(self, overrides: Sequence[str]) -> None:
        """Raise UserError for mistakes that can be known before anything is asked."""
        if not self.estimator:
            raise UserError(
                "estimator: none is chosen. Choose at least one: 'estimator=[direct]'."
            )
        chosen = self.oracle
        needs_logs = self.compat or chosen.grid or chosen.truth == _LABELS
        has_logs = self.is_simulated or (
            chosen.logged if self.is_recorded else self.policies
        )
        if needs_logs and not has_logs:
            raise UserError(
                "oracle.logged: found no log-probabilities, which compat=cje-0.3, oracle.grid=true "
                "and oracle.truth=labels require. Name a file, or two entrants with logprobs=true."
            )
        if self.compat is not None:
            self._check_compat()
        self._check_truth(overrides)
        if self.is_recorded:
            lacking = () if chosen.logged else (_LABEL_SHARE,)
            words = "is about answers to be collected, and these are recorded"
            _refuse((*_COLLECTING, *lacking), overrides, words)
            return
        for name, value, fixed in (
            ("probe_dir", chosen.probe_dir, None),
            ("scale", chosen.scale, [0, 1]),
            ("covariates", [c for c in chosen.covariates if c != LENGTH], []),
        ):
            if value != fixed:
                raise UserError(
                    f"oracle.{name}: is about recorded answers; collected ones have scores in "
                    f"[0, 1] and {LENGTH}. Leave it out, or name a file: oracle.fresh_dir=FILE."
                )
        if self.is_simulated:
            self._check_simulated(overrides)
            return
        for policy in chosen.policies or ():
            one_of("oracle.policies", policy, self.entrant)
        if self.oracle.prompts == "arena":
            arenas.check(self.arena)
        self._check_judges()

    def _check_truth(self, overrides: Sequence[str]) -> None:
        """Check what a truth made from labels needs, and that the grid has its own settings."""
        chosen = self.oracle
        if not chosen.grid:
            words = "is about a grid, which oracle.grid=true makes"
            _refuse(["grid."], overrides, words)
        elif self.compat is not None:
            raise UserError(
                "compat: refuses nothing, so that it has no grid. Leave it out."
            )
        elif "two_stage" in self.grid.calibrations and not chosen.covariates:
            raise UserError(
                "grid.calibrations: two_stage needs a column beside the score. Set "
                "oracle.covariates=[response_length]."
            )
        is_labelled = min(chosen.label_fraction, chosen.validation_fraction) == 1
        needs_labels = chosen.grid or chosen.truth == _LABELS
        if needs_labels and self.entrant and not is_labelled:
            raise UserError(
                "oracle.label_fraction: found less than all answers labelled, from which no "
                "truth can be made. Set oracle.label_fraction=1 oracle.validation_fraction=1."
            )
        if chosen.grid:
            words = "the grid draws prompts and labels itself, by grid.sizes and grid.label_shares"
            drawn = () if self.entrant else _SAMPLING
            _refuse((_TRUTH, *drawn), overrides, words)

    def _check_compat(self) -> None:
        for name in self.estimator:
            one_of("compat: estimator", name, cje.FORMULAS)
        fixed: dict[str, Any] = {"seed": cje.SEED}
        fixed |= {"scale": [0, 1], "covariates": [], "by_variance": False}
        for name, value in fixed.items():
            if (found := getattr(self.oracle, name)) != value:
                raise UserError(
                    f"oracle.{name}: found {found}. compat=cje-0.3 requires {value}, as in that "
                    "library."
                )

    def _check_judges(self) -> None:
        assert self.judge and self.oracle_judge
        judge, oracle = self.judge, self.oracle_judge
        is_same_model = (judge.model, judge.cache_key()) == (
            oracle.model,
            oracle.cache_key(),
        )
        if is_same_model and self.scoring == self.oracle_scoring:
            raise UserError(
                "judge@oracle_judge: is the judge itself, and every label would be its score. "
                "Choose another, or show it more: scoring@oracle_scoring=reference."
            )
        if isinstance(judge, PaidJudge) and oracle.model == "lexical":
            raise UserError(
                f"judge@oracle_judge: found lexical, which only compares words, as the oracle for "
                f"{judge.model}. Choose a better judge than that: judge@oracle_judge=opus."
            )

    def _check_simulated(self, overrides: Sequence[str]) -> None:
        """Refuse what the simulation has no use for: its judge and its oracle compare words."""
        others = (_TRUTH, "judge", "oracle_judge", "scoring", "shard")
        unused = _given((*_COLLECTING, *_SAMPLING, *others), overrides)
        judges = (self.judge, self.oracle_judge)
        unused += [judge.model for judge in judges if isinstance(judge, PaidJudge)]
        if unused:
            raise UserError(
                f"entrant: none is chosen, and simulated policies have no use for {unused[0]}. "
                "Name your policies: 'entrant=[base,other]'. To try it on models of random "
                "weights: 'entrant=[tiny_base,tiny_clone]'."
            )


def _keys(overrides: Sequence[str]) -> list[str]:
    return [word.lstrip("+").partition("=")[0] for word in overrides]


def _given(names: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return the settings of a command that begin with one of these names."""
    return [key for key in _keys(overrides) if key.startswith(tuple(names))]


def _refuse(names: Sequence[str], overrides: Sequence[str], reason: str) -> None:
    """Raise UserError where a command sets what has no meaning here."""
    for key in _given(names, overrides):
        raise UserError(f"{key}: {reason}. Leave it out.")


def _files(sources: Mapping[str, str | Path | None]) -> dict[str, Path]:
    """Return files by their role, and those of a folder by role and name."""
    paths = {role: Path(path) for role, path in sources.items() if path is not None}
    for role, path in list(paths.items()):
        paths |= {f"{role}/{one.name}": one for one in sorted(path.glob("*.jsonl*"))}
    return paths


def report(
    analysis: Analysis,
    truth: Mapping[str, Truth],
    run_dir: Path,
    *,
    collected: LoggedData | None = None,
) -> Report:
    """Write the artifacts of an analysis, and report it."""
    data = analysis.data
    facts: dict[str, Any] = {
        "logging_policy": data.logging_policy,
        "policies": list(data.policies),
        "n_logged": len(data.logged),
        "n_labels": len(analysis.calibration.rows),
        "n_draws": {policy: len(draws) for policy, draws in data.fresh.items()},
        "n_probe": {policy: len(draws) for policy, draws in data.probe.items()},
    }
    if collected:
        facts["collection"] = collected.info
    shown = oracle_report.context(analysis, truth, collected)
    return Report(
        headline=oracle_report.headline(analysis, truth),
        text=oracle_report.text(shown),
        facts=facts,
        artifacts=oracle_report.write(run_dir, analysis),
        metrics=oracle_report.metrics(analysis, truth),
        tables={
            "estimates": [estimate.to_dict() for estimate in analysis.estimates],
            "differences": [d.to_dict() for d in analysis.comparison.differences],
        },
        figures=lambda: _figures().plots(analysis, truth),
        page=lambda title, manifest, plots: render(
            "oracle", plots, title=title, manifest=manifest, **shown
        ),
    )


def _figures() -> ModuleType:
    """Import Matplotlib where figures are wanted."""
    from elo_exp.figures import oracle

    return oracle
