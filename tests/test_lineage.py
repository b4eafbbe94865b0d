"""What a run has read and made, under the names by which trackers keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elo_exp.errors import UserError
from elo_exp.files import read_json, write_json, write_whole
from elo_exp.records import make_fingerprint
from elo_exp.runs.fetching import fetch
from elo_exp.runs.lineage import collect_files
from elo_exp.runs.reading import read_runs
from elo_exp.trackers import Files, RunInfo
from tests.commands import attempt
from tests.project_server import KEY, ProjectServer


def kept(folder: Path, *names: str, **given: Any) -> dict[str, Files]:
    """The files of a run that has left these names in its folder, by the tracker's."""
    inputs = given.pop("inputs", {})
    manifest = {
        "entrants": ["mine", "org/model"],
        "headline": 1.0,
        "started_at": "2026-01-01T00:00:00Z",
        "input_paths": {role: str(path) for role, path in inputs.items()},
        "config": {
            "elo": {"k": 8},
            "bank": [str(path) for path in inputs.values()],
            "cache_dir": "/here/cache",
        },
    }
    info = RunInfo(
        run_dir=folder,
        name=given.pop("name", "run"),
        group=given.pop("group", None),
        job_type="tournament",
        config={},
        labels={"judge_model": "org/judge"},
        id="0123",
    )
    written = [write_whole(folder / name, name.encode()) for name in names]
    recorded = given.pop("recorded", {})
    found = collect_files(info, manifest, written, inputs=inputs, recorded=recorded)
    names_of = [files.name for files in found]
    assert len({*names_of}) == len(names_of)
    return {files.name: files for files in found}


def test_each_file_is_in_one_artifact_and_names_are_those_that_trackers_take(
    tmp_path: Path,
):
    names = (
        *("responses/responses_mine.jsonl", "responses/responses_org%2Fmodel.jsonl"),
        *("matches/matches.jsonl", "verdicts/d.jsonl", "ratings.json"),
        *("battles.jsonl", "manifest.json", "figures/ratings.png", "report.html"),
    )
    found = kept(tmp_path, *names)
    whose = {name: {*files.paths} - {"run.json"} for name, files in found.items()}
    (of_judge,) = (name for name in found if name.startswith("verdicts-org-judge-"))
    (of_model,) = (name for name in found if name.startswith("responses-org-model-"))
    assert whose == {
        "responses-mine": {"responses_mine.jsonl"},
        of_model: {"responses_org%2Fmodel.jsonl"},
        of_judge: {"matches/matches.jsonl", "verdicts/d.jsonl"},
        "leaderboard": {"ratings.json", "battles.jsonl"},
        "run-files": {"manifest.json", "figures/ratings.png", "report.html"},
    }
    assert all(files.aliases == ("latest", "run-0123") for files in found.values())
    plain = found["run-files"].drop_texts()
    assert plain and {*plain.paths} == {"manifest.json", "figures/ratings.png"}
    assert found[of_judge].drop_texts() is None
    assert not found["leaderboard"].has_texts


def test_a_leaderboard_says_nothing_of_time_and_place(tmp_path: Path):
    """So that equal conclusions are one version, on any machine."""
    summaries = []
    for place in ("here", "there"):
        bank = write_whole(tmp_path / place / "bank.jsonl", b"{}")
        found = kept(tmp_path / place / "run", "ratings.json", inputs={"bank": bank})
        summaries.append(found["leaderboard"].paths["run.json"].read_bytes())
        assert found["bank-bank"].paths == {"bank.jsonl": bank}
        assert found["bank-bank"].is_input
    assert summaries[0] == summaries[1]
    assert read_json(found["leaderboard"].paths["run.json"]) == {
        "entrants": ["mine", "org/model"],
        "headline": 1.0,
        "config": {"elo": {"k": 8}, "bank": ["bank.jsonl"]},
    }


def test_recorded_answers_are_used_and_the_others_made(tmp_path: Path):
    """A file that another run has made is the version that it has logged."""
    first = kept(tmp_path / "first", "responses/responses_mine.jsonl")
    path = first["responses-mine"].paths["responses_mine.jsonl"]
    given = {"inputs": {"entrant mine": path}, "recorded": {"mine": path}}
    given["recorded"]["baseline"] = path  # of a gate, which is none of its entrants
    names = ("responses/responses_mine.jsonl", "responses/responses_baseline.jsonl")
    second = kept(tmp_path / "second", *names, **given)
    assert second["responses-mine"].is_input
    assert second["responses-mine"].paths == first["responses-mine"].paths
    assert {*second} == {"responses-mine", "responses-baseline", "run-files"}
    assert not second["run-files"].paths


def test_files_that_share_a_name_are_told_apart(tmp_path: Path):
    names = ("a/system.md", "b/system.md", "votes/1.csv", "votes/2.csv", "votes/.x")
    paths = {name: write_whole(tmp_path / name, name.encode()) for name in names}
    inputs = {
        "rubric a": paths["a/system.md"],
        "rubric b": paths["b/system.md"],
        "votes": tmp_path / "votes",
        "votes/1.csv": paths["votes/1.csv"],
    }
    (bank, _) = kept(tmp_path / "run", inputs=inputs).values()
    assert (bank.name, {*bank.paths}) == ("bank-rubric", {*names[:4]})


def test_a_run_that_was_compared_is_used_by_the_name_that_it_has(tmp_path: Path):
    """Of one that no tracker can know nothing is said, whatever lies in its folder."""
    token = {"token": "01234567", "config": {"elo": {"k": 8}}}
    foreign = {"token": [], "config": 1}
    manifests: dict[str, object] = {"own": token, "old": {}, "foreign": foreign}
    inputs = {
        f"run {name}": write_json(tmp_path / name / "manifest.json", manifest)
        for name, manifest in manifests.items()
    }
    for name, kept_as in {"kept": {"name": "me/p/leaderboard:v1"}, "odd": []}.items():
        write_json(tmp_path / name / "artifact.json", kept_as)
        inputs[f"run {name}"] = write_json(tmp_path / name / "run.json", {})
    info = RunInfo(run_dir=tmp_path, name="", group=None, job_type="", config={})
    found = collect_files(info, {}, [], inputs=inputs, recorded={})
    names = [files.known_as for files in found if files.is_input]
    assert names == [
        f"leaderboard:run-01234567-{hash_of(token)}",
        "me/p/leaderboard:v1",
    ]


def hash_of(manifest: dict[str, Any]) -> str:
    return make_fingerprint(manifest["config"])[:8]


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("k=16 n_perms=500", "k16-n_perms500"),
        ("judge=[a,b]", "judge_a_b_"),
        ("v=1", None),  # as W&B calls the second version
    ],
)
def test_a_job_has_an_alias_of_what_was_swept(
    tmp_path: Path, name: str, alias: str | None
):
    files = kept(tmp_path, "manifest.json", name=name, group="sweep")["run-files"]
    assert files.aliases == ("latest", "run-0123", *filter(None, [alias]))


# Back


@pytest.mark.parametrize(
    "entry",
    ["wandb:leaderboard:v1", "wandb:me/elo_exp/board", "wandb:me/../board:v1"],
)
def test_the_name_of_an_artifact_is_whole(entry: str, tmp_path: Path):
    with pytest.raises(
        UserError, match=r"must be wandb:ENTITY/PROJECT/leaderboard:VERSION"
    ):
        fetch(entry, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_summary_stands_for_the_manifest_of_a_run_that_has_finished(tmp_path: Path):
    ratings = {"dimensions": {"d": {"elo": {"ratings": []}}}}
    config = {"elo": {"k": 8}, "rating": {}}
    write_json(tmp_path / "run.json", {"config": config, "n_perms": 5})
    write_json(tmp_path / "ratings.json", ratings)
    ((run,), left_out) = read_runs([str(tmp_path)])
    assert (run.manifest["config"], left_out) == (config, [])
    write_json(tmp_path / "run.json", {"config": 3})
    with pytest.raises(
        UserError,
        match=r"run\.json is not as a run writes it: config must be a mapping.*; got 3",
    ):
        read_runs([str(tmp_path)])


@pytest.mark.parametrize(
    "kept_as",
    [[], {}, {"name": 3}, {"name": "leaderboard"}, {"name": "a/b/c:v1\n"}, "{"],
)
def test_the_name_of_what_was_fetched_is_one_or_is_refused_in_a_line(
    kept_as: object, tmp_path: Path
):
    """An artifact's folder is anybody's, and its name goes to a tracker."""
    write_json(tmp_path / "run.json", {"config": {"elo": {"k": 8}}, "n_perms": 5})
    write_json(tmp_path / "ratings.json", {"dimensions": {}})
    path = tmp_path / "artifact.json"
    if kept_as == "{":
        write_whole(path, b"{")
    else:
        write_json(path, kept_as)
    ran = attempt("experiment=compare", f"runs=[{tmp_path}]", folder=tmp_path)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith(f"elo_exp: {path}")


@pytest.mark.slow
def test_what_cannot_be_fetched_is_a_line_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """No key, a server that refuses, hangs or is not there, an artifact of another kind or from elsewhere."""

    def reason(name: str = "leaderboard:v0") -> str:
        with pytest.raises(UserError) as caught:
            fetch(f"wandb:me/elo_exp/{name}", tmp_path / "fetched", patience=8)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    monkeypatch.setenv("HOME", str(tmp_path))
    with ProjectServer() as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        server.keep("leaderboard", {"ratings.json": b"{}", "notes.txt": b"x"})
        server.keep("board", {"ratings.json": None})
        server.keep("bank", {"bank.jsonl": b"x"}, kind="dataset")
        place = fetch("wandb:me/elo_exp/leaderboard:v0", tmp_path / "fetched")
        left = sorted(path.name for path in place.iterdir())
        assert left == ["artifact.json", "ratings.json"]
        assert "'leaderboard:v7' not found" in reason("leaderboard:v7")
        assert "of type dataset, not a leaderboard" in reason("bank:v0")
        assert "one of its files is stored outside Weights & Biases" in reason(
            "board:v0"
        )
        server.files.clear()
        (place / "ratings.json").unlink()
        assert "404" in reason()
        server.refusal = 403
        assert "permission denied" in reason()
        server.refusal, server.delay = None, 1000.0
        assert "does not answer within 8 s" in reason()
        monkeypatch.delenv("WANDB_API_KEY")
        assert "No API key configured" in reason()
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert "does not answer within 8 s" in reason()
