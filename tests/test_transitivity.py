"""Transitivity: cycles and residuals by hand, the test by other formulas and in simulations."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from elo_exp.analysis.dimension_fit import DimensionFit
from elo_exp.analysis.goodness_of_fit import count_cycles, transitivity
from elo_exp.data.battles import Battles
from elo_exp.ratings.games import make_games
from elo_exp.records import Battle
from tests.simulation import Tournament

RING = list(itertools.pairwise(["ann", "bob", "cat", "ann"]))
WINNER = {"a": "model_a", "b": "model_b", "t": "tie"}


def battle(pair: tuple[str, str], letter: str, prompt: str | None) -> Battle:
    a, b = pair
    return Battle(model_a=a, model_b=b, winner=WINNER[letter], question_id=prompt)


def said(letters: str, a: str = "ann", b: str = "bob") -> list[Battle]:
    """One battle for each letter, on prompt after prompt."""
    return [battle((a, b), letter, f"q{q}") for q, letter in enumerate(letters)]


def ring(n: int) -> list[Battle]:
    """ann beats bob, who beats cat, who beats ann, on three prompts of four; else the reverse."""
    return [battle(pair, "aaab"[q % 4], f"q{q}") for q in range(n) for pair in RING]


def outcome(battles: Battles) -> dict[str, Any]:
    return transitivity(DimensionFit.of(battles), dimension="d")[0].to_dict()


def residuals(battles: Battles) -> list[dict[str, Any]]:
    return transitivity(DimensionFit.of(battles), dimension="d")[1]


def simulated(n_prompts: int, seed: int, **changes: object) -> Battles:
    return Tournament(**changes).columns(n_prompts, np.random.default_rng(seed))


def test_a_ring_by_hand():
    """Bradley-Terry expects half of each; each wins three quarters. On every prompt the three games
    go the same way round, by half a win more or less than expected: n / 4 wins too many are
    sqrt(n / 4) standard errors."""
    n = 40
    some = Battles.from_rows(ring(n))
    t = 0.25 / math.sqrt(3 / 16 / (n - 1))  # Student's, of n wins and losses
    assert outcome(some) == {
        "dimension": "d",
        "n_models": 3,
        "n_pairs": 3,
        "n_prompts": n,
        "df": 1,
        "chi_square": pytest.approx(n / 4),
        "p_value": pytest.approx(2 * stats.t.sf(t, n - 1)),
    }
    expected = [
        ("ann", "bob", 0.75, 1),
        ("ann", "cat", 0.25, -1),
        ("bob", "cat", 0.75, 1),
    ]
    assert residuals(some) == [
        {
            "dimension": "d",
            "model_a": a,
            "model_b": b,
            "n_games": n,
            "observed": pytest.approx(share),
            "expected": pytest.approx(0.5),
            "z": pytest.approx(sign * math.sqrt(n / 4)),
        }
        for a, b, share, sign in expected
    ]


def test_the_residuals_are_those_of_a_table_of_prompts_and_pairs():
    """Naively: each prompt's residual wins less what its scores move them through the ratings."""
    some = simulated(50, 4)
    played, found = make_games(some, orders="both"), residuals(some)
    p = np.array([row["expected"] for row in found])
    pairs = list(itertools.combinations(range(4), 2))
    design, own = np.zeros((6, 4)), np.zeros((50, 6))
    for row, (i, j) in enumerate(pairs):
        design[row, i], design[row, j] = 1, -1
        of_pair = (played.first == i) & (played.second == j)
        np.add.at(own[:, row], played.cluster[of_pair], played.score[of_pair] - p[row])
    slope = np.array([row["n_games"] for row in found]) * p * (1 - p)
    bread = np.linalg.pinv(design.T @ (slope[:, None] * design))
    parts = own - own @ design @ bread @ (slope[:, None] * design).T
    residual = own.sum(axis=0)
    z = residual / np.sqrt((parts**2).sum(axis=0))
    np.testing.assert_allclose([row["z"] for row in found], z, rtol=1e-9)
    chi_square = residual @ np.linalg.pinv(parts.T @ parts, rcond=1e-9) @ residual
    assert outcome(some)["chi_square"] == pytest.approx(chi_square)


def test_the_p_value_is_that_of_a_beta_variable():
    """Of n normal prompts, the statistic is n times Beta(df / 2, (n - df) / 2)."""
    found = outcome(simulated(12, 3))
    beta = stats.beta.sf(found["chi_square"] / 12, 3 / 2, (12 - 3) / 2)
    assert found["p_value"] == pytest.approx(beta)


@pytest.mark.parametrize(
    ("n_models", "n_prompts", "n"),
    [
        (4, 143, 300),
        *[
            pytest.param(*of, 1500, marks=pytest.mark.slow)
            for of in ((4, 143), (4, 50), (4, 20), (8, 143))
        ],
    ],
)
def test_of_transitive_tournaments_5_percent_are_rejected(
    n_models: int, n_prompts: int, n: int
):
    """Against chi-square the slow sizes are .060, .060, .117 and .163."""
    ratings = tuple(np.linspace(0.0, 140.0, n_models))
    found = [outcome(simulated(n_prompts, seed, ratings=ratings)) for seed in range(n)]
    size = np.mean([(test["p_value"] or 1.0) < 0.05 for test in found])
    assert size == pytest.approx(0.0525, abs=0.0325 if n == 300 else 0.0175)


@pytest.mark.parametrize(
    ("rows", "n_models", "df"),
    [
        ([], 0, 0),
        (said("abab") + said("abab", "bob", "cat"), 3, 0),
        (ring(1) + [dataclasses.replace(b, winner="model_b") for b in ring(1)], 3, 1),
        ([dataclasses.replace(b, winner="tie") for b in ring(9)], 3, 1),
        ([b for b in ring(12) if b.winner == "model_a"], 3, 1),
    ],
    ids=["nothing", "a chain", "one prompt", "ties", "equal prompts"],
)
def test_where_the_games_do_not_tell_there_is_no_test(
    rows: list[Battle], n_models: int, df: int
):
    some = Battles.from_rows(rows)
    found = outcome(some)
    assert (found["n_models"], found["df"]) == (n_models, df)
    assert (found["chi_square"], found["p_value"]) == (None, None)
    assert all(row["z"] is None for row in residuals(some))


def test_cycles_by_hand():
    """A cycle, an order, a cycle that a tie breaks; on q3 one pair did not meet, on q4 it is voted
    two to one, and battles without a prompt are on none."""
    winners = {
        "q0": "aaa",
        "q1": "aab",
        "q2": "aat",
        "q3": "aa",
        "q4": "aaa",
        None: "aaa",
    }
    rows = [
        battle(pair, letter, q)
        for q, letters in winners.items()
        for pair, letter in zip(RING, letters, strict=False)
    ]
    rows += [battle(("bob", "ann"), letter, "q4") for letter in "ab"]
    assert count_cycles(Battles.from_rows(rows), dimension="d").to_dict() == {
        "dimension": "d",
        "models": ("ann", "bob", "cat"),
        "n_prompts": 4,
        "n_cyclic_prompts": 2,
        "n_triples": 4,
        "n_cyclic": 2,
        "share": 1 / 2,
    }
    assert count_cycles(Battles.from_rows([]), dimension="d").share is None


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_law_cycles_are_those_of_all_triples(seed: int, data: st.DataObject):
    """Naively: on every prompt, the winners of every three models."""
    some = simulated(6, seed, ratings=(0.0,) * 5)
    missing = data.draw(st.sets(st.integers(0, len(some) - 1), max_size=10))
    some = some.select(np.delete(np.arange(len(some)), list(missing)))
    n_triples, cyclic = 0, []
    for q in range(6):
        rows = some.select(some.question == q).rows()
        winner = {(b.model_a, b.model_b): b.winner for b in rows}
        for a, b, c in itertools.combinations("abcde", 3):
            won = [winner.get(pair) for pair in ((a, b), (b, c), (a, c))]
            n_triples += None not in won
            if won in (
                ["model_a", "model_a", "model_b"],
                ["model_b", "model_b", "model_a"],
            ):
                cyclic.append(q)
    found = count_cycles(some, dimension="d")
    assert (found.n_triples, found.n_cyclic) == (n_triples, len(cyclic))
    assert found.n_cyclic_prompts == len(set(cyclic))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_law_whatever_the_battles_no_number_is_nan(data: st.DataObject):
    pair = st.permutations("abcd").map(lambda names: (names[0], names[1]))
    prompt = st.sampled_from(["p", "q", "r", "s", None])
    rows = data.draw(
        st.lists(st.builds(battle, pair, st.sampled_from("abt"), prompt), max_size=20)
    )
    some = Battles.from_rows(rows)
    cycles = count_cycles(some, dimension="d").to_dict()
    found = [residuals(some), outcome(some), cycles]
    json.dumps(found, allow_nan=False)
