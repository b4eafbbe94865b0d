"""promptfoo: results of tests by provider and prompt (promptfoo/promptfoo, src/types/index.ts)."""

import json
from collections.abc import Iterator
from pathlib import Path

from elo_exp import files
from elo_exp.data.formats import Format
from elo_exp.data.scores import Score

# The failureReason of a result without a score
_ERROR_FAILURE_REASON = 2
_REQUIRED_KEYS = ("results.version", "results.results")


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield the score of each result, or one of its named scores. An item is a test's variables."""
    results = files.read_json(path)["results"]["results"]
    prompts = {row["prompt"]["label"] for row in results}
    for row in results:
        entrant = row["provider"].get("label") or row["provider"]["id"]
        if len(prompts) > 1:
            entrant = f"{entrant}, {row['prompt']['label']}"
        variables = {  # without those that promptfoo adds
            key: value
            for key, value in row["vars"].items()
            if key != "sessionId" and not key.startswith("_")
        }
        value = row["namedScores"].get(metric) if metric else row["score"]
        yield Score(
            dimension=metric or "score",
            entrant=entrant,
            item=json.dumps(variables, sort_keys=True),
            draw=row["testIdx"],
            value=None if row["failureReason"] == _ERROR_FAILURE_REASON else value,
            columns=variables,
        )


FORMATS = (
    Format(
        name="promptfoo",
        shapes=("object",),
        required=_REQUIRED_KEYS,
        scores=scores,
        assumption="a score averages a test's assertions; battles_metric=NAME takes one of them",
    ),
    Format(
        name="promptfoo 2",
        shapes=("object",),
        required=(*_REQUIRED_KEYS, "results.table"),
        remedy="Export it with a newer promptfoo: versions 3 and 4 are read.",
    ),
)
