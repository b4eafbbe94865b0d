"""Bradley-Terry: worked examples, laws, second opinions, the prompt bootstrap, and data without a maximum.

choix stands beside the abilities, statsmodels beside the clustered errors, a loop beside the bootstrap, and simulated
tournaments of known strength beside the intervals.
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
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from elo_exp.data.battles import Battles
from elo_exp.ratings import bradley_terry
from elo_exp.ratings.bradley_terry import (
    POINTS,
    BradleyTerry,
    Fit,
    abilities,
    bootstrap,
    clustered_covariance,
    strongest_component,
    win_probability,
)
from elo_exp.ratings.games import Games, games
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, UserError
from tests.data import by_dimension
from tests.simulation import Tournament

SHIPPED = {
    "initial_rating": 1400.0,
    "use": "both",
    "interval": "sandwich",
    "n_bootstraps": 1000,
    "seed": 7,
}


def battle(a: str, b: str, winner: str = "model_a", **others: Any) -> Battle:
    return Battle(model_a=a, model_b=b, winner=winner, **others)


def method(**changes: Any) -> BradleyTerry:
    return BradleyTerry(**{**SHIPPED, **changes})


def rate(battles: list[Battle], **changes: Any) -> Leaderboard:
    return method(**changes).rate(by_dimension({"d": battles}))["d"]


def played(battles: list[Battle], use: str = "both") -> Games:
    return games(Battles.from_rows(battles), use=use)


def connected_wins(seed: int, m: int = 6) -> np.ndarray:
    rng = np.random.default_rng(seed)
    wins = rng.integers(0, 6, size=(m, m)).astype(float)
    np.fill_diagonal(wins, 0)
    wins[np.arange(m), (np.arange(m) + 1) % m] += 1  # a ring: everyone reaches everyone
    return wins


def tournament(n_prompts: int, seed: int) -> list[Battle]:
    return Tournament().battles(n_prompts, np.random.default_rng(seed))


# Worked examples


def test_two_models_by_hand():
    """75 wins of 100: the log-odds of the gap are log 3 with variance 1 / (100 x .75 x .25), and 100/99 for the estimate
    of the mean; each rating moves by half of the gap."""
    board = rate([battle("a", "b")] * 75 + [battle("b", "a")] * 25)
    error = POINTS / 2 * math.sqrt(1 / (100 * 0.75 * 0.25) * 100 / 99)
    for model, sign in (("a", 1), ("b", -1)):
        row = board.row(model)
        assert row.rating == pytest.approx(1400 + sign * 200 * math.log10(3))
        assert row.std_error == pytest.approx(error)
        interval = stats.t.interval(0.95, 99, row.rating, error)
        assert (row.ci_low, row.ci_high) == pytest.approx(interval)
    assert (board.label, board.interval) == ("Bradley-Terry", "independent battles")
    assert (board.n_matches, board.n_clusters, board.row("a").n_battles) == (
        100,
        100,
        100,
    )
    assert pytest.approx(173.7178, abs=1e-4) == POINTS


def test_a_tie_is_half_a_win_for_each():
    ties = [battle("a", "b", "tie"), battle("a", "b", "tie (bothbad)")]
    one, other = (
        rate([battle("a", "b")] * 2 + ties),
        rate([battle("a", "b")] * 3 + [battle("b", "a")]),
    )
    assert one.row("a").rating == pytest.approx(other.row("a").rating)


def test_a_perfect_cycle_rates_everyone_equal():
    board = rate([battle("a", "b"), battle("b", "c"), battle("c", "a")] * 5)
    assert [(r.rating, r.rank) for r in board.ratings] == [(pytest.approx(1400), 1)] * 3


def test_both_orders_are_two_games_unless_only_consistent_battles_count():
    flipped = [battle("a", "b", "tie", verdict_ab="model_a", verdict_ba="tie")]
    np.testing.assert_array_equal(played(flipped).wins(), [[0, 1.5], [0.5, 0]])
    np.testing.assert_array_equal(
        played(flipped, "consistent").wins(), [[0, 0.5], [0.5, 0]]
    )
    np.testing.assert_array_equal(played(flipped).ties(), [[0, 1], [1, 0]])
    once = [battle("a", "b", verdict_ab="model_a")]
    np.testing.assert_array_equal(played(once).wins(), [[0, 1], [0, 0]])


# Laws of the maximum

SEEDS = st.integers(0, 10**6)


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS)
def test_law_at_the_maximum_expected_wins_equal_wins(seed: int):
    """The gradient is zero there; no other place has that, because the likelihood is concave."""
    wins = connected_wins(seed)
    theta = abilities(wins)
    expected = ((wins + wins.T) * win_probability(theta)).sum(axis=1)
    np.testing.assert_allclose(expected, wins.sum(axis=1), rtol=0, atol=1e-9)
    assert theta.mean() == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(abilities(wins.T), -theta, atol=1e-9)
    order = np.random.default_rng(seed).permutation(len(wins))
    np.testing.assert_allclose(
        abilities(wins[np.ix_(order, order)]), theta[order], atol=1e-9
    )


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_law_it_does_not_matter_how_the_games_are_written_down(seed: int):
    """Rows in another order, pairs the other way round, the two orders as two rows."""
    other = {"model_a": "model_b", "model_b": "model_a"}
    some = tournament(12, seed)
    turned = [
        battle(
            b.model_b,
            b.model_a,
            other.get(str(verdict), "tie"),
            question_id=b.question_id,
        )
        for b in some
        for verdict in (b.verdict_ab, b.verdict_ba)
    ]
    random.Random(seed).shuffle(turned)
    once, again = rate(some), rate(turned)
    np.testing.assert_allclose(again.rating, once.rating, atol=1e-9)
    np.testing.assert_allclose(again.covariance, once.covariance, atol=1e-6)


def test_fractions_and_extreme_counts_converge():
    for wins in (
        [[0, 1e6, 1], [1, 0, 1e6], [1e-3, 1, 0]],
        [[0, 0.3, 2.25], [0.7, 0, 0.1], [1, 3, 0]],
    ):
        theta = abilities(np.array(wins))
        expected = ((wins + np.transpose(wins)) * win_probability(theta)).sum(axis=1)
        np.testing.assert_allclose(expected, np.sum(wins, axis=1), rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_choix_finds_the_same_abilities(seed: int):
    wins = connected_wins(seed)
    other = choix.ilsr_pairwise_dense(wins, tol=1e-12)
    np.testing.assert_allclose(abilities(wins), other - other.mean(), atol=1e-6)


# Errors


@pytest.mark.parametrize(
    "seed", [0, 1, *[pytest.param(s, marks=pytest.mark.slow) for s in range(2, 50)]]
)
def test_statsmodels_finds_the_same_clustered_errors(seed: int):
    """A logistic regression on entrant differences, the last model as origin; its small-sample factor divided out."""
    some = Tournament().games(143, np.random.default_rng([5, seed]))
    design = (np.eye(4)[some.first] - np.eye(4)[some.second])[:, :3]
    fit = statsmodels.GLM(
        some.score, design, family=statsmodels.families.Binomial()
    ).fit(cov_type="cluster", cov_kwds={"groups": some.cluster})
    factor = (len(design) - 1) / (len(design) - 3)
    ours = clustered_covariance(abilities(some.wins()), some)
    against_last = np.eye(4)[:3] - np.eye(4)[3]
    np.testing.assert_allclose(
        against_last @ ours @ against_last.T,
        fit.cov_params() / factor,
        rtol=2e-3,
        atol=1e-6,
    )


def test_asking_again_about_the_same_prompts_makes_nobody_surer_and_more_prompts_do():
    once, thrice = rate(tournament(40, 1)), rate(tournament(40, 1) * 3)
    np.testing.assert_allclose(thrice.rating, once.rating)
    np.testing.assert_allclose(thrice.std_error, once.std_error)
    few, many = rate(tournament(300, 2)), rate(tournament(1200, 3))
    np.testing.assert_allclose(few.std_error / many.std_error, 2, rtol=0.1)


def test_the_covariance_is_that_of_the_ratings():
    """In squared points, rows as models; the ratings' mean is fixed, so each row sums to zero."""
    board = rate([*tournament(40, 1), battle("best", "a", question_id="q1")])
    assert board.models == ("a", "b", "best", "c", "d")
    assert board.covariance is not None
    assert (
        np.isnan(board.covariance[2]).all() and np.isnan(board.covariance[:, 2]).all()
    )
    np.testing.assert_allclose(np.sqrt(np.diag(board.covariance)), board.std_error)
    np.testing.assert_allclose(np.nansum(board.covariance, axis=1), 0, atol=1e-9)
    assert (board.n_clusters, board.interval) == (40, "prompt-clustered")


@pytest.mark.parametrize("interval", ["sandwich", "bootstrap"])
@pytest.mark.parametrize("verdict", ["tie", "model_a"])
@pytest.mark.parametrize("n", [1, 20])
def test_prompts_that_do_not_differ_tell_no_error(n: int, verdict: str, interval: str):
    """A single prompt, or the same balance on each: ratings without an interval of no width."""
    orders = {"verdict_ab": verdict, "verdict_ba": verdict.replace("_a", "_b")}
    some = [battle("a", "b", "tie", question_id=f"q{q}", **orders) for q in range(n)]
    row = rate(some, interval=interval).row("a")
    assert (row.rating, row.std_error, row.ci_low, row.flag) == (1400, None, None, None)


def coverage(
    n_tournaments: int, *, n_prompts: int, n_bootstraps: int
) -> dict[str, float]:
    """The share of 95 % intervals that cover the true rating, over tournaments and four models."""
    truth = Tournament().true_ratings() / POINTS
    covered: dict[str, list[bool]] = {
        "sandwich": [],
        "bootstrap": [],
        "independent": [],
    }
    for seed in range(n_tournaments):
        some = Tournament().games(n_prompts, np.random.default_rng([n_prompts, seed]))
        fit = Fit.of(some)
        samples = bootstrap({"d": fit}, n_bootstraps=n_bootstraps, seed=seed)["d"]
        one_by_one = dataclasses.replace(
            some, cluster=np.arange(len(some.score)), prompts=np.arange(len(some.score))
        )
        errors = {
            "sandwich": np.sqrt(np.diag(fit.covariance)),
            "bootstrap": np.nanstd(samples, axis=0, ddof=1),
            "independent": np.sqrt(
                np.diag(clustered_covariance(fit.theta, one_by_one))
            ),
        }
        for name, error in errors.items():
            covered[name] += (np.abs(fit.theta - truth) < 1.96 * error).tolist()
    return {name: float(np.mean(hits)) for name, hits in covered.items()}


@pytest.mark.parametrize(
    ("n_tournaments", "n_prompts", "margin"),
    [
        (200, 143, 0.03),
        pytest.param(1500, 143, 0.02, marks=pytest.mark.slow),
        pytest.param(1500, 50, 0.02, marks=pytest.mark.slow),
    ],
)
def test_intervals_cover_the_truth_as_often_as_they_say(
    n_tournaments: int, n_prompts: int, margin: float
):
    """Games counted as independent of one another cover .85."""
    n_bootstraps = 100 if n_tournaments < 1000 else 1000
    covers = coverage(n_tournaments, n_prompts=n_prompts, n_bootstraps=n_bootstraps)
    print(f"\n{n_prompts} prompts: {covers}")
    assert covers["sandwich"] == pytest.approx(0.95, abs=margin)
    assert covers["bootstrap"] == pytest.approx(0.95, abs=margin)
    assert covers["independent"] < 0.9


# The prompt bootstrap


@pytest.mark.parametrize("named", [True, False])
def test_a_resample_is_the_fit_to_prompts_drawn_with_replacement(named: bool):
    """Written out, in two dimensions that share their prompts; battles without a question are drawn one by one."""
    battles = {"x": tournament(25, 1), "y": tournament(20, 2)}
    if not named:
        battles = {
            name: [dataclasses.replace(b, question_id=None) for b in some]
            for name, some in battles.items()
        }
    boards = method(interval="bootstrap", n_bootstraps=12).rate(by_dimension(battles))
    units = [f"q{q}" for q in range(25)] if named else list(range(45 * 6))
    draws = np.random.default_rng(7).integers(len(units), size=(12, len(units)))
    start = 0
    for dimension, some in battles.items():
        samples = boards[dimension].samples
        assert samples is not None
        for row, draw in zip(samples, draws, strict=True):
            if named:
                drawn = [b for q in draw for b in some if b.question_id == units[q]]
            else:
                drawn = [
                    some[t - start] for t in draw if start <= t < start + len(some)
                ]
            other = choix.ilsr_pairwise_dense(played(drawn).wins(), tol=1e-12)
            np.testing.assert_allclose(
                row, 1400 + POINTS * (other - other.mean()), atol=1e-4
            )
        start += len(some)
    assert boards["x"].interval == ("prompt bootstrap" if named else "battle bootstrap")


def test_its_error_is_the_scatter_of_the_resamples_and_near_the_sandwich():
    """Within the bootstrap's own error, 1 / sqrt(2 x 1000) = 2.2 %, and 1 / 143."""
    some = tournament(143, 4)
    sandwich, resampled = rate(some), rate(some, interval="bootstrap")
    assert resampled.samples is not None and resampled.samples.shape == (1000, 4)
    assert resampled.parameters == {"n_bootstraps": 1000, "n_dropped": 0}
    np.testing.assert_allclose(
        resampled.covariance, np.cov(resampled.samples, rowvar=False)
    )
    np.testing.assert_allclose(resampled.std_error, sandwich.std_error, rtol=0.07)
    np.testing.assert_array_equal(resampled.rating, sandwich.rating)
    row = rate(some, interval="percentile").row("b")
    ends = np.percentile(resampled.samples[:, 1], [2.5, 97.5])
    assert (row.ci_low, row.ci_high) == pytest.approx(tuple(ends))
    assert row.std_error == resampled.row("b").std_error


def test_dimensions_judged_alike_get_the_same_samples():
    """Also where one has a model without a rating."""
    some = tournament(30, 5)
    again = [battle("aa", "b", question_id="q3"), *reversed(some)]
    boards = method(interval="bootstrap", n_bootstraps=50).rate(
        by_dimension({"x": some, "y": again})
    )
    assert boards["y"].samples is not None and boards["y"].models == (
        "a",
        "aa",
        "b",
        "c",
        "d",
    )
    np.testing.assert_allclose(
        boards["y"].samples[:, [0, 2, 3, 4]], boards["x"].samples, atol=1e-4
    )
    assert np.isnan(boards["y"].samples[:, 1]).all()


@pytest.mark.parametrize(
    "changes", [{"_MAX_CHORD_STEPS": 1}, {"_NUMBERS_A_BLOCK": 1}], ids=str
)
def test_no_shortcut_of_the_bootstrap_changes_it(
    changes: dict[str, int], monkeypatch: pytest.MonkeyPatch
):
    fits = {name: Fit.of(played(tournament(n, n))) for name, n in (("x", 12), ("y", 9))}
    expected = bootstrap(fits, n_bootstraps=40, seed=1)
    for name, value in changes.items():
        monkeypatch.setattr(bradley_terry, name, value)
    found = bootstrap(fits, n_bootstraps=40, seed=1)
    for name in fits:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)


@pytest.mark.parametrize(
    ("n_upsets", "share", "is_given"), [(5, 0.0067, True), (1, 0.37, False)]
)
def test_resamples_without_finite_ratings_are_dropped_and_counted(
    n_upsets: int, share: float, is_given: bool, caplog: pytest.LogCaptureFixture
):
    """Only on n of the prompts does b ever win. All of them are missing from exp(-n) of the resamples. Without 5 % of
    the resamples or more there is no telling where 95 % of them end."""
    some = [
        battle("a", "b", "model_b" if q < n_upsets else "model_a", question_id=f"q{q}")
        for q in range(200)
    ]
    board = rate(some, interval="bootstrap")
    n_dropped = board.parameters["n_dropped"]
    assert n_dropped / 1000 == pytest.approx(share, abs=4 * math.sqrt(share / 1000))
    assert board.samples is not None and len(board.samples) == 1000 - n_dropped
    assert (board.row("a").std_error is not None) == is_given
    (warning,) = [
        r.getMessage() for r in caplog.records if r.levelno == logging.WARNING
    ]
    assert warning.startswith(
        f"d: {n_dropped:.0f} of 1000 resamples of the prompts leave no finite"
    )
    assert warning.endswith(
        "are dropped" if is_given else "Take interval=sandwich or more prompts"
    )


# Data that cannot be rated, or look as if they could not


def test_models_without_a_finite_rating_are_named_and_the_others_rated_as_if_alone():
    """In evalica a single battle against a newcomer turns every score into 1e-06; in arena-rank the newcomer gets
    3,455 ± .03 points."""
    core = tournament(300, 6)
    extremes = [
        battle("best", "a"),
        battle("b", "worst"),
        battle("x", "y"),
        battle("y", "x"),
    ]
    alone, board = rate(core), rate(core + extremes)
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


@pytest.mark.parametrize("interval", ["sandwich", "bootstrap"])
@pytest.mark.parametrize("n", [1, 30])
def test_of_nothing_but_wins_nobody_is_rated_and_of_nothing_but_ties_all_are_equal(
    n: int, interval: str
):
    won = rate(
        [battle("a", "b", question_id=f"q{q}") for q in range(n)], interval=interval
    )
    assert [(r.model, r.rating, r.flag) for r in won.ratings] == [
        ("a", None, "unbeaten"),
        ("b", None, "winless"),
    ]
    tied = rate(
        [battle("a", "b", "tie"), battle("b", "c", "tie (bothbad)")] * n,
        interval=interval,
    )
    assert [(r.rating, r.std_error, r.rank) for r in tied.ratings] == [
        (1400, None, 1)
    ] * 3
    assert method(interval=interval).rate(by_dimension({"d": []})) == {}


def test_of_equally_large_groups_the_better_one_is_rated_then_the_one_with_more_games():
    wins = np.zeros((4, 4))
    wins[0, 1] = wins[1, 0] = 1
    wins[2, 3] = wins[3, 2] = 2
    np.testing.assert_array_equal(strongest_component(wins), [False, False, True, True])
    wins[0, 2] = 1
    np.testing.assert_array_equal(strongest_component(wins), [True, True, False, False])


def naive_component(wins: np.ndarray) -> set[int]:
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
    found = strongest_component(wins)
    assert found.sum() == len(naive_component(wins))
    if found.any():
        assert strongest_component(wins[np.ix_(found, found)]).all()


def test_a_million_games_are_rated_like_any_others():
    rng = np.random.default_rng(8)
    first = rng.integers(50, size=10**6)
    second = (first + rng.integers(1, 50, size=10**6)) % 50
    theta = np.linspace(-1, 1, 50)
    score = (rng.random(10**6) < 1 / (1 + np.exp(theta[second] - theta[first]))).astype(
        float
    )
    every = np.arange(10**6)
    fit = Fit.of(
        Games(
            n_models=50,
            first=first,
            second=second,
            score=score,
            cluster=every,
            prompts=every,
        )
    )
    errors = np.sqrt(np.diag(fit.covariance))
    assert np.abs((fit.theta - theta) / errors).max() < 4
    assert errors == pytest.approx([0.0105] * 50, rel=0.1)


@pytest.mark.parametrize("interval", ["sandwich", "bootstrap"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_the_battles_no_rating_is_nan_or_infinite(
    interval: str, data: st.DataObject
):
    """A few battles among a few models, most of which cannot all be rated: JSON that has no NaN, and a flag for each
    model without a rating."""
    names = st.sampled_from("abcd")
    one = st.builds(
        Battle,
        model_a=names,
        model_b=names,
        winner=st.sampled_from(["model_a", "model_b", "tie"]),
        question_id=st.sampled_from(["p", "q", None]),
    ).filter(lambda b: b.model_a != b.model_b)
    board = rate(
        data.draw(st.lists(one, min_size=1, max_size=12)),
        interval=interval,
        n_bootstraps=20,
    )
    json.dumps([r.to_dict() for r in board.ratings], allow_nan=False)
    json.dumps(dict(board.parameters), allow_nan=False)
    assert all((r.rating is None) == (r.flag is not None) for r in board.ratings)
    assert board.covariance is not None
    has_error = any(r.std_error is not None for r in board.ratings)
    assert np.isfinite(board.covariance).any() == has_error


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (battle("a", "a"), "'a' battles itself. Expected two different models."),
        (
            battle("a", "b", "A"),
            "winner: found 'A'. Expected one of model_a, model_b, tie",
        ),
        (battle("a", "b", None), "winner: found None. Expected one of"),  # type: ignore[arg-type]
        (battle("a", "b", verdict_ab="A"), "verdict_ab: found 'A'. Expected one of"),
    ],
)
def test_a_battle_that_is_none_is_refused_and_never_a_silent_tie(
    row: Battle, message: str
):
    with pytest.raises(UserError) as refusal:
        rate([battle("a", "b"), battle("b", "a"), row])
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    "changes",
    [{"use": "some"}, {"interval": "wald"}, {"n_bootstraps": 1}, {"seed": -1}, {"initial_rating": math.nan}],
    ids=str,
)  # fmt: skip
def test_settings_out_of_range_are_refused(changes: dict[str, Any]):
    with pytest.raises(ValidationError):
        TypeAdapter(BradleyTerry).validate_python({**SHIPPED, **changes})
