"""FastChat's pairs, as of MT-bench: two games, the second with the models' places exchanged.

github.com/lm-sys/FastChat, fastchat/llm_judge/common.py and show_result.py
"""

from collections.abc import Mapping
from typing import Any

from elo_exp.data.formats import BattlesFormat, UnreadFormat
from elo_exp.data.tables import Row

_WORDS = {"model_1": "model_a", "model_2": "model_b", "error": None}


def row(given: Row) -> Mapping[str, Any]:
    """Both winners name the model, whatever its place."""
    ab, ba = (
        _WORDS.get(word, word) for word in (given["g1_winner"], given["g2_winner"])
    )
    fields = {"verdict_ab": ab, "verdict_ba": ba}
    if "m1_score" in given and ab and ba:
        fields = {"winner": ab}
    judge, *_ = given["judge"]  # then a template
    return fields | {"judge": judge, "dimension": f"turn {given['turn']:d}"}


FORMATS = (
    BattlesFormat(
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
        row=row,
        judged=True,
        assumes="turns are dimensions, a judge's templates one judge; m1_score is one verdict",
    ),
    UnreadFormat(
        name="FastChat's single scores",
        required=("question_id", "model", "judgment", "score"),
        lead="Give the judge's *_pair.jsonl.",
    ),
)
