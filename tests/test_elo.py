"""Permutation Elo: the specification as a plain loop beside the kernel, laws, its limit, and its standard error."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from elo_exp.data.battles import Battles
from elo_exp.ratings import elo
from elo_exp.ratings.bradley_terry import POINTS
from elo_exp.ratings.elo import (
    Matches,
    PermutationElo,
    convergence,
    replay,
    replay_resamples,
)
from elo_exp.ratings.leaderboard import CONVERGED, Leaderboard
from elo_exp.records import Battle, UserError
from tests.data import by_dimension
from tests.simulation import Tournament

Game = tuple[int, int, float]  # two models, and what the first scored
SHIPPED = {
    "k": 16.0,
    "n_perms": 20,
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


def rate(battles: list[Battle], **changes: Any) -> Leaderboard:
    return method(**changes).rate(by_dimension({"d": battles}))["d"]


def battle(a: str, b: str, winner: str = "model_a", **others: Any) -> Battle:
    return Battle(model_a=a, model_b=b, winner=winner, **others)


WORDS = {1.0: "model_a", 0.5: "tie", 0.0: "model_b"}


def battles_of(games: Sequence[Game]) -> list[Battle]:
    return [battle("abcdefgh"[i], "abcdefgh"[j], WORDS[score]) for i, j, score in games]


def matches(games: Sequence[Game]) -> Matches:
    return Matches.of(Battles.from_rows(battles_of(games)))


def random_games(
    n: int, *, n_models: int = 4, seed: int = 0, ties: float = 0.0
) -> list[Game]:
    """The first games let everybody play."""
    rng = np.random.default_rng(seed)
    pairs = [(i, (i + 1) % n_models) for i in range(n_models)]
    pairs += [
        tuple(rng.permutation(n_models)[:2].tolist()) for _ in range(n - n_models)
    ]
    scores = np.where(rng.random(n) < ties, 0.5, rng.integers(2, size=n)).tolist()
    return [(i, j, score) for (i, j), score in zip(pairs, scores, strict=True)][:n]


def played(games: Sequence[Game], **rules: Any) -> np.ndarray:
    """Ratings (p, m, k)."""
    rules = {"ks": [16.0], "n_perms": 3, "seed": 1, **rules}
    return 1400 + POINTS * replay([matches(games)], **rules)[0]


def reference(
    games: Sequence[Game], *, k: float, n_perms: int, seed: int
) -> np.ndarray:
    """The specification, word for word: one pass over the matches for each permutation."""
    rng = np.random.default_rng(seed)
    n_models = 1 + max(max(i, j) for i, j, _ in games)
    ratings = np.full((n_perms, n_models), 1400.0)
    for r in ratings:
        for t in rng.permutation(len(games)):
            a, b, score = games[t]
            expected = 1 / (1 + 10 ** ((r[b] - r[a]) / 400))
            r[a] += k * (score - expected)
            r[b] -= k * (score - expected)
    return ratings


# The kernel


def test_two_matches_by_hand():
    """K = 32, both at 1400. a beats b: 1416, 1384. Again: E = 1 / (1 + 10^(-32/400)) = 0.5459, gain 14.53. A tie then
    moves the stronger down."""
    ratings = played([(0, 1, 1.0)] * 2, ks=[32.0], n_perms=1, seed=None)
    assert ratings[0, :, 0] == pytest.approx([1430.53, 1369.47], abs=0.005)
    expected = 1 / (1 + 10 ** (-32 / 400))
    tied = played([(0, 1, 1.0), (0, 1, 0.5)], ks=[32.0], n_perms=1, seed=None)
    moved = 32 * (0.5 - expected)
    assert tied[0, :, 0] == pytest.approx([1416 + moved, 1384 - moved], abs=1e-9)


@pytest.mark.parametrize("lengths", [(60, 60, 60), (60, 41, 23), (4, 300)])
@pytest.mark.parametrize("ties", [0.0, 0.3])
def test_every_k_and_dimension_equals_the_plain_loop(
    lengths: tuple[int, ...], ties: float
):
    ks = [0.5, 1, 16, 32, 100]
    games = [random_games(n, seed=n, ties=ties) for n in lengths]
    found = replay([matches(g) for g in games], ks=ks, n_perms=12, seed=20260425)
    for log_odds, some in zip(found, games, strict=True):
        for i, k in enumerate(ks):
            expected = reference(some, k=k, n_perms=12, seed=20260425)
            np.testing.assert_allclose(
                1400 + POINTS * log_odds[:, :, i], expected, atol=1e-9
            )


def test_blocks_continue_one_random_stream(monkeypatch: pytest.MonkeyPatch):
    """Of permutations and of resamples; the progress told adds up to the orders that are played."""
    some = [matches(random_games(n, ties=0.2)) for n in (100, 70)]
    rules: dict[str, Any] = {"n_perms": 30, "seed": 3}
    times = np.random.default_rng(1).integers(3, size=(20, 100)).astype(np.uint8)
    whole = replay(some, ks=[8, 16], **rules)
    resampled = replay_resamples(some[0], times, np.arange(100), k=16, **rules)
    monkeypatch.setattr(elo, "_BLOCK_BYTES", 0)
    monkeypatch.setattr(elo, "_BLOCK_ORDERS", 7)
    told: list[float] = []
    for here, there in zip(
        whole, replay(some, ks=[8, 16], **rules, tell=told.append), strict=True
    ):
        np.testing.assert_array_equal(here, there)
    assert sum(told) == pytest.approx(2 * 30)
    again = replay_resamples(some[0], times, np.arange(100), k=16, **rules)
    np.testing.assert_array_equal(again, resampled)


def test_many_kinds_of_match_need_no_more_memory_than_their_numbers():
    few, many = (
        matches(random_games(300, ties=0.2)),
        matches(random_games(3000, n_models=8)),
    )
    assert (few.order.itemsize, len(few.first) <= 24) == (1, True)
    assert (many.order.itemsize, len(many.first)) == (1, 8 * 7)


def test_resamples_play_each_match_as_often_as_it_is_drawn():
    """Those of a cluster together."""
    games = [(0, 1, 1.0), (1, 2, 0.5), (2, 0, 1.0), (0, 2, 1.0)]
    counts = np.array([[2, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 3], [1, 1, 1, 1]])
    rules: dict[str, Any] = {"n_perms": 1, "seed": None}
    found = replay_resamples(matches(games), counts, np.arange(4), k=16.0, **rules)
    for row, log_odds in zip(counts, found, strict=True):
        drawn = np.repeat(np.arange(4), row)
        expected = np.zeros((1, 3))
        if len(drawn):
            some = dataclasses.replace(
                matches(games), order=matches(games).order[drawn]
            )
            expected = replay([some], ks=[16.0], **rules)[0][:, :, 0]
        np.testing.assert_allclose(log_odds, expected)
    cluster, times = np.array([0, 1, 1, 0]), np.array([[2, 0], [1, 1], [0, 3]])
    shuffled: dict[str, Any] = {"k": 16.0, "n_perms": 5, "seed": 3}
    np.testing.assert_array_equal(
        replay_resamples(matches(games), times, cluster, **shuffled),
        replay_resamples(matches(games), times[:, cluster], np.arange(4), **shuffled),
    )


# Laws

one_game = st.tuples(
    st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])
)
four = st.lists(
    one_game.filter(lambda game: game[0] != game[1]), min_size=1, max_size=40
).map(lambda games: [*games, (0, 1, 1.0), (2, 3, 1.0)])
KS = st.floats(0.01, 100)
SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(games=four, k=KS, seed=SEEDS, relabel=st.permutations(range(4)))
def test_law_points_are_conserved_mirrored_and_nameless(
    games: list[Game], k: float, seed: int, relabel: list[int]
):
    ratings = played(games, ks=[k], seed=seed)
    np.testing.assert_allclose(ratings.sum(axis=1), 4 * 1400, atol=1e-8)
    mirrored = played([(i, j, 1 - score) for i, j, score in games], ks=[k], seed=seed)
    np.testing.assert_allclose(mirrored - 1400, 1400 - ratings, atol=1e-8)
    turned = played([(j, i, 1 - score) for i, j, score in games], ks=[k], seed=seed)
    np.testing.assert_allclose(turned, ratings, atol=1e-8)
    renamed = played(
        [(relabel[i], relabel[j], s) for i, j, s in games], ks=[k], seed=seed
    )
    np.testing.assert_allclose(renamed[:, relabel], ratings, atol=1e-8)


def test_twice_the_scale_and_twice_k_double_every_distance(
    monkeypatch: pytest.MonkeyPatch,
):
    games = random_games(40)
    narrow = replay([matches(games)], ks=[16.0], n_perms=3, seed=1)[0]
    monkeypatch.setattr(
        elo, "POINTS", 2 * POINTS
    )  # 800 points for a factor of ten in the odds
    wide = replay([matches(games)], ks=[32.0], n_perms=3, seed=1)[0]
    np.testing.assert_allclose(wide, narrow, atol=1e-12)


def test_for_small_k_a_rating_counts_half_of_wins_minus_losses():
    """And the order matters to second order in K."""
    games = random_games(200)
    balance = np.zeros(4)
    for i, j, score in games:
        balance[i] += 2 * score - 1
        balance[j] -= 2 * score - 1
    ks = [1e-4, 1e-2]
    ratings = played(games, ks=ks, n_perms=50)
    slope = np.abs((ratings.mean(axis=0) - 1400) / ks - balance[:, None] / 2).max(
        axis=0
    )
    assert slope[0] < 0.015 * slope[1]
    spread = ratings.std(axis=0) / np.square(ks)
    np.testing.assert_allclose(spread[:, 0], spread[:, 1], rtol=0.05)


def test_the_mean_over_all_orders_follows_its_second_order_formula():
    """E[R] = R0 + (K/2) sum d_t - (c K^2/16) sum_t (sum_{s != t} d_s.d_t) d_t + O(K^3), with d_t = e_winner - e_loser
    and c = ln 10 / 400: a wrong K, scale, shuffle or sign breaks it."""
    games = [(i, j, 1.0) for i, j, _ in random_games(6, n_models=3, seed=5)]
    d = np.zeros((6, 3))
    for t, (winner, loser, _) in enumerate(games):
        d[t, winner], d[t, loser] = 1, -1
    inner = d @ d.T - np.diag(np.square(d).sum(axis=1))
    ks = np.array([0.05, 0.2, 0.8])
    every = [
        played([games[t] for t in order], ks=ks.tolist(), n_perms=1, seed=None)[0]
        for order in itertools.permutations(range(6))
    ]
    second = (
        (d * inner.sum(axis=0)[:, None]).sum(axis=0)[:, None]
        * (math.log(10) / 400)
        / 16
    )
    formula = 1400 + d.sum(axis=0)[:, None] * ks / 2 - second * ks**2
    residual = (np.mean(every, axis=0) - formula) / ks**3
    assert np.abs(np.mean(every, axis=0) - formula).max() < 1e-5
    np.testing.assert_allclose(residual[:, 1], residual[:, 2], rtol=0.05, atol=1e-7)


# Leaderboards


def test_a_leaderboard_has_the_mean_and_its_monte_carlo_error():
    some = battles_of(random_games(300))
    few, many = rate(some, n_perms=250), rate(some, n_perms=1000)
    assert few.samples is not None and few.ordering_error is not None
    np.testing.assert_allclose(few.rating, few.samples.mean(axis=0))
    np.testing.assert_allclose(
        few.ordering_error, few.samples.std(axis=0, ddof=1) / math.sqrt(250)
    )
    np.testing.assert_allclose(few.ordering_error / many.ordering_error, 2, rtol=0.15)
    assert (few.label, few.interval, few.n_matches) == ("Elo", None, 300)
    identical = rate([battle("a", "b")] * 30)
    assert max(r.ordering_error or 0 for r in identical.ratings) < 1e-9


def test_k_joins_the_sweep_and_all_share_their_orders():
    some = by_dimension({"d": battles_of(random_games(40))})
    boards = method(k=2.5, k_sweep=[1, 8]).sweep(some)["d"]
    assert list(boards) == [1.0, 2.5, 8.0]
    for k, board in boards.items():
        alone = method(k=k, k_sweep=[]).rate(some)["d"]
        np.testing.assert_array_equal(alone.samples, board.samples)
        assert board.parameters["k"] == k
        assert board.parameters["convergence"] == convergence(
            k, n_matches=40, n_models=4
        )


def test_ties_are_dropped_scored_half_or_treated_by_a_class_of_one_s_own():
    some = [
        battle("a", "b"),
        battle("a", "b", "tie"),
        battle("b", "a", "tie (bothbad)"),
    ]
    assert [rate(some, ties=ties).n_matches for ties in ("drop", "half")] == [1, 3]

    class BothBadIsDropped(PermutationElo):
        def played(self, battles: Battles) -> Battles:
            return battles.select(battles.winner != 3)

    (board,) = BothBadIsDropped(**SHIPPED).rate(by_dimension({"d": some})).values()
    assert board.n_matches == 2
    assert board.row("a").rating == rate(some[:2], ties="half").row("a").rating


def test_without_shuffling_there_is_one_pass_and_no_ordering_error():
    board = rate([battle("a", "b"), battle("b", "a")], shuffle=False)
    assert board.samples is not None and board.samples.shape == (1, 2)
    assert [r.ordering_error for r in board.ratings] == [0.0, 0.0]


def test_no_decisive_match_leaves_the_dimension_empty(caplog: pytest.LogCaptureFixture):
    some = by_dimension({"tied": [battle("a", "b", "tie")], "won": [battle("a", "b")]})
    boards = method().sweep(some)
    assert boards["tied"] == {} and boards["won"]
    assert method().limit(some)["tied"] == {}
    assert "tied: no decisive match" in caplog.text


def test_a_rating_that_says_little_is_named():
    """Elo gives a number to everybody, also to who lost one match, met nobody of the others, or never played."""
    some = [battle("a", "b")] * 5 + [battle("b", "a")] * 3
    some += [
        battle("a", "loser"),
        battle("winner", "b"),
        battle("x", "y"),
        battle("y", "x"),
    ]
    board = rate([*some, battle("a", "tied", "tie")])
    assert {r.model: r.flag for r in board.ratings} == {
        **{"a": None, "b": None, "loser": "winless", "winner": "unbeaten"},
        **{"x": "disconnected", "y": "disconnected", "tied": "no match"},
    }
    assert all(r.rating is not None for r in board.ratings)
    assert (board.row("tied").rating, board.row("tied").n_battles) == (1400, 0)


def test_many_passes_with_a_small_k_end_at_bradley_terry():
    counts = {
        ("a", "b"): 30,
        ("b", "a"): 10,
        ("b", "c"): 24,
        ("c", "b"): 12,
        ("c", "a"): 5,
    }
    some = [battle(*pair) for pair, n in counts.items() for _ in range(n)]
    limit = method().limit(by_dimension({"d": some}))["d"]
    board = rate(some * 400, k=0.25, n_perms=200, k_sweep=[])
    for model in "abc":
        assert board.row(model).rating == pytest.approx(limit[model], abs=1)
    without_c = [b for b in some if b.winner != "model_a" or b.model_a != "c"]
    assert (
        method().limit(by_dimension({"d": without_c}))["d"] == {}
    )  # c sinks without end


def test_the_largest_values_that_are_taken_overflow_nowhere():
    """Warnings are errors here. What one gains another loses, so that the mean stays where it was."""
    rng = np.random.default_rng(1)
    pairs = [rng.permutation(20)[:2] for _ in range(500)]
    some = [battle(f"m{i:02}", f"m{j:02}") for i, j in pairs]
    board = rate(some, k=1000, initial_rating=1e6)
    assert np.mean(board.rating) == pytest.approx(1e6)


@pytest.mark.parametrize(
    "changes",
    [{"k": 0}, {"k_sweep": [4, -1]}, {"k": math.inf}, {"k_sweep": [4, 100000]}, {"n_perms": 0},
     {"seed": -1}, {"initial_rating": math.nan}, {"initial_rating": 1e308}, {"ties": "maybe"},
     {"n_bootstraps": -1}, {"perms_per_bootstrap": 0}],
    ids=str,
)  # fmt: skip
def test_settings_out_of_range_are_refused(changes: dict[str, Any]):
    with pytest.raises(ValidationError):
        TypeAdapter(PermutationElo).validate_python({**SHIPPED, **changes})
    with pytest.raises(
        UserError, match="n_bootstraps: found 1. Expected 2 or more, or 0"
    ):
        method(n_bootstraps=1)


# Convergence


@pytest.mark.parametrize(
    ("k", "n_matches", "share"),
    [(1, 1373, 0.73), (1, 480, 0.37), (4, 480, 0.84), (16, 1373, 1.0)],
)
def test_how_much_of_its_way_elo_has_gone(k: float, n_matches: int, share: float):
    """A headline and a pilot run, both orders."""
    assert convergence(k, n_matches=n_matches, n_models=4) == pytest.approx(
        share, abs=0.005
    )


def test_the_share_is_what_the_mean_over_orders_shows():
    """Near equality the mean gap of two is the converged one, 400 log10(52 / 48), times that share."""
    ratings = played(
        [(0, 1, 1.0)] * 52 + [(1, 0, 1.0)] * 48, ks=[2.0], n_perms=4000
    ).mean(axis=0)
    share = convergence(2.0, n_matches=100, n_models=2)
    assert share == pytest.approx(0.44, abs=0.005)
    gap = ratings[0, 0] - ratings[1, 0]
    assert gap == pytest.approx(share * 400 * math.log10(52 / 48), rel=0.02)


@pytest.mark.parametrize("n_models", [2, 4, 20])
@pytest.mark.parametrize("n_matches", [10, 480, 1373])
def test_the_least_k_that_converges_is_that_of_the_formula(
    n_matches: int, n_models: int
):
    """STATISTICS.md section 5: where 1 - exp(-K N / (2 (m - 1) 173.72)) = .95."""
    k = -math.log(0.05) * 2 * (n_models - 1) * 400 / math.log(10) / n_matches
    below, above = (
        convergence(k * x, n_matches=n_matches, n_models=n_models)
        for x in (1 - 1e-9, 1 + 1e-9)
    )
    assert below < CONVERGED < above


# The standard error: how much the mean would move with other prompts


def simulated(seed: int, n_prompts: int = 143) -> list[Battle]:
    return Tournament().battles(n_prompts, np.random.default_rng(seed))


def bootstrapped(battles: list[Battle], **changes: Any) -> Leaderboard:
    return rate(battles, **{"n_bootstraps": 200, "k_sweep": [4.0], **changes})


@pytest.mark.parametrize(
    ("n", "margin"), [(60, 0.15), pytest.param(600, 0.08, marks=pytest.mark.slow)]
)
def test_it_is_the_scatter_over_data_sets(n: int, margin: float):
    """60 data sets give their own scatter within 9 %; the bootstrap of each is within 7 % of its mean. Of 600, the mean
    over all stands for the truth of Elo's own estimand."""
    boards = [
        bootstrapped(simulated(seed), n_perms=100, k_sweep=[]) for seed in range(n)
    ]
    assert {board.interval for board in boards} == {"prompt bootstrap"}
    ratings, errors, low, high, ordering = (
        np.array([getattr(board, name) for board in boards])
        for name in ("rating", "std_error", "ci_low", "ci_high", "ordering_error")
    )
    ratio = np.sqrt((errors**2).mean(axis=0).sum() / ratings.var(axis=0, ddof=1).sum())
    assert ratio == pytest.approx(1.0, abs=margin)
    if n == 600:
        truth = ratings.mean(axis=0)
        covers = ((low <= truth) & (truth <= high)).mean()
        of_ordering = (np.abs(ratings - truth) < 1.96 * ordering).mean()
        print(
            f"\ncoverage of Elo's 95 % interval {covers:.3f}; of mean ± 1.96 SEM {of_ordering:.3f}"
        )
        assert 0.93 <= covers <= 0.97


def test_few_orders_of_each_draw_do_not_widen_it():
    few, many = (
        bootstrapped(
            simulated(1), n_perms=1, n_bootstraps=2000, perms_per_bootstrap=n
        ).std_error
        for n in (2, 30)
    )
    np.testing.assert_allclose(few, many, rtol=0.1)


def test_verdicts_on_one_prompt_are_drawn_together():
    """Ten copies of each battle on its own prompt say nothing new. K is small: Elo is K times a sum."""
    some = [
        battle("a", "b", f"model_{'aab'[q % 3]}", question_id=f"q{q}")
        for q in range(30)
    ]
    once, together = (
        bootstrapped(b, k=0.02).row("a").std_error for b in (some, some * 10)
    )
    assert together == pytest.approx(10 * (once or 0.0), rel=0.02)


@pytest.mark.parametrize(
    ("battles", "changes"),
    [
        ([battle("a", "b", question_id="q")] * 5, {}),
        ([dataclasses.replace(b, question_id="q") for b in simulated(1, 20)], {}),
        (
            [
                dataclasses.replace(b, question_id=q)
                for b in simulated(1, 1) * 2
                for q in "pqr"
            ],
            {},
        ),
        (simulated(1, 20), {"n_bootstraps": 0}),
    ],
    ids=[
        "one prompt of one battle",
        "one prompt",
        "prompts that say the same",
        "n_bootstraps=0",
    ],
)
def test_where_prompts_do_not_differ_or_are_not_drawn_there_is_none(
    battles: list[Battle], changes: dict[str, Any]
):
    board = bootstrapped(battles, **changes)
    assert {(r.std_error, r.ci_low, r.ci_high) for r in board.ratings} == {
        (None, None, None)
    }


@pytest.mark.parametrize("ties", ["drop", "half"])
@pytest.mark.parametrize("winner", ["model_a", "model_b", "tie"])
def test_who_only_wins_loses_or_ties_has_none_and_the_others_have(
    winner: str, ties: str
):
    """d against each of the others on every prompt; with ties dropped, d that only ties does not play."""
    some = [b for b in simulated(1, 40) if "d" not in b.models]
    some += [battle("d", "abc"[q % 3], winner, question_id=f"{q}") for q in range(40)]
    board = bootstrapped(some, ties=ties)
    assert {r.model for r in board.ratings if r.std_error is None} == {"d"}


def test_only_the_primary_k_has_one_and_the_samples_are_those_without_it():
    some = by_dimension({"d": simulated(1, 30)})
    with_it, without = (
        method(n_bootstraps=n, k_sweep=[4.0]).sweep(some)["d"] for n in (50, 0)
    )
    assert with_it[4.0].ratings == without[4.0].ratings
    assert (with_it[4.0].interval, with_it[16.0].interval) == (None, "prompt bootstrap")
    np.testing.assert_array_equal(with_it[16.0].samples, without[16.0].samples)
    assert with_it[16.0].ratings[0].std_error is not None
