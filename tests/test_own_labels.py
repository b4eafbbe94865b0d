"""Intervals of policies that rest on labels of their own: few labels, nearly all alike, tell little."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elo_exp.arrays import Array
from elo_exp.experiments.compare import _subtract_estimates
from elo_exp.oracle.data import Dataset, Rows
from elo_exp.oracle.estimates import PolicyEstimate
from elo_exp.report.oracle_files import build_json_files
from elo_exp.report.sentences.oracle_sentences import advice
from tests.oracle_simulation import analysed, answers, dataset, with_labels

GRADES = (1.0, 0.75, 0.5, 0.25, 0.0)


def drawn(fresh: dict[str, Rows]) -> Dataset:
    """Draws alone, one on each prompt."""
    first = next(iter(fresh.values()))
    data = dataset(first, {}, fresh_draws=fresh, probe_draws={})
    return dataclasses.replace(
        data,
        logging_policy=None,
        policies=tuple(fresh),
        logged_rows=first[:0],
        logging_logprob=np.empty(0),
    )


def headlines(data: Dataset) -> list[PolicyEstimate]:
    return [e for e in analysed(data, ["direct"]).estimates if e.headline]


def labelled(label: Array, n: int = 300) -> Rows:
    """The first answers have these labels; the judge gives all the same score."""
    whole = np.full(n, np.nan)
    whole[: len(label)] = label
    return answers(np.full(n, 0.9), whole, np.arange(n) % 5)


def test_twenty_of_twenty_right_say_83_to_100_percent():
    """By Clopper and Pearson .025^(1/20) = .832; there is no spread to take an error from."""
    rows = {"all": labelled(np.ones(20)), "half": labelled(np.arange(20) % 2)}
    first, half = headlines(drawn(rows))
    assert first.value == pytest.approx(1.0, abs=0.02)
    assert (first.ci_low, first.ci_high) == (pytest.approx(0.83, abs=0.02), 1.0)
    assert (half.ci_low, half.ci_high) == pytest.approx((0.27, 0.73), abs=0.02)


def test_a_value_off_the_scale_is_cut():
    """All its 25 labels are right, at scores that are a little low by chance: f of the rest comes on top."""
    score = np.tile(np.arange(20) / 20, 15)
    one = dataclasses.replace(labelled(np.ones(25)), score=score)
    other = dataclasses.replace(
        one, label=np.where(np.arange(300) < 100, 0.4 + 0.6 * score, np.nan)
    )
    analysis = analysed(drawn({"one": one, "other": other}), ["direct"])
    assert analysis.estimates_by_policy["one", "anchored"].value > 1.005
    e = analysis.estimates[0]
    assert (e.value, e.ci_high, e.status) == (1.0, 1.0, "report")
    assert analysis.comparison.ranking[0]["value"] == 1.0


def test_labels_at_low_scores_alone_are_refused():
    """25 labels at a score of .3, and 275 answers at .9 without one."""
    score = np.where(np.arange(300) < 25, 0.3, 0.9)
    one = dataclasses.replace(labelled(np.ones(25)), score=score)
    whole = labelled(np.ones(300))
    analysis = analysed(drawn({"one": one, "whole": whole}), ["direct"])
    e = analysis.estimates[0]
    assert (e.value, e.status) == (None, "refuse")
    assert e.reason.startswith(
        "the labels are not a random sample: the judge's scores of the 25 labelled answers and the 275 other answers "
        "of one differ (p < .001)"
    )
    assert analysis.list_estimates("whole")[0].status == "report"
    found = analysis.comparison
    assert (found.choice.state, found.next_step.policies) == ("unknown", ("one",))
    assert advice(found, 3).startswith("Label a random sample of the answers of one. ")


def test_two_runs_with_20_of_20_right_may_still_differ():
    """As within one run: 0 [-.17, .17], by Clopper and Pearson, and not 0 with an error of zero."""
    runs = []
    for _ in range(2):
        found = build_json_files(
            analysed(drawn({"one": labelled(np.ones(20))}), ["direct"])
        )
        runs.append((found["estimates.json"][0], found["influences.json"]["one"]))
    (before, a), (after, b) = runs
    row = _subtract_estimates(before, after, a, b)
    assert (row["difference"], row["difference_p_value"]) == (0.0, 1.0)
    ends = row["difference_ci_low"], row["difference_ci_high"]
    assert ends == pytest.approx((-0.17, 0.17), abs=0.01)
    without = {**a, "labels": None}, {**b, "labels": None}
    assert _subtract_estimates(before, after, *without)["difference_p_value"] is None


# Simulated


def few_fail(rng: np.random.Generator, kind: str) -> tuple[Array, float]:
    """Labels of 300 answers, most of which are right, and their expectation."""
    fails = rng.uniform(0.03, 0.08)
    if kind == "pass or fail":
        return (rng.random(300) >= fails).astype(float), 1 - fails
    if kind == "graded":
        chances = np.array([1 - fails, *(fails * np.array([0.5, 0.25, 0.15, 0.1]))])
        return rng.choice(GRADES, size=300, p=chances), float(chances @ GRADES)
    # held out: good or hopeless, seldom hopeless, and not quite alike
    hopeless = rng.random(300) < 2 * fails
    label = np.where(hopeless, rng.beta(1, 8, 300), rng.beta(30, 2, 300))
    return label, 2 * fails / 9 + (1 - 2 * fails) * 30 / 32


def policies(kind: str, seed: int, n_labels: int) -> tuple[Dataset, dict[str, float]]:
    """Four policies, labelled on the same prompts, and their true values."""
    rng = np.random.default_rng((seed, n_labels))
    fold, chosen = rng.permutation(300) % 5, rng.permutation(300)[:n_labels]
    fresh, truth = {}, {}
    for policy in "abcd":
        label, truth[policy] = few_fail(rng, kind)
        score = np.round(20 * np.clip(0.6 * label + 0.4 * rng.random(300), 0, 1)) / 20
        fresh[policy] = with_labels(answers(score, label, fold), chosen)
    return drawn(fresh), truth


@pytest.mark.slow
@pytest.mark.parametrize("n_labels", [20, 40])
@pytest.mark.parametrize("kind", ["pass or fail", "graded", "hopeless or good"])
def test_reported_intervals_of_policies_that_seldom_fail_cover(
    kind: str, n_labels: int
):
    """400 policies each (Monte Carlo error .02); the last world was not tuned on. Figures in docs/evidence.md."""
    all_cover, cover, width, top = [], [], [], 0.0
    for seed in range(100):
        data, truth = policies(kind, seed, n_labels)
        for e in headlines(data):
            if e.value is None or e.ci_low is None or e.ci_high is None:
                continue
            all_cover.append(e.ci_low <= truth[e.policy] <= e.ci_high)
            width.append(e.ci_high - e.ci_low)
            top = max(top, e.value, e.ci_high)
            if e.status == "report":
                cover.append(all_cover[-1])
    shares = (np.mean(all_cover), np.mean(cover), np.mean(width))
    print(kind, n_labels, len(all_cover), len(cover), *np.round(shares, 3))
    assert np.mean(cover) >= 0.95
    assert np.mean(all_cover) >= 0.95
    assert top <= 1.0
