"""Rao and Kupper's Bradley-Terry with ties: a model must be better by a threshold to be seen to win."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elo_exp.records import Battle
from elo_exp.results import Leaderboard
from elo_exp.statistics import ties
from elo_exp.statistics.likelihood import Array
from elo_exp.types import RatingPoints, Use


class RaoKupperModel:
    """P(i beats j) = pi_i / (pi_i + eta pi_j), eta >= 1, with theta = log pi (Rao and Kupper 1967).

    P(tie) = (eta^2 - 1) P(i beats j) P(j beats i): as if each had won a game with a handicap of log eta.
    """

    symbol = "eta"
    never = 0.0

    def start(self, tie_share: float) -> float:
        return math.log((1.0 + tie_share) / (1.0 - tie_share))

    def curves(self, gap: Array, tie: float) -> ties.Curves:
        won = -np.logaddexp(0.0, tie - gap)
        lost = -np.logaddexp(0.0, tie + gap)
        not_won, not_lost = -np.expm1(won), -np.expm1(lost)
        won_bend, lost_bend = -np.exp(won) * not_won, -np.exp(lost) * not_lost
        share = -math.expm1(-2.0 * tie)  # 1 - 1 / eta^2
        both = 2.0 * tie + math.log(share)  # log(eta^2 - 1), and its derivatives by log eta
        both_by_tie = 2.0 / share
        both_bend = -4.0 * (1.0 - share) / share**2
        return ties.Curves(
            value=np.stack([lost, lost + won + both, won], axis=1),
            by_gap=np.stack([-not_lost, not_won - not_lost, not_won], axis=1),
            by_tie=np.stack([-not_lost, both_by_tie - not_won - not_lost, -not_won], axis=1),
            by_gap_twice=np.stack([lost_bend, won_bend + lost_bend, won_bend], axis=1),
            by_gap_and_tie=np.stack([lost_bend, lost_bend - won_bend, -won_bend], axis=1),
            by_tie_twice=np.stack([lost_bend, won_bend + lost_bend + both_bend, won_bend], axis=1),
        )


@dataclass(kw_only=True)
class RaoKupper:
    """Ratings centred at `initial_rating`, with prompt-clustered intervals; see `ties.rate`.

    use  both: the two orders of a pair are two games; consistent: one game, the reconciled winner
    A gap is of pi, on the same scale of 400 points for a factor of ten; wins to defeats spread a little wider. The
    leaderboard's parameters are `eta`, `eta_std_error` and `p_tie_equal` = (eta - 1) / (eta + 1).
    """

    initial_rating: RatingPoints
    use: Use

    def rate(self, battles: Mapping[str, Sequence[Battle]]) -> dict[str, Leaderboard]:
        return ties.rate(
            battles,
            RaoKupperModel(),
            method="rao_kupper",
            label="Rao-Kupper",
            initial_rating=self.initial_rating,
            use=self.use,
        )
