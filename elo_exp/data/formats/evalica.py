"""evalica: left, right and a winner (github.com/dustalov/evalica, food.csv and llmfao.csv)."""

from elo_exp.data.formats import Format

FORMATS = (
    Format(
        name="evalica",
        required=("left", "right", "winner"),
        columns={"model_a": "left", "model_b": "right", "question_id": "prompt"},
    ),
)
