"""`arena=simulated`, the default of `experiment=arena`: voters whose law is known, and so the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from elo_exp.arena import simulated
from elo_exp.data import bank
from elo_exp.entrants.probe import GradedProbe
from elo_exp.files import read_jsonl
from elo_exp.ratings.bradley_terry import POINTS, abilities
from tests.commands import Ran, attempt, run
from tests.data import BANK, shipped

TRUTH = {
    **{"plain_100": 1155, "plain_80": 1100, "plain_60": 1041, "plain_45": 992},
    **{"plain_30": 952, "plain_15": 907, "hedged_90": 1075, "hedged_70": 1026},
    **{"hedged_50": 965, "hedged_35": 917, "hedged_20": 870, "newcomer": 993},
}
ANCHORS = list(TRUTH)[:-1]


def newcomer() -> GradedProbe:
    return shipped("entrant", "newcomer", bank_path=str(BANK))


def drawn(folder: Path, seed: int = 1) -> tuple[list[dict[str, str]], dict[str, float]]:
    """Votes and true ratings."""
    path = folder / "arena.jsonl"
    truth = simulated.write(path, BANK, [newcomer()], n_votes=4000, seed=seed)
    return [row for _, row in read_jsonl(path)], truth


# The law


def test_the_truth_is_no_draw(tmp_path: Path):
    truth = drawn(tmp_path)[1]
    assert {name: round(1000 + points) for name, points in truth.items()} == TRUTH
    assert drawn(tmp_path, seed=2)[1] == truth


def test_the_quadrature_is_the_mean_over_drawn_likings():
    """Over 4,000 draws of what all voters think of each answer; the error is some .005."""
    rng = np.random.default_rng(0)
    worth = rng.uniform(-0.15, 1.0, (4, 5))
    appeal = 2.2 * worth + rng.normal(0.0, 0.5, (4000, 4, 5))
    wins = special.expit(appeal[:, :, None] - appeal[:, None]).mean(axis=(0, 3))
    np.fill_diagonal(wins, 0.0)
    expected = abilities(wins)
    assert simulated.true_abilities(worth) == pytest.approx(expected, abs=0.02)


def test_votes_follow_the_truth_and_tie_at_times(tmp_path: Path):
    """Of one seed voters like some answers better than their words; 20 seeds tell."""
    rows = [row for seed in range(20) for row in drawn(tmp_path, seed)[0]]
    score = {"model_a": 1.0, "tie": 0.5, "model_b": 0.0}
    wins = np.zeros((len(ANCHORS),) * 2)
    for row in rows:
        i, j = (ANCHORS.index(row[side]) for side in ("model_a", "model_b"))
        wins[i, j] += score[row["winner"]]
        wins[j, i] += 1.0 - score[row["winner"]]
    found = 1000 + POINTS * abilities(wins)
    assert found == pytest.approx([TRUTH[name] for name in ANCHORS], abs=15)
    assert 0.25 < np.mean([row["winner"] == "tie" for row in rows]) < 0.3
    golds = {p.prompt_id: p.text for p in bank.load(BANK) if p.gold_answer}
    assert {row["question_id"]: row["prompt"] for row in rows} == golds


# The command


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run("experiment=arena", "tracker=local", folder=tmp_path_factory.mktemp("a"))


def test_alone_it_places_a_newcomer_of_known_rating(ran: Ran):
    about = ran.read("manifest.json")["arena"]
    assert (about["name"], about["n_battles"], about["n_anchors"]) == (
        "simulated",
        4000,
        11,
    )
    assert about["n_drawn"] == {"newcomer": 300}
    assert len(ran.rows("arena.jsonl")) == 4000
    true = {name: round(rating) for name, rating in ran.read("truth.json").items()}
    assert true == TRUTH


def test_its_votes_are_a_template_for_an_arena_of_ones_own(ran: Ran):
    """Read from the file, the newcomer is placed as it was, and asks for no new verdict."""
    read = (f"arena.path={ran.run_dir}/arena.jsonl", "arena.n_battles=300")
    again = run(
        *("experiment=arena", "arena=file", *read, "entrant=[newcomer]"),
        *("tracker=local", "figures=false"),
        folder=ran.folder,
    )
    assert (
        again.read("elo_ratings.json")["ratings"]
        == ran.read("elo_ratings.json")["ratings"]
    )
    assert (
        "1,184 queries (1,184 distinct): 0 new from lexical, 1,184 stored" in again.err
    )


def test_ratings_of_votes_that_were_left_out_are_read_from_the_run(ran: Ran):
    short = run(
        *("experiment=arena", "arena.inline_human=false", "tracker=local"),
        "figures=false",
        folder=ran.folder,
    )
    rated = run(
        *("experiment=rate", f"battles={short.run_dir}/battles.jsonl"),
        *(f"ratings_from={short.run_dir}", "tracker=local", "figures=false"),
        folder=ran.folder,
    )
    assert len(short.rows("battles.jsonl")) == 300
    assert "plain_100" in rated.out


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["arena.path=a.jsonl"], "Choose arena=file to read others"),
        (["arena=file"], "Set arena.path=FILE and 'entrant=[mine]'."),
        (["arena=file", "arena.path=a.jsonl"], "arena file. Set 'entrant=[mine]'."),
    ],
)
def test_other_arenas_have_no_default_entrant(
    overrides: Sequence[str], words: str, tmp_path: Path
):
    for plan in ((), ("plan=true",)):
        refused = attempt("experiment=arena", *overrides, *plan, folder=tmp_path)
        assert (refused.code, refused.out) == (2, "")
        assert words in refused.err
