"""The jobs of a sweep together, also where some did not finish: files, page, figures, console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from elo_exp import runs
from elo_exp.analysis import agreement
from elo_exp.console import text_table
from elo_exp.data.battles import Battles
from elo_exp.figures.style import grouped
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
    """Who is first in a job and a dimension, and how far ahead of the second.

    elo_gap  of the same two by Elo
    """

    job: str
    models: tuple[str, ...]
    gap: float
    elo_gap: float | None


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
    rows, judges, estimates = (
        _rating_rows(read),
        _judge_rows(read),
        _estimate_rows(read),
    )
    elo_rows = [{**row, "rating": row["elo"]} for row in rows if row["elo"] is not None]
    pair = config.get("sweep_pair") or ()
    unknown = [
        model for model in pair if model not in {row["model"] for row in elo_rows}
    ]
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
    for model in unknown:
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
    found, overrides = (
        runs.manifest_if_any(folder),
        folder / ".hydra" / "overrides.yaml",
    )
    words = overrides.read_text(encoding="utf-8") if overrides.exists() else "null"
    fields = ("error", "started_at", "finished_at", "usage", "paid_before")
    return {
        "job": folder.name,
        "finished": bool(found.get("finished_at")),
        "overrides": yaml.safe_load(words),
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
    battles = (
        {judge: job.battles() for judge, job in first.items()} if len(first) > 1 else {}
    )
    dimensions = dict.fromkeys(d for judge in battles for d in first[judge].dimensions)
    found: list[dict[str, Any]] = []
    for dimension in dimensions:
        for pair in combinations(battles, 2):
            sides = [battles[judge].get(dimension, _NO_BATTLES) for judge in pair]
            boards = [_board(first[judge], dimension) for judge in pair]
            kappa = agreement.kappa(*sides, names=pair, dimension=dimension)
            ranks = agreement.rank_correlation(*boards, names=pair, dimension=dimension)
            found.append(
                {**kappa.to_dict(), "n_models": ranks.n_models, "rho": ranks.rho}
            )
    return found


def _board(job: FinishedRun, dimension: str) -> Leaderboard:
    board = job.board(job.primary(dimension) or "elo", dimension)
    ratings = np.array([row.rating for row in board.values()], dtype=np.float64)
    return Leaderboard(label="", interval=None, models=tuple(board), rating=ratings)


# What the jobs conclude


def leads(rows: Sequence[Row]) -> list[Lead]:
    """Return who is first in each job that rates two models or more, by rows of one dimension."""
    found = []
    for job, own in grouped(rows, "job").items():
        rated = [row for row in own if row["rating"] is not None]
        ordered = sorted(rated, key=lambda row: -row["rating"])
        if len(ordered) < 2:
            continue
        best, second = ordered[:2]
        first = [row["model"] for row in ordered if row["rating"] == best["rating"]]
        gap, elo_gap = best["rating"] - second["rating"], None
        if best["elo"] is not None and second["elo"] is not None:
            elo_gap = best["elo"] - second["elo"]
        found.append(Lead(job=job, models=tuple(first), gap=gap, elo_gap=elo_gap))
    return found


def headline(rows: Sequence[Row], estimates: Sequence[Row] = ()) -> str:
    """Return whether the jobs agree, as the first sentence of page and console."""
    if estimates:
        n_reported = sum(row["status"] == "report" for row in estimates)
        n_jobs = len(grouped(estimates, "job"))
        return f"{n_reported} of {len(estimates)} estimates of {n_jobs} jobs may be reported"
    by_dimension = {
        name: leads(own) for name, own in grouped(rows, "dimension").items()
    }
    n = len(grouped(rows, "job"))
    if not any(by_dimension.values()):
        rated = {row["job"] for row in rows if row["rating"] is not None}
        return (
            f"{len(rated)} of {n} jobs gave a rating"
            if rated
            else "No job gave ratings"
        )
    differing = [
        name
        for name, found in by_dimension.items()
        if len({lead.models for lead in found}) > 1
    ]
    if differing:
        return f"The leader differs between jobs in {names(differing)}"
    every = [lead for found in by_dimension.values() for lead in found]
    n_led, gaps = len({lead.job for lead in every}), [lead.gap for lead in every]
    sentence = f"The leader is the same in {n_led} of {n} jobs"
    low, high = number(min(gaps)), number(max(gaps))
    return f"{sentence}; the gap is {low if low == high else f'{low} to {high}'} points"


# The console


def _table(rows: Sequence[Row]) -> list[str]:
    """Return who leads in each job, as lines of text."""
    if not rows:
        return []
    by_dimension = {
        name: {lead.job: lead for lead in leads(own)}
        for name, own in grouped(rows, "dimension").items()
    }
    settings = ["setting"] if any(row["setting"] for row in rows) else []
    cells = []
    for job, own in grouped(rows, "job").items():
        row = own[0]
        ends = []
        for name, found in by_dimension.items():
            alone = [
                f"{r['model']} {number(r['rating'])}"
                for r in own
                if r["dimension"] == name and r["rating"] is not None
            ]
            ends.append(_lead(found[job]) if job in found else "".join(alone) or NONE)
        cells.append(
            [
                job,
                f"{row['k']:g}",
                f"{row['n_perms']:,}",
                *(row[s] for s in settings),
                *ends,
            ]
        )
    head = ["job", "K", "permutations", *settings, *by_dimension]
    methods = ", ".join(dict.fromkeys(row["method"] for row in rows))
    lines = [
        f"{headline(rows)}.",
        f"First of each job, and points ahead of the second by {methods} (by Elo)"
        if any(by_dimension.values())
        else f"Rating in each job: {methods}",
        text_table(head, cells[:_MAX_ROWS], text=[*settings, *by_dimension]),
    ]
    if len(cells) > _MAX_ROWS:
        lines.append(f"  ... and {len(cells) - _MAX_ROWS} more in sweep_summary.csv")
    return lines


def _lead(lead: Lead) -> str:
    elo = f" ({number(lead.elo_gap, sign=True)})" if lead.elo_gap is not None else ""
    return f"{names(lead.models)} {number(lead.gap, sign=True)}{elo}"


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
    every = dict.fromkeys(name for chosen in known for name in chosen)
    values = {
        name: list(dict.fromkeys(chosen.get(name) for chosen in known))
        for name in every
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
        intervals=list(
            dict.fromkeys(row["interval"] for row in rows if row["interval"])
        ),
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
    found = leads(rows)
    first: dict[tuple[str, ...], list[str]] = {}
    for lead in found:
        first.setdefault(lead.models, []).append(lead.job)
    mean = {}
    for model, own in grouped(rows, "model").items():
        points = [row["rating"] for row in own if row["rating"] is not None]
        mean[model] = sum(points) / len(points) if points else float("-inf")
    return {
        "name": name,
        "leaders": first,
        "is_settled": len(first) == 1 and len(found) == len(by_job),
        "gaps": [lead.gap for lead in found],
        "not_converged": [
            job
            for job, of in by_job.items()
            if any(r["converged"] is False for r in of.values())
        ],
        "models": sorted(mean, key=lambda model: (-mean[model], model))[:_MAX_MODELS],
        "n_models": len(mean),
        "ratings": [(jobs, by_job[jobs[0]]) for jobs in same.values()],
        "elo": by_job if any(row["elo"] is not None for row in rows) else {},
    }
