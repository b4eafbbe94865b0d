"""What audits of several judges show side by side: what each check says of each judge, and how far they agree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions import Conclusion
from elo_exp.analysis.effective_votes import EffectiveVotes
from elo_exp.console import text_table
from elo_exp.report import judges_page
from elo_exp.report.audit_page import CLASSES, Audited
from elo_exp.report.formats import NONE, between, count, number
from elo_exp.report.tables import Table
from elo_exp.report.tournament_console import filled
from elo_exp.report.words import audit as words
from elo_exp.report.words import judges as of_judges
from elo_exp.report.words.votes import votes as say_votes

_WORST_FIRST = ("biased", "cannot tell", "ok", "reported")


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """What audits of several judges found on one dimension.

    conclusion  of all
    own         each judge's audit, by its name
    failed      why a judge could not be audited
    kappas      rows of `agreement.kappa` of every two judges
    votes       what they are worth together, by labelled pairs; None without any
    """

    dimension: str
    conclusion: Conclusion
    own: Mapping[str, Audited]
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


def context(said: Sequence[SideBySide], pages: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows.

    pages  of each judge, beside this one
    """
    audit = next(iter(said[0].own.values())).audit
    return {
        "judges": ", ".join([*said[0].own, *said[0].failed]),
        "of_turns": words.of_turns(audit["n_of_turns"], audit["n_bank"]),
        "sections": [_section(one, pages) for one in said],
    }


def _section(one: SideBySide, pages: Mapping[str, str]) -> Section:
    return Section(
        dimension=one.dimension,
        sentence=words.of_several(one.conclusion),
        counts=[
            (name, _counts(audited), pages[name]) for name, audited in one.own.items()
        ],
        failed=[*one.failed.items()],
        judges=[*one.own],
        rows=[*_rows(one)],
        gold=_gold(one),
        votes=say_votes(one.votes) if one.votes else None,
        agreement=judges_page.agreement(one.dimension, one.kappas, "Questions"),
    )


def _counts(one: Audited) -> str:
    audit = one.audit
    return words.counts(
        audit["n_prompts"], audit["n_questions"], audit["n_invalid"], audit["dollars"]
    )


def _rows(one: SideBySide) -> Iterator[tuple[str, str, list[Cell]]]:
    """Yield a row for each probe, the worst first: its name, what is ok, and what it says of each judge."""
    found = [
        {row["probe"]: row for row in audited.audit["results"]}
        for audited in one.own.values()
    ]
    every = [row for rows in found for row in rows.values()]
    every.sort(key=lambda row: _WORST_FIRST.index(row["verdict"]))
    for probe in dict.fromkeys(row["probe"] for row in every):
        some = next(row for row in every if row["probe"] == probe)
        cells = [_cell(rows.get(probe)) for rows in found]
        yield probe, words.allowed(some["kind"], some["bound"]), cells


def _cell(row: Mapping[str, Any] | None) -> Cell:
    if row is None:  # of labelled pairs whose authors are of another judge's family
        return Cell(verdict=NONE, css=None, estimate="", interval="")
    return Cell(
        verdict=row["verdict"],
        css=CLASSES.get(row["verdict"]),
        estimate=number(row["estimate"], 2, sign=row["kind"] == "bias"),
        interval=f"[{number(row['low'], 2)}, {number(row['high'], 2)}]",
    )


def _gold(one: SideBySide) -> Table | None:
    """How often each judge names the better of labelled pairs."""
    rows = [
        [
            name,
            count(row["n"]),
            number(row["accuracy"], 3),
            between(row["low"], row["high"], 3),
            number(row["kappa"], 3),
        ]
        for name, audited in one.own.items()
        for row in audited.audit["gold"][:1]  # of all of them
    ]
    if not rows:
        return None
    return Table(
        label=f"Labelled pairs on {one.dimension}",
        columns=["Judge", "Pairs", "Accuracy", "95 % CI", "Kappa"],
        rows=rows,
    )


# The console


def text(said: Sequence[SideBySide]) -> str:
    """Return what the console says."""
    return "\n\n".join("\n".join(_lines(one)) for one in said)


def _lines(one: SideBySide) -> Iterator[str]:
    yield words.of_several(one.conclusion)
    for name, audited in one.own.items():
        yield f"  {name:<12}{_counts(audited)}"
    for name, why in one.failed.items():
        yield f"  {name:<12}not audited: {why}"
    yield text_table(
        ("probe", "ok", *one.own),
        [
            (probe, bound, *(f"{c.verdict} {c.estimate}".rstrip() for c in cells))
            for probe, bound, cells in _rows(one)
        ],
        text=[*one.own],
    )
    if one.kappas:
        yield filled([f"{'kappa':<14}{of_judges.kappas(one.kappas)}"])
    for name, audited in one.own.items():
        for row in audited.audit["gold"][:1]:
            yield words.gold(f"by {name}", row)
    if one.votes:
        yield filled([f"{'votes':<14}{say_votes(one.votes)}"])


# Files and trackers


def as_json(one: SideBySide) -> dict[str, Any]:
    """Return what all judges have shown as judges.json has it."""
    first = next(iter(one.own.values())).audit
    return {
        "conclusion": {
            "state": one.conclusion.state,
            "sentence": words.of_several(one.conclusion),
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
            for name, audited in one.own.items()
        },
        "not_audited": dict(one.failed),
        **{key: first[key] for key in ("n_prompts", "n_of_turns", "n_bank")},
        "agreement": [dict(row) for row in one.kappas],
        "votes": one.votes.to_dict() if one.votes else None,
    }


def metrics(said: Sequence[SideBySide]) -> dict[str, Any]:
    """Return what a tracker is told, under names that every such run shares."""
    found = dict[str, Any]()
    for one in said:
        found[f"conclusion/{one.dimension}/state"] = one.conclusion.state
        found[f"conclusion/{one.dimension}/sentence"] = words.of_several(one.conclusion)
        found |= {
            f"audit/{one.dimension}/{name}": value
            for name, value in (one.votes.claimed if one.votes else {}).items()
        }
    return found
