"""What a run writes of itself: manifest.json says what ran and on what.

It is written at the start and completed at the end.
"""

import contextlib
import dataclasses
import functools
import hashlib
import logging
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from elo_exp.errors import FileError, UserError, name_error
from elo_exp.files import sha256, utc_now, write_json
from elo_exp.masking import is_secret_name
from elo_exp.models import checkpoints
from elo_exp.paths import HOME
from elo_exp.records import make_fingerprint, storable_json
from elo_exp.runs.reading import manifest_if_any
from elo_exp.store.answer_store import Store
from elo_exp.store.usage import DOLLAR_FIELDS, Usage, sum_usages, total_dollars
from elo_exp.trackers import RunInfo
from elo_exp.version import __version__

logger = logging.getLogger(__name__)

_MAX_MANIFESTS_READ = 20
# Of runs that started in one second
_NUMBERS = [f"_{n}" for n in range(2, 1000)]
_ENVIRONMENT_REFERENCE = re.compile(r"\$\{oc\.env:([^,}]+)")
_RECORDED_PACKAGES = (
    *("hydra-core", "omegaconf", "numpy", "matplotlib", "wandb", "anthropic"),
    *("torch", "transformers", "peft"),
)


_FOLDERS_OF_TRACKERS = ("wandb", "tracker")

# Settings that change nothing of what a run concludes
SETTINGS_WITHOUT_EFFECT = (
    *("tracker", "figures", "resume", "cache_dir", "name", "headline", "plan", "caps"),
    *("downloads", "store", "wait_minutes"),
)


def claim_run_id(run_dir: Path, config: Mapping[str, Any]) -> str:
    """Return the id of the run of these settings in this folder, which every attempt has.

    It is made of the folder's token, which manifest.json keeps wherever the folder is moved, and of the
    settings that change what a run concludes. Paths tell no two machines apart that share a project.
    """
    manifest = manifest_if_any(run_dir)
    if not (token := manifest.get("token")):
        token = secrets.token_hex(4)
        write_json(
            run_dir / "manifest.json", {"finished_at": None, **manifest, "token": token}
        )
    return _run_id(token, config, fingerprint_environment(config))


def set_aside_other_run(
    run_dir: Path, config: Mapping[str, Any], inputs: Mapping[str, Path]
) -> Path | None:
    """Move the files of a finished run to `earlier/TIME/` if this run has other settings or other inputs.

    The folder keeps its token and its bill. Files that this run reads are copied instead.

    Parameters
    ----------
    run_dir
        Folder of this run.
    config
        Settings of this run.
    inputs
        Files and folders that this run reads, by name.

    Returns
    -------
    Path or None
        Where the finished run is now; None if the folder holds no other finished run.
    """
    manifest = manifest_if_any(run_dir)
    token, started_at = manifest.get("token"), str(manifest.get("started_at"))
    if not (manifest.get("finished_at") and token):
        return None
    id_now = _run_id(str(token), config, fingerprint_environment(config))
    hashes_now = input_hashes({name: str(path) for name, path in inputs.items()})
    hashes_before = (manifest.get("input_hashes") or {}).values()
    is_same_run = run_id(run_dir, manifest) == id_now
    if is_same_run and set(hashes_now.values()) == set(hashes_before):
        return None
    folder = run_dir.resolve()
    time = re.sub(r"[^0-9T-]", "-", started_at[:19])
    # Two runs may have started in one second
    targets = (folder / "earlier" / f"{time}{n}" for n in ("", *_NUMBERS))
    target = next(path for path in targets if not path.exists())
    paths_read = [Path(path).resolve() for path in inputs.values()]
    for name in ["manifest.json", *_FOLDERS_OF_TRACKERS, *manifest.get("files", [])]:
        path = (folder / name).resolve()
        if not (path.exists() and path.is_relative_to(folder)):
            continue
        moved_path = target / path.relative_to(folder)
        moved_path.parent.mkdir(parents=True, exist_ok=True)
        if any(map(path.is_relative_to, paths_read)):
            shutil.copy2(path, moved_path)
        else:
            shutil.move(path, moved_path)
    bill = {name: manifest.get(name) for name in ("token", "usage", "paid_before")}
    write_json(folder / "manifest.json", {"finished_at": None, **bill})
    return target


def run_id(run_dir: Path, manifest: Mapping[str, Any]) -> str:
    """Return the id that trackers have of a run whose manifest is read back. Raises FileError where it had none."""
    token = manifest.get("token")
    if not isinstance(token, str) or not re.fullmatch("[0-9a-f]{8}", token):
        raise FileError.bad_file(
            f"{run_dir}/manifest.json",
            "has no token, which identifies the run for a tracker",
            "Run the run's command again.",
        )
    variables = manifest.get("environment") or {}
    return _run_id(token, manifest.get("config") or {}, variables)


def _run_id(
    token: str, config: Mapping[str, Any], variables: Mapping[str, str | None]
) -> str:
    settings = {
        name: v for name, v in config.items() if name not in SETTINGS_WITHOUT_EFFECT
    }
    if variables:
        settings["environment"] = variables
    return f"{token}-{make_fingerprint(settings)[:8]}"


def fingerprint_environment(config: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the variables that a configuration names, each with a fingerprint of its value: another value is another run.

    None for a secret, which may be renewed, and for a variable that is not set.
    """
    names = sorted(set(_ENVIRONMENT_REFERENCE.findall(storable_json(config))))
    return {
        name: make_fingerprint(os.environ[name])[:12]
        if name in os.environ and not is_secret_name(name)
        else None
        for name in names
    }


@contextlib.contextmanager
def run_manifest(
    info: RunInfo,
    usage: Usage,
    inputs: Mapping[str, Path],
    weights: Mapping[str, Sequence[Path]],
    store: Store,
) -> Iterator[dict[str, Any]]:
    """Write the manifest of a run when the context begins and when it ends; in between it is yours.

    A manifest whose `finished_at` is null belongs to a run that did not finish.

    inputs   files and folders that decide what the run concludes; they are hashed
    weights  files that models are loaded from, by the part that is the model
    store    whose count of answers is noted, by which a later run sees that it has gone back
    """
    names: dict[str, str] = {}  # the first name of each path
    for name, path in inputs.items():
        names.setdefault(str(path), name)
    input_paths = {name: path for path, name in names.items()}
    versions = {"elo_exp": __version__, "python": sys.version.split()[0]}
    for package in _RECORDED_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    config, earlier = info.config, manifest_if_any(info.run_dir)
    total = sum_usages([earlier.get("paid_before"), earlier.get("usage")])
    paid_before = {name: total[name] for name in DOLLAR_FIELDS if name in total}
    content: dict[str, Any] = {
        "token": earlier.get("token"),
        "experiment": info.job_type,
        "group": info.group,
        "mode": config.get("mode", {}).get("name"),
        "n_perms": config.get("elo", {}).get("n_perms"),
        "shuffle_seed": config.get("elo", {}).get("seed"),
        "pilot_seed": config.get("mode", {}).get("pilot_seed"),
        "started_at": utc_now(),
        "finished_at": None,
        "error": None,
        "usage": None,
        "store": _count_answers(store),
        "paid_before": paid_before if total_dollars(total) else None,
        "overrides": list(info.overrides),
        "config_path": ".hydra/config.yaml",
        "git_commit": _read_git_commit(),
        "versions": versions,
        "input_paths": input_paths,
        "input_hashes": input_hashes(input_paths),
        "weights": {
            name: checkpoints.hash_files(paths, Path(config["cache_dir"]))
            for name, paths in weights.items()
            if paths
        },
        "files": earlier.get("files") or [],  # until the run has written its own
        "config": config,
        **(
            {"environment": variables}
            if (variables := fingerprint_environment(config))
            else {}
        ),
    }
    path = write_json(info.run_dir / "manifest.json", content)
    try:
        yield content
    except BaseException as error:
        content["error"] = f"{name_error(error)}: {error}"
        raise
    else:
        content["finished_at"] = utc_now()
    finally:
        content["usage"] = dataclasses.asdict(usage)
        with contextlib.suppress(UserError):  # a store that cannot be read any more
            content["store"] = _count_answers(store)
        write_json(path, content)


def _count_answers(store: Store) -> dict[str, Any]:
    return {"id": store.identity, "n_answers": store.n_answers_ever()}


def count_answers_ever(run_dir: Path, store: Store) -> tuple[int, int]:
    """Return how many answers a store ever had by the manifests of a run folder and of the latest beside it, and how many
    it has had by its own count, which is less if it was brought back from a copy."""
    n_now, n_recorded = store.n_answers_ever(), 0
    manifest_paths = list(run_dir.resolve().parent.glob("*/manifest.json"))
    latest = sorted(manifest_paths, key=_modified_at, reverse=True)[
        :_MAX_MANIFESTS_READ
    ]
    for folder in {run_dir.resolve(), *(path.parent for path in latest)}:
        match manifest_if_any(folder).get("store"):
            case {"id": store.identity, "n_answers": int(n)}:
                n_recorded = max(n_recorded, n)
    return max(n_recorded, n_now), n_now


def _modified_at(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def record_files(content: dict[str, Any], run_dir: Path, paths: Sequence[Path]) -> None:
    """Name in a manifest the files that the run has left in its folder.

    Other files of an earlier run there are moved to `earlier/`, except those that this run has
    read.
    """
    folder = run_dir.resolve()
    files = {path.resolve().relative_to(folder).as_posix() for path in paths}
    paths_read = [Path(path).resolve() for path in content["input_paths"].values()]
    n_moved = 0
    for name in set(content["files"]) - files:
        path = (folder / name).resolve()
        is_here = path.is_file() and path.is_relative_to(folder)
        if is_here and not any(map(path.is_relative_to, paths_read)):
            target = folder / "earlier" / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
            n_moved += 1
    if n_moved:
        logger.warning(
            "warning: %d files of an earlier run in %s were moved to its folder earlier/",
            n_moved,
            run_dir,
        )
    content["files"] = sorted(files)


def input_hashes(paths: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of each file that is there; of a folder, that of the names in it."""
    hashes = {}
    for name, path in paths.items():
        if Path(path).is_file():
            hashes[name] = sha256(Path(path))
        elif Path(path).is_dir():
            file_names = sorted(
                p.name for p in Path(path).iterdir() if p.name[0] != "."
            )
            names = "\0".join(file_names).encode(errors="surrogateescape")
            hashes[name] = hashlib.sha256(names).hexdigest()
    return hashes


@functools.cache
def _read_git_commit() -> str | None:
    """Return the commit of the checkout, with '+changes' if the tree differs; None outside a checkout."""
    if not (HOME / ".git").exists():
        return None
    options = ("--always", "--exclude=*", "--abbrev=40", "--dirty=+changes")
    command = ["git", "-C", str(HOME), "describe", *options]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(
            command, text=True, stderr=subprocess.DEVNULL
        ).strip()
    return None
