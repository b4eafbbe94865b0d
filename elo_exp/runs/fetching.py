"""Leaderboards that Weights & Biases keeps, fetched into folders that are read like those of runs.

Other people make artifacts. So only files with known names are fetched, references to other places are refused, and
the readers check the contents. The SDK runs in a separate process, which can be ended and cannot ask for a key.
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

from elo_exp.errors import ServerError, SettingError, UserError
from elo_exp.files import may_write, write_json
from elo_exp.runs.lineage import LEADERBOARD_FILES
from elo_exp.runs.reading import SUMMARY_FILE
from elo_exp.runs.tracker_names import ARTIFACT_FILE

logger = logging.getLogger(__name__)

WANDB_PREFIX = "wandb:"
_ARTIFACT_NAME = re.compile(r"[\w. -]+/[\w. -]+/[\w. -]+:[\w. -]+")
# The place of this package is that of the job, whatever the folder is that it works in
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from elo_exp.runs.fetching import main; main(*sys.argv[2:])"
)
_STALL_TIMEOUT_S = 30.0
_POLL_S = 0.1
_MB = 1_000_000
_MAX_BYTES = 2_000 * _MB


def fetch_entries(entries: Sequence[str], folder: Path) -> list[str]:
    """Return these entries with folders in place of the leaderboards that Weights & Biases keeps. Raises as `fetch` does."""
    return [
        str(fetch(entry, folder)) if entry.startswith(WANDB_PREFIX) else entry
        for entry in entries
    ]


def fetch(entry: str, folder: Path, *, patience: float = _STALL_TIMEOUT_S) -> Path:
    """Return the folder of a leaderboard, wandb:ENTITY/PROJECT/leaderboard:VERSION, below `folder`.

    What is there of it already is not fetched again. Raises SettingError for an entry of another form, and ServerError at the
    latest when nothing has arrived for `patience` seconds.
    """
    name = entry.removeprefix(WANDB_PREFIX)
    if not _ARTIFACT_NAME.fullmatch(name) or ".." in name:
        raise SettingError(
            f"{entry} must be wandb:ENTITY/PROJECT/leaderboard:VERSION (runs). VERSION may be an alias. For example:",
            "  wandb:me/elo_exp/leaderboard:v1",
        )
    if not may_write():
        raise _build_fetch_error(entry, "a plan fetches nothing").mark_as_need(entry)
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
    n_bytes, last_arrival = 0, time.monotonic()
    try:
        while child.poll() is None:
            if (n_bytes_now := _measure_folder(folder)) != n_bytes:
                n_bytes, last_arrival = n_bytes_now, time.monotonic()
            if time.monotonic() - last_arrival > patience:
                raise _build_fetch_error(
                    entry, f"it does not answer within {patience:.0f} s"
                )
            time.sleep(_POLL_S)
        output, _ = child.communicate()
    finally:
        child.kill()
        child.wait()
    lines = output.splitlines()
    try:
        answer: Mapping[str, str] = json.loads(lines[-1])
        result_folder = answer.get("folder")
        reason = answer.get("reason", "")
    except (IndexError, ValueError, AttributeError):
        result_folder, reason = None, f"its SDK ended with exit code {child.returncode}"
    if result_folder is None:
        raise _build_fetch_error(entry, reason)
    return Path(result_folder)


def _build_fetch_error(entry: str, reason: str) -> UserError:
    return ServerError(
        f"{entry} cannot be fetched from Weights & Biases ({reason}).",
        "  Check the name and version, WANDB_API_KEY or `wandb login`, and the network.",
    )


def _measure_folder(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # one that has gone
            size += path.stat().st_size
    return size


def _download(name: str, folder: Path) -> Path:
    """Download a leaderboard, in the child process. Raises ValueError for an artifact that is no leaderboard."""
    import wandb

    artifact = wandb.Api(timeout=int(_STALL_TIMEOUT_S)).artifact(name)
    if artifact.type != "leaderboard":
        raise ValueError(
            f"it is an artifact of type {artifact.type}, not a leaderboard"
        )
    entries = artifact.manifest.entries
    wanted_entries = [
        entries[name] for name in (*LEADERBOARD_FILES, SUMMARY_FILE) if name in entries
    ]
    if any(entry.ref is not None for entry in wanted_entries):
        raise ValueError("one of its files is stored outside Weights & Biases")
    n_bytes = sum(entry.size or 0 for entry in wanted_entries)
    if n_bytes > _MAX_BYTES:
        raise ValueError(
            f"it has {n_bytes // _MB} MB, and at most {_MAX_BYTES // _MB} MB are fetched"
        )
    entity, project, versioned_name = name.split("/")
    if not re.fullmatch(r"v\d+", artifact.version):
        raise ValueError(f"its version is {artifact.version!r}")
    collection = versioned_name.partition(":")[0]
    target = folder / entity / project / f"{collection}_{artifact.version}"
    for entry in wanted_entries:
        entry_file = artifact.get_entry(entry.path)
        path = Path(entry_file.download(root=str(target), skip_cache=True))
        if path.stat().st_size != entry.size:
            raise ValueError(f"{entry.path} did not arrive whole")
    version = f"{entity}/{project}/{collection}:{artifact.version}"
    write_json(target / ARTIFACT_FILE, {"name": version})
    return target


def main(name: str, folder: str) -> None:
    """Fetch it, and say in JSON where it is or why it is not."""
    try:
        answer = {"folder": str(_download(name, Path(folder)))}
    except Exception as error:  # of the SDK, its server, or the network
        first_line, *_ = str(error).splitlines() or [type(error).__name__]
        answer = {"reason": first_line.rstrip(".")}
    print(json.dumps(answer))
