"""The estimators: laws that hold on any data, standard errors, and the truth each one finds."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from elo_exp.oracle.data import Dataset, Rows
from elo_exp.oracle.estimates import label_budget
from elo_exp.oracle.evidence import NotEstimableError
from elo_exp.oracle.influence import Estimate, clustered_error
from tests.data import shipped
from tests.oracle_simulation import (
    NAMES,
    ROBUST,
    WEIGHTED,
    World,
    draw,
    evidence_of,
)


def estimate(name: str, data: Dataset, **settings: object) -> Estimate:
    return shipped("estimator", name, **settings).estimate(evidence_of(data))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", WEIGHTED)
def test_the_estimate_of_a_labelled_clone_is_the_mean_label(name: str):
    data = draw(11, labelled=1.0)
    found = estimate(
        name, dataclasses.replace(data, target_logprob={"target": data.logging_logprob})
    )
    assert found.value == pytest.approx(data.logged.label.mean())
    assert found.std_error == pytest.approx(
        data.logged.label.std(ddof=1) / np.sqrt(1000), rel=0.02
    )
    assert found.ess == pytest.approx(1000)


def test_ips_and_snips_are_the_sums_of_the_textbook():
    data = draw(11, labelled=1.0)
    weight = np.exp(data.log_ratio("target"))
    product = weight * data.logged.label
    found = estimate("ips", data)
    assert found.value == pytest.approx(product.mean())
    assert found.std_error == pytest.approx(
        product.std(ddof=1) / np.sqrt(1000), rel=0.02
    )
    assert estimate("snips", data).value == pytest.approx(product.sum() / weight.sum())


def test_a_factor_on_all_weights_changes_only_ips():
    data = draw(11)
    doubled = {"target": data.target_logprob["target"] + np.log(2.0)}
    other = dataclasses.replace(data, target_logprob=doubled)
    assert estimate("ips", other).value == pytest.approx(
        2 * estimate("ips", data).value
    )
    for name in ("snips", "calibrated_ips", *ROBUST):
        assert estimate(name, other).value == pytest.approx(
            estimate(name, data).value, abs=1e-6
        )


def test_direct_with_every_draw_labelled_is_the_mean_label():
    data = draw(11, n_own=1000)
    found, label = estimate("direct", data), data.fresh["target"].label
    assert found.value == pytest.approx(label.mean())
    assert found.std_error == pytest.approx(label.std(ddof=1) / np.sqrt(1000), rel=0.02)
    assert found.n_own == 1000
    assert [estimate("direct", draw(11, n_own=n)).n_own for n in (9, 10)] == [0, 10]


def test_direct_without_own_labels_is_the_mean_logged_label_at_its_scores():
    """Up to the folds: the labels of each score, counted as often as the draws have that score."""
    data = draw(4, judge="hump", shift=0.8, labelled=1.0)  # type: ignore[arg-type]
    found, scores = estimate("direct", data), np.unique(data.logged.score)
    share = np.array([(data.fresh["target"].score == s).mean() for s in scores])
    label = np.array([data.logged.label[data.logged.score == s].mean() for s in scores])
    assert found.value == pytest.approx(share @ label / share.sum(), abs=0.01)
    assert abs(evidence_of(data).fresh_value.mean() - found.value) > 0.04
    assert (found.n_own, found.n_labels) == (0, 1000)
    assert 0 < found.std_error_labels < found.std_error


def test_balancing_weights_give_labels_the_distribution_of_the_draws():
    """50 labels are 10 bins of five; their weights add up to the draws' share of each."""
    data = draw(11, labelled=0.05, shift=0.8)
    edges = np.quantile(data.logged.score[data.logged.labelled], np.arange(1, 10) / 10)
    assert len(np.unique(edges)) == 9
    e = evidence_of(data)
    labels = np.searchsorted(edges, e.calibration.rows.score, side="right")
    draws = np.searchsorted(edges, e.fresh.score, side="right")
    weight = np.bincount(labels, e.balancing_weights, 10)
    assert weight == pytest.approx(np.bincount(draws, minlength=10) / 1000)


def test_several_draws_of_a_prompt_count_as_one_prompt():
    data = draw(11)
    rows = data.fresh["target"]
    thrice = rows[np.concatenate([np.arange(1000), np.zeros(2, dtype=np.intp)])]
    more = dataclasses.replace(data, fresh={"target": thrice})
    assert estimate("direct", more).value == pytest.approx(
        estimate("direct", data).value
    )


def test_the_stack_lies_between_its_parts_and_varies_no_more():
    data = draw(11, shift=0.8, style=0.5)
    parts = [estimate(name, data) for name in ("dr_cpo", "tmle", "mrdr")]
    stacked = estimate("stacked_dr", data)
    assert (
        min(p.value for p in parts) - 1e-9
        <= stacked.value
        <= max(p.value for p in parts) + 1e-9
    )
    assert stacked.std_error <= min(p.std_error for p in parts) * 1.001


@pytest.mark.parametrize("name", [*ROBUST, "direct"])
def test_a_corrected_estimate_is_right_where_the_curve_cannot_fit(name: str):
    """The judge's scores are right up to .6 and wrong above: only the residuals show it."""
    world = World(judge="hump", shift=0.8, n=20_000)
    data = world.draw(np.random.default_rng(12))
    assert abs(evidence_of(data).fresh_value.mean() - world.truth) > 0.04
    found = estimate(name, data)
    assert found.value == pytest.approx(world.truth, abs=4 * found.std_error)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in NAMES),
        ("mrdr", {"omega": "w2"}),
        ("mrdr", {"omega": "snips"}),
    ],
)
def test_with_many_prompts_each_finds_the_truth(name: str, settings: dict[str, object]):
    world = World(shift=0.5, n=20_000)
    found = estimate(name, world.draw(np.random.default_rng(13)), **settings)
    assert found.value == pytest.approx(world.truth, abs=4 * found.std_error)
    assert found.std_error < 0.01


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_a_log_probability_are_left_out_for_that_policy_alone(name: str):
    data = draw(11)
    whole = data.target_logprob["target"]
    missing = np.where(np.arange(1000) % 10 == 0, np.nan, whole)
    fewer = dataclasses.replace(
        data, target_logprob={"target": missing, "other": whole}
    )
    assert estimate(name, fewer).n == (1000 if name == "direct" else 900)
    assert len(evidence_of(fewer, "other").logged) == 1000


def test_too_few_labels_among_the_rows_of_a_policy_are_refused():
    data = draw(11, labelled=0.05)
    missing = np.where(data.logged.labelled, np.nan, data.target_logprob["target"])
    missing[np.flatnonzero(data.logged.labelled)[:3]] = -1000.0
    fewer = dataclasses.replace(data, target_logprob={"target": missing})
    with pytest.raises(
        NotEstimableError, match="3 labels among its logged rows, 10 needed"
    ):
        estimate("snips", fewer)


# Standard errors


def test_the_clustered_error_of_a_mean_is_the_one_of_the_textbook():
    x = np.random.default_rng(0).standard_normal(50)
    everyone = np.ones(50, dtype=bool)
    error, _ = clustered_error(x / 50, everyone)
    assert error == pytest.approx(x.std(ddof=1) / math.sqrt(50))
    more, present = np.append(x / 50, [0.0, 0.0]), np.append(everyone, [False, False])
    assert clustered_error(more, present)[0] == error
    assert math.isnan(clustered_error(np.ones(1), np.ones(1, dtype=bool))[0])


def test_degrees_of_freedom_are_few_where_one_prompt_dominates():
    parts = np.random.default_rng(1).standard_normal(4000)
    assert clustered_error(parts, np.ones(4000, dtype=bool))[1] > 3500
    parts[0] = 1000.0
    assert clustered_error(parts, np.ones(4000, dtype=bool))[1] < 3


def resampled(data: Dataset, rng: np.random.Generator) -> Dataset:
    """The same with its prompts drawn again; a prompt drawn twice is two."""
    chosen = rng.integers(0, len(data.prompts), len(data.prompts))
    fold = rng.permutation(len(chosen)) % data.n_folds

    def taken(rows: Rows) -> Rows:
        return dataclasses.replace(
            rows[chosen], prompt=np.arange(len(chosen)), fold=fold
        )

    return dataclasses.replace(
        data,
        logged=taken(data.logged),
        logging_logprob=data.logging_logprob[chosen],
        target_logprob={
            name: logprob[chosen] for name, logprob in data.target_logprob.items()
        },
        fresh={name: taken(rows) for name, rows in data.fresh.items()},
    )


@pytest.mark.parametrize("name", ["snips", "calibrated_ips", "dr_cpo", "direct"])
def test_the_standard_error_is_that_of_a_bootstrap_which_fits_everything_again(
    name: str,
):
    """120 resamples: their standard deviation is known to 6.5 %; three times that is allowed."""
    data, rng = draw(5, shift=0.5, labelled=0.3), np.random.default_rng(6)
    values = [estimate(name, resampled(data, rng)).value for _ in range(120)]
    assert estimate(name, data).std_error == pytest.approx(np.std(values), rel=0.2)


@pytest.mark.parametrize(
    ("half_width", "n_labels"),
    [(1.959964 * math.hypot(0.02, 0.03), 400), (0.059, None)],
)
def test_four_times_the_labels_halve_their_part_of_the_error(
    half_width: float, n_labels: int | None
):
    """.04 of the labels beside .03: an interval of 1.96 times .05; 400 labels: .02 beside .03."""
    now = Estimate(
        value=0.5,
        std_error=0.05,
        degrees_of_freedom=1e9,
        n=1000,
        influence=np.zeros(1),
        std_error_labels=0.04,
        n_labels=100,
    )
    budget = label_budget(
        now, policy="p", estimator="direct", half_widths=[half_width], max_labels=1000
    )
    assert budget.half_width == pytest.approx(1.96 * 0.05, rel=1e-4)
    assert budget.half_width_at_best == pytest.approx(1.96 * 0.03, rel=1e-4)
    assert list(budget.labels_for.values()) == [n_labels]


def test_the_forecast_of_a_label_budget_comes_true():
    """From 200 labels to 800, in the simulation."""
    now, then = (
        estimate("direct", draw(11, labelled=share, n=2000)) for share in (0.1, 0.4)
    )
    rest = now.std_error**2 - now.std_error_labels**2
    forecast = math.sqrt(rest + now.std_error_labels**2 / 4)
    assert then.std_error == pytest.approx(forecast, rel=0.1)
