"""Position and length: by hand, against statsmodels' clustered regression, in tournaments whose truth is known."""

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
from elo_exp.analysis.covariates import Fit, fit
from elo_exp.analysis.judge_bias import (
    LengthControl,
    LengthEffect,
    PositionEffect,
    length_control,
    position_effect,
    response_lengths,
)
from elo_exp.data import battles
from elo_exp.data.battles import from_judgments
from elo_exp.data.pairing import reconcile
from elo_exp.ratings.games import Games
from elo_exp.records import Battle, Comparison, Judgment, UserError, Verdict
from elo_exp.statistics.likelihood import POINTS, bradley_terry_mle, games, results
from elo_exp.statistics.sandwich import clustered_covariance
from tests.data import COMPARISON, shared_data
from tests.simulation import Tournament

TURNED = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}


def two_orders(ab: str, ba: str, prompt: str = "q0", a: str = "ann", b: str = "bob") -> Battle:
    """From the judge's letters, a shown first, then b."""
    of_ab = {"A": "model_a", "B": "model_b", "T": "tie"}[ab]
    of_ba = {"A": "model_b", "B": "model_a", "T": "tie"}[ba]
    winner = of_ab if of_ab == of_ba else "tie"
    return Battle(
        model_a=a, model_b=b, winner=winner, question_id=prompt, verdict_ab=of_ab, verdict_ba=of_ba
    )


def position(some: list[Battle]) -> PositionEffect:
    return position_effect(some, dimension="d")


def on_prompts(n: int, seed: int = 1, **changes: Any) -> list[Battle]:
    return Tournament(**changes).battles(n, np.random.default_rng(seed))


# Position


def test_a_worked_example_of_equals() -> None:
    """Ten verdicts on ann against bob, who win five each; the odds for the first shown are eight to two.

    ann first   bob first               won by the first shown
    A           A           3 prompts   6 of 6
    A           B           1 prompt    1 of 2, ann both
    B           A           1 prompt    1 of 2, bob both
    ----------------------------------------------------------
                                        8 of 10
    """
    found = position([*(two_orders("A", "A", f"q{q}") for q in range(3)), two_orders("A", "B", "q3"),
                      two_orders("B", "A", "q4")])  # fmt: skip
    assert (found.n_prompts, found.n_verdicts, found.n_decisive) == (5, 10, 10)
    assert found.p_first == pytest.approx(0.8)
    assert found.effect == pytest.approx(math.log(8 / 2))


def test_the_interval_by_hand() -> None:
    """Between equals the effect's score of a prompt is the first shown's wins less 2 p: here p = .8, and the prompts'
    scores are .4, .4, .4, -.6, -.6. The curvature is 10 p (1 - p) = 1.6."""
    found = position([*(two_orders("A", "A", f"q{q}") for q in range(3)), two_orders("A", "B", "q3"),
                      two_orders("B", "A", "q4")])  # fmt: skip
    error = math.sqrt(5 / 4 * (3 * 0.4**2 + 2 * 0.6**2)) / 1.6
    assert found.std_error == pytest.approx(error)
    ends = stats.t.interval(0.95, 4, math.log(4), error)
    assert (found.ci_low, found.ci_high) == pytest.approx(
        tuple(1 / (1 + math.exp(-end)) for end in ends)
    )


def test_a_better_entrant_is_no_position_effect() -> None:
    """ann wins three of four in either place."""
    some = [two_orders("A", "B", f"q{q}") for q in range(3)] + [two_orders("B", "A", "q3")]
    assert position(some).effect == pytest.approx(0)
    assert position(some).std_error is None  # nor is there a prompt on which it would be otherwise


def test_ties_do_not_hide_the_effect() -> None:
    some = on_prompts(100)
    ties = [two_orders("T", "T", f"tied{q}", "a", "b") for q in range(100)]
    with_ties, without = position(some + ties), position(some)
    assert with_ties.effect == pytest.approx(without.effect)
    assert with_ties.std_error == pytest.approx(without.std_error)
    assert with_ties.n_verdicts - without.n_verdicts == 200


@pytest.mark.parametrize(
    "noise", [{}, {"quality": 0.0, "pair_noise": 0.0}], ids=["clustered", "independent"]
)
def test_an_effect_of_55_percent_is_recovered(noise: dict[str, float]) -> None:
    """STATISTICS.md section 5: within .02. What prompts have of their own draws the mean over prompts nearer to a half:
    .533; where they have nothing, it is .55."""
    found = position(on_prompts(4000, **noise))
    assert found.p_first == pytest.approx(0.55, abs=0.02)
    assert found.p_first == pytest.approx(
        0.55 if noise else 0.5325, abs=4 * 0.25 * (found.std_error or 0)
    )


def test_two_orders_leave_the_gap_as_it_is_and_one_order_does_not() -> None:
    """STATISTICS.md section 5: a gap of 100 points is found with a bias of 2 at most. With the better one always shown
    second it is found 34 points smaller, where verdicts do not depend on the prompt."""
    tournament = Tournament(ratings=(0.0, 100.0), quality=0, pair_noise=0)
    both = tournament.games(200_000, np.random.default_rng(3), ties="dropped")
    theta = bradley_terry_mle(both.wins())
    assert POINTS * (theta[1] - theta[0]) == pytest.approx(100, abs=2)
    verdicts = tournament.verdicts(200_000, np.random.default_rng(3))[:, 0, 0]
    gap = POINTS * math.log((verdicts == -1).sum() / (verdicts == 1).sum())
    assert gap == pytest.approx(100 - POINTS * math.log(0.55 / 0.45), abs=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise", [{}, {"quality": 0.0, "pair_noise": 0.0}], ids=["clustered", "independent"]
)
def test_the_effect_and_the_gap_on_very_many_prompts(noise: dict[str, float]) -> None:
    """STATISTICS.md section 5: .55 recovered within .02, and a gap of 100 points from both orders within 2."""
    found = position(on_prompts(40_000, **noise)).p_first
    tournament = Tournament(ratings=(0.0, 100.0), **noise)
    theta = bradley_terry_mle(
        tournament.games(400_000, np.random.default_rng(4), ties="dropped").wins()
    )
    gap = POINTS * (theta[1] - theta[0])
    print(f"\nP(first) {found:.4f}, gap of 100: {gap:.2f}", end="")
    assert found == pytest.approx(0.55, abs=0.02)
    assert gap == pytest.approx(100, abs=2)


@pytest.mark.slow
def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    truth = position(on_prompts(40_000, seed=0)).p_first
    assert truth is not None
    found = [position(on_prompts(143, seed=seed)) for seed in range(1, 501)]
    covered = np.mean(
        [
            f.ci_low < truth < f.ci_high
            for f in found
            if f.ci_low is not None and f.ci_high is not None
        ]
    )
    print(f"\nposition effect, P(first) {truth:.4f}: covered {covered:.3f}")
    assert 0.925 <= covered <= 0.97


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_law_naming_the_other_response_turns_the_effect_round(seed: int) -> None:
    some = on_prompts(12, seed, first_shown=0.7)
    other = [
        dataclasses.replace(
            b, verdict_ab=TURNED[b.verdict_ab or ""], verdict_ba=TURNED[b.verdict_ba or ""]
        )
        for b in some
    ]
    one, turned = position(some), position(other)
    assert turned.effect == pytest.approx(-(one.effect or 0), abs=1e-9)
    assert turned.std_error == pytest.approx(one.std_error)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_law_whoever_is_called_what_the_effect_is_the_same(seed: int) -> None:
    """Other names, the pair listed the other way round, the rows in another order."""
    some = on_prompts(12, seed)
    renamed = [
        dataclasses.replace(
            b,
            model_a=chr(ord("z") - ord(b.model_b)),
            model_b=chr(ord("z") - ord(b.model_a)),
            winner=TURNED[b.winner],
            verdict_ab=TURNED[b.verdict_ba or ""],
            verdict_ba=TURNED[b.verdict_ab or ""],
        )
        for b in reversed(some)
    ]
    assert position(renamed).effect == pytest.approx(position(some).effect, abs=1e-9)
    assert position(renamed).std_error == pytest.approx(position(some).std_error)


NOTHING = PositionEffect(dimension="d", n_prompts=0, n_verdicts=0, n_decisive=0)


def judged(
    ab: str, ba: str, *, mirrored: bool = False, comparison: Comparison = COMPARISON
) -> Judgment:
    verdicts = [
        Verdict(cache_key="0f", rubric_version="v1", judge_model="opus", position_swap=swap, verdict=letter,
                mirrored=mirrored and swap)
        for swap, letter in ((False, ab), (True, ba))
    ]  # fmt: skip
    return reconcile(comparison, verdicts[0], verdicts[1])


@pytest.mark.parametrize("letters", ["AA", "BB"])
def test_equal_answers_say_nothing_of_order_and_are_rated_as_before(letters: str) -> None:
    """One reply stands for both orders, and cannot show that the order mattered; a win each draws the two together."""
    equal = dataclasses.replace(COMPARISON, response_b=COMPARISON.response_a)
    differ, same = (from_judgments([judged(*letters, comparison=c)]) for c in (COMPARISON, equal))
    assert (position(differ).n_verdicts, position(same)) == (2, NOTHING)
    assert [(b.is_inconsistent, b.winner) for b in (*differ, *same)] == [
        (True, "tie"),
        (False, "tie"),
    ]
    assert results(same[0], use="both") == results(differ[0], use="both")


def test_verdicts_that_say_nothing_of_order_are_left_out() -> None:
    """Invalid in one order; one order turned round; only one order asked, as in a file of human battles."""
    some = from_judgments([judged("A", "INVALID"), judged("A", "B", mirrored=True)])
    assert position([*some, Battle(model_a="ann", model_b="bob", winner="model_a")]) == NOTHING
    assert position([]) == NOTHING


@pytest.mark.parametrize(
    ("letters", "n_decisive"),
    [("TT TT", 0), ("AA AA", 4), ("BB BB AT", 5), ("AB AB", 4), ("AA", 2)],
    ids=[
        "only ties",
        "always the first shown",
        "never, but where the better was",
        "one always wins",
        "one prompt, always the first shown",
    ],
)
def test_without_a_finite_effect_there_is_none(letters: str, n_decisive: int) -> None:
    some = [two_orders(ab, ba, f"q{q}") for q, (ab, ba) in enumerate(letters.split())]
    found = position(some)
    assert found.n_decisive == n_decisive
    assert (found.effect, found.std_error, found.p_first, found.ci_low, found.ci_high) == (
        None,
    ) * 5


def test_of_one_prompt_the_effect_is_known_and_not_how_sure_it_is() -> None:
    found = position([two_orders("A", "A"), two_orders("A", "B"), two_orders("B", "A")])
    assert found.p_first == pytest.approx(4 / 6)
    assert (found.std_error, found.ci_low, found.ci_high) == (None, None, None)


def test_a_judge_that_never_names_the_same_entrant_twice_still_has_an_effect_with_an_error() -> (
    None
):
    """Every prompt's part in the ratings is zero; not its part in the effect."""
    found = position(
        [two_orders("A", "A", f"q{q}") for q in range(6)]
        + [two_orders("B", "B", f"r{q}") for q in range(2)]
    )
    assert found.p_first == pytest.approx(0.75)
    assert found.std_error == pytest.approx(
        math.sqrt(8 / 7 * (6 * 0.5**2 + 2 * 1.5**2)) / (16 * 0.75 * 0.25)
    )


def test_a_verdict_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="verdict_ba: found 'B'"):
        position([dataclasses.replace(two_orders("A", "A"), verdict_ba="B")])


# Any columns: a second opinion


def any_columns(seed: int, n_columns: int = 2, n_prompts: int = 60) -> tuple[Games, np.ndarray]:
    """Games of a tournament, and columns of which the first counts."""
    some = Tournament().games(n_prompts, np.random.default_rng(seed), ties="dropped")
    rng = np.random.default_rng(seed)
    columns = rng.standard_normal((len(some.score), n_columns)) + 0.5 * rng.standard_normal(
        n_columns
    )
    columns[:, 0] += some.score
    return some, columns


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_statsmodels_finds_the_same_with_the_same_errors(seed: int, n_columns: int) -> None:
    some, columns = any_columns(seed, n_columns)
    found = fit(some, columns)
    assert found is not None
    other = clustered_glm(some, columns)
    m = some.n_models
    theta = np.append(0.0, other.params[: m - 1])
    np.testing.assert_allclose(found.theta, theta - theta.mean(), atol=1e-7)
    np.testing.assert_allclose(found.effects, other.params[m - 1 :], atol=1e-7)
    np.testing.assert_allclose(found.std_errors[m:], other.errors[m - 1 :], rtol=0.002)
    centre = np.eye(m)[:, 1:] - 1 / m
    errors = np.sqrt(np.diag(centre @ other.covariance[: m - 1, : m - 1] @ centre.T))
    np.testing.assert_allclose(found.std_errors[:m], errors, rtol=0.002)


def clustered_glm(some: Games, columns: np.ndarray) -> Any:
    """The same model by statsmodels, the first model's ability being zero, with n / (n - 1) as the only correction."""
    rows = np.arange(len(some.score))
    x = np.zeros((len(rows), some.n_models))
    x[rows, some.first], x[rows, some.second] = 1, -1
    glm = statsmodels.GLM(
        some.score, np.hstack([x[:, 1:], columns]), family=statsmodels.families.Binomial()
    )
    fitted = glm.fit(
        tol=1e-12, cov_type="cluster", cov_kwds={"groups": some.cluster, "use_correction": False}
    )
    covariance = fitted.cov_params() * some.n_clusters / (some.n_clusters - 1)
    return SimpleNamespace(
        params=fitted.params, covariance=covariance, errors=np.sqrt(np.diag(covariance))
    )


def test_without_columns_it_is_bradley_terry() -> None:
    some = Tournament().games(60, np.random.default_rng(5))
    found = fit(some, np.zeros((len(some.score), 0)))
    assert found is not None
    theta = bradley_terry_mle(some.wins())
    np.testing.assert_allclose(found.theta, theta, atol=1e-9)
    np.testing.assert_allclose(found.covariance, clustered_covariance(theta, some), atol=1e-12)


def by_hand(first: list[int], second: list[int], score: list[float], n_models: int = 2) -> Games:
    return Games(
        n_models=n_models,
        first=np.array(first, dtype=np.intp),
        second=np.array(second, dtype=np.intp),
        score=np.array(score, dtype=float),
        cluster=np.arange(len(score)),
        prompts=np.arange(len(score)),
    )


def test_a_column_that_the_models_or_the_other_columns_explain_has_no_effect() -> None:
    some, columns = any_columns(1)
    length = np.array([300.0, 500, 200, 900])
    explained = (length[some.first] - length[some.second])[:, None]
    assert fit(some, explained) is None
    assert fit(some, np.zeros_like(explained)) is None
    assert fit(some, columns[:, [0, 0]]) is None
    assert fit(some, columns) is not None


def test_a_column_that_decides_every_game_has_no_finite_effect() -> None:
    some, _ = any_columns(1)
    decides = np.where(some.score == 1, 1.0, -1.0)
    assert fit(some, decides[:, None]) is None
    decides[np.random.default_rng(1).random(len(decides)) < 0.02] *= -1
    found = fit(some, decides[:, None])
    assert found is not None
    assert found.effects[0] > 3


def test_models_without_a_finite_ability_are_left_out() -> None:
    some = by_hand([0, 0, 1, 0, 2, 2], [1, 1, 0, 1, 0, 1], [1, 0, 1, 0.5, 1, 1], n_models=4)
    columns = np.array([[1.0], [0.5], [-1.0], [0.0], [0.3], [0.1]])
    found, without = (
        fit(some, columns),
        fit(some.among(np.array([True, True, False, False])), columns[:4]),
    )
    assert isinstance(found, Fit) and isinstance(without, Fit)
    assert np.isnan(found.theta).tolist() == [False, False, True, True]
    assert found.effects == pytest.approx(without.effects)
    assert (found.n_games, found.n_clusters) == (4, 4)
    np.testing.assert_allclose(found.covariance[np.ix_([0, 1, 4], [0, 1, 4])], without.covariance)


# Length


def with_lengths(
    n: int, effect: float, seed: int = 2
) -> tuple[list[Battle], dict[tuple[str, str], int]]:
    """One game for each pair and prompt; lengths differ by model and by prompt, and count `effect`."""
    rng = np.random.default_rng(seed)
    theta = np.array([0.0, 0.3, 0.6, 0.9])
    lengths = rng.integers(100, 900, size=(n, 4)) + np.array([0, 200, 400, 600])
    first, second = np.array([(i, j) for i in range(4) for j in range(i)]).T
    difference = lengths[:, first] - lengths[:, second]
    scale = math.sqrt((difference**2).mean())
    p = 1 / (1 + np.exp(theta[second] - theta[first] - effect * np.tanh(difference / scale)))
    wins = rng.random(p.shape) < p
    some = [
        Battle(
            model_a="abcd"[i],
            model_b="abcd"[j],
            winner="model_a" if won else "model_b",
            question_id=f"q{q}",
        )
        for q in range(n)
        for i, j, won in zip(first, second, wins[q], strict=True)
    ]
    return some, {(f"q{q}", "abcd"[i]): int(lengths[q, i]) for q in range(n) for i in range(4)}


def controlled(
    some: list[Battle], lengths: dict[tuple[str, str], int], use: str = "both"
) -> LengthControl:
    return length_control(some, lengths, dimension="d", initial_rating=1400, use=use)


def test_a_length_effect_is_recovered_and_taken_out_of_the_ratings() -> None:
    """Four models 52 points apart, of which the better write more: as they are, the ratings lie further apart."""
    found = controlled(*with_lengths(4000, effect=0.8))
    effect = found.effect
    assert effect.effect == pytest.approx(0.8, abs=4 * (effect.std_error or 0))
    assert (
        effect.ci_low is not None
        and effect.ci_high is not None
        and effect.ci_low < 0.8 < effect.ci_high
    )
    assert [r.model for r in found.ratings] == ["d", "c", "b", "a"]
    for k, rating in enumerate(found.ratings):
        assert rating.rating_at_equal_length == pytest.approx(
            1400 + POINTS * (0.45 - 0.3 * k), abs=8
        )
        assert rating.mean_length == pytest.approx(500 + 200 * (3 - k), abs=15)
    raw = [r.rating or 0 for r in found.ratings]
    assert raw[0] - raw[3] > 0.9 * POINTS + 80


def test_without_an_effect_equal_length_changes_nothing() -> None:
    found = controlled(*with_lengths(4000, effect=0.0))
    assert found.effect.effect == pytest.approx(0, abs=4 * (found.effect.std_error or 0))
    for r in found.ratings:
        assert r.rating_at_equal_length == pytest.approx(r.rating, abs=10)


def test_statsmodels_finds_the_same_length_effect() -> None:
    some, lengths = with_lengths(80, effect=0.5)
    found = controlled(some, lengths).effect
    played = games(some, "abcd", use="both")
    difference = np.array(
        [
            lengths[b.question_id or "", b.model_a] - lengths[b.question_id or "", b.model_b]
            for b in some
        ]
    )
    other = clustered_glm(played, np.tanh(difference / math.sqrt((difference**2).mean()))[:, None])
    assert found.effect == pytest.approx(other.params[-1], abs=1e-7)
    assert found.std_error == pytest.approx(other.errors[-1], rel=0.002)


def test_the_ratings_as_they_are_are_those_of_the_leaderboard() -> None:
    some = on_prompts(40)
    lengths = {
        (f"q{q}", model): 100 + 7 * q * (ord(model) % 5) for q in range(40) for model in "abcd"
    }
    for use in ("both", "consistent"):
        played = games(some, "abcd", use=use)
        theta = bradley_terry_mle(played.wins())
        errors = POINTS * np.sqrt(np.diag(clustered_covariance(theta, played)))
        found = controlled(some, lengths, use=use)
        assert found.effect.n_games == len(played.score)
        for r in found.ratings:
            assert r.rating == pytest.approx(1400 + POINTS * theta["abcd".index(r.model)])
            assert r.std_error == pytest.approx(errors["abcd".index(r.model)])


def test_how_often_the_longer_wins_by_tercile() -> None:
    """Six games; ann's response is longer by so many characters, and she wins, loses or ties.

    by      10    20   |  -30    40   |   50    60       and one pair of equal length, which has no longer one
    ann     wins  loses|  loses  ties |   wins  wins
    longer  1     0    |  1      1/2  |   1     1
    """
    by = [10, 20, -30, 40, 50, 60, 0]
    winners = ["model_a", "model_b", "model_b", "tie", "model_a", "model_a", "model_a"]
    some = [
        Battle(model_a="ann", model_b="bob", winner=w, question_id=f"q{q}")
        for q, w in enumerate(winners)
    ]
    lengths = {(f"q{q}", "ann"): 100 + d for q, d in enumerate(by)} | {
        (f"q{q}", "bob"): 100 for q in range(7)
    }
    found = controlled(some, lengths).terciles
    assert [(t.shortest, t.longest, t.n_games, t.win_rate) for t in found] == [
        (10, 20, 2, 0.5),
        (30, 40, 2, 0.75),
        (50, 60, 2, 1.0),
    ]
    assert [t.std_error for t in found] == [pytest.approx(0.5), pytest.approx(0.25), None]


def test_the_lengths_are_those_of_the_responses_that_are_compared() -> None:
    assert response_lengths([COMPARISON]) == {("p1", "ann"): 4, ("p1", "bob"): 3}


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_law_listing_a_pair_the_other_way_round_changes_no_length_effect(seed: int) -> None:
    some, lengths = with_lengths(12, 0.5, seed)
    turned = [
        dataclasses.replace(b, model_a=b.model_b, model_b=b.model_a, winner=TURNED[b.winner])
        if k % 2
        else b
        for k, b in enumerate(some)
    ]
    one, other = controlled(some, lengths), controlled(turned, lengths)
    assert other.effect.effect == pytest.approx(one.effect.effect, abs=1e-9)
    assert other.effect.std_error == pytest.approx(one.effect.std_error)
    assert [t.win_rate for t in other.terciles] == pytest.approx([t.win_rate for t in one.terciles])


def test_a_battle_whose_lengths_are_unknown_is_left_out_and_counted() -> None:
    some, lengths = with_lengths(20, 0.5)
    extra = [
        Battle(model_a="a", model_b="b", winner="model_a"),
        Battle(model_a="a", model_b="x", winner="tie", question_id="q1"),
    ]
    found, without = controlled(some + extra, lengths), controlled(some, lengths)
    assert found.effect == dataclasses.replace(without.effect, n_without_length=2)
    assert found.ratings == without.ratings


def test_of_no_lengths_nothing_is_known() -> None:
    assert controlled(on_prompts(3), {}) == LengthControl(
        effect=LengthEffect(dimension="d", n_prompts=0, n_games=0, n_without_length=18),
        ratings=(),
        terciles=(),
    )


def test_where_lengths_do_not_vary_or_nobody_wins_there_is_no_effect() -> None:
    some = on_prompts(30)
    same = {(f"q{q}", model): 100 for q in range(30) for model in "abcd"}
    by_model = {
        (prompt, model): 100 + ord(model) for prompt, model in same
    }  # 1 x 1, 2 x 1, ...: tanh bends it a little
    ties = [dataclasses.replace(b, winner="tie", verdict_ab="tie", verdict_ba="tie") for b in some]
    varied = {key: 100 + 13 * k for k, key in enumerate(same)}
    for found in (
        controlled(some, same),
        controlled(ties, varied),
        controlled(some[:1] * 3, by_model),
    ):
        assert (found.effect.effect, found.effect.std_error) == (None, None)
        assert all(r.rating_at_equal_length is None for r in found.ratings)
    assert [r.rating for r in controlled(ties, varied).ratings] == [1400] * 4


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_the_verdicts_no_number_is_nan(data: st.DataObject) -> None:
    """A few battles among a few models on a few prompts, most of which say little: JSON that has no NaN."""
    winner = st.sampled_from(["model_a", "model_b", "tie"])
    some = data.draw(
        st.lists(
            st.builds(
                Battle,
                model_a=st.sampled_from("abc"),
                model_b=st.sampled_from("abc"),
                winner=winner,
                question_id=st.sampled_from(["p", "q", "r", None]),
                verdict_ab=winner | st.none(),
                verdict_ba=winner | st.none(),
            ).filter(lambda b: b.model_a != b.model_b),
            max_size=12,
        )
    )
    lengths = {(prompt, model): data.draw(st.integers(0, 5)) for prompt in "pqr" for model in "abc"}
    found = controlled(some, lengths)
    for record in (position(some), found.effect, *found.ratings, *found.terciles):
        json.dumps(record.to_dict(), allow_nan=False)
        assert type(record).from_dict(json.loads(json.dumps(record.to_dict()))) == record


def test_on_real_votes_people_do_not_prefer_the_longer_response_of_equals() -> None:
    """Thirteen prompts and sixty models: people's effect is .00 ± .13, so longer is not better in itself."""
    columns = {name: name for name in (*battles.REQUIRED, *battles.OPTIONAL)}
    rows = [row for _, row in files.read_jsonl(shared_data("llmfao/responses.jsonl.gz"))]
    lengths = {(row["prompt_id"], row["model"]): len(row["response"]) for row in rows}
    path = shared_data("llmfao/battles.jsonl.gz")
    crowd = battles.read(path, columns=columns, filters={"judge_model": "crowd"}).battles.rows()
    found = controlled(crowd, lengths)
    assert (found.effect.n_prompts, found.effect.n_games, found.effect.n_without_length) == (
        13,
        8931,
        0,
    )
    assert found.effect.effect == pytest.approx(0.005, abs=0.001)
    assert found.effect.std_error == pytest.approx(0.131, abs=0.001)
