"""Arena-Hard-Auto's judgments: one or two games of a model with the baseline, which is A in the first.

github.com/lmarena/arena-hard-auto, gen_judgment.py and show_result.py
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from elo_exp.data.formats import Format, MalformedError, Rows
from elo_exp.data.table_files import Row
from elo_exp.errors import format_value

# Files of version 0.1 do not name their baseline
_DEFAULT_BASELINE = "gpt-4-0314"
_STRONG_LABELS = ("A>>B", "B<<A", "B>>A", "A<<B")


def fields(row: Row) -> Mapping[str, Any]:
    first_game, *later_games = row["games"]
    if len(later_games) > 1:
        raise MalformedError("the row has more than two games.")
    ab = _read_winner(first_game, "model_a", "model_b")
    ba = _read_winner(later_games[0], "model_b", "model_a") if later_games else None
    is_single_game = not later_games or ("game" in row and ab and ba)
    return {
        "model_a": row.get("baseline") or _DEFAULT_BASELINE,
        "question_id": row["uid"] if "uid" in row else row["question_id"],
        "source": "llm-judge",
        "winner": (ab, ba)[row.get("game", 0)] if is_single_game else None,
        **({} if is_single_game else {"verdict_ab": ab, "verdict_ba": ba}),
    }


def list_notes(rows: Rows) -> list[str]:
    """Say how many rows have one game."""
    n = sum(isinstance(g := row.get("games"), list) and len(g) == 1 for _, row in rows)
    return [f"rows with one game instead of two, judged in one order: {n}"] if n else []


def repeat_strong_games(rows: Rows) -> Rows:
    """Count a game of A>>B or B>>A three times."""
    for location, row in rows:
        yield location, row
        games = row.get("games")
        for n, game in enumerate(games if isinstance(games, list) else ()):
            if isinstance(game, dict) and game.get("score") in _STRONG_LABELS:
                yield from [(location, {**row, "game": n})] * 2


def _read_winner(game: Any, a: str, b: str) -> str | None:
    label = game["score"] if game else None
    winners = {
        None: None,
        "A>B": a,
        "B<A": a,
        "A=B": "tie",
        "B=A": "tie",
        "B>A": b,
        "A<B": b,
    }
    weak = label and re.sub(r"([<>])\1", r"\1", label)
    if weak not in winners:
        raise MalformedError(
            f"score must be A>>B, A>B, A=B, B>A or B>>A; got {format_value(label)}."
        )
    return winners[weak]


_FORMAT = Format(
    name="arena_hard",
    required=("model", "judge", "games"),
    columns={"model_b": "model", "judge_model": "judge"},
    fields=fields,
    list_notes=list_notes,
    is_judged=True,
    assumption=f"A>>B counts as A>B; a baseline that is not named is {_DEFAULT_BASELINE}",
)
FORMATS = (
    _FORMAT,
    replace(
        _FORMAT,
        name="arena_hard_weighted",  # by battles_format alone
        join=repeat_strong_games,
        is_judged=False,  # once
        assumption=f"A>>B counts three times; a baseline that is not named is {_DEFAULT_BASELINE}",
    ),
)
