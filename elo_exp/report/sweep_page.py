"""report.html of a sweep: its jobs side by side, also of those that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.figures.style import grouped
from elo_exp.records import Plot
from elo_exp.report.page import cost, render
from elo_exp.store.usage import added_up, paid

Job = Mapping[str, Any]  # an entry of sweep_jobs.json
Row = Mapping[str, Any]  # of sweep_summary.csv

MAX_MODELS = 8  # columns of a table of ratings; all are in sweep_summary.csv


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """The entrants with the highest rating, and the jobs in which they have it."""

    models: tuple[str, ...]
    jobs: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """What the jobs conclude in one dimension; ratings of a job by model."""

    name: str
    leads: Mapping[str, Sequence[Lead]]  # by method
    gaps: Sequence[float]  # of the first two in each job, by the primary method
    not_converged: Sequence[str]  # jobs
    models: Sequence[str]  # best first
    k: float | None  # None where the jobs differ
    elo: Mapping[str, Mapping[str, Row]]  # by job
    bradley_terry: Sequence[tuple[Sequence[str], Mapping[str, Row]]]

    @property
    def is_settled(self) -> bool:
        """Whether every job and method names the same leader."""
        return (
            len({lead.models for leads in self.leads.values() for lead in leads}) == 1
        )


def page(
    title: str,
    jobs: Sequence[Job],
    rows: Sequence[Row],
    judges: Sequence[Row],
    plots: Sequence[Plot],
) -> str:
    """Return the whole report as one HTML file, which links to those of the jobs."""
    choices = {job["job"]: _choices(job) for job in jobs}
    known = [chosen for chosen in choices.values() if chosen]
    values = {
        name: list(dict.fromkeys(chosen[name] for chosen in known if name in chosen))
        for name in dict.fromkeys(name for chosen in known for name in chosen)
    }
    swept = {
        name: found
        for name, found in values.items()
        if len(found) > 1 or any(name not in chosen for chosen in known)
    }
    by_job = {job["job"]: added_up([job["usage"], job["paid_before"]]) for job in jobs}
    return render(
        "sweep",
        plots,
        title=title,
        jobs=jobs,
        judges=judges,
        paid_by={job: paid(bill) for job, bill in by_job.items() if bill},
        choices=choices,
        swept=swept,
        fixed=[
            f"{n}={v}" for n, found in values.items() if n not in swept for v in found
        ],
        dimensions=[_dimension(*item) for item in grouped(rows, "dimension").items()],
        max_models=MAX_MODELS,
        **cost(
            added_up(job["usage"] for job in jobs),
            added_up(job["paid_before"] for job in jobs),
        ),
    )


def _choices(job: Job) -> dict[str, str]:
    """The settings chosen for a job; none of one that could not even be composed."""
    parts = (override.partition("=") for override in job["overrides"] or ())
    return {name: value for name, _, value in parts}


def _dimension(name: str, rows: Sequence[Row]) -> Dimension:
    by_job = grouped(rows, "job")
    fitted = "bradley_terry"
    if not any(row[fitted] is not None or row["bradley_terry_flag"] for row in rows):
        fitted = "rating"
    leads = {"Elo": _leads(by_job, "rating"), "Bradley-Terry": _leads(by_job, fitted)}
    if fitted == "rating":
        del leads["Bradley-Terry"]
    ks = {row["k"] for row in rows}
    is_short = {
        job: any(row["converged"] is False for row in some)
        for job, some in by_job.items()
    }
    of_model = {
        job: {row["model"]: row for row in some} for job, some in by_job.items()
    }
    has_elo = any(row["rating"] is not None for row in rows)
    return Dimension(
        name=name,
        leads={method: some for method, some in leads.items() if some},
        gaps=_gaps(by_job, fitted),
        not_converged=[job for job, short in is_short.items() if short],
        models=_best_first(rows),
        k=ks.pop() if len(ks) == 1 else None,
        elo=of_model if has_elo else {},
        bradley_terry=_same_ratings(of_model) if fitted == "bradley_terry" else [],
    )


def _leads(by_job: Mapping[str, Sequence[Row]], column: str) -> list[Lead]:
    found: dict[tuple[str, ...], list[str]] = {}
    for job, rows in by_job.items():
        rated = {r["model"]: r[column] for r in rows if r[column] is not None}
        if rated:
            most = max(rated.values())
            best = tuple(model for model, points in rated.items() if points == most)
            found.setdefault(best, []).append(job)
    return [Lead(models=models, jobs=jobs) for models, jobs in found.items()]


def _gaps(by_job: Mapping[str, Sequence[Row]], column: str) -> list[float]:
    found = []
    for rows in by_job.values():
        points = sorted(row[column] for row in rows if row[column] is not None)
        if len(points) > 1:
            found.append(points[-1] - points[-2])
    return found


def _same_ratings(
    of_model: Mapping[str, Mapping[str, Row]],
) -> list[tuple[list[str], Mapping[str, Row]]]:
    """Jobs with the same Bradley-Terry ratings, such as those that differ in K alone, together."""
    names = ("bradley_terry", "bradley_terry_ci_low", "bradley_terry_ci_high")
    found: dict[Any, list[str]] = {}
    for job, rows in of_model.items():
        ratings = [(model, *(row[n] for n in names)) for model, row in rows.items()]
        found.setdefault(tuple(ratings), []).append(job)
    return [(jobs, of_model[jobs[0]]) for jobs in found.values()]


def _best_first(rows: Sequence[Row]) -> list[str]:
    """Models by their mean rating over the jobs: Elo's, or Bradley-Terry's without a match."""
    has_elo = any(row["rating"] is not None for row in rows)
    column = "rating" if has_elo else "bradley_terry"
    mean = {}
    for model, some in grouped(rows, "model").items():
        points = [row[column] for row in some if row[column] is not None]
        mean[model] = sum(points) / len(points) if points else float("-inf")
    return sorted(mean, key=lambda model: (-mean[model], model))
