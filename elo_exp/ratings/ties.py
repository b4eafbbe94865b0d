"""Paired comparisons in which a tie is an outcome of its own: Davidson, and Rao and Kupper.

A model of ties gives the probability of each outcome of a game, given the gap theta_i - theta_j in
log-odds and one tie parameter that all pairs share. That parameter is fitted as a logarithm, which is
what makes the likelihoods concave. Letters: i, j of m models; k kinds of games.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy import sparse, special
from scipy.sparse import csgraph

from elo_exp.arrays import Array, Mask
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import (
    Fit,
    leaderboard,
    mean_zero,
    newton,
    sandwich,
    why_unrated,
)
from elo_exp.ratings.games import differences, games, kinds
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import UserError
from elo_exp.types import Orders, RatingPoints

# The log-likelihood (k,) of one game of each kind, its derivatives by the gap and by the logarithm of the
# tie parameter, and the second ones: by the gap, by both, by the parameter
Curves = tuple[Array, Array, Array, Array, Array, Array]


@dataclass(kw_only=True)
class TieModel(ABC):
    """Ratings centred at `initial_rating`, with prompt-clustered intervals.

    orders  both: the two orders of a battle are two games; reconciled: one game, the winner

    The leaderboard's parameters are the tie parameter (such as `nu`), its standard error
    (`nu_std_error`) and the share of games that two equals tie (`p_tie_equal`). Without a tie the
    parameter is at the end of its range and has no error. Where every game is a tie it has no
    finite estimate and is left out; the ratings are equal and have no error.

    A model without a finite rating is flagged as in Bradley-Terry. Where results never contradict
    one another, as when of two models one has won and tied but never lost, the likelihood grows for
    ever as gaps and ties grow together. Then no model has a rating: unbeaten is who never lost,
    winless who never won, and the others are `separated`.
    """

    label: ClassVar[str]
    symbol: ClassVar[str]  # of the tie parameter
    never: ClassVar[float]  # its value where nobody ties: the lower end of its range

    initial_rating: RatingPoints
    orders: Orders

    @abstractmethod
    def curves(self, gap: Array, tie: float, is_tie: Mask) -> Curves | None:
        """Of a tie, or of a win across a gap (k,); by the logarithm of the tie parameter."""

    def rate(self, battles: Mapping[str, Battles]) -> dict[str, Leaderboard]:
        return {
            name: self._leaderboard(some) for name, some in battles.items() if len(some)
        }

    def _leaderboard(self, battles: Battles) -> Leaderboard:
        n_shares = np.count_nonzero(battles.scores() % 0.5)
        if n_shares:
            raise UserError(
                f"rating: {self.label} needs wins, losses and ties, and {n_shares} battles have a "
                "share between. Choose 'rating=[bradley_terry]'."
            )
        every = games(battles, orders=self.orders)
        fit = Fit.of(every)  # Bradley-Terry: who is rated, and where to start
        flags = why_unrated(fit.wins, fit.rated)
        ties = fit.played.ties()
        if is_separated(fit.played.wins() - ties / 2.0, ties):
            decisive = fit.wins - every.ties() / 2.0
            for i, flag in why_unrated(decisive, ~fit.rated).items():
                flags[i] = "separated" if flag == "disconnected" else flag
            nothing = np.full_like(fit.covariance, np.nan)
            fit = replace(fit, theta=np.diag(nothing), covariance=nothing)
        else:
            fit = self.fit(fit)
        return leaderboard(
            fit,
            battles,
            label=self.label,
            interval="prompt-clustered",
            initial_rating=self.initial_rating,
            flags=flags,
        )

    def fit(self, start: Fit) -> Fit:
        """Fit abilities and tie parameter, starting at Bradley-Terry's, which it is without a tie."""
        played, m = start.played, len(start.theta)
        is_tie = played.score == 0.5
        if is_tie.all():
            nothing = np.full((m, m), np.nan)
            return replace(start, theta=np.zeros(m), covariance=nothing)
        if not is_tie.any():
            found = {self.symbol: self.never, "p_tie_equal": 0.0}
            return replace(start, parameters=found)
        first, second, score, kind = kinds(played)
        count, tied = np.bincount(kind), score == 0.5
        rows, ones, level = (
            np.arange(len(count)),
            np.ones(len(count)),
            mean_zero(m, m + 1),
        )
        design = differences(rows, first, second, ones, shape=(len(count), m))

        def evaluate(parameters: Array) -> tuple[float, Array, Array]:
            there = self.curves(design @ parameters[:m], float(parameters[m]), tied)
            if there is None:
                return -np.inf, parameters, level
            value, by_gap, by_tie, by_gap_twice, by_both, by_tie_twice = there
            gradient = np.append(design.T @ (count * by_gap), count @ by_tie)
            bend = np.zeros((m + 1, m + 1))
            weight = sparse.diags_array(count * by_gap_twice)
            bend[:m, :m] = (design.T @ weight @ design).toarray()
            bend[:m, m] = bend[m, :m] = design.T @ (count * by_both)
            bend[m, m] = count @ by_tie_twice
            return float(count @ value), gradient, level - bend

        parameters, information = newton(np.append(start.theta, 1.0), evaluate)
        theta, tie = parameters[:m] - parameters[:m].mean(), float(parameters[m])
        there, equals = (
            self.curves(gap, tie, is_tie)
            for gap, is_tie in ((design @ theta, tied), (np.zeros(1), np.ones(1, bool)))
        )
        assert there is not None and equals is not None
        by_kind = replace(played, first=first[kind], second=second[kind])
        by_cluster = by_kind.by_cluster(there[1][kind], there[2][kind])
        covariance = sandwich(np.linalg.inv(information) - level, by_cluster, m)
        value = math.exp(tie)
        found = {self.symbol: value, "p_tie_equal": math.exp(equals[0][0])}
        if math.isfinite(covariance[m, m]):  # by the delta method
            found[f"{self.symbol}_std_error"] = value * math.sqrt(covariance[m, m])
        covariance = covariance[:m, :m]
        return replace(start, theta=theta, covariance=covariance, parameters=found)


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


class Davidson(TieModel):
    """P(i beats j) : P(tie) : P(j beats i) = pi_i : nu sqrt(pi_i pi_j) : pi_j, theta = log pi.

    Given that there is no tie it is Bradley-Terry (Davidson 1970). A gap of 400 points means ten
    wins to a defeat, however many ties there are; counting ties as half wins would understate it.
    `p_tie_equal` is nu / (2 + nu).
    """

    label = "Davidson"
    symbol = "nu"
    never = 0.0

    def curves(self, gap: Array, tie: float, is_tie: Mask) -> Curves:
        """Log-linear: second derivatives are minus covariances of what multiplies gap and nu."""
        exponents = np.stack([gap / 2.0, np.full_like(gap, tie), -gap / 2.0])
        total = np.logaddexp.reduce(exponents)
        won, tied, lost = np.exp(exponents - total)
        lead = (won - lost) / 2.0
        return (
            np.where(is_tie, tie, gap / 2.0) - total,
            np.where(is_tie, 0.0, 0.5) - lead,
            is_tie - tied,
            lead**2 - (won + lost) / 4.0,
            lead * tied,
            tied**2 - tied,
        )


class RaoKupper(TieModel):
    """P(i beats j) = pi_i / (pi_i + eta pi_j), eta >= 1, with theta = log pi (Rao and Kupper 1967).

    P(tie) = (eta^2 - 1) P(i beats j) P(j beats i): a model must be better by a threshold, log eta,
    to be seen to win. A gap is of pi, on the same scale of 400 points for a factor of ten; wins to
    defeats spread a little wider. `p_tie_equal` is (eta - 1) / (eta + 1).
    """

    label = "Rao-Kupper"
    symbol = "eta"
    never = 1.0

    def curves(self, gap: Array, tie: float, is_tie: Mask) -> Curves | None:
        if tie <= 0.0:
            return None
        won, lost = special.log_expit(gap - tie), special.log_expit(-gap - tie)
        not_won, not_lost = -np.expm1(won), -np.expm1(lost)
        won_bend, lost_bend = -np.exp(won) * not_won, -np.exp(lost) * not_lost
        share = -math.expm1(-2.0 * tie)  # 1 - 1 / eta^2
        both = 2.0 * tie + math.log(share)  # log(eta^2 - 1), and its derivatives
        both_slope, both_bend = 2.0 / share, -4.0 * (1.0 - share) / share**2
        return (
            won + is_tie * (lost + both),
            not_won - is_tie * not_lost,
            is_tie * (both_slope - not_lost) - not_won,
            won_bend + is_tie * lost_bend,
            is_tie * lost_bend - won_bend,
            won_bend + is_tie * (lost_bend + both_bend),
        )
