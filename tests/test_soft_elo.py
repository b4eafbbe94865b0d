"""Soft Elo: ratings by how far apart a judge's scores are."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.special import expit, logit

from elo_exp.arena.placement import rate_by_scores
from elo_exp.data.battles import Battles
from elo_exp.data.pairing import reconcile
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Judgment, Verdict
from tests.data import COMPARISON, battle

Scores = tuple[float, float] | None
STRAIGHT = Verdict(
    cache_key="0f",
    rubric_version="v1",
    judge_model="opus",
    position_swap=False,
    verdict="TIE",
)


def judged(
    *orders: Scores, a: str = "new", b: str = "m0", prompt: str = "q0"
) -> Judgment:
    """Scores in the first order and in the second, each in the places that the judge saw."""
    comparison = dataclasses.replace(
        COMPARISON, prompt_id=prompt, entrant_a=a, entrant_b=b
    )
    verdicts = [
        dataclasses.replace(STRAIGHT, scores=scores, position_swap=bool(i))
        for i, scores in enumerate(orders)
    ]
    return reconcile(comparison, verdicts)


def rate(
    judgments: list[Judgment], soft: float | str = 0.3, human: Battles | None = None
) -> Leaderboard | None:
    none = Battles.from_rows([])
    placed = {judgment.entrant_a for judgment in judgments} - {"m1"}
    return rate_by_scores(
        judgments, human or none, placed, soft=soft, initial_rating=1000.0
    )


def gap(judgments: list[Judgment], soft: float | str = 0.3) -> float:
    board = rate(judgments, soft)
    assert board is not None
    found = {row.model: row.rating or math.nan for row in board.ratings}
    return found["new"] - found["m0"]


def test_the_gap_is_that_of_the_mean_preference():
    """Ahead by 4 points of score in one order and by 1 in the other, on two prompts behind by 2 and
    without scores: three games."""
    some = [
        judged((8.0, 4.0), (5.0, 6.0)),
        judged((3.0, 5.0), None, prompt="q1"),
    ]
    shares = expit(0.3 * np.array([4.0, 1.0, -2.0]))
    assert gap(some) == pytest.approx(POINTS_PER_LOG_ODDS * logit(shares.mean()))
    board = rate(some)
    assert board is not None
    assert (board.n_matches, board.n_clusters) == (3, 2)
    assert (board.label, dict(board.parameters)) == ("Soft Elo", {"temperature": 0.3})
    assert np.isfinite(board.std_error).all()
    turned = [
        judged((4.0, 8.0), (6.0, 5.0), a="m0", b="new"),
        judged((5.0, 3.0), None, a="m0", b="new", prompt="q1"),
    ]
    assert gap(turned) == pytest.approx(gap(some))
    assert gap(some, 0.0) == pytest.approx(0.0, abs=1e-9)
    hard = POINTS_PER_LOG_ODDS * logit(2 / 3)
    assert gap(some, 10.0) == pytest.approx(hard, abs=0.1)
    assert rate([judged(None, None)]) is None


def test_the_temperature_is_the_one_at_which_untied_votes_are_likeliest():
    """Simulated at T = .4, each vote beside both orders of the judge; nine do not tell."""
    rng = np.random.default_rng(3)
    again, votes = [], []
    for q in range(4000):
        first, second = rng.uniform(0, 10, 2)
        again.append(
            judged((first, second), (second, first), a="m1", b="m0", prompt=f"q{q}")
        )
        winner = (
            "model_a" if rng.random() < expit(0.4 * (first - second)) else "model_b"
        )
        votes.append(battle("m1", "m0", winner, question_id=f"q{q}"))
        votes.append(battle("m0", "m1", "tie", question_id=f"q{q}"))
    some = [judged((8.0, 4.0)), *again]
    board = rate(some, "calibrated", Battles.from_rows(votes))
    assert board is not None
    assert board.parameters["temperature"] == pytest.approx(0.4, abs=0.04)
    few = Battles.from_rows(votes[:8])
    assert rate(some, "calibrated", few) is None
