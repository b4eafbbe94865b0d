"""The page of an audit of several judges: each test for each judge, and their agreement."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions import Conclusion
from elo_exp.analysis.effective_votes import EffectiveVotes
from elo_exp.console import format_table, wrap_lines
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_interval,
    format_number,
    join_names,
)
from elo_exp.report import judges_page
from elo_exp.report.audit_page import STYLE_BY_VERDICT, AuditResult
from elo_exp.report.document import (
    Block,
    Cell,
    Document,
    Heading,
    LineBreak,
    Link,
    Paragraph,
    Section,
    Style,
    Styled,
    Table,
    add_headings,
)
from elo_exp.report.provenance import (
    build_details_section,
    format_kicker,
    list_made_blocks,
    list_run_bill,
)
from elo_exp.report.sentences import audit_sentences as words
from elo_exp.report.sentences import judges_sentences as judges_words
from elo_exp.report.sentences.vote_sentences import votes as say_votes

_VERDICTS_WORST_FIRST = ("biased", "cannot tell", "ok", "reported")
_RESULT_NOTE = (
    "Each cell has the decision, the estimate and its 90% interval. Each judge is audited separately, with Holm’s "
    "correction over its own tests. Its own page has examples, forms and orders."
)
_GOLD_NOTE = (
    "rho is the mean correlation between the errors of two judges. J judges are worth J / (1 + (J − 1) rho) independent "
    "votes. If a label is wrong, all judges err together on that pair. The judges do not vote."
)
_AGREEMENT_NOTE = (
    "Based on questions to which both judges gave a valid verdict. Kappa is 1 if both always name the same winner, and 0 "
    "if they agree as often as by chance. Intervals are clustered by prompt. An audit asks other questions than a "
    "tournament. To see the agreement on your own answers, run a tournament with these judges."
)
_FOOTER = (
    "Every number is in judges.json next to this page. The numbers of each judge are in audit.json of its folder in "
    "judges/."
)


@dataclass(frozen=True, kw_only=True)
class JudgeAudits:
    """Audits of several judges on one dimension.

    conclusion  conclusion about all judges
    own         each judge's audit, by its name
    failed      reason why a judge could not be audited, by its name
    kappas      rows of `agreement.kappa` of every two judges
    votes       number of independent votes that they are worth; None without labelled pairs
    """

    dimension: str
    conclusion: Conclusion
    own: Mapping[str, AuditResult]
    failed: Mapping[str, str]
    kappas: Sequence[Mapping[str, Any]]
    votes: EffectiveVotes | None


def build_document(
    audit_sets: Sequence[JudgeAudits],
    pages: Mapping[str, str],
    manifest: Mapping[str, Any],
) -> Document:
    """Return the page of an audit of several judges.

    pages  page of each judge, next to this one
    """
    audits, failed = audit_sets[0].own, audit_sets[0].failed
    audit = next(iter(audits.values())).audit
    of_turns = words.describe_left_out_turns(audit["n_of_turns"], audit["n_bank"])
    command = f"python -m elo_exp {' '.join(manifest['overrides'])}"
    sentences = [
        words.describe_judges(audit_set.conclusion) for audit_set in audit_sets
    ]
    return Document(
        kicker=format_kicker("audit of several judges", manifest),
        headline=f"How far can {join_names([*audits, *failed])} be trusted?",
        lede=[
            *(Paragraph(f"{sentence}.", "lede begins") for sentence in sentences),
            *(
                Paragraph(f"{name} is not audited: {why}", "notice")
                for name, why in failed.items()
            ),
        ],
        sections=[
            Section("result", "Result", [*_list_result_blocks(audit_sets, pages)]),
            Section("gold", "Labelled pairs", _list_gold_blocks(audit_sets)),
            Section("agreement", "Agreement", _list_agreement_blocks(audit_sets)),
            Section("left-out", "Left out", [Paragraph(of_turns)] if of_turns else []),
            build_details_section(
                list_run_bill(manifest),
                made=[
                    Paragraph([Styled(command, "code")]),
                    *list_made_blocks(manifest),
                ],
            ),
        ],
        footer=_FOOTER,
    )


def _list_result_blocks(
    audit_sets: Sequence[JudgeAudits], pages: Mapping[str, str]
) -> Iterator[Block]:
    for audit_set in audit_sets:
        dimension = audit_set.dimension
        yield Heading(dimension)
        for name, audited in audit_set.own.items():
            judge = Styled([Link(name, pages[name]), ":"], "bold")
            yield Paragraph([judge, f" {audited.counts}."], "facts")
        yield Table(
            label=f"Tests on {dimension}",
            columns=["Test", "Accepted", *audit_set.own],
            rows=[
                [probe, bound, *map(_make_cell, results)]
                for probe, bound, results in _list_probe_rows(audit_set)
            ],
            words=[*audit_set.own],
        )
    yield Paragraph(_RESULT_NOTE, "small")


def _list_gold_blocks(audit_sets: Sequence[JudgeAudits]) -> list[Block]:
    blocks: list[Block] = []
    for audit_set in audit_sets:
        table = _build_gold_table(audit_set)
        if not table.rows:
            continue
        blocks += add_headings([table])
        if audit_set.votes:
            blocks.append(Paragraph(f"{say_votes(audit_set.votes)}.", "begins"))
    return [*blocks, Paragraph(_GOLD_NOTE, "small")] if blocks else []


def _list_agreement_blocks(audit_sets: Sequence[JudgeAudits]) -> list[Block]:
    blocks: list[Block] = []
    for audit_set in audit_sets:
        if audit_set.kappas:
            table = judges_page.build_agreement_table(
                audit_set.dimension, audit_set.kappas, "Questions"
            )
            blocks += add_headings([table])
    return [*blocks, Paragraph(_AGREEMENT_NOTE, "small")] if blocks else []


def _list_probe_rows(
    audit_set: JudgeAudits,
) -> Iterator[tuple[str, str, list[Mapping[str, Any] | None]]]:
    """Yield a row for each test, the worst first: its name, the accepted range, and its result for each judge."""
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
        bound = words.format_bound(result["kind"], result["bound"])
        yield probe, bound, [results.get(probe) for results in results_of_judges]


def _make_cell(row: Mapping[str, Any] | None) -> Cell:
    verdict, numbers = NO_VALUE, ""
    style: Style = ""
    if row:  # none of labelled pairs whose authors are of another judge's family
        low, high = format_number(row["low"], 2), format_number(row["high"], 2)
        verdict, style = row["verdict"], STYLE_BY_VERDICT.get(row["verdict"], "")
        numbers = f"{_format_estimate(row)} [{low}, {high}]"
    return Cell([Styled(verdict, style), LineBreak(), Styled(numbers, "fine")])


def _format_estimate(row: Mapping[str, Any]) -> str:
    return format_number(row["estimate"], 2, sign=row["kind"] == "bias")


def _build_gold_table(audit_set: JudgeAudits) -> Table:
    """Return the accuracy of each judge on labelled pairs."""
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
    return Table(
        label=f"Labelled pairs on {audit_set.dimension}",
        columns=["Judge", "Pairs", "Accuracy", "95% CI", "Kappa"],
        rows=rows,
    )


# The console


def _format_result(row: Mapping[str, Any] | None) -> str:
    return f"{row['verdict']} {_format_estimate(row)}" if row else NO_VALUE


def format_console(audit_sets: Sequence[JudgeAudits]) -> str:
    """Return the text for the console."""
    return "\n\n".join("\n".join(_format_lines(audit_set)) for audit_set in audit_sets)


def _format_lines(audit_set: JudgeAudits) -> Iterator[str]:
    yield from wrap_lines([f"{words.describe_judges(audit_set.conclusion)}."])
    for name, audited in audit_set.own.items():
        yield f"  {name:<12}{audited.counts}"
    for name, why in audit_set.failed.items():
        yield from wrap_lines([f"  {name:<12}not audited: {why}"])
    yield format_table(
        ("test", "accepted", *audit_set.own),
        [
            (probe, bound, *map(_format_result, results))
            for probe, bound, results in _list_probe_rows(audit_set)
        ],
        text=[*audit_set.own],
    )
    if audit_set.kappas:
        kappas = judges_words.kappas(audit_set.kappas)
        yield from wrap_lines([f"{'kappa':<14}{kappas}"])
    for name, audited in audit_set.own.items():
        for row in audited.audit["gold"][:1]:
            yield from wrap_lines([f"{words.describe_gold(f'by {name}', row)}."])
    if audit_set.votes:
        yield from wrap_lines([f"{'votes':<14}{say_votes(audit_set.votes)}"])


# Files and trackers


def as_json(audit_set: JudgeAudits) -> dict[str, Any]:
    """Return the results of all judges for judges.json."""
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
    """Return the metrics for a tracker, under names that every such run shares."""
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
                audit_set.votes.claimed_numbers if audit_set.votes else {}
            ).items()
        }
    return metrics_by_name
