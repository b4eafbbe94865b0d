"""Trackers: where runs are logged and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from elo_exp.records import Plot


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What a tracker needs to know of the job it follows."""

    run_dir: Path
    name: str
    group: str | None
    job_type: str
    config: Mapping[str, Any]
    overrides: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)  # by which runs are grouped


class TrackedRun(Protocol):
    """One job's run, open until its context ends; an exception marks it as failed."""

    @property
    def where(self) -> str | None:
        """Where to look at the run, and how to upload it; None for the run folder."""

    def log_summary(self, metrics: Mapping[str, float]) -> None:
        """Log final values, under names that are the same in every run."""

    def log_series(self, step: str, rows: Sequence[Mapping[str, float]]) -> None:
        """Log line charts: each row holds a value of `step` and the metrics at that step."""

    def log_table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def log_plot(self, plot: Plot) -> None: ...

    def log_files(self, run_dir: Path, paths: Sequence[Path]) -> None:
        """Log files of the run folder as the run's artifact."""


@runtime_checkable
class Tracker(Protocol):
    def open(self, info: RunInfo) -> AbstractContextManager[TrackedRun]:
        """Start a run. Raises UserError where the tracker cannot be used with its settings."""
