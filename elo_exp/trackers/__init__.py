"""Trackers: where runs are logged and compared."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from elo_exp.errors import UserError
from elo_exp.masking import Mask, current_mask, mask_text
from elo_exp.records import Plot, Rows

logger = logging.getLogger(__name__)

# Of what runs log, the tables that hold prompts, answers and reasons; of one of several judges by_NAME/verdicts
TEXT_METRICS = frozenset({"verdicts"})
WITH_TEXTS_NOTE = "with texts; tracker.texts=false keeps them here"


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
    jobs    ids of those that have ended, of the run that sums them up
    id      the same for every attempt in a folder with the same settings, of no other run; empty: the
            tracker makes one
    holds_weights  whether the job loads a model into memory, so that what the machine does is of interest
    """

    run_dir: Path
    name: str
    group: str | None
    job_type: str
    config: Mapping[str, Any]
    overrides: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    id: str = ""
    holds_weights: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files that a tracker keeps together under a name: equal content is one version of it.

    kind      dataset, responses, verdicts, leaderboard or run
    name      the same in every run: letters, digits, dots, underscores and hyphens
    paths     by the name that each has among them
    texts     the names of those that hold prompts, answers or reasons
    is_input  the run has read them, and not made them
    known_as  the version that another run has logged, NAME:VERSION; of it nothing is logged, and it is used where it
              is there
    aliases   of the version, beside its number
    metadata  what is told of the version
    """

    kind: str
    name: str
    paths: Mapping[str, Path]
    texts: frozenset[str] = frozenset()
    is_input: bool = False
    known_as: str = ""
    aliases: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_texts(self) -> bool:
        return bool(self.texts)

    def drop_texts(self) -> Files | None:
        """Return those that hold no text; None where none is left."""
        paths = {n: path for n, path in self.paths.items() if n not in self.texts}
        return replace(self, paths=paths, texts=frozenset()) if paths else None


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

    def log_files(self, files: Files) -> None:
        """Keep files that the run has read or made."""

    def close(self, exit_code: int, notes: str) -> None:
        """End the run.

        exit_code  0, or what it failed with
        notes      what it concluded, or why it failed
        """


@runtime_checkable
class Tracker(Protocol):
    """May also have `texts`: whether prompts, answers and reasons are logged; without it they are."""

    @abstractmethod
    def open(self, info: RunInfo) -> TrackedRun:
        """Start a run. Raises UserError where the tracker cannot be used with its settings."""


@runtime_checkable
class Project(Protocol):
    """A tracker whose runs are kept together on a server."""

    project: str
    entity: str | None

    @property
    def is_online(self) -> bool:
        """Whether a key is at hand, and nobody wishes to stay offline."""


def describe_uploaded_texts(tracker: Tracker) -> str | None:
    """Say which texts would leave this machine; None where nothing would leave it."""
    if not (isinstance(tracker, Project) and tracker.is_online):
        return None
    with_texts = getattr(tracker, "texts", True)
    return WITH_TEXTS_NOTE if with_texts else "without prompts, answers and reasons"


class NullRun:
    """The run of a job that nothing is logged of."""

    where = None

    def log(
        self,
        metrics: Mapping[str, Value],
        step: tuple[str, float] | None = None,
        *,
        is_charted: bool = False,
    ) -> None:
        pass

    def log_files(self, files: Files) -> None:
        pass

    def close(self, exit_code: int, notes: str) -> None:
        pass


class GuardedRun:
    """The run of a job, which goes on whatever becomes of its tracker, and tells it no secret.

    The first exception is a warning, and ends what is logged. With `texts` false, none is handed on.
    """

    def __init__(self, tracker: Tracker, info: RunInfo) -> None:
        self.notes = ""  # what it concluded
        self._name = type(tracker).__name__
        self._with_texts = bool(getattr(tracker, "texts", True))
        self._run: TrackedRun = NullRun()
        with self._survive_errors(UserError):
            self._run = tracker.open(_mask_info(info))

    @contextmanager
    def _survive_errors(self, *reraised: type[Exception]) -> Iterator[None]:
        try:
            yield
        except reraised:
            raise
        except Exception as error:
            lines = mask_text(str(error)).splitlines() or [""]
            reason = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
            logger.warning(
                "warning: %s fails (%s): from here on, nothing is logged to it. The run goes on.",
                self._name,
                reason,
            )
            logger.debug("what failed", exc_info=error)
            self._run = NullRun()

    @property
    def where(self) -> str | None:
        return self._run.where

    def log(
        self,
        metrics: Mapping[str, Value],
        step: tuple[str, float] | None = None,
        *,
        is_charted: bool = False,
    ) -> None:
        if not self._with_texts:
            metrics = {
                k: v
                for k, v in metrics.items()
                if k.rpartition("/")[2] not in TEXT_METRICS
            }
        mask = current_mask()
        values = {mask.text(name): _mask_value(mask, v) for name, v in metrics.items()}
        with self._survive_errors():
            self._run.log(values, step, is_charted=is_charted)

    def log_files(self, files: Files) -> None:
        files_to_log = files if self._with_texts else files.drop_texts()
        if files_to_log is not None:
            metadata = current_mask().values(files_to_log.metadata)
            with self._survive_errors():
                self._run.log_files(replace(files_to_log, metadata=metadata))

    def close(self, exit_code: int) -> None:
        with self._survive_errors():
            self._run.close(exit_code, mask_text(self.notes))


def _mask_info(info: RunInfo) -> RunInfo:
    mask = current_mask()
    return replace(
        info,
        name=mask.text(info.name),
        config=mask.values(info.config),
        overrides=tuple(map(mask.text, info.overrides)),
        labels=mask.values(info.labels),
        tags=tuple(map(mask.text, info.tags)),
    )


def _mask_value(mask: Mask, value: Value) -> Value:
    """Return a value without secrets."""
    if isinstance(value, Plot):  # its files are masked where they are written
        return replace(value, caption=mask.text(value.caption))
    if isinstance(value, Lines):
        texts = (value.title, value.x_label)
        title, x_label = map(mask.text, texts)
        return Lines(title=title, x_label=x_label, lines=mask.values(value.lines))
    masked_value: Value = value if isinstance(value, Histogram) else mask.values(value)
    return masked_value


def archive_earlier_attempt(run_dir: Path, path: Path) -> None:
    """Move what an earlier attempt has logged to `earlier/` of the run folder: this one logs all of itself again."""
    target = run_dir / "earlier" / path.relative_to(run_dir)
    target.parent.mkdir(parents=True, exist_ok=True)
    free_target, n = target, 1
    while free_target.exists():
        n += 1
        free_target = target.with_name(f"{target.stem}_{n}{target.suffix}")
    path.replace(free_target)


@contextmanager
def track_run(tracker: Tracker, info: RunInfo) -> Iterator[GuardedRun]:
    """Open a run and close it; an exception marks it as failed.

    Raises UserError where the tracker cannot be used with its settings.
    """
    run = GuardedRun(tracker, info)
    exit_code = 1
    try:
        yield run
        exit_code = 0
    except KeyboardInterrupt:
        run.notes = "interrupted"
        raise
    except Exception as error:
        run.notes = mask_text(" ".join(str(error).split()) or type(error).__name__)
        raise
    finally:
        run.close(exit_code)
