"""What the models with ties have in common: the likelihood written out, its laws, how sure one may be, data without a
maximum.

Davidson and Rao-Kupper each stand beside their three probabilities as a textbook has them, which scipy maximises and
numerical differentiation turns into a sandwich.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from statsmodels.tools.numdiff import approx_fprime, approx_hess

from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.davidson import Davidson, DavidsonModel
from elo_exp.ratings.rao_kupper import RaoKupper, RaoKupperModel
from elo_exp.records import Battle
from elo_exp.results import Leaderboard
from elo_exp.statistics import ties
from elo_exp.statistics.likelihood import (
    POINTS,
    Games,
    Pairs,
    bradley_terry_mle,
    games,
    strongest_component,
)
from tests.simulation import Tournament

MODELS: dict[str, ties.TieModel] = {"davidson": DavidsonModel(), "rao_kupper": RaoKupperModel()}
METHODS = {"davidson": Davidson, "rao_kupper": RaoKupper}
BOTH = pytest.mark.parametrize("name", MODELS)


def davidson(pi_i: float, pi_j: float, nu: float) -> tuple[float, float, float]:
    """That i beats j, that they tie, that j beats i."""
    tie = nu * math.sqrt(pi_i * pi_j)
    return pi_i / (pi_i + pi_j + tie), tie / (pi_i + pi_j + tie), pi_j / (pi_i + pi_j + tie)


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
        total += math.log(
            TEXTBOOK[name](pi[i], pi[j], math.exp(parameters[-1]))[{1.0: 0, 0.5: 1, 0.0: 2}[score]]
        )
    return total


def battle(a: str, b: str, winner: str = "model_a", **orders: Any) -> Battle:
    return Battle(model_a=a, model_b=b, winner=winner, **orders)


def rate(name: str, battles: list[Battle], **changes: Any) -> Leaderboard:
    return METHODS[name](**{"initial_rating": 1400, "use": "both"} | changes).rate({"d": battles})[
        "d"
    ]


def bradley_terry(battles: list[Battle]) -> Leaderboard:
    method = BradleyTerry(
        initial_rating=1400, use="both", interval="sandwich", n_bootstraps=2, seed=0
    )
    return method.rate({"d": battles})["d"]


def tournament(seed: int, n_prompts: int = 15) -> list[Battle]:
    return Tournament(ratings=(0, 60, 200)).battles(n_prompts, np.random.default_rng(seed))


# The likelihood


@BOTH
def test_the_probabilities_are_those_of_the_textbook(name: str) -> None:
    for gap, tie in itertools.product([-2.0, 0.0, 0.3], [0.2, 1.5]):
        lost, tied, won = np.exp(MODELS[name].curves(np.array([gap]), tie).value[0])
        assert (won, tied, lost) == pytest.approx(TEXTBOOK[name](math.exp(gap), 1.0, math.exp(tie)))


@BOTH
@settings(max_examples=30, deadline=None)
@given(gap=st.floats(-20, 20), tie=st.floats(0.05, 8))
def test_the_derivatives_are_derivatives(name: str, gap: float, tie: float) -> None:
    def central(of: str, *, by_gap: float = 0.0, by_tie: float = 0.0) -> np.ndarray:
        there, back = (
            MODELS[name].curves(np.array([gap + sign * by_gap]), tie + sign * by_tie)
            for sign in (1, -1)
        )
        return (getattr(there, of) - getattr(back, of)) / (2 * (by_gap + by_tie))

    curves = MODELS[name].curves(np.array([gap]), tie)
    for exact, numerical in [
        (curves.by_gap, central("value", by_gap=1e-5)),
        (curves.by_tie, central("value", by_tie=1e-5)),
        (curves.by_gap_twice, central("by_gap", by_gap=1e-5)),
        (curves.by_gap_and_tie, central("by_gap", by_tie=1e-5)),
        (curves.by_tie_twice, central("by_tie", by_tie=1e-5)),
    ]:
        np.testing.assert_allclose(exact, numerical, rtol=1e-5, atol=1e-6)


@BOTH
@pytest.mark.parametrize("share", [0.01, 0.4, 0.9])
def test_newton_starts_where_equals_tie_as_often_as_was_seen(name: str, share: float) -> None:
    equals = MODELS[name].curves(np.zeros(1), MODELS[name].start(share))
    assert math.exp(equals.value[0, 1]) == pytest.approx(share)


@BOTH
@pytest.mark.parametrize("seed", range(2))
def test_scipy_finds_the_same_maximum(name: str, seed: int) -> None:
    some = tournament(seed)
    played = games(some, list("abc"), use="both")
    found = minimize(
        lambda x: -log_likelihood(name, x, played),
        [0.0, 0.0, 0.5],
        bounds=[(None, None), (None, None), (MODELS[name].never + 0.01, None)],
        options={"ftol": 1e-15, "gtol": 1e-8},
    )
    board = rate(name, some)
    gaps = [(board.rating(model).rating - board.rating("c").rating) / POINTS for model in "ab"]
    assert gaps == pytest.approx(found.x[:2], abs=1e-5)
    assert board.parameters[MODELS[name].symbol] == pytest.approx(math.exp(found.x[2]), rel=1e-5)
    assert board.parameters["p_tie_equal"] == pytest.approx(
        TEXTBOOK[name](1.0, 1.0, math.exp(found.x[2]))[1]
    )


@BOTH
def test_numerical_differentiation_finds_the_same_clustered_errors(name: str) -> None:
    """The sandwich of its definition: the Hessian of the whole and the gradient of each prompt, both numerical."""
    some = tournament(3)
    played = games(some, list("abc"), use="both")
    board = rate(name, some)
    symbol = MODELS[name].symbol
    gaps = [(board.rating(model).rating - board.rating("c").rating) / POINTS for model in "ab"]
    at = np.array([*gaps, math.log(board.parameters[symbol])])
    bread = np.linalg.inv(approx_hess(at, lambda x: log_likelihood(name, x, played)))
    scores = []
    for q in range(15):
        mine = played.cluster == q
        columns = {
            column: getattr(played, column)[mine]
            for column in ("first", "second", "score", "cluster")
        }
        of_prompt = dataclasses.replace(played, **columns)
        scores.append(
            approx_fprime(at, lambda x, one=of_prompt: log_likelihood(name, x, one), centered=True)
        )
    covariance = 15 / 14 * bread @ np.transpose(scores) @ np.array(scores) @ bread

    against_c = np.array([[1, 0, -1], [0, 1, -1]])
    ours = against_c @ board.covariance @ against_c.T / POINTS**2
    np.testing.assert_allclose(ours, covariance[:2, :2], rtol=2e-3)
    error = board.parameters[symbol] * math.sqrt(covariance[2, 2])
    assert board.parameters[f"{symbol}_std_error"] == pytest.approx(error, rel=2e-3)


# Laws


@BOTH
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_gradient_is_zero_at_the_maximum(name: str, seed: int) -> None:
    some = connected(seed)
    fit = ties._fit(some, MODELS[name])
    at = np.array([*(fit.theta[:-1] - fit.theta[-1]), fit.tie])
    gradient = approx_fprime(at, lambda x: log_likelihood(name, x, some), centered=True)
    np.testing.assert_allclose(gradient, 0, atol=1e-5)
    assert fit.theta.mean() == pytest.approx(0, abs=1e-12)


def connected(seed: int, m: int = 5) -> Games:
    """Fifty games of any result, and a ring in which everybody has beaten the next."""
    rng = np.random.default_rng(seed)
    first = np.append(rng.integers(m, size=50), np.arange(m))
    second = np.append((first[:50] + rng.integers(1, m, size=50)) % m, (np.arange(m) + 1) % m)
    score = np.append(rng.integers(3, size=50) / 2, np.ones(m))
    score[0] = 0.5
    return Games(
        n_models=m, first=first, second=second, score=score, cluster=np.arange(50 + m) // 3
    )


@BOTH
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_exchanging_winners_and_losers_mirrors_the_ratings(name: str, seed: int) -> None:
    some = connected(seed)
    fit, mirrored = (
        ties._fit(one, MODELS[name])
        for one in (some, dataclasses.replace(some, score=1 - some.score))
    )
    np.testing.assert_allclose(mirrored.theta, -fit.theta, atol=1e-9)
    assert mirrored.tie == pytest.approx(fit.tie, abs=1e-9)
    np.testing.assert_allclose(np.diag(mirrored.covariance), np.diag(fit.covariance), atol=1e-9)


@BOTH
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_whatever_the_models_are_called_each_keeps_its_rating(name: str, seed: int) -> None:
    some = connected(seed)
    number = np.random.default_rng(seed).permutation(some.n_models)
    renamed = dataclasses.replace(some, first=number[some.first], second=number[some.second])
    fit, other = ties._fit(some, MODELS[name]), ties._fit(renamed, MODELS[name])
    np.testing.assert_allclose(other.theta[number], fit.theta, atol=1e-9)
    assert other.tie == pytest.approx(fit.tie, abs=1e-9)


@BOTH
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_it_does_not_matter_how_the_games_are_written_down(name: str, seed: int) -> None:
    """Rows in another order, and the two orders of a pair as two rows: the same ratings and errors."""
    some = tournament(seed)
    rows = [
        battle(b.model_a, b.model_b, str(verdict), question_id=b.question_id)
        for b in some
        for verdict in (b.verdict_ab, b.verdict_ba)
    ]
    random.Random(seed).shuffle(rows)
    once, again = rate(name, some), rate(name, rows)
    np.testing.assert_allclose(again.covariance, once.covariance, atol=1e-7)
    for model in "abc":
        assert again.rating(model).rating == pytest.approx(once.rating(model).rating, abs=1e-9)


@BOTH
def test_asking_the_same_again_about_the_same_prompts_makes_nobody_surer(name: str) -> None:
    once, thrice = rate(name, tournament(4)), rate(name, tournament(4) * 3)
    np.testing.assert_allclose(thrice.covariance, once.covariance, atol=1e-7)
    assert thrice.parameters == pytest.approx(once.parameters)


@BOTH
def test_without_ties_it_is_bradley_terry(name: str) -> None:
    decisive = [
        dataclasses.replace(b, verdict_ab=None) for b in tournament(5, n_prompts=60) if not b.is_tie
    ]
    board, expected = rate(name, decisive), bradley_terry(decisive)
    assert board.ratings == expected.ratings
    np.testing.assert_array_equal(board.covariance, expected.covariance)
    assert board.parameters == {MODELS[name].symbol: math.exp(MODELS[name].never), "p_tie_equal": 0}


@BOTH
def test_one_tie_among_many_wins_is_almost_none(name: str) -> None:
    """The limit is reached without a jump."""
    wins = [battle("a", "b")] * 5000 + [battle("b", "a")] * 2500
    gap = [rate(name, some).rating("a").rating for some in (wins, [*wins, battle("a", "b", "tie")])]
    assert gap[1] == pytest.approx(gap[0], abs=0.05)


# How sure


@BOTH
def test_prompts_that_do_not_differ_say_nothing_of_how_prompts_differ(name: str) -> None:
    """On every prompt the two orders tie or cancel: the models are equal, and nobody knows how surely."""
    orders = [("tie", "tie"), ("model_a", "model_b")]
    some = [battle("a", "b", "tie", verdict_ab=ab, verdict_ba=ba) for ab, ba in orders * 10]
    board = rate(name, some)
    assert [(r.rating, r.std_error, r.flag) for r in board.ratings] == [(1400, None, None)] * 2
    assert board.parameters["p_tie_equal"] == pytest.approx(0.5)


def coverage(name: str, n_tournaments: int, *, n_prompts: int) -> float:
    """The share of 95 % intervals of the gaps that cover the true one, over simulated tournaments.

    The truth is the fit to what the tournament expects: where the ratings end on many prompts.
    """
    tournament = Tournament()
    first, second = np.array(tournament.pairs).T
    expected = Pairs(
        first=first, second=second, code=np.zeros(0, dtype=int), counts=tournament.shares()
    )
    truth, _ = ties._maximum(expected, MODELS[name], np.zeros(4))
    covered = []
    for seed in range(n_tournaments):
        some = tournament.games(n_prompts, np.random.default_rng([n_prompts, seed]))
        fit = ties._fit(some, MODELS[name])
        for i, j in tournament.pairs:
            gap = np.zeros(5)
            gap[[i, j]] = 1, -1
            error = math.sqrt(gap @ fit.covariance @ gap)
            covered.append(abs(gap[:4] @ (fit.theta - truth)) < 1.96 * error)
    return float(np.mean(covered))


@BOTH
def test_the_interval_covers_the_truth_as_often_as_it_says(name: str) -> None:
    assert 0.92 < coverage(name, 200, n_prompts=143) < 0.975


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("n_prompts", [143, 50])
def test_the_interval_covers_the_truth_in_many_tournaments(name: str, n_prompts: int) -> None:
    covers = coverage(name, 1500, n_prompts=n_prompts)
    print(f"\n{name}, {n_prompts} prompts: {covers:.3f}")
    assert 0.93 <= covers <= 0.97


# Data without a maximum


@BOTH
@pytest.mark.parametrize("n", [1, 30])
def test_nothing_but_ties_rates_everyone_equal(name: str, n: int) -> None:
    """The tie parameter is infinite, whatever the ratings; for every finite one they are equal."""
    board = rate(name, [battle("a", "b", "tie"), battle("b", "c", "tie (bothbad)")] * n)
    assert [(r.rating, r.std_error, r.rank, r.flag) for r in board.ratings] == [
        (1400, None, 1, None)
    ] * 3
    assert board.parameters == {}


@BOTH
def test_models_without_a_finite_rating_are_named_and_the_others_rated_as_if_alone(
    name: str,
) -> None:
    core = tournament(6)
    extremes = [battle("best", "a"), battle("b", "worst"), battle("x", "y", "tie")]
    board, alone = rate(name, core + extremes), rate(name, core)
    assert {r.model: r.flag for r in board.ratings if r.rating is None} == {
        "best": "unbeaten",
        "worst": "winless",
        "x": "disconnected",
        "y": "disconnected",
    }
    for model in "abc":
        assert board.rating(model).rating == alone.rating(model).rating
        assert board.rating(model).std_error == alone.rating(model).std_error
    assert board.parameters == alone.parameters
    assert board.n_clusters == 15


@BOTH
def test_wins_that_no_result_contradicts_have_no_maximum(name: str) -> None:
    """a wins or ties, b loses or ties. The larger gap and tie parameter are together, the better they fit: to half wins
    and half ties, in the end. One defeat of a's makes them finite."""
    some = [battle("a", "b")] * 3 + [battle("a", "b", "tie")] * 3
    assert [(r.model, r.rating, r.flag) for r in rate(name, some).ratings] == [
        ("a", None, "unbeaten"),
        ("b", None, "winless"),
    ]
    ladder = [*some, battle("b", "c"), battle("b", "c", "tie")]
    assert rate(name, ladder).rating("b").flag == "separated"
    assert all(r.flag is None for r in rate(name, [*some, battle("b", "a")]).ratings)


@BOTH
def test_a_cycle_with_more_wins_than_ties_is_contradiction_enough(name: str) -> None:
    """a beats b, b beats c, and c ties a: no pair has seen both win, and yet the ratings are finite."""
    board = rate(name, [battle("a", "b"), battle("b", "c"), battle("c", "a", "tie")])
    assert [r.rank for r in board.ratings] == [1, 2, 3]
    assert board.rating("b").rating == pytest.approx(1400)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(2, 5), n=st.integers(1, 9))
def test_linear_programming_finds_the_same_data_separated(seed: int, m: int, n: int) -> None:
    """Are there numbers a_i with a_i - a_j >= 1 wherever i beat j and |a_i - a_j| <= 1 wherever they tied?"""
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
    if not won.any() or not tied.any() or not strongest_component(won + tied / 2).all():
        return  # ruled out before anyone asks
    feasible = (
        linprog(np.zeros(m), A_ub=np.array(rows), b_ub=bounds, bounds=[(None, None)] * m).status
        == 0
    )
    assert ties.is_separated(won, tied) == feasible


@BOTH
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_the_battles_no_rating_is_nan_or_infinite(name: str, data: st.DataObject) -> None:
    names = st.sampled_from("abcd")
    battles = data.draw(
        st.lists(
            st.builds(
                Battle,
                model_a=names,
                model_b=names,
                winner=st.sampled_from(["model_a", "model_b", "tie"]),
                question_id=st.sampled_from(["p", "q", None]),
            ).filter(lambda b: b.model_a != b.model_b),
            min_size=1,
            max_size=12,
        )
    )
    board = rate(name, battles)
    json.dumps([r.to_dict() for r in board.ratings], allow_nan=False)
    json.dumps(dict(board.parameters), allow_nan=False)
    assert all((r.rating is None) == (r.flag is not None) for r in board.ratings)
    assert all(abs(r.rating - 1400) < 10_000 for r in board.ratings if r.rating is not None)


@BOTH
def test_no_battles_make_no_leaderboard(name: str) -> None:
    assert METHODS[name](initial_rating=1400, use="both").rate({"d": []}) == {}


@BOTH
def test_only_reconciled_winners_count_with_use_consistent(name: str) -> None:
    """Both orders, or one reconciled game: 143 prompts, 6 pairs."""
    some = Tournament().battles(143, np.random.default_rng(9))
    both, consistent = rate(name, some), rate(name, some, use="consistent")
    assert (both.n_matches, consistent.n_matches) == (1716, 858)
    assert (
        consistent.parameters["p_tie_equal"] > both.parameters["p_tie_equal"]
    )  # who flips has tied


def test_abilities_start_at_bradley_terry_and_end_where_ties_say() -> None:
    """Half wins understate a gap, so both models end further out than they start."""
    some = games(Tournament().battles(143, np.random.default_rng(2)), list("abcd"), use="both")
    start = np.ptp(bradley_terry_mle(some.wins()))
    assert all(np.ptp(ties._fit(some, model).theta) > start for model in MODELS.values())
