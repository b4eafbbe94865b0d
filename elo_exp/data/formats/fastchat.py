"""FastChat's pairs, as of MT-bench: two games, the second with the models' places exchanged.

github.com/lm-sys/FastChat, fastchat/llm_judge/common.py and show_result.py
"""

from collections.abc import Mapping
from typing import Any

from elo_exp.data.formats import Format
from elo_exp.data.table_files import Row


def fields(row: Row) -> Mapping[str, Any]:
    """Both winners name the column of the model, whatever its place."""
    words = row["g1_winner"], row["g2_winner"]
    ab, ba = (None if word == "error" else word for word in words)
    is_single_game = "m1_score" in row and ab and ba
    judge, *_ = row["judge"]  # then a template
    return {
        **({"winner": ab} if is_single_game else {"verdict_ab": ab, "verdict_ba": ba}),
        "judge": judge,
        "dimension": f"turn {row['turn']:d}",
    }


FORMATS = (
    Format(
        name="fastchat",
        required=(
            "question_id",
            "model_1",
            "model_2",
            "g1_winner",
            "g2_winner",
            "turn",
        ),
        columns={
            "model_a": "model_1",
            "model_b": "model_2",
            "judge_model": "judge",
            "dimension": "dimension",
        },
        fields=fields,
        is_judged=True,
        assumption="turns are dimensions, a judge's templates one judge; m1_score is one verdict",
    ),
    Format(
        name="FastChat's single scores",
        required=("question_id", "model", "judgment", "score"),
        remedy="Give the judge's *_pair.jsonl.",
    ),
)
