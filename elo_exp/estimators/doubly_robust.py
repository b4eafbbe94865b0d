"""Doubly robust estimates: what an outcome model says of the fresh draws, corrected by weighted logged residuals.

    v = mean g(s') + sum_j w_j (y_j - g(s_j)) / sum_j w_j   over the labelled logged rows j

right where either the model g or the weights w are, as functions of the judge's score. The weights are calibrated ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elo_exp.oracle import calibration, weights
from elo_exp.oracle.calibration import Calibration
from elo_exp.oracle.evidence import CALIBRATED_WEIGHTS, FRESH_DRAWS, Evidence
from elo_exp.oracle.influence import Estimate, Term, clustered, linear_estimate
from elo_exp.oracle.simcal import least_variance
from elo_exp.oracle.targeting import fluctuation, moved
from elo_exp.settings import one_of
from elo_exp.statistics.likelihood import Array, Mask

_OMEGA: dict[str, Callable[[Array], Array]] = {
    "w": lambda w: w,
    "w2": lambda w: w**2,
    "snips": lambda w: (w - 1.0) ** 2,
}
_FLOOR = 1e-8  # of what a row counts in an outcome model
_EDGE = 1e-3  # of a probability whose logit is taken
_STACKING_RIDGE = 1e-8  # of the sum of the variances


@dataclass(kw_only=True)
class DrCpo:
    """The outcome model is the calibration itself."""

    rests_on: ClassVar = (CALIBRATED_WEIGHTS, FRESH_DRAWS)

    def estimate(self, evidence: Evidence) -> Estimate:
        return corrected(evidence, evidence.calibration)


@dataclass(kw_only=True)
class Mrdr:
    """The outcome model is fitted where the weights are large; Farajtabar et al. (2018).

    omega  what a labelled row counts in it, of its weight w: w, w2 (its square) or snips ((w - 1)^2)
    """

    omega: str
    rests_on: ClassVar = (CALIBRATED_WEIGHTS, FRESH_DRAWS)

    def __post_init__(self) -> None:
        one_of("omega", self.omega, _OMEGA)

    def estimate(self, evidence: Evidence) -> Estimate:
        labelled = evidence.labelled
        weight = np.maximum(_OMEGA[self.omega](evidence.calibrated[labelled]), _FLOOR)
        mode = evidence.calibration.mode
        model = calibration.curves(
            evidence.logged[labelled], weight, n_folds=evidence.n_folds, mode=mode
        )
        return corrected(evidence, model)


@dataclass(kw_only=True)
class Tmle:
    """The calibration, moved so that the weighted residuals vanish: logit g* = logit g + epsilon w(s).

    Van der Laan and Rubin (2006); the weight is a function of the score, so that fresh draws have one too.
    """

    rests_on: ClassVar = (CALIBRATED_WEIGHTS, FRESH_DRAWS)

    def estimate(self, evidence: Evidence) -> Estimate:
        labelled = evidence.labelled
        epsilon = fluctuation(
            evidence.logged_value[labelled],
            evidence.logged.label[labelled],
            evidence.calibrated[labelled],
            edge=_EDGE,
        )
        logged = moved(evidence.logged_value, epsilon * evidence.calibrated, edge=_EDGE)
        fresh = moved(
            evidence.fresh_value, epsilon * evidence.weight_curves(evidence.fresh), edge=_EDGE
        )
        return corrected(evidence, evidence.calibration, logged=logged, fresh=fresh)


@dataclass(kw_only=True)
class StackedDr:
    """The mixture of the other three that varies least over prompts.

    omega  as for mrdr
    """

    omega: str
    rests_on: ClassVar = (CALIBRATED_WEIGHTS, FRESH_DRAWS)

    def __post_init__(self) -> None:
        one_of("omega", self.omega, _OMEGA)

    def estimate(self, evidence: Evidence) -> Estimate:
        parts = [part.estimate(evidence) for part in (DrCpo(), Tmle(), Mrdr(omega=self.omega))]
        influences = np.stack([part.influence for part in parts], axis=1)
        covariance = np.cov(influences.T)
        mixture = least_variance(covariance, ridge=_STACKING_RIDGE * float(np.trace(covariance)))
        return mixed(parts, mixture, present=(influences != 0).any(axis=1))


def corrected(
    evidence: Evidence,
    model: Calibration,
    *,
    logged: Array | None = None,
    fresh: Array | None = None,
) -> Estimate:
    """The model's mean over fresh draws, corrected; `logged` (n,) and `fresh` (r,): its values where they are not
    those that it gives cross-fitted."""
    on_label = evidence.of_residual
    logged = model.cross_fitted(evidence.logged) if logged is None else logged
    fresh = model.cross_fitted(evidence.fresh) if fresh is None else fresh
    nothing = np.zeros(len(evidence.fresh))
    correction = Term(rows=evidence.logged, value=logged, on_value=-on_label, on_label=on_label)
    # Of a labelled row, what its weight does: nothing on average where the model fits at its score.
    scale = evidence.calibrated.sum() / evidence.calibrated[evidence.labelled].sum()
    by_weight = np.where(evidence.labelled, correction.spread * scale, 0.0)
    return linear_estimate(
        [
            correction,
            Term(rows=evidence.fresh, value=fresh, on_value=evidence.of_draw, on_label=nothing),
        ],
        model,
        n_prompts=len(evidence.prompts),
        more=evidence.of_weights(by_weight),
        ess=weights.effective_sample_size(evidence.calibrated),
    )


def mixed(parts: Sequence[Estimate], mixture: Array, *, present: Mask) -> Estimate:
    """A mixture of estimates from the same prompts."""
    influence = np.stack([part.influence for part in parts], axis=1) @ mixture
    std_error, df = clustered(influence, present)
    return dataclasses.replace(
        parts[0],
        value=float(mixture @ [part.value for part in parts]),
        std_error=std_error,
        degrees_of_freedom=df,
        influence=influence,
        std_error_labels=float(mixture @ [part.std_error_labels for part in parts]),
    )
