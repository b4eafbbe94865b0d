"""promptfoo: results of tests by provider and prompt, as JSON, JSON Lines or CSV.

promptfoo/promptfoo, src/types/index.ts; the header of its CSV is "[PROVIDER] PROMPT", a cell "[PASS] OUTPUT".
"""

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from elo_exp import files
from elo_exp.data import table_files
from elo_exp.data.formats import Format
from elo_exp.data.scores import Score
from elo_exp.data.table_files import Row, Source

# The failureReason of a result without a score
_ERROR_FAILURE_REASON = 2
_REQUIRED_KEYS = ("results.version", "results.results")
_OUTPUT_HEADER = re.compile(r"\[(?P<provider>[^\]]+)\] (?P<prompt>.*)", re.DOTALL)
_OUTPUT_CELL = re.compile(r"\[(PASS|FAIL|ERROR)\]")
_VALUE_BY_MARK = {"PASS": 1.0, "FAIL": 0.0, "ERROR": None}


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield the score of each result, or one of its named scores. An item is a test's variables."""
    return _score_results(files.read_json(path)["results"]["results"], metric)


def scores_of_lines(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield the same for a file with a line for each result."""
    return _score_results([row for _, row in table_files.read_rows(path)], metric)


def _score_results(results: Collection[Row], metric: str | None) -> Iterator[Score]:
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


def find_faults_of_csv(path: Source, keys: set[str]) -> list[str]:
    """Return what a CSV file lacks to be one that promptfoo wrote."""
    headers = [str(key) for key in keys if _OUTPUT_HEADER.fullmatch(str(key))]
    if not headers:
        return ["lacks columns such as [PROVIDER] PROMPT"]
    _, row = next(table_files.read_rows(path), ("", {}))
    if not all(_OUTPUT_CELL.match(str(row.get(header))) for header in headers):
        return ["lacks outputs that begin with [PASS] or [FAIL]"]
    return []


def scores_of_csv(path: Path, _: str | None) -> Iterator[Score]:
    """Yield 1 for each output that passed and 0 for one that failed. An item is a test's variables."""
    headers = dict[str, re.Match[str]]()
    for n, (_location, row) in enumerate(table_files.read_rows(path)):
        if n == 0:
            matches = {str(key): _OUTPUT_HEADER.fullmatch(str(key)) for key in row}
            headers = {key: match for key, match in matches.items() if match}
        n_prompts = len({match["prompt"] for match in headers.values()})
        variables = {str(key): cell for key, cell in row.items() if key not in headers}
        for header, match in headers.items():
            yield Score(
                dimension="score",
                entrant=match["provider"]
                if n_prompts == 1
                else f"{match['provider']}, {match['prompt']}",
                item=json.dumps(variables, sort_keys=True),
                draw=str(n),
                value=_read_mark(row[header]),
                columns=variables,
            )


def _read_mark(cell: Any) -> float | None:
    match = _OUTPUT_CELL.match(str(cell))
    return _VALUE_BY_MARK[match[1]] if match else None


_ASSUMPTION = (
    "a score averages a test's assertions; battles_metric=NAME takes one of them"
)
FORMATS = (
    Format(
        name="promptfoo",
        shapes=("object",),
        required=_REQUIRED_KEYS,
        scores=scores,
        assumption=_ASSUMPTION,
    ),
    Format(
        name="promptfoo's lines",
        shapes=("lines",),
        required=("promptIdx", "testIdx", "provider", "vars", "score", "namedScores"),
        scores=scores_of_lines,
        assumption=_ASSUMPTION,
    ),
    Format(
        name="promptfoo's table",
        shapes=("csv",),
        required=(),
        find_faults=find_faults_of_csv,
        scores=scores_of_csv,
        assumption="[PASS] is 1, [FAIL] is 0, [ERROR] is missing",
    ),
    Format(
        name="promptfoo 2",
        shapes=("object",),
        required=(*_REQUIRED_KEYS, "results.table"),
        remedy="Export it with a newer promptfoo: versions 3 and 4 are read.",
    ),
)
