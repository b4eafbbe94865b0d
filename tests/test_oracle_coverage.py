"""Whether reported intervals cover the truth, and biased estimates are refused: simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from elo_exp.oracle.gates import REFUSE, decide_status
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


def tallies(world: World, n_runs: int) -> dict[str, np.ndarray]:
    """Of each estimator (3, runs): whether it is refused, its error and its half-width.

    With weights by the score, whose formulas are tried where raw weights are refused.
    """
    simcal = {name: {"weights": "simcal"} for name in ROBUST}
    chosen = {
        name: shipped("estimator", name, **simcal.get(name, {})) for name in NAMES
    }
    found: dict[str, list[tuple[bool, float, float]]] = {name: [] for name in NAMES}
    for run in range(n_runs):
        checks = checks_of(world.draw(np.random.default_rng((run, world.n))))
        for name, estimator in chosen.items():
            estimate = estimator.estimate(checks)
            status, _ = decide_status(checks, estimate, estimator.requires)
            error = estimate.value - world.truth
            found[name].append((status == REFUSE, error, estimate.half_width))
    return {name: np.array(rows).T for name, rows in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_reported_intervals_cover_in_19_of_20_draws(world: World):
    """93 to 97%, within the error of 800 draws; not of estimators refused nine times in ten."""
    for name, (refused, error, half_width) in tallies(world, 800).items():
        if refused.mean() < 0.9:
            covers = (np.abs(error) <= half_width)[refused == 0]
            noise = 2 * math.sqrt(0.05 * 0.95 / len(covers))
            assert 0.93 - noise <= covers.mean() <= 0.97 + noise, name


@pytest.mark.slow
@pytest.mark.parametrize("world", [HUMP, APART, DISLIKED, CORRECTED], ids=str)
def test_estimates_that_are_further_off_than_their_interval_are_refused(world: World):
    for name, (refused, error, half_width) in tallies(world, 300).items():
        if abs(error.mean()) > half_width.mean():
            assert refused.mean() > 0.95, name
