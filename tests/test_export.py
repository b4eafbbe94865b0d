"""A run exported for other programs: what they read gives the ratings of the run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.files import read_jsonl, write_jsonl
from elo_exp.ratings.fit import POINTS
from tests.commands import Ran, run
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
    gaps = -np.diff(POINTS * np.log(found.sort_values(ascending=False)))
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
