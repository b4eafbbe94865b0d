"""Strata: the parts of the battles, and a test of heterogeneity held against its size."""

from typing import Any

import numpy as np
import pytest

from elo_exp.analysis.fitted import Fitted
from elo_exp.analysis.goodness_of_fit import by_stratum, heterogeneity
from elo_exp.data.battles import Battles
from elo_exp.records import Battle
from tests.simulation import Tournament

SIZES = {"medqa": 69, "curated": 50, "medmcqa": 24}  # as in the bank that ships
SOURCES = [source for source, n in SIZES.items() for _ in range(n)]
STRATA = {f"q{q}": source for q, source in enumerate(SOURCES)}


def battle(question: str, winner: str) -> Battle:
    return Battle(model_a="a", model_b="b", winner=winner, question_id=question)


def compare(battles: Battles) -> dict[str, Any]:
    return heterogeneity(Fitted.of(battles), STRATA, dimension="d")


def drawn(worlds: dict[str, Tournament], rng: np.random.Generator) -> Battles:
    """A world for each stratum."""
    rows, start = [], 0
    for source, n in SIZES.items():
        for row in worlds[source].battles(n, rng):
            number = start + int(str(row.question_id)[1:])
            rows.append({**row.to_dict(), "question_id": f"q{number}"})
        start += n
    return Battles.from_rows([Battle.from_dict(row) for row in rows])


def test_two_models_that_trade_places_by_hand():
    """a wins 8 of 10 prompts on one stratum, b on the other; over all, they are level.

    The strata's scores, wins less half the prompts, are 3 and -3. A prompt's score is 1/2 or -1/2,
    so the variance of their difference is 20 / 4.
    """
    won = ["model_a"] * 8 + ["model_b"] * 2
    lost = ["model_b"] * 8 + ["model_a"] * 2
    rows = [battle(f"q{q}", winner) for q, winner in enumerate(won + lost)]
    strata = {f"q{q}": "one" if q < 10 else "other" for q in range(20)}
    found = heterogeneity(Fitted.of(Battles.from_rows(rows)), strata, dimension="d")
    assert (found["strata"], found["n_prompts"]) == (["one", "other"], [10, 10])
    assert (found["df"], found["chi_square"]) == (1, pytest.approx(6**2 / (20 * 0.25)))


def test_a_model_that_wins_all_on_a_stratum_is_no_obstacle():
    rng = np.random.default_rng(2)
    ahead = Tournament(ratings=(3000.0, 0.0, 0.0))
    level = Tournament(ratings=(0.0, 0.0, 0.0))
    found = compare(drawn({"medqa": ahead, "curated": level, "medmcqa": level}, rng))
    assert (found["df"], found["p_value"]) == (4, pytest.approx(0, abs=1e-6))


def test_battles_are_split_by_the_strata_of_their_prompts():
    rows = [battle(f"q{q}", "tie") for q in (0, 1, 70, 500)]
    parts = by_stratum(Battles.from_rows(rows), STRATA)
    assert {name: len(some) for name, some in parts.items()} == {
        "medqa": 2,
        "curated": 1,
    }


@pytest.mark.parametrize(
    "rows",
    [[], [battle("q1", "model_a")], [battle("q1", "tie"), battle("q70", "tie")]],
    ids=["no battle", "one stratum", "fewer prompts than needed"],
)
def test_without_enough_prompts_there_is_no_test(rows: list[Battle]):
    assert compare(Battles.from_rows(rows))["p_value"] is None


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 4, 8])
def test_it_rejects_one_in_twenty_tournaments_whose_strata_are_alike(m: int):
    rng = np.random.default_rng(m)
    world = Tournament(ratings=tuple(np.linspace(0.0, 100.0, m)))
    p_values = [compare(world.columns(143, rng))["p_value"] for _ in range(600)]
    rejected = np.mean([p is not None and p < 0.05 for p in p_values])
    print(f"{m} entrants: {rejected:.3f} rejected at .05")
    assert 0.02 <= rejected <= 0.075
