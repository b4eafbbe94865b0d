"""Which policies differ and what to label next, where the truth is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elo_exp.oracle.estimates import PolicyComparison
from tests.oracle_simulation import analysed
from tests.oracle_worlds import World, study

# One oracle, which dislikes a style; two policies that are worth nearly the same.
FIVE = {
    name: World(shift=shift, style=style, dislike=0.15)
    for name, shift, style in (
        ("best", 0.0, 0.0),
        ("near", 0.1, 0.2),
        ("styled", 0.3, 0.8),
        ("worse", -0.3, 0.0),
        ("good", 0.3, 0.5),
    )
}
APART = {"good": World(shift=0.6), "worse": World(shift=-0.6)}


def compared(
    worlds: dict[str, World], seed: int, *, n_own: int, n: int = 500
) -> PolicyComparison:
    data = study(worlds, seed, n_labels=250, n_own=n_own, n=n)
    return analysed(data, ["direct"]).comparison


def test_a_difference_is_that_of_the_two_values_and_narrower_than_both_intervals():
    """All prompts labelled, for both: mean labels, whose difference is paired by prompt."""
    data = study(APART, 1, n_labels=500, n_own=500, n=500)
    analysis = analysed(dataclasses.replace(data, target_logprob={}))
    (found,) = analysis.comparison.differences
    labels = {
        name: rows.label[np.argsort(rows.prompt)]
        for name, rows in data.probe_draws.items()
    }
    paired = labels["good"] - labels["worse"]
    names = found["a"], found["b"], found["rests_on"]
    assert names == ("good", "worse", "own labels")
    assert found["value"] == pytest.approx(paired.mean())
    std_error = paired.std(ddof=1) / np.sqrt(500)
    assert found["std_error"] == pytest.approx(std_error, rel=0.02)
    assert found["p_holm"] == found["p_value"] == 5e-5  # the least of bounds
    assert found["low"] <= found["ci_low"] < found["value"] - 1.9 * std_error


def test_one_best_policy_is_a_decision_and_a_borrowed_calibration_is_none():
    ready = compared(APART, 1, n_own=100).next_step
    assert (ready.decision_ready, ready.possible_best) == (True, ("good",))
    data = study(APART, 1, n_labels=250, n_own=0, n=500)
    borrowed = analysed(dataclasses.replace(data, target_logprob={})).comparison
    assert borrowed.choice.state == "unknown"
    step = borrowed.next_step
    assert (step.decision_ready, step.policies, step.n_labels) == (
        False,
        ("good", "worse"),
        20,
    )


def test_without_a_headline_nothing_is_compared():
    data = World(shift=3.2).draw(0, n_labels=100)
    found = analysed(dataclasses.replace(data, target_logprob={})).comparison
    assert (found.differences, found.ranking) == ([], [])
    assert found.next_step.policies == ("target",)


@pytest.mark.parametrize("n_runs", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_differences_and_the_best_policy_are_right_as_often_as_they_say(n_runs: int):
    truth = {name: world.truth for name, world in FIVE.items()}
    covered, at_once, wrong, kept = [], [], [], []
    for seed in range(n_runs):
        found = compared(FIVE, seed, n_own=40)
        true = [truth[d["a"]] - truth[d["b"]] for d in found.differences]
        pairs = list(zip(found.differences, true, strict=True))
        covered += [d["ci_low"] <= x <= d["ci_high"] for d, x in pairs]
        at_once.append(all(d["low"] <= x <= d["high"] for d, x in pairs))
        wrong.append(any(d["p_holm"] <= 0.05 and x * d["value"] <= 0 for d, x in pairs))
        kept.append("best" in found.next_step.possible_best)
    allowed = 3 * np.sqrt(0.05 * 0.95 / n_runs)
    assert np.mean(covered) >= 0.93
    assert np.mean(at_once) >= 0.95 - allowed
    assert np.mean(wrong) <= 0.05 + allowed
    assert np.mean(kept) >= 0.97 - allowed
