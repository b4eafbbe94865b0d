"""What a grid shows: errors, coverage and refusals by policy and status, and how policies are ranked.

A refused estimate never enters the mean of others. Letters: as in grid.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from elo_exp.analysis.win_rates import share_interval
from elo_exp.arrays import Array, Mask, one_row
from elo_exp.oracle.gates import REFUSE, STATUSES
from elo_exp.oracle.grid import FIELDS, Grid

Row = dict[str, Any]  # of grid.csv

GIVEN, ALL = "given", "all policies"  # not refused; of the column `policy`
JUDGE = "judge"  # the calibration that takes scores for labels
_MISS = 40.0  # 2 / .05, of a 95 % interval
_ERRORS = ("bias", "rmse", "mae", "rmse_judge")
_INTERVALS = ("coverage", "coverage_low", "coverage_high", "interval_score")
_RANKINGS = ("pairwise_accuracy", "kendall_tau", "top_1")
_NUMBERS = dict.fromkeys(("effective_labels", *_ERRORS, *_INTERVALS, *_RANKINGS))


def score(grid: Grid) -> list[Row]:
    """Return the rows of grid.csv.

    n           estimates of this status
    n_draws     with such an estimate
    share       of them in all; 1 - share of `given` is the refusal rate
    rmse_judge  of the judge's mean scores of the same policies in the same draws
    Errors are estimate minus truth. Intervals are scored for samples of up to half of the file:
    beyond, the truth is largely made of the sample itself.
    """
    rows = []
    truth = np.array([grid.truth[policy].mean for policy in grid.data.policies])
    for (size, label_share), found in grid.read().items():
        has_coverage = 2 * size <= len(grid.data.prompts)
        judge = np.full(found[:, 0, :, 0, 0].shape, np.nan)
        if JUDGE in grid.calibrations and "direct" in grid.names:
            at_judge = grid.calibrations.index(JUDGE), grid.names.index("direct")
            judge = found[:, at_judge[0], :, at_judge[1], 1] - truth
        for i, calibration in enumerate(grid.calibrations):
            for j, name in enumerate(grid.names):
                estimator, _, weights = name.partition(" ")
                at: Row = {"size": size, "label_share": label_share}
                at |= {"calibration": calibration, "estimator": estimator}
                one = found[:, i, :, j]
                some = _by_policy(grid, one, truth, judge, has_coverage)
                rows += [{**at, "weights": weights, **row} for row in some]
    return rows


def _by_policy(
    grid: Grid, found: Array, truth: Array, judge: Array, has_coverage: bool
) -> Iterator[Row]:
    """Of estimates (s, p, f), and errors (s, p) of the judge's mean scores."""
    status, value, half_width, labels = (found[..., k] for k in range(len(FIELDS)))
    error = value - truth
    columns = {policy: [p] for p, policy in enumerate(grid.data.policies)}
    for policy, own in {ALL: list(range(len(truth))), **columns}.items():
        for name in (GIVEN, *STATUSES):
            chosen = status[:, own] < STATUSES.index(REFUSE)
            if name != GIVEN:
                chosen = status[:, own] == STATUSES.index(name)
            if name != GIVEN and not chosen.any():
                continue
            numbers = _errors(
                chosen,
                error=error[:, own],
                half_width=half_width[:, own],
                labels=labels[:, own],
                judge=judge[:, own],
                has_coverage=has_coverage,
            )
            if (policy, name) == (ALL, GIVEN):
                numbers |= _ranking(value, chosen, truth)
            yield one_row(
                policy=policy,
                status=name,
                n=chosen.sum(),
                n_draws=chosen.any(axis=1).sum(),
                share=chosen.mean(),
                **{**_NUMBERS, **numbers},
            )


def _errors(
    chosen: Mask,
    *,
    error: Array,
    half_width: Array,
    labels: Array,
    judge: Array,
    has_coverage: bool,
) -> dict[str, float]:
    """The Wilson interval of the coverage counts draws, as policies share their prompts."""
    known = chosen & np.isfinite(error)
    if not known.any():
        return {}
    e, h = error[known], half_width[known]
    found = {
        "bias": e.mean(),
        "rmse": np.sqrt((e**2).mean()),
        "mae": np.abs(e).mean(),
        "rmse_judge": np.sqrt((judge[known] ** 2).mean()),
    }
    if np.isfinite(labels[known]).any():
        found["effective_labels"] = np.nanmean(labels[known])
    if has_coverage:
        beyond = np.maximum(np.abs(e) - h, 0.0)
        coverage = float((beyond == 0).mean())
        low, high = share_interval(coverage, int(known.any(axis=1).sum()))
        found |= {"coverage": coverage, "coverage_low": low, "coverage_high": high}
        found["interval_score"] = (2 * h + _MISS * beyond).mean()
    return found


def _ranking(value: Array, given: Mask, truth: Array) -> dict[str, float]:
    """Compare the order of the policies that are given in a draw with the true one.

    Pairwise accuracy and Kendall's tau-b are means over the draws that have a pair; a refused best
    policy is missed.
    """
    a, b = np.triu_indices(len(truth), k=1)
    known = given[:, a] & given[:, b] & (truth[a] != truth[b])
    found = np.where(known, np.sign(value[:, a] - value[:, b]), 0.0)
    agrees = found * np.sign(truth[a] - truth[b])
    n_pairs, n_untied = known.sum(axis=1), (found != 0).sum(axis=1)
    has_pair = n_untied > 0
    best = np.where(given, value, -np.inf).argmax(axis=1)
    is_best = given[np.arange(len(given)), best] & (truth[best] == truth.max())
    numbers = {"top_1": is_best.mean()}
    if has_pair.any():
        accuracy = (agrees > 0).sum(axis=1)[has_pair] / n_pairs[has_pair]
        tau = agrees.sum(axis=1)[has_pair] / np.sqrt(n_pairs * n_untied)[has_pair]
        numbers |= {"pairwise_accuracy": accuracy.mean(), "kendall_tau": tau.mean()}
    return numbers
