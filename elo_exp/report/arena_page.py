"""What a placement among human battles shows, on its page and on the console."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.checks import Check
from elo_exp.arena.placement import Placement
from elo_exp.console import text_table
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.report.formats import between, count, names, number
from elo_exp.report.made import pairs
from elo_exp.report.words import arena as words
from elo_exp.report.words import judge

_BEST, _AROUND = 3, 4  # rows of the console: the first, and those around a placed model
_KINDS = {  # of cards, by their chip
    "Not placed": "open",
    "No interval": "open",
    "Caution": "caution",
    "Placed": "supported",
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """What is said of one placed model.

    kind    of the card: supported, caution or open
    place   where it stands; None where nobody is placed
    beside  where it stands by the verdicts as they are, and by the judge's scores
    reason  why the rating needs care, or is refused
    """

    model: str
    kind: str
    chip: str
    place: str | None
    beside: Sequence[str]
    truth: str | None
    held_out: str | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the page of a placement holds besides leaderboard, judge and verdicts.

    doubts  about the judge, of all models
    """

    arena: str
    headline: str
    facts: str
    judge: str
    humans: str
    rating: str
    is_simulated: bool
    cards: Sequence[Card]
    doubts: Sequence[str]
    calibration: Sequence[str]
    refusal: str | None


def shown(placement: Placement, checks: Sequence[Check]) -> Shown:
    """Put into words where models were placed.

    checks  of the judge
    """
    failed = [check for check in checks if check.state == "caution"]
    board = placement.board
    voters = "simulated voters" if placement.truth else "humans"
    interval = (
        f"95 % intervals: {board.interval}" if board.interval else "without intervals"
    )
    refusal = placement.refusal
    return Shown(
        arena=placement.arena,
        headline=f"No placement: {refusal.split(':')[0]}"
        if refusal
        else words.headline(placement),
        facts=f"{names(placement.placed)} in {placement.arena}: {count(len(placement.judged))} "
        "battles judged by",
        judge=placement.judge_model,
        humans=f"{count(len(placement.human))} by {voters}",
        rating=f"{board.label}, {interval}",
        is_simulated=placement.truth is not None,
        cards=[
            _card(placement, model, has_doubts=bool(failed))
            for model in placement.placed
        ],
        doubts=[judge.reason(check) for check in failed],
        calibration=words.calibration(placement),
        refusal=refusal,
    )


def _card(placement: Placement, model: str, *, has_doubts: bool) -> Card:
    reliability = placement.reliability.get(model, {})
    reason = reliability.get("reason")
    if placement.refusal:
        chip = "Not placed"
    elif placement.board.row(model).ci_low is None:
        chip = "No interval"
    elif has_doubts or reliability.get("status") == "caution":
        chip = "Caution"
    else:
        chip = "Placed"
    place, beside = None, list[str | None]()
    if not placement.refusal:
        where = _capital(words.place(placement.board, model))
        place = f"{where}, by {count(placement.n_judged(model))} judged battles."
        beside = [words.by_judge(placement, model), words.soft(placement, model)]
    return Card(
        model=model,
        kind=_KINDS[chip],
        chip=chip,
        place=place,
        beside=[line for line in beside if line],
        truth=words.truth(placement, model),
        held_out=words.held_out(placement, model),
        reason=f"{_capital(reason)}." if reason else None,
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def made(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows about the arena and the draw of how a run was made."""
    arena = manifest.get("arena")
    if arena is None:
        return []
    return [
        ("Arena", f"{arena['name']}: {arena['n_battles']:,} battles of {arena['n_rows']:,} rows"),
        ("Left out", pairs(arena["dropped"])),
        (
            "Draw",
            f"{manifest['selected_prompt_count']:,} prompts by seed "
            f"{manifest['config']['arena']['seed']}, fingerprint {arena['draw_fingerprint']}",
        ),
    ]  # fmt: skip


# The console


def text(
    placement: Placement,
    quality: Mapping[str, Any],
    diagnoses: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return the headline, the top of the leaderboard and the surroundings of placed models.

    quality, diagnoses  of the judge, as in manifest.json and in Standings
    """
    lines = [
        f"{words.headline(placement)}.",
        words.battles(placement, quality),
        f"95 % intervals: {placement.board.interval or 'none'}.",
        _table(placement.board, placement.placed),
    ]
    for model in placement.placed:
        said = (words.caution, words.by_judge, words.soft, words.held_out)
        lines += [line for say in said if (line := say(placement, model))]
    lines += words.calibration(placement)
    truths = (words.truth(placement, model) for model in placement.placed)
    lines += filter(None, truths)
    lines += judge.audited(diagnoses)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def _table(board: Leaderboard, placed: Sequence[str]) -> str:
    head = ["rank", "model", board.label, "95 % CI", "ranks", "battles"]
    return text_table(head, _rows(board, placed), text=["model"])


def _rows(board: Leaderboard, placed: Sequence[str]) -> Iterator[list[str]]:
    """Yield the best models, those around placed ones, and dots in place of the others."""
    ratings, was_left_out = board.ratings, False
    for i, row in enumerate(ratings):
        around = ratings[max(i - _AROUND, 0) : i + _AROUND + 1]
        if i >= _BEST and not any(other.model in placed for other in around):
            if not was_left_out:
                yield ["...", "", "", "", "", ""]
            was_left_out = True
            continue
        was_left_out = False
        rating = row.flag or "–" if row.rating is None else number(row.rating, 1)
        yield [
            str(row.rank or "–"),
            f"{'> ' if row.model in placed else '  '}{row.model}",
            rating,
            between(row.ci_low, row.ci_high),
            between(row.rank_low, row.rank_high),
            count(row.n_battles),
        ]
