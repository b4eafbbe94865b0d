"""Leaderboards that Weights & Biases keeps, fetched into folders that are read like those of runs.

An artifact is made by others: files of known names are taken, none is a reference to another place, and what is in
them is checked where it is read. The SDK works in a process of its own, which can be ended, and cannot ask for a key.
"""

import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from elo_exp.files import write_json
from elo_exp.records import UserError
from elo_exp.runs.lineage import BOARD
from elo_exp.runs.names import KEPT_AS
from elo_exp.runs.reading import SUMMARY

logger = logging.getLogger(__name__)

PREFIX = "wandb:"
_NAME = re.compile(r"[\w. -]+/[\w. -]+/[\w. -]+:[\w. -]+")
# The place of this package is that of the job, whatever the folder is that it works in
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from elo_exp.runs.fetching import main; main(*sys.argv[2:])"
)
_PATIENCE = 30.0  # seconds in which something has to arrive
_LOOK = 0.1  # seconds between two looks at what has arrived
_MB = 1_000_000
_MOST = 2_000 * _MB  # bytes of a leaderboard


def fetched(entries: Sequence[str], folder: Path) -> list[str]:
    """Return these entries with folders in place of the leaderboards that Weights & Biases keeps. Raises UserError."""
    return [
        str(fetch(entry, folder)) if entry.startswith(PREFIX) else entry
        for entry in entries
    ]


def fetch(entry: str, folder: Path, *, patience: float = _PATIENCE) -> Path:
    """Return the folder of a leaderboard, wandb:ENTITY/PROJECT/leaderboard:VERSION, below `folder`.

    What is there of it already is not fetched again. Raises UserError in a line, at the latest when nothing has arrived
    for `patience` seconds.
    """
    name = entry.removeprefix(PREFIX)
    if not _NAME.fullmatch(name) or ".." in name:
        raise UserError(
            f"runs: found {entry}. Expected wandb:ENTITY/PROJECT/leaderboard:VERSION, as "
            "wandb:me/elo_exp/leaderboard:v1, or an alias for the version."
        )
    logger.info("fetching %s", entry)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), name, str(folder)]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    arrived, since = 0, time.monotonic()
    try:
        while child.poll() is None:
            if (now := _size(folder)) != arrived:
                arrived, since = now, time.monotonic()
            if time.monotonic() - since > patience:
                raise _lost(entry, f"it does not answer within {patience:.0f} s")
            time.sleep(_LOOK)
        said, _ = child.communicate()
    finally:
        child.kill()
        child.wait()
    lines = said.splitlines()
    try:
        found: Mapping[str, str] = json.loads(lines[-1])
        place = found.get("folder")
        reason = found.get("reason", "")
    except (IndexError, ValueError, AttributeError):
        place, reason = None, f"its SDK ended with exit code {child.returncode}"
    if place is None:
        raise _lost(entry, reason)
    return Path(place)


def _lost(entry: str, reason: str) -> UserError:
    return UserError(
        f"runs: {entry} cannot be fetched from Weights & Biases ({reason}). Check the name and "
        "version, WANDB_API_KEY or `wandb login`, and the network."
    )


def _size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # one that has gone
            size += path.stat().st_size
    return size


def _fetch(name: str, folder: Path) -> Path:
    """In the process of its own. Raises ValueError for an artifact that is no leaderboard."""
    import wandb

    artifact = wandb.Api(timeout=int(_PATIENCE)).artifact(name)
    if artifact.type != "leaderboard":
        raise ValueError(f"it is an artifact of type {artifact.type}, no leaderboard")
    entries = artifact.manifest.entries
    chosen = [entries[name] for name in (*BOARD, SUMMARY) if name in entries]
    if any(entry.ref is not None for entry in chosen):
        raise ValueError("a file of it lies elsewhere")
    n_bytes = sum(entry.size or 0 for entry in chosen)
    if n_bytes > _MOST:
        raise ValueError(f"it has {n_bytes // _MB} MB, more than {_MOST // _MB}")
    entity, project, rest = name.split("/")
    if not re.fullmatch(r"v\d+", artifact.version):
        raise ValueError(f"its version is {artifact.version!r}")
    collection = rest.partition(":")[0]
    place = folder / entity / project / f"{collection}_{artifact.version}"
    for entry in chosen:
        taken = artifact.get_entry(entry.path)
        path = Path(taken.download(root=str(place), skip_cache=True))
        if path.stat().st_size != entry.size:
            raise ValueError(f"{entry.path} is not whole")
    version = f"{entity}/{project}/{collection}:{artifact.version}"
    write_json(place / KEPT_AS, {"name": version})
    return place


def main(name: str, folder: str) -> None:
    """Fetch it, and say in JSON where it is or why it is not."""
    try:
        answer = {"folder": str(_fetch(name, Path(folder)))}
    except Exception as error:  # of the SDK, its server, or the network
        first, *_ = str(error).splitlines() or [type(error).__name__]
        answer = {"reason": first.rstrip(".")}
    print(json.dumps(answer))
