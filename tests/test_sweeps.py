"""A sweep is one command for many jobs: nothing is judged twice, and the jobs are summed up also when some fail.

python -m elo_exp -m elo.k=8,16 elo.n_perms=10,20
"""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from elo_exp.files import read_json as read
from tests.commands import QUICK, Ran, attempt, run, table
from tests.data import BANK, write_table
from tests.openai_server import OpenAiServer
from tests.pages import Reader

pytestmark = pytest.mark.system

PROBES = ["probe_reference", "probe_hedged", "probe_partial", "probe_swapped"]
# Keys of a manifest that differ between two runs of the same settings; what a job compares by is the sweep's
ITS_OWN = {"group", "files", "started_at", "finished_at", "config", "overrides"}
ITS_OWN |= {"token", "headline", "headline_is"}
SMALL = ("judging.limit_pairs=40", "tracker=local", "rubric=[factuality,calibration]")
PAIR = ("probe_hedged", "probe_swapped")
JOBS = [(k, n_perms) for k in (8, 16) for n_perms in (10, 20)]


def log(folder: Path) -> list[tuple[str, Any]]:
    """What tracker=local has logged in a run folder."""
    lines = (folder / "tracker/log.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["kind"], row["value"]) for row in map(json.loads, lines)]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two values of K times two numbers of permutations: four jobs."""
    folder = tmp_path_factory.mktemp("swept")
    axes = ("elo.k=8,16", "elo.n_perms=10,20")
    return run("-m", *axes, *SMALL, f"sweep_pair=[{','.join(PAIR)}]", folder=folder)


def test_every_job_is_a_run_of_its_own_in_the_folder_and_the_group_of_the_sweep(
    swept: Ran,
):
    listed = read(swept.run_dir / "sweep_jobs.json")
    assert [job["job"] for job in listed] == list("0123")
    assert read(swept.run_dir / "sweep.json") == {
        "group": swept.run_dir.name,
        "swept": ["elo.k", "elo.n_perms"],
    }
    for entry, (k, n_perms) in zip(listed, JOBS, strict=True):
        folder = swept.run_dir / entry["job"]
        manifest = read(folder / "manifest.json")
        assert (manifest["config"]["elo"]["k"], manifest["n_perms"]) == (k, n_perms)
        assert (entry["finished"], entry["error"]) == (True, None)
        assert entry["overrides"] == manifest["overrides"]
        assert entry["usage"] == manifest["usage"]
        begun = log(folder)[0][1]
        assert begun["group"] == swept.run_dir.name
        assert begun["name"] == f"k={k} n_perms={n_perms}"
        assert not (folder / "figures").exists()
        page = Reader((folder / "report.html").read_text(encoding="utf-8"))
        assert "The page of a sweep job holds no texts" in page.said


def test_a_job_is_named_once_and_hydras_own_lines_are_not_shown(swept: Ran):
    named = [line for line in swept.out.splitlines() if line.startswith("job ")]
    assert [line.partition(":")[0] for line in named] == [f"job {n}" for n in range(4)]
    assert not re.search(r"#\d+ :", swept.err)


def test_only_the_first_job_asks_the_judge(swept: Ran):
    first, *others = (job["usage"] for job in read(swept.run_dir / "sweep_jobs.json"))
    assert first["judge_calls"] == first["verdicts_distinct"] > 0
    assert first["responses_generated"] == 4 * 143
    for usage in others:
        assert (usage["judge_calls"], usage["responses_generated"]) == (0, 0)
        assert usage["verdicts_stored"] == first["judge_calls"]


def test_a_job_has_the_same_results_as_alone(swept: Ran):
    """Nothing but the store is taken from one job to the next."""
    store = f"cache_dir={swept.folder / 'outputs/cache'}"
    folder = swept.folder / "alone"
    given = (*SMALL, store, f"sweep_pair=[{','.join(PAIR)}]", "figures=false")
    alone = run("elo.k=16", "elo.n_perms=20", *given, folder=folder).run_dir
    job = swept.run_dir / str(JOBS.index((16, 20)))
    manifests = []
    for run_dir in (alone, job):
        manifest = read(run_dir / "manifest.json")
        manifests.append({k: v for k, v in manifest.items() if k not in ITS_OWN})
    assert manifests[0] == manifests[1]
    same = ("*.json", "*.jsonl", "*.csv", "*/*.jsonl")
    names = {
        path.relative_to(alone).as_posix()
        for pattern in same
        for path in alone.glob(pattern)
        if path.name not in ("manifest.json", "log.jsonl")
    }
    assert names >= {"elo_results.json", "battles.jsonl", "verdicts/factuality.jsonl"}
    for name in names:
        assert (job / name).read_bytes() == (alone / name).read_bytes(), name


def test_the_summary_has_the_ratings_of_each_job(swept: Ran):
    rows = table(swept.run_dir / "sweep_summary.csv")
    dimensions = ["factuality", "calibration"]
    places = [(row["job"], row["dimension"], row["model"]) for row in rows]
    assert sorted(places) == sorted(product("0123", dimensions, PROBES))
    for row in rows:
        assert (float(row["k"]), int(row["n_perms"])) == JOBS[int(row["job"])]
        found = read(swept.run_dir / row["job"] / "ratings.json")["dimensions"]
        boards = found[row["dimension"]]
        elo, fitted = (
            {rating["model"]: rating for rating in boards[method]["ratings"]}[
                row["model"]
            ]
            for method in ("elo", "bradley_terry")
        )
        expected = {
            "setting": "",  # nothing was swept but K and n_perms
            "method": "Bradley-Terry",
            "rating": fitted["rating"],
            "ci_low": fitted["ci_low"],
            "ci_high": fitted["ci_high"],
            "elo": elo["rating"],
            "ordering_error": elo["ordering_error"],
            "convergence": boards["elo"]["parameters"]["convergence"],
        }
        assert {name: row[name] for name in expected} == {
            name: "" if value is None else str(value)
            for name, value in expected.items()
        }


def test_the_summary_is_a_page_figures_and_one_more_run_in_the_group(swept: Ran):
    folder, figures = swept.run_dir, ["k_by_n_perms", "pair_by_k_and_n_perms"]
    page = swept.page
    assert page.links == [f"{job}/report.html" for job in range(4)]
    assert all((folder / link).is_file() for link in page.links)
    for name in figures:
        assert (folder / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in (folder / f"figures/{name}.svg").read_text(encoding="utf-8")
    cells = table(folder / f"figures/{figures[1]}.csv")
    assert {(cell["first"], cell["second"]) for cell in cells} == {PAIR}
    (_, begun), *logged = log(folder)
    assert (begun["name"], begun["group"]) == ("sweep-summary", folder.name)
    found = dict(logged)["summary"]
    assert (found["sweep/jobs"], found["sweep/finished"]) == (4, 4)
    assert len(found["sweep"]) == 4 * 2 * 4
    assert len(found["sweep_numbers"]) == 4 * 2
    assert [name for name in found if name.startswith("figures/")] == [
        f"figures/{name}" for name in figures
    ]
    whole, _, files, report = swept.out.splitlines()[-4:]
    assert whole == "sweep: 4 of 4 jobs finished"
    assert files == f"files         {folder}"
    assert report == f"report        {(folder / 'report.html').as_uri()}"
    same = (
        "elo.k and elo.n_perms change Elo but do not affect the Bradley-Terry ratings"
    )
    assert f"{same}.\n" in swept.out
    assert same in page.said
    said = r"\nfactuality: probe_reference is ahead of probe_partial by \d+ \(too few prompts\)\.\n"
    assert re.search(said, swept.out)
    assert max(map(len, swept.out.split("Changes by")[1].splitlines())) <= 120


# Jobs that fail, and jobs that are not alike


def test_a_failing_job_is_named_with_its_reason_and_the_others_finish(tmp_path: Path):
    """The first of two jobs cannot begin."""
    banks = f"prompts.bank_path=missing.jsonl,{BANK}"
    medical = ("study=medical", "mode=demo")
    broken = attempt("-m", banks, *medical, *QUICK, folder=tmp_path)
    assert (broken.code, "Traceback" in broken.err) == (1, False)
    assert "sweep: 1 of 2 jobs finished" in broken.out
    assert "To run the unfinished jobs: python -m elo_exp -m" in broken.out
    reason = "File not found: missing.jsonl (in"
    assert f"job 0 failed: UserError: {reason}" in broken.out
    folder = broken.run_dir
    assert {row["job"] for row in table(folder / "sweep_summary.csv")} == {"1"}
    jobs = read(folder / "sweep_jobs.json")
    assert [job["finished"] for job in jobs] == [False, True]
    assert reason in jobs[0]["error"]
    assert "prompts.bank_path=missing.jsonl" in jobs[0]["overrides"]
    assert broken.page.links == ["1/report.html"]
    assert reason in broken.page.said


def test_a_file_that_no_job_can_read_is_one_line_and_leaves_nothing(tmp_path: Path):
    """With its line number; a sweep over files, of which one can be read, goes on with that one."""
    rows = [{"model_a": "ann", "model_b": "bob", "winner": w} for w in ("tie", "eve")]
    bad = write_table(tmp_path / "bad.jsonl", rows)
    good = write_table(tmp_path / "good.jsonl", rows[:1])
    quick = ("tracker=local", "elo.n_perms=2")
    sweep = ("-m", "experiment=rate", f"battles={bad}", "elo.k=8,16", *quick)
    broken = attempt(*sweep, folder=tmp_path / "here")
    assert (broken.code, broken.out) == (2, "")
    assert broken.err.startswith(f"elo_exp: {bad}:2: winner must be one of")
    assert broken.err.count("elo_exp: ") == 1
    assert not (tmp_path / "here/outputs").exists()
    both = ("-m", "experiment=rate", f"battles={bad},{good}", *quick)
    half = attempt(*both, folder=tmp_path / "here")
    assert (half.code, half.out.count("failed: UserError")) == (1, 1)
    assert "sweep: 1 of 2 jobs finished" in half.out


def test_a_bank_that_no_job_finds_is_one_line_and_leaves_nothing(tmp_path: Path):
    banks = ("study=medical", "mode=demo", "prompts.bank_path=missing.jsonl")
    ran = attempt("-m", *banks, "elo.k=8,16", "tracker=local", folder=tmp_path)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith(
        f"elo_exp: File not found: missing.jsonl (in {tmp_path}, given as bank)."
    )
    assert not (tmp_path / "outputs").exists()


def test_a_sweep_without_a_finished_job_ends_with_the_code_of_its_mistake(
    tmp_path: Path,
):
    """2 where all jobs are lost to one mistake of the user's, 1 where they are lost to several."""
    replay = ("-m", "judge=replay")
    same = attempt(*replay, "judge.path=a.jsonl", "elo.k=8,16", folder=tmp_path)
    several = attempt(*replay, "judge.path=a.jsonl,b.jsonl", folder=tmp_path)
    for ran, code in ((same, 2), (several, 1)):
        assert (ran.code, ran.out.count("File not found")) == (code, 2)


def test_a_setting_may_be_what_only_the_job_knows(tmp_path: Path):
    """All jobs are checked before the first one runs, each as it will be."""
    own = ("elo.seed=${hydra:job.num}", "cache_dir=${hydra:runtime.output_dir}/store")
    folder = run("-m", "elo.k=8,16", *own, *QUICK, folder=tmp_path).run_dir
    for job in (0, 1):
        manifest = read(folder / str(job) / "manifest.json")
        assert manifest["config"]["elo"]["seed"] == job
        assert (folder / str(job) / "store/store.sqlite").is_file()


def test_a_named_sweep_is_a_file_whose_values_you_may_narrow(tmp_path: Path):
    """The file says K 1, 4, 8, 16, 32 and 10, 100, 500 permutations; the command line wins."""
    narrow = ("sweep=k_and_perms", "elo.k=8", *SMALL, "rubric=[factuality]")
    ran = run("-m", *narrow, folder=tmp_path)
    rows = table(ran.run_dir / "sweep_summary.csv")
    swept = {(float(row["k"]), int(row["n_perms"])) for row in rows}
    assert swept == {(8, 10), (8, 100), (8, 500)}
    alone = run(
        "sweep=k_and_perms", "plan=true", folder=tmp_path
    )  # without -m: one job
    assert "warning: you chose a sweep, but only one job runs." in alone.err


def test_judges_of_the_same_responses_are_compared_with_each_other(tmp_path: Path):
    """A judge that repeats the verdicts of another has kappa and rank correlation 1 with it."""
    verdicts = run(*QUICK, folder=tmp_path).run_dir / "verdicts"
    mine = tmp_path / "mine/judge/echo.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text(
        "_target_: elo_exp.judges.replay.ReplayJudge\n"
        f"path: {verdicts}\njudge_model: echo\nkind: model\n",
        encoding="utf-8",
    )
    for path in verdicts.iterdir():
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace('"lexical"', '"echo"'), encoding="utf-8")
    chosen = ("--config-dir", "mine", "-m", "sweep=judges", "judge=lexical,echo")
    ran = run(*chosen, *QUICK, folder=tmp_path)
    (row,) = table(ran.run_dir / "sweep_judges.csv")
    assert (row["first"], row["second"]) == ("lexical", "echo")
    assert (row["n_comparisons"], row["n_models"]) == ("40", "4")
    assert (float(row["kappa"]), float(row["rho"])) == (1, 1)
    assert log(ran.run_dir)[1][1]["judges/factuality/lexical-echo/kappa"] == 1
    found = ["lexical", "echo", "factuality", "40", "100%", "1.00", "1.00"]
    assert found in ran.page.cells
    usages = [job["usage"] for job in read(ran.run_dir / "sweep_jobs.json")]
    assert [usage["responses_generated"] for usage in usages] == [0, 0]


def test_of_modes_it_is_said_whether_they_have_the_same_first(tmp_path: Path):
    given = ("-m", "mode=demo,headline", "judge=lexical", "study=medical", *QUICK)
    two = "entrant=[probe_reference,probe_swapped]"
    ran = run(*given, two, folder=tmp_path)
    logged = dict(log(ran.run_dir))["summary"]
    assert logged["agree/factuality"] == logged["sweep/same_leader"] == 1


# The bill of several attempts

PAYING = (
    "judge=openai_compatible",
    "judge.model=large",
    "judge.input_usd_per_million=0",
    "judge.concurrency=1",
    "judge.output_usd_per_million=1000",
    "judge.expected_output_tokens=1",
    "judge.max_tokens=100",
)


def paid(server: OpenAiServer) -> float:
    return server.usage["completion_tokens"] * 1e-3


def test_a_job_that_goes_on_keeps_the_bill_of_what_it_was_before(tmp_path: Path):
    """It has the whole cap again, so that the attempts of one job may pay more than that."""
    folder, bills, code = tmp_path / "swept", [0.0], 1
    with OpenAiServer() as server:
        address = (f"judge.base_url={server.url}", f"hydra.sweep.dir={folder}")
        given = ("-m", "elo.k=16", *QUICK, *PAYING, *address, "judging.budget_usd=0.8")
        while code:
            code = attempt(*given, folder=tmp_path, NO_PROXY="127.0.0.1").code
            bills.append(paid(server))
            found = read(folder / "0/manifest.json")
            before = found["paid_before"] or {"dollars": 0.0}
            assert before["dollars"] == pytest.approx(bills[-2])
            assert found["usage"]["dollars"] == pytest.approx(bills[-1] - bills[-2])
            assert len(bills) < 20
    assert len(bills) > 3
    (job,) = read(folder / "sweep_jobs.json")
    assert job["paid_before"] == found["paid_before"]
    for page in (folder / "report.html", folder / "0/report.html"):
        said = Reader(page.read_text(encoding="utf-8")).said
        assert f"${bills[-1]:,.2f}" in said
        assert f"${bills[-2]:,.2f}" in said


def test_a_run_in_the_folder_of_another_keeps_its_bill(tmp_path: Path):
    """Also where the other has finished, and where the last has paid nothing."""
    with OpenAiServer() as server:
        address = (f"judge.base_url={server.url}", "hydra.run.dir=here")
        given = (*QUICK, *PAYING, "judge.expected_output_tokens=100", *address)
        for cap in (1000, 0, 0):
            budget = f"judging.budget_usd={cap}"
            run(*given, budget, folder=tmp_path, NO_PROXY="127.0.0.1")
    found = read(tmp_path / "here/manifest.json")
    assert found["usage"]["dollars"] == 0
    assert found["paid_before"]["dollars"] == pytest.approx(paid(server))
