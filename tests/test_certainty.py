"""The figures of how sure one may be: what is drawn is what was found, and nothing is drawn of what is not known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elo_exp import certainty
from elo_exp.experiments import Parts
from elo_exp.experiments.standings import rate
from elo_exp.planning import detectable
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.records import Battle
from elo_exp.results import Standings
from tests.data import shipped
from tests.simulation import Tournament


def standings(battles: list[Battle], tmp_path: Path) -> Standings:
    elo = shipped("elo", "default", n_perms=5)
    bradley_terry = BradleyTerry(initial_rating=1400.0, use="both", interval="sandwich", n_bootstraps=2, seed=0)
    parts = Parts(
        entrants={},
        judge=None,
        rubrics=[],
        elo=elo,
        ratings={"bradley_terry": bradley_terry},
        tracker=shipped("tracker", "local"),
        store=None,  # type: ignore[arg-type]
    )
    return rate(parts, {"factuality": battles}, models=["a", "b", "c", "d"])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Standings:
    battles = Tournament().battles(143, np.random.default_rng(5))
    return standings(battles, tmp_path_factory.mktemp("certainty"))


def test_there_are_three_figures_each_a_png_with_its_rows(found: Standings):
    plots = certainty.certainty_plots(found)
    assert [plot.name for plot in plots] == ["differences", "rank_chances", "detectable_differences"]
    assert all(plot.png.startswith(b"\x89PNG") and plot.rows for plot in plots)


def test_the_differences_drawn_are_those_that_were_found(found: Standings):
    plot = certainty.differences(found)
    assert plot is not None
    assert list(plot.rows) == [d.to_dict() for d in found.differences["bradley_terry"]]


def test_the_chances_of_every_entrant_and_of_every_rank_add_up(found: Standings):
    plot = certainty.rank_chances(found)
    assert plot is not None
    for by in ("model", "rank"):
        for value in {row[by] for row in plot.rows}:
            assert sum(row["chance"] for row in plot.rows if row[by] == value) == pytest.approx(1)


def test_the_first_column_is_the_chance_of_being_best(found: Standings):
    plot = certainty.rank_chances(found)
    assert plot is not None
    board = found.companions["bradley_terry"]["factuality"]
    first = {row["model"]: row["chance"] for row in plot.rows if row["rank"] == 1}
    assert first == {r.model: r.p_best for r in board.ratings}


def test_the_curve_passes_through_this_run(found: Standings):
    plot, (precision,) = certainty.detectable_differences(found), found.precision["bradley_terry"]
    assert plot is not None
    (here,) = [row for row in plot.rows if row["this_run"]]
    assert (here["n_prompts"], here["detectable"]) == (143, pytest.approx(precision.detectable))
    assert precision.sigma is not None
    assert here["corrected"] == pytest.approx(detectable(precision.sigma, 143, n_tests=6))


def test_nothing_is_drawn_of_a_single_prompt(tmp_path: Path):
    one = [Battle(model_a="a", model_b="b", winner=w, question_id="q") for w in ("model_a", "model_b", "model_a")]
    assert certainty.certainty_plots(standings(one, tmp_path)) == []
