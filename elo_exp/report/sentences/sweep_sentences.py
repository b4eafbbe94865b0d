"""The sentences of a sweep: whether its jobs agree."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.analysis.conclusions.sweep_conclusion import (
    JobLead,
    SharedLead,
    SweepConclusion,
)
from elo_exp.formatting import format_number, join_names
from elo_exp.report.sentences.state_rows import StateRow, index_by_state
from elo_exp.report.sentences.tournament_sentences import (
    STATE_ROWS as LEAD_STATE_ROWS,
)
from elo_exp.report.sentences.tournament_sentences import (
    describe_control,
)
from elo_exp.runs.manifest import SETTINGS_WITHOUT_EFFECT

STATE_ROWS = index_by_state(
    [
        StateRow(state="none", chip="No ranking", tone="caution"),
        StateRow(state="differs", chip="Different top entrants", tone="caution"),
        StateRow(state="some", chip="Some jobs", tone="caution"),
        StateRow(state="ahead", chip="Same top entrant", tone="caution"),
        StateRow(state="leads", chip="Same leader", tone="supported"),
    ]
)
DECIMALS_BY_UNIT = {"points": 0, "score": 3}
_SETTINGS_OF_NO_RATING = (*SETTINGS_WITHOUT_EFFECT, "sweep_pair")
FIRST_DIFFERS = "top entrant differs"
_MAX_SCOPE_LINES = 4
_MAX_VALUES_PER_SETTING = 8
_STATE_TEXTS = {
    "": "no conclusion",
    **{state: row.chip.lower() for state, row in LEAD_STATE_ROWS.items()},
}


def headline(
    conclusions: Sequence[SweepConclusion],
    method: str,
    swept: Sequence[str],
    *,
    elo_moved: bool = True,
    noun: str = "job",
) -> str:
    """Say whether the jobs agree.

    conclusions  of each dimension
    method       by which the entrants are rated, for readers
    swept        names of the settings
    elo_moved    whether Elo, or how far it has come, differs between jobs
    noun         word for a job
    """
    text = _describe_agreement(
        conclusions, method, swept, elo_moved=elo_moved, noun=noun
    )
    controls = {
        features for conclusion in conclusions for features in conclusion.adjusted
    }
    if len(controls) != 1 or not (features := controls.pop()):
        return text
    condition = describe_control(features.split("+"))
    return f"{condition[0].upper()}{condition[1:]}: {text[0].lower()}{text[1:]}"


def _describe_agreement(
    conclusions: Sequence[SweepConclusion],
    method: str,
    swept: Sequence[str],
    *,
    elo_moved: bool,
    noun: str,
) -> str:
    states = {conclusion.state for conclusion in conclusions}
    if states <= {"none"}:
        ranks = "ranks two entrants" if states else "gave ratings"
        return f"No {noun} {ranks}"
    n_jobs = max(conclusion.n_jobs for conclusion in conclusions)
    if all(conclusion.is_same for conclusion in conclusions):
        if not elo_moved:
            return (
                f"Nothing changed: {_name_all_jobs(n_jobs, noun)} have the same ratings"
            )
        return _describe_elo_change(method, swept, noun)
    if "differs" in states:
        differing_dimensions = [
            c.scope.dimension or "" for c in conclusions if c.state == "differs"
        ]
        return f"The top entrant differs between {noun}s on {join_names(differing_dimensions)}"
    rank_word = "leader" if states == {"leads"} else "top entrant"
    jobs_text = _name_all_jobs(n_jobs, noun)
    if states & {"none", "some"}:
        jobs_text = f"all {noun}s that rank two entrants"
    return f"The {rank_word} is the same in {jobs_text}"


def _describe_elo_change(method: str, swept: Sequence[str], noun: str) -> str:
    """Say that Elo changed and the main ratings did not."""
    settings = [
        name for name in swept if name.split(".", 1)[0] not in _SETTINGS_OF_NO_RATING
    ]
    if not settings:
        return f"Elo differs between {noun}s, but the {method} ratings do not"
    if not all(map(_moves_only_elo, swept)):
        return f"{join_names(settings)} changed Elo but not the {method} ratings"
    changes, does_not = (
        ("changes", "does not") if len(settings) == 1 else ("change", "do not")
    )
    return f"{join_names(settings)} {changes} Elo but {does_not} affect the {method} ratings"


def _name_all_jobs(n: int, noun: str) -> str:
    if n < 3:
        return f"both {noun}s" if n == 2 else f"the only {noun}"
    return f"all {n} {noun}s"


def _moves_only_elo(setting: str) -> bool:
    """Return whether a setting enters no rating but Elo's."""
    return (
        setting == "elo"
        or setting.startswith("elo.")
        or setting.split(".", 1)[0] in _SETTINGS_OF_NO_RATING
    )


def estimates_reported(estimates: Sequence[Mapping[str, Any]]) -> str:
    """Say how many estimates of oracle runs may be reported."""
    n = sum(row["status"] == "report" for row in estimates)
    n_jobs = len({row["job"] for row in estimates})
    return f"{n} of {len(estimates)} estimates from {_format_count(n_jobs, 'job')} may be reported"


def sentence(
    conclusion: SweepConclusion, *, is_same: bool = False, noun: str = "job"
) -> str:
    """Say who is the top entrant in how many jobs, and by how much.

    is_same  whether the headline says that all jobs give the same ratings
    noun     word for a job
    """
    if not conclusion.leads:
        return f"no {noun} ranks two entrants"
    all_jobs = _format_count(conclusion.n_jobs, noun)
    parts = []
    for lead in conclusion.leads:
        is_level = len(lead.models) > 1
        tie_text = (
            "gave the same answers"
            if [*lead.states] == ["same"]
            else "have the same rating"
        )
        gap = "" if is_level else f"by {_format_gap_range(lead, conclusion.unit)}"
        verb = tie_text if is_level else _describe_lead(lead)
        text = f"{verb} {gap}".strip()
        if not is_same:
            text += f" in {len(lead.jobs)} of {all_jobs}"
        doubt = "" if text.startswith("gave") else _describe_states(lead.states)
        start, end = _describe_controls(lead, conclusion.unit)
        parts.append(f"{start}{join_names(lead.models)} {text}{end}{doubt}")
    return ". ".join(parts)


def _describe_controls(lead: SharedLead, unit: str) -> tuple[str, str]:
    """Return the style control of the ratings: before the lead if all jobs have it, otherwise behind the lead.

    The lead without the control stands behind it.
    """
    adjusted, raw = lead.adjusted, _describe_raw_lead(lead, unit)
    if not any(adjusted):
        return "", ""
    if len(adjusted) == 1:
        (features,) = adjusted
        end = f" ({', '.join(raw)})" if raw else ""
        return f"{describe_control(features.split('+'))}, ", end
    condition_by_features = {
        name: describe_control(name.split("+")) for name in adjusted if name
    }
    counts = [
        f"{condition} in {adjusted[name]}"
        for name, condition in condition_by_features.items()
    ]
    return "", f" ({', '.join([*counts, *raw])})"


def _describe_raw_lead(lead: SharedLead, unit: str) -> list[str]:
    """ "raw lead 120", "raw lead 120 to 150" over jobs; nothing if it is not known"""
    if lead.raw_low is None:
        return []
    ends = (
        format_number(end, DECIMALS_BY_UNIT[unit])
        for end in (lead.raw_low, lead.raw_high)
    )
    return [f"raw lead {format_range(*ends)}"]


def _describe_lead(lead: SharedLead) -> str:
    """Say "leads bob", or "is ahead of bob or cat" if not all jobs have the same second."""
    seconds = " or ".join(lead.seconds)
    if [*lead.states] == ["leads"]:
        return f"leads {seconds}".strip()
    return f"is ahead of {seconds}" if seconds else "is ahead"


def _format_gap_range(lead: SharedLead, unit: str) -> str:
    """ "275"; over jobs that differ "260 to 281"; where a lower end alone is known "at least 479" """
    digits = DECIMALS_BY_UNIT[unit]
    low, high = (
        format_number(lead.gap_low, digits),
        format_number(lead.gap_high, digits),
    )
    if lead.one_sided:
        return f"at least {low}"
    return low if low == high else f"{low} to {high}"


def scatter(ratios: Mapping[str, float], n_seeds: int) -> str:
    """Compare the scatter of Elo over seeds with its random error; empty if seeds were not swept.

    ratios  scatter divided by random error, by dimension
    """
    if not ratios:
        return ""
    ratio_list = ", ".join(f"{ratio:.2f} ({name})" for name, ratio in ratios.items())
    return f"Over {n_seeds} seeds, the standard deviation of Elo is {ratio_list} times its random error. 1 is expected."


def format_range(low: str, high: str) -> str:
    """Return the range of a number over jobs: "273 to 378", "76 to 98%", or "275" if both ends read alike."""
    if low == high:
        return low
    percents = "%"
    start = low.removesuffix(percents) if high.endswith(percents) else low
    return f"{start} to {high}"


def _describe_states(states: Mapping[str, int]) -> str:
    """Return the states of the jobs' conclusions; empty if the top entrant leads in all of them."""
    if [*states] == ["leads"] or [*states] == [""]:
        return ""
    if len(states) == 1:
        state = next(iter(states))
        return f" ({_STATE_TEXTS.get(state, state)})"
    counts = [f"{_STATE_TEXTS.get(state, state)} in {n}" for state, n in states.items()]
    return f" ({', '.join(counts)})"


def _format_count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def chip(conclusion: SweepConclusion) -> str:
    """Say in two words whether the jobs agree."""
    return "Same ratings" if conclusion.is_same else STATE_ROWS[conclusion.state].chip


def facts(
    n_finished: int,
    n_jobs: int,
    swept: Mapping[str, Sequence[str]],
    methods: Sequence[str],
    intervals: Sequence[str],
) -> str:
    """Say which jobs finished, which settings were swept, and which ratings they have.

    swept      values of each swept setting
    methods    main rating methods
    intervals  kinds of their intervals
    """
    settings = [f"{name} = {_format_values(values)}" for name, values in swept.items()]
    swept_text = f"Swept: {' and '.join(settings)}" if swept else "Nothing was swept"
    text = f"{n_finished} of {n_jobs} jobs finished. {swept_text}."
    if not methods:
        return text
    kind = f"95% intervals: {', '.join(intervals)}"
    return f"{text} Ratings: {', '.join(methods)}, {kind if intervals else 'without intervals'}."


def _format_values(values: Sequence[str]) -> str:
    if len(values) <= _MAX_VALUES_PER_SETTING:
        return ", ".join(values)
    return f"{', '.join(values[: _MAX_VALUES_PER_SETTING - 2])}, … {values[-1]} ({len(values)} values)"


def name_jobs(jobs: Sequence[str]) -> str:
    """Name jobs: "0, 2, 5", or "0 to 3" if four or more follow each other."""
    first_job, last_job = int(jobs[0]), int(jobs[-1])
    if len(jobs) > 3 and [int(job) for job in jobs] == list(
        range(first_job, last_job + 1)
    ):
        return f"{first_job} to {last_job}"
    return ", ".join(jobs)


def name_jobs_with_noun(jobs: Sequence[str], noun: str = "job") -> str:
    return f"{noun}{'s' if len(jobs) > 1 else ''} {name_jobs(jobs)}"


def not_converged(jobs: Sequence[str]) -> str:
    return f"Elo has not converged in {name_jobs_with_noun(jobs)}."


def name_leaders(lead: JobLead) -> str:
    return join_names(lead.models)


def first_of_job(lead: JobLead, unit: str = "points") -> str:
    """Return the top entrant of a job with its rating and its lead: "ann 1500 (+110)"."""
    gap = format_number(lead.gap, DECIMALS_BY_UNIT[unit], sign=True)
    if lead.one_sided:
        return f"{join_names(lead.models)} (at least {gap})"
    text = f"{join_names(lead.models)} {format_number(lead.rating, DECIMALS_BY_UNIT[unit])}"
    return text if lead.gap is None else f"{text} ({gap})"


def list_scope_lines(
    conclusions_by_job: Mapping[str, Mapping[str, Mapping[str, Any]]], noun: str = "job"
) -> list[str]:
    """Return the scope lines of the ratings, each once, with its jobs if it does not hold for all.

    conclusions_by_job  conclusions by the number of the job
    noun                word for a job
    """
    jobs_by_line: dict[str, list[str]] = {}
    for job, conclusions in conclusions_by_job.items():
        for line in dict.fromkeys(row["whose"] for row in conclusions.values()):
            jobs_by_line.setdefault(line, []).append(job)
    lines = [
        line
        if len(jobs) == len(conclusions_by_job)
        else f"{name_jobs_with_noun(jobs, noun.title())}: {line}"
        for line, jobs in jobs_by_line.items()
    ]
    return lines[:_MAX_SCOPE_LINES]


def shorten_settings(setting: str) -> str:
    """Name settings by the last part of their keys: "orders=both limit_pairs=240"."""
    return re.sub(r"(?<!\S)[^\s=]*\.(?=[^\s=.]+=)", "", setting)


def describe_left_out(n_shown: int, n_models: int) -> str | None:
    """Say that a table shows only the best entrants; None if it shows all."""
    if n_shown == n_models:
        return None
    return f"The table shows the {n_shown} best of {n_models} entrants. All are in sweep_summary.csv."
