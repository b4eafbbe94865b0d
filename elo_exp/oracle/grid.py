"""How near each estimator comes to a known truth, by sample size and by the share of labels.

One file in which every answer is labelled gives the truth. A cell of the grid draws prompts from it
and hides labels; all estimators, weights and calibrations see the same draw. A cell is one file, so
that a grid continues where it was stopped. Letters: s seeds, c calibrations, p policies,
k estimators, f fields.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import logging
import multiprocessing
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from elo_exp.arrays import Array
from elo_exp.files import write_whole
from elo_exp.oracle.calibration import calibrate
from elo_exp.oracle.data import Dataset, Rows, Truth, changed, sample
from elo_exp.oracle.estimates import HEADLINE, Estimator, Options, analyse
from elo_exp.oracle.gates import CAUTION, REFUSE, STATUSES
from elo_exp.progress import track
from elo_exp.records import UserError
from elo_exp.types import Count

logger = logging.getLogger(__name__)

# monotone: by the score; two_stage: by oracle.covariates, too; judge: its scores for labels
Calibration = Literal["monotone", "two_stage", "judge"]
FIELDS = ("status", "value", "half_width")
_SIZES = (250, 500, 1000, 2000, 3000, 5000)  # prompts
_SEEDS = 50
_SMALL = 250  # prompts: of fewer, an eighth, a quarter, a half and all are drawn
_SMALL_SEEDS = 10
_CHUNK = 8  # cells that a process is handed at once


@dataclass(kw_only=True)
class GridSettings:
    """The axes of a grid."""

    sizes: Annotated[list[Count], Field(min_length=1)] | None
    label_shares: Annotated[
        list[Annotated[float, Field(strict=True, gt=0, le=1)]], Field(min_length=1)
    ]
    weights: Annotated[list[Literal["raw", "simcal"]], Field(min_length=1)]
    calibrations: Annotated[list[Calibration], Field(min_length=1)]
    seeds: Count | None

    def cells(self, n_prompts: int) -> list[Cell]:
        """Return the cells of a file. Raises UserError for a sample larger than that."""
        sizes, seeds = self.sizes, self.seeds
        if sizes is None:
            sizes = [size for size in _SIZES if size <= n_prompts]
            sizes = sizes or [n_prompts // n for n in (8, 4, 2, 1)]
        if max(sizes) > n_prompts:
            raise UserError(
                f"grid.sizes: found {max(sizes):,}, but the file has {n_prompts:,} prompts. "
                "Expected sizes up to that."
            )
        if seeds is None:
            seeds = _SEEDS if n_prompts >= _SMALL else _SMALL_SEEDS
        axes = itertools.product(sizes, self.label_shares, range(seeds))
        return [Cell(size=n, label_share=s, seed=seed) for n, s, seed in axes]

    def estimators(self, chosen: Mapping[str, Estimator]) -> dict[str, Estimator]:
        """Return the estimators, those that correct by weights once by each kind of weights."""
        found: dict[str, Estimator] = {}
        for name, estimator in chosen.items():
            kinds = self.weights if hasattr(estimator, "weights") else ()
            for kind in kinds:
                part = dataclasses.replace(estimator, weights=kind)  # type: ignore[type-var]
                found[f"{name} {kind}"] = part
            if not kinds:
                found[name] = estimator
        return found


@dataclass(frozen=True, kw_only=True)
class Cell:
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
            data = changed(drawn, partial(_calibrated_by, calibration))
            least = STATUSES.index(CAUTION) if calibration == "judge" else 0
            try:
                analysis = analyse(data, self.estimators, self.options)
            except UserError:  # too few labels, or all in one fold
                continue
            for row in analysis.estimates:
                at = i, policies.index(row.policy), self.names.index(row.estimator)
                found[at][0] = max(STATUSES.index(row.status), least)
                known = analysis.unfiltered.get((row.policy, row.estimator))
                if known is not None:
                    found[at][1:] = known.value, known.half_width
        return found

    def read(self) -> dict[tuple[int, float], Array]:
        """Return (s, c, p, k, f) by size and label share."""
        found: dict[tuple[int, float], list[Array]] = {}
        for cell in self.cells:
            at = cell.size, cell.label_share
            found.setdefault(at, []).append(np.load(self.folder / cell.file))
        return {at: np.stack(arrays) for at, arrays in found.items()}


def _calibrated_by(calibration: Calibration, rows: Rows) -> Rows:
    if calibration == "two_stage":
        return rows
    label = rows.score if calibration == "judge" else rows.label
    return dataclasses.replace(rows, label=label, covariates=rows.covariates[:, :0])


def _end_with_parent() -> None:
    """End this process when the one that started it is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
