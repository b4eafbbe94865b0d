"""Davidson's model: two models by hand, what half wins do to a gap, and evalica's Newman algorithm as second opinion.

What it shares with Rao and Kupper's stands in test_ties.py.
"""

from __future__ import annotations

import csv
import math

import evalica
import numpy as np
import pytest
from scipy import stats

from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.davidson import Davidson
from elo_exp.records import Battle
from elo_exp.statistics.likelihood import POINTS
from tests.data import shared_data

WINNER = {"model_a": evalica.Winner.X, "model_b": evalica.Winner.Y, "tie": evalica.Winner.Draw}
GOLDEN = {"left": evalica.Winner.X, "right": evalica.Winner.Y, "tie": evalica.Winner.Draw}


def rows(winners: dict[str, int]) -> list[Battle]:
    return [
        Battle(model_a="a", model_b="b", winner=winner)
        for winner, n in winners.items()
        for _ in range(n)
    ]


def rate(battles: list[Battle], initial_rating: float = 1400):
    return Davidson(initial_rating=initial_rating, use="both").rate({"d": battles})["d"]


def test_two_models_by_hand() -> None:
    """16 games of a and b. Two models can have every probability as it was seen, so the fit is exact:

                     a wins          tie                 b wins
        seen           8              6                    2
        weight        pi_a     nu sqrt(pi_a pi_b)         pi_b      pi_a / pi_b = 8 / 2, nu = 6 / sqrt(8 x 2)

    The log of the first varies by 1/8 + 1/2, that of the second by 1/6 + 1/4 (1/8 + 1/2): the delta method, with 16/15
    because a mean is estimated.
    """
    board = rate(rows({"model_a": 8, "tie": 6, "model_b": 2}))
    assert (board.label, board.interval) == ("Davidson", "independent battles")
    rating = board.rating("a")
    assert rating.rating == pytest.approx(1400 + 200 * math.log10(4))
    assert rating.std_error == pytest.approx(POINTS / 2 * math.sqrt((1 / 8 + 1 / 2) * 16 / 15))
    assert (rating.ci_low, rating.ci_high) == pytest.approx(
        stats.t.interval(0.95, 15, rating.rating, rating.std_error)
    )
    assert board.parameters == pytest.approx(
        {
            "nu": 1.5,
            "nu_std_error": 1.5 * math.sqrt((1 / 6 + (1 / 8 + 1 / 2) / 4) * 16 / 15),
            "p_tie_equal": 1.5 / (2 + 1.5),
        }
    )
    assert (board.method, board.n_matches, board.n_clusters) == ("davidson", 16, 16)


def test_ties_leave_the_gap_alone_that_half_wins_would_close() -> None:
    """Wins to defeats are 4 to 1 whatever the ties: 240.8 points. With ties as half wins 6 of them make it 137.0."""
    gaps = []
    for n_ties in (0, 6, 60):
        board = rate(rows({"model_a": 8, "tie": n_ties, "model_b": 2}))
        gaps.append(board.rating("a").rating - board.rating("b").rating)
    assert gaps == pytest.approx([400 * math.log10(4)] * 3)
    half = BradleyTerry(
        initial_rating=1400, use="both", interval="sandwich", n_bootstraps=2, seed=0
    )
    board = half.rate({"d": rows({"model_a": 8, "tie": 6, "model_b": 2})})["d"]
    assert board.rating("a").rating - board.rating("b").rating == pytest.approx(
        400 * math.log10(11 / 5)
    )


def test_in_a_perfect_cycle_nu_is_the_odds_of_a_tie_among_equals() -> None:
    cycle = [
        Battle(model_a=a, model_b=b, winner=w)
        for a, b in ("ab", "bc", "ca")
        for w in ("model_a", "tie")
    ]
    board = rate(cycle)
    assert [r.rating for r in board.ratings] == pytest.approx([1400] * 3)
    assert board.parameters["nu"] == pytest.approx(2)  # half of the games: nu / (2 + nu)


@pytest.mark.parametrize("seed", range(3))
def test_evalica_finds_the_same_with_nu_twice_its_v(seed: int) -> None:
    """Newman (2023) writes the weight of a tie as 2 v sqrt(pi_i pi_j)."""
    rng = np.random.default_rng(seed)
    battles = [
        Battle(
            model_a="abcdef"[i],
            model_b="abcdef"[j],
            winner=str(rng.choice(list(WINNER), p=[0.5, 0.2, 0.3])),
        )
        for i, j in (rng.permutation(6)[:2] for _ in range(300))
    ]
    columns = [
        [b.model_a for b in battles],
        [b.model_b for b in battles],
        [WINNER[b.winner] for b in battles],
    ]
    other = evalica.newman(*columns, tolerance=1e-13, limit=10_000)
    board = rate(battles, initial_rating=0)
    theta = np.log(other.scores[list("abcdef")].to_numpy())
    ours = np.array([board.rating(model).rating for model in "abcdef"]) / POINTS
    np.testing.assert_allclose(ours, theta - theta.mean(), atol=1e-9)
    assert board.parameters["nu"] == pytest.approx(2 * other.v, abs=1e-9)


@pytest.mark.parametrize("name", ["simple", "food", "llmfao"])
def test_it_equals_the_golden_newman_scores_up_to_their_scale(name: str) -> None:
    folder = shared_data("golden")
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        games = list(csv.DictReader(file))
    with (folder / f"{name}-golden.csv").open(encoding="utf-8") as file:
        golden = [row for row in csv.DictReader(file) if row["algorithm"] == "newman"]
    board = rate(
        [Battle(model_a=g["left"], model_b=g["right"], winner=winner(g)) for g in games],
        initial_rating=0,
    )
    logs = {row["item"]: math.log10(float(row["score"])) for row in golden}
    centre = sum(logs.values()) / len(logs)
    expected = {model: 400 * (log - centre) for model, log in logs.items()}
    assert {r.model: r.rating for r in board.ratings} == pytest.approx(expected, abs=1e-4)


def winner(row: dict[str, str]) -> str:
    return {"left": "model_a", "right": "model_b"}.get(row["winner"], row["winner"])
