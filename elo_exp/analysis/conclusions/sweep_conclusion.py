"""The conclusion about the jobs of a sweep together, on one dimension.

Jobs rate the same prompts and entrants, so they are not a sample. Their agreement is counted, and a range covers the
jobs of one dimension, because ratings of different dimensions cannot be compared.

    state   evidence
    none    no job ranks two entrants
    differs two jobs have different top entrants
    some    all jobs that rank two entrants have the same top entrant, and other jobs rank none
    ahead   all jobs have the same top entrant, and in some its lead is not supported
    leads   all jobs have the same top entrant, which leads in each of them
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.records import Record

# Each state claims more than the one before it
STATES = ("none", "differs", "some", "ahead", "leads")
# A smaller difference is rounding
_MIN_DIFFERENCE_IN_POINTS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLead(Record):
    """The top entrant of one job, on one dimension.

    models     top entrants; several if they have the same rating
    rating     their rating; None if only its lower end is known
    gap        from the top entrant to the second; None without a second
    one_sided  whether `gap` is a lower bound, because the top entrant won every comparison
    state      state of the job's conclusion; None without a conclusion
    second     the entrant from which `gap` is measured; None if it is not known
    adjusted_for  style features that the ratings control for
    raw_gap    the same lead without this control; None without a control, or if it is not known
    """

    job: str
    models: tuple[str, ...]
    rating: float | None
    gap: float | None
    one_sided: bool = False
    state: str | None = None
    second: str | None = None
    adjusted_for: tuple[str, ...] = ()
    raw_gap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLead(Record):
    """Jobs that have the same top entrant.

    gap_low, gap_high  to the second, over these jobs, in the unit of the ratings; None where no job has a second
    one_sided          whether one of these is only the least
    states             how many of their conclusions have which state, by its name; "" for jobs
                       without a conclusion
    seconds            the entrants from which gaps are measured; empty if they are not known
    adjusted           by the features that ratings hold equal, "length+bold", how many jobs do so; "" for no control
    raw_low, raw_high  the lead without the control, over the jobs that have one; None if none is known
    """

    models: tuple[str, ...]
    jobs: tuple[str, ...]
    gap_low: float | None
    gap_high: float | None
    one_sided: bool
    states: Mapping[str, int]
    seconds: tuple[str, ...] = ()
    adjusted: Mapping[str, int] = field(default_factory=dict)
    raw_low: float | None = None
    raw_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepConclusion(Conclusion):
    """What the jobs say together of one dimension; `subject` is the first of all that rank two.

    unit     of gaps: points, or score
    n_jobs   that rate the dimension
    is_same  whether all of them give the same ratings and intervals
    leads    the firsts, those of most jobs at first
    """

    n_jobs: int
    is_same: bool
    leads: tuple[SharedLead, ...]
    unit: str = "points"

    @property
    def adjusted(self) -> Mapping[str, int]:
        """By the features that ratings hold equal, the number of ranking jobs that do so."""
        counts = Counter[str]()
        for lead in self.leads:
            counts.update(lead.adjusted)
        return dict(counts)

    @property
    def share_with_same_leader(self) -> float | None:
        """The share of the jobs whose first is that of most; None where no job ranks two entrants."""
        return len(self.leads[0].jobs) / self.n_jobs if self.leads else None


def conclude(
    leads: Sequence[JobLead | None],
    *,
    dimension: str,
    is_same: bool = False,
    unit: str = "points",
) -> SweepConclusion:
    """Decide what the jobs of a sweep say together of one dimension.

    Parameters
    ----------
    leads
        Of each job; None where it rates nobody.
    dimension
        Of all of them.
    is_same
        Whether the jobs give the same ratings, by `have_same_ratings`.
    unit
        Of the ratings: points, or score.
    """
    leads_by_models: dict[tuple[str, ...], list[JobLead]] = {}
    for lead in leads:
        if lead and lead.gap is not None:
            leads_by_models.setdefault(lead.models, []).append(lead)
    shared_leads = sorted(
        (
            _combine_leads(models, job_leads)
            for models, job_leads in leads_by_models.items()
        ),
        key=lambda lead: -len(lead.jobs),
    )
    models = shared_leads[0].models if len(shared_leads) == 1 else ()
    return SweepConclusion(
        state=_decide_state(shared_leads, len(leads)),
        subject=models[0] if len(models) == 1 else None,
        scope=Scope(dimension=dimension),
        n_jobs=len(leads),
        is_same=is_same,
        leads=tuple(shared_leads),
        unit=unit,
    )


def share_with_same_leader(conclusions: Sequence[SweepConclusion]) -> float | None:
    """Return the share of jobs that have the first of most jobs on every dimension.

    Parameters
    ----------
    conclusions
        Of the dimensions of a sweep; one on which no job ranks two entrants does not count. None where all
        are such.
    """
    ranked = [conclusion for conclusion in conclusions if conclusion.leads]
    if not ranked:
        return None
    jobs = set.intersection(*({*conclusion.leads[0].jobs} for conclusion in ranked))
    return len(jobs) / max(conclusion.n_jobs for conclusion in ranked)


def _decide_state(shared_leads: Sequence[SharedLead], n_jobs: int) -> str:
    if not shared_leads:
        return "none"
    if len(shared_leads) > 1:
        return "differs"
    if len(shared_leads[0].jobs) < n_jobs:
        return "some"
    return "leads" if [*shared_leads[0].states] == ["leads"] else "ahead"


def _combine_leads(models: tuple[str, ...], leads: Sequence[JobLead]) -> SharedLead:
    gaps = [lead.gap for lead in leads if lead.gap is not None]
    raw_gaps = [lead.raw_gap for lead in leads if lead.raw_gap is not None]
    return SharedLead(
        models=models,
        jobs=tuple(lead.job for lead in leads),
        gap_low=min(gaps, default=None),
        gap_high=max(gaps, default=None),
        one_sided=any(lead.one_sided for lead in leads),
        states=dict(Counter(lead.state or "" for lead in leads)),
        seconds=tuple(dict.fromkeys(lead.second for lead in leads if lead.second)),
        adjusted=dict(Counter("+".join(lead.adjusted_for) for lead in leads)),
        raw_low=min(raw_gaps, default=None),
        raw_high=max(raw_gaps, default=None),
    )


def find_job_lead(
    job: str,
    rows: Sequence[Mapping[str, Any]],
    conclusion: Mapping[str, Any] | None = None,
    *,
    value: str = "rating",
) -> JobLead | None:
    """Return the first entrant of a job, or None if no entrant has a rating.

    Parameters
    ----------
    job
        Its name.
    rows
        Entrants of the job on one dimension, each with `model` and a rating.
    conclusion
        The job's conclusion on this dimension in ratings.json. If it is None, the entrant with the highest
        rating is first.
    value
        The column of the ratings.
    """
    state = conclusion["state"] if conclusion else None
    adjusted_for = tuple((conclusion or {}).get("adjusted_for") or ())
    rated_rows = [row for row in rows if row[value] is not None]
    rated_rows.sort(key=lambda row: -row[value])
    ratings = [row[value] for row in rated_rows]
    if value == "rating" and (unbeaten_rows := _list_unbeaten(rows)):
        gap = conclusion["ci_low"] if conclusion else None
        low = unbeaten_rows[0]["ci_low"] if len(unbeaten_rows) == 1 else None
        if gap is None and ratings and low is not None:
            gap = low - ratings[0]
        second = conclusion.get("second") if conclusion else None
        return JobLead(
            job=job,
            models=tuple(row["model"] for row in unbeaten_rows),
            rating=None,
            gap=gap,
            one_sided=True,
            state=state,
            second=second or (rated_rows[0]["model"] if rated_rows else None),
            adjusted_for=adjusted_for,
        )
    if not ratings:
        return None
    return JobLead(
        job=job,
        models=tuple(
            sorted(
                row["model"]
                for row in rated_rows
                if ratings[0] - row[value] <= _MIN_DIFFERENCE_IN_POINTS
            )
        ),
        rating=ratings[0],
        gap=ratings[0] - ratings[1] if ratings[1:] else None,
        state=state,
        second=rated_rows[1]["model"] if rated_rows[1:] else None,
        adjusted_for=adjusted_for,
        raw_gap=_raw_gap(conclusion, [row["model"] for row in rated_rows[:2]]),
    )


def _raw_gap(conclusion: Mapping[str, Any] | None, pair: Sequence[str]) -> float | None:
    """Return the lead over the second without the control, if the conclusion of the job is about these two."""
    if conclusion is None or not conclusion.get("adjusted_for"):
        return None
    if [conclusion.get("first"), conclusion.get("second")] != [*pair]:
        return None
    raw: float | None = conclusion.get("raw_difference")
    return raw


def _list_unbeaten(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """List the rows of the first rank whose rating has only a lower end."""
    return [row for row in rows if row["rank"] == 1 and row["rating"] is None]


def have_same_ratings(jobs: Sequence[Sequence[Mapping[str, Any]]]) -> bool:
    """Whether several jobs give the same ratings and intervals by the same method.

    Parameters
    ----------
    jobs
        The rows of each, of one dimension: `method`, `model`, `rating`, `ci_low`, `ci_high`.
    """
    first_job, *other_jobs = [{row["model"]: row for row in rows} for rows in jobs]
    return bool(other_jobs) and all(
        first_job.keys() == job.keys()
        and all(_has_same_rating(first_job[model], job[model]) for model in first_job)
        for job in other_jobs
    )


def _has_same_rating(row_a: Mapping[str, Any], row_b: Mapping[str, Any]) -> bool:
    pairs = [(row_a[name], row_b[name]) for name in ("rating", "ci_low", "ci_high")]
    return row_a["method"] == row_b["method"] and all(
        a == b
        if a is None or b is None
        else math.isclose(a, b, rel_tol=0, abs_tol=_MIN_DIFFERENCE_IN_POINTS)
        for a, b in pairs
    )
