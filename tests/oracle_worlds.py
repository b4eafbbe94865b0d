"""Eleven worlds of known truth, in which scores mean the same for all policies, or do not.

A prompt has a difficulty d ~ N(0, 1/4). The logging policy answers it with quality q ~ N(d, 1) and
style z ~ N(0, 1), the target with q ~ N(d + shift, 1) and z ~ N(style, 1). The judge sees the quality
with noise, and gives it one of a few scores; the oracle's label has a mean that rises with the
quality, and falls with the style where it dislikes it. The judge's noise alone breaks transport
where the quality shifts: among answers of one score, the better policy's are better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from elo_exp.arrays import Array, Index
from elo_exp.oracle.data import Dataset, Rows
from tests.oracle_simulation import answers, dataset, with_labels

N_FOLDS = 5
_EVEN = np.arange(21) / 20
_PILED = np.array([0, 0.1, 0.2, 0.45, 0.55, 0.7, 0.85, 0.9, 0.95, 1.0])
_SPREAD = 12.0  # of labels about their mean: Beta(12 m, 12 (1 - m))


@dataclass(frozen=True, kw_only=True)
class World:
    """Target policy, judge and oracle.

    curved       the label is no linear function of the quality
    piled        the judge's scores pile up at the top
    dislike      of the style, by the oracle
    noise        of the log ratios, in nats, Student's t with 3 degrees of freedom
    noisy_share  of the log ratios, which have such noise
    """

    shift: float = 0.3
    style: float = 0.3
    curved: bool = False
    piled: bool = False
    dislike: float = 0.0
    noise: float = 0.0
    noisy_share: float = 1.0
    n: int = 1000  # prompts

    @cached_property
    def truth(self) -> float:
        """The mean label of a million of the target's answers."""
        rng = np.random.default_rng(0)
        quality, style = self.answers(rng, rng.normal(0.0, 0.5, 1_000_000))
        return float(self._mean(quality, style).mean())

    def draw(self, seed: int, *, n_labels: int, n_own: int = 0) -> Dataset:
        """One logged answer and one fresh draw on each prompt, labels on random ones."""
        return study({"target": self}, seed, n_labels=n_labels, n_own=n_own, n=self.n)

    def answers(
        self, rng: np.random.Generator, difficulty: Array, *, target: bool = True
    ) -> tuple[Array, Array]:
        """(n,) quality and (n,) style."""
        noise, style = rng.standard_normal((2, len(difficulty)))
        return difficulty + target * self.shift + noise, target * self.style + style

    def rows(
        self, rng: np.random.Generator, quality: Array, style: Array, fold: Index
    ) -> Rows:
        """Answers with the judge's scores and the oracle's labels."""
        mean = np.clip(self._mean(quality, style), 0.001, 0.999)
        score = self._score(rng, quality)
        label = rng.beta(mean * _SPREAD, (1 - mean) * _SPREAD)
        return answers(score, label, fold)

    def log_ratio(
        self, rng: np.random.Generator, quality: Array, style: Array
    ) -> Array:
        """(n,) target minus logging log-probability of answers, `quality` beyond the difficulty."""
        ratio = self.shift * quality - self.shift**2 / 2
        ratio += self.style * style - self.style**2 / 2
        is_noisy = rng.random(len(ratio)) < self.noisy_share
        return np.asarray(ratio + is_noisy * self.noise * rng.standard_t(3, len(ratio)))

    def _mean(self, quality: Array, style: Array) -> Array:
        mean = 0.2 + 0.6 * expit(1.2 * quality)
        if self.curved:
            mean = 0.03 + 0.9 * expit(1.6 * quality - 1.2) ** 1.3
        return np.clip(mean - self.dislike * np.tanh(style), 0.0, 1.0)

    def _score(self, rng: np.random.Generator, quality: Array) -> Array:
        noise = rng.normal(0.0, 0.5, len(quality))
        if not self.piled:
            return _nearest(_EVEN, expit(1.4 * quality + 0.3 + noise))
        impression = 0.2 + 0.75 * expit(1.2 * quality + 1.6 + noise) ** 0.8
        top = 0.05 * (expit(1.4 * quality + 0.3 + noise) > 0.9)
        return _nearest(_PILED, np.clip(impression + top, 0.0, 1.0))


WORLDS = {
    "good overlap": World(),
    "medium overlap": World(shift=0.8, style=0.5),
    "poor overlap": World(shift=0.5, style=2.5),
    "curved judge": World(shift=0.8, style=0.5, curved=True),
    "scores at the top": World(style=0.5, curved=True, piled=True),
    "the same, poor overlap": World(shift=0.5, style=2.5, curved=True, piled=True),
    "noisy log-probabilities": World(curved=True, piled=True, noise=2.0),
    "disliked style": World(style=0.5, dislike=0.15),
    "the same style, poor overlap": World(style=2.0, dislike=0.15),
    "clone": World(
        shift=0.0, style=0.0, curved=True, piled=True, noise=2.0, noisy_share=0.1
    ),
    "far worse": World(shift=-3.0, style=0.5, curved=True, piled=True),
}


def study(
    worlds: Mapping[str, World], seed: int, *, n_labels: int, n_own: int, n: int
) -> Dataset:
    """Target policies of one logging policy on the same n prompts, labelled at random.

    n_labels  of the logged answers
    n_own     of each target's draws, on the same prompts
    """
    rng = np.random.default_rng((seed, n_labels))
    difficulty, fold = rng.normal(0.0, 0.5, n), rng.permutation(n) % N_FOLDS
    some, own = rng.permutation(n)[:n_labels], rng.permutation(n)[:n_own]
    first = next(iter(worlds.values()))
    quality, style = first.answers(rng, difficulty, target=False)
    logged = first.rows(rng, quality, style, fold)
    draws = {
        name: world.rows(rng, *world.answers(rng, difficulty), fold)
        for name, world in worlds.items()
    }
    return dataset(
        with_labels(logged, some),
        {
            name: world.log_ratio(rng, quality - difficulty, style)
            for name, world in worlds.items()
        },
        fresh_draws={name: with_labels(rows, own[:0]) for name, rows in draws.items()},
        probe_draws={name: rows[own] for name, rows in draws.items()} if n_own else {},
    )


def _nearest(levels: Array, value: Array) -> Array:
    return np.asarray(levels[np.abs(value[:, None] - levels).argmin(axis=1)])
