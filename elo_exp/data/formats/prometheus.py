"""Prometheus: responses that a judge gave a score from 1 to 5, as BiGGen-Bench's results or as rows.

github.com/prometheus-eval/prometheus-eval, BiGGen-Bench/run_response_eval.py (an object of instances by id) and
eval/utils.py (prometheus_score); huggingface.co/datasets/prometheus-eval/BiGGen-Bench-Results (a column for each judge,
a list for several tries, -1 for a reply without a score) and Feedback-Collection (columns that begin with orig_).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from elo_exp import files
from elo_exp.data import field_names, table_files
from elo_exp.data.field_names import entrant_stem
from elo_exp.data.formats import Format, parse_number
from elo_exp.data.scores import Score
from elo_exp.data.table_files import Row, Source

ENTRANT_COLUMNS = ("response_model_name", "model_name", *field_names.ENTRANT)
INSTRUCTION_COLUMNS = ("orig_instruction", "instruction", "input")
_INSTANCE_KEYS = ("capability", "score_rubric", "response", "response_model_name")
_SCALE = (1.0, 5.0)
_SCORE_SUFFIX = "_score"
_MAX_CRITERIA = 20
_MAX_CRITERION_CHARS = 60


def find_faults_of_object(_: Source, keys: set[str]) -> list[str]:
    """Return what an object lacks to hold instances by their ids."""
    return _list_lacking(keys, _INSTANCE_KEYS)


def find_faults_of_scores(_: Source, keys: set[str]) -> list[str]:
    """Return what such an object lacks to be scored."""
    return _list_lacking(keys, (*_INSTANCE_KEYS, "score"))


def _list_lacking(keys: set[str], required: Sequence[str]) -> list[str]:
    inner_keys = {str(key).rpartition(".")[2] for key in keys if "." in str(key)}
    return [f"lacks {key}" for key in required if key not in inner_keys]


def find_faults_of_table(_: Source, keys: set[str]) -> list[str]:
    """Return what a table of instances lacks to be scored."""
    return [] if _list_score_columns(keys) else ["lacks a column that ends in _score"]


def read_instances(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the instances of an object, or the rows of a table, with their locations."""
    if table_files.detect_shape(path) in table_files.TABLE_SHAPES:
        return table_files.read_rows(path)
    instances = files.read_json(path)
    return ((f"{path}: {key}", row) for key, row in instances.items())


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield the scores of each instance. A dimension is a capability, as one judge scores it."""
    entrant = entrant_stem(path)
    for _, row in read_instances(path):
        for column in _list_score_columns(row):
            if metric not in (None, column):
                continue
            judge = row.get("eval_model_name") or column.removesuffix(_SCORE_SUFFIX)
            yield Score(
                dimension=f"{row['capability']} by {judge}",
                entrant=field_names.first_value(row, ENTRANT_COLUMNS) or entrant,
                item=row["id"],
                value=_read_score(row[column]),
                columns=row,
            )


def _list_score_columns(keys: Collection[str]) -> list[str]:
    return [
        key for key in map(str, keys) if key == "score" or key.endswith(_SCORE_SUFFIX)
    ]


def _read_score(value: Any) -> float | None:
    """Return a score, or the mean of several tries. Return None for a reply without a score."""
    if isinstance(value, str) and value.startswith("["):
        value = value.strip("[]").replace(",", " ").split()
    tries = value if isinstance(value, list | tuple) else [value]
    numbers = [number for cell in tries if (number := parse_number(cell)) is not None]
    valid = [number for number in numbers if number >= _SCALE[0]]
    return fmean(valid) if valid and math.isfinite(sum(valid)) else None


def scores_of_rows(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield the score of each response. Few short criteria are dimensions; a repeated instruction is a draw."""
    rows = [row for _, row in table_files.read_rows(path)]
    criteria = [_read_criterion(row) for row in rows]
    known_criteria = {*criteria} - {None}
    are_dimensions = len(known_criteria) <= _MAX_CRITERIA and all(
        len(str(criterion)) <= _MAX_CRITERION_CHARS for criterion in known_criteria
    )
    stem, n_occurrences = entrant_stem(path), Counter[Any]()
    for row, criterion in zip(rows, criteria, strict=True):
        entrant = field_names.first_value(row, ENTRANT_COLUMNS) or stem
        item = field_names.first_value(row, INSTRUCTION_COLUMNS)
        dimension = str(criterion) if criterion and are_dimensions else "score"
        column = metric or next(name for name in _ROW_SCORES if name in row)
        key = dimension, entrant, item
        yield Score(
            dimension=dimension,
            entrant=entrant,
            item=item,
            draw=str(n_occurrences[key]),
            value=_read_score(row.get(column)),
            columns=row,
        )
        n_occurrences[key] += 1


_ROW_SCORES = ("prometheus_score", "score", "orig_score")


def _read_criterion(row: Row) -> str | None:
    """Return the criterion of a row: the top line of its rubric, without brackets."""
    cell = field_names.first_value(row, ("criteria", "orig_criteria", "rubric"))
    lines = (table_files.to_text(cell) or "").strip().splitlines()
    return lines[0].strip("[] ") if lines else None


FORMATS = (
    Format(
        name="BiGGen-Bench",
        shapes=("object",),
        required=(),
        find_faults=find_faults_of_scores,
        scores=scores,
        scale=_SCALE,
        has_answers=True,
        assumption="a dimension is a capability and a judge",
    ),
    Format(
        name="BiGGen-Bench's table",
        required=("id", "capability", "task", "response"),
        find_faults=find_faults_of_table,
        scores=scores,
        scale=_SCALE,
        has_answers=True,
        assumption="a dimension is a capability and a judge; several tries are averaged",
    ),
    *(
        Format(
            name="Prometheus",
            required=required,
            scores=scores_of_rows,
            scale=_SCALE,
            has_answers=True,
            assumption="equal instructions are one item, and the file names the entrant if no row does",
        )
        for required in (
            ("instruction", "response", "feedback", "score"),
            ("orig_instruction", "orig_response", "orig_score"),
            ("instruction", "prometheus_score"),
        )
    ),
)
