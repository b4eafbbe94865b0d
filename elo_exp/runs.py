"""Run folders: the manifest that a run writes, and finished runs read back.

manifest.json says what ran and on what. It is written at the start and completed at the end.
What is read from a run folder is data: nothing in it is imported or resolved.
"""

import contextlib
import dataclasses
import functools
import glob
import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from elo_exp import HOME, __version__
from elo_exp.data.battles import Battles
from elo_exp.files import read_json, read_jsonl, sha256, utc_now, write_json
from elo_exp.models import checkpoints
from elo_exp.ratings.leaderboard import Rating
from elo_exp.records import Battle, UserError
from elo_exp.store.usage import DOLLARS, Usage, added_up, paid
from elo_exp.trackers import RunInfo

logger = logging.getLogger(__name__)

# Writing

_PACKAGES = (
    *("hydra-core", "omegaconf", "numpy", "matplotlib", "wandb", "anthropic"),
    *("torch", "transformers", "peft"),
)


@contextlib.contextmanager
def manifest(
    info: RunInfo,
    usage: Usage,
    inputs: Mapping[str, Path],
    weights: Mapping[str, Sequence[Path]],
) -> Iterator[dict[str, Any]]:
    """Write the manifest of a run when the context begins and when it ends; in between it is yours.

    A manifest whose `finished_at` is null belongs to a run that did not finish.

    inputs   files and folders that decide what the run concludes; they are hashed
    weights  files that models are loaded from, by the part that is the model
    """
    names: dict[str, str] = {}  # the first name of each path
    for name, path in inputs.items():
        names.setdefault(str(path), name)
    input_paths = {name: path for path, name in names.items()}
    versions = {"elo_exp": __version__, "python": sys.version.split()[0]}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    config, earlier = info.config, manifest_if_any(info.run_dir)
    total = added_up([earlier.get("paid_before"), earlier.get("usage")])
    paid_before = {name: total[name] for name in DOLLARS if name in total}
    content: dict[str, Any] = {
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
        "paid_before": paid_before if paid(total) else None,
        "overrides": list(info.overrides),
        "config_path": ".hydra/config.yaml",
        "git_commit": _git_commit(),
        "versions": versions,
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
    path = write_json(info.run_dir / "manifest.json", content)
    try:
        yield content
    except BaseException as error:
        content["error"] = f"{type(error).__name__}: {error}"
        raise
    else:
        content["finished_at"] = utc_now()
    finally:
        content["usage"] = dataclasses.asdict(usage)
        write_json(path, content)


def name_files(content: dict[str, Any], run_dir: Path, paths: Sequence[Path]) -> None:
    """Name in a manifest the files that the run has left in its folder.

    Other files of an earlier run there are moved to `earlier/`, except those that this run has
    read.
    """
    folder = run_dir.resolve()
    files = {path.resolve().relative_to(folder).as_posix() for path in paths}
    read = [Path(path).resolve() for path in content["input_paths"].values()]
    n_moved = 0
    for name in set(content["files"]) - files:
        path = (folder / name).resolve()
        is_here = path.is_file() and path.is_relative_to(folder)
        if is_here and not any(map(path.is_relative_to, read)):
            aside = folder / "earlier" / path.relative_to(folder)
            aside.parent.mkdir(parents=True, exist_ok=True)
            path.replace(aside)
            n_moved += 1
    if n_moved:
        logger.warning(
            "warning: %d files of an earlier run in %s are now in its earlier/",
            n_moved,
            run_dir,
        )
    content["files"] = sorted(files)


def input_hashes(paths: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of each file that is there; of a folder, that of the names in it."""
    found = {}
    for name, path in paths.items():
        if Path(path).is_file():
            found[name] = sha256(Path(path))
        elif Path(path).is_dir():
            inside = sorted(p.name for p in Path(path).iterdir() if p.name[0] != ".")
            names = "\0".join(inside).encode(errors="surrogateescape")
            found[name] = hashlib.sha256(names).hexdigest()
    return found


@functools.cache
def _git_commit() -> str | None:
    """The commit of the checkout, with '+changes' where the tree differs; None outside one."""
    if not (HOME / ".git").exists():
        return None
    options = ("--always", "--exclude=*", "--abbrev=40", "--dirty=+changes")
    command = ["git", "-C", str(HOME), "describe", *options]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(
            command, text=True, stderr=subprocess.DEVNULL
        ).strip()
    return None


# Reading


class _Checked(BaseModel):
    """The parts of a manifest that others read; every one may be absent."""

    config: dict[str, Any] = {}
    overrides: list[str] = []
    finished_at: str | None = None
    started_at: str | None = None
    error: str | None = None
    headline: float | None = None
    entrants: list[str] = []
    usage: dict[str, Any] | None = None
    paid_before: dict[str, Any] | None = None
    versions: dict[str, str | None] = {}
    files: list[str] = []
    input_paths: dict[str, str] = {}
    input_hashes: dict[str, str] = {}
    weights: dict[str, dict[str, str]] = {}
    judge_quality: list[dict[str, Any]] = []


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return manifest.json as data. Raises UserError where no run wrote it."""
    path = folder / "manifest.json"
    found: dict[str, Any] = read_json(path)
    try:
        _Checked.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f" as {key}" for key in first["loc"][:1])
        raise UserError(
            f"{path}: found {first['input']!r}{where}. Expected what a run wrote."
        ) from None
    return found


def manifest_if_any(folder: Path) -> dict[str, Any]:
    """Return the same, empty where there is none that can be read."""
    try:
        return read_manifest(folder)
    except UserError:
        return {}


def settings(folder: Path) -> dict[str, Any]:
    """Return the configuration of a run without any `_target_`. Raises UserError."""
    found = read_manifest(folder).get("config")
    if not found:
        raise UserError(f"found no settings in {folder}. Expected the folder of a run.")
    plain: dict[str, Any] = json.loads(
        json.dumps(found),
        object_hook=lambda node: {k: v for k, v in node.items() if k != "_target_"},
    )
    return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """What a run that rates left in its folder.

    name    the end of its path, as much as tells it from the others
    boards  by dimension and method, as ratings.json has them; none of an oracle run
    """

    name: str
    folder: Path
    manifest: Mapping[str, Any]
    boards: Mapping[str, Mapping[str, Mapping[str, Any]]]

    def primary(self, dimension: str) -> str:
        """Return the method that leads: Bradley-Terry, or what was chosen instead, or Elo."""
        methods = [m for m in self.boards.get(dimension, {}) if m != "elo"]
        return "bradley_terry" if "bradley_terry" in methods else [*methods, "elo"][0]

    def stored(self, method: str, dimension: str) -> Mapping[str, Any]:
        """Return a leaderboard as ratings.json has it; empty where the run has none."""
        return self.boards.get(dimension, {}).get(method, {})

    def board(self, method: str, dimension: str) -> dict[str, Rating]:
        """Return the ratings by model, best first; those without a rating last."""
        rows = self.stored(method, dimension).get("ratings", ())
        return {row["model"]: Rating.from_dict(row) for row in rows}

    def battles(self) -> dict[str, Battles]:
        """Return the battles by dimension; none where the run wrote no battles.jsonl.

        Battles that name no dimension are of the only one. Raises UserError for a row that is no
        battle.
        """
        path = self.folder / "battles.jsonl"
        found: dict[str, list[Battle]] = {}
        for place, row in read_jsonl(path) if path.is_file() else ():
            try:
                battle = Battle.from_dict(row)
            except KeyError as error:
                raise UserError(
                    f"{place}: has no {error}. Expected a battle, as the run wrote it."
                ) from None
            dimension = battle.dimension or next(iter(self.boards))
            found.setdefault(dimension, []).append(battle)
        return {dimension: Battles.from_rows(rows) for dimension, rows in found.items()}

    def headlines(self) -> dict[str, Mapping[str, Any]]:
        """Return the headline's row of estimates.json by policy; none where the run has no such."""
        path = self.folder / "estimates.json"
        rows = read_json(path) if path.is_file() else []
        return {row["policy"]: row for row in rows if row.get("headline")}

    def influences(self) -> Mapping[str, Any]:
        """Return influences.json: by policy, the value compared and its influence by prompt."""
        path = self.folder / "influences.json"
        found: Mapping[str, Any] = read_json(path) if path.is_file() else {}
        return found

    def responses(self, entrant: str) -> dict[str, str]:
        """Return the texts by prompt; none of an entrant that did not answer in this run."""
        path = self.folder / "responses" / f"responses_{entrant}.jsonl"
        rows = read_jsonl(path) if path.is_file() else ()
        return {row["prompt_id"]: row["response_text"] for _, row in rows}


def read(
    chosen: Sequence[str], *, with_oracle: bool = False
) -> tuple[list[FinishedRun], list[str]]:
    """Return the runs of these folders, each once, and why others were left out.

    A sweep stands for its jobs, a pattern (*, ?) for the folders that match; what is not a finished
    run with ratings among them, or where asked one of the oracle, is left out. Raises UserError where
    such a folder is named.
    """
    found: dict[Path, tuple[dict[str, Any], dict[str, Any]]] = {}
    left_out = []
    for entry in chosen:
        for folder in _expanded(entry):
            try:
                found[folder.resolve()] = _content(folder, with_oracle)
            except UserError as error:
                if folder == Path(entry):
                    raise UserError(f"runs: {error}") from None
                left_out.append(str(error))
    runs = [
        FinishedRun(name=name, folder=folder, manifest=manifest, boards=boards)
        for name, (folder, (manifest, boards)) in zip(
            _names(list(found)), found.items(), strict=True
        )
    ]
    return runs, left_out


def _expanded(entry: str) -> list[Path]:
    """The folders of runs that an entry stands for, or the entry itself."""
    matches = [entry] if Path(entry).exists() else sorted(glob.glob(entry))  # noqa: PTH207 (an absolute pattern too)
    folders = [
        folder
        for match in map(Path, matches)
        for folder in sweep_jobs(match) or [match]
        if (folder / "manifest.json").is_file()
    ]
    return folders or [Path(entry)]


def sweep_jobs(folder: Path) -> list[Path]:
    """Return the folders of a sweep's jobs in their order; none of any other folder."""
    if not folder.is_dir() or (folder / "manifest.json").exists():
        return []
    jobs = (path for path in folder.iterdir() if path.name.isdigit() and path.is_dir())
    return sorted(jobs, key=lambda path: int(path.name))


def _content(folder: Path, with_oracle: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest and the boards. Raises UserError where the run has not finished with both."""
    if not (folder / "manifest.json").is_file():
        raise UserError(
            f"found no manifest.json in {folder}. Name the folder that a run printed."
        )
    manifest = read_manifest(folder)
    if not manifest.get("finished_at"):
        why = manifest.get("error") or "it was stopped"
        raise UserError(
            f"{folder} did not finish ({why}). Give its command again, or leave it out."
        )
    path = folder / "ratings.json"
    if with_oracle and (folder / "estimates.json").is_file():
        return manifest, {}
    if not path.is_file():
        kind = manifest.get("experiment")
        raise UserError(
            f"{folder} has no ratings to compare, being of experiment={kind}. Expected tournament, "
            "rate, arena or oracle."
        )
    try:
        boards = read_json(path)["dimensions"]
        for by_method in boards.values():
            for board in by_method.values():
                for row in board["ratings"]:
                    Rating.from_dict(row)
    except (AttributeError, KeyError, TypeError):
        raise UserError(
            f"{path} has no ratings by dimension. Expected what a run wrote."
        ) from None
    return manifest, boards


def _names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that differ."""
    for n in range(1, 1 + max((len(folder.parts) for folder in folders), default=0)):
        names = ["/".join(folder.parts[-n:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return []


def differing(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the nested settings that are not the same in all runs, as path -> run -> value.

    None stands for a setting that a run does not have; of a group that only some runs have, such as
    an entrant, that they have it.
    """
    if all(isinstance(value, Mapping) for value in values.values()):
        keys = dict.fromkeys(key for value in values.values() for key in value)
        found = {
            key: differing({run: value.get(key) for run, value in values.items()})
            for key in keys
        }
        return {
            f"{key}.{path}".rstrip("."): by
            for key, inside in found.items()
            for path, by in inside.items()
        }
    if len({json.dumps(value) for value in values.values()}) == 1:
        return {}
    shown = {
        run: "chosen" if isinstance(value, Mapping) else value
        for run, value in values.items()
    }
    return {"": shown}
