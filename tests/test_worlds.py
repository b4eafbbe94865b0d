"""What the rules of the headline achieve where the truth is known: tests/oracle_worlds.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from elo_exp.oracle.estimates import PolicyEstimate, analyse
from tests.held_out_worlds import HELD_OUT
from tests.held_out_worlds import LABELS as HELD_OUT_LABELS
from tests.oracle_simulation import OPTIONS, estimators
from tests.oracle_worlds import WORLDS

LABELS = (50, 100, 250)
EVERY = {**WORLDS, **HELD_OUT}
BLIND = "the same style, poor overlap"  # to the judge, and too far off for the weights


def headlines(
    world: str, n_runs: int, *, n_own: int, labels: Sequence[int] = LABELS
) -> list[PolicyEstimate]:
    chosen = estimators(["direct"])
    found = []
    for seed in range(n_runs):
        for n_labels in labels:
            data = EVERY[world].draw(seed, n_labels=n_labels, n_own=n_own)
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


def test_few_pass_or_fail_labels_are_reported_with_caution():
    """Draws of few such labels whose interval is narrow are those that happen to vary little."""
    few = headlines("pass or fail", 20, n_own=0, labels=[60])
    assert "report" not in {e.status for e in few}
    assert all("(62 needed)" in e.reason for e in few if e.status == "caution")
    many = headlines("pass or fail", 10, n_own=0, labels=[150])
    assert [e.status for e in many].count("report") >= 9


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
    assert min(worst.values()) >= 0.92
    assert np.mean(list(worst.values())) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("n_own", [0, 30])
def test_headlines_cover_in_worlds_on_which_no_rule_was_chosen(n_own: int):
    """300 draws of each world at 60, 150 and 300 labels of 600; figures in docs/oracle.md."""
    every, covered = [], {}
    for world, kind in HELD_OUT.items():
        found = headlines(world, 300, n_own=n_own, labels=HELD_OUT_LABELS)
        reported = [e for e in found if e.status == "report"]
        every += errors(reported, kind.truth).tolist()
        if len(reported) >= 100:
            covered[world] = coverage(reported, kind.truth)
        rmse = float(np.sqrt(np.mean(errors(reported, kind.truth) ** 2)))
        share = len(reported) / len(found)
        print(n_own, world, f"{share:.3f} {covered.get(world, np.nan):.3f} {rmse:.4f}")
    print(n_own, len(every), float(np.sqrt(np.mean(np.square(every)))), covered)
    assert min(covered.values()) >= 0.92
    assert np.mean(list(covered.values())) >= 0.935
