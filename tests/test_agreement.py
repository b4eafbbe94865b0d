"""Kappa and rank correlation: by hand, against statsmodels and scipy, and on real votes."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace as Row

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.inter_rater import cohens_kappa

from elo_exp.analysis.agreement import (
    correlate_judge_ratings,
    kappa,
    pairwise_kappa,
    rank_correlation,
    repeat_agreement,
)
from elo_exp.analysis.goodness_of_fit import count_cycles
from elo_exp.data import battle_columns, battle_files
from elo_exp.data.battles import Battles
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Judgment
from tests.data import battle, shared_data
from tests.simulation import BRADLEY_TERRY
from tests.test_judge_quality import EQUAL, judgment

WINNER = {"a": "model_a", "b": "model_b", "t": "tie"}
TURN = {"a": "b", "b": "a", "t": "t"}
TURNED = {WINNER[letter]: WINNER[turned] for letter, turned in TURN.items()}


def said(
    letters: str, a: str = "ann", b: str = "bob", per_prompt: int = 1
) -> list[Battle]:
    """One battle for each letter, on prompt after prompt."""
    return [
        battle(a, b, WINNER[letter], question_id=f"q{k // per_prompt}")
        for k, letter in enumerate(letters)
    ]


def agree(first: list[Battle], second: list[Battle]) -> Row:
    sides = Battles.from_rows(first), Battles.from_rows(second)
    return Row(**kappa(*sides, names=("one", "other"), dimension="d"))


# Kappa


def test_a_worked_example():
    """Ten comparisons. They agree on seven. Each calls two ties and eight winners, of which, either
    way round, half are ann: by chance they agree on .2 * .2 + 2 * .4 * .4 = .36 of them.

    one    a a a a b b b b t t
    other  a a a b b b b t t a
    """
    found = agree(said("aaaabbbbtt"), said("aaabbbbtta"))
    assert (found.n_comparisons, found.n_prompts) == (10, 10)
    assert found.agreement == pytest.approx(0.7)
    assert found.kappa == pytest.approx((0.7 - 0.36) / (1 - 0.36))


@pytest.mark.parametrize("seed", range(3))
def test_statsmodels_finds_the_same_kappa_and_error(seed: int):
    """Of each comparison both ways round, on as many prompts, but for n / (n - 1)."""
    rng = np.random.default_rng(seed)
    one = rng.choice(list("abt"), 200, p=[0.5, 0.3, 0.2])
    other = np.where(rng.random(200) < 0.5, one, rng.choice(list("abt"), 200))
    table = np.zeros((3, 3))
    for i, j in zip(one, other, strict=True):
        for letters in ("atb", "bta"):
            table[letters.index(i), letters.index(j)] += 0.5
    found, second = agree(said("".join(one)), said("".join(other))), cohens_kappa(table)
    error = second.std_kappa * math.sqrt(200 / 199)
    assert (found.kappa, found.std_error) == pytest.approx((second.kappa, error))
    assert found.ci_low == pytest.approx(second.kappa - stats.t.ppf(0.975, 199) * error)


def test_comparisons_of_one_prompt_are_one_observation():
    """The same ten comparisons on each of eight pairs: the error is as with one pair."""
    one, other = "aaaabbbbtt", "aaabbbbtta"
    pairs = [("x", f"y{k}") for k in range(8)]
    many = agree(
        *([b for pair in pairs for b in said(some, *pair)] for some in (one, other))
    )
    once = agree(said(one), said(other))
    assert (many.n_comparisons, many.n_prompts) == (80, 10)
    assert (many.kappa, many.std_error) == pytest.approx((once.kappa, once.std_error))


def test_several_verdicts_on_a_comparison_count_as_one_drawn_of_them():
    """Three people: two agree with the judge on the first comparison, one on the second."""
    found = agree(crowd := said("aabbta", per_prompt=3), said("ab"))
    assert (found.n_comparisons, found.agreement) == pytest.approx((2, 1 / 2))
    assert agree(said("ab"), crowd).kappa == pytest.approx(found.kappa)


def test_only_the_same_pair_on_the_same_named_prompt_is_compared():
    no_prompt = battle("ann", "bob")
    turned = battle("bob", "ann", "model_b", question_id="q0")
    found = agree(
        [*said("ab"), *said("a", "ann", "cat"), no_prompt],
        [turned, *said("a", "bob", "cat"), no_prompt],
    )
    assert (found.n_comparisons, found.agreement) == (1, 1.0)


@pytest.mark.parametrize(
    ("one", "other", "agreement", "value"),
    [
        ("", "", None, None),
        ("ttt", "ttt", 1.0, None),  # always a tie
        ("abt", "abt", 1.0, 1.0),
        ("ttt", "aba", 0.0, 0.0),
    ],
)
def test_where_there_is_nothing_to_tell_there_is_no_number(
    one: str, other: str, agreement: float | None, value: float | None
):
    found = agree(said(one), said(other))
    assert (found.agreement, found.kappa) == (agreement, value)
    assert (found.std_error, found.ci_low, found.ci_high) == (None, None, None)


def test_one_prompt_gives_no_error():
    sides = (said(letters, per_prompt=9) for letters in ("aabt", "abbt"))
    assert agree(*sides).std_error is None


EIGHT = st.text("abt", min_size=8, max_size=8)


@settings(max_examples=40, deadline=None)
@given(one=EIGHT, other=EIGHT)
def test_law_names_and_sides_do_not_matter(one: str, other: str):
    """Pairs listed the other way round, the two judges exchanged, every second winner turned."""
    first, second = said(one), said(other)
    listed = [
        dataclasses.replace(b, model_a="bob", model_b="ann", winner=TURNED[b.winner])
        for b in first
    ]
    mirrored = [
        said("".join(TURN[x] if k % 2 else x for k, x in enumerate(letters)))
        for letters in (one, other)
    ]
    found = agree(first, second)
    json.dumps(vars(found), allow_nan=False)
    for same in (agree(listed, second), agree(second, first), agree(*mirrored)):
        for name in ("agreement", "kappa", "std_error"):
            assert getattr(same, name) == pytest.approx(getattr(found, name))


# Repeats


def judged(letters: str, prompt: str = "p1", mirrored: bool = False) -> Judgment:
    """From the judge's letters, ann first, bob first, ann first ..."""
    names = {"A": "A", "B": "B", "T": "TIE", "-": "INVALID"}
    found = judgment(*(names[letter] for letter in letters), mirrored=mirrored)
    return dataclasses.replace(found, prompt_id=prompt)


def repeats(*judgments: Judgment) -> Row:
    return Row(**repeat_agreement(judgments, dimension="d"))


def test_a_repeat_is_compared_with_the_first_answer_to_the_same_order():
    """Of eight repeats on two prompts six agree; the table of letters is kappa's.

    first answer  A B A B T B A B
    repeat        A B B B T B A T
    """
    others = judged("TBTB", "p2"), judged("ABAT", "p2")
    found = repeats(judged("ABAB"), judged("ABBB"), *others)
    assert (found.n_comparisons, found.n_prompts, found.agreement) == (8, 2, 0.75)
    letters = list(zip("ABABTBAB", "ABBBTBAT", strict=True))
    table = np.array([[letters.count((i, j)) for j in "ATB"] for i in "ATB"])
    assert found.kappa == pytest.approx(cohens_kappa(table).kappa)
    assert found.std_error is not None


def test_repeats_that_tell_nothing():
    """Always the first shown agrees by chance; invalid, mirrored and equal answers are no repeats."""
    always = repeats(judged("AAAA"), judged("AAAA", "p2"))
    assert (always.agreement, always.kappa) == (1.0, None)
    equal = judgment("A", "A", "B", "B", of=EQUAL)
    found = repeats(judged("-BA-"), judged("ABAB", mirrored=True), judged("AB"), equal)
    assert (found.n_comparisons, found.agreement) == (2, 0.5)  # ann first, twice
    assert repeats().agreement is None


# Rank correlation


def board(**ratings: float) -> Leaderboard:
    models = tuple(sorted(ratings))
    rating = np.array([ratings[model] for model in models], dtype=float)
    return Leaderboard(label="m", interval=None, models=models, rating=rating)


def rho(first: Leaderboard, second: Leaderboard) -> Row:
    names = ("one", "other")
    return Row(**rank_correlation(first, second, names=names, dimension="d"))


@pytest.mark.parametrize("seed", range(3))
def test_scipy_finds_the_same_rank_correlation(seed: int):
    one, other = (
        np.random.default_rng(seed).integers(0, 8, (2, 20)).astype(float)
    )  # with ties
    names = [f"m{k}" for k in range(20)]
    boards = [board(**dict(zip(names, some, strict=True))) for some in (one, other)]
    assert rho(*boards).rho == pytest.approx(stats.spearmanr(one, other).statistic)


def test_without_an_order_of_three_models_there_is_no_rank_correlation():
    one, other = board(a=4, b=3, c=2, x=9, y=math.nan), board(c=10, b=30, a=40, y=5)
    assert (rho(one, other).n_models, rho(one, other).rho) == (3, pytest.approx(1.0))
    assert rho(board(a=1, b=2), board(a=1, b=2)).rho is None
    assert rho(board(a=1, b=1, c=1), board(a=1, b=2, c=3)).rho is None


def test_judges_are_rated_by_what_both_judged():
    """On q0 to q5; what one judged elsewhere would turn its order round."""
    ring = [("a", "b"), ("b", "c"), ("a", "c")]
    both = [b for pair in ring for b in said("aabaab", *pair)]
    elsewhere = [
        dataclasses.replace(
            b, question_id=f"other {b.question_id}", winner=TURNED[b.winner]
        )
        for b in both * 3
    ]
    judges = {"x": Battles.from_rows(both), "y": Battles.from_rows(both + elsewhere)}
    (found,) = correlate_judge_ratings(judges, BRADLEY_TERRY.rate, dimension="d")
    assert (found["n_models"], found["rho"]) == (3, pytest.approx(1))
    apart = {"x": judges["x"], "z": Battles.from_rows(elsewhere)}
    assert correlate_judge_ratings(apart, BRADLEY_TERRY.rate, dimension="d") == []


def test_real_people_and_gpt_4():
    """Their single verdicts agree little more than by chance; what they make of 59 models does."""
    columns = {name: name for name in battle_columns.FIELDS}
    path = shared_data("llmfao/battles.jsonl.gz")
    some = {
        judge: battle_files.read(path, columns=columns, filters={"judge_model": judge})[
            0
        ]
        for judge in ("crowd", "gpt-4")
    }
    (found,) = pairwise_kappa(some, dimension="d")
    numbers = [found[n] for n in ("n_comparisons", "n_prompts", "agreement", "kappa")]
    assert numbers == pytest.approx([2139, 13, 0.4136, 0.1532], abs=1e-4)
    boards = BRADLEY_TERRY.rate(some)
    correlation = rho(boards["crowd"], boards["gpt-4"])
    numbers = correlation.n_models, correlation.rho
    assert numbers == pytest.approx((59, 0.710), abs=1e-3)
    found_cycles = count_cycles(some["gpt-4"], dimension="d")
    assert (found_cycles.n_triples, found_cycles.n_cyclic) == (721, 9)
    assert found_cycles.n_cyclic_prompts == 4
