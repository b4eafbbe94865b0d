"""What the rules of the headline achieve where the truth is known: tests/oracle_worlds.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from elo_exp.oracle.estimates import PolicyEstimate
from tests.held_out_worlds import HELD_OUT
from tests.held_out_worlds import LABELS as HELD_OUT_LABELS
from tests.oracle_simulation import analysed
from tests.oracle_worlds import WORLDS, World

LABELS = (50, 100, 250)
EVERY = {**WORLDS, **HELD_OUT}
BLIND = "the same style, poor overlap"  # to the judge, and too far off for the weights


def headlines(
    world: str, n_runs: int, *, n_own: int, labels: Sequence[int] = LABELS
) -> list[PolicyEstimate]:
    found = []
    for seed in range(n_runs):
        for n_labels in labels:
            data = EVERY[world].draw(seed, n_labels=n_labels, n_own=n_own)
            found.append(analysed(data, ["direct"]).estimates[0])
    return found


def off(estimates: Sequence[PolicyEstimate], truth: float) -> np.ndarray:
    """(2, n) errors of the values given, and whether their intervals cover."""
    found = [
        (e.value - truth, e.ci_low <= truth <= e.ci_high)
        for e in estimates
        if e.value is not None and e.ci_low is not None and e.ci_high is not None
    ]
    return np.reshape(found, (-1, 2)).T


@pytest.mark.parametrize(
    ("n_runs", "n_reported"), [(5, 14), pytest.param(15, 44, marks=pytest.mark.slow)]
)
def test_own_labels_make_every_headline_reportable_and_right(
    n_runs: int, n_reported: int
):
    """Also where a score means something else, and where no weights can tell."""
    for world in ("medium overlap", BLIND, "far worse"):
        found, truth = headlines(world, n_runs, n_own=40), WORLDS[world].truth
        assert [e.status for e in found].count("report") >= n_reported, world
        assert off(found, truth)[1].mean() >= 0.85, world


@pytest.mark.system
def test_without_own_labels_a_policy_that_the_judge_misreads_is_never_reported():
    assert "report" not in {e.status for e in headlines(BLIND, 10, n_own=0)}
    assert {e.status for e in headlines("far worse", 10, n_own=0)} == {"refuse"}


def test_few_pass_or_fail_labels_are_reported_with_caution():
    """Draws of few such labels whose interval is narrow are those that happen to vary little."""
    few = headlines("pass or fail", 20, n_own=0, labels=[60])
    assert "report" not in {e.status for e in few}
    assert all("(62 needed)" in e.reason for e in few if e.status == "caution")
    many = headlines("pass or fail", 10, n_own=0, labels=[150])
    assert [e.status for e in many].count("report") >= 9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("worlds", "labels", "n_runs", "n_own", "mean"),
    [
        (WORLDS, LABELS, 200, 0, 0.95),
        (WORLDS, LABELS, 200, 40, 0.95),
        # on which no rule was chosen
        (HELD_OUT, HELD_OUT_LABELS, 300, 0, 0.935),
        (HELD_OUT, HELD_OUT_LABELS, 300, 30, 0.935),
    ],
)
def test_headlines_that_are_reported_cover_in_every_world(
    worlds: Mapping[str, World],
    labels: Sequence[int],
    n_runs: int,
    n_own: int,
    mean: float,
):
    """At each number of labels so many draws; figures in docs/evidence.md."""
    every, covered = [], {}
    for world, kind in worlds.items():
        found = headlines(world, n_runs, n_own=n_own, labels=labels)
        reported = [e for e in found if e.status == "report"]
        if n_own and worlds is WORLDS:
            assert len(reported) >= 590, world
        errors, covers = off(reported, kind.truth)
        every += errors.tolist()
        if len(reported) >= 100:
            covered[world] = covers.mean()
        print(n_own, world, len(reported) / len(found), covered.get(world))
    rmse = float(np.sqrt(np.mean(np.square(every))))
    print(n_own, len(every), rmse, min(covered.values()), max(covered.values()))
    assert rmse < 0.0225 or worlds is HELD_OUT
    assert min(covered.values()) >= 0.92
    assert np.mean(list(covered.values())) >= mean
