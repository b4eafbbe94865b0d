"""What several judges made of a tournament: the joint board, each judge's own, and how far they agree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions.judges_conclusion import JudgesResult
from elo_exp.analysis.standings import Standings
from elo_exp.formatting import format_count, format_number, format_p, format_percent
from elo_exp.records import Rows
from elo_exp.report import artifacts, tournament_console, tournament_page
from elo_exp.report.document import Table
from elo_exp.report.pairs_section import MAX_PAIRS_PER_DIMENSION
from elo_exp.report.sentences import judges_sentences as words
from elo_exp.report.sentences import tournament_sentences

# A run of several judges logs these for each dimension
JUDGE_METRIC_NAMES = (*("judges", "tau", "gap", "gap_low", "gap_high", "half_width"),)
_LABEL_CHARACTERS = 14
_JOINT_METHOD = "joint"


@dataclass(frozen=True, kw_only=True)
class Card:
    """What all judges and each of them say of one dimension."""

    dimension: str
    tone: str
    chip: str
    sentence: str
    begins: bool  # with a word, and no name
    spread: str
    following: str
    own: Sequence[tuple[str, str, str]]  # a judge, its sentence, its page


def build_joint_standings(
    opinions: Sequence[JudgesResult], by_judge: Mapping[str, Standings]
) -> Standings:
    """Return standings that hold the joint boards, of the dimensions that have one."""
    boards = {opinion.dimension: opinion.board for opinion in opinions if opinion.board}
    first_standings, *other_standings = (by_judge[name] for name in opinions[0].judges)
    return Standings(
        models=first_standings.models,
        battles={
            name: first_standings.battles[name].concatenate(
                *(o.battles[name] for o in other_standings)
            )
            for name in boards
        },
        companions={_JOINT_METHOD: boards},
        differences={
            _JOINT_METHOD: [d for opinion in opinions for d in opinion.differences]
        },
    )


def context(
    opinions: Sequence[JudgesResult],
    by_judge: Mapping[str, Standings],
    pages: Mapping[str, str],
) -> dict[str, Any]:
    """Return what the page shows.

    pages  of each judge, beside this one
    """
    joint_sections = tournament_page.build_sections(
        build_joint_standings(opinions, by_judge)
    )
    return {
        **joint_sections,
        "headline": (headline := _format_sentence(opinions[0])),
        "begins": tournament_sentences.begins_with_word(
            headline, [opinion.conclusion for opinion in opinions]
        ),
        "judges": ", ".join(by_judge),
        "cards": [_build_card(opinion, pages) for opinion in opinions],
        "boards": [_build_ratings_table(opinion) for opinion in opinions],
        "differences": [
            _build_differences_table(opinion)
            for opinion in opinions
            if opinion.differences
        ],
        "agreement": [
            agreement_table(opinion.dimension, opinion.kappas, "Comparisons")
            for opinion in opinions
        ],
        "cannot": words.cannot_show(opinions[0]),
    }


def _format_sentence(opinion: JudgesResult) -> str:
    return words.sentence(opinion.conclusion, [*opinion.own])


def _build_card(opinion: JudgesResult, pages: Mapping[str, str]) -> Card:
    return Card(
        dimension=opinion.dimension,
        tone=words.tone(opinion.conclusion),
        chip=words.CHIPS[opinion.conclusion.state],
        sentence=(sentence := _format_sentence(opinion)),
        begins=tournament_sentences.begins_with_word(sentence, [opinion.conclusion]),
        spread=words.describe_spread(opinion),
        following=words.suggest_next_step(opinion),
        own=[
            (name, tournament_sentences.sentence(conclusion), pages[name])
            for name, conclusion in opinion.own.items()
        ],
    )


def _build_ratings_table(opinion: JudgesResult) -> Table:
    """Return the ratings by each judge, with its own intervals."""
    rows = {
        name: {row.model: row for row in board.ratings}
        for name, board in opinion.boards.items()
    }
    models = dict.fromkeys(
        model for judge_rows in rows.values() for model in judge_rows
    )
    return Table(
        label=f"Ratings by judge in {opinion.dimension}",
        columns=["Entrant", *rows],
        rows=[
            [
                model,
                *(
                    _format_rating(judge_rows.get(model))
                    for judge_rows in rows.values()
                ),
            ]
            for model in models
        ],
    )


def _format_rating(row: Any) -> str:
    if row is None or row.rating is None:
        return "–"
    if None in (row.ci_low, row.ci_high):
        return format_number(row.rating)
    return f"{format_number(row.rating)} [{format_number(row.ci_low)}, {format_number(row.ci_high)}]"


def _build_differences_table(opinion: JudgesResult) -> Table:
    """Return the differences on the joint board; only the leader's if there are many."""
    differences, note = opinion.differences, ""
    if len(differences) > MAX_PAIRS_PER_DIMENSION:
        leader = differences[0].higher
        differences = [pair for pair in differences if pair.higher == leader]
        note = f"Only those between {leader} and the others are shown; all are in judges.json."
    return Table(
        label=f"Differences in {opinion.dimension}, whichever such judge is asked",
        columns=["Entrant", "over", "Points", "95 % CI", "p (Holm)"],
        words=("over",),
        rows=[
            [
                d.higher,
                d.lower,
                format_number(d.difference),
                f"{format_number(d.ci_low)} to {format_number(d.ci_high)}",
                format_p(d.p_holm),
            ]
            for d in differences
        ],
        note=note,
    )


def agreement_table(
    dimension: str, kappas: Sequence[Mapping[str, Any]], count_heading: str
) -> Table:
    """Return kappa of every two judges as a table.

    count_heading  what the column of counts is headed
    """
    return Table(
        label=f"Agreement in {dimension}",
        columns=["Judge", "with", count_heading, "Agreement", "Kappa"],
        words=("with",),
        rows=[
            [
                row["first"],
                row["second"],
                format_count(row["n_comparisons"]),
                format_percent(row["agreement"]),
                words.kappa(row),
            ]
            for row in kappas
        ],
    )


# The console


def format_console(
    opinions: Sequence[JudgesResult], by_judge: Mapping[str, Standings]
) -> str:
    """Return what the console says."""
    dimensions = tournament_page.build_sections(
        build_joint_standings(opinions, by_judge)
    )["dimensions"]
    dimension_by_name = {d.name: d for d in dimensions}
    lines = list[str]()
    for opinion in opinions:
        head, *board = (
            tournament_console.format_leaderboards(
                [dimension_by_name[opinion.dimension]], scored=False
            )
            if opinion.board
            else [""]
        )
        lines += [head] if head and not lines else []
        lines += [f"{_format_heading(opinion)}: {_format_sentence(opinion)}", *board]
        lines += [*_format_labelled_lines(opinion), ""]
    return tournament_console.wrap_lines(
        [*lines, _format_line("cannot show", words.cannot_show(opinions[0]))]
    )


def _format_heading(opinion: JudgesResult) -> str:
    if opinion.n_prompts is None or opinion.conclusion.state == "few":
        return opinion.dimension
    return f"{opinion.dimension}, {format_count(opinion.n_prompts)} prompts"


def _format_labelled_lines(opinion: JudgesResult) -> Iterator[str]:
    yield _format_line("judges", words.describe_spread(opinion))
    for name, conclusion in opinion.own.items():
        yield _format_line(f"  {name}", tournament_sentences.sentence(conclusion))
    yield _format_line("kappa", words.kappas(opinion.kappas))
    if more := words.suggest_next_step(opinion):
        yield _format_line("more", more)


def _format_line(label: str, text: str) -> str:
    """Return a label and its text; a colon separates them if the label fills its column."""
    return (
        f"{label:<{_LABEL_CHARACTERS}}{text}"
        if len(label) < _LABEL_CHARACTERS
        else f"{label}: {text}"
    )


# Files and trackers


def as_json(opinion: JudgesResult) -> dict[str, Any]:
    """Return an opinion as judges.json has it."""
    panel = opinion.panel
    return {
        "conclusion": {
            "state": opinion.conclusion.state,
            "sentence": _format_sentence(opinion),
            "first": opinion.conclusion.subject,
            "second": opinion.conclusion.rival,
            "reasons": [reason.name for reason in opinion.conclusion.reasons],
            "worst_case": case.to_dict() if (case := opinion.conclusion.worst_case) else None,
        },
        "judges": {
            name: {"state": conclusion.state, "sentence": tournament_sentences.sentence(conclusion)}
            for name, conclusion in opinion.own.items()
        },
        "n_prompts": opinion.n_prompts,
        "tau": panel.tau if panel else None,
        "no_joint_board": words.explain_no_joint_board(opinion.refusal) or None,
        "board": [row.to_dict() for row in opinion.board.ratings] if opinion.board else None,
        "differences": [d.to_dict() for d in opinion.differences],
        "agreement": [dict(row) for row in opinion.kappas],
        "disagreements": [
            dict(zip(("judge", "other", "ahead_by_judge", "ahead_by_other"), row, strict=True))
            for row in opinion.disagreements
        ],
    }  # fmt: skip


def tables(
    opinions: Sequence[JudgesResult], by_judge: Mapping[str, Standings]
) -> dict[str, Rows]:
    """Return the tables for a tracker: the joint boards, and how far every two judges agree."""
    standings = build_joint_standings(opinions, by_judge)
    dimensions = tournament_page.build_sections(standings)["dimensions"]
    return {
        "leaderboard": artifacts.tables(standings, dimensions)["leaderboard"],
        "agreement": [dict(row) for opinion in opinions for row in opinion.kappas],
    }


def metrics(opinions: Sequence[JudgesResult]) -> dict[str, Any]:
    """Return what a tracker is told, under names that every such run shares."""
    metrics_by_name = dict[str, Any]()
    for opinion in opinions:
        effect, panel = opinion.conclusion.effect, opinion.panel
        values = {
            "judges": len(opinion.judges),
            "tau": panel.tau if panel else None,
            "gap": effect.value if effect else None,
            "gap_low": effect.low if effect else None,
            "gap_high": effect.high if effect else None,
            "half_width": panel.half_width() if panel and opinion.board else None,
        }
        metrics_by_name |= {
            f"judges/{opinion.dimension}/{name}": value
            for name, value in values.items()
            if value is not None
        }
        metrics_by_name[f"conclusion/{opinion.dimension}/state"] = (
            opinion.conclusion.state
        )
        metrics_by_name[f"conclusion/{opinion.dimension}/sentence"] = _format_sentence(
            opinion
        )
    return metrics_by_name
