"""Estimators: what an oracle would say of a policy's answers on average."""

from __future__ import annotations

from typing import Protocol

from elo_exp.oracle.evidence import Evidence
from elo_exp.oracle.influence import Estimate


class Estimator(Protocol):
    @property
    def rests_on(self) -> tuple[str, ...]:
        """Of evidence.PARTS, those that must be sound for its estimates to be reported."""

    def estimate(self, evidence: Evidence) -> Estimate:
        """Raises NotEstimableError where the evidence lacks what it needs."""
