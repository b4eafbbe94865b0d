"""What the jobs of a sweep left in their folders, as rows; also of jobs that failed or were stopped."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from elo_exp.analysis import agreement
from elo_exp.data.battles import Battles
from elo_exp.files import read_jsonl
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle

_AXES = (
    "elo.k=",
    "elo.n_perms=",
)  # columns of their own; whatever else was swept is the setting

Row = Mapping[str, Any]


def folders(sweep: Path) -> list[Path]:
    """Of the jobs, in their order; none where nothing ran but errands such as plan=true."""
    jobs = sorted(
        (p for p in sweep.iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
    )
    return jobs if any((job / "manifest.json").exists() for job in jobs) else []


def manifest(job: Path) -> dict[str, Any]:
    """Empty where there is none that can be read."""
    return _read(job / "manifest.json")


def status(job: Path) -> dict[str, Any]:
    """What became of a job: an entry of sweep_jobs.json."""
    found, overrides = manifest(job), job / ".hydra" / "overrides.yaml"
    return {
        "job": job.name,
        "finished": bool(found.get("finished_at")),
        "error": found.get("error"),
        "overrides": yaml.safe_load(overrides.read_text(encoding="utf-8"))
        if overrides.exists()
        else None,
        "started_at": found.get("started_at"),
        "finished_at": found.get("finished_at"),
        "usage": found.get("usage"),
        "paid_before": found.get("paid_before"),
    }


def rating_rows(jobs: Sequence[Path]) -> list[dict[str, Any]]:
    """Of finished jobs: a row for each dimension and model, as in sweep_summary.csv. `setting` is what was swept
    besides K and n_perms."""
    manifests = {job: manifest(job) for job in jobs}
    fixed = (
        set.intersection(*(set(m["overrides"]) for m in manifests.values()))
        if manifests
        else set()
    )
    return [
        row for job, found in manifests.items() for row in _job_rows(job, found, fixed)
    ]


def _job_rows(
    job: Path, found: Mapping[str, Any], fixed: Collection[str]
) -> list[dict[str, Any]]:
    swept = [
        o for o in found["overrides"] if o not in fixed and not o.startswith(_AXES)
    ]
    rows = []
    for dimension, boards in _read(job / "ratings.json").get("dimensions", {}).items():
        elo, bradley_terry = (
            _ratings(boards.get(method)) for method in ("elo", "bradley_terry")
        )
        parameters = boards["elo"]["parameters"] if elo else {}
        for model in found.get("entrants", sorted({*elo, *bradley_terry})):
            rating, fitted = elo.get(model, {}), bradley_terry.get(model, {})
            if not (rating or fitted):
                continue
            rows.append(
                {
                    "job": job.name,
                    "overrides": " ".join(found["overrides"]),
                    "setting": " ".join(swept),
                    "mode": found["mode"],
                    "judge": found.get("judge_model"),
                    "seed": found["shuffle_seed"],
                    "dimension": dimension,
                    "k": found["config"]["elo"]["k"],
                    "n_perms": found["n_perms"],
                    "model": model,
                    "rating": rating.get("rating"),
                    "ordering_error": rating.get("ordering_error"),
                    "convergence": parameters.get("convergence"),
                    "bradley_terry": fitted.get("rating"),
                    "bradley_terry_ci_low": fitted.get("ci_low"),
                    "bradley_terry_ci_high": fitted.get("ci_high"),
                    "bradley_terry_flag": fitted.get("flag"),
                }
            )
    return rows


def _ratings(board: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    return {rating["model"]: rating for rating in board["ratings"]} if board else {}


def judge_rows(jobs: Sequence[Path], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """How every two judges of a sweep agree, by dimension: on the comparisons that both made (kappa), and on the order
    of the entrants (Spearman, of Bradley-Terry). Each judge by the first job that asked it; none where one judged all.
    """
    first = {
        row["judge"]: row["job"] for row in reversed(rows) if row["judge"] is not None
    }
    judges = dict.fromkeys(row["judge"] for row in rows if row["judge"] in first)
    if len(judges) < 2:
        return []
    heard = {
        judge: _battles(next(job for job in jobs if job.name == first[judge]))
        for judge in judges
    }
    found: list[dict[str, Any]] = []
    for dimension in dict.fromkeys(row["dimension"] for row in rows):
        for one, other in combinations(judges, 2):
            sides = [
                heard[judge].get(dimension, Battles.from_rows([]))
                for judge in (one, other)
            ]
            kappa = agreement.kappa(
                sides[0], sides[1], names=(one, other), dimension=dimension
            )
            boards = [_board(rows, first[judge], dimension) for judge in (one, other)]
            ranks = agreement.rank_correlation(
                *boards, names=(one, other), dimension=dimension
            )
            found.append(
                {**kappa.to_dict(), "n_models": ranks.n_models, "rho": ranks.rho}
            )
    return found


def _battles(job: Path) -> dict[str, Battles]:
    """The battles of a job by dimension."""
    path = job / "battles.jsonl"
    rows = (
        [Battle.from_dict(row) for _, row in read_jsonl(path)] if path.exists() else []
    )
    return Battles.from_rows(rows).by_dimension()


def _board(rows: Sequence[Row], job: str, dimension: str) -> Leaderboard:
    mine = [row for row in rows if (row["job"], row["dimension"]) == (job, dimension)]
    return Leaderboard(
        label="Bradley-Terry",
        interval=None,
        models=tuple(row["model"] for row in mine),
        rating=np.array([row["bradley_terry"] for row in mine], dtype=np.float64),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return dict(content)
