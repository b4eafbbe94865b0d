"""Arena-Hard-Auto's judgments: two games of a model with the baseline, which is A in the first.

github.com/lmarena/arena-hard-auto, gen_judgment.py and show_result.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elo_exp.data.formats import BattlesFormat, MalformedError
from elo_exp.data.tables import Row

_BASELINE = "gpt-4-0314"  # of version 0.1, which names none
_A, _B, _TIE = (
    ("A>>B", "A>B", "B<A", "B<<A"),
    ("B>>A", "B>A", "A<B", "A<<B"),
    ("A=B", "B=A"),
)


def row(given: Row) -> Mapping[str, Any]:
    first, second = given["games"]
    return {
        "model_a": given.get("baseline") or _BASELINE,
        "question_id": given["uid"] if "uid" in given else given["question_id"],
        "verdict_ab": _winner(first, "model_a", "model_b"),
        "verdict_ba": _winner(second, "model_b", "model_a"),
    }


def _winner(game: Any, a: str, b: str) -> str | None:
    label = game["score"] if game else None
    for labels, winner in ((_A, a), (_B, b), (_TIE, "tie")):
        if label in labels:
            return winner
    if label is not None:
        raise MalformedError(
            f"score is {label!r}. Expected A>>B, A>B, A=B, B>A or B>>A."
        )
    return None


FORMATS = (
    BattlesFormat(
        name="arena_hard",
        required=("model", "judge", "games"),
        columns={"model_b": "model", "judge_model": "judge"},
        row=row,
        judged=True,
        assumes=f"A>>B counts as A>B; a baseline that is not named is {_BASELINE}",
    ),
)
