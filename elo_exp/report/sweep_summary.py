"""What the jobs of a sweep say together, as files and on the console; also when some of them failed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp.files import write_csv, write_json, write_whole
from elo_exp.records import Plot
from elo_exp.report import sweep_jobs, sweep_report
from elo_exp.report.artifacts import write_plots

_MAX_ROWS = 30  # jobs on the console; all are in sweep_summary.csv


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """What the jobs that finished say, and the lines that the user is told of all of them."""

    config: Mapping[str, Any]  # of the last job that finished; empty where none did
    rows: Sequence[Mapping[str, Any]]
    plots: Sequence[Plot]
    n_finished: int
    n_jobs: int
    lines: Sequence[str]


def write(folder: Path) -> SweepSummary | None:
    """report.html, sweep_summary.csv, sweep_judges.csv, sweep_jobs.json and figures/; None where no job ran."""
    from elo_exp.figures import sweep

    jobs = sweep_jobs.folders(folder)
    if not jobs:
        return None
    status = [sweep_jobs.status(job) for job in jobs]
    finished = [
        job for job, entry in zip(jobs, status, strict=True) if entry["finished"]
    ]
    config = sweep_jobs.manifest(finished[-1])["config"] if finished else {}
    rows = sweep_jobs.rating_rows(finished)
    judges = sweep_jobs.judge_rows(finished, rows)
    pair, unknown = (
        config.get("sweep_pair"),
        _not_rated(config.get("sweep_pair") or (), rows),
    )
    plots = sweep.plots(rows, judges, None if unknown else pair)
    write_json(folder / "sweep_jobs.json", status)
    for name, table in (("sweep_summary", rows), ("sweep_judges", judges)):
        if table:
            write_csv(folder / f"{name}.csv", table)
    write_plots(folder, plots)
    write_whole(
        folder / "report.html", sweep_report.page(folder.name, status, rows, plots)
    )
    failed = [entry for entry in status if not entry["finished"]]
    lines = [
        *_table(rows),
        *(
            f"sweep_pair: no job rates {model}, so the two best are drawn"
            for model in unknown
        ),
        *(
            f"job {entry['job']} failed: {entry['error'] or 'it was stopped'}"
            for entry in failed
        ),
        f"sweep: {len(finished)} of {len(jobs)} jobs finished",
    ]
    return SweepSummary(
        config=config,
        rows=rows,
        plots=plots,
        n_finished=len(finished),
        n_jobs=len(jobs),
        lines=lines,
    )


def _not_rated(models: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    rated = {row["model"] for row in rows if row["rating"] is not None}
    return [model for model in models if model not in rated]


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Who leads in each job, as lines of text."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    if not rows:
        return
    dimensions = list(dict.fromkeys(row["dimension"] for row in rows))
    jobs: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        jobs.setdefault(row["job"], []).append(row)
    some_set = any(row["setting"] for row in rows)
    grid = Table(box=SIMPLE_HEAD)
    for column in (
        "job",
        "K",
        "match orders",
        *(["setting"] if some_set else []),
        *dimensions,
    ):
        grid.add_column(column, overflow="fold")
    for job, some in list(jobs.items())[:_MAX_ROWS]:
        leads = [
            _leader([row for row in some if row["dimension"] == dimension])
            for dimension in dimensions
        ]
        setting = [some[0]["setting"]] if some_set else []
        grid.add_row(
            job, f"{some[0]['k']:g}", f"{some[0]['n_perms']:,}", *setting, *leads
        )
    text = io.StringIO()
    Console(file=text, width=120, markup=False).print(
        "Who leads by Elo, and by how much", grid, sep="\n"
    )
    yield from (line.rstrip() for line in text.getvalue().splitlines())
    if len(jobs) > _MAX_ROWS:
        yield f"  ... and {len(jobs) - _MAX_ROWS} more in sweep_summary.csv"


def _leader(rows: Sequence[Mapping[str, Any]]) -> str:
    best = sorted(
        (row for row in rows if row["rating"] is not None),
        key=lambda row: -row["rating"],
    )
    if len(best) < 2:
        return best[0]["model"] if best else ""
    return f"{best[0]['model']} +{best[0]['rating'] - best[1]['rating']:.0f}"
