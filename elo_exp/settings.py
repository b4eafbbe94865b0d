"""The scalar settings: plain typed dataclasses that check their own values.

Not frozen, because Hydra writes into them while composing. Their defaults stand in conf/, not here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from elo_exp.records import UserError

ON_ERROR = ("stop", "drop")
USES = ("both", "consistent")


@dataclass
class ExperimentSettings:
    name: str  # which script runs: tournament, rate, store
    prefix: str  # what its run folders are called


@dataclass
class ModeSettings:
    name: str
    strata: dict[str, int]  # prompts by source; empty: the whole bank
    pilot_seed: int
    prompt_cache: str  # what a judge with a prompt cache does about it: measured, 1h, 5m, none


@dataclass
class PromptsSettings:
    bank_path: str


@dataclass
class JudgingSettings:
    limit_pairs: int | None  # the first so many pairs of each dimension
    stored_only: bool  # rate what the store holds, ask nothing
    repeats: int  # times that each query is asked; the first counts, the rest measure the judge
    budget_usd: float  # never spend more
    use: str  # what Bradley-Terry counts as games: both orders, or consistent judgments

    def check(self) -> None:
        if self.limit_pairs is not None and self.limit_pairs < 1:
            raise UserError(f"judging.limit_pairs: found {self.limit_pairs}. Expected 1 or more, or null for all.")
        if self.repeats < 1:
            raise UserError(f"judging.repeats: found {self.repeats}. Expected 1 or more.")
        if not self.budget_usd >= 0:
            raise UserError(f"judging.budget_usd: found {self.budget_usd}. Expected 0 or more dollars.")
        one_of("judging.use", self.use, USES)


@dataclass
class StoreSettings:
    action: str
    judge: str | None
    entrant: str | None
    rubric: str | None
    file: str | None
    batch: str | None
    confirm: bool


@dataclass
class BattlesColumns:
    """Which column of a battles file holds what; None for one that is not to be read."""

    model_a: str
    model_b: str
    winner: str
    source: str | None
    question_id: str | None
    judge_model: str | None
    dimension: str | None
    verdict_ab: str | None
    verdict_ba: str | None


@dataclass
class BattlesFilter:
    judge_model: str | None
    source: str | None


@dataclass
class Settings:
    experiment: ExperimentSettings
    mode: ModeSettings
    prompts: PromptsSettings
    judging: JudgingSettings
    plan: bool  # show what judging would cost, and pay nothing
    allow_missing: bool
    recorded_dir: str | None
    cache_dir: str
    store: StoreSettings
    battles: str | None
    battles_columns: BattlesColumns
    battles_filter: BattlesFilter
    battles_on_error: str

    def check(self) -> None:
        """Raise UserError for the first value out of range."""
        self.judging.check()
        one_of("battles_on_error", self.battles_on_error, ON_ERROR)
        for source, count in self.mode.strata.items():
            if count < 1:
                raise UserError(f"mode.strata.{source}: found {count}. Expected 1 or more prompts.")
        if self.mode.pilot_seed < 0:
            raise UserError(f"mode.pilot_seed: found {self.mode.pilot_seed}. Expected 0 or more.")
        if not self.cache_dir:
            raise UserError("cache_dir: found nothing. Expected a folder.")


def one_of(name: str, value: str, choices: Collection[str]) -> str:
    """The value, if it is one of the choices; else UserError."""
    if value not in choices:
        raise UserError(f"{name}: found {value!r}. Expected one of {', '.join(choices)}.")
    return value
    shard: str | None  # i/n: answer this share of the prompts, and stop
        if self.shard is not None:
            parse_shard(self.shard)


def parse_shard(shard: str) -> tuple[int, int]:
    """The number of a share, from 0, and of how many. Raises UserError for anything else than i/n with i below n."""
    parts = re.fullmatch("([0-9]+)/([0-9]+)", shard)
    if not parts or int(parts[1]) >= int(parts[2]):
        raise UserError(
            f"shard: found {shard!r}. Expected i/n, counted from 0: the first of four is 0/4, the last 3/4."
        )
    return int(parts[1]), int(parts[2])
