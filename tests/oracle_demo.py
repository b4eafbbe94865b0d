"""The oracle experiment on tiny random models: built as the command builds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elo_exp.experiments import Context, Report
from elo_exp.experiments.oracle import Oracle
from elo_exp.store.usage import Usage
from tests.experiments import opened, printed


def small(*policies: str) -> list[str]:
    """These policies, with short answers made all at once."""
    short = ("max_new_tokens=8", "batch_size=93")
    made = [f"entrant.{name}.{setting}" for name in policies for setting in short]
    return [f"entrant=[{','.join(policies)}]", *made]


@contextmanager
def oracle_of(folder: Path, *overrides: str) -> Iterator[tuple[Oracle, Context]]:
    """The experiment, checked."""
    with opened(folder, "experiment=oracle", *overrides) as (job, context):
        assert isinstance(job.experiment, Oracle)
        job.experiment.check(context.overrides)
        yield job.experiment, context


def said(folder: Path, *overrides: str) -> str:
    """What is printed in place of a run."""
    return str(printed(folder, "experiment=oracle", *overrides))


def ran(folder: Path, *overrides: str) -> tuple[Report, Usage]:
    """A run that writes to folder/run, and what it has cost."""
    with oracle_of(folder, *overrides) as (experiment, context):
        parts = [
            experiment.judge,
            experiment.oracle_judge,
            *experiment.entrant.values(),
        ]
        try:
            experiment.dry_run(context)
            return experiment.run(context), context.store.usage
        finally:
            for api in (part.api for part in parts if hasattr(part, "api")):
                if (client := vars(api).get("_client")) is not None:
                    client.close()  # its sockets would live as long as the process
