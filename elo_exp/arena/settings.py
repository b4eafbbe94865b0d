"""Settings of human battles and of placements; conf/arena and conf/experiment/arena.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from elo_exp.arena.simulated import Simulated
from elo_exp.types import Count, Natural

Winner = Literal["model_a", "model_b", "tie", "tie (bothbad)"]


@dataclass(kw_only=True)
class ArenaColumns:
    """Name of each column of an arena; None for one that it does not have."""

    model_a: str
    model_b: str
    winner: str | None  # a Winner, a word of `winners`, or the name of a model
    won_by_a: (
        str | None
    )  # columns that are true where it is so, beside a winner or without
    won_by_b: str | None
    tied: str | None
    question_id: str | None
    # which vote of a running conversation; from the second on, its beginning is not in the row
    evaluation_order: str | None
    language: str | None
    conversation_a: str | None  # messages with role and content, or the three below
    conversation_b: str | None
    prompt: str | None
    response_a: str | None
    response_b: str | None


@dataclass(kw_only=True)
class ArenaSource:
    """A file or data set of human battles, and which of them are read."""

    name: str
    simulated: Simulated | None  # in place of a path
    path: str | None
    dataset: str | None
    revision: str | None
    data_files: str | None
    split: str
    columns: ArenaColumns
    text_lists: bool  # prompt and responses are JSON lists, with a text for each turn
    winners: dict[
        str, Winner | None
    ]  # by a word of the source; None: leave the row out
    languages: Annotated[list[str], Field(min_length=1)] | None
    hold_out: list[str]  # models whose battles are left out
    max_chars: Count
    where: dict[str, Any]  # what columns must hold, by dotted path; None: anything
    union: dict[str, ArenaSource]  # further arenas, by name

    @property
    def title(self) -> str:
        """The names of all arenas in a union."""
        return " + ".join([self.name, *(other.title for other in self.union.values())])


@dataclass(kw_only=True)
class ArenaSettings(ArenaSource):
    """A source, and the battles that are drawn from it."""

    min_battles: Count
    n_battles: Count
    max_per_language: Count | None  # of the battles that may be drawn
    n_calibration: Natural
    placement: Literal["calibrated", "raw"]
    soft: float | str | None  # temperature of soft Elo, or "calibrated"
    opponents: Literal["random", "adaptive"]
    rounds: Annotated[int, Field(strict=True, ge=2)]
    seed: Natural
    inline_human: bool
    battles_format: Literal["jsonl", "parquet"]
