"""How many labels an interval takes."""

from __future__ import annotations

import numpy as np
import pytest

from elo_exp.oracle.influence import Estimate
from elo_exp.oracle.label_budget import label_budget
from tests.test_estimators import drawn, estimate


def found(std_error: float, of_labels: float) -> Estimate:
    return Estimate(
        value=0.5,
        std_error=std_error,
        degrees_of_freedom=1e9,
        n=1000,
        influence=np.zeros(1),
        std_error_labels=of_labels,
        n_labels=100,
    )


def test_four_times_the_labels_halve_their_part_of_the_error():
    """.04 of the labels beside .03: an interval of 1.96 times .05. With 400 labels .02 beside .03."""
    half_width = 1.959964 * (0.02**2 + 0.03**2) ** 0.5
    budget = label_budget(
        found(0.05, 0.04),
        policy="p",
        estimator="direct",
        half_widths=[half_width],
        n_labels_at_most=1000,
    )
    assert budget.half_width == pytest.approx(1.96 * 0.05, rel=1e-4)
    assert budget.half_width_at_best == pytest.approx(1.96 * 0.03, rel=1e-4)
    assert list(budget.labels_for.values()) == [400]


@pytest.mark.parametrize("half_width", [0.059, 0.001])
def test_what_needs_more_answers_than_there_are_is_out_of_reach(half_width: float):
    budget = label_budget(
        found(0.05, 0.04),
        policy="p",
        estimator="direct",
        half_widths=[half_width],
        n_labels_at_most=1000,
    )
    assert list(budget.labels_for.values()) == [None]


def test_the_forecast_comes_true():
    """From 200 labels to 800, in the simulation."""
    now, then = (estimate("direct", drawn(labelled=share, n=2000)) for share in (0.1, 0.4))
    budget = label_budget(
        now, policy="p", estimator="direct", half_widths=[0.01], n_labels_at_most=2000
    )
    of_labels = (budget.half_width**2 - budget.half_width_at_best**2) / 4
    assert then.half_width == pytest.approx(
        (budget.half_width_at_best**2 + of_labels) ** 0.5, rel=0.1
    )
