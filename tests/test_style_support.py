"""Leads at equal length: the raw lead beside them, and caution if one side is nearly always the longer."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from elo_exp.analysis.comparisons import find_leader
from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.standings import Standings, rate
from elo_exp.analysis.style_support import (
    MIN_SUPPORT,
    shares_with_more,
    style_support_reasons,
)
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.records import Battle
from elo_exp.report.sentences import tournament_sentences as words
from tests.data import shipped
from tests.simulation import BRADLEY_TERRY

AT_EQUAL_LENGTH = dataclasses.replace(BRADLEY_TERRY, style=("length",))


def battles(longer: Array, won: Array, sd: float = 300.0) -> Battles:
    """a against b: by how many standard deviations of length a is longer, and whether it won, on each prompt."""
    return Battles.from_rows(
        [
            Battle(
                model_a="a", model_b="b", winner="model_a" if w else "model_b", question_id=f"q{q}",
                style_a=(round(2000 + sd * x), 0, 0, 0), style_b=(2000, 0, 0, 0),
            )
            for q, (x, w) in enumerate(zip(longer, won, strict=True))
        ]
    )  # fmt: skip


def drawn(
    rng: np.random.Generator, *, apart: float, taste: float, n: int = 100
) -> Battles:
    """Equals whose lengths differ by so many standard deviations on average; the taste for length is linear."""
    longer = apart + rng.standard_normal(n)
    share = 1 / (1 + np.exp(-taste * longer))
    return battles(longer, rng.random(n) < share)


def standings(some: Battles, method: Any = AT_EQUAL_LENGTH) -> Standings:
    return rate(
        {"d": some},
        elo=shipped("elo", "default", n_perms=2),
        ratings={"bradley_terry": method},
        models=some.models,
    )


def concluded(some: Battles, method: Any = AT_EQUAL_LENGTH) -> Conclusion:
    scope = Scope(kind="people")
    return add_conclusions(standings(some, method), scope).conclusions["d"]


def test_an_adjusted_lead_says_so_and_shows_the_raw_one():
    rng = np.random.default_rng(0)
    longer = rng.standard_normal(200)
    won = rng.random(200) < 1 / (1 + np.exp(-1.0 - longer))
    found = concluded(battles(longer, won))
    raw = concluded(battles(longer, won), BRADLEY_TERRY)
    assert found.adjustment is not None and raw.adjustment is None
    assert found.adjustment.raw is not None and raw.effect is not None
    assert found.adjustment.raw.value == raw.effect.value
    said = words.sentence(found)
    unnamed = "if each of the 200 votes is by a different person"
    assert said.startswith(f"at equal length, {unnamed}, a is ahead of b by ")
    low, high = raw.effect.low, raw.effect.high
    assert f"(raw lead {raw.effect.value:.0f} points [{low:.0f}, {high:.0f}])" in said
    assert words.headline([found]) == said
    row = words.as_row(found)
    assert row["adjusted_for"] == ["length"]
    assert row["raw_difference"] == raw.effect.value
    assert "at equal" not in words.sentence(raw)


def test_the_share_of_battles_in_which_an_answer_is_longer_by_hand():
    some = battles(np.array([1.0, 1.0, 0.0, -1.0]), np.array([1, 0, 1, 0]))
    assert shares_with_more(some, "length") == {"a": 0.625, "b": 0.375}
    assert shares_with_more(some, "bold") == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(("n_shorter", "is_said"), [(4, True), (5, False)])
def test_an_entrant_that_is_nearly_always_longer_is_caution(
    n_shorter: int, is_said: bool
):
    rng = np.random.default_rng(1)
    longer = np.append(np.full(100 - n_shorter, 0.5), np.full(n_shorter, -0.5))
    longer += 0.1 * rng.standard_normal(100)
    found = concluded(battles(longer, rng.random(100) < 0.8))
    reasons = [reason.name for reason in found.reasons]
    assert ("support" in reasons) == is_said
    if is_said:
        assert "a is shorter in 4" in words.because(found.reasons[-1], found)


def test_without_a_control_nothing_is_said_of_support():
    rng = np.random.default_rng(1)
    some = battles(np.full(60, 1.0), rng.random(60) < 0.8)
    found = standings(some, BRADLEY_TERRY)
    first = find_leader(found.board("d"), found.pairs("d"))
    assert found.controlled_features == () and not [
        *style_support_reasons(some, first, found.controlled_features)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("apart", [0.0, 0.5, 1.0, 1.65, 2.0])
def test_leads_without_support_are_the_biased_ones(apart: float):
    """Wrong leads between equals at equal length, and how many of them are caution."""
    rng, repeats = np.random.default_rng(int(100 * apart)), 400
    n_wrong = n_leads = 0
    for _ in range(repeats):
        some = drawn(rng, apart=apart, taste=0.8)
        board = AT_EQUAL_LENGTH.rate({"d": some})["d"]
        if not np.isfinite(board.rating).all() or board.covariance is None:
            continue
        gap = board.rating[0] - board.rating[1]
        c = board.covariance
        error = np.sqrt(c[0, 0] + c[1, 1] - 2 * c[0, 1])
        is_wrong = abs(gap) > 1.984 * error
        share = shares_with_more(some, "length")["a"]
        n_wrong += is_wrong
        n_leads += is_wrong and min(share, 1 - share) >= MIN_SUPPORT
    print(f"{apart} sd: wrong {n_wrong / repeats:.3f}, without caution {n_leads / repeats:.3f}")  # fmt: skip
    assert n_leads / repeats <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / repeats)
