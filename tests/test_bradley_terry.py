"""Bradley-Terry: two models by hand, the laws of the maximum, how sure one may be, data that cannot be rated.

An independent solver stands beside each number: choix for the abilities, statsmodels for the clustered errors, a naive
bootstrap in plain loops for the fast one, and simulated tournaments of which the truth is known for the intervals.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import math
import random
from typing import Any

import choix
import numpy as np
import pytest
import statsmodels.api as statsmodels
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.records import Battle, UserError
from elo_exp.results import Leaderboard
from elo_exp.statistics import bootstrap, sandwich
from elo_exp.statistics.bootstrap import resampled_abilities
from elo_exp.statistics.likelihood import (
    POINTS,
    Games,
    bradley_terry_mle,
    games,
    games_of_columns,
    strongest_component,
    win_probability,
)
from elo_exp.statistics.sandwich import clustered_covariance
from tests.simulation import Tournament


def battle(a: str, b: str, winner: str = "model_a", **orders: str) -> Battle:
    return Battle(model_a=a, model_b=b, winner=winner, **orders)


def method(**changes: Any) -> BradleyTerry:
    settings = {
        "initial_rating": 1400,
        "use": "both",
        "interval": "sandwich",
        "n_bootstraps": 1000,
        "seed": 7,
    }
    return BradleyTerry(**settings | changes)


def rate(battles: list[Battle], **changes: Any) -> Leaderboard:
    return method(**changes).rate({"d": battles})["d"]


def connected_wins(seed: int, n: int = 6) -> np.ndarray:
    rng = np.random.default_rng(seed)
    wins = rng.integers(0, 6, size=(n, n)).astype(float)
    np.fill_diagonal(wins, 0)
    for i in range(n):
        wins[i, (i + 1) % n] += 1  # a ring: everyone reaches everyone
    return wins


def test_two_models_differ_by_400_log10_of_their_win_ratio() -> None:
    board = rate([battle("a", "b")] * 75 + [battle("b", "a")] * 25)
    assert board.rating("a").rating == pytest.approx(1400 + 200 * math.log10(3))
    assert board.rating("b").rating == pytest.approx(1400 - 200 * math.log10(3))


def test_a_tie_is_half_a_win_for_each() -> None:
    ties = rate(
        [battle("a", "b")] * 2 + [battle("a", "b", "tie"), battle("a", "b", "tie (bothbad)")]
    )
    wins = rate([battle("a", "b")] * 3 + [battle("b", "a")])
    assert ties.rating("a").rating == pytest.approx(wins.rating("a").rating)


# Laws of the maximum


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_at_the_maximum_expected_wins_equal_wins(seed: int) -> None:
    """The gradient of the likelihood is zero; no other place has that, because it is concave."""
    wins = connected_wins(seed)
    theta = bradley_terry_mle(wins)
    expected = ((wins + wins.T) * win_probability(theta)).sum(axis=1)
    np.testing.assert_allclose(expected, wins.sum(axis=1), rtol=0, atol=1e-9)
    assert theta.mean() == pytest.approx(0, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_exchanging_winners_and_losers_mirrors_the_ratings(seed: int) -> None:
    wins = connected_wins(seed)
    np.testing.assert_allclose(bradley_terry_mle(wins.T), -bradley_terry_mle(wins), atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_whatever_the_models_are_called_each_keeps_its_rating(seed: int) -> None:
    wins = connected_wins(seed)
    order = np.random.default_rng(seed).permutation(len(wins))
    renamed = bradley_terry_mle(wins[np.ix_(order, order)])
    np.testing.assert_allclose(renamed, bradley_terry_mle(wins)[order], atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_it_does_not_matter_how_the_games_are_written_down(seed: int) -> None:
    """Rows in another order, pairs the other way round, the two orders as two rows: the same ratings and errors."""
    there = {"model_a": "model_b", "model_b": "model_a"}
    some = Tournament().battles(12, np.random.default_rng(seed))
    rows = [
        battle(b.model_a, b.model_b, verdict, question_id=b.question_id)
        for b in some
        for verdict in orders(b)
    ]
    turned = [
        dataclasses.replace(
            row, model_a=row.model_b, model_b=row.model_a, winner=there.get(row.winner, "tie")
        )
        for row in rows
    ]
    random.Random(seed).shuffle(turned)
    once, again = rate(some), rate(turned)
    for model in again.models:
        assert again.rating(model).rating == pytest.approx(once.rating(model).rating, abs=1e-9)
        assert again.rating(model).std_error == pytest.approx(
            once.rating(model).std_error, abs=1e-9
        )


def orders(battle: Battle) -> tuple[str, str]:
    assert battle.verdict_ab and battle.verdict_ba
    return battle.verdict_ab, battle.verdict_ba


def test_a_perfect_cycle_rates_everyone_equal() -> None:
    board = rate([battle("a", "b"), battle("b", "c"), battle("c", "a")] * 5)
    assert [r.rating for r in board.ratings] == pytest.approx([1400] * 3)
    assert [r.rank for r in board.ratings] == [1, 1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_choix_finds_the_same_abilities(seed: int) -> None:
    wins = connected_wins(seed)
    other = choix.ilsr_pairwise_dense(wins, tol=1e-12)
    np.testing.assert_allclose(bradley_terry_mle(wins), other - other.mean(), atol=1e-6)


def test_extreme_but_finite_counts_converge() -> None:
    wins = np.array([[0, 1e6, 1], [1, 0, 1e6], [1e-3, 1, 0]])
    theta = bradley_terry_mle(wins)
    np.testing.assert_allclose(
        ((wins + wins.T) * win_probability(theta)).sum(axis=1), wins.sum(axis=1), rtol=1e-9
    )


def test_both_orders_count_as_two_games_unless_only_consistent_ones_are_used() -> None:
    inconsistent = battle("a", "b", "tie", verdict_ab="model_a", verdict_ba="tie")
    both = games([inconsistent], ["a", "b"], use="both").wins()
    consistent = games([inconsistent], ["a", "b"], use="consistent").wins()
    np.testing.assert_array_equal(both, [[0, 1.5], [0.5, 0]])
    np.testing.assert_array_equal(consistent, [[0, 0.5], [0.5, 0]])


def test_one_order_is_one_game() -> None:
    wins = games([battle("a", "b", verdict_ab="model_a")], ["a", "b"], use="both").wins()
    np.testing.assert_array_equal(wins, [[0, 1], [0, 0]])


# How sure


def on_prompts(n: int, *, seed: int, orders: int = 1) -> list[Battle]:
    """Battles of four models on n prompts; on each prompt every pair meets and one model is favoured."""
    rng = np.random.default_rng(seed)
    found = []
    for q in range(n):
        quality = np.array([0.6, 0.2, 0.0, -0.4]) + rng.normal(0, 1.0, 4)
        for i, j in itertools.combinations(range(4), 2):
            wins = rng.random() < 1 / (1 + np.exp(quality[j] - quality[i]))
            found += [
                battle("abcd"[i], "abcd"[j], "model_a" if wins else "model_b", question_id=f"q{q}")
            ] * orders
    return found


def test_with_a_game_a_prompt_two_models_have_the_textbook_error() -> None:
    """75 wins of 100: the log-odds of the gap have variance 1 / (100 x .75 x .25), and 100/99 for the estimate of the
    mean; each rating moves by half of the gap."""
    board = rate([battle("a", "b")] * 75 + [battle("b", "a")] * 25)
    expected = POINTS / 2 * math.sqrt(1 / (100 * 0.75 * 0.25) * 100 / 99)
    rating = board.rating("a")
    assert rating.std_error == pytest.approx(expected)
    assert (rating.ci_low, rating.ci_high) == pytest.approx(
        stats.t.interval(0.95, 99, rating.rating, expected)
    )


def test_asking_the_same_again_about_the_same_prompts_makes_nobody_surer() -> None:
    once, thrice = rate(on_prompts(40, seed=1)), rate(on_prompts(40, seed=1, orders=3))
    for model in "abcd":
        assert thrice.rating(model).rating == pytest.approx(once.rating(model).rating)
        assert thrice.rating(model).std_error == pytest.approx(once.rating(model).std_error)


def test_four_times_the_prompts_halve_the_error() -> None:
    few, many = rate(on_prompts(300, seed=2)), rate(on_prompts(1200, seed=3))
    ratio = [few.rating(m).std_error / many.rating(m).std_error for m in "abcd"]
    assert ratio == pytest.approx([2] * 4, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_statsmodels_finds_the_same_clustered_errors(seed: int) -> None:
    """A logistic regression on entrant differences, the last model as origin; its small-sample factor divided out."""
    some = games(on_prompts(60, seed=seed), list("abcd"), use="both")
    design = np.zeros((len(some.score), 4))
    design[np.arange(len(design)), some.first] = 1
    design[np.arange(len(design)), some.second] = -1
    fit = statsmodels.GLM(some.score, design[:, :3], family=statsmodels.families.Binomial()).fit(
        cov_type="cluster", cov_kwds={"groups": some.cluster}
    )
    n, k = design[:, :3].shape
    factor = (n - 1) / (n - k)
    ours = clustered_covariance(bradley_terry_mle(some.wins()), some)
    gap = np.eye(4)[:3] - np.eye(4)[3]  # each model against the origin
    np.testing.assert_allclose(gap @ ours @ gap.T, fit.cov_params() / factor, rtol=2e-3)


@pytest.mark.slow
def test_second_opinions_on_many_tournaments() -> None:
    """STATISTICS.md section 5: errors within .2 % of statsmodels', here with its small-sample factor, and abilities
    within 1e-6 of choix's."""
    tournament, last = Tournament(), np.eye(4)[:3] - np.eye(4)[3]
    of_errors, of_abilities = [], []
    for seed in range(50):
        some = tournament.games(143, np.random.default_rng([5, seed]))
        wins = some.wins()
        theta = bradley_terry_mle(wins)
        other = choix.ilsr_pairwise_dense(wins, tol=1e-12)
        of_abilities.append(np.abs(theta - other + other.mean()).max())
        design = (np.eye(4)[some.first] - np.eye(4)[some.second])[:, :3]
        fit = statsmodels.GLM(some.score, design, family=statsmodels.families.Binomial()).fit(
            cov_type="cluster", cov_kwds={"groups": some.cluster}
        )
        errors = np.sqrt(np.diag(last @ clustered_covariance(theta, some) @ last.T))
        of_errors.append(np.abs(errors / fit.bse - 1).max())
    print(
        f"\nstatsmodels: errors within {max(of_errors):.2%}; choix: abilities within {max(of_abilities):.1e}"
    )
    assert max(of_errors) < 0.002
    assert max(of_abilities) < 1e-6


def test_blocks_of_clusters_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    some = games(on_prompts(50, seed=4), list("abcd"), use="both")
    theta = bradley_terry_mle(some.wins())
    whole = clustered_covariance(theta, some)
    monkeypatch.setattr(sandwich, "_CLUSTERS_A_BLOCK", 7)
    np.testing.assert_allclose(clustered_covariance(theta, some), whole)


def test_no_cluster_is_too_large_or_too_small_for_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small clusters are summed game by game, large ones as rows of scores; here there are both, then only one kind."""
    rng = np.random.default_rng(5)
    first = rng.integers(40, size=3000)
    cluster = np.sort(np.minimum(rng.geometric(0.002, size=3000), 2000))
    some = Games(
        n_models=40,
        first=first,
        second=(first + rng.integers(1, 40, size=3000)) % 40,
        score=rng.integers(3, size=3000) / 2,
        cluster=rng.permutation(np.unique(cluster, return_inverse=True)[1]),
    )
    theta = bradley_terry_mle(some.wins())
    scores = np.zeros((some.n_clusters, 40))
    for i, j, score, q in zip(some.first, some.second, some.score, some.cluster, strict=True):
        surprise = score - 1 / (1 + math.exp(theta[j] - theta[i]))
        scores[q, i] += surprise
        scores[q, j] -= surprise
    slope = some.score - win_probability(theta)[some.first, some.second]
    for share in (1, 10, 10**6):
        monkeypatch.setattr(sandwich, "_SHARE_OF_A_ROW", share)
        np.testing.assert_allclose(
            sandwich.clustered_scores(some, slope), scores.T @ scores, atol=1e-10
        )


def test_the_covariance_of_the_leaderboard_is_that_of_its_ratings() -> None:
    """In rating points squared, by the order of its models; the ratings' mean is fixed, so each row sums to zero."""
    board = rate([*on_prompts(40, seed=1), battle("best", "a", question_id="q1")])
    assert board.models == ("a", "b", "best", "c", "d")
    assert np.isnan(board.covariance[2]).all()
    assert np.isnan(board.covariance[:, 2]).all()
    for i, model in [(0, "a"), (1, "b"), (3, "c"), (4, "d")]:
        assert math.sqrt(board.covariance[i, i]) == pytest.approx(board.rating(model).std_error)
    np.testing.assert_allclose(np.nansum(board.covariance, axis=1), 0, atol=1e-9)
    assert board.n_clusters == 40


@pytest.mark.parametrize("verdict", ["tie", "model_a"])
def test_prompts_that_do_not_differ_say_nothing_of_how_prompts_differ(verdict: str) -> None:
    """A single prompt, or the same balance on each: the ratings stand, without an interval of no width."""
    balanced = {"winner": "tie", "verdict_ab": verdict, "verdict_ba": verdict.replace("_a", "_b")}
    for n in (1, 20):
        for interval in ("sandwich", "bootstrap"):
            board = rate(
                [battle("a", "b", question_id=f"q{q}", **balanced) for q in range(n)],
                interval=interval,
            )
            rating = board.rating("a")
            assert (rating.rating, rating.std_error, rating.ci_low, rating.flag) == (
                1400,
                None,
                None,
                None,
            )


def test_one_unit_of_log_odds_is_173_7_points() -> None:
    assert pytest.approx(173.7178, abs=1e-4) == POINTS


# The prompt bootstrap


def test_a_bootstrap_resample_is_the_fit_to_prompts_drawn_with_replacement() -> None:
    """Written out: draw as many prompts as there are, take each with all its battles, in both dimensions; fit anew."""
    battles = {
        "x": Tournament().battles(25, np.random.default_rng(1)),
        "y": Tournament().battles(20, np.random.default_rng(2)),
    }
    boards = method(interval="bootstrap", n_bootstraps=12).rate(battles)
    draws = np.random.default_rng(7).integers(25, size=(12, 25))
    for dimension, some in battles.items():
        for row, draw in zip(boards[dimension].samples, draws, strict=True):
            drawn = [b for q in draw for b in some if b.question_id == f"q{q}"]
            wins = games(drawn, list("abcd"), use="both").wins()
            other = choix.ilsr_pairwise_dense(wins, tol=1e-12)
            np.testing.assert_allclose(row, 1400 + POINTS * (other - other.mean()), atol=1e-4)


def test_battles_without_a_question_are_drawn_one_by_one() -> None:
    """Written out, in two dimensions of which each draws its own."""
    some = [
        dataclasses.replace(b, question_id=None)
        for b in Tournament().battles(40, np.random.default_rng(1))
    ]
    boards = method(interval="bootstrap", n_bootstraps=12, use="consistent").rate(
        {"x": some[:100], "y": some[100:]}
    )
    draws = np.random.default_rng(7).integers(240, size=(12, 240))
    for row, draw in zip(boards["y"].samples, draws, strict=True):
        wins = games([some[t] for t in draw if t >= 100], list("abcd"), use="consistent").wins()
        other = choix.ilsr_pairwise_dense(wins, tol=1e-12)
        np.testing.assert_allclose(row, 1400 + POINTS * (other - other.mean()), atol=1e-4)


def test_its_interval_is_student_s_with_the_standard_deviation_of_the_resamples() -> None:
    board = rate(Tournament().battles(50, np.random.default_rng(3)), interval="bootstrap")
    assert board.samples.shape == (1000, 4)
    assert board.parameters == {"n_bootstraps": 1000, "n_dropped": 0}
    np.testing.assert_allclose(board.covariance, np.cov(board.samples, rowvar=False))
    rating = board.rating("b")
    assert rating.std_error == pytest.approx(board.samples[:, 1].std(ddof=1))
    assert rating.ci_high - rating.rating == pytest.approx(
        stats.t.ppf(0.975, 49) * rating.std_error
    )
    assert (
        rating.rating == rate(Tournament().battles(50, np.random.default_rng(3))).rating("b").rating
    )


def test_bootstrap_and_sandwich_agree() -> None:
    """Two ways to the same number: within the bootstrap's own error, 1 / sqrt(2 x 1000) = 2.2 %, and 1 / 143."""
    some = Tournament().battles(143, np.random.default_rng(4))
    sandwich, resampled = rate(some), rate(some, interval="bootstrap")
    ratio = [
        resampled.rating(model).std_error / sandwich.rating(model).std_error for model in "abcd"
    ]
    assert ratio == pytest.approx([1] * 4, abs=0.07)


def test_a_prompt_is_drawn_for_all_dimensions_at_once() -> None:
    """Judged alike in two dimensions, the models get the same samples, also where someone is there who has no rating. A
    battle without a question is a prompt of its own, in its own dimension."""
    some = Tournament().battles(30, np.random.default_rng(5))
    again = [battle("aa", "b", question_id="q3"), *reversed(some)]
    boards = method(interval="bootstrap", n_bootstraps=50).rate({"x": some, "y": again})
    assert boards["y"].models == ("a", "aa", "b", "c", "d")
    np.testing.assert_allclose(boards["y"].samples[:, [0, 2, 3, 4]], boards["x"].samples, atol=1e-4)
    assert np.isnan(boards["y"].samples[:, 1]).all()
    apart = [dataclasses.replace(b, question_id=None) for b in some]
    boards = method(interval="bootstrap", n_bootstraps=50).rate({"x": apart, "y": apart})
    assert np.abs(boards["x"].samples - boards["y"].samples).max() > 10


@pytest.mark.parametrize(
    "changes",
    [{"_DENSE": 0}, {"_CHORD_STEPS": 1}, {"_NUMBERS_TO_FIT": 1}, {"_NUMBERS_TO_DRAW": 1}],
    ids=str,
)
def test_no_shortcut_of_the_bootstrap_changes_it(
    changes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [games(on_prompts(n, seed=n), list("abcd"), use="both") for n in (12, 9)]
    thetas = [bradley_terry_mle(one.wins()) for one in some]
    expected = resampled_abilities(some, thetas, n_bootstraps=40, seed=1)
    for name, value in changes.items():
        monkeypatch.setattr(bootstrap, name, value)
    for ours, theirs in zip(
        resampled_abilities(some, thetas, n_bootstraps=40, seed=1), expected, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(("n_upsets", "share", "is_given"), [(5, 0.0067, True), (1, 0.37, False)])
def test_resamples_without_finite_ratings_are_dropped_and_counted(
    n_upsets: int, share: float, is_given: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Only on n of the prompts does b ever win. All of them are missing from exp(-n) of the resamples, which say that b
    is infinitely worse. Without 5 % of the resamples or more there is no telling where 95 % of them end."""
    some = [
        battle("a", "b", "model_b" if q < n_upsets else "model_a", question_id=f"q{q}")
        for q in range(200)
    ]
    board = rate(some, interval="bootstrap")
    n_dropped = board.parameters["n_dropped"]
    assert n_dropped / 1000 == pytest.approx(share, abs=4 * math.sqrt(share / 1000))
    assert len(board.samples) == 1000 - n_dropped
    assert np.isfinite(board.samples).all()
    assert (board.rating("a").std_error is not None) == is_given
    (warning,) = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert warning.startswith(
        f"d: {n_dropped:.0f} of 1000 resamples of the prompts leave no finite ratings"
    )
    assert warning.endswith(
        "are dropped" if is_given else "Take interval=sandwich, or more prompts"
    )


def test_the_same_seed_gives_the_same_bootstrap() -> None:
    some = Tournament().battles(20, np.random.default_rng(6))
    one, same, other = (
        rate(some, interval="bootstrap", n_bootstraps=20, seed=seed) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one.samples, same.samples)
    assert (one.samples != other.samples).any()


# The interval covers the truth as often as it says


def coverage(n_tournaments: int, *, n_prompts: int, n_bootstraps: int) -> dict[str, float]:
    """The share of 95 % intervals that cover the true rating, over simulated tournaments and the four models."""
    tournament = Tournament()
    truth = tournament.true_ratings() / POINTS
    covered: dict[str, list[bool]] = {"sandwich": [], "bootstrap": [], "independent": []}
    for seed in range(n_tournaments):
        some = tournament.games(n_prompts, np.random.default_rng([n_prompts, seed]))
        theta = bradley_terry_mle(some.wins())
        (samples,) = resampled_abilities([some], [theta], n_bootstraps=n_bootstraps, seed=seed)
        one_by_one = dataclasses.replace(some, cluster=np.arange(len(some.cluster)))
        errors = {
            "sandwich": np.sqrt(np.diag(clustered_covariance(theta, some))),
            "bootstrap": np.nanstd(samples, axis=0, ddof=1),
            "independent": np.sqrt(np.diag(clustered_covariance(theta, one_by_one))),
        }
        for name, error in errors.items():
            covered[name] += (np.abs(theta - truth) < 1.96 * error).tolist()
    return {name: float(np.mean(hits)) for name, hits in covered.items()}


def test_the_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """200 tournaments of 143 prompts. Games counted as independent of one another cover .85."""
    covers = coverage(200, n_prompts=143, n_bootstraps=100)
    assert 0.92 < covers["sandwich"] < 0.975
    assert 0.92 < covers["bootstrap"] < 0.975
    assert covers["independent"] < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("n_prompts", [143, 50])
def test_the_intervals_cover_the_truth_in_many_tournaments(n_prompts: int) -> None:
    covers = coverage(1500, n_prompts=n_prompts, n_bootstraps=1000)
    print(
        f"\n{n_prompts} prompts: "
        + ", ".join(f"{name} {share:.3f}" for name, share in covers.items())
    )
    assert 0.93 <= covers["sandwich"] <= 0.97
    assert 0.93 <= covers["bootstrap"] <= 0.97
    assert 0.82 <= covers["independent"] <= 0.88


# Data that cannot be rated, or look as if they could not


def test_models_without_a_finite_rating_are_named_and_the_others_rated_as_if_alone() -> None:
    core = [battle("a", "b")] * 3 + [battle("b", "a")]
    extremes = [battle("best", "a"), battle("b", "worst"), battle("c", "d"), battle("d", "c")]
    board = rate(core + extremes)
    assert {r.model: r.flag for r in board.ratings if r.rating is None} == {
        "best": "unbeaten",
        "worst": "winless",
        "c": "disconnected",
        "d": "disconnected",
    }
    for model in "ab":
        assert board.rating(model).rating == pytest.approx(rate(core).rating(model).rating)
        assert board.rating(model).std_error == pytest.approx(rate(core).rating(model).std_error)
    assert [r.rank for r in board.ratings] == [1, 2, None, None, None, None]


def test_a_single_battle_against_a_newcomer_does_not_touch_the_others() -> None:
    """In evalica such a battle turns every score into 1e-06; in arena-rank the newcomer gets 3,455 ± .03 points."""
    healthy = on_prompts(300, seed=6)
    before = rate(healthy)
    for newcomer, flag in ((battle("new", "a"), "unbeaten"), (battle("a", "new"), "winless")):
        after = rate([*healthy, newcomer])
        assert (after.rating("new").rating, after.rating("new").flag) == (None, flag)
        for model in "abcd":
            assert after.rating(model).rating == before.rating(model).rating
            assert after.rating(model).std_error == before.rating(model).std_error


@pytest.mark.parametrize("interval", ["sandwich", "bootstrap"])
def test_when_one_model_always_wins_nobody_has_a_rating(interval: str) -> None:
    for n in (1, 5):
        board = rate([battle("a", "b", question_id=f"q{q}") for q in range(n)], interval=interval)
        unrated = [("a", None, "unbeaten"), ("b", None, "winless")]
        assert [(r.model, r.rating, r.flag) for r in board.ratings] == unrated
        assert np.isnan(board.covariance).all()


@pytest.mark.parametrize("interval", ["sandwich", "bootstrap"])
@pytest.mark.parametrize("n", [1, 30])
def test_nothing_but_ties_rates_everyone_equal(n: int, interval: str) -> None:
    board = rate(
        [battle("a", "b", "tie"), battle("b", "c", "tie (bothbad)")] * n, interval=interval
    )
    assert [(r.rating, r.std_error, r.rank, r.flag) for r in board.ratings] == [
        (1400, None, 1, None)
    ] * 3


def test_no_battles_make_no_leaderboard() -> None:
    assert method().rate({"d": []}) == {}
    assert method(interval="bootstrap").rate({"d": []}) == {}


def test_of_equally_large_groups_the_one_with_more_games_is_rated() -> None:
    wins = np.zeros((4, 4))
    wins[0, 1] = wins[1, 0] = 1
    wins[2, 3] = wins[3, 2] = 2
    np.testing.assert_array_equal(strongest_component(wins), [False, False, True, True])


def test_of_equally_large_groups_the_better_one_is_rated_however_few_its_games() -> None:
    wins = np.zeros((4, 4))
    wins[0, 1] = wins[1, 0] = 1
    wins[2, 3] = wins[3, 2] = 9
    wins[0, 2] = 1
    np.testing.assert_array_equal(strongest_component(wins), [True, True, False, False])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (battle("a", "a"), "'a' battles itself. Expected two different models."),
        (
            battle("a", "b", "A"),
            "winner: found 'A'. Expected one of model_a, model_b, tie, tie (bothbad).",
        ),
        (battle("a", "b", math.nan), "winner: found nan. Expected one of"),  # type: ignore[arg-type]
        (battle("a", "b", None), "winner: found none. Expected one of"),  # type: ignore[arg-type]
        (
            battle("a", "b", verdict_ab="A", verdict_ba="B"),
            "verdict_ab: found 'A'. Expected one of",
        ),
    ],
)
def test_a_battle_that_is_none_is_refused_and_never_a_silent_tie(row: Battle, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        rate([battle("a", "b"), battle("b", "a"), row])
    assert str(refusal.value).startswith(message)


def test_columns_of_names_become_games_of_the_models_sorted() -> None:
    some = games_of_columns(
        ["b", "c", "b"], ["a", "a", "c"], ["model_a", "tie", "model_b"], ["q", None, "q"]
    )
    assert (some.models, some.questions) == (("a", "b", "c"), ("q", None))
    assert (some.first.tolist(), some.second.tolist()) == ([1, 2, 1], [0, 0, 2])
    assert (some.score.tolist(), some.cluster.tolist()) == ([1, 0.5, 0], [0, 1, 0])
    assert some.among(np.array([True, True, False])).models == ("a", "b")


def test_a_million_games_are_rated_like_any_others() -> None:
    rng = np.random.default_rng(8)
    names = [f"model-{i:02d}" for i in range(50)]
    first = rng.integers(50, size=10**6)
    second = (first + rng.integers(1, 50, size=10**6)) % 50
    theta = np.linspace(-1, 1, 50)
    wins = rng.random(10**6) < 1 / (1 + np.exp(theta[second] - theta[first]))
    sides = [[names[i] for i in side] for side in (first, second)]
    some = games_of_columns(*sides, np.where(wins, "model_a", "model_b").tolist(), models=names)
    found = bradley_terry_mle(some.wins())
    errors = np.sqrt(np.diag(clustered_covariance(found, some)))
    assert np.abs((found - theta) / errors).max() < 4
    assert errors == pytest.approx([0.0105] * 50, rel=0.1)


@pytest.mark.parametrize("interval", ["sandwich", "bootstrap"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_the_battles_no_rating_is_nan_or_infinite(
    interval: str, data: st.DataObject
) -> None:
    """A few battles among a few models, most of which cannot all be rated: JSON that has no NaN, and a flag for each
    model without a rating."""
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
    board = rate(battles, interval=interval, n_bootstraps=20)
    json.dumps([r.to_dict() for r in board.ratings], allow_nan=False)
    json.dumps(dict(board.parameters), allow_nan=False)
    assert all((r.rating is None) == (r.flag is not None) for r in board.ratings)
    assert np.isfinite(board.covariance).any() == any(
        r.std_error is not None for r in board.ratings
    )
