"""Estimators: the mean label an oracle would give a policy's answers."""

from elo_exp.oracle.evidence import Estimator as Estimator
