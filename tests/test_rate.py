"""`experiment=rate` on real battles: the scores of another library, reproduced."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from elo_exp import battles
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.elo import PermutationElo
from elo_exp.records import Battle
from tests.data import shared_data

COLUMNS = {name: name for name in (*battles.REQUIRED, "source", "question_id", "judge_model")}


def golden(name: str) -> tuple[list[Battle], dict[str, dict[str, float]]]:
    """The battles of a golden file, in file order, and the scores by algorithm and model."""
    folder = shared_data("golden")
    columns = COLUMNS | {"model_a": "left", "model_b": "right"}
    read = battles.read(folder / f"{name}.csv", columns=columns, filters={})
    scores: dict[str, dict[str, float]] = {}
    with (folder / f"{name}-golden.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            scores.setdefault(row["algorithm"], {})[row["item"]] = float(row["score"])
    return read.battles, scores


@pytest.mark.parametrize("name", ["simple", "food", "llmfao"])
def test_elo_in_file_order_equals_the_golden_scores(name: str) -> None:
    some, scores = golden(name)
    order = {"n_perms": 1, "ties": "half", "shuffle": False}
    method = PermutationElo(
        k=4, k_sweep=[], seed=0, initial_rating=1000, n_bootstraps=0, perms_per_bootstrap=1, **order
    )
    board = method.rate({"overall": some})["overall"]
    assert {r.model: r.rating for r in board.ratings} == pytest.approx(scores["elo"], abs=1e-9)


@pytest.mark.parametrize("name", ["simple", "food", "llmfao"])
def test_bradley_terry_equals_the_golden_scores_up_to_their_scale(name: str) -> None:
    some, scores = golden(name)
    board = BradleyTerry(initial_rating=0, use="both", interval="sandwich", n_bootstraps=2, seed=0).rate(
        {"overall": some}
    )["overall"]
    logs = {model: math.log10(score) for model, score in scores["bradley_terry"].items()}
    centre = sum(logs.values()) / len(logs)
    expected = {model: 400 * (log - centre) for model, log in logs.items()}
    assert {r.model: r.rating for r in board.ratings} == pytest.approx(expected, abs=1e-4)


def test_the_crowd_of_llmfao_is_rated_as_the_golden_file_is() -> None:
    """The same 8,931 battles, once as published and once normalised among other judges."""
    published, _ = golden("llmfao")
    path: Path = shared_data("llmfao") / "battles.jsonl.gz"
    crowd = battles.read(path, columns=COLUMNS, filters={"judge_model": "crowd"})
    assert (len(crowd.battles), crowd.n_filtered) == (8931, 6472)
    method = BradleyTerry(initial_rating=1000, use="both", interval="sandwich", n_bootstraps=2, seed=0)
    ours, theirs = method.rate({"d": crowd.battles})["d"], method.rate({"d": published})["d"]
    assert {r.model: r.rating for r in ours.ratings} == pytest.approx({r.model: r.rating for r in theirs.ratings})
    json.dumps([r.to_dict() for r in ours.ratings], allow_nan=False)
