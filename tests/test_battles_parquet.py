"""battles.parquet, which a run of many battles writes in place of battles.jsonl: the same rows, read wherever those are."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elo_exp
from elo_exp.data import battle_columns, battle_files
from elo_exp.data.battle_clusters import UNNAMED_CLUSTER
from elo_exp.data.battles import Battles
from elo_exp.data.formats.battle_rows import FLAT
from elo_exp.files import read_json
from elo_exp.records import Battle
from elo_exp.report import artifacts
from elo_exp.runs.reading import read_runs
from tests.commands import run
from tests.data import write_table

ODD = (None, "=1+1", "a'b\"c", "é 漢", "null", "7", "a\nb", "\0", "x" * 300)


def odd_battles(dimension: str, n: int = 400, **columns: Any) -> Battles:
    """With names that SQL, a spreadsheet or JSON would take for something else, in no order."""
    rng = np.random.default_rng(1)
    rows = []
    for number in range(n):
        first, second = rng.choice(150, 2, replace=False)
        winner = ("model_a", "model_b", "tie", "tie (bothbad)")[rng.integers(4)]
        verdict = (None, "model_a", "model_b", "tie")[rng.integers(4)]
        row = Battle(
            model_a=f"m'{first}",
            model_b=f'm"{second};--',
            winner=winner,
            question_id=[*ODD, f"q{rng.integers(300)}"][rng.integers(10)],
            dimension=dimension,
            verdict_ab=None if number % 2 else verdict,
            equal_answers=bool(rng.integers(2)),
        )
        own = {name: make(number, row) for name, make in columns.items()}
        rows.append(dataclasses.replace(row, **own))
    return Battles.from_rows(rows)


def read(path: Path) -> list[Battle]:
    columns = {name: name for name in battle_columns.FIELDS}
    return battle_files.read(path, columns=columns, filters={}, chosen=FLAT)[0].rows()


def test_its_rows_are_those_of_jsonl_in_their_order(tmp_path: Path):
    """Of several dimensions, with columns that only one has, in a folder whose name means something to SQL."""
    shares = {"model_a": 0.75, "model_b": 0.1}
    battles = [
        odd_battles("x'", score=lambda _, row: shares.get(row.winner, 0.5)),
        odd_battles(
            "y",
            score=lambda n, row: None if n % 3 else shares.get(row.winner, 0.5),
            style_a=lambda n, _: (n, 0, 1, 2) if n % 3 else None,
        ),
    ]
    folder = tmp_path / "it's [a]*?"
    written, text = (
        artifacts.write_battles(folder, battles, kind) for kind in ("parquet", "jsonl")
    )
    assert {*folder.iterdir()} == {written, text}
    expected = [  # those without a question among others are one observation
        row if row.question_id else dataclasses.replace(row, cluster=UNNAMED_CLUSTER)
        for some in battles
        for row in some.rows()
    ]
    assert read(written) == read(text) == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same battles, rated as few and as many, and what the latter wrote rated again."""
    folder = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(0)
    winners = rng.choice(["model_a", "model_b", "tie"], 300)
    rows = [
        {
            "model_a": "abcd"[i % 4],
            "model_b": "abcd"[(i + 1 + i // 4 % 3) % 4],
            "winner": str(winner),
            "question_id": f"q{i % 60}",
            "dimension": "xy"[i % 2],
        }
        for i, winner in enumerate(winners)
    ]
    write_table(folder / "battles.csv", rows)
    quick = ("tracker=local", "figures=false", "elo.n_perms=5", "elo.n_bootstraps=0")
    run("battles.csv", *quick, "hydra.run.dir=few", folder=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifacts, "_MAX_JSONL_ROWS", 299)
        run("battles.csv", *quick, "hydra.run.dir=many", folder=folder)
    run("many/battles.parquet", *quick, "hydra.run.dir=again", folder=folder)
    given = ("experiment=compare", "runs=[few,many,again]", "hydra.run.dir=compared")
    run(*given, *quick[:2], folder=folder)
    return folder


@pytest.mark.system
def test_a_run_of_many_battles_writes_it_and_no_jsonl(folder: Path):
    files = read_json(folder / "many/manifest.json")["files"]
    assert "battles.parquet" in files
    assert not (folder / "many/battles.jsonl").exists()
    assert not (folder / "few/battles.parquet").exists()


@pytest.mark.system
def test_rated_again_it_gives_the_same_ratings(folder: Path):
    few, many, again = (
        read_json(folder / name / "ratings.json") for name in ("few", "many", "again")
    )
    assert few == many
    for dimension in "xy":
        before, after = (
            found["dimensions"][dimension]["bradley_terry"] for found in (many, again)
        )
        assert before == after


def test_compare_export_and_python_read_it_as_they_read_jsonl(folder: Path):
    overlaps = read_json(folder / "compared/compare.json")["overlaps"]
    assert {row["verdicts"] for row in overlaps} == {"same"}
    assert {row["no_interval"] for row in overlaps} == {None}
    few, many = (elo_exp.open_run(folder / name) for name in ("few", "many"))
    assert many.battles == few.battles
    assert many.read("battles.parquet") == few.read("battles.jsonl")
    (first, second), _ = read_runs([str(folder / "few"), str(folder / "many")])
    assert {d: b.rows() for d, b in first.battles().items()} == {
        d: b.rows() for d, b in second.battles().items()
    }
