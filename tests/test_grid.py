"""`oracle.grid=true`: the numbers of an ordinary run, scored by hand, and continued after a kill."""

from __future__ import annotations

import csv
import dataclasses
import math
import time
from pathlib import Path

import numpy as np
import pytest

from elo_exp.errors import UserError
from elo_exp.oracle.data import Dataset, Truth, read_dataset, split_truth_from_labels
from elo_exp.oracle.estimates import analyse
from elo_exp.oracle.grid import (
    ALL,
    RESULT_FIELDS,
    Grid,
    GridCell,
    GridSettings,
    score_grid,
)
from tests.commands import Ran, attempt, run, start
from tests.oracle_simulation import OPTIONS, World, estimators, several, write

SHIFTS = {"near": 0.2, "far": -1.0}
AXES = GridSettings(
    sizes=[100, 200],
    label_shares=[0.02, 0.5],
    weights=["raw", "simcal"],
    calibrations=["monotone", "judge"],
    seeds=2,
)


def labelled(n: int = 400) -> Dataset:
    """All answers of all policies have a label."""
    worlds = {
        name: World(n=n, shift=shift, style=0.1, labelled=1.0, n_own=n)
        for name, shift in SHIFTS.items()
    }
    return several(3, **worlds)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(labelled(), tmp_path_factory.mktemp("labelled"))


def read(folder: Path) -> Dataset:
    return read_dataset(folder / "logged.jsonl", fresh_dir=folder / "fresh", seed=42)


def grid_of(folder: Path, cells: Path) -> Grid:
    data, truth = split_truth_from_labels(read(folder))
    return Grid(
        data=data,
        truth=truth,
        estimators=AXES.expand_estimators(estimators()),
        calibrations=AXES.calibrations,
        options=OPTIONS,
        cells=AXES.make_cells(len(data.prompts)),
        folder=cells,
    )


def test_truth_is_the_mean_label_by_prompt_and_enters_no_estimate():
    data = labelled(4)
    rows = dataclasses.replace(
        data.fresh_draws["near"],
        prompt=np.array([0, 0, 0, 2]),
        question=np.array([0, 0, 0, 2]),
        label=np.array([0.1, 0.2, 0.3, 0.8]),
    )
    data = dataclasses.replace(data, policies=("near",), fresh_draws={"near": rows})
    without, truth = split_truth_from_labels(data)
    assert truth["near"].mean == pytest.approx(0.5)
    assert np.isnan(without.fresh_draws["near"].label).all()
    rows.label[1] = math.nan
    words = "1 of 4 draws of near have no oracle_label"
    with pytest.raises(UserError, match=words):
        split_truth_from_labels(
            dataclasses.replace(data, fresh_draws={"near": rows[:]})
        )


@pytest.mark.system
def test_a_cell_has_the_numbers_of_an_ordinary_run(folder: Path, tmp_path: Path):
    """The draw written to files, read again and analysed, each estimator on its own."""
    grid = grid_of(folder, tmp_path)
    cell = GridCell(size=200, label_share=0.5, seed=1)
    again = read(write(cell.draw(grid.data), tmp_path / "drawn"))
    assert (len(again.prompts), again.logged_rows.is_labelled.sum()) == (200, 100)
    found, by_judge = grid.estimate(cell)
    for label, part in grid.estimators.items():
        alone = analyse(again, {label: part}, OPTIONS).estimates_by_policy
        assert len(alone) == 2 * 2  # the headline, too
        for (policy, name), estimate in alone.items():
            cells = found[
                grid.data.policies.index(policy), grid.estimator_names.index(name)
            ]
            expected = np.array([estimate.value, estimate.half_width])
            assert cells[1:] == pytest.approx(expected, abs=1e-9)
    means = [again.fresh_draws[policy].score.mean() for policy in SHIFTS]
    assert by_judge[:, grid.estimator_names.index("direct"), 1] == pytest.approx(means)


def test_a_cell_with_too_few_labels_is_refused_whole(folder: Path, tmp_path: Path):
    found = grid_of(folder, tmp_path).estimate(
        GridCell(size=100, label_share=0.02, seed=0)
    )
    assert (found[0, :, :, 0] == 2).all() and np.isnan(found[0, :, :, 1:]).all()
    assert 1 in found[1, :, :, 0]  # the judge's scores need none
    assert (found[1, :, :, 0] > 0).all()  # and are given with caution


def test_scores_by_hand(folder: Path, tmp_path: Path):
    """Two draws: one policy is refused once, and enters no mean.

    Of more than half of the file no interval is scored.
    """
    cells = [GridCell(size=200, label_share=0.5, seed=seed) for seed in (0, 1)]
    grid = dataclasses.replace(
        grid_of(folder, tmp_path),
        truth={"near": Truth(mean=0.6), "far": Truth(mean=0.4)},
        estimators={},
        calibrations=["monotone"],
        cells=cells,
    )
    draws = [
        [(0, 0.7, 0.05), (0, 0.4, 0.1)],
        [(1, 0.55, 0.1), (2, 0.9, 0.2)],
    ]
    for cell, (near, far) in zip(cells, draws, strict=True):
        values = np.array([[[near], [far]]])
        assert values.shape == (1, 2, 1, len(RESULT_FIELDS))
        np.save(tmp_path / cell.file, values)
    rows = {(row["policy"], row["status"]): row for row in score_grid(grid)}
    given = rows[ALL, "given"]
    assert (given["n"], given["n_draws"], given["share"]) == (3, 2, 0.75)
    assert given["bias"] == pytest.approx((0.1 + 0.0 - 0.05) / 3)
    assert given["rmse"] == pytest.approx(math.sqrt((0.01 + 0.0025) / 3))
    assert given["mae"] == pytest.approx(0.05)
    assert given["coverage"] == pytest.approx(2 / 3)
    assert given["interval_score"] == pytest.approx((0.1 + 40 * 0.05 + 0.2 + 0.2) / 3)
    names = ("pairwise_accuracy", "kendall_tau", "top_1")
    assert [given[name] for name in names] == [1, 1, 1]
    refused = rows["far", "refuse"]
    assert (refused["n"], refused["share"]) == (1, 0.5)
    assert refused["rmse"] == pytest.approx(0.5)
    assert rows["near", "caution"]["bias"] == pytest.approx(-0.05)
    assert ("near", "refuse") not in rows
    large = cells[0]._replace(size=201)
    np.save(tmp_path / large.file, np.load(tmp_path / cells[0].file))
    first = score_grid(dataclasses.replace(grid, cells=[large]))[0]
    assert (first["rmse"] > 0, first["coverage"]) == (True, None)


# The command

GRID = ("experiment=oracle", "oracle.grid=true", "tracker=local")
FEW = (
    "grid.sizes=[46]",
    "grid.label_shares=[0.25,1.0]",
    "grid.seeds=10",
    "figures=false",
)


@pytest.fixture(scope="module")
def ran(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    recorded = (
        f"oracle.logged={folder}/logged.jsonl",
        f"oracle.fresh_dir={folder}/fresh",
    )
    axes = ("grid.sizes=[100,200]", "grid.label_shares=[0.25,1.0]", "grid.seeds=3")
    return run(*GRID, *recorded, *axes, folder=tmp_path_factory.mktemp("ran"))


@pytest.mark.system
def test_a_grid_answers_its_question_and_draws_its_figures(ran: Ran):
    page = ran.page
    sentence = ran.out.splitlines()[1]
    assert sentence.startswith("Each sample has 200 prompts, with 25% to 100% of the ")
    assert sentence in page.said
    names = ("rmse", "coverage", "interval_score", "refused", "pairwise_accuracy")
    for name in names:
        assert (ran.run_dir / "figures" / f"grid_{name}.png").exists(), name
    found = ran.read("grid.json")
    assert list(found["truth"]) == list(SHIFTS)
    drawn = [f"fresh_dir/{name}_responses.jsonl" for name in ("far", "near")]
    assert list(found["files"]) == ["logged", *drawn]


@pytest.mark.slow
def test_a_killed_grid_continues_to_the_same_bytes(tmp_path: Path):
    whole = run(*GRID, *FEW, folder=tmp_path / "whole", anew=True)
    killed = start(*GRID, *FEW, folder=tmp_path / "killed")
    cells = tmp_path / "killed" / "outputs" / "cache" / "grid"
    while len(list(cells.glob("*/*.npy"))) < 4:
        assert killed.poll() is None
        time.sleep(0.02)
    killed.kill()
    killed.communicate()
    n_done = len(list(cells.glob("*/*.npy")))
    again = run(*GRID, *FEW, folder=tmp_path / "killed", anew=True)
    assert (
        f"20 samples, {n_done} of them from an earlier run" in again.err or n_done == 20
    )
    first, second = ((r.run_dir / "grid.csv").read_bytes() for r in (whole, again))
    assert first == second
    rows = list(csv.DictReader(first.decode().splitlines()))
    assert {row["policy"] for row in rows} > {"clone", "shrug"}


@pytest.mark.system
def test_a_grid_needs_every_label(tmp_path: Path):
    write(several(3, near=World(n=20, labelled=0.5, n_own=20)), tmp_path)
    files = ("oracle.logged=logged.jsonl", "oracle.fresh_dir=fresh")
    ran = attempt(*GRID, *files, folder=tmp_path)
    assert ran.code == 2
    assert (
        "oracle.grid=true needs a label for each answer; 10 of 20 logged answers have no oracle_label."
        in ran.err
    )
    write(labelled(20), tmp_path)
    ran = attempt(*GRID, *files, "grid.sizes=[500]", folder=tmp_path)
    assert (
        "grid.sizes must be at most 20, the number of prompts in the file; got 500."
        in ran.err
    )
