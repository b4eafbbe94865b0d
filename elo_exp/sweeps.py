"""The multirun around the jobs: its folder, which jobs of it are finished, and its summary, whatever became of them."""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from elo_exp import __version__, composing, config, errors
from elo_exp.files import write_whole
from elo_exp.manifest import input_hashes
from elo_exp.models import checkpoints
from elo_exp.report import sweep_jobs, sweep_summary
from elo_exp.report.sweep_summary import SweepSummary
from elo_exp.results import RunInfo
from elo_exp.store import processes

logger = logging.getLogger(__name__)

_UNFINISHED = ".unfinished"  # in a sweep's folder until its last job has finished: the command, locked while it runs
_NO_MATTER = ("resume=", "hydra.sweep.dir=")  # overrides that leave a command the same


class SweepWatch(Callback):
    """Remembers a multirun's folder. Hydra leaves out its own end-of-multirun event when a job fails."""

    folder: ClassVar[Path | None] = None
    lock: ClassVar[int | None] = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        SweepWatch.folder = folder = Path(config.hydra.sweep.dir)
        processes.export_lifeline()
        if SweepWatch.lock is None:
            command = _command(config.hydra.overrides, config.hydra.sweeper)
            write_whole(folder / _UNFINISHED, json.dumps(command))
            SweepWatch.lock = _locked(folder / _UNFINISHED, command)
        composing.compose_once()

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        (Path(config.hydra.sweep.dir) / _UNFINISHED).unlink(missing_ok=True)

    @classmethod
    def finish(cls) -> None:
        """Write the summary of the multirun that ran in this process, if one did."""
        if cls.folder is not None and cls.folder.is_dir():
            folder, cls.folder = cls.folder, None
            if summary := sweep_summary.write(folder):
                more = (
                    ["the same command goes on: it runs what did not finish"]
                    if (folder / _UNFINISHED).exists()
                    else []
                )
                print(*summary.lines, *more, folder.resolve(), sep="\n")
                _track(folder, summary)
            elif {path.name for path in folder.iterdir()} == {_UNFINISHED, "multirun.yaml"}:
                shutil.rmtree(
                    folder, ignore_errors=True
                )  # of a sweep that was refused before its first job
        if cls.lock is not None:
            os.close(cls.lock)
            cls.lock = None


def _track(folder: Path, summary: SweepSummary) -> None:
    """One more run in the group of the jobs: their table, and the figures of all of them."""
    if not summary.config:
        return
    info = RunInfo(
        run_dir=folder,
        name="sweep-summary",
        group=folder.name,
        job_type="sweep-summary",
        config=summary.config,
    )
    with config.build_tracker(summary.config["tracker"]).open(info) as tracked:
        tracked.log_summary({"sweep/jobs": summary.n_jobs, "sweep/finished": summary.n_finished})
        tracked.log_table("sweep", summary.rows)
        for plot in summary.plots:
            tracked.log_plot(plot)


def place(fresh: str, resume: bool, overrides: DictConfig, sweeper: DictConfig) -> str:
    """The folder of a sweep: that of the same command's unfinished one, if nobody is at work on it, else `fresh`."""
    if not resume:
        return fresh
    command = _command(overrides, sweeper)
    marks = Path(fresh).parent.glob(f"*/{_UNFINISHED}")
    for mark in sorted(marks, key=lambda path: path.parent.name, reverse=True):
        if (lock := _locked(mark, command)) is not None:
            SweepWatch.lock = lock
            print(
                f"going on with the unfinished sweep {mark.parent}; resume=false begins a new one"
            )
            return str(mark.parent)
    return fresh


OmegaConf.register_new_resolver("sweep_folder", place, use_cache=True, replace=True)


def _command(overrides: DictConfig, sweeper: DictConfig) -> list[str]:
    """What was asked for, as far as it can change a result, in the words of the user: not all can be resolved yet."""
    params = _words(sweeper).get("params") or {}
    said = _words(overrides)
    asked = [*(f"{name}={value}" for name, value in params.items()), *said["hydra"], *said["task"]]
    return [word for word in asked if not word.startswith(_NO_MATTER)]


def _words(node: DictConfig) -> dict[str, Any]:
    content = OmegaConf.to_container(node, resolve=False)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def _locked(mark: Path, command: list[str]) -> int | None:
    """A descriptor that holds this command's mark until this process ends, however it does; None where it is of another
    command, held by another process, gone or not ours."""
    try:
        if json.loads(mark.read_text(encoding="utf-8")) != command:
            return None
        handle = os.open(mark, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def is_finished(info: RunInfo) -> bool:
    """Whether this job of a sweep has been run to its end already, with the same settings, the same bytes in the files
    that it read and in the weights of its models, and the same elo_exp."""
    found = sweep_jobs.manifest(info.run_dir)
    if not found.get("finished_at") or (info.run_dir / sweep_jobs.ERROR).exists():
        return False
    return bool(
        {**found["config"], "resume": info.config["resume"]} == json.loads(json.dumps(info.config))
        and found["versions"]["elo_exp"] == __version__
        and input_hashes(found.get("input_paths", {})) == found.get("input_hashes")
        and all(
            _are(hashes, Path(info.config["cache_dir"]))
            for hashes in found.get("weights", {}).values()
        )
    )


def _are(hashes: Mapping[str, str], cache_dir: Path) -> bool:
    """Whether files by their paths still hold what they held."""
    paths = [Path(path) for path in hashes]
    return all(path.is_file() for path in paths) and checkpoints.hashes(paths, cache_dir) == hashes


def headline(info: RunInfo) -> float:
    """Of a finished job."""
    return float(sweep_jobs.manifest(info.run_dir).get("headline", math.nan))


def note_failure(job_dir: Path, error: Exception) -> None:
    """Leave a failed job's error where the summary finds it; its own manifest may never have begun."""
    text = f"{type(error).__name__}: {error}"
    is_ours = (
        errors.explain(error) is None
    )  # a launcher brings its words here, and not where it was raised
    logger.error("job %s failed: %s", job_dir.name, text, exc_info=error if is_ours else None)
    write_whole(job_dir / sweep_jobs.ERROR, text + "\n")


def forget_failure(job_dir: Path) -> None:
    """Before a job is tried again."""
    (job_dir / sweep_jobs.ERROR).unlink(missing_ok=True)
