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

from elo_exp.analysis.win_rates import share_interval
from elo_exp.arrays import Array, Mask, one_row
from elo_exp.files import write_whole
from elo_exp.oracle.calibration import calibrate
from elo_exp.oracle.data import Dataset, Truth, changed, sample
from elo_exp.oracle.estimates import HEADLINE, Options, analyse
from elo_exp.oracle.evidence import Estimator
from elo_exp.oracle.gates import CAUTION, REFUSE, STATUSES
from elo_exp.progress import track
from elo_exp.records import UserError
from elo_exp.types import Count, PositiveShare

logger = logging.getLogger(__name__)

# monotone: by the score; two_stage: by oracle.covariates, too; judge: its scores for labels
Calibration = Literal["monotone", "two_stage", "judge"]
FIELDS = ("status", "value", "half_width")
_SIZES = (250, 500, 1000, 2000, 3000, 5000)  # prompts
_SEEDS, _SMALL_SEEDS = 50, 10  # the latter for files of fewer prompts
_CHUNK = 8  # cells that a process is handed at once


@dataclass(kw_only=True)
class GridSettings:
    """The axes of a grid."""

    sizes: Annotated[list[Count], Field(min_length=1)] | None
    label_shares: Annotated[list[PositiveShare], Field(min_length=1)]
    weights: Annotated[list[Literal["raw", "simcal"]], Field(min_length=1)]
    calibrations: Annotated[list[Calibration], Field(min_length=1)]
    seeds: Count | None

    def cells(self, n_prompts: int) -> list[Cell]:
        """Return the cells of a file. Raises UserError for a sample larger than that."""
        if (sizes := self.sizes) is None:
            sizes = [size for size in _SIZES if size <= n_prompts]
            sizes = sizes or [n_prompts // n for n in (8, 4, 2, 1)]
        if max(sizes) > n_prompts:
            raise UserError(
                f"grid.sizes: found {max(sizes):,}, but the file has {n_prompts:,} prompts. "
                "Expected sizes up to that."
            )
        seeds = self.seeds or (_SEEDS if n_prompts >= _SIZES[0] else _SMALL_SEEDS)
        axes = product(sizes, self.label_shares, range(seeds))
        return [Cell(*cell) for cell in axes]

    def estimators(self, chosen: Mapping[str, Estimator]) -> dict[str, Estimator]:
        """Return the estimators, those that correct by weights once by each kind of weights."""
        found: dict[str, Estimator] = {}
        for name, estimator in chosen.items():
            if hasattr(estimator, "weights"):
                for kind in self.weights:
                    part = replace(estimator, weights=kind)  # type: ignore[type-var]
                    found[f"{name} {kind}"] = part
            else:
                found[name] = estimator
        return found


class Cell(NamedTuple):
    size: int  # prompts
    label_share: float  # of the logged answers
    seed: int

    @property
    def file(self) -> str:
        return f"n{self.size}-l{self.label_share:g}-s{self.seed}.npy"

    def draw(self, data: Dataset) -> Dataset:
        """Draw prompts without replacement, and keep a random share of the logged labels."""
        seed = (self.size, round(1e6 * self.label_share), self.seed)
        return sample(data, self.size, self.label_share, np.random.default_rng(seed))


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Cells, and what is estimated in each.

    data        all logged answers labelled, none of the draws
    truth       by policy: the mean label of all its draws
    estimators  beside the headline
    folder      of the files of the cells
    """

    data: Dataset
    truth: Mapping[str, Truth]
    estimators: Mapping[str, Estimator]
    calibrations: Sequence[Calibration]
    options: Options
    cells: Sequence[Cell]
    folder: Path

    @cached_property
    def names(self) -> list[str]:
        """The (k,) estimators, the headline first."""
        return [HEADLINE, *self.estimators]

    def run(self) -> None:
        """Estimate all cells that have no file. Raises UserError where none could be."""
        calibrate(self.data.logged, by_variance=self.options.by_variance)
        todo = [cell for cell in self.cells if not (self.folder / cell.file).exists()]
        logger.info(
            f"grid: {len(self.cells):,} draws, {len(self.cells) - len(todo):,} of them done "
            f"before; each with {len(self.names)} estimators, "
            f"{len(self.calibrations)} calibrations ({', '.join(self.calibrations)}) and "
            f"{len(self.data.policies)} policies"
        )
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(None, spawn, _end_with_parent) as pool:
            done = map(self.write, todo)
            if len(todo) > _CHUNK:
                done = pool.map(self.write, todo, chunksize=_CHUNK)  # type: ignore[assignment]
            for _ in track(done, label="grid: draws", total=len(todo)):
                pass

    def write(self, cell: Cell) -> Path:
        """Estimate a cell and write its file."""
        content = io.BytesIO()
        np.save(content, self.estimate(cell))
        return write_whole(self.folder / cell.file, content.getvalue())

    def estimate(self, cell: Cell) -> Array:
        """Return (c, p, k, f); all is refused where a curve cannot be fitted to the labels."""
        drawn, policies = cell.draw(self.data), self.data.policies
        shape = len(self.calibrations), len(policies), len(self.names), len(FIELDS)
        found = np.full(shape, np.nan)
        found[..., 0] = STATUSES.index(REFUSE)
        for i, calibration in enumerate(self.calibrations):
            data, least = drawn, 0
            if calibration != "two_stage":
                data = changed(
                    data, lambda r: replace(r, covariates=r.covariates[:, :0])
                )
            if calibration == JUDGE:
                data = changed(data, lambda r: replace(r, label=r.score))
                least = STATUSES.index(CAUTION)
            try:
                analysis = analyse(data, self.estimators, self.options)
            except UserError:  # too few labels, or all in one fold
                continue
            for row in analysis.estimates:
                at = i, policies.index(row.policy), self.names.index(row.estimator)
                found[at][0] = max(STATUSES.index(row.status), least)
                known = analysis.unfiltered.get((row.policy, row.estimator))
                if known is not None:
                    found[at][1:] = known.value, known.half_length
        return found


def _end_with_parent() -> None:
    """End this process when the one that started it is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


# What it shows

Row = dict[str, Any]  # of grid.csv

GIVEN, ALL = "given", "all policies"  # not refused; of the column `policy`
JUDGE = "judge"  # the calibration that takes scores for labels
_MISS = 40.0  # 2 / .05, of a 95 % interval


def score(grid: Grid) -> list[Row]:
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
        found = np.stack([np.load(grid.folder / cell.file) for cell in cells])
        judge = np.full((len(found), len(truth)), np.nan)
        if JUDGE in grid.calibrations and "direct" in grid.names:
            i, j = grid.calibrations.index(JUDGE), grid.names.index("direct")
            judge = found[:, i, :, j, 1] - truth
        for (i, calibration), (j, name), (policy, own), label in product(
            enumerate(grid.calibrations),
            enumerate(grid.names),
            groups.items(),
            (GIVEN, *STATUSES),
        ):
            status, value, half_width = np.moveaxis(found[:, i, own, j], -1, 0)
            if label == GIVEN:
                chosen = status < STATUSES.index(REFUSE)
            elif not (chosen := status == STATUSES.index(label)).any():
                continue
            error = value - truth[own]
            known = chosen & np.isfinite(error)
            scored = known & (2 * size <= len(grid.data.prompts))
            wide, off = half_width[scored], error[known]
            beyond = np.maximum(np.abs(error[scored]) - wide, 0.0)
            coverage = _mean(beyond == 0)
            # Of as many draws, as policies share their prompts
            n_draws = max(1, int(scored.any(axis=1).sum()))
            low, high = share_interval(coverage, n_draws)
            accuracy, tau, top_1 = math.nan, math.nan, math.nan
            if (policy, label) == (ALL, GIVEN):
                accuracy, tau, top_1 = _ranking(value, chosen, truth)
            estimator, _, weights = name.partition(" ")
            row = one_row(
                size=size,
                label_share=label_share,
                calibration=calibration,
                estimator=estimator,
                weights=weights,
                policy=policy,
                status=label,
                n=chosen.sum(),
                n_draws=chosen.any(axis=1).sum(),
                share=chosen.mean(),
                bias=_mean(off),
                rmse=np.sqrt(_mean(off**2)),
                mae=_mean(np.abs(off)),
                rmse_judge=np.sqrt(_mean(judge[:, own][known] ** 2)),
                interval_score=_mean(2 * wide + _MISS * beyond),
                coverage=coverage,
                coverage_low=low,
                coverage_high=high,
                pairwise_accuracy=accuracy,
                kendall_tau=tau,
                top_1=top_1,
            )
            rows.append(row)
    return rows


def _mean(values: Array | Mask) -> float:
    return float(values.mean()) if values.size else math.nan


def _ranking(value: Array, given: Mask, truth: Array) -> tuple[float, float, float]:
    """Compare the order of the policies that are given in a draw with the true one.

    Pairwise accuracy and Kendall's tau-b are means over the draws that have a pair; the best policy
    is top 1 where its value is the highest, and missed where it is refused.
    """
    a, b = np.triu_indices(len(truth), k=1)
    known = given[:, a] & given[:, b] & (truth[a] != truth[b])
    found = np.where(known, np.sign(value[:, a] - value[:, b]), 0.0)
    has_pair = (found != 0).any(axis=1)
    agrees = (found * np.sign(truth[a] - truth[b]))[has_pair]
    n_pairs, n_untied = (some[has_pair].sum(axis=1) for some in (known, found != 0))
    best = np.where(given, value, -np.inf).argmax(axis=1)
    is_best = given[np.arange(len(given)), best] & (truth[best] == truth.max())
    return (
        _mean((agrees > 0).sum(axis=1) / n_pairs),
        _mean(agrees.sum(axis=1) / np.sqrt(n_pairs * n_untied)),
        _mean(is_best),
    )
