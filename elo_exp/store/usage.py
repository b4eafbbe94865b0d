"""What a run asked for, found in the store, made and paid."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elo_exp.records import ForcedLogprob, JudgeReply, Record, Response

TOKEN_CLASSES = (
    "input_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "cache_read_tokens",
    "output_tokens",
)


@dataclass(slots=True, kw_only=True)
class Usage:
    """What a run asked for, found in the store, made and paid.

    Tokens are those of judges, each counted once: `input_tokens` were neither written to the prompt
    cache nor read from it.
    """

    responses_wanted: int = 0
    responses_stored: int = 0
    responses_generated: int = 0
    responses_unpriced: int = (
        0  # answers of an API that says no price: what they cost is in no sum
    )
    logprobs_wanted: int = 0  # answers x policies that are to say how likely they are
    logprobs_stored: int = 0
    logprobs_forced: int = 0
    verdicts_wanted: int = 0
    verdicts_distinct: int = 0  # equal texts are asked about once
    verdicts_stored: int = 0
    verdicts_missing: int = 0
    judge_calls: int = 0
    input_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0  # paid to judges
    dollars_at_most: float = (
        0.0  # paid to judges and entrants, with all that lost answers may have cost
    )
    calls_lost: int = 0  # whose answers were lost on their way, and may have been paid
    dollars_by_dimension: dict[str, float] = field(default_factory=dict)
    dollars_by_entrant: dict[str, float] = field(
        default_factory=dict
    )  # paid for answers
    cache: str | None = None  # the prompt cache that was decided on, and why

    def count(self, made: Record) -> None:
        """Take in an answer that this run has made or paid for."""
        if isinstance(made, Response):
            self.responses_generated += 1
            if dollars := made.diagnostics.get("dollars"):
                spent = self.dollars_by_entrant.get(made.entrant_id, 0.0)
                self.dollars_by_entrant[made.entrant_id] = spent + dollars
                self.dollars_at_most += dollars
        if isinstance(made, ForcedLogprob):
            self.logprobs_forced += 1
        if isinstance(made, JudgeReply):
            self.judge_calls += 1
            for name in TOKEN_CLASSES:
                setattr(self, name, getattr(self, name) + made.usage.get(name, 0))
            self.pay(made.dollars)
            if made.dollars and made.dimension:
                spent = self.dollars_by_dimension.get(made.dimension, 0.0)
                self.dollars_by_dimension[made.dimension] = spent + made.dollars

    def pay(self, dollars: float) -> None:
        """Take in what was paid to a judge."""
        self.dollars += dollars
        self.dollars_at_most += dollars

    def lose(self, dollars: float, n_calls: int = 1) -> None:
        """Take in calls whose answers were lost, and the most that they may have cost."""
        self.dollars_at_most += dollars
        self.calls_lost += n_calls

    def metrics(self) -> dict[str, float]:
        """The numbers under flat names."""
        flat = {
            f"dollars/{dimension}": dollars
            for dimension, dollars in self.dollars_by_dimension.items()
        }
        flat |= {
            f"dollars_by_entrant/{name}": dollars
            for name, dollars in self.dollars_by_entrant.items()
        }
        return {
            name: v
            for name, v in dataclasses.asdict(self).items()
            if isinstance(v, int | float)
        } | flat


DOLLARS = (
    "dollars",
    "dollars_by_dimension",
    "dollars_by_entrant",
)  # of a usage, what was paid


def added_up(usages: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Add up usages as manifest.json has them; None is that of a run that left none."""
    total: dict[str, Any] = {}
    for usage in usages:
        for name, found in (usage or {}).items():
            if isinstance(found, int | float):
                total[name] = total.get(name, 0) + found
            elif isinstance(found, Mapping):
                by = total.setdefault(name, {})
                by |= {
                    one: by.get(one, 0.0) + dollars for one, dollars in found.items()
                }
    return total


def paid(usage: Mapping[str, Any]) -> float:
    """The dollars that judges and entrants were paid; `usage`: as manifest.json has it."""
    return float(
        usage.get("dollars", 0.0) + sum(usage.get("dollars_by_entrant", {}).values())
    )
