"""Kappa, rank correlation and transitivity: by hand, against statsmodels and scipy, in tournaments of known truth."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.inter_rater import cohens_kappa

from elo_exp.analysis.agreement import (
    Agreement,
    between_dimensions,
    between_judges,
    kappa,
    rank_correlation,
    repeat_agreement,
    votes_by_comparison,
)
from elo_exp.analysis.transitivity import (
    Cycles,
    cycles,
    cycles_by_triple,
    pair_residuals,
    transitivity_of_games,
    transitivity_test,
)
from elo_exp.data import battles
from elo_exp.data.pairing import reconcile
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.games import Games
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Judgment, Verdict
from tests.data import COMPARISON, by_dimension, shared_data
from tests.simulation import Tournament

WINNER = {"a": "model_a", "b": "model_b", "t": "tie"}
TURNED = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}


def said(letters: str, a: str = "ann", b: str = "bob", per_prompt: int = 1) -> list[Battle]:
    """One battle for each letter, on prompt after prompt."""
    return [
        Battle(model_a=a, model_b=b, winner=WINNER[letter], question_id=f"q{k // per_prompt}")
        for k, letter in enumerate(letters)
    ]


def agree(first: list[Battle], second: list[Battle]) -> Agreement:
    return kappa(first, second, names=("one", "other"), dimension="d")


# Kappa


def test_a_worked_example() -> None:
    """Ten comparisons. They agree on seven. Each calls two ties and eight winners, of which, either way round, half are
    ann: by chance they agree on .2 * .2 + 2 * .4 * .4 = .36 of them.

    one    a a a a b b b b t t
    other  a a a b b b b t t a
    """
    found = agree(said("aaaabbbbtt"), said("aaabbbbtta"))
    assert (found.n_comparisons, found.n_prompts) == (10, 10)
    assert found.agreement == pytest.approx(0.7)
    assert found.kappa == pytest.approx((0.7 - 0.36) / (1 - 0.36))


def both_ways(one: str, other: str) -> np.ndarray:
    """The table of counts, each comparison also with its models exchanged, at half a count."""
    table = np.zeros((3, 3))
    for i, j in zip(one, other, strict=True):
        table["atb".index(i), "atb".index(j)] += 0.5
        table["bta".index(i), "bta".index(j)] += 0.5
    return table


@pytest.mark.parametrize("seed", range(5))
def test_statsmodels_finds_the_same_kappa_and_error(seed: int) -> None:
    """Of prompts with one comparison each, but for n / (n - 1) in the variance."""
    rng = np.random.default_rng(seed)
    one = "".join(rng.choice(list("abt"), 200, p=[0.5, 0.3, 0.2]))
    other = "".join(x if rng.random() < 0.5 else rng.choice(list("abt")) for x in one)
    found, second_opinion = agree(said(one), said(other)), cohens_kappa(both_ways(one, other))
    assert found.kappa == pytest.approx(second_opinion.kappa)
    assert found.std_error == pytest.approx(
        second_opinion.std_kappa * math.sqrt(200 / 199), rel=1e-9
    )
    assert found.ci_low == pytest.approx(
        second_opinion.kappa - stats.t.ppf(0.975, 199) * (found.std_error or 0)
    )


def test_comparisons_of_one_prompt_are_one_observation() -> None:
    """The same ten comparisons on each of eight pairs: the error is as with one pair, not a third of it."""
    one, other = "aaaabbbbtt", "aaabbbbtta"
    pairs = [("x", f"y{k}") for k in range(8)]
    many = agree(*([b for a, c in pairs for b in said(some, a, c)] for some in (one, other)))
    once = agree(said(one), said(other))
    assert (many.n_comparisons, many.n_prompts) == (80, 10)
    assert (many.kappa, many.std_error) == (
        pytest.approx(once.kappa),
        pytest.approx(once.std_error),
    )


def test_several_verdicts_on_a_comparison_count_as_one_drawn_of_them() -> None:
    """Three people, of whom two agree with the judge on the first comparison, and one on the second."""
    crowd = said("aabbta", per_prompt=3)
    found = agree(crowd, said("ab"))
    assert found.n_comparisons == 2
    assert found.agreement == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert agree(said("ab"), crowd).kappa == pytest.approx(found.kappa)


def test_only_the_same_pair_on_the_same_prompt_is_compared() -> None:
    one = [
        *said("ab"),
        *said("a", "ann", "cat"),
        Battle(model_a="ann", model_b="bob", winner="model_a"),
    ]
    other = [
        Battle(model_a="bob", model_b="ann", winner="model_b", question_id="q0"),
        *said("a", "bob", "cat"),
        one[-1],
    ]
    found = agree(one, other)
    assert (found.n_comparisons, found.agreement) == (1, 1.0)


@pytest.mark.parametrize(
    ("one", "other", "agreement", "is_kappa"),
    [
        ("", "", None, False),
        ("ttt", "ttt", 1.0, False),
        ("abt", "abt", 1.0, True),
        ("ttt", "aba", 0.0, True),
    ],
    ids=["nothing", "always a tie", "all alike", "one always ties"],
)
def test_where_there_is_nothing_to_tell_there_is_no_number(
    one: str, other: str, agreement: float | None, is_kappa: bool
) -> None:
    found = agree(said(one), said(other))
    assert (found.agreement, found.kappa is not None) == (agreement, is_kappa)
    assert (found.std_error, found.ci_low, found.ci_high) == (None, None, None)
    assert found.kappa == (agreement if is_kappa else None)


def test_of_one_prompt_kappa_has_no_error() -> None:
    found = agree(said("aabt", per_prompt=9), said("abbt", per_prompt=9))
    assert found.std_error is None


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_law_whoever_is_called_what_kappa_is_the_same(data: st.DataObject) -> None:
    """Pairs listed the other way round, other names, the two judges exchanged."""
    letters = st.text("abt", min_size=8, max_size=8)
    one, other = (said(data.draw(letters), per_prompt=1) for _ in range(2))
    turned = [
        dataclasses.replace(b, model_a="bob", model_b="ann", winner=TURNED[b.winner]) for b in one
    ]
    mirrored = [[dataclasses.replace(b, winner=TURNED[b.winner]) if k % 2 else b for k, b in enumerate(some)]
                for some in (one, other)]  # fmt: skip
    found = agree(one, other)
    for same in (agree(turned, other), agree(other, one), agree(*mirrored)):
        assert (same.kappa is None) == (found.kappa is None)
        if found.kappa is not None:
            assert same.kappa == pytest.approx(found.kappa)
            assert same.std_error == (
                None if found.std_error is None else pytest.approx(found.std_error)
            )
        json.dumps(same.to_dict(), allow_nan=False)


def test_judges_and_dimensions_are_compared_two_at_a_time() -> None:
    some = {"x": said("aabt"), "y": said("aabb"), "z": said("bbbt")}
    assert [(k.first, k.second, k.dimension) for k in between_judges(some, dimension="d")] == [
        ("x", "y", "d"),
        ("x", "z", "d"),
        ("y", "z", "d"),
    ]
    assert [(k.first, k.second, k.dimension, k.agreement) for k in between_dimensions(some)] == [
        ("x", "y", None, 0.75),
        ("x", "z", None, 0.5),
        ("y", "z", None, 0.25),
    ]


# Repeats


def judged(letters: str, prompt: str = "p1", mirrored: str = "") -> Judgment:
    """From the judge's letters, ann shown first, then bob, then ann again; `mirrored`: the places of these."""
    verdicts = [
        Verdict(
            cache_key="0f",
            rubric_version="v1",
            judge_model="opus",
            position_swap=bool(i % 2),
            verdict={"A": "A", "B": "B", "T": "TIE", "-": "INVALID"}[letter],
            mirrored=str(i) in mirrored,
            repeat=i // 2,
        )
        for i, letter in enumerate(letters)
    ]
    return reconcile(
        dataclasses.replace(COMPARISON, prompt_id=prompt), verdicts[0], verdicts[1], verdicts[2:]
    )


def test_a_repeat_is_compared_with_the_first_answer_to_the_same_order() -> None:
    """Of eight repeats on two prompts six agree.

    first answer  A B A B T B A B
    repeat        A B B B T B A T
    """
    some = [judged("ABAB"), judged("ABBB"), judged("TBTB", "p2"), judged("ABAT", "p2")]
    found = repeat_agreement(some, dimension="d")
    assert (found.n_comparisons, found.n_prompts, found.agreement) == (8, 2, 0.75)
    first, again = "ABABTBAB", "ABBBTBAT"
    table = np.array(
        [
            [sum(x + y == i + j for x, y in zip(first, again, strict=True)) for j in "ATB"]
            for i in "ATB"
        ]
    )
    assert found.kappa == pytest.approx(cohens_kappa(table).kappa)
    assert found.std_error is not None


def test_a_judge_that_always_names_the_first_shown_agrees_by_chance_alone() -> None:
    found = repeat_agreement([judged("AAAA"), judged("AAAA", "p2")], dimension="d")
    assert (found.agreement, found.kappa) == (1.0, None)


def test_invalid_and_mirrored_answers_are_no_repeats() -> None:
    some = [judged("-BA-"), judged("ABAB", mirrored="13"), judged("AB")]
    found = repeat_agreement(some, dimension="d")
    assert (found.n_comparisons, found.agreement) == (1, 1.0)  # ann first, twice
    assert repeat_agreement([], dimension="d").agreement is None


# Rank correlation


def board(**ratings: float | None) -> Leaderboard:
    models = tuple(sorted(ratings))
    values = np.array([ratings[model] for model in models], dtype=float)
    return Leaderboard(label="m", interval=None, models=models, rating=values)


def rho(first: Leaderboard, second: Leaderboard) -> float | None:
    return rank_correlation(first, second, names=("one", "other"), dimension="d").rho


def test_rank_correlation_by_hand() -> None:
    """Ranks 1 2 3 4 and 1 2 4 3: 1 - 6 (0 + 0 + 1 + 1) / (4 * 15) = .8. Models that one does not rate are left out."""
    found = rank_correlation(
        board(a=4, b=3, c=2, d=1, x=9, y=None),
        board(d=20, c=10, b=30, a=40, y=5),
        names=("m", "n"),
        dimension="d",
    )
    assert (found.n_models, found.rho) == (4, pytest.approx(0.8))


@pytest.mark.parametrize("seed", range(3))
def test_scipy_finds_the_same_rank_correlation(seed: int) -> None:
    one, other = np.random.default_rng(seed).integers(0, 8, (2, 20)).astype(float)  # with ties
    names = [f"m{k}" for k in range(20)]
    found = rho(
        board(**dict(zip(names, one, strict=True))), board(**dict(zip(names, other, strict=True)))
    )
    assert found == pytest.approx(stats.spearmanr(one, other).statistic)


def test_two_models_or_a_board_without_order_have_no_rank_correlation() -> None:
    assert rho(board(a=1, b=2), board(a=1, b=2)) is None
    assert rho(board(a=1, b=1, c=1), board(a=1, b=2, c=3)) is None
    assert rho(board(a=1), board()) is None


# Transitivity


def test_with_many_prompts_the_test_is_that_of_chi_square() -> None:
    some = Tournament().games(20_000, np.random.default_rng(1))
    found = transitivity_of_games(some, dimension="d")
    assert found.p_value == pytest.approx(stats.chi2.sf(found.chi_square, 3), abs=1e-3)


@pytest.mark.parametrize("n_prompts", [12, 40])
def test_the_probability_by_another_way(n_prompts: int) -> None:
    """Of n normal prompts, the statistic is n times a beta variable with df / 2 and (n - df) / 2."""
    found = transitivity_of_games(
        Tournament().games(n_prompts, np.random.default_rng(3)), dimension="d"
    )
    assert found.chi_square is not None
    assert found.p_value == pytest.approx(
        stats.beta.sf(found.chi_square / n_prompts, 3 / 2, (n_prompts - 3) / 2)
    )


def test_the_statistic_by_another_way() -> None:
    """The Wald test of the saturated model: the win rates of six pairs, as log-odds with their clustered covariance,
    and the distance to the nearest that are differences of four abilities."""
    some = Tournament().games(4000, np.random.default_rng(2))
    found = transitivity_of_games(some, dimension="d")
    first, second = np.array(Tournament().pairs).T
    pair = (first[:, None] == some.first) & (second[:, None] == some.second)
    rate = np.array([some.score[chosen].mean() for chosen in pair])
    part = np.zeros((4000, 6))
    for p in range(6):
        residual = (some.score[pair[p]] - rate[p]) / (pair[p].sum() * rate[p] * (1 - rate[p]))
        part[:, p] = np.bincount(some.cluster[pair[p]], residual, 4000)
    weight = np.linalg.inv(part.T @ part * 4000 / 3999)
    design = np.eye(4)[first, 1:] - np.eye(4)[second, 1:]
    log_odds = np.log(rate / (1 - rate))
    left = log_odds - design @ np.linalg.solve(
        design.T @ weight @ design, design.T @ weight @ log_odds
    )
    assert found.df == 3
    assert found.chi_square == pytest.approx(left @ weight @ left, rel=0.01)


def size(n_tournaments: int, tournament: Tournament, n_prompts: int, level: float = 0.05) -> float:
    rng = [np.random.default_rng([n_prompts, seed]) for seed in range(n_tournaments)]
    found = [
        transitivity_of_games(tournament.games(n_prompts, r), dimension="d").p_value for r in rng
    ]
    return float(np.mean([p < level for p in found if p is not None]))


def test_of_tournaments_with_one_rating_each_5_percent_look_intransitive() -> None:
    """300 tournaments of 143 prompts: a share of .025 to .08 is within 2.4 standard errors of .05."""
    assert 0.02 < size(300, Tournament(), 143) < 0.08


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tournament", "n_prompts"),
    [
        (Tournament(), 143),
        (Tournament(), 50),
        (Tournament(), 20),
        (Tournament(ratings=tuple(range(0, 160, 20))), 143),
    ],
    ids=["4 models", "50 prompts", "20 prompts", "8 models"],
)
def test_the_size_of_the_test_in_many_tournaments(tournament: Tournament, n_prompts: int) -> None:
    """Against chi-square the sizes are .060, .060, .117 and .163."""
    found = size(1500, tournament, n_prompts)
    print(f"\n{len(tournament.ratings)} models, {n_prompts} prompts: size {found:.3f}")
    assert 0.035 <= found <= 0.07


def circle(n: int) -> list[Battle]:
    """ann beats bob, bob beats cat, and cat beats ann, on three prompts of four; on the fourth it is the reverse."""
    ring = list(itertools.pairwise(["ann", "bob", "cat", "ann"]))
    return [
        Battle(
            model_a=a, model_b=b, winner="model_b" if q % 4 == 3 else "model_a", question_id=f"q{q}"
        )
        for q in range(n)
        for a, b in ring
    ]


def test_a_circle_by_hand() -> None:
    """Bradley-Terry expects half of each; each wins three quarters. On every prompt the three games go the same way
    round, by half a win more or less than expected: n/4 wins too many are sqrt(n/4) standard errors."""
    n = 40
    found = transitivity_test(circle(n), dimension="d", use="both")
    assert (found.n_models, found.n_pairs, found.n_prompts, found.df) == (3, 3, n, 1)
    assert found.chi_square == pytest.approx(n / 4)
    t = 0.25 / math.sqrt(3 / 16 / (n - 1))  # Student's, of n wins and losses
    assert found.p_value == pytest.approx(2 * stats.t.sf(t, n - 1))
    residuals = pair_residuals(circle(n), dimension="d", use="both")
    assert [(r.model_a, r.model_b, r.n_games) for r in residuals] == [
        ("ann", "bob", n),
        ("ann", "cat", n),
        ("bob", "cat", n),
    ]
    assert [r.observed for r in residuals] == pytest.approx([0.75, 0.25, 0.75])
    assert [r.expected for r in residuals] == pytest.approx([0.5] * 3)
    assert [r.z for r in residuals] == pytest.approx(
        [math.sqrt(n / 4) * sign for sign in (1, -1, 1)]
    )


def test_a_pair_that_met_on_one_prompt_is_no_surprise() -> None:
    """However many its games there, they are one observation."""
    some = [*circle(40), *said("a" * 20, "ann", "dan", per_prompt=20), *said("ab", "bob", "dan")]
    residual = next(
        r for r in pair_residuals(some, dimension="d", use="both") if r.model_b == "dan"
    )
    assert residual.n_games == 20
    assert residual.z is not None
    assert abs(residual.z) < 1.5


def test_residuals_vary_as_their_errors_say() -> None:
    """Over 100 tournaments whose truth is one rating each, z has a standard deviation of one."""
    z = [
        [
            r.z
            for r in pair_residuals(
                Tournament().battles(100, np.random.default_rng(seed)), dimension="d", use="both"
            )
        ]
        for seed in range(100)
    ]
    np.testing.assert_allclose(np.std(np.array(z, dtype=float), axis=0), 1, atol=0.25)


def test_circles_on_prompts() -> None:
    """Three prompts: a circle, an order, and a circle that a tie breaks; on the fourth one pair did not meet."""
    ring = [("ann", "bob"), ("bob", "cat"), ("cat", "ann")]
    winners = {"q0": "aaa", "q1": "aab", "q2": "aat", "q3": "aa"}
    some = [
        Battle(model_a=a, model_b=b, winner=WINNER[w], question_id=q)
        for q, letters in winners.items()
        for (a, b), w in zip(ring, letters, strict=False)
    ]
    found = Cycles(
        dimension="d",
        models=("ann", "bob", "cat"),
        n_prompts=3,
        n_cyclic_prompts=1,
        n_triples=3,
        n_cyclic=1,
    )
    assert cycles(some, dimension="d") == found
    assert cycles_by_triple(some, dimension="d") == [found]
    assert found.share == pytest.approx(1 / 3)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_law_circles_over_all_triples_add_up(seed: int) -> None:
    some = Tournament(ratings=(0.0,) * 5).battles(6, np.random.default_rng(seed))
    some = [b for b in some if np.random.default_rng([seed, hash_of(b)]).random() < 0.9]
    found, by_triple = cycles(some, dimension="d"), cycles_by_triple(some, dimension="d")
    assert found.n_triples == sum(t.n_triples for t in by_triple)
    assert found.n_cyclic == sum(t.n_cyclic for t in by_triple)
    assert max(t.n_cyclic_prompts for t in by_triple) <= found.n_cyclic_prompts <= found.n_cyclic


def hash_of(b: Battle) -> int:
    return int.from_bytes(f"{b.question_id}{b.model_a}{b.model_b}".encode(), "big") % 2**32


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_law_renaming_the_models_changes_no_test(seed: int) -> None:
    some = Tournament().games(30, np.random.default_rng(seed))
    order = np.random.default_rng(seed).permutation(4)
    renamed = Games(n_models=4, first=order[some.second], second=order[some.first], score=1 - some.score,
                    cluster=some.cluster, prompts=some.prompts)  # fmt: skip
    one, other = (transitivity_of_games(g, dimension="d") for g in (some, renamed))
    assert other.chi_square == pytest.approx(one.chi_square, rel=1e-6)


@pytest.mark.parametrize(
    ("some", "n_models", "df"),
    [
        ([], 0, 0),
        (said("aaaa"), 0, 0),
        (said("abab"), 2, 0),
        (said("abab") + said("abab", "bob", "cat"), 3, 0),
        (circle(1) + [dataclasses.replace(b, winner="model_b") for b in circle(1)], 3, 1),
        ([dataclasses.replace(b, winner="tie") for b in circle(9)], 3, 1),
        ([b for b in circle(12) if b.winner == "model_a"], 3, 1),
    ],
    ids=[
        "nothing",
        "one always wins",
        "two models",
        "a chain",
        "one prompt",
        "only ties",
        "prompts that do not differ",
    ],
)
def test_where_the_games_do_not_say_there_is_no_test(
    some: list[Battle], n_models: int, df: int
) -> None:
    found = transitivity_test(some, dimension="d", use="both")
    assert (found.n_models, found.df, found.chi_square, found.p_value) == (n_models, df, None, None)
    assert all(r.z is None for r in pair_residuals(some, dimension="d", use="both"))


def test_a_crowd_with_too_many_pairs_and_prompts_has_residuals_without_errors(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("elo_exp.analysis.transitivity._MAX_TABLE", 100)
    assert transitivity_test(circle(40), dimension="d", use="both").chi_square is None
    assert [r.z for r in pair_residuals(circle(40), dimension="d", use="both")] == [None] * 3


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_the_battles_no_number_is_nan(data: st.DataObject) -> None:
    names = st.sampled_from("abcd")
    some = data.draw(
        st.lists(
            st.builds(
                Battle,
                model_a=names,
                model_b=names,
                winner=st.sampled_from(["model_a", "model_b", "tie"]),
                question_id=st.sampled_from(["p", "q", "r", "s", None]),
            ).filter(lambda b: b.model_a != b.model_b),
            max_size=20,
        )
    )
    half = len(some) // 2
    found = [
        transitivity_test(some, dimension="d", use="both"),
        *pair_residuals(some, dimension="d", use="both"),
        cycles(some, dimension="d"),
        agree(some[:half], some[half:]),
    ]
    for record in found:
        assert (
            type(record).from_dict(json.loads(json.dumps(record.to_dict(), allow_nan=False)))
            == record
        )


def majority(some: Sequence[Battle]) -> list[Battle]:
    """One battle for each prompt and pair: the most frequent winner, a tie where there is no single one."""
    return [
        Battle(model_a=a, model_b=b, winner=winner_of(votes), question_id=prompt)
        for (prompt, a, b), votes in votes_by_comparison(some).items()
    ]


def winner_of(votes: Sequence[int]) -> str:
    most = max(votes)
    return "tie" if votes.count(most) > 1 else ("model_a", "tie", "model_b")[votes.index(most)]


def test_real_people_and_gpt_4() -> None:
    """Their single verdicts agree little more than by chance; what they make of 59 models agrees far better."""
    columns = {name: name for name in (*battles.REQUIRED, *battles.OPTIONAL)}
    path = shared_data("llmfao/battles.jsonl.gz")
    judges = ("crowd", "gpt-4")
    some = {
        j: battles.read(path, columns=columns, filters={"judge_model": j}).battles.rows()
        for j in judges
    }
    (found,) = between_judges(some, dimension="d")
    assert (found.n_comparisons, found.n_prompts) == (2139, 13)
    assert (found.agreement, found.kappa) == (
        pytest.approx(0.4136, abs=1e-4),
        pytest.approx(0.1532, abs=1e-4),
    )
    of_majority = kappa(majority(some["crowd"]), some["gpt-4"], names=judges, dimension="d")
    assert of_majority.kappa == pytest.approx(0.1768, abs=1e-4)
    boards = BradleyTerry(
        initial_rating=1400, use="both", interval="sandwich", n_bootstraps=2, seed=1
    ).rate(by_dimension(some))
    correlation = rank_correlation(boards["crowd"], boards["gpt-4"], names=judges, dimension="d")
    assert (correlation.n_models, correlation.rho) == (59, pytest.approx(0.710, abs=1e-3))
    circles = cycles(some["gpt-4"], dimension="d")
    assert (circles.n_triples, circles.n_cyclic, circles.n_cyclic_prompts) == (721, 9, 4)
