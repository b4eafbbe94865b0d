"""Position and length: by hand, against statsmodels' clustered regression, in known tournaments."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as statsmodels
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from elo_exp import files
from elo_exp.analysis.judge_bias import (
    CovariateFit,
    LengthControl,
    LengthEffect,
    PositionEffect,
    length_control,
    position_effect,
    response_lengths,
)
from elo_exp.data import battle_files
from elo_exp.data.battles import Battles, from_judgments
from elo_exp.data.pairing import reconcile
from elo_exp.ratings.bradley_terry import POINTS
from elo_exp.ratings.games import Games, games
from elo_exp.records import Battle, Comparison, Judgment, Verdict
from tests.data import COMPARISON, shared_data
from tests.simulation import BRADLEY_TERRY, Tournament

TURNED = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}
EQUAL_ANSWERS = dataclasses.replace(COMPARISON, response_b=COMPARISON.response_a)


def two_orders(ab: str, ba: str, prompt: str = "q0") -> Battle:
    """From the judge's letters, ann shown first, then bob."""
    of_ab = {"A": "model_a", "B": "model_b", "T": "tie"}[ab]
    of_ba = {"A": "model_b", "B": "model_a", "T": "tie"}[ba]
    return Battle(
        model_a="ann",
        model_b="bob",
        winner=of_ab if of_ab == of_ba else "tie",
        question_id=prompt,
        verdict_ab=of_ab,
        verdict_ba=of_ba,
    )


def position(some: str | list[Battle] | Battles) -> PositionEffect:
    """Of battles; or of the letters of one prompt after the other, such as "AA AB"."""
    if isinstance(some, str):
        some = [two_orders(*letters, f"q{q}") for q, letters in enumerate(some.split())]
    columns = some if isinstance(some, Battles) else Battles.from_rows(some)
    return position_effect(columns, dimension="d")


def simulated(n: int, seed: int = 1, **changes: Any) -> Battles:
    return Tournament(**changes).columns(n, np.random.default_rng(seed))


# Position


def test_a_worked_example_of_equals():
    """Ten verdicts on ann against bob, who win five each; the odds for the first shown are 8 to 2.

    ann first   bob first               won by the first shown
    A           A           3 prompts   6 of 6
    A           B           1 prompt    1 of 2, ann both
    B           A           1 prompt    1 of 2, bob both

    The effect's score of a prompt is the first shown's wins less 2 p: here p = .8, and the scores
    are .4, .4, .4, -.6, -.6. The curvature is 10 p (1 - p) = 1.6.
    """
    found = position("AA AA AA AB BA")
    assert (found.n_prompts, found.n_verdicts, found.n_decisive) == (5, 10, 10)
    assert (found.p_first, found.effect) == pytest.approx((0.8, math.log(8 / 2)))
    error = math.sqrt(5 / 4 * (3 * 0.4**2 + 2 * 0.6**2)) / 1.6
    assert found.std_error == pytest.approx(error)
    ends = stats.t.interval(0.95, 4, math.log(4), error)
    assert (found.ci_low, found.ci_high) == pytest.approx(
        1 / (1 + np.exp(-np.array(ends)))
    )


def test_a_better_model_is_no_position_effect():
    """ann wins three of four in either place; nor is there a prompt on which it is otherwise."""
    found = position("AB AB AB BA")
    assert (found.effect, found.std_error) == (pytest.approx(0), None)


def test_ties_do_not_hide_the_effect():
    some = simulated(100).rows()
    ties = [
        dataclasses.replace(two_orders("T", "T", f"tied{q}"), model_a="a")
        for q in range(100)
    ]
    with_ties, without = position(some + ties), position(some)
    assert with_ties.effect == pytest.approx(without.effect)
    assert with_ties.std_error == pytest.approx(without.std_error)
    assert with_ties.n_verdicts - without.n_verdicts == 200


@pytest.mark.parametrize(
    ("noise", "mean"),
    [({}, 0.5325), ({"quality": 0.0, "pair_noise": 0.0}, 0.55)],
    ids=["clustered", "independent"],
)
def test_an_effect_of_55_percent_is_recovered(noise: dict[str, float], mean: float):
    """What prompts have of their own draws the mean over prompts nearer to a half."""
    found = position(simulated(4000, **noise))
    assert found.p_first == pytest.approx(0.55, abs=0.02)
    assert found.p_first == pytest.approx(mean, abs=4 * 0.25 * (found.std_error or 0))


def test_two_orders_leave_the_gap_as_it_is_and_one_order_does_not():
    """A gap of 100 points is found with a bias of 2 at most; with the better model always shown
    second it is found 34 points smaller."""
    tournament = Tournament(ratings=(0.0, 100.0), quality=0, pair_noise=0)
    verdicts = tournament.verdicts(200_000, np.random.default_rng(3))[:, 0]
    both, one = (((v == -1).sum() / (v == 1).sum()) for v in (verdicts, verdicts[:, 0]))
    assert POINTS * math.log(both) == pytest.approx(100, abs=2)
    assert POINTS * math.log(one) == pytest.approx(
        100 - POINTS * math.log(0.55 / 0.45), abs=2
    )


@pytest.mark.slow
def test_the_interval_covers_the_truth_as_often_as_it_says():
    truth = position(simulated(40_000, seed=0)).p_first
    found = [position(simulated(143, seed)) for seed in range(1, 501)]
    covered = [f.ci_low < truth < f.ci_high for f in found]  # type: ignore[operator]
    assert 0.925 <= np.mean(covered) <= 0.97


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_law_naming_the_other_response_turns_the_effect_round(seed: int):
    some = simulated(12, seed, first_shown=0.7)
    swapped = np.array([1, 0, 2, 3], dtype=np.int8)
    other = dataclasses.replace(
        some, verdict_ab=swapped[some.verdict_ab], verdict_ba=swapped[some.verdict_ba]
    )
    one, turned = position(some), position(other)
    assert turned.effect == pytest.approx(-(one.effect or 0), abs=1e-9)
    assert turned.std_error == pytest.approx(one.std_error)


def judged(
    ab: str, ba: str, *, mirrored: bool = False, of: Comparison = COMPARISON
) -> Judgment:
    verdicts = [
        Verdict(
            cache_key="0f",
            rubric_version="v1",
            judge_model="opus",
            position_swap=swap,
            verdict=letter,
            mirrored=mirrored and swap,
        )
        for swap, letter in ((False, ab), (True, ba))
    ]
    return reconcile(of, *verdicts)


NOTHING = PositionEffect(dimension="d", n_prompts=0, n_verdicts=0, n_decisive=0)


def test_verdicts_that_say_nothing_about_order_are_left_out():
    """Invalid in one order; one order mirrored; equal answers; one order, as humans vote."""
    some = [
        judged("A", "INVALID"),
        judged("A", "B", mirrored=True),
        judged("A", "A", of=EQUAL_ANSWERS),
    ]
    one_order = Battle(model_a="ann", model_b="bob", winner="model_a")
    assert position([*from_judgments(some), one_order]) == NOTHING
    assert position([]) == NOTHING
    assert position(from_judgments([judged("A", "A")])).n_verdicts == 2


@pytest.mark.parametrize("letters", ["TT TT", "AA AA", "BB BB AT", "AB AB", "AA"])
def test_without_a_finite_effect_there_is_none(letters: str):
    found = position(letters)
    values = found.effect, found.std_error, found.p_first, found.ci_low, found.ci_high
    assert values == (None,) * 5


def test_errors_are_told_by_prompts_that_differ():
    """One prompt tells none. A judge that names each model once on every prompt has no part in the
    ratings, but in the effect: eight prompts, six of which favour the first shown."""
    one = position([two_orders("A", "A"), two_orders("A", "B"), two_orders("B", "A")])
    assert (one.p_first, one.std_error, one.ci_low) == (
        pytest.approx(4 / 6),
        None,
        None,
    )
    found = position("AA AA AA AA AA AA BB BB")
    assert found.p_first == pytest.approx(0.75)
    error = math.sqrt(8 / 7 * (6 * 0.5**2 + 2 * 1.5**2)) / (16 * 0.75 * 0.25)
    assert found.std_error == pytest.approx(error)


# A column in Bradley-Terry


def with_column(seed: int, n_prompts: int = 60) -> tuple[Games, np.ndarray]:
    """The decisive games of a tournament, and a column that counts."""
    some = simulated(n_prompts, seed)
    played = games(some.select(some.winner < 2), use="consistent")
    noise = np.random.default_rng(seed).standard_normal(len(played.score))
    return played, noise + played.score


def clustered_glm(played: Games, column: np.ndarray) -> Any:
    """The same model by statsmodels, the first model's ability being zero; n / (n - 1)."""
    rows, m = np.arange(len(played.score)), played.n_models
    x = np.zeros((len(rows), m))
    x[rows, played.first], x[rows, played.second] = 1, -1
    x = np.column_stack([x[:, 1:], column])
    glm = statsmodels.GLM(played.score, x, family=statsmodels.families.Binomial())
    groups = {"groups": played.cluster, "use_correction": False}
    fitted = glm.fit(tol=1e-12, cov_type="cluster", cov_kwds=groups)
    covariance = fitted.cov_params() * played.n_clusters / (played.n_clusters - 1)
    centre = np.eye(m)[:, 1:] - 1 / m
    abilities = np.sqrt(np.diag(centre @ covariance[: m - 1, : m - 1] @ centre.T))
    errors = np.append(abilities, math.sqrt(covariance[-1, -1]))
    return SimpleNamespace(
        theta=centre @ fitted.params[:-1], effect=fitted.params[-1], errors=errors
    )


@pytest.mark.parametrize("seed", range(4))
def test_statsmodels_finds_the_same_effect_with_the_same_errors(seed: int):
    played, column = with_column(seed)
    found, other = CovariateFit.of(played, column), clustered_glm(played, column)
    np.testing.assert_allclose(found.theta, other.theta, atol=1e-7)
    assert found.effect == pytest.approx(other.effect, abs=1e-7)
    np.testing.assert_allclose(found.std_error, other.errors, rtol=0.002)


def test_a_column_that_the_models_explain_or_that_decides_every_game_has_no_effect():
    played, column = with_column(1)
    length = np.array([300.0, 500, 200, 900])
    for x in (
        length[played.first] - length[played.second],
        0 * column,
        2 * played.score - 1,
    ):
        found = CovariateFit.of(played, x)
        assert np.isnan(found.effect) and np.isnan(found.std_error).all()
    nearly = np.where(np.random.default_rng(1).random(len(column)) < 0.1, -1, 1)
    assert CovariateFit.of(played, nearly * (2 * played.score - 1)).effect > 1


def test_models_without_a_finite_ability_are_left_out():
    played, column = with_column(1)
    unbeaten = dataclasses.replace(
        played, n_models=5, first=np.where(np.arange(len(column)) % 9, played.first, 4),
        score=np.where(np.arange(len(column)) % 9, played.score, 1.0),
    )  # fmt: skip
    found = CovariateFit.of(unbeaten, column)
    without = CovariateFit.of(
        unbeaten.among(np.arange(5) < 4), column[unbeaten.first < 4]
    )
    assert found.rated.tolist() == [True] * 4 + [False]
    assert found.effect == pytest.approx(without.effect)
    np.testing.assert_allclose(found.std_error, without.std_error)


# Length


def with_lengths(
    n: int, effect: float, seed: int = 2
) -> tuple[Battles, dict[tuple[str, str], int]]:
    """One game for each pair and prompt; lengths differ by model and prompt, and count `effect`."""
    rng = np.random.default_rng(seed)
    theta = np.array([0.0, 0.3, 0.6, 0.9])
    lengths = rng.integers(100, 900, size=(n, 4)) + np.array([0, 200, 400, 600])
    first, second = np.array([(i, j) for i in range(4) for j in range(i)]).T
    difference = lengths[:, first] - lengths[:, second]
    x = np.tanh(difference / math.sqrt((difference**2).mean()))
    wins = rng.random(x.shape) < 1 / (
        1 + np.exp(theta[second] - theta[first] - effect * x)
    )
    rows = [
        Battle(
            model_a="abcd"[i],
            model_b="abcd"[j],
            winner="model_a" if won else "model_b",
            question_id=f"q{q}",
        )
        for q in range(n)
        for i, j, won in zip(first, second, wins[q], strict=True)
    ]
    table = {
        (f"q{q}", "abcd"[i]): int(lengths[q, i]) for q in range(n) for i in range(4)
    }
    return Battles.from_rows(rows), table


def controlled(
    some: Battles, lengths: dict[tuple[str, str], int], use: str = "both"
) -> LengthControl:
    return length_control(some, lengths, dimension="d", initial_rating=1400, use=use)


def test_a_length_effect_is_recovered_and_taken_out_of_the_ratings():
    """Four models 52 points apart, of which the better write more: their ratings lie further
    apart as they are."""
    found = controlled(*with_lengths(2000, effect=0.8))
    effect = found.effect
    assert effect.effect == pytest.approx(0.8, abs=4 * (effect.std_error or 0))
    assert (effect.ci_low or 0) < 0.8 < (effect.ci_high or 0)
    assert [r.model for r in found.ratings] == ["d", "c", "b", "a"]
    for k, r in enumerate(found.ratings):
        assert r.rating_at_equal_length == pytest.approx(
            1400 + POINTS * (0.45 - 0.3 * k), abs=12
        )
        assert r.mean_length == pytest.approx(500 + 200 * (3 - k), abs=20)
    assert (found.ratings[0].rating or 0) - (
        found.ratings[3].rating or 0
    ) > 0.9 * POINTS + 80


def test_the_ratings_as_they_are_are_those_of_the_leaderboard():
    some = simulated(40)
    lengths = {
        (f"q{q}", m): 100 + 7 * q * (ord(m) % 5) for q in range(40) for m in "abcd"
    }
    for use in ("both", "consistent"):
        board = dataclasses.replace(BRADLEY_TERRY, use=use).rate({"d": some})["d"]
        found = controlled(some, lengths, use)
        assert found.effect.n_games == board.n_matches
        for r in found.ratings:
            i = board.models.index(r.model)
            expected = board.rating[i], board.std_error[i]
            assert (r.rating, r.std_error) == pytest.approx(expected)


def test_how_often_the_longer_wins_by_tercile():
    """Six games; ann's response is longer by so many characters, and she wins, loses or ties.

    by      10    20   |  -30    40   |   50    60      one pair of equal length has no longer one
    ann     wins  loses|  loses  ties |   wins  wins
    longer  1     0    |  1      1/2  |   1     1
    """
    letters = ["model_a", "model_b", "model_b", "tie", "model_a", "model_a", "model_a"]
    rows = [
        Battle(model_a="ann", model_b="bob", winner=winner, question_id=f"q{q}")
        for q, winner in enumerate(letters)
    ]
    by = [10, 20, -30, 40, 50, 60, 0]
    lengths = {(f"q{q}", "ann"): 100 + d for q, d in enumerate(by)}
    lengths |= {(f"q{q}", "bob"): 100 for q in range(7)}
    found = controlled(Battles.from_rows(rows), lengths).terciles
    assert [(t.shortest, t.longest, t.n_games, t.win_rate) for t in found] == [
        (10, 20, 2, 0.5),
        (30, 40, 2, 0.75),
        (50, 60, 2, 1.0),
    ]
    assert [t.std_error for t in found] == [
        pytest.approx(0.5),
        pytest.approx(0.25),
        None,
    ]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_law_listing_a_pair_the_other_way_round_changes_no_length_effect(seed: int):
    some, lengths = with_lengths(12, 0.5, seed)
    turned = dataclasses.replace(
        some,
        model_a=some.model_b,
        model_b=some.model_a,
        winner=np.int8(1) - some.winner,
    )
    one, other = controlled(some, lengths), controlled(turned, lengths)
    assert other.effect.effect == pytest.approx(one.effect.effect, abs=1e-9)
    assert other.effect.std_error == pytest.approx(one.effect.std_error)
    assert [t.win_rate for t in other.terciles] == pytest.approx(
        [t.win_rate for t in one.terciles]
    )


def test_a_battle_whose_lengths_are_unknown_is_left_out_and_counted():
    some, lengths = with_lengths(20, 0.5)
    nameless = Battle(model_a="a", model_b="b", winner="model_a")
    stranger = Battle(model_a="a", model_b="x", winner="tie", question_id="q1")
    found = controlled(Battles.from_rows([*some.rows(), nameless, stranger]), lengths)
    without = controlled(some, lengths)
    assert found.effect == dataclasses.replace(without.effect, n_without_length=2)
    assert found.ratings == without.ratings
    effect = LengthEffect(
        dimension="d", n_prompts=0, n_games=0, n_without_length=len(some)
    )
    assert controlled(some, {}) == LengthControl(effect=effect, ratings=(), terciles=())
    assert response_lengths([COMPARISON]) == {("p1", "ann"): 4, ("p1", "bob"): 3}


def test_where_lengths_do_not_vary_or_nobody_wins_there_is_no_effect():
    some = simulated(30)
    same = {(f"q{q}", model): 100 for q in range(30) for model in "abcd"}
    varied = {key: 100 + 13 * k for k, key in enumerate(same)}
    tie = np.full_like(some.winner, 2)
    ties = dataclasses.replace(some, winner=tie, verdict_ab=tie, verdict_ba=tie)
    for found in (controlled(some, same), controlled(ties, varied)):
        assert (found.effect.effect, found.effect.std_error) == (None, None)
        assert all(r.rating_at_equal_length is None for r in found.ratings)
    assert [r.rating for r in controlled(ties, varied).ratings] == [1400] * 4


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_law_whatever_the_verdicts_no_number_is_nan(data: st.DataObject):
    """A few battles among a few models on a few prompts, most of which tell little."""
    winner = st.sampled_from(["model_a", "model_b", "tie"])
    row = st.builds(
        Battle,
        model_a=st.sampled_from("abc"),
        model_b=st.sampled_from("abc"),
        winner=winner,
        question_id=st.sampled_from(["p", "q", "r", None]),
        verdict_ab=winner | st.none(),
        verdict_ba=winner | st.none(),
    ).filter(lambda b: b.model_a != b.model_b)
    some = Battles.from_rows(data.draw(st.lists(row, max_size=12)))
    lengths = {
        (prompt, model): data.draw(st.integers(0, 5))
        for prompt in "pqr"
        for model in "abc"
    }
    found = controlled(some, lengths)
    for record in (position(some), found.effect, *found.ratings, *found.terciles):
        json.dumps(record.to_dict(), allow_nan=False)


def test_on_real_votes_people_do_not_prefer_the_longer_response_of_equals():
    """Thirteen prompts and sixty models: people's effect is .00 +- .13."""
    columns = {name: name for name in battle_files.NAMES}
    rows = [
        row for _, row in files.read_jsonl(shared_data("llmfao/responses.jsonl.gz"))
    ]
    lengths = {(row["prompt_id"], row["model"]): len(row["response"]) for row in rows}
    path = shared_data("llmfao/battles.jsonl.gz")
    crowd = battle_files.read(
        path, columns=columns, filters={"judge_model": "crowd"}
    ).battles
    effect = controlled(crowd, lengths).effect
    assert (effect.n_prompts, effect.n_games, effect.n_without_length) == (13, 8931, 0)
    assert (effect.effect, effect.std_error) == pytest.approx((0.005, 0.131), abs=0.001)
