"""Checks before a run or a sweep, the finished jobs of a sweep, and its summary."""

import contextlib
import itertools
import json
import logging
import math
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from elo_exp import interrupts
from elo_exp.console import LineFormatter, print_lines
from elo_exp.errors import SettingError, UserError, name_error
from elo_exp.files import write_json, write_whole
from elo_exp.formatting import shorten_override
from elo_exp.launching.composing import Job, prepare
from elo_exp.launching.error_messages import format_user_error
from elo_exp.launching.running import (
    PreparedRun,
    describe_caps,
    format_labelled_lines,
    open_run,
)
from elo_exp.launching.setting_names import restore_typed_names
from elo_exp.masking import current_mask, mask_text
from elo_exp.models import checkpoints
from elo_exp.pipeline import RunPlan, SweepCost, describe_sweep_cost
from elo_exp.records import make_fingerprint
from elo_exp.runs.manifest import fingerprint_environment, input_hashes, run_id
from elo_exp.runs.reading import RATING_EXPERIMENTS, manifest_if_any, sweep_jobs
from elo_exp.runs.sweep_record import Sweep, sweep_if_any, write_sweep
from elo_exp.store import processes
from elo_exp.store.caps import Spending
from elo_exp.trackers import Project, RunInfo, Tracker, track_run
from elo_exp.version import __version__

logger = logging.getLogger(__name__)

# Parts of the names of launchers: jobs of the first kind wait for machines; those of the second are this process, or go
# on without it.
_QUEUE_LAUNCHERS = ("submitit", "ray")
_UNAWAITED_LAUNCHERS = ("BasicLauncher", "SlurmLauncher")


@dataclass
class CommandState:
    """What the checks of a command leave for its run and its summary: Hydra makes the callback, and hands nothing on.

    prepared_run   the single run, once its checks have passed
    sweep_folder   the folder of the multirun, once its checks have passed
    sweep_tracker  the tracker of its last job
    words          of the command, as they were typed
    resources      closes the store of the run, and ends the waiting for jobs in other processes
    """

    prepared_run: PreparedRun | None = None
    sweep_folder: Path | None = None
    sweep_tracker: Tracker | None = None
    words: tuple[str, ...] = ()
    resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


command = CommandState()
"""That of this process, which runs one command."""


class Checks(Callback):
    """Check a command before it writes anything.

    Hydra turns an exception in a callback into a warning, so that a refusal is a SystemExit.
    """

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Refuse a run, or print what stands in its place, before Hydra makes its folder."""
        _set_up_logging()
        with exit_on_mistakes(is_early=True):
            overrides = _copy_unresolved(config.hydra.overrides.task)
            job = prepare(config, overrides)
            if config.hydra.sweeper.params:
                logger.warning(
                    "warning: you chose a sweep, but only one job runs. Add -m to run the sweep."
                )
            run_dir = Path(config.hydra.run.dir).absolute()
            opening = open_run(job, run_dir, overrides)
            prepared_run = command.resources.enter_context(opening)
            if (text := prepared_run.dry_run() or prepared_run.act()) is not None:
                print_lines(text)
                sys.exit(0)
            command.prepared_run = prepared_run

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """Mask secrets in what Hydra has written of the command, which may hold one that a shell has put there."""
        hydra_cfg = config.hydra
        folder = Path(hydra_cfg.runtime.output_dir) / str(hydra_cfg.output_subdir)
        for path in folder.glob("*.yaml"):
            _mask_settings(path)
        if hydra_cfg.mode == RunMode.MULTIRUN:
            sweep_dir = Path(hydra_cfg.runtime.cwd) / hydra_cfg.sweep.dir
            _mask_settings(sweep_dir / "multirun.yaml")

    def on_multirun_start(
        self, config: DictConfig, config_name: str = "config", **_: Any
    ) -> None:
        jobs, overrides_by_job = list[Job](), [*_expand_jobs(config)]
        for number, overrides in enumerate(overrides_by_job):
            with exit_on_mistakes(
                f"job {number} ({_format_overrides(overrides)}): ", is_early=True
            ):
                job = prepare(hydra.compose(config_name, overrides), overrides)
                command.sweep_tracker = job.settings.tracker
                jobs.append(job)
        is_plan = [job.settings.plan for job in jobs]
        if overrides_by_job and is_plan == [True] * len(overrides_by_job):
            _show_plans(jobs, overrides_by_job)
            sys.exit(0)
        if line := _find_shared_mistake(jobs):
            with exit_on_mistakes():
                raise SettingError(*line.splitlines())
        if any(word in config.hydra.launcher._target_ for word in _QUEUE_LAUNCHERS):
            _check_before_the_queue(config_name, overrides_by_job)
        folder = Path(config.hydra.sweep.dir)
        command.sweep_folder = folder
        words = OverridesParser.create().parse_overrides(
            _copy_unresolved(config.hydra.overrides.task)
        )
        swept = [word.get_key_element() for word in words if word.is_sweep_override()]
        keys = [*(config.hydra.sweeper.get("params") or ()), *swept]
        sweep = Sweep(
            group=_choose_group(folder),
            swept=tuple(str(key).lstrip("+") for key in keys),
        )
        write_sweep(folder, sweep)
        processes.set_lifeline()
        if not any(
            name in config.hydra.launcher._target_ for name in _UNAWAITED_LAUNCHERS
        ):
            waiting = interrupts.wait_for_jobs(folder / ".stop")
            command.resources.enter_context(waiting)


def _mask_settings(path: Path) -> None:
    if not path.is_file():
        return
    content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    masked_content = current_mask().values(content)
    if masked_content != content:
        write_whole(path, OmegaConf.to_yaml(OmegaConf.create(masked_content)))


def _set_up_logging() -> None:
    """Log to stderr, a line a message: ours, and the warnings of others."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("elo_exp").setLevel(logging.INFO)


def _format_overrides(overrides: Sequence[str]) -> str:
    return " ".join(map(shorten_override, overrides))


def _show_plans(jobs: Sequence[Job], overrides_by_job: Sequence[Sequence[str]]) -> None:
    """Print the plan of each job of a sweep, and their total. That needs no launcher and leaves no folder."""
    _set_up_logging()
    plans, spending = list[RunPlan](), list[Spending]()
    for number, (job, overrides) in enumerate(zip(jobs, overrides_by_job, strict=True)):
        print_lines(f"job {number}: {_format_overrides(overrides)}")
        with (
            exit_on_mistakes(f"job {number}: "),
            open_run(job, Path(), overrides, in_sweep=True) as prepared_run,
        ):
            print_lines(prepared_run.dry_run())
            plans.append(prepared_run.plan)
            spending = prepared_run.context.store.list_spending()
    cost = SweepCost.add_up(plans)
    print_lines(describe_sweep_cost(cost, len(jobs)), *describe_caps(spending, cost))


def _check_before_the_queue(
    config_name: str, overrides_by_job: Sequence[list[str]]
) -> None:
    """Refuse a sweep one of whose jobs would end with a mistake, such as a model that is absent, before any is queued."""
    _set_up_logging()
    for number, overrides in enumerate(overrides_by_job):
        with (
            exit_on_mistakes(f"job {number} ({_format_overrides(overrides)}): "),
            contextlib.ExitStack() as opened,
        ):
            opened.enter_context(_resolve_as_job(config_name, number, overrides))
            job = prepare(hydra.compose(config_name, overrides), overrides)
            opened.enter_context(_log_only_warnings())
            opening = open_run(job, Path(), overrides, in_sweep=True)
            opened.enter_context(opening).dry_run()


@contextlib.contextmanager
def _log_only_warnings() -> Iterator[None]:
    """Log what a job does not say again where people look, and what takes long: hashing of weights."""
    ours, hashing = (
        logging.getLogger("elo_exp"),
        logging.getLogger(checkpoints.__name__),
    )
    before = [(log, log.level) for log in (ours, hashing)]
    ours.setLevel(logging.WARNING)
    hashing.setLevel(logging.INFO)
    try:
        yield
    finally:
        for log, level in before:
            log.setLevel(level)


@contextlib.contextmanager
def _resolve_as_job(
    config_name: str, number: int, overrides: list[str]
) -> Iterator[None]:
    """Resolve ${hydra:job.num} and its like as in a job of the sweep."""
    hydra_config = HydraConfig.instance()
    before = hydra_config.cfg
    cfg = hydra.compose(config_name, overrides, return_hydra_config=True)
    with open_dict(cfg):
        cfg.hydra.job.num, cfg.hydra.job.id = number, str(number)
    hydra_config.set_config(cfg)
    try:
        yield
    finally:
        hydra_config.cfg = before


def _find_shared_mistake(jobs: Sequence[Job]) -> str | None:
    """Return the line of a mistake in files of the experiment that every job would end with, if any.

    The files of its parts, such as models, may be on the machines of the jobs alone.
    """
    shared: str | None = None
    logging.disable()  # each job says itself what it reads
    try:
        for job in jobs:
            if job.settings.plan:
                return None
            try:
                if hasattr(job.experiment, "check_files"):
                    job.experiment.check_files()
                job.refuse_absent(with_parts=False)
            except Exception as error:
                line = format_user_error(error)
                if line is None or shared not in (None, line):
                    return None
                shared = line
            else:
                return None
    finally:
        logging.disable(logging.NOTSET)
    return shared


def _choose_group(folder: Path) -> str:
    """Return the name of a sweep in trackers, which it keeps when it is continued."""
    if earlier := sweep_if_any(folder):
        return earlier.group
    has_time = re.search(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", folder.name)
    return (
        folder.name if has_time else f"{folder.name}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    )


def _expand_jobs(cfg: DictConfig) -> Iterator[list[str]]:
    """Yield the overrides of each job of Hydra's own sweeper; nothing for any other sweeper."""
    if "BasicSweeper" not in cfg.hydra.sweeper._target_:
        return
    params = [
        f"{key}={value}"
        for key, value in _copy_unresolved(cfg.hydra.sweeper.params).items()
    ]
    parser = OverridesParser.create(
        config_loader=GlobalHydra.instance().config_loader()
    )
    axes = {}
    for word in parser.parse_overrides(
        [*params, *_copy_unresolved(cfg.hydra.overrides.task)]
    ):
        key = word.get_key_element()
        values = (
            word.sweep_string_iterator()
            if word.is_sweep_override()
            else [word.get_value_element_as_str()]
        )
        axes[key] = [f"{key}={value}" for value in values]
    for choice in itertools.product(*axes.values()):
        yield list(choice)


def _copy_unresolved(node: Any) -> Any:
    """Words of the command, some of which only a job can resolve."""
    return OmegaConf.to_container(node, resolve=False) if node is not None else {}


def discard_output() -> None:
    """Discard what is printed from now on, as its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def exit_on_mistakes(where: str = "", is_early: bool = False) -> Iterator[None]:
    """Print the user's mistake in one line, and exit with 2.

    is_early  the job has not begun: what only it knows, such as ${hydra:job.num}, is checked there
    """
    try:
        yield
    except BrokenPipeError:  # head, for example, has read enough
        # Hydra turns an exception of a callback into a warning, and the run would go on
        discard_output()
        sys.exit(1)
    except Exception as error:
        if is_early and "HydraConfig was not set" in str(error):
            return
        if (line := format_user_error(error, sys.argv[1:])) is None:
            print_lines(traceback.format_exc(), is_error=True)  # ours
            sys.exit(1)
        if "hydra.verbose=true" in sys.argv:  # where it was raised, and by what
            print_lines(traceback.format_exc(), is_error=True)
        line = restore_typed_names(line, command.words)
        print_lines(f"elo_exp: {where}{line}", is_error=True)
        sys.exit(2)


def summarize() -> int:
    """Write the summary of the multirun of this process, if any. Return the exit code of the command.

    1 where a job did not finish; 2 where none did, each by the same mistake of the user's.
    """
    folder, command.sweep_folder = command.sweep_folder, None
    if folder is None or not folder.is_dir():
        return 0
    from elo_exp.report import sweep_report  # most commands end without a sweep

    if not (written := sweep_report.write_sweep_report(folder)):
        return 0
    text, config, metrics = written
    is_whole = metrics["sweep/finished"] == metrics["sweep/jobs"]
    print_lines("", text)
    if not is_whole:
        words = [
            word for word in sys.argv[1:] if not word.startswith("hydra.sweep.dir=")
        ]
        again = shlex.join([*words, f"hydra.sweep.dir={folder}"])
        print_lines(f"To run the unfinished jobs: python -m elo_exp {again}")
    sweep, tracked_at = sweep_if_any(folder), None
    if command.sweep_tracker is not None and config and sweep:
        info = RunInfo(  # one more run in the group of the jobs
            run_dir=folder,
            name="sweep-summary",
            group=sweep.group,
            job_type="sweep-summary",
            config=config,
            tags=(*_list_tags(folder), "sweep"),
            jobs=tuple(_list_ended_jobs(folder)),
            # one run, however often the sweep goes on
            id=f"sweep-{make_fingerprint(sweep.group)[:12]}",
        )
        with track_run(command.sweep_tracker, info) as tracked:
            tracked.log(metrics)
            tracked.notes = text.strip().partition("\n")[0]
        tracked_at = tracked.where
    places = {
        "files": str(folder.resolve()),
        "report": (folder / "report.html").resolve().as_uri(),
        "tracked": tracked_at,
        "dashboard": _format_dashboard_command(folder, command.sweep_tracker)
        if tracked_at
        else None,
    }
    print_lines("", *format_labelled_lines(places))
    if is_whole:
        return 0
    errors = {str(manifest_if_any(job).get("error")) for job in sweep_jobs(folder)}
    is_users = all(error.startswith(f"{UserError.__name__}: ") for error in errors)
    return 2 if is_users and len(errors) == 1 else 1


def _format_dashboard_command(folder: Path, tracker: Tracker | None) -> str | None:
    """Return the command that saves the dashboard of a sweep; None where there can be none."""
    kinds = {manifest_if_any(job).get("experiment") for job in sweep_jobs(folder)}
    if not isinstance(tracker, Project) or not kinds <= {*RATING_EXPERIMENTS}:
        return None
    setting = shlex.quote(f"runs=[{folder}]")
    return f"python -m elo_exp experiment=dashboard {setting}  (needs a key)"


def _list_ended_jobs(folder: Path) -> Iterator[str]:
    """Yield the ids of the jobs of a sweep that were not killed."""
    for job in sweep_jobs(folder):
        content = manifest_if_any(job)
        if content.get("finished_at") or content.get("error"):
            with contextlib.suppress(UserError):
                yield run_id(job, content)


def _list_tags(folder: Path) -> list[str]:
    """Return the tags that the jobs of a sweep have in trackers."""
    tags = dict[str, None]()
    for job in sweep_jobs(folder):
        content = manifest_if_any(job)
        values = {
            "mode": content.get("mode"),
            "judge": content.get("judge_model"),
            "experiment": content.get("experiment"),
        }
        tags |= {f"{key}:{value}": None for key, value in values.items() if value}
    return [*tags]


def read_finished_headline(info: RunInfo) -> float | None:
    """Return the headline of a job that has finished before, or None.

    Settings, the bytes of input files and weights, and the version of elo_exp have to be the same.
    """
    manifest = manifest_if_any(info.run_dir)
    if not manifest.get("finished_at"):
        return None
    hashes = list(manifest.get("weights", {}).values())
    is_same = (
        {**manifest.get("config", {}), "resume": info.config["resume"]}
        == json.loads(json.dumps(info.config))
        and manifest.get("environment", {}) == fingerprint_environment(info.config)
        and manifest.get("versions", {}).get("elo_exp") == __version__
        and input_hashes(manifest.get("input_paths", {}))
        == manifest.get("input_hashes")
        and all(Path(path).is_file() for paths in hashes for path in paths)
        and all(
            checkpoints.hash_files(
                list(map(Path, paths)), Path(info.config["cache_dir"])
            )
            == paths
            for paths in hashes
        )
    )
    if not is_same:
        return None
    headline = manifest.get("headline")
    return math.nan if headline is None else float(headline)


def note_failure(
    run_dir: Path, overrides: tuple[str, ...], error: BaseException
) -> None:
    """Write the error of a failed job into its manifest; the other jobs go on."""
    text = mask_text(f"{name_error(error)}: {error}")
    is_ours = isinstance(error, Exception) and format_user_error(error) is None
    logger.error(
        "job %s failed: %s", run_dir.name, text, exc_info=error if is_ours else None
    )
    manifest = {**manifest_if_any(run_dir), "overrides": list(overrides)}
    write_json(
        run_dir / "manifest.json", {**manifest, "finished_at": None, "error": text}
    )
