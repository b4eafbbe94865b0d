"""The jobs of a sweep together, also where some did not finish: files, page, figures, console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp import runs
from elo_exp.analysis import agreement
from elo_exp.console import text_table
from elo_exp.data.battles import Battles
from elo_exp.figures.style import best_first, grouped
from elo_exp.files import write_csv, write_json, write_whole
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.records import Plot
from elo_exp.report.artifacts import write_plots
from elo_exp.report.formats import NONE, names, number
from elo_exp.report.page import cost, render
from elo_exp.runs import FinishedRun
from elo_exp.store.usage import added_up, paid

Row = Mapping[str, Any]

_AXES = ("elo.k=", "elo.n_perms=")  # have columns; what else was swept is `setting`
_MAX_ROWS = 30  # jobs on the console; all are in sweep_summary.csv
_MAX_MODELS = 8  # columns of a table of ratings
_NO_BATTLES = Battles.from_rows([])
_UNRATED = Rating(model="", rating=None)
_INTERVAL = ("rating", "ci_low", "ci_high")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """What the finished jobs concluded, and the console's lines on all jobs."""

    config: Mapping[str, Any]  # of the last job that finished; empty where none did
    rows: Sequence[Row]  # of ratings
    estimates: Sequence[Row]  # of oracle runs
    plots: Sequence[Plot]
    n_finished: int
    n_jobs: int
    lines: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Who is first in a job and a dimension, and how far ahead of the second, if there is one."""

    models: tuple[str, ...]
    rating: float
    gap: float | None


def write(folder: Path) -> SweepSummary | None:
    """Write report.html, sweep_summary.csv, sweep_judges.csv, sweep_jobs.json and figures/.

    Returns None where no job ran, as where all of them only planned.
    """
    from elo_exp.figures import sweep

    folders = runs.sweep_jobs(folder)
    if not any((job / "manifest.json").exists() for job in folders):
        return None
    jobs = [_job(job) for job in folders]
    finished = [job["job"] for job in jobs if job["finished"]]
    config = runs.manifest_if_any(folder / finished[-1])["config"] if finished else {}
    read = runs.read([str(folder)], with_oracle=True).runs
    rows, judges = _rating_rows(read), _judge_rows(read)
    estimates = _estimate_rows(read)
    elo_rows = [{**row, "rating": row["elo"]} for row in rows if row["elo"] is not None]
    pair = config.get("sweep_pair") or ()
    unknown = set(pair) - {row["model"] for row in elo_rows}
    plots = sweep.plots(elo_rows, None if unknown else pair)
    write_json(folder / "sweep_jobs.json", jobs)
    summary = rows or estimates
    for name, table in (("sweep_summary", summary), ("sweep_judges", judges)):
        if table:
            write_csv(folder / f"{name}.csv", table)
    write_plots(folder, plots)
    html = page(folder.name, jobs, rows, judges, estimates, plots)
    write_whole(folder / "report.html", html)
    lines = [f"{headline(rows, estimates)}."] if estimates else _table(rows)
    for model in sorted(unknown):
        lines.append(f"sweep_pair: no job rates {model}, so the two best are drawn")
    for job in jobs:
        if not job["finished"]:
            lines.append(f"job {job['job']} failed: {job['error'] or 'it was stopped'}")
    lines.append(f"sweep: {len(finished)} of {len(jobs)} jobs finished")
    return SweepSummary(
        config=config,
        rows=rows,
        estimates=estimates,
        plots=plots,
        n_finished=len(finished),
        n_jobs=len(jobs),
        lines=lines,
    )


def _job(folder: Path) -> dict[str, Any]:
    """Return what became of a job: an entry of sweep_jobs.json."""
    found = runs.manifest_if_any(folder)
    fields = ("overrides", "error", "started_at", "finished_at", "usage", "paid_before")
    return {
        "job": folder.name,
        "finished": bool(found.get("finished_at")),
        **{name: found.get(name) for name in fields},
    }


# Rows


def _swept(jobs: Sequence[FinishedRun]) -> list[list[str]]:
    """Return the overrides of each job that not all have."""
    given = [job.manifest["overrides"] for job in jobs]
    fixed = set.intersection(*map(set, given)) if given else set()
    return [[word for word in words if word not in fixed] for words in given]


def _estimate_rows(jobs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """Return the headline of each job and policy, as in sweep_summary.csv."""
    return [
        {"job": job.folder.name, "setting": " ".join(swept), **row}
        for job, swept in zip(jobs, _swept(jobs), strict=True)
        for row in job.headlines().values()
    ]


def _rating_rows(jobs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """Return a row for each job, dimension and model, as in sweep_summary.csv."""
    rows = []
    for job, words in zip(jobs, _swept(jobs), strict=True):
        manifest, overrides = job.manifest, job.manifest["overrides"]
        swept = [word for word in words if not word.startswith(_AXES)]
        for dimension in job.dimensions:
            method = job.primary(dimension) or "elo"
            leading = job.stored(method, dimension)
            parameters = job.parameters("elo", dimension)
            board, elo = job.board(method, dimension), job.board("elo", dimension)
            for model in manifest.get("entrants", sorted({*board, *elo})):
                if model not in board and model not in elo:
                    continue
                rating, by_elo = board.get(model, _UNRATED), elo.get(model, _UNRATED)
                rows.append(
                    {
                        "job": job.folder.name,
                        "overrides": " ".join(overrides),
                        "setting": " ".join(swept),
                        "mode": manifest["mode"],
                        "judge": manifest.get("judge_model"),
                        "seed": manifest["shuffle_seed"],
                        "dimension": dimension,
                        "k": manifest["config"]["elo"]["k"],
                        "n_perms": manifest["n_perms"],
                        "model": model,
                        "method": leading.get("label", method),
                        "interval": leading.get("interval"),
                        "rating": rating.rating,
                        "ci_low": rating.ci_low,
                        "ci_high": rating.ci_high,
                        "flag": rating.flag,
                        "elo": by_elo.rating,
                        "ordering_error": by_elo.ordering_error,
                        "convergence": parameters.get("convergence"),
                        "converged": parameters.get("converged"),
                    }
                )
    return rows


def _judge_rows(jobs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """Compare every two judges, each by the first job that asked it, by dimension.

    On the comparisons that both made (kappa), and on the order of the entrants (Spearman).
    """
    first: dict[str, FinishedRun] = {}
    for job in jobs:
        if (judge := job.manifest.get("judge_model")) is not None:
            first.setdefault(judge, job)
    found: list[dict[str, Any]] = []
    if len(first) < 2:
        return found
    battles = {judge: job.battles() for judge, job in first.items()}
    for dimension in dict.fromkeys(d for own in battles.values() for d in own):
        for pair in combinations(battles, 2):
            sides = [battles[judge].get(dimension, _NO_BATTLES) for judge in pair]
            boards = [_board(first[judge], dimension) for judge in pair]
            kappa = agreement.kappa(*sides, names=pair, dimension=dimension)
            ranks = agreement.rank_correlation(*boards, names=pair, dimension=dimension)
            numbers = {"n_models": ranks.n_models, "rho": ranks.rho}
            found.append({**kappa.to_dict(), **numbers})
    return found


def _board(job: FinishedRun, dimension: str) -> Leaderboard:
    board = job.board(job.primary(dimension) or "elo", dimension)
    ratings = np.array([row.rating for row in board.values()], dtype=np.float64)
    return Leaderboard(label="", interval=None, models=tuple(board), rating=ratings)


# What the jobs conclude


def leads(rows: Sequence[Row]) -> dict[str, Lead]:
    """Return who is first in each job that rates somebody, by rows of one dimension."""
    found = {}
    for job, own in grouped(rows, "job").items():
        rated = [row for row in own if row["rating"] is not None]
        ordered = sorted(rated, key=lambda row: -row["rating"])
        if not ordered:
            continue
        best = ordered[0]["rating"]
        first = [row["model"] for row in ordered if row["rating"] == best]
        gap = best - ordered[1]["rating"] if len(ordered) > 1 else None
        found[job] = Lead(models=tuple(first), rating=best, gap=gap)
    return found


def headline(rows: Sequence[Row], estimates: Sequence[Row] = ()) -> str:
    """Return whether the jobs agree, as the first sentence of page and console."""
    if estimates:
        n_reported = sum(row["status"] == "report" for row in estimates)
        n_jobs = len(grouped(estimates, "job"))
        return f"{n_reported} of {len(estimates)} estimates of {n_jobs} jobs may be reported"
    n, rated, led = len(grouped(rows, "job")), set(), set()
    gaps, differing = [], []
    for name, own in grouped(rows, "dimension").items():
        models = set()
        for job, lead in leads(own).items():
            rated.add(job)
            if lead.gap is not None:
                led.add(job)
                gaps.append(lead.gap)
                models.add(lead.models)
        if len(models) > 1:
            differing.append(name)
    if not rated:
        return "No job gave ratings"
    if not gaps:
        return f"{len(rated)} of {n} jobs gave a rating"
    if differing:
        return f"The leader differs between jobs in {names(differing)}"
    low, high = number(min(gaps)), number(max(gaps))
    points = low if low == high else f"{low} to {high}"
    return (
        f"The leader is the same in {len(led)} of {n} jobs; the gap is {points} points"
    )


# The console


def _table(rows: Sequence[Row]) -> list[str]:
    """Return who is first in each job, as lines of text."""
    if not rows:
        return []
    dimensions = {name: leads(own) for name, own in grouped(rows, "dimension").items()}
    settings = ["setting"] if any(row["setting"] for row in rows) else []
    cells = []
    for job, (row, *_) in grouped(rows, "job").items():
        first = [_lead(found.get(job)) for found in dimensions.values()]
        axes = [job, f"{row['k']:g}", f"{row['n_perms']:,}"]
        cells.append([*axes, *(row[name] for name in settings), *first])
    head = ["job", "K", "permutations", *settings, *dimensions]
    methods = ", ".join(dict.fromkeys(row["method"] for row in rows))
    lines = [
        f"{headline(rows)}.",
        f"The first of each job by {methods}, and points ahead of the second",
        text_table(head, cells[:_MAX_ROWS], text=[*settings, *dimensions]),
    ]
    if len(cells) > _MAX_ROWS:
        lines.append(f"  ... and {len(cells) - _MAX_ROWS} more in sweep_summary.csv")
    return lines


def _lead(lead: Lead | None) -> str:
    if lead is None:
        return NONE
    gap = "" if lead.gap is None else f" ({number(lead.gap, sign=True)})"
    return f"{names(lead.models)} {number(lead.rating)}{gap}"


# The page


def page(
    title: str,
    jobs: Sequence[Row],
    rows: Sequence[Row],
    judges: Sequence[Row],
    estimates: Sequence[Row],
    plots: Sequence[Plot],
) -> str:
    """Return the whole report as one HTML file, which links to those of the jobs.

    jobs  entries of sweep_jobs.json
    """
    choices = {
        job["job"]: dict(
            word.split("=", 1) for word in job["overrides"] or () if "=" in word
        )
        for job in jobs
    }
    known = [chosen for chosen in choices.values() if chosen]
    values = {
        name: list(dict.fromkeys(chosen.get(name) for chosen in known))
        for name in dict.fromkeys(name for chosen in known for name in chosen)
    }
    bills = {job["job"]: added_up([job["usage"], job["paid_before"]]) for job in jobs}
    return render(
        "sweep",
        plots,
        title=title,
        headline=headline(rows, estimates),
        estimates=grouped(estimates, "job"),
        policies=list(grouped(estimates, "policy")),
        jobs=jobs,
        judges=judges,
        dollars_by={job: paid(bill) for job, bill in bills.items() if bill},
        choices=choices,
        swept={name: some for name, some in values.items() if len(some) > 1},
        fixed=[f"{name}={some[0]}" for name, some in values.items() if len(some) == 1],
        dimensions=[_dimension(*item) for item in grouped(rows, "dimension").items()],
        methods=list(dict.fromkeys(row["method"] for row in rows)),
        intervals=list(dict.fromkeys(filter(None, (r["interval"] for r in rows)))),
        **cost(
            added_up(job["usage"] for job in jobs),
            added_up(job["paid_before"] for job in jobs),
        ),
    )


def _dimension(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the leads, and the ratings by job and model; jobs with the same ratings as one."""
    by_job = {
        job: {row["model"]: row for row in own}
        for job, own in grouped(rows, "job").items()
    }
    same: dict[Any, list[str]] = {}
    for job, of in by_job.items():
        key = tuple(
            (model, *(row[field] for field in _INTERVAL)) for model, row in of.items()
        )
        same.setdefault(key, []).append(job)
    found = {job: own for job, own in leads(rows).items() if own.gap is not None}
    first: dict[tuple[str, ...], list[str]] = {}
    for job, lead in found.items():
        first.setdefault(lead.models, []).append(job)
    models = best_first(rows)
    return {
        "name": name,
        "leaders": first,
        "is_settled": len(first) == 1 and len(found) == len(by_job),
        "gaps": [lead.gap for lead in found.values()],
        "not_converged": [
            job
            for job, of in by_job.items()
            if any(r["converged"] is False for r in of.values())
        ],
        "models": models[:_MAX_MODELS],
        "n_models": len(models),
        "ratings": [(jobs, by_job[jobs[0]]) for jobs in same.values()],
        "elo": by_job if any(row["elo"] is not None for row in rows) else {},
    }
