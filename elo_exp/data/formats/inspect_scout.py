"""inspect_scout: the results of a scanner on transcripts, as Parquet or as a saved data frame.

github.com/meridianlabs-ai/inspect_scout, docs/_results-data-frame.md
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elo_exp.data import table_files
from elo_exp.data.formats import Format, parse_number
from elo_exp.data.scores import Score
from elo_exp.data.table_files import Row
from elo_exp.errors import FileError, format_value

# Values of these types are no numbers
_TYPES_OF_PARTS = ("array", "object", "resultset", "null")


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield the value of each result. An item is a task, and a result with an error is missing.

    Repeats of a task are draws of it, and so are several results of a scanner on one transcript.
    """
    n_results = Counter[tuple[str, str, str]]()
    for location, row in table_files.read_rows(path):
        labels = (row.get("scanner_key") or row["scanner_name"], row.get("label"))
        dimension = metric or _join_texts(*labels)
        task = (row.get("transcript_task_set"), row.get("transcript_task_id"))
        has_task = table_files.to_text(row.get("transcript_task_id")) is not None
        item = _join_texts(*task) if has_task else str(row["transcript_id"])
        entrant = _find_entrant(row, location)
        has_failed = table_files.to_text(row.get("scan_error")) is not None
        key = dimension, entrant, item
        n_results[key] += 1
        yield Score(
            dimension=dimension,
            entrant=entrant,
            item=item,
            draw=str(n_results[key]),
            value=None
            if has_failed
            else _read_value(row, row.get(metric or "value"), location),
            columns=row,
        )


def _join_texts(*cells: Any) -> str:
    return " ".join(text for cell in cells if (text := table_files.to_text(cell)))


def _find_entrant(row: Row, location: str) -> str:
    """Return the model and the agent of a transcript."""
    cells = (row.get("transcript_model"), row.get("transcript_agent"))
    texts = [text for cell in cells if (text := table_files.to_text(cell))]
    if not texts:
        raise FileError.bad_file(
            location,
            "has neither transcript_model nor transcript_agent",
            "Fill in one of them. It is the entrant.",
        )
    return ", ".join(texts)


def _read_value(row: Row, value: Any, location: str) -> float | None:
    if row.get("value_type") in _TYPES_OF_PARTS or isinstance(value, list | dict):
        return None
    try:
        return parse_number(value)
    except (TypeError, ValueError):
        raise FileError.bad_file(
            location,
            f"has the value {format_value(value)}, which is no number",
            "Choose a column of numbers, such as battles_metric=transcript_score.",
        ) from None


FORMATS = (
    Format(
        name="inspect_scout",
        required=("transcript_id", "scanner_name", "value"),
        scores=scores,
        assumption="a scanner is a dimension, and true is 1, which may be good or bad",
    ),
)
