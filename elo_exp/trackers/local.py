"""Runs as JSON lines and PNG figures in the run folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from elo_exp.files import utc_now
from elo_exp.records import Plot
from elo_exp.trackers import RunInfo


@dataclass(kw_only=True)
class LocalTracker:
    """Writes tracker/log.jsonl, one object a call, and each figure to tracker/figures/NAME.png."""

    @contextmanager
    def open(self, info: RunInfo) -> Iterator[_LocalRun]:
        folder = info.run_dir / "tracker"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log.jsonl").open("w", encoding="utf-8") as log:
            run = _LocalRun(folder, log)
            run.write("run", {**asdict(info), "run_dir": str(info.run_dir)})
            exit_code = 1
            try:
                yield run
                exit_code = 0
            finally:
                run.write("exit", exit_code)


class _LocalRun:
    def __init__(self, folder: Path, log: IO[str]) -> None:
        self._folder = folder
        self._log = log

    @property
    def where(self) -> None:
        return None

    def write(self, kind: str, value: Any) -> None:
        self._log.write(
            json.dumps(
                {"kind": kind, "time": utc_now(), "value": value}, allow_nan=False
            )
            + "\n"
        )
        self._log.flush()

    def log_summary(self, metrics: Mapping[str, float]) -> None:
        self.write("summary", dict(metrics))

    def log_series(self, step: str, rows: Sequence[Mapping[str, float]]) -> None:
        self.write("series", {"step": step, "rows": [dict(row) for row in rows]})

    def log_table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self.write("table", {"name": name, "rows": [dict(row) for row in rows]})

    def log_plot(self, plot: Plot) -> None:
        path = self._folder / "figures" / f"{plot.name}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(plot.png)
        self.write(
            "figure", {"name": plot.name, "path": str(path.relative_to(self._folder))}
        )

    def log_files(self, run_dir: Path, paths: Sequence[Path]) -> None:
        self.write("files", [str(path.relative_to(run_dir)) for path in paths])
