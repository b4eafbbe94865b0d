"""elo_exp as a library: the command's experiments as functions, by the same configuration, store and words."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import elo_exp
from elo_exp import HOME
from tests.commands import attempt, environment, run
from tests.data import write_table
from tests.openai_server import OpenAiServer, alone

SMALL = {"elo__n_perms": 20}
VOTES = [
    {"model_a": a, "model_b": b, "winner": winner, "question_id": f"q{n}"}
    for n in range(12)
    for a, b, winner in (
        ("ann", "bob", "tie" if n % 4 == 0 else "model_a"),
        ("bob", "cid", "model_a" if n % 3 else "model_b"),
        ("ann", "cid", "model_b" if n % 5 == 0 else "model_a"),
    )
]
ANSWERS = {
    name: [
        {"id": f"p{n}", "prompt": f"What is {n} and {n}?", "answer": text * (n + 1)}
        for n in range(12)
    ]
    for name, text in (("old", "It is so. "), ("new", "Nobody knows what {n} is. "))
}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, tmp_path)


def ratings(folder: Path) -> bytes:
    return (folder / "ratings.json").read_bytes()


# A table


def test_a_table_is_rated_as_its_file_is_by_the_command():
    path = write_table(Path("votes.jsonl"), VOTES)
    ran = run(
        str(path), "elo.n_perms=20", "tracker=local", "figures=false", folder=Path()
    )
    by_command = ratings(ran.run_dir)
    assert ratings(elo_exp.rate("votes.jsonl", **SMALL).folder) == by_command
    for table in (
        pd.DataFrame(VOTES),
        pl.DataFrame(VOTES),
        pa.Table.from_pylist(VOTES),
        VOTES,
        {name: [row[name] for row in VOTES] for name in VOTES[0]},
    ):
        assert ratings(elo_exp.rate(table, **SMALL).folder) == by_command


def test_a_table_may_call_its_columns_and_winners_otherwise():
    words = {"model_a": "left", "model_b": "right", "tie": "tie"}
    odd = pd.DataFrame(
        {"l": v["model_a"], "r": v["model_b"], "preferred": words[v["winner"]], "q": v["question_id"]}
        for v in VOTES
    )  # fmt: skip
    run = elo_exp.rate(
        odd,
        model_a="l",
        model_b="r",
        winner="preferred",
        question_id="q",
        values={"left": "model_a", "right": "model_b"},
        **SMALL,
    )
    plain = elo_exp.rate(VOTES, **SMALL)
    assert run.ratings == plain.ratings


def test_what_is_missing_in_a_frame_is_missing_and_no_text():
    frame = pd.DataFrame(VOTES).assign(judge_model=[None, float("nan"), pd.NA] * 12)
    assert "nan" not in str(elo_exp.rate(frame, **SMALL).conclusions).lower()


def test_results_are_rows_that_frames_take():
    run = elo_exp.rate(VOTES, **SMALL)
    frame = pd.DataFrame(run.ratings).query("method == 'bradley_terry'")
    assert set(frame["model"]) == {"ann", "bob", "cid"}
    assert pl.DataFrame(run.ratings, infer_schema_length=None).height == len(
        run.ratings
    )
    assert {row["higher"] for row in run.differences} == {"ann", "bob"}
    assert len(run.battles) in (0, len(VOTES))
    (conclusion,) = run.conclusions
    assert conclusion["sentence"] in repr(run)


def test_a_notebook_shows_a_board_and_no_markup_of_a_name():
    named = [
        row | {"model_a": row["model_a"].replace("ann", "<b>ann</b>")} for row in VOTES
    ]
    shown = elo_exp.rate(named, **SMALL)._repr_html_()
    assert "<table>" in shown and "&lt;b&gt;ann" in shown and "<b>ann" not in shown


def test_a_figure_is_drawn_when_it_is_asked_for():
    run = elo_exp.rate(VOTES, **SMALL)
    assert not (run.folder / "figures").exists()
    assert "<svg" in run.figure("ratings").data
    with pytest.raises(
        elo_exp.UserError, match="figure: found 'rating'. Expected one of"
    ):
        run.figure("rating")


# Answers


def test_tables_of_answers_are_compared_and_files_of_them_find_the_same_verdicts():
    run = elo_exp.compare(
        {name: pd.DataFrame(rows) for name, rows in ANSWERS.items()},
        judge="lexical",
        **SMALL,
    )
    assert run.manifest["usage"]["judge_calls"] == 24
    assert run.manifest["study"] == "own"
    paths = [
        str(write_table(Path(f"{name}.csv"), rows)) for name, rows in ANSWERS.items()
    ]
    again = elo_exp.compare(paths, judge="lexical", **SMALL)
    assert again.manifest["usage"]["judge_calls"] == 0
    assert again.ratings == run.ratings
    assert [len(row["raw"]) for row in again.verdicts] == [2] * 12
    by_command = attempt(
        f"answers=[{','.join(paths)}]",
        "study=own",
        "mode=own",
        "judge=lexical",
        "elo.n_perms=20",
        "tracker=local",
        "figures=false",
        folder=Path(),
    )
    assert by_command.code == 0, by_command.err
    assert ratings(by_command.run_dir) == ratings(again.folder)


def test_a_name_is_a_value_and_resolves_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET", "hunter2")
    names = ("${oc.env:SECRET}", "null")
    answers = dict(zip(names, ANSWERS.values(), strict=True))
    run = elo_exp.compare(answers, judge="lexical", **SMALL)
    assert {row["model"] for row in run.ratings} == set(names)
    assert "hunter2" not in json.dumps(run.manifest)


def test_a_plan_has_rows_and_dollars_and_needs_no_key():
    plan = elo_exp.plan(answers=ANSWERS, judge="sonnet", budget_usd=2)
    (row,) = plan.rows
    assert (row["judge"], row["queries"], row["new"]) == ("claude-sonnet-5-5", 24, 24)
    assert plan.dollars == row["dollars"] > 0
    assert "cap $2" in plan.text
    assert not Path("outputs").exists() or not list(Path("outputs").glob("own_*"))


def test_what_asks_no_judge_has_no_plan():
    with pytest.raises(elo_exp.UserError, match="plan: "):
        elo_exp.plan("experiment=rate", battles="votes.jsonl")


def test_an_audit_has_probes():
    audited = elo_exp.audit("probe=[ladder,constant]", judge="lexical")
    assert {row["probe"] for row in audited.probes} >= {"ladder", "constant"}
    with pytest.raises(elo_exp.UserError, match="has no ratings.json"):
        _ = audited.ratings


# The user's mistakes


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["experiment=rate", "battles=nope.csv"], {}),
        (["elo.kk=3"], {}),
        (["judge=opsu"], {}),
        (["entrant=[probe_reference]"], {}),
        (["elo.k=-1"], {}),
    ],
)
def test_a_mistake_is_the_line_of_the_command(
    words: list[str], settings: dict[str, Any]
):
    said = attempt(*words, folder=Path()).err.strip().removeprefix("elo_exp: ")
    with pytest.raises(elo_exp.UserError) as raised:
        elo_exp.run(*words, **settings)
    assert str(raised.value) == said
    assert not list(Path("outputs").glob("*_20*"))


def test_a_setting_that_is_not_there_is_named():
    with pytest.raises(elo_exp.UserError, match="judging.lookz: unknown setting"):
        elo_exp.run(judging__lookz=5)


def test_what_is_no_table_is_refused():
    with pytest.raises(elo_exp.UserError, match="found int. Expected a file, a frame"):
        elo_exp.rate(3)


# Around it


def test_nothing_is_printed_and_notes_hold_what_was_read(
    capsys: pytest.CaptureFixture[str],
):
    run = elo_exp.rate(VOTES, **SMALL)
    assert capsys.readouterr() == ("", "")
    assert any("36 used" in line for line in run.notes)


def test_threads_agree():
    one = ratings(elo_exp.rate(VOTES, **SMALL).folder)
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: elo_exp.rate(VOTES, **SMALL), range(8)))
    assert {ratings(run.folder) for run in runs} == {one}
    assert all(sum("36 used" in line for line in run.notes) == 1 for run in runs)


def test_threads_before_a_server_send_each_query_once():
    with OpenAiServer() as server, ThreadPoolExecutor(8) as pool:
        settings = {"judge__base_url": server.url, "judge__model": "small", **SMALL}
        settings |= {
            "judge__input_usd_per_million": 1.0,
            "judge__output_usd_per_million": 1.0,
        }
        runs = list(
            pool.map(
                lambda n: elo_exp.compare(
                    ANSWERS, judge="openai_compatible", out=f"out/{n}", **settings
                ),
                range(8),
            )
        )
        assert set(server.billed.values()) == {1}
        assert server.billed.total() == 24
    assert len({ratings(run.folder) for run in runs}) == 1


def test_a_running_event_loop_is_no_hindrance():
    async def rate() -> elo_exp.Run:
        here = elo_exp.rate(VOTES, **SMALL)
        there = await asyncio.to_thread(elo_exp.rate, VOTES, **SMALL)
        assert ratings(here.folder) == ratings(there.folder)
        return here

    assert asyncio.run(rate()).ratings


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Code in a process of its own."""
    Path("user.py").write_text(code, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "user.py", *words],
        env=environment(Path().absolute()),
        capture_output=True,
        text=True,
        check=False,
    )


def test_another_hydra_application_keeps_its_own():
    """Before and after a run and a mistake: its configuration, and its compose."""
    Path("conf").mkdir()
    Path("conf/theirs.yaml").write_text("x: 1\n", encoding="utf-8")
    done = python(
        """
import hydra
from hydra.core.hydra_config import HydraConfig
import elo_exp

@hydra.main(version_base="1.3", config_path="conf", config_name="theirs")
def main(cfg):
    rows = [dict(model_a="a", model_b="b", winner=w) for w in ("model_a",) * 5 + ("model_b",) * 3]
    run = elo_exp.rate(rows, elo__n_perms=5)
    try:
        elo_exp.run("elo.kk=1")
    except elo_exp.UserError as error:
        print(error)
    assert HydraConfig.get().job.name == "user"
    print(hydra.compose("theirs").x, cfg.x, len(run.ratings))

main()
""",
        "x=2",
    )
    assert done.returncode == 0, done.stderr
    said, numbers = done.stdout.splitlines()[-2:]
    assert said.startswith("elo.kk: unknown setting.")
    assert numbers == "1 2 4"


def test_importing_the_library_imports_nothing_until_it_is_used():
    heavy = "numpy hydra omegaconf scipy pydantic wandb matplotlib anthropic logging"
    done = python(
        f"import sys, elo_exp; print([n for n in {heavy.split()} if n in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_ten_names_are_public_and_typed():
    names = ["Plan", "Run", "UserError", "__version__", "audit", "compare", "open_run"]
    assert sorted(elo_exp.__all__) == sorted([*names, "plan", "rate", "run"])
    assert dir(elo_exp) == sorted(elo_exp.__all__)
    assert (HOME / "elo_exp" / "py.typed").exists()
    with pytest.raises(AttributeError, match="has no attribute 'rating'"):
        _ = elo_exp.rating
    Path("theirs.py").write_text(
        """
import elo_exp

def first(rows: list[dict[str, str]]) -> str:
    run: elo_exp.Run = elo_exp.rate(rows, winner="preferred", values={"left": "model_a"})
    plan: elo_exp.Plan = elo_exp.plan("mode=pilot", judge="sonnet")
    dollars: float = plan.dollars
    both = elo_exp.compare({"a": "a.jsonl", "b": rows}, judge="opus", budget_usd=dollars)
    audited = elo_exp.audit(judge="opus")
    other = elo_exp.run("mode=demo", elo__k=8)
    try:
        return str(elo_exp.open_run(other.folder).ratings[0]["model"])
    except elo_exp.UserError as error:
        return f"{error} {elo_exp.__version__} {both.notes} {audited.probes} {run.exit_code}"
""",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".mypy", "theirs.py"],
        env=environment(Path().absolute()) | {"MYPYPATH": str(HOME)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


# Run folders


def test_a_run_is_opened_by_its_folder_and_a_sweep_by_its_jobs():
    run = elo_exp.compare(ANSWERS, judge="lexical", out="mine", **SMALL)
    assert elo_exp.open_run("mine").ratings == run.ratings
    assert "old" in repr(elo_exp.open_run("mine"))
    words = (
        "-m",
        "elo.k=8,16",
        "elo.n_perms=5",
        "tracker=local",
        "judging.limit_pairs=20",
    )
    swept = attempt(*words, "hydra.sweep.dir=sweep", folder=Path())
    assert swept.code == 0, swept.err
    jobs = elo_exp.open_run("sweep").sweep
    assert [job.manifest["config"]["elo"]["k"] for job in jobs] == [8, 16]
    with pytest.raises(elo_exp.UserError, match="manifest.json"):
        elo_exp.open_run("nowhere")


def test_a_run_folder_of_a_stranger_resolves_nothing():
    run = elo_exp.rate(VOTES, out="mine", **SMALL)
    manifest = run.manifest | {
        "config": {"name": "${oc.env:HOME}", "_target_": "os.system"}
    }
    Path("mine/manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert elo_exp.open_run("mine").manifest["config"]["name"] == "${oc.env:HOME}"


def test_the_level_of_the_logger_is_the_users():
    logger = logging.getLogger("elo_exp")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        assert elo_exp.rate(VOTES, **SMALL).notes == []
    finally:
        logger.setLevel(before)
