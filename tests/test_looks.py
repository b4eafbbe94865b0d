"""Planned looks: who is judged next, what is resolved when, what a run with looks shows, and the sixteen worlds."""

import dataclasses
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elo_exp.analysis.comparisons import differences
from elo_exp.analysis.complete_separation import unbeaten_lower_bound
from elo_exp.analysis.sequential_tests import (
    comparison_key,
    plan_looks,
    plan_next_wave,
    prompt_order,
)
from elo_exp.analysis.standings import apply_looks, rate
from elo_exp.data.battles import Battles
from elo_exp.pipeline.plan_table import looks_table
from elo_exp.pipeline.planning import Plan, PlanRow
from elo_exp.records import JudgeReply
from elo_exp.store.answer_store import Store
from elo_exp.store.looks import count_queries_seen_before
from tests.commands import QUICK, attempt, run
from tests.data import shipped
from tests.looks_worlds import UNBEATEN, WORLDS, World, look, study, study_bounds
from tests.simulation import BRADLEY_TERRY

SMALL = World(elo=(0, 40, 200), n=60, dims=2)
AHEAD = World(elo=(0, 800), n=60)  # often unbeaten, and too few pairs to misfit
CYCLIC = World(elo=(0, 0, -300, -300), n=60, dims=1, cyclic=2.0, makes_up=3.0)


def known(seed: int):
    points = SMALL.draw(1, np.random.default_rng(seed), "one")
    return {f"d{d}": some for d, some in enumerate(SMALL.known(points))}


def asked(wave):
    return {
        name: [comparison_key(c) for c in some] for name, some in wave.judged.items()
    }


def wave_of(found, *, n_looks=3, drop=True):
    comparisons = dict.fromkeys(found, SMALL.comparisons)
    return plan_next_wave(comparisons, found, BRADLEY_TERRY, n_looks=n_looks, drop=drop)


# The order, and the looks


@given(st.lists(st.sampled_from("ab"), max_size=60), st.integers(0, 60))
def test_every_prefix_of_the_prompts_has_the_strata_in_proportion(letters, end):
    strata = {f"q{i}": letter for i, letter in enumerate(letters)}
    order = prompt_order(strata)
    assert sorted(order) == sorted(strata)
    start = [strata[prompt] for prompt in order[:end]]
    expected = len(start) * letters.count("a") / max(len(letters), 1)
    assert abs(start.count("a") - expected) <= 1


@pytest.mark.parametrize(
    "n, n_looks, expected",
    [
        (143, 5, [29, 57, 86, 114, 143]),
        (93, 5, [37, 56, 74, 93]),  # 19 prompts join the next look
        (12, 3, [12]),
        (30, 20, [20, 21, 22, 24, 26, 27, 28, 30]),
    ],
)
def test_a_look_has_twenty_prompts(n, n_looks, expected):
    assert plan_looks(n, n_looks) == expected


# Waves


@pytest.mark.system
@settings(max_examples=2, deadline=None)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_a_tournament_that_is_interrupted_asks_and_resolves_the_same(seed, random):
    """Killed after any verdict, as often as may be: nothing is asked twice, and verdicts not due change nothing."""
    every = known(seed)
    every["d0"][comparison_key(SMALL.comparisons[0])] = (
        None  # invalid: closed, and no tie
    )
    at_once = wave_of(every)
    assert not any(at_once.to_judge.values())
    so_far = {name: {} for name in every}
    while any((wave := wave_of(so_far)).to_judge.values()):
        wanted = [
            (d, comparison_key(c)) for d, some in wave.to_judge.items() for c in some
        ]
        assert not [key for d, key in wanted if key in so_far[d]]
        random.shuffle(wanted)
        for d, key in wanted[: random.choice([len(wanted), len(wanted) // 2 + 1])]:
            so_far[d][key] = every[d][key]
    assert asked(wave) == asked(at_once)
    assert {d: set(some) for d, some in so_far.items()} == {
        d: set(some) for d, some in asked(wave).items()
    }
    assert (wave.resolutions, wave.looks) == (at_once.resolutions, at_once.looks)


@pytest.mark.parametrize(
    ("world", "orders"),
    [
        (SMALL, "one"),
        (SMALL, "both"),
        (CYCLIC, "one"),
        (CYCLIC, "both"),
        (AHEAD, "both"),
    ],
)
def test_looks_written_a_second_time_ask_and_resolve_the_same(world, orders):
    points = world.draw(3, np.random.default_rng(2), orders)
    expected = look(world, points, orders, n_looks=3)
    for one, some in enumerate(np.split(points, 3)):
        found = dict(enumerate(world.known(some)))
        wave = plan_next_wave(
            dict.fromkeys(found, world.comparisons),
            found,
            dataclasses.replace(BRADLEY_TERRY, orders=orders),
            n_looks=3,
            drop=True,
        )
        claims = np.zeros_like(expected.claims[one])
        for r in wave.resolutions:
            pair = int(r.higher[1]), int(r.lower[1])
            q = world.pairs.index(tuple(sorted(pair)))
            claims[r.dimension, q] = np.sign(pair[1] - pair[0]) * r.significant
            assert r.look == 1 + expected.look[one * world.dims + r.dimension, q]
        assert (claims == expected.claims[one]).all()
        assert sum(map(len, wave.judged.values())) == expected.asked[one]


def test_an_entrant_that_takes_every_point_is_resolved_at_the_look_and_ranked_first():
    """e2 wins all of the 25 prompts of the first look: 319 points at least, and no further prompt is asked."""
    world = World(elo=(0, 60, 1500), n=100, dims=1)
    known = {"d": world.known(world.draw(1, np.random.default_rng(3), "both"))[0]}
    comparisons = {"d": world.comparisons}
    wave = plan_next_wave(comparisons, known, BRADLEY_TERRY, n_looks=4, drop=True)
    swept = [r for r in wave.resolutions if r.one_sided]
    assert {(r.higher, r.lower) for r in swept} == {("e2", "e0"), ("e2", "e1")}
    for r in swept:
        assert (r.look, r.n_prompts, r.significant) == (1, 25, True)
        assert (r.difference, r.ci_high) == (None, None)
        assert (
            r.ci_low
            == pytest.approx(unbeaten_lower_bound(25))
            == pytest.approx(319, abs=0.5)
        )
    battles = [known["d"][comparison_key(c)] for c in wave.judged["d"]]
    found = rate(
        {"d": Battles.from_rows(battles)},
        elo=shipped("elo", "default", n_perms=2),
        ratings={"bradley_terry": BRADLEY_TERRY},
        models=["e0", "e1", "e2"],
    )
    board = apply_looks(found, wave).boards["bradley_terry"]["d"]
    ranks = [(r.model, r.rank, r.rank_low, r.rank_high) for r in board.ratings]
    assert ranks == [("e2", 1, 1, 1), ("e1", 2, 2, 2), ("e0", 3, 3, 3)]


def test_a_pair_that_was_one_sided_at_first_has_the_interval_of_the_looks_after_it():
    """e1 wins all 20 prompts of the first look, too few to stop; then it wins each once and ties once. At the second
    look it is 11 errors ahead, which who had not been 6 ahead at the first would hardly be."""
    world, points = World(elo=(0, 0), n=140, dims=1), np.zeros((1, 140, 2))
    points[0, 20:, 1] = 0.5
    known = {"d": world.known(points)[0]}
    wave = plan_next_wave(
        {"d": world.comparisons}, known, BRADLEY_TERRY, n_looks=7, drop=True
    )
    (found,) = wave.resolutions
    assert (found.higher, found.look, found.one_sided) == ("e1", 2, False)
    seen = Battles.from_rows([*known["d"].values()][:40])
    (alone,) = differences(BRADLEY_TERRY.rate({"d": seen}))
    assert found.difference == pytest.approx(alone.difference, rel=1e-6)
    z = alone.difference / alone.std_error
    half = 1.96 / z * alone.difference
    assert found.ci_high - found.ci_low == pytest.approx(2 * half, rel=1e-3)


def test_without_dropping_all_pairs_of_a_dimension_go_on_together():
    wave = wave_of(known(0), drop=False)
    for dimension, some in wave.judged.items():
        reached = {r.n_prompts for r in wave.resolutions if r.dimension == dimension}
        assert len(some) == 3 * max(reached) and len(reached) == 1


# The design in the store


def test_a_design_counts_what_was_answered_before_it_and_one_look_what_others_looked_at(
    tmp_path,
):
    with Store(tmp_path / "store.sqlite") as store:
        assert count_queries_seen_before(store, ["a", "b"], None) == 0
        assert count_queries_seen_before(store, ["a", "b"], "first") == 0
        store.commit({"a": JudgeReply(key="a", text="A")})
        assert count_queries_seen_before(store, ["a", "b"], "first") == 0
        assert count_queries_seen_before(store, ["a", "b", "c"], "second") == 1
        assert count_queries_seen_before(store, ["a", "c"], None) == 1
        assert count_queries_seen_before(store, ["c"], None) == 0


# A run


def test_a_plan_shows_the_looks_and_the_expected_bill_by_gap():
    row = PlanRow(
        dimension="d", n_prompts=143, n_entrants=4, pairs=858, queries=858, stored=0,
        under_way=0, new=858, both_orders=0.0,
    )  # fmt: skip
    plan = Plan(judge_model="m", rows=(row, row, row))
    cells = looks_table(plan, 5, drop=False).splitlines()[4].split()
    assert cells[1:6] == ["29", "57", "86", "114", "143"]
    assert " ".join(cells[6:]) == "100% 0% 98% 25% 86% 81% 50% 100%"


RUN = (
    *QUICK,
    "judging.limit_pairs=null",
    "judging.looks=3",
    "rubric=[calibration]",
    "tracker=local",
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    return run(*RUN, folder=tmp_path_factory.mktemp("looks"))


@pytest.mark.system
def test_a_run_shows_what_was_resolved_when_and_what_was_saved(ran):
    ratings = ran.read("ratings.json")
    rows = ratings["judge"]["calibration"]["looks"]
    assert [row["n_prompts"] for row in rows] == [48, 95, 143][: len(rows)]
    pairs = ratings["differences"]["bradley_terry"]
    n_resolved = sum(pair["significant"] for pair in pairs)
    assert n_resolved == rows[-1]["n_resolved"]
    board = ratings["dimensions"]["calibration"]["bradley_terry"]["ratings"]
    n_worse = sum(row["rank_low"] - 1 for row in board)
    assert n_worse == sum(4 - row["rank_high"] for row in board) == n_resolved
    assert re.search(r"interim +calibration: .* pairs decided at 48, 95", ran.out)
    page = ran.page.text
    assert "planned comparisons: the interim analyses saved" in page
    assert "Each pair was judged on" in page


UNREADABLE_LATER = '''
from dataclasses import dataclass
from elo_exp.extending import Judge, JudgeReply

@dataclass(kw_only=True)
class Tiring(Judge):
    """Is asked for the comparisons of a wave at a time, and is of use in the first."""

    model: str
    n_waves: int = 0

    def answer(self, requests):
        self.n_waves += 1
        for request in requests:
            if self.n_waves == 1:
                yield request.reply("TIE")
            else:
                yield JudgeReply(key=request.key, text="No more.")
'''


@pytest.mark.system
def test_a_wave_without_a_verdict_does_not_stop_a_run(tmp_path, monkeypatch):
    (tmp_path / "tiring.py").write_text(UNREADABLE_LATER)
    (tmp_path / "conf/judge").mkdir(parents=True)
    judge = "_target_: tiring.Tiring\nmodel: tiring\n"
    (tmp_path / "conf/judge/tiring.yaml").write_text(judge)
    monkeypatch.syspath_prepend(tmp_path)
    words = ("--config-dir=conf", *RUN, "judge=tiring", "judging.max_invalid=1")
    ran = run(*words, folder=tmp_path)
    (quality,) = ran.read("manifest.json")["judge_quality"]
    assert 0 < quality["n_invalid"] < quality["n_judgments"]


@pytest.mark.system
def test_again_it_asks_nothing_and_another_design_is_exploratory(ran):
    again = run(*RUN, folder=ran.folder)
    assert "0 new from lexical" in again.err + again.out
    assert "exploratory" not in again.err + again.out
    assert again.read("ratings.json") == ran.read("ratings.json")
    for other in ("judging.looks=1", "judging.looks=4"):
        changed = run(*RUN, other, folder=ran.folder)
        assert "warning: exploratory: " in changed.err + changed.out
        conclusion = changed.read("ratings.json")["conclusions"]["calibration"]
        reason = next(r for r in conclusion["reasons"] if r["name"] == "exploratory")
        assert reason["value"] > 0 and reason["words"] in changed.page.said


@pytest.mark.system
def test_in_one_order_permutation_elo_is_not_computed(tmp_path):
    ran = run(*RUN, "judging.orders=one", folder=tmp_path)
    assert "not computed: after interim analyses it needs both orders" in ran.out
    assert ran.read("elo_results.json")["primary"] == {"calibration": {}}
    without = attempt(*RUN, "rating=[]", folder=tmp_path)
    assert without.code == 2
    assert "judging.looks=3 needs all opponents" in without.err


# The sixteen worlds


BILLS = {"gaps of 30 to 100": 0.50, "gaps of 100": 0.35}


@pytest.mark.slow
@pytest.mark.parametrize("orders", ["one", "both"])
@pytest.mark.parametrize("name", WORLDS)
def test_looks_err_and_cost_as_little_as_promised(name, orders):
    """At most .05 of tournaments have a wrong claim, and intervals cover the gap; two Monte Carlo errors are allowed."""
    n = 500 if "eight" in name else 2000
    error, calls, _, covered = study(WORLDS[name], n, orders)
    assert error <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / n)
    assert calls <= (BILLS.get(name, 0.5) if orders == "one" else 1.0)
    assert 0.92 <= covered <= 0.985


@pytest.mark.slow
@pytest.mark.parametrize("orders", ["one", "both"])
@pytest.mark.parametrize("name", UNBEATEN)
def test_looks_err_as_little_where_entrants_take_every_point(name, orders):
    """Bounds of one-sided pairs hold at whatever look testing stopped: nobody takes every point later that did not
    before. Two Monte Carlo errors are allowed."""
    n = 600
    error, holds, of = study_bounds(UNBEATEN[name], n, orders)
    print(f"{name}, {orders}: wrong claim {error:.3f}, {of} bounds hold {holds:.3f}")
    assert error <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / n)
    assert holds >= 0.96
