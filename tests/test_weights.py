"""Importance weights, and what can be told from them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from elo_exp.oracle import weights
from elo_exp.oracle.audits import weight_diagnostics
from elo_exp.oracle.calibration import calibrate
from elo_exp.oracle.estimates import WeightDiagnostics
from elo_exp.oracle.evidence import evidence
from tests.oracle_sample import sample


def test_the_effective_sample_is_all_rows_for_equal_weights_and_one_for_one():
    assert weights.effective_sample_size(np.ones(10)) == pytest.approx(10)
    assert weights.effective_sample_size(np.array([1.0, 0.0, 0.0])) == 1.0
    assert weights.effective_sample_size(np.array([3.0, 1.0])) == 16 / 10  # (3 + 1)^2 / (9 + 1)


def test_a_clone_has_weights_of_exactly_one():
    assert (weights.raw(np.zeros(5)) == 1.0).all()
    assert (weights.hajek(np.zeros(5)) == 1.0).all()
    assert weights.hellinger(np.ones(5)) == 1.0


def test_weights_are_scaled_to_mean_one_however_large_their_logarithms():
    found = weights.hajek(np.array([1000.0, 1000.0 + math.log(3.0)]))
    assert found == pytest.approx([0.5, 1.5])
    assert np.isfinite(weights.raw(np.array([1e5]))).all()


def test_clipping_keeps_the_mean():
    found = weights.clipped(np.array([0.5, 0.5, 0.5, 2.5]), 1.5)
    assert found == pytest.approx(np.array([0.5, 0.5, 0.5, 1.5]) / 0.75)


@pytest.mark.parametrize("index", [0.8, 1.5, 3.0])
def test_the_tail_index_of_a_pareto_distribution_is_found(index: float):
    """From the largest 5 % of 20,000 weights: 1,000 of them, an error of index / sqrt(1000)."""
    found = weights.tail_index(np.random.default_rng(1).pareto(index, 20_000) + 1.0)
    assert found == pytest.approx(index, abs=3 * index / math.sqrt(1000))


def test_a_flat_tail_is_infinitely_light_and_one_of_zeros_unknown():
    assert weights.tail_index(np.ones(100)) == math.inf
    assert weights.tail_index(np.array([1.0] * 5 + [0.0] * 95)) is None
    assert weights.tail_index(np.ones(9)) is None


def test_scores_overlap_by_the_share_of_bins_they_have_in_common():
    """Halves of each in a bin of its own: sqrt(1/2 * 1/2) of the common one."""
    low, high, both = np.zeros(10), np.ones(10), np.full(10, 0.5)
    assert weights.score_affinity(low, high) == 0.0
    assert weights.score_affinity(low, low) == 1.0
    assert weights.score_affinity(
        np.concatenate([low, both]), np.concatenate([both, high])
    ) == pytest.approx(0.5)
    assert weights.score_affinity(
        np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([1.0, 0.0])
    ) == pytest.approx(math.sqrt(0.5))


def test_nine_in_ten_of_its_own_answers_are_typical_of_a_policy():
    rng = np.random.default_rng(2)
    logprob = -rng.gamma(20.0, 2.0, 4000)
    assert weights.target_coverage(logprob, logprob, np.full(4000, 30.0)) == pytest.approx(
        0.9, abs=1e-3
    )


# The sample's, as published


def found(policy: str) -> WeightDiagnostics:
    data = sample()
    diagnostics = weight_diagnostics(
        data, evidence(data, policy, calibrate(data.logged, n_folds=5, mode="monotone"))
    )
    assert diagnostics is not None
    return diagnostics


def test_the_clone_of_the_sample_is_no_clone():
    clone = found("clone")
    assert (clone.n, clone.n_failed, clone.n_exactly_one, clone.n_zero_logprob) == (1000, 0, 898, 1)
    assert clone.max_abs_log_ratio == pytest.approx(4.0, abs=0.01)
    assert clone.ess == pytest.approx(215, abs=0.5)
    assert clone.tail_index == pytest.approx(0.76, abs=0.005)
    assert clone.hellinger == pytest.approx(0.928, abs=5e-4)


@pytest.mark.parametrize(
    ("policy", "share", "hellinger"),
    [("parallel_universe_prompt", 0.0034, 0.199), ("unhelpful", 0.0078, 0.116)],
)
def test_the_other_policies_of_the_sample_overlap_little(
    policy: str, share: float, hellinger: float
):
    assert found(policy).ess == pytest.approx(1000 * share, abs=0.05)
    assert found(policy).hellinger == pytest.approx(hellinger, abs=5e-4)


def test_of_the_unhelpful_policy_the_scores_overlap_by_less_than_half():
    data = sample()
    assert weights.score_affinity(
        data.logged.score, data.fresh["unhelpful"].score
    ) == pytest.approx(0.474, abs=5e-4)
