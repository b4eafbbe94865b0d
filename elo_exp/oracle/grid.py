"""How near each estimator comes to a known truth, by sample size and by the share of labels.

One file in which every answer is labelled gives the truth. A cell of the grid draws prompts from it
and hides labels; all estimators, weights and calibrations see the same draw. A cell is one file, so
that a grid continues where it was stopped. A refused estimate never enters the mean of others.
Letters: s seeds, c calibrations, p policies,
k estimators, f fields.
"""

from __future__ import annotations

import io
import logging
import math
import multiprocessing
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from elo_exp.analysis.win_rates import wilson_interval
from elo_exp.arrays import Array, Mask, make_row
from elo_exp.errors import SettingError, UserError
from elo_exp.files import write_whole
from elo_exp.oracle.calibration import calibrate
from elo_exp.oracle.data import Dataset, Truth, change_answers, sample_prompts
from elo_exp.oracle.estimates import HEADLINE_ESTIMATOR, Options, analyse
from elo_exp.oracle.evidence import Estimator
from elo_exp.oracle.gates import CAUTION, REFUSE, STATUSES_BEST_FIRST
from elo_exp.progress import track
from elo_exp.types import Count, PositiveShare

logger = logging.getLogger(__name__)

# monotone: by the score; two_stage: by oracle.covariates, too; judge: its scores for labels
CalibrationKind = Literal["monotone", "two_stage", "judge"]
RESULT_FIELDS = ("status", "value", "half_width")
_DEFAULT_PROMPT_COUNTS = (250, 500, 1000, 2000, 3000, 5000)
_N_SEEDS, _N_SEEDS_OF_SMALL_FILES = 50, 10
# How many cells a process is handed at once
_CELLS_PER_CHUNK = 8


@dataclass(kw_only=True)
class GridSettings:
    """The axes of a grid."""

    sizes: Annotated[list[Count], Field(min_length=1)] | None
    label_shares: Annotated[list[PositiveShare], Field(min_length=1)]
    weights: Annotated[list[Literal["raw", "simcal"]], Field(min_length=1)]
    calibrations: Annotated[list[CalibrationKind], Field(min_length=1)]
    seeds: Count | None

    def make_cells(self, n_prompts: int) -> list[GridCell]:
        """Return the cells of a file. Raises SettingError for a sample larger than that."""
        if (sizes := self.sizes) is None:
            sizes = [size for size in _DEFAULT_PROMPT_COUNTS if size <= n_prompts]
            sizes = sizes or [n_prompts // n for n in (8, 4, 2, 1)]
        if max(sizes) > n_prompts:
            raise SettingError.bad_value(
                "grid.sizes",
                max(sizes),
                f"be at most {n_prompts:,}, the number of prompts in the file",
            )
        seeds = self.seeds or (
            _N_SEEDS
            if n_prompts >= _DEFAULT_PROMPT_COUNTS[0]
            else _N_SEEDS_OF_SMALL_FILES
        )
        axes = product(sizes, self.label_shares, range(seeds))
        return [GridCell(*cell) for cell in axes]

    def expand_estimators(
        self, chosen: Mapping[str, Estimator]
    ) -> dict[str, Estimator]:
        """Return the estimators; an estimator with weights once for each kind of weights."""
        estimator_by_name: dict[str, Estimator] = {}
        for name, estimator in chosen.items():
            if hasattr(estimator, "weights"):
                for kind in self.weights:
                    variant = replace(estimator, weights=kind)  # type: ignore[type-var]
                    estimator_by_name[f"{name} {kind}"] = variant
            else:
                estimator_by_name[name] = estimator
        return estimator_by_name


class GridCell(NamedTuple):
    size: int  # prompts
    label_share: float  # of the logged answers
    seed: int

    @property
    def file(self) -> str:
        return f"n{self.size}-l{self.label_share:g}-s{self.seed}.npy"

    def draw(self, data: Dataset) -> Dataset:
        """Draw prompts without replacement, and keep a random share of the logged labels."""
        seed = (self.size, round(1e6 * self.label_share), self.seed)
        return sample_prompts(
            data, self.size, self.label_share, np.random.default_rng(seed)
        )


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The cells of a grid, and the estimates of each cell.

    data        all logged answers labelled, none of the draws
    truth       by policy: the mean label of all its draws
    estimators  beside the headline
    folder      of the files of the cells
    """

    data: Dataset
    truth: Mapping[str, Truth]
    estimators: Mapping[str, Estimator]
    calibrations: Sequence[CalibrationKind]
    options: Options
    cells: Sequence[GridCell]
    folder: Path

    @cached_property
    def estimator_names(self) -> list[str]:
        """The (k,) estimators, the reported estimate first."""
        return [HEADLINE_ESTIMATOR, *self.estimators]

    def run(self) -> None:
        """Estimate all cells without a file. Raises UserError if no cell can be estimated."""
        calibrate(self.data.logged_rows, by_variance=self.options.by_variance)
        todo = [cell for cell in self.cells if not (self.folder / cell.file).exists()]
        logger.info(
            f"grid: {len(self.cells):,} samples, {len(self.cells) - len(todo):,} of them from an earlier run, each "
            f"with {len(self.estimator_names)} estimators, "
            f"{len(self.calibrations)} calibrations ({', '.join(self.calibrations)}) and "
            f"{len(self.data.policies)} policies"
        )
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(None, spawn, _end_with_parent) as pool:
            paths = map(self.write, todo)
            if len(todo) > _CELLS_PER_CHUNK:
                paths = pool.map(self.write, todo, chunksize=_CELLS_PER_CHUNK)  # type: ignore[assignment]
            for _ in track(paths, label="grid: samples", total=len(todo)):
                pass

    def write(self, cell: GridCell) -> Path:
        """Estimate a cell and write its file."""
        content = io.BytesIO()
        np.save(content, self.estimate(cell))
        return write_whole(self.folder / cell.file, content.getvalue())

    def estimate(self, cell: GridCell) -> Array:
        """Return (c, p, k, f); all estimates are refused if no curve can be fitted to the labels."""
        sampled_data, policies = cell.draw(self.data), self.data.policies
        shape = (
            len(self.calibrations),
            len(policies),
            len(self.estimator_names),
            len(RESULT_FIELDS),
        )
        results = np.full(shape, np.nan)
        results[..., 0] = STATUSES_BEST_FIRST.index(REFUSE)
        for i, calibration in enumerate(self.calibrations):
            data, min_status = sampled_data, 0
            if calibration != "two_stage":
                data = change_answers(
                    data, lambda r: replace(r, covariates=r.covariates[:, :0])
                )
            if calibration == JUDGE_CALIBRATION:
                data = change_answers(data, lambda r: replace(r, label=r.score))
                min_status = STATUSES_BEST_FIRST.index(CAUTION)
            try:
                analysis = analyse(data, self.estimators, self.options)
            except UserError:  # too few labels, or all in one fold
                continue
            for row in analysis.estimates:
                index = (
                    i,
                    policies.index(row.policy),
                    self.estimator_names.index(row.estimator),
                )
                results[index][0] = max(
                    STATUSES_BEST_FIRST.index(row.status), min_status
                )
                raw_estimate = analysis.estimates_by_policy.get(
                    (row.policy, row.estimator)
                )
                if raw_estimate is not None:
                    results[index][1:] = (
                        raw_estimate.value,
                        raw_estimate.interval_half_length,
                    )
        return results


def _end_with_parent() -> None:
    """End this process when the one that started it is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


# What it shows

GridRow = dict[str, Any]  # of grid.csv

GIVEN, ALL = "given", "all policies"  # not refused; of the column `policy`
# The calibration that takes scores for labels
JUDGE_CALIBRATION = "judge"
# 2 / alpha in the interval score of a 95% interval
_MISS_PENALTY = 40.0


def score_grid(grid: Grid) -> list[GridRow]:
    """Return the rows of grid.csv.

    n           estimates of this status
    n_draws     with such an estimate
    share       of them in all; 1 - share of `given` is the refusal rate
    rmse_judge  of the judge's mean scores of the same policies in the same draws
    Errors are estimate minus truth. Intervals are scored for samples of up to half of the file:
    beyond, the truth is largely made of the sample itself.
    """
    rows = []
    truth = np.array([grid.truth[policy].mean for policy in grid.data.policies])
    groups = {ALL: slice(None)}
    groups |= {policy: slice(p, p + 1) for p, policy in enumerate(grid.truth)}
    for (size, label_share), cells in groupby(grid.cells, lambda cell: cell[:2]):
        results = np.stack([np.load(grid.folder / cell.file) for cell in cells])
        judge = np.full((len(results), len(truth)), np.nan)
        if JUDGE_CALIBRATION in grid.calibrations and "direct" in grid.estimator_names:
            i, j = (
                grid.calibrations.index(JUDGE_CALIBRATION),
                grid.estimator_names.index("direct"),
            )
            judge = results[:, i, :, j, 1] - truth
        for (i, calibration), (j, name), (policy, policy_slice), label in product(
            enumerate(grid.calibrations),
            enumerate(grid.estimator_names),
            groups.items(),
            (GIVEN, *STATUSES_BEST_FIRST),
        ):
            status, value, half_width = np.moveaxis(
                results[:, i, policy_slice, j], -1, 0
            )
            if label == GIVEN:
                has_status = status < STATUSES_BEST_FIRST.index(REFUSE)
            elif not (has_status := status == STATUSES_BEST_FIRST.index(label)).any():
                continue
            error = value - truth[policy_slice]
            is_used = has_status & np.isfinite(error)
            is_scored = is_used & (2 * size <= len(grid.data.prompts))
            scored_half_width, used_error = half_width[is_scored], error[is_used]
            miss = np.maximum(np.abs(error[is_scored]) - scored_half_width, 0.0)
            coverage = _mean_or_nan(miss == 0)
            # Of as many draws, as policies share their prompts
            n_draws = max(1, int(is_scored.any(axis=1).sum()))
            low, high = wilson_interval(coverage, n_draws)
            accuracy, tau, top_1 = math.nan, math.nan, math.nan
            if (policy, label) == (ALL, GIVEN):
                accuracy, tau, top_1 = _compare_rankings(value, has_status, truth)
            estimator, _, weights = name.partition(" ")
            row = make_row(
                size=size,
                label_share=label_share,
                calibration=calibration,
                estimator=estimator,
                weights=weights,
                policy=policy,
                status=label,
                n=has_status.sum(),
                n_draws=has_status.any(axis=1).sum(),
                share=has_status.mean(),
                bias=_mean_or_nan(used_error),
                rmse=np.sqrt(_mean_or_nan(used_error**2)),
                mae=_mean_or_nan(np.abs(used_error)),
                rmse_judge=np.sqrt(_mean_or_nan(judge[:, policy_slice][is_used] ** 2)),
                interval_score=_mean_or_nan(
                    2 * scored_half_width + _MISS_PENALTY * miss
                ),
                coverage=coverage,
                coverage_low=low,
                coverage_high=high,
                pairwise_accuracy=accuracy,
                kendall_tau=tau,
                top_1=top_1,
            )
            rows.append(row)
    return rows


def _mean_or_nan(values: Array | Mask) -> float:
    return float(values.mean()) if values.size else math.nan


def _compare_rankings(
    value: Array, is_given: Mask, truth: Array
) -> tuple[float, float, float]:
    """Compare the order of the policies that are not refused in a draw with their true order.

    Pairwise accuracy and Kendall's tau-b are means over the draws that have a pair; the best policy
    is top 1 where its value is the highest, and missed where it is refused.
    """
    a, b = np.triu_indices(len(truth), k=1)
    has_order = is_given[:, a] & is_given[:, b] & (truth[a] != truth[b])
    order = np.where(has_order, np.sign(value[:, a] - value[:, b]), 0.0)
    has_pair = (order != 0).any(axis=1)
    agrees = (order * np.sign(truth[a] - truth[b]))[has_pair]
    n_pairs, n_untied = (mask[has_pair].sum(axis=1) for mask in (has_order, order != 0))
    best = np.where(is_given, value, -np.inf).argmax(axis=1)
    is_best = is_given[np.arange(len(is_given)), best] & (truth[best] == truth.max())
    return (
        _mean_or_nan((agrees > 0).sum(axis=1) / n_pairs),
        _mean_or_nan(agrees.sum(axis=1) / np.sqrt(n_pairs * n_untied)),
        _mean_or_nan(is_best),
    )
