"""Standings of many models: ratings.json stays small, and differences.csv has every pair."""

from __future__ import annotations

import csv
import random
from itertools import pairwise
from pathlib import Path

import pytest

from elo_exp.analysis.standings import Standings
from elo_exp.records import Battle
from elo_exp.report import artifacts
from tests.standings import standings, tournament


@pytest.fixture(scope="module")
def many() -> Standings:
    """61 models in 2,440 battles, of which the first named wins a little more."""
    draw = random.Random(1)
    rows = []
    for k in range(61 * 40):
        first, second = sorted(draw.sample(range(61), 2))
        wins = k % 10 == 0 or draw.random() < 0.5
        rows.append(
            Battle(
                model_a=f"m{first}",
                model_b=f"m{second}",
                winner="model_a" if wins else "model_b",
                question_id=f"q{k % 50}",
            )
        )
    return standings({"d": rows})


@pytest.mark.system
def test_of_many_models_neighbours_in_rank_are_in_json_and_every_pair_in_a_csv(
    many: Standings, tmp_path: Path
):
    found, every = artifacts.ratings_json(many), many.differences["bradley_terry"]
    ratings = found["dimensions"]["d"]["bradley_terry"]["ratings"]
    neighbours = list(pairwise(row["model"] for row in ratings))
    shown = found["differences"]["bradley_terry"]
    assert [(d["higher"], d["lower"]) for d in shown] == neighbours
    n_significant = sum(bool(d.significant) for d in every)
    counts = {"pairs": 61 * 60 / 2, "significant": n_significant}
    assert found["n_differences"] == {"bradley_terry": {"d": counts}}
    assert all(abs(row["z"]) > 3 for row in found["judge"]["d"]["pair_residuals"])
    files = {path.name: path for path in artifacts.write_standings(tmp_path, many)}
    rows = list(csv.DictReader(files["differences.csv"].read_text().splitlines()))
    pairs = [(d.higher, d.lower, d.p_holm) for d in every]
    assert [(r["higher"], r["lower"], float(r["p_holm"])) for r in rows] == pairs


def test_of_few_models_all_pairs_are_in_ratings_json(tmp_path: Path):
    few = standings({"d": tournament(n_models=4, n_prompts=20)})
    found = artifacts.ratings_json(few)
    assert len(found["differences"]["bradley_terry"]) == 6
    assert len(found["judge"]["d"]["pair_residuals"]) == 6
    names = {path.name for path in artifacts.write_standings(tmp_path, few)}
    assert "differences.csv" not in names
