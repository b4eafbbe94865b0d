"""The page of a sweep: what its jobs say together, also of those that did not end."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import pytest

from elo_exp.records import Plot
from elo_exp.report import sweep_report
from elo_exp.store.usage import Usage
from tests.pages import Reader

NASTY = "</table><script>alert(1)</script> !a_b"


def job(number: int, *overrides: str, **changes: Any) -> dict[str, Any]:
    spent = Usage(
        verdicts_wanted=10,
        judge_calls=4,
        verdicts_stored=6,
        dollars=1.25,
        dollars_by_dimension={"d": 1.25},
    )
    return {
        "job": str(number), "finished": True, "error": None, "overrides": list(overrides),
        "usage": dataclasses.asdict(spent), "paid_before": None, "started_at": f"2026-11-21T14:5{number}:22Z",
        "finished_at": f"2026-11-21T14:5{number}:42Z",
    } | changes  # fmt: skip


def failed(
    number: int, *overrides: str, error: str | None = "UserError: elo.k: found -1."
) -> dict[str, Any]:
    never = {
        "finished": False,
        "usage": None,
        "paid_before": None,
        "started_at": None,
        "finished_at": None,
    }
    return job(number, *overrides, **never, error=error)


def row(
    number: int,
    model: str,
    rating: float | None,
    bradley_terry: float | None = None,
    **changes: Any,
) -> Any:
    known = bradley_terry is not None
    return {
        "job": str(number), "overrides": "", "setting": "", "dimension": "d", "k": 16.0, "n_perms": 10, "model": model,
        "rating": rating, "ordering_error": 0.714, "convergence": 1.0, "bradley_terry": bradley_terry,
        "bradley_terry_ci_low": bradley_terry - 20 if bradley_terry is not None else None,
        "bradley_terry_ci_high": bradley_terry + 20 if bradley_terry is not None else None,
        "bradley_terry_flag": None if known else "unbeaten",
    } | changes  # fmt: skip


TWO = [job(0, "elo.k=4", "tracker=local"), job(1, "elo.k=16", "tracker=local")]
ROWS = [
    row(0, "ann", 1450.4, 1500.0, k=4.0, convergence=0.8),
    row(0, "bob", 1349.6, 1300.0, k=4.0, convergence=0.8),
    row(1, "ann", 1490.0, 1500.0),
    row(1, "bob", 1310.0, 1300.0),
]


def read(
    jobs: Sequence[Any] = TWO, rows: Sequence[Any] = ROWS, plots: Sequence[Plot] = ()
) -> Reader:
    return Reader(sweep_report.page("multirun", jobs, rows, plots))


def test_it_links_to_the_reports_of_its_jobs_and_to_nothing_else():
    text = sweep_report.page(
        "multirun",
        TWO,
        ROWS,
        [Plot(name="k_by_n_perms", png=b"x", svg="", rows=[], caption="")],
    )
    reader = Reader(text)
    assert not re.search(r"https?://|@import|url\(|<script|<link|javascript:", text)
    assert reader.given("href") == ["0/report.html", "1/report.html"]
    assert all(
        source.startswith("data:image/png;base64,") for source in reader.given("src")
    )


def test_it_says_what_was_swept_and_what_was_not():
    said = read().said
    assert "2 of 2 jobs finished; elo.k = 4, 16" in said
    assert "elo.k=4,16" in said
    assert "tracker=local" in said
    assert "2026-11-21 14:50 UTC" in said


def test_every_job_has_its_line_with_what_it_was_asked_and_what_it_spent():
    rows = read().cells
    assert ["job", "elo.k", "state", "paid", "asked", "from the store"] in rows
    assert ["0", "4", "finished", "$1.25", "4", "6"] in rows
    assert "$2.50" in read().said
    assert "d $2.50" in read().said
    assert "8 asked of the judge, 12 from the store" in read().said


def test_ratings_stand_beside_their_errors_and_elo_that_has_not_converged_is_marked():
    reader = read()
    assert ["job", "elo.k", "converged", "ann", "bob"] in reader.cells
    assert ["0", "4", "80 %", "1450 / 0.71", "1350 / 0.71"] in reader.cells
    assert "Elo has not converged in job 0." in reader.said
    assert [given.get("class") for tag, given in reader.tags if tag == "span"].count(
        "no"
    ) == 1
    assert "±" not in reader.said


def test_jobs_with_the_same_bradley_terry_ratings_share_a_line():
    same = ["0, 1", "4, 16", "1500 / 1480 to 1520", "1300 / 1280 to 1320"]
    assert same in read().cells
    rows = [*ROWS[:3], row(1, "bob", 1310.0, 1301.0)]
    apart = [line for line in read(rows=rows).cells if line[-1].startswith("130")]
    assert [line[0] for line in apart] == ["0", "1"]


def test_many_jobs_in_a_row_are_named_by_their_ends():
    jobs = [job(n, f"elo.k={n + 1}") for n in range(6)]
    rows = [
        row(n, model, 1450.0, 1500.0)
        for n in range(6)
        if n != 4
        for model in ("ann", "bob")
    ]
    assert "0, 1, 2, 3, 5" in [line[0] for line in read(jobs, rows).cells]
    rows = [row(n, model, 1450.0, 1500.0) for n in range(6) for model in ("ann", "bob")]
    assert "0 to 5" in [line[0] for line in read(jobs, rows).cells]


def test_a_model_without_a_rating_is_named_with_the_reason():
    rows = [row(0, "ann", 1450.0), row(0, "bob", 1350.0, 1300.0)]
    assert ["0", "4", "unbeaten", "1300 / 1280 to 1320"] in read(rows=rows).cells


def test_one_k_is_said_once():
    jobs = [job(0, "judge=opus"), job(1, "judge=haiku")]
    assert (
        "Elo at K = 16, and below it"
        in read(jobs, [{**r, "k": 16.0} for r in ROWS]).said
    )


# Who leads


def test_who_leads_in_every_job():
    reader = read()
    assert (
        "By Elo and by Bradley-Terry, ann leads in every finished job." in reader.said
    )
    assert "verdict" in reader.given("class")


def test_equals_share_the_lead():
    rows = [row(0, "ann", None, 1400.0), row(0, "bob", None, 1400.0)]
    assert (
        "By Bradley-Terry, ann, bob share the lead in every finished job."
        in read(rows=rows).said
    )


def test_who_leads_may_depend_on_the_job_and_on_the_method():
    rows = [*ROWS[:2], row(1, "ann", 1390.0, 1500.0), row(1, "bob", 1410.0, 1300.0)]
    reader = read(rows=rows)
    assert "By Elo, ann leads in job 0; bob leads in job 1." in reader.said
    assert "By Bradley-Terry, ann leads in every finished job." in reader.said
    assert "verdict open" in reader.given("class")


# What did not go as it should


def test_a_failed_job_is_named_with_its_reason_and_has_no_link():
    reader = read([*TWO, failed(2, "elo.k=-1", "tracker=local")])
    assert [
        "2",
        "-1",
        "failed",
        "–",
        "–",
        "–",
        "UserError: elo.k: found -1.",
    ] in reader.cells
    assert "2 of 3 jobs finished; elo.k = 4, 16, -1" in reader.said
    assert "2/report.html" not in reader.given("href")


def test_a_job_that_was_stopped_has_no_reason():
    reader = read([*TWO, failed(2, "elo.k=32", "tracker=local", error=None)])
    assert ["2", "32", "stopped", "–", "–", "–"] in reader.cells


def test_what_a_failed_job_has_paid_is_in_the_sum():
    paid = job(2, "elo.k=32", finished=False, error="Timeout")
    assert "$3.75" in read([*TWO, paid]).said


@pytest.mark.parametrize("overrides", [["elo.k=-1"], None])
def test_there_is_a_page_when_every_job_fails(overrides: list[str] | None):
    reader = read([failed(0) | {"overrides": overrides}], [])
    assert "0 of 1 jobs finished" in reader.said
    assert "Ratings" not in reader.said


def test_a_dimension_without_a_decisive_match_has_no_elo():
    rows = [
        row(n, m, None, 1400.0, ordering_error=None, convergence=None)
        for n in (0, 1)
        for m in ("ann", "bob")
    ]
    reader = read(rows=rows)
    assert [
        "0, 1",
        "4, 16",
        "1400 / 1380 to 1420",
        "1400 / 1380 to 1420",
    ] in reader.cells
    assert "Elo at" not in reader.said


def test_jobs_may_have_other_entrants():
    rows = [*ROWS, row(1, "eve", 1200.0, 1200.0)]
    assert ["0", "4", "80 %", "1450 / 0.71", "1350 / 0.71", "–"] in read(
        rows=rows
    ).cells


def test_of_many_entrants_the_best_are_shown():
    rows = [row(0, f"m{i:02}", 1500.0 - i, 1500.0 - i) for i in range(12)]
    reader = read(rows=rows)
    assert "The 8 best of 12; all are in sweep_summary.csv." in reader.said
    assert "m07" in reader.said
    assert "m08" not in reader.said


def test_names_are_text_whatever_they_hold():
    rows = [
        row(0, NASTY, 1500.0, 1500.0, dimension="<i>"),
        row(0, "b_c", 1400.0, 1400.0, dimension="<i>"),
    ]
    jobs = [job(0, "judge=<u>"), failed(1, f"judge={NASTY}", error="<s>")]
    reader = read(jobs, rows)
    assert not {tag for tag, _ in reader.tags} & {"script", "i", "u", "s"}
    for name in (NASTY, "b_c", "<i>", "<u>", "<s>"):
        assert name in reader.said
