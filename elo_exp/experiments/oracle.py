"""Estimate the mean oracle label of policies from cheap judge scores, calibrated on some labels.

python -m elo_exp experiment=oracle 'entrant=[a,b]'    # collect, then analyse
python -m elo_exp experiment=oracle oracle.fresh_dir=FILE    # scored answers, some of them labelled
python -m elo_exp experiment=oracle oracle.logged=FILE oracle.fresh_dir=DIR    # also log-probabilities
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from elo_exp import __version__, pipeline
from elo_exp.arena import rows as arena_rows
from elo_exp.arena import sources as arenas
from elo_exp.arena.settings import ArenaSource
from elo_exp.data import bank
from elo_exp.data.scoring import ScoreRubric
from elo_exp.entrants import Policy
from elo_exp.estimators import Estimator
from elo_exp.experiments import Context, Report
from elo_exp.experiments.judged import Judged, parse_shard, preflight
from elo_exp.files import sha256, write_csv, write_json
from elo_exp.judges import ApiJudge, Judge, PaidJudge
from elo_exp.oracle import cje, simulated
from elo_exp.oracle.builder import LoggedDataBuilder, Rater
from elo_exp.oracle.collection import LoggedData
from elo_exp.oracle.data import (
    LENGTH,
    MIN_LABELS,
    Dataset,
    Scale,
    Truth,
    read_dataset,
    read_truth,
    subset,
    take_truth,
    with_labels,
)
from elo_exp.oracle.estimates import Analysis, Options, analyse
from elo_exp.oracle.grid import Grid, GridSettings
from elo_exp.oracle.grid_scores import ALL, GIVEN, score
from elo_exp.oracle.prompts import sample_arena, sample_bank, shuffled, usable
from elo_exp.records import Plot, Prompt, UserError, fingerprint, one_of
from elo_exp.report import estimates as estimates_report
from elo_exp.report import grid_report
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
    *("prompts", "logging_policy", "validation_fraction"),
    *("budget_usd", "check_nats", "check_answers"),
)
_SAMPLING = ("n_prompts", "label_fraction")  # of answers to collect, or recorded ones
_BY_GRID = ("truth", *_SAMPLING)  # which the grid has its own of
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
    n_folds: Annotated[int, Field(strict=True, ge=2, le=20)]
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
        if config["oracle"]["logged"] or config["oracle"]["fresh_dir"]:
            unused = ("judge", "oracle_judge", "scoring", "oracle_scoring")
            whole = {"n_prompts": None, "label_fraction": 1.0}
            given = {
                name: config["oracle"][name] for name in _given(_SAMPLING, overrides)
            }
            settings = {**config["oracle"], **whole, **given}
            return {
                **config,
                **dict.fromkeys(unused),
                "oracle": settings,
                "entrant": {},
            }
        if "budget_usd" in config["oracle_judge"]:
            for word in overrides:
                if word.lstrip("+").startswith("oracle_judge.budget_usd="):
                    raise UserError(
                        f"oracle_judge.budget_usd: found {word.partition('=')[2]}. Leave it out: "
                        "the oracle's cap is oracle.budget_usd."
                    )
            config["oracle_judge"]["budget_usd"] = config["oracle"]["budget_usd"]
        return config

    @property
    def input_files(self) -> Mapping[str, Path]:
        chosen = self.oracle
        truth = None if chosen.truth == _LABELS else chosen.truth
        given = {"logged": chosen.logged, "truth": truth}
        given |= {"fresh": chosen.fresh_dir, "probe": chosen.probe_dir}
        paths = {role: Path(path) for role, path in given.items() if path is not None}
        for role in sorted({"fresh", "probe"} & paths.keys()):
            files = sorted(paths[role].glob("*.jsonl*"))
            paths |= {f"{role}/{path.name}": path for path in files}
        if self.is_recorded:
            return paths
        if chosen.prompts == "arena":
            return {**arenas.input_paths(self.arena), **paths}
        return {"bank": Path(self.prompts.bank_path), **paths}

    def dry_run(self, context: Context) -> str | None:
        """With status=true, what is done; with plan=true, what judge and oracle would cost."""
        self.check(context.overrides)
        recorded, asked = self.is_recorded, self.plan or self.status
        if (recorded or self.is_simulated) and asked:
            source = "recorded answers are" if recorded else "simulated policies are"
            return f"oracle: {source} analysed; no call is made and nothing is paid"
        if recorded or self.is_simulated:
            return None
        builder, store = self.builder(context.store), context.store
        if asked:
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
        chosen, run_dir = self.oracle, context.run_dir
        sources = {name: getattr(chosen, name) for name in _SOURCES}
        truth_path, collected, written = chosen.truth, None, []
        if self.is_simulated:
            bank_path = Path(self.prompts.bank_path)
            sources = simulated.write(
                run_dir, bank_path, seed=chosen.seed, all_labelled=chosen.grid
            )
            truth_path = sources.pop("truth")
            written = [*run_dir.glob("fresh/*.jsonl"), sources["logged"], truth_path]
        elif not self.is_recorded:
            collected = self.builder(context.store).build()
            written = collected.write(run_dir)
            sources = collected.sources(run_dir)
        scale = Scale(*chosen.scale)
        data = read_dataset(
            **sources,
            scale=scale,
            covariates=chosen.covariates,
            n_folds=chosen.n_folds,
            seed=chosen.seed,
        )
        truth: Mapping[str, Truth] = {}
        if chosen.grid or chosen.truth == _LABELS:
            data, truth = take_truth(data)
        elif truth_path is not None:
            truth = read_truth(Path(truth_path), scale)
        if chosen.grid:
            found = self._grid(data, truth, sources, context)
            return dataclasses.replace(found, artifacts=[*written, *found.artifacts])
        if self.is_recorded:
            data = _sampled(data, chosen)
        logger.info(
            "analysing %d logged answers and %d draws with %d labels",
            len(data.logged),
            sum(len(draws) for draws in data.fresh.values()),
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
    def _options(self) -> Options:
        chosen, scale = self.oracle, Scale(*self.oracle.scale)
        return Options(
            by_variance=chosen.by_variance,
            max_residual=chosen.max_residual or _MARGIN * scale.width,
            half_widths=tuple(
                chosen.half_widths or (share * scale.width for share in _HALF_WIDTHS)
            ),
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
        given = [sources.get(name) for name in ("logged", "fresh_dir", "probe_dir")]
        places = [Path(place) for place in given if place]
        files = [
            p for place in places for p in sorted(place.glob("*.jsonl*")) or [place]
        ]
        settings = {
            "version": __version__,
            "files": [[path.name, sha256(path)] for path in files],
            "oracle": {
                name: value
                for name, value in vars(self.oracle).items()
                if name not in ("logged", "fresh_dir", "probe_dir", "half_widths")
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
        found = grid_report.summary(rows)
        summary = {
            **settings,
            "grid": vars(self.grid),
            "truth": {policy: known.to_dict() for policy, known in truth.items()},
            "folder": str(grid.folder),
        }
        return Report(
            headline=[*found["headline"].values()][-1][GIVEN]["rmse"] or math.nan,
            text=grid_report.text(found),
            facts={"policies": list(data.policies), "is_simulated": self.is_simulated},
            artifacts=[
                write_csv(context.run_dir / "grid.csv", rows),
                write_json(context.run_dir / "grid.json", summary),
            ],
            metrics=grid_report.metrics(found),
            tables={"grid": [row for row in rows if row["policy"] == ALL]},
            figures=lambda: _grid_figures(rows, found["calibration"]),
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
        names = [*([first] if first else []), *(chosen.policies or self.entrant)]
        share = chosen.validation_fraction if first else chosen.label_fraction
        shares = dict.fromkeys(names, share)
        shares[names[0]] = chosen.label_fraction
        labelled = {
            name: shuffled(
                ids, seed=chosen.seed, purpose=f"labels of {name if first else 'all'}"
            )[: round(share * len(ids))]
            for name, share in shares.items()
        }
        if (n := len(next(iter(labelled.values())))) < MIN_LABELS:
            raise UserError(
                f"oracle.label_fraction: {chosen.label_fraction:g} of {len(ids)} answers are {n} "
                f"labels. Expected {MIN_LABELS} or more: raise it, or oracle.n_prompts."
            )
        return LoggedDataBuilder(
            prompts=prompts,
            entrants={name: self.entrant[name] for name in shares},
            policies={name: policies[name] for name in shares if name in policies},
            judge=Rater(
                judge=self.judge,
                rubric=self.scoring,
                prompt_ids=dict.fromkeys(shares, ids),
            ),
            oracle=Rater(
                judge=self.oracle_judge, rubric=self.oracle_scoring, prompt_ids=labelled
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
            self._check_recorded(overrides)
            return
        others = [name for name in chosen.covariates if name != LENGTH]
        for name, is_given in {
            "probe_dir": chosen.probe_dir is not None,
            "scale": chosen.scale != [0, 1],
            "covariates": bool(others),
        }.items():
            if is_given:
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
            arena_rows.check(self.arena)
        self._check_judges()

    def _check_truth(self, overrides: Sequence[str]) -> None:
        """Check what a truth made from labels needs, and that the grid has its own settings."""
        chosen = self.oracle
        grid = [word for word in overrides if word.lstrip("+").startswith("grid.")]
        if grid and not chosen.grid:
            raise UserError(f"{grid[0]}: is about a grid. Add oracle.grid=true.")
        if not chosen.grid and chosen.truth != _LABELS:
            return
        if chosen.grid and self.compat is not None:
            raise UserError(
                "compat: refuses nothing, so that it has no grid. Leave it out."
            )
        if "two_stage" in self.grid.calibrations and not chosen.covariates:
            raise UserError(
                "grid.calibrations: two_stage needs a column beside the score. Set "
                "oracle.covariates=[response_length]."
            )
        by_grid = _given(_BY_GRID, overrides) if chosen.grid else []
        if self.entrant and chosen.logged is None:
            if min(chosen.label_fraction, chosen.validation_fraction) < 1:
                raise UserError(
                    "oracle.label_fraction: found less than all answers labelled, from which no "
                    "truth can be made. Set oracle.label_fraction=1 oracle.validation_fraction=1."
                )
            by_grid = [name for name in by_grid if name not in _SAMPLING]
        if by_grid:
            raise UserError(
                f"oracle.{by_grid[0]}: the grid draws prompts and labels itself, and its truth is "
                "made from all labels. Leave it out, or set the axes: grid.sizes, "
                "grid.label_shares, grid.calibrations."
            )

    def _check_compat(self) -> None:
        for name in self.estimator:
            one_of("compat: estimator", name, cje.FORMULAS)
        fixed: dict[str, Any] = {"n_folds": cje.N_FOLDS, "seed": cje.SEED}
        fixed |= {"scale": [0, 1], "covariates": [], "by_variance": False}
        for name, value in fixed.items():
            if (found := getattr(self.oracle, name)) != value:
                raise UserError(
                    f"oracle.{name}: found {found}. compat=cje-0.3 requires {value}, as in that "
                    "library."
                )

    def _check_recorded(self, overrides: Sequence[str]) -> None:
        lacking = () if self.oracle.logged else ("label_fraction",)
        if given := _given((*_COLLECTING, *lacking), overrides):
            raise UserError(
                f"oracle.{given[0]}: is about answers to be collected, and these are recorded. "
                "Leave it out."
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
        keys = [word.lstrip("+").partition("=")[0] for word in overrides]
        unused = [
            key
            for key in keys
            if key.removeprefix("oracle.") in (*_COLLECTING, *_SAMPLING, "truth")
            or key.startswith(("judge", "oracle_judge", "scoring", "shard"))
        ]
        judges = (self.judge, self.oracle_judge)
        unused += [judge.model for judge in judges if isinstance(judge, PaidJudge)]
        if unused:
            raise UserError(
                f"entrant: none is chosen, and simulated policies have no use for {unused[0]}. "
                "Name your policies: 'entrant=[base,other]'. To try it on models of random "
                "weights: 'entrant=[tiny_base,tiny_clone]'."
            )


def _given(names: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return those of the settings `oracle.NAME` that a command sets."""
    keys = [word.lstrip("+").partition("=")[0] for word in overrides]
    return [name for name in names if f"oracle.{name}" in keys]


def _sampled(data: Dataset, chosen: OracleSettings) -> Dataset:
    """Keep a sample of the recorded prompts, and of the logged labels a share."""
    kept = shuffled(data.prompts, seed=chosen.seed, purpose="prompts")[
        : chosen.n_prompts
    ]
    data = subset(data, np.flatnonzero(np.isin(data.prompts, kept)))
    order = np.random.default_rng(chosen.seed).permutation(data.n_labels)
    shown = data.logged.labelled.copy()
    shown[shown] = order < round(chosen.label_fraction * len(order))
    return with_labels(data, shown)


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
    text = estimates_report.table(analysis, truth)
    if collected:
        facts["collection"] = collected.info
        text = f"{estimates_report.collected_table(collected)}\n{text}"
    return Report(
        headline=estimates_report.headline(analysis, truth),
        text=text,
        facts=facts,
        artifacts=estimates_report.write(run_dir, analysis),
        metrics=estimates_report.metrics(analysis, truth),
        tables={
            "estimates": [estimate.to_dict() for estimate in analysis.estimates],
            "differences": [d.to_dict() for d in analysis.comparison.differences],
        },
        figures=lambda: _figures(analysis, truth),
        page=lambda title, manifest, figures: estimates_report.page(
            analysis,
            truth,
            figures,
            title=title,
            manifest=manifest,
            collected=collected.summaries if collected else (),
        ),
    )


def _grid_figures(rows: Sequence[dict[str, Any]], calibration: str) -> Sequence[Plot]:
    from elo_exp.figures import grid

    at = {"calibration": calibration, "policy": ALL, "status": GIVEN}
    return grid.plots([row for row in rows if at.items() <= row.items()])


def _figures(analysis: Analysis, truth: Mapping[str, Truth]) -> Sequence[Plot]:
    from elo_exp.figures import oracle

    return oracle.plots(analysis, truth)
