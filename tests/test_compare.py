"""experiment=compare: finished runs side by side, a pilot against the whole, a rating again."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from elo_exp import runs
from elo_exp.files import write_whole
from elo_exp.records import UserError
from tests.commands import QUICK, Ran, attempt, run
from tests.data import write_table
from tests.pages import Reader

PROBES = ["probe_reference", "probe_hedged", "probe_partial", "probe_swapped"]
RATE = ("experiment=rate", "figures=false", "tracker=local", "elo.n_perms=5")
BY_DIMENSION = "battles_columns.dimension=dimension"
COMPARE = ("experiment=compare", "tracker=local")
TURNED = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pilot on 60 pairs; the whole on 120, of which these are the first; the battles of the whole
    rated again; and those of another judge, by which each third battle goes the other way."""
    folder = tmp_path_factory.mktemp("compared")
    for name, limit, k in (("pilot", 60, 8), ("whole", 120, 16)):
        given = (f"judging.limit_pairs={limit}", f"elo.k={k}")
        run(*QUICK, *given, f"hydra.run.dir={name}", folder=folder)
    rows = read_jsonl(folder / "whole/battles.jsonl")
    for row in rows[::3]:
        for name in ("winner", "verdict_ab", "verdict_ba"):
            row[name] = TURNED[row[name]]
    write_table(folder / "turned.jsonl", rows)
    for name, battles in (("again", "whole/battles"), ("turned", "turned")):
        given = (f"battles={battles}.jsonl", BY_DIMENSION, f"hydra.run.dir={name}")
        run(*RATE, *given, folder=folder)
    return folder


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def compare(folder: Path, *chosen: str) -> Ran:
    names, run_dir = ",".join(chosen), "_".join(chosen)
    given = (*COMPARE, f"runs=[{names}]", "figures=false", f"hydra.run.dir={run_dir}")
    return run(*given, folder=folder)


@pytest.fixture(scope="module")
def ran(folder: Path) -> Ran:
    return compare(folder, "pilot", "whole", "again")


@pytest.fixture(scope="module")
def found(ran: Ran) -> dict[str, Any]:
    return dict(ran.read("compare.json"))


def rows(found: dict[str, Any], run: str, method: str) -> list[dict[str, Any]]:
    named = [row for row in found["ratings"] if row["run"] == run]
    return [row for row in named if row["method"] == method]


# What it concludes


def test_ratings_are_those_of_the_runs(found: dict[str, Any], folder: Path):
    for name in ("pilot", "whole", "again"):
        ratings = json.loads((folder / name / "ratings.json").read_text())
        for method, board in ratings["dimensions"]["factuality"].items():
            fields = board["ratings"][0]
            there = rows(found, name, method)
            assert [{f: row[f] for f in fields} for row in there] == board["ratings"]


def test_a_shift_is_the_difference_of_ratings_with_one_level(found: dict[str, Any]):
    """Elo has shifts without an interval."""
    before = {row["model"]: row for row in rows(found, "pilot", "bradley_terry")}
    after = rows(found, "whole", "bradley_terry")
    for row in after:
        old = before[row["model"]]
        assert row["shift"] == pytest.approx(row["rating"] - old["rating"])
        assert old["shift"] is None
    assert sum(row["shift"] for row in after) == pytest.approx(0, abs=1e-6)
    for row in rows(found, "whole", "elo"):
        assert row["shift"] is not None
        assert row["shift_std_error"] is None


def test_another_judge_moves_ratings_and_other_prompts_alone_do_not(
    found: dict[str, Any], folder: Path
):
    """The pilot's verdicts are among those of the whole run: that is no shift to test."""
    for row in rows(found, "whole", "bradley_terry"):
        assert (row["shift_ci_low"], row["shift_p_value"]) == (None, None)
    why = found["overlaps"][0]["no_interval"]
    assert why.startswith("all verdicts of one are in the other")
    other = dict(compare(folder, "whole", "turned").read("compare.json"))
    assert other["overlaps"][0]["no_interval"] is None
    for row in rows(other, "turned", "bradley_terry"):
        assert row["shift_ci_low"] < row["shift"] < row["shift_ci_high"]
        assert row["shift_p_value"] <= row["shift_p_holm"]


def test_the_same_verdicts_are_said_to_be_the_same(folder: Path):
    ran = compare(folder, "whole", "again")
    said = "run 2: the same verdicts as in run 1, so its Bradley-Terry ratings are the same"
    assert said in ran.out
    moved = rows(ran.read("compare.json"), "again", "bradley_terry")
    assert {(row["shift"], row["shift_std_error"]) for row in moved} == {(0.0, None)}


def test_what_runs_share_and_in_what_they_differ(found: dict[str, Any]):
    whole = found["overlaps"][0]
    n = [whole[f"n_{name}"] for name in ("prompts_before", "prompts", "shared_prompts")]
    assert n == [10, 20, 10]
    assert whole["agreement"]["n_comparisons"] == 60
    assert whole["agreement"]["agreement"] == 1.0
    assert found["answers"] == [
        {"run": "whole", "entrant": name, "n_shared": 143, "n_same": 143}
        for name in PROBES
    ]
    settings = found["settings"].items()
    differ = {path: by for path, by in settings if by["pilot"] != by["whole"]}
    assert differ == {
        "judging.limit_pairs": {"pilot": 60, "whole": 120, "again": None},
        "elo.k": {"pilot": 8, "whole": 16, "again": 16},
    }
    assert {row["input"] for row in found["inputs"]} >= {"bank", "rubric factuality"}
    assert all(row["same"] for row in found["inputs"])
    flips = {row["run"]: row["flip_rate"] for row in found["judge"]}
    assert flips == {"pilot": 0.0, "whole": 0.0, "again": None}
    asked = {row["run"]: row["usage"]["judge_calls"] for row in found["runs"]}
    assert asked["again"] == 0 < asked["pilot"]


def test_every_way_of_reading_it_says_the_same(
    ran: Ran, found: dict[str, Any], folder: Path
):
    assert ran.err.splitlines()[0] == "compare: no judge"
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0] == ["run", "1:", "pilot"]
    best = next(i for i, line in enumerate(lines) if line[:1] == ["probe_reference"])
    assert [line[0] for line in lines[best + 1 : best + 3]] == ["2", "3"]
    page = Reader((ran.run_dir / "report.html").read_text(encoding="utf-8"))
    assert "Highest rating, in every run: probe_reference." in page.said
    for said, cells in ((ran.out, lines), (page.said, page.cells)):
        assert "10 of its 20 prompts are among the 10 of run 1" in said
        assert ["elo.k", "8", "16", "16"] in cells
    with (ran.run_dir / "compare.csv").open(encoding="utf-8", newline="") as file:
        kept = list(csv.DictReader(file))
    assert [row["model"] for row in kept] == [row["model"] for row in found["ratings"]]
    logged = {row["kind"]: row["value"] for row in ran.rows("tracker/log.jsonl")}
    whole = {row["model"]: row for row in rows(found, "whole", "bradley_terry")}
    shift = logged["summary"]["shift/2/factuality/probe_swapped"]
    assert shift == whole["probe_swapped"]["shift"]
    compared = ran.read("manifest.json")["compared"]
    assert compared == [str(folder / name) for name in ("pilot", "whole", "again")]


# Which runs


def names(*chosen: Path | str) -> list[str]:
    return [r.name for r in runs.read([str(folder) for folder in chosen]).runs]


def test_patterns_and_sweeps_stand_for_their_finished_runs(
    folder: Path, tmp_path: Path
):
    """In the order of jobs, each once, named by as much of their path as tells them apart."""
    for name, copies in (
        ("pilot", ("many/a", "sweep/2")),
        ("whole", ("many/b", "sweep/10")),
    ):
        for copy in copies:
            shutil.copytree(folder / name, tmp_path / copy)
    manifest = json.loads((folder / "whole/manifest.json").read_text())
    stopped = json.dumps(manifest | {"finished_at": None})
    write_whole(tmp_path / "many/stopped/manifest.json", stopped)
    (tmp_path / "many/no_run").mkdir()
    found = runs.read([f"{tmp_path}/many/*", str(tmp_path / "many/a")])
    assert [r.name for r in found.runs] == ["a", "b"]
    (left_out,) = found.left_out
    assert "stopped did not finish (it was stopped)" in left_out
    assert names(tmp_path / "sweep") == ["2", "10"]
    shutil.copytree(tmp_path / "sweep", tmp_path / "other")
    both = names(tmp_path / "sweep", tmp_path / "other")
    assert both == ["sweep/2", "sweep/10", "other/2", "other/10"]
    assert names(folder / "whole", folder / "pilot/../whole") == ["whole"]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("", "runs: names no run folder. Name two or more: 'runs=[DIR1,DIR2]'"),
        ("whole", "found one finished run, {folder}/whole. Comparing takes two or more."),
        ("whole,nowhere", "runs: found no folder nowhere. Check the path."),
        ("no*where", "found no run folder that matches no*where. Check the pattern."),
        ("whole,apart", "runs: apart is no run folder, for it has no manifest.json."),
        ("whole,others", "runs: others has no entrant and dimension in common with whole: x, y on"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_one_line(folder: Path, chosen: str, said: str):
    (folder / "apart").mkdir(exist_ok=True)
    if chosen.endswith("others"):
        battle = {"model_a": "x", "model_b": "y", "dimension": "factuality"}
        rows = [{**battle, "winner": w} for w in ("model_a", "model_b")]
        write_table(folder / "others.jsonl", rows)
        given = ("battles=others.jsonl", BY_DIMENSION, "hydra.run.dir=others")
        run(*RATE, *given, folder=folder)
    given = (f"runs=[{chosen}]", "hydra.run.dir=refused")
    refused = attempt(*COMPARE, *given, folder=folder)
    assert refused.code == 2
    assert said.format(folder=folder) in refused.err
    assert refused.err.count("\n") == 1


DAMAGED = {"dimensions": {"factuality": {"elo": {"ratings": [{"x": 1}]}}}}


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("manifest.json", {"finished_at": "now"}, "manifest.json has no config of ratings. Expected"),
        ("manifest.json", {"error": "no"}, "did not finish (no). Give its command again"),
        ("ratings.json", {"dimensions": 3}, "ratings.json has no ratings by dimension. Expected"),
        ("ratings.json", DAMAGED, "ratings.json has no ratings by dim"),
        ("ratings.json", None, "has no ratings to compare, being of experiment=tournament. Expected"),
        ("battles.jsonl", {"x": 1}, "battles.jsonl:1: has no 'model_a'. Expected a battle, as the run"),
    ],
)  # fmt: skip
def test_a_damaged_run_is_refused_in_one_line(
    folder: Path, tmp_path: Path, file: str, content: Any, said: str
):
    for name in ("manifest.json", "ratings.json"):
        shutil.copy(folder / "whole" / name, tmp_path / name)
    if content is None:
        (tmp_path / file).unlink()
    else:
        write_whole(tmp_path / file, json.dumps(content))
    with pytest.raises(UserError) as refused:
        runs.read([str(tmp_path)]).runs[0].battles()
    assert said in str(refused.value)


# Intervals only where they can be had


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("bare", None, "bare left no battles.jsonl"),
        ("elsewhere", "calibration", "elsewhere has no battle on factuality"),
        ("cut", "", "the ratings of cut are not those of its battles.jsonl"),
    ],
)
def test_without_the_battles_of_its_ratings_a_run_has_shifts_and_no_interval(
    folder: Path, name: str, change: str | None, said: str
):
    shutil.copytree(folder / "whole", folder / name)
    path = folder / name / "battles.jsonl"
    battles = read_jsonl(path)
    path.unlink()
    if change is not None:
        moved = {"dimension": change} if change else {}
        kept = battles if change else battles[:-6]
        write_table(path, [battle | moved for battle in kept])
    ran = compare(folder, "pilot", name)
    assert f"no interval of the shifts: {said}" in " ".join(ran.out.split())
    for row in rows(ran.read("compare.json"), name, "bradley_terry"):
        assert row["shift"] is not None
        assert row["shift_std_error"] is None


def test_an_elo_that_says_little_keeps_its_number_and_earlier_attempts_are_paid(
    tmp_path: Path,
):
    """The best wins all its battles: Bradley-Terry has no rating of it, and Elo one with a flag."""
    fields = ("model_a", "model_b", "winner", "question_id")
    some = [("top", model, "model_a", f"q{q}") for q in range(9) for model in "ab"]
    some += [("a", "b", f"model_{'aab'[q % 3]}", f"q{q}") for q in range(9)]
    battles = [dict(zip(fields, battle, strict=True)) for battle in some]
    write_table(tmp_path / "battles.csv", battles)
    for k in (8, 16):
        given = ("battles=battles.csv", f"elo.k={k}", f"hydra.run.dir=k{k}")
        run(*RATE, *given, folder=tmp_path)
    path = tmp_path / "k8/manifest.json"
    paid = {"dollars": 1.25, "dollars_by_entrant": {"a": 2.0}}
    manifest = json.loads(path.read_text(encoding="utf-8")) | {"paid_before": paid}
    write_whole(path, json.dumps(manifest))
    said = compare(tmp_path, "k8", "k16").out
    (top,) = (line.split() for line in said.splitlines() if line[:6].strip() == "top")
    assert re.fullmatch(r"\d{4}", top[2])
    assert "unbeaten" in top
    assert "$3.25" in said
