"""Entrants head to head, as sections of a page: win rates as a matrix, differences with intervals, planned looks."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.sequential_tests import Look, Resolution
from elo_exp.formatting import (
    format_count,
    format_interval,
    format_number,
    format_p,
    format_percent,
)
from elo_exp.report.dimension_view import DimensionView
from elo_exp.report.document import Block, Details, Paragraph, Table
from elo_exp.report.sentences.standings_sentences import name_test
from elo_exp.report.standings_view import StandingsView

_MAX_MATRIX_MODELS = 20
MAX_PAIRS_PER_DIMENSION = (
    45  # of a dimension; of more, those of the first entrant alone are shown
)
_MAX_DIFFERENCE_ROWS = 100
# A matrix of more entrants takes the width of the page
_MAX_NARROW_MATRIX_MODELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """How often the row beats the column, in whole percent.

    link  to the verdicts of this pair; None where the page has no texts
    """

    share: str
    tone: str
    title: str
    link: str | None
    is_significant: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Win rates of a dimension: of each of the first entrants by rating against each, None where two did not meet."""

    dimension: str
    rows: Sequence[tuple[str, Sequence[MatrixCell | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices(Block):
    """Win rates of all dimensions; if `is_wide`, each takes the width of the page."""

    matrices: Sequence[Matrix]
    is_wide: bool


def list_pair_blocks(view: StandingsView) -> list[Block]:
    """Return every pair of every dimension: how often each entrant beats each, and how their ratings differ."""
    models, has_texts, blocks = (
        view.standings.models,
        view.texts is not None,
        list[Block](),
    )
    matrices = [
        _build_matrix(
            d,
            [row.model for row in d.board.ratings[:_MAX_MATRIX_MODELS]],
            has_texts=has_texts,
        )
        for d in view.dimensions
        if d.cells and d.board
    ]
    if matrices:
        test = name_test(has_looks=view.has_looks)
        sentences = [
            "How often the row beats the column, in percent; a tie counts half. Bold: the ratings differ significantly "
            f"({test}).",
            "A cell opens its verdicts." if has_texts else "",
            f"The first {_MAX_MATRIX_MODELS} of {len(models)} entrants; all pairs are in pairwise_winrates.csv."
            if len(models) > _MAX_MATRIX_MODELS
            else "",
        ]
        blocks = [
            Paragraph(" ".join(filter(None, sentences))),
            Matrices(
                matrices=matrices, is_wide=len(models) > _MAX_NARROW_MATRIX_MODELS
            ),
        ]
    if any(d.pairs for d in view.dimensions):
        blocks.append(
            Details("Differences with intervals", [_build_differences_table(view)])
        )
    return blocks


def _build_matrix(
    dimension: DimensionView, models: Sequence[str], *, has_texts: bool
) -> Matrix:
    return Matrix(
        dimension=dimension.name,
        rows=[
            (
                row,
                [
                    _make_cell(dimension, row, column, has_texts=has_texts)
                    for column in models
                ],
            )
            for row in models
        ],
    )


def _make_cell(
    dimension: DimensionView, row: str, column: str, *, has_texts: bool
) -> MatrixCell | None:
    if (row, column) not in dimension.cells:
        return None
    share, n, is_significant = dimension.cells[row, column]
    link = urlencode({"dimension": dimension.name, "pair": f"{row}~{column}"})
    return MatrixCell(
        share=f"{100.0 * share:.0f}",
        tone="up" if share >= 0.5 else "down",
        title=f"{row} against {column}: {format_count(n)} battles",
        link=f"#?{link}" if has_texts else None,
        is_significant=is_significant,
    )


# Differences


def _build_differences_table(view: StandingsView) -> Table:
    dimensions, scored, has_looks = view.dimensions, view.is_of_scores, view.has_looks
    test, digits = "Look" if has_looks else "p, Holm", 3 if scored else 0
    return Table(
        label="Differences",
        columns=[
            "Higher",
            "Lower",
            "Dimension",
            "Difference",
            "95% CI",
            test,
            "Result",
        ],
        words=["Lower", "Dimension", "Result"],
        rows=[
            _make_difference_row(pair, digits)
            for d in dimensions
            for pair in _select_pairs(d.pairs)
        ],
        note=" ".join(
            _describe_differences(dimensions, scored=scored, has_looks=has_looks)
        ),
    )


def _select_pairs(pairs: Sequence[Difference]) -> list[Difference]:
    """Return all pairs, or only the leader's pairs if there are many."""
    if len(pairs) <= MAX_PAIRS_PER_DIMENSION:
        return list(pairs)
    return [pair for pair in pairs if pair.higher == pairs[0].higher][
        :_MAX_DIFFERENCE_ROWS
    ]


def _make_difference_row(pair: Difference, digits: int) -> list[str]:
    test = str(pair.look) if isinstance(pair, Resolution) else format_p(pair.p_holm)
    result = {None: "not known", True: "significant", False: "not significant"}
    return [
        pair.higher,
        pair.lower,
        pair.dimension,
        format_number(pair.difference, digits)
        if pair.ci_low is None or not pair.one_sided
        else f"over {format_number(pair.ci_low, digits)}",
        format_interval(pair.ci_low, pair.ci_high, digits),
        test,
        result[pair.significant],
    ]


def _describe_differences(
    dimensions: Sequence[DimensionView], *, scored: bool, has_looks: bool
) -> list[str]:
    units = "units of the score, paired by item" if scored else "rating points"
    method_note = "p values are adjusted by Holm for all pairs and dimensions; an interval is of its pair alone."
    if has_looks:
        method_note = (
            "Tested up to the look shown, by alpha spending and Holm over all pairs and dimensions. "
            "Differences and intervals are those of stage-wise ordering, median-unbiased for their pair "
            "alone; after an early stop a narrow gap is still overestimated."
        )
    if any(pair.one_sided for d in dimensions for pair in d.pairs):
        method_note += (
            " Over: one took every point from the other, which bounds their difference exactly, by "
            "the number of prompts."
        )
    left_out = [
        f"In {d.name} only those between {d.pairs[0].higher} and the others are shown; all are in "
        "ratings.json or differences.csv."
        for d in dimensions
        if len(d.pairs) > MAX_PAIRS_PER_DIMENSION
    ]
    return [f"In {units}.", method_note, *left_out]


# Planned looks


def list_look_blocks(view: StandingsView, *, drops: bool) -> list[Block]:
    """Return the planned looks; empty without looks.

    drops  whether resolved pairs were to be left out
    """
    dimensions = [d for d in view.dimensions if d.looks]
    if not dimensions:
        return []
    n_judged = sum(d.looks[-1].n_judged for d in dimensions)
    n_planned = sum(d.looks[-1].n_planned for d in dimensions)
    saved = (
        f"{format_count(n_judged)} of {format_count(n_planned)} planned comparisons were judged: "
        f"{format_percent(1.0 - n_judged / n_planned)} saved."
    )
    looks = [look for d in dimensions for look in d.looks]
    return [Paragraph(saved, "lede"), _build_looks_table(looks, drops=drops)]


def list_prompts_note(view: StandingsView) -> list[Block]:
    """Return on how many prompts pairs were judged; empty without looks."""
    if not view.has_looks:
        return []
    counts = ", ".join(_format_prompt_counts(d) for d in view.dimensions if d.pairs)
    note = f"Pairs judged on {counts}. The set of a rank counts the entrants that are significantly better or worse."
    return [Paragraph(note, "small")]


def _format_prompt_counts(dimension: DimensionView) -> str:
    min_prompts, max_prompts = dimension.prompts_of_pairs
    n = (
        str(min_prompts)
        if min_prompts == max_prompts
        else f"{min_prompts} to {max_prompts}"
    )
    return f"{n} prompts in {dimension.name}"


def _build_looks_table(looks: Sequence[Look], *, drops: bool) -> Table:
    alpha = ".04, and the rest of .05 for pairs left out before a misfit shows"
    columns = ["Look", "Prompts", "Boundary", "Pairs resolved", "Comparisons judged"]
    return Table(
        label="Looks",
        columns=["Dimension", *columns, "Left out"],
        words=["Left out"],
        rows=[
            [
                look.dimension,
                str(look.look),
                format_count(look.n_prompts),
                format_number(look.boundary, 2),
                str(look.n_resolved),
                format_count(look.n_judged),
                _describe_left_out(is_whole=look.is_whole, drops=drops),
            ]
            for look in looks
        ],
        note=(
            "Boundary: standard errors by which two entrants must differ, by alpha spending like "
            "O’Brien and Fleming’s, with Holm over the pairs of all dimensions that are open then. Alpha "
            f"is {alpha if drops else '.05: no pair is left out'}. Pairs resolved and comparisons judged: "
            "up to the look. Misfit: Bradley-Terry does not fit (p < .10)."
        ),
    )


def _describe_left_out(*, is_whole: bool, drops: bool) -> str:
    if not is_whole:
        return "resolved pairs"
    return "none: misfit" if drops else "none"
