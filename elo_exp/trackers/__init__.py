"""Trackers: where runs are logged and compared."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from elo_exp.records import Plot, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A chart of lines, by name, each a sequence of points (x, y)."""

    title: str
    x_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Histogram:
    values: Sequence[float]


Value = float | str | Lines | Histogram | Plot | Rows  # rows are a table


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What a tracker needs to know of the job it follows.

    group   the runs of one sweep
    labels  by which runs are grouped
    id      the same for every attempt in a folder with the same settings, of no other run; empty: the
            tracker makes one
    """

    run_dir: Path
    name: str
    group: str | None
    job_type: str
    config: Mapping[str, Any]
    overrides: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    id: str = ""


class TrackedRun(Protocol):
    """The run of one job, until it is closed."""

    @property
    def where(self) -> str | None:
        """Where to look at the run, and how to upload it; None for the run folder."""

    def log(
        self,
        metrics: Mapping[str, Value],
        step: tuple[str, float] | None = None,
        *,
        is_charted: bool = False,
    ) -> None:
        """Log values under names that are the same in every run.

        step        name and value of what they are plotted against; None: they are the run's results
        is_charted  whether a chart of the results shows them, so that they need none of their own
        """

    def log_files(self, run_dir: Path, paths: Sequence[Path]) -> None:
        """Log files of the run folder as the run's artifact."""

    def close(self, exit_code: int) -> None: ...


@runtime_checkable
class Tracker(Protocol):
    def open(self, info: RunInfo) -> TrackedRun:
        """Start a run. Raises UserError where the tracker cannot be used with its settings."""


def set_aside(run_dir: Path, path: Path) -> None:
    """Move what an earlier attempt has logged to `earlier/` of the run folder: this one logs all of itself again."""
    first = run_dir / "earlier" / path.relative_to(run_dir)
    first.parent.mkdir(parents=True, exist_ok=True)
    aside, n = first, 1
    while aside.exists():
        n += 1
        aside = first.with_name(f"{first.stem}_{n}{first.suffix}")
    path.replace(aside)


@contextmanager
def tracking(tracker: Tracker, info: RunInfo) -> Iterator[TrackedRun]:
    """Open a run and close it; an exception marks it as failed."""
    run = tracker.open(info)
    exit_code = 1
    try:
        yield run
        exit_code = 0
    finally:
        run.close(exit_code)
