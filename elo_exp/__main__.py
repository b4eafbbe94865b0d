"""Run one experiment: compose, build, run, report.

    python -m elo_exp                                              # offline, seconds
    python -m elo_exp mode=headline judge=opus
    python -m elo_exp -m elo.k=8,16,32 elo.n_perms=100,500         # no new judge calls
    python -m elo_exp FILE ...                                     # rate result files of any program

Every choice is a file in conf/. What the experiment concluded goes to the run folder, the tracker and the console.
"""

import contextlib
import io
import math
import os
import sys
from pathlib import Path

try:
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import DictConfig

    from elo_exp import interrupts
    from elo_exp.console import print_lines
    from elo_exp.errors import RESUME_HINT
    from elo_exp.launching import composing, hydra_callback
    from elo_exp.launching.options import format_options
    from elo_exp.launching.running import format_places, open_run
    from elo_exp.launching.shorthand import expand_shorthand
    from elo_exp.paths import CONF
    from elo_exp.store import processes
    from elo_exp.version import __version__
except KeyboardInterrupt:  # `main` does not handle signals yet
    sys.exit(130)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def job(cfg: DictConfig) -> float:
    """One job; the headline number lets a sweeper compare jobs."""
    if not composing.is_multirun():
        prepared_run = hydra_callback.command.prepared_run
        assert prepared_run is not None
        with hydra_callback.exit_on_mistakes():
            info = composing.describe_run(prepared_run.job)
            report, tracked_at = prepared_run.run(info)
            print_lines(report.text, "", *format_places(report, info, tracked_at))
        if report.exit_code:
            sys.exit(report.exit_code)
        return report.headline
    try:
        with interrupts.handle_signals(is_job=True):
            interrupts.check_interrupt()
            return sweep_job(cfg)
    except (Exception, KeyboardInterrupt) as error:
        is_interrupted = isinstance(error, KeyboardInterrupt)
        # in a worker it would have the launcher kill the other jobs
        if is_interrupted and not processes.is_job_of_sweep():
            raise
        run_dir = Path(HydraConfig.get().runtime.output_dir)
        hydra_callback.note_failure(run_dir, composing.read_overrides(), error)
        return math.nan


def sweep_job(cfg: DictConfig) -> float:
    """Run a job of a sweep, unless it has finished before."""
    checked_job = composing.prepare(cfg, composing.read_overrides())
    info = composing.describe_run(checked_job)
    name = info.run_dir.name
    if (
        checked_job.settings.resume
        and (headline := hydra_callback.read_finished_headline(info)) is not None
    ):
        print_lines(f"job {name}: it has finished before, and is not run again")
        return headline
    with open_run(
        checked_job, info.run_dir, info.overrides, in_sweep=True
    ) as prepared_run:
        if (text := prepared_run.dry_run() or prepared_run.act()) is not None:
            print_lines(text)
            return math.nan
        print_lines(f"job {name}: {info.name}")
        report, _ = prepared_run.run(info)
    if report.page is None:  # a share of others' work
        print_lines(report.text)
    return report.headline


def main() -> None:
    """The command: one line and exit code 2 for the user's mistakes, a traceback for ours."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a console may lack a table's characters
        sys.stdout.reconfigure(errors="backslashreplace")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands every error on
    if "--version" in sys.argv:  # Hydra would print its own
        print(f"elo_exp {__version__}")
        return
    if "--options" in sys.argv:
        with hydra_callback.exit_on_mistakes():
            print_lines(format_options(sys.argv[1:]))
        return
    try:
        with interrupts.handle_signals():
            code = _run_command()
    except KeyboardInterrupt as error:  # while the summary was written
        code = interrupts.exit_code(error)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            hydra_callback.discard_output()
    sys.exit(code)


def _run_command() -> int:
    """Run the command of sys.argv; return its exit code, or raise SystemExit with another."""
    try:
        hydra_callback.command.words = tuple(sys.argv[1:])
        with hydra_callback.exit_on_mistakes():
            sys.argv[1:] = expand_shorthand(sys.argv[1:])
        with hydra_callback.command.resources, hydra_callback.exit_on_mistakes():
            job()
        interrupts.check_interrupt()  # a sweep whose jobs have ended since
    except KeyboardInterrupt as error:
        by_signal = f" ({error})" * (interrupts.exit_code(error) != 130)
        with contextlib.suppress(OSError):  # the terminal has hung up
            print_lines(
                f"elo_exp: interrupted{by_signal}. {RESUME_HINT}",
                is_error=True,
            )
        sys.exit(interrupts.exit_code(error))
    finally:
        with hydra_callback.exit_on_mistakes():
            code = hydra_callback.summarize()
    return code


if __name__ == "__main__":
    main()
