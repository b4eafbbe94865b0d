"""Golden files of a sweep's page and console: jobs of a tournament, jobs that differ, jobs of the oracle."""

from __future__ import annotations

from typing import Any

from elo_exp.report import sweep_page
from tests import golden
from tests.test_sweep_page import failed, job, page_of, rendered, row


def rated(
    number: int, ratings: dict[str, float | None], dimension: str = "d", **changes: Any
) -> list[Any]:
    """A row for each model of a job, its Elo half as far from 1400 as its rating."""
    return [
        row(number, model, rating and 700 + rating / 2, rating, dimension=dimension)
        | changes
        for model, rating in ratings.items()
    ]


def same(name: str, *parts: Any, unknown: tuple[str, ...] = ()) -> None:
    shown = page_of(*parts)
    golden.same(f"{name}.html", rendered(shown, parts[0]))
    golden.same(f"{name}.txt", sweep_page.format_console(shown, unknown))


def test_jobs_that_agree_and_jobs_that_did_not_end():
    """Three entrants, so that the second is not the last; one job failed, one was stopped, one was continued."""
    ratings = {"ann": 1500.0, "bob": 1390.0, "cat": 1310.0}
    slow = {"k": 4.0, "convergence": 0.8, "converged": False}
    jobs = [
        job(0, "elo.k=4", "tracker=local"),
        job(1, "elo.k=16", "tracker=local", paid_before={"dollars": 0.25}),
        failed(2, "elo.k=-1", error="UserError: elo.k: found -1."),
        failed(3, error=None),
    ]
    rows = [*rated(0, ratings, **slow), *rated(1, ratings)]
    same("sweep", jobs, rows, [], [], unknown=("dan",))


def test_jobs_that_differ_by_judge_with_an_entrant_that_has_no_rating():
    a, b = "judge=<opus>", "judge=haiku"
    jobs = [job(n, word, "elo.k=16") for n, word in enumerate((a, b, a, b))]
    by_job = [
        {"ann": 1500.0, "bob": 1390.0, "cat": 1310.0},
        {"ann": 1390.0, "bob": 1512.5, "cat": 1310.0},
        {"ann": 1450.0, "bob": 1450.0, "cat": None},
        {"ann": None, "bob": 1400.0, "cat": None},
    ]
    rows: list[Any] = []
    for n, ratings in enumerate(by_job):
        rows += rated(n, ratings, "factuality", setting=jobs[n]["overrides"][0])
        rows += rated(n, by_job[0], "tone", setting=jobs[n]["overrides"][0])
    judges = [
        {"first": "opus", "second": "haiku", "dimension": d, "n_comparisons": 1040}
        | {"agreement": agreement, "kappa": kappa, "rho": rho}
        for d, agreement, kappa, rho in (("factuality", 0.81, 0.62, 0.5), ("tone", 1.0, None, None))
    ]  # fmt: skip
    same("sweep_differs", jobs, rows, judges, [])


def test_many_jobs_and_entrants():
    jobs = [job(n, f"elo.seed={n}", started_at=None) for n in range(33)]
    ratings: dict[str, float | None] = {f"m{i:02}": 1500.0 - 10 * i for i in range(10)}
    rows = [r for n in range(33) for r in rated(n, ratings, ordering_error=0.5 + n)]
    same("sweep_many", jobs, rows, [], [])


def test_jobs_of_the_oracle():
    jobs = [job(n, f"oracle.seed={n}") for n in range(2)]
    values = [("x", 0.51, "report"), ("x", 0.52, "caution"), ("y", 0.7, "report")]
    estimates = [
        {"job": str(n), "setting": f"oracle.seed={n}", "policy": policy, "value": value}
        | {"ci_low": value - 0.02, "ci_high": value + 0.03, "status": status}
        for n, (policy, value, status) in zip((0, 1, 1), values, strict=True)
    ]
    refused = dict.fromkeys(("value", "ci_low", "ci_high")) | {"status": "refused"}
    estimates.append({**estimates[0], "policy": "z", **refused})
    same("sweep_oracle", jobs, [], [], estimates)


def test_no_job_that_finished():
    same("sweep_failed", [failed(0, "elo.k=-1", error="e")], [], [], [])
