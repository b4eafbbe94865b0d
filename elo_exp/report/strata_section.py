"""Ratings on each stratum of the prompts, or in each arena, as a section of a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_interval,
    format_number,
)
from elo_exp.report.dimension_view import DimensionView
from elo_exp.report.sentences import strata_sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    rating: str
    interval: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StrataTable:
    """One dimension: the names of its strata, and the ratings of each entrant on them, in this order.

    differ  whether ratings differ significantly between strata
    """

    dimension: str
    sentence: str
    differ: bool
    strata: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Estimate]]]
    sizes: str


def strata_tables(
    dimensions: Sequence[DimensionView], noun: str = "strata"
) -> list[StrataTable]:
    """Lay out the ratings by stratum of each dimension that has more than one.

    noun  what the strata are called
    """
    tables = []
    for dimension in dimensions:
        test = dimension.diagnosis.get("strata")
        if test and len(test["strata"]) > 1 and dimension.board:
            models = [
                row.model for row in dimension.board.ratings if row.rating is not None
            ]
            tables.append(_build_table(dimension.name, test, models, noun))
    return tables


def _build_table(
    dimension: str, test: Mapping[str, Any], models: Sequence[str], noun: str
) -> StrataTable:
    names = list(dict.fromkeys(row["stratum"] for row in test["ratings"]))
    rows_by_stratum = {(row["stratum"], row["model"]): row for row in test["ratings"]}
    sizes = zip(test["strata"], test["n_prompts"], strict=True)
    return StrataTable(
        dimension=dimension,
        sentence=strata_sentences.sentence(test, noun),
        differ=strata_sentences.ratings_differ(test),
        strata=names,
        rows=[
            (
                model,
                [_make_estimate(rows_by_stratum.get((name, model))) for name in names],
            )
            for model in models
        ],
        sizes="; ".join(f"{name}: {format_count(n)} prompts" for name, n in sizes)
        + ".",
    )


def _make_estimate(row: Mapping[str, Any] | None) -> Estimate:
    if row is None or row["rating"] is None:
        return Estimate(rating=NO_VALUE, interval="")
    interval = format_interval(row["ci_low"], row["ci_high"])
    return Estimate(rating=format_number(row["rating"]), interval=interval)
