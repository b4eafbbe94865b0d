"""Standings of many models: ratings.json stays small, and differences.csv has every pair."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from elo_exp.analysis.standings import Standings
from elo_exp.records import Battle
from elo_exp.report import artifacts
from tests.standings import standings, tournament


@pytest.fixture(scope="module")
def many() -> Standings:
    """61 models in 2,440 battles between any two."""
    rng = np.random.default_rng(1)
    rows = []
    for k in range(61 * 40):
        first, second = sorted(rng.choice(61, 2, replace=False))
        wins = k % 10 == 0 or rng.random() < 0.5
        rows.append(
            Battle(
                model_a=f"m{first}",
                model_b=f"m{second}",
                winner="model_a" if wins else "model_b",
                question_id=f"q{k % 50}",
            )
        )
    return standings({"d": rows})


def test_of_many_models_the_neighbours_in_rank_are_in_ratings_json(many: Standings):
    found = artifacts.ratings_json(many)
    ranked = [
        row["model"] for row in found["dimensions"]["d"]["bradley_terry"]["ratings"]
    ]
    shown = found["differences"]["bradley_terry"]
    assert [(d["higher"], d["lower"]) for d in shown] == list(pairwise(ranked))
    every = many.differences["bradley_terry"]
    counts = {
        "pairs": len(every),
        "significant": sum(bool(d.significant) for d in every),
    }
    assert found["n_differences"] == {"bradley_terry": {"d": counts}}
    assert counts["pairs"] == 61 * 60 / 2
    assert all(abs(row["z"]) > 3 for row in found["judge"]["d"]["pair_residuals"])


def test_of_many_models_every_pair_is_in_a_csv(many: Standings, tmp_path: Path):
    files = {path.name: path for path in artifacts.write_standings(tmp_path, many)}
    rows = list(csv.DictReader(files["differences.csv"].read_text().splitlines()))
    every = many.differences["bradley_terry"]
    assert [(row["higher"], row["lower"]) for row in rows] == [
        (d.higher, d.lower) for d in every
    ]
    assert float(rows[0]["p_holm"]) == every[0].p_holm


def test_of_few_models_all_pairs_are_in_ratings_json(tmp_path: Path):
    few = standings({"d": tournament(n_models=4, n_prompts=20)})
    found = artifacts.ratings_json(few)
    assert len(found["differences"]["bradley_terry"]) == 6
    assert len(found["judge"]["d"]["pair_residuals"]) == 6
    names = {path.name for path in artifacts.write_standings(tmp_path, few)}
    assert "differences.csv" not in names
