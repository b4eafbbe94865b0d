"""The input of an estimator: one policy's data, weights and calibrated scores; and its output.

An estimate is a sum of calibrated scores f(s) and of residuals y - f(s),

    v = sum_r u_r f(s_r) + sum_r w_r (y_r - f(s_r)),

where f itself is an average of labels: v moves with label j by l_j = w_j + gradient_j. To first
order, with the pooled blocks of the isotonic fit kept, its error is

    sum_r u_r (f(s_r) - v) + sum_j l_j (y_j - f(s_j)).

The second sum is the error from a finite number of labels. Summed by prompt, the terms give the
clustered standard error (Liang and Zeger 1986). Residuals are of curves that were fitted without
the prompt, which is conservative.

Letters: n logged rows with both log-probabilities, r fresh draws or rows in general, m labelled
rows that the calibration is fitted to, g prompts.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from elo_exp.analysis.bounded_means import MIN_LEVEL
from elo_exp.arrays import Array, Mask
from elo_exp.oracle.calibration import Calibration, CurveValues
from elo_exp.oracle.data import (
    MIN_CALIBRATION_LABELS,
    Dataset,
    NotEstimableError,
    Rows,
)
from elo_exp.oracle.importance_weights import ImportanceWeights
from elo_exp.oracle.label_means import (
    LabelMean,
    ReachFunction,
    assume_equal_labels,
    average_residuals,
    compute_exact_reach,
)
from elo_exp.oracle.weights import balance_scores, effective_sample_size
from elo_exp.ratings.leaderboard import t_quantile

_MAX_RELATIVE_P_VALUE_ERROR = 1e-3
# Relative to the scale: labels whose error is smaller are all alike
_MIN_RELATIVE_SPREAD = 1e-9
# A part of an estimate: sum_r u_r f(s_r) + w_r (y_r - f(s_r)) as (readings of f, u (r,), w (r,)).
EstimateTerm = tuple[CurveValues, Array | float, Array | float]
# What an estimator may require.
RAW_WEIGHTS = "raw_weights"
CALIBRATED_WEIGHTS = "calibrated_weights"
FRESH_DRAWS = "fresh_draws"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its standard error over prompts and the influence (g,) of each prompt."""

    value: float
    std_error: float
    degrees_of_freedom: float
    n: int
    influence: Array
    influence_labels: Array  # (g,) the part of it that more labels shrink
    std_error_labels: float = 0.0
    n_labels: int = 0
    n_own: int = 0  # of them, labels of the policy's own draws
    # Of the labels whose residuals correct it, (sum w)^2 / sum w^2; None where none do.
    effective_labels: float | None = None
    ess: float | None = None
    # Ends of the 95% interval where they are not value +- half_width.
    bounded_interval: tuple[float, float] | None = None
    # The labels that it rests on, where bounds of a bounded mean hold for them
    labels: LabelMean | None = None
    # (g,) the part of the influence that these bounds do not cover; None: all but influence_labels
    influence_outside_bounds: Array | None = None

    @classmethod
    def from_influences(
        cls,
        value: float,
        influence: Array,
        influence_labels: Array,
        present: Mask,
        **numbers: Any,
    ) -> Self:
        """Add the errors that these influences (g,) of prompts come to, `present` ones taking part."""
        std_error, degrees_of_freedom = compute_clustered_error(influence, present)
        return cls(
            value=value,
            std_error=std_error,
            degrees_of_freedom=degrees_of_freedom,
            influence=influence,
            influence_labels=influence_labels,
            std_error_labels=compute_clustered_error(influence_labels, present)[0],
            **numbers,
        )

    @property
    def half_width(self) -> float:
        """Of the 95% interval."""
        return self.half_width_at(0.95)

    def half_width_at(self, level: float) -> float:
        return float(t_quantile(self.degrees_of_freedom, level=level) * self.std_error)

    @property
    def interval_half_length(self) -> float:
        """Half the length of the interval."""
        low, high = self.interval
        return (high - low) / 2 if self.bounded_interval else self.half_width

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95% interval, which may lie beyond the scale."""
        return self.bounded_interval or (
            self.value - self.half_width,
            self.value + self.half_width,
        )

    @property
    def influence_beside_labels(self) -> Array:
        """(g,) the part of the influence that bounds of the labels' mean do not cover."""
        if self.influence_outside_bounds is not None:
            return self.influence_outside_bounds
        return self.influence - self.influence_labels if self.labels else self.influence

    @property
    def error_beside_labels(self) -> tuple[float, float]:
        """Standard error and degrees of freedom of the part outside the bounds of the labels' mean."""
        influence = self.influence_beside_labels
        return compute_clustered_error(influence, influence != 0)

    def reach_at(
        self, labels: ReachFunction | None, alpha: float
    ) -> tuple[float, float]:
        """Return how far below and above the value the truth may be, each side with error alpha.

        As far as Student's t and the bounds of the labels' mean both allow; infinitely far where no
        error is known.

        labels  the bounds of `self.labels`, None where it has none
        """
        level = 1.0 - 2.0 * alpha
        t_half_width = (
            float(t_quantile(self.degrees_of_freedom, level=level)) * self.std_error
        )
        if labels is None:
            t_half_width = math.inf if not t_half_width > 0.0 else t_half_width
            return t_half_width, t_half_width
        below, above = self.combine_with_label_bounds(labels(alpha), level)
        t_half_width = float(np.nan_to_num(t_half_width))
        return max(t_half_width, below), max(t_half_width, above)

    def compute_p_value(self, labels: ReachFunction | None) -> float:
        """Return the two-sided p value of zero, by the intervals of `reach`; NaN if no error is known."""
        from scipy.special import stdtr

        size, p_value = abs(self.value), math.nan
        if self.std_error > 0:
            df = self.degrees_of_freedom
            p_value = 2.0 * float(stdtr(df, -size / self.std_error))
        if labels is None:
            return p_value
        side, lower, upper = int(self.value < 0), MIN_LEVEL, 0.5
        if self.reach_at(labels, lower)[side] <= size:
            return 2.0 * lower
        while upper > (1.0 + _MAX_RELATIVE_P_VALUE_ERROR) * lower:
            middle = math.sqrt(lower * upper)
            if self.reach_at(labels, middle)[side] <= size:
                upper = middle
            else:
                lower = middle
        return 2.0 * upper

    def combine_with_label_bounds(
        self, label_bounds: tuple[float, float], level: float
    ) -> tuple[float, float]:
        """Add the error of all but the labels to bounds of theirs."""
        std_error, df = self.error_beside_labels
        half_width = float(t_quantile(df, level=level) * np.nan_to_num(std_error))
        below, above = np.hypot(label_bounds, half_width).tolist()
        return below, above

    @property
    def variance_of_prompts(self) -> float:
        """The variance with unlimited labels."""
        return max(self.std_error**2 - self.std_error_labels**2, 0.0)

    def count_labels_for_half_width(self, half_width: float) -> float:
        """Count the labels for a 95% interval of this half-width, if everything else stays equal."""
        beyond = max(self.interval_half_length - self.half_width, 0.0)
        return self.count_labels_for_reach(
            half_width, float(t_quantile(math.inf)), beyond
        )

    def count_labels_for_reach(
        self, reach: float, times: float, beyond: float
    ) -> float:
        """Count the labels at which `times` standard errors plus `beyond` equal a reach, if everything else stays equal.

        The labels' part of the variance is extrapolated as 1 / n_labels, and so is `beyond`, how much
        farther the bounds of a bounded mean reach now; the rest stays as it is.
        """
        allowed_variance = reach**2 - times**2 * self.variance_of_prompts
        if not allowed_variance > 0 or not math.isfinite(beyond):
            return math.inf
        excess = self.n_labels * beyond
        linear = (
            2 * reach * excess + self.n_labels * (times * self.std_error_labels) ** 2
        )
        root = math.sqrt(max(linear**2 - 4 * excess**2 * allowed_variance, 0.0))
        return (linear + root) / (2 * allowed_variance)


@runtime_checkable
class Estimator(Protocol):
    @property
    def requires(self) -> tuple[str, ...]:
        """The evidence that it uses and that must pass the checks: RAW_WEIGHTS, CALIBRATED_WEIGHTS, FRESH_DRAWS.

        `estimate` is called only with evidence that has it.
        """

    @abstractmethod
    def estimate(self, evidence: PolicyEvidence) -> Estimate:
        """Return the estimate. Raises NotEstimableError if the evidence is not enough."""


@dataclass(frozen=True, kw_only=True)
class PolicyEvidence:
    """One policy's part of the data, and the quantities that estimators derive from it."""

    data: Dataset
    policy: str
    calibration: Calibration
    _estimates: list[tuple[Estimator, Estimate]] = field(default_factory=list)

    def estimate(self, estimator: Estimator) -> Estimate:
        """Estimate, once for equal estimators, as some are made of others.

        Raises NotEstimableError where the policy lacks what the estimator requires.
        """
        for previous, estimate in self._estimates:
            if previous == estimator:
                return estimate
        weight_kinds = {RAW_WEIGHTS, CALIBRATED_WEIGHTS}.intersection(
            estimator.requires
        )
        if weight_kinds and not np.isfinite(self.weights.log_ratio).any():
            raise NotEstimableError("no log-probabilities")
        if not len(self.fresh) and FRESH_DRAWS in estimator.requires:
            raise NotEstimableError("no samples of its own")
        estimate = self.add_ends(estimator.estimate(self))
        self._estimates.append((estimator, estimate))
        return self._estimates[-1][1]

    @cached_property
    def has_logprobs(self) -> Mask:
        """Mask of the logged rows with both log-probabilities."""
        return np.isfinite(self.data.log_ratio(self.policy))

    @cached_property
    def logged(self) -> Rows:
        """(n,) empty without log-probabilities."""
        return self.data.logged_rows[self.has_logprobs]

    @cached_property
    def logged_reading(self) -> CurveValues:
        """Cross-fitted calibrated scores of the logged rows."""
        return self.calibration(self.logged)

    @cached_property
    def weights(self) -> ImportanceWeights:
        """Importance weights of the logged rows."""
        return ImportanceWeights(
            rows=self.logged,
            log_ratio=self.data.log_ratio(self.policy)[self.has_logprobs],
            n_prompts=self.n_prompts,
        )

    @cached_property
    def fresh(self) -> Rows:
        """(r,) empty without fresh draws."""
        return self.data.fresh_draws.get(self.policy, self.data.logged_rows[:0])

    @cached_property
    def fresh_reading(self) -> CurveValues:
        """Cross-fitted calibrated scores of the fresh draws."""
        return self.calibration(self.fresh)

    @property
    def draw_weights(self) -> Array:
        """(r,) equal for all prompts, and within a prompt for all its draws. Sum to one."""
        return self.fresh.prompt_weights

    @cached_property
    def own_labels(self) -> tuple[CurveValues, Array]:
        """Labelled answers of the policy itself, from the probe file, otherwise from its samples, with their weights.

        The weights of samples are such that together they give the mean label.
        """
        if (probe := self.data.probe_draws.get(self.policy)) is not None:
            probe = probe[probe.is_labelled]
            return self.calibration(probe), probe.label_weights
        labelled = self.fresh.is_labelled
        weight = self.draw_weights * self.fresh.label_weights
        return self.calibration(self.fresh[labelled]), weight[labelled]

    @property
    def n_own_prompts(self) -> int:
        """Count the prompts, or their clusters, on which answers of its own are labelled."""
        return len(np.unique(self.own_labels[0].rows.prompt))

    @property
    def is_logging_policy(self) -> bool:
        """Whether the calibration is the policy's own."""
        return self.policy == self.data.logging_policy

    @property
    def n_prompts(self) -> int:
        return len(self.data.prompts)

    @cached_property
    def labelled(self) -> Mask:
        """(n,) which logged rows have a label. Raises NotEstimableError for too few."""
        labelled = self.logged.is_labelled
        if labelled.sum() < MIN_CALIBRATION_LABELS:
            raise NotEstimableError(
                f"{labelled.sum()} labels among the logged answers, {MIN_CALIBRATION_LABELS} needed"
            )
        return labelled

    def compute_residual_weights(self, weight: Array) -> Array:
        """(n,) the weights of the labelled rows, scaled to sum to one; zero for other rows."""
        weight = weight * self.logged.label_weights
        return _normalize_weights(np.where(self.labelled, weight, 0.0))

    @cached_property
    def rows_per_label(self) -> Array:
        """(n,) how many logged rows a label stands for, if it is given; known chances count."""
        weight = self.logged.label_weights
        return np.asarray(weight * len(weight) / weight[self.labelled].sum())

    def estimate_corrected_mean(
        self, reading: CurveValues, weight: Array, *, n_own: int = 0
    ) -> Estimate:
        """Return the mean f(s) of the fresh draws plus the weighted mean of y - f(s) of rows.

        weight  (r,) of rows with a label, zero of others; scaled to sum to one
        n_own   labels among them of the policy's own answers, by whose bounds the ends are
        """
        is_probe = (
            reading is not self.fresh_reading and self.policy in self.data.probe_draws
        )
        estimate = self.estimate_sum(
            (self.fresh_reading, self.draw_weights, 0.0),
            (reading, 0.0, weight / weight.sum()),
            n_own=n_own,
            n_probe=n_own if is_probe else 0,
            labels=self.compute_label_mean(reading, weight) if n_own else None,
        )
        if estimate.labels is None:
            return self.add_ends(estimate)
        reach = compute_exact_reach(estimate.labels, self.data.scale)
        below, above = estimate.combine_with_label_bounds(reach, 0.95)
        return replace(
            estimate, bounded_interval=(estimate.value - below, estimate.value + above)
        )

    def add_ends(self, estimate: Estimate, level: float = 0.0) -> Estimate:
        """Give labels that are all alike the error of a bounded mean instead of zero.

        They are as many as their weights come to. Estimates by own labels have such ends already.

        level  of a mean residual, the mean calibrated score of its labels
        """
        n, scale = estimate.effective_labels, self.data.scale
        is_alike = estimate.std_error_labels <= _MIN_RELATIVE_SPREAD * scale.width
        if estimate.n_own or not n or not is_alike:
            return estimate
        labels = assume_equal_labels(
            n,
            n_prompts=self.n_prompts,
            lowest=min(scale.low - level - estimate.value, 0.0),
            highest=max(scale.high - level - estimate.value, 0.0),
        )
        (reach,) = LabelMean.bound_means([labels])
        estimate = replace(estimate, labels=labels)
        below, above = estimate.reach_at(reach, 0.025)
        return replace(
            estimate, bounded_interval=(estimate.value - below, estimate.value + above)
        )

    def compute_label_mean(self, reading: CurveValues, weight: Array) -> LabelMean:
        """Return the mean residual of labels of the fresh draws or of the probe; weight (r,), zero without a label."""
        probe = self.data.probe_draws.get(self.policy)
        is_fresh = reading is self.fresh_reading
        answers = self.fresh if probe is None or is_fresh else probe
        return average_residuals(
            reading,
            weight,
            answers=answers,
            n_prompts=self.n_prompts,
            scale=self.data.scale,
        )

    @cached_property
    def balancing_weights(self) -> Array:
        """(m,) weights of all labels that give their scores the distribution of the draws'. Sum to one."""
        return _normalize_weights(balance_scores(self.calibration.rows, self.fresh))

    @cached_property
    def borrowed_estimate(self) -> Estimate:
        """Correct by logged labels, weighted so that their scores are distributed as the draws'."""
        return self.estimate_corrected_mean(
            self.calibration.label_reading, self.balancing_weights
        )

    def estimate_sum(
        self,
        *terms: EstimateTerm,
        extra_influence: Array | float = 0.0,
        centre: float | None = None,
        n_probe: int = 0,
        **numbers: Any,
    ) -> Estimate:
        """Return the sum of terms of one calibration with its standard error over prompts.

        extra_influence  (g,) of the prompts by other ways, such as estimated weights
        centre           subtracted from calibrated scores, by default the value: for weights scaled
                         to sum to one. Zero for weights that are not scaled
        n_probe          labels that take part, and that the calibration was not fitted to
        numbers          n_own and ess, of the Estimate
        """
        value = float(
            sum(
                np.sum(u * reading.value + w * reading.residual)
                for reading, u, w in terms
            )
        )
        g, at_labels = self.n_prompts, terms[0][0].fit.label_reading
        score_influence, label_influence = np.zeros(g) + extra_influence, np.zeros(g)
        gradient = np.zeros(len(at_labels.rows))
        present = np.zeros(g, dtype=bool)
        present[at_labels.rows.prompt] = True
        weights = []
        for reading, score_weight, residual_weight in terms:
            prompt = reading.rows.prompt
            deviation = reading.value - (value if centre is None else centre)
            score_influence += np.bincount(prompt, score_weight * deviation, g)
            residual = residual_weight * centre_residuals(reading, residual_weight)
            label_influence += np.bincount(prompt, residual, g)
            gradient += reading.gradient(np.subtract(score_weight, residual_weight))
            present[prompt] = True
            weights.append(np.broadcast_to(residual_weight, len(prompt)))
        label_influence += np.bincount(
            at_labels.rows.prompt, gradient * at_labels.residual, g
        )
        all_weights = np.concatenate(weights)
        return Estimate.from_influences(
            value,
            score_influence + label_influence,
            label_influence,
            present,
            n=len(terms[0][0].rows),
            n_labels=len(at_labels.rows) + n_probe,
            effective_labels=effective_sample_size(all_weights)
            if all_weights.any()
            else None,
            **numbers,
        )


def centre_residuals(reading: CurveValues, weight: Array | float) -> Array:
    """(r,) residuals minus their weighted mean, as for label weights that sum to a constant."""
    total = np.sum(weight)
    return reading.residual - (
        np.sum(weight * reading.residual) / total if total else 0.0
    )


def _normalize_weights(weight: Array) -> Array:
    if weight.sum() <= 0:
        raise NotEstimableError("no labels at its scores")
    return np.asarray(weight / weight.sum())


def compute_clustered_error(influence: Array, present: Mask) -> tuple[float, float]:
    """Return the standard error of a sum over independent prompts and its degrees of freedom.

    influence  (g,) of each prompt
    present    (g,) which prompts take part
    Degrees of freedom are those of the variance estimate itself, 2 g / (kurtosis - 1): nearly g for
    normal influences, few where few prompts dominate. NaN for fewer than two prompts.
    """
    g = int(present.sum())
    if g < 2:
        return math.nan, 1.0
    deviation = influence[present] - influence[present].mean()
    largest = float(np.abs(deviation).max())
    if largest <= 0.0:
        return 0.0, g - 1.0
    squares = (deviation / largest) ** 2
    std_error = largest * math.sqrt(g / (g - 1) * float(squares.sum()))
    return std_error, estimate_degrees_of_freedom(squares)


def estimate_degrees_of_freedom(squares: Array) -> float:
    """Return those of a variance that is a sum of squared deviations (g,): 2 g / (kurtosis - 1), 1 to g - 1."""
    g = len(squares)
    kurtosis = g * float((squares**2).sum() / squares.sum() ** 2)
    return float(np.clip(2 * g / max(kurtosis - 1, 1e-9), 1.0, g - 1.0))
