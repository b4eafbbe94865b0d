"""Runs as JSON lines in the run folder, beside its figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elo_exp.files import utc_now
from elo_exp.records import Plot
from elo_exp.trackers import (
    Files,
    Histogram,
    Lines,
    RunInfo,
    Value,
    archive_earlier_attempt,
)


@dataclass(kw_only=True)
class LocalTracker:
    """Writes tracker/log.jsonl, one object a call."""

    def open(self, info: RunInfo) -> _LocalRun:
        return _LocalRun(info)


class _LocalRun:
    where = None

    def __init__(self, info: RunInfo) -> None:
        self._run_dir = info.run_dir
        path = info.run_dir / "tracker/log.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            archive_earlier_attempt(info.run_dir, path)
        self._log = path.open("w", encoding="utf-8")
        self._write("run", {**asdict(info), "run_dir": str(info.run_dir)})

    def _write(self, kind: str, value: Any) -> None:
        row = {"kind": kind, "time": utc_now(), "value": value}
        print(json.dumps(row, allow_nan=False), file=self._log)
        self._log.flush()

    def log(
        self,
        metrics: Mapping[str, Value],
        step: tuple[str, float] | None = None,
        *,
        is_charted: bool = False,
    ) -> None:
        values = {name: _to_json_value(value) for name, value in metrics.items()}
        if step is None:
            self._write("summary", values)
        else:
            self._write("step", {step[0]: step[1], **values})

    def _relative_path(self, path: Path) -> str:
        is_inside = path.is_relative_to(self._run_dir)
        return str(path.relative_to(self._run_dir) if is_inside else path)

    def log_files(self, files: Files) -> None:
        row = {
            **asdict(files),
            "paths": {
                name: self._relative_path(path) for name, path in files.paths.items()
            },
            "texts": sorted(files.texts),
        }
        self._write("files", row)

    def close(self, exit_code: int, notes: str) -> None:
        self._write("notes", notes)
        self._write("exit", exit_code)
        self._log.close()


def _to_json_value(value: Value) -> Any:
    if isinstance(value, Plot):
        return {"caption": value.caption, "path": f"figures/{value.name}.png"}
    if isinstance(value, Lines | Histogram):
        return asdict(value)
    if isinstance(value, float | int | str):
        return value
    return [row if isinstance(row, dict) else dict(row) for row in value]
