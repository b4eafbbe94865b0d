"""Finished runs, read back from their folders."""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp.files import read_jsonl
from elo_exp.ratings.leaderboard import Rating
from elo_exp.records import Battle, UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """What a run that rates left behind. `name`: the end of its path, as much as tells it from the others."""

    name: str
    folder: Path
    manifest: Mapping[str, Any]
    ratings: Mapping[str, Any]  # ratings.json

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(self.ratings["dimensions"])

    def board(self, method: str, dimension: str) -> dict[str, Rating]:
        """By model, best first; those without a rating last."""
        board = (
            self.ratings["dimensions"].get(dimension, {}).get(method, {"ratings": []})
        )
        return {row["model"]: Rating.from_dict(row) for row in board["ratings"]}

    def parameters(self, method: str, dimension: str) -> Mapping[str, float]:
        """What the method says of the whole board, as ratings.json has it."""
        return (
            self.ratings["dimensions"]
            .get(dimension, {})
            .get(method, {})
            .get("parameters")
            or {}
        )

    def methods(self, dimension: str) -> tuple[str, ...]:
        return tuple(self.ratings["dimensions"].get(dimension, {}))

    def battles(self) -> dict[str, list[Battle]]:
        """By dimension; none where the run wrote no battles.jsonl. A battle that names no dimension is of the only
        one. Raises UserError for a row that is no battle."""
        path = self.folder / "battles.jsonl"
        found: dict[str, list[Battle]] = {}
        for place, row in read_jsonl(path) if path.is_file() else ():
            try:
                battle = Battle.from_dict(row)
            except KeyError as error:
                raise UserError(
                    f"{place}: has no {error}. Expected a battle, as the run wrote it."
                ) from None
            found.setdefault(battle.dimension or self.dimensions[0], []).append(battle)
        return found

    def responses(self, entrant: str) -> dict[str, str]:
        """The texts by prompt; none of an entrant that did not answer in this run."""
        path = self.folder / "responses" / f"responses_{entrant}.jsonl"
        return (
            {row["prompt_id"]: row["response_text"] for _, row in read_jsonl(path)}
            if path.is_file()
            else {}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRuns:
    runs: list[FinishedRun]
    left_out: list[str]  # of a sweep or a pattern: which folder, and why


def read(chosen: Sequence[str]) -> FoundRuns:
    """The runs of these folders, each once. A sweep stands for its jobs, a pattern (*, ?) for the folders that match.

    Of these, what is not a finished run with ratings is left out. Raises UserError where such a folder is named.
    """
    found: dict[Path, tuple[dict[str, Any], dict[str, Any]]] = {}
    left_out = []
    for entry in chosen:
        for folder, is_named in _expanded(entry):
            try:
                found[folder.resolve()] = _content(folder)
            except UserError as error:
                if is_named:
                    raise UserError(f"runs: {error}") from None
                left_out.append(str(error))
    named = zip(_names(list(found)), found.items(), strict=True)
    runs = [
        FinishedRun(name=name, folder=folder, manifest=m, ratings=r)
        for name, (folder, (m, r)) in named
    ]
    return FoundRuns(runs=runs, left_out=left_out)


def settings(folder: Path, named_by: str) -> dict[str, Any]:
    """The configuration of a run as data: no `_target_` is kept, and nothing in it is resolved or imported."""
    try:
        found = _json(folder / "manifest.json").get("config")
    except UserError as error:
        raise UserError(f"{named_by}: {error}") from None
    if not isinstance(found, dict):
        raise UserError(
            f"{named_by}: found no settings in {folder}. Expected the folder of a run."
        )
    return {str(name): _without_targets(value) for name, value in found.items()}


def _without_targets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            str(k): _without_targets(v) for k, v in value.items() if k != "_target_"
        }
    return (
        [_without_targets(item) for item in value] if isinstance(value, list) else value
    )


def _expanded(entry: str) -> list[tuple[Path, bool]]:
    """Folders, and whether each was meant by name."""
    if Path(entry).exists() or not glob.has_magic(entry):
        jobs = _jobs(Path(entry))
        return [(job, False) for job in jobs] or [(Path(entry), True)]
    matches = [Path(match) for match in sorted(glob.glob(entry))]  # noqa: PTH207 (an absolute pattern too)
    folders = [
        job
        for match in matches
        for job in (_jobs(match) or [match])
        if (job / "manifest.json").is_file()
    ]
    if not folders:
        raise UserError(
            f"runs: found no run folder that matches {entry}. Check the pattern."
        )
    return [(folder, False) for folder in folders]


def _jobs(folder: Path) -> list[Path]:
    """Of a sweep's folder; none of any other."""
    if not folder.is_dir() or (folder / "manifest.json").exists():
        return []
    jobs = (path for path in folder.iterdir() if path.name.isdigit() and path.is_dir())
    return sorted(jobs, key=lambda path: int(path.name))


def _content(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """manifest.json and ratings.json. Raises UserError."""
    if not folder.is_dir():
        raise UserError(f"found no folder {folder}. Check the path.")
    if not (folder / "manifest.json").is_file():
        raise UserError(
            f"{folder} is no run folder, for it has no manifest.json. Name the folder that a run printed."
        )
    manifest = _json(folder / "manifest.json")
    if not manifest.get("finished_at"):
        why = manifest.get("error") or "it was stopped"
        raise UserError(
            f"{folder} did not finish ({why}). Give its command again, or leave it out."
        )
    if not (folder / "ratings.json").is_file():
        kind = manifest.get("experiment")
        raise UserError(
            f"{folder} has no ratings to compare, being of experiment={kind}. Expected tournament, rate or arena."
        )
    ratings = _json(folder / "ratings.json")
    _check(folder, manifest, ratings)
    return manifest, ratings


def _check(
    folder: Path, manifest: Mapping[str, Any], ratings: Mapping[str, Any]
) -> None:
    """Raise UserError where a part is missing that every run writes."""
    if not isinstance(manifest.get("config"), dict) or not isinstance(
        manifest["config"].get("rating"), dict
    ):
        raise UserError(
            f"{folder / 'manifest.json'} has no config of ratings. Expected what a run wrote."
        )
    try:
        for boards in ratings["dimensions"].values():
            for board in boards.values():
                for row in board["ratings"]:
                    Rating.from_dict(row)
    except (AttributeError, KeyError, TypeError):
        raise UserError(
            f"{folder / 'ratings.json'} has no ratings by dimension. Expected what a run wrote."
        ) from None


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"{path} cannot be read ({error}). Expected what a run wrote."
        ) from None


def _names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that differ."""
    for n in range(1, 1 + max((len(folder.parts) for folder in folders), default=0)):
        names = ["/".join(folder.parts[-n:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return []


def differing(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Of nested settings by run: those that are not the same in all, as path -> run -> value; None where there is none.

    Of a group that some runs do not have, such as an entrant, only that they have it.
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
    shown = {run: _said(value) for run, value in values.items()}
    return (
        {}
        if len({json.dumps(value) for value in values.values()}) == 1
        else {"": shown}
    )


def _said(value: Any) -> Any:
    return "chosen" if isinstance(value, Mapping) else value
