"""Checks of a judge in worlds whose faults are known: none produces a claim, and a sound judge keeps its leads.

The slow tests give the tables of docs/evidence.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from elo_exp.analysis import standings
from elo_exp.analysis.checks import (
    CANNOT_TELL,
    CLAIMS,
    FAILED,
    PASSED,
    Check,
    check_definitions,
    check_judge,
)
from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.analysis.conclusions.tournament_conclusion import (
    add_conclusions,
    no_result_reasons,
)
from elo_exp.analysis.gate_checks import gate_check_definitions, list_blocking_checks
from elo_exp.analysis.judge_bias import length_control
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.arrays import Array, Mask
from elo_exp.data.battles import Battles
from elo_exp.report.sentences import tournament_sentences as words
from tests.data import shipped
from tests.standings import BRADLEY_TERRY


def battles_of(
    ab: Any, ba: Any, longer: Array | None = None, *, is_known: bool = True
) -> Battles:
    """Battles of new and old, one a prompt: verdicts of both orders (0 new, 1 old, 2 tie, -1 not asked).

    longer  by how many characters new's answer is longer than 1,000; None: lengths are not known
    """
    ab, ba = np.asarray(ab, np.int8), np.asarray(ba, np.int8)
    n, none = len(ab), np.full(len(ab), -1, np.int32)
    winner = np.where(ba < 0, ab, np.where(ab < 0, ba, np.where(ab == ba, ab, 2)))
    styles, style_a, style_b = (), none, none
    if longer is not None:
        styles = ((1000, 0, 0, 0), *((1000 + int(x), 0, 0, 0) for x in longer))
        style_a, style_b = np.arange(1, n + 1, dtype=np.int32), np.zeros(n, np.int32)
    return Battles(
        models=("new", "old"),
        model_a=np.zeros(n, np.int32),
        model_b=np.ones(n, np.int32),
        winner=winner.astype(np.int8),
        verdict_ab=ab if is_known else np.full(n, -1, np.int8),
        verdict_ba=ba if is_known else np.full(n, -1, np.int8),
        score=np.full(n, np.nan),
        equal_answers=np.zeros(n, np.bool_),
        questions=tuple(f"q{i}" for i in range(n)),
        question=np.arange(n, dtype=np.int32),
        dimensions=(),
        dimension=none,
        judges=(),
        judge=none,
        sources=("llm-judge",),
        source=np.zeros(n, np.int32),
        styles=styles,
        style_a=style_a,
        style_b=style_b,
    )


def concluded(battles: Battles) -> Conclusion:
    """What a run says of them: of a judge called opus."""
    rated = standings.rate(
        {"d": battles},
        elo=shipped("elo", "default", n_perms=2),
        ratings={"bradley_terry": BRADLEY_TERRY},
        models=("new", "old"),
    )
    if battles.styles:
        length = length_control(battles, dimension="d", initial_rating=1400.0)
        rated = standings.add_diagnoses(rated, {"d": {"length": length}})
    return add_conclusions(rated, Scope(judge="opus")).conclusions["d"]


# Length


def lengths_and_verdicts(
    n: int, apart: float, rng: np.random.Generator, *, better: float, preference: float
) -> tuple[Array, Mask, Mask]:
    """Draw by how much new is longer, in sd, and whether it wins in each order.

    apart       mean difference of the lengths in standard deviations
    better      of new at equal length, in log-odds
    preference  of the judge for length, in log-odds
    """
    longer = apart + rng.standard_normal(n)
    x = np.tanh(longer / math.sqrt((longer**2).mean()))
    u = (better + 0.8 * rng.standard_normal(n) + preference * x) / 0.18
    ab, ba = rng.random((2, n)) < expit(u)
    return longer, ab, ba


def claims(
    n: int, apart: float, rng: np.random.Generator, **judge: float
) -> tuple[bool, bool]:
    """Return whether new is significantly ahead, and whether length leaves it the lead."""
    longer, ab, ba = lengths_and_verdicts(n, apart, rng, **judge)
    battles = battles_of(np.where(ab, 0, 1), np.where(ba, 0, 1), 300 * longer)
    board = BRADLEY_TERRY.rate({"d": battles})["d"]
    rows = {row.model: row for row in board.ratings}
    new, old = rows["new"], rows["old"]
    if new.rating is None or old.rating is None or new.ci_low is None:
        return True, False
    is_ahead = new.ci_low > 1400.0  # of two, a rating is half of the lead
    if not is_ahead:
        return False, False
    diagnosis = {
        "length": length_control(battles, dimension="d", initial_rating=1400.0)
    }
    (check,) = (
        c
        for c in check_judge(battles, diagnosis, None, ("new", "old"))
        if c.name == "length"
    )
    return True, not check.blocks("leads")


def rates(
    n_studies: int, draw: Callable[[np.random.Generator], tuple[bool, bool]]
) -> tuple[float, float]:
    """Return how often new is ahead, and how often it leads."""
    rng = np.random.default_rng(11)
    found = np.array([draw(rng) for _ in range(n_studies)])
    return float(found[:, 0].mean()), float(found[:, 1].mean())


def test_an_answer_that_is_always_longer_never_leads():
    """The longer side of each of 74 pairs wins 70%: nothing tells length from quality."""
    rng = np.random.default_rng(4)
    wins = np.arange(74) < 52
    for spread in (0.0, 20.0, 200.0):
        longer = 400.0 + spread * rng.random(74)
        said = concluded(battles_of(np.where(wins, 0, 1), np.where(wins, 0, 1), longer))
        assert said.effect is not None and said.effect.significant
        assert said.state == "caution"
        assert [reason.name for reason in said.reasons] == ["length"]
        sentence = words.sentence(said)
        assert "could explain the whole lead" in sentence or "may be none" in sentence


def test_a_leader_that_won_everything_leads_if_its_answers_are_not_always_longer():
    """Of 60 prompts it won all: length explains it if it was always longer, not if it was in half."""
    won = np.zeros(60)
    mixed = np.where(np.arange(60) % 2, 300.0, -300.0)
    assert concluded(battles_of(won, won, np.full(60, 300.0))).state == "caution"
    assert concluded(battles_of(won, won, np.full(60, -300.0))).state == "caution"
    assert concluded(battles_of(won, won, mixed)).state == "leads"


def test_length_that_no_answer_has_explains_nothing():
    wins = np.where(np.arange(74) < 52, 0, 1)
    assert concluded(battles_of(wins, wins, np.zeros(74))).state == "leads"


def test_a_sound_judge_keeps_its_leads_at_half_a_deviation():
    sound = partial(claims, 100, 0.5, better=0.3, preference=0.1)
    ahead, leads = rates(60, sound)
    assert ahead > 0.6 and leads / ahead >= 0.7


SOUND = {50: 0.37, 100: 0.265, 300: 0.15}  # log-odds, so that .7 to .95 are ahead


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 100, 300])
@pytest.mark.parametrize(
    ("apart", "kept"), [(0.0, 0.97), (0.5, 0.78), (1.0, 0.48), (2.0, -0.01)]
)
def test_power_of_the_rule_of_length(n: int, apart: float, kept: float):
    """15% flips and a mild preference for length: raw leads that stay leads."""
    sound = partial(claims, n, apart, better=SOUND[n], preference=0.1)
    ahead, leads = rates(500, sound)
    print(f"{n} prompts, {apart} sd: ahead {ahead:.2f}, kept {leads / ahead:.2f}")
    assert 0.6 < ahead < 0.99 and leads / ahead > kept


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 100, 300])
@pytest.mark.parametrize("apart", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("preference", [0.25, 1.0])
def test_length_alone_leads_in_at_most_one_study_of_twenty(
    n: int, apart: float, preference: float
):
    """Equals at equal length, and a judge that prefers the longer: .05 and two Monte Carlo errors."""
    equals = partial(claims, n, apart, better=0.0, preference=preference)
    ahead, leads = rates(500, equals)
    print(f"{n}, {apart} sd, {preference}: ahead {ahead:.2f}, leads {leads:.3f}")
    assert leads < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 500)


# Position and flips


def judged(
    n: int, rng: np.random.Generator, *, gap: float, bias: float, noise: float = 1.0
) -> Battles:
    """Both orders of n prompts by a judge that prefers what is shown first, in log-odds."""
    u = gap + rng.standard_normal(n)
    ab = rng.random(n) < expit((u + bias) / noise)
    ba = rng.random(n) < expit((u - bias) / noise)
    return battles_of(np.where(ab, 0, 1), np.where(ba, 0, 1))


@pytest.mark.slow
@pytest.mark.parametrize(("bias", "noise"), [(0.0, 1.0), (1.5, 1.0), (3.0, 1.0), (0.0, 9.0)])  # fmt: skip
def test_position_and_flips_produce_no_lead_if_both_orders_are_judged(
    bias: float, noise: float
):
    """Two equals on 60 prompts: one of them is ahead in 5% of studies, whatever the bias or the flips."""
    rng, n_studies = np.random.default_rng(3), 1000
    ahead = flips = 0.0
    for _ in range(n_studies):
        battles = judged(60, rng, gap=0.0, bias=bias, noise=noise)
        flips += battles.is_inconsistent().mean() / n_studies
        row = BRADLEY_TERRY.rate({"d": battles})["d"].ratings[0]
        if row.rating is not None and row.ci_low is not None:
            ahead += row.ci_low > 1400.0
    print(f"bias {bias}, noise {noise}: flips {flips:.2f}, wrong {ahead / n_studies}")
    error = math.sqrt(0.05 * 0.95 / n_studies)
    assert ahead / n_studies < 0.05 + 2 * error


def test_flips_stand_against_no_lead_in_both_orders_and_against_level():
    """23% flips, 60 prompts: new leads; entrants with one rating are not called level."""
    rng = np.random.default_rng(1)
    lead = judged(90, rng, gap=1.6, bias=1.0)
    assert lead.is_inconsistent().mean() > 0.15
    assert concluded(lead).state == "leads"
    flips = Check(name="flips", state=FAILED, value=0.23)
    assert not flips.blocks("leads")
    assert flips.blocks("level")


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_the_data_leave_open_blocks_as_what_failed_does(claim: str):
    blocking = [
        name
        for name, definition in check_definitions().items()
        if claim in definition.blocked_claims
    ]
    assert blocking
    for name in blocking:
        for state, blocks in ((FAILED, True), (CANNOT_TELL, True), (PASSED, False)):
            assert Check(name=name, state=state).blocks(claim) is blocks
        # nobody can know the family of "old"
        assert not Check(name=name, state="not done").blocks(claim)


def test_of_a_gate_a_control_that_was_not_run_blocks_too():
    for name in gate_check_definitions():
        for state, blocks in ((FAILED, True), (CANNOT_TELL, True), (PASSED, False)):
            check = Check(name=name, state=state)
            assert list_blocking_checks([check]) == [check] * blocks
        check = Check(name=name, state="not done")
        assert list_blocking_checks([check]) == [check] * (name == "control")


# A judge that compares nothing

ALWAYS: Mapping[str, tuple[int, int, str]] = {
    "first": (0, 1, "no result: the judge named the first answer in 60 of 60 comparisons"),
    "second": (1, 0, "no result: the judge named the second answer in 60 of 60 comparisons"),
    "tie": (2, 2, "no result: the judge called a tie in 60 of 60 comparisons"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ALWAYS)
def test_a_judge_with_one_verdict_has_no_result(kind: str):
    ab, ba, sentence = ALWAYS[kind]
    said = concluded(battles_of(np.full(60, ab), np.full(60, ba)))
    assert (said.state, words.sentence(said)) == ("no_result", sentence)


@pytest.mark.parametrize("kind", ALWAYS)
def test_without_the_columns_of_verdicts_it_says_no_more(kind: str):
    """Its winners are ties then, which is no result either."""
    ab, ba, _ = ALWAYS[kind]
    said = concluded(battles_of(np.full(60, ab), np.full(60, ba), is_known=False))
    assert said.state == "no_result"


@pytest.mark.parametrize("column", [0, 1])
def test_without_the_columns_of_one_order_a_judge_that_goes_by_place_has_no_result(
    column: int,
):
    """New stands in the first column of every second row: no quality explains that one column always wins."""
    swapped = np.arange(60) % 2
    none = np.full(60, -1)
    asked = battles_of(np.full(60, column), none, is_known=False)
    found = replace(
        asked,
        model_a=swapped.astype(np.int32),
        model_b=(1 - swapped).astype(np.int32),
    )
    said = concluded(found)
    assert said.state == "no_result"
    assert words.sentence(said) == (
        f"no result: the judge named the entrant in the {('first', 'second')[column]} column "
        "in 60 of 60 comparisons"
    )
    best = replace(found, winner=np.where(swapped, 1, 0).astype(np.int8))
    assert concluded(best).state == "unchecked"  # new wins in either column


def test_without_the_columns_of_one_order_nobody_can_know_more_than_who_won():
    """New is in the first column of all rows, or of all but three: it may be better, or the judge blind."""
    winners, none = np.zeros(60), np.full(60, -1)
    found = battles_of(winners, none, is_known=False)
    assert concluded(found).state == "unchecked"
    swapped = (np.arange(60) < 3).astype(np.int32)
    few = replace(found, model_a=swapped, model_b=1 - swapped)
    assert concluded(few).state == "unchecked"


@pytest.mark.parametrize(
    ("n_first", "n_invalid", "state"),
    [
        (60, 0, FAILED),
        (57, 0, FAILED),
        (56, 0, CANNOT_TELL),
        (56, 30, FAILED),  # what has no valid verdict is no comparison
        (50, 0, PASSED),
        (0, 0, PASSED),
    ],
)
def test_nearly_all_is_95_percent(n_first: int, n_invalid: int, state: str):
    n = np.arange(60)
    found = battles_of(np.zeros(60), np.where(n < n_first, 1, 0))
    quality = JudgeQuality(
        dimension="d",
        n_judgments=60 + n_invalid,
        n_invalid=n_invalid,
        n_two_order=60,
        n_flips=n_first,
        tie_rate=0.0,
        invalid_rate=n_invalid / 90,
    )
    (check,) = (c for c in check_judge(found, {}, quality) if c.name == "one_verdict")
    assert check.state == state
    assert len(list(no_result_reasons([check]))) == (state == FAILED)


def test_level_is_said_after_a_test_alone():
    """1,000 prompts half won by each are level within 70 points; 60 are not known to be."""
    for n, sentence in (
        (1000, "new and old are equal within 70 points"),
        (60, "no difference found: new and old have the same rating"),
    ):
        wins = np.arange(n) % 2
        assert words.sentence(concluded(battles_of(wins, wins))) == sentence


@pytest.mark.slow
def test_entrants_at_the_margin_are_called_level_in_one_study_of_forty():
    """A win rate of .6 and equal ratings by chance: `level` needs the whole interval inside the margin."""
    rng, said = np.random.default_rng(5), Counter[str]()
    for _ in range(300):
        wins = np.where(rng.random(400) < 0.6, 0, 1)
        said[words.sentence(concluded(battles_of(wins, wins)))[:12]] += 1
    assert said["new and old are equal"] <= 300 * 0.05
