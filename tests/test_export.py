"""A run exported for other programs: what they read gives the ratings of the run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.experiments import export
from elo_exp.files import read_jsonl, write_jsonl
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from tests.commands import Ran, attempt, run
from tests.standings import tournament

QUICK = ("tracker=local", "figures=false", "elo.n_perms=2")


def ratings(ran: Ran, *names: str) -> list[Any]:
    found = ran.read("ratings.json")["dimensions"]
    rows = found["overall"]["bradley_terry"]["ratings"]
    return [row[name] for row in rows for name in names]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Path]:
    folder = tmp_path_factory.mktemp("export")
    battles = tournament(3, 30)
    path = write_jsonl(folder / "battles.jsonl", [b.to_dict() for b in battles])
    rated = run("experiment=rate", f"battles={path}", *QUICK, folder=folder)
    to = run(
        "experiment=export", f"folder={rated.run_dir}", "tracker=local", folder=folder
    )
    assert to.err.startswith(f"export: verdicts of {rated.run_dir}\n")
    return rated, to.run_dir / "overall"


@pytest.mark.system
def test_our_reader_finds_the_same_ratings_in_the_csv(exported):
    rated, to = exported
    csv = f"battles={to / 'evalica.csv'}"
    again = run("experiment=rate", csv, *QUICK, folder=to)
    assert "evalica.csv: read as evalica" in again.out + again.err
    names = ("rating", "std_error")
    assert ratings(again, *names) == pytest.approx(ratings(rated, *names), rel=1e-9)


def test_evalica_finds_the_same_gaps(exported):
    evalica = pytest.importorskip("evalica")
    rated, to = exported
    _, *rows = [line.split(",") for line in (to / "evalica.csv").read_text().split()]
    left, right, winner = zip(*(row[:3] for row in rows), strict=True)
    won = {"left": "X", "right": "Y", "tie": "Draw"}
    outcomes = [getattr(evalica.Winner, won[word]) for word in winner]
    found = evalica.bradley_terry(left, right, outcomes, tolerance=1e-12).scores
    gaps = -np.diff(POINTS_PER_LOG_ODDS * np.log(found.sort_values(ascending=False)))
    assert gaps == pytest.approx(-np.diff(ratings(rated, "rating")), abs=1e-4)


def test_inspect_gets_each_entrants_share_of_the_verdicts_on_a_prompt(
    exported,
):
    _, to = exported
    files = (to / f"inspect_{model}.jsonl" for model in "abc")
    lines = [[row for _, row in read_jsonl(file)] for file in files]
    for rows in zip(*lines, strict=True):  # as precomputed_scores reads them
        assert len({row["id"] for row in rows}) == 1
        assert sum(row["value"] for row in rows) == pytest.approx(1.5)
    assert len(lines[0]) == 30


def test_counts_are_rows_for_evalica_and_names_stay_as_they_are(tmp_path):
    """A spreadsheet would take the name for a formula; evalica would take an apostrophe for a part of the name."""
    row = {"model_a": "@cf/meta/llama", "model_b": "b", "question_id": "1"}
    counts = {"model_a": 3, "model_b": 1}
    rows = [{**row, "winner": won, "count": n} for won, n in counts.items()]
    path = write_jsonl(tmp_path / "battles.jsonl", rows)
    rated = run("experiment=rate", f"battles={path}", *QUICK, folder=tmp_path)
    command = ("experiment=export", f"folder={rated.run_dir}", "tracker=local")
    to = run(*command, folder=tmp_path).run_dir / "overall"
    _, *lines = (to / "evalica.csv").read_text().splitlines()
    assert [line.split(",")[:3] for line in lines] == [
        *[["@cf/meta/llama", "b", "left"]] * 3,
        ["@cf/meta/llama", "b", "right"],
    ]
    ((_, share),) = read_jsonl(to / "inspect_b.jsonl")
    assert share["value"] == 0.25


def test_counts_that_no_file_holds_are_refused_before_anything_is_written(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(export, "MAX_EVALICA_ROWS", 3)
    row = {"model_a": "a", "model_b": "b", "winner": "model_a", "question_id": "1"}
    path = write_jsonl(tmp_path / "battles.jsonl", [{**row, "count": 4}])
    rated = run("experiment=rate", f"battles={path}", *QUICK, folder=tmp_path)
    command = ("experiment=export", f"folder={rated.run_dir}", "tracker=local")
    failed = attempt(*command, folder=tmp_path)
    assert failed.code == 2
    assert "has 4 verdicts on " in failed.err
    assert "an evalica file takes at most 3." in failed.err
    assert not [*tmp_path.rglob("evalica.csv")]
