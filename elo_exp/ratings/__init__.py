"""Rating methods: battles in, leaderboards out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from elo_exp.data.battles import Battles
from elo_exp.ratings.leaderboard import Leaderboard


@runtime_checkable
class RatingMethod(Protocol):
    """All dimensions are rated at once: prompts are resampled jointly, permutations share work."""

    def rate(self, battles: Mapping[str, Battles]) -> Mapping[str, Leaderboard]: ...


@runtime_checkable
class EloMethod(RatingMethod, Protocol):
    """A rating method with an update factor K, which also rates at several of them."""

    k: float
    initial_rating: float

    def sweep(
        self, battles: Mapping[str, Battles]
    ) -> Mapping[str, Mapping[float, Leaderboard]]:
        """Return a leaderboard by dimension and K; none where no match is played."""

    def limit(
        self, battles: Mapping[str, Battles]
    ) -> Mapping[str, Mapping[str, float]]:
        """Return the ratings that small K and many passes lead to, by dimension and model."""
