"""The split of the variance of outcomes into prompts, draws and the judge: by hand, as laws, and in simulated worlds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit

from elo_exp.analysis.variance import Variance, estimate_variance, split_variance
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.records import Battle
from elo_exp.report.sentences import variance_sentences as words

WIN, LOSS, TIE = 1.0, 0.0, 0.5


def found(*prompts: list[list[float]]) -> tuple[float | None, ...]:
    """Prompts, draws and judge; of each prompt its draws, of each draw its orders."""
    one = split_variance(np.array(prompts))
    return one.prompts, one.draws, one.judge


def test_a_worked_example():
    """Differences of the orders 0, 1, 0, 0: J = (1/4) / 2. Means of draws 1, 1/2 and 0, 0: the variances of these, 1/8 and
    0, are 1/16 on average, D = 1/16 - 1/16; P = var(3/4, 0) - 1/32."""
    one = found([[WIN, WIN], [WIN, LOSS]], [[LOSS, LOSS], [LOSS, LOSS]])
    assert one == pytest.approx((9 / 32 - 1 / 32, 0.0, 1 / 8))


def test_in_one_order_draws_and_judge_stay_together():
    one = split_variance(np.array([[[WIN], [LOSS]], [[WIN], [WIN]]]))
    assert (one.draws, one.judge) == (None, None)
    assert one.within == pytest.approx(0.25)
    assert one.prompts == pytest.approx(0.125 - 0.25 / 2)
    assert set(one.shares) == {"prompts", "within"}


def test_with_one_draw_prompts_and_draws_stay_together():
    one = split_variance(np.array([[[WIN, LOSS]], [[WIN, WIN]], [[LOSS, LOSS]]]))
    assert (one.prompts, one.draws) == (None, None)
    assert one.judge == pytest.approx(np.var([1, 0, 0], ddof=1) / 2)
    assert one.of_mean(6, 2) is None
    assert set(one.shares.values()) == {None}


OUTCOMES = arrays(float, (5, 3, 2), elements=st.sampled_from([WIN, TIE, LOSS]))


@given(OUTCOMES)
def test_law_the_components_add_up_to_the_variance_of_the_mean(y):
    one = split_variance(y)
    assert one.prompts is not None and one.draws is not None and one.judge is not None
    total = one.prompts + (one.draws + one.judge / 2) / 3
    assert total == pytest.approx(np.var(y.mean(axis=(1, 2)), ddof=1))


@given(OUTCOMES)
def test_law_the_sides_the_draws_and_the_orders_may_change_places(y):
    one = split_variance(y)
    for other in (1 - y, y[:, ::-1], y[:, :, ::-1], y[::-1]):
        changed = split_variance(other)
        for name in ("prompts", "draws", "judge", "within"):
            assert getattr(changed, name) == pytest.approx(getattr(one, name))


def test_law_a_position_bias_is_no_variance_of_the_judge():
    """Every first shown wins: the orders differ alike everywhere."""
    y = np.tile([WIN, LOSS], (6, 2, 1))
    assert found(*y.tolist()) == (0.0, 0.0, 0.0)


def test_prompts_buy_more_than_draws_and_draws_alone_end_at_a_floor():
    one = Variance(prompts=0.06, draws=0.03, judge=0.04, within=0.05, n=50, k=2, orders=2)  # fmt: skip
    now = one.of_mean(50, 2)
    assert now == pytest.approx((0.06 + 0.05 / 2) / 50)
    assert one.of_mean(100, 2) == pytest.approx(now / 2)
    assert one.of_mean(50, 4) == pytest.approx((0.06 + 0.05 / 4) / 50)
    assert one.floor == pytest.approx(math.sqrt(0.06 / 0.085))
    assert one.shares == pytest.approx({"prompts": 6 / 11, "draws": 3 / 11, "judge": 2 / 11})  # fmt: skip
    assert not any(one.is_noise.values())
    steady = replace(one, draws=-0.002, within=0.018)
    assert steady.shares["draws"] == 0
    assert steady.is_noise == {"prompts": False, "draws": True, "judge": False}


def test_a_pilot_says_what_it_is_made_of():
    one = Variance(prompts=0.06, draws=0.03, judge=0.04, within=0.05, n=50, k=2, orders=2)  # fmt: skip
    assert words.describe_components(one) == "prompts 55%, samples 27%, judge 18%"
    assert words.next_dollar(one) == (
        "intervals would shrink to 71% of their width with twice the prompts, to 92% with 4 samples instead of 2, and to "
        "84% with any number of samples"
    )
    assert words.plan(one, 41.0, dollars=14.1, n_more=93) == [
        f"variance      {'prompts 55%, samples 27%, judge 18%':<50} lead known to ± 41 points",
        "next dollar   100 prompts, 2 samples     29 points   $14.10   the prompt file has 93 more",
        "              50 prompts, 4 samples      38 points   $14.10   more samples alone never go below 34 points",
    ]
    in_one = replace(one, draws=None, judge=None, orders=1)
    assert words.describe_components(in_one) == (
        "prompts 55%, samples and judge 45% (one order cannot separate them)"
    )
    steady = replace(one, prompts=0.0, n=20)
    assert words.describe_components(steady).startswith("prompts below 10%")
    assert words.format_floor(steady) == "–"
    assert "any number" not in words.next_dollar(steady)
    assert words.plan(steady, 41.0, dollars=None, n_more=0)[1].endswith(
        "the prompt file has no more"
    )


# From battles


def battle(q: int, draw: int, ab: str, ba: str, **others: object) -> Battle:
    named = {"a": "model_a", "b": "model_b"}
    verdicts = [named.get(one, "tie") for one in (ab, ba)]
    winner = verdicts[0] if verdicts[0] == verdicts[1] else "tie"
    about = {"model_a": "ann", "model_b": "bob", **others}
    return Battle(
        winner=winner, verdict_ab=verdicts[0], verdict_ba=verdicts[1], question_id=f"p{q}",
        draw_a=draw, draw_b=draw, **about,
    )  # fmt: skip


ROWS = [
    battle(1, 0, "a", "a"),
    battle(1, 1, "a", "b"),
    battle(2, 0, "b", "b"),
    battle(2, 1, "b", "b"),
]


def test_outcomes_that_do_not_vary_are_said_so():
    alike = split_variance(np.full((5, 2, 2), TIE))
    assert words.describe_dimensions({"factuality": alike}) == [
        "factuality: all prompts have the same outcome, so there is no variance"
    ]


def test_battles_give_what_their_outcomes_do():
    """Sides may be turned, and one entrant may have the same answer in each draw."""
    expected = found([[WIN, WIN], [WIN, LOSS]], [[LOSS, LOSS], [LOSS, LOSS]])
    other = {"model_a": "model_b", "model_b": "model_a"}
    turned = replace(
        ROWS[0], model_a="bob", model_b="ann", winner=other[ROWS[0].winner],
        verdict_ab=other[str(ROWS[0].verdict_ba)], verdict_ba=other[str(ROWS[0].verdict_ab)],
    )  # fmt: skip
    for rows in (ROWS, [turned, *ROWS[1:]], [replace(row, draw_b=0) for row in ROWS]):
        one = estimate_variance(Battles.from_rows(rows))
        assert one is not None
        assert (one.prompts, one.draws, one.judge) == pytest.approx(expected)
        assert (one.n, one.k, one.orders) == (2, 2, 2)


def test_the_mean_over_pairs_leaves_out_incomplete_prompts_and_pairs_of_one_draw():
    others = [replace(row, model_b="cid") for row in ROWS]
    single = [battle(q, 0, "a", "b", model_b="dan") for q in (1, 2)]
    lacking = [battle(3, 0, "b", "b"), battle(3, 1, "a", "a", model_b="cid")]
    one = estimate_variance(Battles.from_rows([*ROWS, *others, *single, *lacking]))
    assert one == estimate_variance(Battles.from_rows(ROWS))


def test_equal_answers_are_a_tie_in_both_orders():
    """One query served both, so that they name another entrant each."""
    rows = [battle(q, draw, "a", "b", equal_answers=True) for q in (1, 2) for draw in (0, 1)]  # fmt: skip
    one = estimate_variance(Battles.from_rows(rows))
    assert one is not None
    assert (one.prompts, one.draws, one.judge) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [replace(row, draw_a=0, draw_b=0) for row in ROWS[::2]],
        ROWS[:2],
    ],
)
def test_without_several_draws_of_two_prompts_there_is_none(rows):
    assert estimate_variance(Battles.from_rows(rows)) is None


def test_one_order_is_seen_in_the_battles():
    rows = [replace(row, verdict_ba=None) for row in ROWS]
    one = estimate_variance(Battles.from_rows(rows))
    assert one is not None
    assert (one.orders, one.draws, one.judge) == (1, None, None)
    assert one.within is not None


# Simulated worlds: prompts, draws and a noisy judge with ties and a preference for what is shown first

BAND, NOISE, POSITION, LEAD = 0.35, 0.5, 0.25, 0.15
# standard deviations of prompts, of a draw of each entrant, of what two draws have in common
WORLDS = {"chat": (1.0, 0.5, 0.3), "agents": (0.8, 1.2, 0.3), "steady": (1.0, 0.1, 0.05)}  # fmt: skip


def chances(margin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return expit((margin - BAND) / NOISE), expit((-margin - BAND) / NOISE)


def outcomes(rng: np.random.Generator, margin: np.ndarray) -> np.ndarray:
    """A query in each order on each margin: (..., 2)."""
    asked = []
    for side in (1, -1):
        win, lose = chances(margin + POSITION * side)
        drawn = rng.random(margin.shape)
        asked.append(np.where(drawn < win, WIN, np.where(drawn > 1 - lose, LOSS, TIE)))
    return np.stack(asked, axis=-1)


def margins(rng: np.random.Generator, world: str, *shape: int) -> np.ndarray:
    """(..., n prompts, k draws)"""
    prompts, draws, both = WORLDS[world]
    u = rng.normal(0, prompts, (*shape[:-1], 1))
    x, y = rng.normal(0, draws, (2, *shape))
    return LEAD + u + x - y + rng.normal(0, both, shape)


def truth(world: str) -> tuple[float, float, float]:
    """Prompts, draws and judge, by integration over many prompts with many draws."""
    rng = np.random.default_rng(0)
    m = margins(rng, world, 40_000, 40)
    means, noise = [], []
    for side in (1, -1):
        win, lose = chances(m + POSITION * side)
        tie = 1 - win - lose
        means.append(win + tie / 2)
        noise.append(win + tie / 4 - means[-1] ** 2)
    f = np.mean(means, axis=0)
    draws = float(f.var(axis=1, ddof=1).mean())
    # what the two orders differ by beyond the mean is of no component that a mean of both has
    gap = np.var(means[0] - means[1]) / 2
    return float(f.mean(axis=1).var() - draws / m.shape[1]), draws, float(np.mean(noise) + gap)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_the_split_is_recovered_and_half_widths_are_foretold(world):
    """143 prompts with two draws: prompts and judge within 10%, draws where they are above a tenth of the whole; the
    error of other designs, from 50 prompts, within 3%."""
    rng, n_worlds = np.random.default_rng(7), 1000
    prompts, draws, judge = truth(world)
    whole = prompts + draws + judge / 2
    splits = [
        split_variance(outcomes(rng, m)) for m in margins(rng, world, n_worlds, 143, 2)
    ]
    mean = {
        name: np.mean([getattr(one, name) for one in splits])
        for name in ("prompts", "draws", "judge")
    }
    assert mean["prompts"] == pytest.approx(prompts, rel=0.1)
    assert mean["judge"] == pytest.approx(judge, rel=0.1)
    if draws > 0.1 * whole:
        assert mean["draws"] == pytest.approx(draws, rel=0.1)
    assert abs(mean["draws"] - draws) < 0.03 * whole
    pilots = [
        split_variance(outcomes(rng, m)) for m in margins(rng, world, n_worlds, 50, 2)
    ]
    for n, k in ((100, 2), (50, 4), (50, 2)):
        true = (prompts + (draws + judge / 2) / k) / n
        said = [math.sqrt((one.of_mean(n, k) or 0.0) / true) for one in pilots]
        assert 0.97 <= np.median(said) <= 1.03, (n, k)


@pytest.mark.slow
@pytest.mark.parametrize("world", ["chat", "agents"])
@pytest.mark.parametrize("k", [1, 3])
def test_intervals_hold_with_prompts_as_clusters(world, k):
    """Three equal entrants, 60 prompts, whole tournaments through Bradley-Terry."""
    rng, n_prompts, n_worlds = np.random.default_rng(8), 60, 400
    fit = BradleyTerry(
        initial_rating=1400.0, orders="both", interval="sandwich", n_bootstraps=1, seed=1
    )  # fmt: skip
    held = 0
    named = {WIN: "model_a", LOSS: "model_b", TIE: "tie"}
    for _ in range(n_worlds):
        q = rng.normal(0, WORLDS[world][0], (n_prompts, 1, 3))
        x = q / 2**0.5 + rng.normal(0, WORLDS[world][1], (n_prompts, k, 3))
        rows = []
        for a, b in ((0, 1), (0, 2), (1, 2)):
            y = outcomes(rng, x[:, :, a] - x[:, :, b])
            for p, i in np.ndindex(n_prompts, k):
                ab, ba = (named[one] for one in y[p, i].tolist())
                winner = ab if ab == ba else "tie"
                rows.append(
                    Battle(
                        model_a=f"m{a}", model_b=f"m{b}", winner=winner, verdict_ab=ab, verdict_ba=ba,
                        question_id=f"p{p}", draw_a=i, draw_b=i,
                    )
                )  # fmt: skip
        board = fit.rate({"d": Battles.from_rows(rows)})["d"]
        held += int(((board.ci_low <= 1400) & (board.ci_high >= 1400)).sum())
    assert 0.93 <= held / (3 * n_worlds) <= 0.97
