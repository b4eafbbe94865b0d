"""What several judges made of a tournament: the joint board, each judge's own, and how far they agree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions.judges import Opinion
from elo_exp.analysis.standings import Standings
from elo_exp.records import Rows
from elo_exp.report import artifacts, tournament_console, tournament_page
from elo_exp.report.formats import count, number, p_value, percent
from elo_exp.report.pairs_section import MAX_PAIRS
from elo_exp.report.tables import Table
from elo_exp.report.words import judges as words
from elo_exp.report.words import tournament

NUMBERS = (  # of a dimension, that a run of several judges logs
    *("judges", "tau", "gap", "gap_low", "gap_high", "half_width"),
)
_WIDE = 14  # characters of a label
_JOINT = "joint"  # the method of the joint board, in the standings that show it


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


def joint(opinions: Sequence[Opinion], by_judge: Mapping[str, Standings]) -> Standings:
    """Return standings that hold the joint boards, of the dimensions that have one."""
    boards = {one.dimension: one.board for one in opinions if one.board}
    first, *others = (by_judge[name] for name in opinions[0].judges)
    return Standings(
        models=first.models,
        battles={
            name: first.battles[name].concatenate(*(o.battles[name] for o in others))
            for name in boards
        },
        companions={_JOINT: boards},
        differences={_JOINT: [d for one in opinions for d in one.differences]},
    )


def context(
    opinions: Sequence[Opinion],
    by_judge: Mapping[str, Standings],
    pages: Mapping[str, str],
) -> dict[str, Any]:
    """Return what the page shows.

    pages  of each judge, beside this one
    """
    shown = tournament_page.sections(joint(opinions, by_judge))
    return {
        **shown,
        "headline": (headline := _sentence(opinions[0])),
        "begins": tournament.begins(headline, [one.conclusion for one in opinions]),
        "judges": ", ".join(by_judge),
        "cards": [_card(one, pages) for one in opinions],
        "boards": [_boards(one) for one in opinions],
        "differences": [_differences(one) for one in opinions if one.differences],
        "agreement": [
            agreement(one.dimension, one.kappas, "Comparisons") for one in opinions
        ],
        "cannot": words.cannot_show(opinions[0]),
    }


def _sentence(one: Opinion) -> str:
    return words.sentence(one.conclusion, [*one.own])


def _card(one: Opinion, pages: Mapping[str, str]) -> Card:
    return Card(
        dimension=one.dimension,
        tone=words.tone(one.conclusion),
        chip=words.CHIPS[one.conclusion.state],
        sentence=(sentence := _sentence(one)),
        begins=tournament.begins(sentence, [one.conclusion]),
        spread=words.spread(one),
        following=words.following(one),
        own=[
            (name, tournament.sentence(said), pages[name])
            for name, said in one.own.items()
        ],
    )


def _boards(one: Opinion) -> Table:
    """The ratings of each judge, with its own intervals."""
    rows = {
        name: {row.model: row for row in board.ratings}
        for name, board in one.boards.items()
    }
    models = dict.fromkeys(model for own in rows.values() for model in own)
    return Table(
        label=f"Ratings by judge in {one.dimension}",
        columns=["Entrant", *rows],
        rows=[
            [model, *(_rating(own.get(model)) for own in rows.values())]
            for model in models
        ],
    )


def _rating(row: Any) -> str:
    if row is None or row.rating is None:
        return "–"
    if None in (row.ci_low, row.ci_high):
        return number(row.rating)
    return f"{number(row.rating)} [{number(row.ci_low)}, {number(row.ci_high)}]"


def _differences(one: Opinion) -> Table:
    """The differences on the joint board; of many, those of the first entrant."""
    shown, note = one.differences, ""
    if len(shown) > MAX_PAIRS:
        first = shown[0].higher
        shown = [pair for pair in shown if pair.higher == first]
        note = f"Only those between {first} and the others are shown; all are in judges.json."
    return Table(
        label=f"Differences in {one.dimension}, whichever such judge is asked",
        columns=["Entrant", "over", "Points", "95 % CI", "p (Holm)"],
        words=("over",),
        rows=[
            [
                d.higher,
                d.lower,
                number(d.difference),
                f"{number(d.ci_low)} to {number(d.ci_high)}",
                p_value(d.p_holm),
            ]
            for d in shown
        ],
        note=note,
    )


def agreement(
    dimension: str, kappas: Sequence[Mapping[str, Any]], what: str
) -> Table | None:
    """Return kappa of every two judges as a table; None without any.

    what  is counted
    """
    if not kappas:
        return None
    return Table(
        label=f"Agreement in {dimension}",
        columns=["Judge", "with", what, "Agreement", "Kappa"],
        words=("with",),
        rows=[
            [
                row["first"],
                row["second"],
                count(row["n_comparisons"]),
                percent(row["agreement"]),
                words.kappa(row),
            ]
            for row in kappas
        ],
    )


# The console


def text(opinions: Sequence[Opinion], by_judge: Mapping[str, Standings]) -> str:
    """Return what the console says."""
    dimensions = tournament_page.sections(joint(opinions, by_judge))["dimensions"]
    shown = {d.name: d for d in dimensions}
    lines = list[str]()
    for one in opinions:
        head, *board = (
            tournament_console.leaderboards([shown[one.dimension]], scored=False)
            if one.board
            else [""]
        )
        lines += [head] if head and not lines else []
        lines += [f"{_heading(one)}: {_sentence(one)}", *board]
        lines += [*_labelled(one), ""]
    return tournament_console.filled(
        [*lines, _line("cannot show", words.cannot_show(opinions[0]))]
    )


def _heading(one: Opinion) -> str:
    if one.n_prompts is None or one.conclusion.state == "few":
        return one.dimension
    return f"{one.dimension}, {count(one.n_prompts)} prompts"


def _labelled(one: Opinion) -> Iterator[str]:
    yield _line("judges", words.spread(one))
    for name, said in one.own.items():
        yield _line(f"  {name}", tournament.sentence(said))
    yield _line("kappa", words.kappas(one.kappas))
    if more := words.following(one):
        yield _line("more", more)


def _line(label: str, text: str) -> str:
    """A label and what it says; after one that is as wide as its column, a colon."""
    return f"{label:<{_WIDE}}{text}" if len(label) < _WIDE else f"{label}: {text}"


# Files and trackers


def as_json(one: Opinion) -> dict[str, Any]:
    """Return an opinion as judges.json has it."""
    panel = one.panel
    return {
        "conclusion": {
            "state": one.conclusion.state,
            "sentence": _sentence(one),
            "first": one.conclusion.subject,
            "second": one.conclusion.rival,
            "reasons": [reason.name for reason in one.conclusion.reasons],
            "worst_case": case.to_dict() if (case := one.conclusion.worst_case) else None,
        },
        "judges": {
            name: {"state": said.state, "sentence": tournament.sentence(said)}
            for name, said in one.own.items()
        },
        "n_prompts": one.n_prompts,
        "tau": panel.tau if panel else None,
        "no_joint_board": words.refused(one.refusal) or None,
        "board": [row.to_dict() for row in one.board.ratings] if one.board else None,
        "differences": [d.to_dict() for d in one.differences],
        "agreement": [dict(row) for row in one.kappas],
        "disagreements": [
            dict(zip(("judge", "other", "ahead_by_judge", "ahead_by_other"), row, strict=True))
            for row in one.disagreements
        ],
    }  # fmt: skip


def tables(
    opinions: Sequence[Opinion], by_judge: Mapping[str, Standings]
) -> dict[str, Rows]:
    """Return the tables for a tracker: the joint boards, and how far every two judges agree."""
    standings = joint(opinions, by_judge)
    dimensions = tournament_page.sections(standings)["dimensions"]
    return {
        "leaderboard": artifacts.tables(standings, dimensions)["leaderboard"],
        "agreement": [dict(row) for one in opinions for row in one.kappas],
    }


def metrics(opinions: Sequence[Opinion]) -> dict[str, Any]:
    """Return what a tracker is told, under names that every such run shares."""
    found = dict[str, Any]()
    for one in opinions:
        effect, panel = one.conclusion.effect, one.panel
        values = {
            "judges": len(one.judges),
            "tau": panel.tau if panel else None,
            "gap": effect.value if effect else None,
            "gap_low": effect.low if effect else None,
            "gap_high": effect.high if effect else None,
            "half_width": panel.half_width() if panel and one.board else None,
        }
        found |= {
            f"judges/{one.dimension}/{name}": value
            for name, value in values.items()
            if value is not None
        }
        found[f"conclusion/{one.dimension}/state"] = one.conclusion.state
        found[f"conclusion/{one.dimension}/sentence"] = _sentence(one)
    return found
