"""report.html of a sweep: its jobs side by side on one page, also when some of them failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.ratings.leaderboard import CONVERGED, ROUNDING
from elo_exp.records import Plot
from elo_exp.report.findings import converged
from elo_exp.report.formats import names
from elo_exp.report.html import cost, figure, when
from elo_exp.report.markup import (
    NONE,
    Markup,
    between,
    codes,
    document,
    join,
    listed,
    maybe,
    percent,
    table,
    tag,
)
from elo_exp.store.usage import added_up, paid

Job = Mapping[str, Any]  # an entry of sweep_jobs.json
Row = Mapping[str, Any]  # of sweep_summary.csv

_MAX_MODELS = 8  # columns of a table of ratings; all are in sweep_summary.csv
_OF_LEADERS = (
    "The highest rating of each job, and no more: whether a lead is more than chance is said in the job's own report, "
    "to which its number leads below."
)
_OF_JOBS = "A job's number leads to its own report. Paid: by all attempts. Asked: verdicts asked of the judge."
_OF_RATINGS = (
    "The ordering error is how much the mean Elo would still move with other random orders of the same matches; it "
    "says nothing of how sure a rating is: its 95 % interval does. Bradley-Terry depends neither on K nor on "
    "the order of matches. Where Elo has not converged its gaps are too small, and close entrants may be in the wrong "
    "order."
)


@dataclass(frozen=True, slots=True)
class _Choices:
    """What was chosen for each job, by setting; nothing for a job that could not even be composed."""

    by_job: Mapping[str, Mapping[str, str]]

    @property
    def swept(self) -> list[str]:
        """The settings in which the jobs differ."""
        known = [chosen for chosen in self.by_job.values() if chosen]
        every = dict.fromkeys(name for chosen in known for name in chosen)
        return [
            name for name in every if len({chosen.get(name) for chosen in known}) > 1
        ]

    @property
    def fixed(self) -> list[str]:
        """Those in which they do not, as on the command line."""
        said = (
            f"{name}={value}"
            for by in self.by_job.values()
            for name, value in by.items()
            if name not in self.swept
        )
        return list(dict.fromkeys(said))

    def values(self, name: str, jobs: Sequence[str] | None = None) -> str:
        """Of one setting, over these jobs or over all."""
        chosen = (self.by_job[job] for job in (self.by_job if jobs is None else jobs))
        return (
            ", ".join(
                dict.fromkeys(by_name[name] for by_name in chosen if name in by_name)
            )
            or NONE
        )

    @property
    def head(self) -> list[Markup]:
        return [tag("code", name) for name in self.swept]

    def cells(self, *jobs: str) -> list[str]:
        return [self.values(name, jobs) for name in self.swept]


def page(
    title: str, jobs: Sequence[Job], rows: Sequence[Row], plots: Sequence[Plot]
) -> str:
    """The whole report as one HTML file, which links to those of the jobs."""
    choices = _Choices({job["job"]: _chosen(job) for job in jobs})
    n_finished = sum(job["finished"] for job in jobs)
    sections = {
        "Who leads": _leaders(rows),
        "Jobs": _jobs(jobs, choices),
        "Ratings": _ratings(rows, choices),
        "Figures": (figure(plot, numbers=f"figures/{plot.name}.csv") for plot in plots),
        "What it cost": cost(
            added_up(job["usage"] for job in jobs),
            before=added_up(job["paid_before"] for job in jobs),
        ),
        "How it was made": _making(jobs, choices),
    }
    swept = [f"{name} = {choices.values(name)}" for name in choices.swept]
    lede = [
        f"{n_finished} of {len(jobs)} jobs finished",
        *(swept or ["nothing was swept"]),
    ]
    note = "Every number is in sweep_summary.csv and sweep_jobs.json beside this page, and in the folders of the jobs."
    return document(title, "; ".join(lede), sections, note=note)


def _chosen(job: Job) -> dict[str, str]:
    return {
        name: value
        for name, _, value in (
            override.partition("=") for override in job["overrides"] or ()
        )
    }


def _leaders(rows: Sequence[Row]) -> Iterator[Markup]:
    for dimension, some in _by(rows, "dimension").items():
        leaders = {
            "Elo": _first(some, "rating"),
            "Bradley-Terry": _first(some, "bradley_terry"),
        }
        if leaders["Elo"] == leaders["Bradley-Terry"]:
            leaders = {"Elo and by Bradley-Terry": leaders["Elo"]}
        said = [
            sentence
            for method, jobs in leaders.items()
            for sentence in _sentence(method, jobs)
        ]
        short = list(dict.fromkeys(row["job"] for row in some if _is_short(row)))
        doubt = [f"Elo has not converged in {_of_jobs(short)}."] if short else []
        agree = len({models for jobs in leaders.values() for models in jobs}) == 1
        text = tag("p", *(said or ["Nobody can be rated. "]), *doubt)
        yield tag(
            "div",
            tag("h3", dimension),
            text,
            class_="verdict" if agree else "verdict open",
        )
    if rows:
        yield tag("p", _OF_LEADERS, class_="note")


def _first(rows: Sequence[Row], column: str) -> dict[tuple[str, ...], list[str]]:
    """The jobs in which each model has the highest rating, or shares it, by model."""
    found: dict[tuple[str, ...], list[str]] = {}
    for job, some in _by(rows, "job").items():
        if rated := {
            row["model"]: row[column] for row in some if row[column] is not None
        }:
            best = tuple(
                model for model in rated if rated[model] == max(rated.values())
            )
            found.setdefault(best, []).append(job)
    return found


def _sentence(
    method: str, leaders: Mapping[tuple[str, ...], Sequence[str]]
) -> Iterator[object]:
    if not leaders:
        return
    yield f"By {method}, "
    for n, (models, jobs) in enumerate(leaders.items()):
        yield "; " if n else ""
        yield tag("b", names(models))
        verb = "leads" if len(models) == 1 else "share the lead"
        yield f" {verb} in {'every finished job' if len(leaders) == 1 else _of_jobs(jobs)}"
    yield ". "


def _of_jobs(jobs: Sequence[str]) -> str:
    return f"job{'s' if len(jobs) > 1 else ''} {names(jobs)}"


def _jobs(jobs: Sequence[Job], choices: _Choices) -> Iterator[Markup]:
    some_failed = any(job["error"] for job in jobs)
    head = [
        "!job",
        *choices.head,
        "<state",
        "paid",
        "asked",
        "from the store",
        *([">why"] if some_failed else []),
    ]
    rows = [
        [
            *(_link(job), *choices.cells(job["job"]), _state(job), *_spent(job)),
            *([job["error"] or ""] if some_failed else []),
        ]
        for job in jobs
    ]
    yield table("Jobs", head, rows)
    yield tag("p", _OF_JOBS, class_="note")


def _link(job: Job) -> Markup | str:
    return (
        tag("a", job["job"], href=f"{job['job']}/report.html")
        if job["finished"]
        else str(job["job"])
    )


def _state(job: Job) -> Markup:
    if job["finished"]:
        return tag("span", "finished", class_="yes")
    return tag("span", "failed" if job["error"] else "stopped", class_="no")


def _spent(job: Job) -> list[str]:
    """Paid by all attempts of the job, and what the last one asked."""
    usage, whole = job["usage"], added_up([job["usage"], job["paid_before"]])
    asked = (
        [f"{usage[name]:,}" for name in ("judge_calls", "verdicts_stored")]
        if usage
        else [NONE] * 2
    )
    return [f"${paid(whole):,.2f}" if whole else NONE, *asked]


def _ratings(rows: Sequence[Row], choices: _Choices) -> Iterator[Markup]:
    for dimension, some in _by(rows, "dimension").items():
        every = _best_first(some)
        models = every[:_MAX_MODELS]
        yield tag("h3", dimension)
        if len(every) > len(models):
            yield tag(
                "p",
                f"The {len(models)} best of {len(every)}; all are in sweep_summary.csv.",
                class_="note",
            )
        if any(row["rating"] is not None for row in some):
            yield tag(
                "h4", f"Elo{_at(some)}, and below it the ordering error (Monte Carlo)"
            )
            yield _elo(some, models, choices)
        if any(
            row["bradley_terry"] is not None or row["bradley_terry_flag"]
            for row in some
        ):
            yield tag("h4", "Bradley-Terry, and below it its 95 % interval")
            yield _bradley_terry(some, models, choices)
    if rows:
        yield tag("p", _OF_RATINGS, class_="note")


def _at(rows: Sequence[Row]) -> str:
    """The K of all jobs, if it is one; else each job has its own among what was swept."""
    ks = {row["k"] for row in rows}
    return f" at K = {ks.pop():g}" if len(ks) == 1 else ""


def _elo(rows: Sequence[Row], models: Sequence[str], choices: _Choices) -> Markup:
    head = [
        "!job",
        *choices.head,
        "converged",
        *(tag("bdi", model) for model in models),
    ]
    lines = [
        [
            job,
            *choices.cells(job),
            _converged(some[0]),
            *_cells(some, models, _elo_cell),
        ]
        for job, some in _by(rows, "job").items()
    ]
    return table("Elo", head, lines)


def _bradley_terry(
    rows: Sequence[Row], models: Sequence[str], choices: _Choices
) -> Markup:
    """Jobs with the same ratings, such as those that differ in K alone, share a line."""
    head = ["!jobs", *choices.head, *(tag("bdi", model) for model in models)]
    sharing: dict[tuple[Markup | str, ...], list[str]] = {}
    for job, some in _by(rows, "job").items():
        sharing.setdefault(tuple(_cells(some, models, _bradley_terry_cell)), []).append(
            job
        )
    lines = [
        [_listed(jobs), *choices.cells(*jobs), *cells]
        for cells, jobs in sharing.items()
    ]
    return table("Bradley-Terry", head, lines)


def _listed(jobs: Sequence[str]) -> str:
    in_a_row = [int(job) for job in jobs] == list(
        range(int(jobs[0]), int(jobs[0]) + len(jobs))
    )
    return f"{jobs[0]} to {jobs[-1]}" if in_a_row and len(jobs) > 3 else ", ".join(jobs)


def _cells(
    rows: Sequence[Row], models: Sequence[str], cell: Callable[[Row], Markup | str]
) -> list[Markup | str]:
    of_model = {row["model"]: row for row in rows}
    return [cell(of_model[model]) if model in of_model else NONE for model in models]


def _elo_cell(row: Row) -> Markup | str:
    if row["rating"] is None:
        return NONE
    error = (
        f"{row['ordering_error']:.2f}"
        if (row["ordering_error"] or 0.0) > ROUNDING
        else NONE
    )
    return join([maybe(row["rating"]), tag("small", error)])


def _bradley_terry_cell(row: Row) -> Markup | str:
    if row["bradley_terry"] is None:
        return row["bradley_terry_flag"] or NONE
    interval = between(row["bradley_terry_ci_low"], row["bradley_terry_ci_high"])
    return join([maybe(row["bradley_terry"]), tag("small", interval)])


def _converged(row: Row) -> Markup | str:
    if row["convergence"] is None:
        return NONE
    return tag(
        "span",
        percent(converged(row["convergence"])),
        class_="no" if _is_short(row) else "",
    )


def _is_short(row: Row) -> bool:
    return row["convergence"] is not None and row["convergence"] < CONVERGED


def _best_first(rows: Sequence[Row]) -> list[str]:
    """Models by their mean rating over the jobs: Elo's, or Bradley-Terry's where no match was played."""
    column = (
        "rating" if any(row["rating"] is not None for row in rows) else "bradley_terry"
    )
    found = {}
    for model, some in _by(rows, "model").items():
        known = [row[column] for row in some if row[column] is not None]
        found[model] = sum(known) / len(known) if known else float("-inf")
    return sorted(found, key=lambda model: (-found[model], model))


def _by(rows: Sequence[Row], column: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[column], []).append(row)
    return found


def _making(jobs: Sequence[Job], choices: _Choices) -> Iterator[Markup]:
    started, finished = (
        [job[name] for job in jobs if job[name]]
        for name in ("started_at", "finished_at")
    )
    rows: dict[str, object] = {
        "Started": when(min(started)) if started else "",
        "Finished": when(max(finished)) if finished else "",
        "Swept": codes(
            f"{name}={choices.values(name).replace(', ', ',')}"
            for name in choices.swept
        ),
        "In every job": codes(choices.fixed) or "all other settings as they ship",
    }
    yield listed(rows)
    yield tag(
        "p",
        "What a job ran with, to the version of every package, is in its own report.",
        class_="note",
    )
