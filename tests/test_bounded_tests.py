"""Differences of bounded points: exact cases, laws, and worlds of skewed points in which Student's t alone errs."""

import dataclasses
import math

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from elo_exp.analysis.bounded_means import lower_bound
from elo_exp.analysis.bounded_scores import two_sided_p_value
from elo_exp.analysis.bounded_tests import (
    chance_of_mean_below_zero,
    fit_restricted,
    interval,
    p_value,
)
from elo_exp.analysis.comparisons import differences
from elo_exp.analysis.standings import leaderboards
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.fit import Fit, fit_abilities
from elo_exp.ratings.games import Games
from elo_exp.records import Battle

RATING = BradleyTerry(
    initial_rating=1400.0,
    orders="both",
    interval="sandwich",
    n_bootstraps=2,
    seed=0,
)


def battles(shares: list[float], a: str = "new", b: str = "old") -> list[Battle]:
    """One battle on each prompt, by new's share of the points."""
    words = {0: "tie", 1: "model_a", -1: "model_b"}
    return [
        Battle(
            model_a=a,
            model_b=b,
            winner=words[int(np.sign(share - 0.5))],
            score=share,
            question_id=f"q{q}",
            source="llm-judge",
        )
        for q, share in enumerate(shares)
    ]


def board(rows: list[Battle]):
    return leaderboards(
        {"d": Battles.from_rows(rows)},
        {"bradley_terry": RATING},
        one_sided_of="bradley_terry",
    )["bradley_terry"]["d"]


def lead(rows: list[Battle]):
    (found,) = differences({"d": board(rows)})
    return found


@pytest.mark.parametrize(("n", "k"), [(20, 15), (60, 38), (6, 6), (10, 9)])
def test_of_wins_and_losses_it_is_the_exact_sign_test(n, k):
    values = np.repeat([0.5, -0.5], [k, n - k])
    exact = scipy.stats.binom.sf(k - 1, n, 0.5)
    assert chance_of_mean_below_zero(values, -0.5) == pytest.approx(exact, rel=0.03)


def test_it_is_the_bound_that_the_gate_draws():
    x = np.random.default_rng(3).choice(
        [0.0, 0.5, 0.5625], p=[0.02, 0.3, 0.68], size=80
    )
    low = lower_bound(x, alpha=0.025)
    assert chance_of_mean_below_zero(x - low, -low) == pytest.approx(0.025, abs=0.004)


POINTS = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.54, 0.75, 1.0]), min_size=2, max_size=30)  # fmt: skip


@given(POINTS)
@settings(max_examples=100, deadline=None)
def test_one_more_lost_prompt_never_makes_a_lead_more_certain(shares):
    """Neither its p value falls, nor does the near end of its interval rise."""
    x = np.array(shares) - 0.5
    more = np.append(x, -0.5)
    before, after = (chance_of_mean_below_zero(one, -0.5) for one in (x, more))
    assert after >= before - 1e-9


@pytest.mark.system
@given(POINTS.filter(lambda shares: 0.0 < sum(shares) < len(shares)))
@settings(max_examples=40, deadline=None)
def test_no_interval_of_more_than_one_prompt_has_width_zero(shares):
    """Of the ratings and of their difference; a lead is significant only if its interval leaves out zero."""
    found, pair = board(battles(shares)), lead(battles(shares))
    assert (found.ci_high - found.ci_low > 1e-3).all()
    assert pair.ci_high - pair.ci_low > 1e-3
    if pair.significant:
        assert pair.ci_low > 0


@given(st.permutations(range(12)), st.floats(-3, 3))
@settings(max_examples=30, deadline=None)
def test_a_restricted_fit_has_the_difference_and_the_order_of_the_prompts_is_no_matter(
    order, difference
):
    rng = np.random.default_rng(1)
    wins = rng.integers(1, 9, (4, 4)).astype(float)
    np.fill_diagonal(wins, 0.0)
    contrast = np.array([1.0, 0.0, -1.0, 0.0])
    at = fit_restricted(wins, fit_abilities(wins), contrast, difference)
    assert contrast @ at == pytest.approx(difference)
    x = rng.choice([-0.5, 0.04, 0.25], size=12)
    mixed = chance_of_mean_below_zero(x[list(order)], -0.5)
    assert mixed == pytest.approx(chance_of_mean_below_zero(x, -0.5))


def test_by_hand_a_little_better_on_all_prompts_is_no_lead():
    """24 prompts of .54 or .55: one lost prompt would undo it. Student's t says p < .001."""
    shares = [0.54, 0.55] * 12
    pair, found = lead(battles(shares)), board(battles(shares))
    assert not pair.significant and pair.p_value > 0.1
    assert pair.ci_low < 0 < pair.ci_high
    assert found.rank_high.tolist() == [2, 2]
    t = np.array(shares) - 0.5
    assert t.mean() / (t.std(ddof=1) / math.sqrt(24)) > 30


def test_120_ties_are_an_interval_and_no_point():
    """The mean is between those that 120 ties leave possible: .5 * .025 ** (1 / 121) and its mirror image."""
    pair = lead(battles([0.5] * 120))
    assert (pair.difference, pair.significant) == (0.0, False)
    assert pair.ci_high == pytest.approx(-pair.ci_low)
    assert 5 < pair.ci_high < 15


def test_a_lead_of_many_decisive_prompts_keeps_the_digits_of_t():
    shares = [1.0] * 40 + [0.0] * 15 + [0.5] * 20
    pair = lead(battles(shares))
    x = np.array(shares)
    m = x.mean()
    error = x.std(ddof=1) / math.sqrt(len(x)) / (m * (1 - m)) * 400 / math.log(10)
    half = scipy.stats.t.ppf(0.975, len(x) - 1) * error
    assert pair.significant
    assert pair.std_error == pytest.approx(error)
    assert pair.ci_low == pytest.approx(pair.difference - half)


def test_votes_alike_are_counted_and_give_the_same_test():
    """A row that stands for many battles, each on a prompt of its own, is as many rows."""
    counted = [
        dataclasses.replace(row, question_id=None, count=n)
        for row, n in zip(battles([1.0, 0.0]), (30, 12), strict=True)
    ]
    apart = battles([1.0] * 30 + [0.0] * 12)
    assert lead(counted).p_value == pytest.approx(lead(apart).p_value)
    scores = np.repeat([0.5, -0.5], [30, 12])
    assert two_sided_p_value(scores, np.ones(42, int), (0.0, 0.5)) == pytest.approx(
        lead(apart).p_value, rel=0.5
    )


# Worlds


def drawn(
    m: int, n: int, opponents: int | None, rng: np.random.Generator, world: str
) -> Games:
    """Games of m entrants of equal mean points. skewed: the first is a little better, but lost outright on few prompts.

    latent: on each prompt all have a strength of their own, and half of the games are ties
    """
    a, b = np.triu_indices(m, 1)
    first, second, cluster = [], [], []
    for q in range(n):
        place = np.argsort(rng.permutation(m))
        steps = np.abs(place[a] - place[b])
        near = 2 * np.minimum(steps, m - steps) <= (opponents or m)
        first.append(a[near])
        second.append(b[near])
        cluster.append(np.full(near.sum(), q))
    i, j, q = map(np.concatenate, (first, second, cluster))
    if world == "skewed":
        is_lost = rng.random(n) < 1 - 0.5 / 0.55
        other = np.clip(0.5 + 0.05 * rng.standard_normal(len(q)), 0, 1)
        score = np.where(i == 0, np.where(is_lost, 0.0, 0.55)[q], other)
    else:
        strength = rng.standard_normal((n, m))
        gap = strength[q, i] - strength[q, j]
        score = np.where(gap > 0.7, 1.0, np.where(gap < -0.7, 0.0, 0.5))
    return Games(
        n_models=m,
        first=i,
        second=j,
        score=score,
        cluster=q,
        prompts=np.arange(n),
        position=np.zeros(len(q)),
        is_one_order=False,
        battle=np.arange(len(q)),
    )


def wrong_leads(
    m: int, n: int, opponents: int | None, world: str, n_studies: int, seed: int = 7
) -> tuple[float, float]:
    """How often the first is said to be better than the second, by t alone and by both tests."""
    rng, by_t, by_both = np.random.default_rng(seed), 0, 0
    for _ in range(n_studies):
        played = drawn(m, n, opponents, rng, world)
        fit = Fit.from_games(played)
        contrast = np.zeros(m)
        contrast[0], contrast[1] = 1.0, -1.0
        variance = float(contrast @ fit.covariance @ contrast)
        error = math.sqrt(variance) if variance > 0 else 1e-9  # all prompts are alike
        p = scipy.special.stdtr(n - 1, -float(contrast @ fit.theta) / error)
        if p <= 0.025:
            by_t += 1
            by_both += p_value(played, played.wins(), fit.theta, contrast) <= 0.025
    return by_t / n_studies, by_both / n_studies


@pytest.mark.parametrize(("m", "opponents"), [(2, None), (4, None)])
def test_equals_with_skewed_points_are_seldom_told_apart(m, opponents):
    by_t, by_both = wrong_leads(m, 20, opponents, "skewed", 150)
    assert by_t > 0.06 and by_both <= 0.025


@pytest.mark.slow
@pytest.mark.parametrize("world", ["skewed", "latent"])
@pytest.mark.parametrize("n", [20, 60, 143])
@pytest.mark.parametrize(("m", "opponents"), [(2, None), (4, None), (8, None), (8, 2)])
def test_wrong_leads_are_at_most_nominal(m, opponents, n, world):
    """The table of docs/evidence.md; three Monte Carlo errors are allowed to each of 24 rows."""
    _, by_both = wrong_leads(m, n, opponents, world, 600)
    assert by_both <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 600)


def test_the_interval_leaves_out_zero_where_the_test_rejects():
    rng = np.random.default_rng(2)
    for _ in range(20):
        played = drawn(4, 30, None, rng, "latent")
        fit, contrast = Fit.from_games(played), np.array([1.0, -1.0, 0.0, 0.0])
        wins = played.wins()
        low, high = interval(played, wins, fit.theta, contrast)
        assert low < contrast @ fit.theta < high
        for end, sign in ((low, 1.0), (high, -1.0)):
            p = p_value(played, wins, fit.theta, sign * contrast, sign * end)
            assert p == pytest.approx(0.025, abs=1e-6)
