"""Davidson and Rao-Kupper: worked examples, the likelihood written out, laws, errors, data without a maximum.

Each model stands beside its three probabilities as a textbook has them, which scipy maximises and numerical
differentiation turns into a sandwich; evalica, statsmodels and golden files are second opinions.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import evalica
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from statsmodels.miscmodels.ordinal_model import OrderedModel
from statsmodels.tools.numdiff import approx_fprime, approx_hess

from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import POINTS, BradleyTerry, Fit, strongest_component
from elo_exp.ratings.games import Games, games
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.ratings.ties import Davidson, RaoKupper, TieModel, is_separated
from elo_exp.records import Battle
from tests.data import by_dimension, shared_data
from tests.simulation import Tournament

METHODS: dict[str, type[TieModel]] = {"davidson": Davidson, "rao_kupper": RaoKupper}
BOTH = pytest.mark.parametrize("name", METHODS)
SEEDS = st.integers(0, 10**6)


def model(name: str, **changes: Any) -> TieModel:
    return METHODS[name](**{"initial_rating": 1400.0, "use": "both", **changes})


def battle(a: str, b: str, winner: str = "model_a", **others: Any) -> Battle:
    return Battle(model_a=a, model_b=b, winner=winner, **others)


def rate(name: str, battles: list[Battle], **changes: Any) -> Leaderboard:
    return model(name, **changes).rate(by_dimension({"d": battles}))["d"]


def bradley_terry(battles: list[Battle]) -> Leaderboard:
    method = BradleyTerry(
        initial_rating=1400.0, use="both", interval="sandwich", n_bootstraps=2, seed=0
    )
    return method.rate(by_dimension({"d": battles}))["d"]


def played(battles: list[Battle]) -> Games:
    return games(Battles.from_rows(battles), use="both")


def tournament(seed: int, n_prompts: int = 15) -> list[Battle]:
    return Tournament(ratings=(0, 60, 200)).battles(
        n_prompts, np.random.default_rng(seed)
    )


def sixteen(n_ties: int = 6) -> list[Battle]:
    """8 wins of a, some ties, 2 wins of b."""
    counts = {"model_a": 8, "tie": n_ties, "model_b": 2}
    return [battle("a", "b", winner) for winner, n in counts.items() for _ in range(n)]


# Worked examples


def test_davidson_of_two_models_by_hand():
    """Two models can have every probability as it was seen, so the fit is exact:

                     a wins          tie                 b wins
        seen           8              6                    2
        weight        pi_a     nu sqrt(pi_a pi_b)         pi_b      pi_a / pi_b = 8 / 2, nu = 6 / sqrt(8 x 2)

    The log of the first varies by 1/8 + 1/2, that of the second by 1/6 + 1/4 (1/8 + 1/2): the delta method, with 16/15
    because a mean is estimated.
    """
    board = rate("davidson", sixteen())
    assert board.row("a").rating == pytest.approx(1400 + 200 * math.log10(4))
    error = POINTS / 2 * math.sqrt((1 / 8 + 1 / 2) * 16 / 15)
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


def test_rao_kupper_of_two_models_by_hand():
    """a wins                  tie                b wins
    seen           8                      6                   2
    odds      pi_a / (eta pi_b) = 8 / 8           pi_b / (eta pi_a) = 2 / 14

    The product of the odds is 1 / eta^2 = 1 / 7, their ratio (pi_a / pi_b)^2 = 7. Gap and log eta are half the
    difference and half the sum of logit(8/16) and -logit(2/16). A logit's derivative by its share is 1 / (s (1 - s));
    the shares vary as a multinomial's.
    """
    board = rate("rao_kupper", sixteen())
    root = math.sqrt(7)
    share = np.array([8, 2]) / 16
    covariance = (np.diag(share) - np.outer(share, share)) / 15
    slope = 1 / (share * (1 - share))
    by_gap, by_eta = slope * [0.5, -0.5], slope * [-0.5, -0.5]
    assert board.row("a").rating == pytest.approx(1400 + 200 * math.log10(root))
    error = POINTS / 2 * math.sqrt(by_gap @ covariance @ by_gap)
    assert board.row("a").std_error == pytest.approx(error)
    assert board.parameters == pytest.approx(
        {
            "eta": root,
            "eta_std_error": root * math.sqrt(by_eta @ covariance @ by_eta),
            "p_tie_equal": (root - 1) / (root + 1),
        }
    )


def test_ties_leave_davidson_s_gap_alone_that_half_wins_would_close():
    """Wins to defeats are 4 to 1 whatever the ties: 240.8 points. With ties as half wins 6 of them make it 137.0."""
    for n_ties in (0, 6, 60):
        assert np.ptp(rate("davidson", sixteen(n_ties)).rating) == pytest.approx(
            400 * math.log10(4)
        )
    half = np.ptp(bradley_terry(sixteen()).rating)
    assert half == pytest.approx(400 * math.log10(11 / 5))


@pytest.mark.parametrize(("name", "value"), [("davidson", 2), ("rao_kupper", 3)])
def test_in_a_perfect_cycle_the_parameter_is_set_by_how_often_equals_tie(
    name: str, value: float
):
    """Half of the games: nu / (2 + nu), (eta - 1) / (eta + 1)."""
    cycle = [
        battle(a, b, winner)
        for a, b in ("ab", "bc", "ca")
        for winner in ("model_a", "tie")
    ]
    board = rate(name, cycle)
    np.testing.assert_allclose(board.rating, 1400)
    assert board.parameters[METHODS[name].symbol] == pytest.approx(value)


# Second opinions


def davidson(pi_i: float, pi_j: float, nu: float) -> tuple[float, float, float]:
    """That i beats j, that they tie, that j beats i."""
    tie = nu * math.sqrt(pi_i * pi_j)
    return (
        pi_i / (pi_i + pi_j + tie),
        tie / (pi_i + pi_j + tie),
        pi_j / (pi_i + pi_j + tie),
    )


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


@BOTH
@settings(max_examples=30, deadline=None)
@given(gap=st.floats(-20, 20), tie=st.floats(0.05, 8))
def test_curves_are_the_textbook_s_probabilities_and_their_derivatives(
    name: str, gap: float, tie: float
):
    some = model(name)

    def central(of: str, *, by_gap: float = 0.0, by_tie: float = 0.0) -> np.ndarray:
        there, back = (
            some.curves(np.array([gap + sign * by_gap]), tie + sign * by_tie)
            for sign in (1, -1)
        )
        return (getattr(there, of) - getattr(back, of)) / (2 * (by_gap + by_tie))

    curves = some.curves(np.array([gap]), tie)
    lost, tied, won = np.exp(curves.value[0])
    assert (won, tied, lost) == pytest.approx(
        TEXTBOOK[name](math.exp(gap), 1.0, math.exp(tie)), rel=1e-6, abs=1e-12
    )
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
def test_newton_starts_where_equals_tie_as_often_as_was_seen(name: str, share: float):
    equals = model(name).curves(np.zeros(1), model(name).start(share))
    assert math.exp(equals.value[0, 1]) == pytest.approx(share)


@BOTH
@pytest.mark.parametrize("seed", range(2))
def test_scipy_finds_the_same_maximum(name: str, seed: int):
    some = tournament(seed)
    found = minimize(
        lambda x: -log_likelihood(name, x, played(some)),
        [0.0, 0.0, 0.5],
        bounds=[(None, None), (None, None), (METHODS[name].never + 0.01, None)],
        options={"ftol": 1e-15, "gtol": 1e-8},
    )
    board = rate(name, some)
    gaps = (board.rating[:2] - board.rating[2]) / POINTS
    assert gaps == pytest.approx(found.x[:2], abs=1e-5)
    assert board.parameters[METHODS[name].symbol] == pytest.approx(
        math.exp(found.x[2]), rel=1e-5
    )
    p_tie_equal = TEXTBOOK[name](1.0, 1.0, math.exp(found.x[2]))[1]
    assert board.parameters["p_tie_equal"] == pytest.approx(p_tie_equal, rel=1e-5)


@BOTH
def test_numerical_differentiation_finds_the_same_clustered_errors(name: str):
    """The sandwich of its definition: the Hessian of the whole and the gradient of each prompt, both numerical."""
    some = played(tournament(3))
    board = rate(name, tournament(3))
    symbol = METHODS[name].symbol
    at = np.append(
        (board.rating[:2] - board.rating[2]) / POINTS,
        math.log(board.parameters[symbol]),
    )
    bread = np.linalg.inv(approx_hess(at, lambda x: log_likelihood(name, x, some)))
    scores = []
    for q in range(15):
        mine = some.cluster == q
        of_prompt = dataclasses.replace(
            some,
            first=some.first[mine],
            second=some.second[mine],
            score=some.score[mine],
        )
        scores.append(
            approx_fprime(
                at, lambda x, one=of_prompt: log_likelihood(name, x, one), centered=True
            )
        )
    covariance = 15 / 14 * bread @ np.transpose(scores) @ np.array(scores) @ bread
    against_c = np.array([[1, 0, -1], [0, 1, -1]])
    ours = against_c @ board.covariance @ against_c.T / POINTS**2
    np.testing.assert_allclose(ours, covariance[:2, :2], rtol=2e-3)
    error = board.parameters[symbol] * math.sqrt(covariance[2, 2])
    assert board.parameters[f"{symbol}_std_error"] == pytest.approx(error, rel=2e-3)


@pytest.mark.parametrize("seed", range(3))
def test_evalica_finds_davidson_s_ratings_with_nu_twice_its_v(seed: int):
    """Newman (2023) writes the weight of a tie as 2 v sqrt(pi_i pi_j)."""
    rng = np.random.default_rng(seed)
    words = {
        "model_a": evalica.Winner.X,
        "model_b": evalica.Winner.Y,
        "tie": evalica.Winner.Draw,
    }
    some = [
        battle(
            "abcdef"[i], "abcdef"[j], str(rng.choice(list(words), p=[0.5, 0.3, 0.2]))
        )
        for i, j in (rng.permutation(6)[:2] for _ in range(300))
    ]
    other = evalica.newman(
        [b.model_a for b in some],
        [b.model_b for b in some],
        [words[b.winner] for b in some],
        tolerance=1e-13,
        limit=10_000,
    )
    board = rate("davidson", some, initial_rating=0.0)
    theta = np.log(other.scores[list("abcdef")].to_numpy())
    np.testing.assert_allclose(board.rating / POINTS, theta - theta.mean(), atol=1e-9)
    assert board.parameters["nu"] == pytest.approx(2 * other.v, abs=1e-9)


def test_davidson_equals_the_golden_newman_scores_up_to_their_scale():
    for name in ("simple", "food", "llmfao"):
        check_golden(shared_data("golden"), name)


def check_golden(folder: Path, name: str) -> None:
    words = {"left": "model_a", "right": "model_b", "tie": "tie"}
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        some = [
            battle(r["left"], r["right"], words[r["winner"]])
            for r in csv.DictReader(file)
        ]
    with (folder / f"{name}-golden.csv").open(encoding="utf-8") as file:
        golden = [row for row in csv.DictReader(file) if row["algorithm"] == "newman"]
    logs = {row["item"]: math.log10(float(row["score"])) for row in golden}
    centre = sum(logs.values()) / len(logs)
    expected = {model: 400 * (log - centre) for model, log in logs.items()}
    board = rate("davidson", some, initial_rating=0.0)
    assert {r.model: r.rating for r in board.ratings} == pytest.approx(
        expected, abs=1e-4
    )


def test_an_ordered_logistic_regression_finds_rao_kupper_s_ratings():
    """Losing, tying and winning are three ordered outcomes of a logistic gap with thresholds -log eta and log eta.
    With every game also seen from the other side, statsmodels cannot but find thresholds that are symmetric."""
    some = Tournament().battles(60, np.random.default_rng(1))
    those = played(some)
    design = np.eye(4)[those.first] - np.eye(4)[those.second]
    outcome = np.append(those.score, 1 - those.score)
    fit = OrderedModel(
        (2 * outcome).astype(int), np.vstack([design, -design])[:, :3], distr="logit"
    ).fit(method="newton", disp=False)
    board = rate("rao_kupper", some)
    gaps = (board.rating[:3] - board.rating[3]) / POINTS
    assert gaps == pytest.approx(fit.params[:3], abs=1e-6)
    assert math.log(board.parameters["eta"]) == pytest.approx(-fit.params[3], abs=1e-6)


# Laws


def connected(seed: int, m: int = 5) -> list[Battle]:
    """Fifty games of any result, and a ring in which everybody has beaten the next."""
    rng = np.random.default_rng(seed)
    names = "abcdefgh"[:m]
    pairs = [rng.permutation(m)[:2] for _ in range(50)]
    words = ["model_a", "tie", "model_b"]
    some = [battle(names[i], names[j], words[rng.integers(3)]) for i, j in pairs]
    ring = [battle(names[i], names[(i + 1) % m]) for i in range(m)]
    every = [*some, battle("a", "b", "tie"), *ring]
    return [
        dataclasses.replace(b, question_id=f"q{t // 3}") for t, b in enumerate(every)
    ]


@BOTH
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_law_the_gradient_is_zero_at_the_maximum(name: str, seed: int):
    some = connected(seed)
    board = rate(name, some)
    theta = (board.rating - board.rating[-1]) / POINTS
    at = np.append(theta[:-1], math.log(board.parameters[METHODS[name].symbol]))
    gradient = approx_fprime(
        at, lambda x: log_likelihood(name, x, played(some)), centered=True
    )
    np.testing.assert_allclose(gradient, 0, atol=1e-5)
    assert board.rating.mean() == pytest.approx(1400)


@BOTH
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_law_mirrored_renamed_or_shuffled_games_say_the_same(name: str, seed: int):
    some = connected(seed)
    board = rate(name, some)
    other = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}
    mirrored = rate(
        name, [dataclasses.replace(b, winner=other[b.winner]) for b in some]
    )
    np.testing.assert_allclose(mirrored.rating - 1400, 1400 - board.rating, atol=1e-7)
    assert mirrored.parameters == pytest.approx(board.parameters)
    np.testing.assert_allclose(mirrored.std_error, board.std_error, atol=1e-7)
    names = dict(
        zip(
            "abcde", np.random.default_rng(seed).permutation(list("abcde")), strict=True
        )
    )
    renamed = [
        dataclasses.replace(b, model_a=names[b.model_a], model_b=names[b.model_b])
        for b in some
    ]
    random.Random(seed).shuffle(renamed)
    again = rate(name, renamed)
    for one in "abcde":
        assert again.row(names[one]).rating == pytest.approx(
            board.row(one).rating, abs=1e-7
        )


@BOTH
def test_the_two_orders_may_be_two_rows_and_asking_again_makes_nobody_surer(name: str):
    some = tournament(4)
    rows = [
        battle(b.model_a, b.model_b, str(verdict), question_id=b.question_id)
        for b in some
        for verdict in (b.verdict_ab, b.verdict_ba)
    ]
    once = rate(name, some)
    for again in (rate(name, rows), rate(name, some * 3)):
        np.testing.assert_allclose(again.rating, once.rating)
        np.testing.assert_allclose(again.covariance, once.covariance, atol=1e-7)
        assert again.parameters == pytest.approx(once.parameters)


@BOTH
def test_without_ties_it_is_bradley_terry_and_one_tie_is_almost_none(name: str):
    decisive = [
        dataclasses.replace(b, verdict_ab=None)
        for b in tournament(5, n_prompts=60)
        if not b.is_tie
    ]
    board, expected = rate(name, decisive), bradley_terry(decisive)
    assert board.ratings == expected.ratings
    np.testing.assert_array_equal(board.covariance, expected.covariance)
    never = math.exp(METHODS[name].never)
    assert board.parameters == {METHODS[name].symbol: never, "p_tie_equal": 0}
    wins = [battle("a", "b")] * 5000 + [battle("b", "a")] * 2500
    without, with_one = (
        rate(name, some) for some in (wins, [*wins, battle("a", "b", "tie")])
    )
    np.testing.assert_allclose(with_one.rating, without.rating, atol=0.05)


def test_both_models_say_nearly_the_same_and_go_beyond_half_wins():
    some = Tournament(ratings=(0, 60, 120, 300)).battles(400, np.random.default_rng(2))
    boards = [rate(name, some) for name in METHODS]
    assert {tuple(r.model for r in board.ratings) for board in boards} == {
        tuple("dcba")
    }
    one, other = (board.parameters["p_tie_equal"] for board in boards)
    assert one == pytest.approx(other, abs=0.02)
    half = np.ptp(bradley_terry(some).rating)
    assert all(np.ptp(board.rating) > half for board in boards)


@BOTH
def test_only_reconciled_winners_count_with_use_consistent(name: str):
    """Both orders, or one reconciled game: 143 prompts, 6 pairs. Whoever flips has tied."""
    some = Tournament().battles(143, np.random.default_rng(9))
    both, consistent = rate(name, some), rate(name, some, use="consistent")
    assert (both.n_matches, consistent.n_matches) == (1716, 858)
    assert consistent.parameters["p_tie_equal"] > both.parameters["p_tie_equal"]


# Errors


@BOTH
def test_prompts_that_do_not_differ_tell_no_error(name: str):
    """On every prompt the two orders tie or cancel: the models are equal, and nobody knows how surely."""
    orders = [("tie", "tie"), ("model_a", "model_b")]
    some = [
        battle("a", "b", "tie", verdict_ab=ab, verdict_ba=ba) for ab, ba in orders * 10
    ]
    board = rate(name, some)
    assert [(r.rating, r.std_error, r.flag) for r in board.ratings] == [
        (1400, None, None)
    ] * 2
    assert board.parameters["p_tie_equal"] == pytest.approx(0.5)


@BOTH
@pytest.mark.parametrize(
    ("n_tournaments", "n_prompts", "margin"),
    [
        (200, 143, 0.03),
        pytest.param(1500, 143, 0.02, marks=pytest.mark.slow),
        pytest.param(1500, 50, 0.02, marks=pytest.mark.slow),
    ],
)
def test_the_interval_covers_the_truth_as_often_as_it_says(
    name: str, n_tournaments: int, n_prompts: int, margin: float
):
    """Of the gaps; the truth is where the ratings end on many prompts."""
    some = model(name)
    simulated = Tournament()
    many = simulated.games(200_000, np.random.default_rng(0))
    truth = fitted(some, many).theta
    covered = []
    for seed in range(n_tournaments):
        fit = fitted(
            some, simulated.games(n_prompts, np.random.default_rng([n_prompts, seed]))
        )
        for i, j in simulated.pairs:
            gap = np.eye(4)[i] - np.eye(4)[j]
            error = math.sqrt(gap @ fit.covariance @ gap)
            covered.append(abs(gap @ (fit.theta - truth)) < 1.96 * error)
    print(f"\n{name}, {n_prompts} prompts: {np.mean(covered):.3f}")
    assert np.mean(covered) == pytest.approx(0.95, abs=margin)


def fitted(some: TieModel, those: Games) -> Fit:
    ties = those.ties()
    return some.fit(Fit.of(those), ties, those.wins() - ties / 2)


# Data without a maximum


@BOTH
@pytest.mark.parametrize("n", [1, 30])
def test_nothing_but_ties_rates_everyone_equal(name: str, n: int):
    """The tie parameter is infinite, whatever the ratings; for every finite one they are equal."""
    board = rate(name, [battle("a", "b", "tie"), battle("b", "c", "tie (bothbad)")] * n)
    assert [(r.rating, r.std_error, r.rank, r.flag) for r in board.ratings] == [
        (1400, None, 1, None)
    ] * 3
    assert board.parameters == {}
    assert model(name).rate(by_dimension({"d": []})) == {}


@BOTH
def test_models_without_a_finite_rating_are_named_and_the_others_rated_as_if_alone(
    name: str,
):
    core = tournament(6)
    extremes = [battle("best", "a"), battle("b", "worst"), battle("x", "y", "tie")]
    board, alone = rate(name, core + extremes), rate(name, core)
    assert {r.model: r.flag for r in board.ratings if r.rating is None} == {
        "best": "unbeaten",
        "worst": "winless",
        "x": "disconnected",
        "y": "disconnected",
    }
    for one in "abc":
        assert board.row(one).rating == alone.row(one).rating
        assert board.row(one).std_error == alone.row(one).std_error
    assert (board.parameters, board.n_clusters) == (alone.parameters, 15)


@BOTH
def test_wins_that_no_result_contradicts_have_no_maximum(name: str):
    """a wins or ties, b loses or ties. The larger gap and tie parameter are together, the better they fit: to half wins
    and half ties, in the end. One defeat of a's makes them finite."""
    some = [battle("a", "b")] * 3 + [battle("a", "b", "tie")] * 3
    assert [(r.model, r.rating, r.flag) for r in rate(name, some).ratings] == [
        ("a", None, "unbeaten"),
        ("b", None, "winless"),
    ]
    ladder = [*some, battle("b", "c"), battle("b", "c", "tie")]
    assert rate(name, ladder).row("b").flag == "separated"
    assert all(r.flag is None for r in rate(name, [*some, battle("b", "a")]).ratings)
    cycle = rate(name, [battle("a", "b"), battle("b", "c"), battle("c", "a", "tie")])
    assert [r.rank for r in cycle.ratings] == [1, 2, 3]  # contradiction enough


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, m=st.integers(2, 5), n=st.integers(1, 9))
def test_linear_programming_finds_the_same_data_separated(seed: int, m: int, n: int):
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
    program = linprog(
        np.zeros(m), A_ub=np.array(rows), b_ub=bounds, bounds=[(None, None)] * m
    )
    assert is_separated(won, tied) == (program.status == 0)


@BOTH
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_the_battles_no_rating_is_nan_or_infinite(
    name: str, data: st.DataObject
):
    names = st.sampled_from("abcd")
    one = st.builds(
        Battle,
        model_a=names,
        model_b=names,
        winner=st.sampled_from(["model_a", "model_b", "tie"]),
        question_id=st.sampled_from(["p", "q", None]),
    ).filter(lambda b: b.model_a != b.model_b)
    board = rate(name, data.draw(st.lists(one, min_size=1, max_size=12)))
    json.dumps([r.to_dict() for r in board.ratings], allow_nan=False)
    json.dumps(dict(board.parameters), allow_nan=False)
    assert all((r.rating is None) == (r.flag is not None) for r in board.ratings)
    assert all(
        abs(r.rating - 1400) < 10_000 for r in board.ratings if r.rating is not None
    )
