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
every verdict independent. The defaults are those of the planner: four entrants, 20% ties, 72% of the pairs in which
both orders name a winner name the same.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, fit_abilities
from elo_exp.ratings.games import Games, make_games
from elo_exp.records import Battle

BRADLEY_TERRY = BradleyTerry(
    initial_rating=1400.0, orders="both", interval="sandwich", n_bootstraps=2, seed=0
)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)  # of a standard normal
_WEIGHTS /= _WEIGHTS.sum()


@dataclass(frozen=True, kw_only=True)
class Tournament:
    """Every pair of entrants on every prompt, each pair in both orders."""

    ratings: tuple[float, ...] = (0.0, 30.0, 60.0, 100.0)  # of a, b, c, ...
    quality: float = 1.2
    pair_noise: float = 1.0
    ties: float = 0.2
    first_shown: float = 0.55

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(itertools.combinations(range(len(self.ratings)), 2))

    def columns(self, n_prompts: int, rng: np.random.Generator) -> Battles:
        """A battle for each prompt and pair, as a judge leaves it; the orders have to agree for a
        winner."""
        first, second = np.array(self.pairs, dtype=np.int32).T
        u = self.quality * rng.standard_normal((n_prompts, len(self.ratings)))
        nu, offsets = _calibrated(self)
        x = offsets + u[:, first] - u[:, second]
        x += self.pair_noise * rng.standard_normal(x.shape)
        win, tie = self._probabilities(x, nu)
        at = rng.random(win.shape)
        codes = np.where(at < win, 0, np.where(at > win + tie, 1, 2)).astype(np.int8)
        verdict_ab, verdict_ba = codes.reshape(-1, 2).T
        n = len(verdict_ab)
        none = np.full(n, -1, dtype=np.int32)
        return Battles(
            models=tuple(chr(ord("a") + i) for i in range(len(self.ratings))),
            model_a=np.tile(first, n_prompts),
            model_b=np.tile(second, n_prompts),
            winner=np.where(verdict_ab == verdict_ba, verdict_ab, np.int8(2)),
            verdict_ab=verdict_ab,
            verdict_ba=verdict_ba,
            score=np.full(n, np.nan),
            equal_answers=np.zeros(n, dtype=np.bool_),
            questions=tuple(f"q{q}" for q in range(n_prompts)),
            question=np.repeat(np.arange(n_prompts, dtype=np.int32), len(self.pairs)),
            dimensions=(),
            dimension=none,
            judges=(),
            judge=none,
            sources=("llm-judge",),
            source=np.zeros(n, dtype=np.int32),
            styles=(),
            style_a=none,
            style_b=none,
        )

    def battles(
        self, n_prompts: int, rng: np.random.Generator, **columns: Any
    ) -> list[Battle]:
        """The same as rows, with other values in some columns."""
        return [replace(row, **columns) for row in self.columns(n_prompts, rng).rows()]

    def games(self, n_prompts: int, rng: np.random.Generator) -> Games:
        """The same with a game for each verdict."""
        return make_games(self.columns(n_prompts, rng), orders="both")

    def true_ratings(self) -> Array:
        """Where Bradley-Terry ratings (m,) end on many prompts, their mean being zero."""
        nu, offsets = _calibrated(self)
        wins = np.zeros((len(self.ratings),) * 2)
        for (i, j), offset in zip(self.pairs, offsets.tolist(), strict=True):
            win, tie = self._expected(offset, nu)
            wins[i, j], wins[j, i] = win + tie / 2, 1 - win - tie / 2
        return POINTS_PER_LOG_ODDS * fit_abilities(wins)

    def _probabilities(self, x: Array, nu: float) -> tuple[Array, Array]:
        """That the first of a pair wins, and that there is a tie, in each order (..., orders)."""
        shown_first = math.log(self.first_shown / (1 - self.first_shown))
        x = x[..., None] + np.array([shown_first, -shown_first])
        win, loss = np.exp(x / 2), np.exp(-x / 2)
        total = win + loss + nu
        return win / total, nu / total

    def _expected(self, offset: float, nu: float) -> tuple[float, float]:
        """The same over prompts, whose part in x is normal, and over orders."""
        spread = math.sqrt(2 * self.quality**2 + self.pair_noise**2)
        win, tie = self._probabilities(offset + spread * _NODES, nu)
        return float(_WEIGHTS @ win.mean(axis=1)), float(_WEIGHTS @ tie.mean(axis=1))


def in_one_order(
    battles: Battles,
    rng: np.random.Generator,
    *,
    a_first: float = 0.5,
    both_orders: float = 0.0,
) -> Battles:
    """The battles as if each had been judged in one order, model_a shown first so often, but for a
    share of them."""
    is_ab, none = rng.random(len(battles)) < a_first, np.int8(-1)
    both = rng.random(len(battles)) < both_orders if both_orders else False
    ab, ba = battles.verdict_ab, battles.verdict_ba
    return replace(
        battles,
        winner=np.where(both, battles.winner, np.where(is_ab, ab, ba)),
        verdict_ab=np.where(is_ab | both, ab, none),
        verdict_ba=np.where(is_ab & ~np.asarray(both), none, ba),
    )


@functools.cache
def _calibrated(tournament: Tournament) -> tuple[float, Array]:
    """nu, and the offsets (pairs,)."""

    def too_many_ties(log_nu: float) -> float:
        return tournament._expected(0.0, math.exp(log_nu))[1] - tournament.ties

    def offset(gap: float) -> float:
        def too_many_wins(x: float) -> float:
            win, tie = tournament._expected(x, nu)
            return win / (1 - tie) - 1 / (1 + 10 ** (-gap / 400))

        return float(brentq(too_many_wins, -40, 40, xtol=1e-14))

    nu = (
        math.exp(brentq(too_many_ties, -20, 20, xtol=1e-14)) if tournament.ties else 0.0
    )
    r = tournament.ratings
    return nu, np.array([offset(r[i] - r[j]) for i, j in tournament.pairs])
