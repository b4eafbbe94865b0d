"""What was concluded about who is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elo_exp.analysis.agreement import Agreement, RankCorrelation
from elo_exp.analysis.comparisons import Difference, Precision
from elo_exp.analysis.win_rates import WinRate
from elo_exp.data.battles import Battles
from elo_exp.ratings.leaderboard import Leaderboard


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """All that was concluded about who is better, by dimension."""

    models: tuple[str, ...]  # in the order in which they were chosen
    battles: Mapping[str, Battles]
    k: float
    elo: Mapping[
        str, Mapping[float, Leaderboard]
    ]  # dimension -> K; empty where no match was played
    elo_limit: Mapping[
        str, Mapping[str, float]
    ]  # dimension -> model: Bradley-Terry of the matches that Elo played
    companions: Mapping[str, Mapping[str, Leaderboard]]  # method -> dimension
    win_rates: Sequence[WinRate]
    differences: Mapping[str, Sequence[Difference]] = field(default_factory=dict)  # method
    precision: Mapping[str, Sequence[Precision]] = field(default_factory=dict)  # method
    diagnoses: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # dimension: the verdicts, as JSON
    agreement: Sequence[Agreement] = ()  # of dimensions with each other
    judges_agreement: Sequence[
        Agreement
    ] = ()  # of every two judges that the store has heard, by dimension
    judges_ranks: Sequence[RankCorrelation] = ()  # of the ratings by what both of them judged

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(self.battles)

    def primary(self, dimension: str) -> Leaderboard | None:
        return self.elo[dimension].get(self.k)
