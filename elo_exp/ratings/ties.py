"""Paired comparisons in which a tie is an outcome of its own: Davidson, and Rao and Kupper.

Letters: i, j of m models; p of the pairs i < j that met; g games; o the outcome of a game for i:
lost, tied, won. A model of ties says how likely each outcome is, given the gap theta_i - theta_j in
log-odds and one tie parameter that all pairs share. That parameter is held as a logarithm, which is
what makes the likelihoods concave.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.sparse import csgraph

from elo_exp.arrays import Array, Index
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import (
    Fit,
    leaderboard,
    mean_zero,
    newton,
    sandwich,
    why_unrated,
)
from elo_exp.ratings.games import Games, games, numbered
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.types import RatingPoints, Use


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The log-probability of each outcome (p, o) and its derivatives by gap and log parameter."""

    value: Array
    by_gap: Array
    by_tie: Array
    by_gap_twice: Array
    by_gap_and_tie: Array
    by_tie_twice: Array


@dataclass(kw_only=True)
class TieModel(ABC):
    """Ratings centred at `initial_rating`, with prompt-clustered intervals.

    use  both: the two orders of a battle are two games; consistent: one game, the reconciled winner

    The leaderboard's parameters are the tie parameter (`nu`, say), its standard error
    (`nu_std_error`) and the share of games that two equals tie (`p_tie_equal`). Without a tie the
    parameter is at the end of its range and has no error. Where every game is a tie it has no
    finite estimate and is left out; the ratings are equal, and how sure that is cannot be told.

    A model without a finite rating is flagged as in Bradley-Terry. Where results never contradict
    one another, as when of two models one has won and tied but never lost, the likelihood grows for
    ever as gaps and ties grow together. Then nobody has a rating: unbeaten is who never lost,
    winless who never won, and the others are `separated`.
    """

    label: ClassVar[str]
    symbol: ClassVar[str]  # of the tie parameter
    never: ClassVar[
        float
    ]  # its logarithm where nobody ties: the lower end of its range

    initial_rating: RatingPoints
    use: Use

    @abstractmethod
    def start(self, tie_share: float) -> float:
        """The log tie parameter at which equals tie this often, above 0 and below 1."""

    @abstractmethod
    def curves(self, gap: Array, tie: float) -> Curves:
        """At gaps (p,) and a log tie parameter above `never`."""

    def rate(self, battles: Mapping[str, Battles]) -> dict[str, Leaderboard]:
        return {
            name: self._leaderboard(some) for name, some in battles.items() if len(some)
        }

    def _leaderboard(self, battles: Battles) -> Leaderboard:
        every = games(battles, use=self.use)
        fit = Fit.of(every)  # Bradley-Terry: who is rated, and where to start
        flags = why_unrated(fit.wins, fit.rated)
        ties = fit.played.ties()
        won = fit.played.wins() - ties / 2.0
        if is_separated(won, ties):
            won_by_all = fit.wins - every.ties() / 2.0
            for i in np.flatnonzero(fit.rated).tolist():
                has_won, has_lost = won_by_all[i].any(), won_by_all[:, i].any()
                flags[i] = (
                    "unbeaten"
                    if not has_lost
                    else "winless"
                    if not has_won
                    else "separated"
                )
            fit = _unrated(fit)
        elif ties.any():
            fit = self.fit(fit, ties, won)
        elif len(fit.theta):
            fit = replace(fit, parameters=self._parameters(self.never, math.nan))
        return leaderboard(
            fit,
            battles,
            label=self.label,
            interval="prompt-clustered",
            initial_rating=self.initial_rating,
            flags=flags,
        )

    def fit(self, start: Fit, ties: Array, won: Array) -> Fit:
        """Fit abilities and tie parameter to ties and wins (m, m), starting at Bradley-Terry."""
        m = len(start.theta)
        if not won.any():
            return replace(start, theta=np.zeros(m), covariance=np.full((m, m), np.nan))
        pairs = _Pairs.of(start.played)
        parameters = self._maximum(pairs, start.theta)
        covariance = self._covariance(start.played, pairs, parameters)
        return replace(
            start,
            theta=parameters[:m],
            covariance=covariance[:m, :m],
            parameters=self._parameters(float(parameters[m]), float(covariance[m, m])),
        )

    def _parameters(self, tie: float, variance: float) -> dict[str, float]:
        value = math.exp(tie)
        is_never = tie == self.never
        p_tie_equal = (
            0.0 if is_never else math.exp(self.curves(np.zeros(1), tie).value[0, 1])
        )
        found = {
            self.symbol: value,
            f"{self.symbol}_std_error": value
            * math.sqrt(max(variance, 0.0)),  # the delta method
            "p_tie_equal": p_tie_equal,
        }
        return {name: number for name, number in found.items() if math.isfinite(number)}

    def _maximum(self, pairs: _Pairs, theta: Array) -> Array:
        """Abilities, mean zero, and the log tie parameter (m + 1,)."""
        m = len(theta)

        def log_likelihood(parameters: Array) -> float:
            if parameters[m] <= self.never:
                return -math.inf
            return float(
                np.vdot(pairs.counts, self._curves_at(parameters, pairs).value)
            )

        def derivatives(parameters: Array) -> tuple[Array, Array]:
            curves = self._curves_at(parameters, pairs)
            level = mean_zero(m, m + 1)
            return pairs.gradient(curves, m), pairs.information(curves, m) + level

        tie_share = float(pairs.counts[:, 1].sum() / pairs.counts.sum())
        start = np.append(theta, self.start(tie_share))
        parameters = newton(start, log_likelihood, derivatives)
        parameters[:m] -= parameters[:m].mean()
        return parameters

    def _curves_at(self, parameters: Array, pairs: _Pairs) -> Curves:
        gap = parameters[pairs.first] - parameters[pairs.second]
        return self.curves(gap, float(parameters[-1]))

    def _covariance(self, played: Games, pairs: _Pairs, parameters: Array) -> Array:
        """The sandwich (m + 1, m + 1) of abilities and log tie parameter, clustered by prompt."""
        m = played.n_models
        curves = self._curves_at(parameters, pairs)
        towards_first = np.where(played.first < played.second, 1.0, -1.0)
        by_gap = towards_first * curves.by_gap[pairs.pair, pairs.outcome]
        by_cluster = played.by_cluster(by_gap, curves.by_tie[pairs.pair, pairs.outcome])
        level = mean_zero(m, m + 1)
        bread = np.linalg.inv(pairs.information(curves, m) + level) - level
        return sandwich(bread, by_cluster, n_models=m)


def _unrated(fit: Fit) -> Fit:
    nobody = np.zeros_like(fit.rated)
    return replace(
        fit,
        rated=nobody,
        played=fit.played.among(np.zeros(len(fit.theta), dtype=np.bool_)),
        theta=np.zeros(0),
        covariance=np.zeros((0, 0)),
    )


def is_separated(won: Array, ties: Array) -> bool:
    """Whether the maximum lies at infinity although chains of wins or ties lead to everyone.

    won, ties  (m, m) how often i beat j, and how often they tied
    Abilities a_i and the tie parameter can then grow together, a_i - a_j >= 1 wherever i beat j and
    |a_i - a_j| <= 1 wherever they tied, and no outcome that was seen gets less likely. There are
    such a_i unless some cycle of results, from winner to loser or along a tie, has more wins than
    ties: a negative cycle of difference constraints (Bellman 1958). Without ties there is always
    such a cycle, and without wins no ability is at stake.
    """
    if not ties.any() or not won.any() or ((won > 0) & (won.T > 0)).any():
        return False
    cost = np.where(won > 0, -1.0, np.where(ties > 0, 1.0, 0.0))  # 0: no link
    try:
        csgraph.bellman_ford(cost, indices=0)
    except csgraph.NegativeCycleError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """The pairs that met, how often each outcome came, and the pair and outcome of each game."""

    first: Index  # (p,)
    second: Index  # (p,), the larger number
    counts: Array  # (p, o)
    pair: Index  # (g,)
    outcome: Index  # (g,)

    @classmethod
    def of(cls, played: Games) -> _Pairs:
        m = played.n_models
        first = np.minimum(played.first, played.second)
        second = np.maximum(played.first, played.second)
        score = np.where(played.first == first, played.score, 1.0 - played.score)
        outcome = (2.0 * score).astype(np.intp)
        met, pair = numbered(first * m + second)
        counts = np.bincount(3 * pair + outcome, minlength=3 * len(met))
        return cls(
            first=met // m,
            second=met % m,
            counts=counts.reshape(-1, 3).astype(np.float64),
            pair=pair,
            outcome=outcome,
        )

    def gradient(self, curves: Curves, m: int) -> Array:
        """By the abilities and the log tie parameter (m + 1,)."""
        by_gap = (self.counts * curves.by_gap).sum(axis=1)
        gradient = self._by_model(by_gap, m)
        return np.append(gradient, np.vdot(self.counts, curves.by_tie))

    def information(self, curves: Curves, m: int) -> Array:
        """The negative second derivative (m + 1, m + 1) of the log-likelihood."""
        found = np.zeros((m + 1, m + 1))
        of_pair = (self.counts * curves.by_gap_twice).sum(axis=1)
        found[self.first, self.second] = found[self.second, self.first] = of_pair
        np.fill_diagonal(found, -found.sum(axis=1))
        with_tie = (self.counts * curves.by_gap_and_tie).sum(axis=1)
        found[:m, m] = found[m, :m] = -self._by_model(with_tie, m)
        found[m, m] = -np.vdot(self.counts, curves.by_tie_twice)
        return found

    def _by_model(self, terms: Array, m: int) -> Array:
        """Sum terms (p,) of the pairs of which a model is the first, less those of the others."""
        return np.subtract(
            np.bincount(self.first, terms, m),
            np.bincount(self.second, terms, m),
            dtype=np.float64,
        )


class Davidson(TieModel):
    """P(i beats j) : P(tie) : P(j beats i) = pi_i : nu sqrt(pi_i pi_j) : pi_j, theta = log pi.

    Given that there is no tie it is Bradley-Terry (Davidson 1970). A gap of 400 points means ten
    wins to a defeat, however many ties there are; counting ties as half wins would understate it.
    `p_tie_equal` is nu / (2 + nu).
    """

    label = "Davidson"
    symbol = "nu"
    never = -math.inf

    def start(self, tie_share: float) -> float:
        return math.log(2.0 * tie_share / (1.0 - tie_share))

    def curves(self, gap: Array, tie: float) -> Curves:
        """Log-linear: second derivatives are minus covariances of what multiplies gap and nu."""
        exponent = np.stack([-gap / 2.0, np.full_like(gap, tie), gap / 2.0], axis=1)
        value = exponent - np.logaddexp.reduce(exponent, axis=1, keepdims=True)
        lost, tied, won = np.exp(value).T
        lead = (won - lost) / 2.0

        def for_each_outcome(terms: Array) -> Array:
            return np.repeat(terms[:, None], 3, axis=1)

        return Curves(
            value=value,
            by_gap=np.array([-0.5, 0.0, 0.5]) - lead[:, None],
            by_tie=np.array([0.0, 1.0, 0.0]) - tied[:, None],
            by_gap_twice=for_each_outcome(lead**2 - (won + lost) / 4.0),
            by_gap_and_tie=for_each_outcome(lead * tied),
            by_tie_twice=for_each_outcome(tied**2 - tied),
        )


class RaoKupper(TieModel):
    """P(i beats j) = pi_i / (pi_i + eta pi_j), eta >= 1, with theta = log pi (Rao and Kupper 1967).

    P(tie) = (eta^2 - 1) P(i beats j) P(j beats i): a model must be better by a threshold, log eta,
    to be seen to win. A gap is of pi, on the same scale of 400 points for a factor of ten; wins to
    defeats spread a little wider. `p_tie_equal` is (eta - 1) / (eta + 1).
    """

    label = "Rao-Kupper"
    symbol = "eta"
    never = 0.0

    def start(self, tie_share: float) -> float:
        return math.log((1.0 + tie_share) / (1.0 - tie_share))

    def curves(self, gap: Array, tie: float) -> Curves:
        won = -np.logaddexp(0.0, tie - gap)
        lost = -np.logaddexp(0.0, tie + gap)
        not_won, not_lost = -np.expm1(won), -np.expm1(lost)
        won_bend, lost_bend = -np.exp(won) * not_won, -np.exp(lost) * not_lost
        share = -math.expm1(-2.0 * tie)  # 1 - 1 / eta^2
        both = 2.0 * tie + math.log(
            share
        )  # log(eta^2 - 1), and its derivatives by log eta
        both_by_tie = 2.0 / share
        both_bend = -4.0 * (1.0 - share) / share**2
        return Curves(
            value=np.stack([lost, lost + won + both, won], axis=1),
            by_gap=np.stack([-not_lost, not_won - not_lost, not_won], axis=1),
            by_tie=np.stack(
                [-not_lost, both_by_tie - not_won - not_lost, -not_won], axis=1
            ),
            by_gap_twice=np.stack([lost_bend, won_bend + lost_bend, won_bend], axis=1),
            by_gap_and_tie=np.stack(
                [lost_bend, lost_bend - won_bend, -won_bend], axis=1
            ),
            by_tie_twice=np.stack(
                [lost_bend, won_bend + lost_bend + both_bend, won_bend], axis=1
            ),
        )
