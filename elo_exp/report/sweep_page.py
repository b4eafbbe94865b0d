"""What page and console show of the jobs of a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from elo_exp.analysis.conclusions.sweep_conclusion import (
    JobLead,
    SweepConclusion,
    conclude,
    find_job_lead,
    have_same_ratings,
)
from elo_exp.console import format_table
from elo_exp.figures.style import grouped, sort_models
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_interval,
    format_number,
    format_percent,
    format_percent_floor,
    format_time,
    rating_or_bound,
    replace_no_break_spaces,
)
from elo_exp.report import sweep_numbers
from elo_exp.report.document import Table
from elo_exp.report.sentences import sweep_sentences as words
from elo_exp.report.sweep_numbers import ChangeTables

Row = Mapping[str, Any]
Conclusions = Mapping[str, Mapping[str, Row]]  # of ratings.json, by job and dimension

_MAX_RATING_COLUMNS = 8
_MAX_CONSOLE_ROWS = 30
_MAX_ROUNDING_ERROR_POINTS = 1e-9


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the jobs say together of one dimension."""

    dimension: str
    chip: str
    is_settled: bool
    sentences: Sequence[str]
    reasons: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """A line of the table of jobs.

    link     to its report; None where it did not finish
    choices  its value of each setting that was swept
    """

    name: str
    link: str | None
    choices: Sequence[str]
    state: str
    dollars: str
    n_new: str
    n_stored: str
    error: str


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number, and smaller below it how far it is certain."""

    value: str
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """Some jobs in a table, and what they chose of each setting that was swept."""

    jobs: str
    choices: Sequence[str]
    cells: Sequence[Cell]
    convergence: str = ""
    is_lagging: bool = False


@dataclass(frozen=True, kw_only=True)
class RatingTable:
    """A table of one dimension, with a column for each of its best entrants."""

    dimension: str
    models: Sequence[str]
    rows: Sequence[TableRow]
    left_out: str | None = None


class Settings:
    """What the jobs of a sweep were given: settings that were swept, and those of every job.

    swept  the values of each setting that differs, in the order of the jobs
    fixed  as they were given
    """

    def __init__(self, jobs: Sequence[Row]) -> None:
        self._choices_by_job = {
            job["job"]: dict(
                word.split("=", 1) for word in job["overrides"] or () if "=" in word
            )
            for job in jobs
        }
        known_choices = [
            choices for choices in self._choices_by_job.values() if choices
        ]
        values_by_name = {
            name: list(dict.fromkeys(choices.get(name) for choices in known_choices))
            for name in dict.fromkeys(
                name for choices in known_choices for name in choices
            )
        }
        self.swept = {
            name: [value for value in values if value is not None]
            for name, values in values_by_name.items()
            if len(values) > 1
        }
        self.fixed = [
            f"{name}={values[0]}"
            for name, values in values_by_name.items()
            if not values[1:]
        ]

    def of(self, jobs: Sequence[str]) -> list[str]:
        """Return the values of each setting that was swept in these jobs."""
        cells = []
        for name in self.swept:
            values = [self._choices_by_job[job].get(name) for job in jobs]
            cells.append(", ".join(dict.fromkeys(filter(None, values))) or NO_VALUE)
        return cells


@dataclass(frozen=True, kw_only=True)
class SweptDimension:
    """The rows of sweep_summary.csv of one dimension.

    models      best first
    by_job      rows by job and model
    leads       who is first in each job; None where it rates nobody
    elo_leads   the same by Elo
    """

    name: str
    models: Sequence[str]
    by_job: Mapping[str, Mapping[str, Row]]
    leads: Mapping[str, JobLead | None]
    elo_leads: Mapping[str, JobLead | None]
    conclusion: SweepConclusion


@dataclass(frozen=True, kw_only=True)
class SweepPage:
    """What page and console show of a sweep.

    whose          taste the ratings are
    conclusions    of each dimension
    sentences      what they say, by dimension
    judges         cells of the table of agreement between judges
    errors         of jobs that did not finish
    moved          tables of what differs between jobs; None where nothing does
    """

    headline: str
    conclusions: Sequence[SweepConclusion]
    sentences: Mapping[str, str]
    facts: str
    whose: Sequence[str]
    cards: Sequence[Card]
    settings: Settings
    jobs: Sequence[JobRow]
    policies: Sequence[str]
    estimates: Sequence[TableRow]
    ratings: Sequence[RatingTable]
    elo: Sequence[RatingTable]
    judges: Sequence[Sequence[str]]
    started: str | None
    finished: str | None
    errors: Sequence[str]
    n_finished: int
    moved: ChangeTables | None
    seeds: Mapping[str, float]
    console_tables: Sequence[str]

    @property
    def scatter(self) -> str:
        return words.scatter(self.seeds, len(self.jobs))

    @property
    def has_errors(self) -> bool:
        return any(job.error for job in self.jobs)

    @property
    def swept(self) -> list[str]:
        """The settings that were swept, as the command names them."""
        return [
            f"{name}={','.join(values)}" for name, values in self.settings.swept.items()
        ]


def sweep_page(
    jobs: Sequence[Row],
    rows: Sequence[Row],
    judges: Sequence[Row],
    estimates: Sequence[Row],
    conclusions: Conclusions = MappingProxyType({}),
    numbers: Sequence[Row] = (),
    seeds: Mapping[str, float] = MappingProxyType({}),
) -> SweepPage:
    """Lay out the entries of sweep_jobs.json and the rows of the other files of a sweep.

    rows         of sweep_summary.csv, of jobs that rate
    judges       of sweep_judges.csv
    estimates    of sweep_summary.csv, of oracle runs
    conclusions  of the jobs, as their ratings.json has them
    numbers      rows of sweep_numbers.csv
    seeds        by dimension, how Elo scatters over seeds, over its Monte Carlo error; empty unless
                 they were swept
    """
    settings = Settings(jobs)
    dimensions = [
        _build_dimension(name, dimension_rows, conclusions)
        for name, dimension_rows in grouped(rows, "dimension").items()
    ]
    dimension_conclusions = [dimension.conclusion for dimension in dimensions]
    is_same = all(conclusion.is_same for conclusion in dimension_conclusions)
    differing = [d.name for d in dimensions if d.conclusion.state == "differs"]
    moved = sweep_numbers.build_change_tables(
        numbers, is_same=is_same, differing=differing
    )
    methods = list(grouped(rows, "method"))
    n_finished = sum(job["finished"] for job in jobs)
    started = [job["started_at"] for job in jobs if job["started_at"]]
    finished = [job["finished_at"] for job in jobs if job["finished_at"]]
    return SweepPage(
        headline=words.estimates_reported(estimates)
        if estimates
        else words.headline(
            dimension_conclusions,
            ", ".join(methods),
            list(settings.swept),
            elo_moved=moved is not None,
        ),
        conclusions=dimension_conclusions,
        whose=words.list_scope_lines(conclusions),
        sentences={
            d.name: words.sentence(d.conclusion, is_same=is_same) for d in dimensions
        },
        facts=words.facts(
            n_finished,
            len(jobs),
            settings.swept,
            methods,
            list(filter(None, grouped(rows, "interval"))),
        ),
        cards=[]
        if estimates
        else [_build_card(d, is_same=is_same) for d in dimensions],
        settings=settings,
        jobs=[_make_job_row(job, settings) for job in jobs],
        policies=list(grouped(estimates, "policy")),
        estimates=_list_estimate_rows(estimates, settings),
        ratings=[_build_rating_table(dimension, settings) for dimension in dimensions],
        elo=[
            _build_elo_table(dimension, settings)
            for dimension in dimensions
            if any(
                r["elo"] is not None for r in rows if r["dimension"] == dimension.name
            )
        ],
        judges=[_make_judge_cells(row) for row in judges],
        started=format_time(min(started)) if started else None,
        finished=format_time(max(finished)) if finished else None,
        errors=[
            f"job {job['job']} failed: {job['error'] or 'it was stopped'}"
            for job in jobs
            if not job["finished"]
        ],
        n_finished=n_finished,
        moved=moved,
        seeds=seeds,
        console_tables=_format_console_tables(rows, dimensions, moved),
    )


def format_console(sweep: SweepPage, unknown: Sequence[str] = ()) -> str:
    """Format what is printed at the end of a sweep.

    unknown  models of sweep_pair that no job rates
    """
    lines = []
    if sweep.conclusions or sweep.estimates:
        sentence_lines = [
            f"{name}: {sentence}" for name, sentence in sweep.sentences.items()
        ]
        lines += [f"{sweep.headline}.", *sentence_lines, *sweep.whose]
    if sweep.console_tables:
        lines += ["", *sweep.console_tables]
    lines += filter(None, [sweep.scatter])
    lines += [
        f"sweep_pair: no job rates {model}, so the two best are drawn"
        for model in unknown
    ]
    lines += sweep.errors
    lines.append(f"sweep: {sweep.n_finished} of {len(sweep.jobs)} jobs finished")
    return replace_no_break_spaces("\n".join(lines))


def _build_dimension(
    name: str, rows: Sequence[Row], conclusions: Conclusions
) -> SweptDimension:
    rows_by_job = grouped(rows, "job")
    leads = {
        job: find_job_lead(job, job_rows, conclusions.get(job, {}).get(name))
        for job, job_rows in rows_by_job.items()
    }
    return SweptDimension(
        name=name,
        models=sort_models(rows),
        by_job={
            job: {row["model"]: row for row in job_rows}
            for job, job_rows in rows_by_job.items()
        },
        leads=leads,
        elo_leads={
            job: find_job_lead(job, job_rows, value="elo")
            for job, job_rows in rows_by_job.items()
        },
        conclusion=conclude(
            list(leads.values()),
            dimension=name,
            is_same=have_same_ratings(list(rows_by_job.values())),
            unit=rows[0]["unit"],
        ),
    )


def _build_card(dimension: SweptDimension, *, is_same: bool) -> Card:
    """`is_same`: whether all ratings of the sweep are the same in all jobs, so that only Elo moves."""
    sentences = [words.sentence(dimension.conclusion, is_same=is_same)]
    if is_same:
        elo_conclusion = conclude(
            list(dimension.elo_leads.values()), dimension=dimension.name
        )
        sentences += (
            [f"By Elo {words.sentence(elo_conclusion)}"] if elo_conclusion.leads else []
        )
    lagging = [
        job
        for job, rows in dimension.by_job.items()
        if any(row["converged"] is False for row in rows.values())
    ]
    return Card(
        dimension=dimension.name,
        chip=words.chip(dimension.conclusion),
        is_settled=dimension.conclusion.state == "leads",
        sentences=sentences,
        reasons=[words.not_converged(lagging)] if lagging else [],
    )


def _make_job_row(job: Row, settings: Settings) -> JobRow:
    usage, dollars = job["usage"], job["dollars"]
    unfinished_state = "failed" if job["error"] else "stopped"
    return JobRow(
        name=job["job"],
        link=f"{job['job']}/report.html" if job["finished"] else None,
        choices=settings.of([job["job"]]),
        state="finished" if job["finished"] else unfinished_state,
        dollars=f"${dollars:,.2f}" if dollars is not None else NO_VALUE,
        n_new=format_count(usage.get("judge_calls", 0)) if usage else NO_VALUE,
        n_stored=format_count(usage.get("verdicts_stored", 0)) if usage else NO_VALUE,
        error=job["error"] or "",
    )


def _list_estimate_rows(estimates: Sequence[Row], settings: Settings) -> list[TableRow]:
    policies = list(grouped(estimates, "policy"))
    rows = []
    for job, job_rows in grouped(estimates, "job").items():
        by_policy = {row["policy"]: row for row in reversed(job_rows)}
        cells = [_make_estimate_cell(by_policy.get(policy)) for policy in policies]
        rows.append(TableRow(jobs=job, choices=settings.of([job]), cells=cells))
    return rows


def _make_estimate_cell(row: Row | None) -> Cell:
    if row is None or None in (row["value"], row["ci_low"], row["ci_high"]):
        return Cell(value=row["status"] if row else NO_VALUE)
    half_width = max(row["value"] - row["ci_low"], row["ci_high"] - row["value"])
    value = f"{format_number(row['value'], 3)} ± {format_number(half_width, 3)}"
    return Cell(value=f"{value} {row['status']}")


def _build_rating_table(dimension: SweptDimension, settings: Settings) -> RatingTable:
    """Return a table of ratings in which jobs with the same ratings share a row."""
    job_groups: list[list[str]] = []
    for job, rows in dimension.by_job.items():
        for jobs in job_groups:
            group_rows = dimension.by_job[jobs[0]]
            if have_same_ratings([list(rows.values()), list(group_rows.values())]):
                jobs.append(job)
                break
        else:
            job_groups.append([job])
    models = dimension.models[:_MAX_RATING_COLUMNS]
    table_rows = [
        TableRow(
            jobs=words.name_jobs(jobs),
            choices=settings.of(jobs),
            cells=[_make_rating_cell(dimension.by_job[jobs[0]].get(m)) for m in models],
        )
        for jobs in job_groups
    ]
    return RatingTable(
        dimension=dimension.name,
        models=models,
        rows=table_rows,
        left_out=words.describe_left_out(len(models), len(dimension.models)),
    )


def _make_rating_cell(row: Row | None) -> Cell:
    if row is None:
        return Cell(value=NO_VALUE)
    digits, ends = words.DECIMALS_BY_UNIT[row["unit"]], (row["ci_low"], row["ci_high"])
    value = rating_or_bound(row["rating"], *ends, flag=row["flag"], digits=digits)
    error = None if row["rating"] is None else format_interval(*ends, digits)
    return Cell(value=value, error=error)


def _build_elo_table(dimension: SweptDimension, settings: Settings) -> RatingTable:
    models, rows = dimension.models[:_MAX_RATING_COLUMNS], []
    for job, by_model in dimension.by_job.items():
        first_row = next(iter(by_model.values()))
        row = TableRow(
            jobs=job,
            choices=settings.of([job]),
            cells=[_make_elo_cell(by_model.get(model)) for model in models],
            convergence=format_percent_floor(first_row["convergence"]),
            is_lagging=first_row["converged"] is False,
        )
        rows.append(row)
    return RatingTable(dimension=dimension.name, models=models, rows=rows)


def _make_elo_cell(row: Row | None) -> Cell:
    if row is None or row["elo"] is None:
        return Cell(value=NO_VALUE)
    error = row["ordering_error"] or 0.0
    error_text = (
        format_number(error, 2) if error > _MAX_ROUNDING_ERROR_POINTS else NO_VALUE
    )
    return Cell(value=format_number(row["elo"]), error=f"± {error_text}")


def _make_judge_cells(row: Row) -> list[str]:
    return [
        *(row["first"], row["second"], row["dimension"]),
        format_count(row["n_comparisons"]),
        format_percent(row["agreement"]),
        format_number(row["kappa"], 2),
        format_number(row["rho"], 2),
    ]


def _format_console_tables(
    rows: Sequence[Row],
    dimensions: Sequence[SweptDimension],
    moved: ChangeTables | None,
) -> list[str]:
    """Return what moved by dimension and by job, or instead of the latter the leader of each job if leaders differ."""
    tables = []
    if moved is not None:
        by_dimension, by_job = moved.heads
        tables.append(_format_table(moved.by_dimension, by_dimension))
    if any(d.conclusion.state == "differs" for d in dimensions):
        tables.append(_format_leaders_by_job(rows, dimensions))
    elif moved is not None:
        tables.append(_format_table(moved.by_job, by_job))
    return tables


def _format_leaders_by_job(
    rows: Sequence[Row], dimensions: Sequence[SweptDimension]
) -> str:
    columns = [dimension.name for dimension in dimensions]
    settings = sweep_numbers.job_heads(rows)
    lines = []
    for job, job_rows in grouped(rows, "job").items():
        leaders = [
            words.first_of_job(lead, dimension.conclusion.unit)
            if (lead := dimension.leads.get(job))
            else NO_VALUE
            for dimension in dimensions
        ]
        lines.append([*sweep_numbers.job_cells(job_rows[0], settings), *leaders])
    methods = ", ".join(grouped(rows, "method"))
    title = f"The first of each job by {methods}, and points ahead of the second"
    head = [*settings, *columns]
    table = Table(label=title, columns=head, rows=lines, words=["setting", *columns])
    return _format_table(table, head)


def _format_table(table: Table, head: Sequence[str]) -> str:
    """Format a table for the console, with headings in several lines."""
    table_text = format_table(
        head, table.plain_rows[:_MAX_CONSOLE_ROWS], text=table.words
    )
    n_more = len(table.rows) - _MAX_CONSOLE_ROWS
    more = [f"  ... and {n_more} more in sweep_numbers.csv"] if n_more > 0 else []
    return "\n".join([table.label, table_text, *more])
