"""alpaca_eval: the outputs of one model, model_outputs.json.

github.com/tatsu-lab/alpaca_eval, src/alpaca_eval/main.py and results/
"""

from collections.abc import Mapping
from typing import Any

from elo_exp.data import field_names
from elo_exp.data.answers import Format, parse_name, require_text
from elo_exp.data.table_files import Row


def answer(row: Row) -> Mapping[str, Any]:
    instruction, input_value = (
        require_text(row["instruction"], "instruction"),
        row.get("input"),
    )
    input_text = require_text(input_value, "input") if input_value else None
    output = row["output"]
    return {
        "prompt": field_names.join_input(instruction, input_text),
        "text": None if output is None else require_text(output, "output"),
        "entrant": parse_name(row.get("generator"), "generator"),
        "source": parse_name(row.get("dataset"), "dataset"),
    }


FORMATS = (
    Format(
        name="alpaca_eval's outputs",
        required=("instruction", "output"),
        answer=answer,
    ),
)
