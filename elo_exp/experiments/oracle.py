"""What cheap judge scores, calibrated on some labels, say of policies, and what must not be believed.

python -m elo_exp experiment=oracle                                             # policies answer, are scored, labelled
python -m elo_exp experiment=oracle oracle.logged=FILE oracle.fresh_dir=DIR     # all of that is on record
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from elo_exp.arena import sources as arenas
from elo_exp.arena.settings import ArenaSource
from elo_exp.data.scoring import ScoreRubric
from elo_exp.estimators import Estimator
from elo_exp.experiments import Context, Report, oracle_collect
from elo_exp.experiments.judged import Judged
from elo_exp.experiments.oracle_collect import Collecting, Collection
from elo_exp.judges import Judge, PaidJudge
from elo_exp.oracle import cje
from elo_exp.oracle import data as oracle_data
from elo_exp.oracle import report as oracle_report
from elo_exp.oracle.ablation import Row, ablate
from elo_exp.oracle.data import Dataset, FreshDraw, Truth, build_dataset
from elo_exp.oracle.estimates import Analysis, Options, analyse
from elo_exp.oracle.evidence import FRESH_DRAWS
from elo_exp.records import Plot, UserError, one_of
from elo_exp.store.store import Store
from elo_exp.types import Count, Dollars, Natural, NonNegative, Share

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class OracleSettings:
    prompts: Literal["bank", "arena"]
    n_prompts: Count | None
    logging_policy: str | None
    label_fraction: Annotated[float, Field(strict=True, gt=0, le=1)]
    validation_fraction: Share
    budget_usd: Dollars
    check_nats: NonNegative
    check_answers: Count
    logged: str | None
    fresh_dir: str | None
    probe_dir: str | None
    truth: str | None
    policies: list[str] | None
    calibration: Literal["monotone", "two_stage"]
    by_variance: bool
    n_folds: Annotated[int, Field(strict=True, ge=2, le=20)]
    seed: Natural
    max_residual: Annotated[float, Field(strict=True, gt=0, lt=1)]
    half_widths: list[Annotated[float, Field(strict=True, gt=0, lt=1)]]
    ablation: bool


@dataclass(kw_only=True)
class Oracle(Judged):
    """judge, oracle_judge, scoring and oracle_scoring are None where the answers are on record (oracle.logged)."""

    judge: Judge | None
    oracle_judge: Judge | None
    scoring: ScoreRubric | None
    oracle_scoring: ScoreRubric | None
    estimator: dict[str, Estimator]
    arena: ArenaSource
    oracle: OracleSettings
    status: bool
    compat: Literal["cje-0.3"] | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.oracle_judge, PaidJudge):  # for its messages
            self.oracle_judge.budget_setting = "oracle.budget_usd"
            self.oracle_judge.part = "oracle_judge"  # type: ignore[attr-defined]

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """Leave out the parts that recorded answers do not need, and give the oracle its own budget."""
        config = Judged.prepare(config, overrides)
        if config["oracle"]["logged"] is not None:
            nobody = dict.fromkeys(("judge", "oracle_judge", "scoring", "oracle_scoring"))
            return config | nobody | {"entrant": {}}
        if "budget_usd" in config["oracle_judge"]:
            for word in overrides:
                if word.lstrip("+").startswith("oracle_judge.budget_usd="):
                    raise UserError(
                        f"oracle_judge.budget_usd: found {word.partition('=')[2]}. Leave it out: the "
                        "oracle's cap is oracle.budget_usd."
                    )
            config["oracle_judge"]["budget_usd"] = config["oracle"]["budget_usd"]
        return config

    @property
    def input_files(self) -> Mapping[str, Path]:
        chosen = self.oracle
        truth = {} if chosen.truth is None else {"truth": Path(chosen.truth)}
        if chosen.logged is None:
            if chosen.prompts == "arena":
                return {**arenas.input_paths(self.arena), **truth}
            return {"bank": Path(self.prompts.bank_path), **truth}
        paths = {"logged": Path(chosen.logged), **truth}
        for name, folder in (("fresh", chosen.fresh_dir), ("probe", chosen.probe_dir)):
            if folder is not None:
                files = sorted(Path(folder).glob("*.jsonl*"))
                paths |= {name: Path(folder), **{f"{name}/{path.name}": path for path in files}}
        return paths

    def dry_run(self, context: Context) -> str | None:
        """With status=true, what is done; with plan=true, what judge and oracle would cost."""
        self.check(context.overrides)
        if self.oracle.logged is not None or not (self.plan or self.status):
            return None
        collecting = Collecting(self, context.store)
        return collecting.status() if self.status else collecting.plan()

    def run(self, context: Context) -> Report:
        if self.shard is not None and self.oracle.logged is None:
            share = Collecting(self, context.store).share(self.shard)
            return Report(headline=0.0, text=share)
        return report(*self.analyse(context.store), context.run_dir)

    def analyse(
        self, store: Store
    ) -> tuple[Analysis, Mapping[str, Truth], Sequence[Row], Collection | None]:
        """Collect what is not on record, and estimate every policy."""
        chosen, collection = self.oracle, None
        if chosen.logged is None:
            collection = Collecting(self, store).run()
            data = collection.found.dataset(n_folds=chosen.n_folds, seed=chosen.seed)
        else:
            data = read(chosen)
        logger.info(
            "analysing %d logged answers, %d of them labelled, and %d draws",
            len(data.logged),
            data.n_labels,
            sum(len(draws) for draws in data.fresh.values()),
        )
        truth = oracle_data.read_truth(Path(chosen.truth)) if chosen.truth is not None else {}
        options = Options(
            calibration=chosen.calibration,
            by_variance=chosen.by_variance,
            max_residual=chosen.max_residual,
            half_widths=tuple(chosen.half_widths),
            compat=self.compat,
        )
        ablation = ablate(data, self.estimator, options, truth) if chosen.ablation else []
        return analyse(data, self.estimator, options), truth, ablation, collection

    def check(self, overrides: Sequence[str]) -> None:
        if not self.estimator:
            raise UserError("estimator: none is chosen. Choose at least one: 'estimator=[direct]'.")
        if self.compat is not None:
            _check_compat(self.oracle, self.estimator)
        if self.oracle.logged is None:
            _check_no_files(self.oracle)
            oracle_collect.check(self, overrides)
            return
        for name in ("plan", "status"):
            if getattr(self, name):
                raise UserError(
                    f"{name}: recorded answers are analysed and nothing is paid for. Leave "
                    f"{name}=true out."
                )
        _check_files(self.oracle, self.estimator)


def _check_no_files(chosen: OracleSettings) -> None:
    for name, folder in (("fresh_dir", chosen.fresh_dir), ("probe_dir", chosen.probe_dir)):
        if folder is not None:
            raise UserError(
                f"oracle.logged: names no file. Set it with oracle.logged=FILE, of the logging policy's answers, or "
                f"leave oracle.{name} out, and policies answer."
            )


def _check_files(chosen: OracleSettings, estimators: Mapping[str, Estimator]) -> None:
    of_fresh = [name for name, estimator in estimators.items() if FRESH_DRAWS in estimator.requires]
    if of_fresh and chosen.fresh_dir is None:
        raise UserError(
            f"oracle.fresh_dir: names no folder, and {', '.join(of_fresh)} need fresh draws. Set it with "
            "oracle.fresh_dir=DIR, or choose others: 'estimator=[ips,snips,calibrated_ips]'."
        )
    for name, path in (("fresh_dir", chosen.fresh_dir), ("probe_dir", chosen.probe_dir)):
        if path is not None and not Path(path).is_dir():
            raise UserError(f"oracle.{name}: found no folder {path}. Check the path.")


def _check_compat(chosen: OracleSettings, estimators: Mapping[str, Estimator]) -> None:
    for name in estimators:
        one_of("compat: estimator", name, cje.FORMULAS)
    fixed: dict[str, Any] = {
        "n_folds": cje.N_FOLDS,
        "seed": cje.SEED,
        "calibration": "monotone",
        "by_variance": False,
    }
    for name, value in fixed.items():
        if (found := getattr(chosen, name)) != value:
            raise UserError(
                f"oracle.{name}: found {found}. Expected {value}, which compat=cje-0.3 goes by."
            )


def _figures(analysis: Analysis, truth: Mapping[str, Truth]) -> Sequence[Plot]:
    from elo_exp.figures import oracle

    return oracle.plots(analysis, truth)


def read(chosen: OracleSettings) -> Dataset:
    """The recorded answers. Raises UserError naming file, line and remedy."""
    assert chosen.logged is not None
    answers = oracle_data.read_logged(Path(chosen.logged))
    known = list(dict.fromkeys(policy for answer in answers for policy in answer.target_logps))
    there = (
        oracle_data.policies_with_draws(Path(chosen.fresh_dir))
        if chosen.fresh_dir is not None
        else []
    )
    for policy in chosen.policies or ():
        one_of("oracle.policies", policy, list(dict.fromkeys([*known, *there])))
    policies = list(dict.fromkeys(chosen.policies or known))
    fresh = _draws(chosen.fresh_dir, policies)
    for policy in policies if chosen.fresh_dir is not None else ():
        if policy not in fresh:
            kept = ",".join(name for name in policies if name in there)
            raise UserError(
                f"{chosen.fresh_dir}: found no draws of {policy!r}, but of {', '.join(there) or 'nobody'}. Add "
                f"{policy}.jsonl, or leave the policy out: oracle.policies=[{kept}]."
            )
    return build_dataset(
        answers,
        fresh=fresh,
        probe=_draws(chosen.probe_dir, policies),
        policies=policies,
        n_folds=chosen.n_folds,
        seed=chosen.seed,
    )


def _draws(folder: str | None, policies: Sequence[str]) -> dict[str, list[FreshDraw]]:
    """By policy; those that have no file are left out."""
    found = (
        {policy: oracle_data.read_draws(Path(folder), policy) for policy in policies}
        if folder is not None
        else {}
    )
    return {policy: draws for policy, draws in found.items() if draws is not None}


def report(
    analysis: Analysis,
    truth: Mapping[str, Truth],
    ablation: Sequence[Row],
    collection: Collection | None,
    run_dir: Path,
) -> Report:
    """Write the artifacts of an analysis, and report it."""
    data = analysis.data
    collected = collection.write(run_dir) if collection else []
    text = oracle_report.table(analysis, truth)
    return Report(
        headline=oracle_report.headline(analysis, truth),
        text="\n".join([collection.table(), text]) if collection else text,
        facts={
            "logging_policy": data.logging_policy,
            "policies": list(data.policies),
            "n_logged": len(data.logged),
            "n_labels": data.n_labels,
            "n_draws": {policy: len(draws) for policy, draws in data.fresh.items()},
            "n_probe": {policy: len(draws) for policy, draws in data.probe.items()},
            **({"collection": collection.info} if collection else {}),
        },
        artifacts=[*collected, *oracle_report.write(run_dir, analysis, truth, ablation)],
        metrics=oracle_report.metrics(analysis, truth),
        tables={"estimates": [estimate.to_dict() for estimate in analysis.estimates]},
        figures=lambda: _figures(analysis, truth),
        page=lambda title, manifest, figures: oracle_report.page(
            analysis,
            truth,
            ablation,
            figures,
            title=title,
            manifest=manifest,
            collected=collection.summaries if collection else (),
        ),
    )
