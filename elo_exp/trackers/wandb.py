"""One Weights & Biases run for each job, offline where there is no key, and never a question at the terminal."""

from __future__ import annotations

import logging
import netrc
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, cast

from elo_exp.records import UserError
from elo_exp.results import Plot, RunInfo
from elo_exp.settings import one_of

if TYPE_CHECKING:
    import wandb

logger = logging.getLogger(__name__)

Mode = Literal["online", "offline", "disabled"]
MODES = ("auto", "online", "offline", "disabled")
_unreachable: list[
    str
] = []  # projects whose server did not answer: the next jobs of a sweep do not wait for it again


@dataclass(kw_only=True)
class WandbTracker:
    """mode    auto: WANDB_MODE if that is set, else online where a key is at hand, else offline
    wait_s  seconds for the server to answer; a run that it does not answer is logged offline
    """

    project: str
    entity: str | None
    mode: str
    wait_s: float

    def __post_init__(self) -> None:
        one_of("mode", self.mode, MODES)

    @property
    def is_online(self) -> bool:
        return self._mode() == "online"

    @contextmanager
    def open(self, info: RunInfo) -> Iterator[_WandbRun]:
        settings = self._settings(info)
        with ThreadPoolExecutor(
            1
        ) as starter:  # W&B's service takes .2 s to answer, and a server longer
            starting = starter.submit(self._start, settings, {**info.config, **info.labels})
            try:
                yield _WandbRun(starting)
            except BaseException:
                if starting.exception() is None:
                    starting.result().finish(exit_code=1)
                raise
            starting.result().finish(exit_code=0)

    def _settings(self, info: RunInfo) -> wandb.Settings:
        """These and the user's own, from the environment and W&B's files. Raises UserError for what W&B refuses."""
        import wandb
        from wandb.sdk import wandb_setup

        wandb.util.pd_available = (
            False  # it would import pandas to see that nothing here is a data frame: .3 s
        )
        try:
            _ = (
                wandb_setup.singleton().settings
            )  # reads them; wandb.setup() would also wait .2 s for the service
            return wandb.Settings(
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
                x_save_requirements=False,  # they take .1 s to look up, and the manifest names those that matter
            )
        except (wandb.errors.UsageError, ValueError) as error:
            lines = str(
                error
            ).splitlines()  # of a ValueError the second names the setting, and the third says why
            said = ": ".join(line.strip() for line in lines[1:3]) or lines[0]
            raise UserError(
                f"tracker: Weights & Biases refuses a setting: {said}. Check tracker.* and the variables WANDB_*."
            ) from None

    def _start(self, settings: wandb.Settings, config: Mapping[str, Any]) -> wandb.Run:
        import wandb

        mode = self._mode()
        if mode != "online":
            return wandb.init(mode=mode, settings=settings, config=dict(config))
        try:
            return wandb.init(mode="online", settings=settings, config=dict(config))
        except (wandb.errors.CommError, wandb.errors.UsageError) as error:
            logger.warning(
                "warning: Weights & Biases cannot be reached (%s); runs are logged offline from here on",
                error,
            )
            _unreachable.append(self.project)
            return wandb.init(mode="offline", settings=settings, config=dict(config))

    def _mode(self) -> Mode:
        wished = os.environ.get("WANDB_MODE") if self.mode == "auto" else self.mode
        mode = cast(Mode, wished) if wished in MODES[1:] else "online" if _has_key() else "offline"
        return "offline" if mode == "online" and _unreachable else mode


class _WandbRun:
    def __init__(self, starting: Future[wandb.Run]) -> None:
        self._starting = starting

    @property
    def _run(self) -> wandb.Run:
        return self._starting.result()

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
        """The picture, its rows as a table, and of lines a chart for each dimension."""
        import wandb

        media: dict[str, Any] = {f"charts/{name}": chart for name, chart in _charts(plot)}
        if not plot.curves:
            media[f"tables/{plot.name}"] = _table(plot.rows)
        with (
            TemporaryDirectory() as folder
        ):  # of a file W&B takes the bytes, of anything else it makes a PNG anew
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
    """Columns are typed by one row of each kind: W&B looks at every cell else, which takes twenty times as long."""
    import wandb

    columns: list[str | int] = list(rows[0]) if rows else []
    cells = [list(row.values()) for row in rows]
    of_kind = {tuple(map(type, line)): line for line in cells}
    table = wandb.Table(columns=columns, data=list(of_kind.values()))
    table.data = cells
    return table


def _charts(plot: Plot) -> Iterator[tuple[str, Any]]:
    """Of its lines, if it has any, by name: one for each dimension, or one in all."""
    import wandb

    if plot.x is None:
        return
    for dimension in dict.fromkeys(row.get("dimension") for row in plot.rows):
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in plot.rows:
            for name in plot.y if row.get("dimension") == dimension else ():
                lines.setdefault(row.get("line", row.get("model", name)), []).append(
                    (row[plot.x], row[name])
                )
        xs, ys = ([[point[i] for point in line] for line in lines.values()] for i in (0, 1))
        name = plot.name if dimension is None else f"{plot.name}/{dimension}"
        chart = wandb.plot.line_series(
            xs, ys, keys=list(lines), title=dimension or plot.name, xname=plot.x
        )
        yield name, chart


def _has_key() -> bool:
    """Whether wandb would find a key without asking: in the environment, or in ~/.netrc for its host."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        hosts = netrc.netrc().hosts
    except (OSError, netrc.NetrcParseError):
        return False
    return any("wandb" in host or "forge.coreweave" in host for host in hosts)
