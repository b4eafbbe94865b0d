"""A tracker logs each job's run: to Weights & Biases, or to local files.

Runs are made offline and read back with `wandb leet inspect`, W&B's own reader of its files.
"""

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from elo_exp.files import write_jsonl
from elo_exp.records import UserError
from elo_exp.trackers import RunInfo
from elo_exp.trackers.wandb import WandbTracker
from tests.commands import LOCAL, SMALL, Ran, attempt, attempt_program, environment, run
from tests.wandb_server import KEY, serving

DIMENSIONS = ["factuality", "calibration", "clinical_utility"]
PROBES = ["probe_reference", "probe_hedged", "probe_partial", "probe_swapped"]
Record = dict[str, Any]


class Logged:
    """A W&B run file, read back."""

    def __init__(self, run_dir: Path, folder: Path) -> None:
        (self.path,) = run_dir.glob("wandb/offline-run-*/run-*.wandb")
        program = (sys.executable, "-m", "wandb", "leet", "inspect", "--json")
        inspected = attempt_program(*program, str(self.path), folder=folder)
        assert inspected.code == 0, inspected.err
        self._records = [json.loads(line) for line in inspected.out.splitlines()]
        (self.run,) = self.of("run")
        self.config: Record = self.run["config"]["update"]
        self.exit_code = int(self.of("exit")[0]["exit_code"])
        self.history: list[Record] = [record["item"] for record in self.of("history")]
        self.summary: Record = {}
        for record in self.of("summary"):
            self.summary |= record["update"]

    def of(self, kind: str) -> list[Record]:
        return [record[kind] for record in self._records if record["type"] == kind]

    def media(self, key: str) -> Record:
        """The properties of what was logged under a key, and its file."""
        start = f"{key}."
        (found,) = (
            {k.removeprefix(start): v for k, v in row.items() if k.startswith(start)}
            for row in self.history
            if any(name.startswith(start) for name in row)
        )
        return found | {"file": self.path.parent / "files" / found["path"]}

    def table(self, key: str) -> list[Record]:
        table = json.loads(self.media(key)["file"].read_text(encoding="utf-8"))
        return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]


def run_at_a_terminal(*arguments: str, folder: Path) -> tuple[int, str]:
    """Exit code and screen of a command at a terminal at which nobody types."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "elo_exp", *arguments],
        cwd=folder,
        env=environment(folder) | {"TERM": "xterm-256color"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    timer = threading.Timer(600, process.kill)
    timer.start()
    screen = b""
    with suppress(OSError):  # the other end closes when the process ends
        while chunk := os.read(controller, 4096):
            screen += chunk
    os.close(controller)
    code = process.wait()
    timer.cancel()
    return code, screen.decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of this file share a store."""
    return tmp_path_factory.mktemp("tracked")


@pytest.fixture(scope="module")
def logged(folder: Path) -> Logged:
    """A run at a terminal without a key."""
    code, screen = run_at_a_terminal(
        *SMALL, "elo.k=12", "hydra.run.dir=tracked", folder=folder
    )
    assert code == 0, screen
    assert "API key" not in screen
    assert "Enter your choice" not in screen
    return Logged(folder / "tracked", folder)


@pytest.fixture(scope="module")
def local(logged: Logged, folder: Path) -> Ran:
    """The same run, logged by tracker=local."""
    return run(*LOCAL, "elo.k=12", "hydra.run.dir=local", folder=folder)


def run_info(folder: Path) -> RunInfo:
    return RunInfo(
        run_dir=folder, name="none", group=None, job_type="tournament", config={}
    )


# Weights & Biases


def test_a_run_has_its_name_configuration_ratings_quality_and_spend(
    logged: Logged, folder: Path
):
    record, config, summary = logged.run, logged.config, logged.summary
    assert (record["display_name"], record["job_type"]) == ("tracked", "tournament")
    assert (record["project"], logged.exit_code) == ("elo_exp", 0)
    assert "run_group" not in record
    assert (config["elo"]["k"], config["mode"]["name"]) == (12, "demo")
    assert (config["judge_model"], config["entrants"]) == ("lexical", ", ".join(PROBES))
    text = (folder / "tracked/elo_results.json").read_text(encoding="utf-8")
    for dimension, by_model in json.loads(text)["primary"].items():
        for name, elo in by_model.items():
            place = f"{dimension}/{name}"
            assert summary[f"elo/{place}"] == elo["mean"]
            assert summary[f"elo_ordering_error/{place}"] == elo["sem"]
            assert f"bradley_terry/{place}" in summary
        assert summary[f"judge/{dimension}/flip_rate"] == 0
    assert summary["usage/judge_calls"] > 0


def test_traces_are_line_charts_over_the_number_of_permutations(logged: Logged):
    names = {f"trace/{dimension}/{name}" for dimension in DIMENSIONS for name in PROBES}
    metrics = [m for m in logged.of("metric") if "step_metric" in m]
    steps = {m["name"]: m["step_metric"] for m in metrics}
    assert steps == dict.fromkeys(names, "n_perms")
    rows = [row for row in logged.history if "n_perms" in row]
    assert [row["n_perms"] for row in rows] == list(range(1, 21))
    for name in names:
        expected = logged.summary[name.replace("trace/", "elo/")]
        assert rows[-1][name] == pytest.approx(expected)


def test_figures_are_images_verdicts_a_table_and_the_run_folder_the_artifact(
    logged: Logged, folder: Path
):
    image = logged.media("figures/ratings")
    assert (image["_type"], image["format"]) == ("image-file", "png")
    assert image["caption"].startswith("Ratings")
    figure = folder / "tracked/figures/ratings.png"
    assert image["file"].read_bytes() == figure.read_bytes()
    text = (folder / "tracked/verdicts/factuality.jsonl").read_text(encoding="utf-8")
    raw = {
        (judgment["prompt_id"], order, verdict["verdict"])
        for judgment in map(json.loads, text.splitlines())
        for order, verdict in zip(("ab", "ba"), judgment["raw"], strict=True)
    }
    assert raw == {
        (row["prompt_id"], row["order"], row["verdict"])
        for row in logged.table("verdicts")
        if row["dimension"] == "factuality"
    }
    (artifact,) = (found for found in logged.of("artifact") if found["type"] == "run")
    paths = {content["path"] for content in artifact["manifest"]["contents"]}
    assert paths >= {"manifest.json", "battles.jsonl", "verdicts/factuality.jsonl"}


@pytest.fixture(scope="module")
def swept(logged: Logged, folder: Path) -> list[Logged]:
    jobs = ("-m", "elo.k=8,16", "hydra.sweep.dir=both")
    run(*jobs, *SMALL, "rubric=[factuality]", folder=folder, strict=False)
    return [Logged(folder / "both" / job, folder) for job in ("0", "1")]


def test_a_multirun_is_one_group_with_a_run_for_each_job(swept: list[Logged]):
    for job, k in zip(swept, (8, 16), strict=True):
        assert (job.run["run_group"], job.config["elo"]["k"]) == ("both", k)
        assert job.run["display_name"].startswith(f"elo.k={k} ")
    assert swept[0].run["run_id"] != swept[1].run["run_id"]


def test_wandb_mode_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    tracker = WandbTracker(project="elo_exp", entity=None, mode="auto", wait_s=30)
    with tracker.open(run_info(tmp_path)) as tracked:
        tracked.log_summary({"elo/factuality/probe_hedged": 1400.0})
    assert not list(tmp_path.rglob("*.wandb"))


def test_a_project_that_wandb_refuses_is_a_user_error(tmp_path: Path):
    tracker = WandbTracker(project="a/b", entity=None, mode="offline", wait_s=30)
    message = "'a/b': cannot contain characters.*Check tracker"
    with pytest.raises(UserError, match=message), tracker.open(run_info(tmp_path)):
        pytest.fail("the run has begun")


def test_a_variable_that_wandb_refuses_stops_the_run_before_judging(tmp_path: Path):
    ran = attempt(*SMALL, folder=tmp_path, strict=False, WANDB_BASE_URL="nowhere")
    message = "elo_exp: tracker: Weights & Biases refuses a setting: base_url: Input should be"
    assert (ran.code, ran.err.splitlines()[-1].startswith(message)) == (2, True)
    assert not list(tmp_path.rglob("verdicts"))


def test_a_sweep_waits_once_for_a_server_that_does_not_answer(tmp_path: Path):
    server = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    online = ("tracker.mode=online", "tracker.wait_s=1", "hydra.sweep.dir=both")
    given = ("-m", "elo.k=8,16", *online, *SMALL, "rubric=[factuality]")
    ran = run(*given, folder=tmp_path, strict=False, **server)
    assert ran.err.count("cannot be reached") == 1
    for job in ("0", "1"):
        assert Logged(tmp_path / "both" / job, tmp_path).exit_code == 0


@pytest.mark.parametrize("tracker", ["wandb", "local"])
def test_a_run_that_fails_is_marked_as_failed(tracker: str, tmp_path: Path):
    """One of two recorded answers is missing, which is found out when the run has begun."""
    row = {"source": "own", "subject": "sleep", "text": "Is it normal?"}
    answers = [{"prompt_id": name, "response_text": "Yes."} for name in ("p1", "p2")]
    write_jsonl(tmp_path / "bank.jsonl", [{**row, **answer} for answer in answers])
    write_jsonl(tmp_path / "responses_probe_reference.jsonl", answers)
    write_jsonl(tmp_path / "responses_probe_hedged.jsonl", answers[:1])
    given = (
        "entrant=[probe_reference,probe_hedged]",
        "rubric=[calibration]",
        "prompts.bank_path=bank.jsonl",
        "recorded_dir=.",
        "hydra.run.dir=run",
    )
    ran = attempt(*given, f"tracker={tracker}", folder=tmp_path, strict=False)
    assert (ran.code, "probe_hedged on p2" in ran.err) == (2, True)
    if tracker == "wandb":
        assert Logged(tmp_path / "run", tmp_path).exit_code == 1
    else:
        assert rows_of(tmp_path / "run")["exit"] == [1]


# The dashboard


def dashboard(*given: str, folder: Path, **variables: str) -> Ran:
    """Not strict: wandb_workspaces uses what pydantic calls deprecated."""
    command = ("experiment=dashboard", "dashboard.file=dashboard.json", *given)
    return attempt(*command, folder=folder, strict=False, **variables)


def read_workspace(folder: Path) -> Record:
    return dict(json.loads((folder / "dashboard.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def workspace(logged: Logged, folder: Path) -> Record:
    ran = dashboard("runs=[tracked]", "dashboard.group=both", folder=folder)
    assert ran.code == 0, ran.err
    return read_workspace(folder)


def panels(workspace: Record) -> dict[str, list[Record]]:
    """By section."""
    sections = workspace["spec"]["section"]["panelBankConfig"]["sections"]
    return {section["name"]: section["panels"] for section in sections}


def values_at(value: Any, key: str) -> Iterator[Any]:
    """All values under a key, at any depth."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in pairs:
        if name == key:
            yield inner
        if isinstance(inner, dict | list):
            yield from values_at(inner, key)


def test_a_dashboard_names_only_what_a_run_logs(workspace: Record, logged: Logged):
    k = "config:elo.value.k"
    known = {name for row in logged.history for name in row}
    metrics = {name for some in values_at(workspace, "metrics") for name in some}
    axes = {name for key in ("xAxis", "yAxis") for name in values_at(workspace, key)}
    numbers = {name.removeprefix("summary:") for name in metrics | axes}
    assert len(metrics) > 50
    assert k in axes
    assert numbers - {k, "_step"} <= known | set(logged.summary)
    arguments = values_at(workspace, "args")
    tables = [some[0]["value"] for some in arguments if some[0]["name"] == "tableKey"]
    media = [key for some in values_at(workspace, "mediaKeys") for key in some]
    assert {f"{name}.path" for name in (*tables, *media)} <= known
    (columns,) = values_at(workspace, "columnOrder")
    for column in columns[1:]:
        top, _, rest = column.removeprefix("config:").partition(".value")
        assert top in logged.config
        assert not rest or rest.removeprefix(".") in logged.config[top]
    (run_set,) = workspace["spec"]["section"]["runSets"]
    (chosen,) = run_set["filters"]["filters"]
    assert (chosen["key"]["name"], chosen["value"]) == ("group", "both")


def test_a_dashboard_of_several_runs_shows_what_all_of_them_have(
    logged: Logged, swept: list[Logged], folder: Path
):
    """A sweep over one dimension, beside a run of three."""
    ran = dashboard("runs=[tracked,both]", folder=folder)
    assert ran.code == 0, ran.err
    ratings = panels(read_workspace(folder))["Result, with 95 % intervals"]
    titles = [panel["config"]["chartTitle"] for panel in ratings]
    assert {title.partition(":")[0] for title in titles} == {"factuality"}


def test_with_a_key_a_dashboard_is_saved_to_the_server(workspace: Record, folder: Path):
    with serving() as server:
        saved = dashboard("runs=[tracked]", folder=folder, **server.variables)
        server.is_closed = True
        refused = dashboard("runs=[tracked]", folder=folder, **server.variables)
    assert saved.code == 0, saved.err
    (view,) = server.views
    assert (view["entityName"], view["projectName"]) == ("me", "elo_exp")
    address = f"{server.variables['WANDB_BASE_URL']}/me/elo_exp?nw={view['name'][3:-2]}"
    assert saved.out.splitlines()[0] == address
    assert refused.code == 2
    message = "elo_exp: the workspace cannot be saved to Weights & Biases ("
    assert refused.err.startswith(message)
    assert "permission denied" in refused.err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["runs=[]"], "runs: "),
        (["runs=[tracked]", "tracker=local"], "tracker: has no workspaces"),
    ],
)
def test_what_has_no_dashboard_is_one_line(
    given: list[str], message: str, logged: Logged, folder: Path
):
    refused = dashboard(*given, folder=folder)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert message in refused.err


# Local files


def rows_of(run_dir: Path) -> dict[str, list[Any]]:
    """What was logged, by kind."""
    lines = (run_dir / "tracker/log.jsonl").read_text(encoding="utf-8").splitlines()
    found: dict[str, list[Any]] = {}
    for row in map(json.loads, lines):
        found.setdefault(row["kind"], []).append(row["value"])
    return found


def test_local_logs_the_same_as_wandb(local: Ran, logged: Logged):
    rows = rows_of(local.run_dir)
    assert (next(iter(rows)), rows["exit"]) == ("run", [0])
    (begun,), (numbers,), (series,) = rows["run"], rows["summary"], rows["series"]
    assert (begun["name"], begun["config"]["elo"]["k"]) == ("local", 12)
    for name, number in numbers.items():
        assert name.startswith("usage/") or logged.summary[name] == number
    traces = [row["n_perms"] for row in logged.history if "n_perms" in row]
    assert [row["n_perms"] for row in series["rows"]] == traces
    tables = {value["name"]: value["rows"] for value in rows["table"]}
    assert tables["verdicts"] == logged.table("verdicts")
    for figure in rows["figure"]:
        path = local.run_dir / "tracker" / figure["path"]
        assert path.read_bytes() == (local.run_dir / "figures" / path.name).read_bytes()
    (files,) = rows["files"]
    assert {"manifest.json", "figures/ratings.png"} <= set(files)
    assert all((local.run_dir / name).is_file() for name in files)
