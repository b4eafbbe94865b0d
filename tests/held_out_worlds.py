"""Worlds of known truth on which no rule of the oracle experiment was chosen.

Prompts, answers and log ratios are those of tests/oracle_worlds.py; curves, scores, labels, sizes and
shares of labels are not: labels that are pass or fail, judges that are harsh, coarse or flattered by
the style, curves with a step or flat at an end, and 600 prompts of which a tenth to a half are labelled.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from elo_exp.arrays import Array, Index
from elo_exp.oracle.data import Rows
from tests.oracle_worlds import World

LABELS = (60, 150, 300)


@dataclass(frozen=True, kw_only=True)
class HeldOutWorld(World):
    """flattery  of the judge by the style
    severity  of the judge
    levels    of its scores
    noise_sd  of its impression of the quality
    step      the label passes from low to high within a small range of the quality
    binary    labels are pass or fail
    """

    flattery: float = 0.0
    severity: float = 0.0
    levels: int = 10
    noise_sd: float = 0.8
    step: bool = False
    binary: bool = False
    n: int = 600

    def rows(
        self, rng: np.random.Generator, quality: Array, style: Array, fold: Index
    ) -> Rows:
        rows = super().rows(rng, quality, style, fold)
        noise = rng.normal(0.0, self.noise_sd, len(quality))
        impression = quality + self.flattery * style - self.severity + noise
        score = np.floor(expit(0.9 * impression) * self.levels) / (self.levels - 1)
        label = rows.label
        if self.binary:
            label = (rng.random(len(label)) < self._mean(quality, style)).astype(float)
        return dataclasses.replace(rows, score=np.minimum(score, 1.0), label=label)

    def _mean(self, quality: Array, style: Array) -> Array:
        mean = 0.9 - 0.7 * np.exp(-0.6 * np.maximum(quality + 1.5, 0.0))
        if self.step:
            mean = 0.15 + 0.7 * expit(5.0 * (quality - 0.4))
        return np.clip(mean - self.dislike * np.tanh(style), 0.0, 1.0)


HELD_OUT = {
    "pass or fail": HeldOutWorld(shift=0.4, style=0.4, binary=True),
    "pass or fail, a step": HeldOutWorld(shift=0.7, style=0.2, binary=True, step=True),
    "harsh judge": HeldOutWorld(shift=0.6, style=0.1, severity=1.5, levels=20),
    "coarse judge": HeldOutWorld(shift=0.5, style=0.3, levels=3, step=True),
    "flattered judge": HeldOutWorld(shift=0.2, style=0.7, flattery=0.6),
    "flattered judge, displeased oracle": HeldOutWorld(
        shift=0.1, style=0.6, flattery=0.5, dislike=0.2, noise_sd=0.4
    ),
    "worse policy": HeldOutWorld(shift=-0.7, style=0.4, levels=20, noise_sd=0.4),
    "noisy log-probabilities, a step": HeldOutWorld(
        shift=0.3, style=0.2, noise=0.8, noisy_share=0.5, step=True
    ),
}
