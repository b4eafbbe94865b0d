"""experiment=gate: a candidate against the recorded answers of a baseline."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import binomtest
from statsmodels.stats.power import TTestPower

from elo_exp.analysis.checks import CANNOT_TELL, FAILED, NOT_DONE, PASSED, Check
from elo_exp.analysis.checks.audit_check import check_audit
from elo_exp.analysis.checks.control_check import control_check
from elo_exp.analysis.checks.kin_check import check_family
from elo_exp.analysis.checks.length_check import check_length_of_claim
from elo_exp.analysis.checks.responses_check import compare_odd_answers
from elo_exp.analysis.checks.same_verdict_check import same_verdict_check
from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.analysis.conclusions.gate_conclusion import (
    RubricResult,
    conclude,
    decide_rubric,
)
from elo_exp.analysis.families import JudgeFamily
from elo_exp.analysis.gate_checks import list_blocking_checks
from elo_exp.analysis.noninferiority import (
    PointShare,
    SlotPoints,
    decide_gate,
    order_points,
    pass_probability,
    point_range,
    prompt_points,
    prompts_to_pass,
    share_of_points,
)
from elo_exp.analysis.repeated_gates import EarlierGates
from elo_exp.data.battles import SCORES
from elo_exp.data.degraded_copies import control_comparisons
from elo_exp.data.pairing import reconcile
from elo_exp.experiments.gate import EXIT_CODE_BY_VERDICT
from elo_exp.experiments.gate_baseline import GateSettings
from elo_exp.files import read_jsonl, write_jsonl
from elo_exp.records import Comparison, Judgment
from elo_exp.report.sentences import gate_sentences as words
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import Shown, longer
from tests.commands import SCRIPTS, Ran, attempt, attempt_program, run
from tests.documented import blocks
from tests.gates import (
    BROKEN,
    judged_by,
    more_words,
    unread_of_nonsense,
    write_broken,
)
from tests.readers_machine import answered
from tests.simulation import Tournament, in_one_order
from tests.test_degrading import compared
from tests.test_pairs import COMPARISON, judged, verdict

SMALL = (
    "+mode.strata.medqa=30",
    "rubric=[factuality]",
    "tracker=local",
    "figures=false",
)


def share(points: np.ndarray, margin: float = 0.1, n_dimensions: int = 1) -> PointShare:
    """Of points (n,) of valid verdicts, or (n, 2): the least and the most."""
    ends = np.stack([points, points], 1) if points.ndim == 1 else points
    return share_of_points(
        ends, margin=margin, alpha=0.05, dimension="d", n_dimensions=n_dimensions
    )


def invalid(n_invalid: int, *points: float) -> PointShare:
    """The share of these points and of prompts without any valid verdict."""
    return share(np.array([[0.0, 1.0]] * n_invalid + [[p, p] for p in points]))


SEES = Check(name="control", state=PASSED, value=1.0, n=10, of=10)


def concluded(
    *shares: PointShare, margin: float = 0.1, checks: Sequence[Check] = (SEES,)
) -> Conclusion:
    return conclude(
        shares,
        margin=margin,
        candidate="broken",
        baseline="main",
        scope=Scope(),
        checks={one.dimension: checks for one in shares},
    )


def test_bounds_are_those_of_clopper_and_pearson_where_nothing_ties():
    """Of 30 prompts 18 are won: .6."""
    points = np.repeat([1.0, 0.0], [18, 12])
    found = share(points, n_dimensions=3)
    of_one = binomtest(18, 30, alternative="greater").proportion_ci(0.95)
    of_three = binomtest(18, 30, alternative="less").proportion_ci(1 - 0.05 / 3)
    assert found.share == 0.6
    assert found.low == pytest.approx(of_one.low, abs=0.003)
    assert found.high == pytest.approx(of_three.high, abs=0.004)
    assert (found.low_of_valid, found.high_of_valid) == (found.low, found.high)
    assert share(points[::2]).low is None  # of fewer than 20 prompts


# Invalid verdicts


def test_a_candidate_that_breaks_the_judge_does_not_pass():
    """Its answers are the baseline's own, but on 39 of 93 prompts no verdict on them can be read."""
    found = invalid(39, *[0.5] * 54)
    assert (found.n_prompts, found.n_invalid, found.share) == (93, 39, 0.5)
    assert found.low == pytest.approx(0.245, abs=0.003)
    assert found.low_of_valid == pytest.approx(0.473, abs=0.003)
    assert found.n_needed is None
    conclusion = concluded(found)
    assert conclusion.state == "cannot tell"
    assert words.verdict(conclusion) == (
        f"39 of 93 prompts (42%) have no valid verdict. If they count as lost, the win rate may be as low as "
        f"{found.low:.3f}. Without them, broken would pass."
    )
    assert concluded(invalid(0, *[0.5] * 54)).state == "pass"


def test_a_candidate_whose_losses_may_be_chance_of_invalid_verdicts_does_not_fail():
    conclusion = concluded(invalid(30, *[0.0] * 40, *[1.0] * 20))
    (reason,) = conclusion.reasons
    assert (conclusion.state, reason.about["would"]) == ("cannot tell", "fail")
    assert words.verdict(conclusion).endswith(" Without them, broken would fail.")
    assert concluded(invalid(0, *[0.0] * 40, *[1.0] * 20)).state == "fail"


def test_one_invalid_order_of_two_leaves_half_a_point_open():
    points = {
        orders: point_range(judged(*orders))
        for orders in product(("A", "B", "TIE", "INVALID"), repeat=2)
    }
    assert points["A", "B"] == (1.0, 1.0)
    assert points["A", "A"] == (0.5, 0.5)  # the first shown, twice
    assert points["A", "INVALID"] == (0.5, 1.0)
    assert points["INVALID", "A"] == (0.0, 0.5)
    assert points["TIE", "INVALID"] == (0.25, 0.75)
    assert points["INVALID", "INVALID"] == (0.0, 1.0)


def test_more_prompts_help_only_where_few_verdicts_are_invalid():
    """Seven in 67 take .05 from an equal candidate's share: half of the margin."""
    even = [0.0, 1.0] * 30
    few, none = invalid(7, *even), invalid(0, *even)
    assert few.n_needed is not None and none.n_needed is not None
    assert few.n_needed > 3 * none.n_needed
    (reason,) = concluded(few).reasons
    assert (reason.name, reason.value) == ("power", few.n_needed)
    hopeless = concluded(invalid(30, *[0.0, 1.0] * 10))
    assert words.verdict(hopeless).endswith(
        "With so many, no number of prompts lets an equal candidate pass."
    )


def test_of_several_dimensions_the_sentence_names_the_one_with_invalid_verdicts():
    ties = invalid(0, *[0.5] * 93)
    broken = replace(invalid(39, *[0.5] * 54), dimension="calibration")
    text = words.verdict(concluded(ties, broken))
    assert text.startswith("On calibration, 39 of 93 prompts (42%)")


def test_a_margin_in_elo_points_is_one_of_the_share_of_points():
    settings = GateSettings(
        baseline="",
        margin=0.1,
        margin_elo=20,
        alpha=0.05,
        control=True,
        comment=None,
    )
    assert settings.margin == pytest.approx(0.02875, abs=1e-5)


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [
        ([(0.41, 0.6), (0.45, 0.49)], "pass"),
        ([(0.39, 0.6), (0.45, 0.6)], "cannot tell"),
        ([(0.39, 0.6), (0.35, 0.49)], "fail"),
        ([(0.45, 0.6), (None, None)], "cannot tell"),
    ],
)
def test_every_dimension_has_to_pass_and_one_suffices_to_fail(
    bounds: list[tuple[float | None, float | None]], verdict: str
):
    shares = [
        PointShare(dimension="d", n_prompts=30, low=low, high=high)
        for low, high in bounds
    ]
    assert decide_gate(shares, margin=0.1) == verdict


@pytest.mark.parametrize(("n", "sd", "margin"), [(90, 0.378, 0.1), (143, 0.5, 0.05)])
def test_statsmodels_finds_the_same_chance_to_pass(n: int, sd: float, margin: float):
    left = margin - 1 / (2 * (n + 1))  # one more prompt, lost outright
    expected = TTestPower().power(left / sd, n, 0.05, alternative="larger")
    assert pass_probability(n, sd, margin, 0.05) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("sd", "margin"), [(0.37, 0.1), (0.45, 0.05), (0.0, 0.05)])
def test_prompts_needed_are_the_fewest_that_have_the_power(sd: float, margin: float):
    n = prompts_to_pass(sd, margin, 0.05)
    assert n is not None and pass_probability(n, sd, margin, 0.05) >= 0.8
    assert pass_probability(n - 1, sd, margin, 0.05) < 0.8
    assert share(np.full(n, 0.5), margin).low > 0.5 - margin  # as many ties pass
    assert prompts_to_pass(sd, 0.0, 0.05) is None


# Could the judge have seen a worse candidate?


@pytest.mark.parametrize(
    ("lost", "missing", "state"),
    [
        (10, 0, PASSED),
        (9, 1, PASSED),
        (8, 0, FAILED),
        (8, 1, CANNOT_TELL),
        (0, 10, NOT_DONE),
    ],
)
def test_a_pass_takes_a_control_that_the_judge_passed(
    lost: int, missing: int, state: str
):
    controls = control_comparisons(map(compared, range(10)))
    verdicts = ["BA"] * lost + ["AA"] * (10 - lost - missing)
    judgments = [judgment(letters, controls[0]) for letters in verdicts]
    check = control_check(controls, judgments)
    assert (check.state, check.n, check.of) == (state, lost, 10 - missing)
    conclusion = concluded(invalid(0, *[0.5] * 93), checks=[check_why(check)])
    assert conclusion.state == ("pass" if state == PASSED else "cannot tell")


def check_why(check: Check) -> Check:
    return replace(check, about={**(check.about or {}), "why": "not stored"})


def judgment(letters: str, comparison: Comparison = COMPARISON) -> Judgment:
    """Of one or both orders, each letter in the positions that the judge saw: A, B, T a tie, X none."""
    named = {"A": "A", "B": "B", "T": "TIE", "X": "INVALID"}
    return reconcile(
        comparison,
        [
            verdict(named[letter], position_swap=bool(i))
            for i, letter in enumerate(letters)
        ],
    )


def slots_of(*orders: str) -> dict[tuple[str, int], SlotPoints]:
    return {(f"q{i}", 0): order_points(judgment(two)) for i, two in enumerate(orders)}


def test_orders_that_disagree_count_as_much_as_the_margin_leaves():
    points, floor = prompt_points(slots_of("AB", "AA", "AT", "BA"), margin=0.1)
    assert [one.known for one in points.values()] == [1.0, 0.5, 0.75, 0.0]
    assert [one.penalized for one in points.values()] == pytest.approx(
        [1.0, 0.4, 0.7, 0.0]
    )
    assert floor == 0.0


def test_of_comparisons_in_both_orders_the_share_stands_for_all():
    """One of four is judged in both, and disagrees: four disagreements."""
    points, floor = prompt_points(slots_of("A", "AA", "B", "A"), margin=0.1)
    assert points["q1"].penalized == pytest.approx(0.5 - 4 * 0.1)
    assert [points[q].penalized for q in ("q0", "q2", "q3")] == [1.0, 0.0, 1.0]
    assert floor == 0.0
    points, _ = prompt_points(slots_of("A", "B"), margin=0.1)
    assert [one.penalized for one in points.values()] == [None, None]


def test_an_unknown_verdict_counts_no_more_than_any_verdict_would():
    for known, unknown in [("AX", "A"), ("TX", "T"), ("BX", "B"), ("XX", "")]:
        (point,) = prompt_points(slots_of(known), 0.1)[0].values()
        ends = [
            prompt_points(slots_of(f"{a}{b}"), 0.1)[0]["q0"]
            for a in (unknown or "ABT")
            for b in "ABT"
        ]
        assert point.known is None
        assert point.lowest == min(one.lowest for one in ends)
        assert point.penalized == min(one.penalized for one in ends)
        assert point.highest == max(one.highest for one in ends)


def test_prompts_needed_never_fall_when_more_replies_are_forced_to_the_first_answer():
    """They fell from 129 to 20 when disagreement counted as a tie."""
    rng = np.random.default_rng(5)
    wins, draws = rng.random(3_000) < 0.5, rng.random((3_000, 2))
    needed = []
    for forced in (0.0, 0.2, 0.5, 0.7, 1.0):
        orders = [
            ("A" if ab < forced or win else "B")
            + ("A" if ba < forced or not win else "B")
            for win, (ab, ba) in zip(wins, draws, strict=True)
        ]
        points, _ = prompt_points(slots_of(*orders), 0.1)
        share = share_of_points(
            [*points.values()], margin=0.1, alpha=0.05, dimension="d", n_dimensions=1
        )
        needed.append(share.n_needed or math.inf)
    assert needed == sorted(needed)
    assert needed[-1] == math.inf


def test_prompts_that_belong_together_are_one_observation():
    points = np.repeat([1.0, 0.0], [36, 24])
    of_groups = share_of_points(
        np.stack([points, points], 1), margin=0.1, alpha=0.05, dimension="d",
        n_dimensions=1, clusters=[f"g{i // 2}" for i in range(60)],
    )  # fmt: skip
    assert (of_groups.n_prompts, of_groups.n_clusters) == (60, 30)
    alone = share(points[::2])
    assert (of_groups.share, of_groups.low) == (alone.share, alone.low)
    few = share_of_points(
        np.stack([points, points], 1), margin=0.1, alpha=0.05, dimension="d",
        n_dimensions=1, clusters=[f"g{i // 4}" for i in range(60)],
    )  # fmt: skip
    assert few.low is None
    assert words.verdict(concluded(few)).endswith(
        "A result needs at least 20 prompts on each rubric. These 60 prompts form 15 groups."
    )


def test_a_judge_that_gives_one_verdict_has_compared_nothing():
    always_a = [judgment("AA")] * 60
    check = same_verdict_check(always_a, sees_control=True)
    assert (check.state, check.n, check.of) == (FAILED, 60, 60)
    said = words.verdict(concluded(invalid(0, *[0.5] * 93), checks=[SEES, check]))
    assert (
        said == "No result: the judge chose the first answer in 60 of 60 comparisons."
    )
    ties = [judgment("TT")] * 60
    assert same_verdict_check(ties, sees_control=False).state == FAILED
    assert same_verdict_check(ties, sees_control=True).state == PASSED


def points_by_length(
    effect: float, mean: float, n: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Points of an equal candidate, whose answers are so many sd longer, with a judge of such an effect of length."""
    rng = np.random.default_rng(seed)
    difference = rng.normal(mean, 1.0, n) * 100
    chance = 0.5 + effect * np.tanh(difference / np.sqrt((difference**2).mean()))
    return (rng.random(n) < chance).astype(float), difference


@pytest.mark.parametrize(
    ("effect", "mean", "states"),
    [
        (0.0, 0.0, {PASSED}),
        (0.3, 0.0, {PASSED}),  # a preference that favours nobody
        (0.4, 1.5, {FAILED, CANNOT_TELL}),  # all of the share is length
        (0.0, 8.0, {CANNOT_TELL}),  # every answer is longer: nobody can tell
    ],
)
def test_length_stands_against_a_pass_that_it_could_have_made(
    effect: float, mean: float, states: set[str]
):
    points, difference = points_by_length(effect, mean, 150)
    check = check_length_of_claim(
        points, difference, np.arange(150), margin=0.1, alpha=0.05, mean_length=1_000
    )
    assert check.state in states
    assert bool(list_blocking_checks([check])) is (check.state != PASSED)


def test_length_that_never_varies_cannot_be_told_from_the_candidate():
    points = np.repeat([0.0, 1.0], 20)
    of_length = partial(
        check_length_of_claim, points, clusters=np.arange(40), margin=0.1, alpha=0.05
    )
    check = of_length(difference=np.full(40, 30.0), mean_length=500)
    assert (check.state, check.value) == (CANNOT_TELL, None)
    assert of_length(difference=np.full(40, 30.0), mean_length=700).state == PASSED
    assert of_length(difference=np.zeros(40), mean_length=500).state == PASSED


def test_unusual_answers_stand_against_the_candidate_unless_the_baseline_has_them_too():
    row = {"model": "new", "flags": ["short"], "short": 0.3}
    normal = {"model": "baseline", "flags": []}
    assert compare_odd_answers(row, normal).state == FAILED
    assert compare_odd_answers(row, row).state == PASSED
    text = words.verdict(
        concluded(
            invalid(0, *[0.5] * 93), checks=[SEES, compare_odd_answers(row, normal)]
        )
    )
    assert text.endswith("broken's answers are unusual, and the baseline's are not: under three words in 30%.")  # fmt: skip


def test_a_judge_of_the_candidates_family_passes_it_only_if_that_is_allowed():
    own = JudgeFamily(family="Anthropic", models=("new",), others=("baseline",))
    both = JudgeFamily(family="Anthropic", models=("new", "baseline"))

    def state(kin: JudgeFamily, **known: bool) -> str:
        told = {"is_known": True, "is_unbiased": False} | known
        return check_family(kin, candidate="new", baseline="baseline", **told).state

    assert state(own) == FAILED
    assert state(own, is_unbiased=True) == state(both) == PASSED
    assert state(own, is_known=False) == NOT_DONE


def failed(*dimensions: str, blocked: Mapping[str, Check]) -> Conclusion:
    shares = [replace(invalid(0, *[0.0] * 40), dimension=name) for name in dimensions]
    return conclude(
        shares,
        margin=0.1,
        candidate="new",
        baseline="main",
        scope=Scope(),
        checks={name: [SEES] for name in dimensions},
        checks_of_fail={name: [check] for name, check in blocked.items()},
    )


BLIND = Check(name="control", state=FAILED, value=0.1, n=1, of=10)
LONG = Check(name="length", state=CANNOT_TELL)
KIN = Check(name="kin", state=FAILED, about={"family": "Anthropic"})
AS_GOOD = PointShare(dimension="d", n_prompts=93, share=0.5, low=0.45, high=0.55)
WORSE = replace(AS_GOOD, share=0.3, low=0.25, high=0.35)


@pytest.mark.parametrize(
    ("share", "checks", "n_earlier", "result", "said"),
    [
        (AS_GOOD, [SEES], 0, "pass", "pass"),
        (AS_GOOD, [BLIND, LONG], 0, "cannot tell", "inconclusive (control and length)"),
        (AS_GOOD, [SEES], 1, "cannot tell", "inconclusive (no alpha left)"),
        (replace(AS_GOOD, low=0.39), [SEES], 0, "cannot tell", "inconclusive"),
        (replace(AS_GOOD, n_prompts=19), [SEES], 0, "cannot tell", "inconclusive (under 20 prompts)"),
        (WORSE, [], 0, "fail", "worse than the baseline"),
        (WORSE, [LONG], 0, "fail", "loses (length may explain it)"),
        (WORSE, [KIN], 0, "cannot tell", "inconclusive (same model family)"),
        (WORSE, [], 1, "cannot tell", "inconclusive (no alpha left)"),
    ],
)  # fmt: skip
def test_each_rubric_has_a_result_with_the_checks_that_limit_it(
    share: PointShare, checks: list[Check], n_earlier: int, result: str, said: str
):
    spent = {"pass": 0.05, "fail": 0.05}
    found = decide_rubric(
        share,
        margin=0.1,
        checks=checks,
        checks_of_fail=checks,
        earlier=EarlierGates(n_looks=1, spent=spent) if n_earlier else None,
        alpha=0.05,
    )
    assert isinstance(found, RubricResult)
    assert (found.state, words.describe_result(found)) == (result, said)


def test_a_fail_takes_a_judge_that_does_not_favour_the_baseline():
    own = JudgeFamily(family="Anthropic", models=("baseline",), others=("new",))
    told = {"candidate": "baseline", "baseline": "new", "is_unbiased": False}
    kin = check_family(own, is_known=True, **told)
    obeys = check_audit({"results": [{"probe": "injection", "verdict": "biased"}]})
    for check, said in (
        (kin, "The baseline is of the judge's model family (Anthropic)"),
        (obeys, "An audit found the judge biased (injection)."),
    ):
        conclusion = failed("d", blocked={"d": check})
        assert conclusion.state == "cannot tell"
        assert said in words.verdict(conclusion)
        one_of_two = failed("d", "e", blocked={"d": check})
        assert (one_of_two.state, one_of_two.others) == ("fail", ("e",))
    unknown = check_family(own, is_known=False, **told)
    assert failed("d", blocked={"d": unknown}).state == "fail"


def test_a_fail_that_length_or_odd_answers_could_explain_says_so():
    """The candidate still fails: a fail that is wrong costs a second look, and a wrong pass a merge."""
    points, difference = points_by_length(0.45, -1.5, 150)
    of_length = partial(
        check_length_of_claim,
        points,
        difference,
        np.arange(150),
        margin=0.1,
        alpha=0.05,
        mean_length=1_000,
        is_of_fail=True,
    )
    length = of_length()
    assert length.state in (FAILED, CANNOT_TELL)
    flagged = {"model": "baseline", "flags": ["short"], "short": 0.3}
    odd = compare_odd_answers(flagged, {"model": "new", "flags": []})
    for check, said in (
        (length, "new's answers are shorter, and "),
        (odd, "The baseline's answers are unusual, and new's are not"),
    ):
        conclusion = failed("d", blocked={"d": check})
        assert (conclusion.state, conclusion.reasons[0].name) == ("fail", check.name)
        assert f"could explain the loss. {said}" in words.verdict(conclusion)
        clear = failed("d", "e", blocked={"d": check})  # the other dimension decides
        assert (clear.others, clear.reasons) == (("e",), ())
    assert "On d, the baseline's" in words.verdict(
        failed("d", "e", blocked={"d": odd, "e": length})
    )


def test_a_loss_that_holds_at_equal_length_is_a_plain_fail():
    points, difference = points_by_length(0.0, -0.5, 300, seed=1)
    lost = np.minimum(points, np.random.default_rng(2).random(300) < 0.4)
    check = check_length_of_claim(
        lost,
        difference,
        np.arange(300),
        margin=0.1,
        alpha=0.05,
        mean_length=1_000,
        is_of_fail=True,
    )
    assert check.state == PASSED
    assert failed("d", blocked={"d": check}).reasons == ()


@pytest.mark.system
def test_a_judge_of_the_baselines_family_fails_no_candidate_of_another(folder: Path):
    kin = ("+judging.families.lexical=Mine", "+judging.families.probe_hedged=Mine")
    failing = ("entrant=probe_swapped", "tracker=local")
    assert gate(*failing, folder=folder).code == 1
    ran = gate(*failing, *kin, folder=folder)
    assert ran.code == 3, ran.err
    assert "The baseline is of the judge's model family (Mine)" in " ".join(
        ran.out.split()
    )
    assert gate(*failing, *kin, "judging.self_judging=allow", folder=folder).code == 1


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tournament of all probes, and a gate that the hedged one passes against itself."""
    folder = tmp_path_factory.mktemp("gate")
    run(*SMALL, "elo.n_perms=5", "hydra.run.dir=four", folder=folder)
    hedged = "gate.baseline=four/responses/responses_probe_hedged.jsonl"
    given = ("experiment=gate", *SMALL, "entrant=probe_hedged", hedged)
    run(*given, "hydra.run.dir=baselines/main", folder=folder)
    row = '{"prompt_id": "p", "source": "medqa", "subject": "s", "text": "Why?"}\n'
    (folder / "bank.jsonl").write_text(row, encoding="utf-8")
    return folder


def gate(*given: str, folder: Path) -> Ran:
    """Against the candidate of an earlier gate, by its folder."""
    main = ("experiment=gate", *SMALL, "gate.baseline=baselines/main")
    return attempt(*main, *given, folder=folder)


@pytest.mark.system
@pytest.mark.parametrize(
    ("given", "code", "verdict"),
    [
        (("entrant=probe_reference",), 0, "pass"),
        (("entrant=probe_swapped",), 1, "fail"),
        (
            ("entrant=probe_swapped", "judging.limit_pairs=10", "gate.comment=pr.md"),
            3,
            "cannot tell",
        ),
    ],
)
def test_the_exit_code_is_the_verdict(
    given: tuple[str, ...], code: int, verdict: str, folder: Path
):
    ran = gate(*given, folder=folder)
    assert ran.code == code, ran.err
    comment = (ran.run_dir / "gate.md").read_text(encoding="utf-8")
    titles = {
        "pass": "Gate passed by word overlap: ",
        "fail": "Gate failed by word overlap: ",
        "cannot tell": "Inconclusive by word overlap: ",
    }
    assert comment.startswith(f"## {titles[verdict]}")
    assert f"{comment.splitlines()[0].removeprefix('## ')}\n\n" in ran.out
    assert "|" not in ran.out  # no Markdown
    named = [folder / "pr.md"] if "gate.comment=pr.md" in given else []
    assert [path.read_text(encoding="utf-8") for path in named] == [comment] * len(
        named
    )
    assert [*folder.glob("*.md")] == named  # nothing is written that was not asked for
    assert "\nPrompts with the largest losses:\n" in comment
    assert "Judge audit: not done" in comment
    assert ("at least 20 prompts" in comment) == (code == 3)
    found = ran.read("gate.json")
    assert found["verdict"] == verdict
    assert found["conclusion"]["is_checked"]  # both orders were judged
    page = ran.page.text
    assert f"<h1>{titles[verdict]}" in page


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            "gate.baseline=four",
            "four has those of 4. Choose one:\n  gate.baseline=four/responses/",
        ),
        ("entrant=[]", "one candidate besides the baseline; got none."),
        ("prompts.bank_path=bank.jsonl", "another bank (bank.jsonl)"),
        ("rubric=[calibration]", "another rubric calibration"),
        ("rubric=Is it kind?", "rubric is_it_kind (a text). Use the prompts"),
    ],
)
def test_what_cannot_be_compared_is_refused(given: str, words: str, folder: Path):
    ran = gate("entrant=probe_partial", given, "plan=true", folder=folder)
    assert ran.code == 2 and words in ran.err


def test_a_plan_gives_the_chance_that_an_equal_candidate_passes(folder: Path):
    """If the judge disagrees with itself as in the simulations of the planner, which takes a third of the margin."""
    ran = gate("entrant=probe_partial", "plan=true", folder=folder)
    two_equals = Tournament(ratings=(0.0, 0.0)).columns(
        50_000, np.random.default_rng(0)
    )
    ab, ba = (SCORES[v] for v in (two_equals.verdict_ab, two_equals.verdict_ba))
    counted = (ab + ba) / 2 - 0.1 * abs(ab - ba)
    chance = pass_probability(30, counted.std(), counted.mean() - 0.4, 0.05)
    assert int(re.search(r"passes: (\d+)%", ran.out)[1]) / 100 == pytest.approx(chance, abs=0.015)  # fmt: skip
    assert "216 prompts give 80%" in ran.out


@pytest.mark.system
@pytest.mark.parametrize(
    ("n_broken", "code", "verdict"), [(0, 0, "same answers"), (12, 3, "cannot tell")]
)
def test_a_candidate_that_breaks_the_replies_of_a_judge_exits_3(
    n_broken: int, code: int, verdict: str, folder: Path
):
    """The judge is one on the wire: what it says of nonsense has no verdict in it."""
    baseline = folder / "four/responses/responses_probe_hedged.jsonl"
    write_broken(baseline, folder / "broken.jsonl", n_broken=n_broken)
    with AnthropicServer(verdicts=unread_of_nonsense) as server:
        ran = attempt(
            *("experiment=gate", *SMALL, *BROKEN, *judged_by(server)),
            "judging.canary=0",  # more of its first replies are unreadable than not
            "gate.baseline=four/responses/responses_probe_hedged.jsonl",
            folder=folder,
            ANTHROPIC_API_KEY=server.key,
        )
    assert ran.code == code, ran.err
    found = ran.read("gate.json")
    (row,) = found["dimensions"]
    said = found["conclusion"]["sentence"]
    assert (found["verdict"], found["conclusion"]["state"]) == (verdict, verdict)
    assert (row["n_prompts"], row["n_invalid"], row["share"]) == (30, n_broken, 0.5)
    comment = (ran.run_dir / "gate.md").read_text(encoding="utf-8")
    assert comment.splitlines()[-1] == found["whose"]
    assert f"\n{said}\n" in comment and said in ran.page.said
    log = (ran.run_dir / "tracker/log.jsonl").read_text(encoding="utf-8")
    assert f'"gate/sentence": "{said}"' in log
    assert f'"gate/passed": {float(verdict == "pass")}' in log
    assert ("have no valid verdict" in said) == bool(n_broken)


@pytest.mark.system
def test_a_candidate_with_the_baselines_answers_is_no_worse_and_takes_no_judge(
    folder: Path,
):
    """A change without effect on the answers is common in CI: it costs nothing, and says so. Nor is a plan of it one."""
    baseline = folder / "four/responses/responses_probe_hedged.jsonl"
    write_broken(baseline, folder / "broken.jsonl", n_broken=0)
    with AnthropicServer(verdicts=unread_of_nonsense) as server:
        given = ("experiment=gate", *SMALL, *BROKEN, *judged_by(server))
        given = (*given, f"gate.baseline={baseline.relative_to(folder)}")
        plan, ran = (
            attempt(*given, *words, folder=folder, ANTHROPIC_API_KEY=server.key)
            for words in (("plan=true",), ())
        )
        assert server.meter.posts() == 0
    assert (plan.code, ran.code) == (0, 0), plan.err
    assert plan.out.splitlines() == [
        "plan: the candidate gave the baseline's answers, so no judge is called",
        "answers  recorded and baseline gave the same answer to 30 of 30 prompts. Was the setting applied?",
    ]
    found = ran.read("gate.json")
    said = "recorded gave the baseline's answer to all 30 prompts, so there is nothing to compare."
    assert found["verdict"] == "same answers"
    assert (
        found["conclusion"]["sentence"]
        == f"{said} No judge was called. Check that the change was applied."
    )
    assert found["whose"] == "No judge was called, because the answers are the same."
    assert (found["dimensions"][0]["share"], found["n_invalid"]) == (0.5, 0)


def test_answers_that_a_candidate_does_not_give_are_not_left_out(folder: Path):
    baseline = folder / "four/responses/responses_probe_hedged.jsonl"
    lines = baseline.read_text(encoding="utf-8").splitlines()
    (folder / "broken.jsonl").write_text("\n".join(lines[12:]), encoding="utf-8")
    given = "gate.baseline=four/responses/responses_probe_hedged.jsonl"
    main = ("experiment=gate", *SMALL, *BROKEN, given)
    refused = attempt(*main, folder=folder)
    assert refused.code == 2 and "12 of 60 responses are missing" in refused.err
    ran = attempt(*main, "allow_missing=true", folder=folder)
    assert ran.code == 3
    assert "12 of recorded's 30 answers (40%) are missing or empty." in " ".join(
        ran.out.split()
    )


def judged_gate(
    server: AnthropicServer, *given: str, candidate: str, folder: Path
) -> Ran:
    """A file of answers against the hedged one's, before a judge on the wire."""
    return attempt(
        *("experiment=gate", *SMALL, "entrant=[recorded]"),
        f"entrant.recorded.path={candidate}",
        *judged_by(server),
        "gate.baseline=four/responses/responses_probe_hedged.jsonl",
        *given,
        folder=folder,
        ANTHROPIC_API_KEY=server.key,
    )


def write_answers(
    folder: Path, name: str, change: Callable[[str], str], of: str = "hedged"
) -> str:
    """Write the answers of a probe, changed."""
    path = folder / f"four/responses/responses_probe_{of}.jsonl"
    rows = [row for _, row in read_jsonl(path)]
    write_jsonl(
        folder / name,
        [
            row
            | {"entrant_id": "recorded", "response_text": change(row["response_text"])}
            for row in rows
        ],
    )
    return name


@pytest.mark.system
@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("A", "No result: the judge chose the first answer in 30 of 30 comparisons."),
        ("B", "No result: the judge chose the second answer in 30 of 30 comparisons."),
        ("TIE", "No result: the judge called a tie in 30 of 30 comparisons."),
    ],
)
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_judge_with_one_verdict_passes_nobody(
    verdict: str, said: str, is_empty: bool, folder: Path
):
    name = write_answers(
        folder, "given.jsonl", lambda text: "" if is_empty else f"{text} So."
    )
    with AnthropicServer(verdicts=lambda shown: verdict) as server:
        ran = judged_gate(server, candidate=name, folder=folder)
    assert ran.code == 3, ran.err
    found = ran.read("gate.json")
    assert found["conclusion"]["state"] == "cannot tell"
    assert found["conclusion"]["sentence"].startswith(said)
    assert (
        "on 0 of 10 prompts (at least 9 are needed)" in found["conclusion"]["sentence"]
    )
    assert said in ran.out and said in ran.page.said
    log = (ran.run_dir / "tracker/log.jsonl").read_text(encoding="utf-8")
    assert said in log and '"gate/passed": 0.0' in log
    (row,) = found["dimensions"]
    assert (row["n_needed"], row["n_lost"]) == (None, 30 * is_empty)


@pytest.mark.system
def test_an_empty_answer_is_lost_whatever_the_judge_says(folder: Path):
    """The judge sees the copies, and calls every empty answer the winner."""

    def prefers_nothing(shown: Shown) -> str:
        texts = shown.response_a.strip(), shown.response_b.strip()
        return "AB"[texts.index("")] if "" in texts else more_words(shown)

    name = write_answers(folder, "given.jsonl", lambda text: "")
    with AnthropicServer(verdicts=prefers_nothing) as server:
        ran = judged_gate(server, candidate=name, folder=folder)
    (row,) = ran.read("gate.json")["dimensions"]
    assert (row["share"], row["low"], row["n_lost"]) == (1.0, 0.0, 30)
    assert (ran.code, ran.read("gate.json")["verdict"]) == (3, "cannot tell")
    said = "30 of recorded's 30 answers (100%) are missing or empty."
    assert said in ran.read("gate.json")["conclusion"]["sentence"]
    with AnthropicServer(verdicts=more_words) as server:
        assert judged_gate(server, candidate=name, folder=folder).code == 1


@pytest.mark.system
def test_the_control_is_planned_capped_and_paid_for_once(folder: Path):
    better = write_answers(folder, "given.jsonl", lambda text: f"{text} Thus hence so.")
    with AnthropicServer(verdicts=more_words) as server:
        gate_of = partial(judged_gate, server, candidate=better, folder=folder)
        cache = "cache_dir=control"

        def n_paid() -> int:
            return len(server.meter.billed_bodies)

        plan = gate_of(cache, "plan=true")
        control = [line for line in plan.out.splitlines() if "(control)" in line]
        assert control[0].split()[:6] == ["factuality", "(control)", "10", "20", "0", "20"]  # fmt: skip
        assert "The control takes 20 of the calls (20 new, $0.0" in plan.out
        capped = gate_of(cache, "judging.budget_usd=0.001")
        assert (capped.code, n_paid()) == (2, 0)
        assert "80 verdicts by" in capped.err
        left_out = gate_of(cache, "gate.control=false")
        assert (left_out.code, n_paid()) == (3, 60)
        assert "gate.control=false" in left_out.read("gate.json")["conclusion"]["sentence"]  # fmt: skip
        stored = gate_of(cache, "judging.stored_only=true")
        assert (stored.code, n_paid()) == (3, 60)
        assert "The cache has no verdict of the control" in " ".join(stored.out.split())
        ran = gate_of(cache)
        assert (ran.code, n_paid()) == (0, 80), ran.out
        again = gate_of(cache, "judging.stored_only=true")
        assert (again.code, n_paid()) == (0, 80)
        other = write_answers(folder, "given.jsonl", lambda text: f"Well, {text}")
        assert gate_of(cache, candidate=other).code == 0
        assert n_paid() == 140  # those of the candidate alone
        assert set(server.meter.billed_bodies.values()) == {1}
    (check,) = [c for c in ran.read("gate.json")["checks"]["factuality"] if c["name"] == "control"]  # fmt: skip
    assert (check["state"], check["n"], check["of"]) == ("passed", 10, 10)
    assert "Control: 10 of 10 degraded copies" in " ".join(ran.out.split())
    assert "Control: 10 of 10 degraded copies" in ran.page.said


@pytest.mark.system
def test_a_gate_that_was_shown_with_fewer_prompts_has_used_its_alpha(folder: Path):
    """The same candidate and more prompts; one with other answers is another candidate."""

    def mixed(text: str) -> str:
        """Better on about half of the prompts, and worse on the others."""
        return f"{text} Thus hence." if len(text) % 2 else text.rsplit(" ", 2)[0]

    better = write_answers(folder, "looked.jsonl", mixed)
    other = write_answers(folder, "other.jsonl", lambda text: f"{mixed(text)} Indeed.")
    with AnthropicServer(verdicts=more_words) as server:
        told = ("cache_dir=looked", "gate.margin=0.4")
        gate_of = partial(judged_gate, server, *told, folder=folder)
        narrow = ("gate.margin=0.001", "prompts.n=25")  # too few to tell
        few = judged_gate(server, told[0], *narrow, candidate=better, folder=folder)
        assert few.code == 3, few.out
        ran = gate_of(candidate=better)
        assert ran.code == 3, ran.out
        assert "But its result was shown once" in " ".join(ran.out.split())
        assert "1 result was shown before prompts were added." in ran.page.said
        found = ran.read("gate.json")
        assert found["conclusion"]["reasons"][0]["name"] == "looked"
        assert found["earlier_looks"]["factuality"]["n_looks"] == 1
        assert gate_of(candidate=other).code == 0


@pytest.mark.system
def test_one_order_shows_no_disagreement_and_passes_nobody(folder: Path):
    """A share in both orders does."""
    one = ("entrant=probe_reference", "judging.orders=one")
    ran = gate(*one, folder=folder)
    assert ran.code == 3 and "judging.both_orders_share=0.2" in ran.out
    assert gate(*one, "judging.flip_share=0.5", folder=folder).code == 0
    assert "baseline passes: 0%" in gate(*one, "plan=true", folder=folder).out


@pytest.mark.system
def test_the_workflow_of_the_page_runs_and_pays_for_nothing_twice(folder: Path):
    (block,) = (b for b in blocks("docs/gate.md") if b.kind == "yaml")
    steps = yaml.safe_load(block.text)["jobs"]["gate"]["steps"]
    entrant = folder / "conf/entrant/candidate.yaml"
    entrant.parent.mkdir(parents=True)
    with AnthropicServer(verdicts=longer, outcomes=answered) as server:
        entrant.write_text(
            "# @package entrant.candidate\ndefaults: [claude@_here_, _self_]\n"
            f"entrant_id: candidate\nbase_url: {server.url}\n",
            encoding="utf-8",
        )
        variables = {
            "PATH": f"{SCRIPTS}:/usr/bin:/bin",
            "ANTHROPIC_API_KEY": server.key,
            "GITHUB_STEP_SUMMARY": "summary.md",
            "NO_PROXY": "127.0.0.1",
        }
        small = f"{SMALL[0]} '{SMALL[1]}' judge.base_url={server.url} judge="
        for _ in range(2):
            codes = [
                attempt_program(
                    *(
                        "bash",
                        "-c",
                        "pip() { :; }; " + step["run"].replace("judge=", small),
                    ),
                    folder=folder,
                    **variables,
                ).code
                for step in steps
                if "run" in step
            ]
            assert codes == [0, 1, 0]
        assert set(server.meter.billed_bodies.values()) == {1}
    summary = (folder / "summary.md").read_text(encoding="utf-8")
    assert summary.count("## Gate failed: ") == 2


# How often it errs


def drawn(expected: float, n: int, runs: int, orders: str) -> np.ndarray:
    """The points (runs, n) of an entrant that scores so much, a fifth of the verdicts being ties."""
    won = 0.5 + (expected - 0.5) / 0.8
    world = Tournament(ratings=(0.0, 400 * math.log10((1 - won) / won)))
    rng = np.random.default_rng(n)
    battles = world.columns(n * runs, rng)
    if orders == "one":
        return in_one_order(battles, rng).scores().reshape(runs, n)
    both = SCORES[battles.verdict_ab] + SCORES[battles.verdict_ba]
    return both.reshape(runs, n) / 2


N_GATES = 4_000  # in each world: 1.96 Monte Carlo errors at .05 are .007
MOST = 0.06


def passed(points: Iterable[np.ndarray], margin: float) -> float:
    """How often a gate passes; a share depends on how often each number of points was given."""

    @cache
    def passes(values: tuple[float, ...], counts: tuple[int, ...]) -> bool:
        return decide_gate([share(np.repeat(values, counts), margin)], margin) == "pass"

    said = []
    for one in points:
        values, counts = np.unique(one, return_counts=True)
        said.append(passes(tuple(values.tolist()), tuple(counts.tolist())))
    return float(np.mean(said))


def three_valued(
    n: int, lost: float, won: float, n_gates: int = N_GATES
) -> Iterator[np.ndarray]:
    """Points on n prompts that are lost, won, and tied otherwise."""
    counts = np.random.default_rng(n).multinomial(
        n, [lost, 1 - lost - won, won], n_gates
    )
    return (np.repeat([0.0, 0.5, 1.0], row) for row in counts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "margin"),
    [(n, 0.05) for n in (29, 50, 93, 143, 360)] + [(n, 0.1) for n in (20, 50, 93, 143)],
)  # fmt: skip
def test_a_candidate_at_the_margin_passes_in_at_most_6_percent(n: int, margin: float):
    """Ties but for prompts lost outright, where t passes .06 to .20; and half of the prompts decisive."""
    assert passed(three_valued(n, 2 * margin, 0.0), margin) <= MOST
    assert passed(three_valued(n, 0.25 + margin, 0.25 - margin), margin) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 93])
def test_so_does_one_in_worlds_that_nothing_was_tuned_on(n: int):
    """Graded points: most prompts a little better, a tail lost; and very uneven prompts."""
    rng, margin, n_gates = np.random.default_rng(n), 0.1, 1_000
    tail = np.where(rng.random((n_gates, n)) < 1 / 3, 0.0, 0.6)  # mean .4
    uneven = rng.beta(0.2, 0.3, (n_gates, n))
    error = 1.96 * math.sqrt(0.05 * 0.95 / n_gates)
    assert passed(tail, margin) <= 0.05 + error
    assert passed(uneven, margin) <= 0.05 + error


@pytest.mark.slow
@pytest.mark.parametrize(("n", "margin"), [(93, 0.1), (143, 0.1), (360, 0.05)])
def test_an_equal_candidate_passes_as_often_as_a_plan_says(n: int, margin: float):
    found = passed(three_valued(n, 0.25, 0.25, n_gates=20_000), margin)
    assert found == pytest.approx(
        pass_probability(n, 0.5 * 0.5**0.5, margin, 0.05), abs=0.02
    )


@pytest.mark.slow
@pytest.mark.parametrize(("share_broken", "most"), [(0.2, 0.07), (0.4, 0.0)])
def test_a_candidate_that_breaks_the_judge_seldom_passes(
    share_broken: float, most: float
):
    """143 prompts, half of the others decisive. With invalid verdicts left out .92 and .80 passed."""
    rng, n_passed = np.random.default_rng(4), 0
    for _ in range(300):
        points = rng.choice([0.0, 0.5, 1.0], 143, p=[0.25, 0.5, 0.25])
        ends = np.stack([points, points], 1)
        ends[rng.random(143) < share_broken] = 0.0, 1.0
        n_passed += decide_gate([share(ends)], 0.1) == "pass"
    assert n_passed / 300 <= most


@pytest.mark.slow
@pytest.mark.parametrize("orders", ["both", "one"])
@pytest.mark.parametrize("margin", [0.05, 0.1])
@pytest.mark.parametrize("n", [29, 60, 143, 400])
def test_it_errs_rarely_and_the_prompts_it_names_have_their_power(
    n: int, margin: float, orders: str
):
    """Passes at the margin and failures of equals in at most .06, and two Monte Carlo errors."""
    runs = 600

    def rates(expected: float, n: int) -> tuple[dict[str, float], float]:
        found = [share(p, margin) for p in drawn(expected, n, runs, orders)]
        said = [decide_gate([one], margin) for one in found]
        needed = np.median([one.n_needed for one in found])
        return {v: said.count(v) / runs for v in EXIT_CODE_BY_VERDICT}, float(needed)

    most = 0.06 + 2 * math.sqrt(0.06 * 0.94 / runs)
    at_margin, _ = rates(0.5 - margin, n)
    equal, needed = rates(0.5, n)
    enough, _ = rates(0.5, round(needed))
    assert max(at_margin["pass"], equal["fail"]) <= most
    assert enough["pass"] == pytest.approx(0.8, abs=0.05)
