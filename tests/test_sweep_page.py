"""The page of a sweep: what its jobs conclude together, also where some did not end."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from elo_exp.figures.style import grouped
from elo_exp.files import read_json
from elo_exp.report import page, provenance, sweep_page
from elo_exp.report.sweep_numbers import NUMBERS
from elo_exp.store.usage import Usage, sum_usages
from tests.commands import run, table
from tests.pages import Reader

HOSTILE = "</table><script>alert(1)</script> !a_b"
SPENT = Usage(
    verdicts_wanted=10,
    judge_calls=4,
    verdicts_stored=6,
    dollars=1.25,
    dollars_by_dimension={"d": 1.25},
)


def job(number: int, *overrides: str, **changes: Any) -> dict[str, Any]:
    return {
        "job": str(number), "finished": True, "error": None, "overrides": list(overrides),
        "usage": dataclasses.asdict(SPENT), "paid_before": None, "started_at": f"2026-11-21T14:5{number}:22Z",
        "finished_at": f"2026-11-21T14:5{number}:42Z", "dollars": 1.25,
    } | changes  # fmt: skip


def failed(number: int, *overrides: str, error: str | None) -> dict[str, Any]:
    never = dict.fromkeys(("usage", "dollars", "started_at", "finished_at"))
    return job(number, *overrides, finished=False, error=error, **never)


def row(
    number: int, model: str, elo: float | None, rating: float | None, **changes: Any
) -> Any:
    return {
        "job": str(number), "dimension": "d", "k": 16.0, "model": model, "method": "Bradley-Terry",
        "interval": "prompt-clustered", "unit": "points", "rank": None, "n_perms": 100, "setting": "", "rating": rating,
        "flag": None if rating else "unbeaten",
        "ci_low": rating and rating - 20, "ci_high": rating and rating + 20, "elo": elo,
        "ordering_error": 0.714, "convergence": 1.0, "converged": True,
    } | changes  # fmt: skip


TWO = [job(0, "elo.k=4", "tracker=local"), job(1, "elo.k=16", "tracker=local")]
ROWS = [
    row(0, "ann", 1450.4, 1500.0, k=4.0, convergence=0.8, converged=False),
    row(0, "bob", 1349.6, 1300.0, k=4.0, convergence=0.8, converged=False),
    row(1, "ann", 1490.0, 1500.0),
    row(1, "bob", 1310.0, 1300.0),
]


def numbers(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """What sweep_numbers.csv has of these rows of sweep_summary.csv: gaps, convergence and a Monte Carlo error."""
    found = []
    for own in grouped(rows, "job", "dimension").values():
        (rated, elo), first = (
            (_descending(own, name) for name in ("rating", "elo")),
            own[0],
        )
        same = ("job", "setting", "dimension", "k", "n_perms", "method", "unit")
        found.append(
            dict.fromkeys(NUMBERS)
            | {name: first[name] for name in same}
            | {
                "result_gap": rated[0] - rated[1] if rated[1:] else None,
                "order_gap": elo[0] - elo[1] if elo[1:] else None,
                "order_convergence": first["convergence"],
                "order_mc_error": first["ordering_error"],
            }
        )
    return found


def _descending(rows: Sequence[Any], name: str) -> list[float]:
    return sorted((row[name] for row in rows if row[name] is not None), reverse=True)


def page_of(
    jobs: Sequence[Any], rows: Sequence[Any], *more: Any
) -> sweep_page.SweepResult:
    return sweep_page.conclude_sweep(jobs, rows, *(more or ([], [])), {}, numbers(rows))


def read(jobs: Sequence[Any] = TWO, rows: Sequence[Any] = ROWS) -> Reader:
    return Reader(rendered(page_of(jobs, rows), jobs))


def rendered(shown: sweep_page.SweepResult, jobs: Sequence[Any]) -> str:
    cost = provenance.list_bill_blocks(
        *(sum_usages(job[name] for job in jobs) for name in ("usage", "paid_before"))
    )
    return page.render_document("multirun", sweep_page.build_document(shown, cost))


def test_jobs_stand_side_by_side_and_link_to_their_reports():
    reader = read()
    assert reader.links == ["0/report.html", "1/report.html"]
    for words in (
        "elo.k changes Elo but does not affect the Bradley-Terry ratings", "2 of 2 jobs finished. Swept: elo.k = 4, 16.",
        "ann is ahead of bob by 200.", "By Elo, ann is ahead of bob by 101 to 180 in 2 of 2 jobs.",
        "Ratings: Bradley-Terry, 95% intervals: prompt-clustered.", "elo.k=4,16", "tracker=local",
        "2026-11-21 14:50 UTC", "$2.50", "d $2.50", "8 new, 12 from cache", "Elo has not converged in job 0.",
    ):  # fmt: skip
        assert words in reader.said
    for line in (
        ["0", "4", "finished", "$1.25", "4", "6"],
        ["0, 1", "4, 16", "1500 / 1480 to 1520", "1300 / 1280 to 1320"],
        ["0", "4", "80%", "1450 / ± 0.71", "1350 / ± 0.71"],
        ["d", "200", "101 to 180", "80 to 100%"],  # what moved: no Monte Carlo error
        ["1", "16", "180", "100%"],
    ):
        assert line in reader.cells


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        (1600.0, "ann is ahead of bob by 200 in 1 of 2 jobs. bob is ahead of ann by 100 in 1 of 2 jobs."),
        (1500.0, "ann is ahead of bob by 200 in 1 of 2 jobs. ann and bob have the same rating in 1 of 2 jobs."),
    ],
)  # fmt: skip
def test_the_first_may_depend_on_the_job(points: float, sentence: str):
    reader = read(rows=[*ROWS[:3], ROWS[3] | {"rating": points}])
    assert "The top entrant differs between jobs on d" in reader.said
    assert sentence in reader.said


def test_a_lead_needs_a_second_and_counts_only_the_jobs_that_rate_both():
    """As where a placement is refused: nobody is ahead in that job."""
    refused = ROWS[3] | {"rating": None, "ci_low": None, "ci_high": None}
    reader = read(rows=[*ROWS[:3], refused])
    assert (
        "The top entrant is the same in all jobs that rank two entrants" in reader.said
    )
    assert "ann is ahead of bob by 200 in 1 of 2 jobs." in reader.said
    alone = read(rows=[ROWS[0], refused])
    assert "No job ranks two entrants" in alone.said
    assert "ann is ahead" not in alone.said


def test_jobs_with_the_same_ratings_share_a_row():
    jobs = [job(n, f"elo.k={n + 1}") for n in range(5)]
    rows = [row(n, m, 1450.0, 1500.0) for n in range(4) for m in ("ann", "bob")]
    assert "0 to 3" in [line[0] for line in read(jobs, rows).cells]


def test_jobs_that_did_not_end_are_named_and_their_cost_counts():
    late = job(4, "elo.k=9", "tracker=local", finished=False, error="Timeout")
    error = "UserError: found -1."
    reader = read(
        [*TWO, failed(2, "elo.k=-1", error=error), failed(3, error=None), late]
    )
    assert "2 of 5 jobs finished. Swept: elo.k = 4, 16, -1, 9" in reader.said
    found = {line[0]: line for line in reader.cells}
    assert found["2"][-4:] == ["–", "–", "–", error]
    assert "stopped" in found["3"]
    assert "2/report.html" not in reader.links
    assert "$3.75" in reader.said


@pytest.mark.parametrize("overrides", [["elo.k=-1"], None])
def test_there_is_a_page_when_every_job_fails(overrides: list[str] | None):
    reader = read([failed(0, error="e") | {"overrides": overrides}], [])
    assert "No job gave ratings" in reader.said
    assert "Ratings" not in reader.headings


def test_ratings_that_are_missing_have_their_reason_and_of_many_the_best_are_shown():
    unbeaten = read(rows=[row(0, "ann", 1450.0, None), row(0, "bob", 1350.0, 1300.0)])
    assert ["0", "4", "1300 / 1280 to 1320", "unbeaten"] in unbeaten.cells
    rows = [row(0, f"m{i:02}", None, 1500.0 - i) for i in range(12)]
    many = read(rows=rows)
    assert "Order experiment" not in many.said
    assert (
        "The table shows the 8 best of 12 entrants. All are in sweep_summary.csv."
        in many.said
    )
    assert "m07" in many.said
    assert "m08" not in many.said


def test_names_are_text_whatever_they_hold():
    rows = [row(0, name, 1500.0, 1500.0, dimension="<s>") for name in (HOSTILE, "<u>")]
    jobs = [job(0, "judge=<q>"), failed(1, f"judge={HOSTILE}", error="<img>")]
    reader = read(jobs, rows)
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("script") == 1
    assert not {"s", "u", "q", "img"} & set(tags)
    cells = {cell for line in reader.cells for cell in line}
    assert {HOSTILE, "<u>", "<q>", "<img>"} <= cells


@pytest.mark.system
def test_a_sweep_of_oracle_runs_shows_estimates(tmp_path: Path):
    """Value, half-width and status by policy, as each job's estimates.json has them."""
    settings = ("experiment=oracle", "tracker=local", "oracle.seed=1,2")
    ran = run("-m", *settings, "hydra.sweep.dir=swept", folder=tmp_path)
    rows = table(ran.run_dir / "sweep_summary.csv")
    estimates = read_json(ran.run_dir / "0" / "estimates.json")
    expected = [row for row in estimates if row["headline"]]
    own = [row for row in rows if row["job"] == "0"]
    assert [row["policy"] for row in own] == [row["policy"] for row in expected]
    assert [row["status"] for row in own] == [row["status"] for row in expected]
    assert float(own[0]["value"]) == expected[0]["value"]
    half_width = (expected[0]["ci_high"] - expected[0]["ci_low"]) / 2
    shown = f"{expected[0]['value']:.3f} ± {half_width:.3f} report"
    assert shown in ran.page.said
    assert f"of {len(rows)} estimates from 2 jobs may be reported." in ran.out
