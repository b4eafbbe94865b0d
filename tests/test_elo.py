"""Permutation Elo: by hand, beside a plain loop and published tables, its laws, limit and error."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings import EloMethod, elo
from elo_exp.ratings.elo import PermutationElo, play_orders
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, fit_abilities
from elo_exp.ratings.games import Games
from elo_exp.ratings.games import make_games as games_of
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle
from tests.data import battle, by_dimension
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
EQUALS = Tournament(ratings=(0.0,) * 4)
WORDS = {1.0: "model_a", 0.5: "tie", 0.0: "model_b"}


def method(**changes: Any) -> PermutationElo:
    return PermutationElo(**{**SHIPPED, **changes})


def rate(battles: list[Battle], **changes: Any) -> Leaderboard:
    return method(**changes).rate(by_dimension({"d": battles}))["d"]


def battles_of(games: Sequence[Game]) -> list[Battle]:
    return [battle("abcdefgh"[i], "abcdefgh"[j], WORDS[score]) for i, j, score in games]


def columns(games: Sequence[Game]) -> Games:
    return games_of(Battles.from_rows(battles_of(games)), orders="reconciled")


def random_games(
    n: int, *, n_models: int = 4, seed: int = 0, ties: float = 0.0
) -> list[Game]:
    """The first games let everybody play."""
    rng = np.random.default_rng(seed)
    pairs = [(i, (i + 1) % n_models) for i in range(n_models)]
    pairs += [rng.permutation(n_models)[:2].tolist() for _ in range(n - n_models)]
    scores = np.where(rng.random(n) < ties, 0.5, rng.integers(2, size=n)).tolist()
    return [(i, j, score) for (i, j), score in zip(pairs, scores, strict=True)][:n]


def played(games: Sequence[Game], **rules: Any) -> Array:
    """Ratings (p, m, k)."""
    rules = {"ks": [16.0], "n_perms": 3, "seed": 1, **rules}
    return 1400 + POINTS_PER_LOG_ODDS * play_orders(columns(games), **rules)[0]


def reference(games: Sequence[Game], *, k: float, n_perms: int, seed: int) -> Array:
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


# The replay


def test_two_matches_by_hand():
    """K = 32, both at 1400. a beats b: 1416, 1384. Again: E = 1 / (1 + 10^(-32/400)) = 0.5459, so
    the gain is 14.53. A tie then moves the stronger down."""
    ratings = played([(0, 1, 1.0)] * 2, ks=[32.0], n_perms=1, seed=None)
    assert ratings[0, :, 0] == pytest.approx([1430.53, 1369.47], abs=0.005)
    tied = played([(0, 1, 1.0), (0, 1, 0.5)], ks=[32.0], n_perms=1, seed=None)
    moved = 32 * (0.5 - 1 / (1 + 10 ** (-32 / 400)))
    assert tied[0, :, 0] == pytest.approx([1416 + moved, 1384 - moved], abs=1e-9)


@pytest.mark.parametrize("ties", [0.0, 0.3])
@pytest.mark.parametrize("n", [4, 60, 300])
def test_every_k_equals_the_plain_loop(n: int, ties: float):
    ks = [0.5, 1, 16, 32, 100]
    games = random_games(n, seed=n, ties=ties)
    found = played(games, ks=ks, n_perms=12, seed=20260425)
    for i, k in enumerate(ks):
        expected = reference(games, k=k, n_perms=12, seed=20260425)
        np.testing.assert_allclose(found[:, :, i], expected, atol=1e-9)


def test_blocks_continue_one_random_stream(monkeypatch: pytest.MonkeyPatch):
    """Of permutations and of resamples; the progress adds up to the orders that are played."""
    games = columns(random_games(100, ties=0.2))
    times = np.random.default_rng(1).integers(3, size=(20, 100))
    rules: dict[str, Any] = {"ks": [8, 16], "n_perms": 30, "seed": 3}
    whole, resampled = (
        play_orders(games, **rules),
        play_orders(games, times=times, **rules),
    )
    monkeypatch.setattr(elo, "_MAX_BLOCK_BYTES", 0)
    monkeypatch.setattr(elo, "_MIN_BLOCK_ORDERS", 7)
    told: list[float] = []
    np.testing.assert_array_equal(
        play_orders(games, advance=told.append, **rules), whole
    )
    assert sum(told) == pytest.approx(30)
    np.testing.assert_array_equal(play_orders(games, times=times, **rules), resampled)


def test_resamples_play_the_matches_of_a_prompt_as_often_as_it_is_drawn():
    games = columns([(0, 1, 1.0), (1, 2, 0.5), (2, 0, 1.0), (0, 2, 1.0)])
    games = dataclasses.replace(
        games, cluster=np.array([0, 1, 1, 0]), prompts=np.arange(2)
    )
    times = np.array([[2, 0], [1, 1], [0, 3], [0, 0]])
    rules: dict[str, Any] = {"ks": [16.0], "n_perms": 1, "seed": None}
    found = play_orders(games, times=times, **rules)
    for n, log_odds in zip(times[:, games.cluster], found, strict=True):
        drawn = games.select(np.repeat(np.arange(4), n))
        expected = play_orders(drawn, **rules)[0] if n.any() else np.zeros((1, 3, 1))
        np.testing.assert_allclose(log_odds, expected)


# Laws

one_game = st.tuples(
    st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])
)
four = st.lists(
    one_game.filter(lambda game: game[0] != game[1]), min_size=1, max_size=40
).map(lambda games: [*games, (0, 1, 1.0), (2, 3, 1.0)])


@settings(max_examples=60, deadline=None)
@given(games=four, k=st.floats(0.01, 100), new=st.permutations(range(4)))
def test_law_points_are_conserved_mirrored_and_nameless(
    games: list[Game], k: float, new: list[int]
):
    ratings = played(games, ks=[k])
    np.testing.assert_allclose(ratings.sum(axis=1), 4 * 1400, atol=1e-8)
    mirrored = played([(i, j, 1 - score) for i, j, score in games], ks=[k])
    np.testing.assert_allclose(mirrored - 1400, 1400 - ratings, atol=1e-8)
    turned = played([(new[j], new[i], 1 - score) for i, j, score in games], ks=[k])
    np.testing.assert_allclose(turned[:, new], ratings, atol=1e-8)


# Published tables (STATISTICS.md section 1) in place of those of Boubdir et al. (2023): the outcomes
# are fixed counts, their order is drawn. A mean is right within 4 permSD / sqrt(n_perms) + .3.

# Three players, 1000 games of A and B, 1000 of B and C. Of the first of each pair the wins; K; mean
# ratings and their scatter over orders; the share of single orders that rank all three correctly.
THREE = """
750 750   1   1535.1 1400.0 1264.9   3.3 5.1 3.3    1.00
750 750  16   1594.6 1400.5 1205.0    30  30  30    1.00
750 510   1   1500.0 1342.6 1357.5   3.2 5.4 3.7    0.04
750 510  16   1531.5 1337.6 1330.9    30  30  30    0.55
510 750   1   1442.5 1457.5 1300.1   3.7 5.4 3.3    0.04
510 750  16   1468.9 1462.6 1268.6    30  30  30    0.55
540 510   1   1416.8 1393.1 1390.1   3.7 5.7 3.8    0.62
540 510  16   1422.6 1393.2 1384.2    30  30  30    0.35
"""
# Two players: the wins of both; for K = 1, 8, 16, 32 the mean gap, its scatter over orders, and the
# share of orders with the wrong sign; the gap of Bradley-Terry.
KS = (1, 8, 16, 32)
TWO = """
510 490    6.6  7.0  7.3  7.3   8.1  36  52  77   0.21 0.42 0.44 0.46     6.95
550 450   32.9 35.7 35.9 36.4   8.2  36  53  77   0    0.16 0.25 0.32    34.86
600 400   66.2 71.6 72.4 73.2   7.9  35  53  77   0    0.02 0.09 0.18    70.44
800 200    212  243  245  250   6.4  35  52  75   0    0    0    0      240.8
177 123   36.2 63.3 64.7 66.4   2.9  32  49  74   0    0.02 0.09 0.19    63.2
153 147    4.0  7.1  7.7  6.8   2.9  32  50  75   0.09 0.41 0.44 0.47     6.95
"""
ORDERS = pytest.mark.parametrize(
    "n_perms", [300, pytest.param(8000, marks=pytest.mark.slow)]
)


def counted(*wins: tuple[float, float]) -> list[Game]:
    """Games of the first with the second, then of the second with the third."""
    return [
        (pair, pair + 1, score)
        for pair, counts in enumerate(wins)
        for score, n in zip((1.0, 0.0), counts, strict=True)
        for _ in range(int(n))
    ]


def check_mean(ratings: Array, mean: Array, scatter: Array) -> None:
    """Over permutations (p, x), against the table (x,)."""
    off = np.abs(ratings.mean(axis=0) - mean)
    assert (off < 4 * scatter / math.sqrt(len(ratings)) + 0.3).all()


@ORDERS
@pytest.mark.parametrize("line", THREE.strip().splitlines())
def test_three_players_are_rated_as_the_table_has_it(line: str, n_perms: int):
    """With K = 1 Elo has not converged, and puts two in the wrong order; Bradley-Terry does not."""
    table = np.array(line.split(), dtype=float)
    games = counted(*((won, 1000 - won) for won in table[:2]))
    ratings = played(games, ks=table[2:3], n_perms=n_perms, seed=20260425)[:, :, 0]
    check_mean(ratings, table[3:6], table[6:9])
    right = (np.diff(ratings) < 0).all(axis=1).mean()
    assert right == pytest.approx(table[9], abs=0.1 if n_perms == 300 else 0.05)
    assert (np.diff(fit_abilities(columns(games).wins())) < 0).all()


@ORDERS
@pytest.mark.parametrize("line", TWO.strip().splitlines())
def test_two_players_are_as_far_apart_as_the_table_has_it(line: str, n_perms: int):
    table = np.array(line.split(), dtype=float)
    games = counted((table[0], table[1]))
    ratings = played(games, ks=KS, n_perms=n_perms, seed=20260425)
    gap = ratings[:, 0] - ratings[:, 1]
    mean, scatter, wrong = table[2:14].reshape(3, 4)
    check_mean(gap, mean, scatter)
    if n_perms > 300:
        np.testing.assert_allclose(gap.std(axis=0, ddof=1), scatter, rtol=0.06)
        np.testing.assert_allclose((gap < 0).mean(axis=0), wrong, atol=0.02)
    ahead, behind = POINTS_PER_LOG_ODDS * fit_abilities(columns(games).wins())
    assert ahead - behind == pytest.approx(table[14], abs=0.06)


# Leaderboards


def test_a_leaderboard_has_the_mean_and_its_monte_carlo_error():
    some = battles_of(random_games(300))
    few, many = rate(some, n_perms=250), rate(some, n_perms=1000)
    assert few.samples is not None and few.ordering_error is not None
    np.testing.assert_allclose(few.rating, few.samples.mean(axis=0))
    error = few.samples.std(axis=0, ddof=1) / math.sqrt(250)
    np.testing.assert_allclose(few.ordering_error, error)
    np.testing.assert_allclose(few.ordering_error / many.ordering_error, 2, rtol=0.15)
    assert (few.label, few.interval, few.n_matches) == ("Elo", None, 300)
    once = rate(some, shuffle=False)
    assert once.samples is not None and once.samples.shape == (1, 4)
    assert {r.ordering_error for r in once.ratings} == {0.0}


def test_k_joins_the_sweep_and_all_share_their_orders():
    some = by_dimension(
        {"d": battles_of(random_games(40)), "e": battles_of(random_games(9))}
    )
    assert isinstance(method(), EloMethod)
    for name, n in (("d", 40), ("e", 9)):
        boards = method(k=2.5, k_sweep=[1, 8]).rate_each_k(some)[name]
        assert list(boards) == [1.0, 2.5, 8.0]
        for k, board in boards.items():
            alone = method(k=k, k_sweep=[]).rate({name: some[name]})[name]
            np.testing.assert_array_equal(alone.samples, board.samples)
            assert (board.parameters, board.n_matches) == ({"k": k}, n)


def test_ties_are_dropped_scored_half_or_treated_by_a_class_of_one_s_own():
    some = [
        battle("a", "b"),
        battle("a", "b", "tie"),
        battle("b", "a", "tie (bothbad)"),
    ]
    assert [rate(some, ties=ties).n_matches for ties in ("drop", "half")] == [1, 3]

    class BothBadIsDropped(PermutationElo):
        def select_played(self, battles: Battles) -> Battles:
            return battles.select(battles.winner != 3)

    (board,) = BothBadIsDropped(**SHIPPED).rate(by_dimension({"d": some})).values()
    assert board.n_matches == 2
    assert board.row("a").rating == rate(some[:2], ties="half").row("a").rating


def test_no_decisive_match_leaves_the_dimension_empty(caplog: pytest.LogCaptureFixture):
    some = by_dimension({"tied": [battle("a", "b", "tie")], "won": [battle("a", "b")]})
    boards = method().rate_each_k(some)
    assert boards["tied"] == {} and boards["won"]
    assert method().convergence(some)["tied"].limit == {}
    assert "tied: no match was decisive" in caplog.text


def test_a_rating_that_says_little_is_flagged():
    """Elo rates everybody, also who lost one match, met nobody of the others, or never played."""
    pairs = [*["ab"] * 5, *["ba"] * 3, "al", "wb", "xy", "yx"]
    board = rate([*(battle(*pair) for pair in pairs), battle("a", "t", "tie")])
    assert {r.model: r.flag for r in board.ratings} == {
        **{"a": None, "b": None, "l": "winless", "w": "unbeaten"},
        **{"x": "disconnected", "y": "disconnected", "t": "no match"},
    }
    assert all(r.rating is not None for r in board.ratings)
    assert (board.row("t").rating, board.row("t").n_battles) == (1400, 0)


# The standard error: how much the mean would move with other prompts


def simulated(seed: int, n_prompts: int = 143, of: Tournament = EQUALS) -> list[Battle]:
    return of.battles(n_prompts, np.random.default_rng(seed))


def bootstrapped(battles: list[Battle], **changes: Any) -> Leaderboard:
    return rate(battles, **{"n_bootstraps": 200, "k_sweep": [4.0], **changes})


@pytest.mark.parametrize(
    ("n", "margin"), [(30, 0.2), pytest.param(600, 0.08, marks=pytest.mark.slow)]
)
def test_it_is_the_scatter_over_data_sets(n: int, margin: float):
    """30 data sets give their own scatter within 13%; the bootstrap of each is within 7% of its mean.
    Of 600, the mean over all stands for the truth of Elo's own estimand."""
    boards = [
        bootstrapped(simulated(seed, of=Tournament()), n_perms=100, k_sweep=[])
        for seed in range(n)
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
            f"\ncoverage of Elo's 95% interval {covers:.3f}; of mean ± 1.96 SEM {of_ordering:.3f}"
        )
        assert 0.93 <= covers <= 0.97


@pytest.mark.parametrize("n_prompts", [800, pytest.param(1500, marks=pytest.mark.slow)])
def test_few_orders_of_each_draw_neither_widen_it_nor_make_it_noise(n_prompts: int):
    """Of 1500 prompts, what ten orders of a draw add is as large as what the prompts do."""
    some, rules = simulated(0, n_prompts), {"n_perms": 200, "k_sweep": []}
    few = [bootstrapped(some, seed=seed, **rules).std_error for seed in range(3)]
    many = bootstrapped(some, perms_per_bootstrap=60, **rules).std_error
    np.testing.assert_allclose(few, np.broadcast_to(many, (3, 4)), rtol=0.4)
    np.testing.assert_allclose(np.mean(few), np.mean(many), rtol=0.15)


@pytest.mark.parametrize(
    "case", ["one prompt", "prompts that say the same", "n_bootstraps=0"]
)
def test_where_prompts_do_not_differ_or_are_not_drawn_there_is_none(case: str):
    some, changes = simulated(1, 20), {}
    if case == "n_bootstraps=0":
        changes = {"n_bootstraps": 0}
    else:
        some = simulated(1, 1) * 2 if "same" in case else some
        questions = "pqr" if "same" in case else "q"
        some = [dataclasses.replace(b, question_id=q) for b in some for q in questions]
    board = bootstrapped(some, **changes)
    assert board.interval is None
    assert {(r.std_error, r.ci_low, r.ci_high) for r in board.ratings} == {
        (None, None, None)
    }


@pytest.mark.parametrize("ties", ["drop", "half"])
@pytest.mark.parametrize("winner", ["model_a", "model_b", "tie"])
def test_who_only_wins_loses_or_ties_has_none_and_the_others_have(
    winner: str, ties: str
):
    """d against each of the others on every prompt; if ties are dropped, d that only ties does not
    play."""
    some = [b for b in simulated(1, 40) if "d" not in b.models]
    some += [battle("d", "abc"[q % 3], winner, question_id=f"{q}") for q in range(40)]
    board = bootstrapped(some, ties=ties)
    assert {r.model for r in board.ratings if r.std_error is None} == {"d"}


def test_who_was_on_few_prompts_has_a_wide_one_and_of_one_prompt_none():
    boards = []
    for n in (1, 4, 100):
        few = {f"q{q}" for q in range(n)}
        some = [
            b for b in simulated(3, 100) if "d" not in b.models or b.question_id in few
        ]
        boards.append(bootstrapped(some).row("d"))
    one, few_prompts, every = boards
    assert one.std_error is None
    assert few_prompts.n_prompts is not None and few_prompts.n_prompts <= 4
    widths = [
        (row.ci_high or 0.0) - (row.ci_low or 0.0) for row in (few_prompts, every)
    ]
    assert widths[0] > 1.5 * widths[1] > 0


@pytest.mark.system
def test_of_one_order_it_holds_what_many_orders_find():
    """The error of the one order is in it."""
    some = simulated(0, 400)
    many = bootstrapped(some, n_perms=500, n_bootstraps=0, k_sweep=[])
    held = []
    for seed in range(15):
        one = bootstrapped(some, n_perms=1, seed=seed, n_bootstraps=100, k_sweep=[])
        held += ((one.ci_low <= many.rating) & (many.rating <= one.ci_high)).tolist()
    assert np.mean(held) > 0.9


def test_only_the_primary_k_has_one_and_the_samples_are_those_without_it():
    some = by_dimension({"d": simulated(1, 30)})
    with_it, without = (
        method(n_bootstraps=n, k_sweep=[4.0]).rate_each_k(some)["d"] for n in (50, 0)
    )
    assert with_it[4.0].ratings == without[4.0].ratings
    assert (with_it[4.0].interval, with_it[16.0].interval) == (None, "prompt bootstrap")
    np.testing.assert_array_equal(with_it[16.0].samples, without[16.0].samples)
    assert with_it[16.0].ratings[0].std_error is not None
