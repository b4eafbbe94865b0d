"""A tracker follows a run so that it can be compared with others: a Weights & Biases run for each job, or local files.

The runs here are made offline and read back with `wandb leet inspect`, W&B's own reader of its run files.
"""

import csv
import json
import os
import pty
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from elo_exp.figures.sheets import Sheet
from elo_exp.records import UserError
from elo_exp.results import Plot, RunInfo
from elo_exp.trackers.wandb import WandbTracker
from tests.commands import (
    LOCAL,
    SCRIPTS,
    SMALL,
    Ran,
    attempt,
    attempt_program,
    command,
    environment,
    run,
)
from tests.wandb_server import KEY, serving

DIMENSIONS = ["factuality", "calibration", "clinical_utility"]
PROBES = ["probe_reference", "probe_hedged", "probe_partial", "probe_swapped"]
FIGURES = {
    *("ratings", "pairwise_winrates", "differences", "rank_chances", "detectable_differences"),
    *("k_sensitivity", "permutation_traces", "order_effect"),
    *("position_effect", "length_effect", "length_ratings"),
    *("calibration", "pair_residuals"),
}
Record = dict[str, Any]


class Logged:
    """A W&B run file, read back."""

    def __init__(self, run_dir: Path, folder: Path) -> None:
        (self.path,) = run_dir.glob("wandb/offline-run-*/run-*.wandb")
        inspected = attempt_program(
            str(SCRIPTS / "wandb"), "leet", "inspect", "--json", str(self.path), folder=folder
        )
        assert inspected.code == 0, inspected.err
        self._records = [json.loads(line) for line in inspected.out.splitlines()]

    def of(self, kind: str) -> list[Record]:
        return [record[kind] for record in self._records if record["type"] == kind]

    @property
    def run(self) -> Record:
        (record,) = self.of("run")
        return record

    @property
    def config(self) -> Record:
        return dict(self.run["config"]["update"])

    @property
    def history(self) -> list[Record]:
        return [record["item"] for record in self.of("history")]

    @property
    def summary(self) -> Record:
        return {
            name: value for record in self.of("summary") for name, value in record["update"].items()
        }

    def logged(self, key: str) -> Record:
        """The only thing ever logged under a key, which W&B writes as `key.property` in one row of the history."""
        (item,) = (row for row in self.history if any(name.startswith(f"{key}.") for name in row))
        return {
            name.removeprefix(f"{key}."): value
            for name, value in item.items()
            if name.startswith(f"{key}.")
        }

    def table(self, key: str) -> list[Record]:
        """The rows of the only table ever logged under a key."""
        table = json.loads(self.file(self.logged(key)["path"]).read_text(encoding="utf-8"))
        return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]

    def chart(self, key: str) -> str:
        """What kind of chart is drawn under a key."""
        charts = {
            name: value for record in self.of("config") for name, value in record["update"].items()
        }
        return str(charts[f"_wandb.visualize.{key}"]["panel_config"]["panelDefId"])

    def file(self, name: str) -> Path:
        return self.path.parent / "files" / name


def on_a_terminal(*arguments: str, folder: Path) -> tuple[int, str]:
    """Exit code and screen of a command at whose terminal nobody types; it is ended should it wait for someone."""
    ours, its = pty.openpty()
    environ = environment(folder) | {"TERM": "xterm-256color"}
    process = subprocess.Popen(
        command(*arguments, strict=False),
        cwd=folder,
        env=environ,
        stdin=its,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    patience = threading.Timer(60, process.kill)
    patience.start()
    screen = b""
    with suppress(OSError):  # the other end closes when the process ends
        while chunk := os.read(ours, 4096):
            screen += chunk
    os.close(ours)
    code = process.wait()
    patience.cancel()
    return code, screen.decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of this file share a store."""
    return tmp_path_factory.mktemp("tracked")


@pytest.fixture(scope="module")
def at_the_terminal(folder: Path) -> tuple[int, str]:
    return on_a_terminal(*SMALL, "elo.k=12", "hydra.run.dir=tracked", folder=folder)


@pytest.fixture(scope="module")
def logged(at_the_terminal: tuple[int, str], folder: Path) -> Logged:
    code, screen = at_the_terminal
    assert code == 0, screen
    return Logged(folder / "tracked", folder)


@pytest.fixture(scope="module")
def local(logged: Logged, folder: Path) -> Ran:
    """The same run again, followed by tracker=local."""
    return run(*LOCAL, "elo.k=12", "hydra.run.dir=local", folder=folder)


# Weights & Biases


def test_without_a_key_a_run_at_a_terminal_is_offline_and_asks_nothing(
    at_the_terminal: tuple[int, str], folder: Path
):
    code, screen = at_the_terminal
    assert code == 0, screen
    assert "API key" not in screen
    assert "Enter your choice" not in screen
    assert screen.splitlines()[-1] == str(folder / "tracked")


def test_the_run_is_named_after_its_folder_and_its_job_is_the_experiment(logged: Logged):
    assert logged.run["display_name"] == "tracked"
    assert logged.run["job_type"] == "tournament"
    assert logged.run["project"] == "elo_exp"
    assert "run_group" not in logged.run
    assert logged.of("exit")[0]["exit_code"] == 0


def test_the_configuration_can_be_grouped_and_filtered_by(logged: Logged):
    assert logged.config["elo"]["k"] == 12
    assert logged.config["elo"]["n_perms"] == 20
    assert logged.config["mode"]["name"] == "demo"
    assert logged.config["judge"]["_target_"] == "elo_exp.judges.lexical.LexicalJudge"
    assert logged.config["judge_model"] == "lexical"
    assert logged.config["entrants"] == ", ".join(PROBES)
    assert logged.config["dimensions"] == ", ".join(DIMENSIONS)


def test_the_summary_holds_every_rating_under_the_same_name_in_every_run(
    logged: Logged, folder: Path
):
    primary = json.loads((folder / "tracked/elo_results.json").read_text(encoding="utf-8"))[
        "primary"
    ]
    for dimension in DIMENSIONS:
        for name in PROBES:
            assert logged.summary[f"elo/{dimension}/{name}"] == primary[dimension][name]["mean"]
            assert (
                logged.summary[f"elo_ordering_error/{dimension}/{name}"]
                == primary[dimension][name]["sem"]
            )
            low, high = (
                logged.summary[f"bradley_terry_ci_{end}/{dimension}/{name}"]
                for end in ("low", "high")
            )
            assert low < logged.summary[f"bradley_terry/{dimension}/{name}"] < high


def test_the_summary_says_how_the_judge_behaved_and_what_was_spent(logged: Logged):
    for dimension in DIMENSIONS:
        assert logged.summary[f"judge/{dimension}/flip_rate"] == 0
        assert logged.summary[f"judge/{dimension}/first_shown_rate"] == 0.5
        assert logged.summary[f"judge/{dimension}/invalid_rate"] == 0
    assert logged.summary["usage/judge_calls"] > 0
    assert logged.summary["usage/dollars"] == 0


def test_the_traces_are_line_charts_over_the_number_of_permutations(logged: Logged, folder: Path):
    names = {f"trace/{dimension}/{name}" for dimension in DIMENSIONS for name in PROBES}
    steps = {
        metric["name"]: metric["step_metric"]
        for metric in logged.of("metric")
        if "step_metric" in metric
    }
    assert steps == dict.fromkeys(names, "n_perms")
    rows = [row for row in logged.history if "n_perms" in row]
    assert [row["n_perms"] for row in rows] == list(range(1, 21))
    assert all(names <= set(row) for row in rows)
    last = {
        name: rows[-1][f"trace/{name}"]
        for name in ("factuality/probe_hedged", "calibration/probe_swapped")
    }
    assert last == pytest.approx({name: logged.summary[f"elo/{name}"] for name in last})


def test_every_figure_is_an_image_with_its_caption(logged: Logged):
    for name in FIGURES:
        media = logged.logged(f"figures/{name}")
        assert (media["_type"], media["format"]) == ("image-file", "png")
        assert media["caption"]
        assert logged.file(media["path"]).stat().st_size == media["size"]


def test_every_figure_has_its_numbers_as_a_table_but_for_points_of_curves(
    logged: Logged, folder: Path
):
    curves = {"detectable_differences", "permutation_traces", "order_effect"}
    tables = (name for row in logged.history for name in row if name.startswith("tables/"))
    shown = {name.split(".")[0].removeprefix("tables/") for name in tables}
    assert shown == set(FIGURES) - curves
    for name in shown:
        with (folder / f"tracked/figures/{name}.csv").open(encoding="utf-8", newline="") as file:
            kept = list(csv.DictReader(file))
        rows = logged.table(f"tables/{name}")
        assert len(rows) == len(kept)
        assert [row["dimension"] for row in rows] == [row["dimension"] for row in kept]
        assert {str(value) for value in rows[0].values() if value is not None} <= set(
            kept[0].values()
        )


def test_the_k_sensitivity_is_a_table_that_ends_in_the_ratings(logged: Logged):
    rows = logged.table("tables/k_sensitivity")
    assert {row["k"] for row in rows} == {1, 4, 8, 12, 16, 32}
    at_12 = {
        f"elo/{row['dimension']}/{row['model']}": row["rating"] for row in rows if row["k"] == 12
    }
    assert at_12 == pytest.approx({name: logged.summary[name] for name in at_12})
    assert len(at_12) == 12


def test_lines_are_charts_of_their_own_for_each_dimension(logged: Logged):
    by_k = {
        (row["dimension"], row["model"], row["k"]): row["rating"]
        for row in logged.table("tables/k_sensitivity")
    }
    for dimension in DIMENSIONS:
        points = logged.table(f"charts/k_sensitivity/{dimension}_table")
        drawn = {(dimension, point["lineKey"], point["step"]): point["lineVal"] for point in points}
        assert drawn == {name: rating for name, rating in by_k.items() if name[0] == dimension}
        assert logged.chart(f"charts/k_sensitivity/{dimension}") == "wandb/lineseries/v0"
        curves = logged.table(f"charts/detectable_differences/{dimension}_table")
        assert {point["lineKey"] for point in curves} == {"detectable", "corrected"}


def test_win_rates_and_judge_quality_are_tables(logged: Logged):
    assert len(logged.table("tables/pairwise_winrates")) == 18
    assert [row["dimension"] for row in logged.table("judge_quality")] == DIMENSIONS


def test_verdicts_are_a_table_to_filter(logged: Logged, folder: Path):
    """Each as its file has it: one query, with the entrant whom it names and the lengths of both answers."""
    rows = logged.table("verdicts")
    lines = (folder / "tracked/verdicts/factuality.jsonl").read_text(encoding="utf-8").splitlines()
    judgments = {
        (j["prompt_id"], j["entrant_a"], j["entrant_b"]): j for j in map(json.loads, lines)
    }
    of_factuality = [row for row in rows if row["dimension"] == "factuality"]
    assert len(of_factuality) == 2 * len(judgments)
    assert {row["dimension"] for row in rows} == set(DIMENSIONS)
    for row in of_factuality:
        judgment = judgments[row["prompt_id"], row["entrant_a"], row["entrant_b"]]
        verdict = judgment["raw"][["ab", "ba"].index(row["order"])]
        assert row["verdict"] == verdict["verdict"]
        assert (
            row["reconciled"] == row["winner"] == (judgment["winner"] or "tie")
        )  # the lexical judge never flips


def test_the_run_folder_is_the_artifact(logged: Logged):
    (artifact,) = (record for record in logged.of("artifact") if record["type"] == "run")
    held = {content["path"] for content in artifact["manifest"]["contents"]}
    assert held >= {
        "manifest.json",
        "elo_results.json",
        "elo_per_perm.npz",
        "ratings.json",
        "battles.jsonl",
        "pairwise_winrates.csv",
        "verdicts/factuality.jsonl",
        "responses/responses_probe_hedged.jsonl",
        "figures/ratings.png",
    }


@pytest.fixture(scope="module")
def swept(logged: Logged, folder: Path) -> list[Logged]:
    ran = run(
        "-m",
        "elo.k=8,16",
        *SMALL,
        "rubric=[factuality]",
        "hydra.sweep.dir=both",
        folder=folder,
        strict=False,
    )
    assert "2 of 2 jobs finished" in ran.out
    return [Logged(folder / "both" / job, folder) for job in ("0", "1")]


def test_a_multirun_is_one_group_of_one_run_for_each_job(swept: list[Logged]):
    assert [run.run["run_group"] for run in swept] == ["both", "both"]
    assert len({run.run["run_id"] for run in swept}) == 2
    assert [run.config["elo"]["k"] for run in swept] == [8, 16]
    assert [run.of("exit")[0]["exit_code"] for run in swept] == [0, 0]


def test_a_job_is_named_after_what_was_asked_of_it(swept: list[Logged]):
    assert [run.run["display_name"].split()[0] for run in swept] == ["elo.k=8", "elo.k=16"]


def test_wandb_mode_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    info = RunInfo(
        run_dir=tmp_path, name="none", group=None, job_type="tournament", config={"elo": {"k": 16}}
    )
    with WandbTracker(project="elo_exp", entity=None, mode="auto", wait_s=30).open(info) as tracked:
        tracked.log_summary({"elo/factuality/probe_hedged": 1400.0})
    assert not list(tmp_path.rglob("*.wandb"))


def test_a_project_that_wandb_refuses_is_the_user_s_mistake(tmp_path: Path):
    info = RunInfo(run_dir=tmp_path, name="none", group=None, job_type="tournament", config={})
    tracker = WandbTracker(project="a/b", entity=None, mode="offline", wait_s=30)
    with (
        pytest.raises(UserError, match="'a/b': cannot contain characters.*Check tracker"),
        tracker.open(info),
    ):
        pytest.fail("the run has begun")


def test_so_is_a_variable_before_anything_is_judged(tmp_path: Path):
    ran = attempt(*SMALL, folder=tmp_path, strict=False, WANDB_BASE_URL="nowhere")
    assert ran.code == 2
    said = ran.err.splitlines()[-1]
    assert said.startswith(
        "elo_exp: tracker: Weights & Biases refuses a setting: base_url: Input should be a valid URL"
    )
    assert "Traceback" not in ran.err
    assert not list(tmp_path.rglob("verdicts"))


def test_a_server_that_does_not_answer_is_waited_for_once(tmp_path: Path):
    no_server = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    jobs = ("-m", "elo.k=8,16", "tracker.mode=online", "tracker.wait_s=1", "hydra.sweep.dir=both")
    ran = run(*jobs, *SMALL, "rubric=[factuality]", folder=tmp_path, strict=False, **no_server)
    assert ran.err.count("cannot be reached") == 1
    assert "2 of 2 jobs finished" in ran.out
    for job in ("0", "1"):
        assert Logged(tmp_path / "both" / job, tmp_path).of("exit")[0]["exit_code"] == 0


MIXED = [
    {"model": "a", "points": 1, "flag": None},
    {"model": "b", "points": 2.5, "flag": "unbeaten"},
]
LINES = [{"n": n, "loss": 1.0 / n, "floor": 0.1} for n in (1, 2, 4)]


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    """A run of one table and of one figure whose lines are in no dimension."""
    folder = tmp_path_factory.mktemp("by_hand")
    packing = Sheet("", ["empty"], width=1, height=1, left=0).finish("curve", [], "").packing
    info = RunInfo(run_dir=folder, name="by hand", group=None, job_type="oracle", config={})
    with pytest.MonkeyPatch.context() as patch:
        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
            patch.setenv(name, str(folder))
        with WandbTracker(project="elo_exp", entity=None, mode="offline", wait_s=30).open(
            info
        ) as tracked:
            tracked.log_table("mixed", MIXED)
            tracked.log_plot(
                Plot(name="curve", packing=packing, rows=LINES, x="n", y=("loss", "floor"))
            )
        yield Logged(folder, folder)


def test_lines_without_a_dimension_are_one_chart(by_hand: Logged):
    assert by_hand.chart("charts/curve") == "wandb/lineseries/v0"
    points = {
        (point["lineKey"], point["step"]): point["lineVal"]
        for point in by_hand.table("charts/curve_table")
    }
    assert points == {(name, row["n"]): row[name] for row in LINES for name in ("loss", "floor")}


def test_the_columns_of_a_table_have_the_types_of_all_its_rows(by_hand: Logged):
    """Of each column those that W&B allows: it reads them from one row of each kind."""
    (artifact,) = (record for record in by_hand.of("artifact") if record["name"].endswith("-mixed"))
    (content,) = artifact["manifest"]["contents"]
    table = json.loads(Path(content["local_path"]).read_text(encoding="utf-8"))
    assert table["data"] == [list(row.values()) for row in MIXED]
    types = table["column_types"]["params"]["type_map"]
    allowed = {
        name: {kind["wb_type"] for kind in types[name]["params"]["allowed_types"]} for name in types
    }
    assert allowed == {
        "model": {"none", "string"},
        "points": {"none", "number"},
        "flag": {"none", "string"},
    }


# A run that fails


@pytest.fixture(scope="module")
def half_answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded answers of two entrants to two prompts, of which one is missing: found out when the run has begun."""
    folder = tmp_path_factory.mktemp("half_answered")
    bank = [
        {"prompt_id": p, "source": "own", "subject": "sleep", "text": f"Is {p} normal?"}
        for p in ("p1", "p2")
    ]
    answers = {"probe_reference": ["p1", "p2"], "probe_hedged": ["p1"]}
    (folder / "bank.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in bank), encoding="utf-8"
    )
    for name, prompts in answers.items():
        rows = [{"prompt_id": p, "response_text": "Yes."} for p in prompts]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"responses_{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


def fail(folder: Path, tracker: str) -> Ran:
    entrants = "entrant=[probe_reference,probe_hedged]"
    given = (
        "rubric=[calibration]",
        "prompts.bank_path=bank.jsonl",
        "recorded_dir=.",
        f"hydra.run.dir={tracker}",
    )
    ran = attempt(entrants, *given, f"tracker={tracker}", folder=folder, strict=False)
    assert ran.code == 2
    assert "1 of 4 responses are missing (probe_hedged 1): probe_hedged on p2." in ran.err
    manifest = json.loads((folder / tracker / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["finished_at"] is None
    assert "1 of 4 responses are missing" in manifest["error"]
    return ran


def test_a_run_that_fails_is_closed_as_failed(half_answered: Path):
    fail(half_answered, "wandb")
    failed = Logged(half_answered / "wandb", half_answered)
    assert failed.of("exit")[0]["exit_code"] == 1
    assert failed.config["rubric"]["calibration"]["dimension"] == "calibration"


def test_so_is_its_local_log(half_answered: Path):
    fail(half_answered, "local")
    assert [row["kind"] for row in rows_of(half_answered / "local")] == ["run", "exit"]
    assert rows_of(half_answered / "local")[-1]["value"] == 1


# The dashboard


def dashboard(*given: str, folder: Path, **variables: str) -> Ran:
    """Not strict: wandb_workspaces uses what pydantic calls deprecated."""
    return attempt(
        "experiment=dashboard",
        "dashboard.file=dashboard.json",
        *given,
        folder=folder,
        strict=False,
        **variables,
    )


@pytest.fixture(scope="module")
def workspace(logged: Logged, folder: Path) -> Record:
    ran = dashboard("runs=[tracked]", "dashboard.group=both", folder=folder)
    assert ran.code == 0, ran.err
    assert (
        ran.out
        == "the workspace is in dashboard.json; with a Weights & Biases key it is saved to elo_exp too\n"
    )
    return dict(json.loads((folder / "dashboard.json").read_text(encoding="utf-8")))


def panels(workspace: Record) -> dict[str, list[Record]]:
    """By section."""
    sections = workspace["spec"]["section"]["panelBankConfig"]["sections"]
    return {section["name"]: section["panels"] for section in sections}


def found(value: Any, key: str) -> Iterator[Any]:
    """What stands under a key, at any depth."""
    for name, inside in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value if isinstance(value, list) else ())
    ):
        if name == key:
            yield inside
        yield from found(inside, key)


def test_a_dashboard_shows_ratings_k_traces_judge_and_spend(workspace: Record):
    assert {name: len(some) for name, some in panels(workspace).items()} == {
        "Ratings, with 95 % over prompts": 12,
        "How Elo depends on K": 3 + 12,
        "Were there enough match orders?": 3,
        "Can the judge be trusted?": 4 + 1,
        "What it cost": 3,
        "Figures of each run": 6,
        "In what the runs differ": 1,
    }


def test_a_dashboard_names_only_what_a_run_logs(workspace: Record, logged: Logged):
    metrics = {name for some in found(workspace, "metrics") for name in some}
    axes = {name for key in ("xAxis", "yAxis") for name in found(workspace, key)} - {"_step"}
    keys = {name for row in logged.history for name in row}
    assert metrics
    for name in metrics | {
        axis.removeprefix("summary:") for axis in axes if not axis.startswith("config:")
    }:
        assert name in logged.summary or name in keys, name
    tables = [
        args[0]["value"] for args in found(workspace, "args") if args[0]["name"] == "tableKey"
    ]
    assert len(tables) == 3
    for name in (
        *tables,
        "verdicts",
        *(key for some in found(workspace, "mediaKeys") for key in some),
    ):
        assert f"{name}.path" in keys, name
    assert {axis for axis in axes if axis.startswith("config:")} == {"config:elo.value.k"}


def test_its_columns_are_keys_of_the_configuration(workspace: Record, logged: Logged):
    (columns,) = found(workspace, "columnOrder")
    for column in columns[1:]:
        top, _, rest = column.removeprefix("config:").partition(".value")
        value = logged.config[top]
        assert value[rest.removeprefix(".")] if rest else value


def test_of_several_runs_it_shows_what_all_of_them_have(
    logged: Logged, swept: list[Logged], folder: Path
):
    """A sweep over one dimension, beside a run of three."""
    ran = dashboard("runs=[tracked,both]", "dashboard.file=shared.json", folder=folder)
    assert ran.code == 0, ran.err
    some = panels(json.loads((folder / "shared.json").read_text(encoding="utf-8")))
    assert [
        panel["config"]["chartTitle"].partition(":")[0]
        for panel in some["Ratings, with 95 % over prompts"]
    ] == ["factuality"] * len(PROBES)


def test_a_group_is_a_filter(workspace: Record):
    (run_set,) = workspace["spec"]["section"]["runSets"]
    (chosen,) = run_set["filters"]["filters"]
    assert (chosen["key"]["name"], chosen["value"]) == ("group", "both")


def test_with_a_key_a_dashboard_is_saved_to_the_server(workspace: Record, folder: Path):
    with serving() as server:
        saved = dashboard(
            "runs=[tracked]", "dashboard.file=saved.json", folder=folder, **server.variables
        )
        assert saved.code == 0, saved.err
        server.is_closed = True
        refused = dashboard("runs=[tracked]", folder=folder, **server.variables)
    (view,) = server.views
    assert (view["entityName"], view["projectName"], view["displayName"]) == (
        "me",
        "elo_exp",
        "elo_exp elo_exp",
    )
    assert len(json.loads(view["spec"])["section"]["panelBankConfig"]["sections"]) == len(
        panels(workspace)
    )
    assert saved.out.splitlines() == [
        f"{server.variables['WANDB_BASE_URL']}/me/elo_exp?nw={view['name'][3:-2]}",
        "saved.json",
    ]
    assert refused.code == 2
    assert refused.err.startswith("elo_exp: the workspace cannot be saved to Weights & Biases (")
    assert "permission denied). The JSON file is there." in refused.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("runs=[]", "runs: names no run folder. Name a sweep, or some runs of the project"),
        (
            "runs=[tracked] tracker=local",
            "tracker: has no workspaces. A dashboard is for tracker=wandb",
        ),
    ],
)
def test_what_has_no_dashboard_is_one_line(given: str, said: str, logged: Logged, folder: Path):
    refused = dashboard(*given.split(), folder=folder)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert said in refused.err


# Local files


def rows_of(run_dir: Path) -> list[Record]:
    return [
        json.loads(line)
        for line in (run_dir / "tracker/log.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def values(ran: Ran, kind: str) -> Iterator[Any]:
    return (row["value"] for row in rows_of(ran.run_dir) if row["kind"] == kind)


def test_local_begins_with_the_run_and_ends_with_its_exit_code(local: Ran):
    (begun,), (ended,) = values(local, "run"), values(local, "exit")
    assert (begun["name"], begun["group"], begun["job_type"]) == ("local", None, "tournament")
    assert begun["config"]["elo"]["k"] == 12
    assert begun["overrides"][-1] == "elo.k=12"
    assert ended == 0


def test_local_writes_the_same_numbers_as_wandb(local: Ran, logged: Logged):
    (summary,) = values(local, "summary")
    ratings = {name: value for name, value in summary.items() if not name.startswith("usage/")}
    assert ratings == {name: logged.summary[name] for name in ratings}
    (series,) = values(local, "series")
    assert series["step"] == "n_perms"
    assert series["rows"] == [
        {name: value for name, value in row.items() if not name.startswith("_")}
        for row in logged.history
        if "n_perms" in row
    ]
    tables = {value["name"]: value["rows"] for value in values(local, "table")}
    assert {name: len(rows) for name, rows in tables.items()} == {
        "judge_quality": 3,
        "verdicts": 3 * 2 * 40,
    }
    assert tables["verdicts"] == logged.table("verdicts")


def test_local_writes_the_figures_and_names_the_files(local: Ran):
    paths = {
        value["name"]: local.run_dir / "tracker" / value["path"]
        for value in values(local, "figure")
    }
    assert set(paths) == FIGURES
    for path in paths.values():
        assert path.read_bytes() == (local.run_dir / "figures" / path.name).read_bytes()
    (files,) = values(local, "files")
    assert {
        "manifest.json",
        "elo_results.json",
        "figures/ratings.png",
        "verdicts/calibration.jsonl",
    } <= set(files)
    assert all((local.run_dir / name).is_file() for name in files)
