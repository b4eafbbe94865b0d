"""Calibrated placement: votes and verdicts in one fit, and when it is refused.

The laws: what does not matter moves nothing, a judge that stretches distances is undone, and one
that votes as the humans do changes nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize
from scipy.special import expit
from statsmodels.tools.numdiff import approx_fprime

from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.arena.joint_fit import JointFit, fit_jointly, make_leaderboard
from elo_exp.arrays import Array
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battles import Battles
from elo_exp.files import read_jsonl
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.records import Battle
from elo_exp.report.sentences.arena_sentences import explain_reason
from tests.arena_worlds import PLACED, Drawn, JudgedWorld
from tests.data import shared_data

WORLD = JudgedWorld()
BRADLEY_TERRY = BradleyTerry(
    initial_rating=0.0, orders="both", interval="sandwich", n_bootstraps=2, seed=0
)
SMALL = JudgedWorld(n_anchors=5, n_votes=600, n_calibrating=150, n_judged=150)


@functools.cache
def drawn(world: JudgedWorld = WORLD, seed: int = 1) -> Drawn:
    return world.draw(seed)


def estimate(found: JointFit, model: str = PLACED) -> tuple[float, float]:
    """The rating over the anchors' mean and its standard error, in points."""
    i = found.models.index(model)
    return POINTS_PER_LOG_ODDS * found.theta[i], POINTS_PER_LOG_ODDS * math.sqrt(
        found.covariance[i, i]
    )


def raw(some: Drawn) -> float:
    """The rating over the anchors' mean if verdicts were votes."""
    (board,) = BRADLEY_TERRY.rate(
        {"": concatenate_battles(some.judged, some.votes)}
    ).values()
    rating = dict(zip(board.models, board.rating.tolist(), strict=True))
    return rating.pop(PLACED) - float(np.mean(list(rating.values())))


# A second opinion


def by_hand(some: Drawn, effects: Mapping[str, float]) -> Array:
    """s, log tau, log omega and the placed model's log-odds, without aggregation or Newton."""
    names = sorted({*some.votes.models, PLACED})
    m, is_placed = len(names), np.array(names) == PLACED
    design, score, weight = [], [], []
    parts = {"votes": some.votes, "calibration": some.calibrating, PLACED: some.judged}
    for kind, battles in parts.items():
        for b in battles.rows():
            for winner, x in ((b.verdict_ab or b.winner, 1), (b.verdict_ba, -1)):
                if winner is not None:
                    row, is_verdict = np.zeros(2 * m + 1), b.verdict_ab is not None
                    shift = m * is_verdict
                    row[names.index(b.model_a) + shift] = 1
                    row[names.index(b.model_b) + shift] = -1
                    row[-1] = x * is_verdict
                    design.append(row)
                    score.append({"model_a": 1.0, "model_b": 0.0}.get(winner, 0.5))
                    weight.append(1 / effects[kind])
    rows, won, w = np.array(design), np.array(score), np.array(weight)

    def loss(x: Array, s: float, tau: float, omega: float) -> tuple[float, Array]:
        p, theta, off = expit(rows @ x), x[:m], x[m:-1] - s * x[:m]
        sd = np.where(is_placed, 10.0, omega)
        value = (theta**2 / sd**2 / 2 + np.log(sd)).sum() + 5e-4 * x[-1] ** 2
        value += (off**2 / tau**2 / 2 + np.log(tau)).sum()
        value -= w @ (won * np.log(p) + (1 - won) * np.log(1 - p))
        of_prior = theta / sd**2 - s * off / tau**2, off / tau**2, 1e-3 * x[-1:]
        return value, np.concatenate(of_prior) - rows.T @ (w * (won - p))

    x = np.zeros(2 * m + 1)

    def laplace(z: Array) -> float:
        at = z[0], *np.exp(z[1:])
        x[:] = optimize.minimize(loss, x, at, jac=True, tol=1e-10).x
        bend = approx_fprime(x, lambda x: loss(x, *at)[1], centered=True)
        value = -loss(x, *at)[0] - np.linalg.slogdet(bend)[1] / 2
        return float(-value - z[1] + at[1] ** 2 / 8 + at[2] ** 2 / 8)

    start, exact = [1.0, math.log(0.4), math.log(0.5)], {"xatol": 1e-4, "fatol": 1e-7}
    z = optimize.minimize(laplace, start, method="Nelder-Mead", options=exact).x
    laplace(z)
    return np.array([*z, x[:m][is_placed][0] - x[:m][~is_placed].mean()])


@pytest.mark.system
def test_the_fit_is_that_of_a_plain_optimiser() -> None:
    some = drawn(JudgedWorld(n_anchors=4, n_votes=200, n_calibrating=60, n_judged=60))
    found = some.fit()
    z = by_hand(some, found.design_effects)
    ours = [found.s, math.log(found.tau), math.log(found.omega)]
    assert_allclose(ours, z[:3], atol=2e-3)
    assert found.theta[found.models.index(PLACED)] == pytest.approx(z[3], abs=1e-3)


def test_the_design_effect_by_hand() -> None:
    """Five equal votes on each of four questions multiply the variance by 5 x 4 / 3.

    Each model wins ten votes, on two questions. The probability is 1/2, and so is each residual. Five
    equal residuals on a question make the variance five times as large. Four questions add the factor 4 / 3.
    """
    some = drawn(SMALL)
    votes = some.votes.select(np.zeros(20, int))
    winner = np.repeat([0, 1], 10).astype(np.int8)
    votes = replace(votes, winner=winner, question=np.repeat(np.arange(4), 5))
    found = fit_jointly(votes, some.calibrating, some.judged, [PLACED])
    assert found.design_effects["votes"] == pytest.approx(5 * 4 / 3)
    assert found.n_prompts["votes"] == 4


def test_far_from_the_anchors_a_rating_is_as_unsure_as_the_judges_scale() -> None:
    """There theta = phi / s: of what s may be off by, relatively, the rating is off by as much, beside all else."""
    found = drawn(replace(WORLD, place_at=6.0, n_judged=4000)).fit()
    rating, error = estimate(found)
    assert 1.0 < error / (rating * found.s_std_error / found.s) < 1.5


# What moves nothing


def doubled(some: Battles) -> Battles:
    return some.select(np.tile(np.arange(len(some)), 2))


def renamed(some: Battles) -> Battles:
    new = {m: m if m == PLACED else f"{99 - int(m[1:])}" for m in some.models}
    return Battles.from_rows(
        [
            replace(row, model_a=new[row.model_a], model_b=new[row.model_b])
            for row in some.rows()
        ]
    )


def turned(row: Battle) -> Battle:
    """A battle told from the other side."""
    other = {"model_a": "model_b", "model_b": "model_a"}
    words = (row.winner, row.verdict_ba, row.verdict_ab)
    winner, ab, ba = (other.get(str(word), word) for word in words)
    told = {"winner": winner, "verdict_ab": ab, "verdict_ba": ba}
    return replace(row, model_a=row.model_b, model_b=row.model_a, **told)


def swapped(some: Battles) -> Battles:
    """Every second battle turned, but for those of placed models."""
    rows = some.rows()
    turn = [i % 2 > 0 and row.model_a != PLACED for i, row in enumerate(rows)]
    return Battles.from_rows(
        [
            turned(row) if is_turned else row
            for row, is_turned in zip(rows, turn, strict=True)
        ]
    )


@pytest.mark.parametrize("change", [doubled, renamed, swapped])
def test_neither_doubled_rows_nor_names_nor_sides_move_a_rating(
    change: Callable[[Battles], Battles],
) -> None:
    some = drawn()
    parts = [change(part) for part in (some.votes, some.calibrating, some.judged)]
    found = fit_jointly(*parts, [PLACED])
    assert estimate(found) == pytest.approx(estimate(some.fit()), abs=0.02)


# The judge


@pytest.mark.system
def test_a_judge_of_three_times_the_log_odds_moves_the_raw_rating_alone() -> None:
    """Taste, noise and position effect are stretched, too."""
    one = JudgedWorld(s=1.0, taste=0.2, noise=0.3, place_at=1.0)
    three = replace(one, s=3.0, taste=0.6, noise=0.9, position=0.9)
    (at, error), (at_three, _) = (estimate(drawn(w).fit()) for w in (one, three))
    assert abs(at_three - at) < error
    assert drawn(three).fit().s == pytest.approx(3 * drawn(one).fit().s, rel=0.3)
    assert abs(raw(drawn(three)) - raw(drawn(one))) > 1.5 * error


@pytest.mark.system
def test_a_judge_that_votes_as_the_humans_do_changes_nothing() -> None:
    """Each rating has an error of some 15 points."""
    world = JudgedWorld(s=1.0, taste=0.0, noise=0.0, position=0.0, n_calibrating=2000)
    found = [drawn(world, seed).fit() for seed in range(3)]
    assert np.mean([f.s for f in found]) == pytest.approx(1.0, abs=0.1)
    for seed, f in enumerate(found):
        assert estimate(f)[0] == pytest.approx(raw(drawn(world, seed)), abs=15)


@pytest.mark.system
def test_votes_on_the_placed_model_narrow_its_interval() -> None:
    """As ten times the verdicts do not."""
    (_, without), (_, many), (_, voted) = (
        estimate(drawn(replace(WORLD, **more)).fit())
        for more in (
            {},
            {"n_calibrating": 2000, "n_judged": 2000},
            {"n_votes_on_placed": 200},
        )
    )
    assert many > 0.7 * without
    assert voted < 0.6 * without


@pytest.mark.system
def test_two_models_are_placed_by_one_fit_as_by_two() -> None:
    """But for what each tells of its opponents."""
    one = drawn()
    rows = [replace(row, model_a="second") for row in drawn(seed=2).judged.rows()]
    other = Battles.from_rows(rows)
    judged = {PLACED: one.judged, "second": other}
    together = concatenate_battles(one.judged, other)
    both = fit_jointly(one.votes, one.calibrating, together, list(judged))
    for name, own in judged.items():
        alone, _ = estimate(fit_jointly(one.votes, one.calibrating, own, [name]), name)
        assert estimate(both, name)[0] == pytest.approx(alone, abs=25)
    assert set(both.design_effects) == {"votes", "calibration", *judged}


def test_a_verdict_in_one_order_counts_for_that_order() -> None:
    """The judge prefers whatever is shown first, whichever way round it is told."""
    some = drawn(SMALL)
    none = np.full(len(some.calibrating), -1, np.int8)
    a, b = np.zeros_like(none), np.ones_like(none)
    for winner, ab, ba in ((a, a, none), (b, none, b)):
        calibrating = replace(
            some.calibrating, winner=winner, verdict_ab=ab, verdict_ba=ba
        )
        assert (
            fit_jointly(some.votes, calibrating, some.judged, [PLACED]).position > 0.3
        )


# Kin of the judge


def test_where_nobody_is_kin_nothing_is_fitted_and_every_digit_stays() -> None:
    """Also where kin is named that is in no battle."""
    some = drawn(SMALL)
    parts = some.votes, some.calibrating, some.judged
    plain = fit_jointly(*parts, [PLACED])
    other = fit_jointly(*parts, [PLACED], ["somebody"], kin_sd=3.0)
    assert plain.kin is other.kin is None
    assert_allclose(other.theta, plain.theta, rtol=0, atol=0)
    assert_allclose(other.covariance, plain.covariance, rtol=0, atol=0)
    assert (plain.df, plain.n_kin_anchors) == (3, 0)


@pytest.mark.system
def test_a_preference_for_kin_is_told_from_ability_by_the_anchors_that_are_kin() -> (
    None
):
    """Of 6 anchors of 15 with tastes of .2, the log-odds of 1.2 have an error of some .12."""
    world = JudgedWorld(n_anchors=15, taste=0.2, kin=1.2, n_kin_anchors=6)
    found = drawn(world).fit()
    assert found.kin == pytest.approx(1.2, abs=0.3)
    assert (found.n_kin_anchors, found.df) == (6, 12)
    at, error = estimate(found)
    truth = POINTS_PER_LOG_ODDS * drawn(world).truth
    assert at == pytest.approx(truth, abs=2.2 * error)
    some = drawn(world)
    ignored = fit_jointly(some.votes, some.calibrating, some.judged, [PLACED])
    assert estimate(ignored)[0] > at + error


@pytest.mark.system
def test_without_kin_among_the_anchors_a_model_of_the_judge_is_never_reported() -> None:
    """The prior of the preference, 1 log-odds of verdicts, is in the interval."""
    world = replace(WORLD, n_kin_anchors=0, place_at=0.0)
    found, without = drawn(world).fit(), drawn(replace(WORLD, place_at=0.0)).fit()
    assert found.list_cautions(PLACED)[0].name == "no_kin_anchor"
    prior = POINTS_PER_LOG_ODDS * found.t_quantile / found.s
    expected = math.hypot(estimate(without)[1] * without.t_quantile, prior)
    assert estimate(found)[1] * found.t_quantile == pytest.approx(expected, rel=0.1)
    narrow = fit_jointly(
        *(drawn(world).votes, drawn(world).calibrating, drawn(world).judged),
        *([PLACED], [PLACED]),
        kin_sd=1e-3,
    )
    assert estimate(narrow) == pytest.approx(estimate(without), rel=1e-3)


# When it is refused


BASE = drawn(seed=4).fit()


def said(reason: Reason | None) -> str:
    return explain_reason(reason, Conclusion(state="refused")) if reason else ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"s": 0.211, "s_std_error": 0.1}, None),
        ({"s": 0.20, "s_std_error": 0.1}, "2.0 standard errors from 0, and more than 2.1"),
        ({"s": -1.0}, "not been shown to follow people's votes"),
        ({"correlation": 0.45}, None),
        ({"correlation": 0.4}, "correlate at 0.40, and more than 0.44"),
        ({"is_anchor": np.arange(21) < 3}, "3 anchors, and 4 are needed"),
    ],
)  # fmt: skip
def test_a_judge_that_is_not_known_to_follow_the_humans_is_refused(
    changes: dict[str, float], words: str | None
) -> None:
    """t(.975, 18) = 2.101, so that a judge at chance passes in 2.5%; of a correlation, .444."""
    reason = replace(BASE, **changes).refusal
    assert (reason is None) if words is None else words in said(reason)


@pytest.mark.system
def test_a_judge_that_always_prefers_the_same_models_is_refused() -> None:
    """s is 3.7 standard errors above 0, and at the end of its range."""
    found = JudgedWorld(s=0.0, taste=20.0, noise=0.0).draw(29).fit()
    assert found.s > found.t_quantile * found.s_std_error
    assert "correlate at 0.42" in said(found.refusal)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"omega": 0.1}, "more than that it is one of these models"),
        ({"theta": np.append(np.zeros(20), 0.5)}, "beyond all anchors"),
        ({"n_prompts": {"calibration": 19, PLACED: 300}}, "on only 19 prompts, and 20 are needed"),
    ],
)  # fmt: skip
def test_what_calls_for_caution(changes: dict[str, float], words: str | None) -> None:
    found = replace(BASE, **changes).list_cautions(PLACED)
    assert [words in said(reason) for reason in found] == [True] * (words is not None)


# The leaderboard


def test_ranks_and_intervals_by_hand() -> None:
    """Four models, of which the placed one is far below with an error of a point, and two are level.
    t(.975, 2) = 4.303 for four anchors, so that an interval is 4.3 points to each side."""
    found = replace(
        BASE,
        models=("a", "b", "c", "d", PLACED),
        is_anchor=np.arange(5) < 4,
        is_kin=np.zeros(5, bool),
        theta=np.array([2.0, 2.0, -2.0, -2.0, -6.0]),
        covariance=np.eye(5) / POINTS_PER_LOG_ODDS**2,
    )
    count = np.arange(5)
    board = make_leaderboard(found, count, level=1000.0, baseline=None, unrated={})
    row = board.row(PLACED)
    assert row.rating == pytest.approx(1000 - 6 * POINTS_PER_LOG_ODDS)
    assert (row.ci_high or 0) - (row.rating or 0) == pytest.approx(4.303, abs=1e-3)
    assert (row.rank_low, row.rank_high, row.p_best) == (5, 5, 0.0)
    assert (board.row("a").rank_low, board.row("a").rank_high) == (1, 2)
    assert board.row("a").p_best == pytest.approx(0.5, abs=0.02)
    gone = {4: "winless"}
    pinned = make_leaderboard(found, count, level=1000.0, baseline="a", unrated=gone)
    assert (pinned.row("a").rating, pinned.row("a").std_error) == (1000.0, 0.0)
    assert pinned.row("b").std_error == pytest.approx(math.sqrt(2.0))
    row = pinned.row(PLACED)
    assert (row.rating, row.rank_high, row.p_best) == (None, None, None)
    assert row.flag == "winless"


# Known truth


@functools.cache
def judged_in(world: JudgedWorld, n: int) -> Array:
    """Of n draws: accepted, the distance to the truth and the half-width of the interval (n, 3)."""
    rows = []
    for seed in range(n):
        some = world.draw(seed)
        found, i = some.fit(), -1
        error = found.theta[i] - some.truth
        half_width = found.t_quantile * math.sqrt(found.covariance[i, i])
        rows.append((found.refusal is None, abs(error), half_width))
    return np.array(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("s", "taste", "n_anchors"),
    [
        (0, 0, 20),
        (0, 0.4, 20),
        (0, 1, 20),
        (0, 0.4, 6),
        (0, 1, 6),
        (-0.5, 0.4, 20),
        (0, 20, 11),
    ],
)
def test_a_judge_at_chance_or_contrary_is_seldom_accepted(
    s: float, taste: float, n_anchors: int
) -> None:
    """Nominally 2.5% are. A taste of 20 always prefers the same models."""
    world = JudgedWorld(s=s, taste=taste, n_anchors=n_anchors)
    assert judged_in(world, 100)[:, 0].sum() <= 3


WORLDS = {
    "base": WORLD,
    "s 3": JudgedWorld(s=3.0),
    "s .5": JudgedWorld(s=0.5),
    "no taste": JudgedWorld(taste=0.0),
    "taste 1": JudgedWorld(taste=1.0),
    "6 anchors": JudgedWorld(n_anchors=6),
    "100 calibrating": JudgedWorld(n_calibrating=100),
    "1,000 calibrating": JudgedWorld(n_calibrating=1000),
    "placed at 2 sd": JudgedWorld(place_at=2.0),
    "placed at 3 sd": JudgedWorld(place_at=3.0),
    "tastes of t(3)": JudgedWorld(has_heavy_tails=True),
    "50 anchors": JudgedWorld(n_anchors=50, n_calibrating=500, n_votes=20_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_the_interval_covers_the_truth(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of accepted judges; the error of a share of 150 near 96% is 1.6%."""
    found = judged_in(WORLDS[name], 150)
    accepted, distance, half_width = found[found[:, 0] == 1].T
    covered = np.mean(distance <= half_width)
    with capsys.disabled():
        print(
            f"\n{name}: accepted {accepted.sum() / 150:.2f}, distance "
            f"{POINTS_PER_LOG_ODDS * distance.mean():.0f}, covers {covered:.3f}, half-width "
            f"{POINTS_PER_LOG_ODDS * np.median(half_width):.0f}"
        )
    assert covered >= 0.93


KIN = JudgedWorld(n_anchors=15, taste=0.25, kin=1.0)
OTHER_KIN = JudgedWorld(n_anchors=25, taste=0.8, kin=0.7, s=1.2)  # not tuned on


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "n_kin", "least"),
    [(KIN, 0, 0.95), (KIN, 1, 0.9), (KIN, 3, 0.9), (OTHER_KIN, 0, 0.95), (OTHER_KIN, 3, 0.9)],
)  # fmt: skip
def test_kin_of_the_judge_are_placed_where_they_belong(
    world: JudgedWorld, n_kin: int, least: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error of a share of 40 near 95% is 3.4%."""
    fits = [(some, some.fit()) for some in drawn_kin(world, n_kin, 40)]
    rows = []
    for some, found in fits:
        at, half_width = (
            found.theta[-1],
            found.t_quantile * found.covariance[-1, -1] ** 0.5,
        )
        rows.append((abs(at - some.truth) <= half_width, half_width, at - some.truth))
    covered, half_width, off = np.array(rows).T
    cautions = [found.list_cautions(PLACED) for _, found in fits]
    as_now = [
        fit_jointly(some.votes, some.calibrating, some.judged, [PLACED])
        for some, _ in fits
    ]
    missed = np.mean([abs(f.theta[-1] - some.truth) > f.t_quantile * f.covariance[-1, -1] ** 0.5
                      for (some, _), f in zip(fits, as_now, strict=True)])  # fmt: skip
    with capsys.disabled():
        print(
            f"\n{world.n_anchors} anchors, {n_kin} kin: covers {covered.mean():.3f}, half-width "
            f"{POINTS_PER_LOG_ODDS * np.median(half_width):.0f}, off by {POINTS_PER_LOG_ODDS * off.mean():+.0f}; without kin "
            f"covers {1 - missed:.3f}"
        )
    assert covered.mean() >= least
    assert all(cautions) or n_kin


def drawn_kin(world: JudgedWorld, n_kin: int, n: int) -> list[Drawn]:
    return [replace(world, n_kin_anchors=n_kin).draw(seed) for seed in range(n)]


# Real battles


@pytest.mark.slow
@pytest.mark.parametrize("judge", ["gpt-4", "gpt-3.5-turbo-instruct"])
def test_models_held_out_are_placed_where_the_crowd_has_them(
    judge: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The 59 models of llmfao, each in turn. The crowd's rating, which they are compared with, has an
    error of its own, that only its interval allows for. The mean of the others is 68 points off."""
    path = shared_data("llmfao/battles.jsonl.gz")
    rows = [Battle.from_dict(row) for _, row in read_jsonl(path)]
    crowd = [row for row in rows if row.source == "human"]
    models = {model for row in crowd for model in row.models}
    verdicts = [  # which were given in one order
        replace(row, verdict_ab=row.winner)
        for row in rows
        if row.judge_model == judge and {*row.models} <= models
    ]
    (board,) = BRADLEY_TERRY.rate({"": Battles.from_rows(crowd)}).values()
    assert board.std_error is not None
    found = []
    for i, model in enumerate(board.models):
        votes, calibrating = (
            Battles.from_rows([row for row in some if model not in row.models])
            for some in (crowd, verdicts)
        )
        own = [row for row in verdicts if model in row.models]
        own = [row if row.model_a == model else turned(row) for row in own]
        made = fit_jointly(votes, calibrating, Battles.from_rows(own), [model])
        assert made.refusal is None
        at, error = estimate(made, model)
        truth = board.rating[i] - np.delete(board.rating, i).mean()
        both = math.hypot(made.t_quantile * error, 1.96 * board.std_error[i])
        found.append((abs(at - truth), both, made.t_quantile * error))
    distance, both, half_width = np.array(found).T
    covered = np.mean(distance <= both)
    with capsys.disabled():
        print(
            f"\n{judge}: distance {distance.mean():.0f}, covers {covered:.3f} (the crowd's "
            f"point: {np.mean(distance <= half_width):.3f}), half-width "
            f"{np.median(half_width):.0f}"
        )
    assert len(found) == 59
    assert distance.mean() <= 60
    assert covered >= 0.93
