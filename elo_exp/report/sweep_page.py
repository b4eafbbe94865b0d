"""What page and console show of the jobs of a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from elo_exp.analysis.conclusions.sweep import JobLead, job_lead
from elo_exp.console import text_table
from elo_exp.figures.style import best_first, grouped
from elo_exp.report.formats import (
    NONE,
    between,
    count,
    names,
    number,
    percent,
    percent_reached,
    when,
)
from elo_exp.report.words import sweep as words

Row = Mapping[str, Any]

_MAX_MODELS = 8  # columns of a table of ratings
_MAX_LINES = 30  # of the console's table
_ROUNDING = 1e-9  # points: a Monte Carlo error below is none


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
class Table:
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
        self._chosen = {
            job["job"]: dict(
                word.split("=", 1) for word in job["overrides"] or () if "=" in word
            )
            for job in jobs
        }
        known = [chosen for chosen in self._chosen.values() if chosen]
        values = {
            name: list(dict.fromkeys(chosen.get(name) for chosen in known))
            for name in dict.fromkeys(name for chosen in known for name in chosen)
        }
        self.swept = {
            name: [value for value in some if value is not None]
            for name, some in values.items()
            if len(some) > 1
        }
        self.fixed = [
            f"{name}={some[0]}" for name, some in values.items() if not some[1:]
        ]

    def of(self, jobs: Sequence[str]) -> list[str]:
        """Return the values of each setting that was swept in these jobs."""
        cells = []
        for name in self.swept:
            values = [self._chosen[job].get(name) for job in jobs]
            cells.append(", ".join(dict.fromkeys(filter(None, values))) or NONE)
        return cells


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """The rows of sweep_summary.csv of one dimension.

    models   best first
    by_job   rows by job and model
    leads    who is first, by job; only of jobs that rate somebody
    """

    name: str
    models: Sequence[str]
    by_job: Mapping[str, Mapping[str, Row]]
    leads: Mapping[str, JobLead]


@dataclass(frozen=True, kw_only=True)
class SweepPage:
    """What page and console show of a sweep.

    judges   cells of the table of agreement between judges
    errors   of jobs that did not finish
    """

    headline: str
    facts: str
    cards: Sequence[Card]
    settings: Settings
    jobs: Sequence[JobRow]
    policies: Sequence[str]
    estimates: Sequence[TableRow]
    ratings: Sequence[Table]
    elo: Sequence[Table]
    judges: Sequence[Sequence[str]]
    started: str | None
    finished: str | None
    errors: Sequence[str]
    n_finished: int
    console_table: str | None

    @property
    def has_errors(self) -> bool:
        return any(job.error for job in self.jobs)

    @property
    def swept(self) -> list[str]:
        """The settings that were swept, as the command names them."""
        return [
            f"{name}={','.join(some)}" for name, some in self.settings.swept.items()
        ]


def sweep_page(
    jobs: Sequence[Row],
    rows: Sequence[Row],
    judges: Sequence[Row],
    estimates: Sequence[Row],
) -> SweepPage:
    """Lay out the entries of sweep_jobs.json and the rows of the other files of a sweep.

    rows       of sweep_summary.csv, of jobs that rate
    judges     of sweep_judges.csv
    estimates  of sweep_summary.csv, of oracle runs
    """
    settings = Settings(jobs)
    dimensions = [_dimension(*item) for item in grouped(rows, "dimension").items()]
    n_finished = sum(job["finished"] for job in jobs)
    started = [job["started_at"] for job in jobs if job["started_at"]]
    finished = [job["finished_at"] for job in jobs if job["finished_at"]]
    return SweepPage(
        headline=words.headline(
            {d.name: list(d.leads.values()) for d in dimensions},
            len(grouped(rows, "job")),
            estimates,
        ),
        facts=words.facts(
            n_finished,
            len(jobs),
            settings.swept,
            list(grouped(rows, "method")),
            list(filter(None, grouped(rows, "interval"))),
        ),
        cards=[] if estimates else [_card(dimension) for dimension in dimensions],
        settings=settings,
        jobs=[_job_row(job, settings) for job in jobs],
        policies=list(grouped(estimates, "policy")),
        estimates=_estimate_rows(estimates, settings),
        ratings=[_rating_table(dimension, settings) for dimension in dimensions],
        elo=[
            _elo_table(dimension, settings)
            for dimension in dimensions
            if any(
                r["elo"] is not None for r in rows if r["dimension"] == dimension.name
            )
        ],
        judges=[_judge_cells(row) for row in judges],
        started=when(min(started)) if started else None,
        finished=when(max(finished)) if finished else None,
        errors=[
            f"job {job['job']} failed: {job['error'] or 'it was stopped'}"
            for job in jobs
            if not job["finished"]
        ],
        n_finished=n_finished,
        console_table=_console_table(rows, dimensions) if rows else None,
    )


def console(sweep: SweepPage, unknown: Sequence[str] = ()) -> str:
    """Format what is printed at the end of a sweep.

    unknown  models of sweep_pair that no job rates
    """
    lines = []
    if sweep.console_table or sweep.estimates:
        lines.append(f"{sweep.headline}.")
    if sweep.console_table:
        lines.append(sweep.console_table)
    lines += [
        f"sweep_pair: no job rates {model}, so the two best are drawn"
        for model in unknown
    ]
    lines += sweep.errors
    lines.append(f"sweep: {sweep.n_finished} of {len(sweep.jobs)} jobs finished")
    return "\n".join(lines)


def _dimension(name: str, rows: Sequence[Row]) -> Dimension:
    leads = {job: job_lead(job, own) for job, own in grouped(rows, "job").items()}
    return Dimension(
        name=name,
        models=best_first(rows),
        by_job={
            job: {row["model"]: row for row in own}
            for job, own in grouped(rows, "job").items()
        },
        leads={job: lead for job, lead in leads.items() if lead},
    )


def _card(dimension: Dimension) -> Card:
    ahead = [lead for lead in dimension.leads.values() if lead.gap is not None]
    jobs_of: dict[tuple[str, ...], list[str]] = {}
    for lead in ahead:
        jobs_of.setdefault(lead.models, []).append(lead.job)
    is_settled = len(jobs_of) == 1 and len(ahead) == len(dimension.by_job)
    sentences = [
        f"{names(models)} {'leads' if len(models) == 1 else 'share the lead'} in "
        f"{'every finished job' if is_settled else words.in_jobs(jobs)}."
        for models, jobs in jobs_of.items()
    ]
    if ahead:
        gaps = words.gap_range(ahead)
        sentences.append(f"The first is {gaps} points ahead of the second.")
    lagging = [
        job
        for job, rows in dimension.by_job.items()
        if any(row["converged"] is False for row in rows.values())
    ]
    chip = "Leaders differ" if len(jobs_of) > 1 else "Some jobs"
    return Card(
        dimension=dimension.name,
        chip="Same leader" if is_settled else chip if jobs_of else "No leader",
        is_settled=is_settled,
        sentences=sentences or ["No job rates two entrants, so none leads."],
        reasons=[words.not_converged(lagging)] if lagging else [],
    )


def _job_row(job: Row, settings: Settings) -> JobRow:
    usage, dollars = job["usage"], job["dollars"]
    failed = "failed" if job["error"] else "stopped"
    return JobRow(
        name=job["job"],
        link=f"{job['job']}/report.html" if job["finished"] else None,
        choices=settings.of([job["job"]]),
        state="finished" if job["finished"] else failed,
        dollars=f"${dollars:,.2f}" if dollars is not None else NONE,
        n_new=count(usage["judge_calls"]) if usage else NONE,
        n_stored=count(usage["verdicts_stored"]) if usage else NONE,
        error=job["error"] or "",
    )


def _estimate_rows(estimates: Sequence[Row], settings: Settings) -> list[TableRow]:
    policies = list(grouped(estimates, "policy"))
    rows = []
    for job, own in grouped(estimates, "job").items():
        by_policy = {row["policy"]: row for row in reversed(own)}
        cells = [_estimate_cell(by_policy.get(policy)) for policy in policies]
        rows.append(TableRow(jobs=job, choices=settings.of([job]), cells=cells))
    return rows


def _estimate_cell(row: Row | None) -> Cell:
    if row is None or row["value"] is None:
        return Cell(value=row["status"] if row else NONE)
    half_width = max(row["value"] - row["ci_low"], row["ci_high"] - row["value"])
    value = f"{number(row['value'], 3)} ± {number(half_width, 3)}"
    return Cell(value=f"{value} {row['status']}")


def _rating_table(dimension: Dimension, settings: Settings) -> Table:
    """Jobs with the same ratings share a row."""
    alike: dict[Any, list[str]] = {}
    for job, rows in dimension.by_job.items():
        key = map(itemgetter("model", "rating", "ci_low", "ci_high"), rows.values())
        alike.setdefault(tuple(key), []).append(job)
    models = dimension.models[:_MAX_MODELS]
    rows_of = [
        TableRow(
            jobs=words.jobs_named(jobs),
            choices=settings.of(jobs),
            cells=[_rating_cell(dimension.by_job[jobs[0]].get(m)) for m in models],
        )
        for jobs in alike.values()
    ]
    return Table(
        dimension=dimension.name,
        models=models,
        rows=rows_of,
        left_out=words.left_out(len(models), len(dimension.models)),
    )


def _rating_cell(row: Row | None) -> Cell:
    if row is None or row["rating"] is None:
        return Cell(value=(row and row["flag"]) or NONE)
    interval = between(row["ci_low"], row["ci_high"])
    return Cell(value=number(row["rating"]), error=interval)


def _elo_table(dimension: Dimension, settings: Settings) -> Table:
    models, rows = dimension.models[:_MAX_MODELS], []
    for job, by_model in dimension.by_job.items():
        first = next(iter(by_model.values()))
        row = TableRow(
            jobs=job,
            choices=settings.of([job]),
            cells=[_elo_cell(by_model.get(model)) for model in models],
            convergence=percent_reached(first["convergence"]),
            is_lagging=first["converged"] is False,
        )
        rows.append(row)
    return Table(dimension=dimension.name, models=models, rows=rows)


def _elo_cell(row: Row | None) -> Cell:
    if row is None or row["elo"] is None:
        return Cell(value=NONE)
    error = row["ordering_error"] or 0.0
    shown = number(error, 2) if error > _ROUNDING else NONE
    return Cell(value=number(row["elo"]), error=f"± {shown}")


def _judge_cells(row: Row) -> list[str]:
    return [
        *(row["first"], row["second"], row["dimension"]),
        count(row["n_comparisons"]),
        percent(row["agreement"]),
        number(row["kappa"], 2),
        number(row["rho"], 2),
    ]


def _console_table(rows: Sequence[Row], dimensions: Sequence[Dimension]) -> str:
    """Who is first in each job by the method that leads."""
    jobs = grouped(rows, "job")
    columns = [dimension.name for dimension in dimensions]
    settings = ["setting"] if any(own[0]["setting"] for own in jobs.values()) else []
    lines = []
    for job, own in jobs.items():
        cells = [job, f"{own[0]['k']:g}", count(own[0]["n_perms"])]
        cells += [own[0]["setting"]] if settings else []
        for dimension in dimensions:
            lead = dimension.leads.get(job)
            cells.append(words.first_of_job(lead) if lead else NONE)
        lines.append(cells)
    table = text_table(
        ["job", "K", "permutations", *settings, *columns],
        lines[:_MAX_LINES],
        text=[*settings, *columns],
        width=100,
    )
    methods = ", ".join(grouped(rows, "method"))
    text = (
        f"The first of each job by {methods}, and points ahead of the second\n{table}"
    )
    n_more = len(lines) - _MAX_LINES
    return (
        f"{text}\n  ... and {n_more} more in sweep_summary.csv" if n_more > 0 else text
    )
