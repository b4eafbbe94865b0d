"""Run one experiment.

    python -m elo_exp                                              # offline, seconds
    python -m elo_exp mode=headline judge=opus
    python -m elo_exp -m elo.k=8,16,32 elo.n_perms=100,500         # no new judge calls
    python -m elo_exp experiment=rate battles=FILE

Every choice is a file in conf/. This module builds the chosen parts, runs one experiment, and hands what it concluded
to the run folder and the tracker.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import io
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from elo_exp import CONF, __version__, composing, config, errors, sweeps, usage
from elo_exp.experiments import (
    Experiment,
    Parts,
    Result,
    arena,
    compare,
    dashboard,
    oracle,
    rate,
    store,
    tournament,
)
from elo_exp.files import write_whole
from elo_exp.manifest import Manifest
from elo_exp.records import Plot
from elo_exp.results import RunInfo
from elo_exp.settings import Settings, one_of
from elo_exp.trackers import TrackedRun

logger = logging.getLogger(__name__)

EXPERIMENTS: dict[str, Experiment] = {
    "tournament": tournament,
    "rate": rate,
    "arena": arena,
    "oracle": oracle,
    "store": store,
    "compare": compare,
    "dashboard": dashboard,
}


def run(cfg: DictConfig) -> float:
    """One experiment from its configuration to its run folder; the headline number lets a sweeper compare jobs."""
    with contextlib.ExitStack() as closing:
        with _leaving_no_folder():
            errors.refuse_lists(config.overrides(), cfg)
            config.take_ratings(cfg)
            settings = config.settings(cfg)
            experiment = _experiment(settings)
            info = config.run_info(cfg)
            if info.group is not None:
                if settings.resume and sweeps.is_finished(info):
                    print(f"job {info.run_dir.name}: it has finished before, and is not run again")
                    return sweeps.headline(info)
                sweeps.forget_failure(info.run_dir)
            parts = config.build_parts(cfg, settings, experiment.NEEDS, info.overrides)
            closing.enter_context(parts.store)
            if not settings.plan:
                config.check_parts(parts.by_name())
            experiment.check(settings, parts)
        if (text := experiment.errand(settings, parts)) is not None:
            print(text)
            return 0.0
        logger.info("%s: %s", settings.experiment.prefix, parts.summary())
        result = _run_tracked(
            experiment, settings, parts, dataclasses.replace(info, labels=parts.labels())
        )
    if info.group is None:
        print(result.table(), info.run_dir, sep="\n")
    else:
        print(f"job {info.run_dir.name}: {info.name}")
    return result.headline


def check(cfg: DictConfig) -> None:
    """Raise UserError for what the configuration of a sweep's job by itself says is wrong."""
    errors.refuse_lists(config.overrides(), cfg)
    config.take_ratings(cfg)
    config.check(cfg, lambda settings: _experiment(settings).NEEDS)


def _experiment(settings: Settings) -> Experiment:
    found = EXPERIMENTS[one_of("experiment.name", settings.experiment.name, EXPERIMENTS)]
    errors.refuse_elsewhere(config.overrides(), settings.experiment.name)
    return found


def _run_tracked(experiment: Experiment, settings: Settings, parts: Parts, info: RunInfo) -> Result:
    draws = settings.figures if settings.figures is not None else info.group is None
    with parts.tracker.open(info) as tracked:
        with Manifest(
            info, parts.store.usage, experiment.inputs(settings, parts), parts.weights()
        ) as manifest:
            result = experiment.run(settings, parts)
            manifest.complete({**result.facts(), "headline": result.headline})
            plots = result.plots() if draws else []
            page = write_whole(
                info.run_dir / "report.html",
                result.page(info.run_dir.name, manifest.content, plots),
            )
            written = [manifest.path, page, *result.write(info.run_dir, plots)]
            manifest.wrote(written)
        spend = {f"usage/{name}": value for name, value in parts.store.usage.metrics().items()}
        tables = (
            result.tables() if draws or info.group is None else {}
        )  # the same in many jobs of a sweep
        _track(tracked, result, {**result.metrics(), **spend}, tables, plots)
        tracked.log_files(info.run_dir, written)
    return result


def _track(
    tracked: TrackedRun,
    result: Result,
    metrics: Mapping[str, float],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    plots: Sequence[Plot],
) -> None:
    tracked.log_summary(metrics)
    tracked.log_series("n_perms", result.series())
    for name, rows in tables.items():
        tracked.log_table(name, rows)
    for plot in plots:
        tracked.log_plot(plot)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def job(cfg: DictConfig) -> float:
    if not config.is_multirun() and HydraConfig.get().sweeper.params:
        logger.warning("warning: a sweep is chosen, but one job runs. Add -m to sweep.")
    try:
        return run(cfg)
    except Exception as error:
        if config.is_multirun():
            sweeps.note_failure(Path(HydraConfig.get().runtime.output_dir), error)
            if not errors.can_be_sent(error):
                raise RuntimeError(f"{type(error).__name__}: {error}") from error
            raise
        if errors.explain(error) is None:
            raise
        sys.exit(_refuse(error))


@contextlib.contextmanager
def _leaving_no_folder() -> Iterator[None]:
    """A run that is refused in here, before it has begun, leaves no folder but one that the user has named."""
    try:
        yield
    except Exception as error:
        is_named = any(
            word.startswith("hydra.run.dir=") for word in HydraConfig.get().overrides.hydra
        )
        if not (config.is_multirun() or is_named) and errors.explain(error) is not None:
            _forget(Path(HydraConfig.get().runtime.output_dir))
        raise


def _forget(run_dir: Path) -> None:
    """Delete a folder that holds the configuration of a run and its log, and nothing else."""
    if {path.name for path in run_dir.iterdir()} == {".hydra", "elo_exp.log"}:
        shutil.rmtree(run_dir / ".hydra", ignore_errors=True)
        with contextlib.suppress(OSError):  # where an open log cannot be deleted, the folder stays
            (run_dir / "elo_exp.log").unlink()
            run_dir.rmdir()


def _refuse(error: Exception) -> int:
    """Say in one line what is wrong with the user's input; the exit code for it."""
    print(f"elo_exp: {errors.explain(error)}", file=sys.stderr)
    return 2


def main() -> None:
    """The command: one line and exit code 2 for the user's mistakes, a traceback for ours."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # not every console has the characters of a table
    os.environ["HYDRA_FULL_ERROR"] = (
        "1"  # Hydra hands every error on instead of printing its own digest of it
    )
    gc.set_threshold(
        10_000
    )  # to look for cycles at every 700 objects takes a twentieth of a short command
    atexit.register(
        gc.freeze
    )  # nor once more at its end, which takes .3 s: what is left goes with the process
    arguments = sys.argv[1:]
    try:
        if "--help" in arguments or "-h" in arguments:
            print(usage.help_text(arguments), flush=True)
        elif "--version" in arguments:
            print(f"elo_exp {__version__}", flush=True)
        else:
            composing.read_yaml_in_c()
            composing.take_mode_from_the_command()
            composing.check_before_jobs(check)
            job()
    except KeyboardInterrupt:
        print(
            "elo_exp: interrupted. Every answer so far is stored; the same command goes on.",
            file=sys.stderr,
        )
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, head for example, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if errors.explain(error) is None:
            raise
        sys.exit(_refuse(error))
    finally:
        sweeps.SweepWatch.finish()


if __name__ == "__main__":
    main()
