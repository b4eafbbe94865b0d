"""Permutation-averaged Elo: a hand-worked example, a plain second opinion, and the laws that any Elo must obey."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elo_exp.ratings import elo
from elo_exp.ratings.elo import PermutationElo
from elo_exp.records import Battle
from elo_exp.results import CONVERGED
from elo_exp.statistics import permutations
from elo_exp.statistics.permutations import Matches, replay

Game = tuple[int, int]  # winner, loser


def matches(
    games: Sequence[Game], n_models: int = 4, tied: Sequence[bool] | None = None
) -> Matches:
    first, second = np.array(games, dtype=np.intp).T
    return Matches(
        n_models=n_models,
        first=first,
        second=second,
        tied=np.array([False] * len(games) if tied is None else tied),
    )


def random_games(n: int, *, n_models: int = 4, seed: int = 0) -> list[Game]:
    rng = np.random.default_rng(seed)
    first = rng.integers(n_models, size=n)
    return [
        (int(a), int(b))
        for a, b in zip(first, (first + rng.integers(1, n_models, size=n)) % n_models, strict=True)
    ]


def battle(a: str, b: str, winner: str = "model_a") -> Battle:
    return Battle(model_a=a, model_b=b, winner=winner)


def permutation_elo(k: float = 16, n_perms: int = 20, **changes: object) -> PermutationElo:
    arguments = {
        "k_sweep": [1, 32],
        "seed": 7,
        "initial_rating": 1400,
        "ties": "drop",
        "shuffle": True,
    }
    arguments |= {"n_bootstraps": 0, "perms_per_bootstrap": 10}
    return PermutationElo(k=k, n_perms=n_perms, **{**arguments, **changes})  # type: ignore[arg-type]


def reference(
    games: Sequence[Game], *, k: float, n_perms: int, seed: int, n_models: int = 4
) -> np.ndarray:
    """The specification, word for word: one pass over the matches for each permutation."""
    rng = np.random.default_rng(seed)
    ratings = np.full((n_perms, n_models), 1400.0)
    for r in ratings:
        for t in rng.permutation(len(games)):
            winner, loser = games[t]
            expected = 1 / (1 + 10 ** ((r[loser] - r[winner]) / 400))
            r[winner] += k * (1 - expected)
            r[loser] -= k * (1 - expected)
    return ratings


def test_two_matches_by_hand() -> None:
    """K = 32, both at 1400. A beats B: 1416, 1384. A beats B again: E = 1/(1 + 10^(-32/400)) = 0.5459, gain 14.53."""
    (ratings,) = replay(
        [matches([(0, 1), (0, 1)], n_models=2)],
        ks=[32],
        n_perms=1,
        seed=0,
        initial_rating=1400,
        shuffle=False,
    )
    assert ratings[0, :, 0] == pytest.approx([1430.53, 1369.47], abs=0.005)


@pytest.mark.parametrize("lengths", [(60, 60, 60), (60, 41, 23), (1, 300)])
def test_every_k_and_dimension_equals_the_plain_loop(lengths: tuple[int, ...]) -> None:
    ks = [0.5, 1, 16, 32, 100]
    games = [random_games(n, seed=n) for n in lengths]
    found = replay(
        [matches(g) for g in games], ks=ks, n_perms=12, seed=20260425, initial_rating=1400
    )
    for ratings, some in zip(found, games, strict=True):
        for i, k in enumerate(ks):
            expected = reference(some, k=k, n_perms=12, seed=20260425)
            np.testing.assert_allclose(ratings[:, :, i], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("way", permutations._WAYS)
def test_ratings_do_not_depend_on_which_way_to_write_them_is_faster(
    way: object, monkeypatch: pytest.MonkeyPatch
):
    games = random_games(60)
    played = {"ks": [1, 16, 32], "n_perms": 12, "seed": 5, "initial_rating": 1400}
    (found,) = replay([matches(games)], **played)
    monkeypatch.setattr(permutations, "_WAYS", (way,))
    np.testing.assert_array_equal(replay([matches(games)], **played)[0], found)


def test_blocks_of_permutations_continue_one_random_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    games = random_games(50)
    whole = replay([matches(games)], ks=[16], n_perms=30, seed=3, initial_rating=1400)
    monkeypatch.setattr(permutations, "_BLOCK_BYTES", 0)
    monkeypatch.setattr(permutations, "_BLOCK_ORDERS", 7)
    np.testing.assert_array_equal(
        whole, replay([matches(games)], ks=[16], n_perms=30, seed=3, initial_rating=1400)
    )


@pytest.mark.parametrize("lengths", [(300,), (300, 300, 200), (300, 200, 200)])
def test_many_matches_are_numbered_by_kind_and_rated_as_few(
    lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 numbers take two bytes; the 24 kinds of match among four models, won or tied, take one."""
    rng = np.random.default_rng(5)
    some = [
        matches(random_games(n, seed=i), tied=(rng.random(n) < 0.2).tolist())
        for i, n in enumerate(lengths)
    ]
    rules = {"ks": [8, 16], "n_perms": 30, "seed": 3, "initial_rating": 1400}
    few = replay(some, **rules)
    tables, kinds = permutations._kinds(some[:1], n_bytes=permutations._BLOCK_BYTES + 1)
    assert (len(tables[0]), kinds[300].itemsize) == (24, 1)
    monkeypatch.setattr(permutations, "_BLOCK_BYTES", 0)
    for here, there in zip(few, replay(some, **rules), strict=True):
        np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("n_matches", [100, 1_000_000, 10_000_000])
def test_so_many_orders_are_held_that_a_step_is_worth_its_while(n_matches: int) -> None:
    """In numbers of two bytes: half a gigabyte for a million matches, and in proportion for more."""
    held = permutations._held(2 * n_matches)
    assert held >= 256
    assert 2 * n_matches * held <= max(permutations._BLOCK_BYTES, 512 * n_matches)


def test_a_replay_says_how_many_orders_it_has_played() -> None:
    told: list[float] = []
    some = [matches(random_games(n)) for n in (100, 70)]
    replay(some, ks=[16], n_perms=30, seed=3, initial_rating=1400, tell=told.append)
    assert len(told) > 3
    assert sum(told) == pytest.approx(30)


def test_a_half_scored_tie_moves_the_stronger_down() -> None:
    ratings = replay(
        [matches([(0, 1), (0, 1)], n_models=2, tied=[False, True])],
        ks=[32], n_perms=1, seed=0, initial_rating=1400, shuffle=False,
    )[0][0, :, 0]  # fmt: skip
    expected = 1 / (1 + 10 ** (-32 / 400))
    assert ratings == pytest.approx(
        [1416 + 32 * (0.5 - expected), 1384 - 32 * (0.5 - expected)], abs=1e-9
    )


one_game = st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda game: game[0] != game[1])
games_of_four = st.lists(one_game, min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(games=games_of_four, k=st.floats(0.01, 100), seed=st.integers(0, 2**32 - 1))
def test_points_are_conserved(games: list[Game], k: float, seed: int) -> None:
    (ratings,) = replay([matches(games)], ks=[k], n_perms=3, seed=seed, initial_rating=1400)
    np.testing.assert_allclose(ratings.sum(axis=1), 4 * 1400, atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(games=games_of_four, k=st.floats(0.01, 100), seed=st.integers(0, 2**32 - 1))
def test_exchanging_winners_and_losers_mirrors_every_rating(
    games: list[Game], k: float, seed: int
) -> None:
    mirrored = [(loser, winner) for winner, loser in games]
    (there,) = replay([matches(games)], ks=[k], n_perms=3, seed=seed, initial_rating=1400)
    (back,) = replay([matches(mirrored)], ks=[k], n_perms=3, seed=seed, initial_rating=1400)
    np.testing.assert_allclose(there - 1400, 1400 - back, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(games=games_of_four, relabel=st.permutations(range(4)), seed=st.integers(0, 1000))
def test_names_do_not_matter(games: list[Game], relabel: list[int], seed: int) -> None:
    renamed = [(relabel[winner], relabel[loser]) for winner, loser in games]
    (ratings,) = replay([matches(games)], ks=[16], n_perms=3, seed=seed, initial_rating=1400)
    (others,) = replay([matches(renamed)], ks=[16], n_perms=3, seed=seed, initial_rating=1400)
    np.testing.assert_allclose(others[:, relabel], ratings, atol=1e-9)


def test_twice_the_scale_and_twice_k_double_every_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    games = random_games(40)
    (ratings,) = replay([matches(games)], ks=[16], n_perms=3, seed=1, initial_rating=1400)
    monkeypatch.setattr(
        permutations, "POINTS", 2 * permutations.POINTS
    )  # 800 points for a factor of ten in the odds
    (wide,) = replay([matches(games)], ks=[32], n_perms=3, seed=1, initial_rating=1400)
    np.testing.assert_allclose(wide - 1400, 2 * (ratings - 1400), atol=1e-9)


def test_for_small_k_a_rating_counts_half_of_wins_minus_losses() -> None:
    games = random_games(200)
    balance = np.zeros(4)
    for winner, loser in games:
        balance[winner] += 1
        balance[loser] -= 1
    ks = [1e-4, 1e-2]
    (ratings,) = replay([matches(games)], ks=ks, n_perms=50, seed=1, initial_rating=1400)
    slope = (ratings.mean(axis=0) - 1400) / ks
    assert (
        np.abs(slope[:, 0] - balance / 2).max()
        < 0.01 * np.abs(slope[:, 1] - balance / 2).max() * 1.5
    )
    spread = ratings.std(axis=0) / np.square(ks)  # the order matters to second order in K
    np.testing.assert_allclose(spread[:, 0], spread[:, 1], rtol=0.05)


def test_the_mean_over_all_orders_follows_its_second_order_formula() -> None:
    """E[R] = R0 + (K/2) sum d_t - (c K^2/16) sum_t (sum_{s != t} d_s.d_t) d_t + O(K^3), with d_t = e_winner - e_loser
    and c = ln 10 / 400: a wrong K, scale, shuffle or sign breaks it."""
    games = random_games(6, n_models=3, seed=5)
    d = np.zeros((6, 3))
    for t, (winner, loser) in enumerate(games):
        d[t, winner], d[t, loser] = 1, -1
    inner = d @ d.T - np.diag(np.square(d).sum(axis=1))
    ks = np.array([0.05, 0.2, 0.8])
    orders = [
        matches([games[t] for t in order], n_models=3) for order in itertools.permutations(range(6))
    ]
    every = replay(orders, ks=ks.tolist(), n_perms=1, seed=0, initial_rating=1400, shuffle=False)
    mean = np.mean([ratings[0] for ratings in every], axis=0)
    formula = (
        1400 + d.sum(axis=0)[:, None] * ks / 2 - (d * inner.sum(axis=0)[:, None]).sum(axis=0)[:, None]
        * (math.log(10) / 400) * ks**2 / 16
    )  # fmt: skip
    residual = (mean - formula) / ks**3
    assert np.abs(mean - formula).max() < 1e-5
    np.testing.assert_allclose(residual[:, 1], residual[:, 2], rtol=0.05, atol=1e-7)


def test_identical_matches_have_no_ordering_error() -> None:
    board = permutation_elo().rate({"d": [battle("a", "b")] * 30})["d"]
    assert max(r.ordering_error or 0 for r in board.ratings) < 1e-9


def test_four_times_the_permutations_halve_the_ordering_error() -> None:
    battles = {"d": [battle("abcd"[w], "abcd"[x]) for w, x in random_games(300)]}
    few = permutation_elo(n_perms=250).rate(battles)["d"]
    many = permutation_elo(n_perms=1000).rate(battles)["d"]
    ratio = np.array(
        [
            (few.rating(m).ordering_error or 0) / (many.rating(m).ordering_error or 1)
            for m in few.models
        ]
    )
    np.testing.assert_allclose(ratio, 2, rtol=0.15)


def test_many_passes_with_a_small_k_end_at_bradley_terry() -> None:
    games = (
        [("a", "b")] * 30
        + [("b", "a")] * 10
        + [("b", "c")] * 24
        + [("c", "b")] * 12
        + [("c", "a")] * 5
    )
    battles = {"d": [battle(w, x) for w, x in games]}
    method = permutation_elo(k=0.25, n_perms=200, k_sweep=[])
    limit = method.limit(battles)["d"]
    board = method.rate({"d": battles["d"] * 400})["d"]
    for model in "abc":
        assert board.rating(model).rating == pytest.approx(limit[model], abs=1)


@pytest.mark.parametrize("c_beats_a", [[], [("c", "a")] * 5], ids=["c only loses", "c wins, too"])
def test_there_is_no_limit_where_somebody_moves_for_ever(c_beats_a: list[tuple[str, str]]) -> None:
    """Who only loses sinks without end, and the others rise by as much."""
    games = [("a", "b")] * 30 + [("b", "a")] * 10 + [("b", "c")] * 24 + c_beats_a
    assert set(permutation_elo().limit({"d": [battle(w, x) for w, x in games]})["d"]) == set(
        "abc" if c_beats_a else ""
    )


def test_a_rating_that_says_little_is_named() -> None:
    """Elo gives a number to everybody, also to who lost one match, met nobody of the others, or never played."""
    some = (
        [battle("a", "b")] * 5
        + [battle("b", "a")] * 3
        + [battle("a", "loser"), battle("winner", "b")]
    )
    some += [battle("x", "y"), battle("y", "x"), Battle(model_a="a", model_b="tied", winner="tie")]
    board = permutation_elo().rate({"d": some})["d"]
    flags = {r.model: r.flag for r in board.ratings}
    assert flags == {
        **{"a": None, "b": None, "loser": "winless", "winner": "unbeaten"},
        **{"x": "disconnected", "y": "disconnected", "tied": "no match"},
    }
    assert all(r.rating is not None for r in board.ratings)
    assert board.rating("tied").rating == 1400


def test_k_joins_the_sweep_and_fractions_are_kept() -> None:
    boards = permutation_elo(k=2.5, k_sweep=[1, 8]).sweep({"d": [battle("a", "b")]})["d"]
    assert list(boards) == [1.0, 2.5, 8.0]
    assert boards[2.5].rating("a").rating == pytest.approx(1400 + 2.5 / 2)


def test_all_ks_share_their_match_orders() -> None:
    battles = {"d": [battle("abcd"[w], "abcd"[x]) for w, x in random_games(40)]}
    alone = permutation_elo(k=16, k_sweep=[]).rate(battles)["d"]
    among = permutation_elo(k=16, k_sweep=[1, 4, 32]).rate(battles)["d"]
    np.testing.assert_array_equal(alone.samples, among.samples)


def test_ties_are_dropped_or_scored_half() -> None:
    battles = {"d": [battle("a", "b"), battle("a", "b", "tie"), battle("b", "a", "tie (bothbad)")]}
    assert permutation_elo(ties="drop").rate(battles)["d"].n_matches == 1
    assert permutation_elo(ties="half").rate(battles)["d"].n_matches == 3


def test_without_shuffling_there_is_one_pass_and_no_ordering_error() -> None:
    board = permutation_elo(shuffle=False).rate({"d": [battle("a", "b"), battle("b", "a")]})["d"]
    assert board.samples is not None and board.samples.shape == (1, 2)
    assert [r.ordering_error for r in board.ratings] == [0.0, 0.0]


def test_no_decisive_match_raises_or_leaves_the_dimension_empty(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ValueError, match="no match to play"):
        replay([matches([(0, 1)]), Matches(n_models=2, first=np.array([], dtype=np.intp), second=np.array([], dtype=np.intp), tied=np.array([], dtype=bool))], ks=[16], n_perms=1, seed=0, initial_rating=1400)  # fmt: skip  # noqa: E501
    boards = permutation_elo().sweep({"tied": [battle("a", "b", "tie")], "won": [battle("a", "b")]})
    assert boards["tied"] == {} and boards["won"]
    assert "tied: no decisive match" in caplog.text


def test_the_largest_values_that_are_taken_overflow_nowhere() -> None:
    """Warnings are errors here. What one gains another loses, so that the mean stays where it was."""
    games = [battle(f"m{a:02}", f"m{b:02}") for a, b in random_games(500, n_models=20)]
    board = permutation_elo(k=1000, initial_rating=1e6).rate({"d": games})["d"]
    assert np.mean([r.rating for r in board.ratings]) == pytest.approx(1e6)


@pytest.mark.parametrize(
    ("k", "n_matches", "share"),
    [
        (1, 1373, 0.73),
        (1, 480, 0.37),
        (4, 480, 0.84),
        (16, 1373, 1.0),
    ],  # a headline and a pilot, both orders
)
def test_how_much_of_its_way_elo_has_gone(k: float, n_matches: int, share: float):
    assert elo.convergence(k, n_matches=n_matches, n_models=4) == pytest.approx(share, abs=0.005)


def test_the_share_is_what_the_mean_over_orders_shows():
    """Near equality the mean gap of two is the converged one, 400 log10(52 / 48), times that share."""
    games = [(0, 1)] * 52 + [(1, 0)] * 48
    ratings = replay(
        [matches(games, n_models=2)], ks=[2.0], n_perms=4000, seed=1, initial_rating=1400
    )[0].mean(axis=0)
    share = elo.convergence(2.0, n_matches=100, n_models=2)
    assert share == pytest.approx(0.44, abs=0.005)
    assert ratings[0, 0] - ratings[1, 0] == pytest.approx(
        share * 400 * math.log10(52 / 48), rel=0.02
    )


@pytest.mark.parametrize("n_models", [2, 4, 20])
@pytest.mark.parametrize("n_matches", [10, 480, 1373])
def test_elo_is_said_not_to_have_converged_exactly_below_95_percent(n_matches: int, n_models: int):
    """STATISTICS.md section 5: where 1 - exp(-K N / (2 (m - 1) 173.72)) < .95, that is below this K."""
    k = -math.log(0.05) * 2 * (n_models - 1) * 400 / math.log(10) / n_matches
    just_below, just_above = (
        elo.convergence(k * x, n_matches=n_matches, n_models=n_models) for x in (1 - 1e-9, 1 + 1e-9)
    )
    assert just_below < CONVERGED < just_above


def test_every_k_says_how_far_it_has_converged():
    boards = permutation_elo().sweep({"factuality": [battle("ann", "bob")] * 9})["factuality"]
    assert {k: board.parameters["convergence"] for k, board in boards.items()} == {
        k: elo.convergence(k, n_matches=9, n_models=2) for k in (1.0, 16.0, 32.0)
    }
