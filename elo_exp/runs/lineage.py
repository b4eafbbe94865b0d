"""The files that a run has read and made, under the names by which trackers keep them."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from elo_exp.errors import UserError
from elo_exp.files import escape_name, write_json
from elo_exp.runs import tracker_names
from elo_exp.runs.manifest import SETTINGS_WITHOUT_EFFECT, run_id
from elo_exp.runs.reading import SUMMARY_FILE, read_manifest
from elo_exp.trackers import Files, RunInfo

LEADERBOARD_FILES = (
    *(
        "ratings.json",
        "judges.json",
        "elo_ratings.json",
        "elo_results.json",
        "differences.csv",
    ),
    *(
        "battles.jsonl",
        "battles.parquet",
        "missing.jsonl",
        "pairwise_winrates.csv",
        "strata.csv",
    ),
    *("estimates.json", "influences.json", "differences.json"),
)
_VERDICT_FILES = ("verdicts/", "matches/", "verdicts.jsonl")
_TEXT_FREE_FILES = ("manifest.json", "figures/", "elo_per_perm.npz", "bootstrap_")
_ATTEMPT_FIELDS = {
    *("token", "group", "started_at", "finished_at", "error", "usage", "paid_before"),
    *("overrides", "config_path", "git_commit", "versions", "input_paths", "weights"),
    *("files", "n_seen"),
}
_METADATA_FIELDS = (
    *("experiment", "mode", "judge_model", "headline", "headline_is", "git_commit"),
    "input_hashes",
)
_LATEST_ALIAS = "latest"


def collect_files(
    info: RunInfo,
    manifest: Mapping[str, Any],
    output_paths: Iterable[Path],
    *,
    inputs: Mapping[str, Path],
    recorded: Mapping[str, Path],
) -> list[Files]:
    """Return what a finished run has read, and what it has made, by the kinds that trackers know.

    Beside what the tracker keeps in the run folder it writes the summary of the leaderboard.

    output_paths  files in the run folder
    inputs        files and folders that were read, by role
    recorded      those of them that have the answers of an entrant, by its name
    """
    outputs = {path.relative_to(info.run_dir).as_posix(): path for path in output_paths}
    artifacts = [*_collect_judge_files(info, manifest, outputs)]
    for entrant in dict.fromkeys([*(manifest.get("entrants") or ()), *recorded]):
        name = f"responses_{escape_name(entrant)}.jsonl"
        path = outputs.pop(f"responses/{name}", None)
        if path is not None and entrant not in recorded:
            artifacts.append(_build_text_files("responses", entrant, {name: path}))
    if verdicts := {
        name: outputs.pop(name)
        for name in [*outputs]
        if _is_under(name, _VERDICT_FILES)
    }:
        judge = info.labels.get("judge_model") or "unknown"
        artifacts.append(_build_text_files("verdicts", judge, verdicts))
    if board := {
        name: outputs.pop(name) for name in LEADERBOARD_FILES if name in outputs
    }:
        path = info.run_dir / "tracker" / SUMMARY_FILE
        board[SUMMARY_FILE] = write_json(path, summarise_manifest(manifest))
        artifacts.append(Files(kind="leaderboard", name="leaderboard", paths=board))
    texts = frozenset(name for name in outputs if not _is_under(name, _TEXT_FREE_FILES))
    artifacts.append(Files(kind="run", name="run-files", paths=outputs, texts=texts))
    aliases = tuple(
        filter(None, (_LATEST_ALIAS, f"run-{info.id}", _build_sweep_alias(info)))
    )
    metadata = {name: manifest.get(name) for name in _METADATA_FIELDS}
    return [
        *_collect_inputs(inputs, recorded),
        *(replace(files, aliases=aliases, metadata=metadata) for files in artifacts),
    ]


def _collect_judge_files(
    info: RunInfo, manifest: Mapping[str, Any], outputs: dict[str, Path]
) -> Iterator[Files]:
    """Yield the verdicts and the leaderboard of each of several judges. Answers, which are the same in the folder of each
    judge, become outputs of the run."""
    for name, judge_name in tracker_names.name_judges(
        manifest.get("judges") or {}
    ).items():
        start = f"judges/{escape_name(name)}/"
        judge_files = {
            n.removeprefix(start): n for n in [*outputs] if n.startswith(start)
        }
        if not judge_files:
            continue
        for inner_name, path in [*judge_files.items()]:
            if inner_name.startswith("responses/"):
                outputs.setdefault(inner_name, outputs.pop(path))
        if verdicts := {
            n: outputs.pop(path)
            for n, path in judge_files.items()
            if _is_under(n, _VERDICT_FILES)
        }:
            yield _build_text_files("verdicts", judge_name, verdicts)
        if board := {
            n: outputs.pop(judge_files[n])
            for n in LEADERBOARD_FILES
            if n in judge_files
        }:
            folder = info.run_dir / start
            judge_summary = summarise_manifest(read_manifest(folder))
            board[SUMMARY_FILE] = write_json(
                folder / "tracker" / SUMMARY_FILE, judge_summary
            )
            yield Files(
                kind="leaderboard",
                name=tracker_names.leaderboard_name(judge_name),
                paths=board,
            )


def _is_under(name: str, places: tuple[str, ...]) -> bool:
    return name.startswith(places)


def _build_text_files(
    kind: str, author: str, paths: Mapping[str, Path], **more: Any
) -> Files:
    name = tracker_names.safe_tracker_name(f"{kind}-{author}")
    return Files(kind=kind, name=name, paths=paths, texts=frozenset(paths), **more)


def _build_sweep_alias(info: RunInfo) -> str:
    """Return what tells a job from others of its sweep, as k16-n_perms500; "" for a single run."""
    if info.group is None:
        return ""
    alias = re.sub(
        r"[^A-Za-z0-9._-]+", "_", info.name.replace("=", "").replace(" ", "-")
    )
    # v1 is the number of a version
    return "" if re.fullmatch(r"v\d+", alias) else alias[: tracker_names.MAX_NAME_CHARS]


def _collect_inputs(
    inputs: Mapping[str, Path], recorded: Mapping[str, Path]
) -> Iterator[Files]:
    """Yield the inputs: answers by entrant, the leaderboards of other runs, and everything else together."""
    other_inputs = dict(inputs)
    for entrant, path in recorded.items():
        other_inputs = {role: p for role, p in other_inputs.items() if p != path}
        if paths := _name_files([path]):
            yield _build_text_files(
                "responses", entrant, paths, is_input=True, aliases=(_LATEST_ALIAS,)
            )
    for role, path in [*other_inputs.items()]:
        if role.startswith("run "):
            del other_inputs[role]
            with suppress(UserError):  # of an older version, which no tracker knows so
                yield _reference_leaderboard(path.parent)
    if paths := _name_files(other_inputs.values()):
        role, path = next(iter(other_inputs.items()))
        part, _, is_of_part = role.partition(" ")
        stem = part if is_of_part else path.name.partition(".")[0]
        yield Files(
            kind="dataset",
            name=tracker_names.safe_tracker_name(f"bank-{stem}"),
            paths=paths,
            texts=frozenset(paths),
            is_input=True,
            aliases=(_LATEST_ALIAS,),
        )


def _reference_leaderboard(folder: Path) -> Files:
    """Return the leaderboard of another run, as that run logged it or as it was fetched."""
    manifest = {"config": {}, **read_manifest(folder)}
    version = tracker_names.artifact_version(folder)
    return Files(
        kind="leaderboard",
        name="leaderboard",
        paths={n: folder / n for n in LEADERBOARD_FILES if (folder / n).is_file()},
        is_input=True,
        known_as=version or f"leaderboard:run-{run_id(folder, manifest)}",
    )


def _name_files(paths: Iterable[Path]) -> dict[str, Path]:
    """Return files by unique names: those in a folder begin with its name, and equal names get more parents."""
    name_of_file: dict[Path, str] = {}
    for path in paths:
        inner_paths = sorted(path.rglob("[!.]*")) if path.is_dir() else [path]
        for file in filter(Path.is_file, inner_paths):
            name_of_file.setdefault(
                file.resolve(), file.relative_to(path.parent).as_posix()
            )
    paths_by_name: dict[str, Path] = {}
    for name in dict.fromkeys(name_of_file.values()):
        files = [file for file, file_name in name_of_file.items() if file_name == name]
        if len(files) == 1:
            paths_by_name[name] = files[0]
        else:
            common_folder = Path(os.path.commonpath(files))
            paths_by_name |= {
                file.relative_to(common_folder).as_posix(): file for file in files
            }
    return paths_by_name


def summarise_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest without what is of one attempt or one machine alone, so that equal conclusions have equal ones.

    Paths of files that the run has read are their names.
    """
    stable_fields = {
        name: v for name, v in manifest.items() if name not in _ATTEMPT_FIELDS
    }
    stable_fields["config"] = {
        name: v
        for name, v in manifest["config"].items()
        if name not in SETTINGS_WITHOUT_EFFECT
    }
    paths_read = manifest.get("input_paths", {}).values()
    name_of_path = {path: Path(path).name for path in paths_read}

    def shorten_paths(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: shorten_paths(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [shorten_paths(inner) for inner in value]
        return name_of_path.get(value, value) if isinstance(value, str) else value

    stable_manifest: dict[str, Any] = shorten_paths(stable_fields)
    return stable_manifest
