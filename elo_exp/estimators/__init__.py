"""Estimators: the mean label an oracle would give a policy's answers."""

from elo_exp.oracle.estimates import Estimator

__all__ = ["Estimator"]
