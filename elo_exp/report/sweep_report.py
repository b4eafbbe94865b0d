"""The report of a sweep, also if some jobs did not finish: files, page, figures, console text."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.analysis import agreement
from elo_exp.analysis.conclusions.sweep_conclusion import share_with_same_leader
from elo_exp.analysis.elo_order_effects import scatter_over_error
from elo_exp.data.battles import Battles
from elo_exp.figures.style import grouped
from elo_exp.files import write_csv, write_json, write_whole
from elo_exp.formatting import shorten_override
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.report import provenance, sweep_numbers, sweep_page
from elo_exp.report.artifacts import write_plots
from elo_exp.report.page import render_document
from elo_exp.report.sweep_page import SweepResult
from elo_exp.runs.reading import FinishedRun, manifest_if_any, read_runs, sweep_jobs
from elo_exp.runs.sweep_record import JobSettings
from elo_exp.store.usage import sum_usages, total_dollars
from elo_exp.trackers import Lines, Value

Row = Mapping[str, Any]

# These have columns of their own; what else was swept is `setting`
_COLUMN_OVERRIDES = ("elo.k=", "elo.n_perms=")
_JOB_FIELDS = (
    *("overrides", "error", "started_at", "finished_at"),
    *("usage", "paid_before"),
)
_NO_BATTLES = Battles.from_rows([])


def write_sweep_report(
    folder: Path,
) -> tuple[str, Mapping[str, Any], Mapping[str, Value]] | None:
    """Write report.html, sweep_summary.csv, sweep_numbers.csv, sweep_conclusions.json,
    sweep_judges.csv, sweep_jobs.json and figures/.

    Returns the text for the console, the configuration of the last job that finished, empty where
    none did, and the metrics for the tracker; None where no job ran, as where all of them only
    planned.
    """
    from elo_exp.figures import sweep_figures

    jobs, config = list[dict[str, Any]](), dict[str, Any]()
    for path in sweep_jobs(folder):
        manifest = manifest_if_any(path)
        job = {name: manifest.get(name) for name in _JOB_FIELDS}
        bill = sum_usages([job["usage"], job["paid_before"]])
        jobs.append(
            {"job": path.name, "finished": bool(job["finished_at"])}
            | job
            | {"dollars": total_dollars(bill) if bill else None}
        )
        config = manifest.get("config", {}) if job["finished_at"] else config
    if all(job["overrides"] is None for job in jobs):
        return None
    finished_runs, _ = read_runs([str(folder)], with_oracle=True)
    rows, estimates = _list_rows(finished_runs)
    judges = _compare_judges(finished_runs)
    numbers = sweep_numbers.number_rows(finished_runs, _list_settings(finished_runs))
    elo_rows = [{**row, "rating": row["elo"]} for row in rows if row["elo"] is not None]
    pair = config.get("sweep_pair") or ()
    unknown = sorted(set(pair) - {row["model"] for row in elo_rows})
    plots = sweep_figures.plots(elo_rows, None if unknown else pair)
    write_json(folder / "sweep_jobs.json", jobs)
    summary = rows or estimates
    tables: dict[str, Sequence[Row]] = {
        "sweep_summary": summary,
        "sweep_numbers": numbers,
        "sweep_judges": judges,
    }
    for name, table in tables.items():
        if table:
            write_csv(folder / f"{name}.csv", table)
    write_plots(folder, plots)
    conclusions = {job.folder.name: job.conclusions for job in finished_runs}
    result = sweep_page.conclude_sweep(
        jobs,
        rows,
        judges,
        estimates,
        conclusions,
        numbers,
        _measure_seed_scatter(jobs, elo_rows),
    )
    conclusion_rows = {
        dimension: {**conclusion.to_dict(), "sentence": sentence}
        for conclusion, (dimension, sentence) in zip(
            result.conclusions, result.sentences.items(), strict=True
        )
    }
    if conclusion_rows:
        write_json(folder / "sweep_conclusions.json", conclusion_rows)
    cost = provenance.list_bill_blocks(
        sum_usages(job["usage"] for job in jobs),
        sum_usages(job["paid_before"] for job in jobs),
    )
    page = render_document(folder.name, sweep_page.build_document(result, cost), plots)
    write_whole(folder / "report.html", page)
    metrics: dict[str, Value] = {
        "sweep/jobs": len(jobs),
        "sweep/finished": sum(job["finished"] for job in jobs),
        "sweep": summary,
        **({"sweep_numbers": numbers} if numbers else {}),
        **sweep_numbers.metrics(numbers),
        **{
            f"sweep/{conclusion.scope.dimension}/same_first": share
            for conclusion in result.conclusions
            if (share := conclusion.share_with_same_leader) is not None
        },
        **(
            {}
            if (has_same_leader := share_with_same_leader(result.conclusions)) is None
            else {"sweep/same_leader": has_same_leader}
        ),
        **_list_agreement_metrics(result),
        **{f"seeds/{d}/sd_over_error": ratio for d, ratio in result.seeds.items()},
        **{
            f"judges/{row['dimension']}/{row['first']}-{row['second']}/{name}": row[
                name
            ]
            for row in judges
            for name in ("kappa", "rho")
            if row[name] is not None
        },
        **{
            f"conclusion/{dimension}/{name}": row[name]
            for dimension, row in conclusion_rows.items()
            for name in ("state", "sentence")
        },
        **_draw_charts(elo_rows),
        **{f"figures/{plot.name}": plot for plot in plots},
    }
    return sweep_page.format_console(result, unknown), config, metrics


def _list_rows(
    jobs: Sequence[FinishedRun],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a row for each job, dimension and model, and of oracle runs one for each job and policy."""
    settings = _list_settings(jobs)
    rows, estimates = [], []
    for job in jobs:
        job_columns = {"job": job.folder.name, "setting": settings[job.folder.name]}
        estimates += [{**job_columns, **row} for row in job.headlines().values()]
        for dimension in job.boards:
            method = job.primary_method(dimension)
            primary = job.stored_board(method, dimension)
            parameters = job.stored_board("elo", dimension).get("parameters") or {}
            board, elo = job.board(method, dimension), job.board("elo", dimension)
            limits = {
                row["model"]: row["rating"]
                for row in job.stored_board("elo", dimension).get("limit", ())
            }
            for model in {**board, **elo}:
                rating = board.get(model, Rating(model=model, rating=None))
                elo_rating = elo.get(model)
                has_played = elo_rating is not None and elo_rating.flag != "no match"
                rows.append(
                    {
                        **job_columns,
                        "judge": job.manifest.get("judge_model"),
                        "dimension": dimension,
                        "k": job.manifest["config"]["elo"]["k"],
                        "n_perms": job.manifest.get("n_perms"),
                        "method": primary.get("label", method),
                        "interval": primary.get("interval"),
                        "unit": primary.get("unit", "points"),
                        **rating.to_dict(),
                        "state": job.conclusions.get(dimension, {}).get("state"),
                        "elo": elo_rating.rating if elo_rating and has_played else None,
                        "ordering_error": elo_rating and elo_rating.ordering_error,
                        "elo_limit": limits.get(model) if has_played else None,
                        "convergence": parameters.get("convergence"),
                        "converged": parameters.get("converged"),
                    }
                )
    return rows, estimates


def _list_settings(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return by job the settings that were swept, without K and the number of permutations."""
    job_overrides = [set(job.manifest["overrides"]) for job in jobs]
    fixed = set.intersection(*job_overrides) if job_overrides else set()
    return {
        job.folder.name: " ".join(
            shorten_override(override)
            for override in job.manifest["overrides"]
            if override not in fixed and not override.startswith(_COLUMN_OVERRIDES)
        )
        for job in jobs
    }


def _measure_seed_scatter(jobs: Sequence[Row], rows: Sequence[Row]) -> dict[str, float]:
    """Return by dimension the scatter of Elo over seeds, divided by its random error; {} unless only seeds were swept.

    rows  of sweep_summary.csv, with Elo as the rating
    """
    if [*JobSettings(jobs).swept] != ["elo.seed"]:
        return {}
    ratio_by_dimension = {}
    for dimension, dimension_rows in grouped(rows, "dimension").items():
        by_job = [
            {row["model"]: row for row in job_rows}
            for job_rows in grouped(dimension_rows, "job").values()
        ]
        models = [m for m in by_job[0] if all(m in job_rows for job_rows in by_job)]
        ratings, errors = (
            np.array(
                [[job_rows[m][name] for m in models] for job_rows in by_job],
                dtype=float,
            )
            for name in ("rating", "ordering_error")
        )
        if (ratio := scatter_over_error(ratings, errors)) is not None:
            ratio_by_dimension[dimension] = ratio
    return ratio_by_dimension


def _list_agreement_metrics(sweep: SweepResult) -> dict[str, float]:
    """Return by dimension whether all modes have the same leader (1 or 0); {} unless modes were swept."""
    if "mode" not in sweep.settings.swept:
        return {}
    return {
        f"agree/{conclusion.scope.dimension}": float(conclusion.state != "differs")
        for conclusion in sweep.conclusions
        if conclusion.state in ("differs", "ahead", "leads")
    }


def _compare_judges(jobs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """Compare every two judges, each by the first job that asked it, by dimension.

    On the comparisons that both made (kappa), and on the order of the entrants (Spearman).
    """
    first_job_by_judge: dict[str, FinishedRun] = {}
    for job in jobs:
        if (judge := job.manifest.get("judge_model")) is not None:
            first_job_by_judge.setdefault(judge, job)
    rows: list[dict[str, Any]] = []
    if len(first_job_by_judge) < 2:
        return rows
    battles = {judge: job.battles() for judge, job in first_job_by_judge.items()}
    for dimension in dict.fromkeys(
        d for by_dimension in battles.values() for d in by_dimension
    ):
        for pair in combinations(battles, 2):
            sides = [battles[judge].get(dimension, _NO_BATTLES) for judge in pair]
            boards = [
                _make_board(first_job_by_judge[judge], dimension) for judge in pair
            ]
            kappa = agreement.kappa(*sides, names=pair, dimension=dimension)
            ranks = agreement.rank_correlation(*boards, names=pair, dimension=dimension)
            rows.append({**kappa, **ranks})
    return rows


def _make_board(job: FinishedRun, dimension: str) -> Leaderboard:
    board = job.board(job.primary_method(dimension), dimension)
    ratings = np.array([row.rating for row in board.values()], dtype=np.float64)
    return Leaderboard(label="", interval=None, models=tuple(board), rating=ratings)


def _draw_charts(rows: Sequence[Row]) -> dict[str, Lines]:
    """Return Elo by K for each dimension with the limit of each entrant, if several K were swept."""
    charts = {}
    for dimension, dimension_rows in grouped(rows, "dimension").items():
        by_line = grouped(dimension_rows, "model", "n_perms", "setting")
        lines = {
            f"{model} {n_perms:,} {setting}".rstrip(): sorted(
                (row["k"], row["rating"]) for row in line_rows
            )
            for (model, n_perms, setting), line_rows in by_line.items()
        }
        ends = [end(row["k"] for row in dimension_rows) for end in (min, max)]
        for (model, setting), line_rows in grouped(
            dimension_rows, "model", "setting"
        ).items():
            if (limit := line_rows[0]["elo_limit"]) is not None:
                name = " ".join(filter(None, (model, setting)))
                lines[f"{name}, limit"] = [(k, limit) for k in ends]
        if ends[0] < ends[1]:
            title = f"{dimension}: Elo by K"
            charts[f"k_sensitivity/{dimension}"] = Lines(
                title=title, x_label="K", lines=lines
            )
    return charts
