"""What a run concludes, what it cost, and what is shown of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from elo_exp.records import Battle, ForcedLogprob, JudgeReply, Record, Response
from elo_exp.statistics.diagnoses import Agreement, RankCorrelation

if TYPE_CHECKING:
    import numpy as np

TOKEN_CLASSES = (
    "input_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "cache_read_tokens",
    "output_tokens",
)
ROUNDING = 1e-9  # rating points: an ordering error up to this comes of adding up floats, and is shown as none
LEVEL = 1e-6  # rating points: ratings no further apart are equal, as far as a solver knows them
CONVERGED = 0.95  # the share of its way that Elo must have gone for its gaps to be read
Z95 = 1.96  # ordering errors on each side of what elo_results.json calls a 95 % interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating(Record):
    """One line of a leaderboard, in rating points; None where the method does not say."""

    model: str
    rating: float | None
    std_error: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    ordering_error: float | None = (
        None  # Monte-Carlo error over match orders, not an uncertainty of the rating
    )
    rank: int | None = None
    rank_low: int | None = None
    rank_high: int | None = None
    p_best: float | None = None  # that no other model is better, as far as the covariance goes
    n_battles: int = 0
    n_prompts: int | None = (
        None  # on which it has met others: how many observations its error comes from
    )
    flag: str | None = (
        None  # unbeaten, winless, disconnected, separated: why there is no rating; of Elo, which always
    )
    # has one, why it says little: one of these, or no match


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Ratings by one method, best first. `samples[s, m]`: rating of `models[m]` in permutation or resample s; NaN for a
    model that is not rated, no row for a resample without ratings."""

    method: str
    models: tuple[str, ...]  # sorted; the columns of `samples`
    ratings: tuple[Rating, ...]
    samples: np.ndarray | None = None
    n_matches: int = 0  # games that the method was given
    covariance: np.ndarray | None = (
        None  # (m, m), squared rating points, rows and columns as `models`; NaN: not rated
    )
    parameters: Mapping[str, float] = field(
        default_factory=dict
    )  # what else is estimated: a tie parameter, its error
    rank_chances: np.ndarray | None = (
        None  # (m, m), rows as `models`, columns ranks from 1; NaN for one not rated
    )
    n_clusters: int | None = None  # prompts: how many independent observations the errors come from

    def rating(self, model: str) -> Rating:
        return next(r for r in self.ratings if r.model == model)


def ranked(ratings: Sequence[Rating]) -> tuple[Rating, ...]:
    """Best first, with ranks; models without a rating come last and have none.

    Equal ratings share a rank, in which models go by name: those within LEVEL of the next one, and so of each other.
    """
    placed: list[Rating] = []
    above = math.inf
    for value, rating in sorted(
        ((r.rating, r) for r in ratings if r.rating is not None), key=lambda r: -r[0]
    ):
        rank = placed[-1].rank if above - value <= LEVEL else len(placed) + 1
        placed.append(dataclasses.replace(rating, rank=rank))
        above = value
    placed.sort(key=lambda r: (r.rank or 0, r.model))
    return (*placed, *sorted((r for r in ratings if r.rating is None), key=lambda r: r.model))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Record):
    """One pair of rated models in one dimension, in rating points; None where the prompts do not say how sure."""

    dimension: str
    higher: str  # the model with the higher rating; of equal ones, the first by name
    lower: str
    difference: float  # 0 between equal ones
    std_error: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None  # two-sided, of this pair alone
    p_holm: float | None = None  # adjusted for all pairs and dimensions that were compared
    significant: bool | None = None  # p_holm is 5 % at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision(Record):
    """What a run could find in one dimension, by its own clustered variance: differences of an average pair, in rating
    points, that a two-sided test at 5 % finds with 80 % power. `corrected`: by Bonferroni over `n_tests`, which is
    Holm's first step."""

    dimension: str
    n_prompts: int | None  # how many independent observations there are
    n_tests: int  # pairs x dimensions that were compared
    sigma: float | None = (
        None  # standard deviation of one prompt's part in a difference, root mean square over pairs
    )
    detectable: float | None = None
    detectable_corrected: float | None = None
    prompts_needed: Mapping[str, int] = field(
        default_factory=dict
    )  # by the difference that is to be found
    prompts_needed_corrected: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRate(Record):
    """Counts of one pair in one dimension; the pair is sorted by name and `ties` includes the inconsistent ones."""

    dimension: str
    entrant_a: str
    entrant_b: str
    a_wins: int
    b_wins: int
    ties: int
    inconsistent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeQuality(Record):
    """How a judge behaved on one dimension; a rate is None where nothing was observed."""

    RATES: ClassVar = ("flip_rate", "first_shown_rate", "tie_rate", "invalid_rate")

    dimension: str
    n_judgments: int
    n_invalid: int
    n_two_order: int  # valid judgments whose two orders were asked independently, so not those between equal answers
    n_flips: int  # of these, those whose orders disagree
    n_decisive_verdicts: int
    n_first_shown_wins: int
    n_ties: int  # valid judgments in which both orders said tie, or both answers are equal
    n_refused: int = 0  # judgments that are invalid because the judge refused
    n_cut_off: int = 0  # judgments that are invalid because its answer ran into a limit
    n_equal_answers: int = 0  # judgments between two answers that say the same, word for word
    n_repeated: int = 0  # valid verdicts asked for again
    n_repeats_agree: int = 0

    @property
    def flip_rate(self) -> float | None:
        return self.n_flips / self.n_two_order if self.n_two_order else None

    @property
    def first_shown_rate(self) -> float | None:
        return (
            self.n_first_shown_wins / self.n_decisive_verdicts if self.n_decisive_verdicts else None
        )

    @property
    def tie_rate(self) -> float | None:
        """Of single verdicts, before the two orders are reconciled."""
        return 1 - self.n_decisive_verdicts / (2 * self.n_two_order) if self.n_two_order else None

    @property
    def invalid_rate(self) -> float | None:
        return self.n_invalid / self.n_judgments if self.n_judgments else None


@dataclass(slots=True, kw_only=True)
class Usage:
    """What a run asked for, found in the store, made and paid. Tokens are those of judges, and counted once:
    `input_tokens` are those that were neither written to the prompt cache nor read from it."""

    responses_wanted: int = 0
    responses_stored: int = 0
    responses_generated: int = 0
    responses_unpriced: int = 0  # answers of an API that says no price: what they cost is in no sum
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
    dollars_by_dimension: dict[str, float] = field(default_factory=dict)
    dollars_by_entrant: dict[str, float] = field(default_factory=dict)  # paid for answers
    cache: str | None = None  # the prompt cache that was decided on, and why

    def count(self, made: Record) -> None:
        """Take in an answer that this run has made or paid for."""
        if isinstance(made, Response):
            self.responses_generated += 1
            if dollars := made.diagnostics.get("dollars"):
                spent = self.dollars_by_entrant.get(made.entrant_id, 0.0)
                self.dollars_by_entrant[made.entrant_id] = spent + dollars
        if isinstance(made, ForcedLogprob):
            self.logprobs_forced += 1
        if isinstance(made, JudgeReply):
            self.judge_calls += 1
            for name in TOKEN_CLASSES:
                setattr(self, name, getattr(self, name) + made.usage.get(name, 0))
            self.dollars += made.dollars
            if made.dollars and made.dimension:
                spent = self.dollars_by_dimension.get(made.dimension, 0.0)
                self.dollars_by_dimension[made.dimension] = spent + made.dollars

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
            name: v for name, v in dataclasses.asdict(self).items() if isinstance(v, int | float)
        } | flat


DOLLARS = ("dollars", "dollars_by_dimension", "dollars_by_entrant")  # of a usage, what was paid


def added_up(usages: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """The numbers of all of them, which are as manifest.json has them; None: of a run that left none."""
    total: dict[str, Any] = {}
    for usage in usages:
        for name, found in (usage or {}).items():
            if isinstance(found, int | float):
                total[name] = total.get(name, 0) + found
            elif isinstance(found, Mapping):
                by = total.setdefault(name, {})
                by |= {one: by.get(one, 0.0) + dollars for one, dollars in found.items()}
    return total


def paid(usage: Mapping[str, Any]) -> float:
    """The dollars that judges and entrants were paid; `usage`: as manifest.json has it."""
    return float(usage.get("dollars", 0.0) + sum(usage.get("dollars_by_entrant", {}).values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """All that was concluded about who is better, by dimension."""

    models: tuple[str, ...]  # in the order in which they were chosen: it fixes their colours
    battles: Mapping[str, Sequence[Battle]]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure as PNG and SVG, and the rows that it was drawn from.

    packing  of the PNG, which goes on while the next figure is drawn
    x, y  of lines: the column that runs from left to right, and those that are drawn, a line for each `line` in them,
          or for each model
    curves  the rows are points of curves, of which nobody reads a table: trackers show none of them
    """

    name: str
    packing: Future[bytes]
    rows: Sequence[Mapping[str, Any]]
    caption: str = ""
    svg: str = ""
    x: str | None = None
    y: tuple[str, ...] = ()
    curves: bool = False

    @property
    def png(self) -> bytes:
        return self.packing.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What a tracker needs to know of the job it follows."""

    run_dir: Path
    name: str
    group: str | None
    job_type: str
    config: Mapping[str, Any]
    overrides: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(
        default_factory=dict
    )  # by which runs are grouped: who was asked, about whom
