"""What is refused, what calls for caution, and what is said of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elo_exp.oracle import audits
from elo_exp.oracle.analysis import Analysis, Options, analyse, gates_of
from elo_exp.oracle.calibration import calibrate
from elo_exp.oracle.dataset import Dataset
from elo_exp.oracle.estimates import PolicyEstimate
from elo_exp.oracle.evidence import evidence
from elo_exp.oracle.gates import Gates
from tests.oracle_sample import POLICIES, STD_ERRORS, sample, truth
from tests.oracle_simulation import World
from tests.test_oracle_coverage import shipped_estimators

OPTIONS = Options(
    calibration="monotone", by_variance=False, max_residual=0.05, half_widths=(0.02,), compat=None
)


def analysed(data: Dataset, **options: object) -> Analysis:
    return analyse(data, shipped_estimators(), dataclasses.replace(OPTIONS, **options))  # type: ignore[arg-type]


def drawn(seed: int = 0, **world: float) -> Dataset:
    return World(**world).draw(np.random.default_rng(seed))  # type: ignore[arg-type]


def by_name(data: Dataset) -> dict[str, PolicyEstimate]:
    return {e.estimator: e for e in analysed(data).of("target")}


def gates(data: Dataset) -> Gates:
    return gates_of(
        data, evidence(data, "target", calibrate(data.logged, n_folds=5, mode="monotone"))
    )


# The recorded sample


@pytest.mark.parametrize("probe", [False, True])
def test_of_the_sample_every_reported_interval_covers_the_truth(probe: bool):
    """Allowing for the standard error of the truth, which is a mean of 500 labels."""
    found = [e for e in analysed(sample(probe=probe)).estimates if e.value is not None]
    assert {e.policy for e in found} == {"clone", "parallel_universe_prompt"}
    for e in found:
        assert e.ci_low is not None and e.ci_high is not None
        allowed = STD_ERRORS[e.policy]
        assert e.ci_low - allowed <= truth()[e.policy].mean <= e.ci_high + allowed, e


def test_of_the_sample_the_doubly_robust_and_direct_estimates_are_reported():
    reported = {
        (e.policy, e.estimator) for e in analysed(sample()).estimates if e.status == "report"
    }
    names = ("dr_cpo", "mrdr", "tmle", "stacked_dr", "direct")
    assert reported == {(policy, name) for policy in POLICIES[:2] for name in names}


def test_the_unhelpful_policy_is_refused_by_every_estimator():
    refused = analysed(sample()).of("unhelpful")
    assert {(e.status, e.value, e.std_error, e.ci_low) for e in refused} == {
        ("refuse", None, None, None)
    }
    assert all(
        "scores overlap too little with the logged ones (A_B 0.47)" in e.reason for e in refused
    )


def test_raw_weights_with_a_small_effective_sample_are_refused():
    snips = next(e for e in analysed(sample()).of("clone") if e.estimator == "snips")
    assert snips.reason == (
        "effective sample 21 % of the rows (30 % needed); weights without a mean (tail index 0.76)"
    )


def test_compat_refuses_nothing_and_still_says_what_is_wrong():
    found = analysed(sample(), compat="cje-0.3").of("unhelpful")
    assert {e.status for e in found} == {"caution"}
    assert all(e.value is not None and "A_B 0.47" in e.reason for e in found)


def test_probes_tell_that_the_calibration_fails_for_the_unhelpful_policy():
    status = {audit.policy: audit.status for audit in analysed(sample(probe=True)).audits}
    assert status == {
        "clone": "inconclusive",
        "parallel_universe_prompt": "inconclusive",
        "unhelpful": "fail",
    }
    assert {audit.status for audit in analysed(sample()).audits} == {"not_checked"}


# One gate at a time


def test_what_passes_every_gate_is_reported():
    found = by_name(drawn(n_probe=200, labelled=1.0))
    assert {e.status for e in found.values()} == {"report"}
    assert {e.reason for e in found.values()} == {""}


def test_that_the_transport_was_not_checked_is_said_of_what_rests_on_it():
    """Weights with less than 30 % of the rows do not check it either."""
    found = by_name(drawn(style=1.5, labelled=1.0))
    assert found["direct"].status == "report"
    assert found["direct"].reason == "transport not checked"


def test_scores_beyond_those_of_the_labels_are_refused():
    data = drawn(labelled=1.0)
    low = data.logged.score < 0.6
    narrow = dataclasses.replace(data.logged, label=np.where(low, data.logged.label, np.nan))
    found = gates(dataclasses.replace(data, logged=narrow))
    assert found.overlap.card == "refuse"
    assert found.overlap.out_of_range == pytest.approx(np.mean(data.fresh["target"].score >= 0.6))
    reasons = [e.reason for e in by_name(dataclasses.replace(data, logged=narrow)).values()]
    assert all(
        "of its scores are beyond those of the labelled answers" in reason for reason in reasons
    )


def test_labels_that_miss_the_calibration_are_said_with_their_error():
    found = by_name(drawn(dislike=0.2, style=2.0, n_probe=100))
    assert found["direct"].status == "refuse"
    assert "labels of its answers are off the calibrated scores by -0.2" in found["direct"].reason


def test_raw_weights_need_no_calibration():
    """With good overlap they are right where the judge is not, and tell that it is not."""
    found = by_name(drawn(dislike=0.25, style=0.8, labelled=1.0))
    assert found["snips"].status in ("report", "caution")
    assert found["direct"].status == found["dr_cpo"].status == "refuse"


def test_the_policys_own_labels_make_the_direct_estimate_independent_of_the_others():
    found = by_name(drawn(shift=3.2, n_own=200))
    assert {e.status for name, e in found.items() if name != "direct"} == {"refuse"}
    assert (found["direct"].status, found["direct"].reason) == ("report", "")


def test_few_own_labels_call_for_caution():
    direct = by_name(drawn(n_own=12))["direct"]
    assert (direct.status, direct.reason) == (
        "caution",
        "corrected by only 12 labels of its own answers",
    )


def test_calibrated_weights_that_miss_the_scores_of_fresh_draws_are_refused():
    """Log-probabilities that have nothing to do with the scores leave all weights near one."""
    data = drawn(shift=1.2)
    noise = np.random.default_rng(1).normal(0.0, 0.1, 1000)
    wrong = dataclasses.replace(data, target_logprob={"target": data.logging_logprob + noise})
    found = by_name(wrong)["calibrated_ips"]
    assert found.status == "refuse"
    assert "weights miss the scores of its fresh draws by -0.1" in found.reason


def test_weights_that_come_to_few_rows_make_no_curve():
    found = by_name(drawn(style=2.5))["calibrated_ips"]
    assert found.status == "refuse"
    assert "rows (30 needed)" in found.reason


def test_a_policy_without_log_probabilities_has_a_direct_estimate_only():
    data = drawn(n_probe=100)
    found = by_name(dataclasses.replace(data, target_logprob={}))
    assert found["direct"].value is not None
    assert {e.reason for name, e in found.items() if name != "direct"} == {"no log-probabilities"}


def test_a_policy_with_a_few_log_probabilities_has_no_weight_curve():
    data = drawn(n_probe=100)
    few = np.where(np.arange(1000) < 6, data.target_logprob["target"], np.nan)
    found = by_name(dataclasses.replace(data, target_logprob={"target": few}))
    assert found["direct"].status == "report"
    assert {found[name].status for name in ("ips", "calibrated_ips", "dr_cpo")} == {"refuse"}


def test_a_policy_without_draws_is_estimated_by_its_weights_alone():
    data = drawn(labelled=1.0)
    found = by_name(dataclasses.replace(data, fresh={}))
    assert found["snips"].status == "report"
    assert found["dr_cpo"].reason == found["direct"].reason == "no fresh draws"


def test_an_interval_ends_where_labels_end():
    data = drawn(labelled=0.05)
    top = dataclasses.replace(data.logged, label=np.where(data.logged.labelled, 0.995, np.nan))
    top.label[np.flatnonzero(top.labelled)[0]] = 0.8
    found = by_name(dataclasses.replace(data, logged=top))
    clipped = [e for e in found.values() if e.ci_clipped]
    assert clipped
    assert {e.ci_high for e in clipped} == {1.0}


@pytest.mark.parametrize(
    ("dislike", "n_probe", "status"),
    [(0.0, 400, "pass"), (0.2, 400, "fail"), (0.0, 30, "inconclusive"), (0.0, 19, "not_graded")],
)
def test_the_audit_is_graded_by_how_far_the_calibration_may_be_off(
    dislike: float, n_probe: int, status: str
):
    data = drawn(dislike=dislike, style=1.0, n_probe=n_probe, labelled=1.0)
    found = gates(data)
    assert audits.transport_audit(found.evidence, found.labels, max_residual=0.05).status == status
