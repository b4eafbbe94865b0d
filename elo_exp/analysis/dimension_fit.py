"""The fit that the diagnoses of a judge share: games, abilities and covariance of one dimension."""

from __future__ import annotations

from dataclasses import dataclass

from elo_exp.analysis.win_rates import sort_sides_by_name
from elo_exp.arrays import Mask
from elo_exp.data.battles import Battles
from elo_exp.ratings.fit import Fit
from elo_exp.ratings.games import Games, make_games


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DimensionFit:
    """The battles (n,) of one dimension, their games (g,), and Bradley-Terry fitted to these.

    Both orders count where both were judged, whatever the ratings use.

    battles  turned round, so that model_a is the first of the two by name
    """

    battles: Battles
    games: Games
    fit: Fit

    @classmethod
    def of(cls, battles: Battles) -> DimensionFit:
        sorted_battles = sort_sides_by_name(battles)
        all_games = make_games(sorted_battles, orders="both")
        return cls(
            battles=sorted_battles, games=all_games, fit=Fit.from_games(all_games)
        )

    def select_games(self, chosen: Mask) -> Games:
        """Return the games of the battles at a mask (n,), clusters numbered anew."""
        return self.games.select(chosen[self.games.battle])
