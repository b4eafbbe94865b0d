"""Placement: which human battles a model enters, and how the judge compares with the humans."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from elo_exp.arena import placement
from elo_exp.arena.placement import DrawnBattle, fit_temperature
from elo_exp.arena.sources import Arena
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battles import Battles
from elo_exp.errors import UserError
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle
from tests.data import battle

NAMES = [f"m{i}" for i in range(8)]
ABILITY = dict(zip(NAMES, np.linspace(-1.0, 1.0, 8).tolist(), strict=True))  # log-odds


def human_battles(n: int) -> list[Battle]:
    """Between models of these abilities, each on a question of its own; a tie in five."""
    rng = np.random.default_rng(0)
    found = []
    for i in range(n):
        a, b = (NAMES[k] for k in rng.choice(8, size=2, replace=False))
        wins = rng.random() < expit(ABILITY[a] - ABILITY[b])
        winner = "tie" if rng.random() < 0.2 else "model_a" if wins else "model_b"
        found.append(battle(a, b, winner, question_id=f"q{i}"))
    return found


def placed(draws: list[DrawnBattle], ability: float) -> Battles:
    """A new model against the drawn opponents, in both orders by a judge without ties."""
    rng = np.random.default_rng(0)
    rows = []
    for draw in draws:
        p = expit(ability - ABILITY[draw.opponent])
        ab, ba = ("model_a" if rng.random() < p else "model_b" for _ in range(2))
        words = {"verdict_ab": ab, "verdict_ba": ba, "question_id": draw.question_id}
        winner = ab if ab == ba else "tie"
        rows.append(battle("new", draw.opponent, winner, **words))
    return Battles.from_rows(rows)


def arena(battles: list[Battle]) -> Arena:
    return Arena(
        name="ours",
        battles=Battles.from_rows(battles),
        locations=[(0, i) for i in range(len(battles))],
        held_out_battles=Battles.from_rows([]),
        n_rows=len(battles),
        n_dropped_by_reason={},
    )


def rated(*battles: Battles, **changes: Any) -> Leaderboard:
    how = {
        "initial_rating": 1000.0,
        "orders": "both",
        "interval": "sandwich",
        "n_bootstraps": 100,
        "seed": 1,
    }
    every = {"d": functools.reduce(concatenate_battles, battles)}
    return BradleyTerry(**{**how, **changes}).rate(every)["d"]


ROWS = human_battles(2000)
ARENA = arena(ROWS)
HUMAN = ARENA.battles
DRAWS = placement.draw_battles(ARENA, NAMES, seed=1)


# Which battles


def test_an_anchor_is_a_model_with_enough_human_battles() -> None:
    rare = battle("rare", "m0", question_id="x")
    some = arena([*ROWS, *[rare] * 9])
    assert placement.find_anchors(some, 10) == NAMES
    assert placement.find_anchors(some, 9) == [*NAMES, "rare"]
    assert some.battles.select_between(NAMES).rows() == ROWS
    most = int(HUMAN.n_battles().max())
    words = (
        "A placement needs at least 2 models with 10000 human battles; ours has 0. Lower arena.min_battles."
        rf"\n  m\d has the most human battles, {most}\."
    )
    with pytest.raises(UserError, match=words):
        placement.find_anchors(ARENA, 10_000)


def test_a_larger_draw_begins_with_the_smaller_one() -> None:
    """So that more battles ask the judge nothing twice; another seed draws others."""
    assert placement.take_first(DRAWS, 50) == placement.take_first(DRAWS, 200)[:50]
    assert placement.take_first(DRAWS, 50, DRAWS[:50]) == DRAWS[50:100]
    again, other = (placement.draw_battles(ARENA, NAMES, seed=seed) for seed in (1, 2))
    assert again == DRAWS != other


def test_the_side_is_drawn_like_a_coin() -> None:
    """Within four standard errors of a half: 2,000 draws, sqrt(2000) / 2 = 22."""
    assert len(DRAWS) == 2000
    assert abs(sum(draw.side for draw in DRAWS) - 1000) < 4 * 22.4
    for draw in DRAWS:
        models = ROWS[draw.location[1]].models
        assert draw.models == models
        assert draw.opponent == models[draw.side]


def test_only_anchors_are_met_and_each_once_on_a_question() -> None:
    many, other = (battle("m0", name, question_id="q") for name in ("m1", "m7"))
    drawn = placement.draw_battles(arena([*[many] * 50, other]), ["m0", "m1"], seed=1)
    assert sorted(draw.opponent for draw in drawn) == ["m0", "m1"]


@pytest.mark.parametrize("sides", [1, 2])
def test_of_each_language_so_many_are_drawn_at_most(sides: int) -> None:
    """The first in the random order; a language that has fewer gives them all."""
    languages = ["en", "fr", "en", "de", None] * 20
    some = replace(arena(human_battles(100)), languages=languages)
    every = placement.draw_battles(some, NAMES, seed=1, sides=sides)
    capped = placement.draw_battles(
        some, NAMES, seed=1, sides=sides, max_per_language=25
    )
    english = [draw for draw in every if languages[draw.location[1]] == "en"]
    assert capped == [draw for draw in every if draw not in english[25 * sides :]]


def test_adaptive_opponents_stand_near_the_estimate() -> None:
    """Abilities lie 2/7 log-odds or 50 points apart: within 78 points of m7 there is m6."""
    candidates = placement.draw_battles(ARENA, NAMES, seed=1, sides=2)
    taken = placement.take_first(candidates, 100)
    known = concatenate_battles(HUMAN, placed(DRAWS[:400], ABILITY["m7"]))
    found = placement.draw_near_rating(candidates, 1500, taken, known, "new")
    assert len({draw.location for draw in found}) == 1500
    assert not {draw.location for draw in found} & {draw.location for draw in taken}
    assert {draw.opponent for draw in found[:400]} == {"m6", "m7"}
    assert "m0" not in {draw.opponent for draw in found}
    one = Battles.from_rows([battle("new", "m7")])
    first = placement.take_first(candidates, 50, taken)
    assert placement.draw_near_rating(candidates, 50, taken, one, "new") == first


@pytest.mark.parametrize(
    ("winner", "end"), [("model_a", NAMES[5:]), ("model_b", NAMES[:3])]
)
def test_a_model_without_a_rating_is_looked_for_at_the_end_that_it_is_beyond(
    winner: str, end: list[str]
) -> None:
    one = battle("new", "m3", winner, question_id="x")
    known = concatenate_battles(Battles.from_rows([one]), HUMAN)
    found = placement.draw_near_rating(DRAWS, 200, (), known, "new")
    assert {draw.opponent for draw in found} <= set(end)


def test_predicted_and_observed_shares_by_hand() -> None:
    """Against m7: a tie in one order. Against m0: two orders won, one won and one lost: 3 of 4."""
    one, both, split = (
        battle("new", name, winner, verdict_ab=ab, verdict_ba=ba)
        for name, winner, ab, ba in (
            ("m7", "tie", None, None),
            ("m0", "model_a", "model_a", "model_a"),
            ("m0", "tie", "model_a", "model_b"),
        )
    )
    some = Battles.from_rows([one, both, split])
    board = rated(some, HUMAN)
    m0, m7 = placement.compare_with_opponents(some, ["new"], board)
    one = {"opponent": "m7", "n_battles": 1, "n_games": 1, "observed": 0.5}
    assert m7.items() >= one.items()
    gap = (board.row("new").rating or 0) - (board.row("m0").rating or 0)
    assert m0 == {
        "model": "new",
        "opponent": "m0",
        "n_battles": 2,
        "n_games": 4,
        "observed": 0.75,
        "predicted": pytest.approx(1 / (1 + 10 ** (-gap / 400))),
    }


def test_with_a_baseline_resamples_give_the_interval_of_the_distance_to_it() -> None:
    judged = placed(DRAWS[:300], 0.5)
    free, fixed = (
        rated(judged, HUMAN, baseline_model=name, interval="percentile")
        for name in (None, "m2")
    )
    m2 = fixed.row("m2")
    assert (m2.rating, m2.ci_low, m2.ci_high) == pytest.approx((1000.0,) * 3, abs=1e-6)
    assert free.samples is not None
    columns = [free.models.index(name) for name in ("new", "m2")]
    distance = free.samples[:, columns] @ [1, -1]
    assert fixed.row("new").ci_low == pytest.approx(1000 + np.percentile(distance, 2.5))


# Beside the humans


def pairs(n: int, *, t: float) -> tuple[Battles, Battles]:
    """A judge says either or a tie, and a human, asked from the other side, follows by t."""
    rng = np.random.default_rng(5)
    human, judge = [], []
    for i, margin in enumerate(rng.integers(-1, 2, n).tolist()):
        said = ("tie", "model_a", "model_b")[margin]
        winner = "model_b" if rng.random() < expit(t * margin) else "model_a"
        human.append(battle("m1", "m0", winner, question_id=f"q{i}"))
        judge.append(battle("m0", "m1", said, question_id=f"q{i}"))
    return Battles.from_rows(human), Battles.from_rows(judge)


@pytest.mark.parametrize(
    ("n", "t", "expected", "error"),
    [(6000, 1.5, 1.5, 4 * 0.04), (400, -2.0, 0.0, 0.0), (400, 100.0, 10.0, 1e-9)],
)
def test_the_temperature_is_how_far_humans_follow_the_judge(
    n: int, t: float, expected: float, error: float
) -> None:
    """Two thirds say something; the error of T is 1 / sqrt(4000 p (1 - p)) = .04 at T = 1.5. It is
    never below 0, where humans contradict the judge, and at most 10. Nine battles do not tell."""
    assert fit_temperature(*pairs(n, t=t)) == pytest.approx(expected, abs=error)
    assert fit_temperature(*pairs(9, t=t)) is None
