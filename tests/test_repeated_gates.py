"""Gates that are decided again after prompts were added: what is left of alpha, and how often they err."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from elo_exp.analysis.bounded_means import lower_bound, upper_bound
from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.analysis.conclusions.gate_conclusion import conclude
from elo_exp.analysis.noninferiority import PointShare, share_of_points
from elo_exp.analysis.repeated_gates import (
    CLAIMS,
    EarlierGateResult,
    EarlierGates,
    Evidence,
    adds_to,
    sum_up_earlier_gates,
)
from elo_exp.report.sentences import gate_sentences as words
from elo_exp.store.answer_store import Store
from elo_exp.store.looks import (
    StoredResult,
    list_earlier_results,
    record_looks,
    record_result,
)
from tests.stores import Place, place
from tests.test_gate import SEES

__all__ = ["place"]  # a fixture

ALPHA, MARGIN = 0.05, 0.1


def verdicts(n: int, of: str = "new") -> Evidence:
    return {f"q{i}": {f"{of} {i} ab", f"{of} {i} ba"} for i in range(n)}


def shown(
    n: int, *, alpha: float = ALPHA, claim: str | None = None, margin: float = MARGIN
) -> EarlierGateResult:
    alphas = dict.fromkeys(CLAIMS, alpha)
    return EarlierGateResult(
        verdicts=verdicts(n), alpha=alphas, margin=margin, claim=claim
    )


def test_prompts_and_verdicts_that_were_added_make_an_earlier_result_a_look():
    assert adds_to(verdicts(60), verdicts(20))
    assert not adds_to(verdicts(20), verdicts(20))  # the same verdicts, again
    assert not adds_to(verdicts(20), verdicts(60))  # fewer prompts
    assert not adds_to(verdicts(60), verdicts(20, of="other"))  # other answers
    moved = {name: some for name, some in verdicts(60).items() if name != "q3"}
    assert adds_to(moved, verdicts(20))  # a prompt was left out, and others added
    one_order = {name: {min(some)} for name, some in verdicts(20).items()}
    assert adds_to(verdicts(20), one_order)


def test_a_candidate_with_some_other_answers_is_another_candidate():
    """As in CI: a change of a prompt leaves most answers as they were."""
    changed = verdicts(20) | {"q0": {"x"}, "q1": {"y"}}
    assert not adds_to(changed, verdicts(20))


def test_all_results_together_use_alpha_once():
    first = sum_up_earlier_gates([shown(20)], verdicts(60), margin=MARGIN)
    assert (first.n_looks, first.claim_alpha("pass", ALPHA)) == (1, 0.0)
    assert first.claim_alpha("pass", 0.08) == pytest.approx(0.03)
    half = [shown(20, alpha=0.02), shown(40, alpha=0.01), shown(40, alpha=0.02)]
    later = sum_up_earlier_gates(half, verdicts(60), margin=MARGIN)
    assert (later.n_looks, later.claim_alpha("fail", ALPHA)) == (2, pytest.approx(0.01))
    assert sum_up_earlier_gates(
        [shown(60)], verdicts(60), margin=MARGIN
    ) == EarlierGates(spent=dict.fromkeys(CLAIMS, 0.0))


def test_a_claim_that_was_shown_may_be_shown_again():
    looks = sum_up_earlier_gates([shown(20, claim="pass")], verdicts(60), margin=MARGIN)
    assert [looks.claim_alpha(claim, ALPHA) for claim in CLAIMS] == [ALPHA, 0.0]
    narrower = sum_up_earlier_gates(
        [shown(20, claim="pass")], verdicts(60), margin=0.05
    )
    assert narrower.claim_alpha("pass", ALPHA) == 0.0


def concluded(share: PointShare, looks: EarlierGates) -> Conclusion:
    return conclude(
        [share],
        margin=MARGIN,
        candidate="new",
        baseline="main",
        scope=Scope(),
        checks={"d": [SEES]},
        earlier={"d": looks},
        alpha=ALPHA,
    )


def share_of(points: np.ndarray, alpha: float = ALPHA) -> PointShare:
    return share_of_points(
        np.c_[points, points],
        margin=MARGIN,
        alpha=alpha,
        dimension="d",
        n_dimensions=1,
    )


def test_without_alpha_a_gate_cannot_tell_and_says_which_alpha_decides():
    used = sum_up_earlier_gates([shown(20)], verdicts(60), margin=MARGIN)
    ties, losses = share_of(np.full(60, 0.5)), share_of(np.full(60, 0.1))
    for share, would in ((ties, "pass"), (losses, "fail")):
        assert concluded(share, EarlierGates()).state == would
        conclusion = concluded(share, used)
        assert (conclusion.state, conclusion.reasons[0].name) == ("cannot tell", "looked")  # fmt: skip
        said = words.verdict(conclusion)
        assert f"new would {would} by its bounds. But its result was shown once" in said
        assert "To decide again, set gate.alpha=0.1," in said
        again = replace(used, claims={would})
        assert concluded(share, again).state == would


def test_advice_to_add_prompts_names_the_alpha_that_they_take():
    share = share_of(np.repeat([0.0, 1.0], 15))
    said = words.verdict(concluded(share, EarlierGates()))
    assert "Set gate.alpha=0.1 then: this result has used 0.05." in said  # fmt: skip
    used = sum_up_earlier_gates([shown(20)], verdicts(30), margin=MARGIN)
    assert "gate.alpha=0.1" in words.verdict(concluded(share, used))


def test_a_store_keeps_the_results_of_a_subject_in_order(place: Place):
    one, two, other = (
        StoredResult(name=name, evidence={"n": name}, claim=claim)
        for name, claim in (("1", None), ("2", "pass"), ("3", "fail"))
    )
    with Store(place) as store:
        record_result(store, "gate d", one)
        record_result(store, "gate d", two)
        record_result(store, "gate e", other)
    with Store(place) as store:
        record_result(store, "gate d", replace(one, claim="fail"))  # stays as it was
        assert list_earlier_results(store, "gate d", "9") == [one, two]
        assert list_earlier_results(store, "gate d", "2") == [one]
        assert list_earlier_results(store, "gate d", "1") == []
        assert record_looks(store, []) == []


# Look, add, look again


@cache
def bounds(values: tuple[float, ...], counts: tuple[int, ...], alpha: float) -> tuple[float, float]:  # fmt: skip
    points = np.repeat(values, counts)
    return lower_bound(points, alpha=alpha), upper_bound(points, alpha=alpha)


def claimed(points: np.ndarray, claim: str, alpha: float) -> bool:
    """Whether the bounds of a gate show a claim."""
    values, counts = np.unique(points, return_counts=True)
    low, high = bounds(tuple(values.tolist()), tuple(counts.tolist()), alpha)
    is_pass = low > 0.5 - MARGIN
    return is_pass if claim == "pass" else high < 0.5 and not is_pass


def claims_of_looks(
    claim: str,
    share: float,
    looks: Sequence[int],
    alphas: Sequence[float],
    runs: int,
    world: str = "half",
    seed: int = 0,
) -> tuple[float, float]:
    """How often a gate claims this at any look, with nothing counted and by the rule.

    share   of points that the candidate truly has
    alphas  gate.alpha at each look
    world   half: half of the prompts are tied. steps: lost on a tenth, and else shares of four draws
    """
    rng = np.random.default_rng([seed, *looks])
    found = np.zeros(2)
    for _ in range(runs):
        if world == "half":
            u = rng.random(looks[-1])
            points = np.where(u < 0.5, 0.5, rng.random(looks[-1]) < share * 2 - 0.5)
        else:
            lost = rng.random(looks[-1]) < 0.1
            points = np.where(lost, 0.0, rng.binomial(4, share / 0.9, looks[-1]) / 4)
        is_uncounted, is_claimed = False, False
        past: list[EarlierGateResult] = []
        for n, alpha in zip(looks, alphas, strict=True):
            is_uncounted |= claimed(points[:n], claim, ALPHA)
            earlier = sum_up_earlier_gates(past, verdicts(n), margin=MARGIN)
            level = earlier.claim_alpha(claim, alpha)
            is_new = bool(level) and claimed(points[:n], claim, level)
            is_claimed |= is_new
            used = {name: earlier.alpha_left(name, alpha) for name in CLAIMS}
            past.append(replace(shown(n, claim=claim if is_new else None), alpha=used))
        found += is_uncounted, is_claimed
    uncounted, by_rule = (found / runs).tolist()
    return uncounted, by_rule


@pytest.mark.slow
@pytest.mark.parametrize("world", ["half", "steps"])
@pytest.mark.parametrize(
    ("looks", "alphas", "level"),
    [
        ((60, 120), (0.05, 0.05), 0.05),
        ((60, 120), (0.025, 0.05), 0.05),
        ((60, 120), (0.05, 0.1), 0.1),
        ((40, 80, 120, 160, 200), (0.05,) * 5, 0.05),
        ((40, 80, 120, 160, 200), (0.01, 0.02, 0.03, 0.04, 0.05), 0.05),
    ],
)
@pytest.mark.parametrize(("claim", "share"), [("pass", 0.4), ("fail", 0.5)])
def test_a_gate_errs_in_at_most_alpha_over_all_its_looks(
    looks: tuple[int, ...],
    alphas: tuple[float, ...],
    level: float,
    world: str,
    claim: str,
    share: float,
):
    runs = 1_000
    uncounted, by_rule = claims_of_looks(claim, share, looks, alphas, runs, world)
    print(f"{claim} {world} {looks} {alphas}: {uncounted:.3f} uncounted, {by_rule:.3f}")
    assert by_rule <= level + 3 * math.sqrt(level * (1 - level) / runs)
