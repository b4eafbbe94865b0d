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
