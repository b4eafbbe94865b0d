"""What people's labels say, beside the judge of a run: the certificate, people's board, and the console's text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.conclusions import Conclusion, Effect
from elo_exp.analysis.conclusions.people import STATES
from elo_exp.analysis.effective_votes import EffectiveVotes
from elo_exp.analysis.standings import Standings
from elo_exp.report import tournament_console, tournament_page
from elo_exp.report.formats import count, percent
from elo_exp.report.tables import Table
from elo_exp.report.words import people as words
from elo_exp.report.words import tournament
from elo_exp.report.words.votes import votes as say_votes

_ON_CONSOLE = 12  # leads


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What people say of a judge on one dimension.

    n_labels       by annotator
    n_comparisons  that were labelled, however often
    n_skipped      comparisons that an annotator left out
    said           the judge's sentence, as its run has it
    corrected      its conclusion, where people contradict a lead of its first
    leads          the judge's, each with what people make of it
    agreement      rows of kappa: the judge with people, people with each other, and of several each two
    first_shown    how often the answer shown as 1 was preferred
    votes          what all judges of the run are worth together, by these labels; None of one judge
    refusal        why people's board is by labels alone, though a joint fit was asked for; None where it was not
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
        """Return it as certificate.json has it."""
        leads = [
            {
                "state": lead.state,
                "sentence": words.state(lead, self.half_width),
                "higher": lead.subject,
                "lower": lead.rival,
                "judge": of_judge.difference,
                "judge_ci_low": of_judge.ci_low,
                "judge_ci_high": of_judge.ci_high,
                **_of_people(lead),
                "labels_more": next(
                    (r.value for r in lead.reasons if r.name == "few_labels"), None
                ),
            }
            for of_judge, lead in self.leads
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
            "conclusion": tournament.as_row(self.corrected) if self.corrected else None,
            "agreement": [dict(row) for row in self.agreement],
            "leads": leads,
            **({"votes": self.votes.to_dict()} if self.votes else {}),
        }


def _of_people(lead: Conclusion) -> dict[str, Any]:
    effect = lead.effect or Effect(value=None)
    return {
        "people": effect.value,
        "people_ci_low": effect.low,
        "people_ci_high": effect.high,
        "people_p_holm": effect.p_value,
    }


@dataclass(frozen=True, kw_only=True)
class Card:
    """What people and the judge say of one dimension, in words.

    judge  its sentence, corrected where people contradict it; `was` is then that of its run
    """

    dimension: str
    tone: str
    chip: str
    people: str
    judge: str
    was: str | None
    leads: str
    facts: Sequence[str]


def context(
    standings: Standings, board: Standings, certificates: Sequence[Certificate]
) -> dict[str, Any]:
    """Return what the page shows.

    standings  of labels alone, which has people's conclusions
    board      what people's board shows: the same, or the joint fit
    """
    conclusions = standings.conclusions
    shown = tournament_page.sections(board)
    headline = tournament.headline([*conclusions.values()])
    return {
        **shown,
        "headline": headline,
        "begins": tournament.begins(headline, [*conclusions.values()]),
        "points": tournament.points([*conclusions.values()]),
        "cards": [_card(one, conclusions[one.dimension]) for one in certificates],
        "leads": [_leads(one) for one in certificates if one.leads],
        "agreement": [_agreement(one) for one in certificates],
        "votes": [say_votes(one.votes) for one in certificates if one.votes],
        "refusals": [one.refusal for one in certificates if one.refusal],
    }


def _card(one: Certificate, people: Conclusion) -> Card:
    judge = tournament.sentence(one.corrected) if one.corrected else one.said
    return Card(
        dimension=one.dimension,
        tone=tournament.tone(people),
        chip=tournament.chip(people),
        people=tournament.sentence(people),
        judge=judge,
        was=one.said if one.corrected else None,
        leads=words.counted([lead for _, lead in one.leads]),
        facts=_facts(one),
    )


def _facts(one: Certificate) -> list[str]:
    labelled = words.labelled(
        sum(one.n_labels.values()), one.n_comparisons, one.n_prompts, [*one.n_labels]
    )
    skipped = [f"{count(one.n_skipped)} skipped"] if one.n_skipped else []
    return [labelled, words.first_shown(one.first_shown), *skipped]


def _leads(one: Certificate) -> Table:
    return Table(
        label=f"Leads of {one.judge} in {one.dimension}",
        columns=["Lead", "over", "By the judge", "By people", "People say"],
        words=("over", "By the judge", "By people", "People say"),
        rows=[
            [
                str(lead.subject),
                str(lead.rival),
                _by(of_judge),
                words.people(lead),
                words.state(lead, one.half_width),
            ]
            for of_judge, lead in one.leads
        ],
    )


def _by(of_judge: Difference) -> str:
    return tournament.difference(
        Effect(
            value=of_judge.difference,
            low=of_judge.ci_low,
            high=of_judge.ci_high,
            one_sided=of_judge.one_sided,
            n_prompts=of_judge.n_prompts,
        )
    )


def _agreement(one: Certificate) -> Table:
    return Table(
        label=f"Agreement in {one.dimension}",
        columns=["Who", "with", "Comparisons", "Prompts", "Agreement", "Kappa"],
        words=("with",),
        rows=[
            [
                row["first"],
                row["second"],
                count(row["n_comparisons"]),
                count(row["n_prompts"]),
                percent(row["agreement"]),
                words.kappa(row),
            ]
            for row in one.agreement
        ],
    )


# The console


def text(board: Standings, certificates: Sequence[Certificate]) -> str:
    """Return what the console says: people's board, then of the judge a certificate for each dimension."""
    shown = tournament_page.sections(board)
    lines = [*tournament_console.leaderboards(shown["dimensions"], scored=False)]
    for one in certificates:
        lines += ["", *_certified(one)]
    return tournament_console.filled(lines)


def _certified(one: Certificate) -> Iterator[str]:
    yield f"{one.dimension}: {'; '.join(_facts(one))}"
    for row in one.agreement[:2]:
        yield f"  {'agreement':<14}{words.agreement(row)}"
    if one.votes:
        yield f"  {'votes':<14}{say_votes(one.votes)}"
    if one.refusal:
        yield f"  {'board':<14}{one.refusal}"
    yield f"  {'leads':<14}of {one.judge}: {words.counted([lead for _, lead in one.leads])}"
    for of_judge, lead in one.leads[:_ON_CONSOLE]:
        yield (
            f"    {lead.subject} over {lead.rival}: {words.state(lead, one.half_width)}; by the judge "
            f"{_by(of_judge)}, by people {words.people(lead)}"
        )
    if (n := len(one.leads) - _ON_CONSOLE) > 0:
        yield f"    {n} more in the report"
    if one.corrected:
        yield f"  {'judge':<14}said: {one.said}"
        yield f"  {'':<14}now: {tournament.sentence(one.corrected)}"


def metrics(
    standings: Standings, certificates: Sequence[Certificate]
) -> dict[str, Any]:
    """Return what a tracker is told, under names that every such run shares."""
    found = dict[str, Any]()
    for one in certificates:
        with_people, mutual, *_ = one.agreement
        states = [lead.state for _, lead in one.leads]
        values = {
            "n_labels": sum(one.n_labels.values()),
            "agreement": with_people["agreement"],
            "kappa": with_people["kappa"],
            "kappa_of_people": mutual["kappa"],
            **{f"leads_{state}": states.count(state) for state in STATES},
            **(one.votes.claimed if one.votes else {}),
        }
        found |= {
            f"people/{one.dimension}/{name}": value
            for name, value in values.items()
            if value is not None
        }
    for dimension, conclusion in standings.conclusions.items():
        row = tournament.as_row(conclusion)
        found |= {f"conclusion/{dimension}/{n}": row[n] for n in ("state", "sentence")}
    return found


def number_of_contradictions(certificates: Sequence[Certificate]) -> float:
    """Count the leads of the judge that people contradict."""
    return float(
        sum(
            lead.state == "contradicted"
            for one in certificates
            for _, lead in one.leads
        )
    )
