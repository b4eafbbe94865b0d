"""manifest.json: what ran, on what, with what; written at the start, and completed at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from elo_exp import HOME, __version__
from elo_exp.files import sha256, utc_now, write_json
from elo_exp.models import checkpoints
from elo_exp.store.usage import DOLLARS, Usage, added_up, paid
from elo_exp.trackers import RunInfo

logger = logging.getLogger(__name__)

_PACKAGES = (
    "hydra-core",
    "omegaconf",
    "numpy",
    "matplotlib",
    "wandb",
    "anthropic",
    "torch",
    "transformers",
    "peft",
)


class Manifest:
    """A context manager. A manifest whose `finished_at` is null belongs to a run that did not finish."""

    def __init__(
        self,
        info: RunInfo,
        usage: Usage,
        inputs: Mapping[str, Path],
        weights: Mapping[str, Sequence[Path]],
    ) -> None:
        """The files and folders that decide what the run concludes are hashed before it begins.

        weights  files that models are loaded from, by the part that is the model
        """
        self._usage = usage
        input_paths = _each_once(inputs)
        config = info.config
        self.path = info.run_dir / "manifest.json"
        earlier = _read(self.path)
        self._content: dict[str, Any] = {
            "experiment": info.job_type,
            "mode": config.get("mode", {}).get("name"),
            "n_perms": config.get("elo", {}).get("n_perms"),
            "shuffle_seed": config.get("elo", {}).get("seed"),
            "pilot_seed": config.get("mode", {}).get("pilot_seed"),
            "started_at": utc_now(),
            "finished_at": None,
            "error": None,
            "usage": None,
            "paid_before": _paid_before(earlier),
            "overrides": list(info.overrides),
            "git_commit": _git_commit(),
            "versions": _versions(),
            "input_paths": input_paths,
            "input_hashes": input_hashes(input_paths),
            "weights": {
                name: checkpoints.hashes(paths, Path(config["cache_dir"]))
                for name, paths in weights.items()
                if paths
            },
            "files": earlier.get("files") or [],  # until the run has written its own
            "config": config,
        }

    def __enter__(self) -> Self:
        write_json(self.path, self._content)
        return self

    @property
    def content(self) -> dict[str, Any]:
        """What the file would say now."""
        return self._content | {"usage": dataclasses.asdict(self._usage)}

    def complete(self, facts: Mapping[str, Any]) -> None:
        """What the run found; goes to the file when the run ends."""
        self._content |= facts

    def wrote(self, paths: Sequence[Path]) -> None:
        """What the run has left in its folder. Files of an earlier run there that are none of these are set aside in
        `earlier/`: whoever reads the folder would take them for this run's. What this run has read stays."""
        folder = self.path.parent
        files = sorted(path.relative_to(folder).as_posix() for path in paths)
        read = [Path(path).resolve() for path in self._content["input_paths"].values()]
        left = [
            folder / name
            for name in set(self._content["files"]) - set(files)
            if ".." not in Path(name).parts
        ]
        left = [
            path
            for path in left
            if path.is_file() and not any(map(path.resolve().is_relative_to, read))
        ]
        for path in left:
            aside = folder / "earlier" / path.relative_to(folder)
            aside.parent.mkdir(parents=True, exist_ok=True)
            path.replace(aside)
            with contextlib.suppress(OSError):  # where others are left in it
                path.parent.rmdir()
        if left:
            logger.warning(
                "warning: %d files of an earlier run in %s are now in its earlier/",
                len(left),
                folder,
            )
        self._content["files"] = files

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._content["usage"] = dataclasses.asdict(self._usage)
        if error is None:
            self._content["finished_at"] = utc_now()
        else:
            self._content["error"] = f"{type(error).__name__}: {error}"
        write_json(self.path, self._content)


def _read(path: Path) -> dict[str, Any]:
    """The manifest of an earlier run in the same folder; empty where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _paid_before(earlier: Mapping[str, Any]) -> dict[str, Any] | None:
    """What earlier attempts have paid, by the manifest of the last; None where that is nothing."""
    try:
        total = added_up([earlier.get("paid_before"), earlier.get("usage")])
    except (ValueError, AttributeError):
        return None
    return (
        {name: total[name] for name in DOLLARS if name in total}
        if paid(total)
        else None
    )


def _each_once(inputs: Mapping[str, Path]) -> dict[str, str]:
    """Each path under the first of its names."""
    names: dict[str, str] = {}
    for name, path in inputs.items():
        names.setdefault(str(path), name)
    return {name: path for path, name in names.items()}


def input_hashes(paths: Mapping[str, str]) -> dict[str, str]:
    """The SHA-256 of each file that is there, and of a folder that of the names in it: what is added is noticed."""
    found = {}
    for name, path in ((name, Path(path)) for name, path in paths.items()):
        if path.is_file():
            found[name] = sha256(path)
        elif path.is_dir():
            names = sorted(
                inside.name
                for inside in path.iterdir()
                if not inside.name.startswith(".")
            )
            found[name] = hashlib.sha256(
                "\0".join(names).encode(errors="surrogateescape")
            ).hexdigest()
    return found


@functools.cache
def _versions() -> dict[str, str]:
    found = {"elo_exp": __version__, "python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def _git_commit() -> str | None:
    """The commit of the checkout, with '+changes' where the tree differs from it; None outside one."""
    if not (HOME / ".git").exists():
        return None
    try:
        commit = _git("rev-parse", "HEAD")
        return (
            f"{commit}+changes"
            if _git("status", "--porcelain", "--untracked-files=no")
            else commit
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(HOME), *arguments]
    return subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.strip()
