"""Votes and verdicts of which the truth is known: a judge that stretches distances and has tastes.

Abilities are in log-odds. A judge's ability of a model is s times the humans' plus its taste; each
comparison has a noise that both orders share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from elo_exp.arena.joint_fit import JointFit, fit_jointly
from elo_exp.arrays import Array, Index
from elo_exp.data.battles import Battles
from elo_exp.records import WINNERS, Battle

PLACED = "placed"


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    votes: Battles
    calibrating: Battles
    judged: Battles
    truth: float  # of the placed model, in log-odds from the mean of the anchors

    kin: tuple[str, ...] = ()

    def fit(self) -> JointFit:
        parts = self.votes, self.calibrating, self.judged
        return fit_jointly(*parts, [PLACED], self.kin)


@dataclass(frozen=True, kw_only=True)
class JudgedWorld:
    """place_at       of the placed model, in standard deviations of the anchors; None: drawn
    placed_taste   of the judge for the placed model, in standard deviations of tastes; None: drawn
    n_kin_anchors  anchors of the judge's family, of which the placed model is; None: nobody is
    kin            log-odds that the judge adds to its family
    """

    n_anchors: int = 20
    spread: float = 0.6
    s: float = 1.5
    taste: float = 0.4
    has_heavy_tails: bool = False
    position: float = 0.3
    noise: float = 0.7
    place_at: float | None = None
    placed_taste: float | None = None
    n_votes: int = 8000
    n_calibrating: int = 300
    n_judged: int = 500
    n_votes_on_placed: int = 0
    n_kin_anchors: int | None = None
    kin: float = 0.0

    @property
    def names(self) -> list[str]:
        return [*(f"m{i:02}" for i in range(self.n_anchors)), PLACED]

    def draw(self, seed: int) -> Drawn:
        rng, m = np.random.default_rng(seed), self.n_anchors
        theta = rng.normal(0, self.spread, m + 1)
        if self.place_at is not None:
            theta[m] = self.place_at * self.spread
        tastes = rng.normal(0, 1, m + 1)
        if self.has_heavy_tails:
            tastes = rng.standard_t(3, m + 1) / np.sqrt(3)
        if self.placed_taste is not None:
            tastes[m] = self.placed_taste
        phi = self.s * theta + self.taste * tastes
        kin = [] if self.n_kin_anchors is None else [*range(self.n_kin_anchors), m]
        phi[kin] += self.kin
        a = rng.integers(m, size=self.n_votes)
        b = (a + 1 + rng.integers(m - 1, size=self.n_votes)) % m
        met = rng.integers(m, size=self.n_votes_on_placed)
        all_a, all_b = np.append(a, np.full(len(met), m)), np.append(b, met)
        winner = codes(expit(theta[all_a] - theta[all_b]), 0.35, rng)
        votes = self.battles(all_a, all_b, np.arange(len(all_a)), winner)
        drawn = rng.permutation(self.n_votes)
        again, entered = drawn[: self.n_calibrating], drawn[: self.n_judged]
        met = np.where(rng.random(self.n_judged) < 0.5, a[entered], b[entered])
        return Drawn(
            votes=votes,
            calibrating=self.judge(phi, a[again], b[again], again, rng),
            judged=self.judge(phi, np.full(len(met), m), met, entered, rng),
            truth=float(theta[m] - theta[:m].mean()),
            kin=tuple(self.names[i] for i in kin),
        )

    def judge(
        self, phi: Array, a: Index, b: Index, q: Index, rng: np.random.Generator
    ) -> Battles:
        """Both orders of each battle."""
        gap = phi[a] - phi[b] + rng.normal(0, self.noise, len(a))
        ab, ba = (codes(expit(gap + x * self.position), 0.1, rng) for x in (1.0, -1.0))
        return self.battles(a, b, q, np.where(ab == ba, ab, 2), ab, ba)

    def battles(self, a: Index, b: Index, q: Index, *winners: Array) -> Battles:
        fields = ("winner", "verdict_ab", "verdict_ba")[: len(winners)]
        rows = []
        for i, j, question, *won in np.stack([a, b, q, *winners], axis=1).tolist():
            told = dict(zip(fields, (WINNERS[code] for code in won), strict=True))
            row = Battle(
                model_a=self.names[i],
                model_b=self.names[j],
                question_id=f"q{question}",
                **told,
            )
            rows.append(row)
        return Battles.from_rows(rows)


def codes(p: Array, ties: float, rng: np.random.Generator) -> Array:
    """The winner's code where model_a wins with probability p, ties counted half."""
    tie, u = np.minimum(ties, 1.8 * np.minimum(p, 1 - p)), rng.random(len(p))
    return np.where(u < p - tie / 2, 0, np.where(u < p + tie / 2, 2, 1))
