"""tracker=trackio: a run in trackio's store on this machine, read back by trackio's reader."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from elo_exp.errors import UserError
from elo_exp.trackers import RunInfo
from elo_exp.trackers.trackio import TrackioTracker
from tests.commands import SMALL, Ran, attempt, attempt_program, run

pytestmark = pytest.mark.system

READ = """
import json
from trackio.sqlite_storage import SQLiteStorage
run, = SQLiteStorage.get_runs("elo_exp")
config = SQLiteStorage.get_run_config("elo_exp", run)
logs = SQLiteStorage.get_logs("elo_exp", run)
artifacts = SQLiteStorage.get_run_artifacts("elo_exp", run, None)
print(json.dumps({"run": run, "config": config, "logs": logs, "artifacts": artifacts}, default=str))
"""
GIVEN = (*SMALL, "rubric=[factuality]", "tracker=trackio")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("trackio")
    return run(
        *GIVEN,
        "hydra.run.dir=followed",
        folder=folder,
        TRACKIO_DIR=str(folder / "store"),
    )


@pytest.fixture(scope="module")
def kept(followed: Ran) -> dict[str, Any]:
    return read(followed.folder)


def read(folder: Path) -> dict[str, Any]:
    done = attempt_program(
        sys.executable, "-c", READ, folder=folder, TRACKIO_DIR=str(folder / "store")
    )
    assert done.code == 0, done.err
    return dict(json.loads(done.out.splitlines()[-1]))


def logged(kept: dict[str, Any], name: str) -> Any:
    (value,) = (row[name] for row in kept["logs"] if name in row)
    return value


def test_a_run_is_kept_with_its_configuration_and_final_values(
    kept: dict[str, Any], followed: Ran
):
    config = kept["config"]
    token = followed.read("manifest.json")["token"]
    assert (kept["run"][:17], config["elo"]["n_perms"]) == (f"followed {token}", 20)
    assert (config["judge_model"], config["job_type"]) == ("lexical", "tournament")
    primary = followed.read("elo_results.json")["primary"]["factuality"]
    for model, entry in primary.items():
        trace = [row for row in kept["logs"] if f"trace/factuality/{model}" in row]
        assert [row["step"] for row in trace] == list(range(1, 21))
        assert trace[-1][f"trace/factuality/{model}"] == entry["mean"]
        assert logged(kept, f"elo/factuality/{model}") == entry["mean"]
    assert logged(kept, "usage/judge_calls") > 0
    assert logged(kept, "exit_code") == 0
    assert "Trackio" not in followed.out
    assert "tracked       trackio show --project elo_exp" in followed.out


def test_figures_are_images_and_tables(kept: dict[str, Any], followed: Ran):
    image = logged(kept, "figures/ratings")
    picture = followed.folder / "store/media" / image["file_path"]
    figure = followed.run_dir / "figures/ratings.png"
    assert picture.read_bytes() == figure.read_bytes()
    assert logged(kept, "leaderboard")["_value"][0]["dimension"] == "factuality"
    assert len(logged(kept, "verdicts")["_value"]) == 40
    assert len(logged(kept, "ratings/factuality")["_value"]) == 3 * 4
    judged = [
        row["progress/judged"] for row in kept["logs"] if "progress/judged" in row
    ]
    assert judged[0] <= judged[-1] == logged(kept, "usage/judge_calls")


def test_files_are_artifacts_and_the_bank_is_used(kept: dict[str, Any]):
    names = {
        edge: {row["name"] for row in rows} for edge, rows in kept["artifacts"].items()
    }
    assert names["input"] == {"bank-bank"}
    assert names["output"] >= {"leaderboard", "verdicts-lexical", "run-files"}


def test_a_run_that_fails_says_so_and_given_again_it_is_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A judge's function gives a verdict that is none, which is found out when the run has begun."""
    module = tmp_path / "undecided_judge.py"
    module.write_text("def judge(prompt, a, b):\n    return 'neither'\n")
    monkeypatch.syspath_prepend(tmp_path)
    given = (
        "entrant=[probe_reference,probe_hedged]",
        "prompts.n=5",
        "judge=undecided_judge:judge",
        "judge.version=1",
    )
    store = str(tmp_path / "store")
    here = "hydra.run.dir=run"
    for _ in range(2):
        refused = attempt(*GIVEN, *given, here, folder=tmp_path, TRACKIO_DIR=store)
        assert refused.code == 2
    ends = [row for row in read(tmp_path)["logs"] if "exit_code" in row]
    assert [row["exit_code"] for row in ends] == [1, 1]
    assert {row["notes"] for row in ends} == {
        refused.err.splitlines()[-1].removeprefix("elo_exp: ")
    }


@pytest.mark.parametrize("name", ["TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"])
def test_nothing_is_sent_to_others(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv(name, "https://example.org")
    info = RunInfo(
        run_dir=tmp_path, name="none", group=None, job_type="tournament", config={}
    )
    message = f"tracker=trackio keeps runs on this machine, and {name} would send them elsewhere"
    with pytest.raises(UserError, match=message):
        TrackioTracker(project="elo_exp", texts=True).open(info)
