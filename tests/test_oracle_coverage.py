"""Whether the oracle experiment keeps its word: intervals that are reported cover, and what is biased is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from elo_exp.estimators import Estimator
from elo_exp.oracle.diagnostics import diagnose
from elo_exp.oracle.gates import REFUSE, decide
from tests.data import shipped
from tests.oracle_simulation import World, evidence_of

NAMES = ("ips", "snips", "calibrated_ips", "dr_cpo", "mrdr", "tmle", "stacked_dr", "direct")
RIGHT = [  # a score means the same for both policies
    World(judge=judge, labelled=labelled, shift=shift, style=style)
    for judge in ("linear", "curved")
    for shift, style in ((0.3, 0.3), (0.8, 1.2))  # good and poor overlap
    for labelled in (0.1, 0.25, 1.0)
]
HUMP = World(judge="hump", shift=0.8)  # no rising curve fits
MISFIT = [
    World(judge="hump", labelled=labelled, shift=shift, style=style)
    for shift, style in ((0.3, 0.3), (0.8, 1.2))
    for labelled in (0.1, 0.25, 1.0)
]
APART = World(shift=3.2)  # the logging policy has next to no answers as good as the target's
DISLIKED = World(dislike=0.2, style=2.0, n_probe=100)  # the judge overrates the target
CORRECTED = World(dislike=0.2, style=2.0, n_own=100)  # the same, with labels that correct


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Of one estimator over many draws of a world."""

    refused: float  # share
    bias: float
    half_width: float  # mean, of the 95 % interval
    coverage: float  # of the intervals that are not refused; NaN if all are


def shipped_estimators(names: Sequence[str] = NAMES) -> dict[str, Estimator]:
    return {name: shipped("estimator", name) for name in names}


def tallies(world: World, n_runs: int, names: Sequence[str] = NAMES) -> Mapping[str, Tally]:
    estimators = shipped_estimators(names)
    found: dict[str, list[tuple[bool, float, float]]] = {name: [] for name in names}
    for run in range(n_runs):
        data = world.draw(np.random.default_rng((run, world.n)))
        checks = diagnose(data, evidence_of(data), max_residual=0.05)
        for name, estimator in estimators.items():
            estimate = estimator.estimate(checks.evidence)
            status, _ = decide(checks, estimate, estimator.requires)
            found[name].append(
                (status == REFUSE, estimate.value - world.truth, estimate.half_width)
            )
    return {name: _tally(np.array(rows)) for name, rows in found.items()}


def _tally(rows: np.ndarray) -> Tally:
    refused, error, half_width = rows.T
    covers = (np.abs(error) <= half_width)[refused == 0]
    return Tally(
        refused=float(refused.mean()),
        bias=float(error.mean()),
        half_width=float(half_width.mean()),
        coverage=float(covers.mean()) if len(covers) else float("nan"),
    )


def show(world: World, found: Mapping[str, Tally]) -> None:
    print(f"\n{world}, truth {world.truth:.3f}")
    print(
        f"  {'estimator':<16}{'bias':>9}{'half width':>12}{'refused':>9}{'coverage of the others':>24}"
    )
    for name, t in found.items():
        print(
            f"  {name:<16}{t.bias:>+9.4f}{t.half_width:>12.4f}{t.refused:>9.1%}{t.coverage:>24.3f}"
        )


def test_the_truth_is_covered_by_direct_and_doubly_robust_intervals():
    """60 draws; 95 % of them cover, give or take 2.8 %, three times which is allowed."""
    found = tallies(World(), 60, ("dr_cpo", "direct"))
    assert all(t.coverage > 0.95 - 3 * 0.028 for t in found.values())
    assert all(abs(t.bias) < t.half_width / 3 for t in found.values())


def test_what_the_judge_overrates_is_refused_and_its_own_labels_correct_it():
    names = ("dr_cpo", "direct")
    refused = tallies(DISLIKED, 15, names)
    assert all(t.bias > 2 * t.half_width for t in refused.values())
    assert all(t.refused > 0.9 for t in refused.values())
    corrected = tallies(CORRECTED, 15, names)
    assert corrected["direct"].refused == 0
    assert abs(corrected["direct"].bias) < corrected["direct"].half_width / 2
    assert corrected["dr_cpo"].refused > 0.9


def test_a_policy_whose_answers_the_logs_do_not_hold_is_refused_by_every_estimator():
    assert all(t.refused == 1 for t in tallies(APART, 4).values())


def test_a_curve_that_cannot_fit_is_made_up_for():
    found = tallies(HUMP, 20, ("dr_cpo", "direct"))
    for t in found.values():
        assert t.refused < 0.3
        assert abs(t.bias) < t.half_width / 3
        assert t.coverage > 0.95 - 3 * math.sqrt(0.05 * 0.95 / 20)


def test_the_error_of_the_weights_counts_where_the_curve_cannot_fit():
    """Every answer has a label and the policies are far apart: weights that are off leave residuals behind."""
    found = tallies(World(judge="hump", labelled=1.0, shift=0.8, style=1.2), 60, ("dr_cpo",))
    assert found["dr_cpo"].coverage > 0.95 - 3 * 0.028


@pytest.mark.slow
@pytest.mark.parametrize("world", [*RIGHT, *MISFIT], ids=str)
def test_reported_intervals_cover_19_times_in_20(world: World):
    """In 93 to 97 % of the draws, as far as 800 of them tell; nothing is asked of what is refused nine times in ten."""
    n_runs = 800
    found = tallies(world, n_runs)
    show(world, found)
    for name, t in found.items():
        if t.refused < 0.9:
            noise = 2 * math.sqrt(0.05 * 0.95 / (n_runs * (1 - t.refused)))
            assert 0.93 - noise <= t.coverage <= 0.97 + noise, (name, t)


@pytest.mark.slow
@pytest.mark.parametrize("world", [HUMP, APART, DISLIKED, CORRECTED], ids=str)
def test_what_is_further_off_than_its_interval_is_refused(world: World):
    found = tallies(world, 300)
    show(world, found)
    for name, t in found.items():
        if abs(t.bias) > t.half_width:
            assert t.refused > 0.95, (name, t)
