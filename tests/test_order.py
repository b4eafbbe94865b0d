"""What K and the number of orders move, and what a dimension comes to: the numbers by which jobs of a sweep compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from elo_exp.analysis.elo_order_effects import (
    NUMBERS,
    measure_order_effects,
    scatter_over_error,
)
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.tracked_results import (
    AVERAGED_NUMBERS,
    average_dimensions,
    sum_up_dimension,
)
from elo_exp.analysis.tracked_results import NUMBERS as OF_A_RESULT
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.convergence import Convergence, Progress
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle
from elo_exp.report import artifacts
from tests.standings import standings, tournament

SAMPLES = [[1520.0, 1480.0, 1300.0], [1440.0, 1460.0, 1300.0]]
LIMIT = {"ann": 1530.0, "bob": 1470.0, "cat": 1200.0}
AT = Progress(convergence=0.6, slowest="cat", slowest_share=0.5)


def board(ratings: Mapping[str, float], **more: Any) -> Leaderboard:
    return Leaderboard(
        label="Bradley-Terry", interval=None, models=tuple(ratings),
        rating=np.array([*ratings.values()]), **more,
    )  # fmt: skip


def by_elo(samples: Any = SAMPLES, **more: Any) -> Leaderboard:
    played: Array = np.array(samples)
    error = np.full(played.shape[1], 3.0)
    names = dict(zip(["ann", "bob", "cat"], played.mean(axis=0), strict=True))
    return board(names, samples=played, ordering_error=error, **more)


def of(
    elo: Leaderboard | None,
    primary: Leaderboard | None,
    way: Convergence = Convergence(limit=LIMIT, by_k={16.0: AT}),  # noqa: B008 (frozen)
) -> dict[str, float]:
    return measure_order_effects(
        Standings(
            models=("ann", "bob", "cat"),
            battles={"d": Battles.from_rows([])},
            k=16.0,
            convergence={"d": way},
            boards={
                "elo": {"d": elo} if elo else {},
                **({"bradley_terry": {"d": primary}} if primary else {}),
            },
        ),
        "d",
    )


RATED = board({"ann": 1550.0, "bob": 1450.0, "cat": 1200.0})


def test_an_example_by_hand():
    """Of two orders the second ranks bob before ann; means are 1480, 1470, 1300."""
    found = of(by_elo(), RATED)
    distance = ((50**2 + 0**2 + 100**2) / 3) ** 0.5
    assert found == {
        "gap": 10.0, "convergence": 0.6, "slowest": 0.5, "mc_error": 3.0,
        "distance": pytest.approx(distance), "swaps": 0.0, "one_order_wrong": 0.5,
    }  # fmt: skip
    assert tuple(found) == NUMBERS


def test_the_pair_is_that_of_the_rating_that_leads_also_where_elo_swaps_it():
    found = of(by_elo(), board({"ann": 1450.0, "bob": 1550.0, "cat": 1200.0}))
    assert (found["gap"], found["swaps"]) == (-10.0, 1.0)


def test_equals_are_ranked_otherwise_by_no_order_and_have_no_gap():
    found = of(by_elo(), board({"ann": 1500.0, "bob": 1500.0, "cat": 1200.0}))
    assert (found["swaps"], found["one_order_wrong"]) == (0.0, 0.0)
    assert "gap" not in found
    level = of(by_elo(), board(dict.fromkeys(LIMIT, 1400.0)))
    assert "one_order_wrong" not in level


WITHOUT = [
    ("mc_error", of(by_elo(SAMPLES[:1]), RATED)),  # of one order it is not known
    ("swaps", of(by_elo(), None)),  # of Elo from itself
    ("distance", of(by_elo(), RATED, Convergence(limit={}))),
    ("convergence", of(by_elo(), RATED, Convergence(limit=LIMIT))),  # too close
    ("gap", of(by_elo(flags={0: "no match"}), RATED)),  # ann has no Elo
]


@pytest.mark.parametrize(("name", "numbers"), WITHOUT)
def test_what_is_not_defined_is_absent_and_the_others_are_there(
    name: str, numbers: dict[str, float]
):
    assert name not in numbers
    assert {"one_order_wrong"} <= numbers.keys() < set(NUMBERS)
    assert not any(np.isnan(value) for value in numbers.values())


def test_there_are_none_without_elo_or_with_one_entrant():
    assert of(None, RATED) == {}
    assert of(by_elo(flags={0: "no match", 1: "no match"}), RATED) == {}


def test_means_are_over_the_dimensions_that_have_a_number():
    assert average_dimensions(
        {"a": {"gap": 10.0, "swaps": 2.0}, "b": {"gap": 20.0}, "c": {}}
    ) == {
        "gap": 15.0,
        "swaps": 2.0,
    }


def test_seeds_without_another_or_of_one_order_have_no_scatter():
    two = np.array([[1399.0, 1401.0], [1401.0, 1399.0]])
    assert scatter_over_error(two[:1], np.ones((1, 2))) is None
    assert scatter_over_error(two, np.zeros((2, 2))) is None


# Of battles

UNBEATEN = [
    Battle(model_a=a, model_b=b, winner="model_a" if q % 4 < won else "model_b", question_id=f"q{q}")
    for q in range(24)
    for a, b, won in (("a", "b", 4), ("a", "c", 4), ("b", "c", 3))
]  # fmt: skip


@pytest.fixture(scope="module")
def rated() -> Standings:
    return standings({"d": tournament(n_prompts=30), "e": UNBEATEN}, n_perms=10)


def test_a_result_has_the_lead_of_the_leaderboard(rated: Standings):
    found, pairs = sum_up_dimension(rated, "d"), rated.pairs("d")
    first, second, *_ = rated.boards["bradley_terry"]["d"].ratings
    (lead,) = (p for p in pairs if {p.higher, p.lower} == {first.model, second.model})
    assert first.rating is not None
    assert second.rating is not None
    assert found["gap"] == pytest.approx(first.rating - second.rating)
    assert [found[n] for n in ("gap_se", "gap_low", "gap_high", "p_holm")] == [
        lead.std_error, lead.ci_low, lead.ci_high, lead.p_holm,
    ]  # fmt: skip
    assert found["separated"] == sum(bool(pair.significant) for pair in pairs)
    assert (found["prompts"], found["battles"]) == (30, 6 * 30)
    assert found["ties"] == sum(b.winner == "tie" for b in rated.battles["d"].rows())
    assert tuple(found) == OF_A_RESULT


def test_a_lead_of_one_that_took_every_point_has_a_lower_end_alone(rated: Standings):
    found = sum_up_dimension(rated, "e")
    assert not {"gap", "gap_se", "gap_high"} & found.keys()
    assert found["gap_low"] > 200
    assert found["p_holm"] < 0.001
    assert (
        not {"distance", "convergence"} & measure_order_effects(rated, "e").keys()
    )  # no limit


def test_trackers_and_ratings_json_have_the_same_numbers(rated: Standings):
    logged, stored = artifacts.list_sweep_numbers(rated), artifacts.ratings_json(rated)
    for dimension in ("d", "e"):
        own = stored["dimensions"][dimension]["elo"]["order"]
        assert own == measure_order_effects(rated, dimension)
        for name in NUMBERS:
            assert logged.get(f"order/{dimension}/{name}") == own.get(name)
        for name, value in stored["result"][dimension].items():
            assert logged[f"result/{dimension}/{name}"] == value
    assert logged["order_mean/distance"] == logged["order/d/distance"]
    assert logged["result_mean/separated"] == np.mean(
        [logged[f"result/{d}/separated"] for d in "de"]
    )
    of_means = {n for n in logged if n.startswith("result_mean/")}
    assert of_means == {f"result_mean/{name}" for name in AVERAGED_NUMBERS}


def test_a_larger_k_is_nearer_to_the_limit_and_noisier(rated: Standings):
    """Two errors that pull apart, so that a sweep over K has something to compare."""
    by_k = {}
    for k in (4.0, 32.0):
        boards = {**rated.boards, "elo": {"d": rated.elo_by_k["d"][k]}}
        at_k = dataclasses.replace(rated, k=k, boards=boards)
        by_k[k] = measure_order_effects(at_k, "d")
    assert by_k[4.0]["convergence"] < by_k[32.0]["convergence"]
    assert by_k[4.0]["mc_error"] < by_k[32.0]["mc_error"]
