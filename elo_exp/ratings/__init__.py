"""Rating methods: battles in, leaderboards out."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from elo_exp.data.battles import Battles
from elo_exp.ratings.convergence import Convergence
from elo_exp.ratings.leaderboard import Leaderboard


@runtime_checkable
class RatingMethod(Protocol):
    """All dimensions are rated at once: prompts are resampled jointly, permutations share work."""

    @abstractmethod
    def rate(self, battles: Mapping[str, Battles]) -> Mapping[str, Leaderboard]: ...


@runtime_checkable
class EloMethod(RatingMethod, Protocol):
    """A rating method with an update factor K, which also rates at several of them."""

    k: float
    initial_rating: float

    def rate_each_k(
        self, battles: Mapping[str, Battles]
    ) -> Mapping[str, Mapping[float, Leaderboard]]:
        """Return a leaderboard by dimension and K; none where no match is played."""

    def convergence(self, battles: Mapping[str, Battles]) -> Mapping[str, Convergence]:
        """Return how far Elo has come at every K on its way to its limit, by dimension."""


def needs_style(methods: Mapping[str, RatingMethod]) -> bool:
    """Whether a method's fit has the style of the answers."""
    return any(getattr(method, "style", ()) for method in methods.values())
