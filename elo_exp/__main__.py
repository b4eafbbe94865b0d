"""Run one experiment: compose, build, run, report.

    python -m elo_exp                                              # offline, seconds
    python -m elo_exp mode=headline judge=opus
    python -m elo_exp -m elo.k=8,16,32 elo.n_perms=100,500         # no new judge calls
    python -m elo_exp FILE ...                                     # rate result files of any program

Every choice is a file in conf/. What the experiment concluded goes to the run folder, the tracker and the console.
"""

import contextlib
import dataclasses
import io
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from elo_exp import CONF, __version__, config, sweeps
from elo_exp.arrays import known
from elo_exp.console import show
from elo_exp.experiments import Context, Report, input_files, weight_files
from elo_exp.files import write_whole
from elo_exp.progress import listening
from elo_exp.report.artifacts import write_plots
from elo_exp.runs.manifest import name_files, run_manifest
from elo_exp.store.store import Store
from elo_exp.trackers import RunInfo, tracking

logger = logging.getLogger(__name__)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def job(cfg: DictConfig) -> float:
    """One job; the headline number lets a sweeper compare jobs."""
    if not config.is_multirun():
        assert sweeps.Checks.ready is not None
        ready, context = sweeps.Checks.ready
        with sweeps.refusing():
            info = config.run_info(ready)
            report, tracked_at = run(ready, info, context)
            show(report.text, "", *_places(report, info, tracked_at))
        if report.exit_code:
            sys.exit(report.exit_code)
        return report.headline
    try:
        return sweep_job(cfg)
    except Exception as error:
        run_dir = Path(HydraConfig.get().runtime.output_dir)
        sweeps.note_failure(run_dir, config.overrides(), error)
        return math.nan


def sweep_job(cfg: DictConfig) -> float:
    """Run a job of a sweep, unless it has finished before."""
    prepared = config.prepare(cfg, config.overrides())
    info = config.run_info(prepared)
    name = info.run_dir.name
    if prepared.settings.resume and (headline := sweeps.finished(info)) is not None:
        show(f"job {name}: it has finished before, and is not run again")
        return headline
    with Store(prepared.store_path) as store:
        context = Context(
            run_dir=info.run_dir,
            store=store,
            tracker=prepared.settings.tracker,
            overrides=info.overrides,
            with_texts=bool(prepared.settings.figures),
        )
        if (text := sweeps.dry_run(prepared, context)) is not None:
            show(text)
            return math.nan
        report, _ = run(prepared, info, context)
    is_share = report.page is None
    show(report.text if is_share else f"job {name}: {info.name}")
    return report.headline


def run(
    prepared: config.Job, info: RunInfo, context: Context
) -> tuple[Report, str | None]:
    """Run an experiment, and hand what it concluded to run folder and tracker.

    Returns the report, and where the tracker has the run.
    """
    settings, experiment = prepared.settings, prepared.experiment
    usage = context.store.usage
    draws = info.group is None if settings.figures is None else settings.figures
    logger.info("%s: %s", settings.name, _summary(info.labels) or "no judge")
    with tracking(settings.tracker, info) as tracked:
        started = time.monotonic()

        def log_progress() -> None:
            seconds = round(time.monotonic() - started, 1)
            tracked.log(usage.progress(), ("progress/seconds", seconds))

        files, weights = input_files(experiment), weight_files(experiment)
        with run_manifest(info, usage, files, weights) as manifest:
            with listening(log_progress):
                report = experiment.run(context)
            manifest |= {**report.facts, "headline": known(report.headline)}
            plots = report.figures() if draws else []
            written = [
                info.run_dir / "manifest.json",
                *report.artifacts,
                *write_plots(info.run_dir, plots),
            ]
            if report.page is not None:
                manifest["usage"] = dataclasses.asdict(usage)
                page = report.page(info.run_dir.name, manifest, plots)
                written.append(write_whole(info.run_dir / "report.html", page))
            name_files(manifest, info.run_dir, written)
        log_progress()
        for n_perms, means in report.traces.items():
            tracked.log(means, ("n_perms", n_perms))
        spend = {f"usage/{name}": n for name, n in usage.metrics().items()}
        figures = {f"figures/{plot.name}": plot for plot in plots}
        results = {"headline": report.headline, **report.metrics, **spend}
        if math.isnan(report.headline):
            del results["headline"]
        tables = {name: rows for name, rows in report.tables.items() if rows}
        tracked.log({**results, **tables, **figures})
        tracked.log_files(info.run_dir, written)
        return report, tracked.where


def _summary(labels: Mapping[str, str]) -> str:
    """Such as "4 entrants, 3 dimensions, judge lexical"."""
    counts = []
    for name in ("entrants", "dimensions"):
        if name in labels:
            n = len(labels[name].split(", "))
            counts.append(f"{n} {name if n > 1 else name[:-1]}")
    judge = [f"judge {labels['judge_model']}"] if "judge_model" in labels else []
    return ", ".join([*counts, *judge])


def _places(report: Report, info: RunInfo, tracked_at: str | None) -> list[str]:
    """The last lines of a run: where its files, its page and its tracked run are."""
    page = (info.run_dir / "report.html").resolve()
    places = {
        "files": str(info.run_dir),
        "report": page.as_uri() if report.page else None,
        "tracked": tracked_at,
        "next": report.follow_up,
    }
    return [f"{label:<14}{place}" for label, place in places.items() if place]


def main() -> None:
    """The command: one line and exit code 2 for the user's mistakes, a traceback for ours."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a console may lack a table's characters
        sys.stdout.reconfigure(errors="backslashreplace")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands every error on
    if "--version" in sys.argv:  # Hydra would print its own
        print(f"elo_exp {__version__}")
        return
    words = [part for word in sys.argv[1:] for part in _each_arena(word)]
    is_override = re.compile(r"~|[^-].*=").match
    sys.argv[1:] = _with_files(sorted(words, key=lambda word: bool(is_override(word))))
    try:
        with contextlib.ExitStack() as sweeps.Checks.opened, sweeps.refusing():
            job()
    except KeyboardInterrupt:
        show(
            "elo_exp: interrupted. Every answer so far is stored; the same command goes on.",
            is_error=True,
        )
        sys.exit(130)
    except BrokenPipeError:  # head, for example, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    finally:
        lost = sweeps.summarize()
    sys.exit(int(lost))


def _with_files(words: list[str]) -> list[str]:
    """Words that are files stand for battles=[...] of experiment=rate."""
    files = [w for w in words if not w.startswith("-") and Path(w).is_file()]
    if not files:
        return words
    others = [word for word in words if word not in files]
    if not any(word.startswith("experiment=") for word in others):
        others.append("experiment=rate")
    return [*others, f"battles={json.dumps(files, ensure_ascii=False)}"]


def _each_arena(word: str) -> list[str]:
    """Of arena=[one,two], which Hydra would merge into one: the first, and a union with the others."""
    chosen = re.fullmatch(r"arena=\[(.+)\]", word)
    if chosen is None:
        return [word]
    first, *others = chosen[1].replace(" ", "").split(",")
    return [f"arena={first}", *(f"+arena@arena.union.{n}={n}" for n in others)]


if __name__ == "__main__":
    main()
