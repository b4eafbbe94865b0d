"""compat=cje-0.3: the published library's numbers, of the sample and of its own example data."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from elo_exp.oracle import cje
from elo_exp.oracle.calibration import calibrate
from elo_exp.oracle.data import Dataset, NotEstimableError
from elo_exp.oracle.evidence import Estimate, PolicyEvidence
from tests.oracle_sample import POLICIES, sample
from tests.oracle_simulation import draw

# Values and standard errors as cje-eval 0.3.0 prints them for the sample, in the order of POLICIES.
PUBLISHED = {
    "snips": ((0.75636, 0.75218, 0.74907), (0.00849, 0.01383, 0.03952)),
    "calibrated_ips": ((0.76423, 0.76092, 0.77089), (0.01064, 0.02204, 0.03731)),
    "dr_cpo": ((0.76235, 0.76270, 0.40923), (0.01775, 0.02046, 0.04424)),
    "mrdr": ((0.76345, 0.76403, 0.41450), (0.01772, 0.01969, 0.04298)),
    "tmle": ((0.76345, 0.76403, 0.41450), (0.01771, 0.02033, 0.04287)),
    "stacked_dr": ((0.76328, 0.76403, 0.41450), (0.01771, 0.02033, 0.04287)),
}
DIRECT = (0.76345, 0.76403, 0.41450)  # its published error is a bootstrap's


def estimate(name: str, data: Dataset, policy: str) -> Estimate:
    calibration = calibrate(data.logged_rows)
    evidence = PolicyEvidence(data=data, policy=policy, calibration=calibration)
    return cje.Formula(name=name).estimate(evidence)


def test_estimates_and_errors_are_the_published_ones():
    """Its intervals are Student's t with 4 degrees of freedom, for raw weights normal."""
    assert set(cje.FORMULAS) == {"ips", *PUBLISHED, "direct"}
    for name, (values, std_errors) in PUBLISHED.items():
        found = [estimate(name, sample(), policy) for policy in POLICIES]
        assert [e.value for e in found] == pytest.approx(values, abs=5.1e-6)
        assert [e.std_error for e in found] == pytest.approx(std_errors, abs=5.1e-6)
        assert {e.degrees_of_freedom for e in found} == {
            math.inf if name == "snips" else 4
        }
    direct = [estimate("direct", sample(), policy).value for policy in POLICIES]
    assert direct == pytest.approx(DIRECT, abs=5.1e-6)


def test_a_row_without_one_policy_is_left_out_for_all():
    data = draw()
    ratio = data.target_logprob["target"]
    other = np.where(np.arange(len(ratio)) < 100, np.nan, ratio)
    fewer = dataclasses.replace(data, target_logprob={"target": ratio, "other": other})
    assert estimate("snips", fewer, "target").n == len(ratio) - 100


def test_labels_on_all_rows_are_used_as_they_are():
    """raw-ips is then the weighted mean of the labels, whatever the scores."""
    data = draw()
    label = np.random.default_rng(0).random(len(data.logged_rows))
    full = dataclasses.replace(
        data, logged_rows=dataclasses.replace(data.logged_rows, label=label)
    )
    ratio = data.target_logprob["target"] - data.logging_logprob
    weights = np.minimum(np.exp(ratio) / np.exp(ratio).mean(), 100)
    assert estimate("snips", full, "target").value == pytest.approx(
        np.average(label, weights=weights)
    )


def test_a_logged_prompt_without_a_draw_is_named_and_not_guessed():
    data = draw()
    draws = data.fresh_draws["target"]
    fewer = dataclasses.replace(
        data, fresh_draws={"target": draws[np.arange(len(draws)) > 2]}
    )
    with pytest.raises(
        NotEstimableError, match="3 logged prompts have no sample of the policy"
    ):
        estimate("dr_cpo", fewer, "target")
