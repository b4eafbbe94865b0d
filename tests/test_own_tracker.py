"""A tracker of one's own, in a file beside one's configuration: the recipe of docs/wandb.md, with MLflow's own client.

MLflow keeps its runs in a database file here, in place of a server.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elo_exp.paths import HOME
from elo_exp.trackers import Files, RunInfo, TrackedRun, track_run
from elo_exp.trackers.local import LocalTracker
from elo_exp.trackers.subprocess_run import SubprocessRun, TrackerError
from tests.commands import Ran, attempt, run

RECIPE = HOME / "docs/examples/mlflow"
RATE = ("experiment=rate", "battles=battles.csv", "figures=false", "elo.n_perms=5")


def follow(folder: Path, *given: str) -> Ran:
    words = (f"--config-dir={RECIPE}", *RATE, "tracker=mlflow", "hydra.run.dir=run")
    at = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
    return attempt(*words, *given, folder=folder, MLFLOW_DISABLE_TELEMETRY="true", **at)


@pytest.mark.system
@pytest.mark.filterwarnings("ignore")  # MLflow's, of its database
def test_runs_are_in_mlflow_with_the_numbers_of_the_others_and_a_job_is_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from mlflow import MlflowClient  # which takes a second

    monkeypatch.syspath_prepend(RECIPE)
    (tmp_path / "battles.csv").write_text(
        "model_a,model_b,winner\na,b,model_a\nb,a,model_a\n", encoding="utf-8"
    )
    first = follow(tmp_path)
    assert (first.code, first.err.count("warning")) == (0, 0), first.err
    again = follow(tmp_path, "tracker.texts=false")
    assert again.code == 0, again.err
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    project = client.get_experiment_by_name("elo_exp")
    (found,) = client.search_runs([project.experiment_id])
    assert f"tracked       MLflow, run {found.info.run_id}" in again.out
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    here = run(*RATE, "tracker=local", "hydra.run.dir=local", folder=tmp_path)
    log = (here.run_dir / "tracker/log.jsonl").read_text(encoding="utf-8")
    rows = {row["kind"]: row["value"] for row in map(json.loads, log.splitlines())}
    for name, value in rows["summary"].items():
        if isinstance(value, int | float):
            at_mlflow = found.data.metrics[name]
            assert name.startswith("usage/") or at_mlflow == value
    token = again.read("manifest.json")["token"]
    tags = found.data.tags
    assert tags["elo_exp.id"].startswith(f"{token}-")
    assert tags["mlflow.note.content"].splitlines()[0] == rows["notes"].splitlines()[0]
    assert (found.data.params["elo.n_perms"], tags["experiment"]) == ("5", "rate")
    files = {file.path for file in client.list_artifacts(found.info.run_id)}
    assert {"leaderboard", "run-files"} <= files


@dataclass(kw_only=True)
class WithoutTexts(LocalTracker):
    texts: bool = False


def test_a_tracker_without_texts_is_given_none(tmp_path: Path):
    info = RunInfo(run_dir=tmp_path, name="here", group=None, job_type="", config={})
    board, prompts = tmp_path / "board.json", tmp_path / "prompts.jsonl"
    with track_run(WithoutTexts(), info) as tracked:
        tracked.log({"verdicts": [{"question": "Why?"}], "win_rates": [{"a": 1}]})
        both = {"board.json": board, "prompts.jsonl": prompts}
        texts = frozenset({"prompts.jsonl"})
        tracked.log_files(Files(kind="run", name="all", paths=both, texts=texts))
        tracked.log_files(
            Files(
                kind="dataset",
                name="bank",
                paths={"prompts.jsonl": prompts},
                texts=texts,
            )
        )
    log = (tmp_path / "tracker/log.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in log.splitlines()]
    (summary,) = (row["value"] for row in rows if row["kind"] == "summary")
    (files,) = (row["value"] for row in rows if row["kind"] == "files")
    assert [*summary] == ["win_rates"]
    assert (files["name"], [*files["paths"]]) == ("all", ["board.json"])


class Unreachable:
    def open(self, info: RunInfo) -> TrackedRun:
        raise ConnectionError(f"no way to {info.name}")


def test_a_tracker_that_fails_is_a_warning_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    info = RunInfo(run_dir=tmp_path, name="here", group=None, job_type="", config={})
    with caplog.at_level(logging.WARNING), track_run(Unreachable(), info) as tracked:
        tracked.log({"order/d/gap": 1.0})
        assert tracked.where is None
    assert caplog.messages == [
        "warning: Unreachable fails (ConnectionError: no way to here): from here on, nothing is "
        "logged to it. The run goes on."
    ]


@pytest.mark.parametrize(
    ("open_run", "reason"),
    [
        (functools.partial(time.sleep, 60), "not done within 1 s"),
        (functools.partial(os._exit, 3), "its process has ended"),
        (functools.partial(float, "none"), "ValueError: could not convert string"),
    ],
)
def test_a_run_in_a_process_of_its_own_is_given_up_where_it_hangs_or_dies(
    open_run: Any, reason: str
):
    started = time.monotonic()
    with pytest.raises(TrackerError, match=reason):
        SubprocessRun(open_run, sdk="json", limit_s=1)
    assert time.monotonic() - started < 50
