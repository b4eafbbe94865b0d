"""Estimators: the mean label an oracle would give a policy's answers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from elo_exp.oracle.evidence import Evidence
from elo_exp.oracle.influence import Estimate


@runtime_checkable
class Estimator(Protocol):
    @property
    def requires(self) -> tuple[str, ...]:
        """What it uses and what must pass the checks: RAW_WEIGHTS, CALIBRATED_WEIGHTS, FRESH_DRAWS.

        `estimate` is called only with evidence that has them.
        """

    def estimate(self, evidence: Evidence) -> Estimate:
        """Raises NotEstimableError where the evidence is not enough."""
