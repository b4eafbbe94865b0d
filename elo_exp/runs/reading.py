"""Finished runs, read back from their folders.

What is read from a run folder is data: nothing in it is imported or resolved.
"""

import glob
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp.data import battle_columns, battle_files
from elo_exp.data.battles import OVERALL_DIMENSION, Battles
from elo_exp.data.formats.battle_rows import FLAT
from elo_exp.errors import FileError, UserError
from elo_exp.files import escape_name, read_jsonl, validate
from elo_exp.ratings.leaderboard import Rating
from elo_exp.records import Comparison, MissingBattle, Slot
from elo_exp.runs import documents
from elo_exp.runs.documents import Estimate, Manifest
from elo_exp.runs.tracker_names import artifact_version, leaderboard_name, name_judges

# Their runs log the same names
RATING_EXPERIMENTS = ("tournament", "rate")
# Planned comparisons without a result
MISSING_FILE = "missing.jsonl"
SUMMARY_FILE = (
    "run.json"  # in place of manifest.json, where a tracker has kept a leaderboard
)


def manifest_path(folder: Path) -> Path:
    """Return the path of manifest.json, or that of the summary in its place."""
    path, summary = folder / "manifest.json", folder / SUMMARY_FILE
    return summary if summary.is_file() and not path.is_file() else path


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return manifest.json as data. Raises FileError where no run wrote it."""
    manifest: dict[str, Any] = documents.read_document(Manifest, manifest_path(folder))
    return manifest


def manifest_if_any(folder: Path) -> dict[str, Any]:
    """Return the same, empty where there is none that can be read."""
    try:
        return read_manifest(folder)
    except UserError:
        return {}


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the configuration of a run without any `_target_`. Raises FileError."""
    config = read_manifest(folder).get("config")
    if not config:
        raise FileError.bad_file(
            folder, "has no settings of a run", "Name the folder that a run printed."
        )
    documents.read_document(documents.SettingsManifest, manifest_path(folder))
    plain: dict[str, Any] = json.loads(
        json.dumps(config),
        object_hook=lambda node: {k: v for k, v in node.items() if k != "_target_"},
    )
    return plain


# Values of fields that a manifest lacks
_MANIFEST_DEFAULTS: dict[str, Any] = {
    "config": {},
    "input_hashes": {},
    "versions": {},
    "overrides": [],
}


@dataclass(frozen=True, slots=True)
class _Answer:
    prompt_id: str
    response_text: str
    draw_idx: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """What a run that rates left in its folder.

    name         the end of its path, as much as tells it from the others
    boards       by dimension and method, as ratings.json has them; none of an oracle run
    conclusions  by dimension, as ratings.json has them; none of a run that draws none
    results      the numbers of the leaderboard by dimension, as ratings.json has them; none of a run
                 of an older version
    differences  of every two entrants by method, as ratings.json has them
    """

    name: str
    folder: Path
    manifest: Mapping[str, Any]
    boards: Mapping[str, Mapping[str, Mapping[str, Any]]]
    conclusions: Mapping[str, Mapping[str, Any]]
    results: Mapping[str, Mapping[str, float]]
    differences: Mapping[str, Sequence[Mapping[str, Any]]]

    def primary_method(self, dimension: str) -> str:
        """Return the method that leads: Bradley-Terry, or what was chosen instead, or Elo."""
        return primary_method(self.boards.get(dimension, {}))

    def stored_board(self, method: str, dimension: str) -> Mapping[str, Any]:
        """Return a leaderboard as ratings.json has it; empty where the run has none."""
        return self.boards.get(dimension, {}).get(method, {})

    def board(self, method: str, dimension: str) -> dict[str, Rating]:
        """Return the ratings by model, best first; those without a rating last."""
        rows = self.stored_board(method, dimension).get("ratings", ())
        return {row["model"]: Rating.from_dict(row) for row in rows}

    def battles(self) -> dict[str, Battles]:
        """Return the battles by dimension; none where the run wrote no file of them.

        Battles that name no dimension are of the only one. Raises UserError for a row that is no
        battle.
        """
        path = battles_file(self.folder)
        if path is None or not path.stat().st_size:
            return {}
        columns = {name: name for name in battle_columns.FIELDS}
        battles, _ = battle_files.read(path, columns=columns, filters={}, chosen=FLAT)
        battles_by_dimension = battles.split_by_dimension()
        if (
            self.boards
            and OVERALL_DIMENSION in battles_by_dimension
            and OVERALL_DIMENSION not in self.boards
        ):
            battles_by_dimension[next(iter(self.boards))] = battles_by_dimension.pop(
                OVERALL_DIMENSION
            )
        return battles_by_dimension

    def missing(self) -> dict[str, list[MissingBattle]]:
        """Return the planned comparisons without a result by dimension; none where the run wrote none."""
        path = self.folder / MISSING_FILE
        rows = read_jsonl(path) if path.is_file() else ()
        missing_by_dimension: dict[str, list[MissingBattle]] = {}
        for location, row in rows:
            battle = validate(MissingBattle, row, location)
            missing_by_dimension.setdefault(
                battle.dimension or OVERALL_DIMENSION, []
            ).append(battle)
        return missing_by_dimension

    def comparisons(self) -> list[Comparison]:
        """Return the comparisons with their texts; none where the run judged no texts."""
        path = self.folder / "matches" / "matches.jsonl"
        rows = read_jsonl(path) if path.is_file() else ()
        return [validate(Comparison, row, location) for location, row in rows]

    def headlines(self) -> dict[str, Mapping[str, Any]]:
        """Return the headline's row of estimates.json by policy; none where the run has no such."""
        path = self.folder / "estimates.json"
        rows = (
            documents.read_document(documents.Estimates, path) if path.is_file() else []
        )
        estimates = [Estimate(**row) for row in rows if row.get("headline")]
        return {estimate.policy: estimate.model_dump() for estimate in estimates}

    def influences(self) -> Mapping[str, Any]:
        """Return influences.json: by policy, the value compared and its influence by prompt."""
        path, kind = self.folder / "influences.json", documents.Influences
        by_policy: Mapping[str, Any]
        by_policy = documents.read_document(kind, path) if path.is_file() else {}
        return by_policy

    def responses(self, entrant: str) -> dict[Slot, str]:
        """Return the texts by prompt and draw; none of an entrant that did not answer in this run."""
        path = self.folder / "responses" / f"responses_{escape_name(entrant)}.jsonl"
        rows = read_jsonl(path) if path.is_file() else ()
        answers = (validate(_Answer, row, location) for location, row in rows)
        return {
            (answer.prompt_id, answer.draw_idx): answer.response_text
            for answer in answers
        }


def battles_file(folder: Path) -> Path | None:
    """Return a run's file of battles, of which it has one kind; None where it has none."""
    paths = (folder / f"battles.{kind}" for kind in ("parquet", "jsonl"))
    return next(filter(Path.is_file, paths), None)


def primary_method(boards: Iterable[str]) -> str:
    """Return the method that leads among those with a leaderboard."""
    methods = [method for method in boards if method != "elo"]
    return "bradley_terry" if "bradley_terry" in methods else [*methods, "elo"][0]


def read_runs(
    entries: Sequence[str], *, with_oracle: bool = False
) -> tuple[list[FinishedRun], list[str]]:
    """Return the runs of these folders, each once, and why others were left out.

    A sweep stands for its jobs, a pattern (*, ?) for the folders that match; what is not a finished
    run with ratings among them, or where asked one of the oracle, is left out. Raises FileError where
    such a folder is named.
    """
    contents: dict[Path, tuple[dict[str, Any], dict[str, Any]]] = {}
    left_out = []
    for entry in entries:
        for folder in _expand(entry):
            try:
                contents[folder.resolve()] = _read_content(folder, with_oracle)
            except UserError as error:
                if folder == Path(entry):
                    raise
                left_out.append(error.line)
    runs = [
        FinishedRun(
            name=name,
            folder=folder,
            manifest=manifest,
            boards=ratings.get("dimensions", {}),
            conclusions=ratings.get("conclusions", {}),
            results=ratings.get("result", {}),
            differences=ratings.get("differences", {}),
        )
        for name, (folder, (manifest, ratings)) in zip(
            _shorten_paths(list(contents)), contents.items(), strict=True
        )
    ]
    return runs, left_out


def _expand(entry: str) -> list[Path]:
    """Return the folders of runs that an entry stands for, or the entry itself."""
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


def _read_content(
    folder: Path, with_oracle: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the manifest and ratings.json. Raises FileError if the run did not finish with both."""
    manifest_file = manifest_path(folder)
    if not manifest_file.is_file():
        raise FileError.bad_file(
            folder,
            "is not a run folder: it has no manifest.json",
            "Name the folder that a run printed.",
        )
    manifest = _MANIFEST_DEFAULTS | read_manifest(folder)
    if manifest_file.name != SUMMARY_FILE and not manifest.get("finished_at"):
        reason = manifest.get("error") or "it was stopped"
        raise FileError(
            f"{folder} did not finish ({reason}). Run its command again, or leave it out."
        )
    version = artifact_version(folder)
    path = folder / "ratings.json"
    if with_oracle and (folder / "estimates.json").is_file():
        return manifest, {}
    kind = manifest.get("experiment")
    if (
        not path.is_file()
        and kind in RATING_EXPERIMENTS
        and (judges := manifest.get("judges"))
    ):
        raise FileError(_explain_several_judges(folder, judges, version))
    if not path.is_file():
        raise FileError.bad_file(
            folder,
            f"is a run of experiment={kind} and has no ratings to compare",
            "Use a run of tournament, rate, arena or oracle.",
        )
    documents.read_document(documents.RatingsManifest, manifest_file)
    return manifest, documents.read_document(documents.Ratings, path)


def _explain_several_judges(
    folder: Path, judges: Mapping[str, str], version: str | None
) -> str:
    """Return the error for a run of several judges, or for the artifact of all of them together.

    judges   their models, by name
    version  of the leaderboard that was fetched into the folder; None of a run
    """
    n = len(judges)
    if version is None:
        folders = [f"{folder}/judges/{escape_name(name)}" for name in judges]
        sentence = f"{folder} has one leaderboard for each of {n} judges. Choose one"
        return f"{sentence}: {', '.join(folders)}."
    project, _, _ = version.rpartition("/")
    leaderboards = map(leaderboard_name, name_judges(judges).values())
    sentence = f"wandb:{version} is the combined leaderboard of {n} judges. Choose one"
    return f"{sentence}: {', '.join(f'wandb:{project}/{name}:VERSION' for name in leaderboards)}."


def _shorten_paths(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that differ."""
    for n in range(1, 1 + max((len(folder.parts) for folder in folders), default=0)):
        names = ["/".join(folder.parts[-n:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return []


def find_differences(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the nested settings that are not the same in all runs, as path -> run -> value.

    None stands for a setting that a run does not have; of a group that only some runs have, such as
    an entrant, that they have it.
    """
    if all(isinstance(value, Mapping) for value in values.values()):
        keys = dict.fromkeys(key for value in values.values() for key in value)
        differences = {
            key: find_differences(
                {run: value.get(key) for run, value in values.items()}
            )
            for key in keys
        }
        return {
            f"{key}.{path}".rstrip("."): by
            for key, inner_differences in differences.items()
            for path, by in inner_differences.items()
        }
    if len({json.dumps(value) for value in values.values()}) == 1:
        return {}
    value_of_run = {
        run: "chosen" if isinstance(value, Mapping) else value
        for run, value in values.items()
    }
    return {"": value_of_run}
