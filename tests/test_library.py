"""The library does what the command does: in threads, in a running loop, inside another program's Hydra; and it leaves
the process as it was."""

import asyncio
import html
import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import hydra
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hydra import version
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobRuntime
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

import elo_exp
from elo_exp.files import write_json, write_jsonl
from elo_exp.library.arguments import format_value
from elo_exp.paths import HOME
from tests import commands
from tests.documented import blocks
from tests.openai_server import OpenAiServer, alone

QUICK = {"elo__n_perms": 20, "elo__n_bootstraps": 10}
BATTLES = [
    {
        "question_id": f"q{n}",
        "model_a": "new" if n % 2 else "old",
        "model_b": ("old", "base")[n % 3 == 0] if n % 2 else "base",
        "winner": ("model_a", "model_a", "tie", "model_b")[n % 4],
    }
    for n in range(60)
]
ANSWERS = {
    name: [
        {"id": n, "prompt": f"What is {n} squared?", "response": f"{said} {n * n}."}
        for n in range(12)
    ]
    for name, said in {"old": "It is", "new": "The square of the number is"}.items()
}


@pytest.fixture(autouse=True)
def a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone(monkeypatch, tmp_path)


def ratings(run: elo_exp.Run) -> bytes:
    return (run.folder / "ratings.json").read_bytes()


@pytest.mark.system
def test_the_page_shows_what_its_code_prints(capsys: pytest.CaptureFixture[str]):
    """But for the call that costs money."""
    shown = [block for block in blocks("docs/library.md") if block.kind]
    names: dict[str, object] = {}
    n_outputs = 0
    for block, following in pairwise([*shown, shown[0]]):
        if block.kind != "python" or "old.jsonl" in block.text:
            continue
        exec(block.text, names)
        printed = capsys.readouterr().out
        assert printed == (following.text if following.kind == "text" else "")
        n_outputs += bool(printed)
    assert n_outputs == 11


# What it takes, and what it gives


@pytest.mark.system
def test_a_table_of_any_kind_is_rated_as_the_command_rates_its_file(tmp_path):
    path = write_jsonl(tmp_path / "battles.jsonl", BATTLES)
    ran = commands.run(
        "battles.jsonl", "elo.n_perms=20", "elo.n_bootstraps=10", "tracker=local",
        "figures=false", folder=tmp_path,
    )  # fmt: skip
    frame = pd.DataFrame(BATTLES)
    columns = frame.to_dict("list")
    tables = [
        columns,
        frame,
        pl.DataFrame(BATTLES),
        pa.Table.from_pandas(frame),
        BATTLES,
    ]
    for table in [*tables, path, str(path), [path]]:
        rated = elo_exp.rate(table, **QUICK)
        assert ratings(rated) == (ran.run_dir / "ratings.json").read_bytes()
    assert rated.ratings == elo_exp.open_run(ran.run_dir).ratings


@pytest.mark.system
def test_columns_and_words_for_winners_may_have_other_names():
    frame = pd.DataFrame(BATTLES).rename(
        columns={"model_a": "left_model", "model_b": "right_model", "winner": "choice"}
    )
    frame["choice"] = frame["choice"].map(
        {"model_a": "left!", "model_b": "right: ${x}", "tie": "tie"}
    )
    rated = elo_exp.rate(
        frame,
        model_a="left_model",
        model_b="right_model",
        winner="choice",
        values={"left!": "model_a", "right: ${x}": "model_b", "tie": "tie"},
        **QUICK,
    )
    assert rated.ratings == elo_exp.rate(BATTLES, **QUICK).ratings


@pytest.mark.system
def test_conclusions_of_policies_and_of_a_comparison_are_there(tmp_path: Path):
    """As console, manifest and tracker have them."""
    rng = np.random.default_rng(1)
    write_jsonl(
        tmp_path / "draws.jsonl",
        [
            {"prompt_id": f"q{n}", "policy": policy, "judge_score": score / 10}
            | {"oracle_label": float(score > 4)}
            for n in range(60)
            for policy in ("base", "tuned")
            for score in [int(rng.integers(11))]
        ],
    )
    told = {"oracle__fresh_dir": str(tmp_path / "draws.jsonl"), "figures": False}
    oracle = elo_exp.run("experiment=oracle", tracker="local", **told)
    rows = {row["dimension"]: row["sentence"] for row in oracle.conclusions}
    assert {*rows} == {"base", "tuned", "choice"}
    assert rows["choice"] == oracle.manifest["choice"]["sentence"]
    for name in ("one", "two"):
        elo_exp.rate(BATTLES, out=tmp_path / name, **QUICK)
    given = {"runs": [f"{tmp_path}/one", f"{tmp_path}/two"], "figures": False}
    compared = elo_exp.run("experiment=compare", tracker="local", **given)
    assert [row["dimension"] for row in compared.conclusions] == ["overall"]


def test_results_are_rows_that_tables_are_made_of():
    rated = elo_exp.rate(BATTLES, **QUICK)
    frame = pd.DataFrame(rated.ratings).query("method == 'bradley_terry'")
    assert list(frame["entrant"]) == ["old", "new", "base"]
    lazy = pl.DataFrame(rated.ratings, infer_schema_length=None)
    assert lazy["rating"].to_list() == [row["rating"] for row in rated.ratings]
    assert len(rated.battles) == len(BATTLES)
    assert {row["method"] for row in rated.differences} == {"bradley_terry"}
    assert rated.conclusions[0]["dimension"] == "overall"
    assert rated.conclusions[0]["sentence"] in " ".join(rated.text.split())
    assert "<td>new</td>" in rated.ratings._repr_html_()
    assert rated.read("pairwise_winrates.csv")[0].keys() >= {"entrant_a", "entrant_b"}


def test_a_leaderboard_has_the_ratings_of_the_primary_method_which_come_first():
    rated = elo_exp.rate(BATTLES, **QUICK)
    primary = [row for row in rated.ratings if row["method"] == "bradley_terry"]
    assert rated.ratings[:3] == primary
    shared = (
        "dimension",
        "entrant",
        "rating",
        "ci_low",
        "ci_high",
        "rank",
        "n_prompts",
    )
    rows = [{name: row[name] for name in shared} for row in rated.leaderboard]
    assert rows == [{name: row[name] for name in shared} for row in primary]
    assert {row["unit"] for row in rated.leaderboard} == {"points"}


def test_a_verdict_is_a_row_with_the_texts_that_the_judge_saw():
    """It names an entrant, in whichever order the answers were shown."""
    run = elo_exp.compare(ANSWERS, judge=lambda prompt, a, b: "A", **QUICK)
    assert len(run.verdicts) == 24
    shown_first, shown_second = run.verdicts[:2]
    texts = {row["prompt"]: row["response"] for row in ANSWERS["old"]}
    assert shown_first["answer_a"] == texts[shown_first["question"]]
    same = ("question", "answer_a", "answer_b", "entrant_a", "entrant_b", "prompt_id")
    assert [shown_first[name] for name in same] == [shown_second[name] for name in same]
    seen = [
        [row[name] for name in ("order", "verdict", "winner", "inconsistent")]
        for row in (shown_first, shown_second)
    ]
    assert seen == [["ab", "entrant_a", "old", True], ["ba", "entrant_b", "new", True]]
    entrants = {row["entrant"] for row in [*run.responses, *run.leaderboard]}
    assert entrants == {"old", "new"}


@pytest.mark.system
def test_missing_values_of_a_table_are_missing():
    """Of pandas NaN, NaT and NA; numbers of NumPy are numbers."""
    frame = pd.DataFrame([*BATTLES, {**BATTLES[0], "winner": None}])
    frame["note"] = pd.array([1, *[None] * 60], dtype="Int64")
    frame["at"] = pd.to_datetime(["2026-01-01", *[None] * 60])
    with pytest.raises(elo_exp.UserError, match="^battles:61: "):
        elo_exp.rate(frame, **QUICK)
    rated = elo_exp.rate(frame[:60], **QUICK)
    assert rated.ratings == elo_exp.rate(BATTLES, **QUICK).ratings


def test_a_run_is_shown_in_a_notebook_by_its_conclusions_and_boards():
    rated = elo_exp.rate([{**row, "model_a": f"<b>{row['model_a']}"} for row in BATTLES], **QUICK)  # fmt: skip
    shown = rated._repr_html_()
    assert html.escape(rated.conclusions[0]["sentence"]) in shown
    assert "<td>&lt;b&gt;new</td>" in shown
    assert "<b>" not in shown


@pytest.mark.system
def test_figures_are_drawn_when_they_are_asked_for_and_the_page_then_has_them(
    tmp_path,
):
    code = (
        "import sys, elo_exp, json\n"
        "run = elo_exp.rate(json.load(open('b.json')), elo__n_perms=20)\n"
        "print([name for name in ('matplotlib', 'wandb', 'anthropic') if name in sys.modules])\n"
        "before = (run.folder / 'report.html').read_text()\n"
        "print(run.figure('ratings')._repr_svg_()[:5], 'figures/ratings' in run.manifest['files'])\n"
        "print('<svg' in run.page.read_text(), len(run.page.read_text()) > len(before))\n"
    )
    write_json(Path("b.json"), BATTLES)
    done = commands.attempt_program(
        sys.executable, "-W", "error", "-c", code, folder=tmp_path
    )
    assert done.out.splitlines() == ["[]", "<?xml False", "True True"]
    rated = elo_exp.rate(BATTLES, **QUICK)
    assert "ratings" in rated.figures
    assert "figures/ratings.svg" in rated.manifest["files"]
    with pytest.raises(
        elo_exp.UserError, match='The run has no figure "rating". It has'
    ):
        rated.figure("rating")


@pytest.mark.system
def test_a_rating_leaves_nothing_behind_unless_it_is_told_where(tmp_path):
    code = (
        "import json, os, sys, elo_exp\n"
        "run = elo_exp.rate(json.load(open('b.json')), elo__n_perms=20)\n"
        "child = os.fork() or sys.exit()\n"  # which is no end of the process that made it
        "os.waitpid(child, 0)\n"
        "print(run.folder, run.folder.is_dir(), oct(run.folder.stat().st_mode))\n"
    )
    write_json(Path("b.json"), BATTLES)
    done = commands.attempt_program(sys.executable, "-c", code, folder=tmp_path)
    folder, was_there, mode = done.out.split()
    assert (was_there, mode) == ("True", "0o40700")
    assert not Path(folder).exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"b.json", "home"}
    kept = elo_exp.rate(BATTLES, out="here", **QUICK)
    assert kept.folder == tmp_path / "here"
    again = elo_exp.open_run("here")
    assert (again.ratings, again.manifest) == (kept.ratings, kept.manifest)
    assert again.conclusions[0]["sentence"] in again.text


# Answers and judges


@pytest.mark.system
def test_answers_are_compared_as_the_command_compares_their_files(tmp_path):
    files = {
        name: write_jsonl(tmp_path / f"{name}.jsonl", rows)
        for name, rows in ANSWERS.items()
    }
    ran = commands.run(
        "old.jsonl", "new.jsonl", "judge=lexical", "tracker=local", "figures=false",
        "elo.n_perms=20", "elo.n_bootstraps=10", folder=tmp_path,
    )  # fmt: skip
    given = [files, [*files.values()], {"old": files["old"], "new": pl.DataFrame(ANSWERS["new"])}]  # fmt: skip
    for answers in given:
        run = elo_exp.compare(answers, judge="lexical", **QUICK)
        assert ratings(run) == (ran.run_dir / "ratings.json").read_bytes()
        assert run.manifest["study"] == "own"
        assert len(run.responses) == 24
        assert len(run.verdicts) == 24
    assert "prompts: 12 of 12 answered by both entrants" in run.notes[2]
    assert run.notes[:2] == [
        f"{files['old']}: plain rows: 12 answers of old",
        "new: plain rows: 12 answers of new",
    ]


def test_names_are_values_and_never_words(monkeypatch):
    monkeypatch.setenv("SECRET", "sk-1")
    names = ["null", "${oc.env:SECRET}", "a b, 'c' \"d\" {e}: é"]
    answers = {
        name: [{**row, "response": f"{row['response']} {n}"} for row in ANSWERS["old"]]
        for n, name in enumerate(names)
    }
    run = elo_exp.compare(answers, judge="lexical", **QUICK)
    assert run.manifest["entrants"] == names
    text = "".join(p.read_text() for p in run.folder.rglob("*.json*"))
    assert "sk-1" not in text


def test_a_judge_has_no_default():
    message = "judge is not set. Nothing was sent or charged. Choose a judge for 24 judge calls"
    with pytest.raises(elo_exp.UserError, match=message):
        elo_exp.compare(ANSWERS)
    with pytest.raises(elo_exp.UserError, match=message):
        elo_exp.run(answers=ANSWERS)
    assert not list(Path("outputs").glob("own*"))


@pytest.mark.system
def test_prompts_may_be_a_table_too():
    bare = {
        name: [{"id": r["id"], "response": r["response"]} for r in rows]
        for name, rows in ANSWERS.items()
    }
    prompts = pd.DataFrame([{"id": r["id"], "question": r["prompt"]} for r in ANSWERS["old"]])  # fmt: skip
    run = elo_exp.compare(bare, judge="lexical", prompts=prompts, **QUICK)
    assert run.ratings == elo_exp.compare(ANSWERS, judge="lexical", **QUICK).ratings


@pytest.mark.system
def test_a_plan_has_the_numbers_of_the_table_that_the_command_prints(tmp_path):
    for name, rows in ANSWERS.items():
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    ran = commands.run(
        "old.jsonl", "new.jsonl", "judge=sonnet", "plan=true", folder=tmp_path
    )
    plan = elo_exp.plan(answers=ANSWERS, judge="sonnet", budget_usd=5)
    assert plan.text == ran.out.rstrip("\n")
    (row,) = plan.rows
    assert (row["judge"], row["queries"], row["new"]) == ("claude-sonnet-5-5", 24, 24)
    assert plan.dollars == row["dollars"] > 0
    assert f"{plan.dollars:.2f}" in plan.text
    assert (
        plan.notes[2]
        == "prompts: 12 of 12 answered by both entrants, 0 with a reference answer"
    )
    free = elo_exp.plan("experiment=rate", battles=BATTLES)
    assert (free.rows, free.dollars) == ([], 0.0)
    assert "costs nothing" in free.text


@pytest.mark.system
def test_an_audit_concludes_by_dimension():
    audited = elo_exp.audit(judge="lexical", audit__n_prompts=10)
    (conclusion,) = audited.conclusions
    assert conclusion["dimension"] == "factuality"
    assert conclusion["sentence"] in " ".join(audited.text.split())
    with pytest.raises(
        elo_exp.UserError, match="has no ratings, as it is a run of experiment=audit"
    ):
        _ = audited.ratings
    assert audited.verdicts
    assert {row["probe"] for row in audited.probes} >= {"ladder", "constant"}


@pytest.mark.system
def test_runs_and_sweeps_are_opened(tmp_path):
    commands.run(
        "-m", "rating=[bradley_terry]", "elo.k=8,16", "hydra.sweep.dir=swept",
        *commands.QUICK, folder=tmp_path,
    )  # fmt: skip
    sweep = elo_exp.open_run("swept")
    board = sweep.leaderboard
    assert [*board[0]][:3] == ["job", "elo.k", "dimension"]
    assert {(row["job"], row["elo.k"]) for row in board} == {(0, 8), (1, 16)}
    elo = [row["rating"] for row in sweep.ratings if row["method"] == "elo"]
    assert elo[: len(elo) // 2] != elo[len(elo) // 2 :]
    jobs = sweep.sweep
    assert len(sweep.ratings) == sum(len(job.ratings) for job in jobs)
    assert [job.manifest["config"]["elo"]["k"] for job in jobs] == [8, 16]
    assert jobs[0].sweep == []
    assert {row["method"] for row in jobs[1].ratings} == {"elo", "bradley_terry"}
    with pytest.raises(
        elo_exp.UserError,
        match="nowhere is not a run folder, as it has no manifest.json",
    ):
        elo_exp.open_run("nowhere")


def test_a_run_that_did_not_finish_is_not_opened(tmp_path):
    rated = elo_exp.rate(BATTLES, out="stopped", **QUICK)
    write_json(
        rated.folder / "manifest.json",
        {**rated.manifest, "finished_at": None, "error": "KeyboardInterrupt: "},
    )
    with pytest.raises(elo_exp.UserError, match="stopped did not finish .Keyboard"):
        elo_exp.open_run("stopped")


def test_a_sweep_without_a_finished_job_is_not_opened():
    Path("swept/0").mkdir(parents=True)
    with pytest.raises(
        elo_exp.UserError,
        match=r"^swept is a sweep without a finished job \(it has 1\)\.",
    ):
        elo_exp.open_run("swept")


# Mistakes


@pytest.mark.system
@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["elo.kk=3"], {"elo__kk": 3}),
        (["elo.k=abc"], {"elo__k": "abc"}),
        (["judge=sonet"], {"judge": "sonet"}),
        (["experiment=rate"], {"experiment": "rate"}),
        (["prompts.bank_path=missing.jsonl", "judge=lexical"], {"prompts": "missing.jsonl", "judge": "lexical"}),
        (["judging.budget_usd=-1"], {"judging__budget_usd": -1}),
        (["entrant=[probe_hedged]"], {"entrant": ["probe_hedged"]}),
        (["nope.csv"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_mistake_has_the_words_of_the_command(words, settings, tmp_path):
    ran = commands.attempt(*words, "tracker=local", folder=tmp_path)
    given = (words, {}) if settings is None else ([], settings)
    with pytest.raises(elo_exp.UserError) as raised:
        elo_exp.run(*given[0], **given[1])
    assert f"elo_exp: {raised.value}\n" == ran.err
    assert not list(tmp_path.glob("outputs/*_*"))


def test_our_mistakes_keep_their_traceback(monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("elo_exp.experiments.rate.Rate.run", broken)
    with pytest.raises(ZeroDivisionError, match="ours"):
        elo_exp.rate(BATTLES, **QUICK)


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        (3, "must be a table of pandas, polars or pyarrow, .*; row 1 is 3"),
        ([], "is a table without rows"),
        ([1, 2], "must be a table of pandas, polars or pyarrow, .*; row 1 is 1"),
        ({"winner": ["tie"]}, "has no columns of battles or scores"),
    ],
)
def test_what_is_no_table_of_battles_is_refused(table, fault):
    with pytest.raises(elo_exp.UserError, match=rf"^battles {fault}\."):
        elo_exp.rate(table, **QUICK)


def test_a_run_folder_of_a_stranger_resolves_nothing():
    run = elo_exp.rate(BATTLES, out="mine", **QUICK)
    named = {"name": "${oc.env:HOME}", "_target_": "os.system"}
    write_json(run.folder / "manifest.json", run.manifest | {"config": named})
    assert elo_exp.open_run("mine").manifest["config"] == named


def test_a_flag_of_the_command_is_refused():
    with pytest.raises(
        elo_exp.UserError, match="-m is a flag of the command and not of the library."
    ):
        elo_exp.run("-m", "elo.k=8,16")


@pytest.mark.system
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3),
    )
)  # fmt: skip
def test_a_value_needs_no_quoting(value):
    """Whatever it is, Hydra and OmegaConf read it as it is."""
    (word,) = OverridesParser.create().parse_overrides(
        [f"x={format_value(value, 'x')}"]
    )
    cfg = OmegaConf.create({"x": word.value()})
    assert OmegaConf.to_container(cfg, resolve=True) == {"x": value}


# The process


def test_the_package_is_imported_in_no_time():
    code = (
        "import sys, time; before = time.process_time(); import elo_exp\n"
        "print(time.process_time() - before)\n"
        "print([n for n in ('numpy', 'hydra', 'scipy', 'pydantic') if n in sys.modules])\n"
        "print(sorted(elo_exp.__all__) == elo_exp.__all__, set(elo_exp.__all__) <= set(dir(elo_exp)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    seconds, loaded, named = done.stdout.splitlines()
    assert float(seconds) < 0.05
    assert (loaded, named) == ("[]", "True True")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = elo_exp.nothing  # type: ignore[attr-defined]


def test_nothing_is_printed_and_logging_stays_as_it_was(capfd):
    logger = logging.getLogger("elo_exp")
    state = logger.level, logger.propagate, logger.handlers[:]
    root = logging.getLogger()
    handlers, level, argv = root.handlers[:], root.level, sys.argv[:]
    rated = elo_exp.rate([*BATTLES, BATTLES[0]], **QUICK)
    assert capfd.readouterr() == ("", "")
    assert rated.notes[-1] == "rate: 61 battles on 1 rubric"
    assert (logger.level, logger.propagate, logger.handlers) == state
    assert (root.handlers, root.level, sys.argv) == (handlers, level, argv)


@pytest.mark.system
def test_a_program_that_logs_sees_what_it_asked_for(caplog):
    with caplog.at_level(logging.WARNING):
        elo_exp.rate(BATTLES, **QUICK)
    assert caplog.messages == []
    with caplog.at_level(logging.INFO, logger="elo_exp"):
        rated = elo_exp.rate(BATTLES, **QUICK)
    assert len(caplog.messages) == len(rated.notes) > 0


def test_a_table_is_plain_text_where_a_program_wants_colours(monkeypatch):
    """As a kernel of Jupyter does."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in repr(elo_exp.rate(BATTLES, **QUICK).ratings)


@pytest.mark.system
def test_threads_and_a_running_loop_rate_alike():
    tables = [[{**row, "question_id": f"{n}{row['question_id']}"} for row in BATTLES] for n in range(8)]  # fmt: skip
    alone = elo_exp.rate(BATTLES, **QUICK).ratings

    async def in_a_loop() -> list[elo_exp.Run]:
        calls = (asyncio.to_thread(elo_exp.rate, table, **QUICK) for table in tables)
        return await asyncio.gather(*calls)

    for rated in asyncio.run(in_a_loop()):
        assert rated.ratings == alone
        assert rated.notes == [
            "battles: read as battles: 60 used, 15 tied, 0 invalid",
            "rate: 60 battles on 1 rubric",
        ]


@pytest.mark.system
def test_threads_draw_and_judge_alike():
    def judged(_: int) -> tuple[object, ...]:
        run = elo_exp.compare(ANSWERS, judge="lexical", **QUICK)
        return run.ratings, run.figure("ratings").svg, run.folder

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(judged, range(4)))
    assert len({str(folder) for *_, folder in found}) == 4
    assert all(one[:2] == found[0][:2] for one in found)


@pytest.mark.system
def test_eight_threads_before_one_paid_server_send_each_query_once():
    with OpenAiServer() as server:
        barrier = threading.Barrier(8)

        def judged(_: int) -> elo_exp.Run:
            barrier.wait()
            return elo_exp.compare(
                ANSWERS,
                judge="openai_compatible",
                judge__base_url=server.url,
                judge__model="large",
                judge__input_usd_per_million=2.0,
                judge__cached_input_usd_per_million=0.5,
                judge__output_usd_per_million=8.0,
                budget_usd=5,
                **QUICK,
            )

        with ThreadPoolExecutor(8) as pool:
            runs = list(pool.map(judged, range(8)))
        assert set(server.billed.values()) == {1}
        assert len(server.billed) == 24
    assert all(run.ratings == runs[0].ratings for run in runs)
    assert sum(run.manifest["usage"]["dollars"] for run in runs) > 0


@pytest.mark.system
def test_inside_another_application_of_hydra_each_keeps_its_own(tmp_path):
    write_json(tmp_path / "outer" / "config.yaml", {"a": 1})
    with hydra.initialize_config_dir(
        str(tmp_path / "outer"), job_name="outer", version_base="1.2"
    ):
        outer = GlobalHydra.instance().hydra
        inside = elo_exp.rate(BATTLES, **QUICK)
        with pytest.raises(elo_exp.UserError, match=r"Unknown setting: elo\.kk"):
            elo_exp.run(elo__kk=1)
        assert GlobalHydra.instance().hydra is outer
        assert str(version.getbase()) == "1.2"
        assert JobRuntime.instance().get("name") == "outer"
        assert hydra.compose("config") == {"a": 1}
    assert inside.ratings == elo_exp.rate(BATTLES, **QUICK).ratings
    assert not GlobalHydra.instance().is_initialized()


@pytest.mark.system
def test_a_users_file_passes_mypy(tmp_path):
    """`py.typed`: the ten names and what they return have types."""
    code = """
from pathlib import Path

import elo_exp

rows = [{"model_a": "a", "model_b": "b", "winner": "tie"}]


def main() -> float:
    run: elo_exp.Run = elo_exp.rate(rows, winner="winner", elo__k=8)
    names: list[str] = [row["entrant"] for row in run.ratings]
    other = elo_exp.compare({"old": "a.jsonl", "new": rows}, judge="sonnet", budget_usd=2)
    plan: elo_exp.Plan = elo_exp.plan(answers=["a.jsonl", Path("b.jsonl")], judge="opus")
    try:
        audited = elo_exp.audit(judge="haiku", audit__n_prompts=30)
    except elo_exp.UserError as error:
        print(error, elo_exp.__version__, names, other.folder / "report.html")
    else:
        print(audited.conclusions, elo_exp.run("mode=pilot").headline)
    return plan.dollars + len(elo_exp.open_run(run.folder).sweep)
"""
    (tmp_path / "user.py").write_text(code, encoding="utf-8")
    done = commands.attempt_program(
        *(sys.executable, "-m", "mypy", "--strict", "user.py"),
        # as `make lint`, whose cache it shares
        *("--config-file", str(HOME / "pyproject.toml")),
        *("--cache-dir", str(HOME / ".mypy_cache")),
        folder=tmp_path,
    )
    assert done.out == "Success: no issues found in 1 source file\n", done.out
