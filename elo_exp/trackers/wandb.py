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

from elo_exp.errors import SettingError
from elo_exp.records import Plot
from elo_exp.trackers import (
    Files,
    Histogram,
    Lines,
    NullRun,
    RunInfo,
    TrackedRun,
    Value,
    archive_earlier_attempt,
    describe_uploaded_texts,
)
from elo_exp.trackers.subprocess_run import SubprocessRun, TrackerError
from elo_exp.types import Positive

if TYPE_CHECKING:
    import wandb

logger = logging.getLogger(__name__)

Mode = Literal["online", "offline", "disabled"]
_MODE_BY_WORD = {"online": "online", "run": "online", "offline": "offline"}
_MODE_BY_WORD |= {"dryrun": "offline", "disabled": "disabled"}
# Limits of the server
_MAX_NAME_CHARS, _MAX_TAG_CHARS = 128, 64
_HISTOGRAM_BINS = 40
_SECONDS_METRIC = "progress/seconds"
_PAGE_NAME = "report"
_SDK_GRACE_S, _OFFLINE_TIMEOUT_S = 10.0, 600.0
_STATS_INTERVAL_S = 15.0
_MB = 1_000_000
_COLLECTION_NAME = re.compile(r"([^/:]+/){1,2}[^/:]+")
# Projects whose server failed an earlier job of this process
_failed_projects: set[str] = set()


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
        if self.registry is not None and not _COLLECTION_NAME.fullmatch(self.registry):
            raise SettingError.bad_value(
                "registry",
                self.registry,
                "be REGISTRY/COLLECTION, such as wandb-registry-elo_exp/leaderboard, or null",
            )

    def check(self) -> None:
        """Raise SettingError for a mode that there is not."""
        self._choose_mode()

    @property
    def is_online(self) -> bool:
        return self._choose_mode() == "online"

    def open(self, info: RunInfo) -> TrackedRun:
        """Start an online run, or an offline one where the server does not take it.

        Disabled, nothing is logged and wandb is not imported, which takes longer than a small run.
        """
        mode = self._choose_mode()
        return NullRun() if mode == "disabled" else _FallbackRun(self, info, mode)

    def open_here(self, info: RunInfo, mode: Mode) -> TrackedRun:
        """Start a run in this process.

        Raises TrackerError if the server does not take it, and SettingError for a setting that Weights & Biases refuses.
        """
        import wandb

        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
            os.environ.setdefault(name, str(_copies_folder(info)))
        try:
            run = self._init_run(info, mode)
        except wandb.errors.CommError as error:
            raise TrackerError(str(error).partition("\n")[0]) from None
        except (wandb.errors.UsageError, ValueError) as error:
            # pydantic names the setting in line 2, the fault in line 3
            lines = str(error).splitlines()
            reason = ": ".join(line.strip() for line in lines[1:3]) or lines[0]
            reason = reason.partition(" [type=")[0].replace("Input should", "it must")
            raise SettingError(
                f"Weights & Biases refuses a setting ({reason}).",
                "  Check the settings tracker.* and the environment variables WANDB_*.",
            ) from None
        return _WandbRun(run, info, self.wait_s, self.registry)

    def _init_run(self, info: RunInfo, mode: Mode) -> wandb.Run:
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
            run_name=_shorten(info.name, _MAX_NAME_CHARS),
            run_tags=tuple(_shorten(tag, _MAX_TAG_CHARS) for tag in info.tags),
            root_dir=str(info.run_dir),
            init_timeout=self.wait_s,
            finish_timeout=self.wait_s if mode == "online" else 0,  # 0: no limit
            finish_timeout_raises=True,
            console="off",
            program="-m elo_exp",
            x_disable_stats=not with_stats,
            x_stats_sampling_interval=_STATS_INTERVAL_S,
            x_stats_pid=os.getppid(),  # this process only logs
        )
        return wandb.init(
            mode=mode, settings=settings, config={**info.config, **info.labels}
        )

    def _choose_mode(self) -> Mode:
        requested = _read_mode_variable() if self.mode == "auto" else self.mode
        if requested in ("disabled", "offline"):
            return requested
        is_online = (
            requested == "online" or _has_key()
        ) and self.project not in _failed_projects
        return "online" if is_online else "offline"


def _copies_folder(info: RunInfo) -> Path:
    """Return the folder of the SDK's logs and copies of uploads. It deletes no copy, which would fill the user's home."""
    name = f"copies-{info.id}".rstrip("-")
    return info.run_dir.absolute() / "wandb" / name


def _read_mode_variable() -> Mode | None:
    """Return the mode in WANDB_MODE. Raises SettingError for an unknown word."""
    word = os.environ.get("WANDB_MODE")
    if not word:
        return None
    if word.lower() not in _MODE_BY_WORD:
        raise SettingError.bad_value(
            "WANDB_MODE",
            word,
            "be online, offline or disabled",
            "  Unset it, or set tracker.mode.",
        )
    return cast(Mode, _MODE_BY_WORD[word.lower()])


class _FallbackRun:
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

    def _open(self, mode: Mode) -> SubprocessRun:
        return SubprocessRun(
            functools.partial(self._tracker.open_here, self._info, mode),
            sdk="wandb",
            # as long as the SDK has been told to wait, and some; files alone take what they take
            limit_s=self._tracker.wait_s + _SDK_GRACE_S
            if mode == "online"
            else _OFFLINE_TIMEOUT_S,
        )

    def _delete_copies(self) -> None:
        shutil.rmtree(_copies_folder(self._info) / "artifacts", ignore_errors=True)

    def _set_aside(self) -> None:
        self._delete_copies()
        if self._info.id:
            folder = self._info.run_dir
            for piece in sorted(folder.glob(f"wandb/*run-*-{self._info.id}")):
                archive_earlier_attempt(folder, piece)

    def _go_offline(self, reason: str, *, is_open: bool = True) -> None:
        explanation = _explain_lost_server(
            reason, self._tracker.wait_s, is_open=is_open
        )
        logger.warning("warning: %s", explanation)
        _failed_projects.add(self._tracker.project)
        self._set_aside()
        calls, self._calls = self._calls or (), None
        self._run = self._open("offline")
        for name, arguments in calls:
            self._run.call(name, **arguments)

    @property
    def where(self) -> str | None:
        texts_sent = (
            describe_uploaded_texts(self._tracker) if self._calls is not None else None
        )
        return f"{self._run.where} ({texts_sent})" if texts_sent else self._run.where

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
            needed_mb = 100 * math.ceil(n_bytes / _MB / 100)
            logger.warning(
                "warning: %s has %d MB and stays here; tracker.max_mb=%d sends it.",
                files.name,
                n_bytes / _MB,
                needed_mb,
            )
            return
        self._call("log_files", files=files)

    def _call(self, name: str, **arguments: Any) -> None:
        if self._calls is None:
            self._run.call(name, **arguments)
            return
        self._calls.append((name, arguments))
        if self._run.failure:
            self._run.end()
            self._go_offline(self._run.failure)
        else:
            self._run.call(name, **arguments)

    def close(self, exit_code: int, notes: str) -> None:
        arguments = {"exit_code": exit_code, "notes": notes}
        try:
            output = self._run.close(**arguments)
            if self._calls is not None:
                if upload_failure := _UPLOAD_FAILED.search(output):
                    raise TrackerError(upload_failure[1])
                self._delete_copies()
        except TrackerError as error:
            if self._calls is None:
                raise
            self._go_offline(str(error))
            self._run.close(**arguments)


# Words of the SDK for failures that it prints and does not raise
_UPLOAD_FAILED = re.compile(
    r"wandb: (?:WARNING|ERROR) (Fatal error while uploading data)"
)
_TIMEOUT = re.compile(
    "timed out|timeout|deadline exceeded|not done within|in time", re.I
)
_REFUSAL = re.compile(
    r"permission|denied|forbidden|unauthori|credentials|invalid|\b40[0-9]\b", re.I
)


def _extract_reason(reason: str) -> str:
    """Return the reason of an error, in the server's words if it gave some."""
    if message := re.search(r'"message": ?"([^"]+)"', reason):
        return message[1].rstrip(".")
    return re.sub(r"^\w+(?:Error|Exception): ", "", reason).rstrip(".")


def _explain_lost_server(reason: str, wait_s: float, *, is_open: bool) -> str:
    """Tell a server that refuses from one that does not answer, and say what to do."""
    offline = "This run and those that follow are logged offline"
    if _TIMEOUT.search(reason):
        failure = "has not taken the whole run" if is_open else "does not answer"
        return (
            f"Weights & Biases {failure} within {wait_s:g} s (tracker.wait_s). {offline}; once it "
            "does, upload them with wandb sync."
        )
    if _REFUSAL.search(reason):
        return (
            f"Weights & Biases refuses the run ({_extract_reason(reason)}). {offline}; check "
            "WANDB_API_KEY, tracker.entity and tracker.project, and upload them with wandb sync."
        )
    return (
        f"Weights & Biases does not answer ({_extract_reason(reason)}). {offline}; once it does, upload "
        "them with wandb sync."
    )


def _shorten(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


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
        earlier_seconds = self._summary.get(_SECONDS_METRIC) if run.resumed else None
        self._seconds = float(earlier_seconds or 0.0)

    @property
    def where(self) -> str | None:
        if self._run.offline:
            return f"W&B, offline. Upload: wandb sync {' '.join(self._list_pieces())}"
        return self._run.url

    def _list_pieces(self) -> Iterator[str]:
        """Name those of the jobs that have ended, and of the run itself: by patterns, where these match no others.

        One that was cut off, as a killed job's, keeps `wandb sync` from sending any.
        """
        ids = (*self._jobs, str(self._run.id))
        for pattern in ("[0-9]*/wandb/offline-*", "wandb/offline-*"):
            all_pieces = sorted(self._run_dir.glob(pattern))
            whole_pieces = [piece for piece in all_pieces if piece.name.endswith(ids)]
            if all_pieces and whole_pieces == all_pieces:
                yield f"{os.path.relpath(self._run_dir)}/{pattern}"
            else:
                yield from map(os.path.relpath, whole_pieces)

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
            name, step_value = step
            step_value += self._seconds if name == _SECONDS_METRIC else 0.0
            self._run.log({name: step_value, **metrics})
            return
        scalars = {k: v for k, v in metrics.items() if isinstance(v, float | int | str)}
        self._run.summary.update(scalars)
        self._logged |= metrics.keys()
        if scalars.get("judge/caution"):
            self._add_tag("caution")
        media = {k: self._to_media(v) for k, v in metrics.items() if k not in scalars}
        if media:
            self._run.log(media)

    def _to_media(self, value: Value) -> Any:
        import wandb

        if isinstance(value, Plot):
            path = self._run_dir / f"figures/{value.name}.png"
            return wandb.Image(str(path), caption=value.caption)
        if isinstance(value, Histogram):
            return wandb.Histogram(value.values, num_bins=_HISTOGRAM_BINS)
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
            self._run.log({_PAGE_NAME: wandb.Html(page, inject=False)})

    def close(self, exit_code: int, notes: str) -> None:
        self._run.notes = notes
        if exit_code:
            self._add_tag("failed")
        elif self._run.resumed:
            self._delete_stale_summary()
        if not self._run.offline:
            for artifact in self._artifacts:  # of which finish() reports no failure
                artifact.wait(timeout=math.ceil(self._wait_s))
        if self._registry and self._leaderboard:
            self._link_to_registry(self._leaderboard, self._registry)
        self._run.finish(exit_code=exit_code)

    def _link_to_registry(self, leaderboard: wandb.Artifact, registry: str) -> None:
        """Link the leaderboard to a registry; warn if that fails, since it is no reason to lose the run."""
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

    def _add_tag(self, tag: str) -> None:
        self._run.tags = (*(self._run.tags or ()), tag)

    def _delete_stale_summary(self) -> None:
        """Delete what only an earlier attempt, which may have been killed, has left in the summary."""
        current_names = {*self._logged, _PAGE_NAME}
        for name in [*self._summary.keys()]:
            # the points of a chart are a table beside it
            if (
                not name.startswith("_")
                and not {name, name.removesuffix("_table")} & current_names
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
