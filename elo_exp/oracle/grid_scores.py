"""What a grid shows: errors, coverage and refusals by policy and status, and how policies are ranked.

A refused estimate never enters the mean of others. Letters: as in grid.py.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from elo_exp.analysis.win_rates import share_interval
from elo_exp.arrays import Array, Mask, one_row
from elo_exp.oracle.gates import REFUSE, STATUSES
from elo_exp.oracle.grid import Grid

Row = dict[str, Any]  # of grid.csv

GIVEN, ALL = "given", "all policies"  # not refused; of the column `policy`
JUDGE = "judge"  # the calibration that takes scores for labels
_MISS = 40.0  # 2 / .05, of a 95 % interval
_NUMBERS = (
    *("bias", "rmse", "mae", "rmse_judge", "interval_score"),
    *("coverage", "coverage_low", "coverage_high"),
    *("pairwise_accuracy", "kendall_tau", "top_1"),
)


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
    by_policy = {policy: slice(p, p + 1) for p, policy in enumerate(grid.truth)}
    for (size, label_share), found in grid.read().items():
        judge = np.full((len(found), len(truth)), np.nan)
        if JUDGE in grid.calibrations and "direct" in grid.names:
            i, j = grid.calibrations.index(JUDGE), grid.names.index("direct")
            judge = found[:, i, :, j, 1] - truth
        for (i, calibration), (j, name), (policy, own) in product(
            enumerate(grid.calibrations),
            enumerate(grid.names),
            {ALL: slice(None), **by_policy}.items(),
        ):
            status, value, half_width = np.moveaxis(found[:, i, own, j], -1, 0)
            error = value - truth[own]
            estimator, _, weights = name.partition(" ")
            for label in (GIVEN, *STATUSES):
                chosen = status == (GIVEN, *STATUSES).index(label) - 1
                if label == GIVEN:
                    chosen = status < STATUSES.index(REFUSE)
                elif not chosen.any():
                    continue
                row: Row = {
                    "size": size,
                    "label_share": label_share,
                    "calibration": calibration,
                    "estimator": estimator,
                    "weights": weights,
                    "policy": policy,
                    "status": label,
                    "n": chosen.sum(),
                    "n_draws": chosen.any(axis=1).sum(),
                    "share": chosen.mean(),
                    **dict.fromkeys(_NUMBERS),
                }
                known = chosen & np.isfinite(error)
                if known.any():
                    row |= _errors(error[known], judge[:, own][known])
                    if 2 * size <= len(grid.data.prompts):
                        n_draws = int(known.any(axis=1).sum())
                        row |= _intervals(error[known], half_width[known], n_draws)
                if (policy, label) == (ALL, GIVEN):
                    row |= _ranking(value, chosen, truth)
                rows.append(one_row(**row))
    return rows


def _errors(error: Array, judge: Array) -> Row:
    return {
        "bias": error.mean(),
        "rmse": np.sqrt((error**2).mean()),
        "mae": np.abs(error).mean(),
        "rmse_judge": np.sqrt((judge**2).mean()),
    }


def _intervals(error: Array, half_width: Array, n_draws: int) -> Row:
    """The Wilson interval of the coverage counts draws, as policies share their prompts."""
    beyond = np.maximum(np.abs(error) - half_width, 0.0)
    coverage = float((beyond == 0).mean())
    low, high = share_interval(coverage, n_draws)
    return {
        "interval_score": (2 * half_width + _MISS * beyond).mean(),
        "coverage": coverage,
        "coverage_low": low,
        "coverage_high": high,
    }


def _ranking(value: Array, given: Mask, truth: Array) -> Row:
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
