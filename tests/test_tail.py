"""The end of a long order decides where Elo ends: beside whole orders, its draws, and what has none."""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import Any

import numpy as np
import pytest

from elo_exp.analysis.standings import Standings
from elo_exp.arrays import Array
from elo_exp.experiments.rated import count_matches_played
from elo_exp.ratings import elo
from elo_exp.ratings import tail as tails
from elo_exp.ratings.elo import PermutationElo, play, play_orders
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.ratings.games import Games, group_kinds
from elo_exp.ratings.tail import draw_ends, find_resample_tail, find_tail
from tests.simulation import Tournament

KS = (1.0, 4.0, 16.0, 64.0)
CLOSE = 2e-6  # rating points
SHIPPED: dict[str, Any] = {
    "k": 16.0,
    "n_perms": 500,
    "k_sweep": [1.0, 32.0],
    "seed": 7,
    "initial_rating": 1400.0,
    "ties": "drop",
    "shuffle": True,
    "n_bootstraps": 0,
    "perms_per_bootstrap": 10,
}


def method(**changes: Any) -> PermutationElo:
    return PermutationElo(**{**SHIPPED, **changes})


def world(
    m: int, n: int, *, ties: float = 0.0, across: float = 1.0, seed: int = 5
) -> Games:
    """n matches or fewer of m models, ten on a prompt; `across` of those between two halves are played."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(0.0, 0.8, m)
    first = rng.integers(m, size=n)
    second = (first + 1 + rng.integers(m - 1, size=n)) % m
    kept = ((first < m // 2) == (second < m // 2)) | (rng.random(n) < across)
    first, second = first[kept], second[kept]
    won = rng.random(len(first)) < 1 / (1 + np.exp(theta[second] - theta[first]))
    score = np.where(rng.random(len(first)) < ties, 0.5, won)
    cluster = np.arange(len(first)) // 10
    return Games(
        n_models=m,
        first=first,
        second=second,
        score=score.astype(np.float64),
        cluster=cluster,
        prompts=np.arange(cluster[-1] + 1),
        position=np.zeros(len(first)),
        is_one_order=False,
        battle=np.arange(len(first)),
    )


def apart(played: Games, ks: tuple[float, ...], n_lanes: int) -> dict[float, float]:
    """Rating points between whole orders and their ends, the largest over models and orders, by K."""
    first, second, score, kind = group_kinds(played)
    orders = np.tile(kind, (n_lanes, 1))
    np.random.default_rng(1).permuted(orders, axis=1, out=orders)
    rules: dict[str, Any] = {"n_models": played.n_models, "advance": lambda _: None}
    sides, end = np.array([first, second]), find_tail(played.wins(), ks)
    whole = play(sides, score, orders, ks=ks, **rules)
    found = {}
    for k, n in end.lengths.items():
        ends = play(sides, score, orders[:, -n:], ks=[k], start=end.start, **rules)
        gaps = np.abs(ends[:, :, 0] - whole[:, :, ks.index(k)])
        found[k] = POINTS_PER_LOG_ODDS * float(gaps.max())
    return found


@pytest.mark.parametrize(
    ("m", "n", "n_lanes", "ks"),
    [
        (5, 150_000, 8, KS),
        (20, 120_000, 20, KS[2:]),
        *(
            pytest.param(m, 900_000, 200, KS, marks=pytest.mark.slow)
            for m in (5, 20, 300)
        ),
    ],
)
def test_whole_orders_and_their_ends_are_equal(
    m: int, n: int, n_lanes: int, ks: tuple[float, ...]
):
    found = apart(world(m, n, ties=0.1), ks, n_lanes)
    assert set(found) == set(ks[2:] if m == 300 else ks)
    assert max(found.values()) < CLOSE, found


def test_the_length_by_hand():
    """Two equals: p (1 - p) = 1/4, and a match takes 2 / 4 of K / POINTS off a gap, so that lambda is 1/2.
    At K = 32 in the mean 400 points are 1e-6 after log(4e8) / (.184 / 2) = 215 matches; four standard
    deviations are 19.3%, the steps' length 4.6%."""
    in_the_mean = math.log(4e8) / (32 / POINTS_PER_LOG_ODDS / 2)
    wins = np.array([[0.0, 50_000.0], [50_000.0, 0.0]])
    end = find_tail(wins, [32.0])
    np.testing.assert_allclose(end.start, 0.0, atol=1e-9)
    assert end.lengths[32.0] == pytest.approx(in_the_mean * 1.239, abs=1.0)


def test_few_matches_thin_designs_models_without_a_limit_and_large_k_are_played_whole(
    monkeypatch: pytest.MonkeyPatch,
):
    many = world(5, 110_000)
    assert set(find_tail(many.wins(), [16.0, 65.0]).lengths) == {16.0}
    assert not find_tail(world(5, 99_000).wins(), KS).lengths
    assert not find_tail(world(20, 210_000, across=1e-3).wins(), KS).lengths
    unbeaten = dataclasses.replace(
        many,
        score=np.where(
            many.second == 0, 0.0, np.where(many.first == 0, 1.0, many.score)
        ),
    )
    assert not find_tail(unbeaten.wins(), KS).lengths
    absent = np.pad(many.wins(), (0, 1))  # a model that ties alone, which are dropped
    end = find_tail(absent, [16.0])
    assert end.lengths and end.start[-1] == 0.0
    monkeypatch.setattr(tails, "MIN_MATCHES_FOR_TAIL", 1_000)
    thin = world(20, 4_000, across=1e-2)
    rules: dict[str, Any] = {"ks": [16.0, 32.0], "n_perms": 3, "seed": 2}
    end = find_tail(thin.wins(), rules["ks"])
    np.testing.assert_array_equal(
        play_orders(thin, end=end, **rules), play_orders(thin, **rules)
    )


def test_a_k_that_needs_all_shares_its_orders_with_those_that_do_not(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(tails, "MIN_MATCHES_FOR_TAIL", 1_000)
    some = world(5, 12_000, ties=0.2)
    rules: dict[str, Any] = {"ks": [1.0, 32.0, 64.0], "n_perms": 5, "seed": 2}
    end, told = find_tail(some.wins(), rules["ks"]), list[float]()
    assert set(end.lengths) == {32.0, 64.0}
    whole, cut = (
        play_orders(some, **rules),
        play_orders(some, end=end, advance=told.append, **rules),
    )
    np.testing.assert_array_equal(cut[..., 0], whole[..., 0])
    np.testing.assert_allclose(cut, whole, rtol=0, atol=CLOSE / POINTS_PER_LOG_ODDS)
    assert sum(told) == pytest.approx(5.0)


def test_ends_are_drawn_without_replacement_and_in_any_order():
    """Of 12 matches of three kinds 6: by kind or by match, as the counts' size asks for."""
    counts, rng = np.array([2, 4, 6]), np.random.default_rng(1)
    lanes = draw_ends(counts, 6, n_lanes=4_000, rng=rng)
    assert lanes.dtype == np.uint8
    times = np.stack([(lanes == kind).sum(axis=1) for kind in range(3)], axis=1)
    assert (times <= counts).all() and (times.sum(axis=1) == 6).all()
    share = counts / 12
    np.testing.assert_allclose(times.mean(axis=0), 6 * share, atol=0.05)
    variance = 6 * share * (1 - share) * 6 / 11  # hypergeometric
    np.testing.assert_allclose(times.var(axis=0), variance, rtol=0.1)
    for place in (0, 5):
        found = np.bincount(lanes[:, place], minlength=3) / 4_000
        np.testing.assert_allclose(found, share, atol=0.03)
    many = draw_ends(np.full(1_000, 100), 90, n_lanes=50, rng=rng)  # by match
    assert len(np.unique(many)) > 900
    beyond = draw_ends(np.array([10**9, 3 * 10**9]), 400, n_lanes=50, rng=rng)
    assert beyond.mean() == pytest.approx(0.75, abs=0.02)


def test_resamples_take_the_longest_end_of_theirs_or_are_played_whole(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(tails, "MIN_MATCHES_FOR_TAIL", 1_000)
    some = world(5, 12_000)
    end = find_tail(some.wins(), [32.0])
    times = np.random.default_rng(2).poisson(1.0, size=(8, some.n_clusters))
    longest = find_resample_tail(end, 32.0, some, times)
    assert end.lengths[32.0] < longest.lengths[32.0] < 1.2 * end.lengths[32.0]
    times[3, np.unique(some.cluster[(some.first == 0) | (some.second == 0)])[:-2]] = 0
    assert not find_resample_tail(end, 32.0, some, times).lengths
    assert not find_resample_tail(end, 16.0, some, times).lengths
    rules: dict[str, Any] = {"ks": [32.0], "n_perms": 2, "seed": 1, "times": times[:3]}
    found = POINTS_PER_LOG_ODDS * play_orders(some, end=longest, **rules)
    expected = POINTS_PER_LOG_ODDS * play_orders(some, **rules)
    assert found.shape == expected.shape == (3, 2, 5, 1)
    assert np.abs(found - expected).max() < 200  # other orders of the same resamples


# A method's whole


def test_mean_error_and_counts_of_a_long_file_are_those_of_whole_orders(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Means agree within their Monte Carlo errors, standard errors within that of 60 draws."""
    some = {"d": Tournament().columns(2_000, np.random.default_rng(3))}
    rules: dict[str, Any] = {"k_sweep": [64.0], "n_perms": 200, "n_bootstraps": 60}
    rules |= {"k": 32.0, "perms_per_bootstrap": 4}
    whole = method(**rules).rate_each_k(some)["d"]
    monkeypatch.setattr(tails, "MIN_MATCHES_FOR_TAIL", 1_000)
    monkeypatch.setattr(elo, "_MIN_ANNOUNCED_UPDATES", 1_000)
    with caplog.at_level(logging.INFO):
        cut = method(**rules).rate_each_k(some)["d"]
    n = whole[32.0].n_matches
    for k, board in cut.items():
        assert board.n_matches == n > 2 * (board.parameters["matches_played"] or n)
        assert "matches_played" not in whole[k].parameters
        errors = board.ordering_error, whole[k].ordering_error
        assert errors[0] is not None and errors[1] is not None
        off = (board.rating - whole[k].rating) / np.hypot(*errors)
        assert np.abs(off).max() < 4.0
    ratio = np.array(cut[32.0].std_error) / np.array(whole[32.0].std_error)
    np.testing.assert_allclose(ratio, 1.0, atol=0.4)
    rated = Standings(models=(), battles=some, elo_by_k={"d": cut}, boards={})
    expected = {str(k): b.parameters["matches_played"] for k, b in cut.items()}
    assert count_matches_played(rated) == {"elo": {"matches_played": {"d": expected}}}
    assert count_matches_played(dataclasses.replace(rated, elo_by_k={"d": whole})) == {}
    (line,) = (text for text in caplog.messages if "Elo replays" in text)
    assert line.startswith(
        f"Elo replays {n:,} matches in 200 shuffles for 2 values of K and in 240 shuffles of resampled prompts: "
    )
    assert line.endswith(
        "million updates. Smaller elo.n_perms and elo.n_bootstraps take less time"
    )


UNEVEN = Tournament(
    ratings=(0.0, 20.0, 150.0, 180.0, 240.0, 400.0),
    quality=2.0,
    pair_noise=0.3,
    ties=0.05,
    first_shown=0.7,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tournament", "n_prompts", "k"), [(Tournament(), 900, 32.0), (UNEVEN, 900, 48.0)]
)
def test_the_interval_covers_where_ends_alone_are_played(
    monkeypatch: pytest.MonkeyPatch, tournament: Tournament, n_prompts: int, k: float
):
    """Of 2,000 files; the mean over all stands for the truth of Elo's own estimand. 40 orders of each draw:
    what few of them add would be taken off up to 60% alone, and the interval be too wide."""
    monkeypatch.setattr(tails, "MIN_MATCHES_FOR_TAIL", 1_000)
    rules = method(
        k=k, k_sweep=[], n_perms=200, n_bootstraps=100, perms_per_bootstrap=40
    )
    boards = []
    for seed in range(2_000):
        rng = np.random.default_rng(seed)
        board = rules.rate({"d": tournament.columns(n_prompts, rng)})["d"]
        assert "matches_played" in board.parameters
        boards.append(board)
    ratings, low, high = (
        np.array([getattr(board, name) for board in boards])
        for name in ("rating", "ci_low", "ci_high")
    )
    truth: Array = ratings.mean(axis=0)
    covers = ((low <= truth) & (truth <= high)).mean()
    print(f"\ncoverage of Elo's 95% interval, ends alone played: {covers:.3f}")
    assert 0.94 <= covers <= 0.96
