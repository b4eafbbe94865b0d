"""Who is probably the best: a case by quadrature, laws, and what is promised over many tournaments."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, repeat

import numpy as np
import pytest
from scipy import integrate, stats

from elo_exp.analysis.comparisons import add_ranks, differences
from elo_exp.analysis.shrinkage import (
    PRIOR_SCALE_IN_POINTS,
    add_p_best,
    shrink_covariance,
)
from elo_exp.analysis.standings import leaderboards
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


def chances(some: Leaderboard) -> Array:
    """Of models any of which may be the best, whatever their rank sets would say."""
    m = len(some.models)
    some = replace(some, rank_low=np.ones(m), rank_high=np.full(m, float(m)))
    found = add_p_best(some)
    assert found.p_best is not None
    return found.p_best


def test_two_models_are_shrunk_as_quadrature_says():
    """a leads by 60 with a standard error of 40: the posterior of the gap, integrated over tau."""
    found = chances(board(np.array([1430.0, 1370.0]), exchangeable(2, 40.0)))

    def weight(tau: float) -> float:  # the gap's variance is twice the spread's
        prior = 1 / (1 + (tau / PRIOR_SCALE_IN_POINTS) ** 2)
        return prior * stats.norm.pdf(60, scale=np.sqrt(40**2 + 2 * tau**2))

    def ahead(tau: float) -> float:
        kept = 2 * tau**2 / (2 * tau**2 + 40**2)
        return stats.norm.sf(0, kept * 60, np.sqrt(kept) * 40)

    def mean(f) -> float:
        top = integrate.quad(lambda tau: f(tau) * weight(tau), 1, 1000, limit=200)[0]
        return top / integrate.quad(weight, 1, 1000, limit=200)[0]

    assert found[0] == pytest.approx(mean(ahead), abs=0.015)


def test_a_covariance_of_few_prompts_is_steadied():
    """Three models on four prompts, by hand. The differences of a and b have the variance .08, of a or b
    and c on average 6: eigenvalues .04 and 4 of the contrasts, whose mean is 2.02. With the share
    (3 - 1) / (4 + 3 - 2) = .4 of that they are .832 and 3.208."""
    apart, together = np.array([1.0, -1.0, 0.0]), np.array([1.0, 1.0, -2.0])
    covariance = 0.04 / 2 * np.outer(apart, apart) + 4 / 6 * np.outer(
        together, together
    )
    found = shrink_covariance(covariance, 4)
    assert apart @ found @ apart / 2 == pytest.approx(0.6 * 0.04 + 0.4 * 2.02)
    assert together @ found @ together / 6 == pytest.approx(0.6 * 4 + 0.4 * 2.02)
    np.testing.assert_allclose(found.sum(axis=0), 0.0, atol=1e-12)
    assert shrink_covariance(covariance, math.inf) is covariance


def test_few_prompts_leave_an_improbable_certainty_open():
    """a and b did nearly alike on four prompts, so that 2 points are ten errors of their difference."""
    apart, together = np.array([1.0, -1.0, 0.0]), np.array([1.0, 1.0, -2.0])
    covariance = 0.04 / 2 * np.outer(apart, apart) + 400 * np.outer(together, together)
    rating = np.array([1401.0, 1399.0, 1100.0])
    few, many = (chances(board(rating, covariance, n))[0] for n in (4, 10**6))
    assert few < 0.6
    assert many > 0.9


def test_the_model_that_the_scale_is_pinned_to_changes_nothing():
    rating, spread = np.array([1450.0, 1400.0, 1350.0]), exchangeable(3, 50.0)
    plain = chances(board(rating, spread))
    column = spread[:, [2]]
    pinned = chances(board(rating, spread - column - column.T + spread[2, 2]))
    np.testing.assert_allclose(pinned, plain, atol=0.01)


def test_chances_depend_neither_on_names_nor_on_the_axes_of_the_covariance():
    """Of equal errors every axis will do, so the least change turns them."""
    rng = np.random.default_rng(2)
    rating = np.array([1440.0, 1410.0, 1400.0, 1350.0])
    plain = chances(board(rating, exchangeable(4, 40.0)))
    assert plain.sum() == pytest.approx(1)
    for order in ([2, 0, 3, 1], [3, 2, 1, 0]):
        change = rng.normal(scale=1e-6, size=(4, 4))
        spread = exchangeable(4, 40.0) + change + change.T
        found = chances(board(rating[order], spread))
        np.testing.assert_allclose(found, plain[order], atol=1e-4)


def test_an_outlier_below_has_no_part_in_the_chances_of_those_that_may_be_best():
    """Seven within 12 points and one 700 below: the chances are those of the seven alone."""
    rating = np.array([1412.0, 1410, 1408, 1406, 1404, 1402, 1400, 700])
    rng = np.random.default_rng(0)
    found = add_p_best(add_ranks(board(rating, exchangeable(8, 30.0), 100), rng))
    assert found.p_best is not None
    assert found.p_best[7] == 0.0
    alone = chances(board(rating[:7], exchangeable(8, 30.0)[:7, :7], 100))
    np.testing.assert_array_equal(found.p_best[:7], alone)
    assert alone[0] < 0.35


def test_who_alone_may_be_the_best_is():
    rating, rng = np.array([1800.0, 1410.0, 1400.0]), np.random.default_rng(0)
    found = add_p_best(add_ranks(board(rating, exchangeable(3, 30.0)), rng))
    np.testing.assert_array_equal(found.p_best, [1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    "found",
    [
        board(np.array([1400.0]), np.zeros((1, 1))),
        board(np.array([1450.0, 1350.0]), np.full((2, 2), np.nan)),
        board(np.array([np.nan, np.nan]), np.full((2, 2), np.nan)),
        board(
            np.array([1410.0, 1400.0, 1390.0]),
            400 * np.outer([2, -1, -1], [2, -1, -1]),
        ),
    ],
    ids=["one model", "no error", "none rated", "a difference without an error"],
)
def test_nothing_is_said_where_nothing_is_known(found: Leaderboard):
    ranked = add_ranks(found, np.random.default_rng(0))
    assert add_p_best(ranked).p_best is None


# Simulated tournaments


def other(world: Tournament) -> Tournament:
    """Where prompts say less and more verdicts are ties: no rule was tried on it."""
    return replace(world, quality=0.6, pair_noise=1.6, ties=0.45, first_shown=0.62)


def seen(
    worlds: Iterable[Tournament], n_prompts: int, n: int, seed: int
) -> tuple[Array, Array, Array]:
    """Of n tournaments: P(best) of the first, whether it is the best, and whether the interval of its lead
    over the second covers the true one."""
    rng = np.random.default_rng(seed)
    said, right, covered = np.zeros((3, n))
    for run, world in zip(range(n), worlds, strict=False):
        battles = {"d": world.columns(n_prompts, rng)}
        boards = leaderboards(battles, {"bt": BRADLEY_TERRY}, one_sided_of="bt")["bt"]
        truth = world.true_ratings()
        first, second = (
            boards["d"].models.index(row.model) for row in boards["d"].ratings[:2]
        )
        said[run] = boards["d"].ratings[0].p_best or 0.0
        right[run] = truth[first] >= truth.max() - 1e-6
        lead = differences(boards)[0]
        low = -math.inf if lead.ci_low is None else lead.ci_low
        high = math.inf if lead.ci_high is None else lead.ci_high
        covered[run] = low <= truth[first] - truth[second] <= high
    return said, right, covered


def close(sd: float, n: int, *others: float, seed: int) -> Iterator[Tournament]:
    """Entrants around 0, drawn anew for each tournament, and others at some distance."""
    rng = np.random.default_rng(seed)
    while True:
        yield Tournament(ratings=(*(sd * rng.standard_normal(n)).tolist(), *others))


@pytest.mark.slow
@pytest.mark.parametrize("is_other", [False, True], ids=["tuned on", "another"])
def test_chances_are_true_beside_an_outlier(is_other: bool):
    """Seven entrants of sd 10 on one prompt, 7 over prompts, and one 700 or 500 below; 100 prompts."""
    worlds: Iterable[Tournament] = close(7.0, 7, -500.0, seed=3)
    if is_other:
        worlds = map(other, worlds)
    said, right, _ = seen(worlds, 100, 400, 4)
    error = math.hypot(said.std(), right.std()) / math.sqrt(400)
    sure = said > 0.6
    print(
        f"said {said.mean():.3f}, right {right.mean():.3f} (MC {error:.3f}); over .6 "
        f"{sure.sum()} times, said {said[sure].mean():.2f}, right {right[sure].mean():.2f}"
    )
    assert said.mean() <= 0.40
    assert said.mean() - right.mean() <= 0.10
    assert sure.sum() <= 40


@pytest.mark.slow
@pytest.mark.parametrize("is_other", [False, True], ids=["tuned on", "another"])
@pytest.mark.parametrize(
    ("ratings", "n_prompts"),
    [((0.0, 0.0, 0.0, 300.0), 40), ((0.0,) * 5 + (150.0,), 60)],
    ids=["3 equal, one 300 ahead", "5 equal, one 150 ahead"],
)
def test_intervals_cover_the_lead_of_one_that_is_ahead(
    ratings: tuple[float, ...], n_prompts: int, is_other: bool
):
    world = Tournament(ratings=ratings)
    world = other(world) if is_other else world
    said, right, covered = seen(repeat(world), n_prompts, 400, 5)
    print(
        f"lead covered {covered.mean():.3f} (MC {covered.std() / 20:.3f}); "
        f"said {said.mean():.3f}, right {right.mean():.3f}"
    )
    assert covered.mean() >= 0.92
    assert said.mean() - right.mean() <= 0.10


@pytest.mark.slow
def test_over_many_tournaments_intervals_cover_the_lead_and_chances_are_true():
    """Eight close entrants on 143 prompts, drawn anew each time (spread 10 to 30 points)."""
    worlds = zip(*(close(sd, 8, seed=1) for sd in (10.0, 20.0, 30.0)), strict=True)
    said, right, covered = seen(chain.from_iterable(worlds), 143, 400, 1)
    print(f"lead covered {covered.mean():.3f}")
    print(f"said {said.mean():.3f}, true {right.mean():.3f}")
    assert covered.mean() >= 0.92
    for low, high in ((0.0, 0.5), (0.5, 0.8), (0.8, 1.01)):
        these = (low <= said) & (said < high)
        error = 0.5 / math.sqrt(max(these.sum(), 1))
        shown = said[these].mean(), right[these].mean()
        print(f"said {shown[0]:.2f}, true {shown[1]:.2f} of {these.sum()}")
        assert abs(shown[0] - shown[1]) < 0.03 + 2 * error
