"""Tournaments of which the truth is known, as fast as they can be drawn.

The model. On prompt q the response of entrant i has a quality u_iq ~ N(0, quality^2) whoever it is compared with, and a
pair has a noise e_ijq ~ N(0, pair_noise^2) whichever is shown first. Of the two orders, independently given these, the
log-odds that i beats j when one of them wins are

    x = offset_ij + u_iq - u_jq + e_ijq + logit(first_shown) if i is shown first, else - logit(first_shown)

and a verdict is Davidson's: i, a tie, j with weights exp(x / 2), nu, exp(-x / 2). nu makes `ties` of the verdicts
between equals ties. The offsets are those with which i beats j, over all prompts and both orders and when one of them
wins, with the probability that the ratings say: the ratings are what one measures on many prompts (Bradley-Terry of the
verdicts that are no ties), not abilities on one. A tie counted as half a win draws ratings together;
`true_ratings(ties="half")` is where they then end.

All verdicts on a prompt depend on one another through u and e: a prompt is a cluster. `quality=0, pair_noise=0` makes
every verdict independent. The defaults are those of the planner: four entrants, 20 % ties, 72 % of the pairs in which
both orders name a winner name the same.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import POINTS, BradleyTerry, abilities
from elo_exp.ratings.games import Games
from elo_exp.records import Battle

_CODES = np.array(
    [2, 0, 1], dtype=np.int8
)  # of a tie, and of wins of the first and the second
BRADLEY_TERRY = BradleyTerry(
    initial_rating=1400.0, use="both", interval="sandwich", n_bootstraps=2, seed=0
)


@dataclass(frozen=True, kw_only=True)
class Tournament:
    """Every pair of entrants on every prompt, each pair in both orders."""

    ratings: tuple[float, ...] = (0.0, 30.0, 60.0, 100.0)  # of a, b, c, ...
    quality: float = 1.2
    pair_noise: float = 1.0
    ties: float = 0.2
    first_shown: float = 0.55

    @property
    def models(self) -> tuple[str, ...]:
        """Sorted, as a leaderboard has them."""
        return tuple(chr(ord("a") + i) for i in range(len(self.ratings)))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(itertools.combinations(range(len(self.ratings)), 2))

    def verdicts(
        self, n_prompts: int, rng: np.random.Generator
    ) -> npt.NDArray[np.int8]:
        """(prompts, pairs, orders): 1 where the first of the pair won, 0 for a tie, -1 where the second did. In the
        first of the orders the first of the pair is shown first."""
        first, second = np.array(self.pairs).T
        u = self.quality * rng.standard_normal((n_prompts, len(self.ratings)))
        x = _calibrated(self).offsets + u[:, first] - u[:, second]
        x += self.pair_noise * rng.standard_normal(x.shape)
        win, tie = _probabilities(
            x[:, :, None] + self._shown_first(), _calibrated(self).nu
        )
        at = rng.random(win.shape)
        return (at < win).astype(np.int8) - (at > win + tie).astype(np.int8)

    def columns(self, n_prompts: int, rng: np.random.Generator) -> Battles:
        """A battle for each prompt and pair, as a judge leaves it; the orders have to agree for a
        winner."""
        verdicts = _CODES[self.verdicts(n_prompts, rng)].reshape(-1, 2)
        verdict_ab, verdict_ba = verdicts.T
        n, (first, second) = len(verdicts), np.array(self.pairs, dtype=np.int32).T
        none = np.full(n, -1, dtype=np.int32)
        return Battles(
            models=self.models,
            model_a=np.tile(first, n_prompts),
            model_b=np.tile(second, n_prompts),
            winner=np.where(verdict_ab == verdict_ba, verdict_ab, np.int8(2)),
            verdict_ab=verdict_ab,
            verdict_ba=verdict_ba,
            equal_answers=np.zeros(n, dtype=np.bool_),
            questions=tuple(f"q{q}" for q in range(n_prompts)),
            question=np.repeat(np.arange(n_prompts, dtype=np.int32), len(self.pairs)),
            dimensions=(),
            dimension=none,
            judges=(),
            judge=none,
            sources=("llm-judge",),
            source=np.zeros(n, dtype=np.int32),
        )

    def battles(
        self, n_prompts: int, rng: np.random.Generator, **columns: Any
    ) -> list[Battle]:
        """The same as rows, with other values in some columns."""
        return [replace(row, **columns) for row in self.columns(n_prompts, rng).rows()]

    def games(
        self, n_prompts: int, rng: np.random.Generator, *, ties: str = "half"
    ) -> Games:
        """The same with a game for each verdict, without the battles; `ties` half: of a win, dropped: left out."""
        verdicts = self.verdicts(n_prompts, rng)
        q, pair, order = (
            np.nonzero(verdicts)
            if ties == "dropped"
            else np.indices(verdicts.shape).reshape(3, -1)
        )
        first, second = np.array(self.pairs).T
        return Games(
            n_models=len(self.ratings),
            first=first[pair],
            second=second[pair],
            score=(1 + verdicts[q, pair, order]) / 2,
            cluster=np.unique(q, return_inverse=True)[1],
            prompts=np.unique(q),
        )

    def shares(self) -> Array:
        """Of all verdicts on a pair (pairs, 3): how often its first loses, ties and wins."""
        calibrated = _calibrated(self)
        win, tie = _expected(self, calibrated.offsets, calibrated.nu)
        return np.stack([1 - tie - win, tie, win], axis=1)

    def true_ratings(self, *, ties: str = "half") -> Array:
        """Where Bradley-Terry ratings (m,) end on many prompts, their mean being zero."""
        if ties == "dropped":
            return np.array(self.ratings) - np.mean(self.ratings)
        wins = np.zeros((len(self.ratings),) * 2)
        for (i, j), (lost, tied, won) in zip(self.pairs, self.shares(), strict=True):
            wins[i, j], wins[j, i] = won + tied / 2, lost + tied / 2
        return POINTS * abilities(wins)

    def _shown_first(self) -> Array:
        shown_first = math.log(self.first_shown / (1 - self.first_shown))
        return np.array([shown_first, -shown_first])


def _probabilities(x: Array, nu: float) -> tuple[Array, Array]:
    """That the first of a pair wins, and that there is a tie."""
    win, loss = np.exp(x / 2), np.exp(-x / 2)
    total = win + loss + nu
    return win / total, nu / total


def _expected(tournament: Tournament, offsets: Array, nu: float) -> tuple[Array, Array]:
    """The same (pairs,) over prompts, whose part in x is normal, and over orders."""
    node, weight = np.polynomial.hermite_e.hermegauss(64)
    spread = math.sqrt(2 * tournament.quality**2 + tournament.pair_noise**2)
    x = offsets[:, None, None] + spread * node[:, None] + tournament._shown_first()
    win, tie = _probabilities(x, nu)
    return tuple((p.mean(axis=2) @ weight) / weight.sum() for p in (win, tie))  # type: ignore[return-value]


@dataclass(frozen=True)
class _Calibrated:
    nu: float
    offsets: Array  # (pairs,)


@functools.cache
def _calibrated(tournament: Tournament) -> _Calibrated:
    def too_many_ties(log_nu: Array) -> Array:
        return (
            _expected(tournament, np.zeros(1), math.exp(log_nu[0]))[1] - tournament.ties
        )

    nu = (
        math.exp(_root(too_many_ties, np.full(1, -20.0))[0]) if tournament.ties else 0.0
    )
    first, second = np.array(tournament.pairs).T
    gap = np.array(tournament.ratings)[first] - np.array(tournament.ratings)[second]

    def too_many_wins(offsets: Array) -> Array:
        win, tie = _expected(tournament, offsets, nu)
        return win / (1 - tie) - 1 / (1 + 10 ** (-gap / 400))

    return _Calibrated(nu, _root(too_many_wins, np.full(len(gap), -20.0)))


def _root(increasing: Callable[[Array], Array], low: Array) -> Array:
    """Where an increasing function is zero, between low and -low, by bisection."""
    low, high = low.copy(), -low
    for _ in range(60):
        middle = (low + high) / 2
        below = increasing(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2
