"""The input of an estimator: the data of one policy, its weights and its calibrated scores.

Letters: n logged rows with both log-probabilities, r fresh draws, m labelled rows that the
calibration is fitted to, g prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from elo_exp.arrays import Array, Mask
from elo_exp.oracle.calibration import Calibration, CrossFit
from elo_exp.oracle.data import MIN_LABELS, Dataset, Rows
from elo_exp.oracle.influence import Estimate, Term, linear_estimate
from elo_exp.oracle.weights import (
    MAX_WEIGHT,
    calibrate_weights,
    clipped,
    hajek_weights,
)

_MAX_BINS, _LABELS_PER_BIN = 20, 5
# What an estimator may require.
RAW_WEIGHTS = "raw_weights"
CALIBRATED_WEIGHTS = "calibrated_weights"
FRESH_DRAWS = "fresh_draws"


class NotEstimableError(Exception):
    """The data lack what an estimator needs for this policy; the message says what."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One policy's part of the data, and what estimators derive from it."""

    data: Dataset
    policy: str
    calibration: Calibration

    @cached_property
    def chosen(self) -> Mask:
        """Which logged rows are used: those with both log-probabilities."""
        return np.isfinite(self.data.log_ratio(self.policy))

    @cached_property
    def logged(self) -> Rows:
        """(n,) empty without log-probabilities."""
        return self.data.logged[self.chosen]

    @cached_property
    def log_ratio(self) -> Array:
        """(n,) nats, target minus logging log-probability."""
        return self.data.log_ratio(self.policy)[self.chosen]

    @cached_property
    def fresh(self) -> Rows:
        """(r,) empty without fresh draws."""
        return self.data.fresh.get(self.policy, self.data.logged[:0])

    @cached_property
    def own(self) -> Rows:
        """Labelled answers of the policy itself: of the probe, else those among its fresh draws."""
        answers = self.data.probe.get(self.policy, self.fresh)
        return answers[answers.labelled]

    @cached_property
    def own_weights(self) -> Array:
        """Of `own`: those of the draws, with which all of them come to the mean label."""
        if self.policy in self.data.probe:
            return np.ones(len(self.own))
        return self.draw_weights[self.fresh.labelled]

    @property
    def is_logging_policy(self) -> bool:
        """Whether the calibration is the policy's own."""
        return self.policy == self.data.logging_policy

    @property
    def n_prompts(self) -> int:
        return len(self.data.prompts)

    def check(self, requires: Sequence[str]) -> None:
        """Raise NotEstimableError where the policy lacks what an estimator requires."""
        weighted = {RAW_WEIGHTS, CALIBRATED_WEIGHTS}.intersection(requires)
        if weighted and not np.isfinite(self.log_ratio).any():
            raise NotEstimableError("no log-probabilities")
        if not len(self.fresh) and FRESH_DRAWS in requires:
            raise NotEstimableError("no fresh draws")

    @cached_property
    def labelled(self) -> Mask:
        """(n,) which logged rows have a label. Raises NotEstimableError for too few."""
        labelled = self.logged.labelled
        if labelled.sum() < MIN_LABELS:
            raise NotEstimableError(
                f"{labelled.sum()} labels among its logged rows, {MIN_LABELS} needed"
            )
        return labelled

    @cached_property
    def hajek(self) -> Array:
        """(n,) raw importance weights, scaled to mean one."""
        return hajek_weights(self.log_ratio)

    @cached_property
    def weight_curves(self) -> CrossFit:
        """Weights as functions of the score. Raises NotEstimableError for too few rows."""
        largest_fold = int(np.bincount(self.logged.fold, minlength=1).max())
        if len(self.logged) - largest_fold < MIN_LABELS // 2:
            raise NotEstimableError(
                f"{len(self.logged)} rows with log-probabilities, too few for curves"
            )
        return calibrate_weights(self.hajek, self.logged)

    @cached_property
    def calibrated(self) -> Array:
        """(n,) weights calibrated on the judge's score, about one on average."""
        return self.weight_curves(self.logged)

    @cached_property
    def cut(self) -> Array:
        """(n,) raw weights of mean one, clipped at 100."""
        return clipped(self.hajek, MAX_WEIGHT)

    def residual_weights(self, weight: Array) -> Array:
        """(n,) the weights of the labelled rows, scaled to sum to one; zero of the others."""
        return _normalized(np.where(self.labelled, weight, 0.0))

    @cached_property
    def balancing_weights(self) -> Array:
        """(m,) weights of all labels that give their scores the distribution of the draws'.

        In bins of equally many labels, at most 20 and of at least 5 labels each. Sum to one.
        """
        score = self.calibration.rows.score
        n_bins = max(1, min(_MAX_BINS, len(score) // _LABELS_PER_BIN))
        edges = np.unique(np.quantile(score, np.arange(1, n_bins) / n_bins))
        bins = np.searchsorted(edges, score, side="right")
        draw_bins = np.searchsorted(edges, self.fresh.score, side="right")
        share = np.bincount(draw_bins, self.draw_weights, len(edges) + 1)
        n_labels = np.bincount(bins, minlength=len(edges) + 1)
        return _normalized((share / np.maximum(n_labels, 1))[bins])

    @property
    def draw_weights(self) -> Array:
        """(r,) equal for all prompts, and within a prompt for all its draws. Sum to one."""
        return self.fresh.prompt_weights

    def weight_influence(self, u: Array) -> Array:
        """(g,) influence of each prompt on sum_i u_i w_i / sum_i w_i by the curves; u (n,)"""
        gradient = self.weight_curves.gradient(self.logged, u / self.calibrated.sum())
        influence = gradient * (self.hajek - self.calibrated)
        return np.asarray(np.bincount(self.logged.prompt, influence, self.n_prompts))

    @cached_property
    def logged_value(self) -> Array:
        """(n,) cross-fitted calibrated scores of the logged rows."""
        return self.calibration(self.logged)

    @cached_property
    def fresh_value(self) -> Array:
        """(r,) cross-fitted calibrated scores of the fresh draws."""
        return self.calibration(self.fresh)

    def corrected_mean(self, rows: Rows, weight: Array, *, n_own: int = 0) -> Estimate:
        """Return the mean f(s) of the fresh draws plus the weighted mean of y - f(s) of rows.

        weight  (r,) of rows with a label, zero of others; scaled to sum to one
        n_own   labels among them of the policy's own answers
        """
        if not len(self.fresh):
            raise NotEstimableError("no fresh draws")
        f, fresh = self.calibration, self.fresh
        draws = Term(rows=fresh, value=self.fresh_value, on_score=self.draw_weights)
        scaled = weight / weight.sum()
        is_probe = rows is not fresh and self.policy in self.data.probe
        return linear_estimate(
            [draws, Term(rows=rows, value=f(rows), on_residual=scaled)],
            f,
            n_prompts=self.n_prompts,
            n_own=n_own,
            n_probe=n_own if is_probe else 0,
        )

    def borrowed(self) -> Estimate:
        """Correct by logged labels, weighted so that their scores are distributed as the draws'."""
        return self.corrected_mean(self.calibration.rows, self.balancing_weights)


def _normalized(weight: Array) -> Array:
    if weight.sum() <= 0:
        raise NotEstimableError("no labels at scores that it has")
    return np.asarray(weight / weight.sum())
