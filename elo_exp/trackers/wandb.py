"""One Weights & Biases run per job: offline where there is no key, and never a prompt for one."""

from __future__ import annotations

import logging
import netrc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, cast

from elo_exp.records import Plot, UserError
from elo_exp.trackers import RunInfo
from elo_exp.types import NonNegative

if TYPE_CHECKING:
    import wandb

logger = logging.getLogger(__name__)

Mode = Literal["online", "offline", "disabled"]
MODES = ("online", "offline", "disabled")
_unreachable: set[str] = (
    set()
)  # projects whose server did not answer an earlier job of this sweep


@dataclass(kw_only=True)
class WandbTracker:
    """mode    auto: WANDB_MODE if that is set, else online where there is a key, else offline
    wait_s  seconds for the server to answer; after that the run is logged offline
    """

    project: str
    entity: str | None
    mode: Literal["auto", "online", "offline", "disabled"]
    wait_s: NonNegative

    @property
    def is_online(self) -> bool:
        return self._mode() == "online"

    @contextmanager
    def open(self, info: RunInfo) -> Iterator[_WandbRun]:
        run = self._start(info)
        exit_code = 1
        try:
            yield _WandbRun(run)
            exit_code = 0
        finally:
            run.finish(exit_code=exit_code)

    def _start(self, info: RunInfo) -> wandb.Run:
        """Start an online run, or an offline one where the server cannot be reached."""
        import wandb

        try:
            if (mode := self._mode()) != "online":
                return self._init(info, mode)
            try:
                return self._init(info, mode)
            except (wandb.errors.CommError, wandb.errors.UsageError) as error:
                logger.warning(
                    "warning: Weights & Biases cannot be reached (%s); from here on, runs are "
                    "logged offline",
                    error,
                )
                _unreachable.add(self.project)
                return self._init(info, "offline")
        except (wandb.errors.UsageError, ValueError) as error:
            lines = str(
                error
            ).splitlines()  # pydantic names the setting in line 2, the fault in 3
            reason = ": ".join(line.strip() for line in lines[1:3]) or lines[0]
            raise UserError(
                f"tracker: Weights & Biases refuses a setting: {reason}. Check tracker.* and the "
                "environment variables WANDB_*."
            ) from None

    def _init(self, info: RunInfo, mode: Mode) -> wandb.Run:
        import wandb

        settings = wandb.Settings(
            project=self.project,
            entity=self.entity,
            run_group=info.group,
            run_job_type=info.job_type,
            run_name=info.name,
            root_dir=str(info.run_dir),
            init_timeout=self.wait_s,
            reinit="finish_previous",
            silent=True,
            console="off",
            x_disable_stats=True,
        )
        return wandb.init(
            mode=mode, settings=settings, config={**info.config, **info.labels}
        )

    def _mode(self) -> Mode:
        wanted = os.environ.get("WANDB_MODE") if self.mode == "auto" else self.mode
        if wanted not in MODES[1:]:
            wanted = "online" if _has_key() else "offline"
        if wanted == "online" and self.project in _unreachable:
            return "offline"
        return cast(Mode, wanted)


class _WandbRun:
    def __init__(self, run: wandb.Run) -> None:
        self._run = run

    @property
    def where(self) -> str | None:
        if self._run.offline:
            folder = os.path.relpath(Path(self._run.sync_dir).parent)
            return f"W&B, offline; upload: wandb sync {folder}/offline-*"
        return None if self._run.disabled else self._run.url

    def log_summary(self, metrics: Mapping[str, float]) -> None:
        self._run.summary.update(dict(metrics))

    def log_series(self, step: str, rows: Sequence[Mapping[str, float]]) -> None:
        self._run.define_metric(step, hidden=True)
        for name in {name for row in rows for name in row} - {step}:
            self._run.define_metric(name, step_metric=step, summary="none")
        for row in rows:
            self._run.log(dict(row))

    def log_table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._run.log({name: _table(rows)})

    def log_plot(self, plot: Plot) -> None:
        """Log the picture, its rows as a table, and lines as one chart for each dimension."""
        import wandb

        media: dict[str, Any] = {
            f"charts/{name}": chart for name, chart in _charts(plot)
        }
        if not plot.curves:
            media[f"tables/{plot.name}"] = _table(plot.rows)
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"{plot.name}.png"
            path.write_bytes(plot.png)
            media[f"figures/{plot.name}"] = wandb.Image(str(path), caption=plot.caption)
            self._run.log(media)

    def log_files(self, run_dir: Path, paths: Sequence[Path]) -> None:
        import wandb

        artifact = wandb.Artifact(f"run-{self._run.id}", type="run")
        for path in paths:
            artifact.add_file(str(path), name=str(path.relative_to(run_dir)))
        self._run.log_artifact(artifact)


def _table(rows: Sequence[Mapping[str, Any]]) -> wandb.Table:
    import wandb

    columns: list[str | int] = list(rows[0]) if rows else []
    return wandb.Table(columns=columns, data=[list(row.values()) for row in rows])


def _charts(plot: Plot) -> Iterator[tuple[str, Any]]:
    """A line chart for each dimension of the plot's rows, by name; none of a plot without lines."""
    import wandb

    if plot.x is None:
        return
    for dimension in dict.fromkeys(row.get("dimension") for row in plot.rows):
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in plot.rows:
            for name in plot.y if row.get("dimension") == dimension else ():
                key = row.get("line", row.get("model", name))
                lines.setdefault(key, []).append((row[plot.x], row[name]))
        name = plot.name if dimension is None else f"{plot.name}/{dimension}"
        chart = wandb.plot.line_series(
            [[x for x, _ in line] for line in lines.values()],
            [[y for _, y in line] for line in lines.values()],
            keys=list(lines),
            title=dimension or plot.name,
            xname=plot.x,
        )
        yield name, chart


def _has_key() -> bool:
    """Whether wandb finds a key without asking: in the environment, or in ~/.netrc for its host."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        hosts = netrc.netrc().hosts
    except (OSError, netrc.NetrcParseError):
        return False
    return any("wandb" in host or "forge.coreweave" in host for host in hosts)
