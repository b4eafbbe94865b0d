"""Rao and Kupper's model: two models by hand, its two readings, and an ordered logistic regression as second opinion.

What it shares with Davidson's stands in test_ties.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.miscmodels.ordinal_model import OrderedModel

from elo_exp.ratings.davidson import Davidson
from elo_exp.ratings.rao_kupper import RaoKupper
from elo_exp.records import Battle
from elo_exp.results import Leaderboard
from elo_exp.statistics.likelihood import POINTS, games
from tests.simulation import Tournament


def rate(battles: list[Battle]) -> Leaderboard:
    return RaoKupper(initial_rating=1400, use="both").rate({"d": battles})["d"]


def test_two_models_by_hand() -> None:
    """16 games of a and b. Two models can have every probability as it was seen, so the fit is exact:

                     a wins                  tie                b wins
        seen           8                      6                   2
        odds      pi_a / (eta pi_b) = 8 / 8           pi_b / (eta pi_a) = 2 / 14

    The product of the odds is 1 / eta^2 = 1 / 7, their ratio (pi_a / pi_b)^2 = 7.
    """
    board = rate(
        [b for winner, n in (("model_a", 8), ("tie", 6), ("model_b", 2)) for b in rows(winner, n)]
    )
    assert board.rating("a").rating == pytest.approx(1400 + 200 * math.log10(math.sqrt(7)))
    assert board.parameters["eta"] == pytest.approx(math.sqrt(7))
    assert board.parameters["p_tie_equal"] == pytest.approx((math.sqrt(7) - 1) / (math.sqrt(7) + 1))
    assert (board.method, board.n_matches, board.n_clusters) == ("rao_kupper", 16, 16)


def rows(winner: str, n: int) -> list[Battle]:
    return [Battle(model_a="a", model_b="b", winner=winner)] * n


def test_the_errors_of_two_models_by_hand() -> None:
    """Gap and log eta are half the difference and half the sum of logit(8/16) and -logit(2/16). A logit's derivative by
    its share is 1 / (s (1 - s)); the shares vary as a multinomial's, 16/15 because a mean is estimated."""
    board = rate(
        [b for winner, n in (("model_a", 8), ("tie", 6), ("model_b", 2)) for b in rows(winner, n)]
    )
    share = np.array([8, 2]) / 16
    covariance = (np.diag(share) - np.outer(share, share)) / 15
    slope = 1 / (share * (1 - share))
    by_gap, by_eta = slope * [0.5, -0.5], slope * [-0.5, -0.5]
    assert board.rating("a").std_error == pytest.approx(
        POINTS / 2 * math.sqrt(by_gap @ covariance @ by_gap)
    )
    error = math.sqrt(7) * math.sqrt(by_eta @ covariance @ by_eta)
    assert board.parameters["eta_std_error"] == pytest.approx(error)


def test_in_a_perfect_cycle_eta_is_set_by_how_often_equals_tie() -> None:
    cycle = [
        Battle(model_a=a, model_b=b, winner=w)
        for a, b in ("ab", "bc", "ca")
        for w in ("model_a", "tie")
    ]
    board = rate(cycle)
    assert [r.rating for r in board.ratings] == pytest.approx([1400] * 3)
    assert board.parameters["eta"] == pytest.approx(3)  # half of the games: (eta - 1) / (eta + 1)


def test_an_ordered_logistic_regression_finds_the_same() -> None:
    """Losing, tying and winning are three ordered outcomes of a logistic gap with thresholds -log eta and log eta.
    With every game also seen from the other side, statsmodels cannot but find thresholds that are symmetric."""
    some = Tournament().battles(60, np.random.default_rng(1))
    played = games(some, list("abcd"), use="both")
    design = np.zeros((len(played.score), 4))
    design[np.arange(len(design)), played.first] = 1
    design[np.arange(len(design)), played.second] = -1
    outcome = np.append(played.score, 1 - played.score)
    sides = np.vstack([design, -design])[:, :3]
    fit = OrderedModel((2 * outcome).astype(int), sides, distr="logit").fit(
        method="newton", disp=False
    )
    board = rate(some)
    gaps = [(board.rating(model).rating - board.rating("d").rating) / POINTS for model in "abc"]
    assert gaps == pytest.approx(fit.params[:3], abs=1e-6)
    assert math.log(board.parameters["eta"]) == pytest.approx(-fit.params[3], abs=1e-6)


def test_it_and_davidson_say_nearly_the_same_of_who_is_better() -> None:
    """They differ in how ties thin out as gaps grow; ranks and the ties of equals hardly know."""
    some = Tournament(ratings=(0, 60, 120, 300)).battles(400, np.random.default_rng(2))
    ours, other = rate(some), Davidson(initial_rating=1400, use="both").rate({"d": some})["d"]
    assert [r.model for r in ours.ratings] == [r.model for r in other.ratings] == list("dcba")
    assert ours.parameters["p_tie_equal"] == pytest.approx(
        other.parameters["p_tie_equal"], abs=0.02
    )
