"""A tracker logs each job's run: to Weights & Biases, or to a local file.

Runs are made offline and read back with `wandb leet inspect`, W&B's own reader of its files.
"""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elo_exp.errors import UserError
from elo_exp.files import read_json, write_json
from elo_exp.trackers import RunInfo, track_run
from elo_exp.trackers.wandb import WandbTracker
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import (
    LOCAL,
    QUICK,
    SMALL,
    Ran,
    attempt,
    attempt_program,
    command,
    run,
    table,
)
from tests.project_server import KEY, ProjectServer
from tests.test_trackio import read

PROBES = ["probe_reference", "probe_hedged", "probe_partial", "probe_swapped"]
TWO = "rubric=[factuality,calibration]"
SPOILT = ("judge.position_effect=0.5", "elo.n_perms=20", "rubric=[factuality]")
Record = dict[str, Any]


def inspect(run_dir: Path, folder: Path) -> list[Record]:
    (path,) = run_dir.glob("wandb/offline-run-*/run-*.wandb")
    program = (sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path))
    inspected = attempt_program(*program, folder=folder)
    assert inspected.code == 0, inspected.err
    return [json.loads(line) for line in inspected.out.splitlines()]


class Logged:
    """A run folder, and its W&B run file read back."""

    def __init__(self, run_dir: Path, folder: Path) -> None:
        self.run_dir = run_dir
        self._records = inspect(run_dir, folder)
        self.run = self.of("run")[0]
        self.tags = self.of("run")[-1]["tags"]
        self.config: Record = self.run["config"]["update"]
        self.exit_code = int(self.of("exit")[0]["exit_code"])
        self.history: list[Record] = [record["item"] for record in self.of("history")]
        self.summary: Record = {}
        for record in self.of("summary"):
            self.summary |= record["update"]

    def of(self, kind: str) -> list[Record]:
        return [record[kind] for record in self._records if record["type"] == kind]

    def names(self) -> set[str]:
        """All that was logged; what is no number under the name that W&B gives it."""
        every = {name for row in self.history for name in row} | set(self.summary)
        return {name.partition("._")[0].removesuffix(".path") for name in every}

    def media(self, key: str) -> Record:
        """What was logged under a key that is no number, and its file."""
        rows = [row for row in self.history if f"{key}._type" in row]
        start, (row,) = f"{key}.", rows
        found = {
            k.removeprefix(start): v for k, v in row.items() if k.startswith(start)
        }
        (files,) = self.run_dir.glob("wandb/offline-run-*/files")
        return found | {"file": files / found.get("path", "")}

    def table(self, key: str) -> list[Record]:
        table = json.loads(self.media(key)["file"].read_text(encoding="utf-8"))
        return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]

    def lines(self, key: str) -> dict[str, list[tuple[float, float]]]:
        """The points of a native line chart, by line."""
        charts = {name for record in self.of("config") for name in record["update"]}
        assert f"_wandb.visualize.{key}" in charts
        found: dict[str, list[tuple[float, float]]] = {}
        for row in self.table(f"{key}_table"):
            found.setdefault(row["lineKey"], []).append((row["step"], row["lineVal"]))
        return found

    def artifacts(self) -> dict[str, Record]:
        """Those that hold files, by name; tables are artifacts of other types."""
        found = [one for one in self.of("artifact") if one["type"] != "run_table"]
        return {one["name"]: one for one in found}

    def paths(self, artifact: Record) -> list[str]:
        return [content["path"] for content in artifact["manifest"]["contents"]]

    def steps(self, axis: str) -> list[Record]:
        return [row for row in self.history if axis in row]

    def read(self, name: str) -> Any:
        return read_json(self.run_dir / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of this file share a store."""
    return tmp_path_factory.mktemp("tracked")


@pytest.fixture(scope="module")
def single(folder: Path) -> Logged:
    """A run at a terminal without a key."""
    terminal = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    words = (*SMALL, TWO, "elo.k=12", "tracker.stats=true", "hydra.run.dir=tracked")
    given = command(*words, strict=False)
    ran = attempt_program(sys.executable, "-c", terminal, *given, folder=folder)
    assert ran.code == 0, ran.out
    assert "API key" not in ran.out
    assert "Enter your choice" not in ran.out
    return Logged(folder / "tracked", folder)


@pytest.fixture(scope="module")
def swept(folder: Path) -> Ran:
    """A sweep with a judge that prefers what it sees first."""
    given = ("-m", "elo.k=8,16", "hydra.sweep.dir=both", *SPOILT)
    return run(*given, folder=folder, strict=False)


@pytest.fixture(scope="module")
def jobs(swept: Ran, folder: Path) -> list[Logged]:
    return [Logged(folder / "both" / job, folder) for job in "01"]


@pytest.fixture(scope="module")
def silent(folder: Path) -> Logged:
    """A run of two judges whose texts are not sent."""
    words = (
        "judge=[lexical,wide:lexical]",
        "judges.wide.margin=0.2",
        *LOCAL[:-1],
        "rubric=[factuality]",
        "figures=false",
        "tracker.texts=false",
        "hydra.run.dir=silent",
    )
    run(*words, folder=folder, strict=False)
    return Logged(folder / "silent", folder)


@pytest.fixture(
    scope="module",
    params=[pytest.param("single", marks=pytest.mark.system), "job"],
)
def logged(request: pytest.FixtureRequest) -> Logged:
    if request.param == "single":
        return request.getfixturevalue("single")  # type: ignore[no-any-return]
    return request.getfixturevalue("jobs")[1]  # type: ignore[no-any-return]


# What every job logs


@pytest.mark.system
def test_the_results_are_in_the_summary(logged: Logged):
    summary, manifest = logged.summary, logged.read("manifest.json")
    assert (
        summary["headline"] == summary[manifest["headline_is"]] == manifest["headline"]
    )
    assert summary["headline/gap_se"] == manifest["headline_std_error"]
    assert (logged.run_dir / manifest["config_path"]).is_file()
    best = logged.table("leaderboard")[0]["entrant"]
    assert summary["headline/first"].split(", ")[0] == best
    assert 0 < summary["known_order/recovered"] <= summary["known_order/pairs"]
    assert summary["usage/verdicts_wanted"] == manifest["usage"]["verdicts_wanted"]
    for dimension, by_model in logged.read("elo_results.json")["primary"].items():
        for name, elo in by_model.items():
            place = f"{dimension}/{name}"
            assert summary[f"elo/{place}"] == elo["mean"]
            assert summary[f"elo_ordering_error/{place}"] == elo["sem"]
            assert summary[f"bradley_terry_ci_low/{place}"] < elo["mean"] + 1000
    stored = logged.read("ratings.json")
    for dimension, found in stored["result"].items():
        order = stored["dimensions"][dimension]["elo"]["order"]
        assert {"gap", "mc_error", "one_order_wrong"} <= order.keys()
        for prefix, numbers in (("result", found), ("order", order)):
            for name, value in numbers.items():
                assert summary[f"{prefix}/{dimension}/{name}"] == value
    assert summary["order_mean/mc_error"] > 0
    assert summary["usage/seconds"] > 0
    rates = {row["dimension"]: row["flip_rate"] for row in manifest["judge_quality"]}
    for dimension, rate in rates.items():
        assert summary[f"judge/{dimension}/flip_rate"] == rate


@pytest.mark.system
def test_intervals_are_flat_lines_with_the_best_on_top(logged: Logged):
    ratings = logged.read("ratings.json")["dimensions"]["factuality"]
    board = ratings["bradley_terry"]["ratings"]
    expected = {
        row["model"]: [
            (row[end], len(board) - n) for end in ("ci_low", "rating", "ci_high")
        ]
        for n, row in enumerate(board)
    }
    assert logged.lines("ratings/factuality") == expected


@pytest.mark.system
def test_permutations_are_histograms_and_traces_end_at_the_mean(logged: Logged):
    rows = logged.steps("n_perms")
    assert [row["n_perms"] for row in rows] == list(range(1, 21))
    defined = {m["name"]: m for m in logged.of("metric")}
    lines = logged.lines("convergence/factuality")
    assert [*lines] == sorted(PROBES)
    for name in PROBES:
        shape = logged.media(f"permutations/factuality/{name}")
        mean = logged.summary[f"elo/factuality/{name}"]
        assert (shape["_type"], sum(shape["values"])) == ("histogram", 20)
        assert shape["bins"][0] <= mean <= shape["bins"][-1]
        assert rows[-1][f"trace/factuality/{name}"] == pytest.approx(mean)
        assert lines[name] == [
            (row["n_perms"], row[f"trace/factuality/{name}"]) for row in rows
        ]
        trace = defined[f"trace/factuality/{name}"]
        assert (trace["step_metric"], trace["options"]["hidden"]) == ("n_perms", True)
    assert not any(name.startswith("trace/") for name in logged.summary)


@pytest.mark.system
def test_elo_by_k_is_a_chart_with_the_limit_of_each_entrant(jobs: list[Logged]):
    """Whoever has a limit: it is a flat line over the values of K."""
    for job in jobs:
        found = job.read("elo_results.json")["k_sensitivity"]["factuality"]
        lines = job.lines("k_sensitivity/factuality")
        assert {*PROBES} <= {*lines}
        for name, line in lines.items():
            if name.endswith(", limit"):
                assert [k for k, _ in line] == [
                    min(map(float, found)),
                    max(map(float, found)),
                ]
                assert line[0][1] == line[1][1]
            else:
                assert line == [(float(k), at[name]["mean"]) for k, at in found.items()]


@pytest.mark.system
def test_tables_have_the_numbers_of_the_run_folder(logged: Logged):
    rates = table(logged.run_dir / "pairwise_winrates.csv")
    found = logged.table("win_rates")
    assert [{k: str(v) for k, v in row.items()} for row in found] == rates
    states = {row["name"]: row["state"] for row in logged.table("judge")}
    assert {"flips", "first_shown", "invalid"} <= set(states)
    assert logged.summary["judge/caution"] == ("failed" in states.values())
    assert ("caution" in logged.tags) == logged.summary["judge/caution"]


@pytest.mark.system
def test_verdicts_have_their_texts_cut_where_they_are_long(logged: Logged):
    keys = ("prompt_id", "dimension", "entrant_a", "entrant_b")
    files = {}
    for name in ("matches/matches.jsonl", "verdicts/factuality.jsonl"):
        text = (logged.run_dir / name).read_text(encoding="utf-8")
        rows = map(json.loads, text.splitlines())
        files[name] = {tuple(row[key] for key in keys): row for row in rows}
    matches, judgments = files.values()
    table = {tuple(row[key] for key in keys): row for row in logged.table("verdicts")}
    assert set(table) == set(matches)
    for key, row in table.items():
        match = matches[key]
        for cut, whole in (("question", "prompt_text"), ("answer_a", "response_a")):
            assert row[cut] == match[whole] or match[whole].startswith(row[cut][:-1])
            assert len(row[cut]) <= 401
    for key, judgment in judgments.items():
        ab, ba = judgment["raw"]
        assert table[key]["verdict_ab"] == ab["verdict"]
        assert table[key]["reason_ba"] == ba["reasoning"][:400]


@pytest.mark.system
def test_only_a_single_run_has_figures_and_each_its_page(
    single: Logged, jobs: list[Logged]
):
    image = single.media("figures/ratings")
    figure = single.run_dir / "figures/ratings.png"
    assert image["file"].read_bytes() == figure.read_bytes()
    assert not any(name.startswith("figures/") for name in jobs[1].names())
    for logged in (single, *jobs):
        page = logged.media("report")
        written = (logged.run_dir / "report.html").read_bytes()
        assert (page["_type"], page["file"].read_bytes()) == ("html-file", written)


@pytest.mark.system
def test_files_are_artifacts_with_the_same_names_in_every_run(
    single: Logged, jobs: list[Logged]
):
    """Every file that the run has written is in one of them; what the runs share has one digest."""
    every = [logged.artifacts() for logged in (single, *jobs)]
    kinds = {name: artifact["type"] for name, artifact in every[0].items()}
    assert kinds == {
        "bank-bank": "dataset",
        **{f"responses-{name}": "responses" for name in PROBES},
        "verdicts-lexical": "verdicts",
        "leaderboard": "leaderboard",
        "run-files": "run",
    }
    for found, logged in zip(every, (single, *jobs), strict=True):
        assert found.keys() == kinds.keys()
        paths = {name: {*logged.paths(artifact)} for name, artifact in found.items()}
        made = paths["verdicts-lexical"] | paths["leaderboard"] | paths["run-files"]
        own = {*logged.read("manifest.json")["files"]}
        assert made - {"run.json"} == {n for n in own if not n.startswith("responses/")}
        assert paths["leaderboard"] >= {"ratings.json", "battles.jsonl", "run.json"}
        assert {"manifest.json", "report.html"} <= paths["run-files"]
        assert {"bank.jsonl", "factuality.md", "judge_system.md"} <= paths["bank-bank"]
        about = json.loads(found["leaderboard"]["metadata"])
        assert about["headline"] == logged.read("manifest.json")["headline"]
        assert {"latest", f"run-{logged.run['run_id']}"} <= {
            *found["leaderboard"]["aliases"]
        }
    one, two = every[1:]  # jobs that differ in K
    assert ("k8" in one["leaderboard"]["aliases"]) and (
        "k16" in two["run-files"]["aliases"]
    )
    same = {name for name in kinds if one[name]["digest"] == two[name]["digest"]}
    assert same == {*kinds} - {"leaderboard", "run-files"}


@pytest.mark.system
def test_a_run_has_its_name_tags_and_the_settings_of_its_experiment(single: Logged):
    record, config = single.run, single.config
    assert (record["display_name"], record["job_type"]) == ("tracked", "tournament")
    assert (record["project"], single.exit_code) == ("elo_exp", 0)
    assert "run_group" not in record
    assert single.tags == ["mode:demo", "judge:lexical", "experiment:tournament"]
    assert (config["elo"]["k"], config["mode"]["name"]) == (12, "demo")
    assert (config["judge_model"], config["entrants"]) == ("lexical", ", ".join(PROBES))
    assert not {"oracle", "arena", "estimator", "runs", "battles"} & set(config)


@pytest.mark.system
def test_a_sweep_is_one_group_of_runs_named_by_what_was_swept(
    jobs: list[Logged], folder: Path
):
    assert [job.run["display_name"] for job in jobs] == ["k=8", "k=16"]
    groups = {job.run["run_group"] for job in jobs}
    (group,) = groups
    assert group.startswith("both_2")  # the folder and the time
    assert jobs[0].run["run_id"] != jobs[1].run["run_id"]
    continued = shutil.copytree(folder / "both", folder / "continued")
    given = ("-m", "elo.k=8,16", "hydra.sweep.dir=continued", "tracker=local", *SPOILT)
    run(*given, "resume=false", folder=folder)
    begun = [rows_of(continued / job)["run"][0] for job in ("1", "")]
    assert [row["group"] for row in begun] == [group, group]
    summary = rows_of(continued)["summary"][0]
    lines = summary["k_sensitivity/factuality"]["lines"]
    assert {len(line) for line in lines.values()} == {2}


ALONE = """
from dataclasses import replace
from pathlib import Path
from elo_exp.trackers import Files, RunInfo
from elo_exp.trackers.wandb import WandbTracker

tracker = WandbTracker(
    project="p", entity=None, mode="offline", wait_s=1, texts=True, stats=None, max_mb=1,
    registry="wandb-registry-mine/leaderboard",
)
run = tracker.open(
    RunInfo(run_dir=Path("."), name="k" * 300, group=None, job_type="", config={}, tags=("t" * 99,))
)
for name, kind in {"verdicts-mine": "verdicts", "leaderboard": "leaderboard"}.items():
    run.log_files(Files(kind=kind, name=name, paths={"file": Path(name)}))
run.close(0, "")
"""


@pytest.mark.system
def test_names_and_files_are_cut_to_what_is_accepted_and_nothing_is_linked_offline(
    tmp_path: Path,
):
    for name, size in (("verdicts-mine", 8_120_000), ("leaderboard", 10)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    ran = attempt_program(sys.executable, "-c", ALONE, folder=tmp_path)
    assert ran.code == 0, ran.err
    records = inspect(tmp_path, tmp_path)
    (begun, *_) = (r["run"] for r in records if r["type"] == "run")
    assert (len(begun["display_name"]), len(begun["tags"][0])) == (128, 64)
    logged = [r["artifact"]["name"] for r in records if r["type"] == "artifact"]
    assert logged == ["leaderboard"]
    assert (
        "warning: verdicts-mine has 8 MB and stays here; tracker.max_mb=100 sends it."
        in ran.err.splitlines()
    )
    assert (
        "leaderboard is not linked to wandb-registry-mine/leaderboard (the run is offline)"
        in ran.err
    )


@pytest.mark.parametrize("registry", ["leaderboard", "registry/", "a/b/c/d", "a/b:v1"])
def test_a_registry_is_named_with_its_collection(registry: str):
    with pytest.raises(
        UserError, match=f"registry must be REGISTRY/COLLECTION, .*; got .{registry}."
    ):
        replace(tracker(), registry=registry)


@pytest.mark.system
def test_the_machine_is_watched_on_request_and_of_runs_that_hold_no_weights_not_else(
    single: Logged, jobs: list[Logged]
):
    assert single.of("stats")
    assert not any(job.of("stats") for job in jobs)


@pytest.mark.system
def test_what_k_moves_is_numbers_of_the_summary_and_so_is_the_headline(
    jobs: list[Logged],
):
    """Of two jobs with K = 8 and 16: the rating that leads cannot move."""
    moved = {
        name
        for name, value in jobs[0].summary.items()
        if isinstance(value, float) and value != jobs[1].summary.get(name)
    }
    own = {name.rpartition("/")[2] for name in moved if name.startswith("order/")}
    assert {"gap", "mc_error", "distance", "convergence"} <= own
    assert "headline" in moved
    assert not {name for name in moved if name.startswith("result")}
    assert {job.read("manifest.json")["headline_is"] for job in jobs} == {
        "order_mean/distance"
    }


@pytest.mark.system
def test_what_a_sweep_prints_uploads_its_jobs_and_its_summary(
    swept: Ran, jobs: list[Logged]
):
    (line,) = (line for line in swept.out.splitlines() if line.startswith("tracked"))
    sync = line.partition("Upload: wandb ")[2]
    assert sync == "sync both/[0-9]*/wandb/offline-* both/wandb/offline-*"
    with ProjectServer() as server:
        shell = ("bash", "-c", f"{sys.executable} -m wandb {sync}")
        ran = attempt_program(*shell, folder=swept.folder, **server.variables)
    assert (ran.code, "ERROR" in ran.err) == (0, False), ran.err
    groups = {run.fields["groupName"] for run in server.runs.values()}
    assert groups == {jobs[0].read("manifest.json")["group"]}
    names = {run.fields["displayName"] for run in server.runs.values()}
    assert names == {"k=8", "k=16", "sweep-summary"}
    kept = [(one.collection, one.version) for one in server.artifacts.values()]
    assert sorted(v for name, v in kept if name == "leaderboard") == [0, 1]
    assert all(version >= 0 for _, version in kept)  # each with its files


@pytest.mark.system
def test_copies_for_the_upload_are_in_the_run_folder_and_not_in_the_home(
    silent: Logged, folder: Path
):
    (copies,) = silent.run_dir.glob("wandb/copies-*")
    there = {path.read_bytes() for path in copies.rglob("*") if path.is_file()}
    assert (silent.run_dir / "judges.json").read_bytes() in there
    assert not (folder / "home/.local/share/wandb").exists()


# While it works


@pytest.mark.system
def test_a_run_logs_its_progress_while_it_works(jobs: list[Logged]):
    rows, usage = (
        jobs[0].steps("progress/seconds"),
        jobs[0].read("manifest.json")["usage"],
    )
    judged = [row["progress/judged"] for row in rows]
    assert judged == sorted(judged)
    assert judged[0] < judged[-1] == usage["judge_calls"]
    assert len(set(judged)) > 2
    (quality,) = jobs[0].read("manifest.json")["judge_quality"]
    assert 0 < rows[-1]["progress/flips"] == quality["n_flips"]
    assert rows[-1]["progress/answered"] == usage["responses_wanted"]
    cached = jobs[1].steps("progress/seconds")[-1]
    assert cached["progress/cached"] == usage["judge_calls"]
    assert cached["progress/flips"] == quality["n_flips"]


@pytest.mark.system
def test_the_forecast_of_a_paid_judge_ends_at_what_it_has_cost(tmp_path: Path):
    with AnthropicServer(verdicts=longer) as server:
        judge = (
            "judge=haiku",
            "judge.transport=messages",
            f"judge.base_url={server.url}",
        )
        given = (
            *judge,
            "judging.budget_usd=1",
            "entrant=[probe_reference,probe_partial]",
        )
        key = {"ANTHROPIC_API_KEY": server.key, "NO_PROXY": "127.0.0.1"}
        ran = run(*QUICK, *given, folder=tmp_path, **key)
    rows = [row for row in rows_of(ran.run_dir)["step"] if row.get("cost/forecast")]
    dollars, final = (
        rows[-1]["cost/dollars"],
        ran.read("manifest.json")["usage"]["dollars"],
    )
    assert (dollars, rows[-1]["cost/forecast"]) == (final, final)
    assert 0 < rows[1]["cost/dollars"] < dollars
    assert rows[1]["cost/forecast"] == pytest.approx(dollars, rel=0.5)


# Servers and settings


def tracker(mode: str = "auto") -> WandbTracker:
    return WandbTracker(
        project="elo_exp",
        entity=None,
        mode=mode,  # type: ignore[arg-type]
        wait_s=30,
        texts=True,
        stats=None,
        max_mb=500,
        registry=None,
    )


@pytest.mark.parametrize(
    ("word", "is_online"),
    [
        ("online", True),
        ("run", True),
        ("offline", False),
        ("dryrun", False),
        ("disabled", False),
        ("Disabled", False),
        ("", False),
    ],
)
def test_the_words_of_wandb_mode_mean_what_they_mean_to_wandb(
    word: str, *, is_online: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("WANDB_MODE", word)
    monkeypatch.setenv("HOME", str(tmp_path))  # without a key
    assert tracker().is_online == is_online
    assert tracker("online").is_online  # a setting comes first


def test_nothing_is_logged_where_it_is_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    info = RunInfo(run_dir=tmp_path, name="none", group=None, job_type="", config={})
    with track_run(tracker(), info) as tracked:
        tracked.log({"elo/factuality/probe_hedged": 1400.0})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "variables", "line"),
    [
        (
            (),
            {"WANDB_MODE": "shared"},
            'elo_exp: WANDB_MODE must be online, offline or disabled; got "shared".\n'
            "  Unset it, or set tracker.mode.",
        ),
        (
            ("tracker.mode=shared",),
            {},
            'elo_exp: tracker.mode must be auto, online, offline or disabled; got "shared".',
        ),
        (
            ("judge=openai_compatible", "judge.base_url=https://me:secretword@host/v1"),
            {},
            "elo_exp: judge.base_url holds a URL with a password, and settings are written to files and "
            "trackers. Leave the password out. Keys are read from the environment.",
        ),
        (
            ("store=postgresql://me:secretword@host/db",),
            {},
            "elo_exp: store holds a URL with a password, and settings are written to files and "
            "trackers. Leave the password out. The password is read from PGPASSWORD or ~/.pgpass.",
        ),
    ],
)
def test_a_word_for_the_mode_or_a_password_is_refused_in_a_line_before_anything(
    given: tuple[str, ...], variables: dict[str, str], line: str, tmp_path: Path
):
    ran = attempt("tracker=wandb", *given, folder=tmp_path, **variables)
    assert (ran.code, ran.out) == (2, "")
    assert f"\n{ran.err}".endswith(f"\n{line}\n")
    assert not list(tmp_path.glob("outputs/demo*"))


@pytest.mark.system
def test_a_plan_says_which_texts_a_run_would_send(tmp_path: Path):
    said = []
    for given in ((), ("tracker.texts=false",)):
        ran = run("plan=true", *given, folder=tmp_path, WANDB_API_KEY=KEY)
        said += [line for line in ran.out.splitlines() if "tracked" in line]
    assert said == [
        "tracked       online with texts; tracker.texts=false keeps them here",
        "tracked       online without prompts, answers and reasons",
    ]


@pytest.mark.system
def test_a_variable_that_wandb_refuses_stops_the_run_before_judging(tmp_path: Path):
    ran = attempt(*SMALL, folder=tmp_path, strict=False, WANDB_BASE_URL="nowhere")
    assert ran.code == 2
    assert (
        "elo_exp: Weights & Biases refuses a setting (base_url: it must be " in ran.err
    )
    assert not list(tmp_path.rglob("verdicts"))


@pytest.mark.system
def test_a_run_that_fails_is_marked_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A judge's function gives a verdict that is none, which is found out when the run has begun."""
    module = tmp_path / "indifferent_judge.py"
    module.write_text("def judge(prompt, a, b):\n    return 'neither'\n")
    monkeypatch.syspath_prepend(tmp_path)
    given = (
        "entrant=[probe_reference,probe_hedged]",
        "rubric=[calibration]",
        "prompts.n=5",
        "judge=indifferent_judge:judge",
        "judge.version=1",
        "hydra.run.dir=run",
    )
    ran = attempt(*given, folder=tmp_path, strict=False)
    assert (ran.code, "must return A, B or tie" in ran.err) == (2, True)
    logged = Logged(tmp_path / "run", tmp_path)
    assert (logged.exit_code, logged.tags[-1]) == (1, "failed")
    assert f"elo_exp: {logged.of('run')[-1]['notes']}" == ran.err.splitlines()[-1]


# The dashboard


def values_at(value: Any, key: str) -> Iterator[Any]:
    """All values under a key, at any depth."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in pairs:
        if name == key:
            yield inner
        if isinstance(inner, dict | list):
            yield from values_at(inner, key)


def dashboard(folder: Path, *given: str) -> tuple[Ran, Record]:
    """A dashboard of these runs, and the view that a server has saved."""
    with ProjectServer() as server:
        # Not strict: wandb_workspaces uses what pydantic calls deprecated
        words = ("experiment=dashboard", *given)
        ran = run(*words, folder=folder, strict=False, **server.variables)
        (view,) = server.views
    assert (view["entityName"], view["projectName"]) == ("me", "elo_exp")
    assert ran.out.startswith(f"{server.url}/me/elo_exp")
    return ran, view


def shown(spec: Any) -> tuple[set[str], set[str]]:
    """The names of numbers and settings on axes and in columns of panels, and the keys of tables and media."""
    metrics = {name for some in values_at(spec, "metrics") for name in some}
    of_axes = ("xAxis", "yAxis", "accessor")
    axes = {name for key in of_axes for name in values_at(spec, key)} - {"_step"}
    arguments = [some[0] for some in values_at(spec, "args")]
    tables = {one["value"] for one in arguments if one["name"] == "tableKey"}
    tables |= {name for name in values_at(spec, "val") if isinstance(name, str)}
    media = {key for some in values_at(spec, "mediaKeys") for key in some}
    return metrics | axes, tables | media


def are_logged(names: set[str], runs: list[Logged]) -> None:
    """All of these runs have logged every name, which says whether it is of their summary or configuration."""
    for name in names:
        kind, colon, rest = name.partition(":")
        top, _, inner = rest.partition(".value")
        for logged in runs:
            if kind == "config" and colon:
                found: Any = logged.config[top]
                for part in filter(None, inner.split(".")):
                    found = found[part]
            else:
                assert (rest if colon else kind) in logged.names()


def ids(run_set: Record) -> list[str]:
    (chosen,) = run_set["filters"]["filters"]
    assert (chosen["key"], chosen["op"]) == ({"section": "run", "name": "name"}, "IN")
    return chosen["value"]  # type: ignore[no-any-return]


@pytest.mark.system
def test_a_dashboard_begins_with_what_moved_over_the_jobs_of_a_sweep(
    swept: Ran, jobs: list[Logged], folder: Path
):
    """The last line of the sweep has its command."""
    label, *line = shlex.split(swept.out.splitlines()[-1].removesuffix("(needs a key)"))
    assert (label, line[:3]) == ("dashboard", ["python", "-m", "elo_exp"])
    assert line[3:] == ["experiment=dashboard", "runs=[both]"]
    _, view = dashboard(folder, line[4], "dashboard.baseline=both/0")
    spec = json.loads(view["spec"])
    group = jobs[0].read("manifest.json")["group"]
    assert view["displayName"] == f"elo_exp {group}"
    first, *_ = spec["section"]["panelBankConfig"]["sections"]
    assert first["name"] == "What moved"
    parallel, *scatters = first["panels"]
    moved = [*values_at(parallel, "accessor")]
    assert moved[0] == "config:elo.value.k"
    assert {"order_mean/distance", "order_mean/gap", "order_mean/mc_error"} <= {
        name.removeprefix("summary:") for name in moved[1:]
    }
    for name in moved[1:]:
        of_jobs = [job.summary[name.removeprefix("summary:")] for job in jobs]
        assert of_jobs[0] != of_jobs[1]
    assert not any("result_mean" in name for name in moved)  # K cannot move it
    assert [*values_at(scatters, "xAxis")] == moved[:1] * len(scatters)
    assert [*values_at(scatters, "yAxis")] == moved[1:]
    numbers, files = shown(spec)
    are_logged(numbers, jobs)
    assert all(files <= job.names() for job in jobs)
    assert {"progress/flips", "config:elo.value.k"} <= numbers
    assert {"leaderboard", "judge", "verdicts"} <= files
    (columns,) = values_at(spec, "columnOrder")
    are_logged({*columns} - {"run:displayName"}, jobs)
    assert [name for name in columns if name in moved] == moved
    (run_set,) = spec["section"]["runSets"]
    assert ids(run_set) == [job.run["run_id"] for job in jobs]
    baseline = base64.b64decode(run_set["baselineRunId"]).decode()
    assert baseline == f"Run:v1:{jobs[0].run['run_id']}:elo_exp:me"


@pytest.mark.system
def test_a_dashboard_shows_only_what_all_runs_log(
    single: Logged, jobs: list[Logged], folder: Path
):
    """The sweep is over one dimension of two, and its jobs have no figures; a report has the same panels."""
    shutil.copytree(folder / "both", folder / "quiet")
    for path in folder.glob("quiet/*/manifest.json"):
        content = read_json(path)
        content["config"]["tracker"]["texts"] = False  # who has no table of verdicts
        write_json(path, content)
    _, view = dashboard(folder, "runs=[tracked,quiet]", "dashboard.kind=report")
    spec, runs = json.loads(view["spec"]), [single, *jobs]
    numbers, files = shown(spec)
    are_logged({name for name in numbers if name}, runs)
    assert all(files <= logged.names() for logged in runs)
    assert {"ratings/factuality_table", "k_sensitivity/factuality_table"} <= files
    assert "leaderboard" in files
    assert "verdicts" not in files
    assert "bradley_terry_ci_low/factuality/probe_hedged" in numbers
    assert {"summary:result_mean/gap", "config:judge_model.value"} & numbers
    fitted = {name for name in numbers if name.startswith("bradley_terry/")}
    assert {name.split("/")[1] for name in fitted} == {"factuality"}
    said = [*values_at(spec, "text")]
    assert view["type"] == "runs"
    assert view["displayName"] == "The top entrant is the same in all 3 runs"
    assert any(line.startswith("factuality: probe_") for line in said)
    assert any("say nothing about quality" in line for line in said)
    assert "What moved" in said
    sets = [some for (some,) in values_at(spec, "runSets")]
    assert all(ids(some) == [job.run["run_id"] for job in runs] for some in sets)


@pytest.mark.system
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["runs=[tracked]"],
            "A dashboard is saved on Weights & Biases, but there is no key",
        ),
        (
            ["runs=[tracked]", "tracker=local"],
            "experiment=dashboard needs tracker=wandb",
        ),
        (
            ["runs=[both]", "dashboard.baseline=both"],
            "dashboard.baseline must be the folder of one run; both holds 2.",
        ),
        (
            ["runs=[both]", "dashboard.baseline=both/0", "dashboard.kind=report"],
            "dashboard.baseline works only with dashboard.kind=workspace",
        ),
    ],
)
def test_what_has_no_dashboard_is_one_line(
    given: list[str], message: str, single: Logged, jobs: list[Logged], folder: Path
):
    ran = attempt("experiment=dashboard", *given, folder=folder)
    line, *below = ran.err.splitlines()
    assert ran.code == 2 and message in line
    assert all(text.startswith("  ") for text in below)


# A local file


def rows_of(run_dir: Path) -> dict[str, list[Any]]:
    """What was logged, by kind."""
    lines = (run_dir / "tracker/log.jsonl").read_text(encoding="utf-8").splitlines()
    found: dict[str, list[Any]] = {}
    for row in map(json.loads, lines):
        found.setdefault(row["kind"], []).append(row["value"])
    return found


@pytest.mark.system
def test_all_trackers_log_the_same_numbers(single: Logged, folder: Path):
    """wandb, trackio and local, of runs with the same settings; seconds and exit codes apart."""
    store = {"TRACKIO_DIR": str(folder / "store")}
    given = (*SMALL, TWO, "elo.k=12", "hydra.run.dir=trackio", "figures=false")
    run(*given, "tracker=trackio", folder=folder, **store)
    ran = run(*LOCAL, TWO, "elo.k=12", "hydra.run.dir=local", folder=folder)
    rows = rows_of(ran.run_dir)
    (begun,), (results,) = rows["run"], rows["summary"]
    assert (begun["name"], begun["config"]["elo"]["k"]) == ("local", 12)
    assert not begun["holds_weights"]
    numbers = {k: v for k, v in results.items() if isinstance(v, int | float | str)}
    (at_end,) = (row for row in read(folder)["logs"] if "headline" in row)
    for other in (single.summary, at_end):
        found = {k: v for k, v in other.items() if isinstance(v, int | float | str)}
        assert found.keys() >= numbers.keys()
        # W&B's of a table have a dot; what was logged while it worked
        more = {k for k in found.keys() - numbers.keys() if "/" in k and "." not in k}
        assert all(name.startswith(("progress/", "cost/")) for name in more), more
        for name, value in numbers.items():
            assert name.startswith("usage/") or found[name] == value, name
    assert results["verdicts"] == single.table("verdicts")
    traces = [row for row in rows["step"] if "n_perms" in row]
    assert [row["n_perms"] for row in traces] == list(range(1, 21))
    assert [files["name"] for files in rows["files"]] == [*single.artifacts()]
    paths = {path for files in rows["files"] for path in files["paths"].values()}
    assert results["figures/ratings"]["path"] in paths
    assert all((ran.run_dir / path).is_file() for path in paths)
    assert rows["exit"] == [0]
    assert rows["notes"][0].splitlines()[-1].startswith("python -m elo_exp judging")


# Several judges


@pytest.fixture(scope="module")
def judged_by_three(folder: Path) -> Logged:
    words = (
        "judge=[near:lexical,wide:lexical,hedged:lexical]",
        "judges.wide.margin=0.2",
        "judges.hedged.signals.clinical_utility=hedging",
        "rubric=[clinical_utility]",
        "elo.n_perms=5",
        "hydra.run.dir=three",
        "figures=false",
    )
    run(*words, folder=folder, strict=False)
    return Logged(folder / "three", folder)


@pytest.mark.system
def test_several_judges_are_one_run_with_the_numbers_and_tables_of_each(
    judged_by_three: Logged,
):
    logged = judged_by_three
    assert len(logged.of("exit")) == 1 and logged.exit_code == 0
    found = logged.read("judges.json")["clinical_utility"]
    summary = logged.summary
    assert summary["judges/clinical_utility/tau"] == pytest.approx(found["tau"])
    sentence = summary["conclusion/clinical_utility/sentence"]
    assert sentence == found["conclusion"]["sentence"]
    board = {row["entrant"]: row["rating"] for row in logged.table("leaderboard")}
    assert board == {row["model"]: row["rating"] for row in found["board"]}
    assert len(logged.table("agreement")) == 3
    for name in ("near", "wide", "hedged"):
        folder = f"judges/{name}"
        gap = logged.read(f"{folder}/manifest.json")["headline"]
        assert summary[f"by_{name}/headline"] == summary[f"by_{name}/headline/gap"] == gap  # fmt: skip
        said = summary[f"by_{name}/conclusion/clinical_utility/sentence"]
        assert said == found["judges"][name]["sentence"]
        ratings = logged.read(f"{folder}/ratings.json")["dimensions"]["clinical_utility"]  # fmt: skip
        own = {row["model"]: row["rating"] for row in ratings["bradley_terry"]["ratings"]}  # fmt: skip
        rows = logged.table(f"by_{name}/leaderboard")
        assert {row["entrant"]: row["rating"] for row in rows} == own
        verdicts = (logged.run_dir / folder / "verdicts/clinical_utility.jsonl").read_text("utf-8")  # fmt: skip
        assert len(logged.table(f"by_{name}/verdicts")) == len(verdicts.splitlines())


@pytest.mark.system
def test_each_of_several_judges_has_verdicts_and_a_leaderboard_of_its_own(
    judged_by_three: Logged,
):
    """Called by their names, as all three are of one model. What the run has made is in one artifact each, and once."""
    logged = judged_by_three
    found = logged.artifacts()
    names = ("near", "wide", "hedged")
    assert {name: one["type"] for name, one in found.items()} == {
        "bank-bank": "dataset",
        **{f"responses-{name}": "responses" for name in PROBES},
        **{f"verdicts-{name}": "verdicts" for name in names},
        **{f"leaderboard-{name}": "leaderboard" for name in names},
        "leaderboard": "leaderboard",
        "run-files": "run",
    }
    paths = {name: logged.paths(one) for name, one in found.items()}
    assert sorted(paths["leaderboard"]) == ["judges.json", "run.json"]
    for name in names:
        assert {"ratings.json", "run.json"} <= {*paths[f"leaderboard-{name}"]}
        assert "verdicts/clinical_utility.jsonl" in paths[f"verdicts-{name}"]
        assert f"judges/{name}/report.html" in paths["run-files"]
        assert f"judges/{name}/verdicts/clinical_utility.jsonl" not in paths["run-files"]  # fmt: skip
    digests = {found[f"verdicts-{name}"]["digest"] for name in names}
    assert len(digests) == 3


@pytest.mark.system
def test_without_texts_no_verdicts_of_several_judges_are_logged(silent: Logged):
    names = silent.names()
    assert "by_wide/leaderboard" in names
    assert not [name for name in names if name.endswith("verdicts")]
    assert not [name for name in silent.artifacts() if name.startswith("verdicts-")]
