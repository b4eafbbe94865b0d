"""The numbers that compare the jobs of a sweep: sweep_numbers.csv, and the tables of the numbers that changed.

A row is of one job and dimension. A range is over jobs within a dimension; over dimensions there are means only.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from elo_exp.analysis import elo_order_effects, tracked_results
from elo_exp.analysis.checks import check_definitions
from elo_exp.analysis.judge_quality import RATES
from elo_exp.figures.style import grouped
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_number,
    format_percent,
    format_percent_floor,
)
from elo_exp.report.document import Table
from elo_exp.report.sentences import sweep_sentences as words
from elo_exp.runs.reading import FinishedRun
from elo_exp.store.usage import sum_usages

Row = Mapping[str, Any]

NUMBERS = (
    *(f"result_{name}" for name in tracked_results.NUMBERS),
    *(f"order_{name}" for name in elo_order_effects.NUMBERS),
    *(f"judge_{name}" for name in RATES),
    "dollars",
)
_MAX_ROUNDING_DIFFERENCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A number in a table.

    heads     its heading, in lines of the console
    said      its value, for readers
    combined  its values on several dimensions
    """

    name: str
    heads: tuple[str, ...]
    said: Callable[[float], str]
    combined: Callable[[Sequence[float]], float] = fmean

    @property
    def heading(self) -> str:
        """On a page."""
        return _capitalize(" ".join(self.heads))


_ORDER_COLUMNS = (
    Column(name="order_gap", heads=("Elo gap",), said=format_number),
    Column(
        name="order_convergence",
        heads=("% of the", "final gap"),
        said=format_percent_floor,
    ),
    Column(
        name="order_mc_error",
        heads=("random", "error"),
        said=lambda value: format_number(value, 1),
    ),
    Column(
        name="order_distance", heads=("distance to", "final Elo"), said=format_number
    ),
    Column(name="order_swaps", heads=("pairs", "swapped"), said=lambda n: f"{n:.3g}"),
    Column(
        name="order_one_order_wrong",
        heads=("orders with a", "different ranking"),
        said=format_percent,
    ),
)


def _make_result_columns(method: str, unit: str) -> tuple[Column, ...]:
    def points(value: float) -> str:
        return format_number(value, words.DECIMALS_BY_UNIT[unit])

    return (
        Column(name="result_gap", heads=("lead by", method), said=points),
        Column(name="result_gap_se", heads=("standard", "error"), said=points),
        Column(
            name="result_separated",
            heads=("significant", "pairs"),
            said=lambda n: f"{n:.3g}",
        ),
        *(
            Column(
                name=f"judge_{check.compared_rate}",
                heads=(check.console_label or check.title,),
                said=format_percent,
            )
            for check in check_definitions().values()
            if check.compared_rate
        ),
        Column(
            name="dollars",
            heads=("paid",),
            said=lambda value: f"${value:,.2f}",
            combined=sum,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class ChangeTables:
    """The changed numbers in two tables: by dimension over the jobs, and by job.

    heads  headings of each table in lines of the console
    """

    by_dimension: Table
    by_job: Table
    heads: tuple[Sequence[str], Sequence[str]]


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def number_rows(
    jobs: Sequence[FinishedRun], settings: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return a row for each job and dimension; None where a number is not defined there.

    settings  swept settings other than K and the number of match orders, by job
    """
    rows = []
    for job in jobs:
        manifest = job.manifest
        rates = {row["dimension"]: row for row in manifest.get("judge_quality", ())}
        bill = sum_usages([manifest.get("usage"), manifest.get("paid_before")])
        dollars = bill.get("dollars_by_dimension", {})
        for dimension in job.boards:
            primary = job.stored_board(job.primary_method(dimension), dimension)
            number_by_name = {"dollars": dollars.get(dimension)}
            for prefix, numbers in (
                ("result", job.results.get(dimension, {})),
                ("order", job.stored_board("elo", dimension).get("order", {})),
                ("judge", rates.get(dimension, {})),
            ):
                number_by_name |= {
                    f"{prefix}_{name}": value for name, value in numbers.items()
                }
            rows.append(
                {
                    "job": job.folder.name,
                    "setting": settings.get(job.folder.name, ""),
                    "judge": manifest.get("judge_model"),
                    "dimension": dimension,
                    "k": manifest["config"]["elo"]["k"],
                    "n_perms": manifest.get("n_perms"),
                    "method": primary.get("label"),
                    "unit": primary.get("unit", "points"),
                    **{name: number_by_name.get(name) for name in NUMBERS},
                }
            )
    return rows


def list_ranges(rows: Sequence[Row]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the least and the most of each number over the jobs that have it, by dimension."""
    return {
        dimension: {
            name: (min(values), max(values))
            for name in NUMBERS
            if (
                values := [row[name] for row in dimension_rows if row[name] is not None]
            )
        }
        for dimension, dimension_rows in grouped(rows, "dimension").items()
    }


def list_changed_numbers(rows: Sequence[Row]) -> set[str]:
    """Return the numbers that differ between jobs on some dimension."""
    return {
        name
        for dimension_ranges in list_ranges(rows).values()
        for name, (low, high) in dimension_ranges.items()
        if high - low > _MAX_ROUNDING_DIFFERENCE
    }


def build_change_tables(
    rows: Sequence[Row], *, is_same: bool, differing: Collection[str] = ()
) -> ChangeTables | None:
    """Lay out the numbers that changed; None if none did.

    is_same    whether the main rating is the same in all jobs, so that only Elo can change
    differing  dimensions whose top entrant differs between jobs, so that the leads are of different pairs
    """
    names = list_changed_numbers(rows)
    if not names:
        return None
    lead_column, *other_columns = _make_result_columns(
        ", ".join(grouped(rows, "method")), rows[0]["unit"]
    )
    shown_columns = [
        column for column in (lead_column, *other_columns) if column.name in names
    ]
    if is_same or not shown_columns:
        shown_columns = [column for column in _ORDER_COLUMNS if column.name in names]
    columns_with_lead = (
        shown_columns if lead_column in shown_columns else [lead_column, *shown_columns]
    )
    job_columns = job_heads(rows)
    return ChangeTables(
        by_dimension=_build_dimension_table(rows, columns_with_lead, differing),
        by_job=_build_job_table(rows, job_columns, shown_columns),
        heads=(
            ["rubric", *("\n".join(column.heads) for column in columns_with_lead)],
            [*job_columns, *("\n".join(column.heads) for column in shown_columns)],
        ),
    )


def _build_dimension_table(
    rows: Sequence[Row], columns: Sequence[Column], differing: Collection[str]
) -> Table:
    def cell(dimension: str, column: Column) -> str:
        if column.name == "result_gap" and dimension in differing:
            return words.FIRST_DIFFERS
        ends = range_by_dimension[dimension].get(column.name)
        return NO_VALUE if ends is None else words.format_range(*map(column.said, ends))

    range_by_dimension, n_jobs = list_ranges(rows), len(grouped(rows, "job"))
    return Table(
        label=f"Changes by rubric, over the {n_jobs} jobs",
        columns=["Rubric", *(column.heading for column in columns)],
        rows=[
            [d, *(cell(d, column) for column in columns)] for d in range_by_dimension
        ],
    )


def job_heads(rows: Sequence[Row]) -> list[str]:
    """Return the columns that identify a job: the settings that differ between jobs."""
    names = {"K": "k", "match orders": "n_perms", "setting": "setting"}
    return [
        "job",
        *(head for head, name in names.items() if len(grouped(rows, name)) > 1),
    ]


def job_cells(row: Row, heads: Sequence[str]) -> list[str]:
    """Return what a line has in these columns."""
    cells = {
        "job": row["job"],
        "K": f"{row['k']:g}",
        "match orders": format_count(row["n_perms"]),
        "setting": words.shorten_settings(row["setting"]),
    }
    return [cells[head] for head in heads]


def _build_job_table(
    rows: Sequence[Row], job_columns: Sequence[str], columns: Sequence[Column]
) -> Table:
    """Return a row for each job. Means cover the dimensions that have the number in every job."""
    n_jobs, dimensions = len(grouped(rows, "job")), grouped(rows, "dimension")
    complete_dimensions = {
        column.name: [
            dimension
            for dimension, dimension_rows in dimensions.items()
            if sum(row[column.name] is not None for row in dimension_rows) == n_jobs
        ]
        for column in columns
    }
    lines = []
    for job_rows in grouped(rows, "job").values():
        by_dimension = {row["dimension"]: row for row in job_rows}
        line = job_cells(job_rows[0], job_columns)
        for column in columns:
            values = [
                by_dimension[d][column.name] for d in complete_dimensions[column.name]
            ]
            line.append(column.said(column.combined(values)) if values else NO_VALUE)
        lines.append(line)
    means = ", averaged over the rubrics" if len(dimensions) > 1 else ""
    heads = [_capitalize(head) for head in job_columns]
    return Table(
        label=f"Changes by job{means}",
        columns=[*heads, *(column.heading for column in columns)],
        rows=lines,
        words=["setting", "Setting"],  # as the console and as the page heads it
    )


def metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Return the ranges of the changed numbers for the tracker: sweep/<dimension>/<number>_low and _high."""
    names = list_changed_numbers(rows)
    return {
        f"sweep/{dimension}/{name}_{end}": value
        for dimension, dimension_ranges in list_ranges(rows).items()
        for name in names & dimension_ranges.keys()
        for end, value in zip(("low", "high"), dimension_ranges[name], strict=True)
    }
