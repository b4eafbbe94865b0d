"""Tournaments of known truth for planned looks: who is better, by how much, and what a judge says in one order.

Entrants of one group are exchangeable, so that equal pairs are exactly equal.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elo_exp.analysis.looks import Key, Wave, key_of, next_wave
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.records import Battle, Comparison

LOGIT = 400 / math.log(10)
STRETCH = 1.9  # latent units, so that marginal gaps are about the Elo points given
METHOD = BradleyTerry(
    initial_rating=1500, orders="both", interval="sandwich", n_bootstraps=2, seed=0
)


@dataclass(frozen=True, kw_only=True)
class World:
    """In logits: `quality` is the sd of an entrant's answer to a prompt, half of it the same in all dimensions;
    `position` the mean and sd of the advantage of being shown first; `strata` by how much even and odd entrants trade
    places between two strata. In pair (0, 1) the second has `cyclic` more than by its strength, which `makes_up` of the
    first against each other entrant balances."""

    elo: Sequence[float]
    n: int
    dims: int = 3
    quality: float = 1.2
    ties: float = 0.5
    position: tuple[float, float] = (0.1, 0.0)
    strata: float = 0.0
    invalid: float = 0.0
    cyclic: float = 0.0
    makes_up: float = 0.0

    @functools.cached_property
    def comparisons(self) -> list[Comparison]:
        """Of one dimension, prompts first; every other prompt is of the second stratum."""
        texts = dict.fromkeys(("dimension", "prompt_text", "response_a"), "")
        return [
            Comparison(
                prompt_id=f"q{q}",
                source="ab"[q % 2],
                entrant_a=f"e{i}",
                entrant_b=f"e{j}",
                response_b="other",
                **texts,
            )
            for q in range(self.n)
            for i, j in itertools.combinations(range(len(self.elo)), 2)
        ]

    def battles(self, rng: np.random.Generator) -> list[dict[Key, Battle | None]]:
        """By dimension, of each comparison, who is shown first being drawn; None where the verdict is invalid."""
        d, n, m = self.dims, self.n, len(self.elo)
        strength = (np.array(self.elo) - np.mean(self.elo)) / LOGIT * STRETCH
        answer = rng.normal(size=(1, n, m)) + rng.normal(size=(d, n, m))
        side = np.outer(np.arange(n) % 2 * 2 - 1, np.arange(m) % 2 * 2 - 1)
        latent = strength + self.quality / math.sqrt(2) * answer
        latent = latent + self.strata / 2 * side
        i, j = np.triu_indices(m, 1)
        gap = latent[..., i] - latent[..., j] + rng.normal(size=(d, n, len(i)))
        gap += np.where(i == 0, np.where(j == 1, -self.cyclic, self.makes_up), 0.0)
        is_first = rng.random(gap.shape) < 0.5
        mean, sd = self.position
        gap += np.where(is_first, 1, -1) * (mean + sd * rng.normal(size=(1, n, 1)))
        win = np.exp(gap / 2)
        at = rng.random(gap.shape) * (win + 1 / win + self.ties)
        winner = np.where(at < win + self.ties, "tie", "model_b")
        winner = np.where(at < win, "model_a", winner)
        is_valid = rng.random(gap.shape) >= self.invalid
        found = []
        for rows in zip(winner, is_first, is_valid, strict=True):
            columns = [column.ravel().tolist() for column in rows]
            every = zip(self.comparisons, *columns, strict=True)
            found.append(
                {key_of(c): _battle(c, w, f) if v else None for c, w, f, v in every}
            )
        return found

    def play(self, seed: int, *, n_looks: int = 5) -> Wave:
        """Judge everything, and let the looks take what they ask for."""
        found = self.battles(np.random.default_rng([self.n, seed]))
        known = {f"d{d}": some for d, some in enumerate(found)}
        comparisons = dict.fromkeys(known, self.comparisons)
        return next_wave(comparisons, known, METHOD, n_looks=n_looks, drop=True)


def _battle(comparison: Comparison, winner: str, is_first: bool) -> Battle:
    return Battle(
        model_a=comparison.entrant_a,
        model_b=comparison.entrant_b,
        winner=winner,
        question_id=comparison.prompt_id,
        **{"verdict_ab" if is_first else "verdict_ba": winner},
    )


WORLDS = {
    "four equals": World(elo=(0,) * 4, n=143),
    "two equals": World(elo=(0,) * 2, n=29),
    "eight equals": World(elo=(0,) * 8, n=60),
    "two groups 150 apart": World(elo=(0,) * 3 + (150,) * 3, n=93),
    "gaps of 30 to 100": World(elo=(0, 30, 60, 100), n=143),
    "gaps of 100": World(elo=(0, 100, 200, 300), n=143),
    "many ties": World(elo=(0,) * 4, n=50, ties=4.0, quality=2.5),
    "position bias": World(elo=(0,) * 4, n=93, position=(0.8, 1.5)),
    "strata trade places": World(elo=(0,) * 4, n=143, strata=1.5),
    "one far ahead": World(elo=(0,) * 4 + (400,), n=40),
    "invalid verdicts": World(elo=(0,) * 3, n=100, invalid=0.05),
    "eight, 30 apart": World(elo=tuple(range(0, 240, 30)), n=143),
    "cyclic, .46": World(elo=(0, 0, -150, -150), n=143, cyclic=0.3, makes_up=0.363),
    "cyclic, .42": World(elo=(0, 0, -150, -150), n=143, cyclic=0.6, makes_up=0.761),
    "cyclic, .37": World(elo=(0, 0, -150, -150), n=143, cyclic=1.0, makes_up=1.373),
    "cyclic, five": World(
        elo=(0, 0, -100, -200, -300), n=143, dims=1, cyclic=0.3, makes_up=0.277
    ),
}


def study(world: World, n: int, *, seed: int = 0) -> tuple[float, float, float, float]:
    """Of n tournaments: how often any resolved pair was wrong, the mean share of the calls of all comparisons in both
    orders, the resolved pairs of a dimension, and how often intervals cover the gap that many prompts show."""
    many = dataclasses.replace(world, n=12_000, dims=1)
    (found,) = many.battles(np.random.default_rng(5))
    battles = Battles.from_rows([battle for battle in found.values() if battle])
    rating = {row.model: row.rating for row in METHOD.rate({"": battles})[""].ratings}
    strength = {f"e{i}": elo for i, elo in enumerate(world.elo)}
    rows = []
    for wave in (world.play(seed + i) for i in range(n)):
        resolved = [r for r in wave.resolved if r.significant]
        n_asked = sum(map(len, wave.asked.values())) / len(world.comparisons)
        covered = [
            r.ci_low <= rating[r.higher] - rating[r.lower] <= r.ci_high
            for r in wave.resolved
        ]
        is_wrong = any(strength[r.higher] <= strength[r.lower] for r in resolved)
        counts = n_asked / world.dims / 2, len(resolved) / world.dims
        rows.append((is_wrong, *counts, np.mean(covered)))
    return tuple(np.mean(rows, axis=0).tolist())
