"""next.json: which policy to take, or what to label; followed to its end, it says so and is right."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import ndtri

from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.conclusions.oracle_conclusion import DECIDED, conclude_choice
from elo_exp.arrays import Array
from elo_exp.oracle.data import Dataset, Rows
from elo_exp.oracle.estimates import PolicyComparison, Rival, count_labels_for_choice
from elo_exp.oracle.evidence import Estimate
from elo_exp.report.sentences.oracle_sentences import advice
from tests.oracle_simulation import analysed, answers, dataset, with_labels

N = 800  # prompts


# The table


def state(
    *,
    most_lost: float | None,
    unknown: Sequence[str] = (),
    untold: Sequence[str] = (),
    is_labelled: bool = False,
) -> str:
    best = ("a", "b") if most_lost else ("a",)
    return conclude_choice(
        ("a", "b", "c"),
        possible_best=best,
        unknown=unknown,
        untold=untold,
        most_lost=most_lost,
        tolerance=0.05,
        is_labelled=is_labelled,
        scope=Scope(),
    ).state


def test_a_policy_is_taken_where_it_is_best_near_the_best_or_all_is_labelled():
    assert state(most_lost=0.0) == "best"
    assert state(most_lost=0.05) == "near"
    assert state(most_lost=0.051) == "labels"
    assert state(most_lost=0.3, is_labelled=True) == "labelled"
    for lost, is_labelled in itertools.product((0.0, 0.05, 0.3), (False, True)):
        unsure = state(most_lost=lost, unknown=["d"], is_labelled=is_labelled)
        assert unsure == "unknown"
        assert unsure not in DECIDED
        unsure = state(most_lost=lost, untold=["d"], is_labelled=is_labelled)
        assert unsure == "prompts"
        assert unsure not in DECIDED
    assert state(most_lost=None) == "prompts"


# Policies on the same prompts


def labels_of(rng: np.random.Generator, mean: Array, kind: str) -> Array:
    if kind == "pass or fail":
        return (rng.random(len(mean)) < mean).astype(float)
    return np.clip(mean + 0.2 * rng.standard_normal(len(mean)), 0, 1)


@dataclasses.dataclass(frozen=True)
class Study:
    """Policies of these mean qualities answer 800 prompts; prompts are labelled in one order."""

    qualities: Sequence[float]
    seed: int
    kind: str = "continuous"

    def answers(self) -> tuple[dict[str, Rows], Array]:
        rng = np.random.default_rng(self.seed)
        shared, fold = rng.standard_normal(N), rng.permutation(N) % 5
        rows = {}
        for i, quality in enumerate(self.qualities):
            own = rng.standard_normal(N)
            mean = np.clip(quality + 0.16 * (0.6 * shared + 0.8 * own), 0, 1)
            seen = mean + 0.05 * rng.standard_normal(N)
            score = np.clip(np.round(20 * seen) / 20, 0, 1)
            rows[f"p{i}"] = answers(score, labels_of(rng, mean, self.kind), fold)
        return rows, rng.permutation(N)

    def truth(self) -> list[float]:
        rng = np.random.default_rng(0)
        deviation = 0.16 * rng.standard_normal(1_000_000)
        means = (np.clip(quality + deviation, 0, 1) for quality in self.qualities)
        return [float(labels_of(rng, mean, self.kind).mean()) for mean in means]

    def labelled(self, n_labels: dict[str, int]) -> Dataset:
        rows, order = self.answers()
        fresh = {p: with_labels(rows[p], order[:n]) for p, n in n_labels.items()}
        data = dataset(rows["p0"], {}, fresh_draws=fresh, probe_draws={})
        return dataclasses.replace(
            data,
            logging_policy=None,
            policies=tuple(fresh),
            logged_rows=rows["p0"][:0],
            logging_logprob=np.empty(0),
        )

    def follow(self, n_first: int = 30) -> list[PolicyComparison]:
        """Label what next.json asks for until it asks for no more; what was said in each round."""
        n_labels = {f"p{i}": n_first for i in range(len(self.qualities))}
        said: list[PolicyComparison] = []
        while len(said) < 12:
            found = analysed(self.labelled(n_labels), []).comparison
            said.append(found)
            if found.next_step.decision_ready:
                break
            assert found.next_step.n_labels is not None
            for policy in found.next_step.policies:
                n_labels[policy] = max(n_labels[policy], found.next_step.n_labels)
        return said


@pytest.mark.system
def test_labels_are_asked_for_all_that_may_be_best_and_grow_to_a_choice():
    """Three of four may be best; the same labels are counted by hand from the paired differences."""
    first, *_, last = Study((0.6, 0.6, 0.58, 0.2), seed=3).follow()
    step = first.next_step
    assert (step.decision_ready, step.choice, first.choice.state) == (
        False,
        None,
        "labels",
    )
    assert set(step.policies) == set(step.possible_best) == {"p0", "p1", "p2"}
    assert step.n_labels is not None
    assert 1.25 * 30 <= step.n_labels <= N
    names = f"{', '.join(step.policies[:-1])} and {step.policies[-1]}"
    assert advice(first, 3) == (
        f"Label {step.n_labels} answers of each of {names}, on the same prompts (30 are labelled now). In 4 of 5 cases, "
        "this is enough to choose."
    )
    chosen = last.next_step.choice
    assert chosen in ("p0", "p1", "p2")
    assert advice(last, 3).startswith(f"Choose {chosen}: ")
    assert last.next_step.most_lost is not None
    assert last.next_step.most_lost <= last.next_step.tolerance == 0.05


def test_the_number_of_labels_by_hand():
    """An error of 1 by one label that all comes from labels: n labels have an error of n^-1/2."""
    lead = Estimate(
        value=0.1,
        std_error=1.0,
        degrees_of_freedom=100.0,
        n=1,
        influence=np.ones(2),
        influence_labels=np.ones(2),
        std_error_labels=1.0,
        n_labels=1,
    )
    z = 0.8416  # the normal quantile at .8
    assert count_labels_for_choice([Rival(lead, 2.0, 0.0)], 0.05) == pytest.approx(
        ((2 + z) / 0.15) ** 2, 1e-4
    )
    z = float(ndtri(0.9))
    both = [
        Rival(lead, 2.0, 0.0),
        Rival(dataclasses.replace(lead, value=0.3), 2.0, 0.0),
    ]
    assert count_labels_for_choice(both, 0.05) == pytest.approx(((2 + z) / 0.15) ** 2)
    # bounds of a bounded mean reach 3 farther by one label, and 3 / n by n of them
    n = count_labels_for_choice([Rival(lead, 2.0, 3.0)], 0.05)
    assert (2 + 0.8416) / n**0.5 + 3 / n == pytest.approx(0.15, 1e-4)
    # labels without any spread: 20 of them may be .15 off, 60 a third of that
    alike = dataclasses.replace(
        lead, value=0.0, std_error=0.0, std_error_labels=0.0, n_labels=20
    )
    assert count_labels_for_choice([Rival(alike, 2.0, 0.15)], 0.05) == pytest.approx(60)


@pytest.mark.system
def test_where_all_is_labelled_the_first_is_taken_with_the_most_it_may_lose():
    study = Study((0.9, 0.9), seed=2, kind="pass or fail")
    whole = study.labelled({"p0": N, "p1": N})
    found = analysed(whole, [], tolerance=0.001).comparison
    step = found.next_step
    assert (step.decision_ready, found.choice.state) == (True, "labelled")
    assert step.most_lost is not None
    assert advice(found, 3) == (
        f"Choose {step.choice}: it is at most {step.most_lost:.3f} below the best, and every answer is labelled. "
        "To know more, use more prompts."
    )


def test_policies_with_equal_answers_and_labels_may_still_differ():
    """Equal scores and labels are not equal answers: 40 pairs of labels may be .09 off, by .025^(1/40)."""
    study = Study((0.6,), seed=1).labelled({"p0": 40})
    twice = {"p0": study.fresh_draws["p0"], "p1": study.fresh_draws["p0"]}
    both = dataclasses.replace(study, policies=("p0", "p1"), fresh_draws=twice)
    found = analysed(both, []).comparison
    (row,) = found.differences
    assert (row["value"], row["p_value"]) == (0.0, 1.0)
    assert row["high"] == pytest.approx(-row["low"])
    assert row["high"] == pytest.approx(found.next_step.most_lost)
    assert found.next_step.most_lost == pytest.approx(1 - 0.025 ** (1 / 40), abs=0.003)
    assert found.choice.state == "labels"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("qualities", "kind"),
    [
        ((0.6, 0.57, 0.5, 0.45), "continuous"),
        ((0.6, 0.6, 0.6, 0.6), "continuous"),
        # not tuned on: six policies, unevenly apart; labels that are pass or fail
        ((0.72, 0.70, 0.69, 0.6, 0.55, 0.3), "continuous"),
        ((0.95, 0.93, 0.9, 0.85), "pass or fail"),
    ],
)
def test_followed_it_ends_with_a_choice_that_loses_no_more_than_it_says(
    qualities: Sequence[float], kind: str
):
    """60 searches each; Monte Carlo errors are .06 at .05 and .10 at .8. Figures in docs/evidence.md."""
    truth = Study(qualities, 0, kind).truth()
    rounds, is_wrong, labels = [], [], []
    for seed in range(60):
        said = Study(qualities, seed, kind).follow()
        step = said[-1].next_step
        assert step.decision_ready and step.choice is not None
        assert step.most_lost is not None
        rounds.append(len(said) - 1)
        labels.append(max([30, *(s.next_step.n_labels or 0 for s in said)]))
        lost = max(truth) - truth[int(step.choice[1:])]
        is_wrong.append(lost > step.most_lost + 1e-3)  # of the truth's own error
    ready = np.mean([n <= 1 for n in rounds])
    print(
        kind,
        qualities,
        np.mean(rounds),
        max(rounds),
        ready,
        np.mean(is_wrong),
        np.mean(labels),
    )
    assert max(rounds) <= 6
    assert ready >= 0.75
    assert np.mean(is_wrong) <= 0.05
