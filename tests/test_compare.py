"""experiment=compare: finished runs side by side, a pilot against the whole, a rating again."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elo_exp.errors import UserError
from elo_exp.files import read_json, write_whole
from elo_exp.runs.reading import read_runs
from tests import run_folders
from tests.commands import QUICK, Ran, attempt, run, table
from tests.data import write_table
from tests.oracle_simulation import World, several, write

PROBES = ["probe_reference", "probe_hedged", "probe_partial", "probe_swapped"]
RATE = ("experiment=rate", "figures=false", "tracker=local", "elo.n_perms=5")
COMPARE = ("experiment=compare", "tracker=local")
TURNED = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of runs to compare.

    `pilot` has 60 pairs. `whole` has 120, and its first 60 are the pairs of the pilot. Two runs rate the
    battles of `whole` again, one of them at equal length. The last has another judge, who gives each
    third battle to the other side.
    """
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
        given = (f"battles={battles}.jsonl", f"hydra.run.dir={name}")
        run(*RATE, *given, folder=folder)
    styled = ("rating.bradley_terry.style=[length]", "hydra.run.dir=refitted")
    run(*QUICK, "judging.limit_pairs=120", *styled, folder=folder)
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


def rows(ran: Ran, run: str, method: str = "bradley_terry") -> list[dict[str, Any]]:
    ratings = ran.read("compare.json")["ratings"]
    return [row for row in ratings if (row["run"], row["method"]) == (run, method)]


# What it concludes


@pytest.mark.system
def test_a_shift_is_the_difference_of_the_runs_ratings_with_one_level(
    ran: Ran, folder: Path
):
    ratings = {}
    for name in ("pilot", "whole", "again"):
        found = read_json(folder / name / "ratings.json")
        for method, board in found["dimensions"]["factuality"].items():
            there = [
                {f: row[f] for f in board["ratings"][0]}
                for row in rows(ran, name, method)
            ]
            assert there == board["ratings"]
            ratings |= {(name, method, row["model"]): row["rating"] for row in there}
    for method in ("bradley_terry", "elo"):
        shifts = {row["model"]: row["shift"] for row in rows(ran, "whole", method)}
        moved = {
            m: ratings["whole", method, m] - ratings["pilot", method, m] for m in shifts
        }
        level = sum(moved.values()) / 4
        assert shifts == pytest.approx(
            {model: by - level for model, by in moved.items()}
        )


@pytest.mark.system
@pytest.mark.parametrize(
    ("first", "other", "headline", "verdicts"),
    [
        ("pilot", "whole", "One run contains the verdicts of another", "nested"),
        ("whole", "again", "The verdicts are the same, and no rating changed", "same"),
        (
            "whole",
            "refitted",
            "the verdicts are the same and only the fit differs",
            "same",
        ),
        ("whole", "turned", "changed significantly", "other"),
    ],
)
def test_only_other_verdicts_on_the_same_prompts_can_move_a_rating(
    first: str, other: str, headline: str, verdicts: str, folder: Path
):
    ran = compare(folder, first, other)
    page = ran.page
    assert headline in ran.out
    assert headline in page.said
    (overlap,) = ran.read("compare.json")["overlaps"]
    assert overlap["verdicts"] == verdicts
    if other == "refitted":  # at equal length, with the raw lead beside it
        (conclusion, *_) = ran.read("compare.json")["conclusions"].values()
        raw = {lead["raw_low"] for lead in conclusion["firsts"]["leads"]}
        assert raw != {None}
        assert all(
            "raw lead" in " ".join(said.split()) for said in (ran.out, page.said)
        )
    for row in rows(ran, other):
        if verdicts == "other":
            assert row["shift_ci_low"] < row["shift"] < row["shift_ci_high"]
            assert row["shift_p_value"] <= row["shift_p_holm"]
        else:
            assert (
                row["shift_p_value"]
                is row["shift_p_holm"]
                is row["shift_ci_low"]
                is None
            )


def test_what_runs_share_and_in_what_they_differ(ran: Ran):
    found = ran.read("compare.json")
    whole = found["overlaps"][0]
    n = [whole[f"n_{name}"] for name in ("prompts_before", "prompts", "shared_prompts")]
    assert n == [10, 20, 10]
    assert (whole["agreement"]["n_comparisons"], whole["agreement"]["agreement"]) == (
        60,
        1,
    )
    assert found["answers"] == [
        {"run": "whole", "entrant": name, "n_shared": 143, "n_same": 143}
        for name in PROBES
    ]
    differ = {
        path: by
        for path, by in found["differences"].items()
        if by["pilot"] != by["whole"]
    }
    assert differ == {
        "judging.limit_pairs": {"pilot": 60, "whole": 120, "again": None},
        "elo.k": {"pilot": 8, "whole": 16, "again": 16},
    }
    flips = {row["run"]: row["flip_rate"] for row in found["judge"]}
    assert flips == {"pilot": 0.0, "whole": 0.0, "again": None}
    assert [row["n_prompts"] for row in found["runs"]] == [10, 20, 20]


def test_the_first_line_says_what_is_compared(ran: Ran):
    assert "compare: 3 finished runs\n" in ran.err


def test_console_page_csv_and_tracker_agree(ran: Ran, folder: Path):
    lines = [line.split() for line in ran.out.splitlines()]
    best = lines.index(
        next(line for line in lines if line[:2] == ["probe_reference", "1"])
    )
    assert [line[0] for line in lines[best + 1 : best + 3]] == ["2", "3"]
    page = ran.page
    first = "probe_reference is ahead of probe_hedged by "
    assert first in page.said
    assert first in ran.out
    shared = "Runs 2, 3 share 10 of their 20 prompts with the 10 of run 1"
    assert shared in page.said
    assert shared in ran.out
    assert ["elo.k", "8", "16", "16"] in page.cells
    assert "elo.k: 8 | 16 | 16" in ran.out
    kept = [row["model"] for row in table(ran.run_dir / "compare.csv")]
    assert kept == [row["model"] for row in ran.read("compare.json")["ratings"]]
    logged = {row["kind"]: row["value"] for row in ran.rows("tracker/log.jsonl")}
    whole = {row["model"]: row["shift"] for row in rows(ran, "whole")}
    assert (
        logged["summary"]["shift/2/factuality/probe_swapped"] == whole["probe_swapped"]
    )
    compared = ran.read("manifest.json")["compared"]
    assert compared == [str(folder / name) for name in ("pilot", "whole", "again")]


@pytest.mark.system
def test_the_method_that_was_chosen_leads_under_its_name(folder: Path):
    for name in ("whole", "turned"):
        battles = f"battles={'whole/battles' if name == 'whole' else name}.jsonl"
        given = (battles, "rating=[davidson]", f"hydra.run.dir=by_{name}")
        run(*RATE, *given, folder=folder)
    ran = compare(folder, "by_whole", "by_turned")
    found = ran.read("compare.json")
    page = ran.page
    assert found["label"] == "Davidson"
    assert "Ratings: Davidson, " in page.said
    assert found["interval"] in page.said
    assert " Davidson " in ran.out


# Which runs


def names(*chosen: Path | str) -> list[str]:
    return [r.name for r in read_runs([str(folder) for folder in chosen])[0]]


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
    manifest = read_json(folder / "whole/manifest.json")
    stopped = json.dumps(manifest | {"finished_at": None})
    write_whole(tmp_path / "many/stopped/manifest.json", stopped)
    (tmp_path / "many/no_run").mkdir()
    found, (left_out,) = read_runs([f"{tmp_path}/many/*", str(tmp_path / "many/a")])
    assert [r.name for r in found] == ["a", "b"]
    assert "stopped did not finish (it was stopped)" in left_out
    assert names(tmp_path / "sweep") == ["2", "10"]
    shutil.copytree(tmp_path / "sweep", tmp_path / "other")
    both = names(tmp_path / "sweep", tmp_path / "other")
    assert both == ["sweep/2", "sweep/10", "other/2", "other/10"]
    assert names(folder / "whole", folder / "pilot/../whole") == ["whole"]


@pytest.mark.system
def test_entrants_of_two_runs_that_look_alike_are_warned_of(tmp_path: Path):
    """In each run there is one of them, so that no run could say so."""
    for run_dir, name in (("old", "gpt-4"), ("new", "GPT\u20114")):
        battle = {"model_a": name, "model_b": "other"}
        battles = [{**battle, "winner": w} for w in ("model_a", "model_b")]
        write_table(tmp_path / f"{run_dir}.jsonl", battles)
        given = (f"battles={run_dir}.jsonl", f"hydra.run.dir={run_dir}")
        assert "look alike" not in run(*RATE, *given, folder=tmp_path).err
    ran = compare(tmp_path, "old", "new")
    said = (
        "the models 'gpt-4', 'GPT\u20114' look alike and are taken for different ones."
    )
    assert ran.err.count(f"warning: {said}") == 1


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("whole", "experiment=compare needs at least two finished runs; runs has {folder}/whole. Add another run folder:"),
        ("whole,nowhere", "nowhere is not a run folder: it has no manifest.json. Name the folder"),
        ("whole,others", "others and whole have no entrant and no policy in common, so they cannot be compared."),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_one_line(folder: Path, chosen: str, said: str):
    if chosen.endswith("others"):
        battle = {"model_a": "x", "model_b": "y", "dimension": "factuality"}
        battles = [{**battle, "winner": w} for w in ("model_a", "model_b")]
        write_table(folder / "others.jsonl", battles)
        run(
            *RATE,
            "battles=others.jsonl",
            "hydra.run.dir=others",
            folder=folder,
        )
    refused = attempt(
        *COMPARE, f"runs=[{chosen}]", "hydra.run.dir=refused", folder=folder
    )
    assert refused.code == 2
    assert said.format(folder=folder) in refused.err
    _, *below = refused.err.splitlines()
    assert all(text.startswith("  ") for text in below)


def put(*path: str | int, value: Any) -> Callable[[Any], Any]:
    """What puts a value at a place of a document."""

    def spoil(content: Any) -> Any:
        node = content
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value
        return content

    return spoil


BOARD = ("dimensions", "factuality", "bradley_terry")
FIRST = (*BOARD, "ratings", 0)
NOT_AS_WRITTEN = "is not as a run writes it: "


@pytest.mark.parametrize(
    ("file", "spoil", "said"),
    [
        ("manifest.json", lambda _: {"error": "no"}, "did not finish (no). Run its command again"),
        ("manifest.json", put("config", "elo", "k", value="8"), "config.elo.k must be "),
        ("manifest.json", put("config", "elo", "k", value=math.inf), f"{NOT_AS_WRITTEN}it holds the number inf."),
        ("manifest.json", put("usage", "dollars", value="1"), 'usage.dollars must be a number; got "1".'),
        ("manifest.json", put("versions", value=7), f"manifest.json {NOT_AS_WRITTEN}versions must be a mapping"),
        ("manifest.json", put("overrides", 0, value=[]), "overrides.0 must be text; got []."),
        ("ratings.json", put("dimensions", value=3), f"ratings.json {NOT_AS_WRITTEN}dimensions must be a mapping"),
        ("ratings.json", put(*FIRST, "rating", value="1500"), '0.rating must be a number or null; got "1500".'),
        ("ratings.json", put(*FIRST, "model", value=None), "ratings.0.model must be text; got null."),
        ("ratings.json", put(*BOARD, "unit", value="furlongs"), 'unit must be points or score; got "furlongs".'),
        ("ratings.json", put("conclusions", "factuality", "sentence", value=0), "factuality.sentence must be text; got 0."),
        ("ratings.json", None, "is a run of experiment=tournament and has no ratings to compare."),
        ("battles.jsonl", lambda _: {"x": 1}, "battles.jsonl has no column model_a. Name one of its columns:"),
        ("battles.jsonl", put("score", value=7), "battles.jsonl:1: score must be the share of model_a"),
        ("battles.jsonl", put("winner", value=None), "battles.jsonl:1: winner must be a winner: text"),
    ],
)  # fmt: skip
def test_a_damaged_run_is_refused_in_one_line(
    folder: Path,
    tmp_path: Path,
    file: str,
    spoil: Callable[[Any], Any] | None,
    said: str,
):
    for name in ("manifest.json", "ratings.json", "battles.jsonl"):
        shutil.copy(folder / "whole" / name, tmp_path / name)
    path = tmp_path / file
    if spoil is None:
        path.unlink()
    else:
        lines = path.read_text(encoding="utf-8").splitlines()
        text = lines[0] if file == "battles.jsonl" else "".join(lines)
        write_whole(path, json.dumps(spoil(json.loads(text))))
    with pytest.raises(UserError) as refused:
        read_runs([str(tmp_path)])[0][0].battles()
    assert said in refused.value.line
    run_folders.one_line(refused.value)


def test_the_command_refuses_a_damaged_run_with_code_2(folder: Path):
    shutil.copytree(folder / "whole", folder / "damaged")
    write_table(folder / "damaged/battles.jsonl", [{"model_a": [1]}])
    for given in (
        ("experiment=compare", "runs=[whole,damaged]"),
        (
            "experiment=export",
            "folder=damaged",
        ),
    ):
        refused = attempt(*given, "tracker=local", "hydra.run.dir=x", folder=folder)
        assert refused.code == 2
        assert "damaged/battles.jsonl has no column model_b" in refused.err
        assert "Traceback" not in refused.err


def check_damaged(whole: Path, tmp_path: Path, seed: int) -> None:
    how = run_folders.damaged(shutil.copytree(whole, tmp_path / "run"), seed)
    readers = run_folders.readers(tmp_path / "run", whole, tmp_path / "out")
    for name, read in readers.items():
        (tmp_path / "out").mkdir()
        try:
            read()
        except UserError as error:
            run_folders.one_line(error)
        except Exception as error:
            raise AssertionError(f"{name} of a folder with {how}") from error
        shutil.rmtree(tmp_path / "out")


@pytest.mark.parametrize("seed", range(8))
def test_fuzz_a_damaged_run_folder_is_read_or_refused(
    folder: Path, tmp_path: Path, seed: int
):
    check_damaged(folder / "whole", tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["whole", "run_one"])
@pytest.mark.parametrize("seed", range(100, 400))
def test_fuzz_many_damaged_run_folders(
    folder: Path, estimated: Path, tmp_path: Path, seed: int, name: str
):
    where = estimated if name == "run_one" else folder
    check_damaged(where / name, tmp_path, seed)


def test_without_the_battles_of_its_ratings_a_run_has_shifts_and_no_interval(
    folder: Path,
):
    name = "kept"
    shutil.copytree(folder / "whole", folder / name)
    path = folder / name / "battles.jsonl"
    battles = read_jsonl(path)
    write_table(path, battles[:114])
    ran = compare(folder, "pilot", name)
    reason = (
        f"battles.jsonl of {name} does not give its Bradley-Terry ratings by prompt"
    )
    assert reason in " ".join(ran.out.split())
    for row in rows(ran, name):
        assert row["shift"] is not None
        assert row["shift_std_error"] is None


def test_no_shift_is_tested_if_the_lead_of_a_run_is_lost_to_missing_answers(
    folder: Path,
):
    name = "lost"
    shutil.copytree(folder / "whole", folder / name)
    path = folder / name / "ratings.json"
    content = json.loads(path.read_text())
    for conclusion in content["conclusions"].values():
        conclusion["state"] = "undecided"
        conclusion["reasons"] = [{"name": "failures", "value": 9.0, "about": {}}]
    path.write_text(json.dumps(content))
    ran = compare(folder, "pilot", name)
    reason = f"{name} loses its lead if its missing answers and verdicts count"
    assert reason in " ".join(ran.out.split())
    for row in rows(ran, name):
        assert row["shift"] is not None
        assert row["shift_std_error"] is row["shift_p_holm"] is None


@pytest.mark.system
def test_a_rating_without_a_number_shows_why_and_earlier_attempts_are_paid(
    tmp_path: Path,
):
    """The best wins all its battles."""
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
    manifest = read_json(path) | {"paid_before": paid}
    write_whole(path, json.dumps(manifest))
    out = compare(tmp_path, "k8", "k16").out
    (top,) = (
        line.split() for line in out.splitlines() if line.split()[:2] == ["top", "1"]
    )
    assert top[2:4] == ["over", "1578"]
    assert "top is ahead of a by at least 118 in 2 of 2 runs" in out
    assert "$3.25" in out


# Oracle runs


@pytest.fixture(scope="module")
def estimated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two policies on the same prompts, each in a run of its own as `x`, and both in one run."""
    folder = tmp_path_factory.mktemp("estimated")
    worlds = {
        name: World(n=300, shift=shift, labelled=0.5, n_probe=60)
        for name, shift in (("one", 0.0), ("other", 0.6))
    }
    data = several(5, **worlds)
    write(data, folder / "both")
    for name in worlds:
        alone = {
            kind: {"x": getattr(data, kind)[name]}
            for kind in ("target_logprob", "fresh_draws", "probe_draws")
        }
        write(dataclasses.replace(data, policies=("x",), **alone), folder / name)
    for name in ("both", *worlds):
        sources = {"logged": "logged.jsonl", "fresh_dir": "fresh", "probe_dir": "probe"}
        given = [f"oracle.{key}={name}/{file}" for key, file in sources.items()]
        place = f"hydra.run.dir=run_{name}"
        run(
            "experiment=oracle",
            *given,
            "tracker=local",
            "figures=false",
            place,
            folder=folder,
        )
    return folder


@pytest.mark.system
def test_a_difference_between_runs_is_that_within_one_run(estimated: Path):
    """Second opinion: differences.json of the run that has both."""
    found = compare(estimated, "run_one", "run_other")
    first, second = found.read("compare.json")["estimates"]
    path = estimated / "run_both" / "differences.json"
    (within,) = read_json(path)
    assert (first["difference"], second["n_shared_prompts"]) == (None, 300)
    assert abs(second["difference"]) == pytest.approx(within["value"], abs=1e-9)
    assert second["difference_std_error"] == pytest.approx(
        within["std_error"], rel=1e-6
    )
    assert second["difference_p_holm"] == pytest.approx(within["p_value"], rel=1e-4)
    assert "x differs significantly between runs." in found.out
    assert "x differs significantly between runs" in found.page.text


@pytest.mark.system
def test_without_influences_the_errors_of_two_runs_are_independent(
    estimated: Path, tmp_path: Path
):
    for name in ("run_one", "run_other"):
        shutil.copytree(estimated / name, tmp_path / name)
        (tmp_path / name / "influences.json").unlink()
    found = compare(tmp_path, "run_one", "run_other")
    _, row = found.read("compare.json")["estimates"]
    errors = [
        read_json(tmp_path / name / "estimates.json")[0]["std_error"]
        for name in ("run_one", "run_other")
    ]
    assert row["difference_std_error"] == pytest.approx(math.hypot(*errors))
    assert row["n_shared_prompts"] == 0
    assert "unpaired" in found.out
