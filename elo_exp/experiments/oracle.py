"""What cheap judge scores, calibrated on some labels, say of policies, and what must not be believed.

python -m elo_exp experiment=oracle                                             # policies answer, are scored, labelled
python -m elo_exp experiment=oracle oracle.logged=FILE oracle.fresh_dir=DIR     # all of that is on record
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elo_exp.arena import sources as arenas
from elo_exp.experiments import Parts, oracle_collect
from elo_exp.experiments.oracle_collect import Collecting, Collection
from elo_exp.oracle import cje
from elo_exp.oracle import data as oracle_data
from elo_exp.oracle import report as oracle_report
from elo_exp.oracle.ablation import Row, ablate
from elo_exp.oracle.data import Dataset, FreshDraw, Truth, build_dataset
from elo_exp.oracle.estimates import Analysis, Options, analyse
from elo_exp.oracle.evidence import FRESH_DRAWS
from elo_exp.records import Plot, UserError
from elo_exp.settings import OracleSettings, Settings, one_of

logger = logging.getLogger(__name__)

NEEDS = frozenset({"entrant", "judge", "oracle_judge", "scoring", "estimator"})


def inputs(settings: Settings, parts: Parts) -> Mapping[str, Path]:
    chosen = settings.oracle
    paths = {} if chosen.truth is None else {"truth": Path(chosen.truth)}
    if chosen.logged is None:
        bank = {"bank": Path(settings.prompts.bank_path)}
        asked = arenas.input_paths(settings.arena) if chosen.prompts == "arena" else bank
        return {**asked, **paths, **parts.inputs()}
    for name, folder in (("fresh", chosen.fresh_dir), ("probe", chosen.probe_dir)):
        if folder is not None:
            files = {f"{name}/{path.name}": path for path in sorted(Path(folder).glob("*.jsonl*"))}
            paths |= {name: Path(folder), **files}
    return {"logged": Path(chosen.logged), **paths}


def check(settings: Settings, parts: Parts) -> None:
    if not parts.estimators:
        raise UserError("estimator: none is chosen. Choose at least one: 'estimator=[direct]'.")
    if settings.compat is not None:
        _check_compat(settings.oracle, parts)
    if settings.oracle.logged is None:
        _check_no_files(settings.oracle)
        oracle_collect.check(settings, parts)
    else:
        _check_files(settings.oracle, parts)


def _check_no_files(chosen: OracleSettings) -> None:
    for name, folder in (("fresh_dir", chosen.fresh_dir), ("probe_dir", chosen.probe_dir)):
        if folder is not None:
            raise UserError(
                f"oracle.logged: names no file. Set it with oracle.logged=FILE, of the logging policy's answers, or "
                f"leave oracle.{name} out, and policies answer."
            )


def _check_files(chosen: OracleSettings, parts: Parts) -> None:
    of_fresh = [
        name for name, estimator in parts.estimators.items() if FRESH_DRAWS in estimator.requires
    ]
    if of_fresh and chosen.fresh_dir is None:
        raise UserError(
            f"oracle.fresh_dir: names no folder, and {', '.join(of_fresh)} need fresh draws. Set it with "
            "oracle.fresh_dir=DIR, or choose others: 'estimator=[ips,snips,calibrated_ips]'."
        )
    for name, path in (("fresh_dir", chosen.fresh_dir), ("probe_dir", chosen.probe_dir)):
        if path is not None and not Path(path).is_dir():
            raise UserError(f"oracle.{name}: found no folder {path}. Check the path.")


def _check_compat(chosen: OracleSettings, parts: Parts) -> None:
    for name in parts.estimators:
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


def errand(settings: Settings, parts: Parts) -> str | None:
    """With status=true what is done, with plan=true what judge and oracle would cost, with shard=i/n a share of the
    answers."""
    for name in ("plan", "status"):
        if settings.oracle.logged is not None and getattr(settings, name):
            raise UserError(
                f"{name}: recorded answers are analysed and nothing is paid for. Leave {name}=true out."
            )
    if settings.oracle.logged is not None or not (
        settings.plan or settings.status or settings.shard
    ):
        return None
    collecting = Collecting(settings, parts)
    if settings.status:
        return collecting.status()
    return collecting.plan() if settings.plan else collecting.share(str(settings.shard))


def run(settings: Settings, parts: Parts) -> OracleResult:
    chosen = settings.oracle
    collection = None if chosen.logged is not None else Collecting(settings, parts).run()
    data = (
        read(chosen)
        if collection is None
        else collection.found.dataset(n_folds=chosen.n_folds, seed=chosen.seed)
    )
    n_draws = sum(len(draws) for draws in data.fresh.values())
    logger.info(
        "analysing %d logged answers, %d of them labelled, and %d draws",
        len(data.logged),
        data.n_labels,
        n_draws,
    )
    truth = oracle_data.read_truth(Path(chosen.truth)) if chosen.truth is not None else {}
    options = Options(
        calibration=chosen.calibration,
        by_variance=chosen.by_variance,
        max_residual=chosen.max_residual,
        half_widths=tuple(chosen.half_widths),
        compat=settings.compat,
    )
    return OracleResult(
        analyse(data, parts.estimators, options),
        truth,
        ablate(data, parts.estimators, options, truth) if chosen.ablation else [],
        collection,
    )


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


class OracleResult:
    """An analysis, and what is made of it."""

    def __init__(
        self,
        analysis: Analysis,
        truth: Mapping[str, Truth],
        ablation: Sequence[Row],
        collection: Collection | None = None,
    ) -> None:
        self.analysis = analysis
        self.truth = truth
        self.ablation = ablation
        self._collection = collection

    @property
    def headline(self) -> float:
        return oracle_report.headline(self.analysis, self.truth)

    def facts(self) -> Mapping[str, Any]:
        data = self.analysis.data
        return {
            "logging_policy": data.logging_policy,
            "policies": list(data.policies),
            "n_logged": len(data.logged),
            "n_labels": data.n_labels,
            "n_draws": {policy: len(draws) for policy, draws in data.fresh.items()},
            "n_probe": {policy: len(draws) for policy, draws in data.probe.items()},
            **({"collection": self._collection.info} if self._collection else {}),
        }

    def write(self, run_dir: Path, plots: Sequence[Plot]) -> list[Path]:
        collected = self._collection.write(run_dir) if self._collection else []
        return [
            *collected,
            *oracle_report.write(run_dir, self.analysis, self.truth, self.ablation, plots),
        ]

    def metrics(self) -> Mapping[str, float]:
        return oracle_report.metrics(self.analysis, self.truth)

    def tables(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return {"estimates": [estimate.to_dict() for estimate in self.analysis.estimates]}

    def series(self) -> Sequence[Mapping[str, float]]:
        return []

    def plots(self) -> Sequence[Plot]:
        from elo_exp.figures import oracle

        return oracle.plots(self.analysis, self.truth)

    def table(self) -> str:
        collected = [self._collection.table()] if self._collection else []
        return "\n".join([*collected, oracle_report.table(self.analysis, self.truth)])

    def page(self, title: str, manifest: Mapping[str, Any], plots: Sequence[Plot]) -> str:
        return oracle_report.page(
            self.analysis,
            self.truth,
            self.ablation,
            plots,
            title=title,
            manifest=manifest,
            collected=self._collection.summaries if self._collection else (),
        )
