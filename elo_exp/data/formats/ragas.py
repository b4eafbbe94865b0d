"""ragas: the samples of one application with a column for each metric, as CSV or JSON Lines.

github.com/explodinggradients/ragas, src/ragas/dataset_schema.py (SingleTurnSample, EvaluationResult.to_pandas). Until
version 0.2 the columns were question, answer, contexts and ground_truth.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from elo_exp.data import field_names, table_files
from elo_exp.data.field_names import entrant_stem
from elo_exp.data.formats import Format, parse_number
from elo_exp.data.scores import Score
from elo_exp.data.table_files import Row, Source

QUESTION_COLUMNS = ("user_input", "question")
# Columns of a sample, which are no metrics even if they hold numbers
_SAMPLE_COLUMNS = (
    *("user_input", "response", "reference", "question", "answer", "ground_truth"),
    *("ground_truths", "contexts", "retrieved_contexts", "reference_contexts"),
    *("retrieved_context_ids", "reference_context_ids", "multi_responses", "rubrics"),
    *("persona_name", "query_style", "query_length", "reference_tool_calls"),
    *("reference_topics", "evolution_type", "episode_done", "metadata", "cluster"),
    *("synthesizer_name", "", "index", "unnamed:_0", "row", "seed"),
    *(*field_names.ID, *field_names.ENTRANT, *field_names.SOURCE),
)
_WORDS_OF_COSTS = ("cost", "latency", "seconds", "time", "tokens", "price", "duration")


def find_faults(path: Source, _: set[str]) -> list[str]:
    """Return what a file of samples lacks to be one that was scored."""
    if list_metrics([row for _, row in table_files.read_rows(path)]):
        return []
    return ["lacks a column of numbers, one for each metric"]


def list_metrics(rows: Collection[Row]) -> list[str]:
    """Return the columns that hold a number, or nothing, in all rows."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [str(name) for name in names if _is_metric(str(name), rows)]


def _is_metric(name: str, rows: Collection[Row]) -> bool:
    plain_name = name.strip().casefold().replace(" ", "_")
    if plain_name in _SAMPLE_COLUMNS:
        return False
    if any(word in _WORDS_OF_COSTS for word in plain_name.split("_")):
        return False
    try:
        values = [parse_number(row.get(name)) for row in rows]
    except (TypeError, ValueError):
        return False
    return any(value is not None for value in values)


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield each metric of each sample. An item is a question; a question that occurs again is a draw of it."""
    rows = [row for _, row in table_files.read_rows(path)]
    metrics, stem = list_metrics(rows), entrant_stem(path)
    n_occurrences = Counter[tuple[str, str]]()
    for row in rows:
        item = describe_question(row)
        entrant = str(field_names.first_value(row, field_names.ENTRANT) or stem)
        n_occurrences[entrant, item] += 1
        for name in metrics:
            if metric in (None, name):
                yield Score(
                    dimension=name,
                    entrant=entrant,
                    item=item,
                    draw=str(n_occurrences[entrant, item]),
                    value=parse_number(row.get(name)),
                    columns=row,
                )


def describe_question(row: Row) -> str:
    """Return the question of a sample, or the messages of a conversation."""
    question: Any = next(row[name] for name in QUESTION_COLUMNS if name in row)
    return question if isinstance(question, str) else json.dumps(question)


_FORMAT = Format(
    name="ragas",
    required=("user_input", "response"),
    find_faults=find_faults,
    scores=scores,
    has_answers=True,
    assumption="each column of numbers is a metric, and the file names the entrant if no row does",
)
FORMATS = (_FORMAT, replace(_FORMAT, required=("question", "answer", "contexts")))
