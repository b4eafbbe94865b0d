"""A sweep is one command for many jobs: nothing is judged twice, and the jobs are summed up also when some fail.

python -m elo_exp -m elo.k=8,16,32 elo.n_perms=10,20
"""

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from elo_exp.report import sweep_summary
from tests.commands import DRAWN, QUICK, Ran, attempt, run
from tests.data import BANK
from tests.openai_server import OpenAiServer
from tests.pages import Reader

DIMENSIONS = ["factuality", "calibration"]
PROBES = ["probe_reference", "probe_hedged", "probe_partial", "probe_swapped"]
ITS_OWN = {
    "files",
    "started_at",
    "finished_at",
    "config",
    "overrides",
}  # of the manifest of each run
SMALL = ("judging.limit_pairs=40", "tracker=local", "rubric=[factuality,calibration]")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Three values of K times two numbers of permutations: six jobs."""
    return run(
        "-m",
        "elo.k=8,16,32",
        "elo.n_perms=10,20",
        *SMALL,
        folder=tmp_path_factory.mktemp("swept"),
    )


JOBS = [(k, n_perms) for k in (8, 16, 32) for n_perms in (10, 20)]


def test_every_job_has_a_numbered_folder_in_one_folder_of_the_sweep(swept: Ran):
    folder = swept.run_dir
    assert re.fullmatch(
        r"multirun_(demo_)?\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]{4}", folder.name
    )
    assert [
        path.name
        for path in (swept.folder / "outputs").iterdir()
        if path.name != "cache"
    ] == [folder.name]
    assert sorted(
        path.name for path in folder.iterdir() if path.name.isdigit()
    ) == list("012345")
    for job, (k, n_perms) in enumerate(JOBS):
        manifest = read(folder / str(job) / "manifest.json")
        assert manifest["finished_at"]
        assert manifest["config"]["elo"]["k"] == k
        assert manifest["n_perms"] == n_perms
        assert manifest["overrides"][:2] == [f"elo.k={k}", f"elo.n_perms={n_perms}"]


def test_the_jobs_are_one_group_in_the_tracker(swept: Ran):
    for job, (k, n_perms) in enumerate(JOBS):
        log = (swept.run_dir / str(job) / "tracker/log.jsonl").read_text(
            encoding="utf-8"
        )
        begun = json.loads(log.splitlines()[0])["value"]
        assert begun["group"] == swept.run_dir.name
        assert begun["name"].startswith(f"elo.k={k} elo.n_perms={n_perms} ")


def test_only_the_first_job_asks_the_judge(swept: Ran):
    usage = [
        read(swept.run_dir / str(job) / "manifest.json")["usage"] for job in range(6)
    ]
    assert usage[0]["judge_calls"] == usage[0]["verdicts_distinct"] > 0
    assert [u["judge_calls"] for u in usage[1:]] == [0] * 5
    assert [u["responses_generated"] for u in usage] == [4 * 143, 0, 0, 0, 0, 0]
    assert {u["verdicts_stored"] for u in usage[1:]} == {usage[0]["judge_calls"]}


def test_jobs_differ_in_what_was_swept_and_in_nothing_else(swept: Ran):
    verdicts = {
        (swept.run_dir / str(job) / "verdicts/factuality.jsonl").read_bytes()
        for job in range(6)
    }
    assert len(verdicts) == 1
    results = [
        read(swept.run_dir / str(job) / "elo_results.json")["primary"]["factuality"]
        for job in range(6)
    ]
    assert len({entries["probe_hedged"]["mean"] for entries in results}) == 6


def test_the_summary_has_a_row_for_each_job_dimension_and_entrant(swept: Ran):
    rows = table(swept.run_dir / "sweep_summary.csv")
    assert len(rows) == 6 * len(DIMENSIONS) * len(PROBES)
    columns = [
        "job",
        "overrides",
        "setting",
        "mode",
        "judge",
        "seed",
        "dimension",
        "k",
        "n_perms",
        "model",
        "rating",
    ]
    interval = ["bradley_terry_ci_low", "bradley_terry_ci_high"]
    more = [
        "ordering_error",
        "convergence",
        "bradley_terry",
        *interval,
        "bradley_terry_flag",
    ]
    assert list(rows[0]) == [*columns, *more]
    assert {row["setting"] for row in rows} == {
        ""
    }  # nothing was swept but K and n_perms
    assert [(int(row["job"]), row["dimension"], row["model"]) for row in rows] == [
        (job, dimension, name)
        for job in range(6)
        for dimension in DIMENSIONS
        for name in PROBES
    ]
    for row in rows:
        assert (float(row["k"]), int(row["n_perms"])) == JOBS[int(row["job"])]
        entry = read(swept.run_dir / row["job"] / "elo_results.json")["primary"][
            row["dimension"]
        ][row["model"]]
        assert float(row["rating"]) == entry["mean"]
        assert float(row["ordering_error"]) == entry["sem"]


def test_the_summary_has_the_bradley_terry_ratings_of_each_job_with_their_intervals(
    swept: Ran,
):
    for row in table(swept.run_dir / "sweep_summary.csv"):
        boards = read(swept.run_dir / row["job"] / "ratings.json")["dimensions"][
            row["dimension"]
        ]
        (fitted,) = (
            r for r in boards["bradley_terry"]["ratings"] if r["model"] == row["model"]
        )
        assert float(row["bradley_terry"]) == fitted["rating"]
        assert float(row["bradley_terry_ci_low"]) == fitted["ci_low"]
        assert float(row["bradley_terry_ci_high"]) == fitted["ci_high"]
        assert row["bradley_terry_flag"] == ""
        assert float(row["convergence"]) == boards["elo"]["parameters"]["convergence"]


def test_the_report_leads_to_those_of_the_jobs(swept: Ran):
    page = Reader((swept.run_dir / "report.html").read_text(encoding="utf-8"))
    assert page.given("href") == [f"{job}/report.html" for job in range(6)]
    assert all((swept.run_dir / link).is_file() for link in page.given("href"))
    assert "6 of 6 jobs finished; elo.k = 8, 16, 32; elo.n_perms = 10, 20" in page.said
    heads = [
        row
        for row in page.cells
        if row[:4] == ["job", "elo.k", "elo.n_perms", "converged"]
    ]
    assert [sorted(row[4:]) for row in heads] == [sorted(PROBES)] * len(DIMENSIONS)
    assert len(page.given("src")) == 2


@pytest.mark.parametrize("name", ["k_by_n_perms", "pair_by_k_and_n_perms"])
def test_the_figures_are_pictures_of_pixels_and_of_lines_with_their_numbers(
    swept: Ran, name: str
):
    figures = swept.run_dir / "figures"
    assert is_png(figures / f"{name}.png")
    assert (
        (figures / f"{name}.svg")
        .read_text(encoding="utf-8")
        .rstrip()
        .endswith("</svg>")
    )
    assert table(figures / f"{name}.csv")


def test_the_jobs_of_a_sweep_have_no_figures_of_their_own(swept: Ran):
    assert not list(swept.run_dir.glob("[0-9]/figures"))
    assert (swept.run_dir / "0/report.html").is_file()


def test_the_summary_is_one_more_run_in_the_group(swept: Ran):
    lines = (
        (swept.run_dir / "tracker/log.jsonl").read_text(encoding="utf-8").splitlines()
    )
    begun, *logged = ((row["kind"], row["value"]) for row in map(json.loads, lines))
    assert (begun[1]["name"], begun[1]["group"]) == (
        "sweep-summary",
        swept.run_dir.name,
    )
    said = dict(logged)
    assert said["summary"] == {"sweep/jobs": 6, "sweep/finished": 6}
    assert len(said["table"]["rows"]) == 6 * len(DIMENSIONS) * len(PROBES)
    assert [value["name"] for kind, value in logged if kind == "figure"] == [
        "k_by_n_perms",
        "pair_by_k_and_n_perms",
    ]


def test_a_job_has_the_same_results_as_alone(swept: Ran):
    """What the jobs share is worked out once, and nothing else is taken from one job to the next."""
    chosen = ("elo.k=32", "elo.n_perms=20")
    alone = run(
        *chosen,
        *SMALL,
        f"cache_dir={swept.folder / 'outputs/cache'}",
        folder=swept.folder / "alone",
    )
    job = swept.run_dir / str(JOBS.index((32, 20)))
    for name in (
        "elo_results.json",
        "ratings.json",
        "battles.jsonl",
        "pairwise_winrates.csv",
        "matches/matches.jsonl",
    ):
        assert (job / name).read_bytes() == (alone.run_dir / name).read_bytes()
    for path in [
        *(alone.run_dir / "responses").iterdir(),
        *(alone.run_dir / "verdicts").iterdir(),
    ]:
        assert (job / path.relative_to(alone.run_dir)).read_bytes() == path.read_bytes()
    mine, its = (
        json.loads((folder / "manifest.json").read_bytes())
        for folder in (alone.run_dir, job)
    )
    assert {name: mine[name] for name in mine.keys() - ITS_OWN} == {
        name: its[name] for name in its.keys() - ITS_OWN
    }


def test_every_job_is_listed_with_what_it_was_asked_and_what_it_spent(swept: Ran):
    jobs = read(swept.run_dir / "sweep_jobs.json")
    assert [job["job"] for job in jobs] == list("012345")
    assert all(job["finished"] and job["error"] is None for job in jobs)
    assert [job["overrides"][0] for job in jobs] == [f"elo.k={k}" for k, _ in JOBS]
    assert [job["usage"]["judge_calls"] > 0 for job in jobs] == [True] + [False] * 5


def test_the_console_ends_with_the_count_of_jobs_and_the_folder_of_the_sweep(
    swept: Ran,
):
    assert swept.out.splitlines()[-2] == "sweep: 6 of 6 jobs finished"
    assert "probe_reference +" in swept.out
    assert swept.run_dir.is_dir()


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The middle one of three jobs cannot begin."""
    return attempt(
        "-m",
        f"prompts.bank_path={BANK},missing.jsonl,{BANK}",
        *QUICK,
        folder=tmp_path_factory.mktemp("broken"),
    )


def test_a_failing_job_does_not_keep_the_others_from_finishing(broken: Ran):
    assert broken.code == 1
    assert "sweep: 2 of 3 jobs finished" in broken.out
    assert {
        (row["job"], float(row["k"]))
        for row in table(broken.run_dir / "sweep_summary.csv")
    } == {
        ("0", 16),
        ("2", 16),
    }


def test_the_failed_job_is_named_with_its_reason(broken: Ran):
    (said,) = (
        line for line in broken.out.splitlines() if line.startswith("job 1 failed: ")
    )
    assert "missing.jsonl: cannot be read" in said
    assert "To run what did not finish: python -m elo_exp -m" in broken.out
    assert "Traceback" not in broken.err
    good, bad, _ = read(broken.run_dir / "sweep_jobs.json")
    assert (good["finished"], good["error"]) == (True, None)
    assert not bad["finished"]
    assert "missing.jsonl" in bad["error"]


def test_the_report_is_written_all_the_same(broken: Ran):
    page = Reader((broken.run_dir / "report.html").read_text(encoding="utf-8"))
    assert page.given("href") == ["0/report.html", "2/report.html"]
    assert "missing.jsonl: cannot be read" in page.said


def test_a_setting_may_be_what_only_the_job_knows(tmp_path: Path):
    """All jobs are checked before the first one runs, each as it will be."""
    own = ("elo.seed=${hydra:job.num}", "cache_dir=${hydra:runtime.output_dir}/store")
    ran = run("-m", "elo.k=8,16", *own, *QUICK, folder=tmp_path)
    assert [
        read(ran.run_dir / job / "manifest.json")["config"]["elo"]["seed"]
        for job in "01"
    ] == [
        0,
        1,
    ]
    assert all((ran.run_dir / job / "store" / "store.sqlite").is_file() for job in "01")


def test_a_sweep_of_plans_is_no_sweep_of_failures(tmp_path: Path):
    ran = run("-m", "elo.k=8,16", "plan=true", *QUICK, folder=tmp_path)
    assert "failed" not in ran.out
    assert not list((tmp_path / "outputs").rglob("report.html"))


def test_the_failed_job_is_listed_with_what_it_was_asked(broken: Ran):
    assert (
        "prompts.bank_path=missing.jsonl"
        in read(broken.run_dir / "sweep_jobs.json")[1]["overrides"]
    )


def test_a_named_sweep_is_a_file_whose_values_you_may_narrow(tmp_path: Path):
    """The file says K 1, 4, 8, 16, 32 and 10, 100, 500 permutations; the command line wins."""
    ran = run(
        "-m",
        "sweep=k_and_perms",
        "elo.k=8",
        *SMALL,
        "rubric=[factuality]",
        folder=tmp_path,
    )
    rows = table(ran.run_dir / "sweep_summary.csv")
    swept = sorted({(float(row["k"]), int(row["n_perms"])) for row in rows})
    assert swept == [(8, 10), (8, 100), (8, 500)]


def test_a_named_sweep_without_m_is_one_job_and_a_warning(tmp_path: Path):
    """Hydra alone would run one job and leave the sweep out without a word."""
    ran = run("sweep=k_and_perms", *QUICK, folder=tmp_path)
    (warning,) = (line for line in ran.err.splitlines() if line.startswith("warning: "))
    assert "-m" in warning.split()


def test_a_sweep_over_modes_stays_one_sweep(tmp_path: Path):
    """The folder of a job is named after its mode; the folder of the sweep must not be."""
    parts = ("judge=lexical", "entrant=[probe_reference,probe_hedged]")
    ran = run("-m", "mode=demo,pilot", *parts, *QUICK, folder=tmp_path)
    assert "sweep: 2 of 2 jobs finished" in ran.out
    manifests = [read(ran.run_dir / job / "manifest.json") for job in ("0", "1")]
    assert [(m["mode"], m["selected_prompt_count"]) for m in manifests] == [
        ("demo", 143),
        ("pilot", 50),
    ]
    rows = table(ran.run_dir / "sweep_summary.csv")
    assert {(row["job"], row["setting"]) for row in rows} == {
        ("0", "mode=demo"),
        ("1", "mode=pilot"),
    }


def test_pilot_and_headline_are_drawn_with_their_intervals(tmp_path: Path):
    parts = ("judge=lexical", "entrant=[probe_reference,probe_hedged]")
    ran = run("-m", "sweep=pilot_vs_headline", *parts, *DRAWN, folder=tmp_path)
    by_mode = table(ran.run_dir / "figures/ratings_by_mode.csv")
    assert [(row["mode"], row["model"]) for row in by_mode] == [
        (mode, model) for mode in ("pilot", "headline") for model in PROBES[:2]
    ]
    for row in table(ran.run_dir / "sweep_summary.csv"):
        (drawn,) = (
            s for s in by_mode if (s["mode"], s["model"]) == (row["mode"], row["model"])
        )
        assert (drawn["rating"], drawn["ci_low"]) == (
            row["bradley_terry"],
            row["bradley_terry_ci_low"],
        )
    assert is_png(
        ran.run_dir / "0/figures/ratings.png"
    )  # two jobs, each a run of its own


def test_seeds_are_drawn_beside_the_ordering_error(tmp_path: Path):
    ran = run("-m", "sweep=seeds", "elo.seed=1,2,3", *QUICK, folder=tmp_path)
    drawn = table(ran.run_dir / "figures/seeds.csv")
    assert {row["seed"] for row in drawn} == {"1", "2", "3"}
    for model in PROBES:
        assert (
            abs(sum(float(row["deviation"]) for row in drawn if row["model"] == model))
            < 1e-6
        )


def test_judges_of_the_same_responses_are_compared_with_each_other(tmp_path: Path):
    """A judge that repeats the verdicts of another agrees with it in all: kappa and rank correlation are 1."""
    first = run(*QUICK, folder=tmp_path)
    mine = tmp_path / "mine/judge/echo.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text(
        f"_target_: elo_exp.judges.replay.ReplayJudge\npath: {first.run_dir / 'verdicts'}\njudge_model: echo\n",
        encoding="utf-8",
    )
    changed = [
        path
        for path in (first.run_dir / "verdicts").iterdir()
        if _rename_judge(path, "echo")
    ]
    assert changed
    chosen = (
        "--config-dir",
        str(mine.parents[1]),
        "sweep=judges",
        "judge=lexical,echo",
    )
    ran = run("-m", *chosen, *QUICK, folder=tmp_path)
    (row,) = table(ran.run_dir / "sweep_judges.csv")
    assert (row["first"], row["second"], row["n_comparisons"]) == (
        "lexical",
        "echo",
        "40",
    )
    assert (float(row["kappa"]), float(row["rho"])) == (1, 1)
    assert is_png(ran.run_dir / "figures/judges_agreement.png")
    usages = [read(ran.run_dir / job / "manifest.json")["usage"] for job in "01"]
    assert [usage["responses_generated"] for usage in usages] == [0, 0]


def _rename_judge(path: Path, name: str) -> bool:
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace('"judge_model": "lexical"', f'"judge_model": "{name}"'),
        encoding="utf-8",
    )
    return path.read_text(encoding="utf-8") != text


@pytest.mark.parametrize(
    "pair", [["probe_hedged", "probe_swapped"], ["probe_hedged", "nobody"]]
)
def test_the_pair_whose_difference_is_drawn_may_be_chosen(
    swept: Ran, tmp_path: Path, pair: list[str]
):
    folder = Path(shutil.copytree(swept.run_dir, tmp_path / "sweep"))
    last = folder / "5/manifest.json"
    manifest = read(last)
    manifest["config"]["sweep_pair"] = pair
    last.write_text(json.dumps(manifest), encoding="utf-8")
    summary = sweep_summary.write(folder)
    assert summary is not None
    cells = table(folder / "figures/pair_by_k_and_n_perms.csv")
    if "nobody" in pair:
        assert (
            "sweep_pair: no job rates nobody, so the two best are drawn"
            in summary.lines
        )
        assert {cell["first"] for cell in cells} == {"probe_reference"}
        return
    rated = {
        (row["job"], row["dimension"], row["model"]): row["rating"]
        for row in summary.rows
    }
    for cell in cells:
        first, second = (rated[cell["job"], cell["dimension"], model] for model in pair)
        assert float(cell["difference"]) == pytest.approx(first - second)
        assert cell["leader"] == (pair[0] if first > second else pair[1])


# The bill of several attempts

DEAR = (
    "judge=openai_compatible",
    "judge.model=large",
    "judge.input_usd_per_million=0",
    "judge.concurrency=1",
)
PAYING = (
    *DEAR,
    "judge.output_usd_per_million=1000",
    "judge.expected_output_tokens=1",
    "judge.max_tokens=100",
)


def paid(server: OpenAiServer) -> float:
    return server.usage["completion_tokens"] * 1e-3


def test_a_job_that_goes_on_keeps_the_bill_of_what_it_was_before(tmp_path: Path):
    """It has the whole cap again, so that the attempts of one job may pay more than that."""
    with OpenAiServer() as server:
        given = (
            "-m",
            "elo.k=16",
            *QUICK,
            *PAYING,
            f"judge.base_url={server.url}",
            "judging.budget_usd=0.8",
        )
        folder, bills, code = tmp_path / "swept", list[float](), 1
        while code:
            code = attempt(
                *given,
                f"hydra.sweep.dir={folder}",
                folder=tmp_path,
                NO_PROXY="127.0.0.1",
            ).code
            bills.append(paid(server))
            found = read(folder / "0" / "manifest.json")
            assert found["usage"]["dollars"] == pytest.approx(
                bills[-1] - sum(bills[-2:-1])
            )
            before = found["paid_before"] or {"dollars": 0.0}
            assert before["dollars"] == pytest.approx(sum(bills[-2:-1]))
            assert len(bills) < 20
    assert len(bills) > 2
    (job,) = read(folder / "sweep_jobs.json")
    assert job["paid_before"] == found["paid_before"]
    assert set(job["paid_before"]) == {
        "dollars",
        "dollars_by_dimension",
        "dollars_by_entrant",
    }
    for page in (folder / "report.html", folder / "0" / "report.html"):
        said = Reader(page.read_text(encoding="utf-8")).said
        assert f"${bills[-1]:,.2f}" in said
        assert f"${bills[-2]:,.2f} of it, by earlier attempts" in said


def test_a_run_in_the_folder_of_another_keeps_its_bill(tmp_path: Path):
    """Also where the other has finished, and where the last has paid nothing."""
    with OpenAiServer() as server:
        given = (
            *QUICK,
            *PAYING,
            "judge.expected_output_tokens=100",
            f"judge.base_url={server.url}",
            "hydra.run.dir=here",
        )
        for cap in (1000, 0, 0):
            run(
                *given,
                f"judging.budget_usd={cap}",
                folder=tmp_path,
                NO_PROXY="127.0.0.1",
            )
    found = read(tmp_path / "here" / "manifest.json")
    assert found["usage"]["dollars"] == 0
    assert found["paid_before"]["dollars"] == pytest.approx(paid(server))
