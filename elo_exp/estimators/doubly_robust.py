"""Doubly robust estimates: an outcome model's mean over the policy's samples, corrected by residuals.

    v = mean g(s') + sum_j w_j (y_j - g(s_j)) / sum_j w_j   over the labelled logged rows j

is consistent where either the model g or the weights w are right. Raw weights are right even where
a score means something else for the policy; they need labels, see docs/oracle_explained.md. Weights that are
calibrated on the score (SIMCal) protect from a wrong curve, and from nothing else.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from elo_exp.arrays import Array
from elo_exp.oracle.calibration import (
    CurveValues,
    fit_calibration,
    fit_epsilon,
    tmle_update,
)
from elo_exp.oracle.evidence import (
    CALIBRATED_WEIGHTS,
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Estimate,
    PolicyEvidence,
    centre_residuals,
    compute_clustered_error,
)
from elo_exp.oracle.weights import effective_sample_size, find_minimum_variance_mixture

Weights = Literal["raw", "simcal"]
Omega = Literal["w", "w2", "snips"]  # weight in an outcome model: w, w^2 or (w - 1)^2
_MIN_OMEGA = 1e-8
# Probabilities are clipped to [minimum, 1 - minimum] before their logit
_MIN_PROBABILITY = 1e-3
_STACKING_RIDGE_PER_TRACE = 1e-8


@dataclass(kw_only=True)
class DrCpo:
    """The outcome model g is the calibration f itself; Dudik, Langford and Li (2011).

    weights  of the residuals: raw, clipped at 100, or simcal, functions of the judge's score
    """

    weights: Weights

    @property
    def requires(self) -> tuple[str, ...]:
        weights = RAW_WEIGHTS if self.weights == "raw" else CALIBRATED_WEIGHTS
        return (weights, FRESH_DRAWS)

    def weight(self, evidence: PolicyEvidence) -> Array:
        return (
            evidence.weights.clipped
            if self.weights == "raw"
            else evidence.weights.calibrated
        )

    def model(self, evidence: PolicyEvidence) -> tuple[CurveValues, CurveValues]:
        """Return the outcome model's values (n,) of the logged rows and (r,) of the draws."""
        return evidence.logged_reading, evidence.fresh_reading

    def estimate(self, evidence: PolicyEvidence) -> Estimate:
        logged, fresh = self.model(evidence)
        weight = self.weight(evidence)
        residual_weight = evidence.compute_residual_weights(weight)
        influence: Array | float = 0.0
        if self.weights == "simcal":
            # Of estimating the weights: zero on average where the model fits at each score.
            per_label = evidence.logged.label_weights
            scale = weight.sum() / (weight * per_label)[evidence.labelled].sum()
            residual = centre_residuals(logged, residual_weight) * scale * per_label
            influence = evidence.weights.compute_influence(
                np.where(evidence.labelled, residual, 0.0)
            )
        return evidence.estimate_sum(
            (logged, 0.0, residual_weight),
            (fresh, evidence.draw_weights, 0.0),
            extra_influence=influence,
            ess=effective_sample_size(weight),
        )


@dataclass(kw_only=True)
class Mrdr(DrCpo):
    """The outcome model is fitted by weights omega of the rows; Farajtabar et al. (2018)."""

    omega: Omega

    def model(self, evidence: PolicyEvidence) -> tuple[CurveValues, CurveValues]:
        labelled, w = evidence.labelled, self.weight(evidence)[evidence.labelled]
        omega = {"w": w, "w2": w**2, "snips": (w - 1.0) ** 2}[self.omega]
        rows = evidence.logged[labelled]
        omega = np.maximum(omega, _MIN_OMEGA) * rows.label_weights
        model = fit_calibration(rows, omega)
        return model(evidence.logged), model(evidence.fresh)


@dataclass(kw_only=True)
class Tmle(DrCpo):
    """The calibration, updated so that weighted residuals vanish; van der Laan and Rubin (2006).

    logit g* = logit g + epsilon w(s), by weights that are functions of the score, so that fresh
    draws have one too; what remains is corrected by `weights`.
    """

    def model(self, evidence: PolicyEvidence) -> tuple[CurveValues, CurveValues]:
        labelled, scale = evidence.labelled, evidence.data.scale
        logged, w = evidence.logged_reading, evidence.weights.reading
        values, label = (
            (values[labelled] - scale.low) / scale.width
            for values in (logged.value, evidence.logged.label)
        )
        epsilon = fit_epsilon(values, label, w.value[labelled], edge=_MIN_PROBABILITY)

        def update(reading: CurveValues, weight: Array) -> CurveValues:
            share = (reading.value - scale.low) / scale.width
            value = tmle_update(share, epsilon * weight, edge=_MIN_PROBABILITY)
            return replace(reading, value=scale.low + scale.width * value)

        fresh = update(evidence.fresh_reading, w.fit(evidence.fresh).value)
        return update(logged, w.value), fresh


@dataclass(kw_only=True)
class StackedDr(DrCpo):
    """The mixture of the three other estimates with the smallest variance over prompts."""

    omega: Omega

    def estimate(self, evidence: PolicyEvidence) -> Estimate:
        mrdr = Mrdr(weights=self.weights, omega=self.omega)
        estimators = (DrCpo(weights=self.weights), Tmle(weights=self.weights), mrdr)
        estimates = [evidence.estimate(estimate) for estimate in estimators]
        influences = np.stack([estimate.influence for estimate in estimates])
        covariance = np.cov(influences)
        mixture = find_minimum_variance_mixture(
            covariance, ridge=_STACKING_RIDGE_PER_TRACE * float(np.trace(covariance))
        )
        influence = mixture @ influences
        std_error, degrees_of_freedom = compute_clustered_error(
            influence, (influences != 0).any(axis=0)
        )
        return replace(
            estimates[0],
            value=float(mixture @ [estimate.value for estimate in estimates]),
            std_error=std_error,
            degrees_of_freedom=degrees_of_freedom,
            influence=influence,
            std_error_labels=float(
                mixture @ [estimate.std_error_labels for estimate in estimates]
            ),
        )
