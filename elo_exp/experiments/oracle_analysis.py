"""The analysis of an oracle experiment: one estimate of each policy, or a grid of them."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import Field

from elo_exp.errors import EvidenceError, SettingError
from elo_exp.estimators import Estimator
from elo_exp.experiments import Context, Report
from elo_exp.experiments.collection import (
    CollectionSettings,
)
from elo_exp.files import sha256, write_csv, write_json
from elo_exp.oracle.data import (
    Dataset,
    Scale,
    Truth,
)
from elo_exp.oracle.estimates import Analysis, Options, analyse, calibrate_data
from elo_exp.oracle.grid import ALL, GIVEN, Grid, GridSettings, score_grid
from elo_exp.records import make_fingerprint
from elo_exp.report import grid_page, oracle_files, oracle_page, page
from elo_exp.types import (
    Dollars,
    NonNegative,
    Number,
    Positive,
)
from elo_exp.version import __version__

logger = logging.getLogger(__name__)

SOURCE_SETTINGS = ("logged", "fresh_dir", "probe_dir", "labels", "policies", "truth")


@dataclass(kw_only=True)
class OracleSettings(CollectionSettings):
    """Settings of the data and the analysis; conf/experiment/oracle.yaml describes them."""

    budget_usd: Dollars
    logged: str | None
    fresh_dir: str | None
    probe_dir: str | None
    labels: str | None
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
            raise SettingError.bad_value(
                "oracle.scale",
                self.scale,
                "be two numbers, the lower one first, such as [0,10]",
            )


@dataclass(frozen=True, kw_only=True)
class OracleAnalysis:
    """The settings of an analysis.

    compat       the other library whose analysis is repeated; None: our analysis
    oracle_name  the oracle that gave the labels
    """

    settings: OracleSettings
    estimator: Mapping[str, Estimator]
    grid: GridSettings
    compat: Literal["cje-0.3"] | None
    oracle_name: str

    @property
    def _options(self) -> Options:
        settings, width = self.settings, Scale(*self.settings.scale).width
        half_widths = [share * width for share in (0.05, 0.03, 0.02, 0.01)]
        return Options(
            by_variance=settings.by_variance,
            max_residual=settings.max_residual or 0.05 * width,
            tolerance=0.05 * width
            if settings.tolerance is None
            else settings.tolerance,
            half_widths=tuple(settings.half_widths or half_widths),
            compat=self.compat,
            oracle=self.oracle_name,
        )

    def check(self, data: Dataset, truth: Mapping[str, Truth]) -> None:
        """Raise UserError for data that cannot be calibrated, or, in a grid, that lack labels."""
        if self.settings.grid:
            _refuse_unlabelled(data)
        else:
            calibrate_data(data, self._options)

    def estimate(
        self,
        data: Dataset,
        truth: Mapping[str, Truth],
        run_dir: Path,
        collection: Mapping[str, Any] | None,
    ) -> Report:
        """Estimate each policy, and report it.

        collection  answers, scores and labels that the run itself has made
        """
        logger.info(
            "analysing %d logged answers and %d samples with %d labels",
            len(data.logged_rows),
            sum(map(len, data.fresh_draws.values())),
            data.pooled_rows.is_labelled.sum(),
        )
        analysis = analyse(data, self.estimator, self._options)
        return report(analysis, truth, run_dir, collection)

    def run_grid(
        self,
        data: Dataset,
        truth: Mapping[str, Truth],
        sources: Mapping[str, Any],
        context: Context,
    ) -> Report:
        """Estimate all cells, keep their files in the cache, and report the result."""
        _refuse_unlabelled(data)
        estimators = self.grid.expand_estimators(self.estimator)
        grid_settings = {
            "version": __version__,
            "files": {
                role: sha256(path)
                for role, path in list_files({**sources, "policies": None}).items()
                if path.is_file()
            },
            "oracle": {
                name: value
                for name, value in vars(self.settings).items()
                if name not in (*SOURCE_SETTINGS, "half_widths")
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
            folder=context.store.folder / "grid" / make_fingerprint(grid_settings)[:16],
        )
        grid.run()
        rows = score_grid(grid)
        result = grid_page.grid_result(rows)
        summary = {
            **grid_settings,
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


def _refuse_unlabelled(data: Dataset) -> None:
    """Raise EvidenceError if a logged answer has no label, which a grid needs."""
    if n_unlabelled := int((~data.logged_rows.is_labelled).sum()):
        raise EvidenceError(
            f"oracle.grid=true needs a label for each answer; {n_unlabelled:,} of {len(data.logged_rows):,} logged "
            f"answers have no "
            "oracle_label. Collect them with:",
            "  oracle.label_fraction=1 oracle.validation_fraction=1",
        )


def list_files(sources: Mapping[str, str | Path | None]) -> dict[str, Path]:
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
