"""Run folders: what is read from one is data, and a run writes in its own folder only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.errors import UserError
from elo_exp.files import write_json
from elo_exp.runs.manifest import record_files, run_manifest, set_aside_other_run
from elo_exp.runs.reading import manifest_if_any, read_runs, read_settings
from elo_exp.store.answer_store import Store
from elo_exp.store.usage import Usage
from elo_exp.trackers import RunInfo


def manifest(folder: Path, text: str) -> Path:
    (folder / "manifest.json").write_text(text, encoding="utf-8")
    return folder


def test_a_manifest_names_no_class_and_resolves_nothing(tmp_path: Path):
    """Whatever a folder's manifest says, no code of its choice runs, and no variable is read."""
    elo = {
        "_target_": "os.system",
        "k": "${oc.env:HOME}",
        "k_sweep": [{"_target_": "os.system"}],
    }
    config = {"config": {"elo": elo, "rating": {}}}
    found = read_settings(manifest(tmp_path, json.dumps(config)))
    assert found == {"elo": {"k": "${oc.env:HOME}", "k_sweep": [{}]}, "rating": {}}


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 100_000, '{"config": 1}', '{"files": "all"}']
)
def test_a_manifest_that_no_run_wrote_is_one_line(tmp_path: Path, text: str):
    with pytest.raises(UserError, match=r"^\S*manifest.json"):
        read_settings(manifest(tmp_path, text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
FIELDS = ("config", "overrides", "finished_at", "error", "usage", "files", "weights")


@pytest.mark.system
@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_law_any_manifest_is_read_as_it_is_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]
):
    folder = manifest(tmp_path_factory.mktemp("run"), json.dumps(content))
    assert manifest_if_any(folder) in ({}, content)
    with pytest.raises(UserError):
        read_runs([str(folder)])


@pytest.mark.parametrize("outside", ["../kept.txt", "{}/kept.txt"])
def test_files_that_a_manifest_names_elsewhere_stay_there(tmp_path: Path, outside: str):
    """Files of an earlier run in the same folder are moved to `earlier/`."""
    kept, folder = tmp_path / "kept.txt", tmp_path / "run"
    folder.mkdir()
    names = [outside.format(tmp_path), "old.txt"]
    for path in (kept, folder / "old.txt"):
        path.write_text("text", encoding="utf-8")
    manifest(folder, json.dumps({"files": names}))
    info = RunInfo(run_dir=folder, name="", group=None, job_type="rate", config={})
    with (
        Store(tmp_path / "store.sqlite") as store,
        run_manifest(info, Usage(), {}, {}, store) as content,
    ):
        record_files(content, folder, [folder / "manifest.json"])
    assert kept.read_text(encoding="utf-8") == "text"
    assert (folder / "earlier/old.txt").is_file()


def test_two_runs_that_started_in_one_second_are_set_aside_apart(tmp_path: Path):
    places = []
    for seed in (1, 2):
        finished = {
            "token": "0123abcd",
            "started_at": "2026-01-02T03:04:05Z",
            "finished_at": "2026-01-02T03:04:05Z",
            "config": {"seed": seed},
            "files": ["ratings.json"],
        }
        write_json(tmp_path / "manifest.json", finished)
        write_json(tmp_path / "ratings.json", {"seed": seed})
        place = set_aside_other_run(tmp_path, {"seed": 3}, {})
        assert place is not None
        assert json.loads((place / "ratings.json").read_text()) == {"seed": seed}
        places.append(place.name)
    assert places == ["2026-01-02T03-04-05", "2026-01-02T03-04-05_2"]
