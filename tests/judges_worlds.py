"""Tournaments that several judges have judged, of which the truth is known.

Judge j sees entrant m on prompt k at s_j (theta_m + u_km) + taste_jm + v_jkm, in log-odds, and gives its verdicts in both
orders by that. What is to be covered is the board of such judges without taste, on the mean of their scales, over
infinitely many prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, fit_abilities

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(30)  # of a standard normal
_WEIGHTS /= _WEIGHTS.sum()


@dataclass(frozen=True, kw_only=True)
class Panel:
    """J judges of m entrants.

    taste, scale  standard deviations over judges: of tastes, and of the logarithm of s
    favour        log-odds by which the first judge favours the first entrant
    skewed        tastes are exponential in place of normal
    """

    n_judges: int
    n_entrants: int
    n_prompts: int = 100
    taste: float = 0.35
    scale: float = 0.3
    spread: float = 0.6  # of the entrants' abilities
    of_prompt: float = 0.9  # how much an answer's quality varies, for all judges
    of_judge: float = 0.5  # and for one of them
    favour: float = 0.0
    skewed: bool = False

    def draw(self, rng: np.random.Generator) -> tuple[dict[str, Battles], Array]:
        """Return the battles of each judge, and the true differences (p,) in rating points, the first of a pair less
        the second."""
        m, n = self.n_entrants, self.n_judges
        theta = self.spread * rng.standard_normal(m)
        s = np.exp(self.scale * rng.standard_normal(n))
        drawn = rng.exponential(size=(n, m)) - 1.0
        drawn = drawn if self.skewed else rng.standard_normal((n, m))
        taste = self.taste * drawn
        taste[0, 0] += self.favour
        quality = theta + self.of_prompt * rng.standard_normal((self.n_prompts, m))
        seen = s[:, None, None] * quality + taste[:, None]
        seen += self.of_judge * rng.standard_normal(seen.shape)
        a, b = np.triu_indices(m, 1)
        p = 1.0 / (1.0 + np.exp(seen[..., b] - seen[..., a]))
        wins = rng.random((2, *p.shape)) < p  # (orders, J, K, pairs)
        return {
            f"judge{j}": self._battles(wins[:, j].astype(np.int8)) for j in range(n)
        }, self._truth(theta, s)

    def _battles(self, wins: Array) -> Battles:
        """Of one judge, from whether the first of a pair wins (orders, K, pairs)."""
        a, b = np.triu_indices(self.n_entrants, 1)
        ab, ba = (1 - wins).reshape(2, -1).astype(np.int8)
        n, k = len(ab), self.n_prompts
        none = np.full(n, -1, dtype=np.int32)
        return Battles(
            models=tuple(f"m{i:02d}" for i in range(self.n_entrants)),
            model_a=np.tile(a.astype(np.int32), k),
            model_b=np.tile(b.astype(np.int32), k),
            winner=np.where(ab == ba, ab, np.int8(2)),
            verdict_ab=ab,
            verdict_ba=ba,
            score=np.full(n, np.nan),
            equal_answers=np.zeros(n, dtype=np.bool_),
            questions=tuple(f"q{q:03d}" for q in range(k)),
            question=np.repeat(np.arange(k, dtype=np.int32), len(a)),
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

    def _truth(self, theta: Array, s: Array) -> Array:
        a, b = np.triu_indices(self.n_entrants, 1)
        boards = []
        for one in s.tolist():
            noise = np.sqrt(2 * (one * self.of_prompt) ** 2 + 2 * self.of_judge**2)
            at = one * (theta[a] - theta[b])[:, None] + noise * _NODES
            wins = np.zeros((self.n_entrants,) * 2)
            wins[a, b] = (1.0 / (1.0 + np.exp(-at))) @ _WEIGHTS
            wins[b, a] = 1.0 - wins[a, b]
            boards.append(fit_abilities(wins))
        board = np.mean(boards, axis=0)
        return np.asarray(POINTS_PER_LOG_ODDS * (board[a] - board[b]))
