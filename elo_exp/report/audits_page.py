"""What audits of several judges show side by side: what each check says of each judge, and how far they agree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions import Conclusion
from elo_exp.analysis.effective_votes import EffectiveVotes
from elo_exp.console import format_table
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_interval,
    format_number,
)
from elo_exp.report import judges_page
from elo_exp.report.audit_page import CSS_CLASS_BY_VERDICT, AuditResult
from elo_exp.report.sentences import audit_sentences as words
from elo_exp.report.sentences import judges_sentences as judges_words
from elo_exp.report.sentences.vote_sentences import votes as say_votes
from elo_exp.report.text_table import Table
from elo_exp.report.tournament_console import wrap_lines

_VERDICTS_WORST_FIRST = ("biased", "cannot tell", "ok", "reported")


@dataclass(frozen=True, kw_only=True)
class JudgeAudits:
    """What audits of several judges found on one dimension.

    conclusion  of all
    own         each judge's audit, by its name
    failed      why a judge could not be audited
    kappas      rows of `agreement.kappa` of every two judges
    votes       what they are worth together, by labelled pairs; None without any
    """

    dimension: str
    conclusion: Conclusion
    own: Mapping[str, AuditResult]
    failed: Mapping[str, str]
    kappas: Sequence[Mapping[str, Any]]
    votes: EffectiveVotes | None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What a probe says of a judge."""

    verdict: str
    css: str | None
    estimate: str
    interval: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """What the page shows of one dimension."""

    dimension: str
    sentence: str
    counts: Sequence[tuple[str, str, str]]  # a judge, what it was asked, its page
    failed: Sequence[tuple[str, str]]
    judges: Sequence[str]  # in the order of the cells
    rows: Sequence[tuple[str, str, Sequence[Cell]]]  # a probe, what is ok, cells
    gold: Table | None
    votes: str | None
    agreement: Table | None


def build_context(
    audit_sets: Sequence[JudgeAudits], pages: Mapping[str, str]
) -> dict[str, Any]:
    """Return what the page shows.

    pages  of each judge, beside this one
    """
    audit = next(iter(audit_sets[0].own.values())).audit
    return {
        "judges": ", ".join([*audit_sets[0].own, *audit_sets[0].failed]),
        "of_turns": words.describe_left_out_turns(audit["n_of_turns"], audit["n_bank"]),
        "sections": [_build_section(audit_set, pages) for audit_set in audit_sets],
    }


def _build_section(audit_set: JudgeAudits, pages: Mapping[str, str]) -> Section:
    return Section(
        dimension=audit_set.dimension,
        sentence=words.describe_judges(audit_set.conclusion),
        counts=[
            (name, _format_counts(audited), pages[name])
            for name, audited in audit_set.own.items()
        ],
        failed=[*audit_set.failed.items()],
        judges=[*audit_set.own],
        rows=[*_list_probe_rows(audit_set)],
        gold=_build_gold_table(audit_set),
        votes=say_votes(audit_set.votes) if audit_set.votes else None,
        agreement=judges_page.agreement(
            audit_set.dimension, audit_set.kappas, "Questions"
        ),
    )


def _format_counts(audited: AuditResult) -> str:
    audit = audited.audit
    return words.counts(
        audit["n_prompts"], audit["n_questions"], audit["n_invalid"], audit["dollars"]
    )


def _list_probe_rows(audit_set: JudgeAudits) -> Iterator[tuple[str, str, list[Cell]]]:
    """Yield a row for each probe, the worst first: its name, what is ok, and what it says of each judge."""
    results_of_judges = [
        {result["probe"]: result for result in audited.audit["results"]}
        for audited in audit_set.own.values()
    ]
    all_results = [
        result for results in results_of_judges for result in results.values()
    ]
    all_results.sort(key=lambda result: _VERDICTS_WORST_FIRST.index(result["verdict"]))
    for probe in dict.fromkeys(result["probe"] for result in all_results):
        result = next(result for result in all_results if result["probe"] == probe)
        cells = [_make_cell(results.get(probe)) for results in results_of_judges]
        yield probe, words.format_bound(result["kind"], result["bound"]), cells


def _make_cell(row: Mapping[str, Any] | None) -> Cell:
    if row is None:  # of labelled pairs whose authors are of another judge's family
        return Cell(verdict=NO_VALUE, css=None, estimate="", interval="")
    return Cell(
        verdict=row["verdict"],
        css=CSS_CLASS_BY_VERDICT.get(row["verdict"]),
        estimate=format_number(row["estimate"], 2, sign=row["kind"] == "bias"),
        interval=f"[{format_number(row['low'], 2)}, {format_number(row['high'], 2)}]",
    )


def _build_gold_table(audit_set: JudgeAudits) -> Table | None:
    """Return how often each judge names the better answer of labelled pairs."""
    rows = [
        [
            name,
            format_count(row["n"]),
            format_number(row["accuracy"], 3),
            format_interval(row["low"], row["high"], 3),
            format_number(row["kappa"], 3),
        ]
        for name, audited in audit_set.own.items()
        for row in audited.audit["gold"][:1]  # of all of them
    ]
    if not rows:
        return None
    return Table(
        label=f"Labelled pairs on {audit_set.dimension}",
        columns=["Judge", "Pairs", "Accuracy", "95 % CI", "Kappa"],
        rows=rows,
    )


# The console


def format_console(audit_sets: Sequence[JudgeAudits]) -> str:
    """Return what the console says."""
    return "\n\n".join("\n".join(_format_lines(audit_set)) for audit_set in audit_sets)


def _format_lines(audit_set: JudgeAudits) -> Iterator[str]:
    yield words.describe_judges(audit_set.conclusion)
    for name, audited in audit_set.own.items():
        yield f"  {name:<12}{_format_counts(audited)}"
    for name, why in audit_set.failed.items():
        yield f"  {name:<12}not audited: {why}"
    yield format_table(
        ("probe", "ok", *audit_set.own),
        [
            (probe, bound, *(f"{c.verdict} {c.estimate}".rstrip() for c in cells))
            for probe, bound, cells in _list_probe_rows(audit_set)
        ],
        text=[*audit_set.own],
    )
    if audit_set.kappas:
        yield wrap_lines([f"{'kappa':<14}{judges_words.kappas(audit_set.kappas)}"])
    for name, audited in audit_set.own.items():
        for row in audited.audit["gold"][:1]:
            yield words.describe_gold(f"by {name}", row)
    if audit_set.votes:
        yield wrap_lines([f"{'votes':<14}{say_votes(audit_set.votes)}"])


# Files and trackers


def as_json(audit_set: JudgeAudits) -> dict[str, Any]:
    """Return what all judges have shown as judges.json has it."""
    first_audit = next(iter(audit_set.own.values())).audit
    return {
        "conclusion": {
            "state": audit_set.conclusion.state,
            "sentence": words.describe_judges(audit_set.conclusion),
        },
        "judges": {
            name: {
                key: audited.audit["conclusion"][key] for key in ("state", "sentence")
            }
            | {
                "probes": {
                    row["probe"]: row["verdict"] for row in audited.audit["results"]
                }
            }
            for name, audited in audit_set.own.items()
        },
        "not_audited": dict(audit_set.failed),
        **{key: first_audit[key] for key in ("n_prompts", "n_of_turns", "n_bank")},
        "agreement": [dict(row) for row in audit_set.kappas],
        "votes": audit_set.votes.to_dict() if audit_set.votes else None,
    }


def list_metrics(audit_sets: Sequence[JudgeAudits]) -> dict[str, Any]:
    """Return what a tracker is told, under names that every such run shares."""
    metrics_by_name = dict[str, Any]()
    for audit_set in audit_sets:
        metrics_by_name[f"conclusion/{audit_set.dimension}/state"] = (
            audit_set.conclusion.state
        )
        metrics_by_name[f"conclusion/{audit_set.dimension}/sentence"] = (
            words.describe_judges(audit_set.conclusion)
        )
        metrics_by_name |= {
            f"audit/{audit_set.dimension}/{name}": value
            for name, value in (
                audit_set.votes.claimed if audit_set.votes else {}
            ).items()
        }
    return metrics_by_name
