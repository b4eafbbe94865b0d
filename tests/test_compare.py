"""experiment=compare: finished runs side by side. A pilot against the whole, a rating of the same battles, a sweep."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from elo_exp import runs
from elo_exp.records import UserError
from tests.commands import QUICK, Ran, attempt, run
from tests.pages import Reader

PROBES = ["probe_reference", "probe_hedged", "probe_partial", "probe_swapped"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pilot on 60 pairs, the whole on 120 of which these are the first, and the battles of the whole rated again."""
    folder = tmp_path_factory.mktemp("compared")
    run(
        *QUICK,
        "judging.limit_pairs=60",
        "elo.k=8",
        "hydra.run.dir=pilot",
        folder=folder,
    )
    run(*QUICK, "judging.limit_pairs=120", "hydra.run.dir=whole", folder=folder)
    columns = "battles_columns.dimension=dimension"
    rate = (
        "experiment=rate",
        "battles=whole/battles.jsonl",
        columns,
        "figures=false",
        "tracker=local",
        "elo.n_perms=20",
    )
    run(*rate, "hydra.run.dir=again", folder=folder)
    _turn_every_third(folder / "whole" / "battles.jsonl", folder / "turned.jsonl")
    run(*rate, "battles=turned.jsonl", "hydra.run.dir=turned", folder=folder)
    return folder


def _turn_every_third(path: Path, other: Path) -> None:
    """Another judge: each third battle goes the other way."""
    turned = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows[::3]:
        row.update(
            {name: turned[row[name]] for name in ("winner", "verdict_ab", "verdict_ba")}
        )
    other.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def compare(folder: Path, *chosen: str, figures: bool = False) -> Ran:
    given = (
        "experiment=compare",
        f"runs=[{','.join(chosen)}]",
        "tracker=local",
        f"figures={figures}",
    )
    return run(*given, f"hydra.run.dir={'_'.join(chosen)}", folder=folder)


@pytest.fixture(scope="module")
def ran(folder: Path) -> Ran:
    return compare(folder, "pilot", "whole", "again", figures=True)


@pytest.fixture(scope="module")
def found(ran: Ran) -> dict[str, Any]:
    return dict(ran.read("compare.json"))


def rows(found: dict[str, Any], **chosen: str) -> list[dict[str, Any]]:
    return [
        row
        for row in found["ratings"]
        if all(row[name] == value for name, value in chosen.items())
    ]


# What it says


def test_ratings_are_those_of_the_runs(found: dict[str, Any], folder: Path):
    for name in ("pilot", "whole", "again"):
        boards = json.loads(
            (folder / name / "ratings.json").read_text(encoding="utf-8")
        )["dimensions"]["factuality"]
        for method, board in boards.items():
            assert [
                {field: row[field] for field in row if field in board["ratings"][0]}
                for row in rows(found, run=name, method=method)
            ] == board["ratings"]


def test_a_shift_is_the_difference_of_ratings_with_one_level(found: dict[str, Any]):
    before, after = (
        {row["model"]: row for row in rows(found, run=name, method="bradley_terry")}
        for name in ("pilot", "whole")
    )
    for model in PROBES:
        row = after[model]
        assert row["shift"] == pytest.approx(row["rating"] - before[model]["rating"])
        assert before[model]["shift"] is None
    assert sum(row["shift"] for row in after.values()) == pytest.approx(0, abs=1e-6)


def test_another_judge_moves_ratings_and_other_prompts_alone_do_not(
    found: dict[str, Any], folder: Path
):
    """The pilot's verdicts are among those of the whole run: that is no shift to test."""
    for row in rows(found, run="whole", method="bradley_terry"):
        assert (row["shift_ci_low"], row["shift_p_value"]) == (None, None)
    assert found["overlaps"][0]["no_interval"].startswith(
        "all verdicts of one are in the other"
    )
    other = dict(compare(folder, "whole", "turned").read("compare.json"))
    assert other["overlaps"][0]["no_interval"] is None
    for row in rows(other, run="turned", method="bradley_terry"):
        assert row["shift_ci_low"] < row["shift"] < row["shift_ci_high"]
        assert row["shift_p_value"] <= row["shift_p_holm"]


def test_elo_has_shifts_without_an_interval(found: dict[str, Any]):
    for row in rows(found, run="whole", method="elo"):
        assert row["shift"] is not None
        assert row["shift_std_error"] is None


def test_what_runs_share_is_counted(found: dict[str, Any]):
    whole, again = found["overlaps"]
    assert (
        whole["n_prompts_before"],
        whole["n_prompts"],
        whole["n_shared_prompts"],
    ) == (
        10,
        20,
        10,
    )
    assert (whole["agreement"]["n_comparisons"], whole["agreement"]["agreement"]) == (
        60,
        1.0,
    )
    assert whole["no_interval"] == again["no_interval"] is not None
    assert found["answers"] == [
        {"run": "whole", "entrant": name, "n_shared": 143, "n_same": 143}
        for name in PROBES
    ]


def test_settings_that_differ_are_listed_and_no_others(found: dict[str, Any]):
    same_kind = {
        path: by for path, by in found["settings"].items() if by["pilot"] != by["whole"]
    }
    assert same_kind == {
        "judging.limit_pairs": {"pilot": 60, "whole": 120, "again": None},
        "elo.k": {"pilot": 8, "whole": 16, "again": 16},
    }
    assert "judging.stored_only" in found["settings"]


def test_inputs_are_compared_by_their_hashes(found: dict[str, Any]):
    rubric = [
        f"rubric factuality{what}" for what in ("", " system", " template", " schema")
    ]
    assert {row["input"]: row["same"] for row in found["inputs"]} == dict.fromkeys(
        ["bank", *rubric], True
    )


def test_the_judge_and_what_it_cost_stand_beside_each_other(found: dict[str, Any]):
    judged = {row["run"]: row["flip_rate"] for row in found["judge"]}
    assert judged == {"pilot": 0.0, "whole": 0.0, "again": None}
    asked = {row["run"]: row["usage"]["judge_calls"] for row in found["runs"]}
    assert asked["pilot"] > 0
    assert asked["again"] == 0


def test_the_console_says_it_run_by_run(ran: Ran):
    lines = ran.out.splitlines()
    assert lines[0] == "run 1: pilot"
    assert lines[1].split() == [
        "tournament,",
        "judge",
        "lexical,",
        "143",
        "prompts,",
        *lines[1].split()[5:],
    ]
    entrant = next(
        i for i, line in enumerate(lines) if line.split()[:1] == ["probe_reference"]
    )
    assert [line.split()[0] for line in lines[entrant + 1 : entrant + 3]] == ["2", "3"]
    assert any(line.split() == ["elo.k", "8", "16", "16"] for line in lines)
    assert "10 of its 20 prompts are among the 10 of run 1" in ran.out


def test_what_is_done_meanwhile_names_no_ratings(ran: Ran):
    assert ran.err.splitlines()[0] == "compare: asks nobody"


def test_the_same_verdicts_are_said_to_be_the_same(folder: Path):
    ran = compare(folder, "whole", "again")
    assert (
        "run 2: the same verdicts as in run 1, so its Bradley-Terry ratings are the same"
        in ran.out
    )
    moved = rows(ran.read("compare.json"), run="again", method="bradley_terry")
    assert {(row["shift"], row["shift_std_error"]) for row in moved} == {(0.0, None)}


# What it writes


def test_the_csv_holds_every_rating(ran: Ran, found: dict[str, Any]):
    with (ran.run_dir / "compare.csv").open(encoding="utf-8", newline="") as file:
        kept = list(csv.DictReader(file))
    assert [row["model"] for row in kept] == [row["model"] for row in found["ratings"]]
    assert list(kept[0]) == list(found["ratings"][0])


def test_figures_have_their_numbers_beside_them(ran: Ran):
    for name, n in (("rating_shifts", 8),):
        assert (ran.run_dir / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (ran.run_dir / f"figures/{name}.svg").read_text(
            encoding="utf-8"
        )
        assert (
            len(
                (ran.run_dir / f"figures/{name}.csv")
                .read_text(encoding="utf-8")
                .splitlines()
            )
            == 1 + n
        )


def test_the_page_says_who_leads_and_what_differs(ran: Ran):
    reader = Reader((ran.run_dir / "report.html").read_text(encoding="utf-8"))
    assert "Highest rating, in every run: probe_reference." in reader.said
    assert (
        "Run 2: 10 of its 20 prompts are among the 10 of run 1; on 60 shared pairs"
        in reader.said
    )
    assert ["elo.k", "8", "16", "16"] in reader.cells
    assert any(cells[:2] == ["probe_swapped", "2"] for cells in reader.cells)


def test_the_tracker_logs_the_comparison(ran: Ran, found: dict[str, Any]):
    logged = {row["kind"]: row["value"] for row in ran.rows("tracker/log.jsonl")}
    (swapped,) = rows(found, run="whole", method="bradley_terry", model="probe_swapped")
    assert logged["summary"]["shift/2/factuality/probe_swapped"] == swapped["shift"]
    assert logged["table"]["name"] == "compare"
    assert logged["exit"] == 0


def test_the_manifest_names_the_folders(ran: Ran, folder: Path):
    compared = ran.read("manifest.json")["compared"]
    assert compared == [str(folder / name) for name in ("pilot", "whole", "again")]


# Which runs


def test_a_pattern_takes_the_finished_runs_and_says_whom_it_leaves_out(
    folder: Path, tmp_path: Path
):
    for name in ("pilot", "whole"):
        shutil.copytree(folder / name, tmp_path / "many" / name)
    stopped = json.loads(
        (folder / "whole/manifest.json").read_text(encoding="utf-8")
    ) | {"finished_at": None}
    (tmp_path / "many/stopped").mkdir()
    (tmp_path / "many/stopped/manifest.json").write_text(
        json.dumps(stopped), encoding="utf-8"
    )
    (tmp_path / "many/no_run").mkdir()
    found = runs.read([f"{tmp_path}/many/*", str(tmp_path / "many/pilot")])
    assert [r.name for r in found.runs] == ["pilot", "whole"]
    (left_out,) = found.left_out
    assert "stopped did not finish (it was stopped)" in left_out


def test_a_sweep_stands_for_its_jobs_in_their_order(folder: Path, tmp_path: Path):
    for job, name in (("2", "pilot"), ("10", "whole")):
        shutil.copytree(folder / name, tmp_path / "sweep" / job)
    assert [r.name for r in runs.read([str(tmp_path / "sweep")]).runs] == ["2", "10"]


def test_runs_are_named_by_as_much_of_their_path_as_tells_them_apart(
    folder: Path, tmp_path: Path
):
    for sweep in ("first", "second"):
        shutil.copytree(folder / "pilot", tmp_path / sweep / "0")
    found = runs.read([str(tmp_path / "first"), str(tmp_path / "second")])
    assert [r.name for r in found.runs] == ["first/0", "second/0"]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("[]", "runs: names no run folder. Name two or more: 'runs=[DIR1,DIR2]'"),
        (
            "[whole]",
            "found one finished run, {folder}/whole. Comparing takes two or more.",
        ),
        ("[whole,nowhere]", "runs: found no folder nowhere. Check the path."),
    ],
)
def test_what_cannot_be_compared_is_one_line(folder: Path, chosen: str, said: str):
    given = (
        "experiment=compare",
        *f"runs={chosen}".split(),
        "tracker=local",
        "hydra.run.dir=refused",
    )
    refused = attempt(*given, folder=folder)
    assert refused.code == 2
    assert said.format(folder=folder) in refused.err
    assert refused.err.count("\n") == 1


def test_runs_without_an_entrant_in_common_are_refused(folder: Path):
    battles = [
        {"model_a": "x", "model_b": "y", "winner": w, "dimension": "factuality"}
        for w in ("model_a", "model_b")
    ]
    (folder / "others.jsonl").write_text(
        "".join(json.dumps(b) + "\n" for b in battles), encoding="utf-8"
    )
    rate = (
        "experiment=rate",
        "battles=others.jsonl",
        "battles_columns.dimension=dimension",
        "figures=false",
    )
    run(*rate, "elo.n_perms=2", "tracker=local", "hydra.run.dir=others", folder=folder)
    refused = attempt(
        "experiment=compare", "runs=[whole,others]", "tracker=local", folder=folder
    )
    assert refused.code == 2
    assert (
        "others has no entrant and dimension in common with whole: x, y on factuality, against"
        in refused.err
    )


def test_one_run_named_twice_is_one_run(folder: Path):
    assert [
        r.name
        for r in runs.read([str(folder / "whole"), f"{folder}/pilot/../whole"]).runs
    ] == ["whole"]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("no*where", "found no run folder that matches no*where. Check the pattern."),
        (".", "runs: . is no run folder, for it has no manifest.json."),
    ],
)
def test_what_is_no_run_is_refused(
    chosen: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        runs.read([chosen])
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"finished_at": None, "error": "UserError: no"},
            "did not finish (UserError: no). Give its command again",
        ),
        (
            {"experiment": "oracle"},
            "has no ratings to compare, being of experiment=oracle. Expected tournament",
        ),
    ],
)
def test_a_run_that_is_named_must_have_finished_and_must_rate(
    folder: Path, tmp_path: Path, change: dict[str, Any], said: str
):
    manifest = (
        json.loads((folder / "whole/manifest.json").read_text(encoding="utf-8"))
        | change
    )
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(UserError, match="runs: ") as refused:
        runs.read([str(folder / "whole"), str(tmp_path)])
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (
            "manifest.json",
            {"finished_at": "now"},
            "manifest.json has no config of ratings. Expected what a run wrote.",
        ),
        (
            "ratings.json",
            {"dimensions": 3},
            "ratings.json has no ratings by dimension. Expected what a run wrote.",
        ),
        (
            "ratings.json",
            {"dimensions": {"factuality": {"elo": {"ratings": [{"x": 1}]}}}},
            "has no ratings by dim",
        ),
        ("ratings.json", {}, "ratings.json has no ratings by dimension."),
        (
            "battles.jsonl",
            {"x": 1},
            "battles.jsonl:1: has no 'model_a'. Expected a battle, as the run wrote it.",
        ),
    ],
)
def test_a_damaged_run_is_refused_in_one_line(
    folder: Path, tmp_path: Path, file: str, content: Any, said: str
):
    for name in ("manifest.json", "ratings.json"):
        shutil.copy(folder / "whole" / name, tmp_path / name)
    (tmp_path / file).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError) as refused:
        runs.read([str(tmp_path)]).runs[0].battles()
    assert said in str(refused.value)


# Intervals only where they can be had


def test_without_its_battles_a_run_has_shifts_and_no_interval(folder: Path):
    shutil.copytree(folder / "whole", folder / "bare")
    (folder / "bare/battles.jsonl").unlink()
    ran = compare(folder, "pilot", "bare")
    assert "no interval of the shifts: bare left no battles.jsonl" in ran.out
    moved = rows(ran.read("compare.json"), run="bare", method="bradley_terry")
    assert all(
        row["shift"] is not None and row["shift_std_error"] is None for row in moved
    )


def test_battles_on_another_dimension_are_not_said_to_be_no_file(folder: Path):
    shutil.copytree(folder / "whole", folder / "elsewhere")
    battles = folder / "elsewhere/battles.jsonl"
    battles.write_text(
        battles.read_text(encoding="utf-8").replace('"factuality"', '"calibration"'),
        encoding="utf-8",
    )
    said = compare(folder, "pilot", "elsewhere").out
    assert "no interval of the shifts: elsewhere has no battle on factuality" in said


def test_ratings_of_other_battles_than_the_file_holds_have_no_interval(folder: Path):
    shutil.copytree(folder / "whole", folder / "cut")
    lines = (
        (folder / "cut/battles.jsonl")
        .read_text(encoding="utf-8")
        .splitlines(keepends=True)
    )
    (folder / "cut/battles.jsonl").write_text("".join(lines[:-6]), encoding="utf-8")
    assert (
        "the ratings of cut are not those of its battles.jsonl"
        in compare(folder, "pilot", "cut").out
    )


def test_an_elo_that_says_little_keeps_its_number_and_earlier_attempts_are_paid(
    tmp_path: Path,
):
    """The best wins all its battles: Bradley-Terry has no rating of it, and Elo one with a flag."""
    some = [("top", model, "model_a", f"q{q}") for q in range(9) for model in "ab"]
    some += [("a", "b", f"model_{'aab'[q % 3]}", f"q{q}") for q in range(9)]
    lines = ["model_a,model_b,winner,question_id", *(",".join(row) for row in some)]
    (tmp_path / "battles.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for k in (8, 16):
        given = (
            "experiment=rate",
            "battles=battles.csv",
            f"elo.k={k}",
            f"hydra.run.dir=k{k}",
            "elo.n_perms=5",
        )
        run(*given, "tracker=local", "figures=false", folder=tmp_path)
    manifest = json.loads((tmp_path / "k8/manifest.json").read_text(encoding="utf-8"))
    manifest["paid_before"] = {"dollars": 1.25, "dollars_by_entrant": {"a": 2.0}}
    (tmp_path / "k8/manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    said = run(
        "experiment=compare",
        "runs=[k8,k16]",
        "tracker=local",
        "figures=false",
        folder=tmp_path,
    ).out
    top = [line.split() for line in said.splitlines() if line.split()[:1] == ["top"]]
    assert len(top) == 1
    assert re.fullmatch(r"\d{4}", top[0][2])
    assert "unbeaten" in top[0]
    assert "$3.25" in said
