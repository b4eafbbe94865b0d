"""Runs in trackio's store on this machine, for `trackio show`: no account, no network."""

from __future__ import annotations

import importlib.util
import io
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from elo_exp.records import Plot, UserError
from elo_exp.trackers import RunInfo

if TYPE_CHECKING:
    import trackio
    from trackio.run import Run

logger = logging.getLogger(__name__)

_REMOTE = (
    "TRACKIO_SPACE_ID",
    "TRACKIO_SERVER_URL",
)  # with these, trackio sends runs elsewhere


@dataclass(kw_only=True)
class TrackioTracker:
    """Writes to TRACKIO_DIR, or to trackio's folder in the user's cache."""

    project: str

    @contextmanager
    def open(self, info: RunInfo) -> Iterator[_TrackioRun]:
        if importlib.util.find_spec("trackio") is None:
            raise UserError(
                "tracker: needs the package trackio, which is not installed: "
                "pip install 'elo-exp[trackio]'."
            )
        for name in _REMOTE:
            if os.environ.get(name):
                raise UserError(
                    f"tracker: found {name} set. tracker=trackio keeps runs on this machine: "
                    "unset it."
                )
        import trackio

        with redirect_stdout(io.StringIO()):  # hide trackio's own hints
            run = trackio.init(
                project=self.project,
                name=info.name,
                group=info.group,
                config={**info.config, **info.labels, "job_type": info.job_type},
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        exit_code = 1
        try:
            yield _TrackioRun(run, self.project)
            exit_code = 0
        finally:
            run.log(
                {"exit_code": exit_code}, step=0
            )  # trackio itself marks no run as failed
            with redirect_stdout(io.StringIO()):
                trackio.finish()  # type: ignore[no-untyped-call]


class _TrackioRun:
    """Final values are logged at step 0, series at their own steps."""

    def __init__(self, run: Run, project: str) -> None:
        self._run = run
        self._project = project

    @property
    def where(self) -> str:
        return f"trackio show --project {self._project}"

    def log_summary(self, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=0)

    def log_series(self, step: str, rows: Sequence[Mapping[str, float]]) -> None:
        for row in rows:
            self._run.log(
                {name: value for name, value in row.items() if name != step},
                step=int(row[step]),
            )

    def log_table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._run.log({name: _table(rows)}, step=0)

    def log_plot(self, plot: Plot) -> None:
        import trackio

        with TemporaryDirectory() as folder:
            path = Path(folder) / f"{plot.name}.png"
            path.write_bytes(plot.png)
            media: dict[str, Any] = {
                f"figures/{plot.name}": trackio.Image(path, caption=plot.caption)
            }
            if not plot.curves:
                media[f"tables/{plot.name}"] = _table(plot.rows)
            self._run.log(media, step=0)

    def log_files(self, run_dir: Path, paths: Sequence[Path]) -> None:
        import trackio

        artifact = trackio.Artifact(f"run-{self._run.id}", type="run")
        for path in paths:
            artifact.add_file(str(path), name=str(path.relative_to(run_dir)))
        self._run.log_artifact(artifact)


def _table(rows: Sequence[Mapping[str, Any]]) -> trackio.Table:
    import trackio

    return trackio.Table(
        columns=list(rows[0]) if rows else [], data=[list(row.values()) for row in rows]
    )
