"""alpaca_eval: annotations of two outputs by a weighted preference.

github.com/tatsu-lab/alpaca_eval, src/alpaca_eval/metrics/helpers.py
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from elo_exp.data.formats import Format, MalformedError
from elo_exp.data.table_files import Row
from elo_exp.errors import format_value


def fields(row: Row) -> Mapping[str, Any]:
    """The preference is 1 for generator_1, 2 for generator_2; 1.5, and 0 in old files, are draws."""
    preference = row["preference"]
    if preference and not (type(preference) in (int, float) and 1 <= preference <= 2):
        raise MalformedError(
            f"preference must be a number from 1 to 2, 0 or null; got {format_value(preference)}."
        )
    return {
        "score": None if preference is None else 2.0 - (preference or 1.5),
        "question_id": hashlib.sha1(str(row["instruction"]).encode()).hexdigest(),
    }


FORMATS = (
    Format(
        name="alpaca_eval",
        required=("generator_1", "generator_2", "preference", "instruction"),
        columns={
            "model_a": "generator_1",
            "model_b": "generator_2",
            "judge_model": "annotator",
            "score": "score",
        },
        fields=fields,
        is_judged=True,
        assumption="generator_1 is the baseline; the order of the outputs is not known",
    ),
    Format(
        name="alpaca_eval's leaderboard",
        required=("win_rate", "standard_error", "n_wins", "n_total"),
        remedy="It holds totals. Give the annotations.json of each model.",
    ),
)
