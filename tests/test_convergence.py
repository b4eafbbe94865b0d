"""Elo's convergence as predicted, compared with Elo that is played."""

import math

import numpy as np
import pytest

from elo_exp.arrays import Array
from elo_exp.ratings.convergence import Convergence, measure_convergence
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.records import Battle
from tests.data import by_dimension, shipped

NAMES = tuple("abcdefghi")


def outcomes(ratings: list[float], n_games: Array) -> Array:
    """Wins (m, m), as many as the ratings expect, and at least one."""
    gap = np.subtract.outer(ratings, ratings)
    won = np.round(n_games / (1 + 10 ** (-gap / 400)))
    return np.where(n_games > 0, np.clip(won, 1, n_games - 1), 0.0)


def star(m: int, n: int) -> Array:
    n_games = np.zeros((m, m))
    n_games[0, 1:] = n_games[1:, 0] = n
    return n_games


DESIGNS = {
    "round robin": outcomes([0, 60, 120, 180, 240, 300, 500], 20 * (1 - np.eye(7))),
    "star": outcomes([0, -300, -200, -100, -50, 0, 50, 100, 200], star(9, 100)),
}


def found(wins: Array, *ks: float) -> Convergence:
    return measure_convergence(wins, NAMES[: len(wins)], ks=ks, initial_rating=1400.0)


@pytest.mark.parametrize("design", DESIGNS)
def test_the_prediction_is_what_is_played(design: str):
    wins, ks = DESIGNS[design], [4.0, 16.0, 32.0]
    rows = [
        Battle(model_a=NAMES[i], model_b=NAMES[j], winner="model_a")
        for i, j in zip(*np.nonzero(wins), strict=True)
        for _ in range(int(wins[i, j]))
    ]
    battles = by_dimension({"d": rows})
    elo = shipped("elo", "default", n_perms=300, k_sweep=ks, n_bootstraps=0)
    predicted = elo.convergence(battles)["d"]
    limit = predicted.limit
    last, *_, first = sorted(limit, key=limit.__getitem__)
    for k in ks:
        mean = {r.model: r.rating for r in elo.rate_each_k(battles)["d"][k].ratings}
        at = predicted.by_k[k]
        gap = (mean[first] - mean[last]) / (limit[first] - limit[last])
        assert at.convergence == pytest.approx(gap, abs=0.05)
        gone = (mean[at.slowest] - 1400) / (limit[at.slowest] - 1400)
        assert at.slowest_share == pytest.approx(gone, abs=0.08)


def test_two_models_near_equality_close_their_gap_exponentially():
    """A match closes K / 347.4 of what is left of it, so n matches 1 - exp(-K n / 347.4)."""
    share = found(np.array([[0.0, 53.0], [47.0, 0.0]]), 2.0).by_k[2.0].convergence
    assert share == pytest.approx(
        1 - math.exp(-2.0 * 100 / (2 * POINTS_PER_LOG_ODDS)), abs=0.002
    )


def test_a_larger_k_goes_further_and_the_sufficient_one_suffices():
    wins = DESIGNS["round robin"]
    enough = found(wins, 16.0).sufficient_k
    assert enough is not None
    by_k = found(wins, 1.0, 4.0, 16.0, enough).by_k
    shares = [at.slowest_share for at in by_k.values()]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(0.95, abs=0.01)
    assert [at.is_converged for at in by_k.values()] == [False, False, False, True]
    assert found(wins / 5, 16.0).sufficient_k is None  # too few battles for Elo


@pytest.mark.parametrize(
    ("wins", "limit"),
    [
        (np.zeros((0, 0)), {}),
        (np.array([[0.0, 5.0], [0.0, 0.0]]), {}),  # unbeaten
        (np.array([[0.0, 5], [5, 0]]), {"a": 1400.0, "b": 1400.0}),
    ],
)
def test_without_a_finite_gap_there_is_no_way_to_go(
    wins: Array, limit: dict[str, float]
):
    result = found(wins, 16.0)
    assert result.limit == pytest.approx(limit)
    assert (result.by_k, result.sufficient_k) == ({}, None)
