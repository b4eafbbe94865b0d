"""All that is known of one policy, which is what an estimator is given.

Letters: n logged rows with both log-probabilities, r fresh draws, m labelled logged rows, g prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from elo_exp.oracle.calibration import Calibration
from elo_exp.oracle.dataset import MIN_LABELS, Dataset, Rows
from elo_exp.oracle.simcal import CalibratedWeights, calibrated_weights
from elo_exp.oracle.weights import hajek
from elo_exp.statistics.likelihood import Array, Mask

_MAX_BINS, _LABELS_A_BIN = 20, 5
RAW_WEIGHTS, CALIBRATED_WEIGHTS, FRESH_DRAWS = PARTS = (
    "raw_weights",
    "calibrated_weights",
    "fresh_draws",
)


class NotEstimableError(Exception):
    """The data hold nothing that this estimator could estimate the policy from; its text says what is missing."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The logged rows are the policy's own complete cases: those with both of its log-probabilities."""

    policy: str
    prompts: tuple[str, ...]
    n_folds: int
    calibration: Calibration
    rows: Rows
    ratios: Array  # (n,) nats, target minus logging log-probability
    draws: Rows | None

    @property
    def logged(self) -> Rows:
        self._check_rows()
        return self.rows

    @property
    def fresh(self) -> Rows:
        if self.draws is None:
            raise NotEstimableError("no fresh draws")
        return self.draws

    @property
    def log_ratio(self) -> Array:
        """(n,) nats"""
        self._check_rows()
        return self.ratios

    def _check_rows(self) -> None:
        if not len(self.rows):
            raise NotEstimableError("no log-probabilities")

    @cached_property
    def labelled(self) -> Mask:
        """(n,) which logged rows have a label."""
        labelled = self.logged.labelled
        if labelled.sum() < MIN_LABELS:
            raise NotEstimableError(
                f"{labelled.sum()} labels among its logged rows, {MIN_LABELS} needed"
            )
        return labelled

    @cached_property
    def hajek(self) -> Array:
        """(n,) raw weights, scaled to mean one."""
        return hajek(self.log_ratio)

    @cached_property
    def weight_curves(self) -> CalibratedWeights:
        largest = int(np.bincount(self.logged.fold).max())
        if len(self.logged) - largest < MIN_LABELS // 2:
            raise NotEstimableError(
                f"{len(self.logged)} rows with log-probabilities, too few for curves"
            )
        return calibrated_weights(self.hajek, self.logged, n_folds=self.n_folds)

    @cached_property
    def calibrated(self) -> Array:
        """(n,) weights calibrated on the judge's score."""
        return self.weight_curves(self.logged)

    @cached_property
    def of_residual(self) -> Array:
        """(n,) what the residual of each labelled row counts in a doubly robust correction; adds up to one."""
        weight = np.where(self.labelled, self.calibrated, 0.0)
        if weight.sum() <= 0:
            raise NotEstimableError("no labels at scores that it has")
        return np.asarray(weight / weight.sum())

    @cached_property
    def of_balance(self) -> Array:
        """(m,) what each logged label counts, so that their scores are distributed as those of the fresh draws: in
        bins of equally many labels, at most 20 and of at least 5 labels each. Adds up to one."""
        score = self.calibration.labelled.score
        n_bins = max(1, min(_MAX_BINS, len(score) // _LABELS_A_BIN))
        edges = np.unique(np.quantile(score, np.arange(1, n_bins) / n_bins))
        bins = np.searchsorted(edges, score, side="right")
        share = np.bincount(
            np.searchsorted(edges, self.fresh.score, side="right"), self.of_draw, len(edges) + 1
        )
        weight = (share / np.maximum(np.bincount(bins, minlength=len(edges) + 1), 1))[bins]
        if weight.sum() <= 0:
            raise NotEstimableError("no labels at scores that it has")
        return np.asarray(weight / weight.sum())

    def of_weights(self, u: Array) -> Array:
        """(g,) what each prompt's raw weights do to sum_i u_i w_i / sum_i w_i by way of the curves; u (n,)"""
        moved = self.weight_curves.pull(u / self.calibrated.sum())
        part = moved * (self.hajek - self.calibrated)
        return np.asarray(np.bincount(self.logged.prompt, part, len(self.prompts)), dtype=float)

    @cached_property
    def logged_value(self) -> Array:
        """(n,) what the oracle would say of each logged row, by its score."""
        return self.calibration.cross_fitted(self.logged)

    @cached_property
    def fresh_value(self) -> Array:
        """(r,) the same of the fresh draws."""
        return self.calibration.cross_fitted(self.fresh)

    @cached_property
    def of_draw(self) -> Array:
        """(r,) what each draw counts: prompts equally, and the draws of a prompt equally."""
        n_draws = np.bincount(self.fresh.prompt)[self.fresh.prompt]
        return np.asarray(1.0 / n_draws / len(np.unique(self.fresh.prompt)))


def evidence(
    data: Dataset, policy: str, calibration: Calibration, *, complete: Mask | None = None
) -> Evidence:
    """`complete`: the logged rows to use; by default the policy's own complete cases."""
    missing = np.full(len(data.logged), np.nan)
    log_ratio = data.target_logprob.get(policy, missing) - data.logging_logprob
    complete = np.isfinite(log_ratio) if complete is None else complete
    return Evidence(
        policy=policy,
        prompts=data.prompts,
        n_folds=data.n_folds,
        calibration=calibration,
        rows=data.logged[complete],
        ratios=log_ratio[complete],
        draws=data.fresh.get(policy),
    )
