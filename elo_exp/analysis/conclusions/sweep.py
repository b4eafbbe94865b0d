"""Whether the jobs of a sweep agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLead(Record):
    """Who is first in one job, on one dimension.

    models  those with the highest rating
    gap     rating points from the first to the second; None where nobody else is rated
    """

    job: str
    models: tuple[str, ...]
    rating: float
    gap: float | None


def job_lead(
    job: str, rows: Sequence[Mapping[str, Any]], value: str = "rating"
) -> JobLead | None:
    """Return who is first among the entrants of a job; None where nobody is rated.

    value  the column of their ratings
    """
    rated = [row for row in rows if row[value] is not None]
    ratings = sorted((row[value] for row in rated), reverse=True)
    if not ratings:
        return None
    return JobLead(
        job=job,
        models=tuple(row["model"] for row in rated if row[value] == ratings[0]),
        rating=ratings[0],
        gap=ratings[0] - ratings[1] if ratings[1:] else None,
    )
