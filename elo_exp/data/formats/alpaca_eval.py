"""alpaca_eval: annotations of two outputs by a weighted preference.

github.com/tatsu-lab/alpaca_eval, src/alpaca_eval/metrics/helpers.py
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from elo_exp.data import tables
from elo_exp.data.formats import (
    INVALID,
    BattlesFormat,
    MalformedError,
    UnreadFormat,
    winner_of,
)
from elo_exp.data.style import counts
from elo_exp.data.tables import Row


def row(given: Row, remarks: Counter[str]) -> Mapping[str, Any]:
    """The preference is 1 for generator_1, 2 for generator_2; 1.5, and 0 in old files, are draws."""
    preference = given["preference"]
    is_number = isinstance(preference, int | float) and not isinstance(preference, bool)
    if preference is not None and not (
        is_number and (preference == 0 or 1 <= preference <= 2)
    ):
        raise MalformedError(
            f"preference is {preference!r}. Expected a number from 1 to 2, 0 or null."
        )
    score = 0.5 if preference == 0 else 2.0 - (preference or 0.0)
    instruction = tables.text(given["instruction"])
    style = {
        f"style_{side}": list(counts(text))
        for side, text in (("a", given.get("output_1")), ("b", given.get("output_2")))
        if isinstance(text, str)
    }
    return {
        "model_a": given["generator_1"],
        "model_b": given["generator_2"],
        "winner": INVALID if preference is None else winner_of(score),
        "score": score,
        "source": "llm-judge",
        "judge_model": given.get("annotator"),
        "question_id": instruction and hashlib.sha1(instruction.encode()).hexdigest(),
        **style,
    }


FORMATS = (
    BattlesFormat(
        name="alpaca_eval",
        shapes=("array", "lines"),
        required=("generator_1", "generator_2", "preference", "instruction"),
        optional=("output_1", "output_2", "annotator"),
        columns={"score": "score"},
        row=row,
        unique=True,
        assumes="generator_1 is the baseline; which output was shown first is not known",
    ),
    UnreadFormat(
        name="alpaca_eval's leaderboard",
        shapes=("csv",),
        required=("win_rate", "standard_error", "n_wins", "n_total"),
        lead="It holds totals. Give the annotations.json of each model.",
    ),
)
