"""Davidson and Rao-Kupper: by hand, the likelihood written out, second opinions, no maximum.

Each model stands beside its three probabilities as a textbook has them; statsmodels is a second
opinion. What they share with Bradley-Terry is in test_bradley_terry.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from statsmodels.tools.numdiff import approx_fprime, approx_hess

from elo_exp.data.battles import Battles
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, Fit, find_strongest_component
from elo_exp.ratings.games import Games, make_games
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.ratings.ties import Davidson, RaoKupper, TieModel, is_separated
from elo_exp.records import Battle
from tests.data import battle, by_dimension
from tests.simulation import BRADLEY_TERRY, Tournament

METHODS: dict[str, type[TieModel]] = {"davidson": Davidson, "rao_kupper": RaoKupper}
BOTH = pytest.mark.parametrize("name", METHODS)
SEEDS = st.integers(0, 10**6)
WORDS = ("model_a", "tie", "model_b")


def model(name: str, **changes: Any) -> TieModel:
    return METHODS[name](**{"initial_rating": 1400.0, "orders": "both", **changes})


def rate(name: str, battles: list[Battle], **changes: Any) -> Leaderboard:
    return model(name, **changes).rate(by_dimension({"d": battles}))["d"]


def bradley_terry(battles: list[Battle]) -> Leaderboard:
    return BRADLEY_TERRY.rate(by_dimension({"d": battles}))["d"]


def played(battles: list[Battle]) -> Games:
    return make_games(Battles.from_rows(battles), orders="both")


def sixteen(n_ties: int = 6) -> list[Battle]:
    """8 wins of a, some ties, 2 wins of b."""
    counts = zip(WORDS, (8, n_ties, 2), strict=True)
    return [battle("a", "b", winner) for winner, n in counts for _ in range(n)]


# Worked examples


def test_davidson_of_two_models_by_hand():
    """Two models can have every probability as it was seen, so the fit is exact:

                     a wins          tie                 b wins
        seen           8              6                    2
        weight        pi_a     nu sqrt(pi_a pi_b)         pi_b      pi_a / pi_b = 8 / 2, nu = 6 / sqrt(8 x 2)

    The log of the first varies by 1/8 + 1/2, that of the second by 1/6 + 1/4 (1/8 + 1/2): the delta
    method, with 16/15 because a mean is estimated. The gap is the same whatever the ties; with ties
    as half wins 6 of them make it 137.0 points.
    """
    board = rate("davidson", sixteen())
    assert board.row("a").rating == pytest.approx(1400 + 200 * math.log10(4))
    error = POINTS_PER_LOG_ODDS / 2 * math.sqrt((1 / 8 + 1 / 2) * 16 / 15)
    assert board.row("a").std_error == pytest.approx(error)
    assert board.parameters == pytest.approx(
        {
            "nu": 1.5,
            "nu_std_error": 1.5 * math.sqrt((1 / 6 + (1 / 8 + 1 / 2) / 4) * 16 / 15),
            "p_tie_equal": 1.5 / (2 + 1.5),
        }
    )
    assert (board.label, board.interval) == ("Davidson", "independent battles")
    assert (board.n_matches, board.n_clusters) == (16, 16)
    for n_ties in (0, 60):
        gap = np.ptp(rate("davidson", sixteen(n_ties)).rating)
        assert gap == pytest.approx(400 * math.log10(4))
    half = np.ptp(bradley_terry(sixteen()).rating)
    assert half == pytest.approx(400 * math.log10(11 / 5))


def test_rao_kupper_of_two_models_by_hand():
    """a wins                  tie                b wins
    seen           8                      6                   2
    odds      pi_a / (eta pi_b) = 8 / 8           pi_b / (eta pi_a) = 2 / 14

    The product of the odds is 1 / eta^2 = 1 / 7, their ratio (pi_a / pi_b)^2 = 7. Gap and log eta are
    half the difference and half the sum of logit(8/16) and -logit(2/16). A logit's derivative by its
    share is 1 / (s (1 - s)); the shares vary as a multinomial's.
    """
    board = rate("rao_kupper", sixteen())
    root = math.sqrt(7)
    share = np.array([8, 2]) / 16
    covariance = (np.diag(share) - np.outer(share, share)) / 15
    slope = 1 / (share * (1 - share))
    by_gap, by_eta = slope * [0.5, -0.5], slope * [-0.5, -0.5]
    assert board.row("a").rating == pytest.approx(1400 + 200 * math.log10(root))
    error = POINTS_PER_LOG_ODDS / 2 * math.sqrt(by_gap @ covariance @ by_gap)
    assert board.row("a").std_error == pytest.approx(error)
    assert board.parameters == pytest.approx(
        {
            "eta": root,
            "eta_std_error": root * math.sqrt(by_eta @ covariance @ by_eta),
            "p_tie_equal": (root - 1) / (root + 1),
        }
    )


# Second opinions


def davidson(pi_i: float, pi_j: float, nu: float) -> tuple[float, float, float]:
    """That i beats j, that they tie, that j beats i."""
    tie = nu * math.sqrt(pi_i * pi_j)
    total = pi_i + tie + pi_j
    return pi_i / total, tie / total, pi_j / total


def rao_kupper(pi_i: float, pi_j: float, eta: float) -> tuple[float, float, float]:
    win, loss = pi_i / (pi_i + eta * pi_j), pi_j / (pi_j + eta * pi_i)
    return win, 1 - win - loss, loss


TEXTBOOK: dict[str, Callable[[float, float, float], tuple[float, float, float]]]
TEXTBOOK = {"davidson": davidson, "rao_kupper": rao_kupper}


def log_likelihood(name: str, parameters: Sequence[float], some: Games) -> float:
    """In plain loops; the abilities without the last, which is zero, then the log tie parameter."""
    pi = [*(math.exp(theta) for theta in parameters[:-1]), 1.0]
    total = 0.0
    for i, j, score in zip(some.first, some.second, some.score, strict=True):
        outcomes = TEXTBOOK[name](pi[i], pi[j], math.exp(parameters[-1]))
        total += math.log(outcomes[{1.0: 0, 0.5: 1, 0.0: 2}[score]])
    return total


def maximum(name: str, board: Leaderboard) -> np.ndarray:
    theta = (board.rating - board.rating[-1]) / POINTS_PER_LOG_ODDS
    return np.append(theta[:-1], math.log(board.parameters[METHODS[name].symbol]))


@BOTH
def test_numerical_differentiation_has_the_same_clustered_errors(name: str):
    """The gradient is zero at the maximum; the sandwich is that of its definition: the Hessian of the
    whole and the gradient of each prompt."""
    rows = Tournament(ratings=(0, 60, 200)).battles(15, np.random.default_rng(3))
    some, board = played(rows), rate(name, rows)
    symbol, at = METHODS[name].symbol, maximum(name, board)
    whole = approx_fprime(at, lambda x: log_likelihood(name, x, some), centered=True)
    np.testing.assert_allclose(whole, 0, atol=1e-5)
    bread = np.linalg.inv(approx_hess(at, lambda x: log_likelihood(name, x, some)))
    of_prompts = [some.select(some.cluster == q) for q in range(15)]
    scores = [
        approx_fprime(
            at, lambda x, one=one: log_likelihood(name, x, one), centered=True
        )
        for one in of_prompts
    ]
    covariance = 15 / 14 * bread @ np.transpose(scores) @ np.array(scores) @ bread
    against_c = np.array([[1, 0, -1], [0, 1, -1]])
    ours = against_c @ board.covariance @ against_c.T / POINTS_PER_LOG_ODDS**2
    np.testing.assert_allclose(ours, covariance[:2, :2], rtol=2e-3)
    error = board.parameters[symbol] * math.sqrt(covariance[2, 2])
    assert board.parameters[f"{symbol}_std_error"] == pytest.approx(error, rel=2e-3)


# Ties


@BOTH
def test_without_ties_it_is_bradley_terry_and_one_tie_is_almost_none(name: str):
    rows = Tournament(ratings=(0, 60, 200)).battles(60, np.random.default_rng(5))
    decisive = [
        dataclasses.replace(b, verdict_ab=None) for b in rows if b.winner[:3] != "tie"
    ]
    board, expected = rate(name, decisive), bradley_terry(decisive)
    assert board.ratings == expected.ratings
    np.testing.assert_array_equal(board.covariance, expected.covariance)
    never = {METHODS[name].symbol: METHODS[name].min_tie_parameter, "p_tie_equal": 0}
    assert board.parameters == never
    wins = [battle("a", "b")] * 5000 + [battle("b", "a")] * 2500
    with_one = rate(name, [*wins, battle("a", "b", "tie")])
    np.testing.assert_allclose(with_one.rating, rate(name, wins).rating, atol=0.05)


@BOTH
@pytest.mark.parametrize(
    ("n_prompts", "n_seeds", "margin"),
    [
        (143, 40, 0.04),
        pytest.param(143, 200, 0.03, marks=pytest.mark.slow),
        pytest.param(50, 200, 0.03, marks=pytest.mark.slow),
    ],
)
def test_the_interval_covers_the_truth_as_often_as_it_says(
    name: str, n_prompts: int, n_seeds: int, margin: float
):
    """Of the gaps; the truth is where the ratings end on many prompts."""
    world, covered = Tournament(), []

    def fitted(n: int, *seed: int) -> Fit:
        start = Fit.from_games(world.games(n, np.random.default_rng(seed)))
        return model(name).fit(start)

    truth = fitted(200_000, 0).theta
    for seed in range(n_seeds):
        fit = fitted(n_prompts, n_prompts, seed)
        for i, j in world.pairs:
            gap = np.eye(4)[i] - np.eye(4)[j]
            error = math.sqrt(gap @ fit.covariance @ gap)
            covered.append(abs(gap @ (fit.theta - truth)) < 1.96 * error)
    assert np.mean(covered) == pytest.approx(0.95, abs=margin)


# Data without a maximum


@BOTH
def test_wins_that_no_result_contradicts_have_no_maximum(name: str):
    """a wins or ties, b loses or ties. The larger gap and tie parameter are together, the better they
    fit: to half wins and half ties, in the end. One defeat of a's makes them finite."""
    some = [battle("a", "b")] * 3 + [battle("a", "b", "tie")] * 3
    flags = [(r.model, r.rating, r.flag) for r in rate(name, some).ratings]
    assert flags == [("a", None, "unbeaten"), ("b", None, "winless")]
    ladder = [*some, battle("b", "c"), battle("b", "c", "tie")]
    assert rate(name, ladder).row("b").flag == "separated"
    assert all(r.flag is None for r in rate(name, [*some, battle("b", "a")]).ratings)
    cycle = rate(name, [battle("a", "b"), battle("b", "c"), battle("c", "a", "tie")])
    assert [r.rank for r in cycle.ratings] == [1, 2, 3]  # contradiction enough


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, m=st.integers(2, 5), n=st.integers(1, 9))
def test_linear_programming_has_the_same_data_separated(seed: int, m: int, n: int):
    """Are there numbers a_i with a_i - a_j >= 1 wherever i beat j and |a_i - a_j| <= 1 wherever they
    tied?"""
    rng = np.random.default_rng(seed)
    won, tied = np.zeros((m, m)), np.zeros((m, m))
    rows, bounds = [], []
    for _ in range(n):
        i, j = rng.permutation(m)[:2]
        gap = np.eye(m)[i] - np.eye(m)[j]
        if rng.random() < 0.6:
            won[i, j] += 1
            rows, bounds = [*rows, -gap], [*bounds, -1]
        else:
            tied[i, j] = tied[j, i] = tied[i, j] + 1
            rows, bounds = [*rows, gap, -gap], [*bounds, 1, 1]
    if (
        not won.any()
        or not tied.any()
        or not find_strongest_component(won + tied / 2).all()
    ):
        return  # ruled out before
    free = [(None, None)] * m
    program = linprog(np.zeros(m), A_ub=np.array(rows), b_ub=bounds, bounds=free)
    assert is_separated(won, tied) == (program.status == 0)
