"""Shrunken ratings: a case by quadrature, laws, and what they promise over many tournaments."""

import numpy as np
import pytest
from scipy import integrate, stats

from elo_exp.analysis.shrinkage import PRIOR_SCALE, with_p_best
from elo_exp.arrays import Array
from elo_exp.ratings.leaderboard import Leaderboard
from tests.simulation import BRADLEY_TERRY, Tournament


def board(rating: Array, covariance: Array, n_prompts: int = 10**6) -> Leaderboard:
    m = len(rating)
    return Leaderboard(
        label="",
        interval="",
        models=tuple("abcdefghijkl"[:m]),
        rating=rating,
        covariance=covariance,
        n_clusters=n_prompts,
    )


def exchangeable(m: int, std_error: float) -> Array:
    """Of a difference of two of m models, whose mean is fixed."""
    return std_error**2 / 2 * (np.eye(m) - 1 / m)


def test_two_models_are_shrunk_as_quadrature_says():
    """a leads by 60 with a standard error of 40: the posterior of the gap, integrated over tau."""
    found = with_p_best(board(np.array([1430.0, 1370.0]), exchangeable(2, 40.0)))

    def weight(tau: float) -> float:  # the gap's variance is twice the spread's
        prior = 1 / (1 + (tau / PRIOR_SCALE) ** 2)
        return prior * stats.norm.pdf(60, scale=np.sqrt(40**2 + 2 * tau**2))

    def ahead(tau: float) -> float:
        kept = 2 * tau**2 / (2 * tau**2 + 40**2)
        return stats.norm.sf(0, kept * 60, np.sqrt(kept) * 40)

    def mean(f) -> float:
        top = integrate.quad(lambda tau: f(tau) * weight(tau), 1, 1000, limit=200)[0]
        return top / integrate.quad(weight, 1, 1000, limit=200)[0]

    kept = mean(lambda tau: 2 * tau**2 / (2 * tau**2 + 40**2))
    assert found.lead[0] == pytest.approx(60 * kept, abs=1.5)
    assert found.p_best[0] == pytest.approx(mean(ahead), abs=0.015)


def test_equal_ratings_of_two_prompts_have_no_lead():
    """With one degree of freedom draws have no mean: that of 20,000 may be any number."""
    found = with_p_best(board(np.full(2, 1400.0), exchangeable(2, 500.0), 2))
    assert found.lead[0] == pytest.approx(0.0, abs=1e-9)


def test_the_less_is_known_the_smaller_the_lead():
    rating = np.array([1500.0, 1420.0, 1380.0, 1300.0])
    leads = [
        with_p_best(board(rating, exchangeable(4, std_error))).lead[0]
        for std_error in (0.1, 30.0, 100.0, 300.0)
    ]
    assert leads[0] == pytest.approx(80, abs=0.5)
    assert leads == sorted(leads, reverse=True)
    assert 0 < leads[-1] < 30


def test_the_model_that_the_scale_is_pinned_to_changes_nothing():
    rating, spread = np.array([1450.0, 1400.0, 1350.0]), exchangeable(3, 50.0)
    plain = with_p_best(board(rating, spread))
    column = spread[:, [2]]
    pinned = with_p_best(board(rating, spread - column - column.T + spread[2, 2]))
    assert pinned.lead == pytest.approx(plain.lead, abs=1.0)


def test_chances_depend_neither_on_names_nor_on_the_axes_of_the_covariance():
    """Of equal errors every axis will do, so the least change turns them."""
    rng = np.random.default_rng(2)
    rating = np.array([1440.0, 1410.0, 1400.0, 1350.0])
    plain = with_p_best(board(rating, exchangeable(4, 40.0))).p_best
    assert plain.sum() == pytest.approx(1)
    for order in ([2, 0, 3, 1], [3, 2, 1, 0]):
        change = rng.normal(scale=1e-6, size=(4, 4))
        spread = exchangeable(4, 40.0) + change + change.T
        found = with_p_best(board(rating[order], spread)).p_best
        np.testing.assert_allclose(found, plain[order], atol=1e-4)


@pytest.mark.parametrize(
    "found",
    [
        board(np.array([1400.0]), np.zeros((1, 1))),
        board(np.array([1450.0, 1350.0]), np.full((2, 2), np.nan)),
        board(np.array([np.nan, np.nan]), np.full((2, 2), np.nan)),
        board(np.array([1410.0, 1400.0, 1390.0]), np.outer([2, -1, -1], [2, -1, -1])),
    ],
    ids=["one model", "no error", "none rated", "a difference without an error"],
)
def test_nothing_is_said_where_nothing_is_known(found: Leaderboard):
    assert with_p_best(found) is found


@pytest.mark.slow
def test_over_many_tournaments_intervals_cover_the_lead_and_chances_are_true():
    """Eight close entrants on 143 prompts, drawn anew each time (spread 10 to 30 points)."""
    rng = np.random.default_rng(1)
    covered, said, right = [], [], []
    for run in range(400):
        spread = (10.0, 20.0, 30.0)[run % 3]
        world = Tournament(ratings=tuple(spread * rng.standard_normal(8)))
        truth = world.true_ratings() + 1400.0
        battles = world.columns(143, rng)
        found = with_p_best(BRADLEY_TERRY.rate({"": battles})[""])
        first, second = np.argsort(-found.rating)[:2]
        _, low, high = found.lead
        covered.append(low <= truth[first] - truth[second] <= high)
        said.append(found.p_best[first])
        right.append(truth.argmax() == first)
    print(f"lead covered {np.mean(covered):.3f}")
    print(f"said {np.mean(said):.3f}, true {np.mean(right):.3f}")
    assert 0.92 <= np.mean(covered) <= 0.98
    for low, high in ((0.0, 0.5), (0.5, 0.8), (0.8, 1.0)):
        these = [i for i, p in enumerate(said) if low <= p < high]
        error = 0.5 / np.sqrt(max(len(these), 1))
        shown = np.mean([said[i] for i in these]), np.mean([right[i] for i in these])
        print(f"said {shown[0]:.2f}, true {shown[1]:.2f} of {len(these)}")
        assert abs(shown[0] - shown[1]) < 0.03 + 2 * error
