"""JudgeArena's annotations: the judge's replies, in which scores stand.

github.com/OpenEuroLLM/JudgeArena, judgearena/benchmarks/pairwise/runner.py, prompts/parsing.py
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import scipy

from elo_exp.data.formats import (
    Format,
    Rows,
    check_orders,
    join_orders,
    winner_of,
)
from elo_exp.data.table_files import Row

# Begins at the first "score" of a line: what follows a later one follows the first, too
_SCORE_PATTERN = r'(?m)(?>^.*?score).*?%s[": *\n]*(-?\d+)'
# A thought that is not closed is read on
_THOUGHT = re.compile("<think>.*?</think>|(?P<open><think>.*)", re.DOTALL)


def join(rows: Rows) -> Rows:
    """The second order of a comparison stands in a row of its own, with the models exchanged."""
    columns = ("instruction_index", "judge"), ("model_A", "model_B")
    return join_orders(rows, *columns)


def fields(row: Row) -> Mapping[str, Any]:
    orders = check_orders(row, "model_A")
    ab, *ba = (_parse_share(str(order["judge_completion"])) for order in orders)
    shares = [ab, *(1.0 - share for share in ba)]
    if math.isnan(mean := sum(shares) / len(shares)):
        return {}
    verdicts = zip(("verdict_ab", "verdict_ba"), map(winner_of, shares), strict=False)
    return {"score": mean, **dict(verdicts)}


def _parse_share(reply: str) -> float:
    """Return the share of the answer shown first; NaN if the reply lacks one of the two scores."""
    text = _THOUGHT.sub(lambda thought: thought["open"] or "", reply).lower()
    a, b = (re.search(_SCORE_PATTERN % side, text) for side in "ab")
    return (
        float(scipy.special.expit(0.3 * (int(a[1]) - int(b[1]))))
        if a and b
        else math.nan
    )


FORMATS = (
    Format(
        name="judge_arena",
        required=("model_A", "model_B", "instruction_index", "judge_completion"),
        columns={
            "model_a": "model_A",
            "model_b": "model_B",
            "question_id": "instruction_index",
            "judge_model": "judge",
            "score": "score",
        },
        fields=fields,
        join=join,
        is_judged=True,
        assumption="scores are read as those of JudgeArena's default prompt, temperature 0.3",
    ),
)
