"""The page of several judges: the combined leaderboard, each judge's own, and their agreement."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elo_exp.analysis.conclusions.judges_conclusion import JudgesResult
from elo_exp.analysis.standings import Standings
from elo_exp.console import wrap_lines
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.formatting import format_count, format_number, format_p, format_percent
from elo_exp.records import Rows
from elo_exp.report import artifacts, tournament_console
from elo_exp.report.document import (
    Card,
    Cards,
    Document,
    FigureSlot,
    Heading,
    Link,
    Paragraph,
    Section,
    Styled,
    Table,
    add_headings,
)
from elo_exp.report.judge_section import KAPPA_NOTE
from elo_exp.report.leaderboard_section import list_leaderboard_blocks
from elo_exp.report.pairs_section import MAX_PAIRS_PER_DIMENSION
from elo_exp.report.provenance import (
    build_details_section,
    format_kicker,
    list_made_blocks,
    list_run_bill,
)
from elo_exp.report.sentences import judges_sentences as words
from elo_exp.report.sentences import tournament_sentences
from elo_exp.report.standings_view import FIGURES_SHOWN_AS_TABLES, build_view

# A run of several judges logs these for each dimension
JUDGE_METRIC_NAMES = (*("judges", "tau", "gap", "gap_low", "gap_high", "half_width"),)
_LABEL_CHARACTERS = 14
_BOARD_NOTE = (
    "The mean of the judges’ ratings. Intervals cover two sources of error: differences between judges (tau, one value "
    "for all entrants) and between prompts, which all judges share. They apply to other judges of this kind."
)
_OWN_NOTE = "Each judge has its own intervals, which ignore the other judges."
_FOOTER = "Every number is in judges.json next to this page. The numbers of each judge are in its folder in judges/."
_JOINT_METHOD = "joint"


def build_joint_standings(
    opinions: Sequence[JudgesResult], by_judge: Mapping[str, Standings]
) -> Standings:
    """Return standings with the combined leaderboards, for the dimensions that have one."""
    boards = {opinion.dimension: opinion.board for opinion in opinions if opinion.board}
    all_standings = [by_judge[name] for name in opinions[0].judges]
    return Standings(
        models=all_standings[0].models,
        battles={
            name: concatenate_battles(
                *(standings.battles[name] for standings in all_standings)
            )
            for name in boards
        },
        boards={_JOINT_METHOD: boards},
        differences={
            _JOINT_METHOD: [d for opinion in opinions for d in opinion.differences]
        },
    )


def build_document(
    opinions: Sequence[JudgesResult],
    by_judge: Mapping[str, Standings],
    pages: Mapping[str, str],
    manifest: Mapping[str, Any],
) -> Document:
    """Return the page of several judges, of a tournament or on file.

    pages  page of each judge, next to this one
    """
    headline = words.headline(opinions)
    conclusions = [opinion.conclusion for opinion in opinions]
    names = Styled(", ".join(by_judge), "bold")
    board = list_leaderboard_blocks(
        build_view(build_joint_standings(opinions, by_judge))
    )
    differences = [
        _build_differences_table(opinion) for opinion in opinions if opinion.differences
    ]
    agreement = [
        build_agreement_table(opinion.dimension, opinion.kappas, "Comparisons")
        for opinion in opinions
    ]
    return Document(
        kicker=format_kicker("several judges", manifest),
        headline=headline,
        begins_with_word=tournament_sentences.begins_with_word(headline, conclusions),
        lede=[
            Paragraph(["Judges: ", names, ". Each judge is rated separately."], "facts")
        ],
        sections=[
            Section(
                "result",
                "Result",
                [
                    Cards([_build_card(opinion, pages) for opinion in opinions]),
                    Paragraph(f"{words.cannot_show(opinions[0])}.", "notice"),
                ],
            ),
            Section(
                "leaderboard",
                "Combined leaderboard (all judges)",
                [*board, *([Paragraph(_BOARD_NOTE, "small")] if board else [])],
            ),
            Section("pairs", "Differences", add_headings(differences)),
            Section(
                "judge",
                "Ratings by judge",
                [
                    FigureSlot("judges"),
                    *add_headings([_build_ratings_table(o) for o in opinions]),
                    Paragraph(_OWN_NOTE, "small"),
                ],
            ),
            Section(
                "agreement",
                "Agreement",
                [*add_headings(agreement), Paragraph(KAPPA_NOTE, "small")],
            ),
            build_details_section(
                list_run_bill(manifest), made=list_made_blocks(manifest)
            ),
        ],
        footer=_FOOTER,
        figures_left_out=FIGURES_SHOWN_AS_TABLES,
    )


def _format_sentence(opinion: JudgesResult) -> str:
    return words.sentence(opinion.conclusion, [*opinion.own])


def _build_card(opinion: JudgesResult, pages: Mapping[str, str]) -> Card:
    sentence, following = _format_sentence(opinion), words.suggest_next_step(opinion)
    begins = tournament_sentences.begins_with_word(sentence, [opinion.conclusion])
    judge_lines = [
        Paragraph(
            [
                Styled([Link(name, pages[name]), ":"], "bold"),
                f" {tournament_sentences.sentence(conclusion)}.",
            ]
        )
        for name, conclusion in opinion.own.items()
    ]
    return Card(
        title=opinion.dimension,
        chip=words.STATE_ROWS[opinion.conclusion.state].chip,
        tone=words.STATE_ROWS[opinion.conclusion.state].tone,
        blocks=[
            Heading(f"{sentence}.", "begins" if begins else ""),
            Paragraph(f"{words.describe_spread(opinion)}."),
            *([Paragraph(f"{following}.", "begins small")] if following else []),
            *judge_lines,
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
        label=f"Ratings by judge on {opinion.dimension}",
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
    """Return the differences of the combined leaderboard; only the leader's if there are many."""
    differences, note = opinion.differences, ""
    if len(differences) > MAX_PAIRS_PER_DIMENSION:
        leader = differences[0].higher
        differences = [pair for pair in differences if pair.higher == leader]
        note = f"The table shows only the differences between {leader} and the others. All are in judges.json."
    return Table(
        label=f"Differences on {opinion.dimension}, across judges of this kind",
        columns=["Entrant", "over", "Points", "95% CI", "p (Holm)"],
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


def build_agreement_table(
    dimension: str, kappas: Sequence[Mapping[str, Any]], count_heading: str
) -> Table:
    """Return kappa of every two judges as a table.

    count_heading  heading of the column of counts
    """
    return Table(
        label=f"Agreement on {dimension}",
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
    """Return the text for the console."""
    view = build_view(build_joint_standings(opinions, by_judge))
    dimension_by_name = {d.name: d for d in view.dimensions}
    lines = [*tournament_console.describe_method(view.dimensions, scored=False)]
    for opinion in opinions:
        lines += [_format_heading(opinion), f"{_format_sentence(opinion)}."]
        if opinion.board:
            dimension = dimension_by_name[opinion.dimension]
            lines += tournament_console.format_leaderboard(dimension)
        lines += ["", *_format_labelled_lines(opinion), ""]
    caveat = _format_line("caveat", f"{words.cannot_show(opinions[0])}.")
    return "\n".join(wrap_lines([*lines, caveat]))


def _format_heading(opinion: JudgesResult) -> str:
    if opinion.n_prompts is None:
        return opinion.dimension
    return f"{opinion.dimension} ({format_count(opinion.n_prompts)} prompts)"


def _format_labelled_lines(opinion: JudgesResult) -> Iterator[str]:
    yield _format_line("judges", f"{words.describe_spread(opinion)}.")
    for name, conclusion in opinion.own.items():
        sentence = f"{tournament_sentences.sentence(conclusion)}."
        yield _format_line(f"  {name}", sentence)
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
    """Return the tables for a tracker: the combined leaderboards, and the agreement of every two judges."""
    standings = build_joint_standings(opinions, by_judge)
    dimensions = build_view(standings).dimensions
    return {
        "leaderboard": artifacts.tables(standings, dimensions)["leaderboard"],
        "agreement": [dict(row) for opinion in opinions for row in opinion.kappas],
    }


def metrics(opinions: Sequence[JudgesResult]) -> dict[str, Any]:
    """Return the metrics for a tracker, under names that every such run shares."""
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
