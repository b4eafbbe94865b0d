"""A tracker of one's own: runs in MLflow, at MLFLOW_TRACKING_URI."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from elo_exp.records import Plot
from elo_exp.trackers import Files, Histogram, Lines, RunInfo, Value

_ID = (
    "elo_exp.id"  # the tag by which a job finds its run again: MLflow makes ids itself
)
_AT_ONCE = 100  # metrics or parameters that the server takes in a call


@dataclass(kw_only=True)
class MlflowTracker:
    """The fields are the settings of tracker/mlflow.yaml. `texts` false: the calls below get none."""

    project: str
    texts: bool

    def open(self, info: RunInfo) -> MlflowRun:
        client = MlflowClient()
        project = client.get_experiment_by_name(self.project)
        number = (
            project.experiment_id if project else client.create_experiment(self.project)
        )
        same = client.search_runs([number], f"tags.`{_ID}` = '{info.id}'")
        if same:  # an attempt goes on with the run of those before it
            run_id = same[0].info.run_id
            client.update_run(run_id, status="RUNNING")
            return MlflowRun(client, run_id, info.run_dir)
        tags = {_ID: info.id, "group": info.group or "", "job_type": info.job_type}
        tags |= dict(tag.split(":", 1) for tag in info.tags)
        run_id = client.create_run(number, tags=tags, run_name=info.name).info.run_id
        settings = {**dict(_flat(info.config)), **info.labels}
        params = [Param(_named(name), str(v)[:6000]) for name, v in settings.items()]
        for n in range(0, len(params), _AT_ONCE):
            client.log_batch(run_id, params=params[n : n + _AT_ONCE])
        return MlflowRun(client, run_id, info.run_dir)


class MlflowRun:
    def __init__(self, client: MlflowClient, run_id: str, run_dir: Path) -> None:
        self._client, self._id, self._run_dir = client, run_id, run_dir
        self.where = f"MLflow, run {run_id}"

    def log(
        self,
        metrics: Mapping[str, Value],
        step: tuple[str, float] | None = None,
        *,
        is_charted: bool = False,
    ) -> None:
        now = int(time.time() * 1000)
        at = round(step[1]) if step else 0
        numbers = []
        for name, value in metrics.items():
            if isinstance(value, float | int):
                numbers.append(Metric(_named(name), float(value), now, at))
            elif isinstance(value, str):
                self._client.set_tag(self._id, _named(name), value[:5000])
            elif isinstance(value, Plot):
                path = self._run_dir / f"figures/{value.name}.png"
                self._client.log_artifact(self._id, str(path), "figures")
            else:  # a chart, a histogram, or the rows of a table
                content = (
                    asdict(value)
                    if isinstance(value, Lines | Histogram)
                    else list(value)
                )
                self._client.log_dict(
                    self._id, {"content": content}, f"{_named(name)}.json"
                )
        for n in range(0, len(numbers), _AT_ONCE):
            self._client.log_batch(self._id, numbers[n : n + _AT_ONCE])

    def log_files(self, files: Files) -> None:
        if files.known_as:  # another run has logged them
            return
        for name, path in files.paths.items():
            place = (Path(files.name) / name).parent
            self._client.log_artifact(self._id, str(path), place.as_posix())

    def close(self, exit_code: int, notes: str) -> None:
        self._client.set_tag(self._id, "mlflow.note.content", notes)
        self._client.set_terminated(self._id, "FAILED" if exit_code else "FINISHED")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _named(name: str) -> str:
    """With the characters that MLflow takes."""
    return re.sub(r"[^\w ./-]", "_", name)
