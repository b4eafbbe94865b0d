"""Davidson's Bradley-Terry with ties: a tie is an outcome of its own, likelier the closer two models are."""

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


class DavidsonModel:
    """P(i beats j) : P(tie) : P(j beats i) = pi_i : nu sqrt(pi_i pi_j) : pi_j, with theta = log pi (Davidson 1970).

    Given that there is no tie it is Bradley-Terry.
    """

    symbol = "nu"
    never = -math.inf

    def start(self, tie_share: float) -> float:
        return math.log(2.0 * tie_share / (1.0 - tie_share))

    def curves(self, gap: Array, tie: float) -> ties.Curves:
        """A log-linear model: the second derivatives are minus the covariances of what multiplies gap and log nu."""
        exponent = np.stack([-gap / 2.0, np.full_like(gap, tie), gap / 2.0], axis=1)
        value = exponent - np.logaddexp.reduce(exponent, axis=1, keepdims=True)
        lost, tied, won = np.exp(value).T
        lead = (won - lost) / 2.0
        n = len(gap)
        return ties.Curves(
            value=value,
            by_gap=np.array([-0.5, 0.0, 0.5]) - lead[:, None],
            by_tie=np.array([0.0, 1.0, 0.0]) - tied[:, None],
            by_gap_twice=np.repeat(lead**2 - (won + lost) / 4.0, 3).reshape(n, 3),
            by_gap_and_tie=np.repeat(lead * tied, 3).reshape(n, 3),
            by_tie_twice=np.repeat(tied**2 - tied, 3).reshape(n, 3),
        )


@dataclass(kw_only=True)
class Davidson:
    """Ratings centred at `initial_rating`, with prompt-clustered intervals; see `ties.rate`.

    use  both: the two orders of a pair are two games; consistent: one game, the reconciled winner
    A gap of 400 points means ten wins to a defeat, however many ties there are; counting ties as half wins would
    understate it. The leaderboard's parameters are `nu`, `nu_std_error` and `p_tie_equal` = nu / (2 + nu).
    """

    initial_rating: RatingPoints
    use: Use

    def rate(self, battles: Mapping[str, Sequence[Battle]]) -> dict[str, Leaderboard]:
        return ties.rate(
            battles,
            DavidsonModel(),
            method="davidson",
            label="Davidson",
            initial_rating=self.initial_rating,
            use=self.use,
        )
