"""Runs in trackio's store on this machine, for `trackio show`: no account, no network."""

from __future__ import annotations

import importlib.util
import io
import os
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elo_exp.errors import SettingError, UserError
from elo_exp.records import Plot
from elo_exp.trackers import Files, Histogram, Lines, RunInfo, Value

if TYPE_CHECKING:
    from trackio.run import Run

# With these set, trackio sends runs elsewhere
_REMOTE_VARIABLES = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


@dataclass(kw_only=True)
class TrackioTracker:
    """Writes to TRACKIO_DIR, or to trackio's folder in the user's cache."""

    project: str
    texts: bool

    def open(self, info: RunInfo) -> _TrackioRun:
        if importlib.util.find_spec("trackio") is None:
            raise UserError(
                "tracker=trackio needs the Python package trackio, which is not installed. Install it:",
                "  pip install 'elo-exp[trackio]'",
            )
        for name in _REMOTE_VARIABLES:
            if os.environ.get(name):
                raise SettingError(
                    f"tracker=trackio keeps runs on this machine, and {name} would send them elsewhere. Unset it:",
                    f"  unset {name}",
                )
        import trackio

        with redirect_stdout(io.StringIO()):  # hide trackio's own hints
            run = trackio.init(
                project=self.project,
                name=_build_run_name(info),
                group=info.group,
                resume="allow",
                config={**info.config, **info.labels, "job_type": info.job_type},
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        return _TrackioRun(run, info.run_dir, f"trackio show --project {self.project}")


def _build_run_name(info: RunInfo) -> str:
    """Return a name that only attempts of the same job have: trackio goes on with a run by its name."""
    return f"{info.name} {info.id}".rstrip()


class _TrackioRun:
    """Results are logged at step 0."""

    def __init__(self, run: Run, run_dir: Path, where: str) -> None:
        self._run = run
        self._run_dir = run_dir
        self.where = where

    def log(
        self,
        metrics: Mapping[str, Value],
        step: tuple[str, float] | None = None,
        *,
        is_charted: bool = False,
    ) -> None:
        values = {name: self._to_media(value) for name, value in metrics.items()}
        self._run.log(values, step=int(step[1]) if step else 0)

    def _to_media(self, value: Value) -> Any:
        import trackio

        if isinstance(value, Plot):
            path = self._run_dir / f"figures/{value.name}.png"
            return trackio.Image(path, caption=value.caption)
        if isinstance(value, Histogram):
            return trackio.Histogram(value.values)
        if isinstance(value, Lines):
            rows = [[key, *xy] for key, line in value.lines.items() for xy in line]
            return trackio.Table(columns=["line", value.x_label, "value"], data=rows)
        if isinstance(value, float | int | str):
            return value
        columns = list(value[0]) if value else []
        data = [list(row.values()) for row in value]
        return trackio.Table(columns=columns, data=data)

    def log_files(self, files: Files) -> None:
        import trackio

        if files.known_as:  # to Weights & Biases, whose versions it does not have
            return
        artifact = trackio.Artifact(
            files.name, type=files.kind, metadata=dict(files.metadata)
        )
        for name, path in files.paths.items():
            artifact.add_file(str(path), name=name)
        # trackio names the latest version by itself
        aliases = [alias for alias in files.aliases if alias != "latest"]
        logged_artifact = self._run.log_artifact(artifact, aliases=aliases)
        if files.is_input:
            self._run.use_artifact(logged_artifact)

    def close(self, exit_code: int, notes: str) -> None:
        import trackio

        # trackio itself marks no run as failed, and has no notes
        self._run.log({"exit_code": exit_code, "notes": notes}, step=0)
        with redirect_stdout(io.StringIO()):
            trackio.finish()  # type: ignore[no-untyped-call]
