"""Entrants that took every point, or none: bounds by hand, ranks by components, and laws."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from elo_exp.analysis.comparisons import add_ranks, differences, find_leader
from elo_exp.analysis.complete_separation import (
    find_one_sided_pairs,
    rate_with_unbeaten,
    transitive_closure,
    unbeaten_lower_bound,
)
from elo_exp.analysis.shrinkage import add_p_best
from elo_exp.data.battles import Battles
from elo_exp.ratings.leaderboard import Leaderboard, OneSidedPair
from elo_exp.records import Battle
from elo_exp.report.sentences import standings_sentences
from tests.simulation import BRADLEY_TERRY, Tournament

A_WINS, TIE, B_WINS = "model_a", "tie", "model_b"


def met(
    a: str, b: str, winners: Iterable[str], prompt: str | None = "q"
) -> list[Battle]:
    """A battle on each of some prompts, which all pairs share; None: no prompt is named."""
    return [
        Battle(
            model_a=a,
            model_b=b,
            winner=winner,
            question_id=None if prompt is None else f"{prompt}{n}",
        )
        for n, winner in enumerate(winners)
    ]


def close(a: str, b: str, n: int = 60) -> list[Battle]:
    """Two that are linked: a wins on three prompts of four."""
    return met(a, b, [B_WINS if q % 4 == 0 else A_WINS for q in range(n)])


def ahead(a: str, b: str, n: int = 60, prompt: str | None = "q") -> list[Battle]:
    return met(a, b, [A_WINS] * n, prompt)


def rated(rows: list[Battle]) -> Leaderboard:
    board = rate_with_unbeaten(BRADLEY_TERRY, {"d": Battles.from_rows(rows)})["d"]
    return add_p_best(add_ranks(board, np.random.default_rng(0)))


def pairs_of(rows: list[Battle]) -> tuple[OneSidedPair, ...]:
    return find_one_sided_pairs(Battles.from_rows(rows), orders="both")


def ranks(board: Leaderboard) -> dict[str, tuple[int | None, int | None, int | None]]:
    return {r.model: (r.rank, r.rank_low, r.rank_high) for r in board.ratings}


UNBEATEN = ahead("A", "B") + ahead("A", "C") + close("B", "C")


@pytest.mark.parametrize(("n", "points"), [(20, 277), (60, 479), (143, 633)])
def test_bounds_by_hand(n: int, points: float):
    """All n of n: the share s that wins so much with probability .025, as a difference of points."""
    assert unbeaten_lower_bound(n) == pytest.approx(points, abs=0.5)
    share = stats.beta.ppf(0.025, n, 1)  # Clopper and Pearson's, for n of n
    assert unbeaten_lower_bound(n) == pytest.approx(
        400 * math.log10(share / (1 - share)), abs=1e-6
    )


def test_few_prompts_bound_nothing():
    assert unbeaten_lower_bound(1) == pytest.approx(400 * math.log10(0.025 / 0.975))
    assert unbeaten_lower_bound(5) < 0 < unbeaten_lower_bound(6)


def test_an_unbeaten_entrant_is_first():
    """A beats B and C on all 60 prompts, B beats C three to one: 191 points, around 1400."""
    board = rated(UNBEATEN)
    assert [row.model for row in board.ratings] == ["A", "B", "C"]
    assert ranks(board) == {"A": (1, 1, 1), "B": (2, 2, 2), "C": (3, 3, 3)}
    a, b, _ = board.ratings
    assert (a.rating, a.std_error, a.ci_high, a.flag) == (None, None, None, "unbeaten")
    assert b.rating == pytest.approx(1400 + 200 * math.log10(3))
    assert a.ci_low == pytest.approx(b.rating + unbeaten_lower_bound(60))
    assert [row.p_best for row in board.ratings] == [1.0, 0.0, 0.0]


def test_one_sided_pairs_are_of_the_family_of_tests():
    found = differences({"d": rated(UNBEATEN)})
    assert [(d.higher, d.lower, d.one_sided) for d in found] == [
        ("A", "B", True),
        ("A", "C", True),
        ("B", "C", False),
    ]
    lead, _, other = found
    assert (lead.difference, lead.std_error, lead.ci_high) == (None, None, None)
    assert (lead.ci_low, lead.n_prompts) == (
        pytest.approx(unbeaten_lower_bound(60)),
        60,
    )
    assert lead.p_value == pytest.approx(2 * 0.5**60, abs=0)
    assert lead.p_holm == pytest.approx(3 * lead.p_value, abs=0)
    assert other.p_holm == other.p_value and other.n_prompts is None


def test_a_winless_entrant_is_the_mirror_image():
    board = rated(ahead("B", "Z") + ahead("C", "Z") + close("B", "C"))
    assert ranks(board) == {"B": (1, 1, 1), "C": (2, 2, 2), "Z": (3, 3, 3)}
    z = board.row("Z")
    assert (z.rating, z.ci_low, z.flag) == (None, None, "winless")
    assert z.ci_high == pytest.approx(board.row("C").rating - unbeaten_lower_bound(60))


def test_prompts_are_counted_once_whatever_happens_on_them():
    """Both orders and a second battle of 30 prompts are 30 prompts; those on which others met are not."""
    both = [
        Battle(
            model_a="A",
            model_b="B",
            winner=A_WINS,
            question_id=f"q{n}",
            verdict_ab=A_WINS,
            verdict_ba=A_WINS,
        )
        for n in range(30)
    ]
    (pair,) = pairs_of(both + both[:10] + close("B", "C"))
    assert (pair.winner, pair.loser, pair.n_prompts) == ("A", "B", 30)
    assert (pair.low, pair.p_value) == (
        unbeaten_lower_bound(30),
        pytest.approx(2 * 0.5**30),
    )


def test_battles_without_a_prompt_are_no_evidence():
    """All may be on one prompt: A is first, and nothing is certain."""
    (pair,) = pairs_of(ahead("A", "B", prompt=None))
    assert pair == OneSidedPair(winner="A", loser="B", n_prompts=0)
    (pair,) = pairs_of(ahead("A", "B", 20, None) + ahead("A", "B", 7))
    assert (pair.n_prompts, pair.low) == (7, unbeaten_lower_bound(7))
    board = rated(ahead("A", "B", prompt=None) + close("B", "C"))
    assert ranks(board)["A"] == (1, 1, 3)
    assert (board.row("A").ci_low, board.row("A").p_best) == (None, None)
    lead, _ = differences({"d": board})
    assert (lead.one_sided, lead.n_prompts) == (True, 0)
    assert (lead.ci_low, lead.p_value, lead.significant) == (None, None, None)


def total_order(n: int) -> list[Battle]:
    """Five models of which the better always wins."""
    return [row for a, b in combinations("abcde", 2) for row in ahead(a, b, n)]


def test_each_row_of_a_total_order_has_the_exact_bound_to_the_next():
    rows = rated(total_order(30)).ratings
    assert [row.rating for row in rows] == [None] * 5
    assert [row.flag for row in rows] == ["unbeaten", *["separated"] * 3, "winless"]
    assert [row.neighbour for row in rows] == ["b", "c", "d", "e", "d"]
    assert [row.neighbour_is_below for row in rows] == [True] * 4 + [False]
    assert [row.n_separating for row in rows] == [30] * 5
    assert all(
        row.lead_bound == pytest.approx(unbeaten_lower_bound(30)) for row in rows
    )
    assert [standings_sentences.rating(row) for row in rows] == [
        *(f"at least 353 above {model}" for model in "bcde"),
        "at least 353 below d",
    ]


def test_few_prompts_of_a_total_order_bound_no_lead():
    rows = rated(total_order(3)).ratings
    assert standings_sentences.rating(rows[0]) == "won all 3 prompts against b"
    assert standings_sentences.rating(rows[4]) == "lost all 3 prompts against d"
    (first, *_) = rated(total_order(1)).ratings
    assert standings_sentences.rating(first) == "won the one prompt against b"


def test_a_rated_entrant_and_battles_without_prompts_have_no_bound():
    assert all(row.neighbour is None for row in rated(close("A", "B")).ratings)
    nameless = rated(ahead("A", "B", prompt=None)).ratings
    assert [(row.neighbour, row.flag) for row in nameless] == [
        (None, "unbeaten"),
        (None, "winless"),
    ]


@pytest.mark.parametrize(
    "link",
    [met("A", "B", [TIE]), met("C", "A", [A_WINS], "other")],
    ids=["one tie", "a chain of wins back"],
)
def test_whoever_is_linked_has_a_rating(link: list[Battle]):
    rows = ahead("A", "B", 40) + close("B", "C") + link
    assert pairs_of(rows) == ()
    board = rated(rows)
    assert (board.one_sided, board.rank) == ((), None)
    assert np.isfinite(board.rating).all()


def test_half_a_point_in_one_order_links():
    split = Battle(
        model_a="A",
        model_b="B",
        winner=TIE,
        question_id="q0",
        verdict_ab=A_WINS,
        verdict_ba=B_WINS,
    )
    assert pairs_of([*ahead("A", "B", 40), split]) == ()


def test_few_prompts_are_no_certainty():
    """On three prompts p = .25: A is first by what it won, and any of the three may be the best."""
    board = rated(ahead("A", "B", 3) + close("B", "C"))
    assert ranks(board) == {"A": (1, 1, 3), "B": (2, 1, 2), "C": (3, 2, 3)}
    assert [r.p_best for r in board.ratings] == [None, None, 0.0]
    first = find_leader(board, differences({"d": board}))
    assert (first.lead.one_sided, first.rivals, first.not_met) == (True, ("B",), ("C",))


@pytest.mark.parametrize(("n", "highest"), [(6, 3), (7, 1)])
def test_rank_sets_share_their_error_among_all_pairs(n: int, highest: int):
    """Of two pairs each has .025: p is .031 on six prompts and .016 on seven."""
    board = rated(ahead("A", "B", n) + close("B", "C"))
    assert ranks(board)["A"] == (1, 1, highest)


def test_nobody_is_rated_and_a_chain_of_wins_ranks_all():
    board = rated(ahead("A", "B") + ahead("B", "C"))
    assert ranks(board) == {"A": (1, 1, 1), "B": (2, 2, 2), "C": (3, 3, 3)}
    assert {(row.rating, row.ci_low) for row in board.ratings} == {(None, None)}
    first = find_leader(board, differences({"d": board}))
    assert (first.model, first.second, first.below) == ("A", "B", ("B", "C"))


def test_whom_the_first_is_ahead_of_by_a_chain_and_whom_it_never_met():
    """A met B alone, which is better than C and D for certain; E and F met one another."""
    rows = ahead("A", "B") + close("B", "C", 200) + close("B", "D", 200)
    rows += close("E", "F")
    board = rated(rows)
    first = find_leader(board, differences({"d": board}))
    assert (first.model, first.second, first.lead.n_prompts) == ("A", "B", 60)
    assert (first.below, first.rivals) == (("B", "C", "D"), ())
    assert first.not_met == ("E", "F")
    assert ranks(board)["A"] == (1, 1, 1)
    assert ranks(board)["E"] == (None, None, None)


def test_two_unbeaten_entrants_that_never_met_share_the_first_rank():
    rows = ahead("A", "B") + ahead("D", "B") + close("B", "C", 200)
    board = rated(rows)
    assert ranks(board) == {
        "A": (1, 1, 2),
        "D": (1, 1, 2),
        "B": (3, 3, 3),
        "C": (4, 4, 4),
    }
    assert [row.p_best for row in board.ratings] == [None, None, 0.0, 0.0]
    first = find_leader(board, differences({"d": board}))
    assert (first.model, first.second) == ("A", "B")
    assert (first.level, first.rivals, first.not_met) == ((), ("D",), ())


def test_an_entrant_that_is_ahead_of_an_unbeaten_one_has_both_bounds():
    rows = ahead("A", "B") + ahead("B", "C") + ahead("B", "D") + close("C", "D")
    board = rated(rows)
    assert [row.model for row in board.ratings] == ["A", "B", "C", "D"]
    low = board.row("C").rating + unbeaten_lower_bound(60)
    assert board.row("B").ci_low == pytest.approx(low)
    assert board.row("A").ci_low == pytest.approx(low + unbeaten_lower_bound(60))
    assert board.row("B").flag == "separated"


def test_one_that_lost_to_a_stranger_alone_is_not_ranked_among_others():
    """Z lost to A, which B and C lost to as well: nothing says whether Z is better than B."""
    board = rated(UNBEATEN + ahead("A", "Z"))
    assert [row.model for row in board.ratings] == ["A", "B", "C", "Z"]
    assert ranks(board)["Z"] == (None, None, None)
    first = find_leader(board, differences({"d": board}))
    assert first.below == ("B", "C", "Z")  # of A it is known


def test_nobody_is_first_of_fewer_than_two():
    nobody = BRADLEY_TERRY.rate({"d": Battles.from_rows(ahead("A", "B"))})["d"]
    assert find_leader(nobody, []) is None


# Laws


@pytest.mark.system
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(2, 7))
def test_law_everybody_else_keeps_every_digit(seed: int, m: int):
    """Adding an entrant that takes every point changes no rating, error or difference of others."""
    rng = np.random.default_rng(seed)
    names = "bcdefgh"[:m]
    rows = [
        row
        for i in range(m)
        for j in range(i)
        for row in met(
            names[i], names[j], rng.choice([A_WINS, TIE, B_WINS], 12).tolist()
        )
    ]
    extra = [row for name in names for row in ahead("a", name, 12)]
    alone, joined = rated(rows), rated(rows + extra)
    at = [joined.models.index(name) for name in alone.models]
    np.testing.assert_allclose(joined.rating[at], alone.rating, atol=1e-9)
    np.testing.assert_allclose(
        joined.covariance[np.ix_(at, at)], alone.covariance, atol=1e-9
    )
    assert (
        joined.ranks()[at] == np.where(alone.ranks() > 0, alone.ranks() + 1, 0)
    ).all()


@pytest.mark.system
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(2, 7), density=st.floats(0.1, 0.9))
def test_law_points_of_a_one_sided_pair_all_go_one_way(
    seed: int, m: int, density: float
):
    """And ranks agree with them; every rank set that there is holds the rank."""
    rng = np.random.default_rng(seed)
    rows = [
        row
        for i in range(m)
        for j in range(i)
        if rng.random() < density
        for row in met(
            *"abcdefg"[j : i + 1 : i - j], rng.choice([A_WINS, B_WINS], 2).tolist()
        )
    ]
    if not rows:
        return
    board, battles = rated(rows), Battles.from_rows(rows)
    ranked = board.ranks()
    for pair in board.one_sided:
        winner, loser = map(battles.models.index, (pair.winner, pair.loser))
        assert all(
            row.winner == (A_WINS if row.model_a == pair.winner else B_WINS)
            for row in rows
            if {row.model_a, row.model_b} == {pair.winner, pair.loser}
        )
        if ranked[winner] and ranked[loser]:
            assert ranked[winner] < ranked[loser]
    if board.rank_low is not None:
        known = ranked > 0
        assert (board.rank_low[known] <= ranked[known]).all()
        assert (ranked[known] <= board.rank_high[known]).all()
        assert np.isnan(board.rank_low[~known]).all()


def test_the_closure_of_a_chain():
    chain = np.eye(5, k=1) > 0
    assert (transitive_closure(chain) == (np.triu(np.ones((5, 5)), 1) > 0)).all()


# Simulated tournaments


AHEAD = {  # points ahead, prompts, entrants, and how much the quality of an answer varies
    "605 ahead on 8 prompts": (605.0, 8, 3, 1.2),
    "635 ahead on 20 prompts that differ": (635.0, 20, 3, 2.5),
    "421 ahead on 8 prompts, four entrants": (421.0, 8, 4, 2.5),
    "635 ahead on 20 prompts that differ, four entrants": (635.0, 20, 4, 2.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("is_other", [False, True], ids=["ahead", "behind"])
@pytest.mark.parametrize("name", AHEAD)
def test_the_near_end_of_one_that_is_far_from_all_others_holds(
    name: str, is_other: bool
):
    """The bound where it took every point, else the interval of Bradley-Terry; and nobody else's rating,
    error or difference knows of it. The other worlds, in which one is far behind, no bound was tried on."""
    points, n_prompts, m, quality = AHEAD[name]
    others = np.linspace(0.0, -104.0, m - 1).tolist()
    world = Tournament(
        ratings=(points, *others), quality=quality, pair_noise=0.2, ties=0.1
    )
    if is_other:
        others = np.linspace(0.0, 104.0, m - 1).tolist()
        world = Tournament(ratings=(-points, *others), quality=quality / 2)
    truth, sign = expected_gap(world, 0, 1), -1.0 if is_other else 1.0
    rng, n = np.random.default_rng(6), 600
    holds, sets_hold, bounds_hold = [], [], []
    true_ranks = stats.rankdata(-world.true_ratings(), method="min")
    for _ in range(n):
        battles = world.columns(n_prompts, rng)
        board = rate_with_unbeaten(BRADLEY_TERRY, {"d": battles})["d"]
        board = add_ranks(board, np.random.default_rng(0))
        pairs = differences({"d": board})
        pair = next((d for d in pairs if {d.higher, d.lower} == {"a", "b"}), None)
        if pair is None or pair.ci_low is None:
            continue
        low = pair.ci_low if (pair.higher == "a") == (sign > 0) else -pair.ci_high
        holds.append(low <= sign * truth)
        if pair.one_sided:
            bounds_hold.append(holds[-1])
        if np.isnan(board.rating[0]):
            alone = BRADLEY_TERRY.rate({"d": battles.select_between(board.models[1:])})[
                "d"
            ]
            np.testing.assert_allclose(board.rating[1:], alone.rating, atol=1e-9)
            np.testing.assert_allclose(
                board.covariance[1:, 1:], alone.covariance, atol=1e-9
            )
        if board.rank_low is not None:
            is_inside = (board.rank_low <= true_ranks) & (true_ranks <= board.rank_high)
            sets_hold.append(bool((is_inside | np.isnan(board.rank_low)).all()))
    print(
        f"{len(bounds_hold)} of {n} one-sided, of whose bounds {sum(bounds_hold)} hold; "
        f"of all {np.mean(holds):.3f} (MC {math.sqrt(0.04 * 0.96 / n):.3f}), rank sets {np.mean(sets_hold):.3f}"
    )
    assert len(holds) > 0.9 * n
    assert np.mean(holds) >= 0.96
    assert np.mean(sets_hold) >= 0.93


def expected_gap(world: Tournament, first: int, second: int) -> float:
    """Points between two entrants by the share of points that they take from one another."""
    pair = Tournament.true_ratings(
        replace(world, ratings=(world.ratings[first], world.ratings[second]))
    )
    return float(pair[0] - pair[1])
