"""The human-agreement report: people's labels next to a judge, on the page and the console."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.conclusions import Conclusion, Effect
from elo_exp.analysis.conclusions.labels_conclusion import STATES
from elo_exp.analysis.effective_votes import EffectiveVotes
from elo_exp.analysis.standings import Standings
from elo_exp.console import wrap_lines
from elo_exp.formatting import format_count, format_percent
from elo_exp.report import tournament_console
from elo_exp.report.document import (
    Block,
    Card,
    Cards,
    Document,
    Paragraph,
    Section,
    Styled,
    Table,
    add_headings,
)
from elo_exp.report.leaderboard_section import list_leaderboard_blocks
from elo_exp.report.provenance import (
    build_details_section,
    format_kicker,
    list_made_blocks,
    list_run_bill,
)
from elo_exp.report.sentences import label_sentences as words
from elo_exp.report.sentences import tournament_sentences
from elo_exp.report.sentences.vote_sentences import votes as say_votes
from elo_exp.report.standings_view import FIGURES_SHOWN_AS_TABLES, build_view

_MAX_CONSOLE_LEADS = 12
_LEADS_NOTE = (
    "A lead is a significant difference by the judge (Holm, 5% error). People confirm or contradict it if their own labels "
    "have a significant difference (Holm over all their pairs). The human result uses only the labels, not the judge’s "
    "verdicts."
)
_AGREEMENT_NOTE = (
    "No judge can be expected to agree with people more than people agree with each other. Kappa is 1 if both always choose "
    "the same answer, and 0 if they agree as often as by chance. Intervals are clustered by prompt."
)
_VOTES_NOTE = (
    "For all judges of this run. rho is the mean correlation between their errors: verdicts that differ from a label. If "
    "people disagree about a label, all judges may seem to err, so rho may be too large. The judges do not vote here."
)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The human-agreement report of a judge on one dimension.

    n_labels       by annotator
    n_comparisons  labelled comparisons, each counted once
    n_skipped      comparisons that an annotator skipped
    said           the judge's sentence from its run
    corrected      its conclusion after the labels, if people contradict a lead of its top entrant; else None
    leads          the judge's leads, each with its state by people's labels
    agreement      rows of kappa: the judge with people, people with each other, and every two annotators
    first_shown    how often people preferred the answer shown as 1
    votes          independent votes of all judges of the run, by these labels; None for one judge
    refusal        why the leaderboard of people uses labels alone, although a joint fit was asked for; else None
    """

    dimension: str
    judge: str
    n_labels: Mapping[str, int]
    n_comparisons: int
    n_prompts: int
    n_skipped: int
    said: str
    corrected: Conclusion | None
    leads: Sequence[tuple[Difference, Conclusion]]
    agreement: Sequence[Mapping[str, Any]]
    first_shown: Mapping[str, Any]
    half_width: float
    refusal: str | None = None
    votes: EffectiveVotes | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as in certificate.json."""
        leads = [
            {
                "state": lead.state,
                "sentence": words.state(lead, self.half_width),
                "higher": lead.subject,
                "lower": lead.rival,
                "judge": judge_difference.difference,
                "judge_ci_low": judge_difference.ci_low,
                "judge_ci_high": judge_difference.ci_high,
                **_make_people_columns(lead),
                "labels_more": next(
                    (r.value for r in lead.reasons if r.name == "few_labels"), None
                ),
            }
            for judge_difference, lead in self.leads
        ]
        return {
            "dimension": self.dimension,
            "judge": self.judge,
            "n_labels": dict(self.n_labels),
            "n_comparisons": self.n_comparisons,
            "n_prompts": self.n_prompts,
            "n_skipped": self.n_skipped,
            "first_shown": dict(self.first_shown),
            "conclusion_before": self.said,
            "conclusion": tournament_sentences.as_row(self.corrected)
            if self.corrected
            else None,
            "agreement": [dict(row) for row in self.agreement],
            "leads": leads,
            **({"votes": self.votes.to_dict()} if self.votes else {}),
        }


def _make_people_columns(lead: Conclusion) -> dict[str, Any]:
    effect = lead.effect or Effect(value=None)
    return {
        "people": effect.value,
        "people_ci_low": effect.low,
        "people_ci_high": effect.high,
        "people_p_holm": effect.p_value,
    }


def build_document(
    standings: Standings,
    board: Standings,
    certificates: Sequence[Certificate],
    manifest: Mapping[str, Any],
) -> Document:
    """Return the page of people's labels.

    standings  by labels alone, with people's conclusions
    board      the shown leaderboard: by labels alone, or by the joint fit
    """
    conclusions = [*standings.conclusions.values()]
    headline = tournament_sentences.headline(conclusions)
    points = tournament_sentences.points(conclusions)
    cards = [
        _build_card(certificate, standings.conclusions[certificate.dimension])
        for certificate in certificates
    ]
    refusals = [
        Paragraph(f"This leaderboard uses {certificate.refusal}.", "notice")
        for certificate in certificates
        if certificate.refusal
    ]
    return Document(
        kicker=format_kicker("people", manifest),
        headline=headline,
        begins_with_word=tournament_sentences.begins_with_word(headline, conclusions),
        lede=[
            Paragraph(
                [
                    f"{points} Labelled run: ",
                    Styled(manifest["labelled"], "code"),
                    ", judged by ",
                    Styled(manifest["labelled_judge"], "bold"),
                    ".",
                ],
                "facts",
            )
        ],
        sections=[
            Section("result", "Result", [Cards(cards)]),
            Section("leads", "Leads of the judge", _list_lead_blocks(certificates)),
            Section("agreement", "Agreement", _list_agreement_blocks(certificates)),
            Section(
                "leaderboard",
                "Leaderboard by people",
                [*refusals, *list_leaderboard_blocks(build_view(board))],
            ),
            build_details_section(
                list_run_bill(manifest), made=list_made_blocks(manifest)
            ),
        ],
        footer="All numbers are in certificate.json and ratings.json next to this page.",
        figures_left_out=FIGURES_SHOWN_AS_TABLES,
    )


def _build_card(certificate: Certificate, people: Conclusion) -> Card:
    corrected, before = certificate.corrected, certificate.said
    judge = (
        [
            _label_sentence(
                "Judge", tournament_sentences.sentence(corrected), "reason"
            ),
            Paragraph(f"Before the labels: {before}."),
        ]
        if corrected
        else [_label_sentence("Judge", before)]
    )
    lead_counts = words.count_lead_states([lead for _, lead in certificate.leads])
    return Card(
        title=certificate.dimension,
        chip=tournament_sentences.chip(people),
        tone=tournament_sentences.choose_tone(people),
        blocks=[
            _label_sentence("People", tournament_sentences.sentence(people)),
            *judge,
            _label_sentence("Leads of the judge", lead_counts),
            *(
                Paragraph(f"{fact[:1].upper()}{fact[1:]}.", "small")
                for fact in _list_facts(certificate)
            ),
        ],
    )


def _label_sentence(label: str, sentence: str, style: str = "") -> Paragraph:
    return Paragraph([Styled(f"{label}:", "bold"), f" {sentence}."], style)


def _list_lead_blocks(certificates: Sequence[Certificate]) -> list[Block]:
    tables = [_build_leads_table(c) for c in certificates if c.leads]
    return [*add_headings(tables), Paragraph(_LEADS_NOTE, "small")] if tables else []


def _list_agreement_blocks(certificates: Sequence[Certificate]) -> list[Block]:
    votes = [
        Paragraph(f"{say_votes(certificate.votes)}.", "begins")
        for certificate in certificates
        if certificate.votes
    ]
    return [
        *add_headings(map(_build_agreement_table, certificates)),
        Paragraph(_AGREEMENT_NOTE, "small"),
        *votes,
        *([Paragraph(_VOTES_NOTE, "small")] if votes else []),
    ]


def _list_facts(certificate: Certificate) -> list[str]:
    labelled = words.describe_labels(
        sum(certificate.n_labels.values()),
        certificate.n_comparisons,
        certificate.n_prompts,
        [*certificate.n_labels],
    )
    skipped = (
        [f"{format_count(certificate.n_skipped)} skipped"]
        if certificate.n_skipped
        else []
    )
    return [labelled, words.first_shown(certificate.first_shown), *skipped]


def _build_leads_table(certificate: Certificate) -> Table:
    return Table(
        label=f"Leads of {certificate.judge} on {certificate.dimension}",
        columns=["Lead", "over", "By the judge", "By people", "State by labels"],
        words=("over", "By the judge", "By people", "State by labels"),
        rows=[
            [
                str(lead.subject),
                str(lead.rival),
                _format_judge_difference(judge_difference),
                words.describe_difference(lead),
                words.state(lead, certificate.half_width),
            ]
            for judge_difference, lead in certificate.leads
        ],
    )


def _format_judge_difference(judge_difference: Difference) -> str:
    return tournament_sentences.format_difference(
        Effect(
            value=judge_difference.difference,
            low=judge_difference.ci_low,
            high=judge_difference.ci_high,
            one_sided=judge_difference.one_sided,
            n_prompts=judge_difference.n_prompts,
        )
    )


def _build_agreement_table(certificate: Certificate) -> Table:
    return Table(
        label=f"Agreement on {certificate.dimension}",
        columns=[
            "Judge or people",
            "with",
            "Comparisons",
            "Prompts",
            "Agreement",
            "Kappa",
        ],
        words=("with",),
        rows=[
            [
                row["first"],
                row["second"],
                format_count(row["n_comparisons"]),
                format_count(row["n_prompts"]),
                format_percent(row["agreement"]),
                words.kappa(row),
            ]
            for row in certificate.agreement
        ],
    )


# The console


def format_console(board: Standings, certificates: Sequence[Certificate]) -> str:
    """Return the leaderboard by people, then the human-agreement report of the judge for each dimension."""
    lines = [
        *tournament_console.format_leaderboards(
            build_view(board).dimensions, scored=False
        )
    ]
    for certificate in certificates:
        lines += ["", *_format_certificate_lines(certificate)]
    return "\n".join(wrap_lines(lines))


def _format_certificate_lines(certificate: Certificate) -> Iterator[str]:
    labelled, *facts = _list_facts(certificate)
    yield f"{certificate.dimension}: {labelled}"
    yield from (f"  {'labels':<14}{fact}" for fact in facts)
    for row in certificate.agreement[:2]:
        yield f"  {'agreement':<14}{words.agreement(row)}"
    if certificate.votes:
        yield f"  {'votes':<14}{say_votes(certificate.votes)}"
    if certificate.refusal:
        yield f"  {'leaderboard':<14}{certificate.refusal}"
    states = words.count_lead_states([lead for _, lead in certificate.leads])
    yield f"  {'leads':<14}of {certificate.judge}: {states}"
    for judge_difference, lead in certificate.leads[:_MAX_CONSOLE_LEADS]:
        yield f"    {lead.subject} over {lead.rival}: {words.state(lead, certificate.half_width)}"
        yield (
            f"      {'by the judge':<14}{_format_judge_difference(judge_difference)}, by people "
            f"{words.describe_difference(lead)}"
        )
    if (n := len(certificate.leads) - _MAX_CONSOLE_LEADS) > 0:
        yield f"    {n} more in the report"
    if certificate.corrected:
        yield f"  {'judge':<14}before the labels: {certificate.said}"
        yield f"  {'':<14}with the labels: {tournament_sentences.sentence(certificate.corrected)}"


def metrics(
    standings: Standings, certificates: Sequence[Certificate]
) -> dict[str, Any]:
    """Return the numbers for trackers, under names that all such runs share."""
    metrics_by_name = dict[str, Any]()
    for certificate in certificates:
        with_people, mutual, *_ = certificate.agreement
        states = [lead.state for _, lead in certificate.leads]
        values = {
            "n_labels": sum(certificate.n_labels.values()),
            "agreement": with_people["agreement"],
            "kappa": with_people["kappa"],
            "kappa_of_people": mutual["kappa"],
            **{f"leads_{state}": states.count(state) for state in STATES},
            **(certificate.votes.claimed_numbers if certificate.votes else {}),
        }
        metrics_by_name |= {
            f"people/{certificate.dimension}/{name}": value
            for name, value in values.items()
            if value is not None
        }
    for dimension, conclusion in standings.conclusions.items():
        row = tournament_sentences.as_row(conclusion)
        metrics_by_name |= {
            f"conclusion/{dimension}/{n}": row[n] for n in ("state", "sentence")
        }
    return metrics_by_name


def count_contradictions(certificates: Sequence[Certificate]) -> float:
    """Count the leads of the judge that people contradict."""
    return float(
        sum(
            lead.state == "contradicted"
            for certificate in certificates
            for _, lead in certificate.leads
        )
    )
