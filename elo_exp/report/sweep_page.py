"""The page and the console text of a sweep."""

from collections.abc import Iterator, Mapping, Sequence
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
from elo_exp.console import format_table, wrap_lines
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
)
from elo_exp.report import sweep_numbers
from elo_exp.report.document import (
    Block,
    Card,
    Cards,
    Cell,
    Document,
    Facts,
    FigureSlot,
    Fold,
    Heading,
    Link,
    OtherFigures,
    Paragraph,
    Section,
    Styled,
    Table,
    Text,
    join_codes,
)
from elo_exp.report.provenance import build_details_section
from elo_exp.report.sentences import sweep_sentences as words
from elo_exp.report.sweep_numbers import ChangeTables
from elo_exp.runs.sweep_record import JobSettings

Row = Mapping[str, Any]
Conclusions = Mapping[str, Mapping[str, Row]]  # of ratings.json, by job and dimension

_MAX_RATING_COLUMNS = 8
_MAX_CONSOLE_ROWS = 30
_MAX_ROUNDING_ERROR_POINTS = 1e-9
_CARDS_NOTE = "Ranges cover all jobs. The report of each job, linked below, lists the objections to its lead."
_MOVED_NOTE = (
    "A range covers all jobs. Elo gap: the gap between the two best entrants of the main rating. Distance to final Elo: "
    "how far Elo is from the values that it approaches with endlessly many matches, in points (root mean square over "
    "entrants). It includes the random error. Orders with a different ranking: the share of single match orders that "
    "rank some pair differently from the main rating. All numbers are in sweep_numbers.csv."
)
_JOBS_NOTE = "The number of a job links to its report. Paid: the total of all attempts."
_ESTIMATES_NOTE = (
    "The reported estimate of each policy ± half of its 95% interval, and its status."
)
_ELO_NOTE = (
    "Mean Elo over the match orders ± its random error: how far the mean would still change with other random orders of "
    "the same matches. The uncertainty about the entrants is the 95% interval of their ratings. If Elo has not "
    "converged, its gaps are too small, and close entrants may be in the wrong order."
)
_JUDGES_NOTE = "Cohen’s kappa on the comparisons that both judges made, and Spearman’s correlation of their ratings."
_MADE_NOTE = (
    "The report of each job lists its settings and the version of every package."
)
_FOOTER = (
    "Every number is in sweep_summary.csv, sweep_numbers.csv and sweep_jobs.json next to this page, and in the folders of "
    "the jobs."
)


@dataclass(frozen=True, kw_only=True)
class SweptDimension:
    """The rows of sweep_summary.csv of one dimension.

    models      best first
    by_job      rows by job and model
    leads       top entrant of each job; None if a job rates nobody
    elo_leads   the same by Elo
    """

    name: str
    models: Sequence[str]
    by_job: Mapping[str, Mapping[str, Row]]
    leads: Mapping[str, JobLead | None]
    elo_leads: Mapping[str, JobLead | None]
    conclusion: SweepConclusion


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """Results of the jobs of a sweep.

    jobs                 the entries of sweep_jobs.json
    rows                 of sweep_summary.csv, of jobs that rate
    judges               rows of sweep_judges.csv
    estimates            rows of sweep_summary.csv, of oracle runs
    conclusions_of_jobs  as their ratings.json has them
    moved                tables of the numbers that differ between jobs; None if none differs
    seeds                scatter of Elo over seeds divided by its random error, by dimension; empty unless seeds were
                         swept
    """

    jobs: Sequence[Row]
    rows: Sequence[Row]
    judges: Sequence[Row]
    estimates: Sequence[Row]
    conclusions_of_jobs: Conclusions
    settings: JobSettings
    dimensions: Sequence[SweptDimension]
    moved: ChangeTables | None
    seeds: Mapping[str, float]

    @property
    def conclusions(self) -> list[SweepConclusion]:
        """A conclusion for each dimension."""
        return [dimension.conclusion for dimension in self.dimensions]

    @property
    def is_same(self) -> bool:
        """Whether all ratings of the sweep are the same in all jobs, so that only Elo moves."""
        return all(conclusion.is_same for conclusion in self.conclusions)

    @property
    def sentences(self) -> dict[str, str]:
        """The sentence of each dimension."""
        return {
            dimension.name: words.sentence(dimension.conclusion, is_same=self.is_same)
            for dimension in self.dimensions
        }

    @property
    def methods(self) -> list[str]:
        return list(grouped(self.rows, "method"))

    @property
    def headline(self) -> str:
        if self.estimates:
            return words.estimates_reported(self.estimates)
        return words.headline(
            self.conclusions,
            ", ".join(self.methods),
            list(self.settings.swept),
            elo_moved=self.moved is not None,
        )

    @property
    def scope_lines(self) -> Sequence[str]:
        """Whose verdicts the ratings rest on."""
        return words.list_scope_lines(self.conclusions_of_jobs)

    @property
    def scatter(self) -> str:
        return words.scatter(self.seeds, len(self.jobs))

    @property
    def n_finished(self) -> int:
        return sum(job["finished"] for job in self.jobs)


def conclude_sweep(
    jobs: Sequence[Row],
    rows: Sequence[Row],
    judges: Sequence[Row],
    estimates: Sequence[Row],
    conclusions: Conclusions = MappingProxyType({}),
    numbers: Sequence[Row] = (),
    seeds: Mapping[str, float] = MappingProxyType({}),
) -> SweepResult:
    """Conclude what the jobs of a sweep have in common; see SweepResult for the arguments.

    conclusions  of the jobs
    numbers      rows of sweep_numbers.csv
    """
    dimensions = [
        _build_dimension(name, dimension_rows, conclusions)
        for name, dimension_rows in grouped(rows, "dimension").items()
    ]
    moved = sweep_numbers.build_change_tables(
        numbers,
        is_same=all(d.conclusion.is_same for d in dimensions),
        differing=[d.name for d in dimensions if d.conclusion.state == "differs"],
    )
    return SweepResult(
        jobs=jobs,
        rows=rows,
        judges=judges,
        estimates=estimates,
        conclusions_of_jobs=conclusions,
        settings=JobSettings(jobs),
        dimensions=dimensions,
        moved=moved,
        seeds=seeds,
    )


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


# The page


def build_document(result: SweepResult, cost: Sequence[Block]) -> Document:
    """Return the page of a sweep.

    cost  what all jobs cost
    """
    facts = words.facts(
        result.n_finished,
        len(result.jobs),
        result.settings.swept,
        result.methods,
        list(filter(None, grouped(result.rows, "interval"))),
    )
    is_whole = result.n_finished == len(result.jobs)
    return Document(
        kicker="sweep",
        headline=result.headline,
        lede=[
            Paragraph(facts, "facts"),
            *(Paragraph(line, "whose") for line in result.scope_lines),
        ],
        sections=[
            Section("result", "Result", _list_card_blocks(result)),
            Section("moved", "What changed", _list_moved_blocks(result)),
            Section("jobs", "Jobs", [] if is_whole else [_build_jobs_table(result)]),
            Section("estimates", "Estimates", [_build_estimates_table(result)]),
            Section(
                "judges",
                "Agreement between judges",
                [_build_judges_table(result.judges)],
            ),
            build_details_section(
                cost,
                folds=_list_folds(result),
                made=[Facts(_list_made_facts(result)), Paragraph(_MADE_NOTE, "small")],
            ),
        ],
        footer=_FOOTER,
    )


def _list_folds(result: SweepResult) -> list[Fold]:
    ratings_answer = "the same in all jobs" if result.is_same else "of each job"
    n_jobs = len(result.jobs)
    jobs = [_build_jobs_table(result)] if result.n_finished == n_jobs else []
    return [
        Fold("jobs", "Jobs", f"{n_jobs} finished, with links to their reports", jobs),
        Fold("ratings", "Ratings", ratings_answer, [*_list_rating_blocks(result)]),
        Fold(
            "elo",
            "Elo by match order",
            "mean over the match orders of each job, with its random error",
            [*_list_elo_blocks(result), OtherFigures()],
        ),
    ]


def _list_card_blocks(result: SweepResult) -> list[Block]:
    if result.estimates or not result.dimensions:
        return []
    cards = [_build_card(dimension, result) for dimension in result.dimensions]
    return [Cards(cards), Paragraph(_CARDS_NOTE, "small")]


def _build_card(dimension: SweptDimension, result: SweepResult) -> Card:
    sentences = [result.sentences[dimension.name]]
    if result.is_same:
        elo_conclusion = conclude(
            list(dimension.elo_leads.values()), dimension=dimension.name
        )
        sentences += (
            [f"By Elo, {words.sentence(elo_conclusion)}"]
            if elo_conclusion.leads
            else []
        )
    lagging = [
        job
        for job, rows in dimension.by_job.items()
        if any(row["converged"] is False for row in rows.values())
    ]
    blocks = [Paragraph(f"{sentence}.") for sentence in sentences]
    if lagging:
        blocks.append(Paragraph(words.not_converged(lagging), "reason"))
    return Card(
        title=dimension.name,
        chip=words.chip(dimension.conclusion),
        tone=words.STATE_ROWS[dimension.conclusion.state].tone,
        blocks=blocks,
    )


def _list_moved_blocks(result: SweepResult) -> list[Block]:
    if result.moved is None:
        return []
    by_dimension, by_job = result.moved.by_dimension, result.moved.by_job
    return [
        FigureSlot("k_by_n_perms"),
        Heading(by_dimension.label),
        by_dimension,
        Heading(by_job.label),
        by_job,
        *([Paragraph(result.scatter)] if result.scatter else []),
        Paragraph(_MOVED_NOTE, "small"),
    ]


def _build_jobs_table(result: SweepResult) -> Table:
    swept = list(result.settings.swept)
    has_errors = any(job["error"] for job in result.jobs)
    errors = ["Error"] if has_errors else []
    return Table(
        label="Jobs",
        columns=["Job", *swept, "State", "Paid", "New verdicts", "Cached", *errors],
        rows=[
            _make_job_row(job, result.settings, has_errors=has_errors)
            for job in result.jobs
        ],
        words=[*swept, "State", "Error"],
        note=_JOBS_NOTE,
    )


def _make_job_row(
    job: Row, settings: JobSettings, *, has_errors: bool
) -> list[str | Cell]:
    usage, dollars, name = job["usage"], job["dollars"], job["job"]
    state = "failed" if job["error"] else "stopped"
    name_cell, state_cell = Cell(name), Cell(state, "no")
    if job["finished"]:
        name_cell = Cell([Link(name, f"{name}/report.html")])
        state_cell = Cell("finished", "yes")
    return [
        name_cell,
        *map(Cell, settings.of([name])),
        state_cell,
        f"${dollars:,.2f}" if dollars is not None else NO_VALUE,
        format_count(usage.get("judge_calls", 0)) if usage else NO_VALUE,
        format_count(usage.get("verdicts_stored", 0)) if usage else NO_VALUE,
        *([Cell(job["error"] or "", "words")] if has_errors else []),
    ]


def _build_estimates_table(result: SweepResult) -> Table:
    policies = list(grouped(result.estimates, "policy"))
    columns = ["Job", *result.settings.swept, *policies]
    rows: list[list[str | Cell]] = []
    for job, job_rows in grouped(result.estimates, "job").items():
        by_policy = {row["policy"]: row for row in reversed(job_rows)}
        estimates = [_format_estimate(by_policy.get(policy)) for policy in policies]
        cells = map(Cell, [*result.settings.of([job]), *estimates])
        rows.append([job, *cells])
    return Table(
        label="Estimates by job",
        columns=columns,
        rows=rows,
        words=columns,
        note=_ESTIMATES_NOTE,
    )


def _format_estimate(row: Row | None) -> str:
    if row is None or None in (row["value"], row["ci_low"], row["ci_high"]):
        return row["status"] if row else NO_VALUE
    half_width = max(row["value"] - row["ci_low"], row["ci_high"] - row["value"])
    value = f"{format_number(row['value'], 3)} ± {format_number(half_width, 3)}"
    return f"{value} {row['status']}"


def _list_rating_blocks(result: SweepResult) -> Iterator[Block]:
    for dimension in result.dimensions:
        yield Heading(dimension.name)
        n_shown = min(len(dimension.models), _MAX_RATING_COLUMNS)
        if left_out := words.describe_left_out(n_shown, len(dimension.models)):
            yield Paragraph(left_out, "small")
        yield _build_ratings_table(dimension, result.settings)


def _build_ratings_table(dimension: SweptDimension, settings: JobSettings) -> Table:
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
    return Table(
        label=f"Ratings on {dimension.name}",
        columns=["Jobs", *settings.swept, *models],
        rows=[
            [
                words.name_jobs(jobs),
                *map(Cell, settings.of(jobs)),
                *(_make_rating_cell(dimension.by_job[jobs[0]].get(m)) for m in models),
            ]
            for jobs in job_groups
        ],
        words=list(settings.swept),
    )


def _make_rating_cell(row: Row | None) -> Cell:
    if row is None:
        return _make_number_cell(NO_VALUE)
    digits, ends = words.DECIMALS_BY_UNIT[row["unit"]], (row["ci_low"], row["ci_high"])
    value = rating_or_bound(row["rating"], *ends, flag=row["flag"], digits=digits)
    error = None if row["rating"] is None else format_interval(*ends, digits)
    return _make_number_cell(value, error)


def _make_number_cell(value: str, error: str | None = None) -> Cell:
    """Return a cell with a number, and smaller below it how far it is certain."""
    return Cell([value, *([Styled(error, "small")] if error else [])], "num")


def _list_elo_blocks(result: SweepResult) -> list[Block]:
    blocks: list[Block] = []
    for dimension in result.dimensions:
        rows = [
            row for by_model in dimension.by_job.values() for row in by_model.values()
        ]
        if any(row["elo"] is not None for row in rows):
            blocks += [
                Heading(dimension.name),
                _build_elo_table(dimension, result.settings),
            ]
    return [*blocks, Paragraph(_ELO_NOTE, "small")] if blocks else []


def _build_elo_table(dimension: SweptDimension, settings: JobSettings) -> Table:
    models = dimension.models[:_MAX_RATING_COLUMNS]
    rows: list[list[str | Cell]] = []
    for job, by_model in dimension.by_job.items():
        run_row = next(iter(by_model.values()))
        is_lagging = run_row["converged"] is False
        convergence = format_percent_floor(run_row["convergence"])
        rows.append(
            [
                job,
                *map(Cell, settings.of([job])),
                Cell(convergence, "num no" if is_lagging else "num"),
                *(_make_elo_cell(by_model.get(model)) for model in models),
            ]
        )
    return Table(
        label=f"Elo on {dimension.name}",
        columns=["Job", *settings.swept, "% of the final gap", *models],
        rows=rows,
        words=list(settings.swept),
    )


def _make_elo_cell(row: Row | None) -> Cell:
    if row is None or row["elo"] is None:
        return _make_number_cell(NO_VALUE)
    error = row["ordering_error"] or 0.0
    error_text = (
        format_number(error, 2) if error > _MAX_ROUNDING_ERROR_POINTS else NO_VALUE
    )
    return _make_number_cell(format_number(row["elo"]), f"± {error_text}")


def _build_judges_table(judges: Sequence[Row]) -> Table:
    return Table(
        label="Agreement between judges",
        columns=[
            "Judge",
            "and",
            "Rubric",
            "Comparisons",
            "Same winner",
            "Kappa",
            "Rank correlation",
        ],
        rows=[_make_judge_row(row) for row in judges],
        words=["and", "Rubric"],
        note=_JUDGES_NOTE,
    )


def _make_judge_row(row: Row) -> list[str]:
    return [
        *(row["first"], row["second"], row["dimension"]),
        format_count(row["n_comparisons"]),
        format_percent(row["agreement"]),
        format_number(row["kappa"], 2),
        format_number(row["rho"], 2),
    ]


def _list_made_facts(result: SweepResult) -> list[tuple[str, Text]]:
    """Return when the jobs ran, and with which settings."""
    jobs, settings = result.jobs, result.settings
    started = [job["started_at"] for job in jobs if job["started_at"]]
    finished = [job["finished_at"] for job in jobs if job["finished_at"]]
    swept = [f"{name}={','.join(values)}" for name, values in settings.swept.items()]
    fixed = join_codes(settings.fixed)
    return [
        *([("Started", format_time(min(started)))] if started else []),
        *([("Finished", format_time(max(finished)))] if finished else []),
        *([("Swept", join_codes(swept))] if swept else []),
        ("In every job", fixed or "all other settings have their defaults"),
    ]


# The console


def format_console(result: SweepResult, unknown: Sequence[str] = ()) -> str:
    """Format what is printed at the end of a sweep.

    unknown  models of sweep_pair that no job rates
    """
    lines = []
    if result.dimensions or result.estimates:
        sentence_lines = [
            f"{name}: {sentence}." for name, sentence in result.sentences.items()
        ]
        lines += wrap_lines(
            [f"{result.headline}.", *sentence_lines, *result.scope_lines]
        )
    if tables := _format_console_tables(result.rows, result.dimensions, result.moved):
        lines += ["", *tables]
    lines += filter(None, [result.scatter])
    lines += [
        f"sweep_pair: no job rates {model}. The figure shows the two best entrants instead."
        for model in unknown
    ]
    lines += [
        f"job {job['job']} failed: {job['error'] or 'it was stopped'}"
        for job in result.jobs
        if not job["finished"]
    ]
    lines.append(f"sweep: {result.n_finished} of {len(result.jobs)} jobs finished")
    return "\n".join(lines)


def _format_console_tables(
    rows: Sequence[Row],
    dimensions: Sequence[SweptDimension],
    moved: ChangeTables | None,
) -> list[str]:
    """Return the changes by dimension and by job. If leaders differ, return the leader of each job for the latter."""
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
    title = f"Top entrant of each job by {methods}, with its lead in points"
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
