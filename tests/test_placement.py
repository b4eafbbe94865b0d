"""Placement: which human battles a model enters, on what scale it is rated, and how the judge compares with humans."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from elo_exp.arena import judge_calibration, placement
from elo_exp.arena.judge_calibration import calibrate, temperature
from elo_exp.arena.placement import Draw
from elo_exp.arena.sources import Arena
from elo_exp.ratings.bradley_terry import POINTS, BradleyTerry
from elo_exp.ratings.leaderboard import Leaderboard, pinned
from elo_exp.records import Battle, UserError
from tests.data import by_dimension

NAMES = [f"m{i}" for i in range(8)]
ABILITY = dict(zip(NAMES, np.linspace(-1.0, 1.0, 8).tolist(), strict=True))  # log-odds


def human_battles(n: int, *, seed: int = 0) -> list[Battle]:
    """Between models of these abilities, each on a question of its own; a tie in five."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        a, b = (NAMES[k] for k in rng.choice(8, size=2, replace=False))
        wins = rng.random() < 1 / (1 + math.exp(ABILITY[b] - ABILITY[a]))
        winner = "tie" if rng.random() < 0.2 else "model_a" if wins else "model_b"
        found.append(Battle(model_a=a, model_b=b, winner=winner, question_id=f"q{i}"))
    return found


def arena(battles: list[Battle]) -> Arena:
    at = [(0, i) for i in range(len(battles))]
    return Arena(
        name="ours",
        battles=battles,
        at=at,
        held_out=[],
        n_rows=len(battles),
        dropped={},
    )


def judged(
    draws: list[Draw], ability: float, *, decisiveness: float = 1.0, seed: int = 0
) -> list[Battle]:
    """A new model of this ability against the drawn opponents, in both orders, by a judge without ties."""
    rng = np.random.default_rng(seed)
    found = []
    for draw in draws:
        p = 1 / (1 + math.exp(decisiveness * (ABILITY[draw.opponent] - ability)))
        ab, ba = ("model_a" if rng.random() < p else "model_b" for _ in range(2))
        winner = ab if ab == ba else "tie"
        found.append(
            Battle(
                model_a="new",
                model_b=draw.opponent,
                winner=winner,
                question_id=draw.question_id,
                verdict_ab=ab,
                verdict_ba=ba,
            )
        )
    return found


def rated(battles: list[Battle], **changes: Any) -> Leaderboard:
    how = {
        "initial_rating": 1000.0,
        "use": "both",
        "interval": "percentile",
        "n_bootstraps": 100,
        "seed": 1,
    }
    return BradleyTerry(**{**how, **changes}).rate(by_dimension({"d": battles}))["d"]


HUMAN = human_battles(2000)
ARENA = arena(HUMAN)


# Which battles


def test_an_anchor_is_a_model_with_enough_human_battles() -> None:
    rare = Battle(model_a="rare", model_b="m0", winner="model_a", question_id="x")
    some = arena([*HUMAN, *[rare] * 9])
    assert placement.anchors(some, 10) == NAMES
    assert placement.anchors(some, 9) == [*NAMES, "rare"]
    assert len(placement.among(some.battles, NAMES)) == len(HUMAN)


def test_fewer_than_two_anchors_are_refused_with_the_number_that_there_is() -> None:
    most, n = Counter(
        name for b in HUMAN for name in (b.model_a, b.model_b)
    ).most_common(1)[0]
    with pytest.raises(UserError) as refusal:
        placement.anchors(ARENA, 10_000)
    assert (
        f"0 models of ours have 10000 human battles or more (most: {most} with {n})"
        in str(refusal.value)
    )


def test_a_model_that_is_in_the_arena_already_is_not_placed() -> None:
    with pytest.raises(UserError, match="entrant: 'm3' is a model of ours already"):
        placement.check_new(["new", "m3"], ARENA)


def test_a_larger_draw_begins_with_the_smaller_one() -> None:
    """So that more battles ask the judge nothing twice; another seed draws others."""
    drawn = placement.draws(ARENA, NAMES, seed=1)
    assert placement.first(drawn, 50) == placement.first(drawn, 200)[:50]
    again, other = (
        placement.first(placement.draws(ARENA, NAMES, seed=seed), 50) for seed in (1, 2)
    )
    assert placement.draw_fingerprint(again) == placement.draw_fingerprint(
        placement.first(drawn, 50)
    )
    assert placement.draw_fingerprint(other) != placement.draw_fingerprint(again)


def test_the_side_is_drawn_like_a_coin() -> None:
    """Within four standard errors of a half: 2,000 draws, sqrt(2000) / 2 = 22."""
    drawn = placement.draws(ARENA, NAMES, seed=1)
    n_b = sum(draw.side == "b" for draw in drawn)
    assert len(drawn) == 2000
    assert abs(n_b - 1000) < 4 * 22.4
    battle = {draw.question_id: draw for draw in drawn}
    assert all(
        battle[str(b.question_id)].opponent in (b.model_a, b.model_b) for b in HUMAN
    )


def test_an_opponent_is_met_once_on_a_question_however_many_humans_judged_it() -> None:
    many = [
        Battle(model_a="m0", model_b="m1", winner="tie", question_id="q")
        for _ in range(50)
    ]
    drawn = placement.draws(arena(many), ["m0", "m1"], seed=1)
    assert sorted(draw.opponent for draw in drawn) == ["m0", "m1"]


def test_only_anchors_are_met() -> None:
    drawn = placement.draws(ARENA, ["m0", "m1", "m2"], seed=1)
    assert {draw.opponent for draw in drawn} == {"m0", "m1", "m2"}
    assert len(drawn) == len(placement.among(HUMAN, ["m0", "m1", "m2"]))


def test_adaptive_opponents_stand_near_the_estimate() -> None:
    """Abilities lie 2/7 log-odds or 50 points apart: within 78 points of m7 there is m6; then come the nearest."""
    ratings = {name: POINTS * ability for name, ability in ABILITY.items()}
    candidates = placement.draws(ARENA, NAMES, seed=1, sides=2)
    taken = placement.first(candidates, 100)
    found = placement.adaptive(candidates, taken, ratings, ratings["m7"], 200)
    assert {draw.opponent for draw in found} == {"m6", "m7"}
    assert not {draw.at for draw in found} & {draw.at for draw in taken}
    assert len({draw.at for draw in found}) == 200
    more = placement.adaptive(candidates, taken, ratings, ratings["m7"], 1500)
    assert [draw.opponent in ("m6", "m7") for draw in more[:400]] == [True] * 400
    assert "m0" not in {draw.opponent for draw in more}


def test_a_model_that_has_no_rating_yet_is_looked_for_at_the_end_that_it_is_beyond() -> (
    None
):
    won = [Battle(model_a="new", model_b="m7", winner="model_a", question_id="x")]
    lost = [dataclasses.replace(won[0], winner="model_b")]
    best, worst = (
        placement.estimate(rated([*some, *HUMAN], interval="sandwich"), "new")
        for some in (won, lost)
    )
    board = rated(HUMAN, interval="sandwich")
    assert best == pytest.approx(board.ratings[0].rating)
    assert worst == pytest.approx(board.ratings[-1].rating)


def test_predicted_and_observed_shares_by_hand() -> None:
    """Against m0: two orders won, and one won and one lost, so 3 of 4. Against m7: a tie in its one order."""
    some = [
        Battle(
            model_a="new",
            model_b="m0",
            winner="model_a",
            verdict_ab="model_a",
            verdict_ba="model_a",
        ),
        Battle(
            model_a="new",
            model_b="m0",
            winner="tie",
            verdict_ab="model_a",
            verdict_ba="model_b",
        ),
        Battle(model_a="new", model_b="m7", winner="tie"),
    ]
    board = rated([*some, *HUMAN], interval="sandwich")
    m0, m7 = placement.opponents(some, board, use="both")
    assert (m0.n_battles, m0.n_games, m0.observed) == (2, 4, 0.75)
    assert (m7.n_battles, m7.n_games, m7.observed) == (1, 1, 0.5)
    gap = (board.row("new").rating or 0) - (board.row("m0").rating or 0)
    assert m0.predicted == pytest.approx(1 / (1 + 10 ** (-gap / 400)))


# On what scale


JUDGED = judged(placement.first(placement.draws(ARENA, NAMES, seed=3), 300), 0.5)


def test_the_rating_does_not_move_with_the_seed_of_the_bootstrap() -> None:
    """It is that of all battles; the mean of the resamples, which others take, differs from seed to seed."""
    first, second = (rated([*JUDGED, *HUMAN], seed=seed) for seed in (1, 2))
    assert [r.rating for r in first.ratings] == [r.rating for r in second.ratings]
    assert first.row("new").ci_low != second.row("new").ci_low
    assert first.samples is not None
    assert second.samples is not None
    new = first.models.index("new")
    means = [
        board.samples[:, new].mean()
        for board in (first, second)
        if board.samples is not None
    ]
    assert abs(means[0] - means[1]) > 0.01


def test_an_interval_holds_the_middle_95_percent_of_the_resamples() -> None:
    board = rated([*JUDGED, *HUMAN])
    assert board.samples is not None
    column = board.samples[:, board.models.index("new")]
    rating = board.row("new")
    assert (rating.ci_low, rating.ci_high) == pytest.approx(
        tuple(np.percentile(column, [2.5, 97.5]))
    )
    assert rating.rating == pytest.approx(
        rated([*JUDGED, *HUMAN], interval="sandwich").row("new").rating
    )


def test_both_orders_of_a_prompt_are_one_observation() -> None:
    """Said twice is not known better: the interval of two equal orders is that of one; as two prompts it is narrower by
    sqrt(2)."""
    once = [
        dataclasses.replace(b, verdict_ab=None, verdict_ba=None) for b in HUMAN[:500]
    ]
    both = [
        dataclasses.replace(b, verdict_ab=b.winner, verdict_ba=b.winner) for b in once
    ]
    apart = [
        dataclasses.replace(b, question_id=f"{b.question_id}-{i}")
        for b in once
        for i in range(2)
    ]
    widths = [
        (r.ci_high or 0) - (r.ci_low or 0)
        for some in (once, both, apart)
        for r in [rated(some).row("m3")]
    ]
    assert widths[1] == pytest.approx(widths[0])
    assert widths[2] == pytest.approx(widths[0] / math.sqrt(2), rel=0.2)


def test_a_baseline_has_its_rating_and_no_error() -> None:
    free, fixed = (
        rated([*JUDGED, *HUMAN], baseline_model=name) for name in (None, "m2")
    )
    m2 = fixed.row("m2")
    assert (m2.rating, m2.std_error, m2.ci_low, m2.ci_high) == pytest.approx(
        (1000.0, 0.0, 1000.0, 1000.0), abs=1e-6
    )
    assert fixed.samples is not None
    assert free.samples is not None
    assert [r.model for r in fixed.ratings] == [r.model for r in free.ratings]
    gaps = [
        (b.row("new").rating or 0) - (b.row("m2").rating or 0) for b in (free, fixed)
    ]
    assert gaps[1] == pytest.approx(gaps[0])
    new, m2_column = (free.models.index(name) for name in ("new", "m2"))
    distance = free.samples[:, new] - free.samples[:, m2_column]
    assert fixed.row("new").ci_low == pytest.approx(1000 + np.percentile(distance, 2.5))
    assert fixed.row("new").std_error == pytest.approx(
        distance.std(ddof=1), rel=0.01
    )  # of its own prompts


@pytest.mark.parametrize("name", ["nobody", "loser"])
def test_a_baseline_without_a_rating_is_refused(name: str) -> None:
    lost = Battle(model_a="m0", model_b="loser", winner="model_a", question_id="x")
    with pytest.raises(UserError, match=f"baseline_model: '{name}' has no rating here"):
        rated([*HUMAN, lost], baseline_model=name)


def test_a_leaderboard_by_sandwich_can_be_pinned_too() -> None:
    board = rated(HUMAN, interval="sandwich")
    moved = pinned(board, "m0", 800.0)
    assert moved.row("m0").rating == pytest.approx(800.0)
    low, high = moved.row("m5").ci_low, moved.row("m5").ci_high
    assert ((low or 0) + (high or 0)) / 2 == pytest.approx(moved.row("m5").rating)


# Beside the humans


def pairs(n: int, *, t: float, seed: int = 5) -> tuple[list[Battle], list[Battle]]:
    """Humans and a judge on the same battles: the judge says either or a tie, the human follows with temperature t."""
    rng = np.random.default_rng(seed)
    human, judge = [], []
    for i in range(n):
        margin = int(rng.integers(-1, 2))
        wins = rng.random() < 1 / (1 + math.exp(-t * margin))
        names = (
            ("m0", "m1") if rng.random() < 0.5 else ("m1", "m0")
        )  # who is called a says nothing
        said = {1: "model_a", 0: "tie", -1: "model_b"}[margin]
        judge.append(
            Battle(model_a="m0", model_b="m1", winner=said, question_id=f"q{i}")
        )
        winner = "model_a" if wins == (names[0] == "m0") else "model_b"
        human.append(
            Battle(
                model_a=names[0], model_b=names[1], winner=winner, question_id=f"q{i}"
            )
        )
    return human, judge


def test_the_temperature_is_how_far_humans_follow_the_judge() -> None:
    """Two thirds of 6,000 say something; the error of T is 1 / sqrt(4000 p (1 - p)) = .04 at T = 1.5."""
    assert temperature(*pairs(6000, t=1.5)) == pytest.approx(1.5, abs=4 * 0.04)


def test_a_judge_that_humans_contradict_has_temperature_zero_and_never_less() -> None:
    assert temperature(*pairs(400, t=-2.0)) == 0.0


def test_a_judge_whom_humans_always_follow_has_the_largest_temperature() -> None:
    assert temperature(*pairs(400, t=100.0)) == pytest.approx(10.0)


def test_nine_battles_say_nothing_of_a_temperature() -> None:
    human, judge = pairs(9, t=1.0)
    assert temperature(human, judge) is None


def again(n: int, decisiveness: float) -> list[Battle]:
    """What a judge says of the first human battles, in both orders."""
    rng = np.random.default_rng(11)
    found = []
    for battle in HUMAN[:n]:
        p = 1 / (
            1
            + math.exp(
                -decisiveness * (ABILITY[battle.model_a] - ABILITY[battle.model_b])
            )
        )
        ab, ba = ("model_a" if rng.random() < p else "model_b" for _ in range(2))
        winner = ab if ab == ba else "tie"
        found.append(
            dataclasses.replace(battle, winner=winner, verdict_ab=ab, verdict_ba=ba)
        )
    return found


def test_a_judge_that_is_more_decisive_than_humans_stretches_distances_and_is_found_out() -> (
    None
):
    """Humans tie on one battle in five, which draws their abilities together to .8 or so; a judge of decisiveness 2
    without ties is then some 2 / .8 = 2.5 times as decisive. The model that it places with .5 lies at about .4."""
    some = judged(
        placement.first(placement.draws(ARENA, NAMES, seed=3), 1000),
        0.5,
        decisiveness=2.0,
    )
    board = rated([*some, *HUMAN], interval="sandwich")
    found = calibrate(HUMAN, again(1000, 2.0), some, board, judge_model="judge")
    assert found.decisiveness is not None
    assert found.decisiveness_std_error is not None
    by_humans = rated(human_battles(2000), interval="sandwich")
    tied = np.polyfit(
        [POINTS * ABILITY[n] for n in NAMES],
        [by_humans.row(n).rating or 0 for n in NAMES],
        1,
    )[0]
    assert found.decisiveness == pytest.approx(
        2.0 / tied, abs=3 * found.decisiveness_std_error
    )
    stretched = (board.row("new").rating or 0) - 1000
    on_human_scale = found.on_human_scale["new"] - 1000
    truth = tied * 0.5 * POINTS
    assert stretched > 1.5 * truth
    assert on_human_scale == pytest.approx(truth, abs=0.25 * truth)


def test_a_judge_that_does_not_follow_the_humans_gives_no_rating_on_their_scale() -> (
    None
):
    board = rated([*JUDGED, *HUMAN], interval="sandwich")
    found = calibrate(HUMAN, again(300, 0.0), JUDGED, board, judge_model="coin")
    assert found.decisiveness == pytest.approx(0.0, abs=0.3)
    assert found.on_human_scale == {}


def test_agreement_is_counted_on_the_battles_that_both_judged() -> None:
    board = rated([*JUDGED, *HUMAN], interval="sandwich")
    same = [
        dataclasses.replace(b, verdict_ab=b.winner, verdict_ba=b.winner)
        for b in HUMAN[:40]
    ]
    found = calibrate(HUMAN, same, JUDGED, board, judge_model="echo")
    assert (
        found.agreement.n_comparisons,
        found.agreement.agreement,
        found.agreement.kappa,
    ) == (
        40,
        1.0,
        1.0,
    )
    assert judge_calibration.question_and_pair(HUMAN[0])[0] == HUMAN[0].question_id
