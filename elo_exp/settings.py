"""The scalar settings: plain typed dataclasses that check their own values.

Not frozen, because Hydra writes into them while composing. Their defaults stand in conf/, not here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass

from elo_exp.records import WINNERS, UserError

ON_ERROR = ("stop", "drop")
USES = ("both", "consistent")
OPPONENTS = ("random", "informative")
BATTLES_FORMATS = ("jsonl", "parquet")
CALIBRATIONS = ("monotone", "two_stage")
PROMPT_SOURCES = ("bank", "arena")
COMPATS = ("cje-0.3",)


@dataclass
class ExperimentSettings:
    name: str  # which script runs: tournament, rate, arena, oracle, store, compare, dashboard
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
            raise UserError(
                f"judging.limit_pairs: found {self.limit_pairs}. Expected 1 or more, or null for all."
            )
        if self.repeats < 1:
            raise UserError(f"judging.repeats: found {self.repeats}. Expected 1 or more.")
        check_budget("judging.budget_usd", self.budget_usd)
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
class DashboardSettings:
    group: str | None
    file: str


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
class ArenaColumns:
    """What an arena calls each column; None for one that it does not have."""

    model_a: str
    model_b: str
    winner: str | None  # a word of WINNERS or of arena.winners, or the name of a model
    won_by_a: str | None  # in place of a winner or besides: columns that are true where it is so
    won_by_b: str | None
    tied: str | None
    question_id: str | None
    language: str | None
    turns: str | None
    conversation_a: str | None  # messages with role and content, or the three below
    conversation_b: str | None
    prompt: str | None
    response_a: str | None
    response_b: str | None


@dataclass
class ArenaSettings:
    name: str
    path: str | None
    dataset: str | None
    revision: str | None
    data_files: str | None
    split: str
    columns: ArenaColumns
    text_lists: bool  # prompt and responses are JSON lists, with a text for each turn
    winners: dict[
        str, str | None
    ]  # a word of the source -> one of WINNERS; None: leave the row out
    languages: list[str] | None
    hold_out: list[str]  # models whose battles are left out
    min_battles: int
    n_battles: int
    n_calibration: int
    max_chars: int
    opponents: str
    rounds: int
    seed: int
    inline_human: bool
    battles_format: str

    def check(self) -> None:
        one_of("arena.opponents", self.opponents, OPPONENTS)
        one_of("arena.battles_format", self.battles_format, BATTLES_FORMATS)
        for name, least in (
            ("min_battles", 1),
            ("n_battles", 1),
            ("n_calibration", 0),
            ("max_chars", 1),
        ):
            if getattr(self, name) < least:
                raise UserError(
                    f"arena.{name}: found {getattr(self, name)}. Expected {least} or more."
                )
        if self.rounds < 2:
            raise UserError(f"arena.rounds: found {self.rounds}. Expected 2 or more.")
        if self.seed < 0:
            raise UserError(f"arena.seed: found {self.seed}. Expected 0 or more.")
        if self.languages == []:
            raise UserError(
                "arena.languages: found an empty list. Expected languages, or null for all."
            )
        for word, winner in self.winners.items():
            if winner not in (None, *WINNERS):
                raise UserError(
                    f"arena.winners.{word}: found {winner!r}. Expected {', '.join(WINNERS)}, or null."
                )


@dataclass
class OracleSettings:
    prompts: str
    n_prompts: int | None
    logging_policy: str | None
    label_fraction: float
    validation_fraction: float
    budget_usd: float
    check_nats: float
    check_answers: int
    logged: str | None
    fresh_dir: str | None
    probe_dir: str | None
    truth: str | None
    policies: list[str] | None
    calibration: str
    by_variance: bool
    n_folds: int
    seed: int
    max_residual: float
    half_widths: list[float]
    ablation: bool

    def check(self) -> None:
        one_of("oracle.prompts", self.prompts, PROMPT_SOURCES)
        if self.n_prompts is not None and self.n_prompts < 1:
            raise UserError(
                f"oracle.n_prompts: found {self.n_prompts}. Expected 1 or more, or null for all."
            )
        if not 0 < self.label_fraction <= 1:
            raise UserError(
                f"oracle.label_fraction: found {self.label_fraction:g}. Expected above 0 and up to 1."
            )
        if not 0 <= self.validation_fraction <= 1:
            raise UserError(
                f"oracle.validation_fraction: found {self.validation_fraction:g}. Expected 0 to 1."
            )
        check_budget("oracle.budget_usd", self.budget_usd)
        if not 0 <= self.check_nats < math.inf:
            raise UserError(
                f"oracle.check_nats: found {self.check_nats}. Expected 0 or more nats. To allow any, choose many: 1000."
            )
        if self.check_answers < 1:
            raise UserError(
                f"oracle.check_answers: found {self.check_answers}. Expected 1 or more."
            )
        one_of("oracle.calibration", self.calibration, CALIBRATIONS)
        if not 2 <= self.n_folds <= 20:
            raise UserError(f"oracle.n_folds: found {self.n_folds}. Expected 2 to 20.")
        if self.seed < 0:
            raise UserError(f"oracle.seed: found {self.seed}. Expected 0 or more.")
        if not 0 < self.max_residual < 1:
            raise UserError(
                f"oracle.max_residual: found {self.max_residual:g}. Expected a number between 0 and 1."
            )
        if any(not 0 < half_width < 1 for half_width in self.half_widths):
            raise UserError(
                f"oracle.half_widths: found {self.half_widths}. Expected numbers between 0 and 1."
            )


@dataclass
class Settings:
    experiment: ExperimentSettings
    mode: ModeSettings
    prompts: PromptsSettings
    judging: JudgingSettings
    plan: bool  # show what judging would cost, and pay nothing
    status: bool  # show what an experiment that goes in steps has and lacks, and do nothing
    shard: str | None  # i/n: answer this share of the prompts, and stop
    allow_missing: bool
    recorded_dir: str | None
    figures: (
        bool | None
    )  # draw them: they take most of the time of a run that asks nobody; None: not in a sweep's jobs
    resume: bool  # of a sweep: leave its finished jobs as they are
    sweep_pair: list[str] | None  # whose difference is drawn by K and n_perms; None: the two best
    cache_dir: str
    store: StoreSettings
    arena: ArenaSettings
    like: str | None  # a run folder whose rating settings are taken
    dashboard: DashboardSettings
    runs: list[str]  # finished run folders, to be compared with the first of them
    oracle: OracleSettings
    compat: str | None  # whose published formulas take the place of ours
    battles: str | None
    battles_columns: BattlesColumns
    battles_filter: BattlesFilter
    battles_on_error: str

    def check(self) -> None:
        """Raise UserError for the first value out of range."""
        self.judging.check()
        self.arena.check()
        self.oracle.check()
        if self.status and self.experiment.name != "oracle":
            raise UserError(
                f"status: found true with experiment={self.experiment.name}. Expected experiment=oracle."
            )
        if self.compat is not None:
            one_of("compat", self.compat, COMPATS)
        one_of("battles_on_error", self.battles_on_error, ON_ERROR)
        for source, count in self.mode.strata.items():
            if count < 1:
                raise UserError(f"mode.strata.{source}: found {count}. Expected 1 or more prompts.")
        if self.sweep_pair is not None and len(set(self.sweep_pair)) != 2:
            raise UserError(
                f"sweep_pair: found {self.sweep_pair}. Expected two entrants: 'sweep_pair=[one,other]'."
            )
        if self.mode.pilot_seed < 0:
            raise UserError(f"mode.pilot_seed: found {self.mode.pilot_seed}. Expected 0 or more.")
        if not self.cache_dir:
            raise UserError("cache_dir: found nothing. Expected a folder.")
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


def check_budget(name: str, dollars: float) -> None:
    """Raise UserError for what is no cap, or cannot be written as JSON."""
    if not 0 <= dollars < math.inf:
        raise UserError(
            f"{name}: found {dollars}. Expected 0 or more dollars. For no cap, choose many: 1000000."
        )


def one_of(name: str, value: str, choices: Collection[str]) -> str:
    """The value, if it is one of the choices; else UserError."""
    if value not in choices:
        raise UserError(f"{name}: found {value!r}. Expected one of {', '.join(choices)}.")
    return value
