"""Ratings by source of the prompts, or by arena, as a section of a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.analysis.diagnosis import StrataDiagnosis
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_interval,
    format_number,
    join_names,
)
from elo_exp.report.dimension_view import DimensionView
from elo_exp.report.document import (
    Block,
    Cell,
    Heading,
    Paragraph,
    Styled,
    Table,
)
from elo_exp.report.sentences import strata_sentences

_MAX_DIMENSIONS = 20


def list_strata_blocks(
    dimensions: Sequence[DimensionView], noun: str = "sources"
) -> list[Block]:
    """Return the ratings by source on each rubric that has more than one.

    noun  the word for the sources
    """
    blocks: list[Block] = []
    for dimension in dimensions[:_MAX_DIMENSIONS]:
        strata = dimension.strata
        if strata and len(strata.strata) > 1 and dimension.board:
            models = [
                row.model for row in dimension.board.ratings if row.rating is not None
            ]
            blocks += [
                Heading(dimension.name),
                Paragraph(
                    strata_sentences.sentence(strata, noun),
                    "reason" if strata.is_significant else "",
                ),
                _build_table(dimension.name, strata, models),
            ]
    return blocks


def _build_table(
    dimension: str, strata: StrataDiagnosis, models: Sequence[str]
) -> Table:
    names = list(dict.fromkeys(row["stratum"] for row in strata.ratings))
    rows_by_stratum = {(row["stratum"], row["model"]): row for row in strata.ratings}
    sizes = zip(strata.strata, strata.n_prompts, strict=True)
    size_texts = [f"{format_count(n)} prompts from {name}" for name, n in sizes]
    return Table(
        label=f"Ratings by source on {dimension}",
        columns=["Entrant", *names],
        rows=[
            [model, *(_make_cell(rows_by_stratum.get((name, model))) for name in names)]
            for model in models
        ],
        note=f"{join_names(size_texts, len(size_texts))}. Small numbers: 95% intervals.",
    )


def _make_cell(row: Mapping[str, Any] | None) -> Cell:
    rating, interval = NO_VALUE, ""
    if row is not None and row["rating"] is not None:
        rating = format_number(row["rating"])
        interval = format_interval(row["ci_low"], row["ci_high"])
    return Cell([rating, " ", Styled(interval, "small")], "num")
