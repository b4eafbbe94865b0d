"""Bradley-Terry: by hand, its laws, second opinions, the prompt bootstrap, and data without a maximum.

choix stands beside the abilities, statsmodels beside the clustered errors, a loop beside the
bootstrap, and simulated tournaments of known strength beside the intervals. What the models of ties
share with it is tested here for all three.
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
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import special, stats

from elo_exp.analysis.comparisons import Difference, add_ranks, differences
from elo_exp.analysis.power import estimate_precision
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings import RatingMethod
from elo_exp.ratings import bootstrap as bootstraps
from elo_exp.ratings.bootstrap import bootstrap_abilities
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.fit import (
    POINTS_PER_LOG_ODDS,
    Fit,
    find_strongest_component,
    fit_abilities,
    win_probability,
)
from elo_exp.ratings.games import Games, make_games
from elo_exp.ratings.leaderboard import Leaderboard, t_quantile
from elo_exp.ratings.ties import Davidson, RaoKupper
from elo_exp.records import Battle
from elo_exp.report.sentences.standings_sentences import list_unrated
from tests.data import battle, by_dimension
from tests.simulation import Tournament, in_one_order

SHIPPED = {"initial_rating": 1400.0, "orders": "both", "interval": "sandwich", "n_bootstraps": 1000, "seed": 7}  # fmt: skip
EQUALS = Tournament(ratings=(0.0,) * 4)
SEEDS = st.integers(0, 10**6)
INTERVALS = pytest.mark.parametrize("interval", ["sandwich", "bootstrap"])
TURNED = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}


def method(**changes: Any) -> BradleyTerry:
    return BradleyTerry(**{**SHIPPED, **changes})


def rate(battles: list[Battle], **changes: Any) -> Leaderboard:
    return method(**changes).rate(by_dimension({"d": battles}))["d"]


METHODS: dict[str, RatingMethod] = {
    "bradley_terry": method(),
    "davidson": Davidson(initial_rating=1400.0, orders="both"),
    "rao_kupper": RaoKupper(initial_rating=1400.0, orders="both"),
}
EVERY_METHOD = pytest.mark.parametrize("name", METHODS)


def rate_by(name: str, battles: list[Battle]) -> Leaderboard:
    return METHODS[name].rate(by_dimension({"d": battles}))["d"]


def played(battles: list[Battle], orders: str = "both") -> Games:
    return make_games(Battles.from_rows(battles), orders=orders)


def tournament(n_prompts: int, seed: int, of: Tournament | None = None) -> list[Battle]:
    return (of or Tournament()).battles(n_prompts, np.random.default_rng(seed))


# Worked examples


def test_two_models_by_hand():
    """75 wins of 100: the log-odds of the gap are log 3 with variance 1 / (100 x .75 x .25), and
    100/99 for the estimate of the mean; each rating moves by half of the gap."""
    board = rate([battle("a", "b")] * 75 + [battle("b", "a")] * 25)
    error = POINTS_PER_LOG_ODDS / 2 * math.sqrt(1 / (100 * 0.75 * 0.25) * 100 / 99)
    for model, sign in (("a", 1), ("b", -1)):
        row = board.row(model)
        assert row.rating == pytest.approx(1400 + sign * 200 * math.log10(3))
        assert row.std_error == pytest.approx(error)
        interval = stats.t.interval(0.95, 99, row.rating, error)
        assert (row.ci_low, row.ci_high) == pytest.approx(interval)
        assert row.n_battles == 100
    assert (board.label, board.interval) == ("Bradley-Terry", "independent battles")
    assert (board.n_matches, board.n_clusters) == (100, 100)
    assert pytest.approx(173.7178, abs=1e-4) == POINTS_PER_LOG_ODDS


def test_all_battles_on_a_prompt_are_one_observation():
    """A hundred prompts with three battles each that end alike tell as much as with one battle: the error is that of
    the hundred games above."""
    sides = [("a", "b")] * 75 + [("b", "a")] * 25
    board = rate(
        [battle(*sides[n], question_id=f"p{n}") for n in range(100) for _ in range(3)]
    )
    error = POINTS_PER_LOG_ODDS / 2 * math.sqrt(1 / (100 * 0.75 * 0.25) * 100 / 99)
    assert board.row("a").std_error == pytest.approx(error)
    assert (board.interval, board.n_clusters) == ("prompt-clustered", 100)


def test_ties_are_half_wins_and_both_orders_two_games():
    """Unless only consistent battles count: then one game, of the reconciled winner."""
    flipped = [battle("a", "b", "tie", verdict_ab="model_a", verdict_ba="tie")]
    np.testing.assert_array_equal(played(flipped).wins(), [[0, 1.5], [0.5, 0]])
    np.testing.assert_array_equal(played(flipped).ties(), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(
        played(flipped, "reconciled").wins(), [[0, 0.5], [0.5, 0]]
    )
    once = [battle("a", "b", verdict_ab="model_a"), battle("a", "b", "tie (bothbad)")]
    np.testing.assert_array_equal(played(once).wins(), [[0, 1.5], [0.5, 0]])


def test_who_was_shown_first_is_known_of_different_answers_alone():
    """1: the first was, -1: the second; the second orders come last. Equal answers have no position."""
    both = {"verdict_ab": "model_a", "verdict_ba": "tie"}
    rows = [
        battle("a", "b", "tie", **both),
        battle("a", "b", "tie", equal_answers=True, **both),
        battle("a", "b", verdict_ab="model_a"),
        battle("a", "b", "tie", verdict_ba="tie"),
        battle("a", "b"),
    ]
    shown = played(rows).position
    np.testing.assert_array_equal(shown, [1, 0, 1, -1, 0, -1, 0])


# Laws of the maximum


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS)
@example(None)
def test_law_at_the_maximum_expected_wins_equal_wins(seed: int | None):
    """The gradient is zero there; no other place has that, because the likelihood is concave. None:
    fractions and extreme counts."""
    wins = np.array([[0, 1e6, 0.3], [1, 0, 1e6], [1e-3, 1, 0]])
    if seed is not None:
        wins = np.random.default_rng(seed).integers(0, 6, size=(6, 6)).astype(float)
        np.fill_diagonal(wins, 0)
        wins[np.arange(6), np.arange(6) - 5] += 1  # a ring: everyone reaches everyone
    theta = fit_abilities(wins)
    expected = ((wins + wins.T) * win_probability(theta)).sum(axis=1)
    np.testing.assert_allclose(expected, wins.sum(axis=1), rtol=1e-9, atol=1e-9)
    assert theta.mean() == pytest.approx(0, abs=1e-12)


@EVERY_METHOD
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_law_it_does_not_matter_how_the_games_are_written_down(name: str, seed: int):
    """The two orders as two rows, each turned round, shuffled, judged three times, and by new names;
    mirrored results mirror the ratings."""
    some = tournament(12, seed)
    order = np.random.default_rng(seed).permutation(4)
    new = dict(zip("abcd", np.array(list("abcd"))[order].tolist(), strict=True))
    rows = [
        battle(
            new[b.model_b], new[b.model_a], TURNED[str(w)], question_id=b.question_id
        )
        for b in some
        for w in (b.verdict_ab, b.verdict_ba)
    ] * 3
    random.Random(seed).shuffle(rows)
    mirrored = [dataclasses.replace(b, winner=TURNED[b.winner]) for b in rows]
    once, again, mirror = (rate_by(name, games) for games in (some, rows, mirrored))
    assert again.parameters == pytest.approx(once.parameters)
    np.testing.assert_allclose(again.rating[order], once.rating, atol=1e-6)
    np.testing.assert_allclose(mirror.rating[order], 2800 - once.rating, atol=1e-6)
    for board in (again, mirror):
        np.testing.assert_allclose(board.std_error[order], once.std_error, atol=1e-6)


# Errors


@pytest.mark.parametrize(
    "seed", [0, 1, *[pytest.param(s, marks=pytest.mark.slow) for s in range(2, 50)]]
)
def test_statsmodels_has_the_same_clustered_errors(seed: int):
    """A logistic regression on differences, the last model as origin; its small-sample factor
    divided out."""
    some = Tournament().games(143, np.random.default_rng([5, seed]))
    design = (np.eye(4)[some.first] - np.eye(4)[some.second])[:, :3]
    glm = statsmodels.GLM(some.score, design, family=statsmodels.families.Binomial())
    fit = glm.fit(cov_type="cluster", cov_kwds={"groups": some.cluster})
    factor = (len(design) - 1) / (len(design) - 3)
    ours = Fit.from_games(some).covariance
    against_last = np.eye(4)[:3] - np.eye(4)[3]
    np.testing.assert_allclose(
        against_last @ ours @ against_last.T,
        fit.cov_params() / factor,
        rtol=2e-3,
        atol=1e-6,
    )


@INTERVALS
@pytest.mark.parametrize("verdict", ["tie", "model_a"])
@pytest.mark.parametrize("n", [1, 20])
def test_prompts_that_do_not_differ_tell_no_error(n: int, verdict: str, interval: str):
    """A single prompt, or the same balance on each: ratings without an interval of no width."""
    orders = {"verdict_ab": verdict, "verdict_ba": verdict.replace("_a", "_b")}
    some = [battle("a", "b", "tie", question_id=f"q{q}", **orders) for q in range(n)]
    row = rate(some, interval=interval).row("a")
    assert (row.rating, row.std_error, row.ci_low, row.flag) == (1400, None, None, None)


@pytest.mark.parametrize(
    ("n_tournaments", "n_prompts", "margin"),
    [
        (200, 143, 0.03),
        *[pytest.param(1500, n, 0.02, marks=pytest.mark.slow) for n in (143, 50)],
    ],
)
def test_intervals_cover_the_truth_as_often_as_they_say(
    n_tournaments: int, n_prompts: int, margin: float
):
    """True ratings of four models; games counted as independent of one another cover .85."""
    truth = Tournament().true_ratings() / POINTS_PER_LOG_ODDS
    clustered, independent = [], []
    for seed in range(n_tournaments):
        some = Tournament().games(n_prompts, np.random.default_rng([n_prompts, seed]))
        every = np.arange(len(some.score))
        one_by_one = dataclasses.replace(some, cluster=every, prompts=every)
        for played, hits in ((some, clustered), (one_by_one, independent)):
            fit = Fit.from_games(played)
            error = np.sqrt(np.diag(fit.covariance))
            hits.append(np.abs(fit.theta - truth) < 1.96 * error)
    assert np.mean(clustered) == pytest.approx(0.95, abs=margin)
    assert np.mean(independent) < 0.9


@pytest.mark.parametrize(
    ("n_tournaments", "a_first", "margin"),
    [(150, 0.8, 0.04), *[pytest.param(1500, share, 0.02, marks=pytest.mark.slow) for share in (0.5, 0.8)]],
)  # fmt: skip
def test_in_one_order_the_position_effect_is_part_of_the_fit(
    n_tournaments: int, a_first: float, margin: float
):
    """The first shown is .3 log-odds better, and a is mostly shown first: without the effect in the
    fit, its lead over d is 45 points off. Repeated on each of 60 prompts, so that they cluster."""
    ratings = tuple(POINTS_PER_LOG_ODDS * np.array([0.5, 0.2, -0.1, -0.6]))
    first_shown = float(special.expit(0.3))
    world = Tournament(
        ratings=ratings, quality=0.0, pair_noise=0.0, ties=0.0, first_shown=first_shown
    )
    leads, plain, hits, effects = [], [], [], []
    for seed in range(n_tournaments):
        rng = np.random.default_rng([7, seed])
        some = in_one_order(world.columns(60, rng), rng, a_first=a_first)
        board = method(orders="one").rate({"x": some})["x"]
        assert board.label == "Bradley-Terry with position"
        (pair,) = [
            d for d in differences({"x": board}) if {d.higher, d.lower} == {"a", "d"}
        ]
        sign = 1 if pair.higher == "a" else -1
        leads.append(sign * pair.difference / POINTS_PER_LOG_ODDS)
        assert pair.ci_low is not None and pair.ci_high is not None
        hits.append(pair.ci_low <= sign * 1.1 * POINTS_PER_LOG_ODDS <= pair.ci_high)
        effects.append(board.parameters["position"])
        without = Fit.from_games(make_games(some, orders="one")).theta
        plain.append(without[0] - without[3])
    print(
        f"\n{a_first}: covers {np.mean(hits):.3f}, lead {np.mean(leads):.3f}, without {np.mean(plain):.3f}"
    )
    assert np.mean(hits) == pytest.approx(0.95, abs=margin)
    assert np.mean(effects) == pytest.approx(0.3, abs=0.05)
    assert np.mean(leads) == pytest.approx(1.1, rel=0.05)
    if a_first != 0.5:
        assert np.mean(plain) > 1.1 + 0.1


def test_of_a_judge_that_always_prefers_the_first_shown_no_position_effect_can_be_fitted():
    """Nor where one order was always the same: the models are rated without it."""
    rows = [
        battle("a", "b", w, question_id=f"q{q}", **{f"verdict_{order}": w})
        for q in range(10)
        for order, w in (("ab", "model_a"), ("ba", "model_b"))
    ]
    for some in (rows, [*rows[::2], battle("a", "b", "model_b", verdict_ab="model_b")]):
        board = rate(some, orders="one")
        assert board.label == "Bradley-Terry"
        assert set(board.parameters.values()) <= {None}


@pytest.mark.system
@pytest.mark.parametrize("n_prompts", [3, 10])
def test_of_few_prompts_intervals_tests_and_rank_sets_keep_their_promises(
    n_prompts: int,
):
    """Among equals. With normal quantiles .84 of the intervals of three prompts cover the truth, and
    .44 of the runs have a significant difference."""
    rng = np.random.default_rng(n_prompts)
    boards = [rate(EQUALS.battles(n_prompts, rng)) for _ in range(200)]
    boards = [board for board in boards if not np.isnan(board.ci_low).any()]
    assert len(boards) > 180
    covers = [(b.ci_low <= 1400) & (b.ci_high >= 1400) for b in boards]
    assert 0.92 < np.mean(covers) < 0.98
    alarms = [any(pair.significant for pair in differences({"d": b})) for b in boards]
    assert np.mean(alarms) < 0.09
    sets = [
        {(r.rank_low, r.rank_high) for r in add_ranks(b, rng).ratings} for b in boards
    ]
    assert np.mean([some != {(1, 4)} for some in sets]) < 0.1


# A model that met the others on few of the prompts


def d_on_few(seed: int, n_prompts: int) -> list[Battle]:
    """Four equals on 100 prompts, of which d is on so many."""
    few = {f"q{q}" for q in range(n_prompts)}
    some = tournament(100, seed, EQUALS)
    return [
        b for b in some if "d" not in (b.model_a, b.model_b) or b.question_id in few
    ]


def gap_of_d(board: Leaderboard, other: str = "a") -> Difference:
    pairs = differences({"x": board})
    return next(p for p in pairs if {p.higher, p.lower} == {"d", other})


@pytest.mark.system
@pytest.mark.parametrize(
    ("n_prompts", "at_least"), [(2, 0.95), (5, 0.95), (10, 0.92), (40, 0.91)]
)
def test_its_differences_cover_the_truth_however_few_its_prompts(
    n_prompts: int, at_least: float
):
    """Of 100 tournaments, whose own error is 2%. With an error from all 100 prompts it is 70% of
    them on two."""
    boards = [rate(d_on_few(seed, n_prompts)) for seed in range(100)]
    pairs = [gap_of_d(board, other) for board in boards for other in "abc"]
    known = [pair for pair in pairs if pair.ci_low is not None]
    assert len(known) >= 290
    assert np.mean([p.ci_low <= 0 <= (p.ci_high or 0.0) for p in known]) >= at_least


@EVERY_METHOD
def test_of_one_prompt_there_is_no_error_and_the_others_are_as_sure_as_before(
    name: str,
):
    one, without = rate_by(name, d_on_few(3, 1)), rate_by(name, d_on_few(3, 0))
    d = add_ranks(one, np.random.default_rng(0)).row("d")
    assert (d.n_prompts, d.std_error, d.ci_low) == (1, None, None)
    assert (d.rank_low, d.rank_high) == (1, 4)
    assert gap_of_d(one).p_value is None
    said = "\n".join(list_unrated(one, []))
    assert said.strip().startswith("No interval, because there is only one prompt")
    for model in "abc":
        expected = pytest.approx(without.row(model).std_error, rel=0.05)
        assert one.row(model).std_error == expected
    with_d, without_d = (
        estimate_precision({"x": board})[0] for board in (one, without)
    )
    assert with_d.detectable == pytest.approx(without_d.detectable, rel=0.1)


def test_few_prompts_that_agree_by_chance_make_no_interval_of_no_width():
    """Three prompts of one and the same balance, on which d wins two of three."""
    few = [
        battle("d", "a", f"model_{w}", question_id=f"q{q}")
        for q in range(3)
        for w in "aab"
    ]
    gap = gap_of_d(rate([*d_on_few(5, 0), *few]))
    alone = POINTS_PER_LOG_ODDS / np.sqrt(
        9 * 2 / 9
    )  # nine independent games, won by two of three
    assert gap.std_error is not None and gap.std_error > 0.99 * alone
    width = (gap.ci_high or 0.0) - (gap.ci_low or 0.0)
    assert width == pytest.approx(2 * t_quantile(2) * gap.std_error)


@pytest.mark.parametrize(("n", "factor"), [(25, 25 / 24 * 99 / 100), (100, 1.0)])
def test_from_twenty_prompts_on_the_error_is_that_of_its_own_prompts(
    n: int, factor: float
):
    """k / (k - 1) in place of n / (n - 1); nothing changes where all are on all prompts."""
    some = played(d_on_few(1, n))
    whole = Fit.from_games(some).covariance
    error = rate(d_on_few(1, n)).row("d").std_error
    assert error == pytest.approx(
        POINTS_PER_LOG_ODDS * math.sqrt(whole[3, 3] * factor), rel=1e-9
    )


def test_no_difference_depends_on_the_baseline():
    expected, found = (
        [p.std_error for p in differences({"x": rate(d_on_few(3, 1), **changes)})]
        for changes in ({}, {"baseline_model": "d"})
    )
    assert found == pytest.approx(expected, nan_ok=True)


# The prompt bootstrap


@pytest.mark.parametrize("named", [True, False])
def test_a_resample_is_the_fit_to_prompts_drawn_with_replacement(named: bool):
    """Written out, in two dimensions that share their prompts; battles without a question are drawn
    one by one."""
    battles = {"x": tournament(25, 1), "y": tournament(20, 2)}
    units = [[b for some in battles.values() for b in some if b.question_id == f"q{q}"] for q in range(25)]  # fmt: skip
    if not named:
        battles = {
            name: [dataclasses.replace(b, question_id=None) for b in some]
            for name, some in battles.items()
        }
        units = [[b] for some in battles.values() for b in some]
    boards = method(interval="bootstrap", n_bootstraps=12).rate(by_dimension(battles))
    draws = np.random.default_rng(7).integers(len(units), size=(12, len(units)))
    for dimension, some in battles.items():
        own = {id(b) for b in some}
        samples = boards[dimension].samples
        assert samples is not None
        for row, draw in zip(samples, draws, strict=True):
            drawn = [b for unit in draw for b in units[unit] if id(b) in own]
            other = choix.ilsr_pairwise_dense(played(drawn).wins(), tol=1e-12)
            expected = 1400 + POINTS_PER_LOG_ODDS * (other - other.mean())
            np.testing.assert_allclose(row, expected, atol=1e-4)
    assert boards["x"].interval == ("prompt bootstrap" if named else "battle bootstrap")


def test_its_error_is_the_scatter_of_the_resamples_and_near_the_sandwich():
    """Within the bootstrap's own error, 1 / sqrt(2 x 1000) = 2.2%, and 1 / 143."""
    some = tournament(143, 4)
    sandwich, resampled = rate(some), rate(some, interval="bootstrap")
    assert resampled.samples is not None and resampled.samples.shape == (1000, 4)
    assert resampled.parameters == {"n_bootstraps": 1000, "n_dropped": 0}
    covariance = np.cov(resampled.samples, rowvar=False)
    np.testing.assert_allclose(resampled.covariance, covariance)
    np.testing.assert_allclose(resampled.std_error, sandwich.std_error, rtol=0.07)
    np.testing.assert_array_equal(resampled.rating, sandwich.rating)
    row = rate(some, interval="percentile").row("b")
    ends = np.percentile(resampled.samples[:, 1], [2.5, 97.5])
    assert (row.ci_low, row.ci_high) == pytest.approx(tuple(ends))
    assert row.std_error == resampled.row("b").std_error


@pytest.mark.parametrize("constant", ["_MAX_CHORD_STEPS", "_MAX_NUMBERS_PER_BLOCK"])
def test_no_shortcut_of_the_bootstrap_changes_it(
    constant: str, monkeypatch: pytest.MonkeyPatch
):
    fits = {
        name: Fit.from_games(played(tournament(n, n)))
        for name, n in (("x", 12), ("y", 9))
    }
    expected = bootstrap_abilities(fits, n_bootstraps=40, seed=1)
    monkeypatch.setattr(bootstraps, constant, 1)
    found = bootstrap_abilities(fits, n_bootstraps=40, seed=1)
    for name in fits:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)


@pytest.mark.parametrize(
    ("n_upsets", "share", "is_given"), [(5, 0.0067, True), (1, 0.37, False)]
)
def test_resamples_without_finite_ratings_are_dropped_and_counted(
    n_upsets: int, share: float, is_given: bool, caplog: pytest.LogCaptureFixture
):
    """Only on n of the prompts does b ever win. All of them are missing from exp(-n) of the
    resamples. Without 5% of the resamples or more there is no telling where 95% of them end."""
    winners = ["model_b"] * n_upsets + ["model_a"] * (200 - n_upsets)
    some = [
        battle("a", "b", winner, question_id=f"q{q}")
        for q, winner in enumerate(winners)
    ]
    board = rate(some, interval="bootstrap")
    n_dropped = board.parameters["n_dropped"]
    assert n_dropped / 1000 == pytest.approx(share, abs=4 * math.sqrt(share / 1000))
    assert board.samples is not None and len(board.samples) == 1000 - n_dropped
    assert (board.row("a").std_error is not None) == is_given
    (warning,) = [
        r.getMessage() for r in caplog.records if r.levelno == logging.WARNING
    ]
    assert warning.startswith(f"d: {n_dropped:.0f} of 1000 resamples")
    assert ("Take interval=sandwich or more prompts" in warning) != is_given


# Data that cannot be rated, or look as if they could not


@EVERY_METHOD
def test_models_without_a_finite_rating_are_flagged_and_the_others_rated_as_if_alone(
    name: str,
):
    """In evalica a single battle against a newcomer turns every score into 1e-06; in arena-rank the
    newcomer gets 3,455 ± .03 points."""
    core = tournament(30, 6)
    extremes = [
        battle("best", "a"),
        battle("b", "worst"),
        battle("x", "y"),
        battle("y", "x"),
    ]
    alone, board = rate_by(name, core), rate_by(name, core + extremes)
    assert {r.model: r.flag for r in board.ratings if r.rating is None} == {
        "best": "unbeaten",
        "worst": "winless",
        "x": "disconnected",
        "y": "disconnected",
    }
    for model in "abcd":
        assert board.row(model).rating == alone.row(model).rating
        assert board.row(model).std_error == alone.row(model).std_error
    assert [r.rank for r in board.ratings] == [1, 2, 3, 4, None, None, None, None]
    assert (board.parameters, board.n_clusters) == (alone.parameters, 30)


def test_of_equally_large_groups_the_better_one_is_rated_then_the_one_with_more_games():
    wins = np.zeros((4, 4))
    wins[0, 1] = wins[1, 0] = 1
    wins[2, 3] = wins[3, 2] = 2
    np.testing.assert_array_equal(
        find_strongest_component(wins), [False, False, True, True]
    )
    wins[0, 2] = 1
    np.testing.assert_array_equal(
        find_strongest_component(wins), [True, True, False, False]
    )


def naive_component(wins: Array) -> set[int]:
    """The largest set in which chains of wins lead from everyone to everyone, by trying all."""
    m = len(wins)
    for size in range(m, 1, -1):
        for chosen in itertools.combinations(range(m), size):
            links = (wins[np.ix_(chosen, chosen)] > 0) | np.eye(size, dtype=bool)
            if (np.linalg.matrix_power(links.astype(float), size) > 0).all():
                return set(chosen)
    return set()


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, m=st.integers(1, 6), share=st.floats(0.05, 0.5))
def test_law_the_rated_are_a_largest_connected_set(seed: int, m: int, share: float):
    rng = np.random.default_rng(seed)
    wins = (rng.random((m, m)) < share).astype(float)
    np.fill_diagonal(wins, 0)
    found = find_strongest_component(wins)
    assert found.sum() == len(naive_component(wins))
    if found.any():
        assert find_strongest_component(wins[np.ix_(found, found)]).all()


ONE_BATTLE = st.builds(
    Battle,
    model_a=st.sampled_from("abcd"),
    model_b=st.sampled_from("abcd"),
    winner=st.sampled_from(["model_a", "model_b", "tie"]),
    question_id=st.sampled_from(["p", "q", None]),
).filter(lambda b: b.model_a != b.model_b)


BY_DRAWS = {"bootstrap": method(interval="bootstrap", n_bootstraps=20)}


@pytest.mark.parametrize(
    "one", {**METHODS, **BY_DRAWS}.values(), ids={**METHODS, **BY_DRAWS}
)
@settings(max_examples=40, deadline=None)
@given(some=st.lists(ONE_BATTLE, min_size=1, max_size=12))
def test_whatever_the_battles_no_rating_is_nan_or_infinite(
    one: RatingMethod, some: list[Battle]
):
    """A few battles among a few models, most of which cannot all be rated: JSON that has no NaN, and
    a flag for each model without a rating."""
    board = one.rate(by_dimension({"d": some}))["d"]
    json.dumps([r.to_dict() for r in board.ratings], allow_nan=False)
    json.dumps(dict(board.parameters), allow_nan=False)
    assert all((r.rating is None) == (r.flag is not None) for r in board.ratings)
    assert all(abs((r.rating or 1400) - 1400) < 10_000 for r in board.ratings)
    has_error = any(r.std_error is not None for r in board.ratings)
    assert np.isfinite(board.covariance).any() == has_error
