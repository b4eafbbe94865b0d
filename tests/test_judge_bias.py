"""Position and length: by hand, against statsmodels' clustered regression, in known tournaments."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from elo_exp.analysis.dimension_fit import DimensionFit
from elo_exp.analysis.judge_bias import (
    LengthControl,
    PositionEffect,
    length_control,
    position_effect,
)
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.covariates import with_columns
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, Fit
from elo_exp.ratings.games import Games, make_games
from elo_exp.records import Battle
from tests.data import battle
from tests.simulation import BRADLEY_TERRY, Tournament
from tests.standings import of_lengths

SEEDS = st.integers(0, 10**6)
Lengths = dict[tuple[str, str], int]
Row = SimpleNamespace  # of ratings.json


def two_orders(ab: str, ba: str, prompt: str = "q0") -> Battle:
    """From the judge's letters, ann shown first, then bob."""
    of_ab = {"A": "model_a", "B": "model_b", "T": "tie"}[ab]
    of_ba = {"A": "model_b", "B": "model_a", "T": "tie"}[ba]
    winner = of_ab if of_ab == of_ba else "tie"
    orders = {"verdict_ab": of_ab, "verdict_ba": of_ba}
    return battle("ann", "bob", winner, question_id=prompt, **orders)


def position(some: str | list[Battle] | Battles) -> PositionEffect:
    """Of battles; or of the letters of one prompt after the other, such as "AA AB"."""
    if isinstance(some, str):
        some = [two_orders(*letters, f"q{q}") for q, letters in enumerate(some.split())]
    columns = some if isinstance(some, Battles) else Battles.from_rows(some)
    return position_effect(DimensionFit.of(columns), dimension="d")


def simulated(n: int, seed: int = 1, **changes: float) -> Battles:
    return Tournament(**changes).columns(n, np.random.default_rng(seed))


# Position


def test_a_worked_example_of_equals():
    """Ten verdicts on ann against bob, who win five each; the odds for the first shown are 8 to 2.

    ann first   bob first               won by the first shown
    A           A           3 prompts   6 of 6
    A           B           1 prompt    1 of 2, ann both
    B           A           1 prompt    1 of 2, bob both

    The effect's score of a prompt is the first shown's wins less 2 p: here p = .8, and the scores
    are .4, .4, .4, -.6, -.6. The curvature is 10 p (1 - p) = 1.6. Ties do not count.
    """
    for letters in ("AA AA AA AB BA", "AA AA AA AB BA TT TT"):
        found = position(letters)
        counts = found.n_prompts, found.n_verdicts, found.n_decisive
        assert counts == (5, 2 * len(letters.split()), 10)
        assert (found.p_first, found.effect) == pytest.approx((0.8, math.log(8 / 2)))
        error = math.sqrt(5 / 4 * (3 * 0.4**2 + 2 * 0.6**2)) / 1.6
        assert found.std_error == pytest.approx(error)
        ends = np.array(stats.t.interval(0.95, 4, math.log(4), error))
        assert (found.ci_low, found.ci_high) == pytest.approx(1 / (1 + np.exp(-ends)))


@pytest.mark.parametrize(
    ("noise", "mean"),
    [({}, 0.5325), ({"quality": 0.0, "pair_noise": 0.0}, 0.55)],
    ids=["clustered", "independent"],
)
def test_an_effect_of_55_percent_is_recovered(noise: dict[str, float], mean: float):
    """What prompts have of their own draws the mean over prompts nearer to a half."""
    found = position(simulated(4000, **noise))
    assert found.p_first == pytest.approx(mean, abs=4 * 0.25 * found.std_error)


@pytest.mark.slow
def test_the_interval_covers_the_truth_as_often_as_it_says():
    truth = position(simulated(40_000, seed=0)).p_first
    found = [position(simulated(143, seed)) for seed in range(1, 501)]
    covered = [f.ci_low < truth < f.ci_high for f in found]
    assert 0.925 <= np.mean(covered) <= 0.97


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_law_naming_the_other_response_turns_the_effect_round(seed: int):
    some = simulated(12, seed, first_shown=0.7)
    swap = np.array([1, 0, 2, 3], dtype=np.int8)
    turned = dataclasses.replace(
        some, verdict_ab=swap[some.verdict_ab], verdict_ba=swap[some.verdict_ba]
    )
    one, other = position(some), position(turned)
    assert other.effect == pytest.approx(-one.effect, abs=1e-9)
    assert other.std_error == pytest.approx(one.std_error)


EQUAL = dataclasses.replace(two_orders("A", "A"), equal_answers=True)
ONE_ORDER = battle("ann", "bob", verdict_ab="model_a")  # of a mirrored verdict, too


@pytest.mark.parametrize(
    ("some", "n_verdicts", "share"),
    [
        *(("TT TT", 4, None), ("AA AA", 4, (1.0, 0.158, 1.0)), ("AB AB", 4, (0.5, 0.078, 0.922))),
        *(("BB BB AT", 6, (0.2, 0.009, 0.906)), ("AA", 2, (1.0, 0.025, 1.0))),
        *(([EQUAL, battle("ann", "bob"), ONE_ORDER], 0, None), ([], 0, None)),
    ],
)  # fmt: skip
def test_without_a_finite_effect_the_raw_share_of_the_first_shown_stays(
    some: Any, n_verdicts: int, share: tuple[float, float, float] | None
):
    """With a bounded-mean interval over prompts. Equal answers, and one order, as humans vote, say nothing of order."""
    found = position(some)
    values = found.p_first, found.ci_low, found.ci_high
    assert (found.effect, found.std_error, found.n_verdicts) == (None, None, n_verdicts)
    assert found.is_raw
    if share is None:
        assert values == (None,) * 3
    else:
        assert values == pytest.approx(share, abs=0.004)


def test_errors_are_told_by_prompts_that_differ():
    """One prompt tells none. A judge that names each model once on every prompt has no part in the
    ratings, but in the effect: eight prompts, six of which favour the first shown."""
    one = position([two_orders(*letters) for letters in ("AA", "AB", "BA")])
    assert one.p_first == pytest.approx(4 / 6)
    assert one.std_error is None
    assert one.ci_low is not None and one.ci_low < one.p_first  # of bounded values
    found = position("AA AA AA AA AA AA BB BB")
    assert found.p_first == pytest.approx(0.75)
    error = math.sqrt(8 / 7 * (6 * 0.5**2 + 2 * 1.5**2)) / (16 * 0.75 * 0.25)
    assert found.std_error == pytest.approx(error)


# Columns in Bradley-Terry


def decisive(seed: int, n_prompts: int = 60) -> tuple[Games, Array]:
    """The decisive games of a tournament, and two columns (g, 2), one of which counts."""
    some = simulated(n_prompts, seed)
    played = make_games(some.select(some.winner < 2), orders="reconciled")
    noise = np.random.default_rng(seed).standard_normal((len(played.score), 2))
    return played, noise + np.column_stack([played.score, 0 * played.score])


def test_a_column_that_is_explained_or_that_decides_every_game_has_no_effect():
    played, columns = decisive(1)
    own = columns[:, 0]
    length = np.array([300.0, 500, 200, 900])
    of_model = length[played.first] - length[played.second]
    for x in (of_model, 0 * own, 2 * played.score - 1):
        found, effects, errors = with_columns(
            Fit.from_games(played), played, x[:, None]
        )
        assert np.isnan([*effects, *errors, *found.theta]).all()
    nearly = np.where(np.random.default_rng(1).random(len(own)) < 0.1, -1, 1)
    nearly = nearly * (2 * played.score - 1)
    assert with_columns(Fit.from_games(played), played, nearly[:, None])[1] > 1


def test_models_without_a_finite_ability_are_left_out():
    played, columns = decisive(1)
    is_other = np.arange(len(columns)) % 9 == 0  # which an unbeaten fifth model plays
    unbeaten = dataclasses.replace(
        played,
        n_models=5,
        first=np.where(is_other, 4, played.first),
        score=np.where(is_other, 1.0, played.score),
    )
    fit, *found = with_columns(Fit.from_games(unbeaten), unbeaten, columns)
    others = unbeaten.restrict_to(np.arange(5) < 4)
    _, *without = with_columns(Fit.from_games(others), others, columns[~is_other])
    assert fit.is_rated.tolist() == [True] * 4 + [False]
    np.testing.assert_allclose(found, without)


# Length


def with_lengths(n: int, effect: float, seed: int = 2) -> tuple[Battles, Lengths]:
    """One game for each pair and prompt; lengths differ by model and prompt, and count `effect`."""
    rng = np.random.default_rng(seed)
    theta = np.array([0.0, 0.3, 0.6, 0.9])
    lengths = rng.integers(100, 900, size=(n, 4)) + np.array([0, 200, 400, 600])
    some = simulated(n)
    a, b, question = some.model_a, some.model_b, some.question
    difference = lengths[question, a] - lengths[question, b]
    x = np.tanh(difference / math.sqrt((difference**2).mean()))
    won = rng.random(len(x)) < 1 / (1 + np.exp(theta[b] - theta[a] - effect * x))
    nothing, winner = np.full_like(some.winner, -1), np.where(won, 0, 1).astype(np.int8)
    some = dataclasses.replace(
        some, winner=winner, verdict_ab=nothing, verdict_ba=nothing
    )
    every = {
        (f"q{q}", m): int(lengths[q, i]) for q in range(n) for i, m in enumerate("abcd")
    }
    return some, every


def controlled(some: Battles, lengths: Lengths) -> LengthControl:
    some = of_lengths(some, lengths)
    found = length_control(some, dimension="d", initial_rating=1400.0)
    json.dumps(found.to_dict(), allow_nan=False)
    return found


def test_the_effect_of_length_and_the_gap_at_equal_length_are_recovered():
    """Effect 0.8, and d is .9 in log-odds better than a; as d's responses are longer, the ratings as
    they are exaggerate."""
    found = controlled(*with_lengths(3000, effect=0.8))
    effect = found.effect
    assert effect.effect == pytest.approx(0.8, abs=4 * effect.std_error)
    rows = {r.model: r for r in found.ratings}
    d, a = rows["d"], rows["a"]
    at_equal = d.rating_at_equal_length - a.rating_at_equal_length
    assert at_equal == pytest.approx(0.9 * POINTS_PER_LOG_ODDS, abs=20)
    assert d.rating - a.rating > 0.9 * POINTS_PER_LOG_ODDS + 80
    assert d.mean_length - a.mean_length == pytest.approx(600, abs=30)
    assert (found.lead.first, found.lead.second) == ("d", "c")
    c = rows["c"].rating_at_equal_length
    assert found.lead.difference == pytest.approx(d.rating_at_equal_length - c)


def test_of_two_models_the_lead_is_twice_as_far_from_zero_as_either():
    """Their ratings have mean zero, so the error of the difference is twice that of a rating."""
    some, lengths = with_lengths(60, effect=0.5)
    pair = some.select((some.model_a == 0) & (some.model_b == 1)).compact()
    found = controlled(pair, lengths)
    error = found.ratings[0].std_error_at_equal_length
    assert found.lead.std_error == pytest.approx(2 * error)


def test_the_ratings_as_they_are_are_those_of_the_leaderboard():
    some = simulated(40)
    lengths = {
        (f"q{q}", m): 100 + 7 * q * (ord(m) % 5) for q in range(40) for m in "abcd"
    }
    board, found = BRADLEY_TERRY.rate({"d": some})["d"], controlled(some, lengths)
    assert found.effect.n_games == board.n_matches
    for r in found.ratings:
        row = board.row(r.model)
        assert (r.rating, r.std_error) == pytest.approx((row.rating, row.std_error))


def test_how_often_the_longer_wins_by_tercile():
    """Six games; ann's response is longer by so many characters, and she wins, loses or ties.

    by      10    20   |  -30    40   |   50    60      one pair of equal length has no longer one
    ann     wins  loses|  loses  ties |   wins  wins
    longer  1     0    |  1      1/2  |   1     1
    """
    winners = ["model_a", "model_b", "model_b", "tie", "model_a", "model_a", "model_a"]
    rows = [battle("ann", "bob", w, question_id=f"q{q}") for q, w in enumerate(winners)]
    lengths = {
        (f"q{q}", "ann"): 100 + d for q, d in enumerate([10, 20, -30, 40, 50, 60, 0])
    }
    lengths |= {(f"q{q}", "bob"): 100 for q in range(7)}
    found = controlled(Battles.from_rows(rows), lengths).terciles
    values = [(t.shortest, t.longest, t.n_games, t.win_rate) for t in found]
    assert values == [(10, 20, 2, 0.5), (30, 40, 2, 0.75), (50, 60, 2, 1.0)]
    assert [t.std_error for t in found[:2]] == pytest.approx([0.5, 0.25])
    assert found[2].std_error is None


def test_a_battle_whose_lengths_are_unknown_is_left_out_and_counted():
    some, lengths = with_lengths(20, 0.5)
    unknown = [battle("a", "b"), battle("a", "x", "tie", question_id="q1")]
    found = controlled(Battles.from_rows([*some.rows(), *unknown]), lengths)
    without = controlled(some, lengths)
    assert found.effect == dataclasses.replace(without.effect, n_without_length=2)
    assert found.ratings == without.ratings
    nothing = controlled(some, {})
    counts = nothing.effect.n_games, nothing.effect.n_without_length
    assert (counts, nothing.effect.effect) == ((0, len(some)), None)
    assert (nothing.ratings, nothing.lead, nothing.terciles) == ([], None, [])


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


WINNER = st.sampled_from(["model_a", "model_b", "tie"])
NAME = st.sampled_from("abc")
ONE_BATTLE = st.builds(
    Battle,
    model_a=NAME,
    model_b=NAME,
    winner=WINNER,
    question_id=st.sampled_from(["p", "q", "r", None]),
    verdict_ab=WINNER | st.none(),
    verdict_ba=WINNER | st.none(),
).filter(lambda b: b.model_a != b.model_b)


@pytest.mark.system
@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(ONE_BATTLE, max_size=12),
    lengths=st.dictionaries(st.tuples(st.sampled_from("pqr"), NAME), st.integers(0, 5)),
)
def test_law_whatever_the_verdicts_no_number_is_nan(
    rows: list[Battle], lengths: Lengths
):
    """A few battles among a few models on a few prompts, most of which tell little."""
    some = Battles.from_rows(rows)
    controlled(some, lengths)  # writes JSON, too
    json.dumps(position(some).to_dict(), allow_nan=False)
