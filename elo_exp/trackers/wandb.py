"""One Weights & Biases run per job: offline where there is no key, and never a prompt for one."""

from __future__ import annotations

import functools
import logging
import math
import netrc
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
    Untracked,
    Value,
    leaving,
    set_aside,
)
from elo_exp.trackers.apart import Apart, TrackerError
from elo_exp.types import Positive

if TYPE_CHECKING:
    import wandb

logger = logging.getLogger(__name__)

Mode = Literal["online", "offline", "disabled"]
_MODES = {"online": "online", "run": "online", "offline": "offline"}
_MODES |= {"dryrun": "offline", "disabled": "disabled"}  # by the words of WANDB_MODE
_MAX_NAME, _MAX_TAG = 128, 64  # characters that the server accepts
_BINS = 40  # of a histogram
_SECONDS = "progress/seconds"
_PAGE = "report"
_GRACE_S, _FILES_S = 10.0, 600.0
_STATS_S = 15.0  # between two looks at the machine
_MB = 1_000_000
_COLLECTION = re.compile(r"([^/:]+/){1,2}[^/:]+")
_offline: set[str] = set()  # projects whose server has failed an earlier job


@dataclass(kw_only=True)
class WandbTracker:
    """mode    auto: WANDB_MODE if that is set, else online where there is a key, else offline
    wait_s  seconds that the server may take to begin a run, and to take the rest of it at its end
    texts   whether prompts, answers and reasons are logged
    stats   whether the machine's load is; None: where a part holds weights
    max_mb  of an artifact; a larger one stays in the run folder
    registry  REGISTRY/COLLECTION that leaderboards are linked to; None: to none
    """

    project: str
    entity: str | None
    mode: Literal["auto", "online", "offline", "disabled"]
    wait_s: Positive
    texts: bool
    stats: bool | None
    max_mb: Positive
    registry: str | None

    def __post_init__(self) -> None:
        if self.registry is not None and not _COLLECTION.fullmatch(self.registry):
            raise UserError(
                f"registry: found {self.registry!r}. Expected a registry and a collection in it: "
                "wandb-registry-elo_exp/leaderboard, or null."
            )

    def check(self) -> None:
        """Raise UserError for a mode that there is not."""
        self._mode()

    @property
    def is_online(self) -> bool:
        return self._mode() == "online"

    def open(self, info: RunInfo) -> TrackedRun:
        """Start an online run, or an offline one where the server does not take it.

        Disabled, nothing is logged and wandb is not imported, which takes longer than a small run.
        """
        mode = self._mode()
        return Untracked() if mode == "disabled" else _LastingRun(self, info, mode)

    def open_here(self, info: RunInfo, mode: Mode) -> TrackedRun:
        """Start a run in this process. Raises TrackerError where the server does not take it."""
        import wandb

        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
            os.environ.setdefault(name, str(_copies(info)))
        try:
            run = self._init(info, mode)
        except wandb.errors.CommError as error:
            raise TrackerError(str(error).partition("\n")[0]) from None
        except (wandb.errors.UsageError, ValueError) as error:
            # pydantic names the setting in line 2, the fault in line 3
            lines = str(error).splitlines()
            reason = ": ".join(line.strip() for line in lines[1:3]) or lines[0]
            raise UserError(
                f"tracker: Weights & Biases refuses a setting: {reason}. Check tracker.* and the "
                "environment variables WANDB_*."
            ) from None
        return _WandbRun(run, info, self.wait_s, self.registry)

    def _init(self, info: RunInfo, mode: Mode) -> wandb.Run:
        import wandb

        with_stats = info.holds_weights if self.stats is None else self.stats
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
            finish_timeout=self.wait_s if mode == "online" else 0,  # 0: no limit
            finish_timeout_raises=True,
            console="off",
            program="-m elo_exp",
            x_disable_stats=not with_stats,
            x_stats_sampling_interval=_STATS_S,
            x_stats_pid=os.getppid(),  # this process only logs
        )
        return wandb.init(
            mode=mode, settings=settings, config={**info.config, **info.labels}
        )

    def _mode(self) -> Mode:
        wanted = _variable() if self.mode == "auto" else self.mode
        if wanted in ("disabled", "offline"):
            return wanted
        is_online = (wanted == "online" or _has_key()) and self.project not in _offline
        return "online" if is_online else "offline"


def _copies(info: RunInfo) -> Path:
    """Where the SDK copies what it uploads, and keeps its logs. It deletes no copy, which would fill the user's home."""
    name = f"copies-{info.id}".rstrip("-")
    return info.run_dir.absolute() / "wandb" / name


def _variable() -> Mode | None:
    """What WANDB_MODE says. Raises UserError for a word that it does not have."""
    word = os.environ.get("WANDB_MODE")
    if not word:
        return None
    if word.lower() not in _MODES:
        raise UserError(
            f"WANDB_MODE: found {word!r}. Expected online, offline or disabled; unset it, or give tracker.mode."
        )
    return cast(Mode, _MODES[word.lower()])


class _LastingRun:
    """A run in a process of its own: online as long as that works; then the whole of it, from its first call, offline.

    An offline piece that is whole can be uploaded whatever has become of the other one: `wandb sync` of several pieces
    of one id sends none, or a fragment, where the first of them was cut off.
    """

    def __init__(self, tracker: WandbTracker, info: RunInfo, mode: Mode) -> None:
        self._tracker, self._info = tracker, info
        # To be made again; None of a run that needs no server
        self._calls: list[tuple[str, dict[str, Any]]] | None = None
        self._set_aside()
        if mode == "offline":
            self._run = self._open(mode)
            return
        self._calls = []
        try:
            self._run = self._open(mode)
        except TrackerError as error:
            self._go_offline(str(error), is_open=False)

    def _open(self, mode: Mode) -> Apart:
        return Apart(
            functools.partial(self._tracker.open_here, self._info, mode),
            sdk="wandb",
            # as long as the SDK has been told to wait, and some; files alone take what they take
            limit_s=self._tracker.wait_s + _GRACE_S if mode == "online" else _FILES_S,
        )

    def _delete_copies(self) -> None:
        shutil.rmtree(_copies(self._info) / "artifacts", ignore_errors=True)

    def _set_aside(self) -> None:
        self._delete_copies()
        if self._info.id:
            folder = self._info.run_dir
            for piece in sorted(folder.glob(f"wandb/*run-*-{self._info.id}")):
                set_aside(folder, piece)

    def _go_offline(self, reason: str, *, is_open: bool = True) -> None:
        lost = _lost_server(reason, self._tracker.wait_s, is_open=is_open)
        logger.warning("warning: %s", lost)
        _offline.add(self._tracker.project)
        self._set_aside()
        calls, self._calls = self._calls or (), None
        self._run = self._open("offline")
        for name, named in calls:
            self._run.call(name, **named)

    @property
    def where(self) -> str | None:
        said = leaving(self._tracker) if self._calls is not None else None
        return f"{self._run.where} ({said})" if said else self._run.where

    def log(
        self,
        metrics: Mapping[str, Value],
        step: tuple[str, float] | None = None,
        *,
        is_charted: bool = False,
    ) -> None:
        self._call("log", metrics=metrics, step=step, is_charted=is_charted)

    def log_files(self, files: Files) -> None:
        n_bytes = 0
        if not files.known_as:
            n_bytes = sum(path.stat().st_size for path in files.paths.values())
        if n_bytes > self._tracker.max_mb * _MB:
            needed = 100 * math.ceil(n_bytes / _MB / 100)
            logger.warning(
                "warning: %s has %d MB and stays here; tracker.max_mb=%d sends it.",
                files.name,
                n_bytes / _MB,
                needed,
            )
            return
        self._call("log_files", files=files)

    def _call(self, name: str, **named: Any) -> None:
        if self._calls is None:
            self._run.call(name, **named)
            return
        self._calls.append((name, named))
        if self._run.failure:
            self._run.end()
            self._go_offline(self._run.failure)
        else:
            self._run.call(name, **named)

    def close(self, exit_code: int, notes: str) -> None:
        ending = {"exit_code": exit_code, "notes": notes}
        try:
            said = self._run.close(**ending)
            if self._calls is not None:
                if lost := _LOST.search(said):
                    raise TrackerError(lost[1])
                self._delete_copies()
        except TrackerError as error:
            if self._calls is None:
                raise
            self._go_offline(str(error))
            self._run.close(**ending)


# What the SDK says, and raises nothing
_LOST = re.compile(r"wandb: (?:WARNING|ERROR) (Fatal error while uploading data)")
_LATE = re.compile("timed out|timeout|deadline exceeded|not done within|in time", re.I)
_REFUSALS = re.compile(
    r"permission|denied|forbidden|unauthori|credentials|invalid|\b40[0-9]\b", re.I
)


def _plainly(reason: str) -> str:
    """The reason of an error, in the server's words where it has given some."""
    if said := re.search(r'"message": ?"([^"]+)"', reason):
        return said[1].rstrip(".")
    return re.sub(r"^\w+(?:Error|Exception): ", "", reason).rstrip(".")


def _lost_server(reason: str, wait_s: float, *, is_open: bool) -> str:
    """Tell a server that refuses from one that does not answer, and say what to do."""
    offline = "This run and those that follow are logged offline"
    if _LATE.search(reason):
        late = "has not taken the whole run" if is_open else "does not answer"
        return (
            f"Weights & Biases {late} within {wait_s:g} s (tracker.wait_s). {offline}; once it "
            "does, upload them with wandb sync."
        )
    if _REFUSALS.search(reason):
        return (
            f"Weights & Biases refuses the run ({_plainly(reason)}). {offline}; check "
            "WANDB_API_KEY, tracker.entity and tracker.project, and upload them with wandb sync."
        )
    return (
        f"Weights & Biases does not answer ({_plainly(reason)}). {offline}; once it does, upload "
        "them with wandb sync."
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class _WandbRun:
    def __init__(
        self, run: wandb.Run, info: RunInfo, wait_s: float, registry: str | None
    ) -> None:
        self._run = run
        self._run_dir, self._jobs = info.run_dir, info.jobs
        self._wait_s = wait_s
        self._registry = registry
        self._leaderboard: wandb.Artifact | None = None
        self._artifacts: list[wandb.Artifact] = []  # that the server is to take
        self._steps: set[str] = set()  # metrics that are plotted against another
        self._logged: set[str] = set()  # numbers and texts of the summary
        # Earlier attempts worked so long, as a resumed run has it
        self._summary = cast(Any, run.summary)  # without types
        before = self._summary.get(_SECONDS) if run.resumed else None
        self._seconds = float(before or 0.0)

    @property
    def where(self) -> str | None:
        if self._run.offline:
            return f"W&B, offline; upload: wandb sync {' '.join(self._pieces())}"
        return self._run.url

    def _pieces(self) -> Iterator[str]:
        """Name those of the jobs that have ended, and of the run itself: by patterns, where these match no others.

        One that was cut off, as a killed job's, keeps `wandb sync` from sending any.
        """
        ids = (*self._jobs, str(self._run.id))
        for pattern in ("[0-9]*/wandb/offline-*", "wandb/offline-*"):
            every = sorted(self._run_dir.glob(pattern))
            whole = [piece for piece in every if piece.name.endswith(ids)]
            if every and whole == every:
                yield f"{os.path.relpath(self._run_dir)}/{pattern}"
            else:
                yield from map(os.path.relpath, whole)

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
            self._tag("caution")
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

        if files.known_as:
            if not self._run.offline:
                # by a run that was not tracked there
                with suppress(ValueError, wandb.errors.CommError):
                    self._run.use_artifact(files.known_as)
            return
        artifact = wandb.Artifact(files.name, files.kind, metadata={**files.metadata})
        for name, path in files.paths.items():
            artifact.add_file(str(path), name=name, skip_cache=True)
        aliases = list(files.aliases)
        if files.is_input and not self._run.offline:
            self._run.use_artifact(artifact, aliases=aliases)
        else:
            self._artifacts.append(self._run.log_artifact(artifact, aliases=aliases))
            if files.kind == "leaderboard":
                self._leaderboard = self._artifacts[-1]
        if page := files.paths.get("report.html"):
            self._run.log({_PAGE: wandb.Html(page, inject=False)})

    def close(self, exit_code: int, notes: str) -> None:
        self._run.notes = notes
        if exit_code:
            self._tag("failed")
        elif self._run.resumed:
            self._forget()
        if not self._run.offline:
            for artifact in self._artifacts:  # of which finish() reports no failure
                artifact.wait(timeout=math.ceil(self._wait_s))
        if self._registry and self._leaderboard:
            self._link(self._leaderboard, self._registry)
        self._run.finish(exit_code=exit_code)

    def _link(self, leaderboard: wandb.Artifact, registry: str) -> None:
        """A registry that does not take it is no reason to lose the run."""
        reason = "the run is offline"
        if not self._run.offline:
            try:
                self._run.link_artifact(leaderboard, registry)
            except Exception as error:  # of the SDK: there are many
                reason, *_ = str(error).splitlines() or [type(error).__name__]
            else:
                return
        logger.warning(
            "warning: leaderboard is not linked to %s (%s). Its page in Weights & Biases can link it.",
            registry,
            reason.rstrip("."),
        )

    def _tag(self, tag: str) -> None:
        self._run.tags = (*(self._run.tags or ()), tag)

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
