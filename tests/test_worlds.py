"""What the rules of the headline achieve where the truth is known: tests/oracle_worlds.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from elo_exp.oracle.estimates import PolicyEstimate, analyse
from tests.oracle_simulation import OPTIONS, estimators
from tests.oracle_worlds import WORLDS

LABELS = (50, 100, 250)
BLIND = "the same style, poor overlap"  # to the judge, and too far off for the weights


def headlines(world: str, n_runs: int, *, n_own: int) -> list[PolicyEstimate]:
    chosen = estimators(["direct"])
    found = []
    for seed in range(n_runs):
        for n_labels in LABELS:
            data = WORLDS[world].draw(seed, n_labels=n_labels, n_own=n_own)
            found.append(analyse(data, chosen, OPTIONS).estimates[0])
    return found


def errors(estimates: Sequence[PolicyEstimate], truth: float) -> np.ndarray:
    return np.array([e.value - truth for e in estimates if e.value is not None])


def coverage(estimates: Sequence[PolicyEstimate], truth: float) -> float:
    within = [
        e.ci_low <= truth <= e.ci_high
        for e in estimates
        if e.ci_low is not None and e.ci_high is not None
    ]
    return float(np.mean(within))


def test_own_labels_make_every_headline_reportable_and_right():
    """Also where a score means something else, and where no weights can tell."""
    for world in ("medium overlap", BLIND, "far worse"):
        found, truth = headlines(world, 15, n_own=40), WORLDS[world].truth
        assert [e.status for e in found].count("report") >= 44, world
        assert coverage(found, truth) >= 0.85, world


def test_without_own_labels_a_policy_that_the_judge_misreads_is_never_reported():
    assert "report" not in {e.status for e in headlines(BLIND, 10, n_own=0)}
    assert {e.status for e in headlines("far worse", 10, n_own=0)} == {"refuse"}


@pytest.mark.slow
@pytest.mark.parametrize("n_own", [0, 40])
def test_headlines_that_are_reported_cover_in_every_world(n_own: int):
    """200 draws of each world at 50, 100 and 250 labels; figures in docs/oracle.md."""
    every, worst = [], {}
    for world, kind in WORLDS.items():
        found = [e for e in headlines(world, 200, n_own=n_own) if e.status == "report"]
        if n_own:
            assert len(found) >= 590, world
        if len(found) >= 100:
            worst[world] = coverage(found, kind.truth)
        every += errors(found, kind.truth).tolist()
    rmse = float(np.sqrt(np.mean(np.square(every))))
    print(n_own, len(every), rmse, worst)
    assert rmse < 0.0225
    assert min(worst.values()) >= 0.93
    assert np.mean(list(worst.values())) >= 0.95
