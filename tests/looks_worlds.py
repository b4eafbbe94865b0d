"""Tournaments of known truth for planned looks: who is better, by how much, and what a judge says.

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
from numpy.typing import NDArray

from elo_exp.analysis.looks import Key, Wave, key_of, next_wave
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.records import Battle, Comparison

LOGIT = 400 / math.log(10)
STRETCH = 1.9  # latent units, so that marginal gaps are about the Elo points given
METHOD = BradleyTerry(
    initial_rating=1500, orders="both", interval="sandwich", n_bootstraps=2, seed=0
)
_WINNER = {1.0: "model_a", 0.0: "model_b", 0.5: "tie"}


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
        return [
            Comparison(
                prompt_id=f"q{q}",
                dimension="",
                source="ab"[q % 2],
                prompt_text="",
                entrant_a=f"e{i}",
                entrant_b=f"e{j}",
                response_a="",
                response_b="",
            )
            for q in range(self.n)
            for i, j in itertools.combinations(range(len(self.elo)), 2)
        ]

    def scores(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Scores (dims, n, pairs, 2) of each pair's first, shown first and second; NaN where invalid."""
        d, n, m = self.dims, self.n, len(self.elo)
        strength = (np.array(self.elo) - np.mean(self.elo)) / LOGIT * STRETCH
        answer = rng.normal(size=(1, n, m)) + rng.normal(size=(d, n, m))
        side = np.outer(np.arange(n) % 2 * 2 - 1, np.arange(m) % 2 * 2 - 1)
        latent = (
            strength + self.quality / math.sqrt(2) * answer + self.strata / 2 * side
        )
        i, j = np.triu_indices(m, 1)
        gap = latent[..., i] - latent[..., j] + rng.normal(size=(d, n, len(i)))
        gap += np.where(i == 0, np.where(j == 1, -self.cyclic, self.makes_up), 0.0)
        mean, sd = self.position
        shown = mean + sd * rng.normal(size=(1, n, 1))
        gap = np.stack([gap + shown, gap - shown], axis=-1)
        win, loss = np.exp(gap / 2), np.exp(-gap / 2)
        at = rng.random(gap.shape) * (win + loss + self.ties)
        found = np.where(at < win, 1.0, np.where(at < win + self.ties, 0.5, 0.0))
        found[rng.random(gap.shape) < self.invalid] = np.nan
        return found

    def battles(
        self, rng: np.random.Generator, *, orders: str
    ) -> list[dict[Key, Battle | None]]:
        """By dimension and comparison; None where a verdict is invalid. In one order who is shown first is drawn."""
        scores = self.scores(rng)
        asked = np.ones(scores.shape, dtype=bool)
        if orders == "one":
            asked[..., 0] = rng.random(scores.shape[:-1]) < 0.5
            asked[..., 1] = ~asked[..., 0]
        rows = zip(
            scores.reshape(self.dims, -1, 2).tolist(),
            asked.reshape(self.dims, -1, 2).tolist(),
            strict=True,
        )
        return [
            {
                key_of(comparison): _battle(comparison, *both)
                for comparison, *both in zip(self.comparisons, *row, strict=True)
            }
            for row in rows
        ]

    def play(self, seed: int, *, orders: str = "one", n_looks: int = 5) -> Wave:
        """Judge everything, and let the looks take what they ask for."""
        rng = np.random.default_rng([self.n, seed])
        known = {
            f"d{d}": some for d, some in enumerate(self.battles(rng, orders=orders))
        }
        comparisons = dict.fromkeys(known, self.comparisons)
        return next_wave(comparisons, known, METHOD, n_looks=n_looks, drop=True)

    def is_right(self, higher: str, lower: str) -> bool:
        return self.elo[int(higher[1:])] > self.elo[int(lower[1:])]


def _battle(
    comparison: Comparison, scores: Sequence[float], asked: Sequence[bool]
) -> Battle | None:
    said = [
        score if is_asked else None
        for score, is_asked in zip(scores, asked, strict=True)
    ]
    known = [score for score in said if score is not None]
    if any(map(math.isnan, known)):
        return None
    ab, ba = (None if score is None else _WINNER[score] for score in said)
    mean = sum(known) / len(known)
    return Battle(
        model_a=comparison.entrant_a,
        model_b=comparison.entrant_b,
        winner="model_a" if mean > 0.5 else "model_b" if mean < 0.5 else "tie",
        question_id=comparison.prompt_id,
        verdict_ab=ab,
        verdict_ba=ba,
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


@dataclass(frozen=True, kw_only=True)
class Study:
    """Of some tournaments: how often any resolved pair was wrong, the mean share of the calls of all comparisons in
    both orders, the resolved pairs of a dimension, and how often intervals cover the gap that many prompts show."""

    error: float
    calls: float
    resolved: float
    covered: float


def study(world: World, seeds: Sequence[int], *, orders: str = "one") -> Study:
    gaps, rows = large_sample_gaps(world, orders=orders), []
    for seed in seeds:
        wave = world.play(seed, orders=orders)
        pairs = [(r.higher, r.lower) for r in wave.resolved if r.significant]
        n_asked = sum(map(len, wave.asked.values()))
        n_calls = n_asked / len(world.comparisons) / world.dims
        covered = [
            r.ci_low <= gaps[r.higher, r.lower] <= r.ci_high for r in wave.resolved
        ]
        rows.append(
            (
                not all(world.is_right(*pair) for pair in pairs),
                n_calls / (2 if orders == "one" else 1),
                len(pairs) / world.dims,
                np.mean(covered),
            )
        )
    error, calls, resolved, covers = np.mean(rows, axis=0).tolist()
    return Study(error=error, calls=calls, resolved=resolved, covered=covers)


def large_sample_gaps(world: World, *, orders: str) -> dict[tuple[str, str], float]:
    many = dataclasses.replace(world, n=12_000, dims=1)
    (found,) = many.battles(np.random.default_rng(5), orders=orders)
    battles = Battles.from_rows([battle for battle in found.values() if battle])
    ratings = METHOD.rate({"": battles})[""].ratings
    return {(a.model, b.model): a.rating - b.rating for a in ratings for b in ratings}
