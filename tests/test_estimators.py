"""The estimators: laws that hold on any data, standard errors, and the truth each one finds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from elo_exp.oracle.data import N_PROMPT_FOLDS, Dataset, NotEstimableError, Rows
from elo_exp.oracle.estimates import plan_label_budget
from elo_exp.oracle.evidence import Estimate, compute_clustered_error
from tests.data import shipped
from tests.oracle_simulation import NAMES, ROBUST, WEIGHTED, World, checks_of, draw


def estimate(name: str, data: Dataset, **settings: object) -> Estimate:
    found: Estimate = shipped("estimator", name, **settings).estimate(checks_of(data))
    return found


def with_logprob(data: Dataset, logprob: np.ndarray) -> Dataset:
    return dataclasses.replace(data, target_logprob={"target": logprob})


@pytest.mark.parametrize("name", [*WEIGHTED, "direct"])
def test_with_every_row_labelled_a_clone_is_worth_the_mean_label(name: str):
    """By weights of one, or by labels of all its own draws."""
    data = draw(11, labelled=1.0, n_own=1000)
    found = estimate(name, with_logprob(data, data.logging_logprob))
    label = (data.fresh_draws["target"] if name == "direct" else data.logged_rows).label
    assert found.value == pytest.approx(label.mean())
    assert found.std_error == pytest.approx(
        label.std(ddof=1) / math.sqrt(1000), rel=0.02
    )
    assert (found.ess, found.n_own) in [(pytest.approx(1000), 0), (None, 1000)]


def test_ips_and_snips_are_the_sums_of_the_textbook():
    data = draw(11, labelled=1.0)
    weight = np.exp(data.log_ratio("target"))
    product = weight * data.logged_rows.label
    ips, std_error = estimate("ips", data), product.std(ddof=1) / math.sqrt(1000)
    assert ips.value == pytest.approx(product.mean())
    assert ips.std_error == pytest.approx(std_error, rel=0.02)
    assert estimate("snips", data).value == pytest.approx(product.sum() / weight.sum())


def test_a_factor_on_all_weights_changes_only_ips():
    data = draw(11)
    doubled = with_logprob(data, data.target_logprob["target"] + math.log(2))
    for name in (*WEIGHTED, *ROBUST):
        factor = 2 if name == "ips" else 1
        expected = factor * estimate(name, data).value
        assert estimate(name, doubled).value == pytest.approx(expected, abs=1e-6)


def test_direct_without_own_labels_is_the_mean_logged_label_at_its_scores():
    """Up to the folds: the labels of each score, counted as often as the draws have that score."""
    data = draw(4, judge="hump", shift=0.8, labelled=1.0)  # type: ignore[arg-type]
    found, scores = estimate("direct", data), np.unique(data.logged_rows.score)
    share = np.array([(data.fresh_draws["target"].score == s).mean() for s in scores])
    label = np.array(
        [data.logged_rows.label[data.logged_rows.score == s].mean() for s in scores]
    )
    assert found.value == pytest.approx(share @ label / share.sum(), abs=0.01)
    assert (found.n_own, found.n_labels) == (0, 1000)
    assert 0 < found.std_error_labels < found.std_error
    assert [estimate("direct", draw(11, n_own=n)).n_own for n in (19, 20)] == [
        0,
        20,
    ]


def test_the_stack_lies_between_its_parts_and_varies_no_more():
    data = draw(11, shift=0.8, style=0.5)
    parts = [estimate(name, data) for name in ("dr_cpo", "tmle", "mrdr")]
    stacked, values = estimate("stacked_dr", data), [part.value for part in parts]
    assert min(values) - 1e-9 <= stacked.value <= max(values) + 1e-9
    assert stacked.std_error <= min(part.std_error for part in parts) * 1.001


@pytest.mark.parametrize(
    ("name", "world", "settings"),
    [
        *((name, {"shift": 0.5}, {}) for name in NAMES),
        *(("mrdr", {"shift": 0.5}, {"omega": omega}) for omega in ("w2", "snips")),
        *((name, {"judge": "hump", "shift": 0.8}, {}) for name in (*ROBUST, "direct")),
    ],
)
def test_with_many_prompts_each_finds_the_truth(
    name: str, world: Any, settings: dict[str, object]
):
    """Also where no rising curve fits the labels: only the residuals correct that."""
    drawn = World(n=20_000, **world)
    data = drawn.draw(np.random.default_rng(13))
    found = estimate(name, data, **settings)
    assert found.value == pytest.approx(drawn.truth, abs=4 * found.std_error)
    assert found.std_error < 0.01
    bias = abs(checks_of(data).fresh_reading.value.mean() - drawn.truth)
    assert (bias > 0.04) == ("judge" in world)


def test_rows_without_a_log_probability_are_left_out_for_that_policy_alone():
    data = draw(11)
    whole = data.target_logprob["target"]
    missing = np.where(np.arange(1000) % 10 == 0, np.nan, whole)
    both = {"target": missing, "other": whole}
    fewer = dataclasses.replace(data, target_logprob=both)
    sizes = [estimate(name, fewer).n for name in ("snips", "dr_cpo", "direct")]
    assert sizes == [900, 900, 1000]
    assert len(checks_of(fewer, "other").logged) == 1000


def test_too_few_labels_among_the_rows_of_a_policy_are_refused():
    data = draw(11, labelled=0.05)
    labelled = np.flatnonzero(data.logged_rows.is_labelled)
    logprob = data.target_logprob["target"].copy()
    logprob[labelled[3:]] = np.nan
    with pytest.raises(
        NotEstimableError, match="3 labels among the logged answers, 10 needed"
    ):
        estimate("snips", with_logprob(data, logprob))


# Standard errors


def test_the_clustered_error_of_a_mean_is_the_one_of_the_textbook():
    x = np.random.default_rng(0).standard_normal(50)
    present = np.arange(52) < 50
    error, _ = compute_clustered_error(np.append(x / 50, [0.0, 0.0]), present)
    assert error == pytest.approx(x.std(ddof=1) / math.sqrt(50))
    assert math.isnan(compute_clustered_error(np.ones(1), np.ones(1, dtype=bool))[0])


def test_degrees_of_freedom_are_few_where_one_prompt_dominates():
    parts = np.random.default_rng(1).standard_normal(4000)
    assert compute_clustered_error(parts, np.ones(4000, dtype=bool))[1] > 3500
    parts[0] = 1000.0
    assert compute_clustered_error(parts, np.ones(4000, dtype=bool))[1] < 3


def resampled(data: Dataset, rng: np.random.Generator) -> Dataset:
    """The same with its prompts drawn again; a prompt drawn twice is two."""
    n = len(data.prompts)
    chosen, fold = rng.integers(0, n, n), rng.permutation(n) % N_PROMPT_FOLDS

    def taken(rows: Rows) -> Rows:
        return dataclasses.replace(rows[chosen], prompt=np.arange(n), fold=fold)

    again = with_logprob(data, data.target_logprob["target"][chosen])
    return dataclasses.replace(
        again,
        logged_rows=taken(data.logged_rows),
        logging_logprob=data.logging_logprob[chosen],
        fresh_draws={"target": taken(data.fresh_draws["target"])},
    )


@pytest.mark.parametrize("name", ["snips", "calibrated_ips", "dr_cpo", "direct"])
def test_the_standard_error_is_that_of_a_bootstrap_which_fits_everything_again(
    name: str,
):
    """120 resamples: their standard deviation is known to 6.5%; three times that is allowed."""
    data, rng = draw(5, shift=0.5, labelled=0.3), np.random.default_rng(6)
    values = [estimate(name, resampled(data, rng)).value for _ in range(120)]
    assert estimate(name, data).std_error == pytest.approx(np.std(values), rel=0.2)


def test_four_times_the_labels_halve_their_part_of_the_error():
    """.04 of the labels beside .03 is .05; with 400 labels .02 beside .03; .059 is out of reach."""
    now = Estimate(
        value=0.5,
        std_error=0.05,
        degrees_of_freedom=1e9,
        n=1000,
        influence=np.zeros(1),
        influence_labels=np.zeros(1),
        std_error_labels=0.04,
        n_labels=100,
    )
    wanted = [1.959964 * math.hypot(0.02, 0.03), 0.059]
    budget = plan_label_budget(now, wanted, max_labels=1000)
    assert budget["half_width"] == pytest.approx(1.96 * 0.05, rel=1e-4)
    assert budget["half_width_at_best"] == pytest.approx(1.96 * 0.03, rel=1e-4)
    assert list(budget["labels_for"].values()) == [400, None]
