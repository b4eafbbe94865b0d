"""What a placement among human battles shows, on its page and on the console."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions import Conclusion
from elo_exp.arena.placement import Placement
from elo_exp.console import format_table
from elo_exp.formatting import (
    format_count,
    format_interval,
    format_number,
    join_names,
)
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.report.provenance import join_pairs
from elo_exp.report.sentences import arena_sentences as words
from elo_exp.report.sentences import check_sentences

_N_TOP_ROWS, _N_ROWS_AROUND_PLACED = 3, 4
_CHIP_AND_TONE_BY_STATE = {
    "refused": ("Not placed", "open"),
    "unrated": ("No interval", "open"),
    "no_interval": ("No interval", "open"),
    "caution": ("Caution", "caution"),
    "placed": ("Placed", "supported"),
}


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """Why a rating needs care, or is refused; `of_judge` where a check of the judge says more."""

    words: str
    of_judge: bool


@dataclass(frozen=True, kw_only=True)
class Card:
    """What is said of one placed model.

    tone    of the card: supported, caution or open
    place   where it stands; None where nobody is placed
    beside  where it stands by the verdicts as they are and by the judge's scores, and how far its style lies outside
    """

    model: str
    tone: str
    chip: str
    place: str | None
    beside: Sequence[str]
    truth: str | None
    held_out: str | None
    doubts: Sequence[Doubt]


@dataclass(frozen=True, kw_only=True)
class ArenaPage:
    """What the page of a placement holds besides leaderboard, judge and verdicts."""

    arena: str
    headline: str
    points: str | None
    facts: str
    judge: str
    humans: str
    rating: str
    is_simulated: bool
    cards: Sequence[Card]
    calibration: Sequence[str]


def arena_page(
    placement: Placement, conclusions: Mapping[str, Conclusion]
) -> ArenaPage:
    """Put into words where models were placed.

    conclusions  by placed model
    """
    board, first_conclusion = placement.board, conclusions[placement.placed[0]]
    voters = "simulated voters" if placement.truth else "humans"
    interval = (
        f"95 % intervals: {board.interval}" if board.interval else "without intervals"
    )
    return ArenaPage(
        arena=placement.arena,
        headline=words.headline(placement, conclusions, is_short=True),
        points=words.points(first_conclusion, placement),
        facts=f"{join_names(placement.placed)} in {placement.arena}: {format_count(len(placement.judged))} "
        "battles judged by",
        judge=placement.judge_model,
        humans=f"{format_count(len(placement.human))} by {voters}",
        rating=f"{board.label}, {interval}",
        is_simulated=placement.truth is not None,
        cards=[
            _build_card(placement, conclusion) for conclusion in conclusions.values()
        ],
        calibration=words.calibration(placement),
    )


def _build_card(placement: Placement, conclusion: Conclusion) -> Card:
    model, state = str(conclusion.subject), conclusion.state
    chip, tone = _CHIP_AND_TONE_BY_STATE[state]
    sentence, detail_lines = None, list[str | None]()
    if state != "refused":
        position = _capitalize(words.sentence(conclusion, placement))
        n_judged = format_count(placement.n_judged(model))
        sentence = f"{position}. By {n_judged} judged battles."
        describers = (
            *(
                words.describe_judge_rating,
                words.describe_soft_rating,
                words.describe_missing_results,
            ),
            words.style_distance,
        )
        detail_lines = [describe(placement, model) for describe in describers]
    doubts = [
        Doubt(words=f"{_capitalize(doubt_text)}.", of_judge=reason.judges)
        for reason in conclusion.reasons
        if (doubt_text := words.explain_reason(reason, conclusion))
        not in (sentence or "")
    ]
    return Card(
        model=model,
        tone=tone,
        chip=chip,
        place=sentence,
        beside=[line for line in detail_lines if line],
        truth=words.truth(placement, model),
        held_out=words.describe_human_rating(placement, model),
        doubts=doubts,
    )


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def list_arena_facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows about the arena and the draw of how a run was made."""
    arena = manifest.get("arena")
    if arena is None:
        return []
    return [
        ("Arena", f"{arena['name']}: {arena['n_battles']:,} battles of {arena['n_rows']:,} rows"),
        ("Left out", join_pairs(arena["dropped"])),
        (
            "Draw",
            f"{manifest['selected_prompt_count']:,} prompts by seed "
            f"{manifest['config']['arena']['seed']}, fingerprint {arena['draw_fingerprint']}",
        ),
    ]  # fmt: skip


# The console


def format_console(
    placement: Placement,
    conclusions: Mapping[str, Conclusion],
    quality: Mapping[str, Any],
    diagnoses: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return the headline, the top of the leaderboard and the surroundings of placed models.

    conclusions         by placed model
    quality, diagnoses  of the judge, as in manifest.json and in Standings
    """
    lines = [
        f"{words.headline(placement, conclusions, is_short=False)}.",
        *filter(None, [words.points(conclusions[placement.placed[0]], placement)]),
        words.battles(placement, quality),
        f"95 % intervals: {placement.board.interval or 'none'}.",
        _format_board(placement.board, placement.placed),
    ]
    for model, conclusion in conclusions.items():
        doubts = words.list_further_reasons(conclusion, placement)
        if doubts and conclusion.state == "caution":
            lines.append(f"{model}, caution: {'; '.join(doubts)}.")
        describers = (
            *(
                words.describe_judge_rating,
                words.describe_soft_rating,
                words.describe_missing_results,
            ),
            *(words.style_distance, words.describe_human_rating),
        )
        lines += [
            line for describe in describers if (line := describe(placement, model))
        ]
    lines += words.calibration(placement)
    truths = (words.truth(placement, model) for model in placement.placed)
    lines += filter(None, truths)
    lines += check_sentences.describe_audits(diagnoses)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def _format_board(board: Leaderboard, placed: Sequence[str]) -> str:
    head = ["rank", "model", board.label, "95 % CI", "ranks", "battles"]
    return format_table(head, _list_board_rows(board, placed), text=["model"])


def _list_board_rows(board: Leaderboard, placed: Sequence[str]) -> Iterator[list[str]]:
    """Yield the best models, those around placed ones, and dots in place of the others."""
    ratings, was_left_out = board.ratings, False
    for i, row in enumerate(ratings):
        around = ratings[
            max(i - _N_ROWS_AROUND_PLACED, 0) : i + _N_ROWS_AROUND_PLACED + 1
        ]
        if i >= _N_TOP_ROWS and not any(
            neighbour.model in placed for neighbour in around
        ):
            if not was_left_out:
                yield ["...", "", "", "", "", ""]
            was_left_out = True
            continue
        was_left_out = False
        rating = row.flag or "–" if row.rating is None else format_number(row.rating, 1)
        yield [
            str(row.rank or "–"),
            f"{'> ' if row.model in placed else '  '}{row.model}",
            rating,
            format_interval(row.ci_low, row.ci_high),
            format_interval(row.rank_low, row.rank_high),
            format_count(row.n_battles),
        ]
