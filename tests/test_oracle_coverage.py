"""Whether reported intervals cover the truth, and biased estimates are refused: simulations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from elo_exp.oracle.gates import REFUSE, decide
from tests.data import shipped
from tests.oracle_simulation import NAMES, ROBUST, World, checks_of

WORLDS = [  # a score means the same for both policies; for a hump no rising curve fits
    World(judge=judge, labelled=labelled, shift=shift, style=style)
    for judge in ("linear", "curved", "hump")
    for shift, style in ((0.3, 0.3), (0.8, 1.2))  # good and poor overlap
    for labelled in (0.1, 0.25, 1.0)
]
HUMP = World(judge="hump", shift=0.8)
APART = World(
    shift=3.2
)  # the logging policy has hardly any answers as good as the target's
DISLIKED = World(dislike=0.2, style=2.0, n_probe=100)  # the judge overrates the target
CORRECTED = World(
    dislike=0.2, style=2.0, n_own=100
)  # the same, with labels that correct


@dataclass(frozen=True, kw_only=True)
class Tally:
    """One estimator over many draws of a world."""

    refused: float  # share
    bias: float
    half_width: float  # mean, of the 95 % interval
    coverage: float  # of the intervals that are not refused; NaN if all are


def tallies(
    world: World, n_runs: int, names: Sequence[str] = NAMES
) -> Mapping[str, Tally]:
    """With weights by the score, whose formulas are tried where raw weights are refused."""
    simcal = {name: {"weights": "simcal"} for name in ROBUST}
    chosen = {
        name: shipped("estimator", name, **simcal.get(name, {})) for name in names
    }
    found: dict[str, list[tuple[bool, float, float]]] = {name: [] for name in names}
    for run in range(n_runs):
        data = world.draw(np.random.default_rng((run, world.n)))
        checks = checks_of(data)
        for name, estimator in chosen.items():
            estimate = estimator.estimate(checks)
            status, _ = decide(checks, estimate, estimator.requires)
            error = estimate.value - world.truth
            found[name].append((status == REFUSE, error, estimate.half_width))
    return {name: _tally(*np.array(rows).T) for name, rows in found.items()}


def _tally(refused: np.ndarray, error: np.ndarray, half_width: np.ndarray) -> Tally:
    covers = (np.abs(error) <= half_width)[refused == 0]
    return Tally(
        refused=float(refused.mean()),
        bias=float(error.mean()),
        half_width=float(half_width.mean()),
        coverage=float(covers.mean()) if len(covers) else math.nan,
    )


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_reported_intervals_cover_in_19_of_20_draws(world: World):
    """93 to 97 %, within the error of 800 draws; not of estimators refused nine times in ten."""
    n_runs = 800
    for name, t in tallies(world, n_runs).items():
        if t.refused < 0.9:
            noise = 2 * math.sqrt(0.05 * 0.95 / (n_runs * (1 - t.refused)))
            assert 0.93 - noise <= t.coverage <= 0.97 + noise, (name, t)


@pytest.mark.slow
@pytest.mark.parametrize("world", [HUMP, APART, DISLIKED, CORRECTED], ids=str)
def test_estimates_that_are_further_off_than_their_interval_are_refused(world: World):
    for name, t in tallies(world, 300).items():
        if abs(t.bias) > t.half_width:
            assert t.refused > 0.95, (name, t)
