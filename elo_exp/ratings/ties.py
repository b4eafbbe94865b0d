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
import scipy

from elo_exp.arrays import Array, Mask, count_codes
from elo_exp.data.battles import Battles
from elo_exp.errors import SettingError
from elo_exp.ratings.fit import (
    Fit,
    make_leaderboard,
    maximize_by_newton,
    mean_zero_constraint,
    sandwich,
    unrated_reasons,
)
from elo_exp.ratings.games import difference_matrix, group_kinds, make_games
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.types import Orders, RatingPoints

# The log-likelihood (k,) of one game of each kind, its derivatives (2, k) by the gap and by the logarithm of
# the tie parameter, and the second ones (2, 2, k)
Curves = tuple[Array, Array, Array]


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
    min_tie_parameter: ClassVar[
        float
    ]  # its value where nobody ties: the lower end of its range

    initial_rating: RatingPoints
    orders: Orders

    @abstractmethod
    def log_likelihood(self, at: Array, is_tie: Mask) -> Curves:
        """Of a tie, or of a win, at (2, k): the gap and the logarithm of the tie parameter."""

    def rate(self, battles: Mapping[str, Battles]) -> dict[str, Leaderboard]:
        return {
            name: self._leaderboard(dimension_battles)
            for name, dimension_battles in battles.items()
            if len(dimension_battles)
        }

    def _leaderboard(self, battles: Battles) -> Leaderboard:
        n_shares = battles.count_at(battles.scores() % 0.5 > 0)
        if n_shares:
            raise SettingError(
                f"{self.label} needs wins, losses and ties, and {n_shares:,} battles have a share in between. Use:",
                "  'rating=[bradley_terry]'",
            )
        all_games = make_games(battles, orders=self.orders)
        fit = Fit.from_games(
            all_games
        )  # Bradley-Terry: who is rated, and where to start
        flags = unrated_reasons(fit.wins, fit.is_rated)
        ties = fit.games.ties()
        if is_separated(fit.games.wins() - ties / 2.0, ties):
            decisive_wins = fit.wins - all_games.ties() / 2.0
            for i, flag in unrated_reasons(decisive_wins, ~fit.is_rated).items():
                flags[i] = "separated" if flag == "disconnected" else flag
            nan_covariance = np.full_like(fit.covariance, np.nan)
            fit = replace(fit, theta=np.diag(nan_covariance), covariance=nan_covariance)
        else:
            fit = self.fit(fit)
        return make_leaderboard(
            fit,
            battles,
            label=self.label,
            interval="prompt-clustered",
            initial_rating=self.initial_rating,
            flags=flags,
        )

    def fit(self, start: Fit) -> Fit:
        """Fit abilities and tie parameter, starting at Bradley-Terry's, which it is without a tie."""
        played, m = start.games, len(start.theta)
        is_tie = played.score == 0.5
        if is_tie.all():
            nan_covariance = np.full((m, m), np.nan)
            return replace(start, theta=np.zeros(m), covariance=nan_covariance)
        if not is_tie.any():
            parameters = {self.symbol: self.min_tie_parameter, "p_tie_equal": 0.0}
            return replace(start, parameters=parameters)
        first, second, score, kind = group_kinds(played)
        count, is_tie_kind, k = (
            count_codes(kind, played.count),
            score == 0.5,
            len(score),
        )
        ones, level = np.ones(k), mean_zero_constraint(m, m + 1)
        gaps = difference_matrix(np.arange(k), first, second, ones, shape=(k, m))
        design = scipy.sparse.block_diag([gaps, ones[:, None]], format="csr")

        def evaluate(x: Array) -> tuple[float, Array, Array]:
            if math.exp(x[m]) <= self.min_tie_parameter:
                return -np.inf, x, level
            value, slope, second_derivatives = self.log_likelihood(
                (design @ x).reshape(2, k), is_tie_kind
            )
            weight = scipy.sparse.block_array(
                [
                    [scipy.sparse.diags_array(count * column) for column in row]
                    for row in second_derivatives
                ]
            )
            curvature = level - (design.T @ weight @ design).toarray()
            return float(count @ value), design.T @ (count * slope).ravel(), curvature

        x, information = maximize_by_newton(np.append(start.theta, 1.0), evaluate)
        _, slope, _ = self.log_likelihood((design @ x).reshape(2, k), is_tie_kind)
        outcome_of_equals, _, _ = self.log_likelihood(
            np.array([[0.0], x[m:]]), np.ones(1, np.bool_)
        )
        games_by_kind = replace(played, first=first[kind], second=second[kind])
        by_cluster = games_by_kind.sum_by_cluster(*slope[:, kind])
        inverse = np.linalg.inv(information) - level
        covariance = sandwich(inverse, by_cluster, m, n=played.n_clusters)
        value = math.exp(x[m])
        parameters = {self.symbol: value, "p_tie_equal": math.exp(outcome_of_equals[0])}
        if math.isfinite(covariance[m, m]):  # by the delta method
            parameters[f"{self.symbol}_std_error"] = value * math.sqrt(covariance[m, m])
        theta, covariance = x[:m] - x[:m].mean(), covariance[:m, :m]
        return replace(start, theta=theta, covariance=covariance, parameters=parameters)


def is_separated(wins: Array, ties: Array) -> bool:
    """Whether the maximum lies at infinity although chains of wins or ties lead to everyone.

    Abilities a_i and the tie parameter can then grow together, a_i - a_j >= 1 wherever i beat j and
    |a_i - a_j| <= 1 wherever they tied, and no outcome that was seen gets less likely. There are
    such a_i unless some cycle of results, from winner to loser or along a tie, has more wins than
    ties: a negative cycle of difference constraints [1]_. Without ties there is always such a cycle,
    and without wins no ability is at stake.

    Parameters
    ----------
    wins, ties : Array, shape (m, m)
        How often i beat j, and how often they tied, the second symmetric.

    Returns
    -------
    bool

    References
    ----------
    .. [1] R. Bellman (1958), "On a routing problem", Quarterly of Applied Mathematics 16(1), 87-90.
    """
    if not ties.any() or not wins.any() or ((wins > 0) & (wins.T > 0)).any():
        return False
    cost = np.where(wins > 0, -1.0, np.where(ties > 0, 1.0, 0.0))  # 0: no link
    try:
        scipy.sparse.csgraph.bellman_ford(cost, indices=0)
    except scipy.sparse.csgraph.NegativeCycleError:
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
    min_tie_parameter = 0.0

    def log_likelihood(self, at: Array, is_tie: Mask) -> Curves:
        """Log-linear: second derivatives are minus covariances of what multiplies gap and nu."""
        factors = np.array([[0.5, 0.0, -0.5], [0.0, 1.0, 0.0]])  # win, tie, defeat
        log_odds, outcome = factors.T @ at, is_tie.astype(np.intp)
        total = scipy.special.logsumexp(log_odds, axis=0)
        p = np.exp(log_odds - total)
        mean = factors @ p
        return (
            np.choose(outcome, log_odds) - total,
            factors[:, outcome] - mean,
            mean[:, None] * mean - np.einsum("ao,bo,ok->abk", factors, factors, p),
        )


class RaoKupper(TieModel):
    """P(i beats j) = pi_i / (pi_i + eta pi_j), eta >= 1, with theta = log pi (Rao and Kupper 1967).

    P(tie) = (eta^2 - 1) P(i beats j) P(j beats i): a model must be better by a threshold, log eta,
    to be seen to win. A gap is of pi, on the same scale of 400 points for a factor of ten; wins to
    defeats spread a little wider. `p_tie_equal` is (eta - 1) / (eta + 1).
    """

    label = "Rao-Kupper"
    symbol = "eta"
    min_tie_parameter = 1.0

    def log_likelihood(self, at: Array, is_tie: Mask) -> Curves:
        """Of a win, and where they tied of a defeat and of eta^2 - 1, too: their logarithms."""
        signs = np.array([[1.0, -1.0], [-1.0, -1.0]])  # of gap and tie parameter
        log_odds, weight = signs @ at, np.stack([np.ones_like(at[1]), is_tie])
        log_p, not_p = scipy.special.log_expit(log_odds), scipy.special.expit(-log_odds)
        share = -np.expm1(-2.0 * at[1])  # 1 - 1 / eta^2
        slope = signs @ (weight * not_p)
        slope[1] += is_tie * 2.0 / share
        second_derivatives = np.einsum(
            "oa,ob,ok->abk", signs, signs, weight * not_p * (not_p - 1.0)
        )
        second_derivatives[1, 1] -= is_tie * 4.0 * (1.0 - share) / share**2
        value = (weight * log_p).sum(axis=0) + is_tie * (2.0 * at[1] + np.log(share))
        return value, slope, second_derivatives
