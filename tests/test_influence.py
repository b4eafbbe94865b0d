"""Standard errors: what each prompt does to an estimate, checked by drawing the prompts again."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from elo_exp.oracle.calibration import calibrate
from elo_exp.oracle.dataset import Dataset, Rows
from elo_exp.oracle.evidence import evidence
from elo_exp.oracle.influence import clustered
from tests.data import shipped
from tests.oracle_simulation import World


def test_the_error_of_a_mean_is_the_one_of_the_textbook():
    x = np.random.default_rng(0).standard_normal(50)
    error, _ = clustered(x / 50, np.ones(50, dtype=bool))
    assert error == pytest.approx(x.std(ddof=1) / math.sqrt(50))


def test_prompts_that_take_no_part_do_not_count():
    parts = np.array([1.0, -1.0, 2.0, 0.0, 0.0])
    present = np.array([True, True, True, False, False])
    assert clustered(parts, present) == clustered(parts[:3], np.ones(3, dtype=bool))


def test_normal_parts_have_a_degree_of_freedom_each_and_one_large_part_leaves_few():
    parts = np.random.default_rng(1).standard_normal(4000)
    assert clustered(parts, np.ones(4000, dtype=bool))[1] > 3500
    parts[0] = 1000.0
    assert clustered(parts, np.ones(4000, dtype=bool))[1] < 3


def test_nothing_is_known_from_one_prompt():
    assert math.isnan(clustered(np.ones(1), np.ones(1, dtype=bool))[0])


def resampled(data: Dataset, rng: np.random.Generator) -> Dataset:
    """The same with its prompts drawn again; a prompt drawn twice is two."""
    chosen = rng.integers(0, len(data.prompts), len(data.prompts))
    fold = rng.permutation(len(chosen)) % data.n_folds

    def taken(rows: Rows) -> Rows:
        return dataclasses.replace(rows[chosen], prompt=np.arange(len(chosen)), fold=fold)

    return dataclasses.replace(
        data,
        logged=taken(data.logged),
        logging_logprob=data.logging_logprob[chosen],
        target_logprob={name: logprob[chosen] for name, logprob in data.target_logprob.items()},
        fresh={name: taken(rows) for name, rows in data.fresh.items()},
    )


@pytest.mark.parametrize("name", ["snips", "calibrated_ips", "dr_cpo", "direct"])
def test_the_error_is_that_of_a_bootstrap_which_fits_everything_again(name: str):
    """120 resamples: their standard deviation is known to 6.5 %, three times which is allowed."""
    data = World(shift=0.5, labelled=0.3).draw(np.random.default_rng(5))
    estimator, rng = shipped("estimator", name), np.random.default_rng(6)

    def estimate(of: Dataset) -> float:
        return float(
            estimator.estimate(
                evidence(of, "target", calibrate(of.logged, n_folds=5, mode="monotone"))
            ).value
        )

    drawn = [estimate(resampled(data, rng)) for _ in range(120)]
    found = estimator.estimate(
        evidence(data, "target", calibrate(data.logged, n_folds=5, mode="monotone"))
    )
    assert found.std_error == pytest.approx(np.std(drawn), rel=0.2)
