"""The estimators: laws that hold on any data, and the truth that each finds over many draws."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elo_exp.oracle import weights
from elo_exp.oracle.calibration import calibrate
from elo_exp.oracle.dataset import Dataset
from elo_exp.oracle.evidence import Evidence, NotEstimableError, evidence
from elo_exp.oracle.influence import Estimate
from elo_exp.records import UserError
from tests.data import shipped
from tests.oracle_simulation import World

NAMES = ("ips", "snips", "calibrated_ips", "dr_cpo", "mrdr", "tmle", "stacked_dr", "direct")
WEIGHTED = ("ips", "snips", "calibrated_ips")
ROBUST = ("dr_cpo", "mrdr", "tmle", "stacked_dr")


def of(data: Dataset) -> Evidence:
    return evidence(data, "target", calibrate(data.logged, n_folds=5, mode="monotone"))


def estimate(name: str, data: Dataset) -> Estimate:
    return shipped("estimator", name).estimate(of(data))  # type: ignore[no-any-return]


def drawn(**world: float) -> Dataset:
    return World(**world).draw(np.random.default_rng(11))  # type: ignore[arg-type]


def clone(data: Dataset) -> Dataset:
    """The target is the logging policy, and its draws are other answers of it."""
    return dataclasses.replace(data, target_logprob={"target": data.logging_logprob})


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_clone_with_every_answer_labelled_has_the_mean_label(name: str):
    data = clone(drawn(labelled=1.0))
    found = estimate(name, data)
    assert found.value == pytest.approx(data.logged.label.mean())
    assert found.std_error == pytest.approx(data.logged.label.std(ddof=1) / np.sqrt(1000), rel=0.02)
    assert found.ess == pytest.approx(1000)


def test_snips_is_the_weighted_mean_of_the_labels():
    data = drawn(labelled=1.0)
    assert estimate("snips", data).value == pytest.approx(
        np.average(data.logged.label, weights=of(data).hajek)
    )


def test_ips_is_their_sum_over_the_number_of_rows():
    data = drawn(labelled=1.0)
    product = weights.raw(of(data).log_ratio) * data.logged.label
    found = estimate("ips", data)
    assert found.value == pytest.approx(product.mean())
    assert found.std_error == pytest.approx(product.std(ddof=1) / np.sqrt(1000), rel=0.02)


def test_a_factor_on_all_weights_changes_only_ips():
    data = drawn()
    doubled = {"target": data.target_logprob["target"] + np.log(2.0)}
    other = dataclasses.replace(data, target_logprob=doubled)
    assert estimate("ips", other).value == pytest.approx(2 * estimate("ips", data).value)
    for name in ("snips", "calibrated_ips", *ROBUST):
        assert estimate(name, other).value == pytest.approx(estimate(name, data).value, abs=1e-6)


def test_direct_with_every_draw_labelled_is_the_mean_label():
    data = drawn(n_own=1000)
    found, label = estimate("direct", data), data.fresh["target"].label
    assert found.value == pytest.approx(label.mean())
    assert found.std_error == pytest.approx(label.std(ddof=1) / np.sqrt(1000), rel=0.02)
    assert found.n_own == 1000


def test_direct_without_own_labels_is_the_mean_logged_label_at_its_scores():
    """Up to the folds: the labels of each score, counted as often as the draws have that score."""
    data = World(judge="hump", shift=0.8, labelled=1.0).draw(np.random.default_rng(4))
    found, scores = estimate("direct", data), np.unique(data.logged.score)
    share = np.array([(data.fresh["target"].score == s).mean() for s in scores])
    label = np.array([data.logged.label[data.logged.score == s].mean() for s in scores])
    assert found.value == pytest.approx(share @ label / share.sum(), abs=0.01)
    assert abs(of(data).fresh_value.mean() - found.value) > 0.04
    assert (found.n_own, found.n_labels) == (0, 1000)
    assert 0 < found.std_error_labels < found.std_error


def test_labels_count_as_the_scores_of_the_draws_do():
    """50 labels are 10 bins of five; what they count adds up to the draws' share of each."""
    data = drawn(labelled=0.05, shift=0.8)
    edges = np.quantile(data.logged.score[data.logged.labelled], np.arange(1, 10) / 10)
    assert len(np.unique(edges)) == 9
    labels, draws = of(data).calibration.labelled.score, data.fresh["target"].score
    counted = np.bincount(np.searchsorted(edges, labels, side="right"), of(data).of_balance, 10)
    assert counted == pytest.approx(
        np.bincount(np.searchsorted(edges, draws, side="right"), minlength=10) / 1000
    )


def test_a_few_own_labels_are_not_enough_to_correct():
    assert estimate("direct", drawn(n_own=9)).n_own == 0
    assert estimate("direct", drawn(n_own=10)).n_own == 10


def test_several_draws_of_a_prompt_count_as_one_prompt():
    data = drawn()
    rows = data.fresh["target"]
    thrice = rows[np.concatenate([np.arange(1000), np.zeros(2, dtype=np.intp)])]
    more = dataclasses.replace(data, fresh={"target": thrice})
    assert estimate("direct", more).value == pytest.approx(estimate("direct", data).value)


def test_targeting_makes_the_weighted_residuals_vanish():
    """So that tmle is the mean of its model over fresh draws, and close to dr_cpo."""
    data = drawn(shift=0.8)
    assert estimate("tmle", data).value == pytest.approx(estimate("dr_cpo", data).value, abs=0.01)


def test_the_stack_lies_between_its_parts_and_varies_no_more():
    data = drawn(shift=0.8, style=0.5)
    parts = [estimate(name, data) for name in ("dr_cpo", "tmle", "mrdr")]
    stacked = estimate("stacked_dr", data)
    assert min(p.value for p in parts) - 1e-9 <= stacked.value <= max(p.value for p in parts) + 1e-9
    assert stacked.std_error <= min(p.std_error for p in parts) * 1.001


def test_an_estimate_that_is_corrected_holds_its_own_where_the_curve_cannot_fit():
    """The judge's scores are right up to .6 and then count against an answer: only the residuals know."""
    world = World(judge="hump", shift=0.8, n=20_000)
    data = world.draw(np.random.default_rng(12))
    assert abs(of(data).fresh_value.mean() - world.truth) > 0.04
    for name in (*ROBUST, "direct"):
        assert estimate(name, data).value == pytest.approx(
            world.truth, abs=4 * estimate(name, data).std_error
        )


@pytest.mark.parametrize("name", NAMES)
def test_with_many_prompts_each_finds_the_truth(name: str):
    world = World(shift=0.5, n=20_000)
    found = estimate(name, world.draw(np.random.default_rng(13)))
    assert found.value == pytest.approx(world.truth, abs=4 * found.std_error)
    assert found.std_error < 0.01


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_a_log_probability_are_left_out_for_that_policy_alone(name: str):
    data = drawn()
    missing = data.target_logprob["target"].copy()
    missing[::10] = np.nan
    other = {"target": missing, "other": data.target_logprob["target"]}
    fewer = dataclasses.replace(data, target_logprob=other)
    found = estimate(name, fewer)
    assert found.n == (1000 if name == "direct" else 900)
    whole = evidence(fewer, "other", calibrate(fewer.logged, n_folds=5, mode="monotone"))
    assert len(whole.logged) == 1000


@pytest.mark.parametrize(
    ("name", "missing", "words"),
    [
        *((name, "target_logprob", "no log-probabilities") for name in (*WEIGHTED, *ROBUST)),
        *((name, "fresh", "no fresh draws") for name in (*ROBUST, "direct")),
    ],
)
def test_what_an_estimator_lacks_is_named(name: str, missing: str, words: str):
    with pytest.raises(NotEstimableError, match=words):
        estimate(name, dataclasses.replace(drawn(), **{missing: {}}))


def test_too_few_labels_among_the_rows_of_a_policy_are_named():
    data = drawn(labelled=0.05)
    missing = np.where(data.logged.labelled, np.nan, data.target_logprob["target"])
    missing[np.flatnonzero(data.logged.labelled)[:3]] = -1000.0
    fewer = dataclasses.replace(data, target_logprob={"target": missing})
    with pytest.raises(NotEstimableError, match="3 labels among its logged rows, 10 needed"):
        estimate("snips", fewer)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("snips", {"clip_weight": 1.0}, "clip_weight: found 1. Expected more than 1"),
        ("mrdr", {"omega": "w3"}, "omega: found 'w3'. Expected one of w, w2, snips"),
        ("stacked_dr", {"omega": "w3"}, "omega: found 'w3'. Expected one of w, w2, snips"),
    ],
)
def test_a_setting_out_of_range_is_refused(name: str, settings: dict[str, object], words: str):
    with pytest.raises(UserError, match=words):
        shipped("estimator", name, **settings)


@pytest.mark.parametrize("omega", ["w", "w2", "snips"])
def test_every_way_of_weighting_an_outcome_model_finds_the_truth(omega: str):
    world = World(shift=0.8, n=5000)
    found = shipped("estimator", "mrdr", omega=omega).estimate(
        of(world.draw(np.random.default_rng(14)))
    )
    assert found.value == pytest.approx(world.truth, abs=4 * found.std_error)
