"""One Weights & Biases run per job: offline where there is no key, and never a prompt for one."""

from __future__ import annotations

import logging
import netrc
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from elo_exp.records import Plot, UserError
from elo_exp.trackers import (
    Files,
    Histogram,
    Lines,
    RunInfo,
    TrackedRun,
    Value,
    set_aside,
)
from elo_exp.types import NonNegative

if TYPE_CHECKING:
    import wandb

logger = logging.getLogger(__name__)

Mode = Literal["online", "offline", "disabled"]
_MAX_NAME, _MAX_TAG = 128, 64  # characters that the server accepts
_BINS = 40  # of a histogram
_SECONDS = "progress/seconds"
_PAGE = "report"
_offline: set[str] = set()  # projects whose server has failed an earlier job


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

    def open(self, info: RunInfo) -> TrackedRun:
        """Start an online run, or an offline one where the server does not take it.

        Disabled, nothing is logged and wandb is not imported, which takes longer than a small run.
        """
        if self._mode() == "disabled":
            return _Untracked()
        import wandb

        if info.id:
            # `wandb sync` of several pieces of one id sends none, or a fragment, where the
            # first of them was killed
            for piece in sorted(info.run_dir.glob(f"wandb/offline-run-*-{info.id}")):
                set_aside(info.run_dir, piece)
        try:
            try:
                run = self._init(info, self._mode())
            except wandb.errors.CommError as error:
                logger.warning("warning: %s", _lost_server(error))
                _offline.add(self.project)
                wandb.teardown()  # which still has the id
                run = self._init(info, "offline")
        except (wandb.errors.UsageError, ValueError) as error:
            # pydantic names the setting in line 2, the fault in line 3
            lines = str(error).splitlines()
            reason = ": ".join(line.strip() for line in lines[1:3]) or lines[0]
            raise UserError(
                f"tracker: Weights & Biases refuses a setting: {reason}. Check tracker.* and the "
                "environment variables WANDB_*."
            ) from None
        return _WandbRun(run, info.run_dir)

    def _init(self, info: RunInfo, mode: Mode) -> wandb.Run:
        import wandb

        settings = wandb.Settings(
            project=self.project,
            entity=self.entity,
            run_id=info.id or None,
            # an attempt goes on with the run of those before it
            resume="allow" if info.id and mode == "online" else None,
            run_group=info.group,
            run_job_type=info.job_type,
            run_name=_cut(info.name, _MAX_NAME),
            run_tags=tuple(_cut(tag, _MAX_TAG) for tag in info.tags),
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
        if wanted == "disabled":
            return "disabled"
        if wanted == "offline":
            return "offline"
        is_online = (wanted == "online" or _has_key()) and self.project not in _offline
        return "online" if is_online else "offline"


def _lost_server(error: wandb.errors.CommError) -> str:
    """Tell a server that refuses from one that does not answer, and say what to do."""
    reason = str(error).splitlines()[0].rstrip(".")
    if said := re.search(r'"message": ?"([^"]+)"', reason):  # by the server
        reason = said[1]
    offline = "This run and those that follow are logged offline"
    if re.search("timed out|deadline exceeded", reason.lower()):
        reason = reason.rpartition(": ")[2]
        return (
            f"Weights & Biases cannot be reached ({reason}). {offline}; once it answers, upload "
            "them with wandb sync."
        )
    return (
        f"Weights & Biases refuses the run ({reason}). {offline}; check WANDB_API_KEY, "
        "tracker.entity and tracker.project, and upload them with wandb sync."
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class _Untracked:
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

    def close(self, exit_code: int) -> None:
        pass


class _WandbRun:
    def __init__(self, run: wandb.Run, run_dir: Path) -> None:
        self._run = run
        self._run_dir = run_dir
        self._steps: set[str] = set()  # metrics that are plotted against another
        self._logged: set[str] = set()  # numbers and texts of the summary
        # Earlier attempts worked so long, as a resumed run has it
        self._summary = cast(Any, run.summary)  # without types
        before = self._summary.get(_SECONDS) if run.resumed else None
        self._seconds = float(before or 0.0)

    @property
    def where(self) -> str | None:
        if self._run.offline:
            folder = os.path.relpath(Path(self._run.sync_dir).parent)
            return f"W&B, offline; upload: wandb sync {folder}/offline-*"
        return self._run.url

    def log(
        self,
        metrics: Mapping[str, Value],
        step: tuple[str, float] | None = None,
        *,
        is_charted: bool = False,
    ) -> None:
        if step is not None:
            for name in metrics.keys() - self._steps:
                self._run.define_metric(
                    name,
                    step_metric=step[0],
                    hidden=is_charted or None,
                    # the last value is a result under another name
                    summary="none" if is_charted else None,
                )
            self._steps |= metrics.keys()
            self._logged |= {step[0], *metrics}
            name, at = step
            at += self._seconds if name == _SECONDS else 0.0
            self._run.log({name: at, **metrics})
            return
        plain = {k: v for k, v in metrics.items() if isinstance(v, float | int | str)}
        self._run.summary.update(plain)
        self._logged |= metrics.keys()
        if plain.get("judge/caution"):
            self._run.tags = (*(self._run.tags or ()), "caution")
        media = {k: self._media(v) for k, v in metrics.items() if k not in plain}
        if media:
            self._run.log(media)

    def _media(self, value: Value) -> Any:
        import wandb

        if isinstance(value, Plot):
            path = self._run_dir / f"figures/{value.name}.png"
            return wandb.Image(str(path), caption=value.caption)
        if isinstance(value, Histogram):
            return wandb.Histogram(value.values, num_bins=_BINS)
        if isinstance(value, Lines):
            return wandb.plot.line_series(
                [[x for x, _ in line] for line in value.lines.values()],
                [[y for _, y in line] for line in value.lines.values()],
                keys=list(value.lines),
                title=value.title,
                xname=value.x_label,
            )
        assert not isinstance(value, float | int | str)
        columns: list[str | int] = list(value[0]) if value else []
        return wandb.Table(columns=columns, data=[list(row.values()) for row in value])

    def log_files(self, files: Files) -> None:
        """Offline, where no artifact can be used, what was read is logged like what was made."""
        import wandb

        artifact = wandb.Artifact(files.name, files.kind, metadata={**files.metadata})
        for name, path in files.paths.items():
            artifact.add_file(str(path), name=name)
        aliases = list(files.aliases)
        if files.is_input and not self._run.offline:
            self._run.use_artifact(artifact, aliases=aliases)
        else:
            self._run.log_artifact(artifact, aliases=aliases)
        if page := files.paths.get("report.html"):
            self._run.log({_PAGE: wandb.Html(page, inject=False)})

    def close(self, exit_code: int) -> None:
        if self._run.resumed and exit_code == 0:
            self._forget()
        self._run.finish(exit_code=exit_code)

    def _forget(self) -> None:
        """Delete what only an earlier attempt, which may have been killed, has left in the summary."""
        kept = {*self._logged, _PAGE}
        for name in [*self._summary.keys()]:
            # the points of a chart are a table beside it
            if (
                not name.startswith("_")
                and not {name, name.removesuffix("_table")} & kept
            ):
                del self._summary[name]


def _has_key() -> bool:
    """Whether wandb finds a key without asking: in the environment, or in ~/.netrc for its host."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        hosts = netrc.netrc().hosts
    except (OSError, netrc.NetrcParseError):
        return False
    return any("wandb" in host or "forge.coreweave" in host for host in hosts)
