"""The files that a run has read and made, under the names by which trackers keep them."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from elo_exp.files import safe_name, write_json
from elo_exp.records import UserError
from elo_exp.runs import names
from elo_exp.runs.manifest import OF_NO_RESULT, run_id
from elo_exp.runs.reading import SUMMARY, read_manifest
from elo_exp.trackers import Files, RunInfo

BOARD = (
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
_VERDICTS = ("verdicts/", "matches/", "verdicts.jsonl")
_WITHOUT_TEXTS = ("manifest.json", "figures/", "elo_per_perm.npz", "bootstrap_")
_OF_AN_ATTEMPT = {
    *("token", "group", "started_at", "finished_at", "error", "usage", "paid_before"),
    *("overrides", "config_path", "git_commit", "versions", "input_paths", "weights"),
    *("files", "n_seen"),
}
_ABOUT = (
    *("experiment", "mode", "judge_model", "headline", "headline_is", "git_commit"),
    "input_hashes",
)
_LATEST = "latest"


def files_of_run(
    info: RunInfo,
    manifest: Mapping[str, Any],
    written: Iterable[Path],
    *,
    inputs: Mapping[str, Path],
    recorded: Mapping[str, Path],
) -> list[Files]:
    """Return what a finished run has read, and what it has made, by the kinds that trackers know.

    Beside what the tracker keeps in the run folder it writes the summary of the leaderboard.

    written   files in the run folder
    inputs    files and folders that were read, by role
    recorded  those of them that have the answers of an entrant, by its name
    """
    made = {path.relative_to(info.run_dir).as_posix(): path for path in written}
    found = [*_of_judges(info, manifest, made)]
    for entrant in dict.fromkeys([*(manifest.get("entrants") or ()), *recorded]):
        name = f"responses_{safe_name(entrant)}.jsonl"
        path = made.pop(f"responses/{name}", None)
        if path is not None and entrant not in recorded:
            found.append(_texts("responses", entrant, {name: path}))
    if verdicts := {name: made.pop(name) for name in [*made] if _is(name, _VERDICTS)}:
        judge = info.labels.get("judge_model") or "unknown"
        found.append(_texts("verdicts", judge, verdicts))
    if board := {name: made.pop(name) for name in BOARD if name in made}:
        path = info.run_dir / "tracker" / SUMMARY
        board[SUMMARY] = write_json(path, summary(manifest))
        found.append(Files(kind="leaderboard", name="leaderboard", paths=board))
    texts = frozenset(name for name in made if not _is(name, _WITHOUT_TEXTS))
    found.append(Files(kind="run", name="run-files", paths=made, texts=texts))
    aliases = tuple(filter(None, (_LATEST, f"run-{info.id}", _swept(info))))
    about = {name: manifest.get(name) for name in _ABOUT}
    return [
        *_read(inputs, recorded),
        *(replace(files, aliases=aliases, metadata=about) for files in found),
    ]


def _of_judges(
    info: RunInfo, manifest: Mapping[str, Any], made: dict[str, Path]
) -> Iterator[Files]:
    """What each of several judges has made: its verdicts and its leaderboard. Answers, which are the same in the folder
    of each, are those of the run."""
    for name, whose in names.of_judges(manifest.get("judges") or {}).items():
        start = f"judges/{safe_name(name)}/"
        own = {n.removeprefix(start): n for n in [*made] if n.startswith(start)}
        if not own:
            continue
        for of, path in [*own.items()]:
            if of.startswith("responses/"):
                made.setdefault(of, made.pop(path))
        if verdicts := {
            n: made.pop(path) for n, path in own.items() if _is(n, _VERDICTS)
        }:
            yield _texts("verdicts", whose, verdicts)
        if board := {n: made.pop(own[n]) for n in BOARD if n in own}:
            folder = info.run_dir / start
            concluded = summary(read_manifest(folder))
            board[SUMMARY] = write_json(folder / "tracker" / SUMMARY, concluded)
            yield Files(kind="leaderboard", name=names.leaderboard(whose), paths=board)


def _is(name: str, places: tuple[str, ...]) -> bool:
    return name.startswith(places)


def _texts(kind: str, whose: str, paths: Mapping[str, Path], **more: Any) -> Files:
    name = names.plain(f"{kind}-{whose}")
    return Files(kind=kind, name=name, paths=paths, texts=frozenset(paths), **more)


def _swept(info: RunInfo) -> str:
    """What tells a job from others of its sweep, as k16-n_perms500; empty of a single run."""
    if info.group is None:
        return ""
    plain = re.sub(
        r"[^A-Za-z0-9._-]+", "_", info.name.replace("=", "").replace(" ", "-")
    )
    # v1 is the number of a version
    return "" if re.fullmatch(r"v\d+", plain) else plain[: names.MOST]


def _read(inputs: Mapping[str, Path], recorded: Mapping[str, Path]) -> Iterator[Files]:
    """What was read: answers by entrant, the leaderboards of other runs, and all else together."""
    others = dict(inputs)
    for entrant, path in recorded.items():
        others = {role: p for role, p in others.items() if p != path}
        if paths := _named([path]):
            yield _texts("responses", entrant, paths, is_input=True, aliases=(_LATEST,))
    for role, path in [*others.items()]:
        if role.startswith("run "):
            del others[role]
            with suppress(UserError):  # of an older version, which no tracker knows so
                yield _of_run(path.parent)
    if paths := _named(others.values()):
        role, path = next(iter(others.items()))
        part, _, is_of_part = role.partition(" ")
        stem = part if is_of_part else path.name.partition(".")[0]
        yield Files(
            kind="dataset",
            name=names.plain(f"bank-{stem}"),
            paths=paths,
            texts=frozenset(paths),
            is_input=True,
            aliases=(_LATEST,),
        )


def _of_run(folder: Path) -> Files:
    """The leaderboard of another run, as that run has logged it or as it has been fetched."""
    manifest = {"config": {}, **read_manifest(folder)}
    version = names.kept_as(folder)
    return Files(
        kind="leaderboard",
        name="leaderboard",
        paths={n: folder / n for n in BOARD if (folder / n).is_file()},
        is_input=True,
        known_as=version or f"leaderboard:run-{run_id(folder, manifest)}",
    )


def _named(paths: Iterable[Path]) -> dict[str, Path]:
    """Files by their names, with the folder's before those in one, and as many more as tell them apart."""
    every: dict[Path, str] = {}
    for path in paths:
        inside = sorted(path.rglob("[!.]*")) if path.is_dir() else [path]
        for file in filter(Path.is_file, inside):
            every.setdefault(file.resolve(), file.relative_to(path.parent).as_posix())
    found: dict[str, Path] = {}
    for name in dict.fromkeys(every.values()):
        files = [file for file, own in every.items() if own == name]
        if len(files) == 1:
            found[name] = files[0]
        else:
            above = Path(os.path.commonpath(files))
            found |= {file.relative_to(above).as_posix(): file for file in files}
    return found


def summary(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest without what is of one attempt or one machine alone, so that equal conclusions have equal ones.

    Paths of files that the run has read are their names.
    """
    kept = {name: v for name, v in manifest.items() if name not in _OF_AN_ATTEMPT}
    kept["config"] = {
        name: v for name, v in manifest["config"].items() if name not in OF_NO_RESULT
    }
    read = manifest.get("input_paths", {}).values()
    places = {path: Path(path).name for path in read}

    def moved(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: moved(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [moved(inner) for inner in value]
        return places.get(value, value) if isinstance(value, str) else value

    found: dict[str, Any] = moved(kept)
    return found
