"""How it is said whether the jobs of a sweep agree."""

from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.analysis.conclusions.sweep import JobLead
from elo_exp.report.formats import names, number


def headline(
    leads: Mapping[str, Sequence[JobLead]],
    n_jobs: int,
    estimates: Sequence[Mapping[str, Any]],
) -> str:
    """Say whether the jobs agree: of oracle runs how many estimates may be reported.

    leads   by dimension, of the jobs that rate somebody
    n_jobs  that have ratings
    """
    if estimates:
        n_reported = sum(row["status"] == "report" for row in estimates)
        n_oracle_jobs = len({row["job"] for row in estimates})
        return (
            f"{n_reported} of {len(estimates)} estimates of {n_oracle_jobs} jobs may be "
            "reported"
        )
    rated = {lead.job for every in leads.values() for lead in every}
    ahead = [lead for every in leads.values() for lead in every if lead.gap is not None]
    differing = [
        dimension
        for dimension, every in leads.items()
        if len({lead.models for lead in every if lead.gap is not None}) > 1
    ]
    if not rated:
        return "No job gave ratings"
    if not ahead:
        return f"{len(rated)} of {n_jobs} jobs gave a rating"
    if differing:
        return f"The leader differs between jobs in {names(differing)}"
    return (
        f"The leader is the same in {len({lead.job for lead in ahead})} of {n_jobs} jobs; the gap "
        f"is {gap_range(ahead)} points"
    )


def gap_range(leads: Sequence[JobLead]) -> str:
    """Say how far the first is ahead of the second, over the jobs: "110", "0 to 122"."""
    gaps = [lead.gap for lead in leads if lead.gap is not None]
    least, most = number(min(gaps)), number(max(gaps))
    return least if least == most else f"{least} to {most}"


def facts(
    n_finished: int,
    n_jobs: int,
    swept: Mapping[str, Sequence[str]],
    methods: Sequence[str],
    intervals: Sequence[str],
) -> str:
    """Say what ran.

    swept      settings with the values that they had
    methods    of the ratings that lead, and the kinds of their intervals
    """
    parts = [f"{n_finished} of {n_jobs} jobs finished"]
    parts += [f"{name} = {', '.join(values)}" for name, values in swept.items()]
    text = "; ".join(parts if swept else [*parts, "nothing was swept"])
    if not methods:
        return f"{text}."
    kind = f"95 % intervals: {', '.join(intervals)}"
    return f"{text}. Rating: {', '.join(methods)}, {kind if intervals else 'without intervals'}."


def jobs_named(jobs: Sequence[str]) -> str:
    """Name jobs: "0, 2, 5"; "0 to 3" where four or more follow each other."""
    first, last = int(jobs[0]), int(jobs[-1])
    if len(jobs) > 3 and [int(job) for job in jobs] == list(range(first, last + 1)):
        return f"{first} to {last}"
    return ", ".join(jobs)


def in_jobs(jobs: Sequence[str]) -> str:
    return f"job{'s' if len(jobs) > 1 else ''} {jobs_named(jobs)}"


def not_converged(jobs: Sequence[str]) -> str:
    return f"Elo has not converged in {in_jobs(jobs)}."


def first_of_job(lead: JobLead) -> str:
    """Say who is first, and how far ahead of the second: "ann 1500 (+110)"."""
    text = f"{names(lead.models)} {number(lead.rating)}"
    return text if lead.gap is None else f"{text} ({number(lead.gap, sign=True)})"


def left_out(n_shown: int, n_models: int) -> str | None:
    """Say that a table has the best entrants alone; None where it has all."""
    if n_shown == n_models:
        return None
    return f"The {n_shown} best of {n_models}; all are in sweep_summary.csv."
