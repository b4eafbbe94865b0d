"""What a run's page says of its judge, a table for each question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pytest

from elo_exp.analysis.agreement import Agreement, RankCorrelation
from elo_exp.analysis.judge_bias import (
    LengthControl,
    LengthEffect,
    LengthRating,
    PositionEffect,
)
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.transitivity import Cycles, TransitivityTest
from elo_exp.report import trust
from elo_exp.report.markup import Markup, join
from tests.pages import Reader

NO_PLACE = PositionEffect(dimension="d", n_prompts=0, n_verdicts=0, n_decisive=0)
NO_TEST = TransitivityTest(dimension="d", n_models=0, n_pairs=0, n_prompts=0, df=0)
NO_CIRCLE = Cycles(
    dimension="d", models=(), n_prompts=0, n_cyclic_prompts=0, n_triples=0, n_cyclic=0
)
KAPPA = {
    "n_comparisons": 2139,
    "n_prompts": 13,
    "agreement": 0.4136,
    "kappa": 0.1532,
    "std_error": 0.0395,
}
TOLD = Agreement(
    first="crowd", second="gpt-4", dimension="d", ci_low=0.0757, ci_high=0.2307, **KAPPA
)


def reader(parts: Iterable[Markup]) -> Reader:
    return Reader(join(parts))


def page(
    *,
    quality: Sequence[JudgeQuality] = (),
    agreement: Sequence[Agreement] = (),
    **found: Any,
) -> Reader:
    """Of one dimension, of whose judge nothing is known but what is `found`."""
    nothing = {
        "position": NO_PLACE.to_dict(),
        "transitivity": NO_TEST.to_dict(),
        "cycles": NO_CIRCLE.to_dict(),
    }
    standings = Standings(
        models=("ann", "bob"), battles={"d": []}, k=16, elo={}, elo_limit={}, companions={}, win_rates=[],
        diagnoses={"d": nothing | found}, agreement=agreement,
    )  # fmt: skip
    return reader(trust.trust(standings, quality))


def test_of_a_judge_of_whom_nothing_is_known_nothing_is_said() -> None:
    nobody = Agreement(
        first="d", second="e", dimension=None, n_comparisons=0, n_prompts=0
    )
    repeats = Agreement(
        first="first answer",
        second="repeat",
        dimension="d",
        n_comparisons=0,
        n_prompts=0,
    )
    assert page(agreement=[nobody], repeats=repeats.to_dict()).said == ""


# The place, and the length


@pytest.mark.parametrize(
    ("interval", "words", "reading"),
    [
        ((0.5254, 0.5739), "52.5 to 57.4 %", "prefers the first shown"),
        ((0.4254, 0.4739), "42.5 to 47.4 %", "prefers the second shown"),
        ((0.4846, 0.5739), "48.5 to 57.4 %", "no taste for a place found"),
        ((None, None), "–", "–"),
    ],
)
def test_how_often_the_first_shown_wins(
    interval: tuple[Any, Any], words: str, reading: str
) -> None:
    low, high = interval
    place = PositionEffect(
        dimension="d",
        n_prompts=50,
        n_verdicts=300,
        n_decisive=1200,
        p_first=0.5498,
        ci_low=low,
        ci_high=high,
    )
    assert ["d", "1,200", "55.0 %", words, reading] in page(
        position=place.to_dict()
    ).cells


def length(effect: LengthEffect, *ratings: LengthRating) -> Mapping[str, Any]:
    return asdict(LengthControl(effect=effect, ratings=ratings, terciles=()))


def test_how_often_the_longer_of_equals_wins_at_a_typical_difference() -> None:
    """The column is tanh(1) = .762 there: 1 / (1 + exp(-.762)) = .682, and so on for the interval."""
    effect = LengthEffect(
        dimension="d",
        n_prompts=9,
        n_games=90,
        n_without_length=0,
        scale=120.4,
        effect=1.0,
        ci_low=0.5,
        ci_high=1.5,
    )
    assert ["d", "120", "68.2 %", "59.4 to 75.8 %", "prefers the longer"] in page(
        length=length(effect)
    ).cells
    unknown = LengthEffect(dimension="d", n_prompts=9, n_games=90, n_without_length=0)
    assert page(length=length(unknown)).said == ""


def test_ratings_stand_beside_those_at_equal_length() -> None:
    effect = LengthEffect(dimension="d", n_prompts=9, n_games=90, n_without_length=0)
    ann = LengthRating(
        dimension="d",
        model="ann",
        mean_length=301.6,
        rating=1500.4,
        rating_at_equal_length=1450.2,
    )
    bob = LengthRating(
        dimension="d",
        model="bob",
        mean_length=99.9,
        rating=1299.6,
        rating_at_equal_length=1349.8,
    )
    new = LengthRating(dimension="d", model="new", mean_length=99.9)
    rows = page(length=length(effect, ann, bob, new)).cells
    assert rows[1:] == [
        ["ann", "d", "302", "1500", "1450", "−50"],
        ["bob", "d", "100", "1300", "1350", "+50"],
    ]


# One ranking


@pytest.mark.parametrize(
    ("p_value", "n_prompts", "shown", "reading"),
    [
        (0.0063, 90, "0.006", "some pairs do not fit"),
        (0.2, 90, "0.20", "no pair stands apart"),
        (None, 3, "–", "too few prompts to test"),
        (None, 90, "–", "–"),
    ],
)
def test_whether_one_rating_each_is_enough(
    p_value: float | None, n_prompts: int, shown: str, reading: str
) -> None:
    test = TransitivityTest(
        dimension="d",
        n_models=4,
        n_pairs=6,
        n_prompts=n_prompts,
        df=3,
        chi_square=12.34,
        p_value=p_value,
    )
    circles = Cycles(
        dimension="d",
        models=(),
        n_prompts=90,
        n_cyclic_prompts=9,
        n_triples=360,
        n_cyclic=11,
    )
    rows = page(transitivity=test.to_dict(), cycles=circles.to_dict()).cells
    assert ["d", "4", "12.3", "3", shown, "10 % (9 of 90)", reading] in rows


# Agreement


def test_a_judge_with_itself() -> None:
    again = Agreement(
        first="first answer",
        second="repeat",
        dimension="d",
        n_comparisons=40,
        n_prompts=9,
        agreement=1.0,
    )
    assert ["d", "40", "100 %", "–", "–"] in page(repeats=again.to_dict()).cells


def test_dimensions_with_each_other() -> None:
    two = Agreement(
        first="tone",
        second="truth",
        dimension=None,
        ci_low=-0.05,
        ci_high=0.35,
        **KAPPA,
    )
    assert ["tone", "truth", "2,139", "41 %", "0.15", "−0.05 to 0.35"] in page(
        agreement=[two]
    ).cells


def test_judge_against_judge() -> None:
    """The order of the leaderboards stands beside the verdicts of the same two judges on the same dimension."""
    order = RankCorrelation(
        first="crowd", second="gpt-4", dimension="d", n_models=59, rho=0.7104
    )
    other = RankCorrelation(first="crowd", second="gpt-4", dimension="e", n_models=2)
    of_e = Agreement(
        first="crowd", second="gpt-4", dimension="e", n_comparisons=0, n_prompts=0
    )
    shown = reader(trust._judges([TOLD, order, of_e, other]))
    assert "Judge against judge" in shown.said
    assert shown.cells[1:] == [
        [
            "crowd",
            "gpt-4",
            "d",
            "2,139",
            "41 %",
            "0.15",
            "0.08 to 0.23",
            "0.71 (59 entrants)",
        ],
        ["crowd", "gpt-4", "e", "0", "–", "–", "–", "–"],
    ]
    assert reader(trust._judges([])).said == ""


def test_names_are_text_whatever_they_hold() -> None:
    shown = reader(
        trust._judges([Agreement(first="<b>", second="&amp;", dimension=None, **KAPPA)])
    )
    assert shown.cells[1][:2] == ["<b>", "&amp;"]
