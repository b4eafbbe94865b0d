"""Experiments as the command builds them, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from elo_exp.experiments import Context
from elo_exp.launching import composing
from elo_exp.launching.composing import Job
from elo_exp.launching.running import PreparedRun, open_run
from elo_exp.paths import CONF
from tests.settings_files import read_settings_once


def composed(*overrides: str) -> DictConfig:
    with (
        read_settings_once(),
        initialize_config_dir(version_base="1.3", config_dir=str(CONF)),
    ):
        return compose("config", overrides=list(overrides), return_hydra_config=True)


def built(*overrides: str) -> Job:
    """The checked objects of a command. Raises UserError."""
    return composing.prepare(composed(*overrides), overrides)


@contextmanager
def opened(folder: Path, *overrides: str) -> Iterator[tuple[Job, Context]]:
    """A command's job, with the store in folder/cache and folder/run to write to."""
    given = (f"cache_dir={folder}/cache", "tracker=local", *overrides)
    with open_run(built(*given), folder / "run", given) as prepared_run:
        yield prepared_run.job, prepared_run.context


def printed(folder: Path, *overrides: str) -> str | None:
    """What the command prints in place of a run, after its checks; None where it would run."""
    with opened(folder, *overrides) as (job, context):
        return PreparedRun(job=job, context=context).dry_run()
