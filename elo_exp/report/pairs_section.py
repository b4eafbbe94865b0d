"""Pairs of entrants, as sections of a page: win rates as a matrix, differences with intervals, interim analyses."""

from collections.abc import Collection, Sequence
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

    tone  up if the row is significantly better, down if it is worse, otherwise empty
    link  to the verdicts of this pair; None if the page has no texts
    """

    share: str
    tone: str
    title: str
    link: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Win rates on a rubric: of each of the top entrants against each other, None if two did not meet."""

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
            "How often the entrant in the row beats the entrant in the column, in percent. A tie counts half. If a cell is "
            f"marked, the ratings differ significantly ({test}).",
            "Select a cell to read its comparisons." if has_texts else "",
            f"The table shows the top {_MAX_MATRIX_MODELS} of {len(models)} entrants. All pairs are in "
            "figures/pairwise_winrates.csv."
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
    wins = {(pair.higher, pair.lower) for pair in dimension.pairs if pair.significant}
    return Matrix(
        dimension=dimension.name,
        rows=[
            (
                row,
                [
                    _make_cell(dimension, row, column, wins, has_texts=has_texts)
                    for column in models
                ],
            )
            for row in models
        ],
    )


def _make_cell(
    dimension: DimensionView,
    row: str,
    column: str,
    wins: Collection[tuple[str, str]],
    *,
    has_texts: bool,
) -> MatrixCell | None:
    if (row, column) not in dimension.cells:
        return None
    share, n, _ = dimension.cells[row, column]
    tone = "up" if (row, column) in wins else ""
    link = urlencode({"dimension": dimension.name, "pair": f"{row}~{column}"})
    return MatrixCell(
        share=f"{100.0 * share:.0f}",
        tone="down" if (column, row) in wins else tone,
        title=f"{row} against {column}: {format_count(n)} comparisons",
        link=f"#?{link}" if has_texts else None,
    )


# Differences


def _build_differences_table(view: StandingsView) -> Table:
    dimensions, scored, has_looks = view.dimensions, view.is_of_scores, view.has_looks
    test, digits = "Analysis" if has_looks else "p (Holm)", 3 if scored else 0
    return Table(
        label="Differences",
        columns=[
            "Higher",
            "Lower",
            "Rubric",
            "Difference",
            "95% CI",
            test,
            "Result",
        ],
        words=["Lower", "Rubric", "Result"],
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
    units = (
        "Differences are in units of the score, paired by item."
        if scored
        else "Differences are in rating points."
    )
    method_note = "The p values are adjusted for all pairs and rubrics (Holm). Each interval holds for its pair alone."
    if has_looks:
        method_note = (
            "Each pair was tested up to the interim analysis shown, by alpha spending and Holm over all pairs and rubrics. "
            "Differences and intervals come from stage-wise ordering and are median-unbiased for their pair alone. After an "
            "early stop, a narrow gap is still overestimated."
        )
    if any(pair.one_sided for d in dimensions for pair in d.pairs):
        method_note += (
            " Over: one entrant won every comparison with the other, and the number of prompts bounds their difference "
            "exactly."
        )
    left_out = [
        f"On {d.name} the table shows only the pairs of {d.pairs[0].higher}. All pairs are in ratings.json or "
        "differences.csv."
        for d in dimensions
        if len(d.pairs) > MAX_PAIRS_PER_DIMENSION
    ]
    return [units, method_note, *left_out]


# Planned interim analyses


def list_look_blocks(view: StandingsView, *, drops: bool) -> list[Block]:
    """Return the planned interim analyses; empty without them.

    drops  whether decided pairs are left out of later analyses
    """
    dimensions = [d for d in view.dimensions if d.looks]
    if not dimensions:
        return []
    n_judged = sum(d.looks[-1].n_judged for d in dimensions)
    n_planned = sum(d.looks[-1].n_planned for d in dimensions)
    saved = (
        f"The judge decided {format_count(n_judged)} of {format_count(n_planned)} planned comparisons: "
        f"the interim analyses saved {format_percent(1.0 - n_judged / n_planned)}."
    )
    looks = [look for d in dimensions for look in d.looks]
    return [Paragraph(saved, "lede"), _build_looks_table(looks, drops=drops)]


def list_prompts_note(view: StandingsView) -> list[Block]:
    """Return the number of prompts on which pairs were judged; empty without interim analyses."""
    if not view.has_looks:
        return []
    counts = ", ".join(_format_prompt_counts(d) for d in view.dimensions if d.pairs)
    note = f"Each pair was judged on {counts}. A rank range counts the entrants that are significantly better or worse."
    return [Paragraph(note, "small")]


def _format_prompt_counts(dimension: DimensionView) -> str:
    min_prompts, max_prompts = dimension.prompts_of_pairs
    n = (
        str(min_prompts)
        if min_prompts == max_prompts
        else f"{min_prompts} to {max_prompts}"
    )
    return f"{n} prompts on {dimension.name}"


def _build_looks_table(looks: Sequence[Look], *, drops: bool) -> Table:
    alpha = "0.04, and the rest of 0.05 covers pairs left out before a misfit shows"
    columns = ["Analysis", "Prompts", "Boundary", "Pairs decided", "Comparisons judged"]
    return Table(
        label="Interim analyses",
        columns=["Rubric", *columns, "Left out"],
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
            "Boundary: the number of standard errors by which two entrants must differ. It follows alpha spending like that "
            "of O’Brien and Fleming, with Holm over all pairs that are still open. Alpha is "
            f"{alpha if drops else '0.05, because no pair is left out'}. Decided pairs and judged comparisons count all "
            "analyses so far. Misfit: Bradley-Terry does not fit (p < .10)."
        ),
    )


def _describe_left_out(*, is_whole: bool, drops: bool) -> str:
    if not is_whole:
        return "decided pairs"
    return "none: misfit" if drops else "none"
