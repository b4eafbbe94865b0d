"""What the jobs of a multirun say together, written even when some of them fail."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from elo_exp.figures import plots
from elo_exp.files import write_csv, write_json, write_whole
from elo_exp.reports import sweep_report

logger = logging.getLogger(__name__)

_ERROR = "error.txt"
_AXES = ("elo.k=", "elo.n_perms=")  # the figure's own; whatever else was swept gets panels of its own


class SweepWatch(Callback):
    """Remembers a multirun's folder. Hydra leaves out its own end-of-multirun event when a job fails."""

    folder: ClassVar[Path | None] = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        SweepWatch.folder = Path(config.hydra.sweep.dir)

    @classmethod
    def finish(cls) -> None:
        """Write the summary of the multirun that ran in this process, if one did."""
        if cls.folder is not None and cls.folder.is_dir():
            folder, cls.folder = cls.folder, None
            if lines := write_summary(folder):
                print(*lines, sep="\n")


def note_failure(job_dir: Path, error: Exception) -> None:
    """Leave a failed job's error where the summary finds it; its own manifest may never have begun."""
    text = f"{type(error).__name__}: {error}"
    logger.error("job %s failed: %s", job_dir.name, text)
    write_whole(job_dir / _ERROR, text + "\n")


def write_summary(folder: Path) -> list[str]:
    """report.html, sweep_summary.csv, sweep_jobs.json and the figure of rating against K; the lines to tell the user,
    if any job ran."""
    jobs = sorted((p for p in folder.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    if not any((job / name).exists() for job in jobs for name in ("manifest.json", _ERROR)):
        return []  # nothing ran, or errands such as plan=true
    manifests: dict[Path, dict[str, Any]] = {}
    status = []
    for job in jobs:
        manifest = _read(job / "manifest.json")
        error = job / _ERROR
        finished = bool(manifest.get("finished_at")) and not error.exists()
        overrides = job / ".hydra" / "overrides.yaml"
        status.append(
            {
                "job": job.name,
                "finished": finished,
                "error": error.read_text(encoding="utf-8").strip() if error.exists() else None,
                "overrides": list(OmegaConf.load(overrides)) if overrides.exists() else None,
                "started_at": manifest.get("started_at"),
                "finished_at": manifest.get("finished_at"),
                "usage": manifest.get("usage"),
            }
        )
        if finished:
            manifests[job] = manifest
    write_json(folder / "sweep_jobs.json", status)
    fixed = set.intersection(*(set(m["overrides"]) for m in manifests.values())) if manifests else set()
    rows = [row for job, manifest in manifests.items() for row in _rows(job, manifest, fixed)]
    failed = [entry for entry in status if not entry["finished"]]
    lines = [f"job {entry['job']} failed: {entry['error'] or 'it was stopped'}" for entry in failed]
    drawn = [row for row in rows if row["rating"] is not None]
    figures = [plots.sweep_lines(drawn)] if drawn else []
    for plot in figures:
        write_whole(folder / f"{plot.name}.png", plot.png)
    if rows:
        write_csv(folder / "sweep_summary.csv", rows)
    write_whole(folder / "report.html", sweep_report.page(folder.name, status, rows, figures))
    return [*lines, f"sweep: {len(jobs) - len(failed)} of {len(jobs)} jobs finished", str(folder.resolve())]


def _rows(job: Path, manifest: Mapping[str, Any], fixed: Collection[str]) -> list[dict[str, Any]]:
    """A row for each dimension and model of a job; `setting` is what was swept besides K and n_perms."""
    swept = [o for o in manifest["overrides"] if o not in fixed and not o.startswith(_AXES)]
    rows = []
    for dimension, boards in _read(job / "ratings.json").get("dimensions", {}).items():
        elo, bradley_terry = (_ratings(boards.get(method)) for method in ("elo", "bradley_terry"))
        parameters = boards["elo"]["parameters"] if elo else {}
        for model in manifest.get("entrants", sorted({*elo, *bradley_terry})):
            rating, fitted = elo.get(model, {}), bradley_terry.get(model, {})
            if not (rating or fitted):
                continue
            rows.append(
                {
                    "job": job.name,
                    "overrides": " ".join(manifest["overrides"]),
                    "setting": " ".join(swept),
                    "dimension": dimension,
                    "k": manifest["config"]["elo"]["k"],
                    "n_perms": manifest["n_perms"],
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


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return dict(content)
