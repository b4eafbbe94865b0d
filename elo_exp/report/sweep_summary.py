"""What the jobs of a sweep left in their folders, together; also where some did not finish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from elo_exp.files import write_csv, write_json, write_whole
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.records import Plot
from elo_exp.report import sweep_page
from elo_exp.report.artifacts import write_plots
from elo_exp.runs import FinishedRun

Row = Mapping[str, Any]

_AXES = (
    "elo.k=",
    "elo.n_perms=",
)  # columns of their own; what else was swept is `setting`
_MAX_ROWS = 30  # jobs on the console; all are in sweep_summary.csv
_NO_BATTLES = Battles.from_rows([])
_UNRATED = Rating(model="", rating=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """What the finished jobs concluded, and the lines that the user is told of all jobs."""

    config: Mapping[str, Any]  # of the last job that finished; empty where none did
    rows: Sequence[Row]
    plots: Sequence[Plot]
    n_finished: int
    n_jobs: int
    lines: Sequence[str]


def write(folder: Path) -> SweepSummary | None:
    """Write report.html, sweep_summary.csv, sweep_judges.csv, sweep_jobs.json and figures/.

    Returns None where no job ran, as where all of them only planned.
    """
    from elo_exp.figures import sweep

    folders = runs.sweep_jobs(folder)
    if not any((job / "manifest.json").exists() for job in folders):
        return None
    status = [_status(job) for job in folders]
    finished = [entry["job"] for entry in status if entry["finished"]]
    config = runs.manifest_if_any(folder / finished[-1])["config"] if finished else {}
    rated = runs.read([str(folder)]).runs
    rows = _rating_rows(rated)
    judges = _judge_rows(rated, rows)
    pair = config.get("sweep_pair") or ()
    known = {row["model"] for row in rows if row["rating"] is not None}
    unknown = [model for model in pair if model not in known]
    plots = sweep.plots(rows, None if unknown else pair)
    write_json(folder / "sweep_jobs.json", status)
    for name, table in (("sweep_summary", rows), ("sweep_judges", judges)):
        if table:
            write_csv(folder / f"{name}.csv", table)
    write_plots(folder, plots)
    page = sweep_page.page(folder.name, status, rows, judges, plots)
    write_whole(folder / "report.html", page)
    lines = [
        *_table(rows),
        *(
            f"sweep_pair: no job rates {model}, so the two best are drawn"
            for model in unknown
        ),
        *(
            f"job {entry['job']} failed: {entry['error'] or 'it was stopped'}"
            for entry in status
            if not entry["finished"]
        ),
        f"sweep: {len(finished)} of {len(folders)} jobs finished",
    ]
    return SweepSummary(
        config=config,
        rows=rows,
        plots=plots,
        n_finished=len(finished),
        n_jobs=len(folders),
        lines=lines,
    )


def _status(job: Path) -> dict[str, Any]:
    """What became of a job: an entry of sweep_jobs.json."""
    found, overrides = runs.manifest_if_any(job), job / ".hydra" / "overrides.yaml"
    words = overrides.read_text(encoding="utf-8") if overrides.exists() else "null"
    names = ("error", "started_at", "finished_at", "usage", "paid_before")
    return {
        "job": job.name,
        "finished": bool(found.get("finished_at")),
        "overrides": yaml.safe_load(words),
        **{name: found.get(name) for name in names},
    }


# Rows


def _rating_rows(jobs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """A row for each job, dimension and model, as in sweep_summary.csv."""
    given = [set(job.manifest["overrides"]) for job in jobs]
    fixed = set.intersection(*given) if given else set()
    rows = []
    for job in jobs:
        manifest, overrides = job.manifest, job.manifest["overrides"]
        swept = [o for o in overrides if o not in fixed and not o.startswith(_AXES)]
        for dimension in job.dimensions:
            elo = job.board("elo", dimension)
            fitted = job.board("bradley_terry", dimension)
            parameters = job.parameters("elo", dimension)
            for model in manifest.get("entrants", sorted({*elo, *fitted})):
                if model not in elo and model not in fitted:
                    continue
                rating, by_fit = elo.get(model, _UNRATED), fitted.get(model, _UNRATED)
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
                        "rating": rating.rating,
                        "ordering_error": rating.ordering_error,
                        "convergence": parameters.get("convergence"),
                        "converged": parameters.get("converged"),
                        "bradley_terry": by_fit.rating,
                        "bradley_terry_ci_low": by_fit.ci_low,
                        "bradley_terry_ci_high": by_fit.ci_high,
                        "bradley_terry_flag": by_fit.flag,
                    }
                )
    return rows


def _judge_rows(
    jobs: Sequence[FinishedRun], rows: Sequence[Row]
) -> list[dict[str, Any]]:
    """How every two judges agree, by dimension: each judge by the first job that asked it.

    On the comparisons that both made (kappa), and on the order of the entrants (Spearman, of
    Bradley-Terry).
    """
    first: dict[str, FinishedRun] = {}
    for job in jobs:
        if (judge := job.manifest.get("judge_model")) is not None:
            first.setdefault(judge, job)
    if len(first) < 2:
        return []
    battles = {judge: job.battles() for judge, job in first.items()}
    found: list[dict[str, Any]] = []
    for dimension in dict.fromkeys(row["dimension"] for row in rows):
        for names in combinations(first, 2):
            sides = [battles[judge].get(dimension, _NO_BATTLES) for judge in names]
            kappa = agreement.kappa(*sides, names=names, dimension=dimension)
            boards = [_board(first[judge], dimension) for judge in names]
            ranks = agreement.rank_correlation(
                *boards, names=names, dimension=dimension
            )
            found.append(
                {**kappa.to_dict(), "n_models": ranks.n_models, "rho": ranks.rho}
            )
    return found


def _board(job: FinishedRun, dimension: str) -> Leaderboard:
    fitted = job.board("bradley_terry", dimension)
    ratings = [rating.rating for rating in fitted.values()]
    return Leaderboard(
        label="Bradley-Terry",
        interval=None,
        models=tuple(fitted),
        rating=np.array(ratings, dtype=np.float64),
    )


# The console


def _table(rows: Sequence[Row]) -> Iterator[str]:
    """Who leads in each job, as lines of text."""
    if not rows:
        return
    dimensions = list(dict.fromkeys(row["dimension"] for row in rows))
    setting = ["setting"] if any(row["setting"] for row in rows) else []
    jobs: dict[str, list[Row]] = {}
    for row in rows:
        jobs.setdefault(row["job"], []).append(row)
    lines = [
        [
            *(job, f"{some[0]['k']:g}", f"{some[0]['n_perms']:,}"),
            *(some[0][name] for name in setting),
            *(
                _leader([row for row in some if row["dimension"] == dimension])
                for dimension in dimensions
            ),
        ]
        for job, some in jobs.items()
    ]
    head = ["job", "K", "permutations", *setting, *dimensions]
    yield "Who leads by Elo, and by how much"
    yield text_table(head, lines[:_MAX_ROWS], text=[*setting, *dimensions])
    if len(jobs) > _MAX_ROWS:
        yield f"  ... and {len(jobs) - _MAX_ROWS} more in sweep_summary.csv"


def _leader(rows: Sequence[Row]) -> str:
    rated = [row for row in rows if row["rating"] is not None]
    best = sorted(rated, key=lambda row: -row["rating"])
    if len(best) < 2:
        return best[0]["model"] if best else ""
    return f"{best[0]['model']} +{best[0]['rating'] - best[1]['rating']:.0f}"
