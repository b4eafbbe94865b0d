"""Elo's convergence as predicted, held against Elo that is played."""

import numpy as np
import pytest

from elo_exp.analysis.convergence import Convergence, convergence
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import POINTS, abilities
from elo_exp.ratings.elo import PermutationElo
from elo_exp.records import Battle

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


def played(wins: Array, k: float) -> Array:
    """Mean Elo (m,) over 300 permutations, from zero."""
    elo = PermutationElo(
        k=k, n_perms=300, k_sweep=[k], seed=1, initial_rating=0.0, ties="drop",
        shuffle=True, n_bootstraps=0, perms_per_bootstrap=1,
    )  # fmt: skip
    rows = [
        Battle(model_a=NAMES[i], model_b=NAMES[j], winner="model_a")
        for i, j in zip(*np.nonzero(wins), strict=True)
        for _ in range(int(wins[i, j]))
    ]
    return elo.rate({"": Battles.from_rows(rows)})[""].rating


def found(wins: Array, k: float) -> Convergence:
    result = convergence(wins, NAMES[: len(wins)], k=k, dimension="d")
    assert result is not None
    return result


@pytest.mark.parametrize("k", [4.0, 16.0, 32.0])
@pytest.mark.parametrize("design", DESIGNS)
def test_the_prediction_is_what_is_played(design: str, k: float):
    wins = DESIGNS[design]
    limit, mean = POINTS * abilities(wins), played(wins, k)
    first, last = limit.argmax(), limit.argmin()
    said = found(wins, k)
    spread = (mean[first] - mean[last]) / (limit[first] - limit[last])
    assert said.spread == pytest.approx(spread, abs=0.05)
    slowest = NAMES.index(said.slowest)
    assert said.slowest_share == pytest.approx(mean[slowest] / limit[slowest], abs=0.08)


def test_a_larger_k_goes_further_and_the_sufficient_one_suffices():
    wins = DESIGNS["round robin"]
    shares = [found(wins, k).slowest_share for k in (1.0, 4.0, 16.0, 64.0)]
    assert shares == sorted(shares)
    enough = found(wins, 16.0).sufficient_k
    assert enough is not None
    assert found(wins, enough).slowest_share == pytest.approx(0.95, abs=0.01)
    assert found(wins / 5, 16.0).sufficient_k is None  # too few battles for Elo


@pytest.mark.parametrize(
    "wins",
    [
        np.zeros((0, 0)),
        np.array([[0.0, 5.0], [0.0, 0.0]]),
        np.array([[0.0, 5], [5, 0]]),
    ],
    ids=["nobody", "unbeaten", "level"],
)
def test_without_a_finite_gap_there_is_no_way_to_go(wins: Array):
    assert convergence(wins, NAMES[: len(wins)], k=16.0, dimension="d") is None
