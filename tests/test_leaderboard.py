"""Leaderboards: ranks, rows, intervals by Student's t, and a scale pinned to one model."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from elo_exp.errors import UserError
from elo_exp.ratings.leaderboard import (
    Leaderboard,
    Rating,
    add_intervals,
    compute_running_means,
    pin_rating,
)

NAN = math.nan


def board(ratings: dict[str, float | None], **columns: Any) -> Leaderboard:
    models = tuple(sorted(ratings))
    values = np.array([ratings[model] for model in models], dtype=float)
    return Leaderboard(
        label="L", interval=None, models=models, rating=values, **columns
    )


def ranked(ratings: dict[str, float | None]) -> list[tuple[str, int | None]]:
    return [(row.model, row.rank) for row in board(ratings).ratings]


@pytest.mark.parametrize(
    ("ratings", "expected"),
    [
        ({"c": 9.0, "x": None, "a": 12.0}, [("a", 1), ("c", 2), ("x", None)]),
        ({"d": 5.0, "c": 9.0, "b": 9.0}, [("b", 1), ("c", 1), ("d", 3)]),
        ({"none": None, "minus": -1.0, "zero": 0.0}, [("zero", 1), ("minus", 2), ("none", None)]),
        ({f"m{i}": i * 0.8e-6 for i in range(5)}, [(f"m{i}", 1) for i in range(5)]),
        ({"t": 1459.7611364812767, "a": 1459.7611364812765, "z": 3.0 + 9e-7, "b": 3.0},
         [("a", 1), ("t", 1), ("b", 3), ("z", 3)]),
        ({}, []),
    ],
    ids=["unrated last", "equal share a rank", "zero is a rating", "a chain of equals", "rounding", "none"],
)  # fmt: skip
def test_ranks(
    ratings: dict[str, float | None], expected: list[tuple[str, int | None]]
):
    assert ranked(ratings) == expected


def test_rows_hold_none_for_what_is_not_known():
    one = board(
        {"a": 1.0, "b": None},
        n_battles=np.array([4, 4]),
        n_prompts=np.array([2.0, NAN]),
        rank_low=np.array([1.0, NAN]),
        flags={1: "winless"},
    )
    assert one.ratings == (
        Rating(model="a", rating=1.0, rank=1, rank_low=1, n_battles=4, n_prompts=2),
        Rating(model="b", rating=None, n_battles=4, flag="winless"),
    )
    assert one.row("b") is one.ratings[1]
    other = dataclasses.replace(one, rating=np.array([1.0, 2.0]))
    assert other.row("b").rank == 1  # no row of the first is kept


def test_an_interval_is_student_s_of_each_model_s_own_prompts():
    one = add_intervals(
        board({"a": 0.0, "b": 10.0, "c": None}, n_prompts=np.array([4.0, 143.0, NAN])),
        np.array([1.0, 2.0, 3.0]),
    )
    for model, n, error in (("a", 4, 1.0), ("b", 143, 2.0)):
        row = one.row(model)
        expected = stats.t.interval(0.95, n - 1, row.rating, error)
        assert (row.ci_low, row.ci_high) == pytest.approx(expected)
    assert (one.row("c").std_error, one.row("c").ci_low) == (None, None)


def test_pinned_to_a_model_errors_are_of_the_distance_to_it():
    """Errors 3 and 4 with covariance 6: the distance has variance 9 + 16 - 12."""
    free = add_intervals(
        board(
            {"a": 100.0, "b": 130.0},
            covariance=np.array([[9.0, 6.0], [6.0, 16.0]]),
            samples=np.array([[90.0, 130.0], [110.0, 130.0]]),
            n_prompts=np.array([20.0, 5.0]),
        ),
        np.array([3.0, 4.0]),
    )
    fixed = pin_rating(free, "b", 1000.0)
    assert (fixed.row("b").rating, fixed.row("b").std_error) == (1000.0, 0.0)
    assert (fixed.row("a").rating, fixed.row("a").std_error) == (970.0, math.sqrt(13))
    half = stats.t.ppf(0.975, 4) * math.sqrt(13)  # of the fewer prompts
    assert (fixed.row("a").ci_low, fixed.row("a").ci_high) == pytest.approx(
        (970 - half, 970 + half)
    )
    assert fixed.samples is not None
    np.testing.assert_array_equal(fixed.samples, [[960.0, 1000.0], [980.0, 1000.0]])
    with pytest.raises(
        UserError,
        match='^baseline_model must be a rated model, such as b, a.*; got "z"',
    ):
        pin_rating(free, "z", 1000.0)


def test_running_means_are_those_of_the_first_permutations():
    samples = np.random.default_rng(1).normal(1400, 5, size=(500, 3))
    counts, means, errors = compute_running_means(samples)
    assert (counts[0], counts[-1]) == (1, 500)
    for n, mean, error in zip(counts.tolist(), means, errors, strict=True):
        np.testing.assert_allclose(mean, samples[:n].mean(axis=0))
        expected = (
            samples[:n].std(axis=0, ddof=1) / math.sqrt(n) if n > 1 else np.zeros(3)
        )
        np.testing.assert_allclose(error, expected, atol=1e-9)
