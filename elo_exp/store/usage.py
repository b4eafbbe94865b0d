"""What a run asked for, found in the store, made and paid."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elo_exp.records import ForcedLogprob, JudgeReply, Record, Response

TOKEN_FIELDS = (
    "input_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "cache_read_tokens",
    "output_tokens",
)


@dataclass(slots=True, kw_only=True)
class Usage:
    """What a run asked for, found in the store, made and paid.

    responses_unpriced  answers of an API without known prices: their cost is in no sum
    logprobs_wanted     answers x policies that are to say how likely they are
    verdicts_distinct   equal texts are asked about once
    verdicts_left       still to be made
    invalid, flips      comparisons without a verdict, and those whose two orders disagree; None
                        where one order is judged
    input_tokens        neither written to the prompt cache nor read from it; all tokens are those
                        of judges, each counted once
    dollars             paid to judges
    dollars_at_most     paid to judges and entrants, with all that lost answers may have cost
    calls_lost          whose answers were lost on their way, and may have been paid
    dollars_by_entrant  paid for answers
    cache               the prompt cache that was decided on, and why
    """

    responses_wanted: int = 0
    responses_stored: int = 0
    responses_generated: int = 0
    responses_unpriced: int = 0
    logprobs_wanted: int = 0
    logprobs_stored: int = 0
    logprobs_forced: int = 0
    verdicts_wanted: int = 0
    verdicts_distinct: int = 0
    verdicts_stored: int = 0
    verdicts_missing: int = 0
    verdicts_left: int = 0
    invalid: int = 0
    flips: int | None = 0
    judge_calls: int = 0
    input_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    dollars_at_most: float = 0.0
    calls_lost: int = 0
    dollars_by_dimension: dict[str, float] = field(default_factory=dict)
    dollars_by_entrant: dict[str, float] = field(default_factory=dict)
    cache: str | None = None

    def add_answer(self, answer: Record) -> None:
        """Take in an answer that this run has made or paid for."""
        if isinstance(answer, ForcedLogprob):
            self.logprobs_forced += 1
        elif isinstance(answer, Response):
            self.responses_generated += 1
            if dollars := answer.diagnostics.get("dollars"):
                _add(self.dollars_by_entrant, answer.entrant_id, dollars)
                self.dollars_at_most += dollars
        elif isinstance(answer, JudgeReply):
            self.judge_calls += 1
            for name in TOKEN_FIELDS:
                setattr(self, name, getattr(self, name) + answer.usage.get(name, 0))
            self.add_payment(answer.dollars)
            if answer.dollars and answer.dimension:
                _add(self.dollars_by_dimension, answer.dimension, answer.dollars)

    def add_payment(self, dollars: float) -> None:
        """Take in what was paid to a judge."""
        self.dollars += dollars
        self.dollars_at_most += dollars

    def add_lost_calls(self, dollars: float, n_calls: int = 1) -> None:
        """Take in calls whose answers were lost, and the most that they may have cost."""
        self.dollars_at_most += dollars
        self.calls_lost += n_calls

    def metrics(self) -> dict[str, float]:
        """The numbers under flat names."""
        values = dataclasses.asdict(self)
        flat = {name: v for name, v in values.items() if isinstance(v, int | float)}
        for dimension, dollars in self.dollars_by_dimension.items():
            flat[f"dollars/{dimension}"] = dollars
        for name, dollars in self.dollars_by_entrant.items():
            flat[f"dollars_by_entrant/{name}"] = dollars
        return flat

    def progress(self) -> dict[str, float]:
        """Return what a tracker shows while the run works.

        The forecast takes the verdicts that are left to cost what those so far did on average.
        """
        spent = self.dollars + sum(self.dollars_by_entrant.values())
        values: dict[str, float] = {
            "progress/answered": self.responses_generated + self.responses_stored,
            "progress/judged": self.judge_calls,
            "progress/cached": self.verdicts_stored,
            "progress/invalid": self.invalid,
            "cost/dollars": spent,
        }
        if self.flips is not None:
            values["progress/flips"] = self.flips
        if self.judge_calls:
            dollars_per_call = self.dollars / self.judge_calls
            values["cost/forecast"] = spent + self.verdicts_left * dollars_per_call
        return values


# The fields of a usage that count dollars
DOLLAR_FIELDS = ("dollars", "dollars_by_dimension", "dollars_by_entrant")


def _add(total: dict[str, Any], name: str, value: float) -> None:
    total[name] = total.get(name, 0) + value


def sum_usages(usages: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Add up usages as manifest.json has them; None is that of a run that left none."""
    total: dict[str, Any] = {}
    for usage in usages:
        for name, value in (usage or {}).items():
            if isinstance(value, int | float):
                _add(total, name, value)
            elif isinstance(value, Mapping):
                parts = total.setdefault(name, {})
                for key, dollars in value.items():
                    _add(parts, key, dollars)
    return total


def total_dollars(usage: Mapping[str, Any]) -> float:
    """The dollars that judges and entrants were paid; `usage`: as manifest.json has it."""
    return float(
        usage.get("dollars", 0.0) + sum(usage.get("dollars_by_entrant", {}).values())
    )
